//! Where the records of a folio allocator lie that has no memory but what it manages.

use core::fmt;
use foliant_folio::{RegionError, ReserveError};
use foliant_units::{Frame, FrameRange, Pages};

/// Why an allocator did not start. Nothing of the memory is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StartError {
    /// It was started before.
    Started,
    /// The ranges are none that the folio allocator takes.
    Region(RegionError),
    /// No range has so many frames in a row for the records, outside of what is reserved.
    NoRoom(Pages),
    /// A frame was named in two of the reserved ranges.
    Reserved(ReserveError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Started => f.write_str("it was started before: start it once, at boot"),
            StartError::Region(error) => error.fmt(f),
            StartError::NoRoom(pages) => write!(
                f,
                "no {} frames in a row for the records: hand over more memory, or reserve less",
                pages.get()
            ),
            StartError::Reserved(error) => {
                write!(f, "two of the reserved ranges share a frame: {error}")
            }
        }
    }
}

impl core::error::Error for StartError {}

/// What two ranges share.
pub(crate) fn shared(one: FrameRange, other: FrameRange) -> Option<FrameRange> {
    let (start, end) = (one.start().max(other.start()), one.end().min(other.end()));
    let pages = end.get().checked_sub(start.get()).filter(|pages| *pages > 0)?;
    FrameRange::new(start, Pages::new(pages))
}

/// The lowest `pages` frames in a row that lie in one range of `memory` and in none that is
/// reserved.
pub(crate) fn room(
    memory: &[FrameRange],
    reserved: &[FrameRange],
    pages: Pages,
) -> Option<FrameRange> {
    let starts = memory.iter().map(|range| range.start());
    let starts = starts.chain(reserved.iter().map(|range| range.end()));
    let fits = |start: Frame| {
        let room = FrameRange::new(start, pages)?;
        let inside = memory.iter().any(|range| shared(*range, room) == Some(room));
        (inside && !reserved.iter().any(|range| range.overlaps(room))).then_some(room)
    };
    starts.filter_map(fits).min_by_key(|room| room.start())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, pages: u64) -> FrameRange {
        FrameRange::new(Frame::new(start), Pages::new(pages)).unwrap()
    }

    #[test]
    fn room_is_found_beside_what_is_reserved() {
        let memory = [range(100, 50), range(10, 20)];
        let check = |reserved: &[FrameRange], pages, start: Option<u64>| {
            let found = room(&memory, reserved, Pages::new(pages));
            assert_eq!(found, start.map(|start| range(start, pages)), "{reserved:?}, {pages}");
        };
        check(&[], 20, Some(10));
        check(&[], 21, Some(100));
        check(&[], 51, None);
        check(&[range(10, 1)], 19, Some(11));
        check(&[range(10, 1)], 20, Some(100));
        check(&[range(29, 1)], 19, Some(10));
        check(&[range(0, 200)], 1, None);
        check(&[range(0, 12), range(12, 10)], 8, Some(22));
        check(&[range(0, 12), range(12, 10), range(110, 10)], 9, Some(100));
        check(&[range(0, 12), range(12, 10), range(101, 10)], 9, Some(111));
    }
    #[test]
    fn what_two_ranges_share() {
        let check = |one, other, both: Option<FrameRange>| {
            assert_eq!((shared(one, other), shared(other, one)), (both, both));
        };
        check(range(10, 10), range(15, 10), Some(range(15, 5)));
        check(range(10, 10), range(12, 3), Some(range(12, 3)));
        check(range(10, 10), range(20, 3), None);
        check(range(10, 10), range(30, 3), None);
        check(range(10, 10), range(15, 0), None);
    }
}
