//! The words of page tables: the one place that touches them.
//!
//! [`TableAt`] stands for the fact that a frame is owned as a page table (table::I1). It is made
//! from a root that the space's owner vouches for, from a claim that becomes a table, and from a
//! table word of such a table; [`WordAt`] is one word inside. So every access here is within an
//! owned table, which is what the contract of [`PhysMem`] asks for.
#![allow(unsafe_code)]

use super::attrs::{Slot, Slots};
use foliant_claim::{Claim, Stale};
use foliant_machine::{Caching, Owner, PhysMem, Witness};
use foliant_units::{Order, Pa};

/// A lent frame, cleared and stated to be a table, so that it can become one.
pub(super) fn prepared<M: PhysMem + Witness>(machine: &M, lent: Claim) -> Claim {
    assert_eq!(lent.order(), Order::BASE, "a table is one frame: lend single frames");
    machine.owned(lent.frames(), Owner::Table);
    // SAFETY: claim::I1: the frame is the caller's alone.
    unsafe { machine.clear(lent.frame().pa(), Order::BASE.bytes(), Caching::Cached) };
    lent
}

/// A frame that is owned as a page table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TableAt(Pa);

/// One word of an owned table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WordAt(Pa);

impl TableAt {
    /// A top table that the caller vouches for.
    #[inline]
    pub(super) const fn root(pa: Pa) -> TableAt {
        TableAt(pa)
    }
    /// The table that a table word of an owned table points to (table::I1).
    #[inline]
    pub(super) const fn named(pa: Pa) -> TableAt {
        TableAt(pa)
    }
    /// A claim becomes a table.
    #[inline]
    pub(super) const fn claimed(claim: Claim) -> TableAt {
        TableAt(claim.into_raw().0.pa())
    }
    /// The table, which the caller has just taken out of the word that named it.
    #[inline]
    pub(super) const fn removed(self) -> Stale {
        // SAFETY: table::I4: no word names it any more, and it was owned as a table.
        unsafe { Stale::unmapped(self.0.frame(), Order::BASE) }
    }
    #[inline]
    pub(super) const fn pa(self) -> Pa {
        self.0
    }
    /// How many of the words of `slots` are 0 before the first that is not.
    #[inline]
    pub(super) fn empties<M: PhysMem>(self, machine: &M, slots: Slots) -> usize {
        // SAFETY: table::I1: a frame owned as a table, or one that was detached and whose grace
        // period has not ended; the slots lie in it.
        unsafe { machine.zeros(self.word(slots.first()).pa(), slots.len()) }
    }
    /// The word in `slot`.
    #[inline]
    pub(super) const fn word(self, slot: Slot) -> WordAt {
        WordAt(self.0.add(slot.index() as u64 * 8))
    }
}

impl WordAt {
    #[inline]
    pub(super) const fn pa(self) -> Pa {
        self.0
    }
    /// Reads the word.
    #[inline(always)]
    pub(super) fn load<M: PhysMem>(self, machine: &M) -> u64 {
        // SAFETY: table::I1: a WordAt is an aligned word of a frame owned as a table, or of one
        // that was detached and whose grace period has not ended.
        unsafe { machine.load(self.0) }
    }
    /// Writes the word.
    #[inline(always)]
    pub(super) fn store<M: PhysMem>(self, machine: &M, word: u64) {
        // SAFETY: table::I1 as above; the maker of the Tables vouches for what the word maps.
        unsafe { machine.store(self.0, word) }
    }
    /// Replaces the word if it still is `old`; the error is the word found.
    #[inline(always)]
    pub(super) fn swap<M: PhysMem>(self, machine: &M, old: u64, new: u64) -> Result<u64, u64> {
        // SAFETY: table::I1 as above; the maker of the Tables vouches for what the word maps.
        unsafe { machine.compare_exchange(self.0, old, new) }
    }
}
