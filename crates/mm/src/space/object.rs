//! The space of an object: made, sized and let go of. What it is for says the room `object`.

use super::area::{Area, AreaLimit, Flags};
use super::attach::{detach_empty, put_area};
use super::error::RangeError;
use super::huge;
use super::life::{EndError, create, end_unheld};
use super::names::{OF_OBJECTS, ObjectId};
use super::ops::clear;
use super::record::Space;
use super::steps::Steps;
use super::zap::{Guards, SPENT, Zap};
use crate::flush::Gather;
use crate::frame::AnonOffset;
use crate::stock::{NoRecord, NoTable, Stock, Supply, record};
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Pages, Va, VaRange};

/// Makes an object without pages, told from every other one by `stamp`.
pub(crate) fn create_object<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    stamp: u32,
    limit: Option<Pages>,
    flags: Flags,
) -> Result<ObjectId, NoRecord> {
    let id = create(stock, stamp | OF_OBJECTS, limit, AreaLimit(u64::MAX))?;
    let object: &Space = record(stock.machine, id.frame().pa());
    object.as_object.begin(flags);
    Ok(ObjectId::of(id))
}

/// Moves the end of an object to `end`. What lay behind is gone from its tables, and is said.
pub(crate) fn resize_object<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    object: &Space,
    end: Va,
    steps: &mut Steps,
) -> Result<VaRange, RangeError> {
    let mut gather = Gather::new(stock, &object.member.target); // ends behind the writer (flush::F7)
    let _writer = object.writer.lock(stock.machine, steps.outside());
    if let Some(order) = object.object_huge().filter(|order| !end.is_aligned(order.bytes())) {
        return Err(RangeError::Cuts(end, order.bytes()));
    }
    let old = object.as_object.end();
    if let Some(more) = VaRange::new(old, end).filter(|more| !more.is_empty()) {
        let area = Area::own(more, object.as_object.flags(), 0, AnonOffset::NONE);
        object.areas.prepare(stock, &object.charge)?;
        put_area(stock, object, &area);
    }
    let gone = VaRange::new(end, old.max(end)).expect("in order");
    if !gone.is_empty() {
        clear(stock, object, &mut gather, gone, steps)?;
    }
    object.as_object.set_end(end);
    Ok(gone)
}

/// Reserves the pages of an object in `range`, as far as it reaches, that are not there and not
/// reserved, out of `have` reservations that the caller holds. Says how many it took; or, where
/// there are too few, how many there have to be, and none is taken.
///
/// A fault may fill an entry at any time. So each that is empty and not reserved becomes a spent
/// one first, of which no reservation is known in either kind of area; then the areas change, and
/// each spent entry that is left becomes an empty one, which stands for a reservation (space::S7).
pub(crate) fn reserve_object<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    object: &Space,
    range: VaRange,
    have: u64,
    steps: &mut Steps,
) -> Result<Result<u64, u64>, RangeError> {
    let order = object.object_huge().expect("its pages come out of a pool");
    let _writer = object.writer.lock(stock.machine, steps.outside());
    let end = range.end().min(object.as_object.end());
    let part = VaRange::new(range.start().min(end), end).expect("in order");
    if part.is_empty() {
        return Ok(Ok(0));
    }
    huge::whole(stock, object, part)?;
    let (tables, level) = (object.tables(stock), huge::level_of(order));
    let mut supply = Supply::of(stock, &object.charge);
    let made = supply.ensure_range(&tables, part, level, || {});
    made.map_err(|why| match why {
        NoTable::Record(why) => RangeError::from(why),
        NoTable::Blocked(_) => RangeError::NoMemory,
    })?;
    let is_reserved = |va| {
        let area = object.areas.find(stock.machine, va);
        area.is_some_and(|area| area.flags.reserved().is_some())
    };
    // What becomes of each entry that is `from`; says how many were.
    let replace = |from: u64, to: u64, suits: &dyn Fn(Va) -> bool| {
        let each = (0..part.bytes().get() / order.bytes().get())
            .map(|nth| part.start().add(nth * order.bytes().get()));
        let change = |va: &Va| {
            let Ok(locked) = tables.lock(*va, level) else { return false };
            let slot = locked.index_of(*va);
            let is_it = suits(*va) && locked.get(slot) == from;
            if is_it {
                locked.set(slot, to);
            }
            is_it
        };
        each.filter(change).count() as u64
    };
    replace(0, SPENT, &|va| !is_reserved(va));
    let wanted = replace(SPENT, SPENT, &|_| true);
    if wanted > have {
        return Ok(Err(wanted));
    }
    let change = |area: Area| Some((area.flags.without(Flags::NORESERVE), area.tag));
    object.areas.prepare(stock, &object.charge)?;
    object.areas.change(stock.machine, part, change);
    Ok(Ok(replace(SPENT, 0, &|_| true)))
}

/// Drops the pages of an object in `range`, as far as it reaches. Says what was gone over.
pub(crate) fn drop_object<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    object: &Space,
    range: VaRange,
    steps: &mut Steps,
) -> Result<VaRange, RangeError> {
    let mut gather = Gather::new(stock, &object.member.target); // ends behind the writer (flush::F7)
    let _writer = object.writer.lock(stock.machine, steps.outside());
    let end = range.end().min(object.as_object.end());
    let hole = VaRange::new(range.start().min(end), end).expect("in order");
    if !hole.is_empty() {
        huge::whole(stock, object, hole)?;
        Zap::new(stock, object, Guards::Keep).range(&mut gather, hole, steps);
    }
    gather.flush();
    Ok(hole)
}

/// Takes an object's name from it. It ends when nobody maps it any more, which may be now.
pub(crate) fn unname<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    id: ObjectId,
    steps: &mut Steps,
) -> Result<(), EndError> {
    let pinned = id.pin(stock).ok_or(EndError::NoSpace)?;
    let is_last = pinned.as_object.unname().ok_or(EndError::NoSpace)?;
    drop(pinned);
    let object = || record(stock.machine, id.frame().pa());
    end_unheld(stock, is_last.then(object), steps);
    Ok(())
}

/// Takes the attachments off that no area of `space` has any more. The caller holds nothing.
#[inline(always)]
pub(crate) fn collect<M: Machine, P: Paging>(stock: &Stock<'_, M, P>, space: &Space) {
    if space.member.attachments.has_empty() {
        collect_empty(stock, space);
    }
}
#[inline(never)] // most spaces have none
fn collect_empty<M: Machine, P: Paging>(stock: &Stock<'_, M, P>, space: &Space) {
    let steps = &mut Steps::at_the_face();
    while let Some(object) = detach_empty(stock, space, steps) {
        end_unheld(stock, object, steps);
    }
}
