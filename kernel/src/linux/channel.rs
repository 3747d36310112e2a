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

use super::transfer::Transfer;
use super::waiters::Waiters;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::any::Any;
use core::ops::{BitAnd, BitOr};
use foliant_linux::Errno;
use linux_raw_sys::errno::{ENOTTY, ENXIO};
use linux_raw_sys::general::{
    POLLERR, POLLHUP, POLLIN, POLLOUT, POLLPRI, POLLRDBAND, POLLRDHUP, POLLRDNORM, POLLWRBAND,
    POLLWRNORM,
};

/// Whether a call waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waits {
    Yes,
    No,
}

/// What `poll` tells of, a bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Events(pub(super) u32);

impl Events {
    pub(super) const NONE: Events = Events(0);
    /// A read does not wait.
    pub(super) const IN: Events = Events(POLLIN | POLLRDNORM);
    /// A write does not wait.
    pub(super) const OUT: Events = Events(POLLOUT | POLLWRNORM);
    /// Something urgent came.
    pub(super) const PRIORITY: Events = Events(POLLPRI | POLLRDBAND | POLLWRBAND);
    pub(super) const ERROR: Events = Events(POLLERR);
    /// Nobody is at the other end.
    pub(super) const HANGUP: Events = Events(POLLHUP);
    /// The other end writes no more.
    pub(super) const READ_HANGUP: Events = Events(POLLRDHUP);
    /// Those that are told of whether somebody asks or not.
    pub(super) const ALWAYS: Events = Events(POLLERR | POLLHUP);
    pub(super) const ALL: Events = Events(u32::MAX);

    /// These where that is so, else none.
    pub(super) fn when(self, is_so: bool) -> Events {
        if is_so { self } else { Events::NONE }
    }
    pub(super) fn is_empty(self) -> bool {
        self == Events::NONE
    }
    pub(super) fn has(self, any: Events) -> bool {
        !(self & any).is_empty()
    }
}

impl BitOr for Events {
    type Output = Events;
    fn bitor(self, other: Events) -> Events {
        Events(self.0 | other.0)
    }
}
impl BitAnd for Events {
    type Output = Events;
    fn bitand(self, other: Events) -> Events {
        Events(self.0 & other.0)
    }
}

/// What is read and written without positions.
pub(super) trait Channel: Any + Send + Sync {
    /// Waits for bytes, and moves those that are there; none at the end.
    fn read(&self, into: &mut Transfer, waits: Waits) -> Result<usize, Errno>;
    /// Waits for room, and takes bytes; says how many, which is not all where a signal came.
    fn write(&self, from: &mut Transfer, waits: Waits) -> Result<usize, Errno>;
    /// What there is now.
    fn events(&self) -> Events;
    /// Whom to wake when that may have changed (H1).
    fn waiters(&self) -> &Waiters;
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
