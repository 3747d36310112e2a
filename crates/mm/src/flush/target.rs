//! Whose translations a gather ends: the CPUs that run a space (or, for the kernel half, that are
//! online), and whether a flush of it is pending.

use crate::sync::{AtomicU64, Ordering, fence};
use foliant_machine::Scope;
use foliant_units::{CPUS_MAX, Cpu, CpuSet, Pa};

/// Stands for the kernel half in the place of a top table's address, which is a multiple of 4096.
const KERNEL: u64 = !0;

/// One address space, or the kernel half, as the flush sees it.
///
/// Key: `[a]` which CPUs run it; `[p]` which flushes are pending.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Target {
    /// The top table's address; constant while the space lives.
    root: AtomicU64,
    started: AtomicU64,  // [p]
    finished: AtomicU64, // [p]
    /// How many words of `running` were ever used: a flush looks at no more.
    used: AtomicU64, // [a]
    running: [AtomicU64; CPUS_MAX / 64], // [a]
}

impl Target {
    pub(crate) fn set_root(&self, root: Pa) {
        self.root.store(root.get(), Ordering::Relaxed);
    }
    pub(crate) fn root(&self) -> Pa {
        Pa::new(self.root.load(Ordering::Relaxed))
    }
    pub(crate) fn scope(&self) -> Scope {
        match self.root.load(Ordering::Relaxed) {
            KERNEL => Scope::Kernel,
            root => Scope::Space(Pa::new(root)),
        }
    }
    /// The kernel half. A CPU is announced when it comes online, for good. It may have run the
    /// kernel's tables before and have translations of the kernel half, of which no flush knew: it
    /// ends them all once it is announced (`Manager::online`).
    pub(crate) fn kernel() -> Target {
        let target = Target::default();
        target.root.store(KERNEL, Ordering::Relaxed);
        target
    }

    /// Announces that `cpu` is about to load the root. A flush that does not see this is seen by a
    /// later [`started`](Target::started) (F3).
    pub(crate) fn announce(&self, cpu: Cpu) {
        let used = cpu.index() as u64 / 64 + 1;
        if self.used.load(Ordering::Relaxed) < used {
            // Seen, or not, like the announcement behind it.
            self.used.fetch_max(used, Ordering::SeqCst);
        }
        self.running[cpu.index() / 64].fetch_or(1 << (cpu.index() % 64), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
    /// Takes the announcement of `cpu` back: it has loaded another root, or has not loaded this one
    /// after all.
    pub(crate) fn leave(&self, cpu: Cpu) {
        self.running[cpu.index() / 64].fetch_and(!(1 << (cpu.index() % 64)), Ordering::SeqCst);
    }
    /// The announced CPUs: those that may use translations. Others may keep some under the root's
    /// tag, and do not use them after a flush (F3).
    pub(crate) fn running(&self) -> CpuSet {
        fence(Ordering::SeqCst);
        let used = self.used.load(Ordering::SeqCst) as usize;
        CpuSet::below(used * 64, |w| self.running[w].load(Ordering::SeqCst))
    }

    /// Counts a flush as pending (F2).
    pub(super) fn start(&self) {
        self.started.fetch_add(1, Ordering::SeqCst);
    }
    /// Counts a flush as done.
    pub(super) fn finish(&self) {
        self.finished.fetch_add(1, Ordering::SeqCst);
    }
    /// How many flushes were ever begun.
    pub(crate) fn started(&self) -> u64 {
        self.started.load(Ordering::SeqCst)
    }
    /// How many flushes were ever begun, if none of them is pending (F3).
    pub(crate) fn quiet(&self) -> Option<u64> {
        // `finished` is read first: the flushes that it counts had begun before, so where the two
        // agree none was under way in between.
        let finished = self.finished.load(Ordering::SeqCst);
        (self.started() == finished).then_some(finished)
    }
    /// Whether a flush is pending, not counting `own` ones.
    pub(crate) fn is_pending(&self, own: u64) -> bool {
        let finished = self.finished.load(Ordering::SeqCst);
        self.started() > finished + own
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_cpu_that_is_announced_is_running_until_it_leaves() {
        let target = Target::default();
        let cpus = [0, 63, 64, 65, 128, CPUS_MAX as u16 - 1].map(Cpu);
        for (at, cpu) in cpus.into_iter().enumerate() {
            target.announce(cpu);
            assert!(target.running().iter().eq(cpus[..=at].iter().copied()), "{cpu:?}");
        }
        for (at, cpu) in cpus.into_iter().enumerate() {
            target.leave(cpu);
            assert!(target.running().iter().eq(cpus[at + 1..].iter().copied()), "{cpu:?}");
        }
    }
}
