//! Taking the mappings of folios out of use, with one flush for many of them.

use super::walk::{Folio, FolioEdit, walk};
use crate::flush::{Gather, Used};
use crate::rmap::{Pin, relatives};
use crate::space::{Space, kept};
use crate::stock::{Held, Stock};
use crate::table::{At, Attrs, Paging, Run, Sink, Soft, Verdict, What};
use foliant_machine::{Accessed, Machine};
use foliant_units::{Frame, Order, Pa, Pages};

/// Spaces that can have a flush pending in one batch. Where there are more, the last of them makes
/// room: folios of a fork tree are found in its spaces in the same order, so the first ones come
/// again.
const OPEN_MAX: usize = 4;

/// A space's gather, and the pin that keeps the space while it is pending.
struct SpaceGather<'s, 'm, M: Machine, P: Paging> {
    gather: Gather<'s, 'm, M, P>, // dropped first
    pin: Pin<'m>,
}

/// Whether the entries are counted for each piece of the folio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Counting {
    /// No: it stays one folio.
    Whole,
    /// For pieces of this order.
    Pieces(Order),
}

/// What was taken out of page tables for several folios, and the flushes that are due. See the
/// room's text.
pub(crate) struct FlushBatch<'s, 'm, M: Machine, P: Paging> {
    stock: &'s Stock<'m, M, P>,
    open: [Option<SpaceGather<'s, 'm, M, P>>; OPEN_MAX],
}

impl<'s, 'm, M: Machine, P: Paging> FlushBatch<'s, 'm, M, P> {
    pub(crate) fn new(stock: &'s Stock<'m, M, P>) -> Self {
        FlushBatch { stock, open: [const { None }; OPEN_MAX] }
    }

    /// Makes migration entries of all entries that map the folio, and says how many there were, in
    /// base pages. Nobody uses the folio's memory after the next [`flush`](FlushBatch::flush).
    pub(crate) fn take(&mut self, held: &Held<'s, 'm, M, P>, tally: Counting) -> u64 {
        let stock = self.stock;
        let folio = Folio::of(stock, held.head(), held.order());
        if let Counting::Pieces(order) = tally {
            folio.pieces(order).for_each(|(_, piece)| stock.set_tally(piece, 0));
        }
        let mut taken = 0;
        let mut relatives = relatives(stock, held.head(), 0);
        // It ends when all entries that count were taken: most folios are found in their first
        // space (rmap::R5).
        while taken == 0 || taken < stock.counts(held.head()).entries() {
            let Some(pin) = relatives.next() else { break };
            self.take_in(pin, folio, tally, &mut taken);
        }
        taken
    }

    fn take_in(&mut self, pin: Pin<'m>, folio: Folio, tally: Counting, taken: &mut u64) {
        let stock = self.stock;
        let edit = TakeLeaves { accessed: stock.machine.rules().accessed };
        // No CPU runs an object's space: its flush is none, and takes no room from others'.
        let mut own = Space::of(stock, pin.member())
            .is_object()
            .then(|| Gather::new(stock, &pin.member().target));
        let gather = match &mut own {
            Some(own) => own,
            None => self.gather(&pin),
        };
        let mut sink = Taking { stock, gather, tally, taken };
        // A space may have many distances, of areas that moved, at which nothing of the folio is:
        // others wait for what was taken meanwhile.
        let is_all = |sink: &Taking<'_, 's, 'm, M, P>| {
            *sink.taken > 0 && *sink.taken >= stock.counts(folio.head()).entries()
        };
        walk(stock, &pin, folio, &edit, &mut sink, is_all);
        own.iter_mut().for_each(flush);
    }

    /// The gather of a space, pending or fresh.
    fn gather(&mut self, pin: &Pin<'m>) -> &mut Gather<'s, 'm, M, P> {
        let known = self
            .open
            .iter()
            .position(|open| open.as_ref().is_some_and(|open| open.pin.frame() == pin.frame()));
        let at = known.unwrap_or_else(|| {
            let free = self.open.iter().position(Option::is_none);
            free.unwrap_or(OPEN_MAX - 1)
        });
        if known.is_none() {
            if let Some(mut old) = self.open[at].take() {
                flush(&mut old.gather);
            }
            let gather = Gather::new(self.stock, &pin.member().target);
            self.open[at] = Some(SpaceGather { gather, pin: pin.clone() });
        }
        &mut self.open[at].as_mut().expect("just opened").gather
    }

    /// Flushes all that was taken so far. No lock is held.
    pub(crate) fn flush(&mut self) {
        // All CPUs are asked before the first gather is waited for.
        self.open.iter_mut().flatten().for_each(|open| {
            open.gather.cover_others(); // T7
            open.gather.issue();
        });
        for mut open in self.open.iter_mut().filter_map(Option::take) {
            open.gather.flush();
        }
    }
}

/// Ends every translation to what was taken (T7).
fn flush<M: Machine, P: Paging>(gather: &mut Gather<'_, '_, M, P>) {
    gather.cover_others();
    gather.flush();
}

/// Makes migration entries of leaves.
struct TakeLeaves {
    accessed: Accessed,
}

impl FolioEdit for TakeLeaves {
    fn leaf(&self, _: At, pa: Pa, attrs: Attrs) -> Verdict {
        Verdict::Take(Soft::migration(pa, kept(attrs, self.accessed)).word())
    }
    fn taken(&self, _: At, _: Pa, _: Attrs) -> Verdict {
        Verdict::Keep
    }
}

/// Notes and counts the leaves that were taken in one space.
struct Taking<'t, 's, 'm, M: Machine, P: Paging> {
    stock: &'s Stock<'m, M, P>,
    gather: &'t mut Gather<'s, 'm, M, P>,
    tally: Counting,
    taken: &'t mut u64,
}

impl<M: Machine, P: Paging> Taking<'_, '_, '_, M, P> {
    /// Counts entries that name `pages` from `first` on for each piece.
    fn count_pieces(&self, first: Frame, pages: Pages, order: Order) {
        let (stock, mut at, end) = (self.stock, first, first.add(pages));
        while at < end {
            let piece = order.head(at);
            let upto = piece.add(order.pages()).min(end);
            stock.set_tally(piece, stock.tally(piece) + (upto.get() - at.get()));
            at = upto;
        }
    }
}

impl<M: Machine, P: Paging> Sink<M, P> for Taking<'_, '_, '_, M, P> {
    const WAITS: bool = true;

    fn prepare(&mut self) -> bool {
        if self.gather.is_full() {
            flush(self.gather);
        }
        true
    }
    fn descend<R>(&self, find: impl FnOnce() -> R) -> R {
        let _reading = self.stock.reading();
        find()
    }
    fn most(&self) -> usize {
        self.gather.left()
    }
    fn add(&mut self, run: Run) {
        let What::Mapped { pa, attrs } = run.what else { unreachable!("leaves are taken") };
        self.gather.note(run.range(), run.level, Used::of(attrs));
        let pages = run.range().pages();
        *self.taken += pages.get();
        if let Counting::Pieces(order) = self.tally {
            self.count_pieces(pa.frame(), pages, order);
        }
    }
}
