//! The record of an area: sixteen words, 32 to a frame.
//!
//! ```text
//!   start end gap │ left right priority │ best for 4 KiB, 2 MiB, 1 GiB │ bytes word caller phys next pages -
//!   └ the area ─┘   └──── the tree (`tree`) ───────────────────────┘   └ what it is (`area`)
//! ```
//!
//! **Invariants**
//! - R1. A record is in the tree, or on the list of spare ones, or held by the one call that took
//!   it.
//! - R2. Frames of records stay with the room: the next area needs them.
//!
//! **Locking**: `[l]` are the words that change while a record is in the tree or on a list: `Gap`,
//! the links, `Best`, `Next`. Of the records that a purge has taken off the list of lazy ones,
//! `Next` is the purge's. `Start` and `End` are constant while the record is in the tree. The other
//! words of an area that is being made or worked on are written by the call at work, without the
//! lock; other calls only read them, under the lock. In an area in use only the state and the count
//! of lenders change, under the lock, and a call that lends it out reads the rest without it. In a
//! lazy area none of them changes.

use crate::stock::{Words, words};
use crate::sync::Ordering;
use foliant_machine::Machine;
use foliant_units::{FRAME_BYTES, Frame, Va, VaRange};

const WORDS: usize = 16;
pub(super) const PER_FRAME: u64 = FRAME_BYTES / 8 / WORDS as u64;

/// A word of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RecordWord {
    /// First address.
    Start = 0,
    /// First address behind it, guard included.
    End,
    /// Where the area before ends.
    Gap,
    Left,
    Right,
    Priority,
    /// The most that fits into a gap of the subtree, for each of the three alignments.
    Best,
    /// What was asked for, in bytes.
    Bytes = 9,
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

/// The number of a record: its place plus one; 0 stands for none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Id(pub(super) u64);

impl Id {
    pub(super) const NONE: Id = Id(0);

    pub(super) const fn of(frame: Frame, nth: u64) -> Id {
        Id(frame.get() * PER_FRAME + nth + 1)
    }
    pub(super) const fn some(self) -> Option<Id> {
        if self.0 == 0 { None } else { Some(self) }
    }
}

/// A record.
#[derive(Clone, Copy)]
pub(super) struct Record<'m> {
    pub(super) id: Id,
    words: &'m Words,
    base: usize,
}

impl<'m> Record<'m> {
    pub(super) fn at(machine: &'m impl Machine, id: Id) -> Record<'m> {
        let place = id.0.checked_sub(1).expect("a record was found");
        let words = words(machine, Frame::new(place / PER_FRAME).pa());
        Record { id, words, base: (place % PER_FRAME) as usize * WORDS }
    }
    pub(super) fn get(&self, field: RecordWord) -> u64 {
        self.nth(field, 0)
    }
    pub(super) fn set(&self, field: RecordWord, value: u64) {
        self.set_nth(field, 0, value);
    }
    pub(super) fn nth(&self, field: RecordWord, n: usize) -> u64 {
        self.words[self.base + field as usize + n].load(Ordering::Relaxed)
    }
    pub(super) fn set_nth(&self, field: RecordWord, n: usize, value: u64) {
        self.words[self.base + field as usize + n].store(value, Ordering::Relaxed);
    }
    pub(super) fn link(&self, field: RecordWord) -> Id {
        Id(self.get(field))
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
