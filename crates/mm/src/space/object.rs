//! The space of an object: made, sized and let go of. What it is for says the room `object`.

use super::area::{Area, Flags};
use super::attach::{detach_empty, put_area};
use super::error::RangeError;
use super::huge;
use super::life::{EndError, create, end_unheld};
use super::names::{OF_OBJECTS, ObjectId};
use super::ops::clear;
use super::places::SPENT;
use super::record::{Around, Space};
use super::steps::Steps;
use super::zap::{Guards, Zap};
use crate::flush::Gather;
use crate::frame::AnonOffset;
use crate::stock::{NoRecord, NoTable, Stock, Subpool, Supply, record};
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Order, Pages, Va, VaRange};

/// Makes an object without pages, told from every other one by `stamp`.
pub(crate) fn create_object<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    stamp: u32,
    limit: Option<Pages>,
    (flags, around, subpool): (Flags, Around, Subpool),
) -> Result<ObjectId, NoRecord> {
    let id = create(stock, stamp | OF_OBJECTS, limit)?;
    let object: &Space = record(stock.machine, id.frame().pa());
    object.as_object.begin(flags, around, subpool);
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

/// What became of reservations that were held for an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reserving {
    /// So many were taken.
    Took(u64),
    /// None was: at least so many have to be held.
    Wants(u64),
}

/// Reserves the pages of an object in `range`, as far as it reaches, that are not there and not
/// reserved, out of `have` reservations that the caller holds.
///
/// A fault may fill an entry at any time. So each that is empty and not reserved becomes a spent
/// one first, of which no reservation is known in either kind of area; then the areas change, and
/// each spent entry that is left becomes an empty one, which stands for a reservation (space::S7).
/// Before a table is made for that it is seen that there can be enough reservations.
pub(crate) fn reserve_object<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    object: &Space,
    range: VaRange,
    have: u64,
    steps: &mut Steps,
) -> Result<Reserving, RangeError> {
    let order = object.object_huge().expect("its pages come out of a pool");
    let _writer = object.writer.lock(stock.machine, steps.outside());
    let end = range.end().min(object.as_object.end());
    let part = VaRange::new(range.start().min(end), end).expect("in order");
    if part.is_empty() {
        return Ok(Reserving::Took(0));
    }
    huge::whole(stock, object, part)?;
    let reserving = Reserve { stock, object, part, order };
    let least = reserving.unreserved().saturating_sub(object.pages().get() / order.pages().get());
    if least > have {
        return Ok(Reserving::Wants(least));
    }
    reserving.make_tables(steps)?;
    reserving.replace(0, SPENT, steps);
    let wanted = reserving.replace(SPENT, SPENT, steps);
    if wanted > have {
        return Ok(Reserving::Wants(wanted));
    }
    let change = |area: Area| Some((area.flags.without(Flags::NORESERVE), area.tag));
    object.areas.prepare(stock, &object.charge)?;
    object.areas.change(stock.machine, part, change);
    Ok(Reserving::Took(reserving.replace(SPENT, 0, steps)))
}

/// See [`reserve_object`]. The writer of the object's space is held.
struct Reserve<'r, 'm, M: Machine, P: Paging> {
    stock: &'r Stock<'m, M, P>,
    object: &'r Space,
    part: VaRange,
    order: Order,
}

impl<M: Machine, P: Paging> Reserve<'_, '_, M, P> {
    /// Huge pages in areas that have no reservations.
    fn unreserved(&self) -> u64 {
        let areas = self.object.areas.overlapping(self.stock.machine, self.part);
        let others = areas.filter(|area| area.flags.reserved().is_none());
        let bytes = others.map(|area| area.range.intersect(self.part).bytes().get());
        bytes.sum::<u64>() / self.order.bytes().get()
    }
    fn make_tables(&self, steps: &mut Steps) -> Result<(), RangeError> {
        let mut supply = Supply::of(self.stock, &self.object.charge);
        let before = || steps.take(self.stock.machine, Steps::TABLE);
        let (tables, level) = (self.object.tables(self.stock), huge::level_of(self.order));
        supply.ensure_range(&tables, self.part, level, before).map_err(|why| match why {
            NoTable::Record(why) => why.into(),
            NoTable::Blocked(_) => RangeError::NoMemory,
        })
    }
    /// Makes each entry that is `from` into `to`; an empty one only where it is not reserved. Says
    /// how many were.
    fn replace(&self, from: u64, to: u64, steps: &mut Steps) -> u64 {
        let (tables, level) = (self.object.tables(self.stock), huge::level_of(self.order));
        let is_reserved = |va| {
            let area = self.object.areas.find(self.stock.machine, va);
            area.is_some_and(|area| area.flags.reserved().is_some())
        };
        let (mut va, mut count) = (self.part.start(), 0);
        while va < self.part.end() {
            steps.take(self.stock.machine, 1);
            if let Ok(locked) = tables.lock(va, level) {
                let slot = locked.index_of(va);
                if locked.get(slot) == from && (from != 0 || !is_reserved(va)) {
                    locked.set(slot, to);
                    count += 1;
                }
            }
            va = va.add(self.order.bytes().get());
        }
        count
    }
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
        let zap = Zap::new(stock, object, Guards::Keep).reclaiming();
        zap.range(&mut gather, hole, steps);
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
