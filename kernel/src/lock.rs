//! A lock whose waiters stay reachable.
//!
//! **Invariants**
//! - K1. Whoever holds it has interrupts out: a handler on its CPU never waits for it.
//! - K2. Whoever waits for it takes interrupts, or, where they are out, carries out what other CPUs
//!   ask: the holder may wait for that.
#![allow(unsafe_code)]

use crate::{memory, port};
use core::sync::atomic::{AtomicBool, Ordering};
use foliant_heap::lock_api::{GuardNoSend, Mutex, RawMutex};

/// The lock alone.
pub(crate) struct Serving {
    is_held: AtomicBool,
    /// Whether the holder had interrupts on.
    had_interrupts: AtomicBool,
}

impl Serving {
    fn try_take(&self, had_interrupts: bool) -> bool {
        port::disable();
        let won = self
            .is_held
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
        if won {
            self.had_interrupts.store(had_interrupts, Ordering::Relaxed);
        } else if had_interrupts {
            port::enable();
        }
        won
    }
}

// SAFETY: one exchange lets one CPU in, and no other before `unlock`.
unsafe impl RawMutex for Serving {
    const INIT: Serving =
        Serving { is_held: AtomicBool::new(false), had_interrupts: AtomicBool::new(false) };
    type GuardMarker = GuardNoSend;

    fn lock(&self) {
        let on = port::interrupts_on();
        while !self.try_take(on) {
            if !on {
                memory::serve(); // K2
            }
            core::hint::spin_loop();
        }
    }
    fn try_lock(&self) -> bool {
        self.try_take(port::interrupts_on())
    }
    unsafe fn unlock(&self) {
        let on = self.had_interrupts.load(Ordering::Relaxed);
        self.is_held.store(false, Ordering::Release);
        if on {
            port::enable();
        }
    }
}

/// A value behind such a lock.
pub(crate) struct Served<T>(Mutex<Serving, T>);

impl<T> Served<T> {
    pub(crate) const fn new(value: T) -> Served<T> {
        Served(Mutex::new(value))
    }

    /// Runs `work` on the value.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        work(&mut self.0.lock())
    }

    /// Opens it, whoever holds it. Interrupts stay as they are.
    ///
    /// # Safety
    /// The holder does not go on, or what it and the next one do at once is harmless.
    pub(crate) unsafe fn seize(&self) {
        // SAFETY: the caller's promise.
        let lock = unsafe { self.0.raw() };
        lock.is_held.store(false, Ordering::Release);
    }
}
