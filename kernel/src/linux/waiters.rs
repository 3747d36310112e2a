//! Waiting for something to change: threads that park until they are woken, and watchers that are
//! told.
//!
//! ```text
//!   wait ─▶ listed ─▶ looked once more ─▶ parked ◀── wake ── what changed
//!   watch ─▶ listed ── told of every change, until it is gone
//! ```
//!
//! **Invariants**
//! - S3. Whoever waits says so where it can be found, then looks once more, and parks then.
//!
//! **Locking**: a list's lock for a few instructions, with nothing under it.

use super::clock;
use super::events::Events;
use super::sched::{self, Runs, current, park};
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use spin::Mutex;

/// Why a wait ended without what was waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cut {
    /// A signal, or the process's end.
    Signal,
    /// The time.
    Time,
}

/// Who is told that something may have changed, without a thread of its own.
pub(super) trait Watcher: Send + Sync {
    /// These events may have come.
    fn note(&self, events: Events);
}

#[derive(Clone)]
enum Waiter {
    Thread(Arc<dyn Runs>),
    Watcher(Weak<dyn Watcher>),
}

/// Who waits for something.
pub(super) struct Waiters(Mutex<Vec<Waiter>>);

impl Waiters {
    pub(super) const fn new() -> Waiters {
        Waiters(Mutex::new(Vec::new()))
    }
    /// Waits until `done` has something.
    pub(super) fn wait<R>(
        &self,
        until: Option<u64>,
        done: impl FnMut() -> Option<R>,
    ) -> Result<R, Cut> {
        wait_any(&[self], until, done)
    }
    fn enter(&self, thread: &Arc<dyn Runs>) {
        self.0.lock().push(Waiter::Thread(thread.clone()));
    }
    fn leave(&self, thread: &Arc<dyn Runs>) {
        let is_other = |waiter: &Waiter| match waiter {
            Waiter::Thread(other) => !core::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(thread)),
            Waiter::Watcher(_) => true,
        };
        self.0.lock().retain(is_other);
    }
    /// Tells a watcher of changes from now on.
    pub(super) fn watch(&self, watcher: Weak<dyn Watcher>) {
        self.0.lock().push(Waiter::Watcher(watcher));
    }
    /// Tells it no more.
    pub(super) fn unwatch(&self, watcher: &Weak<dyn Watcher>) {
        let is_other = |waiter: &Waiter| match waiter {
            Waiter::Thread(_) => true,
            Waiter::Watcher(other) => !core::ptr::addr_eq(other.as_ptr(), watcher.as_ptr()),
        };
        self.0.lock().retain(is_other);
    }
    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
    /// Wakes all of them.
    pub(super) fn wake(&self) {
        self.wake_for(Events::ALL);
    }
    /// Wakes all threads, and tells watchers of these events.
    pub(super) fn wake_for(&self, events: Events) {
        let all = {
            let all = self.0.lock();
            if all.is_empty() {
                return;
            }
            all.clone()
        };
        for waiter in all {
            match waiter {
                Waiter::Thread(thread) => sched::wake(thread),
                Waiter::Watcher(watcher) => {
                    if let Some(watcher) = watcher.upgrade() {
                        watcher.note(events);
                    }
                }
            }
        }
    }
}

/// Waits until `done` has something, for whoever changes that to wake one of these.
pub(super) fn wait_any<R>(
    all: &[&Waiters],
    until: Option<u64>,
    mut done: impl FnMut() -> Option<R>,
) -> Result<R, Cut> {
    if let Some(result) = done() {
        return Ok(result);
    }
    let thread = current();
    loop {
        all.iter().for_each(|waiters| waiters.enter(&thread));
        let found = done(); // S3
        let cut = match () {
            () if thread.is_interrupted() => Some(Cut::Signal),
            () if until.is_some_and(|until| clock::uptime() >= until) => Some(Cut::Time),
            () => None,
        };
        if found.is_none() && cut.is_none() {
            park(until);
        }
        all.iter().for_each(|waiters| waiters.leave(&thread));
        match (found, cut) {
            (Some(result), _) => return Ok(result),
            (None, Some(cut)) => return Err(cut),
            (None, None) => thread.rest(), // and it looks again
        }
    }
}
/// Waits until `done` has something, for whoever changes that to wake this very thread.
pub(super) fn wait<R>(until: Option<u64>, done: impl FnMut() -> Option<R>) -> Result<R, Cut> {
    wait_any(&[], until, done)
}
/// Sleeps until a time.
pub(super) fn sleep(until: u64) -> Result<(), Cut> {
    match wait(Some(until), || None) {
        Ok(()) | Err(Cut::Time) => Ok(()),
        Err(cut) => Err(cut),
    }
}
