//! Blocks that hold nothing but their own descriptors, made whole again.
//!
//! A block that was broken when no other memory was left holds frames that describe it, up to 8
//! (`stock::describe`). When everything else in it has come back, it is free in all but name.
//! Nobody notices at that moment, because giving a base page back must not wait for a grace period.
//! A claimer of a huge page that finds none looks for such blocks. It looks at none while no block
//! holds descriptors of its own (they are counted), and else at [`LOOK`] blocks, behind those that
//! the last claimer looked at. It may hold a pool's lock, so a refusal must not cost as much as
//! there is memory.
//!
//! ```text
//!   reserve the other frames ─▶ look again ─▶ Moving ─▶ grace period ─▶ entries cleared ─▶ flush ─▶ Absent ─▶ all 512 are free
//!   one is in use? let go of them    it is not what it was? let go of them
//! ```
//!
//! Between the first look and the reservation another claimer may have made the block whole, and
//! its descriptors may lie elsewhere by now. With all other frames held nobody else changes the
//! stretch, so the second look counts.
//!
//! A caller that gets a frame of the block finds its stretch ready, or absent. While the stretch
//! moves, the frames of its own descriptors can be had, as soon as their flush is done: their owner
//! waits until it is absent.
//!
//! **Not here**: descriptors of free blocks that lie elsewhere. They are in nobody's way.

use super::Memmap;
use crate::folio::Usage;
use crate::stock::{Block, Event, STRETCH_PAGES, Stretch};
use crate::sync::Outside;
use crate::table::{Entry, Paging};
use core::ops::Range;
use foliant_machine::Machine;
use foliant_units::{FRAME_BYTES, Frame, FrameRange, Order, Pages};

/// Blocks that share a flush.
const GROUP: usize = 32;
/// Blocks that a refused claim looks at: 4 GiB.
pub(super) const LOOK: u64 = 2048;
const FRAMES: usize = STRETCH_PAGES.get() as usize;

/// The result of a look for such blocks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Look {
    /// Blocks looked at.
    pub(super) looked: u64,
    /// Blocks that are whole again.
    pub(super) whole: u64,
}

/// The numbers of the blocks that lie in `range` as a whole.
fn inner(range: FrameRange) -> Range<u64> {
    let (start, end) = (range.start().get(), range.end().get());
    let frames = Order::SIZE_2M.pages().get();
    start.div_ceil(frames)..end / frames
}

/// A block, and the frames of its descriptors, lowest first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Candidate {
    block: Block,
    frames: [Frame; FRAMES],
}

impl Candidate {
    /// The parts of the block between its descriptors.
    fn rest(&self) -> impl Iterator<Item = FrameRange> {
        let first = self.block.first();
        let block = FrameRange::new(first, Order::SIZE_2M.pages()).expect("it is memory");
        let inside = self.frames.iter().copied().filter(move |frame| block.contains(*frame));
        let mut at = first;
        inside.chain([block.end()]).filter_map(move |stop| {
            let part = FrameRange::new(at, Pages::new(stop.get() - at.get()));
            at = stop.add(Pages::new(1));
            part.filter(|part| part.pages().get() > 0)
        })
    }
}

impl<M: Machine, P: Paging> Memmap<'_, '_, M, P> {
    /// Makes all blocks whole that only their own descriptors keep from it, and says how many.
    /// Reads one word per 2 MiB of memory, and 16 more where the 2 MiB are partly used; yields on
    /// the way.
    pub fn reclaim(&self) -> u64 {
        let blocks = self.blocks();
        let (mut whole, mut outside) = (0, Outside::at_the_face());
        for from in (0..blocks).step_by(LOOK as usize) {
            whole += self.reclaim_among(from..blocks.min(from + LOOK));
            outside.yield_now(self.stock.machine);
        }
        whole
    }
    /// Does the same among the next blocks, for a claimer that finds no block.
    pub(super) fn reclaim_some(&self) -> Look {
        let (blocks, stretches) = (self.blocks(), &self.stock.stretches);
        if blocks == 0 || stretches.hosts() == 0 {
            return Look::default();
        }
        let from = stretches.cursor() % blocks;
        let looked = blocks.min(LOOK);
        stretches.set_cursor(from + looked);
        Look { looked, whole: self.reclaim_among(from..from + looked) }
    }
    /// How many 2 MiB blocks lie in memory as a whole.
    fn blocks(&self) -> u64 {
        self.stock.folios.ranges().map(|range| inner(range).count() as u64).sum()
    }
    /// The `nth` of them, counted round and round.
    fn nth_block(&self, nth: u64, blocks: u64) -> Block {
        let mut left = nth % blocks;
        for range in self.stock.folios.ranges() {
            let mut inner = inner(range);
            let count = inner.clone().count() as u64;
            match inner.nth(left as usize).filter(|_| left < count) {
                Some(block) => return Block(block),
                None => left -= count,
            }
        }
        unreachable!("memory does not become less")
    }
    fn reclaim_among(&self, places: Range<u64>) -> u64 {
        let (mut count, mut group) = (0, [None; GROUP]);
        let blocks = self.blocks();
        for nth in places {
            let found = self.candidate(self.nth_block(nth, blocks));
            let Some(found) = found.filter(|found| self.hold_rest(found)) else { continue };
            group[count % GROUP] = Some(found);
            count += 1;
            if count.is_multiple_of(GROUP) {
                self.make_whole(&mut group);
            }
        }
        self.make_whole(&mut group);
        count as u64
    }

    /// The block, if it holds some of its own descriptors, and nothing else as it seems.
    pub(super) fn candidate(&self, block: Block) -> Option<Candidate> {
        // The tables are walked only for such blocks.
        match self.stock.folios.usage(block.first()) {
            Usage::Partly(free)
                if free.get() + STRETCH_PAGES.get() >= Order::SIZE_2M.pages().get() =>
            {
                self.hosting(block)
            }
            _ => None,
        }
    }
    /// The block, if it holds some of its own descriptors.
    fn hosting(&self, block: Block) -> Option<Candidate> {
        if self.stock.stretches.get(block) != Stretch::Ready {
            return None;
        }
        let start = self.stock.stretch(block).start();
        let mut frames = [Frame::default(); FRAMES];
        for (page, frame) in frames.iter_mut().enumerate() {
            let found = self.stock.kernel.walk(start.add(page as u64 * FRAME_BYTES));
            match found.entry {
                Entry::Leaf { pa, .. } if found.level == foliant_units::Level::BASE => {
                    *frame = pa.frame();
                }
                _ => return None,
            }
        }
        frames.sort_unstable();
        let hosted = frames.iter().any(|frame| Block::of(*frame) == block);
        hosted.then_some(Candidate { block, frames })
    }

    /// Takes all other frames of the block out of the allocator, or none; none too where the block
    /// is not any more what was found.
    pub(super) fn hold_rest(&self, found: &Candidate) -> bool {
        let folios = &self.stock.folios;
        let held = found.rest().take_while(|part| folios.reserve(*part).is_ok()).count();
        let all = held == found.rest().count() && self.hosting(found.block) == Some(*found);
        if !all {
            found.rest().take(held).for_each(|part| folios.restore(part));
        }
        all
    }

    fn make_whole(&self, group: &mut [Option<Candidate>; GROUP]) {
        let stretches = &self.stock.stretches;
        if group.iter().all(Option::is_none) {
            return;
        }
        for found in group.iter().flatten() {
            let was = stretches.change(found.block, Stretch::Ready, Stretch::Moving);
            assert!(was, "who holds all frames of a block is the only one to move its stretch");
        }
        self.wait_for_readers();
        let mut gather = self.gather();
        for found in group.iter().flatten() {
            self.rewrite(self.stock.stretch(found.block), &mut gather, || 0);
        }
        self.flush(&mut gather, Event::FlushRelease);
        for found in group.iter_mut().filter_map(Option::take) {
            stretches.change(found.block, Stretch::Moving, Stretch::Absent);
            stretches.unhosted();
            self.stock.count(Event::StretchReleased);
            found.rest().for_each(|part| self.stock.folios.restore(part));
        }
    }
}
