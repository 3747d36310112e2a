//! Places that a handler has poisoned: on every format and by both rules, small and huge, of
//! private memory and of objects; what keeps the poison, what ends it, and what the pool reserves
//! for it.

use crate::common::beside::Beside;
use crate::common::*;
use crate::fill_huge::{HUGE, SIZE, at, fill, huge, map, mapped, places};
use crate::private_huge::{filled, shown, sim_by};
use foliant::fault::{FillError, FillWith, Refusal};
use foliant::manager::Setup;
use foliant::object::ObjectRequest;
use foliant::pool::Budget;
use foliant::space::{Advice, Flags, MapRequest, Move, Place, RangeError, SpaceId, Watch};
use foliant::table::{Aarch64, Paging, Riscv64, X86_64};
use foliant::{Access, Outcome, Policy};
use foliant_machine::Replace;
use foliant_sim::{Format, RiscvMode, X86Levels};
use foliant_units::{Bytes, Order, Pages, Va};

const X86: Format = Format::X86_64(X86Levels::Four);

fn va(nth: u64) -> Va {
    Va::new(BASE + nth * PAGE)
}
fn broken(va: Va) -> Outcome {
    Outcome::Refused(Refusal::Broken(va))
}
fn poison(mm: &AnyMm<'_, impl Paging>, id: SpaceId, va: Va) -> Result<(), FillError> {
    mm.fill(id, va, FillWith::Poison).map_err(|unfilled| unfilled.why)
}
fn copy(mm: &AnyMm<'_, impl Paging>, id: SpaceId, va: Va) -> Result<(), FillError> {
    mm.fill(id, va, FillWith::Copy(&[[9; PAGE as usize]])).map_err(|unfilled| unfilled.why)
}
fn present(va: Va) -> Result<(), FillError> {
    Err(FillError::Present(va))
}
/// What both kinds of access to it end with.
fn both(mm: &AnyMm<'_, impl Paging>, id: SpaceId, va: Va) -> [Outcome; 2] {
    [mm.fault(id, va, Access::Read), mm.fault(id, va, Access::Write)]
}

fn small<P: Paging>(format: Format, replace: Option<Replace>) {
    let sim = sim_by(format, replace);
    let mm: Audited<'_, P> = audited(&sim, &Setup::of(&sim.config().memory, Policy::BASE_ONLY));
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    let flags = Flags::READ_WRITE;
    let (place, bytes) = (Place::NoReplace(va(0)), Bytes::new(8 * PAGE));
    mm.map(id, &MapRequest { place, bytes, flags, tag: 0 }).unwrap();
    assert_eq!(poison(&mm, id, va(0)), Err(FillError::Unarmed(va(0))));
    mm.advise(id, row(0, 6), Advice::UserfaultArm).unwrap();
    assert_eq!(poison(&mm, id, va(6)), Err(FillError::Unarmed(va(6))));
    // It takes the place of nothing, and of nothing else.
    copy(&mm, id, va(5)).unwrap();
    mm.advise(id, row(4, 1), Advice::GuardInstall).unwrap();
    for nth in 0..4 {
        assert_eq!(poison(&mm, id, va(nth)), Ok(()), "{nth}");
    }
    for nth in [0, 4, 5] {
        assert_eq!(poison(&mm, id, va(nth)), present(va(nth)), "{nth}");
    }
    assert_eq!(both(&mm, id, va(0)), [broken(va(0)); 2]);
    // No page came for it, and what is wanted there is refused as broken.
    assert_eq!(mm.pages(id), Some(Pages::new(1)));
    for how in [Advice::PopulateRead, Advice::PopulateWrite] {
        assert_eq!(mm.advise(id, row(1, 1), how), Err(RangeError::Broken(va(1))));
    }
    let guard = mm.advise(id, row(4, 1), Advice::PopulateRead);
    assert_eq!(guard, Err(RangeError::Hole(va(4))), "a guard is none");
    // The handler brings a page, but no zeros.
    copy(&mm, id, va(0)).unwrap();
    assert_eq!(load(&sim, &mm, id, va(0).get()), 0x0909_0909_0909_0909);
    let zeros = mm.fill(id, va(1), FillWith::Zeros(Pages::new(1)));
    assert_eq!(zeros.map_err(|unfilled| unfilled.why), present(va(1)));
    // It stays when rights change, in a child, when nobody is told any more, and where it moves to.
    mm.protect(id, row(0, 8), Flags::READ).unwrap();
    assert_eq!(mm.fault(id, va(1), Access::Read), broken(va(1)));
    let refused = Outcome::Refused(Refusal::NoRight(va(1), Access::Write));
    assert_eq!(mm.fault(id, va(1), Access::Write), refused, "rights come first");
    mm.protect(id, row(0, 8), Flags::READ_WRITE).unwrap();
    let child = mm.fork(id).unwrap();
    assert_eq!(both(&mm, child, va(1)), [broken(va(1)); 2]);
    mm.end(child).unwrap();
    mm.advise(id, row(0, 6), Advice::UserfaultDisarm).unwrap();
    assert_eq!(both(&mm, id, va(1)), [broken(va(1)); 2]);
    let moved = mm.remap(id, row(1, 3), Bytes::new(3 * PAGE), Move::To(va(20)));
    assert_eq!(moved, Ok(row(20, 3)));
    assert_eq!(both(&mm, id, va(20)), [broken(va(20)); 2]);
    // A guard takes its place, and dropping ends it.
    mm.advise(id, row(21, 1), Advice::GuardInstall).unwrap();
    assert_eq!(mm.fault(id, va(21), Access::Read), Outcome::Refused(Refusal::Guard(va(21))));
    mm.advise(id, row(20, 3), Advice::DontNeed).unwrap();
    assert_eq!(mm.fault(id, va(20), Access::Read), Outcome::ZeroPage(Order::BASE));
    assert_eq!(mm.fault(id, va(22), Access::Write), Outcome::Mapped(Order::BASE));
    mm.audit(&[id]).unwrap();
}

#[test]
fn a_place_is_broken_until_it_is_filled_or_dropped() {
    small::<X86_64<4>>(X86, None);
    small::<X86_64<4>>(X86, Some(Replace::BreakBeforeMake));
    small::<X86_64<5>>(Format::X86_64(X86Levels::Five), None);
    small::<Aarch64>(Format::Aarch64, None);
    small::<Riscv64<3>>(Format::Riscv64(RiscvMode::Sv39), None);
}

/// In an area that maps an object a place is poisoned, and not the object.
#[test]
fn a_poison_is_one_spaces_and_not_the_objects() {
    let sim = sim_by(X86, None);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let [id, other] = [(); 2].map(|()| mm.create(None).unwrap());
    mm.switch(Some(id)).unwrap();
    let of =
        mm.create_object(&ObjectRequest { pages: Pages::new(8), ..Default::default() }).unwrap();
    let shared = Flags::READ_WRITE.with(Flags::SHARED);
    let map = |id, nth, flags| {
        let (place, bytes) = (Place::NoReplace(va(nth)), Bytes::new(8 * PAGE));
        let request = MapRequest { place, bytes, flags, tag: 0 };
        mm.map_object(id, &request, (of, Pages::new(0))).unwrap();
    };
    map(id, 0, shared);
    map(id, 20, Flags::READ_WRITE);
    map(other, 0, shared);
    for from in [0, 20] {
        mm.advise(id, row(from, 8), Advice::UserfaultArm).unwrap();
    }
    for nth in 0..4 {
        poison(&mm, id, va(nth)).unwrap();
        poison(&mm, id, va(20 + nth)).unwrap();
    }
    // Whatever the object has there.
    assert_eq!(mm.fault(other, va(0), Access::Write), Outcome::Mapped(Order::BASE));
    assert_eq!(mm.fault(other, va(5), Access::Write), Outcome::Mapped(Order::BASE));
    assert_eq!(both(&mm, id, va(0)), [broken(va(0)); 2]);
    assert_eq!(both(&mm, id, va(20)), [broken(va(20)); 2]);
    assert_eq!(poison(&mm, id, va(5)), Ok(()), "it is not mapped here");
    assert_eq!(copy(&mm, id, va(0)), present(va(0)), "the object has the page");
    // The object's page takes the place of poison by the handler alone.
    mm.advise(id, row(0, 8), Advice::UserfaultPresentArm).unwrap();
    mm.fill(id, va(5), FillWith::Present).unwrap();
    assert_eq!(mm.fault(id, va(5), Access::Write), Outcome::Spurious);
    copy(&mm, id, va(1)).unwrap();
    copy(&mm, id, va(21)).unwrap();
    // Beside guards a read brings what is around, and none of it in the place of poison.
    mm.advise(id, row(0, 8), Advice::UserfaultDisarm).unwrap();
    mm.advise(id, row(0, 8), Advice::UserfaultPresentDisarm).unwrap();
    assert_eq!(mm.fault(id, va(4), Access::Read), Outcome::Mapped(Order::BASE));
    assert_eq!(both(&mm, id, va(0)), [broken(va(0)); 2]);
    // A page that leaves the object leaves it; an end that comes nearer does not.
    mm.punch_object(of, Pages::new(0), Pages::new(8)).unwrap();
    for nth in [0, 2, 20, 22] {
        assert_eq!(both(&mm, id, va(nth)), [broken(va(nth)); 2], "{nth}");
    }
    mm.resize_object(of, Pages::new(1)).unwrap();
    let beyond = |nth| Outcome::Refused(Refusal::Beyond(va(nth)));
    assert_eq!(both(&mm, id, va(2)), [beyond(2); 2]);
    assert_eq!(both(&mm, id, va(22)), [beyond(22); 2]);
    mm.advise(id, row(20, 8), Advice::UserfaultWriteArm).unwrap();
    assert_eq!(poison(&mm, id, va(22)), Err(FillError::Beyond(va(22))));
    // Where writes are told poison is no marker, and a marker is in the way.
    mm.resize_object(of, Pages::new(8)).unwrap();
    poison(&mm, id, va(22)).unwrap();
    mm.watch(id, row(20, 8), Watch::All).unwrap();
    assert_eq!(both(&mm, id, va(22)), [broken(va(22)); 2]);
    assert_eq!(poison(&mm, id, va(23)), present(va(23)));
    mm.punch_object(of, Pages::new(0), Pages::new(8)).unwrap();
    assert_eq!(both(&mm, id, va(22)), [broken(va(22)); 2]);
    mm.watch(id, row(20, 8), Watch::Nothing).unwrap();
    assert_eq!(both(&mm, id, va(22)), [broken(va(22)); 2]);
    mm.advise(id, row(20, 8), Advice::DontNeed).unwrap();
    assert_eq!(mm.fault(id, va(22), Access::Write), Outcome::Userfault(va(22)));
    mm.audit(&[id, other]).unwrap();
}

fn reserved<P: Paging>(format: Format, replace: Option<Replace>) {
    let sim = sim_by(format, replace);
    let (mm, id) = filled::<P>(&sim, 8);
    map(&mm, id, 0, 4, HUGE);
    let place = |nth| Va::new(at(nth));
    let see = |id, nth| mm.fault(id, place(nth), Access::Write);
    mm.advise(id, places(0, 4), Advice::UserfaultArm).unwrap();
    let inside = place(0).add(PAGE);
    assert_eq!(poison(&mm, id, inside), Err(FillError::Unarmed(inside)), "from its beginning");
    // A reservation stays with its place.
    for nth in 0..3 {
        poison(&mm, id, place(nth)).unwrap();
    }
    assert_eq!(poison(&mm, id, place(1)), present(place(1)));
    shown(&mm, (8, 8, 4, 0));
    assert_eq!(both(&mm, id, place(0)), [broken(place(0)); 2]);
    // Filled it is used.
    fill(&mm, id, 0).unwrap();
    assert_eq!(see(id, 0), Outcome::Spurious);
    assert_eq!(poison(&mm, id, place(0)), present(place(0)));
    shown(&mm, (8, 7, 3, 0));
    // A spent place is so behind poison too.
    mm.resize_pool(SIZE, 0, Budget::ALL).unwrap();
    shown(&mm, (4, 3, 3, 4));
    mm.advise(id, places(0, 1), Advice::DontNeed).unwrap();
    let spent = mm.pool(SIZE).unwrap();
    poison(&mm, id, place(0)).unwrap();
    let child = mm.fork(id).unwrap();
    for nth in 0..3 {
        assert_eq!(see(child, nth), broken(place(nth)));
    }
    mm.end(child).unwrap();
    let moved = mm.remap(id, places(0, 4), Bytes::new(4 * SIZE_2M), Move::To(place(10)));
    assert_eq!(moved, Ok(places(10, 4)));
    assert_eq!([see(id, 10), see(id, 12)], [broken(place(10)), broken(place(12))]);
    assert_eq!(mm.pool(SIZE).unwrap(), spent, "moved with what is reserved");
    // Dropped it is what it was: reserved, or spent.
    mm.advise(id, places(10, 4), Advice::DontNeed).unwrap();
    assert_eq!(mm.pool(SIZE).unwrap(), spent);
    assert_eq!([see(id, 11), see(id, 12)], [Outcome::Mapped(SIZE); 2]);
    assert_eq!(see(id, 10), Outcome::NoHugePage(SIZE));
    mm.audit(&[id]).unwrap();
    // Unmapped it gives back no more than it had.
    mm.advise(id, places(10, 4), Advice::UserfaultArm).unwrap();
    for nth in [10, 13] {
        poison(&mm, id, place(nth)).unwrap();
    }
    mm.unmap(id, places(10, 4)).unwrap();
    let pool = mm.pool(SIZE).unwrap();
    assert_eq!((pool.nr_hugepages, pool.resv_hugepages), (0, 0));
}

#[test]
fn a_poisoned_huge_place_has_the_reservation_that_it_had() {
    reserved::<X86_64<4>>(X86, None);
    reserved::<X86_64<4>>(X86, Some(Replace::BreakBeforeMake));
    reserved::<Aarch64>(Format::Aarch64, None);
    reserved::<Riscv64<3>>(Format::Riscv64(RiscvMode::Sv39), None);
}

/// Of huge pages of an object poison goes with any page, and may lie behind its end.
#[test]
fn a_huge_poison_of_an_object_goes_with_its_pages() {
    let sim = sim_by(X86, None);
    let (mm, id) = filled::<X86_64<4>>(&sim, 8);
    let (of, other) = mapped(&mm, id);
    let place = |nth| Va::new(at(nth));
    for from in [0, 10] {
        mm.advise(id, places(from, 3), Advice::UserfaultArm).unwrap();
        poison(&mm, id, place(from)).unwrap();
    }
    assert_eq!(mm.fault(other, place(0), Access::Write), Outcome::Mapped(SIZE));
    for nth in [0, 10] {
        assert_eq!(both(&mm, id, place(nth)), [broken(place(nth)); 2]);
    }
    // The handler lets in what the object has, and makes what it has not.
    mm.advise(id, places(0, 3), Advice::UserfaultPresentArm).unwrap();
    mm.fill(id, place(0), FillWith::Present).unwrap();
    poison(&mm, id, place(1)).unwrap();
    fill(&mm, id, 1).unwrap();
    fill(&mm, id, 10).unwrap();
    assert_eq!(mm.fault(id, place(1), Access::Write), Outcome::Spurious);
    assert_eq!(mm.fault(other, place(1), Access::Write), Outcome::Mapped(SIZE));
    poison(&mm, id, place(2)).unwrap();
    poison(&mm, id, place(12)).unwrap();
    mm.punch_object(of, huge(0), huge(3)).unwrap();
    assert_eq!(mm.fault(id, place(2), Access::Read), Outcome::Userfault(place(2)));
    mm.resize_object(of, Pages::new(0)).unwrap();
    assert_eq!(poison(&mm, id, place(2)), Ok(()));
    assert_eq!(both(&mm, id, place(2)), [broken(place(2)); 2]);
    mm.end(other).unwrap();
    mm.audit(&[id]).unwrap();
    mm.unmap(id, places(0, 20)).unwrap();
    mm.end_object(of).unwrap();
    let pool = mm.pool(SIZE).unwrap();
    assert_eq!((pool.nr_hugepages, pool.free_hugepages, pool.resv_hugepages), (8, 8, 0));
}

/// A parent that gets its page back takes no child's poison away.
#[test]
fn a_child_keeps_its_poison_where_its_parent_gets_a_page_back() {
    let sim = sim_by(X86, None);
    let (mm, id) = filled::<X86_64<4>>(&sim, 2);
    let place = |nth| Va::new(at(nth));
    map(&mm, id, 0, 2, HUGE);
    mm.advise(id, places(0, 1), Advice::UserfaultArm).unwrap();
    assert_eq!(store(&sim, &mm, id, at(1), 5), [Outcome::Mapped(SIZE)]);
    poison(&mm, id, place(0)).unwrap();
    let child = mm.fork(id).unwrap();
    mm.advise(id, places(0, 1), Advice::DontNeed).unwrap();
    mm.advise(id, places(0, 1), Advice::UserfaultDisarm).unwrap();
    assert_eq!(store(&sim, &mm, id, at(0), 6), [Outcome::Mapped(SIZE)]);
    mm.resize_pool(SIZE, 2, Budget::ALL).unwrap();
    assert_eq!(store(&sim, &mm, id, at(1), 7), [Outcome::Reused]);
    assert_eq!(mm.fault(child, place(0), Access::Read), broken(place(0)));
    assert_eq!(mm.fault(child, place(1), Access::Read), Outcome::NoHugePage(SIZE));
    // What a child lost its own child has not lost; poison it has.
    mm.resize_pool(SIZE, 3, Budget::ALL).unwrap();
    let grandchild = mm.fork(child).unwrap();
    assert_eq!(mm.fault(grandchild, place(0), Access::Read), broken(place(0)));
    assert_eq!(mm.fault(grandchild, place(1), Access::Read), Outcome::Mapped(SIZE));
    assert_eq!(mm.fault(child, place(1), Access::Read), Outcome::NoHugePage(SIZE));
    mm.end(grandchild).unwrap();
    mm.end(child).unwrap();
    mm.audit(&[id]).unwrap();
}

/// Whatever comes in between: the place is poisoned, or it is as the other left it.
#[test]
fn a_poison_beside_another_operation() {
    type Other = fn(&Mm<'_>, SpaceId);
    let others: [(&str, Other); 6] = [
        ("a page", |mm, id| copy(mm, id, va(0)).unwrap()),
        ("a poison", |mm, id| {
            let _ = poison(mm, id, va(0));
        }),
        ("unmap", |mm, id| mm.unmap(id, row(0, 4)).unwrap()),
        ("drop", |mm, id| mm.advise(id, row(0, 4), Advice::DontNeed).unwrap()),
        ("guard", |mm, id| mm.advise(id, row(0, 4), Advice::GuardInstall).unwrap()),
        ("disarm", |mm, id| {
            mm.advise(id, row(0, 4), Advice::UserfaultDisarm).unwrap();
            let _ = mm.fault(id, va(0), Access::Write);
        }),
    ];
    for (name, act) in others {
        for step in 1.. {
            let beside = Beside::new(sim(2, 16));
            let mm = beside.manager(Policy::BASE_ONLY);
            let id = mm.create(None).unwrap();
            let all = request(Place::NoReplace(va(0)), 4 * PAGE, Flags::READ_WRITE);
            mm.map(id, &all).unwrap();
            mm.advise(id, row(0, 4), Advice::UserfaultArm).unwrap();
            beside.sim.on(cpu(1), || mm.online());
            let poisoned = || poison(&mm, id, va(0));
            let Some(done) = beside.before_step(step, || act(&mm, id), poisoned) else {
                assert!(step > 5, "{name}");
                break;
            };
            let seen = mm.fault(id, va(0), Access::Read);
            let what = format!("{name}, step {step}: {done:?}, {seen:?}");
            match (name, done) {
                ("unmap", _) => {
                    assert!(matches!(seen, Outcome::Refused(Refusal::NoArea(_))), "{what}")
                }
                // What was poisoned before it went.
                ("drop", Ok(())) => {
                    assert!(seen == broken(va(0)) || seen == Outcome::Userfault(va(0)), "{what}");
                }
                ("guard", _) => assert_eq!(seen, Outcome::Refused(Refusal::Guard(va(0))), "{what}"),
                ("a poison", Err(_)) => assert_eq!((done, seen), (present(va(0)), broken(va(0)))),
                // The page came after it.
                ("a page", Ok(())) if seen == Outcome::Spurious => {}
                (_, Ok(())) => assert_eq!(seen, broken(va(0)), "{what}"),
                (_, Err(_)) => assert_eq!(seen, Outcome::Spurious, "{what}"),
            }
        }
    }
}

/// A place that moves while the reservation of what was dropped there is in the balance is spent,
/// poisoned or not, and no later drop gives it one.
#[test]
fn a_move_beside_a_drop_leaves_a_spent_place() {
    for poisons in [false, true] {
        let mut has_met = false;
        for step in 1.. {
            let beside = Beside::new(sim(2, 64));
            let mm = beside.manager(Policy::BASE_ONLY);
            beside.sim.on(cpu(1), || mm.online());
            let id = mm.create(None).unwrap();
            mm.resize_pool(SIZE, 2, Budget::ALL).unwrap();
            map(&mm, id, 0, 1, HUGE);
            mm.fault(id, Va::new(at(0)), Access::Write);
            mm.advise(id, places(0, 1), Advice::UserfaultArm).unwrap();
            let part = || {
                if poisons {
                    let _ = poison(&mm, id, Va::new(at(0)));
                }
                let to = Move::To(Va::new(at(10)));
                mm.remap(id, places(0, 1), Bytes::new(SIZE_2M), to).unwrap();
            };
            let drop = || {
                let _ = mm.advise(id, places(0, 1), Advice::DontNeed);
            };
            if beside.before_step(step, part, drop).is_none() {
                assert!(has_met, "{poisons}");
                break;
            }
            let reserved = || mm.pool(SIZE).unwrap().resv_hugepages;
            let left = reserved();
            has_met |= left == 0 && mm.pool(SIZE).unwrap().free_hugepages == 2;
            if mm.frame_at(id, Va::new(at(10))).is_none() {
                mm.advise(id, places(10, 1), Advice::DontNeed).unwrap();
                assert_eq!(reserved(), left, "{poisons}, step {step}");
            }
            mm.unmap(id, places(0, 20)).unwrap();
            let pool = mm.pool(SIZE).unwrap();
            assert_eq!((pool.free_hugepages, pool.resv_hugepages), (2, 0), "step {step}");
        }
    }
}
