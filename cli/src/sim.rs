//! `foliant sim`: one random history of the manager on the simulated machine, and what its checkers
//! say of it.
//!
//! **Not here**: histories, plants and checkers (`foliant-history`).

use crate::args::Sim;
use crate::failure::{Done, Failure, print};
use crate::table::columns_left;
use crate::{json, progress};
use foliant_history::{History, Plant, Refused, Report, Shape, plants};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// Exit code of a history with findings, and of a planted bug that none of them is about.
const BAD: u8 = 1;

#[derive(Serialize)]
struct Whole<'r> {
    seed: u64,
    shape: String,
    planted: Option<&'static str>,
    /// How often the planted bug struck.
    struck: u64,
    operations: &'r BTreeMap<&'static str, u64>,
    faults: u64,
    shootdowns: u64,
    interrupts: u64,
    kept_switches: u64,
    refused_allocations: u64,
    refused_operations: u64,
    digest: String,
    findings: Vec<Finding<'r>>,
    replay: String,
}

#[derive(Serialize)]
struct Finding<'r> {
    checker: &'static str,
    text: &'r str,
}

pub(crate) fn run(args: &Sim) -> Done {
    if args.plants {
        return print(&list());
    }
    let seed = args.seed.unwrap_or_else(any_seed);
    let shape = shape(seed, args)?;
    let spinner = progress::spinner(&format!("seed {seed}: {shape}"));
    let report = History::run(seed, shape);
    spinner.finish_and_clear();
    print(&if args.json { json::text(&whole(&report))? } else { report.to_string() })?;
    verdict(&report)
}

fn list() -> String {
    let line = |plant: &Plant| [plant.name(), plant.checker(), plant.about()].map(str::to_owned);
    columns_left(&["planted bug", "caught by", "what is wrong"], plants().iter().map(line))
}

fn any_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(now.subsec_micros())
}

fn shape(seed: u64, args: &Sim) -> Done<Shape> {
    let mut shape = match &args.plant {
        Some(plant) => Shape::planted(seed, *plant),
        None => Shape::of(seed),
    };
    if let Some(cpus) = args.cpus {
        shape.cpus = cpus.into();
    }
    if let Some(steps) = args.steps {
        shape.steps = steps;
    }
    if let Some(style) = args.style {
        shape.style = style;
    }
    if let Some(k) = args.fail {
        shape.refused = Refused::Kth(k);
    }
    Ok(shape)
}

fn whole(report: &Report) -> Whole<'_> {
    let found = report.findings.iter();
    Whole {
        seed: report.seed,
        shape: report.shape.to_string(),
        planted: report.shape.plant.map(Plant::name),
        struck: report.struck,
        operations: &report.operations,
        faults: report.faults,
        shootdowns: report.shootdowns,
        interrupts: report.interrupts,
        kept_switches: report.kept,
        refused_allocations: report.refused_allocations,
        refused_operations: report.refused_operations,
        digest: format!("{:016x}", report.digest),
        findings: found.map(|f| Finding { checker: f.checker, text: &f.text }).collect(),
        replay: report.replay(),
    }
}

/// A finding is bad news unless it was planted; a planted bug that nobody found is, too.
fn verdict(report: &Report) -> Done {
    match report.shape.plant {
        None if report.is_clean() => Ok(()),
        None => Err(Failure::Coded(
            BAD,
            format!(
                "the checkers found {} things that must not be: please report the line `{}`",
                report.findings.len(),
                report.replay()
            ),
        )),
        Some(plant) if report.found_by(plant.checker()) => Ok(()),
        Some(plant) => Err(Failure::Coded(
            BAD,
            format!(
                "{plant} struck {} times and {} did not see it in this history: try another seed or more steps",
                report.struck,
                plant.checker()
            ),
        )),
    }
}
