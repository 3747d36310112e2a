#![allow(unsafe_code)]
//! Copies into memory that the caller owns, and a clear of what no manager owns.

use super::{Clearing, Pace, PlanError, Tally, carry_out};
use crate::frame::Claim;
use crate::stock::Stock;
use crate::sync::Outside;
use crate::table::Paging;
use foliant_machine::{Clock, Machine, PhysMem};
use foliant_units::{Bytes, FRAME_BYTES, Frame, FrameRange, Order, Pa, Pages};

/// What is copied between two preemption points: a part of every huge page.
const COPIED: Bytes = Bytes::new(256 << 10);

/// Clears a block that no manager owns, as a manager does: for measuring. `unknown` gives the part
/// of at most 2 MiB of frames that is not known to be zero. Preemption points are taken: the caller
/// holds nothing that others wait for.
///
/// # Safety
/// The caller owns the block, and no reference into it is alive.
pub unsafe fn clear_block(
    machine: &(impl PhysMem + Clock),
    pace: &Pace,
    clearing: &Clearing,
    (block, touched): ((Frame, Order), Option<Frame>),
    unknown: impl Fn(FrameRange) -> Option<FrameRange>,
) -> Result<Tally, PlanError> {
    let mut outside = Outside::at_the_face();
    carry_out(machine, pace, clearing, block, (touched, Some(&mut outside)), unknown)
}

/// Copies the memory of a frozen folio, at `from`, into the block that the folio moves to.
pub(crate) fn copy_huge<M: Machine, P: Paging>(stock: &Stock<'_, M, P>, from: Pa, to: FrameRange) {
    // SAFETY: the caller holds the Claim of `to`, whatever its order (claim::I1), and has frozen
    // the source's folio (stock::holds::B2), which stays as it is until the caller ends it.
    unsafe { stock.machine.copy(from, to.start().pa(), to.pages().bytes()) }
}

/// Copies `from` into the frames of a huge page that is the caller's, with preemption points.
/// Nobody writes to the source meanwhile.
pub(crate) fn copy_yielding<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    from: Pa,
    to: FrameRange,
    outside: &mut Outside,
) {
    stock.folios.forget(to);
    let (to, end) = (to.start().pa(), to.pages().bytes().get());
    for at in (0..end).step_by(COPIED.get() as usize) {
        // SAFETY: the caller holds the Huge of `to` (memmap::Huge), and a reference to the source's
        // folio, which it had before the first preemption point and has until after the last. Both
        // are whole huge pages, and so multiples of what is copied.
        unsafe { stock.machine.copy(from.add(at), to.add(at), COPIED) }
        outside.yield_now(stock.machine);
    }
}

/// Writes contents that a caller has into a block of order 0.
pub(crate) fn write_page(memory: &impl PhysMem, contents: &[u8; FRAME_BYTES as usize], to: &Claim) {
    // SAFETY: `to` is a Claim (claim::I1).
    unsafe { memory.write(to.frame().pa(), contents) }
}

/// Writes contents into the nth frame of a huge page, which the caller holds.
pub(crate) fn write_piece<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    contents: &[u8; FRAME_BYTES as usize],
    (to, nth): (FrameRange, u64),
) {
    let frame = to.start().add(Pages::new(nth));
    assert!(to.contains(frame), "a piece of the page");
    stock.folios.forget(FrameRange::new(frame, Pages::new(1)).expect("one frame"));
    // SAFETY: the caller holds the Huge of `to` (memmap::Huge), which `frame` is one of.
    unsafe { stock.machine.write(frame.pa(), contents) }
}

/// Copies one base page into a block of order 0.
pub(crate) fn copy_page(memory: &impl PhysMem, from: Pa, to: &Claim) {
    // SAFETY: `to` is a Claim (claim::I1); the caller holds a reference to the source's folio.
    unsafe { memory.copy(from, to.frame().pa(), Bytes::new(FRAME_BYTES)) }
}
