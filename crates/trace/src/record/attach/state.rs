//! What a running process's memory is like when its recording begins.

use super::super::procfs;
use super::super::sys::pid_t;
use crate::event::{Area, AreaKind, advice, push_page};
use foliant_units::{FRAME_BYTES, Va, VaRange};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// More ranges than this an event of exec does not hold.
const RANGES_MAX: usize = 30_000;
/// Pages that are looked at before the rings are emptied again.
const AT_ONCE: u64 = 1 << 20;

/// Whether a process may have large pages: not where it, or who started it, switched them off.
pub(crate) fn has_large_pages(pid: pid_t) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("THP_enabled:"));
    line.is_some_and(|enabled| enabled.trim() == "1")
}

/// Where the program break is.
pub(crate) fn brk(pid: pid_t, areas: &[Area]) -> Va {
    let heaps = areas.iter().filter(|area| area.kind == AreaKind::Heap);
    heaps.map(|area| area.range.end()).max().unwrap_or_else(|| procfs::start_brk(pid))
}

/// Present pages of anonymous private areas.
#[derive(Default)]
pub(crate) struct Pages {
    own: Vec<VaRange>,
    shared: Vec<VaRange>,
}

/// Reads which pages are present, while the process runs; `between` is called now and then.
pub(crate) fn pages(pid: pid_t, areas: &[Area], mut between: impl FnMut()) -> Pages {
    const PRESENT: u64 = 1 << 63;
    const EXCLUSIVE: u64 = 1 << 56;
    let mut pages = Pages::default();
    let Ok(file) = File::open(format!("/proc/{pid}/pagemap")) else { return pages };
    let mut words = vec![0u8; 64 << 10];
    let mut looked = 0;
    for area in areas.iter().filter(|area| area.kind.is_anonymous_private()) {
        let (mut at, end) = (area.range.start().get(), area.range.end().get());
        while at < end {
            let want = words.len().min(((end - at) / FRAME_BYTES * 8) as usize);
            let got = file.read_at(&mut words[..want], at / FRAME_BYTES * 8).unwrap_or(0);
            if got < 8 {
                break;
            }
            for word in words[..got].as_chunks::<8>().0 {
                let word = u64::from_le_bytes(*word);
                if word & PRESENT != 0 {
                    let is_own = word & EXCLUSIVE != 0;
                    let list = if is_own { &mut pages.own } else { &mut pages.shared };
                    push_page(list, Va::new(at));
                }
                at += FRAME_BYTES;
            }
            looked += got as u64 / 8;
            if looked >= AT_ONCE {
                looked = 0;
                between();
            }
        }
    }
    pages
}

impl Pages {
    /// Leaves out these.
    pub(crate) fn without(&mut self, out: &BTreeSet<u64>) {
        for list in [&mut self.own, &mut self.shared] {
            let mut left = Vec::new();
            for range in list.iter() {
                let mut at = range.start().get();
                for &page in out.range(at..range.end().get()) {
                    left.extend(VaRange::new(Va::new(at), Va::new(page)));
                    at = page + FRAME_BYTES;
                }
                left.extend(VaRange::new(Va::new(at), range.end()));
            }
            left.retain(|range| !range.is_empty());
            *list = left;
        }
    }
    /// Ranges that only this process has, as many as an event holds.
    pub(crate) fn own_first(&self) -> Vec<VaRange> {
        self.own.iter().copied().take(RANGES_MAX).collect()
    }
    /// The others of these.
    pub(crate) fn own_rest(&self) -> impl Iterator<Item = VaRange> {
        self.own.iter().copied().skip(RANGES_MAX)
    }
    /// Ranges that another process has as well, or that are the page of zeros.
    pub(crate) fn shared(&self) -> impl Iterator<Item = VaRange> {
        self.shared.iter().copied()
    }
}

/// Advice that was given before and lasts, from `/proc/PID/smaps`.
pub(crate) fn marks(pid: pid_t, areas: &[Area]) -> Vec<(VaRange, u32)> {
    const LASTING: [(&str, u32); 5] = [
        ("dc", advice::DONTFORK),
        ("wf", advice::WIPEONFORK),
        ("hg", advice::HUGEPAGE),
        ("nh", advice::NOHUGEPAGE),
        ("lo", advice::LOCK),
    ];
    let text = fs::read(format!("/proc/{pid}/smaps")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let (mut range, mut marks) = (None, Vec::new());
    for line in text.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let flags: Vec<&str> = flags.split_whitespace().collect();
            let set = LASTING.iter().filter(|(flag, _)| flags.contains(flag));
            marks.extend(set.filter_map(|(_, advice)| Some((range?, *advice))));
        } else if !line.split_whitespace().next().unwrap_or(":").ends_with(':') {
            let area = procfs::area(line);
            // What was mapped meanwhile tells its own story.
            range = area.filter(|area| areas.contains(area)).map(|area| area.range);
        }
    }
    marks
}
