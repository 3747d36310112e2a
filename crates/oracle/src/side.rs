//! What both sides can be asked.

use crate::call::{Answer, Call};
use core::fmt;
use std::io;

/// An area, as a line of `/proc/PID/maps` says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AreaSeen {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Such as `rw-p`.
    pub(crate) rights: String,
}

impl AreaSeen {
    pub(crate) fn parse(line: &str) -> Option<AreaSeen> {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (number(start)?, number(end)?);
        Some(AreaSeen { start, end, rights: words.next()?.to_owned() })
    }
    pub(crate) fn is_readable(&self) -> bool {
        self.rights.starts_with('r')
    }
}

impl fmt::Display for AreaSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x} {}", self.start, self.end, self.rights)
    }
}

/// A page: not there, or its first eight bytes, which are 0 where they cannot be read.
pub(crate) type PageSeen = Option<u64>;

/// Why a side gave no answer.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The host: its process is gone, or a file cannot be read.
    Host(io::Error),
    /// The crate's side did what it never should: that is a difference too.
    Ours(String),
}

impl From<io::Error> for Failed {
    fn from(why: io::Error) -> Failed {
        Failed::Host(why)
    }
}

impl Failed {
    /// What went wrong on the crate's side.
    pub(crate) fn ours(why: impl fmt::Display) -> Failed {
        Failed::Ours(why.to_string())
    }
}

/// One of the two.
pub(crate) trait Side {
    /// How many processes there are.
    fn processes(&self) -> usize;
    /// Carries a call out in process `who`.
    fn call(&mut self, who: usize, call: &Call) -> Result<Answer, Failed>;
    /// The areas of a process, but for those that were there before the first call.
    fn areas(&self, who: usize) -> Result<Vec<AreaSeen>, Failed>;
    /// The pages of `start..end`, which lie in `area`.
    fn pages(
        &self,
        who: usize,
        area: &AreaSeen,
        start: u64,
        end: u64,
    ) -> Result<Vec<PageSeen>, Failed>;
}
