//! `split`: what it costs to take huge folios apart whose pages are mapped one by one, by one space
//! or by many.
//!
//! The parent has a stretch of 2 MiB folios, each mapped by 512 entries; the other spaces are its
//! forks. Folios of an object (`memory=shared`) are mapped by the parent in the same way, by its
//! forks with one leaf each, and by the object itself. CPU 0 is the splitter and runs the parent,
//! and the others run one space each, in turn:
//!
//! ```text
//!   CPU    0 │ 1  2  3 │ 4  5  6 │ 7            of a space that nobody runs, or only CPU 0, nobody is asked
//!   space  0 │ 1  2  3 │ 0  1  2 │ 3
//!
//!   entry     a flush for each entry           512 for each folio and each space that another CPU runs
//!   folio     a flush for each folio             1 for each
//!   list      a flush for 64 folios              1 for 64; of more than four spaces some flush more often
//! ```

use crate::ground::{Ground, PAGE, cpus};
use crate::meter::Meter;
use crate::named::Named;
use crate::parameters::About;
use crate::{Counted, Kind, LabError, Parameter, Parameters, Ratio, Report, Row, Stage};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use foliant::fault::Orders;
use foliant::object::ObjectRequest;
use foliant::space::{Flags, MapRequest, Place, SpaceId};
use foliant::split::{SplitInto, SplitRequest};
use foliant::{Access, Event, FlushGrain, Manager, Policy};
use foliant_units::{Bytes, Cpu, Order, Pages, VaRange};

const GRAINS: &[&str] = &["entry", "folio", "list"];
const MEMORY: &[&str] = &["anonymous", "shared"];
/// Memory for whatever else there is.
const BESIDES: Bytes = Bytes::new(48 << 20);

/// See the module's text.
pub(crate) const SCENARIO: About = About {
    name: "split",
    purpose: "huge folios that several spaces map page by page are split, at three grains",
    parameters: &[
        Parameter {
            name: "spaces",
            default: "1,4",
            kind: Kind::Counts(64),
            about: "how many spaces map them",
        },
        Parameter {
            name: "folios",
            default: "64",
            kind: Kind::Pages(Pages::new(256)),
            about: "how many folios of 2 MiB",
        },
        Parameter {
            name: "memory",
            default: "anonymous",
            kind: Kind::Names(MEMORY),
            about: "whose they are: the parent's, copied when they are written; or an object's",
        },
        Parameter {
            name: "grains",
            default: "entry,folio,list",
            kind: Kind::Names(GRAINS),
            about: "what one flush covers; ratios are of the first to each other",
        },
    ],
};

/// The folios, the tables of every space, and what is there besides.
pub(crate) fn memory(parameters: &Parameters) -> Bytes {
    let folios = parameters.pages("folios").get();
    let spaces = parameters.counts("spaces").iter().max().copied().unwrap_or(1);
    // Each leaf keeps a table until it is split, which is then a table of its space.
    let bytes =
        folios * (Bytes::SIZE_2M.get() + (spaces + 1) * PAGE.get()) + spaces * 4 * PAGE.get();
    Bytes::new((bytes + bytes / 32 + BESIDES.get()).next_multiple_of(Bytes::SIZE_2M.get()))
}

pub(crate) fn run<'m, S: Stage<'m>>(
    stage: &S,
    parameters: &Parameters,
) -> Result<Report, LabError> {
    let mut rows = Vec::new();
    for (memory, spaces) in groups(parameters) {
        for grain in parameters.names("grains") {
            stage.go_on()?;
            rows.push(row(stage, parameters.pages("folios").get(), (memory, spaces), grain)?);
        }
    }
    let ratios = ratios(&rows, parameters);
    Ok(Report::of((&SCENARIO, parameters), stage, Bytes::SIZE_2M.to_string(), rows, ratios))
}

/// Whose memory, and how many spaces map it, of each group of rows.
fn groups(parameters: &Parameters) -> impl Iterator<Item = (&'static str, u64)> {
    let memory = parameters.names("memory").iter();
    memory.flat_map(|memory| parameters.counts("spaces").iter().map(move |n| (*memory, *n)))
}

/// Maps an object where the ground's area is, and says which.
fn share<'m, S: Stage<'m>>(ground: &Ground<'_, 'm, S>) -> Result<(), LabError> {
    let (manager, area) = (ground.manager, ground.area);
    manager.set_object_policy(manager.policy());
    let pages = Pages::new(area.bytes().get() / PAGE.get());
    let object = manager.create_object(&ObjectRequest { pages, ..ObjectRequest::default() })?;
    let request = MapRequest {
        place: Place::Fixed(area.start()),
        bytes: area.bytes(),
        flags: Flags::READ_WRITE.with(Flags::SHARED),
        tag: 0,
    };
    let mapped = manager.map_object(ground.space, &request, (object, Pages::new(0)));
    manager.end_object(object)?; // it is there as long as it is mapped
    mapped?;
    Ok(())
}

/// The forks of the parent. Dropping them has every CPU leave them, and ends them.
struct Forks<'s, 'm, S: Stage<'m>> {
    stage: &'s S,
    manager: &'s Manager<'m, Counted<S::Machine>, S::Paging>,
    spaces: Vec<SpaceId>,
}

impl<'s, 'm, S: Stage<'m>> Forks<'s, 'm, S> {
    fn new(ground: &Ground<'s, 'm, S>, count: u64) -> Result<Self, LabError> {
        let (stage, manager) = (ground.stage, ground.manager);
        let mut forks = Forks { stage, manager, spaces: Vec::new() };
        for _ in 1..count {
            forks.spaces.push(manager.fork(ground.space)?);
        }
        Ok(forks)
    }
    /// The space that a CPU runs.
    fn of(&self, parent: SpaceId, cpu: Cpu) -> SpaceId {
        match u64::from(cpu.0) % (self.spaces.len() as u64 + 1) {
            0 => parent,
            nth => self.spaces[nth as usize - 1],
        }
    }
}

impl<'m, S: Stage<'m>> Drop for Forks<'_, 'm, S> {
    fn drop(&mut self) {
        self.stage.together(cpus(self.stage), &|_| {
            let _ = self.manager.switch(None); // refuses nothing
        });
        for space in self.spaces.drain(..) {
            let ended = self.manager.end(space);
            debug_assert!(ended.is_ok(), "every CPU has left the fork: {ended:?}");
        }
    }
}

fn row<'m, S: Stage<'m>>(
    stage: &S,
    folios: u64,
    (memory, spaces): (&'static str, u64),
    grain: &'static str,
) -> Result<Row, LabError> {
    let flush = if grain == "entry" { FlushGrain::ONE } else { FlushGrain::WHOLE };
    let bytes = Bytes::new(folios * Bytes::SIZE_2M.get());
    let policy = Policy::always(Orders::of(Order::SIZE_2M));
    let ground = Ground::new(stage, bytes, policy, FlushGrain::WHOLE)?;
    let (manager, area) = (ground.manager, ground.area);
    if memory == "shared" {
        share(&ground)?;
    }
    stage.touch(ground.space, area, Bytes::SIZE_2M, Access::Write)?;
    for nth in 0..folios {
        // A page with other rights takes the leaf apart into entries, and leaves the folio whole.
        let start = area.start().add(nth * Bytes::SIZE_2M.get());
        let page = VaRange::sized(start, PAGE).unwrap_or(area);
        manager.protect(ground.space, page, Flags::READ)?;
        manager.protect(ground.space, page, Flags::READ_WRITE)?;
    }
    let frame = |nth: u64| {
        let va = area.start().add(nth * Bytes::SIZE_2M.get());
        manager.frame_at(ground.space, va)
    };
    let is_huge = |frame| manager.identity(frame).order() == Order::SIZE_2M;
    if !(0..folios).all(|nth| frame(nth).is_some_and(is_huge)) {
        return Err(LabError::NoMemory);
    }
    let forks = Forks::new(&ground, spaces)?;
    settle(&ground, &forks)?;
    manager.set_flush_grain(flush);
    let splits = manager.total(Event::ThpSplitPage);
    let begun = Meter::read(stage);
    match grain {
        "list" => {
            let request = |nth| frame(nth).map(SplitRequest::of);
            let mut list: Vec<SplitRequest> = (0..folios).filter_map(request).collect();
            manager.split_list(&mut list, SplitInto::BASE);
        }
        _ => {
            for nth in 0..folios {
                let va = area.start().add(nth * Bytes::SIZE_2M.get());
                let _ = manager.split(ground.space, va, SplitInto::BASE); // counted
            }
        }
    }
    let span = begun.until_now(stage);
    Ok(Row {
        name: name(memory, spaces, grain).into(),
        counts: Named::from_iter([
            ("folios_split", manager.total(Event::ThpSplitPage) - splits),
            ("shootdowns", span.machine.shootdowns),
            ("interrupts", span.machine.interrupts),
            ("invalidations", span.machine.invalidations),
            ("entries_written", span.machine.entries_written),
        ]),
        pages: folios,
        ticks: Named::from_iter([("all", span.ticks)]),
    })
}

/// Every CPU runs its space and reads every page, so that it may have each entry cached.
fn settle<'m, S: Stage<'m>>(
    ground: &Ground<'_, 'm, S>,
    forks: &Forks<'_, 'm, S>,
) -> Result<(), LabError> {
    let lost = AtomicU64::new(0);
    ground.together(|cpu| {
        let space = forks.of(ground.space, cpu);
        if ground.manager.switch(Some(space)).is_err() {
            lost.store(1, Ordering::Relaxed);
            return Ok(());
        }
        ground.stage.touch(space, ground.area, PAGE, Access::Read)
    })?;
    match lost.into_inner() {
        0 => Ok(()),
        _ => Err(foliant::manager::SpaceError::NoSpace.into()),
    }
}

fn group_text(memory: &str, spaces: u64) -> String {
    let plural = if spaces == 1 { "space" } else { "spaces" };
    let whose = if memory == "shared" { "shared, " } else { "" };
    format!("{whose}{spaces} {plural}")
}
fn name(memory: &str, spaces: u64, grain: &str) -> String {
    format!("{}, {grain}", group_text(memory, spaces))
}

/// Shootdowns and ticks at the first grain to those at each other.
fn ratios(rows: &[Row], parameters: &Parameters) -> Vec<Ratio> {
    let Some((first, others)) = parameters.names("grains").split_first() else {
        return Vec::new();
    };
    let find = |of: &str, grain: &str| rows.iter().find(|row| row.name == format!("{of}, {grain}"));
    let mut ratios = Vec::new();
    for (group, other) in
        groups(parameters).flat_map(|group| others.iter().map(move |other| (group, *other)))
    {
        let group = group_text(group.0, group.1);
        let (Some(of), Some(to)) = (find(&group, first), find(&group, other)) else { continue };
        let mut add = |what: &str, of: Option<&u64>, to: Option<&u64>| {
            let name = format!("{what}, {group}, {first} to {other}");
            let (of, to) = (of.copied().unwrap_or_default(), to.copied().unwrap_or_default());
            ratios.push(Ratio { name: name.into(), of, to });
        };
        add("shootdowns", of.counts.get("shootdowns"), to.counts.get("shootdowns"));
        add("ticks", of.ticks.get("all"), to.ticks.get("all"));
    }
    ratios
}
