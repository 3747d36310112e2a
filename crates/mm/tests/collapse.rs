//! Collapse: pages become a folio, contents, limits, refusals, and nothing lost while everybody
//! writes.

use crate::common::beside::Beside;
use crate::common::*;
use foliant::compact::CollapseError;
use foliant::fault::Orders;
use foliant::manager::CollapseLimits;
use foliant::space::{Advice, Flags, Move, Place, SpaceId};
use foliant::table::{Aarch64, Paging, Riscv64, X86_64};
use foliant::vmap::Request;
use foliant::{Event, Policy, SizeEvent};
use foliant_machine::Replace;
use foliant_sim::{Config, Failing, Format, RiscvMode, Sim, X86Levels};
use foliant_units::{Bytes, Frame, Level, Order, Pages, Va};
use std::sync::atomic::{AtomicBool, Ordering};

fn filled<P: Paging>(sim: &Sim, mm: &AnyMm<'_, P>, pages: impl Iterator<Item = u64>) -> SpaceId {
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(mm, id, BASE, 4 * MB);
    write(sim, mm, id, pages);
    id
}
fn write<P: Paging>(sim: &Sim, mm: &AnyMm<'_, P>, id: SpaceId, pages: impl Iterator<Item = u64>) {
    for page in pages {
        store(sim, mm, id, BASE + page * PAGE, 1000 + page);
    }
}
fn check<P: Paging>(sim: &Sim, mm: &AnyMm<'_, P>, id: SpaceId, there: impl Fn(u64) -> bool) {
    mm.switch(Some(id)).unwrap();
    for page in 0..512 {
        let expect = if there(page) { 1000 + page } else { 0 };
        assert_eq!(load(sim, mm, id, BASE + page * PAGE), expect, "page {page}");
    }
}
fn order_at<P: Paging>(mm: &AnyMm<'_, P>, id: SpaceId, va: u64) -> u8 {
    mm.identity(mm.frame_at(id, Va::new(va)).unwrap()).order().get()
}
/// Whether one folio of that order has the range at `at`, in its place.
fn is_folio<P: Paging>(mm: &AnyMm<'_, P>, id: SpaceId, at: Va, order: Order) -> bool {
    let first = mm.frame_at(id, at).unwrap();
    (0..order.pages().get()).all(|nth| {
        let frame = mm.frame_at(id, at.add(nth * PAGE)).unwrap();
        let identity = mm.identity(frame);
        frame == first.add(Pages::new(nth))
            && (identity.order(), identity.head(frame)) == (order, first)
    })
}
/// Folios of these sizes, and single pages.
fn policy(orders: &[u8]) -> Policy {
    let all = orders.iter().map(|n| Orders::of(order(*n)));
    Policy::always(all.fold(Orders::NONE, Orders::with))
}
fn limits(none: u64, shared: u64) -> CollapseLimits {
    CollapseLimits { max_ptes_none: Pages::new(none), max_ptes_shared: Pages::new(shared) }
}
const AT: Va = Va::new(BASE);
/// All sizes that a range can be collapsed to.
fn sizes() -> impl Iterator<Item = Order> {
    (2..=9).map(order)
}

/// Pages, and folios of a smaller size, become one of every size, and the neighbours stay as they
/// are.
fn every_size<P: Paging>(config: Config) {
    for into in sizes() {
        for from in [0, 2, 4, 8].into_iter().filter(|from| *from < into.get()) {
            let sim = Sim::new(config.clone()).unwrap();
            let policy = if from == 0 { Policy::BASE_ONLY } else { only(from) };
            let mm: Audited<'_, P> = manager_on(&sim, &sim.config().memory, policy);
            let id = filled(&sim, &mm, 0..513);
            let before = mm.anonymous();
            // The last range of that size in the first 2 MiB.
            let at = Va::new(BASE + SIZE_2M - into.bytes().get());
            mm.collapse(id, at, into, CollapseLimits::NONE).unwrap();
            assert!(is_folio(&mm, id, at, into), "{from} to {into:?}");
            let leaf = mm.with_leaves(id, range(at.get(), PAGE), |mut leaves| leaves.next());
            assert_eq!(leaf.flatten().unwrap().level, Level(into.get() / 9));
            assert_eq!(mm.total(Event::ThpCollapseAlloc), u64::from(into == Order::SIZE_2M));
            for order in sizes() {
                let made = mm.size_stats(order).get(SizeEvent::CollapseAlloc);
                assert_eq!(made, u64::from(order == into));
            }
            if into < Order::SIZE_2M {
                assert_eq!(order_at(&mm, id, at.get() - PAGE), from, "the neighbour below");
            }
            assert_eq!(order_at(&mm, id, BASE + SIZE_2M), from, "the neighbour above");
            assert_eq!(mm.anonymous(), before);
            mm.audit(&[id]).unwrap();
            check(&sim, &mm, id, |_| true);
            assert!(store(&sim, &mm, id, at.get() + 3 * PAGE, 7).is_empty(), "it is writable");
            for order in sizes().filter(|order| *order <= into) {
                let again = mm.collapse(id, at, order, CollapseLimits::NONE);
                assert_eq!(again, Err(CollapseError::Collapsed(at)), "{order:?} in {into:?}");
            }
            let _ = mm.fork(id).unwrap();
            write(&sim, &mm, id, 0..512);
            check(&sim, &mm, id, |_| true);
        }
    }
}

#[test]
fn pages_become_a_folio_of_every_size() {
    every_size::<X86_64<4>>(Config::seeded(2, Bytes::new(64 * MB), 1));
}
#[test]
fn pages_become_a_folio_where_entries_are_broken_before_they_are_made() {
    let mut config = Config::seeded(2, Bytes::new(64 * MB), 1);
    config.rules.replace = Replace::BreakBeforeMake;
    every_size::<X86_64<4>>(config);
    every_size::<Aarch64>(Config::seeded(2, Bytes::new(64 * MB), 1).with_format(Format::Aarch64));
}
#[test]
fn pages_become_a_folio_on_every_other_format() {
    let config = |format| Config::seeded(2, Bytes::new(64 * MB), 1).with_format(format);
    every_size::<X86_64<5>>(config(Format::X86_64(X86Levels::Five)));
    every_size::<Riscv64<3>>(config(Format::Riscv64(RiscvMode::Sv39)));
    every_size::<Riscv64<4>>(config(Format::Riscv64(RiscvMode::Sv48)));
    every_size::<Riscv64<5>>(config(Format::Riscv64(RiscvMode::Sv57)));
}

/// Up to 64 pages move by one flush, and below 2 MiB the merge needs none: their entries stay what
/// they are.
#[test]
fn a_range_of_64_pages_takes_one_flush() {
    let flushes = |into: Order, from: u8| {
        let sim = sim(2, 64);
        let mm = manager(&sim, only(from));
        let id = filled(&sim, &mm, 0..512);
        sim.on(cpu(1), || {
            mm.online();
            mm.switch(Some(id)).unwrap();
        });
        let before = mm.total(Event::Shootdown);
        mm.collapse(id, AT, into, CollapseLimits::NONE).unwrap();
        let flushes = mm.total(Event::Shootdown) - before;
        check(&sim, &mm, id, |_| true);
        finish(&sim, &mm, &[id]);
        flushes
    };
    assert_eq!(sizes().map(|into| flushes(into, 0)).collect::<Vec<_>>(), [1, 1, 1, 1, 1, 2, 4, 9]);
    // All large folios of a range are split by one flush.
    let large = sizes().filter(|into| into.get() > 2).map(|into| flushes(into, 2));
    assert_eq!(large.collect::<Vec<_>>(), [2, 2, 2, 2, 3, 5, 11]);
}

/// A range of all that there can be: pages, folios of several sizes, one that has lost pages, one
/// that reaches over the end, and what is left of one of 2 MiB.
#[test]
fn a_range_of_many_kinds_becomes_a_folio() {
    for into in [5, 6, 7, 8, 9].map(order) {
        let sim = sim(1, 64);
        let mm = manager(&sim, policy(&[9]));
        let id = filled(&sim, &mm, 0..1); // 2 MiB
        let drop_row = |from, count| mm.advise(id, row(from, count), Advice::DontNeed).unwrap();
        drop_row(4, 2);
        drop_row(8, 24);
        mm.set_policy(policy(&[3]));
        write(&sim, &mm, id, 8..9);
        drop_row(10, 1); // a hole in a folio of 8 pages
        mm.set_policy(policy(&[2]));
        write(&sim, &mm, id, 24..25);
        mm.set_policy(Policy::BASE_ONLY);
        write(&sim, &mm, id, (0..512).filter(|page| *page != 17 && *page != 10));
        let there = |page: u64| page != 17 && page != 10;
        let at = AT;
        mm.collapse(id, at, into, CollapseLimits::NONE).unwrap();
        assert!(is_folio(&mm, id, at, into), "{into:?}");
        mm.audit(&[id]).unwrap();
        check(&sim, &mm, id, there);
    }
}

/// What is left of a larger folio is collapsed, so that what it has lost comes free. What lies in a
/// larger folio that is all there is not.
#[test]
fn a_part_of_a_larger_folio_is_collapsed_only_where_that_has_lost_pages() {
    let sim = sim(1, 64);
    let mm = manager(&sim, only(6));
    let id = filled(&sim, &mm, 0..64);
    let collapsed = Err(CollapseError::Collapsed(AT));
    assert_eq!(mm.collapse(id, AT, order(4), CollapseLimits::NONE), collapsed);
    mm.advise(id, row(40, 8), Advice::DontNeed).unwrap();
    mm.collapse(id, AT, order(4), CollapseLimits::NONE).unwrap();
    assert!(is_folio(&mm, id, AT, order(4)));
    assert_eq!(mm.deferred(), 0, "no folio waits to be split");
    // Moved by one page, a folio of the right size is not in its place.
    let moved = mm.remap(id, row(0, 16), Bytes::new(16 * PAGE), Move::To(AT.add(8 * MB + PAGE)));
    let moved = moved.unwrap();
    let before = row(2048, 1);
    area(&mm, id, before.start().get(), PAGE);
    store(&sim, &mm, id, before.start().get(), 5);
    let start = moved.start().add(3 * PAGE);
    mm.collapse(id, start, order(2), CollapseLimits::NONE).unwrap();
    assert!(is_folio(&mm, id, start, order(2)));
    for page in 0..16 {
        assert_eq!(load(&sim, &mm, id, moved.start().get() + page * PAGE), 1000 + page);
    }
}

#[test]
fn what_is_missing_or_shared_is_made_up_to_the_limits() {
    let sim = sim(2, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let there = |page: u64| page.is_multiple_of(4);
    let id = filled(&sim, &mm, (0..512).filter(|page| there(*page)));
    load(&sim, &mm, id, BASE + PAGE); // the zero page
    let child = mm.fork(id).unwrap();
    assert_eq!(
        mm.collapse(id, AT, Order::SIZE_2M, limits(383, 512)),
        Err(CollapseError::Empty(Pages::new(384)))
    );
    assert_eq!(
        mm.collapse(id, AT, Order::SIZE_2M, limits(384, 127)),
        Err(CollapseError::Shared(Pages::new(128)))
    );
    mm.collapse(id, AT, Order::SIZE_2M, limits(384, 128)).unwrap();
    assert_eq!(order_at(&mm, id, BASE), 9);
    mm.audit(&[id, child]).unwrap();
    check(&sim, &mm, child, there);
    check(&sim, &mm, id, there);
}

/// Limits are numbers of pages, whatever the size of the range, and so are what an error says and
/// what is counted.
#[test]
fn limits_hold_for_every_size() {
    for into in sizes() {
        let sim = sim(2, 64);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let there = |page: u64| page.is_multiple_of(4);
        let id = filled(&sim, &mm, (0..512).filter(|page| there(*page)));
        load(&sim, &mm, id, BASE + PAGE); // the zero page
        let child = mm.fork(id).unwrap();
        let all = into.pages().get();
        let (none, shared) = (all / 4 * 3, all / 4);
        let try_with = |none, shared| mm.collapse(id, AT, into, limits(none, shared));
        assert_eq!(try_with(none - 1, 512), Err(CollapseError::Empty(Pages::new(none))));
        assert_eq!(try_with(none, shared - 1), Err(CollapseError::Shared(Pages::new(shared))));
        assert_eq!(mm.anonymous(), Pages::new(128), "nothing was made");
        try_with(none, shared).unwrap();
        assert!(is_folio(&mm, id, AT, into));
        let stats = mm.size_stats(into);
        for event in [SizeEvent::CollapseExceedNone, SizeEvent::CollapseExceedShared] {
            assert_eq!(stats.get(event), 1, "{event:?} of {into:?}");
        }
        mm.audit(&[id, child]).unwrap();
        check(&sim, &mm, child, there);
        check(&sim, &mm, id, there);
        // Nothing at all is no folio, whatever the limits are.
        let nothing = Va::new(BASE + SIZE_2M);
        let empty = Err(CollapseError::Empty(into.pages()));
        assert_eq!(mm.collapse(id, nothing, into, CollapseLimits::NONE), empty);
    }
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
}

/// What a scan of 2 MiB leaves in the first 2 MiB of an area: the folios by order.
fn orders_of<P: Paging>(mm: &AnyMm<'_, P>, id: SpaceId) -> Vec<u8> {
    let (mut at, mut orders) = (0, Vec::new());
    while at < 512 {
        let frame = mm.frame_at(id, Va::new(BASE + at * PAGE));
        let order = frame.map_or(Order::BASE, |frame| mm.identity(frame).order());
        orders.push(if frame.is_some() { order.get() } else { u8::MAX });
        at += order.pages().get();
    }
    orders
}

/// One page is missing: a scan makes the largest folios that are left.
#[test]
fn a_scan_tries_the_largest_size_first_and_then_smaller_ones() {
    let all: Vec<u8> = (2..=9).collect();
    let cases: [(&[u8], &[u8]); 4] = [
        (&all, &[8, 7, 6, 5, 4, 3, 2, 0, 0, 0, u8::MAX]),
        (&[9, 4], &[4; 31]),
        (&[9], &[]),
        (&[5, 8], &[8, 5, 5, 5, 5, 5, 5, 5]),
    ];
    for (enabled, expected) in cases {
        let sim = sim(1, 64);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let id = filled(&sim, &mm, 0..511);
        write(&sim, &mm, id, 512..1024);
        mm.set_policy(policy(enabled));
        let made = expected.iter().filter(|order| (2..=9).contains(*order)).count() as u64;
        // The second 2 MiB are all there.
        let second = if enabled.contains(&9) { 1 } else { 2 };
        let (scanned, more) = mm.collapse_scan(id, Va::new(0), 100, CollapseLimits::SCAN);
        let windows = if enabled.contains(&9) { 2 } else { 4 };
        assert_eq!((scanned.collapsed, scanned.ranges, more), (made + second, windows, None));
        let mut orders = orders_of(&mm, id);
        orders.truncate(expected.len());
        assert_eq!(orders, expected, "{enabled:?}");
        let again = mm.collapse_scan(id, Va::new(0), 100, CollapseLimits::SCAN);
        assert_eq!((again.0.collapsed, mm.anonymous()), (0, Pages::new(1023)), "{enabled:?}");
        mm.audit(&[id]).unwrap();
        check(&sim, &mm, id, |page| page != 511);
    }
}

/// Where a scan of several sizes makes pages that are missing, the smaller sizes make what the next
/// larger one counts: with half of each range missing the whole area would fill up.
#[test]
fn tr_a6_smaller_sizes_do_not_creep_into_larger_ones() {
    let all: Vec<u8> = (2..=9).collect();
    let is_there = |page: u64| page % 16 < 2 || page == 2;
    let scan = |limits| {
        let sim = sim(1, 64);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let id = filled(&sim, &mm, (0..512).filter(|page| is_there(*page)));
        mm.set_policy(policy(&all));
        for _ in 0..10 {
            mm.collapse_scan(id, Va::new(0), 100, limits);
        }
        let there = mm.anonymous().get();
        mm.audit(&[id]).unwrap();
        check(&sim, &mm, id, is_there);
        finish(&sim, &mm, &[id]);
        there
    };
    let before = (0..512).filter(|page| is_there(*page)).count() as u64;
    for none in [0, 255, 256, 400] {
        assert_eq!(scan(limits(none, 256)), before, "{none} may be missing");
    }
    // All may be missing: one collapse makes all, and nothing is left to creep to.
    for none in [511, 512] {
        assert_eq!(scan(limits(none, 256)), 512, "{none} may be missing");
    }
}

/// The same of pages that a parent has too: those that smaller sizes copied would not be counted by
/// the next larger one.
#[test]
fn tr_a6_shared_pages_do_not_creep() {
    let all: Vec<u8> = (2..=9).collect();
    let scan = |own: u64, limits| {
        let sim = sim(1, 64);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let id = filled(&sim, &mm, 0..512);
        let child = mm.fork(id).unwrap();
        mm.switch(Some(child)).unwrap();
        write(&sim, &mm, child, 0..own);
        mm.set_policy(policy(&all));
        for _ in 0..10 {
            mm.collapse_scan(child, Va::new(0), 100, limits);
        }
        let there = (mm.anonymous().get() - 512, order_at(&mm, child, BASE));
        mm.audit(&[id, child]).unwrap();
        check(&sim, &mm, child, |_| true);
        finish(&sim, &mm, &[child, id]);
        there
    };
    for shared in [0, 2, 256, 400] {
        let own = 511 - shared;
        let (copied, largest) = scan(own, limits(0, shared));
        assert_eq!(copied, own, "{shared} may be shared, and one more is");
        assert!(largest < 9);
        assert_eq!(scan(own + 1, limits(0, shared)), (512, 9), "{shared} may be shared");
    }
    // All may be: one collapse copies all.
    assert_eq!(scan(0, limits(0, 512)), (512, 9));
}

/// A scan goes on where it was interrupted, also within areas that are smaller than the largest
/// size, or not aligned to it.
#[test]
fn a_scan_of_several_sizes_goes_on_where_it_ended() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    let odd = [row(3, 30), row(1021, 20), row(2048, 3), row(2560, 600)];
    for part in odd {
        area(&mm, id, part.start().get(), part.bytes().get());
        mm.advise(id, part, Advice::PopulateWrite).unwrap();
    }
    mm.set_policy(policy(&[2, 4, 9]));
    let (mut at, mut calls, mut made) = (Va::new(0), 0, 0);
    loop {
        let (scanned, more) = mm.collapse_scan(id, at, 1, CollapseLimits::SCAN);
        (calls, made) = (calls + 1, made + scanned.collapsed);
        assert!(scanned.ranges <= 1);
        let Some(next) = more else { break };
        assert!(next > at);
        at = next;
    }
    // 4..32: three of 4 pages and one of 16. 1024..1040: one of 16. 2560..3160: 2 MiB, five of 16
    // pages and two of 4.
    assert_eq!(made, 3 + 1 + 1 + 1 + 5 + 2);
    assert_eq!(calls, 4, "windows of 2 MiB: from 0, 1024, 2560 and 3072 on");
    mm.audit(&[id]).unwrap();
}

#[test]
fn refusals_are_distinct_and_change_nothing() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = filled(&sim, &mm, 0..512);
    let odd = Va::new(BASE + PAGE);
    assert_eq!(
        mm.collapse(id, odd, Order::SIZE_2M, CollapseLimits::NONE),
        Err(CollapseError::Misaligned(odd, Order::SIZE_2M))
    );
    for size in [0, 1, 10, 18].map(order) {
        let refused = Err(CollapseError::NoSize(size));
        assert_eq!(mm.collapse(id, AT, size, CollapseLimits::NONE), refused);
    }
    for size in sizes().filter(|size| *size > order(2)) {
        let odd = AT.add(size.bytes().get() / 2);
        let refused = Err(CollapseError::Misaligned(odd, size));
        assert_eq!(mm.collapse(id, odd, size, CollapseLimits::NONE), refused);
    }
    let nowhere = Va::new(BASE + 4 * MB);
    let unsuitable = Err(CollapseError::Unsuitable(nowhere));
    assert_eq!(mm.collapse(id, nowhere, Order::SIZE_2M, CollapseLimits::NONE), unsuitable);
    let pinned = mm.frame_at(id, Va::new(BASE + 7 * PAGE)).unwrap();
    {
        let _pin = mm.reference(pinned).unwrap();
        for size in sizes().filter(|size| *size > order(2)) {
            let done = mm.collapse(id, AT, size, CollapseLimits::NONE);
            assert!(matches!(done, Err(CollapseError::Stays(_))), "{done:?}");
        }
        assert_eq!(mm.total(Event::PgMigrateSuccess), 0, "no page has moved in vain");
        mm.collapse(id, AT, order(2), CollapseLimits::NONE).unwrap();
    }
    mm.audit(&[id]).unwrap();
    check(&sim, &mm, id, |_| true);
    mm.protect(id, range(BASE, PAGE), Flags::READ).unwrap();
    assert_eq!(
        mm.collapse(id, AT, Order::SIZE_2M, CollapseLimits::NONE),
        Err(CollapseError::Unsuitable(AT))
    );
    let kernel = mm.vmalloc(&Request::of(Bytes::new(SIZE_2M)).for_users()).unwrap();
    let lent = request(Place::NoReplace(nowhere), SIZE_2M, Flags::READ_WRITE);
    mm.map_user(id, &lent, kernel.start()).unwrap();
    assert_eq!(mm.collapse(id, nowhere, Order::SIZE_2M, CollapseLimits::NONE), unsuitable);
    mm.unmap(id, range(nowhere.get(), SIZE_2M)).unwrap();
    mm.vfree(kernel.start()).unwrap();
}

#[test]
fn an_allocation_that_is_refused_leaves_pages() {
    for (into, from) in sizes().flat_map(|into| [(into, 0), (into, 2)]) {
        for k in 1.. {
            let sim = sim(1, 64);
            let mm = manager(&sim, only(from));
            let id = filled(&sim, &mm, (0..512).filter(|page| page % 100 != 3));
            mm.advise(id, row(3, 1), Advice::DontNeed).unwrap();
            sim.fault_plan().set(Failing::From(k));
            let done = mm.collapse(id, AT, into, CollapseLimits::NONE);
            let refused = sim.fault_plan().refused();
            sim.fault_plan().set(Failing::Nothing);
            assert_eq!(done.is_ok(), refused == 0, "{into:?}, k = {k}: {done:?}");
            let failed = mm.size_stats(into).get(SizeEvent::CollapseAllocFailed);
            assert!(failed <= 1, "{failed}");
            check(&sim, &mm, id, |page| page % 100 != 3);
            finish(&sim, &mm, &[id]);
            if refused == 0 {
                // A page that is missing, the block, and for 2 MiB a table.
                let least = if into == Order::SIZE_2M { 3 } else { 2 };
                assert!(k > least, "k = {k}");
                break;
            }
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
        let collapse = || mm.collapse(id, AT, Order::SIZE_2M, CollapseLimits::NONE);
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
