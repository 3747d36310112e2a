//! System V: kernel memory by large leaves.

use super::{each, ratio, value};
use crate::failure::Done;
use crate::published;
use crate::report::asked::Extent;
use crate::report::content::{Figure, System, Table, figure};
use crate::report::number::{maybe, micros, number};
use crate::report::plot::{Bar, Plot, Role, Scale, Shown};
use crate::report::results::Results;
use crate::table::count;
use foliant_lab::{Caches, Report, Row as LabRow};

fn command(extent: Extent) -> String {
    let words =
        extent.pick("table-size=64m device=1g sizes=1000", "table-size=16m device=64m sizes=50");
    format!("foliant lab vmalloc {words}")
}

pub(super) fn commands(extent: Extent) -> Vec<String> {
    vec![command(extent)]
}

pub(super) fn part(extent: Extent, results: &Results) -> Done<System> {
    let command = command(extent);
    let report = results.of(&command)?;
    let figures = [table(report), mapping(report), sizes(report)];
    let figures = figures.map(|one| Figure { commands: vec![command.clone()], ..one }).into();
    let about = "Kernel memory at virtual addresses: hash tables, stacks, devices. The grain is the largest leaf that a \
                 request may get; a size that is no multiple of it ends in smaller leaves instead of being rounded up.";
    Ok(System { letter: 'V', name: "Kernel memory by large leaves", about, figures })
}

/// Misses of one probe.
fn missed(row: &LabRow) -> f64 {
    value(row, "dtlb_misses") as f64 / value(row, "probes").max(1) as f64
}
fn leaves(row: &LabRow) -> u64 {
    ["leaves_4k", "leaves_2m", "leaves_1g"].map(|name| value(row, name)).iter().sum()
}

fn role(name: &str) -> Role {
    match name {
        "4k" => Role::One,
        "1g" => Role::Third,
        "rounded" => Role::Beside,
        _ => Role::Chosen,
    }
}

fn table(report: &Report) -> Figure {
    let rows: Vec<&LabRow> =
        report.rows.iter().filter(|row| row.counts.get("probes").is_some()).collect();
    let line = |row: &&LabRow| {
        let n = |name: &str| count(value(row, name));
        let walk = value(row, "probe") as f64 / value(row, "probes").max(1) as f64;
        vec![
            row.name.to_string(),
            count(leaves(row)),
            n("table_bytes"),
            n("entries_written"),
            n("shootdowns"),
            number(missed(row)),
            number(walk),
            micros(value(row, "map") as f64),
            micros(value(row, "unmap") as f64),
        ]
    };
    let heads = [
        "by",
        "leaves",
        "bytes of tables",
        "entries written",
        "shootdowns",
        "misses per probe",
        "walk ns per probe",
        "vmalloc µs",
        "vfree µs",
    ];
    let plot = |title: &str, of: &dyn Fn(&LabRow) -> f64| Plot {
        title: title.to_owned(),
        scale: Scale::Log,
        shown: Shown::Bars(
            rows.iter().filter(|row| row.name != "rounded").map(|row| bar(row, of(row))).collect(),
        ),
    };
    let [misses, to] = published::TLB_MISSES;
    let [megabytes, few] = published::TABLE_MEGABYTES;
    let found = |name: &str| {
        let of = report.ratios.iter().find(|ratio| ratio.name == name);
        maybe(of.and_then(|r| ratio(r.of as f64, r.to as f64)), number)
    };
    let beside = Table::new(
        "4 KiB to 2 MiB",
        &["ratio", "published", "published ratio", "here"],
        [
            vec![
                "dTLB misses".to_owned(),
                format!("{} → {}", number(misses), number(to)),
                number(misses / to),
                found("dtlb misses, 4k to 2m"),
            ],
            vec![
                "memory of tables".to_owned(),
                format!("{} → {} MB per TB", number(megabytes), number(few)),
                number(megabytes / few),
                found("table bytes, 4k to 2m"),
            ],
        ],
    );
    let size = report.parameters.get("table-size").cloned().unwrap_or_default();
    Figure {
        plots: vec![
            plot("dTLB misses per probe", &missed),
            plot("leaves", &|row| leaves(row) as f64),
        ],
        tables: vec![
            Table::new(format!("A table of {size}"), &heads, rows.iter().map(line)),
            beside,
        ],
        ..figure(
            "A hash table probed at random",
            format!(
                "Misses are those of translation caches as large as those of a {} core, empty at first ({}); leaves and tables \
                 are counted, times modelled. The published misses are those of a whole program, of which the table is a part; \
                 tables of a machine's memory shrink by more than those of a small table, whose last frame is not full. \
                 Published: {}.",
                Caches::SKYLAKE.name,
                Caches::SKYLAKE.source,
                published::TLB_SOURCE
            ),
        )
    }
}

fn bar(row: &LabRow, value: f64) -> Bar {
    Bar { name: row.name.to_string(), role: role(&row.name), value, text: number(value) }
}

fn mapping(report: &Report) -> Figure {
    let rows: Vec<&LabRow> =
        report.rows.iter().filter(|row| row.name.starts_with("ioremap ")).collect();
    let line = |row: &&LabRow| {
        vec![
            row.name.to_string(),
            count(leaves(row)),
            micros(value(row, "map") as f64),
            micros(value(row, "unmap") as f64),
            micros(each(row, "map")),
        ]
    };
    let named = |row: &&LabRow| {
        let (size, leaf) = row.name.strip_prefix("ioremap ")?.split_once(" by ")?;
        let micros = value(row, "map") as f64 / 1000.0;
        let text = number(micros);
        Some(Bar { name: format!("{size} by {leaf}"), role: role(leaf), value: micros, text })
    };
    let bars = rows.iter().filter_map(named).collect();
    Figure {
        plots: vec![Plot {
            title: "µs to map a device".to_owned(),
            scale: Scale::Log,
            shown: Shown::Bars(bars),
        }],
        tables: vec![Table::new(
            "Mapping alone, modelled",
            &["run", "leaves", "map µs", "unmap µs", "map µs per 4 KiB"],
            rows.iter().map(line),
        )],
        ..figure(
            "Mapping alone",
            "A device is mapped: no memory is taken and nothing is described, so what is left is the work on tables.",
        )
    }
}

fn sizes(report: &Report) -> Figure {
    let rows = report.rows.iter().filter(|row| row.counts.get("areas").is_some());
    let line = |row: &LabRow| {
        let counts = ["areas", "leaves_4k", "leaves_2m", "waste_bytes", "waste_most"];
        let counts = counts.iter().map(|name| count(value(row, name)));
        std::iter::once(row.name.to_string()).chain(counts).collect()
    };
    Figure {
        tables: vec![Table::new(
            "Areas of random sizes up to 4 MiB",
            &["run", "areas", "4 KiB leaves", "2 MiB leaves", "wasted bytes", "most at once"],
            rows.map(line),
        )],
        ..figure(
            "Sizes that do not fit",
            "Wasted are bytes that are mapped behind the last 4 KiB page of an area.",
        )
    }
}
