//! All of a guest's memory.
#![allow(unsafe_code)]

use crate::GuestError;
use crate::leaves::frames;
use crate::region::{Page, Region};
use crate::view::FrameFile;
use core::fmt;
use core::ptr::NonNull;
use foliant::Manager;
use foliant::space::{Advice, Flags, MapRequest, Place, SpaceId};
use foliant::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Bytes, Frame, Order, Pages, Va};
use vm_memory::bitmap::{Bitmap, NewBitmap};
use vm_memory::{Address, GuestAddress, GuestMemoryBackend, GuestMemoryRegion};

/// The memory of one guest. Dropped, its pages are in the pool again.
///
/// Whoever maps a page in nested tables takes it out of there, flushed, before the page is given
/// back or the value dropped.
#[derive(Debug)]
pub struct GuestRam<'a, 'm, M: Machine, P: Paging, B = ()> {
    /// Views end before the pages behind them.
    regions: Vec<Region<'a, 'm, M, P, B>>,
    own: Own<'a, 'm, M, P>,
}

/// A space that is ended when it is dropped.
struct Own<'a, 'm, M: Machine, P: Paging> {
    host: &'a Manager<'m, M, P>,
    space: SpaceId,
}

impl<M: Machine, P: Paging> fmt::Debug for Own<'_, '_, M, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.space.fmt(f)
    }
}

impl<M: Machine, P: Paging> Drop for Own<'_, '_, M, P> {
    fn drop(&mut self) {
        let ended = self.host.end(self.space);
        debug_assert!(ended.is_ok(), "no CPU runs a space that nobody knows: {ended:?}");
    }
}

/// Ranges that do not touch, and the pages for them.
struct Taken<'a, 'm, M: Machine, P: Paging> {
    own: Own<'a, 'm, M, P>,
    ranges: Vec<(GuestAddress, u64)>,
    /// In the order of their frames, so that as many as possible follow one another.
    pages: std::vec::IntoIter<(Frame, Va)>,
}

impl<'a, 'm, M: Machine, P: Paging> Taken<'a, 'm, M, P> {
    fn new(
        host: &'a Manager<'m, M, P>,
        order: Order,
        ranges: &[(GuestAddress, Bytes)],
    ) -> Result<Taken<'a, 'm, M, P>, GuestError> {
        let flags = Flags::huge(order).ok_or(GuestError::Order(order))?.with(Flags::READ_WRITE);
        let ranges = joined(order, ranges)?;
        let pages: u64 = ranges.iter().map(|(_, pages)| pages).sum();
        let own = Own { host, space: host.create(None).map_err(GuestError::Space)? };
        let bytes = Bytes::new(pages * order.bytes().get());
        let request = MapRequest { place: Place::Anywhere, bytes, flags, tag: 0 };
        let area = host.map(own.space, &request).map_err(GuestError::Map)?;
        host.advise(own.space, area, Advice::PopulateWrite).map_err(GuestError::Populate)?;
        let mut taken = frames(host, own.space, area);
        assert_eq!(taken.len() as u64, pages, "every page was made present, and stays (G2)");
        taken.sort_unstable();
        Ok(Taken { own, ranges, pages: taken.into_iter() })
    }
}

impl<'a, 'm, M: Machine, P: Paging> GuestRam<'a, 'm, M, P> {
    /// Memory for a guest at `ranges` of its addresses, lowest first, in pages of `order` (2 MiB or
    /// 1 GiB) out of the pool.
    ///
    /// It is reached through the machine's direct map. A region is as long as the range, where the
    /// pool's pages follow one another; else there is one for each run of such pages.
    pub fn new(
        host: &'a Manager<'m, M, P>,
        order: Order,
        ranges: &[(GuestAddress, Bytes)],
    ) -> Result<GuestRam<'a, 'm, M, P>, GuestError> {
        let Taken { own, ranges, mut pages } = Taken::new(host, order, ranges)?;
        let mut regions = Vec::new();
        let whose = (host, own.space, order);
        for (start, count) in ranges {
            let mut next: Vec<_> = pages.by_ref().take(count as usize).collect();
            let mut start = start;
            while !next.is_empty() {
                let (at, run) = run(host, order, &next);
                let rest = next.split_off(run);
                let of_run = next.into_iter().map(|(frame, va)| Page::new(va, frame)).collect();
                // SAFETY: G2 — the pages are mapped in the space, which ends after the regions, and
                // `run` found them side by side.
                let region = unsafe { Region::direct(whose, start, of_run, at) };
                start = start.unchecked_add(region.len());
                regions.push(region);
                next = rest;
            }
        }
        Ok(GuestRam { regions, own })
    }

    /// The same, where the machine's memory is a file: each range (ranges that touch are one) is
    /// one region, whichever pages the pool has, and parts of it can be given back.
    ///
    /// It needs addresses of this process, and a mapping of the operating system's for each run of
    /// pages that follow one another in the file (Linux has 65,530 of them unless
    /// `vm.max_map_count` says otherwise). No privilege is needed and no hugetlb page: whether the
    /// host uses huge pages of its own for the file is up to its settings
    /// (`/sys/kernel/mm/transparent_hugepage/shmem_enabled`); the region asks for them, and works
    /// without.
    pub fn in_file(
        host: &'a Manager<'m, M, P>,
        file: &FrameFile,
        order: Order,
        ranges: &[(GuestAddress, Bytes)],
    ) -> Result<GuestRam<'a, 'm, M, P>, GuestError> {
        let Taken { own, ranges, mut pages } = Taken::new(host, order, ranges)?;
        let region = |(start, count): &(GuestAddress, u64)| {
            let next = pages.by_ref().take(*count as usize);
            let next = next.map(|(frame, va)| Page::new(va, frame)).collect();
            // SAFETY: G2 — the pages are mapped in the space, which ends after the regions.
            unsafe { Region::in_view((host, own.space, order), *start, next, file) }
        };
        let regions = ranges.iter().map(region).collect::<Result<_, _>>()?;
        Ok(GuestRam { regions, own })
    }

    /// The same memory with a bitmap for each region, for example `vm-memory`'s `AtomicBitmap`: it
    /// notes what is written through the traits from now on, and what is given back, since that
    /// changes the contents too. What virtual CPUs write is for their monitor to find.
    pub fn tracked<B: NewBitmap>(self) -> GuestRam<'a, 'm, M, P, B> {
        let GuestRam { regions, own } = self;
        GuestRam { regions: regions.into_iter().map(Region::tracked).collect(), own }
    }
}

impl<'a, 'm, M: Machine, P: Paging, B: Bitmap> GuestRam<'a, 'm, M, P, B> {
    /// Gives the huge pages of a range back, and says how much of it was not given back before: the
    /// pool has the pages, so that another guest can take them, and the host's memory of them is
    /// free.
    ///
    /// They come back, as zeros, when they are asked for ([`bring_back`](GuestRam::bring_back)) or
    /// touched through the traits. Nothing is reserved for that: without a free page both are
    /// refused. What others write through slices that they had before is lost, and so is what a
    /// virtual CPU writes before the page was asked for: a balloon has the guest ask
    /// (`VIRTIO_BALLOON_F_MUST_TELL_HOST`). After a refusal the pages are the guest's, but those
    /// that the host took already may hold zeros.
    pub fn give_back(&self, start: GuestAddress, bytes: Bytes) -> Result<Bytes, GuestError> {
        self.holder(start, bytes)?.give_back(start, bytes)
    }

    /// Has what was given back of a range come back, all of it or nothing, and says how much that
    /// was. It is zero.
    pub fn bring_back(&self, start: GuestAddress, bytes: Bytes) -> Result<Bytes, GuestError> {
        self.holder(start, bytes)?.have_back(start, bytes)
    }

    /// How much of all memory was given back.
    pub fn given_back(&self) -> Bytes {
        Bytes::new(self.regions.iter().map(|region| region.given_back().get()).sum())
    }

    fn holder(
        &self,
        start: GuestAddress,
        bytes: Bytes,
    ) -> Result<&Region<'a, 'm, M, P, B>, GuestError> {
        if bytes.get() == 0 {
            return Err(GuestError::Empty);
        }
        self.find_region(start).ok_or(GuestError::Outside(start, bytes))
    }
}

/// Where the first page is in the direct map, and how many lie side by side from there on.
fn run<M: Machine, P: Paging>(
    host: &Manager<'_, M, P>,
    order: Order,
    pages: &[(Frame, Va)],
) -> (NonNull<u8>, usize) {
    // SAFETY: G2 — the page is mapped in a space that ends after whoever uses the pointer.
    let at = |(frame, _): &(Frame, Va)| unsafe { host.machine().reach(frame.pa(), order.bytes()) };
    let first = at(&pages[0]);
    let size = order.bytes().get() as usize;
    let follows = |(nth, page): (usize, &(Frame, Va))| {
        page.0 == pages[0].0.add(Pages::new(order.pages().get() * nth as u64))
            && at(page).addr().get() == first.addr().get() + nth * size
    };
    (first, pages.iter().enumerate().take_while(|page| follows(*page)).count())
}

/// Ranges as numbers of pages, those that touch as one; refused where they are no ranges of such
/// pages.
fn joined(
    order: Order,
    ranges: &[(GuestAddress, Bytes)],
) -> Result<Vec<(GuestAddress, u64)>, GuestError> {
    let mut upto = GuestAddress(0);
    let mut joined: Vec<(GuestAddress, u64)> = Vec::new();
    for (start, bytes) in ranges {
        let size = order.bytes().get();
        if bytes.get() == 0 {
            return Err(GuestError::Empty);
        }
        if !start.0.is_multiple_of(size) || !bytes.get().is_multiple_of(size) {
            return Err(GuestError::Misaligned(*start, *bytes, order));
        }
        if *start < upto {
            return Err(GuestError::Overlap(upto, *start));
        }
        let pages = bytes.get() / size;
        match joined.last_mut().filter(|_| *start == upto) {
            Some((_, before)) => *before += pages,
            None => joined.push((*start, pages)),
        }
        upto = start.checked_add(bytes.get()).ok_or(GuestError::Beyond(*start, *bytes))?;
    }
    if joined.is_empty() { Err(GuestError::Empty) } else { Ok(joined) }
}

impl<'a, 'm, M: Machine, P: Paging, B: Bitmap> GuestMemoryBackend for GuestRam<'a, 'm, M, P, B> {
    type R = Region<'a, 'm, M, P, B>;

    fn num_regions(&self) -> usize {
        self.regions.len()
    }
    #[inline]
    fn find_region(&self, at: GuestAddress) -> Option<&Region<'a, 'm, M, P, B>> {
        let behind = self.regions.partition_point(|region| region.start_addr() <= at);
        self.regions[..behind].last().filter(|region| at <= region.last_addr())
    }
    fn iter(&self) -> impl Iterator<Item = &Region<'a, 'm, M, P, B>> {
        self.regions.iter()
    }
}
