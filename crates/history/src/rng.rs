//! The source of chance of a history: the simulator's, in streams that its scheduler does not draw
//! from.
//!
//! Or bytes from outside decide (`Draws`), such as a fuzzer's, and when they have run out the
//! stream goes on. A choice takes as few of them as it needs, so that a byte means one choice.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that decide before chance does. All streams of a history share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draws(Arc<(Box<[u8]>, AtomicUsize)>);

impl Draws {
    pub(crate) fn new(bytes: &[u8]) -> Draws {
        Draws(Arc::new((bytes.into(), AtomicUsize::new(0))))
    }
    /// Whether there never were any.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.0.is_empty()
    }
    /// The next `count` bytes as a number, if there are so many.
    fn take(&self, count: usize) -> Option<u64> {
        let (bytes, next) = &*self.0;
        let at = next.fetch_add(count, Ordering::Relaxed).min(bytes.len());
        let taken = bytes[at..].get(..count)?;
        Some(taken.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

/// A stream of numbers that depends on its seed and lane alone, and on the draws before.
#[derive(Clone, Debug)]
pub(crate) struct Rng {
    chance: foliant_sim::Rng,
    draws: Draws,
}

impl Rng {
    /// The stream `lane` of `seed`.
    pub(crate) fn new(seed: u64, lane: u64) -> Rng {
        Rng::with(seed, lane, Draws::default())
    }
    /// The same with draws before it.
    pub(crate) fn with(seed: u64, lane: u64, draws: Draws) -> Rng {
        let state = seed.rotate_left(17) ^ lane.wrapping_mul(0xd134_2543_de82_ef95);
        Rng { chance: foliant_sim::Rng::new(state, 0), draws }
    }
    /// Any number; no byte decides it.
    pub(crate) fn draw(&mut self) -> u64 {
        self.chance.draw()
    }
    /// A number below `bound`; 0 where the bound is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        let bytes = match bound {
            0..=1 => 0,
            2..=0x100 => 1,
            0x101..=0x1_0000 => 2,
            _ => 8,
        };
        let drawn = if bytes == 0 { None } else { self.draws.take(bytes) };
        let number = drawn.map_or_else(|| self.draw(), |drawn| drawn << (64 - 8 * bytes));
        ((u128::from(number) * u128::from(bound)) >> 64) as u64
    }
    /// True once in `every` draws on average; never where `every` is 0.
    pub(crate) fn once_in(&mut self, every: u32) -> bool {
        every != 0 && self.below(u64::from(every)) == 0
    }
    /// One of `all`, which is not empty.
    pub(crate) fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }
    /// One of `all`, as often as its weight says.
    pub(crate) fn weighted<T: Copy>(&mut self, all: &[(u32, T)]) -> T {
        let sum: u32 = all.iter().map(|(weight, _)| weight).sum();
        let mut at = self.below(u64::from(sum)) as u32;
        for (weight, value) in all {
            if at < *weight {
                return *value;
            }
            at -= weight;
        }
        all[0].1
    }
}
