//! The machine's contract as a table of function pointers, and the machine that calls them.
//!
//! **Invariants**
//! - T1. A table is looked at once, when a handle is made with it, and copied: what the C side does
//!   to its own copy later has no effect.
//! - T2. Each call of the contract is one call of the table's function, or what the table says
//!   stands in its place where it may be null.
#![allow(unsafe_code)]

use crate::refusal::Refusal;
use core::ffi::c_void;
use core::ptr::{self, NonNull};
use core::slice;
use core::sync::atomic::{AtomicU64, Ordering};
use foliant_machine::{
    Accessed, Caching, Clock, Cpus, Faults, Invalidation as What, Kept, KernelFault, KernelVa,
    MmuRules, Owner, PhysMem, Reach, Refusal as Allowed, Replace, Retired, Root, Scope,
    Tables as Went, Ticket, Tlb, Witness,
};
use foliant_units::{Bytes, CPUS_MAX, Cpu, FrameRange, Nanos, Pa, Va, VaRange};

/// A set of CPUs: bit b of word w is CPU 64 * w + b.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct CpuSet {
    /// The bits.
    pub words: [u64; 16],
}

impl CpuSet {
    fn of(set: &foliant_units::CpuSet) -> CpuSet {
        let mut words = [0; 16];
        words.iter_mut().zip(set.used()).for_each(|(word, used)| *word = *used);
        CpuSet { words }
    }
    /// The members below `count`.
    pub(crate) fn below(&self, count: usize) -> foliant_units::CpuSet {
        foliant_units::CpuSet::below(count, |word| self.words[word])
    }
    /// The first member from `count` on.
    pub(crate) fn beyond(&self, count: usize) -> Option<u32> {
        let all = self.below(CPUS_MAX);
        all.iter().find(|cpu| cpu.index() >= count).map(|cpu| u32::from(cpu.0))
    }
}

/// One range of translations to end.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Item {
    /// The first address, a multiple of the level's span.
    pub va: u64,
    /// How many bytes, a multiple of it.
    pub bytes: u64,
    /// The level of the leaves that were changed (`enum foliant_leaf`), or of the word that
    /// named a table: the stride of the invalidations. Leaves of other levels may stay.
    pub level: u32,
    /// Not 0: page tables were removed, so cached pointers to tables must go too, of every level.
    pub removed_tables: u32,
}

/// Which translations are meant.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Translations {
    /// Those of the user half that were cached through the user root `root`, whether or not the CPU
    /// runs it now.
    Space = 0,
    /// Those of the kernel half, global ones included, whichever root they were cached through.
    Kernel = 1,
}

/// What to invalidate: a plain value, to be copied into a mailbox.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Invalidation {
    /// Which translations are meant.
    pub scope: Translations,
    /// How many items are listed; with 0 all translations of the scope are meant.
    pub count: u32,
    /// The user root of a space.
    pub root: u64,
    /// The items.
    pub items: [Item; 16],
}

impl Invalidation {
    /// `what`, unless nothing is meant.
    fn of(what: &What) -> Option<Invalidation> {
        if what.is_empty() {
            return None;
        }
        let (scope, root) = match what.scope() {
            Scope::Space(root) => (Translations::Space, root.get()),
            Scope::Kernel => (Translations::Kernel, 0),
        };
        let listed = match what.reach() {
            Reach::Items => what.items(),
            Reach::All => &[],
        };
        let mut items = [Item::default(); 16];
        for (place, item) in items.iter_mut().zip(listed) {
            *place = Item {
                va: item.range.start().get(),
                bytes: item.range.bytes().get(),
                level: u32::from(item.level.0),
                removed_tables: u32::from(item.tables == Went::Removed),
            };
        }
        Some(Invalidation { scope, count: listed.len() as u32, root, items })
    }
}
const _: () = assert!(What::ITEMS_MAX == 16);

/// The owner that frames have, for a table that wants to watch.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameOwner {
    /// The allocator: no CPU may reach the frames.
    Free = 0,
    /// Allocated, and not yet put to its use.
    Claimed = 1,
    /// Page tables.
    Table = 2,
    /// The manager's own records.
    Records = 3,
    /// Set aside in a pool.
    Kept = 4,
    /// Memory of spaces.
    User = 5,
    /// Kernel memory.
    Kernel = 6,
    /// Zeros that spaces share.
    Zero = 7,
    /// The embedder's.
    Reserved = 8,
}

/// What the machine is asked for: function pointers that the kernel fills in, called with `context`
/// in front. A handle that is made with the table copies it.
///
/// Every function may be called by any CPU at any time. Those marked *optional* may be null; then
/// what their comment says is done.
///
/// The rules are those of x86-64: a live entry may be replaced by a store, the walker sets the
/// accessed bit before it caches an entry, and a fault ends the translation that caused it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Passed to every function.
    pub context: *mut c_void,
    /// How many CPUs there are, 1 to 1024, numbered from 0 without holes.
    pub cpus: u32,
    /// Up to how many entries single invalidations are cheaper than one full flush; 33 is a good
    /// start.
    pub ceiling_entries: u32,

    /// Where `bytes` from the physical address `pa` on are in the direct map: the same address each
    /// time, never null, writable on every CPU whatever tables it runs.
    pub reach:
        Option<unsafe extern "C" fn(context: *mut c_void, pa: u64, bytes: u64) -> *mut c_void>,
    /// Optional: reads the page-table word at `pa`, as an atomic acquire. Null: by `reach`.
    pub load: Option<unsafe extern "C" fn(context: *mut c_void, pa: u64) -> u64>,
    /// Optional: writes it, as an atomic release. Null: by `reach`.
    pub store: Option<unsafe extern "C" fn(context: *mut c_void, pa: u64, word: u64)>,
    /// Optional: replaces it if it is `old`, atomically and never failing spuriously; returns what
    /// it was. Null: by `reach`.
    pub compare_exchange:
        Option<unsafe extern "C" fn(context: *mut c_void, pa: u64, old: u64, next: u64) -> u64>,
    /// Optional: clears `bytes`, a multiple of 64. With `used_soon` 0 they are not used soon and
    /// should not be left in the caches. A CPU that sees a later `store` sees the zeros. Null: by
    /// `reach`.
    pub clear:
        Option<unsafe extern "C" fn(context: *mut c_void, pa: u64, bytes: u64, used_soon: u32)>,
    /// Optional: copies `bytes`, a multiple of 64; the source may change meanwhile. Null: by
    /// `reach`.
    pub copy: Option<unsafe extern "C" fn(context: *mut c_void, from: u64, to: u64, bytes: u64)>,

    /// Optional: reads the word at the kernel address `va`, through the translation of the calling
    /// CPU, as an atomic acquire. Returns 0; another value says that nothing is mapped there, which
    /// ends in `foliant_panic`. Null: the access itself is made.
    pub kernel_load:
        Option<unsafe extern "C" fn(context: *mut c_void, va: u64, word: *mut u64) -> u32>,
    /// Optional: writes it, as an atomic release. Returns and null as for `kernel_load`.
    pub kernel_store: Option<unsafe extern "C" fn(context: *mut c_void, va: u64, word: u64) -> u32>,
    /// Optional: replaces it if it is `old`, and says in `found` what it was. Returns and null as
    /// for `kernel_load`.
    pub kernel_compare_exchange: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            va: u64,
            old: u64,
            next: u64,
            found: *mut u64,
        ) -> u32,
    >,

    /// Makes the calling CPU run the tables at `user`, whose upper half repeats the words of the
    /// table at `kernel` (CR3 on x86-64). With `unchanged` 0 nothing that the CPU cached before
    /// through this root is used any more, but for global translations; with 1 all of it may be. A
    /// machine without tags ends it either way.
    pub activate:
        Option<unsafe extern "C" fn(context: *mut c_void, user: u64, kernel: u64, unchanged: u32)>,
    /// Ends translations on the calling CPU; when it returns no covered one is used any more.
    pub invalidate: Option<unsafe extern "C" fn(context: *mut c_void, what: *const Invalidation)>,
    /// Asks every CPU in `cpus` but the calling one to do the same, and returns at once with a
    /// ticket. Stores made before are seen by walks that an asked CPU begins after.
    pub ask: Option<
        unsafe extern "C" fn(
            context: *mut c_void,
            cpus: *const CpuSet,
            what: *const Invalidation,
        ) -> u64,
    >,
    /// Returns when every asked CPU is done. Meanwhile the calling CPU carries out what others ask
    /// of it.
    pub wait: Option<unsafe extern "C" fn(context: *mut c_void, ticket: u64)>,

    /// The number of the CPU that runs the caller.
    pub me: Option<unsafe extern "C" fn(context: *mut c_void) -> u32>,
    /// From here to `unpin` the caller stays on its CPU, whose number is returned. It may nest.
    pub pin: Option<unsafe extern "C" fn(context: *mut c_void) -> u32>,
    /// Ends one `pin`.
    pub unpin: Option<unsafe extern "C" fn(context: *mut c_void)>,
    /// Called in every spin loop: carries out what other CPUs ask of this one.
    pub relax: Option<unsafe extern "C" fn(context: *mut c_void)>,
    /// Nanoseconds since some fixed time; never runs backwards on one CPU.
    pub now: Option<unsafe extern "C" fn(context: *mut c_void) -> u64>,
    /// A point where long work lets others run. The caller holds no lock and is not pinned; a task
    /// that yields runs again after a while, however often others yield.
    pub yield_now: Option<unsafe extern "C" fn(context: *mut c_void)>,

    /// Optional: `pages` frames from number `first` on have another owner from now on.
    pub owned: Option<
        unsafe extern "C" fn(context: *mut c_void, first: u64, pages: u64, owner: FrameOwner),
    >,
    /// Optional: a range of kernel addresses was given back; with `purged` 0 CPUs may still have
    /// translations of it cached, with 1 none has.
    pub retired:
        Option<unsafe extern "C" fn(context: *mut c_void, va: u64, bytes: u64, purged: u32)>,
    /// Optional: asked before each allocation; a value other than 0 makes it fail, for tests.
    pub refuse: Option<unsafe extern "C" fn(context: *mut c_void) -> u32>,
}

/// A machine whose table was looked at (T1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct CMachine {
    table: Machine,
    reach: unsafe extern "C" fn(*mut c_void, u64, u64) -> *mut c_void,
    activate: unsafe extern "C" fn(*mut c_void, u64, u64, u32),
    invalidate: unsafe extern "C" fn(*mut c_void, *const Invalidation),
    ask: unsafe extern "C" fn(*mut c_void, *const CpuSet, *const Invalidation) -> u64,
    wait: unsafe extern "C" fn(*mut c_void, u64),
    me: unsafe extern "C" fn(*mut c_void) -> u32,
    pin: unsafe extern "C" fn(*mut c_void) -> u32,
    unpin: unsafe extern "C" fn(*mut c_void),
    relax: unsafe extern "C" fn(*mut c_void),
    now: unsafe extern "C" fn(*mut c_void) -> u64,
    yield_now: unsafe extern "C" fn(*mut c_void),
}

// SAFETY: the context is the C side's, which promises functions that any CPU may call (P3).
unsafe impl Send for CMachine {}
// SAFETY: the same.
unsafe impl Sync for CMachine {}

impl CMachine {
    /// The machine of a table.
    ///
    /// # Safety
    /// P3: the table's functions keep the contract for as long as the machine, or a copy of it, is
    /// used.
    pub(crate) unsafe fn checked(table: &Machine) -> Result<CMachine, Refusal> {
        if !(1..=CPUS_MAX as u32).contains(&table.cpus) {
            return Err(Refusal::Cpus(table.cpus));
        }
        let no = Refusal::NoFunction;
        Ok(CMachine {
            table: *table,
            reach: table.reach.ok_or(no("reach"))?,
            activate: table.activate.ok_or(no("activate"))?,
            invalidate: table.invalidate.ok_or(no("invalidate"))?,
            ask: table.ask.ok_or(no("ask"))?,
            wait: table.wait.ok_or(no("wait"))?,
            me: table.me.ok_or(no("me"))?,
            pin: table.pin.ok_or(no("pin"))?,
            unpin: table.unpin.ok_or(no("unpin"))?,
            relax: table.relax.ok_or(no("relax"))?,
            now: table.now.ok_or(no("now"))?,
            yield_now: table.yield_now.ok_or(no("yield_now"))?,
        })
    }
    fn context(&self) -> *mut c_void {
        self.table.context
    }
    /// The number that the table's function gave.
    fn cpu(&self, number: u32) -> Cpu {
        assert!(number < self.table.cpus, "CPU {number} of {}, says the machine", self.table.cpus);
        Cpu(number as u16)
    }
    fn at(&self, pa: Pa, bytes: u64) -> NonNull<u8> {
        // SAFETY: a function of the table (P3).
        let at = unsafe { (self.reach)(self.context(), pa.get(), bytes) };
        NonNull::new(at.cast()).expect("the direct map does not contain null")
    }
    /// The word at `pa`, shared with walkers and other CPUs.
    ///
    /// # Safety
    /// `pa` is aligned, and owned as a table for as long as the reference is used.
    unsafe fn word(&self, pa: Pa) -> &AtomicU64 {
        // SAFETY: behind the direct map (P3), aligned and alive by the caller; every access to it
        // is atomic.
        unsafe { self.at(pa, 8).cast().as_ref() }
    }
    /// The word at a kernel address.
    ///
    /// # Safety
    /// As for [`KernelVa::kernel_load`].
    unsafe fn kernel_word(&self, va: Va) -> &AtomicU64 {
        let at: *const AtomicU64 = ptr::with_exposed_provenance(va.get() as usize);
        // SAFETY: the manager maps it in the tables that every CPU runs (P3), and every access to
        // it is atomic.
        unsafe { &*at }
    }
    fn pin_guard(&self) -> (Cpu, Unpin<'_>) {
        // SAFETY: a function of the table (P3).
        let cpu = unsafe { (self.pin)(self.context()) };
        (self.cpu(cpu), Unpin(self))
    }
}

/// A CPU that is pinned until this is dropped.
struct Unpin<'a>(&'a CMachine);

impl Drop for Unpin<'_> {
    fn drop(&mut self) {
        // SAFETY: a function of the table (P3), for the `pin` before.
        unsafe { (self.0.unpin)(self.0.context()) };
    }
}

/// Whether an access was made.
fn done<T>(va: Va, fault: u32, value: T) -> Result<T, KernelFault> {
    if fault == 0 { Ok(value) } else { Err(KernelFault { va }) }
}
/// Whether a word was replaced.
fn replaced(old: u64, found: u64) -> Result<u64, u64> {
    if found == old { Ok(old) } else { Err(found) }
}

// SAFETY: the C side promises a direct map of all memory that it gives, for good, in which distinct
// ranges do not alias (P3).
unsafe impl PhysMem for CMachine {
    unsafe fn reach(&self, pa: Pa, bytes: Bytes) -> NonNull<u8> {
        self.at(pa, bytes.get())
    }
    unsafe fn load(&self, pa: Pa) -> u64 {
        match self.table.load {
            // SAFETY: a function of the table (P3), with the caller's promise.
            Some(load) => unsafe { load(self.context(), pa.get()) },
            // SAFETY: the caller's promise.
            None => unsafe { self.word(pa) }.load(Ordering::Acquire),
        }
    }
    unsafe fn store(&self, pa: Pa, word: u64) {
        match self.table.store {
            // SAFETY: a function of the table (P3), with the caller's promise.
            Some(store) => unsafe { store(self.context(), pa.get(), word) },
            // SAFETY: the caller's promise.
            None => unsafe { self.word(pa) }.store(word, Ordering::Release),
        }
    }
    unsafe fn compare_exchange(&self, pa: Pa, old: u64, new: u64) -> Result<u64, u64> {
        match self.table.compare_exchange {
            Some(exchange) => {
                // SAFETY: a function of the table (P3), with the caller's promise.
                replaced(old, unsafe { exchange(self.context(), pa.get(), old, new) })
            }
            None => {
                // SAFETY: the caller's promise.
                let word = unsafe { self.word(pa) };
                word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
            }
        }
    }
    unsafe fn clear(&self, pa: Pa, bytes: Bytes, caching: Caching) {
        let used_soon = u32::from(caching == Caching::Cached);
        match self.table.clear {
            // SAFETY: a function of the table (P3), with the caller's promise.
            Some(clear) => unsafe { clear(self.context(), pa.get(), bytes.get(), used_soon) },
            // SAFETY: the frames are the caller's, and behind the direct map (P3).
            None => unsafe { self.at(pa, bytes.get()).write_bytes(0, bytes.get() as usize) },
        }
    }
    unsafe fn copy(&self, from: Pa, to: Pa, bytes: Bytes) {
        if let Some(copy) = self.table.copy {
            // SAFETY: a function of the table (P3), with the caller's promise.
            return unsafe { copy(self.context(), from.get(), to.get(), bytes.get()) };
        }
        // Word by word and atomically, as programs may write to the source meanwhile.
        let words = |pa| {
            let first = self.at(pa, bytes.get()).cast::<AtomicU64>().as_ptr();
            // SAFETY: behind the direct map (P3), aligned as frames are; the source stays allocated
            // and the target is the caller's.
            unsafe { slice::from_raw_parts(first, bytes.get() as usize / 8) }
        };
        for (target, source) in words(to).iter().zip(words(from)) {
            target.store(source.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
}

// SAFETY: the C side promises accesses that reach what the tables name, or named before (P3).
unsafe impl KernelVa for CMachine {
    unsafe fn kernel_load(&self, va: Va) -> Result<u64, KernelFault> {
        match self.table.kernel_load {
            Some(load) => {
                let mut word = 0;
                // SAFETY: a function of the table (P3), with the caller's promise.
                let fault = unsafe { load(self.context(), va.get(), &mut word) };
                done(va, fault, word)
            }
            // SAFETY: the caller's promise.
            None => Ok(unsafe { self.kernel_word(va) }.load(Ordering::Acquire)),
        }
    }
    unsafe fn kernel_store(&self, va: Va, word: u64) -> Result<(), KernelFault> {
        match self.table.kernel_store {
            Some(store) => {
                // SAFETY: a function of the table (P3), with the caller's promise.
                let fault = unsafe { store(self.context(), va.get(), word) };
                done(va, fault, ())
            }
            None => {
                // SAFETY: the caller's promise.
                unsafe { self.kernel_word(va) }.store(word, Ordering::Release);
                Ok(())
            }
        }
    }
    unsafe fn kernel_compare_exchange(
        &self,
        va: Va,
        old: u64,
        new: u64,
    ) -> Result<Result<u64, u64>, KernelFault> {
        match self.table.kernel_compare_exchange {
            Some(exchange) => {
                let mut found = 0;
                // SAFETY: a function of the table (P3), with the caller's promise.
                let fault = unsafe { exchange(self.context(), va.get(), old, new, &mut found) };
                done(va, fault, replaced(old, found))
            }
            None => {
                // SAFETY: the caller's promise.
                let word = unsafe { self.kernel_word(va) };
                Ok(word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire))
            }
        }
    }
}

impl Tlb for CMachine {
    fn activate(&self, root: Root, kept: Kept) {
        let unchanged = u32::from(kept == Kept::Unchanged);
        let (user, kernel) = (root.user.get(), root.kernel.get());
        // SAFETY: a function of the table (P3).
        unsafe { (self.activate)(self.context(), user, kernel, unchanged) };
    }
    fn invalidate(&self, what: &What) {
        if let Some(what) = Invalidation::of(what) {
            // SAFETY: a function of the table (P3).
            unsafe { (self.invalidate)(self.context(), &what) };
        }
    }
    fn ask(&self, cpus: &foliant_units::CpuSet, what: &What) -> Ticket {
        let mut cpus = CpuSet::of(cpus);
        let what = Invalidation::of(what).unwrap_or_else(|| {
            cpus = CpuSet::default(); // nobody, since nothing is meant
            Invalidation {
                scope: Translations::Kernel,
                count: 0,
                root: 0,
                items: [Item::default(); 16],
            }
        });
        // SAFETY: a function of the table (P3).
        Ticket::new(unsafe { (self.ask)(self.context(), &cpus, &what) })
    }
    fn wait(&self, ticket: Ticket) {
        // SAFETY: a function of the table (P3).
        unsafe { (self.wait)(self.context(), ticket.number()) };
    }
    fn rules(&self) -> MmuRules {
        MmuRules {
            replace: Replace::InPlace,
            accessed: Accessed::SetBeforeCached,
            faults: Faults::EndTranslation,
            ceiling_entries: self.table.ceiling_entries,
        }
    }
}

impl Cpus for CMachine {
    fn me(&self) -> Cpu {
        // SAFETY: a function of the table (P3).
        self.cpu(unsafe { (self.me)(self.context()) })
    }
    fn count(&self) -> usize {
        self.table.cpus as usize
    }
    fn pinned<R>(&self, work: impl FnOnce(Cpu) -> R) -> R {
        let (cpu, _unpin) = self.pin_guard();
        work(cpu)
    }
    fn relax(&self) {
        // SAFETY: a function of the table (P3).
        unsafe { (self.relax)(self.context()) };
    }
}

impl Clock for CMachine {
    fn now(&self) -> Nanos {
        // SAFETY: a function of the table (P3).
        Nanos(unsafe { (self.now)(self.context()) })
    }
    fn yield_now(&self) {
        // SAFETY: a function of the table (P3).
        unsafe { (self.yield_now)(self.context()) };
    }
}

impl Witness for CMachine {
    fn owned(&self, frames: FrameRange, owner: Owner) {
        let Some(owned) = self.table.owned else { return };
        let owner = match owner {
            Owner::Free => FrameOwner::Free,
            Owner::Claimed => FrameOwner::Claimed,
            Owner::Table => FrameOwner::Table,
            Owner::Records => FrameOwner::Records,
            Owner::Kept => FrameOwner::Kept,
            Owner::User => FrameOwner::User,
            Owner::Kernel => FrameOwner::Kernel,
            Owner::Zero => FrameOwner::Zero,
            Owner::Reserved => FrameOwner::Reserved,
        };
        // SAFETY: a function of the table (P3).
        unsafe { owned(self.context(), frames.start().get(), frames.pages().get(), owner) };
    }
    fn retired(&self, range: VaRange, how: Retired) {
        let Some(retired) = self.table.retired else { return };
        let (va, bytes) = (range.start().get(), range.bytes().get());
        // SAFETY: a function of the table (P3).
        unsafe { retired(self.context(), va, bytes, u32::from(how == Retired::Purged)) };
    }
    fn refusal(&self) -> Allowed {
        let Some(refuse) = self.table.refuse else { return Allowed::Permit };
        // SAFETY: a function of the table (P3).
        match unsafe { refuse(self.context()) } {
            0 => Allowed::Permit,
            _ => Allowed::Refuse,
        }
    }
}
