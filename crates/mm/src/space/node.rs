#![allow(unsafe_code)]
//! One node of the area tree: a frame of words.
//!
//! ```text
//!   word 0        entries, and bit 32: inner
//!   leaf          1 + 4 i:  start, end, flags and offset, tag  up to 127 areas
//!   inner         1 + 3 i:  lower bound, child frame, largest gap below   up to 170 children
//!   word 511      link in the list of spare nodes
//! ```
//!
//! A frame keeps its rank as long as it is a node. So the word in the place of a child's number has
//! always held the number of a node of this tree, or 0 where none was written yet (areas::A2).

use super::area::Area;
use crate::frame::Claim;
use crate::stock::Words;
use crate::sync::Ordering;
use foliant_units::{Bytes, Frame, Order, Va, VaRange};

const INNER: u64 = 1 << 32;
/// The word that links spare nodes.
pub(super) const LINK: usize = 511;
pub(super) const LEAF_MAX: usize = 127;
pub(super) const INNER_MAX: usize = 170;

/// A node and where it lies.
#[derive(Clone, Copy)]
pub(super) struct Node<'m> {
    pub(super) frame: Frame,
    words: &'m Words,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Rank {
    Leaf,
    Inner,
}

impl<'m> Node<'m> {
    pub(super) fn new(frame: Frame, words: &'m Words) -> Node<'m> {
        Node { frame, words }
    }
    fn get(&self, word: usize) -> u64 {
        self.words[word].load(Ordering::Relaxed)
    }
    fn set(&self, word: usize, value: u64) {
        self.words[word].store(value, Ordering::Relaxed);
    }
    /// Makes it an empty node. Its rank is the one that it has, if it was a node before.
    pub(super) fn begin(&self, rank: Rank) {
        self.set(0, if rank == Rank::Inner { INNER } else { 0 });
    }
    pub(super) fn rank(&self) -> Rank {
        if self.get(0) & INNER != 0 { Rank::Inner } else { Rank::Leaf }
    }
    /// How many entries it has: never more than fit, whatever a reader that raced with a writer
    /// finds.
    pub(super) fn len(&self) -> usize {
        ((self.get(0) & 0xffff) as usize).min(self.max())
    }
    fn max(&self) -> usize {
        if self.rank() == Rank::Inner { INNER_MAX } else { LEAF_MAX }
    }
    /// Whether so many more entries fit in.
    pub(super) fn has_room(&self, more: usize) -> bool {
        self.len() + more <= self.max()
    }
    pub(super) fn is_full(&self) -> bool {
        self.len() == self.max()
    }
    fn width(&self) -> usize {
        if self.rank() == Rank::Inner { 3 } else { 4 }
    }
    fn set_len(&self, len: usize) {
        self.set(0, self.get(0) & INNER | len as u64);
    }

    /// The start of area `i`, or the lower bound of child `i`.
    pub(super) fn key(&self, i: usize) -> u64 {
        self.get(1 + i * self.width())
    }
    /// How many keys are at most `va`.
    pub(super) fn position(&self, va: Va) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = (low + high) / 2;
            if self.key(middle) <= va.get() { low = middle + 1 } else { high = middle }
        }
        low
    }
    pub(super) fn area(&self, i: usize) -> Option<Area> {
        let at = 1 + 4 * i;
        // Where a concurrent writer tore it, it may be no range; the reader then reads again.
        let range = VaRange::new(Va::new(self.get(at)), Va::new(self.get(at + 1)))?;
        Some(Area::read(range, self.get(at + 2), self.get(at + 3)))
    }
    pub(super) fn set_area(&self, i: usize, area: &Area) {
        let at = 1 + 4 * i;
        self.set(at, area.range.start().get());
        self.set(at + 1, area.range.end().get());
        self.set(at + 2, area.word());
        self.set(at + 3, area.tag);
    }
    /// The frame of child `i`. It is `None` where a reader that raced with a writer sees the count
    /// and not yet the child.
    pub(super) fn child(&self, i: usize) -> Option<Frame> {
        match self.get(2 + 3 * i) {
            0 => None,
            frame => Some(Frame::new(frame)),
        }
    }
    pub(super) fn set_child(&self, i: usize, bound: u64, child: Frame) {
        self.set(1 + 3 * i, bound);
        self.set(2 + 3 * i, child.get());
    }
    /// The largest gap below child `i` (gaps::G1).
    pub(super) fn gap(&self, i: usize) -> Bytes {
        Bytes::new(self.get(3 + 3 * i))
    }
    pub(super) fn set_gap(&self, i: usize, gap: Bytes) {
        self.set(3 + 3 * i, gap.get());
    }

    /// Opens a gap at `i`; the caller fills it.
    pub(super) fn open(&self, i: usize) {
        let (len, width) = (self.len(), self.width());
        for word in (1 + i * width..1 + len * width).rev() {
            self.set(word + width, self.get(word));
        }
        self.set_len(len + 1);
    }
    /// Closes entry `i`.
    pub(super) fn close(&self, i: usize) {
        let (len, width) = (self.len(), self.width());
        for word in 1 + (i + 1) * width..1 + len * width {
            self.set(word - width, self.get(word));
        }
        self.set_len(len - 1);
    }
    /// Moves the upper half of the entries to the empty node `right`; returns its lower bound.
    pub(super) fn halve(&self, right: &Node<'m>) -> u64 {
        let (len, width) = (self.len(), self.width());
        let keep = len / 2;
        right.begin(self.rank());
        for word in 0..(len - keep) * width {
            right.set(1 + word, self.get(1 + keep * width + word));
        }
        right.set_len(len - keep);
        self.set_len(keep);
        right.key(0)
    }

    /// The claim of a node that is in the tree no more. Readers that raced with the writer may
    /// still look at it, so it becomes another node of its tree or is given back when no reader is
    /// left (areas::A2).
    pub(super) const fn retire(self) -> Claim {
        // SAFETY: a node is a claim that became a record (`Areas::node`), and it left its tree.
        unsafe { Claim::from_raw(self.frame, Order::BASE) }
    }
}
