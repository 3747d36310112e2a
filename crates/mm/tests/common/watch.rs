//! A machine that watches what is waited for while a page table is locked (table::I9), and that can
//! stop a CPU between the change of an entry and its flush.
#![allow(unsafe_code)]

use foliant::table::{Paging, X86_64};
use foliant_machine::{Around, Clock, Cpus, Invalidation, PhysMem, Ticket, Tlb};
use foliant_sim::Sim;
use foliant_units::{Cpu, CpuSet, Pa};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard};

const PRESENT: u64 = 1;
const LOCK: u64 = <X86_64<4> as Paging>::LOCK;

/// Whether a word is a leaf out of use: breaking, or a migration entry.
fn is_waited_for(word: u64) -> bool {
    word & PRESENT == 0 && matches!(word >> 1 & 31, 3 | 4)
}

#[derive(Default)]
struct Books {
    /// Who holds the lock in a word.
    held: BTreeMap<Pa, Cpu>,
    /// Who took the leaf in a word out of use.
    taken: BTreeMap<Pa, Cpu>,
    /// The last word that each CPU read.
    read: BTreeMap<Cpu, Pa>,
    found: Vec<String>,
}

impl Books {
    fn holds(&self, cpu: Cpu) -> bool {
        self.held.values().any(|holder| *holder == cpu)
    }
    fn written(&mut self, cpu: Cpu, pa: Pa, word: u64) {
        match is_waited_for(word) {
            true => drop(self.taken.insert(pa, cpu)),
            false => drop(self.taken.remove(&pa)),
        }
        match word & (PRESENT | LOCK) == PRESENT | LOCK {
            true => drop(self.held.entry(pa).or_insert(cpu)),
            false => drop(self.held.remove(&pa)),
        }
    }
}

/// The simulator, x86-64, with a list of what was waited for under a table's lock.
pub struct Watch {
    pub sim: Sim,
    books: Mutex<Books>,
    stage: AtomicU64,
}

/// Nobody stops.
const IDLE: u64 = 0;
/// The next CPU that asks others stops before it.
const ARMED: u64 = 1;
/// One has stopped.
const STOPPED: u64 = 2;
/// Another one has waited meanwhile, and it goes on.
const MET: u64 = 3;

impl Watch {
    pub fn new(sim: Sim) -> Watch {
        Watch { sim, books: Mutex::default(), stage: AtomicU64::new(IDLE) }
    }
    /// What was waited for under a table's lock so far.
    pub fn found(&self) -> Vec<String> {
        self.books().found.clone()
    }
    /// The next CPU that is about to ask others waits until another one has waited for something.
    pub fn stop_before_asking(&self) {
        self.stage.store(ARMED, SeqCst);
    }
    /// Waits until one has stopped.
    pub fn until_stopped(&self) {
        while self.stage.load(SeqCst) != STOPPED {
            self.sim.relax();
        }
    }
    /// Lets it go on, and says whether the caller had to wait for something before.
    pub fn go_on(&self) -> bool {
        self.stage.swap(IDLE, SeqCst) == MET
    }
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap()
    }
    fn no_table(&self, what: &str) {
        let me = self.sim.me();
        let mut books = self.books();
        if books.holds(me) {
            books.found.push(format!("{me:?} {what} under a table's lock"));
        }
    }
}

// SAFETY: everything is the simulator's.
unsafe impl Around for Watch {
    type Inner = Sim;

    fn inner(&self) -> &Sim {
        &self.sim
    }
    unsafe fn load(&self, pa: Pa) -> u64 {
        // SAFETY: passed on.
        let word = unsafe { self.sim.load(pa) };
        self.books().read.insert(self.sim.me(), pa);
        word
    }
    unsafe fn store(&self, pa: Pa, word: u64) {
        // In the books first: others may run as soon as it is written.
        self.books().written(self.sim.me(), pa, word);
        // SAFETY: passed on.
        unsafe { self.sim.store(pa, word) }
    }
    unsafe fn compare_exchange(&self, pa: Pa, old: u64, new: u64) -> Result<u64, u64> {
        // SAFETY: passed on.
        let done = unsafe { self.sim.compare_exchange(pa, old, new) };
        if done.is_ok() {
            self.books().written(self.sim.me(), pa, new);
        }
        done
    }
    fn relax(&self) {
        let me = self.sim.me();
        let mut books = self.books();
        // A locked table below, and a leaf lock, come free without the table that is held.
        let at = books.read.get(&me).copied().unwrap_or_default();
        if let Some(owner) = books.taken.get(&at).filter(|owner| **owner != me).copied()
            && books.holds(me)
        {
            books.found.push(format!("{me:?} waits for {owner:?}'s entry under a table's lock"));
        }
        drop(books);
        let _ = self.stage.compare_exchange(STOPPED, MET, SeqCst, SeqCst);
        self.sim.relax();
    }
    fn yield_now(&self) {
        self.no_table("yields");
        self.sim.yield_now();
    }
    fn ask(&self, cpus: &CpuSet, what: &Invalidation) -> Ticket {
        if self.stage.compare_exchange(ARMED, STOPPED, SeqCst, SeqCst).is_ok() {
            while self.stage.load(SeqCst) == STOPPED {
                self.sim.relax();
            }
        }
        self.sim.ask(cpus, what)
    }
    fn wait(&self, ticket: Ticket) {
        self.no_table("waits for a flush");
        self.sim.wait(ticket);
    }
}
