//! Every pair of operations on the same pages: the second one begins between two steps of the
//! first, and runs to its end, or until it waits for the first.
//!
//! Each scene is a kind of folio, alone or shared with a child, on a machine that replaces entries
//! in place or breaks them first. Whatever meets whatever: nobody gets rights that the area does
//! not give, contents stay, what is referenced or broken is not handed out, and everything comes
//! back in the end.

use crate::common::beside::Beside;
use crate::common::*;
use foliant::compact::CompactRequest;
use foliant::fault::Orders;
use foliant::folio::FrameState;
use foliant::frame::Kind;
use foliant::manager::{CollapseLimits, Poisoned};
use foliant::space::{Advice, Flags, Move, SpaceId};
use foliant::split::{Shrink, SplitInto};
use foliant::table::{Attrs, Entry, X86_64};
use foliant::{Access, Policy, Reference};
use foliant_machine::{AnyMachine, Cpus, Replace};
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, Frame, Nanos, Order, Pages, Va};
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

/// Pages that hold something before the two operations meet.
const FILLED: [u64; 6] = [0, 1, 2, 20, 40, 300];
/// So many pages are moved by `Op::Move`, and where to.
const MOVED: u64 = 32;
const ELSEWHERE: u64 = BASE + 8 * MB;

type M<'m> = Mm<'m>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    Write,
    WriteBeside,
    Read,
    ReadOnly,
    Drop,
    Unmap,
    Move,
    Guard,
    Populate,
    Fork,
    End,
    Split,
    Relocate,
    Shrink,
    Collapse,
    Compact,
    Keep,
    Poison,
    ClearAhead,
    Walk,
}

impl Op {
    const ALL: [Op; 20] = [
        Op::Write,
        Op::WriteBeside,
        Op::Read,
        Op::ReadOnly,
        Op::Drop,
        Op::Unmap,
        Op::Move,
        Op::Guard,
        Op::Populate,
        Op::Fork,
        Op::End,
        Op::Split,
        Op::Relocate,
        Op::Shrink,
        Op::Collapse,
        Op::Compact,
        Op::Keep,
        Op::Poison,
        Op::ClearAhead,
        Op::Walk,
    ];
    /// Whether what the pages held may be gone from the space afterwards.
    fn takes_contents(self) -> bool {
        matches!(self, Op::Drop | Op::Unmap | Op::Guard | Op::Poison)
    }
}

/// Two CPUs, a space with something in it, and what the operations leave behind.
struct Scene<'s, 'm> {
    machine: &'m Beside,
    mm: &'s M<'m>,
    id: SpaceId,
    child: Option<SpaceId>,
    spaces: Mutex<Vec<SpaceId>>,
    kept: Mutex<Vec<Reference<'s, 'm, AnyMachine<'m>, X86_64<4>>>>,
    broken: Mutex<Vec<Frame>>,
}

impl<'s, 'm> Scene<'s, 'm> {
    /// Any refusal is legal here; what must not be is seen by the checks.
    fn act(&self, op: Op) {
        let (mm, id, at) = (self.mm, self.id, Va::new(BASE));
        let whole = range(BASE, 2 * MB);
        match op {
            Op::Write => drop(mm.fault(id, at, Access::Write)),
            Op::WriteBeside => drop(mm.fault(id, at.add(PAGE), Access::Write)),
            Op::Read => drop(mm.fault(id, at.add(3 * PAGE), Access::Read)),
            Op::ReadOnly => drop(mm.protect(id, whole, Flags::READ)),
            Op::Drop => drop(mm.advise(id, range(BASE, MB), Advice::DontNeed)),
            Op::Unmap => drop(mm.unmap(id, range(BASE, 64 * PAGE))),
            Op::Move => {
                let to = Move::To(Va::new(ELSEWHERE));
                let _ = mm.remap(id, range(BASE, MOVED * PAGE), Bytes::new(MOVED * PAGE), to);
            }
            Op::Guard => drop(mm.advise(id, range(BASE, 4 * PAGE), Advice::GuardInstall)),
            Op::Populate => drop(mm.advise(id, range(BASE, 64 * PAGE), Advice::PopulateWrite)),
            Op::Fork => {
                if let Ok(child) = mm.fork(id) {
                    self.spaces.lock().unwrap().push(child);
                }
            }
            Op::End => {
                if let Some(child) = self.child
                    && mm.end(child).is_ok()
                {
                    self.spaces.lock().unwrap().retain(|space| *space != child);
                }
            }
            Op::Split => drop(mm.split(id, at, SplitInto::BASE)),
            Op::Relocate => drop(mm.frame_at(id, at).map(|frame| mm.relocate(frame))),
            Op::Shrink => {
                let how = Shrink { folios: 64, zeros_max: Some(Pages::new(1)) };
                let _ = mm.shrink_deferred(how);
            }
            Op::Collapse => drop(mm.collapse(id, at, Order::SIZE_2M, CollapseLimits::NONE)),
            Op::Compact => drop(mm.compact(&CompactRequest::ALL, &mut [])),
            Op::Keep => {
                if let Some(kept) = mm.frame_at(id, at).and_then(|frame| mm.reference(frame)) {
                    self.kept.lock().unwrap().push(kept);
                }
            }
            Op::Poison => {
                if let Some(frame) = mm.frame_at(id, at)
                    && mm.poison(frame) == Poisoned::Held
                {
                    self.broken.lock().unwrap().push(frame);
                }
            }
            Op::ClearAhead => drop(mm.clear_ahead(Nanos(20_000))),
            Op::Walk => drop(mm.frame_at(id, at).map(|frame| mm.mappings(frame))),
        }
    }

    /// The pages are used from this CPU: what it caches must not outlive the pages.
    fn touch(&self) {
        for page in FILLED {
            let _ = self.machine.sim.user_load(Va::new(BASE + page * PAGE), 8);
        }
    }

    fn spaces(&self) -> Vec<SpaceId> {
        self.spaces.lock().unwrap().clone()
    }

    /// Whether some entry of some space allows a write that its area does not.
    fn check_rights(&self) -> Result<(), String> {
        for id in self.spaces() {
            let mut writable = Vec::new();
            for start in [BASE, ELSEWHERE] {
                self.mm.with_leaves(id, range(start, 2 * MB), |leaves| {
                    writable.extend(leaves.filter_map(|leaf| match leaf.entry {
                        Entry::Leaf { attrs, .. } => Some((leaf.va, attrs.has(Attrs::WRITE))),
                        _ => None,
                    }))
                });
            }
            for (va, is_writable) in writable {
                let area = self.mm.area(id, va).ok_or(format!("{va:?} is mapped, in no area"))?;
                if is_writable && !area.flags.has(Flags::WRITE) {
                    return Err(format!("{va:?} is writable in a read-only area"));
                }
            }
        }
        Ok(())
    }

    fn check_contents(&self) -> Result<(), String> {
        let is_moved = self.mm.area(self.id, Va::new(ELSEWHERE)).is_some();
        for page in FILLED {
            let start = if is_moved && page < MOVED { ELSEWHERE } else { BASE };
            let got = load(&self.machine.sim, self.mm, self.id, start + page * PAGE);
            if got != 1000 + page {
                return Err(format!("page {page} holds {got}"));
            }
        }
        Ok(())
    }

    /// What somebody holds, or what is broken, is still a folio.
    fn check_held(&self) -> Result<(), String> {
        let kept = self.kept.lock().unwrap();
        let broken = self.broken.lock().unwrap();
        for head in kept.iter().map(Reference::head) {
            if self.mm.identity(head).kind() != Kind::Anon {
                return Err(format!("{head:?} is held, and {:?}", self.mm.identity(head)));
            }
        }
        for frame in broken.iter() {
            if self.mm.folios().state(*frame) == FrameState::Free {
                return Err(format!("{frame:?} is broken, and free"));
            }
        }
        Ok(())
    }

    fn check(&self, ops: [Op; 2]) -> Result<(), String> {
        self.mm.audit(&self.spaces()).map_err(|why| format!("{why:?}"))?;
        self.check_rights()?;
        if !ops.iter().any(|op| op.takes_contents()) {
            self.check_contents()?;
        }
        self.check_held()?;
        self.kept.lock().unwrap().clear();
        for n in 0..2 {
            self.machine.sim.on(cpu(n), || self.mm.switch(None).unwrap());
        }
        for space in self.spaces() {
            self.mm.end(space).map_err(|why| format!("a space does not end: {why:?}"))?;
        }
        self.check_held()?;
        self.mm.audit(&[]).map_err(|why| format!("at the end {why:?}"))?;
        // A broken folio stays its last owner's for ever.
        let has_broken = !self.broken.lock().unwrap().is_empty();
        let stays = |text: &str| has_broken && text.contains("frames are still User");
        match self.machine.sim.finish().iter().find(|seen| !stays(&seen.text)) {
            Some(violation) => Err(format!("{violation:?}")),
            None => Ok(()),
        }
    }
}

/// A kind of folio, alone or shared: what two operations meet on.
#[derive(Clone, Copy, Debug)]
struct Stage {
    replace: Replace,
    order: Option<u8>,
    is_shared: bool,
}

impl Stage {
    fn all() -> impl Iterator<Item = Stage> {
        let kinds = [false, true]
            .into_iter()
            .flat_map(|is_shared| [None, Some(4), Some(9)].map(|order| (order, is_shared)));
        kinds.flat_map(|(order, is_shared)| {
            [Replace::InPlace, Replace::BreakBeforeMake].map(|replace| Stage {
                replace,
                order,
                is_shared,
            })
        })
    }
    fn policy(self) -> Policy {
        match self.order {
            None => Policy::BASE_ONLY,
            Some(order) => Policy::always(Orders::of(Order::new(order).unwrap())),
        }
    }
    /// The second operation at the n-th step of the first.
    fn run(self, ops: [Op; 2], n: u64) -> Result<Met, String> {
        let mut config = Config::seeded(2, Bytes::new(32 * MB), 1);
        config.rules.replace = self.replace;
        let machine = Beside::new(Sim::new(config).unwrap());
        let memory = machine.sim.config().memory.clone();
        let mm: AuditedMm<'_> = manager_on(&machine, &memory, self.policy());
        mm.leaves("what the operations broke; the scene is recounted with it");
        let id = mm.create(None).unwrap();
        for n in 0..2 {
            machine.sim.on(cpu(n), || {
                mm.online();
                mm.switch(Some(id)).unwrap();
            });
        }
        area(&mm, id, BASE, 2 * MB);
        for page in FILLED {
            store(&machine.sim, &mm, id, BASE + page * PAGE, 1000 + page);
        }
        let child = self.is_shared.then(|| mm.fork(id).unwrap());
        let scene = Scene {
            machine: &machine,
            mm: &mm,
            id,
            child,
            spaces: Mutex::new(child.into_iter().chain([id]).collect()),
            kept: Mutex::default(),
            broken: Mutex::default(),
        };
        let first = || scene.act(ops[0]);
        let second = || {
            scene.act(ops[1]);
            scene.touch();
        };
        match machine.before_step(n, second, first) {
            None => Ok(Met::Never),
            Some(()) => scene.check(ops).map(|()| Met::Once),
        }
    }
}

/// Whether the two operations met.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Met {
    /// The first one has fewer steps.
    Never,
    Once,
}

/// What was tried, and what was found.
#[derive(Default, Debug)]
struct Tally {
    done: u64,
    found: Vec<String>,
}

impl Tally {
    /// One pair on one stage, at these steps of the first.
    fn pair(&mut self, stage: Stage, ops: [Op; 2], steps: impl Iterator<Item = u64>) {
        for n in steps {
            let ran = catch_unwind(AssertUnwindSafe(|| stage.run(ops, n)));
            let why = match ran {
                Ok(Ok(Met::Never)) => return,
                Ok(Ok(Met::Once)) => {
                    self.done += 1;
                    continue;
                }
                Ok(Err(why)) => why,
                Err(panic) => match panic.downcast_ref::<String>() {
                    Some(text) => format!("panicked: {text}"),
                    None => format!("panicked: {:?}", panic.downcast_ref::<&str>()),
                },
            };
            self.found.push(format!("{ops:?} on {stage:?} at step {n}: {why}"));
            return; // one of a pair is enough to look at
        }
    }
    fn judge(self) {
        println!("{} meetings", self.done);
        assert!(self.found.is_empty(), "{} found\n{}", self.found.len(), self.found.join("\n"));
    }
}

/// Each pair on two of the stages, at steps that lie twice as far each time and begin elsewhere for
/// each pair.
#[test]
fn pairs_that_meet_at_some_steps() {
    let mut tally = Tally::default();
    for (x, first) in Op::ALL.into_iter().enumerate() {
        for (y, second) in Op::ALL.into_iter().enumerate() {
            for stage in Stage::all().skip((x + 2 * y) % 6).step_by(6) {
                let start = (x * 7 + y * 5) as u64 % 13 + 8;
                let steps = iter::successors(Some(start), |n| Some(n * 2));
                tally.pair(stage, [first, second], steps);
            }
        }
    }
    tally.judge();
}

/// A folio is moved whose entry has just been moved: a CPU may have it cached at the address that
/// it left.
#[test]
fn finding_t_a_moved_entry_and_its_moved_folio_meet_at_every_step() {
    let mut tally = Tally::default();
    let in_place = |stage: &Stage| !stage.is_shared && stage.replace == Replace::InPlace;
    for stage in Stage::all().filter(in_place) {
        tally.pair(stage, [Op::Move, Op::Relocate], 1..);
    }
    tally.judge();
}

/// A leaf is split while others work on its range: where it has to be broken first, they wait for
/// what comes in its place.
#[test]
fn what_stands_in_for_a_leaf_is_waited_for() {
    let mut tally = Tally::default();
    let breaks = |stage: &Stage| {
        stage.replace == Replace::BreakBeforeMake && stage.order == Some(9) && !stage.is_shared
    };
    for stage in Stage::all().filter(breaks) {
        for second in [Op::Move, Op::Fork, Op::ReadOnly] {
            tally.pair(stage, [Op::Split, second], (1..).step_by(89));
        }
    }
    tally.judge();
}

/// Each pair at each step. `FOLIANT_FIRST=Fork` takes the pairs that begin with it only.
#[test]
#[ignore = "takes hours: cargo test --release -p foliant pairs:: -- --ignored"]
fn pairs_that_meet_at_every_step() {
    let only = std::env::var("FOLIANT_FIRST").ok();
    let mut tally = Tally::default();
    for first in Op::ALL {
        if only.as_ref().is_some_and(|only| *only != format!("{first:?}")) {
            continue;
        }
        for second in Op::ALL {
            for stage in Stage::all() {
                tally.pair(stage, [first, second], 1..);
            }
            println!("{first:?} and {second:?}: {} meetings so far", tally.done);
        }
    }
    tally.judge();
}

/// The machine of these tests tells a deadlock, however the host treats its threads.
#[test]
#[should_panic(expected = "waits for ever")]
fn two_cpus_that_wait_for_each_other_are_told() {
    let machine = Beside::new(sim(2, 32));
    let mm = machine.manager(Policy::BASE_ONLY);
    let wait = || -> () {
        loop {
            machine.relax();
        }
    };
    let first = || {
        mm.create(None).unwrap();
        wait();
    };
    machine.before_step(1, wait, first);
}
