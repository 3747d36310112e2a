//! Why a guest got no memory, or none was given back.

use core::{error, fmt};
use foliant::manager::SpaceError;
use foliant::space::{MapError, RangeError};
use foliant_units::{Bytes, Frame, Order};
use std::io;
use vm_memory::GuestAddress;

/// What the operating system was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostCall {
    /// Addresses for a view.
    Reserve,
    /// To show a page in a view.
    Show,
    /// To take one out of a view.
    Hide,
    /// The length of the machine's file.
    Measure,
    /// To free the memory of a page.
    Free,
}

/// Why a guest got no memory, or gave none back. Nothing was taken, and what it had it still has.
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
    /// Not all of the range is memory of the guest.
    Outside(GuestAddress, Bytes),
    /// The memory at this address was not made in a file, so its pages stay where they are.
    Direct(GuestAddress),
    /// The caller was told where the region at this address lies in the file.
    Shared(GuestAddress),
    /// So many pages of this size are to come back, and the pool has only so many that are not
    /// reserved.
    NoPages(Order, u64, u64),
    /// The file, which begins with the second frame and has that length, does not hold the page at
    /// the first one.
    NotInFile(Frame, Frame, Bytes),
    /// The operating system refused, with this number of an error.
    Host(HostCall, i32),
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
            GuestError::Outside(start, bytes) => write!(
                f,
                "not all of {bytes} from {:#x} on are memory of one region of the guest: give back one region at a time",
                start.0
            ),
            GuestError::Direct(start) => write!(
                f,
                "the memory at {:#x} is reached through the direct map, so nothing of it can be given back: make it with \
                 `GuestRam::in_file`",
                start.0
            ),
            GuestError::Shared(start) => write!(
                f,
                "others were told where the memory at {:#x} lies in its file (`file_offset`), so nothing of it can be given back: give \
                 parts back before, or do not ask",
                start.0
            ),
            GuestError::NoPages(order, asked, free) => write!(
                f,
                "{asked} pages of {} are to come back, and {free} in the pool are not reserved: enlarge it, or wait until others give \
                 some back",
                order.bytes()
            ),
            GuestError::NotInFile(frame, first, length) => write!(
                f,
                "the page at {frame} is not in the file of {length} that begins with {first}: give the file that holds all of the \
                 machine's memory"
            ),
            GuestError::Host(call, code) => {
                let (what, way) = match call {
                    HostCall::Reserve => ("addresses for a region", "make it smaller"),
                    HostCall::Show => ("to map a page of the file", "see vm.max_map_count"),
                    HostCall::Hide => ("to take a page out of a region", "see vm.max_map_count"),
                    HostCall::Measure => ("the length of the file", "is it a file?"),
                    HostCall::Free => {
                        ("to free a page of the file", "it needs one with holes, as a memfd")
                    }
                };
                let why = io::Error::from_raw_os_error(*code);
                write!(f, "the operating system refused {what} ({why}): {way}")
            }
        }
    }
}

impl error::Error for GuestError {}
