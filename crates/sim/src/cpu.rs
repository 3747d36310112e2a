//! The state of one CPU, in cache lines of its own.
//!
//! **Locking**: one lock for what the CPU itself does, and one for what others ask of it.

use crate::cache::Caches;
use crate::config::Geometry;
use crate::counts::Counters;
use crate::rng::Rng;
use core::sync::atomic::{AtomicU64, Ordering};
use foliant_machine::{Invalidation, Root};
use foliant_units::CpuSet;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// What the core lock covers.
///
/// Key: `[c]` `CpuState::core` held.
#[derive(Debug)]
pub(crate) struct Core {
    /// The root that the CPU runs. [c]
    pub(crate) root: Option<Root>,
    /// Its translation caches. [c]
    pub(crate) caches: Caches,
    /// Its source of chance. [c]
    pub(crate) rng: Rng,
}

/// Requests of other CPUs, and the tickets of this one.
///
/// Key: `[m]` `CpuState::mailbox` held.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    /// Requests to this CPU, oldest first. [m]
    pub(crate) requests: VecDeque<Arc<Invalidation>>,
    /// Tickets issued by this CPU and not yet waited for. [m]
    pub(crate) tickets: Vec<(u64, CpuSet)>,
    /// Number of the next ticket. [m]
    pub(crate) next: u64,
}

/// One CPU.
///
/// Key: `[a]` atomic.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct CpuState {
    pub(crate) core: Mutex<Core>,
    pub(crate) mailbox: Mutex<Mailbox>,
    /// Requests waiting in the mailbox. [a]
    pub(crate) waiting: AtomicU64,
    /// Virtual time, picoseconds. [a]
    clock: AtomicU64,
    /// The part of it that the kernel spent. [a]
    kernel: AtomicU64,
    pub(crate) counters: Counters,
}

impl CpuState {
    pub(crate) fn new(geometry: Geometry, seed: u64, cpu: usize) -> CpuState {
        let (root, caches) = (None, Caches::new(geometry));
        CpuState {
            core: Mutex::new(Core { root, caches, rng: Rng::new(seed, cpu as u64) }),
            mailbox: Mutex::default(),
            waiting: AtomicU64::new(0),
            clock: AtomicU64::new(0),
            kernel: AtomicU64::new(0),
            counters: Counters::default(),
        }
    }

    /// Charges kernel work.
    #[inline]
    pub(crate) fn charge(&self, picos: u64) {
        if picos != 0 {
            self.clock.fetch_add(picos, Ordering::Relaxed);
            self.kernel.fetch_add(picos, Ordering::Relaxed);
        }
    }

    /// Charges time that does not count as the kernel's.
    #[inline]
    pub(crate) fn charge_user(&self, picos: u64) {
        self.clock.fetch_add(picos, Ordering::Relaxed);
    }

    pub(crate) fn clock(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    pub(crate) fn kernel_time(&self) -> u64 {
        self.kernel.load(Ordering::Relaxed)
    }
}
