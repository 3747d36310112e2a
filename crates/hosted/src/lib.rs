//! Clearing and probing on the memory of the machine that runs this process: what the manager does
//! in a fault, what its user sees, what the size of a page is worth to a large table (`probe`), and
//! what the kernel's own work costs (`costs`).
//!
//! The same code as in a kernel (`foliant::zero`, `foliant-x86`) on a mapping of this process. Rows
//! differ in values: the primitive, the grain, the plan. Each round runs every row, so that what
//! disturbs one disturbs all, and medians are taken.
//!
//! ```text
//!   row ─▶ for each block: clear ─▶ clear time ─▶ walk: sequential | around the fault | random ─▶ walk time
//! ```
//!
//! **Invariants**
//! - H1. All memory was written before the first round, and goes to each row in the same order.
//!
//! **Not here**: page tables of the host; other processors than x86-64.
#![cfg(target_arch = "x86_64")]

mod costs;
mod lab;
mod machine;
mod memory;
mod probe;

pub use costs::{Quantity, Timed, costs};
pub use lab::{Asked, HostError, Measurement, Primitive, Row, measure};
pub use probe::{ProbeAsked, ProbeRow, Probed, available, probe};
