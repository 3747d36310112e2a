//! Counting what maps a folio, by looking.

use super::walk::{Folio, FolioEdit, walk};
use crate::rmap::relatives;
use crate::stock::Stock;
use crate::table::{At, Attrs, Paging, Run, Sink, Verdict};
use foliant_machine::Machine;
use foliant_units::{Frame, Level, Order, Pa};

/// What maps a folio, as a walk found it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Mappings {
    /// Leaves as large as the folio.
    pub whole: u64,
    /// Entries that map one page of it.
    pub pages: u64,
    /// Spaces with any of them.
    pub spaces: u64,
}

impl Mappings {
    /// In base pages.
    pub fn entries(&self, order: Order) -> u64 {
        self.pages + self.whole * order.pages().get()
    }
}

/// Looks at all entries of a folio that the caller keeps, migration entries included. The result is
/// exact while nobody changes them.
pub(crate) fn mappings<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    head: Frame,
    order: Order,
) -> Mappings {
    let folio = Folio::of(stock, head, order);
    let mut counting = Mapping { stock, found: Mappings::default() };
    for pin in relatives(stock, head, 0).filter(|pin| !pin.repeats(stock)) {
        let before = counting.found.entries(order);
        walk(stock, &pin, folio, &ShowWords, &mut counting, |_| false);
        let after = counting.found.entries(order);
        counting.found.spaces += u64::from(after > before);
    }
    counting.found
}

/// Shows every word of the folio.
struct ShowWords;

impl FolioEdit for ShowWords {
    fn leaf(&self, _: At, _: Pa, _: Attrs) -> Verdict {
        Verdict::Show
    }
    fn taken(&self, _: At, _: Pa, _: Attrs) -> Verdict {
        Verdict::Show
    }
}

/// Counts what it is shown.
struct Mapping<'s, 'm, M, P> {
    stock: &'s Stock<'m, M, P>,
    found: Mappings,
}

impl<M: Machine, P: Paging> Sink<M, P> for Mapping<'_, '_, M, P> {
    const WAITS: bool = true;

    fn descend<R>(&self, find: impl FnOnce() -> R) -> R {
        let _reading = self.stock.reading();
        find()
    }
    fn add(&mut self, run: Run) {
        match run.level {
            Level::BASE => self.found.pages += u64::from(run.count),
            _ => self.found.whole += u64::from(run.count),
        }
    }
}
