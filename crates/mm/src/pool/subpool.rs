//! Subpools: what the files of one mount may take of a pool, and what is kept for them.
//!
//! ```text
//!   make ─▶ charged: by a reservation, by a page that is taken without one
//!           uncharged: by a reservation that is given up, by a page that comes back ─▶ end
//! ```
//!
//! A subpool has no pages of its own. It has a count of those that its objects use or have
//! reserved, private copies of them included, which is at most the *most* of it; and as long as the
//! count is below its *least*, the difference is reserved in the pool for what is charged next.
//! That is what Linux' hugetlbfs has for `size=` and `min_size=`.
//!
//! **Invariants**
//! - B1. *Used* is the reservations of the subpool's areas and objects, and its pages that are
//!   taken, each once: a page that is held for a reservation is counted by that. It is at most
//!   *most*.
//! - B2. Of the pool's reservations `least - used` are the subpool's own, or none where it uses
//!   more.
//! - B3. The head of a page that is taken names the subpool that it counts for, or none. By that
//!   name the page is uncharged where it comes back. One that moves hands it to the page that comes
//!   in its place.
//! - B4. A subpool that ended is none: what is charged to its name afterwards, or uncharged, is not
//!   counted. Its objects go on with what the pool has.
//!
//! **Locking**: the pool's lock guards all of it, but for reservations that are on their way back
//! (`stock::returned`).
//!
//! **Not here**: which object is whose (`object`), mounts.

use super::portion::Portion;
use super::{PoolError, Pools, SubpoolCounters, SubpoolLimits};
use crate::stock::{SUBPOOLS, Subpool};
use crate::table::Paging;
use core::{error, fmt};
use foliant_machine::Machine;
use foliant_units::Order;

/// A subpool, told from every other one that a pool had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubpoolId {
    pub(crate) order: Order,
    pub(crate) name: Subpool,
}

/// Why there is no such subpool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubpoolError {
    /// There are no huge pages of this size.
    Pool(PoolError),
    /// More are to be kept for it than it may have.
    Limits(SubpoolLimits),
    /// The pool has too few pages to keep.
    Pages(super::Shortage),
    /// A pool has no more than so many.
    TooMany(usize),
}

impl fmt::Display for SubpoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SubpoolError::Pool(error) => error.fmt(f),
            SubpoolError::Limits(SubpoolLimits { most, least }) => {
                write!(f, "{least} huge pages are to be kept of {most} at most: keep fewer")
            }
            SubpoolError::Pages(short) => short.fmt(f),
            SubpoolError::TooMany(most) => {
                write!(f, "a pool has {most} subpools at most: end one first")
            }
        }
    }
}
impl error::Error for SubpoolError {}

impl<M: Machine, P: Paging> Pools<'_, '_, M, P> {
    /// Makes a subpool of the pool of `order`, and reserves what is to be kept for it.
    pub fn make_subpool(
        &self,
        order: Order,
        limits: SubpoolLimits,
    ) -> Result<SubpoolId, SubpoolError> {
        let pool = self.pool(order).map_err(SubpoolError::Pool)?;
        if limits.least > limits.most {
            return Err(SubpoolError::Limits(limits));
        }
        self.reserve(order, Subpool::NONE, limits.least).map_err(SubpoolError::Pages)?;
        let made = {
            let open = self.open(pool);
            let free = open.portions().iter().position(|it| !it.is_taken());
            free.map(|nth| {
                let name = self.stock.new_subpool(order, nth);
                open.portions()[nth].begin(name, limits);
                SubpoolId { order, name }
            })
        };
        if made.is_none() {
            self.unreserve(order, Subpool::NONE, limits.least);
        }
        made.ok_or(SubpoolError::TooMany(SUBPOOLS))
    }
    /// Ends a subpool: what was kept for it is anybody's. What its objects have stays theirs. Says
    /// whether there was one.
    pub fn end_subpool(&self, id: SubpoolId) -> bool {
        let pool = self.pool(id.order).expect("a subpool is of a pool");
        let own = {
            let open = self.open(pool);
            let Some(portion) = open.portion(id.name) else { return false };
            portion.end();
            portion.counters().own()
        };
        self.unreserve(id.order, Subpool::NONE, own);
        true
    }
    /// The counts of a subpool, unless it ended.
    pub fn subpool(&self, id: SubpoolId) -> Option<SubpoolCounters> {
        self.collect();
        let pool = self.pool(id.order).expect("a subpool is of a pool");
        self.open(pool).portion(id.name).map(Portion::counters)
    }
}
