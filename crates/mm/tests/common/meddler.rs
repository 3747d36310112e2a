//! A machine that lets a test act in the middle of an operation: right after a block was cleared,
//! right before a root is loaded, right before other CPUs are asked, right before a page is looked
//! into, right before frames are given back, or where long work lets others run.

use foliant_machine::{
    Around, Caching, Clock, Cpus, Invalidation, Kept, Owner, PhysMem, Root, Ticket, Tlb, Witness,
};
use foliant_sim::Sim;
use foliant_units::{Bytes, Cpu, CpuSet, FrameRange, Pa};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

type Hook = Box<dyn FnOnce() + Send>;

/// Who spins so often waits for somebody who is below it on the stack.
const SPINS_MAX: u64 = 1_000_000;

/// The simulator with a hook.
pub struct Meddler {
    pub sim: Sim,
    clearing: Mutex<Option<(Bytes, Hook)>>,
    activating: Mutex<Option<(Cpu, Hook)>>,
    asking: Mutex<Option<Hook>>,
    yielding: Mutex<Option<Hook>>,
    looking: Mutex<Option<(Pa, Hook)>>,
    freeing: Mutex<Option<Hook>>,
    spins: AtomicU64,
}

impl Meddler {
    pub fn new(sim: Sim) -> Meddler {
        let (clearing, activating) = (Mutex::new(None), Mutex::new(None));
        let (asking, yielding) = (Mutex::new(None), Mutex::new(None));
        let (looking, freeing) = (Mutex::new(None), Mutex::new(None));
        let spins = AtomicU64::new(0);
        Meddler { sim, clearing, activating, asking, yielding, looking, freeing, spins }
    }
    /// Runs `hook` once, after the next block of `bytes` was cleared: the folio is prepared, not
    /// yet published.
    pub fn after_clearing(&self, bytes: u64, hook: impl FnOnce() + Send + 'static) {
        *self.clearing.lock().unwrap() = Some((Bytes::new(bytes), Box::new(hook)));
    }
    /// Runs `hook` once, when `cpu` is about to load a root: it is announced, and has decided what
    /// it keeps.
    pub fn before_activating(&self, cpu: Cpu, hook: impl FnOnce() + Send + 'static) {
        *self.activating.lock().unwrap() = Some((cpu, Box::new(hook)));
    }
    /// Runs `hook` once, when some CPU is about to ask others: entries were changed, and nobody was
    /// told.
    pub fn before_asking(&self, hook: impl FnOnce() + Send + 'static) {
        *self.asking.lock().unwrap() = Some(Box::new(hook));
    }
    /// Runs `hook` once, when somebody is about to look into the page at `pa` by itself.
    pub fn before_looking(&self, pa: Pa, hook: impl FnOnce() + Send + 'static) {
        *self.looking.lock().unwrap() = Some((pa, Box::new(hook)));
    }
    /// Runs `hook` once, when somebody is about to give frames back.
    pub fn before_freeing(&self, hook: impl FnOnce() + Send + 'static) {
        *self.freeing.lock().unwrap() = Some(Box::new(hook));
    }
    /// Runs `hook` once, when long work next lets others run.
    pub fn at_yield(&self, hook: impl FnOnce() + Send + 'static) {
        *self.yielding.lock().unwrap() = Some(Box::new(hook));
    }
}

#[allow(unsafe_code)]
// SAFETY: everything is the simulator's.
unsafe impl Around for Meddler {
    type Inner = Sim;

    fn inner(&self) -> &Sim {
        &self.sim
    }
    unsafe fn clear(&self, pa: Pa, bytes: Bytes, caching: Caching) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.sim.clear(pa, bytes, caching) }
        let due = self.clearing.lock().unwrap().take_if(|(size, _)| *size == bytes);
        if let Some((_, hook)) = due {
            hook();
        }
    }
    unsafe fn is_zero(&self, pa: Pa, bytes: Bytes) -> bool {
        let due = self.looking.lock().unwrap().take_if(|(at, _)| *at == pa);
        if let Some((_, hook)) = due {
            hook();
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { self.sim.is_zero(pa, bytes) }
    }
    fn activate(&self, root: Root, kept: Kept) {
        let me = self.sim.me();
        let due = self.activating.lock().unwrap().take_if(|(cpu, _)| *cpu == me);
        if let Some((_, hook)) = due {
            hook();
        }
        self.sim.activate(root, kept)
    }
    fn owned(&self, frames: FrameRange, owner: Owner) {
        let due = self.freeing.lock().unwrap().take_if(|_| owner == Owner::Free);
        if let Some(hook) = due {
            hook();
        }
        self.sim.owned(frames, owner);
    }
    fn yield_now(&self) {
        let due = self.yielding.lock().unwrap().take();
        if let Some(hook) = due {
            hook();
        }
        self.sim.yield_now();
    }
    fn relax(&self) {
        let spins = self.spins.fetch_add(1, Ordering::Relaxed);
        assert!(spins != SPINS_MAX, "it spins for ever");
        self.sim.relax();
    }
    fn ask(&self, cpus: &CpuSet, what: &Invalidation) -> Ticket {
        let due = self.asking.lock().unwrap().take();
        if let Some(hook) = due {
            hook();
        }
        self.sim.ask(cpus, what)
    }
}
