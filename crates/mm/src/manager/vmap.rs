//! Kernel ranges, as the face shows them.

use super::Manager;
use crate::space::{self, MapError, MapRequest, RangeError, SpaceId, Steps};
use crate::stock::Event;
use crate::sync::Outside;
use crate::table::Paging;
use crate::vmap::{Caller, Counters, FrameMapping, Request, Short, VmapAreas, VmapError};
use crate::vmap::{Rights, Vmap};
use core::{error, fmt};
use foliant_machine::Machine;
use foliant_units::{Bytes, Frame, Level, Nanos, Order, Pa, Pages, Va, VaRange};

/// Why kernel memory was not mapped into a program. Nothing changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UserMapError {
    /// The kernel's side.
    Kernel(VmapError),
    /// The program's side.
    Space(MapError),
}

impl fmt::Display for UserMapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UserMapError::Kernel(error) => error.fmt(f),
            UserMapError::Space(error) => error.fmt(f),
        }
    }
}
impl error::Error for UserMapError {}
impl From<VmapError> for UserMapError {
    fn from(error: VmapError) -> UserMapError {
        UserMapError::Kernel(error)
    }
}
impl From<MapError> for UserMapError {
    fn from(error: MapError) -> UserMapError {
        UserMapError::Space(error)
    }
}

impl<'m, M: Machine, P: Paging> Manager<'m, M, P> {
    /// Kernel ranges: everything that can be done with them.
    pub fn vmap(&self) -> Vmap<'_, 'm, M, P> {
        Vmap::new(&self.stock, &self.kernel, &self.vmap)
    }
    /// Takes kernel memory that is contiguous in its addresses. See [`Vmap::alloc`]. Where there is
    /// no block for a leaf of 2 MiB, memory is compacted, for no more than
    /// [`VmapSetup::effort`](super::VmapSetup), and that leaf is tried once more.
    pub fn vmalloc(&self, request: &Request) -> Result<VaRange, VmapError> {
        let vmap = self.vmap();
        let wish = vmap.wish(request)?;
        let mut outside = Outside::at_the_face();
        let outside = &mut outside;
        let (largest, size_2m, base) = (wish.largest(), Level::SIZE_2M, Level::BASE);
        let Some(blocks) = wish.blocks() else {
            return Ok(vmap.serve(&wish, (largest, base), outside)?);
        };
        match vmap.serve(&wish, (largest, size_2m), outside) {
            Ok(range) => return Ok(range),
            Err(Short::Block(Order::SIZE_2M)) if self.wait_for_blocks(blocks, outside) => {}
            Err(_) => return Ok(vmap.serve(&wish, (base, base), outside)?),
        }
        match vmap.serve(&wish, (size_2m, size_2m), outside) {
            Ok(range) => {
                self.stock.count(Event::VmallocCompactSuccess);
                Ok(range)
            }
            Err(_) => Ok(vmap.serve(&wish, (base, base), outside)?),
        }
    }
    /// Has memory compacted until so many blocks of 2 MiB are free, or the budget is spent; says
    /// whether they are. A block that was made is free for all: a faster caller may have it.
    fn wait_for_blocks(&self, blocks: u64, outside: &mut Outside) -> bool {
        if self.vmap_effort.is_spent() || self.puts_off_compaction() {
            return false;
        }
        let _work = self.stock.at_work();
        self.stock.count(Event::VmallocCompact);
        let (begun, mut effort) = (self.stock.machine.now(), self.vmap_effort);
        let mut folios = 0;
        let free = self.stock.folios.whole_blocks(blocks - 1);
        for _ in free..blocks {
            let (done, claim) = self.compact_waiting(effort, outside);
            let Some(claim) = claim else { return false };
            self.stock.put_back(claim);
            folios += done.moved + done.stayed;
            let time = self.stock.machine.now().0.saturating_sub(begun.0);
            effort = self.vmap_effort.less(folios, Nanos(time));
        }
        true
    }
    /// Gives kernel memory back, by its first address.
    pub fn vfree(&self, va: Va) -> Result<(), VmapError> {
        self.vmap().free(va)
    }
    /// Gives kernel memory back from where nothing may be waited for. See [`Vmap::free_later`].
    pub fn vfree_atomic(&self, va: Va) -> Result<(), VmapError> {
        self.vmap().free_later(va)
    }
    /// Maps frames of the caller's one behind the other. See [`Vmap::map`].
    pub fn vmap_frames(&self, frames: &[Frame], how: &FrameMapping) -> Result<VaRange, VmapError> {
        self.vmap().map(frames, how)
    }
    /// Ends such a mapping, by its first address.
    pub fn vunmap(&self, va: Va) -> Result<(), VmapError> {
        self.vmap().unmap(va)
    }
    /// Maps a device. See [`Vmap::map_device`].
    pub fn ioremap(&self, pa: Pa, bytes: Bytes, caller: Caller) -> Result<Va, VmapError> {
        self.vmap().map_device(pa, bytes, caller)
    }
    /// Ends the mapping of a device, by the address that [`ioremap`](Manager::ioremap) gave.
    pub fn iounmap(&self, va: Va) -> Result<(), VmapError> {
        self.vmap().unmap(va)
    }
    /// Gives a part of a kernel range other rights. See [`Vmap::protect`].
    pub fn protect_kernel(&self, range: VaRange, rights: Rights) -> Result<(), VmapError> {
        self.vmap().protect(range, rights)
    }
    /// Maps kernel memory into a program too: the pages from `va` on, of an area that was asked for
    /// as one for users. Each page stays until the kernel and all programs have let go of it.
    pub fn map_user(
        &self,
        id: SpaceId,
        request: &MapRequest,
        va: Va,
    ) -> Result<VaRange, UserMapError> {
        let space = id.pin(&self.stock).ok_or(MapError::Range(RangeError::NoSpace))?;
        let done = self.vmap().shared(va, request.bytes, |frame| {
            space::map_kernel(&self.stock, &space, request, frame, &mut Steps::at_the_face())
        })?;
        Ok(done?)
    }
    /// The listing of kernel ranges.
    pub fn vmalloc_info(&self) -> VmapAreas<'_, 'm, M, P> {
        self.vmap().areas()
    }
    /// The counts of kernel ranges.
    pub fn vmalloc_counters(&self) -> Counters {
        self.vmap().counters()
    }
    /// Makes the addresses of ranges that were given back usable again. See [`Vmap::purge`].
    pub fn purge_vmalloc(&self) -> Pages {
        self.vmap().collect();
        self.vmap().purge()
    }
}
