//! Reports and scenarios as tables for people.

use crate::table::{columns, count};
use crate::terminal::{entry, fitted, prose};
use foliant_lab::{Named, Ratio, Report, Row, Scenario};

/// Where what a parameter means stands in the list.
const MEANING: usize = 24;

/// The scenarios and their parameters.
pub(crate) fn list() -> String {
    let mut text = String::new();
    for scenario in Scenario::ALL {
        let about = scenario.about();
        text += &fitted(&format!("{}: {}", about.name, about.purpose));
        for parameter in about.parameters {
            let default = format!("  {}={}", parameter.name, parameter.default);
            text += &entry(&default, MEANING, &format!("{}; {}", parameter.about, parameter.kind));
        }
    }
    text + &prose(
        "deadlines: the longest stay in locks and sections of every operation, in steps; full takes minutes",
    ) + &prose(
        "\nfoliant lab NAME [KEY=VALUE...] runs one on the simulated machine, foliant boot --lab NAME in the kernel, \
         and foliant lab --truth both, and compares what they count.",
    )
}

/// A report with its heading: counts of all rows, ticks per page, ratios. `unit` says what a tick
/// is.
pub(crate) fn report(report: &Report, unit: &str) -> String {
    let Report { page, rows, ratios, .. } = report;
    let mut text = heading(report);
    text.push('\n');
    text += &columns(
        &heads(rows),
        rows.iter().map(|row| line(row, &count_names(rows), &tick_names(rows))),
    );
    text += &fitted(&format!("\nticks per page of {page}: {unit}"));
    if !ratios.is_empty() {
        text.push('\n');
        text += &columns(&["ratio", "of", "to", "times"], ratios.iter().map(ratio));
    }
    text
}

/// What was run, where, and with which parameters.
pub(super) fn heading(report: &Report) -> String {
    let Report { scenario, machine, cpus, parameters, .. } = report;
    let words: Vec<String> =
        parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let place = match machine.as_ref() {
        "simulator" => "on the simulated machine",
        "kernel" => "in the kernel",
        other => other,
    };
    let plural = if *cpus == 1 { "CPU" } else { "CPUs" };
    fitted(&format!("{scenario} {place}, {cpus} {plural}: {}", words.join(" ")))
}

/// A count's name as a head: `entries written`.
fn plain(name: &str) -> String {
    name.replace('_', " ")
}

/// The names of what any row counts, in the order in which they come.
fn count_names(rows: &[Row]) -> Vec<&str> {
    names(rows, |row| &row.counts)
}
/// The names of all ticks likewise.
fn tick_names(rows: &[Row]) -> Vec<&str> {
    names(rows, |row| &row.ticks)
}
fn names(rows: &[Row], of: impl Fn(&Row) -> &Named<u64>) -> Vec<&str> {
    let mut names = Vec::new();
    for (name, _) in rows.iter().flat_map(|row| of(row).iter()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn heads(rows: &[Row]) -> Vec<String> {
    let counts = count_names(rows).into_iter().map(plain);
    let ticks = tick_names(rows).into_iter().map(|name| format!("ticks {}", plain(name)));
    std::iter::once("run".to_owned()).chain(counts).chain(ticks).collect()
}

fn line(row: &Row, counts: &[&str], ticks: &[&str]) -> Vec<String> {
    let cell = |name: &&str| row.counts.get(name).map_or(String::new(), |n| count(*n));
    let each = |name: &&str| row.ticks.get(name).map_or(String::new(), |n| tenths(*n, row.pages));
    let values = counts.iter().map(cell).chain(ticks.iter().map(each));
    std::iter::once(row.name.to_string()).chain(values).collect()
}

fn ratio(ratio: &Ratio) -> Vec<String> {
    vec![ratio.name.to_string(), count(ratio.of), count(ratio.to), tenths(ratio.of, ratio.to)]
}

/// `of` divided by `to` with a tenth, or a dash.
pub(super) fn tenths(of: u64, to: u64) -> String {
    if to == 0 {
        return "-".to_owned();
    }
    let tenths = (u128::from(of) * 10 + u128::from(to) / 2) / u128::from(to);
    let whole = u64::try_from(tenths / 10).unwrap_or(u64::MAX);
    format!("{}.{}", count(whole), tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_rounded_to_a_tenth() {
        for (of, to, text) in [
            (513, 1, "513.0"),
            (1, 3, "0.3"),
            (2, 3, "0.7"),
            (u64::MAX, 1, "18,446,744,073,709,551,615.0"),
            (1, 0, "-"),
            (12_345, 10, "1,234.5"),
        ] {
            assert_eq!(tenths(of, to), text);
        }
    }
}
