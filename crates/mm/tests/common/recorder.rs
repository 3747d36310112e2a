//! A machine that writes down what it is asked to do: entries stored, descriptors stored,
//! invalidations.

use foliant_machine::{
    Around, Invalidation, KernelFault, KernelVa, Owner, PhysMem, Ticket, Tlb, Witness,
};
use foliant_sim::Sim;
use foliant_units::{Bytes, CpuSet, FrameRange, Pa, Va};
use std::ptr::NonNull;
use std::sync::Mutex;

/// What the manager did.
#[derive(Clone, Debug)]
pub enum Step {
    /// It wrote a page-table word.
    Entry { at: Pa, old: u64, new: u64 },
    /// It wrote a word at a kernel address.
    Word { va: Va },
    /// It reached for memory.
    Reached(Pa),
    /// It asked other CPUs.
    Ask(Box<Invalidation>),
    /// They are done.
    Waited,
    /// It gave frames up.
    Freed,
}

/// The simulator with a log.
pub struct Recorder {
    pub sim: Sim,
    log: Mutex<Vec<Step>>,
}

impl Recorder {
    pub fn new(sim: Sim) -> Recorder {
        Recorder { sim, log: Mutex::new(Vec::new()) }
    }
    /// What was done since the last time.
    pub fn take(&self) -> Vec<Step> {
        std::mem::take(&mut self.log.lock().unwrap())
    }
    fn note(&self, step: Step) {
        self.log.lock().unwrap().push(step);
    }
}

#[allow(unsafe_code)]
// SAFETY: everything is the simulator's.
unsafe impl Around for Recorder {
    type Inner = Sim;

    fn inner(&self) -> &Sim {
        &self.sim
    }
    unsafe fn reach(&self, pa: Pa, bytes: Bytes) -> NonNull<u8> {
        self.note(Step::Reached(pa));
        // SAFETY: the caller's promise is passed on.
        unsafe { self.sim.reach(pa, bytes) }
    }
    unsafe fn is_zero(&self, pa: Pa, bytes: Bytes) -> bool {
        self.note(Step::Reached(pa));
        // SAFETY: as above.
        unsafe { self.sim.is_zero(pa, bytes) }
    }
    unsafe fn store(&self, pa: Pa, word: u64) {
        // SAFETY: as above.
        let old = unsafe { self.sim.load(pa) };
        self.note(Step::Entry { at: pa, old, new: word });
        // SAFETY: as above.
        unsafe { self.sim.store(pa, word) }
    }
    unsafe fn compare_exchange(&self, pa: Pa, old: u64, new: u64) -> Result<u64, u64> {
        // SAFETY: as above.
        let done = unsafe { self.sim.compare_exchange(pa, old, new) };
        if done.is_ok() {
            self.note(Step::Entry { at: pa, old, new });
        }
        done
    }
    unsafe fn kernel_store(&self, va: Va, word: u64) -> Result<(), KernelFault> {
        self.note(Step::Word { va });
        // SAFETY: as above.
        unsafe { self.sim.kernel_store(va, word) }
    }
    unsafe fn kernel_compare_exchange(
        &self,
        va: Va,
        old: u64,
        new: u64,
    ) -> Result<Result<u64, u64>, KernelFault> {
        self.note(Step::Word { va });
        // SAFETY: as above.
        unsafe { self.sim.kernel_compare_exchange(va, old, new) }
    }
    unsafe fn kernel_fill(
        &self,
        va: Va,
        stride: Bytes,
        count: u64,
        word: u64,
    ) -> Result<(), KernelFault> {
        (0..count).for_each(|n| self.note(Step::Word { va: va.add(n * stride.get()) }));
        // SAFETY: as above.
        unsafe { self.sim.kernel_fill(va, stride, count, word) }
    }
    fn ask(&self, cpus: &CpuSet, what: &Invalidation) -> Ticket {
        self.note(Step::Ask(Box::new(*what)));
        self.sim.ask(cpus, what)
    }
    fn wait(&self, ticket: Ticket) {
        self.sim.wait(ticket);
        self.note(Step::Waited);
    }
    fn owned(&self, frames: FrameRange, owner: Owner) {
        if owner == Owner::Free {
            self.note(Step::Freed);
        }
        self.sim.owned(frames, owner)
    }
}
