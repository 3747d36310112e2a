//! Where a folio was made: the words of its descriptor that say which spaces may map it.
//!
//! ```text
//!   word 4   tree (40)    │ index, low 24 bits        the frame of the fork tree's record
//!   word 5   creator (40) │ index, high 24 bits       the frame of the space that it was made in
//! ```
//!
//! An index is a page number modulo 2^46: the page of the address at which the folio's first page
//! was made. Addresses and indices differ by the area's offset, which is zero until the area is
//! moved (`rmap`).

use core::fmt;
use foliant_units::{FRAME_BYTES, Frame, Pages, Va};

const BITS: u32 = 46;
const MASK: u64 = (1 << BITS) - 1;
const LOW: u32 = 24;
// The pages of the largest user half, and how far they can be moved either way.
const _: () = assert!(BITS > 56 - FRAME_BYTES.ilog2());

/// The page number at which a page was made, among the addresses of its fork tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Index(u64);

/// The number that is added to a page number to have its index.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct AnonOffset(u64);

impl AnonOffset {
    /// How many bits of a word it takes.
    pub(crate) const BITS: u32 = BITS;
    /// Of an area that was never moved.
    pub(crate) const NONE: AnonOffset = AnonOffset(0);

    /// The offset with which pages that have this one at `from` keep their indices when they are
    /// moved to `to`.
    pub(crate) const fn moved(self, from: Va, to: Va) -> AnonOffset {
        let pages = (from.get() / FRAME_BYTES).wrapping_sub(to.get() / FRAME_BYTES);
        AnonOffset(self.0.wrapping_add(pages) & MASK)
    }
    /// With which the page at `va` has this index.
    pub(crate) const fn between(va: Va, index: Index) -> AnonOffset {
        AnonOffset(index.0.wrapping_sub(va.get() / FRAME_BYTES) & MASK)
    }
    /// As a number of [`BITS`](AnonOffset::BITS) bits.
    pub(crate) const fn word(self) -> u64 {
        self.0
    }
    pub(crate) const fn from_word(word: u64) -> AnonOffset {
        AnonOffset(word & MASK)
    }
}

impl fmt::Debug for AnonOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signed = (self.0 << (64 - BITS)) as i64 >> (64 - BITS);
        write!(f, "AnonOffset({signed})")
    }
}

impl Index {
    /// Of the page at `va` in an area with `offset`.
    pub(crate) const fn of(va: Va, offset: AnonOffset) -> Index {
        Index((va.get() / FRAME_BYTES).wrapping_add(offset.0) & MASK)
    }
    /// Of the page with this number of an object.
    pub(crate) const fn of_object(page: u64) -> Index {
        Index(page & MASK)
    }
    /// Where it is in an area with `offset`. It need not be an address of the user half.
    pub(crate) const fn at(self, offset: AnonOffset) -> Va {
        Va::new((self.0.wrapping_sub(offset.0) & MASK) * FRAME_BYTES)
    }
    /// The number of the page, of an object.
    pub(crate) const fn page(self) -> u64 {
        self.0
    }
    /// The index so many pages further on.
    pub(crate) const fn add(self, pages: Pages) -> Index {
        Index(self.0.wrapping_add(pages.get()) & MASK)
    }
}

/// See the module's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    /// The fork tree all of whose spaces may map it.
    pub(crate) tree: Frame,
    /// The space of that fork tree that had it first; it may have ended.
    pub(crate) creator: Frame,
    /// The index of its first page.
    pub(crate) index: Index,
}

impl Origin {
    /// As it stands in words 4 and 5.
    pub(crate) const fn words(self) -> [u64; 2] {
        let (low, high) = (self.index.0 & ((1 << LOW) - 1), self.index.0 >> LOW);
        [self.tree.get() << LOW | low, self.creator.get() << LOW | high]
    }
    pub(crate) const fn from_words(words: [u64; 2]) -> Origin {
        let (low, high) = (words[0] & ((1 << LOW) - 1), words[1] & ((1 << LOW) - 1));
        Origin {
            tree: Frame::new(words[0] >> LOW),
            creator: Frame::new(words[1] >> LOW),
            index: Index(low | high << LOW),
        }
    }
    /// The origin of the piece of the folio that begins so many pages further on.
    pub(crate) const fn piece(self, pages: Pages) -> Origin {
        Origin { index: self.index.add(pages), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_tells_back_what_it_was_made_of() {
        for (tree, creator, va) in
            [(0, 0, 0), (7, (1 << 40) - 1, (1 << 56) - 4096), (1 << 39, 1, 1 << 47), (3, 3, 0)]
        {
            let index = Index::of(Va::new(va), AnonOffset::NONE);
            let origin = Origin { tree: Frame::new(tree), creator: Frame::new(creator), index };
            assert_eq!(Origin::from_words(origin.words()), origin);
            assert_eq!(origin.index.at(AnonOffset::NONE), Va::new(va));
        }
    }

    #[test]
    fn a_move_keeps_indices_in_both_directions() {
        let (low, high) = (Va::new(0x1_0000), Va::new((1 << 56) - (4 << 20)));
        for (from, to) in [(low, high), (high, low)] {
            let offset = AnonOffset::NONE.moved(from, to);
            assert_eq!(Index::of(to, offset), Index::of(from, AnonOffset::NONE));
            assert_eq!(Index::of(from, AnonOffset::NONE).at(offset), to);
            assert_eq!(offset.moved(to, from), AnonOffset::NONE, "back where it was");
            assert_eq!(AnonOffset::from_word(offset.word()), offset);
        }
    }
}
