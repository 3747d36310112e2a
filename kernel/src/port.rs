//! Instructions that only ring 0 may use.
#![allow(unsafe_code)]

use core::arch::asm;

/// Writes a byte to a port.
pub(crate) fn out8(port: u16, value: u8) {
    // SAFETY: port writes of this kernel go to the serial line, the interrupt controllers and the
    // timer; none touches memory.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nostack, preserves_flags)) }
}
/// Writes 32 bits to a port.
pub(crate) fn out32(port: u16, value: u32) {
    // SAFETY: as for `out8`; the one user is the emulator's exit device.
    unsafe {
        asm!("out dx, eax", in("dx") port, in("eax") value, options(nostack, preserves_flags))
    }
}
/// Reads 32 bits from a port.
pub(crate) fn in32(port: u16) -> u32 {
    let value;
    // SAFETY: as for `in8`.
    unsafe {
        asm!("in eax, dx", in("dx") port, out("eax") value, options(nostack, preserves_flags))
    }
    value
}
/// Reads a byte from a port.
pub(crate) fn in8(port: u16) -> u8 {
    let value;
    // SAFETY: reads of status registers change nothing that code relies on.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nostack, preserves_flags)) }
    value
}

/// Reads a model-specific register.
///
/// # Safety
/// The CPU has it.
pub(crate) unsafe fn read_msr(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the caller's promise.
    unsafe {
        asm!("rdmsr", in("ecx") register, out("eax") low, out("edx") high, options(nostack, preserves_flags))
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Writes a model-specific register.
///
/// # Safety
/// The caller knows the register and what the value does.
pub(crate) unsafe fn write_msr(register: u32, value: u64) {
    // SAFETY: the caller's promise.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32, options(nostack, preserves_flags))
    }
}

/// The address of the last page fault on this CPU.
pub(crate) fn fault_address() -> u64 {
    let va;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, cr2", out(reg) va, options(nostack, preserves_flags)) }
    va
}

/// Loads a top table.
///
/// # Safety
/// It maps the running code, its stack and its data where they are.
pub(crate) unsafe fn load_top(top: u64) {
    // SAFETY: the caller's promise.
    unsafe { asm!("mov cr3, {}", in(reg) top, options(nostack, preserves_flags)) }
}

/// The flags of the calling CPU.
pub(crate) fn flags() -> u64 {
    let flags: u64;
    // SAFETY: reads the flags by way of the stack.
    unsafe { asm!("pushfq", "pop {}", out(reg) flags, options(preserves_flags)) }
    flags
}
/// Whether interrupts are on.
pub(crate) fn interrupts_on() -> bool {
    flags() & 1 << 9 != 0
}
/// Lets interrupts in.
pub(crate) fn enable() {
    // SAFETY: handlers are installed before the first call. The no-op ends the shadow that QEMU 7.2
    // keeps over `pause`.
    unsafe { asm!("sti", "nop", options(nostack)) }
}
/// Keeps interrupts out.
pub(crate) fn disable() {
    // SAFETY: changes a flag.
    unsafe { asm!("cli", options(nostack)) }
}
/// Lets interrupts in and sleeps until the next one, in one step: none is missed between.
pub(crate) fn enable_and_halt() {
    // SAFETY: as for `enable`.
    unsafe { asm!("sti", "hlt", options(nostack)) }
}
/// Sleeps for good.
pub(crate) fn halt() -> ! {
    loop {
        // SAFETY: nothing happens any more on this CPU.
        unsafe { asm!("cli", "hlt", options(nostack)) }
    }
}
/// Resets the machine: an exception without a table of gates.
pub(crate) fn triple_fault() -> ! {
    let nothing = [0u16; 5];
    // SAFETY: the end.
    unsafe { asm!("lidt [{}]", "ud2", in(reg) &nothing, options(noreturn)) }
}
