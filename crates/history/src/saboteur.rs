//! A machine that misbehaves in one way: every contract call goes to the simulated machine, but for
//! the planted bug.
//!
//! **Invariants**
//! - B1. Without a plant it is the machine itself: no call is changed or left out, and none is
//!   added but those of a program beside.
//! - B2. What it does depends on the seed and on the calls made, so a history with a plant replays.
//!
//! **Locking**: `state` is a leaf lock, never held over a call to the machine: the baton may change
//! hands in one.
#![allow(unsafe_code)]

use crate::beside::{Beside, Did, While};
use crate::plant::Plant;
use crate::rng::Rng;
use crate::tasks::{Copied, Job, Jobs, PutOff, Task};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use foliant_machine::{
    Around, Caching, Cpus, Invalidation, Item, Kept, KernelVa, Owner, PhysMem, Reach, Root, Scope,
    Tables, Ticket, Tlb, Witness,
};
use foliant_sim::Sim;
use foliant_units::{Bytes, CpuSet, FrameRange, Level, Pa, Pages, Va, VaRange};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

// Bits of an x86-64 leaf. A user leaf that is not executable is told from a table word by NX.
/// So many words of tables are written in a history with a bug at most: many times those of a long
/// one.
const WRITES_MAX: u64 = 4_000_000;
const PRESENT: u64 = 1;
const WRITE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const LARGE: u64 = 1 << 7;
const NX: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// Software bit of the shared zero page.
const SPECIAL: u64 = 1 << 55;

// Bits of an aarch64 page: writable, and one of a group of sixteen.
const DBM: u64 = 1 << 51;
const CONTIGUOUS: u64 = 1 << 52;
/// In a word that is out of use: the leaf that it stands for was one of a group.
const WAS_GROUPED: u64 = 1 << (6 + 44 + 4);
/// Bytes of a group.
const GROUP: u64 = 64 << 10;

/// Work that moves folios.
const MOVES: [Task; 3] = [Task::Relocate, Task::Compact, Task::Collapse];
/// Of these, the work that gives back each folio's memory by itself.
const ALONE: [Task; 2] = [Task::Relocate, Task::Collapse];
/// How often others go on before a copy that comes too late.
const DAWDLE: usize = 20;

/// Whether a word is a migration entry.
fn is_migration(word: u64) -> bool {
    word & PRESENT == 0 && word >> 1 & 31 == 3
}

/// See the module's text.
pub(crate) struct Saboteur<'s> {
    sim: &'s Sim,
    plant: Option<Plant>,
    armed: AtomicBool,
    /// Words of tables that were written with a bug planted.
    writes: AtomicU64,
    /// Whether there is a program beside.
    accompanied: AtomicBool,
    /// The history's own time.
    clock: AtomicU64,
    state: Mutex<State>,
}

struct State {
    rng: Rng,
    /// Tickets that the bug put off waiting for.
    owed: Vec<Ticket>,
    /// The last word stored, if no word was loaded since.
    leaf: (Pa, u64),
    struck: u64,
    /// Tickets of requests for the kernel half.
    kernel: BTreeSet<u64>,
    /// What holders of huge pages wrote last, and where.
    links: BTreeMap<u64, u64>,
    /// The links of the pages that a CPU is folding.
    folding: BTreeMap<u16, Vec<Va>>,
    /// CPUs that have made migration entries since they put some back.
    taking: BTreeSet<u16>,
    /// The first frames of what is stated to be a table or a record.
    own: BTreeMap<u64, Owner>,
    jobs: Jobs,
    beside: Option<Beside>,
}

fn is_leaf(word: u64) -> bool {
    word & (PRESENT | USER | NX) == PRESENT | USER | NX
}

impl<'s> Saboteur<'s> {
    pub(crate) fn new(sim: &'s Sim, plant: Option<Plant>, seed: u64) -> Saboteur<'s> {
        let state = State {
            rng: Rng::new(seed, 2),
            owed: Vec::new(),
            leaf: (Pa::new(0), 0),
            struck: 0,
            kernel: BTreeSet::new(),
            links: BTreeMap::new(),
            folding: BTreeMap::new(),
            taking: BTreeSet::new(),
            own: BTreeMap::new(),
            jobs: Jobs::default(),
            beside: None,
        };
        Saboteur {
            sim,
            plant,
            armed: AtomicBool::new(false),
            writes: AtomicU64::new(0),
            accompanied: AtomicBool::new(false),
            clock: AtomicU64::new(1),
            state: Mutex::new(state),
        }
    }
    /// The next moment of the history's own time.
    pub(crate) fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }
    /// From now on there is a program beside; it is stopped.
    pub(crate) fn accompany(&self, beside: Beside) {
        self.state().beside = Some(beside);
        self.accompanied.store(true, Ordering::Relaxed);
    }
    /// Asks something of the program beside.
    pub(crate) fn beside<R: Default>(&self, ask: impl FnOnce(&mut Beside) -> R) -> R {
        match self.accompanied.load(Ordering::Relaxed) {
            true => self.state().beside.as_mut().map(ask).unwrap_or_default(),
            false => R::default(),
        }
    }
    /// What the program beside did since this was last asked.
    pub(crate) fn done_beside(&self) -> Vec<Did> {
        self.beside(Beside::take_log)
    }
    /// The program beside goes on, if chance will have it.
    fn meanwhile(&self, place: While) {
        let Some(cpu) = self.beside(|beside| beside.starts(place)) else { return };
        let cached = self.sim.cached(cpu);
        let next = self.beside(|beside| beside.next(&cached));
        let access = |(va, stored): (Va, Option<u64>)| match stored {
            Some(value) => self.sim.user_store(va, 8, value).ok().map(|()| value),
            None => self.sim.user_load(va, 8).ok(),
        };
        let got = self.sim.on(cpu, || next.and_then(access));
        let at = self.tick();
        self.beside(|beside| beside.made(next, got, at));
    }
    /// From now on the bug may strike.
    pub(crate) fn arm(&self) {
        self.armed.store(true, Ordering::Relaxed);
    }
    /// Ends a history in which the manager goes round for ever, as it may where a table does not
    /// say what was written to it. What was found until then counts.
    fn has_patience(&self) {
        let writes = self.plant.map_or(0, |_| self.writes.fetch_add(1, Ordering::Relaxed));
        if writes > WRITES_MAX && !std::thread::panicking() {
            panic!("the manager does not come to an end with the bug that is planted");
        }
    }
    /// Runs `work` as a task of the calling CPU's.
    pub(crate) fn during<R>(&self, task: Task, work: impl FnOnce() -> R) -> R {
        let me = self.sim.me();
        self.state().jobs.begin(me, task);
        let result = work();
        self.copy_late();
        self.flush_late();
        self.catch_up();
        self.state().jobs.end(me);
        result
    }
    /// What `of` gives for the task of the calling CPU, if it is one of `tasks`.
    fn at<R>(&self, tasks: &[Task], of: impl FnOnce(&mut Job) -> R) -> Option<R> {
        let me = self.sim.me();
        self.state().jobs.of(me, tasks).map(of)
    }
    /// Whether `plant`, a bug of `tasks`, strikes now.
    fn strikes_at(&self, plant: Plant, tasks: &[Task]) -> bool {
        self.is(plant) && self.at(tasks, |_| ()).is_some() && self.strikes(plant)
    }
    /// How often the bug struck.
    pub(crate) fn struck(&self) -> u64 {
        self.state().struck
    }
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Whether `plant` is the bug.
    fn is(&self, plant: Plant) -> bool {
        self.plant == Some(plant) && self.armed.load(Ordering::Relaxed)
    }
    /// Whether `plant` strikes now.
    fn strikes(&self, plant: Plant) -> bool {
        if !self.is(plant) {
            return false;
        }
        let mut state = self.state();
        let now = state.rng.once_in(plant.once_in());
        state.struck += u64::from(now);
        now
    }
    /// A holder of a huge page writes its link.
    pub(crate) fn write_link(&self, va: Va, value: u64) {
        self.state().links.insert(va.get(), value);
        // SAFETY: the word is in the descriptor of a page that the caller holds.
        unsafe { self.sim.kernel_store(va, value) }.expect("descriptors of a huge page are mapped");
    }
    /// What a link says on the calling CPU, and what was written.
    pub(crate) fn read_link(&self, va: Va) -> (u64, u64) {
        // SAFETY: as above.
        let found = unsafe { self.sim.kernel_load(va) };
        let written = self.state().links.get(&va.get()).copied();
        (found.unwrap_or_default(), written.unwrap_or_default())
    }
    /// A holder of kernel memory stores to it; says whether the access went through.
    pub(crate) fn kernel_write(&self, va: Va, value: u64) -> bool {
        // SAFETY: the caller holds the area that the word lies in.
        unsafe { self.sim.kernel_store(va, value) }.is_ok()
    }
    /// A holder of kernel memory reads it.
    pub(crate) fn kernel_read(&self, va: Va) -> Option<u64> {
        // SAFETY: as above; or the caller's bug is the one that is planted.
        unsafe { self.sim.kernel_load(va) }.ok()
    }
    /// Whether the caller reads what it gave back: the bug planted.
    pub(crate) fn reads_after_free(&self) -> bool {
        self.strikes(Plant::UseAfterFree)
    }
    /// The calling CPU is about to fold the pages with these links, or is done.
    pub(crate) fn folding(&self, links: Vec<Va>) {
        let me = self.sim.me();
        self.state().folding.insert(me.0, links);
    }
    /// Writes as a holder that does not wait for the end of the fold.
    fn write_in_window(&self) {
        let me = self.sim.me();
        let links = self.state().folding.get(&me.0).cloned().unwrap_or_default();
        for va in links {
            let value = self.state().rng.draw() >> 1;
            self.write_link(va, value);
        }
    }
    fn pay(&self) {
        if self.is(Plant::FreeBeforeWait) || self.is(Plant::FreeBeforeFoldFlush) {
            let owed = core::mem::take(&mut self.state().owed);
            owed.into_iter().for_each(|ticket| self.sim.wait(ticket));
        }
    }

    /// What is really written where `old` stands and `new` is asked for.
    fn written(&self, old: u64, new: u64) -> u64 {
        if is_migration(old) && is_leaf(new) {
            let me = self.sim.me();
            self.state().taking.remove(&me.0);
            if new & DIRTY != 0 && self.strikes(Plant::LostDirtyMoved) {
                return new & !DIRTY;
            }
        }
        if !is_leaf(new) || new & SPECIAL != 0 {
            return new;
        }
        let same = is_leaf(old) && (old ^ new) & ADDRESS == 0;
        if same && old & DIRTY != 0 && new & DIRTY != 0 && self.strikes(Plant::LostDirty) {
            return new & !DIRTY;
        }
        if same && old & WRITE != 0 && new & WRITE == 0 && self.strikes(Plant::StaysWritable) {
            return new | WRITE;
        }
        new
    }

    /// A leaf written right behind the one before it, of the next frame, is of the same folio: it
    /// names the frame before.
    fn doubled(&self, pa: Pa, word: u64) -> u64 {
        let last = core::mem::replace(&mut self.state().leaf, (pa, word));
        let behind = pa.get() == last.0.get() + 8
            && word & ADDRESS == (last.1 & ADDRESS) + 4096
            && is_leaf(word)
            && word & LARGE == 0;
        if behind && self.strikes(Plant::DoubleMap) { word - 4096 } else { word }
    }

    /// What is really written at `pa` on a machine with groups. One word of each group is the one
    /// that is written wrong.
    fn in_group(&self, pa: Pa, old: u64, new: u64) -> u64 {
        let (was, is) = (old & PRESENT != 0, new & PRESENT != 0 && new & CONTIGUOUS != 0);
        if pa.get() / 8 % 16 != 5 || was || new & PRESENT == 0 {
            return new;
        }
        let is_apart = !is && old >> 1 & 31 == 4 && old & WAS_GROUPED != 0;
        let is_read_only = is && old >> 1 & 31 == 4 && new & DBM == 0;
        if is_read_only && self.strikes(Plant::GroupStaysWritable) {
            return new | DBM;
        }
        if is_apart && self.strikes(Plant::GroupBitStays) {
            return new | CONTIGUOUS;
        }
        if is && old == 0 && self.strikes(Plant::GroupWrongFrame) { new + 4096 } else { new }
    }

    /// Whether the frames, which are `owner`'s from now on, were a table or a record, and the bug
    /// hides that they are one no more.
    fn loses(&self, frames: FrameRange, owner: Owner) -> bool {
        let first = frames.start().get();
        let was = match owner {
            Owner::Table | Owner::Records => self.state().own.insert(first, owner),
            _ => self.state().own.remove(&first),
        };
        let lost = match was.filter(|_| owner == Owner::Free) {
            Some(Owner::Table) => Plant::LostTable,
            Some(_) => Plant::LostRecord,
            None => return false,
        };
        self.strikes(lost)
    }

    /// Whether the flush that the calling CPU is about to do is for migration entries, and is to be
    /// left out.
    fn skips_split(&self) -> bool {
        let me = self.sim.me();
        self.is(Plant::SkipSplitFlush)
            && self.state().taking.contains(&me.0)
            && self.strikes(Plant::SkipSplitFlush)
    }

    /// The leaf that is written: where it maps memory that was copied just now and the bug strikes,
    /// it maps the memory that this was copied from.
    fn left_behind(&self, pa: Pa, leaf: u64) -> u64 {
        let copied = self.at(&ALONE, |job| job.copied).flatten();
        let before = copied.and_then(|copied| copied.before(Pa::new(leaf & ADDRESS)));
        let Some(before) = before.filter(|_| self.strikes(Plant::LeftBehind)) else { return leaf };
        self.at(&ALONE, |job| job.wrong.push((pa, leaf)));
        leaf & !ADDRESS | before.get()
    }
    /// Writes what was written wrong as it should be, before the manager comes across it.
    fn catch_up(&self) {
        let wrong = self.at(&ALONE, |job| core::mem::take(&mut job.wrong)).unwrap_or_default();
        for (pa, word) in wrong {
            // SAFETY: it is a word of a table that maps pages which are being moved.
            unsafe { self.sim.store(pa, word) };
        }
    }
    /// Whether the flush of a table that a collapse took out is put off; `cpus` would have to be
    /// asked.
    fn puts_off(&self, what: &Invalidation, cpus: &CpuSet) -> bool {
        // A table goes with so many leaves that its flush may be one of everything. So may the
        // flush of the pages' moves, but those are under way then.
        let moves = self.state().taking.contains(&self.sim.me().0);
        let removed = what.items().iter().any(|item| item.tables == Tables::Removed)
            || (what.reach() == Reach::All && !moves);
        let put_off = PutOff { what: *what, cpus: *cpus };
        removed
            && self.strikes_at(Plant::LateCollapseFlush, &[Task::Collapse])
            && self.at(&[Task::Collapse], |job| job.put_off.push(put_off)).is_some()
    }
    /// Whether no CPU is asked to flush what a fork shares, or what a fault replaces.
    fn asks_nobody(&self) -> bool {
        self.strikes_at(Plant::SkipForkFlush, &[Task::Fork])
            || self.strikes_at(Plant::SkipCopyFlush, &[Task::Fault])
    }
    /// Makes the copies that were put off; programs were let at the memory before.
    fn copy_late(&self) {
        let late = self.at(&MOVES, |job| core::mem::take(&mut job.late)).unwrap_or_default();
        if !late.is_empty() {
            (0..DAWDLE).for_each(|_| self.sim.relax());
        }
        for Copied { from, to, bytes } in late {
            // SAFETY: both are the mover's to name; that programs have them by now is the bug that
            // is planted.
            unsafe { self.sim.copy(from, to, bytes) };
        }
    }
    /// Carries out what was put off.
    fn flush_late(&self) {
        let late =
            self.at(&[Task::Collapse], |job| core::mem::take(&mut job.put_off)).unwrap_or_default();
        for PutOff { what, cpus } in late {
            self.sim.invalidate(&what);
            self.sim.wait(self.sim.ask(&cpus, &what));
        }
    }

    /// What is carried out of `what`.
    fn narrowed(&self, what: &Invalidation) -> Invalidation {
        let (plant, less) = match self.plant {
            Some(plant @ Plant::TablesKept) => (plant, with_tables_kept(what)),
            Some(plant @ Plant::WrongLevel) => (plant, of_first_entries(what, |_| true)),
            Some(plant @ Plant::GroupOnePage) => (plant, of_first_entries(what, is_group)),
            _ => return *what,
        };
        let differs = less.reach() != what.reach() || less.items() != what.items();
        if differs && self.strikes(plant) { less } else { *what }
    }
}

/// The same, but for cached pointers to tables.
fn with_tables_kept(what: &Invalidation) -> Invalidation {
    let mut less = *what;
    if what.reach() == Reach::All {
        less = Invalidation::none(what.scope());
        for level in 0..3 {
            let range = VaRange::new(Va::new(0), Va::new(1 << 47)).unwrap_or_default();
            let _ = less.push(Item { range, level: Level(level), tables: Tables::Kept });
        }
    }
    less.items_mut().iter_mut().for_each(|item| item.tables = Tables::Kept);
    less
}

/// Whether it is for a group of pages and nothing else.
fn is_group(item: &Item) -> bool {
    let (start, bytes) = (item.range.start().get(), item.range.bytes().get());
    item.level == Level::BASE && bytes == GROUP && start.is_multiple_of(GROUP)
}

/// The same, but of each range that is `meant` only what its first entry maps.
fn of_first_entries(what: &Invalidation, meant: fn(&Item) -> bool) -> Invalidation {
    let mut less = *what;
    for item in less.items_mut().iter_mut().filter(|item| meant(item)) {
        let range = VaRange::sized(item.range.start(), item.level.span());
        item.range = range.unwrap_or(item.range);
    }
    less
}

// SAFETY: every access is the simulated machine's.
unsafe impl Around for Saboteur<'_> {
    type Inner = Sim;

    fn inner(&self) -> &Sim {
        self.sim
    }
    unsafe fn load(&self, pa: Pa) -> u64 {
        if self.is(Plant::DoubleMap) {
            self.state().leaf = (Pa::new(0), 0);
        }
        // SAFETY: the caller's promise, handed on.
        let word = unsafe { self.sim.load(pa) };
        if is_leaf(word) && self.strikes(Plant::StaleAccessed) { word & !ACCESSED } else { word }
    }
    unsafe fn store(&self, pa: Pa, word: u64) {
        self.has_patience();
        self.meanwhile(While::Word);
        let word = match self.plant {
            Some(Plant::DoubleMap) => self.doubled(pa, word),
            Some(plant) if plant.is_of_groups() => {
                // SAFETY: the word that is about to be written is there to be read.
                self.in_group(pa, unsafe { self.sim.load(pa) }, word)
            }
            // SAFETY: the word that is about to be written is there to be read.
            Some(_) => self.written(unsafe { self.sim.load(pa) }, word),
            None => word,
        };
        let word = if self.is(Plant::LeftBehind) { self.left_behind(pa, word) } else { word };
        // SAFETY: the caller's promise, handed on.
        unsafe { self.sim.store(pa, word) }
    }
    unsafe fn compare_exchange(&self, pa: Pa, old: u64, new: u64) -> Result<u64, u64> {
        self.has_patience();
        self.meanwhile(While::Word);
        let new = if self.plant.is_some() { self.written(old, new) } else { new };
        if self.plant.is_some() && is_leaf(old) && is_migration(new) {
            if self.strikes(Plant::ForgetMapping) {
                return Ok(old);
            }
            let me = self.sim.me();
            self.state().taking.insert(me.0);
        }
        // SAFETY: the caller's promise, handed on.
        let done = unsafe { self.sim.compare_exchange(pa, old, new) };
        match done {
            Err(found) if self.is(Plant::StaleAccessed) && found == old | ACCESSED => {
                // SAFETY: the caller's promise, handed on.
                unsafe { self.sim.compare_exchange(pa, found, new) }.map(|_| old)
            }
            done => done,
        }
    }
    unsafe fn clear(&self, pa: Pa, bytes: Bytes, caching: Caching) {
        let large = bytes.get() > 4096 && bytes.get() < Level::SIZE_2M.span().get();
        if self.strikes_at(Plant::IdleZero, &[Task::Idle]) {
            return;
        }
        if large && self.strikes(Plant::ForgetZero) {
            return;
        }
        // A huge page is cleared in parts around the page that was touched; one of them is almost
        // half of it.
        let far = bytes.get() > Level::SIZE_2M.span().get() / 4;
        if far && self.strikes(Plant::ForgetHugeZero) {
            return;
        }
        let half = large && self.strikes(Plant::HalfZero);
        let bytes = if half { Bytes::new(bytes.get() / 2) } else { bytes };
        // SAFETY: the caller's promise, handed on.
        unsafe { self.sim.clear(pa, bytes, caching) }
    }
    unsafe fn copy(&self, from: Pa, to: Pa, bytes: Bytes) {
        // A huge page is copied in parts, so that others run in between.
        let huge = bytes.get() >= Level::SIZE_2M.span().get() / 8;
        let copied = Copied { from, to, bytes };
        if self.strikes_at(Plant::LateCopy, &MOVES) {
            self.at(&MOVES, |job| job.late.push(copied));
            return;
        }
        let half = self.strikes(Plant::HalfCopy) || huge && self.strikes(Plant::HalfHugeCopy);
        let bytes = if half { Bytes::new(bytes.get() / 2) } else { bytes };
        // SAFETY: the caller's promise, handed on.
        unsafe { self.sim.copy(from, to, bytes) }
        self.beside(|beside| beside.copied(copied));
        self.meanwhile(While::Copied);
        if self.is(Plant::LeftBehind) {
            self.at(&ALONE, |job| job.copied = Some(copied));
        }
    }
    fn activate(&self, root: Root, kept: Kept) {
        self.beside(|beside| beside.activates(self.sim.me(), root.user));
        if self.strikes(Plant::SkipActivate) {
            return;
        }
        let stale = kept == Kept::Nothing && self.strikes(Plant::KeptUnasked);
        self.sim.activate(root, if stale { Kept::Unchanged } else { kept });
    }
    fn invalidate(&self, what: &Invalidation) {
        self.meanwhile(While::Flush);
        let kernel = what.scope() == Scope::Kernel;
        if kernel && (self.strikes(Plant::SkipFoldFlush) || self.strikes(Plant::SkipPurgeFlush)) {
            return;
        }
        if self.strikes(Plant::SkipLocalFlush) || self.strikes(Plant::NoBreak) || self.skips_split()
        {
            return;
        }
        if self.puts_off(what, &CpuSet::default()) {
            return;
        }
        self.sim.invalidate(&self.narrowed(what));
    }
    fn ask(&self, cpus: &CpuSet, what: &Invalidation) -> Ticket {
        self.pay();
        self.meanwhile(While::Flush);
        let mut cpus = *cpus;
        let kernel = what.scope() == Scope::Kernel;
        if kernel && self.strikes(Plant::WriteInWindow) {
            self.write_in_window();
        }
        if kernel && (self.strikes(Plant::SkipFoldFlush) || self.strikes(Plant::SkipPurgeFlush)) {
            cpus = CpuSet::default();
        }
        let skips = self.strikes(Plant::SkipRemoteFlush) || self.strikes(Plant::NoBreak);
        if skips || self.skips_split() || self.puts_off(what, &cpus) || self.asks_nobody() {
            cpus = CpuSet::default();
        }
        if !cpus.is_empty() && self.strikes(Plant::OneCpuTooFew) {
            let nth = self.state().rng.below(cpus.len() as u64) as usize;
            let spared = cpus.iter().nth(nth);
            spared.into_iter().for_each(|cpu| cpus.remove(cpu));
        }
        let ticket = self.sim.ask(&cpus, &self.narrowed(what));
        if kernel && self.is(Plant::FreeBeforeFoldFlush) {
            self.state().kernel.insert(ticket.number());
        }
        ticket
    }
    fn wait(&self, ticket: Ticket) {
        self.pay();
        self.meanwhile(While::Flush);
        let kernel = self.state().kernel.remove(&ticket.number());
        if self.strikes(Plant::FreeBeforeWait) || kernel && self.strikes(Plant::FreeBeforeFoldFlush)
        {
            self.state().owed.push(ticket);
            return;
        }
        self.sim.wait(ticket);
    }
    fn owned(&self, frames: FrameRange, owner: Owner) {
        if owner == Owner::Free && self.is(Plant::LateCollapseFlush) {
            self.flush_late();
        }
        if owner == Owner::Claimed && self.is(Plant::LateCopy) {
            self.copy_late();
        }
        match owner {
            _ if self.plant.is_some() && self.loses(frames, owner) => return,
            Owner::Free if self.strikes(Plant::Leak) => return,
            Owner::Free if self.strikes_at(Plant::IsolatedNotFreed, &[Task::Compact]) => return,
            Owner::Free if self.strikes(Plant::FreedTwice) => self.sim.owned(frames, owner),
            Owner::Claimed if self.strikes(Plant::UnstatedClaim) => return,
            Owner::Claimed if self.strikes(Plant::WideClaim) => {
                let twice = Pages::new(frames.pages().get() * 2);
                let wide = FrameRange::new(frames.start(), twice).unwrap_or(frames);
                return self.sim.owned(wide, owner);
            }
            _ => {}
        }
        self.sim.owned(frames, owner);
        if owner == Owner::Free && self.is(Plant::LeftBehind) {
            self.catch_up();
        }
    }
}
