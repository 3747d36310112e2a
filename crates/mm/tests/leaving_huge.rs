//! Huge pages of a pool that are about to break: they move to another page of it, on every format
//! and by both rules, of programs and of objects, and whatever others do at the same time.

use crate::common::beside::Beside;
use crate::common::*;
use crate::fill_huge::{HUGE, SHARED, SIZE, at, huge, map, places};
use crate::private_huge::{filled, shown, sim_by};
use crate::retired::{frame, lose, mapped, object, show};
use foliant::manager::{Damage, NotRetired, Retired};
use foliant::pool::Budget;
use foliant::space::{Advice, Flags, Move, ObjectId, SpaceId};
use foliant::table::{Paging, X86_64};
use foliant::{Access, Event, Outcome, Policy};
use foliant_machine::Replace;
use foliant_sim::{Format, Sim};
use foliant_units::{Bytes, Frame, Order, Pages, Va};

const PRIVATE: Flags = Flags::READ_WRITE;
const COPIED: Outcome = Outcome::Copied;

fn place(nth: u64) -> Va {
    Va::new(at(nth))
}
#[track_caller]
fn leave<P: Paging>(mm: &AnyMm<'_, P>, frame: Frame) -> Frame {
    match mm.retire(frame, Damage::Foreseen) {
        Ok(Retired::Moved(to)) => to,
        other => panic!("{other:?}"),
    }
}
fn put<P: Paging>(sim: &Sim, mm: &AnyMm<'_, P>, id: SpaceId, nth: u64, value: u64) {
    store(sim, mm, id, at(nth), value);
    store(sim, mm, id, at(nth + 1) - 8, value + 1);
}
#[track_caller]
fn see<P: Paging>(sim: &Sim, mm: &AnyMm<'_, P>, id: SpaceId, nth: u64, value: u64) {
    mm.switch(Some(id)).unwrap();
    assert_eq!(load(sim, mm, id, at(nth)), value);
    assert_eq!(load(sim, mm, id, at(nth + 1) - 8), value + 1);
}

fn private<P: Paging>(format: Format, replace: Option<Replace>) {
    let sim = sim_by(format, replace);
    let (mm, id) = filled::<P>(&sim, 8);
    map(&mm, id, 0, 3, HUGE);
    (0..2).for_each(|nth| put(&sim, &mm, id, nth, 10 * nth));
    let child = mm.fork(id).unwrap();
    let moved = mm.remap(child, places(0, 1), Bytes::new(SIZE_2M), Move::To(place(20)));
    assert_eq!(moved, Ok(places(20, 1)));
    shown(&mm, (8, 6, 1, 0));
    let (bad, copied) = (frame(&mm, id, place(0)), mm.total(Event::CopiedBytes));
    let to = leave(&mm, bad.add(Pages::new(77)));
    assert_eq!((frame(&mm, id, place(0)), frame(&mm, child, place(20))), (to, to));
    assert_eq!((mapped(&mm, &[id, child], bad), mapped(&mm, &[id, child], to)), (0, 2));
    assert_eq!(mm.total(Event::CopiedBytes) - copied, SIZE_2M);
    // Its pool has one page less, as one that was free came in its place.
    shown(&mm, (7, 5, 1, 0));
    assert_eq!((mm.pool(SIZE).unwrap().broken, mm.total(Event::Retired)), (0, 1));
    for (space, nth) in [(id, 0), (child, 20)] {
        see(&sim, &mm, space, nth, 0);
    }
    see(&sim, &mm, id, 1, 10);
    // It is shared as before, and whose it is then as well.
    mm.switch(Some(child)).unwrap();
    assert_eq!(store(&sim, &mm, child, at(20), 5), [COPIED]);
    mm.switch(Some(id)).unwrap();
    assert_eq!(store(&sim, &mm, id, at(0), 6), [Outcome::Reused]);
    assert_eq!((load(&sim, &mm, id, at(0)), frame(&mm, id, place(0))), (6, to));
    shown(&mm, (7, 4, 1, 0));
    mm.audit(&[id, child]).unwrap();
    mm.end(child).unwrap();
    mm.unmap(id, places(0, 3)).unwrap();
    shown(&mm, (7, 7, 0, 0));
    // What it had is free but for the frame that was meant.
    mm.resize_pool(SIZE, 0, Budget::ALL).unwrap();
    let held: Vec<Frame> = core::iter::from_fn(|| mm.lend(Order::BASE).ok()).collect();
    assert!(held.contains(&bad) && !held.contains(&bad.add(Pages::new(77))));
    held.into_iter().for_each(|block| mm.take_back(block, Order::BASE).unwrap());
}

#[test]
fn a_huge_page_moves_wherever_it_is_mapped() {
    on_every_format!(private);
}

fn of_object<P: Paging>(format: Format, replace: Option<Replace>) {
    let sim = sim_by(format, replace);
    let (mm, id) = filled::<P>(&sim, 8);
    let other = mm.create(None).unwrap();
    let of = object(&mm, 512 * 2, Flags::HUGE_2M);
    for (space, nth, flags) in [(id, 0, SHARED), (id, 10, PRIVATE), (other, 0, SHARED)] {
        show(&mm, space, at(nth), 2 * SIZE_2M, (of, flags));
    }
    (0..2).for_each(|nth| put(&sim, &mm, id, nth, 10 * nth));
    see(&sim, &mm, id, 10, 0);
    see(&sim, &mm, other, 0, 0);
    // The place of a copy that was dropped says so, and what is mapped there since.
    mm.switch(Some(id)).unwrap();
    assert_eq!(store(&sim, &mm, id, at(11), 9).last(), Some(&COPIED));
    mm.advise(id, places(11, 1), Advice::DontNeed).unwrap();
    see(&sim, &mm, id, 11, 10);
    let before = mm.pool(SIZE).unwrap();
    for nth in 0..2 {
        let bad = frame(&mm, id, place(nth));
        let to = leave(&mm, bad);
        assert_eq!(mapped(&mm, &[id, other], bad), 0);
        assert_eq!((frame(&mm, id, place(nth)), frame(&mm, id, place(10 + nth))), (to, to));
        let page = mm.object_page(of, huge(nth), Access::Read).unwrap().unwrap();
        assert_eq!(page.frame(), to);
    }
    assert_eq!(mapped(&mm, &[id, other], frame(&mm, id, place(0))), 3);
    let after = mm.pool(SIZE).unwrap();
    assert_eq!(after.nr_hugepages, before.nr_hugepages - 2);
    assert_eq!(after.resv_hugepages, before.resv_hugepages);
    for (space, nth) in [(id, 0), (id, 10), (other, 0)] {
        see(&sim, &mm, space, nth, 0);
    }
    see(&sim, &mm, id, 11, 10);
    assert_eq!(mm.object_pages(of), Some(huge(2)));
    // What one writes the others read, and a private area gets its copy.
    mm.switch(Some(id)).unwrap();
    store(&sim, &mm, id, at(0), 77);
    assert_eq!(store(&sim, &mm, id, at(10) + 8, 5), [COPIED]);
    mm.switch(Some(other)).unwrap();
    assert_eq!(load(&sim, &mm, other, at(0)), 77);
    mm.audit(&[id, other]).unwrap();
    mm.punch_object(of, huge(0), huge(2)).unwrap();
    mm.audit(&[id, other]).unwrap();
}

#[test]
fn a_huge_page_of_an_object_moves_for_all_that_map_it() {
    on_every_format!(of_object);
}

/// Where no page is free one is made, and the pool is as large as before; where none can be made
/// nothing changes.
#[test]
fn a_page_is_made_where_none_is_free() {
    let sim = sim(2, 24);
    let (mm, id) = filled::<X86_64<4>>(&sim, 2);
    map(&mm, id, 0, 2, HUGE);
    put(&sim, &mm, id, 0, 7);
    shown(&mm, (2, 1, 1, 0));
    let bad = frame(&mm, id, place(0));
    let to = leave(&mm, bad);
    assert_eq!(frame(&mm, id, place(0)), to);
    see(&sim, &mm, id, 0, 7);
    shown(&mm, (2, 1, 1, 0));
    // The last one that is free is reserved.
    put(&sim, &mm, id, 1, 9);
    shown(&mm, (2, 0, 0, 0));
    let mut held: Vec<Frame> = core::iter::from_fn(|| mm.lend(Order::SIZE_2M).ok()).collect();
    let none = mm.retire(to, Damage::Foreseen);
    assert!(matches!(none, Err(NotRetired::NoBlock(_))), "{none:?}");
    see(&sim, &mm, id, 0, 7);
    shown(&mm, (2, 0, 0, 0));
    mm.take_back(held.pop().unwrap(), Order::SIZE_2M).unwrap();
    let next = leave(&mm, to);
    see(&sim, &mm, id, 0, 7);
    shown(&mm, (2, 0, 0, 0));
    // What is about to break twice may break before it is moved.
    mm.poison(next);
    assert_eq!(mm.retire(next, Damage::Foreseen), Ok(Retired::Lost));
    shown(&mm, (1, 0, 0, 0));
    held.into_iter().for_each(|block| mm.take_back(block, Order::SIZE_2M).unwrap());
}

#[test]
fn what_is_reserved_or_anchored_stays() {
    let sim = sim(2, 24);
    let (mm, id) = filled::<X86_64<4>>(&sim, 1);
    map(&mm, id, 0, 1, HUGE);
    put(&sim, &mm, id, 0, 7);
    let page = frame(&mm, id, place(0));
    let anchor = mm.anchor(id, places(0, 1), Access::Write).unwrap();
    assert_eq!(mm.retire(page, Damage::Foreseen), Err(NotRetired::Pinned(page)));
    see(&sim, &mm, id, 0, 7);
    shown(&mm, (1, 0, 0, 0));
    drop(anchor);
    mm.unmap(id, places(0, 1)).unwrap();
    map(&mm, id, 0, 1, HUGE);
    let why = mm.retire(page, Damage::Foreseen);
    assert_eq!(why, Err(NotRetired::Reserved(page)));
    let said = why.unwrap_err().to_string();
    assert!(said.ends_with("is in a huge page that is reserved: make its pool larger first"));
    shown(&mm, (1, 1, 1, 0));
    lose(&mm, page);
}

/// Whatever is done at the same time, before each step of the move: contents stay, the page that is
/// about to break is nobody's, and nothing is counted twice.
#[test]
fn huge_pages_move_beside_other_operations() {
    type Other = fn(&Mm<'_>, SpaceId, SpaceId, ObjectId);
    const TO: Move = Move::To(Va::new(BASE + 20 * SIZE_2M));
    let others: [(&str, Other); 15] = [
        ("write", |mm, id, _, _| _ = mm.fault(id, place(0), Access::Write)),
        ("write by the child", |mm, _, child, _| _ = mm.fault(child, place(0), Access::Write)),
        ("first touch", |mm, id, _, _| _ = mm.fault(id, place(2), Access::Write)),
        ("unmap", |mm, id, _, _| mm.unmap(id, places(0, 2)).unwrap()),
        ("drop", |mm, id, _, _| mm.advise(id, places(0, 1), Advice::DontNeed).unwrap()),
        ("move", |mm, id, _, _| _ = mm.remap(id, places(0, 1), Bytes::new(SIZE_2M), TO).unwrap()),
        ("protect", |mm, id, _, _| mm.protect(id, places(0, 1), Flags::READ).unwrap()),
        ("fork", |mm, id, _, _| _ = mm.fork(id).unwrap()),
        ("end", |mm, _, child, _| mm.end(child).unwrap()),
        ("anchor", |mm, id, _, _| {
            // A child of an anchored page gets a copy, which takes a page of the pool.
            drop(mm.anchor(id, places(0, 1), Access::Read));
        }),
        ("shared", |mm, id, _, _| _ = mm.fault(id, place(30), Access::Write)),
        ("read", |mm, _, _, of| {
            let page = mm.object_page(of, Pages::new(0), Access::Read);
            assert!(matches!(page, Ok(Some(_))), "not zeros");
        }),
        ("write alone", |mm, id, _, _| {
            assert_eq!(mm.fault(id, place(1), Access::Write), Outcome::Reused);
        }),
        ("mark", |mm, id, _, _| {
            if let Some(frame) = mm.frame_at(id, place(0)) {
                mm.poison(frame);
            }
        }),
        ("leave", |mm, id, _, _| {
            if let Some(frame) = mm.frame_at(id, place(0)) {
                let done = mm.retire(frame, Damage::Foreseen);
                // It may see what the other has in hand.
                let is_refused =
                    matches!(done, Err(NotRetired::NoFolio(_) | NotRetired::Pinned(_)));
                assert!(is_refused || matches!(done, Ok(Retired::Moved(_))), "{done:?}");
            }
        }),
    ];
    for (turn, (name, act)) in (0..).zip(others) {
        for which in if name == "write alone" { [0, 1] } else { [0, 30] } {
            let mut met = 0;
            for step in (1 + turn % 5..).step_by(5) {
                let beside = Beside::new(sim(2, 24));
                let mm = beside.manager(Policy::BASE_ONLY);
                beside.sim.on(cpu(1), || mm.online());
                mm.resize_pool(SIZE, 6, Budget::ALL).unwrap();
                let [id, other] = [(); 2].map(|()| mm.create(None).unwrap());
                map(&mm, id, 0, 3, HUGE);
                let of = object(&mm, 512, Flags::HUGE_2M);
                for space in [id, other] {
                    show(&mm, space, at(30), SIZE_2M, (of, SHARED));
                }
                for (space, nth) in [(id, 0), (id, 1), (other, 30)] {
                    mm.switch(Some(space)).unwrap();
                    put(&beside.sim, &mm, space, nth, 10 * nth);
                }
                let child = mm.fork(id).unwrap();
                mm.unmap(child, places(1, 1)).unwrap();
                let at_which = if which == 30 { other } else { id };
                let bad = frame(&mm, at_which, place(which));
                let retire = || mm.retire(bad, Damage::Foreseen);
                let Some(done) = beside.before_step(step, || act(&mm, id, child, of), retire)
                else {
                    assert!(step > 20, "{name}");
                    break;
                };
                met += 1;
                let spaces: Vec<SpaceId> = mm.spaces().collect();
                let what = format!("{name}, {which}, step {step}: {done:?}");
                let was_lost = name == "mark" && done == Ok(Retired::Lost);
                // Of two that leave it one sees what the other has in hand.
                assert!(done.is_ok() || name == "leave", "{what}");
                assert_eq!(mapped(&mm, &spaces, bad), 0, "{what}");
                mm.audit(&spaces).unwrap_or_else(|why| panic!("{what}: {why:?}"));
                for nth in [0, 1, 20, 30] {
                    let (space, value) =
                        if nth == 30 { (other, 300) } else { (id, 10 * (nth % 20)) };
                    if mm.frame_at(space, place(nth)).is_none() || was_lost && nth == 0 {
                        continue;
                    }
                    mm.switch(Some(space)).unwrap();
                    let word = |va| beside.sim.user_load(Va::new(va), 8);
                    assert_eq!(word(at(nth)), Ok(value), "{what}, page {nth}");
                    assert_eq!(word(at(nth + 1) - 8), Ok(value + 1), "{what}, page {nth}");
                }
            }
            assert!(met > 10, "{name}");
        }
    }
}
