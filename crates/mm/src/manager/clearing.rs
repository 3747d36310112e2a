//! How memory is cleared, and clearing ahead of time.

use super::Manager;
use crate::stock::NoBlock;
use crate::sync::Outside;
use crate::table::Paging;
use crate::zero::{self, Ahead, Clearing};
use foliant_machine::{Caching, Machine};
use foliant_units::{Frame, Nanos, Order, Pages};

impl<M: Machine, P: Paging> Manager<'_, M, P> {
    /// How memory is cleared.
    pub fn clearing(&self) -> Clearing {
        Clearing::load(&self.stock)
    }
    /// Sets it. Clears at work keep what they saw.
    pub fn set_clearing(&self, clearing: Clearing) {
        clearing.store(&self.stock);
    }
    /// How the calling CPU clears the far part of huge folios where that is measured, going by what
    /// it has measured so far.
    pub fn far_caching(&self) -> Caching {
        self.stock.mine().pace.usual(self.clearing().refetch)
    }

    /// Clears free memory for about `budget`, so that faults find it zero: for a CPU that has
    /// nothing to do. The clearing reaches preemption points meanwhile, with a block in hand that
    /// others may wait for.
    pub fn clear_ahead(&self, budget: Nanos) -> Ahead {
        zero::clear_ahead(&self.stock, budget, &mut Outside::at_the_face())
    }
    /// Free memory that is known to hold zeros.
    pub fn known_zero(&self) -> Pages {
        self.stock.folios.known_zero()
    }

    /// Takes a block for the kernel's own use like [`lend`](Manager::lend), cleared.
    pub fn lend_cleared(&self, order: Order) -> Result<Frame, NoBlock> {
        let _work = self.stock.at_work();
        let claim = self.claim_loan(order)?;
        zero::clear_yielding(&self.stock, &claim, &mut Outside::at_the_face());
        Ok(self.hand_out(claim))
    }
}
