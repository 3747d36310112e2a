//! Looking at frames that one does not own: listings, compaction, reports of broken memory.
//!
//! A walker has a frame number and nothing else. The frame may be free, in a folio that is just
//! given back, or in a huge page whose descriptors are being folded or taken away at this moment.
//!
//! ```text
//!   the walker                               the CPU that folds or takes away
//!   begin a section                          references are 0 since the block was claimed
//!   is the stretch Ready?                    [taking away: set Moving]
//!   what is it, and where is its head?       wait for the sections that began before
//!   are the head's references more than 0?   change the entries, flush
//!   count up, if they still are that many
//!   is it still the same?
//!   end the section
//! ```
//!
//! The order is what matters (TR-H1): a compare-and-exchange writes, or asks for the right to, even
//! where it fails. It is made only after the count was seen to be more than 0. A walker that saw
//! that before the block was claimed is in a section that the other side waits for; a walker that
//! begins later sees 0 and does not write. So nobody writes through an entry that became read-only,
//! and nobody reads through one that is gone.
//!
//! **Invariants**
//! - P1. What waits for a stretch that is being moved is called neither in a section of the
//!   caller's nor while it has entries out of use: the mover waits for sections, in which a fault
//!   may wait for those entries (split::T6). `hold_kernel` and `reference_now` wait for nobody.
//! - P2. A walker that has counted looks again, at the frame and at the head: between the first
//!   look and the count the folio may have ended and another one begun, and a frame that is about
//!   to be given back still looks like a tail of the folio that became pieces. From the second look
//!   on the folio stays what it is. Nothing else of it is written before.
//! - P3. A CPU that marks a folio as broken keeps it meanwhile (holds::B4).
//! - P4. A folio that nobody keeps may still be in use: it may be about to become pieces, or a part
//!   of a larger one. The reporter of broken memory gets the answer that there is no folio only for
//!   a frame that is in none or on its way back: the last reference of its folio was dropped, or it
//!   stays behind when the pieces are there, in one that nothing maps.

use super::{Block, Stock, Stretch};
use crate::frame::{Flag, Identity, Kind, References, word_at};
use crate::table::Paging;
use core::fmt;
use foliant_machine::Machine;
use foliant_units::{Frame, Order};

/// Whether something was marked as broken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Marked {
    Yes,
    /// There is nothing to mark.
    No,
    /// There may be soon.
    Later,
}

/// Why nothing was anchored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoAnchor {
    /// There is no page, or one that is not the space's alone, or about to be a part of a larger
    /// folio: a fault comes first.
    NotYet,
    /// Its memory is broken.
    Broken,
    /// It is kernel memory.
    Kernel,
    /// The folio at this head has as many pins as it may have.
    TooMany(Frame),
}

/// A reference to a folio, taken by a walker of frame numbers. While it lives the folio is not
/// given back.
pub struct Reference<'s, 'm, M: Machine, P: Paging> {
    stock: &'s Stock<'m, M, P>,
    head: Frame,
    /// What it is in the folio's count: a pin, or an anchor.
    counts: References,
}

impl<'s, 'm, M: Machine, P: Paging> Reference<'s, 'm, M, P> {
    /// The folio's first frame.
    pub fn head(&self) -> Frame {
        self.head
    }
    pub(super) fn stock(&self) -> &'s Stock<'m, M, P> {
        self.stock
    }
    /// Whether it keeps a place too (space::anchor).
    pub(crate) fn is_anchor(&self) -> bool {
        self.counts == References::ANCHOR
    }
    /// The reference, which is a pin, becomes that of a list that the folio is on;
    /// [`Stock::let_go`] ends it.
    pub(crate) fn keep(self) {
        core::mem::forget(self);
    }
}

impl<M: Machine, P: Paging> fmt::Debug for Reference<'_, '_, M, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reference({:?})", self.head)
    }
}

impl<M: Machine, P: Paging> Drop for Reference<'_, '_, M, P> {
    fn drop(&mut self) {
        self.stock.unreference(self.head, self.counts);
    }
}

impl<'m, M: Machine, P: Paging> Stock<'m, M, P> {
    /// What a frame is at this moment; whichever frame it is.
    pub(crate) fn look(&self, frame: Frame) -> Identity {
        self.steady(frame, Some).unwrap_or(Identity::PLAIN)
    }

    /// Counts one more reference of the folio that holds `frame`, unless there are none. Those of
    /// huge pages are not a walker's to count: it gets none.
    pub(crate) fn get_unless_zero(&self, frame: Frame) -> Option<Reference<'_, 'm, M, P>> {
        self.get_within(frame, References::PINS_MAX)
    }
    /// The same for the manager itself, whatever others have of it.
    pub(crate) fn get_own(&self, frame: Frame) -> Option<Reference<'_, 'm, M, P>> {
        self.get_within(frame, References::PINS_OWN)
    }
    fn get_within(&self, frame: Frame, most: u64) -> Option<Reference<'_, 'm, M, P>> {
        self.steady(frame, |identity| self.count_up(frame, identity, most))
    }
    /// The same, and what the frame is where there is nothing to count; it waits for nobody. Gives
    /// `None` while the descriptors are being moved.
    pub(crate) fn reference_now(
        &self,
        frame: Frame,
    ) -> Option<Result<Reference<'_, 'm, M, P>, Identity>> {
        let most = References::PINS_MAX;
        let act = |identity| self.count_up(frame, identity, most).ok_or(identity);
        self.steady_now(frame, act).map(|there| there.unwrap_or(Err(Identity::PLAIN)))
    }
    /// Counts one more reference of the folio of `frame`, which was `identity` a moment ago, in the
    /// same section.
    fn count_up(
        &self,
        frame: Frame,
        identity: Identity,
        most: u64,
    ) -> Option<Reference<'_, 'm, M, P>> {
        if !matches!(identity.kind(), Kind::Anon | Kind::Tail | Kind::Kernel) {
            return None;
        }
        let head = identity.head(frame);
        let got = self.pin(head, most)?;
        let (now, whole) = (self.seen(frame), self.seen(head)); // P2
        let is_same = (now.kind(), now.order()) == (identity.kind(), identity.order());
        let is_head = matches!(whole.kind(), Kind::Anon | Kind::Kernel);
        (is_same && is_head && whole.order() == now.order()).then_some(got)
    }

    /// Pins the huge page that holds `frame`, if one does and somebody keeps it: for a holder, and
    /// for a caller that takes its entries away, however many anchors it has. It waits for nobody.
    pub(crate) fn pin_huge(&self, frame: Frame) -> Option<Reference<'_, 'm, M, P>> {
        self.steady_now(frame, |identity| {
            let head = identity.head(frame);
            let is_it = || {
                let whole = self.seen(head);
                whole.kind() == Kind::Huge && whole.order() == identity.order()
            };
            // It is kept, so it stays what it is found to be (P2).
            is_it().then(|| self.pin(head, References::PINS_OWN)).flatten().filter(|_| is_it())
        })
        .flatten()
        .flatten()
    }

    /// Takes a reference to a page of kernel memory, if the frame is one and somebody keeps it. It
    /// waits for nobody: such a page's descriptor is not moved.
    pub(crate) fn hold_kernel(&self, frame: Frame) -> Option<Reference<'_, 'm, M, P>> {
        let _reading = self.reading();
        let is_page = || {
            self.stretches.get(Block::of(frame)) == Stretch::Ready
                && self.seen(frame).kind() == Kind::Kernel
        };
        if !is_page() {
            return None;
        }
        self.pin(frame, References::PINS_OWN).filter(|_| is_page()) // P2
    }
    /// The token of a reference that was kept without it ([`Reference::keep`]).
    pub(super) fn resume_reference(&self, head: Frame) -> Reference<'_, 'm, M, P> {
        Reference { stock: self, head, counts: References::PIN }
    }
    /// Ends such a reference.
    pub(crate) fn let_go(&self, head: Frame) {
        drop(self.resume_reference(head));
    }
    /// Pins the folio at `head` unless nobody keeps it, or it has `most` pins. The caller knows its
    /// descriptor to be there.
    pub(super) fn pin(&self, head: Frame, most: u64) -> Option<Reference<'_, 'm, M, P>> {
        loop {
            let before = self.counts(head);
            // So many are references that were forgotten: no one more is told from none.
            if before == References::NONE || before.pins() >= most {
                return None;
            }
            let after = before.with(References::PIN);
            if self.replace_references(head, before.word(), after.word()).is_ok() {
                return Some(Reference { stock: self, head, counts: References::PIN });
            }
        }
    }

    /// Anchors the folio or huge page that holds `frame`, of which the caller has a leaf in a table
    /// that it has locked. Says what order it has.
    pub(crate) fn anchor(
        &self,
        frame: Frame,
    ) -> Result<(Reference<'_, 'm, M, P>, Order), NoAnchor> {
        let (head, folio) = self.folio_of(frame);
        let anchor = References::ANCHOR;
        loop {
            let before = self.counts(head);
            // A collapse is making its page a part of a larger folio where it is (holds::B2).
            if before == References::NONE {
                return Err(NoAnchor::NotYet);
            }
            if before.pins() + anchor.pins() > References::PINS_MAX {
                return Err(NoAnchor::TooMany(head));
            }
            let after = before.with(anchor);
            if self.replace_references(head, before.word(), after.word()).is_ok() {
                return Ok((Reference { stock: self, head, counts: anchor }, folio.order()));
            }
        }
    }
    /// Whether the folio that holds `frame`, which an entry names, may be anchored; broken memory
    /// is not, for nobody reads it.
    pub(crate) fn may_be_anchored(&self, frame: Frame) -> bool {
        let (head, folio) = self.folio_of(frame);
        self.counts(head).may_be_anchored() && !folio.has(Flag::Poisoned)
    }

    /// Whether the folio that holds `frame` is broken, and nobody has it any more.
    pub(crate) fn is_lost(&self, frame: Frame) -> bool {
        self.steady(frame, |identity| {
            let head = identity.head(frame);
            let is_marked = self.seen(head).has(Flag::Poisoned);
            Some(is_marked && self.counts(head) == References::NONE)
        }) == Some(true)
    }

    /// Marks the folio or huge page that holds `frame` as broken, for good, and says whether there
    /// is one.
    pub(crate) fn poison(&self, frame: Frame) -> bool {
        loop {
            // What has as many references as it may have is told from what has none.
            if let Some(kept) = self.get_own(frame) {
                self.mark_broken(&kept);
                return true;
            }
            match self.steady(frame, |identity| Some(self.mark_unkept(frame, identity))) {
                Some(Marked::Later) => self.machine.relax(),
                done => return done == Some(Marked::Yes),
            }
        }
    }
    /// Marks a folio that the caller keeps (P3).
    fn mark_broken(&self, kept: &Reference<'_, 'm, M, P>) {
        loop {
            let old = self.identity(kept.head());
            if old.has(Flag::Locked) {
                // It may become pieces: written now, the mark could be on the wrong one.
                self.machine.relax();
            } else if self.replace_identity(kept.head(), old, old.with(Flag::Poisoned)) {
                return;
            }
        }
    }
    /// Marks what no walker can keep: a huge page. Its pool looks for the mark again, and so does
    /// the CPU that gives the page up (pool::L4, `memmap`).
    fn mark_unkept(&self, frame: Frame, identity: Identity) -> Marked {
        let head = identity.head(frame);
        let old = self.seen(head);
        match old.kind() {
            // The mark could be lost in the old frame (frame::descriptor::D3).
            Kind::Huge if old.has(Flag::Folding) => Marked::Later,
            // Its holder brings it elsewhere, or leaves it (holds::B3).
            Kind::Huge if old.has(Flag::Locked) => Marked::Later,
            // The larger page was cut: the frame is in another part of it.
            Kind::Huge if old.order() != identity.order() => Marked::Later,
            Kind::Huge => {
                let marked = old.with_broken(frame.get() - head.get());
                match self.replace_identity(head, old, marked) {
                    true => Marked::Yes,
                    false => Marked::Later,
                }
            }
            // It is frozen, and something else soon.
            Kind::Anon if old.has(Flag::Locked) => Marked::Later,
            // The folio that the frame looked like a part of became pieces: the frame is one of
            // them by now, or on its way back.
            Kind::Anon if old.order() != identity.order() => match self.seen(frame) == identity {
                true => Marked::No,
                false => Marked::Later,
            },
            Kind::Anon if old.has(Flag::Poisoned) => Marked::Yes, // and it is nobody's since
            // The last reference was dropped.
            Kind::Anon if self.counts(head) == References::NONE => Marked::No,
            Kind::Anon => Marked::Later, // kept again by now
            Kind::Tail | Kind::HugeTail => Marked::Later, // a part of a larger one by now
            _ => Marked::No,
        }
    }

    /// The identity of a frame whose descriptor the caller knows to be mapped: its stretch was seen
    /// to be there in this section, or the caller is the one that moves it.
    pub(crate) fn seen(&self, frame: Frame) -> Identity {
        Identity::from_word(self.load(word_at(self.array, frame, 0)))
    }

    /// Hands what `frame` is to `act`, in a reader's section in which its descriptor and that of
    /// its head are there. Gives `None` where there are none, and waits where they are being moved.
    fn steady<R>(&self, frame: Frame, act: impl Fn(Identity) -> Option<R>) -> Option<R> {
        loop {
            match self.steady_now(frame, &act) {
                Some(there) => return there.flatten(),
                None => self.machine.relax(),
            }
        }
    }
    /// The same without waiting: `None` where they are being moved.
    fn steady_now<R>(&self, frame: Frame, act: impl Fn(Identity) -> R) -> Option<Option<R>> {
        let _reading = self.reading();
        let is_there = |frame| match self.stretches.get(Block::of(frame)) {
            Stretch::Ready => Some(true),
            Stretch::Absent => Some(false),
            Stretch::Moving => None,
        };
        if !is_there(frame)? {
            return Some(None);
        }
        let identity = self.seen(frame);
        Some(is_there(identity.head(frame))?.then(|| act(identity)))
    }
}
