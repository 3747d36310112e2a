//! The kernel's heap, on blocks that the manager lends.
//!
//! Sizes are powers of two. Up to half a page they come from lists of free pieces, one list per
//! size, refilled page by page; above that each is a block of its own, reached through the direct
//! map, and goes back when it is freed.
//!
//! **Invariants**
//! - H1. A piece is in its list or with its user. The page of a piece is never given back: the
//!   lists keep what the heap once needed.
//! - H2. Where no block is left the answer is null: who asked decides what that means.
//!
//! **Locking**: one lock, held with interrupts out for a few instructions (`lock`); the manager is
//! called without it.
#![allow(unsafe_code)]

use crate::layout::{DIRECT, direct};
use crate::lock::Served;
use crate::memory::manager;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicU64, Ordering};
use foliant_units::{Bytes, FRAME_BYTES, Order, Pa};

/// The smallest piece holds a link.
const SMALLEST: usize = 16;
const LISTS: usize = (FRAME_BYTES as usize / 2 / SMALLEST).ilog2() as usize + 1;

struct Heap {
    lists: Served<Lists>,
    pages: AtomicU64,
}

struct Lists([Option<NonNull<Link>>; LISTS]);
// SAFETY: H1 — a piece in a list is reachable through the list only.
unsafe impl Send for Lists {}

struct Link {
    next: Option<NonNull<Link>>,
}

#[global_allocator]
static HEAP: Heap = Heap { lists: Served::new(Lists([None; LISTS])), pages: AtomicU64::new(0) };

/// Pages that the heap holds.
pub(crate) fn pages() -> u64 {
    HEAP.pages.load(Ordering::Relaxed)
}

fn size_of_layout(layout: Layout) -> usize {
    layout.size().max(layout.align()).max(SMALLEST).next_power_of_two()
}
fn list_of(size: usize) -> usize {
    (size / SMALLEST).ilog2() as usize
}

impl Heap {
    fn push(&self, list: usize, piece: *mut u8) {
        self.lists.with(|Lists(lists)| {
            let link = piece.cast::<Link>();
            // SAFETY: H1 — the piece is ours, large enough and aligned for a link.
            unsafe { link.write(Link { next: lists[list] }) };
            lists[list] = NonNull::new(link);
        });
    }
    fn pop(&self, list: usize) -> Option<*mut u8> {
        self.lists.with(|Lists(lists)| {
            let first = lists[list]?;
            // SAFETY: H1 — a link in a list is whole.
            lists[list] = unsafe { first.as_ref() }.next;
            Some(first.as_ptr().cast())
        })
    }

    /// A block of its own.
    fn block(&self, order: Order) -> Option<*mut u8> {
        let frame = manager().lend(order).ok()?;
        self.pages.fetch_add(order.pages().get(), Ordering::Relaxed);
        Some(direct(frame.pa()))
    }
}

// SAFETY: pieces and blocks are distinct memory (H1, and the manager's word), as large and aligned
// as their size.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let size = size_of_layout(layout);
        if size > FRAME_BYTES as usize / 2 {
            let order = Order::fitting(Bytes::new(size as u64));
            return order.and_then(|order| self.block(order)).unwrap_or(null_mut());
        }
        let list = list_of(size);
        if let Some(piece) = self.pop(list) {
            return piece;
        }
        let Some(page) = self.block(Order::BASE) else { return null_mut() };
        for offset in (size..FRAME_BYTES as usize).step_by(size) {
            self.push(list, page.wrapping_add(offset));
        }
        page
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        let size = size_of_layout(layout);
        if size <= FRAME_BYTES as usize / 2 {
            self.push(list_of(size), piece);
            return;
        }
        let order =
            Order::fitting(Bytes::new(size as u64)).expect("it was allocated by this order");
        self.pages.fetch_sub(order.pages().get(), Ordering::Relaxed);
        let frame = Pa::new(piece as u64 - DIRECT).frame();
        manager().take_back(frame, order).expect("the block was lent to `alloc`");
    }
}
