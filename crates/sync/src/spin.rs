//! A spin lock of one word. A CPU tries one exchange, and reads until the word is free before it
//! tries again. The lock is not fair: its waiters are CPUs, with at most one attempt each, and
//! tickets would make every waiter wait for one that its host has stopped. The work under a
//! [`Spin`] is bounded and short; a [`Long`] is the same lock for long work.

use super::{AtomicU64, Critical, Inside, Ordering};
use foliant_machine::Cpus;

/// A lock without contents: the field that holds it says what it guards.
#[derive(Debug, Default)]
pub struct Spin {
    word: AtomicU64,
}

/// Holds a [`Spin`] until dropped.
#[must_use]
pub struct SpinGuard<'a> {
    lock: &'a Spin,
    _inside: Inside,
}

/// A lock that is held over long work, such as the resizing of a pool or a purge.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Long(Spin);

impl Long {
    /// Waits for the lock and takes it.
    pub fn lock(&self, cpus: &impl Cpus) -> SpinGuard<'_> {
        self.0.lock_in(cpus, Critical::Long)
    }
}

impl Spin {
    /// Waits for the lock and takes it.
    pub fn lock(&self, cpus: &impl Cpus) -> SpinGuard<'_> {
        self.lock_in(cpus, Critical::Leaf)
    }
    fn lock_in(&self, cpus: &impl Cpus, place: Critical) -> SpinGuard<'_> {
        loop {
            if let Some(held) = self.try_lock_in(place) {
                return held;
            }
            // The waiters only read, so the line stays with the holder until it lets go.
            while self.word.load(Ordering::Relaxed) != 0 {
                cpus.relax();
            }
        }
    }
    #[inline]
    fn try_lock_in(&self, place: Critical) -> Option<SpinGuard<'_>> {
        let won = self.word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
        won.is_ok().then(|| SpinGuard { lock: self, _inside: Inside::enter(place) })
    }
}

impl Drop for SpinGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.lock.word.store(0, Ordering::Release);
    }
}
