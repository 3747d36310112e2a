//! A bit per frame: whether it is stated to be free.
//!
//! Loads are too many to tell the checkers of each. Asked before, these bits say which ones matter:
//! those of frames that are free.
//!
//! **Locking**: none; the words are atomics. Whether a frame is free by all that was stated is for
//! the checker to say, which is told in order.

use core::sync::atomic::{AtomicU64, Ordering};
use foliant_units::{Frame, FrameRange};

/// The bits of one range of memory.
#[derive(Debug)]
struct Bits {
    start: u64,
    words: Box<[AtomicU64]>,
}

/// Those of a machine. A frame outside of its memory is never free.
#[derive(Debug)]
pub(crate) struct FreeFrames {
    ranges: Box<[Bits]>,
}

impl FreeFrames {
    /// No frame of `memory` is free.
    pub(crate) fn none(memory: &[FrameRange]) -> FreeFrames {
        let bits = |range: &FrameRange| {
            let words = (0..range.pages().get().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
            Bits { start: range.start().get(), words }
        };
        FreeFrames { ranges: memory.iter().map(bits).collect() }
    }

    /// The word with the bit of a frame, and the number of the bit.
    #[inline]
    fn find(&self, frame: u64) -> Option<(&AtomicU64, u64)> {
        self.ranges.iter().find_map(|range| {
            let nth = frame.checked_sub(range.start)?;
            Some((range.words.get((nth / 64) as usize)?, nth % 64))
        })
    }

    /// Whether `frame` is free.
    #[inline]
    pub(crate) fn has(&self, frame: Frame) -> bool {
        let found = self.find(frame.get());
        found.is_some_and(|(word, bit)| word.load(Ordering::Relaxed) >> bit & 1 == 1)
    }

    /// All of `frames` are free now, or none.
    pub(crate) fn set(&self, frames: FrameRange, are_free: bool) {
        let (mut at, end) = (frames.start().get(), frames.end().get());
        while at < end {
            let Some((word, bit)) = self.find(at) else { return };
            let count = (64 - bit).min(end - at);
            let mask = u64::MAX >> (64 - count) << bit;
            match are_free {
                true => word.fetch_or(mask, Ordering::Relaxed),
                false => word.fetch_and(!mask, Ordering::Relaxed),
            };
            at += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use foliant_units::Pages;
    use std::collections::BTreeSet;

    fn frames(start: u64, pages: u64) -> FrameRange {
        FrameRange::new(Frame::new(start), Pages::new(pages)).expect("a range")
    }

    #[test]
    fn bits_are_those_of_a_naive_set() {
        let (memory, mut rng) = ([frames(7, 200), frames(300, 64)], Rng::new(1, 0));
        let (free, mut naive) = (FreeFrames::none(&memory), BTreeSet::new());
        for _ in 0..500 {
            let range = memory[rng.below(2) as usize];
            let first = rng.below(range.pages().get());
            let count = 1 + rng.below(range.pages().get() - first);
            let some = frames(range.start().get() + first, count);
            let are_free = rng.below(2) == 0;
            free.set(some, are_free);
            match are_free {
                true => naive.extend(some.iter()),
                false => some.iter().for_each(|frame| _ = naive.remove(&frame)),
            }
            let all = (0..400).map(Frame::new);
            assert!(all.filter(|frame| free.has(*frame)).eq(naive.iter().copied()));
        }
        free.set(frames(1000, 64), true);
        assert!(!free.has(Frame::new(1000)), "it is not memory");
    }
}
