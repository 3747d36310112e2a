//! The counts of a subpool (`subpool`), and what is done to a count of a pool.
//!
//! **Not here**: the pool's own counts, which follow (`shelf`).

use crate::stock::Subpool;
use crate::sync::{AtomicU64, Ordering};

pub(super) fn get(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}
pub(super) fn add(word: &AtomicU64, n: u64) {
    word.store(get(word) + n, Ordering::Relaxed);
}
pub(super) fn take(word: &AtomicU64, n: u64) {
    let left = get(word).checked_sub(n).expect("no count of a pool falls below 0 (pool::L1)");
    word.store(left, Ordering::Relaxed);
}

/// What a subpool is to have, in huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubpoolLimits {
    /// At most so many are used or reserved; `u64::MAX`: as many as the pool has.
    pub most: u64,
    /// So many are kept for it: reserved from the start.
    pub least: u64,
}

impl SubpoolLimits {
    /// As many as the pool has, none of them kept.
    pub const NONE: SubpoolLimits = SubpoolLimits { most: u64::MAX, least: 0 };
}

/// The counts of a subpool, in huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubpoolCounters {
    /// What it was made with.
    pub limits: SubpoolLimits,
    /// Pages that are in use or reserved.
    pub used: u64,
}

impl SubpoolCounters {
    /// Pages that are kept for it and reserved for nobody yet.
    pub const fn own(&self) -> u64 {
        self.limits.least.saturating_sub(self.used)
    }
    /// Pages that it may still use or reserve.
    pub const fn room(&self) -> u64 {
        match self.limits.most {
            u64::MAX => u64::MAX,
            most => most.saturating_sub(self.used),
        }
    }
}

/// One subpool of a pool, or none.
///
/// Key: `[l]` the pool's lock held.
#[derive(Default)]
pub(super) struct Portion {
    name: AtomicU64,  // [l] 0: nobody's
    used: AtomicU64,  // [l]
    most: AtomicU64,  // [l]
    least: AtomicU64, // [l]
}

impl Portion {
    pub(super) fn begin(&self, name: Subpool, limits: SubpoolLimits) {
        let SubpoolLimits { most, least } = limits;
        let words = [&self.name, &self.used, &self.most, &self.least];
        for (word, value) in words.into_iter().zip([name.word(), 0, most, least]) {
            word.store(value, Ordering::Relaxed);
        }
    }
    /// Its name goes; its counts stay to be read.
    pub(super) fn end(&self) {
        self.name.store(0, Ordering::Relaxed);
    }
    pub(super) fn is_taken(&self) -> bool {
        get(&self.name) != 0
    }
    /// Whether it is this subpool, which has not ended (subpool::B4).
    pub(super) fn is(&self, of: Subpool) -> bool {
        self.is_taken() && get(&self.name) == of.word()
    }
    /// So many pages more are used. Says how many of them were its own.
    pub(super) fn charge(&self, count: u64) -> u64 {
        let before = self.counters().own();
        add(&self.used, count);
        before - self.counters().own()
    }
    /// So many fewer are. Says how many of them are its own again.
    pub(super) fn uncharge(&self, count: u64) -> u64 {
        let before = self.counters().own();
        take(&self.used, count);
        self.counters().own() - before
    }
    pub(super) fn counters(&self) -> SubpoolCounters {
        let limits = SubpoolLimits { most: get(&self.most), least: get(&self.least) };
        SubpoolCounters { limits, used: get(&self.used) }
    }
}
