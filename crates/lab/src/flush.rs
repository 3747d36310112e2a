//! `flush`: what it costs to take pages or rights away from memory that every CPU uses. The flush
//! grain is the entries per shootdown; 1 is the baseline.
//!
//! CPU 0 writes to each page of an area, and every CPU reads it before each phase, so that each may
//! have it cached. The phases are CPU 0's:
//!
//! ```text
//!   protect   all pages become read-only (and writable again, which needs no flush and is not counted)
//!   fork      all pages are shared with a new space
//!   copy      each page is written to, and copied: a flush per fault, at any grain
//!   unmap     all pages and their tables go; the upper tables stay (an anchor holds them)
//! ```

use crate::ground::{Ground, PAGE};
use crate::meter::Meter;
use crate::named::Named;
use crate::parameters::About;
use crate::{Kind, LabError, Parameter, Parameters, Ratio, Report, Row, Stage};
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;
use foliant::space::Flags;
use foliant::{Access, FlushGrain, Policy};
use foliant_units::{Bytes, Pages};

/// See the module's text.
pub(crate) const SCENARIO: About = About {
    name: "flush",
    purpose: "protect, fork, copy and unmap pages that all CPUs use, at several flush grains",
    parameters: &[
        Parameter {
            name: "pages",
            default: "512",
            kind: Kind::Pages(Pages::new(1 << 17)),
            about: "how many 4 KiB pages",
        },
        Parameter {
            name: "grains",
            default: "1,whole",
            kind: Kind::Grains,
            about: "entries per shootdown; ratios are of the first to the last",
        },
    ],
};

pub(crate) fn run<'m, S: Stage<'m>>(
    stage: &S,
    parameters: &Parameters,
) -> Result<Report, LabError> {
    let bytes = parameters.pages("pages").bytes();
    let mut rows = Vec::new();
    for grain in parameters.grains("grains") {
        stage.go_on()?;
        Phases::run(stage, bytes, *grain, &mut rows)?;
    }
    let ratios = ratios(&rows, parameters.grains("grains"));
    Ok(Report::of((&SCENARIO, parameters), stage, PAGE.to_string(), rows, ratios))
}

/// All phases at one grain.
struct Phases<'s, 'r, 'm, S: Stage<'m>> {
    ground: Ground<'s, 'm, S>,
    grain: FlushGrain,
    rows: &'r mut Vec<Row>,
}

const PHASES: [&str; 4] = ["protect", "fork", "copy", "unmap"];

fn name(phase: &str, grain: FlushGrain) -> alloc::string::String {
    format!("{phase}, grain {grain}")
}

impl<'s, 'r, 'm, S: Stage<'m>> Phases<'s, 'r, 'm, S> {
    fn run(
        stage: &'s S,
        bytes: Bytes,
        grain: FlushGrain,
        rows: &'r mut Vec<Row>,
    ) -> Result<(), LabError> {
        let ground = Ground::new(stage, bytes, Policy::BASE_ONLY, grain)?;
        let (manager, space, area) = (stage.manager(), ground.space, ground.area);
        let mut phases = Phases { ground, grain, rows };
        phases.ground.touch(area, Access::Write)?;
        phases.one(PHASES[0], |_| Ok(manager.protect(space, area, Flags::READ)?))?;
        manager.protect(space, area, Flags::READ_WRITE)?;
        phases.one(PHASES[1], Ground::fork)?;
        phases.one(PHASES[2], |ground| ground.touch(area, Access::Write))?;
        phases.ground.end_fork();
        phases.one(PHASES[3], |_| Ok(manager.unmap(space, area)?))
    }

    /// Every CPU reads all pages; then one phase, counted.
    fn one(
        &mut self,
        phase: &str,
        work: impl FnOnce(&mut Ground<'s, 'm, S>) -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        self.ground.touch_everywhere(Access::Read)?;
        let stage = self.ground.stage;
        let begun = Meter::read(stage);
        work(&mut self.ground)?;
        let span = begun.until_now(stage);
        self.rows.push(Row {
            name: name(phase, self.grain).into(),
            counts: Named::from_iter([
                ("shootdowns", span.machine.shootdowns),
                ("interrupts", span.machine.interrupts),
                ("invalidations", span.machine.invalidations),
                ("entries_written", span.machine.entries_written),
                ("faults", span.faults),
                ("copied_bytes", span.machine.copied_bytes),
                ("frames_used", span.frames_used),
                ("frames_freed", span.frames_freed),
            ]),
            pages: self.ground.area.bytes().get() / PAGE.get(),
            ticks: Named::from_iter([("all", span.ticks)]),
        });
        Ok(())
    }
}

/// Shootdowns and ticks of each phase at the first grain to those at the last.
fn ratios(rows: &[Row], grains: &[FlushGrain]) -> Vec<Ratio> {
    let (Some(first), Some(last)) = (grains.first(), grains.last()) else { return Vec::new() };
    if first == last {
        return Vec::new();
    }
    let find = |phase: &str, grain| rows.iter().find(|row| row.name == name(phase, grain));
    let both = |phase: &&str| {
        let (of, to) = (find(phase, *first)?, find(phase, *last)?);
        let shootdowns = |row: &Row| row.counts.get("shootdowns").copied().unwrap_or_default();
        let ticks = |row: &Row| row.ticks.get("all").copied().unwrap_or_default();
        let named = |what, of, to| {
            let name = format!("{what}, {phase}, grain {first} to {last}").into();
            Ratio { name, of, to }
        };
        Some([
            named("shootdowns", shootdowns(of), shootdowns(to)),
            named("ticks", ticks(of), ticks(to)),
        ])
    };
    PHASES.iter().filter_map(both).flatten().collect()
}
