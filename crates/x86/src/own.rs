//! Words that one CPU alone adds to.
//!
//! One instruction that reads and writes memory is not interrupted half way, so on the CPU that it
//! runs on nothing comes in between (Intel SDM 3A, 6.6: an interrupt is taken at the boundary of
//! instructions). Other CPUs do not write to the word, so it is not locked against them. An aligned
//! word is read and written whole (9.1.1), and stores are seen in their order (9.2.2).
#![allow(unsafe_code)]

use core::arch::asm;
use core::sync::atomic::AtomicU64;

/// [`Cpus::add_own`](foliant_machine::Cpus::add_own).
#[inline]
pub(crate) fn add(word: &AtomicU64, by: u64) {
    // SAFETY: the word is there, and shared by atomic accesses alone; the instruction reads and
    // writes nothing else. It is a release, as every store here, and the compiler moves nothing
    // over it.
    unsafe { asm!("add qword ptr [{}], {}", in(reg) word.as_ptr(), in(reg) by, options(nostack)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering;

    #[test]
    fn sums_wrap() {
        let word = AtomicU64::new(5);
        for (by, sum) in [(7, 12), (u64::MAX, 11), (11u64.wrapping_neg(), 0), (u64::MAX, u64::MAX)]
        {
            add(&word, by);
            assert_eq!(word.load(Ordering::Relaxed), sum);
        }
    }
}
