//! A summary of a trace: who ran, what was mapped, how it faulted. What it holds is drawn from a
//! budget ([`crate::budget`]).

use crate::budget::{Budget, Map, Purse, Spent, Thing, cost};
use crate::event::{
    Access, AreaKind, Event, EventKind, Fault, MapFlags, Origin, Source, SpaceId, Standing,
    brk_pages,
};
use crate::lineage::Lineage;
use crate::mapping::{Labels, Mapping};
use foliant_units::{Bytes, VaRange};
use std::collections::BTreeMap;

/// What is in a trace.
#[derive(Debug, Default)]
pub struct Description {
    /// Events in all.
    pub events: u64,
    /// From the first event to the last, in nanoseconds.
    pub span_ns: u64,
    /// Processes: the first, every fork, and every child that shared its parent's space for a
    /// while.
    pub processes: u64,
    /// Threads, of all processes.
    pub threads: u64,
    /// Address spaces.
    pub spaces: u64,
    /// The programs that were started, in order.
    pub programs: Vec<String>,
    /// For each space in order of birth, which of them it ran, if one was started before.
    pub ran: Vec<Option<usize>>,
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
    /// The most that was mapped at once in all spaces together, without special areas; `u64::MAX`
    /// stands for more than that.
    pub peak_mapped: Bytes,
    /// Faults in private memory without a file by mapping, most first.
    pub mappings: Vec<(Mapping, u64)>,
    /// What its names are drawn from.
    held: Option<[Purse; 2]>,
}

impl Description {
    /// Faults in private memory without a file.
    pub fn anonymous_faults(&self) -> u64 {
        let of = |kind: AreaKind| self.faults[kind as usize].iter().sum::<u64>();
        AreaKind::ALL.into_iter().filter(|k| k.is_anonymous_private()).map(of).sum()
    }
}

/// Describes events as they come, so that a trace need not be in memory.
pub struct Describer {
    lineage: Lineage,
    labels: Labels,
    /// Faults by the numbers of mappings.
    by_mapping: BTreeMap<u16, u64>,
    spaces: BTreeMap<SpaceId, Map<Mapped>>,
    /// Bytes. A file can have more spaces of 64 PiB than a `u64` has room for.
    mapped: u128,
    first_ns: Option<u64>,
    purse: Purse,
    out: Description,
}

/// An area, by its start.
#[derive(Clone, Copy)]
struct Mapped {
    end: u64,
    kind: AreaKind,
    grows: bool,
}

impl Mapped {
    /// What it adds to the memory that is mapped.
    fn weight(&self, start: u64) -> u128 {
        if self.kind == AreaKind::Special { 0 } else { u128::from(self.end - start) }
    }
}

/// Describes a whole trace.
pub fn describe<'a>(
    events: impl IntoIterator<Item = &'a Event>,
    budget: &Budget,
) -> Result<Description, Spent> {
    let mut describer = Describer::new(budget);
    for event in events {
        describer.add(event)?;
    }
    Ok(describer.finish())
}

impl Describer {
    /// A describer that draws on this budget.
    pub fn new(budget: &Budget) -> Describer {
        Describer {
            lineage: Lineage::new(),
            labels: Labels::new(budget),
            by_mapping: BTreeMap::new(),
            spaces: BTreeMap::new(),
            mapped: 0,
            first_ns: None,
            purse: Purse::new(budget),
            out: Description::default(),
        }
    }

    /// Takes in one event; those that break the rules of a trace are skipped.
    pub fn add(&mut self, event: &Event) -> Result<(), Spent> {
        self.purse.work(1)?;
        let Ok(died) = self.lineage.apply(event) else { return Ok(()) };
        self.purse.take(Thing::Spaces, event.kind.births(), cost::BIRTH)?;
        self.labels.follow(event, died)?;
        if let Some(died) = died {
            self.died(died)?;
        }
        self.out.events += 1;
        let first = *self.first_ns.get_or_insert(event.time_ns);
        self.out.span_ns = event.time_ns.saturating_sub(first);
        let space = event.space;
        match &event.kind {
            EventKind::Exec(exec) => {
                if self.out.processes == 0 {
                    self.out.processes = 1;
                }
                self.purse.take_text(&exec.program)?;
                self.out.ran.push(Some(self.out.programs.len()));
                self.out.programs.push(exec.program.clone());
                self.born(space, Map::new(self.purse.budget(), Thing::Areas, cost::AREA))?;
                for area in &exec.areas {
                    let grows = area.flags.contains(MapFlags::GROWSDOWN);
                    self.map(space, area.range, area.kind, grows)?;
                }
            }
            EventKind::Fork { child, .. } => {
                self.out.processes += 1;
                let ran = self.out.ran.get(space.0 as usize).copied().flatten();
                self.out.ran.push(ran);
                if let Some(parent) = self.spaces.get(&space) {
                    let copy = parent.copy()?;
                    self.mapped += weight(&copy);
                    self.born(*child, copy)?;
                }
            }
            EventKind::Share { process, .. } => self.out.processes += u64::from(*process),
            EventKind::Map(area) => {
                self.out.changes += 1;
                let grows = area.flags.contains(MapFlags::GROWSDOWN);
                self.map(space, area.range, area.kind, grows)?;
            }
            EventKind::Unmap { range } => {
                self.out.changes += 1;
                self.unmap(space, *range)?;
            }
            EventKind::Remap { old, new, keep_old } => {
                self.out.changes += 1;
                let at = old.start().get();
                let found = self
                    .spaces
                    .get(&space)
                    .and_then(|areas| areas.range(..=at).next_back().map(|(_, a)| *a));
                if !keep_old && !old.is_empty() {
                    self.unmap(space, *old)?;
                }
                if let Some(Mapped { kind, grows, .. }) = found {
                    self.insert(space, *new, kind, grows)?;
                }
            }
            EventKind::Brk { old, new } => {
                self.out.changes += 1;
                let (more, less) = brk_pages(*old, *new);
                self.unmap(space, less)?;
                if !more.is_empty() {
                    self.insert(space, more, AreaKind::Heap, false)?;
                }
            }
            EventKind::Protect { .. } | EventKind::Advise { .. } => self.out.changes += 1,
            EventKind::Fault(fault) => self.fault(space, fault)?,
            EventKind::Exit { .. }
            | EventKind::Populate { .. }
            | EventKind::ThpPrctl { .. }
            | EventKind::Object { .. }
            | EventKind::Attach { .. }
            | EventKind::Punch { .. }
            | EventKind::Name { .. } => {}
        }
        let mapped = u64::try_from(self.mapped).unwrap_or(u64::MAX);
        self.out.peak_mapped = self.out.peak_mapped.max(Bytes::new(mapped));
        Ok(())
    }

    /// The summary of all that was taken in.
    pub fn finish(mut self) -> Description {
        self.out.threads = self.lineage.threads().into();
        self.out.spaces = self.lineage.spaces().into();
        let (names, held) = self.labels.finish();
        let faults = |number: usize| self.by_mapping.get(&(number as u16)).copied();
        let named = names.into_iter().enumerate();
        self.out.mappings =
            named.filter_map(|(number, name)| Some((name, faults(number)?))).collect();
        self.out.mappings.sort_by_key(|(_, faults)| std::cmp::Reverse(*faults));
        self.out.held = Some([self.purse, held]);
        self.out
    }

    fn born(&mut self, space: SpaceId, areas: Map<Mapped>) -> Result<(), Spent> {
        self.purse.take(Thing::Spaces, 1, cost::SPACE)?;
        self.spaces.insert(space, areas);
        Ok(())
    }

    fn died(&mut self, space: SpaceId) -> Result<(), Spent> {
        let Some(areas) = self.spaces.remove(&space) else { return Ok(()) };
        self.mapped -= weight(&areas);
        self.purse.give(1, cost::SPACE);
        areas.work(areas.len())
    }

    fn fault(&mut self, space: SpaceId, fault: &Fault) -> Result<(), Spent> {
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
        match self.kind_at(space, fault.page().get())? {
            Some(kind) => {
                self.out.faults[kind as usize][access] += 1;
                if kind.is_anonymous_private() {
                    let mapping = self.labels.at(space, fault.page());
                    *self.by_mapping.entry(mapping).or_default() += 1;
                }
            }
            None => self.out.faults_outside += 1,
        }
        Ok(())
    }

    fn kind_at(&mut self, space: SpaceId, page: u64) -> Result<Option<AreaKind>, Spent> {
        let Some(areas) = self.spaces.get_mut(&space) else { return Ok(None) };
        if let Some((_, area)) = areas.range(..=page).next_back()
            && page < area.end
        {
            return Ok(Some(area.kind));
        }
        let Some((&start, &area)) = areas.range(page..).next() else { return Ok(None) };
        if !area.grows {
            return Ok(None);
        }
        areas.remove(start);
        areas.insert(page, area)?;
        self.mapped += area.weight(page) - area.weight(start);
        Ok(Some(area.kind))
    }

    fn map(
        &mut self,
        space: SpaceId,
        range: VaRange,
        kind: AreaKind,
        grows: bool,
    ) -> Result<(), Spent> {
        let (count, largest) = &mut self.out.areas[kind as usize];
        *count += 1;
        *largest = (*largest).max(range.bytes());
        self.insert(space, range, kind, grows)
    }

    fn insert(
        &mut self,
        space: SpaceId,
        range: VaRange,
        kind: AreaKind,
        grows: bool,
    ) -> Result<(), Spent> {
        self.unmap(space, range)?;
        if range.is_empty() {
            return Ok(());
        }
        let Some(areas) = self.spaces.get_mut(&space) else { return Ok(()) };
        let (start, area) = (range.start().get(), Mapped { end: range.end().get(), kind, grows });
        areas.insert(start, area)?;
        self.mapped += area.weight(start);
        if kind == AreaKind::Heap {
            // The heap is one area however often the break moved.
            let largest = &mut self.out.areas[kind as usize].1;
            *largest = (*largest).max(range.bytes());
        }
        Ok(())
    }

    fn unmap(&mut self, space: SpaceId, range: VaRange) -> Result<(), Spent> {
        let Some(areas) = self.spaces.get_mut(&space) else { return Ok(()) };
        if range.is_empty() {
            return Ok(());
        }
        for at in [range.start().get(), range.end().get()] {
            if let Some((_, area)) = areas.range_mut(..at).next_back()
                && area.end > at
            {
                let upper = *area;
                area.end = at;
                areas.insert(at, upper)?;
            }
        }
        let inside = range.start().get()..range.end().get();
        let mapped = &mut self.mapped;
        areas.clear_range(&inside, |start, area| *mapped -= area.weight(start))
    }
}

/// What the areas of a space add to the memory that is mapped.
fn weight(areas: &Map<Mapped>) -> u128 {
    areas.iter().map(|(start, area)| area.weight(*start)).sum()
}
