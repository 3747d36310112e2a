#![allow(unsafe_code)]
//! Clearing free memory in idle time, so that a fault finds it zero.
//!
//! Whole free 2 MiB blocks are cleared, one at a time: a block is taken like any other, cleared
//! past the caches as far as the budget goes, and given back with what is zero of it noted. What is
//! noted holds for small blocks that are cut from it later as well. At most one block per idle CPU
//! is out of reach of others meanwhile. Looking for such blocks counts in the budget: the clock is
//! read after every 1 GiB looked at, and the next call goes on where this one ended.
//!
//! **Not here**: when a CPU is idle; the embedder knows.

use super::plan::{Extent, between};
use super::run::ClearRun;
use super::{Clearing, Tally};
use crate::folio::{Class, Sought};
use crate::frame::Claim;
use crate::stock::{Event, SAMPLE, Stock};
use crate::sync::Outside;
use crate::table::Paging;
use foliant_machine::{Caching, Machine, Owner, Refusal};
use foliant_units::{Bytes, FRAME_BYTES, FrameRange, Nanos, Order, Pages};

/// What clearing ahead came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ahead {
    /// Bytes cleared.
    pub cleared: Bytes,
    /// Why it ended.
    pub stopped: Stopped,
}

/// Why clearing ahead ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// Every whole free block is known to be zero.
    Done,
    /// The time is up.
    Budget,
    /// A watcher refused an allocation.
    Refused,
}

/// Clears free blocks for as long as `budget` allows, by the rate measured so far.
pub(crate) fn clear_ahead<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    budget: Nanos,
    outside: &mut Outside,
) -> Ahead {
    let machine = stock.machine;
    let (began, mut cleared) = (machine.now(), 0);
    let stopped = loop {
        let spent = machine.now().0.saturating_sub(began.0);
        let left = Nanos(budget.0.saturating_sub(spent));
        let fits = stock.mine().pace.within(Caching::NonTemporal, left);
        if left.0 == 0 || cleared > 0 && fits < SAMPLE {
            break Stopped::Budget;
        }
        if machine.refusal() == Refusal::Refuse {
            break Stopped::Refused;
        }
        let _work = stock.at_work();
        let frame = match stock.folios.seek_unknown(machine.me(), Class::Movable) {
            Sought::Block(frame) => frame,
            Sought::More => continue, // looking takes time as well
            Sought::Nothing => break Stopped::Done,
        };
        // SAFETY: the allocator handed it out just now.
        let claim = unsafe { Claim::taken(frame, Order::SIZE_2M) };
        machine.owned(claim.frames(), Owner::Claimed);
        if let Some(unknown) = stock.folios.unknown(claim.frames()) {
            let part = first(unknown, fits);
            cleared += clear_part(stock, part, outside).cleared.get();
            stock.folios.declare_zero(part);
        }
        stock.put_back(claim);
    };
    Ahead { cleared: Bytes::new(cleared), stopped }
}

/// The first frames of a range, as many as fill `bytes`.
fn first(frames: FrameRange, bytes: Bytes) -> FrameRange {
    let pages = frames.pages().min(Pages::new(bytes.get() / FRAME_BYTES));
    between(frames.start(), frames.start().add(pages))
}

fn clear_part<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    frames: FrameRange,
    outside: &mut Outside,
) -> Tally {
    let budget = Clearing::load(stock).budget;
    let mut run = ClearRun::new(stock.machine, &stock.mine().pace, budget, Some(outside));
    run.extent(Extent { frames, caching: Caching::NonTemporal }, Some);
    stock.count_clear(&run.tally);
    stock.count_by(Event::AheadBytes, run.tally.cleared.get());
    run.tally
}
