//! The distances that a space's areas were moved.
//!
//! ```text
//!   inline: 24 shifts ─more─▶ frame: 510 shifts, link ─▶ ...       0 stands for an empty place
//! ```
//!
//! Distances that no area has any more are taken out when the places are all taken, and not sooner. Where that frees less
//! than half of them there is one frame more, so that it is seldom done.
//!
//! **Invariants**
//! - H1. A shift is noted before the first entry is made under it, and stays while an area has it: none ever changes its
//!   place, so that a walk meets it.
//!
//! **Locking.** Changed by who holds the space's writer; read at any time by who has the space pinned.

use crate::frame::{Claim, Shift};
use crate::stock::{Charge, NoRecord, Stock, Words, words};
use crate::sync::{AtomicU64, Ordering};
use crate::table::Paging;
use foliant_machine::{Machine, Owner};
use foliant_units::{Frame, Order};

const INLINE: usize = 24;
/// Shifts in a frame; its last word links to the next one.
const PER_FRAME: usize = 511;
const LINK: usize = 511;

/// See the module's text. All words; valid when cleared.
#[repr(C)]
pub(crate) struct Shifts {
    inline: [AtomicU64; INLINE],
    /// Frame number of the first frame with more, with 1 added, or 0.
    more: AtomicU64,
}

impl Shifts {
    fn places<'a, 'm: 'a, M: Machine, P: Paging>(
        &'a self,
        stock: &Stock<'m, M, P>,
    ) -> impl Iterator<Item = &'a AtomicU64> + use<'a, 'm, M, P> {
        let more = self.frames(stock).flat_map(|page| page[..PER_FRAME].iter());
        self.inline.iter().chain(more)
    }
    /// The frames with those that do not fit in.
    pub(crate) fn frames<'a, 'm: 'a, M: Machine, P: Paging>(
        &'a self,
        stock: &Stock<'m, M, P>,
    ) -> impl Iterator<Item = &'a Words> + use<'a, 'm, M, P> {
        let machine = stock.machine;
        let mut next = self.more.load(Ordering::Acquire);
        core::iter::from_fn(move || {
            let page: &'a Words = words(machine, Frame::new(next.checked_sub(1)?).pa());
            next = page[LINK].load(Ordering::Acquire);
            Some(page)
        })
    }
    /// All of them but [`Shift::NONE`], which every space has.
    pub(crate) fn iter<'a, 'm: 'a, M: Machine, P: Paging>(
        &'a self,
        stock: &Stock<'m, M, P>,
    ) -> impl Iterator<Item = Shift> + use<'a, 'm, M, P> {
        let shifts = self.places(stock).map(|place| place.load(Ordering::Acquire));
        shifts.filter(|word| *word != 0).map(Shift::from_word)
    }

    /// Notes `shift`. `has` says whether an area still has one. May note nothing for lack of memory.
    pub(crate) fn note<M: Machine, P: Paging>(
        &self,
        stock: &Stock<'_, M, P>,
        charge: &Charge,
        shift: Shift,
        has: impl Fn(Shift) -> bool,
    ) -> Result<(), NoRecord> {
        if shift == Shift::NONE || self.iter(stock).any(|known| known == shift) {
            return Ok(());
        }
        if self.take_place(stock, shift) {
            return Ok(());
        }
        let (mut all, mut left) = (0, 0);
        for place in self.places(stock) {
            all += 1;
            match has(Shift::from_word(place.load(Ordering::Relaxed))) {
                true => left += 1,
                false => place.store(0, Ordering::Release),
            }
        }
        // With a frame refused, what has become free has to do.
        match (left * 2 > all).then(|| self.grow(stock, charge)) {
            Some(Err(none)) if left == all => return Err(none),
            _ => {}
        }
        let noted = self.take_place(stock, shift);
        assert!(noted, "there was room or there is a new frame");
        Ok(())
    }
    fn take_place<M: Machine, P: Paging>(&self, stock: &Stock<'_, M, P>, shift: Shift) -> bool {
        let free = self.places(stock).find(|place| place.load(Ordering::Relaxed) == 0);
        if let Some(place) = free {
            place.store(shift.word(), Ordering::Release);
        }
        free.is_some()
    }
    fn grow<M: Machine, P: Paging>(
        &self,
        stock: &Stock<'_, M, P>,
        charge: &Charge,
    ) -> Result<(), NoRecord> {
        let (frame, _) = stock.claim_charged(charge, Owner::Records)?.give();
        let page: &Words = words(stock.machine, frame.pa());
        page[LINK].store(self.more.load(Ordering::Relaxed), Ordering::Relaxed);
        self.more.store(frame.get() + 1, Ordering::Release);
        Ok(())
    }

    /// Notes in these, which are empty, all that `from` has. What was noted without memory stays until they are dissolved.
    pub(super) fn copy<M: Machine, P: Paging>(
        &self,
        stock: &Stock<'_, M, P>,
        charge: &Charge,
        from: &Shifts,
    ) -> Result<(), NoRecord> {
        from.iter(stock).try_for_each(|shift| self.note(stock, charge, shift, |_| true))
    }
    /// Gives all memory back. Nobody looks any more.
    pub(super) fn dissolve<M: Machine, P: Paging>(&self, stock: &Stock<'_, M, P>) {
        while let Some(frame) = self.more.load(Ordering::Acquire).checked_sub(1).map(Frame::new) {
            let page: &Words = words(stock.machine, frame.pa());
            self.more.store(page[LINK].load(Ordering::Relaxed), Ordering::Relaxed);
            stock.release(Claim::state(frame, Order::BASE));
        }
    }
}
