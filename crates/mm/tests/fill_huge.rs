//! Huge pages of a pool that a handler fills: on every format and by both rules, of private memory
//! and of objects, each allocation refused once, and others at work at the same time.

use crate::common::beside::Beside;
use crate::common::*;
use crate::private_huge::{filled, shown, sim_by};
use foliant::fault::{FillError, HugeContents, Refusal};
use foliant::manager::{Contents, Setup};
use foliant::object::ObjectRequest;
use foliant::pool::Budget;
use foliant::space::{Advice, Flags, MapRequest, Move, ObjectId, Place, RangeError, SpaceId};
use foliant::table::{Paging, X86_64};
use foliant::{Access, Event, Outcome, Policy};
use foliant_machine::Replace;
use foliant_sim::{Failing, Format, X86Levels};
use foliant_units::{Bytes, Order, Pages, Va, VaRange};

type Page = [u8; PAGE as usize];

pub(crate) const SIZE: Order = Order::SIZE_2M;
pub(crate) const HUGE: Flags = Flags::READ_WRITE.with(Flags::HUGE_2M);
pub(crate) const SHARED: Flags = Flags::READ_WRITE.with(Flags::SHARED);
pub(crate) const MAPPED: [Outcome; 1] = [Outcome::Mapped(SIZE)];

pub(crate) fn at(nth: u64) -> u64 {
    BASE + nth * SIZE_2M
}
pub(crate) fn places(nth: u64, count: u64) -> VaRange {
    range(at(nth), count * SIZE_2M)
}
pub(crate) fn huge(n: u64) -> Pages {
    Pages::new(512 * n)
}
pub(crate) fn word(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}
/// Contents of which each piece tells which it is, for as many as there are.
pub(crate) struct Counting {
    page: Page,
    pieces: u64,
    asked: u64,
    is_watched: bool,
}
impl Counting {
    fn of(pieces: u64) -> Counting {
        Counting { page: [0; PAGE as usize], pieces, asked: 0, is_watched: false }
    }
    /// Contents of a page that is watched from the start.
    pub(crate) fn watched() -> Counting {
        Counting { is_watched: true, ..Counting::of(512) }
    }
}
impl HugeContents for Counting {
    fn piece(&mut self, at: Bytes) -> Option<&Page> {
        let nth = at.get() / PAGE;
        self.asked += 1;
        self.page = [(1 + nth) as u8; PAGE as usize];
        (nth < self.pieces).then_some(&self.page)
    }
    fn is_watched(&self) -> bool {
        self.is_watched
    }
}
pub(crate) fn fill<P: Paging>(mm: &AnyMm<'_, P>, id: SpaceId, nth: u64) -> Result<(), FillError> {
    mm.fill_huge(id, Va::new(at(nth)), &mut Counting::of(512))
}
fn told(nth: u64) -> Outcome {
    Outcome::Userfault(Va::new(at(nth)))
}
fn present(nth: u64) -> Result<(), FillError> {
    Err(FillError::Present(Va::new(at(nth))))
}
fn unarmed(nth: u64) -> Result<(), FillError> {
    Err(FillError::Unarmed(Va::new(at(nth))))
}
pub(crate) fn map<P: Paging>(mm: &AnyMm<'_, P>, id: SpaceId, nth: u64, count: u64, flags: Flags) {
    let (place, bytes) = (Place::NoReplace(Va::new(at(nth))), places(nth, count).bytes());
    mm.map(id, &MapRequest { place, bytes, flags, tag: 0 }).unwrap();
}
pub(crate) fn map_object<P: Paging>(
    mm: &AnyMm<'_, P>,
    id: SpaceId,
    nth: u64,
    of: ObjectId,
    flags: Flags,
) {
    let (place, bytes) = (Place::NoReplace(Va::new(at(nth))), places(nth, 3).bytes());
    mm.map_object(id, &MapRequest { place, bytes, flags, tag: 0 }, (of, huge(0))).unwrap();
}
pub(crate) fn object<P: Paging>(mm: &AnyMm<'_, P>) -> ObjectId {
    let flags = Flags::HUGE_2M;
    mm.create_object(&ObjectRequest { pages: huge(3), flags, ..Default::default() }).unwrap()
}
/// An object that the space maps shared at 0 and privately at 10, and another that maps it shared.
pub(crate) fn mapped<P: Paging>(mm: &AnyMm<'_, P>, id: SpaceId) -> (ObjectId, SpaceId) {
    let (of, other) = (object(mm), mm.create(None).unwrap());
    map_object(mm, other, 0, of, SHARED);
    map_object(mm, id, 0, of, SHARED);
    map_object(mm, id, 10, of, Flags::READ_WRITE);
    (of, other)
}
fn arm<P: Paging>(mm: &AnyMm<'_, P>, id: SpaceId, nth: u64, count: u64) {
    mm.advise(id, places(nth, count), Advice::UserfaultArm).unwrap();
}

/// A missing page that is armed, private or of an object; how many are reserved for it and others.
fn armed<P: Paging>(mm: &AnyMm<'_, P>, id: SpaceId, of_object: bool) -> u64 {
    match of_object {
        false => map(mm, id, 600, 1, HUGE),
        true => map_object(mm, id, 600, object(mm), SHARED),
    }
    arm(mm, id, 600, 1);
    mm.pool(SIZE).unwrap().resv_hugepages
}

/// Reserved and not, dropped and filled again, moved and forked: the handler knows of one space and
/// of one place.
fn life<P: Paging>(format: Format, replace: Option<Replace>) {
    let sim = sim_by(format, replace);
    let (mm, id) = filled::<P>(&sim, 8);
    let see = |id, nth, piece| load(&sim, &mm, id, at(nth) + piece * PAGE + 8);
    let put = |id, nth, value| store(&sim, &mm, id, at(nth), value);
    map(&mm, id, 0, 4, HUGE);
    assert_eq!(put(id, 3, 9), MAPPED);
    arm(&mm, id, 0, 4);
    shown(&mm, (8, 7, 3, 0));
    let deep = Va::new(at(0) + 77 * PAGE + 5);
    let page = deep.align_down(Bytes::new(PAGE));
    for access in [Access::Read, Access::Write] {
        assert_eq!(mm.fault(id, deep, access), Outcome::Userfault(page));
    }
    shown(&mm, (8, 7, 3, 0));
    assert_eq!(fill(&mm, id, 0), Ok(()));
    shown(&mm, (8, 6, 2, 0));
    assert_eq!(mm.total(Event::CopiedBytes), SIZE_2M);
    assert_eq!([see(id, 0, 0), see(id, 0, 100), see(id, 0, 511)], [1, 101, 0].map(word));
    assert_eq!(put(id, 0, 5), [], "it may be written to");
    assert_eq!([fill(&mm, id, 0), fill(&mm, id, 3)], [present(0), present(3)]);
    assert_eq!(put(id, 3, 8), [], "what was there stays as it was");
    // One that is dropped is missing again, with a reservation, as no page is surplus.
    mm.advise(id, places(0, 1), Advice::DontNeed).unwrap();
    shown(&mm, (8, 7, 3, 0));
    assert_eq!(mm.fault(id, Va::new(at(0)), Access::Read), told(0));
    assert_eq!(fill(&mm, id, 0), Ok(()));
    // A child has the page, and its missing ones are nobody's to fill.
    let child = mm.fork(id).unwrap();
    assert_eq!([fill(&mm, child, 1), fill(&mm, child, 0)], [unarmed(1), unarmed(0)]);
    mm.switch(Some(child)).unwrap();
    assert_eq!(see(child, 0, 3), word(4));
    assert_eq!(put(child, 1, 4), MAPPED);
    mm.switch(Some(id)).unwrap();
    mm.end(child).unwrap();
    // Nor are they at another place.
    assert_eq!(mm.remap(id, places(1, 1), SIZE.bytes(), Move::To(Va::new(at(10)))), {
        Ok(places(10, 1))
    });
    assert_eq!([fill(&mm, id, 10), fill(&mm, id, 1)], [unarmed(10), unarmed(1)]);
    assert_eq!(put(id, 10, 4), MAPPED);
    // Without an own reservation, and where nobody is told any more.
    map(&mm, id, 20, 2, HUGE.with(Flags::NORESERVE));
    arm(&mm, id, 20, 2);
    assert_eq!(fill(&mm, id, 21), Ok(()));
    assert_eq!(see(id, 21, 9), word(10));
    mm.advise(id, places(20, 2), Advice::UserfaultDisarm).unwrap();
    assert_eq!(fill(&mm, id, 20), unarmed(20));
    assert_eq!(put(id, 20, 1), MAPPED);
    mm.audit(&[id]).unwrap();
    mm.unmap(id, places(0, 30)).unwrap();
    shown(&mm, (8, 8, 0, 0));
}

#[test]
fn a_huge_page_is_told_once_and_filled_as_a_whole() {
    on_every_format!(life);
}

/// Of an object what it has is mapped, and what it has not is told; a page comes into the object
/// where the area is shared, and is the space's own where it is private.
fn of_objects<P: Paging>(format: Format, replace: Option<Replace>) {
    let sim = sim_by(format, replace);
    let (mm, id) = filled::<P>(&sim, 8);
    let see = |id, nth, piece| load(&sim, &mm, id, at(nth) + piece * PAGE + 8);
    let (of, other) = mapped(&mm, id);
    arm(&mm, id, 0, 3);
    arm(&mm, id, 10, 3);
    shown(&mm, (8, 8, 6, 0));
    for nth in [0, 1, 10, 11] {
        assert_eq!(mm.fault(id, Va::new(at(nth)), Access::Read), told(nth));
    }
    assert_eq!(fill(&mm, id, 1), Ok(()));
    shown(&mm, (8, 7, 5, 0));
    assert_eq!(mm.object_pages(of), Some(huge(1)));
    assert_eq!([see(id, 1, 7), see(id, 11, 7)], [word(8), word(8)], "the object has it");
    shown(&mm, (8, 7, 5, 0));
    assert_eq!([fill(&mm, id, 1), fill(&mm, id, 11)], [present(1), present(11)]);
    // What another space had made is mapped, and nobody is told.
    mm.switch(Some(other)).unwrap();
    assert_eq!(see(other, 1, 200), word(201));
    assert_eq!(store(&sim, &mm, other, at(2) + 8, 3), MAPPED);
    mm.switch(Some(id)).unwrap();
    assert_eq!(fill(&mm, id, 2), present(2));
    assert_eq!([see(id, 2, 0), see(id, 12, 0)], [3, 3]);
    // Privately a hole is filled for the space alone.
    assert_eq!(fill(&mm, id, 10), Ok(()));
    assert_eq!(see(id, 10, 5), word(6));
    assert_eq!(mm.object_pages(of), Some(huge(2)));
    assert_eq!(mm.fault(id, Va::new(at(0)), Access::Read), told(0));
    mm.audit(&[id, other]).unwrap();
    // Behind its end nothing comes, and nobody is told.
    mm.resize_object(of, huge(1)).unwrap();
    let beyond = |nth| Refusal::Beyond(Va::new(at(nth)));
    for nth in [1, 11] {
        assert_eq!(fill(&mm, id, nth), Err(FillError::Beyond(Va::new(at(nth)))));
        let refused = Outcome::Refused(beyond(nth));
        assert_eq!(mm.fault(id, Va::new(at(nth)), Access::Read), refused);
    }
    mm.switch(None).unwrap();
    mm.end(other).unwrap();
    mm.unmap(id, places(0, 30)).unwrap();
    mm.end_object(of).unwrap();
    shown(&mm, (8, 8, 0, 0));
}

#[test]
fn a_huge_page_of_an_object_is_filled_for_all_or_for_one() {
    on_every_format!(of_objects);
}

#[test]
fn what_cannot_be_filled_is_refused_and_the_pool_has_its_page() {
    let sim = sim_by(Format::X86_64(X86Levels::Four), None);
    let (mm, id) = filled::<X86_64<4>>(&sim, 2);
    map(&mm, id, 0, 2, HUGE.with(Flags::NORESERVE));
    area(&mm, id, at(10), SIZE_2M);
    arm(&mm, id, 0, 2);
    let at_va = |va: u64| mm.fill_huge(id, Va::new(va), &mut Counting::of(512));
    let cuts = RangeError::Cuts(Va::new(at(0) + PAGE), SIZE.bytes());
    assert_eq!(at_va(at(0) + PAGE), Err(cuts.into()));
    assert_eq!(at_va(at(5)), unarmed(5));
    assert_eq!(at_va(at(10)), unarmed(10));
    arm(&mm, id, 10, 1);
    assert_eq!(at_va(at(10)), unarmed(10), "there are no huge pages");
    let zeros = mm.fill(id, Va::new(at(0)), foliant::fault::FillWith::Zeros(Pages::new(1)));
    assert_eq!(zeros.unwrap_err().why, FillError::Unarmed(Va::new(at(0))));
    // Arms are a huge page's.
    for advice in [
        Advice::UserfaultArm,
        Advice::UserfaultDisarm,
        Advice::UserfaultWriteArm,
        Advice::UserfaultWriteDisarm,
    ] {
        assert_eq!(mm.advise(id, range(at(0), PAGE), advice), {
            Err(RangeError::Cuts(Va::new(at(0) + PAGE), SIZE.bytes()))
        });
    }
    let mut watched = Counting::watched();
    let got = mm.fill_huge(id, Va::new(at(0)), &mut watched);
    assert_eq!((got, watched.asked), (unarmed(0), 0), "writes are not told");
    // Contents that end early, at the first piece and at the last.
    for pieces in [0, 511] {
        let mut contents = Counting::of(pieces);
        let got = mm.fill_huge(id, Va::new(at(0)), &mut contents);
        assert_eq!((got, contents.asked), {
            (Err(FillError::NoContents(Va::new(at(0)))), pieces + 1)
        });
        shown(&mm, (2, 2, 0, 0));
        assert_eq!(mm.fault(id, Va::new(at(0)), Access::Read), told(0));
    }
    let slice: &[Page] = &vec![[6; PAGE as usize]; 512];
    assert_eq!(mm.fill_huge(id, Va::new(at(0)), &mut { slice }), Ok(()));
    assert_eq!(load(&sim, &mm, id, at(0) + 511 * PAGE), word(6));
    // The page of the fill that had too little is cleared for whoever has it next.
    mm.advise(id, places(0, 2), Advice::UserfaultDisarm).unwrap();
    assert_eq!(store(&sim, &mm, id, at(1), 1), MAPPED);
    assert_eq!(load(&sim, &mm, id, at(1) + 300 * PAGE), 0);
    // Nobody has one.
    map(&mm, id, 20, 1, HUGE.with(Flags::NORESERVE));
    arm(&mm, id, 20, 1);
    assert_eq!(fill(&mm, id, 20), Err(RangeError::NoMemory.into()));
    mm.switch(None).unwrap();
    mm.end(id).unwrap();
    assert_eq!(fill(&mm, id, 20), Err(RangeError::NoSpace.into()));
}

/// The k-th allocation is refused, for every k: the fill is made at a second look.
#[test]
fn a_huge_fill_without_memory_looks_once_more() {
    for of_object in [false, true] {
        for k in 1.. {
            let sim = sim_by(Format::X86_64(X86Levels::Four), None);
            let (mm, id) = filled::<X86_64<4>>(&sim, 3);
            armed(&mm, id, of_object);
            sim.fault_plan().set(Failing::Kth(k));
            let done = fill(&mm, id, 600);
            let refused = sim.fault_plan().refused();
            sim.fault_plan().set(Failing::Nothing);
            assert_eq!(done, Ok(()), "k = {k}");
            assert_eq!(load(&sim, &mm, id, at(600) + 5 * PAGE), word(6));
            if refused == 0 {
                assert!(k > 1, "a table is made");
                break;
            }
        }
    }
}

/// A child that lost its page to its parent gets none from a handler either.
#[test]
fn what_a_child_lost_is_not_filled() {
    let sim = sim_by(Format::X86_64(X86Levels::Four), None);
    let (mm, id) = filled::<X86_64<4>>(&sim, 1);
    map(&mm, id, 0, 1, HUGE);
    assert_eq!(store(&sim, &mm, id, at(0), 7), MAPPED);
    let child = mm.fork(id).unwrap();
    assert_eq!(store(&sim, &mm, id, at(0), 8), [Outcome::Reused]);
    mm.resize_pool(SIZE, 2, Budget::ALL).unwrap();
    mm.advise(child, places(0, 1), Advice::UserfaultArm).unwrap();
    assert_eq!(fill(&mm, child, 0), Err(RangeError::NoMemory.into()));
    assert_eq!(mm.fault(child, Va::new(at(0)), Access::Read), Outcome::NoHugePage(SIZE));
    shown(&mm, (2, 1, 0, 0));
}

/// Memory that comes zeroed is not known to be zero any more when a handler wrote to it, all of it
/// or a piece.
#[test]
fn a_page_that_was_filled_is_cleared_for_its_next_user() {
    for pieces in [1, 511, 512] {
        let sim = sim_by(Format::X86_64(X86Levels::Four), None);
        let memory = sim.config().memory.clone();
        let zero = Setup { contents: Contents::Zero, ..Setup::of(&memory, Policy::BASE_ONLY) };
        let mm: Audited<'_, X86_64<4>> = audited(&sim, &zero);
        mm.resize_pool(SIZE, 1, Budget::ALL).unwrap();
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        map(&mm, id, 0, 1, HUGE);
        arm(&mm, id, 0, 1);
        let done = mm.fill_huge(id, Va::new(at(0)), &mut Counting::of(pieces));
        assert_eq!(done.is_ok(), pieces == 512);
        mm.unmap(id, places(0, 1)).unwrap();
        map(&mm, id, 4, 1, HUGE);
        for piece in [0, 1, 255, 510, 511] {
            assert_eq!(load(&sim, &mm, id, at(4) + piece * PAGE + 8), 0, "{pieces} {piece}");
        }
    }
}

/// From the k-th allocation on each is refused: the page goes back, and a later fill has it.
#[test]
fn a_huge_fill_that_gets_no_memory_leaves_no_trace() {
    for of_object in [false, true] {
        for k in 1.. {
            let sim = sim_by(Format::X86_64(X86Levels::Four), None);
            let (mm, id) = filled::<X86_64<4>>(&sim, 3);
            let reserved = armed(&mm, id, of_object);
            sim.fault_plan().set(Failing::From(k));
            let done = fill(&mm, id, 600);
            sim.fault_plan().set(Failing::Nothing);
            mm.audit(&[id]).unwrap();
            if done.is_ok() {
                shown(&mm, (3, 2, reserved - 1, 0));
                assert!(k > 1, "a table is made");
                break;
            }
            assert_eq!(done, Err(RangeError::NoMemory.into()), "k = {k}");
            // It may be the object's by now.
            let came = 3 - mm.pool(SIZE).unwrap().free_hugepages;
            shown(&mm, (3, 3 - came, reserved - came, 0));
            match came {
                0 => assert_eq!(fill(&mm, id, 600), Ok(())),
                _ => assert_eq!(fill(&mm, id, 600), present(600)),
            }
            assert_eq!(load(&sim, &mm, id, at(600) + 5 * PAGE), word(6));
        }
    }
}

/// The area that a move has taken out comes back where the move gets no table: a fill that looks
/// for it in between waits for that.
#[test]
fn a_huge_fill_beside_a_move_without_memory_finds_its_area() {
    let moved = |k: u64, step: u64| {
        let beside = Beside::new(sim(2, 32));
        let mm = beside.manager(Policy::BASE_ONLY);
        mm.resize_pool(SIZE, 2, Budget::ALL).unwrap();
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        map(&mm, id, 0, 2, HUGE);
        assert_eq!(store(&beside.sim, &mm, id, at(1), 7), MAPPED);
        arm(&mm, id, 0, 2);
        beside.sim.on(cpu(1), || mm.online());
        let filled = std::sync::Mutex::new(None);
        let fill = || *filled.lock().unwrap() = Some(fill(&mm, id, 0));
        let far = Move::To(Va::new(BASE + (1 << 40)));
        let remap = || mm.remap(id, places(0, 2), Bytes::new(2 * SIZE_2M), far);
        beside.sim.fault_plan().set(Failing::From(k));
        let got = beside.before_step(step, fill, remap);
        beside.sim.fault_plan().set(Failing::Nothing);
        if let Some(Err(_)) = got {
            assert_eq!(*filled.lock().unwrap(), Some(Ok(())), "step {step}");
        }
        got
    };
    let enough = (1..).find(|k| moved(*k, 1).unwrap().is_ok()).unwrap();
    let steps = (1..).take_while(|step| moved(enough - 1, *step).is_some()).count();
    assert!(steps > 20, "the last of its tables is refused after {steps} steps");
}

/// A fill beside each step of another operation: the page is there with all that is in it, or not,
/// and the pool counts it once.
#[test]
fn a_huge_fill_beside_another_operation() {
    type Other = fn(&Mm<'_>, SpaceId);
    let others: [(&str, Other); 6] = [
        ("the same page", |mm, id| {
            let _ = fill(mm, id, 1);
        }),
        ("unmap", |mm, id| mm.unmap(id, places(0, 2)).unwrap()),
        ("disarm", |mm, id| mm.advise(id, places(0, 2), Advice::UserfaultDisarm).unwrap()),
        ("read only", |mm, id| mm.protect(id, places(0, 2), Flags::READ).unwrap()),
        ("drop", |mm, id| mm.advise(id, places(0, 2), Advice::DontNeed).unwrap()),
        ("fork", |mm, id| {
            let child = mm.fork(id).unwrap();
            mm.end(child).unwrap();
        }),
    ];
    for (name, other) in others {
        for step in 1.. {
            let beside = Beside::new(sim(2, 32));
            let mm = beside.manager(Policy::BASE_ONLY);
            mm.resize_pool(SIZE, 2, Budget::ALL).unwrap();
            let id = mm.create(None).unwrap();
            mm.switch(Some(id)).unwrap();
            map(&mm, id, 0, 2, HUGE);
            arm(&mm, id, 0, 2);
            beside.sim.on(cpu(1), || mm.online());
            // Pieces are many and alike: a step in ten.
            let step = if step < 60 { step } else { 60 + (step - 60) * 97 };
            let mine = || fill(&mm, id, 1);
            let Some(done) = beside.before_step(step, || other(&mm, id), mine) else {
                assert!(step > 30, "{name}");
                break;
            };
            let there = beside.sim.user_load(Va::new(at(1) + 99 * PAGE), 8).ok();
            let allowed: &[Option<u64>] = match (name, done.is_ok()) {
                ("unmap" | "drop", true) => &[Some(word(100)), None],
                ("the same page", false) => &[Some(word(100))],
                (_, true) => &[Some(word(100))],
                (_, false) => &[None],
            };
            assert!(allowed.contains(&there), "{name}, step {step}: {done:?}, {there:x?}");
            let pool = mm.pool(SIZE).unwrap();
            let used = u64::from(there.is_some());
            let is_gone = name == "unmap";
            let reserved = if is_gone { 0 } else { 2 - used };
            assert_eq!((pool.free_hugepages, pool.resv_hugepages), (2 - used, reserved), "{name}");
        }
    }
}

/// A fill of an object's page beside a store that makes it: the page is there with all that is in
/// it and the store in it, or it is the other's and the fill is refused.
#[test]
fn a_huge_fill_of_an_object_beside_a_store() {
    for step in 1.. {
        let beside = Beside::new(sim(2, 32));
        let mm = beside.manager(Policy::BASE_ONLY);
        mm.resize_pool(SIZE, 3, Budget::ALL).unwrap();
        let of = object(&mm);
        let [id, other] = [(); 2].map(|()| mm.create(None).unwrap());
        [id, other].into_iter().for_each(|id| map_object(&mm, id, 0, of, SHARED));
        arm(&mm, id, 0, 3);
        mm.switch(Some(id)).unwrap();
        beside.sim.on(cpu(1), || mm.online());
        let stores = || {
            mm.switch(Some(other)).unwrap();
            store(&beside.sim, &mm, other, at(1), 3);
        };
        // Pieces are many and alike: a step in ninety-seven.
        let step = if step < 90 { step } else { 90 + (step - 90) * 97 };
        let Some(done) = beside.before_step(step, stores, || fill(&mm, id, 1)) else {
            assert!(step > 30, "{step}");
            break;
        };
        beside.sim.on(cpu(1), || mm.switch(None).unwrap());
        let see = |piece| load(&beside.sim, &mm, id, at(1) + piece * PAGE);
        let expect = if done.is_ok() { word(100) } else { 0 };
        assert_eq!(see(99), expect, "step {step}: {done:?}");
        assert!(done.is_ok() || done == present(1), "step {step}: {done:?}");
    }
}
