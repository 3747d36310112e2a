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
//!   memory that is moved with the handler's knowledge stays armed. What is watched of it
//!   (`UFFDIO_WRITEPROTECT`), missing pages included, is watched there as well: in a child before
//!   it runs, at another address before the move is over.
//!
//! **Not here**: nobody is told of what another process advises, nor, as in Linux, of what a
//! segment or a window of a file replaces.

use crate::errno::Errno;
use crate::pages::{page_align, range};
use crate::process::Process;
use crate::told::{Change, Handler, Userfaultfd};
use crate::userfault::is_armed;
use alloc::vec::Vec;
use foliant::space::{Flags, Watch};
use foliant::table::{Attrs, Entry, Found, Paging, SoftKind};
use foliant_machine::Machine;
use foliant_units::VaRange;
use linux_raw_sys::general::{
    MADV_DONTNEED, MADV_DONTNEED_LOCKED, MADV_FREE, MADV_REMOVE, UFFD_FEATURE_EVENT_FORK,
    UFFD_FEATURE_EVENT_REMAP, UFFD_FEATURE_EVENT_REMOVE, UFFD_FEATURE_EVENT_UNMAP,
};

/// Which parts of a range are armed, and for what; and which are watched.
#[derive(Default)]
pub(crate) struct Armed {
    parts: Vec<(VaRange, Flags)>,
    watched: Vec<VaRange>,
}

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
        armed.map(|(part, _)| (handler.id, Change::Remove(part))).collect()
    }

    /// The handler, if it asked for messages of a kind (Q1).
    fn told_of(&self, feature: u32) -> Option<Handler> {
        self.handler.filter(|handler| handler.features & feature != 0)
    }
    fn armed_in(&self, start: u64, end: u64) -> impl Iterator<Item = (VaRange, Flags)> {
        let armed = self.vmas_in(start, end).filter(is_armed);
        armed.map(move |vma| {
            let part = range(vma.start().max(start), vma.end().min(end));
            (part, vma.flags.and(Flags::ARMED))
        })
    }
    /// The same as it is to be somewhere else.
    fn kept_in(&self, start: u64, end: u64) -> Result<Armed, Errno> {
        let parts: Vec<(VaRange, Flags)> = self.armed_in(start, end).collect();
        let mut watched: Vec<VaRange> = Vec::new();
        let watches = |(_, flags): &&(VaRange, Flags)| flags.has(Flags::USERFAULT_WRITE);
        for (part, _) in parts.iter().filter(watches) {
            let noted = self.mm.with_leaves(self.space, *part, |leaves| {
                for found in leaves.filter(is_watched) {
                    let start = found.va.get();
                    let shown = range(start, start + found.level.span().get()).intersect(*part);
                    match watched.last_mut().filter(|last| last.end() == shown.start()) {
                        Some(last) => *last = range(last.start().get(), shown.end().get()),
                        None => {
                            // A program says how many there are.
                            watched.try_reserve(1).map_err(|_| Errno::NOMEM)?;
                            watched.push(shown);
                        }
                    }
                }
                Ok::<(), Errno>(())
            });
            noted.unwrap_or(Ok(()))?;
        }
        Ok(Armed { parts, watched })
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
    pub(crate) fn armed_to_move(&self, start: u64, end: u64) -> Result<Armed, Errno> {
        match self.told_of(UFFD_FEATURE_EVENT_REMAP) {
            Some(_) => self.kept_in(start, end),
            None => Ok(Armed::default()),
        }
    }
    /// Arms memory again that was moved, and notes that it was.
    pub(crate) fn note_move(
        &mut self,
        armed: &Armed,
        (from, to): (u64, u64),
        bytes: u64,
    ) -> Result<(), Errno> {
        let Some(handler) = self.handler.filter(|_| !armed.parts.is_empty()) else {
            return Ok(());
        };
        self.arm_again(armed, |addr| addr - from + to)?;
        self.changes.push((handler.id, Change::Remap { from, to, bytes }));
        Ok(())
    }
    /// Arms a child's memory as it is here, and notes that there is one, if somebody is told (Q2).
    pub(crate) fn note_fork(&mut self, child: &mut Self) -> Result<(), Errno> {
        let Some(handler) = self.told_of(UFFD_FEATURE_EVENT_FORK) else { return Ok(()) };
        let armed = self.kept_in(0, u64::MAX)?;
        if armed.parts.is_empty() {
            return Ok(());
        }
        let own = child.new_descriptor();
        child.handler = Some(Handler { id: own, features: handler.features });
        child.arm_again(&armed, |addr| addr)?;
        let fd = Userfaultfd::of(own, handler.features);
        self.changes.push((handler.id, Change::Fork(fd)));
        Ok(())
    }
    /// Arms what was armed, where it is by now, and watches what was watched of it.
    fn arm_again(&mut self, armed: &Armed, at: impl Fn(u64) -> u64) -> Result<(), Errno> {
        let at = |part: &VaRange| (at(part.start().get()), at(part.end().get()));
        for (part, flags) in &armed.parts {
            let (start, end) = at(part);
            self.each_part(start, end, |process, vma, part| {
                process.arm_apart(&vma, part, *flags).map(drop)
            })?;
        }
        for part in &armed.watched {
            let (start, end) = at(part);
            self.mm.watch(self.space, range(start, end), Watch::All)?;
        }
        Ok(())
    }
}

/// Whether a page is watched that was found, or that is missing.
fn is_watched(found: &Found) -> bool {
    match found.entry {
        Entry::Leaf { attrs, .. } => attrs.has(Attrs::UFFD_WP),
        Entry::Soft(soft) if soft.kind == SoftKind::Marker => true,
        // A leaf that is out of use for a moment is there.
        Entry::Soft(soft) => {
            let leaf = soft.migrating_leaf().or(soft.broken_leaf());
            leaf.is_some_and(|(_, attrs)| attrs.has(Attrs::UFFD_WP))
        }
        Entry::None | Entry::Table(_) => false,
    }
}
