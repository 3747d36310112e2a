//! Why a scenario has no result.

use crate::Stopped;
use core::{error, fmt};
use foliant::manager::{SetupError, SpaceError};
use foliant::space::{MapError, RangeError};
use foliant::vmap::{Short, VmapError};
use foliant_units::{Bytes, Va};

/// Why a scenario has no result. What it had made is gone again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LabError {
    /// Memory ran out.
    NoMemory,
    /// What the CPUs touch together is more than a scenario has addresses for.
    TooLarge {
        /// What they would touch.
        asked: Bytes,
        /// What there is.
        most: Bytes,
    },
    /// A program's access was refused.
    Refused(Va),
    /// Somebody wanted no more of it.
    Interrupted,
    /// A space was refused.
    Space(SpaceError),
    /// A range was refused.
    Range(RangeError),
    /// An area was refused.
    Map(MapError),
    /// A kernel range was refused.
    Kernel(VmapError),
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabError::NoMemory => {
                f.write_str("memory ran out; give the machine more, or the scenario smaller values")
            }
            LabError::TooLarge { asked, most } => {
                write!(f, "all CPUs together would touch {asked}; at most {most} work")
            }
            LabError::Refused(va) => write!(f, "the program's access to {va} was refused"),
            LabError::Interrupted => f.write_str("it was interrupted"),
            LabError::Space(why) => why.fmt(f),
            LabError::Range(why) => why.fmt(f),
            LabError::Map(why) => why.fmt(f),
            LabError::Kernel(why) => why.fmt(f),
        }
    }
}
impl error::Error for LabError {}

impl From<Stopped> for LabError {
    fn from(stopped: Stopped) -> LabError {
        match stopped {
            Stopped::NoMemory(_) => LabError::NoMemory,
            Stopped::Refused(va) => LabError::Refused(va),
            Stopped::Interrupted => LabError::Interrupted,
        }
    }
}
impl From<SpaceError> for LabError {
    fn from(why: SpaceError) -> LabError {
        match why {
            SpaceError::NoMemory => LabError::NoMemory,
            other => LabError::Space(other),
        }
    }
}
impl From<RangeError> for LabError {
    fn from(why: RangeError) -> LabError {
        match why {
            RangeError::NoMemory => LabError::NoMemory,
            other => LabError::Range(other),
        }
    }
}
impl From<MapError> for LabError {
    fn from(why: MapError) -> LabError {
        match why {
            MapError::Range(range) => range.into(),
            other => LabError::Map(other),
        }
    }
}
impl From<VmapError> for LabError {
    fn from(why: VmapError) -> LabError {
        match why {
            VmapError::Short(Short::Block(_) | Short::Record) => LabError::NoMemory,
            other => LabError::Kernel(other),
        }
    }
}
impl From<SetupError> for LabError {
    fn from(_: SetupError) -> LabError {
        LabError::NoMemory // the only one that describing memory has
    }
}
