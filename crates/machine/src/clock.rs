//! Time and preemption points.

use foliant_units::Nanos;

/// The machine's clock.
pub trait Clock {
    /// The time since some fixed point, of the calling CPU. It never runs backwards on one CPU;
    /// between CPUs it may differ by the machine's skew.
    fn now(&self) -> Nanos;

    /// A point where long work lets others run: pending interrupts are taken, a cooperative kernel
    /// may switch tasks. The caller holds no lock and is not pinned.
    ///
    /// A task that yields may wait for one that yielded before it, on the same CPU too: each of
    /// them runs again after a while, however often the others yield. That holds for a task that
    /// the CPU runs when it has nothing else to do as well.
    fn yield_now(&self);
}
