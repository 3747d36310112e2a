//! The words of one space that name frames of one folio.

use crate::flush::Gather;
use crate::frame::{AnonOffset, Index, Origin};
use crate::rmap::Pin;
use crate::space::behind;
use crate::stock::Stock;
use crate::table::{Attrs, Entry, Gap, Half, Locked, Paging, Slot, Tables};
use foliant_machine::Machine;
use foliant_units::{FRAME_BYTES, Frame, FrameRange, Level, Order, Pa, Pages, Va, VaRange};

/// A folio, and where it was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Folio {
    pub(super) frames: FrameRange,
    pub(super) order: Order,
    pub(super) origin: Origin,
}

/// Whether an entry is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EntryState {
    Present,
    /// It is a migration entry.
    Taken,
}

/// A word that names frames of the folio; its table is locked.
pub(super) struct FolioWord<'w, 'm, M: Machine, P: Paging> {
    pub(super) locked: &'w Locked<'m, M, P>,
    pub(super) slot: Slot,
    /// What it translates.
    pub(super) covers: VaRange,
    pub(super) state: EntryState,
    pub(super) pa: Pa,
    pub(super) attrs: Attrs,
}

/// What follows a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// The word behind it.
    On,
    /// This one again, after the caller has done something without a lock.
    Pause,
    /// Nothing: the caller has what it wants.
    Enough,
}

/// How a run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ran {
    Paused,
    Done,
}

/// A cursor over the words, through all addresses that the folio can have in the space.
pub(super) struct Places<'s, 'm, M: Machine, P: Paging, I> {
    stock: &'s Stock<'m, M, P>,
    folio: Folio,
    tables: Tables<'m, M, P>,
    offsets: I,
    offset: AnonOffset,
    va: Va,
    end: Va,
    _pin: Pin<'m>,
}

impl Folio {
    pub(super) fn of<M: Machine, P: Paging>(
        stock: &Stock<'_, M, P>,
        head: Frame,
        order: Order,
    ) -> Folio {
        let frames = FrameRange::new(head, order.pages()).expect("a folio lies in memory");
        Folio { frames, order, origin: stock.origin(head) }
    }
    pub(super) fn head(&self) -> Frame {
        self.frames.start()
    }

    /// The numbers and first frames of its pieces of `order`.
    pub(super) fn pieces(
        &self,
        order: Order,
    ) -> impl DoubleEndedIterator<Item = (usize, Frame)> + use<> {
        let (head, step) = (self.head(), order.pages().get());
        let count = self.frames.pages().get() / step;
        (0..count).map(move |nth| (nth as usize, head.add(Pages::new(nth * step))))
    }

    /// The addresses that the folio can have under `offset`. Indices wrap: where the range does,
    /// only its part from address 0 on counts.
    fn range<P: Paging>(&self, offset: AnonOffset) -> (Va, Va) {
        let (start, pages) = (self.origin.index.at(offset), self.frames.pages().get());
        let end = self.origin.index.add(self.frames.pages()).at(offset);
        let last = P::half(Half::User).1;
        let start = if end.get() < pages * FRAME_BYTES { Va::new(0) } else { start };
        (start, end.min(last))
    }
}

/// The words of `pin`'s space that name frames of `folio`.
pub(super) fn places<'s, 'm, M: Machine, P: Paging>(
    stock: &'s Stock<'m, M, P>,
    pin: Pin<'m>,
    folio: Folio,
) -> Places<'s, 'm, M, P, impl Iterator<Item = AnonOffset>> {
    let offsets = pin.member().offsets().iter(stock);
    let tables = pin.tables(stock);
    let (va, end) = folio.range::<P>(AnonOffset::NONE);
    Places { stock, folio, tables, offsets, offset: AnonOffset::NONE, va, end, _pin: pin }
}

impl<'m, M: Machine, P: Paging, I: Iterator<Item = AnonOffset>> Places<'_, 'm, M, P, I> {
    /// Hands each word to `act` under its table's lock. After a pause it goes on with the same
    /// word.
    pub(super) fn run(&mut self, mut act: impl FnMut(&FolioWord<'_, 'm, M, P>) -> Next) -> Ran {
        loop {
            while self.va < self.end {
                match self.table(&mut act) {
                    Next::On => {}
                    Next::Pause => return Ran::Paused,
                    Next::Enough => {
                        self.va = self.end;
                        return Ran::Done;
                    }
                }
            }
            let Some(offset) = self.offsets.next() else { return Ran::Done };
            (self.va, self.end) = self.folio.range::<P>(offset);
            self.offset = offset;
        }
    }

    /// Goes through the table at the cursor, as far as the folio reaches in it.
    fn table(&mut self, act: &mut impl FnMut(&FolioWord<'_, 'm, M, P>) -> Next) -> Next {
        // The table may be given back while it is not locked.
        let reading = self.stock.reading();
        let (level, locked) = match self.tables.lock(self.va, Level::BASE) {
            Ok(locked) => (Level::BASE, Some(locked)),
            Err(missing) if matches!(missing.what, Gap::Leaf | Gap::Soft) => {
                (missing.level, self.tables.lock(self.va, missing.level).ok())
            }
            Err(missing) => {
                self.va = behind(self.va, missing.level);
                return Next::On;
            }
        };
        let Some(locked) = locked else { return Next::On }; // it changed: looked at again
        drop(reading);
        // Above base level the neighbours may be tables, which are looked into.
        let reach = if level == Level::BASE { Level::SIZE_2M } else { level };
        let stop = behind(self.va, reach).min(self.end);
        while self.va < stop {
            let slot = Slot::of(self.va, level);
            let base = self.va.align_down(level.span());
            let entry = locked.entry(slot);
            if matches!(entry, Entry::Table(_)) {
                return Next::On; // the leaf became one between the two locks: looked at again
            }
            match self.named(entry, (base, level)) {
                Named::Other => {}
                Named::Breaking => {
                    locked.let_go().wait(); // its owner needs the lock (table::I9)
                    return Next::On;
                }
                Named::Ours(state, pa, attrs) => {
                    let covers = VaRange::sized(base, level.span()).expect("a user page");
                    let word = FolioWord { locked: &locked, slot, covers, state, pa, attrs };
                    match act(&word) {
                        Next::On => {}
                        other => return other,
                    }
                }
            }
            self.va = behind(self.va, level);
        }
        Next::On
    }

    /// Whether an entry at `base` names frames of the folio that are there under this offset: the
    /// ranges of two offsets may overlap, and each entry is met under its own one.
    fn named(&self, entry: Entry, (base, level): (Va, Level)) -> Named {
        let is_ours = |pa: Pa| {
            let inside = pa.frame().get().checked_sub(self.folio.head().get());
            let fits = level == Level::BASE || level.order() == Some(self.folio.order);
            let index = |pages| self.folio.origin.index.add(Pages::new(pages));
            fits && inside.is_some_and(|pages| index(pages) == Index::of(base, self.offset))
        };
        match entry {
            Entry::Leaf { pa, attrs } if is_ours(pa) => Named::Ours(EntryState::Present, pa, attrs),
            Entry::Soft(soft) => match (soft.migrating_leaf(), soft.broken_leaf()) {
                (Some((pa, attrs)), _) if is_ours(pa) => Named::Ours(EntryState::Taken, pa, attrs),
                (_, Some((pa, _))) if is_ours(pa) => Named::Breaking,
                _ => Named::Other,
            },
            _ => Named::Other,
        }
    }
}

enum Named {
    /// Nothing of the folio.
    Other,
    /// A CPU is replacing an entry that named it, and may put the same one back.
    Breaking,
    Ours(EntryState, Pa, Attrs),
}

/// A space's gather, and the pin that keeps the space while it is pending.
pub(super) struct SpaceGather<'s, 'm, M: Machine, P: Paging> {
    pub(super) gather: Gather<'s, 'm, M, P>, // dropped first
    pub(super) pin: Pin<'m>,
}
