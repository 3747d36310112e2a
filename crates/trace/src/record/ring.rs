//! One perf ring: memory that the kernel writes records to and we read them from.
//!
//! The kernel moves `data_head` up after it has written a record; we move `data_tail` up after we
//! have copied one. Both count bytes and never wrap; a place in the ring is their remainder.
//!
//! **Invariants**
//! - R1. `base` points to one control page and `size` data bytes, mapped for as long as the ring
//!   lives; `size` is a power of two.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: usize = 4096;
const HEAD: usize = 1024;
const TAIL: usize = 1032;

pub(crate) struct Ring {
    base: NonNull<u8>,
    size: usize,
}

// SAFETY: the mapping belongs to the process and not to a thread, and `Ring` is its only user.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps a ring of `size` data bytes, a power of two of at least a page.
    pub(crate) fn map(fd: &OwnedFd, size: usize) -> io::Result<Ring> {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let null = std::ptr::null_mut();
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let at = unsafe { libc::mmap(null, PAGE + size, prot, flags, fd.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(at.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::Other))?;
        Ok(Ring { base, size })
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: R1: the offset lies in the control page.
        let at = unsafe { self.base.add(offset) };
        // SAFETY: the word is aligned, lives as long as the ring, and both sides use it atomically.
        unsafe { at.cast::<AtomicU64>().as_ref() }
    }

    /// Hands every whole record (header included) to `each` and gives its room back.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(&[u8])) {
        let mut record = Vec::new();
        let mut tail = self.word(TAIL).load(Ordering::Relaxed);
        let head = self.word(HEAD).load(Ordering::Acquire);
        while head.wrapping_sub(tail) >= 8 {
            record.clear();
            self.copy(tail, 8, &mut record);
            let length = usize::from(u16::from_le_bytes([record[6], record[7]]));
            if length < 8 || length as u64 > head.wrapping_sub(tail) {
                tail = head;
                break;
            }
            self.copy(tail.wrapping_add(8), length - 8, &mut record);
            each(&record);
            tail = tail.wrapping_add(length as u64);
            self.word(TAIL).store(tail, Ordering::Release);
        }
        self.word(TAIL).store(tail, Ordering::Release);
    }

    fn copy(&self, at: u64, length: usize, into: &mut Vec<u8>) {
        let from = (at % self.size as u64) as usize;
        let first = length.min(self.size - from);
        for (offset, n) in [(from, first), (0, length - first)] {
            // SAFETY: R1: offset + n is at most `size`, behind the control page.
            let start = unsafe { self.base.add(PAGE + offset) };
            // SAFETY: the kernel does not write between tail and head, so these bytes stand still.
            let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), n) };
            into.extend_from_slice(bytes);
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: R1: this is the whole mapping, and no reference into it is left.
        unsafe { libc::munmap(self.base.as_ptr().cast(), PAGE + self.size) };
    }
}
