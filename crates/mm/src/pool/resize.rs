//! Making a pool larger and smaller, batch by batch.
//!
//! ```text
//!   larger    surplus pages count as asked for ─▶ claim, in turn over the nodes ─▶ fold ─▶ one lock cycle: counted, listed
//!   smaller   one lock cycle: off the lists, counted out ─▶ give up; what is in use or reserved becomes surplus
//! ```
//!
//! Counts are exact after every batch. So a caller that stops in between, or a request that finds
//! no more memory, leaves a pool of another size than the one asked for, and nothing else. Of two
//! requests at a time the later one goes on; the other one stops.

use super::shelf::{Pool, Standing};
use super::{Folding, PoolError, Pools};
use crate::memmap::{Batch, Huge, MemmapError};
use crate::stock::Event;
use crate::sync::{Ordering, Outside};
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Node, Order};

/// How many pages a call may make or give up; for callers that work a request off in several calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget(pub u64);

impl Budget {
    /// As many as it takes.
    pub const ALL: Budget = Budget(u64::MAX);
}

/// How far a request came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resized {
    /// Pages that there are now on the node or nodes meant; surplus ones are not counted.
    pub reached: u64,
    /// Why it stopped.
    pub end: ResizeEnd,
}

/// Why a request stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResizeEnd {
    /// The pool has the size asked for.
    Reached,
    /// The budget is spent: ask again.
    Budget,
    /// There is no memory for more.
    NoMemory,
    /// Another caller made a request meanwhile.
    Superseded,
}

/// The pages that one call of `make` made.
pub(super) struct Fill {
    pub(super) pages: u64,
    /// Why not more, if memory is the reason.
    pub(super) why: Option<MemmapError>,
}

impl<'a, 'm, M: Machine, P: Paging> Pools<'a, 'm, M, P> {
    /// Makes the pool of `order` have `want` pages, all nodes together, as far as memory and
    /// `budget` go.
    ///
    /// Pages that are in use or reserved cannot be given up: where fewer are wanted they become
    /// surplus, and go when they come back. Others may run after each batch, at a preemption point.
    pub fn resize(&self, order: Order, want: u64, budget: Budget) -> Result<Resized, PoolError> {
        self.resize_to(order, None, want, budget)
    }
    /// [`resize`](Pools::resize) of the part on one node; the others stay as they are.
    pub fn resize_on(
        &self,
        order: Order,
        node: Node,
        want: u64,
        budget: Budget,
    ) -> Result<Resized, PoolError> {
        self.check_node(node)?;
        self.resize_to(order, Some(node), want, budget)
    }

    fn resize_to(
        &self,
        order: Order,
        node: Option<Node>,
        want: u64,
        budget: Budget,
    ) -> Result<Resized, PoolError> {
        let pool = self.pool(order)?;
        let request = pool.requests.fetch_add(1, Ordering::SeqCst) + 1;
        let mut left = budget.0;
        let mut outside = Outside::at_the_face();
        loop {
            let end = {
                let _resizing = pool.resizing.lock(self.stock.machine);
                match pool.requests.load(Ordering::SeqCst) == request {
                    true => self.step(pool, order, (node, want), &mut left),
                    false => Some(ResizeEnd::Superseded),
                }
            };
            if let Some(end) = end {
                return Ok(Resized { reached: self.open(pool).persistent(node), end });
            }
            outside.yield_now(self.stock.machine);
        }
    }

    /// Works off one batch. Says why no other one follows, if none does.
    fn step(
        &self,
        pool: &'a Pool,
        order: Order,
        (node, want): (Option<Node>, u64),
        left: &mut u64,
    ) -> Option<ResizeEnd> {
        let (more, chain) = {
            let open = self.open(pool);
            let have = open.persistent(node);
            let more = want.saturating_sub(have);
            let more = more - open.restate(more, Standing::Persistent, node);
            let less = have.saturating_sub(want);
            let batch = less.min(*left).min(Self::BATCH as u64);
            let chain = open.detach(order, batch, (node, Standing::Persistent));
            if chain.len() < batch {
                // The others are in use or reserved.
                open.restate(less - chain.len(), Standing::Surplus, node);
            }
            (more, chain)
        };
        let given = chain.len();
        if given > 0 {
            self.stock.count(Event::PoolBatch);
            self.give_up(chain);
            *left -= given;
        }
        if more > 0 && *left > 0 {
            let most = more.min(*left).min(Self::BATCH as u64) as usize;
            let fill = self.make(pool, order, node, most, Standing::Persistent);
            *left -= fill.pages;
            if fill.why.is_some() && fill.pages == 0 {
                return Some(ResizeEnd::NoMemory);
            }
            return None;
        }
        let missing = more > 0 || self.open(pool).persistent(node) != want;
        match missing {
            false => Some(ResizeEnd::Reached),
            true if *left == 0 => Some(ResizeEnd::Budget),
            true => None,
        }
    }

    /// Makes up to `most` pages and puts them into the pool; surplus ones are reserved. The caller
    /// holds `resizing`.
    pub(super) fn make(
        &self,
        pool: &'a Pool,
        order: Order,
        node: Option<Node>,
        most: usize,
        standing: Standing,
    ) -> Fill {
        let mut batch = Batch::new(&self.memmap);
        let mut why = None;
        let mut dense = false;
        while batch.len() < most {
            match self.claim_page(pool, order, node) {
                Ok(huge) => {
                    dense |= !self.memmap.is_folded(&huge);
                    if let Err(back) = batch.push(huge) {
                        // There is no memory for a longer list: this one is worked off first.
                        self.give_one_up(back.huge);
                        break;
                    }
                }
                Err(refused) => {
                    why = Some(refused);
                    break;
                }
            }
        }
        if self.folding() == Folding::On && dense {
            self.memmap.fold(&mut batch);
        }
        if batch.len() > 0 {
            self.stock.count(Event::PoolBatch);
        }
        let (open, mut pages) = (self.open(pool), 0);
        while let Some(huge) = batch.pop() {
            pages += u64::from(open.put(huge, standing)); // L3: flushed before, one lock cycle
        }
        if standing == Standing::Surplus {
            open.reserve(pages); // before anybody can take them for superfluous
        }
        Fill { pages, why }
    }

    /// A page of one node, or of the node whose turn it is, or of the next one that has memory.
    pub(super) fn claim_page(
        &self,
        pool: &'a Pool,
        order: Order,
        node: Option<Node>,
    ) -> Result<Huge, MemmapError> {
        if let Some(node) = node {
            return self.memmap.claim_unwritten(Some(node), order, self.form());
        }
        let count = self.nodes().count();
        if count == 1 {
            return self.memmap.claim_unwritten(None, order, self.form());
        }
        let first = pool.next_turn(count);
        let mut refused = MemmapError::NoMemory(order);
        for node in (0..count).filter_map(|n| self.nodes().nth((first + n) % count)) {
            match self.memmap.claim_unwritten(Some(node), order, self.form()) {
                Ok(huge) => return Ok(huge),
                Err(why) => refused = why,
            }
        }
        Err(refused)
    }
}
