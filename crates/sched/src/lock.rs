//! A lock with contents: spin's, and loom's where every interleaving is tried.

#[cfg(all(loom, test))]
use loom::sync::Mutex;
#[cfg(not(all(loom, test)))]
use spin::Mutex;

pub(crate) struct Lock<T>(Mutex<T>);

impl<T> Lock<T> {
    pub(crate) fn new(inside: T) -> Lock<T> {
        Lock(Mutex::new(inside))
    }
    /// Does something with what is inside.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let held = self.0.lock();
        #[cfg(all(loom, test))]
        let held = held.expect("no holder has panicked");
        let mut held = held;
        work(&mut held)
    }
}
