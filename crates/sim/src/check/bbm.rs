//! Break before make: where the machine demands it a live word is not replaced by another live one.
//!
//! Only words that a running root reaches count. A word that was broken may be made again when no
//! CPU has anything cached that was read from it and that it can use, global or of the root that it
//! runs. What is kept under the tag of another root is *outdated* by that, and must be gone when
//! the root is activated again.
//!
//! **Not here**: translations that were read from a table below a broken pointer; the checker of
//! stale translations sees those when the table is freed.

use super::words::Words;
use super::{Checker, Event, Report, Seen};
use crate::cache::Cached;
use crate::config::Format;
use crate::format::Decoded;
use foliant_units::{Cpu, Pa};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub(super) struct BreakBeforeMake {
    format: Format,
    words: Words,
    /// Broken words and what they said last.
    broken: BTreeMap<u64, u64>,
    /// Cached entries by the word they were read from, the CPU, and the tag; `None` for what is
    /// global.
    cached: BTreeMap<(u64, u16, Option<Pa>), u32>,
    /// By CPU and tag: the words that were made again while the CPU kept something of them under
    /// the tag and ran another root.
    outdated: BTreeSet<(u16, Pa, u64)>,
}

impl BreakBeforeMake {
    pub(super) fn new(format: Format) -> BreakBeforeMake {
        BreakBeforeMake {
            format,
            words: Words::new(format),
            broken: BTreeMap::new(),
            cached: BTreeMap::new(),
            outdated: BTreeSet::new(),
        }
    }

    /// Says of a broken word that is made again whether some CPU could use both translations now.
    /// Notes the CPUs that kept the old one under a tag.
    fn is_used_while_made(&mut self, word: u64) -> bool {
        let mut used = false;
        for (_, cpu, tag) in
            self.cached.range((word, 0, None)..(word + 1, 0, None)).map(|(at, _)| *at)
        {
            match tag.filter(|tag| !self.words.runs(cpu, *tag)) {
                Some(tag) => {
                    self.outdated.insert((cpu, tag, word));
                }
                None => used = true,
            }
        }
        used
    }

    fn filled(&mut self, cpu: Cpu, entry: &Cached) {
        *self.cached.entry(at(cpu, entry)).or_default() += 1;
    }

    fn dropped(&mut self, cpu: Cpu, entry: &Cached) {
        let at = at(cpu, entry);
        if let Some(count) = self.cached.get_mut(&at) {
            *count -= 1;
            if *count == 0 {
                self.cached.remove(&at);
                self.outdated.remove(&(cpu.0, entry.tag, entry.word.get()));
            }
        }
    }

    /// Whether the two words mean the same at their level, accessed and dirty apart.
    fn same(&self, level: u8, a: u64, b: u64) -> bool {
        match (self.format.decode(level, a), self.format.decode(level, b)) {
            (Decoded::Leaf(a), Decoded::Leaf(b)) => {
                a.base == b.base && a.rights == b.rights && a.shift == b.shift
            }
            (
                Decoded::Table { table: a, rights: p, .. },
                Decoded::Table { table: b, rights: q, .. },
            ) => a == b && p == q,
            (a, b) => a == b,
        }
    }
}

fn at(cpu: Cpu, entry: &Cached) -> (u64, u16, Option<Pa>) {
    (entry.word.get(), cpu.0, (!entry.is_global()).then_some(entry.tag))
}

impl Checker for BreakBeforeMake {
    fn name(&self) -> &'static str {
        "bbm"
    }

    fn event(&mut self, seen: &Seen<'_>, event: &Event<'_>, report: &mut Report<'_>) {
        match *event {
            Event::Stored { pa, old, new } => {
                let was = if self.format.live(old) { Some(old) } else { None };
                let last = was.or_else(|| self.broken.remove(&pa.get()));
                let level = self.words.level(seen.memory, pa.get());
                if let (Some(last), Some(level)) = (last, level) {
                    if !self.format.live(new) {
                        self.broken.insert(pa.get(), last);
                    } else if !self.same(level, last, new) {
                        if was.is_some() {
                            report(format!("live word at {pa:?}: {last:#x} became {new:#x}"));
                        } else if self.is_used_while_made(pa.get()) {
                            report(format!("word at {pa:?} made again before the flush: {new:#x}"));
                        }
                    }
                }
            }
            Event::Filled { entry } => self.filled(seen.cpu, &entry),
            Event::Dropped { entry } => self.dropped(seen.cpu, &entry),
            Event::Activated { root } => {
                let (cpu, tag) = (seen.cpu.0, root.user);
                let mut kept = self.outdated.range((cpu, tag, 0)..=(cpu, tag, u64::MAX));
                if let Some((_, _, word)) = kept.next() {
                    let word = Pa::new(*word);
                    report(format!(
                        "{tag:?} is activated again with what {word:?} said before it was made"
                    ));
                }
            }
            _ => {}
        }
        self.words.event(seen.cpu, seen.memory, event);
    }
}
