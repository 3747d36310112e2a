//! What a CPU runs for a program in ring 3, and why the program stopped.

use core::cell::Cell;
use core::fmt;
use foliant::fault::Outcome;
use foliant::space::SpaceId;
use foliant_units::Va;

/// Why a program did not come to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// A fault that the manager did not serve.
    Fault(Va, Outcome),
    /// An access outside the user half.
    Outside(Va),
    /// An exception of this vector at this instruction.
    Exception(u8, Va),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Fault(va, outcome) => write!(f, "the access of {va} ended with {outcome:?}"),
            Stop::Outside(va) => write!(f, "{va} is not the program's to access"),
            Stop::Exception(vector, va) => write!(f, "exception {vector} at {va}"),
        }
    }
}

/// What a CPU runs for its user program. Its own CPU alone reads and writes it.
pub(crate) struct Running {
    pub(crate) space: Cell<Option<SpaceId>>,
    pub(crate) stopped: Cell<Option<Stop>>,
}

impl Running {
    pub(crate) const fn new() -> Running {
        Running { space: Cell::new(None), stopped: Cell::new(None) }
    }
    pub(crate) fn space(&self) -> Option<SpaceId> {
        self.space.get()
    }
    pub(crate) fn stop(&self, why: Stop) {
        self.stopped.set(Some(why));
    }
}

/// Whether the access can be tried again.
pub(crate) fn is_served(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Mapped(_)
        | Outcome::ZeroPage(_)
        | Outcome::Copied
        | Outcome::Reused
        | Outcome::Spurious => true,
        Outcome::Userfault(_)
        | Outcome::UserfaultWrite(_)
        | Outcome::Refused(_)
        | Outcome::NoHugePage(_)
        | Outcome::OutOfMemory
        | Outcome::OverLimit => false,
    }
}
