//! Groups: sixteen words that hardware may cache as one translation are one unit.
//!
//! Only words that a running root reaches count, and words that a walker reads. Of the words of a
//! group that are present all have the bit, each names the block of its place, and they allow the
//! same. A present word of a group never becomes another present word, whatever the rule for live
//! entries: it is taken out first. And when a word is made, no CPU has a translation of its page,
//! read from any word of the unit, that says something else and that it can use, where the one or
//! the other is a group's. Words that are not present may stand beside those of a group: they are
//! about to come, or the others to go.
//!
//! Where the machine replaces in place, words of the kernel's own groups may change while they are
//! present, and be unlike meanwhile: who changes them need not stop using what they map.
//!
//! **Not here**: groups of which words are missing for good, which the manager's recount finds;
//! what is kept under the tag of another root.

use super::words::Words;
use super::{Checker, Event, Report, Seen};
use crate::cache::Cached;
use crate::config::Format;
use crate::format::{Decoded, Leaf, level_shift};
use crate::memory::Memory;
use foliant_machine::Replace;
use foliant_units::{FRAME_SHIFT, Pa, Va};
use std::collections::BTreeMap;

/// Bytes of the words of a group.
const UNIT: u64 = 16 * 8;

/// Where something is cached: unit, CPU, tag (`None` for what is global), address, size.
type Place = (u64, u16, Option<Pa>, Va, u32);

#[derive(Debug)]
pub(super) struct Groups {
    format: Format,
    replace: Replace,
    words: Words,
    /// Words that are not present any more, and what they said last.
    broken: BTreeMap<u64, u64>,
    /// Translations, by the unit that they were read from.
    cached: BTreeMap<Place, Cached>,
}

/// The place of a word in its unit.
const fn nth(word: Pa) -> u64 {
    word.get() % UNIT / 8
}

impl Groups {
    pub(super) fn new(format: Format, replace: Replace) -> Groups {
        let words = Words::new(format);
        Groups { format, replace, words, broken: BTreeMap::new(), cached: BTreeMap::new() }
    }

    fn place(&self, cpu: u16, entry: &Cached) -> Place {
        let tag = (!entry.is_global()).then_some(entry.tag);
        (entry.word.get() & !(UNIT - 1), cpu, tag, entry.va, entry.shift)
    }

    /// What a leaf says, and whether it is one of a group.
    fn leaf(&self, level: u8, word: u64) -> Option<(Leaf, bool)> {
        match self.format.decode(level, word) {
            Decoded::Leaf(leaf) => Some((leaf, leaf.shift > level_shift(level))),
            _ => None,
        }
    }
    fn is_group(&self, level: u8, word: u64) -> bool {
        self.leaf(level, word).is_some_and(|(_, group)| group)
    }
    /// Whether two words say the same, accessed and dirty apart.
    fn same(&self, level: u8, a: u64, b: u64) -> bool {
        let said =
            |word| self.leaf(level, word).map(|(leaf, _)| (leaf.base, leaf.rights, leaf.shift));
        said(a) == said(b) && said(a).is_some()
    }

    /// Whether the word may change in place, before its flush: where the machine permits it, one
    /// that lets no user at anything.
    fn is_free(&self, level: u8, word: u64) -> bool {
        let is_users = self.leaf(level, word).is_some_and(|(leaf, _)| leaf.rights.user);
        self.replace == Replace::InPlace && !is_users
    }

    /// What is wrong with the unit of a present word.
    fn uneven(&self, memory: &Memory, level: u8, at: Pa, word: u64) -> Option<String> {
        let group = self.is_group(level, word);
        if self.is_free(level, word) {
            return None;
        }
        if group && !self.format.is_in_place(level, word, nth(at)) {
            return Some(format!("the word at {at:?} of a group names another's block: {word:#x}"));
        }
        let unit = at.get() & !(UNIT - 1);
        let others = (unit..unit + UNIT).step_by(8).map(Pa::new).filter(|other| *other != at);
        let mut live = others.filter_map(|other| {
            let word = memory.load(other)?;
            self.format.live(word).then_some((other, word))
        });
        let differs =
            |other: u64| (group || self.is_group(level, other)) && !self.same(level, word, other);
        let (other, found) = live.find(|(_, other)| differs(*other))?;
        Some(format!(
            "the words at {at:?} and {other:?} are not alike, and one is of a group: {word:#x}, {found:#x}"
        ))
    }

    /// A translation of the page of a word that is made, which says something else.
    fn left_behind(&self, level: u8, at: Pa, last: Option<u64>, new: u64) -> Option<String> {
        let (leaf, group) = self.leaf(level, new)?;
        let own = level_shift(level);
        let inside = |group: bool| if group { nth(at) << own } else { 0 };
        let says = (leaf.base.add(inside(group)), self.format.settled(leaf.rights));
        let unit = at.get() & !(UNIT - 1);
        let places = (unit, 0, None, Va::new(0), 0)..(unit + 1, 0, None, Va::new(0), 0);
        let is_groups = group || last.is_some_and(|last| self.is_group(level, last));
        let mut left = self.cached.range(places).filter(|((_, cpu, tag, ..), entry)| {
            let covers = entry.is_group() || entry.word == at;
            let is_used = tag.is_none_or(|tag| self.words.runs(*cpu, tag));
            let said = (entry.base.add(inside(entry.is_group())), entry.rights);
            covers && is_used && said != says && (is_groups || entry.is_group())
        });
        let ((_, cpu, ..), entry) = left.next()?;
        let va = entry.va;
        Some(format!("the word at {at:?} is made while cpu {cpu} has what {va:?} was: {new:#x}"))
    }

    fn stored(&mut self, memory: &Memory, at: Pa, old: u64, new: u64) -> Option<String> {
        let was = self.format.live(old).then_some(old);
        let last = was.or_else(|| self.broken.remove(&at.get()));
        if last.is_none() && !self.format.live(new) {
            return None;
        }
        let level = self.words.level(memory, at.get()).filter(|level| *level < 2)?;
        if !self.format.live(new) {
            last.map(|last| self.broken.insert(at.get(), last));
            return None;
        }
        let is_groups = self.is_group(level, old) || self.is_group(level, new);
        let is_free = self.is_free(level, old) && self.is_free(level, new);
        if was.is_some() && is_groups && !is_free && !self.same(level, old, new) {
            return Some(format!("live word of a group at {at:?}: {old:#x} became {new:#x}"));
        }
        let left = if was.is_none() { self.left_behind(level, at, last, new) } else { None };
        left.or_else(|| self.uneven(memory, level, at, new))
    }
}

impl Checker for Groups {
    fn name(&self) -> &'static str {
        "groups"
    }

    fn event(&mut self, seen: &Seen<'_>, event: &Event<'_>, report: &mut Report<'_>) {
        let found = match *event {
            Event::Stored { pa, old, new } => self.stored(seen.memory, pa, old, new),
            Event::Filled { entry } if !entry.table => {
                self.cached.insert(self.place(seen.cpu.0, &entry), entry);
                let word = seen.memory.load(entry.word);
                let word = word.filter(|word| self.is_group(entry.level, *word));
                word.and_then(|word| self.uneven(seen.memory, entry.level, entry.word, word))
            }
            Event::Dropped { entry } if !entry.table => {
                self.cached.remove(&self.place(seen.cpu.0, &entry));
                None
            }
            Event::Owned { frames, .. } => {
                let (start, end) = (frames.start().get(), frames.end().get());
                let words = start << FRAME_SHIFT..end << FRAME_SHIFT;
                let gone: Vec<u64> = self.broken.range(words).map(|(at, _)| *at).collect();
                gone.iter().for_each(|at| _ = self.broken.remove(at));
                None
            }
            _ => None,
        };
        found.into_iter().for_each(report);
        self.words.event(seen.cpu, seen.memory, event);
    }
}
