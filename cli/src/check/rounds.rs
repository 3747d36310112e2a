//! What runs with several settings came to, and what follows for the first of them.
//!
//! **Not here**: making the runs (`planned`), the rule of the verdicts (`paired`), showing them
//! (`beside`).

use super::paired::{Ratio, Standing};
use super::switches::Fallbacks;
use super::verdict::{Compared, Range};
use super::{FAULTS_GOAL, PEAK_GOAL};
use foliant_trace::About;
use foliant_trace::record::{Applied, Measured};
use foliant_trace::replay::Row;
use foliant_units::FRAME_BYTES;
use std::collections::BTreeMap;

/// A figure of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Figure {
    Faults,
    Peak,
    User,
    System,
    Elapsed,
}

impl Figure {
    pub(super) const ALL: [Figure; 5] =
        [Figure::Faults, Figure::Peak, Figure::User, Figure::System, Figure::Elapsed];

    /// Of a run; `None` where it could not be measured. Who injects works for the program.
    fn of(self, run: &Measured) -> Option<u64> {
        match self {
            Figure::Faults => Some(run.faults),
            Figure::Peak => run.peak.map(|peak| peak.get()),
            Figure::User => Some(run.user.0 + run.applying[0].0),
            Figure::System => Some(run.system.0 + run.applying[1].0),
            Figure::Elapsed => Some(run.elapsed.0),
        }
    }
}

/// What the runs with one setting came to.
pub(super) struct Shown {
    pub(super) name: &'static str,
    /// `None` where a replay cannot tell, or nothing was measured.
    pub(super) faults: Option<Compared>,
    /// As above, in bytes.
    pub(super) peak: Option<Compared>,
    /// Of each figure all runs, in the order of rounds.
    runs: Vec<Measured>,
    /// See `Checked`.
    pub(super) fallbacks: BTreeMap<String, u64>,
}

impl Shown {
    pub(super) fn values(&self, figure: Figure) -> Vec<u64> {
        self.runs.iter().filter_map(|run| figure.of(run)).collect()
    }
    /// What was injected into the last run.
    pub(super) fn applied(&self) -> Option<&Applied> {
        self.runs.last().map(|run| &run.applied)
    }
    /// CPU time of who injected, both kinds, the median of runs.
    pub(super) fn applying(&self) -> u64 {
        let sums = self.runs.iter().map(|run| run.applying.iter().map(|n| n.0).sum());
        Range::of(sums).map_or(0, |range| range.median)
    }
}

/// The plan's runs beside those with another setting.
pub(super) struct Against {
    pub(super) figure: Figure,
    pub(super) other: &'static str,
    pub(super) ratio: Ratio,
}

impl Against {
    pub(super) fn standing(&self) -> Standing {
        self.ratio.standing()
    }
}

/// What is shown.
pub(super) struct Planned {
    pub(super) about: About,
    pub(super) runs: u32,
    /// The plan's first.
    pub(super) settings: Vec<Shown>,
    pub(super) against: Vec<Against>,
}

/// Puts predictions and runs with one setting together.
pub(super) fn shown<'a>(
    name: &'static str,
    predicted: impl Iterator<Item = (u64, &'a Row)> + Clone,
    measured: Vec<(Measured, Fallbacks)>,
) -> Shown {
    let worst = measured.iter().map(|(_, fallbacks)| fallbacks).max_by_key(|f| f.pages());
    let excused = worst.map_or(0, Fallbacks::pages);
    let fallbacks = worst.map(Fallbacks::by_counter).unwrap_or_default();
    let runs: Vec<Measured> = measured.into_iter().map(|(run, _)| run).collect();
    let of = |figure: Figure| Range::of(runs.iter().filter_map(|run| figure.of(run)));
    let beside = |predicted: Option<Range>, measured, goal, excused| {
        predicted.map(|predicted| Compared { predicted, measured, goal, excused })
    };
    let faults = Range::of(predicted.clone().map(|(other, row)| other + row.anonymous_faults));
    let faults = beside(faults, of(Figure::Faults), FAULTS_GOAL, excused);
    let peak = Range::of(predicted.map(|(_, row)| row.peak_mapped.get()));
    let peak = beside(peak, of(Figure::Peak), PEAK_GOAL, excused.saturating_mul(FRAME_BYTES));
    Shown { name, faults, peak, runs, fallbacks }
}

/// The first setting beside each other one, figure by figure.
pub(super) fn against(settings: &[Shown]) -> Vec<Against> {
    let Some((plan, others)) = settings.split_first() else { return Vec::new() };
    let verdicts = others.len() * Figure::ALL.len();
    let mut all = Vec::new();
    for figure in Figure::ALL {
        for other in others {
            let pairs = plan.runs.iter().zip(&other.runs);
            let pairs = pairs.filter_map(|(a, b)| Some((figure.of(a)?, figure.of(b)?)));
            let ratio = Ratio::of(pairs, verdicts);
            all.extend(ratio.map(|ratio| Against { figure, other: other.name, ratio }));
        }
    }
    all
}

/// Figures of runs, for tests.
#[cfg(test)]
pub(super) fn example() -> Planned {
    use foliant_trace::{Ending, Target};
    use foliant_units::{Bytes, Nanos};
    let run = |round: u64, share: u64| Measured {
        faults: 1000 * share,
        peak: Some(Bytes::new(share << 20)),
        user: Nanos(50_000_000 + round),
        system: Nanos(share * 10_000_000 + round),
        elapsed: Nanos(90_000_000 * (1 + round % 2)),
        applied: Applied { unmet: vec![Target::Heap], ..Applied::default() },
        applying: [Nanos(1_000), Nanos(2_000)],
        ending: Ending::Exited(0),
    };
    let range = Range { lowest: 1000, median: 1000, highest: 1000 };
    let compared = Compared { predicted: range, measured: Some(range), goal: 0.02, excused: 0 };
    let shown = |(name, share)| Shown {
        name,
        faults: Some(compared).filter(|_| share > 1),
        peak: Some(compared).filter(|_| share > 1),
        runs: (0..12).map(|round| run(round, share)).collect(),
        fallbacks: BTreeMap::from([("anon_fault_fallback".to_owned(), 5)]),
    };
    let settings: Vec<Shown> =
        [("plan", 2), ("now", 4), ("4k", 8), ("always", 1)].map(shown).into_iter().collect();
    let (about, _) = crate::replay::shipped().unwrap();
    let against = against(&settings);
    Planned { about, runs: 12, settings, against }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_told_apart_by_pairs() {
        let planned = example();
        let of = |figure: Figure, other: &str| {
            let found = planned.against.iter().find(|a| a.figure == figure && a.other == other);
            found.unwrap().standing()
        };
        assert_eq!(planned.against.len(), 15);
        for figure in [Figure::Faults, Figure::Peak, Figure::System] {
            assert_eq!(of(figure, "now"), Standing::Better, "{figure:?}");
            assert_eq!(of(figure, "always"), Standing::Worse, "{figure:?}");
        }
        assert_eq!(of(Figure::User, "4k"), Standing::NotApart);
        assert_eq!(of(Figure::Elapsed, "4k"), Standing::NotApart, "rounds differ, pairs do not");
    }
}
