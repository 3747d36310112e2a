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

/// See the module's text.
#[derive(Default)]
pub(crate) struct Returned {
    pages: Pile,
    /// Reservations given up, 2 MiB and 1 GiB, and [`SURPLUS`].
    unused: [AtomicU64; 2],
}

impl Returned {
    fn unused(&self, order: Order) -> &AtomicU64 {
        &self.unused[usize::from(order == Order::SIZE_1G)]
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
    /// Gives up reservations of huge pages of `order`, whose area is gone.
    pub(crate) fn unreserve(&self, order: Order, count: u64) {
        self.returned.unused(order).fetch_add(count, Ordering::Relaxed);
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
    /// Notes that surplus pages of `order` are left to be given up.
    pub(crate) fn note_surplus(&self, order: Order) {
        self.returned.unused(order).fetch_or(SURPLUS, Ordering::Release);
    }
}
