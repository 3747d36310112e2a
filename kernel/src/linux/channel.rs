//! What is read and written without positions, and waited for: pipes, lines, sockets, counters.
//!
//! ```text
//!   node ─▶ Channel ──open──▶ Channel: an end of its own, closed when it is dropped
//!                                │ read, write        │ events ── watched: waiters, woken on change
//! ```
//!
//! **Invariants**
//! - H1. Whoever makes an event come wakes the waiters behind the change, with no lock held that
//!   `events` takes: who waits looks again, and finds it (`waiters::S3`).

use super::events::Events;
use super::signal::CUT;
use super::transfer::Transfer;
use super::waiters::Waiters;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::any::Any;
use foliant_linux::Errno;
use linux_raw_sys::errno::{EAGAIN, EINVAL, ENOTTY, ENXIO};

/// Whether a call waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waits {
    Yes,
    No,
}

impl Waits {
    /// What `done` has: now, or when it has something and these are woken.
    pub(super) fn get<R>(
        self,
        waiters: &Waiters,
        mut done: impl FnMut() -> Option<R>,
    ) -> Result<R, Errno> {
        match self {
            Waits::No => done().ok_or(Errno(EAGAIN)),
            Waits::Yes => waiters.wait(None, done).map_err(|_| CUT),
        }
    }
}

/// Nobody waits for a name.
static NOBODY: Waiters = Waiters::new();

/// What is read and written without positions. One that says nothing else is a name alone: it may
/// be opened, and no file is opened of it itself.
pub(super) trait Channel: Any + Send + Sync {
    /// Waits for bytes, and moves those that are there; none at the end.
    fn read(&self, _into: &mut Transfer, _waits: Waits) -> Result<usize, Errno> {
        Err(Errno(EINVAL))
    }
    /// Waits for room, and takes bytes; says how many, which is not all where a signal came.
    fn write(&self, _from: &mut Transfer, _waits: Waits) -> Result<usize, Errno> {
        Err(Errno(EINVAL))
    }
    /// What there is now.
    fn events(&self) -> Events {
        Events::NONE
    }
    /// Whom to wake when that may have changed (H1).
    fn waiters(&self) -> &Waiters {
        &NOBODY
    }
    /// The number of a device, where it is one.
    fn device(&self) -> u64 {
        0
    }
    /// A request of `ioctl` that is its own.
    fn ioctl(&self, _request: u32, _at: u64) -> Result<u64, Errno> {
        Err(Errno(ENOTTY))
    }
    /// What an opened file of it is: itself, or an end of its own that is closed with the file.
    fn open(self: Arc<Self>, _flags: u32) -> Result<Arc<dyn Channel>, Errno> {
        Err(Errno(ENXIO))
    }
    /// What a link of `/proc/self/fd` shows.
    fn label(&self, inode: u64) -> String {
        format!("pipe:[{inode}]")
    }
}
