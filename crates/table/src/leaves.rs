//! Reading a range: its leaves and software words, with empty stretches skipped.

use super::attrs::{Entry, Slot, Slots};
use super::paging::Paging;
use super::tables::{Found, Tables};
use super::word::TableAt;
use foliant_machine::PhysMem;
use foliant_units::{Level, Va, VaRange};

/// The leaves and software words that translate addresses of a range, lowest first. They are read
/// without a lock: each is as it was when it was read. A leaf of a group is accessed, or dirty,
/// where any word of the group is. The first may begin before the range, and
/// the last may end behind it.
#[derive(Debug)]
pub struct Leaves<'m, M, P: Paging> {
    tables: Tables<'m, M, P>,
    va: Va,
    end: Va,
    /// The end of what was asked for; behind `end` nothing can be.
    asked: Va,
    here: Option<(TableAt, Level)>,
    /// Words that may still be read.
    words: u64,
}

impl<'m, M: PhysMem, P: Paging> Tables<'m, M, P> {
    /// A cursor over what is in `range`. Addresses outside the half hold nothing.
    pub fn leaves(&self, range: VaRange) -> Leaves<'m, M, P> {
        let (va, end) = match self.check_va(range.start()) {
            Ok(()) => (range.start(), range.end().min(P::half(self.half()).1)),
            Err(_) => (range.start(), range.start()),
        };
        Leaves { tables: *self, va, end, asked: range.end(), here: None, words: u64::MAX }
    }
}

impl<M, P: Paging> Leaves<'_, M, P> {
    /// The same, ended when so many words were read, empty ones among them. A range of tables that
    /// are all empty is long: a reader reads a part of it in one section, and goes on at
    /// [`upto`](Leaves::upto) in the next one.
    pub fn within(self, words: u64) -> Self {
        Leaves { words, ..self }
    }
    /// Where what was not read yet begins: the end of the range where nothing is left.
    pub fn upto(&self) -> Va {
        if self.va < self.end { self.va } else { self.asked }
    }
}

impl<M: PhysMem, P: Paging> Tables<'_, M, P> {
    /// What is in the entry for `va`, which lies in the table where `found` was read; the caller is
    /// in the same section still.
    pub fn entry_beside(&self, found: &Found, va: Va) -> Entry {
        let slot = Slot::of(va, found.level);
        let word = TableAt::named(found.at.frame().pa()).word(slot);
        P::decode(word.load(self.machine()), found.level, slot)
    }
    /// Whether nothing was in `range` when it was read. The range lies in the table where `found`
    /// was read. The caller is still in the reader's section in which it read `found`, so the
    /// table's frame is in no other use, even if the table was taken out meanwhile (I6).
    pub fn is_empty_beside(&self, found: &Found, range: VaRange) -> bool {
        let table = TableAt::named(found.at.frame().pa());
        let first = Slot::of(range.start(), found.level);
        let words = (range.bytes().get() / found.level.span().get()) as usize;
        let slots = Slots::new(first, words).expect("a range of the table");
        table.empties(self.machine(), slots) == words
    }
}

impl<M: PhysMem, P: Paging> Leaves<'_, M, P> {
    /// Moves behind the word of `level` that translates the current address, and out of the table
    /// where that was its last word.
    fn advance(&mut self, slot: Slot, level: Level) {
        let span = level.span();
        self.va = match self.va.align_down(span).checked_add(span.get()) {
            Some(next) => next,
            None => self.end, // the last word of the address space
        };
        if slot.index() == Level::ENTRIES - 1 {
            self.here = None;
        }
    }
}

impl<M: PhysMem, P: Paging> Iterator for Leaves<'_, M, P> {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        while self.va < self.end && self.words > 0 {
            self.words -= 1;
            let (table, level) = *self.here.get_or_insert_with(|| {
                let spot = self.tables.lowest(self.va, Level::BASE);
                (spot.table, spot.level)
            });
            let slot = Slot::of(self.va, level);
            let at = table.word(slot);
            let word = at.load(self.tables.machine());
            let entry = P::decode(word, level, slot);
            match entry {
                Entry::Table(_) => self.here = None,
                Entry::None => self.advance(slot, level),
                Entry::Leaf { .. } | Entry::Soft(_) => {
                    let va = self.va.align_down(level.span());
                    self.advance(slot, level);
                    let read = |slot| table.word(slot).load(self.tables.machine());
                    let entry = match entry {
                        Entry::Leaf { pa, attrs } => {
                            Entry::Leaf { pa, attrs: P::noted(level, slot, attrs, read) }
                        }
                        other => other,
                    };
                    return Some(Found { va, level, word, entry, at: at.pa(), above: None });
                }
            }
        }
        None
    }
}
