//! Which CPU runs this code.

use core::sync::atomic::{AtomicU64, Ordering};
use foliant_units::Cpu;

/// The CPUs of the machine, numbered from 0 without holes.
pub trait Cpus {
    /// The CPU that runs the caller. Stale as soon as it is returned, unless inside
    /// [`pinned`](Cpus::pinned).
    fn me(&self) -> Cpu;

    /// How many CPUs there are; constant, 1 to 1024.
    fn count(&self) -> usize;

    /// Runs `work` without moving to another CPU. It may nest. Other work may run on the same CPU
    /// in between only where the machine says so (an interrupt handler); it must not be long.
    fn pinned<R>(&self, work: impl FnOnce(Cpu) -> R) -> R;

    /// Adds `by` to `word`, which belongs to the CPU that the caller is [`pinned`](Cpus::pinned)
    /// to: others read it, and none of them writes to it. Other work on this CPU may add to it in
    /// between, and nothing that was added is lost. It is a release: a CPU that acquires the sum
    /// sees what came before.
    ///
    /// A machine may do it without locking the word against other CPUs.
    fn add_own(&self, word: &AtomicU64, by: u64) {
        word.fetch_add(by, Ordering::Release);
    }

    /// Called in every spin loop: the CPU waits for another one. Pending requests of other CPUs are
    /// carried out meanwhile, so that a spinning CPU never blocks a shootdown.
    fn relax(&self);
}
