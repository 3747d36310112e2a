//! Physical memory: ranges of host memory that are committed on first touch.
//!
//! One anonymous mapping per range, without swap reservation and without large pages, so that a
//! machine of 1 TiB costs the host what is written and no more. A bit per frame says whether the frame
//! was ever written since it was last known to be zero: clearing a frame whose bit is clear is free,
//! which is what makes long replays fast and small.
//!
//! **Invariants**
//! - I1. A frame whose bit is clear holds zeros, or a write to it is in flight. Writers write *first*
//!   and set the bit after; `clear` takes the bit *first* and zeroes after. So whichever way the two
//!   interleave no written byte hides behind a clear bit.
//! - I2. Mappings live as long as the `Memory`; pointers into them are stable.
//!
//! **Locking**: none. Words are atomics.
//!
//! **Not here**: who owns a frame (`check`), what an access costs (`cost`).
#![allow(unsafe_code)]

use crate::SimError;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use foliant_units::{FRAME_BYTES, FRAME_SHIFT, FrameRange, Pa};

/// From this size on clearing gives the memory back to the host instead of writing zeros.
const GIVE_BACK_BYTES: u64 = 2 << 20;

#[derive(Debug)]
struct Region {
    start: u64,
    bytes: u64,
    base: NonNull<u8>,
    written: NonNull<u8>,
}

/// All memory of one machine.
#[derive(Debug)]
pub(crate) struct Memory {
    regions: Box<[Region]>,
}

// SAFETY: memory::I2; the pointers name mappings that this value owns, and every access through them
// in this file is atomic, an owner's (PhysMem's contract), or behind `&mut self`.
unsafe impl Send for Memory {}
// SAFETY: as for Send.
unsafe impl Sync for Memory {}

fn bitmap_bytes(bytes: u64) -> u64 {
    ((bytes >> FRAME_SHIFT).div_ceil(64) * 8).next_multiple_of(FRAME_BYTES)
}

#[cfg(not(miri))]
fn map(bytes: u64) -> Option<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let at = core::ptr::null_mut();
    // SAFETY: a new anonymous mapping at an address of the host's choice touches nothing of ours.
    let base = unsafe { libc::mmap(at, bytes as usize, prot, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the mapping just made. A refusal only costs host memory.
    unsafe { libc::madvise(base, bytes as usize, libc::MADV_NOHUGEPAGE) };
    NonNull::new(base.cast())
}

#[cfg(not(miri))]
fn unmap(base: NonNull<u8>, bytes: u64) {
    // SAFETY: memory::I2 — `map` made the mapping and its owner is being dropped.
    unsafe { libc::munmap(base.as_ptr().cast(), bytes as usize) };
}

/// Whether the host took the memory back, so that it reads as zero.
#[cfg(not(miri))]
fn give_back(base: NonNull<u8>, bytes: u64) -> bool {
    // SAFETY: a part of a mapping that we own; its content is to become zero.
    unsafe { libc::madvise(base.as_ptr().cast(), bytes as usize, libc::MADV_DONTNEED) == 0 }
}

#[cfg(miri)]
fn layout(bytes: u64) -> core::alloc::Layout {
    core::alloc::Layout::from_size_align(bytes as usize, FRAME_BYTES as usize).expect("a size")
}

#[cfg(miri)]
fn map(bytes: u64) -> Option<NonNull<u8>> {
    // SAFETY: the size is not 0: empty ranges were taken out of the configuration.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout(bytes)) })
}

#[cfg(miri)]
fn unmap(base: NonNull<u8>, bytes: u64) {
    // SAFETY: `map` allocated it with the same layout.
    unsafe { std::alloc::dealloc(base.as_ptr(), layout(bytes)) };
}

#[cfg(miri)]
fn give_back(_: NonNull<u8>, _: u64) -> bool {
    false
}

impl Region {
    fn new(range: FrameRange) -> Result<Region, SimError> {
        let bytes = range.pages().bytes().get();
        let refused = SimError::Host { range };
        let base = map(bytes).ok_or(refused)?;
        let Some(written) = map(bitmap_bytes(bytes)) else {
            unmap(base, bytes);
            return Err(refused);
        };
        Ok(Region { start: range.start().pa().get(), bytes, base, written })
    }

    fn at(&self, offset: u64) -> NonNull<u8> {
        debug_assert!(offset < self.bytes);
        // SAFETY: every caller got `offset` from `Memory::find`, which keeps it inside the mapping.
        unsafe { self.base.add(offset as usize) }
    }

    fn word(&self, offset: u64) -> &AtomicU64 {
        let at = self.at(offset & !7).cast::<AtomicU64>();
        // SAFETY: memory::I2; aligned by the mask, inside the mapping, atomic like every word access.
        unsafe { at.as_ref() }
    }

    /// The bitmap word that holds the frame's bit, and the bit.
    fn bit(&self, frame: u64) -> (&AtomicU64, u64) {
        // SAFETY: `bitmap_bytes` made room for every frame of the region.
        let at = unsafe { self.written.add((frame / 64) as usize * 8) };
        // SAFETY: memory::I2; aligned to 8 because the mapping is page-aligned.
        (unsafe { at.cast::<AtomicU64>().as_ref() }, 1 << (frame % 64))
    }

    fn is_written(&self, frame: u64) -> bool {
        let (word, bit) = self.bit(frame);
        word.load(Ordering::Relaxed) & bit != 0
    }

    fn set_written(&self, frame: u64) {
        let (word, bit) = self.bit(frame);
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    fn take_written(&self, frame: u64) -> bool {
        let (word, bit) = self.bit(frame);
        word.load(Ordering::Relaxed) & bit != 0
            && word.fetch_and(!bit, Ordering::Relaxed) & bit != 0
    }

    /// Zeroes a part of one frame, or all of it, unless it is known to be zero. Only a whole frame loses
    /// its bit; memory::I1 gives the order.
    fn zero(&self, offset: u64, bytes: u64) {
        let frame = offset >> FRAME_SHIFT;
        let whole = bytes == FRAME_BYTES;
        if whole && self.take_written(frame) || !whole && self.is_written(frame) {
            for at in (offset..offset + bytes).step_by(8) {
                self.word(at).store(0, Ordering::Relaxed);
            }
        }
    }

    /// Takes the bits of whole frames; true where one was set.
    fn take_all(&self, first: u64, end: u64) -> bool {
        let (mut any, mut frame) = (false, first);
        while frame < end {
            let (word, bit) = self.bit(frame);
            if bit == 1 && word.load(Ordering::Relaxed) == 0 {
                frame += 64;
                continue;
            }
            any |= self.take_written(frame);
            frame += 1;
        }
        any
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        unmap(self.base, self.bytes);
        unmap(self.written, bitmap_bytes(self.bytes));
    }
}

impl Memory {
    /// Memory for `ranges`, which are sorted and do not overlap.
    pub(crate) fn new(ranges: &[FrameRange]) -> Result<Memory, SimError> {
        let regions = ranges.iter().map(|r| Region::new(*r)).collect::<Result<Vec<_>, _>>()?;
        Ok(Memory { regions: regions.into_boxed_slice() })
    }

    fn find(&self, pa: Pa, bytes: u64) -> Option<(&Region, u64)> {
        self.regions.iter().find_map(|region| {
            let offset = pa.get().checked_sub(region.start)?;
            (offset < region.bytes && bytes <= region.bytes - offset).then_some((region, offset))
        })
    }

    fn expect(&self, pa: Pa, bytes: u64, what: &str) -> (&Region, u64) {
        match self.find(pa, bytes) {
            Some(found) => found,
            None => panic!("{what} of {bytes} bytes at {pa:?}: not memory of this machine"),
        }
    }

    /// Whether `frames` all lie in one range of memory.
    pub(crate) fn holds(&self, frames: FrameRange) -> bool {
        self.find(frames.start().pa(), frames.pages().bytes().get()).is_some()
    }

    /// Reads the word at `pa`, or `None` in a hole.
    pub(crate) fn load(&self, pa: Pa) -> Option<u64> {
        let (region, offset) = self.find(pa, 8)?;
        Some(region.word(offset).load(Ordering::Acquire))
    }

    /// Writes the word at `pa` and gives the old one, or `None` in a hole.
    pub(crate) fn swap(&self, pa: Pa, word: u64) -> Option<u64> {
        let (region, offset) = self.find(pa, 8)?;
        let old = region.word(offset).swap(word, Ordering::AcqRel);
        region.set_written(offset >> FRAME_SHIFT);
        Some(old)
    }

    /// Writes the word at `pa`; in a hole nothing happens.
    pub(crate) fn store(&self, pa: Pa, word: u64) -> Option<()> {
        let (region, offset) = self.find(pa, 8)?;
        region.word(offset).store(word, Ordering::Release);
        region.set_written(offset >> FRAME_SHIFT);
        Some(())
    }

    /// Replaces the word at `pa` if it is `old`, or `None` in a hole.
    pub(crate) fn compare_exchange(&self, pa: Pa, old: u64, new: u64) -> Option<Result<u64, u64>> {
        let (region, offset) = self.find(pa, 8)?;
        let done =
            region.word(offset).compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
        if done.is_ok() {
            region.set_written(offset >> FRAME_SHIFT);
        }
        Some(done)
    }

    /// The host address of `bytes` at `pa`; the frames count as written from now on.
    pub(crate) fn reach(&self, pa: Pa, bytes: u64) -> NonNull<u8> {
        let (region, offset) = self.expect(pa, bytes.max(1), "reach");
        for frame in offset >> FRAME_SHIFT..=(offset + bytes.max(1) - 1) >> FRAME_SHIFT {
            region.set_written(frame);
        }
        region.at(offset)
    }

    /// Clears `bytes` at `pa`, leaving alone what is known to be zero.
    pub(crate) fn clear(&self, pa: Pa, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let (region, start) = self.expect(pa, bytes, "clear");
        let end = start + bytes;
        if bytes >= GIVE_BACK_BYTES
            && (start | end).is_multiple_of(FRAME_BYTES)
            && self.release(region, start, end)
        {
            return;
        }
        let mut at = start;
        while at < end {
            let frame = at >> FRAME_SHIFT;
            let upto = end.min((frame + 1) << FRAME_SHIFT);
            region.zero(at, upto - at);
            at = upto;
        }
        core::sync::atomic::fence(Ordering::Release);
    }

    /// Writes zeros to every byte of `bytes` at `pa`.
    pub(crate) fn clear_really(&self, pa: Pa, bytes: u64) {
        let base = self.reach(pa, bytes);
        // SAFETY: `reach` checked the range; PhysMem::clear's caller owns it.
        unsafe { base.write_bytes(0, bytes as usize) };
    }

    /// Copies `bytes` from `from` to `to`, word by word, since the source may change meanwhile.
    pub(crate) fn copy(&self, from: Pa, to: Pa, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let (source, from) = self.expect(from, bytes, "copy from");
        let (target, to) = self.expect(to, bytes, "copy to");
        let mut at = 0;
        while at < bytes {
            // Up to the next frame border on either side, so that one bit speaks for each.
            let left = |offset: u64| FRAME_BYTES - ((offset + at) & (FRAME_BYTES - 1));
            let chunk = left(from).min(left(to)).min(bytes - at);
            if source.is_written((from + at) >> FRAME_SHIFT) {
                for offset in (at..at + chunk).step_by(8) {
                    let word = source.word(from + offset).load(Ordering::Relaxed);
                    target.word(to + offset).store(word, Ordering::Relaxed);
                }
                target.set_written((to + at) >> FRAME_SHIFT);
            } else {
                target.zero(to + at, chunk);
            }
            at += chunk;
        }
        core::sync::atomic::fence(Ordering::Release);
    }

    /// Gives the host memory of `frames` back; they then read as zero. Nothing happens where it would
    /// cost more than it saves, or for frames that are not memory.
    pub(crate) fn release_host(&self, frames: FrameRange) {
        let bytes = frames.pages().bytes().get();
        if let Some((region, start)) = self.find(frames.start().pa(), bytes) {
            self.release(region, start, start + bytes);
        }
    }

    /// Whole frames of `region`; false where the host refused.
    fn release(&self, region: &Region, start: u64, end: u64) -> bool {
        if !region.take_all(start >> FRAME_SHIFT, end >> FRAME_SHIFT)
            || give_back(region.at(start), end - start)
        {
            return true;
        }
        for frame in start >> FRAME_SHIFT..end >> FRAME_SHIFT {
            region.set_written(frame);
        }
        false
    }
}
