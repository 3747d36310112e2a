//! Taking the mappings of folios out of use, with one flush for many of them.

use super::places::{EntryState, Folio, FolioWord, Next, Ran, SpaceGather, places};
use crate::flush::{Gather, Used};
use crate::rmap::{Pin, relatives};
use crate::stock::{Held, Stock};
use crate::table::{Attrs, Entry, Paging, Soft};
use foliant_machine::{Accessed, Machine};
use foliant_units::{Frame, Order, Pages};

/// Spaces that can have a flush pending in one batch. Where there are more, the last of them makes
/// room: folios of a fork tree are found in its spaces in the same order, so the first ones come
/// again.
const OPEN_MAX: usize = 4;

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
        let gather = self.gather(&pin);
        let mut places = places(stock, pin, folio);
        loop {
            let ran = places.run(|word| {
                if word.state == EntryState::Taken {
                    return Next::On;
                }
                if gather.is_full() {
                    return Next::Pause;
                }
                take_word(gather, word);
                let pages = word.covers.pages();
                *taken += pages.get();
                if let Counting::Pieces(order) = tally {
                    count_pieces(stock, word.pa.frame(), pages, order);
                }
                Next::On
            });
            match ran {
                Ran::Paused => flush(gather),
                Ran::Done => return,
            }
        }
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

/// Counts an entry that names `pages` from `first` on for each piece.
fn count_pieces<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    first: Frame,
    pages: Pages,
    order: Order,
) {
    let mut nth = 0;
    while nth < pages.get() {
        let piece = order.head(first.add(Pages::new(nth)));
        let step = order.pages().get().min(pages.get());
        stock.set_tally(piece, stock.tally(piece) + step);
        nth += step;
    }
}

/// Makes a migration entry of a leaf.
fn take_word<M: Machine, P: Paging>(
    gather: &mut Gather<'_, '_, M, P>,
    word: &FolioWord<'_, '_, M, P>,
) {
    let (level, slot) = (word.locked.level(), word.slot);
    let honest = gather.rules().accessed == Accessed::SetBeforeCached;
    let old = word.locked.update(slot, |old| match P::decode(old, level, slot) {
        Entry::Leaf { pa, attrs } => Soft::migration(pa, kept(attrs, honest)).word(),
        _ => old,
    });
    let Entry::Leaf { attrs, .. } = P::decode(old, level, slot) else {
        unreachable!("leaves change under the lock only")
    };
    gather.note(word.covers, level, Used::of(attrs));
}

/// Gives what a migration entry keeps of a leaf: everything but its place in a group. A CPU that
/// has the leaf cached may still write through it until the flush, and its dirty bit may be lost
/// (G4), so a leaf that could be written is taken for dirty.
fn kept(attrs: Attrs, honest: bool) -> Attrs {
    let kept = attrs.without(Attrs::GROUPED);
    let is_cached = attrs.has(Attrs::ACCESSED) || !honest;
    if is_cached && attrs.has(Attrs::WRITE) { kept | Attrs::DIRTY } else { kept }
}
