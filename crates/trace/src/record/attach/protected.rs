//! Pages that were there when a recording began and that only looked like the process's own.
//!
//! After a fork whose child is gone again, a page belongs to one process alone and its entry still
//! forbids writing, which no file of `/proc` tells. The first write tells: it faults, and the
//! processor finds a page. So whether such a page was writable is known when the whole recording
//! has been looked at, and the event that lists it is written afterwards.
//!
//! **Invariants**
//! - X1. What is held is ranges of pages that were there in the beginning and have not been
//!   touched, and pages that turned out to be protected.

use super::super::procfs;
use crate::event::{Access, Event, EventKind, Found, SpaceId, advice};
use foliant_units::{FRAME_BYTES, Va, VaRange};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Pages from the beginning, by space.
#[derive(Default)]
pub(crate) struct Protected {
    untouched: HashMap<SpaceId, BTreeMap<u64, u64>>,
    found: HashMap<SpaceId, BTreeSet<u64>>,
}

impl Protected {
    /// The space of an event of exec holds what was there before the recording.
    pub(crate) fn root(&mut self, event: &Event) {
        if let EventKind::Exec(exec) = &event.kind {
            let ranges = exec.present.iter().map(|r| (r.start().get(), r.end().get()));
            self.untouched.insert(event.space, ranges.collect());
        }
    }

    /// Takes in an event.
    pub(crate) fn add(&mut self, event: &Event) {
        if self.untouched.is_empty() {
            return;
        }
        let Some(pages) = self.untouched.get_mut(&event.space) else { return };
        match &event.kind {
            EventKind::Fault(fault) => {
                let page = fault.page().get();
                let was_there = take(pages, page, page.saturating_add(FRAME_BYTES));
                let protected = fault.access == Access::Write && fault.found == Found::Protected;
                if was_there && protected {
                    self.found.entry(event.space).or_default().insert(page);
                }
            }
            EventKind::Fork { .. } | EventKind::Exit { last: true } => {
                self.untouched.remove(&event.space);
            }
            EventKind::Unmap { range } => drop(take_range(pages, *range)),
            EventKind::Map(area) => drop(take_range(pages, area.range)),
            EventKind::Remap { old, new, .. } => {
                take_range(pages, *old);
                take_range(pages, *new);
            }
            EventKind::Advise { range, advice } if drops(*advice) => {
                take_range(pages, *range);
            }
            EventKind::Populate { range, access: Access::Write } => {
                take_range(pages, *range);
            }
            _ => {}
        }
    }

    /// Takes what turned out to be protected out of an event of exec, and gives back the events
    /// that say so.
    pub(crate) fn settle(&mut self, event: &mut Event) -> Vec<Event> {
        let Some(found) = self.found.remove(&event.space) else { return Vec::new() };
        let EventKind::Exec(exec) = &mut event.kind else { return Vec::new() };
        let mut left = Vec::new();
        for range in &exec.present {
            let mut at = range.start().get();
            for &page in found.range(at..range.end().get()) {
                left.extend(VaRange::new(Va::new(at), Va::new(page)));
                at = page + FRAME_BYTES;
            }
            left.extend(VaRange::new(Va::new(at), range.end()));
        }
        left.retain(|range| !range.is_empty());
        exec.present = left;
        let pages: Vec<Va> = found.into_iter().map(Va::new).collect();
        let populate = |range| EventKind::Populate { range, access: Access::Read };
        let ranges = procfs::join(&pages).into_iter();
        ranges.map(|range| Event { kind: populate(range), ..event.clone() }).collect()
    }
}

fn drops(number: u32) -> bool {
    [advice::DONTNEED, advice::DONTNEED_LOCKED, advice::GUARD_INSTALL].contains(&number)
}

fn take_range(pages: &mut BTreeMap<u64, u64>, range: VaRange) -> bool {
    take(pages, range.start().get(), range.end().get())
}

/// Takes a range out of others; whether anything of it was there.
fn take(pages: &mut BTreeMap<u64, u64>, start: u64, end: u64) -> bool {
    if start >= end {
        return false;
    }
    let mut was_there = false;
    if let Some((&below, below_end)) = pages.range_mut(..start).next_back()
        && *below_end > start
    {
        was_there = true;
        let behind = std::mem::replace(below_end, start);
        debug_assert!(below < start);
        if behind > end {
            pages.insert(end, behind);
            return true;
        }
    }
    let inside: Vec<(u64, u64)> = pages.range(start..end).map(|(s, e)| (*s, *e)).collect();
    for (at, its_end) in inside {
        was_there = true;
        pages.remove(&at);
        if its_end > end {
            pages.insert(end, its_end);
        }
    }
    was_there
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_taken_out_of_ranges() {
        let check = |start, end, is_there, left: &[(u64, u64)]| {
            let mut pages = BTreeMap::from([(10, 20), (30, 40)]);
            assert_eq!(take(&mut pages, start, end), is_there, "{start}..{end}");
            assert_eq!(pages.into_iter().collect::<Vec<_>>(), left, "{start}..{end}");
        };
        check(0, 10, false, &[(10, 20), (30, 40)]);
        check(20, 30, false, &[(10, 20), (30, 40)]);
        check(12, 12, false, &[(10, 20), (30, 40)]);
        check(12, 14, true, &[(10, 12), (14, 20), (30, 40)]);
        check(10, 11, true, &[(11, 20), (30, 40)]);
        check(15, 35, true, &[(10, 15), (35, 40)]);
        check(0, 99, true, &[]);
        check(10, 40, true, &[]);
    }
}
