//! How long an operation goes on before others run.
//!
//! The writer's lock is patient: its holder may yield. Every loop over what a program has in a
//! range of its tables counts its steps here, so the holder yields after a bounded number of
//! entries, with nothing pending (a fault on the same CPU may wait for that) and no table locked.
//! What is done in the place of one huge page counts none: `clear_way` takes out 513 empty tables
//! at most, the collapse one full table.

use crate::flush::Gather;
use crate::sync::Outside;
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::Level;

/// Entries that are worked on before others run: 32 tables full.
const MOST: u64 = 32 * Level::ENTRIES as u64;

/// Entries worked on since others ran.
pub(crate) struct Steps {
    outside: Outside,
    taken: u64,
}

impl Steps {
    /// How many steps it counts to make, fill or empty one table.
    pub(super) const TABLE: u64 = Level::ENTRIES as u64;

    /// The steps of one call of the face, and of that call alone (sync::outside::O1).
    pub(crate) const fn at_the_face() -> Self {
        Steps { outside: Outside::at_the_face(), taken: 0 }
    }
    /// What a wait for the writer's lock needs.
    pub(crate) const fn outside(&mut self) -> &mut Outside {
        &mut self.outside
    }

    /// Counts `steps`, and lets others run where it is time. The caller holds nothing but the
    /// writer's lock, and has nothing pending.
    pub(super) fn take(&mut self, machine: &impl Machine, steps: u64) {
        self.taken += steps;
        if self.taken >= MOST {
            self.taken = 0;
            self.outside.yield_now(machine);
        }
    }
    /// Does what [`take`](Steps::take) does, and flushes what is pending in `gather` before others
    /// run. What is deferred waits (flush::F7).
    pub(super) fn take_flushed<M: Machine, P: Paging>(
        &mut self,
        gather: &mut Gather<'_, '_, M, P>,
        machine: &M,
        steps: u64,
    ) {
        if self.taken + steps >= MOST {
            gather.shoot();
        }
        self.take(machine, steps);
    }
}
