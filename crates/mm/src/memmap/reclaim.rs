//! Blocks that hold nothing but their own descriptors, made whole again.
//!
//! A block that was broken when no other memory was left holds the 8 frames that describe it (`stock::describe`). When
//! everything else in it has come back it is free in all but name. Nobody notices at that moment: giving a base page back
//! must not wait for a grace period. Who wants a huge page and finds none looks for such blocks.
//!
//! ```text
//!   reserve the other 504 frames ─▶ Moving ─▶ grace period ─▶ entries cleared ─▶ flush ─▶ Absent ─▶ all 512 are free
//!   one is in use? let go of them
//! ```
//!
//! Whoever gets a frame of the block finds its stretch ready, or absent: while it moves no frame can be had.
//!
//! **Not here**: descriptors of free blocks that lie elsewhere. They are in nobody's way.

use super::Memmap;
use crate::stock::{Block, Event, STRETCH_PAGES, Stretch};
use crate::table::{Entry, Paging};
use foliant_machine::Machine;
use foliant_units::{FRAME_BYTES, Frame, FrameRange, Order, Pages};

/// Blocks that share a flush.
const GROUP: usize = 32;
const FRAMES: usize = STRETCH_PAGES.get() as usize;

/// A block, and the frames of its descriptors, lowest first.
#[derive(Clone, Copy)]
struct Candidate {
    block: Block,
    frames: [Frame; FRAMES],
}

impl Candidate {
    /// The parts of the block between its descriptors.
    fn rest(&self) -> impl Iterator<Item = FrameRange> {
        let first = self.block.first();
        let block = FrameRange::new(first, Order::MEGA.pages()).expect("it is memory");
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
    /// Makes blocks whole that only their own descriptors keep from it, and says how many. Reads a few words per 2 MiB of
    /// memory.
    pub fn reclaim(&self) -> u64 {
        let mut count = 0;
        let mut group = [None; GROUP];
        for range in self.stock.folios.ranges() {
            let first = range.start().get().div_ceil(Order::MEGA.pages().get());
            let end = range.end().get() / Order::MEGA.pages().get();
            for block in (first..end).map(Block) {
                let place = (count % GROUP as u64) as usize;
                group[place] = self.candidate(block).filter(|found| self.hold_rest(found));
                count += u64::from(group[place].is_some());
                if group[place].is_some() && place == GROUP - 1 {
                    self.make_whole(&mut group);
                }
            }
        }
        self.make_whole(&mut group);
        count
    }

    /// The block, if it holds some of its own descriptors.
    fn candidate(&self, block: Block) -> Option<Candidate> {
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

    /// Takes all other frames of the block out of the allocator, or none.
    fn hold_rest(&self, found: &Candidate) -> bool {
        let folios = &self.stock.folios;
        let held = found.rest().take_while(|part| folios.reserve(*part).is_ok()).count();
        let all = held == found.rest().count();
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
            self.stock.count(Event::StretchReleased);
            found.rest().for_each(|part| self.stock.folios.restore(part));
        }
    }
}
