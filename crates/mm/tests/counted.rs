//! What the manager counts, exactly: of each small piece of work every counter that it moves, and
//! by how much.
//!
//! A count is stated with all others that move beside it, so that one which is missing, doubled or
//! out of place is seen. How flushes are counted stands in `flushes` as well, what a CPU keeps of a
//! space in `tags`.

use crate::common::kernel::{base, huge};
use crate::common::meddler::Meddler;
use crate::common::*;
use foliant::compact::{CollapseError, CompactRequest, Effort, Want};
use foliant::fault::{Defrag, Orders, Refusal};
use foliant::manager::{CollapseLimits, Setup, VmapSetup};
use foliant::memmap::{Batch, Form};
use foliant::pool::{Budget, Folding};
use foliant::space::{Advice, Flags, MapRequest, Place, SpaceId};
use foliant::split::{RelocateError, Shrink, SplitError, SplitInto, ZeroPieces};
use foliant::table::{Paging, Soft, SoftKind};
use foliant::vmap::{
    Caller, Controls, FrameMapping, PurgeMode, Request, Rest, Rights, Short, VmapError,
};
use foliant::zero::{Clearing, Far};
use foliant::{Access, Event, NoBlock, Outcome, Policy, SizeEvent};
use foliant_machine::{PhysMem, Replace};
use foliant_sim::{Config, Failing, Sim};
use foliant_units::{Bytes, Frame, Level, Nanos, Order, Pa, Pages, Va, VaRange};

/// Every count with its name, that of a size with its order behind it. Times are none.
fn totals(mm: &AnyMm<'_, impl Paging>) -> Vec<(String, u64)> {
    let counted = Event::ALL.iter().filter(|event| **event != Event::CompactNanos);
    let events = counted.map(|event| (event.label().to_string(), mm.total(*event)));
    let sizes = Order::all().flat_map(|order| {
        let stats = mm.size_stats(order);
        let name = move |event: SizeEvent| format!("{}/{}", event.label(), order.get());
        SizeEvent::ALL.iter().map(move |event| {
            let total = mm.size_total(order, *event);
            assert_eq!(total, stats.get(*event), "{order} {event:?}");
            (name(*event), total)
        })
    });
    events.chain(sizes).collect()
}

/// `work` moves these counts, and no other ones.
#[track_caller]
fn counts(mm: &AnyMm<'_, impl Paging>, expected: &str, work: impl FnOnce()) {
    let before = totals(mm);
    work();
    let moved = totals(mm).into_iter().zip(before).filter_map(|((name, now), (_, then))| {
        let by = now.wrapping_sub(then) as i64;
        (by != 0).then(|| format!("{name} {by}"))
    });
    let moved = moved.collect::<Vec<_>>().join(", ");
    assert_eq!(moved, expected);
}

/// A space that one CPU runs, with tables down to those of pages for 2 MiB at `BASE`, and to those
/// of leaves for 1 GiB; all descriptors are there.
fn world(policy: Policy) -> (&'static Meddler, &'static Mm<'static>, SpaceId, Over) {
    let (machine, mm, kept) = meddled(2, 64, Policy::BASE_ONLY);
    mm.describe_all().unwrap();
    let id = mm.create(None).unwrap();
    for cpu in mm.cpus() {
        machine.sim.on(cpu, || mm.online());
    }
    mm.switch(Some(id)).unwrap();
    area(mm, id, BASE, 32 * MB);
    store(&machine.sim, mm, id, BASE + 511 * PAGE, 1);
    mm.set_policy(policy);
    (machine, mm, id, kept)
}
fn write(mm: &Mm<'_>, id: SpaceId, va: u64) -> Outcome {
    mm.fault(id, Va::new(va), Access::Write)
}
/// A machine that wants entries broken before they are made anew.
fn breaking() -> Sim {
    let mut config = Config::seeded(1, Bytes::new(64 * MB), 1);
    config.rules.replace = Replace::BreakBeforeMake;
    Sim::new(config).unwrap()
}
/// Takes all blocks of 2 MiB and more.
fn lend_blocks(mm: &Mm<'_>) -> Vec<Frame> {
    let any = || mm.free_blocks().largest() >= Some(Order::SIZE_2M);
    std::iter::from_fn(|| any().then(|| mm.lend(Order::SIZE_2M).unwrap())).collect()
}
fn take_back(mm: &Mm<'_>, lent: Vec<Frame>) {
    lent.into_iter().for_each(|frame| mm.take_back(frame, Order::SIZE_2M).unwrap());
}

// Faults.

#[test]
fn a_fault_of_a_page_counts_what_it_did() {
    let (_, mm, id, _over) = world(Policy::BASE_ONLY);
    let read = |nth: u64| mm.fault(id, page(nth).start(), Access::Read);
    let write = |nth: u64| mm.fault(id, page(nth).start(), Access::Write);
    counts(mm, "pgfault 1, zero_page_fault 1", || {
        assert_eq!(read(0), Outcome::ZeroPage(Order::BASE))
    });
    counts(
        mm,
        "pgfault 1, zeroed_bytes 4096, zero_extents 1, nr_tlb_local_flush_one 1, \
         anon_fault_alloc/0 1, nr_anon/0 1",
        || assert_eq!(write(0), Outcome::Mapped(Order::BASE)),
    );
    counts(
        mm,
        "pgfault 1, zeroed_bytes 4096, zero_extents 1, anon_fault_alloc/0 1, nr_anon/0 1",
        || assert_eq!(write(1), Outcome::Mapped(Order::BASE)),
    );
    counts(mm, "pgfault 1, fault_spurious 1", || assert_eq!(write(1), Outcome::Spurious));
    let nowhere = Va::new(BASE + 64 * MB);
    let refused = Outcome::Refused(Refusal::NoArea(nowhere));
    counts(mm, "pgfault 1", || assert_eq!(mm.fault(id, nowhere, Access::Read), refused));
    let populate = |advice| mm.advise(id, page(2), advice).unwrap();
    counts(mm, "zero_page_fault 1", || populate(Advice::PopulateRead));
    counts(
        mm,
        "zeroed_bytes 4096, zero_extents 1, nr_tlb_local_flush_one 1, anon_fault_alloc/0 1, \
         nr_anon/0 1",
        || populate(Advice::PopulateWrite),
    );
    counts(mm, "fault_spurious 1", || populate(Advice::PopulateWrite));
    // Pages that are populated side by side come by aligned blocks of up to 64 KiB.
    let populate = |from: u64, pages: u64, advice| {
        let pages = range(page(from).start().get(), pages * PAGE);
        mm.advise(id, pages, advice).unwrap();
    };
    counts(mm, "zero_page_fault 41", || populate(67, 41, Advice::PopulateRead));
    counts(mm, "zeroed_bytes 167936, zero_extents 6, anon_fault_alloc/0 41, nr_anon/0 41", || {
        populate(131, 41, Advice::PopulateWrite)
    });
    counts(mm, "fault_spurious 41", || populate(131, 41, Advice::PopulateWrite));
    // In the next 2 MiB a table is made first.
    counts(
        mm,
        "pgfault 1, zeroed_bytes 8192, zero_extents 2, table_made 1, anon_fault_alloc/0 1, \
         nr_anon/0 1",
        || assert_eq!(write(512), Outcome::Mapped(Order::BASE)),
    );
}

#[test]
fn zeros_of_two_mib_are_counted() {
    let (machine, mm, id, _over) = world(only(9));
    let read = |nth: u64| mm.fault(id, page(nth).start(), Access::Read);
    let write = |nth: u64| mm.fault(id, page(nth).start(), Access::Write);
    let zeros = Outcome::ZeroPage(Order::SIZE_2M);
    // The block, and the table that is kept for the split.
    counts(
        mm,
        "pgfault 1, zero_page_fault 1, zeroed_bytes 2101248, zero_extents 3, \
         thp_zero_page_alloc 1",
        || assert_eq!(read(512), zeros),
    );
    counts(mm, "pgfault 1, zero_page_fault 1, zeroed_bytes 4096, zero_extents 1", || {
        assert_eq!(read(1024), zeros)
    });
    counts(
        mm,
        "pgfault 1, zeroed_bytes 2097152, zero_extents 2, nr_tlb_local_flush_one 1, \
         anon_fault_alloc/9 1, nr_anon/9 1",
        || assert_eq!(write(512), Outcome::Mapped(Order::SIZE_2M)),
    );
    counts(mm, "nr_tlb_local_flush_one 1, table_made 1, table_freed 1", || {
        mm.unmap(id, range(BASE + 4 * MB, 2 * MB)).unwrap()
    });
    assert_eq!(read(1536), zeros);
    let lent = lend_blocks(mm);
    counts(
        mm,
        "pgfault 1, zeroed_bytes 4096, zero_extents 1, nr_tlb_local_flush_one 2, table_made \
         1, alloc_fail 1, anon_fault_alloc/0 1, nr_anon/0 1, anon_fault_fallback/9 1",
        || assert_eq!(write(1536), Outcome::Mapped(Order::BASE)),
    );
    take_back(mm, lent);
    finish(&machine.sim, mm, &[id]);
    // Where no block is free.
    let (_, mm, id, _over) = world(only(9));
    let lent = lend_blocks(mm);
    let read = || mm.fault(id, page(512).start(), Access::Read);
    counts(
        mm,
        "pgfault 1, zero_page_fault 1, zeroed_bytes 4096, zero_extents 1, table_made 1, \
         alloc_fail 1, thp_zero_page_alloc_failed 1",
        || assert_eq!(read(), Outcome::ZeroPage(Order::BASE)),
    );
    take_back(mm, lent);
}

#[test]
fn a_shared_page_is_counted_as_copied_or_as_reused() {
    let (_, mm, id, _over) = world(Policy::BASE_ONLY);
    write(mm, id, BASE);
    let mut child = None;
    counts(
        mm,
        "zeroed_bytes 24576, zero_extents 6, nr_tlb_local_flush_one 2, table_made 3",
        || child = mm.fork(id).ok(),
    );
    let child = child.unwrap();
    counts(
        mm,
        "pgfault 1, cow_copy 1, copied_bytes 4096, nr_tlb_local_flush_one 1, nr_anon/0 1",
        || assert_eq!(write(mm, id, BASE), Outcome::Copied),
    );
    mm.switch(Some(child)).unwrap();
    counts(mm, "pgfault 1, cow_reuse 1", || assert_eq!(write(mm, child, BASE), Outcome::Reused));
    mm.switch(Some(id)).unwrap();
    counts(
        mm,
        "grace_periods 2, flush_spared 1, table_freed 3, \
         nr_anon/0 -1",
        || mm.end(child).unwrap(),
    );
}

#[test]
fn a_fault_of_a_huge_folio_counts_what_it_cleared() {
    let (_, mm, id, _over) = world(only(9));
    let fault = |nth: u64, page: u64| {
        let done = write(mm, id, BASE + nth * SIZE_2M + page * PAGE);
        assert_eq!(done, Outcome::Mapped(Order::SIZE_2M));
    };
    // Both sides of the page touched, then its neighbourhood; at the start one side is missing.
    counts(
        mm,
        "pgfault 1, zeroed_bytes 2101248, zero_extents 4, anon_fault_alloc/9 1, nr_anon/9 1",
        || fault(1, 100),
    );
    counts(
        mm,
        "pgfault 1, zeroed_bytes 2101248, zero_extents 3, anon_fault_alloc/9 1, nr_anon/9 1",
        || fault(2, 0),
    );
    let usual = mm.clearing();
    mm.set_clearing(Clearing { budget: Nanos(100_000), far: Far::Cached, ..usual });
    counts(
        mm,
        "pgfault 1, zeroed_bytes 2101248, zero_extents 6, zero_yields 3, anon_fault_alloc/9 1, \
         nr_anon/9 1",
        || fault(3, 0),
    );
    mm.set_clearing(usual);
    counts(mm, "zeroed_ahead_bytes 4096, zero_extents 1", || _ = mm.clear_ahead(Nanos(1)));
    mm.clear_ahead(Nanos(u64::MAX));
    counts(mm, "", || assert_eq!(mm.clear_ahead(Nanos(u64::MAX)).cleared.get(), 0));
    counts(
        mm,
        "pgfault 1, zeroed_bytes 4096, zero_spared_bytes 2097152, zero_extents 1, \
         anon_fault_alloc/9 1, nr_anon/9 1",
        || fault(4, 0),
    );
    mm.set_policy(only(4));
    counts(
        mm,
        "pgfault 1, zeroed_bytes 65536, zero_extents 1, anon_fault_alloc/4 1, nr_anon/4 1",
        || assert_eq!(write(mm, id, BASE), Outcome::Mapped(order(4))),
    );
    counts(
        mm,
        "nr_tlb_local_flush_one 1, table_made 1, \
         table_freed 1, nr_anon/9 -1",
        || mm.unmap(id, range(BASE + SIZE_2M, SIZE_2M)).unwrap(),
    );
}

/// A page appears in the range of a folio that is cleared; a block is cleared for a fault whose
/// area is gone then.
#[test]
fn what_was_cleared_in_vain_is_counted_as_dropped() {
    let (machine, mm, id, _over) = world(only(4));
    machine.after_clearing(16 * PAGE, move || {
        mm.set_policy(Policy::BASE_ONLY);
        machine.sim.on(cpu(1), || assert_eq!(write(mm, id, BASE), Outcome::Mapped(Order::BASE)));
    });
    counts(
        mm,
        "pgfault 2, fault_lost_race 1, zeroed_bytes 73728, zero_dropped_bytes 65536, \
         zero_extents 3, anon_fault_alloc/0 2, nr_anon/0 2",
        || assert_eq!(write(mm, id, BASE + PAGE), Outcome::Mapped(Order::BASE)),
    );
    mm.set_policy(only(9));
    let at = Va::new(BASE + 2 * SIZE_2M);
    machine.after_clearing(SIZE_2M - 3 * PAGE, move || {
        mm.unmap(id, range(at.get(), SIZE_2M)).unwrap()
    });
    let gone = Outcome::Refused(Refusal::NoArea(at));
    counts(
        mm,
        "pgfault 1, fault_lost_race 1, zeroed_bytes 2097152, zero_dropped_bytes 2097152, \
         zero_extents 2",
        || assert_eq!(write(mm, id, at.get()), gone),
    );
}

/// While a block is cleared for a fault another one of the same space takes what is left of its
/// charge.
#[test]
fn what_was_cleared_and_may_not_be_charged_is_counted_as_dropped() {
    let (machine, mm, _, _over) = world(only(9));
    // Two frames for itself, one for its area, three tables, a page, and the folio; none for a
    // table for its split.
    let poor = mm.create(Some(Pages::new(7 + 512))).unwrap();
    area(mm, poor, BASE, 4 * MB);
    machine.after_clearing(SIZE_2M - 3 * PAGE, move || {
        mm.set_policy(Policy::BASE_ONLY);
        assert_eq!(write(mm, poor, BASE + SIZE_2M), Outcome::Mapped(Order::BASE));
        mm.set_policy(only(9));
    });
    counts(
        mm,
        "pgfault 2, zeroed_bytes 2125824, zero_dropped_bytes 2097152, zero_extents 9, \
         table_made 4, anon_fault_alloc/0 2, nr_anon/0 2, anon_fault_fallback/9 1, \
         anon_fault_fallback_charge/9 1",
        || assert_eq!(write(mm, poor, BASE), Outcome::Mapped(Order::BASE)),
    );
}

#[test]
fn a_step_down_is_counted_with_the_size_that_was_not_had() {
    let (_, mm, id, _over) = world(only(9));
    let lent = lend_blocks(mm);
    counts(
        mm,
        "pgfault 1, zeroed_bytes 8192, zero_extents 2, table_made 1, alloc_fail 1, \
         anon_fault_alloc/0 1, nr_anon/0 1, anon_fault_fallback/9 1",
        || assert_eq!(write(mm, id, BASE + SIZE_2M), Outcome::Mapped(Order::BASE)),
    );
    take_back(mm, lent);
    // Two frames for itself, one for its area, three tables, and one page.
    let poor = mm.create(Some(Pages::new(7))).unwrap();
    area(mm, poor, BASE, 4 * MB);
    counts(
        mm,
        "pgfault 1, zeroed_bytes 16384, zero_extents 4, table_made 3, anon_fault_alloc/0 1, \
         nr_anon/0 1, anon_fault_fallback/9 1, anon_fault_fallback_charge/9 1",
        || assert_eq!(write(mm, poor, BASE), Outcome::Mapped(Order::BASE)),
    );
}

/// Without a free frame, and with a charge that is at its limit: the fault waits for the others
/// once, and is refused again (fault::E7).
#[test]
fn finding_z_from_a_page_there_is_no_step_down() {
    let (machine, mm, id, _over) = world(Policy::BASE_ONLY);
    let plan = machine.sim.fault_plan();
    plan.set(Failing::From(1));
    counts(mm, "pgfault 1, grace_periods 1, alloc_fail 2", || {
        assert_eq!(write(mm, id, BASE), Outcome::OutOfMemory)
    });
    mm.set_policy(only(9));
    counts(mm, "pgfault 1, grace_periods 1, alloc_fail 4, anon_fault_fallback/9 2", || {
        assert_eq!(write(mm, id, BASE + 2 * SIZE_2M), Outcome::OutOfMemory)
    });
    plan.set(Failing::Nothing);
    mm.set_policy(Policy::BASE_ONLY);
    // Two frames for itself, one for its area, three tables, and one page.
    let poor = mm.create(Some(Pages::new(7))).unwrap();
    area(mm, poor, BASE, 4 * MB);
    write(mm, poor, BASE);
    counts(mm, "pgfault 1, grace_periods 1", || {
        assert_eq!(write(mm, poor, BASE + PAGE), Outcome::OverLimit)
    });
}

/// A larger order is refused its charge, and a smaller one has memory compacted: the larger one is
/// counted once.
#[test]
fn finding_cd_what_was_too_large_before_memory_is_compacted_is_counted_once() {
    let (machine, mm, _, _over) = world(Policy::BASE_ONLY);
    let id = mm.create(Some(Pages::new(100))).unwrap();
    area(mm, id, BASE, 4 * MB);
    write(mm, id, BASE);
    mm.set_policy(Policy::always(Orders::of(order(4)).with(Orders::of(order(8)))));
    mm.set_defrag(Defrag::Always);
    machine.sim.fault_plan().set(Failing::Kth(1));
    let counts = [SizeEvent::AnonFaultFallback, SizeEvent::AnonFaultFallbackCharge];
    let fell = |n| counts.map(|event| mm.size_stats(order(n)).get(event));
    assert_eq!([fell(4), fell(8)], [[0; 2]; 2]);
    assert_eq!(write(mm, id, BASE + MB), Outcome::Mapped(order(4)));
    assert_eq!([fell(4), fell(8)], [[0; 2], [1; 2]]);
    assert_eq!(mm.total(Event::CompactStall), 1, "memory was compacted");
}

// Huge pages of a pool.

#[test]
fn a_huge_page_of_a_pool_is_counted_from_its_making_to_its_end() {
    let (_, mm, id, _over) = world(Policy::BASE_ONLY);
    let fill = |pages| {
        assert_eq!(mm.resize_pool(Order::SIZE_2M, pages, Budget::ALL).unwrap().reached, pages)
    };
    counts(mm, "hugetlb_batch 1, hugetlb_lock 6", || fill(4));
    counts(mm, "hugetlb_lock 4", || fill(4));
    let (start, flags) = (BASE + (1 << 30), Flags::READ_WRITE.with(Flags::HUGE_2M));
    let place = Place::NoReplace(Va::new(start));
    let request = MapRequest { place, bytes: Bytes::new(2 * SIZE_2M), flags, tag: 0 };
    counts(mm, "hugetlb_lock 1", || _ = mm.map(id, &request).unwrap());
    counts(
        mm,
        "pgfault 1, zeroed_bytes 2101248, zero_extents 3, table_made 1, hugetlb_lock 2",
        || assert_eq!(write(mm, id, start), Outcome::Mapped(Order::SIZE_2M)),
    );
    counts(mm, "pgfault 1, zeroed_bytes 2097152, zero_extents 2, hugetlb_lock 2", || {
        assert_eq!(write(mm, id, start + SIZE_2M), Outcome::Mapped(Order::SIZE_2M))
    });
    counts(mm, "pgfault 1, fault_spurious 1", || {
        assert_eq!(write(mm, id, start), Outcome::Spurious)
    });
    let child = mm.fork(id).unwrap();
    counts(
        mm,
        "pgfault 1, cow_copy 1, copied_bytes 2097152, nr_tlb_local_flush_one 2, hugetlb_lock 1",
        || assert_eq!(write(mm, id, start), Outcome::Copied),
    );
    mm.switch(Some(child)).unwrap();
    counts(mm, "pgfault 1, cow_reuse 1", || assert_eq!(write(mm, child, start), Outcome::Reused));
    mm.switch(Some(id)).unwrap();
    counts(
        mm,
        "grace_periods 1, flush_spared 1, table_freed 1, \
         hugetlb_returned 1, hugetlb_free_work 1, hugetlb_lock 1",
        || mm.unmap(child, range(start, 2 * SIZE_2M)).unwrap(),
    );
    counts(
        mm,
        "grace_periods 1, nr_tlb_local_flush_one 3, \
         table_freed 1, hugetlb_returned 2, hugetlb_free_work 1, hugetlb_lock 1",
        || mm.unmap(id, range(start, 2 * SIZE_2M)).unwrap(),
    );
    counts(mm, "hugetlb_batch 1, hugetlb_lock 4", || fill(1));
    fill(0);
}

/// Where entries are broken before they are made, whether somebody else has it is seen while the
/// entry is broken.
#[test]
fn a_huge_page_that_was_shared_is_counted_as_reused_there() {
    let sim = breaking();
    let mm = manager(&sim, Policy::BASE_ONLY);
    mm.resize_pool(Order::SIZE_2M, 1, Budget::ALL).unwrap();
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    let (place, flags) = (Place::NoReplace(Va::new(BASE)), Flags::READ_WRITE.with(Flags::HUGE_2M));
    mm.map(id, &MapRequest { place, bytes: Bytes::new(SIZE_2M), flags, tag: 0 }).unwrap();
    write(&mm, id, BASE);
    let child = mm.fork(id).unwrap();
    mm.end(child).unwrap();
    counts(&mm, "pgfault 1, cow_reuse 1, nr_tlb_local_flush_one 1", || {
        assert_eq!(write(&mm, id, BASE), Outcome::Reused)
    });
}

/// The second time nothing is had any more.
#[test]
fn finding_z_a_batch_without_a_page_is_none() {
    let (_, mm, _, _over) = world(Policy::BASE_ONLY);
    let all = || _ = mm.resize_pool(Order::SIZE_2M, 1000, Budget::ALL).unwrap();
    counts(mm, "alloc_fail 2, hugetlb_batch 1, hugetlb_lock 6, compact_migrate_scanned 1024", all);
    counts(mm, "alloc_fail 1, hugetlb_lock 4, compact_migrate_scanned 1024", all);
    mm.resize_pool(Order::SIZE_2M, 0, Budget::ALL).unwrap();
}

/// Where they are folded a flush covers the descriptors of all 512.
#[test]
fn a_page_of_a_gibibyte_that_is_cut_is_one_batch() {
    let cut = |folding, [made, cut]: [&str; 2]| {
        let sim = Sim::new(Config::free(2, Bytes::new(3 << 30))).unwrap();
        let mm = manager(&sim, Policy::BASE_ONLY);
        mm.set_folding(folding);
        counts(&mm, made, || _ = mm.resize_pool(Order::SIZE_1G, 1, Budget::ALL).unwrap());
        counts(&mm, cut, || assert_eq!(mm.pools().demote(1).made, 512));
        counts(&mm, "hugetlb_lock 1", || assert_eq!(mm.pools().demote(1).made, 0));
    };
    cut(
        Folding::Off,
        [
            "zeroed_bytes 16781312, zero_extents 9, table_made 1, nr_memmap_pages 4096, \
             hugetlb_batch 1, hugetlb_lock 6",
            "hugetlb_batch 1, hugetlb_lock 2",
        ],
    );
    cut(
        Folding::On,
        [
            "zeroed_bytes 40960, zero_extents 10, table_made 9, nr_memmap_pages 2, \
             hugetlb_optimized 1, hugetlb_born_optimized 1, hugetlb_batch 1, hugetlb_lock 6",
            "zeroed_bytes 4096, zero_extents 1, grace_periods 1, nr_tlb_local_flush_all 1, \
             nr_memmap_pages 512, hugetlb_optimized 512, hugetlb_born_optimized 512, \
             memmap_released 512, memmap_flush_release 1, hugetlb_batch 1, hugetlb_lock 2, \
             memmap_grace_periods 1",
        ],
    );
}

// Descriptors.

#[test]
fn folding_and_unfolding_are_counted_by_page_and_by_flush() {
    let (machine, mm, _, _over) = world(Policy::BASE_ONLY);
    let memmap = mm.memmap();
    let plan = machine.sim.fault_plan();
    let mut batch = Batch::new(&memmap);
    counts(mm, "", || {
        (0..3)
            .for_each(|_| batch.push(memmap.claim(Order::SIZE_2M, Form::Dense).unwrap()).unwrap());
    });
    plan.set(Failing::From(1));
    counts(
        mm,
        "grace_periods 1, alloc_fail 4, hugetlb_optimize_failed 3, memmap_grace_periods 1",
        || assert_eq!(memmap.fold(&mut batch).failed, 3),
    );
    plan.set(Failing::Nothing);
    counts(
        mm,
        "zeroed_bytes 8192, zero_extents 2, nr_tlb_remote_flush 2, \
         nr_tlb_remote_flush_received 2, grace_periods 1, nr_tlb_local_flush_one 25, \
         table_made 1, nr_memmap_pages -20, hugetlb_optimized 3, memmap_flush_split 1, \
         memmap_flush_fold 1, memmap_grace_periods 1",
        || assert_eq!(memmap.fold(&mut batch).folded, 3),
    );
    counts(mm, "hugetlb_optimize_skipped 3", || assert_eq!(memmap.fold(&mut batch).skipped, 3));
    // The second page finds two frames of seven, and gives them back.
    plan.set(Failing::Kth(10));
    counts(
        mm,
        "nr_tlb_remote_flush 1, nr_tlb_remote_flush_received 1, nr_tlb_local_flush_one 7, \
         alloc_fail 1, nr_memmap_pages 7, hugetlb_restored 1, hugetlb_restore_failed 2, \
         memmap_flush_restore 1",
        || assert_eq!(memmap.unfold(&mut batch).unfolded, 1),
    );
    plan.set(Failing::Nothing);
    counts(
        mm,
        "nr_tlb_remote_flush 1, nr_tlb_remote_flush_received 1, nr_tlb_local_flush_one 14, \
         nr_memmap_pages 14, hugetlb_restored 2, memmap_flush_restore 1",
        || assert_eq!(memmap.unfold(&mut batch).unfolded, 2),
    );
    counts(mm, "", || assert_eq!(memmap.unfold(&mut batch).skipped, 3));
    // The second page finds no frame, and gets one that the first gave up.
    plan.set(Failing::Kth(2));
    counts(
        mm,
        "nr_tlb_remote_flush 2, nr_tlb_remote_flush_received 2, grace_periods 1, \
         nr_tlb_local_flush_one 24, alloc_fail 1, nr_memmap_pages -21, hugetlb_optimized 3, \
         memmap_flush_fold 1, memmap_flush_recovery 1, memmap_grace_periods 1",
        || assert_eq!(memmap.fold(&mut batch).folded, 3),
    );
    plan.set(Failing::Nothing);
    counts(
        mm,
        "nr_tlb_remote_flush 1, nr_tlb_remote_flush_received 1, grace_periods 1, \
         nr_tlb_local_flush_one 24, nr_memmap_pages -3, memmap_released 3, \
         memmap_flush_release 1, memmap_grace_periods 1",
        || assert_eq!(memmap.release(&mut batch).absent, 3),
    );
    counts(mm, "nr_memmap_pages 1, hugetlb_optimized 1, hugetlb_born_optimized 1", || {
        batch.push(memmap.claim(Order::SIZE_2M, Form::Folded).unwrap()).unwrap()
    });
    counts(
        mm,
        "nr_tlb_remote_flush 1, nr_tlb_remote_flush_received 1, grace_periods 1, \
         nr_tlb_local_flush_one 8, nr_memmap_pages -1, memmap_released 1, \
         memmap_flush_release 1, memmap_grace_periods 1",
        || assert_eq!(memmap.release(&mut batch).absent, 1),
    );
    drop(batch);
}

#[test]
fn descriptors_of_a_page_that_is_dense_stay() {
    let (_, mm, _, _over) = world(Policy::BASE_ONLY);
    let memmap = mm.memmap();
    let mut batch = Batch::new(&memmap);
    batch.push(memmap.claim(Order::SIZE_2M, Form::Dense).unwrap()).unwrap();
    counts(mm, "", || assert_eq!(memmap.release(&mut batch).dense, 1));
    drop(batch);
}

#[test]
fn finding_z_a_gibibyte_is_512_blocks_whose_descriptors_go() {
    let sim = Sim::new(Config::free(2, Bytes::new(3 << 30))).unwrap();
    let mm = manager(&sim, Policy::BASE_ONLY);
    let memmap = mm.memmap();
    let mut batch = Batch::new(&memmap);
    counts(
        &mm,
        "zeroed_bytes 40960, zero_extents 10, table_made 9, nr_memmap_pages 2, \
         hugetlb_optimized 1, hugetlb_born_optimized 1",
        || batch.push(memmap.claim(Order::SIZE_1G, Form::Folded).unwrap()).unwrap(),
    );
    counts(
        &mm,
        "grace_periods 1, nr_tlb_local_flush_all 1, nr_memmap_pages -1, memmap_released 512, \
         memmap_flush_release 1, memmap_grace_periods 1",
        || assert_eq!(memmap.release(&mut batch).absent, 1),
    );
}

/// There the rest are absent for a while, and a leaf that has the descriptors of other blocks as
/// well stays.
#[test]
fn where_entries_are_broken_before_they_are_made_a_leaf_keeps_a_page_dense() {
    let sim = breaking();
    let mm = manager(&sim, Policy::BASE_ONLY);
    let memmap = mm.memmap();
    let mut batch = Batch::new(&memmap);
    batch.push(memmap.claim(Order::SIZE_2M, Form::Folded).unwrap()).unwrap();
    counts(
        &mm,
        "grace_periods 1, nr_tlb_local_flush_one 7, nr_memmap_pages 7, hugetlb_restored 1, \
         memmap_flush_restore 1, memmap_grace_periods 1",
        || assert_eq!(memmap.unfold(&mut batch).unfolded, 1),
    );
    counts(
        &mm,
        "grace_periods 1, nr_tlb_local_flush_one 7, nr_memmap_pages -7, hugetlb_optimized 1, \
         memmap_flush_fold 1, memmap_grace_periods 1",
        || assert_eq!(memmap.fold(&mut batch).folded, 1),
    );
    memmap.release(&mut batch);
    drop(batch);
    finish(&sim, &mm, &[]);
    let sim = breaking();
    let mm = manager(&sim, Policy::BASE_ONLY);
    mm.describe_all().unwrap();
    let memmap = mm.memmap();
    let mut batch = Batch::new(&memmap);
    batch.push(memmap.claim(Order::SIZE_2M, Form::Dense).unwrap()).unwrap();
    counts(&mm, "hugetlb_optimize_failed 1", || assert_eq!(memmap.fold(&mut batch).forbidden, 1));
    memmap.release(&mut batch);
    drop(batch);
}

/// A block that was broken when nothing else was left holds its own descriptors, and becomes whole
/// when they are taken away.
#[test]
fn a_block_that_becomes_whole_is_counted_as_released() {
    let sim = sim(1, 256);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let memmap = mm.memmap();
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 64 * MB);
    let mut batch = Batch::new(&memmap);
    while let Ok(huge) = memmap.claim(Order::SIZE_2M, Form::Folded) {
        batch.push(huge).unwrap();
    }
    let fill =
        |from: u64| (from..).find(|n| write(&mm, id, BASE + n * PAGE) == Outcome::OutOfMemory);
    let full = fill(0).unwrap();
    let mut last = Batch::new(&memmap);
    last.push(batch.pop().unwrap()).unwrap();
    assert_eq!(memmap.release(&mut last).absent, 1);
    counts(
        &mm,
        "pgfault 1, zeroed_bytes 36864, zero_extents 9, nr_memmap_pages 8, \
         anon_fault_alloc/0 1, nr_anon/0 1",
        || assert_eq!(write(&mm, id, BASE + full * PAGE), Outcome::Mapped(Order::BASE)),
    );
    fill(full + 1).unwrap();
    mm.switch(None).unwrap();
    mm.end(id).unwrap();
    counts(
        &mm,
        "grace_periods 1, nr_tlb_local_flush_one 8, nr_memmap_pages -8, memmap_released 1, \
         memmap_flush_release 1, memmap_grace_periods 1",
        || assert_eq!(memmap.reclaim(), 1),
    );
    counts(&mm, "", || assert_eq!(memmap.reclaim(), 0));
    memmap.release(&mut batch);
    drop((batch, last));
}

// Kernel ranges.

#[test]
fn kernel_memory_is_counted_by_pages_and_leaves() {
    let (_, mm, _, _over) = world(Policy::BASE_ONLY);
    let mut got = Vec::new();
    let mut alloc = |request: &Request| got.push(mm.vmalloc(request).unwrap().start());
    counts(
        mm,
        "zeroed_bytes 16384, zero_extents 4, table_made 2, nr_vmalloc_pages 3, vmap_leaf_4k 3",
        || alloc(&base(3 * PAGE)),
    );
    counts(mm, "zeroed_bytes 12288, zero_extents 2, nr_vmalloc_pages 3, vmap_leaf_4k 3", || {
        alloc(&base(3 * PAGE).zeroed())
    });
    counts(mm, "nr_vmalloc_pages 1, vmap_leaf_4k 1", || alloc(&huge(PAGE)));
    counts(
        mm,
        "zeroed_bytes 4096, zero_extents 1, table_made 1, nr_vmalloc_pages 1025, vmalloc_huge 1, \
         vmap_leaf_4k 1, vmap_leaf_2m 2",
        || alloc(&huge(2 * SIZE_2M + 1)),
    );
    mm.vmap().set_controls(Controls { rest: Rest::Rounded, ..Controls::DEFAULT });
    counts(
        mm,
        "nr_vmalloc_pages 1024, vmalloc_huge 1, vmalloc_rounded_bytes 2088960, vmap_leaf_2m 2",
        || alloc(&huge(SIZE_2M + PAGE + 1)),
    );
    mm.vmap().set_controls(Controls::DEFAULT);
    counts(mm, "nr_vmalloc_pages -3", || mm.vfree(got[0]).unwrap());
    counts(mm, "vmap_deferred 1", || mm.vfree_atomic(got[1]).unwrap());
    counts(mm, "nr_vmalloc_pages -3", || assert_eq!(mm.vmap().collect(), 1));
    counts(
        mm,
        "nr_tlb_remote_flush 1, nr_tlb_remote_flush_received 1, nr_tlb_local_flush_one 6, \
         vmap_purge 1, vmap_purged_pages 8",
        || assert_eq!(mm.purge_vmalloc(), Pages::new(8)),
    );
    counts(mm, "", || assert_eq!(mm.purge_vmalloc(), Pages::new(0)));
    // Its attributes change in the middle, and it is flushed before its frames go.
    let part = range(got[3].get() + 5 * PAGE, PAGE);
    counts(
        mm,
        "zeroed_bytes 4096, zero_extents 1, nr_tlb_remote_flush 2, \
         nr_tlb_remote_flush_received 2, nr_tlb_local_flush_one 2, table_made 1, \
         vmap_leaf_split 1",
        || mm.protect_kernel(part, Rights::Constant).unwrap(),
    );
    let part = range(got[3].get() + 9 * PAGE, PAGE);
    counts(
        mm,
        "nr_tlb_remote_flush 1, nr_tlb_remote_flush_received 1, nr_tlb_local_flush_one 1",
        || mm.protect_kernel(part, Rights::Constant).unwrap(),
    );
    counts(
        mm,
        "nr_tlb_remote_flush 1, nr_tlb_remote_flush_received 1, nr_tlb_local_flush_all 1, \
         nr_vmalloc_pages -1025, vmap_flush 1",
        || mm.vfree(got[3]).unwrap(),
    );
    mm.vmap().set_controls(Controls { purge: PurgeMode::Eager, ..Controls::DEFAULT });
    counts(
        mm,
        "nr_tlb_remote_flush 1, nr_tlb_remote_flush_received 1, nr_tlb_local_flush_one 1, \
         nr_vmalloc_pages -1, vmap_flush 1",
        || mm.vfree(got[2]).unwrap(),
    );
    mm.vmap().set_controls(Controls::DEFAULT);
    counts(mm, "nr_vmalloc_pages -1024", || mm.vfree(got[4]).unwrap());
}

#[test]
fn frames_and_devices_are_counted_by_leaves_and_are_no_kernel_memory() {
    let (_, mm, _, _over) = world(Policy::BASE_ONLY);
    let frame = mm.lend(Order::BASE).unwrap();
    let mut at = Va::new(0);
    counts(mm, "zeroed_bytes 16384, zero_extents 4, table_made 2, vmap_leaf_4k 1", || {
        at = mm.vmap_frames(&[frame], &FrameMapping::PLAIN).unwrap().start()
    });
    counts(mm, "", || mm.vunmap(at).unwrap());
    counts(mm, "vmap_leaf_1g 1", || {
        at = mm.ioremap(Pa::new(1 << 40), Bytes::new(1 << 30), Caller(0)).unwrap()
    });
    counts(
        mm,
        "nr_tlb_remote_flush 1, nr_tlb_remote_flush_received 1, nr_tlb_local_flush_one 2, \
         vmap_purge 1, vmap_purged_pages 262147",
        || mm.iounmap(at).unwrap(),
    );
    counts(mm, "", || _ = mm.purge_vmalloc());
    mm.take_back(frame, Order::BASE).unwrap();
}

#[test]
fn a_leaf_in_the_place_of_an_empty_table_is_one_flush() {
    let (_, mm, _, _over) = world(Policy::BASE_ONLY);
    let align = Bytes::new(SIZE_2M);
    let mut at = mm.vmalloc(&base(SIZE_2M).aligned(align)).unwrap().start();
    mm.vfree(at).unwrap();
    mm.purge_vmalloc();
    counts(
        mm,
        "nr_tlb_remote_flush 1, nr_tlb_remote_flush_received 1, grace_periods 1, \
         nr_tlb_local_flush_one 1, table_freed 1, nr_vmalloc_pages 512, vmalloc_huge 1, \
         vmap_leaf_2m 1, vmap_table_flush 1",
        || {
            let again = mm.vmalloc(&huge(SIZE_2M)).unwrap().start();
            assert_eq!(again, at);
            at = again;
        },
    );
    mm.vfree(at).unwrap();
}

/// An entry of 2 MiB was there: what is left of it is a table above that of pages.
#[test]
fn a_leaf_of_a_gibibyte_in_the_place_of_an_empty_table_is_one_flush() {
    let (_, mm, _, _over) = world(Policy::BASE_ONLY);
    let large = Bytes::new(1 << 30);
    let at = mm.vmalloc(&huge(SIZE_2M).aligned(large)).unwrap().start();
    mm.vfree(at).unwrap();
    mm.purge_vmalloc();
    counts(
        mm,
        "nr_tlb_remote_flush 1, nr_tlb_remote_flush_received 1, grace_periods 1, \
         nr_tlb_local_flush_one 1, table_freed 1, vmap_leaf_1g 1, vmap_table_flush 1",
        || assert_eq!(mm.ioremap(Pa::new(1 << 40), large, Caller(0)), Ok(at)),
    );
    mm.iounmap(at).unwrap();
}

/// A machine with a manager that has nothing compacted for kernel memory.
fn impatient() -> World<Sim> {
    let sim: &'static Sim = Box::leak(Box::new(sim(1, 64)));
    let vmap = VmapSetup { effort: Effort::NONE, ..VmapSetup::DEFAULT };
    let setup = Setup { vmap, ..Setup::of(&sim.config().memory, Policy::BASE_ONLY) };
    let (sim, mm, kept) = kept_as(sim, &setup);
    mm.describe_all().unwrap();
    (sim, mm, kept)
}
fn give_back(mm: &Mm<'_>, got: VaRange) {
    mm.vfree(got.start()).unwrap();
    mm.purge_vmalloc();
}

#[test]
fn what_a_large_leaf_is_short_of_is_counted_by_its_kind() {
    let (sim, mm, _over) = impatient();
    let alloc = || give_back(mm, mm.vmalloc(&huge(SIZE_2M)).unwrap());
    // The block is there, and no frame for the record; then none for a table.
    sim.fault_plan().set(Failing::Kth(2));
    counts(
        mm,
        "zeroed_bytes 16384, zero_extents 4, nr_tlb_local_flush_all 1, table_made 2, \
         alloc_fail 1, vmalloc_huge 1, vmalloc_huge_fallback_record 1, vmap_leaf_4k 512, \
         vmap_purge 1, vmap_purged_pages 513",
        alloc,
    );
    sim.fault_plan().set(Failing::Kth(1));
    counts(
        mm,
        "nr_tlb_local_flush_all 1, alloc_fail 1, vmalloc_huge 1, vmalloc_huge_fallback_block 1, \
         vmap_leaf_4k 512, vmap_purge 1, vmap_purged_pages 513",
        alloc,
    );
    sim.fault_plan().set(Failing::Nothing);
    counts(
        mm,
        "grace_periods 1, nr_tlb_local_flush_one 2, table_freed 1, vmalloc_huge 1, \
         vmap_leaf_2m 1, vmap_purge 1, vmap_purged_pages 513, vmap_table_flush 1",
        alloc,
    );
}

/// There is no frame for the table of its entry: nothing is flushed for such a range, at once or
/// later.
#[test]
fn a_range_that_never_had_an_entry_is_given_back_without_a_flush() {
    for (purge, waiting) in [(PurgeMode::Lazy, 2), (PurgeMode::Eager, 0)] {
        let (sim, mm, _over) = impatient();
        mm.vmap().set_controls(Controls { purge, ..Controls::DEFAULT });
        let frame = mm.lend(Order::BASE).unwrap();
        sim.fault_plan().set(Failing::Kth(3));
        counts(mm, "zeroed_bytes 8192, zero_extents 2, alloc_fail 1", || {
            let refused = mm.vmap_frames(&[frame], &FrameMapping::PLAIN);
            assert_eq!(refused, Err(VmapError::Short(Short::Record)));
        });
        sim.fault_plan().set(Failing::Nothing);
        counts(mm, "", || assert_eq!(mm.purge_vmalloc().get(), waiting));
        mm.take_back(frame, Order::BASE).unwrap();
    }
}

/// An entry that nobody can have written stands in the place of the leaf; pages are mapped
/// elsewhere.
#[test]
fn the_place_of_a_leaf_that_is_taken_is_counted() {
    let (sim, mm, _over) = impatient();
    let first = mm.vmalloc(&base(SIZE_2M).aligned(Bytes::new(SIZE_2M))).unwrap();
    let entry = mm.kernel_tables().leaves(first).next().unwrap();
    give_back(mm, first);
    #[allow(unsafe_code)]
    // SAFETY: the table stays, and no range in use has the entry.
    let set = |word| unsafe { sim.store(entry.at, word) };
    set(Soft { kind: SoftKind::Other, payload: 1 }.word());
    let mut got = None;
    counts(
        mm,
        "zeroed_bytes 8192, zero_extents 2, table_made 2, nr_vmalloc_pages 512, vmalloc_huge 1, \
         vmalloc_huge_fallback_slot 1, vmap_leaf_4k 512",
        || got = mm.vmalloc(&huge(SIZE_2M)).ok(),
    );
    set(0);
    give_back(mm, got.unwrap());
}

/// Such an entry in the place of a page's: what was mapped before it is given back, and so is the
/// page that was meant for it.
#[test]
fn the_place_of_a_page_that_is_taken_is_refused() {
    let (sim, mm, _over) = impatient();
    let first = mm.vmalloc(&base(4 * PAGE)).unwrap();
    let entry = mm.kernel_tables().leaves(first).nth(2).unwrap();
    give_back(mm, first);
    let free = mm.memory().free;
    #[allow(unsafe_code)]
    // SAFETY: the table stays, and no range in use has the entry.
    let set = |word| unsafe { sim.store(entry.at, word) };
    set(Soft { kind: SoftKind::Other, payload: 1 }.word());
    let refused = mm.vmalloc(&base(4 * PAGE));
    assert_eq!(refused, Err(VmapError::Short(Short::Slot(Level::BASE))));
    set(0);
    mm.purge_vmalloc();
    assert_eq!(mm.memory().free, free, "the frames of the pages are free again");
}

/// Of the kernel's range 4 MiB are left, and of these all but two pages: at a multiple of 2 MiB
/// there is no room for a guard.
#[test]
fn addresses_that_a_leaf_is_short_of_are_counted() {
    let (_, mm, _over) = impatient();
    let half = mm.vmap().range().bytes().get() / 2;
    let device = |bytes| mm.ioremap(Pa::new(1 << 45), Bytes::new(bytes - PAGE), Caller(0)).unwrap();
    let (first, second) = (device(half), device(half - 2 * SIZE_2M));
    let single = mm.vmalloc(&base(PAGE)).unwrap();
    let mut got = None;
    counts(
        mm,
        "zeroed_bytes 4096, zero_extents 1, table_made 1, nr_vmalloc_pages 512, vmalloc_huge 1, \
         vmalloc_huge_fallback_address 1, vmap_leaf_4k 512",
        || got = mm.vmalloc(&huge(SIZE_2M)).ok(),
    );
    give_back(mm, got.unwrap());
    let none = Err(VmapError::Short(Short::Addresses(Bytes::new(2 * SIZE_2M + PAGE))));
    counts(mm, "vmalloc_huge 1, vmalloc_huge_fallback_address 1", || {
        assert_eq!(mm.vmalloc(&huge(2 * SIZE_2M)), none)
    });
    give_back(mm, single);
    [first, second].into_iter().for_each(|va| mm.iounmap(va).unwrap());
}

// Splits and moves.

/// Three folios: one is split; one is pinned, then loses pages, moves, and is split for it; one
/// holds nothing but zeros.
fn splits(n: u8, expected: [&str; 6]) {
    let [split, pinned, part, moved, shrunk, zeros] = expected;
    let (_, mm, id, _over) = world(only(n));
    let at = |nth: u64| Va::new(BASE + nth * SIZE_2M);
    for nth in 1..4 {
        write(mm, id, at(nth).get());
    }
    let into = |n| SplitInto { order: order(n), zeros: ZeroPieces::Keep };
    counts(mm, split, || _ = mm.split(id, at(1), into(2)).unwrap());
    let head = mm.frame_at(id, at(2)).unwrap();
    let pin = mm.reference(head).unwrap();
    counts(mm, pinned, || assert_eq!(mm.split(id, at(2), into(2)), Err(SplitError::Pinned(head))));
    drop(pin);
    counts(mm, "", || {
        assert!(matches!(mm.split(id, at(2), into(9)), Err(SplitError::Order { .. })))
    });
    let lose = |from: u64, pages: u64| {
        mm.advise(id, range(at(2).get() + from * PAGE, pages * PAGE), Advice::DontNeed).unwrap();
    };
    counts(mm, part, || lose(0, 5));
    // It is so already.
    counts(mm, "nr_tlb_local_flush_one 1", || lose(8, 1));
    counts(mm, moved, || _ = mm.relocate(head).unwrap());
    let shrink = |zeros_max| mm.shrink_deferred(Shrink { folios: 10, zeros_max });
    counts(mm, shrunk, || assert_eq!(shrink(None).split, 1));
    counts(mm, "", || assert_eq!(shrink(None).split, 0));
    counts(mm, zeros, || _ = shrink(Some(Pages::new(256))));
}

#[test]
fn a_split_is_counted_with_the_size_of_the_folio() {
    splits(
        4,
        [
            "nr_tlb_local_flush_one 16, nr_anon/2 4, nr_anon/4 -1, split/4 1",
            "split_failed/4 1",
            "nr_tlb_local_flush_one 5, \
             nr_anon_partially_mapped/4 1, split_deferred/4 1",
            "copied_bytes 65536, nr_tlb_local_flush_one 10, pgmigrate_success 16, \
             thp_migration_success 1",
            "nr_tlb_local_flush_one 10, nr_anon/4 -1, nr_anon_partially_mapped/4 -1, split/4 1",
            "",
        ],
    );
    splits(
        9,
        [
            "nr_tlb_local_flush_one 1, table_made 1, thp_split_page 1, nr_anon/2 128, \
             nr_anon/9 -1, split/9 1",
            "thp_split_page_failed 1, split_failed/9 1",
            "nr_tlb_local_flush_one 6, table_made 1, \
             thp_deferred_split_page 1, nr_anon_partially_mapped/9 1, split_deferred/9 1",
            "copied_bytes 2097152, nr_tlb_local_flush_all 1, pgmigrate_success 512, \
             thp_migration_success 1",
            "nr_tlb_local_flush_all 1, thp_split_page 1, nr_anon/9 -1, \
             nr_anon_partially_mapped/9 -1, split/9 1",
            "nr_tlb_local_flush_one 1, table_made 1, thp_split_page 1, \
             thp_underused_split_page 1, nr_anon/9 -1, split/9 1",
        ],
    );
}

/// A piece is partly mapped from the start where a page of it was unmapped before.
#[test]
fn a_piece_that_is_partly_mapped_waits_and_is_counted() {
    let (_, mm, id, _over) = world(only(4));
    write(mm, id, BASE + SIZE_2M);
    mm.unmap(id, range(BASE + SIZE_2M, PAGE)).unwrap();
    let into = SplitInto { order: order(2), zeros: ZeroPieces::Keep };
    counts(
        mm,
        "nr_tlb_local_flush_one 15, nr_anon/2 4, nr_anon_partially_mapped/2 1, \
         split_deferred/2 1, nr_anon/4 -1, nr_anon_partially_mapped/4 -1, split/4 1",
        || _ = mm.split(id, Va::new(BASE + SIZE_2M + PAGE), into).unwrap(),
    );
}

/// A folio that two CPUs have cached moves; there is no block; somebody gets a reference when its
/// entries are out of use already.
fn moves(n: u8, expected: [&str; 2]) {
    let [moved, stayed] = expected;
    let (machine, mm, id, over) = world(only(n));
    over.leaves("a reference that is never given back");
    let at = BASE + SIZE_2M;
    write(mm, id, at);
    machine.sim.on(cpu(1), || mm.switch(Some(id)).unwrap());
    let head = || mm.frame_at(id, Va::new(at)).unwrap();
    counts(mm, moved, || _ = mm.relocate(head()).unwrap());
    let frame = head();
    machine.sim.fault_plan().set(Failing::From(1));
    let none = Err(RelocateError::NoBlock(NoBlock { order: order(n) }));
    counts(mm, "alloc_fail 1", || assert_eq!(mm.relocate(frame), none));
    machine.sim.fault_plan().set(Failing::Nothing);
    machine.before_asking(move || core::mem::forget(mm.reference(frame).unwrap()));
    let pinned = Err(RelocateError::Stays(SplitError::Pinned(frame)));
    counts(mm, stayed, || assert_eq!(mm.relocate(frame), pinned));
}

#[test]
fn a_move_is_counted_by_pages_and_a_large_one_as_a_folio() {
    moves(
        0,
        [
            "copied_bytes 4096, nr_tlb_remote_flush 1, nr_tlb_remote_flush_received 1, \
             nr_tlb_local_flush_one 1, pgmigrate_success 1",
            "nr_tlb_remote_flush 1, nr_tlb_remote_flush_received 1, nr_tlb_local_flush_one 1, \
             pgmigrate_fail 1",
        ],
    );
    moves(
        4,
        [
            "copied_bytes 65536, nr_tlb_remote_flush 1, nr_tlb_remote_flush_received 1, \
             nr_tlb_local_flush_one 16, pgmigrate_success 16, thp_migration_success 1",
            "nr_tlb_remote_flush 1, nr_tlb_remote_flush_received 1, nr_tlb_local_flush_one 16, \
             pgmigrate_fail 16, thp_migration_fail 1",
        ],
    );
}

/// It is no matter when it turns out that somebody uses the folio.
#[test]
fn finding_z_a_move_that_is_refused_before_it_begins_is_counted() {
    for (n, stayed) in [(0, "pgmigrate_fail 1"), (4, "pgmigrate_fail 16, thp_migration_fail 1")] {
        let (_, mm, id, _over) = world(only(n));
        write(mm, id, BASE);
        let head = mm.frame_at(id, Va::new(BASE)).unwrap();
        let pin = mm.reference(head).unwrap();
        let pinned = Err(RelocateError::Stays(SplitError::Pinned(head)));
        counts(mm, stayed, || assert_eq!(mm.relocate(head), pinned));
        drop(pin);
    }
}

/// It lost a page once, wherever it goes.
#[test]
fn finding_z_a_folio_that_waits_to_be_split_and_moves_is_no_new_one() {
    for (n, moved) in [
        (
            4,
            "copied_bytes 65536, nr_tlb_local_flush_one 15, pgmigrate_success 16, \
             thp_migration_success 1",
        ),
        (
            9,
            "copied_bytes 2097152, nr_tlb_local_flush_all 1, pgmigrate_success 512, \
             thp_migration_success 1",
        ),
    ] {
        let (_, mm, id, _over) = world(only(n));
        let at = BASE + SIZE_2M;
        write(mm, id, at);
        mm.unmap(id, range(at, PAGE)).unwrap();
        let head = mm.frame_at(id, Va::new(at + PAGE)).unwrap();
        counts(mm, moved, || _ = mm.relocate(head).unwrap());
        assert_eq!(mm.deferred(), 1);
    }
}

/// A flush that is made on behalf of another one, before a conclusion is drawn from an absent
/// entry, is counted like any.
#[test]
fn finding_z_a_flush_on_behalf_of_another_one_is_counted_where_it_is_made() {
    let (machine, mm, id, _over) = world(Policy::BASE_ONLY);
    for n in 0..2 {
        machine.sim.on(cpu(n), || mm.switch(Some(id)).unwrap());
    }
    write(mm, id, BASE);
    let unmap = move || {
        counts(
            mm,
            "nr_tlb_remote_flush 1, \
             nr_tlb_remote_flush_received 1, nr_tlb_local_flush_all 1",
            || mm.unmap(id, page(5)).unwrap(),
        );
    };
    machine.before_asking(move || machine.sim.on(cpu(1), unmap));
    counts(
        mm,
        "copied_bytes 4096, nr_tlb_remote_flush 2, \
         nr_tlb_remote_flush_received 2, nr_tlb_local_flush_all 1, nr_tlb_local_flush_one 1, \
         pgmigrate_success 1",
        || _ = mm.relocate(mm.frame_at(id, Va::new(BASE)).unwrap()).unwrap(),
    );
}

// Compaction and collapse.

/// A space with two pages left in each of four blocks, and a manager without a free block.
fn sparse() -> (World<Meddler>, SpaceId, Vec<Frame>) {
    let (machine, mm, id, kept) = world(Policy::BASE_ONLY);
    (0..2048).for_each(|nth| _ = write(mm, id, BASE + nth * PAGE)); // frame after frame
    for nth in 0..8 {
        let gone = range(BASE + (nth * 256 + 1) * PAGE, 255 * PAGE);
        mm.advise(id, gone, Advice::DontNeed).unwrap();
    }
    ((machine, mm, kept), id, lend_blocks(mm))
}

#[test]
fn compaction_counts_blocks_and_pages() {
    let ((_, mm, _over), _, lent) = sparse();
    let one = CompactRequest { want: Want::One, ..CompactRequest::ALL };
    let all = || mm.compact(&CompactRequest::ALL, &mut []);
    counts(
        mm,
        "copied_bytes 8192, nr_tlb_local_flush_one 2, pgmigrate_success 2, compact_blocks 1, \
         compact_migrate_scanned 1024, compact_moved 2",
        || assert_eq!(mm.compact(&one, &mut []).blocks, 1),
    );
    counts(
        mm,
        "copied_bytes 16384, nr_tlb_local_flush_one 4, pgmigrate_success 4, compact_blocks 2, \
         compact_migrate_scanned 2048, compact_moved 4",
        || assert_eq!(all().blocks, 2),
    );
    counts(mm, "compact_migrate_scanned 1024", || assert_eq!(all().blocks, 0));
    take_back(mm, lent);
}

#[test]
fn who_waits_for_a_block_counts_the_wait() {
    let ((_, mm, _over), id, mut lent) = sparse();
    let mut got = None;
    counts(
        mm,
        "zeroed_bytes 12288, zero_extents 3, copied_bytes 8192, nr_tlb_local_flush_one 2, \
         table_made 1, alloc_fail 1, nr_vmalloc_pages 512, vmalloc_huge 1, \
         vmalloc_huge_fallback_block 1, vmalloc_huge_compact 1, vmalloc_huge_compact_success 1, \
         vmap_leaf_2m 1, pgmigrate_success 2, compact_stall 1, compact_success 1, \
         compact_blocks 1, compact_migrate_scanned 1024, compact_moved 2",
        || got = mm.vmalloc(&huge(SIZE_2M)).ok(),
    );
    mm.set_defrag(Defrag::Always);
    mm.set_policy(only(9));
    counts(
        mm,
        "pgfault 1, zeroed_bytes 2101248, zero_extents 3, copied_bytes 8192, \
         nr_tlb_local_flush_one 2, alloc_fail 1, pgmigrate_success 2, compact_stall 1, \
         compact_success 1, compact_blocks 1, compact_migrate_scanned 512, compact_moved 2, \
         anon_fault_alloc/9 1, nr_anon/9 1",
        || assert_eq!(write(mm, id, BASE + 5 * SIZE_2M), Outcome::Mapped(Order::SIZE_2M)),
    );
    // All that could be moved was.
    mm.compact(&CompactRequest::ALL, &mut []);
    lent.extend(lend_blocks(mm));
    let small =
        |nth: u64| assert_eq!(write(mm, id, BASE + nth * SIZE_2M), Outcome::Mapped(Order::BASE));
    counts(
        mm,
        "pgfault 1, zeroed_bytes 8192, zero_extents 2, table_made 1, alloc_fail 2, \
         compact_stall 1, compact_fail 1, compact_migrate_scanned 1536, anon_fault_alloc/0 1, nr_anon/0 1, \
         anon_fault_fallback/9 1",
        || small(6),
    );
    counts(
        mm,
        "pgfault 1, zeroed_bytes 8192, zero_extents 2, table_made 1, alloc_fail 2, \
         compact_deferred 1, anon_fault_alloc/0 1, nr_anon/0 1, anon_fault_fallback/9 1",
        || small(7),
    );
    let small = || give_back(mm, mm.vmalloc(&huge(SIZE_2M)).unwrap());
    counts(
        mm,
        "zeroed_bytes 8192, zero_extents 2, nr_tlb_remote_flush 1, \
         nr_tlb_remote_flush_received 1, nr_tlb_local_flush_all 1, table_made 2, alloc_fail 1, \
         vmalloc_huge 1, vmalloc_huge_fallback_block 1, vmalloc_huge_compact 1, \
         vmap_leaf_4k 512, vmap_purge 1, vmap_purged_pages 513, compact_stall 1, compact_fail 1, compact_migrate_scanned 1536",
        small,
    );
    counts(
        mm,
        "nr_tlb_remote_flush 1, nr_tlb_remote_flush_received 1, nr_tlb_local_flush_all 1, \
         alloc_fail 1, vmalloc_huge 1, vmalloc_huge_fallback_block 1, vmap_leaf_4k 512, \
         vmap_purge 1, vmap_purged_pages 513, compact_deferred 1",
        small,
    );
    give_back(mm, got.unwrap());
    take_back(mm, lent);
}

/// All memory is taken, but for every other page of one block; a folio of 16 pages is alone in
/// another one.
#[test]
fn a_folio_without_a_block_to_move_to_is_split_and_counted() {
    let (_, mm, id, _over) = world(Policy::BASE_ONLY);
    mm.advise(id, range(BASE, 4 * SIZE_2M), Advice::PopulateWrite).unwrap();
    write(mm, id, BASE + 5 * SIZE_2M - PAGE); // the table
    let frames = || (0..2048).map(|nth| (nth, mm.frame_at(id, page(nth).start()).unwrap()));
    let block = |frame: Frame| frame.get() / 512;
    let full = |number| frames().filter(|(_, frame)| block(*frame) == number).count() == 512;
    let full = frames().map(|(_, frame)| block(frame)).find(|number| full(*number)).unwrap();
    let orders = || Order::all().filter(|order| *order <= Order::SIZE_2M).rev();
    let lend = |order| std::iter::from_fn(move || mm.lend(order).ok().map(|frame| (frame, order)));
    let mut lent: Vec<(Frame, Order)> = orders().flat_map(lend).collect();
    let (nth, _) =
        lent.iter().enumerate().find(|(_, (_, order))| *order == Order::SIZE_2M).unwrap();
    let (frame, size_2m) = lent.remove(nth);
    mm.take_back(frame, size_2m).unwrap();
    mm.set_policy(only(4));
    assert_eq!(write(mm, id, BASE + 4 * SIZE_2M), Outcome::Mapped(order(4)));
    let odd = frames().filter(|(_, frame)| block(*frame) == full && frame.get() % 2 == 1);
    let odd: Vec<u64> = odd.map(|(nth, _)| nth).collect();
    odd.into_iter().for_each(|nth| mm.advise(id, page(nth), Advice::DontNeed).unwrap());
    counts(
        mm,
        "copied_bytes 65536, nr_tlb_local_flush_one 32, pgmigrate_success 16, \
         thp_migration_split 1, compact_blocks 1, compact_migrate_scanned 512, \
         compact_moved 16, nr_anon/0 16, nr_anon/4 -1, split/4 1",
        || assert_eq!(mm.compact(&CompactRequest::ALL, &mut []).blocks, 1),
    );
    lent.into_iter().for_each(|(frame, order)| mm.take_back(frame, order).unwrap());
}

#[test]
fn a_collapse_counts_its_folio_and_what_kept_it_from_one() {
    let (_, mm, id, _over) = world(Policy::BASE_ONLY);
    for nth in 0..511 {
        write(mm, id, BASE + nth * PAGE);
    }
    let at = Va::new(BASE);
    let collapse = |limits| mm.collapse(id, at, Order::SIZE_2M, limits);
    let limits = |none, shared| CollapseLimits {
        max_ptes_none: Pages::new(none),
        max_ptes_shared: Pages::new(shared),
    };
    mm.unmap(id, page(7)).unwrap();
    area(mm, id, BASE + 7 * PAGE, PAGE);
    counts(mm, "thp_scan_exceed_none_pte 1, collapse_exceed_none_pte/9 1", || {
        assert_eq!(collapse(limits(0, 512)), Err(CollapseError::Empty(Pages::new(1))))
    });
    let child = mm.fork(id).unwrap();
    counts(mm, "thp_scan_exceed_share_pte 1, collapse_exceed_shared_pte/9 1", || {
        assert_eq!(collapse(limits(512, 510)), Err(CollapseError::Shared(Pages::new(511))))
    });
    mm.end(child).unwrap();
    for nth in 0..512 {
        write(mm, id, BASE + nth * PAGE);
    }
    let lent = lend_blocks(mm);
    counts(
        mm,
        "zeroed_bytes 4096, zero_extents 1, alloc_fail 1, thp_collapse_alloc_failed 1, \
         collapse_alloc_failed/9 1",
        || assert_eq!(collapse(CollapseLimits::NONE), Err(CollapseError::NoMemory)),
    );
    take_back(mm, lent);
    let frame = mm.frame_at(id, page(3).start()).unwrap();
    let pin = mm.reference(frame).unwrap();
    let stays = Err(CollapseError::Stays(SplitError::Pinned(frame)));
    counts(mm, "zeroed_bytes 4096, zero_extents 1, pgmigrate_fail 1", || {
        assert_eq!(collapse(CollapseLimits::NONE), stays)
    });
    drop(pin);
    counts(
        mm,
        "zeroed_bytes 4096, zero_extents 1, copied_bytes 2097152, grace_periods 1, \
         nr_tlb_local_flush_all 9, table_freed 1, pgmigrate_success 512, thp_collapse_alloc 1, \
         nr_anon/0 -512, nr_anon/9 1, collapse_alloc/9 1",
        || collapse(CollapseLimits::NONE).unwrap(),
    );
    counts(mm, "", || {
        assert_eq!(collapse(CollapseLimits::NONE), Err(CollapseError::Collapsed(at)))
    });
}

/// Below 2 MiB there is no table to clear or to wait for, and no flush but those by which the pages
/// move and large folios are split.
#[test]
fn a_collapse_below_2_mib_counts_by_its_size() {
    let (_, mm, id, _over) = world(Policy::BASE_ONLY);
    mm.advise(id, row(0, 256), Advice::PopulateWrite).unwrap();
    let at = Va::new(BASE);
    let collapse = |n, limits| mm.collapse(id, at, order(n), limits);
    counts(
        mm,
        "copied_bytes 65536, nr_tlb_local_flush_one 16, pgmigrate_success 16, nr_anon/0 -16, \
         nr_anon/4 1, collapse_alloc/4 1",
        || collapse(4, CollapseLimits::NONE).unwrap(),
    );
    counts(mm, "", || {
        assert_eq!(collapse(4, CollapseLimits::NONE), Err(CollapseError::Collapsed(at)))
    });
    counts(
        mm,
        "copied_bytes 524288, nr_tlb_local_flush_all 2, nr_tlb_local_flush_one 16, \
         pgmigrate_success 128, nr_anon/0 -112, nr_anon/4 -1, split/4 1, nr_anon/7 1, \
         collapse_alloc/7 1",
        || collapse(7, CollapseLimits::NONE).unwrap(),
    );
    mm.advise(id, page(3), Advice::DontNeed).unwrap();
    let none = CollapseLimits { max_ptes_none: Pages::new(0), ..CollapseLimits::NONE };
    counts(mm, "collapse_exceed_none_pte/2 1", || {
        assert_eq!(collapse(2, none), Err(CollapseError::Empty(Pages::new(1))))
    });
    let child = mm.fork(id).unwrap();
    let shared = CollapseLimits { max_ptes_shared: Pages::new(2), ..CollapseLimits::NONE };
    counts(mm, "collapse_exceed_shared_pte/2 1", || {
        assert_eq!(collapse(2, shared), Err(CollapseError::Shared(Pages::new(3))))
    });
    mm.end(child).unwrap();
    let lent = lend_blocks(mm);
    let full: Vec<Frame> = std::iter::from_fn(|| mm.lend(order(3)).ok()).collect();
    write(mm, id, BASE + 3 * PAGE);
    for nth in 0..8 {
        write(mm, id, BASE + nth * PAGE);
    }
    counts(mm, "alloc_fail 1, collapse_alloc_failed/3 1", || {
        assert_eq!(collapse(3, CollapseLimits::NONE), Err(CollapseError::NoMemory))
    });
    full.into_iter().for_each(|frame| mm.take_back(frame, order(3)).unwrap());
    take_back(mm, lent);
}

/// The pages move by eight flushes; before the last one somebody gets a reference to the first
/// page, which is there already.
#[test]
fn a_collapse_that_ends_in_vain_counts_what_moved() {
    fn at_request(machine: &'static Meddler, nth: u64, act: impl FnOnce() + Send + 'static) {
        machine.before_asking(move || match nth {
            1 => act(),
            _ => at_request(machine, nth - 1, act),
        });
    }
    let (machine, mm, id, over) = world(Policy::BASE_ONLY);
    over.leaves("a reference that is never given back");
    mm.advise(id, range(BASE, SIZE_2M), Advice::PopulateWrite).unwrap();
    machine.sim.on(cpu(1), || mm.switch(Some(id)).unwrap());
    at_request(machine, 8, move || {
        let first = mm.frame_at(id, page(0).start()).unwrap();
        core::mem::forget(mm.reference(first).unwrap());
    });
    let changed = Err(CollapseError::Changed(Va::new(BASE)));
    counts(
        mm,
        "zeroed_bytes 4096, zero_extents 1, copied_bytes 2097152, nr_tlb_remote_flush 8, \
         nr_tlb_remote_flush_received 8, nr_tlb_local_flush_all 8, pgmigrate_success 512",
        || {
            assert_eq!(
                mm.collapse(id, Va::new(BASE), Order::SIZE_2M, CollapseLimits::NONE),
                changed
            )
        },
    );
    mm.audit(&[id]).unwrap();
}

// Spaces and tables.

#[test]
fn tables_are_counted_when_they_are_made_and_when_they_go() {
    let (_, mm, id, _over) = world(Policy::BASE_ONLY);
    let mut other = None;
    counts(mm, "zeroed_bytes 8192, zero_extents 2", || other = mm.create(None).ok());
    let other = other.unwrap();
    counts(mm, "zeroed_bytes 4096, zero_extents 1", || _ = area(mm, other, BASE, SIZE_2M));
    counts(
        mm,
        "pgfault 1, zeroed_bytes 16384, zero_extents 4, table_made 3, anon_fault_alloc/0 1, \
         nr_anon/0 1",
        || assert_eq!(write(mm, other, BASE), Outcome::Mapped(Order::BASE)),
    );
    counts(mm, "grace_periods 1, table_freed 2, nr_anon/0 -1", || {
        mm.unmap(other, range(BASE, SIZE_2M)).unwrap()
    });
    area(mm, other, BASE, SIZE_2M);
    write(mm, other, BASE);
    counts(mm, "grace_periods 3, table_freed 3, nr_anon/0 -1", || mm.end(other).unwrap());
    counts(mm, "", || mm.switch(None).unwrap());
    counts(mm, "switch_kept 1", || mm.switch(Some(id)).unwrap());
}
