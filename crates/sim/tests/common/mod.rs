//! Page-table words and small tables for tests, written by hand.
#![allow(unsafe_code, dead_code)]

use foliant_machine::{Invalidation, Item, Kept, PhysMem, Root, Scope, Tables, Tlb};
use foliant_sim::{Format, Sim};
use foliant_units::{Cpu, CpuSet, Level, Pa, Va, VaRange};

/// Writes a word of a table that the test owns.
pub(crate) fn put(sim: &Sim, pa: u64, word: u64) {
    // SAFETY: the tests own all memory of their machine.
    unsafe { sim.store(Pa::new(pa), word) }
}

/// Reads a word of a table that the test owns.
pub(crate) fn get(sim: &Sim, pa: u64) -> u64 {
    // SAFETY: as above.
    unsafe { sim.load(Pa::new(pa)) }
}

/// What a leaf allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Right {
    ReadOnly,
    Writable,
}

/// A word that points to the table at `pa`.
pub(crate) fn table_word(format: Format, pa: u64) -> u64 {
    match format {
        Format::X86_64(_) => pa | 0b111,
        Format::Aarch64 => pa | 0b11,
        Format::Riscv64(_) => pa >> 2 | 1,
    }
}

/// A user leaf (kernel leaf where `user` is 0) for the memory at `pa`, accessed and dirty clear.
pub(crate) fn leaf_word(format: Format, level: u8, pa: u64, right: Right, user: u64) -> u64 {
    let write = u64::from(right == Right::Writable);
    match format {
        Format::X86_64(_) => pa | 1 | write << 1 | user << 2 | u64::from(level > 0) << 7,
        Format::Aarch64 => {
            let dbm = write << 51 | 1 << 7;
            pa | 1 | u64::from(level == 0) << 1 | user << 6 | 1 << 11 | dbm
        }
        Format::Riscv64(_) => pa >> 2 | 1 | 1 << 1 | write << 2 | user << 4,
    }
}

/// A chain of tables from `root` down to `level` for `va`, one frame each from `root` on. Gives the
/// address of the word at `level`.
pub(crate) fn chain(sim: &Sim, root: u64, va: u64, level: u8) -> u64 {
    let format = sim.config().format;
    let mut table = root;
    let mut at = format.levels() - 1;
    loop {
        let word = table + (va >> (12 + 9 * u64::from(at)) & 511) * 8;
        if at == level {
            return word;
        }
        let next = table + 4096;
        put(sim, word, table_word(format, next));
        (table, at) = (next, at - 1);
    }
}

/// Makes CPU `cpu` run the tables at `root`, for both halves, with nothing kept.
pub(crate) fn run(sim: &Sim, cpu: u16, root: u64) {
    run_again(sim, cpu, root, Kept::Nothing);
}

/// Makes CPU `cpu` run the tables at `root`, for both halves.
pub(crate) fn run_again(sim: &Sim, cpu: u16, root: u64, kept: Kept) {
    sim.on(Cpu(cpu), || sim.activate(Root { user: Pa::new(root), kernel: Pa::new(root) }, kept));
}

/// An invalidation of one leaf.
pub(crate) fn one(scope: Scope, va: u64, level: u8, tables: Tables) -> Invalidation {
    let mut what = Invalidation::none(scope);
    let range = VaRange::sized(Va::new(va), Level(level).span()).unwrap();
    what.push(Item { range, level: Level(level), tables }).unwrap();
    what
}

/// Asks CPUs 0 to `cpus - 1` and waits.
pub(crate) fn shoot(sim: &Sim, cpus: usize, what: &Invalidation) {
    sim.invalidate(what);
    let ticket = sim.ask(&CpuSet::first(cpus), what);
    sim.wait(ticket);
}
