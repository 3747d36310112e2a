//! A small machine: words of memory, no TLB, no other CPU. It hands out frames and counts them.
#![allow(unsafe_code)]

use crate::{Half, Paging, Spare, Tables};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use foliant_claim::Claim;
use foliant_machine::{
    Caching, Cpus, Invalidation, Kept, MmuRules, PhysMem, Replace, Root, Ticket, Tlb,
};
use foliant_units::{Bytes, Cpu, CpuSet, Frame, Order, Pa};
use std::vec::Vec;

pub(crate) struct Board {
    words: Vec<AtomicU64>,
    next: AtomicUsize,
    replace: Replace,
}

impl Board {
    pub(crate) fn new(frames: usize, replace: Replace) -> Board {
        let words = (0..frames * 512).map(|_| AtomicU64::new(0)).collect();
        Board { words, next: AtomicUsize::new(1), replace }
    }
    /// A cleared frame.
    pub(crate) fn claim(&self) -> Claim {
        let frame = self.next.fetch_add(1, Ordering::Relaxed);
        assert!((frame + 1) * 512 <= self.words.len(), "the board is too small");
        // SAFETY: the board has no other way to its frames.
        unsafe { Claim::from_raw(Frame::new(frame as u64), Order::BASE) }
    }
    pub(crate) fn tables<P: Paging>(&self, half: Half) -> Tables<'_, Board, P> {
        Tables::at(self, self.claim().into_raw().0.pa(), half)
    }
    pub(crate) fn refill(&self, spare: &mut Spare) {
        while !spare.is_full() {
            spare.push(self.claim()).expect("there is room");
        }
    }
    /// What hardware does: sets bits in a word at any time.
    pub(crate) fn walker_sets(&self, at: Pa, bits: u64) {
        self.word(at).fetch_or(bits, Ordering::Relaxed);
    }
    /// What hardware does where a bit is cleared to say something: one atomic update.
    pub(crate) fn walker_changes(&self, at: Pa, old: u64, new: u64) {
        let done = self.word(at).compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
        assert_eq!(done, Ok(old));
    }
    /// A walker's atomic update, which fails where the word has changed. `true` where it was done.
    pub(crate) fn walker_tries(&self, at: Pa, old: u64, new: u64) -> bool {
        self.word(at).compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
    /// Reads any word.
    pub(crate) fn peek(&self, at: Pa) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }
    /// How many frames were handed out.
    pub(crate) fn used(&self) -> usize {
        self.next.load(Ordering::Relaxed) - 1
    }
    fn word(&self, pa: Pa) -> &AtomicU64 {
        assert!(pa.is_aligned(Bytes::new(8)));
        &self.words[pa.get() as usize / 8]
    }
}

// SAFETY: the words live as long as the board, and no two addresses share one.
unsafe impl PhysMem for Board {
    unsafe fn reach(&self, pa: Pa, _: Bytes) -> NonNull<u8> {
        NonNull::from(self.word(pa)).cast()
    }
    unsafe fn load(&self, pa: Pa) -> u64 {
        self.word(pa).load(Ordering::Acquire)
    }
    unsafe fn store(&self, pa: Pa, word: u64) {
        self.word(pa).store(word, Ordering::Release);
    }
    unsafe fn compare_exchange(&self, pa: Pa, old: u64, new: u64) -> Result<u64, u64> {
        self.word(pa).compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
    }
    unsafe fn clear(&self, pa: Pa, bytes: Bytes, _: Caching) {
        for n in 0..bytes.get() / 8 {
            self.word(pa.add(n * 8)).store(0, Ordering::Relaxed);
        }
    }
    unsafe fn copy(&self, from: Pa, to: Pa, bytes: Bytes) {
        for n in 0..bytes.get() / 8 {
            let word = self.word(from.add(n * 8)).load(Ordering::Relaxed);
            self.word(to.add(n * 8)).store(word, Ordering::Relaxed);
        }
    }
}

impl Cpus for Board {
    fn me(&self) -> Cpu {
        Cpu(0)
    }
    fn count(&self) -> usize {
        1
    }
    fn pinned<R>(&self, work: impl FnOnce(Cpu) -> R) -> R {
        work(Cpu(0))
    }
    fn relax(&self) {
        std::thread::yield_now();
    }
}

impl Tlb for Board {
    fn activate(&self, _: Root, _: Kept) {}
    fn invalidate(&self, _: &Invalidation) {}
    fn ask(&self, _: &CpuSet, _: &Invalidation) -> Ticket {
        Ticket::new(0)
    }
    fn wait(&self, _: Ticket) {}
    fn rules(&self) -> MmuRules {
        MmuRules {
            replace: self.replace,
            accessed: foliant_machine::Accessed::SetBeforeCached,
            faults: foliant_machine::Faults::KeepTranslation,
            ceiling_entries: 33,
        }
    }
}
