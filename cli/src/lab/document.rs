//! The report of a scenario as a document.
//!
//! **Not here**: the line that the kernel writes and the command reads (`foliant_lab::Report`).

use crate::document::Document;
use foliant_lab::{self as lab, Named};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// What a scenario counted, on the simulated machine or in the kernel.
#[derive(Serialize, JsonSchema, Debug)]
pub(crate) struct Report<'r> {
    /// The scenario.
    scenario: &'r str,
    /// Where it ran: `simulator`, `kernel`.
    machine: &'r str,
    /// On how many CPUs.
    cpus: u64,
    /// Its parameters, those that were not given included.
    #[schemars(with = "BTreeMap<String, String>")]
    parameters: &'r Named<String>,
    /// How large the pages are that ticks are for.
    page: &'r str,
    /// A row for each run.
    rows: Vec<Row<'r>>,
    /// How many times more of something one row has than another.
    ratios: Vec<Ratio<'r>>,
}

impl Document for Report<'_> {
    const NAME: &'static str = "lab-scenario";
    const COMMAND: &'static str = "foliant lab NAME --json, foliant boot --lab NAME --json";
}

/// One run of the measured work.
#[derive(Serialize, JsonSchema, Debug)]
pub(crate) struct Row<'r> {
    /// What was run: a size, a grain and a phase.
    name: &'r str,
    /// What was counted, by name: the same on every machine.
    #[schemars(with = "BTreeMap<String, u64>")]
    counts: &'r Named<u64>,
    /// How many pages the ticks are for.
    pages: u64,
    /// What it took, by name: nanoseconds of modelled kernel time on the simulator, in the kernel
    /// cycles of an emulator, or instructions with `--icount`.
    #[schemars(with = "BTreeMap<String, u64>")]
    ticks: &'r Named<u64>,
}

/// How many times more of something one row has than another.
#[derive(Serialize, JsonSchema, Debug)]
struct Ratio<'r> {
    /// Of what, and of which rows.
    name: &'r str,
    /// The one.
    of: u64,
    /// The other; 0 where there is no ratio.
    to: u64,
}

/// A row as a document has it.
pub(super) fn row(row: &lab::Row) -> Row<'_> {
    Row { name: &row.name, counts: &row.counts, pages: row.pages, ticks: &row.ticks }
}

/// A report as a document.
pub(crate) fn report(report: &lab::Report) -> Report<'_> {
    let ratios = report.ratios.iter();
    let ratios = ratios.map(|ratio| Ratio { name: &ratio.name, of: ratio.of, to: ratio.to });
    Report {
        scenario: &report.scenario,
        machine: &report.machine,
        cpus: report.cpus,
        parameters: &report.parameters,
        page: &report.page,
        rows: report.rows.iter().map(row).collect(),
        ratios: ratios.collect(),
    }
}
