//! Why a guest got no memory.

use core::{error, fmt};
use foliant::manager::SpaceError;
use foliant::space::{MapError, RangeError};
use foliant_units::{Bytes, Order};
use vm_memory::GuestAddress;

/// Why a guest got no memory. Nothing was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GuestError {
    /// No range was given, or one without a page.
    Empty,
    /// There is no pool of this size.
    Order(Order),
    /// The range does not begin and end at multiples of the page size.
    Misaligned(GuestAddress, Bytes, Order),
    /// The range goes on beyond the last address there is.
    Beyond(GuestAddress, Bytes),
    /// The range begins below the end of the one before it.
    Overlap(GuestAddress, GuestAddress),
    /// No memory for the space behind it.
    Space(SpaceError),
    /// The pool has not so many pages, or the page-table format has none of that size.
    Map(MapError),
    /// A page could not be made present.
    Populate(RangeError),
}

impl fmt::Display for GuestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GuestError::Empty => f.write_str("a guest needs at least one page of memory"),
            GuestError::Order(order) => {
                write!(f, "there is no pool of {} pages: use 2m or 1g", order.bytes())
            }
            GuestError::Misaligned(start, bytes, order) => write!(
                f,
                "{bytes} of guest memory from {:#x} on are no whole pages of {}",
                start.0,
                order.bytes()
            ),
            GuestError::Beyond(start, bytes) => {
                write!(f, "{bytes} from {:#x} on leave the guest's address space", start.0)
            }
            GuestError::Overlap(end, start) => write!(
                f,
                "guest memory from {:#x} on begins below {:#x}, where the range before it ends: give ranges in order",
                start.0, end.0
            ),
            GuestError::Space(error) => error.fmt(f),
            GuestError::Map(error) => error.fmt(f),
            GuestError::Populate(error) => error.fmt(f),
        }
    }
}

impl error::Error for GuestError {}
