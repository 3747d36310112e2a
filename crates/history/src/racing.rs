//! Racing histories: all CPUs on the same addresses of the same few spaces.
//!
//! Whether an access is answered or refused depends on who was first, so refusals are taken as they come. What a
//! load gives is held against the log of the word's writers. When all have stopped, two CPUs load every word and must
//! agree with each other, with the log, and with the areas.
//!
//! **Not here**: moving pages: a log belongs to an address. Remaps resize only.

use crate::model::{Stretch, WORDS, page_of};
use crate::operations::{STORES, flags, policy, span};
use crate::register::{OPEN, Register};
use crate::rng::Rng;
use crate::seat::value;
use crate::splits;
use crate::world::{Got, World, cpu};
use foliant::Outcome;
use foliant::manager::{CollapseLimits, SpaceError};
use foliant::space::{
    Advice, Flags, MapError, MapRequest, Move, Place, RangeError, RemapError, SpaceId,
};
use foliant::table::Paging;
use foliant_units::{Bytes, Cpu, FRAME_BYTES, Pages, Va};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

const FIRST: u64 = (0x1_0000 << 8) - 64;
const PHASES: usize = 3;
const SPACES_MAX: usize = 5;

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
    /// Taken off the list, still run by somebody.
    ending: Vec<Racer>,
    words: BTreeMap<(u64, u64), Register>,
    numbers: u64,
    serial: u64,
}

struct Race<'w, 'm, P: Paging> {
    world: &'w World<'m, P>,
    window: Stretch,
    shared: Mutex<Shared>,
}

#[derive(Clone, Copy)]
enum Op {
    Store,
    Load,
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

const MIX: [(u32, Op); 17] = [
    (40, Op::Store),
    (30, Op::Load),
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
    let race = Race { world, window: FIRST..FIRST + pages, shared: Mutex::default() };
    world.mm.set_policy(policy(&mut rng));
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
    let count = world.shape.cpus;
    let steps = (world.shape.steps / count / PHASES).max(6);
    for phase in 0..PHASES as u64 {
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
    fn begin(&mut self, space: u64, stretch: &Stretch, start: u64) {
        for page in stretch.clone() {
            for word in WORDS {
                let at = (space, page * FRAME_BYTES + word);
                self.words.entry(at).or_default().begin(0, start);
            }
        }
    }
    fn close(&mut self, space: u64, stretch: &Stretch, close: impl Fn(&mut Register)) {
        let (first, last) = (stretch.start * FRAME_BYTES, stretch.end * FRAME_BYTES);
        self.words.range_mut((space, first)..(space, last)).for_each(|(_, r)| close(r));
    }
}

impl<P: Paging> Race<'_, '_, P> {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn word(&self, rng: &mut Rng) -> u64 {
        let page = self.window.start + rng.below(self.window.end - self.window.start);
        page * FRAME_BYTES + *rng.pick(&WORDS)
    }
    fn stretch(&self, rng: &mut Rng) -> Stretch {
        let all = self.window.end - self.window.start;
        let most = rng.weighted(&[(5, 8), (4, 64), (3, all), (1, 2 * all)]).min(all);
        let first = self.window.start + rng.below(all);
        first..(first + 1 + rng.below(most)).min(self.window.end)
    }

    fn step(&self, rng: &mut Rng, here: &mut Option<Racer>) {
        let world = self.world;
        let op = rng.weighted(&MIX);
        let known = here.filter(|racer| self.shared().spaces.contains(racer));
        let racer = match known.filter(|_| !matches!(op, Op::Other)) {
            Some(racer) => racer,
            None => {
                let spaces = self.shared().spaces.clone();
                *rng.pick(&spaces)
            }
        };
        // It may have ended meanwhile, by somebody else.
        let running = world.run(racer.id);
        *here = running.ok().map(|()| racer);
        if here.is_none() {
            return;
        }
        match op {
            Op::Store => {
                world.count("store");
                self.store(racer, self.word(rng));
            }
            Op::Load | Op::Other => {
                world.count("load");
                self.load(racer, self.word(rng));
            }
            Op::Map => self.map(rng, racer),
            Op::Unmap => {
                let stretch = self.stretch(rng);
                self.dropping("unmap", racer, &stretch, || {
                    world.mm.unmap(racer.id, span(&stretch))
                });
            }
            Op::Protect => {
                world.count("protect");
                let rights =
                    rng.weighted(&[(3, Flags::READ), (4, Flags::READ_WRITE), (1, Flags::NONE)]);
                let got = world.mm.protect(racer.id, span(&self.stretch(rng)), rights);
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
                self.dropping("drop", racer, &stretch, drop);
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
                self.dropping("guard", racer, &stretch, guard);
            }
            Op::Resize => self.resize(rng, racer),
            Op::Fork => self.fork(racer),
            Op::End => self.end(rng),
            Op::Away => world.go_away(rng),
            Op::Policy => {
                world.count("policy");
                world.mm.set_policy(policy(rng));
            }
            Op::AddMemory => world.add_memory(),
            Op::Split => match splits::whole(rng, &self.window) {
                Some(whole) => self.collapse(rng, racer, &whole),
                None => {
                    let va = self.word(rng);
                    splits::split(world, rng, racer.id, va);
                }
            },
        }
    }

    /// An answer that nobody can object to here: carried out, a hole, a guard, no memory where that is fair.
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
        go: impl FnOnce() -> Result<(), RangeError>,
    ) {
        self.world.count(what);
        let start = self.world.tick();
        self.shared().begin(racer.number, stretch, start);
        let got = go();
        let end = self.world.tick();
        let mut shared = self.shared();
        match got {
            Ok(()) => shared.close(racer.number, stretch, |r| r.end(start, end)),
            // A guard may have got half-way.
            Err(_) if what == "guard" => {}
            Err(_) => shared.close(racer.number, stretch, |r| r.undo(start)),
        }
        drop(shared);
        self.judge(what, racer, got);
    }

    fn store(&self, racer: Racer, va: u64) {
        let start = self.world.tick();
        let value = {
            let mut shared = self.shared();
            shared.serial += 1;
            let value = value(racer.number, va, shared.serial);
            shared.words.entry((racer.number, va)).or_default().begin(value, start);
            value
        };
        let got = self.world.store(racer.id, va, value);
        let end = self.world.tick();
        if let Some(register) = self.shared().words.get_mut(&(racer.number, va)) {
            match got {
                Got::Value(_) => register.end(start, end),
                _ => register.undo(start),
            }
        }
        self.access("store", racer, va, got);
    }

    fn load(&self, racer: Racer, va: u64) -> Got {
        let start = self.world.tick();
        let got = self.world.load(racer.id, va);
        let end = self.world.tick();
        if let Got::Value(value) = got {
            self.check(racer, va, value, (start, end));
        }
        self.access("load", racer, va, got);
        got
    }

    fn check(&self, racer: Racer, va: u64, value: u64, (start, end): (u64, u64)) {
        let shared = self.shared();
        let register = shared.words.get(&(racer.number, va)).cloned().unwrap_or_default();
        drop(shared);
        if !register.allows(value, start, end) {
            let text = format!(
                "load of {va:#x} (page {:#x}) in space {} by cpu {} gives {value:#x}, allowed: {:x?}",
                page_of(va),
                racer.number,
                self.world.sim_cpu().0,
                register.values(start, end)
            );
            self.world.wrong("contents", text);
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
            self.world.count("map");
            let got = self.map_at(racer, &stretch, Place::NoReplace(start), flags);
            self.judge("map", racer, got);
        }
    }
    fn map_over(&self, racer: Racer, stretch: &Stretch, flags: Flags) {
        let place = Place::Fixed(Va::new(stretch.start * FRAME_BYTES));
        self.dropping("map over", racer, stretch, || self.map_at(racer, stretch, place, flags));
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
            Err(_) => Err(RangeError::Empty), // no room, or something about huge pages: nobody's fair answer
        }
    }

    /// Makes an area of a whole range, stores here and there, and has it collapsed while others are at work there.
    fn collapse(&self, rng: &mut Rng, racer: Racer, whole: &Stretch) {
        self.map_over(racer, whole, Flags::READ_WRITE);
        for _ in 0..STORES {
            let page = whole.start + rng.below(whole.end - whole.start);
            self.store(racer, page * FRAME_BYTES + *rng.pick(&WORDS));
        }
        let start = whole.start * FRAME_BYTES;
        splits::collapse(self.world, racer.id, start, CollapseLimits::NONE);
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
        self.dropping("resize", racer, &gone, go);
    }

    fn fork(&self, racer: Racer) {
        let world = self.world;
        if self.shared().spaces.len() >= SPACES_MAX {
            return;
        }
        world.count("fork");
        let start = world.tick();
        let got = world.mm.fork(racer.id);
        let end = world.tick();
        match got {
            Ok(id) => {
                let mut shared = self.shared();
                let number = shared.number();
                let (first, last) = ((racer.number, 0), (racer.number, u64::MAX));
                let words: Vec<(u64, Vec<u64>)> = shared
                    .words
                    .range(first..=last)
                    .map(|((_, va), register)| (*va, register.values(start, end)))
                    .collect();
                for (va, values) in words {
                    shared.words.insert((number, va), Register::of(values));
                }
                shared.spaces.push(Racer { id, number, limit: racer.limit });
            }
            Err(SpaceError::NoMemory) if world.is_scarce() => world.count_refused(),
            Err(SpaceError::OverLimit(_)) if racer.limit > 0 => world.count_refused(),
            Err(SpaceError::NoSpace) => {}
            Err(error) => world.wrong("answers", format!("fork: {error}")),
        }
    }

    /// Ends a space that others may be at work in: they are refused from then on, or it is.
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

    /// All have stopped: the spaces on their way out end, every word is loaded on two CPUs, rights are tried.
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
        world.audit(&spaces.iter().map(|racer| racer.id).collect::<Vec<_>>());
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
                    && matches!(on(&|| world.store(racer.id, va, OPEN)), Got::Value(_))
                {
                    world.wrong("contents", format!("{va:#x} may not be written, and was"));
                }
                if world.stopped() {
                    return;
                }
            }
        }
        let now = world.tick();
        self.shared().words.values_mut().for_each(|register| register.prune(now));
    }
}
