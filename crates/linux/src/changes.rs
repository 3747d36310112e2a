//! Changes of armed memory that the handler of a `userfaultfd` is told of: forks, moves, drops and
//! unmaps.
//!
//! ```text
//!   fork, mremap, munmap, mmap, brk ─▶ done ─▶ take_changes ─▶ the embedder queues them, and the caller waits until they are read
//!   madvise ─▶ dropped_by ─▶ queued and read ─▶ done
//! ```
//!
//! **Invariants**
//! - Q1. A change is noted for the descriptor that the memory was armed by when it changed, and
//!   only if that asked for its kind (`UFFD_FEATURE_EVENT_FORK` and its like).
//! - Q2. A child of which the handler is told is armed as its parent, by a descriptor of its own;
//!   memory that is moved with the handler's knowledge stays armed.
//!
//! **Not here**: what is watched (`UFFDIO_WRITEPROTECT`) is watched no more in a child and at
//! another address, whoever is told. Nobody is told of what another process advises, nor, as in
//! Linux, of what a segment or a window of a file replaces.

use crate::errno::Errno;
use crate::pages::{page_align, range};
use crate::process::Process;
use crate::told::{Change, Handler, Userfaultfd};
use crate::userfault::is_armed;
use crate::vma::Vma;
use alloc::vec::Vec;
use foliant::space::Flags;
use foliant::table::Paging;
use foliant_machine::Machine;
use foliant_units::VaRange;
use linux_raw_sys::general::{
    MADV_DONTNEED, MADV_DONTNEED_LOCKED, MADV_FREE, MADV_REMOVE, UFFD_FEATURE_EVENT_FORK,
    UFFD_FEATURE_EVENT_REMAP, UFFD_FEATURE_EVENT_REMOVE, UFFD_FEATURE_EVENT_UNMAP,
};

/// Which parts of a range are armed, and for what.
pub(crate) type Armed = Vec<(VaRange, Flags)>;

impl<M: Machine, P: Paging> Process<'_, '_, M, P> {
    /// The changes that were made since this was called last, each with the number of the
    /// descriptor whose handler is told, in their order. Whoever made one goes on when its message
    /// was read.
    pub fn take_changes(&mut self) -> Vec<(u64, Change)> {
        core::mem::take(&mut self.changes)
    }
    /// What advice is about to drop of armed memory, with the number of the descriptor whose
    /// handler is told before.
    pub fn dropped_by(&self, addr: u64, len: u64, advice: u32) -> Vec<(u64, Change)> {
        let drops = [MADV_DONTNEED, MADV_DONTNEED_LOCKED, MADV_FREE, MADV_REMOVE];
        let Some(handler) = self.told_of(UFFD_FEATURE_EVENT_REMOVE) else { return Vec::new() };
        if !drops.contains(&advice) {
            return Vec::new();
        }
        let armed = self.armed_in(addr, addr.saturating_add(page_align(len)));
        armed.into_iter().map(|(part, _)| (handler.id, Change::Remove(part))).collect()
    }

    /// The handler, if it asked for messages of a kind (Q1).
    fn told_of(&self, feature: u32) -> Option<Handler> {
        self.handler.filter(|handler| handler.features & feature != 0)
    }
    fn armed_in(&self, start: u64, end: u64) -> Armed {
        let armed = self.vmas_in(start, end).filter(is_armed);
        let part = |vma: Vma| {
            let part = range(vma.start().max(start), vma.end().min(end));
            (part, vma.flags.and(Flags::ARMED))
        };
        armed.map(part).collect()
    }
    /// Unmaps a range, and notes that it did.
    pub(crate) fn unmapping<R>(
        &mut self,
        (start, end): (u64, u64),
        unmap: impl FnOnce(&mut Self) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let told = self.told_of_unmap(start, end);
        let done = unmap(self)?;
        self.changes.extend(told);
        Ok(done)
    }
    /// Does something of which Linux tells nobody.
    pub(crate) fn untold<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let before = self.changes.len();
        let done = work(self);
        self.changes.truncate(before);
        done
    }
    /// What is told when a range is unmapped, if somebody is told.
    pub(crate) fn told_of_unmap(&self, start: u64, end: u64) -> Option<(u64, Change)> {
        let handler = self.told_of(UFFD_FEATURE_EVENT_UNMAP)?;
        let is_any = self.vmas_in(start, end).any(|vma| is_armed(&vma));
        is_any.then(|| (handler.id, Change::Unmap(range(start, end))))
    }
    /// What of a range stays armed when it is moved.
    pub(crate) fn armed_to_move(&self, start: u64, end: u64) -> Armed {
        match self.told_of(UFFD_FEATURE_EVENT_REMAP) {
            Some(_) => self.armed_in(start, end),
            None => Armed::new(),
        }
    }
    /// Arms memory again that was moved, and notes that it was.
    pub(crate) fn note_move(
        &mut self,
        armed: &Armed,
        (from, to): (u64, u64),
        bytes: u64,
    ) -> Result<(), Errno> {
        let Some(handler) = self.handler.filter(|_| !armed.is_empty()) else { return Ok(()) };
        for (part, flags) in armed {
            let at = |addr: u64| addr - from + to;
            self.arm_again(at(part.start().get()), at(part.end().get()), *flags)?;
        }
        self.changes.push((handler.id, Change::Remap { from, to, bytes }));
        Ok(())
    }
    /// Arms a child's memory as it is here, and notes that there is one, if somebody is told (Q2).
    pub(crate) fn note_fork(&mut self, child: &mut Self) -> Result<(), Errno> {
        let Some(handler) = self.told_of(UFFD_FEATURE_EVENT_FORK) else { return Ok(()) };
        let armed = self.armed_in(0, u64::MAX);
        if armed.is_empty() {
            return Ok(());
        }
        let own = child.new_descriptor();
        child.handler = Some(Handler { id: own, features: handler.features });
        for (part, flags) in armed {
            child.arm_again(part.start().get(), part.end().get(), flags)?;
        }
        let fd = Userfaultfd::of(own, handler.features);
        self.changes.push((handler.id, Change::Fork(fd)));
        Ok(())
    }
    fn arm_again(&mut self, start: u64, end: u64, armed: Flags) -> Result<(), Errno> {
        self.each_part(start, end, |process, vma, part| {
            process.arm_apart(&vma, part, armed).map(drop)
        })
    }
}
