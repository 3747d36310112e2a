//! What the kernel tells through a ring.

use super::sys::pid_t;
use crate::event::{Access, AreaKind};

/// One thing that the kernel told through a ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Raw {
    pub(crate) time: u64,
    pub(crate) tid: pid_t,
    pub(crate) what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// A fault, as the software event saw it.
    Fault { va: u64, kernel: bool, decoded: Option<Access> },
    /// A fault, as a tracepoint saw it, with the processor's error code.
    Code { va: u64, error: u32 },
    /// The thread made another one.
    Fork { child: pid_t, same_process: bool },
    /// The thread has let go of its memory and is as good as gone.
    End,
    /// The thread has left its old space for a new one in exec. `pid` is its process.
    Exec { pid: pid_t },
    /// Of a program that runs (`attach`): the thread made another one, with these flags.
    Born { child: pid_t, flags: u64 },
    /// The thread makes a call.
    Enter { nr: u16, args: [u64; 6] },
    /// The kernel has made an area for the thread's call.
    Made { at: u64, bytes: u64, kind: AreaKind },
    /// The thread's call is back.
    Leave { result: i64 },
}
