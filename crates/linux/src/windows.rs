//! `remap_file_pages`: a part of a shared mapping shows another part of its file. Linux has made a
//! mapping of its own of that since 4.0, and so it is here.

use crate::errno::Errno;
use crate::pages::PAGE;
use crate::process::Process;
use crate::vma::{Marks, Vma};
use foliant::table::Paging;
use foliant_machine::Machine;
use linux_raw_sys::errno;
use linux_raw_sys::general::{MAP_FIXED, MAP_LOCKED, MAP_NONBLOCK, MAP_POPULATE, MAP_SHARED};

impl<M: Machine, P: Paging> Process<'_, '_, M, P> {
    /// Has a range show its file from another page on. The range may be several mappings of one
    /// file and of equal rights, without a hole.
    pub fn remap_file_pages(
        &mut self,
        addr: u64,
        len: u64,
        prot: u32,
        page: u64,
        flags: u32,
    ) -> Result<u64, Errno> {
        let (start, len) = (addr & !(PAGE - 1), len & !(PAGE - 1));
        let end = start.checked_add(len).filter(|end| *end > start).ok_or(Errno::INVAL)?;
        if prot != 0 || page.checked_add(len / PAGE).is_none() {
            return Err(Errno::INVAL);
        }
        let first = self.vma(start).filter(Vma::is_shared).ok_or(Errno::INVAL)?;
        let file_of = |process: &Self, vma: &Vma| Some(process.view(vma)?.file.clone());
        let file = file_of(self, &first).ok_or(Errno::INVAL)?;
        let mut at = first.end();
        while at < end {
            let next = self.vma(at).ok_or(Errno::INVAL)?;
            let is_alike = next.flags == first.flags && next.tag.marks == first.tag.marks;
            if !is_alike || file_of(self, &next).as_ref() != Some(&file) {
                return Err(Errno::INVAL);
            }
            at = next.end();
        }
        let offset = page.checked_mul(PAGE).ok_or(Errno(errno::EOVERFLOW))?;
        let locked = if first.tag.marks.has(Marks::LOCKED) { MAP_LOCKED } else { 0 };
        let how = flags & MAP_NONBLOCK | MAP_SHARED | MAP_FIXED | MAP_POPULATE | locked;
        let prot = first.prot();
        // What was there goes first: a segment that was removed, with its last vma (segments::G1).
        if file.is_removed() {
            self.munmap(start, len)?;
            if file.vmas() == 0 {
                return Err(Errno(errno::EIDRM));
            }
        }
        self.untold(|process| process.mmap(start, len, prot, how, Some(&file), offset))?;
        Ok(0)
    }
}
