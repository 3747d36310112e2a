//! What may run at a preemption point, and who waits for whom there (findings C, R1, R9).

use crate::common::beside::Beside;
use crate::common::meddler::Meddler;
use crate::common::*;
use foliant::fault::{Orders, Refusal};
use foliant::frame::{Flag, Kind};
use foliant::manager::Poisoned;
use foliant::pool::Budget;
use foliant::space::{Advice, Flags, MapRequest, Place, SpaceId};
use foliant::vmap::Request;
use foliant::zero::{Clearing, ZeroGrain};
use foliant::{Access, Event, Outcome, Policy};
use foliant_machine::{Cpus, Replace};
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, Frame, Nanos, Order, Va, VaRange};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};

/// A machine with one CPU on which every clear of more than a page meets preemption points.
fn preemptible(megabytes: u64) -> World<Meddler> {
    let (meddler, mm, kept) = meddled(1, megabytes, Policy::BASE_ONLY);
    let (budget, grain) = (Nanos(1000), ZeroGrain::PAGE);
    mm.set_clearing(Clearing { budget, grain, ..mm.clearing() });
    (meddler, mm, kept)
}

fn running(mm: &Mm<'_>) -> SpaceId {
    let id = mm.create(None).unwrap();
    mm.online();
    mm.switch(Some(id)).unwrap();
    id
}

fn huge_area(mm: &Mm<'_>, id: SpaceId, bytes: u64) {
    let request = MapRequest {
        place: Place::NoReplace(Va::new(BASE)),
        bytes: Bytes::new(bytes),
        flags: Flags::READ_WRITE.with(Flags::HUGE_2M),
        tag: 0,
    };
    mm.map(id, &request).unwrap();
}

/// While a fault clears 2 MiB its CPU runs another task, whose unmap frees a table and so waits for
/// readers: the fault must not be one.
#[test]
fn finding_c_a_task_unmaps_while_a_fault_of_the_same_cpu_clears() {
    let (meddler, mm, _over) = preemptible(64);
    let other = running(mm);
    area(mm, other, BASE, 4 * MB);
    store(&meddler.sim, mm, other, BASE, 1);
    let id = running(mm);
    area(mm, id, BASE, 4 * MB);
    mm.set_policy(Policy::always(Orders::of(Order::SIZE_2M)));
    meddler.at_yield(move || mm.unmap(other, range(BASE, 4 * MB)).unwrap());
    assert_eq!(mm.fault(id, Va::new(BASE), Access::Write), Outcome::Mapped(Order::SIZE_2M));
    assert_eq!(mm.pages(other).unwrap().get(), 0, "the other task ran");
}

/// The space of a fault that clears may be emptied meanwhile, or end: nothing is published then,
/// and nothing is lost.
#[test]
fn finding_c_the_area_goes_while_its_fault_clears() {
    for ends in [false, true] {
        let (meddler, mm, _over) = preemptible(64);
        let (id, bystander) = (running(mm), mm.create(None).unwrap());
        area(mm, id, BASE, 4 * MB);
        mm.set_policy(Policy::always(Orders::of(Order::SIZE_2M)));
        mm.describe_all().unwrap();
        let before = mm.memory().free.get();
        meddler.at_yield(move || {
            if ends {
                mm.switch(None).unwrap();
                mm.end(id).unwrap();
            } else {
                mm.unmap(id, range(BASE, 4 * MB)).unwrap();
            }
        });
        let outcome = mm.fault(id, Va::new(BASE), Access::Write);
        assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
        let tables = 8;
        assert!(mm.memory().free.get() + tables >= before, "what was prepared went back");
        let _ = if ends { vec![bystander] } else { vec![id, bystander] };
    }
}

/// A space at its limit: what would not be charged is not cleared in the first place.
#[test]
fn finding_c_nothing_is_cleared_that_could_not_be_charged() {
    let (_, mm, _over) = meddled(1, 64, Policy::always(Orders::of(Order::SIZE_2M)));
    let id = mm.create(Some(foliant_units::Pages::new(100))).unwrap();
    mm.online();
    mm.switch(Some(id)).unwrap();
    area(mm, id, BASE, 4 * MB);
    let cleared = mm.total(Event::ZeroedBytes);
    assert_eq!(mm.fault(id, Va::new(BASE), Access::Write), Outcome::Mapped(Order::BASE));
    let cleared = mm.total(Event::ZeroedBytes) - cleared;
    assert!(cleared < MB, "{cleared} bytes");
}

/// While the descriptors of a section are cleared no preemption point is reached: who waits for
/// them spins.
#[test]
fn finding_c_a_task_touches_a_page_while_descriptors_are_cleared() {
    let (meddler, mm, _over) = preemptible(300);
    let id = running(mm);
    area(mm, id, BASE, 256 * MB);
    let sim = &meddler.sim;
    meddler.at_yield(move || drop(store(sim, mm, id, BASE + 128 * MB, 1)));
    for page in 0..1000 {
        store(sim, mm, id, BASE + page * 4096, 1);
    }
}

/// The only page that was reserved is being cleared by a fault when another task of its CPU touches
/// the same address: it waits by letting the first one go on.
#[test]
fn finding_c_two_tasks_of_a_cpu_touch_one_huge_page() {
    let (meddler, mm, _over) = preemptible(64);
    let id = running(mm);
    mm.resize_pool(Order::SIZE_2M, 1, Budget::ALL).unwrap();
    huge_area(mm, id, 2 * MB);
    let other = mm.create(None).unwrap();
    area(mm, other, BASE, 4 * MB);
    mm.switch(Some(other)).unwrap();
    store(&meddler.sim, mm, other, BASE, 1);
    mm.switch(Some(id)).unwrap();
    meddler.at_yield(move || mm.unmap(other, range(BASE, 4 * MB)).unwrap());
    assert_eq!(mm.fault(id, Va::new(BASE), Access::Write), Outcome::Mapped(Order::SIZE_2M));
    assert_eq!(mm.pages(other).unwrap().get(), 0, "the other task ran");
}

/// A task that waits for the page that another task of its CPU is clearing lets others run, one of
/// which takes the area away.
#[test]
fn finding_c_a_task_that_waits_for_a_huge_page_yields() {
    let (meddler, mm, _over) = preemptible(64);
    let id = running(mm);
    mm.resize_pool(Order::SIZE_2M, 1, Budget::ALL).unwrap();
    huge_area(mm, id, 2 * MB);
    let fault = move || mm.fault(id, Va::new(BASE), Access::Write);
    let refused = |outcome| assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
    meddler.at_yield(move || {
        meddler.at_yield(move || mm.unmap(id, range(BASE, 2 * MB)).unwrap());
        refused(fault());
    });
    refused(fault());
}

/// A huge page that is shared is copied outside of sections. Another task of the CPU runs then, and
/// whatever it does to the page, each owner keeps what is its own, and nothing is lost.
#[test]
fn finding_c_a_shared_huge_page_is_copied_with_preemption_points() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Meanwhile {
        ChildWrites,
        ChildUnmaps,
        ChildEnds,
        ParentUnmaps,
        ParentMapsAnew,
        ParentShares,
    }
    use Meanwhile::*;
    let all = [ChildWrites, ChildUnmaps, ChildEnds, ParentUnmaps, ParentMapsAnew, ParentShares];
    for meanwhile in all {
        let (meddler, mm, _over) = preemptible(64);
        let sim = &meddler.sim;
        let id = running(mm);
        mm.resize_pool(Order::SIZE_2M, 4, Budget::ALL).unwrap();
        huge_area(mm, id, 2 * MB);
        store(sim, mm, id, BASE + MB, 7);
        let child = mm.fork(id).unwrap();
        let (told, ran) = mpsc::channel();
        meddler.at_yield(move || {
            let mut spaces = vec![id, child];
            match meanwhile {
                ChildWrites => {
                    mm.switch(Some(child)).unwrap();
                    store(sim, mm, child, BASE + MB, 9);
                    mm.switch(Some(id)).unwrap();
                }
                ChildUnmaps => mm.unmap(child, range(BASE, 2 * MB)).unwrap(),
                ChildEnds => {
                    mm.end(child).unwrap();
                    spaces.truncate(1);
                }
                ParentUnmaps => mm.unmap(id, range(BASE, 2 * MB)).unwrap(),
                ParentMapsAnew => {
                    mm.unmap(id, range(BASE, 2 * MB)).unwrap();
                    huge_area(mm, id, 2 * MB);
                    store(sim, mm, id, BASE, 1);
                }
                ParentShares => spaces.push(mm.fork(id).unwrap()),
            }
            told.send(spaces).unwrap();
        });
        let outcome = mm.fault(id, Va::new(BASE), Access::Write);
        let spaces = ran.try_recv().expect("another task ran");
        match meanwhile {
            ParentUnmaps => assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}"),
            ParentMapsAnew => assert_eq!(outcome, Outcome::Spurious),
            _ => {
                assert_eq!(outcome, Outcome::Copied, "{meanwhile:?}");
                assert_eq!(load(sim, mm, id, BASE + MB), 7, "{meanwhile:?}");
                store(sim, mm, id, BASE + MB, 8);
            }
        }
        for other in spaces.iter().filter(|space| **space != id) {
            mm.switch(Some(*other)).unwrap();
            match meanwhile {
                ChildUnmaps => assert!(mm.frame_at(*other, Va::new(BASE)).is_none()),
                ChildWrites => assert_eq!(load(sim, mm, *other, BASE + MB), 9),
                _ => assert_eq!(load(sim, mm, *other, BASE + MB), 7, "{meanwhile:?}"),
            }
        }
        finish(sim, mm, &spaces);
        assert_eq!(mm.pool(Order::SIZE_2M).unwrap().free_hugepages, 4, "{meanwhile:?}");
    }
}

/// A fork has made a huge page read-only, and has not told so yet: a CPU that still writes to it
/// does so before it is copied, or faults.
#[test]
fn finding_c_what_a_cpu_still_writes_is_in_the_copy() {
    let (meddler, mm, _over) = meddled(3, 64, Policy::BASE_ONLY);
    let sim = &meddler.sim;
    mm.cpus().for_each(|cpu| sim.on(cpu, || mm.online()));
    let id = mm.create(None).unwrap();
    mm.cpus().for_each(|cpu| sim.on(cpu, || mm.switch(Some(id)).unwrap()));
    mm.resize_pool(Order::SIZE_2M, 4, Budget::ALL).unwrap();
    huge_area(mm, id, 2 * MB);
    sim.on(cpu(1), || drop(store(sim, mm, id, BASE, 7)));
    let (told, ran) = mpsc::channel();
    meddler.before_asking(move || {
        let late = move || drop(store(sim, mm, id, BASE, 8));
        meddler.at_yield(move || sim.on(cpu(1), late));
        told.send(sim.on(cpu(2), || mm.fault(id, Va::new(BASE + 8), Access::Write))).unwrap();
    });
    let _ = mm.fork(id).unwrap();
    let outcome = ran.try_recv().expect("the fork asked");
    assert!(matches!(outcome, Outcome::Copied | Outcome::Spurious), "{outcome:?}");
    assert_eq!(sim.on(cpu(2), || load(sim, mm, id, BASE)), 8, "a store was lost");
}

/// A move of a page is about to be told to other CPUs, and a fault needs a table meanwhile: it
/// waits for that flush outside of its section, for others may begin before it ends. Here it sees
/// at its first preemption point that the area has been closed.
#[test]
fn finding_cf_a_fault_waits_for_flushes_outside_of_its_section() {
    let (meddler, mm, _over) = meddled(2, 64, Policy::BASE_ONLY);
    let sim = &meddler.sim;
    let id = mm.create(None).unwrap();
    for n in 0..2 {
        sim.on(cpu(n), || mm.online());
        sim.on(cpu(n), || mm.switch(Some(id)).unwrap());
    }
    area(mm, id, BASE, PAGE);
    let fresh = area(mm, id, BASE + GB, PAGE);
    store(sim, mm, id, BASE, 1);
    sim.on(cpu(1), || assert_eq!(load(sim, mm, id, BASE), 1));
    let (told, ran) = mpsc::channel();
    meddler.before_asking(move || {
        meddler.at_yield(move || mm.protect(id, fresh, Flags::NONE).unwrap());
        told.send(sim.on(cpu(1), || mm.fault(id, fresh.start(), Access::Write))).unwrap();
    });
    mm.relocate(mm.frame_at(id, Va::new(BASE)).unwrap()).unwrap();
    let closed = Refusal::NoRight(fresh.start(), Access::Write);
    assert_eq!(ran.try_recv().expect("the move asked"), Outcome::Refused(closed));
}

/// Of a pool's pages, as many are given up at once.
const BATCH: u64 = 1024;

/// A space that runs, with an area for so many huge pages, made beyond those that the pool has, and
/// a page elsewhere.
fn surplus(pages: u64) -> (&'static Meddler, &'static Mm<'static>, SpaceId, VaRange, Over) {
    let (meddler, mm, over) = meddled(1, (pages + BATCH) * 2 + 128, Policy::BASE_ONLY);
    mm.pools().set_overcommit(Order::SIZE_2M, pages + BATCH).unwrap();
    let id = running(mm);
    area(mm, id, BASE + 64 * GB, PAGE);
    huge_area(mm, id, pages * 2 * MB);
    assert_eq!(surplus_of(mm), pages);
    (meddler, mm, id, range(BASE, pages * 2 * MB), over)
}
fn surplus_of(mm: &Mm<'_>) -> u64 {
    mm.pools().counters(Order::SIZE_2M).unwrap().surplus_hugepages
}
/// What a fault beside it gives up.
fn fault_beside(mm: &Mm<'_>, id: SpaceId) -> (u64, u64) {
    let before = surplus_of(mm);
    mm.fault(id, Va::new(BASE + 64 * GB), Access::Write);
    (before, surplus_of(mm))
}

/// Reservations of many surplus pages go: the call that gives them back gives the pages up batch by
/// batch, with preemption points, and a fault that comes in between gives up one batch.
#[test]
fn finding_cg_surplus_is_given_up_in_batches() {
    let (meddler, mm, id, whole, _over) = surplus(5 * BATCH);
    let (told, ran) = mpsc::channel();
    meddler.at_yield(move || told.send(fault_beside(mm, id)).unwrap());
    mm.unmap(id, whole).unwrap();
    assert_eq!(surplus_of(mm), 0);
    let (before, after) = ran.try_recv().expect("a preemption point");
    assert!(before > 0 && before - after <= BATCH, "{before} and {after}");
}

/// Many pages come back that nobody needs any more, each of which was used: the call that unmapped
/// them gives them up batch by batch as well.
#[test]
fn finding_ck_pages_that_come_back_are_given_up_in_batches() {
    let (meddler, mm, id, whole, _over) = surplus(3 * BATCH);
    for nth in 0..3 * BATCH {
        mm.fault(id, Va::new(BASE + nth * 2 * MB), Access::Write);
    }
    let (told, ran) = mpsc::channel();
    meddler.before_freeing(move || {
        meddler.at_yield(move || told.send(fault_beside(mm, id)).unwrap());
    });
    mm.unmap(id, whole).unwrap();
    assert_eq!(surplus_of(mm), 0);
    let (before, after) = ran.try_recv().expect("a preemption point");
    assert!(before >= 2 * BATCH && before - after <= BATCH, "{before} and {after}");
}

/// A pool that is made larger meanwhile may need the memory of all surplus pages, and not of one
/// batch of them: it is had first.
#[test]
fn finding_ck_a_pool_grows_when_all_surplus_is_given_up() {
    let (meddler, mm, id, whole, _over) = surplus(4 * BATCH);
    let (told, ran) = mpsc::channel();
    meddler.at_yield(move || {
        let before = surplus_of(mm);
        mm.resize_pool(Order::SIZE_1G, 1, Budget::ALL).unwrap();
        told.send((before, surplus_of(mm))).unwrap();
    });
    mm.unmap(id, whole).unwrap();
    let (before, after) = ran.try_recv().expect("a preemption point");
    assert!(before >= 2 * BATCH && after == 0, "{before} and {after}");
}

/// A page is its space's alone and read-only, and a change of rights that is under way will make
/// its entry writable without asking anybody: a fault that has a page at hand does not copy it.
#[test]
fn finding_br_an_exclusive_huge_page_is_not_copied() {
    let mut config = Config::seeded(3, Bytes::new(64 * MB), 1);
    config.rules.replace = Replace::BreakBeforeMake;
    let (meddler, mm, _over) = kept(Meddler::new(Sim::new(config).unwrap()), Policy::BASE_ONLY);
    let (budget, grain) = (Nanos(1000), ZeroGrain::PAGE);
    mm.set_clearing(Clearing { budget, grain, ..mm.clearing() });
    let sim = &meddler.sim;
    let id = mm.create(None).unwrap();
    for n in 0..3 {
        sim.on(cpu(n), || mm.online());
        sim.on(cpu(n), || mm.switch(Some(id)).unwrap());
    }
    mm.resize_pool(Order::SIZE_2M, 3, Budget::ALL).unwrap();
    // The page before it is changed, and flushed, first.
    let before = area(mm, id, BASE - SIZE_2M, SIZE_2M);
    sim.on(cpu(2), || drop(store(sim, mm, id, BASE - PAGE, 1)));
    let flags = Flags::READ_WRITE.with(Flags::HUGE_2M).with(Flags::NORESERVE);
    mm.map(id, &request(Place::NoReplace(Va::new(BASE)), SIZE_2M, flags)).unwrap();
    let both = range(before.start().get(), 2 * SIZE_2M);
    let (at, stopped) = mpsc::channel();
    let (go, goes) = mpsc::channel();
    let (begun, change) = mpsc::channel();
    meddler.at_yield(move || {
        sim.on(cpu(1), || {
            store(sim, mm, id, BASE, 5);
            mm.protect(id, both, Flags::READ).unwrap();
        });
        meddler.before_asking(move || {
            at.send(()).unwrap();
            goes.recv().unwrap();
        });
        let writable = move || mm.protect(id, both, Flags::READ_WRITE).unwrap();
        begun.send(std::thread::spawn(move || sim.on(cpu(1), writable))).unwrap();
        stopped.recv().unwrap();
    });
    let outcome = mm.fault(id, Va::new(BASE), Access::Write);
    go.send(()).unwrap();
    change.recv().unwrap().join().unwrap();
    assert_eq!(outcome, Outcome::Reused);
    assert_eq!(load(sim, mm, id, BASE), 5);
}

/// The entry of a shared page was not used when a fault found it. By the time that the page is kept
/// it may have been used, alone and writable, and be shared again: the flush before the copy is
/// made whatever the fault saw.
#[test]
fn finding_bw_what_is_copied_is_flushed_whatever_was_found() {
    let (meddler, mm, _over) = meddled(3, 64, Policy::BASE_ONLY);
    let (budget, grain) = (Nanos(1000), ZeroGrain::PAGE);
    mm.set_clearing(Clearing { budget, grain, ..mm.clearing() });
    let sim = &meddler.sim;
    let parent = running(mm);
    mm.resize_pool(Order::SIZE_2M, 4, Budget::ALL).unwrap();
    huge_area(mm, parent, 2 * MB);
    store(sim, mm, parent, BASE, 7);
    let child = mm.fork(parent).unwrap();
    for n in 0..3 {
        sim.on(cpu(n), || mm.online());
        sim.on(cpu(n), || mm.switch(Some(child)).unwrap());
    }
    let (ask, asked) = mpsc::channel();
    meddler.before_asking(move || ask.send(()).unwrap());
    let (tell, told) = mpsc::channel();
    meddler.at_yield(move || tell.send(asked.try_recv().is_ok()).unwrap());
    assert_eq!(mm.fault(child, Va::new(BASE), Access::Write), Outcome::Copied);
    assert_eq!(told.try_recv(), Ok(true), "it is copied before other CPUs were asked");
}

/// A page breaks while a fault clears it, and nobody has it mapped yet: nobody gets it.
#[test]
fn finding_bs_a_page_that_breaks_while_it_is_cleared_is_not_mapped() {
    let (meddler, mm, _over) = preemptible(64);
    let id = running(mm);
    mm.resize_pool(Order::SIZE_2M, 2, Budget::ALL).unwrap();
    huge_area(mm, id, 2 * MB);
    let heads = || {
        let frames = mm.ranges().flat_map(|range| range.iter());
        frames.filter(|frame| mm.identity(*frame).kind() == Kind::Huge).collect::<Vec<_>>()
    };
    let cleared = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&cleared);
    meddler.at_yield(move || {
        let is_held = |head: &Frame| mm.poison(*head) == Poisoned::Held;
        *seen.lock().unwrap() = heads().into_iter().find(is_held);
    });
    assert_eq!(mm.fault(id, Va::new(BASE), Access::Write), Outcome::Mapped(Order::SIZE_2M));
    let mapped = mm.frame_at(id, Va::new(BASE)).unwrap();
    let broken = cleared.lock().unwrap().expect("it yielded");
    assert_ne!(mapped, broken);
    assert!(!mm.identity(mapped).has(Flag::Poisoned));
}

/// Makes a fault of `id`, which has nothing mapped near `va` yet, stay in its reader's section: it
/// has just cleared a table.
fn read_until(
    (machine, mm): (&'static Meddler, &'static Mm<'static>),
    (id, va): (SpaceId, u64),
    is_over: impl Fn() -> bool + Send + 'static,
) {
    machine.after_clearing(4096, move || {
        while !is_over() {
            machine.sim.relax();
        }
    });
    assert_eq!(mm.fault(id, Va::new(va), Access::Write), Outcome::Mapped(Order::BASE));
}

/// Who removed tables waits for readers; another one who wants to change the same space once waited
/// for that too.
#[test]
fn finding_r1_readers_are_waited_for_without_the_writers_lock() {
    static READS: AtomicBool = AtomicBool::new(false);
    static MAPPED: AtomicBool = AtomicBool::new(false);
    let (machine, mm, _over) = meddled(3, 64, Policy::BASE_ONLY);
    let sim = &machine.sim;
    let (id, other) = (mm.create(None).unwrap(), mm.create(None).unwrap());
    mm.cpus().for_each(|cpu| sim.on(cpu, || mm.online()));
    sim.on(cpu(0), || {
        mm.switch(Some(id)).unwrap();
        area(mm, id, BASE, 4 * MB);
        area(mm, other, BASE, 4 * MB);
        store(sim, mm, id, BASE, 1);
    });
    let until = |flag: &AtomicBool| {
        while !flag.load(Ordering::SeqCst) {
            sim.relax();
        }
    };
    let bystander = || {
        read_until((machine, mm), (other, BASE), || {
            READS.store(true, Ordering::SeqCst);
            MAPPED.load(Ordering::SeqCst)
        });
    };
    let unmaps = || {
        until(&READS);
        mm.unmap(id, range(BASE, 4 * MB)).unwrap();
        assert!(MAPPED.load(Ordering::SeqCst), "it waited for the reader");
    };
    let maps = || {
        until(&READS);
        while mm.area(id, Va::new(BASE)).is_some() {
            sim.relax();
        }
        area(mm, id, 2 * BASE, 4 * MB);
        MAPPED.store(true, Ordering::SeqCst);
    };
    let all: [&(dyn Fn() + Sync); 3] = [&bystander, &unmaps, &maps];
    sim.run(all.into_iter().map(|work| move || work()).collect());
    sim.on(cpu(0), || finish(sim, mm, &[id, other]));
}

/// Each of many that free a table at once waited for a period of its own.
#[test]
fn finding_r1_unmaps_share_their_grace_periods() {
    const CPUS: u16 = 16;
    let (machine, mm, _over) = meddled(usize::from(CPUS) + 1, 64, Policy::BASE_ONLY);
    let sim = &machine.sim;
    let ids: Vec<SpaceId> = (0..CPUS).map(|_| mm.create(None).unwrap()).collect();
    for (nth, id) in ids.iter().enumerate() {
        sim.on(cpu(nth as u16), || {
            mm.online();
            mm.switch(Some(*id)).unwrap();
            area(mm, *id, BASE, 4 * MB);
            store(sim, mm, *id, BASE, 1);
        });
    }
    let read = mm.create(None).unwrap();
    sim.on(cpu(CPUS), || {
        mm.online();
        area(mm, read, BASE, 4 * MB);
    });
    let before = mm.total(Event::GracePeriods);
    // A reader keeps the first period from its end until all are there.
    let unmapped = ids.clone();
    let reader = move || {
        let spins = AtomicU64::new(0);
        read_until((machine, mm), (read, BASE), move || {
            let gone = |id: &SpaceId| mm.area(*id, Va::new(BASE)).is_none();
            unmapped.iter().all(gone) && spins.fetch_add(1, Ordering::SeqCst) > 1000
        });
    };
    let mut all: Vec<Box<dyn FnOnce() + Send + '_>> = Vec::new();
    for id in &ids {
        all.push(Box::new(|| mm.unmap(*id, range(BASE, 4 * MB)).unwrap()));
    }
    all.push(Box::new(reader));
    sim.run(all);
    let periods = mm.total(Event::GracePeriods) - before;
    assert!((1..=3).contains(&periods), "{periods} periods for {CPUS} unmaps");
    let _: Vec<SpaceId> = ids.iter().copied().chain([read]).collect();
}

/// Whoever gave back one range too many purged all that had been given back before, tens of
/// thousands of them.
#[test]
fn finding_r9_who_crosses_the_limit_purges_a_slice() {
    let sim = sim(1, 128);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let request = Request::of(Bytes::new(4096)).without_guard();
    let most = mm.vmap().lazy_max().get();
    let all: Vec<Va> = (0..most + 600).map(|_| mm.vmalloc(&request).unwrap().start()).collect();
    let mut worst = 0;
    for va in all {
        let before = mm.total(Event::VmapPurged);
        mm.vfree(va).unwrap();
        worst = worst.max(mm.total(Event::VmapPurged) - before);
    }
    assert!((1..=256).contains(&worst), "{worst} pages purged at once");
    assert!(mm.vmap().lazy().get() <= most, "the limit holds");
    mm.purge_vmalloc();
    assert_eq!(mm.vmap().lazy().get(), 0, "a purge that is asked for is whole");
}

/// An unmap that looks for areas of huge pages among very many others lets other tasks run while it
/// does.
#[test]
fn areas_without_reservations_are_passed_with_preemption_points() {
    const AREAS: u64 = 20_000;
    let machine = Beside::new(sim(1, 64));
    let mm = machine.manager(Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    for nth in 0..AREAS {
        let place = Place::NoReplace(Va::new(BASE + nth * PAGE));
        let ask = request(place, PAGE, Flags::READ_WRITE);
        mm.map(id, &MapRequest { tag: nth % 2, ..ask }).unwrap();
    }
    let before = machine.yields();
    mm.unmap(id, row(0, AREAS)).unwrap();
    assert_eq!(machine.yields() - before, 1, "of {AREAS} areas");
}

/// Pages and tables of a range are freed behind the same flushes, and only tables wait for readers:
/// as often for many as for one, however often there was no room for more pages.
#[test]
fn tables_of_one_operation_are_waited_for_once() {
    let periods = |tables: u64| {
        let sim = sim(1, 256);
        let mm = manager(&sim, Policy::BASE_ONLY);
        mm.online();
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        let count = |work: &dyn Fn()| {
            let before = mm.total(Event::GracePeriods);
            work();
            mm.total(Event::GracePeriods) - before
        };
        let fill = |id| {
            area(&mm, id, BASE, tables * SIZE_2M);
            for page in 0..tables * 512 {
                mm.fault(id, Va::new(BASE + page * PAGE), Access::Write);
            }
        };
        fill(id);
        let unmap = count(&|| mm.unmap(id, range(BASE, tables * SIZE_2M)).unwrap());
        let ended = mm.create(None).unwrap();
        fill(ended);
        let end = count(&|| mm.end(ended).unwrap());
        finish(&sim, &mm, &[id]);
        (unmap, end)
    };
    let few = periods(1);
    assert_eq!(few.0, 1);
    assert_eq!(periods(70), few);
}

/// Leaves and their tables take turns as a range is unmapped, and each kind goes on where it ended:
/// so few pages in neighbouring tables do not end all translations of the space.
#[test]
fn leaves_and_tables_that_take_turns_are_few_items() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    mm.online();
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 9 * SIZE_2M);
    (0..9).for_each(|table| _ = store(&sim, &mm, id, BASE + table * SIZE_2M, 1));
    let before = mm.total(Event::LocalAll);
    mm.unmap(id, range(BASE, 9 * SIZE_2M)).unwrap();
    assert_eq!(mm.total(Event::LocalAll), before);
    assert_eq!(sim.user_load(Va::new(BASE), 8).ok(), None);
}

/// A long range is opened again that was closed: its area says so before all entries do. A fault
/// that comes to an entry too early waits outside of its section, and lets others run, since the
/// opening may have yielded, and the task that runs now may wait for readers.
#[test]
fn a_fault_waits_outside_of_its_section_for_entries_that_follow_their_area() {
    const PAGES: u64 = 80 * MB / PAGE;
    let (meddler, mm, _over) = preemptible(160);
    let other = running(mm);
    area(mm, other, BASE, 4 * MB);
    store(&meddler.sim, mm, other, BASE, 1);
    let id = running(mm);
    let whole = area(mm, id, BASE, PAGES * PAGE);
    (0..PAGES).for_each(|n| _ = mm.fault(id, Va::new(BASE + n * PAGE), Access::Write));
    mm.protect(id, whole, Flags::NONE).unwrap();
    meddler.at_yield(move || {
        meddler.at_yield(move || {
            mm.unmap(other, range(BASE, 4 * MB)).unwrap();
            std::panic::resume_unwind(Box::new("unmapped")); // the opening is below it on the stack
        });
        let last = Va::new(BASE + (PAGES - 1) * PAGE);
        let fault = || mm.fault(id, last, Access::Write);
        let left = std::panic::catch_unwind(std::panic::AssertUnwindSafe(fault)).unwrap_err();
        assert_eq!(left.downcast_ref(), Some(&"unmapped"));
    });
    mm.protect(id, whole, Flags::READ_WRITE).unwrap();
    assert_eq!(mm.pages(other).unwrap().get(), 0, "the other task ran");
}

/// The holder of a pin may have yielded to the task that ends its space: the end yields, too
/// (sync::outside::O3).
#[test]
fn an_end_yields_to_the_holder_of_a_pin() {
    let yielded: &'static AtomicBool = Box::leak(Box::default());
    for seed in 0..40 {
        let sim = Sim::new(Config::seeded(2, Bytes::new(32 * MB), seed)).unwrap();
        let (machine, mm, _over) = kept(Meddler::new(sim), Policy::BASE_ONLY);
        mm.online();
        let id = mm.create(None).unwrap();
        // So few that what is done with them never yields.
        let few = area(mm, id, BASE, 16 * PAGE);
        mm.advise(id, few, Advice::PopulateWrite).unwrap();
        machine.at_yield(|| yielded.store(true, Ordering::SeqCst));
        machine.sim.parallel(2, |me| {
            mm.online();
            match me.0 {
                0 => mm.end(id).unwrap(),
                _ => drop(mm.protect(id, few, Flags::READ)),
            }
        });
    }
    assert!(yielded.load(Ordering::SeqCst), "no end met a pin, or none yielded");
}
