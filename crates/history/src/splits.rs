//! Folios that are taken apart, moved, shrunk, compacted and collapsed while a history uses them.
//!
//! Nothing of it may be seen by a program, so there is nothing to predict: contents, dirty bits,
//! refusals and the books are held against what they would be without it. What a collapse needs, a
//! whole range in one area, hardly comes about by chance, so histories with room in their window
//! make it.

use crate::model::Stretch;
use crate::rng::Rng;
use crate::tasks::Task;
use crate::world::World;
use foliant::compact::{CompactRequest, Effort, Want};
use foliant::manager::CollapseLimits;
use foliant::space::SpaceId;
use foliant::split::{MoveGrain, Shrink, SplitInto, SplitRequest, ZeroPieces};
use foliant::table::Paging;
use foliant_units::{FRAME_BYTES, Order, Pages, Va};

/// Folios in a list at most.
const LIST: usize = 6;

/// Splits, moves, shrinks or collapses something near `va`, or compacts memory.
pub(crate) fn split<P: Paging>(world: &World<'_, P>, rng: &mut Rng, id: SpaceId, va: u64) {
    let order = *rng.pick(&[0, 0, 0, 2, 3, 4, 6]);
    let zeros = *rng.pick(&[ZeroPieces::Keep, ZeroPieces::Share]);
    let into = SplitInto { order: Order::new(order).unwrap_or_default(), zeros };
    let machine = world.mm.machine();
    match rng.below(11) {
        8 => {
            world.count("compact");
            let want = *rng.pick(&[Want::One, Want::All]);
            let effort = Effort { folios: 1 + rng.below(200), ..Effort::ALL };
            let grain = MoveGrain::new(1 + rng.below(64) as u32).unwrap_or(MoveGrain::ONE);
            let request = CompactRequest { want, effort, grain };
            machine.during(Task::Compact, || world.mm.compact(&request, &mut []));
        }
        9 => {
            let limits = *rng.pick(&[CollapseLimits::NONE, CollapseLimits::SCAN]);
            let order = Order::new(2 + rng.below(8) as u8).unwrap_or_default();
            collapse(world, id, (va, order), limits);
        }
        0 | 1 => {
            relocate(world, id, va);
        }
        2 => {
            world.count("shrink");
            let zeros_max = rng.once_in(2).then_some(Pages::new(rng.below(512)));
            world.mm.shrink_deferred(Shrink { folios: 1 + rng.below(80), zeros_max });
        }
        3 => {
            world.count("split list");
            let frames = (0..LIST as u64).filter_map(|nth| {
                let step = *rng.pick(&[1, 16, 512]) * FRAME_BYTES;
                world.mm.frame_at(id, Va::new(va.wrapping_add(nth * step)))
            });
            let mut list: Vec<SplitRequest> = frames.map(SplitRequest::of).collect();
            world.mm.split_list(&mut list, into);
            if list.iter().any(|request| request.done.is_none()) {
                world.wrong("answers", format!("a list is split in part: {list:?}"));
            }
        }
        _ => {
            world.count("split");
            let _ = world.mm.split(id, Va::new(va), into);
        }
    }
}

/// Moves the folio at `va`, if there is one.
pub(crate) fn relocate<P: Paging>(world: &World<'_, P>, id: SpaceId, va: u64) {
    world.count("relocate");
    if let Some(frame) = world.mm.frame_at(id, Va::new(va)) {
        let _ = world.mm.machine().during(Task::Relocate, || world.mm.relocate(frame));
    }
}

/// Now and then one of the ranges in a window that a collapse can make a folio of; nothing is drawn
/// where there is none.
pub(crate) fn whole(rng: &mut Rng, window: &Stretch) -> Option<Stretch> {
    let pages = Order::SIZE_2M.pages().get();
    let (first, end) = (window.start.div_ceil(pages), window.end / pages);
    (first < end && rng.once_in(6)).then(|| {
        let start = (first + rng.below(end - first)) * pages;
        start..start + pages
    })
}

/// Collapses the range of that size that has `va`.
pub(crate) fn collapse<P: Paging>(
    world: &World<'_, P>,
    id: SpaceId,
    (va, order): (u64, Order),
    limits: CollapseLimits,
) {
    world.count("collapse");
    let va = Va::new(va).align_down(order.bytes());
    let collapse = || world.mm.collapse(id, va, order, limits);
    if world.mm.machine().during(Task::Collapse, collapse).is_ok() {
        world.count(if order < Order::SIZE_2M { "collapsed small" } else { "collapsed" });
    }
}
