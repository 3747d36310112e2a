//! Going over what a space has in a range of its tables, for the holder of its writer or for the
//! call that ends it (space, Locking).
//!
//! ```text
//!   edit ──▶ table::edit ─┬─ a leaf reaches over an end ─▶ it is split, and looked at again
//!                         ├─ no room left ───────────────▶ the sink makes some
//!                         └─ out of use by somebody ─────▶ waited for, with no table locked (S6, table::I9)
//! ```
//!
//! **Not here**: what becomes of a word, and of what was there: the operation's [`Edit`] and
//! [`Sink`].

use super::record::Space;
use super::split_leaf;
use super::steps::Steps;
use crate::flush::{Gather, Used};
use crate::stock::Stock;
use crate::table::{At, Attrs, Edit, Paging, Run, Sink, Soft, Stop, Tables, Verdict, What};
use foliant_machine::Machine;
use foliant_units::{Pa, VaRange};

/// Does with each word of `range` what `edit` says. The range was checked, and the caller holds the
/// writer or ends the space.
pub(super) fn edit<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    range: VaRange,
    edit: &impl Edit<P>,
    sink: &mut impl Sink<M, P>,
) {
    let tables: Tables<'_, M, P> = space.tables(stock);
    let mut rest = range;
    while !rest.is_empty() {
        let swept = tables.edit(rest, edit, sink).expect("the range was checked");
        rest = VaRange::new(swept.upto, range.end()).expect("it goes on inside the range");
        match swept.why {
            Stop::Done | Stop::Full => {} // room is made before the next table
            Stop::Straddles { va, level } => split_leaf(stock, space, &tables, va, level),
            Stop::Busy(_) => unreachable!("the walk waits for it"),
        }
    }
}

/// The sink of an operation that changes what entries allow: what its edit takes or breaks is
/// noted.
pub(super) struct Noting<'n, 'g, 'm, M: Machine, P: Paging> {
    pub(super) machine: &'m M,
    pub(super) gather: &'n mut Gather<'g, 'm, M, P>,
    pub(super) steps: &'n mut Steps,
}

impl<'m, M: Machine, P: Paging> Sink<M, P> for Noting<'_, '_, 'm, M, P> {
    const WAITS: bool = true;

    fn prepare(&mut self) -> bool {
        self.gather.relieve();
        true
    }
    fn most(&self) -> usize {
        self.gather.left()
    }
    fn add(&mut self, run: Run) {
        if let What::Mapped { attrs, .. } = run.what {
            self.gather.note(run.range(), run.level, Used::of(attrs));
        }
    }
    fn flush(&mut self) {
        self.gather.flush();
    }
    fn between(&mut self, words: u64) {
        self.steps.take_flushed(self.gather, self.machine, words);
    }
}

/// The sink of an operation that changes nothing that a CPU may have cached.
pub(super) struct Uncached<'u, 'm, M> {
    pub(super) machine: &'m M,
    pub(super) steps: &'u mut Steps,
}

/// Leaves every word as it is.
pub(super) struct Unchanged;

impl<P: Paging> Edit<P> for Unchanged {
    fn leaf(&self, _: At, _: u64, _: Pa, _: Attrs) -> Verdict {
        Verdict::Keep
    }
    fn soft(&self, _: At, _: Soft) -> Verdict {
        Verdict::Keep
    }
}

impl<M: Machine, P: Paging> Sink<M, P> for Uncached<'_, '_, M> {
    const WAITS: bool = true;

    fn add(&mut self, run: Run) {
        unreachable!("{run:?} was in use")
    }
    fn between(&mut self, words: u64) {
        self.steps.take(self.machine, words);
    }
}
