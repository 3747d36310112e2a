//! Grace periods: waiting until every reader that began earlier has finished.
//!
//! ```text
//!   periods      ├── n ──┤├── n+1 ──┤            one at a time: `begun` is n or n+1, `done` the last one that is over
//!   a waiter         ▲ wants the next that begins: n+1, drives it if nobody is at it, or rides along
//!   others           ▲ ▲ ▲ want n+1 as well, and none of their own
//! ```
//!
//! **Invariants**
//! - C1. A period that begins after a call outlasts every section that began before the call. So a
//!   waiter needs the next one, `begun + 1`, whichever waiter drives it; however many wait, there
//!   are no periods but the one at work and the next.
//! - C2. `begun` is `done`, or one more while a waiter drives. Only the driver turns the phase.
//!
//! **Locking**: none. A waiter that rides along spins. The driver waits for readers only, and
//! readers wait for nobody that waits for readers: what they may wait for says `fault`.

use super::{AtomicU64, Critical, Inside, Ordering, add_own, fence};
use core::fmt;
use foliant_machine::Cpus;
use foliant_units::Cpu;

/// The counters of one CPU: entries and exits in each of two phases. One cache line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct GraceSlot {
    entered: [AtomicU64; 2],
    left: [AtomicU64; 2],
}

/// Readers enter and leave with one addition each on their own CPU's line; a waiter sums over all.
///
/// Entering and leaving may happen on different CPUs. There are two phases because a reader may
/// have read the phase and not yet counted itself when a waiter turns it: the second turn waits for
/// such a reader.
#[derive(Debug, Default)]
pub struct Grace {
    phase: AtomicU64,
    begun: AtomicU64,
    done: AtomicU64,
}

/// A reader's section; it ends when dropped.
#[must_use]
pub struct Reading<'a, C: Cpus, S: Fn(Cpu) -> &'a GraceSlot> {
    cpus: &'a C,
    slot_of: S,
    phase: usize,
    _inside: Inside,
}

impl Grace {
    /// Begins a reader's section, counted in the slot of the CPU that it begins on, and then in
    /// that of the one that it ends on.
    #[inline]
    pub fn enter<'a, C: Cpus, S: Fn(Cpu) -> &'a GraceSlot>(
        &self,
        cpus: &'a C,
        slot_of: S,
    ) -> Reading<'a, C, S> {
        let phase = (self.phase.load(Ordering::Relaxed) & 1) as usize;
        cpus.pinned(|cpu| add_own(cpus, &slot_of(cpu).entered[phase], 1));
        fence(Ordering::SeqCst);
        Reading { cpus, slot_of, phase, _inside: Inside::enter(Critical::Section) }
    }

    /// Returns when every section that began before the call has ended. The caller is in none
    /// itself. Says how many periods it drove.
    pub fn wait<'a, I: Iterator<Item = &'a GraceSlot>>(
        &self,
        cpus: &impl Cpus,
        slots: impl Fn() -> I,
    ) -> u64 {
        fence(Ordering::SeqCst);
        let wanted = self.begun.load(Ordering::SeqCst) + 1; // C1
        let mut driven = 0;
        loop {
            let done = self.done.load(Ordering::SeqCst);
            if done >= wanted {
                break;
            }
            let next = done + 1;
            let drives =
                self.begun.compare_exchange(done, next, Ordering::SeqCst, Ordering::Relaxed);
            if drives.is_ok() {
                self.drive(cpus, &slots);
                self.done.store(next, Ordering::SeqCst);
                driven += 1;
            } else {
                cpus.relax();
            }
        }
        fence(Ordering::SeqCst);
        driven
    }

    /// Drives one period; nobody else drives one meanwhile (C2).
    fn drive<'a, I: Iterator<Item = &'a GraceSlot>>(
        &self,
        cpus: &impl Cpus,
        slots: &impl Fn() -> I,
    ) {
        fence(Ordering::SeqCst);
        for _ in 0..2 {
            let old = (self.phase.fetch_add(1, Ordering::SeqCst) & 1) as usize;
            let sum = |count: fn(&GraceSlot) -> &[AtomicU64; 2]| {
                slots().map(|s| count(s)[old].load(Ordering::SeqCst)).fold(0, u64::wrapping_add)
            };
            // Exits are summed first: a section counted in `entered` below cannot hide behind a
            // later exit.
            loop {
                let left = sum(|s| &s.left);
                fence(Ordering::SeqCst);
                if left == sum(|s| &s.entered) {
                    break;
                }
                cpus.relax();
            }
        }
    }
}

impl<'a, C: Cpus, S: Fn(Cpu) -> &'a GraceSlot> Drop for Reading<'a, C, S> {
    #[inline]
    fn drop(&mut self) {
        let Reading { cpus, slot_of, phase, .. } = self;
        // A release: a waiter that counts this exit sees the entry, and that the reads are over.
        cpus.pinned(|cpu| add_own(*cpus, &slot_of(cpu).left[*phase], 1));
    }
}

impl<'a, C: Cpus, S: Fn(Cpu) -> &'a GraceSlot> fmt::Debug for Reading<'a, C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reading(phase {})", self.phase)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use foliant_units::Cpu;
    use std::thread;

    /// A CPU of its own for each thread: it notes that it has begun to wait, and lets the others
    /// run.
    struct Waits<'a>(&'a AtomicU64, core::cell::Cell<u64>);

    impl Cpus for Waits<'_> {
        fn me(&self) -> Cpu {
            Cpu(0)
        }
        fn count(&self) -> usize {
            1
        }
        fn pinned<R>(&self, work: impl FnOnce(Cpu) -> R) -> R {
            work(Cpu(0))
        }
        fn relax(&self) {
            if self.1.replace(1) == 0 {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
            thread::yield_now();
        }
    }

    /// Without sharing, each of many waiters would have two phases turned for itself.
    #[test]
    fn finding_r1_many_waiters_share_two_periods() {
        const WAITERS: u64 = 8;
        let (grace, slot, waiting) = (Grace::default(), GraceSlot::default(), AtomicU64::default());
        let me = Waits(&waiting, core::cell::Cell::new(1));
        let reading = grace.enter(&me, |_| &slot);
        thread::scope(|scope| {
            for _ in 0..WAITERS {
                scope.spawn(|| {
                    let me = Waits(&waiting, core::cell::Cell::new(0));
                    grace.wait(&me, || core::iter::once(&slot));
                });
            }
            while waiting.load(Ordering::SeqCst) < WAITERS {
                thread::yield_now();
            }
            drop(reading);
        });
        let phases = grace.phase.load(Ordering::SeqCst);
        assert!((2..=4).contains(&phases), "{WAITERS} waiters turned {phases} phases");
    }

    /// A period that is at work when a call comes may have looked past a section that began before
    /// the call.
    #[test]
    fn a_period_at_work_is_not_enough() {
        let (grace, slot) = (Grace::default(), GraceSlot::default());
        grace.begun.store(1, Ordering::SeqCst);
        let waiting = AtomicU64::default();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let me = Waits(&waiting, core::cell::Cell::new(0));
                grace.wait(&me, || core::iter::once(&slot))
            });
            while waiting.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            grace.done.store(1, Ordering::SeqCst);
            assert_eq!(waiter.join().unwrap(), 1, "it drove the next one");
        });
        assert_eq!(grace.done.load(Ordering::SeqCst), 2);
    }

    /// A reader may have read the phase before a period and count itself behind it: a later call
    /// waits for it in whichever phase it counts.
    #[test]
    fn a_section_is_waited_for_in_either_phase() {
        for phase in [0, 1] {
            let (grace, slot) = (Grace::default(), GraceSlot::default());
            slot.entered[phase].fetch_add(1, Ordering::SeqCst);
            let waiting = AtomicU64::default();
            let cpus = &Waits(&waiting, core::cell::Cell::new(1));
            let _inside = Inside::enter(Critical::Section);
            let reading = Reading { cpus, slot_of: |_| &slot, phase, _inside };
            thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    let me = Waits(&waiting, core::cell::Cell::new(0));
                    grace.wait(&me, || core::iter::once(&slot));
                });
                while waiting.load(Ordering::SeqCst) == 0 {
                    assert!(!waiter.is_finished(), "nobody waited for phase {phase}");
                    thread::yield_now();
                }
                drop(reading);
            });
        }
    }
}
