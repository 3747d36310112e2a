//! The ranges of an allocator: an array that only grows, readable while it grows.
//!
//! ```text
//!  count ─┐            adding = 1: one call fills slot [count]
//!         ▼
//!  ┌────┬────┬────┬───
//!  │ s0 │ s1 │ .. │       slots below `count` are filled and never change again
//!  └────┴────┴────┴───
//! ```
//!
//! **Invariants**
//! - I1. A slot below `count` is initialized and is never written again.
//! - I2. A slot from `count` on is touched only by the call that turned `adding` from 0 to 1.
//! - I3. `sorted` names the regions below `count` by their place in memory, except while one is
//!   being added. So the range of a region that is found by it is checked, and where none is found
//!   all are looked at, one by one.
//! - I4. `largest` names a region below `count`, which most frames lie in: it is looked at first.
//!
//! **Locking**: `adding` admits one writer; a second is refused, not kept waiting. `count`
//! publishes (release, acquire).
//!
//! **Not here**: taking a range away; memory does not go yet.

// This is the only file of this room with unsafe code: a slot is written through a shared reference
// before it is published.
#![allow(unsafe_code)]

use super::region::Region;
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use foliant_sync::Ordering::{Acquire, Relaxed, Release};
use foliant_sync::{AtomicU32, AtomicU64};
use foliant_units::{Frame, FrameRange};

/// The most ranges of one allocator.
pub(super) const REGIONS_MAX: usize = 64;

type RegionSlot<'m> = UnsafeCell<MaybeUninit<Region<'m>>>;

pub(super) struct Regions<'m> {
    slots: [RegionSlot<'m>; REGIONS_MAX],
    count: AtomicU64,
    adding: AtomicU32,
    sorted: [AtomicU32; REGIONS_MAX],
    largest: AtomicU32,
}

// SAFETY: regions::I1 and I2: shared slots are read-only, the others have one writer; a `Region`
// itself may be shared.
unsafe impl<'m> Sync for Regions<'m> where Region<'m>: Sync + Send {}

/// Where a frame lies relative to a range.
enum Side {
    Below,
    Inside,
    Above,
}

/// Why a region was not added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotAdded {
    Full,
    Busy,
}

/// The right to add, held by one call at a time.
pub(super) struct Adding<'s, 'm>(&'s Regions<'m>);

impl<'m> Regions<'m> {
    pub(super) fn new() -> Regions<'m> {
        Regions {
            slots: [const { UnsafeCell::new(MaybeUninit::uninit()) }; REGIONS_MAX],
            count: AtomicU64::new(0),
            adding: AtomicU32::new(0),
            sorted: core::array::from_fn(|_| AtomicU32::new(0)),
            largest: AtomicU32::new(0),
        }
    }
    /// How many there are.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count.load(Acquire) as usize
    }
    /// The region `at`, if there is one.
    #[inline]
    pub(super) fn get(&self, at: usize) -> Option<&Region<'m>> {
        self.slots[..self.count()].get(at).map(Self::filled)
    }
    /// All of them, with their numbers.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Region<'m>)> {
        self.slots[..self.count()].iter().map(Self::filled).enumerate()
    }
    /// The region that holds `frame`, with its number: the largest, or found by halving.
    #[inline]
    pub(super) fn holding(&self, frame: Frame) -> Option<(usize, &Region<'m>)> {
        let number = self.largest.load(Relaxed) as usize;
        let largest = self.get(number).filter(|region| region.range().contains(frame));
        largest.map(|region| (number, region)).or_else(|| self.look_up(frame))
    }
    fn look_up(&self, frame: Frame) -> Option<(usize, &Region<'m>)> {
        let halved = self.halve(|range| match () {
            () if frame < range.start() => Side::Below,
            () if frame >= range.end() => Side::Above,
            () => Side::Inside,
        });
        // The frame is in none of them; or a region has just been added, and its number is not yet
        // where it belongs (I3).
        halved.or_else(|| self.iter().find(|(_, region)| region.range().contains(frame)))
    }
    /// Halves the regions by their place in memory, until `side` says that the right one is found.
    #[inline]
    fn halve(&self, mut side: impl FnMut(FrameRange) -> Side) -> Option<(usize, &Region<'m>)> {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = (low + high) / 2;
            let number = self.sorted[middle].load(Relaxed) as usize;
            let region = self.get(number)?;
            match side(region.range()) {
                Side::Inside => return Some((number, region)),
                Side::Below => high = middle,
                Side::Above => low = middle + 1,
            }
        }
        None
    }
    /// The region in a slot below `count`.
    #[inline]
    fn filled<'s>(slot: &'s RegionSlot<'m>) -> &'s Region<'m> {
        // SAFETY: regions::I1: callers take the slot from below `count`, read with acquire; nobody
        // writes it any more.
        let slot = unsafe { &*slot.get() };
        // SAFETY: regions::I1: `push` wrote the slot before it released `count`.
        unsafe { slot.assume_init_ref() }
    }
    /// Begins to add, unless another call does.
    pub(super) fn begin(&self) -> Result<Adding<'_, 'm>, NotAdded> {
        match self.adding.compare_exchange(0, 1, Acquire, Relaxed) {
            Ok(_) => Ok(Adding(self)),
            Err(_) => Err(NotAdded::Busy),
        }
    }
}

impl<'m> Adding<'_, 'm> {
    /// Whether there is no room for another one.
    pub(super) fn is_full(&self) -> bool {
        self.0.count() == REGIONS_MAX
    }
    /// Publishes the region that `make` returns as the next one.
    pub(super) fn push(&self, make: impl FnOnce() -> Region<'m>) -> Result<(), NotAdded> {
        let at = self.0.count();
        let slot = self.0.slots.get(at).ok_or(NotAdded::Full)?;
        let region = make();
        let range = region.range();
        // SAFETY: regions::I2: holding `Adding` makes us the only one at the slot `count`, which
        // nobody reads yet.
        unsafe { (*slot.get()).write(region) };
        self.0.count.store(at as u64 + 1, Release);
        self.sort_in(at, range.start());
        let largest = self.0.get(self.0.largest.load(Relaxed) as usize);
        if largest.is_none_or(|largest| largest.range().pages() < range.pages()) {
            self.0.largest.store(at as u32, Relaxed);
        }
        Ok(())
    }
    /// Puts region `number`, the last so far, where it belongs by its `start`.
    fn sort_in(&self, number: usize, start: Frame) {
        let sorted = &self.0.sorted;
        let mut at = number;
        while at > 0 {
            let before = sorted[at - 1].load(Relaxed);
            let other = self.0.get(before as usize).expect("it was added before (I1)");
            if other.range().start() < start {
                break;
            }
            sorted[at].store(before, Relaxed);
            at -= 1;
        }
        sorted[at].store(number as u32, Relaxed);
    }
}

impl Drop for Adding<'_, '_> {
    fn drop(&mut self) {
        self.0.adding.store(0, Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::model::lend;
    use crate::{CpuCount, Folios, Known};
    use foliant_units::{Node, Pages};
    use std::vec::Vec;

    /// Of 64 ranges, added in any order, that of a frame is found by at most seven looks.
    #[test]
    fn finding_r8_a_range_is_found_by_halving() {
        let part = |n: u64| FrameRange::new(Frame::new(n * 1000), Pages::new(600)).unwrap();
        let order = |n: u64| n * 37 % 64;
        let meta: Vec<_> =
            (0..64).map(|n| lend(Folios::layout_added(part(order(n))).unwrap())).collect();
        let first = [part(order(0))];
        let lent = lend(Folios::layout(&first, CpuCount(1)).unwrap());
        let folios = Folios::new(&first, CpuCount(1), &lent).unwrap();
        for n in 1..64 {
            let added = folios.add(part(order(n)), Node(0), Known::Nothing, &meta[n as usize]);
            added.unwrap();
        }
        for n in 0..64 {
            let frame = Frame::new(order(n) * 1000 + 599);
            let mut looks = 0;
            let found = folios.regions.halve(|range| {
                looks += 1;
                match () {
                    () if frame < range.start() => Side::Below,
                    () if frame >= range.end() => Side::Above,
                    () => Side::Inside,
                }
            });
            assert_eq!(found.map(|(number, _)| number), Some(n as usize));
            assert!(looks <= 7, "{looks} looks");
            assert_eq!(folios.regions.holding(frame).unwrap().1.range(), part(order(n)));
            let behind = Frame::new(order(n) * 1000 + 600);
            assert!(folios.regions.holding(behind).is_none());
        }
    }
}
