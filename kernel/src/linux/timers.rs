//! Timers that signal: those of `setitimer`, and those that a process makes.
//!
//! **Locking**: one lock for a process's list; timers are set, and let go of, without it.

use super::signal::Info;
use super::timer::{Clock, Expires, Timer};
use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU64, Ordering};
use foliant_linux::Errno;
use linux_raw_sys::errno::EAGAIN;
use spin::Mutex;

/// The numbers of the timers of `setitimer`.
pub(super) const REAL: i32 = -1;
pub(super) const VIRTUAL: i32 = -2;
pub(super) const PROFILE: i32 = -3;
/// Timers that a process makes, at most.
const MOST: usize = 1024;

/// Who is sent a timer's signal.
pub(super) trait Target: Send + Sync {
    /// Whether one of that number waits already.
    fn has(&self, number: u32) -> bool;
    fn tell(&self, info: Info);
}

/// A timer that signals.
pub(super) struct Ticking {
    pub(super) timer: Arc<Timer>,
    target: Weak<dyn Target>,
    /// What is told; none where it only counts.
    info: Option<Info>,
    /// How often its time came while its signal waited.
    overrun: AtomicU64,
    /// The same of the signal before, which was taken.
    before: AtomicU64,
}

impl Ticking {
    pub(super) fn new(target: Weak<dyn Target>, info: Option<Info>, clock: Clock) -> Arc<Ticking> {
        Arc::new_cyclic(|own: &Weak<Ticking>| Ticking {
            timer: Timer::new(own.clone(), clock),
            target,
            info,
            overrun: AtomicU64::new(0),
            before: AtomicU64::new(0),
        })
    }
    /// How often its time came while the last signal of it waited that was taken.
    pub(super) fn overrun(&self) -> u32 {
        let number = self.info.map(|info| info.number as u32);
        let waits = |target: Arc<dyn Target>| number.is_some_and(|number| target.has(number));
        let is_next = self.target.upgrade().is_some_and(waits);
        counted(if is_next { &self.before } else { &self.overrun })
    }
}

/// A count as Linux tells it.
fn counted(count: &AtomicU64) -> u32 {
    count.load(Ordering::Relaxed).min(i32::MAX as u64) as u32
}

impl Expires for Ticking {
    fn expired(&self, times: u64) {
        let (Some(mut info), Some(target)) = (self.info, self.target.upgrade()) else { return };
        if target.has(info.number as u32) {
            self.overrun.fetch_add(times, Ordering::Relaxed);
        } else {
            let before = self.overrun.swap(times - 1, Ordering::Relaxed);
            self.before.store(before, Ordering::Relaxed);
        }
        if info.is_timers() {
            info.set_overrun(counted(&self.overrun));
        }
        target.tell(info);
    }
}

/// Timers of a process, by number.
pub(super) struct Timers(Mutex<BTreeMap<i32, Arc<Ticking>>>);

impl Timers {
    pub(super) const fn new() -> Timers {
        Timers(Mutex::new(BTreeMap::new()))
    }
    pub(super) fn get(&self, number: i32) -> Option<Arc<Ticking>> {
        self.0.lock().get(&number).cloned()
    }
    /// The one of a number; made where it is not there.
    pub(super) fn get_or_make(
        &self,
        number: i32,
        make: impl FnOnce() -> Arc<Ticking>,
    ) -> Arc<Ticking> {
        self.0.lock().entry(number).or_insert_with(make).clone()
    }
    /// Makes one with the lowest number that is free.
    pub(super) fn add(&self, make: impl FnOnce(i32) -> Arc<Ticking>) -> Result<i32, Errno> {
        let mut all = self.0.lock();
        let free = (0..MOST as i32).find(|number| !all.contains_key(number));
        let number = free.ok_or(Errno(EAGAIN))?;
        all.insert(number, make(number));
        Ok(number)
    }
    pub(super) fn take(&self, number: i32) -> Option<Arc<Ticking>> {
        self.0.lock().remove(&number)
    }
    /// Takes those away that a new program does not have: all but those of `setitimer`.
    pub(super) fn clear_made(&self) {
        let made = self.0.lock().split_off(&0);
        drop(made);
    }
    /// Takes all away.
    pub(super) fn clear(&self) {
        let all = core::mem::take(&mut *self.0.lock());
        drop(all);
    }
}
