//! Atomics and the locks that are made of them; the only place where either is imported.
//!
//! Under `--cfg loom` the atomics are loom's, so that every interleaving of a protocol of a few
//! words can be explored without a change to the protocol.
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
//! **Not here**: the lock of a page table, which is a bit of the word that points to it (`table`).

#[cfg(all(feature = "steps", not(loom)))]
#[allow(
    unreachable_pub,
    reason = "one macro for words that the face names and words that it does not"
)]
mod counting;
mod grace;
mod outside;
mod patient;
mod sequence;
mod spin;
pub mod steps;

#[cfg(all(loom, test))]
mod loom_atomics;
#[cfg(all(loom, test))]
pub(crate) mod loom_host;
#[cfg(all(loom, test))]
mod loom_tests;

pub(crate) use grace::{Grace, GraceSlot};
pub(crate) use outside::Outside;
pub(crate) use patient::{Patient, Working};
pub(crate) use sequence::{Edition, Sequence};
pub(crate) use spin::{Long, Spin, SpinGuard};
pub(crate) use steps::{Critical, Inside};

#[cfg(all(feature = "steps", not(loom)))]
pub(crate) use counting::{AtomicU32, AtomicU64};

#[cfg(all(not(feature = "steps"), not(all(loom, test))))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64};
#[cfg(not(all(loom, test)))]
pub(crate) use core::sync::atomic::{Ordering, fence};
#[cfg(all(loom, test))]
pub(crate) use loom::sync::atomic::{Ordering, fence};
#[cfg(all(loom, test))]
pub(crate) use loom_atomics::{AtomicU32, AtomicU64};

/// Whether the CPU panics, which is the end of its manager; known on a host alone.
#[cfg(all(feature = "steps", not(loom)))]
pub(crate) fn is_unwinding() -> bool {
    std::thread::panicking()
}
/// Whether the CPU panics, which is the end of its manager; known on a host alone.
#[cfg(not(all(feature = "steps", not(loom))))]
pub(crate) const fn is_unwinding() -> bool {
    false
}
