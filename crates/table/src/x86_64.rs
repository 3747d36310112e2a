//! x86-64 with four or five levels.
//!
//! ```text
//!   63  62..59  58..52  51........12  11 10 9  8 7  6 5 4   3   2 1 0
//!   NX  (pkey)  soft    address       -- -- L  G PS D A PCD PWT U W P     PS: leaf above level 0
//! ```
//!
//! L (bit 9 of a table word) is the table's lock; bits 52 to 55 of a leaf are the manager's. All of
//! them are ignored by walkers (SDM volume 3, 5.5.4; APM volume 2, 5.3.3). Device memory is PCD +
//! PWT, which the power-on PAT makes strong uncacheable. Table words permit everything and are
//! written with A set, so that the leaf decides and walkers leave them alone.

use super::attrs::{Attrs, Entry, Slot, Soft};
use super::paging::{Group, Paging, Roots};
use foliant_units::{Level, Pa};

/// x86-64 with `LEVELS` levels, 4 or 5.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct X86_64<const LEVELS: u8>;

const P: u64 = 1 << 0;
const W: u64 = 1 << 1;
const U: u64 = 1 << 2;
const PWT: u64 = 1 << 3;
const PCD: u64 = 1 << 4;
const A: u64 = 1 << 5;
const D: u64 = 1 << 6;
const PS: u64 = 1 << 7;
const G: u64 = 1 << 8;
const LOCK: u64 = 1 << 9;
const EXCLUSIVE: u64 = 1 << 52;
const SOFT_DIRTY: u64 = 1 << 53;
const UFFD_WP: u64 = 1 << 54;
const SPECIAL: u64 = 1 << 55;
const NX: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Attributes whose number is the place of the hardware's bit.
const SAME: u64 = W | U | A | D | G;
/// The software bits of a leaf: the attributes' numbers, `SOFT_UP` places further up.
const SOFT: u64 = EXCLUSIVE | SOFT_DIRTY | UFFD_WP | SPECIAL;
const SOFT_UP: u32 = 43;
const _: () = {
    let same =
        Attrs::WRITE.with(Attrs::USER).with(Attrs::ACCESSED).with(Attrs::DIRTY).with(Attrs::GLOBAL);
    assert!(same.bits() as u64 == SAME);
    assert!((Attrs::EXCLUSIVE.bits() as u64) << SOFT_UP == EXCLUSIVE);
    assert!((Attrs::SOFT_DIRTY.bits() as u64) << SOFT_UP == SOFT_DIRTY);
    assert!((Attrs::UFFD_WP.bits() as u64) << SOFT_UP == UFFD_WP);
    assert!((Attrs::SPECIAL.bits() as u64) << SOFT_UP == SPECIAL);
};

impl<const LEVELS: u8> Paging for X86_64<LEVELS> {
    const NAME: &'static str = match LEVELS {
        4 => "x86-64, 4 levels",
        5 => "x86-64, 5 levels",
        _ => panic!("x86-64 has 4 or 5 levels"),
    };
    const LEVELS: u8 = LEVELS;
    const LEAF_TOP: Level = Level::SIZE_1G;
    const HALF_BITS: u32 = 11 + 9 * LEVELS as u32;
    const PA_BITS: u32 = 52;
    const ROOTS: Roots = Roots::Shared;
    const LOCK: u64 = LOCK;
    const UPDATED: u64 = A | D;
    const KEEPS: Attrs = Attrs::from_bits(!Attrs::GROUPED.bits());

    #[inline]
    fn group(_: Level) -> Option<Group> {
        None
    }
    #[inline]
    fn leaf(pa: Pa, level: Level, attrs: Attrs) -> u64 {
        let size = if level > Level::BASE { PS } else { 0 };
        let nx = if attrs.has(Attrs::EXEC) { 0 } else { NX };
        let bits = attrs.bits() as u64;
        let device = attrs.pick(Attrs::DEVICE, PCD | PWT);
        P | size | nx | device | pa.get() | bits & SAME | bits << SOFT_UP & SOFT
    }
    #[inline]
    fn step(level: Level) -> u64 {
        level.span().get()
    }
    #[inline]
    fn table(pa: Pa) -> u64 {
        pa.get() | P | W | U | A
    }
    #[inline]
    fn decode(word: u64, level: Level, _: Slot) -> Entry {
        if word & P == 0 {
            return if word == 0 { Entry::None } else { Entry::Soft(Soft::read(word)) };
        }
        if level > Level::BASE && word & PS == 0 {
            return Entry::Table(Pa::new(word & ADDRESS));
        }
        let exec = if word & NX == 0 { Attrs::EXEC } else { Attrs::NONE };
        let attrs = Attrs::from_bits((word & SAME | (word & SOFT) >> SOFT_UP) as u16)
            .with(exec)
            .learn(Attrs::DEVICE, word, PCD | PWT);
        Entry::Leaf { pa: Pa::new(word & ADDRESS & !(level.span().get() - 1)), attrs }
    }
    #[inline]
    fn is_final(word: u64) -> bool {
        word & A != 0 && word & (D | W) != W
    }
}

const _: () = assert!(LOCK & (P | W | U | PWT | PCD | A | D | PS | G | ADDRESS | NX) == 0);
const _: () = assert!(<X86_64<4> as Paging>::HALF_BITS == 47);
const _: () = assert!(<X86_64<5> as Paging>::HALF_BITS == 56);
