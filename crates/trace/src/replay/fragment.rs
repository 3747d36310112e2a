//! Memory that was in use for long: pinned base pages spread over a share of its 2 MiB blocks.

use foliant::folio::Folios;
use foliant_units::{Frame, FrameRange, Order, Pages};
use std::fmt;

/// Base pages pinned in a fragmented block of 512. In such a block no 1 MiB folio finds room, and one in
/// three 64 KiB folios does.
pub const PINS_PER_BLOCK: u64 = 32;

/// A share of 0 to 100 in a hundred.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Percent(u8);

impl Percent {
    /// `n` in a hundred; `None` above 100.
    pub const fn new(n: u8) -> Option<Percent> {
        if n <= 100 { Some(Percent(n)) } else { None }
    }
    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0)
    }
}

/// Takes [`PINS_PER_BLOCK`] pages out of `share` of all blocks. Which ones is the same each time. Frames in
/// use already are left alone: they pin their block themselves.
pub(super) fn fragment(folios: &Folios<'_>, share: Percent) {
    let block = Order::MEGA.pages().get();
    for range in folios.ranges().collect::<Vec<_>>() {
        let first = range.start().get().div_ceil(block);
        for number in first..range.end().get() / block {
            // Evenly spread: block n is taken where the running share reaches the next whole number.
            let upto = |n: u64| n * u64::from(share.get()) / 100;
            if upto(number - first + 1) == upto(number - first) {
                continue;
            }
            for pin in 0..PINS_PER_BLOCK {
                // One at a pseudo-random place in each stretch of 16 pages would leave no 64 KiB block at
                // all, so places are drawn from the whole block; some coincide.
                let at = scramble(number << 8 | pin) % block;
                if let Some(page) = FrameRange::new(Frame::new(number * block + at), Pages::new(1))
                {
                    let _ = folios.reserve(page);
                }
            }
        }
    }
}

/// A fixed mixing of bits (the finalizer of SplitMix64).
fn scramble(n: u64) -> u64 {
    let n = (n ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 30).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}
