//! Reservations, and pages taken to be mapped.
//!
//! ```text
//!   reserve ──▶ reserved ──take──▶ held ──commit──▶ in use, the reservation used
//!                  │  ▲              └──put back──┐
//!                  │  └──────────────────────────┘
//!                  └──unreserve──▶ the pages are anybody's; surplus ones go
//! ```
//!
//! A reservation stands for an empty entry of an area. Two CPUs may fault on one such entry
//! together. There is one reservation, so the second fault finds none open, and waits until the
//! first one has mapped its page or put it back. Where there is no page without a reservation, or
//! all were lost, a fault is told so: whether to look again is its own affair (fault::E7).

use super::collect::Charged;
use super::shelf::{Open, Pool, Standing};
use super::{Folding, PoolError, Pools};
use crate::memmap::{Batch, Huge};
use crate::stock::Subpool;
use crate::table::Paging;
use core::{error, fmt};
use foliant_machine::Machine;
use foliant_units::Order;

/// Why no pages were reserved. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shortage {
    /// The pool has too few.
    Pages {
        /// The size.
        order: Order,
        /// Pages asked for.
        wanted: u64,
        /// Free pages that nobody reserved.
        available: u64,
    },
    /// The subpool may have no more.
    Subpool {
        /// The size.
        order: Order,
        /// Pages asked for.
        wanted: u64,
        /// Pages that it may still have.
        room: u64,
    },
    /// There is no such pool.
    Pool(PoolError),
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shortage::Pages { order, wanted, available } => write!(
                f,
                "{wanted} huge pages of {} are wanted, {available} are free: raise nr_hugepages or nr_overcommit_hugepages",
                order.bytes()
            ),
            Shortage::Subpool { order, wanted, room } => write!(
                f,
                "{wanted} huge pages of {} are wanted, the mount may have {room} more: give it a larger size",
                order.bytes()
            ),
            Shortage::Pool(error) => error.fmt(f),
        }
    }
}
impl error::Error for Shortage {}

/// The ground on which a page is taken, and the subpool that it is to count for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ground {
    /// A reservation, with which the subpool was charged.
    Reserved(Subpool),
    /// None: the page is one that nobody reserved, or one that is made on demand.
    Unreserved(Subpool),
}

impl Ground {
    /// A page that counts for no subpool.
    pub(crate) const FREE: Ground = Ground::Unreserved(Subpool::NONE);

    fn is_reserved(self) -> bool {
        matches!(self, Ground::Reserved(_))
    }
}

/// What came of taking a page.
pub(crate) enum Taken {
    /// A page, with any contents.
    Page(Huge),
    /// Another fault holds the page of the reservation, the page that was made is broken, or pages
    /// came while others were made: look again.
    Wait,
    /// There is none.
    Nothing,
}

impl<'a, 'm, M: Machine, P: Paging> Pools<'a, 'm, M, P> {
    /// Reserves `count` pages for a subpool or for none: all, or none. Where too few are free,
    /// surplus pages are made, as far as overcommit goes.
    pub(crate) fn reserve(&self, order: Order, of: Subpool, count: u64) -> Result<(), Shortage> {
        self.collect();
        let pool = self.pool(order).map_err(Shortage::Pool)?;
        let short = |available| Shortage::Pages { order, wanted: count, available };
        let mut reserved = {
            let open = self.open(pool);
            let own = open.charge(of, count);
            let own = own.map_err(|room| Shortage::Subpool { order, wanted: count, room })?;
            let at_once = if open.unreserved() >= count { count } else { own };
            open.reserve(at_once);
            if at_once == count {
                return Ok(());
            }
            at_once
        };
        let done = loop {
            let _resizing = pool.resizing.lock(self.stock.machine);
            let missing = {
                let open = self.open(pool);
                let room = open.overcommit().saturating_sub(open.surplus());
                let (free, missing) = (open.unreserved(), count - reserved);
                // Nothing is reserved for a moment only: another call would be refused for it.
                if missing > free.saturating_add(room) {
                    break Err(short(reserved + free));
                }
                let some = free.min(missing);
                open.reserve(some);
                reserved += some;
                missing - some
            };
            if missing == 0 {
                break Ok(());
            }
            let most = missing.min(Self::BATCH as u64) as usize;
            let made = self.make(pool, order, None, most, Standing::Surplus).pages;
            reserved += made;
            if made == 0 {
                break Err(short(reserved));
            }
        };
        if done.is_err() {
            self.give_back(order, of, Charged { pages: count, reserved });
        }
        done
    }

    /// Reserves up to `most` of the pages that are free, as far as the subpool has room; says how
    /// many.
    pub(crate) fn reserve_free(&self, order: Order, of: Subpool, most: u64) -> u64 {
        let open = self.open(self.pool(order).expect("a size of huge pages"));
        let charged = most.min(open.room(of));
        let own = open.charge(of, charged);
        debug_assert!(own.is_ok(), "there was room");
        let count = charged.min(open.unreserved());
        open.reserve(count);
        open.uncharge(of, charged - count);
        count
    }

    /// Takes a page to be mapped.
    pub(crate) fn take(&self, order: Order, ground: Ground) -> Taken {
        self.collect();
        let Ok(pool) = self.pool(order) else { return Taken::Nothing };
        let open = self.open(pool);
        open.lose_broken(order);
        match ground {
            Ground::Reserved(_) if !open.may_hold() => Taken::Wait,
            Ground::Reserved(of) => {
                let Some(huge) = open.pop_any(order) else { return Taken::Nothing };
                open.hold();
                self.stock.set_subpool(huge.head(), of);
                Taken::Page(huge)
            }
            Ground::Unreserved(of) => match open.charge(of, 1) {
                Ok(_) => self.take_unreserved(open, pool, order, of, Open::overcommit),
                Err(_) => Taken::Nothing,
            },
        }
    }
    /// Takes a page that comes in the place of another one, whose subpool is charged already: where
    /// none is free one is made, however many may be.
    pub(crate) fn take_to_replace(&self, order: Order) -> Taken {
        self.collect();
        let Ok(pool) = self.pool(order) else { return Taken::Nothing };
        let open = self.open(pool);
        open.lose_broken(order);
        self.take_unreserved(open, pool, order, Subpool::NONE, |_| u64::MAX)
    }
    /// Takes a page that nobody reserved, or makes one where there are fewer surplus ones than
    /// `most`, for a subpool that was charged with it while the pool was open.
    fn take_unreserved(
        &self,
        open: Open<'a, 'm, M, P>,
        pool: &'a Pool,
        order: Order,
        of: Subpool,
        most: impl Fn(&Open<'a, 'm, M, P>) -> u64,
    ) -> Taken {
        if open.unreserved() > 0
            && let Some(huge) = open.pop_any(order)
        {
            self.stock.set_subpool(huge.head(), of);
            return Taken::Page(huge);
        }
        let may_make = open.unreserved() == 0 && open.surplus() < most(&open);
        drop(open);
        let taken = if may_make { self.make_one(pool, order, most) } else { Taken::Nothing };
        match &taken {
            Taken::Page(huge) => self.stock.set_subpool(huge.head(), of),
            Taken::Wait | Taken::Nothing if of == Subpool::NONE => {}
            Taken::Wait | Taken::Nothing => self.open(pool).uncharge(of, 1),
        }
        taken
    }
    /// Makes a surplus page, where there are fewer than `most`.
    fn make_one(
        &self,
        pool: &'a Pool,
        order: Order,
        most: impl Fn(&Open<'a, 'm, M, P>) -> u64,
    ) -> Taken {
        let _resizing = pool.resizing.lock(self.stock.machine);
        let room = {
            let open = self.open(pool);
            if open.unreserved() > 0 {
                return Taken::Wait; // the one that had the lock brought some: begin anew
            }
            open.surplus() < most(&open)
        };
        let page = if room { self.claim_page(pool, order, None).ok() } else { None };
        let Some(huge) = page else { return Taken::Nothing };
        let huge = self.fold_one(huge);
        let open = self.open(pool);
        if open.is_broken(huge.head()) {
            open.lose(huge); // its memory was reported broken on its way here (L4)
            return Taken::Wait;
        }
        open.count_in(huge.head(), Standing::Surplus);
        Taken::Page(huge)
    }
    /// Folds a page that was not born so, where folding is on.
    fn fold_one(&self, huge: Huge) -> Huge {
        if self.folding() == Folding::Off || self.memmap.is_folded(&huge) {
            return huge;
        }
        let mut batch = Batch::new(&self.memmap);
        batch.push(huge).expect("an empty batch takes a page");
        self.memmap.fold(&mut batch);
        batch.pop().expect("it was pushed just now")
    }
    /// Takes a page back that was not mapped.
    pub(crate) fn put_back(&self, huge: Huge, ground: Ground) {
        let order = huge.order();
        let pool = self.pool(order).expect("a huge page has a pool");
        let too_many = {
            let open = self.open(pool);
            if ground.is_reserved() {
                open.unhold();
                self.stock.set_subpool(huge.head(), Subpool::NONE); // the reservation has the charge
            }
            self.come_back(&open, huge)
        };
        if too_many {
            self.unreserve(order, Subpool::NONE, 0); // gives it up
        }
    }
    /// States that a page that was taken broke, and comes back by itself.
    pub(crate) fn lack(&self, order: Order, ground: Ground) {
        if ground.is_reserved() {
            self.open(self.pool(order).expect("a huge page has a pool")).unhold();
        }
    }
    /// States that a page that was taken is mapped.
    pub(crate) fn commit(&self, order: Order, ground: Ground) {
        if ground.is_reserved() {
            let open = self.open(self.pool(order).expect("a huge page has a pool"));
            open.unhold();
            open.unreserve(1);
        }
    }
}
