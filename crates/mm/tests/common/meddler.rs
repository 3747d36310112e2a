//! A machine that lets a test act in the middle of an operation: right after a block was cleared, or right before a root
//! is loaded.

use foliant_machine::{Around, Cpus, Kept, PhysMem, Root, Tlb};
use foliant_sim::Sim;
use foliant_units::{Bytes, Cpu, Pa};
use std::sync::Mutex;

type Hook = Box<dyn FnOnce() + Send>;

/// The simulator with a hook.
pub struct Meddler {
    pub sim: Sim,
    clearing: Mutex<Option<(Bytes, Hook)>>,
    activating: Mutex<Option<(Cpu, Hook)>>,
}

impl Meddler {
    pub fn new(sim: Sim) -> Meddler {
        Meddler { sim, clearing: Mutex::new(None), activating: Mutex::new(None) }
    }
    /// Runs `hook` once, after the next block of `bytes` was cleared: the folio is prepared, not yet published.
    pub fn after_clearing(&self, bytes: u64, hook: impl FnOnce() + Send + 'static) {
        *self.clearing.lock().unwrap() = Some((Bytes::new(bytes), Box::new(hook)));
    }
    /// Runs `hook` once, when `cpu` is about to load a root: it is announced, and has decided what it keeps.
    pub fn before_activating(&self, cpu: Cpu, hook: impl FnOnce() + Send + 'static) {
        *self.activating.lock().unwrap() = Some((cpu, Box::new(hook)));
    }
}

#[allow(unsafe_code)]
// SAFETY: everything is the simulator's.
unsafe impl Around for Meddler {
    type Inner = Sim;

    fn inner(&self) -> &Sim {
        &self.sim
    }
    unsafe fn clear(&self, pa: Pa, bytes: Bytes) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.sim.clear(pa, bytes) }
        let due = self.clearing.lock().unwrap().take_if(|(size, _)| *size == bytes);
        if let Some((_, hook)) = due {
            hook();
        }
    }
    fn activate(&self, root: Root, kept: Kept) {
        let me = self.sim.me();
        let due = self.activating.lock().unwrap().take_if(|(cpu, _)| *cpu == me);
        if let Some((_, hook)) = due {
            hook();
        }
        self.sim.activate(root, kept)
    }
}
