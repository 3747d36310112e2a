//! Views: which file a process maps, and how far its offsets are from the addresses.
//!
//! ```text
//!   area ── tag: a number ─▶ view: file, offset less address
//! ```
//!
//! Neighbouring areas with the same view are of one file and their offsets follow each other, which
//! is what makes one vma of them (`join`).
//!
//! **Invariants**
//! - V1. A view is there as long as an area has its number, and keeps its file (file::M1).
//! - V2. A view of a segment knows how many vmas of its process have it, and the file the sum of
//!   all views: after each change of areas of a process with such views they are counted (`shm`).
//!
//! **Not here**: which areas have which view, which stands in the manager (`shown`).

use crate::errno::Errno;
use crate::file::MemoryFile;
use crate::pages::PAGE;
use crate::vma::{Moved, Tag};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use foliant::space::ObjectId;
use foliant::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Frame, Pages};

/// A file as a process has it at some addresses.
pub(crate) struct View<'a, 'm, M: Machine, P: Paging> {
    pub(crate) file: MemoryFile<'a, 'm, M, P>,
    /// An offset in the file less its address, modulo 2^64.
    distance: u64,
    /// Vmas that have it, where it is of a segment (V2).
    vmas: u64,
}

impl<M: Machine, P: Paging> Drop for View<'_, '_, M, P> {
    fn drop(&mut self) {
        self.file.note_vmas(0, self.vmas);
    }
}

impl<M: Machine, P: Paging> View<'_, '_, M, P> {
    /// The offset in the file of an address, in bytes.
    pub(crate) fn offset(&self, addr: u64) -> u64 {
        addr.wrapping_add(self.distance)
    }
    /// The page of an object at an address.
    pub(crate) fn page(&self, addr: u64) -> (ObjectId, Pages) {
        (self.file.object(), Pages::new(self.offset(addr) / PAGE))
    }
}

impl<M: Machine, P: Paging> Clone for View<'_, '_, M, P> {
    fn clone(&self) -> Self {
        View { file: self.file.clone(), distance: self.distance, vmas: 0 }
    }
}

/// The views of a process, by number; the first has number 1.
pub(crate) struct Views<'a, 'm, M: Machine, P: Paging> {
    known: Vec<Option<View<'a, 'm, M, P>>>,
    /// By file, attach and distance.
    numbers: BTreeMap<Key, Moved>,
    /// Numbers of which there is none, below the largest.
    free: Vec<Moved>,
    /// How many are of segments.
    segments: usize,
}

/// File, attach and distance.
type Key = (Frame, u64, u64);

fn key<M: Machine, P: Paging>(file: &MemoryFile<'_, '_, M, P>, distance: u64) -> Key {
    (file.object().frame(), file.attach(), distance)
}

impl<'a, 'm, M: Machine, P: Paging> Views<'a, 'm, M, P> {
    pub(crate) fn new() -> Self {
        Views { known: Vec::new(), numbers: BTreeMap::new(), free: Vec::new(), segments: 0 }
    }
    pub(crate) fn get(&self, number: Moved) -> Option<&View<'a, 'm, M, P>> {
        self.known.get((number.0 as usize).checked_sub(1)?)?.as_ref()
    }
    /// The number of the view that has an offset of a file at an address.
    pub(crate) fn number(
        &mut self,
        file: &MemoryFile<'a, 'm, M, P>,
        offset: u64,
        addr: u64,
    ) -> Result<Moved, Errno> {
        let distance = offset.wrapping_sub(addr);
        let key = key(file, distance);
        if let Some(known) = self.numbers.get(&key) {
            return Ok(*known);
        }
        let number = self.free.pop().unwrap_or(Moved(self.known.len() as u32 + 1));
        if number.0 > Tag::NUMBER_MAX {
            return Err(Errno::NOMEM);
        }
        if number.0 as usize > self.known.len() {
            self.known.push(None);
        }
        self.segments += usize::from(file.is_segment());
        self.known[number.0 as usize - 1] = Some(View { file: file.clone(), distance, vmas: 0 });
        self.numbers.insert(key, number);
        Ok(number)
    }
    /// Whether one is of a segment.
    pub(crate) fn have_segments(&self) -> bool {
        self.segments > 0
    }
    /// Notes how many vmas have each view (V2).
    pub(crate) fn note_vmas(&mut self, vmas: &BTreeMap<Moved, u64>) {
        for (nth, view) in self.known.iter_mut().enumerate() {
            let Some(view) = view else { continue };
            let now = vmas.get(&Moved(nth as u32 + 1)).copied().unwrap_or_default();
            view.file.note_vmas(now, core::mem::replace(&mut view.vmas, now));
        }
    }
    /// The files that they are of; one may come several times.
    pub(crate) fn files(&self) -> impl Iterator<Item = &MemoryFile<'a, 'm, M, P>> {
        self.known.iter().flatten().map(|view| &view.file)
    }
    /// How many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.known.iter().flatten().count()
    }
    /// Lets go of all but these.
    pub(crate) fn keep(&mut self, kept: &BTreeSet<Moved>) {
        let all: BTreeSet<Moved> = self.numbers.values().copied().collect();
        self.forget(&all.difference(kept).copied().collect());
    }
    /// Lets go of these.
    pub(crate) fn forget(&mut self, gone: &BTreeSet<Moved>) {
        for number in gone {
            let place = (number.0 as usize).checked_sub(1).and_then(|nth| self.known.get_mut(nth));
            let Some(view) = place.and_then(Option::take) else { continue };
            self.numbers.remove(&key(&view.file, view.distance));
            self.segments -= usize::from(view.file.is_segment());
            self.free.push(*number);
        }
    }
}

impl<M: Machine, P: Paging> Clone for Views<'_, '_, M, P> {
    fn clone(&self) -> Self {
        let (known, numbers) = (self.known.clone(), self.numbers.clone());
        Views { known, numbers, free: self.free.clone(), segments: self.segments }
    }
}
