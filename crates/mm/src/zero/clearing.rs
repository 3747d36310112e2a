//! How memory is cleared, as a value.

use crate::stock::Stock;
use crate::sync::Ordering::Relaxed;
use core::fmt;
use foliant_units::{Bytes, FRAME_BYTES, Nanos, Order, Pages};

/// Bytes per clear. Whole is the normal case: each part of a block is cleared in one go. A page is
/// the baseline that it is measured against. Whatever the grain, the work is done by the same code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZeroGrain(u64);

impl ZeroGrain {
    /// A part of a block at a time.
    pub const WHOLE: ZeroGrain = ZeroGrain(0);
    /// A page at a time.
    pub const PAGE: ZeroGrain = ZeroGrain(1);

    /// `bytes` at a time; `None` where that is no multiple of a page, or nothing.
    pub const fn new(bytes: Bytes) -> Option<ZeroGrain> {
        match bytes.get().is_multiple_of(FRAME_BYTES) && bytes.get() > 0 {
            true => Some(ZeroGrain(bytes.get() / FRAME_BYTES)),
            false => None,
        }
    }
    /// Pages at a time, if it has a bound.
    pub(super) const fn pages(self) -> Option<Pages> {
        if self.0 == 0 { None } else { Some(Pages::new(self.0)) }
    }
}

impl fmt::Display for ZeroGrain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pages() {
            Some(pages) => pages.bytes().fmt(f),
            None => f.write_str("whole"),
        }
    }
}

/// How what lies far from the page touched is cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Far {
    /// As the CPU measures to be best while it clears.
    Measured,
    /// Through the caches.
    Cached,
    /// Past them.
    NonTemporal,
}

/// How memory is cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clearing {
    /// Bytes per clear.
    pub grain: ZeroGrain,
    /// Pages on either side of the one touched that are cleared last, and kept in the caches.
    pub radius: Pages,
    /// The longest time without a preemption point.
    pub budget: Nanos,
    /// Folios from this size on are cleared in parts. Smaller ones stay in the caches as they are.
    pub parts_from: Order,
    /// What the far parts are.
    pub far: Far,
    /// How much longer reading 2 MiB takes where they went past the caches. It depends on the
    /// machine's caches and memory: a kernel sets what it measures at its start.
    pub refetch: Nanos,
}

impl Default for Clearing {
    fn default() -> Clearing {
        Clearing {
            grain: ZeroGrain::WHOLE,
            radius: Pages::new(2),
            budget: Nanos(3_000_000),
            parts_from: Order::SIZE_2M,
            far: Far::Measured,
            // As on an EPYC of family 25; a Xeon that was measured takes twice as long.
            refetch: Nanos(33_000),
        }
    }
}

impl Clearing {
    /// As words. What is stored is their exclusive or with the words of the default, so that words
    /// of zero are the default.
    fn words(&self) -> [u64; 5] {
        let far =
            [Far::Measured, Far::Cached, Far::NonTemporal].iter().position(|far| *far == self.far);
        let shape = u64::from(self.parts_from.get()) << 8 | far.unwrap_or_default() as u64;
        [self.grain.0, self.radius.get(), self.budget.0, shape, self.refetch.0]
    }
    fn from_words(words: [u64; 5]) -> Clearing {
        let [grain, radius, budget, shape, refetch] = words;
        Clearing {
            grain: ZeroGrain(grain),
            radius: Pages::new(radius),
            budget: Nanos(budget),
            parts_from: Order::new((shape >> 8) as u8).unwrap_or(Order::SIZE_2M),
            far: *[Far::Measured, Far::Cached, Far::NonTemporal]
                .get(shape as usize & 0xff)
                .unwrap_or(&Far::Measured),
            refetch: Nanos(refetch),
        }
    }

    /// Whether the grain and the sizes that are cleared in parts are those of the default.
    pub(super) fn is_usual<M, P>(stock: &Stock<'_, M, P>) -> bool {
        [0, 3].into_iter().all(|n| stock.clearing[n].load(Relaxed) == 0)
    }
    /// What is set now.
    pub(crate) fn load<M, P>(stock: &Stock<'_, M, P>) -> Clearing {
        let usual = Clearing::default().words();
        let word = |n: usize| stock.clearing[n].load(Relaxed) ^ usual[n];
        Clearing::from_words(core::array::from_fn(word))
    }
    /// Sets it for clears that begin from now on. One that begins meanwhile may see a part of it.
    pub(crate) fn store<M, P>(self, stock: &Stock<'_, M, P>) {
        let words = self.words().into_iter().zip(Clearing::default().words());
        for (word, (new, usual)) in stock.clearing.iter().zip(words) {
            word.store(new ^ usual, Relaxed);
        }
    }
}
