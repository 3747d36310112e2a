//! Tables taken ahead for an operation, and the space that is charged for them.
//!
//! No operation on page tables allocates: it says which table it lacks, and goes on when it has
//! one. A caller in whose operation that may happen has a [`Supply`], which takes cleared frames as
//! they are asked for, charges them to its space, and gives back what was not needed when it is
//! dropped.
//!
//! ```text
//!   Supply::of(charge) ──ensure──▶ a table is lacking? ── charge, claim, clear ─▶ try again
//!                                  something is there ──▶ the caller decides
//! ```

use super::charge::{Charge, NoRecord, OverLimit};
use super::{Event, Stock};
use crate::frame::Claim;
use crate::table::{Blocked, Paging, Spare, Tables};
use foliant_machine::{Machine, Owner};
use foliant_units::{Level, Va, VaRange};

/// See the module's text. Dropped outside of table locks.
pub(crate) struct Supply<'s, 'm, M: Machine, P: Paging> {
    stock: &'s Stock<'m, M, P>,
    /// What the tables are charged to; nothing in the kernel half.
    charge: Option<&'s Charge>,
    /// How many more are charged already.
    prepaid: u64,
    spare: Spare,
}

/// Why tables were not made. Those above the one that is lacking may have been.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoTable {
    /// No frame was to be had, or it may not be charged.
    Record(NoRecord),
    /// Something other than a table is in the way, or the address is wrong.
    Blocked(Blocked),
}

impl NoTable {
    /// The only reason that is left where nothing is mapped and the address is a good one.
    #[track_caller]
    pub(crate) fn in_empty(self) -> NoRecord {
        match self {
            NoTable::Record(why) => why,
            NoTable::Blocked(why) => panic!("nothing is mapped there, and yet: {why}"),
        }
    }
}

impl<'s, 'm, M: Machine, P: Paging> Supply<'s, 'm, M, P> {
    /// Tables of the space that `charge` is of.
    pub(crate) fn of(stock: &'s Stock<'m, M, P>, charge: &'s Charge) -> Self {
        Supply { stock, charge: Some(charge), prepaid: 0, spare: Spare::new() }
    }
    /// Tables of the kernel half, which nobody is charged for.
    pub(crate) fn of_kernel(stock: &'s Stock<'m, M, P>) -> Self {
        Supply { stock, charge: None, prepaid: 0, spare: Spare::new() }
    }
    /// Charges so many tables before any of them is made.
    pub(crate) fn prepay(&mut self, tables: u64) -> Result<(), OverLimit> {
        if let Some(charge) = self.charge {
            charge.charge_records(self.stock.machine.me(), tables)?;
        }
        self.prepaid += tables;
        Ok(())
    }

    /// Repeats `step` with one more table each time that it lacks one.
    #[inline]
    pub(crate) fn until<R>(
        &mut self,
        mut step: impl FnMut(&mut Spare) -> Result<R, Blocked>,
    ) -> Result<R, NoTable> {
        loop {
            match step(&mut self.spare) {
                Err(Blocked::NeedTable(_)) => self.refill().map_err(NoTable::Record)?,
                done => return done.map_err(NoTable::Blocked),
            }
        }
    }
    /// Makes the tables for `va` down to the one that holds entries of `level`.
    pub(crate) fn ensure(
        &mut self,
        tables: &Tables<'m, M, P>,
        va: Va,
        level: Level,
    ) -> Result<(), NoTable> {
        self.until(|spare| tables.ensure(va, level, spare))
    }
    /// The same for all of `range`; `before` is called before each try, with no lock held.
    pub(crate) fn ensure_range(
        &mut self,
        tables: &Tables<'m, M, P>,
        range: VaRange,
        level: Level,
        mut before: impl FnMut(),
    ) -> Result<(), NoTable> {
        let reach = level.up().span();
        let mut next = Some(range.start());
        while let Some(va) = next.filter(|va| *va < range.end()) {
            self.until(|spare| {
                before();
                tables.ensure(va, level, spare)
            })?;
            next = va.align_down(reach).checked_add(reach.get());
        }
        Ok(())
    }
    /// At least one table, for a leaf that is split.
    pub(crate) fn one(&mut self) -> Result<&mut Spare, NoRecord> {
        if self.spare.is_empty() {
            self.refill()?;
        }
        Ok(&mut self.spare)
    }
    /// Gives a table back that was taken or kept for this space and is not needed.
    pub(crate) fn give_back(&self, table: Claim) {
        self.stock.count(Event::TableFreed);
        self.stock.release(table);
        if let Some(charge) = self.charge {
            charge.uncharge_records(self.stock.machine.me(), 1);
        }
    }

    #[cold]
    fn refill(&mut self) -> Result<(), NoRecord> {
        let (stock, me) = (self.stock, self.stock.machine.me());
        match (self.charge, self.prepaid.checked_sub(1)) {
            (_, Some(left)) => self.prepaid = left,
            (Some(charge), None) => charge.charge_records(me, 1)?,
            (None, None) => {}
        }
        match stock.claim_cleared(Owner::Table) {
            Ok(table) => {
                stock.count(Event::TableMade);
                self.spare.push(table).expect("it had none");
                Ok(())
            }
            Err(none) => {
                self.charge.into_iter().for_each(|charge| charge.uncharge_records(me, 1));
                Err(none.into())
            }
        }
    }
}

impl<M: Machine, P: Paging> Drop for Supply<'_, '_, M, P> {
    fn drop(&mut self) {
        while let Some(table) = self.spare.pop() {
            self.give_back(table);
        }
        if let Some(charge) = self.charge.filter(|_| self.prepaid > 0) {
            charge.uncharge_records(self.stock.machine.me(), self.prepaid);
        }
    }
}
