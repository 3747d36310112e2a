//! A thread from its beginning to its end.
//!
//! ```text
//!   program, if it begins with one ─▶ signals ─▶ ring 3 ─▶ a call, a fault, another's turn ─▶ answered ─▶ again
//!                                                                     its end, or its process's ─▶ finish
//! ```

use super::futex::{self, Scope};
use super::process::{self, Process};
use super::sched::{self, Runs};
use super::signal::{Ended, Info};
use super::thread::Thread;
use super::{calls, clock, exec, handlers, proc_fd, terminal, texts, user, waiters};
use crate::running::{CALL, Origin};
use crate::{apic, heap, say};
use alloc::sync::Arc;
use foliant_linux::Fault;
use linux_raw_sys::general::{SIGBUS, SIGFPE, SIGILL, SIGKILL, SIGSEGV, SIGTRAP};

/// What a shell answers where a program cannot be run.
const NOT_STARTED: u8 = 126;
/// Nanoseconds in which others may give memory back.
const MOMENT: u64 = 1_000_000;
/// The call of programs of old.
const INT_80: u64 = 0x80;
/// The timer's interrupt.
const TURN_OVER: u64 = apic::TICK as u64;
/// Exceptions come below.
const EXCEPTIONS: u64 = 32;

/// Runs a thread until it ends. Its space is left then.
pub(super) fn run(thread: &Arc<Thread>) {
    let process = &thread.process;
    let first = thread.first.lock().take();
    if let Some((path, arguments, environment)) = first
        && let Err(why) = exec::exec(thread, &path, arguments, environment)
    {
        say!("the program does not start: {why}");
        process.note_end(Ended::Code(NOT_STARTED));
    }
    if thread.notes.get() != 0 {
        let _ = user::put(thread.notes.get(), &thread.id); // as Linux, it does not ask
    }
    loop {
        if thread.registers().vector == TURN_OVER {
            sched::give_way();
        }
        handlers::deliver(thread);
        if thread.is_over() {
            break;
        }
        if heap::is_scarce() {
            relieve(thread);
            continue;
        }
        if thread.note_cpu().is_err() {
            process.note_end(Ended::Signal(SIGSEGV));
            continue;
        }
        thread.enter();
        answer(thread);
    }
    finish(thread);
}

/// Sees to memory for the kernel: where none is left, nor in folios that are hardly used, a process
/// ends, as by Linux's killer. The first one goes last.
fn relieve(thread: &Arc<Thread>) {
    heap::fill_reserve();
    if !heap::is_scarce() || heap::find_some() {
        return; // it is called again as long as there is too little
    }
    if thread.process.id != 1 || process::is_first_alone() {
        thread.process.note_end(Ended::Signal(SIGKILL));
    } else {
        let _ = waiters::sleep(clock::uptime() + MOMENT); // a signal, or the end, is seen to next
    }
}

/// Does what a thread left ring 3 for.
fn answer(thread: &Arc<Thread>) {
    let registers = thread.registers();
    let info = match registers.vector {
        CALL => return calls::answer(thread),
        vector if vector >= EXCEPTIONS && vector != INT_80 => return, // an interrupt
        vector => match thread.refused.take() {
            Some(Fault::Signal(it)) => Info::access(&it),
            Some(Fault::Told(told)) => {
                // The access is made again, or a signal comes first.
                if let Some(memory) = thread.process.memory() {
                    let _ = memory.wait_told(&told, Origin::Program);
                }
                return;
            }
            Some(Fault::OutOfMemory) if heap::is_scarce() => return, // relieved, or ended, next
            Some(Fault::OutOfMemory) => return thread.process.note_end(Ended::Signal(SIGKILL)),
            Some(_) => Info::fault(SIGBUS, 0, registers.rip),
            None => exception(vector, registers.rip),
        },
    };
    handlers::force(thread, info);
}

/// What an exception of ring 3 means to a program.
fn exception(vector: u64, rip: u64) -> Info {
    let number = match vector {
        0 | 16 | 19 => SIGFPE,
        1 | 3 => SIGTRAP,
        6 => SIGILL,
        17 => SIGBUS,
        _ => SIGSEGV,
    };
    Info::fault(number, 0, rip)
}

/// The last steps of a thread.
fn finish(thread: &Arc<Thread>) {
    let process = &thread.process;
    if process.threads.lock().len() > 1 {
        futex::release(thread);
        let word = thread.clears.get();
        if word != 0 && user::put(word, &0u32).is_ok() {
            let _ = futex::wake(thread, (word, Scope::Shared), 1, u32::MAX); // it was just written
        }
    }
    thread.unload();
    texts::end_thread(process, thread.id);
    if process.lose(thread.id) {
        process.note_end(Ended::Code(0)); // each thread said for itself that it ends
        end(process);
    }
}

/// The last steps of a process.
fn end(process: &Arc<Process>) {
    terminal::end_session(process);
    process.give_back();
    proc_fd::end_process(process);
    texts::end_process(process);
    process.tell_end();
    if process::are_all_gone() {
        sched::end_rounds();
    }
}
