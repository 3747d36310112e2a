//! The end on a broken promise: what happened, and the trace that led there, with names.
//!
//! Names come from the kernel's own file, which the loader hands over as a module. The trace
//! follows frame pointers; it stops at the first one that does not lie on a stack above the last.
#![allow(unsafe_code)]

use crate::exit::{self, Code};
use crate::frame::Frame;
use crate::layout::RANGES;
use crate::{cpu, giving_up, port, say, serial, symbols};
use core::arch::asm;
use core::panic::PanicInfo;

/// Callers that are shown at most.
const DEPTH: usize = 32;
/// Frames of one stack lie closer together than this.
const STEP_MAX: u64 = 1 << 20;

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let pointer = frame_pointer();
    let first = begin();
    if first {
        say!("PANIC on cpu {}: {}", cpu::me().0, info.message());
        if let Some(at) = info.location() {
            say!("  at {at}");
        }
        trace(pointer);
    }
    exit::with(Code::Panic)
}

/// Ends the kernel for an exception that has no right to be.
pub(crate) fn exception(frame: &Frame, what: &str) -> ! {
    if begin() {
        say!(
            "PANIC on cpu {}: {what}: vector {} error {:#x} address {:#x}",
            cpu::me().0,
            frame.vector,
            frame.error,
            port::fault_address()
        );
        say!(
            "  rip {:#018x} rsp {:#018x} rflags {:#x} cs {:#x}",
            frame.rip,
            frame.rsp,
            frame.rflags,
            frame.cs
        );
        say!(
            "  rax {:#018x} rbx {:#018x} rcx {:#018x} rdx {:#018x}",
            frame.rax,
            frame.rbx,
            frame.rcx,
            frame.rdx
        );
        say!("  rsi {:#018x} rdi {:#018x} rbp {:#018x}", frame.rsi, frame.rdi, frame.rbp);
        place(0, frame.rip);
        trace(frame.rbp);
    }
    exit::with(Code::Panic)
}

/// Whether this is the first panic. A second one on the same CPU only ends the kernel; on another
/// CPU it waits for that, as the first one may not have said everything yet.
fn begin() -> bool {
    port::disable();
    let is_first = giving_up::begin();
    if is_first {
        serial::seize();
    } else if giving_up::is_elsewhere() {
        port::halt()
    }
    is_first
}

fn trace(pointer: u64) {
    callers(pointer, &mut |depth, at| place(depth, at));
}

/// Follows frame pointers from `pointer` on, and says for each caller where it called.
pub(crate) fn callers(mut pointer: u64, found: &mut dyn FnMut(usize, u64)) {
    for depth in 1..=DEPTH {
        let on_a_stack = pointer >= RANGES && pointer.is_multiple_of(8) && pointer < u64::MAX - 16;
        if !on_a_stack {
            return;
        }
        // SAFETY: the chain of frame pointers of a running kernel; a broken one faults into a
        // second panic, which ends.
        let [next, back] = unsafe { (pointer as *const [u64; 2]).read() };
        if back == 0 {
            return;
        }
        found(depth, back - 1); // inside the call, not behind it
        if next <= pointer || next - pointer > STEP_MAX {
            return;
        }
        pointer = next;
    }
}

/// The calling function's frame pointer.
#[inline(always)]
pub(crate) fn frame_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rbp", out(reg) pointer, options(nomem, nostack, preserves_flags)) }
    pointer
}

fn place(depth: usize, at: u64) {
    match symbols::find(at) {
        Some((name, offset)) => {
            say!("  {depth:>2}: {at:#018x} {:#}+{offset:#x}", rustc_demangle::demangle(name))
        }
        None => say!("  {depth:>2}: {at:#018x}"),
    }
}

// Precompiled code of this target is built to unwind and names these; with `panic = "abort"` nobody
// calls them.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() -> ! {
    exit::with(Code::Panic)
}
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    exit::with(Code::Panic)
}
