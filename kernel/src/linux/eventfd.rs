//! Counters that are descriptors: a write adds, a read waits for more than nothing and takes it.

use super::channel::{Channel, Waits};
use super::events::Events;
use super::transfer::Transfer;
use super::waiters::Waiters;
use alloc::string::String;
use alloc::sync::Arc;
use foliant_linux::Errno;
use linux_raw_sys::errno::EINVAL;
use spin::Mutex;

/// The most that it counts to.
const MOST: u64 = u64::MAX - 1;
const SIZE: usize = size_of::<u64>();

/// What a read takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Takes {
    All,
    One,
}

/// A counter.
pub(super) struct EventFile {
    count: Mutex<u64>,
    takes: Takes,
    waiting: Waiters,
}

impl EventFile {
    pub(super) fn new(count: u64, takes: Takes) -> Arc<EventFile> {
        Arc::new(EventFile { count: Mutex::new(count), takes, waiting: Waiters::new() })
    }
}

impl Channel for EventFile {
    fn read(&self, into: &mut Transfer, waits: Waits) -> Result<usize, Errno> {
        if into.left() < SIZE {
            return Err(Errno(EINVAL));
        }
        let take = || {
            let mut count = self.count.lock();
            let taken = if self.takes == Takes::One { (*count).min(1) } else { *count };
            *count -= taken;
            (taken > 0).then_some(taken)
        };
        let taken = waits.get(&self.waiting, take)?;
        self.waiting.wake_for(Events::OUT);
        into.put_all(&taken.to_le_bytes())
    }
    fn write(&self, from: &mut Transfer, waits: Waits) -> Result<usize, Errno> {
        let mut bytes = [0; SIZE];
        if from.left() < SIZE {
            return Err(Errno(EINVAL));
        }
        if from.take(&mut bytes) < SIZE {
            return Err(Errno::FAULT);
        }
        let more = u64::from_le_bytes(bytes);
        if more > MOST {
            return Err(Errno(EINVAL));
        }
        let add = || {
            let mut count = self.count.lock();
            let fits = MOST - *count >= more;
            *count += if fits { more } else { 0 };
            fits.then_some(())
        };
        waits.get(&self.waiting, add)?;
        self.waiting.wake_for(Events::IN);
        Ok(SIZE)
    }
    fn events(&self) -> Events {
        let count = *self.count.lock();
        Events::IN.when(count > 0) | Events::OUT.when(count < MOST)
    }
    fn waiters(&self) -> &Waiters {
        &self.waiting
    }
    fn label(&self, _: u64) -> String {
        String::from("anon_inode:[eventfd]")
    }
}
