//! Huge pages whose memory is broken: they leave the programs that have them.
//!
//! A huge page of a pool is lost as a whole, as it is mapped as a whole; what is sound of it goes
//! back when nobody has it any more (`pool::salvage`). Its places are poisoned, as a handler
//! poisons them (`fault::fill`), and say beside what they said: whether a page there is a reserved
//! one. An object keeps the page, marked, and nobody maps it.
//!
//! **Invariants**
//! - Y1. When it is over nobody maps the page, and no space maps it again. It is marked before, and
//!   a fault that makes an entry looks at the mark behind the references of that entry: for a page
//!   of the space's own in `Stock::enlist_huge`, for an object's under the lock of the object's
//!   table, which the withdrawal takes before it looks at what maps the page.
//! - Y2. It ends when no entry counts but that of the object. A caller that keeps the page without
//!   one, to copy it or to take it from others, lets go of it or makes an entry, which is found in
//!   turn; an entry that moves to another address meanwhile counts, and is found there.
//!
//! **Locking.** The writer of one space at a time.

use super::huge::level_of;
use super::names::{Pinned, SpaceId};
use super::record::Space;
use super::steps::Steps;
use super::zap::{Guards, Zap};
use crate::flush::Gather;
use crate::frame::AnonOffset;
use crate::rmap::relatives;
use crate::stock::Stock;
use crate::sync::Outside;
use crate::table::{Entry, Paging};
use foliant_machine::Machine;
use foliant_units::{Frame, Order, Va, VaRange};

/// Takes a marked page away from all that map it. The caller keeps it meanwhile by a pin.
pub(crate) fn withdraw<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    (head, order): (Frame, Order),
    outside: &mut Outside,
) {
    let is_mapped = || {
        let own = if is_objects(stock, (head, order)) { order.pages().get() } else { 0 };
        stock.counts(head).entries() > own
    };
    while is_mapped() {
        let index = stock.origin(head).index;
        for pin in relatives(stock, head, 0) {
            let Some(space) = Pinned::of(stock, &pin).filter(|space| !space.is_object()) else {
                continue; // the object's own, or one that ends and gives it up by itself
            };
            for offset in pin.offsets(stock) {
                withdraw_from(stock, &space, (index.at(offset), order), head);
            }
        }
        stock.machine.relax();
        outside.yield_now(stock.machine);
    }
}

/// Whether an object has the page. Its table is locked for the answer (Y1).
fn is_objects<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    (head, order): (Frame, Order),
) -> bool {
    let _reading = stock.reading();
    if stock.counts(head).entries() == 0 {
        return false; // where it was made is not known any more
    }
    let origin = stock.origin(head);
    let object = SpaceId::found(stock, origin.tree).filter(|id| id.is_object());
    let Some(object) = object.and_then(|id| id.peek(stock)) else { return false };
    let at = origin.index.at(AnonOffset::NONE);
    let Ok(locked) = object.tables(stock).lock(at, level_of(order)) else { return false };
    let entry = locked.entry(locked.index_of(at));
    matches!(entry, Entry::Leaf { pa, .. } if pa.frame() == head)
}

/// Takes it away from a space that may have it at `va`.
fn withdraw_from<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    (va, order): (Va, Order),
    head: Frame,
) {
    let steps = &mut Steps::at_the_face();
    let mut gather = Gather::new(stock, &space.member.target); // ends behind the writer (flush::F7)
    let _writer = space.writer.lock(stock.machine, steps.outside());
    let area = space.areas.find(stock.machine, va);
    let Some(area) = area.filter(|area| area.flags.huge_order() == Some(order)) else { return };
    let place = VaRange::sized(va.align_down(order.bytes()), order.bytes());
    let place = place.expect("an area of huge pages is aligned");
    let zap = Zap::new(stock, space, Guards::Keep).keeping_poison();
    zap.poison(&mut gather, place, (head, area.flags.reserved().is_some()), steps);
    gather.flush();
}
