//! Events: what may be done with a descriptor without waiting.

use core::ops::{BitAnd, BitOr};
use linux_raw_sys::general::{
    POLLERR, POLLHUP, POLLIN, POLLOUT, POLLPRI, POLLRDBAND, POLLRDHUP, POLLRDNORM, POLLWRBAND,
    POLLWRNORM,
};

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
