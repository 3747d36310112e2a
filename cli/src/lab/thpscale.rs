//! `foliant lab thpscale`: the scenario, and its gain beside the one that was published.
//!
//! Published are mean latencies of a kernel before and after its splits flushed once; the unit is
//! not stated, and machine and contention are others. So gains are compared and no times.
//!
//! **Not here**: the scenario (`foliant-lab`).

use super::{document, show};
use crate::args::Lab;
use crate::document::{Document, text};
use crate::failure::{Done, print};
use crate::scenario::{simulate, with_model};
use crate::table::columns;
use foliant_lab::{Parameters, Report, Scenario};
use schemars::JsonSchema;
use serde::Serialize;

const PUBLISHED: &str = include_str!("thpscale.tsv");

/// One number of threads.
#[derive(Serialize, JsonSchema, PartialEq, Debug)]
pub(crate) struct Beside {
    /// How many fault.
    pub(crate) threads: u64,
    /// The mean latency with batched flushes, where without it is 1.
    pub(crate) time: Option<f64>,
    /// The same of what was published.
    pub(crate) published_time: Option<f64>,
}

/// Faults while memory is fragmented, and the gain of batched flushes beside the published one.
#[derive(Serialize, JsonSchema, Debug)]
pub(crate) struct Whole<'r> {
    #[serde(flatten)]
    report: document::Report<'r>,
    /// The model that time is reckoned by.
    model: &'static str,
    /// A row for each number of threads.
    published: Vec<Beside>,
    /// Of the times of these rows.
    geometric_mean: Option<f64>,
    /// Of the published ones.
    published_geometric_mean: Option<f64>,
}

impl Document for Whole<'_> {
    const NAME: &'static str = "lab-thpscale";
    const COMMAND: &'static str = "foliant lab thpscale --json";
}

pub(super) fn run(args: &Lab, parameters: &Parameters) -> Done {
    let scenario = Scenario::Thpscale;
    let report = simulate((scenario, parameters), args.size, |config| with_model(config, args))?;
    let rows = beside(&report);
    let own = geometric_mean(rows.iter().map(|row| row.time));
    let theirs = geometric_mean(rows.iter().map(|row| row.published_time));
    if args.json {
        let whole = Whole {
            report: document::report(&report),
            model: args.model().name,
            published: rows,
            geometric_mean: own,
            published_geometric_mean: theirs,
        };
        return print(&text(&whole)?);
    }
    let unit = format!(
        "nanoseconds of modelled kernel time, model {}",
        crate::calibrate::model::caption(&args.model())
    );
    print(&format!("{}\n{}", show::report(&report, &unit), table(&rows, own, theirs)))
}

/// The time of each number of threads that was run.
pub(crate) fn beside(report: &Report) -> Vec<Beside> {
    let threads_of = |name: &str| {
        let number = name.strip_prefix("fault-both-")?.split(',').next()?;
        number.parse::<u64>().ok()
    };
    let row = |ratio: &foliant_lab::Ratio| {
        let threads = threads_of(&ratio.name)?;
        let time = (ratio.of > 0).then(|| ratio.to as f64 / ratio.of as f64);
        Some(Beside { threads, time, published_time: published(threads) })
    };
    report.ratios.iter().filter_map(row).collect()
}

/// The geometric means of the published latencies, before and after.
pub(crate) fn published_means() -> Option<(f64, f64)> {
    let cell = |line: &str, n: usize| line.split('\t').nth(n)?.parse::<f64>().ok();
    let lines = || PUBLISHED.lines().filter(|line| !line.starts_with('#')).skip(1);
    let mean = |n| geometric_mean(lines().map(|line| cell(line, n)));
    mean(2).zip(mean(3))
}

fn published(threads: u64) -> Option<f64> {
    latencies(threads).map(|[before, after]| after / before)
}
/// What was published of so many threads: latencies before and after.
pub(crate) fn latencies(threads: u64) -> Option<[f64; 2]> {
    let rows = PUBLISHED.lines().filter(|line| !line.starts_with('#')).skip(1);
    rows.map(|line| line.split('\t').collect::<Vec<_>>()).find_map(|cells| {
        let number = |n: usize| cells.get(n)?.parse::<f64>().ok();
        (number(1)? == threads as f64).then_some([number(2)?, number(3)?])
    })
}

/// Of those that are there.
pub(crate) fn geometric_mean(times: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let (sum, count) = times.flatten().fold((0.0, 0), |(sum, n), time| (sum + time.ln(), n + 1));
    (count > 0).then(|| (sum / f64::from(count)).exp())
}

fn table(rows: &[Beside], own: Option<f64>, theirs: Option<f64>) -> String {
    let gain =
        |time: Option<f64>| time.map_or("-".to_owned(), |t| format!("{:.2} %", 100.0 - 100.0 * t));
    let times = |time: Option<f64>| time.map_or("-".to_owned(), |t| format!("{t:.3}"));
    let line = |row: &Beside| {
        vec![
            format!("fault-both-{}", row.threads),
            gain(row.time),
            gain(row.published_time),
            times(row.time),
            times(row.published_time),
        ]
    };
    let mean =
        vec!["geometric mean".to_owned(), String::new(), String::new(), times(own), times(theirs)];
    let heads = ["", "gain", "published gain", "time", "published time"];
    columns(&heads, rows.iter().map(line).chain([mean]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_published_is_read_and_its_mean_is_the_one_that_follows_from_it() {
        let counts = [1, 3, 5, 7, 12, 18, 24, 30, 32];
        let times = || counts.iter().map(|n| published(*n));
        assert!(times().all(|time| time.is_some()));
        let gain = |n| 100.0 - 100.0 * published(n).unwrap();
        assert!((gain(1) - 15.81).abs() < 0.005 && (gain(30) - 27.76).abs() < 0.005);
        let mean = geometric_mean(times()).unwrap();
        assert!((mean - 0.792).abs() < 0.0005, "{mean}");
        assert_eq!(published(2), None);
        assert_eq!(geometric_mean([None].into_iter()), None);
    }
}
