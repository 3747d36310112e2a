//! The machine as a whole: seeds, many CPUs, much memory, speed.
#![allow(unsafe_code)]

mod common;

use common::*;
use foliant_machine::{Caching, Clock, Cpus, PhysMem, Scope, Tables, Tlb};
use foliant_sim::{Access, Config, Sim, SimError, Trade, Turns};
use foliant_units::{Bytes, Cpu, CpuSet, Frame, FrameRange, Pa, Pages, Va};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const ROOT: u64 = 0x10_0000;
const VA: u64 = 0x7000_0000;

thread_local! {
    /// What the thread, or each CPU on it, keeps for itself.
    static MINE: Cell<usize> = const { Cell::new(0) };
}

fn trade_mine() -> Trade {
    let mut other = 0;
    Box::new(move || other = MINE.replace(other))
}

const STACKS: Turns = Turns::Stacks(trade_mine);

fn history(seed: u64, cpus: usize) -> (u64, foliant_sim::Counts) {
    history_on(seed, cpus, Turns::Threads)
}

/// CPUs that map, touch, unmap and shoot at random-looking addresses of one table.
fn history_on(seed: u64, cpus: usize, turns: Turns) -> (u64, foliant_sim::Counts) {
    let config = Config { turns, ..Config::seeded(cpus, Bytes::new(16 << 20), seed) };
    let sim = Sim::new(config).unwrap();
    let word = chain(&sim, ROOT, VA, 0);
    let format = sim.config().format;
    sim.parallel(cpus, |cpu| {
        run(&sim, cpu.0, ROOT);
        for round in 0..40u64 {
            let page = (u64::from(cpu.0) * 7 + round * 3) % 64;
            let va = Va::new(VA + page * 4096);
            put(&sim, word + page * 8, leaf_word(format, 0, 0x40_0000, Right::Writable, 1));
            let _ = sim.user_touch(va, Access::Write);
            put(&sim, word + page * 8, 0);
            let what = one(Scope::Space(Pa::new(ROOT)), va.get(), 0, Tables::Kept);
            shoot(&sim, cpus, &what);
        }
    });
    let found = sim.finish();
    assert!(found.is_empty(), "seed {seed}: {}", found[0]);
    (sim.digest(), sim.counts())
}

#[test]
fn equal_seeds_give_equal_histories_and_others_differ() {
    let first = history(11, 4);
    assert_eq!(first, history(11, 4));
    assert_ne!(first.0, history(12, 4).0);
}

#[test]
fn a_history_on_stacks_of_one_thread_is_the_one_on_threads() {
    for (seed, cpus) in [(11, 4), (12, 1), (13, 9)] {
        let on_threads = history_on(seed, cpus, Turns::Threads);
        assert_eq!(history_on(seed, cpus, STACKS), on_threads, "seed {seed}");
    }
}

#[test]
fn what_a_thread_keeps_is_each_cpus_own_where_they_share_it() {
    let config = Config { turns: STACKS, ..Config::seeded(3, Bytes::new(1 << 20), 5) };
    let sim = Sim::new(config).unwrap();
    MINE.set(7);
    sim.parallel(3, |cpu| {
        assert_eq!(MINE.get(), 0, "{cpu:?} begins with what was made for it");
        for round in 1..100 {
            MINE.set(round);
            sim.relax();
            assert_eq!((sim.me(), MINE.get()), (cpu, round));
        }
    });
    assert_eq!((sim.me(), MINE.get()), (Cpu(0), 7));
}

#[test]
fn a_panic_of_one_cpu_ends_the_others_and_is_passed_on() {
    for turns in [Turns::Threads, STACKS] {
        let config = Config { turns, ..Config::seeded(3, Bytes::new(1 << 20), 5) };
        let sim = Sim::new(config).unwrap();
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            sim.parallel(3, |cpu| {
                (0..50).for_each(|_| sim.relax());
                assert!(cpu != Cpu(1), "what cpu 1 says");
                loop {
                    sim.relax();
                }
            });
        }));
        let said = *done.unwrap_err().downcast::<&str>().unwrap();
        assert_eq!(said, "what cpu 1 says");
        sim.parallel(3, |_| sim.relax()); // the machine goes on
    }
}

#[test]
fn sixty_four_cpus_shoot_at_each_other_and_nothing_is_stale() {
    let (_, counts) = history(3, 64);
    assert_eq!(counts.shootdowns, 64 * 40);
}

#[test]
fn a_run_really_interleaves() {
    let sim = Sim::new(Config::seeded(3, Bytes::new(1 << 20), 5)).unwrap();
    let (turns, last) = (AtomicUsize::new(0), AtomicUsize::new(9));
    sim.parallel(3, |cpu| {
        for _ in 0..200 {
            sim.relax();
            if last.swap(cpu.index(), Ordering::Relaxed) != cpu.index() {
                turns.fetch_add(1, Ordering::Relaxed);
            }
            sim.yield_now();
        }
    });
    assert!(turns.load(Ordering::Relaxed) > 100);
}

#[test]
fn a_deadlock_is_reported_with_its_seed() {
    for turns in [Turns::Threads, STACKS] {
        let config = Config { turns, ..Config::seeded(2, Bytes::new(1 << 20), 77) };
        let sim = Sim::new(config).unwrap();
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            sim.parallel(2, |_| {
                loop {
                    sim.relax();
                }
            });
        }));
        let text = *done.unwrap_err().downcast::<String>().unwrap();
        assert!(text.contains("seed 77") && text.contains("deadlock"), "{text}");
    }
}

#[test]
fn a_terabyte_costs_the_host_what_is_written() {
    let half = Pages::new(1 << 27);
    let range = |start| FrameRange::new(Frame::new(start), half).unwrap();
    let mut config = Config::free(2, Bytes::new(0));
    config.memory = vec![range(1 << 28), range(0)];
    let sim = Sim::new(config).unwrap();
    let last = (1u64 << 40) + (1 << 39) - 8;
    put(&sim, last, 42);
    assert_eq!((get(&sim, last), get(&sim, 0)), (42, 0));
    // SAFETY: nobody else uses this machine.
    unsafe { sim.clear(Pa::new(0), Bytes::new(1 << 39), Caching::NonTemporal) };
    let kib = std::fs::read_to_string("/proc/self/status").unwrap();
    let rss = kib.lines().find(|l| l.starts_with("VmRSS")).unwrap();
    let rss: u64 = rss.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(rss < 512 << 10, "{rss} KiB resident");
}

#[test]
fn a_thousand_cpus_are_asked_and_answer() {
    let sim = Sim::new(Config::seeded(1024, Bytes::new(1 << 20), 1)).unwrap();
    let word = chain(&sim, ROOT, VA, 0);
    put(&sim, word, leaf_word(sim.config().format, 0, 0x14_0000, Right::Writable, 1));
    for cpu in 0..1024 {
        run(&sim, cpu, ROOT);
        sim.on(Cpu(cpu), || sim.user_touch(Va::new(VA), Access::Read)).unwrap();
    }
    put(&sim, word, 0);
    shoot(&sim, 1024, &one(Scope::Space(Pa::new(ROOT)), VA, 0, Tables::Kept));
    for cpu in 0..1024 {
        assert!(sim.on(Cpu(cpu), || sim.user_touch(Va::new(VA), Access::Read)).is_err());
    }
    let counts = sim.counts();
    assert_eq!((counts.shootdowns, counts.interrupts, counts.requests_served), (1, 1023, 1023));
}

#[test]
fn two_machines_live_in_one_thread() {
    let sim = |cpus| Sim::new(Config::free(cpus, Bytes::new(1 << 20))).unwrap();
    let (a, b) = (sim(4), sim(8));
    a.on(Cpu(3), || {
        b.on(Cpu(7), || {
            assert_eq!((a.me(), b.me()), (Cpu(3), Cpu(7)));
            a.on(Cpu(1), || assert_eq!((a.me(), b.me()), (Cpu(1), Cpu(7))));
        });
        assert_eq!((a.me(), b.me()), (Cpu(3), Cpu(0)));
    });
}

#[test]
fn machines_that_cannot_be_are_refused() {
    let range = |s, n| FrameRange::new(Frame::new(s), Pages::new(n)).unwrap();
    let built = |cpus, memory| {
        let sim = Sim::new(Config { memory, ..Config::free(cpus, Bytes::new(0)) });
        sim.err()
    };
    assert_eq!(built(0, vec![range(0, 1)]), Some(SimError::Cpus { asked: 0 }));
    assert_eq!(built(1025, vec![range(0, 1)]), Some(SimError::Cpus { asked: 1025 }));
    assert_eq!(built(1, vec![range(0, 0)]), Some(SimError::NoMemory));
    let (first, second) = (range(0, 9), range(8, 9));
    assert_eq!(built(1, vec![second, first]), Some(SimError::Overlap { first, second }));
    let many = (1 << 28) + 1;
    let refused = SimError::TooMuchMemory { asked_frames: u128::from(many) };
    assert_eq!(built(1, vec![range(0, many)]), Some(refused));
}

#[test]
fn free_cpus_really_run_at_once() {
    let sim = Sim::new(Config::free(2, Bytes::new(1 << 20))).unwrap();
    let met = AtomicU64::new(0);
    sim.parallel(2, |_| {
        met.fetch_add(1, Ordering::AcqRel);
        while met.load(Ordering::Acquire) < 2 {
            sim.relax();
        }
    });
    let ticket = sim.ask(&CpuSet::EMPTY, &foliant_machine::Invalidation::all(Scope::Kernel));
    sim.wait(ticket);
    assert_eq!(sim.counts().shootdowns, 0);
}

#[test]
fn a_byte_written_beside_a_clear_is_never_hidden_by_the_books() {
    let sim = Sim::new(Config::free(2, Bytes::new(4 << 20))).unwrap();
    let at = 0x20_0000;
    for round in 1..2000u64 {
        sim.parallel(2, |cpu| match cpu.0 {
            0 => put(&sim, at + 64, round),
            // SAFETY: words are atomic, and nobody holds a pointer into the frame.
            _ => unsafe { sim.clear(Pa::new(at), Bytes::new(4096), Caching::Cached) },
        });
        let left = get(&sim, at + 64);
        assert!(left == 0 || left == round, "{left} in round {round}");
        // SAFETY: as above.
        unsafe { sim.clear(Pa::new(at), Bytes::new(4096), Caching::Cached) };
        assert_eq!(get(&sim, at + 64), 0, "round {round}");
    }
}
