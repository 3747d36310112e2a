//! The fault plan: which allocations of the manager fail.
//!
//! The manager asks before each allocation (`Witness::refusal`); the plan counts the questions and
//! says no where it was told to. Failing the k-th for every k visits every allocation site.
//!
//! **Locking**: none, relaxed atomics. In free mode the k-th question may be any CPU's.

use crate::rng::Rng;
use core::sync::atomic::{AtomicU64, Ordering};
use foliant_machine::Refusal;

/// Which allocations fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failing {
    /// None of them, and they are not counted, so that CPUs do not meet at the counter.
    Nothing,
    /// None of them, but they are counted: how many there are to fail.
    Count,
    /// The one with this number, counted from 1 since the plan was set.
    Kth(u64),
    /// The one with this number and all after it.
    From(u64),
    /// One in so many, drawn from the seed.
    OneIn {
        /// How many allocations there are for each failure.
        every: u32,
        /// The seed of the draw.
        seed: u64,
    },
}

/// Counts allocations and fails those that it was told to.
#[derive(Debug, Default)]
pub struct FaultPlan {
    kind: AtomicU64,
    value: AtomicU64,
    seed: AtomicU64,
    seen: AtomicU64,
    refused: AtomicU64,
}

impl FaultPlan {
    /// Sets the plan and starts counting anew.
    pub fn set(&self, failing: Failing) {
        let (kind, value, seed) = match failing {
            Failing::Nothing => (0, 0, 0),
            Failing::Count => (4, 0, 0),
            Failing::Kth(k) => (1, k, 0),
            Failing::From(k) => (2, k, 0),
            Failing::OneIn { every, seed } => (3, u64::from(every), seed),
        };
        self.kind.store(0, Ordering::Relaxed);
        self.value.store(value, Ordering::Relaxed);
        self.seed.store(seed, Ordering::Relaxed);
        self.seen.store(0, Ordering::Relaxed);
        self.refused.store(0, Ordering::Relaxed);
        self.kind.store(kind, Ordering::Relaxed);
    }

    /// Allocations asked about since the plan was set; not counted under [`Failing::Nothing`].
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// How many of them were refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// The answer to the next allocation.
    pub fn ask(&self) -> Refusal {
        if self.kind.load(Ordering::Relaxed) == 0 {
            return Refusal::Permit;
        }
        let number = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        let value = self.value.load(Ordering::Relaxed);
        let fails = match self.kind.load(Ordering::Relaxed) {
            1 => number == value,
            2 => number >= value,
            3 => Rng::new(self.seed.load(Ordering::Relaxed), number).once_in(value as u32),
            _ => false,
        };
        if fails {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Refusal::Refuse;
        }
        Refusal::Permit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(failing: Failing, n: usize) -> Vec<usize> {
        let plan = FaultPlan::default();
        plan.set(failing);
        (1..=n).filter(|_| plan.ask() == Refusal::Refuse).map(|_| plan.seen() as usize).collect()
    }

    #[test]
    fn the_plan_fails_what_it_was_told_to() {
        assert_eq!(answers(Failing::Nothing, 5), [0; 0]);
        assert_eq!(answers(Failing::Count, 5), [0; 0]);
        assert_eq!(answers(Failing::Kth(3), 5), [3]);
        assert_eq!(answers(Failing::From(3), 5), [3, 4, 5]);
        let some = answers(Failing::OneIn { every: 4, seed: 7 }, 1000);
        assert!((150..350).contains(&some.len()), "{}", some.len());
        assert_eq!(some, answers(Failing::OneIn { every: 4, seed: 7 }, 1000));
    }
}
