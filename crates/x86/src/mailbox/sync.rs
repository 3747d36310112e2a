//! The mailbox's atomics and its cell; under `--cfg loom` they are loom's, so that every
//! interleaving of the protocol can be explored without a change to it.

#[cfg(all(loom, test))]
pub(super) use loom::{
    cell::UnsafeCell as Cell,
    sync::atomic::{AtomicU64, Ordering},
};

#[cfg(not(all(loom, test)))]
pub(super) use core::sync::atomic::{AtomicU64, Ordering};

/// A cell that is opened by closures, as loom's is.
#[cfg(not(all(loom, test)))]
pub(super) struct Cell<T>(core::cell::UnsafeCell<T>);

#[cfg(not(all(loom, test)))]
impl<T> Cell<T> {
    pub(super) const fn new(value: T) -> Cell<T> {
        Cell(core::cell::UnsafeCell::new(value))
    }
    pub(super) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }
    pub(super) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}
