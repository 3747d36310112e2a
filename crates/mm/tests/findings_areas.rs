//! What outsiders proved of areas, their limits and what a space is charged for; docs/findings.md
//! tells of each.

use crate::common::beside::{Beside, some_steps};
use crate::common::*;
use foliant::fault::{Orders, Refusal};
use foliant::manager::{Setup, SpaceError, UserMapError};
use foliant::object::ObjectRequest;
use foliant::pool::Budget;
use foliant::space::{
    Advice, AreaLimit, Flags, MapError, MapRequest, Move, ObjectId, Place, RangeError, SpaceId,
};
use foliant::split::SplitInto;
use foliant::table::{Attrs, Entry};
use foliant::vmap::{FrameMapping, Guard, Request};
use foliant::{Access, Outcome, Policy};
use foliant_machine::{Around, Clock, PhysMem};
use foliant_sim::Sim;
use foliant_units::{Bytes, Frame, Order, Pa, Pages, Va, VaRange};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

type Hook = Box<dyn FnOnce() + Send>;

/// The simulator, which counts how often records are reached for, lets a test act at one of these
/// points, and refuses what is no memory.
struct Watcher {
    sim: Sim,
    reached: AtomicU64,
    /// Words of tables stored since the last preemption point, and the most that ever were.
    stored: [AtomicU64; 2],
    yields: AtomicU64,
    yielding: Mutex<Option<Hook>>,
    due: Mutex<Option<(u64, Hook)>>,
}

impl Watcher {
    fn new(sim: Sim) -> Watcher {
        let (due, yielding) = (Mutex::new(None), Mutex::new(None));
        Watcher {
            sim,
            reached: 0.into(),
            stored: [0.into(), 0.into()],
            yields: 0.into(),
            yielding,
            due,
        }
    }
    /// Runs `hook` once, when records are reached for the `nth` time from now on, 1 being the next.
    fn at_reach(&self, nth: u64, hook: impl FnOnce() + Send + 'static) {
        let at = self.reached.load(Ordering::Relaxed) + nth;
        *self.due.lock().unwrap() = Some((at, Box::new(hook)));
    }
    /// How often `act` reaches for records, and what it returns.
    fn count<R>(&self, act: impl FnOnce() -> R) -> (u64, R) {
        let before = self.reached.load(Ordering::Relaxed);
        let done = act();
        (self.reached.load(Ordering::Relaxed) - before, done)
    }
}

simulated!(Watcher);
#[allow(unsafe_code)]
// SAFETY: everything is the simulator's.
unsafe impl Around for Watcher {
    type Inner = Sim;

    fn inner(&self) -> &Sim {
        &self.sim
    }
    unsafe fn reach(&self, pa: Pa, bytes: Bytes) -> NonNull<u8> {
        let memory = self.sim.config().memory[0];
        assert!(memory.contains(pa.frame()), "a record is looked for at {pa}, which is no memory");
        let count = self.reached.fetch_add(1, Ordering::Relaxed) + 1;
        let due = self.due.lock().unwrap().take_if(|(at, _)| *at == count);
        if let Some((_, hook)) = due {
            hook();
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { self.sim.reach(pa, bytes) }
    }
    unsafe fn store(&self, pa: Pa, word: u64) {
        let stored = self.stored[0].fetch_add(1, Ordering::Relaxed) + 1;
        self.stored[1].fetch_max(stored, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { self.sim.store(pa, word) }
    }
    fn yield_now(&self) {
        self.stored[0].store(0, Ordering::Relaxed);
        self.yields.fetch_add(1, Ordering::Relaxed);
        let due = self.yielding.lock().unwrap().take();
        if let Some(hook) = due {
            hook();
        }
        self.sim.yield_now();
    }
}

type Watched = Mm<'static>;

fn watched(megabytes: u64) -> World<Watcher> {
    kept(Watcher::new(sim(1, megabytes)), Policy::BASE_ONLY)
}

/// Page-sized areas with a page between them, from number `from` on.
fn scatter(mm: &Watched, id: SpaceId, numbers: std::ops::Range<u64>, tag: u64) {
    for n in numbers {
        let place = Place::NoReplace(Va::new(BASE + n * 8192));
        let request = MapRequest { place, bytes: Bytes::new(4096), flags: Flags::READ_WRITE, tag };
        mm.map(id, &request).unwrap();
    }
}

/// A reader stands between two loads while a writer takes the top of the tree away and makes a leaf
/// of that frame. What was a child's frame number is an address or a tag by then.
#[test]
fn finding_f_a_reader_follows_only_words_that_name_nodes() {
    const AREAS: u64 = 12_000;
    const LESS: u64 = AREAS / 2 + 150;
    let (machine, mm, _over) = watched(64);
    let world = (machine, mm);
    for target in [LESS / 2, AREAS - 1] {
        // Each time with a tree that grew from the left: one that was changed has another shape.
        (1..).find(|nth| !a_writer_meets_a_reader(world, (AREAS, LESS), target, *nth));
    }
}

/// Lets a writer take `less` of `areas` out and put them in again when a reader that looks for
/// number `target` reaches for the `nth` record. Says whether it reaches for so many.
fn a_writer_meets_a_reader(
    (machine, mm): (&'static Watcher, &'static Watched),
    (areas, less): (u64, u64),
    target: u64,
    nth: u64,
) -> bool {
    const WILD: u64 = 0x5555_5555_5555;
    let id = mm.create(None).unwrap();
    scatter(mm, id, 0..areas, WILD);
    // Not where the last change was: that leaf is looked at first.
    let looks = move || machine.count(|| mm.area(id, Va::new(BASE + (areas - 101) * 8192))).0;
    let high = looks();
    machine.at_reach(nth, move || {
        mm.unmap(id, range(BASE, 8192 * less)).unwrap();
        assert!(looks() < high, "the top of the tree is taken away");
        scatter(mm, id, 0..less, WILD);
    });
    let va = Va::new(BASE + target * 8192);
    let found = mm.area(id, va).expect("the reader looks again after the writer");
    assert_eq!(found.range.start(), va);
    let met = machine.due.lock().unwrap().take().is_none();
    mm.end(id).unwrap();
    met
}

/// Areas with a page between them fill all addresses but for one gap of three pages, at the far end
/// of where a search begins. Returns how many nodes are looked at to map two pages into it.
fn looks_for_a_gap(areas: u64) -> u64 {
    let machine: &'static Watcher = Box::leak(Box::new(Watcher::new(sim(1, 64))));
    let memory = &machine.sim.config().memory;
    let setup = Setup { areas: AreaLimit(1 << 20), ..Setup::of(memory, Policy::BASE_ONLY) };
    let (machine, mm, _over) = kept_as(machine, &setup);
    let id = mm.create(None).unwrap();
    scatter(mm, id, 0..3, 0);
    scatter(mm, id, 4..areas, 0);
    let end = BASE + areas * 8192;
    // Above the last one, and below the first one.
    let half = 0x7fff_ffff_f000;
    for (start, end) in [(end, half), (0x1_0000, BASE)] {
        let place = Place::NoReplace(Va::new(start));
        let bytes = Bytes::new(end - start);
        let request = MapRequest { place, bytes, flags: Flags::READ, tag: 1 };
        mm.map(id, &request).unwrap();
    }
    let bytes = Bytes::new(8192);
    let request = MapRequest { place: Place::Anywhere, bytes, flags: Flags::READ, tag: 2 };
    let (looks, found) = machine.count(|| mm.map(id, &request).unwrap());
    assert_eq!(found, range(BASE + 3 * 8192, 8192), "at the gap's upper end");
    mm.end(id).unwrap();
    looks
}

/// Kernel ranges of a page with a page between them, and a gap of three pages at the far end of
/// where a search begins. Returns how many nodes and records are looked at to map two pages into
/// it.
fn looks_for_a_kernel_gap(ranges: u64) -> u64 {
    let (machine, mm, _over) = watched(64);
    let how = FrameMapping { guard: Guard::None, ..FrameMapping::PLAIN };
    let frame = machine.sim.config().memory[0].start();
    let map = |frames: &[Frame]| mm.vmap_frames(frames, &how).unwrap().start();
    let taken: Vec<Va> = (0..2 * ranges).map(|_| map(&[frame])).collect();
    let gap = taken.len() - 4;
    for (nth, va) in taken.iter().enumerate() {
        if nth % 2 == 0 || nth == gap + 1 {
            mm.vunmap(*va).unwrap();
        }
    }
    mm.purge_vmalloc();
    let (looks, found) = machine.count(|| map(&[frame; 2]));
    assert_eq!(found, taken[gap], "at the gap's lower end");
    mm.audit(&[]).unwrap();
    looks
}

/// The search looked at each area. Of a hundred thousand four nodes are looked at on each way down,
/// of ten one; and where a caller looks again it looks at the leaf that was changed last.
#[test]
fn finding_j_the_search_for_a_gap_does_not_grow_with_the_areas() {
    for (what, looks) in
        [("areas", looks_for_a_gap as fn(u64) -> u64), ("kernel ranges", looks_for_a_kernel_gap)]
    {
        let (few, many) = (looks(10), looks(100_000));
        println!("{few} nodes and records looked at among 10 {what}, {many} among 100,000");
        assert!(many <= few + 20, "{few} among 10 {what}, {many} among 100,000");
    }
}

/// There was no limit. What joins, or takes the place of others, does not count; what is refused
/// leaves no trace.
#[test]
fn finding_j_a_space_has_as_many_areas_as_it_may() {
    let sim = sim(1, 64);
    let memory = &sim.config().memory;
    let limit = AreaLimit(8);
    let setup = Setup { areas: limit, ..Setup::of(memory, Policy::BASE_ONLY) };
    let mm: AuditedMm<'_> = audited(&sim, &setup);
    let id = mm.create(None).unwrap();
    let at = |n: u64| BASE + n * 8 * 4096;
    let map = |id, place, pages: u64| {
        let bytes = Bytes::new(pages * 4096);
        mm.map(id, &MapRequest { place, bytes, flags: Flags::READ_WRITE, tag: 0 })
    };
    let list = |id| {
        let mut from = Va::new(0);
        std::iter::from_fn(|| {
            let area = mm.area_at_or_after(id, from)?;
            from = area.range.end();
            Some(area)
        })
        .collect::<Vec<_>>()
    };
    for n in 0..8 {
        map(id, Place::NoReplace(Va::new(at(n))), 4).unwrap();
    }
    let kernel = mm.vmalloc(&Request::of(Bytes::new(4096)).for_users()).unwrap();
    let lent = |place| {
        let request = MapRequest { place, bytes: Bytes::new(4096), flags: Flags::READ, tag: 0 };
        mm.map_user(id, &request, kernel.start())
    };
    let refused = RangeError::TooManyAreas(limit);
    let all = list(id);
    assert_eq!(map(id, Place::Anywhere, 4), Err(refused.into()));
    assert_eq!(map(id, Place::NoReplace(Va::new(at(9))), 1), Err(refused.into()));
    assert_eq!(mm.protect(id, range(at(2), 4096), Flags::READ), Err(refused));
    assert_eq!(mm.unmap(id, range(at(2) + 4096, 4096)), Err(refused));
    assert_eq!(mm.advise(id, range(at(2) + 4096, 4096), Advice::HugePage), Err(refused));
    let part = mm.remap(id, range(at(2) + 4096, 8192), Bytes::new(8192), Move::To(Va::new(at(9))));
    assert_eq!(part, Err(refused.into()));
    let not_lent = UserMapError::Space(refused.into());
    assert_eq!(lent(Place::NoReplace(Va::new(at(9)))), Err(not_lent));
    assert_eq!(list(id), all, "what is refused changes nothing");
    assert!(refused.to_string().contains("8 areas"), "{refused}");
    // No more than before: at an end, between two, in the place of one, a whole one changed or
    // moved, an end cut off.
    map(id, Place::NoReplace(Va::new(at(0) + 4 * 4096)), 1).unwrap();
    map(id, Place::NoReplace(Va::new(at(1) + 4 * 4096)), 4).unwrap(); // to the next one: seven are left
    map(id, Place::NoReplace(Va::new(at(9))), 4).unwrap();
    map(id, Place::Fixed(Va::new(at(9))), 4).unwrap();
    mm.protect(id, range(at(9), 4 * 4096), Flags::READ).unwrap();
    mm.unmap(id, range(at(4), 4096)).unwrap();
    mm.remap(id, range(at(5), 4 * 4096), Bytes::new(4 * 4096), Move::To(Va::new(at(12)))).unwrap();
    assert_eq!(list(id).len(), 8);
    // A stack that grows stays one.
    mm.unmap(id, range(at(12), 4 * 4096)).unwrap();
    let flags = Flags::READ_WRITE.with(Flags::GROWS_DOWN);
    let place = Place::NoReplace(Va::new(at(1000)));
    mm.map(id, &MapRequest { place, bytes: Bytes::new(4 * 4096), flags, tag: 0 }).unwrap();
    assert_eq!(list(id).len(), 8);
    let below = Va::new(at(1000) - 4096);
    assert_eq!(mm.fault(id, below, Access::Write), Outcome::Mapped(Order::BASE));
    mm.unmap(id, range(at(1000) - 4096, 5 * 4096)).unwrap();
    map(id, Place::NoReplace(Va::new(at(12))), 4).unwrap();
    // A child may have as many as its parent.
    let child = mm.fork(id).unwrap();
    assert_eq!(list(child).len(), 8);
    assert_eq!(map(child, Place::Anywhere, 4), Err(refused.into()));
    mm.unmap(child, range(at(12), 4 * 4096)).unwrap();
    map(child, Place::NoReplace(Va::new(at(20))), 4).unwrap();
    mm.vfree(kernel.start()).unwrap();
}

/// What a call takes grows neither with the objects that a space maps nor with the spaces that map
/// an object.
#[test]
fn objects_are_mapped_beside_many_others_as_beside_few() {
    const MANY: u64 = 300;
    let (machine, mm, _over) = watched(64);
    let object = || mm.create_object(&ObjectRequest { pages: Pages::new(1), ..Default::default() });
    let show = |id, nth: u64, of: ObjectId| {
        let place = Place::NoReplace(Va::new(BASE + nth * 8192));
        let flags = Flags::READ_WRITE.with(Flags::SHARED);
        let request = MapRequest { place, bytes: Bytes::new(4096), flags, tag: 0 };
        machine.count(|| mm.map_object(id, &request, (of, Pages::new(0))).unwrap()).0
    };
    let hide =
        |id, nth: u64| machine.count(|| mm.unmap(id, range(BASE + nth * 8192, 4096)).unwrap());
    let id = mm.create(None).unwrap();
    let shown: Vec<u64> = (0..MANY).map(|nth| show(id, nth, object().unwrap())).collect();
    let (few, many) = (shown[..8].iter().max(), shown[MANY as usize - 8..].iter().min());
    assert!(
        many < few.map(|few| 2 * few).as_ref(),
        "{few:?} records beside few, {many:?} beside many"
    );
    let hidden: Vec<u64> = (0..MANY).rev().map(|nth| hide(id, nth).0).collect();
    let (many, few) = (hidden[1], hidden[MANY as usize - 2]);
    assert!(many < 2 * few, "unmapped: {few} records beside few, {many} beside many");

    let shared = object().unwrap();
    let others: Vec<SpaceId> = (0..MANY).map(|_| mm.create(None).unwrap()).collect();
    let shown: Vec<u64> = others.iter().map(|other| show(*other, 0, shared)).collect();
    let (few, many) = (shown[1], shown[MANY as usize - 1]);
    assert!(many < 2 * few, "in spaces: {few} records beside few, {many} beside many");
    others.into_iter().for_each(|other| mm.end(other).unwrap());
}

/// What is set holds for all spaces at once. One that has more keeps them, and so does its child.
#[test]
fn how_many_areas_there_may_be_is_set_while_spaces_are_there() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    assert_eq!(mm.area_limit(), AreaLimit::LINUX);
    let id = mm.create(None).unwrap();
    let map = |id, n: u64| {
        let place = Place::NoReplace(Va::new(BASE + n * 8 * 4096));
        mm.map(id, &MapRequest { place, bytes: Bytes::new(4096), flags: Flags::READ_WRITE, tag: 0 })
    };
    (0..5).for_each(|n| _ = map(id, n).unwrap());
    let limit = AreaLimit(3);
    mm.set_area_limit(limit);
    let child = mm.fork(id).unwrap();
    let refused = RangeError::TooManyAreas(limit);
    for id in [id, child] {
        assert_eq!(map(id, 9), Err(refused.into()));
        (0..2).for_each(|n| mm.unmap(id, range(BASE + n * 8 * 4096, 4096)).unwrap());
        assert_eq!(map(id, 9), Err(refused.into()), "there are as many as there may be");
        mm.unmap(id, range(BASE + 2 * 8 * 4096, 4096)).unwrap();
        map(id, 9).unwrap();
    }
    mm.set_area_limit(AreaLimit(4));
    map(child, 10).unwrap();
    mm.leaves("five areas, and four");
}

/// Tables were charged to nobody: a space limited to 16 pages took all memory by guards, or slowly
/// by reading.
#[test]
fn finding_k_a_limited_space_takes_no_tables_beyond_its_limit() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let limit = Pages::new(16);
    let id = mm.create(Some(limit)).unwrap();
    mm.switch(Some(id)).unwrap();
    let all = area(&mm, id, BASE, 64 * GB);
    store(&sim, &mm, id, BASE, 7);
    let (free, records) = (mm.memory().free, mm.records(id));
    let refused = RangeError::OverLimit(limit);
    assert_eq!(mm.advise(id, all, Advice::GuardInstall), Err(refused));
    assert!(refused.to_string().contains("16 pages"), "{refused}");
    assert_eq!((mm.memory().free, mm.records(id)), (free, records), "it leaves no trace");
    assert_eq!(load(&sim, &mm, id, BASE), 7, "nothing is dropped");
    // A page in each gigabyte takes a table or two.
    let read = |n: u64| mm.fault(id, Va::new(BASE + n * GB + 4096), Access::Read);
    let got =
        (1..64).map(read).take_while(|outcome| *outcome == Outcome::ZeroPage(Order::BASE)).count();
    assert!((1..8).contains(&got), "{got} pages were read");
    assert_eq!(read(63), Outcome::OverLimit);
    assert!(mm.pages(id).unwrap().get() + mm.records(id).unwrap().get() <= limit.get());
    assert!(free.get() - mm.memory().free.get() <= limit.get());
    // What goes is uncharged: it can be had again, as often as one likes.
    for _ in 0..3 {
        mm.unmap(id, all).unwrap();
        assert!(mm.records(id).unwrap() <= records.unwrap());
        area(&mm, id, BASE, 64 * GB);
        store(&sim, &mm, id, BASE, 7);
        assert_eq!(
            (1..64).map(read).take_while(|o| *o == Outcome::ZeroPage(Order::BASE)).count(),
            got
        );
    }
}

/// A space is filled up to its limit with areas and pages. All of it can be given back, area by
/// area.
#[test]
fn finding_k_a_space_at_its_limit_gives_back_what_it_has() {
    for limit in (6..60).map(Pages::new) {
        let sim = sim(1, 64);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let id = mm.create(Some(limit)).unwrap();
        mm.switch(Some(id)).unwrap();
        let page = |n: u64| range(BASE + n * 4096, 4096);
        let map = |n: &u64| {
            let place = Place::NoReplace(page(*n).start());
            let bytes = Bytes::new(4096);
            let flags = Flags::READ_WRITE;
            mm.map(id, &MapRequest { place, bytes, flags, tag: n % 2 }).is_ok()
        };
        let areas = (0..4000).take_while(map).count() as u64;
        let touched = |n: &u64| mm.fault(id, page(*n).start(), Access::Write) != Outcome::OverLimit;
        let pages = (0..areas).take_while(touched).count();
        assert!(areas == 4000 || pages < areas as usize, "{limit:?} is not reached");
        for n in (0..areas).rev() {
            assert_eq!(mm.unmap(id, page(n)), Ok(()), "area {n} of {areas}, {limit:?}");
        }
    }
}

/// A part of an area goes at the limit as well, where the map has room for the pieces: in its only
/// leaf, and in one of several.
#[test]
fn finding_bq_a_part_is_given_back_at_the_limit() {
    for areas in [23, 30] {
        let sim = sim(1, 64);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let id = mm.create(Some(Pages::new(60))).unwrap();
        mm.switch(Some(id)).unwrap();
        for nth in 0..areas {
            area(&mm, id, BASE + 4 * nth * PAGE, 3 * PAGE);
        }
        let pages = (0..4 * areas).filter(|n| n % 4 < 3);
        let touched =
            |n: &u64| mm.fault(id, Va::new(BASE + n * PAGE), Access::Write) != Outcome::OverLimit;
        let touched = pages.take_while(touched).count() as u64;
        assert!(touched < 3 * areas, "the limit is not reached");
        assert_eq!(mm.unmap(id, page(4 * (touched / 6) + 1)), Ok(()), "of {areas}");
    }
}

/// A change takes nodes for three insertions and for no more: where so many fit into the only leaf
/// it takes none.
#[test]
fn a_change_takes_no_more_nodes_than_it_can_need() {
    let takes = |areas: u64| {
        let sim = sim(1, 64);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let id = mm.create(None).unwrap();
        for nth in 0..areas {
            area(&mm, id, BASE + 4 * nth * PAGE, 3 * PAGE);
        }
        let before = mm.records(id).unwrap();
        mm.protect(id, page(1), Flags::READ).unwrap();
        let takes = mm.records(id).unwrap() > before;
        mm.end(id).unwrap();
        takes
    };
    let first = (1..60).find(|areas| takes(*areas));
    assert_eq!(first, Some(23), "a leaf has room for 25");
}

/// Whatever a space with a limit does, refused or not, it is charged for what it has, and what is
/// refused leaves nothing behind.
#[test]
fn finding_k_each_operation_is_charged_and_leaves_no_trace_when_refused() {
    let mut ends = [0; 2];
    for limit in 2..80 {
        let sim = sim(1, 64);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let id = mm.create(Some(Pages::new(limit))).unwrap();
        mm.switch(Some(id)).unwrap();
        let map = |at: u64, bytes: u64| {
            let (place, bytes) = (Place::NoReplace(Va::new(at)), Bytes::new(bytes));
            let request = MapRequest { place, bytes, flags: Flags::READ_WRITE, tag: 0 };
            mm.map(id, &request).map(drop).map_err(|error| error.to_string())
        };
        let said = |done: Result<(), RangeError>| done.map_err(|error| error.to_string());
        let touch = |at: u64| match mm.fault(id, Va::new(at), Access::Write) {
            Outcome::Mapped(_) => Ok(()),
            outcome => Err(format!("{outcome:?}")),
        };
        let to = Move::To(Va::new(BASE + 5 * GB));
        let part = range(BASE + 4 * MB, 16 * MB);
        let steps: [&dyn Fn() -> Result<(), String>; 9] = [
            &|| map(BASE, 32 * MB),
            &|| touch(BASE),
            &|| touch(BASE + 31 * MB),
            &|| said(mm.advise(id, part, Advice::GuardInstall)),
            &|| said(mm.protect(id, range(BASE + 8 * MB, 4096), Flags::READ)),
            &|| said(mm.advise(id, range(BASE + MB, 4096), Advice::PopulateWrite)),
            &|| {
                let moved = mm.remap(id, range(BASE + 12 * MB, 20 * MB), Bytes::new(20 * MB), to);
                moved.map(drop).map_err(|error| error.to_string())
            },
            &|| {
                let child = mm.fork(id).map_err(|error| error.to_string())?;
                mm.audit(&[id, child]).unwrap();
                mm.end(child).map_err(|error| error.to_string())
            },
            &|| map(BASE + 50 * GB, 4096).and_then(|()| touch(BASE + 50 * GB)),
        ];
        let mut refused = false;
        for (nth, step) in steps.iter().enumerate() {
            let free = mm.memory().free.get();
            let records = mm.records(id).unwrap();
            let done = step();
            mm.audit(&[id]).unwrap_or_else(|error| panic!("step {nth}, limit {limit}: {error}"));
            if let Err(why) = &done {
                // After a refusal the next steps may meet what it left out.
                let over = why.contains("OverLimit") || why.contains("limit of");
                assert!(over || why.contains("charged") || refused, "{nth}, {limit}: {why}");
                refused = true;
            }
            // A refused fault keeps the tables that it made, and they are charged.
            let kept = mm.records(id).unwrap().get().saturating_sub(records.get());
            if done.is_err() && mm.memory().free.get() < free {
                assert!(free - mm.memory().free.get() <= kept, "step {nth}, limit {limit}");
            }
            ends[usize::from(done.is_ok())] += 1;
        }
    }
    assert!(ends[0] > 50 && ends[1] > 200, "refused and done: {ends:?}");
}

/// A child needs its pages, its tables and its records, and no more: what a fork charges ahead for
/// pages stands in no table's way.
#[test]
fn a_fork_is_refused_where_the_child_does_not_fit_and_nowhere_else() {
    for (tables, each) in (2..7).flat_map(|tables| (1..20).map(move |each| (tables, each))) {
        let forked = |limit: Option<u64>| {
            let sim = sim(1, 16);
            let mm = manager(&sim, Policy::BASE_ONLY);
            let id = mm.create(limit.map(Pages::new)).unwrap();
            mm.switch(Some(id)).unwrap();
            area(&mm, id, BASE, tables * SIZE_2M);
            for (table, nth) in (0..tables).flat_map(|table| (0..each).map(move |nth| (table, nth)))
            {
                assert_eq!(
                    store(&sim, &mm, id, BASE + table * SIZE_2M + 2 * nth * PAGE, 1).len(),
                    1
                );
            }
            let child = mm.fork(id);
            let all = |id| mm.pages(id).unwrap().get() + mm.records(id).unwrap().get();
            let need = child.map(all);
            finish(&sim, &mm, &[Some(id), child.ok()].into_iter().flatten().collect::<Vec<_>>());
            need
        };
        let need = forked(None).unwrap();
        assert_eq!(forked(Some(need)), Ok(need), "{each} pages in each of {tables} tables");
        assert_eq!(forked(Some(need - 1)), Err(SpaceError::OverLimit(Pages::new(need - 1))));
    }
}

/// The fork has met a large leaf and taken ahead what the child needs for one when another CPU
/// takes the leaf apart: what was taken goes, and the child gets a table. Both are of the same
/// size, so a limit that is met exactly is met at every step.
#[test]
fn a_fork_fits_its_limit_while_the_leaf_that_it_met_is_split() {
    let fork = |limit: Option<u64>, step: u64| {
        let machine = Beside::new(sim(2, 64));
        let mm = machine.manager(only(9));
        mm.cpus().for_each(|cpu| machine.sim.on(cpu, || mm.online()));
        let id = mm.create(limit.map(Pages::new)).unwrap();
        area(&mm, id, BASE, 2 * MB);
        assert_eq!(mm.fault(id, Va::new(BASE), Access::Write), Outcome::Mapped(order(9)));
        let split = || _ = mm.split(id, Va::new(BASE), SplitInto::BASE);
        let mut child = None;
        machine.before_step(step, split, || child = Some(mm.fork(id)));
        let child = child.expect("it was tried");
        let all = |id| mm.pages(id).unwrap().get() + mm.records(id).unwrap().get();
        let need = child.map(all);
        let ended: Vec<SpaceId> = [Some(id), child.ok()].into_iter().flatten().collect();
        finish(&machine.sim, &mm, &ended);
        (need, machine.worked())
    };
    let (need, steps) = fork(None, u64::MAX);
    let need = need.unwrap();
    assert!(steps > 20, "{steps}");
    for step in some_steps(steps) {
        assert_eq!(fork(Some(need), step).0, Ok(need), "step {step}");
    }
}

/// A leaf's table in deposit, the pages of both and a child's share of the tree's record are
/// charged as well.
#[test]
fn finding_k_deposits_and_records_are_charged() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::always(Orders::of(Order::SIZE_2M)));
    let id = mm.create(Some(Pages::new(4000))).unwrap();
    mm.switch(Some(id)).unwrap();
    let records = |id| mm.records(id).unwrap().get();
    assert_eq!(records(id), 2, "its record and its top table");
    area(&mm, id, BASE, 4 * MB);
    assert_eq!(records(id), 3, "and a node for areas");
    store(&sim, &mm, id, BASE, 7);
    assert_eq!(records(id), 6, "and two tables, and one in deposit");
    mm.protect(id, range(BASE, 4096), Flags::READ).unwrap();
    assert_eq!(records(id), 6, "which is a table now");
    let child = mm.fork(id).unwrap();
    assert_eq!(records(child), 7, "the tree's record is there as long as the child is");
    mm.audit(&[id, child]).unwrap();
    mm.unmap(id, range(BASE, 4 * MB)).unwrap();
    assert_eq!(records(id), 4, "the table that hangs in the top table stays");
}

/// Areas that were moved by as many distances as there are of them: each distance was looked for in
/// all areas.
#[test]
fn finding_r2_a_move_looks_at_areas_and_at_distances_and_not_at_both() {
    const AREAS: u64 = 600;
    let (machine, mm, _over) = watched(64);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    scatter(mm, id, 0..AREAS, 0);
    let mut most = 0;
    for n in 0..AREAS {
        let at = BASE + n * 8192;
        store(&machine.sim, mm, id, at, n);
        let to = Move::To(Va::new(at + GB + n * 8192));
        let (looks, moved) =
            machine.count(|| mm.remap(id, range(at, 4096), Bytes::new(4096), to).unwrap());
        assert_eq!(load(&machine.sim, mm, id, moved.start().get()), n);
        most = most.max(looks);
    }
    println!("a move looks at {most} records at most");
    assert!(most < 20_000, "a move looks at {most} records");
    // Every one is found where it went, and the places of distances that nobody has are used again.
    let child = mm.fork(id).unwrap();
    mm.audit(&[id, child]).unwrap();
    let records = mm.records(id).unwrap();
    mm.unmap(id, range(BASE + GB, GB)).unwrap();
    for n in 0..2 * AREAS {
        area(mm, id, BASE, 4096);
        store(&machine.sim, mm, id, BASE, n);
        let to = BASE + 2 * GB + n * 4096;
        let to = Move::To(Va::new(to));
        let moved = mm.remap(id, range(BASE, 4096), Bytes::new(4096), to).unwrap();
        mm.unmap(id, moved).unwrap();
    }
    assert!(mm.records(id).unwrap() <= records, "no frame more");
}

/// Each operation over a gigabyte of entries held the writer's lock to its end. Others run in
/// between: at each first preemption point a task of the same CPU touches the space and works in
/// another one.
#[test]
fn finding_k_long_operations_let_others_run() {
    let (machine, mm, _over) = watched(128);
    let (id, other) = (mm.create(None).unwrap(), mm.create(None).unwrap());
    mm.switch(Some(id)).unwrap();
    let whole = area(mm, id, BASE, GB);
    area(mm, id, BASE + 4 * GB, 4096);
    let child = std::cell::Cell::new(id);
    let moved = range(BASE + 8 * GB, GB);
    let operations: [(&str, &dyn Fn()); 8] = [
        ("guard", &|| mm.advise(id, whole, Advice::GuardInstall).unwrap()),
        ("protect", &|| mm.protect(id, whole, Flags::READ).unwrap()),
        ("fork", &|| child.set(mm.fork(id).unwrap())),
        ("end", &|| mm.end(child.get()).unwrap()),
        ("remap", &|| {
            mm.remap(id, whole, Bytes::new(GB), Move::To(moved.start())).unwrap();
        }),
        ("drop", &|| mm.advise(id, moved, Advice::DontNeed).unwrap()),
        ("unguard", &|| mm.advise(id, moved, Advice::GuardRemove).unwrap()),
        ("unmap", &|| mm.unmap(id, moved).unwrap()),
    ];
    for (what, operation) in operations {
        let yields = machine.yields.load(Ordering::Relaxed);
        machine.stored[1].store(0, Ordering::Relaxed);
        *machine.yielding.lock().unwrap() = Some(Box::new(move || {
            let touched = mm.fault(id, Va::new(BASE + 4 * GB), Access::Write);
            assert!(!matches!(touched, Outcome::Refused(_)), "{touched:?}");
            area(mm, other, BASE, MB);
            assert_eq!(mm.fault(other, Va::new(BASE), Access::Write), Outcome::Mapped(Order::BASE));
            mm.unmap(other, range(BASE, MB)).unwrap();
        }));
        operation();
        let yields = machine.yields.load(Ordering::Relaxed) - yields;
        let most = machine.stored[1].load(Ordering::Relaxed);
        println!("{what}: {yields} yields, {most} words stored without one");
        assert!(yields >= 15, "{what} over 262,144 entries yields {yields} times");
        assert!(most < 60_000, "{what} stores {most} words without a preemption point");
    }
}

/// A fault is about to publish a leaf of 2 MiB, for a folio or for a huge page of the pool, and
/// holds the lock of its table: what is done to its area meanwhile does not pass the place over
/// because it is still empty.
#[test]
fn finding_af_no_leaf_comes_behind_what_passed_its_place() {
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Change {
        Unmap,
        Protect,
        Remap,
    }
    let to = BASE + (1 << 30);
    for (flags, change) in [
        (Flags::NONE, Change::Unmap),
        (Flags::NONE, Change::Protect),
        (Flags::NONE, Change::Remap),
        (Flags::HUGE_2M, Change::Unmap),
        (Flags::HUGE_2M, Change::Protect),
    ] {
        let mut changed = 0;
        for step in 1.. {
            let machine = Beside::new(sim(2, 64));
            let mm = machine.manager(only(9));
            mm.cpus().for_each(|cpu| machine.sim.on(cpu, || mm.online()));
            mm.resize_pool(Order::SIZE_2M, 1, Budget::ALL).unwrap();
            let id = mm.create(None).unwrap();
            mm.cpus().for_each(|cpu| machine.sim.on(cpu, || mm.switch(Some(id)).unwrap()));
            for neighbour in [BASE + 2 * MB, to + 2 * MB] {
                area(&mm, id, neighbour, PAGE); // keeps the tables: nobody waits for readers
                store(&machine.sim, &mm, id, neighbour, 1);
            }
            let whole = range(BASE, 2 * MB);
            let place = Place::Fixed(Va::new(BASE));
            mm.map(id, &request(place, 2 * MB, Flags::READ_WRITE.with(flags))).unwrap();
            let beside = || match change {
                Change::Unmap => mm.unmap(id, whole).unwrap(),
                Change::Protect => mm.protect(id, whole, Flags::READ).unwrap(),
                Change::Remap => {
                    mm.remap(id, whole, whole.bytes(), Move::To(Va::new(to))).unwrap();
                }
            };
            let fault = || mm.fault(id, Va::new(BASE), Access::Write);
            let ran = machine.before_step(step, beside, fault).is_some();
            let writable = mm.with_leaves(id, whole, |found| {
                let leaves = found.filter_map(|found| match found.entry {
                    Entry::Leaf { attrs, .. } => Some(attrs.has(Attrs::WRITE)),
                    _ => None,
                });
                leaves.collect::<Vec<bool>>()
            });
            let writable = writable.unwrap();
            if ran && change == Change::Protect {
                assert!(!writable.contains(&true), "{flags:?}, {change:?}: step {step}");
            } else if ran {
                assert_eq!(writable, [], "{flags:?}, {change:?}: step {step}");
            }
            changed += u64::from(ran);
            finish(&machine.sim, &mm, &[id]);
            if !ran {
                break;
            }
        }
        assert!(changed > 20, "{flags:?}, {change:?}: {changed}");
    }
}

/// A page of 2 MiB was written and forked, so its leaf allows no store. A part of it loses the
/// right to write, or gets it back where all had lost it: no attribute of the leaf changes. When
/// the child is gone a store beside makes the leaf writable again, and not the part.
#[test]
fn finding_ai_a_leaf_has_the_rights_of_one_area() {
    let part = range(BASE + 16 * PAGE, 16 * PAGE);
    let whole = range(BASE, 2 * MB);
    let changes: [&[(VaRange, Flags)]; 2] = [
        &[(part, Flags::READ)],
        &[(whole, Flags::READ), (range(BASE, 16 * PAGE), Flags::READ_WRITE)],
    ];
    for change in changes {
        let sim = sim(1, 64);
        let mm = manager(&sim, only(9));
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        area(&mm, id, BASE, 2 * MB);
        store(&sim, &mm, id, BASE, 1);
        let child = mm.fork(id).unwrap();
        for (range, rights) in change {
            mm.protect(id, *range, *rights).unwrap();
        }
        mm.audit(&[id, child]).unwrap();
        mm.end(child).unwrap();
        store(&sim, &mm, id, BASE, 2);
        let refused = mm.fault(id, part.start(), Access::Write);
        assert_eq!(refused, Outcome::Refused(Refusal::NoRight(part.start(), Access::Write)));
        assert!(sim.user_store(part.start(), 8, 3).is_err(), "{change:?}");
    }
}

/// Many gaps are misaligned, the highest one with room to spare reaches below the lowest address
/// and has room only there, and one that fits was not looked at yet.
#[test]
fn a_gap_that_fits_is_found_behind_one_that_is_too_low() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    let lowest = mm.lowest_address();
    mm.set_lowest_address(Va::new(7 * MB));
    let fill = |start: u64, end: u64| {
        area(&mm, id, start, end - start);
    };
    fill(8 * MB, 10 * MB);
    fill(12 * MB, 14 * MB + PAGE); // below it the gap that fits
    let mut upto = 14 * MB + PAGE;
    for _ in 0..40 {
        fill(upto + 2 * MB, upto + 4 * MB); // below it one that is off by a page
        upto += 4 * MB;
    }
    fill(upto, 0x7fff_ffff_f000);
    let flags = Flags::READ_WRITE.with(Flags::HUGE_2M).with(Flags::NORESERVE);
    let found = mm.map(id, &request(Place::Anywhere, 2 * MB, flags)).unwrap();
    assert_eq!(found, range(10 * MB, 2 * MB));
    let none = mm.map(id, &request(Place::Anywhere, 2 * MB, flags));
    assert_eq!(none, Err(MapError::NoRoom(Bytes::new(2 * MB))));
    mm.set_lowest_address(lowest);
}

/// The first half of a read-only leaf is made writable. Its area says so before the leaf was split,
/// and a store to that half beside the change does not make the other half writable with it.
#[test]
fn finding_ai_a_store_beside_the_change_writes_to_its_own_part_alone() {
    let (whole, half) = (range(BASE, 2 * MB), range(BASE, MB));
    let meet = |step| {
        let machine = Beside::new(sim(2, 64));
        let mm = machine.manager(only(9));
        mm.cpus().for_each(|cpu| machine.sim.on(cpu, || mm.online()));
        let id = mm.create(None).unwrap();
        mm.cpus().for_each(|cpu| machine.sim.on(cpu, || mm.switch(Some(id)).unwrap()));
        area(&mm, id, BASE, 2 * MB);
        store(&machine.sim, &mm, id, BASE, 1);
        mm.protect(id, whole, Flags::READ).unwrap();
        let write = || _ = mm.fault(id, Va::new(BASE), Access::Write);
        let change = || mm.protect(id, half, Flags::READ_WRITE).unwrap();
        machine.before_step(step, write, change);
        mm.audit(&[id]).unwrap();
        assert!(machine.sim.user_store(half.end(), 8, 2).is_err(), "step {step}");
        finish(&machine.sim, &mm, &[id]);
        machine.worked()
    };
    let steps = meet(u64::MAX);
    assert!(steps > 20, "{steps}");
    some_steps(steps).for_each(|step| _ = meet(step));
}
