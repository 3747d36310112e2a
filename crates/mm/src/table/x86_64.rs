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

const MEANING: [(Attrs, u64); 10] = [
    (Attrs::WRITE, W),
    (Attrs::USER, U),
    (Attrs::GLOBAL, G),
    (Attrs::ACCESSED, A),
    (Attrs::DIRTY, D),
    (Attrs::DEVICE, PCD | PWT),
    (Attrs::EXCLUSIVE, EXCLUSIVE),
    (Attrs::SOFT_DIRTY, SOFT_DIRTY),
    (Attrs::UFFD_WP, UFFD_WP),
    (Attrs::SPECIAL, SPECIAL),
];

impl<const LEVELS: u8> Paging for X86_64<LEVELS> {
    const NAME: &'static str = match LEVELS {
        4 => "x86-64, 4 levels",
        5 => "x86-64, 5 levels",
        _ => panic!("x86-64 has 4 or 5 levels"),
    };
    const LEVELS: u8 = LEVELS;
    const LEAF_TOP: Level = Level::GIGA;
    const HALF_BITS: u32 = 11 + 9 * LEVELS as u32;
    const PA_BITS: u32 = 52;
    const ROOTS: Roots = Roots::Shared;
    const LOCK: u64 = LOCK;
    const UPDATED: u64 = A | D;
    const KEEPS: Attrs = Attrs::from_bits(!Attrs::GROUPED.bits());

    fn group(_: Level) -> Option<Group> {
        None
    }
    #[inline]
    fn leaf(pa: Pa, level: Level, attrs: Attrs) -> u64 {
        let size = if level > Level::BASE { PS } else { 0 };
        let nx = if attrs.has(Attrs::EXEC) { 0 } else { NX };
        MEANING
            .iter()
            .fold(P | size | nx | pa.get(), |word, (attr, bit)| word | attrs.pick(*attr, *bit))
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
        let attrs = MEANING.iter().fold(exec, |set, (attr, bit)| set.learn(*attr, word, *bit));
        Entry::Leaf { pa: Pa::new(word & ADDRESS & !(level.span().get() - 1)), attrs }
    }
    #[inline]
    fn settled(word: u64) -> bool {
        word & A != 0 && word & (D | W) != W
    }
}

const _: () = assert!(LOCK & (P | W | U | PWT | PCD | A | D | PS | G | ADDRESS | NX) == 0);
const _: () = assert!(<X86_64<4> as Paging>::HALF_BITS == 47);
const _: () = assert!(<X86_64<5> as Paging>::HALF_BITS == 56);
