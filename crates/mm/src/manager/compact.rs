//! The face of `compact`: the calls that have memory compacted, and those that wait for it.

use super::Manager;
use crate::compact::{
    CompactRequest, Compacted, Compactor, Effort, Fragmentation, Obstacle, Want, fragmentation,
};
use crate::fault::{BlockOffer, Offers, Tried};
use crate::frame::Claim;
use crate::split::{MoveGrain, Shrink};
use crate::stock::Event;
use crate::sync::Outside;
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Order, Pages};

/// Folios that are looked at when a block is not to be had: the pages that were unmapped of them
/// may be all that it takes.
const FIRST: Shrink = Shrink { folios: 64, zeros_max: None };
/// Folios that are looked at when a base page is not to be had.
const RELIEF: Shrink = Shrink { folios: 64, zeros_max: Some(Pages::new(256)) };

impl<'m, M: Machine, P: Paging> Manager<'m, M, P> {
    /// Moves folios together, so that blocks of 2 MiB are free. The first blocks that stay in use
    /// are noted in `obstacles`, as far as there is room; the count of all of them is returned.
    pub fn compact(&self, request: &CompactRequest, obstacles: &mut [Obstacle]) -> Compacted {
        let mut outside = Outside::at_the_face();
        let (done, claim) = self.run_compaction(request, obstacles, &mut outside);
        if let Some(claim) = claim {
            self.stock.put_back(claim);
        }
        done
    }
    fn run_compaction(
        &self,
        request: &CompactRequest,
        obstacles: &mut [Obstacle],
        outside: &mut Outside,
    ) -> (Compacted, Option<Claim>) {
        let begun = self.machine().now();
        let done = self.compactor(request.grain).run(request, obstacles, outside);
        let took = self.machine().now().0.saturating_sub(begun.0);
        self.stock.count_by(Event::CompactNanos, took);
        done
    }
    pub(crate) fn compactor(&self, grain: MoveGrain) -> Compactor<'_, 'm, M, P> {
        Compactor::new(&self.stock, &self.compaction, grain)
    }

    /// Compacts memory if a fault wanted it to be done later; for a task that runs in the
    /// background. `None` where no fault wanted it.
    pub fn compact_background(&self, effort: Effort) -> Option<Compacted> {
        if !self.compaction.take_wish() {
            return None;
        }
        let request = CompactRequest { effort, ..CompactRequest::ALL };
        Some(self.compact(&request, &mut []))
    }

    /// Why a block of `order` is not to be had, if it is not.
    pub fn fragmentation(&self, order: Order) -> Fragmentation {
        fragmentation(&self.free_blocks(), order)
    }

    /// The folios that one flush covers when faults have memory compacted.
    pub fn move_grain(&self) -> MoveGrain {
        self.compaction.grain()
    }
    /// Sets it.
    pub fn set_move_grain(&self, grain: MoveGrain) {
        self.compaction.set_grain(grain);
    }

    /// Has memory compacted for a fault that waits for it, unless that was in vain lately.
    pub(super) fn stall(&self, offers: &Offers, outside: &mut Outside) {
        offers.block.tried.set(Tried::Yes);
        if self.puts_off_compaction() {
            return;
        }
        offers.begin_work(&self.stock);
        self.splitter().shrink(FIRST, outside);
        if let Some(claim) = self.compact_waiting(Effort::FAULT, outside).1 {
            offers.keep_block(&self.stock, claim);
        }
    }
    /// Whether no caller should wait for compaction now, because it was in vain lately.
    pub(super) fn puts_off_compaction(&self) -> bool {
        let is_put_off = self.compaction.is_put_off();
        if is_put_off {
            self.stock.count(Event::CompactDeferred);
        }
        is_put_off
    }
    /// Has memory compacted for a caller that waits for one block.
    pub(super) fn compact_waiting(
        &self,
        effort: Effort,
        outside: &mut Outside,
    ) -> (Compacted, Option<Claim>) {
        self.stock.count(Event::CompactStall);
        let grain = self.compaction.grain();
        let request = CompactRequest { want: Want::One, effort, grain };
        let (done, claim) = self.run_compaction(&request, &mut [], outside);
        self.compaction.learn(done.blocks);
        self.stock.count(match done.blocks {
            0 => Event::CompactFail,
            _ => Event::CompactSuccess,
        });
        (done, claim)
    }
    /// Ends an offer of a block: it goes back if it was not used.
    pub(super) fn withdraw_block(&self, block: &BlockOffer) {
        block.give_back(&self.stock);
        if block.tried.get() == Tried::Later {
            self.compaction.wish();
        }
    }

    /// Looks for memory in folios that are partly unmapped or hold little but zeros, and says
    /// whether there was any.
    pub(super) fn relieve(&self) -> bool {
        self.stock.deferred() > 0 && self.shrink_deferred(RELIEF).pages > 0
    }
}
