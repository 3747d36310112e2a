//! Programs in ring 3: which space a CPU runs for them, and why they stopped.
//!
//! The programs are a few instructions without a stack, at one kernel-half address that ring 3 may
//! execute, so that running one adds no page to the space that it works on.
#![allow(unsafe_code)]

use crate::layout::PROGRAMS;
use crate::memory::manager;
use crate::{cpu, smp};
use core::cell::Cell;
use core::fmt;
use foliant::fault::{Access, Outcome};
use foliant::manager::SpaceError;
use foliant::space::SpaceId;
use foliant_units::{Bytes, Va, VaRange};

/// Why a program did not come to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// A fault that the manager did not serve.
    Fault(Va, Outcome),
    /// An access outside the user half.
    Outside(Va),
    /// An exception of this vector at this instruction.
    Exception(u8, Va),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Fault(va, outcome) => write!(f, "the access of {va} ended with {outcome:?}"),
            Stop::Outside(va) => write!(f, "{va} is not the program's to access"),
            Stop::Exception(vector, va) => write!(f, "exception {vector} at {va}"),
        }
    }
}

/// What a CPU runs for its user program. Its own CPU alone reads and writes it.
pub(crate) struct Running {
    space: Cell<Option<SpaceId>>,
    stopped: Cell<Option<Stop>>,
}

impl Running {
    pub(crate) const fn new() -> Running {
        Running { space: Cell::new(None), stopped: Cell::new(None) }
    }
    pub(crate) fn space(&self) -> Option<SpaceId> {
        self.space.get()
    }
    pub(crate) fn stop(&self, why: Stop) {
        self.stopped.set(Some(why));
    }
}

/// Whether the access can be tried again.
pub(crate) fn is_served(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Mapped(_)
        | Outcome::ZeroPage(_)
        | Outcome::Copied
        | Outcome::Reused
        | Outcome::Spurious => true,
        Outcome::Userfault(_)
        | Outcome::Refused(_)
        | Outcome::NoHugePage(_)
        | Outcome::OutOfMemory
        | Outcome::OverLimit => false,
    }
}

/// Makes the calling CPU run `space`, or none.
pub(crate) fn switch(space: Option<SpaceId>) -> Result<(), SpaceError> {
    // Faults are handled for a space only while its tables are loaded.
    cpu::user().space.set(None);
    manager().switch(space)?;
    cpu::user().space.set(space);
    Ok(())
}

/// Runs `work` with faults handled for `space`, which the manager made this CPU run already.
pub(crate) fn for_space<R>(space: SpaceId, work: impl FnOnce() -> R) -> R {
    let before = cpu::user().space.replace(Some(space));
    let result = work();
    cpu::user().space.set(before);
    result
}

#[repr(C)]
struct Start {
    rip: u64,
    arguments: [u64; 4],
}

unsafe extern "C" {
    static user_programs: u8;
    static user_touch_read: u8;
    static user_touch_write: u8;
    static user_forbidden: u8;
    static user_return_only: u8;
    static user_tables: u8;
    static user_keep: u8;
    static user_look: u8;
    static user_programs_end: u8;
    fn run_in_ring_3(start: *const Start) -> u64;
}

/// The programs' bytes in the image.
pub(crate) fn image() -> (u64, Bytes) {
    let (start, end) = (&raw const user_programs as u64, &raw const user_programs_end as u64);
    (start, Bytes::new(end - start))
}

/// Runs a program of ring 3 that reads or writes one word per `stride` of `range`, in the space
/// that the calling CPU runs.
pub(crate) fn touch(range: VaRange, stride: Bytes, access: Access) -> Result<(), Stop> {
    let program = match access {
        Access::Write => &raw const user_touch_write,
        Access::Read | Access::Execute => &raw const user_touch_read,
    };
    start(program, [range.start().get(), range.end().get(), stride.get(), 0])
}

/// Reads one word, wherever it is said to be.
pub(crate) fn read_at(va: Va) -> Result<(), Stop> {
    start(&raw const user_touch_read, [va.get(), va.get() + 1, 1, 0])
}

/// Runs a program that does what ring 3 may not.
pub(crate) fn forbidden() -> Result<(), Stop> {
    start(&raw const user_forbidden, [0; 4])
}

/// Runs a program that asks where the kernel's tables are, and writes it to `at`.
pub(crate) fn find_tables(at: Va) -> Result<(), Stop> {
    start(&raw const user_tables, [at.get(), 0, 0, 0])
}

/// A program that returns to whoever calls it: code for ring 3 that ring 0 can call by mistake.
pub(crate) fn return_only() -> Va {
    PROGRAMS.add(&raw const user_return_only as u64 - image().0)
}

/// Runs a program that sets every register as the page at `notes` says, waits, and notes what
/// became of them (trap.s).
pub(crate) fn keep(notes: Va) -> Result<(), Stop> {
    start(&raw const user_keep, [notes.get(), 0, 0, 0])
}

/// Runs a program that notes in the page at `notes` what it finds in every register.
pub(crate) fn look(notes: Va) -> Result<(), Stop> {
    start(&raw const user_look, [notes.get(), 0, 0, 0])
}

fn start(program: *const u8, arguments: [u64; 4]) -> Result<(), Stop> {
    let offset = program as u64 - image().0;
    let start = Start { rip: PROGRAMS.add(offset).get(), arguments };
    // SAFETY: the program is mapped for ring 3 (memory::furnish), and every way out of ring 3 is a
    // gate of `trap`.
    let result = unsafe { run_in_ring_3(&start) };
    match (result, cpu::user().stopped.take()) {
        (_, Some(stop)) => Err(stop),
        (0, None) => Ok(()),
        (code, None) => panic!("a user program ended with {code:#x}"),
    }
}

/// Runs `work` on the calling CPU inside `space`, and leaves the space again.
pub(crate) fn inside<R>(space: SpaceId, work: impl FnOnce() -> R) -> Result<R, SpaceError> {
    switch(Some(space))?;
    let result = work();
    switch(None).expect("leaving a space is always possible");
    Ok(result)
}

/// Runs `work` inside `space` on the first `cpus` CPUs at once.
pub(crate) fn inside_together(
    space: SpaceId,
    cpus: usize,
    work: &(dyn Fn(foliant_units::Cpu) + Sync),
) {
    smp::together(cpus, &|cpu| {
        inside(space, || work(cpu)).expect("the caller's space is alive");
    });
}
