//! Measured scenarios: what the manager does, counted the same way on every machine.
//!
//! A number of a simulated machine is worth as much as its likeness to a real one. Each scenario is
//! one piece of code, generic over the machine, and is run by the command on the simulator and by
//! the kernel on silicon. Both print the same report, so the two can be compared count by count.
//!
//! ```text
//!   word=value ... ─▶ Scenario, Parameters ─▶ run(stage) ─▶ Report ─▶ one line of JSON ─▶ a table, a comparison
//!                                               │
//!                       Stage: a manager on Counted<machine>, CPUs that work together, user accesses, ticks
//! ```
//!
//! A scenario is a file with a `SCENARIO` (name, purpose, parameters) and a `run`, and one row in
//! [`Scenario`]'s table.
//!
//! **Invariants**
//! - L1. Counts depend on the parameters and the number of CPUs only: not on the machine, its
//!   memory map or the interleaving. CPUs that work at once touch 2 MiB blocks of their own; what
//!   happens once (descriptors of a section, upper tables) happens before the counting.
//! - L2. Ticks are taken while one CPU is at work. They are never compared between machines.
//! - L3. A scenario leaves the manager as it found it: space ended, pool empty, switches restored,
//!   no CPU in a space. Only how descriptors are mapped does not come back: tables and shared
//!   frames stay.
//! - L4. Running out of memory is an answer.
//!
//! **Not here**: tables and comparisons (the command), any machine.
#![no_std]

extern crate alloc;

mod compare;
mod counted;
mod draw;
mod error;
mod faults;
mod flush;
mod ground;
mod hugetlb;
mod meter;
mod named;
mod parameters;
mod probe;
mod reach;
mod report;
mod scenario;
mod split;
mod stage;
mod stepped;
mod thpscale;
mod vmalloc;
mod zero;

pub use counted::{Counted, Counts};
pub use error::LabError;
pub use named::Named;
pub use parameters::{About, Kind, Parameter, ParameterError, Parameters};
pub use reach::{Array, Caches};
pub use report::{Ratio, Report, Row};
pub use scenario::{Scenario, UnknownScenario};
pub use stage::{AREAS, PoolStep, Stage, Stopped};
pub use stepped::Stepped;
