//! Forking: a second space with the same pages, each copied when it is first written.
//!
//! ```text
//!   parent's table, locked ── a run of leaves ─▶ less the rights to write and to have for itself (S5)
//!          └─ child's table, locked behind it ◀─ the same run, never used, with a reference for each entry
//! ```
//!
//! What the child needs is taken before a table is locked: the table of the same addresses, room in
//! its charge for the pages of a run and, for a large leaf, the table that is kept for its split.
//!
//! A page of an anchored folio stays the parent's alone (`anchor`): the child gets a copy of it,
//! which is made before its table is locked, and its large leaf or group is taken apart first. What
//! the parent writes meanwhile is in the copy or not, as if it had been written after the fork.

use super::area::{Area, Flags};
use super::attach;
use super::error::RangeError;
use super::life::{EndError, create, end};
use super::names::SpaceId;
use super::record::Space;
use super::split_leaf;
use super::steps::Steps;
use super::user_half;
use super::walk::Noting;
use crate::flush::Gather;
use crate::folio::Class;
use crate::frame::{AnonOffset, Claim, Flag, Kind};
use crate::stock::{Event, NoTable, Reference, Stock, Supply, record};
use crate::sync::{Ordering, Outside};
use crate::table::{
    At, Attrs, Edit, Locked, Paging, Progress, Run, Sink, Slot, Slots, Soft, SoftKind, Stop,
    Tables, Verdict, What,
};
use crate::zero;
use core::cell::Cell;
use foliant_machine::{Machine, Owner, Replace};
use foliant_units::{FRAME_BYTES, Frame, FrameRange, Level, Order, Pa, Pages, Va, VaRange};

/// Takes a huge page from a pool and copies into it the one of this order that begins at the frame;
/// `None` where there is none to be had.
pub(crate) type CopyHuge<'c> = dyn Fn(Frame, Order, &mut Outside) -> Option<FrameRange> + 'c;

/// Copies `parent` into a new space named by `stamp`; where `shares` says no to all areas that a
/// leaf may reach over, the child has the areas alone. Without memory the half-made child is ended
/// again; the parent's pages may then be write-protected, which costs a fault each and changes
/// nothing else.
pub(crate) fn fork<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    parent: &Space,
    stamp: u32,
    (shares, copy_huge): (&dyn Fn(&Area) -> bool, &CopyHuge<'_>),
    steps: &mut Steps,
) -> Result<SpaceId, RangeError> {
    let _writer = parent.writer.lock(stock.machine, steps.outside());
    let id = create(stock, stamp, parent.charge.limit())?;
    let child: &Space = record(stock.machine, id.frame().pa());
    child.thp_off.store(parent.thp_off.load(Ordering::Relaxed), Ordering::Relaxed);
    let (from, to) = (parent.tables(stock), child.tables(stock));
    let cost = Cell::new(Cost::Nothing);
    let fork = Fork { stock, parent, child, from, to, shares, copy_huge, cost };
    match fork.run(steps) {
        Ok(()) => Ok(id),
        Err(error) => match end(stock, id, steps) {
            Ok(()) => Err(error),
            Err(EndError::NoSpace | EndError::Running(_)) => {
                unreachable!("nobody knows the child yet")
            }
        },
    }
}

struct Fork<'f, 'm, M: Machine, P: Paging> {
    stock: &'f Stock<'m, M, P>,
    parent: &'f Space,
    child: &'f Space,
    from: Tables<'m, M, P>,
    to: Tables<'m, M, P>,
    shares: &'f dyn Fn(&Area) -> bool,
    copy_huge: &'f CopyHuge<'f>,
    /// What the leaf that was looked at last costs the child.
    cost: Cell<Cost>,
}

/// The pages of a table of base entries, and those of the large leaf that stands in its place.
const TABLE: u64 = Level::ENTRIES as u64;

/// What a leaf of the parent costs the child, which gets one too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cost {
    /// Nothing: a page of zeros is nobody's, and a pool's pages were paid for when it was filled.
    Nothing,
    /// Its pages: at least so many for all that change with it (table::I11), and no more in a run
    /// than the second number.
    Pages(usize, usize),
    /// So many pages, none of them for shared zeros, and a table kept for its split.
    Deposit(u64),
    /// A copy of the anchored page that is here, of this size: a huge page, or one of a folio.
    Copy(Frame, Va, Order),
}

/// A copy that the child gets, made ahead, with a reference for its entry.
struct OwnCopy<'s, 'm, M: Machine, P: Paging> {
    head: Frame,
    pages: Pages,
    /// What it is a copy of, and where that is.
    of: (Frame, Va),
    /// What keeps the original as it is. The parent's entry keeps that of a huge page, which nobody
    /// but the holder of the parent's writer takes out.
    kept: Option<Reference<'s, 'm, M, P>>,
}

impl<'f, 'm, M: Machine, P: Paging> Fork<'f, 'm, M, P> {
    fn run(&self, steps: &mut Steps) -> Result<(), RangeError> {
        // The child keeps the fork tree's record.
        self.child.charge.charge_records(self.stock.machine.me(), 1)?;
        // It joins before its first entry is made (rmap::R2).
        self.child.member.join(self.stock, &self.child.charge, &self.parent.member)?;
        let mut gather = Gather::new(self.stock, &self.parent.member.target);
        let done = self.areas(&mut gather, steps);
        gather.settle();
        gather.flush(); // before the child may run: nobody writes what it shares
        done
    }

    fn areas(
        &self,
        gather: &mut Gather<'f, 'm, M, P>,
        steps: &mut Steps,
    ) -> Result<(), RangeError> {
        let (machine, all) = (self.stock.machine, user_half::<P>());
        // Kernel memory is shared with the kernel: the child has to ask for it itself.
        let copied = |area: &Area| !area.flags.has(Flags::KERNEL);
        for area in self.parent.areas.overlapping(machine, all).filter(copied) {
            self.child.areas.prepare(self.stock, &self.child.charge)?;
            // The child has no reservations: it gets huge pages as long as there are some.
            let flags = match area.flags.huge_order() {
                Some(_) => area.flags.with(Flags::NORESERVE),
                None => area.flags,
            };
            let flags = flags.without(Flags::ARMED); // the handler knows of one space (watch::H4)
            let area = attach::copied(self.stock, self.child, &Area { flags, ..area })?;
            attach::put_area(self.stock, self.child, &area);
            steps.take_flushed(gather, machine, 1);
        }
        // Areas side by side are gone over together, for a large leaf may reach over those that
        // advice has cut; not over two with different rights.
        // What is in an area of a shared object is the object's: the child faults for it.
        let has_own = |area: &Area| copied(area) && !area.flags.has(Flags::SHARED);
        let mut areas = self.parent.areas.overlapping(machine, all).filter(has_own).peekable();
        while let Some(area) = areas.next() {
            let rights = |area: &Area| area.flags.and(Flags::RIGHTS);
            let (mut last, mut shares) = (area, (self.shares)(&area));
            let goes_on = |last: &Area, next: &Area, shares| {
                let is_like = rights(next) == rights(last) || shares && (self.shares)(next);
                next.range.start() == last.range.end() && is_like
            };
            while let Some(next) = areas.next_if(|next| goes_on(&last, next, shares)) {
                shares |= (self.shares)(&next);
                last = next;
            }
            if !shares {
                continue;
            }
            let end = last.range.end();
            self.share(gather, steps, VaRange::new(area.range.start(), end).expect("areas"))?;
        }
        Ok(())
    }

    /// Shares what is in `range`.
    fn share(
        &self,
        gather: &mut Gather<'f, 'm, M, P>,
        steps: &mut Steps,
        range: VaRange,
    ) -> Result<(), RangeError> {
        self.cost.set(Cost::Nothing);
        let mut sink = Sharing {
            fork: self,
            noting: Noting { machine: self.stock.machine, gather, steps },
            copy: None,
            own: None,
            supply: Supply::of(self.stock, &self.child.charge),
            missing: None,
            wanted: Cell::new(false),
            charged: 0,
            deposit: None,
            failed: Ok(()),
        };
        let mut rest = range;
        while !rest.is_empty() && sink.failed.is_ok() {
            let swept = self.from.edit(rest, self, &mut sink).expect("areas lie in the half");
            match swept.why {
                Stop::Done | Stop::Full => {}
                // It is anchored, or only a part of it.
                Stop::Straddles { va, level } => {
                    split_leaf(self.stock, self.parent, &self.from, va, level);
                }
                Stop::Busy(_) => unreachable!("the walk waits for it"),
            }
            rest = VaRange::new(swept.upto, range.end()).expect("it goes on inside the range");
        }
        sink.finish()
    }

    fn is_huge(&self, frame: Frame) -> bool {
        self.stock.identity(frame).kind() == Kind::Huge
    }
    /// Whether the parent's leaf is to stay as it is, for its page may be anchored. That was
    /// counted under this lock, and that the parent may have anchors was said before (anchor::A1).
    fn may_be_anchored(&self, frame: Frame, attrs: Attrs) -> bool {
        attrs.has(Attrs::EXCLUSIVE)
            && self.parent.may_have_anchors()
            && self.stock.may_be_anchored(frame)
    }
    /// What becomes of such a leaf.
    fn left(&self, at: At, frame: Frame, attrs: Attrs) -> Verdict {
        let order = match at.level {
            Level::BASE if !attrs.has(Attrs::GROUPED) => Order::BASE,
            level if level > Level::BASE && self.is_huge(frame) => {
                self.stock.identity(frame).order()
            }
            _ => return Verdict::Split,
        };
        self.cost.set(Cost::Copy(frame, at.va, order));
        Verdict::Show
    }
    /// How many pages may be shared in one run from a base page on: those of its folio, where
    /// another one may be anchored.
    fn alike(&self, frame: Frame) -> usize {
        if !self.parent.may_have_anchors() {
            return usize::MAX;
        }
        let (head, folio) = self.stock.folio_of(frame);
        (folio.order().pages().get() - (frame.get() - head.get())) as usize
    }
}

/// Without write and exclusive rights (S5).
fn shared(attrs: Attrs) -> Attrs {
    attrs.without(Attrs::WRITE).without(Attrs::EXCLUSIVE)
}

impl<M: Machine, P: Paging> Edit<P> for Fork<'_, '_, M, P> {
    /// What the child gets is alike for all words of a run.
    fn ignores(&self) -> u64 {
        0
    }
    fn leaf(&self, at: At, _: u64, pa: Pa, attrs: Attrs) -> Verdict {
        if self.may_be_anchored(pa.frame(), attrs) {
            return self.left(at, pa.frame(), attrs);
        }
        self.cost.set(match at.level {
            Level::BASE if attrs.has(Attrs::SPECIAL) => Cost::Nothing,
            Level::BASE => Cost::Pages(P::unit(at.level, attrs), self.alike(pa.frame())),
            _ if attrs.has(Attrs::SPECIAL) => Cost::Deposit(0),
            _ if self.is_huge(pa.frame()) => Cost::Nothing,
            _ => Cost::Deposit(TABLE),
        });
        match self.stock.machine.rules().replace {
            _ if shared(attrs) == attrs => Verdict::Show,
            Replace::InPlace if !attrs.has(Attrs::GROUPED) => {
                Verdict::Take(P::leaf(pa, at.level, shared(attrs)))
            }
            _ => Verdict::Break(shared(attrs)), // S10
        }
    }
    fn soft(&self, at: At, soft: Soft) -> Verdict {
        self.cost.set(Cost::Nothing);
        match soft.kind {
            _ if soft.is_waited_for() => Verdict::Busy,
            SoftKind::Marker => Verdict::Keep, // as above
            _ if at.level == Level::BASE || soft.kind == SoftKind::Poison => Verdict::Show,
            _ => Verdict::Keep, // a spent entry: the child has no reservations
        }
    }
}

/// The sink of what is shared: the child's tables.
struct Sharing<'s, 'f, 'm, M: Machine, P: Paging> {
    fork: &'s Fork<'f, 'm, M, P>,
    noting: Noting<'s, 'f, 'm, M, P>,
    /// The child's table of the addresses at work, which walks of the reverse map alone reach
    /// besides.
    copy: Option<Locked<'m, M, P>>,
    /// A copy of a page that stays the parent's alone.
    own: Option<OwnCopy<'s, 'm, M, P>>,
    supply: Supply<'s, 'm, M, P>,
    /// The first address and the level of the table that the child lacks.
    missing: Option<(Va, Level)>,
    /// Whether a leaf was met for which something was lacking.
    wanted: Cell<bool>,
    /// Pages that the child is charged for and does not have yet.
    charged: u64,
    /// A table to be kept for a leaf, and the pages that were charged with it.
    deposit: Option<(Claim, u64)>,
    failed: Result<(), RangeError>,
}

impl<'s, 'm, M: Machine, P: Paging> Sharing<'s, '_, 'm, M, P> {
    /// Sees to what the child lacks for the leaf that was met.
    fn supply(&mut self) -> Result<(), RangeError> {
        let (stock, child) = (self.fork.stock, self.fork.child);
        let me = stock.machine.me();
        // What was taken ahead and is not wanted now is given back first: near the limit a table or
        // a deposit may need it, and the leaf that wanted a deposit may have been split meanwhile,
        // or a folio may be in the place of zeros.
        child.uncharge(me, core::mem::take(&mut self.charged));
        self.drop_deposit();
        self.drop_copy();
        if let Some((va, level)) = self.missing.take() {
            self.supply.ensure(&self.fork.to, va, level).map_err(NoTable::in_empty)?;
        }
        match self.fork.cost.get() {
            Cost::Pages(least, _) => {
                // The charge is for a table full of pages or, near the limit, for what is admitted.
                let mut pages = TABLE;
                while let Err(over) = child.charge(me, pages) {
                    pages /= 2;
                    if pages < least as u64 {
                        return Err(over.into());
                    }
                }
                self.charged = pages;
            }
            Cost::Deposit(pages) => {
                let table = stock.claim_charged(&child.charge, Owner::Table)?;
                if let Err(over) = child.charge(me, pages) {
                    stock.release_charged(&child.charge, table);
                    return Err(over.into());
                }
                self.deposit = Some((table, pages));
            }
            Cost::Copy(frame, va, Order::BASE) => self.own = self.copied(frame, va)?,
            Cost::Copy(head, va, order) => self.own = Some(self.copied_huge(head, va, order)?),
            Cost::Nothing => {}
        }
        Ok(())
    }
    /// A copy of the page that `frame` was at `va`; none where its folio is gone from there.
    fn copied(&self, frame: Frame, va: Va) -> Result<Option<OwnCopy<'s, 'm, M, P>>, RangeError> {
        let (stock, child) = (self.fork.stock, self.fork.child);
        let Some(kept) = stock.get_own(frame) else { return Ok(None) };
        child.charge(stock.machine.me(), 1)?;
        let Ok(claim) = stock.claim(Order::BASE, Class::Movable) else {
            child.uncharge(stock.machine.me(), 1);
            return Err(RangeError::NoMemory);
        };
        zero::copy_page(stock.machine, frame.pa(), &claim);
        stock.count_by(Event::CopiedBytes, FRAME_BYTES);
        let head = stock.enlist(claim, 1, child.member.origin(va, self.offset(va)));
        Ok(Some(OwnCopy { head, pages: Pages::new(1), of: (frame, va), kept: Some(kept) }))
    }
    /// A copy of the huge page that is at `va`.
    fn copied_huge(
        &mut self,
        of: Frame,
        va: Va,
        order: Order,
    ) -> Result<OwnCopy<'s, 'm, M, P>, RangeError> {
        let copy = (self.fork.copy_huge)(of, order, self.noting.steps.outside());
        let frames = copy.ok_or(RangeError::NoMemory)?;
        let origin = self.fork.child.member.origin(va, self.offset(va));
        // Whether it is sound is asked when the child gets it.
        let _ = self.fork.stock.enlist_huge(frames, frames.pages().get(), origin);
        Ok(OwnCopy { head: frames.start(), pages: frames.pages(), of: (of, va), kept: None })
    }
    /// How far what is at `va` was moved.
    fn offset(&self, va: Va) -> AnonOffset {
        let (stock, child) = (self.fork.stock, self.fork.child);
        let area = child.areas.find(stock.machine, va);
        area.expect("the child has the areas first").offset(stock)
    }
    /// Gives a copy back that no entry was made for.
    fn drop_copy(&mut self) {
        let (stock, child) = (self.fork.stock, self.fork.child);
        let Some(OwnCopy { head, pages, kept, .. }) = self.own.take() else { return };
        if kept.is_some() {
            child.uncharge(stock.machine.me(), pages.get());
        }
        stock.drop_unused(head, pages.get());
    }
    /// Gives the child the copy that was made of what it would share.
    fn give_copy(&mut self, slot: Slot, attrs: Attrs) {
        let own = self.own.take().expect("it said that there is room");
        if own.kept.is_none() {
            self.fork.child.count_huge(self.fork.stock.machine.me(), own.pages.get());
        }
        let copy = self.copy.as_ref().expect("it said that there is room");
        let attrs = attrs.without(Attrs::ACCESSED | Attrs::UFFD_WP) | Attrs::DIRTY;
        let slots = Slots::new(slot, 1).expect("one of a table");
        copy.map_alike(slots, own.head.pa(), attrs);
        self.fork.stock.count(Event::ForkCopied);
    }
    /// Gives back the table that was to be kept for a leaf, with the pages of the leaf.
    fn drop_deposit(&mut self) {
        let (stock, child) = (self.fork.stock, self.fork.child);
        if let Some((table, pages)) = self.deposit.take() {
            stock.release_charged(&child.charge, table);
            child.uncharge(stock.machine.me(), pages);
        }
    }
    /// Gives back what was not needed.
    fn finish(mut self) -> Result<(), RangeError> {
        let (stock, child) = (self.fork.stock, self.fork.child);
        child.uncharge(stock.machine.me(), self.charged);
        self.drop_deposit();
        self.drop_copy();
        self.failed
    }
}

impl<'m, M: Machine, P: Paging> Sink<M, P> for Sharing<'_, '_, 'm, M, P> {
    const WAITS: bool = true;

    fn prepare(&mut self) -> bool {
        self.noting.prepare();
        let (child, me) = (self.fork.child, self.fork.stock.machine.me());
        if self.wanted.take() {
            self.failed = self.supply();
        } else if self.charged == 0 && child.charge(me, TABLE).is_ok() {
            self.charged = TABLE;
        }
        self.failed.is_ok()
    }
    fn enter(&mut self, lock: &Locked<'_, M, P>) {
        let (va, level) = (lock.base(), lock.level());
        self.copy = self.fork.to.lock(va, level).ok(); // the parent's lock, then the child's
        self.missing = if self.copy.is_none() { Some((va, level)) } else { None };
    }
    fn most(&self) -> usize {
        let most = match self.fork.cost.get() {
            _ if self.copy.is_none() => 0,
            Cost::Nothing => 1, // the next word may map another owner's page
            Cost::Pages(least, _) if self.charged < least as u64 => 0,
            Cost::Pages(_, most) => most.min(self.charged as usize),
            Cost::Copy(frame, va, _) => {
                // It may have broken while it was made.
                let is_sound = |head| !self.fork.stock.identity(head).has(Flag::Poisoned);
                let is_it = |own: &OwnCopy<'_, '_, _, _>| own.of == (frame, va);
                usize::from(self.own.as_ref().is_some_and(|own| is_it(own) && is_sound(own.head)))
            }
            Cost::Deposit(pages) => {
                usize::from(self.deposit.as_ref().is_some_and(|(_, paid)| *paid == pages))
            }
        };
        self.wanted.set(most == 0);
        most.min(self.noting.most())
    }
    fn add(&mut self, run: Run) {
        let (stock, child) = (self.fork.stock, self.fork.child);
        let copy = self.copy.as_ref().expect("it said that there is room");
        let first = copy.index_of(run.va);
        let (pa, attrs) = match run.what {
            What::Soft(soft) => return copy.set(first, soft.word()),
            What::Mapped { pa, attrs } => (pa, attrs),
        };
        if let Cost::Copy(..) = self.fork.cost.get() {
            return self.give_copy(first, attrs);
        }
        // A run that loses no right that a CPU may have cached is not noted (S5). What was broken
        // says that it was used.
        let is_broken =
            stock.machine.rules().replace == Replace::BreakBeforeMake || attrs.has(Attrs::GROUPED);
        if attrs.has(Attrs::WRITE) || is_broken && shared(attrs) != attrs {
            self.noting.add(run);
        }
        let (me, pages) = (stock.machine.me(), run.range().pages());
        if !attrs.has(Attrs::SPECIAL) {
            stock.each_folio(pa.frame(), pages, |head, order, n| match order {
                Order::BASE => {
                    (0..n).for_each(|nth| stock.add_references(head.add(Pages::new(nth)), 1))
                }
                _ => stock.add_references(head, n),
            });
        }
        match self.fork.cost.get() {
            Cost::Pages(..) => self.charged -= pages.get(),
            Cost::Deposit(_) => {
                let (table, _) = self.deposit.take().expect("it said that there is room");
                child.deposit(stock, table);
            }
            Cost::Nothing if run.level > Level::BASE => child.count_huge(me, pages.get()),
            Cost::Nothing => {}
            Cost::Copy(..) => unreachable!("the child has a copy"),
        }
        let slots = Slots::new(first, run.count as usize).expect("of one table");
        copy.map_alike(slots, pa, shared(attrs).without(Attrs::ACCESSED | Attrs::UFFD_WP));
        if attrs.has(Attrs::GROUPED) {
            stock.count(Event::ContMapped);
        }
    }
    fn leave(&mut self, _: &Tables<'_, M, P>, lock: Locked<'_, M, P>, _: Progress) {
        self.copy = None;
        drop(lock);
    }
    fn flush(&mut self) {
        self.noting.flush();
    }
    fn between(&mut self, words: u64) {
        self.noting.between(words);
    }
}
