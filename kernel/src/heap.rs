//! The kernel's heap: that of `foliant-heap`, on blocks that the manager lends.
//!
//! **Locking**: one lock, held with interrupts out (`lock`); the manager is called without it.
#![allow(unsafe_code)]

use crate::layout::{DIRECT, direct};
use crate::lock::Serving;
use crate::memory::manager;
use core::ptr::NonNull;
use foliant_heap::{Heap, Lender};
use foliant_units::{Order, Pa};

struct Lent;

// SAFETY: what the manager lends is the borrower's alone until it is taken back, and the direct map
// reaches all memory, at a multiple of 1 GiB.
unsafe impl Lender for Lent {
    fn lend(&self, order: Order) -> Option<NonNull<u8>> {
        NonNull::new(direct(manager().lend(order).ok()?.pa()))
    }
    unsafe fn take_back(&self, block: NonNull<u8>, order: Order) {
        let frame = Pa::new(block.addr().get() as u64 - DIRECT).frame();
        manager().take_back(frame, order).expect("the block was lent");
    }
}

#[global_allocator]
static HEAP: Heap<Lent, Serving> = Heap::new(Lent);

/// Pages that the heap holds.
pub(crate) fn pages() -> u64 {
    HEAP.pages().get()
}
