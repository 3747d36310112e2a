//! The machine as a whole: building it, running code on its CPUs, reading it from outside.

use crate::check::{Event, Violation, Watch};
use crate::config::{Checks, Clearing, Config, Mode, SimError, Turns};
use crate::cost::{ClockKind, Prices, Work, nanos};
use crate::counts::Counts;
use crate::cpu::CpuState;
use crate::free::FreeFrames;
use crate::memory::Memory;
use crate::plan::FaultPlan;
use crate::sched::{Abandoned, Baton};
use crate::{Cached, current, lanes};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use foliant_machine::{Clock, Cpus, Owner, Refusal, Retired, Witness};
use foliant_units::{Cpu, FRAME_BYTES, Frame, FrameRange, Nanos, Pages, VaRange};
use parking_lot::Mutex;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Instant;

static MACHINES: AtomicU64 = AtomicU64::new(1);

/// Blocks from this many frames on go back to the host when they are stated to be free.
const GIVE_BACK_FRAMES: u64 = 512;

/// How the work of a CPU ended.
type End = std::thread::Result<()>;

/// A simulated machine.
#[derive(Debug)]
pub struct Sim {
    id: u64,
    pub(crate) config: Config,
    pub(crate) prices: Prices,
    pub(crate) memory: Memory,
    pub(crate) cpus: Box<[CpuState]>,
    pub(crate) baton: Option<Baton>,
    pub(crate) watch: Option<Mutex<Watch>>,
    /// Which frames are free, where checkers watch.
    pub(crate) free: FreeFrames,
    plan: FaultPlan,
    start: Instant,
    /// How much of what the checkers found was told.
    told: AtomicUsize,
}

impl Sim {
    /// Builds the machine that `config` describes.
    pub fn new(config: Config) -> Result<Sim, SimError> {
        let config = config.checked()?;
        let memory = Memory::new(&config.memory, config.backing)?;
        let seed = match config.mode {
            Mode::Seeded(seed) => seed,
            Mode::Free => 0,
        };
        let cpu = |cpu| CpuState::new(config.geometry, seed, cpu);
        Ok(Sim {
            id: MACHINES.fetch_add(1, Ordering::Relaxed),
            prices: Prices::new(&config.model),
            memory,
            cpus: (0..config.cpus).map(cpu).collect(),
            baton: match config.mode {
                Mode::Seeded(seed) => Some(Baton::new(config.cpus, seed, config.chance.switch)),
                Mode::Free => None,
            },
            watch: match config.checks {
                Checks::All => Some(Mutex::new(Watch::new(&config))),
                Checks::None => None,
            },
            free: FreeFrames::none(match config.checks {
                Checks::All => &config.memory,
                Checks::None => &[],
            }),
            plan: FaultPlan::default(),
            start: Instant::now(),
            told: AtomicUsize::new(0),
            config,
        })
    }

    /// What the machine was built from.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The file that holds the machine's memory, and the frame at its offset 0: the others follow
    /// in order, holes included. Nothing without [`Backing::File`](crate::Backing::File).
    pub fn memory_file(&self) -> Option<(Arc<File>, Frame)> {
        self.memory.file().cloned()
    }

    /// Runs `work` as `cpu`, on the calling thread. A CPU that the machine does not have counts as
    /// the last one.
    pub fn on<R>(&self, cpu: Cpu, work: impl FnOnce() -> R) -> R {
        let last = self.cpus.len() - 1;
        current::on(self.id, Cpu(cpu.index().min(last) as u16), work)
    }

    /// Runs `work` on CPUs 0 to `count - 1` at once and returns when all have finished. A panic on
    /// one CPU ends the others and is passed on. In seeded mode runs do not nest.
    pub fn parallel(&self, count: usize, work: impl Fn(Cpu) + Sync) {
        let work = &work;
        self.run(
            (0..count.min(self.cpus.len())).map(|cpu| move || work(Cpu(cpu as u16))).collect(),
        );
    }

    /// Runs the n-th closure on CPU n, all at once. Closures beyond the last CPU are not run.
    pub fn run<F: FnOnce() + Send>(&self, mut per_cpu: Vec<F>) {
        per_cpu.truncate(self.cpus.len());
        if per_cpu.is_empty() {
            return;
        }
        if let Some(baton) = &self.baton {
            assert!(baton.begin(per_cpu.len()), "a run is under way on this machine already");
        }
        let ends = match (&self.baton, self.config.turns) {
            (Some(baton), Turns::Stacks(trade)) => self.on_lanes(baton, trade, per_cpu),
            _ => self.on_threads(per_cpu),
        };
        let mut failures = ends.into_iter().filter_map(Result::err);
        if let Some(first) = failures.find(|failure| !failure.is::<Abandoned>()) {
            resume_unwind(first);
        }
    }

    fn on_threads<F: FnOnce() + Send>(&self, per_cpu: Vec<F>) -> Vec<End> {
        std::thread::scope(|scope| {
            let spawn = |(cpu, work): (usize, F)| {
                let body = move || self.one(Cpu(cpu as u16), work);
                let thread = std::thread::Builder::new().stack_size(lanes::STACK_BYTES);
                thread.spawn_scoped(scope, body).expect("the host has a thread for each CPU")
            };
            let threads: Vec<_> = per_cpu.into_iter().enumerate().map(spawn).collect();
            threads.into_iter().map(|thread| thread.join().flatten()).collect()
        })
    }

    fn on_lanes<F: FnOnce()>(
        &self,
        baton: &Baton,
        trade: fn() -> lanes::Trade,
        per_cpu: Vec<F>,
    ) -> Vec<End> {
        let mut ends: Vec<End> = per_cpu.iter().map(|_| Ok(())).collect();
        let works = per_cpu.into_iter().enumerate().zip(&mut ends);
        let bodies = works
            .map(|((cpu, work), end)| move || *end = self.one(Cpu(cpu as u16), work))
            .collect();
        lanes::run(bodies, trade, || baton.holder());
        ends
    }

    fn one(&self, cpu: Cpu, work: impl FnOnce()) -> End {
        current::on_slot(self.id, cpu, || {
            let done = catch_unwind(AssertUnwindSafe(|| {
                if let Some(baton) = &self.baton {
                    baton.join(cpu);
                }
                work();
            }));
            if let Some(baton) = &self.baton {
                baton.leave(cpu, done.is_err());
            }
            done
        })
    }

    /// The CPU of the calling thread.
    #[inline]
    pub(crate) fn here(&self) -> (Cpu, &CpuState) {
        let cpu = current::cpu(self.id);
        (cpu, &self.cpus[cpu.index()])
    }

    /// Contract calls start here, but for those of `Cpus` and `Clock`, `rules` and `refusal`:
    /// chance may let others run and interrupts arrive.
    #[inline]
    pub(crate) fn enter(&self) -> (Cpu, &CpuState) {
        let (cpu, slot) = current::place(self.id);
        let state = &self.cpus[cpu.index()];
        if let Some(baton) = &self.baton {
            if let Some(slot) = slot {
                baton.step(slot);
            }
            self.interrupt(cpu, state);
        }
        (cpu, state)
    }

    /// Perhaps an interrupt arrives.
    #[inline]
    fn interrupt(&self, cpu: Cpu, state: &CpuState) {
        if state.waiting.load(Ordering::Acquire) > 0 {
            let due = state.core.lock().rng.once_in(self.config.chance.interrupt);
            if due {
                self.serve(cpu, state);
            }
        }
    }

    /// Lets others run between two contract calls of a seeded run, if chance will have it. It is
    /// for a caller that knows of accesses that the machine does not see.
    pub fn preempt(&self) {
        if let (Some(baton), Some(slot)) = (&self.baton, current::slot(self.id)) {
            baton.preempt(slot);
        }
    }

    /// The CPU spins, or does what takes long: interrupts arrive and another CPU goes on.
    pub(crate) fn let_others(&self, cpu: Cpu, state: &CpuState) {
        if state.waiting.load(Ordering::Acquire) > 0 {
            self.serve(cpu, state);
        }
        match (&self.baton, current::slot(self.id)) {
            (Some(baton), Some(slot)) => baton.spin(slot),
            (Some(_), None) => {}
            (None, _) => std::thread::yield_now(),
        }
    }

    /// Tells the checkers, if there are any.
    #[inline]
    pub(crate) fn tell<'a>(&self, cpu: Cpu, event: impl FnOnce() -> Event<'a>) {
        if let Some(watch) = &self.watch {
            watch.lock().event(cpu, &self.memory, &event());
        }
    }

    /// Does something that other CPUs can see at once, and tells the checkers of it before they are
    /// told what came of it: on real threads they could otherwise hear of a walk before the store
    /// that it read.
    pub(crate) fn act<'a, R>(&self, cpu: Cpu, act: impl FnOnce() -> (R, Option<Event<'a>>)) -> R {
        let mut watch = self.watch.as_ref().map(Mutex::lock);
        let (done, event) = act();
        if let (Some(watch), Some(event)) = (&mut watch, event) {
            watch.event(cpu, &self.memory, &event);
        }
        done
    }

    /// What the machine did so far, all CPUs together.
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for cpu in &self.cpus {
            sum.add(&cpu.counters.read());
        }
        sum
    }

    /// What one CPU did so far; nothing for a CPU that does not exist.
    pub fn counts_of(&self, cpu: Cpu) -> Counts {
        self.cpus.get(cpu.index()).map(|cpu| cpu.counters.read()).unwrap_or_default()
    }

    /// Charges kernel work that the machine cannot see.
    pub fn charge(&self, cpu: Cpu, time: Nanos) {
        if let Some(cpu) = self.cpus.get(cpu.index()) {
            cpu.charge(time.0.saturating_mul(1000));
        }
    }

    /// Charges `units` of `work` to the calling CPU at the model's price.
    pub fn charge_work(&self, work: Work, units: u64) {
        self.here().1.charge(self.prices.picos(work, units));
    }

    /// Modelled kernel time of one CPU.
    pub fn kernel_time(&self, cpu: Cpu) -> Nanos {
        self.cpus.get(cpu.index()).map_or(Nanos(0), |cpu| nanos(cpu.kernel_time()))
    }

    /// Modelled kernel time of all CPUs together.
    pub fn kernel_time_total(&self) -> Nanos {
        nanos(self.cpus.iter().map(CpuState::kernel_time).sum())
    }

    /// Which allocations of the manager fail.
    pub fn fault_plan(&self) -> &FaultPlan {
        &self.plan
    }

    /// Gives the host memory of `frames` back. They read as zero afterwards. It happens by itself
    /// for blocks of 2 MiB and more that are stated to be free.
    pub fn release_host(&self, frames: FrameRange) {
        self.memory.release_host(frames);
    }

    /// Leaves in `frames` what firmware or another kernel may have left there: the first and the
    /// last word of every so-many-th frame look like a present entry that names the frame. The
    /// checkers are told that all of it was written. It is for memory that is not lent yet.
    pub fn leave_junk(&self, frames: FrameRange, every: Pages) {
        let (pa, bytes) = (frames.start().pa(), frames.pages().bytes().get());
        self.tell(self.here().0, || Event::Reached { pa, bytes });
        for frame in frames.iter().step_by(every.get().max(1) as usize) {
            let junk = frame.pa().get() | 0xfff;
            for at in [0, FRAME_BYTES - 8] {
                self.memory.store(frame.pa().add(at), junk);
            }
        }
    }

    /// What `cpu` has cached, table pointers included, level by level; where nothing is evicted, in
    /// the order of tag and address within each, the global entries last.
    pub fn cached(&self, cpu: Cpu) -> Vec<Cached> {
        let mut all = Vec::new();
        if let Some(cpu) = self.cpus.get(cpu.index()) {
            cpu.core.lock().caches.each(&mut |entry| all.push(*entry));
        }
        all
    }

    /// How many translations `cpu` has cached, table pointers not counted.
    pub fn cached_pages(&self, cpu: Cpu) -> usize {
        self.cpus.get(cpu.index()).map_or(0, |cpu| cpu.core.lock().caches.len())
    }

    /// What the checkers found so far, in the order it happened. Empty with checks off. The
    /// caller judges; a machine that nobody asked judges by itself when it is dropped.
    pub fn violations(&self) -> Vec<Violation> {
        let found = self.watch.as_ref().map_or(Vec::new(), |watch| watch.lock().violations());
        self.told.store(found.len(), Ordering::Relaxed);
        found
    }

    /// Ends a history: nothing may be outstanding now. Gives everything that the checkers found.
    pub fn finish(&self) -> Vec<Violation> {
        self.end();
        self.violations()
    }
    /// Ends a history for a caller that leaves it to others to ask what the checkers found: nothing
    /// may be outstanding now.
    pub fn end(&self) {
        for cpu in 0..self.cpus.len() {
            let tickets = self.cpus[cpu].mailbox.lock().tickets.len(); // a request has a ticket
            self.tell(Cpu(cpu as u16), || Event::Outstanding { tickets });
        }
        self.tell(Cpu(0), || Event::Finished);
    }

    /// Compares a counter that the manager states with a recount; a difference is a violation.
    pub fn recount(&self, name: &'static str, stated: u64, counted: u64) {
        self.tell(self.here().0, || Event::Recounted { name, stated, counted });
    }

    /// How many frames the manager states to be `owner`'s, counted from its statements; 0 for
    /// `Reserved`, which is what nothing was said about, and with checks off.
    pub fn stated_frames(&self, owner: Owner) -> Pages {
        Pages::new(self.watch.as_ref().map_or(0, |watch| watch.lock().stated(owner)))
    }

    /// A digest of everything that happened so far; equal for equal seeds. 0 with checks off.
    pub fn digest(&self) -> u64 {
        self.watch.as_ref().map_or(0, |watch| watch.lock().digest())
    }
}

impl Drop for Sim {
    /// A test that forgets to ask the checkers fails all the same.
    fn drop(&mut self) {
        let told = *self.told.get_mut();
        if !std::thread::panicking() {
            let left = &self.violations()[told..];
            assert!(left.is_empty(), "nobody asked what the checkers found: {left:#?}");
        }
    }
}

impl Cpus for Sim {
    fn me(&self) -> Cpu {
        self.here().0
    }

    fn count(&self) -> usize {
        self.cpus.len()
    }

    fn pinned<R>(&self, work: impl FnOnce(Cpu) -> R) -> R {
        work(self.here().0)
    }

    fn relax(&self) {
        let (cpu, state) = self.here();
        self.let_others(cpu, state);
    }
}

impl Clock for Sim {
    fn now(&self) -> Nanos {
        match self.config.model.clock {
            ClockKind::Virtual => nanos(self.here().1.clock()),
            ClockKind::Real => Nanos(self.start.elapsed().as_nanos() as u64),
        }
    }

    fn yield_now(&self) {
        let (cpu, state) = self.here();
        if state.waiting.load(Ordering::Acquire) > 0 {
            self.serve(cpu, state);
        }
        if let (Some(baton), Some(slot)) = (&self.baton, current::slot(self.id)) {
            baton.step(slot);
        }
    }
}

impl Witness for Sim {
    fn owned(&self, frames: FrameRange, owner: Owner) {
        let (cpu, state) = self.enter();
        match owner {
            Owner::Free => {
                let pages = frames.pages().get();
                state.charge(self.prices.picos(Work::Free, 1));
                state.charge(self.prices.picos(Work::FreeFrame, pages));
            }
            Owner::Table | Owner::Records | Owner::Kept | Owner::User | Owner::Kernel => {
                state.charge(self.prices.picos(Work::Alloc, 1));
            }
            Owner::Claimed | Owner::Zero | Owner::Reserved => {}
        }
        self.free.set(frames, owner == Owner::Free);
        self.tell(cpu, || Event::Owned { frames, owner });
        let large = frames.pages().get() >= GIVE_BACK_FRAMES;
        if owner == Owner::Free && large && self.config.clearing == Clearing::Lazy {
            self.memory.release_host(frames);
        }
    }

    fn retired(&self, range: VaRange, how: Retired) {
        let (cpu, _) = self.enter();
        self.tell(cpu, || Event::Retired { range, how });
    }

    fn refusal(&self) -> Refusal {
        self.plan.ask()
    }
}
