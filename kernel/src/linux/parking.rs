//! A lock whose waiters park: it may be held while user memory is reached, which may take long.
//!
//! **Invariants**
//! - K1. It is taken by threads alone, and none spins for it: a fault that a program answers itself
//!   (`userfault`) may come in the middle of a copy, and the one who answers may want the lock.

use super::waiters::Waiters;
use super::{clock, sched};
use core::ops::{Deref, DerefMut};
use spin::{Mutex, MutexGuard};

/// Nanoseconds after which one that a signal would wake looks again.
const LOOK: u64 = 1_000_000;

/// A lock.
pub(super) struct Parking<T> {
    inside: Mutex<T>,
    waiting: Waiters,
}

/// Its holder.
pub(super) struct Guard<'l, T> {
    /// None when it is let go of.
    inside: Option<MutexGuard<'l, T>>,
    waiting: &'l Waiters,
}

impl<T> Parking<T> {
    pub(super) const fn new(value: T) -> Parking<T> {
        Parking { inside: Mutex::new(value), waiting: Waiters::new() }
    }
    /// Takes it, signals or not.
    pub(super) fn lock(&self) -> Guard<'_, T> {
        loop {
            if let Some(inside) = self.inside.try_lock() {
                return Guard { inside: Some(inside), waiting: &self.waiting };
            }
            match self.waiting.wait(None, || self.inside.try_lock()) {
                Ok(inside) => return Guard { inside: Some(inside), waiting: &self.waiting },
                Err(_) => sched::park(Some(clock::uptime() + LOOK)),
            }
        }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.inside = None;
        self.waiting.wake();
    }
}
impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.inside.as_ref().expect("it is held until it is dropped")
    }
}
impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inside.as_mut().expect("it is held until it is dropped")
    }
}
