//! Segments of System V: files in memory that have a key and a number in the place of a name.
//!
//! ```text
//!   key ──shmget──▶ number ──shmat──▶ vmas of processes (`shm`)
//!                     │ shmctl IPC_RMID: the key goes, and the number with the last vma
//!   Segments ── index ─▶ segment: key, mode, file
//! ```
//!
//! A number is an index and how often the indices began anew: `sequence << 15 | index`. Indices are
//! given in turn among the first 64, or more where two thirds of so many are not enough.
//!
//! **Invariants**
//! - G1. A segment is there until it is removed; one that was removed is there as long as a process
//!   maps it. So the table keeps the file of the first and knows that of the second, whose last
//!   view lets it go (file::M1).
//! - G2. A segment's file counts the vmas that map it, of all processes (view::V2).
//!
//! **Locking.** A call that takes `&mut` of the table is made alone, as under the lock of Linux's
//! namespace. Processes may let go of segments beside it.
//!
//! **Not here**: how a process maps one (`shm`). Owners and who may do what, times, numbers of
//! processes, and the limit on what may be locked are the embedder's, and so is the text of
//! `/proc/sysvipc/shm`, which consists of them.

use crate::errno::Errno;
use crate::file::{FileKept, LENGTH_MAX, MemoryFile};
use crate::pages::{PAGE, of_pool};
use crate::sysv::{
    IPC_CREAT, IPC_EXCL, IPC_PRIVATE, IPC_RMID, SHM_DEST, SHM_HUGE_MASK, SHM_HUGE_SHIFT,
    SHM_HUGETLB, SHM_LOCK, SHM_LOCKED, SHM_NORESERVE, SHM_UNLOCK,
};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use foliant::Manager;
use foliant::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Bytes, Pages};
use linux_raw_sys::errno;

/// Bits of a number that are the index.
const INDEX_BITS: u32 = 15;
/// The largest number of a round.
const SEQUENCE_MAX: u32 = i32::MAX as u32 >> INDEX_BITS;
/// Indices that are given in turn, at least.
const CYCLE: u32 = 64;
/// The bits of a mode that say who may do what.
const RIGHTS: u32 = 0o777;

/// What segments may take: the files `shmmax`, `shmall` and `shmmni` of `/proc/sys/kernel`; and
/// `shm_next_id`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentLimits {
    /// Bytes of one segment.
    pub bytes: Bytes,
    /// Pages of all together.
    pub pages: Pages,
    /// How many there may be, at most 32768.
    pub count: u32,
    /// The number that the next one is to have, if its index is free, or one with a higher index;
    /// -1 for none.
    pub next: i32,
}

impl SegmentLimits {
    /// What Linux has when it begins.
    pub const DEFAULT: SegmentLimits = SegmentLimits {
        bytes: Bytes::new(u64::MAX - (1 << 24)),
        pages: Pages::new(u64::MAX - (1 << 24)),
        count: 4096,
        next: -1,
    };
    /// What a file of `/proc/sys/kernel` with this name shows.
    pub fn read(&self, name: &str) -> Result<String, Errno> {
        let number = match name {
            "shm_next_id" => return Ok(format!("{}\n", self.next)),
            "shmmax" => self.bytes.get(),
            "shmall" => self.pages.get(),
            "shmmni" => self.count.into(),
            _ => return Err(Errno(errno::ENOENT)),
        };
        Ok(format!("{number}\n"))
    }
    /// Writes one of these files. Segments that are there stay.
    pub fn write(&mut self, name: &str, text: &str) -> Result<(), Errno> {
        if name == "shm_next_id" {
            let next = text.trim().parse().ok().filter(|next| *next >= 0);
            self.next = next.ok_or(Errno::INVAL)?;
            return Ok(());
        }
        let number: u64 = text.trim().parse().map_err(|_| Errno::INVAL)?;
        match name {
            "shmmax" => self.bytes = Bytes::new(number),
            "shmall" => self.pages = Pages::new(number),
            "shmmni" if number > 1 << INDEX_BITS => return Err(Errno::INVAL),
            "shmmni" => self.count = number as u32,
            _ => return Err(Errno(errno::ENOENT)),
        }
        Ok(())
    }
}

/// What `IPC_STAT` tells of a segment, as far as it is about memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentStat {
    /// Its key; [`IPC_PRIVATE`] once it was removed.
    pub key: i32,
    /// Who may do what, [`SHM_DEST`] and [`SHM_LOCKED`].
    pub mode: u32,
    /// Its length as it was asked for, in bytes.
    pub bytes: u64,
    /// How many vmas map it: `shm_nattch`.
    pub attached: u64,
}

/// A segment.
struct Segment<'a, 'm, M: Machine, P: Paging> {
    key: i32,
    sequence: u32,
    mode: u32,
    bytes: u64,
    file: Kept<'a, 'm, M, P>,
}

/// How the table has a segment's file (G1).
enum Kept<'a, 'm, M: Machine, P: Paging> {
    Here(MemoryFile<'a, 'm, M, P>),
    Elsewhere(FileKept<'a, 'm, M, P>),
}

impl<'a, 'm, M: Machine, P: Paging> Segment<'a, 'm, M, P> {
    /// Its file, if it is there.
    fn file(&self) -> Option<MemoryFile<'a, 'm, M, P>> {
        match &self.file {
            Kept::Here(file) => Some(file.clone()),
            Kept::Elsewhere(file) => file.file(),
        }
    }
    fn pages(&self) -> u64 {
        self.bytes.div_ceil(PAGE)
    }
}

/// The segments of a namespace: a kernel has one for each.
pub struct Segments<'a, 'm, M: Machine, P: Paging> {
    /// What they may take.
    pub limits: SegmentLimits,
    by_index: BTreeMap<u32, Segment<'a, 'm, M, P>>,
    /// Where the search for a free index begins.
    next: u32,
    /// The index that was given last.
    last: Option<u32>,
    /// The round of the indices.
    sequence: u32,
}

impl<M: Machine, P: Paging> Default for Segments<'_, '_, M, P> {
    fn default() -> Self {
        Segments {
            limits: SegmentLimits::DEFAULT,
            by_index: BTreeMap::new(),
            next: 0,
            last: None,
            sequence: 0,
        }
    }
}

impl<M: Machine, P: Paging> core::fmt::Debug for Segments<'_, '_, M, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Segments({} of {})", self.by_index.len(), self.limits.count)
    }
}

impl<'a, 'm, M: Machine, P: Paging> Segments<'a, 'm, M, P> {
    /// Forgets those that were removed and that nobody maps any more.
    fn settle(&mut self) {
        self.by_index.retain(|_, segment| segment.file().is_some());
    }
    /// The segment with this number.
    fn segment(&mut self, id: i32) -> Result<&mut Segment<'a, 'm, M, P>, Errno> {
        let id = u32::try_from(id).map_err(|_| Errno::INVAL)?;
        self.settle();
        let found = self.by_index.get_mut(&(id & ((1 << INDEX_BITS) - 1)));
        found.filter(|segment| segment.sequence == id >> INDEX_BITS).ok_or(Errno::INVAL)
    }
    /// The file of the segment with this number.
    pub(crate) fn file(&mut self, id: i32) -> Result<MemoryFile<'a, 'm, M, P>, Errno> {
        self.segment(id)?.file().ok_or(Errno::INVAL)
    }

    /// The number of the segment with a key, which is made where that is asked for: `shmget`. A new
    /// one is promised memory, unless `may_promise` says that there is not so much; huge pages are
    /// reserved.
    pub(crate) fn get(
        &mut self,
        mm: &'a Manager<'m, M, P>,
        (key, bytes, flags): (i32, u64, u32),
        may_promise: impl FnOnce(u64) -> bool,
    ) -> Result<i32, Errno> {
        self.settle();
        let found = self.by_index.iter().find(|(_, s)| s.key == key && key != IPC_PRIVATE);
        let both = IPC_CREAT | IPC_EXCL;
        match found {
            Some(_) if flags & both == both => Err(Errno::EXIST),
            Some((_, segment)) if segment.bytes < bytes => Err(Errno::INVAL),
            Some((index, segment)) => Ok(number(*index, segment.sequence)),
            None if key != IPC_PRIVATE && flags & IPC_CREAT == 0 => Err(Errno(errno::ENOENT)),
            None => self.make(mm, (key, bytes, flags), may_promise),
        }
    }
    /// Whether `shmget` with these would make a segment, if nothing is wrong with the rest.
    pub fn makes(&mut self, key: i32, flags: u32) -> bool {
        self.settle();
        let is_there = || self.by_index.values().any(|segment| segment.key == key);
        key == IPC_PRIVATE || flags & IPC_CREAT != 0 && !is_there()
    }
    fn make(
        &mut self,
        mm: &'a Manager<'m, M, P>,
        (key, bytes, flags): (i32, u64, u32),
        may_promise: impl FnOnce(u64) -> bool,
    ) -> Result<i32, Errno> {
        let (pages, nospc) = (bytes.div_ceil(PAGE), Errno(errno::ENOSPC));
        if bytes == 0 || bytes > self.limits.bytes.get() {
            return Err(Errno::INVAL);
        }
        let pages_of = self.by_index.values().map(Segment::pages);
        let taken = pages_of.fold(0, u64::saturating_add);
        if taken.saturating_add(pages) > self.limits.pages.get() {
            return Err(nospc);
        }
        let page = match flags & SHM_HUGETLB {
            0 => PAGE,
            _ => of_pool(flags >> SHM_HUGE_SHIFT & SHM_HUGE_MASK).ok_or(Errno::INVAL)?,
        };
        let (is_huge, is_promised) = (page > PAGE, flags & SHM_NORESERVE == 0);
        // Linux finds too few huge pages for a length that it could not have.
        let length = if is_huge { bytes.checked_next_multiple_of(page) } else { Some(bytes) };
        let length = match length.filter(|length| *length <= LENGTH_MAX) {
            Some(length) => length,
            None => return Err(if is_huge { Errno::NOMEM } else { Errno::INVAL }),
        };
        if !is_huge && is_promised && !may_promise(pages) {
            return Err(Errno::NOMEM);
        }
        let (index, sequence) = self.free().ok_or(nospc)?;
        let id = number(index, sequence);
        let file = MemoryFile::segment(mm, (key, id), (length, page), is_promised)?;
        if is_huge && is_promised {
            file.reserve()?;
        }
        let file = Kept::Here(file);
        let mode = flags & RIGHTS;
        self.by_index.insert(index, Segment { key, sequence, mode, bytes, file });
        if core::mem::replace(&mut self.limits.next, -1) < 0 {
            (self.next, self.last, self.sequence) = (index + 1, Some(index), sequence);
        }
        Ok(id)
    }
    /// The files of those that are there.
    pub fn files(&self) -> impl Iterator<Item = MemoryFile<'a, 'm, M, P>> {
        self.by_index.values().filter_map(Segment::file)
    }
    /// The index that the next segment gets, and its round.
    fn free(&self) -> Option<(u32, u32)> {
        let used = self.by_index.len() as u32;
        let most = 1 << INDEX_BITS;
        if used >= self.limits.count.min(most) {
            return None;
        }
        let end = (used + used / 2).max(CYCLE).min(most);
        let is_free = |index: &u32| !self.by_index.contains_key(index);
        if let Ok(wished) = u32::try_from(self.limits.next) {
            let index = (wished & (most - 1)..most).find(is_free)?;
            return Some((index, wished >> INDEX_BITS));
        }
        let index = (self.next..end).find(is_free).or_else(|| (0..end).find(is_free))?;
        let sequence = match self.last {
            Some(last) if index <= last && self.sequence == SEQUENCE_MAX - 1 => 0,
            Some(last) if index <= last => self.sequence + 1,
            _ => self.sequence,
        };
        Some((index, sequence))
    }

    /// Does what `shmctl` does to a segment: [`IPC_RMID`], [`SHM_LOCK`], [`SHM_UNLOCK`]. Pages stay
    /// in memory in any case.
    pub fn shmctl(&mut self, id: i32, command: u32) -> Result<u64, Errno> {
        let segment = self.segment(id)?;
        match command {
            SHM_LOCK => segment.mode |= SHM_LOCKED,
            SHM_UNLOCK => segment.mode &= !SHM_LOCKED,
            IPC_RMID => {
                (segment.key, segment.mode) = (IPC_PRIVATE, segment.mode | SHM_DEST);
                if let Kept::Here(file) = &segment.file {
                    file.note_removed();
                    segment.file = Kept::Elsewhere(file.weak());
                }
                self.settle();
            }
            _ => return Err(Errno::INVAL),
        }
        Ok(0)
    }
    /// What `IPC_STAT` tells.
    pub fn stat(&mut self, id: i32) -> Result<SegmentStat, Errno> {
        let segment = self.segment(id)?;
        let attached = segment.file().map_or(0, |file| file.vmas());
        let Segment { key, mode, bytes, .. } = *segment;
        Ok(SegmentStat { key, mode, bytes, attached })
    }
    /// What a segment has in memory: its part of `shm_rss`, in bytes.
    pub fn resident(&mut self, id: i32) -> Result<Bytes, Errno> {
        let file = self.file(id)?;
        let pages = file.manager().object_pages(file.object());
        Ok(pages.map_or(Bytes::new(0), Pages::bytes))
    }
    /// Sets who may do what: `IPC_SET`.
    pub fn set_mode(&mut self, id: i32, mode: u32) -> Result<u64, Errno> {
        let segment = self.segment(id)?;
        segment.mode = segment.mode & !RIGHTS | mode & RIGHTS;
        Ok(0)
    }
    /// The numbers of all that are there.
    pub fn ids(&mut self) -> impl Iterator<Item = i32> {
        self.settle();
        self.by_index.iter().map(|(index, segment)| number(*index, segment.sequence))
    }
}

fn number(index: u32, sequence: u32) -> i32 {
    (sequence << INDEX_BITS | index) as i32
}
