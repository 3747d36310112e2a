//! The field of a 2 MiB block: sixteen words, one per 32 frames, changed by many CPUs at once.
//!
//! Blocks of up to 32 frames are one compare-and-exchange of one word. Wide blocks (order 6 to 8)
//! are 2, 4 or 8 whole words:
//!
//! ```text
//!  take   head free → in flight, the others free → complete, then head → complete   (fails: all free again)
//!  give   head complete → in flight (only one giver wins), the others → free, then head → free
//! ```
//!
//! **Invariants**
//! - I1. A word changes only by a compare-and-exchange of the value that was seen, but for the
//!   words of a wide block and of a closed field, which have one holder.
//! - I2. Of two CPUs that free neighbouring words at once, at least one sees both free, since each
//!   frees before it looks.
//! - I3. Words that were taken for a wide block and put back were in use meanwhile, to others that
//!   freed beside them. So the taker looks at the block once more, like one that freed.
//!
//! **Not here**: counts; the bits are the count. The meaning of a word (`bits`).

use super::Word;
use super::bits::{BitState, Bits, NARROW, Phase, SPAN, between};
use super::index::full_fence;
use foliant_sync::Ordering::SeqCst;

/// Words of a field.
pub(super) const WORDS: usize = 16;
/// The order of the whole field.
const WHOLE: u32 = NARROW + WORDS.trailing_zeros();

const _: () = assert!(WORDS as u32 * SPAN == super::entry::FRAMES);

/// Where a frame lies in a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Offset(pub(super) u32);

impl Offset {
    pub(super) const fn word(self) -> usize {
        (self.0 / SPAN) as usize
    }
    pub(super) const fn bit(self) -> u32 {
        self.0 % SPAN
    }
}

/// A block that was given back, and its word as it stood right after.
#[derive(Clone, Copy)]
pub(super) struct Given {
    at: Offset,
    order: u32,
    after: Bits,
}

/// Whether words were taken for a wide block and put back (I3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InVain {
    Yes,
    No,
}

/// Some of the frames of a field.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Pick {
    words: [u32; WORDS],
}

impl Pick {
    const fn at(nth: u64) -> (usize, u32) {
        (nth as usize / SPAN as usize % WORDS, 1 << (nth % SPAN as u64))
    }
    /// Whether the `nth` frame is among them.
    #[inline]
    pub const fn has(&self, nth: u64) -> bool {
        let (word, bit) = Pick::at(nth);
        self.words[word] & bit != 0
    }
    /// Adds the `count` frames from the `nth` on.
    pub fn add(&mut self, nth: u64, count: u64) {
        for nth in nth..nth + count {
            let (word, bit) = Pick::at(nth);
            self.words[word] |= bit;
        }
    }
    /// Adds those of `more`.
    pub fn join(&mut self, more: &Pick) {
        self.words.iter_mut().zip(more.words).for_each(|(word, more)| *word |= more);
    }
    /// How many there are.
    #[inline]
    pub fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }
    /// Runs of them: the first one's number, and how many follow each other.
    pub fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        let frames = u64::from(super::entry::FRAMES);
        let mut from = 0;
        core::iter::from_fn(move || {
            let start = (from..frames).find(|nth| self.has(*nth))?;
            from = (start..frames).find(|nth| !self.has(*nth)).unwrap_or(frames);
            Some((start, from - start))
        })
    }
}

#[derive(Clone, Copy)]
pub(super) struct Field<'m>(pub(super) &'m [Word; WORDS]);

impl<'m> Field<'m> {
    fn bits(self, at: usize) -> Bits {
        Bits(self.0[at].load(SeqCst))
    }
    fn swap(self, at: usize, old: Bits, new: Bits) -> Result<(), Bits> {
        match self.0[at].compare_exchange(old.0, new.0, SeqCst, SeqCst) {
            Ok(_) => Ok(()),
            Err(now) => Err(Bits(now)),
        }
    }
    fn store(self, at: usize, new: Bits) {
        self.0[at].store(new.0, SeqCst);
    }
    /// Changes word `at` by `change`, retried while others change it; `None` where `change`
    /// refuses.
    #[inline(always)]
    fn update(self, at: usize, change: impl Fn(Bits) -> Option<Bits>) -> Option<Bits> {
        let mut seen = self.bits(at);
        loop {
            let new = change(seen)?;
            match self.swap(at, seen, new) {
                Ok(()) => return Some(new),
                Err(now) => seen = now,
            }
        }
    }

    /// Allocates a frame of word `at`.
    #[inline(always)]
    pub(super) fn take_page(self, at: usize) -> Option<Offset> {
        self.take_in(0, at % WORDS)
    }
    /// Allocates a block of 2^`order` frames, of one word at most; looks first at word `from`.
    #[inline]
    pub(super) fn take(self, order: u32, from: usize) -> Option<Offset> {
        if let Some(at) = self.take_in(order, from % WORDS) {
            return Some(at);
        }
        (1..WORDS).map(|step| (from + step) % WORDS).find_map(|at| self.take_in(order, at))
    }
    #[inline(always)]
    fn take_in(self, order: u32, at: usize) -> Option<Offset> {
        let mut seen = self.bits(at);
        loop {
            let bit = seen.find(order)?;
            match self.swap(at, seen, seen.take(order, bit)) {
                Ok(()) => return Some(Offset(at as u32 * SPAN + bit)),
                Err(now) => seen = now,
            }
        }
    }
    /// Allocates a wide block. Says as well whether words were taken in vain on the way: others
    /// that freed beside them have seen less free than there is (I3).
    #[cold]
    pub(super) fn take_wide(self, order: u32) -> (Option<Offset>, InVain) {
        let run = 1 << (order - NARROW);
        let mut in_vain = InVain::No;
        for head in (0..WORDS).step_by(run) {
            match self.claim_wide(order, head, Bits::FREE) {
                Ok(()) => return (Some(Offset(head as u32 * SPAN)), in_vain),
                Err(InVain::Yes) => in_vain = InVain::Yes,
                Err(InVain::No) => {}
            }
        }
        (None, in_vain)
    }
    /// Makes a wide block of words that all are `from`; else they stay as they were.
    fn claim_wide(self, order: u32, head: usize, from: Bits) -> Result<(), InVain> {
        let run = 1 << (order - NARROW);
        if (head..head + run).any(|at| self.bits(at) != from) {
            return Err(InVain::No);
        }
        for at in head..head + run {
            let phase = if at == head { Phase::InFlight } else { Phase::Complete };
            if self.swap(at, from, Bits::wide(order, phase)).is_err() {
                (head..at).rev().for_each(|at| self.store(at, from));
                full_fence();
                return Err(InVain::Yes);
            }
        }
        self.store(head, Bits::wide(order, Phase::Complete));
        Ok(())
    }

    /// Frees the block of 2^`order` frames at `at`; `None`, and nothing changed, where no such
    /// block stands there.
    #[inline(always)]
    pub(super) fn give(self, order: u32, at: Offset) -> Option<Given> {
        let after = if order > NARROW {
            self.give_wide(order, at)?
        } else {
            self.update(at.word(), |bits| bits.give(order, at.bit()))?
        };
        full_fence();
        Some(Given { at, order, after })
    }
    /// Frees the frames from `low` up to `high` of word `at`, each a block of its own; `None`, and
    /// nothing changed, where one is not.
    #[inline]
    pub(super) fn give_each(self, at: usize, low: u32, high: u32) -> Option<Given> {
        let after = self.update(at, |bits| bits.give_all(between(low, high)))?;
        full_fence();
        // The largest free block of the word is what the bound is raised by: which one it is does
        // not matter below a whole word.
        Some(Given { at: Offset(at as u32 * SPAN), order: after.fit(1) - 1, after })
    }
    #[cold]
    fn give_wide(self, order: u32, at: Offset) -> Option<Bits> {
        let head = at.word();
        let (complete, busy) =
            (Bits::wide(order, Phase::Complete), Bits::wide(order, Phase::InFlight));
        self.swap(head, complete, busy).ok()?;
        let run = 1 << (order - NARROW);
        (head..head + run).rev().for_each(|at| self.store(at, Bits::FREE));
        Some(Bits::FREE)
    }

    /// Cuts the block of 2^`order` frames at `at` into blocks of 2^`into`; `None` where no such
    /// block stands there.
    pub(super) fn split(self, order: u32, at: Offset, into: u32) -> Option<()> {
        if order <= NARROW {
            return self.update(at.word(), |bits| bits.split(order, at.bit(), into)).map(|_| ());
        }
        let head = at.word();
        let (complete, busy) =
            (Bits::wide(order, Phase::Complete), Bits::wide(order, Phase::InFlight));
        self.swap(head, complete, busy).ok()?;
        (head..head + (1 << (order - NARROW))).rev().for_each(|at| self.store(at, filled(into)));
        Some(())
    }
    /// Makes one block of the 2^`order` frames at `at`, each of which is a block of its own; `None`
    /// where one is not.
    pub(super) fn join(self, order: u32, at: Offset) -> Option<()> {
        if order > NARROW {
            return self.claim_wide(order, at.word(), Bits::full(0)).ok();
        }
        self.update(at.word(), |bits| bits.join(order, at.bit())).map(|_| ())
    }
    /// Fills a closed field with allocated blocks of 2^`order` frames, order 8 or less.
    pub(super) fn fill(self, order: u32) {
        (0..WORDS).for_each(|at| self.store(at, filled(order)));
    }
    /// Withholds the frames `from..to`. Where one is in use, that one is named, and nothing is
    /// changed.
    pub(super) fn withhold(self, from: u32, to: u32) -> Result<(), Offset> {
        for (at, low, high) in pieces(from, to) {
            if self.update(at, |bits| bits.close(low, high)).is_none() {
                let upto = at as u32 * SPAN + low;
                self.restore(from, upto);
                let taken = (upto..to).map(Offset).find(|o| self.spot(*o) != BitState::Free);
                return Err(taken.unwrap_or(Offset(upto)));
            }
        }
        Ok(())
    }
    /// Undoes `withhold`.
    pub(super) fn restore(self, from: u32, to: u32) {
        for (at, low, high) in pieces(from, to) {
            self.update(at, |bits| Some(bits.open(low, high)));
        }
        full_fence();
    }

    /// 1 + the largest order of a free block, 0 where none is free.
    pub(super) fn fit(self) -> u32 {
        let best = (0..WORDS).fold(0, |best, at| self.bits(at).fit(best));
        if best <= NARROW {
            return best;
        }
        (NARROW + 1..=WHOLE)
            .rev()
            .find(|order| self.has_wide(*order))
            .map_or(best, |order| order + 1)
    }
    /// Whether a block of 2^`order` frames is free.
    pub(super) fn has(self, order: u32) -> bool {
        if order > NARROW {
            return self.has_wide(order);
        }
        (0..WORDS).any(|at| self.bits(at).find(order).is_some())
    }
    fn has_wide(self, order: u32) -> bool {
        let run = 1 << (order - NARROW);
        (0..WORDS).step_by(run).any(|head| self.is_clear(head, run))
    }
    /// Whether all 512 frames are free.
    pub(super) fn is_free(self) -> bool {
        self.is_clear(0, WORDS)
    }
    /// Frees a closed field.
    pub(super) fn open(self) {
        (0..WORDS).for_each(|at| self.store(at, Bits::FREE));
    }
    /// Closes the field if all its words are `from`; otherwise all of them stay as they were.
    pub(super) fn close(self, from: Bits) -> bool {
        let taken = (0..WORDS).find(|at| self.swap(*at, from, Bits::CLOSED).is_err());
        if let Some(upto) = taken {
            (0..upto).for_each(|at| self.store(at, from));
            full_fence();
        }
        taken.is_none()
    }
    /// Allocates all free frames, each as a block of its own, and says which.
    pub(super) fn take_all(self) -> Pick {
        let mut pick = Pick::default();
        for (at, word) in pick.words.iter_mut().enumerate() {
            let mut seen = self.bits(at);
            while seen.free() != 0 {
                match self.swap(at, seen, seen.take_all()) {
                    Ok(()) => {
                        *word = seen.free();
                        break;
                    }
                    Err(now) => seen = now,
                }
            }
        }
        pick
    }
    /// Frees these frames, each a block of its own. Where one is not, its word is named, and the
    /// frames of earlier words are free by then.
    pub(super) fn give_all(self, pick: &Pick) -> Result<(), Offset> {
        for (at, frames) in pick.words.iter().enumerate().filter(|(_, frames)| **frames != 0) {
            self.update(at, |bits| bits.give_all(*frames)).ok_or(Offset(at as u32 * SPAN))?;
        }
        full_fence();
        Ok(())
    }
    /// Whether all 512 frames are closed.
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn is_closed(self) -> bool {
        (0..WORDS).all(|at| self.bits(at) == Bits::CLOSED)
    }
    fn is_clear(self, head: usize, run: usize) -> bool {
        (head..head + run).all(|at| self.bits(at) == Bits::FREE)
    }
    /// Whether the free block around the one that was given back is larger than `fit` says.
    #[inline(always)]
    pub(super) fn exceeds(self, fit: u32, given: Given) -> bool {
        fit <= given.order || self.is_free_around(given, fit)
    }
    /// `fit`, raised to the free block around the one that was given back.
    ///
    /// Blocks nest, so it is enough to try one order more at a time, beginning above the old bound.
    #[inline]
    pub(super) fn raised(self, fit: u32, given: Given) -> u32 {
        let mut fit = fit.max(given.order + 1);
        while fit <= WHOLE && self.exceeds(fit, given) {
            fit += 1;
        }
        fit
    }
    #[inline]
    fn is_free_around(self, given: Given, order: u32) -> bool {
        if order <= NARROW {
            return given.after.is_free_around(given.at.bit(), order);
        }
        let run = 1 << (order - NARROW);
        given.after == Bits::FREE && self.is_clear(given.at.word() & !(run - 1), run)
    }

    /// The state of the frame at `at`, with the head counted from the start of the field.
    pub(super) fn spot(self, at: Offset) -> BitState {
        match self.bits(at.word()).spot(at.bit()) {
            BitState::Block { head, order } => {
                BitState::Block { head: at.0 - at.bit() + head, order }
            }
            BitState::Wide { order } => {
                let head = at.0 & !((1 << order) - 1);
                match self.bits(Offset(head).word()).as_wide() {
                    Some((_, Phase::Complete)) => BitState::Block { head, order },
                    _ => BitState::Free,
                }
            }
            spot => spot,
        }
    }
    /// The free frames of word `at`.
    pub(super) fn free(self, at: usize) -> u32 {
        self.bits(at).free()
    }
    /// Free frames.
    pub(super) fn count(self) -> u32 {
        let bits = |at| match self.bits(at).free() {
            0 => 0, // most words are all used or all free, and not every CPU counts bits at once
            u32::MAX => u32::BITS,
            some => some.count_ones(),
        };
        (0..WORDS).map(bits).sum()
    }
    /// Adds, per order up to 8, the free blocks that are not halves of larger ones.
    pub(super) fn count_maximal(self, into: &mut [u64; 19]) {
        (0..WORDS).for_each(|at| self.bits(at).count_maximal(into));
        for order in NARROW..9 {
            let run = 1 << (order - NARROW);
            for head in (0..WORDS).step_by(run) {
                let whole = self.is_clear(head & !(2 * run - 1), 2 * run);
                into[order as usize] += u64::from(self.is_clear(head, run) && !whole);
            }
        }
    }
    /// The first word that is none of the legal ones, for `validate`.
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn broken(self) -> Option<Offset> {
        let bad = |at: &usize| {
            let bits = self.bits(*at);
            let Some((order, _)) = bits.as_wide() else { return !bits.is_legal() };
            let run = 1usize << order.saturating_sub(NARROW).min(4);
            let head = at & !(run - 1);
            !bits.is_legal()
                || (head..head + run).any(|at| self.bits(at) != Bits::wide(order, Phase::Complete))
        };
        (0..WORDS).find(bad).map(|at| Offset(at as u32 * SPAN))
    }
}

fn filled(order: u32) -> Bits {
    if order > NARROW { Bits::wide(order, Phase::Complete) } else { Bits::full(order) }
}

/// `from..to` cut at the words: word, first bit, bit behind the last.
pub(super) fn pieces(from: u32, to: u32) -> impl Iterator<Item = (usize, u32, u32)> {
    let words = if from < to { from / SPAN..to.div_ceil(SPAN) } else { 0..0 };
    words.map(move |at| {
        let base = at * SPAN;
        (at as usize, from.max(base) - base, to.min(base + SPAN) - base)
    })
}
