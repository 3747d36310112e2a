//! Which pages a process has: found by one call for a range, however large.
//!
//! Pages come without a fault where the kernel fills them for somebody: a read around the page
//! cache, another process's write, a ring of requests. What is present shortly before it goes shows
//! them; it is told as advice of a number that the kernel has not, and becomes
//! [`EventKind::Populate`] for what nothing else explains.
//!
//! **Not here**: kernels before 6.7, which have no such call: there such pages stay unseen.

use super::procfs;
use super::sys::{self, pid_t};
use crate::event::{EventKind, advice};
use foliant_units::VaRange;
use std::collections::HashMap;
use std::fs::File;

/// How far above a new break pages are looked for.
const HEAP: u64 = 128 << 20;

/// The page maps of processes, by their first thread; of a program that was left, an old one.
#[derive(Default)]
pub(crate) struct Resident {
    maps: HashMap<pid_t, File>,
}

impl Resident {
    /// The process runs another program, or is gone.
    pub(crate) fn forget(&mut self, group: pid_t) {
        self.maps.remove(&group);
    }

    /// Its pages in a range that belong to it alone or to its relatives: no file's, no zeros.
    pub(crate) fn pages(&mut self, group: pid_t, range: VaRange) -> Vec<EventKind> {
        if range.is_empty() {
            return Vec::new();
        }
        if !self.maps.contains_key(&group)
            && let Ok(map) = File::open(format!("/proc/{group}/pagemap"))
        {
            self.maps.insert(group, map);
        }
        let Some(map) = self.maps.get(&group) else { return Vec::new() };
        let runs = sys::resident(map, range).unwrap_or_default();
        let tell = |range| EventKind::Advise { range, advice: advice::PRESENT };
        runs.into_iter().map(tell).collect()
    }
}

/// What a call is about to take away, where it may be known by its arguments.
pub(crate) fn goes(nr: libc::c_long, args: &[u64; 6]) -> VaRange {
    let [a, b, c, d, ..] = *args;
    let whole = procfs::sized;
    let drops = [advice::DONTNEED, advice::DONTNEED_LOCKED, advice::GUARD_INSTALL];
    match nr {
        libc::SYS_munmap | libc::SYS_mremap => whole(a, b),
        libc::SYS_madvise if drops.contains(&(c as u32)) => whole(a, b),
        libc::SYS_mmap if d & libc::MAP_FIXED as u64 != 0 => whole(a, b),
        libc::SYS_brk if a != 0 => whole(a, HEAP),
        libc::SYS_fork | libc::SYS_clone | libc::SYS_clone3 => everything(),
        _ => VaRange::default(),
    }
}

/// All that a process has, unless it asked for addresses of more than 47 bits.
pub(crate) fn everything() -> VaRange {
    procfs::pages(0, 0x7fff_ffff_f000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_is_known_before_the_call() {
        let of = |nr, args| goes(nr, &args);
        let there = procfs::pages(0x5000, 0x9000);
        assert_eq!(of(libc::SYS_munmap, [0x5000, 0x3001, 0, 0, 0, 0]), there);
        let advise = |number| of(libc::SYS_madvise, [0x5000, 0x4000, number, 0, 0, 0]);
        assert_eq!(advise(u64::from(advice::DONTNEED)), there);
        assert!(advise(u64::from(advice::FREE)).is_empty());
        let map = |flags: i32| of(libc::SYS_mmap, [0x5000, 0x4000, 3, flags as u64, 0, 0]);
        assert_eq!(map(libc::MAP_FIXED | libc::MAP_PRIVATE), there);
        assert!(map(libc::MAP_PRIVATE).is_empty(), "an address that is only wished for");
        assert!(of(libc::SYS_brk, [0; 6]).is_empty(), "a question");
        assert_eq!(of(libc::SYS_fork, [0; 6]), everything());
        assert!(of(libc::SYS_mprotect, [0x5000, 0x4000, 3, 0, 0, 0]).is_empty());
    }

    #[test]
    fn pages_of_this_process_are_found_in_runs() {
        const PAGE: usize = 4096;
        // Large pages would bring more than is written to.
        let memory = vec![0u8; 64 * PAGE];
        let first = memory.as_ptr().addr().next_multiple_of(PAGE);
        let mut memory = memory;
        let start = first - memory.as_ptr().addr();
        for page in [3, 4, 9] {
            memory[start + page * PAGE] = 1;
        }
        let own = std::process::id() as pid_t;
        let mut resident = Resident::default();
        let run = |from: usize, to: usize| {
            let at = |page: usize| (first + page * PAGE) as u64;
            procfs::pages(at(from), at(to))
        };
        let found = resident.pages(own, run(0, 12));
        let has = |range: VaRange| {
            found.iter().any(|event| match event {
                EventKind::Advise { range: run, .. } => run.intersect(range) == range,
                _ => false,
            })
        };
        // None at all is what a kernel says that has no such call.
        assert!(found.is_empty() || has(run(3, 5)) && has(run(9, 10)), "{found:?}");
        resident.forget(own);
        assert!(resident.maps.is_empty());
    }
}
