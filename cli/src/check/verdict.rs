//! What several runs came to, and whether a prediction holds.
//!
//! ```text
//!   predicted  ├──┼───┤                    one value for each recording
//!   measured              ├─┼┤             one for each run
//!              └spread┘ └gap┘              both as parts of the measured median
//! ```
//!
//! **Invariants**
//! - V1. A prediction that is further off than runs differ among themselves is never called noise,
//!   and one that the goal does not cover is never called within.

use schemars::JsonSchema;
use serde::Serialize;

/// Values of the same thing in several runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Range {
    pub(super) lowest: u64,
    /// Of an even number of runs the lower one of the middle.
    pub(super) median: u64,
    pub(super) highest: u64,
}

impl Range {
    /// `None` of no values.
    pub(super) fn of(values: impl IntoIterator<Item = u64>) -> Option<Range> {
        let mut values: Vec<u64> = values.into_iter().collect();
        values.sort_unstable();
        let median = *values.get(values.len().checked_sub(1)? / 2)?;
        Some(Range { lowest: *values.first()?, median, highest: *values.last()? })
    }

    fn width(self) -> u64 {
        self.highest - self.lowest
    }
}

/// Something that was predicted and measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compared {
    pub(super) predicted: Range,
    /// `None` where it could not be measured.
    pub(super) measured: Option<Range>,
    /// How far off it may be, of what was measured.
    pub(super) goal: f64,
    /// What folios that the machine did not have can have changed at most.
    pub(super) excused: u64,
}

/// What came of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, JsonSchema, Debug)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// Off by no more than the goal.
    Within,
    /// Off by more.
    Off,
    /// The runs differ among themselves by more than the goal, and by more than the prediction is
    /// off: they do not say.
    Noise,
    /// Off by more, and the machine had no folio of the size as often as would explain it.
    Fallback,
    /// Nothing was measured.
    Unmeasured,
}

impl Compared {
    /// How far the median of predictions lies from that of measurements, of the latter.
    pub(super) fn off(&self) -> Option<f64> {
        let measured = self.measured?;
        let (predicted, median) = (self.predicted.median as f64, measured.median as f64);
        Some((predicted - median) / median.max(1.0))
    }

    pub(super) fn verdict(&self) -> Verdict {
        let (Some(measured), Some(off)) = (self.measured, self.off()) else {
            return Verdict::Unmeasured;
        };
        let part = |n: u64| n as f64 / measured.median.max(1) as f64;
        let spread = part(self.predicted.width().max(measured.width()));
        let gap = part(
            (self.predicted.lowest.saturating_sub(measured.highest))
                .max(measured.lowest.saturating_sub(self.predicted.highest)),
        );
        if spread > self.goal && gap <= spread {
            return Verdict::Noise;
        }
        if off.abs() <= self.goal {
            return Verdict::Within;
        }
        match self.predicted.median.abs_diff(measured.median) <= self.excused {
            true => Verdict::Fallback,
            false => Verdict::Off,
        }
    }
}

impl Verdict {
    /// Its word in tables, as in documents.
    pub(super) fn word(self) -> &'static str {
        match self {
            Verdict::Within => "within",
            Verdict::Off => "off",
            Verdict::Noise => "noise",
            Verdict::Fallback => "fallback",
            Verdict::Unmeasured => "unmeasured",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(predicted: &[u64], measured: &[u64], excused: u64) -> Verdict {
        let predicted = Range::of(predicted.iter().copied()).unwrap();
        let measured = Range::of(measured.iter().copied());
        Compared { predicted, measured, goal: 0.02, excused }.verdict()
    }

    #[test]
    fn runs_have_a_range() {
        assert_eq!(Range::of([]), None);
        assert_eq!(Range::of([5]), Some(Range { lowest: 5, median: 5, highest: 5 }));
        assert_eq!(Range::of([9, 1, 4, 2]), Some(Range { lowest: 1, median: 2, highest: 9 }));
    }

    #[test]
    fn a_prediction_holds_or_is_off_or_the_runs_do_not_say() {
        use Verdict::*;
        assert_eq!(verdict(&[1000], &[1000, 1020, 1010], 0), Within);
        assert_eq!(verdict(&[1020], &[1000], 0), Within);
        assert_eq!(verdict(&[980], &[1000], 0), Within);
        assert_eq!(verdict(&[1021], &[1000], 0), Off);
        assert_eq!(verdict(&[0], &[0], 0), Within);
        assert_eq!(verdict(&[1], &[0], 0), Off);
        assert_eq!(verdict(&[1000], &[], 0), Unmeasured);
        // Runs that differ do not say, whichever they are, even where medians agree.
        assert_eq!(verdict(&[1000], &[980, 1000, 1010], 0), Noise);
        assert_eq!(verdict(&[980, 1000, 1010], &[1000], 0), Noise);
        assert_eq!(verdict(&[1000], &[1030, 1040, 1060], 0), Noise);
        // But a little noise is no excuse for much.
        assert_eq!(verdict(&[200], &[980, 1000, 1010], 0), Off);
        assert_eq!(verdict(&[1800], &[980, 1000, 1010], 0), Off);
        // Nor is a folio that was not to be had, unless it may be the reason.
        assert_eq!(verdict(&[900], &[1000], 99), Off);
        assert_eq!(verdict(&[900], &[1000], 100), Fallback);
        assert_eq!(verdict(&[1000], &[1000], 100), Within);
    }
}
