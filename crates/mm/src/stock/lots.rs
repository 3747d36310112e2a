#![allow(unsafe_code)]
//! Frames of the manager's own that are cut into *lots*: records of equal size, chained through a
//! word of each while nobody uses them.
//!
//! ```text
//!   frame │ lot │ lot │ lot │ lot │         top ──▶ lot, word LINK ──▶ lot, word LINK ──▶ 0
//! ```
//!
//! **Invariants**
//! - L1. A frame is cut once, and its lots stay lots of that size until all of them are on one
//!   chain and the frame leaves it ([`Lots::into_frames`]).
//!
//! **Locking.** One caller at a time uses a chain, and a lot that is on it; the owner says which.

use super::words;
use crate::frame::Claim;
use crate::sync::{AtomicU64, Ordering};
use foliant_machine::PhysMem;
use foliant_units::{Frame, Order};

/// The number of a lot of so many words: its place among all of them, with 1 added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lot<const WORDS: usize>(u64);

impl<const WORDS: usize> Lot<WORDS> {
    pub(crate) const PER_FRAME: u64 = 512 / WORDS as u64;

    /// The one that a word names; 0 names none.
    pub(crate) const fn named(word: u64) -> Option<Lot<WORDS>> {
        if word == 0 { None } else { Some(Lot(word)) }
    }
    /// The word that names it.
    pub(crate) const fn name(self) -> u64 {
        self.0
    }
    pub(crate) fn words(self, memory: &impl PhysMem) -> &[AtomicU64; WORDS] {
        let (place, frame) = (self.0 - 1, Frame::new((self.0 - 1) / Self::PER_FRAME));
        &words(memory, frame.pa()).as_chunks().0[(place % Self::PER_FRAME) as usize]
    }
}

/// Lots that nobody uses. All words; valid when cleared.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Lots<const WORDS: usize, const LINK: usize> {
    top: AtomicU64,
    count: AtomicU64,
}

impl<const WORDS: usize, const LINK: usize> Lots<WORDS, LINK> {
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
    fn set(&self, top: u64, count: u64) {
        self.top.store(top, Ordering::Relaxed);
        self.count.store(count, Ordering::Relaxed);
    }
    /// Cuts a frame, and puts all of its lots on the chain, the first one last.
    pub(crate) fn cut(&self, memory: &impl PhysMem, frame: Claim) {
        let first = frame.into_raw().0.get() * Lot::<WORDS>::PER_FRAME;
        let names = (first + 1..=first + Lot::<WORDS>::PER_FRAME).rev();
        names.for_each(|name| self.push(memory, Lot(name)));
    }
    pub(crate) fn push(&self, memory: &impl PhysMem, lot: Lot<WORDS>) {
        lot.words(memory)[LINK].store(self.top.load(Ordering::Relaxed), Ordering::Relaxed);
        self.set(lot.0, self.count() + 1);
    }
    /// Takes the one off that was put on last.
    pub(crate) fn pop(&self, memory: &impl PhysMem) -> Option<Lot<WORDS>> {
        let lot = Lot::named(self.top.load(Ordering::Relaxed))?;
        self.set(lot.words(memory)[LINK].load(Ordering::Relaxed), self.count() - 1);
        Some(lot)
    }
    /// Takes all of them off.
    pub(crate) fn take(&self) -> Self {
        let taken = Lots::default();
        taken.set(self.top.load(Ordering::Relaxed), self.count());
        self.set(0, 0);
        taken
    }
    /// Each of them, the last one first.
    pub(crate) fn each<M: PhysMem>(&self, memory: &M) -> impl Iterator<Item = Lot<WORDS>> {
        let first = Lot::named(self.top.load(Ordering::Relaxed));
        core::iter::successors(first, |lot| {
            Lot::named(lot.words(memory)[LINK].load(Ordering::Relaxed))
        })
    }
    /// Hands out the frames that the lots were cut from. All of a frame's lots are there (L1).
    pub(crate) fn into_frames(self, memory: &impl PhysMem, mut give: impl FnMut(Claim)) {
        let firsts = Lots::<WORDS, LINK>::default();
        while let Some(lot) = self.pop(memory) {
            if (lot.0 - 1).is_multiple_of(Lot::<WORDS>::PER_FRAME) {
                firsts.push(memory, lot);
            }
        }
        while let Some(Lot(name)) = firsts.pop(memory) {
            let frame = Frame::new(name / Lot::<WORDS>::PER_FRAME);
            // SAFETY: the frame was cut from a claim, and all of its lots came back (L1).
            give(unsafe { Claim::from_raw(frame, Order::BASE) });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::stock::bare::stock;
    use foliant_machine::Owner;
    use foliant_sim::{Config, Sim};
    use foliant_units::Bytes;
    use std::collections::BTreeSet;

    /// Lots of two frames come and go, each a place of its own; the frames come back when all are
    /// there again.
    #[test]
    fn frames_are_cut_and_become_whole_again() {
        let sim = Sim::new(Config::free(1, Bytes::new(16 << 20))).unwrap();
        let stock = stock(&sim);
        let free = stock.folios.free_frames();
        let lots = Lots::<64, 3>::default();
        for _ in 0..2 {
            lots.cut(&sim, stock.claim_cleared(Owner::Records).unwrap());
        }
        assert_eq!((lots.count(), Lot::<64>::PER_FRAME), (16, 8));
        let kept = Lots::<64, 3>::default();
        let mut places = BTreeSet::new();
        while let Some(lot) = lots.pop(&sim) {
            assert_eq!(Lot::named(lot.name()), Some(lot));
            places.insert(lot.words(&sim).as_ptr() as usize);
            kept.push(&sim, lot);
        }
        assert_eq!((places.len(), lots.count(), kept.each(&sim).count()), (16, 0, 16));
        let all = kept.take();
        assert_eq!((kept.count(), kept.pop(&sim), all.count()), (0, None, 16));
        all.into_frames(&sim, |frame| stock.release(frame));
        assert_eq!(stock.folios.free_frames(), free);
    }
}
