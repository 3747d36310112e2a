//! Looking at frames that one does not own: listings, compaction, reports of broken memory.
//!
//! A walker has a frame number and nothing else. The frame may be free, in a folio that is just given back, or in a huge
//! page whose descriptors are being folded or taken away at this moment.
//!
//! ```text
//!   the walker                               who folds or takes away
//!   begin a section                          references are 0 since the block was claimed
//!   is the stretch Ready?                    [taking away: set Moving]
//!   what is it, and where is its head?       wait for the sections that began before
//!   are the head's references more than 0?   change the entries, flush
//!   count up, if they still are that many
//!   is it still the same?
//!   end the section
//! ```
//!
//! The order is what matters (TR-H1): a compare-and-exchange writes, or asks for the right to, even where it fails. It is
//! made only after the count was seen to be more than 0. Who saw that before the block was claimed is in a section that the
//! other side waits for; who begins later sees 0 and does not write. So nobody writes through an entry that became
//! read-only, and nobody reads through one that is gone.
//!
//! **Invariants**
//! - P1. Nothing here is called in a section of the caller's: it may wait for a stretch that is being moved, and the mover
//!   waits for sections.

use super::{Block, Stock, Stretch};
use crate::frame::{Flag, Identity, Kind, References, word_at};
use crate::table::Paging;
use core::fmt;
use foliant_machine::Machine;
use foliant_units::Frame;

/// A reference to a folio, taken by a walker of frame numbers. While it lives the folio is not given back.
pub struct Reference<'s, 'm, M: Machine, P: Paging> {
    stock: &'s Stock<'m, M, P>,
    head: Frame,
}

impl<'s, 'm, M: Machine, P: Paging> Reference<'s, 'm, M, P> {
    /// The folio's first frame.
    pub fn head(&self) -> Frame {
        self.head
    }
    pub(super) fn stock(&self) -> &'s Stock<'m, M, P> {
        self.stock
    }
}

impl<M: Machine, P: Paging> fmt::Debug for Reference<'_, '_, M, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reference({:?})", self.head)
    }
}

impl<M: Machine, P: Paging> Drop for Reference<'_, '_, M, P> {
    fn drop(&mut self) {
        self.stock.unreference(self.head, References::PIN);
    }
}

impl<'m, M: Machine, P: Paging> Stock<'m, M, P> {
    /// What a frame is at this moment; whichever frame it is.
    pub(crate) fn look(&self, frame: Frame) -> Identity {
        self.settled(frame, Some).unwrap_or(Identity::PLAIN)
    }

    /// Counts the references of the folio that holds `frame` up, unless there are none. Those of huge pages are not a
    /// walker's to count: it gets none.
    pub(crate) fn get_unless_zero(&self, frame: Frame) -> Option<Reference<'_, 'm, M, P>> {
        self.settled(frame, |identity| {
            if !matches!(identity.kind(), Kind::Anon | Kind::Tail | Kind::Kernel) {
                return None;
            }
            let head = identity.head(frame);
            let got = self.pin(head)?;
            // It may have become another folio between the look and the count: then the reference is dropped again.
            let now = self.seen(frame);
            ((now.kind(), now.order()) == (identity.kind(), identity.order())).then_some(got)
        })
    }

    /// Counts the references of a page of kernel memory up, and says whether it is one. Waits for nobody: such a page's
    /// descriptor is not moved.
    pub(crate) fn hold_kernel(&self, frame: Frame) -> bool {
        let _reading = self.reading();
        let is_page = || {
            self.stretches.get(Block::of(frame)) == Stretch::Ready
                && self.seen(frame).kind() == Kind::Kernel
        };
        if !is_page() {
            return false;
        }
        let mut before = self.references(frame);
        while before > 0 && !self.replace_references(frame, before, before + 1) {
            before = self.references(frame);
        }
        before > 0
    }
    /// Pins the folio at `head` unless nobody keeps it. The caller knows its descriptor to be there.
    pub(super) fn pin(&self, head: Frame) -> Option<Reference<'_, 'm, M, P>> {
        loop {
            let before = self.counts(head);
            if before == References::NONE {
                return None;
            }
            let after = before.with(References::PIN);
            if self.replace_references(head, before.word(), after.word()) {
                return Some(Reference { stock: self, head });
            }
        }
    }

    /// Marks the folio or huge page that holds `frame` as broken, for good, and says whether there is one.
    pub(crate) fn poison(&self, frame: Frame) -> bool {
        let marked = self.settled(frame, |identity| {
            if matches!(identity.kind(), Kind::Plain | Kind::Space) {
                return None;
            }
            loop {
                let head = self.seen(frame).head(frame); // it may be split meanwhile
                let old = self.seen(head);
                if old.has(Flag::Window) || old.has(Flag::Locked) {
                    self.machine.relax(); // written now, it could be lost in the old frame (D3), or be on another piece
                } else if !matches!(old.kind(), Kind::Anon | Kind::Huge | Kind::Kernel) {
                    return None;
                } else if self.replace_identity(head, old, old.with(Flag::Poisoned)) {
                    return Some(());
                }
            }
        });
        marked.is_some()
    }

    /// The identity of a frame whose descriptor the caller knows to be mapped: its stretch was seen to be there in this
    /// section, or it is the caller who moves it.
    pub(crate) fn seen(&self, frame: Frame) -> Identity {
        Identity::from_word(self.load(word_at(self.array, frame, 0)))
    }

    /// Hands what `frame` is to `act`, in a reader's section in which its descriptor and that of its head are there;
    /// `None` where there are none. Waits where they are being moved.
    fn settled<R>(&self, frame: Frame, act: impl Fn(Identity) -> Option<R>) -> Option<R> {
        loop {
            let reading = self.reading();
            match self.stretches.get(Block::of(frame)) {
                Stretch::Ready => {
                    let identity = self.seen(frame);
                    match self.stretches.get(Block::of(identity.head(frame))) {
                        Stretch::Ready => return act(identity),
                        Stretch::Absent => return None,
                        Stretch::Moving => {}
                    }
                }
                Stretch::Absent => return None,
                Stretch::Moving => {}
            }
            drop(reading);
            self.machine.relax();
        }
    }
}
