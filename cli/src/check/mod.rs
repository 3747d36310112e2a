//! `foliant check`: a program's faults and memory as predicted from one recording with 4 KiB pages,
//! beside what Linux shows with each folio size enabled.
//!
//! ```text
//!   record once ──▶ replay at each size ──▶ predicted ─┐
//!   switch one size on, all others off ──▶ run N times ──▶ median ─┴─▶ table
//! ```
//!
//! **Like with like.** Faults are all page faults: the recorded ones outside anonymous memory,
//! which no policy changes, plus those that the replay takes. Memory is the peak of the anonymous
//! pages that all address spaces map. Both are taken with addresses that are not random: a folio
//! fits or does not by where its area lies.
//!
//! Behind sudo the program runs as who called it, recorded and measured; only the counters and the
//! switches are root's.
//!
//! With `--hugetlb` it is the kernel's pool of huge pages that is measured instead (`hugetlb`).
//!
//! **Not here**: recording and measuring (`foliant_trace::record`).

mod descendants;
mod hugetlb;
mod place;
mod settings;
mod show;
mod switches;

use crate::args::Check;
use crate::failure::{Done, Failure, print};
use crate::{json, progress, record, replay};
use foliant_trace::record::{Measured, User, fix_layout, measure};
use foliant_trace::replay::{Choice, Plan, Row, Settings, replay_all};
use foliant_trace::{About, Budget, Ending};
use foliant_units::{Bytes, Order};
use std::ffi::OsString;
use std::io::{self, BufReader, Seek};
use std::path::Path;
use switches::Switches;

/// Prediction and measurement of one size.
pub(crate) struct Pair {
    order: Order,
    predicted: Predicted,
    measured: Predicted,
    /// Lowest and highest number of faults among the runs.
    spread: (u64, u64),
}

/// Faults of all kinds and peak of anonymous memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Predicted {
    faults: u64,
    peak: Bytes,
}

/// Runs of a program at each size, unless asked for otherwise.
const RUNS: u32 = 3;

pub(crate) fn run(args: &Check) -> Done {
    if args.hugetlb {
        return hugetlb::run(args);
    }
    let runs = args.runs.unwrap_or(RUNS);
    let user = record::user()?;
    let switches = Switches::open()?;
    record::warn_root(user.as_ref());
    let (orders, skipped) = sizes(args, &switches)?;
    fix_layout()?;
    let (about, plan) = recorded(&args.command, user.as_ref())?;
    let choices: Vec<Choice> = orders.iter().map(|order| choice(*order)).collect();
    let settings = Settings { cpus: about.header.cpus.max(1) as usize, ..Settings::default() };
    let rows = replay_all(&plan, &choices, &settings, |_| ())?;
    let bar = progress::bar("running", u64::from(runs) * orders.len() as u64);
    let mut pairs = Vec::new();
    for (order, row) in orders.iter().zip(&rows) {
        switches.only(*order)?;
        let mut measurements = Vec::new();
        for _ in 0..runs {
            bar.set_message(format!("running with {}", order.bytes()));
            measurements.push(measured(&args.command, user.as_ref(), &about)?);
            bar.inc(1);
        }
        pairs.push(pair(*order, &plan, row, &measurements));
    }
    bar.finish_and_clear();
    switches.restore()?;
    if args.json {
        return print(&json::text(&show::object(&about, runs, &pairs))?);
    }
    print(&show::text(&about, runs, &pairs, &skipped))
}

fn choice(order: Order) -> Choice {
    if order == Order::BASE { Choice::BASE } else { Choice::Only(order) }
}

/// 4 KiB and the sizes asked for, or all that the kernel offers; and those of its sizes that are
/// left out.
fn sizes(args: &Check, switches: &Switches) -> Done<(Vec<Order>, Vec<Bytes>)> {
    let offered = switches.orders();
    let mut orders = vec![Order::BASE];
    let Some(wanted) = &args.sizes else {
        orders.extend(&offered);
        return Ok((orders, switches.skipped().to_vec()));
    };
    for choice in &wanted.0 {
        let (Choice::UpTo(order) | Choice::Only(order)) = *choice else {
            return Err(Failure::new("thp is not one size; use 2m"));
        };
        if order != Order::BASE && !offered.contains(&order) {
            let list: Vec<_> = offered.iter().map(|o| o.bytes().to_string()).collect();
            return Err(Failure::new(format_args!(
                "this kernel does not offer {}; it has {}",
                order.bytes(),
                list.join(", ")
            )));
        }
        if !orders.contains(&order) {
            orders.push(order);
        }
    }
    Ok((orders, Vec::new()))
}

/// Records into a file that has no name, so that nothing is left of it however this ends.
fn recorded(command: &[OsString], user: Option<&User>) -> Done<(About, Plan)> {
    let failed = |e: io::Error| Failure::new(format_args!("a temporary file cannot be used: {e}"));
    let mut file = tempfile::tempfile().map_err(failed)?;
    let mut options = record::options(command, user)?;
    options.apart = true;
    let spinner = progress::spinner("recording");
    options.progress = Some(Box::new(move |at| spinner.set_message(record::progress(at))));
    let summary = foliant_trace::record(options, &file)?;
    record::say(&summary);
    file.rewind().map_err(failed)?;
    // The program is this user's own: what it did is not bounded, beyond what recording it took.
    replay::planned(Path::new("the recording"), BufReader::new(file), &Budget::unlimited())
}

fn measured(command: &[OsString], user: Option<&User>, about: &About) -> Done<Measured> {
    let run = measure(command, user)?;
    if run.ending != about.trailer.ending {
        let (then, now) = (describe(about.trailer.ending), describe(run.ending));
        return Err(Failure::new(format_args!(
            "the program ended with {then} while recorded and with {now} while measured; \
             check a command that does the same each time"
        )));
    }
    Ok(run)
}

fn describe(ending: Ending) -> String {
    match ending {
        Ending::Exited(code) => format!("exit code {code}"),
        Ending::Signaled(signal) => format!("signal {signal}"),
    }
}

fn pair(order: Order, plan: &Plan, row: &Row, runs: &[Measured]) -> Pair {
    let mut faults: Vec<u64> = runs.iter().map(|run| run.faults).collect();
    let mut peaks: Vec<Bytes> = runs.iter().filter_map(|run| run.peak).collect();
    faults.sort_unstable();
    peaks.sort_unstable();
    let middle = |len: usize| len.saturating_sub(1) / 2;
    let median = |list: &[u64]| list.get(middle(list.len())).copied().unwrap_or(0);
    Pair {
        order,
        predicted: Predicted {
            faults: plan.other_faults() + row.anonymous_faults,
            peak: row.peak_mapped,
        },
        measured: Predicted {
            faults: median(&faults),
            peak: peaks.get(middle(peaks.len())).copied().unwrap_or_default(),
        },
        spread: (median(&faults[..1.min(faults.len())]), faults.last().copied().unwrap_or(0)),
    }
}
