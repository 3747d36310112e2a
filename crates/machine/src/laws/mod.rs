//! The laws: one suite that every implementation of the contract must pass.
//!
//! It runs on the simulator under `cargo test` and on silicon in the booted kernel, so that the two
//! cannot drift apart. A law is a plain function that uses the machine through the contract alone
//! and says what it saw; it neither allocates nor panics. Timing laws are not here: what a machine
//! *may* delay it may also not delay, so no law demands that a translation be stale.
//!
//! | group | subject |
//! |---|---|
//! | `memory` | page-table words, clearing, copying |
//! | `kernel` | kernel addresses: what is mapped is reached; bits that the walker sets |
//! | `local` | invalidations on the CPU itself |
//! | `roots` | changes of root, and what is kept of the one left |
//! | `remote` | invalidations on other CPUs |
//! | `cpus` | numbers, spinning, time |
//!
//! **Invariants**
//! - L1. Before and after each law the window maps nothing and nothing of it is cached.
//! - L2. Live words are changed the way the machine's rules demand: in place, or break before make.
//! - L3. No law reads an address that maps nothing, so a machine whose kernel faults are fatal can
//!   run them all; where another CPU breaks a word meanwhile a fault is not a finding.
//!
//! **Not here**: user addresses (the contract has no user access), costs, page-table formats.

mod cpus;
mod kernel;
mod local;
mod memory;
mod remote;
mod roots;

use crate::{
    Caching, Invalidation, Item, Kept, KernelVa, Machine, PhysMem, Replace, Root, Scope, Tables,
    Tlb,
};
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use foliant_units::{Bytes, Cpu, CpuSet, Frame, FrameRange, Level, Pa, Pages, Va, VaRange};

/// What a leaf of the window allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Right {
    /// Loads.
    ReadOnly,
    /// Loads and stores.
    Writable,
}

/// The test bench: a machine, and a corner of it that the suite may use as it likes.
pub trait Bench: Sync {
    /// The machine under test.
    type Machine: Machine;

    /// The machine under test.
    fn machine(&self) -> &Self::Machine;

    /// Contiguous frames that the suite owns: [`SCRATCH_FRAMES`] or more, the first one aligned to
    /// 2 MiB. Nothing maps them but the direct map.
    fn scratch(&self) -> FrameRange;

    /// The root that every CPU runs; its kernel half holds the window.
    fn root(&self) -> Root;

    /// Another root with the same kernel half, in which nothing but that is mapped.
    fn other_root(&self) -> Root;

    /// Kernel addresses that belong to the suite: [`WINDOW_PAGES`] or more, all base-level words of
    /// one table or more, which nothing else uses.
    fn window(&self) -> VaRange;

    /// Where the base-level word of a window page is.
    fn word(&self, page: Va) -> Pa;

    /// A kernel address aligned to 2 MiB, and where its 2 MiB-level word is. It maps nothing.
    fn size_2m(&self) -> (Va, Pa);

    /// A word that maps `frame` at `level` (base or 2 MiB) for the kernel: not global, accessed and
    /// dirty clear.
    fn leaf(&self, level: Level, frame: Frame, right: Right) -> u64;

    /// A word of the 2 MiB level that points to the table in `frame`.
    fn table(&self, frame: Frame) -> u64;

    /// Whether the leaf says that it was used; `None` where the walker does not maintain that.
    fn accessed(&self, leaf: u64) -> Option<bool>;

    /// Whether the leaf says that it was written through; `None` where the walker does not maintain
    /// it.
    fn dirty(&self, leaf: u64) -> Option<bool>;

    /// Runs `work` on `cpu` and returns when it is done.
    fn on(&self, cpu: Cpu, work: &(dyn Fn() + Sync));

    /// Runs `work` on every CPU at once and returns when all are done.
    fn together(&self, work: &(dyn Fn(Cpu) + Sync));
}

/// Frames that the suite needs: two blocks of 2 MiB and 64 more.
pub const SCRATCH_FRAMES: Pages = Pages::new(1024 + 64);
/// Pages that the window needs.
pub const WINDOW_PAGES: Pages = Pages::new(32);

/// How a law was broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// What was looked at.
    pub what: &'static str,
    /// What it should have been.
    pub want: u64,
    /// What it was.
    pub got: u64,
    /// The CPU that looked.
    pub cpu: Cpu,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Seen { what, want, got, cpu } = self;
        write!(f, "{what} on cpu {}: {want:#x} wanted, {got:#x} seen", cpu.0)
    }
}

/// What a law says.
pub type Verdict = Result<(), Seen>;

/// A law and its name.
pub struct Law<B: Bench> {
    /// What it demands, as a sentence with underscores.
    pub name: &'static str,
    check: fn(&B) -> Verdict,
}

impl<B: Bench> Law<B> {
    /// Checks the law alone, on a clean window.
    pub fn check(&self, bench: &B) -> Verdict {
        tidy(bench);
        let verdict = (self.check)(bench);
        tidy(bench);
        verdict
    }
}

macro_rules! laws {
    ($($group:ident: $($law:ident)*;)*) => {
        /// How many laws there are.
        pub const COUNT: usize = 0 $($(+ { let _ = stringify!($law); 1 })*)*;

        /// All laws, in the order in which they build on each other.
        pub fn all<B: Bench>() -> [Law<B>; COUNT] {
            [$($(Law { name: stringify!($law), check: $group::$law },)*)*]
        }
    };
}

laws! {
    memory:
        words_are_read_back
        words_cross_cpus
        empty_words_are_counted_up_to_the_first_other
        compare_exchange_replaces_only_what_it_expects
        compare_exchange_is_atomic
        clear_is_exact
        zeros_are_there_for_whoever_sees_a_later_store
        copy_is_exact
        write_is_exact
        reach_is_the_same_memory;
    cpus:
        every_cpu_knows_its_number
        pinned_nests
        what_a_cpu_adds_to_its_own_word_is_not_lost
        spinning_lets_others_run
        clocks_never_run_backwards
        rules_do_not_change;
    kernel:
        kernel_addresses_reach_what_is_mapped
        kernel_compare_exchange_is_exact
        kernel_fill_is_exact
        two_addresses_of_one_frame_agree
        a_new_mapping_needs_no_flush
        the_walker_sets_accessed
        the_walker_sets_dirty;
    local:
        before_the_flush_a_read_is_old_or_new
        after_invalidate_a_read_is_new
        sixteen_items_are_all_carried_out
        a_range_is_carried_out_to_its_end
        a_large_leaf_is_ended_by_its_level
        removed_tables_are_walked_no_more
        all_ends_everything;
    roots:
        activate_ends_what_is_not_global
        what_was_kept_under_a_tag_is_ended_too
        what_is_unchanged_is_right
        invalidations_reach_roots_that_do_not_run
        requests_reach_roots_that_do_not_run;
    remote:
        after_the_wait_every_asked_cpu_reads_new
        tickets_may_be_waited_for_in_any_order
        asking_nobody_is_legal
        all_cpus_ask_each_other_and_get_through
        no_cpu_reads_a_frame_after_its_flush;
}

/// How many laws held and how many did not.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Laws that held.
    pub held: u32,
    /// Laws that did not.
    pub broken: u32,
}

/// Checks every law on `bench` and reports each verdict.
pub fn run<B: Bench>(bench: &B, report: &mut dyn FnMut(&'static str, Verdict)) -> Tally {
    let mut tally = Tally::default();
    for law in all::<B>() {
        let verdict = law.check(bench);
        match verdict {
            Ok(()) => tally.held += 1,
            Err(_) => tally.broken += 1,
        }
        report(law.name, verdict);
    }
    tally
}

/// Fails where the two differ.
fn expect(cpu: Cpu, what: &'static str, want: u64, got: u64) -> Verdict {
    if want == got { Ok(()) } else { Err(Seen { what, want, got, cpu }) }
}

/// The first thing that code on other CPUs found wrong.
struct Finding {
    taken: AtomicBool,
    want: AtomicU64,
    got: AtomicU64,
    cpu: AtomicU64,
}

impl Finding {
    const fn new() -> Finding {
        Finding {
            taken: AtomicBool::new(false),
            want: AtomicU64::new(0),
            got: AtomicU64::new(0),
            cpu: AtomicU64::new(0),
        }
    }

    fn expect(&self, cpu: Cpu, want: u64, got: u64) {
        if want != got && !self.taken.swap(true, Ordering::AcqRel) {
            self.want.store(want, Ordering::Release);
            self.got.store(got, Ordering::Release);
            self.cpu.store(u64::from(cpu.0), Ordering::Release);
        }
    }

    /// After all CPUs are done.
    fn verdict(&self, what: &'static str) -> Verdict {
        if !self.taken.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(Seen {
            what,
            want: self.want.load(Ordering::Acquire),
            got: self.got.load(Ordering::Acquire),
            cpu: Cpu(self.cpu.load(Ordering::Acquire) as u16),
        })
    }
}

/// What a faulting read counts as: no frame of the suite ever holds it.
const FAULTED: u64 = 0xfau64 << 56;

/// Small frame `n` of the scratch, below 64.
fn small<B: Bench>(bench: &B, n: u64) -> Frame {
    bench.scratch().start().add(Pages::new(1024 + n % 64))
}

/// The first frame of 2 MiB block `n` of the scratch, below 2.
fn block<B: Bench>(bench: &B, n: u64) -> Frame {
    bench.scratch().start().add(Pages::new(512 * (n % 2)))
}

/// Page `n` of the window.
fn page<B: Bench>(bench: &B, n: u64) -> Va {
    bench.window().start().add(4096 * (n % WINDOW_PAGES.get()))
}

#[allow(unsafe_code)]
fn store<M: PhysMem>(machine: &M, pa: Pa, word: u64) {
    // SAFETY: Bench lends the suite every frame and every word that it passes here.
    unsafe { machine.store(pa, word) }
}

#[allow(unsafe_code)]
fn load<M: PhysMem>(machine: &M, pa: Pa) -> u64 {
    // SAFETY: as for `store`.
    unsafe { machine.load(pa) }
}

#[allow(unsafe_code)]
fn clear<M: PhysMem>(machine: &M, pa: Pa, bytes: Bytes, caching: Caching) {
    // SAFETY: as for `store`; no law keeps a reference into the scratch.
    unsafe { machine.clear(pa, bytes, caching) }
}

/// Reads a mapped kernel address on the calling CPU.
#[allow(unsafe_code)]
fn read<M: KernelVa>(machine: &M, va: Va) -> u64 {
    // SAFETY: L3: the suite mapped the address.
    unsafe { machine.kernel_load(va) }.unwrap_or(FAULTED)
}

/// Writes a mapped kernel address on the calling CPU.
#[allow(unsafe_code)]
fn write<M: KernelVa>(machine: &M, va: Va, word: u64) -> u64 {
    // SAFETY: L3, to a scratch frame.
    unsafe { machine.kernel_store(va, word) }.map_or(FAULTED, |()| 0)
}

/// Reads a mapped kernel address on `cpu`.
fn read_on<B: Bench>(bench: &B, cpu: Cpu, va: Va) -> u64 {
    let got = AtomicU64::new(FAULTED);
    bench.on(cpu, &|| got.store(read(bench.machine(), va), Ordering::Release));
    got.load(Ordering::Acquire)
}

/// An invalidation of the kernel's leaf of `level` at `va`.
fn leaf_at(va: Va, level: Level, tables: Tables) -> Invalidation {
    let mut what = Invalidation::none(Scope::Kernel);
    if let Some(range) = VaRange::sized(va, level.span()) {
        let _ = what.push(Item { range, level, tables });
    }
    what
}

/// Carries out `what` on every CPU.
fn everywhere<B: Bench>(bench: &B, what: &Invalidation) {
    let machine = bench.machine();
    machine.invalidate(what);
    let ticket = machine.ask(&CpuSet::first(crate::Cpus::count(machine)), what);
    machine.wait(ticket);
}

/// Changes a live word, by the machine's rules (L2). `flush` is what the law is about.
fn change<B: Bench>(bench: &B, at: Pa, word: u64, flush: impl FnOnce()) {
    let machine = bench.machine();
    match machine.rules().replace {
        Replace::InPlace => {
            store(machine, at, word);
            flush();
        }
        Replace::BreakBeforeMake => {
            store(machine, at, 0);
            flush();
            store(machine, at, word);
        }
    }
}

/// Unmaps the window and ends everything cached of it (L1).
fn tidy<B: Bench>(bench: &B) {
    for n in 0..WINDOW_PAGES.get() {
        store(bench.machine(), bench.word(page(bench, n)), 0);
    }
    store(bench.machine(), bench.size_2m().1, 0);
    everywhere(bench, &Invalidation::all(Scope::Kernel));
}

/// Every CPU of the machine.
fn each_cpu<B: Bench>(bench: &B) -> impl Iterator<Item = Cpu> + use<B> {
    (0..crate::Cpus::count(bench.machine()) as u16).map(Cpu)
}
