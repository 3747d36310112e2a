//! A list of heads that any CPU may push to, from anywhere: no lock is taken and nothing is waited
//! for.
//!
//! ```text
//!   push ──▶ top ─▶ head ─▶ head ─▶ 0        linked through word 2 of the heads
//!             │ swap with 0
//!             ▼ take: all of them
//! ```
//!
//! **Invariants**
//! - P1. Heads are pushed one by one and taken all at once. So a push is safe even if the head that
//!   it read as the top is taken and comes back before its compare-and-exchange: where that
//!   succeeds, the head that it links to is on top of the list, whichever time that is.
//! - P2. A head's link is written before the head can be found, so the CPU that takes the list sees
//!   it.
//!
//! **Locking**: none.

use super::Stock;
use crate::frame::Link;
use crate::sync::{AtomicU64, Ordering};
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::Frame;

/// See the module's text.
///
/// Key: `[a]` atomic.
#[derive(Default)]
pub(crate) struct Pile {
    /// `[a]` the head pushed last, with 1 added; 0 for none.
    top: AtomicU64,
}

/// What a list was before a push.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Before {
    Empty,
    Listed,
}

impl Pile {
    /// Puts `head` on top. It is on no list, and its link is the caller's to write.
    pub(crate) fn push<M: Machine, P: Paging>(
        &self,
        stock: &Stock<'_, M, P>,
        head: Frame,
    ) -> Before {
        let mut top = self.top.load(Ordering::Relaxed);
        loop {
            stock.set_link(head, Link::Next, top); // P2
            let new = head.get() + 1;
            match self.top.compare_exchange(top, new, Ordering::Release, Ordering::Relaxed) {
                Ok(0) => return Before::Empty,
                Ok(_) => return Before::Listed,
                Err(now) => top = now,
            }
        }
    }
    /// Whether there is nothing on it at this moment.
    pub(crate) fn is_empty(&self) -> bool {
        self.top.load(Ordering::Acquire) == 0
    }
    /// Takes all: the head on top with 1 added, linked as the list was; 0 where there was none.
    pub(crate) fn take(&self) -> u64 {
        self.top.swap(0, Ordering::AcqRel)
    }
}
