//! `foliant report FILE`: what a recording holds and what folio sizes make of it, as one page.
//!
//! ```text
//!   file ─▶ description, plan ─▶ a row for each policy ─▶ what is recommended ─┐
//!                            └─▶ sights at the peak, for some policies ────────┼─▶ Recorded ─▶ page
//! ```
//!
//! **Invariants**
//! - W1. Reading, planning, replaying and looking draw on one budget, and the page holds a bounded
//!   number of policies, moments, areas and cells: a stranger's recording makes no large page.
//! - W2. What is touched is what the replay with 4 KiB pages maps, so it is the recording's and no
//!   estimate.
//!
//! **Not here**: the page's words (`page`), its pictures (`course`, `cells`).

mod areas;
mod cells;
mod course;
mod page;
#[cfg(test)]
mod tests;

pub(super) use page::render;

use super::asked::replay_of;
use crate::calibrate::kept;
use crate::failure::{Done, Failure};
use crate::shown::{self, shown};
use crate::table::{self, count, mib, shorten};
use crate::{calibrate, progress, replay, replayed};
use areas::Area;
use foliant_trace::replay::{Choice, Plan, Planner, Row, Settings, Shared, replay_all, sights_at};
use foliant_trace::{About, Budget, Describer, Description, Reader, TraceError};
use foliant_units::{Bytes, Order};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// The letters of a command that are shown.
const COMMAND_MOST: usize = 200;
/// Programs that are named.
const PROGRAMS_MOST: usize = 12;
/// What sights are looked at for: where what is recommended is compared with the program's own
/// pages, and what the largest sizes would make of it.
const LARGEST: Choice = Choice::UpTo(Order::SIZE_2M);

/// What the page says, before it is a page.
#[derive(Debug)]
pub(super) struct Recorded {
    /// The file's name, and the program's words.
    name: String,
    program: String,
    /// The command that makes the rows (report::P2).
    command: String,
    /// What is known of the recording: names and values.
    facts: Vec<(&'static str, String)>,
    /// What to know before anything is concluded.
    warnings: Vec<String>,
    recommended: Recommended,
    /// The row of 4 KiB pages first.
    rows: Vec<Row>,
    /// The policies that sights were looked at for.
    looked: Vec<Choice>,
    /// Areas with the most memory first, and what the others come to.
    areas: Vec<Area>,
    others: Option<Area>,
}

/// What to do, in one sentence, why, and a command that tries it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Recommended {
    /// The row that it is about.
    choice: Choice,
    what: String,
    why: String,
    command: String,
}

/// Reads and replays a recording.
pub(super) fn content(path: &Path, budget: &Budget) -> Done<Recorded> {
    let (about, description, plan) = read(path, budget)?;
    let args = replay_of(path)?;
    let settings = replay::settings(&args.machine, &about, kept::chosen(args.machine.model)?);
    let failed = |why| Failure::replaying(path, why);
    let choices = args.rows.choices();
    let bar = progress::bar("replaying", plan.steps() * (choices.len() as u64 + 3));
    let rows = replay_all(&plan, &choices, &settings, |steps| bar.inc(steps)).map_err(failed)?;
    let base = rows.first().filter(|row| row.choice == Choice::BASE);
    let base = base.ok_or_else(|| Failure::new("the row of 4 KiB pages is missing"))?;
    let recommended = recommended(&rows, base);
    let mut looked = vec![recommended.choice, LARGEST];
    looked.retain(|choice| *choice != Choice::BASE);
    looked.dedup();
    let sights = |choice| {
        let sights = sights_at(&plan, base.peak_step, choice, &settings).map_err(failed);
        bar.inc(plan.steps());
        sights
    };
    let touched = sights(Choice::BASE)?;
    let mapped = looked.iter().map(|choice| sights(*choice)).collect::<Done<Vec<_>>>()?;
    bar.finish_and_clear();
    let (areas, others) = areas::compared(&touched, &mapped, &description);
    Ok(Recorded {
        name: shown::path(path),
        program: shorten(&shown(&about.header.command.join(" ")), COMMAND_MOST),
        command: format!("foliant replay {}", shown::path(path)),
        facts: facts(&about, &description, &plan, &settings),
        warnings: warnings(&about, &plan, &rows),
        recommended,
        rows,
        looked,
        areas,
        others,
    })
}

/// Reads the events once, for the description and for the plan.
fn read(path: &Path, budget: &Budget) -> Done<(About, Description, Plan)> {
    let failed = |why: TraceError| Failure::reading(path, why);
    let file = File::open(path).map_err(|why| failed(why.into()))?;
    let mut reader = Reader::new(BufReader::new(file), budget).map_err(failed)?;
    let (mut describer, mut planner) =
        (Describer::new(budget), Planner::new(Shared::Replayed, budget));
    for event in reader.by_ref() {
        let event = event.map_err(failed)?;
        describer.add(&event).map_err(|why| failed(why.into()))?;
        planner.add(&event).map_err(|why| Failure::planning(path, why))?;
    }
    Ok((reader.finish().map_err(failed)?, describer.finish(), planner.finish()))
}

/// What the rows speak for: the one sight that decides what is on top of the page.
fn recommended(rows: &[Row], base: &Row) -> Recommended {
    let choice = replayed::best(rows, base).unwrap_or(Choice::BASE);
    let row = rows.iter().find(|row| row.choice == choice).unwrap_or(base);
    let percent = (replayed::PEAK_RATIO_MOST - 1.0) * 100.0;
    if choice == Choice::BASE {
        let what = "Leave this program with 4 KiB pages.".to_owned();
        let why = format!(
            "No larger size takes less of the kernel's time within {percent:.0} % more memory."
        );
        let command = "sudo foliant check --policy 4k,up-to-2m -- COMMAND".to_owned();
        return Recommended { choice, what, why, command };
    }
    let sizes = match choice {
        Choice::UpTo(order) => format!("folios of up to {}", size(order)),
        Choice::Only(order) => format!("folios of {} and no other large size", size(order)),
        Choice::Auto => "sizes that the manager chooses".to_owned(),
    };
    let why = format!(
        "The kernel then takes {} of the time that it takes with 4 KiB pages ({:.1} ms instead of {:.1}), and {} of the memory \
         ({} MiB instead of {}). Other sizes within {percent:.0} % more memory take longer.",
        times(row.kernel_ratio(base)),
        row.kernel.0 as f64 / 1e6,
        base.kernel.0 as f64 / 1e6,
        times(row.peak_ratio(base)),
        mib(row.peak.get()),
        mib(base.peak.get()),
    );
    let what = format!("Give this program {sizes}.");
    let command = format!("sudo foliant check --policy {choice} -- COMMAND");
    Recommended { choice, what, why, command }
}

fn times(ratio: f64) -> String {
    format!("{ratio:.3}")
}

/// A size for a sentence: `64 KiB`.
fn size(order: Order) -> String {
    let bytes = order.bytes().get();
    match bytes >> 20 {
        0 => format!("{} KiB", bytes >> 10),
        mib => format!("{mib} MiB"),
    }
}

fn facts(
    about: &About,
    described: &Description,
    plan: &Plan,
    settings: &Settings,
) -> Vec<(&'static str, String)> {
    let header = &about.header;
    let memory = settings.memory_for(plan).get() >> 20;
    vec![
        ("Programs", programs(&described.programs)),
        (
            "Who",
            format!(
                "{} processes, {} threads, {} address spaces",
                count(described.processes),
                count(described.threads),
                count(described.spaces)
            ),
        ),
        ("Time", format!("{:.3} s", described.span_ns as f64 / 1e9)),
        (
            "Faults",
            format!("{} recorded, {}", count(plan.recorded_faults), replayed::replayable(plan)),
        ),
        (
            "Recorded on",
            format!(
                "{}, {} CPUs, {}",
                shown(&header.processor),
                header.cpus,
                shown(&header.kernel)
            ),
        ),
        ("Accesses", format!("kinds known from {}", header.access_source.name())),
        ("Replayed on", format!("{} CPUs with {} MiB", settings.cpus, count(memory))),
        ("Model", calibrate::model::caption(&settings.model)),
        ("Foliant", env!("CARGO_PKG_VERSION").to_owned()),
    ]
}

/// The programs' names without folders, each once.
fn programs(all: &[String]) -> String {
    let mut names: Vec<String> = Vec::new();
    for program in all {
        let name = program_name(program);
        if names.len() <= PROGRAMS_MOST && !names.contains(&name) {
            names.push(name);
        }
    }
    if names.len() > PROGRAMS_MOST {
        names.truncate(PROGRAMS_MOST);
        names.push("and others".to_owned());
    }
    names.join(", ")
}

/// A program's file name, as it may be shown.
fn program_name(path: &str) -> String {
    shorten(&shown(path.rsplit('/').next().unwrap_or(path)), 40)
}

fn warnings(about: &About, plan: &Plan, rows: &[Row]) -> Vec<String> {
    let mut said = Vec::new();
    if !about.trailer.is_complete() {
        said.push(format!(
            "The recording is not complete: {} faults lost.",
            count(about.trailer.lost)
        ));
        said.extend(
            about.trailer.remarks.iter().take(4).map(|remark| shorten(&shown(remark), 200)),
        );
    }
    said.extend(replayed::nameless(plan).map(|said| format!("{said}.")));
    if plan.stray_faults > 0 {
        said.push(format!(
            "{} faults are in memory that the recording knows nothing of: no policy changes them here, and one may on Linux.",
            count(plan.stray_faults)
        ));
    }
    let refused: u64 = rows.iter().map(|row| row.refused).sum();
    if refused > 0 {
        said.push(format!("{} faults that Linux served were refused.", count(refused)));
    }
    said
}

/// Bytes in MiB, for a table.
fn in_mib(bytes: Bytes) -> String {
    table::mib(bytes.get())
}
