//! Changing what a range holds: unmap, protect, mend. One sweep, three edits.

use super::attrs::{Attrs, Slot, Soft};
use super::harvest::Harvest;
use super::lock::{Gap, Locked, Missing};
use super::paging::Paging;
use super::sweep::{Edit, Verdict, sweep};
use super::tables::{Refused, Tables};
use crate::frame::Stale;
use foliant_machine::{Cpus, PhysMem, Replace, Tlb};
use foliant_units::{Level, Pa, Va, VaRange};

/// How far an operation over a range got. Everything below `upto` is done, nothing from there on.
#[must_use = "the rest of the range is unchanged"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Swept {
    /// The first address that was not visited; the range's end where all is done.
    pub upto: Va,
    /// Why it ended there.
    pub why: Stop,
}

/// Why an operation over a range ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// All is done.
    Done,
    /// The harvest is full. Empty it and go on from `upto`.
    Full,
    /// A leaf, or a group of leaves, reaches over the range's start or end. Split it and go on.
    Straddles {
        /// Its first address.
        va: Va,
        /// Its level, to be handed to [`Tables::split`].
        level: Level,
    },
    /// Somebody is changing this leaf by break and mend; it will be there again.
    Busy(Va),
}

/// Which tables go when they have become empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prune {
    /// None: the range will be mapped again.
    Keep,
    /// Those that do not hang in the top table.
    Emptied,
    /// Those too: the space is torn down, or its half has a root of its own that nobody shares.
    All,
}

/// An empty table that was taken out of the one above. Its leaves, if it ever had any, went before it: what is left of it
/// in a CPU's caches are pointers to it. (A table that goes with its leaves is [`Collapsed`](super::Collapsed).)
#[must_use = "the table must be flushed, then freed"]
#[derive(PartialEq, Eq, Debug)]
pub struct Detached {
    table: Stale,
    range: VaRange,
    above: Level,
}

impl Detached {
    /// What it translated.
    pub const fn range(&self) -> VaRange {
        self.range
    }
    /// The level of the word that named it.
    pub const fn above(&self) -> Level {
        self.above
    }
    /// The table itself.
    pub fn into_table(self) -> Stale {
        self.table
    }
}

impl Prune {
    /// Whether a table of `level` entries may go.
    fn allows<P: Paging>(self, level: Level) -> bool {
        match self {
            Prune::Keep => false,
            Prune::Emptied => level.up() < P::TOP,
            Prune::All => level < P::TOP,
        }
    }
}

/// A change of attributes: what `clear` names goes, then what `set` names comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// What comes.
    pub set: Attrs,
    /// What goes.
    pub clear: Attrs,
}

impl Change {
    /// What becomes of `attrs`.
    pub const fn of(self, attrs: Attrs) -> Attrs {
        attrs.without(self.clear.without(Attrs::GROUPED)).with(self.set.without(Attrs::GROUPED))
    }
}

/// Why a table stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// There is none.
    Missing(Missing),
    /// It holds something.
    Occupied,
    /// It hangs in the top table, and [`Prune`] did not say that those may go.
    Pinned,
}

struct Unmap;

impl<P: Paging> Edit<P> for Unmap {
    #[inline(always)]
    fn leaf(&self, _: u64, _: Pa, _: Attrs, _: Level) -> Verdict {
        Verdict::Take(0)
    }
    #[inline(always)]
    fn rewrite(&self, _: u64, _: Level, _: Slot) -> u64 {
        0
    }
    fn soft(&self, _: Soft, _: Level) -> Verdict {
        Verdict::Take(0)
    }
}

struct Protect {
    change: Change,
    replace: Replace,
}

impl Protect {
    /// The attributes that a machine with break-before-make does not let change in place.
    const FIXED: Attrs =
        Attrs::WRITE.with(Attrs::EXEC).with(Attrs::USER).with(Attrs::GLOBAL).with(Attrs::DEVICE);
}

impl<P: Paging> Edit<P> for Protect {
    fn ignores(&self) -> u64 {
        let both = self.change.set.with(self.change.clear);
        if both.and(Attrs::TOUCHED) == Attrs::NONE { P::UPDATED } else { 0 }
    }
    fn leaf(&self, word: u64, pa: Pa, attrs: Attrs, level: Level) -> Verdict {
        let new = self.change.of(attrs);
        let new_word = P::leaf(pa, level, new);
        if new_word == word {
            return Verdict::Keep;
        }
        let moved = new.without(attrs).with(attrs.without(new)).and(Protect::FIXED);
        if self.replace == Replace::BreakBeforeMake && moved != Attrs::NONE {
            return Verdict::Take(Soft::breaking(pa, new).word());
        }
        Verdict::Take(new_word)
    }
    fn soft(&self, soft: Soft, _: Level) -> Verdict {
        if soft.is_waited_for() { Verdict::Busy } else { Verdict::Keep }
    }
}

struct Mend;

impl<P: Paging> Edit<P> for Mend {
    fn leaf(&self, _: u64, _: Pa, _: Attrs, _: Level) -> Verdict {
        Verdict::Keep
    }
    fn soft(&self, soft: Soft, level: Level) -> Verdict {
        match soft.broken_leaf() {
            Some((pa, attrs)) => Verdict::Put(P::leaf(pa, level, attrs)),
            None => Verdict::Keep,
        }
    }
}

impl<M: PhysMem + Cpus + Tlb, P: Paging> Tables<'_, M, P> {
    /// Changes the attributes of every leaf in `range`. Accessed and dirty stay as they are unless
    /// the change names them. The harvest holds the leaves that changed, as they were.
    ///
    /// Flush: every run that was accessed, where something was taken away; `Tables::Kept`. On a
    /// machine with break-before-make a leaf whose permissions change is not present afterwards:
    /// flush, then [`mend`](Tables::mend) the same range.
    pub fn protect(
        &self,
        range: VaRange,
        change: Change,
        harvest: &mut Harvest,
    ) -> Result<Swept, Refused> {
        let edit = Protect { change, replace: self.machine().rules().replace };
        self.edit(range, Prune::Keep, harvest, &edit)
    }
}

impl<M: PhysMem + Cpus, P: Paging> Tables<'_, M, P> {
    /// Takes every leaf and every software word out of `range`. Emptied tables go as `prune` says.
    /// What a walker noted until the word was cleared is in the harvest; a store through a stale
    /// translation may still come (machine::M4).
    ///
    /// Flush: every run that was accessed; the whole range with `Tables::Removed` where tables
    /// went. Frames and tables are reused only after.
    pub fn unmap(
        &self,
        range: VaRange,
        prune: Prune,
        harvest: &mut Harvest,
    ) -> Result<Swept, Refused> {
        self.edit(range, prune, harvest, &Unmap)
    }
    /// Makes the leaves that were broken in `range` present again, with their new attributes. Needs
    /// no flush but the one that the caller did between.
    pub fn mend(&self, range: VaRange) -> Result<Swept, Refused> {
        self.edit(range, Prune::Keep, &mut Harvest::new(), &Mend)
    }
    /// Removes the table that holds the entries of `level` for `va`, if it is empty.
    ///
    /// Flush: the table's range with `Tables::Removed`, before the frame is reused.
    pub fn detach(&self, va: Va, level: Level, prune: Prune) -> Result<Detached, Kept> {
        let lock = match self.lock(va, level) {
            Ok(lock) => lock,
            Err(Missing { what: Gap::TopTable, .. }) => return Err(Kept::Pinned),
            Err(missing) => return Err(Kept::Missing(missing)),
        };
        if !prune.allows::<P>(level) {
            return Err(Kept::Pinned);
        }
        let (range, above) = (lock.range(), lock.level().up());
        let table = lock.detach().map_err(|_| Kept::Occupied)?;
        Ok(Detached { table, range, above })
    }

    fn edit<E: Edit<P>>(
        &self,
        range: VaRange,
        prune: Prune,
        harvest: &mut Harvest,
        edit: &E,
    ) -> Result<Swept, Refused> {
        self.check(range)?;
        let tables_max = if prune == Prune::Keep { 0 } else { P::LEVELS as usize };
        let mut va = range.start();
        while va < range.end() {
            if !harvest.has_room(1, tables_max) {
                return Ok(Swept { upto: va, why: Stop::Full });
            }
            let spot = self.lowest(va, Level::BASE);
            let Some(above) = spot.above else {
                va = behind(va, P::TOP, range.end()); // nothing hangs in this word of the top table
                continue;
            };
            let Some(lock) = Locked::acquire(*self, va, &spot, above) else {
                continue;
            };
            let here = va;
            let why;
            (va, why) = sweep(&lock, va, range, harvest, edit);
            if prune != Prune::Keep {
                self.prune(lock, here, va, range.end(), prune, harvest);
            }
            if let Some(why) = why {
                return Ok(Swept { upto: va, why });
            }
        }
        Ok(Swept { upto: range.end(), why: Stop::Done })
    }
    /// Removes the table just swept, and those above it that were left with it, where they are
    /// empty.
    fn prune(
        &self,
        lock: Locked<'_, M, P>,
        here: Va,
        upto: Va,
        end: Va,
        prune: Prune,
        harvest: &mut Harvest,
    ) {
        let mut level = lock.level();
        let mut lock = Some(lock);
        loop {
            let left = upto >= end || behind(here, level.up(), end) <= upto;
            if !left || !prune.allows::<P>(level) {
                return;
            }
            let Some(table) = lock.take().or_else(|| self.lock(here, level).ok()) else {
                return;
            };
            match table.detach() {
                Ok(stale) => harvest.add_table(stale),
                Err(_) => return,
            }
            level = level.up();
        }
    }
}

/// The first address behind the word of `level` that translates `va`, or `end` where that comes
/// first.
fn behind(va: Va, level: Level, end: Va) -> Va {
    let span = level.span();
    va.align_down(span).checked_add(span.get()).map_or(end, |next| next.min(end))
}
