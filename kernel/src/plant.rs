//! A machine that leaves flushes out on demand, so that a test can see what they are for.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicBool, Ordering};
use foliant_machine::{Around, Invalidation, Machine, Ticket};
use foliant_units::{CpuSet, Pa};

/// The machine `M`, which asks nobody while a bug is planted.
pub(crate) struct Plant<M> {
    machine: M,
    mute: AtomicBool,
}

impl<M> Plant<M> {
    pub(crate) const fn new(machine: M) -> Plant<M> {
        Plant { machine, mute: AtomicBool::new(false) }
    }
    /// The machine itself.
    pub(crate) fn sound(&self) -> &M {
        &self.machine
    }
    /// Runs `work` while requests to other CPUs go nowhere.
    pub(crate) fn mute<R>(&self, work: impl FnOnce() -> R) -> R {
        self.mute.store(true, Ordering::SeqCst);
        let result = work();
        self.mute.store(false, Ordering::SeqCst);
        result
    }
}

// SAFETY: memory is the inner machine's.
unsafe impl<M: Machine> Around for Plant<M> {
    type Inner = M;

    #[inline]
    fn inner(&self) -> &M {
        &self.machine
    }
    unsafe fn zeros(&self, pa: Pa, count: usize) -> usize {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.machine.zeros(pa, count) }
    }
    fn ask(&self, cpus: &CpuSet, what: &Invalidation) -> Ticket {
        let nobody = CpuSet::default();
        self.machine.ask(if self.mute.load(Ordering::SeqCst) { &nobody } else { cpus }, what)
    }
}
