//! One region of a guest's memory: neighbouring huge pages, and where they are.
#![allow(unsafe_code)]

use crate::GuestError;
use crate::leaves::frame_of;
use crate::view::{FrameFile, View};
use core::fmt;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use foliant::Manager;
use foliant::space::{Advice, Flags, MapRequest, Place, RangeError, SpaceId};
use foliant::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Bytes, Frame, Order, Va, VaRange};
use std::io;
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};
use vm_memory::bitmap::{BS, Bitmap, NewBitmap};
use vm_memory::{
    Address, AtomicAccess, Bytes as Access, FileOffset, GuestAddress, GuestMemoryError,
    GuestMemoryRegion, GuestMemoryResult, GuestUsize, MemoryRegionAddress, ReadVolatile,
    VolatileSlice, WriteVolatile,
};

/// One huge page of a region: where the space behind it has it, and its first frame.
#[derive(Debug)]
pub(crate) struct Page {
    va: Va,
    /// `GONE` where the page was given back.
    frame: AtomicU64,
}

const GONE: u64 = u64::MAX;

impl Page {
    pub(crate) const fn new(va: Va, frame: Frame) -> Page {
        Page { va, frame: AtomicU64::new(frame.get()) }
    }
    fn frame(&self) -> Option<Frame> {
        let frame = self.frame.load(Ordering::Acquire);
        (frame != GONE).then_some(Frame::new(frame))
    }
    fn range(&self, order: Order) -> VaRange {
        VaRange::sized(self.va, order.bytes()).expect("a page of the space")
    }
}

/// What a region needs to give pages back and to have them come back.
struct Movable {
    file: FrameFile,
    /// Held by whoever shows or hides pages.
    changing: Mutex<()>,
    /// What was said of where the region lies in the file: asked once, and final (G5).
    told: OnceLock<Option<FileOffset>>,
}

/// A stretch of a guest's memory whose bytes lie side by side in this process: a slot of KVM, a
/// region of a vhost-user device.
///
/// It lives in its [`GuestRam`](crate::GuestRam). `B` notes what is written through the traits of
/// `vm-memory`, and what is given back.
pub struct Region<'a, 'm, M: Machine, P: Paging, B = ()> {
    host: &'a Manager<'m, M, P>,
    space: SpaceId,
    order: Order,
    start: GuestAddress,
    view: View,
    pages: Box<[Page]>,
    /// Pages that were given back.
    gone: AtomicUsize,
    movable: Option<Movable>,
    bitmap: B,
}

impl<M: Machine, P: Paging, B> fmt::Debug for Region<'_, '_, M, P, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({:#x} + {})", self.start.0, self.bytes())
    }
}

impl<'a, 'm, M: Machine, P: Paging> Region<'a, 'm, M, P> {
    /// Pages that lie side by side in the direct map, of which `at` is where.
    ///
    /// # Safety
    /// They are mapped in `space` at the addresses that they name, and stay there for as long as
    /// the value lives.
    pub(crate) unsafe fn direct(
        (host, space, order): (&'a Manager<'m, M, P>, SpaceId, Order),
        start: GuestAddress,
        pages: Box<[Page]>,
        at: core::ptr::NonNull<u8>,
    ) -> Self {
        let bytes = Bytes::new(order.bytes().get() * pages.len() as u64);
        // SAFETY: mapped in the space, so they are the guest's (the caller's promise).
        let view = unsafe { View::direct(at, bytes) };
        let gone = AtomicUsize::new(0);
        Region { host, space, order, start, view, pages, gone, movable: None, bitmap: () }
    }

    /// Pages that are shown side by side.
    ///
    /// # Safety
    /// As for [`direct`](Region::direct), but for the time in which a page is given back.
    pub(crate) unsafe fn in_view(
        (host, space, order): (&'a Manager<'m, M, P>, SpaceId, Order),
        start: GuestAddress,
        pages: Box<[Page]>,
        file: &FrameFile,
    ) -> Result<Self, GuestError> {
        let bytes = Bytes::new(order.bytes().get() * pages.len() as u64);
        let view = View::hidden(bytes, order)?;
        let movable =
            Movable { file: file.clone(), changing: Mutex::new(()), told: OnceLock::new() };
        let gone = AtomicUsize::new(0);
        let movable = Some(movable);
        let region = Region { host, space, order, start, view, pages, gone, movable, bitmap: () };
        for (nth, page) in region.pages.iter().enumerate() {
            let frame = page.frame().expect("a new region has all its pages");
            // SAFETY: the caller's promise.
            unsafe { region.show(nth, frame, file) }?;
        }
        Ok(region)
    }

    /// The same with a bitmap, in which nothing is dirty.
    pub(crate) fn tracked<B: NewBitmap>(self) -> Region<'a, 'm, M, P, B> {
        let bitmap = B::with_len(self.bytes().get() as usize);
        let Region { host, space, order, start, view, pages, gone, movable, bitmap: () } = self;
        Region { host, space, order, start, view, pages, gone, movable, bitmap }
    }
}

impl<M: Machine, P: Paging, B> Region<'_, '_, M, P, B> {
    /// The size of its pages.
    pub const fn order(&self) -> Order {
        self.order
    }
    /// The first frame of the page that `at` lies in: what a nested table maps. None where the page
    /// was given back, or outside.
    pub fn frame(&self, at: MemoryRegionAddress) -> Option<Frame> {
        let nth = at.raw_value() / self.order.bytes().get();
        self.pages.get(usize::try_from(nth).ok()?)?.frame()
    }
    /// How much of it was given back.
    pub fn given_back(&self) -> Bytes {
        Bytes::new(self.gone.load(Ordering::Acquire) as u64 * self.order.bytes().get())
    }
    fn bytes(&self) -> Bytes {
        Bytes::new(self.view.bytes() as u64)
    }
    /// The pages that `bytes` from `at` on, which are inside, have a part in.
    fn touched(&self, at: u64, bytes: u64) -> Range<usize> {
        let size = self.order.bytes().get();
        (at / size) as usize..(at + bytes).div_ceil(size) as usize
    }
    fn offset(&self, nth: usize) -> u64 {
        nth as u64 * self.order.bytes().get()
    }

    /// Shows page `nth` where it belongs.
    ///
    /// # Safety
    /// `frame` is behind the page in the space, and stays there until the page is hidden.
    unsafe fn show(&self, nth: usize, frame: Frame, file: &FrameFile) -> Result<(), GuestError> {
        let (pa, bytes) = (frame.pa(), self.order.bytes());
        // A machine may want to know that a frame is written from now on.
        // SAFETY: the page is the guest's (the caller's promise).
        unsafe { self.host.machine().reach(pa, bytes) };
        // SAFETY: as above.
        unsafe { self.view.show(self.offset(nth), (frame, self.order), file) }
    }

    /// What is needed to move pages, and the lock under which it is done.
    fn movable(&self) -> Result<(&Movable, MutexGuard<'_, ()>), GuestError> {
        let movable = self.movable.as_ref().ok_or(GuestError::Direct(self.start))?;
        loop {
            match movable.changing.try_lock() {
                Ok(held) => return Ok((movable, held)),
                // Whoever panicked with it left each page shown and stored, or `GONE`.
                Err(TryLockError::Poisoned(held)) => return Ok((movable, held.into_inner())),
                Err(TryLockError::WouldBlock) => self.host.machine().yield_now(),
            }
        }
    }

    /// Has those of `pages` come back that were given back, all or none, and says how many did.
    fn bring_back(&self, pages: Range<usize>) -> Result<usize, GuestError> {
        if self.gone.load(Ordering::Acquire) == 0 {
            return Ok(0);
        }
        let (movable, _changing) = self.movable()?;
        let missing: Vec<usize> = pages.filter(|nth| self.pages[*nth].frame().is_none()).collect();
        let brought = missing.iter().map(|nth| self.bring(*nth, &movable.file)).collect();
        let frames: Vec<Frame> = match brought {
            Ok(frames) => frames,
            Err(why) => {
                // Those that came are nobody's yet: none of them has a frame to be found by.
                for nth in &missing {
                    if self.view.hide(self.offset(*nth), self.order).is_ok() {
                        _ = self.drop_page(*nth);
                    }
                }
                return Err(self.shortage(why, missing.len() as u64));
            }
        };
        for (nth, frame) in missing.iter().zip(frames) {
            self.pages[*nth].frame.store(frame.get(), Ordering::Release);
        }
        self.gone.fetch_sub(missing.len(), Ordering::Release);
        Ok(missing.len())
    }

    /// Takes a page for `nth` and shows it.
    fn bring(&self, nth: usize, file: &FrameFile) -> Result<Frame, GuestError> {
        let range = self.pages[nth].range(self.order);
        let populated = self.host.advise(self.space, range, Advice::PopulateWrite);
        populated.map_err(GuestError::Populate)?;
        let frame = frame_of(self.host, self.space, range).expect("a page was made present there");
        // SAFETY: it is there, and leaves it by `drop_page` alone, which comes after `hide`.
        unsafe { self.show(nth, frame, file) }?;
        Ok(frame)
    }
    /// Gives page `nth`, which is hidden, to the pool.
    fn drop_page(&self, nth: usize) -> Result<(), GuestError> {
        let range = self.pages[nth].range(self.order);
        // Dropped alone it would stay reserved for its place, which another area takes therefore.
        let kind = Flags::huge(self.order).expect("a size of huge pages");
        let flags = Flags::READ_WRITE.with(kind).with(Flags::NORESERVE);
        let place = Place::Fixed(range.start());
        let request = MapRequest { place, bytes: range.bytes(), flags, tag: 0 };
        self.host.map(self.space, &request).map(drop).map_err(GuestError::Map)
    }
    /// Says what the pool has, where that is why.
    fn shortage(&self, why: GuestError, asked: u64) -> GuestError {
        let pool = self.host.pool(self.order).ok();
        let free = pool.map(|pool| pool.free_hugepages.saturating_sub(pool.resv_hugepages));
        match (why, free) {
            (GuestError::Populate(RangeError::NoMemory), Some(free)) if free < asked => {
                GuestError::NoPages(self.order, asked, free)
            }
            _ => why,
        }
    }

    /// Makes sure that whoever gets these bytes gets memory of the guest (G6). Never a part of its
    /// caller: accesses are small as long as nothing was given back.
    #[inline(never)]
    fn present(&self, at: u64, count: usize) -> GuestMemoryResult<()> {
        if !self.view.holds(at, count) {
            return Err(GuestMemoryError::InvalidBackendAddress);
        }
        let pages = self.touched(at, count as u64);
        if count == 0 || self.pages[pages.clone()].iter().all(|page| page.frame().is_some()) {
            return Ok(());
        }
        let refused = |why| io::Error::new(io::ErrorKind::OutOfMemory, why);
        let brought = self.bring_back(pages).map(drop);
        brought.map_err(|why| GuestMemoryError::IOError(refused(why)))
    }

    /// The pages of a range that consists of whole ones.
    fn whole(&self, start: GuestAddress, bytes: Bytes) -> Result<Range<usize>, GuestError> {
        let (size, outside) = (self.order.bytes().get(), GuestError::Outside(start, bytes));
        let at = start.checked_offset_from(self.start).ok_or(outside)?;
        if !at.is_multiple_of(size) || !bytes.get().is_multiple_of(size) {
            return Err(GuestError::Misaligned(start, bytes, self.order));
        }
        let end = at.checked_add(bytes.get()).filter(|end| *end <= self.bytes().get());
        end.map(|_| self.touched(at, bytes.get())).ok_or(outside)
    }
    /// See [`GuestRam::bring_back`](crate::GuestRam::bring_back).
    pub(crate) fn have_back(&self, start: GuestAddress, bytes: Bytes) -> Result<Bytes, GuestError> {
        let brought = self.bring_back(self.whole(start, bytes)?)?;
        Ok(Bytes::new(brought as u64 * self.order.bytes().get()))
    }
}

impl<M: Machine, P: Paging, B: Bitmap> Region<'_, '_, M, P, B> {
    /// See [`GuestRam::give_back`](crate::GuestRam::give_back).
    pub(crate) fn give_back(&self, start: GuestAddress, bytes: Bytes) -> Result<Bytes, GuestError> {
        let pages = self.whole(start, bytes)?;
        let (movable, _changing) = self.movable()?;
        if movable.told.get_or_init(|| None).is_some() {
            return Err(GuestError::Shared(self.start));
        }
        let frame = |nth: usize| Some((nth, self.pages[nth].frame()?));
        let going: Vec<(usize, Frame)> = pages.filter_map(frame).collect();
        // From here on whoever wants one of them waits for the lock.
        self.gone.fetch_add(going.len(), Ordering::Release);
        for (nth, _) in &going {
            self.pages[*nth].frame.store(GONE, Ordering::Release);
        }
        let hide = |(done, (nth, _)): (usize, &(usize, Frame))| {
            let refused = self.view.hide(self.offset(*nth), self.order).err();
            refused.map(|why| (done, why))
        };
        if let Some((done, why)) = going.iter().enumerate().find_map(hide) {
            self.keep(&going, done, &movable.file);
            return Err(why);
        }
        let freed = going.iter().try_for_each(|(_, frame)| movable.file.free(*frame, self.order));
        if let Err(why) = freed {
            self.keep(&going, going.len(), &movable.file);
            return Err(why);
        }
        for (nth, _) in &going {
            self.bitmap.mark_dirty(self.offset(*nth) as usize, self.order.bytes().get() as usize);
            self.drop_page(*nth)?; // what stays in the space is had back from there
        }
        Ok(Bytes::new(going.len() as u64 * self.order.bytes().get()))
    }

    /// Keeps pages that were to go, of which the first `hidden` are hidden. One that the system
    /// does not show again is given back as far as the guest can tell, and had back from the space.
    fn keep(&self, going: &[(usize, Frame)], hidden: usize, file: &FrameFile) {
        for (done, (nth, frame)) in going.iter().enumerate() {
            // SAFETY: it is behind the page still, and leaves it by `drop_page` alone.
            if done >= hidden || unsafe { self.show(*nth, *frame, file) }.is_ok() {
                self.pages[*nth].frame.store(frame.get(), Ordering::Release);
                self.gone.fetch_sub(1, Ordering::Release);
            }
        }
    }

    /// As many of `count` bytes from `at` on as the region has.
    fn part(
        &self,
        at: MemoryRegionAddress,
        count: usize,
    ) -> GuestMemoryResult<VolatileSlice<'_, BS<'_, B>>> {
        let rest = self.bytes().get().saturating_sub(at.raw_value());
        if rest == 0 && count != 0 {
            return Err(GuestMemoryError::InvalidBackendAddress);
        }
        self.get_slice(at, count.min(usize::try_from(rest).unwrap_or(usize::MAX)))
    }
}

impl<M: Machine, P: Paging, B: Bitmap> GuestMemoryRegion for Region<'_, '_, M, P, B> {
    type B = B;

    fn len(&self) -> GuestUsize {
        self.bytes().get()
    }
    fn start_addr(&self) -> GuestAddress {
        self.start
    }
    fn bitmap(&self) -> BS<'_, B> {
        self.bitmap.slice_at(0)
    }

    /// The address stays the same for the life of the memory. What is there while the page is given
    /// back is no memory of the guest.
    fn get_host_address(&self, at: MemoryRegionAddress) -> GuestMemoryResult<*mut u8> {
        let at = self.check_address(at).ok_or(GuestMemoryError::InvalidBackendAddress)?;
        Ok(self.view.address(at.raw_value()))
    }
    /// Bytes of the region; pages among them that were given back come back, as zeros.
    #[inline]
    fn get_slice(
        &self,
        offset: MemoryRegionAddress,
        count: usize,
    ) -> GuestMemoryResult<VolatileSlice<'_, BS<'_, B>>> {
        let offset = offset.raw_value();
        if !self.view.holds(offset, count) || self.gone.load(Ordering::Acquire) != 0 {
            self.present(offset, count)?;
        }
        Ok(self.view.slice(offset, count, |at| self.bitmap.slice_at(at)))
    }
    /// Where the region lies in the file that it was made in, if its pages follow one another there
    /// and none was ever given back. Whoever was told may map the file, so from then on nothing of
    /// the region can be given back.
    fn file_offset(&self) -> Option<&FileOffset> {
        let movable = self.movable.as_ref()?;
        let told = movable.told.get_or_init(|| {
            let pages = self.order.pages();
            let next = |two: &[Page]| two[0].frame().map(|at| at.add(pages)) == two[1].frame();
            let first = self.pages.first()?.frame().filter(|_| self.pages.windows(2).all(next))?;
            movable.file.at(first, self.order)
        });
        told.as_ref()
    }
    #[cfg(target_os = "linux")]
    fn is_hugetlbfs(&self) -> Option<bool> {
        Some(false) // huge for the guest; for the host, what its settings for huge pages say
    }
}

/// Each access has the pages come back that it is made to, and no others: the traits' own way asks
/// for a slice of the whole region.
impl<M: Machine, P: Paging, B: Bitmap> Access<MemoryRegionAddress> for Region<'_, '_, M, P, B> {
    type E = GuestMemoryError;

    fn write(&self, buf: &[u8], at: MemoryRegionAddress) -> GuestMemoryResult<usize> {
        Ok(self.part(at, buf.len())?.write(buf, 0)?)
    }
    fn read(&self, buf: &mut [u8], at: MemoryRegionAddress) -> GuestMemoryResult<usize> {
        Ok(self.part(at, buf.len())?.read(buf, 0)?)
    }
    fn write_slice(&self, buf: &[u8], at: MemoryRegionAddress) -> GuestMemoryResult<()> {
        Ok(self.part(at, buf.len())?.write_slice(buf, 0)?)
    }
    fn read_slice(&self, buf: &mut [u8], at: MemoryRegionAddress) -> GuestMemoryResult<()> {
        Ok(self.part(at, buf.len())?.read_slice(buf, 0)?)
    }
    fn read_volatile_from<F: ReadVolatile>(
        &self,
        at: MemoryRegionAddress,
        from: &mut F,
        count: usize,
    ) -> GuestMemoryResult<usize> {
        let part = self.part(at, count)?;
        Ok(part.read_volatile_from(0, from, part.len())?)
    }
    fn read_exact_volatile_from<F: ReadVolatile>(
        &self,
        at: MemoryRegionAddress,
        from: &mut F,
        count: usize,
    ) -> GuestMemoryResult<()> {
        Ok(self.get_slice(at, count)?.read_exact_volatile_from(0, from, count)?)
    }
    fn write_volatile_to<F: WriteVolatile>(
        &self,
        at: MemoryRegionAddress,
        to: &mut F,
        count: usize,
    ) -> GuestMemoryResult<usize> {
        let part = self.part(at, count)?;
        Ok(part.write_volatile_to(0, to, part.len())?)
    }
    fn write_all_volatile_to<F: WriteVolatile>(
        &self,
        at: MemoryRegionAddress,
        to: &mut F,
        count: usize,
    ) -> GuestMemoryResult<()> {
        Ok(self.get_slice(at, count)?.write_all_volatile_to(0, to, count)?)
    }
    fn store<T: AtomicAccess>(
        &self,
        value: T,
        at: MemoryRegionAddress,
        order: Ordering,
    ) -> GuestMemoryResult<()> {
        Ok(self.get_slice(at, size_of::<T>())?.store(value, 0, order)?)
    }
    fn load<T: AtomicAccess>(
        &self,
        at: MemoryRegionAddress,
        order: Ordering,
    ) -> GuestMemoryResult<T> {
        Ok(self.get_slice(at, size_of::<T>())?.load(0, order)?)
    }
}
