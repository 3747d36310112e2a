//! A vma: an area as Linux has it.
//!
//! ```text
//!   tag   marks (16) │ colour (2) │ policy (6) │ family (20) │ displacement, or view of a file (20)
//! ```
//!
//! The marks are what Linux keeps in an area's flags and the manager has no word for. The last
//! three are numbers of what the process knows, and decide which neighbours are one. The colour
//! tells neighbours apart that are equal in all else and two to Linux all the same (`join`).

use foliant::space::{Area, Flags};
use foliant_units::VaRange;
use linux_raw_sys::general::{PROT_EXEC, PROT_READ, PROT_WRITE};

/// What Linux knows of a vma beside what the manager does, as a set of bits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Marks(u32);

impl Marks {
    /// None.
    pub const NONE: Marks = Marks(0);
    /// Reading was not asked for. The processor allows it where writing or executing is allowed.
    pub const UNREAD: Marks = Marks(1);
    /// Its memory is not promised: `MAP_NORESERVE`.
    pub const NO_RESERVE: Marks = Marks(1 << 1);
    /// Its memory is promised, as it may be or was written.
    pub const ACCOUNTED: Marks = Marks(1 << 2);
    /// A fault below it extends it downwards: `MAP_GROWSDOWN`.
    pub const GROWS_DOWN: Marks = Marks(1 << 3);
    /// Its pages stay: `mlock`.
    pub const LOCKED: Marks = Marks(1 << 4);
    /// Of a locked one: pages are not brought ahead.
    pub const ON_FAULT: Marks = Marks(1 << 5);
    /// A fork leaves it out: `MADV_DONTFORK`.
    pub const DONT_FORK: Marks = Marks(1 << 6);
    /// A fork leaves its contents out: `MADV_WIPEONFORK`.
    pub const WIPE_ON_FORK: Marks = Marks(1 << 7);
    /// Not in a core dump: `MADV_DONTDUMP`.
    pub const DONT_DUMP: Marks = Marks(1 << 8);
    /// Read from its start to its end: `MADV_SEQUENTIAL`.
    pub const SEQUENTIAL: Marks = Marks(1 << 9);
    /// Read here and there: `MADV_RANDOM`.
    pub const RANDOM: Marks = Marks(1 << 10);
    /// May be dropped when memory is short: `MAP_DROPPABLE`.
    pub const DROPPABLE: Marks = Marks(1 << 11);
    /// What is soft dirty of it says its entries: it was there when that was cleared last.
    pub const CLEAN: Marks = Marks(1 << 12);
    /// It stays as it is: `mseal`.
    pub const SEALED: Marks = Marks(1 << 13);
    /// Of one that maps a file: guards are or were in it, or it counts as if they were, and a fork
    /// copies what is mapped there.
    pub(crate) const GUARDED: Marks = Marks(1 << 14);
    /// Neighbours are one whether they have these or not.
    pub(crate) const JOINED: Marks = Marks::CLEAN.with(Marks::GUARDED);
    /// How many bits there may be.
    const BITS: u32 = 16;

    /// Those of two neighbours that are one: it is clean where both are, and guarded where one is.
    pub(crate) const fn joined(self, other: Marks) -> Marks {
        let both = Marks(self.0 & other.0 & Marks::CLEAN.0);
        self.with(other).without(Marks::CLEAN).with(both)
    }
    /// Both sets together.
    pub const fn with(self, more: Marks) -> Marks {
        Marks(self.0 | more.0)
    }
    /// Without those of `less`.
    pub const fn without(self, less: Marks) -> Marks {
        Marks(self.0 & !less.0)
    }
    /// Whether all of `wanted` are set.
    pub const fn has(self, wanted: Marks) -> bool {
        self.0 & wanted.0 == wanted.0
    }
    /// Whether one of `wanted` is set.
    pub const fn has_any(self, wanted: Marks) -> bool {
        self.0 & wanted.0 != 0
    }
}

/// The number of a family; 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Family(pub(crate) u32);

/// How far a vma's pages were moved, as a number that its process knows; 0 is not at all. Of a vma
/// that maps a file: which view of it (`view`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(crate) struct Moved(pub(crate) u32);

/// The number of a vma's memory policy (`mbind`); 0 is none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Bound(pub(crate) u8);

impl Bound {
    const BITS: u32 = 6;
    /// The largest.
    pub(crate) const MAX: u8 = (1 << Bound::BITS) - 1;
}

/// What tells a vma from a neighbour that is equal in all else.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Colour(u8);

impl Colour {
    /// All of them: a vma has two neighbours at most.
    pub(crate) const ALL: [Colour; 3] = [Colour(0), Colour(1), Colour(2)];
    /// How many bits they take.
    const BITS: u32 = 2;
}

const _: () = assert!(Tag::FIRST + 2 * Tag::BITS <= u64::BITS);

/// See the module's text.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tag {
    /// What Linux knows beside.
    pub marks: Marks,
    pub(crate) colour: Colour,
    pub(crate) bound: Bound,
    pub(crate) family: Family,
    pub(crate) moved: Moved,
}

impl Tag {
    const BITS: u32 = 20;
    const BOUND: u32 = Marks::BITS + Colour::BITS;
    /// The first bit of the first of those of families and displacements.
    const FIRST: u32 = Tag::BOUND + Bound::BITS;
    /// The largest number that a family or a displacement can have.
    pub(crate) const NUMBER_MAX: u32 = (1 << Tag::BITS) - 1;

    /// As the manager keeps it.
    pub const fn word(self) -> u64 {
        let (family, moved) = (self.family.0 as u64, self.moved.0 as u64);
        let colour = (self.colour.0 as u64) << Marks::BITS;
        let bound = (self.bound.0 as u64) << Tag::BOUND;
        let numbers = bound | family << Tag::FIRST | moved << (Tag::FIRST + Tag::BITS);
        self.marks.0 as u64 | colour | numbers
    }
    /// From the manager.
    pub fn from_word(word: u64) -> Tag {
        let number = |word: u64| word as u32 & Tag::NUMBER_MAX;
        Tag {
            marks: Marks(word as u32 & ((1 << Marks::BITS) - 1)),
            colour: Colour((word >> Marks::BITS) as u8 & 3),
            bound: Bound((word >> Tag::BOUND) as u8 & Bound::MAX),
            family: Family(number(word >> Tag::FIRST)),
            moved: Moved(number(word >> (Tag::FIRST + Tag::BITS))),
        }
    }
}

/// An area as Linux has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vma {
    /// Its addresses.
    pub range: VaRange,
    /// What the manager knows of it.
    pub flags: Flags,
    /// What Linux knows beside.
    pub tag: Tag,
}

impl Vma {
    pub(crate) fn of(area: &Area) -> Vma {
        Vma { range: area.range, flags: area.flags, tag: Tag::from_word(area.tag) }
    }
    /// Whether the two are one where they touch, to the manager and so to the reader of areas.
    pub(crate) fn is_like(&self, other: &Vma) -> bool {
        (self.flags, self.tag) == (other.flags, other.tag)
    }
    /// Whether a child gets a copy of what is there: it was written, or guards are in it.
    pub(crate) fn is_copied(&self) -> bool {
        let marks = self.tag.marks;
        let has_own = self.tag.family != Family::default() || marks.has(Marks::GUARDED);
        has_own && !marks.has_any(Marks::WIPE_ON_FORK.with(Marks::DONT_FORK))
    }
    /// Its first address.
    pub fn start(&self) -> u64 {
        self.range.start().get()
    }
    /// The address behind its last.
    pub fn end(&self) -> u64 {
        self.range.end().get()
    }
    /// Its rights, as the program asked for them (`PROT_READ` and so on).
    pub fn prot(&self) -> u32 {
        let bit = |flag, prot| if self.flags.has(flag) { prot } else { 0 };
        let read = if self.tag.marks.has(Marks::UNREAD) { 0 } else { PROT_READ };
        bit(Flags::READ, read) | bit(Flags::WRITE, PROT_WRITE) | bit(Flags::EXEC, PROT_EXEC)
    }
    /// The same vma with other rights.
    pub(crate) fn with_prot(self, prot: u32) -> Vma {
        let (rights, unread) = rights(prot);
        let flags = self.flags.without(Flags::RIGHTS).with(rights);
        let marks = self.tag.marks.without(Marks::UNREAD).with(unread);
        Vma { flags, tag: Tag { marks, ..self.tag }, ..self }
    }
    /// Whether any access is allowed.
    pub(crate) fn is_accessible(&self) -> bool {
        self.prot() != 0
    }
    /// Whether it maps a file: memory with an identity of its own.
    pub fn is_of_file(&self) -> bool {
        self.flags.has(Flags::OBJECT)
    }
    /// Whether what is written there goes to its file.
    pub fn is_shared(&self) -> bool {
        self.flags.has(Flags::SHARED)
    }
    /// Whether a write makes a page there the process's own.
    pub(crate) fn takes_copies(&self) -> bool {
        self.flags.has(Flags::WRITE) && !self.is_shared()
    }
    /// Whether its pages are a pool's.
    pub(crate) fn is_huge(&self) -> bool {
        self.flags.huge_order().is_some()
    }
    /// Bytes of one of its pages.
    pub fn page_bytes(&self) -> u64 {
        self.flags.huge_order().map_or(crate::pages::PAGE, |order| order.bytes().get())
    }
    /// Whether a range of whole pages ends inside one of its own, a pool's then.
    pub(crate) fn is_cut_by(&self, start: u64, end: u64) -> bool {
        let ends = [self.start().max(start), self.end().min(end)];
        !ends.iter().all(|end| end.is_multiple_of(self.page_bytes()))
    }
}

/// The manager's rights for `prot`, and the mark that says that reading was not asked for.
pub(crate) fn rights(prot: u32) -> (Flags, Marks) {
    let bit = |wanted, flag| if prot & wanted != 0 { flag } else { Flags::NONE };
    let any = PROT_READ | PROT_WRITE | PROT_EXEC;
    let flags = bit(any, Flags::READ).with(bit(PROT_WRITE, Flags::WRITE));
    let flags = flags.with(bit(PROT_EXEC, Flags::EXEC));
    let is_unread = prot & any != 0 && prot & PROT_READ == 0;
    (flags, if is_unread { Marks::UNREAD } else { Marks::NONE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_tells_back_what_it_was_made_of() {
        for (marks, family, moved) in
            [(0, 0, 0), ((1 << Marks::BITS) - 1, 1, Tag::NUMBER_MAX), (1 << 11, Tag::NUMBER_MAX, 7)]
        {
            let colour = Colour(marks as u8 & 3);
            let bound = Bound(moved as u8 & Bound::MAX);
            let (marks, family, moved) = (Marks(marks), Family(family), Moved(moved));
            let tag = Tag { marks, colour, bound, family, moved };
            assert_eq!(Tag::from_word(tag.word()), tag);
        }
    }

    #[test]
    fn the_processor_reads_what_may_be_written_or_executed() {
        assert_eq!(rights(0), (Flags::NONE, Marks::NONE));
        assert_eq!(rights(PROT_READ), (Flags::READ, Marks::NONE));
        assert_eq!(rights(PROT_WRITE), (Flags::READ_WRITE, Marks::UNREAD));
        assert_eq!(rights(PROT_EXEC), (Flags::READ.with(Flags::EXEC), Marks::UNREAD));
        assert_eq!(rights(PROT_READ | PROT_WRITE), (Flags::READ_WRITE, Marks::NONE));
    }
}
