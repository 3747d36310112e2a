//! The face of objects.

use super::anchor::Keeping;
use super::{CollapseLimits, Manager};
use crate::compact::CollapseError;
use crate::fault::{Access, Demand, Outcome, Purpose, Refusal};
use crate::frame::Flag;
use crate::object::{self, Looked, ObjectRequest, look, look_at_huge};
use crate::rmap::Attachment;
use crate::space::{
    self, Area, Flags, MapError, MapRequest, ObjectId, RangeError, Reserving, Space, SpaceId, Steps,
};
use crate::sync::Outside;
use crate::table::{Entry, Found, Paging};
use core::{error, fmt};
use foliant_machine::Machine;
use foliant_units::{Bytes, FRAME_BYTES, Frame, Level, Order, Pages, Va, VaRange};

/// How often an object's pages are gathered for a program, where others map some meanwhile.
const TRIES: u32 = 32;

/// A page of an object, kept for the kernel to read or write through the direct map. As long as it
/// lives the page is neither given back, split nor moved; it may be dropped from the object.
pub struct ObjectPage<'s, 'm, M: Machine, P: Paging> {
    frame: Frame,
    is_promised: bool,
    kept: Keeping<'s, 'm, M, P>,
}

impl<M: Machine, P: Paging> fmt::Debug for ObjectPage<'_, '_, M, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectPage({:?})", self.frame)
    }
}

impl<M: Machine, P: Paging> ObjectPage<'_, '_, M, P> {
    /// Where it is.
    pub fn frame(&self) -> Frame {
        self.frame
    }
    /// Whether it is there because it was promised, and nobody has touched it yet
    /// ([`Manager::promise_object`]).
    pub fn is_promised(&self) -> bool {
        self.is_promised
    }
    /// Reads its bytes from byte `at` on into `into`, up to its end. Programs may write it
    /// meanwhile: each byte is there at some moment of the call.
    pub fn read(&self, at: Bytes, into: &mut [u8]) {
        object::read(self.kept.machine(), self.frame, at, into);
    }
    /// Writes `bytes` to it from byte `at` on, up to its end. What programs write beside that is
    /// not lost.
    pub fn write(&self, at: Bytes, bytes: &[u8]) {
        object::write(self.kept.machine(), self.frame, at, bytes);
    }
}

/// Why the kernel did not get a page of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoPage {
    /// There is no such object (any more).
    NoObject,
    /// It ends before.
    Beyond(Pages),
    /// Its memory was reported broken.
    Broken(Frame),
    /// Its pages are huge pages of a pool, which programs alone write to.
    Huge(Order),
    /// There is no memory for the page or a table.
    NoMemory,
    /// The object may not have more than this.
    OverLimit(Pages),
}

impl fmt::Display for NoPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoPage::NoObject => f.write_str("there is no such object"),
            NoPage::Beyond(page) => write!(f, "the object ends before page {}", page.get()),
            NoPage::Broken(frame) => write!(f, "the memory of frame {frame} is broken"),
            NoPage::Huge(order) => {
                write!(f, "the object has huge pages of {}: map them to write", order.bytes())
            }
            NoPage::NoMemory => f.write_str("no memory for the page"),
            NoPage::OverLimit(limit) => {
                write!(f, "the object may not have more than {} pages", limit.get())
            }
        }
    }
}
impl error::Error for NoPage {}

impl<'m, M: Machine, P: Paging> Manager<'m, M, P> {
    /// Makes an object: memory that several spaces can map. It is there until its name is taken
    /// ([`end_object`](Manager::end_object)) and nobody maps it any more.
    pub fn create_object(&self, request: &ObjectRequest) -> Result<ObjectId, MapError> {
        if let Some(id) = request.subpool
            && (self.pools().subpool(id).is_none() || request.flags.huge_order() != Some(id.order))
        {
            return Err(MapError::NoSubpool(id));
        }
        let steps = &mut Steps::at_the_face();
        self.copying_top(|| object::create(&self.stock, self.stamp(), request, steps))
    }
    /// Takes the name from an object.
    pub fn end_object(&self, id: ObjectId) -> Result<(), RangeError> {
        let done = space::unname(&self.stock, id, &mut Steps::at_the_face());
        self.collect();
        done.map_err(|_| RangeError::NoObject)
    }
    /// Changes how many pages an object has room for. Pages beyond are dropped, and a program that
    /// maps them finds nothing there, not even a private copy.
    pub fn resize_object(&self, id: ObjectId, pages: Pages) -> Result<(), RangeError> {
        self.cut_object(id, |object, steps| object::resize(&self.stock, object, pages, steps))
    }
    /// Drops pages of an object from `from` to before `to`: a program or kernel that looks at one
    /// next finds zeros. Private copies stay, but for copies of huge pages, which go.
    pub fn punch_object(&self, id: ObjectId, from: Pages, to: Pages) -> Result<(), RangeError> {
        self.cut_object(id, |object, steps| object::punch(&self.stock, object, (from, to), steps))
    }
    /// Takes pages of an object, and sees to what a pool lent for them. The call is at work until
    /// they are back: a program that stores there may want the very page that goes (stock::work).
    fn cut_object(
        &self,
        id: ObjectId,
        cut: impl FnOnce(&Space, &mut Steps) -> Result<(), RangeError>,
    ) -> Result<(), RangeError> {
        let mut _work = None; // it outlives the pin, which may be the object's last
        let done = {
            let object = id.pin(&self.stock).ok_or(RangeError::NoObject)?;
            _work = object.object_huge().map(|_| self.stock.at_work());
            let done = cut(&object, &mut Steps::at_the_face());
            self.regain_of(&object);
            done
        };
        self.collect();
        done
    }
    /// Has an object have those of its pages from `from` to before `to` that it has room for: what
    /// it has not comes now, as if a program that maps it had written there, so a later touch finds
    /// memory for it. Until then a small page is *promised*: it does not come with others, and
    /// [`ObjectPage::is_promised`] says so. What is promised already counts as touched by this.
    /// Refused with [`RangeError::NoMemory`] where there is not as much free memory as lacks; where
    /// it runs out all the same, those that came before stay. A touch just as a page comes may pass
    /// for none.
    pub fn promise_object(&self, id: ObjectId, from: Pages, to: Pages) -> Result<(), RangeError> {
        let room = self.object_room(id).ok_or(RangeError::NoObject)?;
        let range = object::range::<P>(from.min(room), to.min(room))?;
        let huge = id.pin(&self.stock).ok_or(RangeError::NoObject)?.object_huge();
        let done = match huge {
            Some(_) => self.populate(id.space(), range, Access::Write),
            None => self.promise(id, range),
        };
        match done {
            Err(RangeError::NoSpace) => Err(RangeError::NoObject),
            Err(RangeError::Hole(_)) => Ok(()), // it was cut there meanwhile
            done => done,
        }
    }
    /// The same of small pages.
    fn promise(&self, id: ObjectId, range: VaRange) -> Result<(), RangeError> {
        if self.lacks(id, range)? > self.memory().free {
            return Err(RangeError::NoMemory);
        }
        let (mut outside, mut at, mut came) = (Outside::at_the_face(), range.start(), false);
        while at < range.end() {
            outside.yield_now(self.stock.machine);
            match self.look_at_page(id, at, Access::Read) {
                Ok(Looked::There(found)) => {
                    let head = found.pin.head();
                    match came {
                        true => _ = self.stock.flag(head, Flag::Promised),
                        false => found.touch(&self.stock),
                    }
                    let inside = found.frame.get() - head.get();
                    let end = at.add((found.folio.pages().get() - inside) * FRAME_BYTES);
                    at = self.had_up_to(id, at, end)?;
                    came = false;
                }
                Ok(Looked::OnItsWay | Looked::Changed) => self.stock.machine.relax(),
                Ok(Looked::Nothing) => {
                    let page =
                        VaRange::sized(at, Order::BASE.bytes()).expect("a page of the range");
                    self.populate(id.space(), page, Access::Write)?;
                    came = true;
                }
                Err(_) => return Err(RangeError::Hole(at)), // it was cut, or ended
            }
        }
        Ok(())
    }
    /// The first address from `at` to before `end` where an object has no page, or `end`: a folio
    /// may have holes.
    fn had_up_to(&self, id: ObjectId, at: Va, end: Va) -> Result<Va, RangeError> {
        let range = VaRange::new(at, end).expect("the rest of a folio");
        let upto = self.with_leaves(id.space(), range, |leaves| {
            let mut upto = at;
            for found in leaves {
                if !matches!(found.entry, Entry::Leaf { .. }) || found.va > upto {
                    break;
                }
                upto = found.va.add(found.level.span().get());
            }
            upto
        });
        Ok(upto.ok_or(RangeError::NoObject)?.min(end))
    }
    /// How many pages of a range an object has not.
    fn lacks(&self, id: ObjectId, range: VaRange) -> Result<Pages, RangeError> {
        let has = self.pages_on(id, range).ok_or(RangeError::NoObject)?;
        Ok(Pages::new(range.pages().get() - has.get()))
    }
    /// How many it has.
    fn pages_on(&self, id: ObjectId, range: VaRange) -> Option<Pages> {
        let has = |found: Found| {
            let leaf = VaRange::sized(found.va, found.level.span());
            let leaf = leaf.filter(|_| matches!(found.entry, Entry::Leaf { .. }));
            leaf.map_or(0, |leaf| leaf.intersect(range).pages().get())
        };
        self.with_leaves(id.space(), range, |leaves| Pages::new(leaves.map(has).sum()))
    }
    /// Reserves those huge pages of an object from `from` to before `to` that it has room for, has
    /// not, and that are not reserved: all of them, or none.
    pub fn reserve_object(&self, id: ObjectId, from: Pages, to: Pages) -> Result<(), MapError> {
        let object = id.pin(&self.stock).ok_or(RangeError::NoObject)?;
        match object.object_huge() {
            Some(order) => self.reserve_in(&object, order, (from, to)),
            None => Ok(()), // small pages come out of no pool
        }
    }

    /// Sees to the reservations of places whose copies went with pages of an object: area by area,
    /// as they begin in the object, for the first lose what is surplus.
    fn regain_of(&self, object: &Space) {
        if object.object_huge().is_none() {
            return;
        }
        let (mut surplus, mut page) = (self.surplus(), 0);
        let (of, steps) = (object.member.frame(), || Steps::at_the_face());
        let spaces = || object::spaces(&self.stock, object);
        let copying = |space: &Space, page, va| {
            space::first_copying(&self.stock, space, of, (page, va), &mut steps())
        };
        let first_from =
            |page| spaces().filter_map(|it| copying(&it, page, Va::new(0))).map(|it| it.0).min();
        while let Some(first) = first_from(page) {
            for space in spaces() {
                let mut behind = Va::new(0);
                while let Some((at, range)) = copying(&space, first, behind)
                    && at == first
                {
                    self.regain(&space, range, &mut surplus);
                    behind = range.end();
                }
            }
            page = first + 1;
        }
    }
    /// How many pages an object has room for.
    pub fn object_room(&self, id: ObjectId) -> Option<Pages> {
        let _reading = self.stock.reading();
        Some(Pages::new(id.peek(&self.stock)?.object_end().get() / FRAME_BYTES))
    }
    /// How many pages an object has.
    pub fn object_pages(&self, id: ObjectId) -> Option<Pages> {
        let _reading = self.stock.reading();
        Some(id.peek(&self.stock)?.pages())
    }
    /// How many it has of those from `from` to before `to`.
    pub fn object_pages_in(&self, id: ObjectId, from: Pages, to: Pages) -> Option<Pages> {
        let room = self.object_room(id)?;
        let range = object::range::<P>(from.min(room), to.min(room)).ok()?;
        self.pages_on(id, range)
    }

    /// Whether an area maps an object shared and may be written, or may become so.
    pub fn is_shared_writable(&self, id: ObjectId) -> Option<bool> {
        let object = id.pin(&self.stock)?;
        let steps = &mut Steps::at_the_face();
        let mut spaces = object::spaces(&self.stock, &object);
        Some(spaces.any(|space| space::may_write_to(&self.stock, &space, id.frame(), steps)))
    }

    /// Puts an area into a space that maps an object from its page `first` on. With
    /// [`Flags::SHARED`](space::Flags::SHARED) what is written goes to the object; without, a page
    /// is copied when it is first written. It may reach beyond the object, but not beyond what any
    /// object can have: such pages are refused when they are touched. Of huge pages that are mapped
    /// shared, those of the range that are missing are reserved for the object; of those that are
    /// mapped privately, as many as the range has are reserved for copies; unless the request says
    /// `NORESERVE`. Where the first fails, what was at a fixed place is unmapped by then.
    pub fn map_object(
        &self,
        id: SpaceId,
        request: &MapRequest,
        (object, first): (ObjectId, Pages),
    ) -> Result<VaRange, MapError> {
        let space = id.pin(&self.stock).ok_or(RangeError::NoSpace)?;
        let of = object.pin(&self.stock).ok_or(RangeError::NoObject)?;
        let huge = of.object_huge();
        let asked = as_mapped(request, huge, first)?;
        object::check_mapped::<P>(first, Pages::new(request.bytes.get().div_ceil(FRAME_BYTES)))?;
        let (part, steps) = ((&*of, first.get()), &mut Steps::at_the_face());
        let subpool = of.object_subpool();
        let reserved = self.reserve_pages(&space, &asked, subpool)?;
        let mut done = space::map_object(&self.stock, &space, &asked, part, steps);
        if let (Some((order, pages)), Err(_)) = (reserved, &done) {
            self.pools().unreserve(order, subpool, pages);
        }
        if let (Ok(range), Some(order)) = (done, huge)
            && !request.flags.has(Flags::NORESERVE)
            && request.flags.has(Flags::SHARED)
            && let Err(why) = self.reserve_in(&of, order, (first, end_of(first, range)))
        {
            let gone = space::unmap(&self.stock, &space, range, &mut Steps::at_the_face());
            debug_assert!(gone.is_ok(), "it was mapped just now: {gone:?}");
            done = Err(why);
        }
        drop(of);
        space::collect(&self.stock, &space);
        self.collect();
        done
    }
    /// Reserves pages of an object, as far as they are neither there nor reserved.
    fn reserve_in(
        &self,
        object: &Space,
        order: Order,
        pages: (Pages, Pages),
    ) -> Result<(), MapError> {
        let (of, mut have) = (object.object_subpool(), 0);
        loop {
            let steps = &mut Steps::at_the_face();
            let got = match object::reserve(&self.stock, object, pages, have, steps) {
                Ok(Reserving::Wants(wanted)) => {
                    let more = self.pools().reserve(order, of, wanted - have);
                    more.map(|()| have = wanted).map_err(MapError::NoHugePages)
                }
                Ok(Reserving::Took(used)) => {
                    self.pools().unreserve(order, of, have - used);
                    return Ok(());
                }
                Err(why) => Err(why.into()),
            };
            if let Err(why) = got {
                self.pools().unreserve(order, of, have);
                return Err(why);
            }
        }
    }

    /// Makes one folio of `order` of the pages of an object from `first` on, as
    /// [`collapse`](Manager::collapse) does of a space's. Programs that map any of them fault for
    /// it again; where one does so meanwhile, it fails as changed. Where a program was ever handed
    /// what it lacks, no page may be missing.
    pub fn collapse_object(
        &self,
        id: ObjectId,
        first: Pages,
        order: Order,
        limits: CollapseLimits,
    ) -> Result<(), CollapseError> {
        let object = id.pin(&self.stock).ok_or(CollapseError::NoSpace)?;
        let va = first.get().checked_mul(FRAME_BYTES).map(Va::new);
        let va = va.ok_or(CollapseError::Unsuitable(Va::new(0)))?;
        self.collapse_pages((id.space(), &object), va, order, limits)
    }
    /// The same of an object that is held, with the address of the first page in its space.
    fn collapse_pages(
        &self,
        (id, object): (SpaceId, &Space),
        va: Va,
        order: Order,
        limits: CollapseLimits,
    ) -> Result<(), CollapseError> {
        let first = va.get() / FRAME_BYTES;
        let pages = (Pages::new(first), Pages::new(first + order.pages().get()));
        // What is missing may be a program's to fill.
        let max_ptes_none = match object.is_armed_object() {
            true => Pages::new(0),
            false => limits.max_ptes_none,
        };
        let limits = CollapseLimits { max_ptes_none, ..limits };
        object::unmap(&self.stock, object, pages, &mut Steps::at_the_face());
        self.collapse(id, va, order, limits)
    }
    /// Collapses what an area shows of an object in `whole`, and maps it there. A folio that has
    /// all of it is mapped by a leaf if that has its size, unless a copy of a page of it lies
    /// there.
    pub(super) fn collapse_shown(
        &self,
        id: SpaceId,
        area: &Area,
        (whole, order): (VaRange, Order),
        limits: CollapseLimits,
    ) -> Result<(), CollapseError> {
        if self.first_level(id, whole) > Some(Level::BASE) {
            return Err(CollapseError::Collapsed(whole.start()));
        }
        let (object, va) = self.shown(id, whole.start()).ok_or(CollapseError::NoSpace)?;
        let held = object.pin(&self.stock).ok_or(CollapseError::NoSpace)?;
        let collapse = || self.collapse_pages((object, &held), va, order, limits);
        let mut tries = 1;
        let mut done = collapse();
        while let Err(CollapseError::Changed(_)) = done
            && tries < TRIES
        {
            Outside::at_the_face().yield_now(self.stock.machine); // others map what they touch
            tries += 1;
            done = collapse();
        }
        match done {
            Ok(()) | Err(CollapseError::Collapsed(_)) => {}
            // It is the object's address that is no multiple, or at which it ends.
            Err(CollapseError::Misaligned(..) | CollapseError::Unsuitable(_)) => {
                return Err(CollapseError::Unsuitable(whole.start()));
            }
            Err(why) => return Err(why),
        }
        if area.flags.has(Flags::USERFAULT_WRITE) || !area.flags.has(Flags::READ) {
            return Ok(()); // its pages come one by one, or not at all
        }
        let has_own = |level| level == Some(Level::BASE);
        if !has_own(self.first_level(id, whole)) {
            let demand = Demand::page(whole.start(), Access::Read);
            self.resolve(id, Demand { purpose: Purpose::Collapse, ..demand });
        }
        match order == Order::SIZE_2M && has_own(self.first_level(id, whole)) {
            true => Err(CollapseError::Changed(whole.start())),
            false => Ok(()),
        }
    }
    /// The level of the first leaf in a range.
    fn first_level(&self, id: SpaceId, range: VaRange) -> Option<Level> {
        let leaf = self.with_leaves(id, range, |mut leaves| leaves.next()).flatten();
        leaf.map(|leaf| leaf.level)
    }
    /// The object that a space maps at `va`, as the space that keeps its pages, and where that has
    /// what lies there.
    fn shown(&self, id: SpaceId, va: Va) -> Option<(SpaceId, Va)> {
        let _reading = self.stock.reading();
        let area = id.peek(&self.stock)?.areas.find(self.stock.machine, va)?;
        let attached = Attachment::of(&self.stock, area.attachment()?);
        Some((SpaceId::found(&self.stock, attached.object())?, object::place(attached, va)))
    }

    /// A page of an object, for the kernel: to read it, where `None` stands for zeros, or to write
    /// it, where it is made if it is not there.
    pub fn object_page(
        &self,
        id: ObjectId,
        page: Pages,
        access: Access,
    ) -> Result<Option<ObjectPage<'_, 'm, M, P>>, NoPage> {
        let at = page.get().checked_mul(FRAME_BYTES).map(Va::new).ok_or(NoPage::Beyond(page))?;
        loop {
            match self.look_at_page(id, at, access)? {
                Looked::There(found) => {
                    let is_broken = found.is_broken(&self.stock);
                    let is_promised = found.is_promised && access != Access::Write;
                    if access == Access::Write && !is_broken {
                        found.touch(&self.stock);
                    }
                    let (frame, kept) = (found.frame, Keeping::of(self, found.pin));
                    return match is_broken {
                        true => Err(NoPage::Broken(frame)),
                        false => Ok(Some(ObjectPage { frame, is_promised, kept })),
                    };
                }
                Looked::OnItsWay | Looked::Changed => {
                    self.stock.machine.relax();
                    Outside::at_the_face().yield_now(self.stock.machine);
                }
                Looked::Nothing if access != Access::Write => return Ok(None),
                Looked::Nothing => {
                    let ended = self.resolve_once(id.space(), Demand::page(at, Access::Write));
                    made(ended).map_err(|outcome| self.no_page(id, page, outcome))?;
                }
            }
        }
    }
    /// Looks for the page at an address of an object's space; for a page to write to, only where
    /// one may be made.
    fn look_at_page(
        &self,
        id: ObjectId,
        at: Va,
        access: Access,
    ) -> Result<Looked<'_, 'm, M, P>, NoPage> {
        let _reading = self.stock.reading();
        let object = id.peek(&self.stock).ok_or(NoPage::NoObject)?;
        let huge = object.object_huge();
        if let Some(order) = huge.filter(|_| access == Access::Write) {
            return Err(NoPage::Huge(order));
        }
        if at >= object.object_end() {
            return Err(NoPage::Beyond(Pages::new(at.get() / FRAME_BYTES)));
        }
        Ok(match huge {
            Some(order) => look_at_huge(&self.stock, object, at, order),
            None => look(&self.stock, object, at),
        })
    }
    /// Why a page was not made.
    fn no_page(&self, id: ObjectId, page: Pages, outcome: Outcome) -> NoPage {
        let limit = || id.pin(&self.stock)?.charge.limit();
        match outcome {
            Outcome::OverLimit => limit().map_or(NoPage::NoObject, NoPage::OverLimit),
            Outcome::Refused(Refusal::NoSpace) => NoPage::NoObject,
            Outcome::Refused(_) => NoPage::Beyond(page),
            _ => NoPage::NoMemory,
        }
    }
}

/// The page of an object behind those that a range maps from page `first` on.
fn end_of(first: Pages, range: VaRange) -> Pages {
    Pages::new(first.get() + range.pages().get())
}

/// The request for an area of an object, of huge pages or not, from a page of it on.
fn as_mapped(
    request: &MapRequest,
    huge: Option<Order>,
    first: Pages,
) -> Result<MapRequest, MapError> {
    let flags = request.flags;
    let none = Flags::GROWS_DOWN.with(Flags::HUGE_2M).with(Flags::HUGE_1G);
    if flags.and(none) != Flags::NONE {
        return Err(MapError::Flags(flags));
    }
    let Some(order) = huge else { return Ok(*request) };
    let size = Flags::huge(order).ok_or(MapError::Flags(flags))?;
    if !first.get().is_multiple_of(order.pages().get()) {
        let va = Va::new(first.get().saturating_mul(FRAME_BYTES));
        return Err(RangeError::Cuts(va, order.bytes()).into());
    }
    // What is shared is the object's to reserve, and copies are the area's (object::O6).
    let none = if flags.has(Flags::SHARED) { Flags::NORESERVE } else { Flags::NONE };
    Ok(MapRequest { flags: flags.with(size).with(none), ..*request })
}

/// Whether a fault in an object's space brought its page; else how it ended.
pub(super) fn made(ended: Outcome) -> Result<(), Outcome> {
    match ended {
        Outcome::Mapped(_) | Outcome::Copied | Outcome::Reused | Outcome::Spurious => Ok(()),
        other => Err(other),
    }
}
