//! What user programs ask of memory, and what they hear where it is refused.

use core::fmt;
use foliant_units::Va;

/// What an access wants to do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Load.
    Read,
    /// Store.
    Write,
    /// Fetch an instruction.
    Exec,
}

/// A user access that found no translation, or one that does not allow it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PageFault {
    /// The address accessed.
    pub va: Va,
    /// What was wanted.
    pub access: Access,
    /// Whether a translation was there and did not allow it. It may have been a stale one.
    pub present: bool,
}

impl fmt::Display for PageFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = if self.present { "not allowed" } else { "not mapped" };
        write!(f, "{:?} of {}: {why}", self.access, self.va)
    }
}

impl core::error::Error for PageFault {}
