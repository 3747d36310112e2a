//! Differences that stay, each with its reason.

use crate::call::{Answer, Arg, Call, Name};
use core::fmt;
use foliant_linux::Errno;
use foliant_linux::raw::general::{
    FALLOC_FL_KEEP_SIZE, MADV_COLLAPSE, MADV_FREE, MADV_HUGEPAGE, MADV_PAGEOUT, MAP_ANONYMOUS,
    MAP_HUGETLB, MAP_SHARED, MAP_TYPE, MREMAP_DONTUNMAP,
};

/// Bits of a word in `pagemap`.
const EXCLUSIVE: u64 = 1 << 56;
const WRITE_PROTECTED: u64 = 1 << 57;

/// A reason, by which sequences may end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reason {
    /// See [`Reason::why`].
    PoolOfHost,
    /// See [`Reason::why`].
    FreedIsKept,
    /// See [`Reason::why`].
    TakenFromFile,
    /// See [`Reason::why`].
    KeptBehind,
    /// See [`Reason::why`].
    SplitLeavesZeros,
    /// See [`Reason::why`].
    LeftTables,
    /// See [`Reason::why`].
    TablesFirst,
    /// See [`Reason::why`].
    UnlockedCounts,
    /// See [`Reason::why`].
    StaleProtection,
    /// See [`Reason::why`].
    DisarmedBeside,
    /// See [`Reason::why`].
    ReadOnlyStays,
    /// The same sequence did not differ when it was run again.
    NotAgain,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 12] = [
        Reason::PoolOfHost,
        Reason::FreedIsKept,
        Reason::TakenFromFile,
        Reason::KeptBehind,
        Reason::SplitLeavesZeros,
        Reason::LeftTables,
        Reason::TablesFirst,
        Reason::UnlockedCounts,
        Reason::StaleProtection,
        Reason::DisarmedBeside,
        Reason::ReadOnlyStays,
        Reason::NotAgain,
    ];

    /// What it is, in a sentence.
    pub fn why(self) -> &'static str {
        match self {
            Reason::PoolOfHost => {
                "the host has no huge pages of that size at all, the manager has every size"
            }
            Reason::FreedIsKept => {
                "MADV_PAGEOUT takes what MADV_FREE named, and the manager keeps that for good"
            }
            Reason::TakenFromFile => {
                "MADV_PAGEOUT takes pages of files out of page tables, and what was never written out of the file; here they stay"
            }
            Reason::KeptBehind => {
                "fallocate with FALLOC_FL_KEEP_SIZE makes pages behind the end of a file, which show once it is longer; here none stays"
            }
            Reason::SplitLeavesZeros => {
                "Linux has its page of zeros, which it does not count, where it split a large folio with zeros"
            }
            Reason::LeftTables => {
                "Linux keeps the tables where MREMAP_DONTUNMAP leaves an area without pages; here they go with what moved"
            }
            Reason::TablesFirst => {
                "Linux makes the tables on the way before it asks a file, a pool or the program for the page, which may have none; here the page comes first"
            }
            Reason::UnlockedCounts => {
                "Linux goes on counting as locked what MREMAP_DONTUNMAP has left behind, which it unlocks"
            }
            Reason::StaleProtection => {
                "Linux leaves pages protected whose area is registered anew for missing ones alone; a write finds nobody to tell"
            }
            Reason::DisarmedBeside => {
                "Linux forgets who answers for memory with which other memory becomes one area as it moves there; here that stays armed"
            }
            Reason::ReadOnlyStays => {
                "MADV_COLLAPSE makes a folio of zeros that may only be read, which is the process's own then; here they stay as they are"
            }
            Reason::NotAgain => {
                "the host did otherwise when it was asked again: it collapses and reclaims by itself"
            }
        }
    }
    /// The reason of a difference between pages after these calls, if it is one of these.
    pub(crate) fn of_pages(calls: &[Call]) -> Option<Reason> {
        let freed = calls.iter().position(|call| advises(call, MADV_FREE))?;
        pages_out(&calls[freed..]).then_some(Reason::FreedIsKept)
    }
    /// The reason of a difference between what `pagemap` says of two pages with equal contents.
    pub(crate) fn of_words(calls: &[Call], host: &str, ours: &str) -> Option<Reason> {
        let has_zeros = host.contains("holds 0x0, 0x0, 0x0,");
        let is_zeros = has_zeros && has_more(ours, host, EXCLUSIVE);
        let is_protected = has_more(host, ours, WRITE_PROTECTED);
        match () {
            () if wants_large(calls) && is_zeros => Some(Reason::SplitLeavesZeros),
            () if calls.iter().any(answers_faults) && is_protected => Some(Reason::StaleProtection),
            () if collapses_filled(calls) && has_zeros && has_more(host, ours, EXCLUSIVE) => {
                Some(Reason::ReadOnlyStays)
            }
            () => Reason::of_pages(calls),
        }
    }
    /// The reason of a difference between pages of an area that maps a file.
    pub(crate) fn of_file_pages(calls: &[Call], host: &str, ours: &str) -> Option<Reason> {
        let is_missing = |said: &str| said.contains("is not there");
        let is_out = is_missing(host) || has_more(host, ours, EXCLUSIVE);
        match () {
            () if pages_out(calls) && is_out => Some(Reason::TakenFromFile),
            () if keeps_behind(calls) && is_missing(ours) => Some(Reason::KeptBehind),
            () => None,
        }
    }
    /// The reason of a difference between two areas in `smaps`, if it is one of these.
    pub(crate) fn of_smaps(calls: &[Call], host: &str, ours: &str) -> Option<Reason> {
        let is_count = |line: &&str| line.starts_with("Rss:") || line.starts_with("Anonymous:");
        let rest = |text| str::lines(text).filter(|line| !is_count(line)).collect::<Vec<&str>>();
        let split = wants_large(calls) && rest(host) == rest(ours);
        let moves = |call: &Call| call.name == Name::Mremap;
        let has_both = calls.iter().any(answers_faults) && calls.iter().any(moves);
        match () {
            () if split => Some(Reason::SplitLeavesZeros),
            () if has_both && is_disarmed(host, ours) => Some(Reason::DisarmedBeside),
            () => Reason::of_pages(calls),
        }
    }
    /// The reason of a difference between two sizes of a process, if it is one of these.
    pub(crate) fn of_size(calls: &[Call], host: &str) -> Option<Reason> {
        let has = |is: &dyn Fn(&Call) -> bool| calls.iter().any(is);
        let leaves = |call: &Call| match call.args[3] {
            Arg::Word(flags) if call.name == Name::Mremap => flags as u32 & MREMAP_DONTUNMAP != 0,
            _ => false,
        };
        match host.split(' ').next() {
            Some("VmPTE:") if has(&leaves) => Some(Reason::LeftTables),
            Some("VmPTE:") if has(&maps_file) || has(&maps_pool) || has(&answers_faults) => {
                Some(Reason::TablesFirst)
            }
            Some("RssShmem:") if pages_out(calls) => Some(Reason::TakenFromFile),
            Some("VmLck:") if has(&leaves) => Some(Reason::UnlockedCounts),
            Some("RssAnon:") if wants_large(calls) => Some(Reason::SplitLeavesZeros),
            _ => Reason::of_pages(calls),
        }
    }
    /// The reason of a difference between two answers to the last of these calls, if it is one of
    /// these.
    pub(crate) fn of_answers(calls: &[Call], host: &Answer, ours: &Answer) -> Option<Reason> {
        let call = calls.last()?;
        if maps_pool(call) && host != ours {
            return Some(Reason::PoolOfHost);
        }
        // It finds the table that a refused access left, and no page in it.
        let found = (Answer::Word(Errno::BUSY.word()), Answer::Word(Errno::INVAL.word()));
        let is_empty = advises(call, MADV_COLLAPSE) && (host, ours) == (&found.0, &found.1);
        if is_empty && calls.iter().any(answers_faults) {
            return Some(Reason::TablesFirst);
        }
        let (Answer::Pages(host), Answer::Pages(ours)) = (host, ours) else { return None };
        let only = |a: &[u8], b: &[u8]| a != b && a.iter().zip(b).all(|(a, b)| a <= b);
        match () {
            () if pages_out(calls) && only(host, ours) => Some(Reason::TakenFromFile),
            () if keeps_behind(calls) && only(ours, host) => Some(Reason::KeptBehind),
            () => None,
        }
    }
}

/// Whether the word in `pagemap` that `one` ends with is that of `other` with a bit more.
fn has_more(one: &str, other: &str, bit: u64) -> bool {
    let word = |said: &str| u64::from_str_radix(said.rsplit_once("pagemap 0x")?.1, 16).ok();
    match (word(one), word(other)) {
        (Some(one), Some(other)) => one == other | bit && one != other,
        _ => false,
    }
}

/// Whether an area in `smaps` is armed here, and is the same on the host but for that.
fn is_disarmed(host: &str, ours: &str) -> bool {
    let is_armed = |word: &&str| ["um", "uw", "ui"].contains(word);
    let plain = |text: &str| {
        let words = text.split([' ', '\n']).filter(|word| !is_armed(word));
        words.map(str::to_owned).collect::<Vec<String>>()
    };
    !host.split(' ').any(|word| is_armed(&word)) && host != ours && plain(host) == plain(ours)
}

/// Whether one of the calls wants pages taken out.
fn pages_out(calls: &[Call]) -> bool {
    calls.iter().any(|call| advises(call, MADV_PAGEOUT))
}

/// Whether one of the calls wants a large folio, perhaps of memory that has a family by requests.
fn collapses_filled(calls: &[Call]) -> bool {
    calls.iter().any(answers_faults) && calls.iter().any(|call| advises(call, MADV_COLLAPSE))
}

/// Whether one of the calls asks for large folios.
fn wants_large(calls: &[Call]) -> bool {
    calls.iter().any(|call| advises(call, MADV_HUGEPAGE))
}

/// Whether a file may have pages behind its end: they were asked for without making it longer.
fn keeps_behind(calls: &[Call]) -> bool {
    let keeps = |call: &Call| match call.args[1] {
        Arg::Word(mode) => mode as u32 == FALLOC_FL_KEEP_SIZE,
        Arg::Addr(..) => false,
    };
    calls.iter().any(|call| call.name == Name::Fallocate && keeps(call))
}

/// Whether a call maps a file, or memory that has one behind it.
fn maps_file(call: &Call) -> bool {
    let Arg::Word(flags) = call.args[3] else { return false };
    let flags = flags as u32;
    call.name == Name::Shmat
        || call.name == Name::Mmap && (flags & MAP_ANONYMOUS == 0 || flags & MAP_TYPE == MAP_SHARED)
}

/// Whether a call maps huge pages of a pool.
fn maps_pool(call: &Call) -> bool {
    match call.args[3] {
        Arg::Word(flags) if call.name == Name::Mmap => flags as u32 & MAP_HUGETLB != 0,
        _ => false,
    }
}

/// Whether a call is about faults that the program answers.
fn answers_faults(call: &Call) -> bool {
    call.name == Name::Userfault
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
    use crate::side::PageSeen;
    use foliant_linux::raw::general::{MADV_COLD, MAP_PRIVATE};

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
            let of_file = |host| Reason::of_file_pages(&calls.map(advice), host, "");
            let taken = calls.contains(&MADV_PAGEOUT).then_some(Reason::TakenFromFile);
            assert_eq!((of_file("p is not there"), of_file("p holds 0")), (taken, None));
            let word = |bits: u64| format!("p holds 0, pagemap {bits:#x}");
            let of_words =
                |host, ours| Reason::of_file_pages(&calls.map(advice), &word(host), &word(ours));
            assert_eq!((of_words(0xa1 << 56, 0xa0 << 56), of_words(2, 1)), (taken, None));
        }
        let (few, many) = ("a\nRss: 4 kB\nVmFlags: rd", "a\nRss: 8 kB\nVmFlags: rd");
        let large = [advice(MADV_HUGEPAGE)];
        assert_eq!(Reason::of_smaps(&large, few, many), Some(Reason::SplitLeavesZeros));
        assert_eq!(Reason::of_smaps(&[advice(MADV_COLD)], few, many), None);
        assert_eq!(Reason::of_smaps(&large, few, "a\nRss: 4 kB\nVmFlags: wr"), None);
        let [asked, moved] = [Name::Userfault, Name::Mremap].map(|name| Call::new(0, name, &[]));
        let (both, armed) = ([asked.clone(), moved], "a\nRss: 4 kB\nVmFlags: um rd");
        assert_eq!(Reason::of_smaps(&both, few, armed), Some(Reason::DisarmedBeside));
        assert_eq!(Reason::of_smaps(&both, armed, few), None, "the other way round");
        assert_eq!(Reason::of_smaps(&[asked], few, armed), None, "nothing moved");
        assert_eq!(Reason::of_smaps(&both, few, "a\nRss: 4 kB\nVmFlags: um wr"), None);
    }

    #[test]
    fn a_page_of_zeros_is_its_processs_own_or_the_kernels() {
        let of = |bits: u64, first: u64| {
            let mut page = PageSeen::of(bits << 56);
            page.words[0] = first;
            format!("0x5000 of process 0 {page}")
        };
        let large = [advice(MADV_HUGEPAGE)];
        let (shared, own) = (of(0x80, 0), of(0x81, 0));
        assert_eq!(Reason::of_words(&large, &shared, &own), Some(Reason::SplitLeavesZeros));
        assert_eq!(Reason::of_words(&large, &own, &shared), None);
        assert_eq!(Reason::of_words(&large, &of(0x80, 1), &of(0x81, 1)), None);
        assert_eq!(Reason::of_words(&large, &of(0x82, 0), &own), None);
        assert_eq!(Reason::of_words(&[advice(MADV_COLD)], &shared, &own), None);
        let asked = [Call::new(0, Name::Userfault, &[])];
        let (protected, open) = (of(0x83, 7), of(0x81, 7));
        assert_eq!(Reason::of_words(&asked, &protected, &open), Some(Reason::StaleProtection));
        assert_eq!(Reason::of_words(&asked, &open, &protected), None);
        assert_eq!(Reason::of_words(&asked, &of(0x82, 7), &open), None);
        assert_eq!(Reason::of_words(&large, &protected, &open), None);
        let both = [Call::new(0, Name::Userfault, &[]), advice(MADV_COLLAPSE)];
        assert_eq!(Reason::of_words(&both, &own, &shared), Some(Reason::ReadOnlyStays));
        assert_eq!(Reason::of_words(&both, &shared, &own), None);
        assert_eq!(Reason::of_words(&both, &of(0x81, 1), &of(0x80, 1)), None, "no zeros");
        assert_eq!(Reason::of_words(&both[1..], &own, &shared), None, "nobody asked");
    }

    #[test]
    fn sizes_differ_by_moves_large_folios_and_what_is_freed() {
        let remap = |flags: u32| {
            let word = |word: u32| Arg::Word(word.into());
            Call::new(0, Name::Mremap, &[word(0), word(4096), word(4096), word(flags), word(0)])
        };
        let of = |calls: &[Call], name: &str| Reason::of_size(calls, &format!("{name} 4 of 0"));
        let (moved, left) = ([remap(1)], [remap(MREMAP_DONTUNMAP | 1)]);
        let (large, none) = ([advice(MADV_HUGEPAGE)], [advice(MADV_COLD)]);
        let mmap = |flags: u32| {
            let args = [0, 4096, 3, flags].map(|word| Arg::Word(word.into()));
            [Call::new(0, Name::Mmap, &args)]
        };
        let shared = mmap(MAP_SHARED);
        let pool = mmap(MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB);
        let taken = [advice(MADV_PAGEOUT)];
        let answers = [Call::new(0, Name::Userfault, &[])];
        for (calls, name, reason) in [
            (&left, "VmPTE:", Some(Reason::LeftTables)),
            (&moved, "VmPTE:", None),
            (&large, "VmPTE:", None),
            (&left, "VmLck:", Some(Reason::UnlockedCounts)),
            (&moved, "VmLck:", None),
            (&shared, "VmPTE:", Some(Reason::TablesFirst)),
            (&pool, "VmPTE:", Some(Reason::TablesFirst)),
            (&pool, "VmLck:", None),
            (&answers, "VmPTE:", Some(Reason::TablesFirst)),
            (&answers, "VmLck:", None),
            (&shared, "RssShmem:", None),
            (&taken, "RssShmem:", Some(Reason::TakenFromFile)),
            (&large, "RssAnon:", Some(Reason::SplitLeavesZeros)),
            (&none, "RssAnon:", None),
            (&left, "VmSize:", None),
        ] {
            assert_eq!(of(calls, name), reason, "{name} {calls:?}");
        }
        let freed = [MADV_FREE, MADV_PAGEOUT].map(advice);
        assert_eq!(of(&freed, "RssAnon:"), Some(Reason::FreedIsKept));
    }

    #[test]
    fn a_pool_is_a_reason_for_mmap_alone() {
        let (zero, no) = (Answer::Word(0), Answer::Word(1));
        let flags = |flags: u32| {
            let word = Arg::Word(u64::from(flags));
            Call::new(0, Name::Mmap, &[word, word, word, word])
        };
        let of = |flags_: u32, ours| Reason::of_answers(&[flags(flags_)], &zero, ours);
        assert_eq!(of(MAP_HUGETLB, &no), Some(Reason::PoolOfHost));
        assert_eq!((of(MAP_HUGETLB, &zero), of(1, &no)), (None, None));
    }

    #[test]
    fn a_collapse_finds_a_table_where_the_program_answers_faults() {
        let (busy, inval) = (Answer::Word(Errno::BUSY.word()), Answer::Word(Errno::INVAL.word()));
        let (asked, collapse) = (Call::new(0, Name::Userfault, &[]), advice(MADV_COLLAPSE));
        let of =
            |calls: [&Call; 2], host, ours| Reason::of_answers(&calls.map(Call::clone), host, ours);
        assert_eq!(of([&asked, &collapse], &busy, &inval), Some(Reason::TablesFirst));
        assert_eq!(of([&asked, &collapse], &inval, &busy), None);
        assert_eq!(of([&collapse, &collapse], &busy, &inval), None);
        assert_eq!(of([&asked, &advice(MADV_COLD)], &busy, &inval), None);
    }

    #[test]
    fn what_mincore_shows_has_reasons_in_one_direction_each() {
        let keep = Call::new(0, Name::Fallocate, &[3, 1].map(Arg::Word));
        let grow = Call::new(0, Name::Fallocate, &[3, 0].map(Arg::Word));
        let core = Call::new(0, Name::Mincore, &[]);
        let of = |calls: &[&Call], host: &[u8], ours: &[u8]| {
            let calls: Vec<Call> = calls.iter().copied().chain([&core]).cloned().collect();
            let (host, ours) = (Answer::Pages(host.into()), Answer::Pages(ours.into()));
            Reason::of_answers(&calls, &host, &ours)
        };
        let out = advice(MADV_PAGEOUT);
        assert_eq!(of(&[&out], &[0, 1], &[1, 1]), Some(Reason::TakenFromFile));
        assert_eq!(of(&[&out], &[1, 1], &[0, 1]), None);
        assert_eq!(of(&[&keep], &[1, 1], &[0, 1]), Some(Reason::KeptBehind));
        assert_eq!(of(&[&keep], &[0, 1], &[1, 0]), None);
        assert_eq!(of(&[&grow], &[1, 1], &[0, 1]), None);
    }
}
