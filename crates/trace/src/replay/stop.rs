//! The manager of a replay, and why it stopped one.

use crate::budget::Spent;
use foliant::Manager;
use foliant::manager::{NoPage, SpaceError};
use foliant::space::{MapError, RangeError, RemapError};
use foliant::table::X86_64;
use foliant_sim::Sim;

/// The manager.
pub(super) type Mm<'m> = Manager<'m, Sim, X86_64<4>>;

/// Why a step was not carried out.
pub(super) enum Stop {
    OutOfMemory,
    Refused(String),
    Spent(Spent),
}

impl From<Spent> for Stop {
    fn from(spent: Spent) -> Stop {
        Stop::Spent(spent)
    }
}
impl From<NoPage> for Stop {
    fn from(error: NoPage) -> Stop {
        match error {
            NoPage::NoMemory => Stop::OutOfMemory,
            other => Stop::Refused(other.to_string()),
        }
    }
}

impl From<SpaceError> for Stop {
    fn from(error: SpaceError) -> Stop {
        match error {
            SpaceError::NoMemory => Stop::OutOfMemory,
            other => Stop::Refused(other.to_string()),
        }
    }
}
impl From<RangeError> for Stop {
    fn from(error: RangeError) -> Stop {
        match error {
            RangeError::NoMemory => Stop::OutOfMemory,
            other => Stop::Refused(other.to_string()),
        }
    }
}
impl From<MapError> for Stop {
    fn from(error: MapError) -> Stop {
        match error {
            MapError::Range(range) => range.into(),
            other => Stop::Refused(other.to_string()),
        }
    }
}
impl From<RemapError> for Stop {
    fn from(error: RemapError) -> Stop {
        match error {
            RemapError::Map(map) => map.into(),
            other => Stop::Refused(other.to_string()),
        }
    }
}
