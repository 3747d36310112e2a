//! The machine contract on x86-64, for any kernel.
//!
//! A kernel lends what is its own (CPU numbers, an interrupt vector, the way to the APIC, a direct
//! map, one [`Line`] of memory per CPU) and gets a [`foliant_machine::Machine`] back. The crate
//! holds no statics, so two machines can live in one kernel, and most of it runs under
//! `cargo test`.
//!
//! ```text
//!   ask ──▶ mailbox: a slot of the asking CPU's line ──▶ one interrupt ──▶ handler ──▶ serve
//!                     ▲                                                                │
//!   wait ─────────────┴──── none left ◀──── steps: INVLPG, CR3, INVPCID ◀──────────────┘
//! ```
//!
//! | module | what it holds | assembly |
//! |---|---|---|
//! | `machine` | settings, their check, the machine | |
//! | `tlb` | the contract's `Tlb`: ask, serve, wait | |
//! | `steps` | what an invalidation means on one CPU, as values | no |
//! | `broadcast` | INVLPGB: a range as instructions, as values | no |
//! | `tags` | which root has which PCID, as values | no |
//! | `mailbox` | requests between CPUs, without interrupts | no |
//! | `control` | control registers, invalidation, the interrupt flag | no |
//! | `apic` | interrupts to other CPUs | no |
//! | `privileged` | the instructions of ring 0; in tests a processor that writes them down | yes |
//! | `memory`, `clear` | the direct map | yes |
//! | `choice` | which primitive clears best, by measuring | no |
//! | `guarded` | kernel accesses that may fault | yes |
//! | `clock`, `features` | TSC, CPUID | yes |
//! | [`boot`] | what loader and firmware say, as values | no |
//!
//! **Invariants**
//! - X1. A request is taken and carried out by one CPU with its interrupts off: between the two it
//!   cannot become another CPU's work (`tlb`).
//! - X2. The CPU that makes a word of askers nonzero sends the interrupt, before it does anything
//!   else (`tlb`).
//! - X3. Every guarded access is the first instruction of its function (`guarded`).
//! - X4. `EFER.TCE` is clear: each INVLPG ends all paging-structure entries. Without tags each load
//!   of CR3 ends all that is not global; with them both reach one tag, and `CR4.PCIDE` is set
//!   (`control`).
//!
//! **Locking**: none. The mailbox is lock-free; every spin carries out requests of others.
//!
//! **Not here**: page-table formats (`foliant::table`), interrupt tables, the start of CPUs,
//! separate roots for user and kernel.
#![no_std]
#![cfg(target_arch = "x86_64")]

mod apic;
pub mod boot;
mod broadcast;
mod choice;
mod clear;
mod clock;
mod control;
mod features;
mod guarded;
mod machine;
mod mailbox;
mod memory;
mod own;
mod privileged;
mod steps;
mod tags;
mod tlb;

pub use apic::{Apic, ApicId, SPURIOUS_VECTOR};
pub use choice::{Choice, ClearPlan, Measured};
pub use clear::{Clear, Primitive, Unusable};
pub use clock::{TscClock, goes_along, ticks, told_rate};
pub use features::{Features, Vectors, kept_state};
pub use guarded::recover;
pub use machine::{Host, Settings, SetupError, X86};
pub use mailbox::Line;
