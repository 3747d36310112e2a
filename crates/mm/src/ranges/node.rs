//! One node of the map: a lot of words, in columns.
//!
//! ```text
//!   word 0        entries, and bit 32: inner
//!   word 1        the largest gap; of a spare node, the link in their list
//!   leaf          starts │ gaps below │ ends │ what is kept, a column a word      25 areas, 31 kernel ranges
//!   inner         first starts │ largest gaps │ children                          42 children
//! ```
//!
//! A lot keeps its rank as long as it is a node. So the word in the place of a child's number has
//! always held the number of a node of this map, or 0 where none was written yet (ranges::M2).

use super::Ranged;
use crate::stock::Lot;
use crate::sync::{AtomicU64, Ordering};
use core::hint::select_unpredictable;
use core::marker::PhantomData;
use foliant_units::{Va, VaRange};

/// Four nodes lie in a frame.
pub(super) const WORDS: usize = 128;
/// The word that links spare nodes, and keeps the largest gap of others.
pub(super) const LINK: usize = 1;
const INNER: u64 = 1 << 32;
const FIRST: usize = 2;
const STARTS: usize = 0;
const GAPS: usize = 1;
/// Of a leaf; of an inner node its children stand there.
const ENDS: usize = 2;
const KEPT: usize = 3;

/// A node and where it lies.
#[derive(Clone, Copy)]
pub(super) struct Node<'m, T> {
    pub(super) lot: Lot<WORDS>,
    pub(super) rank: Rank,
    words: &'m [AtomicU64; WORDS],
    kind: PhantomData<T>,
}

/// Where the first range below a node starts, and the largest gap below it.
pub(super) type Sum = (u64, u64);

/// What a node is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rank {
    Leaf,
    Inner,
}

impl<'m, T: Ranged> Node<'m, T> {
    pub(super) fn new(lot: Lot<WORDS>, words: &'m [AtomicU64; WORDS]) -> Node<'m, T> {
        let inner = words[0].load(Ordering::Relaxed) & INNER != 0;
        let rank = if inner { Rank::Inner } else { Rank::Leaf };
        Node { lot, rank, words, kind: PhantomData }
    }
    /// The same of a lot that is known to be a leaf.
    #[inline]
    pub(super) fn leaf(lot: Lot<WORDS>, words: &'m [AtomicU64; WORDS]) -> Node<'m, T> {
        Node { lot, rank: Rank::Leaf, words, kind: PhantomData }
    }
    /// An empty one. Its rank is the one that it has, if it was a node before.
    pub(super) fn begin(lot: Lot<WORDS>, words: &'m [AtomicU64; WORDS], rank: Rank) -> Self {
        words[0].store(if rank == Rank::Inner { INNER } else { 0 }, Ordering::Relaxed);
        words[LINK].store(0, Ordering::Relaxed);
        Node::new(lot, words)
    }
    /// Entries of a leaf, and of an inner node.
    const MAX: [usize; 2] = [(WORDS - FIRST) / (KEPT + T::WORDS), (WORDS - FIRST) / KEPT];

    const fn columns(&self) -> usize {
        match self.rank {
            Rank::Leaf => KEPT + T::WORDS,
            Rank::Inner => KEPT,
        }
    }
    #[inline]
    pub(super) const fn max(&self) -> usize {
        match self.rank {
            Rank::Leaf => const { Self::MAX[0] },
            Rank::Inner => const { Self::MAX[1] },
        }
    }
    /// How many entries it has: never more than fit, whatever a reader that raced with a writer
    /// finds.
    #[inline]
    pub(super) fn len(&self) -> usize {
        ((self.words[0].load(Ordering::Relaxed) & 0xffff) as usize).min(self.max())
    }
    fn set_len(&self, len: usize) {
        let inner = if self.rank == Rank::Inner { INNER } else { 0 };
        self.words[0].store(inner | len as u64, Ordering::Relaxed);
    }
    #[inline]
    fn column(&self, column: usize) -> &'m [AtomicU64] {
        &self.words[FIRST + column * self.max()..][..self.max()]
    }
    #[inline]
    fn get(&self, column: usize, i: usize) -> u64 {
        self.column(column)[i].load(Ordering::Relaxed)
    }
    fn set(&self, column: usize, i: usize, value: u64) {
        self.column(column)[i].store(value, Ordering::Relaxed);
    }

    /// The start of range `i`, or of the first one below child `i`.
    #[inline]
    pub(super) fn start(&self, i: usize) -> u64 {
        self.get(STARTS, i)
    }
    /// The gap below range `i`, or the largest one below child `i`, in bytes.
    pub(super) fn gap(&self, i: usize) -> u64 {
        self.get(GAPS, i)
    }
    /// The gap of each entry.
    pub(super) fn gaps(
        &self,
    ) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator + use<'m, T> {
        self.column(GAPS)[..self.len()].iter().map(|gap| gap.load(Ordering::Relaxed))
    }
    pub(super) fn set_gap(&self, i: usize, gap: u64) {
        let old = self.gap(i);
        self.set(GAPS, i, gap);
        if gap >= self.largest_gap() {
            self.words[LINK].store(gap, Ordering::Relaxed);
        } else {
            self.forget_gap(old);
        }
    }
    /// Looks for the largest gap where that was the one of this size, which is gone.
    fn forget_gap(&self, old: u64) {
        if old == self.largest_gap() {
            self.words[LINK].store(self.gaps().max().unwrap_or_default(), Ordering::Relaxed);
        }
    }
    fn largest_gap(&self) -> u64 {
        self.words[LINK].load(Ordering::Relaxed)
    }
    pub(super) fn sum(&self) -> Sum {
        (self.start(0), self.largest_gap())
    }
    /// Whether the largest gap is what a look at all of them gives.
    #[cfg(any(test, feature = "verify"))]
    pub(super) fn knows_its_gaps(&self) -> bool {
        self.gaps().max().unwrap_or_default() == self.largest_gap()
    }
    /// How many entries start at `va` or below.
    #[inline]
    pub(super) fn position(&self, va: Va) -> usize {
        let (starts, mut at, mut left) = (self.column(STARTS), 0, self.len());
        let is_below = |i: usize| starts[i].load(Ordering::Relaxed) <= va.get();
        while left > 1 {
            let (half, middle) = (left / 2, at + left / 2);
            at = select_unpredictable(is_below(middle), middle, at);
            left -= half;
        }
        at + usize::from(left == 1 && is_below(at))
    }
    /// Range `i` of a leaf. Where a concurrent writer tore it, it may be none; the reader then
    /// reads again.
    #[inline]
    pub(super) fn range(&self, i: usize) -> Option<T> {
        debug_assert!(self.rank == Rank::Leaf, "children are no ranges");
        let max = const { Self::MAX[0] };
        assert!(i < max, "a range of the leaf");
        let get = |column: usize| self.words[FIRST + column * max + i].load(Ordering::Relaxed);
        let range = VaRange::new(Va::new(get(STARTS)), Va::new(get(ENDS)))?;
        Some(T::read(range, |n| get(KEPT + n)))
    }
    /// Writes all of range `i` but its gap.
    pub(super) fn set_range(&self, i: usize, new: &T) {
        self.set(STARTS, i, new.range().start().get());
        self.set(ENDS, i, new.range().end().get());
        (0..T::WORDS).for_each(|n| self.set(KEPT + n, i, new.word(n)));
    }
    /// Lets range `i`, which touches the next one, end at `to`, and that one begin there.
    pub(super) fn move_boundary(&self, i: usize, to: Va) {
        debug_assert_eq!((self.get(ENDS, i), self.gap(i + 1)), (self.start(i + 1), 0));
        self.set(ENDS, i, to.get());
        self.set(STARTS, i + 1, to.get());
    }
    /// Child `i` of an inner node. It is `None` where a reader that raced with a writer sees the
    /// count and not yet the child.
    pub(super) fn child(&self, i: usize) -> Option<Lot<WORDS>> {
        // Acquire: with the number comes what a node had to hold before readers could find it (M2).
        Lot::named(self.column(ENDS)[i].load(Ordering::Acquire))
    }
    pub(super) fn set_child(&self, i: usize, child: &Node<'m, T>) {
        self.set(ENDS, i, child.lot.name());
        self.sum_up(i, child);
    }
    /// Notes what there is below child `i` (ranges::M3). Says whether that is new.
    pub(super) fn sum_up(&self, i: usize, child: &Node<'m, T>) -> bool {
        let (start, gap) = child.sum();
        let is_new = (start, gap) != (self.start(i), self.gap(i));
        self.set(STARTS, i, start);
        self.set_gap(i, gap);
        is_new
    }

    /// Opens a place at `i`; the caller fills it.
    pub(super) fn open(&self, i: usize) {
        let len = self.len();
        for words in (0..self.columns()).map(|column| &self.column(column)[i..=len]) {
            let moves = words.iter().zip(&words[1..]).rev();
            moves.for_each(|(from, to)| to.store(from.load(Ordering::Relaxed), Ordering::Relaxed));
        }
        self.set_len(len + 1);
    }
    /// Closes the place of entry `i`.
    pub(super) fn close(&self, i: usize) {
        let (len, gap) = (self.len(), self.gap(i));
        for words in (0..self.columns()).map(|column| &self.column(column)[i..len]) {
            let moves = words.iter().zip(&words[1..]);
            moves.for_each(|(to, from)| to.store(from.load(Ordering::Relaxed), Ordering::Relaxed));
        }
        self.set_len(len - 1);
        self.forget_gap(gap);
    }
    /// Moves the upper half of the entries to the empty node `right`.
    pub(super) fn halve(&self, right: &Node<'m, T>) {
        let (len, keep) = (self.len(), self.len() / 2);
        for column in 0..self.columns() {
            (keep..len).for_each(|i| right.set(column, i - keep, self.get(column, i)));
        }
        right.set_len(len - keep);
        self.set_len(keep);
        [self, right].iter().for_each(|node| node.forget_gap(node.largest_gap()));
    }
}
