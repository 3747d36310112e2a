#![allow(unsafe_code)]
//! Clearing in one go: what the stock hands out cleared, and blocks that are short. What programs
//! get of larger ones is cleared by a plan (`zero`).

use super::{Event, Stock};
use crate::frame::{Claim, Touched};
use crate::table::Paging;
use foliant_machine::{Caching, Machine, PhysMem};
use foliant_units::{Bytes, Frame, FrameRange, Order, Pa};

/// What clearing a block took.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Bytes cleared.
    pub cleared: Bytes,
    /// Bytes that were known to be zero.
    pub spared: Bytes,
    /// Calls of the machine.
    pub clears: u64,
    /// Preemption points.
    pub yields: u64,
}

/// Clears memory that is the caller's.
pub(crate) fn clear_bytes(memory: &impl PhysMem, pa: Pa, bytes: Bytes, caching: Caching) {
    // SAFETY: the caller holds the Claim of the block (claim::I1), or owns it by the promise of
    // `zero::clear_block`.
    unsafe { memory.clear(pa, bytes, caching) }
}

/// Clears frames that are not in stock yet: the records that the stock itself is made of.
pub(crate) fn clear_range(memory: &impl PhysMem, frames: FrameRange) {
    clear_bytes(memory, frames.start().pa(), frames.pages().bytes(), Caching::Cached);
}

/// Clears a block in one go, and does not time it: most blocks are pages.
#[inline]
pub(crate) fn clear_once(
    machine: &impl PhysMem,
    all: FrameRange,
    unknown: impl Fn(FrameRange) -> Option<FrameRange>,
) -> Tally {
    let spared = all.pages().bytes();
    let Some(frames) = unknown(all) else { return Tally { spared, ..Tally::default() } };
    let cleared = frames.pages().bytes();
    clear_range(machine, frames);
    Tally { cleared, spared: Bytes::new(spared.get() - cleared.get()), clears: 1, yields: 0 }
}

impl<M: Machine, P: Paging> Stock<'_, M, P> {
    /// Clears the block without a preemption point.
    pub(crate) fn clear(&self, claim: &Claim) {
        if !self.may_know(claim.touched()) {
            clear_range(self.machine, claim.frames());
            self.count_by(Event::ZeroedBytes, claim.order().bytes().get());
            return self.count(Event::ZeroExtents);
        }
        let clear = |unknown: &dyn Fn(FrameRange) -> Option<FrameRange>| {
            clear_once(self.machine, claim.frames(), unknown)
        };
        self.clear_by((claim.frame(), claim.order()), claim.touched(), clear);
    }
    /// Clears a block by `clear`, which is told which part of at most 2 MiB of frames is not known
    /// to be zero, and counts what it took.
    pub(crate) fn clear_by(
        &self,
        (head, order): (Frame, Order),
        touched: Touched,
        clear: impl FnOnce(&dyn Fn(FrameRange) -> Option<FrameRange>) -> Tally,
    ) {
        let known = self.may_know(touched);
        let unknown = |frames| if known { self.folios.unknown(frames) } else { Some(frames) };
        let tally = clear(&unknown);
        if known {
            // It is being used from now on.
            self.folios.forget(FrameRange::block(head, order));
        }
        self.count_by(Event::ZeroedBytes, tally.cleared.get());
        self.count_clear(&tally);
    }
    /// Whether some of a block may be known to be zero.
    fn may_know(&self, touched: Touched) -> bool {
        touched == Touched::No && self.folios.knows_zeros()
    }
    /// Counts what a clear took, but for the bytes.
    pub(crate) fn count_clear(&self, tally: &Tally) {
        self.count_by(Event::ZeroExtents, tally.clears);
        if tally.spared.get() > 0 {
            self.count_by(Event::SparedBytes, tally.spared.get());
        }
        if tally.yields > 0 {
            self.count_by(Event::ZeroYields, tally.yields);
        }
    }
}
