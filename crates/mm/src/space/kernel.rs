//! Kernel memory in a program: pages that the kernel has mapped as well.
//!
//! Each page is referenced by its entry here and by its area there, so it is given back when both
//! are gone, in whichever order. The pages come with the area, all or none; a page that the program
//! drops does not come back. What the program may do with them was decided by the lender: the
//! rights of the request are the area's ceiling (space::S8).

use super::area::{Area, Flags};
use super::attrs;
use super::error::{MapError, RangeError};
use super::ops::{MapRequest, choose, empty};
use super::record::Space;
use super::steps::Steps;
use super::walk::{self, Uncached};
use crate::flush::Gather;
use crate::frame::AnonOffset;
use crate::stock::Stock;
use crate::table::{At, Attrs, Edit, Paging, Soft, Verdict};
use foliant_machine::Machine;
use foliant_units::{FRAME_BYTES, Frame, Pa, Va, VaRange};

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
    if flags.huge_order().is_some()
        || flags.has(Flags::GROWS_DOWN)
        || flags.and(Flags::ARMED) != Flags::NONE
    {
        return Err(MapError::Flags(request.flags));
    }
    let _writer = space.writer.lock(stock.machine, steps.outside());
    let (range, replaced) = choose(stock, space, request)?;
    if replaced.is_some() {
        return Err(MapError::Occupied(range.start()));
    }
    let (me, pages) = (stock.machine.me(), range.pages().get());
    let area = Area::own(range, flags, request.tag, AnonOffset::NONE);
    space.admit(stock, range, |_| None, (Some(&area), 0))?;
    space.areas.prepare(stock, &space.charge).map_err(RangeError::from)?;
    if let Err(error) = super::reach(stock, space, range, steps) {
        // Some tables were made in vain.
        empty(stock, space, &mut Gather::new(stock, &space.member.target), range, steps);
        return Err(error.into());
    }
    if let Err(over) = space.charge(me, pages) {
        empty(stock, space, &mut Gather::new(stock, &space.member.target), range, steps);
        return Err(RangeError::from(over).into());
    }
    space.areas.put(stock.machine, &area);
    let writable = if flags.has(Flags::WRITE) { Attrs::WRITE } else { Attrs::NONE };
    let attrs = attrs(flags) | writable | Attrs::EXCLUSIVE | Attrs::SOFT_DIRTY;
    let edit = MapPages { stock, start: range.start(), attrs, frame };
    walk::edit(stock, space, range, &edit, &mut Uncached { machine: stock.machine, steps });
    Ok(range)
}

/// Fills empty words with the pages of kernel memory, each with a reference for its entry.
struct MapPages<'s, 'm, M, P, F> {
    stock: &'s Stock<'m, M, P>,
    start: Va,
    attrs: Attrs,
    frame: F,
}

impl<M: Machine, P: Paging, F: Fn(u64) -> Frame> Edit<P> for MapPages<'_, '_, M, P, F> {
    fn leaf(&self, at: At, _: u64, _: Pa, _: Attrs) -> Verdict {
        unreachable!("a leaf at {}, where nothing was mapped and the writer is held", at.va)
    }
    fn soft(&self, at: At, soft: Soft) -> Verdict {
        unreachable!("{soft:?} at {}, where nothing was mapped and the writer is held", at.va)
    }
    fn fills(&self) -> bool {
        true
    }
    fn empty(&self, at: At) -> u64 {
        let frame = (self.frame)(at.va.offset_from(self.start) / FRAME_BYTES);
        self.stock.add_references(frame, 1);
        P::leaf(frame.pa(), at.level, self.attrs)
    }
}
