//! Attachments: that a space maps an object at one distance.
//!
//! ```text
//!   object's list   ─▶ a's ─▶ a's child's ─▶ b's                each: space, distance, pages of areas
//!   space's lists   ─▶ of one object ─▶ of the same at another distance ─▶ of another object
//!                   ─▶ one that no area has (any more)
//! ```
//!
//! The page with index i of an object is at the address i less the attachment's distance, as for an
//! area that was moved. An attachment is a lot of the space's own frames. An area names it in the
//! place where others keep how far they were moved, so it keeps that too, for the copies that the
//! space has of the object's pages.
//!
//! **Invariants**
//! - X1. An attachment is on the object's list before an area has it, and stays until no area of
//!   its space has it, nobody has it pinned, and no entry is left that an area had by it.
//! - X2. An attachment that a fork makes stands behind the one that it is copied from. So a walk
//!   that came by before its entries were made finds it further on.
//! - X3. The lot of an attachment that is gone is used again, and its object let go of, behind a
//!   grace period: a fault that found it in an area finds in it, to the end of its section, what it
//!   was, and the object there.
//! - X4. An attachment that an area may get is on both lists. One that was taken off the space's
//!   says so, for it is on the object's a while longer.
//!
//! **Locking.** `[f]` the lock of the object's fork tree; `[w]` the writer of the attachment's
//! space, or the call that ends or forks off the space; `[a]` atomic; `[c]` constant from X1 on.
//!
//! **Not here**: the object's list, and pins (`tree`).

use crate::frame::AnonOffset;
use crate::stock::{Charge, Lot, Lots, NoRecord, Stock};
use crate::sync::{AtomicU64, Ordering};
use crate::table::Paging;
use foliant_machine::{Machine, Owner};
use foliant_units::{Frame, Va};

const WORDS: usize = 16;
const USERS: usize = 0; // [a] pins, as those of a member
const SPACE: usize = 1; // [c] the frame of the space that maps
const OBJECT: usize = 2; // [c] the frame of the object's space
const OFFSET: usize = 3; // [c]
const PAGES: usize = 4; // [w] of areas
const NEXT: usize = 5; // [f] the attachment behind, as a lot's name, or 0
const BEFORE: usize = 6; // [f]
/// The next attachment of the space, or the next lot that nobody uses.
const OWN: usize = 7; // [w]
const COPIES: usize = 8; // [c]
/// The attachment of the space before it.
const OWN_BEFORE: usize = 9; // [w]

/// In the place of pages: it is on the space's list no longer (X4).
const GONE: u64 = u64::MAX;

/// The name of an attachment, as an area keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AttachmentName(Lot<WORDS>);

impl AttachmentName {
    /// The one that a word names; 0 names none.
    pub(crate) fn named(word: u64) -> Option<AttachmentName> {
        Lot::named(word).map(AttachmentName)
    }
    /// The word that names it.
    pub(crate) fn word(self) -> u64 {
        self.0.name()
    }
}

/// What is added to a page number of the space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Distances {
    /// To have the object's.
    pub(crate) object: AnonOffset,
    /// To have the index of a page that the space has for itself.
    pub(crate) copies: AnonOffset,
}

impl Distances {
    /// Those of an area that is moved.
    pub(crate) fn moved(self, from: Va, to: Va) -> Distances {
        let Distances { object, copies } = self;
        Distances { object: object.moved(from, to), copies: copies.moved(from, to) }
    }
}

/// See the module's text.
#[derive(Clone, Copy)]
pub(crate) struct Attachment<'m> {
    name: AttachmentName,
    words: &'m [AtomicU64; WORDS],
}

impl<'m> Attachment<'m> {
    /// That of an area which the caller found in this section, or while it holds the writer; or one
    /// that stands on a list whose lock the caller holds.
    pub(crate) fn of<M: Machine, P: Paging>(
        stock: &Stock<'m, M, P>,
        name: AttachmentName,
    ) -> Attachment<'m> {
        Attachment { name, words: name.0.words(stock.machine) }
    }
    /// The one that a word of a list names.
    pub(super) fn listed<M: Machine, P: Paging>(
        stock: &Stock<'m, M, P>,
        word: u64,
    ) -> Option<Attachment<'m>> {
        AttachmentName::named(word).map(|name| Attachment::of(stock, name))
    }
    pub(crate) fn name(self) -> AttachmentName {
        self.name
    }
    fn get(self, word: usize) -> u64 {
        self.words[word].load(Ordering::Relaxed)
    }
    fn set(self, word: usize, value: u64) {
        self.words[word].store(value, Ordering::Relaxed);
    }
    pub(super) fn users(self) -> &'m AtomicU64 {
        &self.words[USERS]
    }
    /// Its neighbours on the object's list, as words.
    pub(super) fn next(self) -> u64 {
        self.get(NEXT)
    }
    pub(super) fn before(self) -> u64 {
        self.get(BEFORE)
    }
    pub(super) fn set_next(self, word: u64) {
        self.set(NEXT, word);
    }
    pub(super) fn set_before(self, word: u64) {
        self.set(BEFORE, word);
    }
    /// The frame of the space that maps.
    pub(super) fn space(self) -> Frame {
        Frame::new(self.get(SPACE))
    }
    /// The frame of the object's space.
    pub(crate) fn object(self) -> Frame {
        Frame::new(self.get(OBJECT))
    }
    pub(crate) fn distances(self) -> Distances {
        Distances { object: self.offset(), copies: self.copies() }
    }
    /// What is added to a page number of the space to have the object's.
    pub(crate) fn offset(self) -> AnonOffset {
        AnonOffset::from_word(self.get(OFFSET))
    }
    /// The same for pages that the space has for itself in areas with it: how far they were moved.
    pub(crate) fn copies(self) -> AnonOffset {
        AnonOffset::from_word(self.get(COPIES))
    }
    /// Pages of the areas that have it.
    pub(crate) fn pages(self) -> u64 {
        self.get(PAGES)
    }
    /// Whether it is the one of a space and an object at these distances. The caller holds the
    /// space's writer.
    pub(super) fn is_of(self, (space, object): (Frame, Frame), at: Distances) -> bool {
        self.object() == object
            && self.space() == space
            && self.distances() == at
            && self.pages() != GONE // X4
    }
}

/// The attachments of a space. All words; valid when cleared.
///
/// Key: `[w]`.
#[repr(C)]
pub(crate) struct Attachments {
    /// The first one that an area has.
    first: AtomicU64, // [w]
    /// The first one that none has (any more).
    empty: AtomicU64, // [w], read at any time
    /// Lots that no attachment uses.
    spare: Lots<WORDS, OWN>, // [w]
    /// Frames that lots were cut from.
    frames: AtomicU64, // [w]
}

impl Attachments {
    /// Each of them. The caller keeps changes out.
    pub(crate) fn each<'m, M: Machine, P: Paging>(
        &self,
        stock: &Stock<'m, M, P>,
    ) -> impl Iterator<Item = Attachment<'m>> + use<'m, M, P> {
        let memory = stock.machine;
        let firsts = [&self.first, &self.empty].map(|list| list.load(Ordering::Relaxed));
        let at = move |word| {
            AttachmentName::named(word).map(|name| Attachment { name, words: name.0.words(memory) })
        };
        let listed = move |first| core::iter::successors(at(first), move |it| at(it.get(OWN)));
        firsts.into_iter().flat_map(listed)
    }
    /// How many frames they take.
    #[cfg(feature = "verify")]
    pub(crate) fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }
    /// Whether no area has one. The caller keeps changes out.
    pub(crate) fn are_none(&self) -> bool {
        self.first.load(Ordering::Relaxed) == 0
    }
    /// Whether there are attachments that no area has.
    pub(crate) fn has_empty(&self) -> bool {
        self.empty.load(Ordering::Relaxed) != 0
    }
    /// The list that an attachment with so many pages is on.
    fn list(&self, pages: u64) -> &AtomicU64 {
        if pages == 0 { &self.empty } else { &self.first }
    }
    /// Puts one first on the list for its pages.
    fn enter<M: Machine, P: Paging>(&self, stock: &Stock<'_, M, P>, it: Attachment<'_>) {
        let list = self.list(it.pages());
        let next = list.load(Ordering::Relaxed);
        it.set(OWN, next);
        it.set(OWN_BEFORE, 0);
        if let Some(next) = Attachment::listed(stock, next) {
            next.set(OWN_BEFORE, it.name().word());
        }
        list.store(it.name().word(), Ordering::Relaxed);
    }
    /// Takes it off the list for its pages.
    fn leave<M: Machine, P: Paging>(&self, stock: &Stock<'_, M, P>, it: Attachment<'_>) {
        match Attachment::listed(stock, it.get(OWN_BEFORE)) {
            Some(before) => before.set(OWN, it.get(OWN)),
            None => self.list(it.pages()).store(it.get(OWN), Ordering::Relaxed),
        }
        if let Some(next) = Attachment::listed(stock, it.get(OWN)) {
            next.set(OWN_BEFORE, it.get(OWN_BEFORE));
        }
    }
    /// Sets how many pages of areas have it.
    fn set_pages<M: Machine, P: Paging>(
        &self,
        stock: &Stock<'_, M, P>,
        it: Attachment<'_>,
        pages: u64,
    ) {
        let moves = (it.pages() == 0) != (pages == 0);
        if moves {
            self.leave(stock, it);
        }
        it.set(PAGES, pages);
        if moves {
            self.enter(stock, it);
        }
    }
    /// So many pages of areas that have it came in.
    #[inline(never)] // most areas map no object
    pub(crate) fn add_pages<M: Machine, P: Paging>(
        &self,
        stock: &Stock<'_, M, P>,
        name: AttachmentName,
        pages: u64,
    ) {
        let attached = Attachment::of(stock, name);
        self.set_pages(stock, attached, attached.pages() + pages);
    }
    /// So many went.
    pub(crate) fn remove_pages<M: Machine, P: Paging>(
        &self,
        stock: &Stock<'_, M, P>,
        name: AttachmentName,
        pages: u64,
    ) {
        let attached = Attachment::of(stock, name);
        let left = attached.pages().checked_sub(pages).expect("an area's pages came in before");
        self.set_pages(stock, attached, left);
    }

    /// Makes one, without pages, of the space in this frame, whose attachments these are.
    pub(super) fn make<'m, M: Machine, P: Paging>(
        &self,
        stock: &Stock<'m, M, P>,
        charge: &Charge,
        (space, object): (Frame, Frame),
        at: Distances,
    ) -> Result<Attachment<'m>, NoRecord> {
        if self.spare.count() == 0 {
            self.spare.cut(stock.machine, stock.claim_charged(charge, Owner::Records)?);
            self.frames.store(self.frames.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        let name = AttachmentName(self.spare.pop(stock.machine).expect("there is one"));
        let made = Attachment::of(stock, name);
        made.users().store(0, Ordering::Relaxed);
        made.set(SPACE, space.get());
        made.set(OBJECT, object.get());
        made.set(OFFSET, at.object.word());
        made.set(COPIES, at.copies.word());
        made.set(PAGES, 0);
        self.enter(stock, made);
        Ok(made)
    }
    /// Takes the one back that was made last, which is on no other list yet.
    pub(super) fn unmake<M: Machine, P: Paging>(&self, stock: &Stock<'_, M, P>) {
        let made = self.take_empty(stock).expect("one was made");
        self.spare(stock, made);
    }
    /// Takes one that no area has off the space's list: that which came there last. It is on the
    /// object's still, and is taken off that behind the writer; then its lot is
    /// [`spare`](Attachments::spare).
    pub(crate) fn take_empty<'m, M: Machine, P: Paging>(
        &self,
        stock: &Stock<'m, M, P>,
    ) -> Option<Attachment<'m>> {
        let gone = Attachment::listed(stock, self.empty.load(Ordering::Relaxed))?;
        self.leave(stock, gone);
        gone.set(PAGES, GONE);
        Some(gone)
    }
    /// Takes any attachment off the list, at the end of the space.
    pub(crate) fn take<'m, M: Machine, P: Paging>(
        &self,
        stock: &Stock<'m, M, P>,
    ) -> Option<Attachment<'m>> {
        let attachment = self.each(stock).next()?;
        self.leave(stock, attachment);
        Some(attachment)
    }
    /// Its lot is free for another one. A grace period is over since it was unlinked (X3).
    pub(crate) fn spare<M: Machine, P: Paging>(
        &self,
        stock: &Stock<'_, M, P>,
        gone: Attachment<'_>,
    ) {
        self.spare.push(stock.machine, gone.name.0);
    }
    /// Gives all memory back. None is left.
    pub(crate) fn dissolve<M: Machine, P: Paging>(&self, stock: &Stock<'_, M, P>) {
        self.spare.take().into_frames(stock.machine, |frame| stock.release(frame));
    }
}
