//! What a CPU runs for a program in ring 3, and why the program stopped.

use core::cell::Cell;
use core::fmt;
use foliant::fault::{Access, Outcome};
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

/// The vector in the frame of a program's call.
pub(crate) const CALL: u64 = 0x100;

/// Who made an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Origin {
    /// Ring 3.
    Program,
    /// A copy of the kernel's (`reach`).
    Kernel,
}

/// A program that answers for itself.
pub(crate) trait Program {
    /// Sees to it that an access of the user half can be made again; false where it cannot. The
    /// program keeps why.
    fn fault(&self, va: Va, access: Access, origin: Origin) -> bool;
}

/// What a CPU runs for its user program. Its own CPU alone reads and writes it.
pub(crate) struct Running {
    pub(crate) space: Cell<Option<SpaceId>>,
    program: Cell<Option<&'static dyn Program>>,
    pub(crate) stopped: Cell<Option<Stop>>,
}

impl Running {
    pub(crate) const fn new() -> Running {
        Running { space: Cell::new(None), program: Cell::new(None), stopped: Cell::new(None) }
    }
    /// The program that answers for itself, if one runs.
    pub(crate) fn program(&self) -> Option<&'static dyn Program> {
        self.program.get()
    }
    /// Says which program runs here from now on.
    pub(crate) fn set_program(&self, program: Option<&'static dyn Program>) {
        self.program.set(program);
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
        | Outcome::UserfaultPresent(_)
        | Outcome::Refused(_)
        | Outcome::NoHugePage(_)
        | Outcome::OutOfMemory
        | Outcome::OverLimit => false,
    }
}
