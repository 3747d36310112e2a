//! Pools of huge pages: every count after every step, what a step costs, what is left where memory
//! is short.

use crate::common::*;
use foliant::frame::Kind;
use foliant::manager::{BootPages, Setup};
use foliant::pool::{
    Budget, Demoted, Folding, NotDissolved, PoolCounters, PoolError, ResizeEnd, Resized,
};
use foliant::space::{Flags, MapRequest, Place};
use foliant::table::{Entry, Paging, X86_64};
use foliant::{Access, Event, Outcome, Policy};
use foliant_sim::{Config, Failing, Sim};
use foliant_units::{Bytes, Frame, FrameRange, Node, Order, Pages, Va};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SIZE_2M: Order = Order::SIZE_2M;

fn online(sim: &Sim, mm: &Mm<'_>) {
    for cpu in mm.cpus() {
        sim.on(cpu, || mm.online());
    }
}
fn nr(mm: &AnyMm<'_, impl Paging>, order: Order) -> (u64, u64) {
    let pool = mm.pool(order).unwrap();
    (pool.nr_hugepages, pool.free_hugepages)
}
fn counted(mm: &Mm<'_>, events: &[Event], work: impl FnOnce()) -> Vec<u64> {
    let count = || events.iter().map(|event| mm.total(*event)).collect::<Vec<_>>();
    let before = count();
    work();
    count().iter().zip(before).map(|(now, before)| now - before).collect()
}
fn reached(reached: u64) -> Resized {
    Resized { reached, end: ResizeEnd::Reached }
}

#[test]
fn a_pool_grows_and_shrinks_whatever_folding_does() {
    for cpus in [1, 4] {
        for folding in [Folding::Off, Folding::On] {
            for described in [false, true] {
                let sim = sim(cpus, 128);
                let mm = manager(&sim, Policy::BASE_ONLY);
                online(&sim, &mm);
                if described {
                    mm.describe_all().unwrap();
                }
                mm.set_folding(folding);
                let free = mm.memory().free;
                let used = mm.total(Event::MemmapPages);
                assert_eq!(mm.resize_pool(SIZE_2M, 20, Budget::ALL), Ok(reached(20)));
                assert_eq!(nr(&mm, SIZE_2M), (20, 20));
                mm.audit(&[]).unwrap();
                assert_eq!(mm.resize_pool(SIZE_2M, 7, Budget::ALL), Ok(reached(7)));
                assert_eq!(nr(&mm, SIZE_2M), (7, 7));
                mm.audit(&[]).unwrap();
                assert_eq!(mm.resize_pool(SIZE_2M, 0, Budget::ALL), Ok(reached(0)));
                assert_eq!(nr(&mm, SIZE_2M), (0, 0));
                mm.audit(&[]).unwrap();
                if described {
                    // As it was, but for the tables of entries and the shared frame that folding
                    // made.
                    let made = u64::from(folding == Folding::On) * 2;
                    assert_eq!(free.get() - mm.memory().free.get(), made);
                    assert_eq!(mm.total(Event::MemmapPages), used + made / 2);
                }
                assert!(sim.finish().is_empty(), "{:#?}", sim.finish());
            }
        }
    }
}

#[test]
fn a_batch_costs_two_shootdowns_to_fold_one_to_unfold_and_none_where_it_is_born_folded() {
    for cpus in [2, 5, 16] {
        let sim = sim(cpus, 256);
        let mm = manager(&sim, Policy::BASE_ONLY);
        online(&sim, &mm);
        mm.set_folding(Folding::On);
        let fill = || assert_eq!(mm.resize_pool(SIZE_2M, 60, Budget::ALL), Ok(reached(60)));
        let drain = || assert_eq!(mm.resize_pool(SIZE_2M, 0, Budget::ALL), Ok(reached(0)));
        let events = [Event::Shootdown, Event::MemmapGrace, Event::PoolBatch];
        assert_eq!(counted(&mm, &events, fill), [0, 0, 1], "born folded");
        assert_eq!(counted(&mm, &events, drain), [1, 1, 1], "its descriptors go with a page");
        mm.describe_all().unwrap();
        assert_eq!(counted(&mm, &events, fill), [2, 1, 1], "folded");
        assert_eq!(counted(&mm, &events, drain), [1, 0, 1], "unfolded");
        mm.set_folding(Folding::Off);
        assert_eq!(counted(&mm, &events, fill), [0, 0, 1], "dense");
        assert_eq!(counted(&mm, &events, drain), [0, 0, 1]);
        assert!(sim.finish().is_empty());
    }
}

/// A manager of memory on several nodes, 1 GiB apart.
fn nodes<'m>(sim: &'m Sim, nodes: &[Node], boot: BootPages) -> AuditedMm<'m> {
    let memory = sim.config().memory.clone();
    audited(sim, &Setup { nodes, boot, ..Setup::of(&memory, Policy::BASE_ONLY) })
}
fn ranges(megabytes: &[u64]) -> Sim {
    let mut config = Config::seeded(2, Bytes::new(MB), 1);
    config.memory.clear();
    for (nth, size) in megabytes.iter().enumerate() {
        let start = Frame::new((nth as u64 * 4) << 18);
        config.memory.extend(FrameRange::new(start, Pages::new(size * 256)));
    }
    Sim::new(config).unwrap()
}
const NO_BOOT: BootPages = BootPages { size_2m: 0, size_1g: 0, folding: Folding::On };

#[test]
fn a_pool_takes_turns_over_nodes_and_one_node_can_be_resized() {
    let sim = ranges(&[64, 32, 64]);
    let mm = nodes(&sim, &[Node(0), Node(1), Node(2)], NO_BOOT);
    online(&sim, &mm);
    let on = |node| mm.pools().counters_on(SIZE_2M, Node(node)).unwrap().nr_hugepages;
    mm.resize_pool(SIZE_2M, 12, Budget::ALL).unwrap();
    assert_eq!([on(0), on(1), on(2)], [4, 4, 4]);
    mm.audit(&[]).unwrap();
    // Node 1 has no more than 14 or so; the others take its turn.
    mm.resize_pool(SIZE_2M, 60, Budget::ALL).unwrap();
    assert_eq!(on(0) + on(1) + on(2), 60);
    assert!(on(1) <= 16 && on(0) >= 20 && on(2) >= 20, "{} {} {}", on(0), on(1), on(2));
    let full = on(1);
    let got = mm.pools().resize_on(SIZE_2M, Node(1), full + 9, Budget::ALL).unwrap();
    assert_eq!(got.end, ResizeEnd::NoMemory);
    assert!(got.reached >= full && got.reached < full + 9);
    assert_eq!(mm.pools().resize_on(SIZE_2M, Node(1), 3, Budget::ALL).unwrap(), reached(3));
    assert_eq!((on(1), on(0) + on(2)), (3, 60 - full));
    assert!(mm.pools().resize_on(SIZE_2M, Node(7), 3, Budget::ALL).is_err());
    mm.audit(&[]).unwrap();
    assert_eq!(mm.resize_pool(SIZE_2M, 0, Budget::ALL), Ok(reached(0)));
    assert!(sim.finish().is_empty());
}

/// Memory is full of pages, with holes enough in seven blocks to empty one of them.
#[test]
fn a_pool_gets_the_one_block_that_compaction_makes() {
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    let all = area(&mm, id, BASE, 32 * MB);
    let pages = || (0..all.bytes().get() / PAGE).map(|nth| all.start().add(nth * PAGE));
    let filled = pages().take_while(|va| mm.fault(id, *va, Access::Write) != Outcome::OutOfMemory);
    let filled: Vec<Va> = filled.collect();
    let mut blocks = BTreeMap::<u64, Vec<Va>>::new();
    for va in filled {
        let frame = mm.frame_at(id, va).unwrap();
        blocks.entry(SIZE_2M.head(frame).get()).or_default().push(va);
    }
    blocks.retain(|_, pages| pages.len() == 512);
    for pages in blocks.values().take(7) {
        pages.iter().take(100).for_each(|va| mm.unmap(id, range(va.get(), PAGE)).unwrap());
    }
    let grow = || assert_eq!(mm.resize_pool(SIZE_2M, 1, Budget::ALL), Ok(reached(1)));
    assert_eq!(counted(&mm, &[Event::CompactBlocks], grow), [1]);
}

/// Two pages of the first node are more than was asked for, and reserved: a smaller pool leaves
/// them there and takes of the other node.
#[test]
fn a_smaller_pool_takes_no_page_that_it_was_not_asked_for() {
    let sim = ranges(&[16, 16]);
    let mm = nodes(&sim, &[Node(0), Node(1)], NO_BOOT);
    online(&sim, &mm);
    let on = |node| {
        let pool = mm.pools().counters_on(SIZE_2M, Node(node)).unwrap();
        (pool.nr_hugepages, pool.surplus_hugepages)
    };
    assert_eq!(mm.resize_pool(SIZE_2M, 4, Budget::ALL), Ok(reached(4)));
    let id = mm.create(None).unwrap();
    let huge = Flags::READ_WRITE.with(Flags::HUGE_2M);
    mm.map(id, &request(Place::Anywhere, 4 * SIZE_2M.bytes().get(), huge)).unwrap();
    assert_eq!(mm.pools().resize_on(SIZE_2M, Node(0), 0, Budget::ALL), Ok(reached(0)));
    assert_eq!([on(0), on(1)], [(2, 2), (2, 0)], "all are reserved");
    assert_eq!(mm.pools().resize_on(SIZE_2M, Node(1), 3, Budget::ALL), Ok(reached(3)));
    assert_eq!(mm.resize_pool(SIZE_2M, 2, Budget::ALL), Ok(reached(2)));
    assert_eq!([on(0), on(1)], [(2, 2), (2, 0)]);
    finish(&sim, &mm, &[id]);
    assert_eq!([on(0), on(1)], [(0, 0), (2, 0)], "with the reservation they go");
}

/// Of eight pages five are reserved: three go at once, and as many of the others as are still too
/// many are counted as surplus, from the first node on.
#[test]
fn a_smaller_pool_has_no_more_surplus_than_it_must() {
    for (want, counts) in [
        (7, [(3, 0), (4, 0)]),
        (5, [(2, 0), (3, 0)]),
        (4, [(2, 1), (3, 0)]),
        (2, [(2, 2), (3, 1)]),
        (0, [(2, 2), (3, 3)]),
    ] {
        let sim = ranges(&[32, 32]);
        let mm = nodes(&sim, &[Node(0), Node(1)], NO_BOOT);
        online(&sim, &mm);
        let on = |node| {
            let pool = mm.pools().counters_on(SIZE_2M, Node(node)).unwrap();
            (pool.nr_hugepages, pool.surplus_hugepages)
        };
        assert_eq!(mm.resize_pool(SIZE_2M, 8, Budget::ALL), Ok(reached(8)));
        let id = mm.create(None).unwrap();
        let huge = Flags::READ_WRITE.with(Flags::HUGE_2M);
        mm.map(id, &request(Place::Anywhere, 5 * SIZE_2M.bytes().get(), huge)).unwrap();
        assert_eq!(mm.resize_pool(SIZE_2M, want, Budget::ALL), Ok(reached(want)));
        assert_eq!([on(0), on(1)], counts, "{want} wanted");
        finish(&sim, &mm, &[id]);
        assert_eq!(mm.pool(SIZE_2M).unwrap().nr_hugepages, want, "with the reservation they go");
    }
}

#[test]
fn a_pool_grows_as_far_as_memory_goes_and_says_so() {
    for folding in [Folding::Off, Folding::On] {
        let sim = sim(2, 64);
        let mm = manager(&sim, Policy::BASE_ONLY);
        online(&sim, &mm);
        mm.set_folding(folding);
        let got = mm.resize_pool(SIZE_2M, 1 << 40, Budget::ALL).unwrap();
        assert_eq!(got.end, ResizeEnd::NoMemory);
        assert!((25..32).contains(&got.reached), "{got:?}");
        assert_eq!(nr(&mm, SIZE_2M), (got.reached, got.reached));
        mm.audit(&[]).unwrap();
        assert_eq!(mm.resize_pool(SIZE_2M, 0, Budget::ALL), Ok(reached(0)));
        mm.audit(&[]).unwrap();
        assert!(sim.finish().is_empty());
    }
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let order = Order::new(10).unwrap();
    assert_eq!(mm.resize_pool(order, 1, Budget::ALL), Err(PoolError::Order(order)));
}

#[test]
fn a_budget_stops_a_request_with_exact_counts() {
    let sim = sim(2, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    online(&sim, &mm);
    mm.set_folding(Folding::On);
    for step in 1..=5 {
        let got = mm.resize_pool(SIZE_2M, 22, Budget(5)).unwrap();
        let end = if step < 5 { ResizeEnd::Budget } else { ResizeEnd::Reached };
        assert_eq!(got, Resized { reached: (5 * step).min(22), end });
        mm.audit(&[]).unwrap();
    }
    assert_eq!(mm.resize_pool(SIZE_2M, 22, Budget(0)), Ok(reached(22)));
    for left in [18, 14, 10] {
        let got = mm.resize_pool(SIZE_2M, 8, Budget(4)).unwrap();
        assert_eq!(got, Resized { reached: left, end: ResizeEnd::Budget });
        mm.audit(&[]).unwrap();
    }
}

/// A request over several batches: one lock cycle to list a batch, and the bound on a batch holds.
#[test]
fn batches_are_bounded_and_each_takes_the_lock_a_few_times() {
    let memory = Bytes::new(6 << 30);
    let checks = foliant_sim::Checks::None;
    let sim = Sim::new(Config { checks, ..Config::seeded(2, memory, 1) }).unwrap();
    let mm = manager(&sim, Policy::BASE_ONLY);
    online(&sim, &mm);
    mm.set_folding(Folding::On);
    let batch = foliant::pool::Pools::<Sim, X86_64<4>>::BATCH as u64;
    let events = [Event::PoolBatch, Event::Shootdown];
    let mut locks = 0;
    for (pages, shots) in [(2 * batch + 1, 0), (0, 3)] {
        let before = mm.total(Event::PoolLock);
        let go = || assert_eq!(mm.resize_pool(SIZE_2M, pages, Budget::ALL), Ok(reached(pages)));
        assert_eq!(counted(&mm, &events, go), [3, shots]);
        locks = locks.max(mm.total(Event::PoolLock) - before);
    }
    assert!(locks <= 3 * 4, "{locks} lock cycles for three batches");
    mm.describe_all().unwrap();
    let go = || assert_eq!(mm.resize_pool(SIZE_2M, 2 * batch, Budget::ALL), Ok(reached(2 * batch)));
    assert_eq!(counted(&mm, &[Event::PoolBatch, Event::FlushFold, Event::MemmapGrace], go), [2; 3]);
}

#[test]
fn boot_pages_are_there_before_anything_else() {
    let sim = ranges(&[2 << 10, 1 << 10]);
    let boot = BootPages { size_2m: 10, size_1g: 1, folding: Folding::On };
    let mm = nodes(&sim, &[Node(0), Node(1)], boot);
    assert_eq!((nr(&mm, Order::SIZE_1G), nr(&mm, SIZE_2M)), ((1, 1), (10, 10)));
    assert_eq!(mm.folding(), Folding::On);
    assert_eq!(mm.total(Event::Shootdown), 0);
    assert_eq!(mm.pooled(), Pages::new((1 << 18) + 10 * 512));
    mm.audit(&[]).unwrap();
}

/// The naive twin: plain numbers.
#[derive(Default, Clone, Copy, Debug, PartialEq)]
struct Naive {
    total: u64,
    free: u64,
    reserved: u64,
    surplus: u64,
    overcommit: u64,
    /// Pages mapped by the program.
    used: u64,
}

impl Naive {
    fn resize(&mut self, want: u64, most: u64) {
        let persistent = self.total - self.surplus;
        if want > persistent {
            let restated = (want - persistent).min(self.surplus);
            self.surplus -= restated;
            let made = (want - persistent - restated).min(most);
            self.total += made;
            self.free += made;
            return;
        }
        let given = (persistent - want).min(self.free - self.reserved);
        self.total -= given;
        self.free -= given;
        self.surplus += persistent - want - given;
    }
    fn reserve(&mut self, count: u64) -> bool {
        let available = self.free - self.reserved;
        let more = count.saturating_sub(available);
        if more > 0 && self.surplus + more > self.overcommit {
            return false;
        }
        self.total += more;
        self.free += more;
        self.surplus += more;
        self.reserved += count;
        true
    }
    fn touch(&mut self) {
        self.reserved -= 1;
        self.free -= 1;
        self.used += 1;
    }
    /// So many pages and reservations come back.
    fn back(&mut self, pages: u64, reservations: u64) {
        let gone = pages.min(self.surplus);
        self.used -= pages;
        self.total -= gone;
        self.surplus -= gone;
        self.free += pages - gone;
        self.reserved -= reservations;
        let unused = self.surplus.min(self.free - self.reserved);
        self.total -= unused;
        self.surplus -= unused;
        self.free -= unused;
    }
    fn counters(&self) -> PoolCounters {
        PoolCounters {
            nr_hugepages: self.total,
            free_hugepages: self.free,
            resv_hugepages: self.reserved,
            surplus_hugepages: self.surplus,
            nr_overcommit_hugepages: self.overcommit,
            broken: 0,
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Resize(u64),
    Overcommit(u64),
    Map(u64),
    Touch(usize),
    Unmap(usize),
    Fold(bool),
    Dissolve,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u64..24).prop_map(Step::Resize),
        1 => (0u64..8).prop_map(Step::Overcommit),
        4 => (1u64..6).prop_map(Step::Map),
        6 => any::<usize>().prop_map(Step::Touch),
        3 => any::<usize>().prop_map(Step::Unmap),
        1 => any::<bool>().prop_map(Step::Fold),
        1 => Just(Step::Dissolve),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every count after every step is that of the naive twin. There is memory for all that is
    /// asked for.
    #[test]
    fn pool_model(steps in proptest::collection::vec(step(), 1..60)) {
        let sim = sim(2, 128);
        let mm = manager(&sim, Policy::BASE_ONLY);
        online(&sim, &mm);
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        let mut naive = Naive::default();
        // Areas: start, pages, how many are touched.
        let mut areas: Vec<(u64, u64, u64)> = Vec::new();
        for step in steps {
            match step {
                Step::Resize(want) => {
                    naive.resize(want, u64::MAX);
                    let got = mm.resize_pool(SIZE_2M, want, Budget::ALL).unwrap();
                    prop_assert_eq!(got, reached(want));
                }
                Step::Overcommit(most) => {
                    naive.overcommit = most;
                    mm.pools().set_overcommit(SIZE_2M, most).unwrap();
                }
                Step::Map(pages) => {
                    let flags = Flags::READ_WRITE.with(Flags::HUGE_2M);
                    let bytes = Bytes::new(pages * 2 * MB);
                    let request = MapRequest { place: Place::Anywhere, bytes, flags, tag: 0 };
                    let got = mm.map(id, &request);
                    prop_assert_eq!(got.is_ok(), naive.reserve(pages));
                    areas.extend(got.ok().map(|range| (range.start().get(), pages, 0)));
                }
                Step::Touch(nth) if !areas.is_empty() => {
                    let nth = nth % areas.len();
                    let (start, pages, touched) = &mut areas[nth];
                    if touched < pages {
                        let va = *start + *touched * 2 * MB;
                        prop_assert_eq!(store(&sim, &mm, id, va, 1), [Outcome::Mapped(SIZE_2M)]);
                        *touched += 1;
                        naive.touch();
                    }
                }
                Step::Unmap(nth) if !areas.is_empty() => {
                    let nth = nth % areas.len();
                    let (start, pages, touched) = areas.swap_remove(nth);
                    mm.unmap(id, range(start, pages * 2 * MB)).unwrap();
                    naive.back(touched, pages - touched);
                }
                Step::Fold(on) => mm.set_folding(if on { Folding::On } else { Folding::Off }),
                Step::Dissolve => {
                    let frames = mm.ranges().flat_map(|range| range.iter());
                    let huge = |f: &Frame| f.get().is_multiple_of(512) && mm.identity(*f).kind() == Kind::Huge;
                    let gone = frames.filter(huge).find_map(|f| mm.pools().dissolve(f).ok());
                    let available = naive.free - naive.reserved;
                    prop_assert_eq!(gone.is_some(), available > 0);
                    if gone.is_some() {
                        let surplus = naive.surplus.min(1);
                        naive.total -= 1;
                        naive.free -= 1;
                        naive.surplus -= surplus;
                    }
                }
                Step::Touch(_) | Step::Unmap(_) => {}
            }
            prop_assert_eq!(mm.pool(SIZE_2M).unwrap(), naive.counters());
            mm.audit(&[id]).unwrap();
        }
    }
}

/// Of two pages one is in use and the other reserved: each is refused for its own reason, and a
/// page of no pool for a third.
#[test]
fn a_page_that_is_not_given_up_says_why() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    mm.online();
    mm.resize_pool(SIZE_2M, 2, Budget::ALL).unwrap();
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    let flags = Flags::READ_WRITE.with(Flags::HUGE_2M);
    let request = MapRequest { place: Place::Anywhere, bytes: Bytes::new(4 * MB), flags, tag: 0 };
    let start = mm.map(id, &request).unwrap().start().get();
    assert_eq!(store(&sim, &mm, id, start, 1), [Outcome::Mapped(SIZE_2M)]);
    let frames = mm.ranges().flat_map(|range| range.iter());
    let heads: Vec<Frame> =
        frames.filter(|frame| mm.identity(*frame).kind() == Kind::Huge).collect();
    let leaf = mm.with_leaves(id, range(start, 2 * MB), |mut leaves| leaves.next()).flatten();
    let Some(Entry::Leaf { pa, .. }) = leaf.map(|found| found.entry) else { panic!("{leaf:?}") };
    let (used, idle): (Vec<Frame>, Vec<Frame>) =
        heads.into_iter().partition(|head| *head == pa.frame());
    assert_eq!(mm.pools().dissolve(used[0]), Err(NotDissolved::Busy(used[0])));
    assert_eq!(mm.pools().dissolve(idle[0]), Err(NotDissolved::Reserved(idle[0])));
    let page =
        mm.ranges().flat_map(|range| range.iter()).find(|f| mm.identity(*f).kind() == Kind::Plain);
    assert_eq!(mm.pools().dissolve(page.unwrap()), Err(NotDissolved::NotHuge(page.unwrap())));
    mm.unmap(id, range(start, 4 * MB)).unwrap();
    assert_eq!(mm.pools().dissolve(used[0]), Ok(SIZE_2M));
}

/// Every frame that is free, holds descriptors or is a table.
fn owned(mm: &Mm<'_>) -> u64 {
    assert_eq!(mm.total(Event::MemmapPages), mm.memmap().census().frames.get());
    let tables = mm.total(Event::TableMade) - mm.total(Event::TableFreed);
    mm.memory().free.get() + mm.total(Event::MemmapPages) + tables
}

#[test]
fn every_refused_allocation_while_a_pool_changes_its_size() {
    for (folding, described) in [(Folding::Off, true), (Folding::On, false), (Folding::On, true)] {
        for k in 1.. {
            let sim = sim(2, 64);
            let mm = manager(&sim, Policy::BASE_ONLY);
            online(&sim, &mm);
            if described {
                mm.describe_all().unwrap();
            }
            mm.set_folding(folding);
            mm.resize_pool(SIZE_2M, 3, Budget::ALL).unwrap();
            let before = owned(&mm);
            sim.fault_plan().set(Failing::Kth(k));
            let got = mm.resize_pool(SIZE_2M, 8, Budget::ALL).unwrap();
            mm.audit(&[]).unwrap();
            assert_eq!(nr(&mm, SIZE_2M), (got.reached, got.reached), "k = {k}");
            assert_eq!(mm.resize_pool(SIZE_2M, 3, Budget::ALL), Ok(reached(3)), "k = {k}");
            let refused = sim.fault_plan().refused();
            sim.fault_plan().set(Failing::Nothing);
            mm.audit(&[]).unwrap();
            assert_eq!(owned(&mm), before, "k = {k}");
            assert_eq!(mm.resize_pool(SIZE_2M, 0, Budget::ALL), Ok(reached(0)));
            assert!(sim.finish().is_empty(), "k = {k}: {:#?}", sim.finish());
            if refused == 0 {
                break;
            }
        }
    }
}

#[test]
fn pages_of_a_gibibyte_are_cut_with_one_grace_period_a_batch() {
    let memory = Bytes::new(40 << 30);
    let checks = foliant_sim::Checks::None;
    let sim = Sim::new(Config { checks, ..Config::seeded(2, memory, 1) }).unwrap();
    let mm = manager(&sim, Policy::BASE_ONLY);
    online(&sim, &mm);
    mm.set_folding(Folding::On);
    assert_eq!(mm.resize_pool(Order::SIZE_1G, 35, Budget::ALL), Ok(reached(35)));
    let events = [
        Event::MemmapGrace,
        Event::Shootdown,
        Event::BornFolded,
        Event::Folded,
        Event::FoldSkipped,
    ];
    let cut = || {
        let expect = Demoted { demoted: 34, made: 34 * 512, given_up: 0 };
        assert_eq!(mm.pools().demote(34), expect);
    };
    let all = 34 * 512;
    assert_eq!(counted(&mm, &events, cut), [2, 2, all, all, 0], "32 and 2, and none twice");
    assert_eq!((nr(&mm, Order::SIZE_1G), nr(&mm, SIZE_2M)), ((1, 1), (34 * 512, 34 * 512)));
    assert_eq!(mm.memmap().census().folded, 35 * 512);
    assert_eq!(mm.pools().demote(5).demoted, 1, "there is only one");
    mm.audit(&[]).unwrap();
    assert_eq!(mm.resize_pool(SIZE_2M, 0, Budget::ALL), Ok(reached(0)));
    assert_eq!(
        mm.resize_pool(Order::SIZE_1G, 35, Budget::ALL),
        Ok(reached(35)),
        "all is whole again"
    );
}

/// A pool of one page of 1 GiB that is not folded.
fn dense_gibibyte(sim: &Sim) -> AuditedMm<'_> {
    let mm = nodes(sim, &[], BootPages { folding: Folding::Off, ..NO_BOOT });
    online(sim, &mm);
    assert_eq!(mm.resize_pool(Order::SIZE_1G, 1, Budget::ALL), Ok(reached(1)));
    mm
}

#[test]
fn a_dense_page_of_a_gibibyte_is_cut_and_its_parts_stay_dense_where_nothing_is_folded() {
    let sim = ranges(&[3 << 10]);
    let mm = dense_gibibyte(&sim);
    assert_eq!(mm.pools().demote(9).made, 512);
    assert_eq!(mm.memmap().census().folded, 0);
    assert_eq!(mm.pool(SIZE_2M).unwrap().persistent(), 512);
    mm.audit(&[]).unwrap();
}

#[test]
fn a_dense_page_of_a_gibibyte_is_cut_and_each_part_folded() {
    let sim = ranges(&[3 << 10]);
    let mm = dense_gibibyte(&sim);
    mm.set_folding(Folding::On);
    assert_eq!(mm.pools().demote(9).made, 512);
    assert_eq!(mm.memmap().census().folded, 512);
    mm.audit(&[]).unwrap();
    assert_eq!(mm.resize_pool(SIZE_2M, 0, Budget::ALL), Ok(reached(0)));
    mm.audit(&[]).unwrap();
    assert!(sim.finish().is_empty());
}
