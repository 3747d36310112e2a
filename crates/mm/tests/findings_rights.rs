//! What outsiders proved of faults and rights, and its kin: a second CPU acts before each step of
//! the first.

use crate::common::beside::Beside;
use crate::common::*;
use foliant::fault::{Orders, Refusal};
use foliant::frame::Kind;
use foliant::manager::{SpaceError, UserMapError};
use foliant::pool::Budget;
use foliant::space::{
    Advice, Flags, MapError, MapRequest, Move, Place, RangeError, RemapError, SpaceId,
};
use foliant::table::{Attrs, Entry, Found};
use foliant::vmap::Request;
use foliant::{Access, Outcome, Policy};
use foliant_machine::Replace;
use foliant_sim::{Config, Mode, Sim};
use foliant_units::{Bytes, Order, Va, VaRange};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

type Scene = (&'static Beside, &'static Mm<'static>);

const RULES: [Replace; 2] = [Replace::InPlace, Replace::BreakBeforeMake];
/// More steps than any of the operations here has.
const STEPS: u64 = 20_000;

/// Two CPUs that are real threads, with all checkers.
fn world(replace: Replace, policy: Policy) -> World<Beside> {
    let mut config = Config::seeded(2, Bytes::new(32 * MB), 1);
    config.mode = Mode::Free;
    config.rules.replace = replace;
    let (machine, mm, kept) = kept(Beside::new(Sim::new(config).unwrap()), policy);
    for n in 0..2 {
        machine.sim.on(cpu(n), || mm.online());
    }
    (machine, mm, kept)
}

/// A space that CPU 0 runs.
fn program(mm: &Mm<'static>) -> SpaceId {
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    id
}
fn request(at: u64, bytes: u64, flags: Flags) -> MapRequest {
    MapRequest { place: Place::NoReplace(Va::new(at)), bytes: Bytes::new(bytes), flags, tag: 0 }
}

/// Ends the spaces of a scene. Everything is recounted once, behind the last one.
fn leave((machine, mm): Scene, spaces: &[SpaceId]) {
    for n in 0..2 {
        machine.sim.on(cpu(n), || mm.switch(None).unwrap());
    }
    spaces.iter().for_each(|id| mm.end(*id).unwrap());
    assert_eq!(mm.anonymous().get(), 0, "somebody keeps a page of a space that ended");
}

/// Runs `scene` for each step of the work in it; of very long work, for some. It says when the work
/// had fewer steps.
fn at_every_step(mut scene: impl FnMut(u64) -> Option<()>) {
    let steps = (1..100).chain((100..STEPS).step_by(37));
    let last = steps.take_while(|nth| scene(*nth).is_some()).last();
    let last = last.expect("there is a step to act before");
    assert!(last < STEPS - 37, "the work never ends");
}

/// The first leaf that permits more than its area does.
fn excess(mm: &Mm<'static>, id: SpaceId, within: VaRange) -> Option<String> {
    mm.with_leaves(id, within, |mut leaves| {
        leaves.find_map(|leaf| {
            let Entry::Leaf { attrs, .. } = leaf.entry else { return None };
            let flags = mm.area(id, leaf.va).map_or(Flags::NONE, |area| area.flags);
            let more = |right, flag| attrs.has(right) && flags.and(flag) == Flags::NONE;
            let is_more = more(Attrs::WRITE, Flags::WRITE)
                || more(Attrs::EXEC, Flags::EXEC)
                || more(Attrs::USER, Flags::RIGHTS);
            is_more.then(|| format!("{attrs:?} at {} in an area with {flags:?}", leaf.va))
        })
    })
    .unwrap()
}

/// What is at the address that a fault is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Before {
    Nothing,
    Zeros,
    SharedPage,
    /// The last entry of a page that was shared.
    LeftPage,
    SharedFolio,
    SharedHugePage,
    LeftHugePage,
}
/// What the other CPU does to the area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Narrows {
    ReadOnly,
    Nothing,
    /// Another area of fewer rights takes its place, and may hold an entry of the same word.
    Replaced,
}

impl Before {
    const ALL: [Before; 7] = [
        Before::Nothing,
        Before::Zeros,
        Before::SharedPage,
        Before::LeftPage,
        Before::SharedFolio,
        Before::SharedHugePage,
        Before::LeftHugePage,
    ];
    fn flags(self) -> Flags {
        match self {
            Before::SharedHugePage | Before::LeftHugePage => {
                Flags::READ_WRITE.with(Flags::HUGE_2M).with(Flags::NORESERVE)
            }
            Before::SharedFolio => Flags::READ_WRITE.with(Flags::HUGEPAGE),
            _ => Flags::READ_WRITE,
        }
    }
    fn bytes(self) -> u64 {
        match self {
            Before::SharedFolio | Before::SharedHugePage | Before::LeftHugePage => 2 * MB,
            _ => 4096,
        }
    }
    /// Makes it so in a new space; returns it, its area, and the spaces besides it.
    fn make(self, (machine, mm): Scene) -> (SpaceId, VaRange, Vec<SpaceId>) {
        let id = program(mm);
        let area = mm.map(id, &request(BASE, self.bytes(), self.flags())).unwrap();
        match self {
            Before::Nothing => return (id, area, vec![]),
            Before::Zeros => assert_eq!(load(&machine.sim, mm, id, BASE), 0),
            _ => drop(store(&machine.sim, mm, id, BASE, 7)),
        }
        let shared = !matches!(self, Before::Zeros);
        let mut others = vec![];
        others.extend(shared.then(|| mm.fork(id).unwrap()));
        if matches!(self, Before::LeftPage | Before::LeftHugePage) {
            others.drain(..).for_each(|child| mm.end(child).unwrap());
        }
        (id, area, others)
    }
}

fn narrow((_, mm): Scene, id: SpaceId, area: VaRange, before: Before, how: Narrows) {
    match how {
        Narrows::ReadOnly => mm.protect(id, area, Flags::READ).unwrap(),
        Narrows::Nothing => mm.protect(id, area, Flags::NONE).unwrap(),
        Narrows::Replaced => {
            let flags = before.flags().without(Flags::WRITE);
            mm.unmap(id, area).unwrap();
            mm.map(id, &request(area.start().get(), area.bytes().get(), flags)).unwrap();
            mm.fault(id, area.start(), Access::Read);
        }
    }
}

/// Kernel memory, mapped into a program with `rights`.
fn lent((_, mm): Scene, id: SpaceId, rights: Flags) -> (VaRange, VaRange) {
    let kernel = mm.vmalloc(&Request::of(Bytes::new(3 * 4096)).for_users()).unwrap();
    let lent = mm.map_user(id, &request(BASE, 3 * 4096, rights), kernel.start()).unwrap();
    (kernel, lent)
}

fn no_fault_undoes(before: Before, how: Narrows, access: Access) {
    for replace in RULES {
        let (machine, mm, _over) = world(replace, Policy::BASE_ONLY);
        let world = (machine, mm);
        if before == Before::SharedFolio {
            mm.set_policy(Policy::always(Orders::of(Order::SIZE_2M)));
        }
        mm.resize_pool(Order::SIZE_2M, 4, Budget::ALL).unwrap();
        at_every_step(|nth| {
            let (id, area, others) = before.make(world);
            let part = move || narrow(world, id, area, before, how);
            let outcome = machine.before_step(nth, part, || mm.fault(id, area.start(), access));
            if outcome.is_some() {
                let found = excess(mm, id, area);
                let story = format!("{before:?}, {access:?}, {how:?}, {replace:?}, step {nth}");
                assert_eq!(found, None, "{story}: {outcome:?}");
            }
            let spaces: Vec<_> = others.into_iter().chain([id]).collect();
            leave(world, &spaces);
            outcome.map(drop)
        });
    }
}

/// Whatever a write finds, and however the area loses the right to it meanwhile: no entry says more
/// than the area.
#[test]
fn finding_a_no_write_fault_undoes_a_finished_protect() {
    for before in Before::ALL {
        for how in [Narrows::ReadOnly, Narrows::Nothing, Narrows::Replaced] {
            no_fault_undoes(before, how, Access::Write);
        }
    }
}

#[test]
fn finding_a_no_read_fault_undoes_a_finished_protect() {
    no_fault_undoes(Before::Nothing, Narrows::Nothing, Access::Read);
    no_fault_undoes(Before::Nothing, Narrows::Replaced, Access::Read);
}

/// A walker keeps what it finds of a fault's folio, and the fault loses its place: the folio is
/// there for as long as it is kept.
#[test]
fn finding_d_a_folio_that_lost_its_place_stays_while_it_is_kept() {
    for order in [Order::BASE, Order::new(4).unwrap(), Order::SIZE_2M] {
        let (machine, mm, _over) = world(Replace::InPlace, Policy::always(Orders::of(order)));
        let world = (machine, mm);
        let mut lost = 0;
        at_every_step(|nth| {
            let id = program(mm);
            area(mm, id, BASE, 2 * MB);
            let kept: &'static Mutex<Vec<_>> = Box::leak(Box::default());
            let part = move || {
                let heads = mm.ranges().flat_map(|range| range.iter());
                let heads = heads.filter(|frame| mm.identity(*frame).kind() == Kind::Anon);
                kept.lock().unwrap().extend(heads.filter_map(|head| mm.reference(head)));
                mm.fault(id, Va::new(BASE), Access::Write);
            };
            let done =
                machine.before_step(nth, part, || mm.fault(id, Va::new(BASE), Access::Write));
            let mapped = mm.frame_at(id, Va::new(BASE));
            for reference in kept.lock().unwrap().drain(..) {
                let head = reference.head();
                lost += u64::from(mapped != Some(head));
                assert_eq!(mm.identity(head).kind(), Kind::Anon, "order {order:?}, step {nth}");
            }
            leave(world, &[id]);
            done.map(drop)
        });
        finish(&machine.sim, mm, &[]);
        assert!(lost > 0, "no folio of order {order:?} ever lost its place under a reference");
    }
}

#[test]
fn finding_e_what_was_lent_for_reading_is_not_made_writable() {
    let (machine, mm, _over) = world(Replace::InPlace, Policy::BASE_ONLY);
    let world = (machine, mm);
    let id = program(mm);
    let (kernel, lent) = lent(world, id, Flags::READ);
    let page = range(BASE + 4096, 4096);
    for rights in [Flags::READ_WRITE, Flags::WRITE, Flags::READ.with(Flags::EXEC), Flags::RIGHTS] {
        for part in [lent, page] {
            assert!(mm.protect(id, part, rights).is_err(), "{rights:?} for {part:?}");
        }
        assert_eq!(mm.area(id, lent.start()).unwrap().range, lent, "refused means unchanged");
        assert!(machine.sim.user_store(page.start(), 8, 99).is_err());
    }
    assert_eq!(excess(mm, id, lent), None);
    mm.protect(id, page, Flags::NONE).unwrap();
    assert!(mm.protect(id, lent, Flags::READ_WRITE).is_err(), "a part had no rights for a while");
    mm.protect(id, lent, Flags::READ).unwrap();
    assert_eq!(load(&machine.sim, mm, id, BASE + 4096), 0);
    mm.switch(None).unwrap();
    mm.end(id).unwrap();
    mm.vfree(kernel.start()).unwrap();
}

/// A space that runs is not ended, and its programs see nothing of the attempt.
#[test]
fn finding_l_an_end_that_is_refused_is_not_noticed() {
    let (machine, mm, _over) = world(Replace::InPlace, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    machine.sim.on(cpu(1), || mm.switch(Some(id)).unwrap());
    area(mm, id, BASE, 16 * MB);
    let mut page = 0;
    at_every_step(|nth| {
        page += 1;
        let va = Va::new(BASE + page * 4096);
        let part = move || {
            assert_eq!(mm.fault(id, va, Access::Write), Outcome::Mapped(Order::BASE), "step {nth}");
            mm.protect(id, range(va.get(), 4096), Flags::READ).unwrap();
        };
        let done = machine.before_step(nth, part, || mm.end(id));
        if let Some(done) = done {
            assert_eq!(done, Err(SpaceError::Running(cpu(1))), "step {nth}");
        }
        done.map(drop)
    });
}

/// Of an end and a CPU that begins to run the space one gets its will, and the other is told.
#[test]
fn finding_l_a_space_ends_or_is_run() {
    let (machine, mm, _over) = world(Replace::InPlace, Policy::BASE_ONLY);
    mm.switch(None).unwrap();
    let mut seen = [0; 2];
    at_every_step(|nth| {
        let id = mm.create(None).unwrap();
        area(mm, id, BASE, MB);
        let ran: &'static Mutex<Option<bool>> = Box::leak(Box::default());
        let part = move || {
            let switched = mm.switch(Some(id));
            *ran.lock().unwrap() = Some(switched.is_ok());
            if switched.is_ok() {
                assert_eq!(
                    mm.fault(id, Va::new(BASE), Access::Write),
                    Outcome::Mapped(Order::BASE)
                );
            }
        };
        let ended = machine.before_step(nth, part, || mm.end(id));
        if let (Some(ended), Some(ran)) = (ended, *ran.lock().unwrap()) {
            assert_eq!(ended.is_err(), ran, "step {nth}: {ended:?}");
            seen[usize::from(ran)] += 1;
        }
        machine.sim.on(cpu(1), || mm.switch(None).unwrap());
        if ended.is_some_and(|ended| ended.is_err()) {
            mm.end(id).unwrap();
        }
        ended.map(drop)
    });
    assert!(seen.iter().all(|times| *times > 0), "{seen:?}");
}

/// Kernel memory that the program drops while it faults there: the page is there, or it is gone for
/// good.
#[test]
fn finding_p_no_fault_brings_a_page_into_kernel_memory() {
    for replace in RULES {
        for access in [Access::Read, Access::Write] {
            let (machine, mm, _over) = world(replace, Policy::BASE_ONLY);
            let world = (machine, mm);
            at_every_step(|nth| {
                let id = program(mm);
                let (kernel, lent) = lent(world, id, Flags::READ_WRITE);
                let part = move || mm.advise(id, lent, Advice::DontNeed).unwrap();
                let outcome = machine.before_step(nth, part, || mm.fault(id, lent.start(), access));
                if let Some(outcome) = outcome {
                    let gone = Outcome::Refused(Refusal::Kernel(lent.start()));
                    assert!(
                        [Outcome::Spurious, gone].contains(&outcome),
                        "step {nth}: {outcome:?}"
                    );
                    assert_eq!(mm.pages(id).unwrap().get(), 0, "step {nth}");
                }
                leave(world, &[id]);
                mm.vfree(kernel.start()).unwrap();
                outcome.map(drop)
            });
        }
    }
}

/// Whoever populates for long lets others run, however the pages come.
#[test]
fn finding_r7_populating_yields() {
    let (machine, mm, _over) = world(Replace::InPlace, Policy::BASE_ONLY);
    let id = program(mm);
    let whole = area(mm, id, BASE, 8 * MB);
    for (advice, pages) in [(Advice::PopulateRead, 0), (Advice::PopulateWrite, 2048)] {
        for _ in 0..2 {
            let before = machine.yields();
            mm.advise(id, whole, advice).unwrap();
            assert_eq!(mm.pages(id).unwrap().get(), pages);
            let yields = machine.yields() - before;
            assert!(yields >= 2048 / 64, "{advice:?}: {yields} yields for 2048 pages");
        }
    }
}

/// A request that is refused for its place takes no reservation: where reservations need new huge
/// pages none is made.
#[test]
fn finding_r12_a_refused_map_makes_no_reservation() {
    let (machine, mm, _over) = world(Replace::InPlace, Policy::BASE_ONLY);
    mm.pools().set_overcommit(Order::SIZE_2M, 2).unwrap();
    let id = program(mm);
    area(mm, id, BASE, 4096);
    let flags = Flags::READ_WRITE.with(Flags::HUGE_2M);
    let steps = |at, flags| {
        let before = machine.steps();
        let done = mm.map(id, &request(at, 4 * MB, flags));
        (machine.steps() - before, done.is_ok())
    };
    for at in [BASE, BASE + 4096] {
        let plain = steps(BASE, Flags::READ_WRITE);
        assert_eq!(steps(at, flags), plain, "huge pages were made for a request that is refused");
    }
    assert!(steps(BASE + 2 * MB, flags).1);
}

/// Two programs are lent one piece of kernel memory at once.
#[test]
fn finding_r13_two_programs_are_lent_the_same_memory_at_once() {
    let (machine, mm, _over) = world(Replace::InPlace, Policy::BASE_ONLY);
    let world = (machine, mm);
    at_every_step(|nth| {
        let kernel = mm.vmalloc(&Request::of(Bytes::new(2 * 4096)).for_users()).unwrap();
        let [one, two] = [0; 2].map(|_| mm.create(None).unwrap());
        let ask = request(BASE, 2 * 4096, Flags::READ_WRITE);
        let part = move || {
            mm.map_user(two, &ask, kernel.start()).unwrap();
        };
        let done = machine.before_step(nth, part, || mm.map_user(one, &ask, kernel.start()));
        if let Some(done) = &done {
            assert!(done.is_ok(), "step {nth}: {done:?}");
            let frames = [one, two].map(|id| mm.frame_at(id, Va::new(BASE)));
            assert_eq!(frames[0], frames[1]);
        }
        mm.vfree(kernel.start()).unwrap();
        leave(world, &[one, two]);
        done.map(drop)
    });
}

/// A program that loads while another of its threads puts guards there finds its data or the guard,
/// and no zeros.
#[test]
fn finding_r15_a_load_beside_a_guard_finds_data_or_the_guard() {
    for replace in RULES {
        for order in [Order::BASE, Order::SIZE_2M] {
            let (machine, mm, _over) = world(replace, Policy::always(Orders::of(order)));
            let world = (machine, mm);
            at_every_step(|nth| {
                let id = program(mm);
                area(mm, id, BASE, 2 * MB);
                store(&machine.sim, mm, id, BASE + 4096, 7);
                let part = move || {
                    mm.switch(Some(id)).unwrap();
                    let va = Va::new(BASE + 4096);
                    for _ in 0..4 {
                        match machine.sim.user_load(va, 8) {
                            Ok(value) => return assert_eq!(value, 7, "step {nth}"),
                            Err(_) => match mm.fault(id, va, Access::Read) {
                                Outcome::Refused(Refusal::Guard(_)) => return,
                                Outcome::Spurious => {}
                                other => panic!("step {nth}: {other:?}"),
                            },
                        }
                    }
                };
                let guarded = range(BASE + 4096, 4 * 4096);
                let advise = || mm.advise(id, guarded, Advice::GuardInstall).unwrap();
                let done = machine.before_step(nth, part, advise);
                let refused = mm.fault(id, Va::new(BASE + 4096), Access::Read);
                assert!(matches!(refused, Outcome::Refused(Refusal::Guard(_))), "{refused:?}");
                leave(world, &[id]);
                done
            });
        }
    }
}

/// A reference keeps memory, and no place: whoever writes to a page that was shared gets a copy,
/// and the one that is kept stays what it was, also when nobody maps it any more.
#[test]
fn finding_r5_a_reference_keeps_memory_and_no_place() {
    for replace in RULES {
        let (machine, mm, _over) = world(replace, Policy::BASE_ONLY);
        let id = program(mm);
        area(mm, id, BASE, 4096);
        store(&machine.sim, mm, id, BASE, 1);
        let frame = || mm.frame_at(id, Va::new(BASE)).unwrap();
        let kept = mm.reference(frame()).unwrap();
        store(&machine.sim, mm, id, BASE, 2);
        assert_eq!(frame(), kept.head(), "a page that nobody shares is written in its place");
        let child = mm.fork(id).unwrap();
        assert_eq!(store(&machine.sim, mm, id, BASE, 3), [Outcome::Copied]);
        assert_ne!(frame(), kept.head(), "the one that is kept is the child's as well");
        mm.switch(Some(child)).unwrap();
        assert_eq!(load(&machine.sim, mm, child, BASE), 2);
        assert_eq!(mm.frame_at(child, Va::new(BASE)), Some(kept.head()));
        mm.switch(Some(id)).unwrap();
        mm.end(child).unwrap();
        assert_eq!(mm.identity(kept.head()).kind(), Kind::Anon, "nobody maps it, and it is there");
        drop(kept);
    }
}

/// Nothing is mapped where null pointers lead, however it is asked for.
#[test]
fn finding_r6_the_lowest_addresses_stay_empty() {
    let (machine, mm, _over) = world(Replace::InPlace, Policy::BASE_ONLY);
    let _ = (machine, mm);
    let id = program(mm);
    let lowest = mm.lowest_address();
    assert!(lowest > Va::new(0));
    let flags = Flags::READ_WRITE;
    let ask = |place| MapRequest { place, ..request(0, 8192, flags) };
    let below = Va::new(lowest.get() - 4096);
    let whole = area(mm, id, BASE, 8192);
    let kernel = mm.vmalloc(&Request::of(Bytes::new(8192)).for_users()).unwrap();
    for va in [Va::new(0), Va::new(4096), below] {
        let refused = RangeError::TooLow(va, lowest);
        for place in [Place::Fixed(va), Place::NoReplace(va)] {
            assert_eq!(mm.map(id, &ask(place)), Err(MapError::Range(refused)));
            let lent = mm.map_user(id, &ask(place), kernel.start());
            assert_eq!(lent, Err(UserMapError::Space(MapError::Range(refused))));
        }
        let moved = mm.remap(id, whole, whole.bytes(), Move::To(va));
        assert_eq!(moved, Err(RemapError::Map(MapError::Range(refused))));
        assert!(mm.map(id, &ask(Place::Hint(va))).unwrap().start() >= lowest);
    }
    let stack = flags.with(Flags::GROWS_DOWN);
    mm.map(id, &MapRequest { flags: stack, ..ask(Place::Fixed(lowest)) }).unwrap();
    let refused = Outcome::Refused(Refusal::NoArea(below));
    assert_eq!(mm.fault(id, below, Access::Write), refused, "nor does a stack grow there");
    assert_eq!(mm.area_at_or_after(id, Va::new(0)).unwrap().range.start(), lowest);

    // Nor does a search go below it, where nothing else is left.
    let full = mm.create(None).unwrap();
    mm.set_lowest_address(Va::new(BASE));
    let rest = request(BASE, 0x7fff_ffff_f000 - BASE, Flags::READ);
    mm.map(full, &rest).unwrap();
    let found = mm.map(full, &ask(Place::Anywhere));
    assert_eq!(found, Err(MapError::NoRoom(Bytes::new(8192))));
    mm.end(full).unwrap();

    mm.set_lowest_address(Va::new(0));
    let null = mm.map(id, &ask(Place::Fixed(Va::new(0)))).unwrap();
    assert_eq!(null.start(), Va::new(0), "who wants to has it");
    store(&machine.sim, mm, id, 8, 7);
    mm.set_lowest_address(lowest);
    assert_eq!(load(&machine.sim, mm, id, 8), 7);
    mm.unmap(id, null).unwrap();
    mm.vfree(kernel.start()).unwrap();
}

/// A ceiling goes wherever the area goes, and keeps it apart from others.
#[test]
fn finding_e_a_ceiling_stays_with_the_area() {
    let (_, mm, _over) = world(Replace::InPlace, Policy::BASE_ONLY);
    let id = program(mm);
    let low = Flags::READ.at_most(Flags::READ);
    assert_eq!((low.ceiling(), Flags::READ.ceiling()), (Flags::READ, Flags::RIGHTS));
    assert_eq!(low.at_most(Flags::RIGHTS).ceiling(), Flags::READ, "it is never raised");
    let above = Flags::READ_WRITE.at_most(Flags::READ);
    assert_eq!(mm.map(id, &request(BASE, 8192, above)), Err(MapError::Flags(above)));
    let whole = mm.map(id, &request(BASE, 8192, low)).unwrap();
    mm.map(id, &request(BASE + 8192, 8192, Flags::READ)).unwrap();
    assert_eq!(mm.area(id, whole.start()).unwrap().range, whole, "it is not its neighbour");
    let ceiling = |va| Err(RangeError::Ceiling(Va::new(va), Flags::READ));
    let both = range(BASE, 4 * 4096);
    assert_eq!(mm.protect(id, both, Flags::READ_WRITE), ceiling(BASE));
    mm.protect(id, range(BASE + 8192, 8192), Flags::READ_WRITE).unwrap();

    let child = mm.fork(id).unwrap();
    assert_eq!(mm.protect(child, whole, Flags::WRITE), ceiling(BASE), "after a fork");
    let moved = mm.remap(id, range(BASE + 4096, 4096), Bytes::new(8192), Move::MayMove).unwrap();
    assert_eq!(mm.protect(id, moved, Flags::WRITE), ceiling(moved.start().get()), "after a move");
    mm.advise(id, moved, Advice::HugePage).unwrap();
    assert_eq!(mm.protect(id, moved, Flags::EXEC), ceiling(moved.start().get()), "after advice");
    let refused = mm.fault(id, moved.start(), Access::Write);
    assert!(matches!(refused, Outcome::Refused(Refusal::NoRight(..))));
}

/// A fetch that comes when its area allows it and its entry does not yet waits for the entry: it is
/// done when it can be.
#[test]
fn finding_cm_a_fetch_waits_for_the_right_that_its_area_has_got() {
    for replace in RULES {
        for before in [Before::Zeros, Before::LeftPage, Before::SharedFolio, Before::LeftHugePage] {
            let (machine, mm, _over) = world(replace, Policy::always(Orders::of(Order::SIZE_2M)));
            mm.resize_pool(Order::SIZE_2M, 4, Budget::ALL).unwrap();
            let (id, area, others) = before.make((machine, mm));
            let exec = Flags::READ.with(Flags::EXEC);
            let has = |right| {
                let leaf = |leaf: Found| match leaf.entry {
                    Entry::Leaf { attrs, .. } => attrs.has(right),
                    _ => false,
                };
                mm.with_leaves(id, area, |mut leaves| leaves.next().is_some_and(leaf)).unwrap()
            };
            let mut early = 0;
            at_every_step(|nth| {
                mm.protect(id, area, Flags::READ).unwrap();
                let was_early = AtomicBool::new(false);
                let part = || {
                    let granted = mm.area(id, area.start()).unwrap().flags.has(Flags::EXEC);
                    was_early.store(granted && !has(Attrs::EXEC), Ordering::SeqCst);
                    let fetched = mm.fault(id, area.start(), Access::Execute);
                    match fetched {
                        Outcome::Refused(Refusal::NoRight(..)) => assert!(!granted, "step {nth}"),
                        _ => assert!(
                            has(Attrs::EXEC),
                            "{replace:?} {before:?}, step {nth}: {fetched:?}, and it can not be fetched"
                        ),
                    }
                };
                let done = machine.before_step(nth, part, || mm.protect(id, area, exec).unwrap());
                early += u64::from(was_early.into_inner());
                done
            });
            assert!(early > 0, "{replace:?} {before:?}: no fetch came before its entry");
            others.into_iter().chain([id]).for_each(|id| {
                mm.switch(None).unwrap();
                mm.end(id).unwrap();
            });
        }
    }
}
