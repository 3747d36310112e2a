//! `compare`: what an operation takes where another kernel can be asked for the same: faults,
//! populating, unmapping, changes of rights, forks and copies at several folio sizes; calls for one
//! page; what CPUs that share pages take together; spaces of many areas; splits and pools.
//!
//! ```text
//!   one CPU   sizes    an area of `pages` pages, per page       4k 64k 2m: touch, drop, populate, protect, fork, copy, unmap
//!             calls    a page, per call                         protect, drop, map and unmap
//!             split    a folio of 2 MiB mapped by pages         page by page
//!             pool     a huge page                              in and out, folding off
//!             areas    the same faults, unmaps and calls        beside 10, 1,000, 100,000 areas
//!   more      shared   512 pages that every CPU has read        protect, drop and unmap: in one call, by 32, one by one
//! ```
//!
//! Ticks are those of all CPUs together, in three parts: what clearing and copying take, which each
//! kernel does as fast as the processor can, and the rest, which is compared, without the loop of
//! the program that touches pages. Each row is run twice and the second time counts: what happens
//! once (tables of the upper levels, descriptors) is over.

use crate::ground::{Ground, PAGE, cpus, only};
use crate::meter::{Meter, Span};
use crate::named::Named;
use crate::parameters::About;
use crate::{Kind, LabError, Parameter, Parameters, Report, Row, Stage, hugetlb};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use foliant::folio::CpuCount;
use foliant::pool::{Budget, Folding};
use foliant::space::{Advice, Flags, MapRequest, Place};
use foliant::split::SplitInto;
use foliant::{Access, FlushGrain};
use foliant_units::{Bytes, CPUS_MAX, Order, Pages, Va, VaRange};

const ROWS: &[&str] = &["sizes", "calls", "split", "pool", "areas", "shared"];
/// Calls of a row that is about calls.
const CALLS: u64 = 256;
/// Pages that CPUs share.
const SHARED: u64 = 512;
/// Folios that are split, and huge pages of a pool.
const BLOCKS: u64 = 32;
/// Memory of a machine besides what a row works on.
const BESIDES: Bytes = Bytes::new(96 << 20);

/// See the module's text.
pub(crate) const SCENARIO: About = About {
    name: "compare",
    purpose: "what another kernel can be asked for as well: faults, unmaps, forks, copies, shootdowns",
    parameters: &[
        Parameter {
            name: "pages",
            default: "16384",
            kind: Kind::Pages(Pages::new(1 << 17)),
            about: "how many pages an area has; rounded up to 2 MiB",
        },
        Parameter {
            name: "sizes",
            default: "4k,64k,2m",
            kind: Kind::Orders,
            about: "the folio sizes",
        },
        Parameter {
            name: "areas",
            default: "10,1000,100000",
            kind: Kind::Counts(100_000),
            about: "how many areas a space has besides the one at work",
        },
        Parameter {
            name: "running",
            default: "1024",
            kind: Kind::Count(CPUS_MAX as u64),
            about: "how many CPUs run the space, if there are so many",
        },
        Parameter {
            name: "rows",
            default: "sizes,calls,split,pool,areas,shared",
            kind: Kind::Names(ROWS),
            about: "what is run",
        },
    ],
};

fn rounded(pages: Pages) -> Bytes {
    Bytes::new(pages.bytes().get().next_multiple_of(Bytes::SIZE_2M.get()))
}

/// An area and its copy.
pub(crate) fn memory(parameters: &Parameters) -> Bytes {
    let area = rounded(parameters.pages("pages")).get();
    Bytes::new(2 * area + area / 16 + 2 * BLOCKS * Bytes::SIZE_2M.get() + BESIDES.get())
}

pub(crate) fn run<'m, S: Stage<'m>>(
    stage: &S,
    parameters: &Parameters,
) -> Result<Report, LabError> {
    let running = CpuCount(cpus(stage).0.min(parameters.count("running") as u16));
    let mut runs = Runs { stage, running, rows: Vec::new() };
    for _ in 0..2 {
        runs.rows.clear();
        for name in parameters.names("rows") {
            stage.go_on()?;
            runs.of(name, parameters)?;
        }
    }
    let rows = runs.rows;
    Ok(Report::of((&SCENARIO, parameters), stage, "unit of the row", rows, Vec::new()))
}

/// The rows so far.
struct Runs<'s, S> {
    stage: &'s S,
    /// The CPUs that run the space.
    running: CpuCount,
    rows: Vec<Row>,
}

/// The `nth` page of an area.
fn page(area: VaRange, nth: u64) -> VaRange {
    pages(area, nth, 1)
}
/// So many pages of an area from the `nth` on.
fn pages(area: VaRange, nth: u64, count: u64) -> VaRange {
    let start = area.start().add(nth * PAGE.get());
    VaRange::sized(start, Pages::new(count).bytes()).map_or(area, |part| area.intersect(part))
}
fn request(start: Va, bytes: Bytes, flags: Flags) -> MapRequest {
    MapRequest { place: Place::NoReplace(start), bytes, flags, tag: 0 }
}

impl<'s, 'm: 's, S: Stage<'m>> Runs<'s, S> {
    fn of(&mut self, name: &str, parameters: &Parameters) -> Result<(), LabError> {
        let bytes = rounded(parameters.pages("pages"));
        match name {
            "sizes" => {
                self.zeros(bytes)?;
                parameters.orders("sizes").iter().try_for_each(|size| self.size(bytes, *size))
            }
            "calls" => self.calls(),
            "split" => self.split(),
            "pool" => self.pool(),
            "areas" => parameters.counts("areas").iter().try_for_each(|n| self.areas(*n)),
            _ => self.shared(),
        }
    }

    /// Runs `work`, which is `units` of something, as one row.
    fn row(
        &mut self,
        name: impl Into<String>,
        units: u64,
        work: impl FnOnce() -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        let begun = Meter::read(self.stage);
        work()?;
        let span = begun.until_now(self.stage);
        self.note(name.into(), units, &span, 0);
        Ok(())
    }
    /// Touches each page of the area as one row. What the program's own loop takes is taken off: it
    /// is run again, when there is no fault.
    fn touched(
        &mut self,
        name: String,
        ground: &Ground<'s, 'm, S>,
        access: Access,
    ) -> Result<(), LabError> {
        let begun = Meter::read(self.stage);
        ground.touch(ground.area, access)?;
        let span = begun.until_now(self.stage);
        let begun = Meter::read(self.stage);
        ground.touch(ground.area, access)?;
        let again = begun.until_now(self.stage);
        self.note(name, ground.area.pages().get(), &span, again.ticks);
        Ok(())
    }
    fn note(&mut self, name: String, units: u64, span: &Span, loops: u64) {
        let (clearing, copying) = (span.machine.clear_ticks, span.machine.copy_ticks);
        self.rows.push(Row {
            name: name.into(),
            counts: Named::from_iter([
                ("faults", span.faults),
                ("shootdowns", span.machine.shootdowns),
                ("entries_written", span.machine.entries_written),
                ("cleared_bytes", span.machine.cleared_bytes),
                ("copied_bytes", span.machine.copied_bytes),
            ]),
            pages: units,
            ticks: Named::from_iter([
                ("clearing", clearing),
                ("copying", copying),
                ("rest", span.ticks.saturating_sub(clearing + copying + loops)),
            ]),
        });
    }

    fn ground(&self, bytes: Bytes, size: Order) -> Result<Ground<'s, 'm, S>, LabError> {
        Ground::of((self.stage, self.running), bytes, only(size), FlushGrain::WHOLE)
    }

    fn zeros(&mut self, bytes: Bytes) -> Result<(), LabError> {
        let ground = self.ground(bytes, Order::BASE)?;
        let (manager, space, area) = (ground.manager, ground.space, ground.area);
        let n = area.pages().get();
        self.touched("read fault".into(), &ground, Access::Read)?;
        self.row("unmap of zeros", n, || Ok(manager.unmap(space, area)?))
    }

    fn size(&mut self, bytes: Bytes, size: Order) -> Result<(), LabError> {
        let name = |what: &str| format!("{what}, {}", size.bytes());
        let mut ground = self.ground(bytes, size)?;
        let (manager, space, area) = (ground.manager, ground.space, ground.area);
        let n = area.pages().get();
        let write = |ground: &Ground<'s, 'm, S>| ground.touch(area, Access::Write);
        let advise = |advice| Ok(manager.advise(space, area, advice)?);
        let protect = |flags| Ok(manager.protect(space, area, flags)?);
        let renew = || -> Result<(), LabError> {
            manager.unmap(space, area)?; // with its tables
            manager.map(space, &request(area.start(), area.bytes(), Flags::READ_WRITE))?;
            Ok(())
        };
        self.touched(name("write fault"), &ground, Access::Write)?;
        self.row(name("drop"), n, || advise(Advice::DontNeed))?;
        renew()?;
        self.row(name("populate"), n, || advise(Advice::PopulateWrite))?;
        self.row(name("read-only"), n, || protect(Flags::READ))?;
        self.row(name("writable"), n, || protect(Flags::READ_WRITE))?;
        write(&ground)?;
        // The second fork finds the pages shared, as that of a shell that starts programs does.
        ground.fork()?;
        ground.end_fork();
        self.row(name("fork and end"), n, || {
            ground.fork()?;
            ground.end_fork();
            Ok(())
        })?;
        self.touched(name("write after the end"), &ground, Access::Write)?;
        ground.fork()?;
        self.touched(name("copy on write"), &ground, Access::Write)?;
        ground.end_fork();
        renew()?; // its pages were copied, and lie as they please
        write(&ground)?;
        self.row(name("unmap"), n, || Ok(manager.unmap(space, area)?))
    }

    fn calls(&mut self) -> Result<(), LabError> {
        let mut ground = self.ground(Pages::new(CALLS).bytes(), Order::BASE)?;
        let (manager, space, area) = (ground.manager, ground.space, ground.area);
        ground.touch(area, Access::Write)?;
        self.row("protect, a call", 1, || {
            Ok(manager.protect(space, page(area, 8), Flags::READ)?)
        })?;
        manager.protect(space, page(area, 8), Flags::READ_WRITE)?;
        self.row("drop, a call", CALLS, || {
            let drop = |nth| manager.advise(space, page(area, nth), Advice::DontNeed);
            Ok((0..CALLS).try_for_each(drop)?)
        })?;
        // Far from all else, as a page whose address nobody chose mostly is.
        let start = area.end().align_down(Bytes::SIZE_2M).add(8 * Bytes::SIZE_2M.get());
        let single = request(start, PAGE, Flags::READ_WRITE);
        self.row("map and unmap, a call", CALLS, || {
            (0..CALLS).try_for_each(|_| {
                let mapped = manager.map(space, &single)?;
                Ok(manager.unmap(space, mapped)?)
            })
        })?;
        self.row("map, touch and unmap, a call", CALLS, || {
            (0..CALLS).try_for_each(|_| {
                let mapped = manager.map(space, &single)?;
                ground.touch(mapped, Access::Write)?;
                Ok(manager.unmap(space, mapped)?)
            })
        })?;
        manager.unmap(space, area)?;
        self.row("fork and end, empty", 1, || {
            ground.fork()?;
            ground.end_fork();
            Ok(())
        })
    }

    fn split(&mut self) -> Result<(), LabError> {
        let ground = self.ground(Bytes::new(BLOCKS * Bytes::SIZE_2M.get()), Order::SIZE_2M)?;
        let (manager, space, area) = (ground.manager, ground.space, ground.area);
        ground.touch(area, Access::Write)?;
        let block = |nth: u64| area.start().add(nth * Bytes::SIZE_2M.get());
        for nth in 0..BLOCKS {
            // A page with other rights takes the leaf apart, and leaves the folio whole.
            let page = page(area, nth * 512 + 1);
            manager.protect(space, page, Flags::READ)?;
            manager.protect(space, page, Flags::READ_WRITE)?;
        }
        self.row("split, mapped by pages", BLOCKS, || {
            (0..BLOCKS).for_each(|nth| {
                let _ = manager.split(space, block(nth), SplitInto::BASE); // counted
            });
            Ok(())
        })
    }

    fn pool(&mut self) -> Result<(), LabError> {
        let (manager, order) = (self.stage.manager(), Order::SIZE_2M);
        let had = manager.pool(order).map_or(0, |pool| pool.persistent());
        let before = manager.folding();
        manager.set_folding(Folding::Off);
        let resize = |pages| hugetlb::resize(manager, order, had + pages, Budget(BLOCKS));
        let filled = self.row("pool, fill", BLOCKS, || resize(BLOCKS));
        let drained = self.row("pool, drain", BLOCKS, || resize(0));
        manager.set_folding(before);
        filled.and(drained)
    }

    /// The same work beside more and more areas, half of them on either side of it.
    fn areas(&mut self, count: u64) -> Result<(), LabError> {
        let name = |what: &str| format!("{what}, {count} areas");
        let ground = self.ground(rounded(Pages::new((count + SHARED) * 2)), Order::BASE)?;
        let (manager, space, all) = (ground.manager, ground.space, ground.area);
        manager.unmap(space, all)?;
        let place = |nth: u64, pages: u64| {
            request(
                all.start().add(nth * 2 * PAGE.get()),
                Pages::new(pages).bytes(),
                Flags::READ_WRITE,
            )
        };
        let half = count / 2;
        for nth in (0..half).chain(half + SHARED..count + SHARED) {
            manager.map(space, &place(nth, 1))?;
        }
        let middle = manager.map(space, &place(half, SHARED))?;
        let single = place(half + SHARED / 2 + 8, 1);
        self.row(name("write fault"), SHARED, || ground.touch(middle, Access::Write))?;
        self.row(name("protect, a call"), 1, || {
            Ok(manager.protect(space, page(middle, 8), Flags::READ)?)
        })?;
        manager.protect(space, page(middle, 8), Flags::READ_WRITE)?;
        self.row(name("unmap"), SHARED, || Ok(manager.unmap(space, middle)?))?;
        self.row(name("map and unmap, a call"), CALLS, || {
            (0..CALLS).try_for_each(|_| {
                let mapped = manager.map(space, &single)?;
                Ok(manager.unmap(space, mapped)?)
            })
        })
    }

    fn shared(&mut self) -> Result<(), LabError> {
        let ground = self.ground(Pages::new(SHARED).bytes(), Order::BASE)?;
        let (manager, space, all) = (ground.manager, ground.space, ground.area);
        for (by, how) in [(SHARED, "in one call"), (32, "by 32"), (1, "one by one")] {
            let calls = SHARED / by;
            let part = |nth| pages(all, nth * by, by);
            let each = |call: &dyn Fn(VaRange) -> Result<(), LabError>| {
                (0..calls).try_for_each(|nth| call(part(nth)))
            };
            let settle = || {
                ground.touch(all, Access::Write)?;
                ground.touch_everywhere(Access::Read)
            };
            settle()?;
            self.row(format!("shared, read-only, {how}"), calls, || {
                each(&|part| Ok(manager.protect(space, part, Flags::READ)?))
            })?;
            manager.protect(space, all, Flags::READ_WRITE)?;
            settle()?;
            self.row(format!("shared, drop, {how}"), calls, || {
                each(&|part| Ok(manager.advise(space, part, Advice::DontNeed)?))
            })?;
            settle()?;
            self.row(format!("shared, unmap, {how}"), calls, || {
                each(&|part| Ok(manager.unmap(space, part)?))
            })?;
            manager.map(space, &request(all.start(), all.bytes(), Flags::READ_WRITE))?;
        }
        Ok(())
    }
}
