//! Every branch of every checker: a wrong little manager that this branch alone catches, and for every exemption a right one
//! that would be reported without it.
#![allow(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;

mod rights;

use common::*;
use foliant_sim::{Access, Config, Format, RiscvMode, Sim, X86Levels};
use foliant_units::{Bytes, Cpu, Va};

const X86: Format = Format::X86_64(X86Levels::Four);
const ARM: Format = Format::Aarch64;
const RISCV: Format = Format::Riscv64(RiscvMode::Sv48);
const FORMATS: [Format; 3] = [X86, ARM, RISCV];

/// The root that CPUs run, and where its tables follow.
const ROOT: u64 = 0x10_0000;
const VA: u64 = 0x40_0000_0000;
const PAGE: u64 = 4096;

/// A machine of two CPUs on which nothing happens by chance; neither runs anything yet.
fn machine(format: Format) -> Sim {
    let mut config = Config::seeded(2, Bytes::new(3 << 30), 1).with_format(format);
    config.chance.speculate = 0;
    config.chance.interrupt = 0;
    Sim::new(config).unwrap()
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
