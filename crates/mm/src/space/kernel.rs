//! Kernel memory in a program: pages that the kernel has mapped as well.
//!
//! Each page is referenced by its entry here and by its area there, so it is given back when both
//! are gone, in whichever order. The pages come with the area, all or none; a page that the program
//! drops does not come back. What the program may do with them was decided by the lender: the
//! rights of the request are the area's ceiling (space::S8).

use super::area::{Area, Flags};
use super::attrs;
use super::ops::{MapError, MapRequest, RangeError, choose, empty};
use super::record::Space;
use super::steps::Steps;
use crate::flush::Gather;
use crate::frame::AnonOffset;
use crate::stock::Stock;
use crate::table::{Attrs, Paging, Slot};
use foliant_machine::Machine;
use foliant_units::{FRAME_BYTES, Frame, Level, VaRange};

/// Puts an area in, and maps page n of it to `frame(n)`, each a page of kernel memory that stays
/// alive meanwhile. Nothing is replaced, wherever it is put.
pub(crate) fn map_kernel<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    request: &MapRequest,
    frame: impl Fn(u64) -> Frame,
    steps: &mut Steps,
) -> Result<VaRange, MapError> {
    let flags = request.flags.with(Flags::KERNEL).at_most(request.flags);
    if flags.huge_order().is_some() || flags.has(Flags::GROWS_DOWN) || flags.has(Flags::USERFAULT) {
        return Err(MapError::Flags(request.flags));
    }
    let _writer = space.writer.lock(stock.machine, steps.outside());
    let (range, replaced) = choose(stock, space, request)?;
    if replaced.is_some() {
        return Err(MapError::Occupied(range.start()));
    }
    let (me, pages) = (stock.machine.me(), range.pages().get());
    let area = Area { range, flags, tag: request.tag, offset: AnonOffset::NONE };
    space.areas.admit(stock.machine, range, |_| None, Some(&area), 0).map_err(RangeError::from)?;
    space.areas.prepare(stock, &space.charge).map_err(RangeError::from)?;
    if let Err(error) = super::reach(stock, space, range, steps) {
        // Some tables were made in vain.
        drop(empty(stock, space, Gather::new(stock, &space.member.target), range, steps));
        return Err(error.into());
    }
    if let Err(over) = space.charge(me, pages) {
        drop(empty(stock, space, Gather::new(stock, &space.member.target), range, steps));
        return Err(RangeError::from(over).into());
    }
    space.areas.put(stock.machine, &area);
    let writable = if flags.has(Flags::WRITE) { Attrs::WRITE } else { Attrs::NONE };
    let attrs = attrs(flags) | writable | Attrs::EXCLUSIVE;
    let tables = space.tables(stock);
    for n in 0..pages {
        steps.take(stock.machine, 1);
        let (va, frame) = (range.start().add(n * FRAME_BYTES), frame(n));
        stock.add_references(frame, 1);
        let lock = tables.lock(va, Level::BASE).expect("tables go under the writer's lock only");
        lock.set(Slot::of(va, Level::BASE), P::leaf(frame.pa(), Level::BASE, attrs));
    }
    Ok(range)
}
