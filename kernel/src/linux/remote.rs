//! Bytes of another process: its memory is the calling CPU's for a moment.
//!
//! ```text
//!   get ─▶ the CPU runs the other space, its faults are the other memory's ─▶ copy ─▶ back
//! ```
//!
//! `/proc/PID/mem` reaches what the process itself may not, too: a page of its own is given the
//! right for a moment, under the lock of its memory.
//!
//! **Invariants**
//! - O1. The other memory is held until the CPU is back in its own space, so it does not end under
//!   the CPU. Whoever lets go of it last is not the one that runs it (`sched::S2`).
//! - O2. Nothing in between lets another thread run here.
#![allow(unsafe_code)]

use super::process::Held;
use super::sched;
use crate::memory::manager;
use crate::running::{Origin, Program};
use crate::{cpu, reach};
use alloc::sync::Arc;
use foliant::fault::Access;
use foliant_linux::{Errno, Fault};
use foliant_units::Va;
use linux_raw_sys::errno::ESRCH;
use linux_raw_sys::general::{PROT_READ, PROT_WRITE};

/// What answers for the faults of a copy.
struct Other<'h>(&'h Held);

impl Program for Other<'_> {
    fn fault(&self, va: Va, access: Access, _: Origin) -> bool {
        self.0.fault(va.get(), access) == Fault::Done
    }
}

/// Works while the calling CPU runs another process's space.
fn inside<R>(memory: &Arc<Held>, work: impl FnOnce() -> R) -> Result<R, Errno> {
    let space = memory.with(|memory| memory.space());
    let other = Other(memory);
    let program: &dyn Program = &other;
    // SAFETY: it is taken away below, before it is dropped.
    let program: &'static dyn Program = unsafe { core::mem::transmute(program) };
    let own = sched::current();
    own.unload();
    let result = manager().switch(Some(space)).map(|()| {
        cpu::user().set_program(Some(program));
        work()
    });
    own.load(); // O1
    result.map_err(|_| Errno(ESRCH))
}

/// Copies bytes of a process whatever it may do itself; says how many were within reach.
pub(super) fn get_anyway(memory: &Arc<Held>, into: &mut [u8], at: u64) -> Result<usize, Errno> {
    let count = inside(memory, || reach::get(into, at))?;
    let rest = &mut into[count..];
    let at = at.wrapping_add(count as u64);
    let more = anyway(memory, (at, rest.len()), (PROT_READ, Access::Read), |room| {
        reach::get_present(&mut rest[..room], at)
    })?;
    if count + more == 0 && !into.is_empty() { Err(Errno::FAULT) } else { Ok(count + more) }
}
/// Copies bytes to a process whatever it may do itself; says how many were within reach.
pub(super) fn put_anyway(memory: &Arc<Held>, at: u64, from: &[u8]) -> Result<usize, Errno> {
    let count = inside(memory, || reach::put(at, from))?;
    let (at, rest) = (at.wrapping_add(count as u64), &from[count..]);
    let more = anyway(memory, (at, rest.len()), (PROT_WRITE, Access::Write), |room| {
        reach::put_present(at, &rest[..room])
    })?;
    if count + more == 0 && !from.is_empty() { Err(Errno::FAULT) } else { Ok(count + more) }
}
/// Gives the page at an address a right for as long as `work` copies bytes of it; private memory
/// alone, of which a write makes a page of the process's own.
fn anyway(
    memory: &Arc<Held>,
    (at, bytes): (u64, usize),
    (right, access): (u32, Access),
    work: impl FnOnce(usize) -> usize,
) -> Result<usize, Errno> {
    const PAGE: u64 = 4096;
    if bytes == 0 {
        return Ok(0);
    }
    let page = at & !(PAGE - 1);
    let room = bytes.min((page + PAGE - at) as usize);
    inside(memory, || {
        memory.with_alone(|memory| {
            let Some(vma) = memory.vma(at).filter(|vma| !vma.is_shared()) else { return 0 };
            let (before, lacks) = (vma.prot(), vma.prot() & right == 0);
            if !lacks || memory.mprotect(page, PAGE, before | right).is_err() {
                return 0;
            }
            let is_there = memory.fault_alone(at, access) == Fault::Done;
            let count = if is_there { work(room) } else { 0 };
            memory.mprotect(page, PAGE, before).map_or(0, |_| count)
        })
    })
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
