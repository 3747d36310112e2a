//! `foliant advise`: which folio sizes, for which mappings, at what gain and price.
//!
//! ```text
//!   recordings ──plan──▶ replay every choice ──judge──▶ drafts ──replay──▶ a verdict
//!                                                                            │
//!              the screen (show), a document, a plan file, shell lines ◀─────┘
//! ```
//!
//! **Invariants**
//! - A1. What is said of the recommended remedy is what its own replay came to (`judge::V1`).
//! - A2. The same recordings, model and `--spend` give the same advice.
//!
//! **Not here**: `MADV_COLLAPSE`, which a plan may hold and no advice does: what it brings are
//! later accesses that miss the TLB less, and the model has no price for these. Carrying a plan out
//! (`foliant run`), and measuring it (`foliant check --plan`).

mod answers;
mod document;
mod facts;
mod judge;
mod known;
mod shell;
mod show;

pub(crate) use document::Whole;

use crate::args::Advise;
use crate::calibrate::kept;
use crate::failure::{Done, Failure, print, tell, unwritable};
use crate::{document as documents, plan, progress, record, replay, table};
use foliant::fault::Defrag;
use foliant_sim::CostModel;
use foliant_trace::replay::{
    Choice, Explained, Percent, Plan, Settings, Shared, Trial, explain_each,
};
use foliant_trace::{About, Budget, Ending, Remedy};
use judge::{Judged, Score, Verdict};
use std::fs::File;
use std::io::{BufReader, Seek, Write};
use std::path::{Path, PathBuf};

/// The share of blocks with another program's pages that the advice is tried on besides.
const FRAGMENTED: u8 = 80;
/// Within how many percent the cost model is right about what it was fitted to: first touches
/// within 8, unmapping within 15 (`crates/sim/src/cost/tables.rs`).
const MODEL_PERCENT: f64 = 15.0;
/// Drafts of a choice that are replayed at most: memory that mappings hold at most does not add up
/// to what is held at once, so what they would take together is found by trying.
const TRIES: u32 = 3;

/// A recording, ready to be replayed.
struct Recording {
    name: String,
    about: About,
    plan: Plan,
    settings: Settings,
}

/// All that is known when the advice is given.
struct Advised {
    recordings: Vec<Recording>,
    model: CostModel,
    /// How much more memory it may take, as a part of that with 4 KiB pages.
    spend: f64,
    /// What was replayed: first every choice for all memory, 4 KiB pages before the others.
    trials: Vec<Trial>,
    choices: usize,
    scores: Vec<Score>,
    verdict: Verdict,
    /// By recording: the row of 4 KiB pages, the recommended one, and that on fragmented memory.
    told: Vec<[Explained; 3]>,
}

impl Advised {
    /// What is recommended.
    fn trial(&self) -> &Trial {
        &self.trials[self.verdict.at]
    }
    /// As switches and wishes.
    fn remedy(&self) -> Remedy {
        let trial = self.trial();
        let plainly = || judge::plainly(trial.choice).unwrap_or(Remedy::NONE);
        trial.remedy.clone().unwrap_or_else(plainly)
    }
}

pub(crate) fn run(args: &Advise) -> Done {
    let model = kept::chosen(args.model)?;
    let recordings = match args.command.is_empty() {
        true => args.files.iter().map(|path| open(path, model, args)).collect::<Done<Vec<_>>>()?,
        false => recorded(args, model)?,
    };
    let advised = advise(recordings, model, f64::from(args.spend) / 100.0)?;
    if let Some(path) = &args.plan_out {
        write_plan(path, &advised.remedy())?;
    }
    if args.apply {
        print(&shell::lines(&advised.remedy()))
    } else if args.json {
        print(&documents::text(&document::whole(&advised))?)
    } else {
        print(&show::text(&advised))
    }
}

fn settings(about: &About, model: CostModel) -> Settings {
    let cpus = (about.header.cpus as usize).clamp(1, foliant_units::CPUS_MAX);
    Settings { cpus, model, ..Settings::default() }
}

fn open(path: &Path, model: CostModel, args: &Advise) -> Done<Recording> {
    let file = File::open(path).map_err(|e| Failure::reading(path, e.into()))?;
    let (about, plan) =
        replay::planned(path, BufReader::new(file), Shared::Counted, &args.trust.budget())?;
    let settings = settings(&about, model);
    Ok(Recording { name: path.display().to_string(), about, plan, settings })
}

/// Records the program as often as was asked for.
fn recorded(args: &Advise, model: CostModel) -> Done<Vec<Recording>> {
    let user = record::user()?;
    record::warn_root(user.as_ref());
    (1..=args.runs).map(|run| record_once(args, model, user.as_ref(), run)).collect()
}

fn record_once(
    args: &Advise,
    model: CostModel,
    user: Option<&foliant_trace::record::User>,
    run: u32,
) -> Done<Recording> {
    let failed = |e: std::io::Error| {
        Failure::new(format_args!("the recording cannot be kept ({e}); free some room in TMPDIR"))
    };
    let mut file = tempfile::tempfile().map_err(failed)?;
    let mut options = record::options(&args.command, user)?;
    options.forward_signals = true;
    // What it prints is not advice.
    options.apart = true;
    let summary = foliant_trace::record(options, &file)?;
    record::say(&summary);
    if let Ending::Signaled(signal) = summary.trailer.ending {
        return Err(Failure::new(format_args!(
            "the program was ended by signal {signal}; advice is given for runs that come to their end"
        )));
    }
    file.rewind().map_err(failed)?;
    let name = format!("recording {run}");
    // The program is this user's own.
    let budget = Budget::unlimited();
    let (about, plan) =
        replay::planned(Path::new(&name), BufReader::new(file), Shared::Counted, &budget)?;
    let settings = settings(&about, model);
    Ok(Recording { name, about, plan, settings })
}

/// Replays trials of every recording.
fn explain(
    recordings: &[Recording],
    trials: &[Trial],
    fragmented: Percent,
    bar: &indicatif::ProgressBar,
) -> Done<Vec<Vec<Explained>>> {
    let each = |recording: &Recording| Settings {
        fragmented,
        defrag: Defrag::Always,
        ..recording.settings
    };
    let all: Vec<(&Plan, Settings)> = recordings.iter().map(|r| (&r.plan, each(r))).collect();
    explain_each(&all, trials, |steps| bar.inc(steps))
        .map_err(|(nth, why)| Failure::replaying(Path::new(&recordings[nth].name), why))
}

fn advise(recordings: Vec<Recording>, model: CostModel, spend: f64) -> Done<Advised> {
    let choices = Choice::of_linux();
    let mut trials: Vec<Trial> = choices.iter().copied().map(Trial::from).collect();
    let steps: u64 = recordings.iter().map(|recording| recording.plan.steps()).sum();
    let bar = progress::bar("replaying", steps * (trials.len() as u64 + 3));
    let none = Percent::default();
    let mut told = explain(&recordings, &trials, none, &bar)?;
    let drafted = drafts(&told, &choices, spend);
    tighten(&recordings, &mut told, &mut trials, (drafted, spend), &bar)?;
    let judged: Vec<Judged<'_>> = told.iter().map(|rows| judged(rows)).collect();
    let scores = judge::scores(&judged);
    let verdict = judge::settle(&trials, &scores, spend);
    drop(judged);
    let share = Percent::new(FRAGMENTED).unwrap_or_default();
    let trial = std::slice::from_ref(&trials[verdict.at]);
    let scarce = explain(&recordings, trial, share, &bar)?;
    bar.finish_and_clear();
    let told = told.into_iter().zip(scarce).map(|(mut rows, mut scarce)| {
        let is = rows.swap_remove(verdict.at);
        let base = if verdict.at == 0 { is.clone() } else { rows.swap_remove(0) };
        [base, is, scarce.swap_remove(0)]
    });
    let told = told.collect();
    let choices = choices.len();
    Ok(Advised { recordings, model, spend, trials, choices, scores, verdict, told })
}

/// A recording's rows, the first of which is that of 4 KiB pages.
fn judged(rows: &[Explained]) -> Judged<'_> {
    Judged { base: &rows[0], trials: rows.iter().collect() }
}

/// A choice of which drafts are replayed.
#[derive(Clone, Copy)]
struct Drafted {
    /// Its place among the choices.
    at: usize,
    choice: Choice,
    /// How much more memory its next draft is expected to take at most, as a part of that with
    /// 4 KiB pages.
    within: f64,
}

impl Drafted {
    /// What is tried after a draft, `is_partial` if it left a mapping out: one that is expected to
    /// take half as much memory if it took too much, and twice as much if it did not and is
    /// partial.
    fn next(self, is_within: bool, is_partial: bool, spend: f64) -> Option<Drafted> {
        let within = match (is_within, is_partial) {
            (true, false) => return None,
            (true, true) if self.within >= spend => self.within * 2.0,
            // The one before took too much.
            (true, true) => return None,
            (false, _) if self.within > spend => (self.within + spend) / 2.0,
            (false, _) => self.within / 2.0,
        };
        Some(Drafted { within, ..self })
    }
}

/// The choices of which drafts are worth a replay: that which is expected to be the best, and the
/// smallest size that is expected to be as good.
fn drafts(told: &[Vec<Explained>], choices: &[Choice], spend: f64) -> Vec<Drafted> {
    let judged: Vec<Judged<'_>> = told.iter().map(|rows| judged(rows)).collect();
    let expected: Vec<(usize, f64)> = (1..choices.len())
        .filter_map(|at| Some((at, judge::draft(&judged, at, choices[at], spend)?.time)))
        .collect();
    let best = expected.iter().map(|(_, time)| *time).fold(f64::MAX, f64::min);
    let near = best * (1.0 + judge::KNEE_PERCENT / 100.0);
    let smallest = expected.iter().find(|(_, time)| *time <= near);
    let fastest = expected.iter().find(|(_, time)| *time <= best);
    let mut both: Vec<usize> = smallest.into_iter().chain(fastest).map(|(at, _)| *at).collect();
    both.dedup();
    both.into_iter().map(|at| Drafted { at, choice: choices[at], within: spend }).collect()
}

/// Replays drafts, in each round one of each choice, all side by side.
fn tighten(
    recordings: &[Recording],
    told: &mut [Vec<Explained>],
    trials: &mut Vec<Trial>,
    (mut drafted, spend): (Vec<Drafted>, f64),
    bar: &indicatif::ProgressBar,
) -> Done {
    for _ in 0..TRIES {
        let all: Vec<Judged<'_>> = told.iter().map(|rows| judged(rows)).collect();
        let draft = |drafted: &Drafted| {
            let draft = judge::draft(&all, drafted.at, drafted.choice, drafted.within)?;
            let trial = Trial { choice: drafted.choice, remedy: Some(draft.remedy) };
            (!trials.contains(&trial)).then_some((*drafted, draft.is_partial, trial))
        };
        let new: Vec<(Drafted, bool, Trial)> = drafted.iter().filter_map(draft).collect();
        if new.is_empty() {
            return Ok(());
        }
        let first = trials.len();
        trials.extend(new.iter().map(|(_, _, trial)| trial.clone()));
        let rows = explain(recordings, &trials[first..], Percent::default(), bar)?;
        for (told, rows) in told.iter_mut().zip(rows) {
            told.extend(rows);
        }
        let all: Vec<Judged<'_>> = told.iter().map(|rows| judged(rows)).collect();
        let scores = judge::scores(&all);
        let next = |((drafted, is_partial, _), score): (&(Drafted, bool, Trial), &judge::Score)| {
            drafted.next(score.peak <= 1.0 + spend, *is_partial, spend)
        };
        drafted = new.iter().zip(&scores[first..]).filter_map(next).collect();
    }
    Ok(())
}

/// The plan appears when it is whole.
fn write_plan(path: &PathBuf, remedy: &Remedy) -> Done {
    let text = plan::text(remedy)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = parent.unwrap_or(Path::new("."));
    let failed = |e: &std::io::Error| {
        let said = unwritable(path, e).sentence();
        Failure::new(said.replace(" with -o", " with --plan-out"))
    };
    let mut file = tempfile::Builder::new();
    file.prefix(".foliant-plan").permissions(readable());
    let mut file = file.tempfile_in(folder).map_err(|e| failed(&e))?;
    file.write_all(text.as_bytes()).map_err(|e| failed(&e))?;
    file.persist(path).map_err(|e| failed(&e.error))?;
    tell(format_args!("foliant: {} holds the plan", crate::shown::path(path)));
    Ok(())
}

fn readable() -> std::fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    std::fs::Permissions::from_mode(0o644)
}

/// A number of things by their name.
fn counted(n: u64, one: &str, more: &str) -> String {
    format!("{} {}", table::count(n), if n == 1 { one } else { more })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_draft_takes_less_after_too_much_and_more_after_a_part() {
        let check = |within: f64, (is_within, is_partial): (bool, bool), expect: Option<f64>| {
            let drafted = Drafted { at: 3, choice: Choice::BASE, within };
            let next = drafted.next(is_within, is_partial, 0.05);
            assert_eq!(next.map(|next| next.within), expect, "{within} {is_within} {is_partial}");
            assert!(next.is_none_or(|next| next.at == 3));
        };
        check(0.05, (true, false), None);
        check(0.05, (true, true), Some(0.1));
        check(0.025, (true, true), None);
        check(0.05, (false, true), Some(0.025));
        check(0.05, (false, false), Some(0.025));
        check(0.2, (false, true), Some(0.125));
    }
}
