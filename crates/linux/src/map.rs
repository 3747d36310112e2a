//! `mmap`, `munmap` and what brings pages ahead.

use crate::advise::populated;
use crate::errno::Errno;
use crate::fcntl::ANY_WRITE;
use crate::file::{LENGTH_MAX, MemoryFile};
use crate::pages::{PAGE, huge, is_aligned, of_pool, page_align};
use crate::place::{HasFile, Wanted};
use crate::process::Process;
use crate::situation::Situation;
use crate::vma::{Marks, Tag, Vma, rights};
use foliant::space::{Advice, Flags, Watch};
use foliant::table::Paging;
use foliant_machine::Machine;
use foliant_units::VaRange;
use linux_raw_sys::errno;
use linux_raw_sys::general::{
    MAP_32BIT, MAP_ABOVE4G, MAP_ANONYMOUS, MAP_DENYWRITE, MAP_DROPPABLE, MAP_EXECUTABLE, MAP_FIXED,
    MAP_FIXED_NOREPLACE, MAP_GROWSDOWN, MAP_HUGE_MASK, MAP_HUGE_SHIFT, MAP_HUGETLB, MAP_LOCKED,
    MAP_NONBLOCK, MAP_NORESERVE, MAP_POPULATE, MAP_PRIVATE, MAP_SHARED, MAP_SHARED_VALIDATE,
    MAP_STACK, MAP_TYPE, MAP_UNINITIALIZED, PROT_WRITE,
};

/// The flags that `MAP_SHARED_VALIDATE` takes: those that all kernels ignore where they know none.
const VALIDATED: u32 = MAP_SHARED
    | MAP_PRIVATE
    | MAP_FIXED
    | MAP_ANONYMOUS
    | MAP_DENYWRITE
    | MAP_EXECUTABLE
    | MAP_UNINITIALIZED
    | MAP_GROWSDOWN
    | MAP_LOCKED
    | MAP_NORESERVE
    | MAP_POPULATE
    | MAP_NONBLOCK
    | MAP_STACK
    | MAP_HUGETLB
    | MAP_32BIT
    | MAP_ABOVE4G
    | MAP_HUGE_MASK << MAP_HUGE_SHIFT;

/// What a new area is.
struct New {
    flags: Flags,
    marks: Marks,
    /// Bytes of one of its pages.
    page: u64,
}

/// What a new area shows.
#[derive(Clone, Copy)]
enum Source<'f, F> {
    /// Memory of its own.
    Own,
    /// A file that is made for it.
    Zeros,
    /// A file, from a byte on.
    File(&'f F, u64),
}

impl<'a, 'm, M: Machine, P: Paging> Process<'a, 'm, M, P> {
    /// Maps memory. All arguments are as the program gave them, but for the descriptor, which the
    /// embedder looked up; `offset` is in bytes.
    pub fn mmap(
        &mut self,
        addr: u64,
        len: u64,
        prot: u32,
        flags: u32,
        file: Option<&MemoryFile<'a, 'm, M, P>>,
        offset: u64,
    ) -> Result<u64, Errno> {
        if !is_aligned(offset) {
            return Err(Errno::INVAL);
        }
        let source = match file {
            _ if flags & MAP_ANONYMOUS != 0 && flags & MAP_TYPE == MAP_SHARED => Source::Zeros,
            _ if flags & MAP_ANONYMOUS != 0 => Source::Own,
            None => return Err(Errno::BADF),
            Some(file) if flags & MAP_HUGETLB != 0 && file.page_bytes() == PAGE => {
                return Err(Errno::INVAL);
            }
            Some(file) => Source::File(file, offset),
        };
        let page = match source {
            Source::File(file, _) => file.page_bytes(),
            _ if flags & MAP_HUGETLB == 0 => PAGE,
            _ => of_pool(flags >> MAP_HUGE_SHIFT & MAP_HUGE_MASK).ok_or(Errno::INVAL)?,
        };
        let is_huge = page > PAGE;
        let bytes = len.checked_next_multiple_of(page).unwrap_or(0);
        if len == 0 || bytes == 0 && is_huge {
            return Err(Errno::INVAL);
        }
        if bytes == 0 {
            return Err(Errno::NOMEM);
        }
        let is_fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
        let addr = if is_fixed { addr } else { self.hint(addr) };
        if is_fixed && is_huge && !addr.is_multiple_of(page) {
            return Err(Errno::INVAL);
        }
        let where_to = flags | if is_fixed { MAP_FIXED } else { 0 };
        let file = if matches!(source, Source::Own) { HasFile::No } else { HasFile::Yes };
        let at = self.choose(Wanted { addr, bytes, flags: where_to, align: page, file })?;
        let taken = || self.vma_at_or_after(at).is_some_and(|vma| vma.start() < at + bytes);
        if flags & MAP_FIXED_NOREPLACE != 0 && taken() {
            return Err(Errno::EXIST);
        }
        if matches!(source, Source::File(..)) && offset > LENGTH_MAX.saturating_sub(bytes) {
            return Err(Errno(errno::EOVERFLOW));
        }
        let more = kind_of(flags, &source)?;
        let mut new = self.kind(prot, flags, page, more);
        if let Source::File(file, _) = source
            && new.flags.has(Flags::SHARED)
            && file.has_seal(ANY_WRITE)
        {
            if prot & PROT_WRITE != 0 {
                return Err(Errno::PERM);
            }
            new.flags = new.flags.at_most(Flags::RIGHTS.without(Flags::WRITE));
        }
        if let Source::File(file, _) = source
            && new.flags.has(Flags::SHARED)
        {
            new.flags = new.flags.at_most(file.rights());
        }
        self.may_lock(new.marks, bytes)?;
        if is_huge {
            new.marks = new.marks.without(Marks::LOCKED.with(Marks::ON_FAULT)); // they stay anyway
        }
        if self.switches.refuse(new.flags, new.flags) {
            return Err(Errno(errno::EACCES));
        }
        let situation = self.situation(at, at + bytes);
        self.unmapping((at, at + bytes), |process| {
            process.letting_go(&situation, |process| process.map_at(&situation, new, source))
        })?;
        let is_locked = self.future.with(marks_of(flags)).has(Marks::LOCKED);
        if is_locked || flags & (MAP_POPULATE | MAP_NONBLOCK) == MAP_POPULATE {
            self.bring_what_can(at, at + bytes);
        }
        Ok(at)
    }

    /// The address that a program would have, not below the lowest.
    fn hint(&self, addr: u64) -> u64 {
        let hint = addr & !(PAGE - 1);
        if addr != 0 && hint < self.mm.lowest_address().get() {
            return page_align(self.mm.lowest_address().get());
        }
        hint
    }

    /// What such memory is.
    fn kind(&self, prot: u32, flags: u32, page: u64, (shared, more): (Flags, Marks)) -> New {
        let (rights, unread) = rights(prot);
        let huge = huge(page);
        let honoured = huge.is_some() || self.honours_no_reserve();
        let flags = if honoured { flags } else { flags & !MAP_NORESERVE };
        let marks = self.future.with(unread).with(more).with(marks_of(flags));
        let mut kind = rights.with(shared).with(huge.unwrap_or(Flags::NONE));
        if huge.is_some() && flags & MAP_NORESERVE != 0 {
            kind = kind.with(Flags::NORESERVE);
        }
        if flags & MAP_STACK != 0 {
            kind = kind.with(Flags::NOHUGEPAGE); // stacks are small, and there are many of them
        }
        let is_own = huge.is_none() && !shared.has(Flags::SHARED);
        let is_promised = prot & PROT_WRITE != 0 && !marks.has(Marks::NO_RESERVE) && is_own;
        let promised = if is_promised { Marks::ACCOUNTED } else { Marks::NONE };
        New { flags: kind, marks: marks.with(promised), page }
    }

    /// Puts new memory in place of whatever is there.
    fn map_at(
        &mut self,
        situation: &Situation,
        new: New,
        source: Source<'_, MemoryFile<'a, 'm, M, P>>,
    ) -> Result<(), Errno> {
        let (start, end) = (situation.start(), situation.end());
        let pages = situation.range.pages().get();
        self.may_go(situation)?;
        let freed = self.pages_on(situation);
        let is_data = new.flags.has(Flags::WRITE)
            && !new.flags.has(Flags::SHARED)
            && !new.marks.has(Marks::GROWS_DOWN);
        let is_promised = new.marks.has(Marks::ACCOUNTED);
        let more = || pages - self.promised_on(situation).min(pages);
        if !self.may_grow(pages - freed, is_data) || is_promised && !self.may_promise(more()) {
            // Linux has cut what lies there by now, and leaves it so.
            self.part_at(start)?;
            self.part_at(end)?;
            return Err(Errno::NOMEM);
        }
        let mut tag = Tag { marks: new.marks, ..Tag::default() };
        let cleared;
        let situation = if new.page > PAGE {
            // Linux asks for the pool's pages when what lay there is gone.
            tag = self.apart(tag);
            self.take_out(situation)?;
            cleared = self.situation(start, end);
            &cleared
        } else {
            situation
        };
        match source {
            Source::Own => {}
            Source::File(file, offset) => tag.moved = self.views.number(file, offset, start)?,
            Source::Zeros
                if new.page == PAGE
                    && !new.marks.has(Marks::NO_RESERVE)
                    && !self.may_promise(pages) =>
            {
                // Linux makes the file when what lay there is gone.
                self.take_out(situation)?;
                return Err(Errno::NOMEM);
            }
            Source::Zeros => {
                let is_promised = !new.marks.has(Marks::NO_RESERVE);
                let file = MemoryFile::zeros(self.mm, (end - start, new.page), is_promised)?;
                tag.moved = self.views.number(&file, 0, start)?;
            }
        }
        if let Err(why) = self.put_long(situation, &new, tag, source) {
            if new.flags.has(Flags::OBJECT) {
                self.forget_views();
            }
            return Err(why);
        }
        Ok(())
    }

    /// Puts an area in. A file of huge pages becomes as long as the mapping, where that may be
    /// written.
    fn put_long(
        &mut self,
        situation: &Situation,
        new: &New,
        tag: Tag,
        source: Source<'_, MemoryFile<'a, 'm, M, P>>,
    ) -> Result<(), Errno> {
        let (file, offset) = match source {
            Source::File(file, at) if new.page > PAGE && new.flags.has(Flags::WRITE) => (file, at),
            _ => return self.put_beside(situation, new.flags, tag),
        };
        let (was, end) = (file.bytes(), offset + situation.range.bytes().get());
        if end <= was || !end.is_multiple_of(new.page) {
            return self.put_beside(situation, new.flags, tag);
        }
        file.resize(end)?;
        self.put_beside(situation, new.flags, tag).or_else(|why| {
            file.resize(was)?;
            Err(why)
        })
    }

    /// Takes out whatever lies in a range; there may be nothing.
    pub fn munmap(&mut self, addr: u64, len: u64) -> Result<u64, Errno> {
        let size = Self::size();
        if !is_aligned(addr) || addr > size || len > size - addr || len == 0 {
            return Err(Errno::INVAL);
        }
        let end = addr + page_align(len);
        self.unmapping((addr, end), |process| process.take_out_unsealed(addr, end))?;
        Ok(0)
    }

    /// Makes the pages of a range present, as if each had been written to, or read where that is
    /// not allowed. What cannot be brought is left out.
    pub(crate) fn bring_what_can(&mut self, start: u64, end: u64) {
        let done = self.each_part(start, end, |process, vma, part| {
            let _ = process.bring(&vma, part);
            Ok(())
        });
        debug_assert!(done.is_ok(), "what cannot be brought is no error");
    }
    /// The same, up to what cannot be brought.
    pub(crate) fn bring_all(&mut self, start: u64, end: u64) -> Result<(), Errno> {
        self.each_part(start, end, |process, vma, part| process.bring(&vma, part))
    }
    fn bring(&mut self, vma: &Vma, part: VaRange) -> Result<(), Errno> {
        if vma.tag.marks.has(Marks::ON_FAULT) {
            return Ok(());
        }
        let how = match vma.takes_copies() {
            _ if !vma.is_accessible() => return Err(Errno::FAULT),
            true => Advice::PopulateWrite,
            false => Advice::PopulateRead,
        };
        match self.populate(part, how) {
            Err(Errno(errno::EHWPOISON)) => Err(Errno::FAULT), // only advice names it
            done => done,
        }
    }
    /// Makes the pages of a part of a vma present.
    pub(crate) fn populate(&mut self, part: VaRange, how: Advice) -> Result<(), Errno> {
        let (start, end) = (part.start().get(), part.end().get());
        let vma = self.vma(start);
        let is_own = vma.is_some_and(|vma| !vma.is_shared());
        if how == Advice::PopulateWrite && is_own && !self.is_guarded(start) {
            self.adopt(start)?;
        }
        let is_watched = vma.is_some_and(|vma| vma.flags.has(Flags::USERFAULT_WRITE));
        if how == Advice::PopulateWrite && is_watched && self.lifts_by_itself() {
            self.mm.watch(self.space, part, Watch::Nothing)?;
        }
        let is_pool = vma.is_some_and(|vma| vma.is_huge());
        match populated(self.mm.advise(self.space, part, how)) {
            // A program gets a signal where a pool has no page left.
            Err(Errno::NOMEM) if is_pool => return Err(Errno::FAULT),
            done => done?,
        }
        if how == Advice::PopulateRead {
            self.adopt_where_zeros_are_large(start, end)?;
        }
        Ok(())
    }
}

/// What the kind of a mapping makes of it: flags and marks.
fn kind_of<F>(flags: u32, source: &Source<'_, F>) -> Result<(Flags, Marks), Errno> {
    let droppable =
        Marks::DROPPABLE.with(Marks::NO_RESERVE).with(Marks::WIPE_ON_FORK).with(Marks::DONT_DUMP);
    let is_own = matches!(source, Source::Own);
    let shared = Flags::SHARED.with(Flags::OBJECT);
    match flags & MAP_TYPE {
        MAP_SHARED_VALIDATE if flags & !VALIDATED != 0 && !is_own => Err(Errno::OPNOTSUPP),
        _ if flags & MAP_GROWSDOWN != 0 && !is_own => Err(Errno::INVAL),
        MAP_PRIVATE if is_own => Ok((Flags::NONE, Marks::NONE)),
        MAP_PRIVATE => Ok((Flags::OBJECT, Marks::NONE)),
        MAP_SHARED => Ok((shared, Marks::NONE)),
        MAP_SHARED_VALIDATE if !is_own => Ok((shared, Marks::NONE)),
        MAP_DROPPABLE if flags & (MAP_LOCKED | MAP_HUGETLB | MAP_GROWSDOWN) != 0 || !is_own => {
            Err(Errno::INVAL)
        }
        MAP_DROPPABLE => Ok((Flags::NONE, droppable)),
        _ => Err(Errno::INVAL),
    }
}

/// What flags of `mmap` mark an area with.
fn marks_of(flags: u32) -> Marks {
    let mark = |flag, mark| if flags & flag != 0 { mark } else { Marks::NONE };
    mark(MAP_GROWSDOWN, Marks::GROWS_DOWN)
        .with(mark(MAP_LOCKED, Marks::LOCKED))
        .with(mark(MAP_NORESERVE, Marks::NO_RESERVE))
}
