//! Axes: which values are marked, and where a value lies.
//!
//! **Not here**: drawing (`plot`).

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use std::ops::Range;

/// How values become lengths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scale {
    /// As they are, from 0.
    Linear,
    /// By their logarithms.
    Log,
}

impl Scale {
    pub(super) fn place(self, value: f64) -> Option<f64> {
        match self {
            Scale::Linear => value.is_finite().then_some(value),
            Scale::Log => (value > 0.0 && value.is_finite()).then(|| value.log10()),
        }
    }
}

/// The values to mark on an axis, and its ends.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) marks: Vec<f64>,
}

impl Axis {
    pub(super) fn new(scale: Scale, values: impl Iterator<Item = f64>) -> Axis {
        let placed: Vec<f64> = values.filter_map(|value| scale.place(value)).collect();
        let high = placed.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let low = placed.iter().copied().fold(f64::INFINITY, f64::min);
        match scale {
            _ if placed.is_empty() => Axis { low: 0.0, high: 1.0, marks: vec![0.0, 1.0] },
            Scale::Linear => Axis::linear(high.max(0.0)),
            Scale::Log => {
                let (low, high) = (low.floor(), high.ceil().max(low.floor() + 1.0));
                // Four to six marks, at whole powers of ten.
                let step = (((high - low) / 6.0).ceil() as i32).max(1);
                let marks = (low as i32..=high as i32).step_by(step as usize).map(f64::from);
                Axis { low, high, marks: marks.collect() }
            }
        }
    }
    /// From 0 to a round number.
    fn linear(most: f64) -> Axis {
        let most = if most > 0.0 { most } else { 1.0 };
        let unit = 10f64.powf((most / 4.0).log10().floor());
        let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|n| n * unit);
        let step = steps.into_iter().find(|step| most / step <= 5.0).unwrap_or(10.0 * unit);
        let count = (most / step).ceil() as u32;
        let marks = (0..=count).map(|n| f64::from(n) * step).collect();
        Axis { low: 0.0, high: f64::from(count) * step, marks }
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;
    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let share = (value - self.low) / (self.high - self.low);
        from + (f64::from(to - from) * share).round() as i32
    }
    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.marks.clone() }
    }
    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

/// A mark's value in few letters.
pub(super) fn mark(scale: Scale, at: f64) -> String {
    let value = if scale == Scale::Log { 10f64.powf(at) } else { at };
    match value.abs() {
        n if n >= 1e6 => format!("{}M", trimmed(value / 1e6)),
        n if n >= 1e3 => format!("{}k", trimmed(value / 1e3)),
        _ => trimmed(value),
    }
}
fn trimmed(value: f64) -> String {
    let text = format!("{value:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() { "0".to_owned() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_hold_every_value() {
        let check = |scale, values: &[f64], expect: &[&str]| {
            let axis = Axis::new(scale, values.iter().copied());
            let marks: Vec<String> = axis.marks.iter().map(|at| mark(scale, *at)).collect();
            assert_eq!(marks, expect, "{values:?}");
            for value in values.iter().filter_map(|value| scale.place(*value)) {
                assert!((axis.low..=axis.high).contains(&value), "{value} of {values:?}");
            }
        };
        check(Scale::Linear, &[0.3, 0.92], &["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        check(Scale::Linear, &[23.7], &["0", "5", "10", "15", "20", "25"]);
        check(Scale::Linear, &[], &["0", "1"]);
        check(Scale::Linear, &[0.0], &["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        check(Scale::Log, &[2.0, 700.0], &["1", "10", "100", "1k"]);
        check(Scale::Log, &[10.0], &["10", "100"]);
        check(Scale::Log, &[0.0, f64::NAN, 0.002], &["0.001", "0.01"]);
        check(Scale::Log, &[0.001, 1e9], &["0.001", "0.1", "10", "1k", "100k", "10M", "1000M"]);
    }

    #[test]
    fn a_value_lies_where_its_share_is() {
        let axis = Axis { low: 1.0, high: 3.0, marks: Vec::new() };
        assert_eq!((axis.map(&1.0, (10, 50)), axis.map(&2.0, (10, 50))), (10, 30));
        assert_eq!(axis.map(&2.0, (50, 10)), 30);
    }
}
