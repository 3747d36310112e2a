//! What becomes of a signal that waits, before its thread goes back to ring 3.
//!
//! ```text
//!   waits, of the thread or of its process ─▶ not blocked: ignored · the process ends · a handler
//!                                                                              │
//!   stack of the program ◀── registers, what was blocked, who sent it ◀────────┘   sigreturn: back
//! ```
//!
//! **Invariants**
//! - G2. A fault that cannot reach a handler ends the process: it would be made again for ever.
#![allow(unsafe_code)]

use super::sched::Runs;
use super::signal::{Action, DEFAULT, Ended, IGNORE, Info, bit, is_harmless, is_stop};
use super::thread::{Thread, flags};
use super::user::{self, Plain, zeros};
use super::vectors;
use crate::cpu;
use crate::running::CALL;
use alloc::sync::Arc;
use foliant_linux::Errno;
use linux_raw_sys::errno::EINTR;
use linux_raw_sys::general::{
    SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART, SIGSEGV, SS_DISABLE, SS_ONSTACK,
};

/// Bytes below the stack pointer that are the program's.
const RED_ZONE: u64 = 128;
/// What a handler is told of the words that it finds: the stack segment is among them, and is the
/// one that is gone back to; and more is than FXSAVE keeps.
const HAS_SEGMENT: u64 = 0b110;
const HAS_MORE: u64 = 0b001;

/// Sends a thread the signal of its own fault (G2).
pub(super) fn force(thread: &Arc<Thread>, info: Info) {
    let number = info.number as u32;
    let handler = thread.process.action(number).handler;
    let is_blocked = thread.signals.blocked() & bit(number) != 0;
    if is_blocked || matches!(handler, DEFAULT | IGNORE) {
        return thread.process.note_end(Ended::Signal(number));
    }
    thread.signals.own.put(info);
}

/// Takes one of a set that waits for a thread or its process.
pub(super) fn take(thread: &Thread, of: u64) -> Option<Info> {
    thread.signals.own.take(of).or_else(|| thread.process.signals.take(of))
}

/// Sees to what waits for the running thread, before it goes back to ring 3.
pub(super) fn deliver(thread: &Arc<Thread>) {
    let (process, own) = (&thread.process, &thread.signals);
    let is_call = thread.registers().vector == CALL;
    while !thread.is_over() {
        thread.rest();
        let Some(info) = take(thread, !own.blocked()) else { break };
        let number = info.number as u32;
        let action = process.action(number);
        match action.handler {
            IGNORE => {}
            DEFAULT if is_harmless(number) => {}
            DEFAULT if is_stop(number) => process.stop(number),
            DEFAULT => return process.note_end(Ended::Signal(number)),
            _ => {
                if is_call {
                    settle(thread, action.flags & u64::from(SA_RESTART) != 0);
                }
                if thread.abort_sequence().and_then(|()| handle(thread, &action, &info)).is_err() {
                    process.note_end(Ended::Signal(SIGSEGV));
                }
            }
        }
    }
    if is_call {
        settle(thread, true);
    }
    if let Some(before) = own.before.take() {
        own.block(before);
    }
}
/// A call that was cut short is made again, or has failed.
fn settle(thread: &Thread, again: bool) {
    let Some(number) = thread.cut.take() else { return };
    thread.set_registers(|registers| match again {
        true => {
            registers.rax = number;
            registers.rip -= 2; // the instruction of the call
        }
        false => registers.rax = Errno(EINTR).word(),
    });
}

/// A stack for handlers: Linux's `stack_t`.
type StackWords = [u64; 3];

/// What a handler finds of the interrupted registers: Linux's `sigcontext`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Context {
    /// r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, flags.
    general: [u64; 18],
    /// cs, gs, fs, ss, two bytes each.
    segments: u64,
    error: u64,
    vector: u64,
    old_mask: u64,
    fault_address: u64,
    floats: u64,
    reserved: [u64; 8],
}

/// What lies on the stack when a handler begins: Linux's `rt_sigframe`.
#[derive(Clone, Copy)]
#[repr(C)]
struct OnStack {
    /// Where the handler returns to.
    back: u64,
    flags: u64,
    link: u64,
    stack: StackWords,
    context: Context,
    mask: u64,
    info: Info,
}

// SAFETY: numbers alone, one behind the other.
unsafe impl Plain for OnStack {}

/// Bytes of a stack that a handler takes before its first instruction, at most.
pub(super) fn stack_min() -> u64 {
    (size_of::<OnStack>() + vectors::size() + 128) as u64
}

/// Lets the handler of a signal run.
fn handle(thread: &Arc<Thread>, action: &Action, info: &Info) -> Result<(), Errno> {
    let (number, registers, own) = (info.number as u32, thread.registers(), &thread.signals);
    let [base, kind, size] = own.stack.get();
    let is_inside = registers.rsp.wrapping_sub(base) < size;
    let wants = action.flags & u64::from(SA_ONSTACK) != 0 && kind as u32 & SS_DISABLE == 0;
    let top = match wants && !is_inside {
        true => base.wrapping_add(size),
        false => registers.rsp.wrapping_sub(RED_ZONE),
    };
    let floats = top.wrapping_sub(vectors::size() as u64) & !63;
    let at = (floats.wrapping_sub(size_of::<OnStack>() as u64) & !15).wrapping_sub(8);
    let before = own.before.take().unwrap_or(own.blocked());
    let r = &registers;
    let mut out: OnStack = zeros();
    out.back = action.restorer;
    out.flags = HAS_SEGMENT | if cpu::is_wide() { HAS_MORE } else { 0 };
    out.stack = [base, if is_inside { SS_ONSTACK.into() } else { kind }, size];
    out.context.general = [
        r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rdi, r.rsi, r.rbp, r.rbx, r.rdx,
        r.rax, r.rcx, r.rsp, r.rip, r.rflags,
    ];
    out.context.segments = r.cs | r.ss << 48;
    (out.context.error, out.context.vector) = (r.error, r.vector);
    (out.context.old_mask, out.mask) = (before, before);
    out.context.fault_address = info.more[0];
    out.context.floats = floats;
    out.info = *info;
    user::put(at, &out)?;
    vectors::put(thread, floats)?;
    let own_bit = if action.flags & u64::from(SA_NODEFER) != 0 { 0 } else { bit(number) };
    own.block(before | action.mask | own_bit);
    if action.flags & u64::from(SA_RESETHAND) != 0 {
        thread.process.actions.lock()[number as usize - 1].handler = DEFAULT;
    }
    let (info_at, context_at) =
        (core::mem::offset_of!(OnStack, info) as u64, core::mem::offset_of!(OnStack, flags) as u64);
    thread.set_registers(|registers| {
        (registers.rdi, registers.rsi, registers.rdx) =
            (number.into(), at + info_at, at + context_at);
        (registers.rax, registers.rip, registers.rsp) = (0, action.handler, at);
        registers.rflags = flags(0);
    });
    Ok(())
}
/// Goes back to where a handler interrupted.
pub(super) fn sigreturn(thread: &Thread) -> Result<u64, Errno> {
    let at = thread.registers().rsp.wrapping_sub(8);
    let from: OnStack = user::get(at)?;
    if from.context.floats != 0 {
        vectors::get(thread, from.context.floats)?;
    }
    thread.signals.block(from.mask);
    let [r8, r9, r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, word] =
        from.context.general;
    thread.set_registers(|to| {
        (to.r8, to.r9, to.r10, to.r11) = (r8, r9, r10, r11);
        (to.r12, to.r13, to.r14, to.r15) = (r12, r13, r14, r15);
        (to.rdi, to.rsi, to.rbp, to.rbx) = (rdi, rsi, rbp, rbx);
        (to.rdx, to.rax, to.rcx, to.rsp) = (rdx, rax, rcx, rsp);
        (to.rip, to.rflags) = (rip, flags(word));
    });
    Ok(rax)
}
