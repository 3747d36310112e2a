//! Numbers that C passes, and what they stand for.
//!
//! **Invariants**
//! - V1. A number is compared with each that has a meaning; no cast makes it an enum (C2).

use crate::refusal::Refusal;
use foliant::fault::Orders;
use foliant::folio;
use foliant::space::{self, Flags};
use foliant::table::{self, Attrs};
use foliant_units::{Bytes, Cpu, Frame, FrameRange, Level, Pages, Va, VaRange};

/// Frames of memory: `pages` of 4 KiB from frame number `first` on.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Range {
    /// The first frame's number: its physical address divided by 4096.
    pub first: u64,
    /// How many frames.
    pub pages: u64,
}

impl Range {
    #[cfg(test)]
    pub(crate) fn of(frames: &FrameRange) -> Range {
        Range { first: frames.start().get(), pages: frames.pages().get() }
    }
    pub(crate) fn frames(self) -> Result<FrameRange, Refusal> {
        let Range { first, pages } = self;
        FrameRange::new(Frame::new(first), Pages::new(pages))
            .ok_or(Refusal::Overflow { start: first, size: pages })
    }
}

/// How many ranges are taken at most.
pub(crate) const RANGES_MAX: usize = 64;

/// Ranges as C gives them.
pub(crate) struct Ranges {
    ranges: [FrameRange; RANGES_MAX],
    count: usize,
}

impl Ranges {
    /// Those of the array that C calls `what`.
    pub(crate) fn of(what: &'static str, given: &[Range]) -> Result<Ranges, Refusal> {
        let (mut ranges, count) = ([FrameRange::default(); RANGES_MAX], given.len());
        let (most, refused) = (RANGES_MAX as u64, count as u64);
        let too_many = Refusal::TooMany { what, count: refused, most };
        let places = ranges.get_mut(..count).ok_or(too_many)?;
        for (place, range) in places.iter_mut().zip(given) {
            *place = range.frames()?;
        }
        Ok(Ranges { ranges, count })
    }
    pub(crate) fn get(&self) -> &[FrameRange] {
        &self.ranges[..self.count]
    }
}

/// `bytes` of addresses from `va` on.
pub(crate) fn addresses(va: u64, bytes: u64) -> Result<VaRange, Refusal> {
    VaRange::sized(Va::new(va), Bytes::new(bytes))
        .ok_or(Refusal::Overflow { start: va, size: bytes })
}
/// The order of a block: 0 is 4 KiB, 9 is 2 MiB, 18 is 1 GiB.
pub(crate) fn order(order: u32) -> Result<foliant_units::Order, Refusal> {
    let known = u8::try_from(order).ok().and_then(foliant_units::Order::new);
    known.ok_or(Refusal::Value("order", u64::from(order)))
}
pub(crate) fn cpu(cpu: u32) -> Result<Cpu, Refusal> {
    u16::try_from(cpu).map(Cpu).map_err(|_| Refusal::Cpu(cpu))
}

/// Gives each variant of an enum for its number.
macro_rules! numbers {
    ($($read:ident: $name:ident { $($variant:ident => $means:expr),* $(,)? } -> $what:ty, $called:literal;)*) => {$(
        pub(crate) fn $read(number: u32) -> Result<$what, Refusal> {
            $(if number == $name::$variant as u32 {
                return Ok($means);
            })*
            Err(Refusal::Value($called, u64::from(number)))
        }
    )*};
}

/// The kind of memory that a small block is for. Kinds lie in blocks of 2 MiB of their own while
/// memory is plenty.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Its content can be moved elsewhere.
    Movable = 0,
    /// It stays where it is.
    Unmovable = 1,
    /// Page tables.
    Table = 2,
}

/// The level of a page-table entry.
#[allow(non_camel_case_types, reason = "so the header has FOLIANT_LEAF_SIZE_4K")]
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeafLevel {
    /// 4 KiB.
    Size_4k = 0,
    /// 2 MiB.
    Size_2m = 1,
    /// 1 GiB.
    Size_1g = 2,
}

/// Which half of the address space.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Half {
    /// Addresses from 0 up.
    User = 0,
    /// Addresses up to 2^64 - 1.
    Kernel = 1,
}

/// Which tables go when they have become empty.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prune {
    /// None: the range will be mapped again.
    Keep = 0,
    /// Those that do not hang in the top table.
    Emptied = 1,
    /// Those too: the tables are torn down.
    All = 2,
}

/// What an access wants to do.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Read.
    Read = 0,
    /// Write.
    Write = 1,
    /// Fetch an instruction.
    Execute = 2,
}

/// Where a new area goes.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Anywhere: the highest gap that fits.
    Anywhere = 0,
    /// At `va` if it is free, else anywhere.
    Hint = 1,
    /// At `va`; what lies there is unmapped first.
    Fixed = 2,
    /// At `va`, or not at all.
    NoReplace = 3,
}

/// What is said of a range of a space. The meanings are those of Linux's `madvise`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Large folios are welcome.
    HugePage = 0,
    /// No large folios.
    NoHugePage = 1,
    /// The contents are dropped now; the next touch finds zeros.
    DontNeed = 2,
    /// The contents may be dropped.
    Free = 3,
    /// Every page is made present for reading, as faults would.
    PopulateRead = 4,
    /// Every page is made present for writing, as faults would.
    PopulateWrite = 5,
    /// The contents are dropped, and a touch is refused from now on.
    GuardInstall = 6,
    /// Guards are taken out.
    GuardRemove = 7,
    /// Missing pages are handed to the program.
    UserfaultArm = 8,
    /// Missing pages are no longer handed to the program.
    UserfaultDisarm = 9,
}

numbers! {
    class: Class {
        Movable => folio::Class::Movable,
        Unmovable => folio::Class::Unmovable,
        Table => folio::Class::Table,
    } -> folio::Class, "class";
    level: LeafLevel {
        Size_4k => Level::BASE,
        Size_2m => Level::SIZE_2M,
        Size_1g => Level::SIZE_1G,
    } -> Level, "level";
    half: Half { User => table::Half::User, Kernel => table::Half::Kernel } -> table::Half, "half";
    prune: Prune {
        Keep => table::Prune::Keep,
        Emptied => table::Prune::Emptied,
        All => table::Prune::All,
    } -> table::Prune, "prune";
    access: Access {
        Read => foliant::Access::Read,
        Write => foliant::Access::Write,
        Execute => foliant::Access::Execute,
    } -> foliant::Access, "access";
    advice: Advice {
        HugePage => space::Advice::HugePage,
        NoHugePage => space::Advice::NoHugePage,
        DontNeed => space::Advice::DontNeed,
        Free => space::Advice::Free,
        PopulateRead => space::Advice::PopulateRead,
        PopulateWrite => space::Advice::PopulateWrite,
        GuardInstall => space::Advice::GuardInstall,
        GuardRemove => space::Advice::GuardRemove,
        UserfaultArm => space::Advice::UserfaultArm,
        UserfaultDisarm => space::Advice::UserfaultDisarm,
    } -> space::Advice, "advice";
}

/// The place `kind` with its address.
pub(crate) fn place(kind: u32, va: u64) -> Result<space::Place, Refusal> {
    let va = Va::new(va);
    match kind {
        n if n == Place::Anywhere as u32 => Ok(space::Place::Anywhere),
        n if n == Place::Hint as u32 => Ok(space::Place::Hint(va)),
        n if n == Place::Fixed as u32 => Ok(space::Place::Fixed(va)),
        n if n == Place::NoReplace as u32 => Ok(space::Place::NoReplace(va)),
        n => Err(Refusal::Value("place", u64::from(n))),
    }
}

/// Of an area: it may be read.
pub const FOLIANT_READ: u32 = 1;
/// It may be written.
pub const FOLIANT_WRITE: u32 = 2;
/// It may be executed.
pub const FOLIANT_EXEC: u32 = 4;
/// The program asked for large folios.
pub const FOLIANT_HUGEPAGE: u32 = 8;
/// The program asked for none.
pub const FOLIANT_NOHUGEPAGE: u32 = 16;
/// A fault below it, within reach, extends it downwards.
pub const FOLIANT_GROWS_DOWN: u32 = 32;
/// Its pages are huge pages of 2 MiB, out of the pool, which reserves them.
pub const FOLIANT_HUGE_2M: u32 = 64;
/// Its pages are huge pages of 1 GiB, out of the pool, which reserves them.
pub const FOLIANT_HUGE_1G: u32 = 128;
/// Its huge pages are not reserved.
pub const FOLIANT_NORESERVE: u32 = 256;

/// Of a leaf: instruction fetches are allowed.
pub const FOLIANT_ATTR_EXEC: u32 = 1;
/// Stores are allowed.
pub const FOLIANT_ATTR_WRITE: u32 = 2;
/// User mode may access it.
pub const FOLIANT_ATTR_USER: u32 = 4;
/// Device memory: uncached.
pub const FOLIANT_ATTR_DEVICE: u32 = 8;
/// It was used. Found in leaves; not to be asked for.
pub const FOLIANT_ATTR_ACCESSED: u32 = 32;
/// It was written through. Found in leaves; not to be asked for.
pub const FOLIANT_ATTR_DIRTY: u32 = 64;
/// The translation is the same in every address space.
pub const FOLIANT_ATTR_GLOBAL: u32 = 256;

const AREA: [(u32, Flags); 9] = [
    (FOLIANT_READ, Flags::READ),
    (FOLIANT_WRITE, Flags::WRITE),
    (FOLIANT_EXEC, Flags::EXEC),
    (FOLIANT_HUGEPAGE, Flags::HUGEPAGE),
    (FOLIANT_NOHUGEPAGE, Flags::NOHUGEPAGE),
    (FOLIANT_GROWS_DOWN, Flags::GROWS_DOWN),
    (FOLIANT_HUGE_2M, Flags::HUGE_2M),
    (FOLIANT_HUGE_1G, Flags::HUGE_1G),
    (FOLIANT_NORESERVE, Flags::NORESERVE),
];

const ATTRS: [(u32, Attrs); 7] = [
    (FOLIANT_ATTR_EXEC, Attrs::EXEC),
    (FOLIANT_ATTR_WRITE, Attrs::WRITE),
    (FOLIANT_ATTR_USER, Attrs::USER),
    (FOLIANT_ATTR_DEVICE, Attrs::DEVICE),
    (FOLIANT_ATTR_GLOBAL, Attrs::GLOBAL),
    (FOLIANT_ATTR_ACCESSED, Attrs::ACCESSED),
    (FOLIANT_ATTR_DIRTY, Attrs::DIRTY),
];

/// Those of `ATTRS` that may be asked for.
const ASKED: usize = 5;

/// What each bit of `bits` stands for, all together.
fn bits<T>(
    bits: u32,
    meanings: &[(u32, T)],
    none: T,
    with: fn(T, T) -> T,
    what: &'static str,
) -> Result<T, Refusal>
where
    T: Copy,
{
    let known = meanings.iter().fold(0, |all, (bit, _)| all | bit);
    if bits & !known != 0 {
        return Err(Refusal::Value(what, u64::from(bits)));
    }
    let set = meanings.iter().filter(|(bit, _)| bits & bit != 0);
    Ok(set.fold(none, |all, (_, one)| with(all, *one)))
}

/// The flags of an area.
pub(crate) fn flags(flags: u32) -> Result<Flags, Refusal> {
    bits(flags, &AREA, Flags::NONE, Flags::with, "flags")
}
/// The attributes that a leaf is to have.
pub(crate) fn attrs(attrs: u32) -> Result<Attrs, Refusal> {
    bits(attrs, &ATTRS[..ASKED], Attrs::NONE, Attrs::with, "attrs")
}
/// The bits that stand for attributes that a leaf has.
pub(crate) fn attr_bits(attrs: Attrs) -> u32 {
    ATTRS.iter().filter(|(_, attr)| attrs.has(*attr)).fold(0, |all, (bit, _)| all | bit)
}
/// A set of folio sizes: bit n for order n, from 2 (16 KiB) to 9 (2 MiB).
pub(crate) fn orders(sizes: u32) -> Result<Orders, Refusal> {
    let mut set = Orders::NONE;
    let mut left = sizes;
    for order in Orders::ANON.largest_first() {
        if left >> order.get() & 1 == 1 {
            set = set.with(Orders::of(order));
            left &= !(1 << order.get());
        }
    }
    if left == 0 { Ok(set) } else { Err(Refusal::Value("sizes", u64::from(sizes))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_without_a_meaning_are_refused() {
        assert_eq!(level(2).ok(), Some(Level::SIZE_1G));
        let refused = [
            class(3).err(),
            level(3).err(),
            half(2).err(),
            prune(3).err(),
            access(3).err(),
            advice(10).err(),
            place(4, 0).err(),
            order(19).err(),
            order(256).err(),
            flags(512).err(),
            attrs(FOLIANT_ATTR_DIRTY).err(),
            attrs(1 << 31).err(),
            orders(1).err(),
            orders(1 << 10).err(),
            cpu(1 << 16).err(),
        ];
        assert!(refused.iter().all(Option::is_some), "{refused:?}");
    }

    #[test]
    fn each_bit_has_its_own_meaning() {
        assert_eq!(flags(FOLIANT_READ | FOLIANT_WRITE).ok(), Some(Flags::READ_WRITE));
        for (bit, flag) in AREA {
            assert_eq!(flags(bit).ok(), Some(flag));
        }
        for (bit, attr) in &ATTRS[..ASKED] {
            assert_eq!(attrs(*bit).ok(), Some(*attr));
            assert_eq!(attr_bits(*attr), *bit);
        }
        assert_eq!(attr_bits(Attrs::TOUCHED), FOLIANT_ATTR_ACCESSED | FOLIANT_ATTR_DIRTY);
        let both = orders(1 << 4 | 1 << 9).unwrap();
        assert!(both.largest_first().map(|order| order.get()).eq([9, 4]));
    }
}
