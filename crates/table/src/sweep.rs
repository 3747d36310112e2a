//! One pass over the words of one locked table: what every operation on a range shares.
//!
//! ```text
//!   Tables::edit ── table by table, each locked once ──▶ sweep ── word by word ──▶ Edit: what becomes of it
//!                                                          └── run by run ───────▶ Sink: what was there
//! ```
//!
//! The words of a run are recognised by arithmetic: each is the one before plus the format's step.
//! Words that walkers may still update are taken one by one, by compare-and-exchange, and the
//! walkers' notes in them are collected; final ones that go on alike are rewritten by plain stores
//! (table::I3).
//!
//! **Break before make** is here too: the words that an edit breaks ([`Verdict::Break`]) are
//! remembered, in a bit for each word of the table ([`Broken`]), since the words that other
//! operations broke are theirs; the table is given back, the sink flushes, and those words become
//! leaves again. So a flush covers one table at most there.

use super::attrs::{Attrs, Entry, Slot, Slots, Soft};
use super::harvest::{Run, What};
use super::lock::Locked;
use super::paging::Paging;
use super::tables::Tables;
use foliant_machine::{Cpus, PhysMem};
use foliant_units::{Bytes, Level, Pa, Va, VaRange};

/// Why an operation over a range ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// All is done.
    Done,
    /// The harvest is full. Empty it and go on from `upto`.
    Full,
    /// A leaf, a group of leaves or a software word that is to change reaches over the range's
    /// start or end, or a leaf is to be in parts for another reason. Split the leaf and go on;
    /// [`Tables::split`] refuses a software word. A leaf that has what it is to have stays whole: a
    /// caller that keeps other properties of the range elsewhere splits it first.
    Straddles {
        /// Its first address.
        va: Va,
        /// Its level, to be handed to [`Tables::split`].
        level: Level,
    },
    /// The owner of this word has a leaf out of use: by break and mend, or as a migration entry
    /// while its folio is split or moved. A leaf, or a table of leaves, will be there again.
    Busy(Va),
}

/// What an edit makes of one word.
#[derive(Clone, Copy)]
pub enum Verdict {
    /// Nothing.
    Keep,
    /// Nothing, but the sink is told of it.
    Show,
    /// This word instead; the sink need not know of the old one.
    Put(u64),
    /// This word instead; the old one goes into the sink.
    Take(u64),
    /// Of a leaf: it is out of use until the sink has flushed, and is a leaf with these attributes
    /// from then on. The old one goes into the sink, as one that was used.
    Break(Attrs),
    /// Of a leaf: it is split, and its parts are looked at.
    Split,
    /// Of a software word: the sink replaces it, by more than a word ([`Sink::replace`]).
    Hand,
    /// Another operation has it out of use, and is waited for.
    Busy,
}

/// Where a word stands.
#[derive(Clone, Copy)]
pub struct At {
    /// The first address that it translates.
    pub va: Va,
    /// The level of the table.
    pub level: Level,
    slot: Slot,
}

/// What an operation does to the words it meets.
pub trait Edit<P: Paging> {
    /// The bits in which the words of one run may differ.
    fn ignores(&self) -> u64 {
        P::UPDATED
    }
    /// Whether leaves with these attributes that map the same block over and over are one run: of
    /// zeros, which belong to no folio. Such a run is told as if it had one block behind the other.
    fn repeats(&self, attrs: Attrs) -> bool {
        let _ = attrs;
        false
    }
    /// Whether no walker sets bits in the words: no CPU runs the tables, nor will.
    fn is_alone(&self) -> bool {
        false
    }
    /// What becomes of a leaf.
    fn leaf(&self, at: At, word: u64, pa: Pa, attrs: Attrs) -> Verdict;
    /// What becomes of a software word.
    fn soft(&self, at: At, soft: Soft) -> Verdict;
    /// Whether [`empty`](Edit::empty) puts something into empty words; else it is not asked.
    #[inline(always)]
    fn fills(&self) -> bool {
        false
    }
    /// What becomes of an empty word of base level; others stay as they are. It is asked once for
    /// each, under the table's lock: it waits for nobody (I9).
    #[inline(always)]
    fn empty(&self, at: At) -> u64 {
        let _ = at;
        0
    }
    /// What becomes of the leaf `word`, which `leaf` has agreed to change.
    #[inline(always)]
    fn rewrite(&self, at: At, word: u64) -> u64 {
        rewritten(self, at, word)
    }
}

/// What [`Edit::leaf`] makes of the leaf `word`.
#[inline(always)]
pub fn rewritten<P: Paging>(edit: &(impl Edit<P> + ?Sized), at: At, word: u64) -> u64 {
    match P::decode(word, at.level, at.slot) {
        Entry::Leaf { pa, attrs } => match edit.leaf(at, word, pa, attrs) {
            Verdict::Put(new) | Verdict::Take(new) => new,
            Verdict::Break(new) => Soft::breaking(pa, new).word(),
            Verdict::Keep | Verdict::Show | Verdict::Split | Verdict::Hand | Verdict::Busy => word,
        },
        _ => word,
    }
}

impl At {
    /// What it translates.
    #[inline(always)]
    pub fn range(self) -> VaRange {
        VaRange::sized(self.va, self.level.span()).expect("a word of a table")
    }
    /// So many words further on, in the same table.
    #[inline(always)]
    fn plus(self, words: usize) -> At {
        let va = self.va.add(words as u64 * self.level.span().get());
        At { va, slot: Slot::wrap(self.slot.index() + words), ..self }
    }
}

/// Where an operation puts what it took out or changed, and what it leaves to its caller to decide.
pub trait Sink<M: PhysMem + Cpus, P: Paging> {
    /// Whether entries that others have out of use are waited for; else the operation ends there.
    const WAITS: bool;

    /// Sees to what the words of the next table may need, and says whether the operation goes on.
    /// No lock is held.
    fn prepare(&mut self) -> bool {
        true
    }
    /// Finds the next table and locks it. A caller that does not keep tables from being given back
    /// by itself does so while `find` runs.
    #[inline(always)]
    fn descend<R>(&self, find: impl FnOnce() -> R) -> R {
        find()
    }
    /// This table comes next. The walk has its lock.
    fn enter(&mut self, lock: &Locked<'_, M, P>) {
        let _ = lock;
    }
    /// How many words the next run may have; with 0 the operation ends. Where there is room for one
    /// word there is for a whole group, which is one run however many words it has (I11).
    fn most(&self) -> usize {
        usize::MAX
    }
    /// Whether there is room for another run, and for the tables that may be removed with it.
    fn has_room(&self) -> bool {
        self.most() > 0
    }
    /// Takes what words said that are changed or shown. The table is locked; the sink has said that
    /// there is room.
    fn add(&mut self, run: Run);
    /// Replaces a software word for which the edit says [`Verdict::Hand`], under the table's lock.
    fn replace(&mut self, lock: &Locked<'_, M, P>, at: At, soft: Soft) {
        unreachable!("no edit hands over {soft:?} at {} of {:?}", at.va, lock.level())
    }
    /// The table from `from` on is done up to `upto`; the operation goes on up to `end`. Gives the
    /// lock back.
    fn leave(&mut self, tables: &Tables<'_, M, P>, lock: Locked<'_, M, P>, progress: Progress) {
        let _ = (tables, progress);
        drop(lock);
    }
    /// Ends every translation of the runs that were added, before the broken words are made leaves
    /// again. No lock is held.
    fn flush(&mut self) {
        unreachable!("an edit that breaks has a sink that flushes")
    }
    /// So many words are done since it was last asked. No lock is held.
    fn between(&mut self, words: u64) {
        let _ = words;
    }
}

/// The sink of a caller that needs to be told of nothing.
pub struct Untold;

impl<M: PhysMem + Cpus, P: Paging> Sink<M, P> for Untold {
    const WAITS: bool = false;

    fn add(&mut self, run: Run) {
        unreachable!("{run:?} is nobody's")
    }
}

/// How far an operation is: it has come from `from`, in the table that was locked last, to `upto`,
/// and goes on to `end`.
#[derive(Clone, Copy)]
pub struct Progress {
    /// Where it began in this table.
    pub from: Va,
    /// Where it is.
    pub upto: Va,
    /// Where it ends.
    pub end: Va,
}

/// The words of one table that this operation broke and will make leaves again. The words that
/// other operations broke are theirs.
pub(super) struct Broken {
    slots: [u64; Level::ENTRIES / 64],
}

impl Broken {
    #[inline]
    pub(super) const fn none() -> Broken {
        Broken { slots: [0; Level::ENTRIES / 64] }
    }
    #[inline]
    pub(super) fn is_none(&self) -> bool {
        self.slots.iter().all(|slots| *slots == 0)
    }
    #[inline]
    fn mark(&mut self, slot: Slot) {
        self.slots[slot.index() / 64] |= 1 << (slot.index() % 64);
    }
    /// Makes them leaves again. The leaves that they were are flushed.
    pub(super) fn mend<M: PhysMem + Cpus, P: Paging>(&self, lock: &Locked<'_, M, P>) {
        let is_broken = |n: &usize| self.slots[n / 64] >> (n % 64) & 1 == 1;
        for slot in (0..Level::ENTRIES).filter(is_broken).map(Slot::wrap) {
            let leaf = match lock.entry(slot) {
                Entry::Soft(soft) => soft.broken_leaf(),
                _ => None,
            };
            let (pa, attrs) = leaf.expect("only its breaker changes a broken word");
            lock.put(slot, P::leaf(pa, lock.level(), attrs));
        }
    }
}

/// Applies `edit` to the words of one locked table from `va` on. It ends behind the table, at the
/// range's end or at a word that points to a table, all three without a reason, or where it gives a
/// reason.
pub(super) fn sweep<M, P, E, S>(
    lock: &Locked<'_, M, P>,
    va: Va,
    range: VaRange,
    edit: &E,
    sink: &mut S,
    broken: &mut Broken,
) -> (Va, Option<Stop>)
where
    M: PhysMem + Cpus,
    P: Paging,
    E: Edit<P>,
    S: Sink<M, P>,
{
    let level = lock.level();
    let span = level.span().get();
    let last = range.end().get() - 1;
    let end = match last.checked_sub(lock.base().get()) {
        Some(offset) => (offset / span + 1).min(Level::ENTRIES as u64) as usize,
        None => 0,
    };
    let mut at = lock.index_of(va).index();
    while at < end {
        let slot = Slot::wrap(at);
        let here = At { va: lock.va_of(slot), level, slot };
        let va = here.va.max(range.start());
        let word = lock.get(slot);
        let done = match P::decode(word, level, slot) {
            Entry::None if level == Level::BASE && edit.fills() => {
                match edit.empty(here) {
                    0 => {}
                    new => lock.put(slot, new),
                }
                Ok(1)
            }
            // Where a word is empty, many behind it are.
            Entry::None => {
                let behind = Slots::new(Slot::wrap(at + 1), end - at - 1);
                Ok(1 + behind.map_or(0, |slots| lock.empties(slots)))
            }
            Entry::Table(_) => return (va, None),
            Entry::Soft(soft) => sweep_soft(lock, here, soft, range, edit, sink),
            Entry::Leaf { pa, attrs } => {
                let attrs = P::noted(level, slot, attrs, |slot| lock.get(slot));
                match edit.leaf(here, word, pa, attrs) {
                    Verdict::Keep => Ok(1),
                    Verdict::Busy => Err(Stop::Busy(va)),
                    Verdict::Split => Err(Stop::Straddles { va: here.va, level }),
                    verdict => {
                        let unit = P::unit(level, attrs);
                        check_whole(here, unit, range, sink).map(|whole| {
                            let leaf = FirstLeaf { at: here, word, pa, attrs, verdict };
                            if unit > 1 {
                                return sweep_group(lock, leaf, unit, edit, sink, broken);
                            }
                            let room = whole.min(end - at).min(sink.most());
                            sweep_leaves(lock, leaf, room, edit, sink, broken)
                        })
                    }
                }
            }
        };
        match done {
            Ok(count) => at += count,
            Err(why) => return (va, Some(why)),
        }
    }
    let upto = lock.base().checked_add(at as u64 * span).unwrap_or(range.end());
    (upto.min(range.end()), None)
}

/// Whether the leaf lies whole in the range, with the `unit` words of its group where it has one,
/// and the sink has room for it. Gives the number of words that lie whole in the range from there
/// on.
fn check_whole<M: PhysMem + Cpus, P: Paging>(
    at: At,
    unit: usize,
    range: VaRange,
    sink: &impl Sink<M, P>,
) -> Result<usize, Stop> {
    let At { va, level, .. } = at;
    let bytes = Bytes::new(level.span().get() * unit as u64);
    let base = va.align_down(bytes);
    let left = range.end().offset_from(base.max(range.start()).min(range.end()));
    if base < range.start() || left < bytes.get() {
        return Err(Stop::Straddles { va: base, level });
    }
    if !sink.has_room() {
        return Err(Stop::Full);
    }
    Ok((left / level.span().get()) as usize)
}

/// Applies `edit` to one software word.
fn sweep_soft<M: PhysMem + Cpus, P: Paging>(
    lock: &Locked<'_, M, P>,
    at: At,
    soft: Soft,
    range: VaRange,
    edit: &impl Edit<P>,
    sink: &mut impl Sink<M, P>,
) -> Result<usize, Stop> {
    let At { va, level, slot } = at;
    let what = match soft.broken_leaf() {
        Some((pa, attrs)) => What::Mapped { pa, attrs },
        None => What::Soft(soft),
    };
    let told = Some(Run { va, level, count: 1, what });
    let (new, told) = match edit.soft(at, soft) {
        Verdict::Keep => return Ok(1),
        Verdict::Show => (soft.word(), told),
        Verdict::Busy => return Err(Stop::Busy(va)),
        Verdict::Put(new) => (new, None),
        Verdict::Take(new) => (new, told),
        Verdict::Hand => {
            sink.replace(lock, at, soft);
            return Ok(1);
        }
        Verdict::Break(_) | Verdict::Split => unreachable!("a software word is out of use already"),
    };
    if va < range.start() || level.span().get() > range.end().offset_from(va) {
        return Err(Stop::Straddles { va, level });
    }
    if let Some(run) = told {
        if !sink.has_room() {
            return Err(Stop::Full);
        }
        sink.add(run);
    }
    lock.put(slot, new);
    Ok(1)
}

/// The first leaf of a run, and what becomes of it.
struct FirstLeaf {
    at: At,
    word: u64,
    pa: Pa,
    attrs: Attrs,
    verdict: Verdict,
}

/// Applies `edit` to the leaf and to those behind it, up to `room` words, that map on alike.
#[inline]
fn sweep_leaves<M: PhysMem + Cpus, P: Paging>(
    lock: &Locked<'_, M, P>,
    leaf: FirstLeaf,
    room: usize,
    edit: &impl Edit<P>,
    sink: &mut impl Sink<M, P>,
    broken: &mut Broken,
) -> usize {
    let FirstLeaf { at, mut word, pa, attrs, verdict } = leaf;
    let (level, first) = (at.level, at.slot);
    if let Verdict::Show = verdict {
        let count = 1 + continues(lock, at, room, word);
        let run = Run { va: at.va, level, count: count as u32, what: What::Mapped { pa, attrs } };
        tell(lock, run, verdict, sink, broken);
        return count;
    }
    let kept = word & !P::UPDATED;
    let (same, step) = (!edit.ignores(), if edit.repeats(attrs) { 0 } else { P::step(level) });
    let (mut any, mut all, mut count) = (0, !0, 0);
    let mut expected = word & same;
    loop {
        let at = at.plus(count);
        let is_final = P::is_final(word) || edit.is_alone();
        let old = if is_final {
            lock.put(at.slot, edit.rewrite(at, word));
            word
        } else {
            lock.exchange(at.slot, word, |word| edit.rewrite(at, word))
        };
        any |= old;
        all &= old;
        let mut done = 1;
        if is_final || P::is_final(old) {
            done += sweep_final(lock, at, room - count, (old, step), edit);
        }
        count += done;
        if count == room {
            break;
        }
        expected = expected.wrapping_add(step * done as u64);
        word = lock.get(Slot::wrap(first.index() + count));
        if word & same != expected {
            break;
        }
    }
    let touched = |bits: u64| match P::decode(kept | bits & P::UPDATED, level, first) {
        Entry::Leaf { attrs, .. } => attrs.and(Attrs::TOUCHED),
        _ => Attrs::NONE,
    };
    // Formats where a set bit says clean need both.
    let what = What::Mapped { pa, attrs: attrs | touched(any) | touched(all) };
    tell(lock, Run { va: at.va, level, count: count as u32, what }, verdict, sink, broken);
    count
}

/// Remembers the words of the run where the edit has broken them, and tells the sink what they were
/// where the verdict says so.
#[inline(always)]
fn tell<M: PhysMem + Cpus, P: Paging>(
    lock: &Locked<'_, M, P>,
    mut run: Run,
    verdict: Verdict,
    sink: &mut impl Sink<M, P>,
    broken: &mut Broken,
) {
    if let Verdict::Break(_) = verdict {
        let first = lock.index_of(run.va).index();
        (0..run.count as usize).for_each(|n| broken.mark(Slot::wrap(first + n)));
        if let What::Mapped { attrs, .. } = &mut run.what {
            *attrs = *attrs | Attrs::ACCESSED;
        }
    }
    if !matches!(verdict, Verdict::Put(_)) {
        sink.add(run);
    }
}

/// Applies `edit` to the group of `words` words that the leaf is one of, as one run (I11). Gives
/// the number of those from the leaf on: a walk that comes back to where it stopped may be inside
/// of a group that was not there before.
#[inline(never)]
fn sweep_group<M: PhysMem + Cpus, P: Paging>(
    lock: &Locked<'_, M, P>,
    leaf: FirstLeaf,
    words: usize,
    edit: &impl Edit<P>,
    sink: &mut impl Sink<M, P>,
    broken: &mut Broken,
) -> usize {
    let FirstLeaf { at, pa, attrs, verdict, .. } = leaf;
    let (level, inside) = (at.level, at.slot.index() % words);
    let bytes = Bytes::new(words as u64 * level.span().get());
    let first = at.slot.unit(words).first();
    let pa = Pa::new(pa.get() - inside as u64 * level.span().get());
    let at = At { va: at.va.align_down(bytes), slot: first, ..at };
    let with = |word, at: At, told: Attrs| match P::decode(word, level, at.slot) {
        Entry::Leaf { pa, attrs } => P::leaf(pa, level, attrs | told.and(Attrs::TOUCHED)),
        _ => word,
    };
    let mut told = attrs;
    if !matches!(verdict, Verdict::Show) {
        for at in (0..words).map(|n| at.plus(n)) {
            // Each word becomes what the whole group is to become.
            let make = |word| edit.rewrite(at, with(word, at, attrs));
            let old = lock.exchange(at.slot, lock.get(at.slot), make);
            if let Entry::Leaf { attrs, .. } = P::decode(old, level, at.slot) {
                told = told | attrs.and(Attrs::TOUCHED);
            }
        }
    }
    // A walker may have noted something in the last words while the first ones had changed.
    if told != attrs {
        for (n, at) in (0..words).map(|n| (n, at.plus(n))) {
            let pa = pa.add(n as u64 * level.span().get());
            let new = edit.rewrite(at, P::leaf(pa, level, told));
            if new & 1 == 0 {
                lock.put(at.slot, new);
            }
        }
    }
    let what = What::Mapped { pa, attrs: told };
    tell(lock, Run { va: at.va, level, count: words as u32, what }, verdict, sink, broken);
    words - inside
}

/// How many words behind the one at `first`, up to `room` with it, continue the leaf `word` bit by
/// bit.
fn continues<M: PhysMem + Cpus, P: Paging>(
    lock: &Locked<'_, M, P>,
    first: At,
    room: usize,
    word: u64,
) -> usize {
    let alike = |n: &usize| {
        let expected = word.wrapping_add(P::step(first.level).wrapping_mul(*n as u64));
        lock.get(first.plus(*n).slot) == expected
    };
    (1..room).take_while(alike).count()
}

/// Applies `edit` to the words behind the one at `first`, up to `room` with it, that continue the
/// final leaf `old` bit by bit: no walker changes them, so nothing has to be compared or collected.
/// Gives their number.
#[inline(always)]
fn sweep_final<M: PhysMem + Cpus, P: Paging>(
    lock: &Locked<'_, M, P>,
    first: At,
    room: usize,
    (old, step): (u64, u64),
    edit: &impl Edit<P>,
) -> usize {
    let mut word = old;
    for n in 1..room {
        let at = first.plus(n);
        word = word.wrapping_add(step);
        if lock.get(at.slot) != word {
            return n - 1;
        }
        lock.put(at.slot, edit.rewrite(at, word));
    }
    room - 1
}
