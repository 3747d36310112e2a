//! `userfaultfd`: a program answers faults of its own memory.
//!
//! ```text
//!   userfaultfd ─▶ UFFDIO_API ─▶ REGISTER: vmas are armed
//!   fault ─▶ Fault::Told: the embedder queues the message and lets the thread wait on the descriptor
//!   COPY, ZEROPAGE, CONTINUE, POISON, MOVE, WRITEPROTECT ─▶ Answer: a result, and which threads go on ◀─ WAKE
//! ```
//!
//! The descriptor, its queue and those that wait are the embedder's; a [`Userfaultfd`] is what the
//! embedder keeps behind it. The calls take Linux's structures as the program filled them in, and
//! write into them what Linux does.
//!
//! **Invariants**
//! - D1. A vma is armed by one descriptor. The process knows by which; as long as any vma is armed,
//!   another descriptor arms none.
//! - D2. What a vma is armed for is in its flags, and nowhere else. So a fork, a move and an unmap
//!   need no word here: the manager takes it from memory that is moved and from a child, as Linux
//!   does where the handler is not told of these (`changes`).
//! - D3. Who may go on is told behind what they wait for.
//!
//! **Not here**: pages that are moved (`transfer`); whether the caller is privileged; that faults
//! of the kernel's own are not told to a descriptor for user mode only. Faults of pages that are
//! there (`MINOR`) are of files alone, also of huge pages, where Linux takes any vma of a pool and
//! never tells of one without a file.

use crate::errno::Errno;
use crate::pages::{PAGE, is_aligned, range};
use crate::process::Process;
use crate::told::{Handler, Userfaultfd};
use crate::vma::{Marks, Tag, Vma};
use alloc::boxed::Box;
use foliant::fault::{FillError, FillWith, HugeContents, Unfilled};
use foliant::space::{Advice, Flags, RangeError, Watch};
use foliant::table::{Attrs, Paging};
use foliant_machine::Machine;
use foliant_units::{Bytes, Pages, Va, VaRange};
use linux_raw_sys::errno;
use linux_raw_sys::general::{
    _UFFDIO_API, _UFFDIO_CONTINUE, _UFFDIO_COPY, _UFFDIO_MOVE, _UFFDIO_POISON, _UFFDIO_REGISTER,
    _UFFDIO_UNREGISTER, _UFFDIO_WAKE, _UFFDIO_WRITEPROTECT, _UFFDIO_ZEROPAGE, O_CLOEXEC,
    O_NONBLOCK, UFFD_API, UFFD_FEATURE_EVENT_FORK, UFFD_FEATURE_EVENT_REMAP,
    UFFD_FEATURE_EVENT_REMOVE, UFFD_FEATURE_EVENT_UNMAP, UFFD_FEATURE_EXACT_ADDRESS,
    UFFD_FEATURE_MINOR_HUGETLBFS, UFFD_FEATURE_MINOR_SHMEM, UFFD_FEATURE_MISSING_HUGETLBFS,
    UFFD_FEATURE_MISSING_SHMEM, UFFD_FEATURE_MOVE, UFFD_FEATURE_PAGEFAULT_FLAG_WP,
    UFFD_FEATURE_POISON, UFFD_FEATURE_SIGBUS, UFFD_FEATURE_WP_ASYNC,
    UFFD_FEATURE_WP_HUGETLBFS_SHMEM, UFFD_FEATURE_WP_UNPOPULATED, UFFD_USER_MODE_ONLY,
    UFFDIO_COPY_MODE_DONTWAKE, UFFDIO_COPY_MODE_WP, UFFDIO_REGISTER_MODE_MINOR,
    UFFDIO_REGISTER_MODE_MISSING, UFFDIO_REGISTER_MODE_WP, UFFDIO_ZEROPAGE_MODE_DONTWAKE,
    uffdio_api, uffdio_continue, uffdio_copy, uffdio_poison, uffdio_range, uffdio_register,
    uffdio_writeprotect, uffdio_zeropage,
};

/// Bits of `uffdio_writeprotect::mode`, which `linux-raw-sys` lacks.
const WRITEPROTECT_MODE_WP: u64 = 1;
const WRITEPROTECT_MODE_DONTWAKE: u64 = 1 << 1;
/// Those of `uffdio_continue::mode`.
const CONTINUE_MODE_DONTWAKE: u64 = 1;
const CONTINUE_MODE_WP: u64 = 1 << 1;
/// That of `uffdio_poison::mode`.
const POISON_MODE_DONTWAKE: u64 = 1;

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// What the program gets.
    pub result: Result<u64, Errno>,
    /// Threads that wait on the descriptor for a page of this range go on.
    pub wakes: Option<VaRange>,
}

impl Answer {
    pub(crate) fn of(done: Result<Option<VaRange>, Errno>) -> Answer {
        match done {
            Ok(wakes) => Answer { result: Ok(0), wakes },
            Err(why) => Answer { result: Err(why), wakes: None },
        }
    }
}

impl<'a, 'm, M: Machine, P: Paging> Process<'a, 'm, M, P> {
    /// A descriptor of `userfaultfd`, of this process's memory. Whether the caller may have it is
    /// the embedder's to know.
    pub fn userfaultfd(&mut self, flags: u32) -> Result<Userfaultfd, Errno> {
        if flags & !(O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY) != 0 {
            return Err(Errno::INVAL);
        }
        Ok(Userfaultfd { id: self.new_descriptor(), features: None })
    }
    pub(crate) fn new_descriptor(&mut self) -> u64 {
        self.descriptors += 1;
        self.descriptors
    }
    /// The descriptor is closed: what it had armed is as any memory again, and all that wait for it
    /// go on.
    pub fn close_userfaultfd(&mut self, fd: Userfaultfd) -> Result<(), Errno> {
        if self.handler.is_some_and(|handler| handler.id == fd.id) {
            self.each_part(0, u64::MAX, |process, vma, part| process.arm(&vma, part, Flags::NONE))?;
            self.handler = None;
        }
        Ok(())
    }

    /// `UFFDIO_API`: which features there are, and which the program wants, once.
    pub fn uffdio_api(&self, fd: &mut Userfaultfd, api: &mut uffdio_api) -> Result<u64, Errno> {
        let watches = P::KEEPS.has(Attrs::UFFD_WP);
        let writes = UFFD_FEATURE_PAGEFAULT_FLAG_WP
            | UFFD_FEATURE_WP_UNPOPULATED
            | UFFD_FEATURE_WP_HUGETLBFS_SHMEM
            | UFFD_FEATURE_WP_ASYNC;
        let missing = UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_MISSING_HUGETLBFS;
        let events = UFFD_FEATURE_EVENT_FORK
            | UFFD_FEATURE_EVENT_REMAP
            | UFFD_FEATURE_EVENT_REMOVE
            | UFFD_FEATURE_EVENT_UNMAP;
        let minor = UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_MINOR_HUGETLBFS;
        let told = UFFD_FEATURE_SIGBUS | UFFD_FEATURE_EXACT_ADDRESS;
        let any = told | missing | minor | events | UFFD_FEATURE_POISON | UFFD_FEATURE_MOVE;
        let features = u64::from(if watches { any | writes } else { any });
        let wanted = api.features;
        let is_wrong = api.api != u64::from(UFFD_API) || wanted & !features != 0;
        if is_wrong || fd.features.is_some() {
            *api = uffdio_api { api: 0, features: 0, ioctls: 0 };
            return Err(Errno::INVAL);
        }
        let ioctls = [_UFFDIO_API, _UFFDIO_REGISTER, _UFFDIO_UNREGISTER].map(|nr| 1 << nr);
        (api.features, api.ioctls) = (features, ioctls.iter().sum());
        // Writes that nobody is told of are noted for what is missing too.
        let is_async = wanted & u64::from(UFFD_FEATURE_WP_ASYNC) != 0;
        let implied = if is_async { UFFD_FEATURE_WP_UNPOPULATED } else { 0 };
        fd.features = Some(wanted as u32 | implied);
        Ok(0)
    }

    /// `UFFDIO_REGISTER`: the vmas of a range are armed.
    pub fn uffdio_register(
        &mut self,
        fd: &Userfaultfd,
        asked: &mut uffdio_register,
    ) -> Result<u64, Errno> {
        let handler = fd.ready()?;
        let modes = [
            (UFFDIO_REGISTER_MODE_MISSING, Flags::USERFAULT),
            (UFFDIO_REGISTER_MODE_WP, Flags::USERFAULT_WRITE),
            (UFFDIO_REGISTER_MODE_MINOR, Flags::USERFAULT_PRESENT),
        ];
        let known = modes.iter().fold(0, |all, (mode, _)| all | u64::from(*mode));
        if asked.mode == 0 || asked.mode & !known != 0 {
            return Err(Errno::INVAL);
        }
        let has = |mode: u32| asked.mode & u64::from(mode) != 0;
        if has(UFFDIO_REGISTER_MODE_WP) && !P::KEEPS.has(Attrs::UFFD_WP) {
            return Err(Errno::INVAL);
        }
        let armed = modes.iter().filter(|(mode, _)| has(*mode));
        let armed = armed.fold(Flags::NONE, |all, (_, flag)| all.with(*flag));
        let (start, end) = self.checked(&asked.range)?;
        let has_huge = self.may_register((start, end), armed, handler)?;
        self.handler = Some(handler);
        self.each_part(start, end, |process, vma, part| match vma.flags.has(armed) {
            true => Ok(()), // it is armed for this already, and perhaps for more
            false => process.arm(&vma, part, armed),
        })?;
        let ioctls = [_UFFDIO_WAKE, _UFFDIO_COPY, _UFFDIO_POISON].map(|nr| 1 << nr);
        let small = if has_huge { 0 } else { 1 << _UFFDIO_ZEROPAGE | 1 << _UFFDIO_MOVE };
        let protects = if has(UFFDIO_REGISTER_MODE_WP) { 1 << _UFFDIO_WRITEPROTECT } else { 0 };
        let continues = if has(UFFDIO_REGISTER_MODE_MINOR) { 1 << _UFFDIO_CONTINUE } else { 0 };
        asked.ioctls = ioctls.iter().sum::<u64>() | small | protects | continues;
        Ok(0)
    }
    /// Whether a descriptor may arm the vmas of a range, of which there is one at least; says
    /// whether one has huge pages of a pool.
    fn may_register(
        &self,
        (start, end): (u64, u64),
        armed: Flags,
        handler: Handler,
    ) -> Result<bool, Errno> {
        if !self.begins_whole(start, end) {
            return Err(Errno::INVAL);
        }
        let mut has_huge = false;
        for vma in self.vmas_in(start, end) {
            let lacks_file = armed.has(Flags::USERFAULT_PRESENT) && !vma.is_of_file();
            if !self.can_be_armed(&vma, armed, handler) || lacks_file {
                return Err(Errno::INVAL);
            }
            if !vma.flags.ceiling().has(Flags::WRITE) {
                return Err(Errno::PERM);
            }
            if end < vma.end() && !end.is_multiple_of(vma.page_bytes()) {
                return Err(Errno::INVAL);
            }
            has_huge |= vma.is_huge();
            if is_armed(&vma) && self.handler.is_some_and(|other| other.id != handler.id) {
                return Err(Errno::BUSY);
            }
        }
        // One descriptor at a time (D1).
        let is_others = || self.vmas().any(|vma| is_armed(&vma));
        match self.handler.filter(|other| other.id != handler.id) {
            Some(_) if is_others() => Err(Errno::BUSY),
            _ => Ok(has_huge),
        }
    }

    /// `UFFDIO_UNREGISTER`: the vmas of a range are not armed any more.
    pub fn uffdio_unregister(&mut self, fd: &Userfaultfd, asked: &uffdio_range) -> Answer {
        Answer::of(self.unregister(fd, asked))
    }
    fn unregister(
        &mut self,
        fd: &Userfaultfd,
        asked: &uffdio_range,
    ) -> Result<Option<VaRange>, Errno> {
        let handler = fd.ready()?;
        let (start, end) = self.checked(asked)?;
        let is_others = self.handler.is_some_and(|other| other.id != handler.id);
        let suits = |vma: Vma| {
            let armed = vma.flags.and(Flags::ARMED);
            let is_free = self.can_be_armed(&vma, armed, handler) && !(is_others && is_armed(&vma));
            is_free && !vma.is_cut_by(start, end)
        };
        if !self.begins_whole(start, end) || !self.vmas_in(start, end).all(suits) {
            return Err(Errno::INVAL);
        }
        self.each_part(start, end, |process, vma, part| process.arm(&vma, part, Flags::NONE))?;
        Ok(Some(range(start, end)))
    }
    /// Whether a range begins where a page of the first vma in it may, even if that one begins
    /// further on: Linux asks no more of it, and no less.
    fn begins_whole(&self, start: u64, end: u64) -> bool {
        let first = self.vmas_in(start, end).next();
        first.is_some_and(|first| start.is_multiple_of(first.page_bytes()))
    }
    /// Has a part of a vma armed for this, and for nothing else.
    fn arm(&mut self, vma: &Vma, part: VaRange, armed: Flags) -> Result<(), Errno> {
        if self.arm_apart(vma, part, armed)? {
            self.join(part.start().get(), part.end().get());
        }
        Ok(())
    }
    /// The same apart from its neighbours; whether anything changed.
    pub(crate) fn arm_apart(
        &mut self,
        vma: &Vma,
        part: VaRange,
        armed: Flags,
    ) -> Result<bool, Errno> {
        let flags = vma.flags.without(Flags::ARMED).with(armed);
        if flags == vma.flags {
            return Ok(false);
        }
        let situation = self.situation(part.start().get(), part.end().get());
        let tag = self.coloured(&situation, flags, vma.tag);
        for (flag, arm, disarm) in [
            (Flags::USERFAULT, Advice::UserfaultArm, Advice::UserfaultDisarm),
            (Flags::USERFAULT_WRITE, Advice::UserfaultWriteArm, Advice::UserfaultWriteDisarm),
            (Flags::USERFAULT_PRESENT, Advice::UserfaultPresentArm, Advice::UserfaultPresentDisarm),
        ] {
            match (flags.has(flag), vma.flags.has(flag)) {
                (true, false) => self.mm.advise(self.space, part, arm)?,
                (false, true) => self.mm.advise(self.space, part, disarm)?,
                _ => {}
            }
        }
        if tag != vma.tag {
            self.mm.advise(self.space, part, Advice::Tag(tag.word()))?;
        }
        Ok(true)
    }

    /// `UFFDIO_COPY`: missing pages get contents. `read` fills a page's bytes from an address of
    /// the source on, or says why it cannot.
    pub fn uffdio_copy(
        &mut self,
        fd: &Userfaultfd,
        asked: &mut uffdio_copy,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<(), Errno>,
    ) -> Answer {
        let modes = u64::from(UFFDIO_COPY_MODE_DONTWAKE | UFFDIO_COPY_MODE_WP);
        let (source, to) = (asked.src, uffdio_range { start: asked.dst, len: asked.len });
        let ends = self.asked(fd, &to, (asked.mode, modes));
        let (start, end) = match ends.and_then(|ends| self.unaligned(source, to.len).map(|_| ends))
        {
            Ok(ends) => ends,
            Err(why) => return Answer::of(Err(why)),
        };
        let is_watched = asked.mode & u64::from(UFFDIO_COPY_MODE_WP) != 0;
        let mut page = Box::new([[0; PAGE as usize]]);
        let done = self.fill(start, end, is_watched, |process, vma, at| {
            if let Some(order) = vma.flags.huge_order() {
                let from = source + (at - start);
                let (read, page) = (&mut read, &mut page[0]);
                let mut contents = Read { from, read, page, is_watched, why: None };
                let filled = process.mm.fill_huge(process.space, Va::new(at), &mut contents);
                let why = contents.why;
                return match filled {
                    Ok(()) => Ok(order.bytes().get()),
                    Err(error) => Err(why.unwrap_or(self::filled(error))),
                };
            }
            read(source + (at - start), page[0].as_mut_slice())?;
            let with = if is_watched { FillWith::Watched(&*page) } else { FillWith::Copy(&*page) };
            process.fill_guard(at)?;
            let done = process.mm.fill(process.space, Va::new(at), with);
            done.map(|()| PAGE).map_err(|Unfilled { why, .. }| filled(why))
        });
        let dont_wake = asked.mode & u64::from(UFFDIO_COPY_MODE_DONTWAKE) != 0;
        answered(done, &to, dont_wake, &mut asked.copy)
    }
    /// `UFFDIO_ZEROPAGE`: missing pages become zeros.
    pub fn uffdio_zeropage(&mut self, fd: &Userfaultfd, asked: &mut uffdio_zeropage) -> Answer {
        let modes = u64::from(UFFDIO_ZEROPAGE_MODE_DONTWAKE);
        let (start, end) = match self.asked(fd, &asked.range, (asked.mode, modes)) {
            Ok(ends) => ends,
            Err(why) => return Answer::of(Err(why)),
        };
        let done = self.fill(start, end, false, |process, vma, at| {
            if vma.is_huge() {
                return Err(Errno::INVAL); // they have no zeros of their own
            }
            // Of a file each page is made; elsewhere a guard is in the way.
            let is_files = vma.is_of_file() && vma.is_shared();
            let pages = if is_files { 1 } else { (end - at) / PAGE };
            if is_files {
                process.fill_guard(at)?;
            }
            let with = FillWith::Zeros(Pages::new(pages));
            match process.mm.fill(process.space, Va::new(at), with) {
                Ok(()) => Ok(pages * PAGE),
                Err(Unfilled { done, .. }) if done > Bytes::new(0) => Ok(done.get()),
                Err(Unfilled { why, .. }) => Err(filled(why)),
            }
        });
        answered(done, &asked.range, asked.mode & modes != 0, &mut asked.zeropage)
    }
    /// `UFFDIO_POISON`: where pages are missing memory is broken from then on.
    pub fn uffdio_poison(&mut self, fd: &Userfaultfd, asked: &mut uffdio_poison) -> Answer {
        let (start, end) = match self.asked(fd, &asked.range, (asked.mode, POISON_MODE_DONTWAKE)) {
            Ok(ends) => ends,
            Err(why) => return Answer::of(Err(why)),
        };
        let done = self.fill(start, end, false, |process, vma, at| {
            let done = process.mm.fill(process.space, Va::new(at), FillWith::Poison);
            done.map(|()| vma.page_bytes()).map_err(|Unfilled { why, .. }| filled(why))
        });
        answered(done, &asked.range, asked.mode != 0, &mut asked.updated)
    }
    /// `UFFDIO_CONTINUE`: pages that their files have are mapped.
    pub fn uffdio_continue(&mut self, fd: &Userfaultfd, asked: &mut uffdio_continue) -> Answer {
        let modes = CONTINUE_MODE_DONTWAKE | CONTINUE_MODE_WP;
        let (start, end) = match self.asked(fd, &asked.range, (asked.mode, modes)) {
            Ok(ends) => ends,
            Err(why) => return Answer::of(Err(why)),
        };
        let is_watched = asked.mode & CONTINUE_MODE_WP != 0;
        let done = self.fill(start, end, is_watched, |process, vma, at| {
            if !vma.is_of_file() {
                return Err(if vma.is_huge() { Errno(errno::EFAULT) } else { Errno::INVAL });
            }
            if process.is_guarded(at) {
                // What the file has takes the place of a guard, as on Linux.
                if !process.is_in_file(vma, at) {
                    return Err(Errno(errno::EFAULT));
                }
                process.mm.advise(process.space, range(at, at + PAGE), Advice::GuardRemove)?;
            }
            let with = if is_watched { FillWith::PresentWatched } else { FillWith::Present };
            let done = process.mm.fill(process.space, Va::new(at), with);
            done.map(|()| vma.page_bytes()).map_err(|Unfilled { why, .. }| match why {
                FillError::Beyond(_) if !vma.is_huge() => Errno::INVAL,
                FillError::Range(RangeError::Broken(_)) => Errno(errno::EIO),
                why => filled(why),
            })
        });
        let dont_wake = asked.mode & CONTINUE_MODE_DONTWAKE != 0;
        answered(done, &asked.range, dont_wake, &mut asked.mapped)
    }
    /// Whether the file of a vma has the page at an address.
    fn is_in_file(&self, vma: &Vma, at: u64) -> bool {
        self.view(vma).is_some_and(|view| view.file.has(view.offset(at) / PAGE))
    }
    /// Takes a guard away where a page is to be filled, as Linux does: it is a missing page there,
    /// and nowhere else. It stays where a file has the page.
    fn fill_guard(&mut self, at: u64) -> Result<(), Errno> {
        let is_there = |vma: Vma| {
            let view = self.view(&vma).filter(|_| vma.is_shared())?;
            let page = view.offset(at) / PAGE;
            Some(view.file.has(page) || page >= view.file.bytes().div_ceil(PAGE))
        };
        if self.is_guarded(at) && !self.vma(at).and_then(is_there).unwrap_or(false) {
            self.mm.advise(self.space, range(at, at + PAGE), Advice::GuardRemove)?;
        }
        Ok(())
    }
    /// Gives a vma a family that is to be filled, as Linux does before it looks any further. To it
    /// a mapping that can never be written is not shared here: a fork copies what is mapped there.
    pub(crate) fn adopt_filled(&mut self, vma: &Vma) -> Result<(), Errno> {
        match vma.is_shared() {
            false if vma.is_huge() => Ok(()), // it never becomes one with a neighbour
            false => self.adopt(vma.start()),
            true if !vma.flags.ceiling().has(Flags::WRITE) && self.is_of_segment(vma) => {
                let marks = vma.tag.marks.with(Marks::GUARDED);
                self.retag(vma.range, vma.flags, Tag { marks, ..vma.tag })
            }
            true => Ok(()),
        }
    }
    /// Fills missing pages of one vma, from `start` on: `step` does some, and says how many bytes.
    /// It gets the vma as it was found: its tag may be another by then.
    /// Gives how many bytes were done, or why none was.
    fn fill(
        &mut self,
        start: u64,
        end: u64,
        is_watched: bool,
        mut step: impl FnMut(&mut Self, &Vma, u64) -> Result<u64, Errno>,
    ) -> Result<u64, Errno> {
        let vma = self.vma(start).ok_or(Errno(errno::ENOENT))?;
        self.adopt_filled(&vma)?;
        if vma.end() < end || !is_armed(&vma) {
            return Err(Errno(errno::ENOENT));
        }
        if is_watched && !vma.flags.has(Flags::USERFAULT_WRITE) || vma.is_cut_by(start, end) {
            return Err(Errno::INVAL);
        }
        self.size.note_resident(self.resident());
        let mut at = start;
        while at < end {
            match step(self, &vma, at) {
                Ok(bytes) => at += bytes,
                Err(why) if at == start => return Err(why),
                Err(_) => break,
            }
        }
        Ok(at - start)
    }

    /// `UFFDIO_WRITEPROTECT`: writes to the pages of a range are told, or not any more.
    pub fn uffdio_writeprotect(&mut self, fd: &Userfaultfd, asked: &uffdio_writeprotect) -> Answer {
        Answer::of(self.write_protect(fd, asked))
    }
    fn write_protect(
        &mut self,
        fd: &Userfaultfd,
        asked: &uffdio_writeprotect,
    ) -> Result<Option<VaRange>, Errno> {
        fd.ready()?;
        let (start, end) = self.checked(&asked.range)?;
        let (is_watch, dont_wake) =
            (asked.mode & WRITEPROTECT_MODE_WP != 0, asked.mode & WRITEPROTECT_MODE_DONTWAKE != 0);
        let known = WRITEPROTECT_MODE_WP | WRITEPROTECT_MODE_DONTWAKE;
        if asked.mode & !known != 0 || is_watch && dont_wake {
            return Err(Errno::INVAL);
        }
        let watch = match is_watch {
            true if fd.has(UFFD_FEATURE_WP_UNPOPULATED) => Watch::All,
            true => Watch::Present,
            false => Watch::Nothing,
        };
        // A page of a file may leave and come back, so what is missing is watched too; with huge
        // pages Linux does so everywhere.
        let of_file = if is_watch { Watch::All } else { Watch::Nothing };
        let none = Errno(errno::ENOENT);
        if self.vmas_in(start, end).next().is_none() {
            return Err(none);
        }
        // It is the whole range that is to consist of such pages, whatever else lies in it.
        let is_cut = |vma: &Vma| !(start | end).is_multiple_of(vma.page_bytes());
        self.each_part(start, end, |process, vma, part| {
            match vma.flags.has(Flags::USERFAULT_WRITE) {
                true if is_cut(&vma) => Err(Errno::INVAL),
                true if vma.is_of_file() || vma.is_huge() => {
                    Ok(process.mm.watch(process.space, part, of_file)?)
                }
                true => Ok(process.mm.watch(process.space, part, watch)?),
                false => Err(none),
            }
        })?;
        Ok((!is_watch && !dont_wake).then(|| range(start, end)))
    }
    /// `UFFDIO_WAKE`: threads that wait for a range go on.
    pub fn uffdio_wake(&self, fd: &Userfaultfd, asked: &uffdio_range) -> Answer {
        let checked = fd.ready().and_then(|_| self.checked(asked));
        Answer::of(checked.map(|(start, end)| Some(range(start, end))))
    }

    /// Segments are of no kind that Linux knows here, unless writes alone are noted and not told.
    fn can_be_armed(&self, vma: &Vma, armed: Flags, handler: Handler) -> bool {
        let is_noted = armed == Flags::USERFAULT_WRITE && handler.lifts_by_itself();
        !vma.tag.marks.has(Marks::DROPPABLE) && (is_noted || !self.is_of_segment(vma))
    }
    /// Whether a write to what is watched is let through, and told to nobody.
    pub(crate) fn lifts_by_itself(&self) -> bool {
        self.handler.is_some_and(Handler::lifts_by_itself)
    }
    /// Lets a write to a watched page through.
    pub(crate) fn lift(&self, addr: u64) -> Result<(), Errno> {
        let Some(vma) = self.vma(addr) else { return Ok(()) };
        let start = addr & !(vma.page_bytes() - 1);
        let page = range(start, start + vma.page_bytes());
        match self.mm.watch(self.space, page, Watch::Nothing) {
            Err(RangeError::NoMemory | RangeError::OverLimit(_)) => Err(Errno::NOMEM),
            _ => Ok(()), // it is armed no more, and the access is made again
        }
    }
    /// The range of a request, of whose modes these are known.
    pub(crate) fn asked(
        &self,
        fd: &Userfaultfd,
        asked: &uffdio_range,
        (mode, known): (u64, u64),
    ) -> Result<(u64, u64), Errno> {
        fd.ready()?;
        let ends = self.checked(asked)?;
        if mode & !known == 0 { Ok(ends) } else { Err(Errno::INVAL) }
    }
    /// A range as the program gave it: whole pages that a program can have.
    pub(crate) fn checked(&self, asked: &uffdio_range) -> Result<(u64, u64), Errno> {
        let ends = self.unaligned(asked.start, asked.len)?;
        if is_aligned(asked.start) { Ok(ends) } else { Err(Errno::INVAL) }
    }
    /// The same from any byte on.
    fn unaligned(&self, start: u64, len: u64) -> Result<(u64, u64), Errno> {
        let end = start.checked_add(len).filter(|end| *end <= Self::size());
        let is_low = start < self.mm.lowest_address().get();
        match end {
            Some(end) if is_aligned(len) && len > 0 && !is_low => Ok((start, end)),
            _ => Err(Errno::INVAL),
        }
    }
}

/// The source of a huge page: read from an address on, until there is a reason not to.
struct Read<'r, R> {
    from: u64,
    read: &'r mut R,
    page: &'r mut [u8; PAGE as usize],
    is_watched: bool,
    why: Option<Errno>,
}

impl<R: FnMut(u64, &mut [u8]) -> Result<(), Errno>> HugeContents for Read<'_, R> {
    fn piece(&mut self, at: Bytes) -> Option<&[u8; PAGE as usize]> {
        self.why = (self.read)(self.from + at.get(), self.page.as_mut_slice()).err();
        self.why.is_none().then_some(&*self.page)
    }
    fn is_watched(&self) -> bool {
        self.is_watched
    }
}

/// Whether a program answers faults of a vma.
pub(crate) fn is_armed(vma: &Vma) -> bool {
    vma.flags.and(Flags::ARMED) != Flags::NONE
}

/// Why a page was not filled.
fn filled(why: FillError) -> Errno {
    match why {
        FillError::Range(why) => why.into(),
        FillError::Unarmed(_) => Errno(errno::ENOENT),
        FillError::Present(_) => Errno::EXIST,
        FillError::Beyond(_) | FillError::NoContents(_) => Errno(errno::EFAULT),
    }
}
/// The answer where so much was filled, which the program is told beside: all, or not all.
pub(crate) fn answered(
    done: Result<u64, Errno>,
    asked: &uffdio_range,
    dont_wake: bool,
    told: &mut i64,
) -> Answer {
    *told = match done {
        Ok(bytes) => bytes as i64,
        Err(why) => why.word() as i64,
    };
    match done {
        Err(why) => Answer::of(Err(why)),
        Ok(bytes) => {
            let result = if bytes == asked.len { Ok(0) } else { Err(Errno::AGAIN) };
            let wakes = (!dont_wake).then(|| range(asked.start, asked.start + bytes));
            Answer { result, wakes }
        }
    }
}
