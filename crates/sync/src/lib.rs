//! Atomics and the locks that are made of them; the only place where either is imported.
//!
//! Under the feature `loom` the atomics are loom's, so that every interleaving of a protocol of a
//! few words can be explored without a change to the protocol. The tests of this crate and of those
//! above it ask for the feature under `--cfg loom`.
//!
//! **Locking.** [`Spin`] guards a structure for a short, bounded time; [`Patient`] guards work that
//! lets others run. [`Sequence`] lets readers of a structure of atomics notice that a writer
//! changed it. [`Grace`] lets a CPU that took something out of reach wait until every reader that
//! might still hold it is gone. All spinning goes through
//! [`Cpus::relax`](foliant_machine::Cpus::relax), so a spinning CPU still serves shootdowns.
//!
//! [`Long`] is a `Spin` that is held over long work. Under the feature `steps` accesses are
//! counted, and so is how long a CPU stays in each of these ([`steps`]).
//!
//! [`Outside`] is the right to reach a preemption point: a call has it while it is in none of these
//! but a [`Patient`].
//!
//! **Not here**: the lock of a page table, which is a bit of the word that points to it
//! (`foliant-table`).
//!
//! ```
//! use foliant_machine::Cpus;
//! use foliant_sync::{AtomicU64, Grace, GraceSlot, Ordering, Spin};
//! # struct OneCpu;
//! # impl Cpus for OneCpu {
//! #     fn me(&self) -> foliant_units::Cpu { foliant_units::Cpu(0) }
//! #     fn count(&self) -> usize { 1 }
//! #     fn pinned<R>(&self, work: impl FnOnce(foliant_units::Cpu) -> R) -> R { work(self.me()) }
//! #     fn relax(&self) { std::thread::yield_now() }
//! # }
//! # let machine = OneCpu; // `impl Cpus`: how a CPU of the embedder waits
//! let (root, guards_root) = (AtomicU64::new(7), Spin::default());
//! let (grace, of_this_cpu) = (Grace::default(), GraceSlot::default());
//! {
//!     let _section = grace.enter(&machine, |_| &of_this_cpu);
//!     assert_eq!(root.load(Ordering::Acquire), 7); // what is read here stays until the section ends
//! }
//! {
//!     let _held = guards_root.lock(&machine);
//!     root.store(0, Ordering::SeqCst);
//! }
//! grace.wait(&machine, || [&of_this_cpu].into_iter()); // nobody has the 7 any more
//! ```
#![cfg_attr(not(test), no_std)]

#[cfg(feature = "steps")]
extern crate std;

#[cfg(all(feature = "steps", not(feature = "loom")))]
mod counting;
mod grace;
mod outside;
mod patient;
mod sequence;
mod spin;
pub mod steps;

#[cfg(feature = "loom")]
mod loom_atomics;
#[cfg(feature = "loom")]
pub mod loom_host;
#[cfg(all(feature = "loom", test))]
mod loom_tests;

pub use grace::{Grace, GraceSlot};
pub use outside::Outside;
pub use patient::{Patient, Working};
pub use sequence::{Edition, Sequence};
pub use spin::{Long, Spin, SpinGuard};
pub use steps::{Critical, Inside};

#[cfg(all(feature = "steps", not(feature = "loom")))]
pub use counting::{AtomicU32, AtomicU64};

#[cfg(not(any(feature = "steps", feature = "loom")))]
pub use core::sync::atomic::{AtomicU32, AtomicU64};
#[cfg(not(feature = "loom"))]
pub use core::sync::atomic::{Ordering, fence};
#[cfg(feature = "loom")]
pub use loom::sync::atomic::{Ordering, fence};
#[cfg(feature = "loom")]
pub use loom_atomics::{AtomicU32, AtomicU64};

/// Adds to a word of the CPU that the caller is pinned to ([`Cpus::add_own`]).
///
/// [`Cpus::add_own`]: foliant_machine::Cpus::add_own
#[inline]
pub fn add_own(cpus: &impl foliant_machine::Cpus, word: &AtomicU64, by: u64) {
    #[cfg(not(any(feature = "steps", feature = "loom")))]
    cpus.add_own(word, by);
    #[cfg(all(feature = "steps", not(feature = "loom")))]
    word.add_own(cpus, by);
    #[cfg(feature = "loom")]
    {
        let _ = cpus; // its words are not loom's
        word.fetch_add(by, Ordering::Release);
    }
}

/// Whether the CPU panics, which is the end of its manager; known on a host alone.
#[cfg(all(feature = "steps", not(feature = "loom")))]
pub fn is_unwinding() -> bool {
    std::thread::panicking()
}
/// Whether the CPU panics, which is the end of its manager; known on a host alone.
#[cfg(not(all(feature = "steps", not(feature = "loom"))))]
#[inline]
pub const fn is_unwinding() -> bool {
    false
}
