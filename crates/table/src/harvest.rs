//! What an operation took out or changed, for the caller's flush and books.

use super::attrs::{Attrs, Soft};
use core::ops::Range;
use foliant_claim::Stale;
use foliant_machine::{Accessed, Invalidation, Item, MmuRules, Scope, Tables, Tlb};
use foliant_units::{CpuSet, Level, Pa, Va, VaRange};

/// Consecutive leaves of one level that map consecutive blocks alike, or one software word, as they
/// were before the operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// The first address.
    pub va: Va,
    /// The level of the words.
    pub level: Level,
    /// How many words.
    pub count: u32,
    /// What they said.
    pub what: What,
}

/// What the words of a run said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// They mapped blocks from `pa` on. Of [`Attrs::TOUCHED`] each bit is set where *any* of them
    /// had it; the others are the same in all.
    Mapped {
        /// The first byte mapped.
        pa: Pa,
        /// How.
        attrs: Attrs,
    },
    /// A software word, once per run.
    Soft(Soft),
}

impl Run {
    /// The addresses.
    #[inline]
    pub const fn range(&self) -> VaRange {
        let bytes = self.level.span().get() * self.count as u64;
        match VaRange::new(self.va, Va::new(self.va.get() + bytes)) {
            Some(range) => range,
            None => panic!("a run ends behind its start"),
        }
    }
}

/// A bounded list of runs and of removed tables. A full one stops the operation, which says how far
/// it got; the caller hands the content to its flush and goes on.
#[must_use = "what was taken out must be flushed, and then freed"]
#[derive(Debug)]
pub struct Harvest {
    runs: [Option<Run>; Harvest::RUNS_MAX],
    runs_len: usize,
    tables: [Option<Stale>; Harvest::TABLES_MAX],
    tables_len: usize,
}

impl Harvest {
    /// How many runs it holds at most.
    pub const RUNS_MAX: usize = 32;
    /// How many tables it holds at most.
    pub const TABLES_MAX: usize = 32;

    /// An empty harvest.
    #[inline]
    pub const fn new() -> Harvest {
        Harvest {
            runs: [None; Harvest::RUNS_MAX],
            runs_len: 0,
            tables: [const { None }; Harvest::TABLES_MAX],
            tables_len: 0,
        }
    }
    /// The runs, in the order of their addresses as they were visited.
    #[inline]
    pub fn runs(&self) -> impl Iterator<Item = &Run> {
        self.runs[..self.runs_len].iter().flatten()
    }
    /// Forgets the runs: the caller has them in its books.
    #[inline]
    pub fn clear_runs(&mut self) {
        self.runs_len = 0;
    }
    /// The flush of what is in it, in one request: asks each CPU of `cpus` to end what it may have
    /// cached, ends it here, and waits for them. `cpus` are those that run the tables, or may have
    /// kept translations of them; `scope` says which tables those are.
    ///
    /// Leaves that no CPU can have cached are left out. Where tables went, everything of the scope
    /// is ended, for the runs do not say where they were. Without either nobody is asked.
    ///
    /// Returns the runs, which leave the harvest: their frames may have other users now. Removed
    /// tables stay for [`pop_table`](Harvest::pop_table).
    pub fn flush(&mut self, machine: &impl Tlb, scope: Scope, cpus: &CpuSet) -> EndedRuns {
        let what = self.owed(machine.rules(), scope);
        if !what.is_empty() {
            let asked = machine.ask(cpus, &what);
            machine.invalidate(&what);
            machine.wait(asked);
        }
        EndedRuns { runs: self.runs, left: 0..core::mem::take(&mut self.runs_len) }
    }
    /// What CPUs may have cached of it.
    fn owed(&self, rules: MmuRules, scope: Scope) -> Invalidation {
        if self.tables_len > 0 {
            return Invalidation::all(scope);
        }
        let mut what = Invalidation::none(scope);
        for run in self.runs() {
            let What::Mapped { attrs, .. } = run.what else { continue };
            let is_cached = rules.accessed == Accessed::Independent || attrs.has(Attrs::ACCESSED);
            let item = Item { range: run.range(), level: run.level, tables: Tables::Kept };
            if is_cached && what.push(item).is_err() {
                return Invalidation::all(scope);
            }
        }
        what
    }
    /// Takes out a removed table. It may be freed after a flush of its range with `Tables::Removed`
    /// and after the grace period of lock-free walks (table::I6).
    #[inline]
    pub fn pop_table(&mut self) -> Option<Stale> {
        self.tables_len = self.tables_len.checked_sub(1)?;
        self.tables[self.tables_len].take()
    }
    /// How many removed tables it holds.
    #[inline]
    pub const fn tables(&self) -> usize {
        self.tables_len
    }
    /// Whether there is nothing in it.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.runs_len == 0 && self.tables_len == 0
    }
    /// Whether there is room for another run and for so many tables.
    pub(super) const fn has_room(&self, tables: usize) -> bool {
        self.runs_len < Harvest::RUNS_MAX && self.tables_len + tables <= Harvest::TABLES_MAX
    }
    /// Adds a run, or lengthens the last one by it. The caller has checked for room.
    pub(super) fn add(&mut self, run: Run) {
        if let Some(last) = self.runs[..self.runs_len].last_mut().and_then(Option::as_mut)
            && last.takes(&run)
        {
            return;
        }
        self.runs[self.runs_len] = Some(run);
        self.runs_len += 1;
    }
    pub(super) fn add_table(&mut self, table: Stale) {
        self.tables[self.tables_len] = Some(table);
        self.tables_len += 1;
    }
}

/// The runs of a harvest that was flushed, in the order in which they were visited.
#[derive(Debug)]
pub struct EndedRuns {
    runs: [Option<Run>; Harvest::RUNS_MAX],
    left: Range<usize>,
}

impl Iterator for EndedRuns {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        self.runs[self.left.next()?]
    }
}

impl Default for Harvest {
    fn default() -> Harvest {
        Harvest::new()
    }
}

impl Run {
    /// Appends `next` if it continues this run.
    #[inline]
    fn takes(&mut self, next: &Run) -> bool {
        let (What::Mapped { pa, attrs }, What::Mapped { pa: next_pa, attrs: more }) =
            (&mut self.what, next.what)
        else {
            return false;
        };
        let bytes = self.level.span().get() * self.count as u64;
        let follows = self.level == next.level
            && self.va.checked_add(bytes) == Some(next.va)
            && pa.add(bytes) == next_pa
            && attrs.without(Attrs::TOUCHED) == more.without(Attrs::TOUCHED);
        if follows && let Some(count) = self.count.checked_add(next.count) {
            self.count = count;
            *attrs = attrs.with(more.and(Attrs::TOUCHED));
            return true;
        }
        false
    }
}
