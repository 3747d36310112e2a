//! Every branch of every checker: a wrong little manager that this branch alone catches, and for
//! every exemption a right one that would be reported without it.
#![allow(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;

mod bbm;
mod conserved;
mod groups;
mod owners;
mod quiescent;
mod rights;
mod small_and_large;
mod stale;
mod watch;
mod zeroed;

use common::*;
use foliant_machine::{Caching, Kept, Owner, PhysMem, Root, Tlb, Witness};
use foliant_sim::{Access, Config, Format, RiscvMode, Sim, X86Levels};
use foliant_units::{Bytes, Cpu, FrameRange, Pa, Pages, Va};

const X86: Format = Format::X86_64(X86Levels::Four);
const ARM: Format = Format::Aarch64;
const RISCV: Format = Format::Riscv64(RiscvMode::Sv48);
const FORMATS: [Format; 3] = [X86, ARM, RISCV];

/// The root that CPUs run, and where its tables follow.
const ROOT: u64 = 0x10_0000;
/// Another root and its tables.
const OTHER: u64 = 0x14_0000;
/// Frames that the tests do things to; 2 MiB and 1 GiB aligned ones lie there as well.
const SIZE_1G: u64 = 0x4000_0000;
const VA: u64 = 0x40_0000_0000;
const KERNEL: u64 = 0xffff_ff80_0000_0000;
const PAGE: u64 = 4096;

/// A machine of two CPUs on which nothing happens by chance; neither runs anything yet.
fn machine(format: Format) -> Sim {
    let mut config = Config::seeded(2, Bytes::new(3 << 30), 1).with_format(format);
    config.chance.speculate = 0;
    config.chance.interrupt = 0;
    Sim::new(config).unwrap()
}

fn own(sim: &Sim, pa: u64, frames: u64, owner: Owner) {
    sim.owned(FrameRange::new(Pa::new(pa).frame(), Pages::new(frames)).unwrap(), owner);
}

fn clear(sim: &Sim, pa: u64, bytes: u64) {
    // SAFETY: the test owns the memory of its machine.
    unsafe { sim.clear(Pa::new(pa), Bytes::new(bytes), Caching::Cached) };
}

fn copy(sim: &Sim, from: u64, to: u64, bytes: u64) {
    // SAFETY: as above.
    unsafe { sim.copy(Pa::new(from), Pa::new(to), Bytes::new(bytes)) };
}

/// The memory as a host pointer; nothing is written through it.
fn reach(sim: &Sim, pa: u64, bytes: u64) -> *mut u64 {
    // SAFETY: as above.
    unsafe { sim.reach(Pa::new(pa), Bytes::new(bytes)) }.as_ptr().cast()
}

fn look(sim: &Sim, pa: u64, bytes: u64) -> bool {
    // SAFETY: as above.
    unsafe { sim.is_zero(Pa::new(pa), Bytes::new(bytes)) }
}

fn touch(sim: &Sim, cpu: u16, va: u64, access: Access) {
    sim.on(Cpu(cpu), || sim.user_touch(Va::new(va), access)).unwrap();
}

/// A user's leaf that may be written.
fn leaf(sim: &Sim, level: u8, pa: u64) -> u64 {
    leaf_word(sim.config().format, level, pa, Right::Writable, 1)
}

/// Maps `pa` at `va` for users of [`ROOT`], with a leaf of `level`; gives the leaf's address.
fn map(sim: &Sim, va: u64, level: u8, pa: u64) -> u64 {
    let word = chain(sim, ROOT, va, level);
    put(sim, word, leaf(sim, level, pa));
    word
}

/// CPU `cpu` runs `user` with `kernel` in the other half.
fn run_both(sim: &Sim, cpu: u16, user: u64, kernel: u64) {
    let root = Root { user: Pa::new(user), kernel: Pa::new(kernel) };
    sim.on(Cpu(cpu), || sim.activate(root, Kept::Nothing));
}

/// Exactly this was found, in this order: each by its checker, in a text that has the words in it.
fn found(sim: &Sim, wanted: &[(&str, &str)]) {
    let found = sim.violations();
    let same = found.len() == wanted.len()
        && found.iter().zip(wanted).all(|(found, (checker, words))| {
            found.checker == *checker && found.text.contains(words)
        });
    assert!(same, "wanted {wanted:#?}\nfound {found:#?}");
}

/// Nothing was found.
fn clean(sim: &Sim) {
    found(sim, &[]);
}
