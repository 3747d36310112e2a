//! Anchors: pages that keep their place while somebody reaches their memory past the tables, as a
//! device does.
//!
//! A pin keeps a folio's memory: what a program writes after a fork may be in a copy. An anchor
//! keeps the page at its address as well: as long as the program leaves it there, what the program
//! writes and what the holder of the anchor writes is in the same memory.
//!
//! ```text
//!   a fault makes the page the space's alone ─▶ its table locked: still an exclusive leaf? ─▶ counted, unlocked
//!   fork: an exclusive leaf of an anchored folio ─▶ stays as it is; the child gets a copy
//! ```
//!
//! **Invariants**
//! - A1. An anchor is counted under the lock of a table in which an exclusive leaf maps its pages,
//!   and the space says before that it may have some. So a fork, which looks at both under that
//!   lock, sees the anchor, or the caller finds the leaf exclusive no more.
//! - A2. An exclusive leaf of an anchored folio stays exclusive (S5) as long as the entry maps its
//!   page: a fork leaves it as it is, and nothing else takes that right. So no write of the program
//!   is to a copy.
//! - A3. A folio with an anchor is neither split, nor moved, nor made a part of a larger one, nor
//!   given back: an anchor counts for many pins.
//! - A4. It is told from walkers' pins by their number. Where many walkers keep a folio, a child
//!   gets a copy that it could have shared, and that is all.
//!
//! A page that the program unmaps or drops is anchored still, at no address. A missing page that
//! comes there later is another one.
//!
//! **Not here**: the fault that makes a page exclusive without writing to it (`fault`,
//! `Purpose::Anchor`), how the child's copy is made (`fork`).

use super::area::Flags;
use super::record::Space;
use super::seen::{Seen, SeenTables};
use crate::frame::Flag;
use crate::stock::{NoAnchor, Reference, Stock};
use crate::table::{Attrs, Entry, Paging};
use foliant_machine::Machine;
use foliant_units::{FRAME_BYTES, FrameRange, Pages, Va};

/// Anchors what is mapped at `va`, and what follows it of the same folio and area up to `upto`.
/// Gives the anchor and the frames. The caller is in a reader's section.
pub(crate) fn anchor<'s, 'm, M: Machine, P: Paging>(
    stock: &'s Stock<'m, M, P>,
    space: &Space,
    (va, upto): (Va, Va),
    rights: Flags,
) -> Result<(Reference<'s, 'm, M, P>, FrameRange), NoAnchor> {
    let view = SeenTables::new(stock, space);
    let area = view.area(va).ok_or(NoAnchor::NotYet)?;
    if area.flags.has(Flags::KERNEL) {
        return Err(NoAnchor::Kernel);
    }
    let found = view.walk(va);
    let write = if rights.has(Flags::WRITE) { Attrs::WRITE } else { Attrs::NONE };
    let wanted = Attrs::USER | Attrs::EXCLUSIVE | write;
    let Entry::Leaf { pa, attrs } = found.entry else { return Err(NoAnchor::NotYet) };
    if !area.flags.has(rights) || !attrs.has(wanted) {
        return Err(NoAnchor::NotYet);
    }
    space.note_anchor(); // A1
    let seen = Seen::one(&area, va, found.level, found.word);
    let agreed = view.agree(&seen).ok_or(NoAnchor::NotYet)?;
    let inside = va.offset_from(va.align_down(found.level.span())) / FRAME_BYTES;
    let frame = pa.frame().add(Pages::new(inside));
    let (anchor, order) = stock.anchor(frame)?;
    if stock.identity_of(anchor.head()).has(Flag::Poisoned) {
        return Err(NoAnchor::Broken);
    }
    let wide = upto.min(area.range.end()).offset_from(va).div_ceil(FRAME_BYTES);
    let most = wide.min(order.pages().get() - (frame.get() - anchor.head().get()));
    let pages = Pages::new(agreed.alike(va, frame, most, wanted));
    Ok((anchor, FrameRange::new(frame, pages).expect("a part of a folio")))
}
