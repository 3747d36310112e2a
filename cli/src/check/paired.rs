//! What pairs of runs say: whether one way to run a program takes less than another.
//!
//! Times of two runs differ by more than what is looked for, because the machine is another one a
//! minute later. So runs are made in rounds, one of each way in a random order, and only runs of
//! one round are compared: by the ratio of the two.
//!
//! ```text
//!   ratios in order   r1 │ r2  r3  r4  r5  r6  r7  r8  r9 │ r10      the interval leaves out as many at each
//!                        └────────── interval ────────────┘         end as chance alone seldom leaves out
//! ```
//!
//! Were neither way better, each ratio would be below 1 as often as above it, as a coin falls. The
//! interval is that of this sign test: it takes nothing for granted of how times are spread.
//!
//! **Invariants**
//! - Q1. Of all verdicts of a check together the chance that one of them is better or worse where
//!   there is no difference is at most [`MISTAKEN`].
//! - Q2. A difference below [`LEAST`] is none, however sure it is.

use schemars::JsonSchema;
use serde::Serialize;

/// The chance that any verdict of a check is mistaken.
pub(super) const MISTAKEN: f64 = 0.05;
/// The least difference that is one.
pub(super) const LEAST: f64 = 0.005;

/// Whether one way takes less than the other.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Standing {
    /// It takes less.
    Better,
    /// It takes more.
    Worse,
    /// The runs do not tell them apart.
    NotApart,
    /// There are too few rounds to tell anything.
    TooFew,
}

impl Standing {
    /// Its words in tables.
    pub(super) fn words(self) -> &'static str {
        match self {
            Standing::Better => "better",
            Standing::Worse => "worse",
            Standing::NotApart => "not told apart",
            Standing::TooFew => "too few runs",
        }
    }
}

/// Ratios of one way to the other.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Ratio {
    /// Of an even number the mean of the middle two.
    pub(super) median: f64,
    /// `None` where there are too few.
    pub(super) interval: Option<(f64, f64)>,
}

impl Ratio {
    /// Of pairs; this is one of so many verdicts (Q1). `None` of no pairs.
    pub(super) fn of(pairs: impl Iterator<Item = (u64, u64)>, verdicts: usize) -> Option<Ratio> {
        let mut ratios: Vec<f64> = pairs.map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        let last = ratios.len().checked_sub(1)?;
        let median = (ratios[last / 2] + ratios[last - last / 2]) / 2.0;
        let out = left_out(ratios.len(), MISTAKEN / verdicts.max(1) as f64);
        let interval = out.map(|out| (ratios[out], ratios[last - out]));
        Some(Ratio { median, interval })
    }

    pub(super) fn standing(self) -> Standing {
        match self.interval {
            None => Standing::TooFew,
            Some((_, high)) if high < 1.0 - LEAST => Standing::Better,
            Some((low, _)) if low > 1.0 + LEAST => Standing::Worse,
            Some(_) => Standing::NotApart,
        }
    }
}

fn ratio((one, other): (u64, u64)) -> f64 {
    if one == other { 1.0 } else { one as f64 / other as f64 }
}

/// How many of so many ratios lie beyond an interval at each end, which misses the median with at
/// most this chance; `None` where even the whole range misses it more often.
fn left_out(count: usize, chance: f64) -> Option<usize> {
    // The chance that of `count` coins at most `k` fall on one side, and the same of the other.
    let (mut one, mut both) = (2.0 * 0.5f64.powi(count as i32), 0.0);
    let mut out = None;
    for k in 0..count {
        both += one;
        if both > chance {
            break;
        }
        out = Some(k);
        one *= (count - k) as f64 / (k + 1) as f64;
    }
    out
}

/// So many rounds and no fewer can tell one of so many verdicts.
pub(super) fn rounds_least(verdicts: usize) -> usize {
    let chance = MISTAKEN / verdicts.max(1) as f64;
    (1..).find(|count| left_out(*count, chance).is_some()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_left_out_as_a_table_of_the_sign_test_says() {
        // Of both sides together, in tables of the sign test.
        for (count, chance, expect) in [
            (5, 0.05, None), // 2/32
            (6, 0.05, Some(0)),
            (6, 2.0 / 64.0, Some(0)), // just that often
            (8, 0.05, Some(0)),
            (9, 0.05, Some(1)),
            (10, 0.05, Some(1)),
            (20, 0.05, Some(5)),
            (20, 0.01, Some(3)),
            (50, 0.05, Some(17)),
            (0, 0.05, None),
        ] {
            assert_eq!(left_out(count, chance), expect, "{count} {chance}");
        }
        assert_eq!([1, 15].map(rounds_least), [6, 10]);
    }

    #[test]
    fn verdicts_are_what_the_interval_carries() {
        let of = |ratios: &[u64], verdicts| {
            Ratio::of(ratios.iter().map(|n| (*n, 1000)), verdicts).unwrap()
        };
        let better = [900, 910, 920, 930, 940, 950];
        assert_eq!(of(&better, 1).standing(), Standing::Better);
        assert_eq!(of(&better, 1).interval, Some((0.9, 0.95)));
        assert_eq!(of(&better, 1).median, 0.925);
        assert_eq!(of(&better, 2).standing(), Standing::TooFew, "of two verdicts each is surer");
        assert_eq!(of(&better[1..], 1).standing(), Standing::TooFew);
        let worse = better.map(|n| 2000 - n);
        assert_eq!(of(&worse, 1).standing(), Standing::Worse);
        let mut once = better;
        once[3] = 1001;
        assert_eq!(of(&once, 1).standing(), Standing::NotApart);
        assert_eq!(of(&[996; 9], 1).standing(), Standing::NotApart, "sure, and next to nothing");
        assert_eq!(of(&[1004; 9], 1).standing(), Standing::NotApart);
        // One run that something else disturbed changes nothing of nine.
        assert_eq!(
            of(&[900, 900, 900, 900, 900, 900, 900, 900, 5000], 1).standing(),
            Standing::Better
        );
        let ends = of(&[100, 900, 910, 920, 930, 940, 950, 960, 5000], 1).interval;
        assert_eq!(ends, Some((0.9, 0.96)), "nor at the other end");
        assert_eq!(Ratio::of(std::iter::empty(), 1), None);
        let nothing = Ratio::of([(0, 0), (0, 0), (5, 0)].into_iter(), 1).unwrap();
        assert_eq!(nothing.median, 1.0);
    }

    /// Coins that are fair are called unfair at most as often as is said.
    #[test]
    fn what_does_not_differ_is_seldom_said_to() {
        let (mut state, mut mistaken) = (1u64, 0);
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            1000 + (state >> 40) % 500
        };
        const TRIES: u32 = 4000;
        for _ in 0..TRIES {
            let pairs: Vec<_> = (0..15).map(|_| (random(), random())).collect();
            let standing = Ratio::of(pairs.into_iter(), 1).unwrap().standing();
            mistaken += u32::from(standing != Standing::NotApart);
        }
        assert!(mistaken > 0 && f64::from(mistaken) < f64::from(TRIES) * MISTAKEN, "{mistaken}");
    }
}
