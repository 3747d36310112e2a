//! Memory of the program's own, which is given back at the end.
#![allow(unsafe_code)]

use super::{BASE, Done, LARGE};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::ptr::NonNull;

/// Private anonymous memory that may be written.
pub(super) struct Area {
    mapped: Range<usize>,
    /// The part that is used: it begins where a large page may.
    used: Range<usize>,
}

impl Area {
    /// Of pages as the kernel has them.
    pub(super) fn new(bytes: usize) -> Done<Area> {
        let mapped = map(bytes + LARGE, MapFlags::empty())?;
        let start = mapped.start.next_multiple_of(LARGE);
        Ok(Area { mapped, used: start..start + bytes })
    }
    /// Of huge pages of a pool.
    pub(super) fn of_pool(bytes: usize, size: MapFlags) -> Done<Area> {
        let mapped = map(bytes, MapFlags::MAP_HUGETLB | size)?;
        Ok(Area { used: mapped.clone(), mapped })
    }

    pub(super) fn range(&self) -> Range<usize> {
        self.used.clone()
    }
    /// Writes a byte of each page that begins at a step of `step`, which is no zero.
    pub(super) fn touch(&self, step: usize) {
        touch(self.range(), step);
    }
    pub(super) fn advise(&self, advice: MmapAdvise) -> Done {
        advise(self.range(), advice)
    }
    /// The first page of each large one.
    fn firsts(&self) -> impl Iterator<Item = NonNull<c_void>> {
        self.range().step_by(LARGE).map(at)
    }
    /// Takes the right to write the first page of each large one; gives how many.
    pub(super) fn protect_firsts(&self) -> Done<u64> {
        for page in self.firsts() {
            // SAFETY: the page is this area's, and nobody writes it from now on.
            unsafe { mprotect(page, BASE, ProtFlags::PROT_READ) }?;
        }
        Ok(self.firsts().count() as u64)
    }
    /// Unmaps the first page of each large one; gives how many.
    pub(super) fn unmap_firsts(&self) -> Done<u64> {
        for page in self.firsts() {
            // SAFETY: the page is this area's, and nobody uses it from now on.
            unsafe { munmap(page, BASE) }?;
        }
        Ok(self.firsts().count() as u64)
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: nobody else knows the area.
        let _ = unsafe { munmap(at(self.mapped.start), self.mapped.len()) };
    }
}

/// Writes a byte at each step of a range of an area.
pub(super) fn touch(range: Range<usize>, step: usize) {
    for address in range.step_by(step) {
        // SAFETY: an area is mapped to be written, and holds nothing.
        unsafe { at(address).cast::<u8>().write_volatile(1) };
    }
}
pub(super) fn advise(range: Range<usize>, advice: MmapAdvise) -> Done {
    // SAFETY: an area holds nothing that could be lost.
    unsafe { madvise(at(range.start), range.len(), advice) }?;
    Ok(())
}

fn at(address: usize) -> NonNull<c_void> {
    NonNull::new(address as *mut c_void).expect("nothing is mapped at 0")
}
fn map(bytes: usize, flags: MapFlags) -> Done<Range<usize>> {
    let length = NonZeroUsize::new(bytes).ok_or("an area has a length")?;
    let rights = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new area takes no other one's place.
    let start = unsafe { mmap_anonymous(None, length, rights, MapFlags::MAP_PRIVATE | flags) }
        .map_err(|why| format!("{} MiB are not mapped: {why}", bytes >> 20))?;
    let start = start.as_ptr() as usize;
    Ok(start..start + bytes)
}
