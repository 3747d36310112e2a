//! Counting what maps a folio, by looking.

use super::walk::{Folio, FolioEdit, walk};
use crate::rmap::relatives;
use crate::stock::Stock;
use crate::table::{At, Attrs, Paging, Run, Sink, Verdict, What};
use foliant_machine::Machine;
use foliant_units::{Frame, FrameRange, Level, Order, Pa};

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
    count(stock, Folio::of(stock, head, order), None)
}
/// The same for one page of the folio, at `frame`: leaves of the whole folio map it too.
pub(crate) fn page_mappings<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    head: Frame,
    order: Order,
    frame: Frame,
) -> u64 {
    let found = count(stock, Folio::of(stock, head, order), Some(frame));
    found.whole + found.pages
}
fn count<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    folio: Folio,
    page: Option<Frame>,
) -> Mappings {
    let mut counting = Mapping { stock, page, found: Mappings::default() };
    for pin in relatives(stock, folio.head(), 0).filter(|pin| !pin.repeats(stock)) {
        let before = counting.found;
        walk(stock, &pin, folio, &ShowWords, &mut counting, |_| false);
        counting.found.spaces += u64::from(counting.found != before);
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

/// Counts what it is shown, or of that what maps one page.
struct Mapping<'s, 'm, M, P> {
    stock: &'s Stock<'m, M, P>,
    page: Option<Frame>,
    found: Mappings,
}

/// Whether a run, whose words map one block behind the other, maps a page.
fn maps(run: &Run, page: Frame) -> bool {
    let pa = match run.what {
        What::Mapped { pa, .. } => Some(pa),
        What::Soft(soft) => soft.migrating_leaf().map(|(pa, _)| pa),
    };
    let frames = pa.and_then(|pa| FrameRange::new(pa.frame(), run.range().pages()));
    frames.is_some_and(|frames| frames.contains(page))
}

impl<M: Machine, P: Paging> Sink<M, P> for Mapping<'_, '_, M, P> {
    const WAITS: bool = true;

    fn descend<R>(&self, find: impl FnOnce() -> R) -> R {
        let _reading = self.stock.reading();
        find()
    }
    fn add(&mut self, run: Run) {
        let count = match self.page {
            None => u64::from(run.count),
            Some(page) => u64::from(maps(&run, page)),
        };
        match run.level {
            Level::BASE => self.found.pages += count,
            _ => self.found.whole += count,
        }
    }
}
