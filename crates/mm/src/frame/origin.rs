//! Where a folio was born: what its descriptor says about who may map it.
//!
//! ```text
//!   word 4   family (40) │ index, low 24 bits        the frame of the family's record
//!   word 5   birth (40)  │ index, high 24 bits       the frame of the space that it was made in
//! ```
//!
//! An index is a page number modulo 2^48: the page of the address at which the folio's first page was born. Addresses and
//! indices differ by the area's shift, which is nothing until the area is moved (`rmap`).

use core::fmt;
use foliant_units::{FRAME_BYTES, Frame, Pages, Va};

const BITS: u32 = 48;
const MASK: u64 = (1 << BITS) - 1;
const LOW: u32 = 24;

/// The page at which a page was born, of its family's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Index(u64);

/// What is added to a page number to have its index.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Shift(u64);

impl Shift {
    /// Of an area that was never moved.
    pub(crate) const NONE: Shift = Shift(0);

    /// The shift with which what has this one at `from` keeps its indices at `to`.
    pub(crate) const fn moved(self, from: Va, to: Va) -> Shift {
        let pages = (from.get() / FRAME_BYTES).wrapping_sub(to.get() / FRAME_BYTES);
        Shift(self.0.wrapping_add(pages) & MASK)
    }
    /// As a number of 48 bits.
    pub(crate) const fn word(self) -> u64 {
        self.0
    }
    pub(crate) const fn from_word(word: u64) -> Shift {
        Shift(word & MASK)
    }
}

impl fmt::Debug for Shift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signed = (self.0 << (64 - BITS)) as i64 >> (64 - BITS);
        write!(f, "Shift({signed})")
    }
}

impl Index {
    /// Of the page at `va` in an area with `shift`.
    pub(crate) const fn of(va: Va, shift: Shift) -> Index {
        Index((va.get() / FRAME_BYTES).wrapping_add(shift.0) & MASK)
    }
    /// Where it is in an area with `shift`. It need not be an address of the user half.
    pub(crate) const fn at(self, shift: Shift) -> Va {
        Va::new((self.0.wrapping_sub(shift.0) & MASK) * FRAME_BYTES)
    }
    /// The index so many pages further on.
    pub(crate) const fn add(self, pages: Pages) -> Index {
        Index(self.0.wrapping_add(pages.get()) & MASK)
    }
}

/// See the module's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    /// The family all of whose spaces may map it.
    pub(crate) family: Frame,
    /// The space of that family that had it first; it may have ended.
    pub(crate) birth: Frame,
    /// Of its first page.
    pub(crate) index: Index,
}

impl Origin {
    /// As it stands in words 4 and 5.
    pub(crate) const fn words(self) -> [u64; 2] {
        let (low, high) = (self.index.0 & ((1 << LOW) - 1), self.index.0 >> LOW);
        [self.family.get() << LOW | low, self.birth.get() << LOW | high]
    }
    pub(crate) const fn from_words(words: [u64; 2]) -> Origin {
        let (low, high) = (words[0] & ((1 << LOW) - 1), words[1] & ((1 << LOW) - 1));
        Origin {
            family: Frame::new(words[0] >> LOW),
            birth: Frame::new(words[1] >> LOW),
            index: Index(low | high << LOW),
        }
    }
    /// Of the piece of the folio that begins so many pages further on.
    pub(crate) const fn piece(self, pages: Pages) -> Origin {
        Origin { index: self.index.add(pages), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_tells_back_what_it_was_made_of() {
        for (family, birth, va) in
            [(0, 0, 0), (7, (1 << 40) - 1, (1 << 56) - 4096), (1 << 39, 1, 1 << 47), (3, 3, 0)]
        {
            let index = Index::of(Va::new(va), Shift::NONE);
            let origin = Origin { family: Frame::new(family), birth: Frame::new(birth), index };
            assert_eq!(Origin::from_words(origin.words()), origin);
            assert_eq!(origin.index.at(Shift::NONE), Va::new(va));
        }
    }

    #[test]
    fn a_move_keeps_indices_in_both_directions() {
        let (low, high) = (Va::new(0x1_0000), Va::new((1 << 56) - (4 << 20)));
        for (from, to) in [(low, high), (high, low)] {
            let shift = Shift::NONE.moved(from, to);
            assert_eq!(Index::of(to, shift), Index::of(from, Shift::NONE));
            assert_eq!(Index::of(from, Shift::NONE).at(shift), to);
            assert_eq!(shift.moved(to, from), Shift::NONE, "back where it was");
            assert_eq!(Shift::from_word(shift.word()), shift);
        }
    }
}
