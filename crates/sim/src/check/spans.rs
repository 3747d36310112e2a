//! A value for every frame, kept as runs.
//!
//! **Invariants**: runs do not overlap, are never empty, never hold the value of the rest, and
//! neighbours that touch hold different values.

use std::collections::BTreeMap;

/// A value for every number; most hold `rest`.
#[derive(Clone, Debug)]
pub(super) struct Spans<V> {
    runs: BTreeMap<u64, (u64, V)>,
    rest: V,
}

/// A stretch of equal value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece<V> {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) value: V,
}

impl<V: Copy + PartialEq> Spans<V> {
    pub(super) fn new(rest: V) -> Spans<V> {
        Spans { runs: BTreeMap::new(), rest }
    }

    /// The value at `at`.
    pub(super) fn get(&self, at: u64) -> V {
        match self.runs.range(..=at).next_back() {
            Some((_, (end, value))) if at < *end => *value,
            _ => self.rest,
        }
    }

    /// What `start..end` holds, gaps included.
    pub(super) fn pieces(&self, start: u64, end: u64) -> Vec<Piece<V>> {
        let mut out = Vec::new();
        if start >= end {
            return out;
        }
        let mut at = start;
        let first = self.runs.range(..=start).next_back().filter(|(_, run)| run.0 > start);
        let from = first.map_or(start, |(start, _)| *start);
        for (run_start, (run_end, value)) in self.runs.range(from..end) {
            if *run_start > at {
                out.push(Piece { start: at, end: *run_start, value: self.rest });
            }
            let upto = end.min(*run_end);
            out.push(Piece { start: at.max(*run_start), end: upto, value: *value });
            at = upto;
        }
        if at < end {
            out.push(Piece { start: at, end, value: self.rest });
        }
        out
    }

    /// Gives `start..end` a value.
    pub(super) fn set(&mut self, start: u64, end: u64, value: V) {
        if start >= end {
            return;
        }
        self.cut(start);
        self.cut(end);
        let inside: Vec<u64> = self.runs.range(start..end).map(|(at, _)| *at).collect();
        for at in inside {
            self.runs.remove(&at);
        }
        if value == self.rest {
            return;
        }
        let (mut start, mut end) = (start, end);
        if let Some((at, (upto, v))) = self.runs.range(..start).next_back()
            && *upto == start
            && *v == value
        {
            start = *at;
        }
        if let Some((upto, v)) = self.runs.get(&end).copied()
            && v == value
        {
            self.runs.remove(&end);
            end = upto;
        }
        self.runs.insert(start, (end, value));
    }

    /// Makes a run end at `at`.
    fn cut(&mut self, at: u64) {
        if let Some((_, run)) = self.runs.range_mut(..at).next_back()
            && run.0 > at
        {
            let (end, value) = *run;
            run.0 = at;
            self.runs.insert(at, (end, value));
        }
    }

    /// How many numbers hold `value`, which is not the rest's.
    pub(super) fn count(&self, value: V) -> u64 {
        let held = self.runs.iter().filter(|(_, run)| run.1 == value);
        held.map(|(start, run)| run.0 - start).sum()
    }

    /// The numbers that hold `value`, which is not the rest's, lowest first.
    pub(super) fn each(&self, value: V) -> impl Iterator<Item = u64> {
        self.runs
            .iter()
            .filter(move |(_, run)| run.1 == value)
            .flat_map(|(start, run)| *start..run.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn runs_agree_with_an_array() {
        let mut rng = Rng::new(1, 0);
        let (mut spans, mut naive) = (Spans::new(0u8), [0u8; 64]);
        for _ in 0..5000 {
            let (a, b) = (rng.below(65), rng.below(65));
            let value = rng.below(4) as u8;
            let (start, end) = (a.min(b), a.max(b));
            spans.set(start, end, value);
            naive[start as usize..end as usize].fill(value);
            assert!((0..64).all(|at| spans.get(at) == naive[at as usize]));
            let (a, b) = (rng.below(65), rng.below(65));
            let (start, end) = (a.min(b), a.max(b));
            let mut at = start;
            for piece in spans.pieces(start, end) {
                assert_eq!(piece.start, at);
                assert!(piece.end > at);
                assert!((at..piece.end).all(|at| naive[at as usize] == piece.value));
                at = piece.end;
            }
            assert_eq!(at, end);
            let threes = naive.iter().filter(|v| **v == 3).count() as u64;
            assert_eq!(spans.count(3), threes);
            assert!(spans.each(3).eq((0..64).filter(|at| naive[*at as usize] == 3)));
        }
    }
}
