//! Putting entries back: to where they were, to another folio, or to the pieces of the one that
//! there was.

use super::walk::{Folio, FolioEdit, walk};
use crate::rmap::relatives;
use crate::space::{Area, Flags, Space, poisoned_place};
use crate::stock::Stock;
use crate::table::{At, Attrs, Locked, Paging, Run, Sink, Soft, Verdict};
use core::cell::Cell;
use foliant_machine::Machine;
use foliant_units::{FRAME_BYTES, Frame, Level, Pa, Va};

/// What takes the place of the frame that a migration entry names.
#[derive(Clone, Copy)]
pub(super) struct Leaf {
    pub(super) pa: Pa,
    pub(super) attrs: Attrs,
}

/// What a migration entry becomes.
#[derive(Clone, Copy)]
pub(super) enum Back {
    Leaf(Leaf),
    /// Nothing; or this leaf where the program fills what is missing itself: what was there is not
    /// missing.
    Nothing(Leaf),
    /// Nothing: an object has the page no more.
    Gone,
    /// Its memory is broken: this leaf in the tables of an object, and poison in all others.
    Broken(Leaf),
}

/// How a leaf as large as the folio comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// As one leaf.
    Whole,
    /// As a table of base leaves, which get these attributes besides.
    Table(Attrs),
}

/// Makes every migration entry of the folio a leaf again, of what `onto` says for the frame and
/// attributes that it kept, or nothing; `taken` is how many there are, in base pages. Says how many
/// became poison. The caller does the counting for the entries. No lock is held, and the flush is
/// done.
pub(super) fn put<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    folio: Folio,
    taken: u64,
    shape: Shape,
    onto: impl Fn(Frame, Attrs) -> Back,
) -> u64 {
    let (mut left, poisoned) = (taken, Cell::new(0));
    for pin in relatives(stock, folio.head(), taken) {
        if left == 0 {
            break;
        }
        let putting = Putting { shape, onto: &onto };
        let space = Space::of(stock, pin.member());
        let mut words = PutWords { stock, space, putting, left, poisoned: &poisoned };
        walk(stock, &pin, folio, &putting, &mut words, |words| words.left == 0);
        left = words.left;
    }
    assert!(left == 0, "{left} of {taken} entries of {folio:?} are lost (rmap::R1)");
    poisoned.get()
}

/// What migration entries become.
struct Putting<'p, F> {
    shape: Shape,
    onto: &'p F,
}

impl<F> Clone for Putting<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<F> Copy for Putting<'_, F> {}

impl<F> FolioEdit for Putting<'_, F> {
    fn leaf(&self, _: At, _: Pa, _: Attrs) -> Verdict {
        Verdict::Keep
    }
    fn taken(&self, _: At, _: Pa, _: Attrs) -> Verdict {
        Verdict::Hand
    }
}

/// Puts the leaves of one space.
struct PutWords<'s, 'm, 'p, M, P, F> {
    stock: &'s Stock<'m, M, P>,
    space: &'s Space,
    putting: Putting<'p, F>,
    /// Base pages that are migration entries still.
    left: u64,
    /// Those that became poison.
    poisoned: &'p Cell<u64>,
}

impl<M: Machine, P: Paging, F: Fn(Frame, Attrs) -> Back> PutWords<'_, '_, '_, M, P, F> {
    /// The word at `va` for the frame `pa`, of one page where it is no leaf; `known` is an area
    /// that was found under this lock.
    fn leaf(&self, va: Va, pa: Pa, attrs: Attrs, level: Level, known: &Cell<Option<Area>>) -> u64 {
        let leaf = match (self.putting.onto)(pa.frame(), attrs) {
            Back::Leaf(leaf) => Some(leaf),
            Back::Nothing(leaf) => self.is_armed(va, known).then_some(leaf),
            Back::Gone => None,
            Back::Broken(leaf) if self.space.is_object() => Some(leaf),
            Back::Broken(_) => {
                self.space.uncharge(self.stock.machine.me(), 1);
                self.poisoned.set(self.poisoned.get() + 1);
                return poisoned_place(0);
            }
        };
        // The shared zero page is charged to nobody.
        if leaf.is_none_or(|leaf| leaf.attrs.has(Attrs::SPECIAL)) {
            self.space.uncharge(self.stock.machine.me(), 1);
        }
        leaf.map_or(0, |leaf| P::leaf(leaf.pa, level, leaf.attrs))
    }
    /// Whether the program fills what is missing at `va` itself. The program's wish changes the
    /// area first and takes the table's lock then: what is not there by then was missing before.
    /// An area that is out may come back (space::S13), and if it does not, the entry goes too.
    #[inline(never)] // few entries become nothing
    fn is_armed(&self, va: Va, known: &Cell<Option<Area>>) -> bool {
        let find = || self.space.areas.find(self.stock.machine, va);
        let area = known.get().filter(|area| area.range.contains(va)).or_else(find);
        known.set(area);
        area.is_none_or(|area| area.flags.has(Flags::USERFAULT))
    }
}

impl<M: Machine, P: Paging, F> Sink<M, P> for PutWords<'_, '_, '_, M, P, F>
where
    F: Fn(Frame, Attrs) -> Back,
{
    const WAITS: bool = true;

    fn descend<R>(&self, find: impl FnOnce() -> R) -> R {
        let _reading = self.stock.reading();
        find()
    }
    fn add(&mut self, run: Run) {
        unreachable!("{run:?} was in use")
    }
    fn replace(&mut self, lock: &Locked<'_, M, P>, at: At, soft: Soft) {
        let was = soft.migrating_leaf().expect("a migration entry was handed over");
        let slot = lock.index_of(at.va);
        let left = self.left.checked_sub(at.range().pages().get());
        self.left = left.expect("no more entries than were taken (rmap::R1, split::T8)");
        let ((pa, attrs), known) = (was, Cell::new(None));
        match at.level.down() {
            Some(below) if let Shape::Table(more) = self.putting.shape => {
                let table = self.space.withdraw(self.stock);
                lock.expand(slot, table, |slot| {
                    let inside = slot.index() as u64 * FRAME_BYTES;
                    self.leaf(at.va.add(inside), pa.add(inside), attrs | more, below, &known)
                });
            }
            _ => lock.set(slot, self.leaf(at.va, pa, attrs, at.level, &known)),
        }
    }
}

/// Puts every entry back to where it was.
pub(super) fn put_back<M: Machine, P: Paging>(stock: &Stock<'_, M, P>, folio: Folio, taken: u64) {
    if taken > 0 {
        put(stock, folio, taken, Shape::Whole, |frame, attrs| {
            Back::Leaf(Leaf { pa: frame.pa(), attrs })
        });
    }
}
