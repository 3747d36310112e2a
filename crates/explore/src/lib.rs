//! Systematic interleavings: every order in which two or three operations of the manager can meet,
//! on the simulated machine.
//!
//! Random histories switch CPUs at contract calls and at accesses to the manager's own words, by
//! chance: two operations meet at the right moment only by luck. Here CPUs are coroutines on one
//! thread, every access to a word is told before it is made, and wherever two CPUs touch the same
//! word and one of them changes it, both orders are tried.
//!
//! ```text
//!   plan (a name) ─▶ scene (machine, manager, judge) ─▶ lanes: operations
//!                                                          │ points: contract calls, the manager's words
//!                                   board ◀── engine: ─────┘ a branch is a fork of the process
//!   (footprints, states, findings)
//! ```
//!
//! **Invariants**
//! - X1. A schedule is told by its choices alone, and the same choices make the same schedule, in
//!   every process.
//! - X2. The judge knows nothing of what happened: legal is what some serial order shows.
//! - X3. What is left out is told: a scene that a limit cut short says so.
//!
//! **Not here**: weak memory (loom has it), what happens inside of one clear or copy, and
//! interrupts that come early: shootdowns are served as late as they may be.

mod board;
mod engine;
mod ground;
mod host;
mod machine;
mod mix;
mod operation;
mod plan;
mod run;
mod scene;
mod suite;
mod visits;

pub use machine::Flaw;
pub use operation::Operation;
pub use plan::{Folios, Format, Plan};
pub use run::{Extent, Report, explore, replay};
pub use suite::{CHANGING, objects, pairs, pooled, triples};
