//! Control registers, the instructions that end translations on this CPU, and the interrupt flag.
//!
//! One function per instruction; what is to be ended is decided in `steps` and `broadcast`.
//!
//! **Invariants**
//! - X4, by [`paging`]: `CR4.PCIDE` is set where [`Features::tagging`] says so and clear elsewhere; `EFER.TCE` is clear.
//!
//! **Not here**: any decision.
#![allow(unsafe_code)]

use crate::Features;
use crate::broadcast::Operation;
use crate::tags::Tagging;
use core::arch::asm;
use foliant_units::{Pa, Va};

const CR4_PGE: u64 = 1 << 7;
const CR4_PCIDE: u64 = 1 << 17;
const EFER: u32 = 0xc000_0080;
const EFER_TCE: u64 = 1 << 15;
/// The bits of CR3 that name the top table.
const CR3_TABLE: u64 = 0x000f_ffff_ffff_f000;
const FLAGS_IF: u64 = 1 << 9;

/// Makes this CPU's paging what the crate relies on.
///
/// # Safety
/// Ring 0, on each CPU before anything else of this crate.
pub(crate) unsafe fn paging(features: &Features) {
    // SAFETY: ring 0 by the caller.
    let mut cr4 = unsafe { cr4() } & !CR4_PCIDE;
    if features.pge {
        cr4 |= CR4_PGE;
    }
    // SAFETY: PGE is there; clearing PCIDE is legal with any CR3 and ends every translation.
    unsafe { set_cr4(cr4) };
    if features.tagging() == Tagging::On {
        // SAFETY: ring 0 by the caller.
        let table = unsafe { loaded() };
        // SAFETY: it is loaded already. The low bits, which are clear now, become the PCID.
        unsafe { load(table.get()) };
        // SAFETY: the CPU has PCIDs, is in 64-bit mode, and the PCID in CR3 is 0.
        unsafe { set_cr4(cr4 | CR4_PCIDE) };
    }
    if features.tce {
        // SAFETY: ring 0 by the caller; EFER exists on every x86-64 CPU.
        let efer = unsafe { read_msr(EFER) };
        // SAFETY: only TCE changes, which the CPU has.
        unsafe { write_msr(EFER, efer & !EFER_TCE) };
    }
}

/// The top table that this CPU walks.
///
/// # Safety
/// Ring 0.
pub(crate) unsafe fn loaded() -> Pa {
    // SAFETY: the caller's promise.
    Pa::new(unsafe { cr3() } & CR3_TABLE)
}

/// Walks the table that `cr3` names from now on. It ends all that is not global, paging-structure entries included:
/// without tags everywhere, with them under the tag that `cr3` names, unless bit 63 is set.
///
/// # Safety
/// Ring 0; the table maps the running code, its stack and all else that the kernel uses. Bits 63 and 11 to 0 are clear
/// where there are no tags.
pub(crate) unsafe fn load(cr3: u64) {
    // SAFETY: the caller's promise. Memory is clobbered: what an address means may change.
    unsafe { asm!("mov cr3, {}", in(reg) cr3, options(nostack, preserves_flags)) };
}

/// Ends the translations of the page with `va`, global ones included, and all paging-structure entries: those under the
/// tag that runs.
///
/// # Safety
/// Ring 0.
pub(crate) unsafe fn end_page(va: Va) {
    // SAFETY: ring 0 by the caller; fewer cached translations change no meaning.
    unsafe { asm!("invlpg [{}]", in(reg) va.get(), options(nostack, preserves_flags)) };
}

/// Ends all that is not global, under the tag that runs.
///
/// # Safety
/// Ring 0.
pub(crate) unsafe fn end_nonglobal() {
    // SAFETY: ring 0 by the caller.
    let cr3 = unsafe { cr3() };
    // SAFETY: it is loaded already; bit 63 reads as 0.
    unsafe { load(cr3) };
}

/// Ends all, global ones included, under every tag.
///
/// # Safety
/// Ring 0, interrupts off.
pub(crate) unsafe fn end_all(features: &Features) {
    const ALL_CONTEXTS_AND_GLOBALS: u64 = 2;
    if features.invpcid {
        let descriptor = [0u64; 2];
        // SAFETY: ring 0 by the caller; the CPU has the instruction, and type 2 ignores the descriptor.
        unsafe {
            asm!("invpcid {}, [{}]", in(reg) ALL_CONTEXTS_AND_GLOBALS, in(reg) &descriptor,
                options(nostack, preserves_flags))
        };
    } else if features.pge {
        // SAFETY: ring 0 by the caller.
        let cr4 = unsafe { cr4() };
        // SAFETY: clearing PGE ends everything; interrupts are off, so nobody sees it clear.
        unsafe { set_cr4(cr4 & !CR4_PGE) };
        // SAFETY: the value from before.
        unsafe { set_cr4(cr4) };
    } else {
        // SAFETY: ring 0 by the caller. Without PGE nothing is global.
        unsafe { end_nonglobal() };
    }
}

/// Sends `operations` to every CPU's TLB. Complete only after [`sync_broadcast`] on this CPU.
///
/// # Safety
/// Ring 0, interrupts off, on a CPU with INVLPGB.
pub(crate) unsafe fn broadcast(operations: impl Iterator<Item = Operation>) {
    // The instruction is weakly ordered: the caller's page-table stores go first.
    // SAFETY: a fence has no precondition.
    unsafe { asm!("mfence", options(nostack, preserves_flags)) };
    for Operation { rax, ecx, edx } in operations {
        // SAFETY: ring 0 and the feature by the caller; `broadcast` keeps the count within the maximum.
        // INVLPGB in bytes, for assemblers that do not know it.
        unsafe {
            asm!(".byte 0x0f, 0x01, 0xfe", in("rax") rax, in("ecx") ecx, in("edx") edx,
                options(nostack, preserves_flags))
        };
    }
}

/// Returns when what this CPU broadcast before has been carried out everywhere.
///
/// # Safety
/// Ring 0, on a CPU with INVLPGB.
pub(crate) unsafe fn sync_broadcast() {
    // SAFETY: ring 0 and the feature by the caller. TLBSYNC in bytes.
    unsafe { asm!(".byte 0x0f, 0x01, 0xff", options(nostack, preserves_flags)) };
}

/// Runs `work` with interrupts off, and then restores the flag.
///
/// # Safety
/// Ring 0.
pub(crate) unsafe fn quiet<R>(work: impl FnOnce() -> R) -> R {
    let flags: u64;
    // SAFETY: ring 0 by the caller. Memory is clobbered, so that no access moves out of the section.
    unsafe { asm!("pushfq", "pop {}", "cli", out(reg) flags) };
    let result = work();
    if flags & FLAGS_IF != 0 {
        // The NOP ends the interrupt shadow of STI: QEMU 7.2 extends it over a PAUSE that follows, and a
        // loop of `sti; pause; cli` would never take an interrupt.
        // SAFETY: ring 0 by the caller; interrupts were on before.
        unsafe { asm!("sti", "nop", options(nostack)) };
    }
    result
}

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

unsafe fn cr3() -> u64 {
    let cr3: u64;
    // SAFETY: ring 0 by the caller; reading has no effect.
    unsafe { asm!("mov {}, cr3", out(reg) cr3, options(nomem, nostack, preserves_flags)) };
    cr3
}

unsafe fn cr4() -> u64 {
    let cr4: u64;
    // SAFETY: ring 0 by the caller; reading has no effect.
    unsafe { asm!("mov {}, cr4", out(reg) cr4, options(nomem, nostack, preserves_flags)) };
    cr4
}

unsafe fn set_cr4(cr4: u64) {
    // SAFETY: the caller's promise about the bits it changes.
    unsafe { asm!("mov cr4, {}", in(reg) cr4, options(nostack, preserves_flags)) };
}
