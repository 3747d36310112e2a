//! In which state stretches are, and how many in each, by a look at the page tables.

use super::Memmap;
use crate::stock::{Block, SECTION_BYTES, STRETCH_PAGES};
use crate::table::{Entry, Paging};
use foliant_machine::Machine;
use foliant_units::{FRAME_BYTES, Frame, FrameRange, Level, Order, Pages, Va};

/// Blocks in a section.
const BLOCKS: u64 = SECTION_BYTES.get() / STRETCH_PAGES.bytes().get();

/// How the descriptors of a 2 MiB block are mapped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Described {
    /// Not at all.
    Absent,
    /// By a leaf that the whole section shares.
    Leaf,
    /// By eight entries to eight frames.
    Dense,
    /// As part of a folded huge page.
    Folded,
}

/// 2 MiB blocks by the state of their stretch, and the frames that all of them take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Census {
    /// Without descriptors.
    pub absent: u64,
    /// Mapped by a leaf that the whole section shares.
    pub leaf: u64,
    /// Mapped by eight entries to eight frames.
    pub dense: u64,
    /// Part of a folded huge page.
    pub folded: u64,
    /// Frames of descriptors, shared ones counted once: as many as `nr_memmap_pages` says while
    /// nobody is at work.
    pub frames: Pages,
}

impl<M: Machine, P: Paging> Memmap<'_, '_, M, P> {
    /// Counts the blocks. It reads a few words per 2 MiB of memory, and is exact while nobody is at
    /// work.
    pub fn census(&self) -> Census {
        let shares = [Order::SIZE_2M, Order::SIZE_1G].map(|order| self.state.shares.get(order));
        let frames = Pages::new(shares.iter().flatten().count() as u64);
        let mut census = Census { frames, ..Census::default() };
        // Ranges are in the order they were taken in, and two of them may share a section.
        let mut next = 0;
        let mut upto = Frame::new(0);
        while let Some(range) = self.at_or_after(upto) {
            let first = (Block::of(range.start()).0 / BLOCKS).max(next);
            next = Block::of(Frame::new(range.end().get() - 1)).0 / BLOCKS + 1;
            (first..next).for_each(|section| self.count_section(section, &mut census));
            upto = range.end();
        }
        census
    }

    /// The first range of memory that begins at `frame` or behind it.
    fn at_or_after(&self, frame: Frame) -> Option<FrameRange> {
        let behind = self.stock.folios.ranges().filter(|range| range.start() >= frame);
        behind.min_by_key(|range| range.start())
    }

    /// How the descriptors of the 2 MiB block that holds `frame` are mapped; `None` where that is
    /// no memory of the manager's. The answer takes a look at a few words, and holds for one
    /// moment.
    pub fn described(&self, frame: Frame) -> Option<Described> {
        let block = Block::of(frame);
        self.has_memory(block).then(|| match self.section_leaf(block) {
            true => Described::Leaf,
            false => described(self.own_frames(self.stock.stretch(block).start())),
        })
    }

    fn has_memory(&self, block: Block) -> bool {
        let memory = FrameRange::new(block.first(), Order::SIZE_2M.pages());
        memory.is_some_and(|m| self.stock.folios.ranges().any(|range| range.overlaps(m)))
    }

    /// Whether one leaf maps the stretches of the block's section.
    fn section_leaf(&self, block: Block) -> bool {
        let first = Block(block.0 / BLOCKS * BLOCKS);
        let found = self.stock.kernel.walk(self.stock.stretch(first).start());
        found.level >= Level::SIZE_2M && matches!(found.entry, Entry::Leaf { .. })
    }

    /// Counts the stretches of a section. Its last blocks may be no memory, but their descriptors
    /// are frames too.
    fn count_section(&self, section: u64, census: &mut Census) {
        let leaf = self.section_leaf(Block(section * BLOCKS));
        let mut frames = if leaf { SECTION_BYTES.get() / FRAME_BYTES } else { 0 };
        for block in (section * BLOCKS..(section + 1) * BLOCKS).map(Block) {
            let own = if leaf { None } else { self.own_frames(self.stock.stretch(block).start()) };
            frames += own.unwrap_or(0);
            if !self.has_memory(block) {
                continue;
            }
            match if leaf { Described::Leaf } else { described(own) } {
                Described::Absent => census.absent += 1,
                Described::Leaf => census.leaf += 1,
                Described::Dense => census.dense += 1,
                Described::Folded => census.folded += 1,
            }
        }
        census.frames = Pages::new(census.frames.get() + frames);
    }

    /// How many frames the stretch at `va`, which no leaf maps, has for itself; `None` where
    /// nothing is mapped.
    fn own_frames(&self, va: Va) -> Option<u64> {
        let mut own = 0;
        for page in 0..STRETCH_PAGES.get() {
            match self.stock.kernel.walk(va.add(page * FRAME_BYTES)).entry {
                Entry::Leaf { pa, .. } => own += u64::from(!self.state.shares.has(pa.frame())),
                _ => return None,
            }
        }
        Some(own)
    }
}

/// The state of a stretch that no leaf maps and that has so many frames for itself.
fn described(own: Option<u64>) -> Described {
    match own {
        None => Described::Absent,
        Some(own) if own == STRETCH_PAGES.get() => Described::Dense,
        Some(_) => Described::Folded,
    }
}
