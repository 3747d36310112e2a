//! The passes over a recording's spool, from what was told to the events of the file.
//!
//! ```text
//!   rings, tracer ─ merge ─ assemble ─▶ events ─ guesses, if there are any ─▶ marks ─┐
//!                              └─────── signalled faults ──▶ marks ──────────────────┤
//!                                       events ─────────────────────────── settle ◀──┘──▶ file
//! ```
//!
//! What is known of a fault only later (that a guessed write was a read, that a signal followed) is
//! a bit for its place among the events. The last pass needs no hindsight: it sets every fault's
//! standing and judges it with one and the same model.
//!
//! **Invariants**
//! - W1. Of an event nothing is held but its bits; a model holds what is mapped and present.

use super::RecordError;
use super::assemble::{Assembled, Assembler, Present, Residue, Scope};
use super::attach::{Calls, Protected};
use super::log::{EventLog, EventReader};
use super::marks::Marks;
use super::merge::{Input, Merge};
use super::raw::What;
use super::spool::Spool;
use super::told::Told;
use crate::TraceError;
use crate::budget::{Budget, Spent};
use crate::event::{Access, Event, EventKind, Source, SpaceId, advice};
use crate::naive::{Naive, Report, Snapshot};
use foliant_units::Va;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// Everything was put together, and its events are in the spool.
pub(crate) struct Together {
    pub(crate) assembled: Assembled,
    signalled: Marks,
    snapshots: Vec<Present>,
    protected: Protected,
    has_guesses: bool,
    is_empty: bool,
}

impl Together {
    /// Whether nothing that was seen is recorded.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty
    }
}

/// Puts together what so many rings and the tracer told.
pub(crate) fn assemble(
    spool: &mut Spool,
    rings: usize,
    scope: Scope,
) -> Result<Together, RecordError> {
    let is_attached = scope.attached_until.is_some();
    let mut protected = Protected::default();
    let (mut assembler, mut calls) = (Assembler::new(scope), Calls::default());
    let (mut log, mut has_guesses, mut is_empty) = (EventLog::new(), false, true);
    let mut merge = Merge::new(rings, spool).map_err(|why| spool.failed(why))?;
    let mut write = |event: Event, spool: &mut Spool| {
        has_guesses |= is_guess(&event);
        if is_attached && matches!(event.kind, EventKind::Exec(_)) {
            protected.root(&event);
        }
        protected.add(&event);
        is_empty = false;
        log.put(&event, spool).map_err(|why| spool.failed(why))
    };
    while let Some(input) =
        merge.next(spool, &mut assembler.execs).map_err(|why| spool.failed(why))?
    {
        let time = match input {
            Input::Told(told) => {
                let time = told.time;
                assembler.told(told);
                time
            }
            Input::Raw(raw) => {
                if let What::Exec { .. } = raw.what {
                    merge
                        .seek_exec(raw.tid, raw.time, spool, &mut assembler.execs)
                        .map_err(|why| spool.failed(why))?;
                }
                for (tid, what) in calls.add(&raw, |tid| assembler.space_of(tid)) {
                    assembler.told(Told { time: raw.time, tid, what });
                }
                assembler.raw(raw);
                raw.time
            }
        };
        while let Some(event) = assembler.release(time) {
            write(event, spool)?;
        }
    }
    assembler.close();
    while let Some(event) = assembler.release(u64::MAX) {
        write(event, spool)?;
    }
    log.send(spool).map_err(|why| spool.failed(why))?;
    let (mut assembled, signalled, snapshots) = assembler.finish();
    assembled.remarks.append(&mut calls.remarks);
    Ok(Together { assembled, signalled, snapshots, protected, has_guesses, is_empty })
}

/// Goes over the events once more, settles them, and hands each to `write`.
pub(crate) fn settle(
    spool: &Spool,
    together: Together,
    mut write: impl FnMut(&Event) -> Result<(), RecordError>,
) -> Result<(Assembled, Report), RecordError> {
    // No file told these events: they are as many as the program that was run made them.
    let budget = Budget::unlimited();
    let Together { mut assembled, signalled, snapshots, mut protected, has_guesses, .. } = together;
    let reads = if has_guesses { reads(spool, &budget)? } else { Marks::default() };
    let mut snapshots = snapshots.into_iter().peekable();
    let mut naive = Naive::new(&budget);
    let mut events = EventReader::new();
    for place in 0.. {
        let Some(mut event) = events.next(spool).map_err(|why| spool.failed(why))? else { break };
        while let Some((_, space, kernel)) = snapshots.next_if(|s| s.0 == place) {
            assembled.residue.compare(kernel, naive.present(space));
        }
        if is_present(&event) {
            for placed in assembled.place(&mut naive, &event).map_err(TraceError::Spent)? {
                write(&placed)?;
            }
            continue;
        }
        if let EventKind::Fault(fault) = &mut event.kind
            && reads.has(place)
        {
            fault.access = Access::Read;
        }
        let more = protected.settle(&mut event);
        naive.settle(&mut event, signalled.has(place)).map_err(TraceError::Spent)?;
        write(&event)?;
        for mut event in more {
            naive.settle(&mut event, false).map_err(TraceError::Spent)?;
            write(&event)?;
        }
    }
    Ok((assembled, naive.finish()))
}

impl Assembled {
    /// What pages that are there come to, of those that nothing explains: the kernel filled them
    /// for somebody.
    pub(crate) fn place(&mut self, naive: &mut Naive, found: &Event) -> Result<Vec<Event>, Spent> {
        let mut all = naive.unexplained(found)?;
        for event in &mut all {
            if let EventKind::Populate { range, .. } = event.kind {
                self.unseen += range.pages().get();
            }
            naive.settle(event, false)?;
        }
        Ok(all)
    }
}

/// What a recording says of so many pages that came unseen. Where the kernel's own faults are not
/// recorded, these brought most of them, and what is said of those is enough.
pub(crate) fn unseen(pages: u64, kernel_faults: bool) -> Option<String> {
    let name = if pages == 1 { "page" } else { "pages" };
    let text =
        format!("{pages} {name} came unseen (direct I/O, another process), placed where found");
    (pages > 0 && kernel_faults).then_some(text)
}

/// Whether it tells which pages there are.
pub(crate) fn is_present(event: &Event) -> bool {
    matches!(event.kind, EventKind::Advise { advice: advice::PRESENT, .. })
}

impl Residue {
    /// Adds what the kernel and a replay have present in one space.
    pub(crate) fn compare(&mut self, kernel: Vec<Va>, replay: Vec<Va>) {
        let kernel: BTreeSet<Va> = kernel.into_iter().collect();
        let replay: BTreeSet<Va> = replay.into_iter().collect();
        let same = kernel.intersection(&replay).count() as u64;
        self.spaces += 1;
        self.same += same;
        self.only_kernel += kernel.len() as u64 - same;
        self.only_replay += replay.len() as u64 - same;
    }
}

pub(crate) fn is_guess(event: &Event) -> bool {
    matches!(&event.kind, EventKind::Fault(fault) if fault.source == Source::Inferred)
}

fn reads(spool: &Spool, budget: &Budget) -> Result<Marks, RecordError> {
    let (mut guesses, mut events, mut reads) =
        (Guesses::new(budget), EventReader::new(), Marks::default());
    for place in 0.. {
        let Some(event) = events.next(spool).map_err(|why| spool.failed(why))? else { break };
        guesses.add(place, &event, &mut reads).map_err(TraceError::Spent)?;
    }
    Ok(reads)
}

/// Finds guessed writes that were reads: a later write to the same page faults again, or the area
/// forbids writing.
pub(crate) struct Guesses {
    model: Snapshot,
    /// The last guess of each page that is still the same page.
    pages: HashMap<SpaceId, BTreeMap<u64, u64>>,
}

impl Guesses {
    pub(crate) fn new(budget: &Budget) -> Guesses {
        Guesses { model: Snapshot::new(budget), pages: HashMap::new() }
    }

    /// Takes in the event of a place; places of reads go to `reads`.
    pub(crate) fn add(
        &mut self,
        place: u64,
        event: &Event,
        reads: &mut impl Extend<u64>,
    ) -> Result<(), Spent> {
        let pages = self.pages.entry(event.space).or_default();
        let span = |r: &foliant_units::VaRange| r.start().get()..r.end().get();
        match &event.kind {
            EventKind::Exec(_) | EventKind::Fork { .. } => pages.clear(),
            EventKind::Unmap { range } => forget(pages, span(range)),
            EventKind::Map(area) => forget(pages, span(&area.range)),
            EventKind::Remap { old, new, .. } => {
                forget(pages, span(old));
                forget(pages, span(new));
            }
            EventKind::Advise { range, advice } if *advice == advice::DONTNEED => {
                forget(pages, span(range));
            }
            EventKind::Fault(fault) => {
                let page = fault.page().get();
                if fault.access == Access::Write {
                    reads.extend(pages.remove(&page));
                }
                if fault.source == Source::Inferred {
                    if self.model.forbids_write(event.space, fault.page()) {
                        reads.extend([place]);
                    } else {
                        pages.insert(page, place);
                    }
                }
            }
            _ => {}
        }
        self.model.follow(event)?;
        if let EventKind::Exec(_) | EventKind::Exit { last: true } = event.kind {
            self.pages.retain(|space, _| self.model.has(*space));
        }
        Ok(())
    }
}

fn forget(pages: &mut BTreeMap<u64, u64>, range: Range<u64>) {
    if !range.is_empty() {
        pages.extract_if(range, |_, _| true).for_each(drop);
    }
}
