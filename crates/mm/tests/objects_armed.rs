//! Armed memory of objects: which missing pages are told, what a handler puts there and who sees
//! it, and what is watched while pages leave the object and come back.

use crate::common::beside::Beside;
use crate::common::*;
use foliant::fault::{FillError, FillWith, Refusal, Unfilled};
use foliant::manager::CollapseLimits;
use foliant::object::ObjectRequest;
use foliant::space::{Advice, Flags, Move, ObjectId, Place, RangeError, SpaceId, Watch};
use foliant::split::SplitInto;
use foliant::table::{Attrs, Entry, Paging};
use foliant::{Access, Event, Outcome, Policy};
use foliant_sim::{Failing, Sim};
use foliant_units::{Bytes, Level, Order, Pages, Va};
use std::sync::Mutex;

type Page = [u8; PAGE as usize];

const SHARED: Flags = Flags::READ_WRITE.with(Flags::SHARED);
const PRIVATE: Flags = Flags::READ_WRITE;
/// Where the private area is, in pages behind `BASE`.
const OWN: u64 = 64;
/// Pages of the object.
const ROOM: u64 = 16;

const SEVEN: &[Page] = &[[7; PAGE as usize]];
const ONES: &[Page] = &[[1; PAGE as usize]];
const SEVENS: u64 = u64::from_ne_bytes([7; 8]);

fn at(nth: u64) -> u64 {
    BASE + nth * PAGE
}
fn missing(nth: u64) -> Outcome {
    Outcome::Userfault(Va::new(at(nth)))
}
fn told(nth: u64) -> Outcome {
    Outcome::UserfaultWrite(Va::new(at(nth)))
}
fn fault(mm: &AnyMm<'_, impl Paging>, id: SpaceId, nth: u64, access: Access) -> Outcome {
    mm.fault(id, Va::new(at(nth)), access)
}
fn fill(
    mm: &AnyMm<'_, impl Paging>,
    id: SpaceId,
    nth: u64,
    with: FillWith<'_>,
) -> Result<(), FillError> {
    mm.fill(id, Va::new(at(nth)), with).map_err(|Unfilled { why, .. }| why)
}
fn copy(mm: &AnyMm<'_, impl Paging>, id: SpaceId, nth: u64) -> Result<(), FillError> {
    fill(mm, id, nth, FillWith::Copy(SEVEN))
}
fn zeros(mm: &AnyMm<'_, impl Paging>, id: SpaceId, nth: u64) -> Result<(), FillError> {
    fill(mm, id, nth, FillWith::Zeros(Pages::new(1)))
}
fn present(nth: u64) -> Result<(), FillError> {
    Err(FillError::Present(Va::new(at(nth))))
}
/// What the kernel reads of a page of an object, if that has it.
fn peek(mm: &AnyMm<'_, impl Paging>, of: ObjectId, page: u64) -> Option<u64> {
    let kept = mm.object_page(of, Pages::new(page), Access::Read).unwrap()?;
    let mut word = [0; 8];
    kept.read(Bytes::new(0), &mut word);
    Some(u64::from_ne_bytes(word))
}
fn poke(mm: &AnyMm<'_, impl Paging>, of: ObjectId, page: u64, value: u64) {
    let kept = mm.object_page(of, Pages::new(page), Access::Write).unwrap().expect("it is made");
    kept.write(Bytes::new(0), &value.to_ne_bytes());
}
fn map(mm: &AnyMm<'_, impl Paging>, id: SpaceId, nth: u64, of: ObjectId, flags: Flags) {
    let asked = request(Place::Fixed(Va::new(at(nth))), ROOM * PAGE, flags);
    mm.map_object(id, &asked, (of, Pages::new(0))).unwrap();
}
/// An object, a space that this CPU runs and that maps it shared at 0 and privately at [`OWN`],
/// both armed, and another that maps it shared and is not.
fn armed(mm: &AnyMm<'_, impl Paging>, advice: Advice) -> (ObjectId, SpaceId, SpaceId) {
    let pages = Pages::new(ROOM);
    let of = mm.create_object(&ObjectRequest { pages, ..Default::default() }).unwrap();
    let [id, other] = [(); 2].map(|()| mm.create(None).unwrap());
    map(mm, id, 0, of, SHARED);
    map(mm, id, OWN, of, PRIVATE);
    map(mm, other, 0, of, SHARED);
    [0, OWN].into_iter().for_each(|first| mm.advise(id, row(first, ROOM), advice).unwrap());
    mm.switch(Some(id)).unwrap();
    (of, id, other)
}
/// Does something as the other space.
fn by<R>(mm: &AnyMm<'_, impl Paging>, id: SpaceId, back: SpaceId, act: impl FnOnce() -> R) -> R {
    mm.switch(Some(id)).unwrap();
    let done = act();
    mm.switch(Some(back)).unwrap();
    done
}
/// What the entry of a page says: that it is watched, that it may be written to.
fn says(mm: &AnyMm<'_, impl Paging>, id: SpaceId, nth: u64) -> Option<(bool, bool)> {
    mm.with_leaves(id, page(nth), |mut leaves| match leaves.next()?.entry {
        Entry::Leaf { attrs, .. } => Some((attrs.has(Attrs::UFFD_WP), attrs.has(Attrs::WRITE))),
        _ => None,
    })
    .unwrap()
}

#[test]
fn what_an_object_has_not_is_told_and_what_it_has_is_mapped() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    mm.set_object_policy(only(2));
    let (of, id, other) = armed(&mm, Advice::UserfaultArm);
    for first in [0, OWN] {
        for access in [Access::Read, Access::Write] {
            assert_eq!(fault(&mm, id, first + 5, access), missing(first + 5));
        }
    }
    // Others bring it, in a folio of four; one page is mapped of it.
    by(&mm, other, id, || {
        assert_eq!(store(&sim, &mm, other, at(5), 1), [Outcome::Mapped(order(2))])
    });
    assert_eq!(fault(&mm, id, 5, Access::Write), Outcome::Mapped(Order::BASE));
    assert_eq!(mm.pages(id), Some(Pages::new(1)));
    assert_eq!(load(&sim, &mm, id, at(OWN + 4)), 0, "what is around comes with a read");
    assert_eq!(store(&sim, &mm, id, at(OWN + 5), 9), [Outcome::Copied]);
    assert_eq!([5, OWN + 5].map(|nth| load(&sim, &mm, id, at(nth))), [1, 9]);
    assert_eq!(peek(&mm, of, 8), None);
    // What is beyond is refused.
    mm.resize_object(of, Pages::new(12)).unwrap();
    for nth in [12, OWN + 12] {
        let beyond = Va::new(at(nth));
        assert_eq!(fault(&mm, id, nth, Access::Write), Outcome::Refused(Refusal::Beyond(beyond)));
        assert_eq!([copy(&mm, id, nth), zeros(&mm, id, nth)], [Err(FillError::Beyond(beyond)); 2]);
    }
    // Disarmed: as ever.
    mm.advise(id, row(0, ROOM), Advice::UserfaultDisarm).unwrap();
    assert_eq!(store(&sim, &mm, id, at(8), 3), [Outcome::Mapped(order(2))]);
}

#[test]
fn a_read_that_is_told_brings_what_is_around() {
    for (advice, brings) in [(Advice::UserfaultArm, true), (Advice::UserfaultWriteArm, false)] {
        let sim = sim(1, 64);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let (of, id, _) = armed(&mm, Advice::UserfaultArm);
        mm.advise(id, row(0, ROOM), advice).unwrap();
        mm.advise(id, row(OWN, ROOM), advice).unwrap();
        [3, 6].into_iter().for_each(|page| poke(&mm, of, page, 9));
        for first in [0, OWN] {
            assert_eq!(fault(&mm, id, first + 5, Access::Write), missing(first + 5));
            assert_eq!(says(&mm, id, first + 6), None, "a write brings its page alone");
            assert_eq!(fault(&mm, id, first + 5, Access::Read), missing(first + 5));
            for page in [3, 6] {
                assert_eq!(says(&mm, id, first + page).is_some(), brings, "page {page}");
            }
            assert_eq!(says(&mm, id, first + 5), None, "it is still missing");
        }
        mm.audit(&[id]).unwrap();
    }
}

#[test]
fn what_a_handler_fills_is_the_objects_where_it_is_shared() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let (of, id, other) = armed(&mm, Advice::UserfaultArm);
    let copied = mm.total(Event::CopiedBytes);
    assert_eq!(copy(&mm, id, 3), Ok(()));
    assert_eq!(mm.total(Event::CopiedBytes) - copied, PAGE, "once");
    assert_eq!(zeros(&mm, id, 4), Ok(()));
    assert_eq!(mm.object_pages(of), Some(Pages::new(2)));
    assert_eq!([3, 4].map(|nth| says(&mm, id, nth)), [Some((false, true)); 2]);
    assert_eq!(store(&sim, &mm, id, at(4), 5), []);
    by(&mm, other, id, || {
        assert_eq!([3, 4].map(|nth| load(&sim, &mm, other, at(nth))), [SEVENS, 5]);
    });
    assert_eq!([3, 4].map(|page| peek(&mm, of, page)), [Some(SEVENS), Some(5)]);
    // What the object has is there, mapped or not.
    poke(&mm, of, 9, 1);
    for nth in [3, 9] {
        assert_eq!([copy(&mm, id, nth), zeros(&mm, id, nth)], [present(nth); 2]);
    }
    assert_eq!(load(&sim, &mm, id, at(9)), 1);
    // Privately it is the program's own, whatever the object has.
    assert_eq!([copy(&mm, id, OWN + 9), zeros(&mm, id, OWN + 10)], [Ok(()); 2]);
    assert_eq!([9, 10].map(|nth| load(&sim, &mm, id, at(OWN + nth))), [SEVENS, 0]);
    assert_eq!(store(&sim, &mm, id, at(OWN + 10), 2), [Outcome::Mapped(Order::BASE)]);
    assert_eq!([9, 10].map(|page| peek(&mm, of, page)), [Some(1), None]);
    assert_eq!(copy(&mm, id, OWN + 9), present(OWN + 9));
    // Copies outlive a hole, and go with what is cut off.
    mm.punch_object(of, Pages::new(0), Pages::new(ROOM)).unwrap();
    assert_eq!([9, 10].map(|nth| load(&sim, &mm, id, at(OWN + nth))), [SEVENS, 2]);
    assert_eq!(fault(&mm, id, 3, Access::Read), missing(3));
    mm.resize_object(of, Pages::new(9)).unwrap();
    mm.resize_object(of, Pages::new(ROOM)).unwrap();
    assert_eq!(fault(&mm, id, OWN + 9, Access::Read), missing(OWN + 9));
    // Nobody else is filled for.
    let unarmed = Err(FillError::Unarmed(Va::new(at(3))));
    assert_eq!([copy(&mm, other, 3), zeros(&mm, other, 3)], [unarmed; 2]);
    assert_eq!(fill(&mm, id, 3, FillWith::Watched(SEVEN)), unarmed, "not armed for writes");
}

#[test]
fn writes_to_an_object_are_told_whatever_leaves_it_and_comes_back() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    mm.set_object_policy(only(2));
    let (of, id, other) = armed(&mm, Advice::UserfaultWriteArm);
    (0..4).for_each(|nth| drop(store(&sim, &mm, id, at(nth), nth)));
    assert_eq!(load(&sim, &mm, id, at(OWN + 1)), 1);
    assert_eq!(says(&mm, id, 2), Some((false, true)));
    assert_eq!(says(&mm, id, OWN + 2), None, "nothing comes around it");
    assert_eq!(store(&sim, &mm, id, at(OWN + 2), 22), [Outcome::Copied]);
    [0, OWN].into_iter().for_each(|first| mm.watch(id, row(first, 8), Watch::All).unwrap());
    let is_told = |nth: u64, value: u64| {
        assert_eq!(load(&sim, &mm, id, at(nth)), value, "page {nth}");
        assert_eq!(says(&mm, id, nth), Some((true, false)), "page {nth}");
        assert_eq!(store(&sim, &mm, id, at(nth), 99), [told(nth)], "page {nth}");
    };
    is_told(1, 1);
    is_told(OWN + 1, 1);
    is_told(OWN + 2, 22);
    // A missing page: told before it comes, and when it came by a read.
    for nth in [6, OWN + 6] {
        assert_eq!(fault(&mm, id, nth, Access::Write), told(nth));
        is_told(nth, 0);
    }
    // Others write.
    by(&mm, other, id, || drop(store(&sim, &mm, other, at(1), 11)));
    [1, OWN + 1].into_iter().for_each(|nth| is_told(nth, 11));
    // What is dropped, punched, made one folio, split or moved.
    mm.advise(id, row(0, 8), Advice::DontNeed).unwrap();
    mm.advise(id, row(OWN, 8), Advice::DontNeed).unwrap();
    assert_eq!(fault(&mm, id, 2, Access::Write), told(2));
    for (nth, value) in [(1, 11), (OWN + 1, 11), (OWN + 2, 2)] {
        is_told(nth, value);
    }
    mm.punch_object(of, Pages::new(0), Pages::new(2)).unwrap();
    [1, OWN + 1].into_iter().for_each(|nth| is_told(nth, 0));
    mm.resize_object(of, Pages::new(1)).unwrap();
    mm.resize_object(of, Pages::new(ROOM)).unwrap();
    assert_eq!(fault(&mm, id, OWN + 2, Access::Write), told(OWN + 2));
    [2, OWN + 2].into_iter().for_each(|nth| is_told(nth, 0));
    (0..4).for_each(|page| poke(&mm, of, page, 40 + page));
    is_told(3, 43);
    let _ = mm.collapse_object(of, Pages::new(0), order(2), CollapseLimits::NONE);
    is_told(3, 43);
    let _ = mm.split(id, Va::new(at(3)), SplitInto::BASE);
    mm.relocate(mm.frame_at(id, Va::new(at(3))).unwrap()).unwrap();
    assert_eq!(fault(&mm, id, 2, Access::Write), told(2));
    is_told(3, 43);
    // A child's are not.
    let child = mm.fork(id).unwrap();
    by(&mm, child, id, || {
        assert_eq!(store(&sim, &mm, child, at(3), 53).len(), 1);
        assert_eq!(store(&sim, &mm, child, at(OWN + 1), 5), [Outcome::Copied]);
    });
    mm.end(child).unwrap();
    is_told(3, 53);
    // Filled: watched from the start, or not any more.
    mm.advise(id, row(0, 8), Advice::UserfaultArm).unwrap();
    mm.punch_object(of, Pages::new(0), Pages::new(8)).unwrap();
    assert_eq!(fault(&mm, id, 5, Access::Write), missing(5), "as missing, though it is watched");
    assert_eq!(fill(&mm, id, 5, FillWith::Watched(SEVEN)), Ok(()));
    is_told(5, SEVENS);
    assert_eq!(zeros(&mm, id, 4), Ok(()));
    assert_eq!(says(&mm, id, 4), Some((false, true)));
    // Lifted, and mapped anew.
    mm.watch(id, row(0, 8), Watch::Nothing).unwrap();
    assert_eq!(store(&sim, &mm, id, at(5), 3), []);
    mm.watch(id, row(OWN, 8), Watch::Nothing).unwrap();
    assert_eq!(store(&sim, &mm, id, at(OWN + 6), 3), [Outcome::Copied]);
    mm.watch(id, row(0, 8), Watch::All).unwrap();
    let to = Va::new(BASE + (1 << 30));
    mm.remap(id, row(0, 4), Bytes::new(4 * PAGE), Move::To(to)).unwrap();
    assert!(matches!(mm.fault(id, to, Access::Write), Outcome::Mapped(_)), "no marker");
    map(&mm, id, 0, of, SHARED);
    assert!(matches!(fault(&mm, id, 6, Access::Write), Outcome::Mapped(_)), "no marker");
}

/// Leaves of 2 MiB of an object: watched in part they are split, and each page stays watched where
/// the object loses it.
#[test]
fn a_large_leaf_of_an_object_is_watched() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    mm.set_object_policy(only(9));
    let pages = Pages::new(1024);
    let of = mm.create_object(&ObjectRequest { pages, ..Default::default() }).unwrap();
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    let asked = request(Place::Fixed(Va::new(BASE)), 2 * SIZE_2M, SHARED);
    mm.map_object(id, &asked, (of, Pages::new(0))).unwrap();
    for nth in [0, 512] {
        assert_eq!(store(&sim, &mm, id, at(nth), 1), [Outcome::Mapped(order(9))]);
    }
    mm.advise(id, row(0, 1024), Advice::UserfaultWriteArm).unwrap();
    mm.watch(id, row(0, 600), Watch::All).unwrap();
    for nth in [0, 511, 599] {
        assert_eq!(store(&sim, &mm, id, at(nth), 9), [told(nth)]);
    }
    store(&sim, &mm, id, at(600), 9);
    mm.punch_object(of, Pages::new(0), pages).unwrap();
    assert_eq!(mm.object_pages(of), Some(Pages::new(0)));
    for nth in [0, 511, 599] {
        assert_eq!(fault(&mm, id, nth, Access::Write), told(nth));
    }
    assert_eq!(fault(&mm, id, 600, Access::Write), Outcome::Mapped(Order::BASE), "one at a time");
    mm.watch(id, page(511), Watch::Nothing).unwrap();
    assert_eq!(fault(&mm, id, 511, Access::Write), Outcome::Mapped(Order::BASE), "by pages");
    assert_eq!(fault(&mm, id, 510, Access::Write), told(510));
}

/// A page that the object has and the area does not map is told, and let in as it is.
#[test]
fn what_an_object_has_is_told_where_that_is_asked_for() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    mm.set_object_policy(only(2));
    let (of, id, _) = armed(&mm, Advice::UserfaultPresentArm);
    let there = |nth: u64| Outcome::UserfaultPresent(Va::new(at(nth)));
    let let_in = |nth| fill(&mm, id, nth, FillWith::Present);
    let none = |nth: u64| Err(FillError::NoContents(Va::new(at(nth))));
    let unarmed = |nth: u64| Err(FillError::Unarmed(Va::new(at(nth))));
    poke(&mm, of, 3, 9); // in a folio of four
    for first in [0, OWN] {
        assert_eq!(let_in(first + 5), none(first + 5));
        for access in [Access::Read, Access::Write] {
            assert_eq!(fault(&mm, id, first + 3, access), there(first + 3));
        }
        assert_eq!(let_in(first + 3), Ok(()));
        assert_eq!(let_in(first + 3), present(first + 3));
        assert_eq!(load(&sim, &mm, id, at(first + 3)), 9);
        assert_eq!(fault(&mm, id, first + 2, Access::Read), there(first + 2), "one by one");
    }
    // In the shared area it may be written to, in the private one it is copied.
    assert_eq!(store(&sim, &mm, id, at(3), 8), []);
    assert_eq!(store(&sim, &mm, id, at(OWN + 3), 7), [Outcome::Copied]);
    assert_eq!((peek(&mm, of, 3), load(&sim, &mm, id, at(OWN + 3))), (Some(8), 7));
    // What the object has not comes as ever, and brings nothing with it.
    assert_eq!(fault(&mm, id, 5, Access::Read), Outcome::Mapped(Order::BASE));
    assert_eq!([says(&mm, id, 4), says(&mm, id, 6)], [None; 2]);
    assert_eq!(fault(&mm, id, 4, Access::Read), there(4));
    // Beyond its end nothing is let in, nor where nobody is told.
    mm.resize_object(of, Pages::new(12)).unwrap();
    assert_eq!(let_in(12), Err(FillError::Beyond(Va::new(at(12)))));
    assert_eq!(let_in(40), unarmed(40));
    assert_eq!(fill(&mm, id, 4, FillWith::PresentWatched), unarmed(4));
    // What was dropped is told again; a handler that puts a page there finds it taken.
    mm.advise(id, row(0, 8), Advice::DontNeed).unwrap();
    assert_eq!(fault(&mm, id, 3, Access::Read), there(3));
    assert_eq!(copy(&mm, id, 3), present(3));
    // Watched from the start, whatever was there; and not, over a marker.
    mm.advise(id, row(0, ROOM), Advice::UserfaultWriteArm).unwrap();
    assert_eq!(fill(&mm, id, 4, FillWith::PresentWatched), Ok(()));
    assert_eq!(fault(&mm, id, 4, Access::Write), told(4));
    mm.watch(id, row(2, 2), Watch::All).unwrap();
    assert_eq!(fault(&mm, id, 3, Access::Write), there(3));
    assert_eq!([let_in(3), fill(&mm, id, 2, FillWith::PresentWatched)], [Ok(()); 2]);
    assert_eq!(store(&sim, &mm, id, at(3), 6), []);
    assert_eq!(fault(&mm, id, 2, Access::Write), told(2));
    // Disarmed: as ever. What maps no object is not armed so.
    mm.advise(id, row(0, ROOM), Advice::UserfaultPresentDisarm).unwrap();
    assert_eq!(fault(&mm, id, 6, Access::Read), Outcome::Mapped(Order::BASE));
    let whole = area(&mm, id, at(200), PAGE);
    let refused = mm.advise(id, whole, Advice::UserfaultPresentArm);
    assert_eq!(refused, Err(RangeError::Hole(whole.start())));
    assert_eq!(let_in(200), unarmed(200));
    map(&mm, id, 300, of, SHARED);
    let behind = area(&mm, id, at(300 + ROOM), PAGE);
    let refused = mm.advise(id, row(299 + ROOM, 2), Advice::UserfaultPresentArm);
    assert_eq!(refused, Err(RangeError::Hole(behind.start())));
    // A child asks nobody.
    let child = mm.fork(id).unwrap();
    mm.switch(Some(child)).unwrap();
    assert!(matches!(fault(&mm, child, OWN + 2, Access::Read), Outcome::Mapped(_)));
}

/// What has broken is neither told nor let in.
#[test]
fn what_has_broken_is_not_let_in() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let (of, id, _) = armed(&mm, Advice::UserfaultPresentArm);
    poke(&mm, of, 6, 9);
    fill(&mm, id, 6, FillWith::Present).unwrap();
    mm.poison(mm.frame_at(id, Va::new(at(6))).unwrap());
    mm.advise(id, row(0, 8), Advice::DontNeed).unwrap();
    let broken = Va::new(at(6));
    assert_eq!(fault(&mm, id, 6, Access::Read), Outcome::Refused(Refusal::Broken(broken)));
    let refused = fill(&mm, id, 6, FillWith::Present);
    assert_eq!(refused, Err(RangeError::Broken(broken).into()));
    mm.leaves("a page that is broken");
}

/// A page that the object has is told to nobody as missing, wherever it is at the moment.
#[test]
fn a_page_on_its_way_is_not_told() {
    for step in 1.. {
        let beside = Beside::new(sim(2, 16));
        let mm = beside.manager(Policy::BASE_ONLY);
        let (_, id, other) = armed(&mm, Advice::UserfaultArm);
        by(&mm, other, id, || store(&beside.sim, &mm, other, at(5), 1));
        let frame = mm.frame_at(other, Va::new(at(5))).unwrap();
        beside.sim.on(cpu(1), || mm.online());
        let seen = Mutex::new(None);
        let look = || *seen.lock().unwrap() = Some(fault(&mm, id, 5, Access::Read));
        let Some(moved) = beside.before_step(step, look, || mm.relocate(frame)) else {
            assert!(step > 10);
            break;
        };
        let seen = seen.into_inner().unwrap();
        assert_eq!(seen, Some(Outcome::Mapped(Order::BASE)), "step {step}: {moved:?}");
    }
}

/// A page is let in beside each step of another operation: it is there, or nothing is.
#[test]
fn a_page_is_let_in_beside_another_operation() {
    type Other = fn(&Mm<'_>, (ObjectId, SpaceId, SpaceId));
    let others: [(&str, Other); 5] = [
        ("the same page", |mm, (_, id, _)| {
            let _ = fill(mm, id, 5, FillWith::Present);
        }),
        ("punch", |mm, (of, ..)| {
            mm.punch_object(of, Pages::new(0), Pages::new(ROOM)).unwrap();
        }),
        ("cut", |mm, (of, ..)| mm.resize_object(of, Pages::new(5)).unwrap()),
        ("unmap", |mm, (_, id, _)| mm.unmap(id, row(0, 128)).unwrap()),
        ("disarm", |mm, (_, id, _)| {
            mm.advise(id, row(0, ROOM), Advice::UserfaultPresentDisarm).unwrap();
        }),
    ];
    for (name, act) in others {
        for step in 1.. {
            let beside = Beside::new(sim(2, 16));
            let mm = beside.manager(Policy::BASE_ONLY);
            let all = armed(&mm, Advice::UserfaultPresentArm);
            let (of, id, _) = all;
            poke(&mm, of, 5, 9);
            beside.sim.on(cpu(1), || mm.online());
            let filled = || fill(&mm, id, 5, FillWith::Present);
            let Some(done) = beside.before_step(step, || act(&mm, all), filled) else {
                assert!(step > 10, "{name}");
                break;
            };
            let there = beside.sim.user_load(Va::new(at(5)), 8).ok();
            let what = format!("{name}, step {step}: {done:?}, {there:?}");
            let goes = matches!(name, "punch" | "cut" | "unmap");
            let is_other = name == "the same page" && done == present(5);
            assert!(there.is_none_or(|word| word == 9), "{what}");
            assert!(there.is_some() == (done.is_ok() || is_other) || goes, "{what}");
        }
    }
}

/// Without memory for a table nothing is let in, and later it is.
#[test]
fn a_page_is_let_in_with_memory_for_its_table() {
    for k in 1.. {
        let sim = sim(1, 32);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let (of, id, _) = armed(&mm, Advice::UserfaultPresentArm);
        poke(&mm, of, 5, 9);
        sim.fault_plan().set(Failing::From(k));
        let done = fill(&mm, id, 5, FillWith::Present);
        sim.fault_plan().set(Failing::Nothing);
        if done.is_ok() {
            assert!(k > 1 && load(&sim, &mm, id, at(5)) == 9);
            break;
        }
        assert_eq!(done, Err(RangeError::NoMemory.into()), "k = {k}");
        assert_eq!(fill(&mm, id, 5, FillWith::Present), Ok(()));
    }
}

/// Without memory: nothing, or the page is the object's with all that is in it.
#[test]
fn a_fill_of_an_object_without_memory() {
    for first in [0, OWN] {
        for k in 1.. {
            let sim = sim(1, 32);
            let mm = manager(&sim, Policy::BASE_ONLY);
            let (of, id, _) = armed(&mm, Advice::UserfaultArm);
            sim.fault_plan().set(Failing::From(k));
            let done = copy(&mm, id, first + 3);
            sim.fault_plan().set(Failing::Nothing);
            let came = peek(&mm, of, 3);
            if done.is_ok() {
                assert_eq!(load(&sim, &mm, id, at(first + 3)), SEVENS);
                assert!(k > 1 && came == (first == 0).then_some(SEVENS));
                break;
            }
            assert_eq!(done, Err(RangeError::NoMemory.into()), "k = {k}");
            assert!(came.is_none_or(|word| word == SEVENS && first == 0), "k = {k}: {came:?}");
            let again = if came.is_some() { present(3) } else { Ok(()) };
            assert_eq!(copy(&mm, id, first + 3), again, "k = {k}");
            assert_eq!(load(&sim, &mm, id, at(first + 3)), SEVENS);
        }
    }
}

/// A fill beside each step of another operation: its page is there with all that is in it, or the
/// other's, or none.
#[test]
fn a_fill_of_an_object_beside_another_operation() {
    type Other = fn(&Sim, &Mm<'_>, (ObjectId, SpaceId, SpaceId));
    let others: [(&str, Other); 7] = [
        ("the same page", |_, mm, (_, id, _)| {
            let _ = fill(mm, id, 5, FillWith::Copy(ONES));
        }),
        ("a store", |sim, mm, (_, _, other)| {
            mm.switch(Some(other)).unwrap();
            store(sim, mm, other, at(5), 1);
        }),
        ("punch", |_, mm, (of, ..)| {
            mm.punch_object(of, Pages::new(0), Pages::new(ROOM)).unwrap();
        }),
        ("cut", |_, mm, (of, ..)| mm.resize_object(of, Pages::new(5)).unwrap()),
        ("drop", |_, mm, (_, id, _)| mm.advise(id, row(0, ROOM), Advice::DontNeed).unwrap()),
        ("unmap", |_, mm, (_, id, _)| mm.unmap(id, row(0, 128)).unwrap()),
        ("the end of its name", |_, mm, (of, ..)| mm.end_object(of).unwrap()),
    ];
    for (name, act) in others {
        for first in [0, OWN] {
            for step in 1.. {
                let beside = Beside::new(sim(2, 16));
                let mm = beside.manager(Policy::BASE_ONLY);
                let all = armed(&mm, Advice::UserfaultArm);
                let (of, id, _) = all;
                beside.sim.on(cpu(1), || mm.online());
                let filled = || copy(&mm, id, first + 5);
                let part = || act(&beside.sim, &mm, all);
                let Some(done) = beside.before_step(step, part, filled) else {
                    assert!(step > 10, "{name}");
                    break;
                };
                beside.sim.on(cpu(1), || mm.switch(None).unwrap());
                let there = beside.sim.user_load(Va::new(at(first + 5)), 8).ok();
                // A store of the other changes the first word alone.
                let last = beside.sim.user_load(Va::new(at(first + 6) - 8), 8).ok();
                let is_whole = match name {
                    "a store" => last.is_none_or(|word| [0, SEVENS].contains(&word)),
                    _ => {
                        there == last
                            && last.is_none_or(|word| {
                                [u64::from_ne_bytes([1; 8]), SEVENS].contains(&word)
                            })
                    }
                };
                let stays = !matches!(name, "punch" | "cut" | "drop" | "unmap");
                let is_there = there.is_some() || done.is_err() || !stays;
                let what = format!("{name}, page {}, step {step}: {done:?}", first + 5);
                assert!(is_there && is_whole, "{what}, {there:x?}, {last:x?}");
                if first == OWN && there.is_some() {
                    assert_eq!(there, Some(SEVENS), "{what}");
                }
                if name != "the end of its name" && done.is_ok() && first == 0 && stays {
                    assert!(peek(&mm, of, 5).is_some(), "{what}");
                }
            }
        }
    }
}

/// A write beside each step of a watch, and a watch beside a page that leaves the object.
#[test]
fn a_watch_of_an_object_beside_another_operation() {
    type Other = fn(&Sim, &Mm<'_>, (ObjectId, SpaceId, SpaceId));
    let others: [(&str, Other); 4] = [
        ("punch", |_, mm, (of, ..)| {
            mm.punch_object(of, Pages::new(0), Pages::new(ROOM)).unwrap();
        }),
        ("drop", |_, mm, (_, id, _)| mm.advise(id, row(0, 8), Advice::DontNeed).unwrap()),
        ("a store of the program", |sim, mm, (_, id, _)| {
            mm.switch(Some(id)).unwrap();
            store(sim, mm, id, at(2), 1);
        }),
        ("a store of another", |sim, mm, (_, _, other)| {
            mm.switch(Some(other)).unwrap();
            store(sim, mm, other, at(2), 1);
        }),
    ];
    for (name, act) in others {
        for step in 1.. {
            let beside = Beside::new(sim(2, 16));
            let mm = beside.manager(Policy::BASE_ONLY);
            let all = armed(&mm, Advice::UserfaultWriteArm);
            let (_, id, _) = all;
            store(&beside.sim, &mm, id, at(2), 5);
            beside.sim.on(cpu(1), || mm.online());
            let watch = || mm.watch(id, row(0, 8), Watch::All).unwrap();
            let part = || act(&beside.sim, &mm, all);
            if beside.before_step(step, part, watch).is_none() {
                assert!(step > 5, "{name}");
                break;
            }
            for nth in [2, 6] {
                let ends = store(&beside.sim, &mm, id, at(nth), 9);
                assert_eq!(ends.last(), Some(&told(nth)), "{name}, step {step}, page {nth}");
            }
        }
    }
}

/// A collapse maps the folio that it makes, though what the object has is the handler's to let in;
/// where writes are told it does not, for each page may be watched.
#[test]
fn a_collapse_lets_its_folio_in() {
    for (advice, level) in
        [(Advice::UserfaultPresentArm, Level::SIZE_2M), (Advice::UserfaultWriteArm, Level::BASE)]
    {
        let sim = sim(1, 64);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let pages = Pages::new(512);
        let of = mm.create_object(&ObjectRequest { pages, ..Default::default() }).unwrap();
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        let asked = request(Place::Fixed(Va::new(BASE)), SIZE_2M, SHARED);
        mm.map_object(id, &asked, (of, Pages::new(0))).unwrap();
        (0..512).for_each(|nth| poke(&mm, of, nth, nth + 1));
        mm.advise(id, row(0, 512), advice).unwrap();
        let order = Order::SIZE_2M;
        mm.collapse(id, Va::new(BASE), order, CollapseLimits::NONE).unwrap();
        let leaf = mm.with_leaves(id, row(0, 512), |mut leaves| leaves.next()).unwrap();
        let found = leaf.map(|leaf| leaf.level);
        assert_eq!(found, (level == Level::SIZE_2M).then_some(level), "{advice:?}");
        assert_eq!(load(&sim, &mm, id, at(300)), 301);
    }
}
