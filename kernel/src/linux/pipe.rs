//! Pipes: bytes from those that write to those that read.
//!
//! ```text
//!   Pipe ──open──▶ End: reads, writes, or both; counted until it is dropped
//! ```
//!
//! **Invariants**
//! - I1. What is written by one call of at most [`ATOMIC`] bytes comes in one piece.
//! - I2. A read of an empty pipe ends when nobody can write any more; a write when nobody reads.
//!
//! **Locking**: one lock for the bytes and the counts; waiters are woken without it.

use super::channel::{Channel, Waits};
use super::events::Events;
use super::queue::Queue;
use super::transfer::Transfer;
use super::user;
use super::waiters::Waiters;
use alloc::sync::Arc;
use foliant_linux::Errno;
use linux_raw_sys::errno::EPIPE;
use linux_raw_sys::general::{O_ACCMODE, O_RDONLY, O_WRONLY};
use linux_raw_sys::ioctl::FIONREAD;
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

struct Inside {
    bytes: Queue,
    readers: usize,
    writers: usize,
    /// Somebody has written: only then is there nobody to write any more.
    had_writer: bool,
}

/// An end of a pipe.
pub(super) struct End {
    pipe: Arc<Pipe>,
    reads: bool,
    writes: bool,
}

impl Pipe {
    pub(super) fn new() -> Arc<Pipe> {
        let inside = Inside { bytes: Queue::of(ROOM), readers: 0, writers: 0, had_writer: false };
        Arc::new(Pipe { inside: Mutex::new(inside), waiting: Waiters::new() })
    }
}

impl End {
    fn of(pipe: Arc<Pipe>, flags: u32) -> Arc<End> {
        let way = flags & O_ACCMODE;
        let end = End { reads: way != O_WRONLY, writes: way != O_RDONLY, pipe };
        {
            let mut inside = end.pipe.inside.lock();
            inside.readers += usize::from(end.reads);
            inside.writers += usize::from(end.writes);
            inside.had_writer |= end.writes;
        }
        end.pipe.waiting.wake();
        Arc::new(end)
    }
}

impl Drop for End {
    fn drop(&mut self) {
        {
            let mut inside = self.pipe.inside.lock();
            inside.readers -= usize::from(self.reads);
            inside.writers -= usize::from(self.writes);
        }
        self.pipe.waiting.wake();
    }
}

/// A pipe that is opened by its name.
impl Channel for Pipe {
    fn open(self: Arc<Pipe>, flags: u32) -> Result<Arc<dyn Channel>, Errno> {
        Ok(End::of(self, flags))
    }
}

impl Channel for End {
    fn read(&self, into: &mut Transfer, waits: Waits) -> Result<usize, Errno> {
        if into.left() == 0 {
            return Ok(0);
        }
        let take = || {
            let mut inside = self.pipe.inside.lock();
            let is_over = inside.bytes.is_empty() && inside.writers == 0; // I2
            match inside.bytes.is_empty() {
                true => is_over.then_some(Ok(0)),
                false => Some(inside.bytes.take(into)),
            }
        };
        let found = waits.get(&self.pipe.waiting, take).flatten()?;
        if found > 0 {
            self.pipe.waiting.wake_for(Events::OUT);
        }
        Ok(found)
    }
    fn write(&self, from: &mut Transfer, waits: Waits) -> Result<usize, Errno> {
        let may_split = from.left() > ATOMIC;
        from.hand_on::<ATOMIC>(|piece| self.put(piece, may_split, waits))
    }
    fn events(&self) -> Events {
        let inside = self.pipe.inside.lock();
        let mut events = Events::NONE;
        if self.reads {
            let is_over = inside.writers == 0 && inside.had_writer;
            events = Events::IN.when(!inside.bytes.is_empty()) | Events::HANGUP.when(is_over);
        }
        if self.writes {
            let has_room = inside.bytes.room() >= ATOMIC;
            events = events | Events::OUT.when(has_room) | Events::ERROR.when(inside.readers == 0);
        }
        events
    }
    fn waiters(&self) -> &Waiters {
        &self.pipe.waiting
    }
    fn ioctl(&self, request: u32, at: u64) -> Result<u64, Errno> {
        match request {
            FIONREAD => {
                let count = self.pipe.inside.lock().bytes.len() as u32;
                user::put(at, &count).map(|()| 0)
            }
            _ => Err(Errno(linux_raw_sys::errno::ENOTTY)),
        }
    }
}

impl End {
    /// Waits for room, and puts bytes there: all of them, or some where they may come apart.
    fn put(&self, bytes: &[u8], may_split: bool, waits: Waits) -> Result<usize, Errno> {
        let put = || {
            let mut inside = self.pipe.inside.lock();
            if inside.readers == 0 {
                return Some(Err(Errno(EPIPE)));
            }
            let room = inside.bytes.room();
            let fits = room >= bytes.len() || may_split && room > 0; // I1
            fits.then(|| inside.bytes.push(bytes))
        };
        let put = waits.get(&self.pipe.waiting, put).flatten()?;
        self.pipe.waiting.wake_for(Events::IN);
        Ok(put)
    }
}
