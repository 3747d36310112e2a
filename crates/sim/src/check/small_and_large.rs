//! A user's leaf becomes a table only when no CPU can use the leaf any more (G3).
//!
//! Whatever the machine's rule for live entries is, a page that is cached by a large leaf and by a
//! small one at once has two meanings. So a word that a large leaf was read from and that becomes a
//! pointer to a table is not cached as the leaf by a CPU that runs its root. What is kept under the
//! tag of another root is gone when that root is activated again.
//!
//! **Not here**: leaves of the kernel half, which may be taken apart in place; a table that becomes
//! a leaf.

use super::{Checker, Event, Report, Seen};
use crate::cache::Cached;
use crate::config::Format;
use crate::format::Decoded;
use foliant_units::{Cpu, Pa};
use std::collections::{BTreeMap, BTreeSet};

/// Where a leaf is cached: its word, the CPU, the tag.
type Place = (u64, u16, Pa);

#[derive(Debug)]
pub(super) struct SmallAndLarge {
    format: Format,
    roots: BTreeMap<u16, Pa>,
    /// Users' leaves above the lowest level that are cached: the level, and for how many addresses.
    cached: BTreeMap<Place, (u8, u32)>,
    /// Those whose words became tables while the CPU did not run the root.
    outdated: BTreeSet<(u16, Pa, u64)>,
}

fn place(cpu: Cpu, entry: &Cached) -> Place {
    (entry.word.get(), cpu.0, entry.tag)
}

fn is_large(entry: &Cached) -> bool {
    !entry.table && entry.level > 0 && entry.rights.user
}

impl SmallAndLarge {
    pub(super) fn new(format: Format) -> SmallAndLarge {
        let (roots, cached) = (BTreeMap::new(), BTreeMap::new());
        SmallAndLarge { format, roots, cached, outdated: BTreeSet::new() }
    }

    /// A word is made: the CPU that can use both what it was and what it is.
    fn made(&mut self, pa: Pa, new: u64) -> Option<u16> {
        let word = pa.get();
        let first = (word, 0, Pa::new(0));
        let mut used = None;
        for ((_, cpu, tag), (level, _)) in self.cached.range(first..(word + 1, 0, Pa::new(0))) {
            if !matches!(self.format.decode(*level, new), Decoded::Table { .. }) {
                continue;
            }
            match self.roots.get(cpu) == Some(tag) {
                true => used = used.or(Some(*cpu)),
                false => _ = self.outdated.insert((*cpu, *tag, word)),
            }
        }
        used
    }

    fn dropped(&mut self, cpu: Cpu, entry: &Cached) {
        let at = place(cpu, entry);
        if let Some((_, count)) = self.cached.get_mut(&at) {
            *count -= 1;
            if *count == 0 {
                self.cached.remove(&at);
                self.outdated.remove(&(cpu.0, entry.tag, entry.word.get()));
            }
        }
    }
}

impl Checker for SmallAndLarge {
    fn name(&self) -> &'static str {
        "small_and_large"
    }

    fn event(&mut self, seen: &Seen<'_>, event: &Event<'_>, report: &mut Report<'_>) {
        match *event {
            Event::Stored { pa, new, .. } => {
                if let Some(cpu) = self.made(pa, new) {
                    report(format!(
                        "the word at {pa:?} is a table, and cpu {cpu} has it as a leaf"
                    ));
                }
            }
            Event::Filled { entry } if is_large(&entry) => {
                self.cached.entry(place(seen.cpu, &entry)).or_insert((entry.level, 0)).1 += 1;
            }
            Event::Dropped { entry } if is_large(&entry) => self.dropped(seen.cpu, &entry),
            Event::Activated { root } => {
                let (cpu, tag) = (seen.cpu.0, root.user);
                self.roots.insert(cpu, tag);
                let mut kept = self.outdated.range((cpu, tag, 0)..=(cpu, tag, u64::MAX));
                if let Some((_, _, word)) = kept.next() {
                    let word = Pa::new(*word);
                    report(format!(
                        "{tag:?} is activated again with the leaf at {word:?}, which is a table"
                    ));
                }
            }
            _ => {}
        }
    }
}
