//! A fault in an area of huge pages: one leaf, one page of the pool.
//!
//! ```text
//!   of an object ── it has a page: mapped, read-only in a private area (`object`); else, if private, as below
//!   empty, armed ── told; the handler fills it with contents (`fill`)
//!   watched ─────── write: told; else as what is there without that, and watched as well
//!   empty ───────── a reserved page, or one that nobody reserved ─▶ clear ─▶ publish
//!   spent ───────── one that nobody reserved ────────────────┘
//!   read-only ───── write: nobody else has the page ─▶ writable; else one that nobody reserved ─▶ keep, copy ─▶ publish
//!                   of an object: the one that is reserved for the copy
//!   lost ────────── none
//!   poisoned ────── refused as broken
//! ```
//!
//! A page is cleared and copied by the face, outside of sections. The original of a copy is kept
//! meanwhile by as many references as an entry has: so no space takes it for its own and writes to
//! it, and nobody frees it. A flush between these references and the copy ends translations from
//! before the page was shared, through which a CPU might still write.
//!
//! A program that gets no page is told so ([`Outcome::NoHugePage`]): there is no smaller size to
//! step down to. The same goes for a child after a fork, which shares its parent's pages and has
//! none reserved. A parent that has reservations and writes to a page which it shares gets that
//! page: the face takes it away from all children (`Manager::take_from_others`), which find none
//! there from then on, and no zeros in its place either.

use super::{Access, Fault, Need, Outcome, Refusal, Step};
use crate::flush::{Gather, Used};
use crate::frame::{Origin, Unmapped};
use crate::memmap::Huge;
use crate::pool::Ground;
use crate::space::{
    Area, Flags, SPENT_BEHIND, attrs, is_lost, level_of, plain_place, subpool, watched,
};
use crate::stock::{Event, NoTable, Stock, Subpool};
use crate::sync::Outside;
use crate::table::{Attrs, Entry, Found, Paging, SoftKind};
use crate::zero;
use core::cell::Cell;
use foliant_machine::{Machine, Replace};
use foliant_units::{Bytes, FRAME_BYTES, Frame, FrameRange, Order, Pages, VaRange};

/// What a huge page becomes, piece by piece. It calls nothing of the manager: the fill counts as at
/// work meanwhile, and a fault that is refused memory waits for it (fault::E7).
pub trait HugeContents {
    /// The 4 KiB that lie so far behind its beginning; a fill that meets others may ask for them
    /// again. `None` ends the fill ([`FillError::NoContents`](super::FillError)).
    fn piece(&mut self, at: Bytes) -> Option<&[u8; FRAME_BYTES as usize]>;
    /// Whether the page is watched from the start ([`Watch`](crate::space::Watch)): in an area that
    /// is armed for writes.
    fn is_watched(&self) -> bool {
        false
    }
}

impl HugeContents for &[[u8; FRAME_BYTES as usize]] {
    fn piece(&mut self, at: Bytes) -> Option<&[u8; FRAME_BYTES as usize]> {
        self.get((at.get() / FRAME_BYTES) as usize)
    }
}

/// What is in a page that was taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Filled {
    /// Anything.
    Not,
    Zeros,
    /// What a handler gave (fault::fill).
    Contents,
    /// The same as in its original.
    Copy,
    /// There is no page any more: it broke, and its pool gets it from somebody else.
    Lost,
}

/// A page that was taken from the pool for a fault.
pub(crate) struct Offer {
    /// The page, until it is mapped.
    pub(crate) page: Option<Huge>,
    pub(crate) order: Order,
    pub(crate) source: Ground,
    filled: Filled,
    /// The page that this one is, or will be, a copy of; kept by the offer.
    original: Option<Frame>,
}

impl Offer {
    pub(crate) fn new(page: Huge, source: Ground) -> Offer {
        let order = page.order();
        Offer { page: Some(page), order, source, filled: Filled::Not, original: None }
    }
    /// Clears the page, the neighbourhood of the frame that was touched last.
    pub(crate) fn clear<M: Machine, P: Paging>(
        &mut self,
        stock: &Stock<'_, M, P>,
        touched: Frame,
        outside: &mut Outside,
    ) {
        let head = self.page.as_ref().expect("an offer has a page until it is mapped").head();
        zero::clear_huge(stock, (head, self.order), touched, outside);
        self.filled = Filled::Zeros;
    }
    /// Fills the page with what its original holds.
    pub(crate) fn copy<M: Machine, P: Paging>(
        &mut self,
        stock: &Stock<'_, M, P>,
        outside: &mut Outside,
    ) {
        let (Some(original), Some(page)) = (self.original, &self.page) else {
            unreachable!("a copy was asked for with both")
        };
        zero::copy_yielding(stock, original.pa(), page.frames(), outside);
        stock.count_by(Event::CopiedBytes, self.order.bytes().get());
        self.filled = Filled::Copy;
    }
    /// Fills the page with what a handler has. Says whether it had all.
    pub(crate) fn write<M: Machine, P: Paging>(
        &mut self,
        stock: &Stock<'_, M, P>,
        contents: &mut dyn HugeContents,
        outside: &mut Outside,
    ) -> bool {
        let page = self.page.as_ref().expect("an offer has a page until it is mapped");
        let pieces = self.order.pages().get();
        let done = (0..pieces).all(|nth| {
            let piece = contents.piece(Bytes::new(nth * FRAME_BYTES));
            let came = piece.map(|piece| zero::write_piece(stock, piece, (page.frames(), nth)));
            outside.yield_now(stock.machine);
            came.is_some()
        });
        if done {
            stock.count_by(Event::CopiedBytes, self.order.bytes().get());
            self.filled = Filled::Contents;
        }
        done
    }
    /// Takes the page back, which broke before it was mapped. Its reservation has its charge, from
    /// before somebody else can give it back.
    fn take_back<M: Machine, P: Paging>(&mut self, stock: &Stock<'_, M, P>, frames: FrameRange) {
        if let Ground::Reserved(_) = self.source {
            stock.set_subpool(frames.start(), Subpool::NONE);
        }
        if !stock.delist_huge(frames, frames.pages().get()) {
            (self.page, self.filled) = (None, Filled::Lost);
        }
    }
    /// Whether it has none, as that broke and somebody else gives it back.
    pub(crate) fn is_lost(&self) -> bool {
        self.filled == Filled::Lost
    }
    /// Keeps the original no longer. No entry was made with the references that kept it.
    pub(crate) fn forget_original<M: Machine, P: Paging>(&mut self, stock: &Stock<'_, M, P>) {
        if let Some(original) = self.original.take() {
            stock.drop_unused(original, self.order.pages().get());
        }
    }
}

/// What has an object's page mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Brought {
    /// An access: where it is the program's to let in, that is told.
    ByAccess,
    /// The program's handler: a page that is not there is asked for.
    ByHandler,
}

/// Whether a place was found where a page can come: empty, spent, watched, or poisoned, where only
/// the handler brings one.
pub(super) fn is_place(found: &Found) -> bool {
    use SoftKind::{Marker, Other, Poison};
    match found.entry {
        Entry::None => true,
        Entry::Soft(soft) => matches!(soft.kind, Other | Marker | Poison),
        Entry::Leaf { .. } | Entry::Table(_) => false,
    }
}
/// Whether a marker was found.
pub(super) fn is_marked(found: &Found) -> bool {
    matches!(found.entry, Entry::Soft(soft) if soft.kind == SoftKind::Marker)
}

impl<'f, 'm, M: Machine, P: Paging> Fault<'f, 'm, M, P> {
    /// A step in an area of huge pages of `order`.
    #[inline(never)]
    pub(super) fn hugetlb(&self, area: &Area, order: Order, found: &Found) -> Step {
        let level = level_of(order);
        if found.level < level {
            return Step::Need(Need::Clear(self.va, order));
        }
        match found.entry {
            _ if is_lost(found.word) => Step::Done(Outcome::NoHugePage(order)),
            Entry::Soft(soft) if soft.kind == SoftKind::Poison => {
                Step::Done(Outcome::Refused(Refusal::Broken(self.va)))
            }
            Entry::Soft(soft) if soft.kind == SoftKind::Migration => Step::Need(Need::Wait),
            // It is watched no more, and the marker is about to go.
            _ if is_marked(found) && !area.flags.has(Flags::USERFAULT_WRITE) => {
                Step::Need(Need::Wait)
            }
            _ if is_place(found) && area.flags.has(Flags::OBJECT) => {
                self.huge_of_object(area, order, found, (Brought::ByAccess, is_marked(found)))
            }
            _ if is_place(found) => self.missing(area, found),
            Entry::Leaf { attrs, .. } if self.lags(attrs) => Step::Need(Need::Wait),
            Entry::Leaf { attrs, .. } if found.level == level && self.is_barred(attrs) => {
                self.huge_protected(area, order, found)
            }
            Entry::Leaf { .. } => {
                self.forget_here(found.level);
                self.stock.count(Event::Spurious);
                Step::Done(Outcome::Spurious)
            }
            _ => Step::Again,
        }
    }

    /// The page that was taken for this fault, if it was taken on the ground that is asked for now,
    /// is not meant to be a copy of another page than `original`, and has not broken meanwhile.
    fn offered(
        &self,
        order: Order,
        source: Ground,
        original: Option<Frame>,
    ) -> Result<Offer, Need> {
        match self.offers.page.take() {
            Some(offer)
                if (offer.order, offer.source) == (order, source)
                    && !offer.is_lost()
                    && (offer.original.is_none() || offer.original == original)
                    && !self.broke(&offer) =>
            {
                Ok(offer)
            }
            other => {
                self.offers.page.set(other);
                Err(Need::Page(order, source))
            }
        }
    }

    /// On which ground a page of an area is taken.
    fn ground(&self, area: &Area, is_reserved: bool) -> Ground {
        let of = subpool(self.stock, self.space, area);
        if is_reserved { Ground::Reserved(of) } else { Ground::Unreserved(of) }
    }
    /// Whether the page was reported broken while it was cleared or filled.
    fn broke(&self, offer: &Offer) -> bool {
        offer.page.as_ref().is_some_and(|page| self.is_broken(page.head()))
    }

    /// Maps a cleared page where there is none, or has it told.
    pub(super) fn missing(&self, area: &Area, found: &Found) -> Step {
        match (area.flags.has(Flags::USERFAULT), is_marked(found), self.access) {
            (true, ..) => Step::Done(Outcome::Userfault(self.va)),
            (_, true, Access::Write) => Step::Done(Outcome::UserfaultWrite(self.va)),
            (_, is_marked, _) => self.publish_huge(area, found, Filled::Zeros, is_marked),
        }
    }
    /// Maps a page where there is none, with what is wanted in it, perhaps watched.
    pub(super) fn publish_huge(
        &self,
        area: &Area,
        found: &Found,
        wanted: Filled,
        is_watched: bool,
    ) -> Step {
        let is_reserved = plain_place(found.word) == 0 && area.flags.reserved().is_some();
        let source = self.ground(area, is_reserved);
        let order = area.flags.huge_order().expect("the area has huge pages");
        let level = level_of(order);
        let offer = match self.offered(order, source, None) {
            Ok(offer) => offer,
            Err(need) => return Step::Need(need),
        };
        let frames = offer.page.as_ref().expect("an offer has a page until it is mapped").frames();
        if offer.filled != wanted && wanted == Filled::Contents {
            self.offers.page.set(Some(offer));
            return Step::Need(Need::PageContents);
        }
        if offer.filled != wanted {
            let inside = (self.va.get() - self.va.align_down(order.bytes()).get()) / FRAME_BYTES;
            let touched = frames.start().add(Pages::new(inside));
            self.offers.page.set(Some(offer));
            return Step::Need(Need::PageZeros(touched));
        }
        let mut offer = offer;
        let step = match self.ensure(level, found) {
            Err(NoTable::Record(why)) => Step::Done(Self::refusal(why)),
            Err(NoTable::Blocked(_)) => Step::Again,
            Ok(()) => match self.view.agree(&self.seen(area, level, found.word)) {
                None => Step::Again,
                // The object became shorter (fault::object::J5).
                Some(_) if self.is_beyond(area) => Step::Again,
                Some(agreed) => {
                    // References come before entries (frame::descriptor::D2). If it broke just now
                    // another one is asked for.
                    let (pages, origin) = (order.pages().get(), self.huge_origin(area, order));
                    if !self.stock.enlist_huge(frames, pages, origin) {
                        offer.take_back(self.stock, frames);
                        self.offers.page.set(Some(offer));
                        return Step::Again;
                    }
                    let mut attrs = attrs(area.flags) | Attrs::EXCLUSIVE | Attrs::ACCESSED;
                    if area.flags.has(Flags::WRITE) {
                        attrs = attrs | Attrs::WRITE | Attrs::DIRTY | Attrs::SOFT_DIRTY;
                    }
                    let attrs = if is_watched { watched(attrs) } else { attrs };
                    agreed.repeat(P::leaf(frames.start().pa(), level, attrs));
                    self.space.count_huge(self.stock.machine.me(), order.pages().get());
                    offer.page = None;
                    Step::Done(Outcome::Mapped(order))
                }
            },
        };
        self.offers.page.set(Some(offer));
        step
    }

    /// A write to a page that is mapped read-only.
    fn huge_protected(&self, area: &Area, order: Order, found: &Found) -> Step {
        let level = level_of(order);
        let Entry::Leaf { pa, attrs: old } = found.entry else { return Step::Again };
        if self.tells_of_write(area, old) {
            return Step::Done(Outcome::UserfaultWrite(self.va)); // space::S12
        }
        if let Some(step) = self.reuse(area, level, found.word) {
            return step;
        }
        let head = pa.frame();
        if self.is_broken(head) {
            return Step::Done(Outcome::Refused(Refusal::Broken(self.va)));
        }
        // References to an exclusive page are those of a copy that was begun when the page was
        // shared, or anchors, or a holder's. A change of rights makes its entry writable without
        // asking for them, so it is never copied (space::S5). An object's page is never ours
        // (object::O5).
        let is_objects = self.is_objects(area, head);
        let is_last = || self.stock.counts(head).entries() == order.pages().get();
        let is_ours = || !is_objects && (old.has(Attrs::EXCLUSIVE) || is_last());
        let is_reserved = is_objects && !old.has(SPENT_BEHIND) && area.flags.reserved().is_some();
        let ground = self.ground(area, is_reserved);
        // Where entries are replaced in place, `reuse` has seen that the page is shared. Otherwise
        // that is certain only while the entry is broken.
        let breaks = self.stock.machine.rules().replace == Replace::BreakBeforeMake;
        let offer = if breaks && is_ours() {
            None
        } else {
            match self.offered(order, ground, Some(head)) {
                Ok(offer) if offer.filled != Filled::Copy => {
                    return self.keep_original(area, found, offer);
                }
                Ok(offer) => Some(offer),
                Err(need) => return Step::Need(need),
            }
        };
        let agreed = self.view.agree(&self.seen(area, level, found.word));
        // Whose the page is was read before it was certain that the entry kept it.
        let Some(agreed) = agreed.filter(|_| self.is_objects(area, head) == is_objects) else {
            self.offers.page.set(offer.or_else(|| self.offers.page.take()));
            return Step::Again;
        };
        let (offer, done) = (Cell::new(offer), Cell::new(None));
        agreed.replace(|| {
            let rights = self.own_attrs(area, old);
            if is_ours() {
                done.set(Some(Outcome::Reused));
                return P::leaf(pa, level, rights);
            }
            let Some(mut taken) = offer.take() else { return found.word };
            let frames = taken.page.as_ref().expect("an offer has a page").frames();
            let (pages, origin) = (order.pages().get(), self.huge_origin(area, order));
            let is_sound = self.stock.enlist_huge(frames, pages, origin);
            match is_sound {
                true => taken.page = None,
                false => taken.take_back(self.stock, frames),
            }
            offer.set(Some(taken));
            if !is_sound {
                return found.word;
            }
            done.set(Some(Outcome::Copied));
            P::leaf(frames.start().pa(), level, rights)
        });
        self.offers.page.set(offer.take().or_else(|| self.offers.page.take()));
        match done.get() {
            Some(Outcome::Copied) => {
                // This drops the references of the entry. Those of the offer go with the offer.
                let mut gather = Gather::new(self.stock, &self.space.member.target);
                gather.defer(Unmapped::of(head, order.pages().get()));
                gather.flush();
                self.stock.count(Event::Copied);
                Step::Done(Outcome::Copied)
            }
            Some(outcome) => {
                self.forget_here(level);
                self.stock.count(Event::Reused);
                Step::Done(outcome)
            }
            None => Step::Again,
        }
    }
    /// Where a huge page is made that is the space's own.
    fn huge_origin(&self, area: &Area, order: Order) -> Origin {
        self.space.member.origin(self.va.align_down(order.bytes()), area.offset(self.stock))
    }

    /// Sees to it that nobody writes to the page that was found, nor frees it, and has it copied
    /// outside of the section.
    fn keep_original(&self, area: &Area, found: &Found, mut offer: Offer) -> Step {
        let Entry::Leaf { pa, .. } = found.entry else { return Step::Again };
        let Some(agreed) = self.view.agree(&self.seen(area, found.level, found.word)) else {
            self.offers.page.set(Some(offer));
            return Step::Again;
        };
        if offer.original.is_none() {
            self.stock.add_references(pa.frame(), offer.order.pages().get());
            offer.original = Some(pa.frame());
        }
        drop(agreed);
        // No word changed, so no operation concludes anything from this flush, and it need not be
        // noted under the lock: the operation that took the right to write noted that (flush::F2).
        let bytes = found.level.span();
        let covers = VaRange::sized(self.va.align_down(bytes), bytes).expect("a user leaf");
        let mut gather = Gather::new(self.stock, &self.space.member.target);
        // The entry may have been used, writable and shared again since it was found.
        gather.note(covers, found.level, Used::Yes);
        gather.flush();
        self.offers.page.set(Some(offer));
        Step::Need(Need::Copy)
    }
}
