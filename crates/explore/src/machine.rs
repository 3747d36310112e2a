//! The simulated machine, with a point before each call.
//!
//! A call itself never switches inside. Shootdowns are served at the wait, the latest moment there
//! is, or when the asked CPU spins, yields, waits or changes its root.
//!
//! **Locations.** A physical word has one name whether it is loaded through the contract or reached
//! as an atomic. A frame's contents are one location, so is what a CPU has cached, and so is each
//! word at a kernel address.
#![allow(unsafe_code)]

use crate::engine;
use crate::mix::{Mixers, Touched};
use core::ptr::NonNull;
use foliant::steps::Touch;
use foliant_machine::{
    Around, Caching, Clock, Cpus, Invalidation, Kept, KernelFault, KernelVa, Owner, PhysMem, Reach,
    Refusal, Retired, Root, Scope, Ticket, Tlb, Witness,
};
use foliant_sim::{Cached, Sim};
use foliant_units::{Bytes, Cpu, CpuSet, FRAME_BYTES, Frame, FrameRange, Nanos, Pa, Va, VaRange};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};

/// What is wrong with the machine, for tests of the explorer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flaw {
    /// A CPU that waits for others to invalidate goes on at once.
    NoWait,
    /// A CPU that waits for others ends the process.
    Aborts,
}

const KIND: u32 = 60;
const WORD: u64 = 1 << KIND;
const FRAME: u64 = 2 << KIND;
const KERNEL: u64 = 3 << KIND;
const CACHE: u64 = 4 << KIND;
const OWNER: u64 = 5 << KIND;
const MEANING: u64 = 6 << KIND;
const SCENE: u64 = 7 << KIND;
/// So many frames, or pieces of kernel memory, are told one by one; more are told as everything.
const TOLD: u64 = 1024;

fn read(location: u64) -> Touched {
    Touched { location, writes: false }
}
fn write(location: u64) -> Touched {
    Touched { location, writes: true }
}
fn word(pa: Pa) -> u64 {
    WORD | (pa.get() / 8)
}
fn frame(pa: Pa) -> u64 {
    FRAME | (pa.get() / FRAME_BYTES)
}
fn frames(pa: Pa, bytes: Bytes) -> impl Iterator<Item = u64> {
    let last = frame(Pa::new(pa.get() + bytes.get().max(1) - 1));
    frame(pa)..=last
}
fn kernel(va: Va) -> u64 {
    KERNEL | va.get() << 4 >> 7
}
fn cache(cpu: usize) -> u64 {
    CACHE | cpu as u64
}
/// The location that stands for a frame's owner.
fn owner(frame: Frame) -> u64 {
    OWNER | frame.get()
}
/// The location that stands for what 2 MiB of kernel addresses mean.
fn meaning(va: Va) -> u64 {
    MEANING | va.get() >> 21
}
/// What kernel addresses mean is about to change.
fn touches_meaning(range: VaRange) {
    let first = meaning(range.start());
    let last = meaning(Va::new(range.end().get() - 1));
    match last.wrapping_sub(first) < TOLD {
        true => engine::touches((first..=last).map(write)),
        false => engine::touches_everything(),
    }
}
/// The same of all that an invalidation lists.
fn touches_listed(what: &Invalidation) {
    match (what.scope(), what.reach()) {
        (Scope::Space(_), _) => {}
        (Scope::Kernel, Reach::Items) => {
            what.items().iter().for_each(|item| touches_meaning(item.range));
        }
        (Scope::Kernel, Reach::All) => engine::touches_everything(),
    }
}

/// Where on the host some of the machine's memory lies.
#[derive(Clone, Copy)]
struct HostRange {
    host: usize,
    frames: FrameRange,
}

/// See the module's text.
pub(crate) struct Explored {
    pub(crate) sim: Sim,
    /// The CPUs that are asked, by ticket.
    asked: RefCell<HashMap<u64, CpuSet>>,
    roots: RefCell<Vec<Pa>>,
    /// Frames that a lane keeps a reference to.
    pub(crate) kept: RefCell<HashSet<Frame>>,
    flaw: Option<Flaw>,
    /// The CPU at work while no lane is.
    at_rest: Cell<usize>,
    /// Whether the manager recounts itself.
    is_recount: Cell<bool>,
    /// The kernel's pages that the recount has read, by the last digits of their numbers, and where
    /// on the host they are.
    recounted: [Cell<(u64, usize)>; RECOUNTED],
}

// SAFETY: one thread has it (host::H1).
unsafe impl Sync for Explored {}

// These belong to the machine of this process: the function that hears of the manager's words knows
// no machine.
thread_local! {
    static MEMORY: RefCell<Vec<HostRange>> = const { RefCell::new(Vec::new()) };
    static FREE: RefCell<HashSet<Frame, Mixers>> = RefCell::default();
}

/// Pages of the kernel that a recount remembers.
const RECOUNTED: usize = 256;
const NO_PAGE: (u64, usize) = (u64::MAX, 0);

/// Where on the host a word of the machine's memory lies.
fn host_of(pa: Pa) -> Option<usize> {
    let frame = Frame::new(pa.get() / FRAME_BYTES);
    MEMORY.with_borrow(|memory| {
        let range = memory.iter().find(|range| range.frames.contains(frame))?;
        Some(range.host + (pa.get() - range.frames.start().pa().get()) as usize)
    })
}
/// The word there.
fn word_at(host: usize) -> u64 {
    // SAFETY: `host_of` found it in the machine's memory, which is mapped while the machine is
    // there.
    unsafe { core::ptr::with_exposed_provenance::<u64>(host).read_volatile() }
}

/// The physical address of a word of the machine's memory.
fn physical(at: usize) -> Option<Pa> {
    MEMORY.with_borrow(|memory| {
        memory.iter().find_map(|range| {
            let inside = at.checked_sub(range.host)? as u64;
            let pa = range.frames.start().pa();
            (inside < range.frames.pages().bytes().get()).then(|| Pa::new(pa.get() + inside))
        })
    })
}

/// The lane at work relies on it that this memory's owners stay what they are.
fn touches_owners(pa: Pa, bytes: Bytes) {
    engine::touches(frames(pa, bytes).map(|frame| read(OWNER | frame & !FRAME)));
}

/// What lanes of a scene share besides the machine is about to change.
pub(crate) fn touches_scene() {
    engine::touches([write(SCENE)]);
}

/// Hears of the manager's own words.
pub(crate) fn heard(at: usize, touch: Touch) {
    if engine::cpu().is_none() {
        return;
    }
    if touch == Touch::Written {
        return engine::changed();
    }
    let pa = physical(at);
    let location = pa.map_or(at as u64 / 8, word);
    engine::point(&[Touched { location, writes: touch == Touch::Write }]);
    if let Some(pa) = pa {
        not_free(pa, "a word");
    }
}

/// Fails where what is stated to be free is touched.
fn not_free(pa: Pa, what: &str) {
    engine::touches([read(owner(pa.frame()))]);
    let is_free = || FREE.with_borrow(|free| free.contains(&Frame::new(pa.get() / FRAME_BYTES)));
    if engine::cpu().is_some() && is_free() && !std::thread::panicking() {
        engine::fail_now(&format!("{what} of a free frame is touched"));
    }
}

impl Explored {
    pub(crate) fn new(sim: Sim, flaw: Option<Flaw>) -> Explored {
        let range = |frames: &FrameRange| {
            // SAFETY: nobody uses the memory yet.
            let host = unsafe { PhysMem::reach(&sim, frames.start().pa(), Bytes::new(8)) };
            HostRange { host: host.as_ptr() as usize, frames: *frames }
        };
        MEMORY.set(sim.config().memory.iter().map(range).collect());
        FREE.set(HashSet::default());
        let roots = vec![Pa::new(0); sim.config().cpus];
        Explored {
            sim,
            asked: RefCell::default(),
            roots: RefCell::new(roots),
            kept: RefCell::default(),
            flaw,
            at_rest: Cell::new(0),
            is_recount: Cell::new(false),
            recounted: [const { Cell::new(NO_PAGE) }; RECOUNTED],
        }
    }
    /// The CPU at work.
    pub(crate) fn cpu(&self) -> usize {
        engine::cpu().unwrap_or(self.at_rest.get())
    }
    /// Does `work`, a recount, which reads all descriptors: a page of them is translated when it is
    /// read first, as the CPU would do it.
    pub(crate) fn recount<R>(&self, work: impl FnOnce() -> R) -> R {
        self.is_recount.set(true);
        let done = work();
        self.is_recount.set(false);
        self.forget();
        done
    }
    fn forget(&self) {
        self.recounted.iter().for_each(|page| page.set(NO_PAGE));
    }
    fn recounted(&self, va: Va) -> &Cell<(u64, usize)> {
        &self.recounted[(va.get() / FRAME_BYTES) as usize % RECOUNTED]
    }
    /// A word of a page that the recount has read before.
    fn read_again(&self, va: Va) -> Option<u64> {
        let (page, host) = self.recounted(va).get();
        (page == va.get() / FRAME_BYTES).then(|| word_at(host + (va.get() % FRAME_BYTES) as usize))
    }
    /// Notes where the CPU has just read a page.
    fn note_read(&self, va: Va) {
        let offset = |entry: &Cached| va.get().wrapping_sub(entry.va.get());
        let covers = |entry: &Cached| !entry.table && offset(entry) < entry.bytes();
        let entry = self.cached(self.cpu()).into_iter().find(covers);
        let host = entry.and_then(|entry| host_of(entry.base.add(offset(&entry))));
        if let Some(host) = host {
            let inside = va.get() % FRAME_BYTES;
            self.recounted(va).set((va.get() / FRAME_BYTES, host - inside as usize));
        }
    }
    /// Does `work` as the CPU at work.
    pub(crate) fn inside<R>(&self, work: impl FnOnce() -> R) -> R {
        self.sim.on(Cpu(self.cpu() as u16), work)
    }
    /// Does `work` as a CPU while no lane is at work.
    pub(crate) fn on<R>(&self, cpu: usize, work: impl FnOnce() -> R) -> R {
        let before = self.at_rest.replace(cpu);
        let done = work();
        self.at_rest.set(before);
        done
    }
    /// The user root that a CPU runs.
    pub(crate) fn root(&self, cpu: usize) -> Pa {
        self.roots.borrow()[cpu]
    }
    /// A lane has a reference to these from now on.
    pub(crate) fn keep(&self, folio: FrameRange) {
        engine::touches(folio.iter().map(owner).map(write));
        self.kept.borrow_mut().extend(folio.iter());
    }
    /// The lane has none any more.
    pub(crate) fn let_go(&self, folio: FrameRange) {
        folio.iter().for_each(|frame| _ = self.kept.borrow_mut().remove(&frame));
    }
    /// A word of memory, unseen by the checkers.
    pub(crate) fn peek(&self, pa: Pa) -> Option<u64> {
        host_of(pa).map(word_at)
    }
    pub(crate) fn is_free(&self, frame: Frame) -> bool {
        FREE.with_borrow(|free| free.contains(&frame))
    }
    /// A program is about to touch memory: these words are walked, and this frame is reached, if it
    /// is.
    pub(crate) fn program(&self, walked: &[(Pa, bool)], reached: Option<Pa>, writes: bool) {
        let mut touched = vec![write(cache(self.cpu()))];
        touched.extend(walked.iter().map(|&(pa, is_leaf)| Touched {
            location: word(pa),
            writes: is_leaf, // the bits that a walk sets
        }));
        touched.extend(reached.map(|pa| Touched { location: frame(pa), writes }));
        engine::point(&touched);
        engine::touches(reached.map(|pa| read(owner(pa.frame()))));
    }
    pub(crate) fn cached(&self, cpu: usize) -> Vec<Cached> {
        self.sim.cached(Cpu(cpu as u16))
    }
}

// SAFETY: everything is the inner machine's.
unsafe impl Around for Explored {
    type Inner = Sim;
    fn inner(&self) -> &Sim {
        &self.sim
    }
    unsafe fn reach(&self, pa: Pa, bytes: Bytes) -> NonNull<u8> {
        // SAFETY: the caller's promise.
        self.inside(|| unsafe { PhysMem::reach(&self.sim, pa, bytes) })
    }
    unsafe fn load(&self, pa: Pa) -> u64 {
        if engine::cpu().is_none()
            && let Some(word) = self.peek(pa)
        {
            return word; // no checker sees loads: the judge's need not be simulated
        }
        engine::point(&[read(word(pa))]);
        not_free(pa, "a word");
        // SAFETY: the caller's promise.
        self.inside(|| unsafe { PhysMem::load(&self.sim, pa) })
    }
    unsafe fn store(&self, pa: Pa, new: u64) {
        engine::point(&[write(word(pa))]);
        not_free(pa, "a word");
        // SAFETY: the caller's promise.
        self.inside(|| unsafe { PhysMem::store(&self.sim, pa, new) });
        engine::changed();
    }
    unsafe fn compare_exchange(&self, pa: Pa, old: u64, new: u64) -> Result<u64, u64> {
        engine::point(&[write(word(pa))]);
        not_free(pa, "a word");
        // SAFETY: the caller's promise.
        let done = self.inside(|| unsafe { PhysMem::compare_exchange(&self.sim, pa, old, new) });
        if done.is_ok() {
            engine::changed();
        }
        done
    }
    unsafe fn clear(&self, pa: Pa, bytes: Bytes, caching: Caching) {
        engine::point(&frames(pa, bytes).map(write).collect::<Vec<_>>());
        touches_owners(pa, bytes);
        not_free(pa, "a word");
        // SAFETY: the caller's promise.
        self.inside(|| unsafe { PhysMem::clear(&self.sim, pa, bytes, caching) });
    }
    unsafe fn copy(&self, from: Pa, to: Pa, bytes: Bytes) {
        let touched = frames(from, bytes).map(read).chain(frames(to, bytes).map(write));
        engine::point(&touched.collect::<Vec<_>>());
        touches_owners(from, bytes);
        touches_owners(to, bytes);
        not_free(from, "a copied word");
        not_free(to, "a word");
        // SAFETY: the caller's promise.
        self.inside(|| unsafe { PhysMem::copy(&self.sim, from, to, bytes) });
    }
    unsafe fn write(&self, pa: Pa, contents: &[u8]) {
        let bytes = Bytes::new(contents.len() as u64);
        engine::point(&frames(pa, bytes).map(write).collect::<Vec<_>>());
        touches_owners(pa, bytes);
        not_free(pa, "a word");
        // SAFETY: the caller's promise.
        self.inside(|| unsafe { PhysMem::write(&self.sim, pa, contents) });
    }
    unsafe fn kernel_load(&self, va: Va) -> Result<u64, KernelFault> {
        if self.is_recount.get()
            && let Some(word) = self.read_again(va)
        {
            return Ok(word);
        }
        engine::point(&[read(kernel(va))]);
        engine::touches([read(meaning(va))]);
        // SAFETY: the caller's promise.
        let read = self.inside(|| unsafe { KernelVa::kernel_load(&self.sim, va) })?;
        if self.is_recount.get() {
            self.note_read(va);
        }
        Ok(read)
    }
    unsafe fn kernel_store(&self, va: Va, new: u64) -> Result<(), KernelFault> {
        engine::point(&[write(kernel(va))]);
        engine::touches([read(meaning(va))]);
        // SAFETY: the caller's promise.
        let done = self.inside(|| unsafe { KernelVa::kernel_store(&self.sim, va, new) });
        engine::changed();
        done
    }
    unsafe fn kernel_compare_exchange(
        &self,
        va: Va,
        old: u64,
        new: u64,
    ) -> Result<Result<u64, u64>, KernelFault> {
        engine::point(&[write(kernel(va))]);
        engine::touches([read(meaning(va))]);
        // SAFETY: the caller's promise.
        let done =
            self.inside(|| unsafe { KernelVa::kernel_compare_exchange(&self.sim, va, old, new) });
        if let Ok(Ok(_)) = done {
            engine::changed();
        }
        done
    }
    unsafe fn kernel_fill(
        &self,
        va: Va,
        stride: Bytes,
        count: u64,
        new: u64,
    ) -> Result<(), KernelFault> {
        let places = || (0..count).map(|n| va.add(n * stride.get()));
        engine::point(&places().map(|va| write(kernel(va))).collect::<Vec<_>>());
        engine::touches(places().map(|va| read(meaning(va))));
        // SAFETY: the caller's promise.
        let done =
            self.inside(|| unsafe { KernelVa::kernel_fill(&self.sim, va, stride, count, new) });
        engine::changed();
        done
    }
    fn activate(&self, root: Root, kept: Kept) {
        let me = self.cpu();
        engine::point(&[write(cache(me))]);
        self.roots.borrow_mut()[me] = root.user;
        self.inside(|| self.sim.activate(root, kept));
    }
    fn invalidate(&self, what: &Invalidation) {
        self.forget();
        engine::point(&[write(cache(self.cpu()))]);
        touches_listed(what);
        self.inside(|| self.sim.invalidate(what));
    }
    fn ask(&self, cpus: &CpuSet, what: &Invalidation) -> Ticket {
        engine::touches(cpus.iter().map(|cpu| write(cache(cpu.index()))));
        touches_listed(what);
        let ticket = self.inside(|| self.sim.ask(cpus, what));
        self.asked.borrow_mut().insert(ticket.number(), *cpus);
        ticket
    }
    fn wait(&self, ticket: Ticket) {
        self.forget();
        let asked = self.asked.borrow().get(&ticket.number()).copied();
        let caches = asked.iter().flat_map(CpuSet::iter).map(|cpu| write(cache(cpu.index())));
        engine::point(&caches.collect::<Vec<_>>());
        match self.flaw.filter(|_| engine::cpu().is_some()) {
            Some(Flaw::NoWait) => return,
            Some(Flaw::Aborts) => std::process::abort(),
            None => {}
        }
        self.inside(|| self.sim.wait(ticket));
        engine::changed();
    }
    fn me(&self) -> Cpu {
        Cpu(self.cpu() as u16)
    }
    fn pinned<R>(&self, work: impl FnOnce(Cpu) -> R) -> R {
        work(Cpu(self.cpu() as u16))
    }
    fn relax(&self) {
        engine::touches([write(cache(self.cpu()))]);
        self.inside(|| Cpus::relax(&self.sim));
        engine::relax();
    }
    fn now(&self) -> Nanos {
        self.inside(|| Clock::now(&self.sim))
    }
    fn yield_now(&self) {
        self.inside(|| Clock::yield_now(&self.sim));
        engine::yielded();
    }
    fn owned(&self, frames: FrameRange, owner: Owner) {
        match frames.pages().get() <= TOLD {
            true => engine::touches(frames.iter().map(self::owner).map(write)),
            false => engine::touches_everything(),
        }
        FREE.with_borrow_mut(|free| match owner {
            Owner::Free => free.extend(frames.iter()),
            _ => frames.iter().for_each(|frame| {
                free.remove(&frame);
            }),
        });
        let is_kept = || frames.iter().any(|frame| self.kept.borrow().contains(&frame));
        if owner == Owner::Free && engine::cpu().is_some() && is_kept() {
            engine::fail_now("a frame is given back to which somebody has a reference");
        }
        self.inside(|| self.sim.owned(frames, owner));
    }
    fn retired(&self, range: VaRange, how: Retired) {
        touches_meaning(range);
        self.inside(|| self.sim.retired(range, how));
    }
    fn refusal(&self) -> Refusal {
        match engine::refuses() {
            true => Refusal::Refuse,
            false => self.inside(|| self.sim.refusal()),
        }
    }
}
