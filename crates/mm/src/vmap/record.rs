//! The record of an area: eight words, 64 to a frame.
//!
//! ```text
//!   start end │ bytes word caller phys next pages
//!   └ its place ┘ └ what it is (`area`)
//! ```
//!
//! **Invariants**
//! - R1. A record is named by the map of ranges, or is on the list of spare ones, or held by the
//!   one call that took it.
//! - R2. Frames of records and of the map's nodes stay with the room: the next area needs them.
//!
//! **Locking**: `Next` changes while a record is on a list; of the records that a purge has
//! taken off the list of lazy ones it is the purge's. `Start` and `End` are constant while the map
//! names the record. The other words of an area that is being made or worked on are written by the
//! call at work, without the lock; other calls only read them, under the lock. In an area in use
//! only the state and the count of lenders change, under the lock, and a call that lends it out
//! reads the rest without it. In a lazy area none of them changes.

use crate::ranges::Ranged;
use crate::stock::{Lot, Lots};
use crate::sync::{AtomicU64, Ordering};
use foliant_machine::Machine;
use foliant_units::{FRAME_BYTES, Va, VaRange};

const WORDS: usize = 8;

/// The number of a record.
pub(super) type Id = Lot<WORDS>;
/// Records on a list.
pub(super) type Records = Lots<WORDS, { RecordWord::Next as usize }>;

/// A word of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RecordWord {
    /// First address.
    Start = 0,
    /// First address behind it, guard included.
    End,
    /// What was asked for, in bytes.
    Bytes,
    /// State, kind, marks: see `area`.
    Word,
    Caller,
    /// Physical address of a device.
    Phys,
    /// The next record of a list.
    Next,
    /// Pages mapped.
    Pages,
}

/// A record.
#[derive(Clone, Copy)]
pub(super) struct Record<'m> {
    pub(super) id: Id,
    words: &'m [AtomicU64; WORDS],
}

impl<'m> Record<'m> {
    pub(super) fn at(machine: &'m impl Machine, id: Id) -> Record<'m> {
        Record { id, words: id.words(machine) }
    }
    pub(super) fn get(&self, field: RecordWord) -> u64 {
        self.words[field as usize].load(Ordering::Relaxed)
    }
    pub(super) fn set(&self, field: RecordWord, value: u64) {
        self.words[field as usize].store(value, Ordering::Relaxed);
    }
    pub(super) fn start(&self) -> Va {
        Va::new(self.get(RecordWord::Start))
    }
    /// All its addresses, guard included.
    pub(super) fn whole(&self) -> VaRange {
        VaRange::new(self.start(), Va::new(self.get(RecordWord::End))).expect("an area grows up")
    }
    /// The addresses that are mapped.
    pub(super) fn mapped(&self) -> VaRange {
        let end = self.start().add(self.get(RecordWord::Pages) * FRAME_BYTES);
        VaRange::new(self.start(), end).expect("an area grows up")
    }
}

/// What the map of ranges keeps of an area.
#[derive(Clone, Copy)]
pub(super) struct Recorded {
    pub(super) range: VaRange,
    pub(super) id: Id,
}

impl Ranged for Recorded {
    const WORDS: usize = 1;

    fn range(&self) -> VaRange {
        self.range
    }
    fn word(&self, _: usize) -> u64 {
        self.id.name()
    }
    fn read(range: VaRange, word: impl Fn(usize) -> u64) -> Recorded {
        Recorded { range, id: Lot::named(word(0)).expect("under the lock no entry is torn") }
    }
}
