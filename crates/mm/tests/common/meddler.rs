//! A machine that lets a test act in the middle of an operation: right after a block was cleared.

use foliant_machine::{
    Clock, Cpus, Invalidation, KernelFault, KernelVa, MmuRules, Owner, PhysMem, Refusal, Root,
    Ticket, Tlb, Witness,
};
use foliant_sim::Sim;
use foliant_units::{Bytes, Cpu, CpuSet, FrameRange, Nanos, Pa, Va};
use std::ptr::NonNull;
use std::sync::Mutex;

type Hook = Box<dyn FnOnce() + Send>;

/// The simulator with a hook.
pub struct Meddler {
    pub sim: Sim,
    hook: Mutex<Option<(Bytes, Hook)>>,
}

impl Meddler {
    pub fn new(sim: Sim) -> Meddler {
        Meddler { sim, hook: Mutex::new(None) }
    }
    /// Runs `hook` once, after the next block of `bytes` was cleared: the folio is prepared, not yet published.
    pub fn after_clearing(&self, bytes: u64, hook: impl FnOnce() + Send + 'static) {
        *self.hook.lock().unwrap() = Some((Bytes::new(bytes), Box::new(hook)));
    }
}

#[allow(unsafe_code)]
// SAFETY: everything is the simulator's.
unsafe impl PhysMem for Meddler {
    unsafe fn reach(&self, pa: Pa, bytes: Bytes) -> NonNull<u8> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.sim.reach(pa, bytes) }
    }
    unsafe fn load(&self, pa: Pa) -> u64 {
        // SAFETY: as above.
        unsafe { self.sim.load(pa) }
    }
    unsafe fn store(&self, pa: Pa, word: u64) {
        // SAFETY: as above.
        unsafe { self.sim.store(pa, word) }
    }
    unsafe fn compare_exchange(&self, pa: Pa, old: u64, new: u64) -> Result<u64, u64> {
        // SAFETY: as above.
        unsafe { self.sim.compare_exchange(pa, old, new) }
    }
    unsafe fn clear(&self, pa: Pa, bytes: Bytes) {
        // SAFETY: as above.
        unsafe { self.sim.clear(pa, bytes) }
        let due = self.hook.lock().unwrap().take_if(|(size, _)| *size == bytes);
        if let Some((_, hook)) = due {
            hook();
        }
    }
    unsafe fn copy(&self, from: Pa, to: Pa, bytes: Bytes) {
        // SAFETY: as above.
        unsafe { self.sim.copy(from, to, bytes) }
    }
}

#[allow(unsafe_code)]
// SAFETY: everything is the simulator's.
unsafe impl KernelVa for Meddler {
    unsafe fn kernel_load(&self, va: Va) -> Result<u64, KernelFault> {
        // SAFETY: as above.
        unsafe { self.sim.kernel_load(va) }
    }
    unsafe fn kernel_store(&self, va: Va, word: u64) -> Result<(), KernelFault> {
        // SAFETY: as above.
        unsafe { self.sim.kernel_store(va, word) }
    }
    unsafe fn kernel_compare_exchange(
        &self,
        va: Va,
        old: u64,
        new: u64,
    ) -> Result<Result<u64, u64>, KernelFault> {
        // SAFETY: as above.
        unsafe { self.sim.kernel_compare_exchange(va, old, new) }
    }
}

impl Tlb for Meddler {
    fn activate(&self, root: Root) {
        self.sim.activate(root)
    }
    fn invalidate(&self, what: &Invalidation) {
        self.sim.invalidate(what)
    }
    fn ask(&self, cpus: &CpuSet, what: &Invalidation) -> Ticket {
        self.sim.ask(cpus, what)
    }
    fn wait(&self, ticket: Ticket) {
        self.sim.wait(ticket)
    }
    fn rules(&self) -> MmuRules {
        self.sim.rules()
    }
}

impl Cpus for Meddler {
    fn me(&self) -> Cpu {
        self.sim.me()
    }
    fn count(&self) -> usize {
        self.sim.count()
    }
    fn pinned<R>(&self, work: impl FnOnce(Cpu) -> R) -> R {
        self.sim.pinned(work)
    }
    fn relax(&self) {
        self.sim.relax()
    }
}

impl Clock for Meddler {
    fn now(&self) -> Nanos {
        self.sim.now()
    }
    fn breathe(&self) {
        self.sim.breathe()
    }
}

impl Witness for Meddler {
    fn owned(&self, frames: FrameRange, owner: Owner) {
        self.sim.owned(frames, owner)
    }
    fn refusal(&self) -> Refusal {
        self.sim.refusal()
    }
}
