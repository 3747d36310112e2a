//! The levels of page tables.

use crate::{Bytes, FRAME_BYTES, Order};

/// The level of a page-table entry: 0 maps 4 KiB, 1 maps 2 MiB, 2 maps 1 GiB; each level is 9 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
#[repr(transparent)]
pub struct Level(pub u8);

impl Level {
    /// Entries in a table.
    pub const ENTRIES: usize = 512;
    /// 4 KiB entries.
    pub const BASE: Level = Level(0);
    /// 2 MiB entries.
    pub const SIZE_2M: Level = Level(1);
    /// 1 GiB entries.
    pub const SIZE_1G: Level = Level(2);

    /// The bytes that one entry of this level covers. Levels end at 4 (256 TiB).
    pub const fn span(self) -> Bytes {
        Bytes::new(FRAME_BYTES << (9 * self.0 as u32))
    }
    /// The order of a block that one leaf of this level maps, or `None` above 1 GiB.
    pub const fn order(self) -> Option<Order> {
        Order::new(self.0 * 9)
    }
    /// The level above.
    pub const fn up(self) -> Level {
        Level(self.0 + 1)
    }
    /// The level below, or `None` at the base.
    pub const fn down(self) -> Option<Level> {
        match self.0 {
            0 => None,
            n => Some(Level(n - 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_spans_nine_bits_more_than_the_one_below() {
        assert_eq!(Level::SIZE_2M.span(), Bytes::new(2 << 20));
        assert_eq!(Level::SIZE_1G.order(), Order::new(18));
        assert_eq!(Level(3).order(), None);
        assert_eq!(Level::BASE.down(), None);
    }
}
