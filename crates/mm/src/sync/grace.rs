//! Grace periods: waiting until every reader that began earlier has finished.

use super::{AtomicU64, Ordering, Spin, fence};
use foliant_machine::Cpus;

/// The counters of one CPU: entries and exits in each of two phases. One cache line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct GraceSlot {
    entered: [AtomicU64; 2],
    left: [AtomicU64; 2],
}

/// Readers enter and leave with one addition each on their own CPU's line; a waiter sums over all.
///
/// Entering and leaving may happen on different CPUs. Two phases, because a reader may have read the phase
/// and not yet counted itself when a waiter turns it: the second turn waits for such a reader.
#[derive(Debug, Default)]
pub(crate) struct Grace {
    phase: AtomicU64,
    turning: Spin,
}

/// A reader's section; it ends when dropped.
#[must_use]
pub(crate) struct Reading<'a> {
    slot: &'a GraceSlot,
    phase: usize,
}

impl Grace {
    /// Begins a reader's section, counted in the calling CPU's `slot`.
    pub(crate) fn enter<'a>(&self, slot: &'a GraceSlot) -> Reading<'a> {
        let phase = (self.phase.load(Ordering::Relaxed) & 1) as usize;
        slot.entered[phase].fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Reading { slot, phase }
    }

    /// Returns when every section that began before the call has ended. The caller is in none itself.
    pub(crate) fn wait<'a, I: Iterator<Item = &'a GraceSlot>>(
        &self,
        cpus: &impl Cpus,
        slots: impl Fn() -> I,
    ) {
        fence(Ordering::SeqCst);
        let _turning = self.turning.lock(cpus);
        for _ in 0..2 {
            let old = (self.phase.fetch_add(1, Ordering::SeqCst) & 1) as usize;
            let sum = |count: fn(&GraceSlot) -> &[AtomicU64; 2]| {
                slots().map(|s| count(s)[old].load(Ordering::SeqCst)).fold(0, u64::wrapping_add)
            };
            // Exits first: a section counted in `entered` below cannot hide behind a later exit.
            loop {
                let left = sum(|s| &s.left);
                fence(Ordering::SeqCst);
                if left == sum(|s| &s.entered) {
                    break;
                }
                cpus.relax();
            }
        }
        fence(Ordering::SeqCst);
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.slot.left[self.phase].fetch_add(1, Ordering::SeqCst);
    }
}
