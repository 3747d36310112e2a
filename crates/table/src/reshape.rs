//! The same translations at another level: split one leaf into a table, collapse a table into one
//! leaf.
//!
//! Each comes in place, where the machine and the caller's rules permit it, and in two steps around
//! a flush:
//!
//! ```text
//!   leaf ──split──────────────────────▶ table      table ──collapse──────────────────────▶ leaf
//!   leaf ─split_begin─▶ broken ─flush,                table ─collapse_begin─▶ broken ─flush,
//!                              split_finish─▶ table                                  mend─▶ leaf
//! ```

use super::attrs::{Attrs, Entry, Slot, Slots, Soft, SoftKind};
use super::harvest::{Run, What};
use super::lock::{Locked, Missing};
use super::paging::Paging;
use super::spare::Spare;
use super::tables::{Refused, Tables};
use super::word::TableAt;
use foliant_claim::Stale;
use foliant_machine::{Cpus, PhysMem, Replace, Tlb};
use foliant_units::{Bytes, Level, Pa, Va, VaRange};

/// Why a leaf or a table keeps its shape. Nothing was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stuck {
    /// The stock is empty.
    NeedTable,
    /// There is no table of entries of that level.
    Missing(Missing),
    /// The word is not what the operation needs: no leaf to split, no table to collapse, not
    /// broken.
    Other(Entry),
    /// The table's word for this address does not continue the ones before it, or is no leaf, or
    /// the first block is not aligned.
    Uneven(Va),
    /// The machine forbids it in place: take the two steps.
    BreakFirst,
    /// The format has no leaf of that level.
    Refused(Refused),
}

/// A collapsed table.
#[must_use = "the table must be flushed, then freed"]
#[derive(PartialEq, Eq, Debug)]
pub struct Collapsed {
    /// The table that was replaced.
    pub table: Stale,
    /// Its leaves.
    pub run: Run,
}

/// A leaf that is to be split, or a group of them.
struct Subject {
    slots: Slots,
    pa: Pa,
    attrs: Attrs,
}

impl<M: PhysMem + Cpus + Tlb, P: Paging> Tables<'_, M, P> {
    /// Splits the leaf of `level` that maps `va` in place: into a table of 512 leaves with the same
    /// attributes, or, where it is one of a group, into a group's worth of single leaves. Gives
    /// what was split.
    ///
    /// Flush: the run's range at its level. The table is complete before it is published
    /// (table::I2), so until the flush a CPU uses the one or the other, which say the same. A
    /// *user* leaf is split by `split_begin` on processors that must not hold both at once (AMD
    /// erratum 383).
    pub fn split(&self, va: Va, level: Level, spare: &mut Spare) -> Result<Run, Stuck> {
        self.in_place()?;
        let lock = self.lock(va, level).map_err(Stuck::Missing)?;
        let subject = subject(&lock, va, leaf)?;
        subject.check_parts(level)?;
        rebuild(&lock, &subject, spare)?;
        Ok(subject.run(&lock))
    }
    /// Collapses the table below the word of `level` for `va` into one leaf, in place. Its words
    /// must map consecutive blocks alike. The leaf is accessed where any word was, and dirty where
    /// it is writable: a walker may note a store in the old table until the flush.
    ///
    /// Flush: the run's range with `Tables::Removed`.
    pub fn collapse(&self, va: Va, level: Level) -> Result<Collapsed, Stuck> {
        self.in_place()?;
        self.gather(va, level, |_, _| true, |pa, attrs| P::leaf(pa, level, attrs))
    }
    fn in_place(&self) -> Result<(), Stuck> {
        match self.machine().rules().replace {
            Replace::InPlace => Ok(()),
            Replace::BreakBeforeMake => Err(Stuck::BreakFirst),
        }
    }
}

impl<M: PhysMem + Cpus, P: Paging> Tables<'_, M, P> {
    /// Makes the leaf of `level` that maps `va`, with its group, not present. A fault on it waits.
    ///
    /// Flush the run's range, then [`split_finish`](Tables::split_finish), or
    /// [`mend`](Tables::mend) to have it back.
    pub fn split_begin(&self, va: Va, level: Level) -> Result<Run, Stuck> {
        let lock = self.lock(va, level).map_err(Stuck::Missing)?;
        subject(&lock, va, leaf)?.check_parts(level)?;
        lock.break_leaf(va)
    }
    /// Publishes the table of the leaf that [`split_begin`](Tables::split_begin) broke. Without a
    /// spare table it stays broken.
    pub fn split_finish(&self, va: Va, level: Level, spare: &mut Spare) -> Result<Run, Stuck> {
        let lock = self.lock(va, level).map_err(Stuck::Missing)?;
        let subject = subject(&lock, va, |entry| match entry {
            Entry::Soft(soft) => soft.broken_leaf(),
            _ => None,
        })?;
        subject.check_parts(level)?;
        rebuild(&lock, &subject, spare)?;
        Ok(subject.run(&lock))
    }
    /// The first step of a collapse where the machine wants two: the table is taken out, and the
    /// leaf's place is not present. Flush the run's range with `Tables::Removed`, then
    /// [`mend`](Tables::mend) it.
    pub fn collapse_begin(&self, va: Va, level: Level) -> Result<Collapsed, Stuck> {
        self.collapse_agreed(va, level, |_, _| true)
    }
    /// The same, if `agree` says so of the leaf. It is asked under the lock of the table.
    pub fn collapse_agreed(
        &self,
        va: Va,
        level: Level,
        agree: impl FnOnce(Pa, Attrs) -> bool,
    ) -> Result<Collapsed, Stuck> {
        self.gather(va, level, agree, |pa, attrs| Soft::breaking(pa, attrs).word())
    }
    /// Asks `agree` of what the words of `range`, all of one table, say alike, under its lock.
    pub fn agree_alike(
        &self,
        range: VaRange,
        agree: impl FnOnce(Pa, Attrs) -> bool,
    ) -> Result<(), Stuck> {
        let lock = self.lock(range.start(), Level::BASE).map_err(Stuck::Missing)?;
        agreed_leaf(&lock, lock.slots_of(range), agree).map(|_| ())
    }
    /// Replaces a table by the word that `make` gives for the leaf that stands for it.
    fn gather(
        &self,
        va: Va,
        level: Level,
        agree: impl FnOnce(Pa, Attrs) -> bool,
        make: impl Fn(Pa, Attrs) -> u64,
    ) -> Result<Collapsed, Stuck> {
        if level == Level::BASE || level > P::LEAF_TOP {
            return Err(Stuck::Refused(Refused::Level(level)));
        }
        let lock = self.lock(va, level).map_err(Stuck::Missing)?;
        let slot = lock.index_of(va);
        let child = lock.child(slot).ok_or_else(|| Stuck::Other(lock.entry(slot)))?;
        let (pa, attrs) = agreed_leaf(&child, Slots::ALL, agree)?;
        let count = Level::ENTRIES as u32;
        let what = What::Mapped { pa, attrs };
        let run = Run { va: child.base(), level: child.level(), count, what };
        let dirty = if attrs.has(Attrs::WRITE) { Attrs::DIRTY } else { Attrs::NONE };
        Ok(Collapsed { table: child.replace(make(pa, attrs | dirty)), run })
    }
}

impl<M: PhysMem + Cpus, P: Paging> Locked<'_, M, P> {
    /// Makes the leaf that maps `va`, with its group, not present: the first step of
    /// [`split_begin`](Tables::split_begin) and of every other change by break and make. Gives what
    /// it was.
    pub fn break_leaf(&self, va: Va) -> Result<Run, Stuck> {
        let slot = self.index_of(va);
        let found = self.entry(slot);
        let mut subject = match leaf(found) {
            Some((pa, attrs)) if P::unit(self.level(), attrs) == 1 => {
                Subject { slots: Slots::one(slot), pa, attrs }
            }
            Some(_) => subject(self, va, leaf)?,
            None => return Err(Stuck::Other(found)),
        };
        for slot in subject.slots.iter() {
            let broken = |word| match P::decode(word, self.level(), slot) {
                Entry::Leaf { pa, attrs } => Soft::breaking(pa, attrs).word(),
                _ => word,
            };
            let old = self.exchange(slot, self.get(slot), broken);
            if let Entry::Leaf { attrs, .. } = P::decode(old, self.level(), slot) {
                subject.attrs = subject.attrs | attrs.and(Attrs::TOUCHED);
            }
        }
        Ok(subject.run(self))
    }
}

impl Subject {
    /// What is split, as it was.
    fn run<M: PhysMem + Cpus, P: Paging>(&self, lock: &Locked<'_, M, P>) -> Run {
        let what = What::Mapped { pa: self.pa, attrs: self.attrs };
        let va = lock.va_of(self.slots.first());
        Run { va, level: lock.level(), count: self.slots.len() as u32, what }
    }
    /// Refuses a base leaf that is none of a group: it has no parts.
    fn check_parts(&self, level: Level) -> Result<(), Stuck> {
        match level.down() {
            None if self.slots.len() == 1 => Err(Stuck::Refused(Refused::Level(level))),
            _ => Ok(()),
        }
    }
}

/// What a present leaf says.
fn leaf(entry: Entry) -> Option<(Pa, Attrs)> {
    match entry {
        Entry::Leaf { pa, attrs } => Some((pa, attrs)),
        _ => None,
    }
}

/// Finds the leaf for `va`, and the whole group where it is one of a group.
fn subject<M: PhysMem + Cpus, P: Paging>(
    lock: &Locked<'_, M, P>,
    va: Va,
    read: impl Fn(Entry) -> Option<(Pa, Attrs)>,
) -> Result<Subject, Stuck> {
    let level = lock.level();
    let slot = lock.index_of(va);
    let at = |slot| read(lock.entry(slot)).ok_or_else(|| Stuck::Other(lock.entry(slot)));
    let mut attrs = at(slot)?.1;
    let slots = slot.unit(P::unit(level, attrs));
    for slot in slots.iter() {
        attrs = attrs | at(slot)?.1.and(Attrs::TOUCHED);
    }
    Ok(Subject { slots, pa: at(slots.first())?.0, attrs })
}

/// Writes what the subject is split into: a table, or single leaves for a group.
fn rebuild<M: PhysMem + Cpus, P: Paging>(
    lock: &Locked<'_, M, P>,
    subject: &Subject,
    spare: &mut Spare,
) -> Result<(), Stuck> {
    let level = lock.level();
    if subject.slots.len() > 1 {
        for slot in subject.slots.iter() {
            let word = lock.get(slot);
            lock.exchange(slot, word, |word| match part::<P>(word, level, slot) {
                Some((pa, attrs)) => {
                    let touched = subject.attrs.and(Attrs::TOUCHED);
                    P::leaf(pa, level, attrs.without(Attrs::GROUPED) | touched)
                }
                None => word,
            });
        }
        return Ok(());
    }
    let claim = spare.pop().ok_or(Stuck::NeedTable)?;
    let below = level.down().expect("a base leaf is split out of a group only");
    let table = TableAt::claimed(claim);
    let pointer = P::table(table.pa());
    let (slot, word) = (subject.slots.first(), lock.get(subject.slots.first()));
    lock.exchange(slot, word, |word| {
        if let Some((pa, attrs)) = part::<P>(word, level, slot) {
            let first = P::leaf(pa, below, attrs);
            for slot in Slots::ALL.iter() {
                let word = first + slot.index() as u64 * P::step(below);
                table.word(slot).store(lock.machine(), word);
            }
        }
        pointer
    });
    Ok(())
}

/// What a leaf, broken or not, maps.
fn part<P: Paging>(word: u64, level: Level, slot: Slot) -> Option<(Pa, Attrs)> {
    match P::decode(word, level, slot) {
        Entry::Leaf { pa, attrs } => Some((pa, attrs)),
        Entry::Soft(soft @ Soft { kind: SoftKind::Breaking, .. }) => soft.broken_leaf(),
        _ => None,
    }
}

/// The one leaf that says what all words of `slots` say, if there is one and `agree` takes it.
fn agreed_leaf<M: PhysMem + Cpus, P: Paging>(
    table: &Locked<'_, M, P>,
    slots: Slots,
    agree: impl FnOnce(Pa, Attrs) -> bool,
) -> Result<(Pa, Attrs), Stuck> {
    let own = Attrs::TOUCHED | Attrs::GROUPED;
    let uneven = |slot| Stuck::Uneven(table.va_of(slot));
    let Entry::Leaf { pa: first, attrs: like } = table.entry(slots.first()) else {
        return Err(uneven(slots.first()));
    };
    let span = table.level().span().get();
    if !first.is_aligned(Bytes::new(slots.len() as u64 * span)) {
        return Err(uneven(slots.first()));
    }
    let mut attrs = like.without(own);
    for (nth, slot) in slots.iter().enumerate() {
        let expected = first.add(nth as u64 * span);
        match table.entry(slot) {
            Entry::Leaf { pa, attrs: more }
                if pa == expected && more.without(own) == like.without(own) =>
            {
                attrs = attrs | more.and(Attrs::TOUCHED);
            }
            _ => return Err(uneven(slot)),
        }
    }
    match agree(first, attrs) {
        true => Ok((first, attrs)),
        false => Err(Stuck::Other(table.entry(slots.first()))),
    }
}
