//! What `prctl` switches of a process's memory.

use foliant::fault::ProcessSwitch;
use foliant::space::Flags;
use linux_raw_sys::prctl::PR_MDWE_NO_INHERIT;

/// What `prctl` set of a process's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Switches {
    pub(crate) folios: ProcessSwitch,
    /// `PR_MDWE_REFUSE_EXEC_GAIN`, `PR_MDWE_NO_INHERIT`.
    pub(crate) mdwe: u32,
}

impl Switches {
    /// Those of a process of which nothing was asked.
    pub(crate) const NONE: Switches = Switches { folios: ProcessSwitch::On, mdwe: 0 };

    /// Those of a child, or of the next program.
    pub(crate) fn inherited(self) -> Switches {
        let mdwe = if self.mdwe & PR_MDWE_NO_INHERIT != 0 { 0 } else { self.mdwe };
        Switches { mdwe, ..self }
    }
    /// Whether memory with the rights `old` may not have the rights `new`: it may not be written
    /// and executed, nor be executed where it could not be.
    pub(crate) fn refuse(self, old: Flags, new: Flags) -> bool {
        let gains = new.has(Flags::WRITE) || !old.has(Flags::EXEC);
        self.mdwe != 0 && new.has(Flags::EXEC) && gains
    }
}
