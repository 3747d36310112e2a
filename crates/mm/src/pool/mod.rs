//! Pools of huge pages: pages of 2 MiB and 1 GiB that are taken out of the allocator ahead of time
//! and kept for areas that must have that size.
//!
//! ```text
//!                 grow (claim, fold)                    take                      map
//!   allocator ───────────────────────▶ free, on a ───────────────▶ taken ─────────────────▶ in use
//!       ▲                              node's list ◀──────────────                             │
//!       └──────────────────────────────┘   ▲          put back                                 │
//!         shrink (unfold or release)       └── collect ◀── list of the stock ◀── last reference ┘
//! ```
//!
//! # How to use it
//!
//! [`Pools`] is the handle ([`Manager::pools`](crate::Manager::pools)); the face has the same calls
//! by name.
//!
//! | call | what it does |
//! |---|---|
//! | [`Pools::resize`] | makes a pool so large, in batches of [`Pools::BATCH`], within a [`Budget`]; says how far it came |
//! | [`Pools::counters`], [`Pools::counters_on`] | the counts of a pool, of a pool's part on one node |
//! | [`Pools::set_folding`] | whether pages made from now on give their descriptors back (`hugetlb_optimize_vmemmap`) |
//! | `Manager::map` with `Flags::HUGE_2M` or `HUGE_1G` | maps an area of huge pages, and reserves its pages in the pool |
//! | [`Pools::set_overcommit`] | how many pages may be made on demand (*surplus*) |
//! | [`Pools::demote`] | cuts free pages of 1 GiB into pages of 2 MiB |
//! | [`Pools::make_subpool`], [`Pools::end_subpool`] | what the files of a mount may have, and what is kept for them (`subpool`) |
//! | [`Pools::dissolve`] | gives one free page up, so that its memory can be taken away |
//!
//! Under Linux's names and as text all of that is in the crate `foliant-linux`.
//!
//! How many pages share a shootdown is the manager's flush grain, as for everything that folds.
//!
//! **What a page costs.** With folding on, a page is *born folded* where its block has no
//! descriptors, which takes no flush. Where the block has some they are folded, with two shootdowns
//! a batch. A page is given up as it was found: the descriptors of one that was born folded go with
//! it, and one that was folded later is unfolded, with one shootdown a batch either way. Unfolding
//! takes memory. Where there is none the page's descriptors go instead, which takes none: so a pool
//! can always shrink, and no page is ever stuck in it (record 013).
//!
//! **Words.** *Free*: on a list. *In use*: mapped, or taken to be mapped. *Reserved*: meant for an
//! area, not yet taken. *Surplus*: beyond the size that was asked for; given up when it comes back
//! to a node that has any and is not reserved, and whenever reservations go. *Broken*: reported as
//! bad memory, and in no pool any more. Where one frame of it broke alone, it is taken apart when
//! memory is retired next, and all but this frame is free.
//!
//! **Invariants**
//! - L1. Per node and pool: total = free + in use, surplus <= total. Each count is exact whenever
//!   the lock is free.
//! - L2. reserved <= free + pages held for a reservation + pages broken.
//! - L3. A page is put on a list after its descriptors were folded and flushed, and nobody writes
//!   its descriptors while it is in a batch (memmap::H1): all links are made after the batch, in
//!   one cycle of the lock.
//! - L4. A page on a list has no references. It is not broken, but between the mark and the moment
//!   that its reporter gets the lock: so the mark is looked at before a page is listed, and before
//!   it is taken off to be used or given back.
//! - L5. It is not known which reservation a held page is for. An area that goes takes its
//!   reservations back while a fault still prepares the page of one, so *held* may be more than
//!   *reserved* until that page comes back. A page is mapped only where its reservation stands: the
//!   fault looks at its area under the table's lock.
//! - L6. Surplus pages that are needed no more are given up a batch at a time. A call that gives
//!   pages or reservations back goes on until none is left, with preemption points; a fault that
//!   comes meanwhile takes one batch.
//!
//! **Locking.** `lock` of a pool guards its lists and counts; it is held for at most a
//! batch of list steps, and nothing is allocated, cleared, flushed or waited for under it. A caller
//! that resizes, demotes or makes pages on demand holds `resizing` for a batch at a time; a
//! reservation that wants several batches has no preemption point between them. The larger size's
//! comes first. `leaving` is held by a caller that moves a page away from memory and gives that up:
//! of two at once each could get what the other one leaves, for ever. The order is `leaving`, then
//! `resizing`, then `lock`. All are spin locks of `Cpus::relax`. Nothing
//! here is called in a reader's section.
//!
//! **Not here**: areas (`space`), faults (`fault`), which node is near.

mod chain;
mod collect;
mod demote;
mod give;
mod portion;
mod reserve;
mod resize;
mod salvage;
mod shelf;
mod subpool;
#[cfg(all(test, not(loom)))]
mod tests;

pub use collect::NotDissolved;
pub use demote::Demoted;
pub use portion::{SubpoolCounters, SubpoolLimits};
pub use reserve::Shortage;
pub(crate) use reserve::{Ground, Taken};
pub use resize::{Budget, ResizeEnd, Resized};
#[cfg(feature = "verify")]
pub use shelf::PoolAudit;
pub use subpool::{SubpoolError, SubpoolId};

use crate::folio::NODES_MAX;
use crate::memmap::{Form, Memmap};
use crate::stock::{Event, Stock};
use crate::sync::{AtomicU64, Long, Ordering, SpinGuard};
use crate::table::Paging;
use core::{error, fmt};
use foliant_machine::Machine;
use foliant_units::{Node, Order};
use shelf::{Open, Pool};

/// Whether huge pages give the frames of their descriptors back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Folding {
    /// They keep them.
    Off,
    /// They give back all but one.
    On,
}

/// The sizes of huge pages, smallest first.
pub const SIZES: [Order; 2] = [Order::SIZE_2M, Order::SIZE_1G];

/// The counts of a pool, or of its part on one node, under Linux's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolCounters {
    /// Pages, free and in use, surplus included.
    pub nr_hugepages: u64,
    /// Pages that nobody uses.
    pub free_hugepages: u64,
    /// Pages reserved and not yet taken; of the whole pool, also where one node is asked about.
    pub resv_hugepages: u64,
    /// Pages beyond the size that was asked for.
    pub surplus_hugepages: u64,
    /// How many surplus pages may be made; of the whole pool.
    pub nr_overcommit_hugepages: u64,
    /// Pages lost to broken memory so far; of the whole pool.
    pub broken: u64,
}

impl PoolCounters {
    /// The size that was asked for.
    pub const fn persistent(&self) -> u64 {
        self.nr_hugepages.saturating_sub(self.surplus_hugepages)
    }
}

/// Why a pool was not touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PoolError {
    /// There are no huge pages of this size.
    Order(Order),
    /// There is no memory on this node.
    Node(Node),
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolError::Order(order) => {
                write!(f, "there is no pool of {}: huge pages have 2m or 1g", order.bytes())
            }
            PoolError::Node(node) => write!(f, "node {} has no memory", node.0),
        }
    }
}
impl error::Error for PoolError {}

/// What the room keeps.
#[derive(Default)]
pub(crate) struct PoolState {
    folding: AtomicU64,
    size_2m: Pool,
    size_1g: Pool,
    /// Held by a caller that has a page in use leave its memory, until that memory is given up.
    leaving: Long,
}

/// The pools of a manager; see the module's text.
pub struct Pools<'a, 'm, M: Machine, P: Paging> {
    stock: &'a Stock<'m, M, P>,
    memmap: Memmap<'a, 'm, M, P>,
    state: &'a PoolState,
}

impl<M: Machine, P: Paging> Clone for Pools<'_, '_, M, P> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<M: Machine, P: Paging> Copy for Pools<'_, '_, M, P> {}

impl<'a, 'm, M: Machine, P: Paging> Pools<'a, 'm, M, P> {
    /// How many pages are worked on together, at most.
    pub const BATCH: usize = 1024;

    pub(crate) fn new(
        stock: &'a Stock<'m, M, P>,
        memmap: Memmap<'a, 'm, M, P>,
        state: &'a PoolState,
    ) -> Self {
        Pools { stock, memmap, state }
    }

    fn pool(&self, order: Order) -> Result<&'a Pool, PoolError> {
        match order {
            Order::SIZE_2M => Ok(&self.state.size_2m),
            Order::SIZE_1G => Ok(&self.state.size_1g),
            other => Err(PoolError::Order(other)),
        }
    }
    /// Has pages in use leave their memory one at a time.
    pub(crate) fn leave(&self) -> SpinGuard<'a> {
        self.state.leaving.lock(self.stock.machine)
    }
    /// Takes the lock of a pool.
    fn open(&self, pool: &'a Pool) -> Open<'a, 'm, M, P> {
        self.stock.count(Event::PoolLock);
        Open::new(self.stock, pool)
    }
    fn nodes(&self) -> impl Iterator<Item = Node> + use<'a, 'm, M, P> {
        self.stock.folios.nodes()
    }
    fn check_node(&self, node: Node) -> Result<(), PoolError> {
        self.nodes().find(|known| *known == node).map(|_| ()).ok_or(PoolError::Node(node))
    }

    /// Whether pages that are made give their descriptors back.
    pub fn folding(&self) -> Folding {
        if self.state.folding.load(Ordering::Relaxed) == 0 { Folding::Off } else { Folding::On }
    }
    /// Sets that for pages that are made from now on. Those in a pool stay as they are.
    pub fn set_folding(&self, folding: Folding) {
        self.state.folding.store(u64::from(folding == Folding::On), Ordering::Relaxed);
    }
    fn form(&self) -> Form {
        if self.folding() == Folding::On { Form::Folded } else { Form::Dense }
    }

    /// The counts of a pool. A page that came back and was not collected yet counts as in use, and
    /// a reservation that came back counts as reserved until then.
    pub fn counters(&self, order: Order) -> Result<PoolCounters, PoolError> {
        let open = self.open(self.pool(order)?);
        Ok((0..NODES_MAX as u8).map(|node| open.counters_on(Node(node))).fold(
            open.counters_on(Node(NODES_MAX as u8)),
            |sum, part| PoolCounters {
                nr_hugepages: sum.nr_hugepages + part.nr_hugepages,
                free_hugepages: sum.free_hugepages + part.free_hugepages,
                surplus_hugepages: sum.surplus_hugepages + part.surplus_hugepages,
                ..sum
            },
        ))
    }
    /// The counts of a pool's part on one node.
    pub fn counters_on(&self, order: Order, node: Node) -> Result<PoolCounters, PoolError> {
        self.check_node(node)?;
        Ok(self.open(self.pool(order)?).counters_on(node))
    }
    /// How many surplus pages may be made.
    pub fn set_overcommit(&self, order: Order, most: u64) -> Result<(), PoolError> {
        self.open(self.pool(order)?).set_overcommit(most);
        Ok(())
    }
}
