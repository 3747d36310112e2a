//! Findings about objects: two operations that meet, at every step of the first.

use crate::common::beside::Beside;
use crate::common::*;
use foliant::manager::CollapseLimits;
use foliant::object::ObjectRequest;
use foliant::pool::Budget;
use foliant::space::{Flags, MapRequest, Move, ObjectId, Place, SpaceId};
use foliant::split::{SplitInto, ZeroPieces};
use foliant::{Access, Outcome, Policy};
use foliant_units::{Bytes, Order, Pages, Va};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const SHARED: Flags = Flags::READ_WRITE.with(Flags::SHARED);
const PRIVATE: Flags = Flags::READ_WRITE;

/// Two CPUs in one space, and an object of 16 pages.
struct Scene<'s, 'm> {
    machine: &'m Beside,
    mm: &'s Mm<'m>,
    id: SpaceId,
    of: ObjectId,
}

impl Scene<'_, '_> {
    /// Maps pages of the object `from..to` from the `at`-th page behind `BASE` on.
    fn map(&self, at: u64, (from, to): (u64, u64), flags: Flags) {
        let place = Place::NoReplace(Va::new(BASE + at * PAGE));
        let bytes = Bytes::new((to - from) * PAGE);
        let request = MapRequest { place, bytes, flags, tag: 0 };
        self.mm.map_object(self.id, &request, (self.of, Pages::new(from))).unwrap();
    }
    fn store(&self, page: u64, value: u64) {
        store(&self.machine.sim, self.mm, self.id, BASE + page * PAGE, value);
    }
    fn load(&self, page: u64) -> u64 {
        load(&self.machine.sim, self.mm, self.id, BASE + page * PAGE)
    }
    fn punch(&self, from: u64, to: u64) {
        self.mm.punch_object(self.of, Pages::new(from), Pages::new(to)).unwrap();
    }
}

/// Builds a scene for each step of what CPU 0 does in it, until it has no more.
fn at_every_step(go: impl Fn(&Scene<'_, '_>, u64) -> Option<()>) {
    for n in 1.. {
        let machine = Beside::new(sim(2, 32));
        let mm = machine.manager(Policy::BASE_ONLY);
        let id = mm.create(None).unwrap();
        for n in 0..2 {
            machine.sim.on(cpu(n), || {
                mm.online();
                mm.switch(Some(id)).unwrap();
            });
        }
        let room = ObjectRequest { pages: Pages::new(16), ..ObjectRequest::default() };
        let of = mm.create_object(&room).unwrap();
        if go(&Scene { machine: &machine, mm: &mm, id, of }, n).is_none() {
            assert!(n > 10, "it has only {n} steps");
            return;
        }
    }
}

/// A page that has left its object, and that only a private area shows, was written to in its
/// place, and the punch that was under way took it out: what the program wrote was lost.
#[test]
fn finding_ea_what_is_stored_privately_beside_a_punch_stays() {
    at_every_step(|scene, n| {
        scene.map(0, (0, 16), PRIVATE);
        drop(scene.mm.object_page(scene.of, Pages::new(3), Access::Write).unwrap());
        assert_eq!(scene.load(3), 0);
        let met = scene.machine.before_step(n, || scene.store(3, 7), || scene.punch(0, 16));
        assert_eq!(met.map_or(7, |()| scene.load(3)), 7, "step {n}");
        met
    });
}

/// A move took entries along to an area that lies alike, which a punch had gone over already: the
/// pages stayed.
#[test]
fn finding_eb_a_move_takes_no_page_past_a_punch() {
    at_every_step(|scene, n| {
        scene.map(0, (0, 8), SHARED);
        scene.map(100 + 8, (8, 16), SHARED); // it is the first on the object's list
        scene.store(3, 7);
        let to = Move::To(Va::new(BASE + 100 * PAGE));
        let go = || _ = scene.mm.remap(scene.id, row(0, 8), Bytes::new(8 * PAGE), to).unwrap();
        let met = scene.machine.before_step(n, go, || scene.punch(0, 16));
        assert_eq!(met.map_or(0, |()| scene.load(103)), 0, "step {n}");
        met
    });
}

/// A folio of an object was split, the shared zero page came into the object's tables in the place
/// of a page of zeros, and whoever looked for that page looked for ever.
#[test]
fn finding_ec_a_split_leaves_no_shared_zeros_in_an_object() {
    let machine = Beside::new(sim(2, 32));
    let mm = machine.manager(Policy::BASE_ONLY);
    mm.set_object_policy(only(2));
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    let room = ObjectRequest { pages: Pages::new(16), ..ObjectRequest::default() };
    let of = mm.create_object(&room).unwrap();
    let scene = Scene { machine: &machine, mm: &mm, id, of };
    scene.map(0, (0, 8), SHARED);
    scene.map(100, (0, 8), SHARED);
    scene.map(200, (0, 8), PRIVATE);
    scene.store(0, 7);
    assert_eq!([0, 2].map(|page| scene.load(100 + page)), [7, 0]);
    let into = SplitInto { order: Order::BASE, zeros: ZeroPieces::Share };
    let pieces = mm.split(id, Va::new(BASE), into).unwrap();
    assert_eq!((pieces.folios, pieces.zero), (1, 3));
    assert_eq!(mm.object_pages(of), Some(Pages::new(1)));
    assert!(mm.object_page(of, Pages::new(2), Access::Read).unwrap().is_none());
    assert_eq!([0, 1, 2].map(|page| scene.load(200 + page)), [7, 0, 0]);
    scene.store(3, 8);
    assert_eq!([3, 103, 203].map(|page| scene.load(page)), [8; 3], "it is one page for all");
}

/// An area of an object was collapsed as one of the space's own memory: what was shared was shared
/// no more, and what was not mapped there yet came as zeros.
#[test]
fn finding_ed_what_is_collapsed_of_an_object_stays_shared() {
    for flags in [SHARED, PRIVATE] {
        let machine = Beside::new(sim(2, 32));
        let mm = machine.manager(Policy::BASE_ONLY);
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        let room = ObjectRequest { pages: Pages::new(16), ..ObjectRequest::default() };
        let of = mm.create_object(&room).unwrap();
        let scene = Scene { machine: &machine, mm: &mm, id, of };
        scene.map(0, (0, 16), flags);
        scene.map(100, (0, 16), SHARED);
        (100..104).for_each(|page| scene.store(page, page));
        scene.store(1, 7);
        for n in 2..=4 {
            let collapsed = mm.collapse(id, Va::new(BASE), order(n), CollapseLimits::NONE);
            assert_eq!(collapsed, Ok(()), "{flags:?}");
        }
        scene.store(102, 8);
        assert_eq!([0, 1, 2, 3].map(|page| scene.load(page)), [100, 7, 8, 103]);
        let shown = if flags == SHARED { 7 } else { 101 };
        assert_eq!([101, 102, 105].map(|page| scene.load(page)), [shown, 8, 0]);
    }
}

/// A manager whose pool has one page, and a space.
fn of_one_page(machine: &Beside) -> (AuditedMm<'_>, SpaceId) {
    let mm = machine.manager(Policy::BASE_ONLY);
    for cpu in mm.cpus() {
        machine.sim.on(cpu, || mm.online());
    }
    mm.resize_pool(Order::SIZE_2M, 1, Budget::ALL).unwrap();
    let id = mm.create(None).unwrap();
    (mm, id)
}

/// A parent took its page away from its children by the page's frame, which was another page's by
/// the time that it came to them: a child lost what it had just written elsewhere.
#[test]
fn finding_eg_a_parent_takes_no_page_that_serves_another_by_now() {
    let (place, size) = (Va::new(BASE), Order::SIZE_2M);
    let mut met = 0;
    for n in 1.. {
        let machine = Beside::new(sim(2, 64));
        let (mm, id) = of_one_page(&machine);
        let on = |nth, id| machine.sim.on(cpu(nth), || mm.switch(id).unwrap());
        on(0, Some(id));
        let huge = Flags::READ_WRITE.with(Flags::HUGE_2M);
        let ask = |flags| request(Place::NoReplace(place), SIZE_2M, flags);
        mm.map(id, &ask(huge)).unwrap();
        store(&machine.sim, &mm, id, BASE, 7);
        area(&mm, id, BASE + SIZE_2M, PAGE); // keeps the tables: freeing one waits for readers
        store(&machine.sim, &mm, id, BASE + SIZE_2M, 7);
        let child = mm.fork(id).unwrap();
        on(0, None); // no shootdown waits for it
        on(1, Some(child));
        let (whole, stored) = (row(0, 512), AtomicBool::new(false));
        let part = || {
            mm.unmap(id, whole).unwrap();
            mm.unmap(child, whole).unwrap();
            mm.map(child, &ask(huge.with(Flags::NORESERVE))).unwrap();
            let ends = store(&machine.sim, &mm, child, BASE, 5);
            stored.store(!ends.contains(&Outcome::NoHugePage(size)), Relaxed);
        };
        let go = || _ = mm.fault(id, place, Access::Write);
        if machine.before_step(n, part, go).is_none() {
            assert!(n > 10 && met > 10, "it has only {n} steps");
            return;
        }
        met += u64::from(stored.load(Relaxed));
        machine.sim.on(cpu(1), || {
            let seen = load(&machine.sim, &mm, child, BASE);
            assert_eq!(seen, if stored.load(Relaxed) { 5 } else { 0 }, "step {n}");
        });
    }
}

/// Two threads of a parent write to its huge page, which a child has too. While one of them takes
/// it from the child, the other one finds it shared, and its program was ended.
#[test]
fn finding_eh_each_thread_of_a_parent_gets_the_page_that_a_child_has() {
    let (place, size) = (Va::new(BASE), Order::SIZE_2M);
    for n in 1.. {
        let machine = Beside::new(sim(2, 64));
        let (mm, id) = of_one_page(&machine);
        let huge = Flags::READ_WRITE.with(Flags::HUGE_2M);
        mm.map(id, &request(Place::NoReplace(place), SIZE_2M, huge)).unwrap();
        assert_eq!(mm.fault(id, place, Access::Write), Outcome::Mapped(size));
        let child = mm.fork(id).unwrap();
        let ends = [Mutex::new(None), Mutex::new(None)];
        let write = |nth: usize| {
            let end = mm.fault(id, place, Access::Write);
            *ends[nth].lock().unwrap() = Some(end);
        };
        if machine.before_step(n, || write(1), || write(0)).is_none() {
            assert!(n > 10, "it has only {n} steps");
            return;
        }
        for end in ends {
            assert_ne!(end.into_inner().unwrap(), Some(Outcome::NoHugePage(size)), "step {n}");
        }
        assert_eq!(mm.fault(child, place, Access::Read), Outcome::NoHugePage(size));
    }
}

/// A page that a hole takes out of an object is on its way to the pool when a program wants one in
/// its place.
#[test]
fn finding_ei_a_store_beside_a_hole_gets_the_page_that_goes() {
    let (place, size) = (Va::new(BASE), Order::SIZE_2M);
    for n in 1.. {
        let machine = Beside::new(sim(2, 64));
        let (mm, id) = of_one_page(&machine);
        let (pages, flags) = (size.pages(), Flags::HUGE_2M);
        let of = ObjectRequest { pages, flags, ..ObjectRequest::default() };
        let of = mm.create_object(&of).unwrap();
        let shared = Flags::READ_WRITE.with(Flags::SHARED);
        let ask = request(Place::NoReplace(place), SIZE_2M, shared);
        mm.map_object(id, &ask, (of, Pages::new(0))).unwrap();
        assert_eq!(mm.fault(id, place, Access::Write), Outcome::Mapped(size));
        let end = Mutex::new(None);
        let store = || {
            let found = mm.fault(id, place, Access::Write);
            *end.lock().unwrap() = Some(found);
        };
        let punch = || mm.punch_object(of, Pages::new(0), pages).unwrap();
        if machine.before_step(n, store, punch).is_none() {
            assert!(n > 10, "it has only {n} steps");
            return;
        }
        assert_ne!(end.into_inner().unwrap(), Some(Outcome::NoHugePage(size)), "step {n}");
    }
}
