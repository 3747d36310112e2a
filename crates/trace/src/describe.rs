//! A summary of a trace: who ran, what was mapped, how it faulted.

use crate::event::{
    Access, AreaKind, Event, EventKind, MapFlags, Origin, Source, SpaceId, Standing, brk_pages,
};
use crate::lineage::Lineage;
use foliant_units::{Bytes, VaRange};
use std::collections::BTreeMap;

/// What is in a trace.
#[derive(Clone, Debug, Default)]
pub struct Description {
    /// Events in all.
    pub events: u64,
    /// From the first event to the last, in nanoseconds.
    pub span_ns: u64,
    /// Processes: the first, every fork, and every child that shared its parent's space for a while.
    pub processes: u64,
    /// Threads, of all processes.
    pub threads: u64,
    /// Address spaces.
    pub spaces: u64,
    /// The programs that were started, in order.
    pub programs: Vec<String>,
    /// Areas that came into being, by kind in the order of [`AreaKind::ALL`]: count and largest.
    pub areas: [(u64, Bytes); 7],
    /// Faults by kind of area in the order of [`AreaKind::ALL`], then by access: read, write, exec.
    pub faults: [[u64; 3]; 7],
    /// Faults in no area.
    pub faults_outside: u64,
    /// Faults in all.
    pub faults_all: u64,
    /// Faults that the kernel took on the program's behalf.
    pub faults_of_kernel: u64,
    /// Faults by how the access is known: hardware, decoded, inferred.
    pub faults_by_source: [u64; 3],
    /// Faults that raced with another thread's.
    pub raced: u64,
    /// Faults caused by a translation that the processor had kept.
    pub stale: u64,
    /// Faults that nothing explains.
    pub unexplained: u64,
    /// System calls that changed a space: map, unmap, protect, remap, advise, break.
    pub changes: u64,
    /// The most that was mapped at once in all spaces together, without special areas.
    pub peak_mapped: Bytes,
}

impl Description {
    /// Faults in private memory without a file.
    pub fn anonymous_faults(&self) -> u64 {
        let of = |kind: AreaKind| self.faults[kind as usize].iter().sum::<u64>();
        AreaKind::ALL.into_iter().filter(|k| k.is_anonymous_private()).map(of).sum()
    }
}

/// Describes events as they come, so that a trace need not be in memory.
#[derive(Default)]
pub struct Describer {
    lineage: Lineage,
    spaces: BTreeMap<SpaceId, BTreeMap<u64, (u64, AreaKind, bool)>>,
    mapped: u64,
    first_ns: Option<u64>,
    out: Description,
}

/// Describes a whole trace.
pub fn describe<'a>(events: impl IntoIterator<Item = &'a Event>) -> Description {
    let mut describer = Describer::default();
    for event in events {
        describer.add(event);
    }
    describer.finish()
}

impl Describer {
    /// Takes in one event; those that break the rules of a trace are skipped.
    pub fn add(&mut self, event: &Event) {
        let Ok(died) = self.lineage.apply(event) else { return };
        if let Some(died) = died
            && let Some(areas) = self.spaces.remove(&died)
        {
            self.mapped -= areas.iter().map(|(s, a)| weight(*s, a)).sum::<u64>();
        }
        self.out.events += 1;
        let first = *self.first_ns.get_or_insert(event.time_ns);
        self.out.span_ns = event.time_ns - first;
        let space = event.space;
        match &event.kind {
            EventKind::Exec(exec) => {
                if self.out.processes == 0 {
                    self.out.processes = 1;
                }
                self.out.programs.push(exec.program.clone());
                for area in &exec.areas {
                    let grows = area.flags.contains(MapFlags::GROWSDOWN);
                    self.map(space, area.range, area.kind, grows);
                }
            }
            EventKind::Fork { child, .. } => {
                self.out.processes += 1;
                let copy = self.spaces.get(&space).cloned().unwrap_or_default();
                self.mapped += copy.iter().map(|(s, a)| weight(*s, a)).sum::<u64>();
                self.spaces.insert(*child, copy);
            }
            EventKind::Share { process, .. } => self.out.processes += u64::from(*process),
            EventKind::Map(area) => {
                self.out.changes += 1;
                let grows = area.flags.contains(MapFlags::GROWSDOWN);
                self.map(space, area.range, area.kind, grows);
            }
            EventKind::Unmap { range } => {
                self.out.changes += 1;
                self.unmap(space, *range);
            }
            EventKind::Remap { old, new, keep_old } => {
                self.out.changes += 1;
                let at = old.start().get();
                let found = self
                    .spaces
                    .get(&space)
                    .and_then(|areas| areas.range(..=at).next_back().map(|(_, a)| (a.1, a.2)));
                if !keep_old && !old.is_empty() {
                    self.unmap(space, *old);
                }
                if let Some((kind, grows)) = found {
                    self.insert(space, *new, kind, grows);
                }
            }
            EventKind::Brk { old, new } => {
                self.out.changes += 1;
                let (more, less) = brk_pages(*old, *new);
                self.unmap(space, less);
                if !more.is_empty() {
                    self.insert(space, more, AreaKind::Heap, false);
                }
            }
            EventKind::Protect { .. } | EventKind::Advise { .. } => self.out.changes += 1,
            EventKind::Fault(fault) => {
                self.out.faults_all += 1;
                self.out.faults_of_kernel += u64::from(fault.origin == Origin::Kernel);
                self.out.faults_by_source[match fault.source {
                    Source::Hardware => 0,
                    Source::Decoded => 1,
                    Source::Inferred => 2,
                }] += 1;
                match fault.standing {
                    Standing::Regular => {}
                    Standing::Raced => self.out.raced += 1,
                    Standing::Stale => self.out.stale += 1,
                    Standing::Unexplained => self.out.unexplained += 1,
                }
                let access = match fault.access {
                    Access::Read => 0,
                    Access::Write => 1,
                    Access::Exec => 2,
                };
                match self.kind_at(space, fault.page().get()) {
                    Some(kind) => self.out.faults[kind as usize][access] += 1,
                    None => self.out.faults_outside += 1,
                }
            }
            EventKind::Exit { .. } | EventKind::Populate { .. } | EventKind::ThpPrctl { .. } => {}
        }
        self.out.peak_mapped = Bytes::new(self.out.peak_mapped.get().max(self.mapped));
    }

    /// The summary of all that was taken in.
    pub fn finish(mut self) -> Description {
        self.out.threads = self.lineage.threads().into();
        self.out.spaces = self.lineage.spaces().into();
        self.out
    }

    fn kind_at(&mut self, space: SpaceId, page: u64) -> Option<AreaKind> {
        let areas = self.spaces.get_mut(&space)?;
        if let Some((_, area)) = areas.range(..=page).next_back()
            && page < area.0
        {
            return Some(area.1);
        }
        let (&start, &area) = areas.range(page..).next()?;
        if !area.2 {
            return None;
        }
        areas.remove(&start);
        areas.insert(page, area);
        self.mapped += start - page;
        Some(area.1)
    }

    fn map(&mut self, space: SpaceId, range: VaRange, kind: AreaKind, grows: bool) {
        let (count, largest) = &mut self.out.areas[kind as usize];
        *count += 1;
        *largest = (*largest).max(range.bytes());
        self.insert(space, range, kind, grows);
    }

    fn insert(&mut self, space: SpaceId, range: VaRange, kind: AreaKind, grows: bool) {
        self.unmap(space, range);
        if range.is_empty() {
            return;
        }
        let (start, area) = (range.start().get(), (range.end().get(), kind, grows));
        self.mapped += weight(start, &area);
        self.spaces.entry(space).or_default().insert(start, area);
        if kind == AreaKind::Heap {
            // The heap is one area however often the break moved.
            let largest = &mut self.out.areas[kind as usize].1;
            *largest = (*largest).max(range.bytes());
        }
    }

    fn unmap(&mut self, space: SpaceId, range: VaRange) {
        if range.is_empty() {
            return;
        }
        let areas = self.spaces.entry(space).or_default();
        for at in [range.start().get(), range.end().get()] {
            if let Some((_, area)) = areas.range_mut(..at).next_back()
                && area.0 > at
            {
                let upper = *area;
                area.0 = at;
                areas.insert(at, upper);
            }
        }
        let inside = range.start().get()..range.end().get();
        let gone: Vec<u64> = areas.range(inside).map(|(&s, _)| s).collect();
        for start in gone {
            if let Some(area) = areas.remove(&start) {
                self.mapped -= weight(start, &area);
            }
        }
    }
}

/// What an area adds to the memory that is mapped.
fn weight(start: u64, area: &(u64, AreaKind, bool)) -> u64 {
    if area.1 == AreaKind::Special { 0 } else { area.0 - start }
}
