//! How fast the machine simulates: a fault of a replay, a hit, and two CPUs against one. Ratios
//! mean something on a quiet host only.
#![allow(unsafe_code)]

#[path = "../tests/common/mod.rs"]
mod common;

use common::*;
use foliant_machine::{Caching, PhysMem, Scope, Tables, Tlb};
use foliant_sim::{Access, Config, Sim};
use foliant_units::{Bytes, Pa, Va};

const ROOT: u64 = 0x10_0000;
const VA: u64 = 0x7000_0000;

fn main() {
    faults();
    scaling();
}

/// How many rounds a second there are of a fault, a word, a touch and an invalidation, as in a
/// replay.
fn faults() {
    let config = Config::free(1, Bytes::new(64 << 20));
    let sim = Sim::new(config).unwrap();
    let word = chain(&sim, ROOT, VA, 0);
    let format = sim.config().format;
    run(&sim, 0, ROOT);
    let rounds = 200_000u64;
    let start = std::time::Instant::now();
    for round in 0..rounds {
        let page = round % 512;
        let va = Va::new((VA & !0x1f_ffff) + page * 4096);
        assert!(sim.user_touch(va, Access::Write).is_err());
        // SAFETY: nobody else uses this machine.
        unsafe { sim.clear(Pa::new(0x80_0000 + page * 4096), Bytes::new(4096), Caching::Cached) };
        let word = (word & !0xfff) + page * 8;
        put(&sim, word, leaf_word(format, 0, 0x80_0000 + page * 4096, Right::Writable, 1));
        sim.user_touch(va, Access::Write).unwrap();
        put(&sim, word, 0);
        sim.invalidate(&one(Scope::Space(Pa::new(ROOT)), va.get(), 0, Tables::Kept));
    }
    let each = start.elapsed().as_nanos() as u64 / rounds;
    println!("{each} ns a round, {} rounds a second", 1_000_000_000 / each.max(1));
    let start = std::time::Instant::now();
    put(&sim, word, leaf_word(format, 0, 0x80_0000, Right::Writable, 1));
    for _ in 0..rounds {
        sim.user_touch(Va::new(VA), Access::Write).unwrap();
    }
    let each = start.elapsed().as_nanos() as u64 / rounds;
    println!("{each} ns a hit, {} hits a second", 1_000_000_000 / each.max(1));
}

/// The same on one CPU and on two at once, which share nothing of the machine on the way.
fn scaling() {
    let rate = |cpus: usize| {
        let sim = Sim::new(Config::free(cpus, Bytes::new(64 << 20))).unwrap();
        let format = sim.config().format;
        let words: Vec<u64> = (0..cpus as u64)
            .map(|cpu| {
                let word = chain(&sim, ROOT + cpu * 0x10_000, VA, 0);
                run(&sim, cpu as u16, ROOT + cpu * 0x10_000);
                word
            })
            .collect();
        let rounds = 100_000u64;
        let start = std::time::Instant::now();
        sim.parallel(cpus, |cpu| {
            let (word, root) = (words[cpu.index()], ROOT + u64::from(cpu.0) * 0x10_000);
            for _ in 0..rounds {
                put(&sim, word, leaf_word(format, 0, 0x80_0000, Right::Writable, 1));
                sim.user_touch(Va::new(VA), Access::Write).unwrap();
                put(&sim, word, 0);
                sim.invalidate(&one(Scope::Space(Pa::new(root)), VA, 0, Tables::Kept));
            }
        });
        rounds as f64 * cpus as f64 / start.elapsed().as_secs_f64()
    };
    let (one, two) = (rate(1), rate(2));
    println!("{one:.0} rounds a second on one cpu, {two:.0} on two: {:.2}x", two / one);
}
