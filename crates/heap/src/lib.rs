//! A global allocator for a kernel: small sizes as chunks of blocks, large ones as blocks.
//!
//! A kernel that has a folio allocator still needs `Box` and `Vec`. This crate is the step between:
//! [`Heap`] is a `GlobalAlloc` on whatever lends blocks of frames ([`Lender`]). [`Direct`] is such
//! a lender: a folio allocator of its own over the memory that a boot loader left, which is what an
//! embedder without a manager starts with. A kernel with a manager lends what `Manager::lend`
//! gives.
//!
//! ```text
//!   size + alignment ≤ 4032   ─▶ a chunk of an arena: a block of 64 KiB (less where memory is short), cut by `talc`
//!   above                     ─▶ a block of its own, of the next power of two; it goes back at once
//!   above 1 GiB               ─▶ null
//!
//!   Lender ──lend──▶ arena ──▶ chunks ──all freed──▶ kept: one at most ──the next one──▶ take_back
//! ```
//!
//! **Invariants**
//! - H1. Memory of a block is in one place: with its lender, in use as a block, in an arena, or
//!   kept. A chunk of an arena is free or its user's.
//! - H2. The size and the alignment alone say whether memory is a chunk or a block, and of which
//!   order, so what is freed is found without a header ([`GlobalAlloc`] hands the layout back).
//! - H3. Where no block is left the answer is null, and what was allocated is as it was. Before
//!   that the kept arena goes back. Nothing here panics for lack of memory.
//! - H4. An arena of any order serves any chunk, so a chunk is refused only where the lender has no
//!   block at all. The first arena, which holds the lists of free chunks, serves smaller ones only;
//!   it is never given back.
//!
//! **Locking**: one lock, of the embedder's kind, over the arenas: a few hundred instructions for
//! chunks aligned to 32 bytes or less; for larger alignments the free chunks of one size are
//! searched. The lender is called without it, so it may wait and ask other CPUs. Where interrupt
//! handlers use the heap, the lock keeps interrupts out of its holder. Blocks take no lock of the
//! heap's.
//!
//! **Not here**: page tables and a virtual heap (`Manager::vmalloc`), caches per CPU, objects of
//! one size, zeroed memory other than by writing zeros.
//!
//! ```
//! # #![allow(unsafe_code)]
//! use foliant_heap::folio::CpuCount;
//! use foliant_heap::units::{Cpu, Frame, FrameRange, Pages};
//! use foliant_heap::{Direct, Heap};
//! # use std::alloc::{GlobalAlloc, Layout};
//!
//! fn me() -> Cpu {
//!     Cpu::new(0) // which CPU runs this code
//! }
//! // A lock of `spin`, or the kernel's own.
//! static HEAP: Heap<Direct, spin::Mutex<()>> = Heap::new(Direct::new(me)); // #[global_allocator]
//!
//! // At boot. Here 4 MiB of the host's are frames 0x200 to 0x5ff; a kernel has a direct map.
//! let block = Layout::from_size_align(4 << 20, 2 << 20).unwrap();
//! // SAFETY: the layout is not empty.
//! let base = unsafe { std::alloc::alloc(block) }.wrapping_sub(0x200 << 12);
//! let memory = [FrameRange::new(Frame::new(0x200), Pages::new(0x400)).unwrap()];
//! let image = FrameRange::new(Frame::new(0x200), Pages::new(16)).unwrap();
//! // SAFETY: the frames are nobody else's, and `base` reaches them.
//! let frames = unsafe { HEAP.lender().start(&memory, &[image], base, CpuCount(1)) }.unwrap();
//!
//! let free = frames.free_frames();
//! # let layout = Layout::new::<[u64; 1000]>();
//! // SAFETY: the layout is not empty.
//! let numbers = unsafe { HEAP.alloc(layout) }; // `Box::new([0u64; 1000])`
//! assert!(!numbers.is_null());
//! assert_eq!(frames.free_frames(), Pages::new(free.get() - 2)); // 8000 bytes are a block of two frames
//! // SAFETY: it was allocated so, and is freed once.
//! unsafe { HEAP.dealloc(numbers, layout) };
//! assert_eq!(frames.free_frames(), free);
//! ```
//!
//! [`GlobalAlloc`]: core::alloc::GlobalAlloc
#![cfg_attr(not(test), no_std)]

mod heap;
mod place;
mod size;

#[cfg(test)]
mod heap_model;
#[cfg(test)]
mod tests;

pub use foliant_claim as claim;
pub use foliant_folio as folio;
pub use foliant_units as units;
pub use heap::{Direct, Heap, Lender};
pub use place::StartError;
pub use talc::lock_api;
