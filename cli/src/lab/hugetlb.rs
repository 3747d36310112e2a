//! `foliant lab hugetlb`: a pool filled and emptied in four ways, in modelled time and in real
//! time, beside published times.
//!
//! ```text
//!   the machine that was asked for, model prices     ─▶ counts, modelled time
//!   one of 4 GiB, whose memory the host really has   ─▶ real time: the median of five rounds after one that warms up
//! ```
//!
//! **Not here**: the scenario (`foliant-lab`), where prices come from (`foliant-sim`).

use crate::args::Lab;
use crate::calibrate::model::caption;
use crate::document::{self, Document};
use crate::failure::{Done, Failure, print};
use crate::scenario::{simulate, with_model};
use crate::table::{columns, count};
use crate::terminal::{fitted, prose};
use foliant_lab::{Parameters, Report, Scenario};
use foliant_sim::{Backing, Config, Phases};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;

/// What the pool of that one holds: more descriptors than caches do, whatever was asked for.
const REAL_FRAMES: u64 = 1 << 20;
/// Rounds there; the first is not counted.
const ROUNDS: u64 = 6;

/// One phase of one row.
#[derive(Serialize, JsonSchema, Debug)]
struct Line {
    /// How descriptors are folded: `off`, `grain1`, `batched`, `born_folded`.
    name: String,
    /// `fill` or `drain`.
    phase: String,
    /// Flushes that asked other CPUs.
    remote_shootdowns: u64,
    /// CPUs that they asked.
    interrupts: u64,
    /// Calls that invalidated on the CPU itself.
    local_invalidations: u64,
    /// Frames that the pages' descriptors took before.
    descriptor_frames_before: u64,
    /// And after.
    descriptor_frames_after: u64,
    /// Modelled time.
    model_ns_per_page: f64,
    /// This program's own time, on a smaller machine.
    real_ns_per_page: f64,
    /// Of modelled time to that of the row `off`; nothing without such a row.
    model_ratio_to_off: Option<f64>,
    /// The same of real time.
    real_ratio_to_off: Option<f64>,
}

/// A row that somebody published for the host that the model stands for.
#[derive(Serialize, JsonSchema, Debug)]
struct Beside {
    /// How descriptors are folded.
    name: String,
    /// `fill` or `drain`.
    phase: String,
    /// Whether the model was fitted to it; else it is predicted.
    fitted: bool,
    /// Modelled time.
    ns_per_page: f64,
    /// The time that was published.
    published_ns_per_page: f64,
    /// How far off the modelled time is, of what was published.
    ns_error_percent: f64,
    /// Of modelled time to that of the row `off`.
    ratio_to_off: Option<f64>,
    /// The same of published times.
    published_ratio_to_off: f64,
    /// How far off the modelled ratio is, of what was published.
    ratio_error_percent: Option<f64>,
}

/// A pool of huge pages, filled and emptied.
#[derive(Serialize, JsonSchema, Debug)]
pub(crate) struct Whole {
    /// The scenario: `hugetlb`.
    scenario: String,
    /// The model that time is reckoned by.
    model: &'static str,
    #[serde(skip)]
    caption: String,
    /// CPUs of the simulated machine.
    cpus: u64,
    /// The scenario's parameters.
    parameters: BTreeMap<String, String>,
    /// In the order of the table.
    rows: Vec<Line>,
    /// Empty for a model without published times.
    published: Vec<Beside>,
}

impl Document for Whole {
    const NAME: &'static str = "lab-hugetlb";
    const COMMAND: &'static str = "foliant lab hugetlb --json";
}

pub(super) fn run(args: &Lab, parameters: &Parameters) -> Done {
    let scenario = Scenario::Hugetlb;
    let modelled = simulate((scenario, parameters), args.size, |config| Config {
        backing: Backing::Compact,
        ..with_model(config, args)
    })?;
    let small = timed(parameters)?;
    let size = crate::args::Size { memory: None, ..args.size };
    let real = simulate((scenario, &small), size, |config| Config {
        model: args.model().with_real_clock(),
        ..config
    })?;
    let rows = lines(&modelled, &real);
    let whole = Whole {
        scenario: scenario.to_string(),
        model: args.model().name,
        caption: caption(&args.model()),
        cpus: modelled.cpus,
        parameters: parameters.texts().iter().map(|(k, v)| (k.to_owned(), v.clone())).collect(),
        published: published(args, parameters, &rows),
        rows,
    };
    if args.json { print(&document::text(&whole)?) } else { print(&text(&whole, &small)) }
}

/// The parameters of the run in real time.
fn timed(parameters: &Parameters) -> Done<Parameters> {
    let value = |name: &str| parameters.texts().get(name).cloned().unwrap_or_default();
    let pages = if value("size") == "2m" { REAL_FRAMES >> 9 } else { REAL_FRAMES >> 18 };
    let rounds = value("rounds").parse().unwrap_or(ROUNDS).max(ROUNDS);
    let others = [format!("pages={pages}"), format!("rounds={rounds}")];
    let words: Vec<String> = parameters.words().chain(others).collect();
    Parameters::parse(Scenario::Hugetlb, words.iter().map(String::as_str)).map_err(Failure::new)
}

fn lines(modelled: &Report, real: &Report) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for (row, timed) in modelled.rows.iter().zip(&real.rows) {
        let (name, phase) = row.name.split_once(", ").unwrap_or((&row.name, ""));
        let n = |name: &str| row.counts.get(name).copied().unwrap_or_default();
        let each = |row: &foliant_lab::Row, ticks: &str| {
            row.ticks.get(ticks).copied().unwrap_or_default() as f64 / row.pages.max(1) as f64
        };
        let (model_ns, real_ns) = (each(row, "elapsed"), each(timed, "nanos"));
        let off = match name {
            "off" => Some((model_ns, real_ns)),
            _ => lines
                .iter()
                .find(|line| line.name == "off" && line.phase == phase)
                .map(|line| (line.model_ns_per_page, line.real_ns_per_page)),
        };
        lines.push(Line {
            name: name.to_owned(),
            phase: phase.to_owned(),
            remote_shootdowns: n("remote_shootdowns"),
            interrupts: n("interrupts"),
            local_invalidations: n("local_invalidations"),
            descriptor_frames_before: n("descriptor_frames_before"),
            descriptor_frames_after: n("descriptor_frames_after"),
            model_ns_per_page: model_ns,
            real_ns_per_page: real_ns,
            model_ratio_to_off: off.map(|off| model_ns / off.0),
            real_ratio_to_off: off.map(|off| real_ns / off.1),
        });
    }
    lines
}

/// The rows that were published for this model's host. They are of 2 MiB pages.
fn published(args: &Lab, parameters: &Parameters, lines: &[Line]) -> Vec<Beside> {
    let is_2m = parameters.texts().get("size").is_some_and(|size| size == "2m");
    let Some(table) = args.model().published().filter(|_| is_2m) else { return Vec::new() };
    let of = |phases: Phases<f64>, phase: &str| match phase {
        "fill" => phases.fill,
        _ => phases.drain,
    };
    let base = table.base();
    let beside = |line: &Line| {
        let (fitted, nanos, ratio) = match line.name.as_str() {
            "off" => (true, base, Phases { fill: 1.0, drain: 1.0 }),
            "grain1" => (true, table.unbatched_nanos(), table.unbatched_ratio()),
            "batched" => (false, table.batched_nanos(), table.batched_ratio()),
            _ => return None,
        };
        let (nanos, ratio) = (of(nanos, &line.phase), of(ratio, &line.phase));
        Some(Beside {
            name: line.name.clone(),
            phase: line.phase.clone(),
            fitted,
            ns_per_page: line.model_ns_per_page,
            published_ns_per_page: nanos,
            ns_error_percent: (line.model_ns_per_page / nanos - 1.0) * 100.0,
            ratio_to_off: line.model_ratio_to_off,
            published_ratio_to_off: ratio,
            ratio_error_percent: line.model_ratio_to_off.map(|mine| (mine / ratio - 1.0) * 100.0),
        })
    };
    lines.iter().filter_map(beside).collect()
}

fn hundredths(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.2}"))
}

fn text(whole: &Whole, small: &Parameters) -> String {
    let words: Vec<String> = whole.parameters.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let mut text = fitted(&format!(
        "hugetlb on the simulated machine, {} CPUs, model {}: {}\n\n",
        whole.cpus,
        whole.caption,
        words.join(" ")
    ));
    let heads = [
        "pool",
        "phase",
        "shootdowns",
        "interrupts",
        "invalidations",
        "descriptor frames",
        "frames after",
        "model ns",
        "x off",
        "real ns",
        "x off",
    ];
    let line = |line: &Line| {
        vec![
            line.name.clone(),
            line.phase.clone(),
            count(line.remote_shootdowns),
            count(line.interrupts),
            count(line.local_invalidations),
            count(line.descriptor_frames_before),
            count(line.descriptor_frames_after),
            count(line.model_ns_per_page.round() as u64),
            hundredths(line.model_ratio_to_off),
            count(line.real_ns_per_page.round() as u64),
            hundredths(line.real_ratio_to_off),
        ]
    };
    text += &columns(&heads, whole.rows.iter().map(line));
    let pages = small.texts().get("pages").cloned().unwrap_or_default();
    text += &prose(&format!(
        "\nNanoseconds for a page. Real ones are this program's own, on a simulated machine with {pages} pages: median of 5."
    ));
    if !whole.published.is_empty() {
        text.push('\n');
        let heads =
            ["pool", "phase", "", "us", "published", "error", "x off", "published", "error"];
        text += &columns(&heads, whole.published.iter().map(beside));
    }
    text
}

fn beside(row: &Beside) -> Vec<String> {
    let micros = |nanos: f64| format!("{:.2}", nanos / 1e3);
    let percent = |error: f64| format!("{error:+.0} %");
    vec![
        row.name.clone(),
        row.phase.clone(),
        if row.fitted { "fitted" } else { "predicted" }.to_owned(),
        micros(row.ns_per_page),
        micros(row.published_ns_per_page),
        percent(row.ns_error_percent),
        hundredths(row.ratio_to_off),
        hundredths(Some(row.published_ratio_to_off)),
        row.ratio_error_percent.map_or("-".to_owned(), percent),
    ]
}
