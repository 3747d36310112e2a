//! Operations on one 2 MiB block at a time, for a caller that empties blocks to have them whole
//! again.
//!
//! ```text
//!   usage     how much of it is free
//!   isolate   all its free frames are taken, so that nobody moves into a block that is being emptied
//!   alloc_in  a block out of another one, which is filled up meanwhile
//!   join      frames that are all the caller's: they are one block ─▶ or `give_up`: they are free as they were
//! ```
//!
//! **Invariants**
//! - I1. Isolated frames are allocated blocks of order 0 like any others: the field knows no other
//!   kind. So an operation at the same time finds a block that is full, and no frame is in two
//!   hands.
//!
//! **Locking**: none, as everywhere in this room.
//!
//! **Not here**: which block to empty, and where its contents go (`compact`).

use super::bits::{Bits, Phase};
use super::entry::{BlockEntry, BlockKind};
use super::field::{Offset, Pick};
use super::region::Region;
use super::{Class, Folios, Misuse};
use foliant_units::{Frame, Order, Pages};

const SIZE_2M: u32 = Order::SIZE_2M.get() as u32;

/// How much of a 2 MiB block is free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Usage {
    /// It is in none of the ranges.
    Foreign,
    /// All of it.
    Free,
    /// Some of it: so many frames, perhaps none. The others are in blocks smaller than 2 MiB,
    /// reserved, or no memory.
    Partly(Pages),
    /// Nothing: it is in a block of 2 MiB or more, or on its way to or from that.
    Held,
}

/// What came of joining the frames of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Joined {
    /// It is one block.
    Whole,
    /// Another CPU looks at the moment whether the block is all free, since it was: try again.
    Later,
}

impl<'m> Folios<'m> {
    fn block_of(&self, first: Frame) -> Option<(&Region<'m>, usize)> {
        let (_, region) = self.region_of(first)?;
        Some((region, region.locate(first).0))
    }

    /// How much is free of the 2 MiB block that holds `frame`.
    pub fn usage(&self, frame: Frame) -> Usage {
        let Some((region, block)) = self.block_of(frame) else { return Usage::Foreign };
        match region.load(block).kind() {
            BlockKind::Whole => Usage::Free,
            BlockKind::Small if region.is_free(block) => Usage::Free,
            BlockKind::Small => Usage::Partly(Pages::new(region.free(block).into())),
            BlockKind::Held | BlockKind::Busy => Usage::Held,
        }
    }

    /// A block of 2^`order` frames, smaller than 2 MiB, out of the 2 MiB block that holds `frame`,
    /// if that is in use.
    pub fn alloc_in(&self, frame: Frame, order: Order) -> Option<Frame> {
        // A block that a seat prefers may be all free: a request for 2 MiB would take the whole
        // block, and no part of it.
        let (region, block) = self.block_of(frame).filter(|_| order < Order::SIZE_2M)?;
        let at = region.take_here(block, order.get().into())?;
        Some(region.frame(block, at))
    }

    /// Takes all free frames of the block that holds `frame`, if it is partly used.
    pub fn isolate(&self, frame: Frame) -> Pick {
        let Some((region, block)) = self.block_of(frame) else { return Pick::default() };
        region.isolate(block)
    }
    /// Gives frames back that are blocks of order 0 in the 2 MiB block that begins at `first`.
    pub fn give_up(&self, first: Frame, pick: &Pick) -> Result<(), Misuse> {
        let wrong = |at: Offset| self.misuse(first.add(Pages::new(at.0.into())), Order::BASE);
        let Some((region, block)) = self.block_of(first) else { return Err(wrong(Offset(0))) };
        region.give_up(block, pick).map_err(wrong)
    }
    /// Makes one block of `order`, 2 MiB at most, of the blocks of order 0 that begin at `first`,
    /// all the caller's.
    pub fn join(&self, first: Frame, order: Order, class: Class) -> Result<Joined, Misuse> {
        let (_, region) = self.named(first, order)?;
        let (block, at) = region.locate(first);
        let joined = match order < Order::SIZE_2M {
            true => region.field(block).join(order.get().into(), at).map(|()| Joined::Whole),
            false => region.join(block, class),
        };
        joined.ok_or_else(|| self.misuse(first, order))
    }
}

impl<'m> Region<'m> {
    /// A block of 2^`order` frames out of block `blk`, whichever seat prefers that.
    pub(super) fn take_here(&self, blk: usize, order: u32) -> Option<Offset> {
        let at = self.load(blk).offers(order).then(|| self.take(blk, order, 0)).flatten();
        if at.is_none() {
            self.refresh(blk);
        }
        at
    }
    pub(super) fn isolate(&self, blk: usize) -> Pick {
        if !self.load(blk).is_small() {
            return Pick::default();
        }
        let pick = self.field(blk).take_all();
        self.refresh(blk);
        pick
    }
    pub(super) fn give_up(&self, blk: usize, pick: &Pick) -> Result<(), Offset> {
        let done = self.field(blk).give_all(pick);
        self.recheck(blk);
        done
    }
    /// Closes the field of a block whose frames are all allocated one by one, and makes it a held
    /// one. `None` where they are not.
    pub(super) fn join(&self, blk: usize, class: Class) -> Option<Joined> {
        let Some(old) = self.begin(blk, |_| true) else {
            let now = self.load(blk).kind();
            return matches!(now, BlockKind::Busy | BlockKind::Small).then_some(Joined::Later);
        };
        let closed = self.field(blk).close(Bits::full(0));
        if closed {
            self.end(blk, old, BlockEntry::held(SIZE_2M, class, Phase::Complete));
        } else {
            self.resume(blk, old);
            self.recheck(blk);
        }
        closed.then_some(Joined::Whole)
    }
}
