//! `foliant lab vmalloc`: a kernel hash table by leaves of several sizes: what is counted and
//! modelled on the simulated machine, the same probes on this machine's own translation hardware,
//! and published numbers beside.
//!
//! ```text
//!   the machine that was asked for, model prices   ─▶ counts, modelled time
//!   the same with the host's clock                 ─▶ real time of mapping and unmapping
//!   this process's memory, base and huge pages     ─▶ nanoseconds per probe
//! ```
//!
//! **Not here**: the scenario (`foliant-lab`), the probing (`foliant-hosted`).
#![cfg(target_arch = "x86_64")]

use super::document::{Row, row};
use crate::args::Lab;
use crate::calibrate::model::caption;
use crate::document::{self, Document};
use crate::failure::{Done, Failure, print};
use crate::scenario::{simulate, with_model};
use crate::table::{columns, count};
use crate::terminal::{fitted, prose};
use crate::{host, progress};
use foliant_hosted::{ProbeAsked, Probed, available, probe};
use foliant_lab::{self as lab, Caches, Parameters, Report, Scenario};
use foliant_sim::Config;
use foliant_units::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// The table where none is asked for: 2^27 buckets of a pointer each, which is what the reference
/// gives its directory cache at one bucket for 8 KiB of memory on a machine of 1 TiB.
const TABLE: &str = "table-size=1g";
/// Probes in a round on this machine, and rounds.
const PROBES: u64 = 1 << 18;
const ROUNDS: u32 = 7;

/// A number that was published for the reference, and what is found here.
#[derive(Serialize, JsonSchema, Debug)]
struct Beside {
    /// What is compared.
    what: &'static str,
    /// The one that was published, as text.
    published_of: &'static str,
    /// The other.
    published_to: &'static str,
    /// Of the one to the other.
    published_ratio: f64,
    /// The same ratio here.
    ratio: Option<f64>,
}

/// Mapping alone, by one leaf size.
#[derive(Serialize, JsonSchema, Debug)]
struct Mapping {
    /// How much, and by which leaves.
    name: String,
    /// Modelled time of mapping.
    model_map_ns: u64,
    /// Modelled time of unmapping.
    model_unmap_ns: u64,
    /// This program's own time of mapping.
    real_map_ns: u64,
    /// This program's own time of unmapping.
    real_unmap_ns: u64,
    /// How many times faster than by 4 KiB: modelled, mapping.
    model_map_ratio: Option<f64>,
    /// Modelled, unmapping.
    model_unmap_ratio: Option<f64>,
    /// Real, mapping.
    real_map_ratio: Option<f64>,
    /// Real, unmapping.
    real_unmap_ratio: Option<f64>,
}

/// A kernel hash table by leaves of several sizes.
#[derive(Serialize, JsonSchema, Debug)]
pub(crate) struct Whole<'r> {
    /// The model that time is reckoned by.
    model: &'static str,
    #[serde(skip)]
    caption: String,
    /// The translation caches whose misses are counted.
    caches: &'static str,
    /// Where their sizes are from.
    caches_source: &'static str,
    /// The scenario's parameters.
    parameters: BTreeMap<String, String>,
    /// What was counted and modelled, in the order of the tables.
    rows: Vec<Row<'r>>,
    /// Mapping alone.
    mappings: Vec<Mapping>,
    /// Published numbers beside those of here.
    published: Vec<Beside>,
    /// The same probes on this machine's own hardware.
    here: Probed,
    /// How many times as long a probe takes here in base pages; nothing without huge pages.
    here_ratio: Option<f64>,
}

impl Document for Whole<'_> {
    const NAME: &'static str = "lab-vmalloc";
    const COMMAND: &'static str = "foliant lab vmalloc --json";
}

/// The parameters that the words give, with a table as large as a big server's.
pub(super) fn parameters(words: &[String]) -> Done<Parameters> {
    let words = std::iter::once(TABLE).chain(words.iter().map(String::as_str));
    Parameters::parse(Scenario::Vmalloc, words).map_err(Failure::new)
}

pub(super) fn run(args: &Lab, parameters: &Parameters) -> Done {
    let scenario = Scenario::Vmalloc;
    let report = simulate((scenario, parameters), args.size, |config| with_model(config, args))?;
    let few: Vec<String> = parameters.words().chain(["sizes=1".to_owned()]).collect();
    let few = Parameters::parse(scenario, few.iter().map(String::as_str)).map_err(Failure::new)?;
    let real = simulate((scenario, &few), args.size, |config| Config {
        model: args.model().with_real_clock(),
        ..config
    })?;
    let text = |name: &str| parameters.texts().get(name).cloned().unwrap_or_default();
    let before = host::load();
    let here = here(Bytes::parse(&text("table-size")).map_err(Failure::new)?)?;
    let whole = Whole {
        model: args.model().name,
        caption: caption(&args.model()),
        caches: Caches::SKYLAKE.name,
        caches_source: Caches::SKYLAKE.source,
        parameters: parameters.texts().iter().map(|(k, v)| (k.to_owned(), v.clone())).collect(),
        rows: report.rows.iter().map(row).collect(),
        mappings: mappings(&report, &real),
        published: published(&report),
        here_ratio: here.ratio(),
        here,
    };
    if args.json {
        return print(&document::text(&whole)?);
    }
    let host = format!("{}, load {before} before, {} after", host::processor(), host::load());
    print(&text_of(&whole, &report, &host))
}

/// The probes on this machine, of a table that leaves most of its free memory alone.
fn here(table: Bytes) -> Done<Probed> {
    let mut table = table;
    while available().is_some_and(|free| table.get() > free.get() / 4) {
        table = Bytes::new((table.get() / 2).next_multiple_of(4096));
    }
    let asked = ProbeAsked { table, probes: PROBES, rounds: ROUNDS };
    let spinner = progress::spinner(&format!("probing {table} of this machine's memory"));
    let probed = probe(&asked, |done, all| {
        spinner.set_message(format!("probing {table}: round {done} of {all}"));
    });
    spinner.finish_and_clear();
    probed.map_err(Failure::new)
}

fn value(row: &lab::Row, name: &str) -> u64 {
    row.counts.get(name).or_else(|| row.ticks.get(name)).copied().unwrap_or_default()
}
fn ratio(of: u64, to: u64) -> Option<f64> {
    (to > 0).then(|| of as f64 / to as f64)
}
/// A ratio of the report, by its name.
fn found(report: &Report, name: &str) -> Option<f64> {
    let ratio = report.ratios.iter().find(|ratio| ratio.name == name)?;
    self::ratio(ratio.of, ratio.to)
}

fn mappings(report: &Report, real: &Report) -> Vec<Mapping> {
    let is_mapping = |row: &&lab::Row| row.name.starts_with("ioremap");
    let rows = report.rows.iter().filter(is_mapping).zip(real.rows.iter().filter(is_mapping));
    let mut base: Option<(&lab::Row, &lab::Row)> = None;
    let mut mappings = Vec::new();
    for (row, real) in rows {
        let first = base.filter(|(first, _)| first.pages == row.pages);
        base = first.or(Some((row, real)));
        let ratio = |real_time: bool, what: &str| {
            let (model_base, real_base) = first?;
            let (of, to) = if real_time { (real_base, real) } else { (model_base, row) };
            ratio(value(of, what), value(to, what))
        };
        mappings.push(Mapping {
            name: row.name.to_string(),
            model_map_ns: value(row, "map"),
            model_unmap_ns: value(row, "unmap"),
            real_map_ns: value(real, "map_nanos"),
            real_unmap_ns: value(real, "unmap_nanos"),
            model_map_ratio: ratio(false, "map"),
            model_unmap_ratio: ratio(false, "unmap"),
            real_map_ratio: ratio(true, "map_nanos"),
            real_unmap_ratio: ratio(true, "unmap_nanos"),
        });
    }
    mappings
}

/// What the description of huge vmalloc says, and the same here.
fn published(report: &Report) -> Vec<Beside> {
    vec![
        Beside {
            what: "dTLB misses, 4k to 2m",
            published_of: "59,800",
            published_to: "2,100",
            published_ratio: 59_800.0 / 2_100.0,
            ratio: found(report, "dtlb misses, 4k to 2m"),
        },
        Beside {
            what: "table bytes, 4k to 2m",
            published_of: "2 GB per TB",
            published_to: "4 MB per TB",
            published_ratio: 512.0,
            ratio: found(report, "table bytes, 4k to 2m"),
        },
    ]
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or("-".into(), |ratio| format!("{ratio:.1}"))
}
fn micros(nanos: u64) -> String {
    format!("{:.1}", nanos as f64 / 1000.0)
}
/// `n` for each of so many, with four decimals.
fn each(n: u64, of: u64) -> String {
    format!("{:.4}", n as f64 / of.max(1) as f64)
}

fn text_of(whole: &Whole<'_>, report: &Report, host: &str) -> String {
    let words: Vec<String> = whole.parameters.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let (words, cpus, model) = (words.join(" "), report.cpus, &whole.caption);
    let mut text = fitted(&format!(
        "vmalloc on the simulated machine, {cpus} CPUs, model {model}: {words}\n\n"
    ));
    text += &tables(report);
    text += &prose(&format!(
        "\nmisses, steps, walk ns: of one probe, by the translation caches of a {} core, empty at first; a step is a table \
         word that a walk reads. vmalloc, vfree: modelled, of the whole call; a page's descriptor is written and the page given \
         back one by one, whatever the leaf. Shootdowns: of the one purge.\n\n",
        whole.caches
    ));
    text += &mapping_table(&whole.mappings);
    text += &prose(
        "\nmapping alone (a device, so no memory is taken): modelled, and on this host's clock.\n\n",
    );
    text += &sizes(report);
    text += &prose(
        "\nareas of random sizes up to 4m; waste: bytes mapped behind the last base page.\n\n",
    );
    let line = |b: &Beside| {
        let published = format!("{} to {}", b.published_of, b.published_to);
        let ratios = [format!("{:.1}", b.published_ratio), times(b.ratio)];
        [b.what.to_owned(), published].into_iter().chain(ratios).collect()
    };
    let heads = ["ratio", "published", "times", "here"];
    text += &columns(&heads, whole.published.iter().map(line));
    text + &here_text(&whole.here, host)
}

fn tables(report: &Report) -> String {
    let heads = [
        "table by",
        "leaves 4k",
        "leaves 2m",
        "leaves 1g",
        "table bytes",
        "entries",
        "shootdowns",
        "waste",
        "misses",
        "steps",
        "walk ns",
        "vmalloc us",
        "vfree us",
    ];
    let line = |row: &lab::Row| {
        let n = |name: &str| value(row, name);
        let counts = ["leaves_4k", "leaves_2m", "leaves_1g", "table_bytes", "entries_written"];
        let counts = counts.into_iter().chain(["shootdowns", "waste_bytes"]).map(|c| count(n(c)));
        let probes = n("probes");
        let walks = ["dtlb_misses", "walk_steps", "probe"].map(|what| each(n(what), probes));
        let calls = ["map", "unmap"].map(|what| micros(n(what)));
        std::iter::once(row.name.to_string()).chain(counts).chain(walks).chain(calls).collect()
    };
    let is_table = |row: &&lab::Row| row.counts.get("probes").is_some();
    columns(&heads, report.rows.iter().filter(is_table).map(line))
}

fn mapping_table(mappings: &[Mapping]) -> String {
    let heads = [
        "run",
        "map us",
        "x 4k",
        "unmap us",
        "x 4k",
        "real map us",
        "x 4k",
        "real unmap us",
        "x 4k",
    ];
    let line = |m: &Mapping| {
        vec![
            m.name.clone(),
            micros(m.model_map_ns),
            times(m.model_map_ratio),
            micros(m.model_unmap_ns),
            times(m.model_unmap_ratio),
            micros(m.real_map_ns),
            times(m.real_map_ratio),
            micros(m.real_unmap_ns),
            times(m.real_unmap_ratio),
        ]
    };
    columns(&heads, mappings.iter().map(line))
}

fn sizes(report: &Report) -> String {
    let heads = ["run", "areas", "leaves 4k", "leaves 2m", "waste", "most waste"];
    let counts = ["areas", "leaves_4k", "leaves_2m", "waste_bytes", "waste_most"];
    let line = |row: &lab::Row| {
        let counts = counts.iter().map(|name| count(value(row, name)));
        std::iter::once(row.name.to_string()).chain(counts).collect()
    };
    let is_sizes = |row: &&lab::Row| row.counts.get("areas").is_some();
    columns(&heads, report.rows.iter().filter(is_sizes).map(line))
}

fn here_text(here: &Probed, host: &str) -> String {
    let (table, rounds) = (Bytes::new(here.table), here.rounds);
    let mut text = fitted(&format!(
        "\nthe same on this machine, memory of this process: a table of {table}, medians of {rounds} interleaved rounds of {} probes\n{host}\n\n",
        count(here.probes)
    ));
    let heads = ["table by", "in huge pages", "ns per probe", "least", "dTLB misses"];
    let line = |row: &foliant_hosted::ProbeRow| {
        vec![
            row.name.clone(),
            Bytes::new(row.huge_bytes).to_string(),
            format!("{:.1}", row.ns_per_probe),
            format!("{:.1}", row.ns_per_probe_least),
            row.dtlb_misses_per_probe.map_or("-".into(), |misses| format!("{misses:.3}")),
        ]
    };
    text += &columns(&heads, here.rows.iter().map(line));
    let ratio = here.ratio().map(|ratio| format!("\n4k to 2m: {ratio:.2} times as long"));
    text += &prose(&ratio.unwrap_or_else(|| {
        "\nno huge pages were given: set /sys/kernel/mm/transparent_hugepage/enabled to madvise"
            .to_owned()
    }));
    text + &prose(here.uncounted.as_deref().unwrap_or_default())
}
