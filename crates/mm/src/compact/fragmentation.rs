//! Why a block of an order is not to be had.

use crate::folio::FreeBlocks;
use core::fmt;
use foliant_units::Order;

/// What stands between a caller and a block of an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fragmentation {
    /// Nothing: there is one.
    Free,
    /// So much of the reason is fragmentation, in thousandths; the rest is that little is free at
    /// all. It is 0 where moving things would not help, and nears 1000 where everything that is
    /// free is in the smallest pieces.
    Index(u16),
}

/// Linux's index of external fragmentation for `order`: with the free memory in `n` pieces of which
/// `pages / size` would suffice, `1 - (1 + pages / size) / n`.
pub fn fragmentation(census: &FreeBlocks, order: Order) -> Fragmentation {
    if census.largest().is_some_and(|largest| largest >= order) {
        return Fragmentation::Free;
    }
    let pieces: u64 = Order::all().map(|order| census.blocks(order)).sum();
    if pieces == 0 {
        return Fragmentation::Index(0);
    }
    let suffice = census.pages().get() * 1000 / order.pages().get();
    let index = 1000u64.saturating_sub((1000 + suffice) / pieces);
    Fragmentation::Index(index as u16)
}

impl fmt::Display for Fragmentation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fragmentation::Free => f.write_str("-1.000"),
            Fragmentation::Index(index) => write!(f, "{}.{:03}", index / 1000, index % 1000),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::compact::partly_free;
    use std::string::ToString;

    /// The free blocks of 1024 frames of which those are free whose number `is_free` accepts.
    fn census(is_free: impl Fn(u64) -> bool) -> FreeBlocks {
        partly_free(2, is_free, |folios, _| folios.census())
    }

    #[test]
    fn an_index_says_how_much_of_the_reason_lies_in_the_pieces() {
        let size_2m = |is_free: fn(u64) -> bool| fragmentation(&census(is_free), Order::SIZE_2M);
        assert_eq!(size_2m(|_| false), Fragmentation::Index(0), "nothing is free");
        assert_eq!(size_2m(|n| n < 512), Fragmentation::Free, "one block, of just this order");
        assert_eq!(size_2m(|n| n < 511).to_string(), "0.778", "nine pieces of 511 pages");
        // 512 pages of which each is alone: 1 - (1 + 1) / 512.
        assert_eq!(size_2m(|n| n % 2 == 0), Fragmentation::Index(997));
        assert_eq!(
            size_2m(|n| n == 7),
            Fragmentation::Index(0),
            "one page: moving things would not help"
        );
        let pairs = census(|n| n % 4 < 2);
        assert_eq!(fragmentation(&pairs, Order::new(1).unwrap()), Fragmentation::Free);
        // 1 - (1 + 128) / 256, rounded up.
        assert_eq!(fragmentation(&pairs, Order::new(2).unwrap()), Fragmentation::Index(497));
    }
}
