//! Requests at the edge of what is granted: sizes, places, flags, and what a refusal says.

use crate::common::*;
use foliant::fault::{Orders, Refusal};
use foliant::manager::UserMapError;
use foliant::object::ObjectRequest;
use foliant::space::{
    Advice, Area, Edge, Flags, MapError, MapRequest, Move, Place, RangeError, RemapError, SpaceId,
};
use foliant::split::MoveGrain;
use foliant::vmap::{Request, Users};
use foliant::{Access, Event, Outcome, Policy};
use foliant_machine::Replace;
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, Level, Order, Pages, Va, VaRange};

fn world() -> (&'static Sim, &'static Mm<'static>, SpaceId, Over) {
    let (sim, mm, kept) = kept(sim(1, 32), Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    (sim, mm, id, kept)
}

#[test]
fn an_area_shrinks_where_it_is() {
    let (sim, mm, id, _over) = world();
    area(mm, id, BASE, 16 * PAGE);
    for nth in 0..16 {
        store(sim, mm, id, BASE + nth * PAGE, nth);
    }
    let shrink = |old, to: u64| mm.remap(id, old, Bytes::new(to * PAGE), Move::Never);
    let listed = || mm.area(id, Va::new(BASE)).unwrap().range;
    assert_eq!(shrink(row(0, 16), 16), Ok(row(0, 16)), "to what it is");
    assert_eq!((listed(), mm.pages(id).unwrap().get()), (row(0, 16), 16));
    assert_eq!(shrink(row(0, 16), 10), Ok(row(0, 10)));
    assert_eq!((listed(), mm.pages(id).unwrap().get()), (row(0, 10), 10));
    assert_eq!(shrink(row(2, 6), 4), Ok(row(2, 4)), "a hole in the middle");
    assert_eq!(listed(), row(0, 6));
    assert_eq!(mm.area(id, Va::new(BASE + 8 * PAGE)).unwrap().range, row(8, 2));
    for nth in (0..6).chain(8..10) {
        assert_eq!(load(sim, mm, id, BASE + nth * PAGE), nth);
    }
}

#[test]
fn a_move_that_cannot_be_is_refused_by_its_reason() {
    let (_, mm, id, _over) = world();
    area(mm, id, BASE, 4 * PAGE);
    let second = request(Place::NoReplace(Va::new(BASE + 4 * PAGE)), 4 * PAGE, Flags::READ);
    mm.map(id, &second).unwrap();
    let to = |bytes| mm.remap(id, row(1, 2), Bytes::new(bytes), Move::MayMove);
    let misaligned = |end| Err(RemapError::from(RangeError::Misaligned(Va::new(end))));
    assert_eq!(to(PAGE + 8), misaligned(BASE + 2 * PAGE + 8), "where the end would lie");
    assert_eq!(to(3 * PAGE - 1), misaligned(BASE + 4 * PAGE - 1));
    let both = mm.remap(id, row(2, 4), Bytes::new(4 * PAGE), Move::To(Va::new(2 * BASE)));
    assert_eq!(both, Err(RemapError::Several(Va::new(BASE + 4 * PAGE))), "where the other begins");
}

/// Tables come where the old range has some: one for each where the new addresses are aligned as
/// the old ones are, else two, of which neighbours share one.
#[test]
fn a_move_makes_the_tables_of_what_is_mapped_and_no_more() {
    let touched = [3, 64, 65, 200].map(|nth| nth * SIZE_2M + 5 * PAGE);
    for (shift, tables) in [(0, 4), (PAGE, 7), (SIZE_2M - 5 * PAGE, 7)] {
        let (sim, mm, id, _over) = world();
        let old = area(mm, id, BASE, GB);
        area(mm, id, BASE - PAGE, PAGE);
        store(sim, mm, id, BASE - PAGE, 1);
        let others = mm.tables(id).unwrap().get();
        touched.iter().for_each(|at| _ = store(sim, mm, id, BASE + at, *at));
        assert_eq!(mm.tables(id).unwrap().get(), others + 1 + 4, "four, and the one above them");
        let to = BASE + 2 * GB + shift;
        mm.remap(id, old, old.bytes(), Move::To(Va::new(to))).unwrap();
        assert_eq!(mm.tables(id).unwrap().get(), others + 1 + tables, "moved by {shift:#x} more");
        touched.iter().for_each(|at| assert_eq!(load(sim, mm, id, to + at), *at));
    }
}

/// A terabyte in which nothing is takes no table with it, nor one in which one page is more than
/// the way to it.
#[test]
fn a_move_of_what_is_not_touched_makes_no_table() {
    const WHOLE: u64 = 1 << 40;
    let (sim, mm, id, _over) = world();
    let tables = || mm.tables(id).unwrap().get();
    let mut at = area(mm, id, WHOLE, WHOLE);
    let mut go = |to: u64| {
        at = mm.remap(id, at, Bytes::new(WHOLE), Move::To(Va::new(to))).unwrap();
        to
    };
    go(5 * WHOLE + PAGE);
    assert_eq!(tables(), 0);
    let start = go(3 * WHOLE);
    assert_eq!(tables(), 0);
    store(sim, mm, id, start + WHOLE / 2, 7);
    assert_eq!(tables(), 3);
    let start = go(7 * WHOLE);
    assert_eq!(load(sim, mm, id, start + WHOLE / 2), 7);
    assert_eq!(tables(), 3 + 1, "what hangs in the top table stays (table::I5)");
}

/// An advice that drops all that a table of pages covers takes the table too, so that the next
/// fault may map a leaf of 2 MiB; what is left in it keeps it, and so does a part that is not
/// dropped.
#[test]
fn a_table_goes_with_all_that_it_covers() {
    let (sim, mm, id, _over) = world();
    area(mm, id, BASE, 2 * SIZE_2M);
    let tables = || mm.tables(id).unwrap().get();
    let pages = |from, count| range(BASE + from * PAGE, count * PAGE);
    let drop = |from, count| mm.advise(id, pages(from, count), Advice::DontNeed).unwrap();
    let fill = || {
        mm.set_policy(Policy::BASE_ONLY);
        (0..1024).step_by(64).for_each(|nth| _ = store(sim, mm, id, BASE + nth * PAGE, nth));
        mm.set_policy(Policy::always(Orders::of(Order::SIZE_2M)));
        tables()
    };
    let level = |nth| {
        store(sim, mm, id, BASE + nth * PAGE, 1);
        let leaf = mm.with_leaves(id, pages(nth, 1), |mut leaves| leaves.next()).flatten();
        leaf.expect("it is mapped").level
    };
    let both = fill();

    drop(1, 1023);
    assert_eq!(tables(), both - 1, "the second is covered");
    assert_eq!((level(512), load(sim, mm, id, BASE)), (Level::SIZE_2M, 0));
    drop(0, 512);
    assert_eq!(level(5), Level::SIZE_2M);
    drop(0, 1024);
    assert_eq!(fill(), both);
    drop(0, 100);
    drop(100, 412);
    assert_eq!((tables(), level(0)), (both, Level::BASE), "by parts");
    drop(512, 512);
    assert_eq!(tables(), both - 1);
    drop(0, 512);
    assert_eq!(fill(), both);
    mm.advise(id, pages(3, 1), Advice::GuardInstall).unwrap();
    drop(0, 512);
    assert_eq!((tables(), level(4)), (both, Level::BASE), "a guard stays");
    mm.audit(&[id]).unwrap();
}

/// The same where an object loses all the pages of a table: its own tables get a leaf of 2 MiB
/// again.
#[test]
fn an_objects_table_goes_with_all_that_it_covers() {
    let (_, mm, _, _over) = world();
    let pages = Pages::new(1024);
    let object = mm.create_object(&ObjectRequest { pages, ..Default::default() }).unwrap();
    let has = || {
        mm.object_page(object, Pages::new(9), Access::Write).unwrap().expect("a write makes it");
        mm.object_pages(object).unwrap().get()
    };
    assert_eq!(has(), 1);
    mm.set_object_policy(Policy::always(Orders::of(Order::SIZE_2M)));
    mm.punch_object(object, Pages::new(0), Pages::new(512)).unwrap();
    assert_eq!(has(), 512);
    mm.end_object(object).unwrap();
    mm.audit(&[]).unwrap();
}

#[test]
fn an_unmap_of_what_is_no_range_of_pages_is_refused() {
    let (sim, mm, id, _over) = world();
    area(mm, id, BASE, 4 * PAGE);
    store(sim, mm, id, BASE, 1);
    let unmap = |start, end| mm.unmap(id, VaRange::new(Va::new(start), Va::new(end)).unwrap());
    assert_eq!(unmap(BASE, BASE), Err(RangeError::Empty));
    assert_eq!(unmap(BASE + 8, BASE + PAGE), Err(RangeError::Misaligned(Va::new(BASE + 8))));
    assert_eq!(unmap(BASE, BASE + 8), Err(RangeError::Misaligned(Va::new(BASE + 8))));
    let end = Va::new((1 << 47) - PAGE);
    assert_eq!(unmap(BASE, end.get() + PAGE), Err(RangeError::Outside(end)));
    assert_eq!(load(sim, mm, id, BASE), 1, "nothing is gone");
}

/// Of two areas that were moved on their way together, a move keeps a part of the first.
#[test]
fn a_move_that_keeps_less_than_the_first_of_its_areas() {
    let (sim, mm, id, _over) = world();
    area(mm, id, BASE, 4 * PAGE);
    area(mm, id, 2 * BASE, 4 * PAGE);
    for nth in 0..4 {
        store(sim, mm, id, BASE + nth * PAGE, nth);
        store(sim, mm, id, 2 * BASE + nth * PAGE, 4 + nth);
    }
    let second = VaRange::sized(Va::new(2 * BASE), Bytes::new(4 * PAGE)).unwrap();
    mm.remap(id, second, Bytes::new(4 * PAGE), Move::To(row(4, 4).start())).unwrap();
    assert_ne!(mm.area(id, row(0, 1).start()), mm.area(id, row(4, 1).start()), "there are two");
    let moved = mm.remap(id, row(0, 8), Bytes::new(2 * PAGE), Move::To(Va::new(3 * BASE)));
    assert_eq!(moved, Ok(VaRange::sized(Va::new(3 * BASE), Bytes::new(2 * PAGE)).unwrap()));
    let mut from = Va::new(0);
    let next = || {
        let area = mm.area_at_or_after(id, from)?;
        from = area.range.end();
        Some(area.range)
    };
    assert_eq!(std::iter::from_fn(next).collect::<Vec<_>>(), [moved.unwrap()], "one is left");
    assert_eq!([0, 1].map(|nth| load(sim, mm, id, 3 * BASE + nth * PAGE)), [0, 1]);
    // Nothing stands where the rest would have begun, not even an area without a page.
    let behind = area(mm, id, 3 * BASE + 2 * PAGE, PAGE);
    store(sim, mm, id, behind.start().get(), 9);
    mm.unmap(id, behind).unwrap();
    assert_eq!(mm.area_at_or_after(id, moved.unwrap().start()).unwrap().range, moved.unwrap());
    assert_eq!(mm.area(id, behind.start()), None);
    mm.audit(&[id]).unwrap();
}

#[test]
fn a_place_is_chosen_as_the_request_says() {
    let (_, mm, id, _over) = world();
    let first = area(mm, id, BASE, 4 * PAGE);
    let map = |place, pages| mm.map(id, &request(place, pages * PAGE, Flags::READ));
    let empty = Err(MapError::from(RangeError::Empty));
    assert_eq!(map(Place::Anywhere, 0), empty);
    let free = row(8, 2);
    assert_eq!(map(Place::Hint(free.start()), 2), Ok(free));
    let elsewhere = map(Place::Hint(first.start()), 2).unwrap();
    assert!(!elsewhere.overlaps(first) && !elsewhere.overlaps(free), "{elsewhere:?}");
    assert_eq!(map(Place::NoReplace(first.start()), 2), Err(MapError::Occupied(first.start())));
    assert_eq!(map(Place::Hint(Va::new(BASE + 20 * PAGE + 5)), 1), Ok(row(20, 1)), "its page");
    let kernel = Flags::READ.with(Flags::KERNEL);
    let flags = mm.map(id, &request(Place::Anywhere, PAGE, kernel));
    assert_eq!(flags, Err(MapError::Flags(kernel)), "its pages come another way");
}

#[test]
fn kernel_memory_is_mapped_to_a_program_where_nothing_is_and_as_it_can_be() {
    let (_, mm, id, _over) = world();
    let memory = Request::of(Bytes::new(2 * PAGE));
    let lent = Request { users: Users::Yes, ..memory };
    let lent = mm.vmalloc(&lent).unwrap();
    let map = |place, flags| mm.map_user(id, &request(place, 2 * PAGE, flags), lent.start());
    for flag in [Flags::HUGE_2M, Flags::GROWS_DOWN, Flags::USERFAULT] {
        let flags = Flags::READ.with(flag);
        assert_eq!(map(Place::Anywhere, flags), Err(UserMapError::Space(MapError::Flags(flags))));
    }
    let there = area(mm, id, BASE, 4 * PAGE);
    let occupied = Err(UserMapError::Space(MapError::Occupied(there.start())));
    assert_eq!(map(Place::Fixed(there.start()), Flags::READ), occupied, "nothing is replaced");
    assert_eq!(map(Place::NoReplace(row(4, 1).start()), Flags::READ), Ok(row(4, 2)));
    mm.unmap(id, row(4, 2)).unwrap();
    mm.vfree(lent.start()).unwrap();
}

/// Its entries are the program's own, whoever else counts the pages: a write through one that was
/// closed for a while copies nothing.
#[test]
fn kernel_memory_that_a_program_may_write_again_is_written_where_it_is() {
    for replace in [Replace::InPlace, Replace::BreakBeforeMake] {
        let mut config = Config::seeded(1, Bytes::new(32 * MB), 1);
        config.rules.replace = replace;
        let sim = Sim::new(config).unwrap();
        let mm = manager(&sim, Policy::BASE_ONLY);
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        let memory = Request { users: Users::Yes, ..Request::of(Bytes::new(2 * PAGE)) };
        let lent = mm.vmalloc(&memory).unwrap();
        let place = Place::NoReplace(Va::new(BASE));
        let own =
            mm.map_user(id, &request(place, 2 * PAGE, Flags::READ_WRITE), lent.start()).unwrap();
        assert_eq!(store(&sim, &mm, id, BASE, 5), []);
        mm.protect(id, own, Flags::READ).unwrap();
        let closed = mm.fault(id, own.start(), Access::Write);
        assert!(matches!(closed, Outcome::Refused(_)), "{closed:?}");
        mm.protect(id, own, Flags::READ_WRITE).unwrap();
        assert_eq!(store(&sim, &mm, id, BASE, 6), [], "{replace:?}: writable at once");
        assert_eq!(mm.total(Event::Copied), 0);
        let kernels = mm.vmap().frame_at(lent.start()).unwrap().0;
        assert_eq!(mm.frame_at(id, own.start()), Some(kernels));
        mm.unmap(id, own).unwrap();
        mm.vfree(lent.start()).unwrap();
    }
}

#[test]
fn pages_that_cannot_be_made_present_are_told() {
    let (_, mm, id, _over) = world();
    let all = area(mm, id, BASE, 64 * MB);
    let populate = || mm.advise(id, all, Advice::PopulateWrite);
    assert_eq!(populate(), Err(RangeError::NoMemory), "twice as much as there is");
    mm.unmap(id, all).unwrap();
    let gone = mm.create(None).unwrap();
    mm.end(gone).unwrap();
    let none = mm.advise(gone, row(0, 1), Advice::PopulateRead);
    assert_eq!(none, Err(RangeError::NoSpace));
}

#[test]
fn how_many_folios_move_with_one_flush_is_what_was_set() {
    let (sim, mm, id, _over) = world();
    assert_eq!(mm.move_grain(), MoveGrain::MOST);
    for grain in [MoveGrain::ONE, MoveGrain::new(7).unwrap(), MoveGrain::MOST] {
        mm.set_move_grain(grain);
        assert_eq!(mm.move_grain(), grain);
    }
    assert_eq!([MoveGrain::new(0), MoveGrain::new(MoveGrain::MOST.get() + 1)], [None, None]);
    assert_eq!(store(sim, mm, id, area(mm, id, BASE, PAGE).start().get(), 1).len(), 1);
    assert_eq!(mm.fault(id, Va::new(BASE), Access::Read), Outcome::Spurious);
}

/// An embedder tells apart what it keeps of areas by a tag: where tags differ areas are two, and no
/// folio lies over both, until they are alike again.
#[test]
fn areas_of_different_tags_are_not_one() {
    let (sim, mm, id, _over) = world();
    mm.set_policy(Policy::always(Orders::of(Order::new(4).unwrap())));
    let whole = area(mm, id, BASE, 64 * PAGE);
    mm.advise(id, row(24, 1), Advice::Tag(7)).unwrap();
    let listed = |page| {
        let area = mm.area(id, Va::new(BASE + page * PAGE)).unwrap();
        (area.range, area.tag, area.flags)
    };
    let flags = Flags::READ_WRITE;
    assert_eq!(listed(0), (row(0, 24), 0, flags));
    assert_eq!(listed(24), (row(24, 1), 7, flags));
    assert_eq!(listed(63), (row(25, 39), 0, flags));
    // The second block of sixteen pages is cut by the one in its middle, the others are whole.
    let touch = |page| mm.fault(id, Va::new(BASE + page * PAGE), Access::Write);
    let large = Outcome::Mapped(Order::new(4).unwrap());
    assert_eq!([touch(0), touch(40)], [large; 2]);
    assert_eq!([touch(16), touch(24), touch(31)], [Outcome::Mapped(Order::BASE); 3]);
    store(sim, mm, id, BASE + 24 * PAGE, 5);
    // What is in an area stays as it is.
    mm.advise(id, whole, Advice::Tag(9)).unwrap();
    assert_eq!(listed(0), (whole, 9, flags));
    assert_eq!(load(sim, mm, id, BASE + 24 * PAGE), 5);
    mm.advise(id, row(16, 16), Advice::DontNeed).unwrap();
    assert_eq!(touch(20), large);
    let refused = mm.advise(id, row(60, 8), Advice::Tag(1));
    assert_eq!(refused, Err(RangeError::Hole(whole.end())), "all of it, or none");
    assert_eq!(listed(60).1, 9);
}

/// The neighbours of an address, and the room between them, as a walk over all areas tells them.
#[test]
fn neighbours_and_room_are_what_a_walk_finds() {
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    // More areas than a leaf of their map has, with gaps of 0 to 4 pages.
    let (mut at, mut areas) = (10, Vec::new());
    for nth in 0..120u64 {
        at += nth * 7 % 5;
        let flags = if nth % 2 == 0 { Flags::READ } else { Flags::READ_WRITE };
        let place = Place::NoReplace(Va::new(BASE + at * PAGE));
        areas.push(mm.map(id, &request(place, PAGE, flags)).unwrap());
        at += 1;
    }
    let page = |nth: u64| Va::new(BASE + nth * PAGE);
    for nth in 0..at + 10 {
        let around = mm.areas_around(id, page(nth)).map(|area| area.map(|area| area.range));
        let place = areas.iter().take_while(|area| area.end() <= page(nth)).count();
        let want = [place.checked_sub(1), Some(place), Some(place + 1)];
        assert_eq!(around, want.map(|nth| areas.get(nth?).copied()), "page {nth}");
    }
    let is_free = |from: u64, pages: u64| {
        let room = VaRange::new(page(from), page(from + pages)).unwrap();
        areas.iter().all(|area| !area.overlaps(room))
    };
    for pages in 1..6 {
        for (low, high) in [(0, at + 10), (10, at), (30, 90), (57, 58), (90, 80 + pages)] {
            let places =
                || (low..(high + 1u64).saturating_sub(pages)).filter(|p| is_free(*p, pages));
            let Some(within) = VaRange::new(page(low), page(high)) else { continue };
            let room = |from| mm.room(id, Bytes::new(pages * PAGE), within, from);
            assert_eq!(
                room(Edge::High),
                places().next_back().map(page),
                "{pages} in {low}..{high}"
            );
            assert_eq!(room(Edge::Low), places().next().map(page), "{pages} in {low}..{high}");
        }
    }
    mm.end(id).unwrap();
    let whole = VaRange::new(page(0), page(9)).unwrap();
    assert_eq!(mm.areas_around(id, page(0)), [None; 3]);
    assert_eq!(mm.room(id, Bytes::new(PAGE), whole, Edge::High), None, "no space");
}

/// A caller that has something to do first for some areas: no page comes there by its faults, whose
/// others go on as any. A hole is a hole, and rights are asked for behind that.
#[test]
fn a_fault_brings_nothing_where_its_caller_does_not_admit_the_area() {
    let (_, mm, id, _over) = world();
    area(mm, id, BASE, 8 * PAGE);
    mm.advise(id, row(4, 4), Advice::Tag(7)).unwrap();
    let admits = |area: &Area| area.tag == 7;
    let touch =
        |page: u64, access| mm.fault_where(id, Va::new(BASE + page * PAGE + 5), access, &admits);
    let not = |page| Outcome::Refused(Refusal::NotAdmitted(Va::new(BASE + page * PAGE)));
    assert_eq!([touch(0, Access::Write), touch(3, Access::Read)], [not(0), not(3)]);
    assert_eq!(touch(1, Access::Execute), not(1), "whatever the access");
    assert_eq!(touch(4, Access::Write), Outcome::Mapped(Order::BASE));
    assert_eq!(touch(5, Access::Read), Outcome::ZeroPage(Order::BASE));
    let page = Va::new(BASE + 5 * PAGE);
    let no_right = Refusal::NoRight(page, Access::Execute);
    assert_eq!(touch(5, Access::Execute), Outcome::Refused(no_right));
    let hole = Refusal::NoArea(Va::new(BASE + 9 * PAGE));
    assert_eq!(touch(9, Access::Write), Outcome::Refused(hole));
    for page in 0..4 {
        assert_eq!(mm.frame_at(id, Va::new(BASE + page * PAGE)), None);
    }
    assert_eq!(mm.total(Event::Fault), 3, "those that were admitted");
    // What is there stays as it is.
    mm.advise(id, row(4, 4), Advice::Tag(8)).unwrap();
    assert_eq!(touch(4, Access::Write), not(4));
    assert!(mm.frame_at(id, Va::new(BASE + 4 * PAGE)).is_some());
}

/// A second space of which a caller knows what it need not have: areas without what is there. What
/// a leaf may reach over goes together, which areas with the same rights side by side are.
#[test]
fn a_fork_leaves_out_what_comes_again() {
    let (sim, mm, id, _over) = world();
    // Rights, whether it is shared, and whether the child has its pages.
    let [read, write] = [Flags::READ, Flags::READ_WRITE];
    let rows = [
        (0, write, true, true),
        (4, read, false, false),
        (8, write, false, true), // beside one with its rights that is shared
        (12, write, true, true),
        (20, write, false, false),
    ];
    for (nth, (at, ..)) in rows.into_iter().enumerate() {
        let place = Place::NoReplace(Va::new(BASE + at * PAGE));
        let tagged = MapRequest { tag: nth as u64, ..request(place, 4 * PAGE, write) };
        mm.map(id, &tagged).unwrap();
        for page in at..at + 4 {
            store(sim, mm, id, BASE + page * PAGE, 100 + page);
        }
    }
    mm.protect(id, row(4, 4), read).unwrap();
    let shares = |area: &Area| rows[area.tag as usize].2;
    let child = mm.fork_where(id, &shares).unwrap();
    for (nth, (at, rights, _, has)) in rows.into_iter().enumerate() {
        let area = mm.area(child, Va::new(BASE + at * PAGE)).unwrap();
        assert_eq!((area.range, area.flags, area.tag), (row(at, 4), rights, nth as u64));
        for page in at..at + 4 {
            let frame = mm.frame_at(child, Va::new(BASE + page * PAGE));
            assert_eq!(frame.is_some(), has, "page {page}");
        }
    }
    // Neither sees what the other one writes, and what was left out is empty.
    for page in [0, 8, 12, 20] {
        store(sim, mm, id, BASE + page * PAGE, 7);
    }
    mm.switch(Some(child)).unwrap();
    for page in [0, 8, 12] {
        assert_eq!(load(sim, mm, child, BASE + page * PAGE), 100 + page);
    }
    assert_eq!(load(sim, mm, child, BASE + 20 * PAGE), 0);
    store(sim, mm, child, BASE + PAGE, 9);
    mm.switch(Some(id)).unwrap();
    assert_eq!(load(sim, mm, id, BASE + PAGE), 101);
    mm.switch(None).unwrap();
    mm.end(child).unwrap();
}
