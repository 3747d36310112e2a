//! System H: pools of huge pages whose descriptors are folded.

use super::{at, each, find, over_cpus, ratio, table_of, value};
use crate::failure::Done;
use crate::report::asked::Extent;
use crate::report::content::{Figure, System, Table, figure};
use crate::report::number::{maybe, micros, number};
use crate::report::plot::{Bar, Plot, Role, Scale, Shown};
use crate::report::results::Results;
use crate::table::count;
use foliant_lab::Report;
use foliant_sim::{CostModel, Phases, PoolRows};

const POOLS: [(&str, Role); 4] = [
    ("off", Role::Beside),
    ("grain 1", Role::One),
    ("batched", Role::Chosen),
    ("born folded", Role::Third),
];
const PHASES: [&str; 2] = ["fill", "drain"];

/// The row of the scenario, which has words without spaces.
fn row_of(pool: &str, phase: &str) -> String {
    let pool = if pool == "grain 1" { "grain1".to_owned() } else { pool.replace(' ', "_") };
    format!("{pool}, {phase}")
}

fn main_of(extent: Extent, model: &CostModel) -> String {
    let pages = extent.pick(1000, 64);
    // The guest has 252; of the other host the number is not published, and its model charges none
    // of a shootdown per target.
    let cpus = if model.name == CostModel::guest_252().name { 252 } else { 64 };
    format!("foliant lab hugetlb pages={pages} --cpus {cpus} --model {}", model.name)
}
fn models() -> [CostModel; 2] {
    [CostModel::guest_252(), CostModel::host_8_socket()]
}
fn scaled(extent: Extent, cpus: u64) -> String {
    format!("foliant lab hugetlb pages={} --cpus {cpus} --model guest-252", extent.pick(128, 32))
}

pub(super) fn commands(extent: Extent) -> Vec<String> {
    let scaled = extent.cpus().iter().map(|cpus| scaled(extent, *cpus));
    models().iter().map(|model| main_of(extent, model)).chain(scaled).collect()
}

pub(super) fn part(extent: Extent, results: &Results) -> Done<System> {
    let mut figures = Vec::new();
    for model in models() {
        let command = main_of(extent, &model);
        figures.push(pool(results.of(&command)?, &model, command));
    }
    figures.push(scaling(extent, results)?);
    let about = "Huge pages kept ahead of time. The descriptors of a 2 MiB page fill eight frames, of which seven say the \
                 same; folding gives those seven back. The grain is the number of pages that share a shootdown.";
    Ok(System { letter: 'H', name: "Pools with folded descriptors", about, figures })
}

/// What was published of a pool that is worked in this way.
fn of_rows(rows: &PoolRows, pool: &str) -> Option<(Phases<f64>, Phases<f64>)> {
    match pool {
        "off" => Some((rows.base(), Phases { fill: 1.0, drain: 1.0 })),
        "grain 1" => Some((rows.unbatched_nanos(), rows.unbatched_ratio())),
        "batched" => Some((rows.batched_nanos(), rows.batched_ratio())),
        _ => None,
    }
}

fn pool(report: &Report, model: &CostModel, command: String) -> Figure {
    let published = |pool: &str, phase: &str| {
        let (nanos, times) = of_rows(model.published()?, pool)?;
        let of = |phases: Phases<f64>| if phase == "fill" { phases.fill } else { phases.drain };
        Some((of(nanos), of(times)))
    };
    let (mut rows, mut bars) = (Vec::new(), Vec::new());
    for (pool, role) in POOLS {
        for phase in PHASES {
            let Some(row) = find(report, &row_of(pool, phase)) else { continue };
            let nanos = each(row, "elapsed");
            let times =
                ratio(nanos, at(report, &format!("off, {phase}"), |off| each(off, "elapsed")));
            let beside = published(pool, phase);
            rows.push(vec![
                format!("{pool}, {phase}"),
                count(value(row, "remote_shootdowns")),
                count(value(row, "interrupts")),
                count(value(row, "descriptor_frames_after")),
                micros(nanos),
                maybe(times, number),
                maybe(beside.map(|(nanos, _)| nanos), micros),
                maybe(beside.map(|(_, times)| times), number),
            ]);
            if pool != "off" {
                let value = times.unwrap_or_default();
                bars.push(Bar {
                    name: format!("{pool}, {phase}"),
                    role,
                    value,
                    text: format!("{}×", number(value)),
                });
            }
        }
    }
    let heads = [
        "pool, phase",
        "shootdowns",
        "interrupts",
        "descriptor frames after",
        "µs a page",
        "× off",
        "published µs",
        "published × off",
    ];
    let pages = report.parameters.get("pages").cloned().unwrap_or_default();
    let source = model.published().map_or("", |rows| rows.source);
    let says = format!(
        "A pool takes {pages} pages of 2 MiB and gives them back; time is modelled. × off compares with descriptors that are \
         never folded. Rows off and grain 1 were used to fit the model, batched is predicted, and of born folded (descriptors \
         that were never there) nothing is published. Published: {source}."
    );
    let title = format!(
        "Folding, {}: {}",
        model.name,
        model.about.split(';').next().unwrap_or(model.about)
    );
    Figure {
        plots: vec![Plot {
            title: "Time of a page, relative to no folding".to_owned(),
            scale: Scale::Log,
            shown: Shown::Ratios(bars),
        }],
        tables: vec![Table::new(format!("{} CPUs, {pages} pages", report.cpus), &heads, rows)],
        commands: vec![command],
        ..figure(&title, says)
    }
}

fn scaling(extent: Extent, results: &Results) -> Done<Figure> {
    let plot = |phase: &str| {
        let title = format!("µs a page over CPUs, {phase}");
        over_cpus(&title, extent, &POOLS, |cpus, pool| {
            let report = results.of(&scaled(extent, cpus))?;
            Ok(at(report, &row_of(pool, phase), |row| each(row, "elapsed") / 1000.0))
        })
    };
    let plots: Vec<Plot> = PHASES.iter().map(|phase| plot(phase)).collect::<Done<_>>()?;
    Ok(Figure {
        tables: plots.iter().map(table_of).collect(),
        commands: extent.cpus().iter().map(|cpus| scaled(extent, *cpus)).collect(),
        plots,
        ..figure(
            "Scaling over CPUs",
            "At grain 1 each page costs a shootdown that asks every other CPU. A batch has two for all its pages, and a page \
             that is born folded has none.",
        )
    })
}
