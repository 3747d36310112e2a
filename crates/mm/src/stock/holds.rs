#![allow(unsafe_code)]
//! Folios whose holder takes their mappings out of use: pinned, locked, and at last frozen.
//!
//! ```text
//!   hold ──▶ Held: pinned, Locked ──freeze──▶ Frozen: no entry counts, nobody can get a reference
//!              ▼ dropped: unlocked, unpinned     ▼ its frames become pieces, which are held, or it is elsewhere by now
//! ```
//!
//! **Invariants**
//! - B1. There is one holder at a time: `Locked` is set by compare-and-exchange, on a folio that is
//!   pinned.
//! - B2. A freeze succeeds only where the holder's pin is the only one and every entry is one that
//!   the holder has taken out of use. From then on `get_unless_zero` finds nothing, until its
//!   frames are other folios. A page that a collapse freezes (`freeze_pages`) has no holder before:
//!   it is frozen only where nobody pins it and its one entry is an exclusive one, which the
//!   collapse has seen in a table that it has locked, in a space whose writer it has. No CPU
//!   changes what that entry maps before the page is a part of the larger folio, so it stays in
//!   use: the memory stays where it is.
//! - B3. Neither kind nor order of a folio changes except by its holder, while it is frozen. Nor is
//!   it marked as broken while it is held, except by its holder: another CPU that marks it waits
//!   for the holder, and so the holder waits for no reference to go. What is marked is held only
//!   to take its entries away (`split::broken`), and never becomes pieces.
//! - B4. The CPU that marks a folio as broken keeps it by a pin until the mark is there. So the CPU
//!   that drops the last reference sees the mark, and no folio is marked that is on its way back:
//!   what `poison` answered stays true.
//!
//! **States** of an anonymous folio, by word 1 (pins, entries) and the flags of word 0. A page of
//! kernel memory has the same ones, except those in which it is held. A huge page of a pool that is
//! in use is held and frozen likewise, but no walker pins it: its pins are holders' and anchors'.
//!
//! | state | pins | entries | Locked | Poisoned | changed by | what comes next |
//! |---|---|---|---|---|---|---|
//! | kept | any | any, not both 0 | no | no | any CPU that has a reference | any below |
//! | held | 1 and more | any | yes | no | its holder; others count up and down | kept, frozen |
//! | frozen | 0 | 0, the holder knows how many | yes | no | its holder alone | pieces or a larger folio: held; elsewhere: free; given up: kept |
//! | last one dropped | 0 | 0 | no | no | the CPU that counted down to it | free |
//! | broken | any | any, not both 0 | no; of a holder that takes its entries away: yes | yes | any CPU that has a reference | broken for good, frozen |
//! | broken for good | 0 | 0 | no | yes | nobody | nothing |
//!
//! Counts go up by compare-and-exchange, from kept, held or broken only. Out of frozen they come by
//! a plain store of the CPU that froze the folio: in `Stock::publish` and `mark_frozen`, and where
//! `freeze_pages` gives pages up. They reach 0 and 0 in `Stock::count_down`, and by a freeze. The
//! mark is made in kept, by a compare-and-exchange of word 0, while its maker has a pin, or by the
//! holder. Plain stores of word 0 are for the CPU that dropped the last reference, and for the one
//! that froze the folio.
//!
//! **Not here**: how mappings are taken out of use (`split`).

use super::{Reference, SizeEvent, Stock};
use crate::frame::{Claim, Flag, Identity, Kind, Origin, References};
use crate::table::Paging;
use core::mem;
use foliant_machine::{Machine, Owner};
use foliant_units::{Frame, FrameRange, Order, Pages};

/// A folio that is pinned and locked. Dropped, it is let go.
pub(crate) struct Held<'s, 'm, M: Machine, P: Paging> {
    reference: Reference<'s, 'm, M, P>,
    order: Order,
}

/// A folio that nobody else can get at: all its mappings are out of use, and flushed.
#[must_use = "its mappings wait for it"]
pub(crate) struct Frozen {
    head: Frame,
    order: Order,
    entries: u64,
}

/// Why a folio is not held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NotHeld {
    /// The frame is in no folio.
    Nothing,
    /// It is in a huge page of a pool, which stays whole.
    Huge,
    /// Somebody else holds it, it is on its way back, or its descriptors are being moved.
    Busy,
    /// Its memory is broken: it is neither read nor used again.
    Broken,
}

impl<M: Machine, P: Paging> Held<'_, '_, M, P> {
    pub(crate) fn head(&self) -> Frame {
        self.reference.head()
    }
    pub(crate) fn order(&self) -> Order {
        self.order
    }
    /// The folio stays held without the token; [`Stock::resume`] makes it again.
    pub(crate) fn keep(self) {
        mem::forget(self);
    }
}

impl Frozen {
    pub(crate) fn head(&self) -> Frame {
        self.head
    }
    pub(crate) fn order(&self) -> Order {
        self.order
    }
    /// The entries that were taken out of use, in base pages.
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }
}

impl<M: Machine, P: Paging> Drop for Held<'_, '_, M, P> {
    fn drop(&mut self) {
        self.reference.stock().unflag(self.reference.head(), Flag::Locked);
    }
}

impl<'m, M: Machine, P: Paging> Stock<'m, M, P> {
    /// Holds the anonymous folio that has `frame`. It waits for nobody: where descriptors are being
    /// moved, there is no folio, or there was none a moment ago (split::T6).
    pub(crate) fn hold(&self, frame: Frame) -> Result<Held<'_, 'm, M, P>, NotHeld> {
        self.hold_pinned(self.reference_to_hold(frame)?)
    }
    /// Does so whether its memory was reported broken or not: to take its entries away for good.
    pub(crate) fn hold_broken(&self, frame: Frame) -> Result<Held<'_, 'm, M, P>, NotHeld> {
        self.hold_if(self.reference_to_hold(frame)?, |_| true)
    }
    /// Holds the huge page of a pool that has `frame` and is in use, which a walker cannot pin, to
    /// take its entries away and put them back elsewhere. It waits for nobody either.
    pub(crate) fn hold_huge(&self, frame: Frame) -> Result<Held<'_, 'm, M, P>, NotHeld> {
        self.hold_pinned(self.pin_huge(frame).ok_or(NotHeld::Busy)?)
    }
    fn reference_to_hold(&self, frame: Frame) -> Result<Reference<'_, 'm, M, P>, NotHeld> {
        let found = self.reference_now(frame).ok_or(NotHeld::Busy)?;
        found.map_err(|identity| match identity.kind() {
            Kind::Plain | Kind::Space | Kind::Kernel => NotHeld::Nothing,
            Kind::Huge | Kind::HugeTail => NotHeld::Huge,
            Kind::Anon | Kind::Tail => NotHeld::Busy,
        })
    }
    /// Holds a folio that is pinned already.
    pub(crate) fn hold_pinned<'s>(
        &'s self,
        reference: Reference<'s, 'm, M, P>,
    ) -> Result<Held<'s, 'm, M, P>, NotHeld> {
        self.hold_if(reference, |identity| !identity.has(Flag::Poisoned))
    }
    fn hold_if<'s>(
        &'s self,
        reference: Reference<'s, 'm, M, P>,
        may_be: impl Fn(Identity) -> bool,
    ) -> Result<Held<'s, 'm, M, P>, NotHeld> {
        loop {
            let old = self.identity(reference.head());
            if !may_be(old) {
                return Err(NotHeld::Broken);
            }
            match old.kind() {
                Kind::Anon | Kind::Huge if !old.has(Flag::Locked) => {}
                Kind::Kernel => return Err(NotHeld::Nothing),
                _ => return Err(NotHeld::Busy),
            }
            if self.replace_identity(reference.head(), old, old.with(Flag::Locked)) {
                return Ok(Held { reference, order: old.order() });
            }
        }
    }
    /// Freezes a folio of which the holder has taken `entries` out of use and flushed them. Where
    /// these are not all there are, it stays as it is (B2). A folio without any is not frozen: it
    /// is given back when it is let go.
    pub(crate) fn freeze<'s>(
        &'s self,
        held: Held<'s, 'm, M, P>,
        entries: u64,
    ) -> Result<Frozen, Held<'s, 'm, M, P>> {
        let all = References::of_entries(entries).with(References::PIN);
        let none = References::NONE.word();
        if entries == 0 || self.replace_references(held.head(), all.word(), none).is_err() {
            return Err(held);
        }
        let frozen = Frozen { head: held.head(), order: held.order, entries };
        mem::forget(held); // the pin went with the count, and `Locked` stays
        Ok(frozen)
    }

    /// Freezes the base pages of the frames from `first` on, if each of them has one entry and no
    /// pin; else leaves all of them as they are. The caller has found these entries (B2).
    pub(crate) fn freeze_pages(&self, first: Frame, order: Order) -> bool {
        let all = order.pages().get();
        let page = |nth| first.add(Pages::new(nth));
        let frozen = (0..all).take_while(|nth| self.freeze_page(page(*nth))).count() as u64;
        if frozen < all {
            for nth in 0..frozen {
                self.set_references(page(nth), References::of_entries(1).word());
                self.unflag(page(nth), Flag::Locked);
            }
        }
        frozen == all
    }
    /// Freezes a base page with one entry and no pin, and locks it, so that nobody marks it (B3).
    fn freeze_page(&self, page: Frame) -> bool {
        let one = References::of_entries(1).word();
        let old = self.identity(page);
        let is_page = (old.kind(), old.order()) == (Kind::Anon, Order::BASE);
        if !is_page || old.has(Flag::Poisoned) || old.has(Flag::Locked) {
            return false;
        }
        if !self.replace_identity(page, old, old.with(Flag::Locked)) {
            return false;
        }
        let frozen = self.replace_references(page, one, References::NONE.word()).is_ok();
        if !frozen {
            self.unflag(page, Flag::Locked);
        }
        frozen
    }
    /// Makes one folio of `order`, made at `origin`, of frozen pages, all of which are mapped.
    pub(crate) fn fuse(&self, (first, order): (Frame, Order), origin: Origin) {
        for nth in 0..order.pages().get() {
            let page = first.add(Pages::new(nth));
            self.uncount_folio(page, self.identity(page));
        }
        self.join(first, order);
        drop(self.publish((first, order), origin, order.pages().get()));
        self.defer_unused(first, order);
    }

    /// Marks the memory of a frozen folio as broken. It has its entries again, which the caller
    /// takes away, and is held until then.
    pub(crate) fn mark_frozen(&self, frozen: Frozen) -> Held<'_, 'm, M, P> {
        self.flag(frozen.head, Flag::Poisoned); // before anybody can get a reference (B4)
        self.thaw(frozen)
    }

    /// Ends a frozen folio whose frames become pieces. Its descriptors stay for now.
    pub(crate) fn retire_head(&self, frozen: Frozen) {
        self.uncount_folio(frozen.head, self.identity(frozen.head));
    }
    /// Makes a folio of frames that were part of a frozen one, with so many entries. The caller
    /// makes these next, and holds the folio until then (split::T8).
    pub(crate) fn publish(
        &self,
        (head, order): (Frame, Order),
        origin: Origin,
        entries: u64,
    ) -> Held<'_, 'm, M, P> {
        let tails = order.pages().get() - 1;
        self.set_origin(head, origin);
        self.set_identities(head.add(Pages::new(1)), tails, Identity::new(Kind::Tail, order));
        // It is frozen until it has its count, which comes last: a walker that finds a count finds
        // a folio, and one that finds none waits (B3).
        self.set_identity(head, Identity::new(Kind::Anon, order).with(Flag::Locked));
        self.set_references(head, References::of_entries(entries).with(References::PIN).word());
        self.count_size(order, SizeEvent::NrAnon);
        if entries < order.pages().get() {
            self.mark_partly_mapped(head, order);
        }
        self.resume((head, order))
    }
    /// The token of a hold that was kept without it ([`Held::keep`]).
    pub(crate) fn resume(&self, (head, order): (Frame, Order)) -> Held<'_, 'm, M, P> {
        Held { reference: self.resume_reference(head), order }
    }
    /// Takes back frames that were part of a frozen folio and that nothing maps.
    pub(crate) fn unlist(&self, first: Frame, order: Order) -> Claim {
        let frames = FrameRange::block(first, order);
        self.set_identities(first, frames.pages().get(), Identity::PLAIN);
        self.machine.owned(frames, Owner::Claimed);
        // SAFETY: a piece of a frozen folio that nothing maps, as the caller says.
        unsafe { Claim::from_raw(first, order) }
    }
    /// Takes back a frozen huge page that is elsewhere by now; it is the caller's alone. From here
    /// on it may be marked as broken.
    pub(crate) fn delist_frozen_huge(&self, frozen: Frozen) {
        self.unflag(frozen.head, Flag::Locked);
        self.machine.owned(FrameRange::block(frozen.head, frozen.order), Owner::Claimed);
    }
    /// Thaws a frozen folio that does not go elsewhere: it has its entries again, which the caller
    /// puts back, and is held until then.
    pub(crate) fn thaw(&self, frozen: Frozen) -> Held<'_, 'm, M, P> {
        let Frozen { head, order, entries } = frozen;
        self.set_references(head, References::of_entries(entries).with(References::PIN).word());
        self.resume((head, order))
    }
    /// Takes back the memory of a frozen folio that is elsewhere by now.
    pub(crate) fn delist_frozen(&self, frozen: Frozen) -> Claim {
        let identity = self.identity(frozen.head);
        assert_eq!(identity.order(), frozen.order, "a frozen folio stays what it is");
        self.end_folio(frozen.head, identity)
    }
}
