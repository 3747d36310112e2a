//! A huge-page memory manager for kernels, hypervisors and unikernels.
#![cfg_attr(not(test), no_std)]

#[cfg(test)]
extern crate alloc;

pub mod folio;
pub mod frame;
#[allow(dead_code, reason = "the rooms that use all of it come next")]
mod sync;
pub mod table;
