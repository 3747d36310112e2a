//! Compaction: how many blocks come back, what stands in the way, and that no byte is lost.

use crate::common::*;
use foliant::compact::{CompactRequest, Effort, End, Fragmentation, Obstacle, Want, Why};
use foliant::fault::{Defrag, Orders};
use foliant::manager::{Setup, VmapSetup};
use foliant::pool::{Budget, ResizeEnd};
use foliant::space::{Flags, MapRequest, Place, SpaceId};
use foliant::split::MoveGrain;
use foliant::vmap::Request;
use foliant::{Access, Event, Outcome, Policy, SizeEvent};
use foliant_sim::{Failing, Sim};
use foliant_units::{Bytes, Frame, Nanos, Order, Va};

const NOBODY: Obstacle = Obstacle { block: Frame::new(0), frame: Frame::new(0), why: Why::Busy };

/// A generator of random numbers, the same ones each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn percent(&mut self, n: u64) -> bool {
        self.next() % 100 < n
    }
}

/// Single pages fill `percent` of `megabytes`, scattered: all of it is filled, and the others are
/// given back.
fn scattered(sim: &Sim, mm: &Mm<'_>, megabytes: u64, percent: u64) -> (SpaceId, Vec<u64>) {
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(mm, id, BASE, megabytes * MB);
    let pages = megabytes * MB / PAGE;
    for page in 0..pages {
        store(sim, mm, id, BASE + page * PAGE, page + 1);
    }
    let mut random = Random(7 + percent);
    let (kept, gone): (Vec<u64>, Vec<u64>) = (0..pages).partition(|_| random.percent(percent));
    for page in gone {
        mm.unmap(id, range(BASE + page * PAGE, PAGE)).unwrap();
    }
    (id, kept)
}
fn check(sim: &Sim, mm: &Mm<'_>, id: SpaceId, kept: &[u64]) {
    for page in kept {
        assert_eq!(load(sim, mm, id, BASE + page * PAGE), page + 1, "page {page}");
    }
}
/// Free blocks of 2 MiB, those within larger ones included.
fn blocks(mm: &Mm<'_>) -> u64 {
    mm.free_blocks().within(Order::SIZE_2M)
}

#[test]
fn half_of_memory_in_scattered_pages_becomes_blocks_again() {
    let sim = sim(2, 128);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let (id, kept) = scattered(&sim, &mm, 120, 50);
    let ideal = mm.memory().free.get() / 512;
    let before = blocks(&mm);
    assert!(before * 4 < ideal, "{before} of {ideal}: it is fragmented");
    let done = mm.compact(&CompactRequest::ALL, &mut []);
    let after = blocks(&mm);
    assert!(after * 100 >= ideal * 95, "{after} of {ideal} blocks: {done:?}");
    assert_eq!((done.blocks, done.end), (after - before, End::Through));
    assert_eq!((done.moved, done.pinned, done.stayed), (done.pages, 0, 0));
    assert_eq!(mm.total(Event::PgMigrateSuccess), done.pages);
    mm.audit(&[id]).unwrap();
    check(&sim, &mm, id, &kept);
}

/// A window is 1 GiB: with one page in a hundred pinned hardly a block is without a pin.
#[test]
fn what_is_pinned_stays_and_is_named() {
    let sim = sim(2, 128);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let (id, kept) = scattered(&sim, &mm, 120, 50);
    let mut random = Random(99);
    let pinned: Vec<_> = kept.iter().filter(|_| random.percent(1)).collect();
    let frame = |page: &&u64| mm.frame_at(id, Va::new(BASE + **page * PAGE)).unwrap();
    let pins: Vec<_> = pinned.iter().map(|page| mm.reference(frame(page)).unwrap()).collect();
    let mut with_pin: Vec<u64> = pins.iter().map(|pin| pin.head().get() / 512).collect();
    with_pin.sort_unstable();
    with_pin.dedup();
    let mut obstacles = [NOBODY; 64];
    let done = mm.compact(&CompactRequest::ALL, &mut obstacles);
    assert!(done.pinned > 0 && done.stuck <= 64, "{done:?}");
    for obstacle in &obstacles[..done.stuck as usize] {
        let pin = pins.iter().any(|pin| pin.head() == obstacle.frame);
        assert_eq!(obstacle.why == Why::Pinned, pin, "{obstacle}");
    }
    // Every block that could be emptied was: what is not free by now holds a pin, or what cannot
    // move, or is full.
    let ideal = mm.memory().free.get() / 512;
    let without = 60 - with_pin.len() as u64;
    assert!(blocks(&mm) + 2 >= ideal.min(without), "{done:?}, {ideal} {without}");
    for (page, pin) in pinned.iter().zip(&pins) {
        assert_eq!(frame(page), pin.head(), "it stayed");
    }
    check(&sim, &mm, id, &kept);
    drop(pins);
    let again = mm.compact(&CompactRequest::ALL, &mut []);
    let ideal = mm.memory().free.get() / 512;
    assert_eq!(again.pinned, 0);
    assert!(blocks(&mm) * 100 >= ideal * 95, "{again:?}");
    check(&sim, &mm, id, &kept);
}

#[test]
fn a_budget_is_kept_and_one_block_is_enough() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let (id, kept) = scattered(&sim, &mm, 56, 40);
    let few =
        CompactRequest { effort: Effort { folios: 10, ..Effort::ALL }, ..CompactRequest::ALL };
    let done = mm.compact(&few, &mut []);
    assert_eq!((done.moved, done.end), (10, End::Spent));
    let no_time = Effort { time: Nanos(0), ..Effort::ALL };
    let done = mm.compact(&CompactRequest { effort: no_time, ..CompactRequest::ALL }, &mut []);
    assert_eq!((done.moved, done.end), (0, End::Spent));
    let before = blocks(&mm);
    let one = CompactRequest { want: Want::One, ..CompactRequest::ALL };
    let done = mm.compact(&one, &mut []);
    assert_eq!((done.blocks, done.end), (1, End::Enough));
    assert_eq!(blocks(&mm), before + 1);
    check(&sim, &mm, id, &kept);
}

/// Folios of four sizes: each goes to a block of its size, or becomes pages where there is none.
#[test]
fn large_folios_move_too() {
    let sim = sim(2, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 64 * MB);
    let mut random = Random(3);
    let mut at = 0;
    let mut starts = Vec::new();
    while at < 48 * MB {
        let order = Order::new([0, 2, 4, 7][random.next() as usize % 4]).unwrap();
        at = at.next_multiple_of(order.bytes().get());
        mm.set_policy(Policy::always(Orders::of(order)));
        store(&sim, &mm, id, BASE + at, at + 1);
        starts.push((at, order.bytes().get()));
        at += order.bytes().get();
    }
    let (kept, gone): (Vec<_>, Vec<_>) = starts.into_iter().partition(|_| random.percent(40));
    for (at, bytes) in gone {
        mm.unmap(id, range(BASE + at, bytes)).unwrap();
    }
    let ideal = mm.memory().free.get() / 512;
    let done = mm.compact(&CompactRequest::ALL, &mut []);
    assert!(done.moved < done.pages, "large ones among them: {done:?}");
    assert!(blocks(&mm) + 2 >= ideal, "{} of {ideal}: {done:?}", blocks(&mm));
    mm.audit(&[id]).unwrap();
    for (at, _) in kept {
        assert_eq!(load(&sim, &mm, id, BASE + at), at + 1);
    }
}

/// Another CPU runs the space and has every page cached: a flush for each folio, or one for many.
#[test]
fn the_grain_is_what_shootdowns_go_by() {
    for (grain, folios) in [(1, 1), (16, 16), (64, 64)] {
        let sim = sim(2, 64);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let (id, kept) = scattered(&sim, &mm, 56, 25);
        sim.on(cpu(1), || {
            mm.online();
            mm.switch(Some(id)).unwrap();
            check(&sim, &mm, id, &kept);
        });
        let before = mm.total(Event::Shootdown);
        let grain = MoveGrain::new(grain).unwrap();
        let one = CompactRequest { want: Want::One, effort: Effort::ALL, grain };
        let done = mm.compact(&one, &mut []);
        assert_eq!(done.blocks, 1);
        assert_eq!(mm.total(Event::Shootdown) - before, done.moved.div_ceil(folios));
        check(&sim, &mm, id, &kept);
    }
}

#[test]
fn the_index_tells_fragmentation_from_want_of_memory() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    assert_eq!(mm.fragmentation(Order::SIZE_2M), Fragmentation::Free);
    let (id, _) = scattered(&sim, &mm, 58, 50);
    while mm.free_blocks().largest() >= Some(Order::SIZE_2M) {
        mm.lend(Order::SIZE_2M).unwrap();
    }
    let Fragmentation::Index(index) = mm.fragmentation(Order::SIZE_2M) else {
        panic!("none is free")
    };
    assert!((900..=1000).contains(&index), "{index}");
    assert_eq!(mm.fragmentation(Order::BASE), Fragmentation::Free);
    mm.audit(&[id]).unwrap();
}

/// Between the look at a window and the turn of a block that block has become a folio of 2 MiB, by
/// a fault or a collapse: it is neither taken apart nor moved.
#[test]
fn a_block_that_became_a_huge_folio_meanwhile_stays_one() {
    let (machine, mm, _over) = meddled(1, 16, Policy::BASE_ONLY);
    let sim = &machine.sim;
    let (id, _) = scattered(sim, mm, 10, 30);
    let huge: Vec<u64> = (0..8).map(|nth| BASE + (1 << 30) + nth * 2 * MB).collect();
    area(mm, id, huge[0], 16 * MB);
    machine.at_yield({
        let huge = huge.clone();
        move || {
            mm.unmap(id, range(BASE, 10 * MB)).unwrap();
            mm.set_policy(Policy::always(Orders::of(Order::SIZE_2M)));
            huge.iter().for_each(|va| _ = store(&machine.sim, mm, id, *va, *va));
        }
    });
    let done = mm.compact(&CompactRequest::ALL, &mut []);
    let made = mm.size_stats(Order::SIZE_2M).get(SizeEvent::AnonFaultAlloc);
    assert!(made >= 4 && done.stuck > 0, "{made} huge folios, and sources among them: {done:?}");
    assert_eq!(mm.size_stats(Order::SIZE_2M).get(SizeEvent::NrAnon), made);
    let split = [Event::ThpMigrationSplit, Event::ThpMigrationSuccess].map(|event| mm.total(event));
    assert_eq!(split, [0, 0]);
    huge.iter().for_each(|va| assert_eq!(load(sim, mm, id, *va), *va));
    mm.audit(&[id]).unwrap();
}

/// No destination is to be had.
#[test]
fn nothing_is_moved_to_nowhere() {
    let sim = sim(1, 16);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let (id, _) = scattered(&sim, &mm, 12, 2);
    sim.fault_plan().set(Failing::From(1));
    assert_eq!(mm.compact(&CompactRequest::ALL, &mut []).moved, 0);
    sim.fault_plan().set(Failing::Nothing);
    finish(&sim, &mm, &[id]);
}

/// Whichever destination is refused: folios are where they were or moved, and every frame is
/// accounted for.
#[test]
fn a_destination_that_is_refused_leaves_no_trace() {
    for k in 1.. {
        let sim = sim(1, 16);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let (id, kept) = scattered(&sim, &mm, 12, 2);
        sim.fault_plan().set(Failing::Kth(k));
        let done = mm.compact(&CompactRequest::ALL, &mut []);
        let refused = sim.fault_plan().refused();
        sim.fault_plan().set(Failing::Nothing);
        mm.audit(&[id]).unwrap();
        check(&sim, &mm, id, &kept);
        assert_eq!(done.moved, mm.total(Event::PgMigrateSuccess), "k = {k}");
        finish(&sim, &mm, &[id]);
        if refused == 0 {
            // A block for each folio that moves, and nothing else.
            assert_eq!(k - 1, done.moved);
            assert!(done.moved > 25, "{done:?}");
            return;
        }
    }
}

/// Whichever allocation of a request for kernel memory is refused that has memory compacted: it is
/// served by smaller leaves or refused, and gives everything back.
#[test]
fn kernel_memory_that_waited_leaves_no_trace() {
    for k in 1.. {
        let sim = sim(1, 16);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let (id, kept) = scattered(&sim, &mm, 12, 5);
        let mut lent = Vec::new();
        while mm.free_blocks().largest() >= Some(Order::SIZE_2M) {
            lent.push(mm.lend(Order::SIZE_2M).unwrap());
        }
        sim.fault_plan().set(Failing::Kth(k));
        let area = mm.vmalloc(&Request::of(Bytes::new(2 * MB)).huge());
        let refused = sim.fault_plan().refused();
        sim.fault_plan().set(Failing::Nothing);
        mm.audit(&[id]).unwrap();
        check(&sim, &mm, id, &kept);
        area.iter().for_each(|area| mm.vfree(area.start()).unwrap());
        mm.purge_vmalloc();
        lent.into_iter().for_each(|frame| mm.take_back(frame, Order::SIZE_2M).unwrap());
        finish(&sim, &mm, &[id]);
        if refused == 0 {
            assert!(area.is_ok());
            assert_eq!(mm.vmalloc_counters().compactions, [1, 1]);
            assert!(k > 10, "k = {k}");
            return;
        }
    }
}

/// Faults for 2 MiB where there is no block: each of the five words of `defrag`.
#[test]
fn a_fault_waits_for_compaction_where_the_switch_says_so() {
    for (defrag, flags, gets) in [
        (Defrag::Always, Flags::NONE, true),
        (Defrag::Madvise, Flags::NONE, false),
        (Defrag::Madvise, Flags::HUGEPAGE, true),
        (Defrag::DeferMadvise, Flags::HUGEPAGE, true),
        (Defrag::Defer, Flags::HUGEPAGE, false),
        (Defrag::Never, Flags::HUGEPAGE, false),
    ] {
        let sim = sim(1, 32);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let (id, kept) = scattered(&sim, &mm, 28, 40);
        let mut lent = Vec::new();
        while mm.free_blocks().largest() >= Some(Order::SIZE_2M) {
            lent.push(mm.lend(Order::SIZE_2M).unwrap());
        }
        mm.set_policy(Policy::always(Orders::of(Order::SIZE_2M)));
        mm.set_defrag(defrag);
        let place = Place::NoReplace(Va::new(BASE + (1 << 30)));
        let flags = Flags::READ_WRITE.with(flags);
        let bytes = Order::SIZE_2M.bytes();
        let range = mm.map(id, &MapRequest { place, bytes, flags, tag: 0 }).unwrap();
        let outcome = mm.fault(id, range.start(), Access::Write);
        let order = if gets { Order::SIZE_2M } else { Order::BASE };
        assert_eq!(outcome, Outcome::Mapped(order), "{defrag} {flags:?}");
        let stalls = [Event::CompactStall, Event::CompactSuccess].map(|event| mm.total(event));
        assert_eq!(stalls, [u64::from(gets); 2], "{defrag}");
        let fell = mm.size_stats(Order::SIZE_2M).get(SizeEvent::AnonFaultFallback);
        assert_eq!(fell, u64::from(!gets), "{defrag}");
        // What was put off for later is done later.
        let later = mm.compact_background(Effort::ALL).map(|done| done.blocks > 0);
        assert_eq!(later, (defrag == Defrag::Defer).then_some(true), "{defrag}");
        check(&sim, &mm, id, &kept);
        lent.into_iter().for_each(|frame| mm.take_back(frame, Order::SIZE_2M).unwrap());
    }
}

/// With everything pinned an attempt is in vain; the more were, the more are put off.
#[test]
fn what_was_in_vain_is_put_off() {
    let sim = sim(1, 16);
    let mm = manager(&sim, Policy::always(Orders::of(Order::SIZE_2M)));
    mm.set_defrag(Defrag::Always);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 64 * MB);
    let mut lent = Vec::new();
    while let Ok(frame) = mm.lend(Order::SIZE_2M) {
        lent.push(frame);
    }
    for nth in 0..20 {
        store(&sim, &mm, id, BASE + nth * 2 * MB, nth);
    }
    let totals =
        [Event::CompactStall, Event::CompactFail, Event::CompactDeferred].map(|e| mm.total(e));
    // Attempts at requests 1, 3, 7 and 15.
    assert_eq!(totals, [4, 4, 16]);
    lent.into_iter().for_each(|frame| mm.take_back(frame, Order::SIZE_2M).unwrap());
}

#[test]
fn a_pool_gets_the_blocks_that_there_could_be() {
    for defrag in [Defrag::Never, Defrag::Madvise] {
        let sim = sim(1, 32);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let (id, kept) = scattered(&sim, &mm, 28, 40);
        mm.set_defrag(defrag);
        let (before, ideal) = (blocks(&mm), mm.memory().free.get() / 512);
        let done = mm.resize_pool(Order::SIZE_2M, 100, Budget::ALL).unwrap();
        assert_eq!(done.end, ResizeEnd::NoMemory);
        match defrag {
            Defrag::Never => assert_eq!(done.reached, before),
            _ => assert!(done.reached + 1 >= ideal, "{done:?} of {ideal}, {before} at first"),
        }
        check(&sim, &mm, id, &kept);
        mm.resize_pool(Order::SIZE_2M, 0, Budget::ALL).unwrap();
    }
}

/// A leaf of kernel memory for which no block is free, with each budget: blocks that were asked
/// for, that were made, and leaves.
#[test]
fn kernel_memory_waits_for_compaction_no_longer_than_its_budget() {
    let few = Effort { folios: 5, ..Effort::ALL };
    let no_time = Effort { time: Nanos(1), ..Effort::ALL };
    let cases = [
        (Effort::ALL, 1, [1, 1], true),
        (Effort::KERNEL, 3, [1, 1], true),
        (few, 1, [1, 0], false),
        (no_time, 1, [1, 0], false),
        (Effort::NONE, 1, [0, 0], false),
    ];
    for (effort, blocks, compactions, gets) in cases {
        let sim = sim(1, 32);
        let vmap = VmapSetup { effort, ..VmapSetup::DEFAULT };
        let setup = Setup { vmap, ..Setup::of(&sim.config().memory, Policy::BASE_ONLY) };
        let mm: AuditedMm<'_> = audited(&sim, &setup);
        let (id, kept) = scattered(&sim, &mm, 28, 30);
        let mut lent = Vec::new();
        while mm.free_blocks().largest() >= Some(Order::SIZE_2M) {
            lent.push(mm.lend(Order::SIZE_2M).unwrap());
        }
        let size = Bytes::new(blocks * 2 * MB);
        let area = mm.vmalloc(&Request::of(size).huge()).unwrap();
        let counters = mm.vmalloc_counters();
        assert_eq!(counters.compactions, compactions, "{effort:?}");
        assert_eq!(counters.leaves[1], if gets { blocks } else { 0 }, "{effort:?}");
        // Once short, and no second time where it was in vain.
        assert_eq!((counters.huge_tried, counters.fallbacks), (1, [1, 0, 0, 0]), "{effort:?}");
        let moved = mm.total(Event::PgMigrateSuccess);
        assert!(moved <= effort.folios && (moved > 0) == (gets || effort == few), "{moved}");
        check(&sim, &mm, id, &kept);
        mm.vfree(area.start()).unwrap();
        lent.into_iter().for_each(|frame| mm.take_back(frame, Order::SIZE_2M).unwrap());
        mm.audit(&[id]).unwrap();
    }
}
