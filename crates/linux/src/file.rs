//! Memory with an identity: what a memfd, a file of a tmpfs, a shared anonymous mapping and a
//! segment of System V have in common.
//!
//! ```text
//!   descriptor (the embedder's) ─▶ MemoryFile ─▶ object of the manager ◀─ areas
//!   view (a process's: `view`) ──▶     │
//!                                      └─ name, length in bytes
//! ```
//!
//! **Invariants**
//! - M1. The object has its name as long as somebody holds the file: descriptors, and the views of
//!   processes that map it. The last one that lets go takes the name, and the object ends.
//! - M2. The object has room for the pages that the length touches, as far as any object has. The
//!   length of a file of huge pages is whole pages.
//!
//! **Locking.** Calls that change a file's length or seals, or write its bytes, are made one after
//! the other, as under the lock of Linux's inode. All others may run beside them.
//!
//! **Not here**: descriptors and their rights; bytes (`bytes`) and seals (`fcntl`) of files.

use crate::errno::Errno;
use crate::fcntl::{ANY_WRITE, Seals};
use crate::pages::{PAGE, POOLED, huge, of_pool, page_align};
use alloc::format;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use core::cmp::Ordering::{Equal, Greater, Less};
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use foliant::manager::{NoPage, ObjectPage};
use foliant::object::{Around, ObjectRequest};
use foliant::pool::SubpoolId;
use foliant::space::{Flags, ObjectId, RangeError};
use foliant::table::{Half, Paging};
use foliant::{Access, Manager};
use foliant_machine::Machine;
use foliant_units::{Bytes, Pages};
use linux_raw_sys::errno;
use linux_raw_sys::general::{
    F_SEAL_GROW, F_SEAL_SHRINK, FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE,
    FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_UNSHARE_RANGE, FALLOC_FL_WRITE_ZEROES,
    FALLOC_FL_ZERO_RANGE, MFD_ALLOW_SEALING, MFD_CLOEXEC, MFD_EXEC, MFD_HUGE_MASK, MFD_HUGE_SHIFT,
    MFD_HUGETLB, MFD_NOEXEC_SEAL,
};

/// Bytes of a name that a program may give.
const NAME_MAX: usize = 249;
/// The largest length of a file, and the end of its largest offset.
pub(crate) const LENGTH_MAX: u64 = i64::MAX as u64;

/// A file in memory; a clone is the same file. It ends when the last one is dropped and nobody maps
/// it any more.
pub struct MemoryFile<'a, 'm, M: Machine, P: Paging>(Arc<Held<'a, 'm, M, P>>, Opened);

/// How a file was opened: as it is, or by one attach of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Opened {
    /// Which attach, counted from 1; 0 is none.
    attach: u64,
    /// The most rights that a shared mapping of it gets.
    rights: Flags,
}

impl Opened {
    const AS_IT_IS: Opened = Opened { attach: 0, rights: Flags::RIGHTS };
}

/// A name as lists of areas show it.
fn listed(name: &[u8]) -> String {
    String::from_utf8_lossy(name).replace('\n', "\\012")
}

/// A file in memory that may have ended.
pub(crate) struct FileKept<'a, 'm, M: Machine, P: Paging>(Weak<Held<'a, 'm, M, P>>);

impl<'a, 'm, M: Machine, P: Paging> FileKept<'a, 'm, M, P> {
    /// The file, if it is there.
    pub(crate) fn file(&self) -> Option<MemoryFile<'a, 'm, M, P>> {
        Some(MemoryFile(self.0.upgrade()?, Opened::AS_IT_IS))
    }
}

/// What a segment's file knows beside (`segments`).
struct AsSegment {
    /// Its number.
    id: i32,
    /// Attaches that there were.
    attaches: AtomicU64,
    /// Vmas that map it, of all processes.
    vmas: AtomicU64,
    is_removed: AtomicBool,
}

/// What all holders of a file have.
struct Held<'a, 'm, M: Machine, P: Paging> {
    mm: &'a Manager<'m, M, P>,
    object: ObjectId,
    /// As lists of areas show it.
    name: String,
    /// Bytes of one of its pages.
    page: u64,
    bytes: AtomicU64,
    seals: Seals,
    /// Whether all of it was promised as it was made, and not each page as it comes.
    is_promised: bool,
    segment: Option<AsSegment>,
}

/// What a file begins with.
struct Begins {
    bytes: u64,
    /// Bytes of one of its pages.
    page: u64,
    /// Those of `memfd_create` that say how it is sealed.
    flags: u32,
    /// Whether all of it was promised.
    is_promised: bool,
    segment: Option<AsSegment>,
    subpool: Option<SubpoolId>,
}

impl Begins {
    const SMALL: Begins =
        Begins { bytes: 0, page: PAGE, flags: 0, is_promised: false, segment: None, subpool: None };
}

impl<M: Machine, P: Paging> Drop for Held<'_, '_, M, P> {
    fn drop(&mut self) {
        let ended = self.mm.end_object(self.object); // M1
        debug_assert!(ended.is_ok(), "its name was the file's to take: {ended:?}");
    }
}

impl<'a, 'm, M: Machine, P: Paging> MemoryFile<'a, 'm, M, P> {
    /// The file that `memfd_create` makes, of length 0. The embedder copied the name from the
    /// program and gives it a descriptor.
    pub fn memfd(mm: &'a Manager<'m, M, P>, name: &[u8], flags: u32) -> Result<Self, Errno> {
        let known = MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL | MFD_EXEC | MFD_HUGETLB;
        let is_huge = flags & MFD_HUGETLB != 0;
        let known = known | if is_huge { MFD_HUGE_MASK << MFD_HUGE_SHIFT } else { 0 };
        let both = MFD_NOEXEC_SEAL | MFD_EXEC;
        if flags & !known != 0 || flags & both == both || name.len() > NAME_MAX {
            return Err(Errno::INVAL);
        }
        let page = match is_huge {
            true => of_pool(flags >> MFD_HUGE_SHIFT & MFD_HUGE_MASK).ok_or(Errno(errno::ENODEV))?,
            false => PAGE,
        };
        let name = format!("/memfd:{} (deleted)", listed(name));
        Self::named(mm, name, Begins { page, flags, ..Begins::SMALL })
    }
    /// A file of a file system in memory, of length 0. Lists of areas show where it is.
    pub fn at_path(mm: &'a Manager<'m, M, P>, path: &[u8]) -> Result<Self, Errno> {
        Self::named(mm, listed(path), Begins::SMALL)
    }
    /// The same of a file system of huge pages, whose size is one that there is a pool of, and
    /// which has a subpool or all of it.
    pub fn huge_at_path(
        mm: &'a Manager<'m, M, P>,
        path: &[u8],
        (page, subpool): (Bytes, Option<SubpoolId>),
    ) -> Result<Self, Errno> {
        huge(page.get()).ok_or(Errno::INVAL)?;
        Self::named(mm, listed(path), Begins { page: page.get(), subpool, ..Begins::SMALL })
    }
    /// The file behind a shared anonymous mapping, of pages of this size, and whether it was
    /// promised.
    pub fn zeros(
        mm: &'a Manager<'m, M, P>,
        (bytes, page): (u64, u64),
        is_promised: bool,
    ) -> Result<Self, Errno> {
        let name = if page > PAGE { POOLED } else { "/dev/zero (deleted)" };
        Self::named(mm, name.into(), Begins { bytes, page, is_promised, ..Begins::SMALL })
    }
    /// The file of a segment, of pages of this size, and whether it was promised.
    pub(crate) fn segment(
        mm: &'a Manager<'m, M, P>,
        (key, id): (i32, i32),
        (bytes, page): (u64, u64),
        is_promised: bool,
    ) -> Result<Self, Errno> {
        let (attaches, vmas) = (AtomicU64::new(0), AtomicU64::new(0));
        let is_removed = AtomicBool::new(false);
        let segment = Some(AsSegment { id, attaches, vmas, is_removed });
        let begins = Begins { bytes, page, is_promised, segment, ..Begins::SMALL };
        Self::named(mm, format!("/SYSV{key:08x} (deleted)"), begins)
    }
    /// Reserves its huge pages, all of them or none.
    pub(crate) fn reserve(&self) -> Result<(), Errno> {
        let all = room::<P>(self.bytes());
        Ok(self.0.mm.reserve_object(self.object(), Pages::new(0), all)?)
    }
    fn named(mm: &'a Manager<'m, M, P>, name: String, begins: Begins) -> Result<Self, Errno> {
        let Begins { bytes, page, flags, is_promised, segment, subpool } = begins;
        // A read of a segment's page brings it alone.
        let around = if segment.is_some() { Around::Nothing } else { Around::Present };
        let (pages, size) = (room::<P>(bytes), huge(page).unwrap_or(Flags::NONE));
        let request = ObjectRequest { pages, flags: size, around, subpool, limit: None };
        let object = mm.create_object(&request)?;
        let (bytes, seals) = (AtomicU64::new(bytes), Seals::of(flags));
        let held = Held { mm, object, name, page, bytes, seals, is_promised, segment };
        Ok(MemoryFile(Arc::new(held), Opened::AS_IT_IS))
    }
    /// The same file, opened by another attach that gives its mappings no more than these rights.
    pub(crate) fn attached_with(&self, rights: Flags) -> Self {
        let before = |segment: &AsSegment| segment.attaches.fetch_add(1, Ordering::Relaxed);
        let attach = self.0.segment.as_ref().map_or(0, |segment| before(segment) + 1);
        MemoryFile(self.0.clone(), Opened { attach, rights })
    }
    /// The same file, opened to be read alone: no shared mapping of it can ever be written.
    pub fn only_read(&self) -> Self {
        let rights = self.1.rights.and(Flags::RIGHTS.without(Flags::WRITE));
        MemoryFile(self.0.clone(), Opened { rights, ..self.1 })
    }
    pub(crate) fn weak(&self) -> FileKept<'a, 'm, M, P> {
        FileKept(Arc::downgrade(&self.0))
    }
    /// Which attach of a segment opened it; 0 is none.
    pub(crate) fn attach(&self) -> u64 {
        self.1.attach
    }
    /// The most rights that a shared mapping of it gets.
    pub(crate) fn rights(&self) -> Flags {
        self.1.rights
    }
    /// Whether it is a segment's.
    pub(crate) fn is_segment(&self) -> bool {
        self.0.segment.is_some()
    }
    /// Of a segment's: its number.
    pub(crate) fn segment_id(&self) -> Option<i32> {
        self.0.segment.as_ref().map(|segment| segment.id)
    }
    /// Of a segment's: how many vmas map it.
    pub(crate) fn vmas(&self) -> u64 {
        self.0.segment.as_ref().map_or(0, |segment| segment.vmas.load(Ordering::Relaxed))
    }
    /// Of a segment's: it goes with its last vma from now on.
    pub(crate) fn note_removed(&self) {
        if let Some(segment) = &self.0.segment {
            segment.is_removed.store(true, Ordering::Relaxed);
        }
    }
    /// Whether it is the file of a segment that was removed.
    pub(crate) fn is_removed(&self) -> bool {
        self.0.segment.as_ref().is_some_and(|segment| segment.is_removed.load(Ordering::Relaxed))
    }
    /// Of a segment's: so many vmas came, where so many were.
    pub(crate) fn note_vmas(&self, came: u64, were: u64) {
        if let Some(segment) = &self.0.segment {
            segment.vmas.fetch_add(came.wrapping_sub(were), Ordering::Relaxed);
        }
    }

    pub(crate) fn manager(&self) -> &'a Manager<'m, M, P> {
        self.0.mm
    }
    /// The object that it is.
    pub fn object(&self) -> ObjectId {
        self.0.object
    }
    /// Its length in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }
    /// Bytes of one of its pages: more than 4096 where they are huge pages of a pool.
    pub fn page_bytes(&self) -> u64 {
        self.0.page
    }
    /// How many pages it has that are no huge pages of a pool.
    pub(crate) fn small_pages(&self) -> u64 {
        let pages = self.0.mm.object_pages(self.0.object).filter(|_| self.0.page == PAGE);
        pages.map_or(0, |pages| pages.get())
    }
    /// Pages of memory that was promised for it: all that it may have, or those that it has.
    pub(crate) fn promised(&self) -> u64 {
        match self.0.is_promised {
            true => self.bytes().div_ceil(PAGE),
            false => self.small_pages(),
        }
    }
    /// How many pages it has in a range of bytes, up to its end where that has none: `cachestat`.
    pub fn cachestat(&self, offset: u64, bytes: u64) -> Result<u64, Errno> {
        if self.0.page > PAGE {
            return Err(Errno(errno::EOPNOTSUPP));
        }
        let last = match bytes {
            0 => u64::MAX - PAGE,
            bytes => offset.wrapping_add(bytes - 1),
        };
        let (from, to) = (Pages::new(offset / PAGE), Pages::new(last / PAGE + 1));
        let has = self.0.mm.object_pages_in(self.0.object, from, to);
        Ok(has.map_or(0, Pages::get))
    }
    /// Its name in lists of areas.
    pub fn name(&self) -> &str {
        &self.0.name
    }
    /// The number of its inode, which no other file has that is there; of a segment its number.
    pub fn inode(&self) -> u64 {
        let object = || self.object().frame().get();
        self.0.segment.as_ref().map_or_else(object, |segment| segment.id as u64)
    }

    /// Its seals: `fcntl` with `F_GET_SEALS`.
    pub fn seals(&self) -> u32 {
        self.0.seals.now()
    }
    /// Whether it has one of these seals.
    pub(crate) fn has_seal(&self, any: u32) -> bool {
        self.0.seals.has(any)
    }
    /// Adds seals: `fcntl` with `F_ADD_SEALS`. `EBUSY` says that a mapping may be written.
    pub fn add_seals(&self, seals: u32) -> Result<u64, Errno> {
        let is_written = || self.0.mm.is_shared_writable(self.object()) == Some(true);
        self.0.seals.add(seals, is_written)?;
        Ok(0)
    }

    /// Makes it so many bytes long. What lies beyond is gone, with private copies of pages beyond.
    pub fn ftruncate(&self, bytes: i64) -> Result<u64, Errno> {
        let bytes = u64::try_from(bytes).map_err(|_| Errno::INVAL)?;
        if !bytes.is_multiple_of(self.cut()) {
            return Err(Errno::INVAL);
        }
        let kept = match bytes.cmp(&self.bytes()) {
            Less => F_SEAL_SHRINK,
            Equal => 0,
            Greater => F_SEAL_GROW,
        };
        if self.has_seal(kept) {
            return Err(Errno::PERM);
        }
        self.resize(bytes)?;
        // Where it becomes longer, what programs wrote behind the end in its page shows, as in
        // Linux.
        if kept != F_SEAL_GROW {
            self.clear_ends(bytes, page_align(bytes));
        }
        Ok(0)
    }
    /// What its length is a multiple of (M2).
    fn cut(&self) -> u64 {
        if self.0.page > PAGE { self.0.page } else { 1 }
    }
    pub(crate) fn resize(&self, bytes: u64) -> Result<(), RangeError> {
        self.make_room(bytes)?;
        self.set_bytes(bytes);
        Ok(())
    }
    /// Gives the object room for so many bytes, as far as any has (M2).
    pub(crate) fn make_room(&self, bytes: u64) -> Result<(), RangeError> {
        self.0.mm.resize_object(self.object(), room::<P>(bytes))
    }
    /// Sets the length, for which there is room.
    pub(crate) fn set_bytes(&self, bytes: u64) {
        self.0.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Has a file have the pages of a range, which makes it longer, or drops what lies there.
    pub fn fallocate(&self, mode: u32, offset: i64, bytes: i64) -> Result<u64, Errno> {
        let number = |value: i64| u64::try_from(value).map_err(|_| Errno::INVAL);
        let (offset, bytes) = (number(offset)?, number(bytes)?);
        if bytes == 0 {
            return Err(Errno::INVAL);
        }
        let end = offset + bytes; // two of 63 bits
        if is_mode(mode) && end > LENGTH_MAX {
            return Err(Errno(errno::EFBIG));
        }
        const PUNCH: u32 = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
        match mode {
            PUNCH => self.punch(offset, end)?,
            0 | FALLOC_FL_KEEP_SIZE if end > self.bytes() && self.has_seal(F_SEAL_GROW) => {
                return Err(Errno::PERM);
            }
            0 | FALLOC_FL_KEEP_SIZE => self.bring(offset, end, mode)?,
            _ => return Err(Errno::OPNOTSUPP),
        }
        Ok(0)
    }
    /// Brings the pages that a range touches. Beyond the length none stays unless the file becomes
    /// longer by it (M2).
    fn bring(&self, start: u64, end: u64, mode: u32) -> Result<(), Errno> {
        let (page, length) = (self.0.page, self.bytes());
        let end = end.checked_next_multiple_of(self.cut()).filter(|end| *end <= LENGTH_MAX);
        let end = end.ok_or(Errno(errno::EFBIG))?;
        let end = if mode == 0 { end } else { end.min(length) };
        self.make_room(end.max(length))?;
        let from = Pages::new(start / page * (page / PAGE));
        match self.0.mm.promise_object(self.object(), from, Pages::new(end.div_ceil(PAGE))) {
            Ok(()) => self.set_bytes(end.max(length)),
            Err(why) => {
                self.make_room(length)?;
                let none = matches!(why, RangeError::NoMemory);
                return Err(if none { Errno(errno::ENOSPC) } else { why.into() });
            }
        }
        Ok(())
    }
    /// Makes zeros of a range of bytes: the pages that lie in it as a whole are dropped.
    pub(crate) fn punch(&self, start: u64, end: u64) -> Result<(), Errno> {
        if self.has_seal(ANY_WRITE) {
            return Err(Errno::PERM);
        }
        let most = room::<P>(LENGTH_MAX);
        let page = self.0.page;
        let each = page / PAGE;
        let (from, to) = (start.div_ceil(page) * each, end / page * each);
        let (from, to) = (Pages::new(from), Pages::new(to));
        if from < to.min(most) {
            self.0.mm.punch_object(self.object(), from, to.min(most))?;
        }
        self.clear_ends(start, end);
        Ok(())
    }

    /// The page with this number, to be read or written; no page stands for zeros.
    pub(crate) fn page(
        &self,
        page: u64,
        access: Access,
    ) -> Result<Option<ObjectPage<'a, 'm, M, P>>, NoPage> {
        self.0.mm.object_page(self.object(), Pages::new(page), access)
    }
    /// Whether it shows the page with this number: it has it, and somebody has touched it.
    pub(crate) fn shows(&self, page: u64) -> bool {
        let page = self.page(page, Access::Read);
        page.is_ok_and(|page| page.is_some_and(|page| !page.is_promised()))
    }
    /// Whether it has the page with this number.
    pub(crate) fn has(&self, page: u64) -> bool {
        self.page(page, Access::Read).is_ok_and(|page| page.is_some())
    }
}

/// Whether some file of Linux's knows this mode of `fallocate`. Files in memory do three of them.
fn is_mode(mode: u32) -> bool {
    let keeps = mode & FALLOC_FL_KEEP_SIZE != 0;
    match mode & !FALLOC_FL_KEEP_SIZE {
        0 | FALLOC_FL_UNSHARE_RANGE | FALLOC_FL_ZERO_RANGE => true,
        FALLOC_FL_PUNCH_HOLE => keeps,
        FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE | FALLOC_FL_WRITE_ZEROES => !keeps,
        _ => false,
    }
}

/// How many pages an object of so many bytes has room for (M2).
fn room<P: Paging>(bytes: u64) -> Pages {
    let most = P::half(Half::User).1.get() / PAGE;
    Pages::new(bytes.div_ceil(PAGE).min(most))
}

impl<M: Machine, P: Paging> Clone for MemoryFile<'_, '_, M, P> {
    fn clone(&self) -> Self {
        MemoryFile(self.0.clone(), self.1)
    }
}
impl<M: Machine, P: Paging> PartialEq for MemoryFile<'_, '_, M, P> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) && self.1 == other.1
    }
}
impl<M: Machine, P: Paging> fmt::Debug for MemoryFile<'_, '_, M, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryFile({}, {} bytes)", self.name(), self.bytes())
    }
}
