//! The addresses of this process where a region's bytes are.
//!
//! ```text
//!   direct     the machine's direct map: frames that follow one another there already
//!   in view    own addresses ──▶ │ frame 7 │ frame 3 │ zeros │ frame 8 │     each page a part of the file,
//!                                 shown               hidden               or zeros that nobody else has
//! ```
//!
//! A hidden page is memory of this process like any other, zero until somebody writes to it and
//! forgotten when the page is shown again. So a pointer into a view stays good however its pages
//! change (G4): it reaches the guest's frames or such zeros, never a frame of somebody else.
//!
//! **Locking**: none here; whoever shows and hides does one at a time.
//!
//! **Not here**: whose a frame is, and when pages change (`region`).
#![allow(unsafe_code)]

use crate::GuestError;
use crate::error::HostCall;
use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use foliant_units::{Bytes, Frame, Order};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use vm_memory::{FileOffset, VolatileSlice, bitmap::BitmapSlice};

/// The file that holds a machine's frames: a `memfd`, or any other that can be mapped shared and
/// has holes.
#[derive(Clone, Debug)]
pub struct FrameFile {
    file: Arc<File>,
    first: Frame,
}

impl FrameFile {
    /// A file that holds the frame `first` at offset 0, and the ones behind it in order.
    ///
    /// # Safety
    /// A shared mapping of the file shows the machine's frames: a byte of frame `first + n` is the
    /// byte at the same place of the file's `n`-th 4096 bytes, for every frame that a pool of the
    /// machine's manager may ever have. The file does not get shorter.
    pub unsafe fn new(file: Arc<File>, first: Frame) -> FrameFile {
        FrameFile { file, first }
    }

    /// Where the page of `order` at `frame` lies in the file.
    fn offset(&self, frame: Frame, order: Order) -> Result<u64, GuestError> {
        let length = self.file.metadata().map_err(|why| host(HostCall::Measure, &why))?.len();
        let offset = frame.pa().get().checked_sub(self.first.pa().get());
        offset
            .filter(|at| at.checked_add(order.bytes().get()).is_some_and(|end| end <= length))
            .ok_or(GuestError::NotInFile(frame, self.first, Bytes::new(length)))
    }
    /// Where a region lies in it that begins with `frame` and whose pages follow one another.
    pub(crate) fn at(&self, frame: Frame, order: Order) -> Option<FileOffset> {
        let offset = self.offset(frame, order).ok()?;
        Some(FileOffset::from_arc(self.file.clone(), offset))
    }
    /// Frees the host's memory of the page at `frame`; it is zero then.
    pub(crate) fn free(&self, frame: Frame, order: Order) -> Result<(), GuestError> {
        let (offset, bytes) = (self.offset(frame, order)?, order.bytes().get());
        let how = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let (fd, at, bytes) = (self.file.as_raw_fd(), offset as i64, bytes as i64);
        // SAFETY: the call takes no pointer. What it clears is a page that the caller took out of
        // its view, and that is still the guest's (G2).
        match unsafe { libc::fallocate(fd, how, at, bytes) } {
            0 => Ok(()),
            _ => Err(host(HostCall::Free, &io::Error::last_os_error())),
        }
    }
}

fn host(call: HostCall, why: &io::Error) -> GuestError {
    GuestError::Host(call, why.raw_os_error().unwrap_or(0))
}

/// Where a region's bytes are.
#[derive(Debug)]
pub(crate) struct View {
    at: NonNull<u8>,
    bytes: usize,
    /// All of the mapping, which begins before `at` where that was to be aligned.
    own: Option<(NonNull<u8>, usize)>,
}

// SAFETY: a value only names memory, which any thread may access: the guest does so all the time,
// and every access of this crate is volatile or atomic, by `VolatileSlice`.
unsafe impl Send for View {}
// SAFETY: as for Send.
unsafe impl Sync for View {}

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
const ZEROS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

impl View {
    /// `bytes` from `at` on, in the machine's direct map.
    ///
    /// # Safety
    /// They are the guest's for as long as the value lives.
    pub(crate) unsafe fn direct(at: NonNull<u8>, bytes: Bytes) -> View {
        View { at, bytes: bytes.get() as usize, own: None }
    }

    /// Addresses of our own for `bytes`, aligned to the page size, with all pages hidden.
    pub(crate) fn hidden(bytes: Bytes, order: Order) -> Result<View, GuestError> {
        let size = order.bytes().get() as usize;
        let all = usize::try_from(bytes.get()).ok().and_then(|bytes| bytes.checked_add(size));
        let all = all.ok_or(GuestError::Host(HostCall::Reserve, libc::ENOMEM))?;
        // SAFETY: a new mapping at an address of the host's choice touches nothing of ours.
        let base = unsafe { libc::mmap(null_mut(), all, READ_WRITE, ZEROS, -1, 0) };
        let base = match NonNull::new(base.cast::<u8>()) {
            Some(at) if base != libc::MAP_FAILED => at,
            _ => return Err(host(HostCall::Reserve, &io::Error::last_os_error())),
        };
        let skip = base.as_ptr().align_offset(size);
        // SAFETY: less than a page, and the mapping is a page larger than what is asked for.
        let at = unsafe { base.add(skip) };
        Ok(View { at, bytes: all - size, own: Some((base, all)) })
    }

    /// Shows the page of `order` at `frame`, from `offset` of the view on.
    ///
    /// # Safety
    /// The page is the guest's until it is hidden again, or the view dropped.
    pub(crate) unsafe fn show(
        &self,
        offset: u64,
        (frame, order): (Frame, Order),
        file: &FrameFile,
    ) -> Result<(), GuestError> {
        let from = file.offset(frame, order)?;
        let how = (libc::MAP_SHARED, file.file.as_raw_fd(), from as i64);
        let at = self.replace(offset, order, how, HostCall::Show)?;
        // SAFETY: the mapping just made. Where the host has no huge pages for it, it uses others.
        unsafe { libc::madvise(at, order.bytes().get() as usize, libc::MADV_HUGEPAGE) };
        Ok(())
    }

    /// Hides the page of `order` from `offset` on.
    pub(crate) fn hide(&self, offset: u64, order: Order) -> Result<(), GuestError> {
        self.replace(offset, order, (ZEROS, -1, 0), HostCall::Hide).map(drop)
    }

    /// Puts another mapping in the place of a page, in one step.
    fn replace(
        &self,
        offset: u64,
        order: Order,
        (flags, fd, from): (i32, i32, i64),
        call: HostCall,
    ) -> Result<*mut c_void, GuestError> {
        let (offset, size) = (offset as usize, order.bytes().get() as usize);
        assert!(self.own.is_some() && offset.is_multiple_of(size) && offset + size <= self.bytes);
        // SAFETY: inside the mapping (above).
        let at = unsafe { self.at.add(offset) }.as_ptr().cast();
        // SAFETY: a page of a mapping of our own. Pointers into it stay good (G4): what is there
        // then is memory as well, zeros of this process or a page of the guest, as `show` was
        // promised.
        let put = unsafe { libc::mmap(at, size, READ_WRITE, flags | libc::MAP_FIXED, fd, from) };
        if put == libc::MAP_FAILED {
            return Err(host(call, &io::Error::last_os_error()));
        }
        Ok(at)
    }

    /// Whether `count` bytes from `offset` on are inside.
    #[inline]
    pub(crate) fn holds(&self, offset: u64, count: usize) -> bool {
        offset.checked_add(count as u64).is_some_and(|end| end <= self.bytes as u64)
    }
    /// `count` bytes from `offset` on, which are inside.
    #[inline]
    pub(crate) fn slice<B: BitmapSlice>(
        &self,
        offset: u64,
        count: usize,
        dirty: impl FnOnce(usize) -> B,
    ) -> VolatileSlice<'_, B> {
        assert!(self.holds(offset, count), "whoever wants a slice asks first");
        // SAFETY: inside, or one past the end for no bytes (above).
        let at = unsafe { self.at.add(offset as usize) }.as_ptr();
        // SAFETY: memory of the guest for as long as `self` is borrowed: of the direct map as
        // promised to `direct`, of a view by G4.
        unsafe { VolatileSlice::with_bitmap(at, count, dirty(offset as usize), None) }
    }
    /// How many they are.
    #[inline]
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
    /// The address of the byte at `offset`, which is inside.
    pub(crate) fn address(&self, offset: u64) -> *mut u8 {
        self.at.as_ptr().wrapping_add(offset as usize)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if let Some((base, all)) = self.own {
            // SAFETY: `hidden` made the mapping, and slices of it borrow the value.
            unsafe { libc::munmap(base.as_ptr().cast(), all) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_host_has_addresses_for_is_an_error() {
        for bytes in [1 << 60, !0x1f_ffff] {
            let got = View::hidden(Bytes::new(bytes), Order::SIZE_2M).map(drop);
            assert_eq!(got, Err(GuestError::Host(HostCall::Reserve, libc::ENOMEM)));
        }
    }

    #[test]
    fn a_view_is_aligned_and_ends_where_it_ends() {
        let view = View::hidden(Bytes::new(4 << 20), Order::SIZE_2M).unwrap();
        assert!(view.address(0).addr().is_multiple_of(2 << 20));
        for (offset, count, holds) in
            [(0, 4 << 20, true), (4 << 20, 0, true), (1, 4 << 20, false), (u64::MAX, 2, false)]
        {
            assert_eq!(view.holds(offset, count), holds, "{offset:#x}");
        }
    }
}
