//! The heap, and what lends it blocks. This is the one file of the crate with unsafe code.
#![allow(unsafe_code)]

use crate::place::{StartError, room, shared};
use crate::size::Serving;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use core::{fmt, slice};
use foliant_claim::Claim;
use foliant_folio::{AllocError, Class, CpuCount, Folios, Misuse, View, Word};
use foliant_units::{Bytes, Cpu, FRAME_BYTES, FrameRange, Order, Pa, Pages};
use talc::DefaultBinning;
use talc::base::binning::Binning;
use talc::base::{CHUNK_UNIT, Talc};
use talc::lock_api::{Mutex, RawMutex};
use talc::source::Source;

/// The order of an arena where memory is plenty: 64 KiB.
const ARENA: u8 = 4;

/// What lends a heap its blocks.
///
/// # Safety
/// An implementation promises of each block that it lends: all its bytes can be read and written,
/// through the pointer, by every CPU that uses the heap; it begins at a multiple of 4 KiB; and
/// until it is taken back it is the heap's alone. A block is best aligned to its size: where it is
/// not, a request for that alignment is refused.
///
/// Neither method uses the heap.
pub unsafe trait Lender {
    /// A block of 2^`order` frames with any contents, or `None` where there is none.
    fn lend(&self, order: Order) -> Option<NonNull<u8>>;
    /// The block goes back.
    ///
    /// # Safety
    /// [`lend`](Lender::lend) gave it with this order, it was not taken back since, and nobody uses
    /// its memory any more.
    unsafe fn take_back(&self, block: NonNull<u8>, order: Order);
}

/// A block that no chunk was cut from, or all of whose chunks came back.
#[derive(Debug)]
struct Arena {
    start: NonNull<u8>,
    order: Order,
}

// SAFETY: H1: an arena is memory that its holder alone has, on whatever CPU it runs.
unsafe impl Send for Arena {}

/// Notes the arena whose last chunk came back, which talc has given up then.
#[derive(Debug)]
struct Emptied(Option<Arena>);

// SAFETY: it uses no allocator, and never makes a heap larger than it was.
unsafe impl Source for Emptied {
    const TRACK_HEAP_END: bool = true;

    fn acquire<B: Binning>(_: &mut Talc<Self, B>, _: Layout) -> Result<(), ()> {
        Err(()) // the caller asks its lender, without the lock
    }
    unsafe fn resize(&mut self, base: *mut u8, end: *mut u8, is_heap_base: bool) -> *mut u8 {
        if !is_heap_base {
            return end;
        }
        // A unit of the block is talc's, the rest is free.
        let bytes = end.addr() - base.addr() + CHUNK_UNIT;
        let order = Order::fitting(Bytes::new(bytes as u64));
        let arena = order.and_then(|order| {
            let start = NonNull::new(end.wrapping_sub(order.bytes().get() as usize))?;
            Some(Arena { start, order })
        });
        self.0 = arena;
        if self.0.is_some() { base } else { end }
    }
}

/// The arenas, and the chunks of them that are free.
struct Chunks {
    talc: Talc<Emptied, DefaultBinning>,
    /// An empty arena, so that one chunk that comes and goes does not ask the lender each time.
    kept: Option<Arena>,
}

impl Chunks {
    const fn new() -> Chunks {
        Chunks { talc: Talc::new(Emptied(None)), kept: None }
    }
    fn take(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        self.cut(layout).or_else(|| {
            let kept = self.kept.take()?;
            self.add(kept, layout)
        })
    }
    fn cut(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the size is not 0, as `GlobalAlloc::alloc` demands.
        unsafe { self.talc.try_allocate(layout) }
    }
    /// Makes chunks of `arena`, and takes one.
    fn add(&mut self, arena: Arena, layout: Layout) -> Option<NonNull<u8>> {
        let (start, bytes) = (arena.start.as_ptr(), arena.order.bytes().get() as usize);
        // SAFETY: H1: the block is the heap's alone, and is in no other place.
        let end = unsafe { self.talc.claim(start, bytes) };
        assert_eq!(end.map(NonNull::as_ptr), Some(start.wrapping_add(bytes)), "a frame is enough");
        self.cut(layout)
    }
    /// Takes a chunk back; an arena that is empty by now goes to the caller, unless it is kept.
    ///
    /// # Safety
    /// `take` gave the chunk for this layout, and it is free from here on.
    unsafe fn give(&mut self, chunk: *mut u8, layout: Layout) -> Option<Arena> {
        // SAFETY: the caller's promise.
        unsafe { self.talc.deallocate(chunk, layout) };
        let empty = self.talc.source.0.take()?;
        match self.kept {
            Some(_) => Some(empty),
            None => {
                self.kept = Some(empty);
                None
            }
        }
    }
}

/// A `GlobalAlloc` on the blocks of a [`Lender`]. `R` is the lock over its chunks: one of `spin`,
/// or of the kernel's own, with interrupts out where handlers use the heap.
///
/// Key: `[l]` under the lock, `[a]` atomic.
pub struct Heap<L, R: RawMutex> {
    lender: L,
    chunks: Mutex<R, Chunks>, // [l]
    pages: AtomicU64,         // [a]
}

impl<L, R: RawMutex> Heap<L, R> {
    /// A heap that asks `lender` for all that it hands out.
    pub const fn new(lender: L) -> Heap<L, R> {
        Heap { lender, chunks: Mutex::new(Chunks::new()), pages: AtomicU64::new(0) }
    }
    /// What lends it blocks.
    pub const fn lender(&self) -> &L {
        &self.lender
    }
    /// The frames that were lent to it.
    pub fn pages(&self) -> Pages {
        Pages::new(self.pages.load(Ordering::Relaxed))
    }
}

impl<L: Lender, R: RawMutex> Heap<L, R> {
    /// A block, for which the kept arena goes back if there is no other (H3).
    fn lend(&self, order: Order) -> Option<NonNull<u8>> {
        let block = self.lender.lend(order).or_else(|| {
            let kept = self.chunks.lock().kept.take()?;
            self.give_up(kept);
            self.lender.lend(order)
        })?;
        self.pages.fetch_add(order.pages().get(), Ordering::Relaxed);
        Some(block)
    }
    fn give_up(&self, Arena { start, order }: Arena) {
        self.pages.fetch_sub(order.pages().get(), Ordering::Relaxed);
        // SAFETY: H1: the block is in no other place; no block is an arena of another order.
        unsafe { self.lender.take_back(start, order) };
    }
    fn block(&self, order: Order, align: usize) -> Option<NonNull<u8>> {
        let start = self.lend(order)?;
        if start.addr().get() % align == 0 {
            return Some(start);
        }
        self.give_up(Arena { start, order });
        None
    }
    /// A chunk of an arena, which may have to be lent: the first one may not serve it (H4).
    fn chunk(&self, layout: Layout) -> Option<NonNull<u8>> {
        let mut chunk = self.chunks.lock().take(layout);
        while chunk.is_none() {
            let orders = (0..=ARENA).rev().filter_map(Order::new);
            let arena = |order| Some(Arena { start: self.lender.lend(order)?, order });
            let arena = orders.into_iter().find_map(arena)?;
            self.pages.fetch_add(arena.order.pages().get(), Ordering::Relaxed);
            chunk = self.chunks.lock().add(arena, layout);
        }
        chunk
    }
}

// SAFETY: chunks and blocks are distinct memory (H1) that lives until it is freed, as large and
// aligned as asked for: talc's word for chunks, the order and a look at the address for blocks.
unsafe impl<L: Lender, R: RawMutex> GlobalAlloc for Heap<L, R> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let memory = match Serving::of(layout) {
            Serving::Chunk => self.chunk(layout),
            Serving::Block(order) => self.block(order, layout.align()),
            Serving::Nothing => None,
        };
        memory.map_or(null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        match (Serving::of(layout), NonNull::new(memory)) {
            (Serving::Chunk, _) => {
                // SAFETY: H2: it is a chunk, and the caller gives it up.
                let empty = unsafe { self.chunks.lock().give(memory, layout) };
                if let Some(arena) = empty {
                    self.give_up(arena);
                }
            }
            (Serving::Block(order), Some(start)) => self.give_up(Arena { start, order }), // H2
            _ => {} // never handed out
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises a size that a layout may have.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let stays = match (Serving::of(layout), Serving::of(new)) {
            // SAFETY: H2: it is a chunk of this layout, and the new size is not 0.
            (Serving::Chunk, Serving::Chunk) => unsafe {
                self.chunks.lock().talc.try_realloc_in_place(memory, layout, size)
            },
            (old, new) => old == new,
        };
        if stays {
            return memory;
        }
        // SAFETY: the size is not 0, as the caller promises.
        let moved = unsafe { self.alloc(new) };
        if !moved.is_null() {
            // SAFETY: both are at least so long, and distinct (H1).
            unsafe { moved.copy_from_nonoverlapping(memory, layout.size().min(size)) };
            // SAFETY: the caller gives it up for the new one.
            unsafe { self.dealloc(memory, layout) };
        }
        moved
    }
}

impl<L: fmt::Debug, R: RawMutex> fmt::Debug for Heap<L, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap").field("lender", &self.lender).field("pages", &self.pages()).finish()
    }
}

/// A folio allocator of its own, whose frames are reached through a direct map. It lends nothing
/// until it is started.
///
/// Key: `[a]` atomic; what it points to is complete before it is stored, and stays for good.
pub struct Direct {
    /// Null before the start, [`Direct::STARTING`] during it.
    records: AtomicPtr<Records>, // [a]
    me: fn() -> Cpu,
}

/// What a started one has, in frames of the memory that it manages.
struct Records {
    folios: Folios<'static>,
    /// Where physical address 0 is.
    base: *mut u8,
}

/// CPUs share the records.
const _: () = {
    const fn shared<T: Sync>() {}
    shared::<Folios<'static>>();
};

impl Direct {
    const STARTING: *mut Records = core::ptr::without_provenance_mut(align_of::<Records>());

    /// One that was not started. `me` says which CPU runs the caller: a preference, for CPUs that
    /// take from different blocks do not meet. Any number is sound.
    pub const fn new(me: fn() -> Cpu) -> Direct {
        Direct { records: AtomicPtr::new(null_mut()), me }
    }
    /// Takes `memory` over, but for the frames of `reserved`, which may also lie elsewhere: the
    /// kernel's image, the boot loader's tables, what the firmware keeps. The records, some 0.01 %
    /// of the memory and a few KiB for each CPU, go into the lowest frames that have room. `base`
    /// is where the direct map has physical address 0.
    ///
    /// # Safety
    /// Each frame of `memory` that is not in `reserved` is memory that nobody else uses, and that
    /// every CPU that uses the heap can read and write at `base` plus its physical address, at no
    /// other frame's, from now on and for good.
    pub unsafe fn start(
        &self,
        memory: &[FrameRange],
        reserved: &[FrameRange],
        base: *mut u8,
        cpus: CpuCount,
    ) -> Result<View<'_, 'static>, StartError> {
        let begun = self.records.compare_exchange(
            null_mut(),
            Direct::STARTING,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        if begun.is_err() {
            return Err(StartError::Started);
        }
        // SAFETY: the caller's promise; nobody else is past the exchange.
        let made = unsafe { Direct::make(memory, reserved, base, cpus) };
        self.records.store(made.map_or(null_mut(), NonNull::as_ptr), Ordering::Release);
        // SAFETY: it was made just now, and stays.
        made.map(|records| unsafe { records.as_ref() }.folios.view())
    }
    /// # Safety
    /// As for `start`.
    unsafe fn make(
        memory: &[FrameRange],
        reserved: &[FrameRange],
        base: *mut u8,
        cpus: CpuCount,
    ) -> Result<NonNull<Records>, StartError> {
        let count = Folios::layout(memory, cpus).map_err(StartError::Region)?;
        let no_room = |pages| StartError::NoRoom(Pages::new(pages));
        let words = Layout::array::<Word>(count.0 as usize).map_err(|_| no_room(u64::MAX))?;
        let whole = Layout::new::<Records>().extend(words).map_err(|_| no_room(u64::MAX))?;
        let (layout, offset) = whole;
        let pages = Pages::new((layout.size() as u64).div_ceil(FRAME_BYTES));
        let home = room(memory, reserved, pages).ok_or(StartError::NoRoom(pages))?;
        let start = base.wrapping_add(home.start().pa().get() as usize);
        let first = start.wrapping_add(offset).cast::<Word>();
        for nth in 0..count.0 as usize {
            // SAFETY: the frames of `home` are the caller's to give, and long enough.
            unsafe { first.wrapping_add(nth).write(Word::new(0)) };
        }
        // SAFETY: the words were written just now, and nobody writes over them: they are reserved.
        let words: &'static [Word] = unsafe { slice::from_raw_parts(first, count.0 as usize) };
        let folios = Folios::new(memory, cpus, words).map_err(StartError::Region)?;
        for taken in reserved.iter().chain([&home]) {
            let inside = memory.iter().filter_map(|range| shared(*range, *taken));
            inside
                .into_iter()
                .try_for_each(|part| folios.reserve(part).map_err(StartError::Reserved))?;
        }
        let records = NonNull::new(start.cast::<Records>()).ok_or(StartError::NoRoom(pages))?;
        // SAFETY: as for the words; a frame is aligned for it.
        unsafe { records.write(Records { folios, base }) };
        Ok(records)
    }
    fn records(&self) -> Option<&Records> {
        let records = NonNull::new(self.records.load(Ordering::Acquire))?;
        if records.as_ptr() == Direct::STARTING {
            return None;
        }
        // SAFETY: `start` stored it when it was complete, and it stays.
        Some(unsafe { records.as_ref() })
    }
    /// The folio allocator, to look at; `None` before the start. What it hands out is had by
    /// [`alloc`](Direct::alloc), for a frame's number makes nobody its owner.
    pub fn view(&self) -> Option<View<'_, 'static>> {
        self.records().map(|records| records.folios.view())
    }
    /// A block that is not the heap's: for page tables, or for programs. Before the start there is
    /// none.
    pub fn alloc(&self, order: Order, class: Class) -> Result<Claim, AllocError> {
        let none = AllocError::NoMemory { order, class };
        let Records { folios, .. } = self.records().ok_or(none)?;
        let frame = folios.alloc(self.cpu(folios), order, class)?;
        // SAFETY: claim::I1: it was allocated just now.
        Ok(unsafe { Claim::taken(frame, order) })
    }
    /// Gives a block of [`alloc`](Direct::alloc) back. A block of another allocator is
    /// refused.
    pub fn free(&self, claim: Claim) -> Result<(), Misuse> {
        let (frame, order) = claim.into_raw();
        let Some(Records { folios, .. }) = self.records() else {
            return Err(Misuse::Foreign { frame, order });
        };
        folios.free(self.cpu(folios), frame, order)
    }
    fn cpu(&self, folios: &Folios<'static>) -> Cpu {
        Cpu::new((self.me)().get() % folios.cpus().0)
    }
}

// SAFETY: the folio allocator hands out no frame twice (folio::I1), and whoever started it
// promised that the direct map reaches each of them, and that nobody else does.
unsafe impl Lender for Direct {
    fn lend(&self, order: Order) -> Option<NonNull<u8>> {
        let Records { folios, base } = self.records()?;
        let frame = folios.alloc(self.cpu(folios), order, Class::Unmovable).ok()?;
        NonNull::new(base.wrapping_add(frame.pa().get() as usize))
    }
    unsafe fn take_back(&self, block: NonNull<u8>, order: Order) {
        let Some(Records { folios, base }) = self.records() else { return };
        let pa = Pa::new(block.as_ptr().addr().wrapping_sub(base.addr()) as u64);
        folios.free(self.cpu(folios), pa.frame(), order).expect("the block was lent");
    }
}

impl fmt::Debug for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Direct").field(&self.records().map(|records| &records.folios)).finish()
    }
}
