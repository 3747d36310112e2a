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
use crate::table::{Blocked, Paging, Spare, Tables};
use foliant_machine::{Machine, Owner};
use foliant_units::{Level, Va, VaRange};

/// See the module's text. Dropped outside of table locks.
pub(crate) struct Supply<'s, 'm, M: Machine, P: Paging> {
    stock: &'s Stock<'m, M, P>,
    /// What the tables are charged to; nothing in the kernel half.
    charge: Option<&'s Charge>,
    /// How many more are charged already, where all that may be needed were charged first.
    prepaid: Option<u64>,
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
        Supply { stock, charge: Some(charge), prepaid: None, spare: Spare::new() }
    }
    /// The same, with so many tables charged before any of them is made. It never needs more.
    pub(crate) fn prepaid(
        stock: &'s Stock<'m, M, P>,
        charge: &'s Charge,
        tables: u64,
    ) -> Result<Self, OverLimit> {
        charge.charge_records(stock.machine.me(), tables)?;
        let mut supply = Supply::of(stock, charge);
        supply.prepaid = Some(tables);
        Ok(supply)
    }
    /// Tables of the kernel half, which nobody is charged for.
    pub(crate) fn of_kernel(stock: &'s Stock<'m, M, P>) -> Self {
        Supply { stock, charge: None, prepaid: None, spare: Spare::new() }
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

    #[cold]
    fn refill(&mut self) -> Result<(), NoRecord> {
        let stock = self.stock;
        let table = match (self.charge, self.prepaid) {
            (Some(charge), None) => stock.claim_charged(charge, Owner::Table)?,
            (_, prepaid) => {
                let table = stock.claim_cleared(Owner::Table)?;
                let left =
                    |left: u64| left.checked_sub(1).expect("all that were missing are paid for");
                self.prepaid = prepaid.map(left);
                table
            }
        };
        stock.count(Event::TableMade);
        self.spare.push(table).expect("it had none");
        Ok(())
    }
}

impl<M: Machine, P: Paging> Drop for Supply<'_, '_, M, P> {
    fn drop(&mut self) {
        // As a gather: where a CPU of a simulated machine panics, nothing more is done for it.
        if crate::sync::is_unwinding() {
            return;
        }
        let stock = self.stock;
        while let Some(table) = self.spare.pop() {
            stock.count(Event::TableFreed);
            match self.charge {
                Some(charge) => stock.release_charged(charge, table),
                None => stock.release(table),
            }
        }
        if let (Some(charge), Some(left)) = (self.charge, self.prepaid) {
            charge.uncharge_records(stock.machine.me(), left);
        }
    }
}
