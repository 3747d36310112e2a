//! Pipes: bytes from those that write to those that read.
//!
//! **Invariants**
//! - I1. What is written by one call of at most [`ATOMIC`] bytes comes in one piece.
//! - I2. A read of an empty pipe ends when nobody can write any more; a write when nobody reads.

use super::sched::{Cut, Waiters};
use super::signal::CUT;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use foliant_linux::Errno;
use linux_raw_sys::errno::{EAGAIN, EPIPE};
use spin::Mutex;

/// Bytes that a pipe has room for.
const ROOM: usize = 64 << 10;
/// Bytes that come in one piece.
const ATOMIC: usize = 4096;

/// A pipe.
pub(super) struct Pipe {
    inside: Mutex<Inside>,
    /// Who waits for bytes, or for room.
    waiting: Waiters,
}

#[derive(Default)]
struct Inside {
    bytes: VecDeque<u8>,
    readers: usize,
    writers: usize,
}

/// Which end of a pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Reads,
    Writes,
}

/// Whether a call waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waits {
    Yes,
    No,
}

impl Pipe {
    pub(super) fn new() -> Arc<Pipe> {
        Arc::new(Pipe { inside: Mutex::new(Inside::default()), waiting: Waiters::new() })
    }
    /// An end of it was opened.
    pub(super) fn open(&self, end: End) {
        let mut inside = self.inside.lock();
        match end {
            End::Reads => inside.readers += 1,
            End::Writes => inside.writers += 1,
        }
    }
    /// An end of it was closed.
    pub(super) fn close(&self, end: End) {
        {
            let mut inside = self.inside.lock();
            match end {
                End::Reads => inside.readers -= 1,
                End::Writes => inside.writers -= 1,
            }
        }
        self.waiting.wake();
    }

    /// Waits for bytes, and takes those that are there; none at the end.
    pub(super) fn read(&self, into: &mut [u8], waits: Waits) -> Result<usize, Errno> {
        let take = |into: &mut [u8]| {
            let mut inside = self.inside.lock();
            let count = into.len().min(inside.bytes.len());
            for (to, from) in into.iter_mut().zip(inside.bytes.drain(..count)) {
                *to = from;
            }
            (count > 0 || inside.writers == 0).then_some(count)
        };
        let found = match waits {
            Waits::No => take(into).ok_or(Errno(EAGAIN)),
            Waits::Yes => self.waiting.wait(None, || take(into)).map_err(|_: Cut| CUT),
        };
        self.waiting.wake();
        found
    }
    /// Waits for room, and puts bytes there; says how many, which is not all where a signal came.
    pub(super) fn write(&self, bytes: &[u8], waits: Waits) -> Result<usize, Errno> {
        let mut done = 0;
        while done < bytes.len() {
            let left = &bytes[done..];
            let put = || {
                let mut inside = self.inside.lock();
                if inside.readers == 0 {
                    return Some(Err(Errno(EPIPE)));
                }
                let room = ROOM - inside.bytes.len();
                let fits = room >= left.len() || left.len() > ATOMIC && room > 0; // I1
                fits.then(|| {
                    let count = room.min(left.len());
                    inside.bytes.extend(&left[..count]);
                    Ok(count)
                })
            };
            let put = match waits {
                Waits::No => put().unwrap_or(Err(Errno(EAGAIN))),
                Waits::Yes => self.waiting.wait(None, put).unwrap_or(Err(CUT)),
            };
            match put {
                Ok(count) => done += count,
                Err(why) if done == 0 => return Err(why),
                Err(_) => return Ok(done),
            }
            self.waiting.wake();
        }
        Ok(done)
    }
    /// Whether a read, or a write, does not wait; and whether nobody is at the other end.
    pub(super) fn is_ready(&self, end: End) -> (bool, bool) {
        let inside = self.inside.lock();
        match end {
            End::Reads => (!inside.bytes.is_empty(), inside.writers == 0),
            End::Writes => (ROOM - inside.bytes.len() >= ATOMIC, inside.readers == 0),
        }
    }
    /// Bytes that wait.
    pub(super) fn len(&self) -> usize {
        self.inside.lock().bytes.len()
    }
}
