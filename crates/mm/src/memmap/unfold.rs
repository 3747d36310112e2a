//! Unfolding huge pages: one shootdown a batch.
//!
//! ```text
//!   R0  look: a huge page, references 0
//!   R1  per page: a frame for every tail's entry, each a copy of the shared frame; all or none
//!   R2  every entry names its own frame, read and write; `Optimized` cleared. The head keeps its frame
//!   R3  flush
//!   R4  the caller's: `free` takes the mark away
//! ```
//!
//! Until R3 a CPU may read the shared frame instead of its copy, and they say the same. Nobody
//! writes a tail of a huge page, and the mark of the huge page stays until after the flush: a store
//! through a stale read-only entry would fault.
//!
//! Where live entries may not be replaced the tails are absent in between, as for folding.

use super::entries::own;
use super::stash::Stash;
use super::{Batch, Huge, Memmap, MemmapError};
use crate::flush::Gather;
use crate::frame::Flag;
use crate::stock::{Event, Stretch};
use crate::table::Paging;
use core::ops::Range;
use foliant_machine::{Machine, Replace};

/// How far a batch was unfolded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unfolded {
    /// Dense now.
    pub unfolded: usize,
    /// They were so before.
    pub skipped: usize,
    /// Folded as before, for lack of memory. After the first one that found none, no other was
    /// tried.
    pub failed: usize,
    /// Not touched: the page is none, is in use, or its memory is broken.
    pub refused: usize,
    /// The first reason for that.
    pub why: Option<MemmapError>,
}

impl<'a, 'm, M: Machine, P: Paging> Memmap<'a, 'm, M, P> {
    /// Gives the pages of a batch all their descriptors back, first to last, as far as the memory
    /// goes. Each page is dense afterwards, or as it was; `is_folded` says which.
    pub fn unfold(&self, batch: &mut Batch<'_, 'm, M, P>) -> Unfolded {
        let mut out = Unfolded::default();
        let chosen = batch.choose(|huge| match self.admit(huge) {
            Ok(identity) if identity.has(Flag::Optimized) => true,
            Ok(_) => {
                out.skipped += 1;
                false
            }
            Err(why) => {
                out.refused += 1;
                out.why = out.why.or(Some(why));
                false
            }
        });
        for part in batch.parts(self.grain()) {
            let wanted = batch.chosen(part.clone()).count();
            self.unfold_part(batch, part.clone());
            let done = batch.chosen(part).count();
            out.unfolded += done;
            if done < wanted {
                break;
            }
        }
        out.failed = chosen - out.unfolded;
        self.stock.count_by(Event::Unfolded, out.unfolded as u64);
        self.stock.count_by(Event::UnfoldFailed, out.failed as u64);
        out
    }

    /// R1 to R3 for the chosen pages of a part. Those that stay folded are chosen no more.
    fn unfold_part(&self, batch: &mut Batch<'_, 'm, M, P>, part: Range<usize>) {
        let mut stash = Stash::default();
        let mut gather = self.gather();
        let broken = self.stock.machine.rules().replace == Replace::BreakBeforeMake;
        let mut memory = true;
        for nth in part.clone() {
            if batch.is_chosen(nth) {
                memory = memory && self.take_tails(batch, nth, &mut stash);
                match memory {
                    false => batch.spare(nth),
                    true if broken => {} // all of the part must be absent first
                    true => self.give_tails(&batch.at(nth), &mut stash, &mut gather),
                }
            }
        }
        if batch.chosen(part.clone()).next().is_none() {
            return;
        }
        if broken {
            batch.chosen(part.clone()).for_each(|huge| self.hide(&huge));
            self.wait_for_readers();
            for huge in batch.chosen(part.clone()) {
                self.rewrite(self.tails(&huge), &mut gather, || 0);
            }
            self.flush(&mut gather, Event::FlushUnfold);
            for huge in batch.chosen(part) {
                self.give_tails(&huge, &mut stash, &mut gather);
            }
        }
        self.flush(&mut gather, Event::FlushUnfold); // R3
    }

    /// R2 for one page.
    fn give_tails(&self, huge: &Huge, stash: &mut Stash, gather: &mut Gather<'a, 'm, M, P>) {
        self.rewrite(self.tails(huge), gather, || {
            let tail = stash.pop(self).expect("a frame for every tail was taken");
            own::<P>(tail.into_raw().0)
        });
        if self.stock.machine.rules().replace == Replace::BreakBeforeMake {
            self.let_go(huge, Stretch::Ready);
        }
        self.flag(huge, |identity| identity.without(Flag::Optimized).without(Flag::Born));
    }

    /// R1 for one page.
    fn take_tails(&self, batch: &Batch<'_, 'm, M, P>, nth: usize, stash: &mut Stash) -> bool {
        let huge = batch.at(nth);
        let tail = self.share(huge.order()).expect("a page was folded with it");
        stash.fill(self, tail, self.tails(&huge).pages().get()).is_ok()
    }
}
