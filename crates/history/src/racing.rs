//! Racing histories: all CPUs on the same addresses of the same few spaces.
//!
//! Whether an access is answered or refused depends on which CPU was first, so refusals are taken
//! as they come. What a load gives is held against the log of the word's writers: one value, unless
//! a drop or a fork is under way or no load has come since. When all CPUs have stopped, a word of
//! each page (in a large window of a part of them) is loaded twice, on CPUs that chance draws, and
//! the loads must agree with each other, with the log, and with the areas. A program beside stores
//! and loads while others are in the manager.
//!
//! **Not here**: moving pages: a log belongs to an address. Remaps resize only.

use crate::beside::{Beside, Did};
use crate::model::{Stretch, WORDS, page_of, value};
use crate::operations::{STORES, flags, policy, rights, span};
use crate::register::Register;
use crate::rng::Rng;
use crate::splits;
use crate::tasks::Task;
use crate::world::{Got, World, cpu};
use foliant::Outcome;
use foliant::manager::{CollapseLimits, SpaceError};
use foliant::space::{
    Advice, Flags, MapError, MapRequest, Move, Place, RangeError, RemapError, SpaceId,
};
use foliant::table::Paging;
use foliant_units::{Bytes, Cpu, FRAME_BYTES, Order, Pages, Va};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

const FIRST: u64 = (0x1_0000 << 8) - 64;
const PHASES: usize = 3;
const SPACES_MAX: usize = 5;
/// Pages that the program beside is near.
const NEAR_MAX: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Racer {
    id: SpaceId,
    number: u64,
    limit: u64,
}

/// What all CPUs know together. The lock is never held over a contract call.
#[derive(Default)]
struct Shared {
    spaces: Vec<Racer>,
    /// Spaces that were taken off the list and that some CPU still runs.
    ending: Vec<Racer>,
    words: BTreeMap<(u64, u64), Register>,
    /// The rights of each page, as bits.
    rights: BTreeMap<(u64, u64), Register>,
    /// Pages that the program beside was at last, with their space.
    near: VecDeque<(u64, u64)>,
    /// Spaces that are being forked.
    forking: Vec<u64>,
    numbers: u64,
    serial: u64,
}

struct Race<'w, 'm, P: Paging> {
    world: &'w World<'m, P>,
    window: Stretch,
    shared: Mutex<Shared>,
    /// The CPU of the program beside.
    other: Cpu,
}

#[derive(Clone, Copy)]
enum Op {
    Store,
    Load,
    Fetch,
    Look,
    Map,
    Unmap,
    Protect,
    Advise,
    Drop,
    Populate,
    Guard,
    Resize,
    Fork,
    End,
    Other,
    Away,
    Policy,
    AddMemory,
    Split,
}

const MIX: [(u32, Op); 19] = [
    (40, Op::Store),
    (30, Op::Load),
    (8, Op::Fetch),
    (2, Op::Look),
    (10, Op::Map),
    (6, Op::Unmap),
    (8, Op::Protect),
    (4, Op::Advise),
    (6, Op::Drop),
    (5, Op::Populate),
    (2, Op::Guard),
    (2, Op::Resize),
    (4, Op::Fork),
    (3, Op::End),
    (6, Op::Other),
    (10, Op::Away),
    (2, Op::Policy),
    (1, Op::AddMemory),
    (14, Op::Split),
];

/// Runs one history, and returns the spaces that are left.
pub(crate) fn run<P: Paging>(world: &World<'_, P>) -> Vec<SpaceId> {
    let mut rng = world.rng(4);
    let pages = *rng.pick(&[12, 24, 96, 700, 1300]);
    let other = Cpu(world.shape.cpus as u16);
    let race = Race { world, window: FIRST..FIRST + pages, shared: Mutex::default(), other };
    let machine = world.mm.machine();
    world.mm.set_policy(policy(&mut rng, world.shape.sizes));
    for nth in 0..1 + rng.below(2) {
        let limit = if nth == 0 { world.shape.limit } else { 0 };
        let limited = (limit > 0).then_some(Pages::new(limit));
        let Some(id) = (0..200).find_map(|_| world.mm.create(limited).ok()) else {
            world.wrong("answers", "no space is ever made".into());
            return Vec::new();
        };
        let number = race.shared().number();
        race.shared().spaces.push(Racer { id, number, limit });
    }
    machine.accompany(Beside::new(race.other, world.seed()));
    let count = world.shape.cpus;
    let steps = (world.shape.steps / count / PHASES).max(6);
    for phase in 0..PHASES as u64 {
        race.move_beside(&mut rng);
        world.sim.parallel(count, |cpu| {
            let mut rng = world.rng(1000 * (phase + 1) + cpu.index() as u64);
            let mut here = None;
            for _ in 0..steps {
                if world.stopped() {
                    break;
                }
                race.step(&mut rng, &mut here);
            }
        });
        machine.beside(Beside::stop);
        if !world.stopped() {
            race.settle(&mut rng);
        }
        if world.stopped() {
            break;
        }
    }
    let shared = race.shared();
    shared.spaces.iter().chain(&shared.ending).map(|racer| racer.id).collect()
}

impl Shared {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }
    /// The program beside is at this page.
    fn is_near(&mut self, space: u64, page: u64) {
        self.near.truncate(NEAR_MAX - 1);
        self.near.push_front((space, page));
    }
    fn near(&self, rng: &mut Rng, space: u64) -> Option<u64> {
        let (of, page) = *self.near.get(rng.below(self.near.len() as u64) as usize)?;
        (of == space).then_some(page)
    }
    fn drops(&mut self, space: u64, stretch: &Stretch, start: u64) {
        for page in stretch.clone() {
            for word in WORDS {
                let at = (space, page * FRAME_BYTES + word);
                self.words.entry(at).or_default().begin(0, start);
            }
        }
    }
    fn turns_to(&mut self, space: u64, stretch: &Stretch, rights: u64, start: u64) {
        for page in stretch.clone() {
            self.rights.entry((space, page)).or_default().begin(rights, start);
        }
    }
    fn close(&mut self, space: u64, stretch: &Stretch, close: impl Fn(&mut Register)) {
        let (first, last) = (stretch.start * FRAME_BYTES, stretch.end * FRAME_BYTES);
        self.words.range_mut((space, first)..(space, last)).for_each(|(_, r)| close(r));
        let (first, last) = (stretch.start, stretch.end);
        self.rights.range_mut((space, first)..(space, last)).for_each(|(_, r)| close(r));
    }
    /// What a child has of what its parent had from `start` to `end`.
    fn inherit(&mut self, parent: u64, child: u64, (start, end): (u64, u64)) {
        for all in [&mut self.words, &mut self.rights] {
            let of_parent = all.range((parent, 0)..=(parent, u64::MAX));
            let of_child: Vec<_> = of_parent
                .map(|((_, at), register)| {
                    ((child, *at), Register::of(&register.values(start, end)))
                })
                .collect();
            all.extend(of_child);
        }
    }
}

/// What becomes of the rights of a stretch.
#[derive(Clone, Copy)]
enum Rights {
    Stay,
    Become(Flags),
    /// For a moment there are none.
    Replaced(Flags),
    /// Those of some area.
    Inherited,
}

const READ: u64 = 1;
const WRITE: u64 = 2;
const EXEC: u64 = 4;

fn bits(flags: Flags) -> u64 {
    let all = [(READ, Flags::READ), (WRITE, Flags::WRITE), (EXEC, Flags::EXEC)];
    all.iter().filter(|(_, flag)| flags.has(*flag)).map(|(bit, _)| bit).sum()
}

impl Rights {
    /// What they may be meanwhile, and whether that is what they are in the end.
    fn list(self) -> Vec<(u64, bool)> {
        match self {
            Rights::Stay => Vec::new(),
            Rights::Become(flags) => vec![(bits(flags), true)],
            Rights::Replaced(flags) => vec![(0, false), (bits(flags), true)],
            Rights::Inherited => {
                let all = [0, READ, READ | WRITE, READ | EXEC, READ | WRITE | EXEC];
                all.map(|bits| (bits, false)).to_vec()
            }
        }
    }
}

impl<P: Paging> Race<'_, '_, P> {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        for did in self.world.mm.machine().done_beside() {
            self.enter(&mut shared, did, self.other);
        }
        shared
    }
    /// Enters what was done, and holds what was found against what may be.
    fn enter(&self, shared: &mut Shared, did: Did, cpu: Cpu) {
        let Did { space, va, value, is_store, at } = did;
        if cpu == self.other {
            shared.is_near(space, page_of(va));
        }
        let (what, right) = if is_store { ("store to", WRITE) } else { ("load of", READ) };
        self.is_right(shared, (space, va), what, right, (cpu, at));
        let Shared { words, forking, .. } = shared;
        let register = words.entry((space, va)).or_default();
        if is_store {
            return register.store(value, at);
        }
        let allowed = register.values(at, at);
        if !allowed.contains(&value) {
            let (page, cpu) = (page_of(va), cpu.0);
            let text = format!(
                "load of {va:#x} (page {page:#x}) in space {space} by cpu {cpu} gives {value:#x}, allowed: {allowed:x?}"
            );
            self.world.wrong("contents", text);
        }
        // A fork under way also takes what was there when it began, so nothing is decided.
        if !forking.contains(&space) {
            register.decide(value, at, at);
        }
    }
    /// Holds an access that went through against the rights that its page may have then.
    fn is_right(
        &self,
        shared: &mut Shared,
        (space, va): (u64, u64),
        what: &str,
        right: u64,
        (cpu, at): (Cpu, u64),
    ) {
        let rights = shared.rights.entry((space, page_of(va))).or_default().values(at, at);
        if rights.iter().all(|rights| rights & right == 0) {
            let text = format!(
                "{what} {va:#x} in space {space} by cpu {} went through, rights: {rights:x?}",
                cpu.0
            );
            self.world.wrong("answers", text);
        }
    }
    /// The program beside, which is stopped, comes to some space.
    fn move_beside(&self, rng: &mut Rng) {
        let (world, machine) = (self.world, self.world.mm.machine());
        let spaces = self.shared().spaces.clone();
        let racer = *rng.pick(&spaces);
        world.sim.on(self.other, || {
            let moved = world.run(racer.id).map(|()| racer.number);
            machine.beside(|beside| beside.go_on(moved.unwrap_or(beside.space())));
        });
    }
    /// A word of the window; often one of a page where the program beside is at work.
    fn word(&self, rng: &mut Rng, racer: Racer) -> u64 {
        let any = self.window.start + rng.below(self.window.end - self.window.start);
        let page = match rng.once_in(3) {
            true => self.shared().near(rng, racer.number).unwrap_or(any),
            false => any,
        };
        page * FRAME_BYTES + *rng.pick(&WORDS)
    }
    fn stretch(&self, rng: &mut Rng) -> Stretch {
        let all = self.window.end - self.window.start;
        let most = rng.weighted(&[(5, 8), (4, 64), (3, all), (1, 2 * all)]).min(all);
        let first = self.window.start + rng.below(all);
        first..(first + 1 + rng.below(most)).min(self.window.end)
    }

    /// The program beside is in the manager for a moment: it comes to another space, or takes a
    /// fault.
    fn step_beside(&self, rng: &mut Rng) {
        if !self.world.mm.machine().beside(Beside::stop) {
            return;
        }
        if rng.once_in(12) {
            return self.move_beside(rng);
        }
        let known = self.world.mm.machine().beside(|beside| beside.space());
        let spaces = self.shared().spaces.clone();
        match spaces.into_iter().find(|racer| racer.number == known) {
            Some(racer) => {
                let va = self.word(rng, racer);
                self.world.sim.on(self.other, || match rng.once_in(2) {
                    true => self.store(racer, va),
                    false => drop(self.load(racer, va)),
                });
                self.world.mm.machine().beside(|beside| beside.go_on(known));
            }
            None => self.move_beside(rng),
        }
    }

    fn step(&self, rng: &mut Rng, here: &mut Option<Racer>) {
        let world = self.world;
        if rng.once_in(4) {
            self.step_beside(rng);
        }
        let op = rng.weighted(&MIX);
        let known = here.filter(|racer| self.shared().spaces.contains(racer));
        let racer = match known.filter(|_| !matches!(op, Op::Other)) {
            Some(racer) => racer,
            None => {
                let spaces = self.shared().spaces.clone();
                *rng.pick(&spaces)
            }
        };
        // Another CPU may have ended it meanwhile.
        let running = world.run(racer.id);
        *here = running.ok().map(|()| racer);
        if here.is_none() {
            return;
        }
        match op {
            Op::Store => {
                world.count("store");
                self.store(racer, self.word(rng, racer));
            }
            Op::Load | Op::Other => {
                world.count("load");
                self.load(racer, self.word(rng, racer));
            }
            Op::Fetch => {
                world.count("fetch");
                self.fetch(racer, self.word(rng, racer));
            }
            Op::Look => self.look(rng, racer),
            Op::Map => self.map(rng, racer),
            Op::Unmap => {
                let stretch = self.stretch(rng);
                let go = || world.mm.unmap(racer.id, span(&stretch));
                self.dropping("unmap", racer, &stretch, Rights::Become(Flags::NONE), go);
            }
            Op::Protect => {
                let rights = rights(rng);
                let stretch = self.stretch(rng);
                let go = || world.mm.protect(racer.id, span(&stretch), rights);
                world.count("protect");
                let got = self.turning(racer, &stretch, Rights::Become(rights), go);
                self.judge("protect", racer, got);
            }
            Op::Advise => {
                world.count("advise");
                let all = [Advice::HugePage, Advice::NoHugePage, Advice::Free, Advice::GuardRemove];
                let advice = *rng.pick(&all);
                let got = world.mm.advise(racer.id, span(&self.stretch(rng)), advice);
                self.judge("advise", racer, got);
            }
            Op::Drop => {
                let stretch = self.stretch(rng);
                let drop = || world.mm.advise(racer.id, span(&stretch), Advice::DontNeed);
                self.dropping("drop", racer, &stretch, Rights::Stay, drop);
            }
            Op::Populate => {
                world.count("populate");
                let advice = *rng.pick(&[Advice::PopulateRead, Advice::PopulateWrite]);
                let got = world.mm.advise(racer.id, span(&self.stretch(rng)), advice);
                self.judge("populate", racer, got);
            }
            Op::Guard => {
                let stretch = self.stretch(rng);
                let guard = || world.mm.advise(racer.id, span(&stretch), Advice::GuardInstall);
                self.dropping("guard", racer, &stretch, Rights::Stay, guard);
            }
            Op::Resize => self.resize(rng, racer),
            Op::Fork => self.fork(racer),
            Op::End => self.end(rng),
            Op::Away => world.go_away(rng),
            Op::Policy => {
                world.count("policy");
                world.mm.set_policy(policy(rng, world.shape.sizes));
            }
            Op::AddMemory => world.add_memory(),
            Op::Split if rng.once_in(2) => self.move_near(rng),
            Op::Split => match splits::whole(rng, &self.window) {
                Some(whole) => self.collapse(rng, racer, &whole),
                None => {
                    let va = self.word(rng, racer);
                    splits::split(world, rng, racer.id, va);
                }
            },
        }
    }

    /// Reads the entries of a stretch, without a lock, while others change them and free tables.
    fn look(&self, rng: &mut Rng, racer: Racer) {
        self.world.count("look");
        let stretch = self.stretch(rng);
        let in_order = self.world.mm.with_leaves(racer.id, span(&stretch), |leaves| {
            leaves.is_sorted_by(|before, leaf| before.va < leaf.va)
        });
        if in_order == Some(false) {
            let text = format!("the entries of {stretch:x?} are listed out of order");
            self.world.wrong("answers", text);
        }
    }

    /// The program beside stores to a page, and the page moves at once.
    fn move_near(&self, rng: &mut Rng) {
        let machine = self.world.mm.machine();
        if !machine.beside(Beside::stop) {
            return;
        }
        let known = machine.beside(|beside| beside.space());
        let racer = self.shared().spaces.iter().find(|racer| racer.number == known).copied();
        let at = racer.map(|racer| (racer, self.word(rng, racer)));
        if let Some((racer, va)) = at {
            self.world.count("store");
            self.world.sim.on(self.other, || self.store(racer, va));
        }
        machine.beside(|beside| beside.go_on(known));
        if let Some((racer, va)) = at {
            splits::relocate(self.world, racer.id, va);
        }
    }

    /// Judges an answer. These are right here: carried out, a hole (or a guard), a space that has
    /// ended, no memory where that is fair.
    fn judge(&self, what: &str, racer: Racer, got: Result<(), RangeError>) {
        match got {
            Ok(()) | Err(RangeError::Hole(_) | RangeError::NoSpace) => {}
            Err(error) if self.world.lacks(racer.limit, error) => {
                self.world.count_refused();
            }
            Err(error) => self.world.wrong("answers", format!("{what}: {error}")),
        }
    }

    /// An operation that drops the contents of a stretch, or changes nothing.
    fn dropping(
        &self,
        what: &'static str,
        racer: Racer,
        stretch: &Stretch,
        rights: Rights,
        go: impl FnOnce() -> Result<(), RangeError>,
    ) {
        self.world.count(what);
        let start = self.world.tick();
        self.shared().drops(racer.number, stretch, start);
        let got = self.turning(racer, stretch, rights, go);
        let end = self.world.tick();
        let mut shared = self.shared();
        match got {
            Ok(()) => shared.close(racer.number, stretch, |r| r.end(start, end)),
            // A guard may have got half-way.
            Err(_) if what == "guard" => {
                shared.close(racer.number, stretch, |r| r.doubt(start, end));
            }
            Err(_) => shared.close(racer.number, stretch, |r| r.undo(start)),
        }
        drop(shared);
        self.judge(what, racer, got);
    }

    /// An operation that changes the rights of a stretch, or nothing.
    fn turning(
        &self,
        racer: Racer,
        stretch: &Stretch,
        rights: Rights,
        go: impl FnOnce() -> Result<(), RangeError>,
    ) -> Result<(), RangeError> {
        let begun: Vec<(u64, bool)> = rights
            .list()
            .into_iter()
            .map(|(bits, sure)| {
                let start = self.world.tick();
                self.shared().turns_to(racer.number, stretch, bits, start);
                (start, sure)
            })
            .collect();
        let got = go();
        let end = self.world.tick();
        for (start, sure) in begun {
            self.shared().close(racer.number, stretch, |r| match (got, sure) {
                (Ok(()), true) => r.end(start, end),
                (Ok(()), false) => r.doubt(start, end),
                (Err(_), _) => r.undo(start),
            });
        }
        got
    }

    fn store(&self, racer: Racer, va: u64) {
        let serial = {
            let mut shared = self.shared();
            shared.serial += 1;
            shared.serial
        };
        let got = self.world.store(racer.id, va, value(racer.number, va, serial));
        self.done(racer, va, got, true);
        self.access("store", racer, va, got);
    }

    fn load(&self, racer: Racer, va: u64) -> Got {
        let got = self.world.load(racer.id, va);
        self.done(racer, va, got, false);
        self.access("load", racer, va, got);
        got
    }

    fn fetch(&self, racer: Racer, va: u64) -> Got {
        let got = self.world.fetch(racer.id, va);
        if let Got::Value(_) = got {
            let (mut shared, now) = (self.shared(), (self.world.sim_cpu(), self.world.tick()));
            self.is_right(&mut shared, (racer.number, va), "fetch at", EXEC, now);
        }
        self.access("fetch", racer, va, got);
        got
    }

    /// An access was made, or not. No other CPU has gone on since.
    fn done(&self, racer: Racer, va: u64, got: Got, is_store: bool) {
        if let Got::Value(value) = got {
            let mut shared = self.shared();
            let did = Did { space: racer.number, va, value, is_store, at: self.world.tick() };
            self.enter(&mut shared, did, self.world.sim_cpu());
        }
    }

    fn access(&self, what: &str, racer: Racer, va: u64, got: Got) {
        match got {
            Got::Value(_) | Got::Not(Outcome::Refused(_)) => {}
            Got::Not(outcome) if self.world.is_short(racer.limit, outcome) => {}
            _ if self.world.stopped() => {}
            got => {
                let cpu = self.world.sim_cpu().0;
                let text =
                    format!("{what} at {va:#x} in space {} by cpu {cpu}: {got:x?}", racer.number);
                self.world.wrong("answers", text);
            }
        }
    }

    fn map(&self, rng: &mut Rng, racer: Racer) {
        let stretch = self.stretch(rng);
        let (start, flags) = (Va::new(stretch.start * FRAME_BYTES), flags(rng));
        if rng.once_in(3) {
            self.map_over(racer, &stretch, flags);
        } else {
            let place = Place::NoReplace(start);
            let go = || self.map_at(racer, &stretch, place, flags);
            self.world.count("map");
            let got = self.turning(racer, &stretch, Rights::Become(flags), go);
            self.judge("map", racer, got);
        }
    }
    fn map_over(&self, racer: Racer, stretch: &Stretch, flags: Flags) {
        let place = Place::Fixed(Va::new(stretch.start * FRAME_BYTES));
        let go = || self.map_at(racer, stretch, place, flags);
        self.dropping("map over", racer, stretch, Rights::Replaced(flags), go);
    }
    fn map_at(
        &self,
        racer: Racer,
        stretch: &Stretch,
        place: Place,
        flags: Flags,
    ) -> Result<(), RangeError> {
        let request = MapRequest { place, bytes: span(stretch).bytes(), flags, tag: 0 };
        match self.world.mm.map(racer.id, &request) {
            Ok(_) => Ok(()),
            Err(MapError::Occupied(at)) => Err(RangeError::Hole(at)),
            Err(MapError::Range(error)) => Err(error),
            // There is no room, or it is about huge pages: that is never a fair answer here.
            Err(_) => Err(RangeError::Empty),
        }
    }

    /// Makes an area of a whole range, stores here and there, and has it collapsed while others are
    /// at work there.
    fn collapse(&self, rng: &mut Rng, racer: Racer, whole: &Stretch) {
        self.map_over(racer, whole, Flags::READ_WRITE);
        for _ in 0..STORES {
            let page = whole.start + rng.below(whole.end - whole.start);
            self.store(racer, page * FRAME_BYTES + *rng.pick(&WORDS));
        }
        let start = whole.start * FRAME_BYTES;
        splits::collapse(self.world, racer.id, (start, Order::SIZE_2M), CollapseLimits::NONE);
    }

    fn resize(&self, rng: &mut Rng, racer: Racer) {
        let stretch = self.stretch(rng);
        let most = self.window.end - stretch.start;
        let bytes = Bytes::new((1 + rng.below(most)) * FRAME_BYTES);
        let go = || match self.world.mm.remap(racer.id, span(&stretch), bytes, Move::Never) {
            Ok(_) => Ok(()),
            Err(RemapError::Map(MapError::Range(error))) => Err(error),
            Err(RemapError::Several(at)) => Err(RangeError::Hole(at)),
            Err(RemapError::Map(MapError::NoRoom(_))) => Err(RangeError::Hole(Va::new(0))),
            Err(_) => Err(RangeError::Empty),
        };
        let kept = stretch.start + bytes.get() / FRAME_BYTES;
        let gone = kept.min(stretch.end)..stretch.end;
        let more = stretch.end.min(kept)..kept;
        let rights = Rights::Become(Flags::NONE);
        self.dropping("resize", racer, &gone, rights, || {
            self.turning(racer, &more, Rights::Inherited, go)
        });
    }

    fn fork(&self, racer: Racer) {
        let world = self.world;
        if self.shared().spaces.len() >= SPACES_MAX {
            return;
        }
        world.count("fork");
        let start = world.tick();
        self.shared().forking.push(racer.number);
        let got = world.mm.machine().during(Task::Fork, || world.mm.fork(racer.id));
        let end = world.tick();
        let mut shared = self.shared();
        if let Some(at) = shared.forking.iter().position(|number| *number == racer.number) {
            shared.forking.swap_remove(at);
        }
        match got {
            Ok(id) => {
                let number = shared.number();
                shared.inherit(racer.number, number, (start, end));
                shared.spaces.push(Racer { id, number, limit: racer.limit });
            }
            Err(SpaceError::NoMemory) if world.is_scarce() => world.count_refused(),
            Err(SpaceError::OverLimit(_)) if racer.limit > 0 => world.count_refused(),
            Err(SpaceError::NoSpace) => {}
            Err(error) => world.wrong("answers", format!("fork: {error}")),
        }
    }

    /// Ends a space that other CPUs may be at work in: either they are refused from then on, or the
    /// end is.
    fn end(&self, rng: &mut Rng) {
        let world = self.world;
        let racer = {
            let mut shared = self.shared();
            if shared.spaces.len() < 2 {
                return;
            }
            let nth = rng.below(shared.spaces.len() as u64) as usize;
            let racer = shared.spaces.remove(nth);
            shared.ending.push(racer);
            racer
        };
        world.count("end");
        if rng.once_in(2) && world.mm.switch(None).is_err() {
            world.wrong("answers", "no way out of a space".into());
        }
        match world.mm.end(racer.id) {
            Ok(()) => self.shared().ending.retain(|other| *other != racer),
            Err(SpaceError::Running(_)) => {}
            Err(error) => world.wrong("answers", format!("end: {error}")),
        }
    }

    /// All CPUs have stopped: the spaces on their way out end, a word of each page is loaded twice,
    /// rights are tried.
    fn settle(&self, rng: &mut Rng) {
        let world = self.world;
        let ending = core::mem::take(&mut self.shared().ending);
        for racer in &ending {
            for cpu in world.mm.cpus() {
                world.sim.on(cpu, || {
                    let _ = world.mm.switch(None);
                });
            }
            if let Err(error) = world.mm.end(racer.id) {
                world.wrong("answers", format!("nobody runs it, and yet: {error}"));
            }
        }
        let spaces = self.shared().spaces.clone();
        world.audit_between(&spaces.iter().map(|racer| racer.id).collect::<Vec<_>>());
        for racer in spaces {
            for page in self.window.clone() {
                if self.window.end - self.window.start > 200 && !rng.once_in(4) {
                    continue;
                }
                let va = page * FRAME_BYTES + *rng.pick(&WORDS);
                let mut on = |go: &dyn Fn() -> Got| {
                    let cpu: Cpu = cpu(rng.draw(), world.shape.cpus);
                    world.sim.on(cpu, || world.run(racer.id).map_or(Got::Endless, |()| go()))
                };
                let first = on(&|| self.load(racer, va));
                let second = on(&|| self.load(racer, va));
                let area = world.mm.area(racer.id, Va::new(va));
                let rights = area.map_or(Flags::NONE, |area| area.flags);
                if first != second && !world.is_scarce() && racer.limit == 0 {
                    let text =
                        format!("{va:#x} in space {}: {first:x?}, then {second:x?}", racer.number);
                    world.wrong("contents", text);
                }
                if matches!(first, Got::Value(_)) && !rights.has(Flags::READ) {
                    world.wrong("contents", format!("{va:#x} may not be read, and was"));
                }
                if !rights.has(Flags::WRITE)
                    && matches!(on(&|| world.store(racer.id, va, u64::MAX)), Got::Value(_))
                {
                    world.wrong("contents", format!("{va:#x} may not be written, and was"));
                }
                if !rights.has(Flags::EXEC)
                    && matches!(on(&|| world.fetch(racer.id, va)), Got::Value(_))
                {
                    world.wrong("contents", format!("{va:#x} may not be executed, and was"));
                }
                if world.stopped() {
                    return;
                }
            }
        }
        let now = world.tick();
        self.shared().rights.values_mut().for_each(|rights| rights.prune(now));
    }
}
