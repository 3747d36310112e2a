//! Folios that stay what they are: why the entries of one are not taken at all, and how entries
//! that were taken in vain are put back.

use super::error::SplitError;
use super::put::put_back;
use super::walk::Folio;
use crate::stock::{Held, NotHeld, Stock};
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::Frame;

/// Holds the folio of `frame`.
pub(super) fn hold<'s, 'm, M: Machine, P: Paging>(
    stock: &'s Stock<'m, M, P>,
    frame: Frame,
) -> Result<Held<'s, 'm, M, P>, SplitError> {
    stock.hold(frame).map_err(|why| not_held(frame, why))
}
/// Holds the folio of `frame`, which may be marked as broken.
pub(super) fn hold_broken<'s, 'm, M: Machine, P: Paging>(
    stock: &'s Stock<'m, M, P>,
    frame: Frame,
) -> Result<Held<'s, 'm, M, P>, SplitError> {
    stock.hold_broken(frame).map_err(|why| not_held(frame, why))
}
/// Holds the huge page of a pool that has `frame`.
pub(super) fn hold_huge<'s, 'm, M: Machine, P: Paging>(
    stock: &'s Stock<'m, M, P>,
    frame: Frame,
) -> Result<Held<'s, 'm, M, P>, SplitError> {
    stock.hold_huge(frame).map_err(|why| not_held(frame, why))
}
fn not_held(frame: Frame, why: NotHeld) -> SplitError {
    match why {
        NotHeld::Nothing => SplitError::NotAFolio(frame),
        NotHeld::Huge => SplitError::Huge(frame),
        NotHeld::Busy => SplitError::Busy(frame),
        NotHeld::Broken => SplitError::Broken(frame),
    }
}

/// Why it is in vain to take the entries of a folio that the caller holds.
pub(super) fn refuses<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    head: Frame,
) -> Option<SplitError> {
    match stock.counts(head) {
        counts if counts.pins() > 1 => Some(SplitError::Pinned(head)),
        counts if counts.entries() == 0 => Some(SplitError::Unmapped(head)),
        _ => None,
    }
}

/// Puts the entries back that were taken in vain, and says why that was in vain.
pub(super) fn stay<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    held: &Held<'_, '_, M, P>,
    entries: u64,
) -> SplitError {
    let head = held.head();
    put_back(stock, Folio::of(stock, head, held.order()), entries);
    refuses(stock, head).unwrap_or(SplitError::Changed(head))
}
