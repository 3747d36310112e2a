//! What a loader and a firmware say of the machine: memory, command line, modules, CPUs.
//!
//! They say it in structures in memory that were never checked. Here they are read once, as values,
//! so that the rest of a kernel deals with ranges and numbers that hold, and so that all of it runs
//! under `cargo test` and under a fuzzer.
//!
//! ```text
//!   PVH start information ─▶ Info ─▶ entries ─▶ Ranges     whole frames, in order, disjoint: what a manager takes
//!                             │ ├──▶ command line, module
//!                             └─ RSDP ─▶ RSDT or XSDT ─▶ MADT ─▶ cpus
//!                                                     └▶ FADT ─▶ PowerTimer
//! ```
//!
//! **Invariants**
//! - I1. Nothing is read but through [`Given`], and no more than a structure's own length and a
//!   bound of ours allow: whatever lies there, each call ends, and ends with a value.
//! - I2. [`Ranges`] are in order, disjoint, not empty, and of frames that an entry of usable memory
//!   holds whole and no entry of other memory touches. A map that is not read whole is none: what
//!   was not read might have touched them ([`NoMap`]).
//! - I3. The CPU that asks is the first of [`cpus`], and no CPU is there twice.
//!
//! **Not here**: checksums (firmware that got one wrong still boots elsewhere), what is done with
//! any of it.

mod acpi;
mod info;
mod ranges;
#[cfg(test)]
mod tests;

pub use acpi::{PowerTimer, cpus};
pub use info::{Entry, Info, NoMap, TEXT_MAX};
pub use ranges::Ranges;

use foliant_units::{Bytes, Pa};

/// Memory as the loader left it. A kernel answers with what it has mapped of the memory where a
/// loader may put its words, and with nothing outside of it.
pub trait Given<'a>: Copy {
    /// `bytes` from `at` on, if all of them can be read.
    fn bytes(self, at: Pa, bytes: Bytes) -> Option<&'a [u8]>;
}

/// The little-endian number at `at` of a structure.
fn word<const N: usize>(of: &[u8], at: usize) -> Option<[u8; N]> {
    of.get(at..)?.first_chunk().copied()
}
fn word32(of: &[u8], at: usize) -> Option<u32> {
    word(of, at).map(u32::from_le_bytes)
}
fn word64(of: &[u8], at: usize) -> Option<u64> {
    word(of, at).map(u64::from_le_bytes)
}
