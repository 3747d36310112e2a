//! Layouts at every edge, memory that runs out, threads, and the start.
#![allow(unsafe_code)]

use crate::folio::{Class, CpuCount, FrameState, Misuse, RegionError, ReserveError};
use crate::size::CHUNK_MAX;
use crate::{Direct, Heap, Lender, StartError};
use foliant_units::{Bytes, Cpu, FRAME_BYTES, Frame, FrameRange, Order, Pages};
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const FIRST: Frame = Frame::new(0x200);
pub(crate) const PAGES: Pages = Pages::new(1024);

pub(crate) fn range(start: u64, pages: u64) -> FrameRange {
    FrameRange::new(Frame::new(start), Pages::new(pages)).unwrap()
}

thread_local!(static ME: Cell<u16> = const { Cell::new(0) });

fn me() -> Cpu {
    Cpu::new(ME.get())
}

/// Where frame 0 would be, so that memory of the host's at `skew` behind a multiple of 2 MiB is
/// frame 0x200. It is never given back.
fn base(skew: usize) -> *mut u8 {
    let block = Layout::from_size_align((2 << 20) + PAGES.bytes().get() as usize, 2 << 20).unwrap();
    // SAFETY: the layout is not empty.
    let memory = unsafe { std::alloc::alloc(block) };
    memory.wrapping_add(skew).wrapping_sub(FIRST.pa().get() as usize)
}
fn started(reserved: &[FrameRange], skew: usize, cpus: u16) -> Direct {
    let direct = Direct::new(me);
    let memory = [FrameRange::new(FIRST, PAGES).unwrap()];
    // SAFETY: memory of the host's that nobody else has.
    unsafe { direct.start(&memory, reserved, base(skew), CpuCount(cpus)) }.unwrap();
    direct
}

/// A lender that knows what is lent, and can refuse.
pub(crate) struct Watched {
    direct: Direct,
    pub(crate) lent: Mutex<BTreeMap<usize, Order>>,
    /// The largest order that it has.
    most: Order,
    /// How many more it grants, before it refuses one.
    left: AtomicU64,
}

impl Watched {
    pub(crate) fn new(most: Order) -> Watched {
        let left = AtomicU64::new(u64::MAX);
        Watched { direct: started(&[], 0, 4), lent: Mutex::default(), most, left }
    }
    fn pages(&self) -> u64 {
        self.lent.lock().unwrap().values().map(|order| order.pages().get()).sum()
    }
    fn free(&self) -> u64 {
        self.direct.view().unwrap().free_frames().get()
    }
}

// SAFETY: the blocks are those of another lender.
unsafe impl Lender for Watched {
    fn lend(&self, order: Order) -> Option<NonNull<u8>> {
        let granted = self.left.fetch_sub(1, Ordering::Relaxed);
        if order > self.most || granted == 0 {
            return None;
        }
        let block = self.direct.lend(order)?;
        let before = self.lent.lock().unwrap().insert(block.addr().get(), order);
        assert_eq!(before, None, "lent twice");
        Some(block)
    }
    unsafe fn take_back(&self, block: NonNull<u8>, order: Order) {
        let lent = self.lent.lock().unwrap().remove(&block.addr().get());
        assert_eq!(lent, Some(order), "another block was lent");
        // SAFETY: the caller's promise.
        unsafe { self.direct.take_back(block, order) }
    }
}

pub(crate) type Tested = Heap<Watched, spin::Mutex<()>>;

fn heap(most: Order) -> Tested {
    Heap::new(Watched::new(most))
}
fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}
fn alloc<L: Lender>(heap: &Heap<L, spin::Mutex<()>>, layout: Layout) -> Option<NonNull<u8>> {
    // SAFETY: no layout here is empty.
    NonNull::new(unsafe { heap.alloc(layout) })
}
fn dealloc<L: Lender>(heap: &Heap<L, spin::Mutex<()>>, memory: NonNull<u8>, layout: Layout) {
    // SAFETY: the caller allocated it so, and forgets it.
    unsafe { heap.dealloc(memory.as_ptr(), layout) }
}

#[test]
fn an_arena_of_one_frame_serves_each_chunk() {
    let heap = heap(Order::BASE);
    let first = alloc(&heap, layout(8, 8)).unwrap();
    for align in (0..12).map(|shift| 1 << shift) {
        let step = if cfg!(miri) { 397 } else { 1 };
        for size in (1..=CHUNK_MAX - align).step_by(step).chain([CHUNK_MAX - align]) {
            let layout = layout(size, align);
            let chunk = alloc(&heap, layout).unwrap();
            assert_eq!(chunk.addr().get() % align, 0, "{layout:?}");
            // SAFETY: it was allocated so long.
            unsafe { chunk.write_bytes(0xff, size) };
            dealloc(&heap, chunk, layout);
            assert!(heap.pages() <= Pages::new(2), "{layout:?}: {:?}", heap.pages());
        }
    }
    dealloc(&heap, first, layout(8, 8));
}

#[test]
fn blocks_are_as_large_as_asked_for_and_go_back_at_once() {
    let heap = heap(Order::SIZE_2M);
    let check = |size, align, order: Option<u8>| {
        let layout = layout(size, align);
        let block = alloc(&heap, layout);
        let lent = heap.lender().lent.lock().unwrap().clone();
        let found = block.map(|block| lent[&block.addr().get()].get());
        assert_eq!((found, lent.len()), (order, usize::from(order.is_some())), "{layout:?}");
        assert!(block.is_none_or(|block| block.addr().get() % align == 0));
        if let Some(block) = block {
            dealloc(&heap, block, layout);
        }
        assert_eq!((heap.pages().get(), heap.lender().pages()), (0, 0));
    };
    for (size, align, order) in [
        (CHUNK_MAX, 1, Some(0)),
        (4096, 1, Some(0)),
        (4097, 1, Some(1)),
        (1, 4096, Some(0)),
        (1, 8192, Some(1)),
        (65536, 8, Some(4)),
        (65537, 8, Some(5)),
        (1, 2 << 20, Some(9)),
        (2 << 20, 1, Some(9)),
        ((2 << 20) + 1, 1, None),
        (1 << 30, 1, None),
        ((1 << 30) + 1, 1, None),
        (1, 1 << 31, None),
        (isize::MAX as usize, 1, None),
        (1, 1 << 62, None),
    ] {
        check(size, align, order);
    }
}

#[test]
fn what_a_direct_map_does_not_align_is_refused() {
    let heap: Heap<Direct, spin::Mutex<()>> = Heap::new(started(&[], 4096, 1));
    let free = || heap.lender().view().unwrap().free_frames();
    let before = free();
    assert_eq!(alloc(&heap, layout(100, 8192)), None);
    assert_eq!(alloc(&heap, layout(2 << 20, 65536)), None);
    assert_eq!((free(), heap.pages()), (before, Pages::new(0)));
    let block = alloc(&heap, layout(8192, 4096)).unwrap();
    dealloc(&heap, block, layout(8192, 4096));
    // Chunks do not mind.
    let chunk = alloc(&heap, layout(1000, 2048)).unwrap();
    assert_eq!(chunk.addr().get() % 2048, 0);
    dealloc(&heap, chunk, layout(1000, 2048));
}

#[test]
fn one_empty_arena_is_kept_and_is_given_up_for_a_block() {
    let heap = heap(Order::SIZE_2M);
    let chunks: Vec<_> = (0..200).map(|_| alloc(&heap, layout(3000, 8)).unwrap()).collect();
    let most = heap.pages().get();
    assert!(most >= 10 * 16, "{most}");
    chunks.into_iter().for_each(|chunk| dealloc(&heap, chunk, layout(3000, 8)));
    assert_eq!(heap.pages().get(), 2 * 16, "the first, and one more");
    // All free memory but for what the heap has is in blocks; the kept arena is one more.
    let mut blocks: Vec<_> = std::iter::from_fn(|| alloc(&heap, layout(65536, 8))).collect();
    assert_eq!(heap.lender().free() / 16, 0, "no block of 64 KiB is left");
    blocks.drain(..).for_each(|block| dealloc(&heap, block, layout(65536, 8)));
    assert_eq!(heap.pages().get(), 16);
}

#[test]
fn out_of_memory_is_null_and_leaves_everything_as_it_was() {
    for (size, align) in [(16, 8), (700, 64), (4000, 16), (4096, 4096), (20_000, 8), (1 << 18, 8)] {
        let heap = heap(Order::SIZE_2M);
        let layout = layout(size, align);
        let fill = || {
            let taken: Vec<_> = std::iter::from_fn(|| alloc(&heap, layout)).collect();
            assert_eq!(alloc(&heap, layout), None, "it stays so");
            let bytes = taken.len() as u64 * Bytes::new(size as u64).get();
            assert!(bytes >= PAGES.bytes().get() * 3 / 10, "{layout:?}: {bytes}");
            taken
        };
        let taken = fill();
        if size < 4000 {
            assert_eq!(heap.lender().free(), 0, "chunks fill the last frame");
        }
        for (nth, memory) in taken.iter().enumerate() {
            // SAFETY: it is as long, and this test's.
            unsafe { memory.write_bytes(nth as u8, size) };
        }
        for (nth, memory) in taken.iter().enumerate() {
            // SAFETY: as above; it was written.
            let bytes = unsafe { std::slice::from_raw_parts(memory.as_ptr(), size) };
            assert!(bytes.iter().all(|byte| *byte == nth as u8), "{layout:?}: {nth}");
        }
        let count = taken.len();
        taken.into_iter().for_each(|memory| dealloc(&heap, memory, layout));
        assert!(heap.pages().get() <= 2 * 16, "{layout:?}: {:?}", heap.pages());
        assert_eq!(heap.pages().get(), heap.lender().pages());
        let again = fill();
        assert_eq!(again.len(), count, "{layout:?}");
        again.into_iter().for_each(|memory| dealloc(&heap, memory, layout));
    }
}

#[test]
fn each_loan_is_refused_once() {
    let layouts = [(24, 8), (5000, 8), (3900, 64), (40, 8), (100_000, 4096), (3000, 8)];
    for k in 0.. {
        let heap = heap(Order::SIZE_2M);
        // A refused loan of an arena is asked for again, smaller: all of one request are.
        heap.lender().left.store(k, Ordering::Relaxed);
        let mut taken: Vec<(NonNull<u8>, Layout)> = Vec::new();
        let mut refused = 0;
        for (size, align) in layouts.iter().cycle().take(60) {
            let layout = layout(*size, *align);
            match alloc(&heap, layout) {
                Some(memory) => taken.push((memory, layout)),
                None => refused += 1,
            }
        }
        assert!(refused <= 1);
        let left = heap.lender().left.load(Ordering::Relaxed);
        taken.into_iter().for_each(|(memory, layout)| dealloc(&heap, memory, layout));
        assert!(heap.pages().get() <= 2 * 16);
        assert_eq!(heap.pages().get(), heap.lender().pages());
        if left < u64::MAX / 2 {
            assert!(k > 5, "the script asks for several loans");
            break; // there are no more loans
        }
    }
}

#[test]
fn what_changes_its_size_keeps_its_contents() {
    let heap = heap(Order::SIZE_2M);
    let sizes = [1, 40, 4000, 4024, 4090, 5000, 8192, 8193, 100_000, 9000, 8192, 4100, 900, 17];
    let mut memory = alloc(&heap, layout(sizes[0], 8)).unwrap();
    // SAFETY: one byte.
    unsafe { memory.write_bytes(7, 1) };
    for (from, to) in sizes.iter().zip(&sizes[1..]) {
        // SAFETY: it is of that layout.
        let moved = unsafe { heap.realloc(memory.as_ptr(), layout(*from, 8), *to) };
        let moved = NonNull::new(moved).unwrap();
        // SAFETY: the common part was written.
        let kept = unsafe { std::slice::from_raw_parts(moved.as_ptr(), *from.min(to)) };
        assert!(kept.iter().all(|byte| *byte == 7), "{from} to {to}");
        let is_same_order = [(5000, 8192), (4100, 8192), (9000, 8193)].contains(&(*from, *to));
        assert!(!is_same_order || moved == memory, "{from} to {to} is the same block");
        memory = moved;
        // SAFETY: it is so long.
        unsafe { memory.write_bytes(7, *to) };
    }
    // Refused, it is as it was.
    // SAFETY: it is of that layout.
    let none = unsafe { heap.realloc(memory.as_ptr(), layout(17, 8), 3 << 20) };
    assert!(none.is_null());
    // SAFETY: the first byte was written.
    assert_eq!(unsafe { memory.read() }, 7);
    dealloc(&heap, memory, layout(17, 8));
    assert_eq!(heap.pages().get(), 16);
}

#[test]
fn threads_share_it() {
    let heap = heap(Order::SIZE_2M);
    let rounds = if cfg!(miri) { 40 } else { 4000 };
    let passed: Mutex<Vec<(usize, Layout, u8)>> = Mutex::default();
    std::thread::scope(|scope| {
        for cpu in 0..4u16 {
            let (heap, passed) = (&heap, &passed);
            scope.spawn(move || {
                ME.set(cpu);
                let mut state = u64::from(cpu) + 1;
                for round in 0..rounds {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
                    let size =
                        1 + (state >> 33) as usize % [64, 900, 4100, 30_000][round as usize % 4];
                    let mine = layout(size, 1 << (state >> 60 & 7));
                    if let Some(memory) = alloc(heap, mine) {
                        // SAFETY: it is so long.
                        unsafe { memory.write_bytes(cpu as u8 + 1, size) };
                        let exposed = memory.as_ptr().expose_provenance();
                        passed.lock().unwrap().push((exposed, mine, cpu as u8 + 1));
                    }
                    let other = {
                        let mut passed = passed.lock().unwrap();
                        let nth = (state >> 20) as usize % passed.len().max(1);
                        if passed.len() > 30 { Some(passed.swap_remove(nth)) } else { None }
                    };
                    if let Some((memory, layout, byte)) = other {
                        free(heap, memory, layout, byte);
                    }
                }
            });
        }
    });
    for (memory, layout, byte) in passed.into_inner().unwrap() {
        free(&heap, memory, layout, byte);
    }
    assert!(heap.pages().get() <= 2 * 16);
    assert_eq!(heap.pages().get(), heap.lender().pages());
}

fn free(heap: &Tested, memory: usize, layout: Layout, byte: u8) {
    let memory = NonNull::new(std::ptr::with_exposed_provenance_mut::<u8>(memory)).unwrap();
    // SAFETY: it was allocated so long and written, and is in no list any more.
    let bytes = unsafe { std::slice::from_raw_parts(memory.as_ptr(), layout.size()) };
    assert!(bytes.iter().all(|found| *found == byte), "{layout:?}");
    dealloc(heap, memory, layout);
}

#[test]
fn before_the_start_there_is_nothing() {
    let heap: Heap<Direct, spin::Mutex<()>> = Heap::new(Direct::new(me));
    for size in [1, 5000] {
        assert_eq!(alloc(&heap, layout(size, 8)), None);
    }
    assert!(heap.lender().view().is_none());
    assert!(heap.lender().alloc(Order::BASE, Class::Table).is_err());
}

#[test]
fn a_start_takes_what_is_not_reserved_and_says_why_not() {
    let memory = [range(0x200, 512), range(0x500, 256)];
    let start = |direct: &Direct, reserved: &[FrameRange], cpus| {
        // SAFETY: as in `base`.
        unsafe { direct.start(&memory, reserved, base(0), CpuCount(cpus)) }.map(|_| ())
    };
    let direct = Direct::new(me);
    let none = CpuCount(0);
    assert_eq!(start(&direct, &[], 0), Err(StartError::Region(RegionError::Cpus(none))));
    let all = [range(0, 0x4ff), range(0x500, 255)];
    let Err(StartError::NoRoom(need)) = start(&direct, &all, 1) else { panic!("no room") };
    assert!(need > Pages::new(1), "the one frame that is left does not do");
    let twice = start(&direct, &[range(0x210, 8), range(0x217, 2)], 1);
    assert_eq!(twice, Err(StartError::Reserved(ReserveError::InUse(Frame::new(0x217)))));
    for error in [start(&direct, &all, 1).unwrap_err(), twice.unwrap_err()] {
        assert!(error.to_string().contains("frames") || error.to_string().contains("0x217"));
    }
    // After all that it can be started, once.
    let reserved = [range(0x100, 0x108), range(0x540, 0x1000)];
    assert_eq!(start(&direct, &reserved, 3), Ok(()));
    assert_eq!(start(&direct, &reserved, 3), Err(StartError::Started));
    let view = direct.view().unwrap();
    let is_reserved = |frame| view.state(Frame::new(frame)) == FrameState::Reserved;
    assert!((0x200..0x208).chain(0x540..0x600).all(is_reserved));
    let records = (0x208..0x540).filter(|frame| is_reserved(*frame)).count() as u64;
    assert_eq!(records, need.get() + u64::from(records > need.get()), "in a row, from 0x208 on");
    assert!((0x208..0x208 + records).all(is_reserved));
    assert_eq!(view.free_frames().get(), 512 - 8 - records + 0x40);
}

#[test]
fn frames_are_had_beside_the_heap() {
    let heap: Heap<Direct, spin::Mutex<()>> = Heap::new(started(&[], 0, 2));
    let frames = heap.lender();
    let free = || frames.view().unwrap().free_frames();
    let before = free();
    ME.set(4711); // there are two
    let claim = frames.alloc(Order::SIZE_2M, Class::Movable).unwrap();
    let table = frames.alloc(Order::BASE, Class::Table).unwrap();
    assert_eq!(free().get(), before.get() - 513);
    let of_heap = alloc(&heap, layout(4096, 4096)).unwrap();
    assert_eq!(free().get(), before.get() - 514, "distinct from both");
    let elsewhere = started(&[], 0, 1);
    let frame = table.frame();
    let refused = elsewhere.free(table);
    assert_eq!(refused, Err(Misuse::NotAllocated { frame, order: Order::BASE }));
    assert_eq!(frames.free(claim), Ok(()));
    dealloc(&heap, of_heap, layout(4096, 4096));
    assert_eq!(free().get(), before.get() - 1, "the table's frame was lost on another allocator");
    assert_eq!(heap.pages().bytes().get() % FRAME_BYTES, 0);
}
