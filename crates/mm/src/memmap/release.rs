//! Giving huge pages up: the blocks become free, and their descriptors go with them.
//!
//! A free block needs no descriptors. So a folded page is not unfolded first, which would take
//! memory, but loses its whole stretch: 8 (or 4096) entries are cleared, and one frame comes back.
//!
//! ```text
//!   look ─▶ Moving ─▶ one grace period ─▶ clear the entries ─▶ one flush ─▶ Absent ─▶ blocks and frames are free
//! ```
//!
//! A dense page under a leaf keeps its descriptors, which are made plain again: the leaf serves
//! other blocks too.

use super::{Batch, Declined, Form, Huge, Memmap, MemmapError};
use crate::frame::{Claim, Flag, Identity};
use crate::stock::{Event, Stretch};
use crate::table::Paging;
use core::ops::Range;
use foliant_machine::Machine;
use foliant_units::{Order, Pages};

/// What became of the pages of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Released {
    /// Free, without descriptors.
    pub absent: usize,
    /// Free, with the descriptors that a leaf holds.
    pub dense: usize,
    /// Still in the batch: the page is none, is in use, or its memory is broken.
    pub refused: usize,
    /// The first reason for that.
    pub why: Option<MemmapError>,
}

/// What became of the parts of pages that were cut.
#[derive(Default)]
pub(crate) struct Recut {
    /// Blocks that went back to the allocator.
    pub(crate) given_up: u64,
}

impl<'a, 'm, M: Machine, P: Paging> Memmap<'a, 'm, M, P> {
    /// Gives the blocks of a batch back to the allocator, and their descriptors. Needs no memory. A
    /// page that is refused stays in the batch.
    pub fn release(&self, batch: &mut Batch<'_, 'm, M, P>) -> Released {
        self.release_to(batch, |block| self.stock.put_back(block))
    }
    /// Makes smaller huge pages of those of a batch, and hands each to `made`. A folded page's
    /// descriptors are taken away first. So this is [`release`](Memmap::release) and as many claims
    /// as there are parts, except that nobody else can get the blocks in between. Where there is no
    /// memory for the descriptor of a part, the part becomes free.
    pub(crate) fn recut(
        &self,
        batch: &mut Batch<'_, 'm, M, P>,
        into: Order,
        form: Form,
        mut made: impl FnMut(Huge),
    ) -> Recut {
        let mut out = Recut::default();
        self.release_to(batch, |block| {
            for part in self.stock.cut(block, into) {
                match self.make(part, form) {
                    Ok(huge) => made(huge),
                    Err(part) => {
                        self.stock.put_back(part);
                        out.given_up += 1;
                    }
                }
            }
        });
        out
    }

    /// Takes the pages of a batch apart; `give` gets their blocks.
    fn release_to(&self, batch: &mut Batch<'_, 'm, M, P>, mut give: impl FnMut(Claim)) -> Released {
        let mut out = Released::default();
        batch.choose(|huge| match self.admit(huge) {
            Ok(_) => true,
            Err(why) => {
                out.refused += 1;
                out.why = out.why.or(Some(why));
                false
            }
        });
        for part in batch.parts(self.grain()) {
            self.release_part(batch, part, &mut out, &mut give);
        }
        batch.forget_gone();
        out
    }

    fn release_part(
        &self,
        batch: &mut Batch<'_, 'm, M, P>,
        part: Range<usize>,
        out: &mut Released,
        give: &mut impl FnMut(Claim),
    ) {
        let mut refuse = |batch: &mut Batch<'_, 'm, M, P>, nth, head| {
            batch.spare(nth);
            out.refused += 1;
            out.why = out.why.or(Some(MemmapError::Poisoned(head)));
        };
        for nth in part.clone() {
            let huge = batch.at(nth);
            match batch.is_chosen(nth) {
                false => {}
                true if !self.has_leaf(&huge) => self.hide(&huge),
                true if self.unmark(&huge) => {
                    give(huge.block());
                    batch.gone(nth);
                    out.dense += 1;
                }
                true => refuse(batch, nth, huge.head()),
            }
        }
        if batch.chosen(part.clone()).next().is_none() {
            return;
        }
        self.wait_for_readers();
        let mut gather = self.gather();
        for nth in part.clone() {
            if !batch.is_chosen(nth) {
                continue;
            }
            let huge = batch.at(nth);
            // A report of broken memory may have come until the stretch was hidden, and none does
            // from here on.
            if self.stock.seen(huge.head()).has(Flag::Poisoned) {
                self.let_go(&huge, Stretch::Ready);
                refuse(batch, nth, huge.head());
            } else {
                self.rewrite(self.range(&huge), &mut gather, || 0);
            }
        }
        self.flush(&mut gather, Event::FlushRelease);
        for nth in part {
            if batch.is_chosen(nth) {
                let huge = batch.at(nth);
                self.let_go(&huge, Stretch::Absent);
                self.stock.count_by(Event::StretchReleased, huge.blocks().count() as u64);
                give(huge.block());
                batch.gone(nth);
                out.absent += 1;
            }
        }
    }

    /// Takes a page apart whose memory is broken, and is free but for that. Gives its block, and
    /// which frame of it is broken; nothing where more than one is. Needs no memory.
    pub(crate) fn take_apart(&self, huge: Huge) -> Option<(Claim, u64)> {
        let head = huge.head();
        if self.has_leaf(&huge) {
            let nth = self.unmark_if(&huge, |identity| identity.broken())?;
            return Some((huge.block(), nth));
        }
        self.hide(&huge);
        self.wait_for_readers();
        // Reports may have come until the stretch was hidden, and none does from here on.
        let Some(nth) = self.stock.seen(head).broken() else {
            self.let_go(&huge, Stretch::Ready);
            return None;
        };
        let mut gather = self.gather();
        self.rewrite(self.range(&huge), &mut gather, || 0);
        self.flush(&mut gather, Event::FlushRelease);
        self.let_go(&huge, Stretch::Absent);
        self.stock.count_by(Event::StretchReleased, huge.blocks().count() as u64);
        Some((huge.block(), nth))
    }

    /// Gives the block of one dense page back to the allocator; it keeps its descriptors.
    pub fn free(&self, huge: Huge) -> Result<(), Declined> {
        let why = match self.admit(&huge) {
            Ok(identity) if identity.has(Flag::Optimized) => MemmapError::StillFolded(huge.head()),
            Ok(_) if self.unmark(&huge) => {
                self.stock.put_back(huge.block());
                return Ok(());
            }
            Ok(_) => MemmapError::Poisoned(huge.head()),
            Err(why) => why,
        };
        Err(Declined { huge, why })
    }

    /// Makes the descriptors of a dense page plain, unless its memory was reported broken.
    fn unmark(&self, huge: &Huge) -> bool {
        self.unmark_if(huge, |identity| (!identity.has(Flag::Poisoned)).then_some(())).is_some()
    }
    /// Makes them plain if `may` says something of the head, and says that. The head comes first,
    /// and from then on no report finds it.
    fn unmark_if<R>(&self, huge: &Huge, may: impl Fn(Identity) -> Option<R>) -> Option<R> {
        let (head, count) = (huge.head(), huge.order().pages().get() - 1);
        let said = loop {
            let identity = self.stock.identity(head);
            let said = may(identity)?;
            if self.stock.replace_identity(head, identity, Identity::PLAIN) {
                break said;
            }
        };
        self.stock.set_identities(head.add(Pages::new(1)), count, Identity::PLAIN);
        Some(said)
    }
}
