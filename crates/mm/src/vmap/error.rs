//! Why a call was refused, and what an attempt was short of.

use core::{error, fmt};
use foliant_units::{Bytes, FRAME_BYTES, Frame, Level, Node, Order, Pa, Va};

/// What an attempt was short of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Short {
    /// A block of this order. A caller that can make one may ask again.
    Block(Order),
    /// Addresses: so many bytes, aligned as they have to be.
    Addresses(Bytes),
    /// A frame for a page table or a record.
    Record,
    /// The place of a leaf of this level is taken by a table that is in use.
    Slot(Level),
}

/// Why nothing was done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VmapError {
    /// Nothing was asked for.
    Empty,
    /// The size is beyond all memory there is.
    TooLarge {
        /// What was asked for.
        asked: Bytes,
        /// What there is.
        installed: Bytes,
    },
    /// The last byte would lie beyond the last address.
    Overflow(Pa, Bytes),
    /// The alignment is no power of two from 4 KiB to 1 GiB.
    Alignment(Bytes),
    /// There is no memory on this node.
    Node(Node),
    /// The frame number is beyond what the page tables can name.
    Frame(Frame),
    /// A device was to be mapped, and this frame is memory that the manager has.
    Managed(Frame),
    /// Something was missing, also with the smallest leaves.
    Short(Short),
    /// The address lies in no area.
    NoArea(Va),
    /// It lies in an area, and is not its first address.
    NotStart {
        /// The address.
        va: Va,
        /// The area's first one.
        start: Va,
    },
    /// No memory begins there: the address lies inside an area, or in a mapping of frames.
    NotMemory(Va),
    /// The area was given back already.
    Freed(Va),
    /// Another call is working on the area.
    Busy(Va),
    /// Memory of its own is given back by `free`, other frames by `unmap`; the area at this address
    /// is of the other kind.
    OtherKind(Va),
    /// An end of the range is no multiple of 4096.
    Misaligned(Va),
    /// The range leaves the area, or the size that was asked for.
    Beyond {
        /// The first address outside.
        va: Va,
    },
    /// A leaf of this level is in the way of a visit by base pages.
    Leaf(Va, Level),
    /// A leaf of this level reaches over an end of the range, and the machine does not let a leaf
    /// in use be split.
    CannotSplit(Va, Level),
    /// The area was not asked for as one that users may reach.
    NotForUsers(Va),
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Short::Block(order) => write!(f, "no free block of {}", order.bytes()),
            Short::Addresses(bytes) => write!(f, "no gap of {bytes} in the kernel's range"),
            Short::Record => f.write_str("no frame for a page table or a record"),
            Short::Slot(level) => {
                write!(f, "a table is in use in the place of a leaf of {}", level.span())
            }
        }
    }
}

impl fmt::Display for VmapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VmapError::Empty => f.write_str("nothing was asked for"),
            VmapError::TooLarge { asked, installed } => {
                write!(f, "{asked} are more than the {installed} of memory there are")
            }
            VmapError::Overflow(pa, bytes) => {
                write!(f, "{bytes} from {pa} on end beyond the last address")
            }
            VmapError::Alignment(align) => {
                write!(f, "the alignment {align} is no power of two from {FRAME_BYTES} to 1g")
            }
            VmapError::Node(node) => write!(f, "node {} has no memory", node.0),
            VmapError::Frame(frame) => write!(f, "no page table can name {frame}"),
            VmapError::Managed(frame) => write!(f, "{frame} is memory, not a device"),
            VmapError::Short(short) => short.fmt(f),
            VmapError::NoArea(va) => write!(f, "{va} lies in no area of the kernel's range"),
            VmapError::NotStart { va, start } => {
                write!(f, "{va} lies inside the area at {start}: give its first address")
            }
            VmapError::NotMemory(va) => {
                write!(f, "no memory begins at {va}: give the first address of an area of memory")
            }
            VmapError::Freed(va) => write!(f, "the area at {va} was given back already"),
            VmapError::Busy(va) => write!(f, "somebody else works on the area at {va}"),
            VmapError::OtherKind(va) => write!(
                f,
                "the area at {va} is of the other kind: memory goes by free, mappings by unmap"
            ),
            VmapError::Misaligned(va) => write!(f, "{va} is not a multiple of {FRAME_BYTES}"),
            VmapError::Beyond { va } => write!(f, "{va} lies beyond the area"),
            VmapError::Leaf(va, level) => {
                write!(f, "{va} is mapped by a leaf of {}: it has no entry", level.span())
            }
            VmapError::CannotSplit(va, level) => write!(
                f,
                "the leaf of {} at {va} cannot be split while it is in use: change all of it",
                level.span()
            ),
            VmapError::NotForUsers(va) => {
                write!(f, "the area at {va} is the kernel's: ask for one that is for users")
            }
        }
    }
}

impl error::Error for Short {}
impl error::Error for VmapError {}
impl From<Short> for VmapError {
    fn from(short: Short) -> VmapError {
        VmapError::Short(short)
    }
}
