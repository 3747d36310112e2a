//! A value for every number, found without a search among many.
//!
//! Values lie in stretches of [`STRETCH`], which are made when one of theirs is first written.

use std::collections::BTreeMap;

/// How many values lie together: as many as a table has words.
pub(super) const STRETCH: u64 = 512;

#[derive(Debug)]
pub(super) struct Sparse<V> {
    stretches: BTreeMap<u64, Box<[V]>>,
}

impl<V: Default> Sparse<V> {
    pub(super) fn new() -> Sparse<V> {
        Sparse { stretches: BTreeMap::new() }
    }

    /// The value at `at`, if one of its stretch was written.
    pub(super) fn get(&self, at: u64) -> Option<&V> {
        Some(&self.stretches.get(&(at / STRETCH))?[(at % STRETCH) as usize])
    }

    /// The value at `at`, to be written.
    pub(super) fn at(&mut self, at: u64) -> &mut V {
        let new = || (0..STRETCH).map(|_| V::default()).collect();
        let stretch = self.stretches.entry(at / STRETCH).or_insert_with(new);
        &mut stretch[(at % STRETCH) as usize]
    }

    /// The values of `start..end` with their numbers, lowest first, without those of stretches that
    /// were not written.
    pub(super) fn range(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &V)> {
        let stretches = self.stretches.range(start / STRETCH..end.div_ceil(STRETCH));
        stretches.flat_map(move |(nth, values)| {
            let first = nth * STRETCH;
            let inside = start.saturating_sub(first)..end.saturating_sub(first).min(STRETCH);
            let values = &values[inside.start as usize..inside.end as usize];
            (first + inside.start..).zip(values)
        })
    }

    /// Takes the values of the stretches `start..end` out, with the number of the first of each.
    pub(super) fn take(&mut self, start: u64, end: u64) -> Vec<(u64, Box<[V]>)> {
        let gone: Vec<u64> = self.stretches.range(start..end).map(|(nth, _)| *nth).collect();
        let take = |nth| Some((nth * STRETCH, self.stretches.remove(&nth)?));
        gone.into_iter().filter_map(take).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_where_they_were_put_and_come_in_order() {
        let mut sparse = Sparse::new();
        let put = [3, 511, 512, 1500, 9000u64];
        put.iter().for_each(|at| *sparse.at(*at) = *at);
        assert_eq!(sparse.get(512), Some(&512));
        assert_eq!(sparse.get(513), Some(&0));
        assert_eq!(sparse.get(5000), None);
        let within = |start: u64, end: u64| -> Vec<u64> {
            let some = sparse.range(start, end).filter(|(_, value)| **value != 0);
            some.map(|(at, value)| (at == *value).then_some(at).unwrap()).collect()
        };
        for (start, end) in [(0, 10_000), (3, 512), (4, 512), (511, 1500), (512, 512), (0, 9001)] {
            assert!(
                within(start, end).iter().eq(put.iter().filter(|at| (start..end).contains(at)))
            );
        }
        let gone = sparse.take(1, 3);
        assert!(gone.iter().map(|(first, _)| *first).eq([512, 1024]));
        assert_eq!((gone[0].1[0], gone[1].1[1500 - 1024]), (512, 1500));
        assert_eq!((sparse.get(512), sparse.get(511)), (None, Some(&511)));
    }
}
