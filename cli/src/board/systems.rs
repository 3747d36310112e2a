//! The five systems of the scoreboard.
//!
//! **Not here**: what a row means (`board`), the scenarios (`foliant-lab`, `foliant-hosted`,
//! `foliant-trace`).

use super::{Count, Published, Row, Scale};
use crate::args::Size;
use crate::failure::{Done, Failure};
use crate::lab::thpscale;
use crate::{published, replay, scenario, table};
use foliant_hosted::{Asked, measure};
use foliant_lab::{Parameters, Report, Scenario};
use foliant_sim::{Backing, Config, CostModel};
use foliant_trace::replay::{Choice, Row as Replayed, Settings, replay_all};
use foliant_units::Order;

/// A system's name, and how it is measured.
pub(super) type Named = (&'static str, fn(&Scale) -> Done<Row>);

/// In the order of the table.
pub(super) const ALL: [Named; 5] = [
    ("hugetlb", hugetlb),
    ("vmalloc", vmalloc),
    ("split", split),
    ("zero", zero),
    ("faults", faults),
];

/// The model of the host whose times were published.
const SOCKETS: &str = "host-8-socket";

fn beside(measure: &'static str, (grain1, chosen): (f64, f64), source: &'static str) -> Published {
    Published { measure, grain1, chosen, ratio: chosen / grain1, source }
}

fn hugetlb(scale: &Scale) -> Done<Row> {
    let model = named(SOCKETS)?;
    let pages = scale.pool_pages;
    let words = [format!("pages={pages}"), "rows=off,grain1,batched".to_owned()];
    let compact = |config: Config| Config { backing: Backing::Compact, ..config };
    let report = simulated(Scenario::Hugetlb, &words, (scale.pool_cpus, model), compact)?;
    let nanos = |grain| sum(&report, grain, |row| row.ticks.get("elapsed")) / pages as f64;
    let (grain1, chosen) = (nanos("grain1") / 1e3, nanos("batched") / 1e3);
    let counts = [
        ("shootdowns", "remote_shootdowns"),
        ("interrupts", "interrupts"),
        ("descriptor frames in use", "descriptor_frames_after"),
    ];
    let counts = counts.map(|(name, key)| {
        let of = |grain: &str| match key {
            "descriptor_frames_after" => count(&report, &format!("{grain}, fill"), key),
            _ => sum(&report, grain, |row| row.counts.get(key)) as u64,
        };
        Count { name, grain1: of("grain1"), chosen: of("batched") }
    });
    let rows = model.published().ok_or_else(|| missing(SOCKETS))?;
    let both = |phases: foliant_sim::Phases<f64>| (phases.fill + phases.drain) / 1e3;
    Ok(Row {
        system: "hugetlb",
        work: format!(
            "{} huge pages join a pool and leave it on {} CPUs, their descriptors folded",
            table::count(pages),
            scale.pool_cpus
        ),
        grains: ["a flush per page", "per batch of 1024"],
        measure: "modelled us per page",
        grain1,
        chosen,
        ratio: chosen / grain1,
        published: beside(
            "us per page",
            (both(rows.unbatched_nanos()), both(rows.batched_nanos())),
            rows.source,
        ),
        counts: counts.into(),
        command: format!(
            "foliant lab hugetlb --pages {pages} --cpus {} --model {SOCKETS}",
            scale.pool_cpus
        ),
    })
}

fn vmalloc(scale: &Scale) -> Done<Row> {
    let words =
        [format!("table-size={}", scale.table), "sizes=1".to_owned(), "device=2m".to_owned()];
    let report =
        simulated(Scenario::Vmalloc, &words, (1, CostModel::xeon_guest_2()), |config| config)?;
    let misses = |row: &str| {
        count(&report, row, "dtlb_misses") as f64 / count(&report, row, "probes") as f64
    };
    let (grain1, chosen) = (misses("4k"), misses("2m"));
    let leaves = |row: &str| {
        ["leaves_4k", "leaves_2m", "leaves_1g"]
            .into_iter()
            .map(|key| count(&report, row, key))
            .sum()
    };
    let counts = vec![
        Count { name: "leaves", grain1: leaves("4k"), chosen: leaves("2m") },
        Count {
            name: "bytes of tables",
            grain1: count(&report, "4k", "table_bytes"),
            chosen: count(&report, "2m", "table_bytes"),
        },
        Count {
            name: "entries written",
            grain1: count(&report, "4k", "entries_written"),
            chosen: count(&report, "2m", "entries_written"),
        },
    ];
    Ok(Row {
        system: "vmalloc",
        work: format!("a hash table of {} in kernel memory, probed at random", scale.table),
        grains: ["4 KiB leaves", "2 MiB leaves"],
        measure: "simulated dTLB misses per probe",
        grain1,
        chosen,
        ratio: chosen / grain1,
        published: beside(
            "dTLB misses of git diff",
            published::TLB_MISSES.into(),
            published::TLB_SOURCE,
        ),
        counts,
        command: format!("foliant lab vmalloc --table-size {}", scale.table),
    })
}

fn split(scale: &Scale) -> Done<Row> {
    let model = named(SOCKETS)?;
    let cpus = scale.threads.iter().max().copied().unwrap_or(1) as usize;
    let list: Vec<String> = scale.threads.iter().map(u64::to_string).collect();
    let words = [format!("workers={}", list.join(","))];
    let report = simulated(Scenario::Thpscale, &words, (cpus, model), |config| config)?;
    let mean = |grain: &str| {
        let own = |threads: &u64| {
            let name = format!("fault-both-{threads}, grain {grain}");
            let row = report.rows.iter().find(|row| row.name == name)?;
            Some(*row.ticks.get("both")? as f64 / row.pages as f64 / 1e3)
        };
        thpscale::geometric_mean(scale.threads.iter().map(own)).ok_or_else(|| missing(grain))
    };
    let (grain1, chosen) = (mean("1")?, mean("whole")?);
    let counts = [
        ("shootdowns", "shootdowns"),
        ("interrupts", "interrupts"),
        ("folios split", "folios_split"),
        ("blocks emptied", "blocks_emptied"),
        ("pages moved", "pages_moved"),
    ];
    let counts = counts.map(|(name, key)| {
        let of = |grain: &str| {
            let is_of = |row: &&foliant_lab::Row| row.name.ends_with(&format!("grain {grain}"));
            report.rows.iter().filter(is_of).filter_map(|row| row.counts.get(key)).sum()
        };
        Count { name, grain1: of("1"), chosen: of("whole") }
    });
    let times = thpscale::published_means().ok_or_else(|| missing("thpscale"))?;
    Ok(Row {
        system: "split",
        work: format!("faults while memory is fragmented, by {} threads", list.join(", ")),
        grains: ["a flush per entry", "per folio"],
        measure: "modelled us per fault, geometric mean",
        grain1,
        chosen,
        ratio: chosen / grain1,
        published: beside("mean latency, unit not stated", times, published::SPLIT_SOURCE),
        counts: counts.into(),
        command: format!(
            "foliant lab thpscale --cpus {cpus} --model {SOCKETS} --workers {}",
            list.join(",")
        ),
    })
}

fn zero(scale: &Scale) -> Done<Row> {
    let asked = Asked { size: Order::SIZE_2M, total: scale.cleared, rounds: scale.rounds };
    let measured = measure(&asked, |_, _| ()).map_err(Failure::new)?;
    let rows = measured.baseline().zip(measured.plan());
    let (base, plan) = rows.ok_or_else(|| missing("the rows of clearing"))?;
    let (grain1, chosen) = (base.clear as f64 / 1e3, plan.clear as f64 / 1e3);
    Ok(Row {
        system: "zero",
        work: format!("{} of this machine's memory cleared in blocks of 2 MiB", scale.cleared),
        grains: ["page at a time", "the chosen plan"],
        measure: "us per 2 MiB on this machine",
        grain1,
        chosen,
        ratio: chosen / grain1,
        published: beside(
            "s for 64 GiB",
            published::CLEARED_SECONDS.into(),
            published::CLEARING_SOURCE,
        ),
        counts: vec![Count { name: "extents", grain1: base.extents, chosen: plan.extents }],
        command: format!("foliant lab zero --total {}", scale.cleared),
    })
}

fn faults(_: &Scale) -> Done<Row> {
    let (about, plan) = replay::shipped()?;
    let large = Choice::parse("up-to-64k").map_err(Failure::new)?;
    let build = published::BUILDS.iter().find(|build| build.size == "64k");
    let build = build.ok_or_else(|| missing("the published build"))?;
    let settings = Settings { cpus: about.header.cpus.max(1) as usize, ..Settings::default() };
    let rows = replay_all(&plan, &[Choice::BASE, large], &settings, |_| ())?;
    let [base, chosen] = rows.as_slice() else { return Err(missing("a row of the replay")) };
    let both =
        |name, of: fn(&Replayed) -> u64| Count { name, grain1: of(base), chosen: of(chosen) };
    let millis = |row: &Replayed| row.kernel.0 as f64 / 1e6;
    Ok(Row {
        system: "faults",
        work: "a recorded C compilation, replayed".to_owned(),
        grains: ["4 KiB folios", "up to 64 KiB"],
        measure: "modelled kernel ms",
        grain1: millis(base),
        chosen: millis(chosen),
        ratio: chosen.kernel_ratio(base),
        published: beside(
            "kernel time of a kernel build, %",
            (100.0, 100.0 + build.kernel_percent),
            published::BUILDS_SOURCE,
        ),
        counts: vec![
            both("faults", Replayed::faults),
            both("leaves at the peak", |row| row.leaves),
            both("bytes at the peak", |row| row.peak.get()),
        ],
        command: format!("foliant replay {} --policy 4k,up-to-64k", replay::SHIPPED_NAME),
    })
}

fn simulated(
    scenario: Scenario,
    words: &[String],
    (cpus, model): (usize, CostModel),
    adjust: impl Fn(Config) -> Config,
) -> Done<Report> {
    let parameters = Parameters::parse(scenario, words.iter().map(String::as_str));
    let parameters = parameters.map_err(Failure::new)?;
    let size = Size { cpus: Some(cpus), memory: None };
    scenario::report((scenario, &parameters), size, |config| adjust(Config { model, ..config }))
}

fn named(model: &str) -> Done<CostModel> {
    CostModel::named(model).ok_or_else(|| missing(model))
}
fn missing(what: &str) -> Failure {
    Failure::new(format_args!("{what} is missing from what was measured"))
}

fn count(report: &Report, row: &str, name: &str) -> u64 {
    let row = report.rows.iter().find(|other| other.name == row);
    row.and_then(|row| row.counts.get(name)).copied().unwrap_or_default()
}
/// Over the rows whose name begins with `run, `.
fn sum(report: &Report, run: &str, of: impl Fn(&foliant_lab::Row) -> Option<&u64>) -> f64 {
    let is_of = |row: &&foliant_lab::Row| row.name.split(',').next() == Some(run);
    let sum: u64 = report.rows.iter().filter(is_of).filter_map(of).sum();
    sum as f64
}
