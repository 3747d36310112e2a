//! `mremap`.
//!
//! ```text
//!   smaller            the end goes                         ─┐
//!   larger             in place, where nothing is behind it  ├─ unless the program says where to
//!                      else elsewhere, if it may move       ─┘
//!   MREMAP_FIXED       what lies at the new place goes first; of the same size it may be several
//!                      vmas, each of which goes as far from the first as it was, and none of
//!                      which maps a segment
//!   MREMAP_DONTUNMAP   the pages go, the old area stays, empty
//!   an old size of 0   what is shared there is mapped once more, elsewhere
//! ```

use crate::errno::Errno;
use crate::pages::{PAGE, is_aligned, page_align, range};
use crate::place::{HasFile, Wanted};
use crate::process::Process;
use crate::userfault::is_armed;
use crate::vma::{Family, Marks, Tag, Vma};
use foliant::space::{Flags, Move};
use foliant::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Bytes, Va};
use linux_raw_sys::general::{MAP_FIXED, MREMAP_DONTUNMAP, MREMAP_FIXED, MREMAP_MAYMOVE};

/// What is asked for, in whole pages.
#[derive(Clone, Copy)]
struct Asked {
    addr: u64,
    old: u64,
    new: u64,
    flags: u32,
    to: u64,
}

impl Asked {
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
    /// The same in whole pages of a vma; 0 where that overflows, as in Linux.
    fn in_pages_of(self, vma: &Vma) -> Asked {
        let whole = |bytes: u64| bytes.checked_next_multiple_of(vma.page_bytes()).unwrap_or(0);
        Asked { old: whole(self.old), new: whole(self.new), ..self }
    }
    /// Whether it goes elsewhere in any case.
    fn goes(&self) -> bool {
        self.has(MREMAP_FIXED | MREMAP_DONTUNMAP)
    }
}

impl<M: Machine, P: Paging> Process<'_, '_, M, P> {
    /// Resizes or moves what lies at `addr`.
    pub fn mremap(
        &mut self,
        addr: u64,
        old_len: u64,
        new_len: u64,
        flags: u32,
        to: u64,
    ) -> Result<u64, Errno> {
        let (old, new) = (page_align(old_len), page_align(new_len));
        let asked = Asked { addr, old, new, flags, to };
        self.check_remap(&asked)?;
        let bytes = old.min(new);
        let armed = self.armed_to_move(addr, addr.saturating_add(bytes))?;
        let leaves = self.told_of_unmap(addr, addr.saturating_add(bytes));
        let at = match asked.has(MREMAP_FIXED) {
            true => self.unmapping((to, to + new), |process| process.remap(&asked))?,
            false => self.remap(&asked)?,
        };
        if at != addr && old > 0 {
            self.note_move(&armed, (addr, at), bytes)?;
            self.changes.extend(leaves.filter(|_| !asked.has(MREMAP_DONTUNMAP)));
        }
        Ok(at)
    }
    fn remap(&mut self, asked: &Asked) -> Result<u64, Errno> {
        let Asked { addr, old, new, .. } = *asked;
        if asked.has(MREMAP_FIXED) && old == new {
            return self.move_parts(asked);
        }
        let vma = self.vma(addr).ok_or(Errno::FAULT)?;
        let asked = asked.in_pages_of(&vma);
        self.check_old(&vma, &asked)?;
        match asked.goes() {
            true => self.remap_to(&asked),
            false => self.resize(&vma, &asked),
        }
    }

    fn check_remap(&self, asked: &Asked) -> Result<(), Errno> {
        let known = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
        let size = Self::size();
        let is_wrong = asked.flags & !known != 0
            || !is_aligned(asked.addr)
            || asked.new == 0
            || asked.new > size;
        if is_wrong {
            return Err(Errno::INVAL);
        }
        if !asked.goes() {
            return Ok(());
        }
        let old_end = asked.addr.wrapping_add(asked.old);
        let new_end = asked.to.wrapping_add(asked.new);
        let is_wrong = asked.to > size - asked.new
            || !asked.has(MREMAP_MAYMOVE)
            || asked.has(MREMAP_DONTUNMAP) && asked.old != asked.new
            || !is_aligned(asked.to)
            || asked.addr < new_end && asked.to < old_end;
        if is_wrong { Err(Errno::INVAL) } else { Ok(()) }
    }

    /// What has to hold of the vma at the old address.
    fn check_old(&self, vma: &Vma, asked: &Asked) -> Result<(), Errno> {
        let grows = asked.new > asked.old;
        if vma.is_sealed() {
            return Err(Errno::PERM);
        }
        if vma.is_huge() {
            let page = vma.page_bytes();
            let is_whole = |addr: u64| addr.is_multiple_of(page);
            // The new address is looked at even where it is not asked for. An area of theirs does
            // not grow, and leaves nothing behind.
            let is_wrong = !is_whole(asked.addr) || !is_whole(asked.to);
            if is_wrong || grows || asked.has(MREMAP_DONTUNMAP) {
                return Err(Errno::INVAL);
            }
        }
        if !grows && !asked.goes() {
            return Ok(());
        }
        if asked.old == 0 && !vma.is_shared() {
            return Err(Errno::INVAL);
        }
        if asked.old.min(asked.new) > vma.end() - asked.addr {
            return Err(Errno::FAULT);
        }
        if grows {
            self.may_lock(vma.tag.marks, asked.new - asked.old)?;
            let more = (asked.new - asked.old) / PAGE;
            if !self.may_grow(more, vma.takes_copies()) {
                return Err(Errno::NOMEM);
            }
        }
        Ok(())
    }

    /// Without a new address.
    fn resize(&mut self, vma: &Vma, asked: &Asked) -> Result<u64, Errno> {
        let (old, new) = (asked.old, asked.new);
        if new < old {
            self.munmap(asked.addr + new, old - new)?;
        }
        if new <= old {
            return Ok(asked.addr);
        }
        let (end, more) = (asked.addr + old, new - old);
        if end == vma.end() && self.is_room(end, more) {
            if vma.tag.marks.has(Marks::ACCOUNTED) && !self.may_promise(more / PAGE) {
                return Err(Errno::NOMEM);
            }
            self.put_beside(&self.situation(end, end + more), vma.flags, vma.tag)?;
            self.bring_if_locked(vma, end, end + more);
            return Ok(asked.addr);
        }
        if !asked.has(MREMAP_MAYMOVE) {
            return Err(Errno::NOMEM);
        }
        let file = has_file(vma);
        let to = self.choose(Wanted { addr: 0, bytes: new, flags: 0, align: PAGE, file })?;
        self.move_part(vma, &Asked { to, ..*asked })
    }
    fn is_room(&self, at: u64, bytes: u64) -> bool {
        let end = at.checked_add(bytes).filter(|end| *end <= Self::size());
        let next = self.vma_at_or_after(at);
        end.is_some_and(|end| next.is_none_or(|next| next.start() >= end))
    }
    fn bring_if_locked(&mut self, vma: &Vma, start: u64, end: u64) {
        if vma.tag.marks.has(Marks::LOCKED) {
            self.bring_what_can(start, end);
        }
    }

    /// Whether a vma is moved with no other: a segment's, and one whose faults a program answers.
    fn moves_alone(&self, vma: &Vma) -> bool {
        self.is_of_segment(vma) || is_armed(vma)
    }
    /// Moves the vmas of a range to another of the same size.
    fn move_parts(&mut self, asked: &Asked) -> Result<u64, Errno> {
        let first = self.vma(asked.addr).ok_or(Errno::FAULT)?;
        let end = asked.addr.saturating_add(asked.old);
        if self.moves_alone(&first) && first.end() < end {
            return Err(Errno::FAULT);
        }
        self.check_old(&first, &Asked { old: PAGE, new: PAGE, ..*asked })?;
        self.each_part(asked.addr, end, |process, vma, part| {
            let (at, bytes) = (part.start().get(), part.bytes().get());
            let to = asked.to + (at - asked.addr);
            if process.moves_alone(&vma) && at > asked.addr {
                return Err(Errno::FAULT);
            }
            let one = Asked { addr: at, old: bytes, new: bytes, to, ..*asked }.in_pages_of(&vma);
            process.check_old(&vma, &one)?;
            process.remap_to(&one).map(|_| ())
        })?;
        Ok(asked.to)
    }

    /// To an address that the program gave, or to any.
    fn remap_to(&mut self, asked: &Asked) -> Result<u64, Errno> {
        if asked.has(MREMAP_FIXED) {
            self.take_out_unsealed(asked.to, asked.to + asked.new)?;
            // A range that wraps around may have lain there itself.
            self.vma(asked.addr).ok_or(Errno::FAULT)?;
        }
        let mut asked = *asked;
        if asked.new < asked.old {
            self.munmap(asked.addr + asked.new, asked.old - asked.new)?;
            asked.old = asked.new;
        }
        let vma = self.vma(asked.addr).ok_or(Errno::FAULT)?;
        let pages = asked.old / PAGE;
        if asked.has(MREMAP_DONTUNMAP) && !self.may_grow(pages, false) {
            return Err(Errno::NOMEM);
        }
        let flags = if asked.has(MREMAP_FIXED) { MAP_FIXED } else { 0 };
        let file = has_file(&vma);
        let wanted = Wanted { addr: asked.to, bytes: asked.new, flags, align: PAGE, file };
        let to = self.choose(wanted)?;
        self.move_part(&vma, &Asked { to, ..asked })
    }

    /// Moves a part of a vma, which may become larger, to addresses where nothing lies.
    fn move_part(&mut self, vma: &Vma, asked: &Asked) -> Result<u64, Errno> {
        if vma.is_of_file() {
            let moved = self.move_memory(vma, asked);
            self.forget_views();
            return moved;
        }
        self.move_memory(vma, asked)
    }
    fn move_memory(&mut self, vma: &Vma, asked: &Asked) -> Result<u64, Errno> {
        let stays = asked.has(MREMAP_DONTUNMAP);
        let pages = if stays { asked.new } else { asked.new - asked.old } / PAGE;
        if vma.tag.marks.has(Marks::ACCOUNTED) && !self.may_promise(pages) {
            return Err(Errno::NOMEM);
        }
        let tag = self.moved(vma, asked.addr, asked.to)?;
        let flags = vma.flags.without(Flags::ARMED); // its handler knows the old addresses
        let old = range(asked.addr, asked.addr + asked.old);
        let new = range(asked.to, asked.to + asked.new);
        if old.is_empty() {
            self.put(&self.situation(asked.to, asked.to + asked.new), flags, tag)?;
        } else {
            let to = Move::To(Va::new(asked.to));
            self.mm.remap(self.space, old, Bytes::new(asked.new), to)?;
            self.size.note(new.pages().get(), old.pages().get());
            self.recount();
            if stays {
                self.put_as(
                    &self.situation(asked.addr, asked.addr + asked.old),
                    vma.flags,
                    vma.tag,
                )?;
            }
            self.retag(new, flags, tag)?;
        }
        match is_armed(vma) {
            true => self.join_armed(vma, asked),
            false => self.join(asked.to, asked.to + asked.new),
        }
        if stays {
            self.leave_empty(vma, asked)?;
        }
        if asked.new > asked.old {
            self.bring_if_locked(vma, asked.to + asked.old, asked.to + asked.new);
        }
        Ok(asked.to)
    }
    /// What was armed becomes one with what is armed beside its new place, and with nothing else:
    /// Linux joins them first, and disarms all that is one then. What there is no memory to join
    /// stays armed.
    fn join_armed(&mut self, old: &Vma, asked: &Asked) {
        let (start, end) = (asked.to, asked.to + asked.new);
        let Some(moved) = self.vma(start) else { return };
        let moved = Vma { flags: old.flags, ..moved };
        let below = start.checked_sub(1).and_then(|last| self.vma(last));
        for (near, seam) in [(below, start), (self.vma(end), end)] {
            if let Some(near) = near.filter(|near| self.would_join(near, &moved))
                && self.arm_apart(&near, near.range, Flags::NONE).is_ok()
            {
                self.join(seam, seam);
            }
        }
    }
    /// What is left where pages were moved away is not locked. All of a vma that was moved is as
    /// new, unless the moved part is one with it.
    fn leave_empty(&mut self, old: &Vma, asked: &Asked) -> Result<(), Errno> {
        let left = self.vma(asked.addr).ok_or(Errno::FAULT)?;
        let locked = Marks::LOCKED.with(Marks::ON_FAULT);
        let is_whole = (old.start(), old.end()) == (asked.addr, asked.addr + asked.old);
        let is_one = left.range.contains(Va::new(asked.to));
        let family = if is_whole && !is_one { Family(0) } else { left.tag.family };
        let tag = Tag { marks: left.tag.marks.without(locked), family, ..left.tag };
        if tag != left.tag { self.retag(left.range, left.flags, tag) } else { Ok(()) }
    }
}

fn has_file(vma: &Vma) -> HasFile {
    if vma.is_of_file() { HasFile::Yes } else { HasFile::No }
}
