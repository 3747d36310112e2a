//! Areas of huge pages: reservations, faults, copies, forks, and what is refused, on every format
//! and by both rules.

use crate::common::beside::{Beside, some_steps};
use crate::common::*;
use foliant::fault::Refusal;
use foliant::manager::{Contents, Setup};
use foliant::pool::{Budget, Folding, PoolCounters, Shortage};
use foliant::space::{Advice, Flags, MapError, MapRequest, Move, Place, RangeError, Refs, SpaceId};
use foliant::table::{Aarch64, Entry, Paging, Riscv64, X86_64};
use foliant::{Access, Event, Outcome, Policy};
use foliant_machine::Replace;
use foliant_sim::{Config, Failing, Format, RiscvMode, Sim, X86Levels};
use foliant_units::{Bytes, Level, Order, Va, VaRange};

const SIZE_2M: Order = Order::SIZE_2M;
const BASE_ONLY: Policy = Policy::BASE_ONLY;
const HUGE: u64 = 2 * MB;

fn request(bytes: u64, flags: Flags) -> MapRequest {
    MapRequest { place: Place::NoReplace(Va::new(BASE)), bytes: Bytes::new(bytes), flags, tag: 0 }
}
fn huge_area<P: Paging>(mm: &AnyMm<'_, P>, id: SpaceId, pages: u64) -> VaRange {
    mm.map(id, &request(pages * HUGE, Flags::READ_WRITE.with(Flags::HUGE_2M))).unwrap()
}
/// Total, free, reserved, surplus.
fn pool<P: Paging>(mm: &AnyMm<'_, P>) -> (u64, u64, u64, u64) {
    let PoolCounters { nr_hugepages, free_hugepages, resv_hugepages, surplus_hugepages, .. } =
        mm.pool(SIZE_2M).unwrap();
    (nr_hugepages, free_hugepages, resv_hugepages, surplus_hugepages)
}
fn fill<P: Paging>(mm: &AnyMm<'_, P>, pages: u64) {
    assert_eq!(mm.resize_pool(SIZE_2M, pages, Budget::ALL).unwrap().reached, pages);
}
fn world(policy: Policy, pages: u64) -> (&'static Sim, &'static Mm<'static>, SpaceId, Over) {
    let (sim, mm, kept) = kept(sim(2, 64), policy);
    mm.set_folding(Folding::On);
    for cpu in mm.cpus() {
        sim.on(cpu, || mm.online());
    }
    fill(mm, pages);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    (sim, mm, id, kept)
}
/// Every page is back in the pool.
fn done<P: Paging>(sim: &Sim, mm: &AnyMm<'_, P>, spaces: &[SpaceId], pages: u64) {
    finish(sim, mm, spaces);
    assert_eq!(pool(mm), (pages, pages, 0, 0));
    fill(mm, 0);
    mm.audit(&[]).unwrap();
    assert!(sim.finish().is_empty(), "{:#?}", sim.finish());
}

fn life<P: Paging>(format: Format, replace: Replace, folding: Folding) {
    let mut config = Config::seeded(2, Bytes::new(64 * MB), 7).with_format(format);
    if replace == Replace::BreakBeforeMake {
        config.rules.replace = replace;
    }
    let sim = Sim::new(config).unwrap();
    let mm: Audited<'_, P> = manager_on(&sim, &sim.config().memory, Policy::BASE_ONLY);
    for cpu in mm.cpus() {
        sim.on(cpu, || mm.online());
    }
    mm.set_folding(folding);
    fill(&mm, 6);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    let area = huge_area(&mm, id, 4);
    assert_eq!(pool(&mm), (6, 6, 4, 0));
    assert_eq!(load(&sim, &mm, id, BASE), 0);
    assert_eq!(pool(&mm), (6, 5, 3, 0));
    assert_eq!(store(&sim, &mm, id, BASE + HUGE + 8, 5), [Outcome::Mapped(SIZE_2M)]);
    assert_eq!(store(&sim, &mm, id, BASE + HUGE + HUGE - 8, 6), []);
    assert_eq!(store(&sim, &mm, id, BASE, 7), [], "a readable page is writable at once");
    assert_eq!(pool(&mm), (6, 4, 2, 0));
    assert_eq!(mm.pages(id).unwrap().get(), 1024);
    mm.audit(&[id]).unwrap();

    let child = mm.fork(id).unwrap();
    assert_eq!(pool(&mm), (6, 4, 2, 0), "nothing is reserved for a child");
    mm.audit(&[id, child]).unwrap();
    assert_eq!(store(&sim, &mm, id, BASE, 8), [Outcome::Copied]);
    assert_eq!(pool(&mm), (6, 3, 2, 0));
    sim.on(cpu(1), || {
        mm.switch(Some(child)).unwrap();
        assert_eq!(load(&sim, &mm, child, BASE), 7);
        assert_eq!(load(&sim, &mm, child, BASE + HUGE + 8), 5);
        assert_eq!(store(&sim, &mm, child, BASE, 9), [Outcome::Reused], "nobody else has it");
        assert_eq!(store(&sim, &mm, child, BASE + HUGE, 1), [Outcome::Copied]);
        assert_eq!(load(&sim, &mm, child, BASE + 2 * HUGE - 8), 6, "all of the page is copied");
        assert_eq!(pool(&mm), (6, 2, 2, 0));
        // All that are left are reserved for the parent.
        let none = [Outcome::NoHugePage(SIZE_2M)];
        assert_eq!(store(&sim, &mm, child, BASE + 2 * HUGE, 1), none);
        mm.switch(None).unwrap();
    });
    assert_eq!(load(&sim, &mm, id, BASE), 8);
    mm.protect(id, range(BASE, HUGE), Flags::READ).unwrap();
    let refused = Outcome::Refused(Refusal::NoRight(Va::new(BASE), Access::Write));
    assert_eq!(store(&sim, &mm, id, BASE, 1), [refused]);
    mm.protect(id, range(BASE, HUGE), Flags::READ_WRITE).unwrap();
    store(&sim, &mm, id, BASE, 3);
    assert_eq!(load(&sim, &mm, id, BASE), 3);
    assert_eq!(store(&sim, &mm, id, BASE + 3 * HUGE, 4), [Outcome::Mapped(SIZE_2M)]);
    assert_eq!(pool(&mm), (6, 1, 1, 0));
    mm.audit(&[id, child]).unwrap();
    mm.unmap(id, range(BASE, 3 * HUGE)).unwrap();
    assert_eq!(pool(&mm), (6, 3, 0, 0), "pages and reservations came back");
    mm.audit(&[id, child]).unwrap();
    assert_eq!(load(&sim, &mm, id, BASE + 3 * HUGE), 4);
    assert!(mm.area(id, area.start()).is_none());
    done(&sim, &mm, &[id, child], 6);
}

#[test]
fn a_page_of_a_pool_lives_on_every_format_by_both_rules() {
    for folding in [Folding::Off, Folding::On] {
        let x86 = Format::X86_64(X86Levels::Four);
        life::<X86_64<4>>(x86, Replace::InPlace, folding);
        life::<X86_64<4>>(x86, Replace::BreakBeforeMake, folding);
        life::<X86_64<5>>(Format::X86_64(X86Levels::Five), Replace::InPlace, folding);
        life::<Aarch64>(Format::Aarch64, Replace::BreakBeforeMake, folding);
        life::<Riscv64<3>>(Format::Riscv64(RiscvMode::Sv39), Replace::InPlace, folding);
        life::<Riscv64<4>>(Format::Riscv64(RiscvMode::Sv48), Replace::InPlace, folding);
    }
}

#[test]
fn one_leaf_maps_a_page_and_one_flush_ends_it() {
    let (sim, mm, id, _over) = world(Policy::BASE_ONLY, 3);
    sim.on(cpu(1), || mm.switch(Some(id)).unwrap());
    let area = huge_area(mm, id, 3);
    mm.advise(id, area, Advice::PopulateWrite).unwrap();
    assert_eq!(pool(mm), (3, 0, 0, 0));
    let levels = mm.with_leaves(id, area, |leaves| {
        leaves
            .map(|leaf| (leaf.level, matches!(leaf.entry, Entry::Leaf { .. })))
            .collect::<Vec<_>>()
    });
    assert_eq!(levels.unwrap(), [(Level::SIZE_2M, true); 3]);
    let before = mm.total(Event::Shootdown);
    mm.unmap(id, area).unwrap();
    assert_eq!(mm.total(Event::Shootdown) - before, 1);
    done(sim, mm, &[id], 3);
}

#[test]
fn a_page_of_one_gibibyte() {
    for replace in [Replace::InPlace, Replace::BreakBeforeMake] {
        let mut config = Config::seeded(2, Bytes::new(4 << 30), 3);
        config.rules.replace = replace;
        let sim = Sim::new(config).unwrap();
        let mm = manager(&sim, Policy::BASE_ONLY);
        for cpu in mm.cpus() {
            sim.on(cpu, || mm.online());
        }
        mm.set_folding(Folding::On);
        let size_1g = Order::SIZE_1G;
        assert_eq!(mm.resize_pool(size_1g, 2, Budget::ALL).unwrap().reached, 2);
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        let flags = Flags::READ_WRITE.with(Flags::HUGE_1G);
        let place = Place::NoReplace(Va::new(BASE + HUGE));
        let uneven = mm.map(id, &MapRequest { place, ..request(1 << 30, flags) });
        let cuts = RangeError::Cuts(Va::new(BASE + HUGE), size_1g.bytes());
        assert_eq!(uneven, Err(MapError::Range(cuts)));
        mm.map(id, &request(1, flags)).unwrap();
        assert_eq!(store(&sim, &mm, id, BASE + (1 << 30) - 8, 4), [Outcome::Mapped(size_1g)]);
        let child = mm.fork(id).unwrap();
        assert_eq!(store(&sim, &mm, id, BASE + (1 << 30) - 8, 5), [Outcome::Copied]);
        let part = mm.unmap(id, range(BASE + (512 << 20), 512 << 20));
        assert_eq!(part, Err(RangeError::Cuts(Va::new(BASE + (512 << 20)), size_1g.bytes())));
        mm.switch(Some(child)).unwrap();
        assert_eq!(load(&sim, &mm, child, BASE + (1 << 30) - 8), 4);
        mm.audit(&[id, child]).unwrap();
        finish(&sim, &mm, &[id, child]);
        let counters = mm.pool(size_1g).unwrap();
        assert_eq!((counters.nr_hugepages, counters.free_hugepages), (2, 2));
    }
}

/// What a space gives back at once are pages of both sizes, in turn: each goes to its own pool.
#[test]
fn pages_of_both_sizes_come_back_together() {
    let sim = Sim::new(Config::seeded(1, Bytes::new(4 << 30), 3)).unwrap();
    let mm = manager(&sim, Policy::BASE_ONLY);
    let size_1g = Order::SIZE_1G;
    assert_eq!(mm.resize_pool(size_1g, 2, Budget::ALL).unwrap().reached, 2);
    fill(&mm, 3);
    let id = mm.create(None).unwrap();
    for (start, bytes, flag) in [
        (BASE, 1 << 30, Flags::HUGE_1G),
        (BASE + (1 << 30), HUGE, Flags::HUGE_2M),
        (BASE + (2 << 30), 1 << 30, Flags::HUGE_1G),
        (BASE + (3 << 30), 2 * HUGE, Flags::HUGE_2M),
    ] {
        let place = Place::NoReplace(Va::new(start));
        let flags = Flags::READ_WRITE.with(flag);
        let area = mm.map(id, &MapRequest { place, ..request(bytes, flags) }).unwrap();
        mm.advise(id, area, Advice::PopulateWrite).unwrap();
    }
    assert_eq!(pool(&mm), (3, 0, 0, 0));
    mm.end(id).unwrap();
    let counters = mm.pool(size_1g).unwrap();
    assert_eq!((counters.nr_hugepages, counters.free_hugepages), (2, 2));
    assert_eq!(mm.resize_pool(size_1g, 0, Budget::ALL).unwrap().reached, 0);
    done(&sim, &mm, &[], 3);
}

#[test]
fn what_a_pool_cannot_reserve_is_refused_and_nothing_changed() {
    let (sim, mm, id, _over) = world(Policy::BASE_ONLY, 4);
    let flags = Flags::READ_WRITE.with(Flags::HUGE_2M);
    let short = |wanted, available| {
        MapError::NoHugePages(Shortage::Pages { order: SIZE_2M, wanted, available })
    };
    assert_eq!(mm.map(id, &request(5 * HUGE, flags)), Err(short(5, 4)));
    let outside = mm.map(id, &request(u64::MAX / 2, flags));
    assert!(matches!(outside, Err(MapError::Range(RangeError::Outside(_)))), "{outside:?}");
    assert_eq!(pool(mm), (4, 4, 0, 0));
    huge_area(mm, id, 3);
    let elsewhere = MapRequest { place: Place::Anywhere, ..request(2 * HUGE, flags) };
    assert_eq!(mm.map(id, &elsewhere), Err(short(2, 1)));
    assert_eq!(mm.map(id, &request(HUGE, flags)), Err(MapError::Occupied(Va::new(BASE))));
    assert_eq!(pool(mm), (4, 4, 3, 0), "the reservation of a refused request is taken back");
    // Without reservations there is no limit to areas, only to pages.
    let loose = MapRequest { flags: flags.with(Flags::NORESERVE), ..elsewhere };
    let loose = mm.map(id, &MapRequest { bytes: Bytes::new(9 * HUGE), ..loose }).unwrap();
    assert!(loose.start().is_aligned(SIZE_2M.bytes()));
    let at = loose.start().get();
    assert_eq!(store(sim, mm, id, at, 1), [Outcome::Mapped(SIZE_2M)]);
    assert_eq!(store(sim, mm, id, at + HUGE, 1), [Outcome::NoHugePage(SIZE_2M)]);
    for page in 0..3 {
        assert_eq!(store(sim, mm, id, BASE + page * HUGE, 1), [Outcome::Mapped(SIZE_2M)]);
    }
    for bad in [Flags::HUGE_1G, Flags::USERFAULT, Flags::GROWS_DOWN] {
        let flags = flags.with(bad);
        let got = mm.map(id, &MapRequest { place: Place::Anywhere, ..request(HUGE, flags) });
        assert_eq!(got, Err(MapError::Flags(flags)));
    }
    assert_eq!(mm.map(id, &request(0, flags)), Err(MapError::Range(RangeError::Empty)));
    done(sim, mm, &[id], 4);
}

#[test]
fn huge_pages_stay_whole() {
    let (sim, mm, id, _over) = world(Policy::BASE_ONLY, 4);
    let area = huge_area(mm, id, 4);
    store(sim, mm, id, BASE + HUGE, 3);
    let (head, inside) = (range(BASE, HUGE + 4096), range(BASE + HUGE + 4096, HUGE - 4096));
    let cuts = |range: VaRange, va: u64| {
        let error = RangeError::Cuts(Va::new(va), SIZE_2M.bytes());
        assert_eq!(mm.unmap(id, range), Err(error));
        assert_eq!(mm.protect(id, range, Flags::READ), Err(error));
        assert_eq!(mm.advise(id, range, Advice::DontNeed), Err(error));
        assert_eq!(mm.advise(id, range, Advice::Tag(7)), Err(error));
        assert_eq!(mm.advise(id, range, Advice::HugePage), Err(error));
        assert_eq!(mm.advise(id, range, Advice::UserfaultArm), Err(error));
        assert_eq!(mm.advise(id, range, Advice::UserfaultWriteArm), Err(error));
    };
    cuts(head, BASE + HUGE + 4096);
    cuts(inside, BASE + HUGE + 4096);
    let flags = Flags::READ_WRITE;
    let over = MapRequest { place: Place::Fixed(inside.start()), ..request(4096, flags) };
    assert!(matches!(mm.map(id, &over), Err(MapError::Range(RangeError::Cuts(..)))));
    let huge = RangeError::Huge(area.start());
    for advice in [Advice::Free, Advice::GuardInstall] {
        assert_eq!(mm.advise(id, area, advice), Err(huge));
    }
    assert_eq!(mm.remap(id, area, Bytes::new(HUGE), Move::MayMove), Err(huge.into()));
    mm.advise(id, range(BASE + HUGE, HUGE), Advice::Tag(7)).unwrap();
    mm.advise(id, range(BASE, HUGE), Advice::NoHugePage).unwrap();
    let wishes = [0, 1].map(|nth| {
        let area = mm.area(id, Va::new(BASE + nth * HUGE)).unwrap();
        area.flags.has(Flags::NOHUGEPAGE)
    });
    assert_eq!(wishes, [true, false], "a wish is kept, and has no use");
    mm.advise(id, range(BASE, HUGE), Advice::HugePage).unwrap();
    mm.advise(id, range(BASE, 4 * HUGE), Advice::HugePage).unwrap();
    let tags = [0, 1, 2].map(|nth| mm.area(id, Va::new(BASE + nth * HUGE)).unwrap().tag);
    assert_eq!(tags, [0, 7, 0], "a tag is the embedder's, whatever the pages are");
    mm.advise(id, area, Advice::Tag(0)).unwrap();
    assert_eq!(pool(mm), (4, 3, 3, 0));
    assert_eq!(load(sim, mm, id, BASE + HUGE), 3);
    // Small pages over whole huge ones are fine, and back.
    let over = MapRequest { place: Place::Fixed(Va::new(BASE + HUGE)), ..request(HUGE, flags) };
    mm.map(id, &over).unwrap();
    assert_eq!(pool(mm), (4, 4, 3, 0));
    store(sim, mm, id, BASE + HUGE, 4);
    store(sim, mm, id, BASE + 2 * HUGE, 5);
    let flags = flags.with(Flags::HUGE_2M);
    let back = MapRequest { place: Place::Fixed(Va::new(BASE + HUGE)), ..request(HUGE, flags) };
    mm.map(id, &back).unwrap();
    assert_eq!(load(sim, mm, id, BASE + HUGE), 0);
    assert_eq!(load(sim, mm, id, BASE + 2 * HUGE), 5);
    done(sim, mm, &[id], 4);
}

#[test]
fn a_dropped_page_is_reserved_again_unless_pages_are_surplus() {
    let (sim, mm, id, _over) = world(Policy::BASE_ONLY, 2);
    let area = huge_area(mm, id, 2);
    store(sim, mm, id, BASE, 3);
    assert_eq!(pool(mm), (2, 1, 1, 0));
    mm.advise(id, range(BASE, HUGE), Advice::DontNeed).unwrap();
    assert_eq!(pool(mm), (2, 2, 2, 0), "the page came back, and its place has it still");
    assert_eq!(store(sim, mm, id, BASE, 4), [Outcome::Mapped(SIZE_2M)]);
    let other = mm.create(None).unwrap();
    mm.pools().set_overcommit(SIZE_2M, 1).unwrap();
    huge_area(mm, other, 1);
    mm.pools().set_overcommit(SIZE_2M, 0).unwrap();
    assert_eq!(pool(mm), (3, 2, 2, 1));
    mm.advise(id, area, Advice::DontNeed).unwrap();
    assert_eq!(pool(mm), (2, 2, 2, 0), "the page was given up, the reservation used");
    assert_eq!(store(sim, mm, id, BASE, 4), [Outcome::NoHugePage(SIZE_2M)]);
    assert_eq!(store(sim, mm, id, BASE + HUGE, 4), [Outcome::Mapped(SIZE_2M)]);
    assert_eq!(pool(mm), (2, 1, 1, 0));
    mm.advise(id, area, Advice::DontNeed).unwrap();
    assert_eq!(pool(mm), (2, 2, 2, 0), "of the one that had a page");
    mm.advise(id, area, Advice::DontNeed).unwrap();
    assert_eq!(pool(mm), (2, 2, 2, 0));
    assert_eq!(store(sim, mm, id, BASE, 4), [Outcome::NoHugePage(SIZE_2M)], "it is spent");
    let child = mm.fork(id).unwrap();
    mm.unmap(other, range(BASE, HUGE)).unwrap();
    assert_eq!(load(sim, mm, id, BASE), 0);
    mm.audit(&[id, other, child]).unwrap();
    done(sim, mm, &[id, other, child], 2);
}

#[test]
fn a_page_that_is_dropped_beside_surplus_is_not_reserved_again_though_others_are_free() {
    let (sim, mm, id, _over) = world(Policy::BASE_ONLY, 3);
    huge_area(mm, id, 2);
    [BASE, BASE + HUGE].into_iter().for_each(|va| drop(store(sim, mm, id, va, 3)));
    fill(mm, 1);
    assert_eq!(pool(mm), (2, 0, 0, 1));
    mm.advise(id, range(BASE, 2 * HUGE), Advice::DontNeed).unwrap();
    assert_eq!(pool(mm), (1, 1, 0, 0), "both were dropped while one was surplus");
    done(sim, mm, &[id], 1);
}

#[test]
fn overcommit_makes_pages_that_go_when_they_come_back() {
    let (sim, mm, id, _over) = world(Policy::BASE_ONLY, 2);
    mm.pools().set_overcommit(SIZE_2M, 3).unwrap();
    huge_area(mm, id, 4);
    assert_eq!(pool(mm), (4, 4, 4, 2));
    mm.audit(&[id]).unwrap();
    let flags = Flags::READ_WRITE.with(Flags::HUGE_2M);
    let elsewhere = MapRequest { place: Place::Anywhere, ..request(2 * HUGE, flags) };
    let short = Shortage::Pages { order: SIZE_2M, wanted: 2, available: 0 };
    assert_eq!(mm.map(id, &elsewhere), Err(MapError::NoHugePages(short)));
    assert_eq!(pool(mm), (4, 4, 4, 2));
    store(sim, mm, id, BASE, 1);
    // One more on demand, for a page that is copied.
    let child = mm.fork(id).unwrap();
    assert_eq!(store(sim, mm, id, BASE, 2), [Outcome::Copied]);
    assert_eq!(pool(mm), (5, 3, 3, 3));
    mm.unmap(child, range(BASE, HUGE)).unwrap();
    assert_eq!(pool(mm), (4, 3, 3, 2));
    mm.unmap(id, range(BASE + HUGE, 3 * HUGE)).unwrap();
    assert_eq!(pool(mm), (2, 1, 0, 0), "nobody needs the surplus any more");
    mm.audit(&[id, child]).unwrap();
    done(sim, mm, &[id, child], 2);
}

/// A page that is made for a fault is folded where folding is on at that time.
#[test]
fn a_page_made_on_demand_is_folded_as_the_switch_says() {
    for (folding, folded) in [(Folding::Off, 1), (Folding::On, 2)] {
        let (sim, mm, id, _over) = world(Policy::BASE_ONLY, 1);
        mm.set_folding(folding);
        mm.pools().set_overcommit(SIZE_2M, 1).unwrap();
        huge_area(mm, id, 1);
        store(sim, mm, id, BASE, 1);
        let child = mm.fork(id).unwrap();
        assert_eq!(mm.memmap().census().folded, 1);
        assert_eq!(store(sim, mm, id, BASE, 2), [Outcome::Copied]);
        assert_eq!(mm.memmap().census().folded, folded, "{folding:?}");
        done(sim, mm, &[id, child], 1);
    }
}

#[test]
fn every_refused_allocation_leaves_the_books_right() {
    for folding in [Folding::Off, Folding::On] {
        for k in 1.. {
            let (sim, mm, id, _over) = world(Policy::BASE_ONLY, 2);
            mm.set_folding(folding);
            mm.pools().set_overcommit(SIZE_2M, 4).unwrap();
            sim.fault_plan().set(Failing::Kth(k));
            let flags = Flags::READ_WRITE.with(Flags::HUGE_2M);
            let mapped = mm.map(id, &request(4 * HUGE, flags));
            if mapped.is_ok() {
                let first = store(sim, mm, id, BASE, 7);
                assert!(first == [Outcome::Mapped(SIZE_2M)] || first == [Outcome::OutOfMemory]);
            }
            let child = mm.fork(id);
            if let Ok(child) = child {
                mm.switch(Some(child)).unwrap();
                store(sim, mm, child, BASE, 8);
                mm.switch(Some(id)).unwrap();
            }
            let refused = sim.fault_plan().refused();
            sim.fault_plan().set(Failing::Nothing);
            let spaces: Vec<SpaceId> = [id].into_iter().chain(child.ok()).collect();
            mm.audit(&spaces).unwrap();
            done(sim, mm, &spaces, 2);
            if refused == 0 {
                break;
            }
        }
    }
}

#[test]
fn two_cpus_fault_on_one_reservation() {
    for seed in 0..60 {
        let mut config = Config::seeded(3, Bytes::new(32 * MB), seed);
        if seed % 2 == 1 {
            config.rules.replace = Replace::BreakBeforeMake;
        }
        let sim = Sim::new(config).unwrap();
        let mm = manager(&sim, Policy::BASE_ONLY);
        mm.set_folding(Folding::On);
        fill(&mm, 2);
        let id = mm.create(None).unwrap();
        let area = huge_area(&mm, id, 2);
        sim.parallel(3, |cpu| {
            mm.online();
            mm.switch(Some(id)).unwrap();
            for step in 0..6 {
                let va = Va::new(BASE + step % 2 * HUGE);
                let outcome = mm.fault(id, va, Access::Write);
                if cpu.0 == 2 && step == 4 {
                    mm.unmap(id, area).unwrap();
                }
                let gone = matches!(outcome, Outcome::Refused(Refusal::NoArea(_)));
                let got = matches!(outcome, Outcome::Mapped(_) | Outcome::Spurious);
                assert!(got || gone, "{seed}: {outcome:?}");
            }
        });
        done(&sim, &mm, &[id], 2);
    }
}

/// Memory that comes zeroed is not cleared for the first user of a page, and is for the second:
/// after stores, and after a copy. What was never used is still known to be zero when it leaves the
/// pool.
#[test]
fn a_page_known_to_be_zero_is_cleared_for_its_second_user_only() {
    let sim = sim(1, 64);
    let setup = Setup { contents: Contents::Zero, ..Setup::of(&sim.config().memory, BASE_ONLY) };
    let mm: Audited<'_, X86_64<4>> = audited(&sim, &setup);
    fill(&mm, 8);
    let fresh = mm.known_zero();
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    let cleared = |work: &dyn Fn()| {
        let before = mm.total(Event::ZeroedBytes);
        work();
        mm.total(Event::ZeroedBytes) - before
    };
    let area = huge_area(&mm, id, 4);
    let touch = || (0..4).for_each(|n| drop(store(&sim, &mm, id, BASE + n * HUGE + 0x12_3450, 7)));
    assert_eq!(cleared(&touch), 0);
    let child = mm.fork(id).unwrap();
    assert_eq!(cleared(&touch), 0, "copied to four fresh pages");
    mm.end(child).unwrap();
    mm.unmap(id, area).unwrap();
    huge_area(&mm, id, 8);
    let zero = |n| assert_eq!(load(&sim, &mm, id, BASE + n * HUGE), 0);
    zero(0); // and the tables
    assert_eq!(cleared(&|| (1..8).for_each(zero)), 7 * HUGE, "all eight were used");
    finish(&sim, &mm, &[id]);
    fill(&mm, 0);
    assert!(mm.known_zero() <= fresh, "used pages are not known to be zero");
    let before = mm.known_zero();
    fill(&mm, 20);
    fill(&mm, 0);
    assert_eq!(mm.known_zero(), before, "unused pages are what they were");
}

/// Eighteen gaps are as large as a huge page, and none has its place: the one with just the room to
/// spare that it takes lies below all of them, and a larger one further down.
#[test]
fn a_huge_page_goes_below_many_gaps_that_lie_wrong() {
    let (sim, mm, id, _over) = world(BASE_ONLY, 1);
    let top = mm.map(id, &MapRequest { place: Place::Anywhere, ..request(4096, Flags::READ) });
    let end = top.unwrap().start().get();
    let top = end / HUGE * HUGE;
    let map = |start: u64, end: u64| {
        let (place, bytes) = (Place::NoReplace(Va::new(start)), Bytes::new(end - start));
        mm.map(id, &MapRequest { place, bytes, ..request(0, Flags::READ) }).unwrap();
    };
    map(top + 4096, end);
    // A gap as large as a huge page lies between each two, and begins a page above a boundary.
    let areas = 19;
    for nth in 1..=areas {
        let start = top + 4096 + HUGE - nth * 2 * HUGE;
        map(start, start + HUGE);
    }
    let roomy = top + 4096 + HUGE - areas * 2 * HUGE - (2 * HUGE - 4096);
    map(roomy - 4096, roomy);
    let anywhere =
        MapRequest { place: Place::Anywhere, ..request(HUGE, Flags::READ.with(Flags::HUGE_2M)) };
    let found = mm.map(id, &anywhere).unwrap();
    assert_eq!(found, range(top - areas * 2 * HUGE, HUGE), "the highest place below them");
    done(sim, mm, &[id], 1);
}

/// A fault hangs a table into the place of an area that is unmapped at this moment: a huge page
/// there takes it out, and no other.
#[test]
fn a_table_that_a_late_fault_left_gives_way_to_a_huge_page() {
    let (machine, mm, _over) = meddled(1, 64, BASE_ONLY);
    mm.online();
    mm.set_folding(Folding::On);
    fill(mm, 1);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    let behind = area(mm, id, BASE + HUGE, PAGE);
    store(&machine.sim, mm, id, behind.start().get(), 1);
    let gone = area(mm, id, BASE, HUGE);
    machine.after_clearing(PAGE, move || mm.unmap(id, gone).unwrap());
    let late = mm.fault(id, gone.start(), Access::Write);
    assert_eq!(late, Outcome::Refused(Refusal::NoArea(gone.start())));
    mm.map(id, &request(HUGE, Flags::READ_WRITE.with(Flags::HUGE_2M))).unwrap();
    let before = mm.total(Event::TableFreed);
    // When the table goes back nobody has to wait for the space's writer (flush::F7).
    machine.before_freeing(move || _ = area(mm, id, BASE + 4 * HUGE, PAGE));
    assert_eq!(store(&machine.sim, mm, id, BASE, 5), [Outcome::Mapped(SIZE_2M)]);
    assert_eq!(mm.total(Event::TableFreed) - before, 1);
    assert_eq!(load(&machine.sim, mm, id, behind.start().get()), 1, "the neighbour has its own");
}

/// The leaf of a page of a pool is not taken apart: nothing is kept for that.
#[test]
fn finding_ep_a_huge_page_is_not_forgotten_in_part() {
    let (sim, mm, id, _over) = world(BASE_ONLY, 2);
    huge_area(mm, id, 2);
    assert_eq!(store(sim, mm, id, BASE, 3), [Outcome::Mapped(SIZE_2M)]);
    assert_eq!(store(sim, mm, id, BASE + HUGE, 4), [Outcome::Mapped(SIZE_2M)]);
    let cuts = |va: u64| Err(RangeError::Cuts(Va::new(va), SIZE_2M.bytes()));
    for refs in [Refs::Accessed, Refs::SoftDirty] {
        assert_eq!(mm.clear_refs(id, range(BASE, HUGE + PAGE), refs), cuts(BASE + HUGE + PAGE));
        assert_eq!(mm.clear_refs(id, range(BASE + PAGE, HUGE), refs), cuts(BASE + PAGE));
        mm.clear_refs(id, range(BASE, 2 * HUGE), refs).unwrap();
        mm.audit(&[id]).unwrap();
    }
    assert_eq!(store(sim, mm, id, BASE, 5), [Outcome::Reused], "a write is noted again");
    assert_eq!([0, 1].map(|nth| load(sim, mm, id, BASE + nth * HUGE)), [5, 4]);
    done(sim, mm, &[id], 2);
}

/// What is offered to a fault is for one kind of area: a block for a folio, or a page of the pool.
/// The area becomes one of the other kind while the offer is cleared.
#[test]
fn finding_ad_an_offer_for_another_kind_of_area_goes_back() {
    let (plain, huge) = (Flags::READ_WRITE, Flags::HUGE_2M.with(Flags::NORESERVE));
    let huge = plain.with(huge);
    for (first, then, pages, expected) in [
        (plain, huge, 0, Outcome::NoHugePage(SIZE_2M)),
        (plain, huge, 1, Outcome::Mapped(SIZE_2M)),
        (huge, plain, 1, Outcome::Mapped(SIZE_2M)),
    ] {
        let (machine, mm, _over) = meddled(1, 64, only(9));
        mm.online();
        fill(mm, pages);
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        mm.map(id, &request(HUGE, first)).unwrap();
        machine.after_clearing(HUGE - 3 * PAGE, move || {
            let over = MapRequest { place: Place::Fixed(Va::new(BASE)), ..request(HUGE, then) };
            mm.map(id, &over).unwrap();
        });
        assert_eq!(mm.fault(id, Va::new(BASE), Access::Write), expected);
        let used = if then == huge { pages } else { 0 };
        assert_eq!(pool(mm), (pages, pages - used, 0, 0));
        let dropped = if first == plain { HUGE } else { 0 };
        assert_eq!(mm.total(Event::DroppedBytes), dropped, "a block that was cleared in vain");
    }
}

/// A fault is about to take a shared leaf apart, and a huge page of the pool comes in its place:
/// that one is never taken apart.
#[test]
fn finding_ae_a_fault_takes_apart_what_it_saw_alone() {
    let flags = Flags::READ_WRITE.with(Flags::HUGE_2M).with(Flags::NORESERVE);
    let over = MapRequest { place: Place::Fixed(Va::new(BASE)), ..request(HUGE, flags) };
    let mut changed = 0;
    let mut meet = |step| {
        let machine = Beside::new(sim(2, 64));
        let mm = machine.manager(only(9));
        mm.cpus().for_each(|cpu| machine.sim.on(cpu, || mm.online()));
        fill(&mm, 1);
        let id = mm.create(None).unwrap();
        mm.cpus().for_each(|cpu| machine.sim.on(cpu, || mm.switch(Some(id)).unwrap()));
        area(&mm, id, BASE + HUGE, PAGE); // keeps the tables: nobody waits for readers
        area(&mm, id, BASE, HUGE);
        store(&machine.sim, &mm, id, BASE, 1);
        let child = mm.fork(id).unwrap();
        let change = || {
            mm.map(id, &over).unwrap();
            mm.fault(id, Va::new(BASE), Access::Write);
        };
        let ran = machine.before_step(step, change, || mm.fault(id, Va::new(BASE), Access::Write));
        if ran.is_some() {
            let levels = mm.with_leaves(id, range(BASE, HUGE), |found| {
                found.map(|leaf| leaf.level).collect::<Vec<Level>>()
            });
            assert_eq!(levels.unwrap(), [Level::SIZE_2M], "changed before step {step}");
            assert_eq!(pool(&mm), (1, 0, 0, 0));
            changed += 1;
        }
        finish(&machine.sim, &mm, &[id, child]);
        assert_eq!(pool(&mm).1, 1);
        machine.worked()
    };
    let steps = meet(u64::MAX);
    some_steps(steps).for_each(|step| _ = meet(step));
    assert!(changed > 50, "{changed}");
}
