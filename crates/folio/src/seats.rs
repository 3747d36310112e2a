//! The preferences of a CPU: two cache lines of hints, which need not be true.
//!
//! ```text
//!  word  0     1     2     3     4     5     6       7       8      9     10..15
//!       ┌─────┬─────┬─────┬─────┬─────┬─────┬───────┬───────┬──────┬─────┬──────
//!       │ M s │ M m │ U s │ U m │ T s │ T m │ recent│ cursor│ ahead│ vain│ free
//!       └─────┴─────┴─────┴─────┴─────┴─────┴───────┴───────┴──────┴─────┴──────
//!  M U T: the class; s: orders 0 to 2; m: orders 3 to 8: the block that the CPU has for itself, and the word last used in it
//!  recent: the 2 MiB block freed last · cursor: where to look for the next one · ahead: where to clear next
//!  vain: how many blocks were looked at since one to clear was found, or a round ended without
//!
//!  a hint: bit 63 set · region (6 bits from 40) · block or bit (24 bits from 8) · word (low 4 bits)
//! ```
//!
//! **Invariants**
//! - I1. An owned block is named by its owner's seat, or by the call that is just about to seat or
//!   disown it. Seats are exchanged, not stored, so the call that pushes a block out learns of it
//!   and disowns it. A seat may name a block that it does not own: one with holes that just fit,
//!   or one that others took.
//! - I2. The blocks that seats name are not in the way of whole blocks: there is at most one CPU's
//!   set of seats for [`SHARE`] blocks of memory, and CPUs beyond that sit with others
//!   (record 070).
//!
//! **Locking**: none; two threads may act for one CPU.
//!
//! **Not here**: memory nodes. Words 10 to 15 are for them.

use super::entry::Owner;
use super::{Class, Word};
use foliant_sync::Ordering::{AcqRel, Relaxed};
use foliant_units::Cpu;

/// Words per CPU: two lines, since neighbouring lines are fetched in pairs.
pub(super) const WORDS: usize = 16;
/// Seats of a CPU.
pub(super) const SEATS: usize = 2 * Class::ALL.len();
/// Orders from here on use the second seat of their class.
pub(super) const MIDDLE: u32 = 3;
/// Blocks of memory for each CPU that has seats of its own: 384 MiB.
pub(super) const SHARE: usize = 192;
const RECENT: usize = SEATS;
const CURSOR: usize = SEATS + 1;
const AHEAD: usize = SEATS + 2;

const VAIN: usize = SEATS + 3;

const _: () = assert!(VAIN < WORDS);

/// A place that a hint names: a block (or a bit of the index) of a region, and a word of its field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hinted {
    pub(super) region: usize,
    pub(super) block: usize,
    pub(super) word: usize,
}

/// The most blocks that count as a little behind the cursor: 2 GiB.
const NEAR: usize = 1024;

const SET: u64 = 1 << 63;

impl Hinted {
    fn encode(self) -> u64 {
        SET | (self.region as u64) << 40 | (self.block as u64) << 8 | self.word as u64
    }
    fn decode(word: u64) -> Option<Hinted> {
        (word & SET != 0).then_some(Hinted {
            region: (word >> 40 & 63) as usize,
            block: (word >> 8 & 0xff_ffff) as usize,
            word: (word & 15) as usize,
        })
    }
}

#[derive(Clone, Copy)]
pub(super) struct Seats<'m> {
    /// The CPU whose seats they are.
    pub(super) cpu: Cpu,
    pub(super) words: &'m [Word; WORDS],
    /// For another CPU that sits here too, the word of a field at which that one looks first.
    pub(super) guest: Option<usize>,
}

/// One seat of one CPU.
#[derive(Clone, Copy)]
pub(super) struct Seat<'m> {
    pub(super) owner: Owner,
    word: &'m Word,
    guest: Option<usize>,
}

impl<'m> Seats<'m> {
    /// The seat for blocks of 2^`order` frames of `class`.
    #[inline]
    pub(super) fn seat(self, class: Class, order: u32) -> Seat<'m> {
        self.nth(class as usize * 2 + usize::from(order >= MIDDLE))
    }
    fn nth(self, at: usize) -> Seat<'m> {
        Seat { owner: Owner::seat(self.cpu, at), word: &self.words[at], guest: self.guest }
    }
    pub(super) fn all(self) -> impl Iterator<Item = Seat<'m>> {
        (0..SEATS).map(move |at| self.nth(at))
    }
    /// The 2 MiB block freed last; asked once.
    #[inline]
    pub(super) fn take_recent(self) -> Option<Hinted> {
        let place = Hinted::decode(self.words[RECENT].load(Relaxed));
        if place.is_some() {
            self.words[RECENT].store(0, Relaxed);
        }
        place
    }
    #[inline]
    pub(super) fn set_recent(self, place: Hinted) {
        self.words[RECENT].store(place.encode(), Relaxed);
    }
    pub(super) fn cursor(self) -> Option<Hinted> {
        Hinted::decode(self.words[CURSOR].load(Relaxed))
    }
    /// Notes that a 2 MiB block came back at `place`. Where that is a little behind the cursor, the
    /// cursor goes back there, so that the CPU keeps to the part of memory in which it is.
    #[inline]
    pub(super) fn pull_cursor(self, place: Hinted) {
        let near = |c: &Hinted| {
            c.region == place.region && (1..=NEAR).contains(&c.block.saturating_sub(place.block))
        };
        if self.cursor().as_ref().is_some_and(near) {
            self.set_cursor(place);
        }
    }
    /// Where to look next for memory that is not known to be zero.
    pub(super) fn ahead(self) -> Option<Hinted> {
        Hinted::decode(self.words[AHEAD].load(Relaxed))
    }
    pub(super) fn set_ahead(self, place: Hinted) {
        self.words[AHEAD].store(place.encode(), Relaxed);
    }
    /// Blocks looked at in vain since one was found that is not known to be zero, or since a search
    /// came to its end without any.
    pub(super) fn vain(self) -> u64 {
        self.words[VAIN].load(Relaxed)
    }
    pub(super) fn set_vain(self, blocks: u64) {
        self.words[VAIN].store(blocks, Relaxed);
    }
    pub(super) fn set_cursor(self, place: Hinted) {
        self.words[CURSOR].store(place.encode(), Relaxed);
    }
}

impl Seat<'_> {
    #[inline]
    pub(super) fn place(self) -> Option<Hinted> {
        let place = Hinted::decode(self.word.load(Relaxed))?;
        Some(Hinted { word: self.guest.unwrap_or(place.word), ..place })
    }
    /// Remembers the word last used, unless the seat has changed; a guest keeps to its own word.
    #[inline]
    pub(super) fn remember(self, place: Hinted, word: usize) {
        if place.word != word && self.guest.is_none() {
            let new = Hinted { word, ..place }.encode();
            let _ = self.word.compare_exchange(place.encode(), new, Relaxed, Relaxed);
        }
    }
    /// Seats the block at `place`, or none; returns the one that sat there.
    pub(super) fn exchange(self, place: Option<Hinted>) -> Option<Hinted> {
        Hinted::decode(self.word.swap(place.map_or(0, Hinted::encode), AcqRel))
    }
}
