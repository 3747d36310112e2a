//! A call's refusal, as a number of Linux's.

use core::{error, fmt};
use foliant::manager::{NoPage, SpaceError};
use foliant::pool::SubpoolError;
use foliant::space::{MapError, RangeError, RemapError};
use linux_raw_sys::errno;

/// Why a call was refused: one of Linux's numbers (`linux_raw_sys::errno`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Errno(pub u32);

impl Errno {
    /// An argument makes no sense.
    pub const INVAL: Errno = Errno(errno::EINVAL);
    /// No memory, no room, or nothing there.
    pub const NOMEM: Errno = Errno(errno::ENOMEM);
    /// An address is none of the caller's.
    pub const FAULT: Errno = Errno(errno::EFAULT);
    /// Not allowed.
    pub const PERM: Errno = Errno(errno::EPERM);
    /// Something is there already.
    pub const EXIST: Errno = Errno(errno::EEXIST);
    /// Not now.
    pub const AGAIN: Errno = Errno(errno::EAGAIN);
    /// In use.
    pub const BUSY: Errno = Errno(errno::EBUSY);
    /// No such descriptor.
    pub const BADF: Errno = Errno(errno::EBADF);
    /// The file does not do that.
    pub const OPNOTSUPP: Errno = Errno(errno::EOPNOTSUPP);
    /// There is no such call, or not yet.
    pub const NOSYS: Errno = Errno(errno::ENOSYS);

    /// As a program gets it in the register of a call's result.
    pub const fn word(self) -> u64 {
        (self.0 as i64).wrapping_neg() as u64
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error {}", self.0)
    }
}
impl error::Error for Errno {}

impl From<RangeError> for Errno {
    fn from(why: RangeError) -> Errno {
        match why {
            RangeError::NoSpace | RangeError::NoObject => Errno(errno::ESRCH),
            RangeError::Empty | RangeError::Misaligned(_) | RangeError::Cuts(..) => Errno::INVAL,
            RangeError::Huge(_) => Errno::INVAL,
            RangeError::Ceiling(..) => Errno(errno::EACCES),
            RangeError::TooLow(..) => Errno::PERM,
            RangeError::Outside(_) | RangeError::Hole(_) => Errno::NOMEM,
            RangeError::Broken(_) => Errno(errno::EHWPOISON),
            RangeError::NoMemory | RangeError::TooManyAreas(_) | RangeError::OverLimit(_) => {
                Errno::NOMEM
            }
        }
    }
}
impl From<MapError> for Errno {
    fn from(why: MapError) -> Errno {
        match why {
            MapError::Range(why) => why.into(),
            MapError::Occupied(_) => Errno::EXIST,
            MapError::NoRoom(_) | MapError::NoHugePages(_) => Errno::NOMEM,
            MapError::NoLeaf(_) | MapError::Flags(_) | MapError::NoSubpool(_) => Errno::INVAL,
        }
    }
}
impl From<SubpoolError> for Errno {
    fn from(why: SubpoolError) -> Errno {
        match why {
            SubpoolError::Pool(_) | SubpoolError::Limits(_) => Errno::INVAL,
            SubpoolError::Pages(_) | SubpoolError::TooMany(_) => Errno::NOMEM,
        }
    }
}
impl From<RemapError> for Errno {
    fn from(why: RemapError) -> Errno {
        match why {
            RemapError::Map(why) => why.into(),
            RemapError::Several(_) => Errno::FAULT,
            RemapError::Overlap(_) => Errno::INVAL,
        }
    }
}
impl From<NoPage> for Errno {
    fn from(why: NoPage) -> Errno {
        match why {
            NoPage::NoObject => Errno(errno::ESRCH),
            NoPage::Beyond(_) => Errno(errno::EFBIG),
            NoPage::Broken(_) => Errno(errno::EIO),
            NoPage::Huge(_) => Errno::INVAL,
            NoPage::NoMemory | NoPage::OverLimit(_) => Errno::NOMEM,
        }
    }
}
impl From<SpaceError> for Errno {
    fn from(why: SpaceError) -> Errno {
        match why {
            SpaceError::NoSpace => Errno(errno::ESRCH),
            SpaceError::Running(_) => Errno::BUSY,
            SpaceError::NoMemory | SpaceError::OverLimit(_) => Errno::NOMEM,
        }
    }
}
