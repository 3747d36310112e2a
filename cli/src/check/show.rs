//! The table and the document of a check.

use super::verdict::{Compared, Range, Verdict};
use super::{Checked, Checks, FAULTS_GOAL, PEAK_GOAL};
use crate::document::Document;
use crate::shown::shown;
use crate::table::{self, Mark};
use crate::terminal::{fitted, prose};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// One value, or where runs differ the lowest and the highest.
fn range(range: Range, value: fn(u64) -> String) -> String {
    let [lowest, highest] = [range.lowest, range.highest].map(value);
    if lowest == highest { lowest } else { format!("{lowest}-{highest}") }
}

fn cells(compared: &Compared, value: fn(u64) -> String) -> [String; 4] {
    let measured = compared.measured.map_or("?".to_owned(), |measured| range(measured, value));
    let off = compared.off().map_or(String::new(), |off| format!("{:+.2} %", off * 100.0));
    [range(compared.predicted, value), measured, off, compared.verdict().word().to_owned()]
}

pub(super) fn text(checks: &Checks) -> String {
    let Checks { about, runs, rows, skipped, first } = checks;
    let command = table::shorten(&shown(&about.header.command.join(" ")), 90);
    let mut text = fitted(&format!(
        "{command}\n{}, {} CPUs, {}; predicted from recordings with 4 KiB pages, measured, {runs} times each\n\n",
        shown(&about.header.processor),
        about.header.cpus,
        shown(&about.header.kernel)
    ));
    let heads = [
        "policy",
        "faults predicted",
        "measured",
        "off",
        "",
        "MiB predicted",
        "measured",
        "off",
        "",
    ];
    let line = |row: &Checked| {
        let is_off = [&row.faults, &row.peak].iter().any(|c| c.verdict() == Verdict::Off);
        let cells = [cells(&row.faults, table::count), cells(&row.peak, table::mib)];
        let cells = std::iter::once(row.choice.to_string()).chain(cells.into_iter().flatten());
        (if is_off { Mark::Bad } else { Mark::Plain }, cells.collect())
    };
    text += &table::marked(&heads, rows.iter().map(line));
    text.push('\n');
    for remark in remarks(checks) {
        text += &prose(&remark);
    }
    for size in skipped {
        text += &prose(&format!(
            "{size} is offered by this kernel and left out: Foliant has no such folios"
        ));
    }
    if let Some((first, later)) = first {
        text += &prose(&format!(
            "The first run took {} faults and no later one more than {}: it left something behind (a file built, a cache \
             filled); say with --prepare what undoes it, like --prepare 'make clean'",
            table::count(*first),
            table::count(*later)
        ));
    }
    text + &prose(
        "Faults are all page faults; MiB is the peak of anonymous memory mapped by all processes together, pages that \
         are shared once for each. off: of medians. Addresses are not randomized, so that all runs have the same layout.",
    )
}

/// What verdicts of these rows mean.
fn remarks(checks: &Checks) -> Vec<String> {
    let verdicts: Vec<Verdict> =
        checks.rows.iter().flat_map(|row| [row.faults.verdict(), row.peak.verdict()]).collect();
    let percent = |goal: f64| (goal * 100.0).round();
    let goals = format!("{} % of faults, {} % of memory", percent(FAULTS_GOAL), percent(PEAK_GOAL));
    let mut lines = vec![format!("within, off: of the goal, {goals}")];
    if verdicts.contains(&Verdict::Noise) {
        lines.push(
            "noise: the runs differ among themselves by more than the goal, so they do not say; more --runs tell more"
                .to_owned(),
        );
    }
    for row in checks.rows.iter().filter(|row| !row.fallbacks.is_empty()) {
        let counted: Vec<String> =
            row.fallbacks.iter().map(|(name, n)| format!("{name} {}", table::count(*n))).collect();
        lines.push(format!(
            "{}: the machine had not every folio that was asked for ({}, by all its programs, in one run); \
             free memory, or echo 1 >/proc/sys/vm/compact_memory, and check again",
            row.choice,
            counted.join(", ")
        ));
    }
    if verdicts.contains(&Verdict::Unmeasured) {
        lines.push("unmeasured: the kernel told of more changes than could be read".to_owned());
    }
    lines
}

/// Predictions from recordings beside what Linux showed.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Told<'c> {
    /// What was checked: the program and its arguments.
    command: &'c [String],
    /// Of this machine.
    processor: &'c str,
    /// Of this machine.
    kernel: &'c str,
    /// Of this machine.
    cpus: u32,
    /// How often the program was recorded, and how often it ran with each policy.
    runs: u32,
    /// How far off a prediction of faults may be, of what was measured.
    faults_goal_percent: f64,
    /// How far off a prediction of memory may be, of what was measured.
    peak_goal_percent: f64,
    /// Faults of the first run, if they were far more than those of every later one: it found
    /// something that later ones did not.
    first_run_faults: Option<u64>,
    /// Folio sizes that the kernel offers and Foliant does not know, like `8k`.
    left_out: Vec<String>,
    /// A row for each policy.
    policies: Vec<Policy<'c>>,
}

impl Document for Told<'_> {
    const NAME: &'static str = "check";
    const COMMAND: &'static str = "foliant check --json -- COMMAND";
}

/// One policy.
#[derive(Serialize, JsonSchema)]
struct Policy<'c> {
    /// The policy: `4k`, `up-to-64k`, `only-2m`.
    policy: String,
    /// All page faults.
    faults: Beside,
    /// The peak of anonymous memory that all processes mapped together.
    peak_mapped_bytes: Beside,
    /// How often the kernel had no folio of a size, by its own counters, in the worst run.
    fallbacks: &'c BTreeMap<String, u64>,
}

/// A prediction beside a measurement.
#[derive(Serialize, JsonSchema)]
pub(super) struct Beside {
    /// Of all recordings.
    predicted: Spread,
    /// Of all runs; nothing where it could not be measured.
    measured: Option<Spread>,
    /// How far the median of predictions lies from that of measurements, of the latter.
    off_percent: Option<f64>,
    /// What follows.
    verdict: Verdict,
}

/// Values of several runs.
#[derive(Serialize, JsonSchema)]
struct Spread {
    /// The lowest value.
    lowest: u64,
    /// The median, of an even number of runs the lower one of the middle.
    median: u64,
    /// The highest value.
    highest: u64,
}

impl From<Range> for Spread {
    fn from(range: Range) -> Spread {
        Spread { lowest: range.lowest, median: range.median, highest: range.highest }
    }
}

pub(super) fn compared(compared: &Compared) -> Beside {
    Beside {
        predicted: compared.predicted.into(),
        measured: compared.measured.map(Spread::from),
        off_percent: compared.off().map(|off| off * 100.0),
        verdict: compared.verdict(),
    }
}

pub(super) fn document(checks: &Checks) -> Told<'_> {
    let Checks { about, runs, rows, skipped, first } = checks;
    let policies = rows.iter().map(|row| Policy {
        policy: row.choice.to_string(),
        faults: compared(&row.faults),
        peak_mapped_bytes: compared(&row.peak),
        fallbacks: &row.fallbacks,
    });
    Told {
        command: &about.header.command,
        processor: &about.header.processor,
        kernel: &about.header.kernel,
        cpus: about.header.cpus,
        runs: *runs,
        faults_goal_percent: FAULTS_GOAL * 100.0,
        peak_goal_percent: PEAK_GOAL * 100.0,
        first_run_faults: first.map(|(first, _)| first),
        left_out: skipped.iter().map(|size| size.to_string()).collect(),
        policies: policies.collect(),
    }
}
