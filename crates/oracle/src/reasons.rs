//! Differences that stay, each with its reason.

use crate::call::{Answer, Arg, Bases, Call, Name};
use core::fmt;
use foliant_linux::raw::general::{MADV_FREE, MADV_HUGEPAGE, MADV_PAGEOUT, MAP_HUGETLB};

/// A reason, by which sequences may end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reason {
    /// See [`Reason::why`].
    PoolOfHost,
    /// See [`Reason::why`].
    FreedIsKept,
    /// See [`Reason::why`].
    SplitLeavesZeros,
    /// The same sequence did not differ when it was run again.
    NotAgain,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 4] =
        [Reason::PoolOfHost, Reason::FreedIsKept, Reason::SplitLeavesZeros, Reason::NotAgain];

    /// What it is, in a sentence.
    pub fn why(self) -> &'static str {
        match self {
            Reason::PoolOfHost => {
                "the host has no huge pages of that size at all, the manager has every size"
            }
            Reason::FreedIsKept => {
                "MADV_PAGEOUT takes what MADV_FREE named, and the manager keeps that for good"
            }
            Reason::SplitLeavesZeros => {
                "Linux counts pages of zeros no longer where it split the large folio they were in"
            }
            Reason::NotAgain => {
                "the host did otherwise when it was asked again: it collapses and reclaims by itself"
            }
        }
    }
    /// The reason of a difference between pages after these calls, if it is one of these.
    pub(crate) fn of_pages(calls: &[Call]) -> Option<Reason> {
        let freed = calls.iter().position(|call| advises(call, MADV_FREE))?;
        let is_taken = calls[freed..].iter().any(|call| advises(call, MADV_PAGEOUT));
        is_taken.then_some(Reason::FreedIsKept)
    }
    /// The reason of a difference between two areas in `smaps`, if it is one of these.
    pub(crate) fn of_smaps(calls: &[Call], host: &str, ours: &str) -> Option<Reason> {
        let is_count = |line: &&str| line.starts_with("Rss:") || line.starts_with("Anonymous:");
        let rest = |text| str::lines(text).filter(|line| !is_count(line)).collect::<Vec<&str>>();
        let is_large = calls.iter().any(|call| advises(call, MADV_HUGEPAGE));
        let split = is_large && rest(host) == rest(ours);
        if split { Some(Reason::SplitLeavesZeros) } else { Reason::of_pages(calls) }
    }
    /// The reason of a difference between two answers to a call, if it is one of these.
    pub(crate) fn of(call: &Call, bases: &Bases, host: &Answer, ours: &Answer) -> Option<Reason> {
        let [_, _, _, flags, ..] = call.values(bases);
        let is_pool = call.name == Name::Mmap && flags as u32 & MAP_HUGETLB != 0;
        (is_pool && host != ours).then_some(Reason::PoolOfHost)
    }
}

/// Whether a call gives this advice.
fn advises(call: &Call, advice: u32) -> bool {
    call.name == Name::Madvise && call.args[2] == Arg::Word(u64::from(advice))
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.why())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foliant_linux::raw::general::MADV_COLD;

    fn advice(advice: u32) -> Call {
        let [addr, len] = [0, 4096].map(Arg::Word);
        Call::new(0, Name::Madvise, &[addr, len, Arg::Word(advice.into())])
    }

    #[test]
    fn a_reason_holds_where_its_calls_are() {
        for (calls, reason) in [
            ([MADV_FREE, MADV_PAGEOUT], Some(Reason::FreedIsKept)),
            ([MADV_PAGEOUT, MADV_FREE], None),
            ([MADV_FREE, MADV_COLD], None),
            ([MADV_COLD, MADV_PAGEOUT], None),
        ] {
            assert_eq!(Reason::of_pages(&calls.map(advice)), reason, "{calls:?}");
        }
        let (few, many) = ("a\nRss: 4 kB\nVmFlags: rd", "a\nRss: 8 kB\nVmFlags: rd");
        let large = [advice(MADV_HUGEPAGE)];
        assert_eq!(Reason::of_smaps(&large, few, many), Some(Reason::SplitLeavesZeros));
        assert_eq!(Reason::of_smaps(&[advice(MADV_COLD)], few, many), None);
        assert_eq!(Reason::of_smaps(&large, few, "a\nRss: 4 kB\nVmFlags: wr"), None);
    }

    #[test]
    fn a_pool_is_a_reason_for_mmap_alone() {
        let (zero, no) = (Answer::Word(0), Answer::Word(1));
        let bases = Bases { arena: 0, top: 0, heap: 0 };
        let flags = |flags: u32| {
            let word = Arg::Word(u64::from(flags));
            Call::new(0, Name::Mmap, &[word, word, word, word])
        };
        let of = |flags_: u32, ours| Reason::of(&flags(flags_), &bases, &zero, ours);
        assert_eq!(of(MAP_HUGETLB, &no), Some(Reason::PoolOfHost));
        assert_eq!((of(MAP_HUGETLB, &zero), of(1, &no)), (None, None));
    }
}
