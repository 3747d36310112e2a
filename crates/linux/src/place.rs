//! Where a new area goes.
//!
//! The highest gap below [`Layout::top`](crate::Layout::top) that is large enough takes it at its
//! upper end. An area that grows downwards keeps a gap of 1 MiB free below it. A private mapping of
//! whole 2 MiB without a file is placed at a multiple of 2 MiB where the program names no address,
//! so that 2 MiB folios fit into it.

use crate::errno::Errno;
use crate::pages::{PAGE, is_aligned};
use crate::process::Process;
use crate::vma::{Marks, Vma};
use foliant::space::Edge;
use foliant::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Bytes, Va, VaRange};
use linux_raw_sys::general::{MAP_32BIT, MAP_ABOVE4G, MAP_FIXED};

/// What stays free below an area that grows downwards.
pub(crate) const STACK_GAP: u64 = 256 * PAGE;
/// Bytes of a 2 MiB folio.
pub(crate) const HUGE: u64 = 2 << 20;
/// Where `MAP_32BIT` looks, lowest first.
const LOW_2G: (u64, u64) = (0x4000_0000, 0x8000_0000);

/// What is placed.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// Where the program would have it; 0 is anywhere.
    pub(crate) addr: u64,
    /// Whole pages.
    pub(crate) bytes: u64,
    /// `MAP_FIXED` and those that say where to look.
    pub(crate) flags: u32,
    /// The size of its pages, and so what its address is a multiple of.
    pub(crate) align: u64,
    pub(crate) file: HasFile,
}

/// Whether what is placed maps a file, or has one made for it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HasFile {
    Yes,
    No,
}

/// A stretch of addresses to look in.
#[derive(Clone, Copy)]
struct Within {
    low: u64,
    high: u64,
}

/// The lowest address that nothing is placed above, below a vma.
pub(crate) fn gap_end(vma: &Vma) -> u64 {
    let gap = if vma.tag.marks.has(Marks::GROWS_DOWN) { STACK_GAP } else { 0 };
    vma.start().saturating_sub(gap)
}

impl<M: Machine, P: Paging> Process<'_, '_, M, P> {
    /// An address for a new area, where the program's own is taken as the flags say.
    pub(crate) fn choose(&self, wanted: Wanted) -> Result<u64, Errno> {
        let size = Self::size();
        if wanted.bytes > size {
            return Err(Errno::NOMEM);
        }
        let addr = match wanted.flags & MAP_FIXED {
            0 => self.unfixed(wanted)?,
            _ => wanted.addr,
        };
        if addr > size - wanted.bytes {
            return Err(Errno::NOMEM);
        }
        if !is_aligned(addr) {
            return Err(Errno::INVAL);
        }
        if addr < self.mm.lowest_address().get() {
            return Err(Errno::PERM);
        }
        Ok(addr)
    }

    fn unfixed(&self, wanted: Wanted) -> Result<u64, Errno> {
        let is_private = wanted.file == HasFile::No && wanted.align == PAGE;
        let huge = is_private && wanted.addr == 0 && wanted.bytes.is_multiple_of(HUGE);
        if huge && let Ok(found) = self.search(Wanted { bytes: wanted.bytes + HUGE, ..wanted }) {
            // Of the two places in what was found, the upper one is taken.
            return Ok(if found.is_multiple_of(HUGE) {
                found + HUGE
            } else {
                found.next_multiple_of(HUGE)
            });
        }
        let hint = wanted.addr & !(PAGE - 1);
        let hint = hint.checked_next_multiple_of(wanted.align).unwrap_or(0);
        if hint != 0 && self.is_free(hint, wanted.bytes) && wanted.flags & MAP_32BIT == 0 {
            return Ok(hint);
        }
        self.search(wanted)
    }
    /// Whether nothing lies there, nor could grow into it.
    fn is_free(&self, addr: u64, bytes: u64) -> bool {
        let Some(end) = addr.checked_add(bytes).filter(|end| *end <= Self::size()) else {
            return false;
        };
        let above = self.vma_at_or_after(addr);
        above.is_none_or(|above| end <= gap_end(&above))
    }

    fn search(&self, wanted: Wanted) -> Result<u64, Errno> {
        if wanted.flags & MAP_32BIT != 0 {
            let (low, high) = LOW_2G;
            return self.lowest(Within { low, high }, wanted).ok_or(Errno::NOMEM);
        }
        let low = if wanted.flags & MAP_ABOVE4G != 0 { 1 << 32 } else { PAGE };
        let found = self.highest(Within { low, high: self.layout.top.get() }, wanted);
        found
            .or_else(|| {
                // Nothing is free below: above the top there may be something.
                let low = (Self::size() / 3).next_multiple_of(PAGE);
                self.lowest(Within { low, high: Self::size() }, wanted)
            })
            .ok_or(Errno::NOMEM)
    }

    /// Room for so many bytes at an edge of a stretch, and the vma above it.
    fn room(&self, within: Within, need: u64, from: Edge) -> Option<(u64, Option<Vma>)> {
        let within = VaRange::new(Va::new(within.low), Va::new(within.high))?;
        let at = self.mm.room(self.space, Bytes::new(need), within, from)?.get();
        Some((at, self.parts_from(at).next()))
    }
    /// The highest place. Where a vma above a gap grows downwards, all is passed over that lies in
    /// what it keeps free, whatever else lies there.
    fn highest(&self, within: Within, wanted: Wanted) -> Option<u64> {
        let need = wanted.bytes.checked_add(wanted.align - PAGE)?;
        let mut within = within;
        loop {
            let (at, above) = self.room(within, need, Edge::High)?;
            let end = at + need;
            let free = above.map_or(u64::MAX, |above| gap_end(&above));
            if free >= end {
                return Some((end - wanted.bytes) & !(wanted.align - 1));
            }
            within.high = free;
        }
    }
    /// The lowest place, in the same way.
    fn lowest(&self, within: Within, wanted: Wanted) -> Option<u64> {
        let need = wanted.bytes.checked_add(wanted.align - PAGE)?;
        let mut within = within;
        loop {
            let (from, above) = self.room(within, need, Edge::Low)?;
            let at = from.next_multiple_of(wanted.align);
            match above.filter(|above| gap_end(above) < at + wanted.bytes) {
                None => return Some(at),
                Some(above) => within.low = above.end(),
            }
        }
    }
}
