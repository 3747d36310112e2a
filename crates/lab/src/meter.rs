//! What happened between two moments: the machine's counts, the manager's events, free frames,
//! ticks.

use crate::{Counts, Stage};
use foliant::Event;

/// A moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    machine: Counts,
    faults: u64,
    tables_made: u64,
    tables_freed: u64,
    free: u64,
    ticks: u64,
}

/// What happened since a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// What was asked of the machine.
    pub(crate) machine: Counts,
    /// Faults handled.
    pub(crate) faults: u64,
    /// Page tables made and kept.
    pub(crate) tables: u64,
    /// Frames that are no longer free.
    pub(crate) frames_used: u64,
    /// Frames that are free again.
    pub(crate) frames_freed: u64,
    /// Ticks gone by.
    pub(crate) ticks: u64,
}

impl Meter {
    pub(crate) fn read<'m, S: Stage<'m>>(stage: &S) -> Meter {
        let manager = stage.manager();
        Meter {
            machine: manager.machine().counts(),
            faults: manager.total(Event::Fault),
            tables_made: manager.total(Event::TableMade),
            tables_freed: manager.total(Event::TableFreed),
            free: manager.memory().free.get(),
            ticks: stage.ticks(),
        }
    }

    /// What happened from here until now.
    pub(crate) fn until_now<'m, S: Stage<'m>>(&self, stage: &S) -> Span {
        // Reading costs ticks as well; they are read first here and last there.
        let ticks = stage.ticks().saturating_sub(self.ticks);
        let now = Meter::read(stage);
        let made = now.tables_made - self.tables_made;
        Span {
            machine: now.machine.since(&self.machine),
            faults: now.faults - self.faults,
            tables: made.saturating_sub(now.tables_freed - self.tables_freed),
            frames_used: self.free.saturating_sub(now.free),
            frames_freed: now.free.saturating_sub(self.free),
            ticks,
        }
    }
}
