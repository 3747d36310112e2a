//! A huge-page memory manager for kernels, hypervisors and unikernels.
//!
//! Large folios are the normal case and 4 KiB pages the exception. The crate needs no operating
//! system and no heap: an embedder lends a [`Machine`](machine::Machine) and ranges of memory, and
//! calls the [`Manager`].
//!
//! This crate is the one to depend on: what its signatures name is in [`units`] (addresses, sizes,
//! ranges), [`machine`] (the contract that hardware keeps), [`claim`] (who owns a block), [`folio`]
//! and [`table`] (the allocator and the page tables, which can be used alone). A machine is six
//! traits. Here is a whole one, and the manager on it; [`foliant-x86`] has them for x86-64, and
//! [`foliant-heap`] is a `GlobalAlloc` for the kernel around.
//!
//! ```
#![doc = include_str!("../examples/machine.rs")]
//! ```
//!
//! The rooms stand here in dependency order. Each uses only those before it, through their
//! `mod.rs`:
//! [`frame`], [`folio`], [`table`], `stock`, `ranges`, `flush`, [`zero`], [`memmap`], [`pool`],
//! [`vmap`], `rmap`, [`space`], [`object`], [`fault`], [`split`], [`compact`], [`manager`], and behind the
//! feature `x86_64` the traits of the crate of that name (`adapt`).
//!
//! **Not here**: statics, a heap, `cfg(target_arch)`, assembly.
//!
//! [`foliant-x86`]: https://docs.rs/foliant-x86
//! [`foliant-heap`]: https://docs.rs/foliant-heap
#![cfg_attr(not(test), no_std)]

#[cfg(test)]
extern crate alloc;

#[cfg(feature = "x86_64")]
pub mod adapt;
pub mod compact;
pub mod fault;
mod flush;
pub mod frame;
pub mod manager;
pub mod memmap;
pub mod object;
pub mod pool;
mod ranges;
mod rmap;
pub mod space;
pub mod split;
mod stock;
pub mod vmap;
pub mod zero;

pub use foliant_claim as claim;
pub use foliant_folio as folio;
pub use foliant_machine as machine;
use foliant_sync as sync;
pub use foliant_table as table;
pub use foliant_units as units;

pub use fault::{Access, Outcome, Policy};
pub use flush::FlushGrain;
pub use manager::Manager;
pub use stock::{Event, NoBlock, Reference, SizeEvent, SizeStats};
pub use sync::steps;
