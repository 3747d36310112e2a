//! What a thread had of CPUs, and what it wishes for.
//!
//! **Invariants**
//! - V1. The CPU that runs a thread alone begins and ends its turns; others read, and are told a
//!   moment's truth.

use super::clock;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};

/// What it had.
pub(super) struct Turns {
    /// Nanoseconds of the turns that are over.
    spent: AtomicU64,
    /// When the one that is not began; 0 where there is none.
    since: AtomicU64,
    /// Turns that it ended itself, and those that another one's coming ended.
    waits: AtomicU64,
    cut: AtomicU64,
}

impl Turns {
    pub(super) const fn new() -> Turns {
        Turns {
            spent: AtomicU64::new(0),
            since: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            cut: AtomicU64::new(0),
        }
    }
    /// A turn begins.
    pub(super) fn begin(&self) {
        self.since.store(clock::uptime(), Ordering::Relaxed);
    }
    /// It is over, and was cut short or was not.
    pub(super) fn end(&self, is_cut: bool) {
        let spent = clock::uptime().saturating_sub(self.since.swap(0, Ordering::Relaxed));
        self.spent.fetch_add(spent, Ordering::Relaxed);
        let count = if is_cut { &self.cut } else { &self.waits };
        count.fetch_add(1, Ordering::Relaxed);
    }
    /// Nanoseconds on CPUs.
    pub(super) fn time(&self) -> u64 {
        let now = match self.since.load(Ordering::Relaxed) {
            0 => 0,
            since => clock::uptime().saturating_sub(since),
        };
        self.spent.load(Ordering::Relaxed) + now
    }
    /// How often it waited, and how often its turn was cut short.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.waits.load(Ordering::Relaxed), self.cut.load(Ordering::Relaxed))
    }
}

/// What it wishes for.
pub(super) struct Wishes {
    /// CPUs that may run it, a bit each.
    pub(super) allowed: AtomicU64,
    /// How nice it is to others, from -20 to 19. All get the same turns.
    pub(super) nice: AtomicI32,
    /// `SCHED_OTHER`, `SCHED_BATCH` or `SCHED_IDLE`, which are one here.
    pub(super) policy: AtomicI32,
}

impl Wishes {
    pub(super) const fn new() -> Wishes {
        let (nice, policy) = (AtomicI32::new(0), AtomicI32::new(0));
        Wishes { allowed: AtomicU64::new(u64::MAX), nice, policy }
    }
    /// Takes over what another one wishes.
    pub(super) fn take_from(&self, other: &Wishes) {
        self.allowed.store(other.allowed.load(Ordering::Relaxed), Ordering::Relaxed);
        self.nice.store(other.nice.load(Ordering::Relaxed), Ordering::Relaxed);
        self.policy.store(other.policy.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
