//! The baton of seeded runs: host threads or lanes of one stand for CPUs, and exactly one of them
//! runs.
//!
//! Contract calls are the switching points. Which CPU goes next depends on the seed and on what the
//! CPUs asked for so far, never on the host's scheduler, so a run replays from its seed.
//!
//! **Invariants**
//! - I1. Between `join` and `leave` a slot runs only while it holds the baton.
//! - I2. No lock of the machine is held where the baton is handed over.
//!
//! **Locking**: `state` is a leaf lock; `chance` and `spins` are the holder's.
//!
//! **Not here**: switches between contract calls, unless code that knows of an access to memory
//! that only the manager sees asks for one (`Sim::preempt`). Weak orders of such accesses are found
//! by an interleaving checker or by free mode under a sanitizer.

use crate::lanes;
use crate::rng::Rng;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use foliant_units::Cpu;
use parking_lot::{Condvar, Mutex};

/// So many spins in a row, while no CPU does anything else, are called a deadlock; where there are
/// many CPUs, 200 for each.
const SPINS_MAX: u64 = 20_000;

#[derive(Debug)]
struct State {
    /// Slots that have not finished, lowest first.
    alive: Vec<u16>,
    holder: Option<u16>,
    /// Another CPU panicked: none waits any more.
    broken: bool,
}

/// The scheduler of one machine.
#[derive(Debug)]
pub(crate) struct Baton {
    state: Mutex<State>,
    /// The seed's chance: the holder draws.
    chance: AtomicU64,
    /// Spins since a CPU did something else: the holder counts.
    spins: AtomicU64,
    turns: Box<[Condvar]>,
    seed: u64,
    switch_once_in: u32,
}

/// What unwinds a CPU when another one has failed; the other one's message is the one to read.
#[derive(Debug)]
pub(crate) struct Abandoned;

impl Baton {
    pub(crate) fn new(cpus: usize, seed: u64, switch_once_in: u32) -> Baton {
        Baton {
            state: Mutex::new(State { alive: Vec::new(), holder: None, broken: false }),
            chance: AtomicU64::new(Rng::new(seed, 1 << 32).state),
            spins: AtomicU64::new(0),
            turns: (0..cpus).map(|_| Condvar::new()).collect(),
            seed,
            switch_once_in,
        }
    }

    /// Draws from the seed's chance. One CPU at a time does (I1), and the lock is taken between the
    /// draws of two CPUs, so no exchange is needed.
    #[inline]
    fn chance<R>(&self, draw: impl FnOnce(&mut Rng) -> R) -> R {
        let mut rng = Rng { state: self.chance.load(Relaxed) };
        let drawn = draw(&mut rng);
        self.chance.store(rng.state, Relaxed);
        drawn
    }

    /// Prepares a run of the slots 0 to `slots - 1`; false where one is under way.
    pub(crate) fn begin(&self, slots: usize) -> bool {
        let mut state = self.state.lock();
        if !state.alive.is_empty() {
            return false;
        }
        state.alive = (0..slots as u16).collect();
        let first = self.chance(|rng| rng.below(slots as u64)) as u16;
        state.holder = Some(first);
        self.spins.store(0, Relaxed);
        state.broken = false;
        true
    }

    /// The slot that goes on; none once all have finished.
    pub(crate) fn holder(&self) -> Option<usize> {
        self.state.lock().holder.map(usize::from)
    }

    /// Waits for the slot's first turn.
    pub(crate) fn join(&self, slot: Cpu) {
        self.await_turn(&mut self.state.lock(), slot);
    }

    /// The slot has finished.
    pub(crate) fn leave(&self, slot: Cpu, failed: bool) {
        let mut state = self.state.lock();
        state.alive.retain(|s| *s != slot.0);
        self.spins.store(0, Relaxed);
        if failed {
            state.broken = true;
            self.turns.iter().for_each(|turn| {
                turn.notify_all();
            });
        }
        if state.holder == Some(slot.0) {
            state.holder = None;
            if !state.alive.is_empty() {
                let left = state.alive.len() as u64;
                let at = self.chance(|rng| rng.below(left)) as usize;
                let next = state.alive[at];
                self.hand_to(&mut state, next);
            }
        }
    }

    /// A contract call: perhaps another slot goes on first.
    pub(crate) fn step(&self, slot: Cpu) {
        self.spins.store(0, Relaxed);
        self.preempt(slot);
    }

    /// Between two contract calls: perhaps another slot goes on. The spins go on counting, since
    /// nothing was done that could end a wait.
    pub(crate) fn preempt(&self, slot: Cpu) {
        if self.chance(|rng| rng.once_in(self.switch_once_in)) {
            self.switch(&mut self.state.lock(), slot);
        }
    }

    /// The slot spins: another one goes on, if there is one.
    pub(crate) fn spin(&self, slot: Cpu) {
        let mut state = self.state.lock();
        let spins = self.spins.load(Relaxed) + 1;
        self.spins.store(spins, Relaxed);
        if spins > SPINS_MAX.max(200 * state.alive.len() as u64) && !state.broken {
            state.broken = true;
            drop(state);
            panic!("seed {}: every CPU only spins: deadlock, seen on cpu {}", self.seed, slot.0);
        }
        self.switch(&mut state, slot);
    }

    fn switch(&self, state: &mut parking_lot::MutexGuard<'_, State>, slot: Cpu) {
        if state.alive.len() < 2 || state.broken || std::thread::panicking() {
            return self.abandon(state);
        }
        let others = state.alive.len() as u64 - 1;
        let mut at = self.chance(|rng| rng.below(others)) as usize;
        let mine = state.alive.iter().position(|s| *s == slot.0);
        at += usize::from(mine.is_some_and(|mine| at >= mine));
        let next = state.alive[at.min(state.alive.len() - 1)];
        self.hand_to(state, next);
        self.await_turn(state, slot);
    }

    fn hand_to(&self, state: &mut State, next: u16) {
        state.holder = Some(next);
        self.turns[usize::from(next)].notify_one();
    }

    fn await_turn(&self, state: &mut parking_lot::MutexGuard<'_, State>, slot: Cpu) {
        while state.holder != Some(slot.0) && !state.broken {
            match lanes::are_at_work() {
                true => parking_lot::MutexGuard::unlocked(state, lanes::leave),
                false => self.turns[slot.index()].wait(state),
            }
        }
        self.abandon(state);
    }

    fn abandon(&self, state: &State) {
        if state.broken && !std::thread::panicking() {
            std::panic::resume_unwind(Box::new(Abandoned));
        }
    }
}
