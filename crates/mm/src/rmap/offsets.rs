//! The distances that a space's areas were moved.
//!
//! ```text
//!   inline: 24 offsets ─more─▶ frame: 511 offsets, link ─▶ ...       0 stands for an empty place
//! ```
//!
//! Distances that no area has any more are taken out when the places are all taken, and not sooner.
//! Where that frees fewer than half of them, one more frame is added, so that it is seldom done.
//! Bits tell which distances are still some area's, instead of a search for each: a pass over the
//! areas sets the bit of each of theirs, and a pass over the places looks at the bits. A place
//! whose bit was set by another distance stays until the next time.
//!
//! **Invariants**
//! - H1. An offset is noted before the first entry is made under it, and stays while an area has
//!   it: none ever changes its place, so that a walk meets it.
//!
//! **Locking.** The holder of the space's writer changes them; a walker that has the space pinned
//! reads them at any time.

use crate::frame::AnonOffset;
use crate::stock::{Charge, NoRecord, OwnFrames, Stock, Words, words};
use crate::sync::{AtomicU64, Ordering};
use crate::table::Paging;
use foliant_machine::{Machine, Owner};

const INLINE: usize = 24;
/// Offsets in a frame; its last word links to the next one.
const PER_FRAME: usize = 511;
const LINK: usize = 511;
/// Bits of a frame, as a power of two, and how many places are looked at in one pass by them.
const BITS: u32 = 15;
const PER_PASS: usize = 1 << (BITS - 3);

/// See the module's text. All words; valid when cleared.
#[repr(C)]
pub(crate) struct Offsets {
    inline: [AtomicU64; INLINE],
    more: OwnFrames<LINK>,
}

impl Offsets {
    fn places<'a, 'm: 'a, M: Machine, P: Paging>(
        &'a self,
        stock: &Stock<'m, M, P>,
    ) -> impl Iterator<Item = &'a AtomicU64> + use<'a, 'm, M, P> {
        let more = self.more.each(stock.machine).flat_map(|page| page[..PER_FRAME].iter());
        self.inline.iter().chain(more)
    }
    /// How many frames have the offsets that do not fit in.
    #[cfg(feature = "verify")]
    pub(crate) fn frames<M: Machine, P: Paging>(&self, stock: &Stock<'_, M, P>) -> u64 {
        self.more.each(stock.machine).count() as u64
    }
    /// All of them but [`AnonOffset::NONE`], which every space has.
    pub(crate) fn iter<'a, 'm: 'a, M: Machine, P: Paging>(
        &'a self,
        stock: &Stock<'m, M, P>,
    ) -> impl Iterator<Item = AnonOffset> + use<'a, 'm, M, P> {
        let offsets = self.places(stock).map(|place| place.load(Ordering::Acquire));
        offsets.filter(|word| *word != 0).map(AnonOffset::from_word)
    }

    /// Notes `offset`. `each` tells all offsets that areas still have, or will have. Where it takes
    /// memory and there is none, nothing is noted.
    pub(crate) fn note<M: Machine, P: Paging>(
        &self,
        stock: &Stock<'_, M, P>,
        charge: &Charge,
        offset: AnonOffset,
        each: impl Fn(&mut dyn FnMut(AnonOffset)),
    ) -> Result<(), NoRecord> {
        if offset == AnonOffset::NONE || self.iter(stock).any(|known| known == offset) {
            return Ok(());
        }
        if !self.take_place(stock, offset) {
            self.make_room(stock, charge, each)?;
            assert!(self.take_place(stock, offset), "there was room or there is a new frame");
        }
        Ok(())
    }
    fn take_place<M: Machine, P: Paging>(
        &self,
        stock: &Stock<'_, M, P>,
        offset: AnonOffset,
    ) -> bool {
        let free = self.places(stock).find(|place| place.load(Ordering::Relaxed) == 0);
        if let Some(place) = free {
            place.store(offset.word(), Ordering::Release);
        }
        free.is_some()
    }
    /// Frees the places of distances that no area has, and adds a frame where those are fewer than
    /// half.
    fn make_room<M: Machine, P: Paging>(
        &self,
        stock: &Stock<'_, M, P>,
        charge: &Charge,
        each: impl Fn(&mut dyn FnMut(AnonOffset)),
    ) -> Result<(), NoRecord> {
        let claim = stock.claim_charged(charge, Owner::Records)?;
        let bits: &Words = words(stock.machine, claim.frame().pa());
        let all = self.places(stock).count();
        let passes = 1 + (all / PER_PASS) as u64;
        for pass in 0..passes {
            bits.iter().for_each(|word| word.store(0, Ordering::Relaxed));
            each(&mut |offset| {
                if let Some((word, bit)) = Self::bit(offset.word(), (pass, passes)) {
                    bits[word].fetch_or(bit, Ordering::Relaxed);
                }
            });
            for place in self.places(stock) {
                if let Some((word, bit)) = Self::bit(place.load(Ordering::Relaxed), (pass, passes))
                    && bits[word].load(Ordering::Relaxed) & bit == 0
                {
                    place.store(0, Ordering::Release);
                }
            }
        }
        if self.iter(stock).count() * 2 <= all {
            stock.release_charged(charge, claim);
            return Ok(());
        }
        bits.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        self.more.push(stock.machine, claim);
        Ok(())
    }
    /// The bit of a distance, if it is one of this pass's.
    fn bit(word: u64, (pass, passes): (u64, u64)) -> Option<(usize, u64)> {
        let mixed = word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bit = mixed >> (64 - BITS);
        ((mixed >> 16) % passes == pass).then_some(((bit / 64) as usize, 1 << (bit % 64)))
    }

    /// Notes in these, which are empty, all that `from` has. Where memory runs out, what was noted
    /// until then stays until they are dissolved.
    pub(super) fn copy<M: Machine, P: Paging>(
        &self,
        stock: &Stock<'_, M, P>,
        charge: &Charge,
        from: &Offsets,
    ) -> Result<(), NoRecord> {
        let mut room = self.inline.iter();
        for offset in from.iter(stock) {
            if room.len() == 0 {
                let more = stock.claim_charged(charge, Owner::Records)?;
                let page = self.more.push(stock.machine, more);
                room = page[..PER_FRAME].iter();
            }
            let place = room.next().expect("there is room");
            place.store(offset.word(), Ordering::Release);
        }
        Ok(())
    }
    /// Gives all memory back. Nobody looks any more.
    pub(super) fn dissolve<M: Machine, P: Paging>(&self, stock: &Stock<'_, M, P>) {
        while let Some(frame) = self.more.pop(stock.machine) {
            stock.release(frame);
        }
    }
}
