//! `mlock`, `mlock2`, `munlock`, `mlockall`, `munlockall`: marks, pages brought ahead, and limits.
//! Nothing is ever paged out, so nothing more is to be done for memory to stay.

use crate::errno::Errno;
use crate::pages::{PAGE, page_align};
use crate::process::Process;
use crate::vma::{Marks, Tag, Vma};
use foliant::table::Paging;
use foliant_machine::Machine;
use foliant_units::VaRange;
use linux_raw_sys::general::{MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT, MLOCK_ONFAULT};

const BOTH: Marks = Marks::LOCKED.with(Marks::ON_FAULT);

impl<M: Machine, P: Paging> Process<'_, '_, M, P> {
    /// Locks a range, up to a hole.
    pub fn mlock(&mut self, addr: u64, len: u64) -> Result<u64, Errno> {
        self.lock(addr, len, Marks::LOCKED)
    }
    /// Locks a range, up to a hole, with its pages or as they come.
    pub fn mlock2(&mut self, addr: u64, len: u64, flags: u32) -> Result<u64, Errno> {
        match flags {
            0 => self.lock(addr, len, Marks::LOCKED),
            MLOCK_ONFAULT => self.lock(addr, len, BOTH),
            _ => Err(Errno::INVAL),
        }
    }
    /// Unlocks a range, up to a hole.
    pub fn munlock(&mut self, addr: u64, len: u64) -> Result<u64, Errno> {
        let (start, len) = whole(addr, len);
        self.mark_locked(start, len, Marks::NONE)?;
        Ok(0)
    }
    /// Locks all there is, all that will come, or both.
    pub fn mlockall(&mut self, flags: u32) -> Result<u64, Errno> {
        let known = MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT;
        if flags == 0 || flags & !known != 0 || flags == MCL_ONFAULT {
            return Err(Errno::INVAL);
        }
        if self.limits.locked.get() == 0 {
            return Err(Errno::PERM);
        }
        let all = self.pages().saturating_mul(PAGE);
        if flags & MCL_CURRENT != 0 && all > self.limits.locked.get() {
            return Err(Errno::NOMEM);
        }
        let marks = if flags & MCL_ONFAULT != 0 { BOTH } else { Marks::LOCKED };
        self.future = if flags & MCL_FUTURE != 0 { marks } else { Marks::NONE };
        if flags & MCL_CURRENT != 0 {
            self.mark_all(marks)?;
            self.bring_what_can(0, u64::MAX);
        }
        Ok(0)
    }
    /// Unlocks all there is and will be.
    pub fn munlockall(&mut self) -> Result<u64, Errno> {
        self.future = Marks::NONE;
        self.mark_all(Marks::NONE)?;
        Ok(0)
    }

    fn lock(&mut self, addr: u64, len: u64, marks: Marks) -> Result<u64, Errno> {
        if self.limits.locked.get() == 0 {
            return Err(Errno::PERM);
        }
        let (start, len) = whole(addr, len);
        if self.limits.locked.get() < u64::MAX {
            let inside: u64 = self.locked_in(start, start.saturating_add(len));
            let locked = self.locked_in(0, u64::MAX) - inside;
            if locked.saturating_add(len) > self.limits.locked.get() {
                return Err(Errno::NOMEM);
            }
        }
        self.mark_locked(start, len, marks)?;
        let done = self.bring_all(start, start + len);
        // A page that may not be brought is missing, as Posix has it.
        done.map_err(|why| if why == Errno::NOMEM { Errno::AGAIN } else { Errno::NOMEM })?;
        Ok(0)
    }
    fn mark_locked(&mut self, start: u64, len: u64, marks: Marks) -> Result<(), Errno> {
        let end = start.wrapping_add(len);
        if end < start {
            return Err(Errno::INVAL);
        }
        if end == start {
            return Ok(());
        }
        self.each_part_up_to_a_hole(start, end, |process, vma, part| {
            process.mark_part(&vma, part, marks)
        })
    }
    fn mark_all(&mut self, marks: Marks) -> Result<(), Errno> {
        self.each_part(0, u64::MAX, |process, vma, part| process.mark_part(&vma, part, marks))
    }
    fn mark_part(&mut self, vma: &Vma, part: VaRange, marks: Marks) -> Result<(), Errno> {
        let tag = Tag { marks: vma.tag.marks.without(BOTH).with(marks), ..vma.tag };
        if tag == vma.tag || vma.is_huge() || tag.marks.has(Marks::DROPPABLE) {
            return Ok(());
        }
        self.retag(part, vma.flags, tag)?;
        self.join_part(vma, part);
        Ok(())
    }
    /// Bytes that are locked in a range.
    pub(crate) fn locked_in(&self, start: u64, end: u64) -> u64 {
        self.bytes_in(start, end, |vma| vma.tag.marks.has(Marks::LOCKED))
    }
    /// Whether so much more may be locked, where new memory with these marks is.
    pub(crate) fn may_lock(&self, marks: Marks, bytes: u64) -> Result<(), Errno> {
        let limit = self.limits.locked.get();
        if !marks.has(Marks::LOCKED) || limit == u64::MAX {
            return Ok(());
        }
        if limit == 0 {
            return Err(Errno::PERM);
        }
        let locked = self.locked_in(0, u64::MAX).saturating_add(bytes);
        if locked > limit { Err(Errno::AGAIN) } else { Ok(()) }
    }
}

/// The pages that a range of bytes touches: the first address, and bytes, which are 0 where they
/// overflow.
fn whole(addr: u64, len: u64) -> (u64, u64) {
    let inside = addr & (PAGE - 1);
    (addr - inside, page_align(len.wrapping_add(inside)))
}
