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
    /// Of a file in memory: the offset and the name, without the number of the inode.
    pub(crate) file: String,
}

/// How names of files in memory begin.
const IN_MEMORY: [&str; 2] = ["/memfd:", "/dev/zero"];

impl AreaSeen {
    pub(crate) fn parse(line: &str) -> Option<AreaSeen> {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (number(start)?, number(end)?);
        let rights = words.next()?.to_owned();
        let rest: Vec<&str> = words.collect();
        let file = match rest[..] {
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
    /// The text of `/proc/PID/smaps`.
    fn smaps(&self, who: usize) -> Result<String, Failed>;
    /// The pages of `start..end`, which lie in `area`.
    fn pages(&self, who: usize, area: &AreaSeen, of: &Range<u64>) -> Result<Vec<PageSeen>, Failed>;
}
