//! What a machine did, counted per CPU and summed on reading.
//!
//! **Locking**: none; every counter is a relaxed atomic in the line of its CPU. A sum taken while
//! CPUs run may mix moments.

use core::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What a machine, or one of its CPUs, did since it was built.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counts {
            /// What happened since `before`, a reading of the same machine.
            pub fn since(&self, before: &Counts) -> Counts {
                Counts { $($name: self.$name.wrapping_sub(before.$name),)* }
            }
            /// Every counter with its name.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
            pub(crate) fn add(&mut self, more: &Counts) {
                $(self.$name += more.$name;)*
            }
        }

        /// The counters of one CPU.
        #[derive(Default, Debug)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Count,)*
        }

        impl Counters {
            pub(crate) fn read(&self) -> Counts {
                Counts { $($name: self.$name.0.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counts! {
    /// Accesses that found a cached 4 KiB translation.
    hits_base,
    /// Accesses that found a cached 2 MiB translation.
    hits_2m,
    /// Accesses that found a cached 1 GiB translation.
    hits_1g,
    /// Accesses that found none, and walked.
    misses,
    /// Walks, speculative ones included.
    walks,
    /// Page-table words that walks read.
    walk_words,
    /// Walks that ended in a cached 4 KiB translation.
    fills_base,
    /// Walks that ended in a cached 2 MiB translation.
    fills_2m,
    /// Walks that ended in a cached 1 GiB translation.
    fills_1g,
    /// Page faults of users.
    faults,
    /// Page-table words written by `store` and by a `compare_exchange` that succeeded.
    entry_writes,
    /// Calls of `clear`.
    clears,
    /// Bytes they cleared.
    cleared_bytes,
    /// Calls of `copy`.
    copies,
    /// Bytes they copied.
    copied_bytes,
    /// Calls of `invalidate`.
    invalidations,
    /// Invalidations of a whole scope, here or for another CPU.
    full_flushes,
    /// Calls of `ask` that named another CPU.
    shootdowns,
    /// CPUs that they named.
    interrupts,
    /// Requests carried out for others.
    requests_served,
    /// Calls of `activate`.
    activations,
    /// Those that allowed what was cached of the root to be used again.
    activations_kept,
}

/// One counter.
#[derive(Default, Debug)]
pub(crate) struct Count(AtomicU64);

impl Count {
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
    #[inline]
    pub(crate) fn one(&self) {
        self.add(1);
    }
}
