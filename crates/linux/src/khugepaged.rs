//! khugepaged: its files, and a go of it.
//!
//! ```text
//!   transparent_hugepage/khugepaged/pages_to_scan ──▶ how far a go looks
//!                                  /max_ptes_*    ──▶ which ranges it collapses
//!   scan(spaces) ── stops ─▶ the next goes on there ── the last space's end ─▶ full_scans + 1
//! ```
//!
//! A go asks what faults ask: the switches of sizes (`transparent_hugepage/enabled`), a process's
//! own, and what was advised about an area.
//!
//! **Invariants**
//! - H1. A go looks at no more ranges than `pages_to_scan` begins, and at none of them twice.
//! - H2. What is read can be written back, where the file can be written, and changes nothing.
//!
//! **Locking.** A write and a go take `&mut self`; the spaces may be at work beside them.
//!
//! **Not here**: the task that calls [`Khugepaged::scan`], and the time that it sleeps.

use crate::errno::Errno;
use crate::numbers::of_sysfs;
use crate::sys::THP;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use foliant::compact::{CompactRequest, Effort, Want};
use foliant::fault::{Orders, ProcessSwitch};
use foliant::manager::CollapseLimits;
use foliant::space::{Flags, SpaceId};
use foliant::table::Paging;
use foliant::{Manager, SizeEvent};
use foliant_machine::Machine;
use foliant_units::{Nanos, Order, Pages, Va};
use linux_raw_sys::errno;

const FOLDER: &str = "khugepaged";
/// Pages of a range that may be missing, swapped or shared, at most: one has to be there.
const PTES_MAX: u64 = Order::SIZE_2M.pages().get() - 1;

/// A file's name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum File {
    Defrag,
    PagesToScan,
    ScanSleep,
    AllocSleep,
    MaxPtesNone,
    MaxPtesSwap,
    MaxPtesShared,
    PagesCollapsed,
    FullScans,
}

const FILES: [(File, &str); 9] = [
    (File::Defrag, "defrag"),
    (File::PagesToScan, "pages_to_scan"),
    (File::ScanSleep, "scan_sleep_millisecs"),
    (File::AllocSleep, "alloc_sleep_millisecs"),
    (File::MaxPtesNone, "max_ptes_none"),
    (File::MaxPtesSwap, "max_ptes_swap"),
    (File::MaxPtesShared, "max_ptes_shared"),
    (File::PagesCollapsed, "pages_collapsed"),
    (File::FullScans, "full_scans"),
];

impl File {
    fn named(path: &str) -> Result<File, Errno> {
        let name = path.strip_prefix(THP).and_then(|rest| rest.strip_prefix('/'));
        let name = name.and_then(|rest| rest.strip_prefix(FOLDER)?.strip_prefix('/'));
        let found = name.and_then(|name| FILES.iter().find(|(_, known)| *known == name));
        found.map(|(file, _)| *file).ok_or(Errno(errno::ENOENT))
    }
    /// The largest number that it takes; `None` where it takes none.
    fn most(self) -> Option<u64> {
        match self {
            File::Defrag => Some(1),
            File::PagesToScan | File::ScanSleep | File::AllocSleep => Some(u32::MAX.into()),
            File::MaxPtesNone | File::MaxPtesSwap | File::MaxPtesShared => Some(PTES_MAX),
            File::PagesCollapsed | File::FullScans => None,
        }
    }
}

/// Where a go stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stop {
    /// Which space in the list it was, for when it is there no more.
    nth: usize,
    space: SpaceId,
    at: Va,
}

/// khugepaged's settings, what it counted, and how far it is: a kernel has one of these.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Khugepaged {
    /// What each file shows, in the order of `FILES`.
    numbers: [u64; FILES.len()],
    stop: Option<Stop>,
}

impl Default for Khugepaged {
    /// As when Linux begins.
    fn default() -> Khugepaged {
        let pages = Order::SIZE_2M.pages().get();
        let numbers = [1, 8 * pages, 10_000, 60_000, PTES_MAX, pages / 8, pages / 2, 0, 0];
        Khugepaged { numbers, stop: None }
    }
}

impl Khugepaged {
    /// The names of its files, from `/sys/kernel/mm` on.
    pub fn names() -> Vec<String> {
        FILES.iter().map(|(_, name)| format!("{THP}/{FOLDER}/{name}")).collect()
    }
    /// What a file shows.
    pub fn read(&self, path: &str) -> Result<String, Errno> {
        Ok(format!("{}\n", self.get(File::named(path)?)))
    }
    /// Writes a file; the next go asks it.
    pub fn write(&mut self, path: &str, text: &str) -> Result<(), Errno> {
        let file = File::named(path)?;
        let most = file.most().ok_or(Errno(errno::EACCES))?;
        let number = match (of_sysfs(text), file) {
            (Ok(0), File::PagesToScan) => Err(Errno::INVAL),
            (Ok(number), _) if number <= most => Ok(number),
            // Of a switch alone Linux says that a number is too large to be one.
            (Err(why), File::Defrag) => Err(why),
            _ => Err(Errno::INVAL),
        };
        *self.number(file) = number?;
        Ok(())
    }
    fn number(&mut self, file: File) -> &mut u64 {
        &mut self.numbers[file as usize]
    }
    fn get(&self, file: File) -> u64 {
        self.numbers[file as usize]
    }

    /// Looks at `pages_to_scan` pages of these spaces, from where the last go stopped, and makes
    /// folios of what is within the limits. Says how long to sleep until the next go: longer where
    /// there was no block for a folio.
    ///
    /// The spaces are those of all processes, in an order that stays. A go ends with the last one
    /// at the latest, and the next begins with the first.
    pub fn scan<M: Machine, P: Paging>(
        &mut self,
        mm: &Manager<'_, M, P>,
        spaces: &[SpaceId],
    ) -> Nanos {
        let asking = Flags::READ_WRITE.with(Flags::HUGEPAGE);
        let sizes = mm.policy().allowed(asking, ProcessSwitch::On);
        let refused = || refusals(mm, sizes);
        let before = refused();
        if let Some(largest) = sizes.largest_first().next().filter(|_| !spaces.is_empty()) {
            if self.get(File::Defrag) == 1 && mm.free_blocks().within(largest) == 0 {
                let grain = mm.move_grain();
                let one = CompactRequest { want: Want::One, effort: Effort::FAULT, grain };
                mm.compact(&one, &mut []);
            }
            let ranges = self.get(File::PagesToScan).div_ceil(largest.pages().get());
            self.go(mm, spaces, ranges);
        }
        let sleep = if refused() > before { File::AllocSleep } else { File::ScanSleep };
        Nanos(self.get(sleep) * 1_000_000)
    }
    /// Looks at so many ranges (H1).
    fn go<M: Machine, P: Paging>(
        &mut self,
        mm: &Manager<'_, M, P>,
        spaces: &[SpaceId],
        ranges: u64,
    ) {
        let limits = CollapseLimits {
            max_ptes_none: Pages::new(self.get(File::MaxPtesNone)),
            max_ptes_shared: Pages::new(self.get(File::MaxPtesShared)),
        };
        let mut left = ranges;
        let stop = self.stop.take();
        let is_there = |stop: &Stop| spaces.iter().position(|space| *space == stop.space);
        let (first, from) = match stop.map(|stop| (stop, is_there(&stop))) {
            Some((stop, Some(nth))) => (nth, stop.at),
            Some((stop, None)) => (stop.nth, Va::new(0)),
            None => (0, Va::new(0)),
        };
        for (nth, space) in spaces.iter().copied().enumerate().skip(first) {
            let from = if nth == first { from } else { Va::new(0) };
            let (done, next) = mm.collapse_scan(space, from, left, limits);
            *self.number(File::PagesCollapsed) += done.collapsed;
            left -= done.ranges;
            if let Some(at) = next {
                self.stop = Some(Stop { nth, space, at });
                return;
            }
        }
        *self.number(File::FullScans) += 1;
    }
}

/// How often there was no block for a folio of one of these sizes.
fn refusals<M: Machine, P: Paging>(mm: &Manager<'_, M, P>, sizes: Orders) -> u64 {
    let refused = |order| mm.size_total(order, SizeEvent::CollapseAllocFailed);
    sizes.largest_first().map(refused).sum()
}
