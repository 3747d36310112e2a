#![allow(unsafe_code)]
//! Frames of the manager's own that are kept without memory: chained through a word of each.
//!
//! ```text
//!   top ──▶ a frame, word LINK ──▶ a frame, word LINK ──▶ 0
//! ```
//!
//! **Invariants**
//! - N1. What is on a chain is the chain's: it came as a claim of one frame, and leaves as one.
//! - N2. A frame has its link before it is on the chain, and its other words stay as they are: a
//!   reader that goes along it finds whole frames.
//!
//! **Locking.** One caller at a time pushes and pops; the owner says which. Others may go along it
//! meanwhile, where the owner pops nothing that they could be at.

use super::{Words, words};
use crate::frame::Claim;
use crate::sync::{AtomicU64, Ordering};
use foliant_machine::PhysMem;
use foliant_units::{Frame, Order};

/// See the module's text. All words; valid when cleared.
#[derive(Default)]
#[repr(transparent)]
pub(crate) struct OwnFrames<const LINK: usize> {
    /// The number of the last frame that was pushed, with 1 added, or 0.
    top: AtomicU64,
}

impl<const LINK: usize> OwnFrames<LINK> {
    /// Puts a frame on it, and returns its words.
    pub(crate) fn push<'m>(&self, memory: &'m impl PhysMem, claim: Claim) -> &'m Words {
        let (frame, order) = claim.into_raw();
        assert_eq!(order, Order::BASE, "single frames are linked (own::N1)");
        let page: &Words = words(memory, frame.pa());
        page[LINK].store(self.top.load(Ordering::Relaxed), Ordering::Relaxed);
        self.top.store(frame.get() + 1, Ordering::Release);
        page
    }
    /// Takes the last one off. The word of its link is 0 then.
    pub(crate) fn pop(&self, memory: &impl PhysMem) -> Option<Claim> {
        let frame = frame_of(self.top.load(Ordering::Relaxed))?;
        let link = &words(memory, frame.pa())[LINK];
        self.top.store(link.load(Ordering::Relaxed), Ordering::Release);
        link.store(0, Ordering::Relaxed);
        // SAFETY: it was a claim when it was pushed, and the chain has it no more (own::N1).
        Some(unsafe { Claim::from_raw(frame, Order::BASE) })
    }
    /// The words of the last one.
    pub(crate) fn last<'m>(&self, memory: &'m impl PhysMem) -> Option<&'m Words> {
        frame_of(self.top.load(Ordering::Acquire)).map(|frame| words(memory, frame.pa()))
    }
    /// The words of each, the last one first.
    pub(crate) fn each<'m, M: PhysMem>(
        &self,
        memory: &'m M,
    ) -> impl Iterator<Item = &'m Words> + use<'m, M, LINK> {
        core::iter::successors(self.last(memory), |page| {
            let next = frame_of(page[LINK].load(Ordering::Acquire))?;
            Some(words(memory, next.pa()))
        })
    }
}

fn frame_of(word: u64) -> Option<Frame> {
    word.checked_sub(1).map(Frame::new)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::stock::bare::stock;
    use foliant_machine::Owner;
    use foliant_sim::{Config, Sim};
    use foliant_units::Bytes;
    use std::vec::Vec;

    /// The last one in is the first one out, with its words as they were but for the link, which is
    /// 0; a reader that goes along meets each once.
    fn come_and_go<const LINK: usize>() {
        const OTHER: usize = 7;
        let sim = Sim::new(Config::free(1, Bytes::new(16 << 20))).unwrap();
        let stock = stock(&sim);
        let own = OwnFrames::<LINK>::default();
        for mark in 1..=3 {
            let page = own.push(&sim, stock.claim_cleared(Owner::Records).unwrap());
            page[OTHER].store(mark, Ordering::Relaxed);
        }
        let mark = |page: &Words| page[OTHER].load(Ordering::Relaxed);
        assert_eq!(own.each(&sim).map(mark).collect::<Vec<_>>(), [3, 2, 1]);
        for expected in (1..=3).rev() {
            assert_eq!(own.last(&sim).map(mark), Some(expected));
            let claim = own.pop(&sim).expect("there are as many");
            let page: &Words = words(&sim, claim.frame().pa());
            assert_eq!((mark(page), page[LINK].load(Ordering::Relaxed)), (expected, 0));
            stock.release(claim);
        }
        assert_eq!(own.pop(&sim), None);
        assert_eq!(own.each(&sim).count(), 0);
    }
    #[test]
    fn own_frames_leave_in_turn_and_as_they_came() {
        come_and_go::<0>();
        come_and_go::<511>();
    }
}
