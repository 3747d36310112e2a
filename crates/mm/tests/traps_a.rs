//! The traps of system A, each by its name in `docs/rules.md`. TR-A4 needs swap, TR-A6 collapse:
//! see ARCHITECTURE.md. TR-A5 stands beside the parser, TR-A7 with the traps of system T, TR-A10 in
//! `zeros`.

use crate::common::*;
use foliant::fault::{Orders, Refusal, Size};
use foliant::manager::{Poisoned, SpaceError};
use foliant::space::{Advice, Flags, MapRequest, Place};
use foliant::{Access, Event, Outcome, Policy, SizeEvent};
use foliant_units::{Bytes, Frame, Order, Pages, Va};

/// A refused charge once ended in out-of-memory instead of a smaller folio.
#[test]
fn tr_a1_a_refused_charge_steps_down() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::always(Orders::ANON));
    // A record, a top table, a node for areas, three tables, and one page.
    let id = mm.create(Some(Pages::new(7))).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 4 * MB);
    assert_eq!(store(&sim, &mm, id, BASE, 7), [Outcome::Mapped(Order::BASE)]);
    for n in 2..=9 {
        let stats = mm.size_stats(order(n));
        assert_eq!(stats.get(SizeEvent::AnonFaultFallbackCharge), 1, "order {n}");
        assert_eq!(stats.get(SizeEvent::AnonFaultFallback), 1, "order {n}");
        assert_eq!(stats.get(SizeEvent::AnonFaultAlloc), 0, "order {n}");
    }
    assert_eq!(store(&sim, &mm, id, BASE + 4096, 7), [Outcome::OverLimit]);
    assert_eq!(mm.pages(id), Some(Pages::new(1)));
}

/// A limit of nothing is a limit, and one of tables and records alone leaves no page.
#[test]
fn a_space_that_may_charge_nothing_gets_no_page() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    assert_eq!(mm.create(Some(Pages::new(0))), Err(SpaceError::OverLimit(Pages::new(0))));
    assert_eq!(mm.create(Some(Pages::new(1))), Err(SpaceError::OverLimit(Pages::new(1))));
    let id = mm.create(Some(Pages::new(6))).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, MB);
    assert_eq!(load(&sim, &mm, id, BASE), 0, "the zero page is nobody's charge");
    assert_eq!(store(&sim, &mm, id, BASE, 7), [Outcome::OverLimit]);
    assert_eq!(mm.poison(Frame::new(u64::MAX >> 12)), Poisoned::NotInUse);
}

/// Something appears in the range between the first look and the lock.
#[test]
fn tr_a2_the_whole_range_is_looked_at_again_under_the_lock() {
    type Act = fn(&'static Mm<'static>, foliant::space::SpaceId, u64);
    let page: Act = |mm, id, va| {
        assert!(matches!(mm.fault(id, Va::new(va), Access::Write), Outcome::Mapped(_)));
    };
    let zero: Act = |mm, id, va| {
        assert_eq!(mm.fault(id, Va::new(va), Access::Read), Outcome::ZeroPage(Order::BASE))
    };
    let guard: Act = |mm, id, va| mm.advise(id, range(va, 4096), Advice::GuardInstall).unwrap();
    for (what, act) in [("page", page), ("zero page", zero), ("guard", guard)] {
        for index in [0, 1, 7, 15] {
            let (machine, mm, _over) = meddled(2, 64, Policy::BASE_ONLY);
            let id = mm.create(None).unwrap();
            mm.switch(Some(id)).unwrap();
            area(mm, id, BASE, MB);
            mm.set_policy(Policy::always(Orders::of(order(4))));
            let va = BASE + index * 4096;
            machine.after_clearing(64 << 10, move || {
                // What appears is not itself a large folio.
                mm.set_policy(Policy::BASE_ONLY);
                machine.sim.on(cpu(1), || {
                    mm.online();
                    mm.switch(Some(id)).unwrap();
                    act(mm, id, va);
                });
                mm.set_policy(Policy::always(Orders::of(order(4))));
            });
            let touched = if index == 3 { 4 } else { 3 };
            let outcome = mm.fault(id, Va::new(BASE + touched * 4096), Access::Write);
            assert_eq!(outcome, Outcome::Mapped(Order::BASE), "{what} at {index}");
            assert_eq!(mm.total(Event::LostRace), 1, "{what} at {index}");
            let expect = if what == "page" { 2 } else { 1 };
            assert_eq!(mm.pages(id), Some(Pages::new(expect)), "{what} at {index}");
            if what == "guard" {
                let refused = Outcome::Refused(Refusal::Guard(Va::new(va)));
                assert_eq!(mm.fault(id, Va::new(va), Access::Write), refused);
            }
        }
    }
}

/// A folio is shared by fork, a part of it unmapped, and both sides write.
#[test]
fn tr_a3_fork_and_copy_of_a_partly_shared_folio() {
    for size in [4, 9] {
        let sim = sim(1, 64);
        let mm = manager(&sim, Policy::always(Orders::of(order(size))));
        let pages = order(size).pages().get();
        let parent = mm.create(None).unwrap();
        mm.switch(Some(parent)).unwrap();
        area(&mm, parent, BASE, 2 * MB);
        for page in 0..pages {
            store(&sim, &mm, parent, BASE + page * 4096, 1000 + page);
        }
        let child = mm.fork(parent).unwrap();
        mm.unmap(parent, range(BASE + 4096, 3 * 4096)).unwrap();
        mm.audit(&[parent, child]).unwrap();
        store(&sim, &mm, parent, BASE, 1);
        mm.switch(Some(child)).unwrap();
        for page in 0..pages {
            assert_eq!(load(&sim, &mm, child, BASE + page * 4096), 1000 + page);
        }
        store(&sim, &mm, child, BASE + 2 * 4096, 2);
        store(&sim, &mm, child, BASE + 5 * 4096, 5);
        mm.switch(Some(parent)).unwrap();
        assert_eq!(load(&sim, &mm, parent, BASE), 1);
        for page in 4..pages {
            assert_eq!(load(&sim, &mm, parent, BASE + page * 4096), 1000 + page);
        }
        mm.switch(Some(child)).unwrap();
        assert_eq!(load(&sim, &mm, child, BASE + 2 * 4096), 2);
        assert_eq!(load(&sim, &mm, child, BASE + 5 * 4096), 5);
        mm.audit(&[parent, child]).unwrap();
    }
}

/// The last owner of a forked folio writes again without a copy.
#[test]
fn tr_a3_the_last_owner_reuses() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::always(Orders::of(order(4))));
    let parent = mm.create(None).unwrap();
    mm.switch(Some(parent)).unwrap();
    area(&mm, parent, BASE, MB);
    store(&sim, &mm, parent, BASE, 1);
    let child = mm.fork(parent).unwrap();
    assert_eq!(store(&sim, &mm, parent, BASE + 4096, 2), [Outcome::Copied]);
    mm.end(child).unwrap();
    // Fifteen of sixteen pages are left to the parent: all references are its own.
    assert_eq!(store(&sim, &mm, parent, BASE, 3), [Outcome::Reused]);
    assert_eq!(mm.size_stats(order(4)).get(SizeEvent::NrAnonPartiallyMapped), 1);
}

/// Aligning every mapping to 2 MiB made small ones slower: only their own size decides where they
/// go.
#[test]
fn tr_a8_small_mappings_keep_their_placement() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::always(Orders::ANON));
    let id = mm.create(None).unwrap();
    let mut request = MapRequest {
        place: Place::Anywhere,
        bytes: Bytes::new(12 << 10),
        flags: Flags::READ_WRITE,
        tag: 0,
    };
    let first = mm.map(id, &request).unwrap();
    request.tag = 1;
    let second = mm.map(id, &request).unwrap();
    assert_eq!(second.end(), first.start(), "side by side, no alignment gap");
}

/// The switches flip while a fault is at work: it keeps what it saw.
#[test]
fn tr_a9_one_snapshot_of_the_switches() {
    let (machine, mm, _over) = meddled(1, 64, Policy::always(Orders::of(order(4))));
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(mm, id, BASE, MB);
    machine.after_clearing(64 << 10, move || {
        let mut policy = Policy::BASE_ONLY;
        policy.set(order(9), Size::Always).unwrap();
        mm.set_policy(policy);
    });
    let outcome = mm.fault(id, Va::new(BASE), Access::Write);
    assert_eq!(outcome, Outcome::Mapped(order(4)));
}

/// The area shrinks, loses its rights or goes between the choice of the order and the publication.
#[test]
fn tr_a9_the_area_changes_before_the_publication() {
    for step in 0..3 {
        let (machine, mm, _over) = meddled(1, 64, Policy::always(Orders::of(order(4))));
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        area(mm, id, BASE, 64 << 10);
        // A neighbour keeps the table: taking one out waits for faults at work, and this fault
        // waits for the hook.
        area(mm, id, BASE + MB, 64 << 10);
        machine.after_clearing(64 << 10, move || match step {
            0 => mm.unmap(id, range(BASE + 0x8000, 0x8000)).unwrap(),
            1 => mm.unmap(id, range(BASE, 0x1_0000)).unwrap(),
            _ => mm.protect(id, range(BASE, 0x1_0000), Flags::READ).unwrap(),
        });
        let outcome = mm.fault(id, Va::new(BASE), Access::Write);
        let (expect, pages) = match step {
            0 => (Outcome::Mapped(Order::BASE), 1),
            1 => (Outcome::Refused(Refusal::NoArea(Va::new(BASE))), 0),
            _ => (Outcome::Refused(Refusal::NoRight(Va::new(BASE), Access::Write)), 0),
        };
        assert_eq!(outcome, expect, "step {step}");
        assert_eq!(mm.pages(id), Some(Pages::new(pages)));
    }
}

/// A page that is read first gets the zero page, and its own page with the first write.
#[test]
fn tr_a9_read_then_write() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::always(Orders::of(order(4))));
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 64 << 10);
    assert_eq!(load(&sim, &mm, id, BASE + 0x3000), 0);
    assert_eq!(mm.pages(id), Some(Pages::new(0)));
    // The zero page stands in the way of a folio of sixteen.
    assert_eq!(store(&sim, &mm, id, BASE + 0x3000, 9), [Outcome::Mapped(Order::BASE)]);
    assert_eq!(store(&sim, &mm, id, BASE + 0x4000, 9), [Outcome::Mapped(Order::BASE)]);
    assert_eq!(load(&sim, &mm, id, BASE + 0x3000), 9);
}
