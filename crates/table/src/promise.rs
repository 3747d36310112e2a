//! What a caller without a manager vouches for: a top table, and frames that it lends.
#![allow(unsafe_code)]

use super::paging::{Half, Paging};
use super::spare::Spare;
use super::tables::Tables;
use super::word::prepared;
use foliant_claim::Claim;
use foliant_machine::{PhysMem, Witness};
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

impl<'m, M: PhysMem + Witness, P: Paging> Tables<'m, M, P> {
    /// Tables that map nothing. `top`, a single frame with any contents, becomes the top table.
    ///
    /// # Safety
    /// All memory that is mapped through them is memory that the code run on these tables may
    /// reach. The top table's frame gets another use when no copy of the value is used any more.
    pub unsafe fn create(machine: &'m M, top: Claim, half: Half) -> Tables<'m, M, P> {
        let (frame, _) = prepared(machine, top).into_raw();
        // SAFETY: the frame was a claim, and is cleared; the rest is the caller's promise.
        unsafe { Tables::adopt(machine, frame.pa(), half) }
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
