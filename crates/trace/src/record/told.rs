//! What whoever follows a program tells beside the rings.

use super::sys::pid_t;
use crate::event::{EventKind, Exec};
use foliant_units::Va;

/// What ptrace told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Told {
    pub(crate) time: u64,
    pub(crate) tid: pid_t,
    pub(crate) what: Doing,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Doing {
    /// The thread is about to make another one with these flags.
    Clone { flags: u64 },
    /// That thread's stack ends here.
    Stack { top: u64 },
    /// The process `tid` runs another program; `former` is the thread that called exec.
    Exec { former: pid_t, exec: Exec },
    /// The thread changed its space.
    Change(EventKind),
    /// The thread's break is now here.
    Brk { now: Va },
    /// The thread gets a signal for what its last fault asked for.
    Signal,
    /// The thread is gone.
    Gone,
    /// The last thread of a process is about to let go of its memory; these pages were present.
    Residue { present: Vec<Va> },
    /// The process `tid` is recorded from now on, with these threads; its space is like this.
    Root { threads: Vec<pid_t>, exec: Exec },
}
