//! Moves of areas of huge pages: pages, reservations and places go along, on every format and by
//! both rules, and what is refused.

use crate::common::*;
use crate::private_huge::{filled, shown, sim_by};
use foliant::fault::Refusal;
use foliant::object::ObjectRequest;
use foliant::pool::Budget;
use foliant::space::{Advice, Flags, MapRequest, Move, Place, RangeError, RemapError, SpaceId};
use foliant::table::{Paging, X86_64};
use foliant::{Access, Event, Outcome, Policy};
use foliant_machine::Replace;
use foliant_sim::{Failing, Format};
use foliant_units::{Bytes, Order, Pages, Va, VaRange};

const SIZE: Order = Order::SIZE_2M;
const HUGE: Flags = Flags::READ_WRITE.with(Flags::HUGE_2M);
const MAPPED: [Outcome; 1] = [Outcome::Mapped(SIZE)];
const COPIED: [Outcome; 1] = [Outcome::Copied];

fn at(nth: u64) -> u64 {
    BASE + nth * SIZE_2M
}
fn places(nth: u64, count: u64) -> VaRange {
    range(at(nth), count * SIZE_2M)
}
/// Maps `count` huge pages of the pool from the `nth` place on.
fn map<P: Paging>(mm: &AnyMm<'_, P>, id: SpaceId, nth: u64, count: u64) {
    let (place, bytes) = (Place::NoReplace(Va::new(at(nth))), places(nth, count).bytes());
    mm.map(id, &MapRequest { place, bytes, flags: HUGE, tag: 0 }).unwrap();
}
fn go<P: Paging>(
    mm: &AnyMm<'_, P>,
    id: SpaceId,
    from: VaRange,
    to: u64,
) -> Result<VaRange, RemapError> {
    mm.remap(id, from, from.bytes(), Move::To(Va::new(to)))
}
fn life<P: Paging>(format: Format, replace: Option<Replace>) {
    let sim = sim_by(format, replace);
    let (mm, id) = filled::<P>(&sim, 6);
    let see = |id, nth| load(&sim, &mm, id, at(nth));
    let put = |id, nth, value| store(&sim, &mm, id, at(nth), value);
    map(&mm, id, 0, 4);
    assert_eq!([put(id, 0, 7), put(id, 1, 8)], [MAPPED, MAPPED]);
    shown(&mm, (6, 4, 2, 0));
    let child = mm.fork(id).unwrap();
    assert_eq!(go(&mm, id, places(0, 3), at(10)), Ok(places(10, 3)));
    shown(&mm, (6, 4, 2, 0));
    let hole = Refusal::NoArea(Va::new(at(0)));
    assert_eq!(mm.fault(id, Va::new(at(0)), Access::Read), Outcome::Refused(hole));
    assert_eq!([see(id, 10), see(id, 11)], [7, 8]);
    // One place went along empty and has its page, and so has the one that stayed.
    assert_eq!(put(id, 12, 9), MAPPED);
    shown(&mm, (6, 3, 1, 0));
    assert_eq!(put(id, 3, 6), MAPPED);
    shown(&mm, (6, 2, 0, 0));
    assert_eq!(put(id, 10, 5), COPIED, "the child has that page too");
    mm.switch(Some(child)).unwrap();
    assert_eq!([see(child, 0), see(child, 1)], [7, 8]);
    mm.switch(Some(id)).unwrap();
    mm.audit(&[id, child]).unwrap();
    // Over small pages, which go; one by one; and back to where it was.
    area(&mm, id, at(20) + PAGE, PAGE);
    store(&sim, &mm, id, at(20) + PAGE, 1);
    assert_eq!(go(&mm, id, places(12, 1), at(20)), Ok(places(20, 1)));
    assert_eq!((see(id, 20), load(&sim, &mm, id, at(20) + PAGE)), (9, 0));
    assert_eq!(go(&mm, id, places(11, 1), at(0)), Ok(places(0, 1)));
    assert_eq!([see(id, 0), see(id, 10), see(id, 3)], [8, 5, 6]);
    mm.audit(&[id, child]).unwrap();
    // As a whole, at its size, and neither longer nor shorter.
    let cut = |va| Err(RangeError::Cuts(Va::new(va), SIZE.bytes()).into());
    let huge = Err(RangeError::Huge(Va::new(at(20))).into());
    let inside = range(at(20) + PAGE, SIZE_2M - PAGE);
    assert_eq!(go(&mm, id, places(20, 1), at(30) + PAGE), cut(at(30) + PAGE));
    assert_eq!(go(&mm, id, inside, at(30)), cut(at(20) + PAGE));
    for (bytes, to) in [
        (2 * SIZE_2M, Move::To(Va::new(at(30)))),
        (PAGE, Move::To(Va::new(at(30)))),
        (2 * SIZE_2M, Move::MayMove),
        (2 * SIZE_2M, Move::Never),
    ] {
        assert_eq!(mm.remap(id, places(20, 1), Bytes::new(bytes), to), huge);
    }
    assert_eq!(see(id, 20), 9);
    mm.unmap(id, places(0, 30)).unwrap();
    mm.switch(None).unwrap();
    mm.end(child).unwrap();
    shown(&mm, (6, 6, 0, 0));
}

#[test]
fn huge_pages_move_as_they_are_on_every_format_by_both_rules() {
    on_every_format!(life);
}

/// What a place is goes along: spent it stays spent.
#[test]
fn a_spent_place_is_spent_where_it_was_moved() {
    let sim = sim(1, 64);
    let (mm, id) = filled::<X86_64<4>>(&sim, 2);
    map(&mm, id, 0, 2);
    assert_eq!(store(&sim, &mm, id, at(0), 4), MAPPED);
    mm.pools().set_overcommit(SIZE, 1).unwrap();
    let other = mm.create(None).unwrap();
    map(&mm, other, 0, 1);
    mm.pools().set_overcommit(SIZE, 0).unwrap();
    shown(&mm, (3, 2, 2, 1));
    mm.advise(id, places(0, 1), Advice::DontNeed).unwrap();
    shown(&mm, (2, 2, 2, 0)); // the page was surplus and went, and with it what was reserved
    assert_eq!(go(&mm, id, places(0, 2), at(10)), Ok(places(10, 2)));
    assert_eq!(store(&sim, &mm, id, at(10), 4), [Outcome::NoHugePage(SIZE)]);
    assert_eq!(store(&sim, &mm, id, at(11), 4), MAPPED);
    mm.unmap(id, places(10, 2)).unwrap();
    shown(&mm, (2, 2, 1, 0));
    mm.end(other).unwrap();
    shown(&mm, (2, 2, 0, 0));
}

/// Areas of an object move, and the object finds its pages there when they go.
#[test]
fn areas_of_an_object_of_huge_pages_move() {
    let sim = sim(2, 64);
    let (mm, id) = filled::<X86_64<4>>(&sim, 6);
    let (see, put) =
        (|nth| load(&sim, &mm, id, at(nth)), |nth, value| store(&sim, &mm, id, at(nth), value));
    let room = ObjectRequest {
        pages: Pages::new(2 * 512),
        flags: Flags::HUGE_2M,
        ..ObjectRequest::default()
    };
    let object = mm.create_object(&room).unwrap();
    for (nth, shared) in [(0, Flags::SHARED), (4, Flags::NONE)] {
        let (place, bytes) = (Place::NoReplace(Va::new(at(nth))), places(nth, 2).bytes());
        let request = MapRequest { place, bytes, flags: Flags::READ_WRITE.with(shared), tag: 0 };
        mm.map_object(id, &request, (object, Pages::new(0))).unwrap();
    }
    assert_eq!([put(0, 7), put(1, 8)], [MAPPED, MAPPED]);
    assert_eq!((see(4), put(5, 3)), (7, COPIED.to_vec()));
    shown(&mm, (6, 3, 1, 0));
    assert_eq!(go(&mm, id, places(0, 2), at(10)), Ok(places(10, 2)));
    assert_eq!(go(&mm, id, places(4, 2), at(20)), Ok(places(20, 2)));
    shown(&mm, (6, 3, 1, 0));
    assert_eq!([see(10), see(11), see(20), see(21)], [7, 8, 7, 3]);
    put(10, 6);
    assert_eq!([see(20), see(21)], [6, 3], "one is the object's, one a copy");
    mm.audit(&[id]).unwrap();
    mm.punch_object(object, Pages::new(0), Pages::new(512)).unwrap();
    assert_eq!([see(10), see(11), see(21)], [0, 8, 3]);
    assert_eq!(put(20, 9), COPIED, "what is reserved for it is there still");
    mm.resize_object(object, Pages::new(512)).unwrap();
    for nth in [11, 21] {
        let gone = Outcome::Refused(Refusal::Beyond(Va::new(at(nth))));
        assert_eq!(put(nth, 1), [gone], "page {nth}");
    }
    mm.unmap(id, places(0, 30)).unwrap();
    mm.end_object(object).unwrap();
    shown(&mm, (6, 6, 0, 0));
}

/// Each allocation of a move is refused once: nothing is lost, and it is as before.
#[test]
fn a_move_that_gets_no_table_leaves_all_where_it_was() {
    for k in 1.. {
        let sim = sim(1, 64);
        let (mm, id) = filled::<X86_64<4>>(&sim, 3);
        map(&mm, id, 0, 3);
        assert_eq!(store(&sim, &mm, id, at(1), 7), MAPPED);
        let far = BASE + (1 << 39); // in another table of every level
        sim.fault_plan().set(Failing::Kth(k));
        let moved = go(&mm, id, places(0, 3), far);
        let refused = sim.fault_plan().refused();
        sim.fault_plan().set(Failing::Nothing);
        mm.audit(&[id]).unwrap();
        shown(&mm, (3, 2, 2, 0));
        let first = if moved.is_ok() { far } else { at(0) };
        assert_eq!(load(&sim, &mm, id, first + SIZE_2M), 7);
        assert_eq!(store(&sim, &mm, id, first, 8), MAPPED);
        if moved.is_err() {
            assert_eq!(mm.area(id, Va::new(far)), None);
        }
        mm.unmap(id, range(first, 3 * SIZE_2M)).unwrap();
        shown(&mm, (3, 3, 0, 0));
        if refused == 0 {
            assert!(k > 2, "tables are made");
            break;
        }
    }
}

/// A fault that began before hangs a table into the place: it goes, and the page comes.
#[test]
fn a_table_that_a_late_fault_left_gives_way_to_a_page_that_is_moved() {
    let (machine, mm, _over) = meddled(1, 64, Policy::BASE_ONLY);
    mm.online();
    mm.resize_pool(SIZE, 1, Budget::ALL).unwrap();
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    map(mm, id, 10, 1);
    assert_eq!(store(&machine.sim, mm, id, at(10), 5), MAPPED);
    let gone = area(mm, id, at(0), SIZE_2M);
    machine.after_clearing(PAGE, move || mm.unmap(id, gone).unwrap());
    let late = mm.fault(id, gone.start(), Access::Write);
    assert_eq!(late, Outcome::Refused(Refusal::NoArea(gone.start())));
    let before = mm.total(Event::TableFreed);
    assert_eq!(go(mm, id, places(10, 1), at(0)), Ok(places(0, 1)));
    assert_eq!(mm.total(Event::TableFreed) - before, 1);
    assert_eq!(load(&machine.sim, mm, id, at(0)), 5);
}

/// Places are looked through with preemption points, however many there are.
#[test]
fn very_many_places_are_moved_with_preemption_points() {
    const GIB: u64 = 512;
    let machine = crate::common::beside::Beside::new(sim(1, 160));
    let mm = machine.manager(Policy::BASE_ONLY);
    mm.resize_pool(SIZE, 48, Budget::ALL).unwrap();
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    let (place, bytes) = (Place::NoReplace(Va::new(at(0))), places(0, 48 * GIB).bytes());
    let flags = HUGE.with(Flags::NORESERVE);
    mm.map(id, &MapRequest { place, bytes, flags, tag: 0 }).unwrap();
    for gib in 0..48 {
        assert_eq!(mm.fault(id, Va::new(at(gib * GIB)), Access::Write), MAPPED[0]);
    }
    let before = machine.yields();
    go(&mm, id, places(0, 48 * GIB), at(64 * GIB)).unwrap();
    assert_eq!(machine.yields() - before, 10, "9 without those of the 24,576 places");
}
