//! Lists of blocks as bitmaps in levels, so that the next block of a kind is a few words away at
//! any memory size.
//!
//! ```text
//!  level 2   1 bit per level-1 word           1 TiB: 2 words
//!  level 1   1 bit per level-0 word           1 TiB: 128 words
//!  level 0   1 bit per 2 MiB block, counted from the 1 GiB boundary below the region    1 TiB: 8192 words
//! ```
//!
//! One such pyramid per list: wholly free blocks; per class and fit; owned blocks by fit.
//!
//! **Invariants** (when nothing is in flight)
//! - I1. A block's bit is set on the list that its entry names. More bits may be set: they are
//!   hints, and a search that follows one in vain drops it.
//! - I2. A word that is not zero has its bit set one level up.
//!
//! **Locking**: none. A bit stands for a thing: an entry, or a word one level down. A CPU that
//! makes the thing true first changes the thing, then sets the bit; a CPU that drops the bit then
//! looks at the thing again, and sets the bit back if need be. Both orders are sequentially
//! consistent, so one of the two CPUs sees the other. Loom weakens sequential consistency to
//! acquire-release, hence [`full_fence`].
//!
//! **Not here**: on which list a block belongs (`entry`).

use super::{Class, Word};
use foliant_sync::Ordering::SeqCst;

/// Levels of a pyramid.
const LEVELS: usize = 3;

/// One of the lists of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct List(u8);

impl List {
    /// Wholly free blocks without owner.
    pub(super) const WHOLE: List = List(0);
    const CLASSES: u8 = 1;
    const OWNED: u8 = Self::CLASSES + 9 * Class::ALL.len() as u8;
    /// How many lists there are.
    pub(super) const COUNT: usize = Self::OWNED as usize + 10;

    /// Partly used blocks of `class` without owner whose fit is `fit` (1 to 9).
    pub(super) const fn class(class: Class, fit: u32) -> List {
        List(Self::CLASSES + class as u8 * 9 + fit as u8 - 1)
    }
    /// Blocks with an owner whose fit is `fit` (1 to 10).
    pub(super) const fn owned(fit: u32) -> List {
        List(Self::OWNED + fit as u8 - 1)
    }
    /// All of them.
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn all() -> impl Iterator<Item = List> {
        (0..Self::COUNT as u8).map(List)
    }
}

/// Orders our earlier writes before our later reads, for loom. Elsewhere sequentially consistent
/// accesses do that.
#[inline]
pub(super) fn full_fence() {
    #[cfg(loom)]
    foliant_sync::fence(SeqCst);
}

/// The pyramids of one region.
///
/// Key: `[a]` atomic; `[c]` constant.
#[derive(Clone, Copy)]
pub(super) struct Pyramids<'m> {
    words: &'m [Word], // [a] all lists, one after the other, each level after the one below
    lens: [usize; LEVELS], // [c] words per level
    bases: [usize; LEVELS], // [c] where a level begins in its list
    stride: usize,     // [c] words per list
}

impl<'m> Pyramids<'m> {
    /// Words that `blocks` bits need, all lists together.
    pub(super) fn words(blocks: usize) -> usize {
        Self::lens(blocks).iter().sum::<usize>() * List::COUNT
    }
    fn lens(blocks: usize) -> [usize; LEVELS] {
        let l0 = blocks.div_ceil(64).next_multiple_of(8);
        let l1 = l0.div_ceil(64);
        [l0, l1, l1.div_ceil(64)]
    }
    /// The pyramids in `words`, zeroed.
    pub(super) fn new(blocks: usize, words: &'m [Word]) -> Pyramids<'m> {
        let lens = Self::lens(blocks);
        let bases = [0, lens[0], lens[0] + lens[1]];
        Pyramids { words, lens, bases, stride: lens.iter().sum() }
    }
    /// Level-0 words per list.
    pub(super) fn len(&self) -> usize {
        self.lens[0]
    }
    #[inline]
    pub(super) fn word(&self, list: List, level: usize, at: usize) -> &'m Word {
        &self.words[list.0 as usize * self.stride + self.bases[level] + at]
    }
    /// 64 bits of level 0.
    #[inline]
    pub(super) fn load(&self, list: List, at: usize) -> u64 {
        self.word(list, 0, at).load(SeqCst)
    }

    /// Sets `bit`, and the bits above it.
    #[inline]
    pub(super) fn set(&self, list: List, bit: usize) {
        self.set_from(list, 0, bit);
    }
    fn set_from(&self, list: List, level: usize, mut bit: usize) {
        for level in level..LEVELS {
            full_fence();
            let word = self.word(list, level, bit / 64);
            let mask = 1 << (bit % 64);
            if word.load(SeqCst) & mask != 0 {
                return;
            }
            word.fetch_or(mask, SeqCst);
            bit /= 64;
        }
    }
    /// Clears `bit`, and the bits above where nothing is left. The caller then looks at the block
    /// again.
    pub(super) fn clear(&self, list: List, bit: usize) {
        let word = self.word(list, 0, bit / 64);
        let mask = 1 << (bit % 64);
        if word.load(SeqCst) & mask != 0 && word.fetch_and(!mask, SeqCst) == mask {
            self.clear_above(list, 0, bit / 64);
        }
        full_fence();
    }
    /// Clears the bit that stands for word `at` of `level`, and sets it back where that word is not
    /// zero after all.
    fn clear_above(&self, list: List, level: usize, at: usize) {
        let (mut child, mut at) = (level, at);
        while child + 1 < LEVELS {
            let word = self.word(list, child + 1, at / 64);
            let mask = 1 << (at % 64);
            if word.load(SeqCst) & mask == 0 {
                return;
            }
            let old = word.fetch_and(!mask, SeqCst);
            full_fence();
            if self.word(list, child, at).load(SeqCst) != 0 {
                return self.set_from(list, child + 1, at);
            }
            if old & !mask != 0 {
                return;
            }
            child += 1;
            at /= 64;
        }
    }

    /// Whether no bit is set. Reads one word for each 512 GiB.
    #[inline]
    pub(super) fn is_empty(&self, list: List) -> bool {
        (0..self.lens[LEVELS - 1]).all(|at| self.word(list, LEVELS - 1, at).load(SeqCst) == 0)
    }
    /// The first bit set at `from` or behind.
    #[inline]
    pub(super) fn next(&self, list: List, from: usize) -> Option<usize> {
        self.next_at(list, 0, from)
    }
    fn next_at(&self, list: List, level: usize, from: usize) -> Option<usize> {
        let mut from = from;
        loop {
            let at = from / 64;
            if at >= self.lens[level] {
                return None;
            }
            let word = self.word(list, level, at).load(SeqCst);
            let ahead = word & (!0 << (from % 64));
            if ahead != 0 {
                return Some(at * 64 + ahead.trailing_zeros() as usize);
            }
            if level + 1 == LEVELS {
                from = (at + 1) * 64;
                continue;
            }
            if word == 0 {
                self.clear_above(list, level, at);
            }
            from = self.next_at(list, level + 1, at + 1)? * 64;
        }
    }
    /// The first word that breaks I2, for `validate`.
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn broken(&self, list: List) -> Option<usize> {
        (0..LEVELS - 1).find_map(|level| {
            (0..self.lens[level]).find(|at| {
                self.word(list, level, *at).load(SeqCst) != 0
                    && self.word(list, level + 1, at / 64).load(SeqCst) >> (at % 64) & 1 == 0
            })
        })
    }
}
