//! Which CPU of which machine a host thread stands for.
//!
//! A thread can stand for a CPU of several machines at once, and calls nest; the innermost place on
//! a machine counts. Outside all of them a thread is CPU 0.

use core::cell::RefCell;
use foliant_units::Cpu;

#[derive(Clone, Copy)]
pub(crate) struct Place {
    machine: u64,
    cpu: Cpu,
    /// The baton that the thread takes part in, in a seeded run.
    slot: Option<Cpu>,
}

thread_local! {
    static PLACES: RefCell<Vec<Place>> = const { RefCell::new(Vec::new()) };
}

/// The CPU of `machine` that this thread stands for, and its baton slot in the current run.
#[inline]
pub(crate) fn place(machine: u64) -> (Cpu, Option<Cpu>) {
    PLACES.with_borrow(|places| {
        let here = places.iter().rev().find(|place| place.machine == machine);
        here.map_or((Cpu(0), None), |place| (place.cpu, place.slot))
    })
}

/// The CPU of `machine` that this thread stands for.
#[inline]
pub(crate) fn cpu(machine: u64) -> Cpu {
    place(machine).0
}

/// The baton slot of this thread in the current run of `machine`.
pub(crate) fn slot(machine: u64) -> Option<Cpu> {
    place(machine).1
}

/// Takes all places of the thread away, because another lane uses the thread next.
pub(crate) fn take() -> Vec<Place> {
    PLACES.take()
}
/// Puts back what was taken.
pub(crate) fn put(places: Vec<Place>) {
    PLACES.set(places);
}

struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        PLACES.with_borrow_mut(|places| places.pop());
    }
}

fn enter<R>(at: Place, work: impl FnOnce() -> R) -> R {
    PLACES.with_borrow_mut(|places| places.push(at));
    let _leave = Leave;
    work()
}

/// Runs `work` as `cpu` of `machine`, in the same run as before.
pub(crate) fn on<R>(machine: u64, cpu: Cpu, work: impl FnOnce() -> R) -> R {
    enter(Place { machine, cpu, slot: slot(machine) }, work)
}

/// Runs `work` as `cpu` of `machine` with a baton slot of its own.
pub(crate) fn on_slot<R>(machine: u64, cpu: Cpu, work: impl FnOnce() -> R) -> R {
    enter(Place { machine, cpu, slot: Some(cpu) }, work)
}
