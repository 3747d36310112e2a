//! What a caller without a manager vouches for: a top table, and frames that it lends.
#![allow(unsafe_code)]

use super::paging::{Half, Paging};
use super::spare::Spare;
use super::tables::Tables;
use foliant_claim::Claim;
use foliant_units::{Frame, Order, Pa};

impl<'m, M, P: Paging> Tables<'m, M, P> {
    /// The tables under the top table at `root`.
    ///
    /// # Safety
    /// `root` is a frame of memory given to Foliant that is owned as a top table of this format,
    /// all of whose words are 0 or lead to such tables, for as long as a copy of the value is used.
    /// All memory that is mapped through it is memory that the code run on these tables may reach.
    pub unsafe fn adopt(machine: &'m M, root: Pa, half: Half) -> Tables<'m, M, P> {
        Tables::at(machine, root, half)
    }
}

impl Spare {
    /// Adds a frame from outside the allocator (early boot, a bench). It comes back where the stock
    /// is full.
    ///
    /// # Safety
    /// The frame is memory given to Foliant, cleared, and nobody else uses it.
    pub unsafe fn lend(&mut self, frame: Frame) -> Result<(), Frame> {
        // SAFETY: the caller's promise.
        let claim = unsafe { Claim::from_raw(frame, Order::BASE) };
        self.push(claim).map_err(|claim| claim.frame())
    }
}
