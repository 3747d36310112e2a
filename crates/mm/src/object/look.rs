//! Looking for a page of an object, without a lock.

use crate::frame::{AnonOffset, Flag, Index, Kind};
use crate::rmap::Attachment;
use crate::space::{Space, level_of};
use crate::stock::{Reference, Stock};
use crate::table::{Entry, Paging, SoftKind, Tables};
use foliant_machine::Machine;
use foliant_units::{FRAME_BYTES, Frame, Order, Pages, Va, VaRange};

/// What a look found.
pub(crate) enum Looked<'s, 'm, M: Machine, P: Paging> {
    /// The page.
    There(FoundPage<'s, 'm, M, P>),
    /// There is none.
    Nothing,
    /// Its folio is being split or moved, or cannot be kept now.
    OnItsWay,
    /// It changed meanwhile.
    Changed,
}

/// A page that was found, whose folio is pinned.
pub(crate) struct FoundPage<'s, 'm, M: Machine, P: Paging> {
    tables: Tables<'m, M, P>,
    /// Its address in the object's space.
    pub(crate) at: Va,
    pub(crate) frame: Frame,
    /// The size of its folio.
    pub(crate) folio: Order,
    /// Whether nobody has touched its folio yet, which was promised.
    pub(crate) is_promised: bool,
    pub(crate) pin: Reference<'s, 'm, M, P>,
}

/// Where the page that an attachment has at `va` is in its object's space.
pub(crate) fn place(attachment: Attachment<'_>, va: Va) -> Va {
    Index::of(va, attachment.offset()).at(AnonOffset::NONE)
}

/// Looks for the page at `at` of the space of an object, and keeps its folio. The caller is in a
/// reader's section, and stays in it as long as it asks the page anything.
pub(crate) fn look<'s, 'm, M: Machine, P: Paging>(
    stock: &'s Stock<'m, M, P>,
    object: &Space,
    at: Va,
) -> Looked<'s, 'm, M, P> {
    let tables = object.tables(stock);
    let there = tables.walk(at);
    let pa = match there.entry {
        Entry::Leaf { pa, .. } => pa,
        Entry::Soft(soft) if soft.kind == SoftKind::Migration => return Looked::OnItsWay,
        Entry::Soft(soft) if soft.is_waited_for() => return Looked::Changed,
        Entry::Table(_) => return Looked::Changed,
        Entry::None | Entry::Soft(_) => return Looked::Nothing,
    };
    let inside = (at.get() - there.va.get()) / FRAME_BYTES;
    let frame = pa.frame().add(Pages::new(inside));
    // It may be at its end, or have as many pins as there may be: it is looked for in another
    // section, not again in this one.
    let Some(Ok(pin)) = stock.reference_now(frame) else { return Looked::OnItsWay };
    // It was found in this section, and is the object's still: so it is what was pinned.
    if tables.walk(at).word & !P::UPDATED != there.word & !P::UPDATED {
        return Looked::Changed;
    }
    let identity = stock.identity_of(pin.head());
    let (folio, is_promised) = (identity.order(), identity.has(Flag::Promised));
    Looked::There(FoundPage { tables, at, frame, folio, is_promised, pin })
}

/// The same where the object has huge pages. No walker pins one: it is kept as an anchor is
/// (space::anchor), which is counted under the lock of the object's table.
pub(crate) fn look_at_huge<'s, 'm, M: Machine, P: Paging>(
    stock: &'s Stock<'m, M, P>,
    object: &Space,
    at: Va,
    order: Order,
) -> Looked<'s, 'm, M, P> {
    let tables = object.tables(stock);
    let Ok(locked) = tables.lock(at, level_of(order)) else { return Looked::Nothing };
    let pa = match locked.entry(locked.index_of(at)) {
        Entry::Leaf { pa, .. } => pa,
        Entry::Soft(soft) if soft.is_waited_for() => return Looked::OnItsWay,
        _ => return Looked::Nothing,
    };
    let Ok((pin, folio)) = stock.anchor(pa.frame()) else { return Looked::OnItsWay };
    drop(locked);
    let inside = at.offset_from(at.align_down(order.bytes())) / FRAME_BYTES;
    let frame = pa.frame().add(Pages::new(inside));
    Looked::There(FoundPage { tables, at, frame, folio, is_promised: false, pin })
}

impl<M: Machine, P: Paging> FoundPage<'_, '_, M, P> {
    /// Notes that its folio is touched.
    #[inline]
    pub(crate) fn touch(&self, stock: &Stock<'_, M, P>) {
        if self.is_promised {
            stock.unflag(self.pin.head(), Flag::Promised);
        }
    }
    /// Whether its memory was reported broken; of a huge page that of the frame itself.
    pub(crate) fn is_broken(&self, stock: &Stock<'_, M, P>) -> bool {
        let head = self.pin.head();
        let identity = stock.identity_of(head);
        let is_it = || {
            identity.kind() != Kind::Huge || identity.is_broken_at(self.frame.get() - head.get())
        };
        identity.has(Flag::Poisoned) && is_it()
    }
    /// Whether the object has the whole block of its folio that holds the page and is of this
    /// order, still.
    pub(crate) fn is_in(&self, order: Order) -> bool {
        let (first, head) = (self.at.align_down(order.bytes()), order.head(self.frame));
        let block = VaRange::sized(first, order.bytes()).expect("a part of the object");
        let pages = |va: Va| (va.get() - first.get()) / FRAME_BYTES;
        let mut next = first;
        for leaf in self.tables.leaves(block) {
            let Entry::Leaf { pa, .. } = leaf.entry else { return false };
            // A leaf of 2 MiB may begin before the block.
            let begins = leaf.va.max(first);
            let frame = pa.frame().add(Pages::new((begins.get() - leaf.va.get()) / FRAME_BYTES));
            if begins != next || frame != head.add(Pages::new(pages(begins))) {
                return false;
            }
            next = leaf.va.add(leaf.level.span().get());
        }
        next >= block.end()
    }
}
