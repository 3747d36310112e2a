//! The kernel's heap, with memory of the host as its physical memory.

use foliant_heap::units::{Frame, FrameRange, Pages};
use outside_heap::{HEAP, boot, table};
use std::alloc::{GlobalAlloc, Layout, System};

#[test]
fn it_boots_and_allocates() {
    let small = Layout::new::<[u64; 5]>();
    // SAFETY: the layout is not empty.
    assert!(unsafe { HEAP.alloc(small) }.is_null(), "nothing is there before the boot");

    let bytes = Layout::from_size_align(8 << 20, 2 << 20).unwrap();
    // SAFETY: the layout is not empty.
    let memory = unsafe { System.alloc(bytes) };
    let range = |start, pages| FrameRange::new(Frame::new(start), Pages::new(pages)).unwrap();
    // SAFETY: it is this test's, and its first page is frame 256.
    unsafe { boot(&[range(256, 2048)], range(256, 30), memory.wrapping_sub(256 << 12), 2) }
        .unwrap();
    let frames = || HEAP.lender().view().unwrap().free_frames();
    let free = frames();

    // SAFETY: neither layout is empty.
    let (one, many) = unsafe { (HEAP.alloc(small), HEAP.alloc(Layout::new::<[u64; 9000]>())) };
    let inside = memory.addr()..memory.addr() + (8 << 20);
    assert!(inside.contains(&one.addr()) && inside.contains(&many.addr()));
    let top = table().unwrap();
    assert_eq!(free.get() - frames().get(), 16 + 32 + 1, "an arena, a block and a table");
    HEAP.lender().free(top).unwrap();
    // SAFETY: it was allocated so.
    unsafe { HEAP.dealloc(many, Layout::new::<[u64; 9000]>()) };
    assert_eq!(free.get() - frames().get(), 16);
}
