//! A machine on which a second CPU acts in the middle of what the first one does: before its n-th
//! step, for every n.
//!
//! A step is a contract call that reads or changes a word that others see. Before the chosen one
//! CPU 1 begins its part, on a thread of its own; CPU 0 goes on when that is done, or when it waits
//! for CPU 0. So nothing of the manager has to be known here: no lock, no format, no place in the
//! code.

use super::{AuditedMm, manager_on};
use foliant::Policy;
use foliant_machine::{Around, Clock, Cpus, KernelFault, KernelVa, Owner, PhysMem, Witness};
use foliant_sim::Sim;
use foliant_units::{Bytes, Cpu, FrameRange, Pa, Va};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// So many spins in a row mean that CPU 1 waits for CPU 0.
const PATIENCE: u64 = 100;
/// So many spins of either, with the other at work all the while, mean that it waits for ever. The
/// other may be a thread that the host has not let run for a long time.
const FOR_EVER: u64 = 2_000_000;

type Part<'a> = Box<dyn FnOnce() + Send + 'a>;

/// The simulator and the other CPU's part.
pub struct Beside {
    pub sim: Sim,
    /// Steps left until the part begins, 0 where none is waiting for it.
    left: AtomicU64,
    part: Mutex<Option<Part<'static>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Of CPU 1, since its part began.
    spins: AtomicU64,
    /// Of each CPU: spins while the other was at work, or done.
    waits: [AtomicU64; 2],
    /// What each has done by now, steps and spins, and what the other saw of it last.
    done: [AtomicU64; 2],
    seen: [AtomicU64; 2],
    finished: Arc<AtomicBool>,
    /// The part begins behind a swap that was made, instead of before it.
    behind: bool,
    /// Each time that a record of the manager's is reached is a step too.
    of_records: bool,
    yields: AtomicU64,
    steps: AtomicU64,
    /// Those of the last work.
    worked: AtomicU64,
}

impl Beside {
    pub fn new(sim: Sim) -> Beside {
        Beside {
            sim,
            left: AtomicU64::new(0),
            part: Mutex::new(None),
            thread: Mutex::new(None),
            spins: AtomicU64::new(0),
            waits: [0; 2].map(AtomicU64::new),
            done: [0; 2].map(AtomicU64::new),
            seen: [0; 2].map(AtomicU64::new),
            finished: Arc::new(AtomicBool::new(true)),
            behind: false,
            of_records: false,
            yields: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            worked: AtomicU64::new(0),
        }
    }

    /// The same, with the steps behind swaps, such as those that give a table back.
    pub fn behind_swaps(sim: Sim) -> Beside {
        Beside { behind: true, ..Beside::new(sim) }
    }

    /// The same, where the manager reaches its records as well: between two steps of page tables.
    pub fn of_records(sim: Sim) -> Beside {
        Beside { of_records: true, ..Beside::new(sim) }
    }

    /// A manager of its memory.
    pub fn manager(&self, policy: Policy) -> AuditedMm<'_> {
        manager_on(self, &self.sim.config().memory, policy)
    }

    /// Does `work` on CPU 0, and `part` on CPU 1 from the `nth` step of it on, counted from 1.
    /// `None` where the work has fewer steps: then the part was not done.
    pub fn before_step<R>(
        &self,
        nth: u64,
        part: impl FnOnce() + Send,
        work: impl FnOnce() -> R,
    ) -> Option<R> {
        let part: Part<'_> = Box::new(|| self.sim.on(Cpu(1), part));
        #[allow(unsafe_code)]
        // SAFETY: it is dropped, or its thread is joined, before this returns or unwinds.
        let part = unsafe { mem::transmute::<Part<'_>, Part<'static>>(part) };
        *self.part.lock().unwrap() = Some(part);
        self.spins.store(0, SeqCst);
        self.left.store(nth, SeqCst);
        let begun = self.steps();
        let done = catch_unwind(AssertUnwindSafe(work));
        self.worked.store(self.steps() - begun, SeqCst);
        self.left.store(0, SeqCst);
        let unused = self.part.lock().unwrap().take();
        let thread = self.thread.lock().unwrap().take();
        while !self.finished.load(SeqCst) {
            self.done[0].fetch_add(1, SeqCst);
            self.sim.relax(); // it may wait for this CPU
        }
        let part = thread.map_or(Ok(()), JoinHandle::join);
        let done = done.unwrap_or_else(|why| resume_unwind(why));
        part.unwrap_or_else(|why| resume_unwind(why));
        unused.is_none().then_some(done)
    }

    /// Steps of CPU 0 so far.
    pub fn steps(&self) -> u64 {
        self.steps.load(SeqCst)
    }
    /// How many the last work had, done [before a step](Beside::before_step) of it or of none.
    pub fn worked(&self) -> u64 {
        self.worked.load(SeqCst)
    }
    /// How often long work let others run.
    pub fn yields(&self) -> u64 {
        self.yields.load(SeqCst)
    }

    /// One CPU waits for the other.
    fn wait(&self, me: usize) {
        let other = self.done[1 - me].load(SeqCst);
        let is_at_work = self.seen[1 - me].swap(other, SeqCst) != other;
        if is_at_work || self.finished.load(SeqCst) {
            endless(self.waits[me].fetch_add(1, SeqCst), me);
        }
    }

    fn step(&self) {
        let me = self.sim.me();
        if let Some(done) = self.done.get(usize::from(me.0)) {
            done.fetch_add(1, SeqCst);
        }
        if me != Cpu(0) {
            return;
        }
        self.steps.fetch_add(1, SeqCst);
        if self.left.load(SeqCst) == 0 || self.left.fetch_sub(1, SeqCst) > 1 {
            return;
        }
        let part = self.part.lock().unwrap().take().expect("armed once");
        self.finished.store(false, SeqCst);
        self.spins.store(0, SeqCst);
        let finished = Finished(Arc::clone(&self.finished));
        *self.thread.lock().unwrap() = Some(thread::spawn(move || {
            let _finished = finished;
            part();
        }));
        while !self.finished.load(SeqCst) && self.spins.load(SeqCst) < PATIENCE {
            self.sim.relax();
        }
    }
}

/// Steps of so many before which another part begins, where most are alike: each of the first and
/// of the last ones, and every seventh between.
pub fn some_steps(all: u64) -> impl Iterator<Item = u64> {
    const ENDS: u64 = 100;
    (1..=all).filter(move |step| *step <= ENDS || *step + ENDS > all || step.is_multiple_of(7))
}

/// Ends a wait that has no end. Once: what unwinds may wait as well, and a panic in it would end
/// the program before the first one is told; not for ever, though.
fn endless(spins: u64, cpu: usize) {
    assert!(spins != FOR_EVER && spins < 10 * FOR_EVER, "CPU {cpu} waits for ever");
}

/// Says so when the part is over, also by a panic.
struct Finished(Arc<AtomicBool>);

impl Drop for Finished {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[allow(unsafe_code)]
// SAFETY: everything is the simulator's.
unsafe impl Around for Beside {
    type Inner = Sim;

    fn inner(&self) -> &Sim {
        &self.sim
    }
    unsafe fn reach(&self, pa: Pa, bytes: Bytes) -> NonNull<u8> {
        if self.of_records {
            self.step();
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { self.sim.reach(pa, bytes) }
    }
    unsafe fn load(&self, pa: Pa) -> u64 {
        self.step();
        // SAFETY: the caller's promise is passed on.
        unsafe { self.sim.load(pa) }
    }
    unsafe fn store(&self, pa: Pa, word: u64) {
        self.step();
        // SAFETY: the caller's promise is passed on.
        unsafe { self.sim.store(pa, word) }
    }
    unsafe fn compare_exchange(&self, pa: Pa, old: u64, new: u64) -> Result<u64, u64> {
        if !self.behind {
            self.step();
        }
        // SAFETY: the caller's promise is passed on.
        let done = unsafe { self.sim.compare_exchange(pa, old, new) };
        if self.behind {
            self.step();
        }
        done
    }
    unsafe fn kernel_load(&self, va: Va) -> Result<u64, KernelFault> {
        self.step();
        // SAFETY: the caller's promise is passed on.
        unsafe { self.sim.kernel_load(va) }
    }
    unsafe fn kernel_store(&self, va: Va, word: u64) -> Result<(), KernelFault> {
        self.step();
        // SAFETY: the caller's promise is passed on.
        unsafe { self.sim.kernel_store(va, word) }
    }
    unsafe fn kernel_compare_exchange(
        &self,
        va: Va,
        old: u64,
        new: u64,
    ) -> Result<Result<u64, u64>, KernelFault> {
        self.step();
        // SAFETY: the caller's promise is passed on.
        unsafe { self.sim.kernel_compare_exchange(va, old, new) }
    }
    unsafe fn kernel_fill(
        &self,
        va: Va,
        stride: Bytes,
        count: u64,
        word: u64,
    ) -> Result<(), KernelFault> {
        self.step();
        // SAFETY: the caller's promise is passed on.
        unsafe { self.sim.kernel_fill(va, stride, count, word) }
    }
    fn owned(&self, frames: FrameRange, owner: Owner) {
        self.step();
        self.sim.owned(frames, owner);
    }
    fn relax(&self) {
        let me = usize::from(self.sim.me().0);
        self.done[me].fetch_add(1, SeqCst);
        self.spins.fetch_add(me as u64, SeqCst);
        self.wait(me);
        self.sim.relax();
    }
    fn yield_now(&self) {
        self.yields.fetch_add(1, SeqCst);
        self.sim.yield_now();
    }
}
