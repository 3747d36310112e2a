//! Two CPUs at one address, one of them in the middle of its fault.

use crate::common::beside::Beside;
use crate::common::*;
use foliant::fault::Orders;
use foliant::space::{Advice, Flags};
use foliant::table::{Attrs, Entry};
use foliant::{Access, Event, Outcome, Policy};
use foliant_sim::{Config, Mode, Sim};
use foliant_units::{Bytes, Order, Pages, Va};
use std::collections::BTreeSet;

#[test]
fn a_read_that_meets_a_new_large_leaf_is_not_out_of_memory() {
    let (machine, mm, _over) = meddled(2, 64, Policy::always(Orders::of(Order::SIZE_2M)));
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(mm, id, BASE, 4 * MB);
    // The reader has just cleared a page table when the writer maps the 2 MiB around it.
    machine.after_clearing(4096, move || {
        machine.sim.on(cpu(1), || {
            mm.online();
            mm.switch(Some(id)).unwrap();
            let outcome = mm.fault(id, Va::new(BASE), Access::Write);
            assert_eq!(outcome, Outcome::Mapped(Order::SIZE_2M));
        });
    });
    assert_eq!(mm.fault(id, Va::new(BASE), Access::Read), Outcome::Spurious);
    for n in 0..2 {
        machine.sim.on(cpu(n), || mm.switch(None).unwrap());
    }
    mm.end(id).unwrap();
    mm.audit(&[]).unwrap();
}

/// A leaf that a fault is taking apart is no gap: who unmaps or protects its range waits until it
/// is whole again in parts.
#[test]
fn a_leaf_that_is_being_split_is_unmapped_all_the_same() {
    for seed in 0..60 {
        let sim = Sim::new(Config::seeded(3, Bytes::new(32 * MB), seed)).unwrap();
        let mm = manager(&sim, Policy::always(Orders::of(Order::SIZE_2M)));
        let id = mm.create(None).unwrap();
        let whole = area(&mm, id, BASE, 2 * MB);
        mm.online();
        mm.switch(Some(id)).unwrap();
        store(&sim, &mm, id, BASE, 1);
        let _ = mm.fork(id).unwrap();
        sim.parallel(3, |cpu| {
            mm.online();
            match cpu.0 {
                0 => drop(mm.fault(id, whole.start(), Access::Write)),
                1 if seed % 2 == 0 => mm.unmap(id, whole).unwrap(),
                1 => mm.protect(id, whole, Flags::READ).unwrap(),
                _ => drop(mm.fault(id, Va::new(BASE + 4096), Access::Write)),
            }
        });
        if seed % 2 == 0 {
            assert_eq!(mm.pages(id).unwrap().get(), 0, "seed {seed}: entries outlive their area");
        } else {
            let refused = mm.fault(id, whole.start(), Access::Write);
            assert!(matches!(refused, Outcome::Refused(_)), "seed {seed}: {refused:?}");
            let writable = mm.with_leaves(id, whole, |mut leaves| {
                leaves.any(|leaf| matches!(leaf.entry, Entry::Leaf { attrs, .. } if attrs.has(Attrs::WRITE)))
            });
            assert_eq!(writable, Some(false), "seed {seed}");
        }
    }
}

/// Advice for a part of a large leaf makes three areas of one, and leaves the leaf as it is: a fork
/// shares it once.
#[test]
fn a_leaf_across_areas_is_shared_once() {
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::always(Orders::of(Order::SIZE_2M)));
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 2 * MB);
    store(&sim, &mm, id, BASE, 7);
    mm.advise(id, range(BASE + MB, 4096), Advice::NoHugePage).unwrap();
    let child = mm.fork(id).unwrap();
    let frame = mm.frame_at(id, Va::new(BASE)).unwrap();
    let mappings = mm.mappings(frame).unwrap();
    assert_eq!((mappings.whole, mappings.spaces), (2, 2), "the leaf is one still");
    assert_eq!([id, child].map(|id| mm.pages(id).unwrap().get()), [512; 2]);
    mm.audit(&[id, child]).unwrap();
    mm.switch(None).unwrap();
    [id, child].into_iter().for_each(|id| mm.end(id).unwrap());
    mm.audit(&[]).unwrap();
}

/// Pages that are prepared together meet a fault on one of them, before every step: each page comes
/// once, and what was prepared in vain goes back.
#[test]
fn pages_that_are_populated_beside_a_fault_come_once() {
    let mut config = Config::seeded(2, Bytes::new(32 * MB), 1);
    config.mode = Mode::Free;
    let (machine, mm, _over) = kept(Beside::new(Sim::new(config).unwrap()), Policy::BASE_ONLY);
    for n in 0..2 {
        machine.sim.on(cpu(n), || mm.online());
    }
    for access in [Access::Read, Access::Write] {
        let lost = mm.total(Event::LostRace);
        for step in 1.. {
            let id = mm.create(None).unwrap();
            mm.switch(Some(id)).unwrap();
            let pages = area(mm, id, BASE, 16 * PAGE);
            let fault = move || {
                let _ = mm.fault(id, Va::new(BASE + 5 * PAGE), access);
            };
            let populate = || mm.advise(id, pages, Advice::PopulateWrite).unwrap();
            let met = machine.before_step(step, fault, populate).is_some();
            assert_eq!(mm.pages(id), Some(Pages::new(16)), "{access:?} before step {step}");
            let frame = |nth| mm.frame_at(id, Va::new(BASE + nth * PAGE)).unwrap();
            assert_eq!((0..16).map(frame).collect::<BTreeSet<_>>().len(), 16);
            mm.switch(None).unwrap();
            mm.end(id).unwrap();
            assert_eq!(mm.anonymous().get(), 0, "{access:?} before step {step}");
            if !met {
                break;
            }
        }
        assert!(mm.total(Event::LostRace) > lost, "nothing was prepared in vain");
    }
}

/// A table goes with all the pages that it had, and a fault puts a leaf of 2 MiB in its place: not
/// before every CPU has forgotten the table (G3).
#[test]
fn a_large_leaf_waits_for_the_flush_of_the_table_that_was_in_its_place() {
    let large = Policy::always(Orders::of(Order::SIZE_2M));
    let machine = Beside::new(sim(2, 64));
    let mm = &machine.manager(large);
    for n in 0..2 {
        machine.sim.on(cpu(n), || mm.online());
    }
    let mut leaves = 0;
    for step in 1.. {
        let id = mm.create(None).unwrap();
        let whole = area(mm, id, BASE, 2 * MB);
        mm.set_policy(Policy::BASE_ONLY);
        for nth in 0..2 {
            machine.sim.on(cpu(nth), || {
                mm.switch(Some(id)).unwrap();
                store(&machine.sim, mm, id, BASE + u64::from(nth) * PAGE, 1);
            });
        }
        mm.set_policy(large);
        let touch = || _ = mm.fault(id, Va::new(BASE + 9 * PAGE), Access::Write);
        let drop_all = || mm.advise(id, whole, Advice::DontNeed).unwrap();
        let met = machine.before_step(step, touch, drop_all).is_some();
        leaves += u64::from(mm.pages(id) == Some(Order::SIZE_2M.pages()));
        for nth in 0..2 {
            machine.sim.on(cpu(nth), || mm.switch(None).unwrap());
        }
        mm.end(id).unwrap();
        if !met {
            break;
        }
    }
    assert!(leaves > 0, "none came beside it");
}
