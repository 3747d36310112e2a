//! Signals that are read: a descriptor takes those of a set that wait for whoever reads it.
//!
//! Waiters are those of the process that made it. A process that has it from its parent is woken by
//! its own signals where it reads or polls, and not where an epoll does for it.

use super::channel::{Channel, Waits};
use super::events::Events;
use super::sched;
use super::signal::{Info, bit};
use super::transfer::Transfer;
use super::waiters::Waiters;
use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use foliant_linux::Errno;
use linux_raw_sys::errno::EINVAL;
use linux_raw_sys::general::{SIGKILL, SIGSTOP};

/// Bytes that are told of a signal: Linux's `signalfd_siginfo`.
const SIZE: usize = 128;

/// A set of signals that is a descriptor.
pub(super) struct SignalFile {
    set: AtomicU64,
    waiting: Arc<Waiters>,
}

impl SignalFile {
    /// `waiting` is woken for each signal of the process.
    pub(super) fn new(set: u64, waiting: Arc<Waiters>) -> Arc<SignalFile> {
        let file = SignalFile { set: AtomicU64::new(0), waiting };
        file.set(set);
        Arc::new(file)
    }
    /// Gives it another set; two signals are never read.
    pub(super) fn set(&self, set: u64) {
        self.set.store(set & !(bit(SIGKILL) | bit(SIGSTOP)), Ordering::Release);
        self.waiting.wake_for(Events::IN);
    }
}

/// What is told of a signal.
fn told(info: &Info) -> [u8; SIZE] {
    let [one, two] = [info.more[0], info.more[1]];
    let (low, high) = (one as u32, (one >> 32) as u32);
    let mut words = [0u32; SIZE / 4];
    (words[0], words[2]) = (info.number as u32, info.code() as u32);
    if info.is_timers() {
        (words[6], words[8]) = (low, high); // which one, and how often besides
    } else {
        (words[3], words[4]) = (low, high); // from whom
        words[10] = two as u32;
    }
    (words[11], words[12], words[13]) = (two as u32, two as u32, (two >> 32) as u32);
    let mut bytes = [0; SIZE];
    for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

impl Channel for SignalFile {
    fn read(&self, into: &mut Transfer, waits: Waits) -> Result<usize, Errno> {
        if into.left() < SIZE {
            return Err(Errno(EINVAL));
        }
        let take = || sched::current().take_signal(self.set.load(Ordering::Acquire));
        let first = waits.get(&self.waiting, take)?;
        let mut done = into.put_all(&told(&first))?;
        while into.left() >= SIZE
            && let Some(next) = take()
        {
            done += into.put(&told(&next));
        }
        Ok(done)
    }
    fn events(&self) -> Events {
        Events::IN.when(sched::current().has_signal(self.set.load(Ordering::Acquire)))
    }
    fn waiters(&self) -> &Waiters {
        &self.waiting
    }
    fn label(&self, _: u64) -> String {
        String::from("anon_inode:[signalfd]")
    }
}
