//! Memory: frames through the direct map, and kernel virtual addresses through the TLB.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use foliant_units::{Bytes, Pa, Va};

/// What becomes of cleared memory next. A hint: whichever it is, the bytes are cleared.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Caching {
    /// It is used soon by this CPU, and should be in its caches.
    Cached,
    /// It is not used soon: what the caches hold already is worth more.
    NonTemporal,
}

impl Caching {
    /// Both.
    pub const ALL: [Caching; 2] = [Caching::Cached, Caching::NonTemporal];
}

/// Physical memory through the direct map.
///
/// The word methods exist for page-table words, which hardware walkers read and update
/// concurrently: each is one single-copy atomic access of an aligned 64-bit word. `load` is an
/// acquire, `store` a release, `compare_exchange` both; a walker that sees a stored word also sees
/// what was written before it. [`reach`](PhysMem::reach) is for memory that no walker looks at.
///
/// # Safety
/// An implementation promises that for memory it was asked to manage the pointers it gives are
/// valid, as aligned as the physical address up to 4 KiB, stable for the life of the machine, and
/// that distinct physical ranges do not alias.
#[allow(unsafe_code)]
pub unsafe trait PhysMem {
    /// The direct-map address of `bytes` from `pa` on.
    ///
    /// # Safety
    /// The range lies inside memory given to Foliant, and the caller owns it for as long as it uses
    /// the pointer.
    unsafe fn reach(&self, pa: Pa, bytes: Bytes) -> NonNull<u8>;

    /// Reads the word at `pa`.
    ///
    /// # Safety
    /// `pa` is 8-byte aligned and lies in a frame owned as a page table.
    unsafe fn load(&self, pa: Pa) -> u64;

    /// How many words from `pa` on are 0 before the first that is not, `count` at most. A machine
    /// may read some that lie behind that, and those that it reads in any order.
    ///
    /// # Safety
    /// As for [`load`](PhysMem::load), for each of the `count` words.
    unsafe fn zeros(&self, pa: Pa, count: usize) -> usize {
        // SAFETY: the caller's promise for each word.
        let is_zero = |nth: &usize| unsafe { self.load(pa.add(*nth as u64 * 8)) } == 0;
        (0..count).take_while(is_zero).count()
    }

    /// Whether `bytes` from `pa` on, multiples of 64 in one frame, are zeros. Programs may write
    /// there meanwhile: each word counts as it was when it was read.
    ///
    /// # Safety
    /// The frame was given to Foliant and stays allocated.
    unsafe fn is_zero(&self, pa: Pa, bytes: Bytes) -> bool {
        // SAFETY: the caller's promise; it is only read, in single-copy atomic words.
        let first = unsafe { self.reach(pa, bytes) }.cast::<AtomicU64>();
        // SAFETY: so many aligned words, all reached just now.
        let words =
            unsafe { core::slice::from_raw_parts(first.as_ptr(), bytes.get() as usize / 8) };
        words.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// Writes the word at `pa`. Accessed and dirty updates of walkers in between are overwritten.
    ///
    /// # Safety
    /// As for [`load`](PhysMem::load), and the new word maps only what its owner may reach.
    unsafe fn store(&self, pa: Pa, word: u64);

    /// Replaces the word at `pa` if it still is `old`; the error is the word found instead.
    /// It does not fail spuriously.
    ///
    /// # Safety
    /// As for [`store`](PhysMem::store).
    unsafe fn compare_exchange(&self, pa: Pa, old: u64, new: u64) -> Result<u64, u64>;

    /// Clears `bytes` from `pa` on, both multiples of 64. Every CPU that sees a later `store` sees
    /// the zeros, cached or not. It may take time proportional to `bytes` without a preemption
    /// point: the caller chops.
    ///
    /// # Safety
    /// The caller owns the frames and no reference into them is alive.
    unsafe fn clear(&self, pa: Pa, bytes: Bytes, caching: Caching);

    /// Copies `bytes` from `from` to `to`, multiples of 64 that do not overlap. The source may
    /// change meanwhile through user mappings; each byte copied is then its old or its new value.
    ///
    /// # Safety
    /// As for [`clear`](PhysMem::clear) on the target; the source stays allocated.
    unsafe fn copy(&self, from: Pa, to: Pa, bytes: Bytes);

    /// Writes `contents`, a multiple of 64 bytes, from `pa` on, itself one. Every CPU that sees a
    /// later `store` sees them.
    ///
    /// # Safety
    /// As for [`clear`](PhysMem::clear).
    unsafe fn write(&self, pa: Pa, contents: &[u8]) {
        // SAFETY: the caller owns the frames, and no reference into them is alive.
        let to = unsafe { self.reach(pa, Bytes::new(contents.len() as u64)) };
        // SAFETY: so many bytes, reached just now; what is borrowed lies elsewhere.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(contents).cast(), contents.len()) }
    }
}

/// A kernel access that found no usable translation. On silicon it is a page fault in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelFault {
    /// The address accessed.
    pub va: Va,
}

/// Kernel virtual addresses, through the translation that the calling CPU has cached or would walk.
///
/// Foliant keeps its frame descriptors there. On silicon a method is the memory access itself; a
/// simulated machine goes through the calling CPU's TLB, so that a descriptor read through a stale
/// translation is *seen* to be stale. All accesses are single-copy atomic 64-bit words with the
/// orderings of [`PhysMem`].
///
/// # Safety
/// An implementation promises that an access reaches the memory that the caller's page tables name,
/// or (stale translation) a memory that they named before, and nothing else.
#[allow(unsafe_code)]
pub unsafe trait KernelVa {
    /// Reads the word at `va`.
    ///
    /// # Safety
    /// `va` is 8-byte aligned, in the kernel half, and mapped by the caller's doing.
    unsafe fn kernel_load(&self, va: Va) -> Result<u64, KernelFault>;

    /// Writes the word at `va`.
    ///
    /// # Safety
    /// As for [`kernel_load`](KernelVa::kernel_load), and the caller's protocol permits the write.
    unsafe fn kernel_store(&self, va: Va, word: u64) -> Result<(), KernelFault>;

    /// Replaces the word at `va` if it still is `old`; the inner error is the word found instead.
    ///
    /// # Safety
    /// As for [`kernel_store`](KernelVa::kernel_store).
    unsafe fn kernel_compare_exchange(
        &self,
        va: Va,
        old: u64,
        new: u64,
    ) -> Result<Result<u64, u64>, KernelFault>;

    /// Writes `word` at `count` addresses, `stride` apart, `va` the lowest and first: the
    /// descriptors of a folio's tails. Each is a write of its own; the error names the first that
    /// was not made.
    ///
    /// # Safety
    /// As for [`kernel_store`](KernelVa::kernel_store), for each address.
    unsafe fn kernel_fill(
        &self,
        va: Va,
        stride: Bytes,
        count: u64,
        word: u64,
    ) -> Result<(), KernelFault> {
        (0..count).try_for_each(|n| {
            // SAFETY: the caller's promise.
            unsafe { self.kernel_store(va.add(n * stride.get()), word) }
        })
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests {
    use super::*;
    use core::cell::Cell;

    /// Eight words from address 0, all there is.
    struct Words([Cell<u64>; 8]);

    impl Words {
        fn word(&self, va: Va) -> Result<&Cell<u64>, KernelFault> {
            self.0.get(va.get() as usize / 8).ok_or(KernelFault { va })
        }
    }

    // SAFETY: the words are the machine's own.
    unsafe impl KernelVa for Words {
        unsafe fn kernel_load(&self, va: Va) -> Result<u64, KernelFault> {
            self.word(va).map(Cell::get)
        }
        unsafe fn kernel_store(&self, va: Va, word: u64) -> Result<(), KernelFault> {
            self.word(va).map(|cell| cell.set(word))
        }
        unsafe fn kernel_compare_exchange(
            &self,
            va: Va,
            old: u64,
            new: u64,
        ) -> Result<Result<u64, u64>, KernelFault> {
            let cell = self.word(va)?;
            let now = cell.get();
            Ok(if now == old { Ok(cell.replace(new)) } else { Err(now) })
        }
    }

    #[test]
    fn a_machine_that_does_not_say_how_fills_word_by_word() {
        let words = Words(Default::default());
        let fill = |first, count| {
            // SAFETY: nobody else has the words.
            unsafe { words.kernel_fill(Va::new(first), Bytes::new(16), count, 7) }
        };
        let now = || words.0.each_ref().map(Cell::get);
        assert_eq!(fill(8, 3), Ok(()));
        assert_eq!(now(), [0, 7, 0, 7, 0, 7, 0, 0], "three, two words apart, and not a fourth");
        assert_eq!(
            fill(32, 3),
            Err(KernelFault { va: Va::new(64) }),
            "the first that is not there"
        );
        assert_eq!(now(), [0, 7, 0, 7, 7, 7, 7, 0]);
        assert_eq!(fill(0, 0), Ok(()));
        assert_eq!(now()[0], 0);
    }
}
