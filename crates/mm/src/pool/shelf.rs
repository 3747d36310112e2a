//! The lists and counts of one pool, and the operations on them while the lock is held.
//!
//! ```text
//!   node ─▶ first ─▶ page ─▶ page ─▶ 0        word 2 of a head: the next one's frame + 1, or 0
//!                                             word 3: 1 for the first, the one before's frame + 2, 0 if on no list
//! ```

use super::PoolCounters;
use super::chain::Chain;
use super::portion::{Portion, add, get, take};
use crate::folio::NODES_MAX;
use crate::frame::{Flag, Kind, Link};
use crate::memmap::Huge;
use crate::stock::{SUBPOOLS, Stock, Subpool};
use crate::sync::{AtomicU64, Long, Ordering, Spin, SpinGuard};
use crate::table::Paging;
use foliant_machine::{Machine, Owner};
use foliant_units::{Frame, Node, Order};

/// The word `Link::Before` of the first page on a list.
const FIRST: u64 = 1;

/// A node's part of a pool.
///
/// Key: `[l]` the pool's `lock` held.
#[derive(Default)]
struct Shelf {
    first: AtomicU64,   // [l] frame + 1 of the first free page, or 0
    free: AtomicU64,    // [l]
    total: AtomicU64,   // [l]
    surplus: AtomicU64, // [l]
}

/// The pages of one size.
///
/// Key: `[l]` `lock` held.
#[derive(Default)]
pub(super) struct Pool {
    lock: Spin,
    /// Held by a caller that resizes or demotes, batch by batch, or that makes pages on demand,
    /// until all of them are made.
    pub(super) resizing: Long,
    /// How many times a size was asked for: the last request goes on.
    pub(super) requests: AtomicU64,
    shelves: [Shelf; NODES_MAX],
    reserved: AtomicU64,    // [l]
    held: AtomicU64,        // [l] taken for some reservation, neither mapped nor put back yet
    overcommit: AtomicU64,  // [l]
    broken: AtomicU64,      // [l]
    taken_apart: AtomicU64, // [l] of the broken ones
    lost: AtomicU64,        // [l] frame + 1 of the first broken page that may be taken apart, or 0
    portions: [Portion; SUBPOOLS],
    /// Counts the pages asked for, so that the nodes take turns.
    turn: AtomicU64,
}

impl Pool {
    /// Which of so many nodes is the next one.
    pub(super) fn next_turn(&self, nodes: usize) -> usize {
        (self.turn.fetch_add(1, Ordering::Relaxed) % nodes as u64) as usize
    }
}

/// How a page counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    /// Towards the size that was asked for.
    Persistent,
    /// Beyond it.
    Surplus,
}

/// A pool with its lock held.
pub(super) struct Open<'a, 'm, M, P> {
    stock: &'a Stock<'m, M, P>,
    pool: &'a Pool,
    _held: SpinGuard<'a>,
}

impl<'a, 'm, M: Machine, P: Paging> Open<'a, 'm, M, P> {
    pub(super) fn new(stock: &'a Stock<'m, M, P>, pool: &'a Pool) -> Self {
        Open { stock, pool, _held: pool.lock.lock(stock.machine) }
    }
    pub(super) fn portions(&self) -> &'a [Portion; SUBPOOLS] {
        &self.pool.portions
    }
    /// A subpool that has not ended.
    pub(super) fn portion(&self, of: Subpool) -> Option<&'a Portion> {
        self.portions().get(of.nth()?).filter(|portion| portion.is(of))
    }
    fn node_of(&self, head: Frame) -> Node {
        self.stock.folios.node_of(head).expect("a huge page lies in memory")
    }
    fn shelf(&self, node: Node) -> &'a Shelf {
        &self.pool.shelves[node.0 as usize]
    }

    pub(super) fn counters_on(&self, node: Node) -> PoolCounters {
        let of = |count: fn(&Shelf) -> &AtomicU64| {
            self.pool.shelves.get(node.0 as usize).map_or(0, |shelf| get(count(shelf)))
        };
        PoolCounters {
            nr_hugepages: of(|shelf| &shelf.total),
            free_hugepages: of(|shelf| &shelf.free),
            surplus_hugepages: of(|shelf| &shelf.surplus),
            resv_hugepages: get(&self.pool.reserved),
            nr_overcommit_hugepages: get(&self.pool.overcommit),
            broken: get(&self.pool.broken),
        }
    }
    fn sum(&self, count: fn(&Shelf) -> &AtomicU64) -> u64 {
        self.pool.shelves.iter().map(|shelf| get(count(shelf))).sum()
    }
    pub(super) fn free(&self) -> u64 {
        self.sum(|shelf| &shelf.free)
    }
    pub(super) fn surplus(&self) -> u64 {
        self.sum(|shelf| &shelf.surplus)
    }
    /// Pages of the size that was asked for, on one node or on all.
    pub(super) fn persistent(&self, node: Option<Node>) -> u64 {
        let of = |shelf: &Shelf| get(&shelf.total) - get(&shelf.surplus);
        match node {
            Some(node) => of(self.shelf(node)),
            None => self.pool.shelves.iter().map(of).sum(),
        }
    }
    /// Reservations that a free page has to serve: those for which no page is held (L5). A held
    /// page whose reservation was taken back serves another one when it comes back, so there may be
    /// more held pages than reservations.
    fn open_reservations(&self) -> u64 {
        get(&self.pool.reserved).saturating_sub(get(&self.pool.held))
    }
    /// Free pages that nobody reserved.
    pub(super) fn unreserved(&self) -> u64 {
        self.free().saturating_sub(self.open_reservations())
    }
    pub(super) fn set_overcommit(&self, most: u64) {
        self.pool.overcommit.store(most, Ordering::Relaxed);
    }
    pub(super) fn overcommit(&self) -> u64 {
        get(&self.pool.overcommit)
    }

    /// Takes a new page into the pool, free, and says whether it did: a page whose memory was
    /// reported broken on its way here was on no list, and is lost (L4).
    pub(super) fn put(&self, huge: Huge, standing: Standing) -> bool {
        if self.is_broken(huge.head()) {
            self.lose(huge);
            return false;
        }
        self.count_in(huge.head(), standing);
        self.shelve(huge);
        true
    }
    /// Counts a new page that is not on a list.
    pub(super) fn count_in(&self, head: Frame, standing: Standing) {
        let shelf = self.shelf(self.node_of(head));
        add(&shelf.total, 1);
        add(&shelf.surplus, u64::from(standing == Standing::Surplus));
    }
    /// Counts out a page that is on no list; as surplus where its node has any.
    pub(super) fn count_out(&self, head: Frame) -> Standing {
        let shelf = self.shelf(self.node_of(head));
        take(&shelf.total, 1);
        if get(&shelf.surplus) == 0 {
            return Standing::Persistent;
        }
        take(&shelf.surplus, 1);
        Standing::Surplus
    }
    /// Whether a page that comes back is to be given up: its node has more pages than were asked
    /// for, and no reservation waits for it.
    pub(super) fn is_too_much(&self, head: Frame) -> bool {
        get(&self.shelf(self.node_of(head)).surplus) > 0 && self.open_reservations() <= self.free()
    }
    /// Puts a page of the pool on its list.
    pub(super) fn shelve(&self, huge: Huge) {
        let (stock, head) = (self.stock, huge.head());
        let shelf = self.shelf(self.node_of(head));
        stock.machine.owned(huge.frames(), Owner::Kept);
        let next = get(&shelf.first);
        stock.set_link(head, Link::Next, next);
        stock.set_link(head, Link::Before, FIRST);
        if let Some(next) = next.checked_sub(1) {
            stock.set_link(Frame::new(next), Link::Before, head.get() + 2);
        }
        shelf.first.store(head.get() + 1, Ordering::Relaxed);
        add(&shelf.free, 1);
    }
    /// Takes a free page off its list.
    fn unshelve(&self, head: Frame, order: Order) -> Huge {
        let stock = self.stock;
        let shelf = self.shelf(self.node_of(head));
        let (next, before) = (stock.link(head, Link::Next), stock.link(head, Link::Before));
        match before.checked_sub(2) {
            Some(before) => stock.set_link(Frame::new(before), Link::Next, next),
            None => {
                assert_eq!(before, FIRST, "{head:?} is on no list");
                shelf.first.store(next, Ordering::Relaxed);
            }
        }
        if let Some(next) = next.checked_sub(1) {
            stock.set_link(Frame::new(next), Link::Before, before);
        }
        stock.set_link(head, Link::Before, 0);
        take(&shelf.free, 1);
        let huge = Huge::from_raw(stock.brand(), head, order);
        stock.machine.owned(huge.frames(), Owner::Claimed);
        huge
    }
    /// Loses the free page that `pop` would give as long as it is one that was reported broken: its
    /// reporter has marked it, and asks for the lock (L4). Says whether any was lost.
    pub(super) fn lose_first(&self, node: Node, order: Order) -> bool {
        let first = || get(&self.shelf(node).first).checked_sub(1).map(Frame::new);
        let mut lost = false;
        while let Some(head) = first().filter(|head| self.is_broken(*head)) {
            let huge = self.unshelve(head, order);
            self.count_out(head);
            self.lose(huge);
            lost = true;
        }
        lost
    }
    /// Loses such pages of all nodes.
    pub(super) fn lose_broken(&self, order: Order) {
        (0..NODES_MAX as u8).for_each(|node| _ = self.lose_first(Node(node), order));
    }
    pub(super) fn is_broken(&self, head: Frame) -> bool {
        self.stock.identity(head).has(Flag::Poisoned)
    }
    /// A free page of a node, off its list.
    pub(super) fn pop(&self, node: Node, order: Order) -> Option<Huge> {
        let head = get(&self.shelf(node).first).checked_sub(1)?;
        Some(self.unshelve(Frame::new(head), order))
    }
    /// A free page of any node, off its list.
    pub(super) fn pop_any(&self, order: Order) -> Option<Huge> {
        (0..NODES_MAX as u8).find_map(|node| self.pop(Node(node), order))
    }
    /// The free page at `head`, off its list, if there is one. The caller is in a reader's section,
    /// in which the descriptor stays mapped.
    pub(super) fn pick(&self, head: Frame, order: Order) -> Option<Huge> {
        let identity = self.stock.identity(head);
        let fits = (identity.kind(), identity.order()) == (Kind::Huge, order);
        (fits && self.is_listed(head, order)).then(|| self.unshelve(head, order))
    }
    /// Whether a huge page is on a list: the page before it, or the shelf, says so. Its own words
    /// may be another holder's.
    fn is_listed(&self, head: Frame, order: Order) -> bool {
        let next = match self.stock.link(head, Link::Before) {
            0 => 0,
            FIRST => get(&self.shelf(self.node_of(head)).first),
            before => {
                let before = Frame::new(before - 2);
                let identity = self.stock.identity(before);
                let huge = (identity.kind(), identity.order()) == (Kind::Huge, order);
                if huge { self.stock.link(before, Link::Next) } else { 0 }
            }
        };
        next == head.get() + 1
    }

    /// Takes up to `count` free pages that nobody reserved out of the pool, node by node in turn,
    /// or from one node.
    pub(super) fn detach(
        &self,
        order: Order,
        count: u64,
        (node, standing): (Option<Node>, Standing),
    ) -> Chain {
        let mut chain = Chain::default();
        let mut most = count.min(self.unreserved());
        let fits = |node: Node| {
            let shelf = self.shelf(node);
            match standing {
                Standing::Surplus => get(&shelf.surplus) > 0,
                Standing::Persistent => get(&shelf.total) > get(&shelf.surplus),
            }
        };
        loop {
            let before = chain.len();
            for turn in
                (0..NODES_MAX as u8).map(Node).filter(|n| node.is_none_or(|node| node == *n))
            {
                let may = |most| chain.len() < most && fits(turn);
                if !may(most) {
                    continue;
                }
                if self.lose_first(turn, order) {
                    most = most.min(chain.len() + self.unreserved());
                    if !may(most) {
                        continue;
                    }
                }
                if let Some(huge) = self.pop(turn, order) {
                    let shelf = self.shelf(turn);
                    take(&shelf.total, 1);
                    take(&shelf.surplus, u64::from(standing == Standing::Surplus));
                    chain.push(self.stock, huge);
                }
            }
            if chain.len() == before {
                break;
            }
        }
        chain
    }
    /// Counts up to `count` pages from one standing to the other; says how many.
    pub(super) fn restate(&self, count: u64, to: Standing, node: Option<Node>) -> u64 {
        let mut left = count;
        for n in (0..NODES_MAX as u8).map(Node).filter(|n| node.is_none_or(|node| node == *n)) {
            let shelf = self.shelf(n);
            match to {
                Standing::Surplus => {
                    let some = left.min(get(&shelf.total) - get(&shelf.surplus));
                    add(&shelf.surplus, some);
                    left -= some;
                }
                Standing::Persistent => {
                    let some = left.min(get(&shelf.surplus));
                    take(&shelf.surplus, some);
                    left -= some;
                }
            }
        }
        count - left
    }

    /// Reserves `count` pages.
    pub(super) fn reserve(&self, count: u64) {
        add(&self.pool.reserved, count);
    }
    /// Takes reservations back.
    pub(super) fn unreserve(&self, count: u64) {
        take(&self.pool.reserved, count);
    }
    /// Whether there is a reservation for which no page is held.
    pub(super) fn may_hold(&self) -> bool {
        self.open_reservations() > 0
    }
    pub(super) fn hold(&self) {
        add(&self.pool.held, 1);
    }
    pub(super) fn unhold(&self) {
        take(&self.pool.held, 1);
    }
    /// Charges a subpool with `count` pages, if it has room for them. What was its own of them is
    /// anybody's then, and is said: the caller reserves or takes as many before it lets go of the
    /// lock. The error is how many it has room for.
    pub(super) fn charge(&self, of: Subpool, count: u64) -> Result<u64, u64> {
        let room = self.room(of);
        if count > room {
            return Err(room);
        }
        let own = self.portion(of).map_or(0, |portion| portion.charge(count));
        self.unreserve(own);
        Ok(own)
    }
    /// How many more pages a subpool may have.
    pub(super) fn room(&self, of: Subpool) -> u64 {
        self.portion(of).map_or(u64::MAX, |portion| portion.counters().room())
    }
    /// Takes a charge back. What is below the least is kept again (subpool::B2).
    pub(super) fn uncharge(&self, of: Subpool, count: u64) {
        self.reserve(self.portion(of).map_or(0, |portion| portion.uncharge(count)));
    }
    /// Uncharges a page that comes back.
    pub(super) fn uncharge_page(&self, head: Frame) {
        self.uncharge(self.stock.subpool_of(head), 1);
    }
    /// Loses a page that is counted no more. It waits to be taken apart.
    pub(super) fn lose(&self, huge: Huge) {
        debug_assert!(self.is_broken(huge.head()));
        self.stock.machine.owned(huge.frames(), Owner::Reserved);
        add(&self.pool.broken, 1);
        self.stock.set_link(huge.head(), Link::Next, get(&self.pool.lost));
        self.pool.lost.store(huge.head().get() + 1, Ordering::Relaxed);
    }
    /// A lost page that waits to be taken apart.
    pub(super) fn pop_lost(&self, order: Order) -> Option<Huge> {
        let head = get(&self.pool.lost).checked_sub(1).map(Frame::new)?;
        self.pool.lost.store(self.stock.link(head, Link::Next), Ordering::Relaxed);
        Some(Huge::from_raw(self.stock.brand(), head, order))
    }
    /// Counts a lost page that was taken apart.
    pub(super) fn count_apart(&self) {
        add(&self.pool.taken_apart, 1);
    }
}

/// The counts of a pool while nobody is at work, for a recount.
#[cfg(feature = "verify")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolAudit {
    /// Its counts.
    pub stated: PoolCounters,
    /// Free pages on the lists, each of which is what it should be.
    pub listed: u64,
    /// Pages taken for a reservation and neither mapped nor put back; none while nobody is at work.
    pub held: u64,
    /// Of those that are broken, the ones of which one frame is lost alone.
    pub taken_apart: u64,
}

#[cfg(feature = "verify")]
impl<'a, 'm, M: Machine, P: Paging> super::Pools<'a, 'm, M, P> {
    /// The counts of a pool, and a recount of its lists.
    pub(crate) fn audit(&self, order: Order) -> Result<PoolAudit, Frame> {
        let stated = self.counters(order).expect("a size of huge pages");
        let pool = self.pool(order).expect("a size of huge pages");
        let open = self.open(pool);
        let mut listed = 0;
        for n in 0..NODES_MAX as u8 {
            let shelf = open.shelf(Node(n));
            let (mut next, mut before) = (get(&shelf.first), FIRST);
            let mut here = 0;
            while let Some(head) = next.checked_sub(1).map(Frame::new) {
                let identity = self.stock.identity(head);
                let right = (identity.kind(), identity.order()) == (Kind::Huge, order)
                    && !identity.has(Flag::Poisoned)
                    && self.stock.references(head) == 0
                    && open.node_of(head) == Node(n)
                    && self.stock.link(head, Link::Before) == before;
                if !right || here >= get(&shelf.total) {
                    return Err(head);
                }
                (before, next) = (head.get() + 2, self.stock.link(head, Link::Next));
                here += 1;
            }
            if here != get(&shelf.free) {
                return Err(Frame::new(get(&shelf.first)));
            }
            listed += here;
        }
        let (held, taken_apart) = (get(&pool.held), get(&pool.taken_apart));
        Ok(PoolAudit { stated, listed, held, taken_apart })
    }
}
