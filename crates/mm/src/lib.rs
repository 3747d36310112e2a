//! A huge-page memory manager for kernels, hypervisors and unikernels.
//!
//! Large folios are the normal case and 4 KiB pages the exception. The crate needs no operating
//! system and no heap: an embedder lends a [`Machine`](foliant_machine::Machine) and ranges of
//! memory, and calls the [`Manager`]. A room below can be used alone: the [`folio`] allocator, the
//! page [`table`]s.
//!
//! The rooms stand here in dependency order. Each uses only those before it, through their
//! `mod.rs`, but for two that look up on purpose (`stock` to [`zero`], [`space`] to [`fault`]):
//! [`frame`], [`folio`], [`table`], `stock`, `ranges`, `flush`, [`zero`], [`memmap`], [`pool`],
//! [`vmap`], `rmap`, [`space`], [`fault`], [`split`], [`compact`], [`manager`], and behind the
//! feature `x86_64` the traits of the crate of that name (`adapt`).
//!
//! **Not here**: statics, a heap, `cfg(target_arch)`, assembly.
#![cfg_attr(not(test), no_std)]

#[cfg(test)]
extern crate alloc;

#[cfg(feature = "steps")]
extern crate std;

#[cfg(feature = "x86_64")]
pub mod adapt;
pub mod compact;
pub mod fault;
mod flush;
pub mod folio;
pub mod frame;
pub mod manager;
pub mod memmap;
pub mod pool;
mod ranges;
mod rmap;
pub mod space;
pub mod split;
mod stock;
mod sync;
pub mod table;
pub mod vmap;
pub mod zero;

pub use fault::{Access, Outcome, Policy};
pub use flush::FlushGrain;
pub use manager::Manager;
pub use stock::{Event, NoBlock, Reference, SizeEvent, SizeStats};
pub use sync::steps;
