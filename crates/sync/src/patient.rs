//! A lock for long work.

use super::{AtomicU64, Critical, Inside, Ordering, Outside};
use foliant_machine::{Clock, Cpus};

/// A lock whose holder may let others run at preemption points. A task that waits for it lets
/// others run as well (sync::outside::O3): where tasks share a CPU, the holder comes to its end.
#[derive(Debug, Default)]
pub struct Patient {
    word: AtomicU64,
}

/// Holds a [`Patient`] until dropped.
#[must_use]
pub struct Working<'a> {
    lock: &'a Patient,
    _inside: Inside,
}

impl Patient {
    /// Waits for the lock and takes it.
    pub fn lock(&self, machine: &(impl Cpus + Clock), outside: &mut Outside) -> Working<'_> {
        while self.word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while self.word.load(Ordering::Relaxed) != 0 {
                machine.relax();
                outside.yield_now(machine);
            }
        }
        Working { lock: self, _inside: Inside::enter(Critical::Patient) }
    }
}

impl Drop for Working<'_> {
    #[inline]
    fn drop(&mut self) {
        self.lock.word.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::cell::{Cell, RefCell};
    use foliant_units::{Cpu, Nanos};

    /// A CPU of which one task holds the lock, and lets go of it when another one lets it run.
    #[derive(Default)]
    struct Tasks<'l> {
        holder: RefCell<Option<Working<'l>>>,
        spins: Cell<u64>,
    }
    impl Cpus for Tasks<'_> {
        fn me(&self) -> Cpu {
            Cpu(0)
        }
        fn count(&self) -> usize {
            1
        }
        fn pinned<R>(&self, work: impl FnOnce(Cpu) -> R) -> R {
            work(Cpu(0))
        }
        fn relax(&self) {
            self.spins.set(self.spins.get() + 1);
            assert!(self.spins.get() < 100, "it spins while the holder waits for this CPU");
        }
    }
    impl Clock for Tasks<'_> {
        fn now(&self) -> Nanos {
            Nanos(0)
        }
        fn yield_now(&self) {
            drop(self.holder.take());
        }
    }

    #[test]
    fn a_task_that_waits_lets_the_holder_run() {
        let lock = Patient::default();
        let tasks = Tasks::default();
        let mut outside = Outside::at_the_face();
        *tasks.holder.borrow_mut() = Some(lock.lock(&tasks, &mut outside));
        let second = lock.lock(&tasks, &mut outside);
        assert!(tasks.holder.borrow().is_none());
        drop(second);
    }
}
