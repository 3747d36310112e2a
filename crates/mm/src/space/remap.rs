//! Moving and resizing: pages keep their frames and change their addresses.

use super::area::{Area, Flags, PAGE};
use super::attach;
use super::error::{MapError, RangeError};
use super::huge::{clear_places, level_of};
use super::ops::{check, check_new, clear, covered, empty, gap};
use super::places::{DROPPED, SPENT, place_like, plain_place, unwatched_place};
use super::record::Space;
use super::steps::Steps;
use super::user_half;
use super::walk::{self, Noting};
use crate::flush::Gather;
use crate::frame::AnonOffset;
use crate::stock::{Stock, Supply};
use crate::table::{
    At, Attrs, Edit, Locked, Paging, Progress, Run, Sink, Slot, Soft, Tables, Verdict, What,
};
use core::{error, fmt};
use foliant_machine::Machine;
use foliant_units::{Bytes, FRAME_BYTES, Level, Pa, Va, VaRange};

/// Where a resized area may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// It stays where it is, or the request fails.
    Never,
    /// It moves where it cannot grow.
    MayMove,
    /// It moves to this address; what lies there is unmapped first.
    To(Va),
}

/// Why nothing was moved. Nothing changed, but that a target given as [`Move::To`] may have been
/// unmapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemapError {
    /// One of the ranges is refused, or there is no room for it.
    Map(MapError),
    /// The old range covers more than one area, or very many that were moved there one by one.
    Several(Va),
    /// Old and new range overlap.
    Overlap(Va),
}

impl From<RangeError> for RemapError {
    fn from(error: RangeError) -> RemapError {
        RemapError::Map(MapError::Range(error))
    }
}
impl fmt::Display for RemapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RemapError::Map(error) => error.fmt(f),
            RemapError::Several(va) => write!(f, "another area begins at {va}"),
            RemapError::Overlap(va) => write!(f, "the new range at {va} overlaps the old one"),
        }
    }
}
impl error::Error for RemapError {}

/// Moves or resizes the pages of `old` to `bytes`.
pub(crate) fn remap<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    old: VaRange,
    bytes: Bytes,
    to: Move,
    steps: &mut Steps,
) -> Result<VaRange, RemapError> {
    check::<P>(old)?;
    let sized = |va| {
        let range = VaRange::sized(va, bytes).ok_or(RangeError::Outside(va))?;
        check::<P>(range).map(|()| range)
    };
    if !bytes.get().is_multiple_of(FRAME_BYTES) {
        let end = old.start().get().wrapping_add(bytes.get());
        return Err(RangeError::Misaligned(Va::new(end)).into());
    }
    // Beyond the half's end there is no growing, but perhaps a move.
    let stay = match sized(old.start()) {
        Ok(range) => Some(range),
        Err(RangeError::Outside(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let mut gather = Gather::new(stock, &space.member.target); // ends behind the writer (flush::F7)
    let _writer = space.writer.lock(stock.machine, steps.outside());
    covered(stock, space, old, |_| Ok(()))?;
    let pieces = MovedAreas::of(stock, space, old)?;
    let area = pieces.last();
    let order = area.flags.huge_order();
    if order.is_some() && (!matches!(to, Move::To(_)) || bytes != old.bytes()) {
        return Err(RangeError::Huge(old.start()).into());
    }
    let kept_bytes = Bytes::new(bytes.get().min(old.bytes().get()));
    let kept = VaRange::sized(old.start(), kept_bytes).expect("a part of the old range");
    let target = match to {
        Move::To(va) => {
            let target = sized(va)?;
            check_new(stock, target)?;
            if target.overlaps(old) {
                return Err(RemapError::Overlap(va));
            }
            let size = order.map_or(PAGE, |order| order.bytes());
            let cut = [old.start(), old.end(), va].into_iter().find(|va| !va.is_aligned(size));
            if let Some(va) = cut {
                return Err(RangeError::Cuts(va, size).into());
            }
            clear(stock, space, &mut gather, target, steps)?;
            target
        }
        _ if bytes <= old.bytes() => {
            if kept.end() < old.end() {
                let rest = VaRange::new(kept.end(), old.end()).expect("shrinks");
                clear(stock, space, &mut gather, rest, steps)?;
            }
            return Ok(kept);
        }
        Move::Never | Move::MayMove
            if let Some(stay) = stay.filter(|stay| grows(stock, space, &area, old, *stay)) =>
        {
            let more = VaRange::new(old.end(), stay.end()).expect("grows");
            let more = Area { range: more, ..area };
            space.admit(stock, more.range, |_| None, (Some(&more), 0))?;
            space.areas.prepare(stock, &space.charge).map_err(RangeError::from)?;
            attach::put_area(stock, space, &more);
            return Ok(stay);
        }
        Move::Never => return Err(RemapError::Map(MapError::NoRoom(bytes))),
        Move::MayMove => gap(stock, space, bytes, PAGE).map_err(RemapError::Map)?,
    };
    space.admit(stock, old, |_| None, (None, pieces.len() as u64))?;
    pieces.note_offsets(stock, space, (old, target))?;
    let moved = pieces.when_moved(stock, space, (old, target))?;
    // These are the nodes for the removal of the old areas, which cuts two at most, and for those
    // that follow: the new ones, or the old ones where they were.
    space
        .areas
        .prepare_for(stock, &space.charge, 2 + pieces.len() as u64)
        .map_err(RangeError::from)?;
    let level = order.map_or(Level::BASE, level_of);
    attach::remove_areas(stock, space, old); // S1: faults step back from here on
    let to = VaRange::sized(target.start(), kept.bytes()).expect("a part of the target");
    let reached = reach_begun(stock, space, (kept, to.start()), level, steps);
    if let Err(error) = reached {
        pieces.put_back(stock, space, old);
        // Some tables were made in vain.
        empty(stock, space, &mut gather, to, steps);
        return Err(error.into());
    }
    if let Some(order) = order {
        // A fault that began before the target was cleared may be making a table there.
        stock.wait_for_readers();
        clear_places(stock, space, &mut gather, (to, order), steps);
        gather.shoot(); // a leaf comes where a table was
    }
    let what = relocate(stock, space, (kept, to.start()), level, steps);
    empty(stock, space, &mut gather, old, steps);
    moved.put(stock, space, (old, target), what);
    Ok(target)
}

/// Areas that differ only in how far they were moved before: to the caller they are one.
struct MovedAreas {
    areas: [Option<Area>; MovedAreas::MAX],
}

/// Whether there was anything to move.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moved {
    Something,
    Nothing,
}

impl MovedAreas {
    /// How many of them are moved as one.
    const MAX: usize = 16;

    /// Those of `old`, which has no hole.
    fn of<M: Machine, P: Paging>(
        stock: &Stock<'_, M, P>,
        space: &Space,
        old: VaRange,
    ) -> Result<MovedAreas, RemapError> {
        let mut areas = [None; MovedAreas::MAX];
        for (nth, area) in space.areas.overlapping(stock.machine, old).enumerate() {
            let akin = areas[0].is_none_or(|first: Area| {
                (first.flags, first.tag) == (area.flags, area.tag)
                    && attach::shows(stock, &first) == attach::shows(stock, &area)
            });
            match areas.get_mut(nth).filter(|_| akin) {
                Some(place) => *place = Some(area),
                None => return Err(RemapError::Several(area.range.start())),
            }
        }
        Ok(MovedAreas { areas })
    }
    fn iter(&self) -> impl Iterator<Item = Area> {
        self.areas.into_iter().flatten()
    }
    fn len(&self) -> usize {
        self.iter().count()
    }
    fn last(&self) -> Area {
        self.iter().last().expect("the range is not empty")
    }
    /// Notes how far each will have been moved, before the first entry moves (rmap::offsets::H1).
    fn note_offsets<M: Machine, P: Paging>(
        &self,
        stock: &Stock<'_, M, P>,
        space: &Space,
        (old, target): (VaRange, VaRange),
    ) -> Result<(), RangeError> {
        let moved = |area: Area| area.offset(stock).moved(old.start(), target.start());
        let each = |tell: &mut dyn FnMut(AnonOffset)| {
            let all = space.areas.overlapping(stock.machine, user_half::<P>());
            all.for_each(|area| tell(area.offset(stock)));
            self.iter().for_each(|area| tell(moved(area)));
        };
        self.iter().try_for_each(|area| {
            Ok(space.member.offsets().note(stock, &space.charge, moved(area), each)?)
        })
    }
    /// What they are when they were moved. Attachments are there before the first entry moves
    /// (rmap::attachment::X1).
    fn when_moved<M: Machine, P: Paging>(
        &self,
        stock: &Stock<'_, M, P>,
        space: &Space,
        (old, target): (VaRange, VaRange),
    ) -> Result<MovedAreas, RangeError> {
        let mut areas = self.areas;
        for area in areas.iter_mut().flatten() {
            let by = (old.start(), target.start());
            *area = attach::moved(stock, space, area, by)?;
            area.flags = area.flags.without(Flags::ARMED); // its handler knows the old addresses
        }
        Ok(MovedAreas { areas })
    }
    /// Puts back in what was taken out of `old`, where nothing moved (S13).
    fn put_back<M: Machine, P: Paging>(
        &self,
        stock: &Stock<'_, M, P>,
        space: &Space,
        old: VaRange,
    ) {
        for area in self.iter() {
            let range = area.range.intersect(old);
            attach::put_area(stock, space, &Area { range, ..area });
        }
    }
    /// Puts them in at their new place, the last one up to its end. Where no entry was moved, those
    /// of the space's own memory are put in as areas that were never moved.
    fn put<M: Machine, P: Paging>(
        &self,
        stock: &Stock<'_, M, P>,
        space: &Space,
        (old, target): (VaRange, VaRange),
        moved: Moved,
    ) {
        let mut start = target.start();
        for (area, next) in self.iter().zip(self.iter().skip(1).map(Some).chain([None])) {
            let to = |va: Va| target.start().add(va.offset_from(old.start()));
            let end = next.map_or(target.end(), |_| to(area.range.end()).min(target.end()));
            let area = match (moved, area.attachment()) {
                (Moved::Nothing, None) => {
                    Area::own(area.range, area.flags, area.tag, AnonOffset::NONE)
                }
                _ => area,
            };
            let range = VaRange::new(start, end).expect("pieces follow each other");
            if !range.is_empty() {
                attach::put_area(stock, space, &Area { range, ..area });
            }
            start = end;
        }
    }
}

fn grows<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    area: &Area,
    old: VaRange,
    stay: VaRange,
) -> bool {
    let more = VaRange::new(old.end(), stay.end()).expect("grows");
    area.range.end() == old.end() && space.areas.overlapping(stock.machine, more).next().is_none()
}

/// Makes the tables for entries of `level` that those of `from` need at addresses from `to` on,
/// where nothing is mapped: for each that `from` has, and for each of its large leaves. No area is
/// left in `from`, so it gets no entry any more (S1), and a table that comes yet stays empty.
fn reach_begun<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    (from, to): (VaRange, Va),
    level: Level,
    steps: &mut Steps,
) -> Result<(), RangeError> {
    let tables: Tables<'_, M, P> = space.tables(stock);
    let mut supply = Supply::of(stock, &space.charge);
    let mut rest = from;
    while !rest.is_empty() {
        let begun = tables.first_begun(rest).expect("the range was checked");
        let start = to.add(begun.start().offset_from(from.start()));
        let target = VaRange::sized(start, begun.bytes()).expect("a part of the target");
        let before = || steps.take(stock.machine, Steps::TABLE);
        let done = supply.ensure_range(&tables, target, level, before);
        done.map_err(|why| why.in_empty())?;
        steps.take(stock.machine, Steps::TABLE); // as many words were looked at
        rest = VaRange::new(begun.end(), from.end()).expect("it goes on inside the range");
    }
    Ok(())
}

/// Moves the entries of `from`, where no area is left, to addresses from `to` on, where there are
/// tables for them ([`reach_begun`]). Until the caller puts the new areas in, no fault finds an
/// area at the new addresses, where what has moved can be reached already. The old addresses are
/// flushed before it returns.
fn relocate<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    (from, to): (VaRange, Va),
    level: Level,
    steps: &mut Steps,
) -> Moved {
    let tables: Tables<'_, M, P> = space.tables(stock);
    let mut gather = Gather::new(stock, &space.member.target);
    let mut sink = Remapped {
        noting: Noting { machine: stock.machine, gather: &mut gather, steps },
        tables,
        by: (from.start(), to),
        level,
        taken: TableWords::NONE,
        moved: Moved::Nothing,
    };
    walk::edit(stock, space, from, &Take { level }, &mut sink);
    let moved = sink.moved;
    gather.settle();
    gather.flush();
    moved
}

/// Takes everything out, in entries of one level: what is larger is split.
struct Take {
    level: Level,
}

impl<P: Paging> Edit<P> for Take {
    /// A run's words are put back as they were.
    fn ignores(&self) -> u64 {
        0
    }
    fn leaf(&self, at: At, _: u64, _: Pa, _: Attrs) -> Verdict {
        if at.level > self.level { Verdict::Split } else { Verdict::Take(0) }
    }
    fn soft(&self, at: At, soft: Soft) -> Verdict {
        match at.level {
            _ if soft.is_waited_for() => Verdict::Busy,
            level if level == self.level => Verdict::Take(0),
            _ => Verdict::Keep, // of other areas' sizes none are here
        }
    }
}

/// Words of one table, by their addresses; 0 where none was taken.
struct TableWords {
    first: Va,
    words: [u64; Level::ENTRIES],
    /// The places with words: from the first up to behind the last one.
    used: (usize, usize),
}

impl TableWords {
    const NONE: TableWords =
        TableWords { first: Va::new(0), words: [0; Level::ENTRIES], used: (Level::ENTRIES, 0) };

    fn put(&mut self, (va, level): (Va, Level), word: u64) {
        let nth = Slot::of(va, level).index();
        self.first = va.align_down(level.up().span());
        self.words[nth] = word;
        self.used = (self.used.0.min(nth), self.used.1.max(nth + 1));
    }
    /// Takes them out, each with its address.
    fn drain(&mut self, level: Level) -> impl Iterator<Item = (Va, u64)> {
        let (from, to) = core::mem::replace(&mut self.used, (Level::ENTRIES, 0));
        let first = self.first;
        (from..to).filter_map(move |nth| {
            let word = core::mem::take(&mut self.words[nth]);
            (word != 0).then(|| (first.add(nth as u64 * level.span().get()), word))
        })
    }
}

/// The sink of the words that move: they go to their new place as soon as the table that they were
/// in is given back.
struct Remapped<'s, 'g, 'm, M: Machine, P: Paging> {
    noting: Noting<'s, 'g, 'm, M, P>,
    tables: Tables<'m, M, P>,
    /// The first of the old addresses, and the new address that takes its place.
    by: (Va, Va),
    level: Level,
    taken: TableWords,
    moved: Moved,
}

impl<'m, M: Machine, P: Paging> Sink<M, P> for Remapped<'_, '_, 'm, M, P> {
    const WAITS: bool = true;

    fn prepare(&mut self) -> bool {
        self.noting.prepare()
    }
    fn most(&self) -> usize {
        self.noting.most()
    }
    fn add(&mut self, run: Run) {
        self.noting.add(run);
        match run.what {
            // It is watched no more (watch::H4).
            What::Soft(soft) => {
                let word = unwatched_place(soft.word());
                // To all but the operation that dropped it such a place is spent.
                let is_dropped = plain_place(word) == DROPPED;
                let word = if is_dropped { place_like(word, SPENT) } else { word };
                self.taken.put((run.va, run.level), word);
            }
            What::Mapped { pa, attrs } => {
                // A group stays one where the new addresses are aligned as the old ones are (S10).
                let span = run.level.span().get();
                let unit = P::unit(run.level, attrs) as u64 * span;
                let is_aligned = (self.by.0.get() ^ self.by.1.get()).is_multiple_of(unit);
                let place = if is_aligned { Attrs::NONE } else { Attrs::GROUPED };
                let attrs = attrs.without(place | Attrs::UFFD_WP);
                for nth in 0..u64::from(run.count) {
                    let offset = nth * span;
                    let word = P::leaf(pa.add(offset), run.level, attrs);
                    self.taken.put((run.va.add(offset), run.level), word);
                }
            }
        }
    }
    fn leave(&mut self, _: &Tables<'_, M, P>, lock: Locked<'_, M, P>, _: Progress) {
        drop(lock); // one table at a time
        let mut target: Option<Locked<'m, M, P>> = None;
        for (va, word) in self.taken.drain(self.level) {
            let at = self.by.1.add(va.offset_from(self.by.0));
            if target.as_ref().is_none_or(|target| !target.range().contains(at)) {
                drop(target.take());
                let locked = self.tables.lock(at, self.level);
                target = Some(locked.expect("supplied, and kept by the writer"));
            }
            let target = target.as_ref().expect("just locked");
            target.set(target.index_of(at), word);
            self.moved = Moved::Something;
        }
    }
    fn between(&mut self, words: u64) {
        self.noting.between(words);
    }
}
