//! The table and the JSON of a check.

use super::verdict::{Compared, Range, Verdict};
use super::{Checked, Checks, FAULTS_GOAL, PEAK_GOAL};
use crate::shown::shown;
use crate::table;
use serde_json::{Value, json};
use std::fmt::Write;

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
    let mut text = String::new();
    let command = table::shorten(&shown(&about.header.command.join(" ")), 90);
    let _ = writeln!(text, "{command}");
    let _ = writeln!(
        text,
        "{}, {} CPUs, {}; predicted from recordings with 4 KiB pages, measured, {runs} times each\n",
        shown(&about.header.processor),
        about.header.cpus,
        shown(&about.header.kernel)
    );
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
        let cells = [cells(&row.faults, table::count), cells(&row.peak, table::mib)];
        std::iter::once(row.choice.to_string()).chain(cells.into_iter().flatten()).collect()
    };
    text += &table::columns(&heads, rows.iter().map(line));
    text.push('\n');
    for remark in remarks(checks) {
        let _ = writeln!(text, "{remark}");
    }
    for size in skipped {
        let _ = writeln!(
            text,
            "{size} is offered by this kernel and left out: Foliant has no such folios"
        );
    }
    if let Some((first, later)) = first {
        let _ = writeln!(
            text,
            "The first run took {} faults and no later one more than {}: it left something behind (a file built, a cache\n\
             filled); say with --prepare what undoes it, like --prepare 'make clean'",
            table::count(*first),
            table::count(*later)
        );
    }
    text += "Faults are all page faults; MiB is the peak of anonymous memory mapped by all processes together, pages that\n\
             are shared once for each. off: of medians. Addresses are not randomized, so that all runs have the same layout.\n";
    text
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
            "{}: the machine had not every folio that was asked for ({}, by all its programs, in one run);\n  \
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

fn compared(compared: &Compared) -> Value {
    let range = |range: Range| json!({ "lowest": range.lowest, "median": range.median, "highest": range.highest });
    json!({
        "predicted": range(compared.predicted),
        "measured": compared.measured.map(range),
        "off_percent": compared.off().map(|off| off * 100.0),
        "verdict": compared.verdict().word(),
    })
}

pub(super) fn object(checks: &Checks) -> Value {
    let Checks { about, runs, rows, skipped, first } = checks;
    let row = |row: &Checked| {
        json!({
            "policy": row.choice.to_string(),
            "faults": compared(&row.faults),
            "peak_mapped_bytes": compared(&row.peak),
            "fallbacks": row.fallbacks,
        })
    };
    json!({
        "command": about.header.command,
        "processor": about.header.processor,
        "kernel": about.header.kernel,
        "cpus": about.header.cpus,
        "runs": runs,
        "faults_goal_percent": FAULTS_GOAL * 100.0,
        "peak_goal_percent": PEAK_GOAL * 100.0,
        "first_run_faults": first.map(|(first, _)| first),
        "left_out": skipped.iter().map(|size| size.to_string()).collect::<Vec<_>>(),
        "policies": rows.iter().map(row).collect::<Vec<_>>(),
    })
}
