//! `foliant sim`: one random history of the manager on the simulated machine, and what its checkers
//! say of it.
//!
//! **Not here**: histories, plants and checkers (`foliant-history`).

use crate::args::Sim;
use crate::document::Document;
use crate::failure::{Done, Failure, print};
use crate::table::columns_left;
use crate::terminal::fitted;
use crate::{document, progress};
use foliant_history as history;
use foliant_history::{History, Plant, Refused, Report, plants};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// Exit code of a history with findings, of a planted bug that none of them is about, and of an
/// allocation to be refused that was not made.
const BAD: u8 = 1;

/// One random history under all checkers.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Whole<'r> {
    /// Its seed.
    seed: u64,
    /// What it was made of.
    shape: Shape,
    /// The planted bug, if one was.
    planted: Option<&'static str>,
    /// How often the planted bug struck.
    struck: u64,
    /// How many operations there were of each kind.
    operations: &'r BTreeMap<&'static str, u64>,
    /// Faults that the manager handled.
    faults: u64,
    /// Flushes that asked other CPUs.
    shootdowns: u64,
    /// CPUs that they asked.
    interrupts: u64,
    /// Switches to a space of which the CPU kept what it had cached.
    kept_switches: u64,
    /// Groups of entries that were made, and that were taken apart.
    groups: [u64; 2],
    /// Allocations that were refused on purpose.
    refused_allocations: u64,
    /// Operations and accesses refused for lack of memory.
    refused_operations: u64,
    /// Equal for equal histories: 16 hexadecimal digits.
    digest: String,
    /// What the checkers found.
    findings: Vec<Finding<'r>>,
    /// The command that shows the history again.
    replay: String,
}

impl Document for Whole<'_> {
    const NAME: &'static str = "sim";
    const COMMAND: &'static str = "foliant sim --json";
}

/// What a history is made of.
#[derive(Serialize, JsonSchema)]
struct Shape {
    /// CPUs that work.
    cpus: usize,
    /// Operations in all.
    steps: usize,
    /// What CPUs share, as `--style` takes it.
    style: String,
    /// The page-table format.
    format: Format,
    /// One allocation in so many is refused, if any are.
    refused_one_in: Option<u32>,
    /// The number of the one allocation that is refused, if one is.
    refused_kth: Option<u64>,
    /// Whether live entries are broken before they are made anew, whatever is usual for the format.
    is_break_before_make: bool,
    /// Pages that half of the spaces may take at most, if they have a limit.
    limit_pages: Option<u64>,
}

/// The page-table format.
#[derive(Serialize, JsonSchema)]
enum Format {
    /// x86-64 with four levels.
    #[serde(rename = "x86-64, 4 levels")]
    X86Four,
    /// x86-64 with five levels.
    #[serde(rename = "x86-64, 5 levels")]
    X86Five,
    /// aarch64, which breaks before it makes.
    #[serde(rename = "aarch64")]
    Aarch64,
    /// riscv64 with three levels.
    #[serde(rename = "riscv64, sv39")]
    Sv39,
    /// riscv64 with four levels.
    #[serde(rename = "riscv64, sv48")]
    Sv48,
}

/// Something that must not be.
#[derive(Serialize, JsonSchema)]
struct Finding<'r> {
    /// The checker that saw it.
    checker: &'static str,
    /// What it saw, in words.
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
    print(&if args.json { document::text(&whole(&report))? } else { text(&report) })?;
    verdict(&report)
}

fn list() -> String {
    let line = |plant: &Plant| [plant.name(), plant.checker(), plant.about()].map(str::to_owned);
    columns_left(&["planted bug", "caught by", "what is wrong"], plants().iter().map(line))
}

/// The report within the terminal, but the command that is to be copied in one line.
fn text(report: &Report) -> String {
    let told = report.to_string();
    match told.rfind("again: ") {
        Some(at) => fitted(&told[..at]) + &told[at..],
        None => fitted(&told),
    }
}

fn any_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(now.subsec_micros())
}

fn shape(seed: u64, args: &Sim) -> Done<history::Shape> {
    let mut shape = match &args.plant {
        Some(plant) => history::Shape::planted(seed, *plant),
        None => history::Shape::of(seed),
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
        shape: made_of(&report.shape),
        planted: report.shape.plant.map(Plant::name),
        struck: report.struck,
        operations: &report.operations,
        faults: report.faults,
        shootdowns: report.shootdowns,
        interrupts: report.interrupts,
        kept_switches: report.kept,
        groups: report.groups,
        refused_allocations: report.refused_allocations,
        refused_operations: report.refused_operations,
        digest: format!("{:016x}", report.digest),
        findings: found.map(|f| Finding { checker: f.checker, text: &f.text }).collect(),
        replay: report.replay(),
    }
}

fn made_of(shape: &history::Shape) -> Shape {
    let (refused_one_in, refused_kth) = match shape.refused {
        Refused::Nothing => (None, None),
        Refused::OneIn(every) => (Some(every), None),
        Refused::Kth(k) => (None, Some(k)),
    };
    Shape {
        cpus: shape.cpus,
        steps: shape.steps,
        style: shape.style.to_string(),
        format: match shape.format {
            history::Format::X86Four => Format::X86Four,
            history::Format::X86Five => Format::X86Five,
            history::Format::Aarch64 => Format::Aarch64,
            history::Format::Sv39 => Format::Sv39,
            history::Format::Sv48 => Format::Sv48,
        },
        refused_one_in,
        refused_kth,
        is_break_before_make: shape.live == history::Live::BreakBeforeMake,
        limit_pages: Some(shape.limit).filter(|limit| *limit > 0),
    }
}

/// A finding is bad news unless it was planted; a planted bug that nobody found is, too, and so is
/// a refusal that was asked for and did not happen.
fn verdict(report: &Report) -> Done {
    match report.shape.plant {
        None if report.is_clean() => match report.shape.refused {
            Refused::Kth(k) if report.refused_allocations == 0 => Err(Failure::Coded(
                BAD,
                format!(
                    "--fail {k} refused nothing: there are fewer allocations; use a smaller number"
                ),
            )),
            _ => Ok(()),
        },
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
