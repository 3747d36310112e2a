//! Forking: a second space with the same pages, each copied when it is first written.

use super::area::{Area, Flags};
use super::huge::is_breaking;
use super::life::{EndError, SpaceId, create, end, user_half};
use super::ops::RangeError;
use super::record::Space;
use super::rewrite::Broken;
use super::steps::Steps;
use super::zap::{behind, page};
use crate::flush::Gather;
use crate::frame::Claim;
use crate::stock::{OverLimit, Stock, record};
use crate::sync::Ordering;
use crate::table::{Attrs, Blocked, Entry, Gap, Locked, Paging, Slot, Spare, Tables};
use foliant_machine::{Machine, Owner};
use foliant_units::{FRAME_BYTES, Level, Va, VaRange};

/// Copies `parent` into a new space named by `stamp`. Without memory the half-made child is ended again; the parent's
/// pages may then be write-protected, which costs a fault each and changes nothing else.
pub(crate) fn fork<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    parent: &Space,
    stamp: u32,
    steps: &mut Steps,
) -> Result<SpaceId, RangeError> {
    let _writer = parent.writer.lock(stock.machine, steps.outside());
    let id = create(stock, stamp, parent.charge.limit(), parent.areas.limit())?;
    let child: &Space = record(stock.machine, id.frame().pa());
    child.thp_off.store(parent.thp_off.load(Ordering::Relaxed), Ordering::Relaxed);
    let fork = Fork { stock, parent, child, from: parent.tables(stock), to: child.tables(stock) };
    match fork.run(steps) {
        Ok(()) => Ok(id),
        Err(error) => match end(stock, id, steps) {
            Ok(()) => Err(error),
            Err(EndError::NoSpace | EndError::Running(_)) => {
                unreachable!("nobody knows the child yet")
            }
        },
    }
}

struct Fork<'f, 'm, M: Machine, P: Paging> {
    stock: &'f Stock<'m, M, P>,
    parent: &'f Space,
    child: &'f Space,
    from: Tables<'m, M, P>,
    to: Tables<'m, M, P>,
}

impl<'f, 'm, M: Machine, P: Paging> Fork<'f, 'm, M, P> {
    fn run(&self, steps: &mut Steps) -> Result<(), RangeError> {
        self.child.charge.charge_records(self.stock.machine.me(), 1)?; // it keeps the family's record
        self.child.member.join(self.stock, &self.child.charge, &self.parent.member)?; // before the first entry (rmap::R2)
        let mut gather = Gather::new(self.stock, &self.parent.member.target);
        let mut spare = Spare::new();
        let done = self.areas(&mut gather, &mut spare, steps);
        self.stock.drain_charged(&self.child.charge, &mut spare);
        gather.settle();
        gather.flush(); // before the child may run: what it shares is written by nobody
        done
    }

    fn areas(
        &self,
        gather: &mut Gather<'f, 'm, M, P>,
        spare: &mut Spare,
        steps: &mut Steps,
    ) -> Result<(), RangeError> {
        let mut done = Va::default();
        for area in self.parent.areas.overlapping(self.stock.machine, user_half::<P>()) {
            if area.flags.has(Flags::KERNEL) {
                continue; // shared with the kernel, not copied: the child has to ask for it itself
            }
            self.child.areas.prepare(self.stock, &self.child.charge)?;
            // The child was promised nothing: it gets huge pages as long as there are some.
            let flags = match area.flags.huge_order() {
                Some(_) => area.flags.with(Flags::NORESERVE),
                None => area.flags,
            };
            self.child.areas.put(self.stock.machine, &Area { flags, ..area });
            // A large leaf may reach into the areas behind, which advice has cut: it is shared once.
            let mut va = area.range.start().max(done);
            steps.take_flushed(gather, self.stock.machine, 1);
            while va < area.range.end() {
                let before = va;
                va = self.table(gather, spare, va, area.range.end())?;
                let entries = va.offset_from(before) / FRAME_BYTES;
                steps.take_flushed(gather, self.stock.machine, entries.clamp(1, Steps::TABLE));
            }
            done = va;
        }
        Ok(())
    }

    /// Shares the entries of the table that covers `va`; returns how far it came.
    fn table(
        &self,
        gather: &mut Gather<'f, 'm, M, P>,
        spare: &mut Spare,
        va: Va,
        end: Va,
    ) -> Result<Va, RangeError> {
        let locked = match self.from.lock(va, Level::BASE) {
            Ok(locked) => locked,
            Err(missing) if missing.what == Gap::Leaf => {
                return self.leaf(gather, spare, va, missing.level);
            }
            Err(missing) if is_breaking(self.stock, &self.from, va, &missing) => return Ok(va),
            Err(missing) => return Ok(behind(va, missing.level).min(end)),
        };
        // The parent's lock, then the child's, which nobody else reaches.
        let Ok(copy) = self.to.lock(va, Level::BASE) else {
            drop(locked); // memory is taken without locks (G8)
            self.ensure(spare, va, Level::BASE)?;
            return Ok(va);
        };
        let stop = behind(va, Level::MEGA).min(end);
        let mut broken = Broken::none();
        let reached = self.entries(gather, &mut broken, (&locked, &copy), (va, stop))?;
        drop(copy);
        let full = gather.is_full();
        let met = locked.let_go();
        broken.mend(gather, &self.from, (va, Level::BASE));
        if reached < stop && !full {
            met.wait(); // an entry is being replaced (table::I9)
        }
        Ok(reached)
    }

    fn entries(
        &self,
        gather: &mut Gather<'f, 'm, M, P>,
        broken: &mut Broken,
        (locked, copy): (&Locked<'m, M, P>, &Locked<'m, M, P>),
        (va, end): (Va, Va),
    ) -> Result<Va, OverLimit> {
        // Charged before the first entry: for all that may be there, or, near the limit, for what is.
        let (me, most) = (self.stock.machine.me(), end.offset_from(va) / FRAME_BYTES);
        let charged = match self.child.charge(me, most) {
            Ok(()) => most,
            Err(_) => {
                let there = pages_of(locked, (va, end));
                self.child.charge(me, there).map(|()| there)?
            }
        };
        let (mut va, mut pages) = (va, 0);
        while va < end && !gather.is_full() {
            let slot = Slot::of(va, Level::BASE);
            match locked.entry(slot) {
                Entry::None => {}
                Entry::Leaf { pa, attrs } => {
                    if !attrs.has(Attrs::SPECIAL) {
                        self.stock.add_references(self.stock.head_of(pa.frame()), 1);
                        pages += 1;
                    }
                    copy.set(slot, share(gather, broken, locked, (slot, page(va))));
                }
                Entry::Soft(soft) if soft.is_waited_for() => break,
                Entry::Soft(soft) => copy.set(slot, soft.word()),
                Entry::Table(_) => unreachable!("base words name no tables"),
            }
            va = va.add(FRAME_BYTES);
        }
        self.child.uncharge(me, charged - pages);
        Ok(va)
    }

    fn leaf(
        &self,
        gather: &mut Gather<'f, 'm, M, P>,
        spare: &mut Spare,
        va: Va,
        level: Level,
    ) -> Result<Va, RangeError> {
        let whole = VaRange::sized(va.align_down(level.span()), level.span()).expect("a user leaf");
        self.ensure(spare, va, level)?;
        let huge = self.parent.areas.find(self.stock.machine, va);
        let huge = huge.and_then(|area| area.flags.huge_order());
        let (me, charge) = (self.stock.machine.me(), &self.child.charge);
        let pages = level.order().expect("leaves end at 1 GiB").pages().get();
        let deposit = match huge {
            Some(_) => None,
            None => {
                let table = self.stock.claim_charged(charge, Owner::Table)?;
                if let Err(over) = charge.charge(me, pages) {
                    self.stock.release_charged(charge, table);
                    return Err(over.into());
                }
                Some(table)
            }
        };
        let undo = |deposit: Option<Claim>| {
            if let Some(table) = deposit {
                self.stock.release_charged(charge, table);
                charge.uncharge(me, pages);
            }
            Ok(va)
        };
        let Ok(locked) = self.from.lock(va, level) else { return undo(deposit) };
        let slot = Slot::of(va, level);
        let Entry::Leaf { pa, .. } = locked.entry(slot) else {
            drop(locked);
            return undo(deposit);
        };
        let mut broken = Broken::none();
        let copy = self.to.lock(va, level).expect("just made, and the child's alone");
        self.stock.add_references(self.stock.head_of(pa.frame()), pages);
        if let Some(table) = deposit {
            self.child.deposit(self.stock, table.give().0);
        }
        copy.set(slot, share(gather, &mut broken, &locked, (slot, whole)));
        drop((copy, locked));
        broken.mend(gather, &self.from, (va, level));
        if huge.is_some() {
            charge.count_huge(me, pages);
        }
        Ok(whole.end())
    }

    fn ensure(&self, spare: &mut Spare, va: Va, level: Level) -> Result<(), RangeError> {
        loop {
            match self.to.ensure(va, level, spare) {
                Ok(()) => return Ok(()),
                Err(Blocked::NeedTable(_)) => {
                    self.stock.refill_charged(&self.child.charge, spare)?;
                }
                Err(other) => panic!("the child is empty at {va}, and yet: {other}"),
            }
        }
    }
}

/// How many pages the entries of a table name from one address to another, the shared zero page not counted.
fn pages_of<M: Machine, P: Paging>(table: &Locked<'_, M, P>, (va, end): (Va, Va)) -> u64 {
    let slots = (0..end.offset_from(va) / FRAME_BYTES)
        .map(|n| Slot::of(va.add(n * FRAME_BYTES), Level::BASE));
    let is_page = |slot: &Slot| matches!(table.entry(*slot), Entry::Leaf { attrs, .. } if !attrs.has(Attrs::SPECIAL));
    slots.filter(is_page).count() as u64
}

/// Takes write and exclusive rights off an entry (S5), and returns the word for the other side: the same, never used.
fn share<'m, M: Machine, P: Paging>(
    gather: &mut Gather<'_, 'm, M, P>,
    broken: &mut Broken,
    locked: &Locked<'m, M, P>,
    at: (Slot, VaRange),
) -> u64 {
    let shared = |attrs: Attrs| attrs.without(Attrs::WRITE).without(Attrs::EXCLUSIVE);
    let Entry::Leaf { pa, attrs } = broken.rewrite(gather, locked, at, shared) else {
        unreachable!("leaves change under the lock only")
    };
    P::leaf(pa, locked.level(), shared(attrs).without(Attrs::ACCESSED))
}
