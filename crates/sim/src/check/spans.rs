//! A value for every frame, kept as runs.
//!
//! **Invariants**: runs do not overlap, are never empty, never hold the value of the rest, and
//! neighbours that touch hold different values.

use core::cell::Cell;
use std::collections::BTreeMap;

/// How many runs and gaps are kept at hand.
const SEEN: usize = 8;

/// A value for every number; most hold `rest`.
#[derive(Debug)]
pub(super) struct Spans<V: Copy> {
    runs: BTreeMap<u64, (u64, V)>,
    rest: V,
    /// The runs and gaps that were looked at last, by the last digits of the number that was looked
    /// at: most looks find theirs here and need no search.
    seen: [Cell<Piece<V>>; SEEN],
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
        let nowhere = Piece { start: 0, end: 0, value: rest };
        Spans { runs: BTreeMap::new(), rest, seen: [nowhere; SEEN].map(Cell::new) }
    }

    /// The run or gap around `at`.
    #[inline]
    fn around(&self, at: u64) -> Piece<V> {
        let seen = &self.seen[at as usize % SEEN];
        if !(seen.get().start..seen.get().end).contains(&at) {
            seen.set(self.search(at));
        }
        seen.get()
    }

    fn search(&self, at: u64) -> Piece<V> {
        let before = self.runs.range(..=at).next_back();
        match before {
            Some((start, (end, value))) if at < *end => {
                Piece { start: *start, end: *end, value: *value }
            }
            _ => Piece {
                start: before.map_or(0, |(_, run)| run.0),
                end: self.runs.range(at..).next().map_or(u64::MAX, |(start, _)| *start),
                value: self.rest,
            },
        }
    }

    /// The value at `at`.
    #[inline]
    pub(super) fn get(&self, at: u64) -> V {
        self.around(at).value
    }

    /// The piece that `start..end`, which is not empty, begins with.
    #[inline]
    pub(super) fn first(&self, start: u64, end: u64) -> Piece<V> {
        let around = self.around(start);
        Piece { start, end: end.min(around.end), value: around.value }
    }

    /// The pieces of `start..end`, gaps included.
    #[inline]
    pub(super) fn pieces(&self, start: u64, end: u64) -> impl Iterator<Item = Piece<V>> {
        let mut at = start;
        core::iter::from_fn(move || {
            let piece = (at < end).then(|| self.first(at, end))?;
            at = piece.end;
            Some(piece)
        })
    }

    /// Gives `start..end` a value.
    pub(super) fn set(&mut self, start: u64, end: u64, value: V) {
        if start >= end {
            return;
        }
        let old = self.around(start);
        if old.value == value && end <= old.end {
            return;
        }
        for seen in &mut self.seen {
            let seen = seen.get_mut();
            if seen.start <= end && start <= seen.end {
                seen.end = seen.start; // it is another one now, or has grown
            }
        }
        self.empty(start, end, old);
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

    /// Takes `start..end` out of the runs; `old` is what is around `start`.
    fn empty(&mut self, start: u64, end: u64, old: Piece<V>) {
        if end > old.end {
            self.cut(start);
            self.cut(end);
            while let Some((at, _)) = self.runs.range(start..end).next() {
                let at = *at;
                self.runs.remove(&at);
            }
        } else if old.value != self.rest {
            match self.runs.get_mut(&old.start) {
                Some(run) if old.start < start => run.0 = start,
                _ => _ = self.runs.remove(&start),
            }
            if end < old.end {
                self.runs.insert(end, (old.end, old.value));
            }
        }
    }

    /// Splits the run that goes over `at` there.
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
    fn all_is_rest_at_first() {
        for at in [0, 1, 7, 100] {
            let piece = Spans::new(0u8).first(at, 1000);
            assert_eq!(piece, Piece { start: at, end: 1000, value: 0 });
        }
    }

    #[test]
    fn runs_agree_with_an_array() {
        let mut rng = Rng::new(1, 0);
        let (mut spans, mut naive) = (Spans::new(0u8), [0u8; 64]);
        for _ in 0..20_000 {
            let (start, value) = (rng.below(65), rng.below(4) as u8);
            let end = (start + rng.below(12)).min(64).max(start);
            spans.set(start, end, value);
            naive[start as usize..end as usize].fill(value);
            let (a, b) = (rng.below(65), rng.below(65));
            let (start, end) = (a.min(b), a.max(b));
            let (mut at, mut before) = (start, None);
            for piece in spans.pieces(start, end) {
                assert_eq!(piece.start, at);
                assert_ne!(before.replace(piece.value), Some(piece.value), "two that are one");
                assert!(piece.end > at);
                assert!((at..piece.end).all(|at| naive[at as usize] == piece.value));
                at = piece.end;
            }
            assert_eq!(at, end);
            let at = rng.below(64); // one, so that what was seen before is not all seen anew
            assert_eq!(spans.get(at), naive[at as usize]);
            let threes = naive.iter().filter(|v| **v == 3).count() as u64;
            assert_eq!(spans.count(3), threes);
            assert!(spans.each(3).eq((0..64).filter(|at| naive[*at as usize] == 3)));
        }
    }
}
