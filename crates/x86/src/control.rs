//! Control registers, the instructions that end translations on this CPU, and the interrupt flag.
//!
//! Which instructions do what the rest of the crate asks for; what is to be ended is decided in
//! `steps` and `broadcast`.
//!
//! **Invariants**
//! - X4, by [`paging`]: `CR4.PCIDE` is set where [`Features::tagging`] says so and clear elsewhere;
//!   `EFER.TCE` is clear. `EFER.NXE` is set where [`Features::nx`] says so, and `CR0.WP` is set, so
//!   that rights in a page table mean what the manager wrote them for, in ring 0 too.
//!
//! **Not here**: the instructions themselves (`privileged`).
#![allow(unsafe_code)]

use crate::Features;
use crate::broadcast::Operation;
use crate::privileged::{self, cr0, cr3, cr4, read_msr, set_cr0, set_cr3, set_cr4, write_msr};
use crate::tags::Tagging;
use foliant_units::{Pa, Va};

const CR0_WP: u64 = 1 << 16;
const CR4_PGE: u64 = 1 << 7;
const CR4_PCIDE: u64 = 1 << 17;
const EFER: u32 = 0xc000_0080;
const EFER_NXE: u64 = 1 << 11;
const EFER_TCE: u64 = 1 << 15;
/// The bits of CR3 that name the top table.
const CR3_TABLE: u64 = 0x000f_ffff_ffff_f000;

/// Makes this CPU's paging what the crate relies on.
///
/// # Safety
/// Ring 0, on each CPU before anything else of this crate.
pub(crate) unsafe fn paging(features: &Features) {
    // SAFETY: ring 0 by the caller.
    unsafe { rights(features) };
    // SAFETY: ring 0 by the caller.
    let mut cr4 = unsafe { cr4() } & !CR4_PCIDE;
    if features.pge {
        cr4 |= CR4_PGE;
    }
    // SAFETY: PGE is there; clearing PCIDE is legal with any CR3. Nothing rests on what it ends:
    // everything where it was set, and nothing where it was clear.
    unsafe { set_cr4(cr4) };
    if features.tagging() == Tagging::On {
        // SAFETY: ring 0 by the caller.
        let table = unsafe { loaded() };
        // SAFETY: it is loaded already. The low bits, which are clear now, become the PCID.
        unsafe { load(table.get()) };
        // SAFETY: the CPU has PCIDs, is in 64-bit mode, and the PCID in CR3 is 0.
        unsafe { set_cr4(cr4 | CR4_PCIDE) };
    }
}

/// Makes this CPU heed the rights in page tables, and INVLPG end all paging-structure entries.
///
/// # Safety
/// As for [`paging`].
unsafe fn rights(features: &Features) {
    // SAFETY: ring 0 by the caller.
    let cr0 = unsafe { cr0() };
    // SAFETY: only WP changes: ring 0 writes what the tables let it write.
    unsafe { set_cr0(cr0 | CR0_WP) };
    if features.nx || features.tce {
        // SAFETY: ring 0 by the caller; EFER exists on every x86-64 CPU.
        let efer = unsafe { read_msr(EFER) };
        let nxe = if features.nx { EFER_NXE } else { 0 };
        // SAFETY: NXE is set only where the CPU has it; TCE is clear everywhere else.
        unsafe { write_msr(EFER, efer & !EFER_TCE | nxe) };
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

/// Walks the table that `cr3` names from now on. It ends all that is not global, paging-structure
/// entries included: without tags everywhere, with them under the tag that `cr3` names, unless bit
/// 63 is set.
///
/// # Safety
/// Ring 0; the table maps the running code, its stack and all else that the kernel uses. Bits 63
/// and 11 to 0 are clear where there are no tags.
pub(crate) unsafe fn load(cr3: u64) {
    // SAFETY: the caller's promise.
    unsafe { set_cr3(cr3) };
}

/// Ends the translations of the page with `va`, global ones included, and all paging-structure
/// entries: those under the tag that runs.
///
/// # Safety
/// Ring 0.
pub(crate) unsafe fn end_page(va: Va) {
    // SAFETY: ring 0 by the caller.
    unsafe { privileged::invlpg(va) };
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
    if features.invpcid {
        // SAFETY: ring 0 by the caller; the CPU has the instruction.
        unsafe { privileged::invpcid_all() };
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

/// Sends `operations` to every CPU's TLB. They are complete only after [`sync_broadcast`] on this
/// CPU.
///
/// # Safety
/// Ring 0, interrupts off, on a CPU with INVLPGB.
pub(crate) unsafe fn broadcast(operations: impl Iterator<Item = Operation>) {
    // The instruction is weakly ordered: the caller's page-table stores go first.
    privileged::fence();
    for operation in operations {
        // SAFETY: ring 0 and the feature by the caller; `broadcast` keeps the count within the
        // maximum.
        unsafe { privileged::invlpgb(operation) };
    }
}

/// Returns when what this CPU broadcast before has been carried out everywhere.
///
/// # Safety
/// Ring 0, on a CPU with INVLPGB.
pub(crate) unsafe fn sync_broadcast() {
    // SAFETY: ring 0 and the feature by the caller.
    unsafe { privileged::tlbsync() };
}

/// Runs `work` with interrupts off, and then restores the flag.
///
/// # Safety
/// Ring 0.
pub(crate) unsafe fn quiet<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: ring 0 by the caller.
    let were_on = unsafe { privileged::interrupts_off() };
    let result = work();
    if were_on {
        // SAFETY: ring 0 by the caller; interrupts were on before.
        unsafe { privileged::interrupts_on() };
    }
    result
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::privileged::Told::{self, *};
    use crate::privileged::{told, with};
    extern crate std;
    use std::{vec, vec::Vec};

    /// A CPU that runs the table at 0x5000, with bits of CR0, CR4 and EFER that the crate leaves
    /// alone.
    fn prepare(cr4: u64) {
        with(|cpu| {
            (cpu.cr0, cpu.cr3, cpu.cr4) = (0x8000_0011, 0x5018, 1 << 5 | cr4);
            cpu.msrs.insert(EFER, 0x501 | EFER_TCE);
        });
    }
    fn has(pge: bool, pcid: bool, tce: bool) -> Features {
        Features { pge, pcid, tce, ..Features::BASELINE }
    }

    #[test]
    fn paging_is_made_what_the_features_say() {
        let done = |before: u64, features: Features| {
            prepare(before);
            // SAFETY: of this and those below: the processor is the tests'.
            unsafe { paging(&features) };
            told()
        };
        let (plain, global) = (SetCr4(1 << 5), SetCr4(1 << 5 | CR4_PGE));
        let guarded = SetCr0(0x8001_0011);
        assert_eq!(done(0, has(false, false, false)), [guarded, plain]);
        assert_eq!(done(CR4_PCIDE, has(true, false, false)), [guarded, global]);
        let tagged = SetCr4(1 << 5 | CR4_PGE | CR4_PCIDE);
        let untagged = [guarded, global, SetCr3(0x5000)];
        assert_eq!(done(CR4_PCIDE, has(true, true, false)), [&untagged[..], &[tagged]].concat());
        let efer = |features, value| {
            assert_eq!(done(0, features), [guarded, WriteMsr(EFER, value), plain]);
        };
        efer(has(false, false, true), 0x501);
        efer(Features { nx: true, ..has(false, false, false) }, 0xd01);
        efer(Features { nx: true, ..has(false, false, true) }, 0xd01);
    }

    #[test]
    fn what_is_ended_is_what_the_processor_can() {
        prepare(CR4_PGE);
        let ended = |features: &Features| {
            // SAFETY: as above.
            unsafe { end_all(features) };
            told()
        };
        let all = Features { invpcid: true, ..has(true, true, false) };
        assert_eq!(ended(&all), [InvpcidAll]);
        let toggled = [SetCr4(1 << 5), SetCr4(1 << 5 | CR4_PGE)];
        assert_eq!(ended(&has(true, false, false)), toggled);
        assert_eq!(ended(&has(false, false, false)), [SetCr3(0x5018)]);
        // SAFETY: as above.
        unsafe { end_nonglobal() };
        // SAFETY: as above.
        unsafe { end_page(Va::new(0x7000)) };
        assert_eq!(told(), [SetCr3(0x5018), Invlpg(Va::new(0x7000))]);
        // SAFETY: as above.
        assert_eq!(unsafe { loaded() }, Pa::new(0x5000), "its tag is no part of it");
    }

    #[test]
    fn a_broadcast_comes_behind_what_was_stored() {
        let operations = [1, 2].map(|rax| Operation { rax, ecx: 0, edx: 0 });
        // SAFETY: as above.
        unsafe { broadcast(operations.into_iter()) };
        // SAFETY: as above.
        unsafe { sync_broadcast() };
        assert_eq!(told(), [Fence, Invlpgb(operations[0]), Invlpgb(operations[1]), Tlbsync]);
    }

    #[test]
    fn interrupts_are_as_they_were() {
        let all = |were_on: bool| -> Vec<Told> {
            with(|cpu| cpu.interrupts = were_on);
            // SAFETY: as above.
            let inside = || unsafe { quiet(|| with(|cpu| cpu.interrupts)) };
            // SAFETY: as above.
            assert!(!unsafe { quiet(inside) }, "one in another");
            assert_eq!(with(|cpu| cpu.interrupts), were_on);
            told()
        };
        assert_eq!(all(true), [InterruptsOff, InterruptsOff, InterruptsOn]);
        assert_eq!(all(false), vec![InterruptsOff; 2]);
    }
}
