//! The instructions.
#![allow(unsafe_code)]

use crate::broadcast::Operation;
use core::arch::asm;
use foliant_units::Va;

const FLAGS_IF: u64 = 1 << 9;

/// Reads a model-specific register.
///
/// # Safety
/// Ring 0, and the register exists.
pub(crate) unsafe fn read_msr(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the caller's promise.
    unsafe {
        asm!("rdmsr", in("ecx") register, out("eax") low, out("edx") high,
            options(nostack, preserves_flags))
    };
    u64::from(high) << 32 | u64::from(low)
}

/// Writes a model-specific register.
///
/// # Safety
/// Ring 0, the register exists, and the value breaks nothing that the kernel relies on.
pub(crate) unsafe fn write_msr(register: u32, value: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32,
            options(nostack, preserves_flags))
    };
}

/// Reads CR0.
///
/// # Safety
/// Ring 0.
pub(crate) unsafe fn cr0() -> u64 {
    let cr0: u64;
    // SAFETY: ring 0 by the caller; reading has no effect.
    unsafe { asm!("mov {}, cr0", out(reg) cr0, options(nomem, nostack, preserves_flags)) };
    cr0
}

/// Loads CR0.
///
/// # Safety
/// Ring 0; the kernel does with what the value switches on, and without what it switches off.
pub(crate) unsafe fn set_cr0(cr0: u64) {
    // SAFETY: the caller's promise about the bits it changes.
    unsafe { asm!("mov cr0, {}", in(reg) cr0, options(nostack, preserves_flags)) };
}

/// Reads CR3.
///
/// # Safety
/// Ring 0.
pub(crate) unsafe fn cr3() -> u64 {
    let cr3: u64;
    // SAFETY: ring 0 by the caller; reading has no effect.
    unsafe { asm!("mov {}, cr3", out(reg) cr3, options(nomem, nostack, preserves_flags)) };
    cr3
}

/// Loads CR3.
///
/// # Safety
/// Ring 0; the table that it names maps all that the kernel uses.
pub(crate) unsafe fn set_cr3(cr3: u64) {
    // SAFETY: the caller's promise. Memory is clobbered: what an address means may change.
    unsafe { asm!("mov cr3, {}", in(reg) cr3, options(nostack, preserves_flags)) };
}

/// Reads CR4.
///
/// # Safety
/// Ring 0.
pub(crate) unsafe fn cr4() -> u64 {
    let cr4: u64;
    // SAFETY: ring 0 by the caller; reading has no effect.
    unsafe { asm!("mov {}, cr4", out(reg) cr4, options(nomem, nostack, preserves_flags)) };
    cr4
}

/// Loads CR4.
///
/// # Safety
/// Ring 0; the CPU has what the value switches on, and the kernel does without what it switches
/// off.
pub(crate) unsafe fn set_cr4(cr4: u64) {
    // SAFETY: the caller's promise about the bits it changes.
    unsafe { asm!("mov cr4, {}", in(reg) cr4, options(nostack, preserves_flags)) };
}

/// INVLPG.
///
/// # Safety
/// Ring 0.
pub(crate) unsafe fn invlpg(va: Va) {
    // SAFETY: ring 0 by the caller; fewer cached translations change no meaning.
    unsafe { asm!("invlpg [{}]", in(reg) va.get(), options(nostack, preserves_flags)) };
}

/// INVPCID of type 2: all contexts, global translations included.
///
/// # Safety
/// Ring 0, on a CPU that has it.
pub(crate) unsafe fn invpcid_all() {
    const ALL_CONTEXTS_AND_GLOBALS: u64 = 2;
    let descriptor = [0u64; 2];
    // SAFETY: the caller's promise; type 2 ignores the descriptor.
    unsafe {
        asm!("invpcid {}, [{}]", in(reg) ALL_CONTEXTS_AND_GLOBALS, in(reg) &descriptor,
            options(nostack, preserves_flags))
    };
}

/// INVLPGB, given in bytes for assemblers that do not know it.
///
/// # Safety
/// Ring 0, on a CPU that has it and that can do the count.
pub(crate) unsafe fn invlpgb(Operation { rax, ecx, edx }: Operation) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!(".byte 0x0f, 0x01, 0xfe", in("rax") rax, in("ecx") ecx, in("edx") edx,
            options(nostack, preserves_flags))
    };
}

/// TLBSYNC, in bytes.
///
/// # Safety
/// Ring 0, on a CPU with INVLPGB.
pub(crate) unsafe fn tlbsync() {
    // SAFETY: the caller's promise.
    unsafe { asm!(".byte 0x0f, 0x01, 0xff", options(nostack, preserves_flags)) };
}

/// Takes no interrupts from now on; says whether it did before.
///
/// # Safety
/// Ring 0.
pub(crate) unsafe fn interrupts_off() -> bool {
    let flags: u64;
    // SAFETY: ring 0 by the caller. Memory is clobbered, so that no access moves out of the
    // section.
    unsafe { asm!("pushfq", "pop {}", "cli", out(reg) flags) };
    flags & FLAGS_IF != 0
}

/// Takes interrupts from now on.
///
/// # Safety
/// Ring 0, where interrupts may come.
pub(crate) unsafe fn interrupts_on() {
    // The NOP ends the interrupt shadow of STI: QEMU 7.2 extends it over a PAUSE that follows, and
    // a loop of `sti; pause; cli` would never take an interrupt. SAFETY: ring 0 by the caller.
    unsafe { asm!("sti", "nop", options(nostack)) };
}

/// What was stored before is visible to all before what is stored behind.
pub(crate) fn fence() {
    // SAFETY: a fence has no precondition.
    unsafe { asm!("mfence", options(nostack, preserves_flags)) };
}

/// The same, and no instruction behind it begins before: an MFENCE alone orders memory, and no
/// write of a register.
pub(crate) fn full_fence() {
    // SAFETY: fences have no precondition.
    unsafe { asm!("mfence", "lfence", options(nostack, preserves_flags)) };
}
