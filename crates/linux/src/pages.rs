//! Addresses and lengths as a program gives them: any number of bytes.

use foliant_units::{FRAME_BYTES, Va, VaRange};

/// Bytes of a page.
pub(crate) const PAGE: u64 = FRAME_BYTES;

/// The range between two addresses, the lower one first.
pub(crate) fn range(start: u64, end: u64) -> VaRange {
    VaRange::new(Va::new(start), Va::new(end.max(start))).expect("its end is not below its start")
}

/// `bytes` rounded up to pages; 0 where that overflows, as in Linux.
pub(crate) fn page_align(bytes: u64) -> u64 {
    bytes.wrapping_add(PAGE - 1) & !(PAGE - 1)
}

/// Whether an address is a page's first.
pub(crate) fn is_aligned(addr: u64) -> bool {
    addr.is_multiple_of(PAGE)
}
