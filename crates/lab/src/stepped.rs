#![allow(unsafe_code)]
//! A machine whose calls are counted as steps: one for each call, and for a bulk call one more for
//! each line of 64 bytes.
//!
//! **Not here**: where the steps go (`foliant::steps`, which counts the manager's own accesses
//! too).

use core::ptr::NonNull;
use foliant_machine::{Around, Caching, Invalidation, Kept, KernelFault, Machine, Root, Ticket};
use foliant_units::{Bytes, CpuSet, Nanos, Pa, Va};

/// Bytes that count as one step of a bulk call.
const LINE: u64 = 64;

/// See the module's text.
#[derive(Debug)]
pub struct Stepped<M> {
    machine: M,
    take: fn(u64),
    rested: fn(),
}

impl<M> Stepped<M> {
    /// Around `machine`; steps are handed to `take`, and `rested` hears of each turn of a spin
    /// loop.
    pub const fn new(machine: M, take: fn(u64), rested: fn()) -> Stepped<M> {
        Stepped { machine, take, rested }
    }
    /// The machine inside.
    pub const fn machine(&self) -> &M {
        &self.machine
    }
    fn lines(&self, bytes: Bytes) {
        (self.take)(1 + bytes.get() / LINE);
    }
}

// SAFETY: every call is handed on.
unsafe impl<M: Machine> Around for Stepped<M> {
    type Inner = M;

    fn inner(&self) -> &M {
        &self.machine
    }
    unsafe fn reach(&self, pa: Pa, bytes: Bytes) -> NonNull<u8> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.machine.reach(pa, bytes) }
    }
    unsafe fn load(&self, pa: Pa) -> u64 {
        (self.take)(1);
        // SAFETY: as above.
        unsafe { self.machine.load(pa) }
    }
    unsafe fn store(&self, pa: Pa, word: u64) {
        (self.take)(1);
        // SAFETY: as above.
        unsafe { self.machine.store(pa, word) }
    }
    unsafe fn compare_exchange(&self, pa: Pa, old: u64, new: u64) -> Result<u64, u64> {
        (self.take)(1);
        // SAFETY: as above.
        unsafe { self.machine.compare_exchange(pa, old, new) }
    }
    unsafe fn clear(&self, pa: Pa, bytes: Bytes, caching: Caching) {
        self.lines(bytes);
        // SAFETY: as above.
        unsafe { self.machine.clear(pa, bytes, caching) }
    }
    unsafe fn copy(&self, from: Pa, to: Pa, bytes: Bytes) {
        self.lines(bytes);
        // SAFETY: as above.
        unsafe { self.machine.copy(from, to, bytes) }
    }
    unsafe fn write(&self, pa: Pa, contents: &[u8]) {
        self.lines(Bytes::new(contents.len() as u64));
        // SAFETY: as above.
        unsafe { self.machine.write(pa, contents) }
    }
    unsafe fn kernel_load(&self, va: Va) -> Result<u64, KernelFault> {
        (self.take)(1);
        // SAFETY: as above.
        unsafe { self.machine.kernel_load(va) }
    }
    unsafe fn kernel_store(&self, va: Va, word: u64) -> Result<(), KernelFault> {
        (self.take)(1);
        // SAFETY: as above.
        unsafe { self.machine.kernel_store(va, word) }
    }
    unsafe fn kernel_compare_exchange(
        &self,
        va: Va,
        old: u64,
        new: u64,
    ) -> Result<Result<u64, u64>, KernelFault> {
        (self.take)(1);
        // SAFETY: as above.
        unsafe { self.machine.kernel_compare_exchange(va, old, new) }
    }
    unsafe fn kernel_fill(
        &self,
        va: Va,
        stride: Bytes,
        count: u64,
        word: u64,
    ) -> Result<(), KernelFault> {
        (self.take)(1 + count);
        // SAFETY: as above.
        unsafe { self.machine.kernel_fill(va, stride, count, word) }
    }
    fn activate(&self, root: Root, kept: Kept) {
        (self.take)(1);
        self.machine.activate(root, kept);
    }
    fn invalidate(&self, what: &Invalidation) {
        (self.take)(1 + what.items().len() as u64);
        self.machine.invalidate(what);
    }
    fn ask(&self, cpus: &CpuSet, what: &Invalidation) -> Ticket {
        (self.take)(cpus.len() as u64);
        self.machine.ask(cpus, what)
    }
    fn wait(&self, ticket: Ticket) {
        (self.take)(1);
        self.machine.wait(ticket);
    }
    fn relax(&self) {
        (self.rested)();
        self.machine.relax();
    }
    fn now(&self) -> Nanos {
        (self.take)(1);
        self.machine.now()
    }
}
