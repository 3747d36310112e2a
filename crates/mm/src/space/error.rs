//! Why a range, or a request for one, is refused.

use super::area::{AreaLimit, Flags};
use super::areas::TooMany;
use crate::pool::{Shortage, SubpoolId};
use crate::stock::{NoBlock, NoRecord, OverLimit};
use core::{error, fmt};
use foliant_units::{Bytes, Pages, Va};

/// Why a range was refused. Nothing changed, but where advice fails half way: of guards for which
/// memory for a table runs out, and of pages that are made present, those that are done stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeError {
    /// There is no such space (any more).
    NoSpace,
    /// There is no such object (any more).
    NoObject,
    /// The range is empty.
    Empty,
    /// An end is not a multiple of 4096.
    Misaligned(Va),
    /// It leaves the user half of the address space.
    Outside(Va),
    /// Nothing that the call could work on is at this address of the range.
    Hole(Va),
    /// The memory at this address is broken, or was said to be.
    Broken(Va),
    /// The address lies inside a huge page of this size, which stays whole.
    Cuts(Va, Bytes),
    /// Huge pages of a pool lie there, with which this is not done.
    Huge(Va),
    /// The area at this address may never have other rights than these.
    Ceiling(Va, Flags),
    /// The first address lies below the second, the lowest one that may be mapped.
    TooLow(Va, Va),
    /// No memory for the manager's records.
    NoMemory,
    /// The space would have more areas than it may.
    TooManyAreas(AreaLimit),
    /// The space would be charged for more pages, tables and records than it may.
    OverLimit(Pages),
}

/// Why nothing was mapped. Nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapError {
    /// The range that was asked for is refused.
    Range(RangeError),
    /// Something is mapped there already, from this address on.
    Occupied(Va),
    /// No gap is large enough.
    NoRoom(Bytes),
    /// The page-table format has no leaf of this size.
    NoLeaf(Bytes),
    /// Huge pages of a pool, or kernel memory, do not go together with these flags, or the rights
    /// exceed their own ceiling.
    Flags(Flags),
    /// The pool has too few pages to reserve.
    NoHugePages(Shortage),
    /// The subpool ended, or is not one of pages of this size.
    NoSubpool(SubpoolId),
}

impl From<NoBlock> for RangeError {
    fn from(_: NoBlock) -> RangeError {
        RangeError::NoMemory
    }
}
impl From<NoRecord> for RangeError {
    fn from(why: NoRecord) -> RangeError {
        match why {
            NoRecord::Block => RangeError::NoMemory,
            NoRecord::Limit(over) => over.into(),
        }
    }
}
impl From<OverLimit> for RangeError {
    fn from(OverLimit(limit): OverLimit) -> RangeError {
        RangeError::OverLimit(limit)
    }
}
impl From<TooMany> for RangeError {
    fn from(TooMany(limit): TooMany) -> RangeError {
        RangeError::TooManyAreas(limit)
    }
}
impl From<RangeError> for MapError {
    fn from(error: RangeError) -> MapError {
        MapError::Range(error)
    }
}

impl fmt::Display for RangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RangeError::NoSpace => f.write_str("there is no such address space"),
            RangeError::NoObject => f.write_str("there is no such object"),
            RangeError::Empty => f.write_str("the range is empty"),
            RangeError::Misaligned(va) => write!(f, "{va} is not a multiple of 4096"),
            RangeError::Outside(va) => write!(f, "{va} lies outside the user half"),
            RangeError::Hole(va) => write!(f, "nothing is mapped at {va}"),
            RangeError::Broken(va) => {
                write!(f, "the memory at {va} is broken: map other memory there")
            }
            RangeError::Cuts(va, size) => {
                write!(f, "{va} cuts a huge page: huge pages of {size} are worked on as a whole")
            }
            RangeError::Huge(va) => {
                write!(f, "huge pages of a pool lie at {va}: unmap them and map anew")
            }
            RangeError::Ceiling(va, most) => {
                write!(f, "the area at {va} may have no rights but those of {most:?}")
            }
            RangeError::TooLow(va, lowest) => {
                write!(f, "{va} lies below {lowest}, the lowest address that may be mapped")
            }
            RangeError::NoMemory => f.write_str("no memory for the space's records"),
            RangeError::OverLimit(limit) => write!(
                f,
                "the space may be charged for {} pages, its tables and records included: unmap some, or make it with a higher limit",
                limit.get()
            ),
            RangeError::TooManyAreas(AreaLimit(limit)) => write!(
                f,
                "a space may have {limit} areas: unmap some, map them side by side and alike so that they join, or set \
                 more in the manager's setup"
            ),
        }
    }
}
impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapError::Range(error) => error.fmt(f),
            MapError::Occupied(va) => write!(f, "something is mapped at {va} already"),
            MapError::NoRoom(bytes) => write!(f, "no gap of {bytes} bytes is left"),
            MapError::NoLeaf(size) => write!(f, "the page tables have no leaf of {size}"),
            MapError::Flags(flags) => {
                write!(
                    f,
                    "huge pages have one size, do not grow and are nobody's to fill, and no area begins above its ceiling: {flags:?}"
                )
            }
            MapError::NoHugePages(shortage) => shortage.fmt(f),
            MapError::NoSubpool(id) => write!(
                f,
                "the subpool of {} pages ended, or the object has pages of another size",
                id.order.bytes()
            ),
        }
    }
}
impl error::Error for RangeError {}
impl error::Error for MapError {}
