//! What is on its way back to the pools of huge pages: pages whose last reference went, and
//! reservations without an area.
//!
//! References are dropped deep inside an unmap or a fault, where no lock may be taken and nothing
//! may wait, and this room knows no pools. So a page is put on a list that any CPU may push to
//! (`pile`), and the pools take the whole list later, after the operation or before the next one.
//!
//! **Invariants**
//! - R1. A page on the list has no references, was flushed everywhere, and belongs to the list
//!   alone.
//! - R2. The CPU that turns the list from empty into not empty counts [`Event::HugeWork`]: there is
//!   work from then on.
//! - R3. Reservations of a subpool are counted apart as long as its name is the newest with its
//!   number, and with those of no subpool from then on.
//!
//! **Locking**: none.

use super::pile::{Before, Pile};
use super::{Event, Stock};
use crate::sync::{AtomicU64, Ordering};
use crate::table::Paging;
use foliant_machine::{Machine, Owner};
use foliant_units::{Frame, FrameRange, Order};

/// Beside a count of reservations: more surplus pages may be free than are needed.
const SURPLUS: u64 = 1 << 63;

/// How many subpools a pool has.
pub(crate) const SUBPOOLS: usize = 32;
const _: () = assert!(SUBPOOLS < 1 << Subpool::NTH_BITS);

/// The name of a subpool: which of its pool's it is, and a stamp that tells it from those that were
/// there before; or of none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Subpool(u32);

impl Subpool {
    /// What counts for none.
    pub(crate) const NONE: Subpool = Subpool(0);
    const NTH_BITS: u32 = 8;

    pub(crate) const fn from_word(word: u64) -> Subpool {
        Subpool(word as u32)
    }
    pub(crate) const fn word(self) -> u64 {
        self.0 as u64
    }
    /// Which one it is.
    pub(crate) const fn nth(self) -> Option<usize> {
        (self.0 as usize & ((1 << Subpool::NTH_BITS) - 1)).checked_sub(1)
    }
}

/// Reservations of a subpool that were given up: their count, behind its name.
#[derive(Default)]
struct GivenUp(AtomicU64);

impl GivenUp {
    /// Counts more, if it is still that subpool's. Says whether it was.
    fn add(&self, of: Subpool, count: u64) -> bool {
        let more = |word: u64| (Subpool::from_word(word) == of).then(|| word + (count << 32));
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
    /// Takes the count. What comes from now on is of the subpool `next`.
    fn take(&self, next: impl Fn(Subpool) -> Subpool) -> (Subpool, u64) {
        let none = |word| Some(next(Subpool::from_word(word)).word());
        let word = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, none);
        let word = word.expect("any word has a next one");
        (Subpool::from_word(word), word >> 32)
    }
}

/// See the module's text.
#[derive(Default)]
pub(crate) struct Returned {
    pages: Pile,
    /// Reservations given up, 2 MiB and 1 GiB, and [`SURPLUS`].
    unused: [AtomicU64; 2],
    /// Those of subpools, likewise (R3).
    of_subpools: [[GivenUp; SUBPOOLS]; 2],
}

impl Returned {
    fn unused(&self, order: Order) -> &AtomicU64 {
        &self.unused[usize::from(order == Order::SIZE_1G)]
    }
    fn of_subpools(&self, order: Order) -> &[GivenUp; SUBPOOLS] {
        &self.of_subpools[usize::from(order == Order::SIZE_1G)]
    }
}

impl<'m, M: Machine, P: Paging> Stock<'m, M, P> {
    /// Puts a huge page whose last reference went on the list.
    pub(super) fn hand_back(&self, head: Frame, order: Order) {
        let frames = FrameRange::block(head, order);
        self.machine.owned(frames, Owner::Claimed);
        self.count(Event::HugeReturned);
        if self.returned.pages.push(self, head) == Before::Empty {
            self.count(Event::HugeWork); // R2
        }
    }
    /// Gives up reservations of huge pages of `order`, whose area is gone and counted for `of`.
    pub(crate) fn unreserve(&self, order: Order, of: Subpool, count: u64) {
        let unused = self.returned.unused(order);
        let given_up = of.nth().map(|nth| &self.returned.of_subpools(order)[nth]);
        match given_up {
            Some(given_up) if count > 0 && given_up.add(of, count) => {
                unused.fetch_or(SURPLUS, Ordering::Release);
            }
            _ => _ = unused.fetch_add(count, Ordering::Relaxed),
        }
    }

    /// Whether there is anything to collect.
    pub(crate) fn has_returned(&self) -> bool {
        let [small, large] = self.returned.unused.each_ref().map(|one| one.load(Ordering::Acquire));
        !self.returned.pages.is_empty() || small | large != 0
    }
    /// Takes all pages that came back: gives the first one with 1 added, linked as the list was, or
    /// 0.
    pub(crate) fn take_returned(&self) -> u64 {
        self.returned.pages.take()
    }
    /// Takes the reservations that were given up; `None` where there is nothing to see to, neither
    /// reservations nor surplus.
    pub(crate) fn take_unreserved(&self, order: Order) -> Option<u64> {
        let taken = self.returned.unused(order).swap(0, Ordering::AcqRel);
        (taken != 0).then_some(taken & !SURPLUS)
    }
    /// Takes those of one subpool after the other.
    pub(crate) fn take_unreserved_of(
        &self,
        order: Order,
    ) -> impl Iterator<Item = (Subpool, u64)> + use<'_, 'm, M, P> {
        let taken = self.returned.of_subpools(order).iter().map(|it| it.take(|of| of));
        taken.filter(|(_, count)| *count > 0)
    }
    /// A name for the subpool with this number: the next stamp. What was given up of the one before
    /// is nobody's (R3).
    pub(crate) fn new_subpool(&self, order: Order, nth: usize) -> Subpool {
        let given_up = &self.returned.of_subpools(order)[nth];
        let next = |old: Subpool| {
            let stamp = (old.0 >> Subpool::NTH_BITS).wrapping_add(1).max(1);
            Subpool(stamp << Subpool::NTH_BITS | (nth as u32 + 1))
        };
        let (old, count) = given_up.take(next);
        self.returned.unused(order).fetch_add(count, Ordering::Relaxed);
        next(old)
    }
    /// Notes that surplus pages of `order` are left to be given up.
    pub(crate) fn note_surplus(&self, order: Order) {
        self.returned.unused(order).fetch_or(SURPLUS, Ordering::Release);
    }
}
