//! Clearing and copying memory: the instructions, and which of them a CPU has.
//!
//! | primitive | goes | needs |
//! |---|---|---|
//! | `StoreQ` | through the cache, 8 bytes at a time or as microcode likes | |
//! | `StoreB` | through the cache, at the CPU's best | ERMS |
//! | `NonTemporal` | past the cache | |
//! | `ClZero` | past the cache, one line at a time | CLZERO |
//!
//! **Invariants**
//! - Z1. When a primitive returns, its zeros are ordered before every later store of this CPU; those that
//!   go past the cache are weakly ordered and end with SFENCE.
//!
//! **Not here**: how much is cleared at once, and whether memory is known to be zero (`foliant::zero`).
#![allow(unsafe_code)]

use crate::Features;
use core::arch::asm;
use core::ptr::NonNull;

/// How memory is cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clear {
    /// `rep stosq`.
    StoreQ,
    /// `rep stosb`.
    StoreB,
    /// MOVNTI, which leaves the cache to others.
    NonTemporal,
    /// CLZERO.
    ClZero,
}

impl Clear {
    /// Every primitive.
    pub const ALL: [Clear; 4] = [Clear::StoreQ, Clear::StoreB, Clear::NonTemporal, Clear::ClZero];

    /// What suits memory that is used soon after: through the cache, by bytes where the CPU says that
    /// this is its fast way. An emulator that says so may still go byte by byte: there
    /// [`StoreQ`](Clear::StoreQ) is better.
    pub const fn preferred(features: &Features) -> Clear {
        if features.erms { Clear::StoreB } else { Clear::StoreQ }
    }

    /// Whether a CPU with `features` has it, and has it for this purpose.
    pub const fn is_usable(self, features: &Features) -> bool {
        match self {
            Clear::StoreQ | Clear::NonTemporal => true,
            Clear::StoreB => features.erms,
            Clear::ClZero => features.clzero,
        }
    }

    /// Clears `bytes` from `at` on, multiples of 64.
    ///
    /// # Safety
    /// The memory is mapped, writable and the caller's alone, and the CPU has the primitive.
    pub(crate) unsafe fn run(self, at: NonNull<u8>, bytes: u64) {
        match self {
            // SAFETY: the caller's promise.
            Clear::StoreQ => unsafe { store_q(at, bytes) },
            // SAFETY: the caller's promise.
            Clear::StoreB => unsafe { store_b(at, bytes) },
            // SAFETY: the caller's promise.
            Clear::NonTemporal => unsafe { non_temporal(at, bytes) },
            // SAFETY: the caller's promise.
            Clear::ClZero => unsafe { clzero(at, bytes) },
        }
    }
}

unsafe fn store_q(at: NonNull<u8>, bytes: u64) {
    // SAFETY: the caller owns `bytes` from `at` on; the direction flag is clear, as the ABI has it.
    unsafe {
        asm!("rep stosq", inout("rdi") at.as_ptr() => _, inout("rcx") bytes / 8 => _, in("rax") 0,
            options(nostack, preserves_flags))
    };
}

unsafe fn store_b(at: NonNull<u8>, bytes: u64) {
    // SAFETY: as in `store_q`.
    unsafe {
        asm!("rep stosb", inout("rdi") at.as_ptr() => _, inout("rcx") bytes => _, in("al") 0u8,
            options(nostack, preserves_flags))
    };
}

unsafe fn non_temporal(at: NonNull<u8>, bytes: u64) {
    // SAFETY: 64 bytes a turn, while some are left: the caller owns them.
    unsafe {
        asm!(
            "jmp 3f",
            "2:",
            "movnti [{at}], {zero}",
            "movnti [{at} + 8], {zero}",
            "movnti [{at} + 16], {zero}",
            "movnti [{at} + 24], {zero}",
            "movnti [{at} + 32], {zero}",
            "movnti [{at} + 40], {zero}",
            "movnti [{at} + 48], {zero}",
            "movnti [{at} + 56], {zero}",
            "add {at}, 64",
            "3:",
            "cmp {at}, {end}",
            "jb 2b",
            "sfence",
            at = inout(reg) at.as_ptr() as u64 => _,
            end = in(reg) at.as_ptr() as u64 + bytes,
            zero = in(reg) 0u64,
            options(nostack)
        )
    };
}

unsafe fn clzero(at: NonNull<u8>, bytes: u64) {
    // SAFETY: one line of 64 bytes a turn, while some are left; CLZERO, in bytes for assemblers that do
    // not know it, clears the line that RAX lies in.
    unsafe {
        asm!(
            "jmp 3f",
            "2:",
            ".byte 0x0f, 0x01, 0xfc",
            "add rax, 64",
            "3:",
            "cmp rax, {end}",
            "jb 2b",
            "sfence",
            end = in(reg) at.as_ptr() as u64 + bytes,
            inout("rax") at.as_ptr() as u64 => _,
            options(nostack)
        )
    };
}

/// Copies `bytes`, a multiple of 8. Whoever changes the source meanwhile changes what is copied, and
/// nothing else.
///
/// # Safety
/// The target is mapped, writable and the caller's alone, the source is mapped, and they do not overlap.
pub(crate) unsafe fn copy(from: NonNull<u8>, to: NonNull<u8>, bytes: u64) {
    // SAFETY: the caller's promise; the direction flag is clear, as the ABI has it. For the compiler this is
    // no access of a Rust object, so a source that changes is no data race.
    unsafe {
        asm!("rep movsq", inout("rsi") from.as_ptr() => _, inout("rdi") to.as_ptr() => _,
            inout("rcx") bytes / 8 => _, options(nostack, preserves_flags))
    };
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    extern crate std;
    use std::{vec, vec::Vec};

    const LINE: usize = 64;

    #[repr(align(64))]
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    struct Block([u8; LINE]);

    fn blocks(count: usize) -> Vec<Block> {
        (0..count).map(|n| Block([n as u8 | 1; LINE])).collect()
    }

    #[test]
    fn every_primitive_of_this_cpu_clears_exactly_what_it_should() {
        let features = Features::detect();
        let usable = Clear::ALL.into_iter().filter(|clear| clear.is_usable(&features));
        for clear in usable {
            for (first, count) in [(1, 0), (1, 1), (3, 2), (1, 64), (7, 1025)] {
                let before = blocks(first + count + 3);
                let mut after = before.clone();
                let at = NonNull::from(&mut after[first]).cast();
                // SAFETY: the blocks are ours and the CPU has the primitive.
                unsafe { clear.run(at, (count * LINE) as u64) };
                let mut want = before;
                want[first..first + count].fill(Block([0; LINE]));
                assert!(after == want, "{clear:?} of {count} lines from line {first}");
            }
        }
    }

    #[test]
    fn a_copy_is_exact() {
        for (first, count) in [(1, 0), (1, 1), (2, 63), (5, 1025)] {
            let mut source = blocks(first + count);
            let mut target = vec![Block([0xee; LINE]); first + count + 3];
            let from = NonNull::from(&mut source[first..]).cast();
            let to = NonNull::from(&mut target[first..]).cast();
            // SAFETY: two vectors of their own.
            unsafe { copy(from, to, (count * LINE) as u64) };
            let mut want = vec![Block([0xee; LINE]); first + count + 3];
            want[first..first + count].copy_from_slice(&source[first..]);
            assert!(target == want, "{count} lines from line {first}");
        }
    }

    #[test]
    fn what_is_preferred_is_usable() {
        let none = Features::BASELINE;
        for features in [none, Features { erms: true, ..none }, Features::detect()] {
            assert!(Clear::preferred(&features).is_usable(&features));
        }
        assert!(!Clear::ClZero.is_usable(&none) && !Clear::StoreB.is_usable(&none));
    }
}
