//! Putting entries back: to where they were, to another folio, or to the pieces of the one that
//! there was.

use super::places::{EntryState, Folio, FolioWord, Next, Ran, places};
use crate::rmap::relatives;
use crate::space::Space;
use crate::stock::Stock;
use crate::table::{Attrs, Paging};
use foliant_machine::Machine;
use foliant_units::{Frame, Level, Pa, Pages};

/// What takes the place of the frame that a migration entry names.
#[derive(Clone, Copy)]
pub(super) struct Leaf {
    pub(super) pa: Pa,
    pub(super) attrs: Attrs,
}

/// How a leaf as large as the folio comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// As one leaf.
    Whole,
    /// As a table of base leaves.
    Table,
}

/// Hands every migration entry of the folio to `act`; `taken` is how many there are, in base pages.
pub(super) fn each_taken<'s, 'm, M: Machine, P: Paging>(
    stock: &'s Stock<'m, M, P>,
    folio: Folio,
    taken: u64,
    mut act: impl FnMut(&Space, &FolioWord<'_, 'm, M, P>),
) {
    let mut left = taken;
    for pin in relatives(stock, folio.head(), taken) {
        if left == 0 {
            return;
        }
        let space = Space::of(stock, pin.member());
        let ran = places(stock, pin, folio).run(|word| {
            if word.state == EntryState::Taken {
                act(space, word);
                left -= word.covers.pages().get();
            }
            if left == 0 { Next::Enough } else { Next::On }
        });
        debug_assert!(ran == Ran::Done, "nothing pauses");
    }
    assert!(left == 0, "{left} of {taken} entries of {folio:?} are lost (rmap::R1)");
}

/// Makes every migration entry of the folio a leaf again, of what `onto` says for the frame and
/// attributes that it kept. The caller does the counting for the entries. No lock is held, and the
/// flush is done.
pub(super) fn put<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    folio: Folio,
    taken: u64,
    shape: Shape,
    onto: impl Fn(Frame, Attrs) -> Leaf,
) {
    each_taken(stock, folio, taken, |space, word| {
        let (level, slot) = (word.locked.level(), word.slot);
        let leaf = |nth: u64, at| {
            let frame = word.pa.frame().add(Pages::new(nth));
            let leaf = onto(frame, word.attrs);
            // The shared zero page is charged to nobody.
            if leaf.attrs.has(Attrs::SPECIAL) {
                space.uncharge(stock.machine.me(), 1);
            }
            P::leaf(leaf.pa, at, leaf.attrs)
        };
        if level == Level::BASE || shape == Shape::Whole {
            return word.locked.set(slot, leaf(0, level));
        }
        let table = space.withdraw(stock);
        let below = level.down().expect("it is no base leaf");
        word.locked.expand(slot, table, |slot| leaf(slot.index() as u64, below));
    });
}

/// Puts every entry back to where it was.
pub(super) fn put_back<M: Machine, P: Paging>(stock: &Stock<'_, M, P>, folio: Folio, taken: u64) {
    if taken > 0 {
        put(stock, folio, taken, Shape::Whole, |frame, attrs| Leaf { pa: frame.pa(), attrs });
    }
}
