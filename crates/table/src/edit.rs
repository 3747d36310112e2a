//! Changing what a range holds: the one walk over a range, and the three edits of a caller that has
//! the tables to itself: unmap, protect, mend.

use super::attrs::{Attrs, Soft};
use super::harvest::{Harvest, Run};
use super::lock::{Gap, Locked, Missing};
use super::paging::Paging;
use super::prune::{Detached, Prune};
use super::sweep::{At, Broken, Edit, Progress, Sink, Stop, Verdict, sweep};
use super::tables::{Refused, Tables};
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

/// A change of attributes: those that `clear` names go, then those that `set` names come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// What comes.
    pub set: Attrs,
    /// What goes.
    pub clear: Attrs,
}

impl Change {
    /// What becomes of `attrs`.
    #[inline]
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
    /// [`Prune`] does not let it go, or it is the top table itself.
    Pinned,
}

struct Unmap;

impl<P: Paging> Edit<P> for Unmap {
    #[inline(always)]
    fn leaf(&self, _: At, _: u64, _: Pa, _: Attrs) -> Verdict {
        Verdict::Take(0)
    }
    #[inline(always)]
    fn rewrite(&self, _: At, _: u64) -> u64 {
        0
    }
    fn soft(&self, _: At, _: Soft) -> Verdict {
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
    fn leaf(&self, at: At, word: u64, pa: Pa, attrs: Attrs) -> Verdict {
        let new = self.change.of(attrs);
        let new_word = P::leaf(pa, at.level, new);
        if new_word == word {
            return Verdict::Keep;
        }
        let moved = new.without(attrs).with(attrs.without(new)).and(Protect::FIXED);
        if self.replace == Replace::BreakBeforeMake && moved != Attrs::NONE {
            return Verdict::Take(Soft::breaking(pa, new).word());
        }
        Verdict::Take(new_word)
    }
    fn soft(&self, _: At, soft: Soft) -> Verdict {
        if soft.is_waited_for() { Verdict::Busy } else { Verdict::Keep }
    }
}

struct Mend;

impl<P: Paging> Edit<P> for Mend {
    fn leaf(&self, _: At, _: u64, _: Pa, _: Attrs) -> Verdict {
        Verdict::Keep
    }
    fn soft(&self, at: At, soft: Soft) -> Verdict {
        match soft.broken_leaf() {
            Some((pa, attrs)) => Verdict::Put(P::leaf(pa, at.level, attrs)),
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
        self.edit_alone(range, Prune::Keep, harvest, &edit)
    }
}

impl<M: PhysMem + Cpus, P: Paging> Tables<'_, M, P> {
    /// Takes every leaf and every software word out of `range`. Emptied tables go as `prune` says.
    /// The harvest has all that a walker noted until the word was cleared; a store through a stale
    /// translation may still come (machine::M4).
    ///
    /// Flush: every run that was accessed; the whole range with `Tables::Removed` where tables
    /// went. Frames and tables are reused only after that flush.
    pub fn unmap(
        &self,
        range: VaRange,
        prune: Prune,
        harvest: &mut Harvest,
    ) -> Result<Swept, Refused> {
        self.edit_alone(range, prune, harvest, &Unmap)
    }
    /// Makes the leaves that were broken in `range` present again, with their new attributes. Needs
    /// no flush but the one that the caller did between.
    pub fn mend(&self, range: VaRange) -> Result<Swept, Refused> {
        self.edit_alone(range, Prune::Keep, &mut Harvest::new(), &Mend)
    }
    /// Removes the table that holds the entries of `level` for `va`, if it is empty.
    ///
    /// Flush: the table's range with `Tables::Removed`, before the frame is reused. On a machine
    /// that breaks before it makes, nobody else may write into the word that named it before that
    /// flush.
    pub fn detach(&self, va: Va, level: Level, prune: Prune) -> Result<Detached, Kept> {
        self.detach_noted(va, level, prune, |_, _| ()).map(|(table, ())| table)
    }
    /// The same for a caller that is not alone: `note` is told before the word is empty.
    pub fn detach_noted<T>(
        &self,
        va: Va,
        level: Level,
        prune: Prune,
        note: impl FnOnce(VaRange, Level) -> T,
    ) -> Result<(Detached, T), Kept> {
        let lock = match self.lock(va, level) {
            Ok(lock) => lock,
            Err(Missing { what: Gap::TopTable, .. }) => return Err(Kept::Pinned),
            Err(missing) => return Err(Kept::Missing(missing)),
        };
        if !prune.allows::<P>(level) {
            return Err(Kept::Pinned);
        }
        lock.detach(prune, note).map_err(|_| Kept::Occupied)
    }

    /// Hands the table that was just gone over to `remove`, and then each table above it that the
    /// walk leaves with it, as long as `remove` says that it took out the one before.
    pub fn prune<'l>(
        &'l self,
        lock: Locked<'l, M, P>,
        progress: Progress,
        prune: Prune,
        mut remove: impl FnMut(Locked<'l, M, P>) -> bool,
    ) {
        let Progress { from, upto, end } = progress;
        let mut level = lock.level();
        let mut lock = Some(lock);
        loop {
            let is_left = behind(from, level.up(), end) <= upto;
            if !is_left || !prune.allows::<P>(level) {
                return;
            }
            let Some(table) = lock.take().or_else(|| self.lock(from, level).ok()) else {
                return;
            };
            if !remove(table) {
                return;
            }
            level = level.up();
        }
    }

    /// The first address from `va` on for which the top table has a word, or `end` where that comes
    /// first. Where no table hangs in it nothing is to be done (I5).
    pub(super) fn next_hung(&self, va: Va, end: Va) -> Va {
        let mut va = va;
        while va < end && self.is_empty_at_top(va) {
            va = behind(va, P::TOP, end);
        }
        va
    }
    fn edit_alone(
        &self,
        range: VaRange,
        prune: Prune,
        harvest: &mut Harvest,
        edit: &impl Edit<P>,
    ) -> Result<Swept, Refused> {
        self.edit(range, edit, &mut Alone { harvest, prune })
    }

    /// Goes over `range`, table by table, each locked once, and does with each word what `edit`
    /// says. The old words go into `sink`. Leaves that are broken on the way are flushed and made
    /// again before the next table.
    ///
    /// An empty word is passed over under the lock of its table, at every level but the top one
    /// (I10).
    pub fn edit<S: Sink<M, P>>(
        &self,
        range: VaRange,
        edit: &impl Edit<P>,
        sink: &mut S,
    ) -> Result<Swept, Refused> {
        self.check(range)?;
        let end = range.end();
        let mut va = range.start();
        while va < end {
            if !sink.prepare() {
                return Ok(Swept { upto: va, why: Stop::Full });
            }
            let found = sink.descend(|| {
                let spot = self.lowest(va, Level::BASE);
                spot.above.map(|above| Locked::acquire(*self, va, (spot.table, spot.level), above))
            });
            let Some(found) = found else {
                let next = self.next_hung(behind(va, P::TOP, end), end);
                sink.between(next.offset_from(va).div_ceil(P::TOP.span().get()));
                va = next;
                continue;
            };
            let Some(lock) = found else { continue };
            sink.enter(&lock);
            let (from, level) = (va, lock.level());
            let (mut broken, why);
            broken = Broken::none();
            (va, why) = sweep(&lock, va, range, edit, sink, &mut broken);
            sink.leave(self, lock, Progress { from, upto: va, end });
            if !broken.is_none() {
                sink.flush();
                let lock = self.lock(from, level).expect("a table with a broken word stays (I4)");
                broken.mend(&lock);
            }
            sink.between(va.offset_from(from) / level.span().get() + 1);
            match why {
                None => {}
                // Its owner comes for the lock (I9).
                Some(Stop::Busy(_)) if S::WAITS => self.machine().relax(),
                Some(why) => return Ok(Swept { upto: va, why }),
            }
        }
        Ok(Swept { upto: end, why: Stop::Done })
    }
}

/// The sink of a caller that has the tables to itself, and flushes when the operation has ended. It
/// removes empty tables on the way.
struct Alone<'h> {
    harvest: &'h mut Harvest,
    prune: Prune,
}

impl<M: PhysMem + Cpus, P: Paging> Sink<M, P> for Alone<'_> {
    const WAITS: bool = false;

    fn prepare(&mut self) -> bool {
        Sink::<M, P>::has_room(self)
    }
    fn has_room(&self) -> bool {
        let tables_max = if self.prune == Prune::Keep { 0 } else { P::LEVELS as usize };
        self.harvest.has_room(tables_max)
    }
    fn add(&mut self, run: Run) {
        self.harvest.add(run);
    }
    /// Removes the table just swept, and those above it that were left with it, where they are
    /// empty.
    fn leave(&mut self, tables: &Tables<'_, M, P>, lock: Locked<'_, M, P>, progress: Progress) {
        tables.prune(lock, progress, self.prune, |table| {
            let detached = table.detach(self.prune, |_, _| ());
            detached.map(|(table, ())| self.harvest.add_table(table.into_table())).is_ok()
        });
    }
}

/// The first address behind the word of `level` that translates `va`, or `end` where that comes
/// first.
pub(super) fn behind(va: Va, level: Level, end: Va) -> Va {
    let span = level.span();
    va.align_down(span).checked_add(span.get()).map_or(end, |next| next.min(end))
}
