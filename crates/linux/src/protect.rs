//! `mprotect`.

use crate::errno::Errno;
use crate::pages::{is_aligned, page_align};
use crate::process::Process;
use crate::vma::{Family, Marks, Tag, Vma};
use foliant::space::{Advice, Flags};
use foliant::table::Paging;
use foliant_machine::Machine;
use foliant_units::VaRange;
use linux_raw_sys::errno;
use linux_raw_sys::general::{
    PROT_EXEC, PROT_GROWSDOWN, PROT_GROWSUP, PROT_READ, PROT_SEM, PROT_WRITE,
};

impl<M: Machine, P: Paging> Process<'_, '_, M, P> {
    /// Gives a range other rights. At a hole it ends with ENOMEM: what lies before it has them.
    pub fn mprotect(&mut self, addr: u64, len: u64, prot: u32) -> Result<u64, Errno> {
        let grows = prot & (PROT_GROWSDOWN | PROT_GROWSUP);
        let prot = prot & !(PROT_GROWSDOWN | PROT_GROWSUP);
        if grows == PROT_GROWSDOWN | PROT_GROWSUP || !is_aligned(addr) {
            return Err(Errno::INVAL);
        }
        if len == 0 {
            return Ok(0);
        }
        let end = addr.wrapping_add(page_align(len));
        if end <= addr {
            return Err(Errno::NOMEM);
        }
        if prot & !(PROT_READ | PROT_WRITE | PROT_EXEC | PROT_SEM) != 0 {
            return Err(Errno::INVAL);
        }
        let start = if grows == 0 { addr } else { self.grown_from(addr, end, grows)? };
        self.each_part_up_to_a_hole(start, end, |process, vma, part| {
            process.protect_part(&vma, part, prot)
        })?;
        Ok(0)
    }
    /// Where a range begins that goes on to where its vma does, in the direction that it grows in.
    fn grown_from(&self, addr: u64, end: u64, grows: u32) -> Result<u64, Errno> {
        let first = self.vma_at_or_after(addr).ok_or(Errno::NOMEM)?;
        match grows {
            PROT_GROWSDOWN if first.start() >= end => Err(Errno::NOMEM),
            PROT_GROWSDOWN if !first.tag.marks.has(Marks::GROWS_DOWN) => Err(Errno::INVAL),
            PROT_GROWSDOWN => Ok(first.start()),
            _ if first.start() > addr => Err(Errno::NOMEM),
            _ => Err(Errno::INVAL), // nothing grows upwards on this processor
        }
    }

    fn protect_part(&mut self, vma: &Vma, part: VaRange, prot: u32) -> Result<(), Errno> {
        let new = vma.with_prot(prot);
        if !new.flags.is_below_ceiling() || self.switches.refuse(vma.flags, new.flags) {
            return Err(Errno(errno::EACCES));
        }
        if vma.is_sealed() {
            return Err(Errno::PERM);
        }
        if new == *vma {
            return Ok(());
        }
        if vma.is_cut_by(part.start().get(), part.end().get()) {
            return Err(Errno::INVAL);
        }
        let pages = part.pages().get();
        let tag = self.accounted(vma, &new, pages)?;
        let situation = self.situation(part.start().get(), part.end().get());
        let tag = self.coloured(&situation, new.flags, tag);
        self.mm.protect(self.space, part, new.flags.and(Flags::RIGHTS))?;
        if tag != vma.tag {
            self.mm.advise(self.space, part, Advice::Tag(tag.word()))?;
        }
        self.recount();
        let is_now = Vma { tag, ..new };
        if situation.beside().iter().flatten().any(|near| self.would_join(near, &is_now)) {
            self.join_part(vma, part);
        }
        let becomes_writable = new.takes_copies() && !vma.takes_copies();
        if becomes_writable && tag.marks.has(Marks::LOCKED) {
            self.bring_what_can(part.start().get(), part.end().get());
        }
        Ok(())
    }

    /// The tag of what gets other rights. Memory that may be written now is promised from here on,
    /// and what was never written is promised no longer where it cannot be.
    fn accounted(&self, old: &Vma, new: &Vma, pages: u64) -> Result<Tag, Errno> {
        let (is, was) = (new.flags.has(Flags::WRITE), old.flags.has(Flags::WRITE));
        let mut tag = new.tag;
        if is && !was && !self.may_grow(0, false) {
            return Err(Errno::NOMEM);
        }
        let counted = Marks::ACCOUNTED.with(Marks::NO_RESERVE);
        let is_countable = !old.is_huge() && !old.is_shared();
        if is && !was && !tag.marks.has_any(counted) && is_countable {
            if !self.may_promise(pages) {
                return Err(Errno::NOMEM);
            }
            tag.marks = tag.marks.with(Marks::ACCOUNTED);
        }
        if !is && tag.family == Family(0) && !old.is_of_file() {
            tag.marks = tag.marks.without(Marks::ACCOUNTED);
        }
        Ok(tag)
    }
}
