//! Signals as data: what is told of them, and what waits.
//!
//! **Invariants**
//! - G1. A signal that waits waits once; what is told of it is what came with the first.
//!   Of a timer it is what came with the last, which counts those before.
#![allow(unsafe_code)]

use super::user::Plain;
use alloc::collections::BTreeMap;
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};
use foliant_linux::{Errno, Signal};
use linux_raw_sys::general::{
    CLD_CONTINUED, CLD_EXITED, CLD_KILLED, CLD_STOPPED, SI_KERNEL, SI_TIMER, SI_TKILL, SIGCHLD,
    SIGCONT, SIGKILL, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH, SS_DISABLE,
};
use spin::Mutex;

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    /// It said so.
    Code(u8),
    /// A signal ended it.
    Signal(u32),
}

impl Ended {
    /// As `wait4` tells it.
    pub(super) fn word(self) -> u32 {
        match self {
            Ended::Code(code) => u32::from(code) << 8,
            Ended::Signal(number) => number,
        }
    }
}

/// What became of a child, as those that wait for it are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Became {
    Ended(Ended),
    /// A signal stopped it.
    Stopped(u32),
    /// It went on.
    Continued,
}

impl Became {
    /// As `wait4` tells it.
    pub(super) fn word(self) -> u32 {
        match self {
            Became::Ended(ended) => ended.word(),
            Became::Stopped(number) => number << 8 | 0x7f,
            Became::Continued => 0xffff,
        }
    }
}

/// Signals that there are.
pub(super) const SIGNALS: u32 = 64;
/// A handler that stands for what happens by default, and one that stands for nothing.
pub(super) const DEFAULT: u64 = 0;
pub(super) const IGNORE: u64 = 1;

/// A call that a signal cut short, and that is made again where its handler wants that.
pub(super) const CUT: Errno = Errno(512);

/// What a process does about a signal.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub(super) struct Action {
    pub(super) handler: u64,
    pub(super) flags: u64,
    pub(super) restorer: u64,
    pub(super) mask: u64,
}

/// What is told of a signal: Linux's `siginfo`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct Info {
    pub(super) number: i32,
    error: i32,
    code: i32,
    padding: i32,
    /// The address; or process and user, and a status.
    pub(super) more: [u64; 14],
}

impl Info {
    pub(super) fn fault(number: u32, code: u32, addr: u64) -> Info {
        let mut info = Info::plain(number, code as i32);
        info.more[0] = addr;
        info
    }
    /// The same, as the memory side says it.
    pub(super) fn access(it: &Signal) -> Info {
        let mut info = Info::fault(it.number, it.code, it.addr);
        info.more[1] = it.lsb.into();
        info
    }
    fn plain(number: u32, code: i32) -> Info {
        Info { number: number as i32, error: 0, code, padding: 0, more: [0; 14] }
    }
    /// From a process, and a user.
    pub(super) fn sent(number: u32, code: i32, from: u32, user: u32) -> Info {
        let mut info = Info::plain(number, code);
        info.more[0] = u64::from(from) | u64::from(user) << 32;
        info
    }
    /// Of a timer with a number and a word of its own, that its time came so often besides.
    pub(super) fn timer(number: u32, id: i32, word: u64) -> Info {
        let mut info = Info::plain(number, SI_TIMER);
        info.more[0] = id as u32 as u64;
        info.more[1] = word;
        info
    }
    /// The same, told by another signal.
    pub(super) fn by(self, number: u32) -> Info {
        Info { number: number as i32, ..self }
    }
    /// Whether it says that the kernel or a user sent it.
    pub(super) fn is_vouched_for(&self) -> bool {
        self.code >= 0 || self.code == SI_TKILL
    }
    /// How it came.
    pub(super) fn code(&self) -> i32 {
        self.code
    }
    /// Whether a timer that a process made sends it.
    pub(super) fn is_timers(&self) -> bool {
        self.code == SI_TIMER
    }
    /// How often a timer's time came besides.
    pub(super) fn set_overrun(&mut self, overrun: u32) {
        self.more[0] = self.more[0] & u64::from(u32::MAX) | u64::from(overrun) << 32;
    }
    /// From the kernel itself.
    pub(super) fn kernel(number: u32) -> Info {
        Info::plain(number, SI_KERNEL as i32)
    }
    /// What became of a child, which is some user's.
    pub(super) fn of_child((child, user): (u32, u32), became: Became) -> Info {
        let (code, status) = match became {
            Became::Ended(Ended::Code(code)) => (CLD_EXITED, code.into()),
            Became::Ended(Ended::Signal(number)) => (CLD_KILLED, number),
            Became::Stopped(number) => (CLD_STOPPED, number),
            Became::Continued => (CLD_CONTINUED, SIGCONT),
        };
        let mut info = Info::sent(SIGCHLD, code as i32, child, user);
        info.more[1] = status.into();
        info
    }
}

/// What waits.
pub(super) struct Waiting {
    set: AtomicU64,
    told: Mutex<BTreeMap<u32, Info>>,
}

impl Waiting {
    pub(super) const fn new() -> Waiting {
        Waiting { set: AtomicU64::new(0), told: Mutex::new(BTreeMap::new()) }
    }
    pub(super) fn put(&self, info: Info) {
        let mut told = self.told.lock();
        let waits = told.entry(info.number as u32).or_insert(info); // G1
        if waits.code == SI_TIMER && info.code == SI_TIMER {
            *waits = info;
        }
        self.set.fetch_or(bit(info.number as u32), Ordering::AcqRel);
    }
    /// Drops those of a set.
    pub(super) fn forget(&self, of: u64) {
        while self.take(of).is_some() {}
    }
    pub(super) fn set(&self) -> u64 {
        self.set.load(Ordering::Acquire)
    }
    /// Takes the first of a set.
    pub(super) fn take(&self, of: u64) -> Option<Info> {
        if self.set() & of == 0 {
            return None; // as nearly always
        }
        let mut told = self.told.lock();
        let found = self.set() & of;
        if found == 0 {
            return None;
        }
        let number = found.trailing_zeros() + 1;
        self.set.fetch_and(!bit(number), Ordering::AcqRel);
        told.remove(&number)
    }
}

/// No stack for handlers: address, flags and size.
pub(super) const NO_STACK: [u64; 3] = [0, SS_DISABLE as u64, 0];

/// What a thread has of its own.
pub(super) struct Pending {
    pub(super) own: Waiting,
    /// Signals that wait until it wants them, a bit each.
    blocked: AtomicU64,
    /// What was blocked before a call that has others blocked while it waits.
    pub(super) before: Cell<Option<u64>>,
    /// Address, flags and size of the stack for handlers.
    pub(super) stack: Cell<[u64; 3]>,
}

impl Pending {
    pub(super) fn new() -> Pending {
        Pending {
            own: Waiting::new(),
            blocked: AtomicU64::new(0),
            before: Cell::new(None),
            stack: Cell::new(NO_STACK),
        }
    }
    pub(super) fn blocked(&self) -> u64 {
        self.blocked.load(Ordering::Acquire)
    }
    /// Two are never blocked.
    pub(super) fn block(&self, set: u64) {
        self.blocked.store(set & !(bit(SIGKILL) | bit(SIGSTOP)), Ordering::Release);
    }
}

pub(super) const fn bit(number: u32) -> u64 {
    1 << (number - 1)
}

/// Whether nothing happens by default.
pub(super) fn is_harmless(number: u32) -> bool {
    matches!(number, SIGCHLD | SIGCONT | SIGURG | SIGWINCH)
}
/// Whether a process stops by default.
pub(super) fn is_stop(number: u32) -> bool {
    STOPS & bit(number) != 0
}
/// The signals that stop.
pub(super) const STOPS: u64 = bit(SIGSTOP) | bit(SIGTSTP) | bit(SIGTTIN) | bit(SIGTTOU);

// SAFETY: numbers alone, one behind the other.
unsafe impl Plain for Info {}
// SAFETY: as above.
unsafe impl Plain for Action {}
