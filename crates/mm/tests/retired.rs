//! Memory that is retired: what is lost, and what is about to be. On every format and by both
//! rules, small, large and huge, of programs and of objects; which spaces lose what, what the pools
//! count, and what others do at the same time.

use crate::common::beside::Beside;
use crate::common::*;
use crate::fill_huge::{HUGE, SIZE, at, huge, map, places};
use crate::private_huge::{filled, shown, sim_by};
use foliant::fault::{Orders, Refusal};
use foliant::folio::FrameState;
use foliant::manager::{CollapseLimits, Damage, NoPage, NotRetired, Retired, Setup};
use foliant::object::ObjectRequest;
use foliant::pool::{Budget, Folding};
use foliant::space::{Advice, Flags, MapRequest, Move, ObjectId, Place, RangeError, SpaceId};
use foliant::split::SplitInto;
use foliant::table::{Entry, Paging, X86_64};
use foliant::{Access, Event, Outcome, Policy};
use foliant_machine::Replace;
use foliant_sim::{Config, Format, Sim};
use foliant_units::{Bytes, Frame, Order, Pages, Va};

const SHARED: Flags = Flags::READ_WRITE.with(Flags::SHARED);
const PRIVATE: Flags = Flags::READ_WRITE;
const ALL: Damage = Damage::Done;

fn va(nth: u64) -> Va {
    Va::new(BASE + nth * PAGE)
}
pub(crate) fn broken(va: Va) -> Outcome {
    Outcome::Refused(Refusal::Broken(va))
}
pub(crate) fn both<P: Paging>(mm: &AnyMm<'_, P>, id: SpaceId, va: Va) -> [Outcome; 2] {
    [mm.fault(id, va, Access::Read), mm.fault(id, va, Access::Write)]
}
pub(crate) fn frame<P: Paging>(mm: &AnyMm<'_, P>, id: SpaceId, va: Va) -> Frame {
    mm.frame_at(id, va).unwrap()
}
pub(crate) fn lose<P: Paging>(mm: &AnyMm<'_, P>, frame: Frame) {
    assert_eq!(mm.retire(frame, Damage::Done), Ok(Retired::Lost), "{frame}");
}
pub(crate) fn object<P: Paging>(mm: &AnyMm<'_, P>, pages: u64, flags: Flags) -> ObjectId {
    let request = ObjectRequest { pages: Pages::new(pages), flags, ..Default::default() };
    mm.create_object(&request).unwrap()
}
pub(crate) fn show<P: Paging>(
    mm: &AnyMm<'_, P>,
    id: SpaceId,
    at: u64,
    bytes: u64,
    (of, flags): (ObjectId, Flags),
) {
    let request = MapRequest {
        place: Place::NoReplace(Va::new(at)),
        bytes: Bytes::new(bytes),
        flags,
        tag: 0,
    };
    mm.map_object(id, &request, (of, Pages::new(0))).unwrap();
}
/// How many leaves of the user halves of these spaces name the frame.
pub(crate) fn mapped<P: Paging>(mm: &AnyMm<'_, P>, spaces: &[SpaceId], frame: Frame) -> usize {
    let all = range(BASE, GB);
    let names = |entry: Entry, pages: u64| match entry {
        Entry::Leaf { pa, .. } => {
            frame.get().checked_sub(pa.frame().get()).is_some_and(|inside| inside < pages)
        }
        _ => false,
    };
    let count = |id: &SpaceId| {
        mm.with_leaves(*id, all, |leaves| {
            leaves.filter(|leaf| names(leaf.entry, leaf.level.span().get() / PAGE)).count()
        })
    };
    spaces.iter().filter_map(count).sum()
}
/// A space with `pages` at `BASE`, each of which holds its number and 1000.
fn written<P: Paging>(sim: &Sim, mm: &AnyMm<'_, P>, pages: u64) -> SpaceId {
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(mm, id, BASE, pages.max(512) * PAGE);
    (0..pages).for_each(|nth| _ = store(sim, mm, id, va(nth).get(), 1000 + nth));
    id
}
fn check<P: Paging>(sim: &Sim, mm: &AnyMm<'_, P>, id: SpaceId, pages: impl Iterator<Item = u64>) {
    mm.switch(Some(id)).unwrap();
    for nth in pages {
        assert_eq!(load(sim, mm, id, va(nth).get()), 1000 + nth, "page {nth}");
    }
}

/// Takes all memory that is free.
fn all_of(mm: &Mm<'_>) -> Vec<Frame> {
    core::iter::from_fn(|| mm.lend(Order::BASE).ok()).collect()
}

fn small<P: Paging>(format: Format, replace: Option<Replace>) {
    let sim = sim_by(format, replace);
    let mm: Audited<'_, P> = audited(&sim, &Setup::of(&sim.config().memory, Policy::BASE_ONLY));
    let id = written(&sim, &*mm, 8);
    let child = mm.fork(id).unwrap();
    // In the child it is elsewhere.
    let moved = mm.remap(child, row(3, 1), Bytes::new(PAGE), Move::To(va(600)));
    assert_eq!(moved, Ok(row(600, 1)));
    let bad = frame(&mm, id, va(3));
    lose(&mm, bad);
    assert_eq!(mapped(&mm, &[id, child], bad), 0);
    assert_eq!(both(&mm, id, va(3)), [broken(va(3)); 2]);
    assert_eq!(both(&mm, child, va(600)), [broken(va(600)); 2]);
    check(&sim, &mm, id, (0..8).filter(|nth| *nth != 3));
    check(&sim, &mm, child, (0..8).filter(|nth| *nth != 3));
    assert_eq!((mm.pages(id), mm.pages(child)), (Some(Pages::new(7)), Some(Pages::new(7))));
    let wanted = Err(RangeError::Broken(va(3)));
    assert_eq!(mm.advise(id, row(3, 1), Advice::PopulateRead), wanted);
    assert_eq!((mm.retire(bad, ALL), mm.total(Event::Retired)), (Ok(Retired::Lost), 1), "once");
    // It stays lost in a child and where it moves to, until it is dropped.
    let grandchild = mm.fork(child).unwrap();
    assert_eq!(both(&mm, grandchild, va(600)), [broken(va(600)); 2]);
    mm.remap(id, row(3, 1), Bytes::new(PAGE), Move::To(va(700))).unwrap();
    assert_eq!(both(&mm, id, va(700)), [broken(va(700)); 2]);
    mm.advise(id, row(700, 1), Advice::DontNeed).unwrap();
    assert_eq!(mm.fault(id, va(700), Access::Read), Outcome::ZeroPage(Order::BASE));
    assert_eq!(mm.fault(id, va(700), Access::Write), Outcome::Mapped(Order::BASE));
    assert_ne!(frame(&mm, id, va(700)), bad);
    // What was only read is nobody's to lose: zeros are the manager's own.
    mm.fault(id, va(20), Access::Read);
    assert_eq!(mm.frame_at(id, va(20)), None);
}

#[test]
fn a_page_is_lost_wherever_it_is_mapped() {
    on_every_format!(small);
}

/// Of a large folio one page is lost, and the rest of it is what it was.
fn large<P: Paging>(format: Format, replace: Option<Replace>) {
    for n in [4, 9] {
        let sim = sim_by(format, replace);
        let policy = Policy::always(Orders::of(order(n)));
        let mm: Audited<'_, P> = audited(&sim, &Setup::of(&sim.config().memory, policy));
        let id = written(&sim, &*mm, 512);
        let child = mm.fork(id).unwrap();
        mm.unmap(child, row(12, 4)).unwrap();
        let bad = frame(&mm, id, va(7));
        assert_eq!(mm.identity(frame(&mm, id, va(0))).order(), order(n));
        lose(&mm, bad);
        assert_eq!(mapped(&mm, &[id, child], bad), 0);
        for space in [id, child] {
            assert_eq!(both(&mm, space, va(7)), [broken(va(7)); 2]);
        }
        check(&sim, &mm, id, (0..512).filter(|nth| *nth != 7));
        check(&sim, &mm, child, (16..512).chain(0..7));
        assert_eq!(mm.pages(id), Some(Pages::new(511)));
        mm.audit(&[id, child]).unwrap();
    }
}

#[test]
fn one_page_of_a_large_folio_is_lost() {
    on_every_format!(large);
}

/// A mark does not say which page of the folio it is: all of it goes, and as it needs no memory
/// that succeeds with none left.
#[test]
fn a_folio_that_was_marked_before_goes_whole() {
    let sim = sim(2, 16);
    let mm = manager(&sim, only(9));
    let id = written(&sim, &*mm, 512);
    let child = mm.fork(id).unwrap();
    let head = frame(&mm, id, va(0));
    mm.poison(head.add(Pages::new(7)));
    check(&sim, &mm, id, 0..512);
    lose(&mm, head.add(Pages::new(9)));
    for (space, nth) in [(id, 0), (id, 511), (child, 9), (child, 300)] {
        assert_eq!(both(&mm, space, va(nth)), [broken(va(nth)); 2], "{nth}");
    }
    assert_eq!((mm.pages(id), mm.anonymous()), (Some(Pages::new(0)), Pages::new(0)));
}

#[test]
fn what_is_lost_needs_no_memory_to_be_lost() {
    let sim = sim(2, 16);
    let mm = manager(&sim, only(9));
    let id = written(&sim, &*mm, 512);
    let bad = frame(&mm, id, va(100));
    let held = all_of(&mm);
    lose(&mm, bad);
    assert_eq!(both(&mm, id, va(100)), [broken(va(100)); 2]);
    check(&sim, &mm, id, (0..512).filter(|nth| *nth != 100));
    held.into_iter().for_each(|block| mm.take_back(block, Order::BASE).unwrap());
}

fn of_object<P: Paging>(format: Format, replace: Option<Replace>) {
    let sim = sim_by(format, replace);
    let mm: Audited<'_, P> = audited(&sim, &Setup::of(&sim.config().memory, Policy::BASE_ONLY));
    let [id, other, late] = [(); 3].map(|()| mm.create(None).unwrap());
    let of = object(&mm, 8, Flags::NONE);
    for space in [id, other, late] {
        show(&mm, space, BASE, 8 * PAGE, (of, SHARED));
        show(&mm, space, va(20).get(), 8 * PAGE, (of, PRIVATE));
    }
    mm.switch(Some(id)).unwrap();
    for nth in 0..8 {
        store(&sim, &mm, id, va(nth).get(), 1000 + nth);
        load(&sim, &mm, id, va(20 + nth).get());
    }
    mm.switch(Some(other)).unwrap();
    store(&sim, &mm, other, va(22).get(), 5);
    load(&sim, &mm, other, va(2).get());
    let bad = frame(&mm, id, va(2));
    lose(&mm, bad);
    assert_eq!(mapped(&mm, &[id, other, late], bad), 0);
    for (space, nth) in [(id, 2), (id, 22), (other, 2), (late, 2), (late, 22)] {
        assert_eq!(both(&mm, space, va(nth)), [broken(va(nth)); 2], "{nth}");
    }
    assert_eq!(load(&sim, &mm, other, va(22).get()), 5, "a copy is not the page");
    // The object has the page still, and it does not become zeros.
    assert_eq!(mm.object_pages(of), Some(Pages::new(8)));
    let page = |access| mm.object_page(of, Pages::new(2), access).map(|_| ());
    assert_eq!(page(Access::Read), Err(NoPage::Broken(bad)));
    assert_eq!(page(Access::Write), Err(NoPage::Broken(bad)));
    let newer = mm.fork(late).unwrap();
    assert_eq!(both(&mm, newer, va(2)), [broken(va(2)); 2]);
    mm.audit(&[id, other, late, newer]).unwrap();
    // Punched out it is gone for good; where it was mapped that is known until it is dropped.
    mm.punch_object(of, Pages::new(2), Pages::new(3)).unwrap();
    assert_eq!(mm.fault(late, va(2), Access::Write), Outcome::Mapped(Order::BASE));
    assert_eq!(both(&mm, id, va(2)), [broken(va(2)); 2]);
    mm.advise(id, row(2, 1), Advice::DontNeed).unwrap();
    mm.switch(Some(id)).unwrap();
    assert_eq!(load(&sim, &mm, id, va(2).get()), 0);
    assert_ne!(frame(&mm, id, va(2)), bad);
    check(&sim, &mm, id, (0..8).filter(|nth| *nth != 2));
    // A copy is its space's own.
    let copy = frame(&mm, other, va(22));
    lose(&mm, copy);
    assert_eq!(both(&mm, other, va(22)), [broken(va(22)); 2]);
    // An object that ends with a broken page gives the others back.
    lose(&mm, frame(&mm, id, va(5)));
    mm.audit(&[id, other, late, newer]).unwrap();
}

#[test]
fn an_object_keeps_a_page_that_is_lost() {
    on_every_format!(of_object);
}

#[test]
fn one_page_of_a_large_folio_of_an_object_is_lost() {
    let sim = sim(2, 32);
    let mm = manager(&sim, only(9));
    mm.set_object_policy(only(9));
    let [id, other] = [(); 2].map(|()| mm.create(None).unwrap());
    let of = object(&mm, 512, Flags::NONE);
    for space in [id, other] {
        show(&mm, space, BASE, 512 * PAGE, (of, SHARED));
        mm.switch(Some(space)).unwrap();
        (0..512).for_each(|nth| _ = store(&sim, &mm, space, va(nth).get(), 1000 + nth));
    }
    let bad = frame(&mm, id, va(300));
    assert_eq!(mm.identity(frame(&mm, id, va(0))).order(), order(9));
    lose(&mm, bad);
    assert_eq!(mapped(&mm, &[id, other], bad), 0);
    for space in [id, other] {
        check(&sim, &mm, space, (0..512).filter(|nth| *nth != 300));
        assert_eq!(both(&mm, space, va(300)), [broken(va(300)); 2]);
    }
    assert_eq!(mm.object_pages(of), Some(Pages::new(512)));
    // One that was marked before goes whole, and the object has it whole.
    let again = object(&mm, 512, Flags::NONE);
    show(&mm, id, BASE + 64 * MB, 512 * PAGE, (again, SHARED));
    mm.fault(id, Va::new(BASE + 64 * MB), Access::Write);
    let head = frame(&mm, id, Va::new(BASE + 64 * MB));
    assert_eq!(mm.identity(head).order(), order(9));
    mm.poison(head);
    lose(&mm, head);
    assert_eq!(mm.object_pages(again), Some(Pages::new(512)));
    assert!(matches!(mm.object_page(again, Pages::new(77), Access::Read), Err(NoPage::Broken(_))));
    mm.audit(&[id, other]).unwrap();
}

fn foreseen<P: Paging>(format: Format, replace: Option<Replace>) {
    for n in [0, 4, 9] {
        let sim = sim_by(format, replace);
        let policy = Policy::always(Orders::of(order(n)));
        let policy = if n == 0 { Policy::BASE_ONLY } else { policy };
        let mm: Audited<'_, P> = audited(&sim, &Setup::of(&sim.config().memory, policy));
        let id = written(&sim, &*mm, 512);
        let child = mm.fork(id).unwrap();
        let (bad, free) = (frame(&mm, id, va(7)), mm.memory().free);
        let done = mm.retire(bad, Damage::Foreseen);
        let Ok(Retired::Moved(to)) = done else { panic!("{done:?}") };
        assert_eq!(to, frame(&mm, id, va(7 - 7 % (1 << n))));
        assert_eq!(mm.identity(to).order(), order(n), "it stays one folio");
        assert_eq!((mapped(&mm, &[id, child], bad), mm.memory().free.get()), (0, free.get() - 1));
        check(&sim, &mm, id, 0..512);
        check(&sim, &mm, child, 0..512);
        assert_eq!(mm.total(Event::Retired), 1);
        assert_eq!(mm.retire(bad, ALL), Ok(Retired::Lost), "nobody has it");
        mm.audit(&[id, child]).unwrap();
    }
}

#[test]
fn what_is_about_to_break_is_moved_away_from() {
    on_every_format!(foreseen);
}

#[test]
fn what_is_about_to_break_moves_by_pages_where_there_is_no_block() {
    let sim = sim(2, 16);
    let mm = manager(&sim, only(9));
    let id = written(&sim, &*mm, 512);
    let bad = frame(&mm, id, va(100));
    let mut held = all_of(&mm);
    let none = mm.retire(bad, Damage::Foreseen);
    assert!(matches!(none, Err(NotRetired::NoBlock(_))), "{none:?}");
    assert_eq!(none.unwrap_err().to_string(), "no free block of 4k");
    check(&sim, &mm, id, 0..512);
    mm.take_back(held.pop().unwrap(), Order::BASE).unwrap();
    let moved = mm.retire(bad, Damage::Foreseen);
    assert!(matches!(moved, Ok(Retired::Moved(_))), "{moved:?}");
    check(&sim, &mm, id, 0..512);
    held.into_iter().for_each(|block| mm.take_back(block, Order::BASE).unwrap());
}

#[test]
fn nobody_has_what_is_free_and_no_program_what_is_the_kernels() {
    let sim = sim(2, 16);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let block = mm.lend(Order::BASE).unwrap();
    for damage in [Damage::Done, Damage::Foreseen] {
        assert_eq!(mm.retire(block, damage), Err(NotRetired::NoFolio(block)));
        let outside = Frame::new(u64::MAX >> 12);
        assert_eq!(mm.retire(outside, damage), Err(NotRetired::NoFolio(outside)));
    }
    mm.take_back(block, Order::BASE).unwrap();
    assert_eq!(mm.retire(block, Damage::Foreseen), Ok(Retired::Free));
    assert_eq!(mm.total(Event::Retired), 1);
    let held = all_of(&mm);
    assert!(!held.contains(&block), "nobody gets it");
    held.into_iter().for_each(|block| mm.take_back(block, Order::BASE).unwrap());
}

/// What is pinned stays as it is, and may be retired when it is let go.
#[test]
fn what_is_pinned_stays() {
    let sim = sim(2, 16);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = written(&sim, &*mm, 2);
    let [kept, anchored] = [0, 1].map(|nth| frame(&mm, id, va(nth)));
    let reference = mm.reference(kept).unwrap();
    let anchor = mm.anchor(id, row(1, 1), Access::Write).unwrap();
    for frame in [kept, anchored] {
        assert_eq!(mm.retire(frame, Damage::Foreseen), Err(NotRetired::Pinned(frame)));
    }
    check(&sim, &mm, id, 0..2);
    for frame in [kept, anchored] {
        assert_eq!(mm.retire(frame, Damage::Done), Err(NotRetired::Pinned(frame)));
    }
    check(&sim, &mm, id, 0..2);
    assert_eq!((mm.total(Event::Retired), mm.fork(id).is_ok()), (0, true));
    drop((reference, anchor));
    [kept, anchored].into_iter().for_each(|frame| lose(&mm, frame));
    assert_eq!(both(&mm, id, va(1)), [broken(va(1)); 2]);
    assert_eq!(mm.total(Event::Retired), 2);
    // One that only a reference keeps.
    let id = written(&sim, &*mm, 1);
    let kept = frame(&mm, id, va(0));
    let reference = mm.reference(kept).unwrap();
    mm.unmap(id, row(0, 1)).unwrap();
    assert_eq!(mm.retire(kept, Damage::Done), Err(NotRetired::Pinned(kept)));
    drop(reference);
    assert_eq!(mm.retire(kept, Damage::Done), Ok(Retired::Free));
}

fn pooled<P: Paging>(format: Format, replace: Option<Replace>) {
    let sim = sim_by(format, replace);
    let (mm, id) = filled::<P>(&sim, 8);
    map(&mm, id, 0, 3, HUGE);
    let place = |nth| Va::new(at(nth));
    (0..2).for_each(|nth| _ = store(&sim, &mm, id, at(nth), 7 + nth));
    shown(&mm, (8, 6, 1, 0));
    let child = mm.fork(id).unwrap();
    let moved = mm.remap(child, places(0, 1), Bytes::new(SIZE_2M), Move::To(place(20)));
    assert_eq!(moved, Ok(places(20, 1)));
    let bad = frame(&mm, id, place(0));
    lose(&mm, bad.add(Pages::new(77)));
    assert_eq!(mapped(&mm, &[id, child], bad), 0);
    assert_eq!(both(&mm, id, place(0)), [broken(place(0)); 2]);
    assert_eq!(both(&mm, child, place(20)), [broken(place(20)); 2]);
    assert_eq!(load(&sim, &mm, id, at(1)), 8);
    // The pool is smaller by it, and no reservation came back: that of the place was used.
    shown(&mm, (7, 6, 1, 0));
    assert_eq!(mm.pool(SIZE).unwrap().broken, 1);
    mm.end(child).unwrap();
    mm.advise(id, places(0, 1), Advice::DontNeed).unwrap();
    assert_eq!(store(&sim, &mm, id, at(0), 1), [Outcome::Mapped(SIZE)]);
    shown(&mm, (7, 5, 1, 0));
    lose(&mm, frame(&mm, id, place(0)));
    mm.unmap(id, places(0, 3)).unwrap();
    shown(&mm, (6, 6, 0, 0));
    // A free one is the pool's to lose, or to give up.
    map(&mm, id, 0, 1, HUGE);
    store(&sim, &mm, id, at(0), 1);
    let free = frame(&mm, id, place(0));
    mm.unmap(id, places(0, 1)).unwrap();
    lose(&mm, free);
    shown(&mm, (5, 5, 0, 0));
    map(&mm, id, 0, 1, HUGE);
    store(&sim, &mm, id, at(0), 1);
    let free = frame(&mm, id, place(0));
    mm.unmap(id, places(0, 1)).unwrap();
    assert_eq!(mm.retire(free, Damage::Foreseen), Ok(Retired::Free));
    shown(&mm, (4, 4, 0, 0));
    mm.audit(&[id]).unwrap();
}

#[test]
fn a_huge_page_is_lost_whole_and_its_pool_is_smaller() {
    on_every_format!(pooled);
}

/// As many anchors as a page may have keep it in memory, and not in the tables.
#[test]
fn a_huge_page_is_lost_however_many_keep_it() {
    let sim = sim(2, 16);
    let (mm, id) = filled::<X86_64<4>>(&sim, 2);
    map(&mm, id, 0, 1, HUGE);
    store(&sim, &mm, id, at(0), 7);
    let bad = frame(&mm, id, Va::new(at(0)));
    let anchors: Vec<_> =
        core::iter::from_fn(|| mm.anchor(id, places(0, 1), Access::Write).ok()).collect();
    assert!(anchors.len() > 1000);
    lose(&mm, bad);
    assert_eq!(mapped(&mm, &[id], bad), 0);
    assert_eq!(both(&mm, id, Va::new(at(0))), [broken(Va::new(at(0))); 2]);
    drop(anchors);
    shown(&mm, (1, 1, 0, 0));
}

/// All frames of a block that are not free.
fn used<P: Paging>(mm: &AnyMm<'_, P>, frame: Frame, order: Order) -> Vec<Frame> {
    let head = order.head(frame);
    let frames = (0..order.pages().get()).map(|nth| head.add(Pages::new(nth)));
    frames.filter(|frame| mm.folios().state(*frame) != FrameState::Free).collect()
}

fn apart<P: Paging>(format: Format, replace: Option<Replace>) {
    for folding in [Folding::Off, Folding::On] {
        let sim = sim_by(format, replace);
        let (mm, id) = filled::<P>(&sim, 0);
        mm.set_folding(folding);
        mm.resize_pool(SIZE, 8, Budget::ALL).unwrap();
        map(&mm, id, 0, 4, HUGE);
        (0..4).for_each(|nth| _ = store(&sim, &mm, id, at(nth), 7 + nth));
        let bad =
            [0, 1, 2, 3].map(|nth| frame(&mm, id, Va::new(at(nth))).add(Pages::new(100 * nth)));
        // Its descriptors may lie in what is free then.
        let left = |frame| {
            let used = used(&mm, frame, SIZE);
            assert!(used.contains(&frame));
            used.len()
        };
        lose(&mm, bad[0]);
        assert!(left(bad[0]) <= 9, "{folding:?}: {}", left(bad[0]));
        assert_eq!(mm.retire(bad[0], ALL), Ok(Retired::Lost), "once");
        assert_eq!(mm.total(Event::Retired), 1);
        // Of one of which more is broken all is lost, and so is what was marked and not retired.
        mm.poison(bad[1].add(Pages::new(1)));
        lose(&mm, bad[1]);
        assert_eq!((left(bad[1]), mm.pool(SIZE).unwrap().broken), (512, 2));
        mm.poison(bad[2]);
        mm.unmap(id, places(2, 1)).unwrap();
        assert_eq!(left(bad[2]), 512);
        lose(&mm, bad[3]);
        assert!(left(bad[2]) <= 9 && left(bad[3]) <= 9, "the next that is retired");
        shown(&mm, (4, 4, 0, 0));
        mm.audit(&[id]).unwrap();
        let held: Vec<Frame> = core::iter::from_fn(|| mm.lend(Order::BASE).ok()).collect();
        assert!(bad.iter().all(|bad| !held.contains(bad)), "nobody gets it");
        held.into_iter().for_each(|block| mm.take_back(block, Order::BASE).unwrap());
    }
}

#[test]
fn of_a_huge_page_one_frame_stays_lost() {
    on_every_format!(apart);
}

#[test]
fn of_a_gigabyte_one_frame_stays_lost() {
    let sim = Sim::new(Config::seeded(2, Bytes::new(3 << 30), 7)).unwrap();
    let (mm, id) = filled::<X86_64<4>>(&sim, 0);
    mm.resize_pool(Order::SIZE_1G, 1, Budget::ALL).unwrap();
    let flags = Flags::READ_WRITE.with(Flags::HUGE_1G);
    let place = Place::NoReplace(Va::new(GB));
    mm.map(id, &MapRequest { place, bytes: Bytes::new(GB), flags, tag: 0 }).unwrap();
    assert_eq!(mm.fault(id, Va::new(GB), Access::Write), Outcome::Mapped(Order::SIZE_1G));
    let bad = frame(&mm, id, Va::new(GB)).add(Pages::new(123_456));
    lose(&mm, bad);
    assert_eq!(both(&mm, id, Va::new(GB + 5 * PAGE)), [broken(Va::new(GB + 5 * PAGE)); 2]);
    let used = used(&mm, bad, Order::SIZE_1G);
    assert!(used.contains(&bad) && used.len() <= 9, "{}", used.len());
    mm.audit(&[id]).unwrap();
}

#[test]
fn an_object_of_huge_pages_keeps_what_is_lost() {
    let sim = sim(2, 64);
    let (mm, id) = filled::<X86_64<4>>(&sim, 8);
    let other = mm.create(None).unwrap();
    let of = object(&mm, 512 * 3, Flags::HUGE_2M);
    for (space, nth, flags) in [(id, 0, SHARED), (id, 10, PRIVATE), (other, 0, SHARED)] {
        show(&mm, space, at(nth), 3 * SIZE_2M, (of, flags));
    }
    let place = |nth| Va::new(at(nth));
    (0..3).for_each(|nth| _ = store(&sim, &mm, id, at(nth), 7 + nth));
    load(&sim, &mm, id, at(10));
    assert_eq!(store(&sim, &mm, id, at(11), 9).last(), Some(&Outcome::Copied));
    mm.fault(other, place(0), Access::Read);
    shown(&mm, (8, 4, 2, 0));
    let bad = frame(&mm, id, place(0)).add(Pages::new(77));
    lose(&mm, bad);
    assert_eq!(mapped(&mm, &[id, other], bad), 0);
    for (space, nth) in [(id, 0), (id, 10), (other, 0)] {
        assert_eq!(both(&mm, space, place(nth)), [broken(place(nth)); 2], "{nth}");
    }
    // Of the object's page the rest is read, as long as it is known which frame broke.
    let read = |nth| mm.object_page(of, Pages::new(nth), Access::Read).map(|_| ());
    assert_eq!([read(76), read(77), read(78)], [Ok(()), Err(NoPage::Broken(bad)), Ok(())]);
    mm.poison(bad.add(Pages::new(1)));
    assert_eq!(read(500), Err(NoPage::Broken(bad.add(Pages::new(500 - 77)))));
    // The object has the page, and the private area what was reserved for its copy.
    shown(&mm, (8, 4, 2, 0));
    assert_eq!(mm.object_pages(of), Some(huge(3)));
    lose(&mm, frame(&mm, id, place(1)));
    assert_eq!(load(&sim, &mm, id, at(11)), 9, "a copy is not the page");
    lose(&mm, frame(&mm, id, place(11)));
    assert_eq!(both(&mm, id, place(11)), [broken(place(11)); 2]);
    shown(&mm, (7, 4, 2, 0));
    assert_eq!(load(&sim, &mm, id, at(2)), 9);
    mm.audit(&[id, other]).unwrap();
    mm.punch_object(of, huge(0), huge(1)).unwrap();
    mm.unmap(id, places(10, 3)).unwrap();
    shown(&mm, (6, 4, 0, 0));
}

/// Whatever is done at the same time: nobody maps what was lost, and nothing else is lost.
#[test]
fn memory_is_lost_beside_other_operations() {
    type Other = fn(&Mm<'_>, SpaceId, SpaceId);
    let others: [(&str, Other); 12] = [
        ("write", |mm, id, _| _ = mm.fault(id, va(1), Access::Write)),
        ("write by the child", |mm, _, child| _ = mm.fault(child, va(1), Access::Write)),
        ("fork", |mm, id, _| _ = mm.fork(id).unwrap()),
        ("unmap", |mm, id, _| mm.unmap(id, row(0, 4)).unwrap()),
        ("drop", |mm, id, _| mm.advise(id, row(1, 1), Advice::DontNeed).unwrap()),
        ("move", |mm, id, _| {
            mm.remap(id, row(0, 4), Bytes::new(4 * PAGE), Move::To(va(600))).unwrap();
        }),
        ("protect", |mm, id, _| mm.protect(id, row(0, 512), Flags::READ).unwrap()),
        ("split", |mm, id, _| _ = mm.split(id, va(0), SplitInto::BASE)),
        ("collapse", |mm, id, _| _ = mm.collapse(id, va(0), order(4), CollapseLimits::NONE)),
        ("end", |mm, _, child| mm.end(child).unwrap()),
        ("leave", |mm, id, _| {
            if let Some(frame) = mm.frame_at(id, va(1)) {
                _ = mm.retire(frame, Damage::Foreseen);
            }
        }),
        ("retire", |mm, id, _| {
            if let Some(frame) = mm.frame_at(id, va(1)) {
                let done = mm.retire(frame, Damage::Done);
                assert!(!matches!(done, Err(NotRetired::Reserved(_))), "{done:?}");
            }
        }),
    ];
    for policy in [Policy::BASE_ONLY, only(4)] {
        for (name, act) in others {
            for damage in [Damage::Done, Damage::Foreseen] {
                let is_first = policy == Policy::BASE_ONLY && damage == Damage::Done;
                let stride = match name {
                    _ if is_first => 1,
                    "leave" => 3,
                    _ => 5,
                };
                for step in (1..).step_by(stride) {
                    let beside = Beside::new(sim(2, 16));
                    let mm = beside.manager(policy);
                    beside.sim.on(cpu(1), || mm.online());
                    let id = written(&beside.sim, &*mm, 16);
                    let child = mm.fork(id).unwrap();
                    mm.fault(child, va(2), Access::Write);
                    let bad = frame(&mm, id, va(1));
                    let retire = || mm.retire(bad, damage);
                    let Some(done) = beside.before_step(step, || act(&mm, id, child), retire)
                    else {
                        assert!(step > 20, "{name}");
                        break;
                    };
                    let spaces: Vec<SpaceId> = mm.spaces().collect();
                    let what = format!("{name}, {damage:?}, step {step}: {done:?}");
                    match done {
                        Ok(_) => assert_eq!(mapped(&mm, &spaces, bad), 0, "{what}"),
                        // Of two that try at once one sees what the other has in hand.
                        Err(_) if matches!(name, "retire" | "leave") => {}
                        Err(_) => panic!("{what}"),
                    }
                    // A piece does not move once it is lost (W1): what moved did so as a whole.
                    if let (true, Some(page)) = (name == "leave", mm.frame_at(id, va(1))) {
                        let whole = if policy == only(4) { order(4) } else { Order::BASE };
                        assert_eq!(mm.identity(page).order(), whole, "{what}");
                    }
                    mm.audit(&spaces).unwrap_or_else(|why| panic!("{what}: {why:?}"));
                    mm.switch(Some(id)).unwrap();
                    for nth in
                        [0, 3, 15].into_iter().filter(|nth| mm.frame_at(id, va(*nth)).is_some())
                    {
                        let word = beside.sim.user_load(va(nth), 8);
                        assert_eq!(word, Ok(1000 + nth), "{what}, page {nth}");
                    }
                }
            }
        }
    }
}

/// A copy of one page of a folio is made while the folio is split because another one is lost, or
/// while it moves because this one is about to break.
#[test]
fn finding_cn_the_mark_of_another_piece_refuses_nothing() {
    for (page, damage) in [(0, Damage::Done), (0, Damage::Foreseen), (5, Damage::Foreseen)] {
        for step in 1.. {
            let beside = Beside::new(sim(2, 16));
            let mm = beside.manager(only(4));
            beside.sim.on(cpu(1), || mm.online());
            let id = written(&beside.sim, &*mm, 16);
            let child = mm.fork(id).unwrap();
            let bad = frame(&mm, id, va(page));
            let retire = || _ = mm.retire(bad, damage).unwrap();
            let write = || mm.fault(child, va(5), Access::Write);
            let Some(done) = beside.before_step(step, retire, write) else {
                assert!(step > 20, "{step}");
                break;
            };
            assert_eq!(done, Outcome::Copied, "{page}, {damage:?}, step {step}");
        }
    }
}

/// Once a folio is split because a page of it is lost, nobody copies that page: its entries come
/// back one space after the other, and a write in the first one had a copy before the last was
/// there.
#[test]
fn finding_co_a_piece_that_is_lost_is_not_copied_from() {
    for of_child in [false, true] {
        for step in 1.. {
            let beside = Beside::new(sim(2, 16));
            let mm = beside.manager(only(4));
            beside.sim.on(cpu(1), || mm.online());
            let id = written(&beside.sim, &*mm, 16);
            let child = mm.fork(id).unwrap();
            let bad = frame(&mm, id, va(1));
            let write = || {
                let is_whole = mm.identity(bad).order() == order(4);
                let done = mm.fault(if of_child { child } else { id }, va(1), Access::Write);
                assert!(is_whole || done == broken(va(1)), "step {step}: {done:?}");
            };
            let lose = || assert_eq!(mm.retire(bad, ALL), Ok(Retired::Lost));
            if beside.before_step(step, write, lose).is_none() {
                assert!(step > 20);
                break;
            }
        }
    }
}

/// What nothing maps of a folio does not go back between the split and the end of the page.
#[test]
fn what_is_lost_is_given_to_nobody_first() {
    let (sim, free) = (sim(2, 16), Pages::new(3));
    let mm = manager(&sim, only(4));
    let id = written(&sim, &*mm, 16);
    let bad = frame(&mm, id, va(3));
    mm.unmap(id, row(2, 4)).unwrap();
    let before = mm.memory().free;
    lose(&mm, bad);
    assert_eq!(mm.memory().free.get(), before.get() + free.get(), "those beside it do");
    check(&sim, &mm, id, [0, 1, 6, 15].into_iter());
    assert_eq!(mm.total(Event::Retired), 1);
}

/// The same for huge pages: what is taken, copied or moved just then is lost too.
#[test]
fn huge_pages_are_lost_beside_other_operations() {
    type Other = fn(&Mm<'_>, SpaceId, SpaceId);
    const TO: Move = Move::To(Va::new(BASE + 20 * SIZE_2M));
    // Most of the steps of the last two are alike.
    let others: [(&str, Other, usize); 8] = [
        ("first touch", |mm, id, _| _ = mm.fault(id, Va::new(at(2)), Access::Write), 1),
        ("write", |mm, id, _| _ = mm.fault(id, Va::new(at(0)), Access::Write), 1),
        (
            "write by the child",
            |mm, _, child| _ = mm.fault(child, Va::new(at(0)), Access::Write),
            1,
        ),
        ("unmap", |mm, id, _| mm.unmap(id, places(0, 2)).unwrap(), 1),
        ("move", |mm, id, _| _ = mm.remap(id, places(0, 1), Bytes::new(SIZE_2M), TO).unwrap(), 1),
        ("shared", |mm, id, _| _ = mm.fault(id, Va::new(at(30)), Access::Write), 1),
        ("fork", |mm, id, _| _ = mm.fork(id).unwrap(), 7),
        ("end", |mm, _, child| mm.end(child).unwrap(), 31),
    ];
    for (name, act, stride) in others {
        for which in 0..2 {
            let mut met = 0;
            for step in (1..).step_by(stride) {
                let beside = Beside::new(sim(2, 24));
                let mm = beside.manager(Policy::BASE_ONLY);
                beside.sim.on(cpu(1), || mm.online());
                mm.resize_pool(SIZE, 6, Budget::ALL).unwrap();
                let id = mm.create(None).unwrap();
                map(&mm, id, 0, 3, HUGE);
                (0..2).for_each(|nth| _ = mm.fault(id, Va::new(at(nth)), Access::Write));
                let of = object(&mm, 512, Flags::HUGE_2M);
                let [other] = [(); 1].map(|()| mm.create(None).unwrap());
                for space in [id, other] {
                    show(&mm, space, at(30), SIZE_2M, (of, SHARED));
                }
                mm.fault(other, Va::new(at(30)), Access::Write);
                let child = mm.fork(id).unwrap();
                // The page that is there, or the one that comes.
                let bad = match (which, name) {
                    (0, "shared") => frame(&mm, other, Va::new(at(30))),
                    (0, _) => frame(&mm, id, Va::new(at(0))),
                    _ => {
                        let next = mm.fork(id).unwrap();
                        mm.fault(next, Va::new(at(1)), Access::Write);
                        let next_page = frame(&mm, next, Va::new(at(1)));
                        mm.end(next).unwrap();
                        next_page
                    }
                };
                let retire = || mm.retire(bad, Damage::Done);
                let Some(done) =
                    beside.before_step(step, retire_of(&retire), || act(&mm, id, child))
                else {
                    assert!(step > 4, "{name}");
                    break;
                };
                met += 1;
                let () = done;
                let spaces: Vec<SpaceId> = mm.spaces().collect();
                let what = format!("{name}, {which}, step {step}");
                assert_eq!(mapped(&mm, &spaces, bad), 0, "{what}");
                mm.audit(&spaces).unwrap_or_else(|why| panic!("{what}: {why:?}"));
            }
            assert!(met > 4, "{name}");
        }
    }
}
fn retire_of<'a>(
    retire: &'a (impl Fn() -> Result<Retired, NotRetired> + Sync),
) -> impl FnOnce() + Send + 'a {
    move || assert_eq!(retire(), Ok(Retired::Lost))
}
