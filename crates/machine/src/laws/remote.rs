//! Invalidations on other CPUs.

use super::*;
use crate::{Clock, Cpus, Ticket};

/// Maps page `n` to frame `frame`, which holds `content`.
fn map<B: Bench>(bench: &B, n: u64, frame: u64, content: u64) -> Va {
    let (machine, va) = (bench.machine(), page(bench, n));
    store(machine, small(bench, frame).pa(), content);
    let leaf = bench.leaf(Level::BASE, small(bench, frame), Right::Writable);
    store(machine, bench.word(va), leaf);
    va
}

fn renew<B: Bench>(bench: &B, n: u64, frame: u64, content: u64, flush: impl FnOnce()) {
    store(bench.machine(), small(bench, frame).pa(), content);
    let leaf = bench.leaf(Level::BASE, small(bench, frame), Right::Writable);
    change(bench, bench.word(page(bench, n)), leaf, flush);
}

fn others<B: Bench>(bench: &B) -> CpuSet {
    CpuSet::first(bench.machine().count())
}

/// M3.
pub(super) fn after_the_wait_every_asked_cpu_reads_new<B: Bench>(bench: &B) -> Verdict {
    let va = map(bench, 0, 0, 1);
    for cpu in each_cpu(bench) {
        expect(cpu, "the old frame", 1, read_on(bench, cpu, va))?;
    }
    renew(bench, 0, 1, 2, || everywhere(bench, &leaf_at(va, Level::BASE, Tables::Kept)));
    for cpu in each_cpu(bench) {
        expect(cpu, "the new frame", 2, read_on(bench, cpu, va))?;
    }
    Ok(())
}

pub(super) fn tickets_may_be_waited_for_in_any_order<B: Bench>(bench: &B) -> Verdict {
    const PAGES: u64 = 4;
    let machine = bench.machine();
    for n in 0..PAGES {
        let va = map(bench, n, 2 * n, 0x10 + n);
        for cpu in each_cpu(bench) {
            expect(cpu, "the old frame", 0x10 + n, read_on(bench, cpu, va))?;
        }
    }
    let mut tickets: [Option<Ticket>; PAGES as usize] = [const { None }; PAGES as usize];
    let word = |n| bench.word(page(bench, n));
    let leaf = |n| bench.leaf(Level::BASE, small(bench, 2 * n + 1), Right::Writable);
    let in_place = machine.rules().replace == Replace::InPlace;
    for (n, slot) in (0..PAGES).zip(&mut tickets) {
        store(machine, small(bench, 2 * n + 1).pa(), 0x20 + n);
        store(machine, word(n), if in_place { leaf(n) } else { 0 });
        let what = leaf_at(page(bench, n), Level::BASE, Tables::Kept);
        machine.invalidate(&what);
        *slot = Some(machine.ask(&others(bench), &what));
    }
    // The last ticket is waited for first, then those from the front: a page whose ticket was
    // waited for is fresh, whatever is outstanding.
    for n in [3, 0, 2, 1] {
        if let Some(ticket) = tickets[n as usize].take() {
            machine.wait(ticket);
        }
        store(machine, word(n), leaf(n));
        for cpu in each_cpu(bench) {
            let got = read_on(bench, cpu, page(bench, n));
            expect(cpu, "the frame whose ticket was waited for", 0x20 + n, got)?;
        }
    }
    Ok(())
}

pub(super) fn asking_nobody_is_legal<B: Bench>(bench: &B) -> Verdict {
    let machine = bench.machine();
    let what = leaf_at(page(bench, 0), Level::BASE, Tables::Kept);
    machine.wait(machine.ask(&CpuSet::EMPTY, &what));
    let mut me = CpuSet::EMPTY;
    machine.pinned(|cpu| {
        me.insert(cpu);
        machine.wait(machine.ask(&me, &what));
    });
    machine.wait(machine.ask(&others(bench), &Invalidation::none(Scope::Kernel)));
    Ok(())
}

/// A machine on which two CPUs that wait for each other block does not return from this law.
pub(super) fn all_cpus_ask_each_other_and_get_through<B: Bench>(bench: &B) -> Verdict {
    const ROUNDS: u64 = 10;
    let machine = bench.machine();
    let done = AtomicU64::new(0);
    bench.together(&|cpu| {
        let what = leaf_at(page(bench, u64::from(cpu.0)), Level::BASE, Tables::Kept);
        for _ in 0..ROUNDS {
            let ticket = machine.ask(&others(bench), &what);
            machine.wait(ticket);
            done.fetch_add(1, Ordering::AcqRel);
        }
    });
    let want = ROUNDS * machine.count() as u64;
    expect(machine.me(), "rounds done", want, done.load(Ordering::Acquire))
}

/// Every CPU remaps a page of its own, flushes, and poisons the frame that it took away, while all
/// others read. No CPU may ever read poison: that would be an access after the wait (M3).
pub(super) fn no_cpu_reads_a_frame_after_its_flush<B: Bench>(bench: &B) -> Verdict {
    const ROUNDS: u64 = 12;
    const POISON: u64 = 0xdead;
    // Each writer has a page, which takes two frames; CPUs beyond these only read.
    const WRITERS: u64 = 16;
    let machine = bench.machine();
    let writers = WRITERS.min(machine.count() as u64);
    for n in 0..writers {
        map(bench, n, 2 * n, 0x100 + n);
    }
    let finding = Finding::new();
    bench.together(&|cpu| {
        let n = u64::from(cpu.0);
        for round in 1..=ROUNDS {
            if n < writers {
                let (old, new) = (2 * n + (round + 1) % 2, 2 * n + round % 2);
                let flush =
                    || everywhere(bench, &leaf_at(page(bench, n), Level::BASE, Tables::Kept));
                renew(bench, n, new, 0x100 + n, flush);
                store(machine, small(bench, old).pa(), POISON);
            }
            for other in 0..writers {
                let got = read(machine, page(bench, other));
                if got != FAULTED {
                    finding.expect(cpu, 0x100 + other, got);
                }
            }
            machine.yield_now();
        }
    });
    finding.verdict("a page that another cpu remaps")
}
