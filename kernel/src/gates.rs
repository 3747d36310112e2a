//! The table of gates: where each interrupt and exception goes.
#![allow(unsafe_code)]

use core::arch::asm;
use core::cell::UnsafeCell;

#[repr(C, align(4096))]
struct Gates(UnsafeCell<[[u64; 2]; 256]>);
// SAFETY: written once by CPU 0 before the others start, read by hardware.
unsafe impl Sync for Gates {}
static GATES: Gates = Gates(UnsafeCell::new([[0; 2]; 256]));

/// Says where `vector` goes.
///
/// # Safety
/// No CPU has loaded the table yet, and one CPU fills it.
pub(crate) unsafe fn set(vector: usize, gate: [u64; 2]) {
    // SAFETY: nobody else looks at the table, as the caller says.
    unsafe { (*GATES.0.get())[vector] = gate };
}

/// Loads the table of gates on the calling CPU.
pub(crate) fn load() {
    #[repr(C, packed)]
    struct Pointer(u16, u64);
    let gates = Pointer(4095, GATES.0.get() as u64);
    // SAFETY: the table was filled before and stays.
    unsafe { asm!("lidt [{}]", in(reg) &gates, options(nostack, preserves_flags)) }
}
