//! The ranges of an allocator: an array that only grows, readable while it grows.
//!
//! ```text
//!  count ─┐            adding = 1: someone fills slot [count]
//!         ▼
//!  ┌────┬────┬────┬───
//!  │ s0 │ s1 │ .. │       slots below `count` are filled and never change again
//!  └────┴────┴────┴───
//! ```
//!
//! **Invariants**
//! - I1. A slot below `count` is initialized and is never written again.
//! - I2. A slot from `count` on is touched only by the one that turned `adding` from 0 to 1.
//!
//! **Locking**: `adding` admits one writer; a second is refused, not kept waiting. `count` publishes (release, acquire).
//!
//! **Not here**: taking a range away; memory does not go yet.

// The only file of this room with unsafe code: a slot is written through a shared reference before it is published.
#![allow(unsafe_code)]

use super::section::Section;
use crate::sync::Ordering::{Acquire, Relaxed, Release};
use crate::sync::{AtomicU32, AtomicU64};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

/// The most ranges of one allocator.
pub(super) const SECTIONS_MAX: usize = 64;

type Slot<'m> = UnsafeCell<MaybeUninit<Section<'m>>>;

pub(super) struct Sections<'m> {
    slots: [Slot<'m>; SECTIONS_MAX],
    count: AtomicU64,
    adding: AtomicU32,
}

// SAFETY: sections::I1 and I2 — shared slots are read-only, the others have one writer; a `Section` itself may be shared.
unsafe impl<'m> Sync for Sections<'m> where Section<'m>: Sync + Send {}

/// Why a section was not added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refused {
    Full,
    Busy,
}

/// The right to add, held by one at a time.
pub(super) struct Adding<'s, 'm>(&'s Sections<'m>);

impl<'m> Sections<'m> {
    pub(super) fn new() -> Sections<'m> {
        Sections {
            slots: [const { UnsafeCell::new(MaybeUninit::uninit()) }; SECTIONS_MAX],
            count: AtomicU64::new(0),
            adding: AtomicU32::new(0),
        }
    }
    /// How many there are.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count.load(Acquire) as usize
    }
    /// The section `at`, if there is one.
    #[inline]
    pub(super) fn get(&self, at: usize) -> Option<&Section<'m>> {
        self.slots[..self.count()].get(at).map(Self::filled)
    }
    /// All of them, with their numbers.
    #[inline]
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &Section<'m>)> {
        self.slots[..self.count()].iter().map(Self::filled).enumerate()
    }
    /// What a slot below `count` holds.
    #[inline]
    fn filled<'s>(slot: &'s Slot<'m>) -> &'s Section<'m> {
        // SAFETY: sections::I1 — callers take the slot from below `count`, read with acquire; nobody writes it any more.
        let slot = unsafe { &*slot.get() };
        // SAFETY: sections::I1 — `push` wrote the slot before it released `count`.
        unsafe { slot.assume_init_ref() }
    }
    /// Begins to add, unless someone else does.
    pub(super) fn begin(&self) -> Result<Adding<'_, 'm>, Refused> {
        match self.adding.compare_exchange(0, 1, Acquire, Relaxed) {
            Ok(_) => Ok(Adding(self)),
            Err(_) => Err(Refused::Busy),
        }
    }
}

impl<'m> Adding<'_, 'm> {
    /// Whether there is no room for another one.
    pub(super) fn is_full(&self) -> bool {
        self.0.count() == SECTIONS_MAX
    }
    /// Publishes what `make` returns as the next section.
    pub(super) fn push(&self, make: impl FnOnce() -> Section<'m>) -> Result<(), Refused> {
        let at = self.0.count();
        let slot = self.0.slots.get(at).ok_or(Refused::Full)?;
        let section = make();
        // SAFETY: sections::I2 — holding `Adding` makes us the only one at the slot `count`, which nobody reads yet.
        unsafe { (*slot.get()).write(section) };
        self.0.count.store(at as u64 + 1, Release);
        Ok(())
    }
}

impl Drop for Adding<'_, '_> {
    fn drop(&mut self) {
        self.0.adding.store(0, Release);
    }
}
