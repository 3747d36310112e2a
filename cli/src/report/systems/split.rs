//! System T: huge folios that are split, and other work that flushes.

use super::{at, each, find, over_cpus, table_of, value};
use crate::failure::Done;
use crate::lab::thpscale::{beside, geometric_mean};
use crate::published;
use crate::report::asked::Extent;
use crate::report::content::{Figure, System, Table, figure};
use crate::report::number::{maybe, micros, number};
use crate::report::plot::{Plot, Role, Scale, Series, Shown};
use crate::report::results::Results;
use crate::table::count;
use foliant_lab::Report;

const GRAINS: [(&str, Role); 3] =
    [("entry", Role::One), ("folio", Role::Chosen), ("list", Role::Third)];
const PHASES: [&str; 4] = ["protect", "fork", "copy", "unmap"];

fn split(extent: Extent, cpus: u64) -> String {
    format!(
        "foliant lab split folios={} spaces=1,4 --cpus {cpus} --model guest-252",
        extent.pick(4, 2)
    )
}
fn flush(extent: Extent, cpus: u64) -> String {
    format!("foliant lab flush pages={} --cpus {cpus} --model guest-252", extent.pick(64, 16))
}
fn thpscale(extent: Extent) -> String {
    let words = extent.pick("turns=64 --cpus 32", "turns=14 workers=1,3,7 --cpus 7");
    format!("foliant lab thpscale {words} --model host-8-socket")
}

pub(super) fn commands(extent: Extent) -> Vec<String> {
    let each =
        |of: fn(Extent, u64) -> String| extent.cpus().iter().map(move |cpus| of(extent, *cpus));
    each(split).chain(each(flush)).chain([thpscale(extent)]).collect()
}

pub(super) fn part(extent: Extent, results: &Results) -> Done<System> {
    let most = extent.cpus().last().copied().unwrap_or(1);
    let scale = results.of(&thpscale(extent))?;
    let figures = vec![
        splits(extent, results, results.of(&split(extent, most))?)?,
        latency(scale, thpscale(extent)),
        flushes(extent, results, results.of(&flush(extent, most))?)?,
    ];
    let about = "A huge folio that is mapped page by page is taken apart. Its entries go out of use, and no CPU may keep a \
                 translation; the grain is the number of entries that one shootdown covers.";
    Ok(System { letter: 'T', name: "Splitting with one flush", about, figures })
}

fn splits(extent: Extent, results: &Results, most: &Report) -> Done<Figure> {
    let plot = |spaces: &str| {
        over_cpus(&format!("µs a folio over CPUs, {spaces}"), extent, &GRAINS, |cpus, grain| {
            let report = results.of(&split(extent, cpus))?;
            Ok(at(report, &format!("{spaces}, {grain}"), |row| each(row, "all") / 1000.0))
        })
    };
    let plots = vec![plot("1 space")?, plot("4 spaces")?];
    let line = |row: &foliant_lab::Row| {
        let n = |name: &str| count(value(row, name));
        vec![
            row.name.to_string(),
            n("folios_split"),
            n("shootdowns"),
            n("interrupts"),
            n("invalidations"),
            n("entries_written"),
            micros(each(row, "all")),
        ]
    };
    let heads = [
        "run",
        "folios",
        "shootdowns",
        "interrupts",
        "local invalidations",
        "entries written",
        "µs a folio",
    ];
    let counts = Table::new(format!("{} CPUs", most.cpus), &heads, most.rows.iter().map(line));
    Ok(Figure {
        tables: std::iter::once(counts).chain(plots.iter().map(table_of)).collect(),
        commands: extent.cpus().iter().map(|cpus| split(extent, *cpus)).collect(),
        plots,
        ..figure(
            "Splitting a folio",
            "One shootdown for each entry, one for each folio and space, or one for a list of up to 64 folios. Time is \
             modelled and is that of all CPUs together, so interrupts that are taken count too.",
        )
    })
}

fn latency(report: &Report, command: String) -> Figure {
    let rows = beside(report);
    let ticks = |threads: u64, grain: &str| {
        at(report, &format!("fault-both-{threads}, grain {grain}"), |row| value(row, "both") as f64)
    };
    let shot = |threads: u64, grain: &str| {
        find(report, &format!("fault-both-{threads}, grain {grain}"))
            .map_or(0, |row| value(row, "shootdowns"))
    };
    let points = |of: &dyn Fn(u64) -> Option<f64>| -> Vec<(usize, f64)> {
        let point =
            |(nth, row): (usize, &crate::lab::thpscale::Beside)| Some((nth, of(row.threads)?));
        rows.iter().enumerate().filter_map(point).collect()
    };
    let series = |name: &str, role, of: &dyn Fn(u64) -> Option<f64>| Series {
        name: name.to_owned(),
        role,
        points: points(of),
    };
    let places: Vec<String> = rows.iter().map(|row| row.threads.to_string()).collect();
    let lines = |title: &str, scale, series| Plot {
        title: title.to_owned(),
        scale,
        shown: Shown::Lines { places: places.clone(), across: "threads".to_owned(), series },
    };
    let of = |threads: u64| rows.iter().find(|row| row.threads == threads);
    let plots = vec![
        lines(
            "mean latency of a fault, µs",
            Scale::Log,
            vec![
                series("grain 1", Role::One, &|n| Some(ticks(n, "1") / 1000.0)),
                series("whole", Role::Chosen, &|n| Some(ticks(n, "whole") / 1000.0)),
            ],
        ),
        lines(
            "latency with one flush, without it 1",
            Scale::Linear,
            vec![
                series("here", Role::Chosen, &|n| of(n)?.time),
                series("published", Role::Beside, &|n| of(n)?.published_time),
            ],
        ),
    ];
    let line = |row: &crate::lab::thpscale::Beside| {
        vec![
            row.threads.to_string(),
            count(shot(row.threads, "1")),
            count(shot(row.threads, "whole")),
            micros(ticks(row.threads, "1")),
            micros(ticks(row.threads, "whole")),
            maybe(row.time, number),
            maybe(row.published_time, number),
        ]
    };
    let means = [
        geometric_mean(rows.iter().map(|row| row.time)),
        geometric_mean(rows.iter().map(|row| row.published_time)),
    ];
    let dash = || "–".to_owned();
    let mean = vec![
        "geometric mean".to_owned(),
        dash(),
        dash(),
        dash(),
        dash(),
        maybe(means[0], number),
        maybe(means[1], number),
    ];
    let heads = [
        "threads",
        "shootdowns, grain 1",
        "shootdowns, whole",
        "µs, grain 1",
        "µs, whole",
        "relative",
        "published",
    ];
    Figure {
        plots,
        tables: vec![Table::new("thpscale", &heads, rows.iter().map(line).chain([mean]))],
        commands: vec![command],
        ..figure(
            "Faults while memory is fragmented",
            format!(
                "Threads fault huge and base pages in turn; no block is free, so memory is compacted and folios are split. \
                 Compared are gains and no times: the published unit, machine and contention are others, and here grain 1 \
                 flushes for every entry of everything that is measured. Published: {}.",
                published::SPLIT_SOURCE
            ),
        )
    }
}

fn flushes(extent: Extent, results: &Results, most: &Report) -> Done<Figure> {
    let grains = [("grain 1", Role::One), ("grain whole", Role::Chosen)];
    let plot = |phase: &str| {
        over_cpus(&format!("µs a page over CPUs, {phase}"), extent, &grains, |cpus, grain| {
            let report = results.of(&flush(extent, cpus))?;
            Ok(at(report, &format!("{phase}, {grain}"), |row| each(row, "all") / 1000.0))
        })
    };
    let plots = vec![plot("protect")?, plot("unmap")?];
    let line = |(phase, grain): (&str, &str)| {
        let row = find(most, &format!("{phase}, {grain}"))?;
        let n = |name: &str| count(value(row, name));
        let cells =
            ["shootdowns", "interrupts", "invalidations", "entries_written", "faults"].map(n);
        Some(
            std::iter::once(row.name.to_string())
                .chain(cells)
                .chain([micros(each(row, "all"))])
                .collect(),
        )
    };
    let rows =
        PHASES.iter().flat_map(|phase| grains.map(|(grain, _)| (*phase, grain))).filter_map(line);
    let heads = [
        "run",
        "shootdowns",
        "interrupts",
        "local invalidations",
        "entries written",
        "faults",
        "µs a page",
    ];
    let counts = Table::new(
        format!(
            "{} CPUs, {} pages",
            most.cpus,
            most.parameters.get("pages").cloned().unwrap_or_default()
        ),
        &heads,
        rows,
    );
    Ok(Figure {
        tables: std::iter::once(counts).chain(plots.iter().map(table_of)).collect(),
        commands: extent.cpus().iter().map(|cpus| flush(extent, *cpus)).collect(),
        plots,
        ..figure(
            "The flush itself",
            "Rights and pages are taken away from memory that all CPUs use. Copying after a fork flushes once for each fault, \
             at any grain. Time is modelled, of all CPUs together.",
        )
    })
}
