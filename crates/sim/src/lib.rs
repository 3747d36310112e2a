//! A simulated machine: many CPUs, stale translation caches, late interrupts, and checkers that
//! watch.
//!
//! [`Sim`] implements the whole contract of `foliant-machine` and is meaner than any hardware it
//! stands for: translations stay cached until an invalidation that covers them was carried out on
//! that CPU, interrupts arrive as late as the wait for them allows, and dirty bits get lost where
//! hardware may lose them. In *seeded* mode one CPU runs at a time and a printed seed replays the
//! history; in *free* mode the CPUs are real threads.
//!
//! ```text
//!   user_load/store/touch ─┐                   ┌─ cache: translations, table pointers (per CPU)
//!   KernelVa ──────────────┼─▶ walk ──────────▶┤
//!                          │   (own decoder)   └─ memory: words, accessed and dirty bits
//!   Tlb: ask ─▶ mailbox ───┴─▶ carried out late, at the latest in `wait`
//!   every step ─▶ events ─▶ checkers, which know only what they see
//! ```
//!
//! **Invariants**
//! - S1. A contract call changes nothing but what its documentation says; what chance decides
//!   (switches, late interrupts, speculative fills) comes from the seed alone.
//! - S2. A CPU's caches are used and changed under its core lock, from the look-up to the end of
//!   the access, so an invalidation never overtakes an access, whichever CPU carries it out.
//! - S3. With checks off no lock is shared between CPUs on the path of an access.
//!
//! **Locking**: core `[c]`, then mailbox `[m]`, then the watch; the baton's lock is a leaf. The
//! baton is never handed over under any of them.
//!
//! **Not here**: the manager. This crate knows page-table formats only through its own decoder.
//! What the model cannot see is listed in `LIMITS.md`.
//!
//! ```
//! use foliant_sim::{Access, Config, Sim};
//! use foliant_units::{Bytes, Va};
//! let sim = Sim::new(Config::seeded(2, Bytes::new(1 << 20), 1)).unwrap();
//! let fault = sim.user_touch(Va::new(0x1000), Access::Read).unwrap_err();
//! assert_eq!(fault.va, Va::new(0x1000));
//! ```

mod access;
mod cache;
mod check;
mod compare;
mod config;
mod cost;
mod counts;
mod cpu;
mod current;
mod format;
mod free;
mod kernel;
mod lanes;
mod memory;
mod phys;
mod plan;
mod rng;
mod sched;
mod shoot;
mod sim;
mod user;
mod walk;

pub use access::{Access, PageFault};
pub use cache::Cached;
pub use check::{CHECKERS, Violation};
pub use config::{
    Backing, Chance, Checks, Clearing, Config, Format, Geometry, Mode, RiscvMode, Shape, SimError,
    Tags, Turns, X86Levels,
};
pub use cost::{ClockKind, Constant, CostModel, Phases, PoolRows, Work};
pub use counts::Counts;
pub use format::Rights;
pub use lanes::Trade;
pub use plan::{Failing, FaultPlan};
pub use rng::Rng;
pub use sim::Sim;
