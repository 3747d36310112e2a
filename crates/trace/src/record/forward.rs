//! Passing signals on to the recorded program.
//!
//! Ctrl-C at a terminal reaches the program itself, which is in the same process group; the
//! recorder only must not die of it, or the recording would be lost. A signal that was sent to the
//! recorder alone is sent on. The third one of a kind kills the program, should it not want to end.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

static PROGRAM: AtomicI32 = AtomicI32::new(0);
static COUNT: AtomicU32 = AtomicU32::new(0);
const SIGNALS: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];
/// The `si_code` of a signal that the kernel made, such as the terminal's.
const FROM_KERNEL: i32 = 0x80;

/// While this lives, signals go to the program.
pub(crate) struct Forwarding {
    _handlers: Handlers,
}

extern "C" fn forward(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let program = PROGRAM.load(Ordering::Relaxed);
    if program <= 0 {
        return;
    }
    // SAFETY: the kernel hands a handler installed with SA_SIGINFO a live siginfo.
    let from_kernel = unsafe { (*info).si_code } == FROM_KERNEL;
    let signal = match COUNT.fetch_add(1, Ordering::Relaxed) {
        0 | 1 if from_kernel => return,
        0 | 1 => signal,
        _ => libc::SIGKILL,
    };
    // SAFETY: takes numbers only and may be called in a handler.
    unsafe { libc::kill(program, signal) };
}

impl Forwarding {
    pub(crate) fn to(program: i32) -> Forwarding {
        PROGRAM.store(program, Ordering::Relaxed);
        COUNT.store(0, Ordering::Relaxed);
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = forward;
        let flags = libc::SA_SIGINFO | libc::SA_RESTART;
        Forwarding { _handlers: Handlers::set(handler as libc::sighandler_t, flags) }
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        PROGRAM.store(0, Ordering::Relaxed); // a handler that is still there sends nothing
    }
}

static WANTED: AtomicBool = AtomicBool::new(false);

/// While this lives, a signal that asks this process to end only says so here: a recording of
/// processes that go on ends whole.
pub(crate) struct Stopping {
    _handlers: Handlers,
}

extern "C" fn stop(_: i32) {
    WANTED.store(true, Ordering::Relaxed);
}

impl Stopping {
    pub(crate) fn new() -> Stopping {
        WANTED.store(false, Ordering::Relaxed);
        let handler: extern "C" fn(i32) = stop;
        Stopping { _handlers: Handlers::set(handler as libc::sighandler_t, libc::SA_RESTART) }
    }

    /// Whether one has come.
    pub(crate) fn is_wanted() -> bool {
        WANTED.load(Ordering::Relaxed)
    }
}

/// Handlers of the signals that ask a program to end; gone, those before are back.
struct Handlers(Vec<(i32, libc::sigaction)>);

impl Handlers {
    fn set(handler: libc::sighandler_t, flags: i32) -> Handlers {
        let mut before = Vec::new();
        for signal in SIGNALS {
            // SAFETY: sigaction is plain data for which zeros are a legal value.
            let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
            let mut old = new;
            new.sa_sigaction = handler;
            new.sa_flags = flags;
            // SAFETY: both structs are live, and the handlers of this file only make calls that
            // handlers may make.
            if unsafe { libc::sigaction(signal, &new, &mut old) } == 0 {
                before.push((signal, old));
            }
        }
        Handlers(before)
    }
}

impl Drop for Handlers {
    fn drop(&mut self) {
        for (signal, old) in &self.0 {
            // SAFETY: gives back what was there before.
            unsafe { libc::sigaction(*signal, old, std::ptr::null_mut()) };
        }
    }
}
