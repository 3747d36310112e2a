//! Numbers, spinning, time.

use super::*;
use crate::{Clock, Cpus};

pub(super) fn every_cpu_knows_its_number<B: Bench>(bench: &B) -> Verdict {
    let machine = bench.machine();
    let finding = Finding::new();
    for cpu in each_cpu(bench) {
        bench.on(cpu, &|| finding.expect(cpu, u64::from(cpu.0), u64::from(machine.me().0)));
    }
    bench.together(&|cpu| finding.expect(cpu, u64::from(cpu.0), u64::from(machine.me().0)));
    finding.verdict("its own number")
}

pub(super) fn pinned_nests<B: Bench>(bench: &B) -> Verdict {
    let machine = bench.machine();
    let finding = Finding::new();
    for cpu in each_cpu(bench) {
        bench.on(cpu, &|| {
            let (outer, inner) = machine.pinned(|outer| (outer, machine.pinned(|inner| inner)));
            finding.expect(cpu, u64::from(cpu.0), u64::from(outer.0));
            finding.expect(cpu, u64::from(cpu.0), u64::from(inner.0));
        });
    }
    finding.verdict("the number inside pinned")
}

/// Each CPU adds to a word of its own, all of them at once; sums wrap.
pub(super) fn what_a_cpu_adds_to_its_own_word_is_not_lost<B: Bench>(bench: &B) -> Verdict {
    const ROUNDS: u64 = 200;
    let machine = bench.machine();
    let words = [const { AtomicU64::new(0) }; 32]; // side by side: of the first CPUs
    let word = |cpu: Cpu| words.get(cpu.index());
    let add = |by: u64| {
        machine.pinned(|cpu| word(cpu).into_iter().for_each(|word| machine.add_own(word, by)));
    };
    bench.together(&|_| {
        for round in 0..ROUNDS {
            add(round);
            add(round.wrapping_neg());
            add(3);
        }
    });
    let finding = Finding::new();
    for (cpu, word) in each_cpu(bench).zip(&words) {
        finding.expect(cpu, 3 * ROUNDS, word.load(Ordering::Acquire));
    }
    finding.verdict("the sum of what it added")
}

pub(super) fn spinning_lets_others_run<B: Bench>(bench: &B) -> Verdict {
    let machine = bench.machine();
    let arrived = AtomicU64::new(0);
    let all = machine.count() as u64;
    for round in 1..=3 {
        bench.together(&|_| {
            arrived.fetch_add(1, Ordering::AcqRel);
            while arrived.load(Ordering::Acquire) < all * round {
                machine.relax();
            }
        });
    }
    expect(machine.me(), "cpus that met", all * 3, arrived.load(Ordering::Acquire))
}

pub(super) fn clocks_never_run_backwards<B: Bench>(bench: &B) -> Verdict {
    let machine = bench.machine();
    let at = small(bench, 0).pa();
    let finding = Finding::new();
    bench.together(&|cpu| {
        let mut before = machine.now();
        for _ in 0..20 {
            clear(machine, at.add(4096 * (u64::from(cpu.0) % 32)), Bytes::new(64), Caching::Cached);
            machine.yield_now();
            let now = machine.now();
            finding.expect(cpu, before.0.max(now.0), now.0);
            before = now;
        }
    });
    finding.verdict("the time after earlier time")
}

pub(super) fn rules_do_not_change<B: Bench>(bench: &B) -> Verdict {
    let machine = bench.machine();
    let (rules, count) = (machine.rules(), machine.count());
    let finding = Finding::new();
    for cpu in each_cpu(bench) {
        bench.on(cpu, &|| {
            finding.expect(cpu, 1, u64::from(rules == machine.rules()));
            finding.expect(cpu, count as u64, machine.count() as u64);
        });
    }
    finding.verdict("rules and number of cpus")
}
