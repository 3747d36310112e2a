//! What is asked of the host: memory that forks share, forks, and their ends.
//!
//! **Invariants**
//! - H1. The process has one thread wherever it forks, so the child has all of it.
//! - H2. A child leaves by [`leave`], which runs nothing of the parent's.
#![allow(unsafe_code)]

use core::ffi::c_int;
use core::mem::size_of;
use core::ptr;
use core::sync::atomic::{AtomicU8, AtomicU64};
use core::time::Duration;
use std::io;

fn shared(bytes: usize) -> *mut libc::c_void {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, wherever the host likes.
    let at = unsafe { libc::mmap(ptr::null_mut(), bytes, rights, kind, -1, 0) };
    assert!(at != libc::MAP_FAILED, "no memory to share: {}", io::Error::last_os_error());
    at
}

/// So many words, all 0, that this process and all processes that it will fork see.
pub(crate) fn shared_words(count: usize) -> &'static [AtomicU64] {
    let at = shared(count * size_of::<AtomicU64>()).cast();
    // SAFETY: mapped for ever, so large, page-aligned, zero; any word is a value of the type.
    unsafe { core::slice::from_raw_parts(at, count) }
}

/// So many bytes, likewise.
pub(crate) fn shared_bytes(count: usize) -> &'static [AtomicU8] {
    let at = shared(count).cast();
    // SAFETY: mapped for ever, so large; any byte is a value of the type.
    unsafe { core::slice::from_raw_parts(at, count) }
}

/// Which of the two processes goes on after a fork.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// The new one.
    Child,
    /// The one that forked; the number is the child's.
    Parent(libc::pid_t),
}

/// Becomes two processes.
pub(crate) fn fork() -> Side {
    // SAFETY: one thread (H1).
    match unsafe { libc::fork() } {
        0 => Side::Child,
        child if child > 0 => Side::Parent(child),
        _ => panic!("the host forks no more: {}", io::Error::last_os_error()),
    }
}

/// How a child ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// It left.
    Left,
    /// By this signal.
    Signal(c_int),
}

fn ended(status: c_int) -> Ended {
    match libc::WIFSIGNALED(status) {
        true => Ended::Signal(libc::WTERMSIG(status)),
        false => Ended::Left,
    }
}

/// Waits for a child's end.
pub(crate) fn wait(child: libc::pid_t) -> Ended {
    let mut status = 0;
    // SAFETY: the status is this function's.
    while unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {}
    ended(status)
}

/// How a child ended, if it did.
pub(crate) fn has_ended(child: libc::pid_t) -> Option<Ended> {
    let mut status = 0;
    // SAFETY: the status is this function's.
    let got = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
    (got == child).then(|| ended(status))
}

/// Ends this process, and nothing else.
pub(crate) fn leave() -> ! {
    // SAFETY: nothing is run, nothing is flushed (H2).
    unsafe { libc::_exit(0) }
}

/// Ends this process by a signal where it works for so long without another call.
pub(crate) fn limit(time: Duration) {
    let zero = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let value = libc::timeval { tv_sec: time.as_secs() as libc::time_t, tv_usec: 0 };
    let timer = libc::itimerval { it_interval: zero, it_value: value };
    // SAFETY: the timer is this function's; the old one is not asked for.
    unsafe { libc::setitimer(libc::ITIMER_PROF, &raw const timer, ptr::null_mut()) };
}
