//! Foliant behind the traits of the crate `x86_64`, for kernels that are written against them.
//! Feature `x86_64`.
//!
//! | trait of `x86_64` | here | over |
//! |---|---|---|
//! | `FrameAllocator`, `FrameDeallocator`, of 4 KiB, 2 MiB and 1 GiB | [`Frames`] | the allocator alone ([`OneCpu`]), or a manager |
//! | `Translate` | [`Walk`] | page tables of four levels |
//!
//! So a kernel that has its page tables from that crate gets its frames, huge ones too, from
//! Foliant, and one that hands its tables to Foliant still looks addresses up as before.
//!
//! **Invariants**
//! - B1. A frame that [`Frames`] hands out is the caller's alone until it comes back.
//! - B2. A frame that is given back and was never handed out changes nothing. The trait's method
//!   has no answer, so [`Frames::refused`] has it.
//!
//! **Not here**: `Mapper`. Its contract cannot be met over these tables. It hands a frame out of
//! `unmap` before anybody has flushed it, with a token that flushes the calling CPU alone; here a
//! [`Stale`](crate::frame::Stale) frame is kept back until all CPUs have answered. It sets flags of
//! the words that point to tables; here one of these flags is a lock, and the others are the same
//! in all such words. And it has no error for a flag that a leaf cannot have. A kernel that wants
//! `Mapper` uses the tables of the crate, over [`Frames`].
//!
//! ```
//! use foliant::adapt::{Frames, OneCpu};
//! use foliant::folio::{Class, CpuCount, Folios, Word};
//! use foliant_units::{Cpu, Frame, FrameRange, Pages};
//! use x86_64::structures::paging::{FrameAllocator, PhysFrame, Size2MiB};
//!
//! let memory = [FrameRange::new(Frame::new(0x100), Pages::new(0x4000)).unwrap()];
//! let need = Folios::layout(&memory, CpuCount(1)).unwrap();
//! let lent: Vec<Word> = (0..need.0).map(|_| Word::new(0)).collect();
//! let folios = Folios::new(&memory, CpuCount(1), &lent).unwrap();
//! let mut frames = Frames::new(OneCpu { folios: &folios, cpu: Cpu(0), class: Class::Unmovable });
//! let huge: PhysFrame<Size2MiB> = frames.allocate_frame().unwrap();
//! assert!(huge.start_address().is_aligned(2u64 << 20));
//! ```

mod frames;
mod walk;

pub use frames::{FrameSource, Frames, OneCpu};
pub use walk::Walk;
