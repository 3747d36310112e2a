//! Copies between the kernel and the memory of a program, of which any byte may be out of reach.
//!
//! ```text
//!   copy ─▶ eight bytes at a time ─▶ the rest, byte by byte ─▶ how many came over
//!               │ fault, served: goes on      │ fault, not served: ends here
//! ```
//!
//! **Invariants**
//! - R1. The instruction that may fault is the first of its naked function, and a fault there that
//!   nobody serves goes on behind it: RDI says how far it came.
//! - R2. A process's memory is not locked around a copy: its faults take that lock. A copy for
//!   which no fault is served (`get_present`, `put_present`) may be made under it.
#![allow(unsafe_code)]

use crate::cpu;
use crate::running::{Origin, Program};
use core::arch::naked_asm;
use foliant::fault::Access;
use foliant_units::Va;

/// Where a page fault at `rip` inside a copy continues.
pub(crate) fn recover(rip: u64) -> Option<u64> {
    let copies = [words as *const () as u64, bytes as *const () as u64];
    copies.contains(&rip).then_some(ended as *const () as u64)
}

/// Copies words; gives where the target is then.
#[unsafe(naked)]
unsafe extern "sysv64" fn words(to: u64, from: u64, _: u64, count: u64) -> u64 {
    naked_asm!("rep movsq", "mov rax, rdi", "ret")
}
#[unsafe(naked)]
unsafe extern "sysv64" fn bytes(to: u64, from: u64, _: u64, count: u64) -> u64 {
    naked_asm!("rep movsb", "mov rax, rdi", "ret")
}
#[unsafe(naked)]
unsafe extern "sysv64" fn ended() -> u64 {
    naked_asm!("mov rax, rdi", "ret")
}

/// Copies so many bytes, and says how many were.
fn copy(to: u64, from: u64, count: usize) -> usize {
    let count = count as u64;
    cpu::reach_user(|| {
        // SAFETY: one side is the caller's slice, which is as long; the other one lies in the user
        // half, where a fault is served or ends the copy (R1).
        let moved = unsafe { words(to, from, 0, count / 8) } - to;
        // SAFETY: as above; where a word faulted the byte does, or those before it come over.
        let end = unsafe { bytes(to + moved, from + moved, 0, count - moved) };
        (end - to) as usize
    })
}

/// As many of `count` bytes from `at` on as lie in the user half.
fn within(at: u64, count: usize) -> usize {
    const END: u64 = 1 << 47;
    count.min(END.saturating_sub(at) as usize)
}

/// Copies bytes of the running program; says how many were within reach.
pub(crate) fn get(into: &mut [u8], at: u64) -> usize {
    copy(into.as_mut_ptr() as u64, at, within(at, into.len()))
}
/// The same of what is there without any fault being served.
pub(crate) fn get_present(into: &mut [u8], at: u64) -> usize {
    without_faults(|| get(into, at))
}
/// Copies bytes to the running program, where no fault has to be served for it.
pub(crate) fn put_present(at: u64, from: &[u8]) -> usize {
    without_faults(|| put(at, from))
}
fn without_faults(copy: impl FnOnce() -> usize) -> usize {
    struct Refuses;
    impl Program for Refuses {
        fn fault(&self, _: Va, _: Access, _: Origin) -> bool {
            false
        }
    }
    static REFUSES: Refuses = Refuses;
    let running = cpu::user();
    let program = running.program();
    running.set_program(Some(&REFUSES));
    let count = copy();
    running.set_program(program);
    count
}
/// Copies bytes to the running program; says how many were within reach.
pub(crate) fn put(at: u64, from: &[u8]) -> usize {
    copy(at, from.as_ptr() as u64, within(at, from.len()))
}
