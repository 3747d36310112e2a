//! The traps of system H that concern pools; those of the descriptor array are in `traps_h`.

use crate::common::recorder::Step;
use crate::common::*;
use foliant::frame::{Kind, word_at};
use foliant::manager::{Poisoned, Setup};
use foliant::pool::{Budget, Folding, ResizeEnd, Resized};
use foliant::space::{Advice, Flags, MapRequest, Place, SpaceId};
use foliant::table::{Entry, Half, Paging, X86_64};
use foliant::{Event, Outcome, Policy};
use foliant_sim::{Config, Failing, Sim};
use foliant_units::{Bytes, Frame, FrameRange, Node, Order, Pages, Va};

const SIZE_2M: Order = Order::SIZE_2M;
const HUGE: u64 = 2 * MB;

fn online(sim: &Sim, mm: &Mm<'_>) {
    for cpu in mm.cpus() {
        sim.on(cpu, || mm.online());
    }
}
fn heads(mm: &Mm<'_>) -> Vec<Frame> {
    let frames = mm.ranges().flat_map(|range| range.iter()).filter(|f| f.get().is_multiple_of(512));
    frames.filter(|frame| mm.identity(*frame).kind() == Kind::Huge).collect()
}
fn resize(mm: &Mm<'_>, want: u64) {
    let expect = Resized { reached: want, end: ResizeEnd::Reached };
    assert_eq!(mm.resize_pool(SIZE_2M, want, Budget::ALL), Ok(expect));
}
fn huge_area(mm: &Mm<'_>, id: SpaceId, pages: u64) {
    let flags = Flags::READ_WRITE.with(Flags::HUGE_2M);
    let place = Place::NoReplace(Va::new(BASE));
    mm.map(id, &MapRequest { place, bytes: Bytes::new(pages * HUGE), flags, tag: 0 }).unwrap();
}

/// Where there is no memory to unfold with, a pool shrinks all the same, in as many turns as there
/// are batches; no page is left in it as surplus, and none is lost.
#[test]
fn tr_h5_a_pool_shrinks_without_memory_in_one_turn() {
    for refused in [Failing::OneIn { every: 1, seed: 0 }, Failing::OneIn { every: 2, seed: 3 }] {
        let sim = sim(3, 64);
        let mm = manager(&sim, Policy::BASE_ONLY);
        online(&sim, &mm);
        mm.describe_all().unwrap();
        mm.set_folding(Folding::On);
        resize(&mm, 12);
        assert_eq!(mm.total(Event::BornFolded), 0);
        sim.fault_plan().set(refused);
        let before = [Event::Shootdown, Event::PoolBatch].map(|event| mm.total(event));
        resize(&mm, 0);
        let after = [Event::Shootdown, Event::PoolBatch].map(|event| mm.total(event));
        assert!(after[0] - before[0] <= 2 && after[1] - before[1] == 1);
        assert!(mm.total(Event::UnfoldFailed) > 0, "unfolding takes memory, and there was none");
        sim.fault_plan().set(Failing::Nothing);
        assert_eq!(mm.pool(SIZE_2M).unwrap(), Default::default());
        assert!(heads(&mm).is_empty());
        mm.audit(&[]).unwrap();
        resize(&mm, 12);
        assert!(sim.finish().is_empty(), "{:#?}", sim.finish());
    }
}

/// Frames for tails come from other nodes where the page's own is full.
#[test]
fn tr_h6_a_pool_of_a_full_node_shrinks() {
    let mut config = Config::seeded(2, Bytes::new(MB), 1);
    config.memory = [0, 1 << 18]
        .map(|start| FrameRange::new(Frame::new(start), Pages::new(32 * 256)).unwrap())
        .to_vec();
    let sim = Sim::new(config).unwrap();
    let memory = sim.config().memory.clone();
    let nodes = [Node(0), Node(1)];
    let setup = Setup { nodes: &nodes, ..Setup::of(&memory, Policy::BASE_ONLY) };
    let mm: AuditedMm<'_> = audited(&sim, &setup);
    online(&sim, &mm);
    mm.describe_all().unwrap();
    mm.set_folding(Folding::On);
    let pools = mm.pools();
    let got = pools.resize_on(SIZE_2M, Node(1), 1 << 20, Budget::ALL).unwrap();
    assert!(got.end == ResizeEnd::NoMemory && got.reached >= 10, "{got:?}");
    // What is left of the node goes too.
    let mut taken = Vec::new();
    while let Ok(frame) = mm.lend(Order::BASE) {
        taken.push(frame);
    }
    let on = |frame: &Frame| mm.folios().node_of(*frame) == Some(Node(1));
    for frame in taken.iter().filter(|frame| !on(frame)) {
        mm.take_back(*frame, Order::BASE).unwrap();
    }
    let gone = got.reached;
    let shrunk = pools.resize_on(SIZE_2M, Node(1), gone - 4, Budget::ALL).unwrap();
    assert_eq!(shrunk, Resized { reached: gone - 4, end: ResizeEnd::Reached });
    assert_eq!(mm.total(Event::Unfolded), 4);
    assert_eq!(mm.pool(SIZE_2M).unwrap().surplus_hugepages, 0);
    mm.audit(&[]).unwrap();
}

/// A page is linked into its list, and counted, after the last flush of its batch.
#[test]
fn tr_h8_pages_are_listed_after_the_flush() {
    let (recorder, mm, _over) = recorded(3, 64, Policy::BASE_ONLY);
    online(&recorder.sim, mm);
    mm.describe_all().unwrap();
    mm.set_folding(Folding::On);
    recorder.take();
    resize(mm, 9);
    let log = recorder.take();
    let flushed = log.iter().rposition(|step| matches!(step, Step::Waited)).unwrap();
    let array = X86_64::<4>::half(Half::Kernel).0;
    let links: Vec<Va> =
        heads(mm).iter().flat_map(|head| [2, 3].map(|word| word_at(array, *head, word))).collect();
    assert_eq!(links.len(), 18);
    let linked = |step: &Step| matches!(step, Step::Word { va } if links.contains(va));
    assert!(!log[..flushed].iter().any(linked), "a link is written before the last flush");
    assert!(log[flushed..].iter().filter(|step| linked(step)).count() >= 18);
}

/// Broken memory leaves the pool when it is free, or when it comes back, and is never used again.
#[test]
fn tr_h9_a_poisoned_page_of_a_pool_is_leaked() {
    for (folding, described) in [(Folding::Off, true), (Folding::On, false), (Folding::On, true)] {
        let sim = sim(2, 64);
        let mm = manager(&sim, Policy::BASE_ONLY);
        online(&sim, &mm);
        if described {
            mm.describe_all().unwrap();
        }
        mm.set_folding(folding);
        resize(&mm, 6);
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        huge_area(&mm, id, 2);
        assert_eq!(store(&sim, &mm, id, BASE, 1), [Outcome::Mapped(SIZE_2M)]);
        let used = mm.with_leaves(id, range(BASE, HUGE), |mut leaves| leaves.next().unwrap().entry);
        let Some(Entry::Leaf { pa, .. }) = used else { panic!("{used:?}") };
        let idle: Vec<Frame> = heads(&mm).into_iter().filter(|head| *head != pa.frame()).collect();
        assert_eq!(idle.len(), 5);
        // One in the middle of the list, by a tail of it; the one in use.
        let broken = [idle[2], pa.frame()];
        assert_eq!(mm.poison(broken[0].add(Pages::new(300))), Poisoned::Held);
        assert_eq!(mm.poison(broken[0]), Poisoned::Held, "twice is once");
        assert_eq!(mm.pool(SIZE_2M).unwrap().nr_hugepages, 5);
        mm.audit(&[id]).unwrap();
        assert_eq!(mm.poison(broken[1]), Poisoned::Held);
        assert_eq!(mm.pool(SIZE_2M).unwrap().nr_hugepages, 5, "it is in use still");
        mm.advise(id, range(BASE, 2 * HUGE), Advice::DontNeed).unwrap();
        let pool = mm.pool(SIZE_2M).unwrap();
        assert_eq!((pool.nr_hugepages, pool.free_hugepages, pool.broken), (4, 4, 2));
        mm.audit(&[id]).unwrap();
        mm.unmap(id, range(BASE, 2 * HUGE)).unwrap();
        resize(&mm, 0);
        let all = mm.resize_pool(SIZE_2M, 1 << 30, Budget::ALL).unwrap();
        assert_eq!(all.end, ResizeEnd::NoMemory);
        for head in broken {
            assert!(mm.identity(head).has(foliant::frame::Flag::Poisoned), "{head}");
            assert!(mm.lend(SIZE_2M).is_err());
        }
        resize(&mm, 0);
    }
}

/// Every reservation that is open when a page breaks is either used or told to be broken: the fault
/// that finds no page says so.
#[test]
fn tr_h9_a_reservation_for_a_broken_page_is_refused_at_the_fault() {
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    resize(&mm, 2);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    huge_area(&mm, id, 2);
    assert_eq!(mm.poison(heads(&mm)[0]), Poisoned::Held);
    mm.audit(&[id]).unwrap();
    assert_eq!(store(&sim, &mm, id, BASE, 1), [Outcome::Mapped(SIZE_2M)]);
    assert_eq!(store(&sim, &mm, id, BASE + HUGE, 1), [Outcome::NoHugePage(SIZE_2M)]);
    mm.audit(&[id]).unwrap();
    mm.unmap(id, range(BASE, 2 * HUGE)).unwrap();
    assert_eq!(mm.pool(SIZE_2M).unwrap().resv_hugepages, 0);
}

/// Work is announced once for all pages that come back before anybody collects.
#[test]
fn pages_that_come_back_are_work_once() {
    let sim = sim(2, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    online(&sim, &mm);
    resize(&mm, 5);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    huge_area(&mm, id, 5);
    mm.advise(id, range(BASE, 5 * HUGE), Advice::PopulateWrite).unwrap();
    mm.unmap(id, range(BASE, 5 * HUGE)).unwrap();
    assert_eq!((mm.total(Event::HugeReturned), mm.total(Event::HugeWork)), (5, 1));
    assert_eq!(mm.pool(SIZE_2M).unwrap().free_hugepages, 5);
}
