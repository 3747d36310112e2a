//! Folding huge pages: at most two shootdowns a batch.
//!
//! ```text
//!   O0  look: a huge page, references 0, not folded; one grace period for the batch
//!   O1  split the leaves that map their descriptors      no flush: both say the same
//!   O2  flush                                            skipped where no leaf was split
//!   O3  per page: flags in the head, new head frame with a copy of the old one, all entries
//!   O4      no memory: flush, free what was gathered, try once more; else the page stays dense
//!   O5  flush
//!   O6  old frames freed
//!       Folding cleared in the heads
//!   O7  the caller makes the pages reachable
//! ```
//!
//! **Rule W: from when a page's entries change (O3) until O5 its old and new frames say the same.**
//!
//! Once an entry is rewritten, a CPU that has the old translation cached goes on reading the old
//! frame, while a CPU that walks now reads the new frame. Both are right as long as the two frames
//! hold the same words. So:
//!
//! 1. The flags that the folded page shall have are set in the *old* frame, *before* it is copied.
//!    A store through the array afterwards would land in the one of the two frames that this CPU
//!    has cached, and the other CPUs would see a page that is folded and does not say so, or the
//!    reverse.
//! 2. Nobody writes a descriptor of the page. A store by a CPU with the old translation would go
//!    into a frame that is freed at O6: the store would be lost, and after the reuse of the frame
//!    it would destroy the new contents. That is why a page is folded while nobody has a reference,
//!    before it is on a list, and after a grace period: a walker that saw a reference in the page's
//!    former life, and is about to count it up, is in a section that began before. The one write
//!    that may come at any time is the report of broken memory; it waits while the flag `Folding`
//!    is set.
//! 3. The old frames stay as they are, all of them, until O5. They are not even linked into a list:
//!    the gather has frames of its own.
//! 4. Where the batch breaks off to get memory it flushes first, and frees after.
//!
//! **Where live entries may not be replaced** (break-before-make) an entry is absent for a while,
//! and a walker would find nothing. There the stretch is set `Moving` first, one grace period is
//! waited for, and the tails' entries are cleared, flushed and written again; the head keeps its
//! frame. A stretch under a leaf cannot be folded there: the leaf maps the descriptors of 63 other
//! blocks, which are in use. See record 010.
//!
//! **Not here**: which pages, and what happens to them next.

use super::entries::{own, shared};
use super::{Batch, Huge, Memmap, MemmapError};
use crate::flush::Gather;
use crate::frame::{Flag, Identity};
use crate::stock::{Event, NoBlock, Stretch};
use crate::table::Paging;
use core::ops::Range;
use foliant_machine::{Machine, Replace};
use foliant_units::{FRAME_BYTES, VaRange};

/// What became of the pages of a batch. They keep their places; `is_folded` says which is which.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Folded {
    /// Folded now.
    pub folded: usize,
    /// They were so before.
    pub skipped: usize,
    /// Dense as before, for lack of memory.
    pub failed: usize,
    /// Dense as before: mapped by a leaf that the machine does not let us split in place.
    pub forbidden: usize,
    /// Not touched: the page is none, is in use, or its memory is broken.
    pub refused: usize,
    /// The first reason for that.
    pub why: Option<MemmapError>,
}

impl<'a, 'm, M: Machine, P: Paging> Memmap<'a, 'm, M, P> {
    /// Folds the pages of a batch that are dense, as far as it can: a page that is not folded is as
    /// it was.
    pub fn fold(&self, batch: &mut Batch<'_, 'm, M, P>) -> Folded {
        let mut out = Folded::default();
        let in_place = self.stock.machine.rules().replace == Replace::InPlace;
        let chosen = batch.choose(|huge| match self.admit(huge) {
            Ok(identity) if identity.has(Flag::Optimized) => {
                out.skipped += 1;
                false
            }
            Ok(_) if !in_place && self.has_leaf(huge) => {
                out.forbidden += 1;
                false
            }
            Ok(_) => true,
            Err(why) => {
                out.refused += 1;
                out.why = out.why.or(Some(why));
                false
            }
        });
        if chosen > 0 && in_place {
            self.wait_for_readers();
        }
        for part in batch.parts(self.grain()) {
            match in_place {
                true => self.fold_in_place(batch, part.clone()),
                false => self.fold_by_breaking(batch, part.clone()),
            }
            out.folded += batch.chosen(part).count();
        }
        out.failed = chosen - out.folded;
        self.stock.count_by(Event::FoldSkipped, out.skipped as u64);
        self.stock.count_by(Event::Folded, out.folded as u64);
        self.stock.count_by(Event::FoldFailed, (out.failed + out.forbidden) as u64);
        out
    }

    /// O1 to O6 for the chosen pages of a part. Those that stay dense are chosen no more.
    fn fold_in_place(&self, batch: &mut Batch<'_, 'm, M, P>, part: Range<usize>) {
        let mut gather = self.gather();
        // The first page without memory ends the pass; O3 tries again, with the memory that folding
        // gave back.
        let _ = batch
            .chosen(part.clone())
            .try_for_each(|huge| self.split_leaves(self.range(&huge), &mut gather));
        self.flush(&mut gather, Event::FlushSplit); // O2
        for nth in part.clone() {
            if !batch.is_chosen(nth) {
                continue;
            }
            let huge = batch.at(nth);
            let mut done = self.remap(&huge, &mut gather);
            if done.is_err() && !gather.is_empty() {
                self.flush(&mut gather, Event::FlushRecovery); // O4
                done = self.remap(&huge, &mut gather);
            }
            if done.is_err() {
                batch.spare(nth);
            }
        }
        self.flush(&mut gather, Event::FlushFold); // O5, O6
        // Every CPU sees one head only: rule W ends.
        let end = |huge: Huge| self.flag(&huge, |identity| identity.without(Flag::Folding));
        batch.chosen(part).for_each(end);
    }

    /// O3 for one page. All that can fail comes first (H5).
    fn remap(&self, huge: &Huge, gather: &mut Gather<'a, 'm, M, P>) -> Result<(), NoBlock> {
        let range = self.range(huge);
        let tail = self.share(huge.order())?;
        self.split_leaves(range, gather)?;
        let new = self.head_frame()?;
        // The flags are set before the copy is made (rule W, point 1).
        self.flag(huge, |identity| identity.with(Flag::Optimized).with(Flag::Folding));
        let head = self.fill_head(new, self.frame_at(range.start()));
        let mut first = Some(own::<P>(head));
        self.rewrite(range, gather, || first.take().unwrap_or(shared::<P>(tail)));
        Ok(())
    }

    /// Folds the chosen pages of a part where an entry must be absent in between.
    fn fold_by_breaking(&self, batch: &mut Batch<'_, 'm, M, P>, part: Range<usize>) {
        let mut gather = self.gather();
        for nth in part.clone() {
            if batch.is_chosen(nth) && self.share(batch.at(nth).order()).is_err() {
                batch.spare(nth);
            }
        }
        if batch.chosen(part.clone()).next().is_none() {
            return;
        }
        for huge in batch.chosen(part.clone()) {
            self.flag(&huge, |identity| identity.with(Flag::Optimized));
            self.hide(&huge);
        }
        self.wait_for_readers();
        for huge in batch.chosen(part.clone()) {
            self.rewrite(self.tails(&huge), &mut gather, || 0);
        }
        self.flush(&mut gather, Event::FlushFold);
        for huge in batch.chosen(part) {
            let tail = self.share(huge.order()).expect("it was there before");
            self.rewrite(self.tails(&huge), &mut gather, || shared::<P>(tail));
            self.let_go(&huge, Stretch::Ready);
        }
    }

    /// Changes flags of the head, by compare-and-exchange: a report of broken memory may come at
    /// any time.
    pub(super) fn flag(&self, huge: &Huge, change: impl Fn(Identity) -> Identity) {
        loop {
            let old = self.stock.identity(huge.head());
            if self.stock.replace_identity(huge.head(), old, change(old)) {
                return;
            }
        }
    }

    /// The descriptors of a page that a shared frame can hold.
    pub(super) fn tails(&self, huge: &Huge) -> VaRange {
        let all = self.range(huge);
        VaRange::new(all.start().add(FRAME_BYTES), all.end()).expect("there are tails")
    }

    /// Sets the stretches of a page `Moving`. A grace period later nobody else reads them.
    pub(super) fn hide(&self, huge: &Huge) {
        for block in huge.blocks() {
            let was = self.stock.stretches.change(block, Stretch::Ready, Stretch::Moving);
            assert!(was, "the descriptors of a huge page are there (stock::K1)");
        }
    }
}
