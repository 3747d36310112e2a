//! Which frames are known to hold zeros: a bit per frame, written by the frame's owner alone.
//!
//! ```text
//!  lent words ─▶ │ ever: 1 word on lines of its own │ bits: 8 words per 2 MiB block │
//!
//!                 clear            give back as zero            take
//!     owned ──────────────▶ owned ─────────────────▶ free, set ──────▶ owned, set ── forget ─▶ owned
//!       └───────────── give back: the bits are cleared first ─▶ free
//! ```
//!
//! Because a bit is a frame's, nothing has to be done when blocks are split, merged or taken in
//! larger pieces.
//!
//! **Invariants**
//! - I1. The set bit of a free frame tells the truth: it was set by an owner that knew, and every
//!   owner that does not know clears it before the frame is free. The owner of a frame judges what
//!   the frame's bit says.
//! - I2. Before the first bit is set, `ever` is. An owner that finds `ever` unset after taking a
//!   block, or before giving one back, finds no bit set.
//!
//! **Locking**: none. Neighbouring blocks share words, so bits change by atomic operations; the
//! step that takes or gives the block orders them.
//!
//! **Not here**: clearing.

use super::Word;
use super::entry::FRAMES;
use super::field::Offset;
use foliant_sync::Ordering::Relaxed;
use foliant_units::Order;

/// The owner's knowledge of the content of a block that is given back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// It may hold anything.
    Nothing,
    /// It was not written to since it was taken.
    AsBefore,
    /// It holds zeros.
    Zero,
}

/// Words of one block.
const WORDS: usize = FRAMES as usize / 64;
/// Words before the bits: `ever`, alone on a pair of lines since every CPU reads it.
const HEAD: usize = 16;
const SIZE_2M: u32 = Order::SIZE_2M.get() as u32;

#[derive(Clone, Copy)]
pub(super) struct Zeros<'m> {
    ever: &'m Word,
    bits: &'m [Word],
}

impl<'m> Zeros<'m> {
    /// Words for so many blocks: a multiple of 16.
    pub(super) const fn words(blocks: usize) -> usize {
        HEAD + (blocks * WORDS).next_multiple_of(HEAD)
    }
    /// The bits in `words`, zeroed: nothing is known.
    pub(super) fn new(words: &'m [Word]) -> Zeros<'m> {
        let (head, bits) = words.split_at(HEAD);
        Zeros { ever: &head[0], bits }
    }
    /// Whether a bit was ever set.
    #[inline]
    pub(super) fn ever(&self) -> bool {
        self.ever.load(Relaxed) != 0
    }

    /// Whether `known`, with which the owner of a block of 2^`order` frames gives it back, may
    /// differ from what is noted.
    #[inline]
    pub(super) fn differs(&self, blk: usize, at: Offset, order: u32, known: Known) -> bool {
        match known {
            Known::AsBefore => false,
            // A page has one bit.
            Known::Nothing if order == 0 => {
                self.ever() && self.half(blk, at.word()) >> at.bit() & 1 == 1
            }
            Known::Nothing => self.ever() && self.any(blk, at, order),
            Known::Zero => true,
        }
    }
    fn any(&self, blk: usize, at: Offset, order: u32) -> bool {
        self.parts(blk, at, order).any(|(blk, from, to)| {
            self.pieces(blk, from, to).any(|(word, mask)| word.load(Relaxed) & mask != 0)
        })
    }
    /// Notes the owner's knowledge of a block.
    pub(super) fn learn(&self, blk: usize, at: Offset, order: u32, known: Known) {
        self.parts(blk, at, order).for_each(|(blk, from, to)| match known {
            Known::AsBefore => {}
            Known::Nothing => self.forget(blk, from, to),
            Known::Zero => self.note(blk, from, to),
        });
    }
    /// The part in each 2 MiB block of a block of 2^`order` frames. A caller that gives back a
    /// block that is none may name one that reaches beyond the region.
    fn parts(
        &self,
        blk: usize,
        at: Offset,
        order: u32,
    ) -> impl Iterator<Item = (usize, u32, u32)> + use<> {
        let blocks = self.bits.len() / WORDS;
        let (run, from, to) = match order.checked_sub(SIZE_2M) {
            None => (1, at.0, at.0 + (1 << order)),
            Some(above) => (1 << above, 0, FRAMES),
        };
        (blk..blocks.min(blk + run)).map(move |blk| (blk, from, to))
    }

    /// Notes that frames `from..to` of the block are zero.
    pub(super) fn note(&self, blk: usize, from: u32, to: u32) {
        self.ever.store(1, Relaxed);
        self.pieces(blk, from, to).for_each(|(word, mask)| {
            word.fetch_or(mask, Relaxed);
        });
    }
    /// Forgets that frames `from..to` of the block are zero.
    pub(super) fn forget(&self, blk: usize, from: u32, to: u32) {
        self.pieces(blk, from, to).for_each(|(word, mask)| {
            if word.load(Relaxed) & mask != 0 {
                word.fetch_and(!mask, Relaxed);
            }
        });
    }
    /// The first of the frames `from..to` that is not known to be zero, and the one behind the last
    /// such.
    pub(super) fn unknown(&self, blk: usize, from: u32, to: u32) -> Option<(u32, u32)> {
        let mut hull = None;
        for (at, (word, mask)) in self.pieces(blk, from, to).enumerate() {
            let unknown = mask & !word.load(Relaxed);
            if unknown != 0 {
                let base = (from / 64 + at as u32) * 64;
                let last = base + 64 - unknown.leading_zeros();
                let first = hull.map_or(base + unknown.trailing_zeros(), |(first, _)| first);
                hull = Some((first, last));
            }
        }
        hull
    }
    /// The bits of frames `32 * n..` of the block.
    #[inline]
    pub(super) fn half(&self, blk: usize, n: usize) -> u32 {
        (self.bits[blk * WORDS + n / 2].load(Relaxed) >> (n % 2 * 32)) as u32
    }
    /// The words of frames `from..to` of the block, each with the bits that are meant.
    fn pieces(&self, blk: usize, from: u32, to: u32) -> impl Iterator<Item = (&'m Word, u64)> {
        let words = &self.bits[blk * WORDS..][..WORDS];
        let at = if from < to { from / 64..to.div_ceil(64) } else { 0..0 };
        at.map(move |at| {
            let (low, high) = (from.max(at * 64) % 64, to.min(at * 64 + 64) - at * 64);
            (&words[at as usize], (!0 >> (64 - (high - low))) << low)
        })
    }
}
