//! What a fault saw, and what must still be so when it writes an entry.
//!
//! ```text
//!   fault    area found ─▶ word found ─▶ prepares (clears, copies, charges)      ─▶ lock ─▶ still that area and word? ─▶ write
//!   protect               area changed ─▶ entries changed ─▶ flush ─▶ returns        no ─▶ the fault looks again
//! ```
//!
//! A fault does not hold the writer's lock, so what its decision rests on may be over when it
//! writes. The word alone does not tell: where the area lost a right the word need not have
//! changed, and after an unmap and a map the same word may stand in another area. Therefore a fault
//! has the tables of its space as a [`SeenTables`], which looks at entries and makes tables, and
//! locks a table only for a fault that says what it has [`Seen`]. What comes back is an [`Agreed`],
//! the one way by which a fault writes. Most of the time no operation has changed the areas
//! meanwhile: they are still of the edition that was read (`sync::Edition`), and nothing is looked
//! up again.
//!
//! **Invariants**
//! - W1. Under the lock that an `Agreed` holds, the area that the address lies in is the one that
//!   was seen, and the words are those that were seen, but for the bits that walkers set on their
//!   own.
//! - W2. An operation that changes an area's rights or takes the area out changes the area first
//!   and its entries after it (S1), and waits for entries that are being replaced (S6). So what a
//!   fault writes on agreed ground is seen by every operation that changes the area later.
//! - W3. On a machine that breaks before it makes, of a level that has groups, and of one that has
//!   tables below, an entry that is no leaf, empty or spent, is filled by a page or a table only
//!   where no flush is pending: what it said before may not be flushed yet (flush::F2), and neither
//!   a group and a single entry of one page live side by side, nor a large leaf and what a table in
//!   its place had (G3, S2). A word of the top table, which is emptied with the space alone, gets a
//!   table at any time (table::I5).
//!
//! **Not here**: operations that hold the space's writer. Areas do not change under them.

use super::area::Area;
use super::finish_split;
use super::record::Space;
use crate::flush::{Gather, Used};
use crate::frame::Flushed;
use crate::stock::Stock;
use crate::sync::Edition;
use crate::table::{
    Attrs, Blocked, Entry, Found, Locked, Paging, Reached, Slot, Slots, Spare, Tables, What,
};
use core::cell::Cell;
use foliant_machine::{Machine, Replace};
use foliant_units::{FRAME_BYTES, Frame, FrameRange, Level, Order, Pages, Va, VaRange};

/// A space's tables, as faults have them.
pub(crate) struct SeenTables<'v, 'm, M: Machine, P: Paging> {
    stock: &'v Stock<'m, M, P>,
    space: &'v Space,
    tables: Tables<'m, M, P>,
    /// The edition of the areas when one was last looked up here.
    edition: Cell<Edition>,
    /// The table that was walked to last, in this reader's section.
    reached: Cell<Option<Reached>>,
}

/// What a decision to write was made on.
#[derive(Clone, Copy)]
pub(crate) struct Seen<'a> {
    /// The area.
    pub(crate) area: &'a Area,
    /// An address in the first entry.
    pub(crate) va: Va,
    pub(crate) level: Level,
    /// How many entries there are, side by side and all in one table.
    pub(crate) entries: usize,
    /// What each of them says: the word that was found if there is one entry, 0 if they are empty.
    pub(crate) word: u64,
}

impl<'a> Seen<'a> {
    /// One entry, with the word that was found in it.
    pub(crate) fn one(area: &'a Area, va: Va, level: Level, word: u64) -> Seen<'a> {
        Seen { area, va, level, entries: 1, word }
    }
}

/// A locked table in which everything is as it was seen (W1).
#[must_use = "a table is unlocked when this is dropped"]
pub(crate) struct Agreed<'v, 'm, M: Machine, P: Paging> {
    view: &'v SeenTables<'v, 'm, M, P>,
    locked: Locked<'m, M, P>,
    slots: Slots,
    va: Va,
}

impl<'v, 'm, M: Machine, P: Paging> SeenTables<'v, 'm, M, P> {
    pub(crate) fn new(stock: &'v Stock<'m, M, P>, space: &'v Space) -> Self {
        let (edition, reached) = (Cell::default(), Cell::new(None));
        SeenTables { stock, space, tables: space.tables(stock), edition, reached }
    }
    /// The area that contains `va`: what is decided from here on rests on it.
    #[inline(always)] // each fault does
    pub(crate) fn area(&self, va: Va) -> Option<Area> {
        let (area, edition) = self.space.areas.find_edition(self.stock.machine, va);
        self.edition.set(edition);
        area
    }
    /// A look at the entry for `va`, without a lock.
    #[inline(always)] // each fault does
    pub(crate) fn walk(&self, va: Va) -> Found {
        let found = self.tables.walk(va);
        self.reached.set(found.reached());
        found
    }
    /// Locks the table of what was seen; most of the time it is the one that was walked to.
    #[inline(always)]
    fn lock(&self, va: Va, level: Level) -> Option<Locked<'m, M, P>> {
        self.tables.lock_at(self.reached.get(), va, level)
    }
    /// Whether something is in the block of 2 MiB around `va`, without a lock.
    pub(crate) fn is_begun(&self, va: Va) -> bool {
        let found = self.tables.walk(va);
        found.level == Level::BASE || found.entry != Entry::None
    }
    /// Whether nothing is in a range of the table where `found` was read, without a lock.
    pub(crate) fn is_empty(&self, found: &Found, range: VaRange) -> bool {
        self.tables.is_empty_beside(found, range)
    }
    /// Makes the tables for `va` down to the one with entries of `level`.
    pub(crate) fn ensure(&self, va: Va, level: Level, spare: &mut Spare) -> Result<(), Blocked> {
        // A table comes where a large leaf may have been, which is flushed before, whatever the
        // rule for live entries (G3).
        self.tables.ensure_settled(va, level, spare, &|| !self.is_pending())
    }

    /// Locks the table of what was seen, if all of it is still so.
    #[inline(always)]
    pub(crate) fn agree(&'v self, seen: &Seen<'_>) -> Option<Agreed<'v, 'm, M, P>> {
        let agreed = self.agree_on_area(seen)?;
        let Agreed { locked, slots, .. } = &agreed;
        let is_same = match seen.word {
            0 => locked.are_empty(*slots),
            word => locked.get(slots.first()) & !P::UPDATED == word & !P::UPDATED,
        };
        is_same.then_some(agreed)
    }
    /// The same, whatever the entries say by now: the caller leaves those alone that are not as it
    /// wants them.
    #[inline(always)]
    pub(crate) fn agree_on_area(&'v self, seen: &Seen<'_>) -> Option<Agreed<'v, 'm, M, P>> {
        let slots = Slots::new(Slot::of(seen.va, seen.level), seen.entries).expect("of one table");
        let locked = self.lock(seen.va, seen.level)?;
        let fills = !matches!(P::decode(seen.word, seen.level, slots.first()), Entry::Leaf { .. });
        let agrees = self.is_still(seen) && (!fills || self.is_settled(seen.level));
        agrees.then_some(Agreed { view: self, locked, slots, va: seen.va })
    }
    #[inline(always)]
    fn is_still(&self, seen: &Seen<'_>) -> bool {
        self.space.areas.are_at(self.edition.get()) || self.is_found_again(seen)
    }
    #[inline(never)] // areas seldom change between a look and the lock
    fn is_found_again(&self, seen: &Seen<'_>) -> bool {
        self.space.areas.find(self.stock.machine, seen.va) == Some(*seen.area)
    }
    /// Whether no pending flush forbids to fill an entry that is no leaf (W3).
    fn is_settled(&self, level: Level) -> bool {
        match self.stock.machine.rules().replace {
            Replace::InPlace if level == Level::BASE && P::group(level).is_none() => true,
            _ => !self.is_pending(),
        }
    }
    /// Whether a flush is pending in the space.
    pub(crate) fn is_pending(&self) -> bool {
        self.space.member.target.is_pending(0)
    }
}

impl<'m, M: Machine, P: Paging> Agreed<'_, 'm, M, P> {
    /// The level of the entries.
    pub(crate) fn level(&self) -> Level {
        self.locked.level()
    }
    /// Whether all of the entries are empty.
    pub(crate) fn are_empty(&self) -> bool {
        self.locked.are_empty(self.slots)
    }
    /// Whether the nth of the entries is empty.
    pub(crate) fn is_empty_at(&self, nth: usize) -> bool {
        self.locked.get(self.slots.nth(nth)) == 0
    }
    /// How many entries of the table map a frame of `block`, where they stand side by side with the
    /// one that was seen, which maps `frame`.
    pub(crate) fn count_beside(&self, frame: Frame, block: FrameRange) -> u64 {
        self.locked.count_beside(self.slots.first(), frame, block)
    }

    /// How many pages from `va` on, `most` at most, the leaf that was seen and those behind it in
    /// the table map to the frames from `frame` on, with `attrs` at least. The first one does.
    pub(crate) fn alike(&self, va: Va, frame: Frame, most: u64, attrs: Attrs) -> u64 {
        let (level, first) = (self.level(), self.slots.first());
        if level > Level::BASE {
            let span = level.span();
            return most.min((span.get() - va.offset_from(va.align_down(span))) / FRAME_BYTES);
        }
        let left = most.min((Level::ENTRIES - first.index()) as u64);
        let slots = Slots::new(first, left as usize).expect("of one table");
        let goes_on = |nth: &u64| match self.locked.entry(slots.nth(*nth as usize)) {
            Entry::Leaf { pa, attrs: of_it } => {
                pa.frame() == frame.add(Pages::new(*nth)) && of_it.has(attrs)
            }
            _ => false,
        };
        1 + (1..left).take_while(goes_on).count() as u64
    }
    /// Writes the entries, which map the frames from `frame` on: those of folios of `order`, at an
    /// address aligned to their size, in groups where the format has them and a folio holds one
    /// (S10).
    pub(crate) fn map(self, frame: Frame, order: Order, attrs: Attrs) {
        let group = P::group(self.level()).map_or(1, |group| group.entries() as u64);
        match order.pages().get() >= group {
            true => self.locked.map(self.slots, frame, attrs),
            false => self.locked.map_alike(self.slots, frame.pa(), attrs),
        }
    }
    /// Maps `frame` by the nth of the entries, a base page's, which is empty: in no group.
    #[inline]
    pub(crate) fn map_nth(&self, nth: usize, frame: Frame, attrs: Attrs) {
        let word = P::leaf(frame.pa(), Level::BASE, attrs);
        self.locked.fill(Slots::one(self.slots.nth(nth)), word, 0);
    }
    /// Writes `word`, which no group has, into each of the entries.
    pub(crate) fn repeat(self, word: u64) {
        self.locked.fill(self.slots, word, 0);
    }
    /// Replaces the one entry by what `change` makes of it, in one step: for more rights to the
    /// same frames.
    pub(crate) fn update(self, change: impl Fn(u64) -> u64) {
        self.locked.update(self.slots.first(), change);
    }
    /// Replaces the one leaf, which is none of a group, by what `make` says, of other frames or
    /// other rights: it is broken first, flushed, then made (S6, G3). The table is unlocked
    /// meanwhile; an operation that wants to change the area's entries waits for this one (W2).
    ///
    /// No CPU has a translation of what it was: what it mapped may be let go of.
    pub(crate) fn replace(self, make: impl FnOnce() -> u64) -> Flushed {
        let (view, va, level) = (self.view, self.va, self.level());
        let flushed = self.broken();
        let word = make();
        let locked = view.lock(va, level).expect("a table with a breaking word stays (S6)");
        locked.set(Slot::of(va, level), word);
        flushed
    }
    /// Takes the one leaf, of a folio or of shared zeros, apart, with the table that is kept for it
    /// (S4), or the group that the entry is one of (S10). A leaf that was not agreed on could be a
    /// huge page's by now, for which no table is kept.
    pub(crate) fn split(self) {
        let (view, va, level) = (self.view, self.va, self.level());
        self.broken();
        finish_split(view.stock, view.space, &view.tables, va, level);
    }
    /// Breaks the one leaf, with its group, lets go of the table, and flushes.
    fn broken(self) -> Flushed {
        let Agreed { view, locked, va, .. } = self;
        let mut gather = Gather::new(view.stock, &view.space.member.target);
        let run = locked.break_leaf(va).expect("a leaf was agreed on");
        let What::Mapped { attrs, .. } = run.what else { unreachable!("a leaf was broken") };
        gather.note(run.range(), run.level, Used::of(attrs));
        drop(locked);
        gather.flush()
    }
}
