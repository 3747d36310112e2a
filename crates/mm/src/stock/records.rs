#![allow(unsafe_code)]
//! The manager's own records on its own frames: the one place where frames become Rust values.

use super::PerCpu;
use crate::sync::AtomicU64;
use foliant_machine::PhysMem;
use foliant_units::{Bytes, FRAME_BYTES, Pa};

/// A frame as words.
pub(crate) type Words = [AtomicU64; 512];

/// A type that may be laid over cleared memory and shared between CPUs.
///
/// # Safety
/// Every field is an [`AtomicU64`] or made of them only: any bits are a value, and all access is
/// atomic. The alignment is at most 4096.
pub(crate) unsafe trait Record: Sync {}

// SAFETY: a word.
unsafe impl Record for AtomicU64 {}
// SAFETY: words.
unsafe impl Record for Words {}
// SAFETY: arrays of words and the words of a GraceSlot and a Pace.
unsafe impl Record for PerCpu {}

/// `count` records of type `T` from `pa` on.
///
/// The caller owns the frames as records (stated to the witness), cleared them before the first use
/// as `T`, and gives them back only when no reference is left (for records that readers find by
/// themselves: after a grace period).
pub(crate) fn records<T: Record>(memory: &impl PhysMem, pa: Pa, count: usize) -> &[T] {
    assert!(pa.get().is_multiple_of(align_of::<T>() as u64), "records at {pa} are misaligned");
    let bytes = Bytes::new((size_of::<T>() * count) as u64);
    // SAFETY: the caller owns the frames (stock::K2), and PhysMem promises a stable, unaliased
    // pointer.
    let start = unsafe { memory.reach(pa, bytes) };
    // SAFETY: `start` spans `bytes` of memory that was cleared before, and `T: Record` is valid for
    // any bits.
    unsafe { core::slice::from_raw_parts(start.as_ptr().cast::<T>(), count) }
}

/// One record at `pa`; see [`records`].
pub(crate) fn record<T: Record>(memory: &impl PhysMem, pa: Pa) -> &T {
    &records(memory, pa, 1)[0]
}

/// The frame at `pa` as words; see [`records`].
pub(crate) fn words(memory: &impl PhysMem, pa: Pa) -> &Words {
    debug_assert!(pa.get().is_multiple_of(FRAME_BYTES));
    record(memory, pa)
}
