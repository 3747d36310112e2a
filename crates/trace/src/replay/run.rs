//! One replay: a fresh machine, a fresh manager, all steps of the plan.
//!
//! One host thread drives all simulated CPUs, in the order of the trace, so a row is deterministic.
//! A CPU goes on running the last space that it ran until another one's thread or an exit takes it
//! away, as an idle CPU does, so flushes have others to ask.

use super::Choice;
use super::course::Course;
use super::fragment::{Other, Percent, fragment};
use super::ledger::{ENTRY, Ledger, Origins, Reading};
use super::plan::{Op, Plan, Sizes, Step};
use super::row::Row;
use super::rule::{Rule, Trial};
use super::settings::{ReplayError, Settings, WARM_MOST};
use super::sights::{Sights, sights};
use super::stop::{Mm, Stop};
use crate::budget::{Budget, Purse, Spent, Thing};
use crate::event::{Access, ObjectId, SpaceId};
use crate::naive::Memory;
use crate::wish::Wish;
use foliant::compact::Effort;
use foliant::fault::{Defrag, PolicyError, ProcessSwitch};
use foliant::manager::{CollapseLimits, Setup};
use foliant::object::{Around, ObjectRequest};
use foliant::space::{Advice, Flags, MapRequest, Move, ObjectId as Object, Place, SpaceId as Id};
use foliant::table::{Attrs, Entry};
use foliant::zero::{Clearing, Far};
use foliant::{Outcome, Policy, SizeEvent};
use foliant_machine::Cpus;
use foliant_sim::{Backing, Config, CostModel, Sim, Work};
use foliant_units::{Bytes, Cpu, FRAME_BYTES, FrameRange, Level, Nanos, Order, Pages, Va, VaRange};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// No access of a sound replay takes more faults than this.
const TRIES: u32 = 8;
/// Steps between two calls of a progress function.
const PROGRESS_STEPS: usize = 4096;
/// Steps between two looks at the machine's counters, for the budget.
const WORK_STEPS: usize = 256;
/// Steps after which the task that compacts memory in the background has its turn, if a fault
/// wished for it.
const BACKGROUND_STEPS: usize = 256;
/// What a step of a replay comes to in steps of work, besides what the machine counts.
const WORK: u64 = 10;
/// Frames that are described or fragmented beforehand for one step of work.
const FRAMES_A_STEP: u64 = 4;

/// Replays under one policy. `progress` gets steps done since it was last called.
pub fn replay(
    plan: &Plan,
    choice: Choice,
    settings: &Settings,
    progress: impl Fn(u64),
) -> Result<Row, ReplayError> {
    let (row, _) = kept(plan, &choice.into(), settings, Book::None, progress)?;
    Ok(row)
}

/// Replays under one policy up to a step and this step too, and looks where memory is.
pub fn sights_at(
    plan: &Plan,
    step: u64,
    choice: Choice,
    settings: &Settings,
) -> Result<Sights, ReplayError> {
    let steps = usize::try_from(step).map_or(usize::MAX, |step| step.saturating_add(1));
    let look = |run: Run<'_, '_>| {
        let spaces = run.spaces.iter().map(|(space, live)| (*space, live.id));
        sights(run.mm, spaces, Purse::new(plan.budget())).map_err(ReplayError::Spent)
    };
    driven((plan, steps), &choice.into(), settings, Book::None, |_| {}, look)
}

/// Whether a replay keeps a book of who its figures come from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Book {
    None,
    Kept,
}

/// A trial's row, without its leaves, which are not counted; and where its figures come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explained {
    /// The figures.
    pub row: Row,
    /// Who they come from.
    pub origins: Origins,
}

/// Replays several trials as [`replay_all`] does, each with a book of where its figures come from.
pub fn explain_all(
    plan: &Plan,
    trials: &[Trial],
    settings: &Settings,
    progress: impl Fn(u64) + Sync,
) -> Result<Vec<Explained>, ReplayError> {
    side_by_side(fitting(plan, settings), trials.len(), |at| {
        explained(plan, &trials[at], settings, &progress)
    })
}

/// Replays several trials of each of several recordings, all of them side by side. An error comes
/// with the place of its recording.
pub fn explain_each(
    recordings: &[(&Plan, Settings)],
    trials: &[Trial],
    progress: impl Fn(u64) + Sync,
) -> Result<Vec<Vec<Explained>>, (usize, ReplayError)> {
    let fitting = recordings.iter().map(|(plan, settings)| fitting(plan, settings)).min();
    let all = side_by_side(fitting.unwrap_or(1), recordings.len() * trials.len(), |at| {
        let (nth, trial) = (at / trials.len(), &trials[at % trials.len()]);
        let (plan, settings) = &recordings[nth];
        explained(plan, trial, settings, &progress).map_err(|why| (nth, why))
    })?;
    let mut all = all.into_iter();
    Ok(recordings.iter().map(|_| all.by_ref().take(trials.len()).collect()).collect())
}

fn explained(
    plan: &Plan,
    trial: &Trial,
    settings: &Settings,
    progress: impl Fn(u64),
) -> Result<Explained, ReplayError> {
    let (row, origins) = kept(plan, trial, settings, Book::Kept, progress)?;
    Ok(Explained { row, origins })
}

fn kept(
    plan: &Plan,
    trial: &Trial,
    settings: &Settings,
    book: Book,
    progress: impl Fn(u64),
) -> Result<(Row, Origins), ReplayError> {
    driven((plan, plan.steps.len()), trial, settings, book, progress, |mut run| {
        let ledger = run.ledger.take();
        let origins = ledger.map_or_else(Origins::default, |ledger| ledger.finish(plan));
        Ok((run.finish(), origins))
    })
}

/// Carries out the first so many steps and makes something of it.
fn driven<T>(
    (plan, steps): (&Plan, usize),
    trial: &Trial,
    settings: &Settings,
    book: Book,
    progress: impl Fn(u64),
    end: impl FnOnce(Run<'_, '_>) -> Result<T, ReplayError>,
) -> Result<T, ReplayError> {
    let choice = trial.choice;
    let unknown = |why: PolicyError| ReplayError::Refused { choice, step: 0, why: why.to_string() };
    let rule = Rule::of(trial, plan).map_err(unknown)?;
    let memory = settings.memory_for(plan);
    let mut purse = Purse::new(plan.budget());
    purse.take(Thing::Machines, settings.host_bytes(plan).get(), 1)?;
    if book == Book::Kept {
        purse.take(Thing::Machines, plan.steps(), ENTRY)?;
    }
    let mut config = Config::free(settings.cpus, memory);
    config.model = settings.model;
    if choice == Choice::Auto {
        config.backing = Backing::Compact;
    }
    let sim = Sim::new(config).map_err(ReplayError::Machine)?;
    let ranges: Vec<FrameRange> = sim.config().memory.clone();
    let setup = Setup::of(&ranges, rule.policy);
    let mm = Mm::new(&sim, &setup).map_err(|why| ReplayError::TooSmall { memory, why })?;
    // What Linux let the recorded program map is mapped, also at address 0.
    mm.set_lowest_address(Va::new(0));
    // Of the model's two prices for clearing, huge pages pay the one for large extents.
    mm.set_clearing(Clearing { far: Far::NonTemporal, ..mm.clearing() });
    let mut run = Run::new(&sim, &mm, (choice, rule), memory, (plan, settings));
    run.prepare()?;
    run.ledger = (book == Book::Kept).then(|| Ledger::new(run.reading()));
    for (index, step) in plan.steps.iter().enumerate().take(steps) {
        let done = run.step(index, step).and_then(|()| run.unname(plan, index));
        done.map_err(|stop| run.explain(index, stop))?;
        run.book(plan, index, step);
        if index % WORK_STEPS == WORK_STEPS - 1 {
            run.count_work()?;
        }
        if index % BACKGROUND_STEPS == BACKGROUND_STEPS - 1 {
            run.background();
        }
        if index % PROGRESS_STEPS == PROGRESS_STEPS - 1 {
            progress(PROGRESS_STEPS as u64);
        }
    }
    progress((plan.steps.len() % PROGRESS_STEPS) as u64);
    run.count_work()?;
    end(run)
}

/// Replays under several policies, side by side on the host's CPUs as far as the budget has memory
/// for their machines, and returns the rows in order.
pub fn replay_all(
    plan: &Plan,
    choices: &[Choice],
    settings: &Settings,
    progress: impl Fn(u64) + Sync,
) -> Result<Vec<Row>, ReplayError> {
    side_by_side(fitting(plan, settings), choices.len(), |at| {
        replay(plan, choices[at], settings, &progress)
    })
}

/// How many machines that replay a plan fit into what is left of its budget.
fn fitting(plan: &Plan, settings: &Settings) -> usize {
    let (each, left) = (settings.host_bytes(plan), plan.budget().left());
    usize::try_from(left.get() / each.get().max(1)).unwrap_or(usize::MAX)
}

/// Does so many replays, as many at once as there are CPUs and fit.
fn side_by_side<T: Send, E: Send>(
    fitting: usize,
    count: usize,
    one: impl Fn(usize) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let next = AtomicUsize::new(0);
    let done: Mutex<BTreeMap<usize, Result<T, E>>> = Mutex::new(BTreeMap::new());
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return;
            }
            let result = one(at);
            done.lock().unwrap_or_else(|e| e.into_inner()).insert(at, result);
        }
    };
    let workers =
        std::thread::available_parallelism().map_or(1, |n| n.get()).min(count).min(fitting.max(1));
    std::thread::scope(|scope| {
        for _ in 1..workers {
            scope.spawn(work);
        }
        work();
    });
    done.into_inner().unwrap_or_else(|e| e.into_inner()).into_values().collect()
}

/// A space of the manager and what it mapped when we last looked.
struct Live {
    id: Id,
    pages: u64,
}

/// Readings from before the first step.
#[derive(Default)]
struct Baseline {
    kernel: u64,
    shootdowns: u64,
    copied: u64,
    fallbacks: u64,
    compacted: Compaction,
    folios: BTreeMap<Order, u64>,
}

/// What compaction has done.
#[derive(Clone, Copy, Default)]
struct Compaction {
    /// Frames looked at, and folios moved.
    scanned: u64,
    folios: u64,
    pages: u64,
    /// What the machine saw of it.
    nanos: u64,
}

struct Run<'r, 'm> {
    sim: &'m Sim,
    mm: &'r Mm<'m>,
    choice: Choice,
    rule: Rule,
    ledger: Option<Ledger>,
    memory: Bytes,
    fragmented: Percent,
    defrag: Defrag,
    model: CostModel,
    budget: Budget,
    /// Work that was done since it was last counted, and what the machine had counted by then.
    work: u64,
    counted: u64,
    /// Pages of the program that fragments memory.
    others: u64,
    /// Blocks that these are in.
    fragmented_blocks: u64,
    /// What was charged so far of the compaction that the machine does not see.
    charged: Compaction,
    spaces: BTreeMap<SpaceId, Live>,
    /// What each CPU runs.
    running: Vec<Option<SpaceId>>,
    /// Which steps took a fault, for those that raced with them.
    faulted: Marks,
    before: Baseline,
    /// Kernel time that stands for nothing in the recorded run.
    excluded: u64,
    anonymous_faults: u64,
    shared_faults: u64,
    /// Objects that have a name, and how many have lost theirs.
    objects: BTreeMap<ObjectId, Object>,
    unnamed: usize,
    file_copies: u64,
    file_pages: u64,
    refused: u64,
    touched: u64,
    /// Pages that were touched as a part of shared zeros of 2 MiB, and are in no folio since.
    read_zeros: BTreeSet<(SpaceId, Va)>,
    /// Anonymous memory may have grown in this step.
    grew: bool,
    /// This step found what it accessed, so no memory came, went or moved.
    found: bool,
    peak: u64,
    /// The step that is being carried out, and the one that came to the peak.
    at: usize,
    peak_at: usize,
    course: Course,
    leaves: u64,
    leaves_at: u64,
    mapped: u64,
    peak_mapped: u64,
}

impl<'r, 'm> Run<'r, 'm> {
    fn new(
        sim: &'m Sim,
        mm: &'r Mm<'m>,
        (choice, rule): (Choice, Rule),
        memory: Bytes,
        (plan, settings): (&Plan, &Settings),
    ) -> Self {
        Run {
            sim,
            mm,
            choice,
            rule,
            ledger: None,
            memory,
            fragmented: settings.fragmented,
            defrag: settings.defrag,
            model: settings.model,
            budget: plan.budget().clone(),
            work: 0,
            counted: 0,
            others: 0,
            fragmented_blocks: 0,
            charged: Compaction::default(),
            spaces: BTreeMap::new(),
            running: vec![None; Cpus::count(sim)],
            faulted: Marks::new(plan.steps.len()),
            before: Baseline::default(),
            excluded: 0,
            anonymous_faults: 0,
            shared_faults: 0,
            objects: BTreeMap::new(),
            unnamed: 0,
            file_copies: 0,
            file_pages: 0,
            refused: 0,
            touched: 0,
            read_zeros: BTreeSet::new(),
            grew: false,
            found: false,
            peak: 0,
            at: 0,
            peak_at: 0,
            course: Course::new(plan.times()),
            leaves: 0,
            leaves_at: 0,
            mapped: 0,
            peak_mapped: 0,
        }
    }

    fn explain(&self, index: usize, stop: Stop) -> ReplayError {
        let (choice, memory, fragmented) = (self.choice, self.memory, self.fragmented);
        match stop {
            Stop::OutOfMemory => ReplayError::OutOfMemory { choice, memory, fragmented },
            Stop::Refused(why) => ReplayError::Refused { choice, step: index as u64, why },
            Stop::Spent(spent) => ReplayError::Spent(spent),
        }
    }

    /// Fragments memory, has the manager describe it, as a kernel has at boot, and reads all
    /// counters.
    fn prepare(&mut self) -> Result<(), ReplayError> {
        for cpu in self.mm.cpus() {
            self.sim.on(cpu, || self.mm.online());
        }
        if self.memory.get() <= WARM_MOST {
            self.warm().map_err(|stop| self.explain(0, stop))?;
        }
        let other = fragment(self.mm, self.fragmented).map_err(|stop| self.explain(0, stop))?;
        self.set_policy(self.rule.policy);
        self.mm.set_defrag(self.defrag);
        self.budget.work(self.memory.get() / FRAME_BYTES / FRAMES_A_STEP)?;
        self.counted = self.machine_work();
        if let Some(Other { id, blocks }) = other {
            self.others = self.mm.pages(id).map_or(0, |pages| pages.get());
            self.fragmented_blocks = blocks;
        }
        self.before = self.read();
        self.charged = self.before.compacted;
        Ok(())
    }

    /// What the machine has counted that takes the host time.
    fn machine_work(&self) -> u64 {
        let counts = self.sim.counts();
        counts.entry_writes + counts.walks + counts.clears + 2 * counts.copies + counts.interrupts
    }

    /// Draws what the steps since the last call came to.
    fn count_work(&mut self) -> Result<(), Spent> {
        let counted = self.machine_work();
        let machine = counted - std::mem::replace(&mut self.counted, counted);
        self.budget.work(machine + std::mem::take(&mut self.work))
    }

    fn warm(&self) -> Result<(), Stop> {
        let mm = self.mm;
        let most = mm.memory().free.get() * 15 / 16;
        let space = mm.create(None)?;
        let request = MapRequest {
            place: Place::NoReplace(Va::new(0x10_0000_0000)),
            bytes: Bytes::new(most * FRAME_BYTES),
            flags: Flags::READ_WRITE,
            tag: 0,
        };
        mm.set_policy(Choice::UpTo(Order::SIZE_2M).policy());
        let range = mm.map(space, &request)?;
        let filled = mm.advise(space, range, Advice::PopulateWrite);
        mm.end(space)?;
        mm.set_policy(self.rule.policy);
        Ok(filled?)
    }

    fn read(&self) -> Baseline {
        let sizes = || Order::all().take_while(|o| *o <= Order::SIZE_2M);
        let stats = |order, event| self.mm.size_total(order, event);
        Baseline {
            kernel: self.sim.kernel_time_total().0,
            shootdowns: self.mm.total(foliant::Event::Shootdown),
            copied: self.mm.total(foliant::Event::Copied),
            fallbacks: sizes()
                .map(|o| {
                    stats(o, SizeEvent::AnonFaultFallback) + stats(o, SizeEvent::ShmemFallback)
                })
                .sum(),
            compacted: self.compacted(),
            folios: sizes().map(|o| (o, self.folios(o))).collect(),
        }
    }

    /// Folios of a size that faults have brought, for spaces and for objects.
    fn folios(&self, order: Order) -> u64 {
        self.mm.size_total(order, SizeEvent::AnonFaultAlloc)
            + self.mm.size_total(order, SizeEvent::ShmemAlloc)
    }

    fn compacted(&self) -> Compaction {
        let total = |event| self.mm.total(event);
        Compaction {
            scanned: total(foliant::Event::CompactScanned),
            folios: total(foliant::Event::CompactMoved),
            pages: total(foliant::Event::PgMigrateSuccess),
            nanos: total(foliant::Event::CompactNanos),
        }
    }

    /// Charges what compaction did since the last call and the machine did not see. No block is
    /// looked for but by compaction, so where nothing was looked at nothing was done.
    fn charge_compaction(&mut self) {
        if self.mm.total(foliant::Event::CompactScanned) == self.charged.scanned {
            return;
        }
        let (before, now) = (self.charged, self.compacted());
        self.sim.charge_work(Work::CompactFrame, now.scanned - before.scanned);
        self.sim.charge_work(Work::CompactMove, now.folios - before.folios);
        self.charged = now;
    }

    /// The turn of the task that compacts memory in the background.
    fn background(&mut self) {
        self.sim.on(Cpu(0), || {
            if self.mm.compact_background(Effort::FAULT).is_some() {
                self.charge_compaction();
            }
        });
    }

    fn step(&mut self, index: usize, step: &Step) -> Result<(), Stop> {
        let cpu = Cpu((step.thread.0 as usize % self.running.len()) as u16);
        let (sim, space, faults) = (self.sim, step.space, self.faults());
        self.work += WORK;
        self.at = index;
        self.look(step.time_ns);
        sim.on(cpu, || match &step.op {
            Op::Create { thp_off } => self.create(space, *thp_off),
            Op::Fork { child, areas, unmap, empty } => {
                self.work += WORK * (areas + (unmap.len() + empty.len()) as u64);
                self.enter(cpu, space)?;
                self.fork(space, *child, unmap, empty)
            }
            Op::End => self.end(space),
            Op::Leave => self.leave(cpu),
            op => {
                self.enter(cpu, space)?;
                self.apply(index, (space, step.mapping), op)
            }
        })?;
        let accesses = matches!(step.op, Op::Touch { .. } | Op::Again { .. });
        self.found = accesses && self.faults() == faults;
        if !self.found {
            sim.on(cpu, || self.charge_compaction());
            self.watch(space);
        }
        Ok(())
    }

    fn faults(&self) -> u64 {
        self.anonymous_faults + self.shared_faults
    }

    fn id(&self, space: SpaceId) -> Result<Id, Stop> {
        let live = self.spaces.get(&space).map(|live| live.id);
        live.ok_or_else(|| Stop::Refused(format!("space {space} is not there")))
    }

    fn enter(&mut self, cpu: Cpu, space: SpaceId) -> Result<(), Stop> {
        if self.running[cpu.index()] != Some(space) {
            self.mm.switch(Some(self.id(space)?))?;
            self.running[cpu.index()] = Some(space);
        }
        Ok(())
    }

    fn leave(&mut self, cpu: Cpu) -> Result<(), Stop> {
        if self.running[cpu.index()].take().is_some() {
            self.mm.switch(None)?;
        }
        Ok(())
    }

    fn create(&mut self, space: SpaceId, thp_off: bool) -> Result<(), Stop> {
        let id = self.mm.create(None)?;
        self.spaces.insert(space, Live { id, pages: 0 });
        if thp_off {
            self.mm.set_process_switch(id, ProcessSwitch::Off)?;
        }
        Ok(())
    }

    fn fork(
        &mut self,
        parent: SpaceId,
        child: SpaceId,
        unmap: &[VaRange],
        empty: &[VaRange],
    ) -> Result<(), Stop> {
        let id = self.mm.fork(self.id(parent)?)?;
        self.spaces.insert(child, Live { id, pages: 0 });
        // The recorded kernel never copied these.
        let start = self.sim.kernel_time_total().0;
        for range in unmap {
            self.mm.unmap(id, *range)?;
        }
        for range in empty {
            self.mm.advise(id, *range, Advice::DontNeed)?;
        }
        self.excluded += self.sim.kernel_time_total().0 - start;
        self.watch(child);
        Ok(())
    }

    fn end(&mut self, space: SpaceId) -> Result<(), Stop> {
        self.count_leaves();
        for at in 0..self.running.len() {
            if self.running[at] == Some(space) {
                self.running[at] = None;
                self.sim.on(Cpu(at as u16), || self.mm.switch(None))?;
            }
        }
        if let Some(live) = self.spaces.remove(&space) {
            self.mapped -= live.pages;
            self.mm.end(live.id)?;
        }
        Ok(())
    }

    fn apply(
        &mut self,
        index: usize,
        (space, mapping): (SpaceId, u16),
        op: &Op,
    ) -> Result<(), Stop> {
        let (mm, id) = (self.mm, self.id(space)?);
        match op {
            Op::Syscall => self.sim.charge_work(Work::Syscall, 1),
            Op::Map { range, flags, tag, of } => {
                let place = Place::Fixed(range.start());
                let bytes = range.bytes();
                let request = MapRequest { place, bytes, flags: *flags, tag: *tag };
                match of {
                    Some((object, first)) => {
                        mm.map_object(id, &request, (self.object(*object)?, *first))?;
                    }
                    None => {
                        mm.map(id, &request)?;
                        self.wish(id, *range, mapping)?;
                    }
                }
            }
            Op::Room { object, pages, around } => self.room(*object, *pages, *around)?,
            Op::Fill { object, pages } => self.fill(*object, *pages)?,
            Op::Punch { object, pages: (from, to) } => {
                self.count_leaves();
                mm.punch_object(self.object(*object)?, *from, *to)?;
            }
            Op::Named { range } => self.wish(id, *range, mapping)?,
            Op::Unmap { range } => {
                self.count_leaves();
                mm.unmap(id, *range)?;
            }
            Op::Protect { range, rights } => mm.protect(id, *range, *rights)?,
            Op::Move { old, new } => {
                self.count_leaves();
                mm.remap(id, *old, new.bytes(), Move::To(new.start()))?;
            }
            Op::Advise { range, advice } => {
                self.count_leaves();
                mm.advise(id, *range, *advice)?;
            }
            Op::Collapse { range } => {
                let bytes = Order::SIZE_2M.bytes();
                let whole = (range.start().get().next_multiple_of(bytes.get())..range.end().get())
                    .step_by(bytes.get() as usize)
                    .filter(|at| range.end().get() - at >= bytes.get());
                for at in whole {
                    // What can not be collapsed stays, and the call goes on.
                    let _ = mm.collapse(id, Va::new(at), Order::SIZE_2M, CollapseLimits::NONE);
                }
                self.grew = true;
            }
            Op::Populate { range, access, touched, sizes } => {
                let advice = match access {
                    Access::Write => Advice::PopulateWrite,
                    _ => Advice::PopulateRead,
                };
                self.with(*sizes, |_| mm.advise(id, *range, advice))?;
                self.grew = true;
                self.touched += touched;
            }
            Op::ThpOff { off } => {
                let switch = if *off { ProcessSwitch::Off } else { ProcessSwitch::On };
                mm.set_process_switch(id, switch)?;
            }
            Op::Touch { va, access, memory, first, sizes } => {
                let taken = self.with(*sizes, |run| run.touch(id, *va, *access))?;
                *self.faults_in(*memory) += u64::from(taken.faults);
                if taken.faults > 0 {
                    self.faulted.set(index);
                }
                if *memory == Memory::Shared {
                    self.touched += u64::from(*first);
                    return Ok(());
                }
                // A first touch uses a page of a folio, unless it came to shared zeros or a copy; a
                // later one uses one only where a folio has replaced zeros.
                let page = (space, va.align_down(Bytes::new(FRAME_BYTES)));
                let was_zeros = self.read_zeros.remove(&page);
                let uses = match taken.last {
                    Some(Outcome::Mapped(_)) => true,
                    Some(Outcome::ZeroPage(Order::BASE) | Outcome::Copied) => false,
                    _ if was_zeros || *first && self.is_in_zeros(id, page.1) => {
                        let is_used = mm.frame_at(id, page.1).is_some();
                        if !is_used {
                            self.read_zeros.insert(page);
                        }
                        is_used
                    }
                    _ => *first,
                };
                self.touched += u64::from(uses);
            }
            Op::Again { va, access, memory, leader } => {
                let no_race = leader.is_some_and(|leader| !self.faulted.is_set(leader as usize));
                if no_race {
                    // At this policy the page was there before the race began.
                    let taken = self.touch(id, *va, *access)?;
                    *self.faults_in(*memory) += u64::from(taken.faults);
                } else {
                    // The CPU had faulted before the page came; the handler finds nothing to do.
                    self.sim.charge_work(Work::Fault, 1);
                    *self.faults_in(*memory) += 1;
                    self.resolve(id, *va, Access::Read)?;
                }
            }
            Op::FileWrite { va } => {
                let taken = self.touch(id, *va, Access::Write)?;
                self.file_copies += u64::from(taken.faults);
                self.file_pages += u64::from(matches!(taken.last, Some(Outcome::Mapped(_))));
            }
            Op::Create { .. } | Op::Fork { .. } | Op::End | Op::Leave => {}
        }
        Ok(())
    }

    /// Does something while memory gets these of the policy's sizes.
    fn with<T>(&mut self, sizes: Sizes, act: impl FnOnce(&mut Self) -> T) -> T {
        if sizes == Sizes::All {
            return act(self);
        }
        self.set_policy(self.rule.within(sizes));
        let done = act(self);
        self.set_policy(self.rule.policy);
        done
    }

    /// Switches sizes for anonymous memory and for that of objects.
    fn set_policy(&self, policy: Policy) {
        self.mm.set_policy(policy);
        self.mm.set_object_policy(policy);
    }

    /// Where faults in such memory are counted.
    fn faults_in(&mut self, memory: Memory) -> &mut u64 {
        match memory {
            Memory::Private => &mut self.anonymous_faults,
            Memory::Shared => &mut self.shared_faults,
        }
    }

    fn object(&self, object: ObjectId) -> Result<Object, Stop> {
        let found = self.objects.get(&object).copied();
        found.ok_or_else(|| Stop::Refused(format!("object {object} is not there")))
    }

    /// Makes an object, or changes its size.
    fn room(&mut self, object: ObjectId, pages: Pages, around: Around) -> Result<(), Stop> {
        if let Some(id) = self.objects.get(&object).copied() {
            self.count_leaves();
            return Ok(self.mm.resize_object(id, pages)?);
        }
        let request = ObjectRequest { pages, around, ..ObjectRequest::default() };
        self.objects.insert(object, self.mm.create_object(&request)?);
        Ok(())
    }

    /// Brings pages of an object that no fault brought: what that took is none of the recorded
    /// faults' time.
    fn fill(&mut self, object: ObjectId, (from, to): (Pages, Pages)) -> Result<(), Stop> {
        let id = self.object(object)?;
        let start = self.sim.kernel_time_total().0;
        for page in from.get()..to.get() {
            self.budget.work(WORK)?;
            self.mm.object_page(id, Pages::new(page), foliant::Access::Write)?;
        }
        self.excluded += self.sim.kernel_time_total().0 - start;
        self.touched += to.get() - from.get();
        self.grew = true;
        Ok(())
    }

    /// Takes the names from objects that no step after this one names.
    fn unname(&mut self, plan: &Plan, index: usize) -> Result<(), Stop> {
        while let Some(&(last, object)) = plan.last_named.get(self.unnamed)
            && last <= index as u64
        {
            self.unnamed += 1;
            if let Some(id) = self.objects.remove(&object) {
                self.count_leaves();
                self.mm.end_object(id)?;
            }
        }
        Ok(())
    }

    /// Advises what is wished for a mapping, by a system call of its own. What `MADV_COLLAPSE` does
    /// is over when memory has just been mapped, and lasts no longer.
    fn wish(&mut self, id: Id, range: VaRange, mapping: u16) -> Result<(), Stop> {
        let advice = match self.rule.wish(mapping) {
            Some(Wish::HugePage) => Advice::HugePage,
            Some(Wish::NoHugePage) => Advice::NoHugePage,
            Some(Wish::Collapse) | None => return Ok(()),
        };
        self.sim.charge_work(Work::Syscall, 1);
        Ok(self.mm.advise(id, range, advice)?)
    }

    /// What is charged to whom, read now.
    fn reading(&self) -> Reading {
        let mut folios = [0; _];
        for (count, order) in folios.iter_mut().zip(Order::all()) {
            *count = self.folios(order);
        }
        Reading {
            faults: self.anonymous_faults,
            kernel: self.sim.kernel_time_total().0 - self.excluded,
            folios,
            touched: self.touched,
            held: self.anonymous(),
        }
    }

    /// Enters a step in the book, if one is kept. Folios and what is held are read where they can
    /// have changed.
    fn book(&mut self, plan: &Plan, index: usize, step: &Step) {
        let Some(mut ledger) = self.ledger.take() else { return };
        let reading = if self.found {
            let kernel = self.sim.kernel_time_total().0 - self.excluded;
            Reading { kernel, touched: self.touched, ..*ledger.last() }
        } else {
            self.reading()
        };
        ledger.enter(plan, index, step, reading, matches!(step.op, Op::End));
        self.ledger = Some(ledger);
    }

    /// An access of the calling CPU, with all the faults that it takes.
    fn touch(&mut self, id: Id, va: Va, access: Access) -> Result<Taken, Stop> {
        let mut taken = Taken { faults: 0, last: None };
        let wanted = match access {
            Access::Read => foliant_sim::Access::Read,
            Access::Write => foliant_sim::Access::Write,
            Access::Exec => foliant_sim::Access::Exec,
        };
        // What is written is of interest where the manager looks for pages that nobody uses.
        let (sim, choice) = (self.sim, self.choice);
        let access_once = || match choice {
            Choice::Auto => sim.user_use(va, wanted),
            _ => sim.user_touch(va, wanted),
        };
        while taken.faults < TRIES && access_once().is_err() {
            taken.faults += 1;
            let outcome = self.resolve(id, va, access)?;
            if let Outcome::Refused(_) = outcome {
                self.refused += 1;
                taken.last = Some(outcome);
                return Ok(taken);
            }
            // A large leaf may be split and its page copied; what brought memory counts.
            if taken.last.is_none() || outcome != Outcome::Spurious {
                taken.last = Some(outcome);
            }
        }
        Ok(taken)
    }

    fn resolve(&mut self, id: Id, va: Va, access: Access) -> Result<Outcome, Stop> {
        let wanted = match access {
            Access::Read => foliant::Access::Read,
            Access::Write => foliant::Access::Write,
            Access::Exec => foliant::Access::Execute,
        };
        match self.mm.fault(id, va, wanted) {
            Outcome::OutOfMemory | Outcome::OverLimit => Err(Stop::OutOfMemory),
            outcome => {
                self.grew |= matches!(outcome, Outcome::Mapped(_) | Outcome::Copied);
                Ok(outcome)
            }
        }
    }

    /// Whether a page is a part of shared zeros of 2 MiB. Most programs never have such zeros made.
    fn is_in_zeros(&self, id: Id, page: Va) -> bool {
        if self.mm.total(foliant::Event::ThpZeroPageAlloc) == 0 {
            return false;
        }
        let range = VaRange::sized(page, Bytes::new(FRAME_BYTES)).unwrap_or_default();
        let is_in = self.mm.with_leaves(id, range, |mut leaves| {
            leaves.next().is_some_and(|leaf| match leaf.entry {
                Entry::Leaf { attrs, .. } => leaf.level > Level::BASE && attrs.has(Attrs::SPECIAL),
                _ => false,
            })
        });
        is_in.unwrap_or(false)
    }
    /// Pages of the trace's programs.
    fn anonymous(&self) -> u64 {
        self.mm.anonymous().get().saturating_sub(self.others)
    }
    /// Follows the peaks after a step in `space`.
    fn watch(&mut self, space: SpaceId) {
        if let Some(live) = self.spaces.get_mut(&space) {
            let pages = self.mm.pages(live.id).map_or(0, |pages| pages.get());
            self.mapped = self.mapped - live.pages + pages;
            live.pages = pages;
            self.peak_mapped = self.peak_mapped.max(self.mapped);
        }
        if std::mem::take(&mut self.grew) {
            let held = self.anonymous();
            if held > self.peak {
                (self.peak, self.peak_at) = (held, self.at);
            }
        }
    }

    /// Notes what is there where a moment has come.
    fn look(&mut self, time: u64) {
        if self.course.is_due(time) {
            let folios = self.there();
            self.course.look(time, self.anonymous_faults, &folios);
        }
    }

    /// Anonymous folios of the trace's programs that there are now.
    fn there(&self) -> BTreeMap<Order, u64> {
        let sizes = Order::all().take_while(|order| *order <= Order::SIZE_2M);
        let count = |order| {
            let all = self.mm.size_total(order, SizeEvent::NrAnon);
            let others = if order == Order::BASE { self.others } else { 0 };
            (order, all.saturating_sub(others))
        };
        sizes.map(count).filter(|(_, n)| *n > 0).collect()
    }

    /// Counts the leaves before memory may fall from its peak.
    fn count_leaves(&mut self) {
        if self.ledger.is_some() || self.leaves_at == self.peak || self.anonymous() != self.peak {
            return;
        }
        self.leaves_at = self.peak;
        let all = VaRange::new(Va::new(0), Va::new(0x7fff_ffff_f000)).unwrap_or_default();
        let count = |live: &Live| {
            self.mm.with_leaves(live.id, all, |leaves| {
                leaves.filter(|found| matches!(found.entry, Entry::Leaf { .. })).count() as u64
            })
        };
        self.leaves = self.spaces.values().filter_map(count).sum();
        self.work += self.leaves;
    }

    fn finish(mut self) -> Row {
        self.count_leaves();
        let (before, now) = (&self.before, self.read());
        let mut folios: BTreeMap<Order, u64> = now
            .folios
            .iter()
            .map(|(order, n)| (*order, n - before.folios.get(order).unwrap_or(&0)))
            .collect();
        if let Some(base) = folios.get_mut(&Order::BASE) {
            *base = base.saturating_sub(self.file_pages);
        }
        folios.retain(|_, n| *n > 0);
        let (done, was) = (now.compacted, before.compacted);
        let model = &self.model;
        let unseen = model.nanos(Work::CompactFrame, done.scanned - was.scanned)
            + model.nanos(Work::CompactMove, done.folios - was.folios);
        let zeroed: u64 = folios.iter().map(|(order, n)| order.bytes().get() * n).sum();
        Row {
            choice: self.choice,
            anonymous_faults: self.anonymous_faults,
            shared_faults: self.shared_faults,
            file_copies: self.file_copies,
            refused: self.refused,
            fallbacks: now.fallbacks - before.fallbacks,
            fragmented_blocks: self.fragmented_blocks,
            moved_pages: done.pages - was.pages,
            zeroed_bytes: zeroed,
            copied_pages: now.copied - before.copied,
            shootdowns: now.shootdowns - before.shootdowns,
            leaves: self.leaves,
            kernel: Nanos(now.kernel - before.kernel - self.excluded),
            compaction: Nanos(done.nanos - was.nanos + unseen as u64),
            peak: Bytes::new(self.peak * FRAME_BYTES),
            peak_mapped: Bytes::new(self.peak_mapped * FRAME_BYTES),
            untouched_bytes: zeroed.saturating_sub(self.touched * FRAME_BYTES),
            folios,
            peak_step: self.peak_at as u64,
            course: self.course.finish(self.anonymous_faults),
        }
    }
}

/// A bit for each step of a plan.
struct Marks(Vec<u64>);

impl Marks {
    fn new(steps: usize) -> Marks {
        Marks(vec![0; steps.div_ceil(64)])
    }
    fn set(&mut self, step: usize) {
        if let Some(word) = self.0.get_mut(step / 64) {
            *word |= 1 << (step % 64);
        }
    }
    fn is_set(&self, step: usize) -> bool {
        self.0.get(step / 64).is_some_and(|word| word >> (step % 64) & 1 != 0)
    }
}

/// What an access took.
struct Taken {
    faults: u32,
    last: Option<Outcome>,
}
