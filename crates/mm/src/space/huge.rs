//! Areas of huge pages: what a pool reserves for them, and that no page is cut.
//!
//! ```text
//!   entry of a reserved area:   0 ─fault─▶ leaf ─dropped, area kept─▶ DROPPED ─▶ SPENT ─fault─▶ leaf      area gone: every 0 that is
//!                               reserved      ▲                          │         not reserved               found gives one back
//!                                  ▲          └──────────────────────────│─────────────┘
//!                                  └───── a page is free, none surplus ──┘
//!   private, of an object:      0 ─fault─▶ the object's leaf, reserved ─written─▶ its own leaf      SPENT ─▶ the object's, SPENT_BEHIND
//!   of a child:              leaf ─the parent wants it─▶ LOST
//! ```
//! Each of these places but `LOST` may be watched (`watch`) or poisoned (`fault::fill`): instead of
//! 0 a marker or a poison stands there then, and so on.
//!
//! How many reservations an area still has is written nowhere: it is the number of its empty
//! entries, and of those that map an object's page without `SPENT_BEHIND`.

use super::area::{Area, Flags, PAGE};
use super::attach;
use super::error::{MapError, RangeError};
use super::places::{DROPPED, SPENT, place_like, plain_place, unwatched_place, watched_place};
use super::record::Space;
use super::steps::Steps;
use super::zap::{Guards, Zap, behind};
use crate::flush::Gather;
use crate::stock::{Stock, Subpool};
use crate::sync::Outside;
use crate::table::{Entry, Paging, Prune, Tables};
use foliant_machine::Machine;
use foliant_units::{Bytes, Frame, Level, Order, Va, VaRange};

/// The level of leaves that map folios or huge pages of `order`.
pub(crate) fn level_of(order: Order) -> Level {
    Level(order.get() / Order::SIZE_2M.get())
}

/// The size of the pages of a new area with `flags`, if there can be one.
pub(crate) fn check<P: Paging>(flags: Flags) -> Result<Bytes, MapError> {
    let Some(order) = flags.huge_order() else { return Ok(PAGE) };
    let both = Flags::HUGE_2M.with(Flags::HUGE_1G);
    let other = flags.and(Flags::ARMED.with(Flags::GROWS_DOWN));
    if flags.has(both) || other != Flags::NONE {
        return Err(MapError::Flags(flags));
    }
    if level_of(order) > P::LEAF_TOP {
        return Err(MapError::NoLeaf(order.bytes()));
    }
    Ok(order.bytes())
}

/// Refuses a range that begins or ends inside a huge page of this area.
pub(super) fn uncut(area: &Area, range: VaRange) -> Result<(), RangeError> {
    let Some(order) = area.flags.huge_order() else { return Ok(()) };
    let part = area.range.intersect(range);
    match [part.start(), part.end()].into_iter().find(|va| !va.is_aligned(order.bytes())) {
        Some(va) => Err(RangeError::Cuts(va, order.bytes())),
        None => Ok(()),
    }
}

/// Refuses a range that begins or ends inside a huge page.
pub(super) fn whole<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    range: VaRange,
) -> Result<(), RangeError> {
    let first = space.areas.find(stock.machine, range.start());
    // Where an area begins or ends no page is cut.
    let is_one = first.is_some_and(|area| area.range.end() >= range.end());
    let last = if is_one { None } else { space.areas.find(stock.machine, range.end()) };
    [first, last].into_iter().flatten().try_for_each(|area| uncut(&area, range))
}

/// Refuses an area of huge pages.
pub(super) fn small(area: &Area, range: VaRange) -> Result<(), RangeError> {
    match area.flags.huge_order() {
        Some(_) => Err(RangeError::Huge(area.range.start().max(range.start()))),
        None => Ok(()),
    }
}

/// Takes the areas out of `range` that have reservations, with their pages, and gives back the
/// reservations that were not used. The caller flushes, and has taken the nodes that removing
/// `range` may need.
pub(super) fn clear_reserved<'s, 'm, M: Machine, P: Paging>(
    stock: &'s Stock<'m, M, P>,
    space: &'s Space,
    gather: &mut Gather<'s, 'm, M, P>,
    range: VaRange,
    steps: &mut Steps,
) {
    for area in space.areas.overlapping(stock.machine, range) {
        steps.take_flushed(gather, stock.machine, 1);
        let Some(order) = area.flags.reserved() else { continue };
        let (piece, of) = (area.range.intersect(range), attach::subpool(stock, space, &area));
        attach::remove_areas(stock, space, piece); // S1: areas first
        let zap = Zap::new(stock, space, Guards::Drop);
        zap.range(gather, piece, steps);
        let pages = piece.bytes().get() / order.bytes().get();
        stock.unreserve(order, of, pages - zap.kept());
    }
}

/// The first area of a range with entries whose page of `order` was dropped and whose reservation
/// is in the balance: its part of the range, and how many they are.
pub(crate) fn dropped<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    (range, order): (VaRange, Order),
    steps: &mut Steps,
) -> Option<(VaRange, Subpool, u64)> {
    let _writer = space.writer.lock(stock.machine, steps.outside());
    let areas = space.areas.overlapping(stock.machine, range);
    let count = |area: Area| {
        let (part, mut count) = (area.range.intersect(range), 0);
        each_dropped(stock, space, (part, order), steps, || {
            count += 1;
            None
        });
        (count > 0).then(|| (part, attach::subpool(stock, space, &area), count))
    };
    areas.filter(|area| area.flags.reserved() == Some(order)).find_map(count)
}
/// Gives such entries a reservation, as long as there are some of `have`, which the caller holds;
/// those of the others are spent. Says how many were used.
pub(crate) fn regain<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    (part, order): (VaRange, Order),
    have: u64,
    steps: &mut Steps,
) -> u64 {
    let _writer = space.writer.lock(stock.machine, steps.outside());
    let mut used = 0;
    each_dropped(stock, space, (part, order), steps, || {
        let has = used < have;
        used += u64::from(has);
        Some(if has { 0 } else { SPENT })
    });
    used
}
/// Goes over such entries, and replaces those that become another one. The caller holds the writer.
fn each_dropped<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    (part, order): (VaRange, Order),
    steps: &mut Steps,
    mut becomes: impl FnMut() -> Option<u64>,
) {
    let tables: Tables<'_, M, P> = space.tables(stock);
    let mut va = part.start();
    while va < part.end() {
        steps.take(stock.machine, 1);
        if let Ok(locked) = tables.lock(va, level_of(order)) {
            let slot = locked.index_of(va);
            let word = locked.get(slot);
            if plain_place(word) == DROPPED
                && let Some(put) = becomes()
            {
                locked.set(slot, place_like(word, put));
            }
        }
        va = va.add(order.bytes().get());
    }
}

/// Has the places of huge pages that are missing in `part` watched, or not any more. There are
/// tables for those that are to be watched. The caller holds the writer, and flushes.
pub(super) fn watch_places<'s, 'm, M: Machine, P: Paging>(
    stock: &'s Stock<'m, M, P>,
    space: &'s Space,
    gather: &mut Gather<'s, 'm, M, P>,
    (part, order): (VaRange, Order),
    watches: bool,
    steps: &mut Steps,
) {
    let (tables, level): (Tables<'_, M, P>, Level) = (space.tables(stock), level_of(order));
    let change = if watches { watched_place } else { unwatched_place };
    let mut va = part.start();
    while va < part.end() {
        steps.take_flushed(gather, stock.machine, 1);
        while let Ok(locked) = tables.lock(va, level) {
            let slot = locked.index_of(va);
            match locked.entry(slot) {
                Entry::Soft(soft) if soft.is_waited_for() => locked.let_go().wait(),
                // A fault of an area that is gone left it; one that is still at work may again.
                Entry::Table(_) if watches => {
                    drop(locked);
                    let place = VaRange::sized(va, order.bytes()).expect("a place of the range");
                    clear_place(stock, space, gather, (place, order));
                    gather.shoot();
                }
                Entry::None | Entry::Soft(_) => {
                    let word = locked.get(slot);
                    if change(word) != word {
                        locked.set(slot, change(word));
                    }
                    break;
                }
                Entry::Table(_) | Entry::Leaf { .. } => break,
            }
        }
        va = va.add(order.bytes().get());
    }
}

/// The page of its own that a space with reservations has at `va`, if it has one. As many
/// references are added as one entry has, so its frame serves nothing else until the caller drops
/// them.
pub(crate) fn keep_own<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    va: Va,
    order: Order,
) -> Option<Frame> {
    let _reading = stock.reading();
    let area = space.areas.find(stock.machine, va)?;
    let (tables, level) = (space.tables(stock), level_of(order));
    // The entry keeps the page as long as the table is locked.
    let locked = tables.lock(va, level).ok()?;
    let slot = locked.index_of(va);
    let Entry::Leaf { pa, .. } = P::decode(locked.get(slot), level, slot) else { return None };
    let is_own = || stock.origin(pa.frame()).tree == space.member.tree();
    if area.flags.reserved() != Some(order) || !is_own() {
        return None;
    }
    stock.add_references(pa.frame(), order.pages().get());
    Some(pa.frame())
}
/// Takes the page `head` away from a space that was forked from its owner's and has it at `va`, and
/// sees to it that no other page comes there. Says whether it had the page.
pub(crate) fn take_away<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    (va, order): (Va, Order),
    head: Frame,
    steps: &mut Steps,
) -> bool {
    let mut gather = Gather::new(stock, &space.member.target); // ends behind the writer (flush::F7)
    let _writer = space.writer.lock(stock.machine, steps.outside());
    let area = space.areas.find(stock.machine, va);
    if area.and_then(|area| area.flags.huge_order()) != Some(order) {
        return false; // what lies there is not the page, and none of it may go
    }
    let place = VaRange::sized(va.align_down(order.bytes()), order.bytes());
    let place = place.expect("an area of huge pages is aligned");
    let zap = Zap::new(stock, space, Guards::Keep).keeping_poison();
    let had = zap.lose(&mut gather, place, head, steps);
    gather.flush();
    had
}

/// Takes empty tables out of the place of a huge page: a fault of an area that is gone can leave
/// one behind. The caller is in no reader's section.
pub(crate) fn clear_way<M: Machine, P: Paging>(
    stock: &Stock<'_, M, P>,
    space: &Space,
    va: Va,
    order: Order,
    outside: &mut Outside,
) {
    let mut gather = Gather::new(stock, &space.member.target); // ends behind the writer (flush::F7)
    let _writer = space.writer.lock(stock.machine, outside);
    let area = space.areas.find(stock.machine, va);
    if area.and_then(|area| area.flags.huge_order()) != Some(order) {
        return;
    }
    let whole = VaRange::sized(va.align_down(order.bytes()), order.bytes());
    let whole = whole.expect("an area of huge pages is aligned");
    clear_place(stock, space, &mut gather, (whole, order));
    gather.shoot();
}
/// The same for all places of huge pages in `range`. The caller holds the writer, and shoots.
pub(super) fn clear_places<'s, 'm, M: Machine, P: Paging>(
    stock: &'s Stock<'m, M, P>,
    space: &'s Space,
    gather: &mut Gather<'s, 'm, M, P>,
    (range, order): (VaRange, Order),
    steps: &mut Steps,
) {
    let (tables, level): (Tables<'_, M, P>, Level) = (space.tables(stock), level_of(order));
    let mut va = range.start();
    while va < range.end() {
        steps.take_flushed(gather, stock.machine, 1);
        let found = tables.walk(va);
        let next = behind(va, found.level.max(level));
        if found.level < level {
            let place = VaRange::new(va, next).expect("a place of the range");
            clear_place(stock, space, gather, (place, order));
        }
        va = next;
    }
}
/// Takes empty tables out of the place of one huge page.
fn clear_place<'s, 'm, M: Machine, P: Paging>(
    stock: &'s Stock<'m, M, P>,
    space: &'s Space,
    gather: &mut Gather<'s, 'm, M, P>,
    (whole, order): (VaRange, Order),
) {
    let tables: Tables<'_, M, P> = space.tables(stock);
    let mut level = Level::BASE;
    while level < level_of(order) {
        let mut va = whole.start();
        while va < whole.end() {
            let found = tables.walk(va);
            let next = behind(va, level.up());
            if found.level == level {
                gather.room_for_tables(1);
                let note = |range, above| gather.note_table(range, above);
                if let Ok((table, noted)) = tables.detach_noted(va, level, Prune::Emptied, note) {
                    space.charge.uncharge_records(stock.machine.me(), 1);
                    gather.remove_table(table, noted);
                }
            }
            va = next;
        }
        level = level.up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Entry, Slot, Soft, SoftKind, Sv39, X86_64};

    #[test]
    fn a_size_needs_a_leaf_and_no_other_size() {
        let check = |flags: Flags| super::check::<X86_64<4>>(flags);
        assert_eq!(check(Flags::READ), Ok(PAGE));
        assert_eq!(check(Flags::HUGE_2M), Ok(Order::SIZE_2M.bytes()));
        assert_eq!(check(Flags::HUGE_1G.with(Flags::READ)), Ok(Order::SIZE_1G.bytes()));
        for bad in [Flags::HUGE_1G, Flags::USERFAULT, Flags::GROWS_DOWN] {
            let flags = Flags::HUGE_2M.with(bad);
            assert_eq!(check(flags), Err(MapError::Flags(flags)));
        }
        let none = MapError::NoLeaf(Order::SIZE_1G.bytes());
        assert_eq!(super::check::<Sv39>(Flags::HUGE_1G), Err(none));
        assert!(matches!(
            X86_64::<4>::decode(SPENT, Level::SIZE_2M, Slot::FIRST),
            Entry::Soft(Soft { kind: SoftKind::Other, .. })
        ));
    }
}
