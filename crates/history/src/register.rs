//! What a load may give where several CPUs work on one word: the log of its writers.
//!
//! ```text
//!   store of v ├────┤        drop ├──┤        load ├──┤ gives v: wrong, the drop lies between
//!   store of v ├────┤   load ├──┤  gives 0: wrong, unless a drop reaches behind the store's start
//! ```
//!
//! A load may give what a writer wrote that began before the load ended, unless another writer began after the
//! first had ended, and ended before the load began. A drop writes zero.

/// The end of what has not ended, or of a drop that may not have happened.
pub(crate) const OPEN: u64 = u64::MAX;

/// Somebody who changed the word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Writer {
    pub(crate) value: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// The writers of one word, in the order they began.
#[derive(Clone, Debug)]
pub(crate) struct Register {
    writers: Vec<Writer>,
}

impl Default for Register {
    fn default() -> Register {
        Register { writers: vec![Writer { value: 0, start: 0, end: 0 }] }
    }
}

impl Register {
    /// A word that holds one of `values` to begin with.
    pub(crate) fn of(values: Vec<u64>) -> Register {
        let writer = |value| Writer { value, start: 0, end: 0 };
        Register { writers: values.into_iter().map(writer).collect() }
    }
    pub(crate) fn begin(&mut self, value: u64, start: u64) {
        self.writers.push(Writer { value, start, end: OPEN });
    }
    /// The writer that began at `start` has ended.
    pub(crate) fn end(&mut self, start: u64, end: u64) {
        if let Some(writer) = self.writers.iter_mut().find(|writer| writer.start == start) {
            writer.end = end;
        }
    }
    /// The writer that began at `start` changed nothing.
    pub(crate) fn undo(&mut self, start: u64) {
        self.writers.retain(|writer| writer.start != start || writer.start == 0);
    }
    fn is_current(&self, writer: &Writer, start: u64, end: u64) -> bool {
        let replaced = |w: &Writer| w.start > writer.end && w.end < start;
        writer.start < end && !self.writers.iter().any(replaced)
    }
    /// Whether a load from `start` to `end` may give `value`.
    pub(crate) fn allows(&self, value: u64, start: u64, end: u64) -> bool {
        self.writers.iter().any(|w| w.value == value && self.is_current(w, start, end))
    }
    /// All that such a load may give.
    pub(crate) fn values(&self, start: u64, end: u64) -> Vec<u64> {
        let current = self.writers.iter().filter(|w| self.is_current(w, start, end));
        let mut values: Vec<u64> = current.map(|w| w.value).collect();
        values.sort_unstable();
        values.dedup();
        values
    }
    /// Forgets writers that no load from `now` on can see.
    pub(crate) fn prune(&mut self, now: u64) {
        let kept: Vec<Writer> =
            self.writers.iter().filter(|w| self.is_current(w, now, OPEN)).copied().collect();
        if !kept.is_empty() {
            self.writers = kept;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn register(writers: &[(u64, u64, u64)]) -> Register {
        let mut register = Register::default();
        for (value, start, end) in writers {
            register.begin(*value, *start);
            register.end(*start, *end);
        }
        register
    }

    #[test]
    fn loads_see_the_last_writers_only() {
        let one = register(&[(7, 2, 4)]);
        assert_eq!(one.values(5, 6), [7]);
        assert_eq!(one.values(3, 6), [0, 7]);
        let dropped = register(&[(7, 2, 4), (0, 5, 6)]);
        assert_eq!(dropped.values(7, 8), [0]);
        let together = register(&[(7, 2, 6), (9, 3, 5)]);
        assert_eq!(together.values(7, 8), [7, 9]);
        let open = register(&[(7, 2, 4), (0, 5, OPEN)]);
        assert_eq!(open.values(9, 10), [0, 7]);
        let mut pruned = dropped;
        pruned.prune(9);
        assert_eq!(pruned.values(10, 11), [0]);
    }
}
