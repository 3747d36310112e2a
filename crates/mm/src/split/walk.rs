//! Going over the words of one space that name frames of one folio.

use crate::frame::{AnonOffset, Index, Origin};
use crate::rmap::Pin;
use crate::space::user_half;
use crate::stock::Stock;
use crate::table::{At, Attrs, Edit, Paging, Sink, Soft, Stop, Tables, Verdict};
use foliant_machine::Machine;
use foliant_units::{FRAME_BYTES, Frame, FrameRange, Level, Order, Pa, Pages, Va, VaRange};

/// A folio, and where it was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Folio {
    pub(super) frames: FrameRange,
    pub(super) order: Order,
    pub(super) origin: Origin,
}

/// What an operation does with the words that name frames of a folio.
pub(super) trait FolioEdit {
    /// What becomes of a leaf.
    fn leaf(&self, at: At, pa: Pa, attrs: Attrs) -> Verdict;
    /// What becomes of a migration entry.
    fn taken(&self, at: At, pa: Pa, attrs: Attrs) -> Verdict;
}

impl Folio {
    pub(super) fn of<M: Machine, P: Paging>(
        stock: &Stock<'_, M, P>,
        head: Frame,
        order: Order,
    ) -> Folio {
        let frames = FrameRange::block(head, order);
        Folio { frames, order, origin: stock.origin(head) }
    }
    pub(super) fn head(&self) -> Frame {
        self.frames.start()
    }

    /// The numbers and first frames of its pieces of `order`.
    pub(super) fn pieces(
        &self,
        order: Order,
    ) -> impl DoubleEndedIterator<Item = (usize, Frame)> + use<> {
        let (head, step) = (self.head(), order.pages().get());
        let count = self.frames.pages().get() / step;
        (0..count).map(move |nth| (nth as usize, head.add(Pages::new(nth * step))))
    }

    /// The addresses that the folio can have under `offset`, if there are any. Indices wrap: where
    /// the range does, only its part from address 0 on counts.
    fn range<P: Paging>(&self, offset: AnonOffset) -> Option<VaRange> {
        let (start, pages) = (self.origin.index.at(offset), self.frames.pages().get());
        let end = self.origin.index.add(self.frames.pages()).at(offset);
        let start = if end.get() < pages * FRAME_BYTES { Va::new(0) } else { start };
        let range = VaRange::new(start, end.min(user_half::<P>().end()))?;
        (!range.is_empty()).then_some(range)
    }
}

/// The edit of a folio under one offset.
struct Under<'e, E> {
    folio: Folio,
    offset: AnonOffset,
    edit: &'e E,
}

impl<E> Under<'_, E> {
    /// Whether a word at `at` that names `pa` names a frame of the folio that is there under this
    /// offset: the ranges of two offsets may overlap, and each entry is met under its own one.
    fn is_its(&self, at: At, pa: Pa) -> bool {
        let inside = pa.frame().get().checked_sub(self.folio.head().get());
        let fits = at.level == Level::BASE || at.level.order() == Some(self.folio.order);
        let index = |pages| self.folio.origin.index.add(Pages::new(pages));
        fits && inside.is_some_and(|pages| index(pages) == Index::of(at.va, self.offset))
    }
}

impl<P: Paging, E: FolioEdit> Edit<P> for Under<'_, E> {
    fn leaf(&self, at: At, _: u64, pa: Pa, attrs: Attrs) -> Verdict {
        if self.is_its(at, pa) { self.edit.leaf(at, pa, attrs) } else { Verdict::Keep }
    }
    fn soft(&self, at: At, soft: Soft) -> Verdict {
        match (soft.migrating_leaf(), soft.broken_leaf()) {
            (Some((pa, attrs)), _) if self.is_its(at, pa) => self.edit.taken(at, pa, attrs),
            // A CPU is replacing an entry that named it, and may put the same one back.
            (_, Some((pa, _))) if self.is_its(at, pa) => Verdict::Busy,
            _ => Verdict::Keep,
        }
    }
}

/// Does with each word of `pin`'s space that names frames of `folio` what `edit` says, until
/// `is_enough`. The sink keeps tables from being given back while it descends.
pub(super) fn walk<'m, M: Machine, P: Paging, S: Sink<M, P>>(
    stock: &Stock<'m, M, P>,
    pin: &Pin<'m>,
    folio: Folio,
    edit: &impl FolioEdit,
    sink: &mut S,
    is_enough: impl Fn(&S) -> bool,
) {
    let tables: Tables<'_, M, P> = pin.tables(stock);
    for offset in pin.offsets(stock) {
        let Some(range) = folio.range::<P>(offset) else { continue };
        let (edit, mut rest) = (Under { folio, offset, edit }, range);
        while !rest.is_empty() && !is_enough(sink) {
            let swept = tables.edit(rest, &edit, sink).expect("user addresses");
            let is_over = matches!(swept.why, Stop::Done | Stop::Full);
            assert!(is_over, "a leaf of the folio lies where the folio can be: {swept:?}");
            rest = VaRange::new(swept.upto, range.end()).expect("it goes on inside the range");
        }
    }
}
