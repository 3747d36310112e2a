//! What is where: exact while nobody allocates or frees, a close picture otherwise.
//!
//! **Invariants**: I1. Nothing here changes anything.
//!
//! **Not here**: running totals. A count that every allocation keeps up to date is a cache line that every CPU wants, so
//! totals are summed when asked for.

use super::bits::Spot;
use super::entry::{FIT_WHOLE, Kind};
use super::index::List;
use super::section::Section;
use super::{Folios, NODES_MAX, State};
use foliant_units::{Frame, FrameRange, Node, Order, Pages};

/// Free blocks by order, each counted once, at the largest size that it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Census {
    free: [u64; Order::COUNT],
}

impl Census {
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
    /// Free frames. Reads one word per 2 MiB of memory, and 16 more where the 2 MiB are partly used.
    pub fn free_frames(&self) -> Pages {
        let free = |section: &Section<'m>| -> u64 {
            (0..section.blocks()).map(|block| u64::from(section.free(block))).sum()
        };
        Pages::new(self.sections.iter().map(|(_, section)| free(section)).sum())
    }
    /// Free blocks of `order` that are not halves of a larger free block.
    pub fn free_blocks(&self, order: Order) -> u64 {
        self.census().blocks(order)
    }
    /// Free blocks of every order. Reads the whole state of every partly used 2 MiB block.
    pub fn census(&self) -> Census {
        let mut census = Census::default();
        self.sections.iter().for_each(|(_, section)| count(section, &mut census.free));
        census
    }
    /// Free 2 MiB blocks, counted no further than `most`: by the lists of whole ones, so the cost is that of the answer.
    pub(crate) fn whole_blocks(&self, most: u64) -> u64 {
        let lists = [List::WHOLE, List::owned(FIT_WHOLE)];
        let listed = |section: &'_ Section<'m>, list: List| {
            let (index, mut from) = (*section.index(), 0);
            core::iter::from_fn(move || {
                let bit = index.next(list, from)?;
                from = bit + 1;
                Some(bit)
            })
        };
        let free = self.sections.iter().flat_map(|(_, section)| {
            let section = *section;
            lists.into_iter().flat_map(move |list| {
                // A hint on a list where the block does not belong is not counted: no block counts twice.
                listed(&section, list).filter(move |bit| {
                    let block = section.blk(*bit);
                    section.load(block).list() == Some(list) && section.is_free(block)
                })
            })
        });
        free.take(usize::try_from(most).unwrap_or(usize::MAX)).count() as u64
    }
    /// What `frame` is at this moment.
    pub fn state(&self, frame: Frame) -> State {
        let Some((_, section)) = self.section_of(frame) else { return State::Foreign };
        let (block, at) = section.locate(frame);
        let entry = section.load(block);
        let held = |head, order| State::Allocated { head, order };
        match entry.kind() {
            Kind::Whole => State::Free,
            Kind::Held => {
                let order = order(entry.order());
                let head = order.head(frame);
                let busy = section.load(section.locate(head).0).kind() == Kind::Busy;
                if busy { State::Free } else { held(head, order) }
            }
            Kind::Small | Kind::Busy => match section.field(block).spot(at) {
                Spot::Free | Spot::Wide { .. } => State::Free,
                Spot::Closed if entry.kind() == Kind::Busy => State::Free,
                Spot::Closed => State::Reserved,
                Spot::Block { head, order: o } => {
                    held(section.frame(block, super::field::Offset(head)), order(o))
                }
            },
        }
    }
    /// The nodes that have memory.
    pub fn nodes(&self) -> impl Iterator<Item = Node> {
        let has = |node: &Node| self.sections.iter().any(|(_, section)| section.node() == *node);
        (0..NODES_MAX as u8).map(Node).filter(has)
    }
    /// The ranges, in the order in which they were taken in; those that touched are one.
    pub fn ranges(&self) -> impl Iterator<Item = FrameRange> {
        self.sections.iter().map(|(_, section)| section.range())
    }
}

fn order(bits: u32) -> Order {
    Order::new(bits as u8).expect("an order in the metadata is at most 18")
}

fn count(section: &Section<'_>, free: &mut [u64; Order::COUNT]) {
    let end = section.bit(section.blocks() - 1) + 1;
    let first = section.bit(0);
    for block in 0..section.blocks() {
        let entry = section.load(block);
        if entry.is_small() {
            section.field(block).count_maximal(free);
        }
    }
    let whole = |bit: usize| section.is_free(section.blk(bit));
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
        free[Order::MEGA.index() + run.trailing_zeros() as usize] += 1;
        bit += run;
    }
}
