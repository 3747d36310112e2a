//! Collapse: pages become a folio, contents, limits, refusals, and nothing lost while everybody
//! writes.

use crate::common::beside::Beside;
use crate::common::*;
use foliant::compact::CollapseError;
use foliant::fault::Orders;
use foliant::manager::CollapseLimits;
use foliant::space::{Advice, Flags, Place, SpaceId};
use foliant::vmap::Request;
use foliant::{Event, Policy};
use foliant_sim::{Failing, Sim};
use foliant_units::{Bytes, Frame, Order, Pages, Va};
use std::sync::atomic::{AtomicBool, Ordering};

fn filled(sim: &Sim, mm: &Mm<'_>, pages: impl Iterator<Item = u64>) -> SpaceId {
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(mm, id, BASE, 4 * MB);
    for page in pages {
        store(sim, mm, id, BASE + page * PAGE, 1000 + page);
    }
    id
}
fn check(sim: &Sim, mm: &Mm<'_>, id: SpaceId, there: impl Fn(u64) -> bool) {
    mm.switch(Some(id)).unwrap();
    for page in 0..512 {
        let expect = if there(page) { 1000 + page } else { 0 };
        assert_eq!(load(sim, mm, id, BASE + page * PAGE), expect, "page {page}");
    }
}
fn order_at(mm: &Mm<'_>, id: SpaceId, va: u64) -> u8 {
    mm.identity(mm.frame_at(id, Va::new(va)).unwrap()).order().get()
}
const AT: Va = Va::new(BASE);

#[test]
fn pages_become_a_folio_with_a_leaf() {
    for n in [0, 2, 4, 8] {
        let order = Order::new(n).unwrap();
        let policy = if n == 0 { Policy::BASE_ONLY } else { Policy::always(Orders::of(order)) };
        let sim = sim(2, 64);
        let mm = manager(&sim, policy);
        let id = filled(&sim, &mm, 0..512);
        mm.collapse(id, AT, CollapseLimits::NONE).unwrap();
        assert_eq!(order_at(&mm, id, BASE), 9);
        assert_eq!(mm.total(Event::ThpCollapseAlloc), 1);
        assert_eq!(mm.anonymous(), Pages::new(512));
        mm.audit(&[id]).unwrap();
        check(&sim, &mm, id, |_| true);
        assert!(store(&sim, &mm, id, BASE + 5 * PAGE, 7).is_empty(), "it is writable");
        assert_eq!(mm.collapse(id, AT, CollapseLimits::NONE), Err(CollapseError::Collapsed(AT)));
        let child = mm.fork(id).unwrap();
        store(&sim, &mm, id, BASE + 5 * PAGE, 1005);
        check(&sim, &mm, id, |_| true);
        finish(&sim, &mm, &[id, child]);
    }
}

#[test]
fn what_is_missing_or_shared_is_made_up_to_the_limits() {
    let sim = sim(2, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let there = |page: u64| page.is_multiple_of(4);
    let id = filled(&sim, &mm, (0..512).filter(|page| there(*page)));
    load(&sim, &mm, id, BASE + PAGE); // the zero page
    let limits = |none, shared| CollapseLimits {
        max_ptes_none: Pages::new(none),
        max_ptes_shared: Pages::new(shared),
    };
    let child = mm.fork(id).unwrap();
    assert_eq!(mm.collapse(id, AT, limits(383, 512)), Err(CollapseError::Empty(Pages::new(384))));
    assert_eq!(mm.collapse(id, AT, limits(384, 127)), Err(CollapseError::Shared(Pages::new(128))));
    mm.collapse(id, AT, limits(384, 128)).unwrap();
    assert_eq!(order_at(&mm, id, BASE), 9);
    mm.audit(&[id, child]).unwrap();
    check(&sim, &mm, child, there);
    check(&sim, &mm, id, there);
    finish(&sim, &mm, &[id, child]);
}

/// With a limit between none and all, each collapse would fill what the next one counts: a sparse
/// range stays sparse.
#[test]
fn tr_a6_a_scan_does_not_creep() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = filled(&sim, &mm, 0..300);
    for page in 512..1024 {
        store(&sim, &mm, id, BASE + page * PAGE, page);
    }
    mm.set_policy(Policy::always(Orders::of(Order::SIZE_2M)));
    for _ in 0..3 {
        let (scanned, more) = mm.collapse_scan(id, Va::new(0), 100, CollapseLimits::SCAN);
        assert_eq!((scanned.ranges, more), (2, None));
    }
    assert_eq!((order_at(&mm, id, BASE), order_at(&mm, id, BASE + 2 * MB)), (0, 9));
    assert_eq!(mm.anonymous(), Pages::new(300 + 512));
    assert_eq!(mm.total(Event::ThpScanExceedNonePte), 3);
    let (scanned, more) = mm.collapse_scan(id, Va::new(0), 1, CollapseLimits::SCAN);
    assert_eq!((scanned.ranges, more), (1, Some(Va::new(BASE + 2 * MB))));
    area(&mm, id, BASE + 8 * MB, 2 * MB - PAGE);
    let (scanned, more) = mm.collapse_scan(id, Va::new(0), 100, CollapseLimits::SCAN);
    assert_eq!((scanned.ranges, more), (2, None), "no 2 MiB fit into the third area");
    mm.set_policy(Policy::BASE_ONLY);
    let (scanned, _) = mm.collapse_scan(id, Va::new(0), 100, CollapseLimits::SCAN);
    assert_eq!(scanned.ranges, 0, "2 MiB folios are switched off");
    finish(&sim, &mm, &[id]);
}

#[test]
fn refusals_are_distinct_and_change_nothing() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = filled(&sim, &mm, 0..512);
    let odd = Va::new(BASE + PAGE);
    assert_eq!(mm.collapse(id, odd, CollapseLimits::NONE), Err(CollapseError::Misaligned(odd)));
    let nowhere = Va::new(BASE + 4 * MB);
    let unsuitable = Err(CollapseError::Unsuitable(nowhere));
    assert_eq!(mm.collapse(id, nowhere, CollapseLimits::NONE), unsuitable);
    let pinned = mm.frame_at(id, Va::new(BASE + 7 * PAGE)).unwrap();
    {
        let _pin = mm.reference(pinned).unwrap();
        let done = mm.collapse(id, AT, CollapseLimits::NONE);
        assert!(matches!(done, Err(CollapseError::Stays(_))), "{done:?}");
    }
    mm.audit(&[id]).unwrap();
    check(&sim, &mm, id, |_| true);
    mm.protect(id, range(BASE, PAGE), Flags::READ).unwrap();
    assert_eq!(mm.collapse(id, AT, CollapseLimits::NONE), Err(CollapseError::Unsuitable(AT)));
    let kernel = mm.vmalloc(&Request::of(Bytes::new(SIZE_2M)).for_users()).unwrap();
    let lent = request(Place::NoReplace(nowhere), SIZE_2M, Flags::READ_WRITE);
    mm.map_user(id, &lent, kernel.start()).unwrap();
    assert_eq!(mm.collapse(id, nowhere, CollapseLimits::NONE), unsuitable);
    mm.unmap(id, range(nowhere.get(), SIZE_2M)).unwrap();
    mm.vfree(kernel.start()).unwrap();
    finish(&sim, &mm, &[id]);
}

#[test]
fn an_allocation_that_is_refused_leaves_pages() {
    for k in 1.. {
        let sim = sim(1, 64);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let id = filled(&sim, &mm, (0..512).filter(|page| page % 100 != 3));
        sim.fault_plan().set(Failing::From(k));
        let done = mm.collapse(id, AT, CollapseLimits::NONE);
        let refused = sim.fault_plan().refused();
        sim.fault_plan().set(Failing::Nothing);
        assert_eq!(done.is_ok(), refused == 0, "k = {k}: {done:?}");
        check(&sim, &mm, id, |page| page % 100 != 3);
        finish(&sim, &mm, &[id]);
        if refused == 0 {
            assert!(k > 7, "k = {k}");
            return;
        }
    }
}

/// A folio is split so that its pages can be moved one by one. Before the first of them is held it
/// is dropped, and another folio of that size has its frame.
#[test]
fn finding_ag_a_page_that_was_split_off_may_be_a_folio_again() {
    let (is_split, whole) = (AtomicBool::new(false), range(BASE, 2 * MB));
    let run = |step: u64| {
        let machine = Beside::new(sim(2, 16));
        let mm = machine.manager(only(4));
        mm.cpus().for_each(|cpu| machine.sim.on(cpu, || mm.online()));
        let id = mm.create(None).unwrap();
        mm.cpus().for_each(|cpu| machine.sim.on(cpu, || mm.switch(Some(id)).unwrap()));
        area(&mm, id, BASE, 2 * MB);
        (0..32).for_each(|nth| drop(store(&machine.sim, &mm, id, BASE + nth * 16 * PAGE, 1)));
        let first = mm.frame_at(id, AT).unwrap();
        let beside = || {
            is_split.store(mm.identity(first).order() == Order::BASE, Ordering::SeqCst);
            let lent: Vec<Frame> = std::iter::from_fn(|| mm.lend(order(4)).ok()).collect();
            mm.advise(id, whole, Advice::DontNeed).unwrap();
            mm.advise(id, whole, Advice::PopulateWrite).unwrap();
            lent.into_iter().for_each(|frame| mm.take_back(frame, order(4)).unwrap());
        };
        let collapse = || mm.collapse(id, AT, CollapseLimits::NONE);
        let done = machine.before_step(step, beside, collapse);
        finish(&machine.sim, &mm, &[id]);
        done.is_none() || is_split.load(Ordering::SeqCst)
    };
    // The step before which the first folio was split, by halving.
    let (mut before, mut behind) = (1, 1 << 16);
    while behind - before > 1 {
        let middle = (before + behind) / 2;
        *if run(middle) { &mut behind } else { &mut before } = middle;
    }
    assert!((behind..behind + 150).all(run), "once split it stays so");
}
