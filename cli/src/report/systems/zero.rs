//! System Z: huge pages that are cleared in extents.

use super::{each, ratio, value};
use crate::failure::Done;
use crate::published;
use crate::report::asked::Extent;
use crate::report::content::{Figure, System, Table, figure};
use crate::report::number::number;
use crate::report::plot::{Bar, Plot, Role, Scale, Shown};
use crate::report::results::{Cleared, Results};
use crate::table::count;
use foliant_lab::{Report, Row as LabRow};

/// How this machine's memory is cleared: quickly, since the host may be at work with other things
/// anyway.
const HERE: &str = "foliant lab zero --total 256m --rounds 3";

fn counted(extent: Extent) -> String {
    format!("foliant lab zero bytes={} block=64m", extent.pick("16m", "4m"))
}

pub(super) fn commands(extent: Extent) -> Vec<String> {
    vec![counted(extent)]
}

/// Clears this machine's memory.
#[cfg(target_arch = "x86_64")]
pub(crate) fn cleared(extent: Extent) -> Done<Option<Cleared>> {
    use crate::failure::Failure;
    if extent == Extent::Quick {
        return Ok(None);
    }
    let asked = crate::lab::zero::asked(&crate::report::asked::parsed_lab(HERE)?);
    foliant_hosted::measure(&asked, |_, _| {}).map(Some).map_err(Failure::new)
}
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn cleared(_extent: Extent) -> Done<Option<Cleared>> {
    Ok(None)
}

pub(super) fn part(extent: Extent, results: &Results) -> Done<System> {
    let command = counted(extent);
    let report = results.of(&command)?;
    let mut figures = vec![counts(report, command)];
    #[cfg(target_arch = "x86_64")]
    figures.extend(results.cleared.as_ref().map(here));
    figures.push(others());
    let about = "Memory is zeros before a program sees it. The grain is the number of bytes that one clear covers: a 2 MiB \
                 folio is cleared in at most three extents, the neighbourhood of the fault last and warm.";
    Ok(System { letter: 'Z', name: "Clearing in extents", about, figures })
}

/// The rate of the calmest round, in GB/s.
#[cfg(target_arch = "x86_64")]
fn best(cleared: &Cleared, row: &foliant_hosted::Row) -> f64 {
    cleared.size as f64 / row.clear_least.max(1) as f64
}

fn role(name: &str) -> Role {
    match name {
        "page at a time" => Role::One,
        "plan" | "chosen plan" => Role::Chosen,
        "known zero" => Role::Third,
        _ => Role::Beside,
    }
}

fn counts(report: &Report, command: String) -> Figure {
    let line = |row: &LabRow| {
        let n = |name: &str| count(value(row, name));
        let ticks = |name: &str| number(each(row, name));
        let counts =
            ["faults", "cleared_bytes", "spared_bytes", "extents", "preemption_points"].map(n);
        std::iter::once(row.name.to_string())
            .chain(counts)
            .chain([ticks("clearing"), ticks("rest")])
            .collect()
    };
    let heads = [
        "run",
        "faults",
        "bytes cleared",
        "bytes spared",
        "clears",
        "preemption points",
        "ns a page, clearing",
        "the rest",
    ];
    let bar = |row: &LabRow| {
        let value = value(row, "extents") as f64;
        Bar { name: row.name.to_string(), role: role(&row.name), value, text: number(value) }
    };
    let bars = report.rows.iter().filter(|row| value(row, "faults") > 0).map(bar).collect();
    Figure {
        plots: vec![Plot {
            title: "clears".to_owned(),
            scale: Scale::Log,
            shown: Shown::Bars(bars),
        }],
        tables: vec![Table::new("On the simulated machine", &heads, report.rows.iter().map(line))],
        commands: vec![command],
        ..figure(
            "What is cleared",
            "Faults for 2 MiB folios in the middle of each. Time is modelled; a model knows two prices for a byte, and not \
             what caches do. Memory that is known to be zero is not cleared: what is left there is a table for each folio.",
        )
    }
}

#[cfg(target_arch = "x86_64")]
fn here(cleared: &Cleared) -> Figure {
    let rate = |rate: u64| number(rate as f64 / 1000.0);
    let stores: Vec<_> = cleared.rows.iter().filter(|row| row.extents > 0).collect();
    let base = cleared.baseline().map_or(0, |row| row.rate) as f64;
    let line = |row: &&foliant_hosted::Row| {
        vec![
            row.name.clone(),
            row.extents.to_string(),
            rate(row.rate),
            ratio(row.rate as f64, base).map_or("–".to_owned(), number),
            number(best(cleared, row)),
            crate::report::number::micros(row.clear as f64),
            crate::report::number::micros(row.around as f64),
            crate::report::number::micros(row.total as f64),
        ]
    };
    let heads = [
        "run",
        "clears",
        "GB/s",
        "× page at a time",
        "GB/s, best round",
        "µs to clear",
        "µs around the fault",
        "µs to clear and read",
    ];
    let whole = |row: &&&foliant_hosted::Row| {
        row.name.ends_with("whole") || role(&row.name) != Role::Beside
    };
    let bar = |row: &&foliant_hosted::Row| {
        let value = row.rate as f64 / 1000.0;
        Bar { name: row.name.clone(), role: role(&row.name), value, text: number(value) }
    };
    let bars = stores.iter().filter(whole).map(bar).collect();
    let [short, cached, past] = &cleared.chosen;
    Figure {
        plots: vec![Plot {
            title: "GB/s, median".to_owned(),
            scale: Scale::Linear,
            shown: Shown::Bars(bars),
        }],
        tables: vec![Table::new(
            format!("Medians of {} rounds", cleared.rounds),
            &heads,
            stores.iter().map(line),
        )],
        commands: vec![HERE.to_owned()],
        ..figure(
            "On this machine's own memory",
            format!(
                "Blocks of 2 MiB, cleared in each way that this processor has. The plan that was chosen at the start: {short} \
                 for short clears, {cached} where the memory is used soon, {past} past the caches. Around the fault: reading its \
                 page and two on either side right after. What else runs on the machine shows in these numbers."
            ),
        )
    }
}

fn others() -> Figure {
    let line = |row: &published::Clearing| {
        vec![
            format!("{}, {}", row.host, row.page),
            number(row.before),
            number(row.after),
            number(row.after / row.before),
        ]
    };
    let heads = ["host, page", "page at a time, GB/s", "in extents, GB/s", "ratio"];
    Figure {
        tables: vec![Table::new(
            "Faults for huge pages, published",
            &heads,
            published::CLEARING.iter().map(line),
        )],
        ..figure("What was published", format!("{}.", published::CLEARING_SOURCE))
    }
}
