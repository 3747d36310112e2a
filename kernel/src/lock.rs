//! A lock whose waiters stay reachable.
//!
//! **Invariants**
//! - K1. Whoever holds it has interrupts out: a handler on its CPU never waits for it.
//! - K2. Whoever waits for it takes interrupts, or, where they are out, carries out what other CPUs
//!   ask: the holder may wait for that.
#![allow(unsafe_code)]

use crate::{memory, port};
use spin::Mutex;

/// A value behind such a lock.
pub(crate) struct Served<T>(Mutex<T>);

impl<T> Served<T> {
    pub(crate) const fn new(value: T) -> Served<T> {
        Served(Mutex::new(value))
    }

    /// Runs `work` on the value.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let on = port::interrupts_on();
        loop {
            port::disable();
            if let Some(mut value) = self.0.try_lock() {
                let result = work(&mut value);
                drop(value);
                if on {
                    port::enable();
                }
                return result;
            }
            if on {
                port::enable(); // K2
            } else {
                memory::serve();
            }
            core::hint::spin_loop();
        }
    }

    /// Opens it, whoever holds it.
    ///
    /// # Safety
    /// The holder does not go on, or what it and the next one do at once is harmless.
    pub(crate) unsafe fn seize(&self) {
        // SAFETY: the caller's promise.
        unsafe { self.0.force_unlock() }
    }
}
