//! A fault where nothing is mapped, in an area that maps an object.
//!
//! ```text
//!   the object's tables ─▶ nothing there ────▶ the face has it made: a fault in the object's space
//!                      ├▶ a page, read ─────▶ it comes with what is around it, under one hold     (J4)
//!                      └▶ a folio, pinned ─┬ shared, or read ──▶ as much of it as fits by one entry, and
//!                                          │                      what comes with it
//!                                          └ private, written ─▶ one page is copied
//!   lock the table: still that area, empty, and the object has it still? ─▶ published             (J1)
//! ```
//!
//! **Invariants**
//! - J1. An entry of an object's folio is published, and a copy of a page of it, while the table's
//!   lock is held and the object's tables, read under it, map the same frames. A caller that takes
//!   pages out of an object empties the object's tables first and goes over the attachments then,
//!   table by table under the same locks: it finds the entry, or the fault finds the page gone.
//! - J2. From the look at the object's tables to the end of the step the folio is pinned: its
//!   frames are no other's, and it is neither split nor moved. What comes with others (J4) is not
//!   pinned: from the look to the references the lock of the object's table is held, and the walker
//!   that takes a folio out of use needs that first (J3).
//! - J3. The walker that takes a folio out of use (`split`) does so in the object's tables first,
//!   and in those of its attachments then (rmap): by J1 no entry comes behind it.
//! - J4. What comes with a page, where nothing is yet in the area and the page's table: the rest of
//!   its folio, however the area lies to it; and with a read what the object has of the 64 KiB
//!   around, which are aligned, or begin with the area, unless it brings nothing ([`Around`]). That
//!   comes with a read beyond the object's end too, which is refused. Pages of one table of the
//!   object where nothing is mapped side by side are looked at, kept and published under one hold
//!   of the table's lock, by J1; and so is the page itself where it is read and is a folio of its
//!   own. What is promised and not touched comes with no other. What is not had for them, such as
//!   the charge, ends nothing: the page comes, whose charge is had before theirs.
//! - J5. A private area of huge pages has a page of its own where the object has none, and a copy
//!   where it was written; either is published while the table's lock is held and the object does
//!   not end before it. A page of the object is mapped read-only and copied then: it is told from
//!   the space's own by where it was made. It keeps the reservation of its place (space::S7), and
//!   where that is spent the entry says so (`SPENT_BEHIND`).
//! - J6. In an area that is armed for missing pages those are told that the object has not; what it
//!   has is mapped, for nobody else's handler is asked. One that is armed gets its pages one by
//!   one, with nothing around where writes are told; a read that is told brings what is around all
//!   the same. A marker stays until its page is mapped watched. A page that a handler fills comes
//!   into the object first, where the area is shared, and is mapped as any page of it then; in a
//!   private area it is the space's own, and comes where the object does not end before (as J5). A
//!   fault that was at work when the area was armed may still bring a page of the object, as
//!   another program may at any time.
//!
//! **Locking.** As for other faults; the object's tables are read without a lock, but for a huge
//! page, which is nobody's to pin, and for what comes with a page: behind the lock of the table
//! that gets the entries, that of the object's table is held for a few words. Nobody takes the two
//! the other way round.

use super::hugetlb::{Brought, is_marked};
use super::{Access, Fault, Filling, Need, Outcome, Purpose, Refusal, Step, fitting};
use crate::folio::Class;
use crate::frame::{Flag, Kind};
use crate::object::{FoundPage, Looked, look, place};
use crate::rmap::Attachment;
use crate::space::{
    Agreed, Area, Around, Flags, SPENT_BEHIND, Seen, Space, SpaceId, attrs, level_of, plain_place,
    watched,
};
use crate::stock::{Event, NoTable, record};
use crate::table::{Attrs, Entry, Found, Paging, Slot};
use crate::zero;
use foliant_machine::Machine;
use foliant_units::{FRAME_BYTES, Frame, Level, Order, Pa, Pages, Va, VaRange};

/// A read brings what the object has of so much around it, as on Linux (`fault_around_bytes`). No
/// more comes under one hold of a lock.
const AROUND: Order = Order::new(4).expect("64 KiB");

/// Whether the page that is accessed comes with what is around it. Its charge is its caller's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Accessed {
    Comes,
    /// It is there, or the object has none.
    Stays,
}

/// How much of an object is mapped, and how.
#[derive(Clone, Copy)]
struct Shown {
    order: Order,
    attrs: Attrs,
}

/// What entries of an object's pages say in an area that is not its owner.
fn attrs_of_object(flags: Flags) -> Attrs {
    // A page that is read privately is not the space's to write (space::S5).
    let own = match flags.has(Flags::SHARED) {
        true => Attrs::EXCLUSIVE | Attrs::TOUCHED | Attrs::SOFT_DIRTY,
        false => Attrs::ACCESSED,
    };
    let is_writable = flags.has(Flags::SHARED.with(Flags::WRITE));
    let write = if is_writable { Attrs::WRITE } else { Attrs::NONE };
    attrs(flags) | own | write
}

impl<'f, 'm, M: Machine, P: Paging> Fault<'f, 'm, M, P> {
    /// Maps what the object has at the address, or a copy of it.
    #[inline(never)]
    pub(super) fn of_object(&self, area: &Area, found: &Found) -> Step {
        let attached =
            Attachment::of(self.stock, area.attachment().expect("the area has an object"));
        if let Some(step) = self.share_together(area, attached, found) {
            return step;
        }
        let page = match self.page_of_object(attached) {
            Ok(page) => page,
            Err(step) => {
                let step = self.told_or(area, found, step);
                let is_told = matches!(step, Step::Done(Outcome::Userfault(_)));
                if (is_told || self.is_beyond(area)) && self.brings_around(area, attached) {
                    self.share_around(area, attached, found);
                }
                return step;
            }
        };
        if page.is_broken(self.stock) {
            return Step::Done(Outcome::Refused(Refusal::Broken(self.va)));
        }
        if self.tells_of_present(area) {
            return Step::Done(Outcome::UserfaultPresent(self.va));
        }
        page.touch(self.stock);
        if is_marked(found) && self.access == Access::Write {
            return Step::Done(Outcome::UserfaultWrite(self.va));
        }
        if self.access == Access::Write && !area.flags.has(Flags::SHARED) {
            return self.copy_of_object(area, found, &page);
        }
        let step = self.share_what_fits(area, found, &page);
        if let Step::Done(Outcome::Mapped(order)) = step {
            let range = self.company((area, attached), &page, order);
            if let Some(range) = range {
                self.share_company(area, attached, range, Accessed::Stays);
            }
        }
        step
    }
    /// Whether it is the program's to let in what the object has.
    fn tells_of_present(&self, area: &Area) -> bool {
        let is_told = area.flags.has(Flags::USERFAULT_PRESENT) && self.purpose != Purpose::Collapse;
        is_told && !self.offers.came.get()
    }
    /// What is done where the object has no page: it is told, or done as `step` says.
    fn told_or(&self, area: &Area, found: &Found, step: Step) -> Step {
        let is_missing = matches!(step, Step::Need(Need::OfObject(_)));
        if !area.is_armed() || !is_missing || self.is_beyond(area) {
            return step;
        }
        let told = match (area.flags.has(Flags::USERFAULT), is_marked(found), self.access) {
            (true, ..) => Outcome::Userfault(self.va),
            (false, true, Access::Write) => Outcome::UserfaultWrite(self.va),
            _ => return step,
        };
        self.offers.object.take();
        Step::Done(told)
    }
    /// Maps as much of the page's folio as fits.
    fn share_what_fits(&self, area: &Area, found: &Found, page: &FoundPage<'f, 'm, M, P>) -> Step {
        let attrs = attrs_of_object(area.flags);
        let attrs = if is_marked(found) { watched(attrs) } else { attrs };
        let comes_alone = area.is_armed() && self.purpose != Purpose::Collapse;
        let mut order = if comes_alone { Order::BASE } else { page.folio };
        loop {
            let Some(smaller) = order.get().checked_sub(1) else {
                return self.share(area, found, page, Shown { order: Order::BASE, attrs });
            };
            if let Some(step) = self.share_if_it_fits(area, found, page, order) {
                return step;
            }
            order = Order::new(smaller).expect("a smaller order");
        }
    }

    /// The page of the object at the address, with its folio pinned (J2); or what is to be done
    /// before there is one.
    fn page_of_object(&self, attached: Attachment<'_>) -> Result<FoundPage<'f, 'm, M, P>, Step> {
        let at = place(attached, self.va);
        let object: &Space = record(self.stock.machine, attached.object().pa());
        match look(self.stock, object, at) {
            Looked::There(page) => Ok(page),
            Looked::OnItsWay => Err(Step::Need(Need::Wait)),
            Looked::Changed => Err(Step::Again),
            Looked::Nothing => Err(self.ask_of_object(attached, at)),
        }
    }

    /// Maps a part of the page's folio, of 2^`order` pages, if that lies alike in both spaces, fits
    /// the area, and nothing is there.
    fn share_if_it_fits(
        &self,
        area: &Area,
        found: &Found,
        page: &FoundPage<'f, 'm, M, P>,
        order: Order,
    ) -> Option<Step> {
        let level = level_of(order);
        let is_alike = (self.va.get() ^ page.at.get()).is_multiple_of(order.bytes().get());
        let range = fitting(order, self.va, area.range)?;
        if !is_alike || !self.is_empty(range, level, found) {
            return None;
        }
        if !self.space.admits(order.pages().get()) || !page.is_in(order) {
            return None;
        }
        Some(self.share(area, found, page, Shown { order, attrs: attrs_of_object(area.flags) }))
    }

    /// Publishes entries of the page's folio.
    fn share(
        &self,
        area: &Area,
        found: &Found,
        page: &FoundPage<'f, 'm, M, P>,
        Shown { order, attrs }: Shown,
    ) -> Step {
        let level = level_of(order);
        match self.ensure(level, found) {
            Ok(()) => {}
            Err(NoTable::Record(why)) => return Step::Done(Self::refusal(why)),
            Err(NoTable::Blocked(_)) => return Step::Again,
        }
        let (me, pages) = (self.stock.machine.me(), order.pages().get());
        let deposit = match self.table_for(level) {
            Ok(deposit) => deposit,
            Err(why) => return Step::Done(Self::refusal(why)),
        };
        if self.space.charge(me, pages).is_err() {
            self.drop_table(deposit);
            return Step::Done(Outcome::OverLimit);
        }
        // References come before entries (frame::descriptor::D2); the pin keeps the folio.
        let head = page.pin.head();
        self.stock.add_references(head, pages);
        let entries = if level == Level::BASE { pages as usize } else { 1 };
        let first = self.va.align_down(order.bytes());
        let seen = Seen { entries, ..Seen::one(area, first, level, found.word) };
        let Some(agreed) = self.agree_on(&seen, &|| page.is_in(order)) else {
            self.stock.drop_unused(head, pages);
            self.space.uncharge(me, pages);
            self.drop_table(deposit);
            self.stock.count(Event::LostRace);
            return Step::Again;
        };
        if let Some(table) = deposit {
            self.space.deposit(self.stock, table);
        }
        agreed.map(order.head(page.frame), order, attrs);
        self.stock.count(Event::ObjectMapped);
        Step::Done(Outcome::Mapped(order))
    }

    /// Where pages are that come with one, of which `order` is mapped (J4), if they do.
    fn company(
        &self,
        (area, attached): (&Area, Attachment<'_>),
        page: &FoundPage<'f, 'm, M, P>,
        order: Order,
    ) -> Option<VaRange> {
        let brings = self.brings_around(area, attached);
        let before = page.frame.get() - page.folio.head(page.frame).get();
        let start = self.va.get().saturating_sub(before * FRAME_BYTES);
        let folio = VaRange::new(
            Va::new(start),
            self.va.add((page.folio.pages().get() - before) * FRAME_BYTES),
        )?;
        let around = self.around(area);
        match (order < page.folio && !area.is_armed(), brings && order < AROUND) {
            (false, false) => None,
            (true, false) => Some(folio),
            (false, true) => Some(around),
            (true, true) => {
                VaRange::new(folio.start().min(around.start()), folio.end().max(around.end()))
            }
        }
    }
    /// Whether what is around the page comes with it.
    fn brings_around(&self, area: &Area, attached: Attachment<'_>) -> bool {
        let object: &Space = record(self.stock.machine, attached.object().pa());
        self.access != Access::Write
            && object.object_around() == Around::Present
            && !area.flags.has(Flags::USERFAULT_WRITE)
            && !area.flags.has(Flags::USERFAULT_PRESENT)
    }
    /// What a read brings with it: 64 KiB that are aligned, or begin with the area.
    fn around(&self, area: &Area) -> VaRange {
        let first = self.va.align_down(AROUND.bytes()).max(area.range.start());
        let all =
            VaRange::sized(first, AROUND.bytes()).expect("user addresses end before the last");
        all.intersect(area.range)
    }
    /// Maps what comes with a read whose own page does not: it lies beyond the end of the object,
    /// or is told.
    #[inline(never)]
    fn share_around(&self, area: &Area, attached: Attachment<'_>, found: &Found) {
        let around = self.around(area);
        let object: &Space = record(self.stock.machine, attached.object().pa());
        let first = place(attached, around.start());
        let there = VaRange::sized(first, around.bytes()).expect("pages that an object can have");
        let has_some = object.tables(self.stock).leaves(there).next().is_some();
        if has_some && self.ensure(Level::BASE, found).is_ok() {
            self.share_company(area, attached, around, Accessed::Stays);
        }
    }
    /// Maps the page with what comes with it, where it is read and is a folio of its own, by a look
    /// without a lock. Where it does not come so, it comes as any.
    #[inline]
    fn share_together(&self, area: &Area, attached: Attachment<'_>, found: &Found) -> Option<Step> {
        if is_marked(found) || !self.brings_around(area, attached) {
            return None;
        }
        let object: &Space = record(self.stock.machine, attached.object().pa());
        let there = object.tables(self.stock).walk(place(attached, self.va));
        let is_page = |pa: Pa| self.stock.identity(pa.frame()).order() == Order::BASE;
        match there.entry {
            Entry::Leaf { pa, .. } if there.level == Level::BASE && is_page(pa) => {}
            _ => return None,
        }
        self.ensure(Level::BASE, found).ok()?;
        let me = self.stock.machine.me();
        self.space.charge(me, 1).ok()?;
        let came = self.share_company(area, attached, self.around(area), Accessed::Comes);
        if !came {
            self.space.uncharge(me, 1);
        }
        came.then_some(Step::Done(Outcome::Mapped(Order::BASE)))
    }
    /// Maps what the object has in a range, as far as it lies in the area and in the table of the
    /// page accessed. Says whether that page came.
    fn share_company(
        &self,
        area: &Area,
        attached: Attachment<'_>,
        range: VaRange,
        accessed: Accessed,
    ) -> bool {
        let table = Level::SIZE_2M.span();
        let table = VaRange::sized(self.va.align_down(table), table).expect("a user page is in it");
        let block = range.intersect(area.range).intersect(table);
        let (mut at, mut came, mut around) = (block.start(), false, 0);
        while at < block.end() {
            let (level, pages) = self.in_one_table(attached, (at, block.end()));
            if let Some(level) = level {
                let (had, is_with_it) =
                    self.share_run((area, attached), at, (level, pages), accessed);
                came |= is_with_it;
                around += had - u64::from(is_with_it);
            }
            at = at.add(pages * FRAME_BYTES);
        }
        if came {
            self.stock.count(Event::ObjectMapped);
        }
        self.stock.count_by(Event::ObjectAround, around);
        came
    }
    /// How many pages from `first` on and before `end` lie in one table of the object, 64 KiB of
    /// them at most, and the level of that table, where it may have some.
    fn in_one_table(
        &self,
        attached: Attachment<'_>,
        (first, end): (Va, Va),
    ) -> (Option<Level>, u64) {
        let object: &Space = record(self.stock.machine, attached.object().pa());
        let at = place(attached, first);
        let there = object.tables(self.stock).walk(at);
        let is_page = there.level == Level::BASE;
        let shown = if is_page { Level::BASE.up() } else { there.level }.span().get();
        let left = shown - at.get() % shown;
        let most = left.min(end.offset_from(first)).min(AROUND.bytes().get());
        let has_some = is_page || matches!(there.entry, Entry::Leaf { .. });
        (has_some.then_some(there.level), most / FRAME_BYTES)
    }
    /// Publishes entries of what an object has of so many pages from `first` on, where nothing is
    /// mapped; `level` is that of the object's table, whose lock keeps the pages (J2). Says how
    /// many, and whether the page accessed is one of them. What is broken, or promised and not
    /// touched, is left out, and so is what the charge is refused for.
    fn share_run(
        &self,
        (area, attached): (&Area, Attachment<'_>),
        first: Va,
        (level, pages): (Level, u64),
        accessed: Accessed,
    ) -> (u64, bool) {
        const NOTHING: (u64, bool) = (0, false);
        let (stock, me) = (self.stock, self.stock.machine.me());
        let seen = Seen { entries: pages as usize, ..Seen::one(area, first, Level::BASE, 0) };
        let Some(agreed) = self.view.agree_on_area(&seen) else { return NOTHING };
        let object: &Space = record(stock.machine, attached.object().pa());
        let at = place(attached, first);
        let Ok(theirs) = object.tables(stock).lock(at, level) else { return NOTHING };
        // Where the object has a large leaf it says all of them.
        let slot = theirs.index_of(at);
        let large = match theirs.entry(slot) {
            _ if level == Level::BASE => None,
            Entry::Leaf { pa, .. } => Some(pa.add(at.offset_from(theirs.va_of(slot))).frame()),
            _ => return NOTHING,
        };
        let frame_at = |nth: u64| match large {
            Some(first) => Some(first.add(Pages::new(nth))),
            None => {
                // A group's word says by its place what it maps.
                let slot = Slot::of(at.add(nth * FRAME_BYTES), Level::BASE);
                match P::decode(theirs.get(slot), Level::BASE, slot) {
                    Entry::Leaf { pa, .. } => Some(pa.frame()),
                    _ => None,
                }
            }
        };
        let (attrs, all_empty) = (attrs_of_object(area.flags), agreed.are_empty());
        let own = self.va.get().wrapping_sub(first.get()) / FRAME_BYTES;
        let (mut had, mut is_with_it) = (0, false);
        for nth in 0..pages {
            let is_own = nth == own;
            let is_wanted = (all_empty || agreed.is_empty_at(nth as usize))
                && (!is_own || accessed == Accessed::Comes);
            let Some(frame) = frame_at(nth).filter(|_| is_wanted) else { continue };
            let (head, folio) = stock.folio_of(frame);
            let is_used = !folio.has(Flag::Poisoned) && !folio.has(Flag::Promised);
            if folio.kind() != Kind::Anon || !is_used {
                continue;
            }
            if !is_own && self.space.charge(me, 1).is_err() {
                break;
            }
            // References come before entries (frame::descriptor::D2).
            stock.add_references(head, 1);
            agreed.map_nth(nth as usize, frame, attrs);
            had += 1;
            is_with_it |= is_own;
        }
        (had, is_with_it)
    }

    /// Maps a copy of the page, which is the space's alone.
    fn copy_of_object(&self, area: &Area, found: &Found, page: &FoundPage<'f, 'm, M, P>) -> Step {
        match self.ensure(Level::BASE, found) {
            Ok(()) => {}
            Err(NoTable::Record(why)) => return Step::Done(Self::refusal(why)),
            Err(NoTable::Blocked(_)) => return Step::Again,
        }
        let (stock, me) = (self.stock, self.stock.machine.me());
        let Ok(claim) = stock.claim(Order::BASE, Class::Movable) else {
            return Step::Done(Outcome::OutOfMemory);
        };
        if self.space.charge(me, 1).is_err() {
            stock.put_back(claim);
            return Step::Done(Outcome::OverLimit);
        }
        zero::copy_page(stock.machine, page.frame.pa(), &claim);
        stock.count_by(Event::CopiedBytes, FRAME_BYTES);
        let origin = self.space.member.origin(self.va, area.offset(stock));
        let head = stock.enlist(claim, 1, origin);
        let seen = Seen::one(area, self.va, Level::BASE, 0);
        let Some(agreed) = self.agree_on(&seen, &|| page.is_in(Order::BASE)) else {
            stock.delist(head, 1).into_iter().for_each(|claim| stock.release(claim));
            self.space.uncharge(me, 1);
            stock.count(Event::LostRace);
            return Step::Again;
        };
        let attrs = attrs(area.flags) | Attrs::WRITE | Attrs::EXCLUSIVE | Attrs::SOFT_DIRTY;
        agreed.map(head, Order::BASE, attrs | Attrs::TOUCHED);
        stock.count(Event::Copied);
        Step::Done(Outcome::Copied)
    }

    /// Fills a missing page of a shared area (J6). `came` says that the object has it by this fill.
    pub(super) fn fill_shared(
        &self,
        area: &Area,
        found: &Found,
        with: Filling<'_>,
        came: bool,
    ) -> Step {
        let attached =
            Attachment::of(self.stock, area.attachment().expect("the area has an object"));
        match self.page_of_object(attached) {
            Ok(page) if came => {
                let attrs = attrs_of_object(area.flags);
                let attrs = if with.is_watched() { watched(attrs) } else { attrs };
                self.share(area, found, &page, Shown { order: Order::BASE, attrs })
            }
            Ok(_) => Step::Done(Outcome::Spurious),
            // It came, and was dropped from the object by now.
            Err(Step::Need(Need::OfObject(_))) if came => {
                self.offers.object.take();
                Step::Done(Outcome::Mapped(Order::BASE))
            }
            Err(step) => step,
        }
    }

    /// Agrees on entries for pages that the object has still, as `is_there` says (J1).
    #[inline(never)]
    fn agree_on(
        &self,
        seen: &Seen<'_>,
        is_there: &dyn Fn() -> bool,
    ) -> Option<Agreed<'_, 'm, M, P>> {
        self.view.agree(seen).filter(|_| is_there())
    }

    /// Maps a huge page of an object.
    pub(super) fn huge_of_object(
        &self,
        area: &Area,
        order: Order,
        found: &Found,
        (brought, is_watched): (Brought, bool),
    ) -> Step {
        let stock = self.stock;
        let attached = Attachment::of(stock, area.attachment().expect("the area has an object"));
        let at = place(attached, self.va).align_down(order.bytes());
        let object: &Space = record(stock.machine, attached.object().pa());
        let (tables, level) = (object.tables(stock), level_of(order));
        let there = tables.walk(at);
        let is_shared = area.flags.has(Flags::SHARED);
        let pa = match there.entry {
            Entry::Leaf { pa, .. } => pa,
            _ if is_shared && brought == Brought::ByAccess => {
                return self.told_or(area, found, self.ask_of_object(attached, at));
            }
            Entry::Soft(soft) if soft.is_waited_for() => return Step::Again,
            _ if brought == Brought::ByHandler => return self.ask_of_object(attached, at),
            _ => return self.huge_in_hole(area, found),
        };
        if self.is_broken(pa.frame()) {
            return Step::Done(Outcome::Refused(Refusal::Broken(self.va)));
        }
        if brought == Brought::ByAccess && self.tells_of_present(area) {
            return Step::Done(Outcome::UserfaultPresent(self.va));
        }
        match self.ensure(level, found) {
            Ok(()) => {}
            Err(NoTable::Record(why)) => return Step::Done(Self::refusal(why)),
            Err(NoTable::Blocked(_)) => return Step::Again,
        }
        let Some(agreed) = self.view.agree(&self.seen(area, level, found.word)) else {
            return Step::Again;
        };
        // No walker pins a pool's page: the lock of the object's table keeps it (J1).
        let Ok(locked) = tables.lock(at, level) else { return Step::Again };
        let is_there = locked.get(locked.index_of(at)) & !P::UPDATED == there.word & !P::UPDATED;
        // The one that takes a broken page away looks here first, and then at what maps it
        // (space::broken::Y1).
        if !is_there || self.is_broken(pa.frame()) {
            return Step::Again;
        }
        stock.add_references(pa.frame(), order.pages().get());
        drop(locked);
        let is_writable = area.flags.has(Flags::WRITE);
        let write = if is_writable { Attrs::WRITE } else { Attrs::NONE };
        let own = match (is_shared, plain_place(found.word)) {
            (true, _) => Attrs::EXCLUSIVE | Attrs::TOUCHED | Attrs::SOFT_DIRTY | write,
            (false, 0) => Attrs::ACCESSED,
            (false, _) => Attrs::ACCESSED | SPENT_BEHIND,
        };
        let attrs = attrs(area.flags) | own;
        let attrs = if is_watched { watched(attrs) } else { attrs };
        agreed.repeat(P::leaf(pa, level, attrs));
        self.space.count_huge(stock.machine.me(), order.pages().get());
        stock.count(Event::ObjectMapped);
        match is_shared || brought == Brought::ByHandler || self.access != Access::Write {
            true => Step::Done(Outcome::Mapped(order)),
            false => Step::Again, // it is copied now
        }
    }
    /// Maps a page of the space's own where the object has none.
    fn huge_in_hole(&self, area: &Area, found: &Found) -> Step {
        if self.is_beyond(area) {
            return Step::Done(Outcome::Refused(Refusal::Beyond(self.va)));
        }
        self.missing(area, found)
    }
    /// Fills a missing huge page of a shared area, as [`fill_shared`](Fault::fill_shared) does.
    pub(super) fn fill_huge_shared(
        &self,
        area: &Area,
        order: Order,
        found: &Found,
        (is_watched, came): (bool, bool),
    ) -> Step {
        let attached =
            Attachment::of(self.stock, area.attachment().expect("the area has an object"));
        let at = place(attached, self.va).align_down(order.bytes());
        let object: &Space = record(self.stock.machine, attached.object().pa());
        let is_there = matches!(object.tables(self.stock).walk(at).entry, Entry::Leaf { .. });
        match (is_there, came) {
            (true, true) => {
                self.huge_of_object(area, order, found, (Brought::ByHandler, is_watched))
            }
            (true, false) => Step::Done(Outcome::Spurious),
            // It came, and was dropped from the object by now.
            (false, true) => Step::Done(Outcome::Mapped(order)),
            (false, false) => self.ask_of_object(attached, at),
        }
    }
    /// Lets in the page that the object has; where it has none, that is asked for.
    pub(super) fn fill_present(&self, area: &Area, found: &Found, is_watched: bool) -> Step {
        let attached =
            Attachment::of(self.stock, area.attachment().expect("the area has an object"));
        match self.page_of_object(attached) {
            Ok(page) if page.is_broken(self.stock) => {
                Step::Done(Outcome::Refused(Refusal::Broken(self.va)))
            }
            Ok(page) => {
                page.touch(self.stock);
                let attrs = attrs_of_object(area.flags);
                let attrs = if is_watched { watched(attrs) } else { attrs };
                self.share(area, found, &page, Shown { order: Order::BASE, attrs })
            }
            Err(step) => step,
        }
    }
    /// Whether the object that the area maps, if it maps one, ends before the address.
    pub(super) fn is_beyond(&self, area: &Area) -> bool {
        let Some(name) = area.attachment() else { return false };
        let attached = Attachment::of(self.stock, name);
        let object: &Space = record(self.stock.machine, attached.object().pa());
        place(attached, self.va) >= object.object_end()
    }
    /// Whether a huge page that was found in an area is the object's, and no copy.
    pub(super) fn is_objects(&self, area: &Area, head: Frame) -> bool {
        area.flags.has(Flags::OBJECT) && self.stock.origin(head).tree != self.space.member.tree()
    }
    /// Has the face make a page of an object at an address of its space.
    fn ask_of_object(&self, attached: Attachment<'_>, at: Va) -> Step {
        let id = SpaceId::found(self.stock, attached.object());
        let id = id.expect("an object that an area maps is there (rmap::attachment::X1)");
        self.offers.object.set(Some(id));
        Step::Need(Need::OfObject(at))
    }
}
