//! What serves a layout.

use core::alloc::Layout;
use foliant_units::{Bytes, FRAME_BYTES, Order};
use talc::base::CHUNK_UNIT;

/// What a chunk's size and alignment have together at most: an arena of one frame serves it, less a
/// unit of talc's for the tag at its base and one for the chunk's own (H4; the tests try each).
pub(crate) const CHUNK_MAX: usize = FRAME_BYTES as usize - 2 * CHUNK_UNIT;

/// What serves a layout (H2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Serving {
    /// A chunk of an arena.
    Chunk,
    /// A block of its own.
    Block(Order),
    /// Nothing: it is larger than the largest block.
    Nothing,
}

impl Serving {
    /// What serves `layout`.
    pub(crate) fn of(layout: Layout) -> Serving {
        let (size, align) = (layout.size(), layout.align());
        if size.saturating_add(align) <= CHUNK_MAX {
            return Serving::Chunk;
        }
        Order::fitting(Bytes::new(size.max(align) as u64)).map_or(Serving::Nothing, Serving::Block)
    }
}
