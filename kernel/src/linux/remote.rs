//! Bytes of another process: its memory is the calling CPU's for a moment.
//!
//! ```text
//!   get ─▶ the CPU runs the other space, its faults are the other memory's ─▶ copy ─▶ back
//! ```
//!
//! **Invariants**
//! - O1. The other memory is held until the CPU is back in its own space, so it does not end under
//!   the CPU. Whoever lets go of it last is not the one that runs it (`sched::S2`).
//! - O2. Nothing in between lets another thread run here.
#![allow(unsafe_code)]

use super::process::Held;
use super::sched;
use crate::frame::{Floats, Frame};
use crate::memory::manager;
use crate::running::{Origin, Program};
use crate::{cpu, reach};
use alloc::sync::Arc;
use foliant::fault::Access;
use foliant_linux::{Errno, Fault};
use foliant_units::Va;

/// What answers for the faults of a copy.
struct Other<'h>(&'h Held);

impl Program for Other<'_> {
    fn fault(&self, va: Va, access: Access, _: Origin) -> bool {
        self.0.fault(va.get(), access) == Fault::Done
    }
    fn leave(&self, _: &Frame, _: &Floats) {
        unreachable!("ring 3 does not run in the meantime (O2)");
    }
}

/// Works while the calling CPU runs another process's space.
fn inside<R>(memory: &Arc<Held>, work: impl FnOnce() -> R) -> Result<R, Errno> {
    let space = memory.with(|memory| memory.space());
    let other = Other(memory);
    let program: &dyn Program = &other;
    // SAFETY: it is taken away below, before it is dropped.
    let program: &'static dyn Program = unsafe { core::mem::transmute(program) };
    manager().switch(Some(space)).map_err(|_| Errno(linux_raw_sys::errno::ESRCH))?;
    cpu::user().set_program(Some(program));
    let result = work();
    sched::current().load(); // O1
    Ok(result)
}

/// Copies bytes of a process; says how many were within reach.
pub(super) fn get(memory: &Arc<Held>, into: &mut [u8], at: u64) -> Result<usize, Errno> {
    let count = inside(memory, || reach::get(into, at))?;
    if count == 0 && !into.is_empty() { Err(Errno::FAULT) } else { Ok(count) }
}
/// Copies bytes to a process; says how many were within reach.
pub(super) fn put(memory: &Arc<Held>, at: u64, from: &[u8]) -> Result<usize, Errno> {
    let count = inside(memory, || reach::put(at, from))?;
    if count == 0 && !from.is_empty() { Err(Errno::FAULT) } else { Ok(count) }
}
