#![allow(unsafe_code)]
//! The two bulk operations of the machine, on memory that the caller owns.

use crate::frame::Claim;
use foliant_machine::PhysMem;
use foliant_units::{Bytes, FRAME_BYTES, FrameRange, Pa};

pub(super) fn clear(memory: &impl PhysMem, pa: Pa, bytes: Bytes) {
    // SAFETY: the caller holds the Claim of the block (frame::I1).
    unsafe { memory.clear(pa, bytes) }
}

/// Copies `from` into the frames of a huge page that is the caller's.
pub(crate) fn copy_huge(memory: &impl PhysMem, from: Pa, to: FrameRange) {
    // SAFETY: the caller holds the Huge of `to` (memmap::Huge), and a reference to the source's folio.
    unsafe { memory.copy(from, to.start().pa(), to.pages().bytes()) }
}

/// Copies one base page into a block of order 0.
pub(crate) fn copy_page(memory: &impl PhysMem, from: Pa, to: &Claim) {
    // SAFETY: `to` is a Claim (frame::I1); the caller holds a reference to the source's folio.
    unsafe { memory.copy(from, to.frame().pa(), Bytes::new(FRAME_BYTES)) }
}
