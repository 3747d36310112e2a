//! The entries of an area: making room for a leaf, making tables, writing, noting what a flush has
//! to cover.
//!
//! ```text
//!   place of a leaf:  table, empty ─detach─▶ nothing ─flush paging-structure caches, wait for readers─▶ leaf
//!                     table, in use ─▶ Short::Slot: the next smaller leaf is tried
//! ```

use super::area::AreaWord;
use super::record::Record;
use super::{LeafSizes, Short, Vmap};
use crate::flush::{Gather, Used};
use crate::stock::{Event, NoTable, Supply};
use crate::table::{Attrs, Gap, Paging, Prune, Slots};
use foliant_machine::Machine;
use foliant_units::{FrameRange, Level, Va, VaRange};

impl<'a, 'm, M: Machine, P: Paging> Vmap<'a, 'm, M, P> {
    /// Writes the leaves of `level` that map `frames` at `va`, which lie in one table. Where an
    /// entry is there already nothing is done (V3).
    pub(super) fn write(
        &self,
        area: &Record<'m>,
        (va, level): (Va, Level),
        frames: FrameRange,
        attrs: Attrs,
        leaves: LeafSizes,
    ) -> Result<(), Short> {
        let lock = self.stock.kernel.lock(va, level).map_err(|_| Short::Slot(level))?;
        let count = frames.pages().bytes().get() / level.span().get();
        let first = frames.start();
        let slots = Slots::new(lock.index_of(va), count as usize).expect("a block of one table");
        if !lock.are_empty(slots) {
            return Err(Short::Slot(level));
        }
        match leaves.largest() {
            Level::BASE => lock.fill(slots, P::leaf(first.pa(), level, attrs), P::step(level)),
            _ => lock.map(slots, first, attrs),
        }
        drop(lock);
        self.stock.count_by(leaf_event(level), count);
        AreaWord::of(area).with_leaves(level).put(area);
        Ok(())
    }

    /// Makes the tables for `va` down to the one with entries of `level`.
    pub(super) fn reach(&self, va: Va, level: Level) -> Result<(), Short> {
        let done = Supply::of_kernel(self.stock).ensure(&self.stock.kernel, va, level);
        done.map_err(|why| match why {
            NoTable::Record(_) => Short::Record,
            NoTable::Blocked(_) => Short::Slot(level),
        })
    }

    /// Takes empty tables out of the places where leaves of up to `largest` go, with one flush of
    /// paging-structure caches for all of them, or with several where the list of tables gets no
    /// more room (flush::F5).
    pub(super) fn clear_slots(&self, range: VaRange, largest: Level) -> Result<(), Short> {
        let mut gather = Gather::whole(self.stock, self.kernel);
        let mut va = range.start();
        let mut done = Ok(());
        while va < range.end() && done.is_ok() {
            let level = fitting(va, range.end(), largest);
            if level == Level::BASE {
                va = va.align_down(Level::SIZE_2M.span()).add(Level::SIZE_2M.span().get());
                continue;
            }
            if level == Level::SIZE_2M
                && let Some(end) = self.free_slots(va, range.end())
            {
                va = end;
                continue;
            }
            let place = VaRange::sized(va, level.span()).expect("inside the range");
            done = self.clear_slot(place, level, &mut gather);
            va = place.end();
        }
        if gather.is_pending() {
            self.stock.count(Event::VmapTableFlush);
        }
        gather.flush();
        done
    }
    /// The end of the places for 2 MiB leaves from `va` on, in one table and before `end`, if all
    /// of them are free. This is the usual case, and one lock shows it for all of them.
    fn free_slots(&self, va: Va, end: Va) -> Option<Va> {
        let (level, span) = (Level::SIZE_2M, Level::SIZE_2M.span());
        let lock = self.stock.kernel.lock(va, level).ok()?;
        let end = lock.range().end().min(end.align_down(span));
        let count = end.offset_from(va) / span.get();
        let slots = Slots::new(lock.index_of(va), count as usize)?;
        lock.are_empty(slots).then_some(end)
    }
    /// Takes the tables out of one place, the lowest first.
    fn clear_slot(
        &self,
        place: VaRange,
        level: Level,
        gather: &mut Gather<'a, 'm, M, P>,
    ) -> Result<(), Short> {
        let mut below = Level::BASE;
        while below < level {
            let span = below.up().span();
            let mut va = place.start();
            while va < place.end() {
                let found = self.walk(va);
                if found > below {
                    va = va.align_down(found.span()).add(found.span().get());
                    continue;
                }
                gather.room_for_tables(1);
                let note = |range, above| gather.note_table(range, above);
                let table = self.stock.kernel.detach_noted(va, below, Prune::Emptied, note);
                let covered = VaRange::sized(va.align_down(span), span).expect("inside the place");
                match table {
                    Ok((table, noted)) => gather.remove_table(table, noted),
                    Err(_) => return Err(Short::Slot(level)),
                }
                va = covered.end();
            }
            below = below.up();
        }
        match self.stock.kernel.lock(place.start(), level) {
            Ok(lock) if lock.get(lock.index_of(place.start())) != 0 => Err(Short::Slot(level)),
            Ok(_) => Ok(()),
            Err(missing) if missing.what == Gap::None => Ok(()),
            Err(_) => Err(Short::Slot(level)),
        }
    }
    /// The level at which a walk for `va` ends.
    fn walk(&self, va: Va) -> Level {
        let _reading = self.stock.reading();
        self.stock.kernel.walk(va).level
    }

    /// Notes the leaves of an area, each level that it has.
    pub(super) fn note(&self, gather: &mut Gather<'a, 'm, M, P>, area: &Record<'m>) {
        let (word, range) = (AreaWord::of(area), area.mapped());
        for level in [Level::SIZE_1G, Level::SIZE_2M, Level::BASE] {
            if word.has_leaves(level) {
                let span = level.span();
                let end = range.end().align_up(span).expect("inside the kernel half");
                let whole = VaRange::new(range.start().align_down(span), end).expect("it grows");
                gather.note(whole, level, Used::Yes);
            }
        }
    }
}

/// The largest leaf that fits at `va`.
pub(super) fn fitting(va: Va, end: Va, largest: Level) -> Level {
    let mut level = largest;
    while let Some(down) = level.down() {
        if va.is_aligned(level.span()) && end.offset_from(va) >= level.span().get() {
            break;
        }
        level = down;
    }
    level
}

/// The event that counts leaves of `level`.
pub(super) const fn leaf_event(level: Level) -> Event {
    match level {
        Level::BASE => Event::VmapLeafBase,
        Level::SIZE_2M => Event::VmapLeaf2m,
        _ => Event::VmapLeaf1g,
    }
}
