//! `vmalloc`: a kernel hash table that is mapped by leaves of several sizes. The map grain is the
//! leaf; 4 KiB is the baseline.
//!
//! ```text
//!   row                    what CPU 0 does
//!   4k, 2m, 1g             takes the table with leaves up to that size, probes it, gives it back, purges
//!   rounded                the same by the largest leaves, its size rounded up to 2 MiB as the reference does
//!   ioremap SIZE by LEAF   maps a device of that size and unmaps it: mapping alone, no memory is taken
//!   sizes, split           takes areas of random sizes, one after the other, ends mapped by smaller leaves
//!   sizes, rounded         the same with each rounded up
//! ```
//!
//! Before each area of a row is counted, one like it was made, given back and purged. Tables stay
//! where they were needed once, and empty ones go where a leaf takes their place: so it was before
//! the counting, and a row does not depend on the ones before it (L1). `table_bytes` are those of
//! tables that hold the area's leaves, found by walking them. A table lies at a multiple of its
//! size, up to 1 GiB; a device lies wherever addresses are free, so its tables are not counted.
//!
//! There are as many probes as the table has pages, so that ticks per page are ticks per probe. The
//! bytes in the table are whatever they were, but in the buckets that are probed. `dtlb_misses` and
//! `walk_steps` are those of the caches beside a simulated machine ([`Stage::caches`]), empty at
//! first; on silicon nobody counts, and there are none.
//!
//! Ticks are those that passed for CPU 0, `nanos` of mapping the same by the machine's clock.

use crate::draw::Draw;
use crate::ground::PAGE;
use crate::named::Named;
use crate::parameters::About;
use crate::probe;
use crate::reach::Watch;
use crate::{Counted, Counts, Kind, LabError, Parameter, Parameters, Ratio, Report, Row, Stage};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use foliant::Manager;
use foliant::table::Paging;
use foliant::vmap::{Caller, Controls, HugeIomap, Request, Rest};
use foliant_machine::Clock;
use foliant_units::{Bytes, FRAME_BYTES, FrameRange, Level, Pa, Pages, Va, VaRange};

/// Sizes that are mapped as a device, besides the one that is asked for: those below it.
const DEVICES: [Bytes; 2] = [Bytes::new(1 << 20), Bytes::new(32 << 20)];
/// What their rows' names begin with.
const DEVICE: &str = "ioremap";
/// The largest of the random sizes: it has at most one leaf of 2 MiB, and as much of tail.
const SIZE_MOST: u64 = 4 << 20;
/// Memory of a machine besides the table: a manager, a kernel, tables.
const BESIDES: Bytes = Bytes::new(160 << 20);
/// The least memory that a machine is given.
const MEMORY_LEAST: Bytes = Bytes::new(512 << 20);

/// See the module's text.
pub(crate) const SCENARIO: About = About {
    name: "vmalloc",
    purpose: "a kernel hash table probed at random, mapped by 4 KiB, 2 MiB and 1 GiB leaves",
    parameters: &[
        Parameter {
            name: "table-size",
            default: "64m",
            kind: Kind::Size(PAGE, Bytes::new(4 << 30)),
            about: "how large the table is",
        },
        Parameter {
            name: "device",
            default: "1g",
            kind: Kind::Size(Bytes::SIZE_2M, Bytes::new(4 << 30)),
            about: "the largest device that is mapped; smaller ones are too",
        },
        Parameter {
            name: "sizes",
            default: "1000",
            kind: Kind::Pages(Pages::new(100_000)),
            about: "how many areas of random sizes",
        },
    ],
};

/// The table where a leaf of 1 GiB can map it, its descriptors and their tables.
pub(crate) fn memory(parameters: &Parameters) -> Bytes {
    let table = parameters.size("table-size").get();
    let whole = if table < Bytes::SIZE_1G.get() { table } else { table + Bytes::SIZE_1G.get() };
    let memory = whole + whole / 32 + BESIDES.get();
    Bytes::new(memory.next_multiple_of(Bytes::SIZE_2M.get())).max(MEMORY_LEAST)
}

pub(crate) fn run<'m, S: Stage<'m>>(
    stage: &S,
    parameters: &Parameters,
) -> Result<Report, LabError> {
    stage.manager().describe_all()?;
    let bench = Bench::new(stage);
    let (table, mut rows) = (parameters.size("table-size"), Vec::new());
    let grains = [Level::BASE, Level::SIZE_2M, Level::SIZE_1G];
    let fitting = |bytes: Bytes| grains.into_iter().filter(move |l| fits::<S::Paging>(*l, bytes));
    for level in fitting(table) {
        stage.go_on()?;
        rows.push(bench.table(table, level, Rest::Split)?);
    }
    rows.push(bench.table(table, Level::SIZE_1G, Rest::Rounded)?);
    let device = parameters.size("device");
    let devices = DEVICES.into_iter().filter(|bytes| *bytes < device);
    for bytes in devices.chain([device]) {
        for level in fitting(bytes) {
            stage.go_on()?;
            rows.push(bench.device(bytes, level)?);
        }
    }
    for rest in [Rest::Split, Rest::Rounded] {
        stage.go_on()?;
        rows.push(bench.sizes(parameters.pages("sizes").get(), rest)?);
    }
    let ratios = ratios(&rows);
    Ok(Report::of((&SCENARIO, parameters), stage, PAGE.to_string(), rows, ratios))
}

/// Whether a leaf of `level` maps a part of so much.
fn fits<P: Paging>(level: Level, bytes: Bytes) -> bool {
    level <= P::LEAF_TOP && level.span() <= bytes
}

/// What an area is known by, and what it costs.
#[derive(Default)]
struct Life {
    leaves: [u64; 3],
    tables: u64,
    entries: u64,
    waste: u64,
    machine: Counts,
    /// Elapsed ticks and nanoseconds of each phase.
    times: Vec<(&'static str, [u64; 2])>,
}

/// The manager with its switches. Dropping it puts them back.
struct Bench<'s, 'm, S: Stage<'m>> {
    stage: &'s S,
    manager: &'s Manager<'m, Counted<S::Machine>, S::Paging>,
    before: Controls,
}

impl<'s, 'm, S: Stage<'m>> Bench<'s, 'm, S> {
    fn new(stage: &'s S) -> Self {
        let manager = stage.manager();
        Bench { stage, manager, before: manager.vmap().controls() }
    }

    /// The table with leaves up to `level`.
    fn table(&self, bytes: Bytes, level: Level, rest: Rest) -> Result<Row, LabError> {
        self.manager.vmap().set_controls(Controls { rest, ..Controls::DEFAULT });
        let align = Bytes::new(bytes.get().next_power_of_two()).min(Bytes::SIZE_1G);
        let request = Request::of(bytes).up_to(level).aligned(align);
        let take = || Ok(self.manager.vmalloc(&request)?);
        let give = |area: VaRange| Ok(self.manager.vfree(area.start())?);
        let (probes, mut watched) = (bytes.get() / FRAME_BYTES, None);
        let life = self.life(take, give, |life, area| {
            probe::fill(self.stage, area, probes)?;
            let mut watch = self.stage.caches().map(|caches| Watch::new(caches, S::Paging::TOP));
            if let Some(watch) = &mut watch {
                probe::watch(self.stage, area, probes, watch)?;
            }
            watched = watch.map(|watch| (watch.misses, watch.steps));
            self.timed("probe", life, || {
                probe::probe(self.stage, area, probes)?;
                self.stage.walked(watched.map_or(0, |(misses, _)| misses));
                Ok(())
            })
        })?;
        let name = match rest {
            Rest::Split => level.span().to_string(),
            Rest::Rounded => "rounded".into(),
        };
        let mut row = life.row(name, bytes);
        let watched =
            watched.map(|(misses, steps)| [("dtlb_misses", misses), ("walk_steps", steps)]);
        row.counts.push("table_bytes", life.tables * FRAME_BYTES);
        row.counts.push("entries_written", life.entries);
        row.counts.push("waste_bytes", life.waste);
        row.counts.push("probes", probes);
        watched.into_iter().flatten().for_each(|(name, n)| row.counts.push(name, n));
        Ok(row)
    }

    /// A device, so that nothing but mapping takes time. Nobody accesses it: nothing is there.
    fn device(&self, bytes: Bytes, level: Level) -> Result<Row, LabError> {
        let huge_iomap = if level == Level::BASE { HugeIomap::Never } else { HugeIomap::Allowed };
        self.manager.vmap().set_controls(Controls { huge_iomap, ..Controls::DEFAULT });
        let ends = self.manager.ranges().map(|range: FrameRange| range.end().pa().get());
        let behind = ends.max().unwrap_or_default().next_multiple_of(Bytes::SIZE_1G.get());
        // A multiple of 1 GiB for leaves of that size only.
        let shift = if level == Level::SIZE_1G { 0 } else { Bytes::SIZE_2M.get() };
        let pa = Pa::new(behind + shift);
        let map = || {
            let start = self.manager.ioremap(pa, bytes, Caller::default())?;
            Ok(VaRange::sized(start, bytes).expect("it lies in the range"))
        };
        let unmap = |area: VaRange| Ok(self.manager.iounmap(area.start())?);
        Ok(self
            .life(map, unmap, |_, _| Ok(()))?
            .row(format!("{DEVICE} {bytes} by {}", level.span()), bytes))
    }

    /// Makes an area, counts what it is, works on it, gives it back and purges; after one like it
    /// was made and given back.
    fn life(
        &self,
        make: impl Fn() -> Result<VaRange, LabError>,
        give: impl Fn(VaRange) -> Result<(), LabError>,
        work: impl FnOnce(&mut Life, VaRange) -> Result<(), LabError>,
    ) -> Result<Life, LabError> {
        give(make()?)?;
        self.manager.purge_vmalloc();
        let machine = self.manager.machine();
        let (before, rounded) = (machine.counts(), self.rounded());
        let mut life = Life::default();
        let mut area = VaRange::default();
        self.timed("map", &mut life, || {
            area = make()?;
            Ok(())
        })?;
        life.entries = machine.counts().since(&before).entries_written;
        life.waste = self.rounded() - rounded;
        self.look(&mut life, area);
        let worked = work(&mut life, area);
        self.timed("unmap", &mut life, || give(area))?;
        self.manager.purge_vmalloc();
        life.machine = machine.counts().since(&before);
        worked.map(|()| life)
    }
    /// Does `work`, and notes how long it took.
    fn timed(
        &self,
        what: &'static str,
        life: &mut Life,
        work: impl FnOnce() -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        let now = || [self.stage.elapsed(), self.manager.machine().now().0];
        let begun = now();
        work()?;
        let done = now();
        life.times.push((what, [0, 1].map(|n| done[n].saturating_sub(begun[n]))));
        Ok(())
    }
    /// The leaves of an area, and the tables that hold them.
    fn look(&self, life: &mut Life, area: VaRange) {
        let mut table: Option<(Va, Level)> = None;
        let mut va = area.start();
        while let Some((_, level)) = self.manager.vmap().frame_at(va).filter(|_| va < area.end()) {
            life.leaves[usize::from(level.0).min(2)] += 1;
            let holds = (va.align_down(level.up().span()), level);
            life.tables += u64::from(table.replace(holds) != Some(holds));
            va = va.align_down(level.span()).add(level.span().get());
        }
    }
    fn rounded(&self) -> u64 {
        self.manager.vmalloc_counters().rounded.get()
    }

    /// Areas of random sizes: what is mapped behind the last page that was asked for.
    fn sizes(&self, count: u64, rest: Rest) -> Result<Row, LabError> {
        self.manager.vmap().set_controls(Controls { rest, ..Controls::DEFAULT });
        let mut draw = Draw::new(count);
        let (mut pages, mut most) = (0, 0);
        let begun = self.manager.vmalloc_counters();
        for _ in 0..count {
            let bytes = Bytes::new(1 + draw.below(SIZE_MOST));
            let before = self.rounded();
            let area = self.manager.vmalloc(&Request::of(bytes).huge())?;
            pages += area.pages().get();
            most = most.max(self.rounded() - before);
            self.manager.vfree(area.start())?;
        }
        self.manager.purge_vmalloc();
        let now = self.manager.vmalloc_counters();
        let leaves = [0, 1, 2].map(|n| now.leaves[n] - begun.leaves[n]);
        let name = if rest == Rest::Split { "sizes, split" } else { "sizes, rounded" };
        let waste = [
            ("areas", count),
            ("waste_bytes", now.rounded.get() - begun.rounded.get()),
            ("waste_most", most),
        ];
        Ok(Row {
            name: name.into(),
            counts: named(leaves).chain(waste).collect(),
            pages,
            ticks: Named::default(),
        })
    }
}

impl<'m, S: Stage<'m>> Drop for Bench<'_, 'm, S> {
    fn drop(&mut self) {
        self.manager.vmap().set_controls(self.before);
        self.manager.purge_vmalloc();
    }
}

/// Leaves by their level.
fn named(leaves: [u64; 3]) -> impl Iterator<Item = (&'static str, u64)> {
    ["leaves_4k", "leaves_2m", "leaves_1g"].into_iter().zip(leaves)
}

impl Life {
    fn row(&self, name: String, bytes: Bytes) -> Row {
        let counts =
            [("shootdowns", self.machine.shootdowns), ("interrupts", self.machine.interrupts)];
        let of = |nth: usize, suffix: &'static str| {
            self.times.iter().map(move |(name, times)| (format!("{name}{suffix}"), times[nth]))
        };
        Row {
            name: name.into(),
            counts: named(self.leaves).chain(counts).collect(),
            pages: bytes.get() / FRAME_BYTES,
            ticks: of(0, "")
                .chain(of(1, "_nanos").filter(|(name, _)| name != "probe_nanos"))
                .collect(),
        }
    }
}

/// What is less of by larger leaves, and what of mapping is faster.
fn ratios(rows: &[Row]) -> Vec<Ratio> {
    let Some(base) = rows.first() else { return Vec::new() };
    let of = |row: &Row, what: &str| {
        let found = row.counts.get(what).or_else(|| row.ticks.get(what));
        found.copied().unwrap_or_default()
    };
    let leaves =
        |row: &Row| ["leaves_4k", "leaves_2m", "leaves_1g"].map(|n| of(row, n)).iter().sum();
    let between = |base: &Row, row: &Row, what: &str| {
        let name = format!("{}, {} to {}", what.replace('_', " "), base.name, row.name);
        Ratio { name: name.into(), of: of(base, what), to: of(row, what) }
    };
    let mut ratios = Vec::new();
    for row in rows.iter().skip(1).take_while(|row| row.name != "rounded") {
        let name = format!("leaves, {} to {}", base.name, row.name).into();
        ratios.push(Ratio { name, of: leaves(base), to: leaves(row) });
        let counts = ["table_bytes", "dtlb_misses", "walk_steps"];
        let counts = counts.into_iter().filter(|what| base.counts.get(what).is_some());
        ratios.extend(counts.chain(["map", "unmap"]).map(|what| between(base, row, what)));
    }
    let mut base = base;
    for row in rows.iter().filter(|row| row.name.starts_with(DEVICE)) {
        if base.name.starts_with(DEVICE) && base.pages == row.pages {
            ratios.extend(["map", "unmap"].map(|what| between(base, row, what)));
        } else {
            base = row;
        }
    }
    ratios
}
