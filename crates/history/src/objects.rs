//! Histories of objects: every CPU at a seat with a space of its own, in which it maps pieces of a
//! few objects, shared and privately. All seats write to the objects, cut them, drop pages of them
//! and end them, and so does the kernel.
//!
//! A seat knows what its pages are. What an object holds is a log of its writers, as in racing
//! histories; with one CPU a log has one value, so that the model is exact. A private copy is the
//! seat's own until the object is cut before it.
//!
//! ```text
//!   place 0 of object 0 │ place 0 of object 1 │ .. │ place 1 of object 0 │ ..      in each, page n of the object is the n-th
//! ```

use crate::model::{WORDS, value};
use crate::operations::policy;
use crate::register::Register;
use crate::rng::Rng;
use crate::splits;
use crate::tasks::Task;
use crate::world::{Got, World, lock, range};
use foliant::fault::Refusal;
use foliant::manager::{NoPage, SpaceError};
use foliant::object::ObjectRequest;
use foliant::space::{
    Advice, Flags, MapError, MapRequest, Move, ObjectId, Place, RangeError, RemapError, SpaceId,
};
use foliant::table::Paging;
use foliant::{Access, Outcome};
use foliant_machine::Cpus;
use foliant_units::{Bytes, FRAME_BYTES, Pages, Va, VaRange};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

/// Objects that have a name at a time.
const OBJECTS: u64 = 3;
/// Places of each.
const PLACES: u64 = 3;
/// Pages of a place.
const PLACE: u64 = 1024;
/// Pages that an object has room for at most: its index is one table.
const ROOM: u64 = 512;
const FIRST: u64 = 0x1_0000 << 8;
const PHASES: usize = 4;
/// So often a seat waits for the CPU that had it before: that one leaves with its first step.
const WAITS_MAX: usize = 100_000;

/// An object, for all seats.
struct Object {
    id: ObjectId,
    /// How many pages it has room for.
    room: Register,
    words: BTreeMap<(u64, usize), Register>,
    /// What was cut off: pages from the first number on, between two moments.
    cuts: Vec<(u64, u64, u64)>,
    /// Whether somebody takes its name.
    ends: bool,
}

impl Object {
    fn word(&mut self, page: u64, word: usize) -> &mut Register {
        self.words.entry((page, word)).or_default()
    }
    /// Whether a copy that was made at `at` may be there still, at a look from `start` to `end`;
    /// `None` where it is.
    fn has_copy(&self, page: u64, at: u64, (start, end): (u64, u64)) -> Option<bool> {
        let before = |cut: &&(u64, u64, u64)| cut.0 <= page && cut.2 > at && cut.1 < end;
        let mut cuts = self.cuts.iter().filter(before).peekable();
        cuts.peek()?;
        let is_sure = cuts.any(|cut| cut.1 > at && cut.2 < start);
        Some(!is_sure)
    }
}

/// All objects that there were. The lock is never held over a contract call.
#[derive(Default)]
struct Shared {
    objects: Vec<Object>,
    /// Those that are drawn, as numbers.
    named: Vec<usize>,
    serial: u64,
    /// When stores began that are under way: such a one may copy a page at any moment since.
    storing: BTreeSet<u64>,
}

/// What a seat knows of a page of its space.
#[derive(Clone, Debug)]
struct Mapped {
    of: usize,
    page: u64,
    shared: bool,
    copy: Option<Copy>,
}

/// A private copy: when the seat was done with making it, and what its words may be.
#[derive(Clone, Debug)]
struct Copy {
    at: u64,
    words: [Vec<u64>; 2],
}

type Known = BTreeMap<u64, Mapped>;

struct Seat {
    rng: Rng,
    nth: u64,
    id: SpaceId,
    pages: Known,
}

struct Sharing<'w, 'm, P: Paging> {
    world: &'w World<'m, P>,
    shared: Mutex<Shared>,
}

/// Runs one history, and returns the spaces that are left.
pub(crate) fn run<P: Paging>(world: &World<'_, P>) -> Vec<SpaceId> {
    let sharing = Sharing { world, shared: Mutex::default() };
    let mut rng = world.rng(5);
    world.mm.set_policy(policy(&mut rng, world.shape.sizes));
    world.mm.set_object_policy(policy(&mut rng, world.shape.sizes));
    for _ in 0..OBJECTS {
        while !sharing.create(&mut rng) {}
    }
    let mut seats = Vec::new();
    for nth in 0..world.shape.cpus as u64 {
        let Some(id) = (0..200).find_map(|_| world.mm.create(None).ok()) else {
            world.wrong("answers", "no space is ever made".into());
            break;
        };
        seats.push(Mutex::new(Seat { rng: world.rng(16 + nth), nth, id, pages: Known::new() }));
    }
    let ids = || seats.iter().map(|seat| lock(seat).id).collect::<Vec<_>>();
    let steps = (world.shape.steps / world.shape.cpus / PHASES).max(8);
    for phase in 0..PHASES {
        if world.stopped() || seats.len() < world.shape.cpus {
            break;
        }
        world.phase(phase, steps, &seats, |seat| sharing.step(seat));
        world.audit_between(&ids());
        for seat in &seats {
            let cpu = crate::world::cpu(rng.draw(), world.shape.cpus);
            world.sim.on(cpu, || sharing.compare(&mut lock(seat)));
        }
    }
    let named = core::mem::take(&mut sharing.shared().named);
    for nth in named {
        let id = sharing.shared().objects[nth].id;
        if world.mm.end_object(id).is_err() {
            world.wrong("answers", format!("object {nth} lost its name"));
        }
    }
    ids()
}

impl<P: Paging> Sharing<'_, '_, P> {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }
    /// Makes an object and has it drawn from now on.
    fn create(&self, rng: &mut Rng) -> bool {
        let world = self.world;
        world.count("create object");
        let room = *rng.pick(&[20, 100, ROOM, ROOM]);
        let flags = *rng.pick(&[Flags::NONE, Flags::HUGEPAGE, Flags::NOHUGEPAGE]);
        let request = ObjectRequest { pages: Pages::new(room), flags, ..ObjectRequest::default() };
        match world.mm.create_object(&request) {
            Ok(id) => {
                let (room, words) = (Register::of(&[room]), BTreeMap::new());
                let mut shared = self.shared();
                shared.objects.push(Object { id, room, words, cuts: Vec::new(), ends: false });
                let nth = shared.objects.len() - 1;
                shared.named.push(nth);
                true
            }
            Err(MapError::Range(error)) if world.lacks(0, error) => {
                world.count_refused();
                false
            }
            Err(error) => {
                world.wrong("answers", format!("create object: {error}"));
                true
            }
        }
    }
    fn draw(&self, rng: &mut Rng) -> Option<(usize, ObjectId)> {
        let shared = self.shared();
        let nth = *shared.named.get(rng.below(shared.named.len() as u64) as usize)?;
        Some((nth, shared.objects[nth].id))
    }
    /// Judges an answer of a call that names an object.
    fn judge(&self, what: &str, of: usize, got: Result<(), RangeError>) {
        match got {
            Ok(()) => {}
            Err(RangeError::NoObject) if self.shared().objects[of].ends => {}
            Err(error) if self.world.lacks(0, error) => self.world.count_refused(),
            Err(error) => self.world.wrong("answers", format!("{what} of object {of}: {error}")),
        }
    }

    fn step(&self, seat: &mut Seat) {
        let world = self.world;
        if world.run(seat.id).is_err() {
            return world.wrong("answers", format!("{:?} is gone", seat.id));
        }
        match seat.rng.below(32) {
            0..4 => self.map(seat),
            4 => self.unmap(seat),
            5..7 => self.shift(seat),
            7 => self.forget(seat),
            8 => self.fork(seat),
            9 => self.resize(seat),
            10 => self.punch(seat),
            11 if seat.rng.once_in(3) => self.end(seat),
            12 | 13 => self.kernel(seat),
            14 => world.go_away(&mut seat.rng),
            15 if seat.rng.once_in(4) => {
                world.count("policy");
                world.mm.set_object_policy(policy(&mut seat.rng, world.shape.sizes));
            }
            16..19 => {
                if let Some(at) = seat.any() {
                    splits::split(world, &mut seat.rng, seat.id, at * FRAME_BYTES);
                }
            }
            _ => (0..3).for_each(|_| self.touch(seat)),
        }
    }

    fn map(&self, seat: &mut Seat) {
        let world = self.world;
        let Some((of, id)) = self.draw(&mut seat.rng) else { return };
        world.count("map");
        let (first, count) = seat.piece();
        let start = seat.place(of) + first;
        let shared = seat.rng.once_in(2);
        let flags = if shared { Flags::READ_WRITE.with(Flags::SHARED) } else { Flags::READ_WRITE };
        let (place, bytes) = (Place::Fixed(va(start)), Bytes::new(count * FRAME_BYTES));
        let request = MapRequest { place, bytes, flags, tag: 0 };
        let got = match world.mm.map_object(seat.id, &request, (id, Pages::new(first))) {
            Ok(_) => Ok(()),
            Err(MapError::Range(error)) => Err(error),
            Err(error) => return world.wrong("answers", format!("map of object {of}: {error}")),
        };
        if got.is_ok() {
            for page in first..first + count {
                let mapped = Mapped { of, page, shared, copy: None };
                seat.pages.insert(start + page - first, mapped);
            }
        }
        self.judge("map", of, got);
    }
    fn unmap(&self, seat: &mut Seat) {
        let Some(at) = seat.any() else { return };
        self.world.count("unmap");
        let pages = at..at + 1 + seat.rng.below(200);
        match self.during_unmap(|| self.world.mm.unmap(seat.id, span(&pages))) {
            Ok(()) => seat.pages.retain(|page, _| !pages.contains(page)),
            Err(error) if self.world.lacks(0, error) => self.world.count_refused(),
            Err(error) => self.world.wrong("answers", format!("unmap: {error}")),
        }
    }
    fn during_unmap<R>(&self, go: impl FnOnce() -> R) -> R {
        self.world.mm.machine().during(Task::Unmap, go)
    }
    /// Moves a piece to another place of its object, where it is the same pages.
    fn shift(&self, seat: &mut Seat) {
        let world = self.world;
        let Some(at) = seat.any() else { return };
        world.count("move");
        let shared = seat.pages[&at].shared;
        let of = seat.pages[&at].of;
        let alike = |page: &u64| {
            seat.pages.get(page).is_some_and(|mapped| mapped.shared == shared && mapped.of == of)
        };
        let most = 1 + seat.rng.below(150);
        let end = (at..at + most).find(|page| !alike(page)).unwrap_or(at + most);
        let by = OBJECTS * PLACE * (1 + seat.rng.below(PLACES - 1));
        let to = FIRST + (at - FIRST + by) % (OBJECTS * PLACES * PLACE);
        let bytes = Bytes::new((end - at) * FRAME_BYTES);
        let got = world.mm.remap(seat.id, span(&(at..end)), bytes, Move::To(va(to)));
        let target = to..to + (end - at);
        match got {
            Ok(_) => {
                seat.pages.retain(|page, _| !target.contains(page));
                for page in at..end {
                    let mapped = seat.pages.remove(&page).expect("it is alike");
                    seat.pages.insert(to + page - at, mapped);
                }
            }
            Err(RemapError::Map(MapError::Range(error))) if world.lacks(0, error) => {
                world.count_refused();
                // The target may be gone.
                seat.pages.retain(|page, _| {
                    !target.contains(page) || world.mm.area(seat.id, va(*page)).is_some()
                });
            }
            Err(error) => world.wrong("answers", format!("move of {at:x}..{end:x}: {error}")),
        }
    }
    fn forget(&self, seat: &mut Seat) {
        let Some(at) = seat.any() else { return };
        self.world.count("drop");
        let most = at + 1 + seat.rng.below(100);
        let end = (at..most).find(|page| !seat.pages.contains_key(page)).unwrap_or(most);
        match self.world.mm.advise(seat.id, span(&(at..end)), Advice::DontNeed) {
            Ok(()) => seat.pages.range_mut(at..end).for_each(|(_, mapped)| mapped.copy = None),
            Err(error) => self.world.wrong("answers", format!("drop: {error}")),
        }
    }
    /// The child or the parent goes on; the other one looks at what it has, and ends.
    fn fork(&self, seat: &mut Seat) {
        let world = self.world;
        world.count("fork");
        let child = match world.mm.fork(seat.id) {
            Ok(child) => child,
            Err(_) if world.is_scarce() => return world.count_refused(),
            Err(error) => return world.wrong("answers", format!("fork: {error}")),
        };
        let mut other = Seat {
            rng: world.rng(seat.rng.draw()),
            nth: seat.nth,
            id: child,
            pages: seat.pages.clone(),
        };
        if seat.rng.once_in(2) {
            core::mem::swap(&mut seat.id, &mut other.id);
        }
        for nth in 0..8 {
            let one = if nth % 2 == 0 { &mut other } else { &mut *seat };
            if world.run(one.id).is_ok() {
                self.touch(one);
            }
        }
        let ended = world.run(seat.id).is_ok() && self.end_of_fork(other.id);
        if !ended && !world.stopped() {
            world.wrong("answers", "a space of a fork does not end".into());
        }
    }
    /// A CPU that had the seat before runs the space until it begins at its own seat.
    fn end_of_fork(&self, id: SpaceId) -> bool {
        for _ in 0..WAITS_MAX {
            match self.world.mm.end(id) {
                Err(SpaceError::Running(cpu)) if cpu != self.world.sim_cpu() => {
                    self.world.mm.machine().relax();
                }
                ended => return ended.is_ok(),
            }
        }
        false
    }

    fn resize(&self, seat: &mut Seat) {
        let Some((of, id)) = self.draw(&mut seat.rng) else { return };
        self.world.count("resize");
        let any = seat.rng.below(ROOM);
        let room = *seat.rng.pick(&[any, 20, ROOM, ROOM]);
        let start = self.begin_cut(of, (room, ROOM), Some(room));
        let cut = || self.world.mm.resize_object(id, Pages::new(room));
        let got = self.world.mm.machine().during(Task::Cut, cut);
        self.end_cut(of, (room, ROOM), Some(room), start, got.is_ok());
        self.judge("resize", of, got);
    }
    fn punch(&self, seat: &mut Seat) {
        let Some((of, id)) = self.draw(&mut seat.rng) else { return };
        self.world.count("punch");
        let (from, count) = seat.piece();
        let to = from + count;
        let start = self.begin_cut(of, (from, to), None);
        let cut = || self.world.mm.punch_object(id, Pages::new(from), Pages::new(to));
        let got = self.world.mm.machine().during(Task::Cut, cut);
        self.end_cut(of, (from, to), None, start, got.is_ok());
        self.judge("punch", of, got);
    }
    fn begin_cut(&self, of: usize, (from, to): (u64, u64), room: Option<u64>) -> u64 {
        let start = self.world.tick();
        let object = &mut self.shared().objects[of];
        for page in from..to {
            (0..WORDS.len()).for_each(|word| object.word(page, word).begin(0, start));
        }
        if let Some(room) = room {
            object.room.begin(room, start);
            object.cuts.push((from, start, u64::MAX));
        }
        start
    }
    fn end_cut(
        &self,
        of: usize,
        (from, to): (u64, u64),
        room: Option<u64>,
        start: u64,
        done: bool,
    ) {
        let end = self.world.tick();
        let object = &mut self.shared().objects[of];
        let close = |register: &mut Register| match done {
            true => register.end(start, end),
            false => register.undo(start),
        };
        for page in from..to {
            (0..WORDS.len()).for_each(|word| close(object.word(page, word)));
        }
        if room.is_some() {
            close(&mut object.room);
            match done {
                true => {
                    object.cuts.iter_mut().filter(|cut| cut.1 == start).for_each(|cut| cut.2 = end)
                }
                false => object.cuts.retain(|cut| cut.1 != start),
            }
        }
    }
    /// An object loses its name, and another one comes.
    fn end(&self, seat: &mut Seat) {
        let Some((of, id)) = self.draw(&mut seat.rng) else { return };
        {
            let mut shared = self.shared();
            shared.named.retain(|nth| *nth != of);
            shared.objects[of].ends = true;
        }
        self.world.count("end object");
        if let Err(error) = self.world.mm.end_object(id) {
            self.world.wrong("answers", format!("end of object {of}: {error}"));
        }
        self.create(&mut seat.rng);
    }

    /// The kernel reads a page of an object, or writes it.
    fn kernel(&self, seat: &mut Seat) {
        let world = self.world;
        let Some((of, id)) = self.draw(&mut seat.rng) else { return };
        world.count("kernel");
        let (page, word) = (seat.rng.below(ROOM), seat.rng.below(2) as usize);
        let access = if seat.rng.once_in(2) { Access::Write } else { Access::Read };
        let start = world.tick();
        let stored = {
            let mut shared = self.shared();
            shared.serial += 1;
            value(seat.nth + 1, page * FRAME_BYTES + WORDS[word], shared.serial)
        };
        if access == Access::Write {
            self.shared().objects[of].word(page, word).begin(stored, start);
        }
        let got = world.mm.object_page(id, Pages::new(page), access).map(|kept| {
            let at = kept.as_ref().map(|kept| kept.frame().pa().add(WORDS[word]));
            at.map(|at| world.mm.machine().direct(at, (access == Access::Write).then_some(stored)))
        });
        let end = world.tick();
        let is_scarce = world.is_scarce();
        let mut shared = self.shared();
        let object = &mut shared.objects[of];
        let rooms = object.room.values(start, end);
        let (register, ends) = (object.words.entry((page, word)).or_default(), object.ends);
        match (got, access) {
            (Ok(Some(_)), Access::Write) => return register.end(start, end),
            (_, Access::Write) => register.undo(start),
            _ => {}
        }
        match got {
            Ok(found) if access != Access::Write => {
                let allowed = register.values(start, end);
                if !allowed.contains(&found.unwrap_or(0)) {
                    let text = format!(
                        "the kernel reads {found:x?} of page {page} of object {of}, allowed: {allowed:x?}"
                    );
                    drop(shared);
                    world.wrong("contents", text);
                }
            }
            Err(NoPage::Beyond(_)) if rooms.iter().any(|room| *room <= page) => {}
            Err(NoPage::NoObject) if ends => {}
            Err(NoPage::NoMemory) if is_scarce => {}
            got => {
                drop(shared);
                world.wrong(
                    "answers",
                    format!("page {page} of object {of} for the kernel: {got:x?}"),
                );
            }
        }
    }

    /// A load or a store of a program.
    fn touch(&self, seat: &mut Seat) {
        let Some(at) = seat.any() else { return };
        let word = seat.rng.below(2) as usize;
        match seat.rng.once_in(2) {
            true => self.load(seat, at, word),
            false => self.store(seat, at, word),
        }
    }
    fn load(&self, seat: &mut Seat, at: u64, word: usize) {
        if self.world.stopped() {
            return;
        }
        self.world.count("load");
        let start = self.world.tick();
        let got = self.world.load(seat.id, at * FRAME_BYTES + WORDS[word]);
        let now = self.world.tick();
        let mapped = &seat.pages[&at];
        let mut shared = self.shared();
        let since = shared.storing.first().copied().unwrap_or(now);
        let object = &mut shared.objects[mapped.of];
        let (values, rooms) = self.allowed(object, mapped, word, (start, now));
        match got {
            Got::Value(value) if values.contains(&value) => {
                if mapped.copy.is_none() {
                    object.word(mapped.page, word).decide(value, now, since);
                }
            }
            got => {
                drop(shared);
                self.refused("load of", seat, at, got, (&values, &rooms));
            }
        }
    }
    /// What an access to a page may find, and how much room its object may have.
    fn allowed(
        &self,
        object: &mut Object,
        mapped: &Mapped,
        word: usize,
        (start, now): (u64, u64),
    ) -> (Vec<u64>, Vec<u64>) {
        let rooms = object.room.values(start, now);
        // The look is at its end: whoever was refused before asked again.
        let of_object = object.word(mapped.page, word).values(now, now);
        let Some(copy) = &mapped.copy else { return (of_object, rooms) };
        let values = match object.has_copy(mapped.page, copy.at, (start, now)) {
            None => return (copy.words[word].clone(), vec![u64::MAX]),
            Some(true) => copy.words[word].iter().copied().chain(of_object).collect(),
            Some(false) => of_object,
        };
        (values, rooms)
    }
    /// Judges an access that gave nothing, or something else than it should.
    fn refused(
        &self,
        what: &str,
        seat: &Seat,
        at: u64,
        got: Got,
        (values, rooms): (&[u64], &[u64]),
    ) {
        let (world, mapped) = (self.world, &seat.pages[&at]);
        match got {
            Got::Not(Outcome::Refused(Refusal::Beyond(_)))
                if rooms.iter().any(|room| *room <= mapped.page) => {}
            Got::Not(outcome) if world.is_short(0, outcome) => {}
            _ if world.stopped() => {}
            got => {
                let checker = if matches!(got, Got::Value(_)) { "contents" } else { "answers" };
                let cpu = world.sim_cpu().0;
                let text = format!(
                    "{what} {at:#x} by seat {} on cpu {cpu}, {mapped:x?}: {got:x?}, allowed: {values:x?}, room: {rooms:?}",
                    seat.nth
                );
                world.wrong(checker, text);
            }
        }
    }
    fn store(&self, seat: &mut Seat, at: u64, word: usize) {
        if self.world.stopped() {
            return;
        }
        self.world.count("store");
        let va = at * FRAME_BYTES + WORDS[word];
        let stored = {
            let mut shared = self.shared();
            shared.serial += 1;
            value(seat.nth + 1, va, shared.serial)
        };
        let start = self.world.tick();
        self.shared().storing.insert(start);
        let got = self.world.store(seat.id, va, stored);
        let now = self.world.tick();
        let mut shared = self.shared();
        shared.storing.remove(&start);
        let Some(mapped) = seat.pages.get_mut(&at) else { return };
        let object = &mut shared.objects[mapped.of];
        let rooms = object.room.values(start, now);
        let Got::Value(_) = got else {
            let (values, rooms) = self.allowed(object, mapped, word, (start, now));
            drop(shared);
            return self.refused("store to", seat, at, got, (&values, &rooms));
        };
        if mapped.shared {
            object.word(mapped.page, word).store(stored, now);
        } else {
            // The other word is what the copy was made of.
            let rest = 1 - word;
            let of_object = object.word(mapped.page, rest).values(start, now);
            let had = mapped.copy.as_ref();
            let state = had.and_then(|copy| object.has_copy(mapped.page, copy.at, (start, now)));
            let mut words = [vec![stored], vec![stored]];
            words[rest] = match (had, state) {
                (Some(copy), None) => copy.words[rest].clone(),
                (Some(copy), Some(true)) => {
                    copy.words[rest].iter().copied().chain(of_object).collect()
                }
                _ => of_object,
            };
            // A copy that is gone in a moment counts as made before.
            mapped.copy = Some(Copy { at: now, words });
        }
        let is_beyond = mapped.shared && rooms.iter().all(|room| *room <= mapped.page);
        drop(shared);
        if is_beyond {
            self.refused("store to", seat, at, Got::Value(stored), (&[], &rooms));
        }
    }
    /// Looks at a part of what a seat has; no other CPU is at work.
    fn compare(&self, seat: &mut Seat) {
        if self.world.stopped() || self.world.run(seat.id).is_err() {
            return;
        }
        let pages: Vec<u64> = seat.pages.keys().copied().collect();
        for at in pages {
            if seat.rng.once_in(4) {
                let word = seat.rng.below(2) as usize;
                self.load(seat, at, word);
                self.load(seat, at, word);
            }
        }
    }
}

impl Seat {
    /// A page that it has mapped.
    fn any(&mut self) -> Option<u64> {
        let nth = self.rng.below(self.pages.len() as u64) as usize;
        self.pages.keys().nth(nth).copied()
    }
    /// Pages of an object, often from its start: the first, and how many.
    fn piece(&mut self) -> (u64, u64) {
        let first = if self.rng.once_in(3) { 0 } else { self.rng.below(60) };
        let most = *self.rng.pick(&[4, 40, ROOM - first]);
        (first, 1 + self.rng.below(most))
    }
    /// The first page of a place for an object.
    fn place(&mut self, of: usize) -> u64 {
        let nth = self.rng.below(PLACES);
        FIRST + (nth * OBJECTS + of as u64 % OBJECTS) * PLACE
    }
}

fn va(page: u64) -> Va {
    Va::new(page * FRAME_BYTES)
}
fn span(pages: &core::ops::Range<u64>) -> VaRange {
    range(pages.start * FRAME_BYTES, (pages.end - pages.start) * FRAME_BYTES)
}
