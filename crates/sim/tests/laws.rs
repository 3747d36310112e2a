//! The laws of the contract hold on the simulator, and fail on machines that are broken on purpose.
#![allow(unsafe_code)]

mod common;

use common::*;
use core::sync::atomic::{AtomicU64, Ordering};
use foliant_machine::laws::{self, Bench, SCRATCH_FRAMES, WINDOW_PAGES};
use foliant_machine::{
    AnyMachine, Around, Caching, Clock, Cpus, Invalidation, Item, Kept, KernelFault, KernelVa,
    Machine, MmuRules, PhysMem, Reach, Root, Scope, Tables, Ticket, Tlb,
};
use foliant_sim::{Chance, Checks, Config, Format, Mode, RiscvMode, Sim, Tags, X86Levels};
use foliant_units::{Bytes, Cpu, CpuSet, Frame, FrameRange, Level, Nanos, Pa, Va, VaRange};
use std::ptr::NonNull;
use std::sync::Mutex;

const ROOT: u64 = 0x10_0000;
const OTHER: u64 = 0x18_0000;
const SCRATCH: u64 = 0x20_0000;
const WINDOW: u64 = 0xffff_ffff_8000_0000;
const SIZE_2M: u64 = WINDOW + (8 << 20);

const FORMATS: [Format; 6] = [
    Format::X86_64(X86Levels::Four),
    Format::X86_64(X86Levels::Five),
    Format::Aarch64,
    Format::Riscv64(RiscvMode::Sv39),
    Format::Riscv64(RiscvMode::Sv48),
    Format::Riscv64(RiscvMode::Sv57),
];

/// A bench on `sim`; its machine may be a broken one around it.
struct SimBench<'a, M> {
    sim: &'a Sim,
    machine: &'a M,
    words: u64,
    size_2m: u64,
}

fn bench<'a, M>(sim: &'a Sim, machine: &'a M) -> SimBench<'a, M> {
    let words = chain(sim, ROOT, WINDOW, 0) & !0xfff;
    if sim.config().format != Format::Aarch64 {
        (256..512).for_each(|n| put(sim, OTHER + n * 8, get(sim, ROOT + n * 8)));
    }
    let size_2m = (words - 4096) + (SIZE_2M >> 21 & 511) * 8;
    for cpu in 0..sim.count() {
        run(sim, cpu as u16, ROOT);
    }
    SimBench { sim, machine, words, size_2m }
}

impl<M: Machine> Bench for SimBench<'_, M> {
    type Machine = M;

    fn machine(&self) -> &M {
        self.machine
    }
    fn scratch(&self) -> FrameRange {
        FrameRange::new(Pa::new(SCRATCH).frame(), SCRATCH_FRAMES).unwrap()
    }
    fn root(&self) -> Root {
        Root { user: Pa::new(ROOT), kernel: Pa::new(ROOT) }
    }
    fn other_root(&self) -> Root {
        Root { user: Pa::new(OTHER), kernel: Pa::new(ROOT) }
    }
    fn window(&self) -> VaRange {
        VaRange::sized(Va::new(WINDOW), WINDOW_PAGES.bytes()).unwrap()
    }
    fn word(&self, page: Va) -> Pa {
        Pa::new(self.words + (page.get() >> 12 & 511) * 8)
    }
    fn size_2m(&self) -> (Va, Pa) {
        (Va::new(SIZE_2M), Pa::new(self.size_2m))
    }
    fn leaf(&self, level: Level, frame: Frame, right: laws::Right) -> u64 {
        let right = match right {
            laws::Right::ReadOnly => Right::ReadOnly,
            laws::Right::Writable => Right::Writable,
        };
        leaf_word(self.sim.config().format, level.0, frame.pa().get(), right, 0)
    }
    fn table(&self, frame: Frame) -> u64 {
        table_word(self.sim.config().format, frame.pa().get())
    }
    fn accessed(&self, leaf: u64) -> Option<bool> {
        Some(match self.sim.config().format {
            Format::X86_64(_) => leaf >> 5 & 1 == 1,
            Format::Aarch64 => leaf >> 10 & 1 == 1,
            Format::Riscv64(_) => leaf >> 6 & 1 == 1,
        })
    }
    fn dirty(&self, leaf: u64) -> Option<bool> {
        Some(match self.sim.config().format {
            Format::X86_64(_) => leaf >> 6 & 1 == 1,
            Format::Aarch64 => leaf >> 7 & 1 == 0,
            Format::Riscv64(_) => leaf >> 7 & 1 == 1,
        })
    }
    fn on(&self, cpu: Cpu, work: &(dyn Fn() + Sync)) {
        self.sim.on(cpu, work);
    }
    fn together(&self, work: &(dyn Fn(Cpu) + Sync)) {
        self.sim.parallel(self.sim.count(), work);
    }
}

const MEMORY: Bytes = Bytes::new(16 << 20);

fn hold(config: Config, what: &str) {
    let sim = Sim::new(config).unwrap();
    hold_on(&sim, &sim, what);
}
fn hold_on(sim: &Sim, machine: &impl Machine, what: &str) {
    let tally = laws::run(&bench(sim, machine), &mut |name, verdict| {
        if let Err(seen) = verdict {
            panic!("{what}: {name}: {seen}");
        }
    });
    assert_eq!((tally.held as usize, tally.broken), (laws::COUNT, 0));
    assert!(sim.finish().is_empty(), "{what}: {:?}", sim.finish());
}

/// A machine without its type, and one around another that differs in nothing, are that machine.
#[test]
fn the_laws_hold_on_machines_that_pass_calls_on() {
    struct Same<'a>(&'a Sim);
    // SAFETY: everything is the inner machine's.
    unsafe impl Around for Same<'_> {
        type Inner = Sim;
        fn inner(&self) -> &Sim {
            self.0
        }
    }
    for format in FORMATS {
        let sim = || Sim::new(Config::seeded(3, MEMORY, 5).with_format(format)).unwrap();
        let (plain, around) = (sim(), sim());
        hold_on(&plain, &AnyMachine::new(&plain), &format!("any machine, {format:?}"));
        hold_on(&around, &Same(&around), &format!("around one, {format:?}"));
    }
}

#[test]
fn the_laws_hold_seeded_in_every_format() {
    for format in FORMATS {
        for cpus in [1, 2, 4, 16] {
            let config = Config::seeded(cpus, MEMORY, 40 + cpus as u64).with_format(format);
            hold(config, &format!("{format:?} seeded {cpus}"));
        }
    }
}

#[test]
fn the_laws_hold_free_in_every_format() {
    for format in FORMATS {
        for cpus in [1, 2, 4, 16] {
            hold(
                Config::free(cpus, MEMORY).with_format(format),
                &format!("{format:?} free {cpus}"),
            );
        }
    }
}

#[test]
fn the_laws_hold_free_under_the_checkers() {
    for format in FORMATS {
        let config = Config { checks: Checks::All, ..Config::free(4, MEMORY) };
        hold(config.with_format(format), &format!("{format:?} free, checked"));
    }
}

#[test]
fn the_laws_hold_without_tags() {
    for format in FORMATS {
        let config = Config { tags: Tags::Absent, ..Config::seeded(4, MEMORY, 7) };
        hold(config.with_format(format), &format!("{format:?}, no tags"));
    }
}

#[test]
fn the_laws_hold_for_many_seeds() {
    for seed in 0..16 {
        let mut config = Config::seeded(3, MEMORY, seed);
        config.chance = Chance { switch: 3, interrupt: 3, speculate: 2 };
        hold(config, &format!("seed {seed}"));
    }
}

/// What is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Broken {
    StoreLost,
    ExchangeBlind,
    ExchangeTorn,
    ClearShort,
    ZerosLate,
    CopyShort,
    WriteShort,
    ReachSkewed,
    WrongNumber,
    AddLost,
    ClockBack,
    RulesChange,
    KernelStoreLost,
    KernelWrongPage,
    FillShort,
    AccessedLost,
    DirtyLost,
    InventedReads,
    NoInvalidate,
    FirstItemOnly,
    FirstPageOnly,
    LargeIgnored,
    TablesKept,
    AllIgnored,
    NoActivate,
    NothingIgnored,
    TagsForgotten,
    NobodyAsked,
    NoWait,
    OneAsked,
}

/// A machine with one thing broken.
struct Wreck<'a> {
    sim: &'a Sim,
    broken: Broken,
    ticks: AtomicU64,
    /// The user root activated last, by any CPU.
    activated: AtomicU64,
    /// A line that is still to be cleared, and how many turns of a spin loop are left until it is.
    late: Mutex<Option<(Pa, u32)>>,
}

impl Wreck<'_> {
    fn is(&self, broken: Broken) -> bool {
        self.broken == broken
    }

    /// What a broken machine carries out of `what`; `None` where that is nothing.
    fn left_of(&self, what: &Invalidation) -> Option<Invalidation> {
        if self.is(Broken::NoInvalidate)
            || self.is(Broken::AllIgnored) && what.reach() == Reach::All
        {
            return None;
        }
        let mut left = Invalidation::none(what.scope());
        for (n, item) in what.items().iter().enumerate() {
            let mut item = *item;
            match self.broken {
                Broken::FirstItemOnly if n > 0 => continue,
                Broken::LargeIgnored if item.level > Level::BASE => continue,
                Broken::TablesKept => item = Item { tables: Tables::Kept, ..item },
                Broken::FirstPageOnly => {
                    item.range = VaRange::sized(item.range.start(), item.level.span()).unwrap();
                }
                _ => {}
            }
            left.push(item).unwrap();
        }
        Some(if what.reach() == Reach::All { *what } else { left })
    }
}

impl Wreck<'_> {
    /// Takes `bits` out of the base-level word of a window page.
    fn lose(&self, va: Va, bits: u64) {
        if bits != 0 {
            let at = chain_end(self.sim, va);
            put(self.sim, at, get(self.sim, at) & !bits);
        }
    }
}

/// Where the window's base-level word for `va` is, without writing the chain again.
fn chain_end(sim: &Sim, va: Va) -> u64 {
    let tables = u64::from(sim.config().format.levels()) - 1;
    ROOT + tables * 4096 + (va.get() >> 12 & 511) * 8
}

// SAFETY: it does what the simulator does, or less.
unsafe impl Around for Wreck<'_> {
    type Inner = Sim;

    fn inner(&self) -> &Sim {
        self.sim
    }
    unsafe fn store(&self, pa: Pa, word: u64) {
        let lost = self.is(Broken::StoreLost) && pa.get() & 0xff8 == 0x7f8;
        let word = if lost { 0 } else { word };
        // SAFETY: the caller's promise.
        unsafe { self.sim.store(pa, word) };
    }
    unsafe fn compare_exchange(&self, pa: Pa, old: u64, new: u64) -> Result<u64, u64> {
        if self.is(Broken::ExchangeBlind) || self.is(Broken::ExchangeTorn) {
            // SAFETY: the caller's promise.
            let found = unsafe { self.sim.load(pa) };
            if self.is(Broken::ExchangeTorn) && found != old {
                return Err(found);
            }
            self.sim.relax();
            // SAFETY: the caller's promise.
            unsafe { self.sim.store(pa, new) };
            return Ok(old);
        }
        // SAFETY: the caller's promise.
        unsafe { self.sim.compare_exchange(pa, old, new) }
    }
    unsafe fn clear(&self, pa: Pa, bytes: Bytes, caching: Caching) {
        let late = self.is(Broken::ZerosLate) && caching == Caching::NonTemporal;
        let short = if late || self.is(Broken::ClearShort) { 64 } else { 0 };
        if late {
            *self.late.lock().unwrap() = Some((pa.add(bytes.get() - short), 20));
        }
        // SAFETY: the caller's promise.
        unsafe { self.sim.clear(pa, Bytes::new(bytes.get() - short), caching) };
    }
    fn relax(&self) {
        let mut late = self.late.lock().unwrap();
        if let Some((_, waits)) = late.as_mut() {
            *waits -= 1;
        }
        let due = late.take_if(|(_, waits)| *waits == 0);
        drop(late);
        if let Some((pa, _)) = due {
            // SAFETY: the CPU that had it cleared owns it and waits.
            unsafe { self.sim.clear(pa, Bytes::new(64), Caching::NonTemporal) };
        }
        self.sim.relax();
    }
    unsafe fn copy(&self, from: Pa, to: Pa, bytes: Bytes) {
        let short = if self.is(Broken::CopyShort) { 64 } else { 0 };
        // SAFETY: the caller's promise.
        unsafe { self.sim.copy(from, to, Bytes::new(bytes.get() - short)) };
    }
    unsafe fn write(&self, pa: Pa, contents: &[u8]) {
        let short = if self.is(Broken::WriteShort) { 64 } else { 0 };
        // SAFETY: the caller's promise.
        unsafe { self.sim.write(pa, &contents[..contents.len() - short]) };
    }
    unsafe fn reach(&self, pa: Pa, bytes: Bytes) -> NonNull<u8> {
        let skew = if self.is(Broken::ReachSkewed) { 8 } else { 0 };
        // SAFETY: the law asks for a word of a frame that is its own.
        unsafe { self.sim.reach(pa.add(skew), bytes) }
    }
    unsafe fn kernel_load(&self, va: Va) -> Result<u64, KernelFault> {
        let va = if self.is(Broken::KernelWrongPage) { Va::new(va.get() & !0x1000) } else { va };
        // SAFETY: the caller's promise.
        let word = unsafe { self.sim.kernel_load(va) };
        if self.is(Broken::InventedReads) && self.ticks.fetch_add(1, Ordering::Relaxed) % 50 == 49 {
            return Ok(0x1111);
        }
        let lost = match self.broken {
            Broken::AccessedLost => 1 << 5,
            _ => 0,
        };
        self.lose(va, lost);
        word
    }
    unsafe fn kernel_store(&self, va: Va, word: u64) -> Result<(), KernelFault> {
        if self.is(Broken::KernelStoreLost) {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let done = unsafe { self.sim.kernel_store(va, word) };
        self.lose(va, if self.is(Broken::DirtyLost) { 1 << 6 } else { 0 });
        done
    }
    fn activate(&self, root: Root, kept: Kept) {
        self.activated.store(root.user.get(), Ordering::Relaxed);
        match self.broken {
            Broken::NoActivate => {}
            Broken::NothingIgnored => self.sim.activate(root, Kept::Unchanged),
            _ => self.sim.activate(root, kept),
        }
    }
    fn invalidate(&self, what: &Invalidation) {
        // This machine would end only what is under the tag that runs; under the other root's tag
        // the laws cache nothing that is tested.
        if self.is(Broken::TagsForgotten) && self.activated.load(Ordering::Relaxed) == OTHER {
            return;
        }
        if let Some(left) = self.left_of(what) {
            self.sim.invalidate(&left);
        }
    }
    fn ask(&self, cpus: &CpuSet, what: &Invalidation) -> Ticket {
        let mut cpus = *cpus;
        if self.is(Broken::NobodyAsked) {
            cpus = CpuSet::EMPTY;
        }
        if self.is(Broken::OneAsked) {
            cpus.remove(Cpu(1));
        }
        let left = self.left_of(what).unwrap_or(Invalidation::none(Scope::Kernel));
        self.sim.ask(&cpus, &left)
    }
    fn wait(&self, ticket: Ticket) {
        if !self.is(Broken::NoWait) {
            self.sim.wait(ticket);
        }
    }
    fn rules(&self) -> MmuRules {
        let mut rules = self.sim.rules();
        if self.is(Broken::RulesChange) {
            rules.ceiling_entries = self.ticks.fetch_add(1, Ordering::Relaxed) as u32;
        }
        rules
    }
    fn me(&self) -> Cpu {
        if self.is(Broken::WrongNumber) { Cpu(0) } else { self.sim.me() }
    }
    fn add_own(&self, word: &AtomicU64, by: u64) {
        if self.is(Broken::AddLost) && self.ticks.fetch_add(1, Ordering::Relaxed) % 500 == 499 {
            return;
        }
        self.sim.add_own(word, by);
    }
    fn now(&self) -> Nanos {
        match self.broken {
            Broken::ClockBack => Nanos(1000 - self.ticks.fetch_add(1, Ordering::Relaxed).min(999)),
            _ => self.sim.now(),
        }
    }
    unsafe fn kernel_fill(
        &self,
        va: Va,
        stride: Bytes,
        count: u64,
        word: u64,
    ) -> Result<(), KernelFault> {
        let count = if self.is(Broken::FillShort) { count - 1 } else { count };
        // SAFETY: the caller's promise.
        unsafe { self.sim.kernel_fill(va, stride, count, word) }
    }
}

/// The laws that a broken machine breaks.
fn broken_laws(broken: Broken) -> Vec<&'static str> {
    let mut config = Config::seeded(4, MEMORY, 9);
    config.chance = Chance { switch: 3, interrupt: 0, speculate: 0 };
    assert!(matches!(config.mode, Mode::Seeded(_)));
    let sim = Sim::new(config).unwrap();
    let (ticks, activated) = (AtomicU64::new(0), AtomicU64::new(0));
    let wreck = Wreck { sim: &sim, broken, ticks, activated, late: Mutex::new(None) };
    let mut names = Vec::new();
    laws::run(&bench(&sim, &wreck), &mut |name, verdict| {
        if verdict.is_err() {
            names.push(name);
        }
    });
    names
}

#[test]
fn a_broken_machine_breaks_the_law_that_speaks_of_it() {
    for (broken, law) in [
        (Broken::StoreLost, "words_are_read_back"),
        (Broken::ExchangeBlind, "compare_exchange_replaces_only_what_it_expects"),
        (Broken::ExchangeTorn, "compare_exchange_is_atomic"),
        (Broken::ClearShort, "clear_is_exact"),
        (Broken::ZerosLate, "zeros_are_there_for_whoever_sees_a_later_store"),
        (Broken::CopyShort, "copy_is_exact"),
        (Broken::WriteShort, "write_is_exact"),
        (Broken::ReachSkewed, "reach_is_the_same_memory"),
        (Broken::WrongNumber, "every_cpu_knows_its_number"),
        (Broken::AddLost, "what_a_cpu_adds_to_its_own_word_is_not_lost"),
        (Broken::ClockBack, "clocks_never_run_backwards"),
        (Broken::RulesChange, "rules_do_not_change"),
        (Broken::KernelStoreLost, "kernel_addresses_reach_what_is_mapped"),
        (Broken::KernelWrongPage, "kernel_addresses_reach_what_is_mapped"),
        (Broken::FillShort, "kernel_fill_is_exact"),
        (Broken::AccessedLost, "the_walker_sets_accessed"),
        (Broken::DirtyLost, "the_walker_sets_dirty"),
        (Broken::InventedReads, "before_the_flush_a_read_is_old_or_new"),
        (Broken::NoInvalidate, "after_invalidate_a_read_is_new"),
        (Broken::FirstItemOnly, "sixteen_items_are_all_carried_out"),
        (Broken::FirstPageOnly, "a_range_is_carried_out_to_its_end"),
        (Broken::LargeIgnored, "a_large_leaf_is_ended_by_its_level"),
        (Broken::TablesKept, "removed_tables_are_walked_no_more"),
        (Broken::AllIgnored, "all_ends_everything"),
        (Broken::NoActivate, "activate_ends_what_is_not_global"),
        (Broken::NothingIgnored, "activate_ends_what_is_not_global"),
        (Broken::NothingIgnored, "what_was_kept_under_a_tag_is_ended_too"),
        (Broken::TagsForgotten, "invalidations_reach_roots_that_do_not_run"),
        (Broken::NobodyAsked, "requests_reach_roots_that_do_not_run"),
        (Broken::NobodyAsked, "after_the_wait_every_asked_cpu_reads_new"),
        (Broken::NoWait, "tickets_may_be_waited_for_in_any_order"),
        (Broken::NoWait, "no_cpu_reads_a_frame_after_its_flush"),
        (Broken::OneAsked, "no_cpu_reads_a_frame_after_its_flush"),
    ] {
        let names = broken_laws(broken);
        assert!(names.contains(&law), "{broken:?}: {law} holds; broken: {names:?}");
    }
}
