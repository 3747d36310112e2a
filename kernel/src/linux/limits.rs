//! What a process may have: the limits of `setrlimit`.
//!
//! ```text
//!   setrlimit ─▶ Limits of the process ── fork ─▶ the child's
//!                  ├─ AS, DATA, STACK ─▶ its memory (`foliant-linux`)
//!                  ├─ CPU ─▶ its time (`spending`)
//!                  ├─ NOFILE ─▶ its descriptors
//!                  └─ FSIZE ─▶ what it writes
//! ```
//!
//! MEMLOCK is asked at each call that locks memory, NPROC where a thread is made; both bind
//! everybody but root. The others are kept and told, and nothing asks them.
//!
//! **Locking**: one lock, with nothing under it.

use alloc::string::String;
use core::fmt::{self, Write};
use foliant_linux::Errno;
use foliant_linux::capabilities::Capability;
use foliant_linux::credentials::Credentials;
use foliant_linux::overcommit::Promise;
use foliant_units::Bytes;
use linux_raw_sys::errno::EINVAL;
use linux_raw_sys::general::{
    RLIM_NLIMITS, RLIM64_INFINITY, RLIMIT_AS, RLIMIT_CORE, RLIMIT_DATA, RLIMIT_FSIZE,
    RLIMIT_MEMLOCK, RLIMIT_MSGQUEUE, RLIMIT_NICE, RLIMIT_NOFILE, RLIMIT_RTPRIO, RLIMIT_STACK,
    rlimit64,
};
use spin::Mutex;

const COUNT: usize = RLIM_NLIMITS as usize;
const NONE: u64 = RLIM64_INFINITY as u64;
/// Descriptors of a process, as Linux begins: what it uses, and what it may ask for.
pub(super) const DESCRIPTORS: [u64; 2] = [1024, 4096];
/// Bytes of a stack, as Linux begins.
const STACK: u64 = 8 << 20;
/// Bytes that may be locked, as Linux begins.
const LOCKED: u64 = 8 << 20;
/// Bytes of messages that a user may have waiting, as Linux begins.
const MESSAGES: u64 = 819_200;

/// The limits of a process.
pub(super) struct Limits(Mutex<[rlimit64; COUNT]>);

impl Clone for Limits {
    fn clone(&self) -> Limits {
        Limits(Mutex::new(self.all()))
    }
}

impl Limits {
    /// Those of the first process.
    pub(super) fn first() -> Limits {
        let mut all = [rlimit64 { rlim_cur: NONE, rlim_max: NONE }; COUNT];
        let mut set = |number: u32, [rlim_cur, rlim_max]: [u64; 2]| {
            all[number as usize] = rlimit64 { rlim_cur, rlim_max };
        };
        set(RLIMIT_CORE, [0, NONE]);
        set(RLIMIT_MEMLOCK, [LOCKED; 2]);
        set(RLIMIT_MSGQUEUE, [MESSAGES; 2]);
        set(RLIMIT_NICE, [0; 2]);
        set(RLIMIT_NOFILE, DESCRIPTORS);
        set(RLIMIT_RTPRIO, [0; 2]);
        set(RLIMIT_STACK, [STACK, NONE]);
        Limits(Mutex::new(all))
    }
    pub(super) fn all(&self) -> [rlimit64; COUNT] {
        *self.0.lock()
    }
    /// One of them.
    pub(super) fn get(&self, number: u64) -> Result<rlimit64, Errno> {
        self.all().get(number as usize).copied().ok_or(Errno(EINVAL))
    }
    /// What is in force of one that there is.
    pub(super) fn now(&self, number: u32) -> u64 {
        self.0.lock()[number as usize].rlim_cur
    }
    /// Sets one; it becomes more than it may be by a capability alone.
    pub(super) fn set(&self, number: u64, to: rlimit64, by: &Credentials) -> Result<(), Errno> {
        let mut all = self.0.lock();
        let it = all.get_mut(number as usize).ok_or(Errno(EINVAL))?;
        let is_files = number == u64::from(RLIMIT_NOFILE);
        if to.rlim_cur > to.rlim_max {
            return Err(Errno(EINVAL));
        }
        if is_files && to.rlim_max > DESCRIPTORS[1] {
            return Err(Errno::PERM); // as Linux does beyond `fs.nr_open`
        }
        if to.rlim_max > it.rlim_max && !by.has(Capability::SysResource) {
            return Err(Errno::PERM);
        }
        *it = to;
        Ok(())
    }
    /// What they say of memory, of which so much may be promised.
    pub(super) fn of_memory(&self, promise: Promise) -> foliant_linux::Limits {
        let bytes = |number: u32| Bytes::new(self.now(number));
        foliant_linux::Limits {
            address_space: bytes(RLIMIT_AS),
            data: bytes(RLIMIT_DATA),
            stack: bytes(RLIMIT_STACK),
            locked: Bytes::new(u64::MAX), // each call that locks says it
            promise,
        }
    }
    /// Bytes of a file that it may write.
    pub(super) fn file(&self) -> u64 {
        self.now(RLIMIT_FSIZE)
    }
}

/// Names and units in `/proc/PID/limits`, by number.
const SHOWN: [(&str, &str); COUNT] = [
    ("Max cpu time", "seconds"),
    ("Max file size", "bytes"),
    ("Max data size", "bytes"),
    ("Max stack size", "bytes"),
    ("Max core file size", "bytes"),
    ("Max resident set", "bytes"),
    ("Max processes", "processes"),
    ("Max open files", "files"),
    ("Max locked memory", "bytes"),
    ("Max address space", "bytes"),
    ("Max file locks", "locks"),
    ("Max pending signals", "signals"),
    ("Max msgqueue size", "bytes"),
    ("Max nice priority", ""),
    ("Max realtime priority", ""),
    ("Max realtime timeout", "us"),
];

/// Writes `/proc/PID/limits`.
pub(super) fn show(all: &[rlimit64; COUNT], out: &mut String) -> fmt::Result {
    writeln!(out, "{:25} {:20} {:20} {:10}", "Limit", "Soft Limit", "Hard Limit", "Units")?;
    let word = |number: u64| match number {
        NONE => String::from("unlimited"),
        number => alloc::format!("{number}"),
    };
    for ((name, unit), it) in SHOWN.iter().zip(all) {
        writeln!(out, "{name:25} {:20} {:20} {unit:10}", word(it.rlim_cur), word(it.rlim_max))?;
    }
    Ok(())
}
