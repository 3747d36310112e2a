//! Addresses and lengths as a program gives them: any number of bytes; sizes of pages.

use foliant::space::Flags;
use foliant_units::{FRAME_BYTES, Order, Va, VaRange};

/// Bytes of a page.
pub(crate) const PAGE: u64 = FRAME_BYTES;

/// Kilobytes of a page.
pub(crate) const PAGE_KB: u64 = PAGE >> 10;

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

/// What lists of areas call memory of a pool that no file was asked for.
pub(crate) const POOLED: &str = "/anon_hugepage (deleted)";

/// The flag of pages of so many bytes, if a pool can have such.
pub(crate) fn huge(page: u64) -> Option<Flags> {
    Order::all().find(|order| order.bytes().get() == page).and_then(Flags::huge)
}

/// Bytes of a page of the pool that is asked for by the logarithm of that, or by 0 for the usual
/// one.
pub(crate) fn of_pool(log: u32) -> Option<u64> {
    let page = match log {
        0 => Order::SIZE_2M.bytes().get(),
        log => 1u64.checked_shl(log)?,
    };
    huge(page).map(|_| page)
}
