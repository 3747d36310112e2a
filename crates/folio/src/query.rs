//! The state of frames and blocks, and counts of them: exact while nobody allocates or frees, a
//! close picture otherwise.
//!
//! **Invariants**: I1. Nothing here changes an entry, a field or which blocks are on a list. A
//! search of a list may clear hints above words that are empty (index::I2).
//!
//! **Not here**: running totals. A count that every allocation keeps up to date is a cache line
//! that every CPU wants, so totals are summed when asked for.

use super::bits::BitState;
use super::entry::{BlockKind, FIT_WHOLE};
use super::index::List;
use super::region::Region;
use super::{Folios, FrameState, NODES_MAX};
use foliant_units::{Frame, FrameRange, Node, Order, Pages};

/// Free blocks by order, each counted once, at the largest size that it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FreeBlocks {
    free: [u64; Order::COUNT],
}

impl FreeBlocks {
    /// Free blocks of `order` that are not halves of a larger free block.
    pub const fn blocks(&self, order: Order) -> u64 {
        self.free[order.index()]
    }
    /// All free frames.
    pub fn pages(&self) -> Pages {
        Pages::new(Order::all().map(|order| self.blocks(order) * order.pages().get()).sum())
    }
    /// How many free blocks of `order` there are, those within larger ones included.
    pub fn within(&self, order: Order) -> u64 {
        let blocks = |larger: Order| self.blocks(larger) << (larger.get() - order.get());
        Order::all().skip(order.index()).map(blocks).sum()
    }
    /// The largest order of which a block is free, if any is.
    pub fn largest(&self) -> Option<Order> {
        Order::all().rev().find(|order| self.blocks(*order) > 0)
    }
}

impl<'m> Folios<'m> {
    /// Free frames. Reads one word per 2 MiB of memory, and 16 more where the 2 MiB are partly
    /// used.
    pub fn free_frames(&self) -> Pages {
        let free = |region: &Region<'m>| -> u64 {
            (0..region.blocks()).map(|block| u64::from(region.free(block))).sum()
        };
        Pages::new(self.regions.iter().map(|(_, region)| free(region)).sum())
    }
    /// Free blocks of `order` that are not halves of a larger free block.
    pub fn free_blocks(&self, order: Order) -> u64 {
        self.census().blocks(order)
    }
    /// Free blocks of every order. Reads the whole state of every partly used 2 MiB block.
    pub fn census(&self) -> FreeBlocks {
        let mut census = FreeBlocks::default();
        self.regions.iter().for_each(|(_, region)| count(region, &mut census.free));
        census
    }
    /// Free 2 MiB blocks, counted no further than `most`. The lists of whole blocks are counted, so
    /// the cost is that of the answer.
    pub fn whole_blocks(&self, most: u64) -> u64 {
        let lists = [List::WHOLE, List::owned(FIT_WHOLE)];
        let listed = |region: &'_ Region<'m>, list: List| {
            let (index, mut from) = (*region.index(), 0);
            core::iter::from_fn(move || {
                let bit = index.next(list, from)?;
                from = bit + 1;
                Some(bit)
            })
        };
        let free = self.regions.iter().flat_map(|(_, region)| {
            let region = *region;
            lists.into_iter().flat_map(move |list| {
                // A hint on a list where the block does not belong is not counted: no block counts
                // twice.
                listed(&region, list).filter(move |bit| {
                    let block = region.blk(*bit);
                    region.load(block).list() == Some(list) && region.is_free(block)
                })
            })
        });
        free.take(usize::try_from(most).unwrap_or(usize::MAX)).count() as u64
    }
    /// The state of `frame` at this moment.
    pub fn state(&self, frame: Frame) -> FrameState {
        let Some((_, region)) = self.region_of(frame) else { return FrameState::Foreign };
        let (block, at) = region.locate(frame);
        let entry = region.load(block);
        let held = |head, order| FrameState::Allocated { head, order };
        match entry.kind() {
            BlockKind::Whole => FrameState::Free,
            BlockKind::Held => {
                let order = order(entry.order());
                let head = order.head(frame);
                let busy = region.load(region.locate(head).0).kind() == BlockKind::Busy;
                if busy { FrameState::Free } else { held(head, order) }
            }
            BlockKind::Small | BlockKind::Busy => match region.field(block).spot(at) {
                BitState::Free | BitState::Wide { .. } => FrameState::Free,
                BitState::Closed if entry.kind() == BlockKind::Busy => FrameState::Free,
                BitState::Closed => FrameState::Reserved,
                BitState::Block { head, order: o } => {
                    held(region.frame(block, super::field::Offset(head)), order(o))
                }
            },
        }
    }
    /// The nodes that have memory.
    pub fn nodes(&self) -> impl Iterator<Item = Node> {
        let has = |node: &Node| self.regions.iter().any(|(_, region)| region.node() == *node);
        (0..NODES_MAX as u8).map(Node).filter(has)
    }
    /// The ranges, in the order in which they were taken in. Those that were taken in together and
    /// touched are one.
    pub fn ranges(&self) -> impl Iterator<Item = FrameRange> {
        self.regions.iter().map(|(_, region)| region.range())
    }
}

fn order(bits: u32) -> Order {
    Order::new(bits as u8).expect("an order in the metadata is at most 18")
}

fn count(region: &Region<'_>, free: &mut [u64; Order::COUNT]) {
    let end = region.bit(region.blocks() - 1) + 1;
    let first = region.bit(0);
    for block in 0..region.blocks() {
        let entry = region.load(block);
        if entry.is_small() {
            region.field(block).count_maximal(free);
        }
    }
    let whole = |bit: usize| region.is_free(region.blk(bit));
    let mut bit = first;
    while bit < end {
        if !whole(bit) {
            bit += 1;
            continue;
        }
        // The longest aligned run of whole blocks that begins here.
        let mut run = 1;
        while run < 512
            && bit.is_multiple_of(2 * run)
            && bit + 2 * run <= end
            && (bit + run..bit + 2 * run).all(whole)
        {
            run *= 2;
        }
        free[Order::SIZE_2M.index() + run.trailing_zeros() as usize] += 1;
        bit += run;
    }
}
