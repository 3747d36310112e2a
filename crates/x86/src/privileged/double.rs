//! A processor that writes down what it is told; each thread has one.
#![allow(unsafe_code)]

extern crate std;

use crate::broadcast::Operation;
use core::cell::RefCell;
use foliant_units::Va;
use std::collections::BTreeMap;
use std::vec::Vec;

/// Something with an effect that the processor was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    WriteMsr(u32, u64),
    SetCr0(u64),
    SetCr3(u64),
    SetCr4(u64),
    Invlpg(Va),
    InvpcidAll,
    Invlpgb(Operation),
    Tlbsync,
    InterruptsOff,
    InterruptsOn,
    Fence,
    FullFence,
}

/// Its state.
#[derive(Default)]
pub(crate) struct Processor {
    pub(crate) msrs: BTreeMap<u32, u64>,
    pub(crate) cr0: u64,
    pub(crate) cr3: u64,
    pub(crate) cr4: u64,
    pub(crate) interrupts: bool,
    told: Vec<Told>,
}

std::thread_local! {
    static PROCESSOR: RefCell<Processor> = RefCell::default();
}

/// Does `work` with the thread's processor.
pub(crate) fn with<R>(work: impl FnOnce(&mut Processor) -> R) -> R {
    PROCESSOR.with_borrow_mut(work)
}
/// What it was told since it was asked last.
pub(crate) fn told() -> Vec<Told> {
    with(|processor| core::mem::take(&mut processor.told))
}
fn tell(told: Told) {
    with(|processor| processor.told.push(told));
}

// SAFETY: of all that follow: nothing is asked of the caller, whatever the instructions ask.
pub(crate) unsafe fn read_msr(register: u32) -> u64 {
    with(|processor| processor.msrs.get(&register).copied().unwrap_or(0))
}
pub(crate) unsafe fn write_msr(register: u32, value: u64) {
    with(|processor| processor.msrs.insert(register, value));
    tell(Told::WriteMsr(register, value));
}
pub(crate) unsafe fn cr0() -> u64 {
    with(|processor| processor.cr0)
}
pub(crate) unsafe fn set_cr0(cr0: u64) {
    with(|processor| processor.cr0 = cr0);
    tell(Told::SetCr0(cr0));
}
pub(crate) unsafe fn cr3() -> u64 {
    with(|processor| processor.cr3)
}
pub(crate) unsafe fn set_cr3(cr3: u64) {
    with(|processor| processor.cr3 = cr3 & !(1 << 63)); // which reads as 0
    tell(Told::SetCr3(cr3));
}
pub(crate) unsafe fn cr4() -> u64 {
    with(|processor| processor.cr4)
}
pub(crate) unsafe fn set_cr4(cr4: u64) {
    with(|processor| processor.cr4 = cr4);
    tell(Told::SetCr4(cr4));
}
pub(crate) unsafe fn invlpg(va: Va) {
    tell(Told::Invlpg(va));
}
pub(crate) unsafe fn invpcid_all() {
    tell(Told::InvpcidAll);
}
pub(crate) unsafe fn invlpgb(operation: Operation) {
    tell(Told::Invlpgb(operation));
}
pub(crate) unsafe fn tlbsync() {
    tell(Told::Tlbsync);
}
pub(crate) unsafe fn interrupts_off() -> bool {
    tell(Told::InterruptsOff);
    with(|processor| core::mem::replace(&mut processor.interrupts, false))
}
pub(crate) unsafe fn interrupts_on() {
    tell(Told::InterruptsOn);
    with(|processor| processor.interrupts = true);
}
pub(crate) fn fence() {
    tell(Told::Fence);
}
pub(crate) fn full_fence() {
    tell(Told::FullFence);
}
