//! Which task runs on which CPU: a queue for each, and what is between them.
//!
//! ```text
//!               ┌────────────────── its turn is over ──────────────────┐
//!   put ─▶ the queue that fewest wait in ─▶ take, by its CPU ─▶ runs ──┤
//!    ▲                     │                                           │ waits: Standing
//!    │                     └───▶ take, by one that has nothing         ▼
//!    └──────────────────────────── wake ◀─────────────────────────── parked
//! ```
//!
//! What a task is, how a CPU goes on with one, how it halts and is interrupted is the embedder's.
//! A CPU's round:
//!
//! ```
//! use foliant_sched::{Came, Queues, Task};
//! use foliant_units::Cpu;
//! # #[derive(PartialEq, Debug)]
//! struct Named(&'static str);
//! impl Task for Named {
//!     fn allowed(&self) -> u64 {
//!         u64::MAX
//!     }
//!     fn last(&self) -> Cpu {
//!         Cpu(0)
//!     }
//! }
//! let interrupted = core::cell::Cell::new(None);
//! let queues = Queues::new(2, |cpu| interrupted.set(Some(cpu)));
//! assert!(queues.rest(Cpu(1)).is_none()); // with interrupts out: CPU 1 may halt now
//! queues.put(Named("a"), Came::Woken); // where it ran last, for nothing else runs there ..
//! assert_eq!(interrupted.take(), Some(Cpu(1))); // .. but CPU 1 could take it
//! queues.rouse(Cpu(1)); // it goes on behind its halt
//! assert_eq!(queues.take(Cpu(1)), Some(Named("a")));
//! queues.put(Named("b"), Came::Woken); // CPU 0 has less to do; no CPU rests
//! assert_eq!(interrupted.take(), None);
//! queues.left(Cpu(1)); // "a" waits, or is over
//! assert_eq!(queues.take(Cpu(1)), Some(Named("b"))); // it takes from others what it may run
//! ```
//!
//! **Invariants**
//! - Q1. A task is in one queue, or a CPU has taken it, or it is parked. One that was woken before
//!   it parked is put again: no wake-up is lost ([`Standing`]).
//! - Q2. No CPU halts while a task waits that it may run. It says that it rests, then looks into
//!   all queues; whoever puts a task looks behind that for one that rests, and interrupts it.
//! - Q3. A CPU that rests is interrupted for one task: whoever puts the next one finds another. One
//!   that was interrupted for a task while it found another passes the interrupt on.
//! - Q4. A CPU takes what it may run. What is in its queue and may not run there any more goes to
//!   another one's.
//!
//! **Locking**: a queue's lock, for a few steps, one at a time, with nothing under it: room for
//! more is made and given back outside, so a CPU may spin for it with interrupts out. Counts beside
//! are hints of where fewest wait; nothing else depends on them.
//!
//! **Not here**: turns and time, stacks, interrupts (the embedder's).
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod lock;
#[cfg(all(loom, test))]
mod loom_tests;
mod standing;
#[cfg(all(not(loom), test))]
mod tests;

pub use standing::Standing;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use foliant_sync::{AtomicU64, Ordering};
use foliant_units::Cpu;
use lock::Lock;

/// What is queued.
pub trait Task {
    /// CPUs that may run it, a bit each. Those behind the 64th run all.
    fn allowed(&self) -> u64;
    /// The CPU that ran it last, or is the nearest to what it uses.
    fn last(&self) -> Cpu;
}

/// Why a task is put into a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Came {
    /// It is new, or was woken. It stays where it ran, where others are as long.
    Woken,
    /// Its turn is over. It goes elsewhere, where others are as long, so all get as many turns.
    Over,
}

/// The bit of a CPU among those that may run a task.
pub fn bit_of(cpu: Cpu) -> u64 {
    1u64.checked_shl(cpu.0.into()).unwrap_or(u64::MAX)
}
fn may_run(task: &impl Task, cpu: Cpu) -> bool {
    task.allowed() & bit_of(cpu) != 0
}

/// A CPU's.
struct Own<T> {
    ready: Lock<VecDeque<T>>,
    /// How many wait in it.
    waiting: AtomicU64,
    /// 1 while the CPU runs one.
    runs: AtomicU64,
    /// 1 from before it halts until it is roused, or somebody interrupts it (Q3).
    rests: AtomicU64,
}

/// A queue for each CPU. One that halts is interrupted by `I`.
pub struct Queues<T, I> {
    own: Box<[Own<T>]>,
    interrupt: I,
}

impl<T: Task, I: Fn(Cpu)> Queues<T, I> {
    /// Empty ones, for so many CPUs.
    pub fn new(cpus: usize, interrupt: I) -> Queues<T, I> {
        let own = |_| Own {
            ready: Lock::new(VecDeque::new()),
            waiting: AtomicU64::new(0),
            runs: AtomicU64::new(0),
            rests: AtomicU64::new(0),
        };
        Queues { own: (0..cpus).map(own).collect(), interrupt }
    }
    fn cpus(&self) -> impl Iterator<Item = (Cpu, &Own<T>)> {
        self.own.iter().enumerate().map(|(index, own)| (Cpu(index as u16), own))
    }
    fn of(&self, cpu: Cpu) -> &Own<T> {
        &self.own[cpu.index()]
    }

    /// Queues a task, and interrupts a CPU that rests and may run it.
    pub fn put(&self, task: T, came: Came) {
        let (cpu, allowed) = (self.place(&task, came), task.allowed());
        self.of(cpu).push(task);
        if !self.wakes(cpu) {
            self.wake_one(allowed);
        }
    }
    /// Interrupts a CPU if it rests (Q3).
    fn wakes(&self, cpu: Cpu) -> bool {
        let rests = &self.of(cpu).rests;
        let wakes = rests.load(Ordering::Acquire) == 1 && rests.swap(0, Ordering::AcqRel) == 1;
        if wakes {
            (self.interrupt)(cpu);
        }
        wakes
    }
    fn wake_one(&self, allowed: u64) {
        let mut all = self.cpus().map(|(cpu, _)| cpu).filter(|cpu| allowed & bit_of(*cpu) != 0);
        let _ = all.find(|cpu| self.wakes(*cpu));
    }
    /// Where fewest run and wait, of those that may run it.
    fn place(&self, task: &T, came: Came) -> Cpu {
        let last = task.last();
        let is_later = |cpu: Cpu, load: u64| match came {
            Came::Over if load > 0 => cpu == last,
            _ => cpu != last,
        };
        let may = self.cpus().filter(|(cpu, _)| may_run(task, *cpu));
        let place = may.min_by_key(|(cpu, own)| (own.load(), is_later(*cpu, own.load())));
        place.map_or(last, |(cpu, _)| cpu)
    }

    /// Takes a task for a CPU: its own first, then of those behind it. The CPU runs it until
    /// [`left`](Queues::left).
    pub fn take(&self, me: Cpu) -> Option<T> {
        let own = self.of(me);
        let count = self.own.len();
        let others = (1..count).map(|n| Cpu(((me.index() + n) % count) as u16));
        let mut wanted = others.filter(|other| self.is_wanted(*other));
        let task = self.first(me).or_else(|| wanted.find_map(|other| self.of(other).next(me)));
        own.runs.store(task.is_some().into(), Ordering::Relaxed);
        task
    }
    /// The first of its own that a CPU may run. Those before it go elsewhere (Q4).
    fn first(&self, me: Cpu) -> Option<T> {
        let own = self.of(me);
        for _ in 0..own.waiting.load(Ordering::Relaxed) {
            match own.change(VecDeque::pop_front)? {
                task if may_run(&task, me) => return Some(task),
                stray => self.put(stray, Came::Woken),
            }
        }
        None
    }
    /// A CPU runs its task no more.
    pub fn left(&self, me: Cpu) {
        self.of(me).runs.store(0, Ordering::Relaxed);
    }
    /// Whether a task waits for a CPU.
    pub fn is_wanted(&self, me: Cpu) -> bool {
        self.of(me).waiting.load(Ordering::Relaxed) > 0
    }

    /// A CPU is about to halt, with interrupts out: one that comes meanwhile ends the halt at once.
    /// It does not halt where it gets a task. Behind a halt comes [`rouse`](Queues::rouse).
    pub fn rest(&self, me: Cpu) -> Option<T> {
        let own = self.of(me);
        own.rests.swap(1, Ordering::AcqRel);
        // Q2: each lock is taken, whatever the counts say. Who puts a task behind that sees the 1.
        let task = self.cpus().find_map(|(_, other)| other.next(me))?;
        own.runs.store(1, Ordering::Relaxed);
        if own.rests.swap(0, Ordering::AcqRel) == 0 {
            self.wake_one(u64::MAX); // Q3
        }
        Some(task)
    }
    /// It goes on.
    pub fn rouse(&self, me: Cpu) {
        self.of(me).rests.store(0, Ordering::Release);
    }
}

impl<T: Task> Own<T> {
    fn change<R>(&self, work: impl FnOnce(&mut VecDeque<T>) -> R) -> R {
        self.ready.with(|ready| {
            let result = work(ready);
            self.waiting.store(ready.len() as u64, Ordering::Relaxed);
            result
        })
    }
    fn push(&self, task: T) {
        let (mut task, mut room) = (Some(task), VecDeque::new());
        loop {
            let lacks = self.change(|ready| {
                if ready.len() == ready.capacity() {
                    if room.capacity() <= ready.len() {
                        return Some(ready.len());
                    }
                    room.extend(ready.drain(..));
                    core::mem::swap(ready, &mut room);
                }
                ready.extend(task.take());
                None
            });
            let Some(length) = lacks else { return };
            room = VecDeque::with_capacity(2 * length + 8);
        }
    }
    fn load(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed) + self.runs.load(Ordering::Relaxed)
    }
    /// Takes the first task that a CPU may run.
    fn next(&self, cpu: Cpu) -> Option<T> {
        self.change(|ready| {
            let nth = ready.iter().position(|task| may_run(task, cpu))?;
            ready.remove(nth)
        })
    }
}
