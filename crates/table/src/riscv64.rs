//! riscv64: Sv39, Sv48 and Sv57, with Svnapot groups.
//!
//! ```text
//!   63 62..61 60..54 53..................10 9..8 7 6 5 4 3 2 1 0
//!   N   PBMT  -----       address >> 2      soft D A G U X W R V     leaf: any of R W X
//! ```
//!
//! Bit 8 of a table word is the table's lock; bits 8 and 9 of a leaf are the manager's, for
//! `SPECIAL` and `EXCLUSIVE` (privileged specification, "Sv39"). There is no room for the two
//! tracking attributes: `SOFT_DIRTY` and `UFFD_WP` are dropped, see [`Paging::KEEPS`]. Device
//! memory is PBMT = IO (Svpbmt).
//!
//! In a Svnapot group of sixteen 4 KiB entries every word is the same: N is set and the low four
//! bits of the frame number read 1000. Which of the sixteen a word maps, its slot says.
//!
//! Sv39 could map 1 GiB from its top table. We do not: a word of the top table is never a leaf
//! (table::I5).

use super::attrs::{Attrs, Entry, Slot, Soft};
use super::paging::{Group, Paging, Roots};
use foliant_units::{Level, Pa};

/// riscv64 with `LEVELS` levels: 3 (Sv39), 4 (Sv48) or 5 (Sv57).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Riscv64<const LEVELS: u8>;

/// Three levels.
pub type Sv39 = Riscv64<3>;
/// Four levels.
pub type Sv48 = Riscv64<4>;
/// Five levels.
pub type Sv57 = Riscv64<5>;

const V: u64 = 1 << 0;
const R: u64 = 1 << 1;
const W: u64 = 1 << 2;
const X: u64 = 1 << 3;
const U: u64 = 1 << 4;
const G: u64 = 1 << 5;
const A: u64 = 1 << 6;
const D: u64 = 1 << 7;
const LOCK: u64 = 1 << 8;
const SPECIAL: u64 = 1 << 8;
const EXCLUSIVE: u64 = 1 << 9;
const FRAME_SHIFT: u32 = 10;
const FRAMES: u64 = (1 << 44) - 1;
const IO: u64 = 2 << 61;
const N: u64 = 1 << 63;
const NAPOT_64K: u64 = 8;
const NAPOT_MASK: u64 = 15;

const MEANING: [(Attrs, u64); 10] = [
    (Attrs::WRITE, W),
    (Attrs::EXEC, X),
    (Attrs::USER, U),
    (Attrs::GLOBAL, G),
    (Attrs::ACCESSED, A),
    (Attrs::DIRTY, D),
    (Attrs::DEVICE, IO),
    (Attrs::EXCLUSIVE, EXCLUSIVE),
    (Attrs::SPECIAL, SPECIAL),
    (Attrs::GROUPED, N),
];

impl<const LEVELS: u8> Paging for Riscv64<LEVELS> {
    const NAME: &'static str = match LEVELS {
        3 => "riscv64 Sv39",
        4 => "riscv64 Sv48",
        5 => "riscv64 Sv57",
        _ => panic!("riscv64 has 3, 4 or 5 levels"),
    };
    const LEVELS: u8 = LEVELS;
    const LEAF_TOP: Level = if LEVELS == 3 { Level::SIZE_2M } else { Level::SIZE_1G };
    const HALF_BITS: u32 = 11 + 9 * LEVELS as u32;
    const PA_BITS: u32 = 56;
    const ROOTS: Roots = Roots::Shared;
    const LOCK: u64 = LOCK;
    const UPDATED: u64 = A | D;
    const KEEPS: Attrs = Attrs::from_bits(!0).without(Attrs::SOFT_DIRTY).without(Attrs::UFFD_WP);

    #[inline]
    fn group(level: Level) -> Option<Group> {
        if level == Level::BASE { Some(const { Group::of(16) }) } else { None }
    }
    #[inline]
    fn leaf(pa: Pa, _: Level, attrs: Attrs) -> u64 {
        let mut frame = pa.frame().get();
        if attrs.has(Attrs::GROUPED) {
            frame = frame & !NAPOT_MASK | NAPOT_64K;
        }
        let word = frame << FRAME_SHIFT | V | R;
        MEANING.iter().fold(word, |word, (attr, bit)| word | attrs.pick(*attr, *bit))
    }
    #[inline]
    fn step(level: Level) -> u64 {
        level.span().get() >> (12 - FRAME_SHIFT)
    }
    #[inline]
    fn table(pa: Pa) -> u64 {
        pa.frame().get() << FRAME_SHIFT | V
    }
    #[inline]
    fn decode(word: u64, level: Level, slot: Slot) -> Entry {
        if word & V == 0 {
            return if word == 0 { Entry::None } else { Entry::Soft(Soft::read(word)) };
        }
        let mut frame = word >> FRAME_SHIFT & FRAMES;
        if word & (R | W | X) == 0 && level > Level::BASE {
            return Entry::Table(Pa::new(frame << 12));
        }
        if word & N != 0 {
            frame = frame & !NAPOT_MASK | slot.index() as u64 & NAPOT_MASK;
        }
        let attrs =
            MEANING.iter().fold(Attrs::NONE, |set, (attr, bit)| set.learn(*attr, word, *bit));
        Entry::Leaf { pa: Pa::new(frame << 12), attrs }
    }
    #[inline]
    fn is_final(word: u64) -> bool {
        word & A != 0 && word & (D | W) != W
    }
}

const _: () = assert!(LOCK & (V | R | W | X | U | A | D) == 0);
const _: () = assert!(<Sv39 as Paging>::HALF_BITS == 38 && <Sv57 as Paging>::HALF_BITS == 56);
