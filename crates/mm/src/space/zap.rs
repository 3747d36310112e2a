//! Taking pages out of a range, and the tables that nothing needs any more.

use super::huge::MARKER;
use super::record::Space;
use super::steps::Steps;
use crate::flush::{Gather, Used};
use crate::frame::Kind;
use crate::stock::Stock;
use crate::table::{Attrs, Entry, Gap, Locked, Paging, Prune, Slot, Soft, SoftKind, Spare, Tables};
use core::cell::Cell;
use foliant_machine::Machine;
use foliant_units::{Bytes, FRAME_BYTES, Frame, Level, Va, VaRange};

/// What becomes of guard entries in the range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Guards {
    /// They stay: the contents were dropped, not the mapping.
    Keep,
    /// They go with the mapping.
    Drop,
    /// They stay, and each page that is there or could be becomes one, in one step.
    Put,
}

/// Who needs the tables for a stretch of addresses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// An area lies there.
    Area,
    /// Nobody, if they are empty.
    Nobody,
}

/// A guard.
const GUARD: u64 = Soft { kind: SoftKind::Guard, payload: 0 }.word();

pub(super) struct Zap<'z, 'm, M: Machine, P: Paging> {
    stock: &'z Stock<'m, M, P>,
    space: &'z Space,
    tables: Tables<'m, M, P>,
    guards: Guards,
    /// Huge pages and markers met so far: the entries of promised areas that stand for no promise any more.
    kept: Cell<u64>,
}

/// References to one folio that were taken out one after the other.
#[derive(Default)]
struct Run {
    head: Option<Frame>,
    references: u64,
}

impl<'z, 'm, M: Machine, P: Paging> Zap<'z, 'm, M, P> {
    pub(super) fn new(stock: &'z Stock<'m, M, P>, space: &'z Space, guards: Guards) -> Self {
        Zap { stock, space, tables: space.tables(stock), guards, kept: Cell::new(0) }
    }

    /// Takes every page of `range` out; the caller flushes. Entries that others had taken out are settled first (G5).
    pub(super) fn range(
        &self,
        gather: &mut Gather<'z, 'm, M, P>,
        range: VaRange,
        steps: &mut Steps,
    ) {
        let mut va = range.start();
        while va < range.end() {
            let room = gather.room(Level::ENTRIES);
            let (before, mut taken) = (va, 1);
            va = match self.tables.lock(va, Level::BASE) {
                Ok(locked) => {
                    let next = self.entries(gather, locked, va, range.end(), room);
                    taken = next.offset_from(before) / FRAME_BYTES;
                    next
                }
                Err(missing) if missing.what == Gap::Leaf => {
                    self.leaf(gather, missing.level, va, range)
                }
                Err(missing) if missing.what == Gap::Soft => {
                    self.soft(missing.level, va).min(range.end())
                }
                Err(missing) => self.tables.behind_gap(va, missing.level, range.end()), // S1
            };
            steps.take_flushed(gather, self.stock.machine, taken);
        }
        gather.settle();
    }
    /// [`range`](Self::range) for the pages from `va` on of one table, which is there, as far as there is room. Returns how far it came; the caller
    /// settles.
    pub(super) fn table_of(&self, gather: &mut Gather<'z, 'm, M, P>, va: Va, end: Va) -> Va {
        let room = gather.room(Level::ENTRIES);
        match self.tables.lock(va, Level::BASE) {
            Ok(locked) => self.entries(gather, locked, va, end, room),
            Err(_) => va,
        }
    }
    /// How many promises were kept in what was taken out.
    pub(super) fn kept(&self) -> u64 {
        self.kept.get()
    }

    /// Takes a marker out, and waits where a leaf is being replaced.
    fn soft(&self, level: Level, va: Va) -> Va {
        let Ok(locked) = self.tables.lock(va, level) else { return va };
        let slot = Slot::of(va, level);
        let Entry::Soft(soft) = locked.entry(slot) else { return va };
        if soft.is_waited_for() {
            locked.let_go().wait();
            return va;
        }
        if self.guards == Guards::Drop {
            locked.set(slot, 0);
            self.kept.set(self.kept.get() + 1);
        }
        behind(va, level)
    }

    /// Takes entries of one table out, from `va` on, as far as there is room to doom them. Returns how far it came.
    fn entries(
        &self,
        gather: &mut Gather<'z, 'm, M, P>,
        locked: Locked<'_, M, P>,
        va: Va,
        end: Va,
        room: usize,
    ) -> Va {
        let end = behind(va, Level::MEGA).min(end);
        let (mut va, mut room, mut run) = (va, room, Run::default());
        let (mut pages, mut breaking) = (0, false);
        let left = if self.guards == Guards::Put { GUARD } else { 0 };
        while va < end && room > 1 && !gather.is_full() {
            let slot = Slot::of(va, Level::BASE);
            match locked.entry(slot) {
                Entry::None if left == 0 => {}
                Entry::None => locked.set(slot, left),
                Entry::Leaf { .. } => {
                    // Taken in one step: accessed and dirty bits set until then are in the word.
                    let word = locked.update(slot, |_| left);
                    let Entry::Leaf { pa, attrs } = P::decode(word, Level::BASE, slot) else {
                        unreachable!("leaves change under the lock only")
                    };
                    gather.note(page(va), Level::BASE, Used::of(attrs));
                    if !attrs.has(Attrs::SPECIAL) {
                        let head = self.stock.head_of(pa.frame());
                        room -= run.add(gather, head, 1);
                        pages += 1;
                    }
                }
                Entry::Soft(soft) if soft.is_waited_for() => {
                    breaking = true;
                    break;
                }
                Entry::Soft(soft)
                    if soft.kind == SoftKind::Guard && self.guards != Guards::Drop => {}
                Entry::Soft(_) => locked.set(slot, left),
                Entry::Table(_) => unreachable!("base words name no tables"),
            }
            va = va.add(FRAME_BYTES);
        }
        run.end(gather);
        self.space.uncharge(self.stock.machine.me(), pages);
        if breaking {
            locked.let_go().wait(); // an entry is being replaced (table::I9)
        }
        va
    }

    /// Takes a large leaf out, or splits it where only a part is meant.
    fn leaf(&self, gather: &mut Gather<'z, 'm, M, P>, level: Level, va: Va, range: VaRange) -> Va {
        let base = va.align_down(level.span());
        let whole = VaRange::sized(base, level.span()).expect("a leaf lies in the half");
        let mut spare = Spare::new();
        let Ok(locked) = self.tables.lock(va, level) else { return va };
        let slot = Slot::of(va, level);
        let Entry::Leaf { pa, .. } = locked.entry(slot) else { return va };
        // Under the same lock as the leaf is taken: between two it may be replaced, and none for a moment.
        let huge = self.stock.identity(pa.frame()).kind() == Kind::Huge;
        if !huge && !range.covers(whole) {
            drop(locked);
            super::split_leaf(self.stock, self.space, &self.tables, va, level);
            return va;
        }
        let word = locked.take(slot);
        let Entry::Leaf { pa, attrs } = P::decode(word, level, slot) else {
            unreachable!("leaves change under the lock only")
        };
        let pages = level.order().expect("leaves end at 1 GiB").pages().get();
        gather.note(whole, level, Used::of(attrs));
        gather.doom(self.stock.head_of(pa.frame()), pages);
        if huge {
            self.kept.set(self.kept.get() + 1);
            if self.guards == Guards::Keep && self.is_promised(va) {
                locked.set(slot, MARKER);
            }
            drop(locked);
            self.space.uncount_huge(self.stock.machine.me(), pages);
            return whole.end().min(range.end());
        }
        drop(locked);
        self.space.uncharge(self.stock.machine.me(), pages);
        self.space.withdraw(self.stock, &mut spare);
        self.stock.drain_charged(&self.space.charge, &mut spare);
        whole.end().min(range.end())
    }

    fn is_promised(&self, va: Va) -> bool {
        let area = self.space.areas.find(self.stock.machine, va);
        area.is_some_and(|area| area.flags.promised().is_some())
    }

    /// Removes tables that cover addresses of `range` only, or of gaps around it. `range` was taken out before, and no
    /// area is left in it.
    pub(super) fn tables(
        &self,
        gather: &mut Gather<'z, 'm, M, P>,
        range: VaRange,
        prune: Prune,
        steps: &mut Steps,
    ) {
        let mut level = Level::BASE;
        while level < P::TOP {
            let span = level.up().span();
            let (mut va, mut needed) = (range.start().align_down(span), true);
            while va < range.end() {
                let (next, needs) = self.table(gather, va, level, prune);
                (va, needed) = (next, needed && needs == Needs::Area);
                steps.take_flushed(gather, self.stock.machine, 1);
            }
            if needed {
                return; // an area lies in what each of them covers, so one lies in what those above cover
            }
            level = level.up();
        }
    }

    /// Removes the one table of `level` that covers `va`, if there is one that nobody needs. Says where the next one begins.
    fn table(
        &self,
        gather: &mut Gather<'z, 'm, M, P>,
        va: Va,
        level: Level,
        prune: Prune,
    ) -> (Va, Needs) {
        let next = behind(va, level.up());
        let found = self.tables.walk(va);
        if found.level > level {
            return (behind(va, found.level).max(next), Needs::Nobody); // nothing that deep here
        }
        let covered = VaRange::new(va, next).expect("next lies behind");
        if self.space.areas.overlapping(self.stock.machine, covered).next().is_some() {
            return (next, Needs::Area);
        }
        let _ = gather.room(2);
        if let Ok(table) = self.tables.detach(va, level, prune) {
            self.space.charge.uncharge_records(self.stock.machine.me(), 1);
            gather.remove_table(table);
        }
        (next, Needs::Nobody)
    }
}

impl Run {
    /// Adds `n` references to the folio at `head`; returns how many doomed words that took.
    fn add<M: Machine, P: Paging>(
        &mut self,
        gather: &mut Gather<'_, '_, M, P>,
        head: Frame,
        n: u64,
    ) -> usize {
        if self.head == Some(head) {
            self.references += n;
            return 0;
        }
        let taken = self.head.is_some() as usize;
        self.end(gather);
        (self.head, self.references) = (Some(head), n);
        taken
    }
    fn end<M: Machine, P: Paging>(&mut self, gather: &mut Gather<'_, '_, M, P>) {
        if let Some(head) = self.head.take() {
            gather.doom(head, self.references);
        }
    }
}

/// The page at `va`.
pub(crate) fn page(va: Va) -> VaRange {
    VaRange::sized(va, Bytes::new(FRAME_BYTES)).expect("a page of the user half")
}
/// The first address behind the entry of `level` that covers `va`.
pub(crate) fn behind(va: Va, level: Level) -> Va {
    va.align_down(level.span()).add(level.span().get())
}
