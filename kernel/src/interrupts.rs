//! How many interrupts of each kind each CPU took.
//!
//! ```text
//!             LOC  SPU  RES  TLB
//!   CPU 0      17    0    4    6      a line of the cache for each CPU
//!   CPU 1       3    0    9    6
//! ```
//!
//! **Invariants**
//! - C1. A CPU writes its own counts alone, in handlers, which are not interrupted.
//!
//! **Not here**: the text that shows them (`linux::texts`).

use crate::cpu;
use crate::memory::CPUS_MAX;
use core::sync::atomic::{AtomicU64, Ordering};
use foliant_units::Cpu;

/// What an interrupt was for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Timer,
    Spurious,
    Wake,
    Shootdown,
}
const KINDS: usize = 4;

#[repr(align(64))]
struct Counts([AtomicU64; KINDS]);

static COUNTS: [Counts; CPUS_MAX] =
    [const { Counts([const { AtomicU64::new(0) }; KINDS]) }; CPUS_MAX];

/// Counts one on the calling CPU, whose handler it is.
pub(crate) fn count(kind: Kind) {
    let count = &COUNTS[cpu::me().index()].0[kind as usize];
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed); // C1
}

/// How many `cpu` took.
pub(crate) fn taken(cpu: Cpu, kind: Kind) -> u64 {
    COUNTS[cpu.index()].0[kind as usize].load(Ordering::Relaxed)
}
