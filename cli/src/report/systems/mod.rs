//! The five systems: which commands measure each, and what figures are made of their reports.
//!
//! **Not here**: how a figure looks (`page`, `plot`).

mod faults;
mod hugetlb;
mod split;
mod vmalloc;
mod zero;

pub(crate) use zero::cleared;

use super::asked::Extent;
use super::content::System;
use super::plot::{Plot, Scale, Series, Shown};
use super::results::Results;
use crate::failure::Done;
use foliant_lab::{Report, Row};

/// All commands, each once.
pub(crate) fn commands(extent: Extent) -> Vec<String> {
    let all =
        [hugetlb::commands, vmalloc::commands, split::commands, zero::commands, faults::commands];
    all.iter().flat_map(|commands| commands(extent)).collect()
}

/// The systems' parts of the page, in the order in which they are shown.
pub(crate) fn parts(extent: Extent, results: &Results) -> Done<Vec<System>> {
    let all = [hugetlb::part, vmalloc::part, split::part, zero::part, faults::part];
    all.iter().map(|part| part(extent, results)).collect()
}

/// A count or a tick of a row.
fn value(row: &Row, name: &str) -> u64 {
    row.counts.get(name).or_else(|| row.ticks.get(name)).copied().unwrap_or_default()
}

/// The row of this name.
fn find<'r>(report: &'r Report, name: &str) -> Option<&'r Row> {
    report.rows.iter().find(|row| row.name == name)
}

/// Of the row of this name; nothing where there is no such row.
fn at(report: &Report, name: &str, of: impl Fn(&Row) -> f64) -> f64 {
    find(report, name).map_or(f64::NAN, of)
}

/// Ticks for each page of the row.
fn each(row: &Row, ticks: &str) -> f64 {
    value(row, ticks) as f64 / row.pages.max(1) as f64
}

/// How many times less; nothing where there is nothing to divide by.
fn ratio(of: f64, to: f64) -> Option<f64> {
    (to > 0.0).then(|| of / to)
}

/// Lines over numbers of CPUs, one for each name: `of` says what the report of so many has.
fn over_cpus(
    title: &str,
    extent: Extent,
    series: &[(&str, super::plot::Role)],
    of: impl Fn(u64, &str) -> Done<f64>,
) -> Done<Plot> {
    let cpus = extent.cpus();
    let line = |(name, role): &(&str, super::plot::Role)| {
        let points = cpus.iter().enumerate().map(|(nth, cpus)| Ok((nth, of(*cpus, name)?)));
        Ok(Series { name: (*name).to_owned(), role: *role, points: points.collect::<Done<_>>()? })
    };
    let series: Vec<Series> = series.iter().map(line).collect::<Done<_>>()?;
    let places = cpus.iter().map(u64::to_string).collect();
    let shown = Shown::Lines { places, across: "CPUs".to_owned(), series };
    Ok(Plot { title: title.to_owned(), scale: Scale::Log, shown })
}

/// The numbers of such a plot as rows: a number of CPUs, then each line's value.
fn table_of(plot: &Plot) -> super::content::Table {
    let Shown::Lines { places, across, series } = &plot.shown else {
        return super::content::Table::new(plot.title.clone(), &[], []);
    };
    let heads: Vec<&str> =
        std::iter::once(across.as_str()).chain(series.iter().map(|s| s.name.as_str())).collect();
    let cell = |s: &Series, at: usize| {
        let found = s.points.iter().find(|(place, _)| *place == at);
        super::number::maybe(found.map(|(_, value)| *value), super::number::number)
    };
    let row = |(nth, place): (usize, &String)| {
        std::iter::once(place.clone()).chain(series.iter().map(|s| cell(s, nth))).collect()
    };
    super::content::Table::new(plot.title.clone(), &heads, places.iter().enumerate().map(row))
}
