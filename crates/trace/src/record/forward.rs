//! Passing signals on to the recorded program.
//!
//! Ctrl-C at a terminal reaches the program itself, which is in the same process group; the
//! recorder only must not die of it, or the recording would be lost. A signal that was sent to the
//! recorder alone is sent on. The third one of a kind kills the program, should it not want to end.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

static PROGRAM: AtomicI32 = AtomicI32::new(0);
static COUNT: AtomicU32 = AtomicU32::new(0);
const SIGNALS: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];
/// The `si_code` of a signal that the kernel made, such as the terminal's.
const FROM_KERNEL: i32 = 0x80;

/// While this lives, signals go to the program.
pub(crate) struct Forwarding {
    before: Vec<(i32, libc::sigaction)>,
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
        let mut before = Vec::new();
        for signal in SIGNALS {
            // SAFETY: sigaction is plain data for which zeros are a legal value.
            let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
            let mut old = new;
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = forward;
            new.sa_sigaction = handler as libc::sighandler_t;
            new.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            // SAFETY: both structs are live, and the handler only makes calls that handlers may
            // make.
            if unsafe { libc::sigaction(signal, &new, &mut old) } == 0 {
                before.push((signal, old));
            }
        }
        Forwarding { before }
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        for (signal, old) in &self.before {
            // SAFETY: gives back what was there before.
            unsafe { libc::sigaction(*signal, old, std::ptr::null_mut()) };
        }
        PROGRAM.store(0, Ordering::Relaxed);
    }
}
