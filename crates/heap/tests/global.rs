//! The heap as the global allocator of this very program, with threads.
#![allow(unsafe_code)]

use foliant_heap::units::Order;
use foliant_heap::{Heap, Lender};
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::ptr::NonNull;

/// The host lends blocks.
struct Host;

impl Host {
    fn layout(order: Order) -> Option<Layout> {
        let bytes = usize::try_from(order.bytes().get()).ok()?;
        Layout::from_size_align(bytes, bytes).ok()
    }
}

// SAFETY: the blocks are the system allocator's, aligned to their size.
unsafe impl Lender for Host {
    fn lend(&self, order: Order) -> Option<NonNull<u8>> {
        // SAFETY: no order is empty.
        NonNull::new(unsafe { System.alloc(Host::layout(order)?) })
    }
    unsafe fn take_back(&self, block: NonNull<u8>, order: Order) {
        let layout = Host::layout(order).expect("it was lent by this layout");
        // SAFETY: it was lent by this layout.
        unsafe { System.dealloc(block.as_ptr(), layout) }
    }
}

#[global_allocator]
static HEAP: Heap<Host, spin::Mutex<()>> = Heap::new(Host);

/// A sum over many strings that grow, move and go.
fn work(seed: u64) -> u64 {
    let text = |n: u64| format!("{n:0width$}", width = (n % 40) as usize);
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    for nth in 0..3000 {
        let n = (nth * 7919 + seed) % 1009;
        names.entry(n).and_modify(|name| name.push('x')).or_insert_with(|| text(n));
        if nth % 3 == 0 {
            names.remove(&(n / 2));
        }
    }
    let all: Vec<String> = names.into_values().collect();
    all.concat().bytes().map(u64::from).sum()
}

#[test]
fn a_program_lives_on_it() {
    let before = HEAP.pages().get();
    assert!(before > 0, "the test's own strings are in it");
    let alone: Vec<u64> = (0..4).map(work).collect();
    let threads: Vec<_> = (0..4).map(|seed| std::thread::spawn(move || work(seed))).collect();
    let together: Vec<u64> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(alone, together);
    let large = vec![1u8; 3 << 20];
    assert!(HEAP.pages().get() >= before + 1024, "4 MiB hold 3");
    drop(large);
    assert!(HEAP.pages().get() < before + 512, "{before} frames, then {:?}", HEAP.pages());
}
