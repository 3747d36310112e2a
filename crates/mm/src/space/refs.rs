//! Forgetting how pages were used: a tool measures a working set by it, or finds what was written
//! since.
//!
//! **Invariants**
//! - U1. Once the operation is over, a page of the range that it forgot the use of is in no CPU's
//!   TLB: the next use notes itself in the entry. Of a page that is written meanwhile the note may
//!   be from before or after.
//! - U2. An entry loses `ACCESSED` behind the flush that ends its translations: it is broken first,
//!   on every machine, and a flush covers one table at most. A split or a move of a folio concludes
//!   from an entry that was never used that no CPU has it cached.
//! - U3. Where the format keeps `SOFT_DIRTY`, an entry without it is not writable (S11), so the
//!   first write to a page that was forgotten to be written faults, and sets it.
//!
//! **Not here**: what was never present. A tracker of addresses keeps by itself which areas are
//! new.

use super::error::RangeError;
use super::huge;
use super::ops::{change_entries, check};
use super::record::Space;
use super::steps::Steps;
use crate::flush::Gather;
use crate::stock::Stock;
use crate::table::{Attrs, Paging};
use foliant_machine::{Machine, Replace};
use foliant_units::VaRange;

/// What is forgotten of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refs {
    /// That they were used: [`Attrs::ACCESSED`].
    Accessed,
    /// That they were written: [`Attrs::SOFT_DIRTY`]. A format without that bit keeps nothing to be
    /// forgotten, and then this does nothing.
    SoftDirty,
}

/// Forgets that the pages of a range were used, or written. Holes are skipped; a range that begins
/// or ends inside a huge page is refused.
pub(crate) fn clear_refs<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    range: VaRange,
    refs: Refs,
    steps: &mut Steps,
) -> Result<(), RangeError> {
    check::<P>(range)?;
    let (forgotten, replace) = match refs {
        Refs::Accessed => (Attrs::ACCESSED, Replace::BreakBeforeMake), // U2
        Refs::SoftDirty if !P::KEEPS.has(Attrs::SOFT_DIRTY) => return Ok(()),
        Refs::SoftDirty => {
            (Attrs::SOFT_DIRTY.with(Attrs::WRITE), stock.machine.rules().replace) // U3
        }
    };
    let _writer = space.writer.lock(stock.machine, steps.outside());
    huge::whole(stock, space, range)?;
    let mut gather = Gather::new(stock, &space.member.target);
    let forget = |old: Attrs| old.without(forgotten);
    change_entries(replace, stock, space, range, &mut gather, steps, forget);
    gather.settle();
    gather.flush();
    Ok(())
}
