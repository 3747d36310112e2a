//! A spin lock of one word.

use super::{AtomicU64, Ordering};
use foliant_machine::Cpus;

/// A lock without contents: what it guards is named by the field that holds it.
#[derive(Debug, Default)]
pub(crate) struct Spin {
    word: AtomicU64,
}

/// Holds a [`Spin`] until dropped.
#[must_use]
pub(crate) struct Held<'a> {
    lock: &'a Spin,
}

impl Spin {
    /// Waits for the lock and takes it.
    pub(crate) fn lock(&self, cpus: &impl Cpus) -> Held<'_> {
        while self.word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            cpus.relax();
        }
        Held { lock: self }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.lock.word.store(0, Ordering::Release);
    }
}
