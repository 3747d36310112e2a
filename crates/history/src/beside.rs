//! A program beside: on a CPU of its own, in one of the spaces, it goes on while the manager is at
//! work for others.
//!
//! CPUs are in the manager most of the time, so that a program hardly ever stores at the one
//! instruction where it matters. This one is at hand there: behind a copy or a look for zeros,
//! before a flush, before a table's word changes. It uses what its CPU has cached and takes no
//! fault there; its faults it takes between the operations of another CPU.
//!
//! **Invariants**
//! - Q1. It goes on within calls of the machine only while it is in no call of the manager itself.
//! - Q2. What it did is in its log, in the order in which it did it; the holder of the log takes it
//!   before concluding anything.

use crate::model::{WORDS, value};
use crate::rng::Rng;
use crate::tasks::Copied;
use foliant_sim::Cached;
use foliant_units::{Bytes, Cpu, FRAME_BYTES, Pa, Va};

/// Where it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum At {
    /// In its own code.
    Program,
    /// At an access.
    Access,
    /// In the manager, or stopped.
    Manager,
}

/// Where others are when it goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum While {
    /// A CPU has copied memory.
    Copied,
    /// A CPU has seen whether memory holds zeros.
    Looked,
    /// A CPU is about to flush.
    Flush,
    /// A CPU is about to change a word of a table.
    Word,
}

impl While {
    /// How rarely it gets as far as an access.
    const fn once_in(self) -> u32 {
        match self {
            While::Copied => 1,
            While::Looked | While::Flush => 4,
            While::Word => 40,
        }
    }
}

/// What it did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Did {
    pub(crate) space: u64,
    pub(crate) va: u64,
    /// What it stored, or what a load gave.
    pub(crate) value: u64,
    pub(crate) is_store: bool,
    pub(crate) at: u64,
}

/// An access that it is about to make; stores name the value.
pub(crate) type Next = (Va, Option<u64>);

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Beside {
    cpu: Cpu,
    /// The space's number.
    space: u64,
    rng: Rng,
    serial: u64,
    at: At,
    /// What its CPU runs.
    root: Pa,
    copied: Option<Copied>,
    log: Vec<Did>,
}

impl Beside {
    pub(crate) fn new(cpu: Cpu, seed: u64) -> Beside {
        let (rng, log) = (Rng::new(seed, 7), Vec::new());
        let root = Pa::new(0);
        Beside { cpu, space: 0, rng, serial: 0, at: At::Manager, root, copied: None, log }
    }
    /// It wants to call the manager; false where it is busy.
    pub(crate) fn stop(&mut self) -> bool {
        let was = core::mem::replace(&mut self.at, At::Manager);
        if was == At::Access {
            self.at = was;
        }
        was == At::Program
    }
    /// It is in its own code again, in `space`.
    pub(crate) fn go_on(&mut self, space: u64) {
        (self.space, self.at) = (space, At::Program);
    }
    /// The number of the space that it is in.
    pub(crate) fn space(&self) -> u64 {
        self.space
    }
    /// `cpu` runs another root.
    pub(crate) fn activates(&mut self, cpu: Cpu, root: Pa) {
        if cpu == self.cpu {
            self.root = root;
        }
    }
    pub(crate) fn copied(&mut self, copied: Copied) {
        self.copied = Some(copied);
    }
    /// Memory in this page was looked at: what is cached of it is as good a place as where memory
    /// was copied from.
    pub(crate) fn looked(&mut self, page: Pa) {
        self.copied = Some(Copied { from: page, to: page, bytes: Bytes::new(FRAME_BYTES) });
    }
    pub(crate) fn take_log(&mut self) -> Vec<Did> {
        core::mem::take(&mut self.log)
    }

    /// The CPU, if it gets as far as an access now; it is at it from then on.
    pub(crate) fn starts(&mut self, meanwhile: While) -> Option<Cpu> {
        if self.at != At::Program || !self.rng.once_in(meanwhile.once_in()) {
            return None;
        }
        self.at = At::Access;
        Some(self.cpu)
    }
    /// What it accesses: mostly what was copied or looked at last, if its CPU has that cached,
    /// otherwise anything that its CPU has cached.
    pub(crate) fn next(&mut self, cached: &[Cached]) -> Option<Next> {
        let root = self.root;
        let pages = |entry: &&Cached| !entry.table && entry.rights.user && entry.tag == root;
        let moved: Vec<(u64, u64)> = match self.copied.filter(|_| !self.rng.once_in(4)) {
            Some(copied) => cached.iter().filter(pages).filter_map(|e| part(e, &copied)).collect(),
            None => Vec::new(),
        };
        let all = || cached.iter().filter(pages).map(|e| (e.va.get(), e.bytes())).collect();
        let choice: Vec<(u64, u64)> = if moved.is_empty() { all() } else { moved };
        let (start, bytes) = *choice.get(self.rng.below(choice.len() as u64) as usize)?;
        let page = self.rng.below(bytes / FRAME_BYTES) * FRAME_BYTES;
        let va = start + page + *self.rng.pick(&WORDS);
        let store = !self.rng.once_in(3);
        self.serial += u64::from(store);
        let stored = store.then(|| value(self.space, va, self.serial | 1 << 30));
        Some((Va::new(va), stored))
    }
    /// The access was made at the moment `at`, or not.
    pub(crate) fn made(&mut self, next: Option<Next>, got: Option<u64>, at: u64) {
        self.at = At::Program;
        if let (Some((va, stored)), Some(value)) = (next, got) {
            let (space, is_store) = (self.space, stored.is_some());
            self.log.push(Did { space, va: va.get(), value, is_store, at });
        }
    }
}

/// Where the memory that was copied is cached by `entry`, if it is.
fn part(entry: &Cached, copied: &Copied) -> Option<(u64, u64)> {
    let (first, from) = (entry.base.get(), copied.from.get());
    let start = first.max(from);
    let end = (first + entry.bytes()).min(from + copied.bytes.get());
    (start < end).then(|| (entry.va.get() + (start - first), (end - start).max(FRAME_BYTES)))
}
