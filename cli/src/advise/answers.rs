//! What is said of an advice: the six questions that a size must answer, and the recommendation.
//!
//! The questions are those that the reviewer of a size in Linux asked of any that is proposed: on
//! what evidence, for which workloads, how much gain, better or worse with other values, how much
//! fragmentation, by which cost function.
//!
//! **Invariants**
//! - Q1. Every question has an answer in figures, also where it is that nothing is known.

use super::facts::{Facts, Figures};
use super::{Advised, FRAGMENTED, MODEL_PERCENT, counted, known};
use crate::calibrate::model::caption;
use crate::shown::shown;
use crate::table::{count, mib, shorten};
use foliant_trace::Wish;
use foliant_trace::replay::Choice;
use foliant_units::Order;
use std::collections::BTreeSet;

/// Mappings that a sentence names.
const NAMED: usize = 3;

/// By how many percent a time to another is less, as the model has it, and at least and at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Gain {
    pub(super) percent: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Gain {
    /// Of this ratio to a time of which such a part is not the same before and after. What is the
    /// same is as wrong in both; the rest is right within [`MODEL_PERCENT`] in each.
    pub(super) fn of(ratio: f64, part: f64) -> Gain {
        let (off, gain) = (MODEL_PERCENT / 100.0, 1.0 - ratio);
        let wrong = |by: f64| (part - (part - gain) * by) * 100.0;
        let (least, most) = (wrong((1.0 + off) / (1.0 - off)), wrong((1.0 - off) / (1.0 + off)));
        Gain { percent: gain * 100.0, least, most }
    }

    /// That of what is recommended.
    pub(super) fn advised(advised: &Advised, facts: &Facts) -> Gain {
        Gain::of(advised.verdict.score.time, facts.changed)
    }
}

/// A size as a person says it: what the largest folio is.
pub(super) fn short(choice: Choice) -> String {
    match choice {
        Choice::UpTo(order) => order.bytes().to_string(),
        other => other.to_string(),
    }
}

/// What was recorded, each command once.
fn commands(advised: &Advised) -> Vec<String> {
    let all = advised.recordings.iter().map(|recording| recording.about.header.command.join(" "));
    let all: BTreeSet<String> = all.map(|command| shorten(&shown(&command), 50)).collect();
    all.into_iter().collect()
}

/// How sure it is, in words.
fn sureness(advised: &Advised) -> String {
    let score = advised.verdict.score;
    match advised.recordings.len() {
        1 => "one recording, so how much runs differ is not known".to_owned(),
        n => format!(
            "{n} recordings, in which it is {:.3} to {:.3} times that of 4k",
            score.least, score.most
        ),
    }
}

/// The questions with their answers.
pub(super) fn six(advised: &Advised, facts: &Facts) -> [(&'static str, String); 6] {
    [
        ("Evidence?", evidence(advised)),
        ("Workloads?", workloads(advised)),
        ("Gain?", gain(advised, facts)),
        ("Other sizes?", others(advised)),
        ("Fragmented?", fragmented(advised, facts)),
        ("Cost function?", cost(advised)),
    ]
}

fn evidence(advised: &Advised) -> String {
    let faults: u64 = advised.recordings.iter().map(|r| r.plan.recorded_anonymous_faults).sum();
    let broken = advised.recordings.iter().filter(|r| !r.about.trailer.is_complete()).count();
    let replayed = advised.trials.len() * advised.recordings.len() + advised.recordings.len();
    let whole = match broken {
        0 => "nothing lost".to_owned(),
        n => format!("{} not complete", counted(n as u64, "of them is", "of them are")),
    };
    format!(
        "{} of {}, {whole}; {replayed} replays",
        counted(advised.recordings.len() as u64, "recording", "recordings"),
        counted(faults, "anonymous fault", "anonymous faults"),
    )
}

fn workloads(advised: &Advised) -> String {
    let commands = commands(advised);
    let more = commands.len().saturating_sub(NAMED);
    let mut text = commands.into_iter().take(NAMED).collect::<Vec<_>>().join("; ");
    if more > 0 {
        text += &format!("; and {more} more");
    }
    text + "; no other was looked at"
}

fn gain(advised: &Advised, facts: &Facts) -> String {
    let Facts { before, after, .. } = facts;
    let gain = Gain::advised(advised, facts);
    format!(
        "faults {} to {}, kernel time {:.1} to {:.1} ms: {:.0} % ({:.0} to {:.0} % with the model's {MODEL_PERCENT:.0} % either way)",
        count(before.faults),
        count(after.faults),
        before.kernel_ns as f64 / 1e6,
        after.kernel_ns as f64 / 1e6,
        gain.percent,
        gain.least,
        gain.most,
    )
}

/// The sizes beside the recommended one, for all memory.
fn others(advised: &Advised) -> String {
    let choice = advised.trial().choice;
    let at = advised.trials[..advised.choices].iter().position(|trial| trial.choice == choice);
    let at = at.unwrap_or(0);
    let beside = [at.checked_sub(1), Some(at), Some(at + 1)];
    let of = |at: usize| {
        let score = advised.scores[at];
        let choice = short(advised.trials[at].choice);
        format!("{choice} x{:.3} at memory x{:.3}", score.time, score.peak)
    };
    let all = beside.into_iter().flatten().filter(|at| *at < advised.choices).map(of);
    format!("for all memory: {}", all.collect::<Vec<_>>().join(", "))
}

fn fragmented(advised: &Advised, facts: &Facts) -> String {
    if advised.verdict.at == 0 {
        return "4k pages need no blocks: fragmentation changes nothing".to_owned();
    }
    format!(
        "with {FRAGMENTED} % of blocks fragmented it is x{:.3} instead of x{:.3}, smaller folios are taken {} times",
        facts.scarce,
        advised.verdict.score.time,
        count(facts.fallbacks)
    )
}

fn cost(advised: &Advised) -> String {
    format!(
        "model {}: faults, clearing, tables, flushes, calls; first touches fit within 8 %, unmapping within 15; TLB misses have no price",
        caption(&advised.model)
    )
}

/// Mappings with this wish, as a sentence names them.
fn named(facts: &Facts, wish: Wish) -> Option<String> {
    let all = facts.fates.iter().filter(|fate| fate.wish == Some(wish));
    let all: Vec<String> = all.map(|fate| shown(&fate.mapping.to_string())).collect();
    let more = all.len().saturating_sub(NAMED);
    let mut text = all.iter().take(NAMED).cloned().collect::<Vec<_>>().join("; ");
    if more > 0 {
        text += &format!("; and {}", counted(more as u64, "other", "others"));
    }
    Some(text).filter(|_| !all.is_empty())
}

/// The recommendation.
pub(super) fn sentences(advised: &Advised, facts: &Facts) -> Vec<String> {
    let mut said = match (advised.verdict.at, &advised.trial().remedy) {
        (0, _) => vec![leave(advised)],
        (_, None) => vec![plainly(advised), effect(advised, facts)],
        (_, Some(_)) => vec![wishing(advised, facts), effect(advised, facts)],
    };
    said.extend(caution(advised));
    let mappings = advised.recordings.iter().flat_map(|recording| recording.plan.mappings());
    said.extend(known::settings(mappings).into_iter().map(str::to_owned));
    said
}

/// What real Linux was seen to do otherwise than a replay says.
fn caution(advised: &Advised) -> Option<String> {
    let sizes = advised.remedy().sizes;
    let has_2m = sizes.iter().any(|(order, _)| *order == Order::SIZE_2M);
    let said = "Measure it before you keep it: on Linux 6.18 all sizes up to 2m together took two of four programs more system CPU time than 4k, which no replay says; --policy of `foliant check` has each size.";
    (has_2m && sizes.len() > 1).then(|| said.to_owned())
}

fn leave(advised: &Advised) -> String {
    let spend = advised.spend * 100.0;
    let best = advised.scores.iter().map(|score| score.time).fold(f64::MAX, f64::min);
    if best < 1.0 - super::judge::KNEE_PERCENT / 100.0 {
        return format!(
            "Leave it at 4 KiB pages: what saves kernel time takes more than {spend:.0} % more memory; --spend allows more."
        );
    }
    "Leave it at 4 KiB pages: no size saves as much as 3 % of the kernel time.".to_owned()
}

fn sizes(advised: &Advised) -> String {
    let sizes = advised.remedy().sizes;
    let sizes: Vec<String> = sizes.iter().map(|(order, _)| order.bytes().to_string()).collect();
    sizes.join(", ")
}

fn plainly(advised: &Advised) -> String {
    format!(
        "Set the switches of {} to always and all others to never: advice for single mappings reaches too little of this program. It is for all programs.",
        sizes(advised)
    )
}

fn wishing(advised: &Advised, facts: &Facts) -> String {
    let asks = named(facts, Wish::HugePage).unwrap_or_default();
    let mut text = format!(
        "Set the switches of {} to madvise and all others to never, and advise MADV_HUGEPAGE for: {asks}.",
        sizes(advised)
    );
    if let Some(spared) = named(facts, Wish::NoHugePage) {
        text += &format!(" MADV_NOHUGEPAGE for: {spared}.");
    }
    text + " Leave all else."
}

fn effect(advised: &Advised, facts: &Facts) -> String {
    let Facts { before, after, .. } = facts;
    let gain = Gain::advised(advised, facts);
    let fewer = 100.0 - percent(after.faults, before.faults);
    format!(
        "That saves {fewer:.0} % of the faults and {:.0} % of the kernel time ({:.0} to {:.0}), for {}. It rests on {}.",
        gain.percent,
        gain.least,
        gain.most,
        price(before, after),
        sureness(advised),
    )
}

fn price(before: &Figures, after: &Figures) -> String {
    let more = percent(after.peak_bytes, before.peak_bytes) - 100.0;
    format!(
        "{more:.1} % more peak memory ({} to {} MiB) and {} MiB cleared and never touched",
        mib(before.peak_bytes),
        mib(after.peak_bytes),
        mib(after.untouched_bytes),
    )
}

fn percent(this: u64, of: u64) -> f64 {
    if of == 0 { 100.0 } else { this as f64 / of as f64 * 100.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_has_the_models_range() {
        let check = |ratio, part, expect| {
            let Gain { percent, least, most } = Gain::of(ratio, part);
            assert_eq!([percent, least, most].map(f64::round), expect, "{ratio}, {part}");
        };
        check(0.4, 1.0, [60.0, 46.0, 70.0]);
        check(0.79, 0.6, [21.0, 7.0, 31.0]); // four tenths are the same
        check(1.0, 0.0, [0.0, 0.0, 0.0]);
    }
}
