//! A huge-page memory manager for kernels, hypervisors and unikernels.
//!
//! Large folios are the normal case and 4 KiB pages the exception. The crate needs no operating
//! system and no heap: an embedder lends a [`Machine`](foliant_machine::Machine) and ranges of
//! memory, and calls the [`Manager`]. Two rooms are crates that can be used
//! alone: the allocator is `foliant-folio` ([`folio`]), the page tables are `foliant-table`
//! ([`table`]).
//!
//! The rooms stand here in dependency order. Each uses only those before it, through their
//! `mod.rs`:
//! [`frame`], [`folio`], [`table`], `stock`, `ranges`, `flush`, [`zero`], [`memmap`], [`pool`],
//! [`vmap`], `rmap`, [`space`], [`fault`], [`split`], [`compact`], [`manager`], and behind the
//! feature `x86_64` the traits of the crate of that name (`adapt`).
//!
//! **Not here**: statics, a heap, `cfg(target_arch)`, assembly.
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
pub mod pool;
mod ranges;
mod rmap;
pub mod space;
pub mod split;
mod stock;
pub mod vmap;
pub mod zero;

pub use foliant_folio as folio;
use foliant_sync as sync;
pub use foliant_table as table;

pub use fault::{Access, Outcome, Policy};
pub use flush::FlushGrain;
pub use manager::Manager;
pub use stock::{Event, NoBlock, Reference, SizeEvent, SizeStats};
pub use sync::steps;
