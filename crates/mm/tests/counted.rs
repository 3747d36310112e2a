//! What the manager counts, exactly: of each small piece of work every counter that it moves, and by how much.
//!
//! A count is stated with all others that move beside it, so that one which is missing, doubled or out of place is seen. How
//! flushes are counted stands in `flushes`, what a CPU keeps of a space in `tags`.

use crate::common::meddler::Meddler;
use crate::common::*;
use foliant::fault::Orders;
use foliant::memmap::{Batch, Birth};
use foliant::pool::Budget;
use foliant::space::SpaceId;
use foliant::split::{RelocateError, SplitError};
use foliant::table::Paging;
use foliant::{Access, Event, Manager, NoBlock, Outcome, Policy, SizeEvent};
use foliant_machine::Machine;
use foliant_sim::{Config, Failing, Sim};
use foliant_units::{Bytes, Order, Pages, Va, VaRange};

const PAGE: u64 = 4096;
const MEGA: u64 = 2 * MB;

fn only(n: u8) -> Policy {
    Policy::always(Orders::of(Order::new(n).unwrap()))
}
fn page(nth: u64) -> VaRange {
    range(BASE + nth * PAGE, PAGE)
}

/// Every count with its name, that of a size with its order behind it.
fn totals(mm: &Manager<'_, impl Machine, impl Paging>) -> Vec<(String, u64)> {
    let events = Event::ALL.iter().map(|event| (event.label().to_string(), mm.total(*event)));
    let sizes = Order::all().flat_map(|order| {
        let stats = mm.size_stats(order);
        let name = move |event: SizeEvent| format!("{}/{}", event.label(), order.get());
        SizeEvent::ALL.iter().map(move |event| (name(*event), stats.get(*event)))
    });
    events.chain(sizes).collect()
}

/// `work` moves these counts, and no other ones.
#[track_caller]
fn counts(mm: &Manager<'_, impl Machine, impl Paging>, expected: &str, work: impl FnOnce()) {
    let before = totals(mm);
    work();
    let moved = totals(mm).into_iter().zip(before).filter_map(|((name, now), (_, then))| {
        let by = now.wrapping_sub(then) as i64;
        (by != 0).then(|| format!("{name} {by}"))
    });
    let moved = moved.collect::<Vec<_>>().join(", ");
    assert_eq!(moved, expected);
}

/// A space that one CPU runs, with tables down to those of pages for 2 MiB at `BASE`, and to those of leaves for 1 GiB; all
/// descriptors are there.
fn world(policy: Policy) -> (&'static Meddler, &'static Mm<'static, Meddler>, SpaceId) {
    let (machine, mm) = meddled(2, 64, Policy::BASE_ONLY);
    mm.describe_all().unwrap();
    let id = mm.create(None).unwrap();
    for cpu in mm.cpus() {
        machine.sim.on(cpu, || mm.online());
    }
    mm.switch(Some(id)).unwrap();
    area(mm, id, BASE, 32 * MB);
    store(&machine.sim, mm, id, BASE + 511 * PAGE, 1);
    mm.set_policy(policy);
    (machine, mm, id)
}
fn write<M: Machine>(mm: &Mm<'_, M>, id: SpaceId, va: u64) -> Outcome {
    mm.fault(id, Va::new(va), Access::Write)
}

/// Without a free frame, and with a charge that is at its limit.
#[test]
fn finding_new_from_a_page_there_is_no_step_down() {
    let (machine, mm, id) = world(Policy::BASE_ONLY);
    let plan = machine.sim.fault_plan();
    plan.set(Failing::From(1));
    counts(mm, "pgfault 1, alloc_fail 1", || assert_eq!(write(mm, id, BASE), Outcome::OutOfMemory));
    mm.set_policy(only(9));
    counts(mm, "pgfault 1, alloc_fail 2, anon_fault_fallback/9 1", || {
        assert_eq!(write(mm, id, BASE + 2 * MEGA), Outcome::OutOfMemory)
    });
    plan.set(Failing::Nothing);
    mm.set_policy(Policy::BASE_ONLY);
    // Two frames for itself, one for its area, three tables, and one page.
    let poor = mm.create(Some(Pages::new(7))).unwrap();
    area(mm, poor, BASE, 4 * MB);
    write(mm, poor, BASE);
    counts(mm, "pgfault 1", || assert_eq!(write(mm, poor, BASE + PAGE), Outcome::OverLimit));
    finish(&machine.sim, mm, &[id, poor]);
}

/// The second time nothing is had any more.
#[test]
fn finding_new_a_batch_without_a_page_is_none() {
    let (machine, mm, id) = world(Policy::BASE_ONLY);
    let all = || drop(mm.resize_pool(Order::MEGA, 1000, Budget::ALL).unwrap());
    counts(mm, "alloc_fail 2, hugetlb_batch 1, hugetlb_lock 6", all);
    counts(mm, "alloc_fail 1, hugetlb_lock 4", all);
    mm.resize_pool(Order::MEGA, 0, Budget::ALL).unwrap();
    finish(&machine.sim, mm, &[id]);
}

#[test]
fn finding_new_a_gibibyte_is_512_blocks_whose_descriptors_go() {
    let sim = Sim::new(Config::free(2, Bytes::new(3 << 30))).unwrap();
    let mm = manager(&sim, Policy::BASE_ONLY);
    let memmap = mm.memmap();
    let mut batch = Batch::new(&memmap);
    counts(
        &mm,
        "zeroed_bytes 40960, zero_extents 10, table_made 9, nr_memmap_pages 2, \
         hugetlb_optimized 1, hugetlb_born_optimized 1",
        || batch.push(memmap.claim(Order::GIGA, Birth::Folded).unwrap()).unwrap(),
    );
    counts(
        &mm,
        "grace_periods 1, nr_tlb_local_flush_all 1, nr_memmap_pages -1, memmap_released 512, \
         memmap_flush_release 1, memmap_grace_periods 1",
        || assert_eq!(memmap.release(&mut batch).absent, 1),
    );
}

/// A folio that two CPUs have cached moves; there is no block; somebody gets a reference when its entries are out of use already.
fn moves(n: u8, expected: [&str; 2]) {
    let [moved, stayed] = expected;
    let (machine, mm, id) = world(only(n));
    let at = BASE + MEGA;
    write(mm, id, at);
    machine.sim.on(cpu(1), || mm.switch(Some(id)).unwrap());
    let head = || mm.frame_at(id, Va::new(at)).unwrap();
    counts(mm, moved, || drop(mm.relocate(head()).unwrap()));
    let frame = head();
    machine.sim.fault_plan().set(Failing::From(1));
    let order = Order::new(n).unwrap();
    let none = Err(RelocateError::NoBlock(NoBlock { order }));
    counts(mm, "alloc_fail 1", || assert_eq!(mm.relocate(frame), none));
    machine.sim.fault_plan().set(Failing::Nothing);
    machine.before_asking(move || core::mem::forget(mm.reference(frame).unwrap()));
    let pinned = Err(RelocateError::Stays(SplitError::Pinned(frame)));
    counts(mm, stayed, || assert_eq!(mm.relocate(frame), pinned));
}

/// It is no matter when it turns out that somebody uses the folio.
#[test]
fn finding_new_a_move_that_is_refused_before_it_begins_is_counted() {
    for (n, stayed) in [(0, "pgmigrate_fail 1"), (4, "pgmigrate_fail 16, thp_migration_fail 1")] {
        let (machine, mm, id) = world(only(n));
        write(mm, id, BASE);
        let head = mm.frame_at(id, Va::new(BASE)).unwrap();
        let pin = mm.reference(head).unwrap();
        let pinned = Err(RelocateError::Stays(SplitError::Pinned(head)));
        counts(mm, stayed, || assert_eq!(mm.relocate(head), pinned));
        drop(pin);
        finish(&machine.sim, mm, &[id]);
    }
}

/// It lost a page once, wherever it goes.
#[test]
fn finding_new_a_folio_that_waits_to_be_split_and_moves_is_no_new_one() {
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
        let (machine, mm, id) = world(only(n));
        let at = BASE + MEGA;
        write(mm, id, at);
        mm.unmap(id, range(at, PAGE)).unwrap();
        let head = mm.frame_at(id, Va::new(at + PAGE)).unwrap();
        counts(mm, moved, || drop(mm.relocate(head).unwrap()));
        assert_eq!(mm.deferred(), 1);
        finish(&machine.sim, mm, &[id]);
    }
}

/// A flush that is made on behalf of another one, before a conclusion is drawn from an absent entry, is counted like any.
#[test]
fn finding_new_a_flush_on_behalf_of_another_one_is_counted_where_it_is_made() {
    let (machine, mm, id) = world(Policy::BASE_ONLY);
    for n in 0..2 {
        machine.sim.on(cpu(n), || mm.switch(Some(id)).unwrap());
    }
    write(mm, id, BASE);
    let unmap = move || {
        counts(
            mm,
            "zeroed_bytes 4096, zero_extents 1, nr_tlb_remote_flush 1, \
             nr_tlb_remote_flush_received 1, nr_tlb_local_flush_all 1",
            || mm.unmap(id, page(5)).unwrap(),
        );
    };
    machine.before_asking(move || machine.sim.on(cpu(1), unmap));
    counts(
        mm,
        "zeroed_bytes 4096, zero_extents 1, copied_bytes 4096, nr_tlb_remote_flush 2, \
         nr_tlb_remote_flush_received 2, nr_tlb_local_flush_all 1, nr_tlb_local_flush_one 1, \
         pgmigrate_success 1",
        || drop(mm.relocate(mm.frame_at(id, Va::new(BASE)).unwrap()).unwrap()),
    );
    finish(&machine.sim, mm, &[id]);
}
