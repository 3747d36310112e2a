//! A kernel that has no memory manager: its frames and its `Box` come from Foliant, nothing else.
#![no_std]

use core::sync::atomic::{AtomicU16, Ordering};
use foliant_heap::claim::Claim;
use foliant_heap::folio::{Class, CpuCount};
use foliant_heap::units::{Cpu, FrameRange, Order};
use foliant_heap::{Direct, Heap, StartError};

/// What this kernel allocates from: `alloc::boxed::Box`, `alloc::vec::Vec` and the like. Before
/// [`boot`] every request is refused.
#[cfg_attr(target_os = "none", global_allocator)]
pub static HEAP: Heap<Direct, spin::Mutex<()>> = Heap::new(Direct::new(me));

/// Which CPU runs this code; a kernel reads a register of its own.
fn me() -> Cpu {
    Cpu::new(ME.load(Ordering::Relaxed))
}
pub static ME: AtomicU16 = AtomicU16::new(0);

/// Takes the memory over that the boot loader found, but for the kernel's image.
///
/// # Safety
/// `direct_map` is where physical address 0 is mapped, and with it all of `memory`, of which nobody
/// else uses anything outside of `image`.
pub unsafe fn boot(
    memory: &[FrameRange],
    image: FrameRange,
    direct_map: *mut u8,
    cpus: u16,
) -> Result<(), StartError> {
    // SAFETY: the caller's promise.
    unsafe { HEAP.lender().start(memory, &[image], direct_map, CpuCount(cpus)) }?;
    Ok(())
}

/// A frame for a page table.
pub fn table() -> Option<Claim> {
    HEAP.lender().alloc(Order::BASE, Class::Table).ok()
}
