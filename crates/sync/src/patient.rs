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
