//! `madvise`.

use crate::errno::Errno;
use crate::pages::{PAGE, is_aligned, page_align, range};
use crate::place::HUGE;
use crate::process::Process;
use crate::vma::{Family, Marks, Tag, Vma};
use alloc::vec::Vec;
use foliant::compact::CollapseError;
use foliant::manager::CollapseLimits;
use foliant::space::{Advice, Flags, RangeError};
use foliant::table::{Found, Paging};
use foliant_machine::Machine;
use foliant_units::{Level, Order, Va, VaRange};
use linux_raw_sys::errno;
use linux_raw_sys::general::{
    MADV_COLD, MADV_COLLAPSE, MADV_DODUMP, MADV_DOFORK, MADV_DONTDUMP, MADV_DONTFORK,
    MADV_DONTNEED, MADV_DONTNEED_LOCKED, MADV_FREE, MADV_GUARD_INSTALL, MADV_GUARD_REMOVE,
    MADV_HUGEPAGE, MADV_KEEPONFORK, MADV_NOHUGEPAGE, MADV_NORMAL, MADV_PAGEOUT, MADV_POPULATE_READ,
    MADV_POPULATE_WRITE, MADV_RANDOM, MADV_REMOVE, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_WIPEONFORK,
    PROT_READ,
};

/// Whose advice it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Adviser {
    /// The process's own.
    Itself,
    /// That of another process, which may see this one's memory.
    Other,
}

/// What advice does to a part of a vma.
#[derive(Clone, Copy)]
enum Does {
    /// It is accepted where the vma has none of these marks.
    Nothing(Marks),
    /// Pages of a file are dropped.
    Punch,
    /// There is nowhere to page out to, but what may be dropped is.
    PageOut,
    /// Marks are set, and others cleared.
    Mark(Marks, Marks),
    /// The manager does it, where the vma has none of these marks.
    Hand(Advice, Marks),
    /// The pages become one folio for each 2 MiB.
    Collapse,
}

/// What a number means, if it is one.
fn does(advice: u32) -> Option<Does> {
    let pattern = Marks::SEQUENTIAL.with(Marks::RANDOM);
    let (none, locked) = (Marks::NONE, Marks::LOCKED);
    Some(match advice {
        MADV_NORMAL => Does::Mark(none, pattern),
        MADV_RANDOM => Does::Mark(Marks::RANDOM, Marks::SEQUENTIAL),
        MADV_SEQUENTIAL => Does::Mark(Marks::SEQUENTIAL, Marks::RANDOM),
        MADV_DONTFORK => Does::Mark(Marks::DONT_FORK, none),
        MADV_DOFORK => Does::Mark(none, Marks::DONT_FORK),
        MADV_WIPEONFORK => Does::Mark(Marks::WIPE_ON_FORK, none),
        MADV_KEEPONFORK => Does::Mark(none, Marks::WIPE_ON_FORK),
        MADV_DONTDUMP => Does::Mark(Marks::DONT_DUMP, none),
        MADV_DODUMP => Does::Mark(none, Marks::DONT_DUMP),
        MADV_WILLNEED => Does::Nothing(none),
        MADV_COLD => Does::Nothing(locked),
        MADV_PAGEOUT => Does::PageOut,
        MADV_REMOVE => Does::Punch,
        MADV_DONTNEED => Does::Hand(Advice::DontNeed, locked),
        MADV_DONTNEED_LOCKED => Does::Hand(Advice::DontNeed, none),
        MADV_FREE => Does::Hand(Advice::Free, locked),
        MADV_HUGEPAGE => Does::Hand(Advice::HugePage, none),
        MADV_NOHUGEPAGE => Does::Hand(Advice::NoHugePage, none),
        MADV_GUARD_INSTALL => Does::Hand(Advice::GuardInstall, locked),
        MADV_GUARD_REMOVE => Does::Hand(Advice::GuardRemove, none),
        MADV_COLLAPSE => Does::Collapse,
        _ => return None,
    })
}

impl<M: Machine, P: Paging> Process<'_, '_, M, P> {
    /// Takes advice about a range. Where there are holes all else of it is worked on, and then the
    /// answer is ENOMEM.
    pub fn madvise(&mut self, addr: u64, len: u64, advice: u32) -> Result<u64, Errno> {
        let populates = [MADV_POPULATE_READ, MADV_POPULATE_WRITE].contains(&advice);
        let known = does(advice);
        let (bytes, end) = (page_align(len), addr.wrapping_add(page_align(len)));
        let is_range = is_aligned(addr) && (len == 0 || bytes != 0) && end >= addr;
        if !is_range || known.is_none() && !populates {
            return Err(Errno::INVAL);
        }
        if bytes == 0 {
            return Ok(0);
        }
        match known {
            None => self.populate_range(addr, end, advice)?,
            Some(does) => self.advise_parts(addr, end, (advice, does))?,
        }
        Ok(0)
    }

    /// Takes advice about each of some ranges of bytes, as `process_madvise` does: the answer is
    /// how many bytes were advised, if there were any. A process that advises another may not have
    /// its contents dropped.
    pub fn process_madvise(
        &mut self,
        ranges: &[(u64, u64)],
        advice: u32,
        flags: u32,
        by: Adviser,
    ) -> Result<u64, Errno> {
        let harmless = [MADV_COLD, MADV_PAGEOUT, MADV_WILLNEED, MADV_COLLAPSE];
        if flags != 0 || by == Adviser::Other && !harmless.contains(&advice) {
            return Err(Errno::INVAL);
        }
        let mut advised = 0;
        for (addr, len) in ranges {
            match self.madvise(*addr, *len, advice) {
                Ok(_) => advised += len,
                Err(why) if advised == 0 => return Err(why),
                Err(_) => break,
            }
        }
        Ok(advised)
    }

    fn advise_parts(
        &mut self,
        start: u64,
        end: u64,
        (advice, does): (u32, Does),
    ) -> Result<(), Errno> {
        let is_covered = self.is_covered(start, end);
        self.each_part(start, end, |process, vma, part| match vma.keeps_from(advice) {
            true => Err(Errno::PERM),
            false => process.advise_part(&vma, part, does),
        })?;
        if is_covered { Ok(()) } else { Err(Errno::NOMEM) }
    }

    fn advise_part(&mut self, vma: &Vma, part: VaRange, does: Does) -> Result<(), Errno> {
        let marks = vma.tag.marks;
        let does = match does {
            Does::PageOut if is_droppable(vma) => Does::Hand(Advice::DontNeed, Marks::LOCKED),
            Does::PageOut => Does::Nothing(Marks::LOCKED),
            does => does,
        };
        match does {
            Does::Nothing(unless) if marks.has_any(unless) || vma.is_huge() => {
                if matches!(unless, Marks::NONE) { Ok(()) } else { Err(Errno::INVAL) }
            }
            Does::Nothing(_) | Does::PageOut => Ok(()),
            Does::Punch => self.punch(vma, part),
            Does::Mark(set, _) if set.has(Marks::WIPE_ON_FORK) && vma.is_of_file() => {
                Err(Errno::INVAL)
            }
            Does::Hand(Advice::Free, _) if vma.is_of_file() => Err(Errno::INVAL),
            Does::Mark(_, clear) if clear.has(Marks::WIPE_ON_FORK) && is_droppable(vma) => {
                Err(Errno::INVAL)
            }
            Does::Mark(_, clear) if clear.has(Marks::DONT_DUMP) && is_droppable(vma) => {
                Err(Errno::INVAL)
            }
            Does::Mark(set, clear) => {
                let marks = marks.without(clear).with(set);
                self.mark(vma, part, marks)
            }
            Does::Hand(_, unless) if marks.has_any(unless) => Err(Errno::INVAL),
            Does::Hand(advice, _) => self.hand_on(vma, part, advice),
            Does::Collapse => self.collapse_part(vma, part),
        }
    }

    /// Drops pages of a shared file; a process that looks at one next finds zeros.
    fn punch(&mut self, vma: &Vma, part: VaRange) -> Result<(), Errno> {
        // A pool's private pages have a file too, to Linux.
        let has_file = vma.is_of_file() || vma.is_huge();
        if !has_file || vma.tag.marks.has(Marks::LOCKED) {
            return Err(Errno::INVAL);
        }
        if !vma.is_shared() || !vma.flags.ceiling().has(Flags::WRITE) {
            return Err(Errno(errno::EACCES));
        }
        let view = self.view(vma).ok_or(Errno::INVAL)?;
        view.file.punch(view.offset(part.start().get()), view.offset(part.end().get()))
    }

    /// Takes large leaves apart that lie over an end of a part: there Linux makes two vmas of one,
    /// and what is one again later has small entries still.
    fn cut_leaves(&self, vma: &Vma, part: VaRange) -> Result<(), Errno> {
        if vma.is_huge() {
            return Ok(());
        }
        for end in [part.start(), part.end()].map(|end| end.get()) {
            let is_inside = vma.start() < end && end < vma.end();
            let page = range(end, end + PAGE);
            let lies_over = |found: Found| found.va.get() < end && found.level > Level::BASE;
            let is_cut = is_inside
                && self.mm.with_leaves(self.space, page, |mut leaves| leaves.any(lies_over))
                    == Some(true);
            if is_cut {
                self.mm.cut(self.space, Va::new(end))?;
            }
        }
        Ok(())
    }
    /// Gives a part of a vma other marks.
    pub(crate) fn mark(&mut self, vma: &Vma, part: VaRange, marks: Marks) -> Result<(), Errno> {
        if marks == vma.tag.marks {
            return Ok(());
        }
        self.tag_part(vma, part, Tag { marks, ..vma.tag })
    }
    /// Gives a part of a vma another tag.
    pub(crate) fn tag_part(&mut self, vma: &Vma, part: VaRange, tag: Tag) -> Result<(), Errno> {
        self.cut_leaves(vma, part)?;
        self.retag(part, vma.flags, tag)?;
        self.join_part(vma, part);
        Ok(())
    }
    /// Gives a part other wishes for folio sizes.
    fn wish(&mut self, vma: &Vma, part: VaRange, advice: Advice) -> Result<(), Errno> {
        let (set, clear) = wish_of(advice);
        let flags = vma.flags.without(clear).with(set);
        if flags == vma.flags {
            return Ok(());
        }
        self.cut_leaves(vma, part)?;
        let situation = self.situation(part.start().get(), part.end().get());
        let tag = self.coloured(&situation, flags, vma.tag);
        self.mm.advise(self.space, part, advice)?;
        if tag != vma.tag {
            self.mm.advise(self.space, part, Advice::Tag(tag.word()))?;
        }
        self.recount();
        self.join_part(vma, part);
        Ok(())
    }

    fn hand_on(&mut self, vma: &Vma, part: VaRange, advice: Advice) -> Result<(), Errno> {
        let part = match (vma.flags.huge_order(), advice) {
            (None, _) => part,
            (Some(order), Advice::DontNeed) if part.start().is_aligned(order.bytes()) => {
                let end = part.end().align_down(order.bytes());
                VaRange::new(part.start(), end.max(part.start())).ok_or(Errno::INVAL)?
            }
            // A wish that is had already cuts none.
            (Some(order), Advice::HugePage | Advice::NoHugePage)
                if part.is_aligned(order.bytes()) || vma.flags.has(wish_of(advice).0) =>
            {
                part
            }
            (Some(_), _) => return Err(Errno::INVAL),
        };
        if part.is_empty() {
            return Ok(());
        }
        match advice {
            Advice::HugePage | Advice::NoHugePage => return self.wish(vma, part, advice),
            // Guards are in page tables, as pages are.
            Advice::GuardInstall if vma.is_of_file() => {
                let marks = vma.tag.marks.with(Marks::GUARDED);
                self.retag(vma.range, vma.flags, Tag { marks, ..vma.tag })?;
            }
            Advice::GuardInstall => self.adopt(part.start().get())?,
            _ => {}
        }
        self.size.note_resident(self.resident());
        Ok(self.mm.advise(self.space, part, advice)?)
    }

    fn populate_range(&mut self, start: u64, end: u64, advice: u32) -> Result<(), Errno> {
        let is_write = advice == MADV_POPULATE_WRITE;
        let how = if is_write { Advice::PopulateWrite } else { Advice::PopulateRead };
        self.each_part_up_to_a_hole(start, end, |process, vma, part| {
            let may = match is_write {
                true => vma.flags.has(Flags::WRITE),
                false => vma.prot() & PROT_READ != 0,
            };
            if may { process.populate(part, how) } else { Err(Errno::INVAL) }
        })
    }

    /// Makes folios of 2 MiB of what lies in a part of a vma. All that can be made are made, and
    /// where one cannot the answer says so.
    fn collapse_part(&mut self, vma: &Vma, part: VaRange) -> Result<(), Errno> {
        let last = (vma.end().saturating_sub(HUGE)) & !(HUGE - 1);
        let suits = last >= vma.start() && last + HUGE <= vma.end();
        let barred = vma.flags.has(Flags::NOHUGEPAGE) || vma.is_huge();
        // Of a file: whether it lies there as its pages do.
        let is_apart = match self.view(vma) {
            Some(view) => !vma.start().abs_diff(view.offset(vma.start())).is_multiple_of(HUGE),
            None => vma.tag.family == Family(0),
        };
        if barred || !suits || is_apart {
            return Err(Errno::INVAL);
        }
        let start = part.start().get().next_multiple_of(HUGE);
        let end = part.end().get() & !(HUGE - 1);
        if start > end {
            return Err(Errno::INVAL);
        }
        let all: Vec<_> = (start..end).step_by(HUGE as usize).map(|at| self.collapse(at)).collect();
        all.into_iter().rev().find(Result::is_err).unwrap_or(Ok(()))
    }
    fn collapse(&self, at: u64) -> Result<(), Errno> {
        let limits = CollapseLimits::NONE;
        match self.mm.collapse(self.space, Va::new(at), Order::SIZE_2M, limits) {
            Ok(()) | Err(CollapseError::Collapsed(_)) => Ok(()),
            Err(CollapseError::NoMemory) => Err(Errno::NOMEM),
            Err(_) => Err(Errno::INVAL),
        }
    }
}

fn is_droppable(vma: &Vma) -> bool {
    vma.tag.marks.has(Marks::DROPPABLE)
}

/// A guard in a range that is populated is no hole.
pub(crate) fn populated(done: Result<(), RangeError>) -> Result<(), Errno> {
    match done {
        Err(RangeError::Hole(_)) => Err(Errno::FAULT),
        done => Ok(done?),
    }
}

/// What an advice about folio sizes sets and clears.
fn wish_of(advice: Advice) -> (Flags, Flags) {
    match advice {
        Advice::HugePage => (Flags::HUGEPAGE, Flags::NOHUGEPAGE),
        _ => (Flags::NOHUGEPAGE, Flags::HUGEPAGE),
    }
}
