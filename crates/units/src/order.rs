//! The order of a block: log2 of its frames.

use crate::{Bytes, FRAME_BYTES, Frame, Pages};
use core::fmt;

/// A block of 2^order base frames, naturally aligned; 0 is 4 KiB, 9 is 2 MiB, 18 is 1 GiB.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct Order(u8);

impl Order {
    /// 4 KiB.
    pub const BASE: Order = Order(0);
    /// 2 MiB.
    pub const SIZE_2M: Order = Order(9);
    /// 1 GiB, the largest.
    pub const SIZE_1G: Order = Order(18);
    /// How many orders there are.
    pub const COUNT: usize = 19;

    /// Order `n`, or `None` above 18.
    pub const fn new(n: u8) -> Option<Order> {
        if n <= Order::SIZE_1G.0 { Some(Order(n)) } else { None }
    }
    /// The smallest order that holds `bytes`, or `None` above 1 GiB.
    pub const fn fitting(bytes: Bytes) -> Option<Order> {
        let pages = bytes.get().div_ceil(FRAME_BYTES);
        let pages = if pages == 0 { 1 } else { pages };
        if pages > Order::SIZE_1G.pages().get() {
            return None;
        }
        Some(Order(pages.next_power_of_two().trailing_zeros() as u8))
    }
    /// log2 of the frames.
    pub const fn get(self) -> u8 {
        self.0
    }
    /// The order as an index into a per-order table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
    /// Frames in a block.
    pub const fn pages(self) -> Pages {
        Pages::new(1 << self.0)
    }
    /// Bytes in a block.
    pub const fn bytes(self) -> Bytes {
        Bytes::new(FRAME_BYTES << self.0)
    }
    /// The first frame of the block of this order that contains `frame`.
    pub const fn head(self, frame: Frame) -> Frame {
        Frame::new(frame.get() & !(self.pages().get() - 1))
    }
    /// The next smaller order, or `None` at 4 KiB.
    pub const fn down(self) -> Option<Order> {
        match self.0 {
            0 => None,
            n => Some(Order(n - 1)),
        }
    }
    /// All orders, smallest first.
    pub fn all() -> impl DoubleEndedIterator<Item = Order> + ExactSizeIterator {
        (0..=Order::SIZE_1G.0).map(Order)
    }
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "o{}", self.0)
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fitting_rounds_up_and_stops_at_one_gib() {
        for (bytes, order) in [(0, 0), (1, 0), (4096, 0), (4097, 1), (65536, 4), (1 << 30, 18)] {
            assert_eq!(Order::fitting(Bytes::new(bytes)), Order::new(order), "{bytes}");
        }
        assert_eq!(Order::fitting(Bytes::new((1 << 30) + 1)), None);
        assert_eq!(Order::fitting(Bytes::new(u64::MAX)), None);
        assert_eq!(Order::new(19), None);
    }

    #[test]
    fn the_head_of_a_block_is_its_first_frame() {
        assert_eq!(Order::SIZE_2M.head(Frame::new(1023)), Frame::new(512));
        assert_eq!(Order::all().count(), Order::COUNT);
    }
}
