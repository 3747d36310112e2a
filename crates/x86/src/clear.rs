//! Clearing and copying memory: the instructions, and which of them a CPU has.
//!
//! | primitive | goes | needs |
//! |---|---|---|
//! | `StoreQ` | through the cache, 8 bytes at a time or as microcode likes | |
//! | `StoreB` | through the cache, as microcode likes | ERMS |
//! | `Store16`, `Store32`, `Store64` | through the cache, a vector register at a time | vector registers of that width |
//! | `Lent32` | as `Store32`, by a register whose upper half is somebody else's (Z2) | AVX, and a CPU that tells whether upper halves are in use |
//! | `Past8` | past the cache, a general register at a time | |
//! | `Past16`, `Past32`, `Past64` | past the cache, a vector register at a time | vector registers of that width |
//! | `ClZero` | past the cache, one line at a time | CLZERO |
//!
//! **Invariants**
//! - Z1. When a primitive returns, its zeros are ordered before every later store of this CPU;
//!   those that go past the cache are weakly ordered and end with SFENCE.
//! - Z2. `Lent32` leaves every upper half as it was, and to the CPU as much in use: SSE
//!   instructions of a program that has never used one are slow behind one that is.
//!
//! **Not here**: which one is best (`choice`), how much is cleared at once, and whether memory is
//! known to be zero (`foliant::zero`).
#![allow(unsafe_code)]

use crate::features::{self, Features, Vectors};
use core::arch::asm;
use core::fmt;
use core::ptr::NonNull;
use foliant_units::Bytes;

/// Every primitive clears a multiple of so many bytes.
pub(crate) const LINE: u64 = 64;

/// How memory is cleared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clear {
    /// `rep stosq`.
    StoreQ,
    /// `rep stosb`.
    StoreB,
    /// Stores of 16 bytes.
    Store16,
    /// Stores of 32 bytes.
    Store32,
    /// Stores of 32 bytes from a register that is given back.
    Lent32,
    /// Stores of 64 bytes.
    Store64,
    /// Stores of 8 bytes that go past the cache.
    Past8,
    /// The same of 16 bytes.
    Past16,
    /// The same of 32 bytes.
    Past32,
    /// The same of 64 bytes.
    Past64,
    /// CLZERO.
    ClZero,
}

/// The CPU lacks a primitive, or the system does not keep the registers that it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unusable(pub Clear);

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the cpu has no {}: take one that Clear::is_usable", self.0)
    }
}
impl core::error::Error for Unusable {}

impl fmt::Display for Clear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Clear::StoreQ => "rep stosq",
            Clear::StoreB => "rep stosb",
            Clear::Store16 => "movaps 16",
            Clear::Store32 => "vmovaps 32",
            Clear::Lent32 => "vmovaps 32, lent",
            Clear::Store64 => "vmovaps 64",
            Clear::Past8 => "movnti 8",
            Clear::Past16 => "movntps 16",
            Clear::Past32 => "vmovntps 32",
            Clear::Past64 => "vmovntps 64",
            Clear::ClZero => "clzero",
        })
    }
}

/// A loop over lines. `$store` says how one of them is cleared, in `$wide` bytes at RAX + `at`:
/// `$turn` bytes a turn while so much is left, since a turn of one line is a third overhead, then a
/// line.
macro_rules! lines {
    ($first:expr, $bytes:expr, [$($before:literal),*], [$wide:literal, $store:literal, $turn:literal], [$($after:literal),*]) => {
        // SAFETY: as many bytes a turn as are left at least: the caller owns them, and has the
        // instructions.
        unsafe {
            asm!(
                $($before,)*
                "jmp 3f",
                "2:",
                "at = 0",
                concat!(".rept ", $turn, " / ", $wide),
                $store,
                concat!("at = at + ", $wide),
                ".endr",
                concat!("add rax, ", $turn),
                "3:",
                concat!("lea {turn}, [rax + ", $turn, "]"),
                "cmp {turn}, {end}",
                "jbe 2b",
                "jmp 5f",
                "4:",
                "at = 0",
                concat!(".rept 64 / ", $wide),
                $store,
                concat!("at = at + ", $wide),
                ".endr",
                "add rax, 64",
                "5:",
                "cmp rax, {end}",
                "jb 4b",
                $($after,)*
                end = in(reg) $first.as_ptr() as u64 + $bytes,
                turn = out(reg) _,
                inout("rax") $first.as_ptr() as u64 => _,
                in("rdx") 0u64,
                // VZEROUPPER changes them all where the program around it keeps wider values in
                // them.
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                out("xmm4") _, out("xmm5") _, out("xmm6") _, out("xmm7") _,
                out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                options(nostack)
            )
        }
    };
}

impl Clear {
    /// Every primitive.
    pub const ALL: [Clear; 11] = [
        Clear::StoreQ,
        Clear::StoreB,
        Clear::Store16,
        Clear::Store32,
        Clear::Lent32,
        Clear::Store64,
        Clear::Past8,
        Clear::Past16,
        Clear::Past32,
        Clear::Past64,
        Clear::ClZero,
    ];

    /// Whether a CPU with `features` has it.
    pub const fn is_usable(self, features: &Features) -> bool {
        let vectors = features.vectors as u8;
        match self {
            Clear::StoreQ | Clear::Past8 => true,
            Clear::StoreB => features.erms,
            Clear::Store16 | Clear::Past16 => vectors >= Vectors::Bytes16 as u8,
            Clear::Store32 | Clear::Past32 => vectors >= Vectors::Bytes32 as u8,
            Clear::Lent32 => vectors >= Vectors::Lent32 as u8 && features.in_use,
            Clear::Store64 | Clear::Past64 => vectors >= Vectors::Bytes64 as u8,
            Clear::ClZero => features.clzero,
        }
    }
    /// Whether what it clears is in the cache afterwards.
    pub const fn is_cached(self) -> bool {
        match self {
            Clear::StoreQ | Clear::StoreB => true,
            Clear::Store16 | Clear::Store32 | Clear::Lent32 | Clear::Store64 => true,
            Clear::Past8 | Clear::Past16 | Clear::Past32 | Clear::Past64 | Clear::ClZero => false,
        }
    }

    /// The primitive as this CPU may use it: `features` allow it, and the CPU has it.
    pub fn here(self, features: &Features) -> Result<Primitive, Unusable> {
        match self.is_usable(features) && self.is_usable(&Features::detect()) {
            true => Ok(Primitive(self)),
            false => Err(Unusable(self)),
        }
    }

    /// Clears `bytes` from `at` on, multiples of 64.
    ///
    /// # Safety
    /// The memory is mapped, writable and the caller's alone, and the CPU has the primitive.
    pub(crate) unsafe fn run(self, at: NonNull<u8>, bytes: u64) {
        match self {
            // SAFETY: the caller's promise; the direction flag is clear, as the ABI has it.
            Clear::StoreQ => unsafe {
                asm!("rep stosq", inout("rdi") at.as_ptr() => _, inout("rcx") bytes / 8 => _,
                    in("rax") 0, options(nostack, preserves_flags))
            },
            // SAFETY: as for `StoreQ`.
            Clear::StoreB => unsafe {
                asm!("rep stosb", inout("rdi") at.as_ptr() => _, inout("rcx") bytes => _,
                    in("al") 0u8, options(nostack, preserves_flags))
            },
            Clear::Store16 => {
                lines!(at, bytes, ["xorps xmm0, xmm0"], [16, "movaps [rax + at], xmm0", 1024], [])
            }
            Clear::Store32 => lines!(
                at,
                bytes,
                ["vxorps ymm0, ymm0, ymm0"],
                [32, "vmovaps [rax + at], ymm0", 1024],
                ["vzeroupper"]
            ),
            Clear::Lent32 => {
                // SAFETY: the CPU has the primitive, and so what it needs.
                let lent = unsafe { Lent::take() };
                lines!(
                    at,
                    bytes,
                    ["vxorps ymm0, ymm0, ymm0"],
                    [32, "vmovaps [rax + at], ymm0", 1024],
                    []
                );
                // SAFETY: the same.
                unsafe { lent.give_back() };
            }
            Clear::Store64 => lines!(
                at,
                bytes,
                ["vpxord zmm0, zmm0, zmm0"],
                [64, "vmovaps [rax + at], zmm0", 1024],
                ["vzeroupper"]
            ),
            Clear::Past8 => lines!(at, bytes, [], [8, "movnti [rax + at], rdx", 1024], ["sfence"]),
            Clear::Past16 => lines!(
                at,
                bytes,
                ["xorps xmm0, xmm0"],
                [16, "movntps [rax + at], xmm0", 1024],
                ["sfence"]
            ),
            Clear::Past32 => lines!(
                at,
                bytes,
                ["vxorps ymm0, ymm0, ymm0"],
                [32, "vmovntps [rax + at], ymm0", 1024],
                ["sfence", "vzeroupper"]
            ),
            Clear::Past64 => lines!(
                at,
                bytes,
                ["vpxord zmm0, zmm0, zmm0"],
                [64, "vmovntps [rax + at], zmm0", 1024],
                ["sfence", "vzeroupper"]
            ),
            // The instruction is given in bytes, for assemblers that do not know it. It clears the
            // line that RAX points into.
            Clear::ClZero => lines!(at, bytes, [], [64, ".byte 0x0f, 0x01, 0xfc", 64], ["sfence"]),
        }
    }
}

/// Register 0 as its owner left it. Where its upper half is somebody else's, compiled code does not
/// touch it.
struct Lent {
    register: [u8; 32],
    in_use: bool,
}

impl Lent {
    /// Notes what the register holds.
    ///
    /// # Safety
    /// The CPU and the system have AVX and [`Features::in_use`].
    unsafe fn take() -> Lent {
        let mut register = [0; 32];
        // SAFETY: the caller's promise; the target is ours.
        let in_use = unsafe { features::uppers_in_use() };
        // SAFETY: the same.
        unsafe {
            asm!("vmovups [{}], ymm0", in(reg) &raw mut register,
                options(nostack, preserves_flags))
        };
        Lent { register, in_use }
    }

    /// Puts it back (Z2). Where none was in use all upper halves are 0 again, and the CPU is told.
    ///
    /// # Safety
    /// As for [`Self::take`].
    unsafe fn give_back(self) {
        // SAFETY: the caller's promise.
        unsafe {
            asm!("vmovups ymm0, [{}]", in(reg) &raw const self.register, out("xmm0") _,
                options(nostack, readonly, preserves_flags))
        };
        if !self.in_use {
            // SAFETY: the same; it leaves the lower halves as they are.
            unsafe { asm!("vzeroupper", options(nomem, nostack, preserves_flags)) };
        }
    }
}

/// A primitive that this CPU has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Primitive(Clear);

impl Primitive {
    /// Which one.
    pub const fn clear(self) -> Clear {
        self.0
    }
    /// Clears the whole lines of `memory`, `grain` bytes (whole lines, one at least) at a time.
    pub fn zero(self, memory: &mut [u8], grain: Bytes) {
        let memory = lines_of(memory);
        let grain = (grain.get().max(LINE) & !(LINE - 1)).min(memory.len().max(1) as u64);
        for part in memory.chunks_mut(grain as usize) {
            // SAFETY: the lines are borrowed exclusively, and the CPU has the primitive.
            unsafe { self.0.run(NonNull::from(&mut *part).cast(), part.len() as u64) };
        }
    }
}

/// The whole lines of `memory`.
pub(crate) fn lines_of(memory: &mut [u8]) -> &mut [u8] {
    let skip = memory.as_ptr().align_offset(LINE as usize).min(memory.len());
    let rest = &mut memory[skip..];
    let whole = rest.len() & !(LINE as usize - 1);
    &mut rest[..whole]
}

/// What [`copy`] copies in one turn of its loop by a lent register.
const TURN: u64 = 1024;

/// Copies `bytes`, a multiple of 8: by a lent register where memory is cleared best so (`like`; as
/// microcode stores, it also copies), and by `rep movsq` elsewhere. A CPU that changes the source
/// meanwhile changes what is copied, and nothing else.
///
/// # Safety
/// The target is mapped, writable and the caller's alone, the source is mapped, and they do not
/// overlap. The CPU has `like`.
pub(crate) unsafe fn copy(from: NonNull<u8>, to: NonNull<u8>, bytes: u64, like: Clear) {
    if like == Clear::Lent32 && bytes > 0 && bytes.is_multiple_of(TURN) {
        // SAFETY: the CPU has the primitive, and so what it needs.
        let lent = unsafe { Lent::take() };
        // SAFETY: the caller's promise, and as below.
        unsafe {
            asm!(
                "2:",
                "at = 0",
                ".rept 1024 / 32",
                "vmovups ymm0, [rsi + at]",
                "vmovups [rdi + at], ymm0",
                "at = at + 32",
                ".endr",
                "add rsi, 1024",
                "add rdi, 1024",
                "sub rcx, 1024",
                "jnz 2b",
                inout("rsi") from.as_ptr() => _, inout("rdi") to.as_ptr() => _,
                inout("rcx") bytes => _, out("xmm0") _, options(nostack))
        };
        // SAFETY: as above.
        return unsafe { lent.give_back() };
    }
    // SAFETY: the caller's promise; the direction flag is clear, as the ABI has it. For the
    // compiler this is no access of a Rust object, so a source that changes is no data race.
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
        let lent = Clear::Lent32.is_usable(&Features::detect()).then_some(Clear::Lent32);
        let counts = [(1, 0), (1, 1), (1, 16), (2, 63), (3, 64), (5, 1025)];
        let all = lent.into_iter().chain([Clear::StoreQ]);
        for (like, (first, count)) in all.flat_map(|like| counts.map(|count| (like, count))) {
            let mut source = blocks(first + count);
            let mut target = vec![Block([0xee; LINE]); first + count + 3];
            let from = NonNull::from(&mut source[first..]).cast();
            let to = NonNull::from(&mut target[first..]).cast();
            // SAFETY: two vectors of their own.
            unsafe { copy(from, to, (count * LINE) as u64, like) };
            let mut want = vec![Block([0xee; LINE]); first + count + 3];
            want[first..first + count].copy_from_slice(&source[first..]);
            assert!(target == want, "{like}: {count} lines from line {first}");
        }
    }

    extern "C" fn clear_a_page(page: &mut [Block; 64]) {
        // SAFETY: the page is ours, and the test asked for the primitive.
        unsafe { Clear::Lent32.run(NonNull::from(page).cast(), 4096) }
    }
    extern "C" fn copy_a_page(page: &mut [Block; 64]) {
        let from = [Block([3; LINE]); 64];
        let (from, to) = (NonNull::from(&from).cast(), NonNull::from(page).cast());
        // SAFETY: as above.
        unsafe { copy(from, to, 4096, Clear::Lent32) }
    }

    /// Z2, where the CPU of the test tells what is in use.
    #[test]
    fn upper_halves_are_left_as_they_were() {
        let features = Features::detect();
        if !Clear::Lent32.is_usable(&features) {
            return;
        }
        let page = &mut [Block([1; LINE]); 64];
        for work in [clear_a_page, copy_a_page] {
            let (before, mut after) = ([0x5a_u8; 32], [[0_u8; 32]; 2]);
            // SAFETY: the function takes one argument, and what it may change is said to change.
            unsafe {
                asm!(
                    "vmovups ymm0, [r12]",
                    "vmovups ymm9, [r12]",
                    "call r14",
                    "vmovups [r13], ymm0",
                    "vmovups [r13 + 32], ymm9",
                    "vzeroupper",
                    in("r12") &raw const before, in("r14") work,
                    in("r13") &raw mut after, in("rdi") &raw mut *page,
                    clobber_abi("C"))
            };
            assert!(after.iter().all(|register| register[16..] == before[16..]), "{after:x?}");
            // SAFETY: the CPU has it, and nothing is kept in upper halves.
            unsafe { asm!("vzeroupper", options(nomem, nostack, preserves_flags)) };
            // SAFETY: the test asked for it.
            let before = unsafe { features::uppers_in_use() };
            work(page);
            // SAFETY: as above.
            assert_eq!(unsafe { features::uppers_in_use() }, before);
        }
    }

    #[test]
    fn what_the_cpu_lacks_is_refused() {
        let none = Features::BASELINE;
        for clear in [Clear::ClZero, Clear::StoreB, Clear::Store32, Clear::Past64] {
            assert_eq!(clear.here(&none), Err(Unusable(clear)));
        }
        let some = Features { vectors: Vectors::None, ..none };
        assert!(!Clear::Past16.is_usable(&some) && Clear::Past16.is_usable(&none));
        let wide = [Vectors::Bytes16, Vectors::Bytes32, Vectors::Bytes64].map(|vectors| {
            let with = Features { vectors, ..none };
            [Clear::Store16, Clear::Store32, Clear::Store64].map(|clear| clear.is_usable(&with))
        });
        assert_eq!(wide, [[true, false, false], [true, true, false], [true, true, true]]);
        let lent = [false, true].map(|in_use| {
            [Vectors::Bytes16, Vectors::Lent32, Vectors::Bytes32].map(|vectors| {
                let with = Features { vectors, in_use, ..none };
                [Clear::Lent32, Clear::Store32].map(|clear| clear.is_usable(&with))
            })
        });
        let without = [[false, false], [false, false], [false, true]];
        assert_eq!(lent, [without, [[false, false], [true, false], [true, true]]]);
    }

    #[test]
    fn whole_lines_are_cleared_at_any_grain() {
        let store = Clear::StoreQ.here(&Features::BASELINE).unwrap();
        for grain in [0, 1, 64, 100, 4096, u64::MAX] {
            let mut memory = vec![1u8; 10 * LINE];
            let lines = lines_of(&mut memory).len();
            assert!((9 * LINE..=10 * LINE).contains(&lines));
            store.zero(&mut memory, Bytes::new(grain));
            assert_eq!(memory.iter().filter(|byte| **byte == 0).count(), lines, "grain {grain}");
        }
        assert!(lines_of(&mut [1u8; 3]).is_empty());
    }

    /// Z1 is looked up in the instructions, because the CPU that runs the test may keep an order
    /// that other CPUs do not keep, and may lack half of the primitives: each loop with stores that
    /// go past the cache ends with SFENCE, and no other loop does.
    #[test]
    fn whatever_goes_past_the_cache_ends_with_a_fence() {
        /// The end of a loop: `add rax, 64`, `cmp rax, end`, and a short `jb` back to its first
        /// line.
        const ADD: [u8; 4] = [0x48, 0x83, 0xc0, 0x40];
        const SFENCE: [u8; 3] = [0x0f, 0xae, 0xf8];
        const REACH: usize = 4096;
        let (movnti, movntps, clzero) = ([0x0f, 0xc3], [0x0f, 0x2b], [0x0f, 0x01, 0xfc]);
        let run: unsafe fn(Clear, NonNull<u8>, u64) = Clear::run;
        let byte = |at: usize| {
            let place = (run as *const u8).wrapping_add(at);
            // SAFETY: instructions can be read, and the search ends with the last loop of the
            // function.
            unsafe { place.read() }
        };
        let bytes = |at: usize, count: usize| (at..at + count).map(byte).collect::<Vec<_>>();
        let (mut past, mut through, mut at) = (0, 0, 0);
        while past + through < 9 {
            assert!(at < REACH, "{past} loops past the cache and {through} through it");
            let is_end = bytes(at, 4) == ADD && byte(at + 5) == 0x39 && byte(at + 7) == 0x72;
            at += 1;
            if !is_end {
                continue;
            }
            let behind = at - 1 + 9;
            let lines = bytes(behind - (256 - usize::from(byte(behind - 1))), 256);
            let lines = &lines[..256 - usize::from(byte(behind - 1)) - 9];
            let has = |code: &[u8]| lines.windows(code.len()).any(|some| some == code);
            // VMOVNTPS is the same opcode behind a prefix of 2 bytes or of 4.
            let vector = [[0xc5, 0xfc, 0x2b], [0x7c, 0x48, 0x2b]].iter().any(|code| has(code));
            let is_past = has(&movnti) || has(&movntps) || has(&clzero) || vector;
            assert_eq!(bytes(behind, 3) == SFENCE, is_past, "{lines:x?}");
            past += usize::from(is_past);
            through += usize::from(!is_past);
        }
        assert_eq!((past, through), (5, 4));
    }

    /// TR-Z5: stores past the cache are weakly ordered. Another CPU that sees what was stored after
    /// a clear sees its zeros, the last ones included.
    #[test]
    fn tr_z5_whoever_sees_a_later_store_sees_the_zeros() {
        use std::sync::atomic::{AtomicU64, Ordering};
        const WORDS: usize = 512;
        const ROUNDS: u64 = 2000;
        let features = Features::detect();
        for clear in Clear::ALL.into_iter().filter(|clear| clear.is_usable(&features)) {
            let memory: Vec<AtomicU64> = (0..WORDS + 8).map(|_| AtomicU64::new(1)).collect();
            let first = memory.as_ptr().align_offset(LINE);
            let words = &memory[first..first + WORDS];
            let (turn, seen) = (AtomicU64::new(0), AtomicU64::new(0));
            let stale = std::thread::scope(|scope| {
                let reader = scope.spawn(|| {
                    (1..=ROUNDS).fold(0, |stale, round| {
                        while turn.load(Ordering::Acquire) < round {
                            std::thread::yield_now();
                        }
                        let left = words.iter().rev().filter(|w| w.load(Ordering::Relaxed) != 0);
                        let stale = stale + left.count();
                        seen.store(round, Ordering::Release);
                        stale
                    })
                });
                for round in 1..=ROUNDS {
                    words.iter().for_each(|word| word.store(round, Ordering::Relaxed));
                    let at = NonNull::from(&words[0]).cast();
                    // SAFETY: the words are ours, the reader waits, and the CPU has the primitive.
                    unsafe { clear.run(at, (WORDS * 8) as u64) };
                    turn.store(round, Ordering::Release);
                    while seen.load(Ordering::Acquire) < round {
                        std::thread::yield_now();
                    }
                }
                reader.join().unwrap()
            });
            assert_eq!(stale, 0, "{clear}: old words seen after a later store");
        }
    }
}
