//! The other side: a manager on the simulated machine.

use super::{Answer, Counts, HUGE, OBJECTS, POOL, PROCESSES, Side, Step, What};
use crate::host::ARENA;
use crate::side::Failed;
use foliant::fault::Refusal;
use foliant::manager::Setup;
use foliant::object::ObjectRequest;
use foliant::pool::Budget;
use foliant::space::{Advice, Flags, MapError, MapRequest, ObjectId, Place, RangeError, SpaceId};
use foliant::table::X86_64;
use foliant::{Access, Manager, Outcome, Policy};
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, Cpu, FRAME_BYTES, Order, Pages, Va, VaRange};

type Format = X86_64<4>;
/// Memory of the simulated machine: more than the pool may have.
const MEMORY: Bytes = Bytes::new(96 << 20);
/// Faults that one access may take.
const FAULTS_MAX: usize = 8;

/// The other side.
pub(super) struct Ours<'a, 'm> {
    sim: &'m Sim,
    mm: &'a Manager<'m, Sim, Format>,
    spaces: [Option<SpaceId>; PROCESSES],
    objects: [Option<ObjectId>; OBJECTS],
    /// Of the next area: Linux makes no two areas of huge pages one.
    tag: u64,
}

fn wrong(why: impl core::fmt::Debug) -> Failed {
    Failed::Ours(format!("{why:?}"))
}

/// Runs `work` with a machine that has a pool and one space. In the end all goes, and everything is
/// recounted.
pub(super) fn with<R>(
    work: impl FnOnce(&mut Ours<'_, '_>) -> Result<R, Failed>,
) -> Result<R, Failed> {
    let sim = Sim::new(Config::seeded(1, MEMORY, 1)).map_err(wrong)?;
    let setup = Setup::of(&sim.config().memory, Policy::BASE_ONLY);
    let mm: Manager<'_, Sim, Format> = Manager::new(&sim, &setup).map_err(wrong)?;
    sim.on(Cpu(0), || mm.online());
    mm.resize_pool(Order::SIZE_2M, POOL, Budget::ALL).map_err(wrong)?;
    let first = mm.create(None).map_err(wrong)?;
    let spaces = [Some(first), None, None];
    let mut ours = Ours { sim: &sim, mm: &mm, spaces, objects: [None; OBJECTS], tag: 0 };
    let done = work(&mut ours)?;
    mm.audit(&ours.spaces.iter().flatten().copied().collect::<Vec<_>>()).map_err(wrong)?;
    mm.switch(None).map_err(wrong)?;
    ours.spaces.iter().flatten().try_for_each(|id| mm.end(*id).map_err(wrong))?;
    ours.objects.iter().flatten().try_for_each(|id| mm.end_object(*id).map_err(wrong))?;
    mm.audit(&[]).map_err(wrong)?;
    let found = sim.violations();
    found.first().map_or(Ok(done), |first| Err(wrong(first)))
}

fn pages(huge: u64) -> Pages {
    Pages::new(huge * (HUGE / FRAME_BYTES))
}
fn range(at: u64, count: u64) -> VaRange {
    let at = Va::new(ARENA + at * HUGE);
    VaRange::sized(at, Bytes::new(count * HUGE)).expect("it is in the window")
}
/// What Linux says where the manager says this.
fn of_range(done: Result<(), RangeError>) -> Result<Answer, Failed> {
    match done {
        Ok(()) => Ok(Answer::Done),
        Err(why) => Err(wrong(why)),
    }
}

impl Ours<'_, '_> {
    fn space(&self, who: usize) -> Result<SpaceId, Failed> {
        self.spaces[who].ok_or_else(|| wrong("no space"))
    }
    fn object(&self, of: usize) -> Result<ObjectId, Failed> {
        self.objects[of].ok_or_else(|| wrong("no object"))
    }

    fn map(&mut self, who: usize, (at, count): (u64, u64), what: &What) -> Result<Answer, Failed> {
        let (mm, space) = (self.mm, self.space(who)?);
        let mut flags = if what.writable { Flags::READ_WRITE } else { Flags::READ };
        flags = if what.shared { flags.with(Flags::SHARED) } else { flags };
        flags = if what.noreserve { flags.with(Flags::NORESERVE) } else { flags };
        let place = Place::NoReplace(range(at, count).start());
        let bytes = Bytes::new(count * HUGE);
        self.tag += 1;
        let tag = self.tag;
        let request = |flags| MapRequest { place, bytes, flags, tag };
        let done = match what.of {
            None => mm.map(space, &request(flags.with(Flags::HUGE_2M))),
            Some(of) => {
                let of = self.object(of)?;
                // A file of a pool grows by being mapped to be written.
                let (old, end) = (mm.object_room(of), pages(what.first + count));
                let grows = what.writable && old.is_some_and(|old| old < end);
                if grows {
                    mm.resize_object(of, end).map_err(wrong)?;
                }
                let done = mm.map_object(space, &request(flags), (of, pages(what.first)));
                if let (true, true, Some(old)) = (grows, done.is_err(), old) {
                    mm.resize_object(of, old).map_err(wrong)?;
                }
                done
            }
        };
        match done {
            Ok(_) => Ok(Answer::Done),
            Err(MapError::Occupied(_)) => Ok(Answer::Errno(libc::EEXIST)),
            Err(MapError::NoHugePages(_)) => Ok(Answer::Errno(libc::ENOMEM)),
            Err(why) => Err(wrong(why)),
        }
    }

    fn access(&self, who: usize, at: u64, store: Option<u8>) -> Result<Answer, Failed> {
        let (space, va) = (self.space(who)?, range(at, 1).start());
        self.mm.switch(Some(space)).map_err(wrong)?;
        let access = if store.is_some() { Access::Write } else { Access::Read };
        for _ in 0..FAULTS_MAX {
            let done = match store {
                None => self.sim.user_load(va, 1).map(|value| Answer::Byte(value as u8)),
                Some(byte) => self.sim.user_store(va, 1, byte.into()).map(|()| Answer::Done),
            };
            if let Ok(answer) = done {
                return Ok(answer);
            }
            match self.mm.fault(space, va, access) {
                Outcome::NoHugePage(_) | Outcome::Refused(Refusal::Beyond(_)) => {
                    return Ok(Answer::Signal(libc::SIGBUS as u64));
                }
                Outcome::Refused(Refusal::NoArea(_) | Refusal::NoRight(..)) => {
                    return Ok(Answer::Signal(libc::SIGSEGV as u64));
                }
                Outcome::Mapped(_) | Outcome::Copied | Outcome::Reused | Outcome::Spurious => {}
                other => return Err(wrong(other)),
            }
        }
        Err(wrong("an access never got through"))
    }
}

impl Side for Ours<'_, '_> {
    fn step(&mut self, step: &Step) -> Result<Answer, Failed> {
        let mm = self.mm;
        match *step {
            Step::Create { of, pages: room } => {
                let flags = Flags::HUGE_2M;
                let request =
                    ObjectRequest { pages: pages(room), flags, ..ObjectRequest::default() };
                self.objects[of] = Some(mm.create_object(&request).map_err(wrong)?);
            }
            Step::Close { of } => {
                mm.end_object(self.object(of)?).map_err(wrong)?;
                self.objects[of] = None;
            }
            Step::Resize { of, pages: room } => {
                return of_range(mm.resize_object(self.object(of)?, pages(room)));
            }
            Step::Punch { of, from, count } => {
                let of = self.object(of)?;
                return of_range(mm.punch_object(of, pages(from), pages(from + count)));
            }
            Step::Allocate { of, from, count } => {
                let done = mm.promise_object(self.object(of)?, pages(from), pages(from + count));
                return match done {
                    Err(RangeError::NoMemory) => Ok(Answer::Errno(libc::ENOSPC)),
                    done => of_range(done),
                };
            }
            Step::Map { who, at, count, what } => return self.map(who, (at, count), &what),
            Step::Unmap { who, at, count } => {
                return of_range(mm.unmap(self.space(who)?, range(at, count)));
            }
            Step::Load { who, at } => return self.access(who, at, None),
            Step::Store { who, at, value } => return self.access(who, at, Some(value)),
            Step::Drop { who, at, count } => return self.drop_pages(who, (at, count)),
            Step::Fork { who, child } => {
                self.spaces[child] = Some(mm.fork(self.space(who)?).map_err(wrong)?);
            }
            Step::Exit { who } => {
                mm.switch(None).map_err(wrong)?;
                mm.end(self.space(who)?).map_err(wrong)?;
                self.spaces[who] = None;
            }
            Step::Pool { pages } => {
                mm.resize_pool(Order::SIZE_2M, pages, Budget::ALL).map_err(wrong)?;
            }
            Step::Overcommit { pages } => {
                mm.pools().set_overcommit(Order::SIZE_2M, pages).map_err(wrong)?;
            }
        }
        Ok(Answer::Done)
    }
    fn counts(&self) -> Result<Counts, Failed> {
        let pool = self.mm.pool(Order::SIZE_2M).map_err(wrong)?;
        Ok(Counts {
            total: pool.nr_hugepages,
            free: pool.free_hugepages,
            reserved: pool.resv_hugepages,
            surplus: pool.surplus_hugepages,
        })
    }
}

impl Ours<'_, '_> {
    /// Linux drops what there is, area by area, and says then that there was a hole.
    fn drop_pages(&self, who: usize, (at, count): (u64, u64)) -> Result<Answer, Failed> {
        let (space, all) = (self.space(who)?, range(at, count));
        let (mut va, mut answer) = (all.start(), Answer::Done);
        while va < all.end() {
            let area = self.mm.area_at_or_after(space, va).map(|area| area.range.intersect(all));
            let part = area.filter(|part| !part.is_empty());
            if part.is_none_or(|part| part.start() > va) {
                answer = Answer::Errno(libc::ENOMEM);
            }
            let Some(part) = part else { break };
            self.mm.advise(space, part, Advice::DontNeed).map_err(wrong)?;
            va = part.end();
        }
        Ok(answer)
    }
}
