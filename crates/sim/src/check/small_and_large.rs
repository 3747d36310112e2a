//! A user's leaf becomes a table only when no CPU can use the leaf any more, and a table a leaf
//! only when no CPU can use the table (G3).
//!
//! Whatever the machine's rule for live entries is, a page that is cached by a large leaf and by a
//! small one at once has two meanings. So a word that a large leaf was read from and that becomes a
//! pointer to a table is not cached as the leaf by a CPU that runs its root, and one that becomes a
//! leaf is not cached as a pointer. What is kept under the tag of another root is gone when that
//! root is activated again.
//!
//! **Not here**: the kernel half, whose leaves may be taken apart in place; small leaves that
//! outlive the pointer to their table (`no_stale_translation`).

use super::{Checker, Event, Report, Seen};
use crate::cache::Cached;
use crate::config::Format;
use crate::format::{Decoded, Half};
use foliant_units::{Cpu, Pa};
use std::collections::{BTreeMap, BTreeSet};

/// Where a word is cached: its address, the CPU, the tag.
type Place = (u64, u16, Pa);

/// What a word says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Says {
    Leaf,
    Table,
}

#[derive(Debug)]
pub(super) struct SmallAndLarge {
    format: Format,
    roots: BTreeMap<u16, Pa>,
    /// Users' words above the lowest level that are cached: the level, and for how many addresses.
    cached: BTreeMap<(Place, Says), (u8, u32)>,
    /// Those whose words became the other while the CPU did not run the root.
    outdated: BTreeSet<(u16, Pa, u64, Says)>,
}

fn place(cpu: Cpu, entry: &Cached) -> Place {
    (entry.word.get(), cpu.0, entry.tag)
}

/// What the word of a cached entry said, where it is one of a user that says either.
fn said(entry: &Cached) -> Option<Says> {
    match entry.table {
        true => (entry.half == Half::User).then_some(Says::Table),
        false => (entry.level > 0 && entry.rights.user).then_some(Says::Leaf),
    }
}

impl SmallAndLarge {
    pub(super) fn new(format: Format) -> SmallAndLarge {
        let (roots, cached) = (BTreeMap::new(), BTreeMap::new());
        SmallAndLarge { format, roots, cached, outdated: BTreeSet::new() }
    }

    /// A word is made: the CPU that can use both what it was and what it is, and what it was.
    fn made(&mut self, pa: Pa, new: u64) -> Option<(u16, Says)> {
        let word = pa.get();
        let at = |word| ((word, 0, Pa::new(0)), Says::Leaf);
        let mut used = None;
        for (((_, cpu, tag), old), (level, _)) in self.cached.range(at(word)..at(word + 1)) {
            let other = match self.format.decode(*level, new) {
                Decoded::Table { .. } => Says::Leaf,
                Decoded::Leaf(_) => Says::Table,
                Decoded::Nothing => continue,
            };
            if *old != other {
                continue;
            }
            match self.roots.get(cpu) == Some(tag) {
                true => used = used.or(Some((*cpu, *old))),
                false => _ = self.outdated.insert((*cpu, *tag, word, *old)),
            }
        }
        used
    }

    fn dropped(&mut self, cpu: Cpu, entry: &Cached, said: Says) {
        let at = (place(cpu, entry), said);
        if let Some((_, count)) = self.cached.get_mut(&at) {
            *count -= 1;
            if *count == 0 {
                self.cached.remove(&at);
                self.outdated.remove(&(cpu.0, entry.tag, entry.word.get(), said));
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
            Event::Stored { pa, new, .. } => match self.made(pa, new) {
                Some((cpu, Says::Leaf)) => {
                    report(format!("the word at {pa:?} is a table, and cpu {cpu} has it as a leaf"))
                }
                Some((cpu, Says::Table)) => {
                    report(format!("the word at {pa:?} is a leaf, and cpu {cpu} has it as a table"))
                }
                None => {}
            },
            Event::Filled { entry } => {
                if let Some(said) = said(&entry) {
                    let at = (place(seen.cpu, &entry), said);
                    self.cached.entry(at).or_insert((entry.level, 0)).1 += 1;
                }
            }
            Event::Dropped { entry } => {
                if let Some(said) = said(&entry) {
                    self.dropped(seen.cpu, &entry, said);
                }
            }
            Event::Activated { root } => {
                let (cpu, tag) = (seen.cpu.0, root.user);
                self.roots.insert(cpu, tag);
                let all = (cpu, tag, 0, Says::Leaf)..=(cpu, tag, u64::MAX, Says::Table);
                if let Some((_, _, word, old)) = self.outdated.range(all).next() {
                    let word = Pa::new(*word);
                    let (old, new) = match old {
                        Says::Leaf => ("leaf", "table"),
                        Says::Table => ("table", "leaf"),
                    };
                    report(format!(
                        "{tag:?} is activated again with the {old} at {word:?}, which is a {new}"
                    ));
                }
            }
            _ => {}
        }
    }
}
