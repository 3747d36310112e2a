#![allow(unsafe_code)]
//! A block that is being emptied: the frames of it that are already the emptier's.
//!
//! ```text
//!   isolate ──▶ its free frames ──add: a folio has left──▶ ... ──▶ all 512: a Claim of 2 MiB
//!                                                        └─ or not: given up, free as before
//! ```
//!
//! **Invariants**
//! - O1. Isolated frames are claimed, each as a block of order 0, and belong to nobody else.
//!   Keeping them takes no memory, whatever their number: there is a bit for each frame.
//! - O2. Isolated frames that the allocator knows to be zero are zero: nothing is written to them,
//!   and what was known of the frames of an added claim, which was a program's, is forgotten.

use super::{Block, NoBlock, Stock, Stretch};
use crate::folio::{Class, Joined, Pick};
use crate::frame::Claim;
use crate::table::Paging;
use foliant_machine::{Machine, Owner, Refusal};
use foliant_units::{Frame, FrameRange, Order, Pages};

/// See the module's text.
#[must_use = "dropped, isolated frames leak"]
pub(crate) struct Isolated {
    first: Frame,
    pick: Pick,
}

impl Isolated {
    /// The first frame of the block, from `from` on, that is not in it.
    pub(crate) fn next_other(&self, from: Frame) -> Option<Frame> {
        let all = Order::SIZE_2M.pages().get();
        let from = from.get().saturating_sub(self.first.get());
        (from..all).find(|nth| !self.pick.has(*nth)).map(|nth| self.first.add(Pages::new(nth)))
    }
    fn runs(&self) -> impl Iterator<Item = FrameRange> {
        let range =
            |(start, count)| FrameRange::new(self.first.add(Pages::new(start)), Pages::new(count));
        self.pick.runs().filter_map(range)
    }
}

impl<'m, M: Machine, P: Paging> Stock<'m, M, P> {
    /// Takes all free frames of the 2 MiB block that begins at `first`.
    pub(crate) fn isolate(&self, first: Frame) -> Isolated {
        let mut isolated = Isolated { first, pick: Pick::default() };
        self.isolate_free(&mut isolated);
        isolated
    }
    /// Takes what has become free of it since.
    pub(crate) fn isolate_free(&self, isolated: &mut Isolated) {
        let more = Isolated { first: isolated.first, pick: self.folios.isolate(isolated.first) };
        more.runs().for_each(|run| self.machine.owned(run, Owner::Claimed));
        isolated.pick.join(&more.pick);
    }
    /// Adds what a folio that was moved had of its block.
    pub(crate) fn isolate_claim(&self, isolated: &mut Isolated, claim: Claim) {
        self.folios.forget(claim.frames()); // O2
        let (frame, order) = claim.into_raw();
        self.folios.split(frame, order, Order::BASE).expect("a claim is a block (claim::I1)");
        isolated.pick.add(frame.get() - isolated.first.get(), order.pages().get());
    }
    /// Makes one block of frames that are the caller's one by one.
    pub(super) fn join(&self, first: Frame, order: Order) {
        let joined = || self.folios.join(first, order, Class::Movable);
        while joined().expect("all its frames are the caller's (claim::I1)") == Joined::Later {
            self.machine.relax();
        }
    }
    /// The whole block, if all of it is there; else what there is.
    pub(crate) fn complete(&self, isolated: Isolated) -> Result<Claim, Isolated> {
        if isolated.pick.count() < Order::SIZE_2M.pages().get() {
            return Err(isolated);
        }
        self.join(isolated.first, Order::SIZE_2M);
        // SAFETY: all 512 frames were isolated, and are one block now; their token goes.
        Ok(unsafe { Claim::taken(isolated.first, Order::SIZE_2M) })
    }
    /// Gives its frames back.
    pub(crate) fn give_up(&self, isolated: Isolated) {
        isolated.runs().for_each(|run| self.machine.owned(run, Owner::Free));
        let given = self.folios.give_up(isolated.first, &isolated.pick);
        given.expect("its frames are its own (stock::isolated::O1)");
    }

    /// Takes a block out of the 2 MiB block that holds `frame`, if its descriptors are ready. It
    /// waits for nobody: the caller may hold folios (holds::B3).
    pub(crate) fn claim_in(&self, frame: Frame, order: Order) -> Result<Claim, NoBlock> {
        let none = NoBlock { order };
        if self.machine.refusal() == Refusal::Refuse {
            return Err(none);
        }
        let frame_in = self.folios.alloc_in(frame, order).ok_or(none)?;
        // SAFETY: the allocator handed it out just now.
        let claim = unsafe { Claim::from_raw(frame_in, order) };
        self.machine.owned(claim.frames(), Owner::Claimed);
        // Its frames keep the block from being claimed as a whole, so what is ready stays ready
        // (stock::K1).
        if self.stretches.get(Block::of(frame)) == Stretch::Ready {
            return Ok(claim);
        }
        self.release(claim);
        Err(none)
    }
}
