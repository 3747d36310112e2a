//! The translation caches of one CPU: an array per page size and per size of a group, and one per
//! level of table pointers.
//!
//! Every entry carries a tag, the user root through which it was read, and is found under that root
//! only, unless it is global. There are as many tags as roots, so nothing is ever dropped for want
//! of one.
//!
//! **Invariants**
//! - I1. An entry leaves only by being invalidated, by being dropped at an activation (of its own
//!   root anew, or without tags of any root), by being replaced by a newer one for the same page,
//!   or (sized arrays) by being evicted.
//! - I2. Kept arrays iterate in the order of tag and address, so that seeded runs do not depend on
//!   a hash.
//! - I3. No access and no walk finds an entry of another tag than the one that runs.
//!
//! **Locking**: the owning CPU's core lock.
//!
//! **Not here**: separate caches for instructions, entries that merge neighbours without being
//! told.

use crate::config::{Geometry, Shape};
use crate::format::{Half, Rights, level_shift};
use core::hash::{Hash, Hasher};
use core::ops::Bound;
use foliant_machine::{Invalidation, Item, Reach, Scope, Tables};
use foliant_units::{Pa, Va};
use std::collections::BTreeMap;

/// A cached translation, or a cached pointer to a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cached {
    /// The first address that it covers.
    pub va: Va,
    /// The level of the word it was read from.
    pub level: u8,
    /// log2 of the bytes that it covers: those of its level, or of a group of sixteen words.
    pub shift: u32,
    /// Whether it points to a table instead of memory.
    pub table: bool,
    /// The memory, or the table, that it names.
    pub base: Pa,
    /// Where the word is that it was read from.
    pub word: Pa,
    /// What it allows.
    pub rights: Rights,
    /// Whether the walker knows the word's dirty bit to be set.
    pub dirty: bool,
    /// The user root through which it was read, its tag: unless it is global it is used under this
    /// root only.
    pub tag: Pa,
    pub(crate) half: Half,
}

impl Hash for Cached {
    /// Most events of a log name one, and most of it are small fields: they are hashed as one word.
    fn hash<H: Hasher>(&self, state: &mut H) {
        for word in [self.va.get(), self.base.get(), self.word.get(), self.tag.get()] {
            state.write_u64(word);
        }
        let flags = [self.table, self.dirty, self.half == Half::Kernel];
        let flags =
            flags.into_iter().fold(self.rights.bits(), |bits, flag| bits << 1 | u64::from(flag));
        state.write_u64(flags << 16 | u64::from(self.level) << 8 | u64::from(self.shift));
    }
}

impl Cached {
    /// Whether it is of a whole group.
    pub const fn is_group(&self) -> bool {
        self.shift > level_shift(self.level)
    }

    /// The bytes that it covers.
    pub const fn bytes(&self) -> u64 {
        1 << self.shift
    }

    /// Whether it is used under every root.
    pub const fn is_global(&self) -> bool {
        !self.table && self.rights.global
    }

    /// Whether it is used while the root tagged `tag` runs.
    pub(crate) fn is_used_under(&self, tag: Pa) -> bool {
        self.is_global() || self.tag == tag
    }

    /// Whether `item` ends it, by stride: an invalidation names one address per entry of its level,
    /// and an address ends whatever covers it.
    fn ended_by(&self, item: &Item, exact_level: bool) -> bool {
        let (start, end) = (item.range.start().get(), item.range.end().get());
        let (mine, last) = (self.va.get(), self.va.get() + (self.bytes() - 1));
        if mine >= end || last < start {
            return false;
        }
        if self.table {
            return item.tables == Tables::Removed;
        }
        match exact_level {
            true => self.level == item.level.0,
            false => self.level >= item.level.0 || mine & (item.level.span().get() - 1) == 0,
        }
    }
}

#[derive(Debug)]
struct Sets {
    slots: Vec<Option<Cached>>,
    sets: u64,
    ways: usize,
    turn: usize,
    live: usize,
}

/// Entries that are never evicted.
#[derive(Debug, Default)]
struct Kept {
    tagged: BTreeMap<(Pa, u64), Cached>,
    global: BTreeMap<u64, Cached>,
}

#[derive(Debug)]
enum Array {
    Keep(Kept),
    Sized(Sets),
}

impl Array {
    fn new(shape: Option<Shape>) -> Array {
        match shape {
            None => Array::Keep(Kept::default()),
            Some(shape) => {
                let sets = u64::from(shape.sets.max(1)).next_power_of_two();
                let ways = shape.ways.max(1) as usize;
                Array::Sized(Sets { slots: Vec::new(), sets, ways, turn: 0, live: 0 })
            }
        }
    }

    /// The entry of `page` that is used under `tag`.
    #[inline]
    fn get(&mut self, tag: Pa, page: u64, shift: u32) -> Option<&mut Cached> {
        match self {
            Array::Keep(kept) => {
                kept.tagged.get_mut(&(tag, page)).or_else(|| kept.global.get_mut(&page))
            }
            Array::Sized(sets) if sets.live == 0 => None,
            Array::Sized(sets) => {
                let hit = |e: &&mut Cached| e.va.get() >> shift == page && e.is_used_under(tag);
                sets.set(page).iter_mut().flatten().find(hit)
            }
        }
    }

    /// Adds `entry` and gives what it displaced.
    fn insert(&mut self, page: u64, entry: Cached) -> Option<Cached> {
        match self {
            Array::Keep(kept) if entry.is_global() => kept.global.insert(page, entry),
            Array::Keep(kept) => kept.tagged.insert((entry.tag, page), entry),
            Array::Sized(sets) => sets.insert(page, entry),
        }
    }

    fn retain(&mut self, mut keep: impl FnMut(&Cached) -> bool) {
        match self {
            Array::Keep(kept) => {
                kept.tagged.retain(|_, entry| keep(entry));
                kept.global.retain(|_, entry| keep(entry));
            }
            Array::Sized(sets) if sets.live == 0 => {}
            Array::Sized(sets) => {
                for slot in &mut sets.slots {
                    if slot.as_ref().is_some_and(|entry| !keep(entry)) {
                        *slot = None;
                        sets.live -= 1;
                    }
                }
            }
        }
    }

    /// Like `retain`, for the entries of `pages` only; with `tag`, for those of that tag only.
    fn retain_in(
        &mut self,
        tag: Option<Pa>,
        pages: core::ops::RangeInclusive<u64>,
        shift: u32,
        mut keep: impl FnMut(&Cached) -> bool,
    ) {
        let span = pages.end() - pages.start();
        match self {
            Array::Keep(kept) => kept.retain_in(tag, pages, keep),
            Array::Sized(sets) if sets.live == 0 => {}
            Array::Sized(sets) if span >= sets.sets => self.retain(keep),
            Array::Sized(sets) => {
                for page in pages {
                    let mut gone = 0;
                    for slot in sets.set(page) {
                        let hit = slot.as_ref().is_some_and(|e| e.va.get() >> shift == page);
                        if hit && slot.as_ref().is_some_and(|e| !keep(e)) {
                            *slot = None;
                            gone += 1;
                        }
                    }
                    sets.live -= gone;
                }
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Array::Keep(kept) => kept.tagged.len() + kept.global.len(),
            Array::Sized(sets) => sets.live,
        }
    }

    fn each(&self, see: &mut dyn FnMut(&Cached)) {
        match self {
            Array::Keep(kept) => kept.tagged.values().chain(kept.global.values()).for_each(see),
            Array::Sized(sets) => sets.slots.iter().flatten().for_each(see),
        }
    }
}

impl Kept {
    fn retain_in(
        &mut self,
        tag: Option<Pa>,
        pages: core::ops::RangeInclusive<u64>,
        mut keep: impl FnMut(&Cached) -> bool,
    ) {
        let (first, last) = (*pages.start(), *pages.end());
        let tags: Vec<Pa> = match tag {
            Some(tag) => vec![tag],
            None => self.tags().collect(),
        };
        for tag in tags {
            let range = self.tagged.range((tag, first)..=(tag, last));
            let gone: Vec<_> = range.filter(|(_, e)| !keep(e)).map(|(at, _)| *at).collect();
            for at in gone {
                self.tagged.remove(&at);
            }
        }
        let range = self.global.range(pages);
        let gone: Vec<u64> = range.filter(|(_, e)| !keep(e)).map(|(at, _)| *at).collect();
        for at in gone {
            self.global.remove(&at);
        }
    }

    /// Every tag that something is cached under.
    fn tags(&self) -> impl Iterator<Item = Pa> {
        let mut next = self.tagged.keys().next().map(|(tag, _)| *tag);
        core::iter::from_fn(move || {
            let tag = next?;
            let mut above = self.tagged.range((Bound::Excluded((tag, u64::MAX)), Bound::Unbounded));
            next = above.next().map(|((tag, _), _)| *tag);
            Some(tag)
        })
    }
}

impl Sets {
    fn set(&mut self, page: u64) -> &mut [Option<Cached>] {
        let at = (page & (self.sets - 1)) as usize * self.ways;
        &mut self.slots[at..at + self.ways]
    }

    fn insert(&mut self, page: u64, entry: Cached) -> Option<Cached> {
        if self.slots.is_empty() {
            self.slots = vec![None; self.sets as usize * self.ways];
        }
        self.turn = self.turn.wrapping_add(1);
        let turn = self.turn % self.ways;
        let set = self.set(page);
        let alike = |e: &Cached| {
            e.va == entry.va && e.is_global() == entry.is_global() && entry.is_used_under(e.tag)
        };
        let same = set.iter().position(|slot| slot.as_ref().is_some_and(alike));
        let at = same.or_else(|| set.iter().position(Option::is_none)).unwrap_or(turn);
        let old = set[at].replace(entry);
        self.live += usize::from(old.is_none());
        old
    }
}

/// All caches of one CPU.
#[derive(Debug)]
pub(crate) struct Caches {
    /// The tag of the root that runs.
    tag: Pa,
    /// By level of the leaf.
    pages: [Array; 3],
    /// Of whole groups, by level of their leaves.
    groups: [Array; 2],
    /// By level of the word that points to a table, 1 to 4.
    tables: [Array; 5],
}

impl Caches {
    pub(crate) fn new(geometry: Geometry) -> Caches {
        let shape = |pick: fn(Shape, Shape, Shape, Shape) -> Shape| match geometry {
            Geometry::Keep => None,
            Geometry::Sized { base, size_2m, size_1g, tables } => {
                Some(pick(base, size_2m, size_1g, tables))
            }
        };
        let table = || Array::new(shape(|_, _, _, tables| tables));
        Caches {
            tag: Pa::new(0),
            pages: [
                Array::new(shape(|base, _, _, _| base)),
                Array::new(shape(|_, size_2m, _, _| size_2m)),
                Array::new(shape(|_, _, size_1g, _| size_1g)),
            ],
            groups: [
                Array::new(shape(|base, _, _, _| base)),
                Array::new(shape(|_, size_2m, _, _| size_2m)),
            ],
            tables: [table(), table(), table(), table(), table()],
        }
    }

    /// The cached translation of `va`, smallest page first.
    #[inline]
    pub(crate) fn page(&mut self, va: u64) -> Option<&mut Cached> {
        let (tag, [base, size_2m, size_1g]) = (self.tag, &mut self.pages);
        let [of_base, of_2m] = &mut self.groups;
        base.get(tag, va >> 12, 12)
            .or_else(|| of_base.get(tag, va >> 16, 16))
            .or_else(|| size_2m.get(tag, va >> 21, 21))
            .or_else(|| of_2m.get(tag, va >> 25, 25))
            .or_else(|| size_1g.get(tag, va >> 30, 30))
    }

    /// The lowest cached table pointer for `va` below `levels`.
    pub(crate) fn table(&mut self, va: u64, levels: u8) -> Option<Cached> {
        (1..levels).find_map(|level| {
            let shift = 12 + 9 * u32::from(level);
            self.tables[usize::from(level)].get(self.tag, va >> shift, shift).map(|entry| *entry)
        })
    }

    /// Adds `entry` and gives what it displaced.
    pub(crate) fn insert(&mut self, entry: Cached) -> Option<Cached> {
        let page = entry.va.get() >> entry.shift;
        let array = match entry.table {
            true => self.tables.get_mut(usize::from(entry.level)),
            false if entry.is_group() => self.groups.get_mut(usize::from(entry.level)),
            false => self.pages.get_mut(usize::from(entry.level)),
        };
        array.and_then(|array| array.insert(page, entry))
    }

    fn retain(&mut self, mut keep: impl FnMut(&Cached) -> bool) {
        for array in self.pages.iter_mut().chain(&mut self.groups).chain(&mut self.tables) {
            array.retain(&mut keep);
        }
    }

    /// Makes the root tagged `tag` the one that runs, and drops the entries that are not global and
    /// that `ended` picks.
    pub(crate) fn activate(
        &mut self,
        tag: Pa,
        ended: impl Fn(&Cached) -> bool,
        gone: &mut dyn FnMut(&Cached),
    ) {
        self.tag = tag;
        self.retain(|e| {
            let keep = e.is_global() || !ended(e);
            if !keep {
                gone(e);
            }
            keep
        });
    }

    /// Carries out `what`, whatever root runs.
    pub(crate) fn invalidate(
        &mut self,
        what: &Invalidation,
        exact_level: bool,
        gone: &mut dyn FnMut(&Cached),
    ) {
        let (half, tag) = match what.scope() {
            Scope::Space(user) => (Half::User, Some(user)),
            Scope::Kernel => (Half::Kernel, None),
        };
        let meant =
            |e: &Cached| e.half == half && tag.is_none_or(|tag| !e.is_global() && e.tag == tag);
        let mut keep = |e: &Cached, ended: bool| {
            if ended {
                gone(e);
            }
            !ended
        };
        if what.reach() == Reach::All {
            return self.retain(|e| keep(e, meant(e)));
        }
        for item in what.items().iter().filter(|item| !item.range.is_empty()) {
            let (start, last) = (item.range.start().get(), item.range.end().get() - 1);
            let ended = |e: &Cached| meant(e) && e.ended_by(item, exact_level);
            for (shift, array) in self.leaves() {
                let pages = start >> shift..=last >> shift;
                array.retain_in(tag, pages, shift, |e| keep(e, ended(e)));
            }
            if item.tables == Tables::Removed {
                for array in &mut self.tables {
                    array.retain(|e| keep(e, ended(e)));
                }
            }
        }
    }

    /// Ends the translations of `va` that the root that runs uses.
    pub(crate) fn end(&mut self, va: u64, gone: &mut dyn FnMut(&Cached)) {
        let tag = self.tag;
        for (shift, array) in self.leaves() {
            let page = va >> shift;
            array.retain_in(None, page..=page, shift, |e| {
                let ended = e.is_used_under(tag);
                if ended {
                    gone(e);
                }
                !ended
            });
        }
    }

    /// The arrays of translations, and by which bits of an address each is looked up.
    fn leaves(&mut self) -> impl Iterator<Item = (u32, &mut Array)> {
        let groups = (0..).map(|level| level_shift(level) + 4).zip(&mut self.groups);
        (0..).map(level_shift).zip(&mut self.pages).chain(groups)
    }

    /// Whether nothing is cached, table pointers included.
    pub(crate) fn is_empty(&self) -> bool {
        self.arrays().all(|array| array.len() == 0)
    }

    /// How many translations are cached, table pointers not counted.
    pub(crate) fn len(&self) -> usize {
        self.pages.iter().chain(&self.groups).map(Array::len).sum()
    }

    /// Every entry.
    pub(crate) fn each(&self, see: &mut dyn FnMut(&Cached)) {
        self.arrays().for_each(|array| array.each(see));
    }
    fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.pages.iter().chain(&self.groups).chain(&self.tables)
    }
}
