//! Huge pages that are worked on together.

use super::{Declined, Huge, Memmap, MemmapError};
use crate::frame::Claim;
use crate::stock::{Stock, words};
use crate::sync::Ordering;
use crate::table::Paging;
use core::fmt;
use core::ops::Range;
use foliant_machine::{Machine, Owner};

const INLINE: usize = 32;
const PER_FRAME: usize = 512;
const FRAMES: usize = (MAX - INLINE).div_ceil(PER_FRAME);
const MAX: usize = 2048;
/// Marks a page that the operation at work is about; above the bits of an order.
const CHOSEN: u64 = 1 << 7;
/// Marks a page that was given up.
const GONE: u64 = 1 << 6;

/// Up to [`MAX`](Batch::MAX) huge pages, of any sizes. The first few fit into the value itself, so
/// that a batch can be made also where there is no memory. For more it takes frames of the manager,
/// which are given back when it is dropped.
///
/// Pages that are still in a dropped batch are leaked.
pub struct Batch<'a, 'm, M: Machine, P: Paging> {
    stock: &'a Stock<'m, M, P>,
    inline: [u64; INLINE],
    frames: [Option<Claim>; FRAMES],
    len: usize,
}

impl<'a, 'm, M: Machine, P: Paging> Batch<'a, 'm, M, P> {
    /// How many pages it holds at most, so that one flush holds up a bounded number.
    pub const MAX: usize = MAX;

    /// An empty batch.
    pub fn new(memmap: &Memmap<'a, 'm, M, P>) -> Self {
        Batch { stock: memmap.stock, inline: [0; INLINE], frames: [const { None }; FRAMES], len: 0 }
    }
    /// How many pages are in it.
    #[allow(clippy::len_without_is_empty)] // `len` says it
    pub fn len(&self) -> usize {
        self.len
    }
    /// Adds a page. The page comes back where the batch is full, or where it cannot grow for lack
    /// of memory: work it off first. A page of another manager comes back, too.
    pub fn push(&mut self, huge: Huge) -> Result<(), Declined> {
        if huge.brand() != self.stock.brand() {
            let why = MemmapError::Foreign(huge.head());
            return Err(Declined { huge, why });
        }
        if self.len == MAX || !self.grow() {
            return Err(Declined { huge, why: MemmapError::Full });
        }
        self.len += 1;
        self.put(self.len - 1, huge.word());
        Ok(())
    }
    /// Takes the last page out.
    pub fn pop(&mut self) -> Option<Huge> {
        self.len = self.len.checked_sub(1)?;
        Some(self.at(self.len))
    }
    /// The pages, to look at, first to last.
    pub fn each(&self, mut see: impl FnMut(&Huge)) {
        (0..self.len).for_each(|nth| see(&self.at(nth)));
    }

    /// The page at a place, to work on. The token stays the batch's: the caller does not keep it.
    pub(super) fn at(&self, nth: usize) -> Huge {
        Huge::from_word(self.stock.brand(), self.word(nth) & !(CHOSEN | GONE))
    }
    /// Chooses the pages for which `fits` says so, and says how many they are.
    pub(super) fn choose(&mut self, mut fits: impl FnMut(&Huge) -> bool) -> usize {
        let mut count = 0;
        for nth in 0..self.len {
            let huge = self.at(nth);
            let chosen = fits(&huge);
            count += usize::from(chosen);
            self.put(nth, huge.word() | if chosen { CHOSEN } else { 0 });
        }
        count
    }
    /// Takes the page at a place out of the choice.
    pub(super) fn spare(&mut self, nth: usize) {
        self.put(nth, self.word(nth) & !CHOSEN);
    }
    /// The chosen pages of a part.
    pub(super) fn chosen(&self, part: Range<usize>) -> impl Iterator<Item = Huge> {
        part.filter(|nth| self.is_chosen(*nth)).map(|nth| self.at(nth))
    }
    /// Whether the page at a place is chosen.
    pub(super) fn is_chosen(&self, nth: usize) -> bool {
        self.word(nth) & CHOSEN != 0
    }
    /// Marks the page at a place as given up: it is the batch's no more, and chosen no more.
    pub(super) fn gone(&mut self, nth: usize) {
        self.put(nth, self.word(nth) & !CHOSEN | GONE);
    }
    /// Closes the gaps that such pages leave.
    pub(super) fn forget_gone(&mut self) {
        let mut kept = 0;
        for nth in 0..self.len {
            if self.word(nth) & GONE == 0 {
                self.put(kept, self.word(nth));
                kept += 1;
            }
        }
        self.len = kept;
    }
    /// The parts that are worked off with a flush of their own.
    pub(super) fn parts(&self, grain: usize) -> impl Iterator<Item = Range<usize>> + use<M, P> {
        let len = self.len;
        (0..len).step_by(grain).map(move |first| first..len.min(first + grain))
    }

    fn grow(&mut self) -> bool {
        let Some(nth) = self.len.checked_sub(INLINE).map(|at| at / PER_FRAME) else { return true };
        if self.frames[nth].is_none() {
            self.frames[nth] = self.stock.claim_cleared(Owner::Records).ok();
        }
        self.frames[nth].is_some()
    }
    fn put(&mut self, nth: usize, word: u64) {
        match nth.checked_sub(INLINE) {
            None => self.inline[nth] = word,
            Some(at) => self.far(at).store(word, Ordering::Relaxed),
        }
    }
    fn word(&self, nth: usize) -> u64 {
        match nth.checked_sub(INLINE) {
            None => self.inline[nth],
            Some(at) => self.far(at).load(Ordering::Relaxed),
        }
    }
    fn far(&self, at: usize) -> &'m crate::sync::AtomicU64 {
        let frame = self.frames[at / PER_FRAME].as_ref();
        let frame = frame.expect("the batch grew before it was filled").frame();
        &words(self.stock.machine, frame.pa())[at % PER_FRAME]
    }
}

impl<M: Machine, P: Paging> Drop for Batch<'_, '_, M, P> {
    fn drop(&mut self) {
        for frame in self.frames.iter_mut().filter_map(Option::take) {
            self.stock.release(frame);
        }
    }
}

impl<M: Machine, P: Paging> fmt::Debug for Batch<'_, '_, M, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..self.len).map(|nth| self.at(nth))).finish()
    }
}
