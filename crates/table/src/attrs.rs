//! What a word says, in words of no format: attributes, entries, software words.

use core::{fmt, ops};
use foliant_units::{Level, Pa, Va};

/// What a leaf permits, what was done through it, and what the manager notes on it.
///
/// A leaf is always readable: where nothing may be accessed there is no leaf but a [`Soft`] word.
/// The numbers are such that x86-64 takes most of them over by a mask (`x86_64`); other formats
/// translate one by one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Attrs(u16);

impl Attrs {
    /// Nothing: kernel memory, read only.
    pub const NONE: Attrs = Attrs(0);
    /// Stores are allowed.
    pub const WRITE: Attrs = Attrs(1 << 1);
    /// Instruction fetches are allowed, in user mode where `USER` is set, else in kernel mode.
    pub const EXEC: Attrs = Attrs(1 << 0);
    /// User mode may access it.
    pub const USER: Attrs = Attrs(1 << 2);
    /// The translation is the same in every address space.
    pub const GLOBAL: Attrs = Attrs(1 << 8);
    /// It was used since the bit was cleared.
    pub const ACCESSED: Attrs = Attrs(1 << 5);
    /// It was written since the bit was cleared.
    pub const DIRTY: Attrs = Attrs(1 << 6);
    /// Device memory: uncached, strongly ordered.
    pub const DEVICE: Attrs = Attrs(1 << 3);
    /// Software: the folio is this space's alone, so that a write fault need not copy it.
    pub const EXCLUSIVE: Attrs = Attrs(1 << 9);
    /// Software: written since the tracker last cleared the bit.
    pub const SOFT_DIRTY: Attrs = Attrs(1 << 10);
    /// Software: write-protected for a user-mode fault handler.
    pub const UFFD_WP: Attrs = Attrs(1 << 11);
    /// Software: present but not owned, as the shared zero page.
    pub const SPECIAL: Attrs = Attrs(1 << 12);
    /// The word belongs to a group that hardware may cache as one
    /// ([`Paging::group`](super::Paging)). Set by the map operation, never by its caller.
    pub const GROUPED: Attrs = Attrs(1 << 4);
    /// What walkers set on their own: accessed and dirty.
    pub const TOUCHED: Attrs = Attrs::ACCESSED.with(Attrs::DIRTY);

    /// What is in either.
    #[inline]
    pub const fn with(self, more: Attrs) -> Attrs {
        Attrs(self.0 | more.0)
    }
    /// What is here and not in `less`.
    #[inline]
    pub const fn without(self, less: Attrs) -> Attrs {
        Attrs(self.0 & !less.0)
    }
    /// What is in both.
    #[inline]
    pub const fn and(self, mask: Attrs) -> Attrs {
        Attrs(self.0 & mask.0)
    }
    /// Whether all of `all` is set.
    #[inline]
    pub const fn has(self, all: Attrs) -> bool {
        self.0 & all.0 == all.0
    }
    /// All of them.
    const ALL: u16 = 0x1f7f;
    /// How many bits the numbers reach over.
    pub const BITS: u32 = u16::BITS - Attrs::ALL.leading_zeros();

    /// The bits; the manager's own numbering.
    #[inline]
    pub const fn bits(self) -> u16 {
        self.0
    }
    /// The attributes with these [`bits`](Attrs::bits); unknown ones are dropped.
    #[inline]
    pub const fn from_bits(bits: u16) -> Attrs {
        Attrs(bits & Attrs::ALL)
    }
    /// `bit` where this set has all of `attr`, else 0.
    #[inline]
    pub(super) const fn pick(self, attr: Attrs, bit: u64) -> u64 {
        if self.has(attr) { bit } else { 0 }
    }
    /// With `attr` where `word` has any of `bit`.
    #[inline]
    pub(super) const fn learn(self, attr: Attrs, word: u64, bit: u64) -> Attrs {
        if word & bit != 0 { self.with(attr) } else { self }
    }
}

impl ops::BitOr for Attrs {
    type Output = Attrs;
    fn bitor(self, more: Attrs) -> Attrs {
        self.with(more)
    }
}

impl fmt::Debug for Attrs {
    /// One letter per attribute, `-` where clear.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = [
            (Attrs::WRITE, 'w'),
            (Attrs::EXEC, 'x'),
            (Attrs::USER, 'u'),
            (Attrs::GLOBAL, 'g'),
            (Attrs::ACCESSED, 'a'),
            (Attrs::DIRTY, 'd'),
            (Attrs::DEVICE, 'D'),
            (Attrs::EXCLUSIVE, 'e'),
            (Attrs::SOFT_DIRTY, 's'),
            (Attrs::UFFD_WP, 'p'),
            (Attrs::SPECIAL, 'z'),
            (Attrs::GROUPED, 'G'),
        ];
        for (attr, letter) in letters {
            let letter = if self.has(attr) { letter } else { '-' };
            write!(f, "{letter}")?;
        }
        Ok(())
    }
}

/// The index of a word in its table, 0 to 511.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct Slot(u16);

impl Slot {
    /// The first word.
    pub const FIRST: Slot = Slot(0);

    /// Word `n`, or `None` from 512 on.
    #[inline]
    pub const fn new(n: usize) -> Option<Slot> {
        if n < Level::ENTRIES { Some(Slot(n as u16)) } else { None }
    }
    /// The word of a table of `level` entries that translates `va`.
    #[inline]
    pub const fn of(va: Va, level: Level) -> Slot {
        Slot((va.get() >> (12 + 9 * level.0 as u32)) as u16 & 511)
    }
    /// The index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
    /// The aligned unit of so many words that it lies in.
    pub(super) fn unit(self, words: usize) -> Slots {
        let first = Slot::wrap(self.index() / words * words);
        Slots::new(first, words).expect("a power of two, and no more than a table has")
    }
    /// `n` modulo 512: for loops whose bound is the table.
    #[inline]
    pub(super) const fn wrap(n: usize) -> Slot {
        Slot(n as u16 & 511)
    }
}

/// Consecutive words of one table, at least one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slots {
    first: Slot,
    count: u16,
}

impl Slots {
    /// All of a table.
    pub const ALL: Slots = Slots { first: Slot::FIRST, count: Level::ENTRIES as u16 };

    /// `count` words from `first` on, or `None` where there are not so many, or none.
    #[inline]
    pub const fn new(first: Slot, count: usize) -> Option<Slots> {
        if count == 0 || count > Level::ENTRIES - first.index() {
            return None;
        }
        Some(Slots { first, count: count as u16 })
    }
    /// One alone.
    #[inline]
    pub const fn one(slot: Slot) -> Slots {
        Slots { first: slot, count: 1 }
    }
    /// The first.
    #[inline]
    pub const fn first(self) -> Slot {
        self.first
    }
    /// How many.
    #[allow(clippy::len_without_is_empty)] // never empty
    #[inline]
    pub const fn len(self) -> usize {
        self.count as usize
    }
    /// The slots, lowest first.
    #[inline]
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Slot> {
        (self.first.0..self.first.0 + self.count).map(Slot)
    }
    /// The nth of them, counted from 0; it lies inside.
    #[inline]
    pub fn nth(self, nth: usize) -> Slot {
        debug_assert!(nth < self.len(), "a slot inside");
        Slot::wrap(self.first.index() + nth)
    }
    /// The part from word `skip` on, of `count` words; both lie inside.
    #[inline]
    pub(super) fn part(self, skip: usize, count: usize) -> Slots {
        Slots::new(Slot::wrap(self.first.index() + skip), count).expect("a part of the slots")
    }
}

/// What one word says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Nothing: the word is 0.
    None,
    /// It maps the block at `pa`, whose size is the level's span.
    Leaf {
        /// The first byte that this very word maps.
        pa: Pa,
        /// How.
        attrs: Attrs,
    },
    /// It points to a table of the next lower level.
    Table(Pa),
    /// It is not present to the hardware, and says something to the manager.
    Soft(Soft),
}

/// A word that the hardware takes for not present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Soft {
    /// What it stands for.
    pub kind: SoftKind,
    /// What it names; up to [`Soft::PAYLOAD_BITS`] bits.
    pub payload: u64,
}

/// What a word that is not present stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SoftKind {
    /// An access here is an error of the program, whatever the area says.
    Guard = 1,
    /// A note for the fault handler (as: write-protected before it existed).
    Marker = 2,
    /// The folio of the leaf in the payload is being split or moved: a fault waits.
    Migration = 3,
    /// The leaf named by the payload is being changed by break and mend: a fault waits.
    Breaking = 4,
    /// Another word of the manager's users.
    Other = 5,
    /// An access here finds broken memory, whatever the area says.
    Poison = 6,
}

impl Soft {
    /// How many bits a payload has.
    pub const PAYLOAD_BITS: u32 = 58;
    const FRAME_BITS: u32 = 44;

    /// The word. Bit 0 is clear: in every format that makes it not present and leaves the others
    /// free.
    ///
    /// ```text
    ///   63                                6 5      1 0
    ///   [            payload (58)          ][ kind  ][0]
    /// ```
    #[inline]
    pub const fn word(self) -> u64 {
        self.payload << 6 | (self.kind as u64) << 1
    }
    /// Reads a word that is not present and not 0. Kinds that nobody writes read as `Other`.
    #[inline]
    pub(super) const fn read(word: u64) -> Soft {
        let kind = match word >> 1 & 31 {
            1 => SoftKind::Guard,
            2 => SoftKind::Marker,
            3 => SoftKind::Migration,
            4 => SoftKind::Breaking,
            6 => SoftKind::Poison,
            _ => SoftKind::Other,
        };
        Soft { kind, payload: word >> 6 }
    }
    const fn leaf(kind: SoftKind, pa: Pa, attrs: Attrs) -> Soft {
        let frame = pa.frame().get();
        let payload = frame | (attrs.bits() as u64) << Soft::FRAME_BITS;
        Soft { kind, payload }
    }
    const fn read_leaf(self) -> (Pa, Attrs) {
        let frame = self.payload & ((1 << Soft::FRAME_BITS) - 1);
        let attrs = Attrs::from_bits((self.payload >> Soft::FRAME_BITS) as u16);
        (Pa::new(frame << 12), attrs)
    }
    /// A leaf taken out of use for the time of a flush, with what it maps.
    #[inline]
    pub const fn breaking(pa: Pa, attrs: Attrs) -> Soft {
        Soft::leaf(SoftKind::Breaking, pa, attrs)
    }
    /// A leaf taken out of use until its folio is where it goes, with what it maps.
    #[inline]
    pub const fn migration(pa: Pa, attrs: Attrs) -> Soft {
        Soft::leaf(SoftKind::Migration, pa, attrs)
    }
    /// What a leaf in the making maps: the inverse of `breaking`.
    #[inline]
    pub const fn broken_leaf(self) -> Option<(Pa, Attrs)> {
        match self.kind {
            SoftKind::Breaking => Some(self.read_leaf()),
            _ => None,
        }
    }
    /// What a leaf on its way maps: the inverse of `migration`.
    #[inline]
    pub const fn migrating_leaf(self) -> Option<(Pa, Attrs)> {
        match self.kind {
            SoftKind::Migration => Some(self.read_leaf()),
            _ => None,
        }
    }
    /// Whether the word has an owner, which is at work on the leaf that the word stands for: nobody
    /// else replaces it, and a CPU that meets it waits.
    #[inline]
    pub const fn is_waited_for(self) -> bool {
        matches!(self.kind, SoftKind::Breaking | SoftKind::Migration)
    }
}

const _: () = assert!(Soft::FRAME_BITS + Attrs::BITS <= Soft::PAYLOAD_BITS);
