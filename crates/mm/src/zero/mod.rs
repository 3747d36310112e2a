//! Clearing memory before anybody else sees it.
//!
//! A huge page is cleared in few large extents, not page by page: the far parts first and the
//! neighbourhood of the touched page last, so that its user finds it warm. What the allocator knows
//! to be zero is not cleared at all.
//!
//! ```text
//!   block, page touched ─▶ plan: extents ─▶ less what is known to be zero ─▶ run: by the clock ─▶ machine
//!                            │ far: cached or not  ◀── pace: rates that this CPU measures ◀── time ─┘
//! ```
//!
//! **Invariants**
//! - Z1. Every byte of a block is cleared exactly once before the block is published, or was known
//!   to be zero.
//! - Z2. What is known to be zero was cleared, and nobody owned it since (`folio::zeros`).
//! - Z3. Without a grain a block takes at most three extents per 2 MiB, besides those that
//!   preemption points cut.
//! - Z4. No stretch is planned to be longer than the budget. A base page is cleared in one go.
//! - Z5. Clearing takes no memory and cannot fail.
//! - Z6. Preemption points are taken for a caller that hands an `Outside` (`crate::sync`) down; no
//!   other clear has any. What is cleared without is small (`is_short`, or a few frames of
//!   records), or cleared once: the 2 MiB of descriptors of a section (`Stock::claim_leaf`), even
//!   in a reader's section, and the records of memory that is taken in (`clear_range`), before
//!   anybody takes of it.
//!
//! **Locking**: none.
//!
//! **Not here**: instructions (`foliant-x86`).

mod ahead;
mod clearing;
mod extent;
mod plan;
mod run;

#[cfg(all(test, not(loom)))]
mod plan_model;
#[cfg(all(test, not(loom)))]
mod tests;

pub use crate::stock::{Pace, Tally};
pub use ahead::{Ahead, Stopped};
pub use clearing::{Clearing, Far, ZeroGrain};
pub use extent::clear_block;
pub use plan::{Extent, Plan, PlanError};

pub(crate) use ahead::clear_ahead;
pub(crate) use extent::{copy_huge, copy_page, copy_yielding, write_page, write_piece};

use crate::frame::{Claim, Touched};
use crate::stock::{SAMPLE, Stock, clear_once};
use crate::sync::Outside;
use crate::table::Paging;
use foliant_machine::{Caching, Clock, Machine, PhysMem};
use foliant_units::{Bytes, Frame, FrameRange, Order};
use run::ClearRun;

/// Whether a block of `order` is cleared in one short go by any caller: without a preemption point,
/// and even in a section.
pub(crate) fn is_short(clearing: &Clearing, order: Order) -> bool {
    let in_one_go = clearing.grain.pages().is_none_or(|grain| grain >= order.pages());
    order < clearing.parts_from && order.bytes() <= SAMPLE && in_one_go
}

/// The same by what is set now, which is asked for where it can matter alone.
pub(crate) fn is_short_now<M: Machine, P: Paging>(stock: &Stock<'_, M, P>, order: Order) -> bool {
    let is_usual = || order == Order::BASE && Clearing::is_usual(stock);
    order.bytes() <= SAMPLE && (is_usual() || is_short(&Clearing::load(stock), order))
}

/// Clears the huge page `block`, which is the caller's. The neighbourhood of the frame `touched`
/// comes last.
pub(crate) fn clear_huge<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    block: (Frame, Order),
    touched: Frame,
    outside: &mut Outside,
) {
    let near = (Some(touched), Some(outside));
    clear_block_of(stock, &Clearing::load(stock), block, near, Touched::No);
}

/// Clears the block with preemption points.
pub(crate) fn clear_yielding<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    claim: &Claim,
    outside: &mut Outside,
) {
    clear_claim(stock, &Clearing::load(stock), claim, (None, Some(outside)));
}

/// Clears the block with preemption points; the neighbourhood of the frame `touched` comes last.
pub(crate) fn clear_around<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    clearing: &Clearing,
    claim: &Claim,
    touched: Frame,
    outside: &mut Outside,
) {
    clear_claim(stock, clearing, claim, (Some(touched), Some(outside)));
}

fn clear_claim<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    clearing: &Clearing,
    claim: &Claim,
    near: (Option<Frame>, Option<&mut Outside>),
) {
    clear_block_of(stock, clearing, (claim.frame(), claim.order()), near, claim.touched());
}

fn clear_block_of<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    clearing: &Clearing,
    block: (Frame, Order),
    near: (Option<Frame>, Option<&mut Outside>),
    touched: Touched,
) {
    let pace = &stock.mine().pace;
    stock.clear_by(block, touched, |unknown| {
        carry_out(stock.machine, pace, clearing, block, near, unknown)
            .expect("a block is aligned, and the page touched lies in it")
    });
}

fn carry_out(
    machine: &(impl PhysMem + Clock),
    pace: &Pace,
    clearing: &Clearing,
    block: (Frame, Order),
    (touched, outside): (Option<Frame>, Option<&mut Outside>),
    unknown: impl Fn(FrameRange) -> Option<FrameRange>,
) -> Result<Tally, PlanError> {
    let (head, order) = block;
    if is_short(clearing, order) {
        let frames = plan::check(block, touched)?;
        return Ok(clear_once(machine, frames, unknown));
    }
    let far = match clearing.far {
        _ if order < clearing.parts_from => Caching::Cached,
        Far::Measured => pace.choose(order, clearing.refetch),
        Far::Cached => Caching::Cached,
        Far::NonTemporal => Caching::NonTemporal,
    };
    let plan = Plan::new((head, order), touched, clearing, far)?;
    let mut run = ClearRun::new(machine, pace, clearing.budget, outside);
    plan.extents().for_each(|extent| run.extent(extent, &unknown));
    let spared = Bytes::new(order.bytes().get() - run.tally.cleared.get());
    Ok(Tally { spared, ..run.tally })
}
