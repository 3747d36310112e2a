//! A machine that misbehaves in one way: every contract call goes to the simulated machine, but for
//! the planted bug, which is asked at each.
//!
//! A list of checks that cannot fail proves nothing, so for each thing that a checker is for there
//! is a bug that it must catch.
//!
//! **Invariants**
//! - B1. Without a plant it is the machine itself: no call is changed or left out, and none is
//!   added but those of a program beside.
//! - B2. What it does depends on the seed and on the calls made, so a history with a plant replays.
//! - B3. A bug decides by its own fields alone and by [`Saboteur::strikes`]: so it does nothing
//!   before the history begins, and the report says how often it struck.
//!
//! **Not here**: what each bug does (`plants`).
//!
//! **Locking**: `state` is a leaf lock, never held over a call to the machine: the baton may change
//! hands in one.
#![allow(unsafe_code)]

use crate::beside::{Beside, Did, While};
use crate::bits::{is_leaf, is_migration};
use crate::kinds::{Format, Live, Sizes, Style};
use crate::rng::Rng;
use crate::tasks::{Copied, Job, Jobs, PutOff, Task};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use foliant_machine::{
    Around, Caching, Cpus, Invalidation, Kept, KernelVa, Owner, PhysMem, Root, Scope, Ticket, Tlb,
    Witness,
};
use foliant_sim::Sim;
use foliant_units::{Bytes, CpuSet, FrameRange, Pa, Va};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So many words are read and written in a history with a bug at most, a write counted as `WRITE`
/// of them: many times those of a long one.
const WORDS_MAX: u64 = 40_000_000;
const WRITE: u64 = 10;

/// Work that moves folios.
pub(crate) const MOVES: [Task; 3] = [Task::Relocate, Task::Compact, Task::Collapse];
/// Of these, the work that gives back each folio's memory by itself.
pub(crate) const ALONE: [Task; 2] = [Task::Relocate, Task::Collapse];
/// How often others go on before a copy that comes too late.
const DAWDLE: usize = 20;

/// What a planted bug is and does; what it leaves out is as in [`SOUND`].
pub(crate) struct Bug {
    /// On the command line.
    pub(crate) name: &'static str,
    /// What is wrong, in one line.
    pub(crate) about: &'static str,
    /// The checker that must see it.
    pub(crate) checker: &'static str,
    /// It strikes once in so many opportunities.
    pub(crate) once_in: u32,
    /// What CPUs share where it has its chance, if that matters.
    pub(crate) style: Option<Style>,
    /// The page-table format where it has.
    pub(crate) format: Format,
    /// The rules about live entries where it has.
    pub(crate) live: Live,
    /// The sizes of folios where it has.
    pub(crate) sizes: Sizes,
    /// What is read where a word is.
    pub(crate) loaded: fn(&Saboteur<'_>, u64) -> u64,
    /// What is written, by a store or an exchange, where the first word is and the second is asked
    /// for.
    pub(crate) word: fn(&Saboteur<'_>, u64, u64) -> u64,
    /// The same by a store alone, at this address.
    pub(crate) stored: fn(&Saboteur<'_>, Pa, u64, u64) -> u64,
    /// Whether a leaf is not replaced by the migration entry that is asked for.
    pub(crate) is_forgotten: fn(&Saboteur<'_>) -> bool,
    /// Whether an exchange that expects the first word goes on where it finds the second.
    pub(crate) is_expected: fn(&Saboteur<'_>, u64, u64) -> bool,
    /// How much of so many bytes is cleared.
    pub(crate) cleared: fn(&Saboteur<'_>, Bytes) -> Bytes,
    /// How many bytes are copied.
    pub(crate) copied: fn(&Saboteur<'_>, Copied) -> Bytes,
    /// Whether so much memory is said to hold zeros, which does or does not.
    pub(crate) looked: fn(&Saboteur<'_>, Pa, Bytes, bool) -> bool,
    /// What is kept where a root is loaded, unless it is not loaded.
    pub(crate) activated: fn(&Saboteur<'_>, Kept) -> Option<Kept>,
    /// What is invalidated on the CPU itself, if anything is.
    pub(crate) invalidated: fn(&Saboteur<'_>, &Invalidation) -> Option<Invalidation>,
    /// What other CPUs are asked for; it may leave some out.
    pub(crate) asked: fn(&Saboteur<'_>, &mut CpuSet, &Invalidation) -> Invalidation,
    /// Whether the wait for them returns at once; also whether it is for the kernel half.
    pub(crate) puts_off_wait: fn(&Saboteur<'_>, bool) -> bool,
    /// The frames that are stated to have this owner, if any are.
    pub(crate) owned: fn(&Saboteur<'_>, FrameRange, Owner) -> Option<FrameRange>,
    /// Whether a holder of kernel memory reads it after it gave it back.
    pub(crate) reads_after_free: fn(&Saboteur<'_>) -> bool,
}

/// No bug: a machine that does what it is asked for.
pub(crate) const SOUND: Bug = Bug {
    name: "",
    about: "",
    checker: "",
    once_in: 1,
    style: None,
    format: Format::X86Four,
    live: Live::Usual,
    sizes: Sizes::Any,
    loaded: |_, word| word,
    word: |_, _, new| new,
    stored: |_, _, _, new| new,
    is_forgotten: |_| false,
    is_expected: |_, _, _| false,
    cleared: |_, bytes| bytes,
    copied: |_, copied| copied.bytes,
    looked: |_, _, _, is_zero| is_zero,
    activated: |_, kept| Some(kept),
    invalidated: |_, what| Some(*what),
    asked: |_, _, what| *what,
    puts_off_wait: |_, _| false,
    owned: |_, frames, _| Some(frames),
    reads_after_free: |_| false,
};

/// See the module's text.
pub(crate) struct Saboteur<'s> {
    pub(crate) sim: &'s Sim,
    bug: Option<&'static Bug>,
    armed: AtomicBool,
    /// Words that were read and written with a bug planted, as [`WORDS_MAX`] counts them.
    words: AtomicU64,
    /// Whether there is a program beside.
    accompanied: AtomicBool,
    /// The history's own time.
    clock: AtomicU64,
    state: Mutex<State>,
}

pub(crate) struct State {
    rng: Rng,
    /// Tickets that the bug put off waiting for.
    owed: Vec<Ticket>,
    /// The last word stored, if no word was loaded since.
    pub(crate) leaf: (Pa, u64),
    /// Where the word is that is written.
    place: Pa,
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

impl<'s> Saboteur<'s> {
    pub(crate) fn new(sim: &'s Sim, bug: Option<&'static Bug>, seed: u64) -> Saboteur<'s> {
        let state = State {
            rng: Rng::new(seed, 2),
            owed: Vec::new(),
            leaf: (Pa::new(0), 0),
            place: Pa::new(0),
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
            bug,
            armed: AtomicBool::new(false),
            words: AtomicU64::new(0),
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
    /// say what was written to it, or still says what was taken out. What was found until then
    /// counts. One that goes round for ever behind a panic ends all: it is a defect of its own.
    fn has_patience(&self, words: u64) {
        let Some(bug) = self.bug else { return };
        let words = self.words.fetch_add(words, Ordering::Relaxed);
        let most = if std::thread::panicking() { 2 * WORDS_MAX } else { WORDS_MAX };
        if words > most {
            panic!("the manager does not come to an end with the bug {}", bug.name);
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
    pub(crate) fn job<R>(&self, tasks: &[Task], of: impl FnOnce(&mut Job) -> R) -> Option<R> {
        let me = self.sim.me();
        self.state().jobs.of(me, tasks).map(of)
    }
    /// How often the bug struck.
    pub(crate) fn struck(&self) -> u64 {
        self.state().struck
    }
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
    /// Whether the bug may strike.
    pub(crate) fn is_armed(&self) -> bool {
        self.armed.load(Ordering::Relaxed)
    }
    /// Whether the bug strikes now.
    pub(crate) fn strikes(&self) -> bool {
        let Some(bug) = self.bug.filter(|_| self.is_armed()) else { return false };
        let mut state = self.state();
        let now = state.rng.once_in(bug.once_in);
        state.struck += u64::from(now);
        now
    }
    /// The same, where the calling CPU is at one of `tasks`.
    pub(crate) fn strikes_in(&self, tasks: &[Task]) -> bool {
        self.is_armed() && self.job(tasks, |_| ()).is_some() && self.strikes()
    }
    /// A number below this one, by chance.
    pub(crate) fn draw_below(&self, most: u64) -> u64 {
        self.state().rng.below(most)
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
    /// The kernel reads a word of a page that it keeps, and writes it.
    pub(crate) fn direct(&self, pa: Pa, stored: Option<u64>) -> u64 {
        // SAFETY: the caller keeps the page, so the word is there.
        let word = unsafe { self.sim.reach(pa, Bytes::new(8)) }.cast::<u64>();
        // SAFETY: as above; no other CPU goes on meanwhile.
        let found = unsafe { word.read_volatile() };
        if let Some(stored) = stored {
            // SAFETY: as above.
            unsafe { word.write_volatile(stored) };
        }
        found
    }
    /// Whether the caller reads what it gave back: the bug planted.
    pub(crate) fn reads_after_free(&self) -> bool {
        self.bug.is_some_and(|bug| (bug.reads_after_free)(self))
    }
    /// The calling CPU is about to fold the pages with these links, or is done.
    pub(crate) fn folding(&self, links: Vec<Va>) {
        let me = self.sim.me();
        self.state().folding.insert(me.0, links);
    }
    /// Writes as a holder that does not wait for the end of the fold.
    pub(crate) fn write_in_window(&self) {
        let me = self.sim.me();
        let links = self.state().folding.get(&me.0).cloned().unwrap_or_default();
        for va in links {
            let value = self.state().rng.draw() >> 1;
            self.write_link(va, value);
        }
    }
    fn pay(&self) {
        let owed = core::mem::take(&mut self.state().owed);
        owed.into_iter().for_each(|ticket| self.sim.wait(ticket));
    }

    /// Whether the frames, which are `owner`'s from now on, were of this kind and are free.
    pub(crate) fn is_no_more(&self, frames: FrameRange, owner: Owner, kind: Owner) -> bool {
        let first = frames.start().get();
        let was = match owner {
            Owner::Table | Owner::Records => self.state().own.insert(first, owner),
            _ => self.state().own.remove(&first),
        };
        owner == Owner::Free && was == Some(kind)
    }
    /// Whether the word that is written is in another table than the first of the calling CPU's
    /// task, if it is at one of `tasks`: an object's own table comes before those of who maps it.
    pub(crate) fn is_of_another_table(&self, tasks: &[Task]) -> bool {
        let table = self.state().place.frame();
        let is_other = |job: &mut Job| *job.first.get_or_insert(table) != table;
        self.job(tasks, is_other).unwrap_or(false)
    }
    /// Whether the calling CPU has made migration entries and put none back since.
    pub(crate) fn is_taking(&self) -> bool {
        let me = self.sim.me();
        self.state().taking.contains(&me.0)
    }
    /// What is really written where `old` is and `new` is asked for.
    fn written(&self, bug: &Bug, pa: Pa, old: u64, new: u64) -> u64 {
        self.state().place = pa;
        if is_migration(old) && is_leaf(new) {
            let me = self.sim.me();
            self.state().taking.remove(&me.0);
        }
        (bug.word)(self, old, new)
    }
    /// Writes what was written wrong as it should be, before the manager comes across it.
    fn catch_up(&self) {
        let wrong = self.job(&ALONE, |job| core::mem::take(&mut job.wrong)).unwrap_or_default();
        for (pa, word) in wrong {
            // SAFETY: it is a word of a table that maps pages which are being moved.
            unsafe { self.sim.store(pa, word) };
        }
    }
    /// Makes the copies that were put off; programs were let at the memory before.
    fn copy_late(&self) {
        let late = self.job(&MOVES, |job| core::mem::take(&mut job.late)).unwrap_or_default();
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
        let late = self
            .job(&[Task::Collapse], |job| core::mem::take(&mut job.put_off))
            .unwrap_or_default();
        for PutOff { what, cpus } in late {
            self.sim.invalidate(&what);
            self.sim.wait(self.sim.ask(&cpus, &what));
        }
    }

    /// `what`, or where the bug strikes what it makes of it, if that is less.
    pub(crate) fn narrowed(
        &self,
        what: &Invalidation,
        less: fn(&Invalidation) -> Invalidation,
    ) -> Invalidation {
        let less = less(what);
        let differs = less.reach() != what.reach() || less.items() != what.items();
        if differs && self.strikes() { less } else { *what }
    }
}

// SAFETY: every access is the simulated machine's.
unsafe impl Around for Saboteur<'_> {
    type Inner = Sim;

    fn inner(&self) -> &Sim {
        self.sim
    }
    unsafe fn load(&self, pa: Pa) -> u64 {
        // SAFETY: the caller's promise, handed on.
        let word = unsafe { self.sim.load(pa) };
        self.has_patience(1);
        self.bug.map_or(word, |bug| (bug.loaded)(self, word))
    }
    unsafe fn store(&self, pa: Pa, word: u64) {
        self.has_patience(WRITE);
        self.meanwhile(While::Word);
        let word = self.bug.map_or(word, |bug| {
            // SAFETY: the word that is about to be written is there to be read.
            let old = unsafe { self.sim.load(pa) };
            let word = self.written(bug, pa, old, word);
            (bug.stored)(self, pa, old, word)
        });
        // SAFETY: the caller's promise, handed on.
        unsafe { self.sim.store(pa, word) }
    }
    unsafe fn compare_exchange(&self, pa: Pa, old: u64, new: u64) -> Result<u64, u64> {
        self.has_patience(WRITE);
        self.meanwhile(While::Word);
        let Some(bug) = self.bug else {
            // SAFETY: the caller's promise, handed on.
            return unsafe { self.sim.compare_exchange(pa, old, new) };
        };
        let new = self.written(bug, pa, old, new);
        if is_leaf(old) && is_migration(new) {
            if (bug.is_forgotten)(self) {
                return Ok(old);
            }
            let me = self.sim.me();
            self.state().taking.insert(me.0);
        }
        // SAFETY: the caller's promise, handed on.
        let done = unsafe { self.sim.compare_exchange(pa, old, new) };
        match done {
            Err(found) if (bug.is_expected)(self, old, found) => {
                // SAFETY: the caller's promise, handed on.
                unsafe { self.sim.compare_exchange(pa, found, new) }.map(|_| old)
            }
            done => done,
        }
    }
    unsafe fn clear(&self, pa: Pa, bytes: Bytes, caching: Caching) {
        let bytes = self.bug.map_or(bytes, |bug| (bug.cleared)(self, bytes));
        if bytes.get() > 0 {
            // SAFETY: the caller's promise, handed on.
            unsafe { self.sim.clear(pa, bytes, caching) }
        }
    }
    unsafe fn copy(&self, from: Pa, to: Pa, bytes: Bytes) {
        let copied = Copied { from, to, bytes };
        let bytes = self.bug.map_or(bytes, |bug| (bug.copied)(self, copied));
        if bytes.get() == 0 {
            return;
        }
        // SAFETY: the caller's promise, handed on.
        unsafe { self.sim.copy(from, to, bytes) }
        self.beside(|beside| beside.copied(copied));
        self.meanwhile(While::Copied);
    }
    unsafe fn is_zero(&self, pa: Pa, bytes: Bytes) -> bool {
        // SAFETY: the caller's promise, handed on.
        let is_zero = unsafe { self.sim.is_zero(pa, bytes) };
        let is_zero = self.bug.map_or(is_zero, |bug| (bug.looked)(self, pa, bytes, is_zero));
        self.beside(|beside| beside.looked(pa.frame().pa()));
        self.meanwhile(While::Looked);
        is_zero
    }
    fn activate(&self, root: Root, kept: Kept) {
        self.beside(|beside| beside.activates(self.sim.me(), root.user));
        if let Some(kept) = self.bug.map_or(Some(kept), |bug| (bug.activated)(self, kept)) {
            self.sim.activate(root, kept);
        }
    }
    fn invalidate(&self, what: &Invalidation) {
        self.meanwhile(While::Flush);
        if let Some(what) = self.bug.map_or(Some(*what), |bug| (bug.invalidated)(self, what)) {
            self.sim.invalidate(&what);
        }
    }
    fn ask(&self, cpus: &CpuSet, what: &Invalidation) -> Ticket {
        self.pay();
        self.meanwhile(While::Flush);
        let Some(bug) = self.bug else { return self.sim.ask(cpus, what) };
        let (mut cpus, is_kernel) = (*cpus, what.scope() == Scope::Kernel);
        let what = (bug.asked)(self, &mut cpus, what);
        let ticket = self.sim.ask(&cpus, &what);
        if is_kernel {
            self.state().kernel.insert(ticket.number());
        }
        ticket
    }
    fn wait(&self, ticket: Ticket) {
        self.pay();
        self.meanwhile(While::Flush);
        let is_kernel = self.state().kernel.remove(&ticket.number());
        if self.bug.is_some_and(|bug| (bug.puts_off_wait)(self, is_kernel)) {
            self.state().owed.push(ticket);
            return;
        }
        self.sim.wait(ticket);
    }
    fn owned(&self, frames: FrameRange, owner: Owner) {
        let Some(bug) = self.bug else { return self.sim.owned(frames, owner) };
        if owner == Owner::Free {
            self.flush_late();
        }
        if owner == Owner::Claimed {
            self.copy_late();
        }
        let Some(frames) = (bug.owned)(self, frames, owner) else { return };
        self.sim.owned(frames, owner);
        if owner == Owner::Free {
            self.catch_up();
        }
    }
}
