//! The folio allocator: free blocks of every order from 4 KiB to 1 GiB, for many CPUs at once,
//! without locks.
//!
//! A kernel has memory in ranges with holes; every page fault, page table and huge page takes its
//! frames here. Two CPUs must not wait for each other, a 4 KiB page must not spoil a free 2 MiB
//! block while another is spoilt already, and time must not grow with memory. The state lives in
//! words that the caller lends, neither in the frames nor in their descriptors, so a free frame
//! need not even be mapped.
//!
//! ```text
//!            1 GiB                       ┌ index: whole / by class and fit / owned; 64 bits per word, 3 levels
//!   ├──────────┬──────────┬───  ...      │
//!   │ 2 MiB    │ 2 MiB    │    ...  ◀────┘
//!   └──────────┴──────────┴───  ...
//!        │  entry: one word       whole, or part of a block of order 9 to 18, or small: then the field says more
//!        └─ field: sixteen words  two bits per frame; where each block of order 0 to 8 begins and ends
//!
//!   CPU ── seats: per class, the 2 MiB block that it works in; a preference, never a right
//! ```
//!
//! One file per level: `bits` one word of a field · `field` · `entry` · `index` · `region` one
//! range · `regions` all ranges · `zeros` which frames are known to be zero · `seats` a CPU's
//! preferences · `alloc`, `free`, `evict`, `known`, `query`, `verify` the operations · `view` for
//! callers that may only look.
//!
//! **Invariants**
//! - I1. Two blocks that are allocated at the same time share no frame, and no frame of a hole is
//!   ever in one.
//! - I2. The metadata tells exactly where each allocated block begins and ends, so misuse is always
//!   told from use.
//! - I3. While nothing is in flight, an allocation fails only where no aligned free block of its
//!   order exists within one range (ranges that touch are one, if they were taken in together).
//! - I4. A block whose frames all came back is whole again at once; there is no merging to be done
//!   later. One that a seat owns stays open until its owner leaves it (entry::I3, entry::I5);
//!   requests for whole blocks take it like any other.
//!
//! **Locking**: none. Single words decide (see `entry`, `field`, `index`); no operation waits for
//! another. All CPUs can take from a block that one of them owns when memory is short.
//!
//! A range belongs to a memory node. A caller can ask for a block of one node only.
//!
//! **Not here**: the frames' content, descriptors and ownership tokens; waiting for memory; which
//! node is near to a CPU; taking a range away again.
//!
//! ```
//! use foliant_folio::{Class, CpuCount, Folios, Word};
//! use foliant_units::{Cpu, Frame, FrameRange, Order, Pages};
//!
//! let memory = [FrameRange::new(Frame::new(0x100), Pages::new(0x4000)).unwrap()];
//! let need = Folios::layout(&memory, CpuCount(2)).unwrap();
//! let lent: Vec<Word> = (0..need.0).map(|_| Word::new(0)).collect();
//! let folios = Folios::new(&memory, CpuCount(2), &lent).unwrap();
//!
//! let huge = folios.alloc(Cpu(0), Order::SIZE_2M, Class::Movable).unwrap();
//! assert!(huge.is_aligned(Order::SIZE_2M.pages()));
//! assert_eq!(folios.free_frames(), Pages::new(0x4000 - 512));
//! folios.free(Cpu(1), huge, Order::SIZE_2M).unwrap();
//! assert!(folios.free(Cpu(1), huge, Order::SIZE_2M).is_err());
//! ```
#![cfg_attr(not(test), no_std)]

mod alloc;
mod bits;
mod entry;
mod error;
mod evict;
mod field;
mod free;
mod index;
mod known;
mod query;
mod region;
mod regions;
mod seats;
mod setup;
#[cfg(any(test, feature = "verify"))]
mod verify;
mod view;
mod zeros;

#[cfg(all(test, not(loom)))]
mod evict_model;
#[cfg(all(test, not(loom)))]
mod model;
#[cfg(all(test, not(loom)))]
mod stress;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(test, not(loom)))]
mod zeros_model;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod verify_tests;

pub use foliant_units as units;

pub use error::{AllocError, CpuCount, Misuse, RegionError, ReserveError, WordCount};
pub use evict::{Joined, Usage};
pub use field::Pick;
pub use known::Sought;
pub use query::FreeBlocks;
pub use setup::Newcomer;
#[cfg(any(test, feature = "verify"))]
pub use verify::{Conflict, Disagreement};
pub use view::View;
pub use zeros::Known;

use core::fmt;
use foliant_sync::Ordering::Relaxed;
use foliant_units::{Cpu, Frame, Node, Order};
use region::Region;
use regions::Regions;
use seats::Seats;

/// A word of lent metadata: a 64-bit atomic, zero when lent.
pub type Word = foliant_sync::AtomicU64;

/// How many memory nodes there may be.
pub const NODES_MAX: usize = 16;

/// The kind of memory that a small block is for. Kinds do not share 2 MiB blocks while memory is
/// plenty, so that memory that can be moved away is not kept in place by memory that cannot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Class {
    /// Its content can be moved elsewhere: anonymous and file memory.
    Movable = 0,
    /// It stays where it is: the kernel's own records and buffers.
    Unmovable = 1,
    /// Page tables: they stay as well, but go when their address space goes.
    Table = 2,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 3] = [Class::Movable, Class::Unmovable, Class::Table];
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Movable => "movable memory",
            Class::Unmovable => "unmovable memory",
            Class::Table => "page tables",
        })
    }
}

/// The state of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameState {
    /// In none of the ranges.
    Foreign,
    /// Free, or just on its way to or from being free.
    Free,
    /// Reserved: taken out, or withheld for a moment by the manager.
    Reserved,
    /// Part of an allocated block.
    Allocated {
        /// The block's first frame.
        head: Frame,
        /// The block's order.
        order: Order,
    },
}

/// The folio allocator over lent metadata. Share it by reference; every method takes `&self`.
///
/// Key: `[a]` atomic, each word by a protocol of its room.
pub struct Folios<'m> {
    regions: Regions<'m>,              // [a] grows
    seats: &'m [[Word; seats::WORDS]], // [a] hints per CPU
    hosts: Word, // [a] grows: how many CPUs have seats of their own (seats::I2)
}

impl<'m> Folios<'m> {
    /// How many CPUs it was built for.
    pub fn cpus(&self) -> CpuCount {
        CpuCount(self.seats.len() as u16)
    }
    /// Gives up the blocks that `cpu` prefers, so that others find them on the lists; for a CPU
    /// that goes idle or away. A CPU that sits with another one because memory is small has nothing
    /// to give up.
    pub fn drain(&self, cpu: Cpu) {
        if let Some(seats) = self.seats(cpu) {
            seats.all().for_each(|seat| self.sit(seat, None));
        }
    }
    /// The node of a frame of its memory.
    pub fn node_of(&self, frame: Frame) -> Option<Node> {
        self.region_of(frame).map(|(_, region)| region.node())
    }
    #[inline]
    fn seats(&self, cpu: Cpu) -> Option<Seats<'m>> {
        self.seats.get(cpu.index()).map(|words| Seats { cpu, words, guest: None })
    }
    /// The seats at which a CPU takes small blocks: its own, or those of another CPU where memory
    /// is small (seats::I2).
    #[inline]
    fn host(&self, own: Seats<'m>) -> Seats<'m> {
        let hosts = self.hosts.load(Relaxed) as usize;
        let cpu = own.cpu.index();
        if cpu < hosts {
            return own;
        }
        let host = cpu % hosts;
        let guest = Some(cpu / hosts % field::WORDS);
        Seats { cpu: Cpu(host as u16), words: &self.seats[host], guest }
    }
    /// Lets as many CPUs have seats of their own as memory is large enough for.
    fn invite(&self) {
        let blocks: usize = self.regions.iter().map(|(_, region)| region.blocks()).sum();
        let hosts = (blocks / seats::SHARE).clamp(1, self.seats.len());
        self.hosts.fetch_max(hosts as u64, Relaxed);
    }
    #[inline]
    fn region_of(&self, frame: Frame) -> Option<(usize, &Region<'m>)> {
        self.regions.holding(frame)
    }
}

impl fmt::Debug for Folios<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Folios({} cpus, ", self.seats.len())?;
        f.debug_list().entries(self.ranges()).finish()?;
        f.write_str(")")
    }
}
