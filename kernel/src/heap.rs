//! The kernel's heap: that of `foliant-heap`, on blocks that the manager lends.
//!
//! What is kept for when nothing else is left is for the kernel alone: where it is touched,
//! programs get nothing until it is whole again (`linux::life`).
//!
//! **Locking**: one lock, held with interrupts out (`lock`); the manager is called without it.
#![allow(unsafe_code)]

use crate::layout::{DIRECT, direct};
use crate::lock::Serving;
use crate::memory::{managed, manager};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use foliant::split::Shrink;
use foliant_heap::{Heap, Lender};
use foliant_units::{Frame, Order, Pa, Pages};

/// Blocks are kept for when nothing else is left, of so many orders at most.
const KEPT_ORDERS: usize = 9;
/// The part of all memory that those of one order may take.
const PART: u64 = 64;
/// So many of each.
const KEPT: usize = 4;
/// So often what is free is asked for before it is counted again.
const COUNTED_EVERY: usize = 64;
/// So often somebody who is refused else looks for memory that is hardly used.
const ROUNDS: usize = 8;

/// Blocks that are kept for the kernel. A frame's number and 1, or 0.
static RESERVE: [[AtomicU64; KEPT]; KEPT_ORDERS] =
    [const { [const { AtomicU64::new(0) }; KEPT] }; KEPT_ORDERS];
/// How many are missing.
static MISSING: AtomicUsize = AtomicUsize::new(0);

/// Keeps blocks for when nothing else is left: from now on the kernel's own needs are met a while
/// longer than those of programs.
pub(crate) fn keep_reserve() {
    MISSING.store(KEPT * kept_orders().count(), Ordering::Relaxed);
    fill_reserve();
}
/// The orders of which blocks are kept.
fn kept_orders() -> impl Iterator<Item = Order> {
    let room = managed().get() / PART;
    Order::all().take(KEPT_ORDERS).take_while(move |it| KEPT as u64 * it.pages().get() <= room)
}
/// Fills up what is missing, as far as there is memory.
pub(crate) fn fill_reserve() {
    for (order, kept) in kept_orders().zip(&RESERVE) {
        for place in kept.iter().filter(|place| place.load(Ordering::Relaxed) == 0) {
            let Ok(frame) = manager().lend(order) else { return };
            let own = frame.get() + 1;
            let is_put = place.compare_exchange(0, own, Ordering::AcqRel, Ordering::Relaxed);
            match is_put {
                Ok(_) => _ = MISSING.fetch_sub(1, Ordering::AcqRel),
                Err(_) => manager().take_back(frame, order).expect("the block was lent"),
            }
        }
    }
}
/// Whether the kernel lives on what it kept.
pub(crate) fn is_scarce() -> bool {
    MISSING.load(Ordering::Relaxed) > 0
}
/// Whether a 32nd of the memory, or less, is left for what lasts. What is free is counted once in a
/// while, and each time as long as it is little: counting goes over all memory.
pub(crate) fn is_low() -> bool {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    static WAS_LOW: AtomicBool = AtomicBool::new(false);
    let is_due = ASKED.fetch_add(1, Ordering::Relaxed).is_multiple_of(COUNTED_EVERY);
    if is_due || WAS_LOW.load(Ordering::Relaxed) {
        let memory = manager().memory();
        WAS_LOW.store(memory.free.get() < memory.managed.get() / 32, Ordering::Relaxed);
    }
    is_scarce() || WAS_LOW.load(Ordering::Relaxed)
}
/// The same, after what programs no longer use has been given back. Whoever asks holds no lock that
/// the manager's work could wait for.
pub(crate) fn stays_low() -> bool {
    // Others may make more such folios meanwhile.
    for _ in 0..ROUNDS {
        if !is_low() {
            return false;
        }
        if !find_some() {
            return true;
        }
    }
    is_low()
}
/// Looks for memory in folios that lost pages, or hold little but zeros, and says whether there was
/// any.
pub(crate) fn find_some() -> bool {
    const SOME: Shrink = Shrink { folios: 64, zeros_max: Some(Pages::new(256)) };
    manager().deferred() > 0 && manager().shrink_deferred(SOME).pages > 0
}
/// A block of the reserve.
fn of_reserve(order: Order) -> Option<Frame> {
    let kept = RESERVE.get(order.index())?;
    let take = |place: &AtomicU64| place.swap(0, Ordering::AcqRel).checked_sub(1);
    let frame = kept.iter().find_map(take)?;
    MISSING.fetch_add(1, Ordering::AcqRel);
    Some(Frame::new(frame))
}

struct Lent;

// SAFETY: what the manager lends is the borrower's alone until it is taken back, and the direct map
// reaches all memory, at a multiple of 1 GiB.
unsafe impl Lender for Lent {
    fn lend(&self, order: Order) -> Option<NonNull<u8>> {
        let frame = manager().lend(order).ok().or_else(|| of_reserve(order))?;
        NonNull::new(direct(frame.pa()))
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
