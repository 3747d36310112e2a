//! Differences that stay, each with its reason.

use crate::call::{Answer, Arg, Bases, Call, Name};
use core::fmt;
use foliant_linux::raw::general::{MADV_FREE, MADV_PAGEOUT, MAP_HUGETLB};

/// A reason, by which sequences may end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reason {
    /// See [`Reason::why`].
    PoolOfHost,
    /// See [`Reason::why`].
    FreedIsKept,
    /// The same sequence did not differ when it was run again.
    NotAgain,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 3] = [Reason::PoolOfHost, Reason::FreedIsKept, Reason::NotAgain];

    /// What it is, in a sentence.
    pub fn why(self) -> &'static str {
        match self {
            Reason::PoolOfHost => {
                "the host has no huge pages of that size at all, the manager has every size"
            }
            Reason::FreedIsKept => {
                "MADV_PAGEOUT takes what MADV_FREE named, and the manager keeps that for good"
            }
            Reason::NotAgain => {
                "the host did otherwise when it was asked again: it collapses and reclaims by itself"
            }
        }
    }
    /// The reason of a difference between pages after these calls, if it is one of these.
    pub(crate) fn of_pages(calls: &[Call]) -> Option<Reason> {
        let is = |call: &Call, advice| {
            call.name == Name::Madvise && call.args[2] == Arg::Word(u64::from(advice))
        };
        let freed = calls.iter().position(|call| is(call, MADV_FREE))?;
        let is_taken = calls[freed..].iter().any(|call| is(call, MADV_PAGEOUT));
        is_taken.then_some(Reason::FreedIsKept)
    }
    /// The reason of a difference between two answers to a call, if it is one of these.
    pub(crate) fn of(call: &Call, bases: &Bases, host: &Answer, ours: &Answer) -> Option<Reason> {
        let [_, _, _, flags, ..] = call.values(bases);
        let is_pool = call.name == Name::Mmap && flags as u32 & MAP_HUGETLB != 0;
        (is_pool && host != ours).then_some(Reason::PoolOfHost)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.why())
    }
}
