//! One machine, one manager on it, and what is noted while a history runs.
//!
//! **Invariants**
//! - W1. The notes' lock is never held over a contract call: the baton may change hands in one.
//! - W2. Nothing here depends on the host: no clock, no addresses, no hash order.

use crate::report::Finding;
use crate::rng::{Draws, Rng};
use crate::saboteur::Saboteur;
use crate::shape::{Live, Refused, Shape, Style};
use crate::tasks::Task;
use foliant::manager::{Contents, Setup};
use foliant::memmap::{Batch, Form};
use foliant::space::{RangeError, SpaceId};
use foliant::steps::{self, Counts};
use foliant::table::{Attrs, Entry, Paging};
use foliant::{Access, FlushGrain, Manager, Outcome, Policy};
use foliant_machine::{Owner, Replace};
use foliant_sim::{Config, Failing, Sim, Trade, Turns};
use foliant_units::{Bytes, Cpu, FRAME_BYTES, Frame, FrameRange, Nanos, Order, Pages, Va, VaRange};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Findings of the model kept per history; the first says most.
const FINDINGS_MAX: usize = 8;
/// Faults that one access may take before it is called endless.
const FAULTS_MAX: usize = 300;
/// How often a CPU that runs no space lets others go on, at most.
const AWAY_MAX: u64 = 12;
/// How long such a CPU clears free memory, at times: enough for a third of it.
const AHEAD: Nanos = Nanos(4_000_000);
/// Where memory that is added later lies: in a section of descriptors of its own.
const ADDED_AT: Frame = Frame::new(4 << 15);

/// Memory of the machine. It lies in one section of descriptors, which is there before the history
/// begins, so that the books balance exactly.
pub(crate) const MEMORY: Bytes = Bytes::new(120 << 20);
/// As much as a short history needs, without huge pages and with them: an audit looks at every
/// frame. Less is too little for kernel ranges: a request of theirs that fails gives back all that
/// it took, so that it cannot be told afterwards that there was too little.
const LITTLE: Bytes = Bytes::new(32 << 20);
const MORE: Bytes = Bytes::new(64 << 20);

/// The memory of a history with draws that come from outside: there are many such histories, and
/// they are short.
pub(crate) fn memory_of_drawn(style: Style) -> Bytes {
    match style {
        Style::Partitioned | Style::Racing | Style::Ranges | Style::Objects => LITTLE,
        Style::Folding | Style::Pooled => MORE,
    }
}

pub(crate) type Mm<'m, P> = Manager<'m, Saboteur<'m>, P>;

/// How an access of a program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Got {
    /// It went through; what a load gave.
    Value(u64),
    /// The manager said why not.
    Not(Outcome),
    /// It never got through.
    Endless,
}

/// What is noted while a history runs.
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) findings: Vec<Finding>,
    pub(crate) operations: BTreeMap<&'static str, u64>,
    pub(crate) refused: u64,
    pub(crate) refused_allocations: u64,
}

/// See the module's text.
pub(crate) struct World<'m, P: Paging> {
    pub(crate) shape: Shape,
    pub(crate) sim: &'m Sim,
    pub(crate) mm: Mm<'m, P>,
    notes: Mutex<Notes>,
    stop: AtomicBool,
    /// Whether what the seats know is not true any more, by no fault of the manager.
    given_up: AtomicBool,
    added: AtomicBool,
    contents: Contents,
    finished: AtomicBool,
    before: Books,
    seed: u64,
    draws: Draws,
}

/// Where frames are stated to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Books {
    free: u64,
    tables: u64,
    records: u64,
    users: u64,
    zeros: u64,
}

/// The machine for a history.
pub(crate) fn config(
    seed: u64,
    shape: &Shape,
    format: foliant_sim::Format,
    memory: Bytes,
) -> Config {
    // The program beside has one more.
    let cpus = shape.cpus.clamp(1, 64) + usize::from(shape.style == Style::Racing);
    let mut config = Config::seeded(cpus, memory, seed).with_format(format);
    if shape.live == Live::BreakBeforeMake {
        config.rules.replace = Replace::BreakBeforeMake;
    }
    config.memory.extend(added());
    config.turns = Turns::Stacks(counts_of_each);
    config
}

/// Each CPU counts its own steps.
fn counts_of_each() -> Trade {
    let mut counts = Counts::default();
    Box::new(move || steps::trade(&mut counts))
}

/// Every so-many-th frame has junk in it where a history does not say what its memory holds: the
/// host has to make each of them.
const JUNK_EVERY: Pages = Pages::new(16);

/// What a history says of its memory. The machine's memory is zero at first, and half of the
/// histories say so; the others have junk in it.
fn contents(seed: u64) -> Contents {
    if seed % 2 == 1 { Contents::Zero } else { Contents::Any }
}

/// The memory that is added while a history runs.
fn added() -> Option<FrameRange> {
    FrameRange::new(ADDED_AT, Pages::new(2048))
}

impl<'m, P: Paging> World<'m, P> {
    pub(crate) fn new(sim: &'m Sim, machine: &'m Saboteur<'m>, shape: Shape, seed: u64) -> Self {
        World::drawn(sim, machine, shape, seed, Draws::default())
    }
    /// A world in which draws come before chance.
    pub(crate) fn drawn(
        sim: &'m Sim,
        machine: &'m Saboteur<'m>,
        shape: Shape,
        seed: u64,
        draws: Draws,
    ) -> Self {
        let memory = &sim.config().memory[..1];
        let policy = Policy::BASE_ONLY;
        let contents = contents(seed);
        if contents == Contents::Any {
            sim.config().memory.iter().for_each(|range| sim.leave_junk(*range, JUNK_EVERY));
        }
        let added_below = Frame::new(8 << 15);
        let setup = Setup { added_below, contents, ..Setup::of(memory, policy) };
        let mm = Manager::new(machine, &setup).expect("the machine has memory");
        for cpu in mm.cpus() {
            sim.on(cpu, || mm.online());
        }
        // Every fourth history flushes whole operations, the others at most so many entries.
        let grain = [0, 1, 7, 64][(seed % 4) as usize];
        mm.set_flush_grain(FlushGrain::new(grain).unwrap_or(FlushGrain::WHOLE));
        // The first frame handed out brings the descriptors in.
        let first = mm.create(None).expect("nothing is refused yet");
        mm.end(first).expect("it is not in use");
        if matches!(shape.style, Style::Folding | Style::Pooled) {
            split_descriptors(&mm);
        }
        let mut world = World {
            shape,
            contents,
            sim,
            mm,
            notes: Mutex::default(),
            stop: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
            added: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            before: Books { free: 0, tables: 0, records: 0, users: 0, zeros: 0 },
            seed,
            draws,
        };
        world.before = world.books();
        machine.arm();
        sim.fault_plan().set(match shape.refused {
            Refused::Nothing => Failing::Nothing,
            Refused::OneIn(every) => Failing::OneIn { every, seed },
            Refused::Kth(k) => Failing::Kth(k),
        });
        world
    }

    fn books(&self) -> Books {
        let stated = |owner| self.sim.stated_frames(owner).get();
        Books {
            free: self.mm.memory().free.get(),
            tables: stated(Owner::Table),
            records: stated(Owner::Records) + stated(Owner::Kept),
            users: stated(Owner::User),
            zeros: stated(Owner::Zero),
        }
    }

    /// The stream `lane` of the history's chance.
    pub(crate) fn rng(&self, lane: u64) -> Rng {
        Rng::with(self.seed, lane, self.draws.clone())
    }
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn into_notes(self) -> Notes {
        self.notes.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
    /// Counts an operation.
    pub(crate) fn count(&self, operation: &'static str) {
        *self.notes().operations.entry(operation).or_default() += 1;
    }
    /// Counts an operation that was refused for lack of memory.
    pub(crate) fn count_refused(&self) {
        self.notes().refused += 1;
    }
    /// The next moment of the history's own time.
    pub(crate) fn tick(&self) -> u64 {
        self.mm.machine().tick()
    }
    /// Ends the history soon. What its seats know of their memory is not true any more; the books
    /// of the manager are, so that it is finished all the same.
    pub(crate) fn give_up(&self) {
        if !self.given_up.swap(true, Ordering::Relaxed) {
            self.count("given up");
        }
        self.stop.store(true, Ordering::Relaxed);
    }
    /// Whether the history may be finished: nothing went wrong.
    pub(crate) fn is_whole(&self) -> bool {
        !self.stopped() || self.notes().findings.is_empty()
    }
    /// Notes that something is wrong, and ends the history soon.
    pub(crate) fn wrong(&self, checker: &'static str, text: String) {
        if self.given_up.load(Ordering::Relaxed) {
            return;
        }
        let mut notes = self.notes();
        if notes.findings.len() < FINDINGS_MAX {
            notes.findings.push(Finding { checker, text });
        }
        self.stop.store(true, Ordering::Relaxed);
    }
    /// Whether the history should end.
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// A phase: each CPU takes a seat, another one in each phase, and makes its steps there.
    pub(crate) fn phase<S: Send>(
        &self,
        phase: usize,
        steps: usize,
        seats: &[Mutex<S>],
        step: impl Fn(&mut S) + Sync,
    ) {
        self.sim.parallel(seats.len(), |cpu: Cpu| {
            let mut seat = lock(&seats[(cpu.index() + phase) % seats.len()]);
            for _ in 0..steps {
                if self.stopped() {
                    break;
                }
                step(&mut seat);
            }
        });
    }

    /// Whether the history came to its end: nothing may be outstanding now.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Relaxed)
    }

    /// Whether lack of memory is a fair answer now.
    pub(crate) fn is_scarce(&self) -> bool {
        self.shape.refused != Refused::Nothing
            || self.mm.memory().free.get() * 8 < self.sim.config().memory[0].pages().get()
    }
    /// Whether it is fair that an operation was refused: for lack of memory where memory is scarce,
    /// or for its limit in a space that has one.
    pub(crate) fn lacks(&self, limit: u64, error: RangeError) -> bool {
        match error {
            RangeError::NoMemory => self.is_scarce(),
            RangeError::OverLimit(_) => limit > 0,
            _ => false,
        }
    }
    /// Whether it is fair that an access failed, for lack of memory or for the limit of its space;
    /// counts it then.
    pub(crate) fn is_short(&self, limit: u64, outcome: Outcome) -> bool {
        let short = match outcome {
            Outcome::OutOfMemory => self.is_scarce(),
            Outcome::OverLimit => limit > 0,
            _ => false,
        };
        if short {
            self.count_refused();
        }
        short
    }

    /// The calling CPU.
    pub(crate) fn sim_cpu(&self) -> Cpu {
        foliant_machine::Cpus::me(self.sim)
    }
    /// Makes the calling CPU run the space.
    pub(crate) fn run(&self, id: SpaceId) -> Result<(), ()> {
        self.mm.switch(Some(id)).map_err(|_| ())
    }
    /// The calling CPU runs no space for a while. Its next operation takes it back, to what it
    /// kept.
    pub(crate) fn go_away(&self, rng: &mut Rng) {
        self.count("away");
        if self.mm.switch(None).is_err() {
            self.wrong("answers", "no way out of a space".into());
        }
        self.mm.machine().during(Task::Idle, || {
            if rng.once_in(3) {
                self.mm.folios().drain(self.sim_cpu());
                self.mm.clear_ahead(AHEAD);
            }
            (0..rng.below(AWAY_MAX)).for_each(|_| foliant_machine::Cpus::relax(self.sim));
        });
    }
    /// An access of a program on the calling CPU, which runs the space; faults are handed to the
    /// manager.
    fn access(
        &self,
        (id, va, access): (SpaceId, u64, Access),
        mut once: impl FnMut() -> Option<u64>,
    ) -> Got {
        for _ in 0..FAULTS_MAX {
            if let Some(value) = once() {
                return Got::Value(value);
            }
            let fault = || self.mm.fault(id, Va::new(va), access);
            let outcome = self.mm.machine().during(Task::Fault, fault);
            if let Outcome::Refused(_)
            | Outcome::Userfault(_)
            | Outcome::UserfaultWrite(_)
            | Outcome::UserfaultPresent(_)
            | Outcome::NoHugePage(_)
            | Outcome::OutOfMemory
            | Outcome::OverLimit = outcome
            {
                return Got::Not(outcome);
            }
            if self.stopped() {
                break;
            }
        }
        Got::Endless
    }
    /// Loads a word.
    pub(crate) fn load(&self, id: SpaceId, va: u64) -> Got {
        self.access((id, va, Access::Read), || self.sim.user_load(Va::new(va), 8).ok())
    }
    /// Stores a word.
    pub(crate) fn store(&self, id: SpaceId, va: u64, value: u64) -> Got {
        let once = || self.sim.user_store(Va::new(va), 8, value).ok().map(|()| value);
        self.access((id, va, Access::Write), once)
    }

    /// Fetches an instruction.
    pub(crate) fn fetch(&self, id: SpaceId, va: u64) -> Got {
        let once = || self.sim.user_touch(Va::new(va), foliant_sim::Access::Exec).ok().map(|()| 0);
        self.access((id, va, Access::Execute), once)
    }

    /// Adds memory, once in a history.
    pub(crate) fn add_memory(&self) {
        if self.added.swap(true, Ordering::Relaxed) {
            return;
        }
        self.count("add memory");
        let add = |range| self.mm.add_memory_of(range, foliant_units::Node(0), self.contents);
        if let Some(Err(error)) = added().map(add) {
            self.wrong("audit", format!("memory was not added: {error}"));
        }
        if added().is_some_and(|range| self.mm.add_memory(range).is_ok()) {
            self.wrong("audit", "memory was added twice".into());
        }
    }

    /// What the leaf of a page says; `None` without a leaf.
    pub(crate) fn noted(&self, id: SpaceId, va: u64) -> Option<Attrs> {
        let page = range(va, FRAME_BYTES);
        self.mm.with_leaves(id, page, |mut leaves| {
            leaves.find_map(|leaf| match leaf.entry {
                Entry::Leaf { attrs, .. } => Some(attrs),
                _ => None,
            })
        })?
    }

    /// Recounts between two phases; no CPU is at work. A history that chance draws is long; one
    /// that is drawn from outside is short, and recounted when it has ended.
    pub(crate) fn audit_between(&self, spaces: &[SpaceId]) {
        if self.draws.is_empty() {
            self.audit(spaces);
        }
    }

    /// Recounts; no CPU is at work.
    pub(crate) fn audit(&self, spaces: &[SpaceId]) {
        self.sim.compare_caches();
        match self.mm.audit(spaces) {
            Ok(audit) => {
                let stated: u64 = self.mm.anonymous().get();
                self.sim.recount("anonymous pages", stated, audit.anonymous.get());
                let users = self.sim.stated_frames(Owner::User).get();
                let pool = self.mm.pool(Order::SIZE_2M).unwrap_or_default();
                let used = (pool.nr_hugepages - pool.free_hugepages) * Order::SIZE_2M.pages().get();
                let kernel = self.sim.stated_frames(Owner::Kernel).get();
                self.sim.recount("kernel pages", audit.kernel.get(), kernel);
                self.sim.recount("user frames", stated + used, users);
                let stated = |owner| self.sim.stated_frames(owner).get();
                self.sim.recount("tables", stated(Owner::Table), audit.tables.get());
                self.sim.recount("frames of records", stated(Owner::Records), audit.records.get());
            }
            Err(error) => self.wrong("audit", error.to_string()),
        }
    }

    /// Ends all spaces, and compares the books with those of the beginning.
    pub(crate) fn finish(&self, spaces: &[SpaceId]) {
        // From here on no seat is asked.
        self.given_up.store(false, Ordering::Relaxed);
        self.notes().refused_allocations = self.sim.fault_plan().refused();
        self.sim.fault_plan().set(Failing::Nothing);
        self.audit(spaces);
        for cpu in self.mm.cpus() {
            if self.sim.on(cpu, || self.mm.switch(None)).is_err() {
                self.wrong("audit", "a CPU does not leave its space".into());
            }
        }
        for id in spaces {
            if let Err(error) = self.mm.end(*id) {
                self.wrong("audit", format!("{id:?} does not end: {error}"));
            }
            if self.mm.end(*id).is_ok() {
                self.wrong("audit", format!("{id:?} ended twice"));
            }
        }
        self.audit(&[]);
        self.balance();
        self.finished.store(true, Ordering::Relaxed);
    }

    /// Frames that are neither free nor accounted for are lost.
    fn balance(&self) {
        let (before, after) = (self.before, self.books());
        // Tables of the kernel half stay, and so do the records of its ranges.
        let stay = self.added.load(Ordering::Relaxed) || self.shape.style == Style::Ranges;
        if after.tables != before.tables && !stay {
            let (was, is) = (before.tables, after.tables);
            self.wrong("leak", format!("{was} table frames at the start, {is} at the end"));
        }
        let grown = after.records.saturating_sub(before.records);
        if !stay && grown != 0 {
            self.wrong("leak", format!("{grown} frames of records were never given back"));
        }
        // A block of zeros stays, and there is one at most.
        let zeros = after.zeros.saturating_sub(before.zeros);
        if zeros != 0 && zeros != Order::SIZE_2M.pages().get() {
            self.wrong("leak", format!("{zeros} frames of zeros came"));
        }
        let sum = |b: &Books| b.free + b.tables + b.records + b.users + b.zeros;
        let more = match self.added.load(Ordering::Relaxed) {
            true => added().map_or(0, |range| range.pages().get()),
            false => 0,
        };
        if sum(&before) + more != sum(&after) {
            self.wrong("leak", format!("frames: {before:?} at the start, {after:?} at the end"));
        }
    }
}

/// Has the leaf of the descriptors split, where the machine permits it, and the shared frame made:
/// what folding takes once and for all is there before the books are opened.
fn split_descriptors<P: Paging>(mm: &Mm<'_, P>) {
    let memmap = mm.memmap();
    let mut batch = Batch::new(&memmap);
    let huge = memmap.claim(Order::SIZE_2M, Form::Dense).expect("nothing is refused yet");
    batch.push(huge).expect("there is room for one");
    memmap.fold(&mut batch);
    memmap.release(&mut batch);
    mm.describe_all().expect("nothing is refused yet");
}

/// A range of bytes.
pub(crate) fn range(start: u64, bytes: u64) -> VaRange {
    VaRange::sized(Va::new(start), Bytes::new(bytes)).unwrap_or_default()
}

/// Whether a refusal of an operation is lack of memory.
pub(crate) fn no_memory(error: RangeError) -> bool {
    matches!(error, RangeError::NoMemory | RangeError::OverLimit(_))
}

/// CPU `n` of a machine with `count`.
pub(crate) fn cpu(n: u64, count: usize) -> Cpu {
    Cpu((n % count.max(1) as u64) as u16)
}

/// Locks `mutex`, also after a thread has panicked with it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
