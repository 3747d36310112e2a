//! `foliant lab deadlines`: the longest stay in locks and sections, in steps, of every operation.
//!
//! **Not here**: how it is measured (`foliant-stage`).

use crate::document::{self, Document};
use crate::failure::{Done, Failure, print};
use crate::progress;
use crate::shown::shown;
use crate::table::columns;
use crate::terminal::fitted;
use foliant_stage::{Row, Scale, deadlines};
use schemars::JsonSchema;
use serde::Serialize;

/// The longest stay in locks and sections of every operation of the manager's.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Whole {
    /// CPUs of the simulated machine.
    cpus: usize,
    /// Its memory.
    memory_bytes: u64,
    /// Areas of the space that is worked on.
    areas: u64,
    /// How much of it is touched in pages of 4 KiB.
    touched_bytes: u64,
    /// A row for each operation.
    operations: Vec<Operation>,
}

impl Document for Whole {
    const NAME: &'static str = "lab-deadlines";
    const COMMAND: &'static str = "foliant lab deadlines --json";
}

/// An operation, and the most steps that it stayed in each place; a step is an access to the
/// manager's records, or a call of the machine's.
#[derive(Serialize, JsonSchema)]
struct Operation {
    /// What was asked for.
    operation: String,
    /// All steps.
    steps: u64,
    /// In a patient lock, such as that of a space's writer.
    writer: u64,
    /// In a lock that is held over long work.
    long_lock: u64,
    /// In a leaf lock.
    leaf: u64,
    /// In a page table's lock.
    table: u64,
    /// In a reader's section.
    section: u64,
    /// In a stretch of descriptors that moves.
    moving: u64,
    /// Anywhere, from one preemption point to the next.
    unbroken: u64,
}

impl Operation {
    fn of(row: &Row) -> Operation {
        let [writer, long_lock, leaf, table, section, moving, unbroken] = row.longest;
        let (operation, steps) = (row.operation.clone(), row.steps);
        Operation { operation, steps, writer, long_lock, leaf, table, section, moving, unbroken }
    }
}

/// Measures all operations: a row for each.
pub(super) fn run(words: &[String], as_json: bool) -> Done {
    let scale = scale(words)?;
    let Scale { areas, memory, cpus, touched, .. } = scale;
    let heading =
        format!("{areas} areas, {memory} of memory, {cpus} CPUs, {touched} touched; steps");
    let spinner = progress::spinner(&heading);
    let (mut operations, mut rows) = (Vec::new(), Vec::new());
    let done = deadlines(scale, |row: &Row| {
        spinner.set_message(row.operation.to_string());
        operations.push(Operation::of(row));
        let steps = row.longest.iter().map(u64::to_string);
        rows.push(std::iter::once(row.operation.to_string()).chain(steps).collect());
    });
    spinner.finish_and_clear();
    if as_json {
        done.map_err(Failure::new)?;
        let (memory_bytes, touched_bytes) = (memory.get(), touched.get());
        let whole = Whole { cpus, memory_bytes, areas, touched_bytes, operations };
        return print(&document::text(&whole)?);
    }
    let heads =
        ["operation", "writer", "long lock", "leaf", "table", "section", "moving", "unbroken"];
    print(&(fitted(&heading) + &columns(&heads, rows)))?;
    done.map_err(Failure::new)
}

fn scale(words: &[String]) -> Done<Scale> {
    match words {
        [] => Ok(Scale::SMALL),
        [word, rest @ ..] if word == "full" => match rest.first() {
            None => Ok(Scale::FULL),
            Some(more) => Err(Failure::new(format_args!(
                "{} is one word too many for `foliant lab deadlines full`: leave it out",
                shown(more)
            ))),
        },
        [word, ..] => Err(Failure::new(format_args!(
            "{} is no scale of deadlines: say nothing, or `full`",
            shown(word)
        ))),
    }
}
