//! Huge pages of a pool that are watched: on every format with a bit for it and by both rules, of
//! private memory and of objects, what keeps a watch and what ends it, and what the pool reserves.

use crate::common::beside::Beside;
use crate::common::*;
use crate::fill_huge::*;
use crate::private_huge::{filled, shown, sim_by};
use foliant::fault::{FillError, FillWith, Refusal};
use foliant::pool::Budget;
use foliant::space::{Advice, Flags, Move, ObjectId, RangeError, SpaceId, Watch};
use foliant::table::{Aarch64, Attrs, Entry, Paging, X86_64};
use foliant::{Access, Event, Outcome, Policy};
use foliant_machine::Replace;
use foliant_sim::{Failing, Format, X86Levels};
use foliant_units::{Bytes, Va};

const X86: Format = Format::X86_64(X86Levels::Four);

fn told(nth: u64) -> Outcome {
    Outcome::UserfaultWrite(Va::new(at(nth)))
}
fn write<P: Paging>(mm: &AnyMm<'_, P>, id: SpaceId, nth: u64) -> Outcome {
    mm.fault(id, Va::new(at(nth)), Access::Write)
}
fn arm<P: Paging>(mm: &AnyMm<'_, P>, id: SpaceId, nth: u64, count: u64) {
    mm.advise(id, places(nth, count), Advice::UserfaultWriteArm).unwrap();
}
fn watch<P: Paging>(mm: &AnyMm<'_, P>, id: SpaceId, nth: u64, count: u64) {
    mm.watch(id, places(nth, count), Watch::All).unwrap();
}
fn lift<P: Paging>(mm: &AnyMm<'_, P>, id: SpaceId, nth: u64, count: u64) {
    mm.watch(id, places(nth, count), Watch::Nothing).unwrap();
}
/// What the entry of a page says: that it is watched, that it may be written to.
fn says<P: Paging>(mm: &AnyMm<'_, P>, id: SpaceId, nth: u64) -> Option<(bool, bool)> {
    mm.with_leaves(id, places(nth, 1), |mut leaves| match leaves.next()?.entry {
        Entry::Leaf { attrs, .. } => Some((attrs.has(Attrs::UFFD_WP), attrs.has(Attrs::WRITE))),
        _ => None,
    })
    .unwrap()
}
/// Whether a store needed nothing but the entry, which a CPU may have cached as it was.
fn is_free(outcomes: &[Outcome]) -> bool {
    outcomes.iter().all(|outcome| *outcome == Outcome::Spurious)
}
const WATCHED: Option<(bool, bool)> = Some((true, false));
const WRITABLE: Option<(bool, bool)> = Some((false, true));

/// On the formats whose entries have a bit for it.
fn on_every_format_that_watches(test: fn(Format, Option<Replace>), others: [fn(Format); 2]) {
    test(X86, None);
    test(X86, Some(Replace::BreakBeforeMake));
    others[0](Format::X86_64(X86Levels::Five));
    others[1](Format::Aarch64);
}

fn life<P: Paging>(format: Format, replace: Option<Replace>) {
    let sim = sim_by(format, replace);
    let (mm, id) = filled::<P>(&sim, 8);
    let put = |nth, value| store(&sim, &mm, id, at(nth) + 3 * PAGE, value);
    let see = |nth| load(&sim, &mm, id, at(nth) + 3 * PAGE);
    map(&mm, id, 0, 5, HUGE);
    assert_eq!(put(0, 5), MAPPED);
    arm(&mm, id, 0, 5);
    shown(&mm, (8, 7, 4, 0));
    // Of what is there each write is told, and none of what is missing.
    mm.watch(id, places(0, 5), Watch::Present).unwrap();
    assert_eq!((says(&mm, id, 0), says(&mm, id, 1)), (WATCHED, None));
    assert_eq!((put(0, 6), see(0)), (vec![Outcome::UserfaultWrite(Va::new(at(0) + 3 * PAGE))], 5));
    assert_eq!(put(4, 9), MAPPED);
    // Of what is missing too; a read finds zeros, which are watched, and have the reservation.
    watch(&mm, id, 0, 4);
    assert_eq!(write(&mm, id, 1), told(1));
    shown(&mm, (8, 6, 3, 0));
    assert_eq!((see(1), says(&mm, id, 1)), (0, WATCHED));
    shown(&mm, (8, 5, 2, 0));
    mm.watch(id, places(0, 4), Watch::Present).unwrap();
    assert_eq!(write(&mm, id, 2), told(2), "a marker stays");
    assert_eq!(write(&mm, id, 1), told(1));
    // What is dropped is watched still: a place with a reservation, as no page is surplus.
    mm.advise(id, places(0, 2), Advice::DontNeed).unwrap();
    shown(&mm, (8, 7, 4, 0));
    assert_eq!([write(&mm, id, 0), write(&mm, id, 1)], [told(0), told(1)]);
    assert_eq!((see(0), says(&mm, id, 0)), (0, WATCHED));
    // Lifted: by pages, and what is there may be written to at once.
    lift(&mm, id, 0, 2);
    assert_eq!(says(&mm, id, 0), WRITABLE);
    assert!(is_free(&put(0, 7)) && is_free(&put(4, 4)));
    assert_eq!(put(1, 8), MAPPED);
    assert_eq!(write(&mm, id, 2), told(2));
    shown(&mm, (8, 5, 2, 0));
    // A change of rights keeps it, and so does a fork; a child has none of it.
    watch(&mm, id, 0, 1);
    mm.protect(id, places(0, 5), Flags::READ).unwrap();
    mm.protect(id, places(0, 5), Flags::READ_WRITE).unwrap();
    let child = mm.fork(id).unwrap();
    assert_eq!((says(&mm, id, 0), says(&mm, child, 0)), (WATCHED, Some((false, false))));
    assert_eq!([write(&mm, id, 0), write(&mm, id, 2)], [told(0), told(2)]);
    mm.switch(Some(child)).unwrap();
    assert_eq!(store(&sim, &mm, child, at(0), 1), [Outcome::Copied]);
    assert_eq!(store(&sim, &mm, child, at(2), 1), MAPPED);
    mm.switch(Some(id)).unwrap();
    mm.end(child).unwrap();
    // At another place nothing of it is left, and the reservations are.
    let moved = mm.remap(id, places(0, 5), Bytes::new(5 * SIZE_2M), Move::To(Va::new(at(10))));
    assert_eq!(moved, Ok(places(10, 5)));
    assert_eq!(says(&mm, id, 10).map(|(watched, _)| watched), Some(false));
    assert_eq!(store(&sim, &mm, id, at(12), 3), MAPPED);
    shown(&mm, (8, 4, 1, 0));
    // The end of being armed ends it for pages and for places.
    arm(&mm, id, 10, 5);
    watch(&mm, id, 10, 5);
    assert_eq!([write(&mm, id, 12), write(&mm, id, 13)], [told(12), told(13)]);
    mm.advise(id, places(10, 5), Advice::UserfaultWriteDisarm).unwrap();
    assert!(is_free(&store(&sim, &mm, id, at(12), 4)));
    assert_eq!(store(&sim, &mm, id, at(13), 4), MAPPED);
    shown(&mm, (8, 3, 0, 0));
    mm.audit(&[id]).unwrap();
    mm.unmap(id, places(0, 30)).unwrap();
    shown(&mm, (8, 8, 0, 0));
}

#[test]
fn a_watched_huge_page_is_told_of_as_a_whole() {
    on_every_format_that_watches(
        life::<X86_64<4>>,
        [|format| life::<X86_64<5>>(format, None), |format| life::<Aarch64>(format, None)],
    );
}

/// Places whose reservation is spent, or that have none, stay so while they are watched.
#[test]
fn a_watched_place_has_the_reservation_that_it_had() {
    let sim = sim_by(X86, None);
    let (mm, id) = filled::<X86_64<4>>(&sim, 2);
    map(&mm, id, 0, 2, HUGE);
    assert_eq!(store(&sim, &mm, id, at(0), 1), MAPPED);
    // The page that comes back is surplus by then, and no reservation with it.
    mm.resize_pool(SIZE, 0, Budget::ALL).unwrap();
    shown(&mm, (2, 1, 1, 2));
    arm(&mm, id, 0, 2);
    watch(&mm, id, 0, 2);
    mm.advise(id, places(0, 1), Advice::DontNeed).unwrap();
    shown(&mm, (1, 1, 1, 1));
    for _ in 0..2 {
        assert_eq!(mm.fault(id, Va::new(at(0)), Access::Read), Outcome::NoHugePage(SIZE));
        assert_eq!(write(&mm, id, 0), told(0));
        assert_eq!(mm.fault(id, Va::new(at(0)), Access::Read), Outcome::NoHugePage(SIZE));
        lift(&mm, id, 0, 1);
        assert_eq!(write(&mm, id, 0), Outcome::NoHugePage(SIZE));
        watch(&mm, id, 0, 1);
    }
    // It moves as a spent one.
    let moved = mm.remap(id, places(0, 1), SIZE.bytes(), Move::To(Va::new(at(10))));
    assert_eq!(moved, Ok(places(10, 1)));
    assert_eq!(write(&mm, id, 10), Outcome::NoHugePage(SIZE));
    assert_eq!(mm.fault(id, Va::new(at(1)), Access::Read), Outcome::Mapped(SIZE));
    assert_eq!(write(&mm, id, 1), told(1));
    mm.unmap(id, places(0, 20)).unwrap();
    shown(&mm, (0, 0, 0, 0));
    // Without any reservation a page of the pool comes, watched.
    mm.resize_pool(SIZE, 2, Budget::ALL).unwrap();
    map(&mm, id, 0, 2, HUGE.with(Flags::NORESERVE));
    arm(&mm, id, 0, 2);
    watch(&mm, id, 0, 2);
    shown(&mm, (2, 2, 0, 0));
    assert_eq!(load(&sim, &mm, id, at(1)), 0);
    assert_eq!((says(&mm, id, 1), write(&mm, id, 1)), (WATCHED, told(1)));
    mm.unmap(id, places(0, 2)).unwrap();
    shown(&mm, (2, 2, 0, 0));
}

/// The pool of eight has all of its pages when these end.
fn all_comes_back<P: Paging>(mm: &AnyMm<'_, P>, of: ObjectId, spaces: [SpaceId; 2]) {
    mm.switch(None).unwrap();
    spaces.into_iter().for_each(|id| mm.end(id).unwrap());
    mm.end_object(of).unwrap();
    shown(mm, (8, 8, 0, 0));
}

/// A page of an object that leaves and comes back is watched still, in a shared area and in a
/// private one; a copy has the reservation of its place.
fn of_objects<P: Paging>(format: Format, replace: Option<Replace>) {
    let sim = sim_by(format, replace);
    let (mm, id) = filled::<P>(&sim, 8);
    let (of, other) = mapped(&mm, id);
    let see = |nth| load(&sim, &mm, id, at(nth) + 8);
    let put = |nth, value| store(&sim, &mm, id, at(nth) + 8, value);
    mm.switch(Some(other)).unwrap();
    assert_eq!(store(&sim, &mm, other, at(0) + 8, 3), MAPPED);
    mm.switch(Some(id)).unwrap();
    assert_eq!([see(0), see(10)], [3, 3]);
    shown(&mm, (8, 7, 5, 0));
    arm(&mm, id, 0, 3);
    arm(&mm, id, 10, 3);
    watch(&mm, id, 0, 3);
    watch(&mm, id, 10, 3);
    for nth in [0, 1, 10, 11] {
        assert_eq!(write(&mm, id, nth), told(nth));
    }
    assert_eq!((see(1), says(&mm, id, 1)), (0, WATCHED), "it came into the object");
    assert_eq!((see(11), says(&mm, id, 11)), (0, WATCHED), "which is seen");
    shown(&mm, (8, 6, 4, 0));
    // Others write to it without a word.
    mm.switch(Some(other)).unwrap();
    assert_eq!(store(&sim, &mm, other, at(1) + 8, 4), MAPPED);
    mm.switch(Some(id)).unwrap();
    assert_eq!([see(1), see(11)], [4, 4]);
    // What the object loses is watched in each area when it comes back.
    mm.punch_object(of, huge(0), huge(2)).unwrap();
    shown(&mm, (8, 8, 4, 0));
    for nth in [0, 1, 10, 11] {
        assert_eq!(write(&mm, id, nth), told(nth), "a marker is there");
    }
    assert_eq!((see(0), see(10)), (0, 0));
    assert_eq!([says(&mm, id, 0), says(&mm, id, 10)], [WATCHED; 2]);
    lift(&mm, id, 0, 1);
    assert_eq!(says(&mm, id, 0), WRITABLE);
    assert!(is_free(&put(0, 9)));
    // A copy is the space's own, out of its reservation, and dropped it is watched again.
    lift(&mm, id, 10, 1);
    assert_eq!(put(10, 7), [Outcome::Copied]);
    assert_eq!([see(0), see(10)], [9, 7]);
    watch(&mm, id, 10, 1);
    mm.advise(id, places(10, 1), Advice::DontNeed).unwrap();
    assert_eq!((write(&mm, id, 10), see(10), says(&mm, id, 10)), (told(10), 9, WATCHED));
    mm.audit(&[id, other]).unwrap();
    // Both a missing page and a watched one: it is told as missing, and filled as the handler says.
    mm.advise(id, places(2, 1), Advice::UserfaultArm).unwrap();
    let page = Va::new(at(2));
    assert_eq!(write(&mm, id, 2), Outcome::Userfault(page));
    assert_eq!(mm.fill_huge(id, page, &mut Counting::watched()), Ok(()));
    assert_eq!((says(&mm, id, 2), write(&mm, id, 2)), (WATCHED, told(2)));
    assert_eq!(load(&sim, &mm, id, at(2) + 5 * PAGE), word(6));
    mm.punch_object(of, huge(2), huge(3)).unwrap();
    assert_eq!(fill(&mm, id, 2), Ok(()));
    assert_eq!(says(&mm, id, 2), WRITABLE, "it was not to be watched");
    all_comes_back(&mm, of, [id, other]);
}

#[test]
fn a_huge_page_of_an_object_is_watched_where_it_is_mapped() {
    on_every_format_that_watches(
        of_objects::<X86_64<4>>,
        [
            |format| of_objects::<X86_64<5>>(format, None),
            |format| of_objects::<Aarch64>(format, None),
        ],
    );
}

/// A huge page that the object has is told and let in as a whole.
fn present<P: Paging>(format: Format, replace: Option<Replace>) {
    let sim = sim_by(format, replace);
    let (mm, id) = filled::<P>(&sim, 8);
    let (of, other) = mapped(&mm, id);
    for first in [0, 10] {
        mm.advise(id, places(first, 3), Advice::UserfaultPresentArm).unwrap();
    }
    mm.switch(Some(other)).unwrap();
    assert_eq!(store(&sim, &mm, other, at(0) + 8, 3), MAPPED);
    mm.switch(Some(id)).unwrap();
    let let_in = |nth, with| mm.fill(id, Va::new(at(nth)), with).map_err(|not| not.why);
    for first in [0, 10] {
        for access in [Access::Read, Access::Write] {
            let there = Outcome::UserfaultPresent(Va::new(at(first)));
            assert_eq!(mm.fault(id, Va::new(at(first)), access), there);
        }
        let none = FillError::NoContents(Va::new(at(first + 1)));
        assert_eq!(let_in(first + 1, FillWith::Present), Err(none));
        let inside = mm.fill(id, Va::new(at(first) + PAGE), FillWith::Present);
        assert_eq!(inside.unwrap_err().why, FillError::Unarmed(Va::new(at(first) + PAGE)));
        assert_eq!(let_in(first, FillWith::Present), Ok(()));
        assert_eq!(load(&sim, &mm, id, at(first) + 8), 3);
        let taken = FillError::Present(Va::new(at(first)));
        assert_eq!(let_in(first, FillWith::Present), Err(taken));
    }
    shown(&mm, (8, 7, 5, 0));
    assert!(is_free(&store(&sim, &mm, id, at(0) + 8, 4)));
    assert_eq!(store(&sim, &mm, id, at(10) + 8, 5), [Outcome::Copied], "of its reservation");
    shown(&mm, (8, 6, 4, 0));
    assert_eq!([0, 10].map(|nth| load(&sim, &mm, id, at(nth) + 8)), [4, 5]);
    // What the object has not comes as ever.
    assert_eq!(store(&sim, &mm, id, at(1), 6), MAPPED);
    assert_eq!(load(&sim, &mm, other, at(1)), 6);
    mm.audit(&[id, other]).unwrap();
    if P::KEEPS.has(Attrs::UFFD_WP) {
        arm(&mm, id, 10, 3);
        assert_eq!(let_in(11, FillWith::PresentWatched), Ok(()));
        assert_eq!((says(&mm, id, 11), write(&mm, id, 11)), (WATCHED, told(11)));
    }
    all_comes_back(&mm, of, [id, other]);
}

#[test]
fn a_huge_page_of_an_object_is_let_in_as_a_whole() {
    on_every_format!(present);
}

/// Private pages that a handler fills, watched from the start or not, over a marker or not.
#[test]
fn a_huge_page_may_be_watched_from_the_start() {
    let sim = sim_by(X86, None);
    let (mm, id) = filled::<X86_64<4>>(&sim, 4);
    map(&mm, id, 0, 4, HUGE);
    arm(&mm, id, 0, 4);
    watch(&mm, id, 2, 2);
    let watched = |nth| mm.fill_huge(id, Va::new(at(nth)), &mut Counting::watched());
    assert_eq!([watched(0), fill(&mm, id, 1), watched(2), fill(&mm, id, 3)], [Ok(()); 4]);
    let says = [0, 1, 2, 3].map(|nth| says(&mm, id, nth));
    assert_eq!(says, [WATCHED, WRITABLE, WATCHED, WRITABLE]);
    assert_eq!([write(&mm, id, 0), write(&mm, id, 2)], [told(0), told(2)]);
    shown(&mm, (4, 0, 0, 0));
    mm.unmap(id, places(0, 4)).unwrap();
    shown(&mm, (4, 4, 0, 0));
}

/// A parent that takes its page back from its children leaves what another one watches there.
#[test]
fn a_child_watches_on_where_its_parent_gets_a_page_back() {
    let sim = sim_by(X86, None);
    let (mm, id) = filled::<X86_64<4>>(&sim, 1);
    map(&mm, id, 0, 1, HUGE);
    assert_eq!(store(&sim, &mm, id, at(0), 7), MAPPED);
    let [watching, sharing] = [(); 2].map(|()| mm.fork(id).unwrap());
    mm.advise(watching, places(0, 1), Advice::DontNeed).unwrap();
    arm(&mm, watching, 0, 1);
    watch(&mm, watching, 0, 1);
    assert_eq!(store(&sim, &mm, id, at(0), 8), [Outcome::Reused]);
    assert_eq!(write(&mm, sharing, 0), Outcome::NoHugePage(SIZE), "it has lost the page");
    assert_eq!(write(&mm, watching, 0), told(0));
}

/// A range is whole pages, and the k-th allocation is refused for every k: nothing is watched that
/// was not there.
#[test]
fn a_watch_of_huge_pages_without_memory_leaves_no_trace() {
    for k in 1.. {
        let sim = sim_by(X86, None);
        let (mm, id) = filled::<X86_64<4>>(&sim, 2);
        map(&mm, id, 600, 1, HUGE);
        arm(&mm, id, 600, 1);
        let cut = range(at(600), PAGE);
        let cuts = RangeError::Cuts(cut.end(), SIZE.bytes());
        assert_eq!(mm.watch(id, cut, Watch::All), Err(cuts));
        sim.fault_plan().set(Failing::From(k));
        let done = mm.watch(id, places(600, 1), Watch::All);
        sim.fault_plan().set(Failing::Nothing);
        mm.audit(&[id]).unwrap();
        if done.is_ok() {
            assert_eq!(write(&mm, id, 600), told(600));
            assert!(k > 1, "a table is made");
            break;
        }
        assert_eq!(done, Err(RangeError::NoMemory), "k = {k}");
        assert_eq!(write(&mm, id, 600), Outcome::Mapped(SIZE));
    }
}

/// A space that both CPUs run, with two missing pages that are reserved for it.
fn begun(beside: &Beside) -> (AuditedMm<'_>, SpaceId) {
    let mm = beside.manager(Policy::BASE_ONLY);
    mm.resize_pool(SIZE, 2, Budget::ALL).unwrap();
    let id = mm.create(None).unwrap();
    mm.cpus().for_each(|cpu| beside.sim.on(cpu, || mm.online()));
    mm.cpus().for_each(|cpu| beside.sim.on(cpu, || mm.switch(Some(id)).unwrap()));
    map(&mm, id, 0, 2, HUGE);
    (mm, id)
}

/// A fault that lost its area leaves its table behind, empty: it is taken out of a marker's way.
#[test]
fn a_table_that_a_late_fault_left_gives_way_to_a_marker() {
    let (machine, mm, _over) = meddled(1, 64, Policy::BASE_ONLY);
    mm.online();
    mm.resize_pool(SIZE, 1, Budget::ALL).unwrap();
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    let behind = area(mm, id, at(1), PAGE); // keeps the table above
    store(&machine.sim, mm, id, behind.start().get(), 1);
    let gone = area(mm, id, at(0), SIZE_2M);
    machine.after_clearing(PAGE, move || mm.unmap(id, gone).unwrap());
    let late = mm.fault(id, gone.start(), Access::Write);
    assert_eq!(late, Outcome::Refused(Refusal::NoArea(gone.start())));
    map(mm, id, 0, 1, HUGE);
    arm(mm, id, 0, 1);
    lift(mm, id, 0, 1);
    let before = mm.total(Event::TableFreed);
    watch(mm, id, 0, 1);
    assert_eq!(mm.total(Event::TableFreed) - before, 1);
    assert_eq!(write(mm, id, 0), told(0));
    assert_eq!(load(&machine.sim, mm, id, at(0)), 0);
    assert_eq!(says(mm, id, 0), WATCHED);
}

/// The end of being armed beside each step of a read of a marker: a page comes in any case, and it
/// may be written to.
#[test]
fn a_read_of_a_marker_beside_the_end_of_being_armed() {
    for step in 1.. {
        let beside = Beside::new(sim(2, 32));
        let (mm, id) = begun(&beside);
        arm(&mm, id, 0, 2);
        watch(&mm, id, 0, 2);
        let read = || _ = mm.fault(id, Va::new(at(1)), Access::Read);
        let disarm = || mm.advise(id, places(0, 2), Advice::UserfaultWriteDisarm).unwrap();
        let ran = beside.before_step(step, read, disarm);
        assert_eq!(says(&mm, id, 1), if ran.is_some() { WRITABLE } else { None }, "step {step}");
        assert!(matches!(write(&mm, id, 0), Outcome::Mapped(_)), "step {step}");
        assert_eq!(store(&beside.sim, &mm, id, at(1), 2).len(), usize::from(ran.is_none()));
        mm.audit(&[id]).unwrap();
        if ran.is_none() {
            assert!(step > 20, "{step}");
            break;
        }
    }
}

/// A watch beside each step of a fault, and a fault beside each step of a watch: behind the watch
/// no write is done that was not told.
#[test]
fn a_watch_of_huge_pages_beside_a_write() {
    for (is_watch_first, is_there) in [(false, false), (true, false), (true, true)] {
        for step in 1.. {
            let beside = Beside::new(sim(2, 32));
            let (mm, id) = begun(&beside);
            if is_there {
                store(&beside.sim, &mm, id, at(1), 1);
            }
            arm(&mm, id, 0, 2);
            let watches = || watch(&mm, id, 0, 2);
            let writes = || {
                if beside.sim.user_store(Va::new(at(1)), 8, 5).is_err() {
                    write(&mm, id, 1);
                }
            };
            // Clearing is many alike steps: one in a hundred.
            let step = if step < 100 { step } else { 100 + (step - 100) * 97 };
            let ran = match is_watch_first {
                true => beside.before_step(step, writes, watches),
                false => beside.before_step(step, watches, writes),
            };
            if ran.is_none() {
                assert!(step > 5, "{is_watch_first} {is_there}");
                break;
            }
            let wrote = |nth| beside.sim.user_store(Va::new(at(nth)), 8, 6).is_ok();
            assert_eq!([wrote(0), wrote(1)], [false; 2], "{is_watch_first} {is_there}, {step}");
            assert_eq!([write(&mm, id, 0), write(&mm, id, 1)], [told(0), told(1)], "step {step}");
            mm.audit(&[id]).unwrap();
        }
    }
}
