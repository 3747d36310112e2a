//! What operations cost in shootdowns, counted; and who is asked.

use crate::common::recorder::Step;
use crate::common::*;
use foliant::fault::Orders;
use foliant::space::{Advice, Flags, Move, SpaceId};
use foliant::{Access, Event, FlushGrain, Policy};
use foliant_machine::{Invalidation, Reach, Replace, Tlb};
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, Order, Va};

/// Shootdowns, CPUs asked, single local invalidations, local flushes of everything.
#[derive(PartialEq, Eq, Debug)]
struct Cost {
    shootdowns: u64,
    asked: u64,
    ones: u64,
    alls: u64,
}

fn cost(mm: &Mm<'_>, work: impl FnOnce()) -> Cost {
    let count = || {
        [Event::Shootdown, Event::Interrupt, Event::LocalOne, Event::LocalAll].map(|e| mm.total(e))
    };
    let before = count();
    work();
    let [shootdowns, asked, ones, alls] = core::array::from_fn(|i| count()[i] - before[i]);
    Cost { shootdowns, asked, ones, alls }
}

/// A space that `running` CPUs run; CPU 0 has stored to every page of `pages`.
fn warm<'m>(sim: &'m Sim, mm: &Mm<'m>, running: u16, pages: u64) -> SpaceId {
    let id = mm.create(None).unwrap();
    for n in 0..running {
        sim.on(cpu(n), || {
            mm.online();
            mm.switch(Some(id)).unwrap();
        });
    }
    area(mm, id, BASE, 8 * MB);
    for page in 0..pages {
        store(sim, mm, id, BASE + page * 4096, page);
    }
    id
}

#[test]
fn dropping_512_pages_is_one_shootdown() {
    let sim = sim(8, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = warm(&sim, &mm, 4, 512);
    let drop = || mm.advise(id, range(BASE, 2 * MB), Advice::DontNeed).unwrap();
    assert_eq!(cost(&mm, drop), Cost { shootdowns: 1, asked: 3, ones: 0, alls: 1 });
}

#[test]
fn a_large_leaf_is_one_entry() {
    let sim = sim(2, 64);
    let mm = manager(&sim, Policy::always(Orders::of(Order::SIZE_2M)));
    let id = warm(&sim, &mm, 2, 1024);
    let drop = || mm.unmap(id, range(BASE, 4 * MB)).unwrap();
    // Two leaves side by side: two entries, far below the ceiling of 33, though they are 1024
    // pages.
    assert_eq!(cost(&mm, drop), Cost { shootdowns: 1, asked: 1, ones: 2, alls: 0 });
}

#[test]
fn a_removed_table_is_one_entry() {
    let sim = sim(2, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = warm(&sim, &mm, 2, 3);
    let all = || mm.unmap(id, range(BASE, 8 * MB)).unwrap();
    // Three pages, the table that held them, and the one above it.
    assert_eq!(cost(&mm, all), Cost { shootdowns: 1, asked: 1, ones: 5, alls: 0 });
}

#[test]
fn the_ceiling_counts_entries() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let ceiling = sim.rules().ceiling_entries as u64;
    for (pages, ones, alls) in [(1, 1, 0), (ceiling, ceiling, 0), (ceiling + 1, 0, 1)] {
        let id = warm(&sim, &mm, 1, pages);
        let drop = || mm.advise(id, range(BASE, pages * 4096), Advice::DontNeed).unwrap();
        assert_eq!(cost(&mm, drop), Cost { shootdowns: 0, asked: 0, ones, alls }, "{pages}");
    }
}

#[test]
fn only_cpus_that_run_the_space_are_asked() {
    let sim = sim(8, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = warm(&sim, &mm, 6, 8);
    for n in 2..6 {
        sim.on(cpu(n), || mm.switch(None).unwrap());
    }
    let drop = || mm.advise(id, range(BASE, 8 * 4096), Advice::DontNeed).unwrap();
    assert_eq!(cost(&mm, drop), Cost { shootdowns: 1, asked: 1, ones: 8, alls: 0 });
    sim.on(cpu(1), || mm.switch(None).unwrap());
    store(&sim, &mm, id, BASE, 1);
    let drop = || mm.advise(id, range(BASE, 4096), Advice::DontNeed).unwrap();
    assert_eq!(cost(&mm, drop), Cost { shootdowns: 0, asked: 0, ones: 1, alls: 0 });
}

/// Populating marks pages as used, so the bit is cleared by hand: what no walker has used is in no
/// TLB.
#[test]
fn what_was_never_accessed_needs_no_shootdown() {
    let sim = sim(2, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let parent = warm(&sim, &mm, 2, 16);
    // A fork's entries are fresh: nobody has run the child yet.
    let child = mm.fork(parent).unwrap();
    let spared = mm.total(Event::FlushSpared);
    for n in 0..2 {
        sim.on(cpu(n), || mm.switch(Some(child)).unwrap());
    }
    let drop = || mm.unmap(child, range(BASE, 16 * 4096)).unwrap();
    let found = cost(&mm, drop);
    assert_eq!((found.shootdowns, found.ones), (0, 0));
    assert_eq!(mm.total(Event::FlushSpared), spared + 16);
}

#[test]
fn more_rights_need_no_shootdown_and_fewer_need_one() {
    let sim = sim(4, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = warm(&sim, &mm, 4, 4);
    let fewer = || mm.protect(id, range(BASE, 4 * 4096), Flags::READ).unwrap();
    assert_eq!(cost(&mm, fewer), Cost { shootdowns: 1, asked: 3, ones: 4, alls: 0 });
    let more = || mm.protect(id, range(BASE, 4 * 4096), Flags::READ_WRITE).unwrap();
    assert_eq!(cost(&mm, more), Cost { shootdowns: 0, asked: 0, ones: 0, alls: 0 });
    // The pages were exclusive all the time: no fault brings the right back.
    assert!(
        sim.user_store(Va::new(BASE + 4096), 8, 5).is_ok()
            || mm.fault(id, Va::new(BASE + 4096), Access::Write) == foliant::Outcome::Spurious
    );
}

#[test]
fn a_fork_is_one_shootdown_however_much_is_shared() {
    let sim = sim(4, 64);
    let mm = manager(&sim, Policy::always(Orders::of(Order::new(4).unwrap())));
    let id = warm(&sim, &mm, 4, 1024);
    let mut child = None;
    let fork = || child = mm.fork(id).ok();
    assert_eq!(cost(&mm, fork), Cost { shootdowns: 1, asked: 3, ones: 0, alls: 1 });
}

/// Runs `work` at each grain on a space of 512 pages that 4 CPUs run, and demands the shootdowns
/// that the entries of its flushes take.
fn at_each_grain(entries: &[u64], work: impl Fn(&Mm<'_>, SpaceId) -> Option<SpaceId>) {
    for grain in [1, 7, 64, 0] {
        let sim = sim(4, 64);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let id = warm(&sim, &mm, 4, 512);
        mm.set_flush_grain(FlushGrain::new(grain).unwrap_or(FlushGrain::WHOLE));
        let mut more = None;
        let found = cost(&mm, || more = work(&mm, id));
        let flushes = |n: &u64| if grain == 0 { 1 } else { n.div_ceil(grain.into()) };
        let shootdowns: u64 = entries.iter().map(flushes).sum();
        let (count, asked) = (found.shootdowns, found.asked);
        assert_eq!((count, asked), (shootdowns, 3 * shootdowns), "grain {}", mm.flush_grain());
        for page in 0..512 {
            let old = load(&sim, &mm, id, BASE + 2 * MB + page * 4096);
            assert_eq!(old, 0, "a neighbour was hit");
        }
        let _: Vec<SpaceId> = [id].into_iter().chain(more).collect();
    }
}

#[test]
fn the_grain_is_the_entries_per_shootdown_of_a_drop() {
    // 512 pages and the table that held them.
    at_each_grain(&[513], |mm, id| {
        mm.advise(id, range(BASE, 2 * MB), Advice::DontNeed).unwrap();
        None
    });
}

#[test]
fn the_grain_is_the_entries_per_shootdown_of_an_unmap() {
    // 512 pages and the table that held them.
    at_each_grain(&[513], |mm, id| {
        mm.unmap(id, range(BASE, 2 * MB)).unwrap();
        None
    });
}

#[test]
fn the_grain_is_the_entries_per_shootdown_of_a_protect() {
    at_each_grain(&[512], |mm, id| {
        mm.protect(id, range(BASE, 2 * MB), Flags::READ).unwrap();
        None
    });
}

#[test]
fn the_grain_is_the_entries_per_shootdown_of_a_fork() {
    at_each_grain(&[512], |mm, id| mm.fork(id).ok());
}

#[test]
fn the_grain_is_the_entries_per_shootdown_of_a_move() {
    // 512 pages, and then the table that they leave behind.
    at_each_grain(&[512, 1], |mm, id| {
        let to = Move::To(Va::new(BASE + 64 * MB));
        mm.remap(id, range(BASE, 2 * MB), Bytes::new(2 * MB), to).unwrap();
        None
    });
}

#[test]
fn an_entry_that_nobody_used_costs_nothing_at_any_grain() {
    let sim = sim(2, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let parent = warm(&sim, &mm, 2, 16);
    mm.set_flush_grain(FlushGrain::ONE);
    let child = mm.fork(parent).unwrap();
    for n in 0..2 {
        sim.on(cpu(n), || mm.switch(Some(child)).unwrap());
    }
    // Rights that are lost cost something; the child's entries were never used.
    let drop = || mm.advise(child, range(BASE, 16 * 4096), Advice::DontNeed).unwrap();
    assert_eq!(cost(&mm, drop), Cost { shootdowns: 0, asked: 0, ones: 0, alls: 0 });
}

/// Where entries are broken before they are made, a flush at a small grain comes between two parts
/// of one table.
#[test]
fn the_grain_holds_where_entries_are_broken_first() {
    let mut config = Config::seeded(4, Bytes::new(64 * MB), 1);
    config.rules.replace = Replace::BreakBeforeMake;
    let sim = Sim::new(config).unwrap();
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = warm(&sim, &mm, 4, 512);
    mm.set_flush_grain(FlushGrain::new(64).unwrap());
    let fewer = || mm.protect(id, range(BASE, 2 * MB), Flags::READ).unwrap();
    assert_eq!(cost(&mm, fewer).shootdowns, 8);
    let fork = || mm.end(mm.fork(id).unwrap()).unwrap();
    assert_eq!(cost(&mm, fork).shootdowns, 8);
    assert_eq!(load(&sim, &mm, id, BASE + 5 * 4096), 5);
}

/// A CPU that stores while another one takes the pages away one by one: no store is lost, nothing
/// stale is used.
#[test]
fn small_grains_survive_others_at_work() {
    for grain in [1, 3] {
        let sim = sim(3, 64);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let id = warm(&sim, &mm, 3, 64);
        mm.set_flush_grain(FlushGrain::new(grain).unwrap());
        sim.parallel(3, |me| match me.0 {
            0 => {
                for _ in 0..4 {
                    mm.advise(id, range(BASE, 64 * 4096), Advice::DontNeed).unwrap();
                    mm.protect(id, range(BASE, 64 * 4096), Flags::READ).unwrap();
                    mm.protect(id, range(BASE, 64 * 4096), Flags::READ_WRITE).unwrap();
                }
            }
            _ => {
                for page in (0..64).chain(0..64) {
                    store(&sim, &mm, id, BASE + page * 4096, page + 1);
                }
            }
        });
    }
}

/// A request lists so many runs of entries. With one more it is for everything, and lists nothing,
/// however many follow.
#[test]
fn a_request_for_everything_lists_nothing() {
    let most = Invalidation::ITEMS_MAX as u64;
    let (machine, mm, _over) = recorded(2, 64, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    for n in 0..2 {
        machine.sim.on(cpu(n), || {
            mm.online();
            mm.switch(Some(id)).unwrap();
        });
    }
    area(mm, id, BASE, 2 * MB);
    for runs in [1, most - 1, most, most + 1, most + 2, most + 3, 2 * most, 2 * most + 1] {
        (0..runs).for_each(|nth| drop(store(&machine.sim, mm, id, BASE + 2 * nth * PAGE, 1)));
        machine.take();
        mm.advise(id, row(0, 2 * runs), Advice::DontNeed).unwrap();
        let asked = machine.take().into_iter().filter_map(|step| match step {
            Step::Ask(what) => Some((what.reach(), what.items().len() as u64)),
            _ => None,
        });
        let listed = if runs > most { (Reach::All, 0) } else { (Reach::Items, runs) };
        assert_eq!(asked.collect::<Vec<_>>(), [listed], "{runs} runs");
    }
}
