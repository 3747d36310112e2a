//! What a command took, for the end of its line.

use crate::memory::{counted, manager};
use core::fmt;
use foliant::Event;
use foliant_lab::Counts;

/// A moment.
pub(super) struct Spent {
    machine: Counts,
    made: u64,
    freed: u64,
    free: u64,
}

impl Spent {
    pub(super) fn begin() -> Spent {
        Spent {
            machine: counted().counts(),
            made: manager().total(Event::TableMade),
            freed: manager().total(Event::TableFreed),
            free: manager().memory().free.get(),
        }
    }
}

/// What was counted from that moment on, of which there was any: `; 2 pages freed, 1 shootdown`.
impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = Spent::begin();
        let machine = now.machine.since(&self.machine);
        let counts = [
            (self.free.saturating_sub(now.free), "page taken", "pages taken"),
            (now.free.saturating_sub(self.free), "page freed", "pages freed"),
            (now.made - self.made, "table made", "tables made"),
            (now.freed - self.freed, "table freed", "tables freed"),
            (machine.copied_bytes >> 12, "page copied", "pages copied"),
            (machine.entries_written, "entry written", "entries written"),
            (machine.shootdowns, "shootdown", "shootdowns"),
        ];
        let mut between = "; ";
        for (count, one, many) in counts.into_iter().filter(|(count, ..)| *count > 0) {
            write!(f, "{between}{count} {}", if count == 1 { one } else { many })?;
            between = ", ";
        }
        Ok(())
    }
}
