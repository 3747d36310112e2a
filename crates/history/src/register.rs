//! What a load may give where several CPUs work on one word: the log of its writers. The rights of
//! a page are such a word, too.
//!
//! ```text
//!   store of v ┼   store of w ┼   load ┼               gives w: nobody goes on between an access and what is noted of it
//!   store of v ┼   drop ├────┤   load ┼                gives 0
//!   drop ├─── store of v ┼ ───┤   load ┼   load ┼      the first gives v or 0, the second what the first gave
//! ```
//!
//! A store and a load are moments, a drop takes a while: it writes zero at some moment between its
//! start and its end. Until then CPUs may be at different memory, so of two stores meanwhile either
//! may be seen. Where nothing is under way the first load decides which of them it was: from then
//! on there is one value, but for looks that had begun.

/// The end of a writer that has not ended.
const OPEN: u64 = u64::MAX;

/// A store or a drop that changed the word, or may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Writer {
    value: u64,
    start: u64,
    end: u64,
    /// Whether it did.
    sure: bool,
}

impl Writer {
    fn moment(value: u64, at: u64) -> Writer {
        Writer { value, start: at, end: at, sure: true }
    }
}

/// The writers of one word.
#[derive(Clone, Debug)]
pub(crate) struct Register {
    writers: Vec<Writer>,
}

impl Default for Register {
    fn default() -> Register {
        Register::of(&[0])
    }
}

impl Register {
    /// A word that holds one of `values` to begin with.
    pub(crate) fn of(values: &[u64]) -> Register {
        Register { writers: values.iter().map(|value| Writer::moment(*value, 0)).collect() }
    }
    /// A store at the moment `at`.
    pub(crate) fn store(&mut self, value: u64, at: u64) {
        self.writers.push(Writer::moment(value, at));
    }
    /// A drop begins, or something else that takes a while.
    pub(crate) fn begin(&mut self, value: u64, start: u64) {
        self.writers.push(Writer { value, start, end: OPEN, sure: true });
    }
    fn of_drop(&mut self, start: u64) -> Option<&mut Writer> {
        self.writers.iter_mut().find(|writer| writer.start == start && writer.end == OPEN)
    }
    /// The drop that began at `start` has ended.
    pub(crate) fn end(&mut self, start: u64, end: u64) {
        if let Some(writer) = self.of_drop(start) {
            writer.end = end;
        }
    }
    /// The drop that began at `start` has ended half-way: whether it came to this word is not
    /// known.
    pub(crate) fn doubt(&mut self, start: u64, end: u64) {
        if let Some(writer) = self.of_drop(start) {
            (writer.end, writer.sure) = (end, false);
        }
    }
    /// The drop that began at `start` changed nothing.
    pub(crate) fn undo(&mut self, start: u64) {
        self.writers.retain(|writer| writer.start != start || writer.end != OPEN);
    }

    /// Whether `writer` stored while something was dropped, perhaps to what goes.
    fn is_beside_a_drop(&self, writer: &Writer) -> bool {
        let at = writer.start;
        writer.end == at && self.writers.iter().any(|drop| drop.start < at && at < drop.end)
    }
    /// Whether a look from `start` to `end` may find what `writer` wrote.
    fn is_current(&self, writer: &Writer, start: u64, end: u64) -> bool {
        let replaces = |w: &Writer| {
            w.sure && w.start > writer.end && w.end < start && !self.is_beside_a_drop(w)
        };
        writer.start < end && !self.writers.iter().any(replaces)
    }
    /// All that a look from `start` to `end` may find.
    pub(crate) fn values(&self, start: u64, end: u64) -> Vec<u64> {
        let current = self.writers.iter().filter(|w| self.is_current(w, start, end));
        let mut values: Vec<u64> = current.map(|w| w.value).collect();
        values.sort_unstable();
        values.dedup();
        values
    }
    /// Forgets what no look can find that begins at `since` or later.
    pub(crate) fn prune(&mut self, since: u64) {
        let current = |w: &&Writer| self.is_current(w, since, OPEN);
        self.writers = self.writers.iter().filter(current).copied().collect();
    }
    /// This was found at `at`, so what came before does not matter any more to looks that begin
    /// later, if nothing is under way. Those that began at `since` or later go on and may have
    /// found what was there before.
    pub(crate) fn decide(&mut self, value: u64, at: u64, since: u64) {
        if self.writers.iter().all(|writer| writer.end <= at) {
            self.store(value, at);
            self.prune(since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores, and drops where the value is 0.
    fn register(writers: &[(u64, u64, u64)]) -> Register {
        let mut register = Register::default();
        for (value, start, end) in writers {
            match value {
                0 => register.begin(0, *start),
                _ => register.store(*value, *start),
            }
            if *value == 0 && *end != OPEN {
                register.end(*start, *end);
            }
        }
        register
    }

    #[test]
    fn a_load_finds_the_last_store() {
        let two = register(&[(7, 2, 2), (9, 4, 4)]);
        assert_eq!((two.values(3, 3), two.values(5, 5)), (vec![7], vec![9]));
        assert_eq!(two.values(1, 5), [0, 7, 9], "a look that takes a while may find any");
    }

    #[test]
    fn a_drop_leaves_zero_and_what_was_stored_beside_it() {
        let dropped = register(&[(7, 2, 2), (0, 5, 8)]);
        assert_eq!((dropped.values(6, 6), dropped.values(9, 9)), (vec![0, 7], vec![0]));
        let mut pruned = dropped.clone();
        pruned.prune(9);
        assert_eq!((pruned.writers.len(), pruned.values(9, 9)), (1, vec![0]));
        let open = register(&[(7, 2, 2), (0, 5, OPEN)]);
        assert_eq!(open.values(9, 9), [0, 7]);
        // Until the drop has ended another CPU may be at the old memory, where 9 was not stored.
        let beside = register(&[(7, 2, 2), (0, 5, 12), (8, 6, 6), (9, 7, 7)]);
        assert_eq!(
            (beside.values(10, 10), beside.values(13, 13)),
            (vec![0, 7, 8, 9], vec![0, 8, 9])
        );
    }

    #[test]
    fn what_is_found_decides_unless_something_is_under_way() {
        let mut beside = register(&[(7, 2, 2), (0, 5, 8), (9, 6, 6)]);
        assert_eq!(beside.values(9, 9), [0, 9]);
        beside.decide(0, 9, 9);
        assert_eq!(beside.values(10, 10), [0]);
        let mut open = register(&[(7, 2, 2), (0, 5, OPEN)]);
        open.decide(7, 6, 6);
        assert_eq!(open.values(7, 7), [0, 7]);
    }

    /// A store to a private page takes what is beside it from the object at some moment of a fault,
    /// which may be before another CPU's store and somebody's load of that.
    #[test]
    fn what_is_found_decides_nothing_for_a_look_that_had_begun() {
        let mut word = register(&[(7, 2, 2), (9, 6, 6)]);
        word.decide(9, 8, 4);
        assert_eq!((word.values(4, 10), word.values(9, 10)), (vec![7, 9], vec![9]));
        word.decide(9, 12, 12);
        word.decide(9, 14, 14);
        assert_eq!((word.writers.len(), word.values(15, 15)), (2, vec![9]));
    }

    #[test]
    fn half_a_drop_is_a_doubt_and_a_refused_one_is_nothing() {
        let mut half = register(&[(7, 2, 2), (0, 5, OPEN)]);
        half.doubt(5, 8);
        assert_eq!(half.values(9, 9), [0, 7]);
        half.decide(7, 9, 9);
        assert_eq!(half.values(10, 10), [7]);
        let mut refused = register(&[(7, 2, 2), (0, 5, OPEN)]);
        refused.undo(5);
        assert_eq!(refused.values(9, 9), [7]);
    }
}
