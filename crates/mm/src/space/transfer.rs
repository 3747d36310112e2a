//! Pages that go from one place of a space to another, each as it is: its frame gets another
//! address, and where it was nothing is.
//!
//! ```text
//!   take     destination empty, source a page of the space's alone? ─▶ held, a migration entry in its place   ┐ up to 64 pages,
//!   flush    once for all of them                                                                            │ or a leaf of 2 MiB
//!   arrive   destination still empty? ─▶ its origin is there now, and its leaf                               │
//!   leave    source ─▶ nothing; or the leaf that it was, where something came to the destination meanwhile   ┘
//! ```
//!
//! Areas that were moved keep the origins of their pages, and note how far they were moved (rmap).
//! Here pages go one by one and in any order, as a collector compacts what is in use: distances
//! would become as many as pages. So it is the origin that changes, which may be done to what one
//! space alone has: no other member's tables are to be found by it.
//!
//! **Invariants**
//! - K1. A page goes only while it is held (stock::holds), and has one leaf, which is exclusive and
//!   which the transfer has replaced by a migration entry. So nobody looks for its entries while
//!   its origin changes, but to count them, and rmap::R1 holds when it is let go: the leaf at the
//!   destination comes after the origin, and the migration entry goes before the hold ends. What is
//!   counted is one leaf all the time. A pin of the page keeps its frame, which does not change.
//! - K2. No CPU has a translation at the old address when the page can be reached at the new one: a
//!   store to the old address is in the page before, or meets a missing page after.
//! - K3. A page is at one of the two places for every access: a fault of the old address waits
//!   while the word out of use is there (S6), and finds nothing then. What came to the destination
//!   meanwhile stays, and the page is back where it was.
//! - K4. What is charged for a page stays charged: the space has as many as before. A leaf of 2 MiB
//!   takes the table that is kept for it along (S4).
//! - K5. Pages go in the order of their addresses. The first that cannot go ends the transfer:
//!   those before it are at their new places, and it and those behind it were not touched.
//!
//! **Locking.** The space's writer, from the look to the end of a batch, so no area changes, no
//! entry is unmapped and no child is made meanwhile. One table at a time, and none while the flush
//! is waited for. Folios are held and never waited for under a lock (split, Locking). What is out
//! of use is waited for by faults alone.
//!
//! **Not here**: folios that are to be split first (the face has it done, without the writer);
//! which handler is told.

use super::area::{Area, Flags};
use super::error::RangeError;
use super::ops::{check, opened};
use super::record::Space;
use super::steps::Steps;
use super::{attrs, kept, split_leaf};
use crate::flush::{Gather, Used};
use crate::stock::{Held, NoTable, NotHeld, Stock, Supply};
use crate::table::{
    Attrs, Blocked, Entry, Found, Gap, Locked, Missing, Paging, Slot, Slots, Soft, Tables,
};
use core::{error, fmt};
use foliant_machine::Machine;
use foliant_units::{Bytes, Frame, Level, Pa, Va, VaRange};

/// Pages that go with one flush.
const BATCH: usize = 64;

/// What becomes of a place of the source where nothing is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holes {
    /// The transfer ends there.
    Refused,
    /// It is left out: nothing comes to its destination.
    Skipped,
}

/// Why a page was not transferred.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransferError {
    /// One of the ranges is refused, or there is no memory for a table.
    Range(RangeError),
    /// The first address, or the second, its destination, is not in writable memory of the space's
    /// own, which has the same rights at both and whose faults the program answers at the second.
    Unsuitable(Va, Va),
    /// Something is at this address already.
    Present(Va),
    /// Nothing is at this address.
    Absent(Va),
    /// The page at this address may be a child's too, or is a part of a larger folio that somebody
    /// keeps from being split.
    Shared(Va),
    /// What is at this address is no page: a guard, a marker, poison, or broken memory.
    NoPage(Va),
}

impl From<RangeError> for TransferError {
    fn from(error: RangeError) -> TransferError {
        TransferError::Range(error)
    }
}
impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransferError::Range(error) => error.fmt(f),
            TransferError::Unsuitable(from, to) => write!(
                f,
                "pages go from {from} to {to} where both are private, writable and alike, and the second is armed"
            ),
            TransferError::Present(va) => {
                write!(f, "something is at {va} already: drop it first")
            }
            TransferError::Absent(va) => write!(f, "nothing is at {va}: let holes be skipped"),
            TransferError::Shared(va) => {
                write!(
                    f,
                    "the page at {va} is shared, or its folio is pinned: write to it, or try again"
                )
            }
            TransferError::NoPage(va) => write!(f, "no page is at {va}, but a mark of one"),
        }
    }
}
impl error::Error for TransferError {}

/// A transfer that ended early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Untransferred {
    /// How much of it was done, from its first address on (K5).
    pub done: Bytes,
    /// Why the page behind that stays where it is.
    pub why: TransferError,
}

impl fmt::Display for Untransferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {} bytes were done", self.why, self.done.get())
    }
}
impl error::Error for Untransferred {}

/// Why a batch ends before a place.
pub(crate) enum Halt {
    Failed(TransferError),
    /// The folio of this frame is larger than what goes: it is split first.
    Split(Frame),
    /// Somebody else holds the folio.
    Taken,
    /// A word that somebody else has out of use. At the first place it was waited for.
    Waits,
    /// It is something else by now.
    Changed,
}

impl<E: Into<TransferError>> From<E> for Halt {
    fn from(why: E) -> Halt {
        Halt::Failed(why.into())
    }
}

/// What was taken at a place of the source.
enum Out<'t, 'm, M: Machine, P: Paging> {
    Hole,
    /// A leaf.
    Page(Held<'t, 'm, M, P>, Pa, Attrs),
    /// A leaf of the shared page of zeros.
    Zeros(Pa, Attrs),
}

/// Places side by side: as many from an address on as go to as many from another on.
#[derive(Clone, Copy)]
struct Passage {
    from: Va,
    to: Va,
    level: Level,
    places: usize,
}

impl Passage {
    fn slots(&self, first: Va) -> Slots {
        Slots::new(Slot::of(first, self.level), self.places).expect("they lie in one table")
    }
}

/// Transfers the first pages of `from` to addresses from `to` on, with one flush, and says how many
/// bytes are done. The caller goes on with what is behind them.
pub(crate) fn transfer<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    (from, to): (VaRange, Va),
    holes: Holes,
    steps: &mut Steps,
) -> Result<Bytes, Halt> {
    check::<P>(from)?;
    let target = VaRange::sized(to, from.bytes()).ok_or(RangeError::Outside(to))?;
    check::<P>(target)?;
    let _writer = space.writer.lock(stock.machine, steps.outside());
    let unsuitable = TransferError::Unsuitable(from.start(), to);
    let find = |va| space.areas.find(stock.machine, va).ok_or(unsuitable);
    let (source, dest) = (find(from.start())?, find(to)?);
    if !suits(&source, &dest) {
        return Err(unsuitable.into());
    }
    let (from, target) = (from.intersect(source.range), target.intersect(dest.range));
    let bytes = from.bytes().get().min(target.bytes().get());
    let run = Transfer { stock, space, tables: space.tables(stock), dest, holes };
    let there = run.tables.walk(from.start());
    let passage = match there.entry {
        Entry::Leaf { pa, attrs } if there.level > Level::BASE && !attrs.has(Attrs::SPECIAL) => {
            run.large_passage((there, pa, attrs), (from.start(), to), bytes)?
        }
        Entry::Leaf { .. } if there.level > Level::BASE => {
            split_leaf(stock, space, &run.tables, there.va, there.level); // page by page
            run.small_passage((from.start(), to), bytes)
        }
        _ => run.small_passage((from.start(), to), bytes),
    };
    run.batch(passage)
}

/// Whether pages of one area may go to another.
fn suits(source: &Area, dest: &Area) -> bool {
    let others = Flags::OBJECT.with(Flags::KERNEL);
    let is_own =
        |area: &Area| area.flags.and(others) == Flags::NONE && area.flags.huge_order().is_none();
    let rights = |area: &Area| area.flags.and(Flags::RIGHTS);
    [source, dest].into_iter().all(is_own)
        && source.flags.has(Flags::WRITE)
        && rights(source) == rights(dest)
        && dest.is_armed()
}

struct Transfer<'t, 'm, M: Machine, P: Paging> {
    stock: &'t Stock<'m, M, P>,
    space: &'t Space,
    tables: Tables<'m, M, P>,
    dest: Area,
    holes: Holes,
}

impl<'t, 'm, M: Machine, P: Paging> Transfer<'t, 'm, M, P> {
    /// Places of base pages: those of one table at either end, and one at a time where the ranges
    /// overlap, for each makes room for the next.
    fn small_passage(&self, (from, to): (Va, Va), bytes: u64) -> Passage {
        let level = Level::BASE;
        let left = |va: Va| Level::ENTRIES - Slot::of(va, level).index();
        let pages = (bytes / level.span().get()) as usize;
        let apart = if from.get().abs_diff(to.get()) < bytes { 1 } else { BATCH };
        Passage { from, to, level, places: pages.min(left(from)).min(left(to)).min(apart) }
    }
    /// The place of a large leaf that goes as a whole; or what is done before base pages go.
    fn large_passage(
        &self,
        (leaf, pa, attrs): (Found, Pa, Attrs),
        (from, to): (Va, Va),
        bytes: u64,
    ) -> Result<Passage, Halt> {
        let span = leaf.level.span();
        let is_whole = leaf.va == from && to.is_aligned(span) && bytes >= span.get();
        let there = self.tables.walk(to);
        let is_large = there.level > Level::BASE && matches!(there.entry, Entry::Leaf { .. });
        if !is_large && !attrs.has(Attrs::EXCLUSIVE) {
            return Err(TransferError::Shared(from).into());
        }
        match there.entry {
            // A table in its way may be empty; it stays (S2).
            Entry::None if is_whole && there.level >= leaf.level => {
                Ok(Passage { from, to, level: leaf.level, places: 1 })
            }
            Entry::None | Entry::Table(_) => Err(Halt::Split(pa.frame())),
            Entry::Soft(soft) if soft.is_waited_for() => {
                self.wait(self.tables.lock(to, there.level));
                Err(Halt::Waits)
            }
            Entry::Leaf { .. } | Entry::Soft(_) => Err(TransferError::Present(to).into()),
        }
    }

    /// See the module's text.
    fn batch(&self, passage: Passage) -> Result<Bytes, Halt> {
        let mut gather = Gather::new(self.stock, &self.space.member.target);
        let places = self.empty_in(passage)?.min(gather.left());
        let passage = Passage { places, ..passage };
        let mut outs = [const { Out::Hole }; BATCH];
        let (taken, halt) = self.take(passage, &mut gather, &mut outs);
        if let (0, Some(halt)) = (taken, halt) {
            return Err(halt);
        }
        gather.cover_others(); // split::T7
        gather.settle(); // space::seen::W3
        gather.flush(); // K2
        let outs = &outs[..taken];
        let arrived = self.arrive(passage, outs);
        self.leave(passage, outs, arrived); // what is held is let go behind it
        match arrived {
            0 if passage.level > Level::BASE => Err(Halt::Changed), // perhaps an empty table came
            0 => Err(TransferError::Present(passage.to).into()),
            _ => Ok(Bytes::new(arrived as u64 * passage.level.span().get())),
        }
    }
    /// How many places of the destination are empty from the first on, in a table that is made
    /// where it lacks.
    fn empty_in(&self, passage: Passage) -> Result<usize, Halt> {
        let Passage { from, to, level, .. } = passage;
        let source = self.tables.walk(from);
        if source.level > level && source.entry == Entry::None {
            self.leave_out(from)?;
        }
        match Supply::of(self.stock, &self.space.charge).ensure(&self.tables, to, level) {
            Ok(()) => {}
            Err(NoTable::Record(why)) => return Err(RangeError::from(why).into()),
            Err(NoTable::Blocked(Blocked::Leaf(_))) => {
                return Err(TransferError::Present(to).into());
            }
            Err(NoTable::Blocked(Blocked::Soft(level))) => {
                self.wait(self.tables.lock(to, level));
                return Err(Halt::Waits);
            }
            Err(NoTable::Blocked(why)) => panic!("{to} was checked, and yet: {why}"),
        }
        let locked = self.tables.lock(to, level).expect("supplied, and kept by the writer");
        let slots = passage.slots(to);
        let used = locked.first_used(slots).map(|used| used.index() - slots.first().index());
        match (used, locked.entry(slots.first())) {
            (None, _) => Ok(passage.places),
            (Some(0), Entry::Soft(soft)) if soft.is_waited_for() => {
                self.wait(Ok(locked));
                Err(Halt::Waits)
            }
            (Some(0), _) => Err(TransferError::Present(to).into()),
            (Some(places), _) => Ok(places),
        }
    }
    /// Goes over a hole, if holes are left out.
    fn leave_out(&self, hole: Va) -> Result<(), TransferError> {
        match self.holes {
            Holes::Skipped => Ok(()),
            Holes::Refused => Err(TransferError::Absent(hole)),
        }
    }
    /// Waits for the owner of a word that is out of use.
    fn wait(&self, locked: Result<Locked<'m, M, P>, Missing>) {
        locked.into_iter().for_each(|locked| locked.let_go().wait());
    }

    /// Takes what is at the source out of use, up to what cannot go. Says how many places were gone
    /// over, and why no more.
    fn take(
        &self,
        passage: Passage,
        gather: &mut Gather<'_, 'm, M, P>,
        outs: &mut [Out<'t, 'm, M, P>; BATCH],
    ) -> (usize, Option<Halt>) {
        let locked = match self.tables.lock(passage.from, passage.level) {
            Ok(locked) => locked,
            Err(Missing { what: Gap::None, .. }) => match self.leave_out(passage.from) {
                Ok(()) => return (passage.places, None),
                Err(why) => return (0, Some(why.into())),
            },
            Err(Missing { what: Gap::Soft, level }) => {
                self.wait(self.tables.lock(passage.from, level));
                return (0, Some(Halt::Waits));
            }
            Err(_) => return (0, Some(Halt::Changed)),
        };
        for (nth, slot) in passage.slots(passage.from).iter().enumerate() {
            match self.take_one(&locked, slot, gather) {
                Ok(out) => outs[nth] = out,
                Err(Halt::Waits) if nth == 0 => {
                    self.wait(Ok(locked));
                    return (0, Some(Halt::Waits));
                }
                Err(halt) => return (nth, Some(halt)),
            }
        }
        (passage.places, None)
    }
    fn take_one(
        &self,
        locked: &Locked<'m, M, P>,
        slot: Slot,
        gather: &mut Gather<'_, 'm, M, P>,
    ) -> Result<Out<'t, 'm, M, P>, Halt> {
        let (va, level) = (locked.va_of(slot), locked.level());
        let order = level.order().expect("a leaf's level");
        let (pa, seen) = match locked.entry(slot) {
            Entry::None => {
                self.leave_out(va)?;
                return Ok(Out::Hole);
            }
            Entry::Leaf { pa, attrs } => (pa, attrs),
            Entry::Soft(soft) if soft.is_waited_for() => return Err(Halt::Waits),
            Entry::Soft(_) => return Err(TransferError::NoPage(va).into()),
            Entry::Table(_) => return Err(Halt::Changed), // it was a leaf a moment ago
        };
        let held = match seen.has(Attrs::SPECIAL) {
            true => None,
            false if !seen.has(Attrs::EXCLUSIVE) => {
                return Err(TransferError::Shared(va).into());
            }
            false => Some(match self.stock.hold(pa.frame()) {
                Ok(held) if held.order() > order => return Err(Halt::Split(pa.frame())),
                Ok(held) => held,
                Err(NotHeld::Busy) => return Err(Halt::Taken),
                Err(_) => return Err(TransferError::NoPage(va).into()),
            }),
        };
        let accessed = self.stock.machine.rules().accessed;
        let kept_of = |word| match P::decode(word, level, slot) {
            Entry::Leaf { attrs, .. } => kept(attrs, accessed),
            _ => unreachable!("a leaf changes under its table's lock alone"),
        };
        let out = |word| match held {
            None => Soft::breaking(pa, kept_of(word)).word(),
            Some(_) => Soft::migration(pa, kept_of(word)).word(),
        };
        let attrs = kept_of(locked.update(slot, out));
        let range = VaRange::sized(va, level.span()).expect("a page of the space");
        gather.note(range, level, Used::of(attrs));
        Ok(match held {
            None => Out::Zeros(pa, attrs),
            Some(held) => Out::Page(held, pa, attrs),
        })
    }

    /// Maps what was taken at the destination, up to a place where something is by now. Says how
    /// many places are done.
    fn arrive(&self, passage: Passage, outs: &[Out<'t, 'm, M, P>]) -> usize {
        let locked = self.tables.lock(passage.to, passage.level);
        let locked = locked.expect("supplied, and kept by the writer");
        for (nth, (slot, out)) in passage.slots(passage.to).iter().zip(outs).enumerate() {
            if locked.get(slot) != 0 {
                return nth;
            }
            let word = match out {
                Out::Hole => continue,
                Out::Zeros(pa, attrs) => P::leaf(*pa, passage.level, attrs.without(Attrs::UFFD_WP)),
                Out::Page(held, pa, attrs) => {
                    let member = &self.space.member;
                    let origin = member.origin(locked.va_of(slot), self.dest.own_offset());
                    self.stock.set_origin(held.head(), origin); // K1
                    P::leaf(*pa, passage.level, self.arrived(*attrs))
                }
            };
            locked.set(slot, word);
        }
        outs.len()
    }
    /// What a page says at its new place: that it is written, as one that is new.
    fn arrived(&self, old: Attrs) -> Attrs {
        let own = Attrs::EXCLUSIVE | Attrs::SOFT_DIRTY | old.and(Attrs::TOUCHED);
        opened::<P>(attrs(self.dest.flags) | own, self.dest.flags)
    }
    /// Empties the source as far as it has arrived, and gives the rest its leaves back.
    fn leave(&self, passage: Passage, outs: &[Out<'t, 'm, M, P>], arrived: usize) {
        let locked = self.tables.lock(passage.from, passage.level);
        let Ok(locked) = locked else { return }; // there were holes alone
        for (nth, (slot, out)) in passage.slots(passage.from).iter().zip(outs).enumerate() {
            match *out {
                Out::Hole => {}
                Out::Page(..) | Out::Zeros(..) if nth < arrived => locked.set(slot, 0),
                Out::Page(_, pa, attrs) | Out::Zeros(pa, attrs) => {
                    locked.set(slot, P::leaf(pa, passage.level, attrs));
                }
            }
        }
    }
}
