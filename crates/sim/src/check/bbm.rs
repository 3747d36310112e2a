//! Break before make: where the machine demands it a live word is not replaced by another live one.
//!
//! Only words that a running root reaches count. A word that was broken may be made again when no CPU
//! has anything cached that was read from it.
//!
//! **Not here**: translations that were read from a table below a broken pointer; the checker of stale
//! translations sees those when the table is freed.

use super::words::Words;
use super::{Checker, Event, Report, Seen};
use crate::config::Format;
use crate::format::Decoded;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(super) struct BreakBeforeMake {
    format: Format,
    words: Words,
    /// Broken words and what they said last.
    broken: BTreeMap<u64, u64>,
    /// Cached entries by the word they were read from.
    cached: BTreeMap<u64, u32>,
}

impl BreakBeforeMake {
    pub(super) fn new(format: Format) -> BreakBeforeMake {
        let words = Words::new(format);
        BreakBeforeMake { format, words, broken: BTreeMap::new(), cached: BTreeMap::new() }
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

impl Checker for BreakBeforeMake {
    fn name(&self) -> &'static str {
        "bbm"
    }

    fn event(&mut self, seen: &Seen<'_>, event: &Event, report: &mut Report<'_>) {
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
                        } else if self.cached.contains_key(&pa.get()) {
                            report(format!("word at {pa:?} made again before the flush: {new:#x}"));
                        }
                    }
                }
            }
            Event::Cleared { pa, bytes } => {
                let range = pa.get()..pa.get() + bytes;
                let gone: Vec<u64> = self.broken.range(range).map(|(at, _)| *at).collect();
                gone.iter().for_each(|at| {
                    self.broken.remove(at);
                });
            }
            Event::Filled { entry } => *self.cached.entry(entry.word.get()).or_default() += 1,
            Event::Dropped { entry } => {
                if let Some(count) = self.cached.get_mut(&entry.word.get()) {
                    *count -= 1;
                    if *count == 0 {
                        self.cached.remove(&entry.word.get());
                    }
                }
            }
            _ => {}
        }
        self.words.event(seen.cpu, seen.memory, event);
    }
}
