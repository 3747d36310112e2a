//! Broken pages that nobody has any more: what is sound of them goes back to the allocator.
//!
//! ```text
//!   lost, on the list of its pool ─▶ its descriptors go ─▶ cut: the broken frame stays out, the others are free
//! ```
//!
//! A page of which more than one frame broke stays as it is. Nothing here is done while a report of
//! broken memory is taken in, which may come at any place: it waits for readers.

use super::{Pools, SIZES};
use crate::frame::Claim;
use crate::table::Paging;
use foliant_machine::{Machine, Owner};
use foliant_units::Order;

impl<M: Machine, P: Paging> Pools<'_, '_, M, P> {
    /// Takes all pages apart that were lost.
    pub(crate) fn salvage(&self) {
        for order in SIZES {
            let pool = self.pool(order).expect("a size of huge pages");
            loop {
                let Some(huge) = self.open(pool).pop_lost(order) else { break };
                if let Some((block, nth)) = self.memmap.take_apart(huge) {
                    self.open(pool).count_apart();
                    self.give_back_sound(block, nth);
                }
            }
        }
    }
    /// Gives all frames of a block back but the nth, which is lost.
    fn give_back_sound(&self, block: Claim, nth: u64) {
        let (stock, mut rest, mut nth) = (self.stock, block, nth);
        for into in [Order::SIZE_2M, Order::BASE] {
            if into < rest.order() {
                let mut parts = stock.cut(rest, into);
                rest = parts.part(nth >> into.get()).expect("a part of the block");
                nth &= into.pages().get() - 1;
            }
        }
        // What is known of it is in its descriptor; without one nobody gets it either.
        match stock.describe(rest.frames()) {
            Ok(()) => stock.lose(rest),
            Err(_) => {
                stock.machine.owned(rest.frames(), Owner::Reserved);
                rest.into_raw();
            }
        }
    }
}
