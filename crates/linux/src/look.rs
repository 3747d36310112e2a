//! `mincore` and `msync`: what is there.

use crate::errno::Errno;
use crate::pages::{PAGE, is_aligned, page_align, range};
use crate::process::Process;
use crate::vma::{Marks, Vma};
use foliant::table::{Attrs, Entry, Paging};
use foliant_machine::Machine;
use foliant_units::Frame;
use linux_raw_sys::general::{MS_ASYNC, MS_INVALIDATE, MS_SYNC};

/// What tells a byte of memory from all others, whichever process names it: of shared memory it is
/// the same for each that maps it. Whoever waits for a word to change is found by it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MemoryKey {
    /// Where the record of the object, or of the space, is.
    of: Frame,
    at: u64,
}

impl<M: Machine, P: Paging> Process<'_, '_, M, P> {
    /// What tells the byte at an address from all others.
    pub fn key_of(&self, addr: u64) -> MemoryKey {
        let shared = self.vma(addr).filter(|vma| vma.is_shared());
        match shared.and_then(|vma| self.views.get(vma.tag.moved)) {
            Some(view) => MemoryKey { of: view.file.object().frame(), at: view.offset(addr) },
            None => MemoryKey { of: self.space.frame(), at: addr },
        }
    }

    /// Whether each page of a range is there. `tell` gets a byte for each, lowest first, and may be
    /// told some before an error.
    pub fn mincore(&self, addr: u64, len: u64, mut tell: impl FnMut(u8)) -> Result<u64, Errno> {
        if !is_aligned(addr) {
            return Err(Errno::INVAL);
        }
        let end = addr.checked_add(len).filter(|end| *end <= Self::size()).ok_or(Errno::NOMEM)?;
        let end = page_align(end);
        let covered = self.covered_from(addr, end);
        for vma in self.vmas_in(addr, covered) {
            self.tell_vma(&vma, vma.start().max(addr), vma.end().min(covered), &mut tell);
        }
        if covered < end { Err(Errno::NOMEM) } else { Ok(0) }
    }
    /// Where the part of a range ends that vmas cover from its start on.
    fn covered_from(&self, start: u64, end: u64) -> u64 {
        let mut at = start;
        for vma in self.vmas_in(start, end) {
            if vma.start() > at {
                break;
            }
            at = vma.end().min(end);
        }
        at
    }
    /// Whether each page of a part of a vma is there; of a file, whether the file has it.
    fn tell_vma(&self, vma: &Vma, start: u64, end: u64, mut tell: impl FnMut(u8)) {
        let absent = |at: u64| match self.view(vma) {
            None => 0,
            Some(view) => u8::from(view.file.shows(view.offset(at) / PAGE)),
        };
        let mut at = start;
        self.mm.with_leaves(self.space, range(start, end), |leaves| {
            for found in leaves {
                if !matches!(found.entry, Entry::Leaf { .. }) {
                    continue;
                }
                let (from, to) = (found.va.get(), found.va.get() + found.level.span().get());
                (at..from.max(at)).step_by(PAGE as usize).for_each(|at| tell(absent(at)));
                let (from, to) = (from.max(at), to.min(end));
                (from..to).step_by(PAGE as usize).for_each(|_| tell(1));
                at = to.max(at);
            }
        });
        (at..end).step_by(PAGE as usize).for_each(|at| tell(absent(at)));
    }

    /// Has a range written to its file: no file is anywhere but in memory, so arguments alone are
    /// looked at.
    pub fn msync(&self, addr: u64, len: u64, flags: u32) -> Result<u64, Errno> {
        let both = MS_ASYNC | MS_SYNC;
        let known = both | MS_INVALIDATE;
        if flags & !known != 0 || !is_aligned(addr) || flags & both == both {
            return Err(Errno::INVAL);
        }
        let end = addr.wrapping_add(page_align(len));
        if end < addr {
            return Err(Errno::NOMEM);
        }
        if end == addr {
            return Ok(0);
        }
        let is_locked = |marks: Marks| marks.has(Marks::LOCKED) && flags & MS_INVALIDATE != 0;
        if self.vmas_in(addr, end).any(|vma| is_locked(vma.tag.marks)) {
            return Err(Errno::BUSY);
        }
        if self.is_covered(addr, end) { Ok(0) } else { Err(Errno::NOMEM) }
    }

    /// Pages that are there in a range, huge leaves counted in base pages.
    pub fn present_in(&self, addr: u64, end: u64) -> u64 {
        let mut count = 0;
        self.mm.with_leaves(self.space, range(addr, end), |leaves| {
            for found in leaves {
                if let Entry::Leaf { attrs, .. } = found.entry
                    && !attrs.has(Attrs::SPECIAL)
                {
                    let (from, to) = (found.va.get(), found.va.get() + found.level.span().get());
                    count += (to.min(end) - from.max(addr)) / PAGE;
                }
            }
        });
        count
    }
}
