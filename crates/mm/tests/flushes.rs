//! What operations cost in shootdowns, counted; and who is asked.

mod common;
use common::*;
use foliant::fault::Orders;
use foliant::space::{Advice, Flags, SpaceId};
use foliant::{Access, Event, Policy};
use foliant_machine::Tlb;
use foliant_sim::Sim;
use foliant_units::{Order, Va};

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
    finish(&sim, &mm, &[id]);
}

#[test]
fn a_large_leaf_is_one_entry() {
    let sim = sim(2, 64);
    let mm = manager(&sim, Policy::always(Orders::of(Order::MEGA)));
    let id = warm(&sim, &mm, 2, 1024);
    let drop = || mm.unmap(id, range(BASE, 4 * MB)).unwrap();
    // Two leaves side by side: two entries, far below the ceiling of 33, though they are 1024 pages.
    assert_eq!(cost(&mm, drop), Cost { shootdowns: 1, asked: 1, ones: 2, alls: 0 });
    finish(&sim, &mm, &[id]);
}

#[test]
fn a_removed_table_is_one_entry() {
    let sim = sim(2, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = warm(&sim, &mm, 2, 3);
    let all = || mm.unmap(id, range(BASE, 8 * MB)).unwrap();
    // Three pages, the table that held them, and the one above it.
    assert_eq!(cost(&mm, all), Cost { shootdowns: 1, asked: 1, ones: 5, alls: 0 });
    finish(&sim, &mm, &[id]);
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
        finish(&sim, &mm, &[id]);
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
    finish(&sim, &mm, &[id]);
}

/// Populating marks pages as used, so the bit is cleared by hand: what no walker has used is in no TLB.
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
    finish(&sim, &mm, &[parent, child]);
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
    finish(&sim, &mm, &[id]);
}

#[test]
fn a_fork_is_one_shootdown_however_much_is_shared() {
    let sim = sim(4, 64);
    let mm = manager(&sim, Policy::always(Orders::of(Order::new(4).unwrap())));
    let id = warm(&sim, &mm, 4, 1024);
    let mut child = None;
    let fork = || child = mm.fork(id).ok();
    assert_eq!(cost(&mm, fork), Cost { shootdowns: 1, asked: 3, ones: 0, alls: 1 });
    finish(&sim, &mm, &[id, child.unwrap()]);
}
