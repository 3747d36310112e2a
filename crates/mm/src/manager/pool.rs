//! The pools of huge pages, as the face shows them.

use super::{BootPages, Manager, object};
use crate::compact::CompactRequest;
use crate::fault::{Access, BlockOffer, Defrag, Demand, Need, Offer, Offers, Outcome, Refusal};
use crate::pool::{Budget, Folding, PoolCounters, PoolError, Pools, ResizeEnd, Resized, Taken};
use crate::rmap;
use crate::space::{self, MapError, MapRequest, Pinned, Space, SpaceId, Steps};
use crate::stock::Subpool;
use crate::sync::Outside;
use crate::table::Paging;
use crate::zero::{self, Clearing};
use foliant_machine::Machine;
use foliant_units::{Frame, Order, Pages, Va, VaRange};

/// Whether spaces that were forked from one had a page of its.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Others {
    /// One had, or is at its end and may have.
    Had,
    HadNot,
}

impl<'m, M: Machine, P: Paging> Manager<'m, M, P> {
    /// The pools: everything that can be done with them.
    pub fn pools(&self) -> Pools<'_, 'm, M, P> {
        Pools::new(&self.stock, self.memmap(), &self.pool)
    }
    /// The counts of the pool of `order`, 2 MiB or 1 GiB. Pages and reservations that came back are
    /// collected first, and a batch of surplus pages that are needed no more is given up.
    pub fn pool(&self, order: Order) -> Result<PoolCounters, PoolError> {
        let pools = self.pools();
        pools.collect();
        pools.counters(order)
    }
    /// Makes the pool of `order` have `want` pages, as far as memory and `budget` go. See
    /// [`Pools::resize`]. Where there is no block of 2 MiB left, memory is compacted, unless
    /// [`defrag`](Manager::defrag) is `never`.
    pub fn resize_pool(
        &self,
        order: Order,
        want: u64,
        budget: Budget,
    ) -> Result<Resized, PoolError> {
        self.collect(); // it may need the memory of all that is too much
        let before = self.pools().counters(order)?.nr_hugepages;
        let mut done = self.pools().resize(order, want, budget)?;
        while done.end == ResizeEnd::NoMemory
            && order == Order::SIZE_2M
            && self.defrag() != Defrag::Never
            && self.compact(&CompactRequest::ALL, &mut []).blocks > 0
        {
            let made = done.reached.saturating_sub(before);
            done = self.pools().resize(order, want, Budget(budget.0.saturating_sub(made)))?;
        }
        Ok(done)
    }
    /// Whether huge pages that are made give their descriptors back.
    pub fn folding(&self) -> Folding {
        self.pools().folding()
    }
    /// Sets that for huge pages that are made from now on.
    pub fn set_folding(&self, folding: Folding) {
        self.pools().set_folding(folding);
    }
    /// Pages of 4 KiB in all pools, free or in use.
    pub fn pooled(&self) -> Pages {
        let of = |order: &Order| {
            let pages = self.pool(*order).map_or(0, |pool| pool.nr_hugepages);
            pages * order.pages().get()
        };
        Pages::new(crate::pool::SIZES.iter().map(of).sum())
    }

    /// Takes in all that came back to the pools, batch by batch: for calls that give pages and
    /// reservations back. A fault takes one batch (pool::L6).
    pub(super) fn collect(&self) {
        if !self.pools().collect() {
            return;
        }
        let (_work, mut outside) = (self.stock.at_work(), Outside::at_the_face());
        loop {
            outside.yield_now(self.stock.machine);
            if !self.pools().collect() {
                return;
            }
        }
    }
    /// Takes the page that a space with reservations wants to write to away from all that were
    /// forked from it, and says whether any had it. There is no other page for the space, which was
    /// promised one. Where another thread of its program lets go of the page meanwhile, they lose
    /// it all the same; what they have of other pages by then stays, for the page is kept. The
    /// caller keeps others from looking: to them the page is shared as long as it is kept.
    #[cold]
    pub(super) fn take_from_others(
        &self,
        id: SpaceId,
        demand: Demand<'_>,
        order: Order,
        outside: &mut Outside,
    ) -> Others {
        let Some(space) = id.pin(&self.stock).filter(|_| demand.access == Access::Write) else {
            return Others::HadNot;
        };
        let Some(head) = space::keep_own(&self.stock, &space, demand.va, order) else {
            return Others::HadNot;
        };
        let (mut had, mut ends) = (false, false);
        let members = rmap::family(&self.stock, &space.member);
        for other in members.filter(|other| other.frame() != id.frame()) {
            match Pinned::of(&self.stock, &other) {
                Some(other) => {
                    let steps = &mut Steps::at_the_face();
                    had |= space::take_away(&self.stock, &other, (demand.va, order), head, steps);
                }
                None => ends = true,
            }
        }
        self.stock.drop_unused(head, order.pages().get());
        drop(space);
        if ends && !had {
            // It waits for nobody but readers and those that have it pinned.
            self.stock.machine.relax();
            outside.yield_now(self.stock.machine);
        }
        if had || ends { Others::Had } else { Others::HadNot }
    }
    /// Surplus pages by size, those counted that are on their way back.
    pub(super) fn surplus(&self) -> [u64; 2] {
        let of = |order| self.pools().counters(order).map_or(0, |pool| pool.surplus_hugepages);
        crate::pool::SIZES.map(of)
    }
    /// Gives places of a range whose page was dropped just now a reservation again, area by area,
    /// as long as there were no surplus pages: instead of those a page is given up, and its
    /// reservation was used (space::S7).
    pub(super) fn regain(&self, space: &Space, range: VaRange, surplus: &mut [u64; 2]) {
        for (order, surplus) in crate::pool::SIZES.into_iter().zip(surplus) {
            let (steps, mut left) = (&mut Steps::at_the_face(), range);
            while let Some((part, of, count)) =
                space::dropped(&self.stock, space, (left, order), steps)
            {
                self.collect();
                let free = || self.pools().reserve_free(order, of, count);
                let have = if *surplus == 0 { free() } else { 0 };
                *surplus = surplus.saturating_sub(count);
                let used = space::regain(&self.stock, space, (part, order), have, steps);
                self.pools().unreserve(order, of, have - used);
                left = VaRange::new(part.end(), range.end()).expect("a part of it");
            }
        }
    }
    /// Reserves the pages that an area needs, if it is one that reserves any and there is a place
    /// for it. The place may be gone when the area is put in: the caller takes the reservation back
    /// then.
    #[inline(always)] // most areas reserve none
    pub(super) fn reserve_pages(
        &self,
        space: &Space,
        request: &MapRequest,
        of: Subpool,
    ) -> Result<Option<(Order, u64)>, MapError> {
        let Some(order) = request.flags.reserved() else { return Ok(None) };
        space::has_place(&self.stock, space, request, &mut Steps::at_the_face())?;
        let pages = request.bytes.get().div_ceil(order.bytes().get());
        self.pools().reserve(order, of, pages).map_err(MapError::NoHugePages)?;
        Ok(Some((order, pages)))
    }
    /// Sees to what a fault needs, or says how the fault ends where that is not to be had.
    pub(super) fn supply(
        &self,
        (id, va): (SpaceId, Va),
        need: Need,
        offers: &Offers,
        outside: &mut Outside,
    ) -> Result<(), Outcome> {
        // An offer for another kind of area goes back (fault::E6).
        if !matches!(need, Need::PageZeros(_) | Need::PageContents | Need::Copy | Need::Wait) {
            self.withdraw_page(offers);
        }
        if !matches!(need, Need::BlockZeros(_) | Need::Wait) {
            self.withdraw_block(&offers.block);
        }
        if matches!(need, Need::Clear(..) | Need::Wait) && offers.are_none() {
            offers.end_work(&self.stock); // it waits for others, with nothing in hand
        }
        match need {
            Need::Page(order, source) => {
                offers.begin_work(&self.stock);
                match self.pools().take(order, source) {
                    Taken::Page(huge) => {
                        offers.page.set(Some(Offer::new(huge, source)));
                    }
                    // The fault that holds the page may be clearing it, and yielding
                    // (sync::outside::O3).
                    Taken::Wait => {
                        offers.end_work(&self.stock);
                        self.stock.machine.relax();
                        outside.yield_now(self.stock.machine);
                    }
                    Taken::Nothing => return Err(Outcome::NoHugePage(order)),
                }
            }
            Need::OfObject(at) => {
                let object = offers.object.take().expect("it is asked for with its object");
                // Should it be refused memory, the fault that asks looks once more (fault::E7).
                let ended = self.look(object, Demand::page(at, Access::Write), outside);
                return match object::made(ended) {
                    // It ended, and so did the area: the fault looks again.
                    Err(Outcome::Refused(Refusal::NoSpace)) => Ok(()),
                    Err(Outcome::Refused(_)) => Err(Outcome::Refused(Refusal::Beyond(va))),
                    done => done.inspect(|()| offers.came.set(true)),
                };
            }
            Need::Clear(va, order) => {
                if let Some(space) = id.pin(&self.stock) {
                    space::clear_way(&self.stock, &space, va, order, outside);
                }
            }
            Need::Block(_) => self.stall(offers, outside),
            Need::BlockZeros(touched) => self.clear_block(&offers.block, touched, outside),
            Need::PageZeros(touched) => {
                let mut offer = offers.page.take().expect("zeros are asked for with a page");
                offer.clear(&self.stock, touched, outside);
                offers.page.set(Some(offer));
            }
            Need::PageContents => unreachable!("a fill sees to it"),
            Need::Copy => {
                let mut offer = offers.page.take().expect("a copy is asked for with a page");
                offer.copy(&self.stock, outside);
                offers.page.set(Some(offer));
            }
            Need::Wait => {
                self.stock.machine.relax();
                outside.yield_now(self.stock.machine);
            }
        }
        Ok(())
    }
    /// Clears the block that is kept for a fault.
    fn clear_block(&self, block: &BlockOffer, touched: Frame, outside: &mut Outside) {
        let clearing = Clearing::load(&self.stock);
        block.clear(|claim| {
            zero::clear_around(&self.stock, &clearing, claim, touched, outside);
        });
    }
    /// Ends the offers: a page or a block that was not mapped goes back.
    pub(super) fn withdraw_offers(&self, offers: &Offers) {
        self.withdraw_page(offers);
        self.withdraw_block(&offers.block);
        offers.end_work(&self.stock);
    }
    fn withdraw_page(&self, offers: &Offers) {
        let Some(mut offer) = offers.page.take() else { return };
        offer.forget_original(&self.stock);
        match offer.page {
            Some(huge) => self.pools().put_back(huge, offer.source),
            None if offer.is_lost() => self.pools().lack(offer.order, offer.source),
            None => self.pools().commit(offer.order, offer.source),
        }
    }

    /// Fills the pools from the start, as far as memory goes. The counts say how far that was.
    #[cold]
    // Its batches would weigh on the stack of a caller that builds a manager without pools.
    #[inline(never)]
    pub(super) fn fill_pools(&self, boot: &BootPages) {
        self.set_folding(boot.folding);
        for (order, want) in [(Order::SIZE_1G, boot.size_1g), (Order::SIZE_2M, boot.size_2m)] {
            self.resize_pool(order, want, Budget::ALL).expect("a size of huge pages");
        }
    }
}
