//! What a frozen folio becomes: pieces, or another folio's memory.

use super::put::{Back, Leaf, Shape, put};
use super::walk::Folio;
use super::zeros::{Marks, is_zero};
use crate::frame::{Claim, Flag, Origin};
use crate::space::{Space, SpaceId};
use crate::stock::{Event, Frozen, Stock};
use crate::table::{Attrs, Paging};
use crate::zero;
use foliant_machine::Machine;
use foliant_units::{Frame, Level, Order, Pages};

/// What becomes of base pages that hold nothing but zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ZeroPieces {
    /// They stay pages.
    Keep,
    /// The shared zero page takes their place, and they are given back. Of an object's folio
    /// nothing takes it: the object has no such page any more. They stay pages where a program
    /// answers faults of the object, or did so once (space::watch::H6).
    Share,
    /// Nothing takes their place, and they are given back. Where something was noted on an entry,
    /// or the program fills what is missing itself, the shared zero page takes it.
    Drop,
}

/// What became of a folio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pieces {
    /// The order that it had.
    pub order: Order,
    /// Folios that it was split into.
    pub folios: u64,
    /// Pieces given back because nothing mapped them.
    pub unmapped: u64,
    /// Pieces given back because they held zeros.
    pub zero: u64,
}

/// Divides a folio into pieces of the order `into`, for which its entries were tallied, and puts
/// the entries back. The piece that has the frame which is `lost` is marked as broken before an
/// entry names it again, or lost where nothing maps it.
pub(super) fn divide<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    frozen: Frozen,
    (into, zeros): (Order, ZeroPieces),
    lost: Option<Frame>,
) -> Pieces {
    let (head, order, entries) = (frozen.head(), frozen.order(), frozen.entries());
    let folio = Folio::of(stock, head, order);
    stock.retire_head(frozen);
    stock.folios.split(head, order, into).expect("a folio is a block (claim::I1)");
    let made_in = made_in(stock, folio.origin);
    let zeros = if made_in == MadeIn::ArmedObject { ZeroPieces::Keep } else { zeros };
    let share = zeros != ZeroPieces::Keep && into == Order::BASE;
    let (mut gone, mut zero) = (Marks::default(), Marks::default());
    let mut pieces = Pieces { order, folios: 0, unmapped: 0, zero: 0 };
    // The first piece comes last: it has the descriptor of the old head, whose count of 0 keeps
    // others away from the frames that still look like tails of it.
    let is_lost = |piece| lost.is_some_and(|lost| into.head(lost) == piece);
    for (nth, piece) in folio.pieces(into).rev() {
        let counted = stock.tally(piece);
        if counted == 0 {
            gone.set(nth);
            pieces.unmapped += 1;
        } else if share && is_zero(stock, piece) {
            gone.set(nth);
            zero.set(nth);
            pieces.zero += 1;
        } else {
            let from_head = Pages::new(piece.get() - head.get());
            stock.publish((piece, into), folio.origin.piece(from_head), counted).keep();
            if is_lost(piece) {
                stock.flag(piece, Flag::Poisoned); // an entry that is back may be copied from (broken::W1)
            }
            pieces.folios += 1;
        }
    }
    let group = P::group(Level::BASE).filter(|group| into.bytes() >= group.span(Level::BASE));
    let (more, less) = match group {
        Some(_) => (Attrs::GROUPED, Attrs::NONE),
        None => (Attrs::NONE, Attrs::GROUPED),
    };
    put(stock, folio, entries, Shape::Table(more), |frame, attrs| {
        let attrs = attrs.without(less);
        let nth = (frame.get() - head.get()) >> into.get();
        if !zero.has(nth as usize) {
            return Back::Leaf(Leaf { pa: frame.pa(), attrs });
        }
        let shared = Leaf { pa: stock.zeros.page().pa(), attrs: shared_zero(attrs) };
        match zeros == ZeroPieces::Drop && !attrs.has(Attrs::UFFD_WP) {
            _ if made_in == MadeIn::Object => Back::Gone,
            true => Back::Nothing(shared),
            false => Back::Leaf(shared),
        }
    });
    for (nth, piece) in folio.pieces(into) {
        match gone.has(nth) {
            true if is_lost(piece) => stock.lose(stock.unlist(piece, into)),
            true => stock.release(stock.unlist(piece, into)),
            false => drop(stock.resume((piece, into))), // T8
        }
    }
    pieces
}

/// Where a folio was made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MadeIn {
    Program,
    Object,
    ArmedObject,
}
/// Where a folio of this origin was made: an object's tables name no page but its own.
fn made_in<M: Machine, P: Paging>(stock: &Stock<'_, M, P>, origin: Origin) -> MadeIn {
    let _reading = stock.reading();
    let id = SpaceId::found(stock, origin.tree).filter(|id| id.is_object());
    match id {
        None => MadeIn::Program,
        Some(id) if id.peek(stock).is_some_and(Space::is_armed_object) => MadeIn::ArmedObject,
        Some(_) => MadeIn::Object,
    }
}
/// An entry of a page of zeros names the shared one, and keeps what was noted on it.
fn shared_zero(attrs: Attrs) -> Attrs {
    attrs.without(Attrs::WRITE).without(Attrs::EXCLUSIVE) | Attrs::SPECIAL
}

/// Moves a frozen folio to the memory of `to`, a block of its order, and gives back the memory that
/// it had. The entries that were taken name the new frames.
pub(crate) fn relocate<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    frozen: Frozen,
    to: Claim,
) -> Claim {
    let (head, order, entries) = (frozen.head(), frozen.order(), frozen.entries());
    assert_eq!(order, to.order(), "a folio moves to a block of its size");
    let folio = Folio::of(stock, head, order);
    zero::copy_huge(stock, head.pa(), to.frames());
    stock.count_by(Event::CopiedBytes, order.bytes().get());
    let target = to.frame();
    let kept = stock.identity(head);
    stock.enlist(to, entries, folio.origin);
    if kept.has(Flag::PartlyMapped) {
        stock.keep_partly_mapped(target, order);
    }
    put(stock, folio, entries, Shape::Whole, |frame, attrs| {
        let pages = Pages::new(frame.get() - head.get());
        Back::Leaf(Leaf { pa: target.add(pages).pa(), attrs })
    });
    stock.delist_frozen(frozen)
}
