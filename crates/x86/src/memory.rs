//! Physical memory through the kernel's direct map.
//!
//! **Not here**: the direct map itself, and any check of an address: the contract's caller owns it.
#![allow(unsafe_code)]

use crate::clear::copy;
use crate::{Host, X86};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use foliant_machine::{Caching, PhysMem};
use foliant_units::{Bytes, Pa};

impl<H> X86<'_, H> {
    /// Where `pa` is in the direct map.
    fn at<T>(&self, pa: Pa) -> NonNull<T> {
        let address = self.settings().direct_map.get().wrapping_add(pa.get());
        debug_assert!(address != 0, "the direct map does not contain null");
        // SAFETY: what is mapped for Rust code does not lie at null, and `X86::online`'s caller
        // promises that the direct map is such.
        unsafe { NonNull::new_unchecked(address as usize as *mut T) }
    }

    /// The word at `pa`, shared with walkers and other CPUs.
    ///
    /// # Safety
    /// `pa` is aligned, and owned as a table for as long as the reference is used.
    unsafe fn word(&self, pa: Pa) -> &AtomicU64 {
        // SAFETY: mapped by the settings, aligned and alive by the caller; all accesses to it are
        // atomic.
        unsafe { self.at(pa).as_ref() }
    }
}

// SAFETY: `X86::online`'s caller promises a direct map of all memory it hands out, for good: one
// address per physical address, so distinct ranges do not alias.
unsafe impl<H: Host> PhysMem for X86<'_, H> {
    unsafe fn reach(&self, pa: Pa, _: Bytes) -> NonNull<u8> {
        self.at(pa)
    }

    unsafe fn load(&self, pa: Pa) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { self.word(pa) }.load(Ordering::Acquire)
    }

    unsafe fn zeros(&self, pa: Pa, count: usize) -> usize {
        let first: NonNull<AtomicU64> = self.at(pa);
        // SAFETY: as for `word`, for each of them: they lie side by side in the direct map.
        let words = unsafe { core::slice::from_raw_parts(first.as_ptr(), count) };
        // A branch for eight words, while they are 0.
        let are_zero = |words: &&[AtomicU64; 8]| {
            words.iter().fold(0, |all, word| all | word.load(Ordering::Acquire)) == 0
        };
        let lines = words.as_chunks().0.iter().take_while(are_zero).count() * 8;
        let is_zero = |word: &&AtomicU64| word.load(Ordering::Acquire) == 0;
        lines + words[lines..].iter().take_while(is_zero).count()
    }

    unsafe fn store(&self, pa: Pa, word: u64) {
        // SAFETY: the caller's promise.
        unsafe { self.word(pa) }.store(word, Ordering::Release);
    }

    unsafe fn compare_exchange(&self, pa: Pa, old: u64, new: u64) -> Result<u64, u64> {
        // SAFETY: the caller's promise.
        let word = unsafe { self.word(pa) };
        word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
    }

    unsafe fn clear(&self, pa: Pa, bytes: Bytes, caching: Caching) {
        // SAFETY: owned by the caller; `X86::new` checked that the CPU has the primitive.
        unsafe { self.settings().clear.of(bytes, caching).run(self.at(pa), bytes.get()) };
    }

    unsafe fn copy(&self, from: Pa, to: Pa, bytes: Bytes) {
        // SAFETY: the caller's promise.
        let like = self.settings().clear.of(bytes, Caching::Cached);
        // SAFETY: the caller's promise; `X86::new` checked that the CPU has the primitive.
        unsafe { copy(self.at(from), self.at(to), bytes.get(), like) };
    }
}
