//! Why a block of an order is not to be had.

use crate::folio::Census;
use core::fmt;
use foliant_units::Order;

/// What stands between a caller and a block of an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fragmentation {
    /// Nothing: there is one.
    Free,
    /// So much of the reason is fragmentation, in thousandths; the rest is that little is free at all. 0 where moving things
    /// would not help, 1000 where everything that is free is in the smallest pieces.
    Index(u16),
}

/// Linux's index of external fragmentation for `order`: with the free memory in `n` pieces of which `pages / size` would
/// suffice, `1 - (1 + pages / size) / n`.
pub fn fragmentation(census: &Census, order: Order) -> Fragmentation {
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
