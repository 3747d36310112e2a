//! One pass over the words of one locked table: what unmap, protect and mend share.
//!
//! The words of a run are recognised by arithmetic: each is the one before plus the format's step.
//! Words that walkers may still update are taken one by one, by compare-and-exchange, and what was
//! noted in them is collected; settled ones that go on alike are rewritten by plain stores
//! (table::I3).

use super::attrs::{Attrs, Entry, Slot, Soft};
use super::edit::Stop;
use super::harvest::{Harvest, Run, What};
use super::lock::Locked;
use super::paging::Paging;
use foliant_machine::{Cpus, PhysMem};
use foliant_units::{Level, Pa, Va, VaRange};

/// What an edit makes of one word.
pub(super) enum Verdict {
    /// Nothing.
    Keep,
    /// This word instead; the old one is not reported.
    Put(u64),
    /// This word instead; the old one goes into the harvest.
    Take(u64),
    /// The operation ends here.
    Busy,
}

/// What an operation does to the words it meets.
pub(super) trait Edit<P: Paging> {
    /// The bits in which the words of one run may differ.
    fn ignores(&self) -> u64 {
        P::UPDATED
    }
    fn leaf(&self, word: u64, pa: Pa, attrs: Attrs, level: Level) -> Verdict;
    fn soft(&self, soft: Soft, level: Level) -> Verdict;
    /// What becomes of the leaf `word`, which `leaf` has agreed to change.
    #[inline(always)]
    fn rewrite(&self, word: u64, level: Level, slot: Slot) -> u64 {
        match P::decode(word, level, slot) {
            Entry::Leaf { pa, attrs } => match self.leaf(word, pa, attrs, level) {
                Verdict::Put(new) | Verdict::Take(new) => new,
                Verdict::Keep | Verdict::Busy => word,
            },
            _ => word,
        }
    }
}

/// Applies `edit` to the words of one locked table from `va` on. It ends behind the table, at the
/// range's end, at a word that points to a table (both without a reason), or where a reason is
/// given.
pub(super) fn sweep<M: PhysMem + Cpus, P: Paging, E: Edit<P>>(
    lock: &Locked<'_, M, P>,
    va: Va,
    range: VaRange,
    harvest: &mut Harvest,
    edit: &E,
) -> (Va, Option<Stop>) {
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
        let va = lock.va_of(slot).max(range.start());
        let word = lock.get(slot);
        let done = match P::decode(word, level, slot) {
            Entry::None => Ok(1),
            Entry::Table(_) => return (va, None),
            Entry::Soft(soft) => sweep_soft(lock, slot, soft, range, harvest, edit),
            Entry::Leaf { pa, attrs } => {
                let room = if attrs.has(Attrs::GROUPED) { 1 } else { end - at };
                check_whole::<P>(lock.va_of(slot), slot, level, attrs, range, harvest)
                    .map(|whole| whole.min(room))
                    .and_then(|room| {
                        sweep_leaves(lock, slot, room, word, (pa, attrs), harvest, edit)
                    })
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

/// Whether the leaf lies whole in the range, with its group where it has one, and the harvest has
/// room for it. Gives the number of words from `slot` on that lie whole in the range.
fn check_whole<P: Paging>(
    va: Va,
    slot: Slot,
    level: Level,
    attrs: Attrs,
    range: VaRange,
    harvest: &Harvest,
) -> Result<usize, Stop> {
    let mut unit = (va, level.span(), 1);
    if let (true, Some(group)) = (attrs.has(Attrs::GROUPED), P::group(level)) {
        unit = (va.align_down(group.span(level)), group.span(level), group.entries());
    }
    let (base, bytes, words) = unit;
    let left = range.end().offset_from(base.max(range.start()).min(range.end()));
    if base < range.start() || left < bytes.get() {
        return Err(Stop::Straddles { va: base, level });
    }
    if slot.index().is_multiple_of(words) && !harvest.has_room(words, 0) {
        return Err(Stop::Full);
    }
    Ok((left / level.span().get()) as usize)
}

/// Applies `edit` to one software word.
fn sweep_soft<M: PhysMem + Cpus, P: Paging, E: Edit<P>>(
    lock: &Locked<'_, M, P>,
    slot: Slot,
    soft: Soft,
    range: VaRange,
    harvest: &mut Harvest,
    edit: &E,
) -> Result<usize, Stop> {
    let (va, level) = (lock.va_of(slot), lock.level());
    let (new, told) = match edit.soft(soft, level) {
        Verdict::Keep => return Ok(1),
        Verdict::Busy => return Err(Stop::Busy(va)),
        Verdict::Put(new) => (new, None),
        Verdict::Take(new) => {
            let what = match soft.broken_leaf() {
                Some((pa, attrs)) => What::Mapped { pa, attrs },
                None => What::Soft(soft),
            };
            (new, Some(Run { va, level, count: 1, what }))
        }
    };
    if va < range.start() || level.span().get() > range.end().offset_from(va) {
        return Err(Stop::Straddles { va, level });
    }
    if let Some(run) = told {
        if !harvest.has_room(1, 0) {
            return Err(Stop::Full);
        }
        harvest.add(run);
    }
    lock.put(slot, new);
    Ok(1)
}

/// Applies `edit` to the leaf in `slot` and to those behind it, up to `room` words, that map on
/// alike.
#[inline]
fn sweep_leaves<M: PhysMem + Cpus, P: Paging, E: Edit<P>>(
    lock: &Locked<'_, M, P>,
    first: Slot,
    room: usize,
    word: u64,
    (pa, attrs): (Pa, Attrs),
    harvest: &mut Harvest,
    edit: &E,
) -> Result<usize, Stop> {
    let level = lock.level();
    match edit.leaf(word, pa, attrs, level) {
        Verdict::Busy => return Err(Stop::Busy(lock.va_of(first))),
        Verdict::Keep => return Ok(1),
        Verdict::Put(_) | Verdict::Take(_) => {}
    }
    let kept = word & !P::UPDATED;
    let (same, step) = (!edit.ignores(), P::step(level));
    let (mut any, mut all, mut count, mut word) = (0, !0, 0, word);
    let mut expected = word & same;
    loop {
        let slot = Slot::wrap(first.index() + count);
        let old = lock.exchange(slot, word, |word| edit.rewrite(word, level, slot));
        any |= old;
        all &= old;
        let mut done = 1;
        if P::settled(old) {
            done += sweep_settled(lock, slot, room - count, old, edit);
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
    let told = attrs | touched(any) | touched(all); // formats where a set bit says clean need both
    let what = What::Mapped { pa, attrs: told };
    harvest.add(Run { va: lock.va_of(first), level, count: count as u32, what });
    Ok(count)
}

/// Applies `edit` to the words behind `first`, up to `room` with it, that continue the settled leaf
/// `old` bit by bit: no walker changes them, so nothing has to be compared or collected. Gives
/// their number.
#[inline(always)]
fn sweep_settled<M: PhysMem + Cpus, P: Paging, E: Edit<P>>(
    lock: &Locked<'_, M, P>,
    first: Slot,
    room: usize,
    old: u64,
    edit: &E,
) -> usize {
    let (level, mut word) = (lock.level(), old);
    for n in 1..room {
        let slot = Slot::wrap(first.index() + n);
        word = word.wrapping_add(P::step(level));
        if lock.get(slot) != word {
            return n - 1;
        }
        lock.put(slot, edit.rewrite(word, level, slot));
    }
    room - 1
}
