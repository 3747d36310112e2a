//! `foliant check`: a program's faults and memory as predicted from recordings with 4 KiB pages,
//! beside what Linux shows with each policy.
//!
//! ```text
//!   record N times ──▶ replay with each policy ──▶ predicted ─┐
//!   set the switches, run N times ──▶ measured ───────────────┴─▶ table, with a verdict for each row
//! ```
//!
//! **Like with like.** Faults are all page faults: the recorded ones outside anonymous memory,
//! which no policy changes, plus those that the replay takes. Memory is the peak of the anonymous
//! pages that all address spaces map. Both are taken with addresses that are not random: a folio
//! fits or does not by where its area lies. A policy means the same here as in `replay`.
//!
//! **What the machine does** is not the prediction's error: where it had no folio of a size is
//! counted for each row, and runs that differ among themselves are called noise (`verdict`).
//!
//! Behind sudo the program runs as who called it, recorded and measured; only the counters and the
//! switches are root's.
//!
//! With `--plan` it is a plan that is predicted and measured, in pairs of runs (`planned`).
//!
//! With `--hugetlb` it is the kernel's pool of huge pages that is measured instead (`hugetlb`).
//!
//! **Not here**: recording and measuring (`foliant_trace::record`).

mod beside;
mod hugetlb;
mod paired;
mod planned;
mod rounds;
mod runs;
mod show;
mod switches;
mod verdict;

pub(crate) use beside::Told as PlanTold;
pub(crate) use hugetlb::Pool;
pub(crate) use show::Told;

use crate::args::Check;
use crate::failure::{Done, Failure, print};
use crate::{document, record};
use foliant_trace::record::{Measured, fix_layout};
use foliant_trace::replay::{Choice, Row, Settings, replay_all};
use foliant_trace::{About, Remedy};
use foliant_units::{Bytes, FRAME_BYTES};
use runs::Runs;
use std::collections::BTreeMap;
use switches::{Fallbacks, Switches};
use verdict::{Compared, Range};

/// Prediction and measurement with one policy.
struct Checked {
    choice: Choice,
    faults: Compared,
    /// Bytes.
    peak: Compared,
    /// Folios that all programs of the machine asked for in vain while this one was measured, by
    /// the kernel's counter; those of the worst run.
    fallbacks: BTreeMap<String, u64>,
}

/// What is shown.
struct Checks {
    about: About,
    runs: u32,
    rows: Vec<Checked>,
    /// Sizes that the kernel offers and Foliant does not know.
    skipped: Vec<Bytes>,
    /// The first time the program took far more faults than later: both numbers.
    first: Option<(u64, u64)>,
}

/// Recordings, and runs with each policy, unless asked for otherwise.
const RUNS: u32 = 3;
/// How far off a prediction of faults may be, and one of memory.
const FAULTS_GOAL: f64 = 0.02;
const PEAK_GOAL: f64 = 0.05;
/// A first run with so many times the faults of all others found something that they did not.
const FIRST_TIME: f64 = 1.2;

pub(crate) fn run(args: &Check) -> Done {
    if args.hugetlb {
        return hugetlb::run(args);
    }
    if let Some(plan) = &args.plan {
        return planned::run(args, plan);
    }
    let user = record::user()?;
    let switches = Switches::open()?;
    record::warn_root(user.as_ref());
    let choices = offered(args.rows.asked(), &switches)?;
    fix_layout()?;
    let count = args.runs.unwrap_or(RUNS);
    let all = u64::from(count) * (1 + choices.len() as u64);
    let mut runs = Runs::new(args, user, all);
    let (mut predictions, mut faults, mut about) = (Vec::new(), Vec::new(), None);
    for _ in 0..count {
        let (told, plan) = runs.recorded()?;
        let settings = Settings { cpus: told.header.cpus.max(1) as usize, ..Settings::default() };
        let rows = replay_all(&plan, &choices, &settings, |_| ())?;
        predictions.push((plan.other_faults(), rows));
        faults.push(plan.recorded_faults);
        about.get_or_insert(told);
    }
    let mut rows = Vec::new();
    for (at, choice) in choices.iter().enumerate() {
        switches.set(*choice)?;
        let mut measurements = Vec::new();
        for _ in 0..count {
            runs.begin(&format!("running with {choice}"))?;
            let before = switches.fallbacks(*choice);
            let run = runs.measured(&Remedy::NONE)?;
            if *choice == Choice::BASE {
                faults.push(run.faults);
            }
            measurements.push((run, switches.fallbacks(*choice).since(&before)));
        }
        let predicted =
            predictions.iter().filter_map(|(other, rows)| Some((*other, rows.get(at)?)));
        rows.extend(checked(*choice, predicted, &measurements));
    }
    drop(runs);
    switches.restore()?;
    let about = about.ok_or_else(|| Failure::new("nothing was recorded"))?;
    let skipped = if args.rows.asked().is_none() { switches.skipped() } else { &[] };
    let (skipped, first) = (skipped.to_vec(), first_time(&faults));
    let checks = Checks { about, runs: count, rows, skipped, first };
    if args.json {
        return print(&document::text(&show::document(&checks))?);
    }
    print(&show::text(&checks))
}

/// The policies asked for, or those of a replay whose sizes the kernel has.
fn offered(asked: Option<&[Choice]>, switches: &Switches) -> Done<Vec<Choice>> {
    let offered = switches.orders();
    let missing = |choice: Choice| choice.orders().without(offered).largest_first().last();
    let Some(asked) = asked else {
        return Ok(Choice::of_linux().into_iter().filter(|c| missing(*c).is_none()).collect());
    };
    for choice in asked {
        if !choice.is_of_linux() {
            return Err(Failure::new(format_args!(
                "{choice} is a policy of Foliant's manager, and Linux has no switch for it; leave it out, and see \
                 foliant replay --policy {choice}"
            )));
        }
        if let Some(order) = missing(*choice) {
            let mut list: Vec<_> =
                offered.largest_first().map(|order| order.bytes().to_string()).collect();
            list.reverse();
            return Err(Failure::new(format_args!(
                "{choice} needs {}, which this kernel does not offer; it has {}",
                order.bytes(),
                list.join(", ")
            )));
        }
    }
    Ok(asked.to_vec())
}

fn checked<'a>(
    choice: Choice,
    predicted: impl Iterator<Item = (u64, &'a Row)> + Clone,
    measured: &[(Measured, Fallbacks)],
) -> Option<Checked> {
    let excused = measured.iter().map(|(_, fallbacks)| fallbacks.pages()).max().unwrap_or(0);
    let worst = measured.iter().map(|(_, fallbacks)| fallbacks).max_by_key(|f| f.pages());
    let faults = Compared {
        predicted: Range::of(predicted.clone().map(|(other, row)| other + row.anonymous_faults))?,
        measured: Range::of(measured.iter().map(|(run, _)| run.faults)),
        goal: FAULTS_GOAL,
        excused,
    };
    let peak = Compared {
        predicted: Range::of(predicted.map(|(_, row)| row.peak_mapped.get()))?,
        measured: Range::of(measured.iter().filter_map(|(run, _)| Some(run.peak?.get()))),
        goal: PEAK_GOAL,
        excused: excused.saturating_mul(FRAME_BYTES),
    };
    let fallbacks = worst.map(Fallbacks::by_counter).unwrap_or_default();
    Some(Checked { choice, faults, peak, fallbacks })
}

/// Whether the first run took far more faults than all later ones: its faults, and the most of
/// theirs.
fn first_time(faults: &[u64]) -> Option<(u64, u64)> {
    let (first, later) = faults.split_first()?;
    let most = *later.iter().max()?;
    (*first as f64 > most as f64 * FIRST_TIME).then_some((*first, most))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_time_is_told_from_noise() {
        assert_eq!(first_time(&[]), None);
        assert_eq!(first_time(&[500]), None);
        assert_eq!(first_time(&[5000, 100, 120]), Some((5000, 120)));
        assert_eq!(first_time(&[100, 5000, 100]), None, "a later one is noise");
        assert_eq!(first_time(&[119, 100, 100]), None);
    }

    #[test]
    fn a_check_is_the_document_that_it_says() {
        let (about, _) = crate::replay::shipped().unwrap();
        let predicted = Range { lowest: 1, median: 2, highest: 3 };
        let compared = |measured| Compared { predicted, measured, goal: 0.02, excused: 0 };
        let row = Checked {
            choice: Choice::BASE,
            faults: compared(Some(predicted)),
            peak: compared(None),
            fallbacks: BTreeMap::from([("anon_fault_fallback".to_owned(), 5)]),
        };
        let (skipped, first) = (vec![Bytes::new(8192)], Some((9, 3)));
        let checks = Checks { about, runs: 3, rows: vec![row], skipped, first };
        document::tests::holds(&show::document(&checks));
    }
}
