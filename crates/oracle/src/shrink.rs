//! A sequence that differs, made short.

use crate::run::Difference;

/// Runs of the sequence that are spent on it, at most.
const RUNS_MAX: usize = 600;

/// Leaves calls out for as long as both sides still differ. `run` says where, if they do.
pub(crate) fn shrink<C: Clone>(
    calls: &[C],
    difference: Difference,
    mut run: impl FnMut(&[C]) -> Option<Difference>,
) -> (Vec<C>, Difference) {
    let mut best = (calls[..calls.len().min(difference.at + 1)].to_vec(), difference);
    let mut runs = 0;
    let mut chunk = best.0.len().div_ceil(2);
    while chunk > 0 {
        let mut at = 0;
        let mut has_shrunk = false;
        while at < best.0.len() && runs < RUNS_MAX {
            let mut fewer = best.0.clone();
            fewer.drain(at..(at + chunk).min(best.0.len()));
            runs += 1;
            match run(&fewer) {
                Some(difference) => {
                    fewer.truncate(difference.at + 1);
                    best = (fewer, difference);
                    has_shrunk = true;
                }
                _ => at += chunk,
            }
        }
        if runs >= RUNS_MAX {
            break;
        }
        if !has_shrunk || chunk > 1 {
            chunk /= 2;
        }
    }
    best
}
