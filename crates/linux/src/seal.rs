//! `mseal`: vmas that stay as they are.
//!
//! A sealed vma is not unmapped, moved, resized or mapped over, it keeps its rights, and what a
//! program may not write it may not drop either: each is EPERM, and nothing takes a seal off. An
//! unmap that meets one changes nothing, but that it may have cut its first vma, like one that
//! meets a huge page of which a part would stay.
//!
//! **Not here**: the calls that are refused.

use crate::errno::Errno;
use crate::pages::{is_aligned, page_align};
use crate::process::Process;
use crate::situation::Situation;
use crate::vma::{Marks, Vma};
use foliant::space::Flags;
use foliant::table::Paging;
use foliant_machine::Machine;
use linux_raw_sys::general::{
    MADV_DONTFORK, MADV_DONTNEED, MADV_DONTNEED_LOCKED, MADV_FREE, MADV_GUARD_INSTALL, MADV_REMOVE,
    MADV_WIPEONFORK,
};

/// Advice by which contents go, here or in a child.
const DISCARDS: [u32; 7] = [
    MADV_DONTNEED,
    MADV_DONTNEED_LOCKED,
    MADV_FREE,
    MADV_REMOVE,
    MADV_DONTFORK,
    MADV_WIPEONFORK,
    MADV_GUARD_INSTALL,
];

impl Vma {
    pub(crate) fn is_sealed(&self) -> bool {
        self.tag.marks.has(Marks::SEALED)
    }
    /// Whether a seal forbids this advice. What maps a file or a pool's pages may be dropped.
    pub(crate) fn keeps_from(&self, advice: u32) -> bool {
        let is_kept = !self.flags.has(Flags::WRITE) && !self.is_of_file() && !self.is_huge();
        self.is_sealed() && is_kept && DISCARDS.contains(&advice)
    }
}

impl<M: Machine, P: Paging> Process<'_, '_, M, P> {
    /// Seals a range, which has no hole.
    pub fn mseal(&mut self, addr: u64, len: u64, flags: u64) -> Result<u64, Errno> {
        let (bytes, end) = (page_align(len), addr.wrapping_add(page_align(len)));
        if flags != 0 || !is_aligned(addr) || len != 0 && bytes == 0 || end < addr {
            return Err(Errno::INVAL);
        }
        if !self.is_covered(addr, end) {
            return Err(Errno::NOMEM);
        }
        self.each_part(addr, end, |process, vma, part| {
            process.mark(&vma, part, vma.tag.marks.with(Marks::SEALED))
        })?;
        Ok(0)
    }

    /// Takes out what lies in a range for a call that a seal forbids it.
    pub(crate) fn take_out_unsealed(&mut self, start: u64, end: u64) -> Result<(), Errno> {
        let situation = self.situation(start, end);
        self.may_go(&situation)?;
        self.take_out(&situation)
    }
    /// Whether all may go that lies in a range: no seal keeps it, and no page of a pool goes in
    /// part. Otherwise Linux has cut the first vma by then, where it can be cut, and leaves it so.
    pub(crate) fn may_go(&mut self, situation: &Situation) -> Result<(), Errno> {
        let (start, end) = (situation.start(), situation.end());
        let keeps = |vma: Vma| match () {
            () if vma.is_sealed() => Some(Errno::PERM),
            () if vma.is_cut_by(start, end) => Some(Errno::INVAL),
            () => None,
        };
        let Some(why) = self.parts_on(situation).find_map(keeps) else { return Ok(()) };
        if self.vma(start).is_some_and(|first| !first.is_sealed()) {
            self.part_at(start)?;
        }
        Err(why)
    }
}
