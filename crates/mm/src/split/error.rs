//! Why a folio stays whole, or where it is.

use crate::stock::NoBlock;
use core::{error, fmt};
use foliant_units::{Frame, Order, Va};

/// Why a folio was not split. It is what it was before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SplitError {
    /// The frame is in no folio.
    NotAFolio(Frame),
    /// Nothing of a folio is mapped at this address.
    NotMapped(Va),
    /// It is in a huge page of a pool, which stays whole.
    Huge(Frame),
    /// Pieces have to be smaller than the folio, and may not be pairs of pages.
    Order {
        /// The folio's order.
        folio: Order,
        /// What was asked for.
        into: Order,
    },
    /// The memory is used by other ways than entries.
    Pinned(Frame),
    /// It is being split, moved or given back, or it stands in the same list a second time.
    Busy(Frame),
    /// Its memory is broken.
    Broken(Frame),
    /// Nothing maps it any more.
    Unmapped(Frame),
    /// Mappings came or went meanwhile.
    Changed(Frame),
}

impl fmt::Display for SplitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SplitError::NotAFolio(frame) => write!(f, "{frame} is in no folio"),
            SplitError::NotMapped(va) => write!(f, "no folio is mapped at {va}"),
            SplitError::Huge(frame) => {
                write!(f, "{frame} is in a huge page of a pool: demote that")
            }
            SplitError::Order { folio, into } => {
                let (folio, into) = (folio.bytes(), into.bytes());
                write!(f, "a folio of {folio} is not split into pieces of {into}")
            }
            SplitError::Pinned(head) => {
                write!(f, "the folio at {head} is pinned: try again when it is let go")
            }
            SplitError::Busy(head) => {
                write!(f, "the folio of {head} is being worked on: try again")
            }
            SplitError::Broken(head) => write!(f, "the memory of the folio at {head} is broken"),
            SplitError::Unmapped(head) => write!(f, "nothing maps the folio at {head}"),
            SplitError::Changed(head) => {
                write!(f, "mappings of the folio at {head} changed meanwhile: try again")
            }
        }
    }
}
impl error::Error for SplitError {}

/// Why a folio was not moved. It is what it was before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RelocateError {
    /// It stays where it is, for a reason for which it would stay whole too.
    Stays(SplitError),
    /// There is no block to move it to.
    NoBlock(NoBlock),
}

impl fmt::Display for RelocateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RelocateError::Stays(error) => error.fmt(f),
            RelocateError::NoBlock(none) => none.fmt(f),
        }
    }
}
impl error::Error for RelocateError {}
