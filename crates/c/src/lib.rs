//! Foliant for kernels and unikernels that are written in C.
//!
//! `include/foliant.h` declares what is here: the frame allocator alone, page tables with their
//! flush, and the manager with kernel memory and pools. The machine that they run on is a table of
//! function pointers which the kernel fills in ([`machine::Machine`]). `examples/kernel.c` is a
//! whole kernel in small, and runs as a program.
//!
//! ```text
//!   kernel.c ── foliant_space_fault(manager, ..) ────▶ this crate ──▶ foliant (Rust)
//!      ▲                                                                 │ the contract
//!      └──────── table->ask(context, cpus, ..) ◀── CMachine ◀────────────┘
//! ```
//!
//! # The static library
//!
//! ```sh
//! cargo rustc --package foliant-c --profile c --features panic-handler --crate-type staticlib
//! ```
//!
//! makes `target/c/libfoliant_c.a`; with `--target x86_64-unknown-none` it is one for kernels whose
//! interrupt handlers run on the stack that they interrupt (no red zone) and do not save vector
//! registers. The profile `c` has `panic = "abort"`. The library has neither a heap nor mutable
//! statics, and asks the program that links it for `foliant_panic`, and for what compilers of C
//! call by themselves: `memcpy`, `memmove`, `memset`, `memcmp`, `bcmp`, `strlen`. `foliant_panic`
//! is a name and no entry of the machine's table, because a panic has no machine at hand.
//! `examples/bare.c` has all of them. `cargo xtask c` links it with the library and nothing else,
//! and runs the example, under valgrind too.
//!
//! # What a caller promises
//!
//! In C a pointer is a promise that nobody checks. What can be checked is checked; the rest is what
//! the SAFETY comments of this crate rest on, and the header says it to the C side:
//!
//! - P1. A pointer is null, or it leads to a value of its type that lives through the call. No
//!   other code writes to that value meanwhile, unless it is a handle. A pointer to a result leads
//!   to a place that nothing else uses.
//! - P2. Memory that is lent to a `_new` is the handle's from then on: nobody else reads or writes
//!   it. It comes back to the caller when no CPU uses the handle any more; there is no call for
//!   that, as nothing else is held.
//! - P3. The functions of the table keep what their comments say, on every CPU, for as long as a
//!   handle that was made with the table is used. Ranges of memory that are given to a manager, and
//!   frames that are lent to tables, are memory behind the direct map that nobody else uses.
//! - P4. The caller of `foliant_tables_flush` names every CPU that may have run the tables, and
//!   frames that a gather names are used again only after it.
//!
//! **Invariants**
//! - C1. No call unwinds, and none panics on its arguments: each ends with a
//!   [`Status`](status::Status), and one that is not `Ok` changed nothing unless its comment says
//!   how far it came. A broken invariant ends in `foliant_panic`, which does not return.
//! - C2. What C passes by value is a number and is checked before it becomes a Rust enum: an
//!   unknown one is refused.
//! - C3. Results are written when all is well, and never in part; `upto` and gathers, which say how
//!   far a call came, also where it ended early.
//! - C4. Nothing is kept but in memory that was lent: no heap, no statics that change, no state of
//!   a thread. The text of a refusal is written into the caller's [`Error`](error::Error).
//!
//! **Locking**: that of what is called. Handles may be used on every CPU at any time, but for
//! spares and gathers, which are plain values of the caller's.
//!
//! **Not here**: memory that comes later, nodes, remap, tags of areas, collapse and compaction on
//! request; page-table formats other than x86-64 with four levels.
#![cfg_attr(not(test), no_std)]

pub mod error;
pub mod frames;
mod handle;
pub mod lent;
pub mod machine;
pub mod manager;
#[cfg(feature = "panic-handler")]
mod panic;
pub mod pool;
mod refusal;
pub mod space;
pub mod status;
pub mod tables;
#[cfg(test)]
mod tests;
pub mod values;
pub mod vmalloc;
