//! Memory of zeros that all programs share: a page, and a block of 2 MiB that is made when a read
//! first wants it.
//!
//! ```text
//!   none ── a fault claims a block ─▶ the face clears it ─▶ the first one is the block of zeros, for good
//!                                                           any other goes back, known to be zero
//! ```
//!
//! **Invariants**
//! - Z1. What is known here holds zeros as long as the manager is there: nobody writes to it,
//!   nobody else gets it, and no descriptor says anything of it, so that no walker of frame numbers
//!   finds a folio there.
//! - Z2. An entry that names a frame of it has `SPECIAL` and no right to write. It is counted
//!   nowhere: no reference stands for it, and no page of its space. For a leaf of the whole block
//!   the space holds a table like for every large leaf (space::S4), and the parts of such a leaf
//!   name the frames of the block.
//!
//! **Locking.** `keeping` is a leaf lock, held for the statement of the owner.
//!
//! **Not here**: which read maps it (`fault`); why it stays for good (record 100).

use super::{Event, Stock};
use crate::frame::Claim;
use crate::sync::{AtomicU64, Ordering, Spin};
use crate::table::Paging;
use foliant_machine::{Machine, Owner};
use foliant_units::{Frame, Order};

/// See the module's text.
///
/// Key: `[l]` changed with `keeping` held.
#[derive(Default)]
pub(crate) struct SharedZeros {
    page: Frame,
    /// The first frame of the block with 1 added, or 0.
    block: AtomicU64, // [l], read at any time
    keeping: Spin,
}

impl SharedZeros {
    /// With this page, and no block yet.
    pub(crate) fn of(page: Frame) -> SharedZeros {
        SharedZeros { page, ..SharedZeros::default() }
    }
    /// The page.
    pub(crate) fn page(&self) -> Frame {
        self.page
    }
    /// The first frame of the block, if there is one.
    pub(crate) fn block(&self) -> Option<Frame> {
        self.block.load(Ordering::Acquire).checked_sub(1).map(Frame::new)
    }
}

impl<M: Machine, P: Paging> Stock<'_, M, P> {
    /// Makes a cleared block of 2 MiB the block of zeros, unless there is one by now; says which
    /// one it is.
    pub(crate) fn keep_zeros(&self, claim: Claim) -> Frame {
        assert_eq!(claim.order(), Order::SIZE_2M, "a leaf maps all of it");
        let held = self.zeros.keeping.lock(self.machine);
        if let Some(block) = self.zeros.block() {
            drop(held);
            self.drop_cleared(claim);
            return block;
        }
        self.machine.owned(claim.frames(), Owner::Zero);
        let (block, _) = claim.into_raw();
        self.zeros.block.store(block.get() + 1, Ordering::Release);
        self.count(Event::ThpZeroPageAlloc);
        block
    }
}
