//! A refusal, which has a number of Linux's.

use crate::id::NodeId;
use core::{error, fmt};
use linux_raw_sys::errno;

/// Why something was refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refused {
    /// There is no such name, or the node is gone, or its folder was removed.
    NotFound,
    /// What must be a folder is none.
    NotFolder,
    /// What must not be a folder is one.
    IsFolder,
    /// The name is taken.
    Exists,
    /// The folder has names in it.
    NotEmpty,
    /// The path leads over too many symbolic links.
    Loop,
    /// A name or a path has too many bytes.
    NameTooLong,
    /// An argument makes no sense.
    Invalid,
    /// A folder cannot move into itself or below.
    IntoItself,
    /// The root, `.` and `..` stay where they are.
    Busy,
    /// The node has as many links as can be counted.
    TooManyLinks,
    /// A folder has no second name.
    NotPermitted,
    /// The permissions of a node do not let the caller do that.
    Denied,
    /// The folder is sticky, and neither it nor what has the name is the caller's.
    NotOwner,
    /// A program is run from it, and nobody writes to it meanwhile.
    Runs,
    /// Somebody writes to it, and no program is run from it meanwhile.
    Written,
    /// This folder is filled first ([`Files::put_off`](crate::Files::put_off)), and then all is
    /// asked again. No program is told.
    Due(NodeId),
}

impl Refused {
    /// Linux's number for it.
    pub const fn errno(self) -> u32 {
        match self {
            Refused::NotFound | Refused::Due(_) => errno::ENOENT,
            Refused::NotFolder => errno::ENOTDIR,
            Refused::IsFolder => errno::EISDIR,
            Refused::Exists => errno::EEXIST,
            Refused::NotEmpty => errno::ENOTEMPTY,
            Refused::Loop => errno::ELOOP,
            Refused::NameTooLong => errno::ENAMETOOLONG,
            Refused::Invalid | Refused::IntoItself => errno::EINVAL,
            Refused::Busy => errno::EBUSY,
            Refused::TooManyLinks => errno::EMLINK,
            Refused::NotPermitted | Refused::NotOwner => errno::EPERM,
            Refused::Denied => errno::EACCES,
            Refused::Runs | Refused::Written => errno::ETXTBSY,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::NotFound => "no such file or folder",
            Refused::NotFolder => "not a folder",
            Refused::IsFolder => "a folder",
            Refused::Exists => "the name is taken",
            Refused::NotEmpty => "the folder is not empty",
            Refused::Loop => "too many symbolic links",
            Refused::NameTooLong => "the name is too long",
            Refused::Invalid => "an argument makes no sense",
            Refused::IntoItself => "a folder cannot move into itself",
            Refused::Busy => "the root, `.` and `..` stay where they are",
            Refused::TooManyLinks => "too many links",
            Refused::NotPermitted => "a folder has no second name",
            Refused::Denied => "permission is denied",
            Refused::NotOwner => "the folder is sticky and it is another one's",
            Refused::Runs => "a program is run from it",
            Refused::Written => "it is open for writing",
            Refused::Due(_) => "the folder is filled first",
        })
    }
}
impl error::Error for Refused {}
