//! Map, unmap, protect.

use super::area::{Area, Flags, PAGE};
use super::attach;
use super::error::{MapError, RangeError};
use super::huge;
use super::record::Space;
use super::steps::Steps;
use super::walk::{self, Noting};
use super::zap::{Guards, Zap};
use super::{attrs, user_half};
use crate::flush::Gather;
use crate::frame::AnonOffset;
use crate::ranges::{Edge, GapNeed};
use crate::stock::Stock;
use crate::sync::{Ordering, Outside};
use crate::table::{At, Attrs, Edit, Paging, Prune, Soft, Verdict};
use foliant_machine::{Machine, Replace};
use foliant_units::{Bytes, Level, Pa, Va, VaRange};

/// Addresses below are never chosen for an area: null pointers shall fault.
const FLOOR: Va = Va::new(0x1_0000);

/// The lowest address that an area may have: null pointers, and what is reached through one, shall
/// fault.
pub(super) fn lowest<M: Machine, P: Paging>(stock: &Stock<'_, M, P>) -> Va {
    Va::new(stock.lowest.load(Ordering::Relaxed))
}

/// Where a new area goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Anywhere; the highest gap that fits.
    Anywhere,
    /// At this address if it is free, else anywhere.
    Hint(Va),
    /// At this address; what lies there is unmapped first.
    Fixed(Va),
    /// At this address, or not at all.
    NoReplace(Va),
}

/// A request for an area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapRequest {
    /// Where.
    pub place: Place,
    /// How large; rounded up to pages. Zero is refused.
    pub bytes: Bytes,
    /// Rights and wishes.
    pub flags: Flags,
    /// The embedder's word; see [`Area::tag`].
    pub tag: u64,
}

/// Checks a range that came from outside.
pub(crate) fn check<P: Paging>(range: VaRange) -> Result<(), RangeError> {
    if range.is_empty() {
        return Err(RangeError::Empty);
    }
    for va in [range.start(), range.end()] {
        if !va.is_aligned(PAGE) {
            return Err(RangeError::Misaligned(va));
        }
    }
    let half = user_half::<P>();
    if !half.covers(range) {
        let inside = half.contains(range.start());
        return Err(RangeError::Outside(if inside { half.end() } else { range.start() }));
    }
    Ok(())
}

/// Checks a range in which a new area shall lie.
pub(super) fn check_new<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    range: VaRange,
) -> Result<(), RangeError> {
    check::<P>(range)?;
    let lowest = lowest(stock);
    if range.start() < lowest {
        return Err(RangeError::TooLow(range.start(), lowest));
    }
    Ok(())
}

/// Demands that areas cover `range` without a hole, and that each of them suits.
pub(super) fn covered<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    range: VaRange,
    suits: impl Fn(&Area) -> Result<(), RangeError>,
) -> Result<(), RangeError> {
    let mut va = range.start();
    for area in space.areas.overlapping(stock.machine, range) {
        if area.range.start() > va {
            return Err(RangeError::Hole(va));
        }
        suits(&area)?;
        va = area.range.end();
    }
    if va < range.end() { Err(RangeError::Hole(va)) } else { Ok(()) }
}

/// Puts an area in.
pub(crate) fn map<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    request: &MapRequest,
    steps: &mut Steps,
) -> Result<VaRange, MapError> {
    // Kernel memory comes with its pages (`kernel`), and what is shared is an object's.
    if request.flags.and(Flags::KERNEL.with(Flags::SHARED)) != Flags::NONE {
        return Err(MapError::Flags(request.flags));
    }
    put(stock, space, request, steps, Ok)
}
/// Puts an area in that maps an object from its page with this number on.
pub(crate) fn map_object<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    request: &MapRequest,
    (object, page): (&Space, u64),
    steps: &mut Steps,
) -> Result<VaRange, MapError> {
    if request.flags.has(Flags::KERNEL) {
        return Err(MapError::Flags(request.flags));
    }
    put(stock, space, request, steps, |area| {
        let name = attach::attachment(stock, space, object, area.range.start(), page)?;
        if request.flags.and(Flags::ARMED) != Flags::NONE {
            object.as_object.note_armed();
        }
        Ok(area.attached(name))
    })
}
#[inline(always)]
fn put<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    request: &MapRequest,
    steps: &mut Steps,
    what: impl FnOnce(Area) -> Result<Area, RangeError>,
) -> Result<VaRange, MapError> {
    let mut gather = Gather::new(stock, &space.member.target); // ends behind the writer (flush::F7)
    let _writer = space.writer.lock(stock.machine, steps.outside());
    let (range, replaced) = choose(stock, space, request)?;
    let area = what(Area::own(range, request.flags, request.tag, AnonOffset::NONE))?;
    space.admit(stock, range, |_| None, (Some(&area), 0))?;
    // These are the nodes for two areas cut and one put in: what lies there goes only when nothing
    // can fail any more.
    space.areas.prepare(stock, &space.charge).map_err(RangeError::from)?;
    if let Some(range) = replaced {
        huge::clear_reserved(stock, space, &mut gather, range, steps);
        clear_prepared(stock, space, &mut gather, range, steps);
    }
    attach::put_area(stock, space, &area);
    Ok(range)
}

/// Whether there is a place for a new area, at this moment: for a caller that has to take something
/// first that others may want.
pub(crate) fn has_place<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    request: &MapRequest,
    steps: &mut Steps,
) -> Result<(), MapError> {
    let _writer = space.writer.lock(stock.machine, steps.outside());
    choose(stock, space, request).map(|_| ())
}

/// Where the gap lies that is nearest to an edge of a range and has room for so many bytes, whole
/// pages, at this moment: the room at that edge of it.
pub(crate) fn room<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    (bytes, within, from): (Bytes, VaRange, Edge),
    steps: &mut Steps,
) -> Option<Va> {
    let _writer = space.writer.lock(stock.machine, steps.outside());
    space.areas.gap(stock.machine, &GapNeed { bytes, align: Level::BASE.span(), within, from })
}

/// Where a new area goes, and what is to be replaced there. The caller holds the writer's lock.
pub(super) fn choose<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    request: &MapRequest,
) -> Result<(VaRange, Option<VaRange>), MapError> {
    let size = huge::check::<P>(request.flags)?;
    if !request.flags.is_below_ceiling() {
        return Err(MapError::Flags(request.flags));
    }
    let bytes = request.bytes.get().checked_next_multiple_of(size.get());
    let bytes = Bytes::new(bytes.ok_or(MapError::NoRoom(request.bytes))?);
    let at = |va| VaRange::sized(va, bytes).ok_or(MapError::Range(RangeError::Outside(va)));
    let occupied =
        |range| space.areas.overlapping(stock.machine, range).next().map(|a| a.range.start());
    let range = match request.place {
        Place::Anywhere => return Ok((gap(stock, space, bytes, size)?, None)),
        Place::Hint(va) => {
            let wish = at(va.align_down(size)).ok().filter(|r| check_new(stock, *r).is_ok());
            let range = match wish.filter(|r| occupied(*r).is_none()) {
                Some(range) => range,
                None => gap(stock, space, bytes, size)?,
            };
            return Ok((range, None));
        }
        Place::Fixed(va) | Place::NoReplace(va) => at(va)?,
    };
    check_new(stock, range)?;
    if !range.start().is_aligned(size) {
        return Err(RangeError::Cuts(range.start(), size).into());
    }
    let replaced = match (occupied(range), request.place) {
        (None, _) => None,
        (Some(_), Place::Fixed(_)) => {
            huge::whole(stock, space, range)?;
            Some(range)
        }
        (Some(va), _) => return Err(MapError::Occupied(va.max(range.start()))),
    };
    Ok((range, replaced))
}

/// A range of `bytes` at a multiple of `align` where nothing lies, as high as
/// [`Ranges::gap`](crate::ranges::Ranges::gap) finds one.
pub(super) fn gap<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    bytes: Bytes,
    align: Bytes,
) -> Result<VaRange, MapError> {
    if bytes.get() == 0 {
        return Err(RangeError::Empty.into());
    }
    let within = VaRange::new(lowest(stock).max(FLOOR), user_half::<P>().end());
    let need = |within| GapNeed { bytes, align, within, from: Edge::High };
    let start = within.and_then(|within| space.areas.gap(stock.machine, &need(within)));
    start.and_then(|start| VaRange::sized(start, bytes)).ok_or(MapError::NoRoom(bytes))
}

/// Takes out whatever lies in `range`.
pub(crate) fn unmap<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    range: VaRange,
    steps: &mut Steps,
) -> Result<(), RangeError> {
    check::<P>(range)?;
    let mut gather = Gather::new(stock, &space.member.target); // ends behind the writer (flush::F7)
    let _writer = space.writer.lock(stock.machine, steps.outside());
    clear(stock, space, &mut gather, range, steps)
}

/// Does what [`unmap`] does, for a caller that holds the writer's lock. What goes is flushed, and
/// freed when the gather ends.
pub(super) fn clear<'s, 'm, M: Machine, P: Paging>(
    stock: &'s Stock<'m, M, P>,
    space: &'s Space,
    gather: &mut Gather<'s, 'm, M, P>,
    range: VaRange,
    steps: &mut Steps,
) -> Result<(), RangeError> {
    let mut is_reserved = false;
    for area in space.areas.overlapping(stock.machine, range) {
        steps.take(stock.machine, 1);
        huge::uncut(&area, range)?;
        is_reserved |= area.flags.reserved().is_some();
    }
    space.admit(stock, range, |_| None, (None, 0))?;
    // The caller may unmap because it lacks memory: where areas go as a whole, or what is left of
    // them fits in beside the others, none is needed.
    if let Err(why) = space.areas.prepare(stock, &space.charge)
        && space.areas.needs_nodes(stock.machine, range)
    {
        return Err(why.into());
    }
    if is_reserved {
        huge::clear_reserved(stock, space, gather, range, steps);
    }
    clear_prepared(stock, space, gather, range, steps);
    Ok(())
}

/// Does what [`clear`] does, for a caller that has taken the nodes that it may need, and what has
/// reservations out of the range.
fn clear_prepared<'s, 'm, M: Machine, P: Paging>(
    stock: &'s Stock<'m, M, P>,
    space: &'s Space,
    gather: &mut Gather<'s, 'm, M, P>,
    range: VaRange,
    steps: &mut Steps,
) {
    attach::remove_areas(stock, space, range); // S1: areas first
    empty(stock, space, gather, range, steps);
}

/// Takes the pages and tables out of a range that no area lies in, and flushes. They are freed when
/// the gather ends.
pub(super) fn empty<'s, 'm, M: Machine, P: Paging>(
    stock: &'s Stock<'m, M, P>,
    space: &'s Space,
    gather: &mut Gather<'s, 'm, M, P>,
    range: VaRange,
    steps: &mut Steps,
) {
    let zap = Zap::new(stock, space, Guards::Drop).pruning(Prune::Emptied);
    zap.range(gather, range, steps);
    gather.shoot();
}

/// Changes the rights of `range`, which areas cover without a hole, none of them with a lower
/// ceiling (S8).
pub(crate) fn protect<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    range: VaRange,
    rights: Flags,
    steps: &mut Steps,
) -> Result<(), RangeError> {
    check::<P>(range)?;
    let rights = rights.and(Flags::RIGHTS);
    let _writer = space.writer.lock(stock.machine, steps.outside());
    covered(stock, space, range, |area| match area.flags.ceiling() {
        most if most.has(rights) => huge::uncut(area, range),
        most => Err(RangeError::Ceiling(area.range.start().max(range.start()), most)),
    })?;
    let change = |area: Area| Some((area.flags.without(Flags::RIGHTS).with(rights), area.tag));
    space.admit(stock, range, change, (None, 0))?;
    space.areas.prepare(stock, &space.charge)?;
    space.areas.change(stock.machine, range, change);
    let mut gather = Gather::new(stock, &space.member.target);
    let kept = Attrs::TOUCHED | Attrs::EXCLUSIVE | Attrs::SPECIAL | Attrs::SOFT_DIRTY;
    let kept = kept | Attrs::UFFD_WP;
    let (shown, replace) = (attrs(rights), stock.machine.rules().replace);
    change_entries(replace, stock, space, range, &mut gather, steps, |old| {
        opened::<P>(shown.with(old.and(kept)), rights)
    });
    gather.settle();
    gather.flush();
    Ok(())
}

/// With the right to write, where rights that have it give it at once: an exclusive page may be
/// written again without a fault (S5), unless somebody wants to see that it is (S11, S12).
#[inline(always)] // for each word of a range that is protected
pub(super) fn opened<P: Paging>(attrs: Attrs, rights: Flags) -> Attrs {
    let own = Attrs::EXCLUSIVE | Attrs::SOFT_DIRTY.and(P::KEEPS);
    let written = if rights.has(Flags::WRITE) { Attrs::WRITE } else { Attrs::NONE };
    if attrs.and(own | Attrs::UFFD_WP) == own { attrs | written } else { attrs }
}

/// Rewrites the attributes of every present page of `range`, by a rule that may be stricter than
/// the machine's. Entries that lose a right or their dirty bit are noted, and all that change where
/// they are broken first. Leaves that reach over its ends are split, for the areas on both sides
/// may differ from here on (S9).
pub(super) fn change_entries<'g, 'm, M: Machine, P: Paging>(
    replace: Replace,
    stock: &'g Stock<'m, M, P>,
    space: &'g Space,
    range: VaRange,
    gather: &mut Gather<'g, 'm, M, P>,
    steps: &mut Steps,
    change: impl Fn(Attrs) -> Attrs,
) {
    let edit = Rewrite { range, change, replace };
    let mut sink = Noting { machine: stock.machine, gather, steps };
    walk::edit(stock, space, range, &edit, &mut sink);
}

/// Other attributes for the leaves of a range.
pub(super) struct Rewrite<C> {
    /// A leaf that reaches over its ends is split, even one that stays as it is.
    pub(super) range: VaRange,
    pub(super) change: C,
    pub(super) replace: Replace,
}

impl<P: Paging, C: Fn(Attrs) -> Attrs> Edit<P> for Rewrite<C> {
    /// What is noted of a run depends on the bits that walkers set.
    fn ignores(&self) -> u64 {
        0
    }
    #[inline(always)] // for each word of a range that is protected
    fn leaf(&self, at: At, _: u64, pa: Pa, attrs: Attrs) -> Verdict {
        let new = (self.change)(attrs) | attrs.and(Attrs::GROUPED);
        let lost = attrs.without(new);
        let lost = lost.and(Attrs::WRITE | Attrs::EXEC | Attrs::USER | Attrs::DIRTY);
        match self.replace {
            _ if new == attrs && !self.range.covers(at.range()) => Verdict::Split, // S9
            _ if new == attrs => Verdict::Keep,
            Replace::BreakBeforeMake => Verdict::Break(new),
            Replace::InPlace if attrs.has(Attrs::GROUPED) => Verdict::Break(new), // S10
            Replace::InPlace if lost == Attrs::NONE => Verdict::Put(P::leaf(pa, at.level, new)),
            Replace::InPlace => Verdict::Take(P::leaf(pa, at.level, new)),
        }
    }
    fn soft(&self, _: At, soft: Soft) -> Verdict {
        if soft.is_waited_for() { Verdict::Busy } else { Verdict::Keep }
    }
}

/// The area that contains `va`, for a caller that has found none without the writer: one that a
/// move has taken out may have come back (S13).
pub(crate) fn settled_area<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    va: Va,
    outside: &mut Outside,
) -> Option<Area> {
    let _writer = space.writer.lock(stock.machine, outside);
    space.areas.find(stock.machine, va)
}

/// Extends a downward-growing area to `va`, where it reaches at most `most` and stays `gap` away
/// from the area below.
pub(crate) fn grow<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    va: Va,
    most: Bytes,
    gap: Bytes,
    steps: &mut Steps,
) -> Option<()> {
    let _writer = space.writer.lock(stock.machine, steps.outside());
    let va = va.align_down(PAGE);
    let above = space.areas.at_or_after(stock.machine, va)?;
    if above.range.contains(va) {
        return Some(()); // another fault was faster, or it came back (S13)
    }
    let room = VaRange::new(Va::new(va.get().saturating_sub(gap.get())), va)?;
    let near = space.areas.overlapping(stock.machine, room).next();
    let too_far = above.range.end().offset_from(va) > most.get() || va < lowest(stock);
    if !above.flags.has(Flags::GROWS_DOWN) || too_far || near.is_some() {
        return None;
    }
    let area = Area { range: VaRange::new(va, above.range.start())?, ..above };
    space.admit(stock, area.range, |_| None, (Some(&area), 0)).ok()?;
    space.areas.prepare(stock, &space.charge).ok()?;
    space.areas.put(stock.machine, &area);
    Some(())
}
