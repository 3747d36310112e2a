//! `foliant lab zero`: clearing on this machine's memory, as a table or JSON.
//!
//! **Not here**: the measuring (`foliant-hosted`).
#![cfg(target_arch = "x86_64")]

use crate::args::Lab;
use crate::document::{self, Document};
use crate::failure::{Done, Failure, print};
use crate::table::columns;
use crate::terminal::{fitted, prose};
use crate::{host, progress};
use foliant_hosted::{Asked, Measurement, Row, measure};
use foliant_units::{Bytes, Order};
use schemars::JsonSchema;
use serde::Serialize;

/// Rounds of which medians are taken.
const ROUNDS: u32 = 7;
/// Memory where none is asked for, in blocks of 2 MiB and of 1 GiB.
const TOTAL: [Bytes; 2] = [Bytes::SIZE_1G, Bytes::new(2 << 30)];

/// Clearing, measured on this machine's own memory.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Cleared {
    #[serde(flatten)]
    measured: Measurement,
}

impl Document for Cleared {
    const NAME: &'static str = "lab-zero";
    const COMMAND: &'static str = "foliant lab zero --json";
}

pub(super) fn run(args: &Lab) -> Done {
    let asked = asked(args);
    let total = asked.total;
    let spinner =
        progress::spinner(&format!("clearing {total} in blocks of {}", asked.size.bytes()));
    let before = host::load();
    let measured = measure(&asked, |done, all| {
        spinner.set_message(format!("clearing {total}: round {done} of {all}"));
    });
    spinner.finish_and_clear();
    let measured = measured.map_err(Failure::new)?;
    if args.json {
        return print(&document::text(&Cleared { measured })?);
    }
    let host = format!("{}, load {before} before, {} after", host::processor(), host::load());
    let mut text = table(&measured, &host);
    if args.here.explain {
        text += &explain(&measured);
    }
    print(&text)
}

/// What the command line asks for.
pub(crate) fn asked(args: &Lab) -> Asked {
    let size = args.here.block.unwrap_or(Order::SIZE_2M);
    let total = args.here.total.unwrap_or(TOTAL[usize::from(size == Order::SIZE_1G)]);
    Asked { size, total, rounds: args.here.rounds.unwrap_or(ROUNDS) }
}

/// `of` to `to` with two decimals.
fn times(of: u64, to: u64) -> String {
    if to == 0 { "-".into() } else { format!("{:.2}", of as f64 / to as f64) }
}
fn micros(nanos: u64) -> String {
    format!("{:.1}", nanos as f64 / 1000.0)
}

fn table(measured: &Measurement, host: &str) -> String {
    let Measurement { size, total, rounds, chosen, rows, .. } = measured;
    let (size, total) = (Bytes::new(*size), Bytes::new(*total));
    let mut text = fitted(&format!(
        "clearing {total} in blocks of {size} on this machine, medians of {rounds} interleaved rounds\n{host}\n\n"
    ));
    let (base, limit) = (measured.baseline().map_or(0, |row| row.rate), measured.limit());
    let heads = [
        "run",
        "GB/s",
        "best",
        "x page",
        "x limit",
        "extents",
        "us clear",
        "walk",
        "around",
        "random",
        "clear+walk",
        "longest ms",
        "least ms",
    ];
    let known = |row: &Row| row.extents == 0;
    let line = |row: &Row| {
        let best = size.get() * 1000 / row.clear_least.max(1);
        let rate = |rate: u64| {
            if known(row) { "-".into() } else { format!("{:.1}", rate as f64 / 1000.0) }
        };
        let ratio = |to| if known(row) { "-".into() } else { times(row.rate, to) };
        vec![
            row.name.clone(),
            rate(row.rate),
            rate(best),
            ratio(base),
            ratio(limit),
            row.extents.to_string(),
            micros(row.clear),
            micros(row.sequential),
            format!("{:.2}", row.around as f64 / 1000.0),
            micros(row.random),
            micros(row.total),
            format!("{:.2}", row.longest as f64 / 1e6),
            format!("{:.2}", row.longest_least as f64 / 1e6),
        ]
    };
    text += &columns(&heads, rows.iter().map(line));
    let [short, cached, past] = chosen;
    text + &prose(&format!(
        "\nchosen plan: {cached} ({short} up to 32k) where the block is used soon, {past} far from the fault where the caches \
         do not hold it. walk, around, random: microseconds to read each line of the block, of the page of the fault and two on \
         either side, of the block in no order, right after the clear. longest: without a preemption point, of all rounds; least: \
         of the calmest round. limit: the best row."
    ))
}

fn explain(measured: &Measurement) -> String {
    let spent = measured.spent as f64 / 1e6;
    let mut text =
        fitted(&format!("\nmeasured at the start in {spent:.1} ms, GB/s, best of the rounds:"));
    let heads = ["primitive", "page, cached", "256k, cached", "memory"];
    let rate =
        |rate: u64| if rate == 0 { "-".into() } else { format!("{:.1}", rate as f64 / 1000.0) };
    let line = |p: &foliant_hosted::Primitive| {
        vec![p.name.clone(), rate(p.short), rate(p.inside), rate(p.beyond)]
    };
    text += &columns(&heads, measured.primitives.iter().map(line));
    let [short, cached, past] = &measured.chosen;
    text + &prose(&format!(
        "\nfrom this: {short} for short clears, {cached} for longer ones that stay in the caches, {past} past them; \
         within 3 % of the best, the first of the table that stays, and the last that does not. Which of the last two a fault \
         takes is measured while it runs: past the caches where that saves more than the {} us that reading 2m takes longer then.",
        micros(measured.refetch)
    ))
}
