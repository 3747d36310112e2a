//! Subpools: what the objects of one may have of a pool, what is kept for them, and that each page
//! and each reservation counts once.

use crate::common::beside::Beside;
use crate::common::*;
use crate::fill_huge::{SIZE, at, huge, places};
use crate::private_huge::shown;
use crate::retired::frame;
use foliant::manager::Damage;
use foliant::object::ObjectRequest;
use foliant::pool::{Budget, Shortage, SubpoolCounters, SubpoolError, SubpoolId, SubpoolLimits};
use foliant::space::{Advice, Flags, MapError, ObjectId, Place, RangeError, SpaceId};
use foliant::{Access, Outcome, Policy};
use foliant_sim::Sim;
use foliant_units::{Order, Va, VaRange};
use proptest::prelude::*;

const HUGE: Flags = Flags::HUGE_2M;
const PRIVATE: Flags = Flags::READ_WRITE;
const SHARED: Flags = PRIVATE.with(Flags::SHARED);
const NONE: Outcome = Outcome::NoHugePage(SIZE);

fn world(sim: &Sim, pages: u64) -> AuditedMm<'_> {
    let mm = manager(sim, Policy::BASE_ONLY);
    for cpu in mm.cpus() {
        sim.on(cpu, || mm.online());
    }
    mm.resize_pool(SIZE, pages, Budget::ALL).unwrap();
    mm
}
fn make(mm: &Mm<'_>, most: u64, least: u64) -> SubpoolId {
    mm.pools().make_subpool(SIZE, SubpoolLimits { most, least }).unwrap()
}
fn object(mm: &Mm<'_>, of: SubpoolId, pages: u64) -> ObjectId {
    let subpool = Some(of);
    let request = ObjectRequest { pages: huge(pages), flags: HUGE, subpool, ..Default::default() };
    mm.create_object(&request).unwrap()
}
/// Maps so many pages of an object from its `first` on at the place with the number `nth`.
fn map(
    mm: &Mm<'_>,
    id: SpaceId,
    (nth, count): (u64, u64),
    (of, first): (ObjectId, u64),
    flags: Flags,
) -> Result<VaRange, MapError> {
    let request = request(Place::Fixed(Va::new(at(nth))), count * SIZE_2M, flags);
    mm.map_object(id, &request, (of, huge(first)))
}
fn counts(mm: &Mm<'_>, of: SubpoolId) -> SubpoolCounters {
    mm.pools().subpool(of).unwrap()
}
fn used(mm: &Mm<'_>, of: SubpoolId) -> u64 {
    counts(mm, of).used
}
fn program(mm: &Mm<'_>) -> SpaceId {
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    id
}
fn short(wanted: u64, room: u64) -> MapError {
    MapError::NoHugePages(Shortage::Subpool { order: SIZE, wanted, room })
}

#[test]
fn what_is_mapped_shared_counts_once_for_its_object() {
    let sim = sim(2, 64);
    let mm = world(&sim, 8);
    let (of, id) = (make(&mm, 3, 0), program(&mm));
    let file = object(&mm, of, 6);
    assert_eq!(map(&mm, id, (0, 4), (file, 0), SHARED), Err(short(4, 3)));
    assert_eq!((used(&mm, of), mm.pages(id).unwrap().get()), (0, 0));
    map(&mm, id, (0, 2), (file, 0), SHARED).unwrap();
    map(&mm, id, (8, 3), (file, 0), SHARED).unwrap();
    assert_eq!((used(&mm, of), counts(&mm, of).room()), (3, 0));
    (0..3).for_each(|nth| _ = store(&sim, &mm, id, at(8 + nth), nth));
    assert_eq!(used(&mm, of), 3);
    shown(&mm, (8, 5, 0, 0));
    // Without a reservation a page is refused when it is touched.
    map(&mm, id, (16, 6), (file, 0), SHARED.with(Flags::NORESERVE)).unwrap();
    assert_eq!(store(&sim, &mm, id, at(19), 1), [NONE]);
    mm.punch_object(file, huge(1), huge(2)).unwrap();
    assert_eq!(used(&mm, of), 2, "a page that was punched out had no reservation any more");
    assert_eq!(store(&sim, &mm, id, at(19), 1), [Outcome::Mapped(SIZE)]);
    assert_eq!(mm.promise_object(file, huge(1), huge(2)), Err(RangeError::NoMemory));
    mm.unmap(id, places(0, 32)).unwrap();
    assert_eq!(used(&mm, of), 3, "the file has them");
    mm.end_object(file).unwrap();
    assert_eq!(used(&mm, of), 0);
    shown(&mm, (8, 8, 0, 0));
    assert!(mm.pools().end_subpool(of) && !mm.pools().end_subpool(of));
    finish(&sim, &mm, &[id]);
}

#[test]
fn private_mappings_count_each_for_itself() {
    let sim = sim(2, 64);
    let mm = world(&sim, 8);
    let (of, id) = (make(&mm, 4, 0), program(&mm));
    let file = object(&mm, of, 4);
    map(&mm, id, (0, 2), (file, 0), PRIVATE).unwrap();
    map(&mm, id, (8, 2), (file, 0), PRIVATE).unwrap();
    assert_eq!(map(&mm, id, (16, 1), (file, 0), PRIVATE), Err(short(1, 0)));
    assert_eq!(store(&sim, &mm, id, at(0), 5), [Outcome::Mapped(SIZE)]);
    assert_eq!(used(&mm, of), 4);
    mm.unmap(id, places(9, 1)).unwrap();
    assert_eq!(used(&mm, of), 3);
    // A child has none reserved: its copy counts, too.
    let child = mm.fork(id).unwrap();
    mm.switch(Some(child)).unwrap();
    assert_eq!(store(&sim, &mm, child, at(0), 6), [Outcome::Copied]);
    assert_eq!(store(&sim, &mm, child, at(1), 6), [NONE]);
    assert_eq!(used(&mm, of), 4);
    mm.switch(Some(id)).unwrap();
    mm.end(child).unwrap();
    assert_eq!(used(&mm, of), 3);
    // What is dropped has its reservation again.
    mm.advise(id, places(0, 1), Advice::DontNeed).unwrap();
    assert_eq!(used(&mm, of), 3);
    shown(&mm, (8, 8, 3, 0));
    assert_eq!(load(&sim, &mm, id, at(0)), 0);
    mm.unmap(id, places(0, 16)).unwrap();
    assert_eq!(used(&mm, of), 0);
    finish(&sim, &mm, &[id]);
}

#[test]
fn what_is_kept_for_a_subpool_is_nobody_elses() {
    let sim = sim(2, 64);
    let mm = world(&sim, 4);
    let (of, id) = (make(&mm, 4, 3), program(&mm));
    shown(&mm, (4, 4, 3, 0));
    let file = object(&mm, of, 4);
    map(&mm, id, (0, 2), (file, 0), SHARED).unwrap();
    shown(&mm, (4, 4, 3, 0));
    assert_eq!(counts(&mm, of).own(), 1);
    // One that nobody reserved is there for others; the others are not.
    let elsewhere = |bytes| request(Place::Fixed(Va::new(at(40))), bytes, PRIVATE.with(HUGE));
    assert!(mm.map(id, &elsewhere(2 * SIZE_2M)).is_err());
    mm.map(id, &elsewhere(SIZE_2M)).unwrap();
    // A page that is taken without a reservation is the last one that was kept.
    map(&mm, id, (8, 4), (file, 0), SHARED.with(Flags::NORESERVE)).unwrap();
    assert_eq!(store(&sim, &mm, id, at(10), 1), [Outcome::Mapped(SIZE)]);
    assert_eq!(store(&sim, &mm, id, at(11), 1), [NONE], "the pool has no more");
    shown(&mm, (4, 3, 3, 0));
    assert_eq!((used(&mm, of), counts(&mm, of).own()), (3, 0));
    // What comes back is kept again.
    mm.punch_object(file, huge(2), huge(3)).unwrap();
    shown(&mm, (4, 4, 4, 0));
    assert_eq!((used(&mm, of), counts(&mm, of).own()), (2, 1));
    mm.unmap(id, places(40, 1)).unwrap();
    assert_eq!(map(&mm, id, (20, 5), (file, 0), SHARED.with(Flags::NORESERVE)).err(), None);
    mm.resize_object(file, huge(0)).unwrap();
    shown(&mm, (4, 4, 3, 0));
    assert!(mm.pools().end_subpool(of));
    shown(&mm, (4, 4, 0, 0));
    finish(&sim, &mm, &[id]);
}

#[test]
fn a_subpool_that_is_not_to_be_had_is_refused() {
    let sim = sim(1, 64);
    let mm = world(&sim, 4);
    let pools = mm.pools();
    let try_make = |most, least| pools.make_subpool(SIZE, SubpoolLimits { most, least });
    let limits = SubpoolLimits { most: 2, least: 3 };
    assert_eq!(try_make(2, 3), Err(SubpoolError::Limits(limits)));
    assert!(matches!(try_make(9, 5), Err(SubpoolError::Pages(_))));
    assert!(pools.make_subpool(Order::BASE, SubpoolLimits::NONE).is_err());
    let many: Vec<SubpoolId> = (0..32).map(|_| try_make(1, 0).unwrap()).collect();
    assert_eq!(try_make(3, 2), Err(SubpoolError::TooMany(32)));
    shown(&mm, (4, 4, 0, 0));
    assert!(pools.end_subpool(many[7]));
    let next = try_make(2, 0).unwrap();
    assert_eq!(pools.subpool(many[7]), None, "the name that it had is no other one's");
    let of_other = |subpool, flags| {
        let subpool = Some(subpool);
        mm.create_object(&ObjectRequest { pages: huge(1), flags, subpool, ..Default::default() })
    };
    assert_eq!(of_other(many[7], HUGE).err(), Some(MapError::NoSubpool(many[7])));
    assert_eq!(of_other(next, Flags::HUGE_1G).err(), Some(MapError::NoSubpool(next)));
    assert_eq!(of_other(next, Flags::NONE).err(), Some(MapError::NoSubpool(next)));
    for error in [try_make(2, 3).unwrap_err(), try_make(9, 5).unwrap_err()] {
        assert!(error.to_string().contains("huge pages"), "{error}");
    }
    for id in many.into_iter().chain([next]) {
        pools.end_subpool(id);
    }
    finish(&sim, &mm, &[]);
}

/// What a subpool's objects have when it ends is theirs; another one with its number knows nothing
/// of it.
#[test]
fn what_outlives_a_subpool_counts_for_none() {
    let sim = sim(2, 64);
    let mm = world(&sim, 8);
    let (of, id) = (make(&mm, 3, 1), program(&mm));
    let file = object(&mm, of, 4);
    map(&mm, id, (0, 2), (file, 0), SHARED).unwrap();
    map(&mm, id, (8, 1), (file, 3), PRIVATE).unwrap();
    store(&sim, &mm, id, at(0), 1);
    store(&sim, &mm, id, at(8), 1);
    assert!(mm.pools().end_subpool(of));
    let other = make(&mm, 2, 2);
    shown(&mm, (8, 6, 3, 0));
    map(&mm, id, (16, 4), (file, 0), SHARED).unwrap();
    shown(&mm, (8, 6, 5, 0));
    store(&sim, &mm, id, at(17), 1);
    mm.unmap(id, places(0, 20)).unwrap();
    mm.end_object(file).unwrap();
    assert_eq!(used(&mm, other), 0);
    shown(&mm, (8, 8, 2, 0));
    mm.pools().end_subpool(other);
    finish(&sim, &mm, &[id]);
}

/// Pages on demand are made for a subpool as for others, and go as others do.
#[test]
fn surplus_pages_count_for_a_subpool() {
    let sim = sim(2, 64);
    let mm = world(&sim, 1);
    mm.pools().set_overcommit(SIZE, 3).unwrap();
    let (of, id) = (make(&mm, 3, 2), program(&mm));
    shown(&mm, (2, 2, 2, 1));
    let file = object(&mm, of, 6);
    map(&mm, id, (0, 6), (file, 0), SHARED.with(Flags::NORESERVE)).unwrap();
    (0..3).for_each(|nth| _ = store(&sim, &mm, id, at(nth), nth));
    shown(&mm, (3, 0, 0, 2));
    assert_eq!(store(&sim, &mm, id, at(3), 1), [NONE], "the mount has no room");
    assert_eq!(used(&mm, of), 3);
    mm.resize_object(file, huge(0)).unwrap();
    shown(&mm, (2, 2, 2, 1));
    mm.pools().end_subpool(of);
    shown(&mm, (1, 1, 0, 0));
    finish(&sim, &mm, &[id]);
}

/// A page that moves away from memory counts at its new place, and one that breaks no more.
#[test]
fn pages_that_move_and_break_are_counted() {
    let sim = sim(2, 64);
    let mm = world(&sim, 6);
    let (of, id) = (make(&mm, 2, 2), program(&mm));
    let file = object(&mm, of, 2);
    map(&mm, id, (0, 2), (file, 0), SHARED).unwrap();
    (0..2).for_each(|nth| _ = store(&sim, &mm, id, at(nth), nth));
    mm.retire(frame(&mm, id, Va::new(at(0))), Damage::Foreseen).unwrap();
    assert_eq!(used(&mm, of), 2);
    shown(&mm, (5, 3, 0, 0));
    mm.retire(frame(&mm, id, Va::new(at(1))), Damage::Done).unwrap();
    assert_eq!(used(&mm, of), 2, "the file has it still, and shows it to nobody");
    shown(&mm, (5, 3, 0, 0));
    mm.resize_object(file, huge(0)).unwrap();
    assert_eq!((used(&mm, of), counts(&mm, of).own()), (0, 2));
    shown(&mm, (4, 4, 2, 0));
    // What is kept is not what a page moves to: one is made for it.
    let other = object(&mm, of, 2);
    map(&mm, id, (8, 1), (other, 0), PRIVATE.with(Flags::NORESERVE)).unwrap();
    store(&sim, &mm, id, at(8), 1);
    let elsewhere = request(Place::Fixed(Va::new(at(20))), 2 * SIZE_2M, PRIVATE.with(HUGE));
    mm.map(id, &elsewhere).unwrap();
    shown(&mm, (4, 3, 3, 0));
    mm.retire(frame(&mm, id, Va::new(at(8))), Damage::Foreseen).unwrap();
    assert_eq!((used(&mm, of), counts(&mm, of).own()), (1, 1));
    shown(&mm, (4, 3, 3, 0));
    mm.unmap(id, places(8, 16)).unwrap();
    assert_eq!(used(&mm, of), 0);
    mm.pools().end_subpool(of);
    finish(&sim, &mm, &[id]);
}

/// A page breaks on its way to a place, and the place goes: its reservation and the page count
/// once, whichever comes back first.
#[test]
fn a_page_that_breaks_on_its_way_counts_once() {
    for flags in [PRIVATE, SHARED, PRIVATE.with(Flags::NORESERVE)] {
        for step in 1.. {
            let beside = Beside::new(sim(2, 24));
            let mm = beside.manager(Policy::BASE_ONLY);
            beside.sim.on(cpu(1), || mm.online());
            mm.resize_pool(SIZE, 3, Budget::ALL).unwrap();
            let (of, id) = (make(&mm, 1, 1), mm.create(None).unwrap());
            let file = object(&mm, of, 1);
            map(&mm, id, (8, 1), (file, 0), PRIVATE).unwrap();
            mm.fault(id, Va::new(at(8)), Access::Write);
            let next = frame(&mm, id, Va::new(at(8)));
            mm.unmap(id, places(8, 1)).unwrap();
            map(&mm, id, (0, 1), (file, 0), flags).unwrap();
            let breaks = || {
                _ = mm.retire(next, Damage::Done);
                mm.unmap(id, places(0, 1)).unwrap();
                mm.resize_object(file, huge(0)).unwrap();
                mm.pools().collect();
            };
            let act = || _ = mm.fault(id, Va::new(at(0)), Access::Write);
            if beside.before_step(step, breaks, act).is_none() {
                assert!(step > 4);
                break;
            }
            let what = format!("{flags:?}, step {step}");
            assert_eq!((used(&mm, of), counts(&mm, of).own()), (0, 1), "{what}");
            mm.audit(&[id]).unwrap_or_else(|why| panic!("{what}: {why:?}"));
        }
    }
}

/// A page that was dropped and that a child still has is counted once, and its place, for which
/// there is no other page, not at all.
#[test]
fn a_reservation_that_is_not_had_again_is_not_counted() {
    let sim = sim(2, 64);
    let mm = world(&sim, 1);
    let (of, id) = (make(&mm, 3, 0), program(&mm));
    let file = object(&mm, of, 1);
    map(&mm, id, (0, 1), (file, 0), PRIVATE).unwrap();
    store(&sim, &mm, id, at(0), 1);
    let child = mm.fork(id).unwrap();
    mm.advise(id, places(0, 1), Advice::DontNeed).unwrap();
    assert_eq!(used(&mm, of), 1);
    shown(&mm, (1, 0, 0, 0));
    mm.end(child).unwrap();
    assert_eq!(used(&mm, of), 0);
    finish(&sim, &mm, &[id]);
}

#[derive(Clone, Debug)]
enum Operation {
    Map { nth: u64, count: u64, of: usize, first: u64, shared: bool, reserves: bool },
    Touch { nth: u64, writes: bool },
    Unmap { nth: u64, count: u64 },
    Drop { nth: u64, count: u64 },
    Fork,
    Exit,
    Anchor { nth: u64 },
    Punch { of: usize, first: u64, count: u64 },
    Resize { of: usize, room: u64 },
    Promise { of: usize, first: u64, count: u64 },
    Leave { nth: u64 },
}
const PLACES: u64 = 12;

fn operations() -> impl Strategy<Value = Operation> {
    let (nth, count, of, first) = (0..PLACES, 1..5u64, 0..4usize, 0..5u64);
    let put = (nth.clone(), count.clone(), of.clone(), first.clone(), any::<bool>(), 0..4u8);
    prop_oneof![
        5 => put.prop_map(|(nth, count, of, first, shared, reserves)| {
            Operation::Map { nth, count, of, first, shared, reserves: reserves > 0 }
        }),
        8 => (nth.clone(), any::<bool>())
            .prop_map(|(nth, writes)| Operation::Touch { nth, writes }),
        2 => (nth.clone(), count.clone()).prop_map(|(nth, count)| Operation::Unmap { nth, count }),
        2 => (nth.clone(), count.clone()).prop_map(|(nth, count)| Operation::Drop { nth, count }),
        1 => Just(Operation::Fork),
        1 => Just(Operation::Exit),
        1 => nth.clone().prop_map(|nth| Operation::Anchor { nth }),
        2 => (of.clone(), first.clone(), count.clone())
            .prop_map(|(of, first, count)| Operation::Punch { of, first, count }),
        1 => (of.clone(), 0..6u64).prop_map(|(of, room)| Operation::Resize { of, room }),
        1 => (of, first, count)
            .prop_map(|(of, first, count)| Operation::Promise { of, first, count }),
        1 => nth.prop_map(|nth| Operation::Leave { nth }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// All users of the pool are in subpools: what is used or reserved of it, but for what is kept,
    /// is what these use.
    #[test]
    fn each_page_and_each_reservation_counts_once(
        operations in prop::collection::vec(operations(), 1..60),
        (surplus, least) in (0..4u64, 0..4u64),
    ) {
        let sim = sim(1, 64);
        let mm = world(&sim, 9);
        mm.pools().set_overcommit(SIZE, surplus).unwrap();
        let subpools = [make(&mm, 5, least), make(&mm, u64::MAX, 1)];
        let files: Vec<ObjectId> =
            (0..4).map(|nth| object(&mm, subpools[nth % 2], 4)).collect();
        let mut spaces = vec![program(&mm)];
        for operation in operations {
            let id = *spaces.last().unwrap();
            let page = |nth| mm.frame_at(id, Va::new(at(nth)));
            match operation {
                Operation::Map { nth, count, of, first, shared, reserves } => {
                    let flags = if shared { SHARED } else { PRIVATE };
                    let flags = if reserves { flags } else { flags.with(Flags::NORESERVE) };
                    _ = map(&mm, id, (nth, count), (files[of], first), flags);
                }
                Operation::Touch { nth, writes } => {
                    let access = if writes { Access::Write } else { Access::Read };
                    mm.fault(id, Va::new(at(nth)), access);
                }
                Operation::Unmap { nth, count } => mm.unmap(id, places(nth, count)).unwrap(),
                Operation::Drop { nth, count } => {
                    _ = mm.advise(id, places(nth, count), Advice::DontNeed);
                }
                Operation::Fork if spaces.len() < 3 => spaces.push(mm.fork(id).unwrap()),
                Operation::Exit if spaces.len() > 1 => {
                    spaces.pop();
                    mm.switch(spaces.last().copied()).unwrap();
                    mm.end(id).unwrap();
                }
                Operation::Fork | Operation::Exit => {}
                Operation::Anchor { nth } => {
                    if let Ok(anchor) = mm.anchor(id, places(nth, 1), Access::Write)
                        && spaces.len() < 3
                    {
                        let child = mm.fork(id);
                        drop(anchor);
                        spaces.extend(child.ok());
                    }
                }
                Operation::Punch { of, first, count } => {
                    mm.punch_object(files[of], huge(first), huge(first + count)).unwrap();
                }
                Operation::Resize { of, room } => mm.resize_object(files[of], huge(room)).unwrap(),
                Operation::Promise { of, first, count } => {
                    _ = mm.promise_object(files[of], huge(first), huge(first + count));
                }
                Operation::Leave { nth } => {
                    if let Some(frame) = page(nth) {
                        _ = mm.retire(frame, Damage::Foreseen);
                    }
                }
            }
            mm.switch(spaces.last().copied()).unwrap();
            let all = subpools.map(|of| counts(&mm, of));
            let pool = mm.pool(SIZE).unwrap();
            let own: u64 = all.iter().map(SubpoolCounters::own).sum();
            let taken = pool.nr_hugepages - pool.free_hugepages + pool.resv_hugepages - own;
            prop_assert_eq!(all.iter().map(|it| it.used).sum::<u64>(), taken, "{:?}", operation);
            prop_assert!(all.iter().all(|it| it.used <= it.limits.most));
            prop_assert!(pool.resv_hugepages <= pool.free_hugepages);
        }
        for id in spaces.drain(..).rev() {
            mm.switch(None).unwrap();
            mm.end(id).unwrap();
        }
        files.iter().for_each(|file| mm.end_object(*file).unwrap());
        prop_assert!(subpools.iter().all(|of| used(&mm, *of) == 0));
        subpools.iter().for_each(|of| _ = mm.pools().end_subpool(*of));
        let pool = mm.pool(SIZE).unwrap();
        prop_assert_eq!((pool.resv_hugepages, pool.surplus_hugepages), (0, 0));
        finish(&sim, &mm, &[]);
    }
}
