//! The entry of a 2 MiB block: one word that decides which requests the block may serve.
//!
//! ```text
//!  63                  32 31        18 17   16 15   12 11  10 9     0
//! ┌──────────────────────┬────────────┬───────┬───────┬──────┬───────┐
//! │ spare                │ owner      │ class │ fit   │ kind │ spare │
//! └──────────────────────┴────────────┴───────┴───────┴──────┴───────┘
//!  kind   Whole: free, in one piece · Small: the field says more · Held: in a block of order 9 or more · Busy: in flight
//!  fit    Small: 1 + an upper bound of the largest free order, 0 for none · Held, and Busy head of a run: order - 9
//!  class  the kind of memory that lives here while the block is partly used
//!  owner  0, or 1 + the seat (CPU and purpose) that prefers this block
//! ```
//!
//! ```text
//!                  claim for small blocks (open the field)
//!          Whole ─────────────────────────────────────────▶ Small
//!          ▲   │◀── all free and without owner (close) ───────┘ ▲ │   (close): of the field, which may refuse
//!   free   │   │ take                                           │ │
//!          │   ▼                                                │ │   every arrow passes through Busy
//!          Held ────────────────── split into small blocks ─────┘ │   but take and free of a single
//!            ▲── all free and wanted, or 512 pages joined (close) ┘   block
//! ```
//!
//! **Invariants**
//! - I1. The field is open only while the kind is Small, or Busy; it is closed in Whole and Held.
//!   So small blocks are taken and given back without touching the entry, and huge ones without
//!   touching the field.
//! - I2. `fit` never lies below the truth for long: a CPU that frees then looks whether to raise
//!   it; a CPU that lowers it then looks whether that was right; a CPU that made the entry Busy
//!   looks once more when it is done.
//! - I3. A Small block without owner is not all free: the last CPU to free in it, or to disown it,
//!   makes it Whole.
//! - I4. Only the CPU that made an entry Busy changes it, but for the block's owner, which leaves
//!   at any time: the CPU that puts the entry back as it was reads once more whether the block
//!   still has an owner. All zero means Whole: lent words need no preparation.
//! - I5. Without owner the bound is `FIT_PART` at most. So a CPU that frees and finds the bound at
//!   `FIT_WHOLE` has nothing to do: the block has an owner, which looks at the block again when it
//!   leaves. There is no way to write another entry.
//!
//! **Not here**: counts of free frames; the bits of the field are the count. The field itself
//! (`field`).

use super::Class;
use super::bits::Phase;
use super::index::List;
use foliant_units::{Cpu, Order};

/// Frames of a block.
pub(super) const FRAMES: u32 = 512;
/// `fit` of a wholly free block.
pub(super) const FIT_WHOLE: u32 = 10;
/// The largest `fit` of a block of which something is in use.
pub(super) const FIT_PART: u32 = 9;

const _: () =
    assert!(1 << (FIT_WHOLE - 1) == FRAMES && Order::SIZE_2M.get() as u32 == FIT_WHOLE - 1);
const _: () = assert!(Owner::seat(Cpu(foliant_units::CPUS_MAX as u16 - 1), 7).0 < 1 << OWNER.width);

struct Part {
    shift: u32,
    width: u32,
}

const KIND: Part = Part { shift: 10, width: 2 };
const FIT: Part = Part { shift: 12, width: 4 };
const CLASS: Part = Part { shift: 16, width: 2 };
const OWNER: Part = Part { shift: 18, width: 14 };

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BlockKind {
    Whole = 0,
    Small = 1,
    Held = 2,
    Busy = 3,
}

/// The seat that prefers a block, if any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Owner(u32);

impl Owner {
    pub(super) const NONE: Owner = Owner(0);

    /// Seat `seat` (0 to 7) of `cpu`.
    pub(super) const fn seat(cpu: Cpu, seat: usize) -> Owner {
        Owner(1 + ((cpu.0 as u32) << 3 | seat as u32))
    }
    /// The seat, or `None` where the block has no owner.
    pub(super) fn seated(self) -> Option<(Cpu, usize)> {
        let id = self.0.checked_sub(1)?;
        Some((Cpu((id >> 3) as u16), (id & 7) as usize))
    }
}

/// A block's entry, as a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockEntry(pub(super) u64);

impl BlockEntry {
    /// A free block, in one piece.
    pub(super) const WHOLE: BlockEntry = BlockEntry(0);

    const fn part(self, part: Part) -> u64 {
        self.0 >> part.shift & ((1 << part.width) - 1)
    }
    const fn put(self, part: Part, value: u64) -> BlockEntry {
        let mask = ((1 << part.width) - 1) << part.shift;
        BlockEntry(self.0 & !mask | (value << part.shift) & mask)
    }
    pub(super) const fn kind(self) -> BlockKind {
        match self.part(KIND) {
            0 => BlockKind::Whole,
            1 => BlockKind::Small,
            2 => BlockKind::Held,
            _ => BlockKind::Busy,
        }
    }
    #[inline]
    pub(super) const fn is_small(self) -> bool {
        self.part(KIND) == BlockKind::Small as u64
    }
    pub(super) const fn is_whole(self) -> bool {
        self.part(KIND) == BlockKind::Whole as u64
    }
    #[inline]
    pub(super) const fn fit(self) -> u32 {
        self.part(FIT) as u32
    }
    /// The order of a Held block, or of the Busy head of a run.
    pub(super) const fn order(self) -> u32 {
        self.fit() + 9
    }
    #[inline]
    pub(super) const fn owner(self) -> Owner {
        Owner(self.part(OWNER) as u32)
    }
    pub(super) const fn class(self) -> Class {
        Class::ALL[self.part(CLASS) as usize]
    }
    /// Whether a free block of 2^`order` frames may be there, open to all.
    #[inline]
    pub(super) const fn offers(self, order: u32) -> bool {
        self.is_small() && self.fit() > order
    }

    /// The entry with the bound `fit`; without owner with `FIT_PART` at most (I5).
    pub(super) const fn with_fit(self, fit: u32) -> BlockEntry {
        let most = if self.owner().0 == 0 { FIT_PART } else { FIT_WHOLE };
        self.put(FIT, if fit < most { fit } else { most } as u64)
    }
    pub(super) const fn with_class(self, class: Class) -> BlockEntry {
        self.put(CLASS, class as u64)
    }
    pub(super) const fn with_owner(self, owner: Owner) -> BlockEntry {
        let fit = self.fit();
        self.put(OWNER, owner.0 as u64).with_fit(fit)
    }
    /// In flight, all else kept.
    pub(super) const fn busy(self) -> BlockEntry {
        self.put(KIND, BlockKind::Busy as u64)
    }
    /// Small, without owner.
    pub(super) const fn small(class: Class, fit: u32) -> BlockEntry {
        BlockEntry(0).put(KIND, BlockKind::Small as u64).with_class(class).with_fit(fit)
    }
    /// Small, all free, of an owner that is about to take of it.
    pub(super) const fn opened(class: Class, owner: Owner) -> BlockEntry {
        BlockEntry::small(class, 0).with_owner(owner).with_fit(FIT_WHOLE)
    }
    /// Part of a block of `order`, 9 or more.
    pub(super) const fn held(order: u32, class: Class, phase: Phase) -> BlockEntry {
        let kind = match phase {
            Phase::Complete => BlockKind::Held,
            Phase::InFlight => BlockKind::Busy,
        };
        BlockEntry(0).put(KIND, kind as u64).with_class(class).with_fit(order - 9)
    }

    /// The list on which the block must be found, or `None` where it has nothing to offer.
    #[inline]
    pub(super) const fn list(self) -> Option<List> {
        let fit = self.fit();
        if self.is_whole() {
            Some(List::WHOLE)
        } else if !self.is_small() || fit == 0 {
            None
        } else if self.owner().0 != 0 {
            Some(List::owned(fit))
        } else {
            Some(List::class(self.class(), fit))
        }
    }
}

impl core::fmt::Debug for BlockEntry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:?} fit {} {:?}", self.kind(), self.fit(), self.class())?;
        match self.owner().seated() {
            Some((cpu, seat)) => write!(f, " of {cpu:?}.{seat}"),
            None => Ok(()),
        }
    }
}
