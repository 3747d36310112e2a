//! The allocator's answers where it cannot do as it was asked.
//!
//! **Invariants**: I1. Every answer carries the values that its reader needs to act.
//!
//! **Not here**: broken invariants; those are assertions.

use super::Class;
use core::fmt;
use foliant_units::{Cpu, Frame, FrameRange, Node, Order};

/// A count of 64-bit words of metadata.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WordCount(pub u64);

/// A count of CPUs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CpuCount(pub u16);

/// Why ranges were not taken in. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RegionError {
    /// The range has no frame.
    Empty(FrameRange),
    /// The range exceeds 16 TiB (2^32 frames).
    TooLarge(FrameRange),
    /// The two ranges share a frame.
    Overlap(FrameRange, FrameRange),
    /// There would be more than 64 ranges; this one does not find room.
    TooMany(FrameRange),
    /// No CPU, or more than 1024.
    Cpus(CpuCount),
    /// This range is on a node beyond the last one.
    Node(Node, FrameRange),
    /// Fewer words were lent than are needed.
    Metadata {
        /// Words needed.
        need: WordCount,
        /// Words lent.
        lent: WordCount,
    },
    /// Another CPU is adding a range just now; ask again.
    Busy(FrameRange),
}

/// Why there is no block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllocError {
    /// No aligned block of `order` is free.
    NoMemory {
        /// The order asked for.
        order: Order,
        /// The class asked for.
        class: Class,
    },
    /// The allocator was built for fewer CPUs.
    UnknownCpu {
        /// The CPU named.
        cpu: Cpu,
        /// How many there are.
        cpus: CpuCount,
    },
}

/// A call that its caller must not make. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misuse {
    /// The frame lies in none of the ranges.
    Foreign {
        /// The frame named.
        frame: Frame,
        /// The order named.
        order: Order,
    },
    /// The frame cannot be the first of a block of this order.
    Misaligned {
        /// The frame named.
        frame: Frame,
        /// The order named.
        order: Order,
    },
    /// The frame is free: freed twice, or never allocated.
    NotAllocated {
        /// The frame named.
        frame: Frame,
        /// The order named.
        order: Order,
    },
    /// The frame is reserved.
    Reserved {
        /// The frame named.
        frame: Frame,
        /// The order named.
        order: Order,
    },
    /// The frame belongs to an allocated block other than the one named.
    WrongOrder {
        /// The frame named.
        frame: Frame,
        /// The order named.
        order: Order,
        /// The first frame of the block that is allocated.
        head: Frame,
        /// The order of the block that is allocated.
        held: Order,
    },
    /// A split into blocks larger than the one that is split.
    Widening {
        /// The frame named.
        frame: Frame,
        /// The order named.
        order: Order,
        /// The larger order asked for.
        into: Order,
    },
    /// The allocator was built for fewer CPUs.
    UnknownCpu {
        /// The frame named.
        frame: Frame,
        /// The order named.
        order: Order,
        /// The CPU named.
        cpu: Cpu,
    },
}

/// Why a range was not reserved. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReserveError {
    /// The frame lies in none of the ranges.
    Foreign(Frame),
    /// The frame is not free.
    InUse(Frame),
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegionError::Empty(range) => write!(f, "the range {range:?} has no frame"),
            RegionError::TooLarge(range) => write!(f, "the range {range:?} exceeds 16 TiB"),
            RegionError::Overlap(a, b) => write!(f, "the ranges {a:?} and {b:?} overlap"),
            RegionError::TooMany(range) => {
                write!(f, "no room for {range:?}: 64 ranges are the most")
            }
            RegionError::Cpus(count) => write!(f, "{} CPUs; there must be 1 to 1024", count.0),
            RegionError::Node(node, range) => {
                let most = super::NODES_MAX - 1;
                write!(f, "{range:?} is on node {}; the last one is node {most}", node.0)
            }
            RegionError::Metadata { need, lent } => {
                write!(f, "{} words of metadata are needed, {} were lent", need.0, lent.0)
            }
            RegionError::Busy(range) => {
                write!(f, "{range:?} must wait: another CPU is adding a range")
            }
        }
    }
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AllocError::NoMemory { order, class } => {
                write!(f, "no free block of order {order} for {class}")
            }
            AllocError::UnknownCpu { cpu, cpus } => {
                write!(f, "CPU {} of {}, counted from 0", cpu.0, cpus.0)
            }
        }
    }
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misuse::Foreign { frame, order } => {
                write!(f, "frame {frame} (order {order}) lies in no range of this allocator")
            }
            Misuse::Misaligned { frame, order } => {
                write!(f, "frame {frame} cannot begin a block of order {order}")
            }
            Misuse::NotAllocated { frame, order } => {
                write!(f, "frame {frame} (order {order}) is free already")
            }
            Misuse::Reserved { frame, order } => {
                write!(f, "frame {frame} (order {order}) is reserved")
            }
            Misuse::WrongOrder { frame, order, head, held } => write!(
                f,
                "frame {frame} (order {order}) belongs to the block of order {held} at {head}"
            ),
            Misuse::Widening { frame, order, into } => {
                write!(f, "frame {frame} (order {order}) cannot be split into order {into}")
            }
            Misuse::UnknownCpu { frame, order, cpu } => {
                write!(f, "frame {frame} (order {order}) was named by unknown CPU {}", cpu.0)
            }
        }
    }
}

impl fmt::Display for ReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReserveError::Foreign(frame) => write!(f, "frame {frame} lies in no range"),
            ReserveError::InUse(frame) => write!(f, "frame {frame} is not free"),
        }
    }
}

impl core::error::Error for RegionError {}
impl core::error::Error for AllocError {}
impl core::error::Error for Misuse {}
impl core::error::Error for ReserveError {}
