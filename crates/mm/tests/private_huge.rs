//! Private areas of objects of huge pages: what is the object's and what a copy, whose reservations
//! they are, and a parent that gets its page back from a child.

use crate::common::beside::Beside;
use crate::common::*;
use foliant::fault::Refusal;
use foliant::manager::Setup;
use foliant::object::ObjectRequest;
use foliant::pool::Budget;
use foliant::space::{Advice, Flags, MapError, MapRequest, ObjectId, Place, SpaceId};
use foliant::table::{Paging, X86_64};
use foliant::{Access, Outcome, Policy};
use foliant_machine::Replace;
use foliant_sim::{Config, Failing, Format, Sim};
use foliant_units::{Bytes, Order, Pages, Va};

const SIZE: Order = Order::SIZE_2M;
const SHARED: Flags = Flags::READ_WRITE.with(Flags::SHARED);
const PRIVATE: Flags = Flags::READ_WRITE;
const NONE: [Outcome; 1] = [Outcome::NoHugePage(SIZE)];
const MAPPED: [Outcome; 1] = [Outcome::Mapped(SIZE)];
const COPIED: [Outcome; 1] = [Outcome::Copied];

fn huge(n: u64) -> Pages {
    Pages::new(512 * n)
}
fn at(nth: u64) -> u64 {
    BASE + nth * SIZE_2M
}
fn object<P: Paging>(mm: &AnyMm<'_, P>, room: u64) -> ObjectId {
    let flags = Flags::HUGE_2M;
    mm.create_object(&ObjectRequest { pages: huge(room), flags, ..ObjectRequest::default() })
        .unwrap()
}
/// Maps `count` pages of an object from `first` on at the `place`-th page behind `BASE`.
fn map<P: Paging>(
    mm: &AnyMm<'_, P>,
    id: SpaceId,
    (place, count): (u64, u64),
    (of, first): (ObjectId, u64),
    flags: Flags,
) -> Result<(), MapError> {
    let (place, bytes) = (Place::NoReplace(Va::new(at(place))), Bytes::new(count * SIZE_2M));
    mm.map_object(id, &MapRequest { place, bytes, flags, tag: 0 }, (of, huge(first))).map(drop)
}
/// Total, free, reserved, surplus.
#[track_caller]
pub(crate) fn shown<P: Paging>(mm: &AnyMm<'_, P>, expect: (u64, u64, u64, u64)) {
    let pool = mm.pool(SIZE).unwrap();
    let counts = (pool.nr_hugepages, pool.free_hugepages);
    assert_eq!((counts.0, counts.1, pool.resv_hugepages, pool.surplus_hugepages), expect);
}
pub(crate) fn sim_by(format: Format, replace: Option<Replace>) -> Sim {
    let mut config = Config::seeded(2, Bytes::new(64 << 20), 7).with_format(format);
    config.rules.replace = replace.unwrap_or(config.rules.replace);
    Sim::new(config).unwrap()
}
pub(crate) fn filled<'m, P: Paging>(sim: &'m Sim, pages: u64) -> (Audited<'m, P>, SpaceId) {
    let mm: Audited<'m, P> = audited(sim, &Setup::of(&sim.config().memory, Policy::BASE_ONLY));
    for cpu in mm.cpus() {
        sim.on(cpu, || mm.online());
    }
    mm.resize_pool(SIZE, pages, Budget::ALL).unwrap();
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    (mm, id)
}

/// The counts are Linux 6.18's, step by step.
fn life<P: Paging>(format: Format, replace: Option<Replace>) {
    let sim = sim_by(format, replace);
    let (mm, id) = filled::<P>(&sim, 6);
    let see = |id, nth| load(&sim, &mm, id, at(nth));
    let put = |id, nth, value| store(&sim, &mm, id, at(nth), value);
    let of = object(&mm, 4);
    map(&mm, id, (0, 4), (of, 0), SHARED).unwrap();
    assert_eq!([put(id, 0, 7), put(id, 1, 8)], [MAPPED, MAPPED]);
    shown(&mm, (6, 4, 2, 0));
    map(&mm, id, (10, 4), (of, 0), PRIVATE.with(Flags::NORESERVE)).unwrap();
    shown(&mm, (6, 4, 2, 0));
    map(&mm, id, (20, 2), (of, 0), PRIVATE).unwrap();
    shown(&mm, (6, 4, 4, 0));
    assert_eq!([see(id, 20), see(id, 10)], [7, 7], "the object's page is read");
    shown(&mm, (6, 4, 4, 0));
    assert_eq!(put(id, 20, 9), COPIED);
    shown(&mm, (6, 3, 3, 0));
    assert_eq!([see(id, 0), see(id, 10), see(id, 20)], [7, 7, 9]);
    assert_eq!(put(id, 0, 6), [], "the object is written to as before");
    assert_eq!([see(id, 10), see(id, 20)], [6, 9]);
    mm.punch_object(of, huge(0), huge(1)).unwrap();
    shown(&mm, (6, 5, 4, 0)); // the copy went, and its place has a reservation again
    assert_eq!([see(id, 0), see(id, 20)], [0, 0]);
    shown(&mm, (6, 4, 4, 0));
    assert_eq!(put(id, 20, 5), COPIED);
    shown(&mm, (6, 3, 3, 0));
    // A hole is filled for the area alone, and what is cut off is gone.
    map(&mm, id, (30, 2), (of, 2), PRIVATE.with(Flags::NORESERVE)).unwrap();
    assert_eq!(mm.fault(id, Va::new(at(30)), Access::Read), NONE[0], "others reserved all");
    mm.resize_pool(SIZE, 8, Budget::ALL).unwrap();
    assert_eq!([see(id, 30), see(id, 2)], [0, 0]);
    shown(&mm, (8, 3, 2, 0));
    put(id, 2, 3);
    assert_eq!([see(id, 30), see(id, 12), see(id, 2)], [0, 3, 3]);
    mm.audit(&[id]).unwrap();
    mm.resize_object(of, huge(1)).unwrap();
    shown(&mm, (8, 6, 1, 0));
    for nth in [1, 2, 21, 30, 31] {
        let gone = Outcome::Refused(Refusal::Beyond(Va::new(at(nth))));
        assert_eq!(put(id, nth, 1), [gone], "page {nth}");
    }
    mm.resize_object(of, huge(4)).unwrap();
    assert_eq!([see(id, 30), see(id, 21), see(id, 20)], [0, 0, 5]);
    shown(&mm, (8, 4, 0, 0));
    mm.unmap(id, range(at(20), SIZE_2M)).unwrap();
    shown(&mm, (8, 5, 0, 0));
    mm.unmap(id, range(at(20), 20 * SIZE_2M)).unwrap();
    shown(&mm, (8, 7, 0, 0));
}

#[test]
fn a_private_area_lives_on_every_format_by_both_rules() {
    on_every_format!(life);
}

/// A place whose reservation is spent stays so while the object's page is mapped there.
#[test]
fn a_spent_reservation_does_not_come_back_with_the_objects_page() {
    let sim = sim(1, 64);
    let (mm, id) = filled::<X86_64<4>>(&sim, 4);
    let of = object(&mm, 1);
    map(&mm, id, (0, 1), (of, 0), SHARED).unwrap();
    store(&sim, &mm, id, at(0), 7);
    map(&mm, id, (2, 1), (of, 0), PRIVATE).unwrap();
    mm.resize_pool(SIZE, 1, Budget::ALL).unwrap();
    shown(&mm, (2, 1, 1, 1));
    assert_eq!(store(&sim, &mm, id, at(2), 8), COPIED);
    mm.advise(id, range(at(2), SIZE_2M), Advice::DontNeed).unwrap();
    shown(&mm, (1, 0, 0, 0)); // the copy was surplus: it went, and the reservation with it
    for _ in 0..2 {
        assert_eq!(load(&sim, &mm, id, at(2)), 7);
        shown(&mm, (1, 0, 0, 0));
        assert_eq!(store(&sim, &mm, id, at(2), 8), NONE);
        mm.advise(id, range(at(2), SIZE_2M), Advice::DontNeed).unwrap();
        shown(&mm, (1, 0, 0, 0));
    }
    assert_eq!(load(&sim, &mm, id, at(2)), 7);
    mm.resize_pool(SIZE, 2, Budget::ALL).unwrap();
    assert_eq!(store(&sim, &mm, id, at(2), 8), COPIED, "any page will do");
    shown(&mm, (2, 0, 0, 0));
    mm.unmap(id, range(at(2), SIZE_2M)).unwrap();
    shown(&mm, (2, 1, 0, 0));
    map(&mm, id, (2, 1), (of, 0), PRIVATE).unwrap();
    assert_eq!(load(&sim, &mm, id, at(2)), 7);
    shown(&mm, (2, 1, 1, 0));
    mm.unmap(id, range(at(2), SIZE_2M)).unwrap();
    shown(&mm, (2, 1, 0, 0)); // what was only read was reserved still
    // The object's page behind a spent place gives nothing back.
    map(&mm, id, (2, 1), (of, 0), PRIVATE).unwrap();
    assert_eq!(store(&sim, &mm, id, at(2), 8), COPIED);
    mm.resize_pool(SIZE, 1, Budget::ALL).unwrap();
    mm.advise(id, range(at(2), SIZE_2M), Advice::DontNeed).unwrap();
    mm.resize_pool(SIZE, 2, Budget::ALL).unwrap();
    map(&mm, id, (6, 1), (of, 0), PRIVATE).unwrap();
    shown(&mm, (2, 1, 1, 0));
    assert_eq!(load(&sim, &mm, id, at(2)), 7);
    mm.unmap(id, range(at(2), SIZE_2M)).unwrap();
    shown(&mm, (2, 1, 1, 0));
}

/// A hole in the object is none in the place of a copy that went before.
#[test]
fn a_hole_leaves_a_spent_place_spent() {
    let sim = sim(1, 64);
    let (mm, id) = filled::<X86_64<4>>(&sim, 2);
    let of = object(&mm, 1);
    map(&mm, id, (0, 1), (of, 0), SHARED).unwrap();
    store(&sim, &mm, id, at(0), 7);
    map(&mm, id, (2, 1), (of, 0), PRIVATE).unwrap();
    mm.resize_pool(SIZE, 1, Budget::ALL).unwrap();
    assert_eq!(store(&sim, &mm, id, at(2), 8), COPIED);
    mm.advise(id, range(at(2), SIZE_2M), Advice::DontNeed).unwrap();
    shown(&mm, (1, 0, 0, 0)); // the copy was surplus
    mm.punch_object(of, huge(0), huge(1)).unwrap();
    mm.resize_pool(SIZE, 3, Budget::ALL).unwrap();
    map(&mm, id, (4, 1), (of, 0), PRIVATE).unwrap();
    shown(&mm, (3, 3, 1, 0));
    mm.unmap(id, range(at(2), SIZE_2M)).unwrap();
    shown(&mm, (3, 3, 1, 0)); // the new area's is still there
}

/// The reservation of a page that is dropped is in the balance for a moment. A fault that finds the
/// place then fills it without one, and the one that was held for it is free.
/// Linux gives the pages of one area back before it comes to the next one.
#[test]
fn what_is_cut_off_is_reserved_again_area_by_area_once_no_page_is_surplus() {
    let sim = Sim::new(Config::seeded(1, Bytes::new(64 << 20), 7)).unwrap();
    let (mm, id) = filled::<X86_64<4>>(&sim, 4);
    let of = object(&mm, 4);
    for place in [0, 8] {
        map(&mm, id, (place, 2), (of, place / 8), PRIVATE).unwrap();
    }
    shown(&mm, (4, 4, 4, 0));
    // One page is surplus by now, and two of the reserved ones are in use.
    mm.pools().set_overcommit(SIZE, 1).unwrap();
    map(&mm, id, (16, 1), (of, 3), PRIVATE.with(Flags::NORESERVE)).unwrap();
    for nth in [0, 8, 16] {
        assert_eq!(store(&sim, &mm, id, at(nth), 7), MAPPED, "page {nth}");
    }
    shown(&mm, (5, 2, 2, 1));
    mm.punch_object(of, huge(0), huge(3)).unwrap();
    shown(&mm, (4, 3, 3, 0)); // of the second area alone
    mm.audit(&[id]).unwrap();
}

#[test]
fn areas_lose_what_is_surplus_as_they_begin_in_the_object() {
    let sim = Sim::new(Config::seeded(1, Bytes::new(64 << 20), 7)).unwrap();
    let (mm, id) = filled::<X86_64<4>>(&sim, 4);
    let (of, other) = (object(&mm, 4), mm.create(None).unwrap());
    map(&mm, id, (0, 2), (of, 2), PRIVATE).unwrap();
    map(&mm, other, (0, 2), (of, 0), PRIVATE).unwrap();
    // Two pages are surplus, and two of the reserved ones are not in use.
    mm.pools().set_overcommit(SIZE, 2).unwrap();
    let loose = PRIVATE.with(Flags::HUGE_2M).with(Flags::NORESERVE);
    mm.map(id, &request(Place::Fixed(Va::new(at(8))), 2 * SIZE_2M, loose)).unwrap();
    for nth in [8, 9, 0] {
        assert_eq!(store(&sim, &mm, id, at(nth), 7), MAPPED, "page {nth}");
    }
    mm.switch(Some(other)).unwrap();
    for nth in [0, 1] {
        assert_eq!(store(&sim, &mm, other, at(nth), 7), MAPPED, "page {nth}");
    }
    shown(&mm, (6, 1, 1, 2));
    mm.punch_object(of, huge(0), huge(4)).unwrap();
    shown(&mm, (4, 2, 2, 0)); // the area that begins later has its reservation again
    mm.audit(&[id, other]).unwrap();
}

#[test]
fn a_place_that_is_filled_in_the_balance_keeps_no_reservation() {
    let mut met = 0;
    for n in 1.. {
        let machine = Beside::new(sim(2, 64));
        let mm = machine.manager(Policy::BASE_ONLY);
        for cpu in mm.cpus() {
            machine.sim.on(cpu, || mm.online());
        }
        mm.resize_pool(SIZE, 2, Budget::ALL).unwrap();
        let id = mm.create(None).unwrap();
        let request = request(Place::Fixed(Va::new(BASE)), SIZE_2M, PRIVATE.with(Flags::HUGE_2M));
        mm.map(id, &request).unwrap();
        assert_eq!(mm.fault(id, Va::new(BASE), Access::Write), MAPPED[0]);
        let refill = || _ = mm.fault(id, Va::new(BASE), Access::Write);
        let go = || mm.advise(id, range(BASE, SIZE_2M), Advice::DontNeed).unwrap();
        if machine.before_step(n, refill, go).is_none() {
            assert!(met > 0, "no fault of {n} came in between");
            return;
        }
        let pool = mm.pool(SIZE).unwrap();
        let is_filled = pool.free_hugepages == 1;
        assert_eq!(pool.resv_hugepages, u64::from(!is_filled), "step {n}");
        met += u64::from(is_filled);
        mm.unmap(id, range(BASE, SIZE_2M)).unwrap();
        let pool = mm.pool(SIZE).unwrap();
        assert_eq!((pool.free_hugepages, pool.resv_hugepages), (2, 0), "step {n}");
    }
}

#[test]
fn a_parent_gets_its_page_back_from_its_children() {
    for of_object in [false, true] {
        let sim = sim(2, 64);
        let (mm, id) = filled::<X86_64<4>>(&sim, 2);
        let of = object(&mm, 2);
        match of_object {
            true => map(&mm, id, (0, 2), (of, 0), PRIVATE).unwrap(),
            false => {
                let flags = PRIVATE.with(Flags::HUGE_2M);
                let request = request(Place::NoReplace(Va::new(at(0))), 2 * SIZE_2M, flags);
                mm.map(id, &request).map(drop).unwrap();
            }
        }
        store(&sim, &mm, id, at(0), 7);
        let child = mm.fork(id).unwrap();
        let grandchild = mm.fork(child).unwrap();
        shown(&mm, (2, 1, 1, 0));
        let on = |id, act: &dyn Fn()| {
            sim.on(cpu(1), || {
                mm.switch(Some(id)).unwrap();
                act();
                mm.switch(None).unwrap();
            });
        };
        on(child, &|| assert_eq!(load(&sim, &mm, child, at(0)), 7));
        on(child, &|| assert_eq!(store(&sim, &mm, child, at(0), 8), NONE, "it owns none"));
        on(grandchild, &|| assert_eq!(load(&sim, &mm, grandchild, at(0)), 7));
        assert_eq!(store(&sim, &mm, id, at(0), 8), [Outcome::Reused]);
        shown(&mm, (2, 1, 1, 0));
        // Once more: those that have lost theirs have nothing to lose.
        let second = mm.fork(id).unwrap();
        assert_eq!(store(&sim, &mm, id, at(0), 9), [Outcome::Reused]);
        mm.audit(&[id, child, grandchild, second]).unwrap();
        mm.resize_pool(SIZE, 4, Budget::ALL).unwrap();
        for other in [child, grandchild, second] {
            let read = || mm.fault(other, Va::new(at(0)), Access::Read);
            assert_eq!(read(), NONE[0]);
            mm.advise(other, range(at(0), SIZE_2M), Advice::DontNeed).unwrap();
            assert_eq!(read(), NONE[0], "no zeros in its place either");
        }
        assert_eq!(load(&sim, &mm, id, at(0)), 9);
        assert_eq!(store(&sim, &mm, id, at(1), 1), MAPPED, "what was promised is there");
        shown(&mm, (4, 2, 0, 0));
    }
}

/// Each allocation is refused once: the counts are right, and what was promised is there.
#[test]
fn private_areas_without_memory_leave_the_books_right() {
    for k in 1.. {
        let sim = sim(1, 64);
        let (mm, id) = filled::<X86_64<4>>(&sim, 4);
        let of = object(&mm, 2);
        map(&mm, id, (0, 1), (of, 0), SHARED).unwrap();
        store(&sim, &mm, id, at(0), 7);
        sim.fault_plan().set(Failing::Kth(k));
        let mapped = map(&mm, id, (1000, 2), (of, 0), PRIVATE);
        let ends = match mapped {
            Ok(()) => [0, 1].map(|nth| store(&sim, &mm, id, at(1000 + nth), 8)),
            Err(_) => [vec![], vec![]],
        };
        let punched = mm.punch_object(of, huge(0), huge(1));
        let refused = sim.fault_plan().refused();
        sim.fault_plan().set(Failing::Nothing);
        assert!(punched.is_ok(), "{punched:?}");
        let is_mapped = u64::from(mapped.is_ok());
        let taken = u64::from(ends[1].contains(&Outcome::Mapped(SIZE)));
        shown(&mm, (4, 4 - taken, 2 * is_mapped - taken, 0));
        mm.audit(&[id]).unwrap();
        if mapped.is_ok() {
            assert_eq!([0, 1].map(|nth| load(&sim, &mm, id, at(1000 + nth))), [0, 8 * taken]);
            shown(&mm, (4, 2, 0, 0));
        }
        if refused == 0 {
            assert!(mapped.is_ok() && ends == [COPIED, MAPPED], "{ends:?}");
            break;
        }
    }
}

/// The same for the records of the area itself, which are asked for when its pages are reserved.
#[test]
fn an_area_that_has_no_record_left_reserves_nothing() {
    let mut refused = 0;
    for others in 0..40 {
        let sim = sim(1, 64);
        let (mm, id) = filled::<X86_64<4>>(&sim, 1);
        let of = object(&mm, 1);
        for nth in 0..others {
            let flags = PRIVATE.with(Flags::NORESERVE);
            map(&mm, id, (2 * nth, 1), (of, 0), flags).unwrap();
        }
        sim.fault_plan().set(Failing::Kth(1));
        let mapped = map(&mm, id, (1000, 1), (of, 0), PRIVATE);
        sim.fault_plan().set(Failing::Nothing);
        refused += u64::from(mapped.is_err());
        shown(&mm, (1, 1, u64::from(mapped.is_ok()), 0));
    }
    assert!(refused > 0, "each of them had room");
}
