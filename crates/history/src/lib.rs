//! Random histories of the real manager on the simulated machine, a naive model beside it, and
//! planted bugs.
//!
//! ```text
//!   seed ─▶ Shape ─▶ Sim ◀─ Saboteur ◀─ Manager ◀─ operations of 1..64 CPUs ─▶ model
//!                     │      (one bug,                                          │
//!                     ▼       or none)                                          ▼
//!                 checkers of the machine ────────▶ Report ◀──── contents, answers, dirty_kept, audit, leak
//! ```
//!
//! **Invariants**
//! - H1. A report depends on seed and shape alone; [`Report::replay`] is the command that gives it
//!   again, for a shape that the command's options can make.
//! - H2. The model knows pages, areas and values; it knows no folios, tables, flushes and CPUs.
//! - H3. Every planted bug names the checker that must catch it, and `tests/planted.rs` demands
//!   that it does.
//!
//! **Not here**: performance, traces, real threads. What the machine's model cannot see is listed
//! in the simulator's `LIMITS.md`.
//!
//! ```
//! use foliant_history::{History, Shape};
//! let shape = Shape { cpus: 2, steps: 60, ..Shape::of(7) };
//! let report = History::run(7, shape);
//! assert!(report.is_clean(), "{report}");
//! assert_eq!(report.digest, History::run(7, shape).digest);
//! ```

mod beside;
mod bits;
mod folding;
mod history;
mod kinds;
mod model;
mod objects;
mod oddities;
mod operations;
mod partitioned;
mod plant;
mod plants;
mod pooled;
mod preempt;
mod quiet;
mod racing;
mod ranges;
mod register;
mod remaps;
mod report;
mod rng;
mod saboteur;
mod seat;
mod shape;
mod small;
mod splits;
mod tasks;
mod world;

pub use history::{Caught, Go, Histories, History, run_planted};
pub use plant::Plant;
pub use report::{Finding, Report};
pub use shape::{Format, Live, Refused, Shape, Sizes, Style};
pub use small::Small;

/// The checkers of this crate, beside those of the machine.
///
/// | checker | it demands |
/// |---|---|
/// | `contents` | a load gives what was stored there, or zero |
/// | `answers` | an operation is carried out, or refused with the reason that the model gives |
/// | `dirty_kept` | the entry of a page that was stored to says dirty, and soft dirty |
/// | `descriptors` | descriptors of a huge page say what its holder wrote last, on every CPU |
/// | `reservations` | a page that was reserved is there; a pool states the reservations that are open |
/// | `audit` | the manager's counters equal its own recount |
/// | `leak` | all frames are back at the end |
/// | `panic` | nothing panics |
pub const CHECKERS: [&str; 8] =
    ["contents", "answers", "dirty_kept", "descriptors", "reservations", "audit", "leak", "panic"];

/// All planted bugs.
pub fn plants() -> Vec<Plant> {
    Plant::all().collect()
}

/// The code of the README runs as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
