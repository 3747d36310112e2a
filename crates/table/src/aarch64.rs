//! aarch64 with the 4 KiB granule and four levels, stage 1 of EL1&0.
//!
//! ```text
//!   63 62..59 58..55  54  53  52   51  50 49.48 47......12 11 10 9.8  7   6  5  4..2  1 0
//!   s  ------  soft  UXN PXN CONT DBM  --  --   address    nG AF SH  AP2 AP1 -- AttrI T V
//! ```
//!
//! T is 1 in a table word and in a page, 0 in a block. Bit 55 of a table word, which walkers
//! ignore, is the table's lock; bits 55 to 58 and 63 of a leaf are the manager's (Arm ARM D8.3.1,
//! D8.3.2).
//!
//! | attributes | DBM | AP2 (read only) | bit 55 |
//! |---|---|---|---|
//! | writable, clean | 1 | 1: the walker, or a fault, clears it | 0 |
//! | writable, dirty | 1 | 0 | 0 |
//! | read only, clean | 0 | 1 | 0 |
//! | read only, dirty | 0 | 1 | 1 |
//!
//! `MAIR_EL1` must hold normal write-back memory at index 0 and device memory at index 1. `EXEC`
//! holds for the one privilege level that the `USER` attribute names. Sixteen entries of level 0 or
//! 1 may form a contiguous group: 64 KiB or 32 MiB.

use super::attrs::{Attrs, Entry, Slot, Soft};
use super::paging::{Group, Paging, Roots};
use foliant_units::{Level, Pa};

/// aarch64, 4 KiB granule, 48-bit addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Aarch64;

const VALID: u64 = 1 << 0;
const TABLE_OR_PAGE: u64 = 1 << 1;
const DEVICE: u64 = 1 << 2;
const EL0: u64 = 1 << 6;
const READ_ONLY: u64 = 1 << 7;
const INNER: u64 = 3 << 8;
const AF: u64 = 1 << 10;
const NOT_GLOBAL: u64 = 1 << 11;
const DBM: u64 = 1 << 51;
const CONTIGUOUS: u64 = 1 << 52;
const PXN: u64 = 1 << 53;
const UXN: u64 = 1 << 54;
const SOFT_WRITTEN: u64 = 1 << 55;
const LOCK: u64 = 1 << 55;
const SPECIAL: u64 = 1 << 56;
const EXCLUSIVE: u64 = 1 << 57;
const UFFD_WP: u64 = 1 << 58;
const SOFT_DIRTY: u64 = 1 << 63;
const ADDRESS: u64 = 0x0000_ffff_ffff_f000;

const MEANING: [(Attrs, u64); 8] = [
    (Attrs::USER, EL0),
    (Attrs::ACCESSED, AF),
    (Attrs::DEVICE, DEVICE),
    (Attrs::EXCLUSIVE, EXCLUSIVE),
    (Attrs::SOFT_DIRTY, SOFT_DIRTY),
    (Attrs::UFFD_WP, UFFD_WP),
    (Attrs::SPECIAL, SPECIAL),
    (Attrs::GROUPED, CONTIGUOUS),
];

/// The bits for writable and dirty, as in the table above.
const fn writing(attrs: Attrs) -> u64 {
    match (attrs.has(Attrs::WRITE), attrs.has(Attrs::DIRTY)) {
        (true, true) => DBM,
        (true, false) => DBM | READ_ONLY,
        (false, true) => READ_ONLY | SOFT_WRITTEN,
        (false, false) => READ_ONLY,
    }
}

/// The bits that keep the other privilege level, or both, from executing.
const fn executing(attrs: Attrs) -> u64 {
    match (attrs.has(Attrs::EXEC), attrs.has(Attrs::USER)) {
        (true, true) => PXN,
        (true, false) => UXN,
        (false, _) => PXN | UXN,
    }
}

impl Paging for Aarch64 {
    const NAME: &'static str = "aarch64, 4 KiB granule";
    const LEVELS: u8 = 4;
    const LEAF_TOP: Level = Level::SIZE_1G;
    const HALF_BITS: u32 = 48;
    const PA_BITS: u32 = 48;
    const ROOTS: Roots = Roots::PerHalf;
    const LOCK: u64 = LOCK;
    const UPDATED: u64 = AF | READ_ONLY;
    const KEEPS: Attrs = Attrs::from_bits(!0);

    #[inline]
    fn group(level: Level) -> Option<Group> {
        if level <= Level::SIZE_2M { Some(const { Group::of(16) }) } else { None }
    }
    #[inline]
    fn leaf(pa: Pa, level: Level, attrs: Attrs) -> u64 {
        let kind = if level == Level::BASE { TABLE_OR_PAGE } else { 0 };
        let shared = if attrs.has(Attrs::DEVICE) { 0 } else { INNER };
        let global = if attrs.has(Attrs::GLOBAL) { 0 } else { NOT_GLOBAL };
        let word = pa.get() | VALID | kind | shared | global | writing(attrs) | executing(attrs);
        MEANING.iter().fold(word, |word, (attr, bit)| word | attrs.pick(*attr, *bit))
    }
    #[inline]
    fn step(level: Level) -> u64 {
        level.span().get()
    }
    #[inline]
    fn table(pa: Pa) -> u64 {
        pa.get() | VALID | TABLE_OR_PAGE
    }
    #[inline]
    fn decode(word: u64, level: Level, _: Slot) -> Entry {
        if word & VALID == 0 {
            return if word == 0 { Entry::None } else { Entry::Soft(Soft::read(word)) };
        }
        if level > Level::BASE && word & TABLE_OR_PAGE != 0 {
            return Entry::Table(Pa::new(word & ADDRESS));
        }
        let writable = word & (DBM | READ_ONLY) != READ_ONLY;
        let dirty = word & READ_ONLY == 0 || word & SOFT_WRITTEN != 0;
        let exec = word & if word & EL0 != 0 { UXN } else { PXN } == 0;
        let mut attrs = Attrs::NONE.learn(Attrs::GLOBAL, !word, NOT_GLOBAL);
        for (attr, set) in [(Attrs::WRITE, writable), (Attrs::DIRTY, dirty), (Attrs::EXEC, exec)] {
            attrs = if set { attrs | attr } else { attrs };
        }
        let attrs = MEANING.iter().fold(attrs, |set, (attr, bit)| set.learn(*attr, word, *bit));
        Entry::Leaf { pa: Pa::new(word & ADDRESS & !(level.span().get() - 1)), attrs }
    }
    #[inline]
    fn is_final(word: u64) -> bool {
        word & AF != 0 && word & (DBM | READ_ONLY) != DBM | READ_ONLY
    }
}

const _: () = assert!(LOCK & (VALID | TABLE_OR_PAGE | ADDRESS) == 0);
