//! What is on its way back to the pools of huge pages: pages whose last reference went, and reservations without an area.
//!
//! References are dropped deep inside an unmap or a fault, where no lock may be taken and nothing may wait, and this room
//! knows no pools. So a page is put on a list that everybody may push to, and the pools take the whole list later:
//!
//! ```text
//!   drop_references ──push──▶ top ─▶ page ─▶ page ─▶ 0        linked through word 2 of the heads
//!                              │ swap with 0
//!                              ▼ the pools, after the operation or before the next one
//! ```
//!
//! **Invariants**
//! - R1. A page on the list is referenced by nobody, was flushed everywhere, and is nobody's but the list's.
//! - R2. Whoever turns the list from empty into not empty counts [`Event::HugeWork`]: there is work from then on.
//!
//! **Locking**: none. Pages are pushed one by one and taken all at once, so that a page that comes back is no danger to a
//! compare-and-exchange that is under way.

use super::{Event, Stock};
use crate::frame::Link;
use crate::sync::{AtomicU64, Ordering};
use crate::table::Paging;
use foliant_machine::{Machine, Owner};
use foliant_units::{Frame, FrameRange, Order};

/// See the module's text.
#[derive(Default)]
pub(crate) struct Returned {
    /// The frame pushed last, with 1 added; 0 for none.
    top: AtomicU64,
    /// Reservations given up, 2 MiB and 1 GiB.
    unused: [AtomicU64; 2],
}

impl Returned {
    fn unused(&self, order: Order) -> &AtomicU64 {
        &self.unused[usize::from(order == Order::GIGA)]
    }
}

impl<'m, M: Machine, P: Paging> Stock<'m, M, P> {
    /// Puts a huge page whose last reference went on the list.
    pub(super) fn hand_back(&self, head: Frame, order: Order) {
        let frames = FrameRange::new(head, order.pages()).expect("a huge page lies in memory");
        self.machine.owned(frames, Owner::Claimed);
        self.count(Event::HugeReturned);
        let mut top = self.returned.top.load(Ordering::Relaxed);
        loop {
            self.set_link(head, Link::Next, top);
            let new = head.get() + 1;
            match self.returned.top.compare_exchange(top, new, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => break,
                Err(now) => top = now,
            }
        }
        if top == 0 {
            self.count(Event::HugeWork); // R2
        }
    }
    /// Gives up reservations of huge pages of `order`, whose area is gone.
    pub(crate) fn unreserve(&self, order: Order, count: u64) {
        self.returned.unused(order).fetch_add(count, Ordering::Relaxed);
    }

    /// Whether there is anything to collect.
    pub(crate) fn has_returned(&self) -> bool {
        self.returned.top.load(Ordering::Relaxed) != 0
            || self.returned.unused.iter().any(|count| count.load(Ordering::Relaxed) != 0)
    }
    /// Takes all pages that came back: the first one, linked as the list was.
    pub(crate) fn take_returned(&self) -> u64 {
        self.returned.top.swap(0, Ordering::Acquire)
    }
    /// Takes the reservations that were given up.
    pub(crate) fn take_unreserved(&self, order: Order) -> u64 {
        self.returned.unused(order).swap(0, Ordering::Relaxed)
    }
}
