//! Exceptions and interrupts: the table of gates, and what each of them does.
//!
//! | vector | meaning |
//! |---|---|
//! | 14 | page fault: a user page that the manager supplies, a guarded access of the machine's, or a bug |
//! | 80 (hex) | a user program is done |
//! | 100 | a program's call, by `syscall`: no vector of the processor's |
//! | f0 | a shootdown: the machine carries out what others ask |
//! | f1 | wake up: there is work, or somebody's work is done |
//! | f3 | the timer: another thread's turn, or somebody slept long enough |
//! | f2 | the storm of the tests: dirties every register that a handler may |
//!
//! **Invariants**
//! - T1. Handlers run with interrupts out, but for page faults of code that had them in: clearing a
//!   huge page there must not keep shootdowns out.
//! - T2. A handler leaves every register of the interrupted code as it was; `trap.s` saves them.
//! - T3. A handler runs on the kernel's flags, MXCSR and x87 control word, whoever was interrupted.
//! - T4. A program begins with nothing in any register but its arguments, and the kernel goes on
//!   with nothing of the program's but its result: general, x87, SSE and segment registers, flags.
//!   A program that answers for itself (`running::Program`) begins with the registers that it is
//!   said to have, and they are kept when it leaves ring 3 (`cpu::keep`).
//! - T5. The kernel reaches user memory only where it says so (`cpu::reach_user`), and never runs
//!   any: a fault that it takes elsewhere is a bug, and is not served. Neither is one of a word
//!   that no page table may hold, whoever met it.
//! - T6. Nothing of the kernel changes the upper halves of AVX registers but `cpu::set_uppers`:
//!   they are a program's for as long as a CPU runs it, in ring 3 and in the kernel. A clear
//!   gives back what it took (`foliant_x86::Clear::Lent32`).
//! - T7. Ticks in ring 3 are those between what `trap.s` does before it and behind it: where the
//!   counter counts instructions (`foliant compare`) they are exact.
#![allow(unsafe_code)]

use crate::apic::{SHOOTDOWN, STORM, TICK, WAKE};
use crate::cpu::{self, KERNEL_CODE, KERNEL_DATA};
use crate::frame::{self, Floats, Frame};
use crate::interrupts::Kind;
use crate::memory::machine;
use crate::port::{self, fault_address};
use crate::running::{CALL, Origin, Program, Stop, is_served};
use crate::{gates, interrupts, reach, smp, storm};
use core::arch::global_asm;
use foliant::fault::Access;
use foliant_units::Va;

global_asm!(
    include_str!("trap.s"),
    user_stack = const cpu::USER_STACK,
    stack_low = const cpu::STACK_LOW,
    attempt_stack = const cpu::ATTEMPT_STACK,
    call_stack = const cpu::CALL_STACK,
    kept = const cpu::KEPT,
    entered = const frame::ENTERED,
    user = const frame::USER,
    floats = const frame::FLOATS,
    call_vector = const CALL,
    user_code = const cpu::USER_CODE,
    user_data = const cpu::USER_DATA,
    options(att_syntax)
);

const PAGE_FAULT: u64 = 14;
const DONE: u64 = 0x80;
const SPURIOUS: u64 = 0xff;

/// Nanoseconds after which the timer comes again that found the kernel.
const SOON: u64 = 1_000_000;

const WRITE: u64 = 1 << 1;
/// A word of the page tables has a bit that must be clear.
const RESERVED: u64 = 1 << 3;
const FETCH: u64 = 1 << 4;
const INTERRUPTS: u64 = 1 << 9;
/// The flag that is always set.
const ALWAYS: u64 = 1 << 1;

unsafe extern "C" {
    static trap_stubs: u8;
    safe fn user_return();
    safe fn left_ring_3();
    safe fn attempt_failed();
    fn attempt(work: extern "C" fn(usize), argument: usize) -> u64;
}

/// Fills the table of gates. CPU 0, once.
pub(crate) fn prepare() {
    let stubs = &raw const trap_stubs as u64;
    for vector in 0..256u64 {
        let at = stubs + vector * 16;
        let stack = if matches!(vector, 2 | 8 | 18) { 2 } else { 1 };
        let ring = if vector == DONE { 3 } else { 0 };
        let low = at & 0xffff | u64::from(KERNEL_CODE) << 16 | stack << 32;
        let gate = [low | 0x8e00 << 32 | ring << 45 | (at >> 16 & 0xffff) << 48, at >> 32];
        // SAFETY: no CPU has loaded the table yet.
        unsafe { gates::set(vector as usize, gate) };
    }
}

impl Frame {
    /// Whether ring 3 was interrupted.
    pub(crate) fn is_users(&self) -> bool {
        self.cs & 3 == 3
    }

    /// Makes the entry end in the kernel code that went to ring 3, with `result`.
    fn return_to_kernel(&mut self, result: u64) {
        self.resume(user_return as *const () as u64, cpu::user_stack(), result);
    }

    fn resume(&mut self, at: u64, stack: u64, result: u64) {
        *self = Frame { rip: at, rsp: stack, rax: result, ..Frame::CLEAN }; // T4
    }

    /// The kernel's code with interrupts off, and nothing in any register.
    pub(crate) const CLEAN: Frame = Frame {
        r15: 0,
        r14: 0,
        r13: 0,
        r12: 0,
        r11: 0,
        r10: 0,
        r9: 0,
        r8: 0,
        rdi: 0,
        rsi: 0,
        rbp: 0,
        rbx: 0,
        rdx: 0,
        rcx: 0,
        rax: 0,
        vector: 0,
        error: 0,
        rip: 0,
        cs: KERNEL_CODE as u64,
        rflags: ALWAYS,
        rsp: 0,
        ss: KERNEL_DATA as u64,
    };

    /// What the access that faulted was.
    fn access(&self) -> Access {
        match self.error {
            error if error & WRITE != 0 => Access::Write,
            error if error & FETCH != 0 => Access::Execute,
            _ => Access::Read,
        }
    }

    /// Whether the page fault is of an access that may be the user half's (T5).
    fn is_meant(&self) -> bool {
        self.is_users() || self.error & FETCH == 0 && cpu::is_reaching_user(self.rflags)
    }
}

/// What `trap.s` saved of x87 and SSE below a frame.
fn floats(frame: &Frame) -> &Floats {
    let at = (&raw const *frame as u64 - size_of::<Floats>() as u64) & !15;
    // SAFETY: `trap.s` put them there, and they stay as long as the frame.
    unsafe { &*(at as *const Floats) }
}

#[unsafe(no_mangle)]
extern "C" fn trap(frame: &mut Frame) {
    match frame.vector {
        PAGE_FAULT => page_fault(frame),
        vector if vector == u64::from(SHOOTDOWN) => {
            interrupts::count(Kind::Shootdown);
            machine().serve();
            smp::end_of_interrupt();
        }
        vector if vector == u64::from(WAKE) || vector == u64::from(TICK) => {
            let is_timer = vector == u64::from(TICK);
            interrupts::count(if is_timer { Kind::Timer } else { Kind::Wake });
            smp::end_of_interrupt();
            // The program's thread looks whether another one's turn has come, or its own end. In
            // the kernel it does so when it is back.
            if frame.is_users() {
                leave(frame);
            } else if is_timer && cpu::user().program().is_some() {
                smp::interrupt_in(SOON);
            }
        }
        vector if vector == u64::from(STORM) => {
            storm::strike();
            smp::end_of_interrupt();
        }
        SPURIOUS => interrupts::count(Kind::Spurious),
        vector if frame.is_users() => {
            if leave(frame) {
                return;
            }
            let mut result = 1;
            if vector == DONE {
                result = frame.rax;
            } else {
                cpu::user().stop(Stop::Exception(vector as u8, Va::new(frame.rip)));
            }
            frame.return_to_kernel(result);
        }
        _ => crate::panic::exception(frame, "unexpected exception"),
    }
}

/// Makes the entry end in the kernel code that went to ring 3 for a program that answers for
/// itself, and keeps its registers; false where none runs.
#[inline(never)]
fn leave(frame: &mut Frame) -> bool {
    let Some(kept) = cpu::kept() else { return false };
    // SAFETY: the program was in ring 3 until now, and nobody else has its registers.
    unsafe { *kept.registers.get() = *frame };
    // SAFETY: as above.
    unsafe { *kept.floats.get() = *floats(frame) };
    frame.resume(left_ring_3 as *const () as u64, cpu::user_stack(), 0);
    true
}

/// An entry that found no room on the kernel's stack: it runs on the IST stack.
#[unsafe(no_mangle)]
extern "C" fn trap_without_stack(frame: &mut Frame) {
    if !give_up_attempt(frame, fault_address()) {
        crate::panic::exception(frame, "kernel stack overflow");
    }
}

fn page_fault(frame: &mut Frame) {
    if frame.error & RESERVED != 0 {
        // Served it would be taken again, for ever: the tables say something that no CPU takes.
        crate::panic::exception(frame, "reserved bit set in a page table");
    }
    let va = Va::new(fault_address());
    let running = cpu::user();
    if let Some(space) = running.space().filter(|_| va.get() >> 47 == 0 && frame.is_meant()) {
        if frame.rflags & INTERRUPTS != 0 {
            port::enable(); // T1
        }
        let outcome = crate::memory::manager().fault(space, va, frame.access());
        port::disable();
        if is_served(outcome) {
            return;
        }
        if frame.is_users() {
            running.stop(Stop::Fault(va, outcome));
            frame.return_to_kernel(1);
            return;
        }
    } else if let Some(program) = running.program() {
        return program_fault(frame, program);
    } else if frame.is_users() {
        running.stop(Stop::Outside(va));
        frame.return_to_kernel(1);
        return;
    }
    kernel_fault(frame, va);
}

/// The same while the CPU runs a program that answers for itself.
#[inline(never)]
fn program_fault(frame: &mut Frame, program: &dyn Program) {
    let va = Va::new(fault_address());
    if va.get() >> 47 == 0 && frame.is_meant() {
        if frame.rflags & INTERRUPTS != 0 {
            port::enable(); // T1
        }
        let origin = if frame.is_users() { Origin::Program } else { Origin::Kernel };
        let is_served = program.fault(va, frame.access(), origin);
        port::disable();
        if is_served {
            return;
        }
    }
    if !(frame.is_users() && leave(frame)) {
        kernel_fault(frame, va);
    }
}

/// A fault of the kernel's that nobody served: of a guarded access, or a bug.
#[inline(never)]
fn kernel_fault(frame: &mut Frame, va: Va) {
    if let Some(rip) = foliant_x86::recover(frame.rip).or_else(|| reach::recover(frame.rip)) {
        frame.rip = rip;
    } else if !give_up_attempt(frame, va.get()) {
        crate::panic::exception(frame, "page fault in the kernel");
    }
}

/// Makes the entry end in `attempt`, if one is under way on this CPU.
fn give_up_attempt(frame: &mut Frame, va: u64) -> bool {
    let stack = cpu::attempt_stack();
    if stack != 0 {
        frame.resume(attempt_failed as *const () as u64, stack, va);
    }
    stack != 0
}

/// Runs `work`; if it makes a kernel access that faults, or overflows the stack, says at which
/// address. What `work` holds is then not dropped.
pub(crate) fn attempt_access(work: extern "C" fn(usize), argument: usize) -> Option<Va> {
    let interrupts = port::interrupts_on();
    // SAFETY: both functions follow the C calling convention; what the abandoned frames hold leaks
    // at worst.
    let va = unsafe { attempt(work, argument) };
    if interrupts {
        port::enable();
    }
    (va != 0).then(|| Va::new(va))
}
