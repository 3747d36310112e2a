//! What both sides can be asked.

use crate::call::{Answer, Call};
use core::fmt;
use core::ops::Range;
use std::io;

/// An area, as a line of `/proc/PID/maps` says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AreaSeen {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Such as `rw-p`.
    pub(crate) rights: String,
    /// Of a file in memory: the offset and the name; of a segment its number too, which is that of
    /// the inode and no file's else.
    pub(crate) file: String,
}

/// How names of files in memory begin.
const IN_MEMORY: [&str; 2] = ["/memfd:", "/dev/zero"];
/// How names of segments of System V begin.
const SEGMENT: &str = "/SYSV";

impl AreaSeen {
    pub(crate) fn parse(line: &str) -> Option<AreaSeen> {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (number(start)?, number(end)?);
        let rights = words.next()?.to_owned();
        let rest: Vec<&str> = words.collect();
        let file = match rest[..] {
            [offset, device, inode, name, ..] if name.starts_with(SEGMENT) => {
                format!("{offset} {device} {inode} {name}")
            }
            [offset, _, _, name, ..] if IN_MEMORY.iter().any(|begin| name.starts_with(begin)) => {
                format!("{offset} {name}")
            }
            _ => String::new(),
        };
        Some(AreaSeen { start, end, rights, file })
    }
    /// Whether it maps a file in memory.
    pub(crate) fn is_of_file(&self) -> bool {
        !self.file.is_empty()
    }
    pub(crate) fn is_readable(&self) -> bool {
        self.rights.starts_with('r')
    }
}

impl fmt::Display for AreaSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x} {} {}", self.start, self.end, self.rights, self.file)
    }
}

/// What is compared of an area in `smaps`; the rest depends on what others do, or on how many have
/// a page.
const FIELDS: [&str; 6] =
    ["Size:", "KernelPageSize:", "MMUPageSize:", "Rss:", "Anonymous:", "VmFlags:"];

/// The areas of an `smaps`, each as its line and the fields that are compared, without those that
/// were there before the first call and those of a pool's pages, which have a file on Linux.
pub(crate) fn areas_of_smaps(text: &str, foreign: &[AreaSeen]) -> Vec<String> {
    let mut areas: Vec<String> = Vec::new();
    let mut is_told = false;
    for line in text.lines() {
        let first = line.split_whitespace().next().unwrap_or_default();
        if let Some(area) = AreaSeen::parse(line) {
            let is_foreign = foreign.iter().any(|other| other.start == area.start);
            is_told =
                !is_foreign && !line.contains("anon_hugepage") && !line.ends_with("[vsyscall]");
            if is_told {
                // The number of the inode is anybody's.
                let words = line.split_whitespace().enumerate().filter(|(nth, _)| *nth != 4);
                areas.push(words.map(|(_, word)| word).collect::<Vec<&str>>().join(" "));
            }
        } else if is_told && FIELDS.contains(&first) {
            // Whether a kernel tracks writes softly is its builder's choice, and whether it notes
            // that there were guards its release's.
            let line = line.replace(" sd ", " ").replace(" gu ", " ");
            areas.last_mut().into_iter().for_each(|area| *area += &format!("\n{line}"));
        }
    }
    areas
}

/// The lines of `status` that are compared. What is resident of ordinary files, and with it `VmRSS`
/// and `VmHWM`, is the program's own, and the host counts the last one roughly, from a count for
/// each of its CPUs.
const LINES: [&str; 11] = [
    "VmPeak:",
    "VmSize:",
    "VmLck:",
    "VmPin:",
    "RssAnon:",
    "RssShmem:",
    "VmData:",
    "VmStk:",
    "VmPTE:",
    "VmSwap:",
    "HugetlbPages:",
];

/// Kilobytes that are there of what lay there before the first call.
#[derive(Clone, Copy, Default)]
pub(crate) struct Foreign {
    pub(crate) anonymous: u64,
    pub(crate) of_files: u64,
}

/// How large a process is: what is compared of `status` and `statm`, less what was there before the
/// first call.
pub(crate) fn size_of(status: &str, statm: &str, foreign: Foreign) -> Vec<(String, u64)> {
    let of_line = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, kilobytes) = (words.next()?, words.next()?.parse::<u64>().ok()?);
        let less = match name {
            "RssAnon:" => foreign.anonymous,
            "RssShmem:" => foreign.of_files,
            _ => 0,
        };
        LINES.contains(&name).then(|| (name.to_owned(), kilobytes.saturating_sub(less)))
    };
    let mut size: Vec<(String, u64)> = status.lines().filter_map(of_line).collect();
    let numbers: Vec<u64> = statm.split_whitespace().flat_map(str::parse).collect();
    for (nth, name) in [(0, "statm size"), (5, "statm data")] {
        size.push((name.to_owned(), numbers.get(nth).copied().unwrap_or_default()));
    }
    size
}

/// Where the words of a page are that are looked at: its first and last one, and one in which many
/// files end.
pub(crate) const WORDS: [u64; 3] = [0, 96, 4088];

/// A page, as `/proc/PID/pagemap` and a look at some of its bytes show it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct PageSeen {
    /// Bits of its word in `pagemap`: present, swapped, a file's, a guard, write-protected,
    /// exclusive. Whether a kernel tracks writes softly is its builder's choice.
    bits: u64,
    /// Those of its bytes at [`WORDS`], where it is there and can be read.
    pub(crate) words: [u64; WORDS.len()],
}

impl PageSeen {
    const PRESENT: u64 = 1 << 63;
    /// What is compared of a word in `pagemap`.
    const COMPARED: u64 = PageSeen::PRESENT | 1 << 62 | 1 << 61 | 1 << 58 | 1 << 57 | 1 << 56;

    /// A page with this word in `pagemap`, not read.
    pub(crate) fn of(pagemap: u64) -> PageSeen {
        PageSeen { bits: pagemap & PageSeen::COMPARED, words: [0; WORDS.len()] }
    }
    /// Whether it is there, and no file's.
    pub(crate) fn is_anonymous(self) -> bool {
        self.bits & (PageSeen::PRESENT | 1 << 61) == PageSeen::PRESENT
    }
    /// Whether it is there, and a file's.
    pub(crate) fn is_files(self) -> bool {
        self.is_there() && !self.is_anonymous()
    }
    pub(crate) fn is_there(self) -> bool {
        self.bits & PageSeen::PRESENT != 0
    }
    /// Whether the two differ in what a program sees of them: that they are there, and contents.
    pub(crate) fn is_other(self, other: PageSeen) -> bool {
        (self.is_there(), self.words) != (other.is_there(), other.words)
    }
}

impl fmt::Display for PageSeen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_there() {
            true => {
                let [first, middle, last] = self.words;
                let bits = self.bits;
                write!(f, "holds {first:#x}, {middle:#x}, {last:#x}, pagemap {bits:#018x}")
            }
            false => write!(f, "is not there, pagemap {:#018x}", self.bits),
        }
    }
}

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
    /// The text of `/proc/PID/smaps`.
    fn smaps(&self, who: usize) -> Result<String, Failed>;
    /// What [`size_of`] says of a process.
    fn size(&self, who: usize) -> Result<Vec<(String, u64)>, Failed>;
    /// The pages of `start..end`, which lie in `area`.
    fn pages(&self, who: usize, area: &AreaSeen, of: &Range<u64>) -> Result<Vec<PageSeen>, Failed>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_what_is_foreign_is_taken_off() {
        let status = "Name:\tx\nVmPeak:\t      40 kB\nVmRSS:\t 9 kB\nRssAnon:\t      36 kB\nRssShmem:\t 8 kB\n";
        let size = size_of(status, "10 3 1 1 0 6 0\n", Foreign { anonymous: 8, of_files: 4 });
        let named = |(name, value): (&str, u64)| (name.to_owned(), value);
        let of_status = [("VmPeak:", 40), ("RssAnon:", 28), ("RssShmem:", 4)];
        let of_statm = [("statm size", 10), ("statm data", 6)];
        let wanted: Vec<(String, u64)> = of_status.into_iter().chain(of_statm).map(named).collect();
        assert_eq!(size, wanted);
    }

    #[test]
    fn a_page_is_what_pagemap_and_a_look_say() {
        let mut page = PageSeen::of(1 << 63 | 1 << 56 | 1 << 55 | 0x1234);
        page.words = [7, 0, 3];
        assert_eq!(page.to_string(), "holds 0x7, 0x0, 0x3, pagemap 0x8100000000000000");
        assert!(page.is_there() && page.is_anonymous());
        let (shared, gone) = (PageSeen::of(1 << 63), PageSeen::of(1 << 62 | 1 << 58));
        assert!(page.is_other(shared) && shared.is_other(gone));
        assert!(
            !page.is_other(PageSeen { words: page.words, ..shared }),
            "whose it is shows in pagemap"
        );
        assert_eq!(gone.to_string(), "is not there, pagemap 0x4400000000000000");
        assert!(!PageSeen::of(1 << 63 | 1 << 61).is_anonymous());
    }
}
