//! Areas that map objects: the attachments that they have, and what they map by them.
//!
//! ```text
//!   map, remap, fork   object held ─▶ attachment on its list ─▶ area in ─▶ faults
//!   unmap              area out ─▶ entries out, flushed, dropped ─▶ writer gone ─▶ attachment off ─▶ object let go
//! ```
//!
//! An attachment that no area has is taken off behind the writer: a caller that has one pinned may
//! want the writer (`object`).
//!
//! **Not here**: what an object has (`object`), what a fault maps of it (`fault`).

use super::area::{Area, Flags};
use super::error::RangeError;
use super::names::Pinned;
use super::record::Space;
use super::steps::Steps;
use super::user_half;
use super::zap::{Guards, Zap};
use crate::flush::Gather;
use crate::frame::{AnonOffset, Index};
use crate::rmap::{Attachment, AttachmentName, Distances, Pin};
use crate::stock::{Stock, Subpool, record};
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::{FRAME_BYTES, Frame, Va, VaRange};

/// The attachment by which `space` has the page with this number of `object` at `va`. The caller
/// holds the writer, and has the object pinned.
#[inline(never)] // most areas map none
pub(super) fn attachment<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    object: &Space,
    va: Va,
    page: u64,
) -> Result<AttachmentName, RangeError> {
    let distance = AnonOffset::between(va, Index::of_object(page));
    attach(stock, space, object, Distances { object: distance, copies: AnonOffset::NONE }, None)
}
/// What an area shows of an object, if it maps one: the object's frame and the distance.
pub(super) fn shows<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    area: &Area,
) -> Option<(Frame, AnonOffset)> {
    let attached = Attachment::of(stock, area.attachment()?);
    Some((attached.object(), attached.offset()))
}
/// Notes that the program is about to answer faults of an area. The caller holds the writer.
#[inline(never)] // few areas map objects
pub(super) fn note_armed<M: Machine, P: Paging>(stock: &Stock<'_, M, P>, area: &Area) {
    if let Some(name) = area.attachment() {
        object(stock, Attachment::of(stock, name)).as_object.note_armed();
    }
}
/// The area that `area` becomes when it is moved by so much.
pub(super) fn moved<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    area: &Area,
    (from, to): (Va, Va),
) -> Result<Area, RangeError> {
    let Some(name) = area.attachment() else {
        let offset = area.offset(stock).moved(from, to);
        return Ok(Area::own(area.range, area.flags, area.tag, offset));
    };
    let old = Attachment::of(stock, name);
    let at = old.distances().moved(from, to);
    Ok(area.attached(attach(stock, space, object(stock, old), at, Some(old))?))
}
/// The area that a fork's child has where its parent has `area`.
pub(super) fn copied<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    child: &Space,
    area: &Area,
) -> Result<Area, RangeError> {
    let Some(name) = area.attachment() else { return Ok(*area) };
    let old = Attachment::of(stock, name);
    let at = old.distances();
    Ok(area.attached(attach(stock, child, object(stock, old), at, Some(old))?))
}
/// The subpool that pages of an area of huge pages count for. The caller is in the section in which
/// it found the area, or keeps changes out.
pub(crate) fn subpool<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    area: &Area,
) -> Subpool {
    match area.attachment() {
        Some(name) => object(stock, Attachment::of(stock, name)).as_object.subpool(),
        None => space.as_object.subpool(),
    }
}
fn object<'m, M: Machine, P: Paging>(stock: &Stock<'m, M, P>, it: Attachment<'m>) -> &'m Space {
    record(stock.machine, it.object().pa())
}
fn attach<'m, M: Machine, P: Paging>(
    stock: &Stock<'m, M, P>,
    space: &Space,
    object: &Space,
    at: Distances,
    origin: Option<Attachment<'m>>,
) -> Result<AttachmentName, RangeError> {
    let of = (&object.member, at);
    let hold = || object.as_object.hold();
    let attached = space.member.attach(stock, &space.charge, of, origin, hold)?;
    attached.map(Attachment::name).ok_or(RangeError::NoObject)
}

/// Puts an area in, with its attachment if it has one. The caller prepared it.
#[inline(always)]
pub(super) fn put_area<M: Machine, P: Paging>(stock: &Stock<'_, M, P>, space: &Space, area: &Area) {
    if let Some(name) = area.attachment() {
        space.member.attachments.add_pages(stock, name, area.range.pages().get());
    }
    space.areas.put(stock.machine, area);
}
/// Takes the areas of `range` out, but for the pieces outside. The caller prepared it.
#[inline(always)]
pub(super) fn remove_areas<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    range: VaRange,
) {
    if !space.member.attachments.are_none() {
        remove_pages(stock, space, range);
    }
    space.areas.change(stock.machine, range, |_| None);
}

/// Notes that the areas of `range` go.
#[inline(never)] // most spaces have no attachments
fn remove_pages<M: Machine, P: Paging>(stock: &Stock<'_, M, P>, space: &Space, range: VaRange) {
    for area in space.areas.overlapping(stock.machine, range) {
        if let Some(name) = area.attachment() {
            let pages = area.range.intersect(range).pages().get();
            space.member.attachments.remove_pages(stock, name, pages);
        }
    }
}

/// Takes an attachment that no area of `space` has any more off, if there is one, and lets go of
/// its object, which is to be ended where it is named. The caller holds nothing.
pub(super) fn detach_empty<'m, M: Machine, P: Paging>(
    stock: &Stock<'m, M, P>,
    space: &Space,
    steps: &mut Steps,
) -> Option<Option<&'m Space>> {
    let attachments = &space.member.attachments;
    let gone = {
        let _writer = space.writer.lock(stock.machine, steps.outside());
        attachments.take_empty(stock)?
    };
    let object = object(stock, gone);
    object.member.detach(stock, gone, steps.outside());
    // A fault that found it in an area may be at the object still, which ends as soon as nothing
    // holds it (rmap::attachment::X3).
    stock.wait_for_readers();
    {
        let _writer = space.writer.lock(stock.machine, steps.outside());
        attachments.spare(stock, gone);
    }
    Some(object.as_object.let_go().then_some(object))
}
/// The same of any attachment, of a space that has nothing any more. Gives `None` when all are
/// gone, with their memory.
pub(super) fn detach_any<'m, M: Machine, P: Paging>(
    stock: &Stock<'m, M, P>,
    space: &Space,
    steps: &mut Steps,
) -> Option<Option<&'m Space>> {
    let attachments = &space.member.attachments;
    let Some(gone) = attachments.take(stock) else {
        attachments.dissolve(stock);
        return None;
    };
    let object = object(stock, gone);
    object.member.detach(stock, gone, steps.outside());
    attachments.spare(stock, gone);
    Some(object.as_object.let_go().then_some(object))
}

/// What becomes of private copies of pages that leave an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Copies {
    /// They go too.
    Go,
    /// They stay.
    Stay,
}

/// Takes what the space of an attachment has of the pages `from..to` of its object out of all areas
/// that map it, by whichever attachment: so an area that moves carries nothing past the caller,
/// which goes from attachment to attachment. The caller has it pinned and holds nothing.
pub(crate) fn zap_attached<'m, M: Machine, P: Paging>(
    stock: &Stock<'m, M, P>,
    pin: &Pin<'m>,
    pages: (u64, u64),
    copies: Copies,
    steps: &mut Steps,
) {
    let attached = pin.attachment().expect("the pin is of an attachment");
    let Some(space) = Pinned::of(stock, pin) else { return };
    let mut gather = Gather::new(stock, &space.member.target); // ends behind the writer (flush::F7)
    let _writer = space.writer.lock(stock.machine, steps.outside());
    for area in space.areas.overlapping(stock.machine, user_half::<P>()) {
        let shown = shows(stock, &area).filter(|(object, _)| *object == attached.object());
        let part = shown.and_then(|(_, offset)| part_of(&area, offset, pages));
        let Some(part) = part else { continue };
        let is_all = copies == Copies::Go || area.flags.has(Flags::SHARED);
        // What leaves an object for good takes the copies with it; of huge pages Linux drops poison
        // with any page.
        let is_dropped = copies == Copies::Go || area.flags.huge_order().is_some();
        let zap = Zap::new(stock, &space, Guards::Keep).reclaiming();
        let zap = if is_dropped { zap } else { zap.keeping_poison() };
        match is_all {
            _ if area.keeps_watch() => {
                let only = (!is_all).then_some(attached.object());
                zap.range_watched(&mut gather, part, only, steps);
            }
            true => zap.range(&mut gather, part, steps),
            false => zap.range_of(&mut gather, part, attached.object(), steps),
        }
    }
    gather.flush();
}
/// Whether a space has an area that maps an object shared and may be written, or may become so.
pub(crate) fn may_write_to<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    object: Frame,
    steps: &mut Steps,
) -> bool {
    let _writer = space.writer.lock(stock.machine, steps.outside());
    let is_it = |area: Area| {
        let may = area.flags.has(Flags::SHARED) && area.flags.ceiling().has(Flags::WRITE);
        may && shows(stock, &area).is_some_and(|(shown, _)| shown == object)
    };
    space.areas.overlapping(stock.machine, user_half::<P>()).any(is_it)
}
/// The first area of a space that reserves copies of an object's pages, by the page that it begins
/// with and then by its address, that is not before `from`: that page, and the area's range.
pub(crate) fn first_copying<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    object: Frame,
    from: (u64, Va),
    steps: &mut Steps,
) -> Option<(u64, VaRange)> {
    let _writer = space.writer.lock(stock.machine, steps.outside());
    let areas = space.areas.overlapping(stock.machine, user_half::<P>());
    let copying = areas.filter(|area| area.flags.reserved().is_some()).filter_map(|area| {
        let (shown, offset) = shows(stock, &area)?;
        let first = Index::of(area.range.start(), offset).page();
        (shown == object).then_some((first, area.range))
    });
    let left = copying.filter(|(first, range)| (*first, range.start()) >= from);
    left.min_by_key(|(first, range)| (*first, range.start()))
}
/// The addresses of an area at which pages `from..to` of an object are.
fn part_of(area: &Area, offset: AnonOffset, (from, to): (u64, u64)) -> Option<VaRange> {
    let first = Index::of(area.range.start(), offset).page();
    let end = first + area.range.pages().get();
    let (from, to) = (from.max(first), to.min(end));
    let at = |page: u64| area.range.start().add((page - first) * FRAME_BYTES);
    (from < to).then(|| VaRange::new(at(from), at(to)).expect("pages of the area"))
}
