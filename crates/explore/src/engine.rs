//! The engine: lanes take turns on one thread, and where the order matters the process branches.
//!
//! A *lane* does the operations of one task. Lanes of one CPU take turns at preemption points
//! alone, those of different CPUs also at every access to a word that both touch and one of them
//! changes. A *branch* is a fork: the child has the other lane go on, the parent waits for it and
//! then goes on as before. So what came before is never run twice.
//!
//! **Invariants**
//! - E1. A lane is left at a point, a spin, a preemption point or its end, never inside a call of
//!   the inner machine.
//! - E2. The engine's state is not borrowed where a lane is left or the process branches.
//! - E3. Each lane counts its own steps (accesses, spins, preemption points, allocations, borders
//!   of operations), so a switch is told by lane and step, whatever addresses the host gives.
#![allow(unsafe_code)]

use crate::board::{Board, Count};
use crate::host::{self, Ended, Side};
use crate::mix::{LANES_MAX, Mixers, Touched, mix, word_of};
use crate::visits::Visits;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use foliant::steps::{self, Counts};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Processor time that a process may take from one branch to the next.
const BRANCH_TIME: Duration = Duration::from_secs(4);
/// Spins of one schedule until they are called endless.
const SPINS_MAX: u64 = 20_000;
/// Spins while no lane can do anything else, until they are called a deadlock; in a serial order,
/// spins until another lane goes on.
const IDLE_MAX: u64 = 200;

/// One choice that a schedule made, in the order in which they are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    /// At its n-th step the lane was left for another one; at first no lane is left.
    Switch { from: Option<usize>, step: u64, to: usize },
    /// At its n-th step the lane was refused an allocation.
    Refuse { lane: usize, step: u64 },
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Choice::Switch { from: Some(from), step, to } => write!(f, "{from}@{step}>{to}"),
            Choice::Switch { from: None, to, .. } => write!(f, ">{to}"),
            Choice::Refuse { lane, step } => write!(f, "{lane}@{step}!"),
        }
    }
}

impl Choice {
    /// The lane that goes on.
    fn goes_on(self) -> usize {
        match self {
            Choice::Switch { to, .. } => to,
            Choice::Refuse { lane, .. } => lane,
        }
    }
    /// Reads what `Display` writes.
    pub(crate) fn parse(text: &str) -> Option<Choice> {
        let lane = |text: &str| text.parse().ok().filter(|lane| *lane < LANES_MAX);
        if let Some(to) = text.strip_prefix('>') {
            return Some(Choice::Switch { from: None, step: 0, to: lane(to)? });
        }
        let (from, rest) = text.split_once('@')?;
        let from = lane(from)?;
        if let Some(step) = rest.strip_suffix('!') {
            return Some(Choice::Refuse { lane: from, step: step.parse().ok()? });
        }
        let (step, to) = rest.split_once('>')?;
        Some(Choice::Switch { from: Some(from), step: step.parse().ok()?, to: lane(to)? })
    }
    fn list(choices: &[Choice]) -> String {
        choices.iter().map(Choice::to_string).collect::<Vec<_>>().join(",")
    }
}

/// How schedules are chosen.
#[derive(Clone, Debug)]
pub(crate) enum Mode {
    /// Operations one after the other, in every order; what is observed is legal.
    Serial,
    /// Every schedule of one pass of a round that has at most so many switches beside the forced
    /// ones; a pass has the first switch at every `passes`-th point. Schedules that repeat another
    /// one are left out, or not.
    Bounded { switches: u32, round: u64, pass: u64, passes: u64, repeats: bool },
    /// One schedule, with switches at these of its points.
    Random { seed: u64, at: Vec<u64> },
    /// The schedule that made these choices, told as it goes.
    Replay(VecDeque<Choice>),
}

struct Lane {
    cpu: usize,
    is_done: bool,
    /// The number of changes when it began to spin.
    spins: Option<u64>,
    /// A word for what happened before its next step.
    history: u64,
    /// When it spun last, in spins of all lanes.
    spun: u64,
    /// What had changed when it yielded last.
    yielded: Option<u64>,
    step: u64,
    counts: Counts,
    yielder: *const Yielder<(), ()>,
}

/// See the module's text.
pub(crate) struct Engine {
    mode: Mode,
    board: Board,
    /// The lane at work; none before the first and after the last.
    current: Option<usize>,
    lanes: Vec<Lane>,
    /// The lane of each CPU.
    active: Vec<usize>,
    choices: Vec<Choice>,
    switches_left: u32,
    refusals_left: u32,
    /// Points of this schedule so far.
    points: u64,
    /// Changes of any word so far.
    changes: u64,
    spins: u64,
    idle: u64,
    /// What last happened to a location: the write, and the reads since.
    locations: HashMap<u64, (u64, u64), Mixers>,
    visits: Visits,
    chance: u64,
    limits: Limits,
    panic: Option<String>,
}

/// When an exploration is cut short.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) schedules: u64,
    pub(crate) until: Instant,
}

impl Limits {
    pub(crate) fn reached(self, board: Board) -> bool {
        let reached =
            board.count(Count::Schedules) >= self.schedules || Instant::now() > self.until;
        if reached {
            board.set(Count::Cut, 1);
        }
        reached
    }
}

thread_local! {
    static ENGINE: RefCell<Option<Engine>> = const { RefCell::new(None) };
    /// The CPU of the lane at work: it is asked for at every access.
    static CPU: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Does something with the engine while a lane is at work.
fn with<R>(work: impl FnOnce(&mut Engine) -> R) -> Option<R> {
    ENGINE.with_borrow_mut(|engine| {
        engine.as_mut().filter(|engine| engine.current.is_some()).map(work)
    })
}
/// The same wherever there is an engine.
fn anywhere<R>(work: impl FnOnce(&mut Engine) -> R) -> R {
    ENGINE.with_borrow_mut(|engine| work(engine.as_mut().expect("begun")))
}

/// The CPU at work; `None` outside of lanes.
pub(crate) fn cpu() -> Option<usize> {
    CPU.get()
}

impl Engine {
    fn lane(&self) -> usize {
        self.current.expect("a lane is at work")
    }
    fn is_replay(&self) -> bool {
        matches!(self.mode, Mode::Replay(_))
    }
    fn at(&self) -> (Option<usize>, u64) {
        (self.current, self.current.map_or(0, |lane| self.lanes[lane].step))
    }
    /// Lanes of other CPUs that can do something.
    fn others(&self) -> Vec<usize> {
        let can = |lane: &usize| {
            let lane = &self.lanes[*lane];
            !lane.is_done && lane.spins.is_none_or(|since| since < self.changes)
        };
        let me = self.current.map(|lane| self.lanes[lane].cpu);
        (0..self.active.len())
            .filter(|cpu| Some(*cpu) != me)
            .map(|cpu| self.active[cpu])
            .filter(can)
            .collect()
    }
    /// A word for everything that happened before the next steps of all lanes, and for what may
    /// still be chosen. Until its first switch a schedule belongs to its pass; while it may switch
    /// again it belongs to its round, which knows more conflicts than the round before.
    fn state(&self, next: usize, switches_left: u32) -> u64 {
        let budget = u64::from(switches_left) << 8 | u64::from(self.refusals_left);
        let apart = match self.mode {
            Mode::Bounded { switches, round, pass, .. } if switches_left == switches => {
                round << 32 | pass << 1 | 1
            }
            Mode::Bounded { round, .. } if switches_left > 0 => round << 32,
            _ => u64::MAX,
        };
        let key = mix(mix(next as u64 + 1, budget + 100), apart);
        let active = self.active.iter().fold(key, |key, lane| mix(key, *lane as u64));
        self.lanes.iter().fold(active, |key, lane| mix(key, lane.history ^ u64::from(lane.is_done)))
    }
    /// A word for the state in which `next` goes on here, for one switch of those that are left.
    fn left_for(&self, next: usize) -> u64 {
        mix(self.state(next, self.switches_left - 1), 1)
    }
    fn switch_to(&self, next: usize) -> Choice {
        let (from, step) = self.at();
        Choice::Switch { from, step, to: next }
    }
    /// The lane that the replayed schedule switches to here, if it does.
    fn replayed(&mut self, allowed: &[usize]) -> Option<usize> {
        let at = self.at();
        let Mode::Replay(choices) = &mut self.mode else { return None };
        match choices.front() {
            Some(&Choice::Switch { from, step, to })
                if (from, step) == at && allowed.contains(&to) =>
            {
                choices.pop_front();
                Some(to)
            }
            _ => None,
        }
    }
    /// Whether the lane at work is the last one that has something to do.
    fn is_alone(&self) -> bool {
        (0..self.lanes.len()).all(|lane| Some(lane) == self.current || self.lanes[lane].is_done)
    }
    /// Counts a step of the lane at work, and says which others conflict with what it is about to
    /// do.
    fn step(&mut self, touched: &[Touched]) -> Vec<usize> {
        let me = self.lane();
        self.lanes[me].step += 1;
        let step = self.lanes[me].step;
        let mut conflicting = Vec::new();
        if self.is_alone() {
            return conflicting; // it touched this in the schedules where it came first as well
        }
        let may_switch = self.switches_left > 0 || !matches!(self.mode, Mode::Bounded { .. });
        for &Touched { location, writes } in touched {
            let Some(footprint) = self.board.footprint(location) else { continue };
            if footprint.note(me, writes, step) {
                self.board.add(Count::Grown);
            }
            for other in 0..self.lanes.len() {
                let lane = &self.lanes[other];
                if may_switch
                    && !lane.is_done
                    && !conflicting.contains(&other)
                    && footprint.conflicts(me, writes, other, lane.step)
                {
                    conflicting.push(other);
                }
            }
        }
        if !conflicting.is_empty() {
            let can = self.others();
            conflicting.retain(|other| can.contains(other));
        }
        conflicting
    }
    /// The lanes for which the lane at work can be left here, before what it is about to do.
    fn choices_here(&mut self, touched: &[Touched]) -> Vec<usize> {
        let conflicting = self.step(touched);
        if conflicting.is_empty() {
            return conflicting;
        }
        self.points += 1;
        match &self.mode {
            Mode::Bounded { switches, pass, passes, .. } => {
                self.board.add(Count::Points);
                let is_first = self.switches_left == *switches;
                if !is_first || self.points % passes == *pass {
                    return conflicting;
                }
                for next in conflicting {
                    let key = self.left_for(next);
                    self.visits.look(next, key);
                }
                Vec::new()
            }
            Mode::Random { at, .. } => {
                let hit = at.contains(&self.points);
                let seen = self.board.count(Count::Points).max(self.points);
                self.board.set(Count::Points, seen);
                if !hit {
                    return Vec::new();
                }
                self.chance = mix(self.chance, 7);
                vec![conflicting[(self.chance >> 40) as usize % conflicting.len()]]
            }
            Mode::Serial | Mode::Replay(_) => Vec::new(),
        }
    }
    /// Notes that the lane at work touched these, behind all that happened to them before.
    fn done(&mut self, touched: &[Touched]) {
        let me = self.lane();
        for &Touched { location, writes } in touched {
            self.visits.note(me, Touched { location, writes });
            let (write, reads) = self.locations.entry(location).or_default();
            let history = &mut self.lanes[me].history;
            let mut now = mix(mix(*history, location), *write ^ u64::from(writes));
            if writes {
                now = mix(now, *reads);
                (*write, *reads) = (now, 0);
            } else {
                *reads = reads.wrapping_add(now);
            }
            *history = now;
        }
    }
}

/// Branches, if that leads to a state not seen before; true in the child, which has made `choice`.
fn branch(key: u64, choice: Choice) -> bool {
    let (board, limits) = anywhere(|engine| (engine.board, engine.limits));
    if !board.seen.insert(key) {
        board.add(Count::Pruned);
        anywhere(|engine| engine.visits.left_out(choice.goes_on()));
        return false;
    }
    if limits.reached(board) {
        return false;
    }
    match host::fork() {
        Side::Child => {
            host::limit(BRANCH_TIME);
            anywhere(|engine| engine.choices.push(choice));
            true
        }
        Side::Parent(child) => {
            let ended = host::wait(child);
            host::limit(BRANCH_TIME);
            if let Ended::Signal(signal) = ended {
                anywhere(|engine| {
                    engine.choices.push(choice);
                    fail_with(engine, &format!("the process ended by signal {signal}"));
                    engine.choices.pop();
                    engine.visits.died(key);
                });
                board.add(Count::Schedules);
            }
            false
        }
    }
}
/// Has `next` go on instead of the lane at work, if it is another one.
fn switch(next: usize) {
    let yielder = anywhere(|engine| {
        let me = engine.current.replace(next);
        let next_cpu = engine.lanes[next].cpu;
        CPU.set(Some(next_cpu));
        engine.active[next_cpu] = next;
        if me != Some(next) {
            engine.visits.switch(next);
        }
        let me = me.filter(|me| *me != next)?;
        if engine.is_replay() {
            eprintln!(
                "-- lane {me}, step {}: lane {next} goes on; it stands at",
                engine.lanes[me].step
            );
            eprintln!("{}", backtrace());
        }
        Some(engine.lanes[me].yielder)
    });
    if let Some(yielder) = yielder {
        // SAFETY: the lane's own, which lives as long as its stack; this is on that stack.
        unsafe { &*yielder }.suspend(());
    }
}

/// Goes on with one of several, which uses up no switch; in branches, with each of the others.
fn choose(all: &[usize]) {
    let (last, others) = all.split_last().expect("somebody can go on");
    let decided = anywhere(|engine| match &engine.mode {
        Mode::Replay(_) => Some(engine.replayed(all).unwrap_or(*last)),
        Mode::Random { .. } => {
            engine.chance = mix(engine.chance, 77);
            Some(all[(engine.chance >> 20) as usize % all.len()])
        }
        Mode::Serial | Mode::Bounded { .. } => None,
    });
    if decided.is_none()
        && let Some(next) = others.iter().copied().find(|lane| branch_to(*lane))
    {
        return switch(next);
    }
    let next = decided.unwrap_or(*last);
    if all.len() > 1 {
        anywhere(|engine| engine.choices.push(engine.switch_to(next)));
    }
    switch(next);
}
/// Branches to where `next` goes on, which uses up no switch.
fn branch_to(next: usize) -> bool {
    let (key, choice) =
        anywhere(|engine| (engine.state(next, engine.switches_left), engine.switch_to(next)));
    branch(key, choice)
}
/// The lane of another CPU that goes on here in the schedule that is replayed.
fn replayed_here() -> Option<usize> {
    with(|engine| if engine.is_replay() { engine.replayed(&engine.others()) } else { None })?
}

/// The lane at work is about to touch these: others may go first.
pub(crate) fn point(touched: &[Touched]) {
    if CPU.get().is_none() || std::thread::panicking() {
        return;
    }
    let choices = anywhere(|engine| {
        let choices = engine.choices_here(touched);
        let stays = choices.is_empty() && !engine.is_replay();
        if stays {
            engine.done(touched);
        }
        (!stays).then_some(choices)
    });
    let Some(choices) = choices else { return };
    let is_random = anywhere(|engine| matches!(engine.mode, Mode::Random { .. }));
    let next = replayed_here().or_else(|| {
        choices.into_iter().find(|next| {
            if is_random {
                anywhere(|engine| engine.choices.push(engine.switch_to(*next)));
            }
            is_random || visit(*next)
        })
    });
    if let Some(next) = next {
        switch(next);
    }
    with(|engine| engine.done(touched));
}

/// Branches to where the lane at work is left for `next`, unless that would repeat a schedule.
fn visit(next: usize) -> bool {
    let Some((me, key, choice)) = anywhere(|engine| {
        let key = engine.left_for(next);
        let repeats = matches!(engine.mode, Mode::Bounded { repeats: true, .. });
        let is_known = !repeats && engine.visits.is_known(next, key);
        (!is_known).then(|| (engine.lane(), key, engine.switch_to(next)))
    }) else {
        anywhere(|engine| engine.board.add(Count::Pruned));
        return false;
    };
    let is_child = branch(key, choice);
    anywhere(|engine| {
        if is_child {
            engine.switches_left -= 1;
            engine.visits.begin(me, key);
        } else {
            engine.visits.look(next, key);
        }
    });
    is_child
}

/// The lane at work touches what is no word. No lane is left for that, but visits list it, since it
/// may matter what comes before it and what comes behind.
pub(crate) fn touches(touched: impl IntoIterator<Item = Touched>) {
    with(|engine| {
        let me = engine.lane();
        touched.into_iter().for_each(|touched| engine.visits.note(me, touched));
    });
}
/// The same of more than can be listed.
pub(crate) fn touches_everything() {
    with(|engine| engine.visits.note_everything(engine.lane()));
}

/// A word has changed: a lane that spins for it looks again.
pub(crate) fn changed() {
    with(|engine| engine.changes += 1);
}

/// Between two operations of a lane: where serial orders switch.
pub(crate) fn border() {
    let others = with(|engine| {
        engine.step(&[]);
        if matches!(engine.mode, Mode::Serial) { engine.others() } else { Vec::new() }
    });
    let branched = || others.unwrap_or_default().into_iter().find(|next| branch_to(*next));
    if let Some(next) = replayed_here().or_else(branched) {
        switch(next);
    }
}

/// Counts one more spin; whether there were too many. None is counted while a scene is built.
fn spins_for_ever() -> bool {
    ENGINE.with_borrow_mut(|engine| {
        engine.as_mut().is_some_and(|engine| {
            engine.spins += 1;
            engine.spins > SPINS_MAX
        })
    })
}

/// The lane at work spins: another one goes on, and this one only when something has changed.
pub(crate) fn relax() {
    if std::thread::panicking() {
        return;
    }
    if spins_for_ever() {
        if with(|_| ()).is_none() {
            panic!("it spins for ever when all is done");
        }
        fail_now("livelock: it spins for ever");
    }
    let Some(stays) = with(Engine::tries_again) else { return };
    if stays {
        return;
    }
    let others = anywhere(|engine| {
        let me = engine.lane();
        engine.lanes[me].spun = engine.spins;
        engine.lanes[me].spins = Some(engine.changes);
        let mut others = engine.others();
        // Without a choice the lane goes on whose last spin is longest ago: none is passed over for
        // ever.
        others.sort_by_key(|lane| std::cmp::Reverse(engine.lanes[*lane].spun));
        engine.idle = if others.is_empty() { engine.idle + 1 } else { 0 };
        others
    });
    if !others.is_empty() {
        choose(&others);
    } else if anywhere(|engine| engine.idle) > IDLE_MAX {
        fail_now("deadlock: everybody spins, or can not go on");
    } else if let Some(next) = anywhere(|engine| engine.least_spun()) {
        switch(next);
    }
    anywhere(|engine| {
        let me = engine.lane();
        engine.lanes[me].spins = None;
    });
}

impl Engine {
    /// Counts a spin's step; whether the lane goes on by itself. In a serial order no other lane is
    /// in the middle of anything: to try again is enough, and is noted as a choice.
    fn tries_again(&mut self) -> bool {
        self.step(&[]);
        let again = self.switch_to(self.lane());
        let stays = match &mut self.mode {
            Mode::Serial => self.spins <= IDLE_MAX,
            Mode::Replay(choices) => {
                choices.front() == Some(&again) && choices.pop_front().is_some()
            }
            Mode::Bounded { .. } | Mode::Random { .. } => false,
        };
        if stays {
            self.choices.push(again);
        }
        stays
    }
    /// The lane of another CPU whose last spin is longest ago.
    fn least_spun(&self) -> Option<usize> {
        let me = self.lanes[self.lane()].cpu;
        let others = self.active.iter().copied();
        others
            .filter(|lane| !self.lanes[*lane].is_done && self.lanes[*lane].cpu != me)
            .min_by_key(|lane| self.lanes[*lane].spun)
    }
}

/// A preemption point: another task of the CPU may go on.
pub(crate) fn yielded() {
    let tasks = with(|engine| {
        engine.step(&[]);
        let me = engine.lane();
        let cpu = engine.lanes[me].cpu;
        let mine = |lane: &usize| engine.lanes[*lane].cpu == cpu && !engine.lanes[*lane].is_done;
        let mut tasks: Vec<usize> = (0..engine.lanes.len()).filter(mine).collect();
        // A task that waits, and has found nothing changed, lets another one run: it may wait for
        // that.
        let waits = engine.lanes[me].yielded.replace(engine.changes) == Some(engine.changes);
        if waits && tasks.len() > 1 {
            tasks.retain(|lane| *lane != me);
        }
        (me, tasks)
    });
    let is_choice = |(me, tasks): &(usize, Vec<usize>)| tasks.iter().any(|task| task != me);
    if let Some((_, tasks)) = tasks.filter(is_choice) {
        if spins_for_ever() {
            fail_now("livelock: tasks only yield for each other");
        }
        choose(&tasks);
    }
}

/// Whether the allocation that is about to be made is refused.
pub(crate) fn refuses() -> bool {
    let Some((lane, step, left)) = with(|engine| {
        engine.step(&[]);
        let (_, step) = engine.at();
        (engine.lane(), step, engine.refusals_left)
    }) else {
        return false;
    };
    let choice = Choice::Refuse { lane, step };
    let replayed = with(|engine| match &mut engine.mode {
        Mode::Replay(choices) if choices.front() == Some(&choice) => {
            choices.pop_front();
            true
        }
        _ => false,
    });
    let branches = anywhere(|engine| matches!(engine.mode, Mode::Serial | Mode::Bounded { .. }));
    let key = || anywhere(|engine| mix(engine.state(lane, engine.switches_left), step + 2));
    if branches && left > 0 && branch(key(), choice) {
        anywhere(|engine| {
            engine.refusals_left -= 1;
            engine.lanes[lane].history = mix(engine.lanes[lane].history, 13);
        });
        return true;
    }
    replayed == Some(true)
}

/// Something was observed: legal where a serial order shows it.
pub(crate) fn observe(what: &str) {
    let illegal = anywhere(|engine| match engine.mode {
        Mode::Serial => {
            engine.board.legal.insert(word_of(what));
            false
        }
        // A replay tells what is seen; what is legal is not known.
        Mode::Replay(_) => {
            eprintln!("   seen: {what}");
            false
        }
        _ => !engine.board.legal.has(word_of(what)),
    });
    if illegal {
        fail(&format!("no serial order shows this: {what}"));
    }
}

/// Notes a failure; the schedule goes on.
pub(crate) fn fail(text: &str) {
    anywhere(|engine| fail_with(engine, text));
}
fn fail_with(engine: &mut Engine, text: &str) {
    if engine.is_replay() {
        eprintln!("FOUND {text}\n{}", backtrace());
    }
    engine.board.fail(text, &Choice::list(&engine.choices));
}
/// Notes a failure behind which nothing can be relied on: the schedule ends.
pub(crate) fn fail_now(text: &str) -> ! {
    fail(text);
    anywhere(|engine| engine.visits.spoil());
    complete();
    host::leave()
}
/// Counts a schedule that is complete.
pub(crate) fn complete() {
    anywhere(|engine| {
        engine.board.add(Count::Schedules);
        let order = engine.lanes.iter().fold(5, |order, lane| mix(order, lane.history));
        if !matches!(engine.mode, Mode::Serial) && engine.board.orders.insert(order) {
            engine.board.add(Count::Orders);
        }
    });
}

/// The places in the manager's code that led to this call.
fn backtrace() -> String {
    let all = std::backtrace::Backtrace::force_capture().to_string();
    let places = all.lines().map(str::trim).filter_map(|line| line.strip_prefix("at "));
    let rooms = ["mm", "folio", "table", "sync"].map(|name| format!("crates/{name}/src/"));
    let is_ours = |place: &&str| rooms.iter().any(|room| place.contains(room));
    let ours = places.filter(is_ours).filter_map(|place| Some(place.split_once("crates/")?.1));
    let ours = ours.filter(|place| !place.starts_with("sync/src/counting"));
    ours.take(10).map(|place| format!("      {place}")).collect::<Vec<_>>().join("\n")
}

/// What a panic said.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let at = anywhere(|engine| engine.panic.take()).unwrap_or_default();
    let text = match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
        (Some(text), _) => text.as_str(),
        (_, Some(text)) => text,
        _ => "a panic without words",
    };
    format!("{at}{text}")
}

/// From now on panics are findings: they print nothing unless a schedule is replayed.
fn quiet() {
    std::panic::set_hook(Box::new(|info| {
        let at = info.location().map(|at| format!("{}:{}: ", at.file(), at.line()));
        // The panic may come from inside of the engine.
        ENGINE.with(|engine| {
            if let Ok(mut engine) = engine.try_borrow_mut()
                && let Some(engine) = engine.as_mut()
            {
                engine.panic = at;
                if engine.is_replay() {
                    eprintln!("PANIC {info}\n{}", backtrace());
                }
            }
        });
    }));
}

/// Prepares an engine for one exploration of lanes on these CPUs.
pub(crate) fn begin(board: Board, mode: Mode, cpus: &[usize], refusals: u32, limits: Limits) {
    let lane = |(n, cpu): (usize, &usize)| Lane {
        cpu: *cpu,
        is_done: false,
        spins: None,
        history: n as u64 + 1,
        spun: 0,
        yielded: None,
        step: 0,
        counts: Counts::default(),
        yielder: core::ptr::null(),
    };
    let count = cpus.iter().max().map_or(0, |last| last + 1);
    let first_of = |cpu: usize| cpus.iter().position(|at| *at == cpu).unwrap_or(0);
    let switches = match mode {
        Mode::Bounded { switches, .. } => switches,
        _ => 0,
    };
    let chance = match mode {
        Mode::Random { seed, .. } => mix(seed, 99),
        _ => 0,
    };
    let engine = Engine {
        mode,
        board,
        current: None,
        lanes: cpus.iter().enumerate().map(lane).collect(),
        active: (0..count).map(first_of).collect(),
        choices: Vec::new(),
        switches_left: switches,
        refusals_left: refusals,
        points: 0,
        changes: 1,
        spins: 0,
        idle: 0,
        locations: HashMap::default(),
        visits: Visits::new(board.book),
        chance,
        limits,
        panic: None,
    };
    ENGINE.set(Some(engine));
    CPU.set(None);
    quiet();
    host::limit(BRANCH_TIME);
}

/// What a lane does.
pub(crate) type Body = Box<dyn FnOnce()>;

/// Runs the lanes; comes back in each process whose schedule is complete.
pub(crate) fn run(bodies: Vec<Body>) {
    let mut lanes: Vec<Coroutine<(), (), ()>> =
        bodies.into_iter().enumerate().map(|(n, body)| lane(n, body)).collect();
    let first: Vec<usize> = anywhere(|engine| engine.active.clone());
    choose(&first);
    while let Some(current) = anywhere(|engine| engine.current) {
        trade_counts(current);
        let left = lanes[current].resume(());
        trade_counts(current);
        if let CoroutineResult::Return(()) = left {
            let next = anywhere(|engine| engine.end_of(current));
            if anywhere(|engine| engine.was_made()) {
                host::leave();
            }
            if !next.is_empty() {
                choose(&next);
            }
        }
    }
}

fn trade_counts(lane: usize) {
    anywhere(|engine| steps::trade(&mut engine.lanes[lane].counts));
}

impl Engine {
    /// The lane has done what it had to; gives the lanes that can go on.
    fn end_of(&mut self, lane: usize) -> Vec<usize> {
        self.lanes[lane].is_done = true;
        self.current = None;
        CPU.set(None);
        self.changes += 1;
        let cpu = self.lanes[lane].cpu;
        let next = (0..self.lanes.len())
            .find(|other| self.lanes[*other].cpu == cpu && !self.lanes[*other].is_done);
        if let Some(next) = next {
            self.active[cpu] = next;
        }
        let left = |lane: &usize| !self.lanes[*lane].is_done;
        let active: Vec<usize> = self.active.iter().copied().filter(left).collect();
        let can = |lane: &usize| self.lanes[*lane].spins.is_none_or(|since| since < self.changes);
        let able: Vec<usize> = active.iter().copied().filter(can).collect();
        if able.is_empty() { active } else { able }
    }
    /// Whether only one lane is left although switches are left, too: the schedule is one of fewer
    /// switches, which was made before.
    fn was_made(&self) -> bool {
        let left = self.lanes.iter().filter(|lane| !lane.is_done).count();
        let is_bounded = matches!(self.mode, Mode::Bounded { .. });
        is_bounded && self.switches_left > 0 && left == 1 && self.lanes.len() > 1
    }
}

fn lane(n: usize, body: Body) -> Coroutine<(), (), ()> {
    Coroutine::new(move |yielder: &Yielder<(), ()>, ()| {
        anywhere(|engine| engine.lanes[n].yielder = core::ptr::from_ref(yielder));
        if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
            fail_now(&format!("panic: {}", message(&*panic)));
        }
    })
}
