//! System A: faults that map a folio, counted, and replayed from recordings.

use super::{each, find, ratio, value};
use crate::failure::Done;
use crate::published;
use crate::report::asked::Extent;
use crate::report::content::{Figure, System, Table, figure};
use crate::report::number::{maybe, number};
use crate::report::plot::{Bar, Plot, Role, Scale, Series, Shown};
use crate::report::recordings::Recording;
use crate::report::results::Results;
use crate::table::{count, mib};
use foliant_lab::{Report, Row as LabRow};
use foliant_trace::replay::{Choice, Row as Replayed};
use foliant_units::Order;

const ROLES: [Role; 4] = [Role::Chosen, Role::One, Role::Third, Role::Fourth];

fn command(extent: Extent) -> String {
    let bytes = extent.pick("8m", "2m");
    format!("foliant lab faults bytes={bytes} sizes=4k,16k,32k,64k,128k,256k,512k,1m,2m --cpus 2")
}

pub(super) fn commands(extent: Extent) -> Vec<String> {
    vec![command(extent)]
}

pub(super) fn part(extent: Extent, results: &Results) -> Done<System> {
    let report = results.of(&command(extent))?;
    let recordings = &results.recordings;
    let mut figures = vec![touched(report, command(extent)), compared(recordings)];
    figures.extend(recordings.iter().map(recorded));
    let about = "A fault maps a folio instead of a page. The grain is the folio's size. Larger folios take fewer faults and \
                 entries, and memory that the program may never touch.";
    Ok(System { letter: 'A', name: "Faults that map folios", about, figures })
}

fn millis(row: &Replayed) -> f64 {
    row.kernel.0 as f64 / 1e6
}

fn touched(report: &Report, command: String) -> Figure {
    let line = |row: &LabRow| {
        let n = |name: &str| count(value(row, name));
        let counts = ["faults", "entries_written", "leaves", "frames_used", "cleared_bytes"].map(n);
        let ticks = ["clearing", "rest"].map(|name| number(each(row, name)));
        std::iter::once(row.name.to_string()).chain(counts).chain(ticks).collect()
    };
    let heads = [
        "folio",
        "faults",
        "entries written",
        "leaves",
        "frames",
        "bytes cleared",
        "ns a page, clearing",
        "the rest",
    ];
    let bar = |what: &str, row: &LabRow| {
        let role = if row.name == "4k" { Role::One } else { Role::Chosen };
        let value = value(row, what) as f64;
        Bar { name: row.name.to_string(), role, value, text: number(value) }
    };
    let base = find(report, "4k").map_or(0.0, |row| each(row, "rest"));
    let gain = |row: &LabRow| {
        let value = ratio(base, each(row, "rest")).unwrap_or_default();
        Bar { value, text: format!("{}×", number(value)), ..bar("faults", row) }
    };
    let plot = |title: &str, bars| Plot {
        title: title.to_owned(),
        scale: Scale::Log,
        shown: Shown::Bars(bars),
    };
    Figure {
        plots: vec![
            plot("faults", report.rows.iter().map(|row| bar("faults", row)).collect()),
            plot(
                "work without clearing, 4 KiB to this size",
                report.rows.iter().map(gain).collect(),
            ),
        ],
        tables: vec![Table::new(
            format!(
                "{} CPUs touch {} each",
                report.cpus,
                report.parameters.get("bytes").cloned().unwrap_or_default()
            ),
            &heads,
            report.rows.iter().map(line),
        )],
        commands: vec![command],
        ..figure(
            "First touch",
            "Every page of an area is written to once. Faults and entries are counted; time is modelled.",
        )
    }
}

/// All recordings at every size, relative to 4 KiB.
fn compared(recordings: &[Recording]) -> Figure {
    let largest = |row: &Replayed| match row.choice {
        Choice::UpTo(order) => Some(order),
        Choice::Only(_) | Choice::Auto => None,
    };
    let sizes: Vec<Order> =
        recordings.first().map_or(Vec::new(), |one| one.rows.iter().filter_map(largest).collect());
    let plot = |title: &str, scale, of: &dyn Fn(&Recording, &Replayed) -> f64| {
        let line = |(recording, role): (&Recording, &Role)| {
            let value = |(nth, size): (usize, &Order)| {
                Some((nth, of(recording, recording.row(Choice::UpTo(*size))?)))
            };
            let points = sizes.iter().enumerate().filter_map(value).collect();
            Series { name: recording.name.to_owned(), role: *role, points }
        };
        let series = recordings.iter().zip(&ROLES).map(line).collect();
        let places = sizes.iter().map(|size| size.bytes().to_string()).collect();
        let across = "folios up to".to_owned();
        Plot { title: title.to_owned(), scale, shown: Shown::Lines { places, across, series } }
    };
    let plots = vec![
        plot("faults, 4 KiB is 1", Scale::Log, &|of, row| {
            row.faults() as f64 / of.base().faults().max(1) as f64
        }),
        plot("untouched memory, MiB", Scale::Linear, &|_, row| {
            row.untouched_bytes as f64 / f64::from(1 << 20)
        }),
        plot("kernel time, 4 KiB is 1", Scale::Linear, &|of, row| row.kernel_ratio(of.base())),
    ];
    let line = |build: &published::Build| {
        let choice = Choice::parse(&format!("up-to-{}", build.size)).ok();
        let here = recordings.first().and_then(|one| Some((one.base(), one.row(choice?)?)));
        vec![
            build.size.to_owned(),
            format!("{:+.1} %", build.kernel_percent),
            maybe(here.map(|(base, row)| row.kernel_ratio(base)), |r| {
                format!("{:+.1} %", (r - 1.0) * 100.0)
            }),
            format!("{:+.1} %", build.peak_percent),
            maybe(here.map(|(base, row)| row.peak_ratio(base)), |r| {
                format!("{:+.1} %", (r - 1.0) * 100.0)
            }),
        ]
    };
    let heads =
        ["folios up to", "kernel time, published", "here", "peak memory, published", "here"];
    Figure {
        plots,
        tables: vec![Table::new(
            "A compilation beside a published one, relative to 4 KiB",
            &heads,
            published::BUILDS.iter().map(line),
        )],
        commands: recordings.iter().map(|one| one.command.clone()).collect(),
        ..figure(
            "Recorded programs",
            format!(
                "Programs that were recorded on Linux, page fault by page fault, replayed through the manager with folios up to \
                 each size. Untouched memory was cleared for a folio and never used. Kernel time here is modelled and that of \
                 memory alone; the published one is all of a kernel's, so it can only fall by less. Published: {}.",
                published::BUILDS_SOURCE
            ),
        )
    }
}

fn recorded(recording: &Recording) -> Figure {
    let line = |row: &Replayed| {
        let base = recording.base();
        vec![
            row.choice.to_string(),
            count(row.faults()),
            count(row.leaves),
            count(row.shootdowns),
            mib(row.zeroed_bytes),
            mib(row.untouched_bytes),
            mib(row.peak.get()),
            format!("{:.3}", row.peak_ratio(base)),
            number(millis(row)),
            format!("{:.3}", row.kernel_ratio(base)),
        ]
    };
    let heads = [
        "folios up to",
        "faults",
        "leaves",
        "shootdowns",
        "MiB cleared",
        "MiB untouched",
        "peak MiB",
        "× 4k",
        "kernel ms",
        "× 4k",
    ];
    let bars = |title: &str, scale, of: &dyn Fn(&Replayed) -> (f64, String)| {
        let bar = |row: &Replayed| {
            let (value, text) = of(row);
            let role = if row.choice.to_string() == "4k" { Role::One } else { Role::Chosen };
            Bar { name: row.choice.to_string(), role, value, text }
        };
        Plot {
            title: title.to_owned(),
            scale,
            shown: Shown::Bars(recording.rows.iter().map(bar).collect()),
        }
    };
    let plots = vec![
        bars("faults", Scale::Log, &|row| (row.faults() as f64, count(row.faults()))),
        bars("untouched memory, MiB", Scale::Linear, &|row| {
            (row.untouched_bytes as f64 / f64::from(1 << 20), mib(row.untouched_bytes))
        }),
    ];
    Figure {
        plots,
        tables: vec![Table::new(
            recording.program.clone(),
            &heads,
            recording.rows.iter().map(line),
        )],
        commands: vec![recording.command.clone()],
        ..figure(
            &format!("Recording {}", recording.name),
            format!(
                "{}: {} faults in anonymous memory were recorded. only-2m: 2 MiB or 4 KiB and nothing between.",
                recording.program,
                count(recording.faults)
            ),
        )
    }
}
