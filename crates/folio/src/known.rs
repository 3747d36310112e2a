//! Knowledge of free memory: reading it, noting it, and choosing memory of which too little is
//! known.
//!
//! **Invariants**: those of `zeros`. **Not here**: clearing (`crate::zero`).

use super::bits::Phase;
use super::entry::{BlockKind, FRAMES};
use super::field::Offset;
use super::region::Region;
use super::seats::Hinted;
use super::zeros::Known;
use super::{Class, Folios, Misuse};
use foliant_units::{Cpu, Frame, FrameRange, Order, Pages};

const SIZE_2M: u32 = Order::SIZE_2M.get() as u32;

/// How many blocks one call looks at, at most: some ten microseconds.
pub(crate) const LOOK: u64 = 512;

/// The outcome of a search for memory to clear.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sought {
    /// A block, the caller's now.
    Block(Frame),
    /// None so far; there are blocks left to look at.
    More,
    /// None in all of memory.
    Nothing,
}

impl<'m> Folios<'m> {
    /// Notes that `range` holds zeros. The range is the caller's; or it came with zeros from the
    /// machine, and no block of it was handed out yet. Frames that are no memory are passed over.
    pub fn declare_zero(&self, range: FrameRange) {
        self.each_block(range, |region, blk, from, to| region.zeros().note(blk, from, to));
    }
    /// Gives a block back that its owner cleared and did not write to since.
    pub fn free_zeroed(&self, cpu: Cpu, frame: Frame, order: Order) -> Result<(), Misuse> {
        self.free_knowing(cpu, frame, order, Known::Zero)
    }
    /// Free frames that are known to hold zeros. Exact while nobody allocates or frees.
    pub fn known_zero(&self) -> Pages {
        let count = |region: &Region<'m>| -> u64 {
            (0..region.blocks()).map(|blk| u64::from(known_in(region, blk))).sum()
        };
        Pages::new(self.regions.iter().map(|(_, region)| count(region)).sum())
    }

    /// Whether anything was ever known to be zero.
    #[inline]
    pub fn knows_zeros(&self) -> bool {
        self.regions.iter().any(|(_, region)| region.zeros().ever())
    }
    /// The frames of `range`, which is the caller's, from the first to the last that is not known
    /// to be zero. If some of `range` is no memory, all of it counts as unknown.
    pub fn unknown(&self, range: FrameRange) -> Option<FrameRange> {
        let left = u64::from(FRAMES) - range.start().get() % u64::from(FRAMES);
        let region = self.region_of(range.start()).map(|(_, region)| region);
        let Some(region) =
            region.filter(|s| range.pages().get() <= left && range.end() <= s.range().end())
        else {
            return self.unknown_in_parts(range);
        };
        let (blk, from) = region.locate(range.start());
        let to = from.0 + range.pages().get() as u32;
        let (first, last) = region.zeros().unknown(blk, from.0, to)?;
        FrameRange::new(region.frame(blk, Offset(first)), Pages::new(u64::from(last - first)))
    }
    /// The same for a range of several blocks, or one that is not all memory.
    #[cold]
    fn unknown_in_parts(&self, range: FrameRange) -> Option<FrameRange> {
        let (mut first, mut end, mut memory) = (range.end(), range.start(), 0);
        self.each_block(range, |region, blk, from, to| {
            memory += u64::from(to - from);
            if let Some((low, high)) = region.zeros().unknown(blk, from, to) {
                first = first.min(region.frame(blk, Offset(low)));
                end = end.max(region.frame(blk, Offset(high - 1)).add(Pages::new(1)));
            }
        });
        if memory < range.pages().get() {
            return Some(range);
        }
        FrameRange::new(first, Pages::new(end.get().checked_sub(first.get())?))
            .filter(|unknown| unknown.pages().get() > 0)
    }
    /// Forgets what is known of `range`, which is the caller's.
    pub fn forget(&self, range: FrameRange) {
        self.each_block(range, |region, blk, from, to| region.zeros().forget(blk, from, to));
    }

    /// Looks for a 2 MiB block, all of it free, of which some frame is not known to be zero, and
    /// takes it. A call looks at a few blocks at most; the next one of this CPU goes on behind
    /// them.
    pub fn seek_unknown(&self, cpu: Cpu, class: Class) -> Sought {
        let Some(seats) = self.seats(cpu) else { return Sought::Nothing };
        let mut at = seats.ahead().unwrap_or(Hinted { region: 0, block: 0, word: 0 });
        for looked in 1..=LOOK {
            let Some(region) = self.regions.get(at.region) else { return Sought::Nothing };
            let (number, block) = (at.region, at.block);
            if block >= region.blocks() {
                at = Hinted { region: (number + 1) % self.regions.count(), block: 0, word: 0 };
                continue;
            }
            at.block += 1;
            if region.is_free(block)
                && region.zeros().unknown(block, 0, FRAMES).is_some()
                && region.claim_free(block, SIZE_2M, class, Phase::Complete)
            {
                // If too little of it is cleared, it is the first to be looked at again.
                seats.set_ahead(Hinted { block, ..at });
                seats.set_vain(0);
                return Sought::Block(region.frame(block, Offset(0)));
            }
            if seats.vain() + looked >= self.round() {
                seats.set_ahead(at);
                seats.set_vain(0);
                return Sought::Nothing;
            }
        }
        seats.set_ahead(at);
        seats.set_vain(seats.vain() + LOOK);
        Sought::More
    }
    /// The looks that it takes to visit every block once, and each region's end.
    fn round(&self) -> u64 {
        self.regions.iter().map(|(_, region)| region.blocks() as u64 + 1).sum()
    }

    /// Every part of `range` that lies in one 2 MiB block of memory.
    fn each_block(&self, range: FrameRange, mut visit: impl FnMut(&Region<'m>, usize, u32, u32)) {
        for (_, region) in self.regions.iter() {
            let mine = region.range();
            let (start, end) = (range.start().max(mine.start()), range.end().min(mine.end()));
            let mut at = start;
            while at < end {
                let (blk, from) = region.locate(at);
                let pages = (end.get() - at.get()).min(u64::from(FRAMES - from.0));
                visit(region, blk, from.0, from.0 + pages as u32);
                at = at.add(Pages::new(pages));
            }
        }
    }
}

/// Free frames of a block that are known to be zero.
fn known_in(region: &Region<'_>, blk: usize) -> u32 {
    let known = |n: usize| region.zeros().half(blk, n);
    match region.load(blk).kind() {
        BlockKind::Whole => (0..16).map(|n| known(n).count_ones()).sum(),
        BlockKind::Small => {
            let free = |n| region.field(blk).free(n);
            (0..16).map(|n| (known(n) & free(n)).count_ones()).sum()
        }
        BlockKind::Held | BlockKind::Busy => 0,
    }
}
