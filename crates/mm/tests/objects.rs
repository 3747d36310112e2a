//! Objects: what programs and the kernel see of shared memory beside a naive model, what comes with
//! one fault, what leaves and when, and what keeps an object.
#![allow(unsafe_code)]

use crate::common::beside::Beside;
use crate::common::*;
use foliant::compact::{CollapseError, CompactRequest};
use foliant::fault::{Orders, Refusal};
use foliant::manager::{CollapseLimits, NoPage, Poisoned};
use foliant::object::{Around, ObjectRequest};
use foliant::pool::Budget;
use foliant::space::{
    Advice, Flags, MapError, MapRequest, Move, ObjectId, Place, RangeError, SpaceId,
};
use foliant::split::{SplitInto, ZeroPieces};
use foliant::{Access, Event, Outcome, Policy, SizeEvent};
use foliant_machine::PhysMem;
use foliant_sim::Sim;
use foliant_units::{Bytes, Level, Order, Pages, Va};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SHARED: Flags = Flags::READ_WRITE.with(Flags::SHARED);
const PRIVATE: Flags = Flags::READ_WRITE;

fn pages(n: u64) -> Pages {
    Pages::new(n)
}
fn object(mm: &Mm<'_>, room: u64) -> ObjectId {
    mm.create_object(&ObjectRequest { pages: pages(room), ..ObjectRequest::default() }).unwrap()
}
/// Maps so many pages from page `first` of an object on at the `at`-th page behind `BASE`.
fn map(mm: &Mm<'_>, id: SpaceId, (at, count): (u64, u64), of: (ObjectId, u64), flags: Flags) {
    let request = MapRequest {
        place: Place::Fixed(Va::new(BASE + at * PAGE)),
        bytes: Bytes::new(count * PAGE),
        flags,
        tag: 0,
    };
    mm.map_object(id, &request, (of.0, pages(of.1))).unwrap();
}
fn at(page: u64) -> u64 {
    BASE + page * PAGE
}
fn machine(cpus: usize) -> Sim {
    sim(cpus, 64)
}
/// A manager with all CPUs online.
fn online<'m>(sim: &'m Sim) -> AuditedMm<'m> {
    let mm = manager(sim, Policy::BASE_ONLY);
    for cpu in mm.cpus() {
        sim.on(cpu, || mm.online());
    }
    mm
}
fn run<R>(sim: &Sim, mm: &Mm<'_>, nth: usize, id: SpaceId, act: impl FnOnce() -> R) -> R {
    sim.on(cpu(nth as u16 % 2), || {
        mm.switch(Some(id)).unwrap();
        act()
    })
}

/// What the kernel reads of a page.
fn peek(sim: &Sim, mm: &Mm<'_>, of: ObjectId, page: u64) -> Option<u64> {
    let kept = mm.object_page(of, pages(page), Access::Read).unwrap()?;
    // SAFETY: the page is kept meanwhile.
    let at = unsafe { sim.reach(kept.frame().pa(), Bytes::new(8)) };
    // SAFETY: eight bytes of it, which nobody writes at this moment.
    Some(unsafe { at.cast::<u64>().read() })
}
/// What the kernel writes to a page.
fn poke(sim: &Sim, mm: &Mm<'_>, of: ObjectId, page: u64, value: u64) {
    let kept = mm.object_page(of, pages(page), Access::Write).unwrap().expect("it is made");
    // SAFETY: as for `peek`.
    let at = unsafe { sim.reach(kept.frame().pa(), Bytes::new(8)) };
    // SAFETY: as for `peek`, and nobody reads.
    unsafe { at.cast::<u64>().write(value) };
}

#[test]
fn what_one_program_writes_the_other_one_reads() {
    let sim = machine(2);
    let mm = online(&sim);
    let of = object(&mm, 16);
    let [a, b] = [(); 2].map(|()| mm.create(None).unwrap());
    map(&mm, a, (0, 16), (of, 0), SHARED);
    map(&mm, b, (100, 8), (of, 4), SHARED);
    run(&sim, &mm, 0, a, || assert_eq!(store(&sim, &mm, a, at(5), 7), [Outcome::Mapped(order(0))]));
    run(&sim, &mm, 1, b, || assert_eq!(load(&sim, &mm, b, at(101)), 7));
    run(&sim, &mm, 1, b, || store(&sim, &mm, b, at(101), 8));
    run(&sim, &mm, 0, a, || assert_eq!(load(&sim, &mm, a, at(5)), 8, "nothing was copied"));
    assert_eq!(mm.object_pages(of), Some(pages(1)));
    assert_eq!((mm.pages(a), mm.pages(b)), (Some(pages(1)), Some(pages(1))));
    assert_eq!(peek(&sim, &mm, of, 5), Some(8), "the kernel reads it through the direct map");
    assert!(mm.object_page(of, pages(6), Access::Read).unwrap().is_none(), "zeros");
    mm.end_object(of).unwrap();
    assert_eq!(mm.end_object(of), Err(RangeError::NoObject));
    run(&sim, &mm, 0, a, || assert_eq!(load(&sim, &mm, a, at(5)), 8, "who maps it keeps it"));
}

#[test]
fn what_the_kernel_writes_beside_a_program_leaves_the_other_bytes_of_a_word() {
    let sim = machine(2);
    let mm = online(&sim);
    let (of, a) = (object(&mm, 2), mm.create(None).unwrap());
    map(&mm, a, (0, 2), (of, 0), SHARED);
    let kept = mm.object_page(of, pages(1), Access::Write).unwrap().expect("it is made");
    let last = at(1) + PAGE - 1;
    let rounds = 1..=2000u64;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run(&sim, &mm, 1, a, || {
                for round in rounds.clone() {
                    while sim.user_store(Va::new(last), 1, round).is_err() {
                        mm.fault(a, Va::new(last), Access::Write);
                    }
                    assert_eq!(
                        sim.user_load(Va::new(last), 1),
                        Ok(round & 0xff),
                        "nothing is lost"
                    );
                }
            })
        });
        for round in rounds.clone() {
            let bytes = [round as u8; 6];
            kept.write(Bytes::new(PAGE - 7), &bytes);
            let mut seen = [0; 9];
            kept.read(Bytes::new(PAGE - 8), &mut seen);
            assert_eq!((seen[0], &seen[1..7], seen[8]), (0, &bytes[..], 0), "up to its end");
        }
    });
    let mut whole = vec![7; PAGE as usize];
    kept.read(Bytes::new(0), &mut whole);
    assert!(whole[..PAGE as usize - 7].iter().all(|byte| *byte == 0));
    let text: Vec<u8> = (0..21).collect();
    kept.write(Bytes::new(5), &text);
    kept.read(Bytes::new(0), &mut whole);
    assert_eq!((&whole[..5], &whole[5..26], &whole[26..32]), (&[0; 5][..], &text[..], &[0; 6][..]));
}

#[test]
fn a_private_page_is_copied_when_it_is_written() {
    let sim = machine(2);
    let mm = online(&sim);
    let of = object(&mm, 8);
    let [a, b] = [(); 2].map(|()| mm.create(None).unwrap());
    map(&mm, a, (0, 8), (of, 0), SHARED);
    map(&mm, b, (0, 8), (of, 0), PRIVATE);
    run(&sim, &mm, 0, a, || store(&sim, &mm, a, at(1), 1));
    run(&sim, &mm, 1, b, || {
        assert_eq!(load(&sim, &mm, b, at(1)), 1);
        assert_eq!(
            store(&sim, &mm, b, at(1), 2),
            [Outcome::Copied],
            "in the place of what was read"
        );
        assert_eq!(store(&sim, &mm, b, at(2), 3), [Outcome::Copied], "nothing was read before");
    });
    run(&sim, &mm, 0, a, || {
        assert_eq!([1, 2].map(|page| load(&sim, &mm, a, at(page))), [1, 0]);
        store(&sim, &mm, a, at(1), 4);
        store(&sim, &mm, a, at(3), 5);
    });
    run(&sim, &mm, 1, b, || {
        let seen = [1, 2, 3].map(|page| load(&sim, &mm, b, at(page)));
        assert_eq!(seen, [2, 3, 5], "what was not written is the object's");
        mm.advise(b, row(1, 1), Advice::DontNeed).unwrap();
        assert_eq!(load(&sim, &mm, b, at(1)), 4, "the copy is dropped");
    });
}

#[test]
fn a_large_folio_comes_with_one_fault_in_each_space() {
    for (n, leaves) in [(4, 0), (9, 1)] {
        let sim = machine(2);
        let mm = online(&sim);
        mm.set_object_policy(only(n));
        let of = object(&mm, 1024);
        let [a, b, c] = [(); 3].map(|()| mm.create(None).unwrap());
        map(&mm, a, (0, 1024), (of, 0), SHARED);
        map(&mm, b, (512, 512), (of, 512), SHARED);
        map(&mm, c, (1, 1023), (of, 0), PRIVATE);
        let got = run(&sim, &mm, 0, a, || store(&sim, &mm, a, at(700), 7));
        assert_eq!(got, [Outcome::Mapped(order(n))]);
        run(&sim, &mm, 1, b, || {
            assert_eq!(mm.fault(b, Va::new(at(700)), Access::Read), Outcome::Mapped(order(n)));
            assert_eq!(load(&sim, &mm, b, at(700)), 7);
            store(&sim, &mm, b, at(1023.min(700 | ((1 << n) - 1))), 8);
        });
        assert_eq!(mm.pages(b), Some(pages(1 << n)));
        // It does not lie alike: one page after the other.
        let outcome = run(&sim, &mm, 0, c, || mm.fault(c, Va::new(at(701)), Access::Read));
        assert_eq!(outcome, Outcome::Mapped(Order::BASE));
        let head = mm.frame_at(a, Va::new(at(700))).unwrap();
        let mappings = mm.mappings(head).unwrap();
        assert_eq!((mappings.spaces, mappings.whole), (4, 3 * leaves), "and the object itself");
    }
}

#[test]
fn what_is_beyond_an_object_is_refused_and_what_is_cut_off_is_gone() {
    let sim = machine(2);
    let mm = online(&sim);
    mm.set_object_policy(only(2));
    let of = object(&mm, 10);
    let [a, b] = [(); 2].map(|()| mm.create(None).unwrap());
    map(&mm, a, (0, 16), (of, 0), SHARED);
    map(&mm, b, (0, 16), (of, 0), PRIVATE);
    let beyond = |page| Outcome::Refused(Refusal::Beyond(Va::new(at(page))));
    for (nth, id) in [a, b].into_iter().enumerate() {
        run(&sim, &mm, nth, id, || {
            (0..10).for_each(|page| drop(store(&sim, &mm, id, at(page), page + 1)));
            assert_eq!(store(&sim, &mm, id, at(10), 1), [beyond(10)]);
            assert_eq!(mm.fault(id, Va::new(at(10)), Access::Read), beyond(10));
        });
    }
    mm.punch_object(of, pages(2), pages(3)).unwrap();
    run(&sim, &mm, 0, a, || assert_eq!([1, 2, 3].map(|n| load(&sim, &mm, a, at(n))), [2, 0, 4]));
    run(&sim, &mm, 1, b, || assert_eq!(load(&sim, &mm, b, at(2)), 3, "a copy stays"));
    mm.resize_object(of, pages(6)).unwrap();
    for (nth, id) in [a, b].into_iter().enumerate() {
        run(&sim, &mm, nth, id, || {
            assert_eq!(load(&sim, &mm, id, at(5)), 6);
            assert_eq!(mm.fault(id, Va::new(at(6)), Access::Read), beyond(6), "no copy stays");
        });
    }
    assert_eq!((mm.object_room(of), mm.object_pages(of)), (Some(pages(6)), Some(pages(6))));
    mm.resize_object(of, pages(12)).unwrap();
    run(&sim, &mm, 1, b, || assert_eq!(load(&sim, &mm, b, at(7)), 0, "zeros come"));
    assert_eq!(
        mm.object_page(of, pages(12), Access::Write).unwrap_err(),
        NoPage::Beyond(pages(12))
    );
}

#[test]
fn a_limit_of_an_object_holds_for_its_pages_and_its_index() {
    let sim = machine(2);
    let mm = online(&sim);
    let limit = Some(pages(8));
    let of = mm.create_object(&ObjectRequest { pages: pages(64), limit, ..Default::default() });
    let of = of.unwrap();
    let a = mm.create(None).unwrap();
    map(&mm, a, (0, 64), (of, 0), SHARED);
    let ends =
        run(&sim, &mm, 0, a, || (0..64).map(|n| store(&sim, &mm, a, at(n), 1)).collect::<Vec<_>>());
    let refused = ends.iter().filter(|end| end.last() == Some(&Outcome::OverLimit)).count();
    assert!((57..64).contains(&refused), "{refused}");
    let full = mm.object_page(of, pages(63), Access::Write).unwrap_err();
    assert_eq!(full, NoPage::OverLimit(pages(8)));
    let none = mm.create_object(&ObjectRequest { limit: Some(pages(1)), ..Default::default() });
    assert_eq!(none, Err(MapError::Range(RangeError::OverLimit(pages(1)))));
}

#[test]
fn pages_of_an_object_are_brought_before_anybody_touches_them() {
    let sim = machine(2);
    let mm = online(&sim);
    mm.set_object_policy(only(2));
    let limit = Some(pages(40));
    let of = mm.create_object(&ObjectRequest { pages: pages(64), limit, ..Default::default() });
    let (of, a) = (of.unwrap(), mm.create(None).unwrap());
    map(&mm, a, (0, 64), (of, 0), SHARED);
    poke(&sim, &mm, of, 5, 7);
    let is_promised = |page| {
        let there = mm.object_page(of, pages(page), Access::Read).unwrap();
        there.map(|page| page.is_promised())
    };
    mm.promise_object(of, pages(3), pages(9)).unwrap();
    let there = mm.object_pages(of).unwrap().get();
    assert!((8..=12).contains(&there), "16 KiB from page 0, 4 and 8 on: {there}");
    assert_eq!([3, 5, 8].map(|page| peek(&sim, &mm, of, page)), [Some(0), Some(7), Some(0)]);
    assert_eq!(mm.pages(a), Some(pages(0)), "nobody has any mapped");
    assert_eq!([3, 5, 8].map(is_promised), [true, false, true].map(Some));
    run(&sim, &mm, 0, a, || assert_eq!(load(&sim, &mm, a, at(5)), 7));
    assert_eq!(mm.pages(a), Some(pages(4)), "its own folio alone comes");
    assert_eq!([3, 5, 8].map(is_promised), [true, false, true].map(Some));
    run(&sim, &mm, 0, a, || assert_eq!(load(&sim, &mm, a, at(9)), 0));
    assert_eq!([3, 8, 11].map(is_promised), [true, false, false].map(Some), "a folio as a whole");
    mm.promise_object(of, pages(3), pages(9)).unwrap();
    assert_eq!(mm.object_pages(of).unwrap().get(), there, "they are there");
    assert_eq!(is_promised(3), Some(false), "a second time counts as a touch");
    poke(&sim, &mm, of, 12, 1);
    mm.promise_object(of, pages(16), pages(17)).unwrap();
    poke(&sim, &mm, of, 16, 1);
    assert_eq!(is_promised(16), Some(false), "the kernel touches too");
    // As far as there is room, and as far as the limit goes: what came stays.
    mm.promise_object(of, pages(62), pages(1 << 40)).unwrap();
    assert!(peek(&sim, &mm, of, 63).is_some());
    let full = mm.promise_object(of, pages(0), pages(64)).unwrap_err();
    assert_eq!(full, RangeError::OverLimit(pages(40)));
    assert!(mm.object_pages(of).unwrap().get() > 30);
    let all = mm.create_object(&ObjectRequest { pages: pages(1 << 30), ..Default::default() });
    let free = mm.memory().free;
    let short = mm.promise_object(all.unwrap(), pages(0), pages(free.get() + 1)).unwrap_err();
    assert_eq!((short, mm.memory().free), (RangeError::NoMemory, free), "all or none");
    assert_eq!(mm.reserve_object(of, pages(0), pages(64)), Ok(()), "small pages need none");
    mm.end_object(of).unwrap();
    let none = mm.promise_object(of, pages(0), pages(1)).unwrap_err();
    assert_eq!(none, RangeError::NoObject);
    let none = mm.reserve_object(of, pages(0), pages(1)).unwrap_err();
    assert_eq!(none, MapError::Range(RangeError::NoObject));
}

#[test]
fn requests_that_do_not_go_together_with_an_object() {
    let sim = machine(2);
    let mm = online(&sim);
    let of = object(&mm, 4);
    let a = mm.create(None).unwrap();
    let ask = |flags| request(Place::Anywhere, 4 * PAGE, flags);
    for bad in [Flags::GROWS_DOWN, Flags::HUGE_2M, Flags::HUGE_1G, Flags::KERNEL] {
        let flags = SHARED.with(bad);
        assert_eq!(mm.map_object(a, &ask(flags), (of, pages(0))), Err(MapError::Flags(flags)));
    }
    assert_eq!(mm.map(a, &ask(SHARED)), Err(MapError::Flags(SHARED)), "there is nothing to share");
    let no_name = ObjectId::from_parts(a.frame(), a.stamp());
    let refused = Err(MapError::Range(RangeError::NoObject));
    assert_eq!(mm.map_object(a, &ask(SHARED), (no_name, pages(0))), refused);
    let no_space = SpaceId::from_parts(of.frame(), of.stamp());
    assert_eq!(mm.switch(Some(no_space)), Err(foliant::manager::SpaceError::NoSpace));
    assert_eq!(mm.area(no_space, Va::new(0)), None);
    for first in [1 << 48, (1 << 52) - 1, u64::MAX - 1, u64::MAX] {
        let beyond = mm.map_object(a, &ask(SHARED), (of, pages(first)));
        assert!(matches!(beyond, Err(MapError::Range(RangeError::Outside(_)))), "{beyond:?}");
    }
    let flags = Flags::HUGE_2M;
    let pool = mm
        .create_object(&ObjectRequest { pages: pages(512), flags, ..ObjectRequest::default() })
        .unwrap();
    let armed = request(Place::Anywhere, SIZE_2M, SHARED.with(Flags::USERFAULT));
    assert!(matches!(mm.map_object(a, &armed, (pool, pages(0))), Err(MapError::Flags(_))));
    for first in [u64::MAX - 511, 1 << 52] {
        let ask = request(Place::Anywhere, SIZE_2M, SHARED);
        let beyond = mm.map_object(a, &ask, (pool, pages(first)));
        assert!(matches!(beyond, Err(MapError::Range(RangeError::Outside(_)))), "{beyond:?}");
    }
    let huge = mm.create_object(&ObjectRequest { pages: pages(1 << 50), ..Default::default() });
    assert!(matches!(huge, Err(MapError::Range(RangeError::Outside(_)))), "{huge:?}");
    mm.end_object(of).unwrap();
    assert_eq!(mm.map_object(a, &ask(SHARED), (of, pages(0))), refused);
}

/// A 2 MiB folio of an object that 64 spaces map, of which four CPUs run some, is split as an
/// anonymous one of a fork tree is: each space is asked for once.
#[test]
fn a_split_takes_one_shootdown_for_each_space_that_runs() {
    let sim = machine(4);
    let mm = online(&sim);
    mm.set_object_policy(only(9));
    let of = object(&mm, 512);
    let spaces: Vec<SpaceId> = (0..64).map(|_| mm.create(None).unwrap()).collect();
    for id in &spaces {
        map(&mm, *id, (0, 512), (of, 0), SHARED);
        sim.on(cpu(3), || {
            mm.switch(Some(*id)).unwrap();
            store(&sim, &mm, *id, at(9), 9);
        });
    }
    for (nth, id) in spaces.iter().take(3).enumerate() {
        sim.on(cpu(nth as u16), || {
            mm.switch(Some(*id)).unwrap();
            assert_eq!(load(&sim, &mm, *id, at(9)), 9);
        });
    }
    let before = mm.total(Event::Shootdown);
    let into = SplitInto { order: Order::BASE, zeros: ZeroPieces::Keep };
    let pieces = mm.split(spaces[7], Va::new(at(0)), into).unwrap();
    assert_eq!(pieces.folios, 512);
    let took = mm.total(Event::Shootdown) - before;
    assert!(took <= 64, "{took}");
    let head = mm.frame_at(spaces[63], Va::new(at(9))).unwrap();
    assert_eq!(mm.mappings(head).unwrap().pages, 65);
    let moved = mm.relocate(head).unwrap();
    assert_ne!(moved, head);
    sim.on(cpu(1), || assert_eq!(load(&sim, &mm, spaces[1], at(9)), 9));
}

/// A page that was punched out of a folio is not mapped with the others of it.
#[test]
fn a_folio_with_a_hole_is_mapped_around_it() {
    let sim = machine(2);
    let mm = online(&sim);
    mm.set_object_policy(only(2));
    let of = object(&mm, 4);
    let [a, b] = [(); 2].map(|()| mm.create(None).unwrap());
    map(&mm, a, (0, 4), (of, 0), SHARED);
    map(&mm, b, (0, 4), (of, 0), SHARED);
    run(&sim, &mm, 0, a, || (0..4).for_each(|n| drop(store(&sim, &mm, a, at(n), n + 1))));
    for hole in [1, 3] {
        mm.punch_object(of, pages(hole), pages(hole + 1)).unwrap();
        run(&sim, &mm, 1, b, || {
            mm.unmap(b, row(0, 4)).unwrap();
            map(&mm, b, (0, 4), (of, 0), SHARED);
            let seen = [0, 1, 2, 3].map(|n| load(&sim, &mm, b, at(n)));
            assert_eq!(seen, if hole == 1 { [1, 0, 3, 4] } else { [1, 0, 3, 0] });
        });
    }
}

/// What a read brings: what the object has of the 64 KiB around it, which are aligned or begin with
/// the area, where nothing is.
#[test]
fn a_read_brings_what_is_around_it() {
    let sim = machine(2);
    let mm = online(&sim);
    mm.leaves("a page that is broken");
    let of = object(&mm, 64);
    for page in [0, 2, 3, 4, 6, 9, 15, 17, 18, 60, 61] {
        poke(&sim, &mm, of, page, page);
    }
    let [shared, private, poor] = [None, None, Some(pages(8))].map(|most| mm.create(most).unwrap());
    for (id, flags) in [(shared, SHARED), (private, PRIVATE), (poor, SHARED)] {
        map(&mm, id, (2, 62), (of, 2), flags);
    }
    let around = || mm.total(Event::ObjectAround);
    let seen = |id: SpaceId| mm.pages(id).unwrap().get();
    let there = |id: SpaceId, page: u64| mm.frame_at(id, Va::new(at(page))).is_some();
    run(&sim, &mm, 0, shared, || {
        assert_eq!(load(&sim, &mm, shared, at(5)), 0, "it was not there");
        // Page 5 came, and with it 2, 3 and 4, and 6, 9, 15 and 17.
        assert_eq!((seen(shared), around()), (8, 7));
        assert!(!there(shared, 7) && !there(shared, 18));
        let before = mm.total(Event::Fault);
        assert_eq!(
            [2, 3, 4, 6, 9, 15].map(|n| load(&sim, &mm, shared, at(n))),
            [2, 3, 4, 6, 9, 15]
        );
        assert!(store(&sim, &mm, shared, at(9), 9).is_empty(), "it may be written as well");
        assert_eq!(mm.total(Event::Fault), before);
        store(&sim, &mm, shared, at(16), 16);
        assert_eq!(seen(shared), 9, "a store brings its page");
    });
    run(&sim, &mm, 1, private, || {
        assert_eq!(store(&sim, &mm, private, at(4), 40), [Outcome::Copied]);
        let broken = mm.object_page(of, pages(6), Access::Read).unwrap().unwrap().frame();
        assert_eq!(mm.poison(broken), Poisoned::Held);
        assert_eq!(load(&sim, &mm, private, at(2)), 2);
        let now = [2, 3, 4, 5, 6, 9, 15].map(|page| there(private, page));
        assert_eq!(now, [true, true, true, true, false, true, true], "what is broken stays away");
        assert_eq!(load(&sim, &mm, private, at(4)), 40, "the copy is not replaced");
        assert_eq!(store(&sim, &mm, private, at(9), 90), [Outcome::Copied]);
        assert_eq!(load(&sim, &mm, private, at(9)), 90);
    });
    run(&sim, &mm, 0, poor, || {
        assert_eq!(load(&sim, &mm, poor, at(3)), 3, "a page without company is better than none");
        assert!(seen(poor) < 7);
    });
    assert_eq!(peek(&sim, &mm, of, 9), Some(9));
    let lone = ObjectRequest { pages: pages(8), around: Around::Nothing, ..Default::default() };
    let lone = mm.create_object(&lone).unwrap();
    (0..8).for_each(|page| poke(&sim, &mm, lone, page, page));
    map(&mm, shared, (700, 8), (lone, 0), SHARED);
    run(&sim, &mm, 0, shared, || assert_eq!(load(&sim, &mm, shared, at(703)), 3));
    assert!(there(shared, 703) && !there(shared, 702), "of some objects nothing comes besides");
    // Pages 60 to 67, of which the last four are beyond the end.
    map(&mm, shared, (660, 8), (of, 60), SHARED);
    run(&sim, &mm, 0, shared, || {
        let beyond = |page| Outcome::Refused(Refusal::Beyond(Va::new(at(page))));
        assert_eq!(mm.fault(shared, Va::new(at(665)), Access::Write), beyond(665));
        assert!(!there(shared, 660));
        assert_eq!(mm.fault(shared, Va::new(at(665)), Access::Read), beyond(665));
        let now = [660, 661, 662, 665].map(|page| there(shared, page));
        assert_eq!(now, [true, true, false, false]);
    });
}

/// A folio comes with one fault however the area lies to it, as far as the page's table reaches.
#[test]
fn a_folio_comes_with_one_fault_wherever_the_area_lies() {
    let sim = machine(2);
    let mm = online(&sim);
    for n in [4, 9] {
        mm.set_object_policy(only(n));
        let (of, size) = (object(&mm, 1 << n), 1 << n);
        let [a, b, c] = [(); 3].map(|()| mm.create(None).unwrap());
        // Three pages off; the second one ends before the folio does.
        map(&mm, a, (3, size), (of, 0), SHARED);
        map(&mm, b, (3, size - 2), (of, 0), PRIVATE);
        map(&mm, c, (3, size), (of, 0), SHARED);
        let before = mm.total(Event::Fault);
        run(&sim, &mm, 0, a, || {
            (3..size).for_each(|page| drop(store(&sim, &mm, a, at(page), page)));
            assert_eq!(mm.total(Event::Fault), before + 1, "{n}");
            (3..size).for_each(|page| assert_eq!(load(&sim, &mm, a, at(page)), page));
        });
        let there = |id, page: u64| mm.frame_at(id, Va::new(at(page))).is_some();
        run(&sim, &mm, 1, b, || {
            assert_eq!(store(&sim, &mm, b, at(9), 9), [Outcome::Copied]);
            assert!(!there(b, 8), "a copy comes alone");
            assert_eq!(load(&sim, &mm, b, at(7)), 7);
            assert!((3..size).all(|page| there(b, page)));
            assert!(!there(b, size + 1), "the area ends");
            assert_eq!(load(&sim, &mm, b, at(9)), 9);
        });
        let pages_of = |id| mm.pages(id).unwrap().get();
        // Of 2 MiB three pages lie in the next table.
        let in_table = if n == 9 { size - 3 } else { size };
        assert_eq!((pages_of(a), pages_of(b)), (in_table, in_table.min(size - 2)));
        mm.punch_object(of, pages(2), pages(4)).unwrap();
        assert_eq!(pages_of(a), in_table - 2);
        run(&sim, &mm, 0, c, || {
            store(&sim, &mm, c, at(3), 1);
            assert_eq!(pages_of(c), in_table - 2, "what the folio has lost does not come");
        });
    }
}

/// The reverse map finds copies of an object's pages where they were moved to.
#[test]
fn a_copy_that_was_moved_is_found() {
    let sim = machine(2);
    let mm = online(&sim);
    let of = object(&mm, 8);
    let a = mm.create(None).unwrap();
    map(&mm, a, (0, 8), (of, 0), PRIVATE);
    run(&sim, &mm, 0, a, || {
        store(&sim, &mm, a, at(3), 7);
        let to = Move::To(Va::new(at(100)));
        mm.remap(a, row(0, 8), Bytes::new(8 * PAGE), to).unwrap();
        let frame = mm.frame_at(a, Va::new(at(103))).unwrap();
        assert_eq!(mm.mappings(frame).unwrap().pages, 1);
        assert_ne!(mm.relocate(frame), Ok(frame));
        assert_eq!([103, 104].map(|n| load(&sim, &mm, a, at(n))), [7, 0]);
    });
}

#[test]
fn pages_of_an_object_become_one_folio_for_all_that_map_it() {
    let sim = machine(2);
    let mm = online(&sim);
    let of = object(&mm, 512);
    let [a, b] = [(); 2].map(|()| mm.create(None).unwrap());
    map(&mm, a, (0, 512), (of, 0), SHARED);
    map(&mm, b, (0, 512), (of, 0), PRIVATE);
    run(&sim, &mm, 0, a, || (0..512).for_each(|n| drop(store(&sim, &mm, a, at(n), n))));
    run(&sim, &mm, 1, b, || {
        store(&sim, &mm, b, at(3), 1000);
        assert_eq!(load(&sim, &mm, b, at(4)), 4);
    });
    let size = Order::SIZE_2M;
    let alloc = |event| mm.size_total(Order::BASE, event);
    assert_eq!(alloc(SizeEvent::ShmemAlloc), 512);
    assert_eq!(alloc(SizeEvent::AnonFaultAlloc), 0, "they are counted apart");
    mm.collapse_object(of, pages(0), size, CollapseLimits::NONE).unwrap();
    run(&sim, &mm, 0, a, || {
        assert_eq!(mm.fault(a, Va::new(at(9)), Access::Read), Outcome::Mapped(size));
        (0..512).for_each(|n| assert_eq!(load(&sim, &mm, a, at(n)), n));
    });
    run(&sim, &mm, 1, b, || {
        assert_eq!(load(&sim, &mm, b, at(3)), 1000, "its copy is its own");
        assert_eq!(load(&sim, &mm, b, at(4)), 4);
    });
    let c = mm.create(None).unwrap();
    map(&mm, c, (0, 512), (of, 0), SHARED);
    assert_eq!(mm.fault(c, Va::new(at(9)), Access::Read), Outcome::Mapped(size));
}

/// A collapse of what a space shows of an object makes a folio of the object's pages, for all that
/// map them, and maps it by one leaf where the space has no copy of a page.
#[test]
fn a_collapse_of_what_a_space_shows_is_one_of_the_object() {
    let sim = machine(2);
    let mm = online(&sim);
    let of = object(&mm, 1200);
    let [a, b, c] = [(); 3].map(|()| mm.create(None).unwrap());
    map(&mm, a, (0, 1200), (of, 0), SHARED);
    map(&mm, b, (0, 512), (of, 0), PRIVATE);
    map(&mm, c, (0, 600), (of, 1), SHARED);
    let first = [0, 512, 1024].map(|n| Va::new(at(n)));
    let collapse = |id, va| mm.collapse(id, va, Order::SIZE_2M, CollapseLimits::NONE);
    let level = |id, n| {
        let leaf = mm.with_leaves(id, row(n, 1), |mut leaves| leaves.next()).flatten();
        leaf.map(|leaf| leaf.level)
    };
    let empty = Err(CollapseError::Empty(pages(512)));
    assert_eq!(collapse(a, first[0]), empty, "it has no page");
    run(&sim, &mm, 0, a, || [3, 700, 1030].map(|n| store(&sim, &mm, a, at(n), n)));
    run(&sim, &mm, 1, b, || store(&sim, &mm, b, at(4), 40));

    assert_eq!(collapse(b, first[0]), Err(CollapseError::Changed(first[0])), "one is its own");
    assert_eq!(mm.object_pages(of), Some(pages(514)), "all the same it is a folio");
    run(&sim, &mm, 1, b, || {
        assert_eq!([3, 4, 5].map(|n| load(&sim, &mm, b, at(n))), [3, 40, 0]);
    });
    assert_eq!((level(a, 3), level(b, 3)), (None, Some(Level::BASE)));
    assert_eq!(collapse(a, first[0]), Ok(()), "it is mapped");
    assert_eq!(level(a, 9), Some(Level::SIZE_2M));
    assert_eq!(collapse(a, first[0]), Err(CollapseError::Collapsed(first[0])));
    assert_eq!(level(b, 4), Some(Level::BASE));
    assert_eq!(collapse(c, first[0]), Err(CollapseError::Unsuitable(first[0])), "apart");
    mm.protect(a, row(512, 512), Flags::READ).unwrap();
    assert_eq!(collapse(a, first[1]), Ok(()), "to be read");
    assert_eq!(level(a, 512), Some(Level::SIZE_2M));
    assert_eq!(mm.object_pages(of), Some(pages(1025)));
    mm.advise(a, row(512, 512), Advice::NoHugePage).unwrap();
    assert_eq!(collapse(a, first[1]), Err(CollapseError::Unsuitable(first[1])));
    assert_eq!(collapse(a, first[2]), Err(CollapseError::Unsuitable(first[2])), "it ends inside");
    run(&sim, &mm, 0, a, || {
        assert_eq!([3, 700, 1030].map(|n| load(&sim, &mm, a, at(n))), [3, 700, 1030]);
    });
    mm.audit(&[a, b, c]).unwrap();
}

/// Where a program fills what an object lacks, no collapse does.
#[test]
fn a_collapse_fills_no_page_that_is_a_programs_to_fill() {
    let sim = machine(1);
    let mm = online(&sim);
    let of = object(&mm, 512);
    let [a, b] = [(); 2].map(|()| mm.create(None).unwrap());
    map(&mm, a, (0, 512), (of, 0), SHARED);
    map(&mm, b, (0, 512), (of, 0), SHARED);
    mm.advise(b, row(0, 512), Advice::UserfaultArm).unwrap();
    let collapse = |id| mm.collapse(id, Va::new(at(0)), Order::SIZE_2M, CollapseLimits::NONE);
    run(&sim, &mm, 0, a, || store(&sim, &mm, a, at(3), 3));
    assert_eq!(collapse(a), Err(CollapseError::Empty(pages(511))));
    run(&sim, &mm, 0, a, || (0..512).for_each(|n| drop(store(&sim, &mm, a, at(n), n))));
    assert_eq!((collapse(b), collapse(a)), (Ok(()), Ok(())));
    assert_eq!(mm.pages(b).unwrap().get(), 0, "its pages come one by one");
    run(&sim, &mm, 0, b, || assert_eq!(load(&sim, &mm, b, at(9)), 9));
}

/// What Linux 6.18 says of its pool after each of these steps: total, free, reserved, surplus.
#[test]
fn a_pool_counts_pages_of_objects_as_linux_does() {
    let sim = machine(2);
    let mm = online(&sim);
    let size = Order::SIZE_2M;
    mm.resize_pool(size, 8, Budget::ALL).unwrap();
    let shown = |what: &str, expect: (u64, u64, u64, u64)| {
        let pool = mm.pool(size).unwrap();
        let free = (pool.free_hugepages, pool.resv_hugepages, pool.surplus_hugepages);
        assert_eq!((pool.nr_hugepages, free.0, free.1, free.2), expect, "{what}");
    };
    let huge = |n: u64| pages(512 * n);
    let a = mm.create(None).unwrap();
    let (b, mut place) = (mm.create(None).unwrap(), 0);
    let flags = Flags::HUGE_2M;
    let of = mm.create_object(&ObjectRequest { pages: huge(4), flags, ..Default::default() });
    let of = of.unwrap();
    let mut put = |id, first, count: u64, more: Flags| {
        let at = BASE + place * SIZE_2M;
        place += 8;
        let request = request(Place::Fixed(Va::new(at)), count * SIZE_2M, SHARED.with(more));
        mm.map_object(id, &request, (of, huge(first))).map(|range| range.start().get())
    };
    let touch = |nth, id, start: u64, n: u64| {
        run(&sim, &mm, nth, id, || store(&sim, &mm, id, start + n * SIZE_2M, 1))
    };
    let punch = |n| mm.punch_object(of, huge(n), huge(n + 1)).unwrap();
    shown("create 4", (8, 8, 0, 0));
    let first = put(a, 0, 4, Flags::NONE).unwrap();
    shown("map shared 0..4", (8, 8, 4, 0));
    assert_eq!(touch(0, a, first, 0), [Outcome::Mapped(size)]);
    shown("touch 0", (8, 7, 3, 0));
    let second = put(b, 1, 2, Flags::NONE).unwrap();
    shown("map shared 1..3 again", (8, 7, 3, 0));
    punch(0);
    shown("punch 0", (8, 8, 3, 0));
    touch(0, a, first, 0);
    shown("touch 0 again", (8, 7, 3, 0));
    punch(1);
    shown("punch 1, never touched", (8, 7, 3, 0));
    touch(1, b, second, 0);
    shown("touch 1", (8, 6, 2, 0));
    run(&sim, &mm, 0, a, || assert_eq!(load(&sim, &mm, a, first + SIZE_2M), 1, "it is shared"));
    mm.resize_object(of, huge(2)).unwrap();
    shown("truncate to 2", (8, 6, 0, 0));
    mm.resize_object(of, huge(6)).unwrap();
    shown("grow to 6", (8, 6, 0, 0));
    let third = put(a, 2, 4, Flags::NORESERVE).unwrap();
    shown("map 2..6 noreserve", (8, 6, 0, 0));
    touch(0, a, third, 0);
    shown("touch 2 by it", (8, 5, 0, 0));
    put(a, 2, 4, Flags::NONE).unwrap();
    shown("map 2..6 reserved", (8, 5, 3, 0));
    punch(2);
    shown("punch 2", (8, 6, 3, 0));
    put(b, 2, 2, Flags::NONE).unwrap();
    shown("map 2..4 again", (8, 6, 4, 0));
    put(b, 0, 6, Flags::NONE).unwrap();
    shown("map 0..6", (8, 6, 4, 0));
    mm.unmap(a, range(first, 4 * SIZE_2M)).unwrap();
    mm.unmap(b, range(second, 2 * SIZE_2M)).unwrap();
    shown("unmap the first two", (8, 6, 4, 0));
    let child = mm.fork(b).unwrap();
    shown("fork", (8, 6, 4, 0));
    mm.end(child).unwrap();
    shown("exit", (8, 6, 4, 0));
    mm.resize_object(of, huge(40)).unwrap();
    let short = put(a, 0, 12, Flags::NONE).unwrap_err();
    assert!(matches!(short, MapError::NoHugePages(_)), "{short:?}");
    shown("more than there are", (8, 6, 4, 0));
    let (free, most) = (mm.memory().free, 1 << 24);
    mm.resize_object(of, huge(most)).unwrap();
    assert!(matches!(put(a, 0, most / 2, Flags::NONE), Err(MapError::NoHugePages(_))));
    assert!(
        free.get() - mm.memory().free.get() < 8,
        "no tables were made for what is not to be had"
    );
    mm.resize_object(of, huge(40)).unwrap();
    let cut = put(a, 0, 1, Flags::NONE)
        .map(|start| mm.punch_object(of, pages(1), huge(1)).map(|()| start));
    assert!(matches!(cut, Ok(Err(RangeError::Cuts(..)))), "{cut:?}");
    assert_eq!(put(a, 0, 1, Flags::NOHUGEPAGE).err(), None);
    let no_page = mm.object_page(of, pages(0), Access::Write).unwrap_err();
    assert_eq!(no_page, NoPage::Huge(size));
    let kept = mm.object_page(of, pages(5), Access::Read).unwrap().expect("it is there");
    assert!(mm.object_page(of, huge(30), Access::Read).unwrap().is_none(), "a hole");
    mm.resize_object(of, pages(0)).unwrap();
    let beyond = mm.object_page(of, pages(5), Access::Read).unwrap_err();
    assert_eq!(beyond, NoPage::Beyond(pages(5)));
    shown("truncate to 0, and a page is kept", (8, 7, 0, 0));
    drop(kept);
    shown("truncate to 0", (8, 8, 0, 0));
    mm.resize_object(of, huge(8)).unwrap();
    mm.reserve_object(of, huge(1), huge(4)).unwrap();
    shown("reserve 1..4", (8, 8, 3, 0));
    mm.promise_object(of, huge(0), huge(2)).unwrap();
    shown("allocate 0..2", (8, 6, 2, 0));
    mm.reserve_object(of, huge(0), huge(8)).unwrap();
    shown("reserve 0..8", (8, 6, 6, 0));
    mm.resize_object(of, huge(40)).unwrap();
    let short = mm.reserve_object(of, huge(6), huge(9)).unwrap_err();
    assert!(matches!(short, MapError::NoHugePages(_)), "{short:?}");
    let short = mm.promise_object(of, huge(6), huge(9)).unwrap_err();
    assert_eq!(short, RangeError::NoMemory);
    shown("allocate 6..9, all but 8 came", (8, 4, 4, 0));
    mm.promise_object(of, pages(100), huge(6)).unwrap();
    shown("allocate 0..6 from within a page", (8, 0, 0, 0));
    let cut = mm.reserve_object(of, pages(1), huge(1)).unwrap_err();
    assert!(matches!(cut, MapError::Range(RangeError::Cuts(..))), "{cut:?}");
    mm.resize_object(of, pages(0)).unwrap();
    shown("truncate to 0 again", (8, 8, 0, 0));
    mm.end_object(of).unwrap();
}

// The model.

/// Pages of the window that areas lie in, of an object, and of what one operation works on.
const WINDOW: u64 = 160;
const ROOM: u64 = 100;

#[derive(Clone, Debug)]
enum Operation {
    Create { room: u64 },
    Map { of: usize, first: u64, at: u64, count: u64, shared: bool },
    Store { at: u64, step: u64 },
    Load { at: u64, step: u64 },
    Unmap { at: u64, count: u64 },
    Protect { at: u64, count: u64 },
    Drop { at: u64, count: u64 },
    Move { at: u64, count: u64, to: u64 },
    Fork,
    End,
    Unname { of: usize },
    Resize { of: usize, room: u64 },
    Punch { of: usize, from: u64, count: u64 },
    Poke { of: usize, page: u64 },
    Populate { of: usize, from: u64, count: u64 },
    Split { at: u64, order: u8, share: bool },
    Relocate { at: u64 },
    Compact,
    Collapse { of: usize, page: u64, order: u8 },
}

fn operation() -> impl Strategy<Value = Operation> {
    let (at, of) = (|| 0..WINDOW, || 0..4usize);
    let count = || prop_oneof![1..6u64, 1..90u64];
    prop_oneof![
        2 => (1..ROOM).prop_map(|room| Operation::Create { room }),
        6 => (of(), 0..ROOM, at(), count(), any::<bool>()).prop_map(|(of, first, at, count, shared)| {
            // Often alike in the object and in the space.
            let first = if first % 3 == 0 { first } else { at % 64 };
            Operation::Map { of, first, at, count, shared }
        }),
        8 => (at(), 1..9u64).prop_map(|(at, step)| Operation::Store { at, step }),
        6 => (at(), 1..9u64).prop_map(|(at, step)| Operation::Load { at, step }),
        3 => (at(), count()).prop_map(|(at, count)| Operation::Unmap { at, count }),
        1 => (at(), count()).prop_map(|(at, count)| Operation::Protect { at, count }),
        1 => (at(), count()).prop_map(|(at, count)| Operation::Drop { at, count }),
        3 => (at(), count(), at()).prop_map(|(at, count, to)| Operation::Move { at, count, to }),
        2 => Just(Operation::Fork),
        1 => Just(Operation::End),
        1 => of().prop_map(|of| Operation::Unname { of }),
        2 => (of(), 0..ROOM).prop_map(|(of, room)| Operation::Resize { of, room }),
        2 => (of(), 0..ROOM, count()).prop_map(|(of, from, count)| Operation::Punch { of, from, count }),
        2 => (of(), 0..ROOM).prop_map(|(of, page)| Operation::Poke { of, page }),
        1 => (of(), 0..ROOM, count())
            .prop_map(|(of, from, count)| Operation::Populate { of, from, count }),
        2 => (at(), 0..4u8, any::<bool>())
            .prop_map(|(at, order, share)| Operation::Split { at, order, share }),
        2 => at().prop_map(|at| Operation::Relocate { at }),
        1 => Just(Operation::Compact),
        2 => (of(), 0..ROOM, 2..6u8)
            .prop_map(|(of, page, order)| Operation::Collapse { of, page, order }),
    ]
}

/// What a program has at a page.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Mapped {
    of: usize,
    page: u64,
    shared: bool,
    writable: bool,
    /// A private page that was written.
    copy: Option<u64>,
}

/// The naive twin: contents by page.
#[derive(Default)]
struct Model {
    objects: Vec<(u64, BTreeMap<u64, u64>)>,
    spaces: Vec<BTreeMap<u64, Mapped>>,
}

impl Model {
    /// What a load gives, if it is not refused.
    fn seen(&self, nth: usize, at: u64) -> Option<u64> {
        let mapped = self.spaces[nth].get(&at)?;
        let (room, contents) = &self.objects[mapped.of];
        match mapped.copy {
            Some(copy) => Some(copy),
            None if mapped.page >= *room => None,
            None => Some(contents.get(&mapped.page).copied().unwrap_or(0)),
        }
    }
    fn store(&mut self, nth: usize, at: u64, value: u64) -> bool {
        let Some(mapped) = self.spaces[nth].get_mut(&at) else { return false };
        let (room, contents) = &mut self.objects[mapped.of];
        if !mapped.writable || (mapped.copy.is_none() && mapped.page >= *room) {
            return false;
        }
        match mapped.shared {
            true => drop(contents.insert(mapped.page, value)),
            false => mapped.copy = Some(value),
        }
        true
    }
    fn resize(&mut self, of: usize, to: u64) {
        let (room, contents) = &mut self.objects[of];
        *room = to;
        contents.retain(|page, _| *page < to);
        for mapped in self.spaces.iter_mut().flat_map(BTreeMap::values_mut) {
            if mapped.of == of && mapped.page >= to {
                mapped.copy = None;
            }
        }
    }
}

/// The manager beside its twin.
struct Both<'s, 'm> {
    sim: &'s Sim,
    mm: &'s Mm<'m>,
    model: Model,
    objects: Vec<(ObjectId, bool)>,
    spaces: Vec<SpaceId>,
    value: u64,
}

impl Both<'_, '_> {
    fn on<R>(&self, nth: usize, act: impl FnOnce(SpaceId) -> R) -> R {
        let id = self.spaces[nth];
        run(self.sim, self.mm, nth, id, || act(id))
    }
    fn object(&self, of: usize) -> Option<(usize, ObjectId)> {
        let of = of.checked_rem(self.objects.len())?;
        self.objects[of].1.then_some((of, self.objects[of].0))
    }
    fn load(&self, nth: usize, page: u64) {
        let expect = self.model.seen(nth, page);
        let got = self.on(nth, |id| match mm_load(self.sim, self.mm, id, at(page)) {
            Ok(value) => Some(value),
            Err(Outcome::Refused(_)) => None,
            Err(other) => panic!("{other:?}"),
        });
        assert_eq!(got, expect, "page {page} of space {nth}");
    }
    fn apply(&mut self, nth: usize, operation: &Operation) {
        let (mm, nth) = (self.mm, nth % self.spaces.len());
        let id = self.spaces[nth];
        let span = |at: u64, count: u64| at..(at + count).min(WINDOW);
        let of_rows = |rows: &std::ops::Range<u64>| row(rows.start, rows.end - rows.start);
        match *operation {
            Operation::Create { room } if self.objects.len() < 4 => {
                self.objects.push((object(mm, room), true));
                self.model.objects.push((room, BTreeMap::new()));
            }
            Operation::Map { of, first, at, count, shared } => {
                let Some((of, object)) = self.object(of) else { return };
                let rows = span(at, count);
                let flags = if shared { SHARED } else { PRIVATE };
                map(mm, id, (at, rows.end - at), (object, first), flags);
                for (page, row) in (first..).zip(rows) {
                    let mapped = Mapped { of, page, shared, writable: true, copy: None };
                    self.model.spaces[nth].insert(row, mapped);
                }
            }
            Operation::Store { at: from, step } => {
                for page in (from..(from + 40).min(WINDOW)).step_by(step as usize) {
                    self.value += 1;
                    let value = self.value;
                    let ends = self.on(nth, |id| store(self.sim, mm, id, at(page), value));
                    let got = !matches!(ends.last(), Some(Outcome::Refused(_)));
                    assert_eq!(got, self.model.store(nth, page, value), "page {page}: {ends:?}");
                }
            }
            Operation::Load { at, step } => {
                (at..(at + 40).min(WINDOW))
                    .step_by(step as usize)
                    .for_each(|page| self.load(nth, page));
            }
            Operation::Unmap { at, count } => {
                let rows = span(at, count);
                mm.unmap(id, of_rows(&rows)).unwrap();
                self.model.spaces[nth].retain(|row, _| !rows.contains(row));
            }
            Operation::Protect { at, count } => {
                let rows = span(at, count);
                if mm.protect(id, of_rows(&rows), Flags::READ).is_ok() {
                    let all = self.model.spaces[nth].range_mut(rows);
                    all.for_each(|(_, mapped)| mapped.writable = false);
                }
            }
            Operation::Drop { at, count } => {
                let rows = span(at, count);
                if mm.advise(id, of_rows(&rows), Advice::DontNeed).is_ok() {
                    self.model.spaces[nth]
                        .range_mut(rows)
                        .for_each(|(_, mapped)| mapped.copy = None);
                }
            }
            Operation::Move { at: from, count, to } => {
                // As much as is mapped alike.
                let space = &self.model.spaces[nth];
                let alike = |row: &u64| {
                    let (first, here) = (space.get(&from), space.get(row));
                    first.zip(here).is_some_and(|(first, here)| {
                        let shift = |at: u64, page: u64| page.wrapping_sub(at);
                        (first.of, first.shared, first.writable, shift(from, first.page))
                            == (here.of, here.shared, here.writable, shift(*row, here.page))
                    })
                };
                let rows = from..from + span(from, count).take_while(alike).count() as u64;
                if rows.is_empty() {
                    return;
                }
                let count = rows.end - rows.start;
                let bytes = Bytes::new((rows.end - rows.start) * PAGE);
                let to_va = Va::new(at(to));
                if to + count <= WINDOW
                    && mm.remap(id, of_rows(&rows), bytes, Move::To(to_va)).is_ok()
                {
                    let moved: Vec<_> = rows
                        .clone()
                        .map(|row| self.model.spaces[nth].remove(&row).unwrap())
                        .collect();
                    for (row, mapped) in (to..).zip(moved) {
                        self.model.spaces[nth].insert(row, mapped);
                    }
                } else if to + count <= WINDOW {
                    // The target may have been unmapped.
                    let space = &mut self.model.spaces[nth];
                    space.retain(|row, _| mm.area(id, Va::new(at(*row))).is_some());
                }
            }
            Operation::Fork if self.spaces.len() < 4 => {
                self.spaces.push(mm.fork(id).unwrap());
                let child = self.model.spaces[nth].clone();
                self.model.spaces.push(child);
            }
            Operation::End if self.spaces.len() > 1 => {
                for n in 0..2 {
                    self.sim.on(cpu(n), || mm.switch(None).unwrap());
                }
                mm.end(self.spaces.remove(nth)).unwrap();
                self.model.spaces.remove(nth);
            }
            Operation::Unname { of } => {
                if let Some((of, object)) = self.object(of) {
                    mm.end_object(object).unwrap();
                    self.objects[of].1 = false;
                }
            }
            Operation::Resize { of, room } => {
                if let Some((of, object)) = self.object(of) {
                    mm.resize_object(object, pages(room)).unwrap();
                    self.model.resize(of, room);
                }
            }
            Operation::Punch { of, from, count } => {
                if let Some((of, object)) = self.object(of) {
                    mm.punch_object(object, pages(from), pages(from + count)).unwrap();
                    self.model.objects[of].1.retain(|page, _| !(from..from + count).contains(page));
                }
            }
            Operation::Poke { of, page } => {
                if let Some((of, object)) = self.object(of)
                    && page < self.model.objects[of].0
                {
                    let expect = self.model.objects[of].1.get(&page).copied().unwrap_or(0);
                    assert_eq!(peek(self.sim, mm, object, page).unwrap_or(0), expect);
                    self.value += 1;
                    poke(self.sim, mm, object, page, self.value);
                    self.model.objects[of].1.insert(page, self.value);
                }
            }
            Operation::Populate { of, from, count } => {
                if let Some((of, object)) = self.object(of) {
                    mm.promise_object(object, pages(from), pages(from + count)).unwrap();
                    let end = self.model.objects[of].0.min(from + count);
                    for page in from..end {
                        let expect = self.model.objects[of].1.get(&page).copied().unwrap_or(0);
                        assert_eq!(peek(self.sim, mm, object, page), Some(expect), "{page}");
                    }
                }
            }
            Operation::Split { at: page, order, share } => {
                let zeros = if share { ZeroPieces::Share } else { ZeroPieces::Keep };
                let into = SplitInto { order: Order::new(order).unwrap(), zeros };
                let _ = mm.split(id, Va::new(at(page)), into);
            }
            Operation::Relocate { at: page } => {
                if let Some(frame) = mm.frame_at(id, Va::new(at(page))) {
                    mm.relocate(frame).unwrap();
                }
            }
            Operation::Compact => drop(mm.compact(&CompactRequest::ALL, &mut [])),
            Operation::Collapse { of, page, order: n } => {
                if let Some((_, object)) = self.object(of) {
                    let first = pages(page >> n << n);
                    let _ = mm.collapse_object(object, first, order(n), CollapseLimits::NONE);
                }
            }
            Operation::Create { .. } | Operation::Fork | Operation::End => {}
        }
    }
}

/// Loads as a program does, or says how the fault ended that was refused.
fn mm_load(sim: &Sim, mm: &Mm<'_>, id: SpaceId, va: u64) -> Result<u64, Outcome> {
    for _ in 0..10 {
        match sim.user_load(Va::new(va), 8) {
            Ok(value) => return Ok(value),
            Err(_) => match mm.fault(id, Va::new(va), Access::Read) {
                refused @ Outcome::Refused(_) => return Err(refused),
                Outcome::OutOfMemory => panic!("there is memory"),
                _ => {}
            },
        }
    }
    panic!("the load at {va:#x} never gets through");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Programs and the kernel find in each page what the twin says, whatever its folio is and
    /// wherever it goes; every counter agrees in the end, and no checker complains.
    #[test]
    fn objects_are_what_a_naive_twin_says(
        operations in prop::collection::vec((0..8usize, operation()), 1..60),
        sizes in 0..4u8,
    ) {
        let sim = machine(2);
        let mm = online(&sim);
        mm.set_object_policy([Policy::BASE_ONLY, only(2), only(4), Policy::always(Orders::ANON)][usize::from(sizes)]);
        let spaces = vec![mm.create(None).unwrap()];
        let model = Model { spaces: vec![BTreeMap::new()], ..Model::default() };
        let mut both = Both { sim: &sim, mm: &mm, model, objects: vec![], spaces, value: 0 };
        for (nth, operation) in &operations {
            both.apply(*nth, operation);
        }
        for nth in 0..both.spaces.len() {
            (0..WINDOW).for_each(|page| both.load(nth, page));
        }
        recount(&sim, &mm, &both.spaces);
    }
}

/// A page that was punched out of a folio comes again when it is asked for.
#[test]
fn a_hole_in_a_folio_is_promised_again() {
    let sim = machine(2);
    let mm = online(&sim);
    mm.set_object_policy(only(4));
    let (of, a) = (object(&mm, 52), mm.create(None).unwrap());
    map(&mm, a, (47, 2), (of, 47), PRIVATE);
    run(&sim, &mm, 0, a, || assert_eq!([47, 48].map(|page| load(&sim, &mm, a, at(page))), [0, 0]));
    mm.punch_object(of, pages(39), pages(40)).unwrap();
    mm.promise_object(of, pages(14), pages(40)).unwrap();
    for page in 14..40 {
        assert_eq!(peek(&sim, &mm, of, page), Some(0), "{page}");
    }
}

/// An attachment that leaves is on its object's list a while longer. A mapping at the same distance
/// that comes then gets one of its own (rmap::attachment::X4).
#[test]
fn an_object_is_mapped_alike_as_its_attachment_leaves() {
    for step in 1.. {
        let machine = Beside::of_records(sim(2, 48));
        let mm = machine.manager(Policy::BASE_ONLY);
        mm.cpus().for_each(|cpu| machine.sim.on(cpu, || mm.online()));
        let (id, of, other) = (mm.create(None).unwrap(), object(&mm, 4), object(&mm, 4));
        map(&mm, id, (8, 4), (other, 0), SHARED); // both lists have one
        map(&mm, id, (0, 2), (of, 0), SHARED);
        let alike = || map(&mm, id, (2, 2), (of, 2), SHARED);
        let ran =
            machine.before_step(step, alike, || mm.unmap(id, range(at(0), 2 * PAGE)).unwrap());
        if ran.is_none() {
            assert!(step > 10, "{step} steps");
            break;
        }
        mm.audit(&[id]).unwrap();
        mm.punch_object(of, pages(0), pages(4)).unwrap();
        mm.end(id).unwrap();
        [of, other].into_iter().for_each(|object| mm.end_object(object).unwrap());
    }
}
