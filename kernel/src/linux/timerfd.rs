//! Timers that are descriptors: a read waits for their time, and says how often it came.

use super::channel::{Channel, Waits};
use super::events::Events;
use super::timer::{Clock, Expires, Setting, Timer};
use super::transfer::Transfer;
use super::waiters::Waiters;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU64, Ordering};
use foliant_linux::Errno;
use linux_raw_sys::errno::EINVAL;

/// A timer that is a descriptor.
pub(super) struct TimerFile {
    pub(super) timer: Arc<Timer>,
    /// How often its time came since that was read.
    came: AtomicU64,
    waiting: Waiters,
}

impl TimerFile {
    pub(super) fn new(clock: Clock) -> Arc<TimerFile> {
        Arc::new_cyclic(|own: &Weak<TimerFile>| TimerFile {
            timer: Timer::new(own.clone(), clock),
            came: AtomicU64::new(0),
            waiting: Waiters::new(),
        })
    }
    /// Sets it, and forgets how often its time came; says what it was set to.
    pub(super) fn set(&self, to: Setting) -> Setting {
        let before = self.timer.set(Setting::default());
        self.came.store(0, Ordering::Release);
        self.timer.set(to);
        before
    }
}

impl Expires for TimerFile {
    fn expired(&self, times: u64) {
        self.came.fetch_add(times, Ordering::AcqRel);
        self.waiting.wake_for(Events::IN);
    }
}

impl Channel for TimerFile {
    fn read(&self, into: &mut Transfer, waits: Waits) -> Result<usize, Errno> {
        if into.left() < size_of::<u64>() {
            return Err(Errno(EINVAL));
        }
        let take = || Some(self.came.swap(0, Ordering::AcqRel)).filter(|came| *came > 0);
        let came = waits.get(&self.waiting, take)?;
        into.put_all(&came.to_le_bytes())
    }
    fn events(&self) -> Events {
        Events::IN.when(self.came.load(Ordering::Acquire) > 0)
    }
    fn waiters(&self) -> &Waiters {
        &self.waiting
    }
    fn label(&self, _: u64) -> String {
        String::from("anon_inode:[timerfd]")
    }
}
