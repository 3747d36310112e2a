#![allow(unsafe_code)]
//! A machine that counts what is asked of it, around any machine: the same eyes on the simulator
//! and on silicon.
//!
//! **Locking**: none; relaxed atomics. A reading that is taken while CPUs work may mix moments.
//!
//! **Not here**: what a machine does by itself: walks, and invalidations that it carries out for
//! another CPU.

use core::sync::atomic::{AtomicU64, Ordering};
use foliant_machine::{Around, Caching, Invalidation, Kept, Machine, Root, Ticket};
use foliant_units::{Bytes, CpuSet, Pa};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What was asked of a machine since it was wrapped.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counts {
            /// What was asked since `before`, a reading of the same machine.
            pub fn since(&self, before: &Counts) -> Counts {
                Counts { $($name: self.$name.wrapping_sub(before.$name),)* }
            }
        }

        #[derive(Default, Debug)]
        struct Counters {
            $($name: AtomicU64,)*
        }

        impl Counters {
            fn read(&self) -> Counts {
                Counts { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counts! {
    /// Page-table words written: each `store`, and each `compare_exchange` that succeeded. Locks of
    /// tables are among them.
    entries_written,
    /// Calls of `clear`.
    clears,
    /// Bytes they cleared.
    cleared_bytes,
    /// Ticks they took. Exact while one CPU is at work.
    clear_ticks,
    /// Bytes copied.
    copied_bytes,
    /// Ticks that copying took. Exact while one CPU is at work.
    copy_ticks,
    /// Calls of `ask` that named another CPU.
    shootdowns,
    /// CPUs that they named.
    interrupts,
    /// Calls of `invalidate`.
    invalidations,
    /// Calls of `activate`.
    activations,
}

/// See the module's text.
#[derive(Debug)]
pub struct Counted<M> {
    machine: M,
    ticks: fn(&M) -> u64,
    counters: Counters,
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl<M> Counted<M> {
    /// Wraps `machine`; `ticks` reads a counter that grows with the work of the calling CPU.
    pub fn new(machine: M, ticks: fn(&M) -> u64) -> Counted<M> {
        Counted { machine, ticks, counters: Counters::default() }
    }
    /// The machine inside.
    pub fn machine(&self) -> &M {
        &self.machine
    }
    /// The counter that grows with the work of the calling CPU.
    pub(crate) fn ticks(&self) -> u64 {
        (self.ticks)(&self.machine)
    }
    /// What was asked so far.
    pub fn counts(&self) -> Counts {
        self.counters.read()
    }
}

// SAFETY: everything is the inner machine's; counting reaches no memory of its.
unsafe impl<M: Machine> Around for Counted<M> {
    type Inner = M;

    #[inline]
    fn inner(&self) -> &M {
        &self.machine
    }
    unsafe fn zeros(&self, pa: Pa, count: usize) -> usize {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.machine.zeros(pa, count) }
    }
    unsafe fn store(&self, pa: Pa, word: u64) {
        add(&self.counters.entries_written, 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { self.machine.store(pa, word) }
    }
    unsafe fn compare_exchange(&self, pa: Pa, old: u64, new: u64) -> Result<u64, u64> {
        // SAFETY: the caller's promise is passed on.
        let done = unsafe { self.machine.compare_exchange(pa, old, new) };
        add(&self.counters.entries_written, done.is_ok() as u64);
        done
    }
    unsafe fn clear(&self, pa: Pa, bytes: Bytes, caching: Caching) {
        let begun = self.ticks();
        // SAFETY: the caller's promise is passed on.
        unsafe { self.machine.clear(pa, bytes, caching) }
        let ticks = self.ticks().saturating_sub(begun);
        add(&self.counters.clears, 1);
        add(&self.counters.cleared_bytes, bytes.get());
        add(&self.counters.clear_ticks, ticks);
    }
    unsafe fn copy(&self, from: Pa, to: Pa, bytes: Bytes) {
        let begun = self.ticks();
        // SAFETY: the caller's promise is passed on.
        unsafe { self.machine.copy(from, to, bytes) }
        let ticks = self.ticks().saturating_sub(begun);
        add(&self.counters.copied_bytes, bytes.get());
        add(&self.counters.copy_ticks, ticks);
    }
    unsafe fn write(&self, pa: Pa, contents: &[u8]) {
        let begun = self.ticks();
        // SAFETY: the caller's promise is passed on.
        unsafe { self.machine.write(pa, contents) }
        let ticks = self.ticks().saturating_sub(begun);
        add(&self.counters.copied_bytes, contents.len() as u64);
        add(&self.counters.copy_ticks, ticks);
    }
    fn activate(&self, root: Root, kept: Kept) {
        add(&self.counters.activations, 1);
        self.machine.activate(root, kept)
    }
    fn invalidate(&self, what: &Invalidation) {
        add(&self.counters.invalidations, 1);
        self.machine.invalidate(what)
    }
    fn ask(&self, cpus: &CpuSet, what: &Invalidation) -> Ticket {
        let mut others = *cpus;
        others.remove(self.machine.me());
        let others = others.len() as u64;
        add(&self.counters.shootdowns, u64::from(others > 0));
        add(&self.counters.interrupts, others);
        self.machine.ask(cpus, what)
    }
}
