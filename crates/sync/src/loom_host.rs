//! Two CPUs under loom: a CPU that waits lets the others go on.

use foliant_machine::Cpus;
use foliant_units::Cpu;

/// See the module's text. Its threads are loom's, and all say that they are CPU 0.
pub struct LoomHost;

impl Cpus for LoomHost {
    fn me(&self) -> Cpu {
        Cpu(0)
    }
    fn count(&self) -> usize {
        2
    }
    fn pinned<R>(&self, work: impl FnOnce(Cpu) -> R) -> R {
        work(Cpu(0))
    }
    fn relax(&self) {
        loom::thread::yield_now();
    }
}
