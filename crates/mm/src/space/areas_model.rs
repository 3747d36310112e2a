//! The areas against the obvious version: a vector of pages.

use super::area::{Area, AreaLimit, Flags};
use super::areas::Areas;
use crate::frame::AnonOffset;
use crate::stock::Charge;
use crate::stock::bare::{Bare, stock};
use alloc::vec;
use alloc::vec::Vec;
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, FRAME_BYTES, Va, VaRange};
use proptest::prelude::*;

const PAGES: usize = 600;

/// What one page says: nothing, or flags and a tag.
type Page = Option<(Flags, u64)>;
/// What a change makes of an area's flags and tag.
type Changed = fn(Flags, Area) -> Page;

#[derive(Clone, Debug)]
enum Operation {
    Put { at: usize, pages: usize, tag: u64 },
    Replace { at: usize, pages: usize, tag: u64 },
    Clear { at: usize, pages: usize },
    Mark { at: usize, pages: usize, flags: Flags },
}

fn operation() -> impl Strategy<Value = Operation> {
    let place = (0..PAGES, prop_oneof![3 => 1usize..4, 1 => 1usize..120]);
    let flags = prop_oneof![Just(Flags::READ), Just(Flags::READ_WRITE), Just(Flags::HUGEPAGE)];
    prop_oneof![
        4 => (place.clone(), 0u64..3).prop_map(|((at, pages), tag)| Operation::Put { at, pages, tag }),
        1 => (place.clone(), 0u64..3)
            .prop_map(|((at, pages), tag)| Operation::Replace { at, pages, tag }),
        1 => place.clone().prop_map(|(at, pages)| Operation::Clear { at, pages }),
        1 => (place, flags).prop_map(|((at, pages), flags)| Operation::Mark { at, pages, flags }),
    ]
}

fn va(page: usize) -> Va {
    Va::new(0x10_0000 + page as u64 * FRAME_BYTES)
}

/// The areas that the pages stand for: runs of like neighbours.
fn runs(pages: &[Page]) -> Vec<Area> {
    let mut areas: Vec<Area> = vec![];
    for (n, page) in pages.iter().enumerate() {
        let Some((flags, tag)) = *page else { continue };
        match areas.last_mut() {
            Some(last) if last.range.end() == va(n) && (last.flags, last.tag) == (flags, tag) => {
                last.range = VaRange::new(last.range.start(), va(n + 1)).unwrap();
            }
            _ => {
                let range = VaRange::new(va(n), va(n + 1)).unwrap();
                areas.push(Area::own(range, flags, tag, AnonOffset::NONE));
            }
        }
    }
    areas
}

fn apply(areas: &Areas, stock: &Bare<'_>, pages: &mut [Page], operation: &Operation) {
    areas.prepare(stock, &Charge::default()).unwrap();
    let (at, len) = match *operation {
        Operation::Put { at, pages, .. }
        | Operation::Replace { at, pages, .. }
        | Operation::Clear { at, pages }
        | Operation::Mark { at, pages, .. } => (at, pages),
    };
    let (span, range) =
        (at..(at + len).min(PAGES), VaRange::new(va(at), va((at + len).min(PAGES))).unwrap());
    let occupied = pages[span.clone()].iter().any(Page::is_some);
    let new = |tag| Area::own(range, Flags::READ, tag, AnonOffset::NONE);
    let (change, put): (Changed, _) = match *operation {
        Operation::Put { .. } if occupied => return,
        Operation::Put { tag, .. } | Operation::Replace { tag, .. } => {
            (|_, _| None, Some(new(tag)))
        }
        Operation::Clear { .. } => (|_, _| None, None),
        Operation::Mark { .. } => (|flags, area| Some((flags, area.tag)), None),
    };
    let flags = if let Operation::Mark { flags, .. } = *operation { flags } else { Flags::NONE };
    match put {
        Some(area) => pages[span].fill(Some((area.flags, area.tag))),
        None if matches!(operation, Operation::Clear { .. }) => pages[span].fill(None),
        None => pages[span].iter_mut().flatten().for_each(|page| page.0 = flags),
    }
    // A limit of just as many areas as there will be admits the change, and a lower one does where
    // there will be no more than there are.
    let there = runs(pages).len() as u64;
    let is_none_more = there <= areas.count();
    for (limit, admitted) in [(there, true), (there.wrapping_sub(1), there == 0 || is_none_more)] {
        let change = |area| change(flags, area);
        let admits =
            areas.admit(stock.machine, AreaLimit(limit), range, change, (put.as_ref(), 0)).is_ok();
        assert_eq!(admits, admitted, "{operation:?} with {there} areas after it, limit {limit}");
    }
    if occupied {
        areas.change(stock.machine, range, |area| change(flags, area));
    }
    put.iter().for_each(|area| areas.put(stock.machine, area));
    assert_eq!(areas.count(), there);
}

fn compare(areas: &Areas, sim: &Sim, pages: &[Page]) {
    let all = VaRange::new(Va::new(0), va(PAGES + 10)).unwrap();
    let listed: Vec<Area> = areas.overlapping(sim, all).collect();
    assert_eq!(listed, runs(pages));
    for n in (0..PAGES).step_by(7) {
        let found = areas.find(sim, va(n).add(5)).map(|area| (area.flags, area.tag));
        assert_eq!(found, pages[n], "page {n}");
    }
    assert!(areas.is_sound(sim));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Hundreds of one-page areas make a tree of several levels; the vector says what must be in
    /// it.
    #[test]
    fn areas_are_what_the_pages_say(history in prop::collection::vec(operation(), 1..400)) {
        let sim = Sim::new(Config::seeded(1, Bytes::new(16 << 20), 1)).unwrap();
        let stock = stock(&sim);
        let areas = Areas::default();
        let mut pages = vec![None; PAGES];
        let free = stock.folios.free_frames();
        for operation in &history {
            apply(&areas, &stock, &mut pages, operation);
        }
        compare(&areas, &sim, &pages);
        areas.dissolve(&stock);
        prop_assert_eq!(stock.folios.free_frames(), free);
    }
}

#[test]
fn a_piece_that_becomes_like_its_neighbour_moves_the_boundary() {
    let sim = Sim::new(Config::seeded(1, Bytes::new(16 << 20), 1)).unwrap();
    let stock = stock(&sim);
    let areas = Areas::default();
    let mut pages = vec![None; PAGES];
    let (read, write) = (Flags::READ, Flags::READ_WRITE);
    let mut mark = |(at, len): (usize, usize), flags| {
        if pages[at].is_none() {
            apply(&areas, &stock, &mut pages, &Operation::Put { at, pages: len, tag: 7 });
        }
        let (_, before) = areas.find_edition(&sim, va(at));
        apply(&areas, &stock, &mut pages, &Operation::Mark { at, pages: len, flags });
        compare(&areas, &sim, &pages);
        let (_, after) = areas.find_edition(&sim, va(at));
        (after != before, areas.count())
    };
    mark((10, 40), write);
    mark((10, 5), read);
    for (piece, flags) in [((15, 3), read), ((10, 8), read), ((16, 2), write), ((16, 1), read)] {
        let (changed, count) = mark(piece, flags);
        assert_eq!((changed, count), (piece.0 != 10, 2), "{piece:?}");
    }
    // At the other end, where nothing is alike, and where it is all of an area.
    assert_eq!(mark((45, 5), read), (true, 3));
    assert_eq!(mark((40, 5), read), (true, 3));
    assert_eq!(mark((17, 23), read), (true, 1));
    areas.dissolve(&stock);
}
