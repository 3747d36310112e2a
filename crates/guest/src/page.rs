//! One huge page as a region of guest memory.
#![allow(unsafe_code)]

use foliant_machine::PhysMem;
use foliant_units::{Bytes, Frame, Order};
use vm_memory::{
    Address, GuestAddress, GuestMemoryError, GuestMemoryRegion, GuestMemoryRegionBytes,
    GuestMemoryResult, GuestUsize, MemoryRegionAddress, VolatileSlice,
};

/// One huge page of a guest. It lives in its [`GuestRam`](crate::GuestRam), and is reached through
/// the direct map.
#[derive(Debug)]
pub struct Page<'m, M> {
    machine: &'m M,
    start: GuestAddress,
    frame: Frame,
    order: Order,
}

impl<'m, M> Page<'m, M> {
    /// The page at `frame`, which stays the guest's for as long as the value lives (G2): made by
    /// `GuestRam` alone.
    pub(crate) const fn of(
        machine: &'m M,
        start: GuestAddress,
        frame: Frame,
        order: Order,
    ) -> Page<'m, M> {
        Page { machine, start, frame, order }
    }
    /// The page's first frame: what a nested table maps.
    pub const fn frame(&self) -> Frame {
        self.frame
    }
    /// The page's size.
    pub const fn order(&self) -> Order {
        self.order
    }
}

impl<M: PhysMem> GuestMemoryRegion for Page<'_, M> {
    type B = ();

    fn len(&self) -> GuestUsize {
        self.order.bytes().get()
    }
    fn start_addr(&self) -> GuestAddress {
        self.start
    }
    fn bitmap(&self) {}

    fn get_host_address(&self, at: MemoryRegionAddress) -> GuestMemoryResult<*mut u8> {
        let at = self.check_address(at).ok_or(GuestMemoryError::InvalidBackendAddress)?;
        self.get_slice(at, 1).map(|slice| slice.ptr_guard_mut().as_ptr())
    }
    fn get_slice(
        &self,
        offset: MemoryRegionAddress,
        count: usize,
    ) -> GuestMemoryResult<VolatileSlice<'_, ()>> {
        let end = offset.checked_add(count as u64).map(|end| end.raw_value());
        if end.is_none_or(|end| end > self.len()) {
            return Err(GuestMemoryError::InvalidBackendAddress);
        }
        let (pa, bytes) = (self.frame.pa().add(offset.raw_value()), Bytes::new(count as u64));
        // SAFETY: G2 — the page is mapped in a space that ends after this value.
        let at = unsafe { self.machine.reach(pa, bytes) };
        // SAFETY: as above, for as long as `self` is borrowed; the guest is expected to write it
        // meanwhile.
        Ok(unsafe { VolatileSlice::new(at.as_ptr(), count) })
    }
    #[cfg(target_os = "linux")]
    fn is_hugetlbfs(&self) -> Option<bool> {
        Some(false) // huge, but no file
    }
}

impl<M: PhysMem> GuestMemoryRegionBytes for Page<'_, M> {}
