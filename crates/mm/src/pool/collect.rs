//! Everything that comes back: pages whose last reference went, reservations that nobody needs any
//! more, broken memory, and memory that is to be taken away.

use super::chain::Chain;
use super::shelf::{Open, Standing};
use super::{PoolError, Pools, SIZES};
use crate::frame::{Flag, Kind};
use crate::memmap::Huge;
use crate::stock::Subpool;
use crate::table::Paging;
use core::{error, fmt};
use foliant_machine::Machine;
use foliant_units::{Frame, Order};

/// Why a page was not given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotDissolved {
    /// No huge page of a pool is there.
    NotHuge(Frame),
    /// The huge page is in use.
    Busy(Frame),
    /// It is free, but every free page of the pool is reserved for somebody.
    Reserved(Frame),
    /// Its memory was reported broken: it is in no pool any more, and never used again.
    Broken(Frame),
}

impl fmt::Display for NotDissolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotDissolved::NotHuge(frame) => write!(f, "{frame} is in no huge page of a pool"),
            NotDissolved::Busy(head) => {
                write!(f, "the huge page at {head} is in use: unmap it first")
            }
            NotDissolved::Reserved(head) => {
                write!(f, "the huge page at {head} is reserved: make the pool larger first")
            }
            NotDissolved::Broken(head) => {
                write!(f, "the memory of the huge page at {head} is broken: it goes back to nobody")
            }
        }
    }
}
impl error::Error for NotDissolved {}

/// Pages that a subpool was charged with.
pub(super) struct Charged {
    pub(super) pages: u64,
    /// Those of them that are reserved by now.
    pub(super) reserved: u64,
}

impl<'a, 'm, M: Machine, P: Paging> Pools<'a, 'm, M, P> {
    /// Takes in the pages and reservations that came back since the last time, and gives up one
    /// batch of each size of the surplus that is not needed any more (L6); says whether more is
    /// left, or came meanwhile. It is cheap where nothing came.
    #[inline]
    pub fn collect(&self) -> bool {
        self.stock.has_returned() && self.collect_returned()
    }
    #[inline(never)]
    fn collect_returned(&self) -> bool {
        let _work = self.stock.at_work();
        let mut returned = Chain::adopt(self.stock, self.stock.take_returned());
        while let Some(first) = returned.pop(self.stock) {
            self.collect_some(first, &mut returned);
        }
        for order in SIZES {
            if let Some(count) = self.stock.take_unreserved(order) {
                let of_subpools = self.stock.take_unreserved_of(order);
                of_subpools.for_each(|(of, count)| self.unreserve(order, of, count));
                self.unreserve(order, Subpool::NONE, count);
            }
        }
        self.stock.has_returned()
    }
    /// Takes in pages of the same size as `first`, at most a batch, in one lock cycle.
    fn collect_some(&self, first: Huge, returned: &mut Chain) {
        let order = first.order();
        let open = self.open(self.pool(order).expect("a huge page has a pool"));
        let mut next = Some(first);
        for _ in 0..Self::BATCH {
            match next {
                Some(huge) if huge.order() == order => {
                    if self.come_back(&open, huge) {
                        self.stock.note_surplus(order);
                    }
                }
                _ => break,
            }
            next = returned.pop(self.stock);
        }
        if let Some(huge) = next {
            returned.push(self.stock, huge);
        }
    }
    /// Takes one page back into its pool. Says whether there is one too many by now.
    pub(super) fn come_back(&self, open: &Open<'a, 'm, M, P>, huge: Huge) -> bool {
        open.uncharge_page(huge.head());
        if self.stock.identity(huge.head()).has(Flag::Poisoned) {
            open.count_out(huge.head());
            open.lose(huge);
            return false;
        }
        let too_many = open.is_too_much(huge.head());
        open.shelve(huge);
        too_many
    }
    /// Takes reservations back with which a subpool was charged, and gives up a batch of the
    /// surplus pages that nobody needs any more. Where there may be others, the next that collects
    /// goes on.
    pub(crate) fn unreserve(&self, order: Order, of: Subpool, count: u64) {
        self.give_back(order, of, Charged { pages: count, reserved: count });
    }
    /// The same where not all pages were reserved.
    pub(super) fn give_back(&self, order: Order, of: Subpool, charged: Charged) {
        let pool = self.pool(order).expect("a size of huge pages");
        let superfluous = {
            let open = self.open(pool);
            open.uncharge(of, charged.pages);
            open.unreserve(charged.reserved);
            open.detach(order, Self::BATCH as u64, (None, Standing::Surplus))
        };
        if superfluous.len() == Self::BATCH as u64 {
            self.stock.note_surplus(order);
        }
        self.give_up(superfluous);
    }

    /// Takes a page out of its pool if it is free and its memory was reported broken. It is never
    /// used again.
    pub(crate) fn retire(&self, frame: Frame) {
        let _reading = self.stock.reading();
        let identity = self.stock.identity(frame);
        if !matches!(identity.kind(), Kind::Huge | Kind::HugeTail) {
            return;
        }
        let (head, order) = (identity.head(frame), identity.order());
        let Ok(pool) = self.pool(order) else { return };
        let open = self.open(pool);
        if self.stock.identity(head).has(Flag::Poisoned)
            && let Some(huge) = open.pick(head, order)
        {
            open.count_out(head);
            open.lose(huge);
        }
    }

    /// Gives the free page that holds `frame` back to the allocator, so that its memory can be
    /// taken away. The pool becomes smaller by it.
    pub fn dissolve(&self, frame: Frame) -> Result<Order, NotDissolved> {
        self.collect();
        let _work = self.stock.at_work();
        let (huge, order) = {
            let _reading = self.stock.reading();
            let identity = self.stock.identity(frame);
            let (head, order) = (identity.head(frame), identity.order());
            let pool = match identity.kind() {
                Kind::Huge | Kind::HugeTail => self.pool(order),
                _ => Err(PoolError::Order(order)),
            };
            let open = self.open(pool.map_err(|_| NotDissolved::NotHuge(frame))?);
            if open.unreserved() == 0 && self.stock.references(head) == 0 {
                return Err(NotDissolved::Reserved(head));
            }
            let huge = open.pick(head, order).ok_or(NotDissolved::Busy(head))?;
            open.count_out(head);
            if open.is_broken(head) {
                open.lose(huge);
                return Err(NotDissolved::Broken(head));
            }
            (huge, order)
        };
        let head = huge.head();
        match self.give_one_up(huge) {
            0 => Ok(order),
            _ => Err(NotDissolved::Broken(head)), // it was reported since the look above
        }
    }
}
