//! The tables under one top table: walking down.

use super::attrs::{Entry, Slot, Slots};
use super::paging::{Half, Paging, Roots};
use super::word::{TableAt, WordAt};
use core::marker::PhantomData;
use core::{error, fmt};
use foliant_machine::PhysMem;
use foliant_units::{Bytes, FRAME_BYTES, Frame, Level, Pa, Va, VaRange};

/// The tables of one half of an address space: a machine and a top table. They are plain data,
/// freely copied; all state is in the words.
pub struct Tables<'m, M, P> {
    machine: &'m M,
    root: TableAt,
    half: Half,
    format: PhantomData<P>,
}

impl<M, P> Clone for Tables<'_, M, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M, P> Copy for Tables<'_, M, P> {}

impl<M, P: Paging> fmt::Debug for Tables<'_, M, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tables({}, {:?}, {:?})", P::NAME, self.root.pa(), self.half)
    }
}

/// Where a walk ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The first address that the word translates.
    pub va: Va,
    /// The word's level.
    pub level: Level,
    /// The word as it was read.
    pub word: u64,
    /// What it says.
    pub entry: Entry,
    /// Where it stands.
    pub at: Pa,
    /// The word above its table, where a lock may begin.
    pub(super) above: Option<WordAt>,
}

/// A table that a walk came to, to be locked as long as it is kept from reuse (table::I6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reached {
    pub(super) table: TableAt,
    pub(super) above: WordAt,
    pub(super) level: Level,
    /// The first address that it translates.
    pub(super) base: Va,
}

impl Found {
    /// The table that it was found in; there is none to be locked where that is the top table.
    #[inline]
    pub fn reached(&self) -> Option<Reached> {
        let (table, level) = (TableAt::named(self.at.frame().pa()), self.level);
        let base = self.va.align_down(level.up().span());
        self.above.map(|above| Reached { table, above, level, base })
    }
}

/// Why an operation was refused. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The range holds no address.
    Empty(Va),
    /// The address is not a multiple of the size asked for.
    Misaligned(Va, Bytes),
    /// The address is not canonical, or not in the half of these tables.
    Outside(Va),
    /// The frames end behind the last one that the format can name; this is the first asked for.
    Frames(Frame),
    /// Something is mapped there already, or a software word is there.
    Live(Va),
    /// The format has no table, or no leaf, of that level.
    Level(Level),
}

/// Why the tables for an address could not be completed. Those made so far stay and are found
/// again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blocked {
    /// The stock is empty; a table that holds entries of this level was to be made next.
    NeedTable(Level),
    /// A leaf of this level is in the way.
    Leaf(Level),
    /// A software word of this level is in the way.
    Soft(Level),
    /// A word of this level is empty, and the entry that it had is not flushed yet.
    Pending(Level),
    /// The request itself was wrong.
    Refused(Refused),
}

/// Where a lock-free descent stands: a table, the word in it, and the word above that points to it.
pub(super) struct Spot {
    pub(super) table: TableAt,
    pub(super) level: Level,
    pub(super) above: Option<WordAt>,
    pub(super) slot: Slot,
    pub(super) word: u64,
    pub(super) entry: Entry,
}

impl<'m, M, P: Paging> Tables<'m, M, P> {
    /// As [`adopt`](Tables::adopt), with its promise (table::I1).
    pub(crate) const fn at(machine: &'m M, root: Pa, half: Half) -> Tables<'m, M, P> {
        Tables { machine, root: TableAt::root(root), half, format: PhantomData }
    }
    /// The top table.
    pub const fn root(&self) -> Pa {
        self.root.pa()
    }
    /// Which half they translate.
    pub const fn half(&self) -> Half {
        self.half
    }
    pub(super) const fn machine(&self) -> &'m M {
        self.machine
    }
    /// Refuses a range that is empty, not of whole pages, or not inside the half.
    pub(super) fn check(&self, range: VaRange) -> Result<(), Refused> {
        let page = Bytes::new(FRAME_BYTES);
        if range.is_empty() {
            return Err(Refused::Empty(range.start()));
        }
        for va in [range.start(), range.end()] {
            if !va.is_aligned(page) {
                return Err(Refused::Misaligned(va, page));
            }
        }
        P::outside(self.half, range).map_or(Ok(()), |va| Err(Refused::Outside(va)))
    }
    pub(super) fn check_va(&self, va: Va) -> Result<(), Refused> {
        if P::half_of(va) == Some(self.half) { Ok(()) } else { Err(Refused::Outside(va)) }
    }
}

impl<'m, M: PhysMem, P: Paging> Tables<'m, M, P> {
    /// The word that translates `va`, or the one where the walk ends. The walk takes no lock: the
    /// word may have changed by the time it is used, and the caller keeps removed tables from reuse
    /// meanwhile (table::I6). An address outside the half reads as nothing.
    #[inline(always)]
    pub fn walk(&self, va: Va) -> Found {
        if self.check_va(va).is_err() {
            let (level, entry) = (P::TOP, Entry::None);
            return Found { va, level, word: 0, entry, at: self.root.pa(), above: None };
        }
        let spot = self.lowest(va, Level::BASE);
        Found {
            va: va.align_down(spot.level.span()),
            level: spot.level,
            word: spot.word,
            entry: spot.entry,
            at: spot.table.word(spot.slot).pa(),
            above: spot.above,
        }
    }
    /// Descends to the lowest table for `va` that holds entries of `floor` or above.
    #[inline(always)]
    pub(super) fn lowest(&self, va: Va, floor: Level) -> Spot {
        let (mut table, mut level, mut above) = (self.root, P::TOP, None);
        loop {
            let slot = Slot::of(va, level);
            let at = table.word(slot);
            let word = at.load(self.machine);
            let entry = P::decode(word, level, slot);
            match (entry, level.down()) {
                (Entry::Table(pa), Some(down)) if level > floor => {
                    (table, level, above) = (TableAt::named(pa), down, Some(at));
                }
                _ => return Spot { table, level, above, slot, word, entry },
            }
        }
    }
    /// Whether the word of the top table that translates `va` is empty.
    #[inline]
    pub(super) fn is_empty_at_top(&self, va: Va) -> bool {
        self.root.word(Slot::of(va, P::TOP)).load(self.machine) == 0
    }
    /// Copies the kernel half's top words from `kernel` into this top table, which no CPU runs yet.
    /// Where each half has its own root there is nothing to do. Words that `kernel` gains later do
    /// not appear here: it gains none from the first such copy on (table::I7).
    pub fn share_kernel(&self, kernel: &Tables<'_, M, P>) {
        if P::ROOTS == Roots::PerHalf {
            return;
        }
        for slot in Slots::ALL.iter().skip(Level::ENTRIES / 2) {
            let word = kernel.root.word(slot).load(self.machine) & !P::LOCK;
            self.root.word(slot).store(self.machine, word);
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Empty(va) => write!(f, "the range at {va} is empty"),
            Refused::Misaligned(va, size) => write!(f, "{va} is not a multiple of {size}"),
            Refused::Outside(va) => write!(f, "{va} lies outside this half of the address space"),
            Refused::Frames(frame) => {
                write!(f, "frames from {frame} on do not fit into a physical address")
            }
            Refused::Live(va) => write!(f, "something is mapped at {va} already"),
            Refused::Level(level) => write!(f, "the format has no such entry of level {}", level.0),
        }
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Blocked::NeedTable(level) => write!(f, "a table of level {} is missing", level.0),
            Blocked::Leaf(level) => write!(f, "a leaf of level {} is in the way", level.0),
            Blocked::Soft(level) => write!(f, "a software word of level {} is in the way", level.0),
            Blocked::Pending(level) => {
                write!(f, "what an empty word of level {} said is not flushed yet", level.0)
            }
            Blocked::Refused(refused) => refused.fmt(f),
        }
    }
}

impl error::Error for Refused {}
impl error::Error for Blocked {}
