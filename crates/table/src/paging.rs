//! A page-table format, as pure data.

use super::attrs::{Attrs, Entry, Slot};
use core::fmt;
use foliant_units::{Bytes, Level, Pa, Va, VaRange};

/// Which half of the address space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Half {
    /// Addresses from 0 up.
    User,
    /// Addresses up to 2^64 - 1.
    Kernel,
}

/// How many top tables a CPU runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Roots {
    /// One for both halves: a user top table repeats the kernel's upper words.
    Shared,
    /// One per half.
    PerHalf,
}

/// A number of consecutive words that hardware may cache as one translation, a power of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    entries: u16,
}

impl Group {
    /// A group of `entries` words, a power of two.
    pub(super) const fn of(entries: u16) -> Group {
        assert!(entries.is_power_of_two() && entries > 1);
        Group { entries }
    }
    /// How many words.
    #[inline]
    pub const fn entries(self) -> usize {
        self.entries as usize
    }
    /// The bytes that a group of `level` words maps.
    #[inline]
    pub const fn span(self, level: Level) -> Bytes {
        Bytes::new(level.span().get() * self.entries as u64)
    }
}

/// One format of page tables: 512 words of 64 bits each, 9 bits of address per level.
///
/// Everything is a constant or a function of its arguments: the operations are written once, over
/// any `Paging`, with the level as a variable.
pub trait Paging: Copy + fmt::Debug + Send + Sync + 'static {
    /// What people call it.
    const NAME: &'static str;
    /// How many levels of tables.
    const LEVELS: u8;
    /// The highest level whose words may be leaves. Below the top: a word of the top table is a
    /// table or nothing, since the top table has no lock (table::I5).
    const LEAF_TOP: Level;
    /// log2 of the bytes of one half.
    const HALF_BITS: u32;
    /// log2 of the physical addresses that a word can hold.
    const PA_BITS: u32;
    /// How many top tables a CPU runs.
    const ROOTS: Roots;
    /// The bit of a table word that is the lock of the table it points to. Walkers ignore it.
    const LOCK: u64;
    /// The bits of a leaf that walkers change on their own.
    const UPDATED: u64;
    /// The attributes that a leaf of this format can hold. Others are dropped.
    const KEEPS: Attrs;

    /// The level of the top table's words.
    const TOP: Level = Level(Self::LEVELS - 1);

    /// The groups of leaves of `level`, where the format has them.
    fn group(level: Level) -> Option<Group>;
    /// How many words change as one with a leaf of `level` that has `attrs`: those of its group, or
    /// the one (table::I11).
    #[inline(always)]
    fn unit(level: Level, attrs: Attrs) -> usize {
        match Self::group(level) {
            Some(group) if attrs.has(Attrs::GROUPED) => group.entries(),
            _ => 1,
        }
    }
    /// `attrs` of the leaf in `slot`, with what walkers noted in any word of its group: in which
    /// one is theirs to choose. `read` gives the words of the table.
    #[inline(always)]
    fn noted(level: Level, slot: Slot, attrs: Attrs, read: impl Fn(Slot) -> u64) -> Attrs {
        match Self::unit(level, attrs) {
            1 => attrs,
            words => slot.unit(words).iter().fold(attrs, |all, slot| {
                match Self::decode(read(slot), level, slot) {
                    Entry::Leaf { attrs, .. } => all | attrs.and(Attrs::TOUCHED),
                    _ => all,
                }
            }),
        }
    }
    /// The word of a leaf of `level` that maps `pa`. With [`Attrs::GROUPED`] it is one of a group
    /// that contains `pa`.
    fn leaf(pa: Pa, level: Level, attrs: Attrs) -> u64;
    /// What is added to the word of a leaf that is not grouped, for the word that maps the next
    /// block.
    fn step(level: Level) -> u64;
    /// The word that points to the table at `pa`.
    fn table(pa: Pa) -> u64;
    /// What `word` says where it stands in `slot` of a table of `level` words.
    fn decode(word: u64, level: Level, slot: Slot) -> Entry;
    /// Whether walkers leave this leaf as it is from now on: there is no bit left that they set.
    fn is_final(word: u64) -> bool;

    /// The addresses of `half`, first and last.
    fn half(half: Half) -> (Va, Va) {
        match half {
            Half::User => (Va::new(0), Va::new((1 << Self::HALF_BITS) - 1)),
            Half::Kernel => (Va::new(!0 << Self::HALF_BITS), Va::new(!0)),
        }
    }
    /// The half that `va` lies in, or `None` where it is not canonical.
    fn half_of(va: Va) -> Option<Half> {
        match va.get() >> Self::HALF_BITS {
            0 => Some(Half::User),
            high if high == !0 >> Self::HALF_BITS => Some(Half::Kernel),
            _ => None,
        }
    }
    /// The first address of `range` outside `half`.
    fn outside(half: Half, range: VaRange) -> Option<Va> {
        let (first, last) = Self::half(half);
        if range.start() < first || range.start() > last {
            return Some(range.start());
        }
        if range.end().get() > 0 && range.end().get() - 1 > last.get() {
            return last.checked_add(1);
        }
        None
    }
}
