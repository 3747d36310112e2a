//! Physical memory: ranges of host memory that are committed on first touch.
//!
//! One anonymous mapping per range, without swap reservation and without large pages, so that a
//! machine of 1 TiB costs the host what is written and no more. A bit per frame says whether the
//! frame was ever written since it was last known to be zero: clearing a frame whose bit is clear
//! is free, which is what makes long replays fast and small.
//!
//! In a compact machine a frame that holds one word at every 64th byte and zeros between, as
//! descriptors of tails do, takes that word of host memory instead of 4096 bytes: a terabyte has 16
//! GiB of descriptors.
//!
//! Where the memory is a file, all ranges are one, without a name (`memfd`) and with holes where
//! nothing was written, so that a process can map any frames at other addresses too.
//!
//! **Invariants**
//! - I1. A frame whose bit is clear holds zeros, or a write to it is in flight. Writers of words
//!   write *first* and set the bit after; `clear` takes the bit *first* and zeroes after. So
//!   whichever way the two interleave no written byte hides behind a clear bit. `reach` sets the
//!   bit first: the caller owns what it writes through the pointer.
//! - I2. Mappings live as long as the `Memory`; pointers into them are stable.
//! - I3. Where a frame's uniform word is not 0, the frame reads as that word at every 64th byte and
//!   0 between, its bit is set, and its host memory holds zeros. A writer of anything else spreads
//!   the word out first.
//!
//! - I4. Offset 0 of a file is the frame [`first_of_file`] below the lowest range, a multiple of 1
//!   GiB: what is aligned as memory is aligned in the file.
//!
//! **Locking**: none. Words are atomics. In a compact machine one CPU at a time writes to a frame,
//! and no other one reads it then.
//!
//! **Not here**: the owner of a frame (`check`), what an access costs (`cost`).
#![allow(unsafe_code)]

use crate::SimError;
use crate::config::Backing;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use foliant_units::{FRAME_BYTES, FRAME_SHIFT, Frame, FrameRange, Order, Pa};
#[cfg(not(miri))]
use std::os::fd::AsRawFd;
use std::{fs::File, sync::Arc};

/// From this size on clearing gives the memory back to the host instead of writing zeros.
const GIVE_BACK_BYTES: u64 = 2 << 20;
/// The distance of uniform words.
const STRIDE: u64 = 64;

#[derive(Debug)]
struct Region {
    start: u64,
    bytes: u64,
    base: NonNull<u8>,
    written: NonNull<u8>,
    /// A word per frame, in a compact machine.
    uniform: Option<NonNull<u8>>,
    held: Held,
}

/// What holds a region's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Held {
    Anonymously,
    InFile,
}

/// All memory of one machine.
#[derive(Debug)]
pub(crate) struct Memory {
    regions: Box<[Region]>,
    file: Option<(Arc<File>, Frame)>,
}

// SAFETY: memory::I2; the pointers name mappings that this value owns, and every access through
// them in this file is atomic, an owner's (PhysMem's contract), or behind `&mut self`.
unsafe impl Send for Memory {}
// SAFETY: as for Send.
unsafe impl Sync for Memory {}

fn uniform_bytes(bytes: u64) -> u64 {
    ((bytes >> FRAME_SHIFT) * 8).next_multiple_of(FRAME_BYTES)
}

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

/// A file without a name that has room for all ranges, and the frame at its offset 0.
#[cfg(not(miri))]
fn file(ranges: &[FrameRange]) -> Option<(Arc<File>, Frame)> {
    use std::os::fd::FromRawFd;
    let (first, last) = (first_of_file(ranges.first()?), ranges.last()?);
    // SAFETY: a name that ends with 0, and flags.
    let fd = unsafe {
        libc::memfd_create(c"foliant-sim".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
    };
    if fd < 0 {
        return None;
    }
    // SAFETY: the descriptor is new, and nobody else's.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(last.end().pa().get() - first.pa().get()).ok()?;
    Some((Arc::new(file), first))
}

/// Maps a part of the file, for all who map it to share.
#[cfg(not(miri))]
fn map_file(file: &File, offset: u64, bytes: u64) -> Option<NonNull<u8>> {
    let (flags, prot) =
        (libc::MAP_SHARED | libc::MAP_NORESERVE, libc::PROT_READ | libc::PROT_WRITE);
    let (at, fd) = (core::ptr::null_mut(), file.as_raw_fd());
    // SAFETY: a new mapping at an address of the host's choice touches nothing of ours.
    let base = unsafe { libc::mmap(at, bytes as usize, prot, flags, fd, offset as libc::off_t) };
    if base == libc::MAP_FAILED { None } else { NonNull::new(base.cast()) }
}

#[cfg(not(miri))]
fn unmap(base: NonNull<u8>, bytes: u64) {
    // SAFETY: memory::I2: `map` made the mapping and its owner is being dropped.
    unsafe { libc::munmap(base.as_ptr().cast(), bytes as usize) };
}

/// Whether the host took the memory back, so that it reads as zero.
#[cfg(not(miri))]
fn give_back(base: NonNull<u8>, bytes: u64, held: Held) -> bool {
    let advice = match held {
        Held::Anonymously => libc::MADV_DONTNEED,
        Held::InFile => libc::MADV_REMOVE,
    };
    // SAFETY: a part of a mapping that we own; its content is to become zero.
    unsafe { libc::madvise(base.as_ptr().cast(), bytes as usize, advice) == 0 }
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
fn give_back(_: NonNull<u8>, _: u64, _: Held) -> bool {
    false
}

#[cfg(miri)]
fn file(_: &[FrameRange]) -> Option<(Arc<File>, Frame)> {
    None
}

#[cfg(miri)]
fn map_file(_: &File, _: u64, _: u64) -> Option<NonNull<u8>> {
    None
}

/// See memory::I4.
#[cfg(not(miri))]
fn first_of_file(lowest: &FrameRange) -> Frame {
    Frame::new(lowest.start().get() & !(Order::SIZE_1G.pages().get() - 1))
}

impl Region {
    fn new(
        range: FrameRange,
        backing: Backing,
        file: Option<&(Arc<File>, Frame)>,
    ) -> Result<Region, SimError> {
        let bytes = range.pages().bytes().get();
        let refused = SimError::Host { range };
        let (base, held) = match file {
            None => (map(bytes), Held::Anonymously),
            Some((file, first)) => {
                let offset = range.start().pa().get() - first.pa().get();
                (map_file(file, offset, bytes), Held::InFile)
            }
        };
        let base = base.ok_or(refused)?;
        let Some(written) = map(bitmap_bytes(bytes)) else {
            unmap(base, bytes);
            return Err(refused);
        };
        let start = range.start().pa().get();
        let mut region = Region { start, bytes, base, written, uniform: None, held };
        if backing == Backing::Compact {
            region.uniform = Some(map(uniform_bytes(bytes)).ok_or(refused)?);
        }
        Ok(region)
    }

    /// The word that stands for all of the frame, if it is not 0.
    #[inline]
    fn uniform(&self, frame: u64) -> Option<&AtomicU64> {
        // SAFETY: `uniform_bytes` made room for every frame of the region.
        let at = unsafe { self.uniform?.add(frame as usize * 8) };
        // SAFETY: memory::I2; aligned to 8 because the mapping is page-aligned.
        Some(unsafe { at.cast::<AtomicU64>().as_ref() })
    }
    #[inline]
    fn stands_for_all(&self, frame: u64) -> Option<u64> {
        let word = self.uniform(frame)?.load(Ordering::Acquire);
        (word != 0).then_some(word)
    }

    /// Writes out a frame that one word stood for (memory::I3).
    #[inline]
    fn spread(&self, frame: u64) {
        if let Some(uniform) = self.uniform(frame) {
            let word = uniform.load(Ordering::Acquire);
            if word != 0 {
                let start = frame << FRAME_SHIFT;
                for offset in (start..start + FRAME_BYTES).step_by(STRIDE as usize) {
                    self.word(offset).store(word, Ordering::Relaxed);
                }
                uniform.store(0, Ordering::Release);
            }
        }
    }

    /// Lets `word` stand for all of a frame that is to hold `word` at every 64th byte. False where
    /// it cannot: the memory is not compact, the frame holds something between, or the host does
    /// not take its memory back.
    fn stand_for_all(&self, frame: u64, word: u64) -> bool {
        let Some(uniform) = self.uniform(frame) else { return false };
        let (start, stands) = (frame << FRAME_SHIFT, uniform.load(Ordering::Acquire) != 0);
        let differs = || self.lines(frame).any(|(_, rest)| rest != 0);
        if !stands
            && self.is_written(frame)
            && (differs() || !give_back(self.at(start), FRAME_BYTES, self.held))
        {
            return false;
        }
        uniform.store(word, Ordering::Release);
        match word {
            0 => _ = self.take_written(frame),
            _ => self.set_written(frame),
        }
        true
    }

    /// The lines of 64 bytes of a frame: of each its first word, and the others in one, which is 0
    /// if all of them are.
    fn lines(&self, frame: u64) -> impl Iterator<Item = (u64, u64)> {
        let start = frame << FRAME_SHIFT;
        let word = |at: u64| self.word(at).load(Ordering::Relaxed);
        let line =
            move |at: u64| (word(at), (1..STRIDE / 8).fold(0, |any, nth| any | word(at + nth * 8)));
        (start..start + FRAME_BYTES).step_by(STRIDE as usize).map(line)
    }
    /// The word that could stand for all of a frame that is written out.
    fn alike(&self, frame: u64) -> Option<u64> {
        let first = self.word(frame << FRAME_SHIFT).load(Ordering::Relaxed);
        self.lines(frame).all(|line| line == (first, 0)).then_some(first)
    }

    /// A word as it is read.
    #[inline]
    fn read(&self, offset: u64) -> u64 {
        match self.stands_for_all(offset >> FRAME_SHIFT) {
            Some(word) if offset & (STRIDE - 1) < 8 => word,
            Some(_) => 0,
            None => self.word(offset).load(Ordering::Acquire),
        }
    }
    /// Writes a word by `write`, and marks its frame as written afterwards.
    #[inline]
    fn write<R>(&self, offset: u64, write: impl FnOnce(&AtomicU64) -> R) -> R {
        self.spread(offset >> FRAME_SHIFT);
        let done = write(self.word(offset));
        self.set_written(offset >> FRAME_SHIFT);
        done
    }

    fn at(&self, offset: u64) -> NonNull<u8> {
        debug_assert!(offset < self.bytes);
        // SAFETY: every caller got `offset` from `Memory::find`, which keeps it inside the mapping.
        unsafe { self.base.add(offset as usize) }
    }

    fn word(&self, offset: u64) -> &AtomicU64 {
        let at = self.at(offset & !7).cast::<AtomicU64>();
        // SAFETY: memory::I2; aligned by the mask, inside the mapping, atomic like every word
        // access.
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

    /// Zeroes a part of one frame, or all of it, unless it is known to be zero. Only a whole frame
    /// loses its bit; memory::I1 gives the order.
    fn zero(&self, offset: u64, bytes: u64) {
        let frame = offset >> FRAME_SHIFT;
        let whole = bytes == FRAME_BYTES;
        if !whole {
            self.spread(frame);
        } else if let Some(uniform) = self.uniform(frame)
            && uniform.swap(0, Ordering::AcqRel) != 0
        {
            self.take_written(frame); // the host memory holds zeros
            return;
        }
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
            if let Some(uniform) = self.uniform(frame) {
                uniform.store(0, Ordering::Release);
            }
            frame += 1;
        }
        any
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        unmap(self.base, self.bytes);
        unmap(self.written, bitmap_bytes(self.bytes));
        if let Some(uniform) = self.uniform {
            unmap(uniform, uniform_bytes(self.bytes));
        }
    }
}

impl Memory {
    /// Memory for `ranges`, which are sorted and do not overlap.
    pub(crate) fn new(ranges: &[FrameRange], backing: Backing) -> Result<Memory, SimError> {
        let file = match (backing, ranges.first()) {
            (Backing::File, Some(lowest)) => {
                Some(file(ranges).ok_or(SimError::Host { range: *lowest })?)
            }
            _ => None,
        };
        let region = |range: &FrameRange| Region::new(*range, backing, file.as_ref());
        let regions = ranges.iter().map(region).collect::<Result<Vec<_>, _>>()?;
        Ok(Memory { regions: regions.into_boxed_slice(), file })
    }

    /// The file that holds all of it, and the frame at its offset 0.
    pub(crate) fn file(&self) -> Option<&(Arc<File>, Frame)> {
        self.file.as_ref()
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
        Some(region.read(offset))
    }

    /// Whether the frame at `pa` holds nothing but zeros for certain (memory::I1).
    pub(crate) fn is_known_zero(&self, pa: Pa) -> bool {
        self.find(pa, FRAME_BYTES)
            .is_some_and(|(region, offset)| !region.is_written(offset >> FRAME_SHIFT))
    }

    /// Whether `bytes` from `pa` on, all in one frame, are zeros.
    pub(crate) fn is_zero(&self, pa: Pa, bytes: u64) -> bool {
        let (region, offset) = self.expect(pa, bytes, "is_zero");
        !region.is_written(offset >> FRAME_SHIFT)
            || (offset..offset + bytes).step_by(8).all(|at| region.read(at) == 0)
    }
    /// Sees that the frame at `pa` does not hold zeros alone; in a hole nothing happens. In a
    /// compact machine one that did takes a word of the host's memory.
    pub(crate) fn mark(&self, pa: Pa) {
        if self.is_known_zero(pa) {
            self.fill(pa, STRIDE, FRAME_BYTES / STRIDE, 1);
        }
    }

    /// Writes the word at `pa` and gives the old one, or `None` in a hole.
    pub(crate) fn swap(&self, pa: Pa, word: u64) -> Option<u64> {
        let (region, offset) = self.find(pa, 8)?;
        Some(region.write(offset, |at| at.swap(word, Ordering::AcqRel)))
    }

    /// Writes the word at `pa`; in a hole nothing happens.
    pub(crate) fn store(&self, pa: Pa, word: u64) -> Option<()> {
        let (region, offset) = self.find(pa, 8)?;
        region.write(offset, |at| at.store(word, Ordering::Release));
        Some(())
    }

    /// Writes the word at `count` addresses of one frame, `stride` apart; in a hole nothing
    /// happens.
    pub(crate) fn fill(&self, pa: Pa, stride: u64, count: u64, word: u64) {
        let Some((region, offset)) = self.find(pa, 8) else { return };
        let frame = offset >> FRAME_SHIFT;
        let all = (stride, count, offset % FRAME_BYTES) == (STRIDE, FRAME_BYTES / STRIDE, 0);
        if all && region.stand_for_all(frame, word) {
            return;
        }
        region.spread(frame);
        for nth in 0..count {
            region.word(offset + nth * stride).store(word, Ordering::Release);
        }
        region.set_written(frame);
    }

    /// Replaces the word at `pa` if it is `old`, or `None` in a hole.
    pub(crate) fn compare_exchange(&self, pa: Pa, old: u64, new: u64) -> Option<Result<u64, u64>> {
        let (region, offset) = self.find(pa, 8)?;
        region.spread(offset >> FRAME_SHIFT);
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
            region.spread(frame);
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

    /// Writes `contents` from `pa` on.
    pub(crate) fn write(&self, pa: Pa, contents: &[u8]) {
        let to = self.reach(pa, contents.len() as u64);
        let from = NonNull::from(contents).cast();
        // SAFETY: `reach` checked the range; PhysMem::write's caller owns it.
        unsafe { to.copy_from_nonoverlapping(from, contents.len()) };
        core::sync::atomic::fence(Ordering::Release);
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
            // A chunk goes up to the next frame border on either side, so that one bit speaks for
            // each side.
            let left = |offset: u64| FRAME_BYTES - ((offset + at) & (FRAME_BYTES - 1));
            let chunk = left(from).min(left(to)).min(bytes - at);
            let (there, here) = ((from + at) >> FRAME_SHIFT, (to + at) >> FRAME_SHIFT);
            if chunk == FRAME_BYTES
                && let Some(word) = source.stands_for_all(there)
            {
                target.zero(to + at, chunk);
                target.stand_for_all(here, word);
            } else if chunk == FRAME_BYTES
                && source.uniform.is_some()
                && let Some(word) = source.alike(there)
            {
                target.zero(to + at, chunk);
                target.stand_for_all(here, word);
            } else if source.is_written(there) {
                source.spread(there);
                target.spread(here);
                for offset in (at..at + chunk).step_by(8) {
                    let word = source.word(from + offset).load(Ordering::Relaxed);
                    target.word(to + offset).store(word, Ordering::Relaxed);
                }
                target.set_written(here);
            } else {
                target.zero(to + at, chunk);
            }
            at += chunk;
        }
        core::sync::atomic::fence(Ordering::Release);
    }

    /// Gives the host memory of `frames` back; they then read as zero. Nothing happens where none
    /// of them was written, or for frames that are not memory.
    pub(crate) fn release_host(&self, frames: FrameRange) {
        let bytes = frames.pages().bytes().get();
        if let Some((region, start)) = self.find(frames.start().pa(), bytes) {
            self.release(region, start, start + bytes);
        }
    }

    /// Gives whole frames of `region` back; false where the host refused.
    fn release(&self, region: &Region, start: u64, end: u64) -> bool {
        if !region.take_all(start >> FRAME_SHIFT, end >> FRAME_SHIFT)
            || give_back(region.at(start), end - start, region.held)
        {
            return true;
        }
        for frame in start >> FRAME_SHIFT..end >> FRAME_SHIFT {
            region.set_written(frame);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foliant_units::{Frame, Pages};

    /// What is written by a frame's number is at its offset of the file (memory::I4), and what is
    /// given back takes no memory there.
    #[cfg(not(miri))] // there are no such files
    #[test]
    fn a_file_holds_each_frame_at_its_offset() {
        use std::os::unix::fs::{FileExt, MetadataExt};
        let range = |start| FrameRange::new(Frame::new(start), Pages::new(1024)).unwrap();
        let ranges = [range((1 << 18) + 512), range((1 << 18) + 4096)];
        let memory = Memory::new(&ranges, Backing::File).unwrap();
        let (file, first) = memory.file().unwrap();
        assert_eq!((first.get(), file.metadata().unwrap().len()), (1 << 18, 5120 << 12));
        for range in ranges {
            let at = range.start().pa().add(8);
            memory.store(at, 42);
            let mut word = [0; 8];
            file.read_exact_at(&mut word, at.get() - first.pa().get()).unwrap();
            assert_eq!(u64::from_ne_bytes(word), 42);
            assert_ne!(file.metadata().unwrap().blocks(), 0);
            memory.clear(range.start().pa(), GIVE_BACK_BYTES);
            assert_eq!((file.metadata().unwrap().blocks(), memory.load(at)), (0, Some(0)));
            file.set_len(0).unwrap(); // a load takes memory too
            file.set_len(5120 << 12).unwrap();
        }
        assert!(Memory::new(&ranges, Backing::Whole).unwrap().file().is_none());
    }

    /// Four frames, held by uniform words or not: whatever is written reads the same.
    #[cfg(not(miri))] // without an operating system no memory is given back
    #[test]
    fn a_compact_memory_reads_like_a_whole_one() {
        let range = FrameRange::new(Frame::new(512), Pages::new(4)).unwrap();
        let [whole, compact] =
            [Backing::Whole, Backing::Compact].map(|b| Memory::new(&[range], b).unwrap());
        let start = range.start().pa();
        let (mut state, mut alike) = (1u64, 0);
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..20_000 {
            let (frame, word) = (start.add(random(4) * FRAME_BYTES), random(3));
            let at = frame.add(random(512) * 8);
            let (other, what) = (start.add(random(4) * FRAME_BYTES), random(8));
            for memory in [&whole, &compact] {
                match what {
                    0..=2 => memory.fill(frame, STRIDE, FRAME_BYTES / STRIDE, word),
                    3 => memory.fill(frame.add(STRIDE), STRIDE, 63, word),
                    4 => _ = memory.store(at, word),
                    5 => _ = memory.compare_exchange(at, 0, word),
                    6 => memory.clear(frame, FRAME_BYTES),
                    _ if frame != other => memory.copy(other, frame, FRAME_BYTES),
                    _ => _ = memory.reach(at, 8),
                }
            }
            let region = &compact.regions[0];
            alike += (0..4).filter(|frame| region.stands_for_all(*frame).is_some()).count();
            for at in (0..4 * FRAME_BYTES).step_by(8).map(|offset| start.add(offset)) {
                assert_eq!(whole.load(at), compact.load(at), "{at:?}");
            }
        }
        assert!(alike > 1000, "one word stood for a frame {alike} times");
    }
}
