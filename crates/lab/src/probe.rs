#![allow(unsafe_code)]
//! A table in kernel memory that is probed like a hash table: a word here, a word there, in no
//! order.
//!
//! **Invariants**
//! - P1. A probe reads what the last store to the same bucket left: a wrong translation does not
//!   pass for a probe.

use crate::draw::Draw;
use crate::reach::Watch;
use crate::{LabError, Stage};
use foliant_machine::KernelVa;
use foliant_units::{Va, VaRange};

const WORD: u64 = 8;
const SEED: u64 = 1;

/// The buckets that `count` probes go to, in their order.
fn buckets(table: VaRange, count: u64) -> impl Iterator<Item = Va> {
    let words = table.bytes().get() / WORD;
    let mut draw = Draw::new(SEED);
    (0..count).map(move |_| table.start().add(draw.below(words) * WORD))
}

/// Stores its own address in each bucket that [`probe`] reads.
pub(crate) fn fill<'m, S: Stage<'m>>(
    stage: &S,
    table: VaRange,
    count: u64,
) -> Result<(), LabError> {
    let machine = stage.manager().machine();
    buckets(table, count).try_for_each(|va| {
        // SAFETY: the table is an area of the caller's, writable, and no place for anything else.
        unsafe { machine.kernel_store(va, va.get()) }.map_err(|fault| LabError::Refused(fault.va))
    })
}

/// Reads the buckets, on CPU 0.
pub(crate) fn probe<'m, S: Stage<'m>>(
    stage: &S,
    table: VaRange,
    count: u64,
) -> Result<(), LabError> {
    let machine = stage.manager().machine();
    buckets(table, count).try_for_each(|va| {
        // SAFETY: as in `fill`.
        let word = unsafe { machine.kernel_load(va) };
        let word = word.map_err(|fault| LabError::Refused(fault.va))?;
        assert_eq!(word, va.get(), "the bucket at {va} holds what was stored in another one");
        Ok(())
    })
}

/// The same probes as `watch` sees them.
pub(crate) fn watch<'m, S: Stage<'m>>(
    stage: &S,
    table: VaRange,
    count: u64,
    watch: &mut Watch,
) -> Result<(), LabError> {
    let vmap = stage.manager().vmap();
    buckets(table, count).try_for_each(|va| {
        let (_, level) = vmap.frame_at(va).ok_or(LabError::Refused(va))?;
        watch.access(va, level);
        Ok(())
    })
}
