//! `shmget`, `shmat`, `shmdt`: how a process maps segments of System V.
//!
//! ```text
//!   shmat: a vma with an open file of its own      ──▶ neighbours of two shmat are two
//!   shmdt: the vmas that show the segment from the address on, as far as the first one's file
//! ```
//!
//! Linux calls the segment for each vma that comes and goes, so no such vma goes because it became
//! like its neighbour: one that as a whole could be joined with one stays (`join`).
//!
//! **Not here**: which segments there are (`segments`).

use crate::errno::Errno;
use crate::pages::{PAGE, is_aligned, page_align};
use crate::process::Process;
use crate::segments::Segments;
use crate::sysv::{SHM_EXEC, SHM_NORESERVE, SHM_RDONLY, SHM_REMAP, SHM_RND};
use crate::vma::{Moved, Vma};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use foliant::space::Flags;
use foliant::table::Paging;
use foliant_machine::Machine;
use linux_raw_sys::general::{MAP_FIXED, MAP_SHARED, PROT_EXEC, PROT_READ, PROT_WRITE};

impl<'a, 'm, M: Machine, P: Paging> Process<'a, 'm, M, P> {
    /// The number of a segment, which may be made.
    pub fn shmget(
        &mut self,
        segments: &mut Segments<'a, 'm, M, P>,
        key: i32,
        bytes: u64,
        flags: u32,
    ) -> Result<u64, Errno> {
        let without = if self.honours_no_reserve() { 0 } else { SHM_NORESERVE };
        let asked = (key, bytes, flags & !without);
        let id = segments.get(self.mm, asked, |pages| self.may_promise(pages))?;
        Ok(id as u64)
    }

    /// Whether `shmat` with these may be asked for, before who may do what with the segment is.
    pub fn may_attach(&self, id: i32, addr: u64, flags: u32) -> Result<(), Errno> {
        let at = if flags & SHM_RND != 0 { addr & !(PAGE - 1) } else { addr };
        if id < 0 || !is_aligned(at) || at == 0 && flags & SHM_REMAP != 0 {
            return Err(Errno::INVAL);
        }
        Ok(())
    }

    /// Maps a segment as a whole.
    pub fn shmat(
        &mut self,
        segments: &mut Segments<'a, 'm, M, P>,
        id: i32,
        addr: u64,
        flags: u32,
    ) -> Result<u64, Errno> {
        self.may_attach(id, addr, flags)?;
        let replaces = flags & SHM_REMAP != 0;
        let at = if flags & SHM_RND != 0 { addr & !(PAGE - 1) } else { addr };
        let (write, rights) = match flags & SHM_RDONLY {
            0 => (PROT_WRITE, Flags::RIGHTS),
            _ => (0, Flags::RIGHTS.without(Flags::WRITE)),
        };
        let exec = if flags & SHM_EXEC != 0 { PROT_EXEC } else { 0 };
        let file = segments.file(id)?.attached_with(rights);
        let bytes = file.bytes();
        if at != 0 && !replaces {
            let end = at.checked_add(bytes).ok_or(Errno::INVAL)?;
            if self.vma_at_or_after(at).is_some_and(|vma| vma.start() < end) {
                return Err(Errno::INVAL);
            }
        }
        let how = MAP_SHARED | if addr != 0 { MAP_FIXED } else { 0 };
        let prot = PROT_READ | write | exec;
        self.untold(|process| process.mmap(at, bytes, prot, how, Some(&file), 0))
    }

    /// Takes out what is left of a segment where it was mapped at an address.
    pub fn shmdt(&mut self, addr: u64) -> Result<u64, Errno> {
        if !is_aligned(addr) {
            return Err(Errno::INVAL);
        }
        let is_here = |vma: &Vma| {
            let view = self.view(vma)?;
            (view.file.is_segment() && view.offset(addr) == 0).then(|| view.file.clone())
        };
        let mut vmas = self.vmas_in(addr, u64::MAX).filter(|vma| vma.start() >= addr);
        let found = vmas.find_map(|vma| is_here(&vma).map(|file| (vma, file)));
        let (first, file) = found.ok_or(Errno::INVAL)?;
        let end = addr.saturating_add(page_align(file.bytes()));
        let rest = vmas.take_while(|vma| vma.end() <= end);
        let all: Vec<Vma> = [first]
            .into_iter()
            .chain(rest.filter(|v| is_here(v).as_ref() == Some(&file)))
            .collect();
        for vma in all.iter().filter(|vma| !vma.is_sealed()) {
            self.take_out(&self.situation(vma.start(), vma.end()))?;
        }
        Ok(0)
    }

    /// The number of the segment that is mapped from an address on: what `shmdt` there is about.
    pub fn segment_at(&self, addr: u64) -> Option<i32> {
        let vma = self.vma(addr).filter(|vma| vma.start() == addr)?;
        self.view(&vma)?.file.segment_id()
    }
    /// Whether a vma maps a segment.
    pub(crate) fn is_of_segment(&self, vma: &Vma) -> bool {
        self.view(vma).is_some_and(|view| view.file.is_segment())
    }
    /// Counts the vmas of segments (view::V2).
    pub(crate) fn recount(&mut self) {
        if !self.views.have_segments() {
            return;
        }
        let mut vmas: BTreeMap<Moved, u64> = BTreeMap::new();
        for vma in self.vmas().filter(Vma::is_of_file) {
            *vmas.entry(vma.tag.moved).or_default() += 1;
        }
        self.views.note_vmas(&vmas);
    }
}
