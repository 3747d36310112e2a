//! Kernel addresses: what is mapped is reached, and the walker keeps its bits.

use super::*;
use crate::{Accessed, Cpus};

fn map<B: Bench>(bench: &B, n: u64, frame: Frame) -> Va {
    let va = page(bench, n);
    let leaf = bench.leaf(Level::BASE, frame, Right::Writable);
    store(bench.machine(), bench.word(va), leaf);
    va
}

pub(super) fn kernel_addresses_reach_what_is_mapped<B: Bench>(bench: &B) -> Verdict {
    let machine = bench.machine();
    for n in 0..WINDOW_PAGES.get() {
        store(machine, small(bench, n).pa().add(8), 0x100 + n);
        map(bench, n, small(bench, n));
    }
    for cpu in each_cpu(bench).take(8) {
        for n in 0..WINDOW_PAGES.get() {
            let got = read_on(bench, cpu, page(bench, n).add(8));
            expect(cpu, "a word behind a kernel address", 0x100 + n, got)?;
        }
    }
    let va = page(bench, 3).add(4088);
    expect(machine.me(), "a kernel store", 0, write(machine, va, 0x77))?;
    let got = load(machine, small(bench, 3).pa().add(4088));
    expect(machine.me(), "the frame after a kernel store", 0x77, got)
}

pub(super) fn kernel_fill_is_exact<B: Bench>(bench: &B) -> Verdict {
    const STRIDE: u64 = 64;
    let machine = bench.machine();
    for n in 0..3 {
        clear(machine, small(bench, n).pa(), Bytes::new(4096), Caching::Cached);
        map(bench, n, small(bench, n));
    }
    // The fill goes from the end of the first page into the third, and changes no word beside it.
    let (first, count) = (4096 - 2 * STRIDE, 5 + 4096 / STRIDE);
    #[allow(unsafe_code)]
    // SAFETY: L3, to scratch frames.
    let filled = unsafe {
        machine.kernel_fill(page(bench, 0).add(first), Bytes::new(STRIDE), count, 0xf111)
    };
    expect(machine.me(), "a fill", 0, filled.map_or(FAULTED, |()| 0))?;
    for at in (0..3 * 4096).step_by(8) {
        let meant = at >= first && at < first + count * STRIDE && at % STRIDE == 0;
        let got = load(machine, small(bench, at / 4096).pa().add(at % 4096));
        expect(machine.me(), "a word after a fill", if meant { 0xf111 } else { 0 }, got)?;
    }
    Ok(())
}

pub(super) fn kernel_compare_exchange_is_exact<B: Bench>(bench: &B) -> Verdict {
    const ROUNDS: u64 = 20;
    let machine = bench.machine();
    let at = small(bench, 0).pa();
    store(machine, at, 0);
    let va = map(bench, 0, small(bench, 0));
    #[allow(unsafe_code)]
    // SAFETY: L3, to a scratch frame.
    let exchange = |old, new| unsafe { machine.kernel_compare_exchange(va, old, new) };
    let refused = exchange(5, 6).map_or(FAULTED, |done| done.err().unwrap_or(u64::MAX));
    expect(machine.me(), "the word found by a refused exchange", 0, refused)?;
    let finding = Finding::new();
    bench.together(&|cpu| {
        for _ in 0..ROUNDS {
            let mut old = read(machine, va);
            loop {
                match exchange(old, old + 1) {
                    Ok(Ok(_)) => break,
                    Ok(Err(found)) => old = found,
                    Err(_) => return finding.expect(cpu, old, FAULTED),
                }
                machine.relax();
            }
        }
    });
    finding.verdict("a mapped word")?;
    let want = ROUNDS * machine.count() as u64;
    expect(machine.me(), "the sum of increments", want, load(machine, at))
}

pub(super) fn two_addresses_of_one_frame_agree<B: Bench>(bench: &B) -> Verdict {
    let machine = bench.machine();
    let (a, b) = (map(bench, 0, small(bench, 0)), map(bench, 9, small(bench, 0)));
    for cpu in each_cpu(bench).take(8) {
        let word = 0x200 + u64::from(cpu.0);
        expect(machine.me(), "a kernel store", 0, write(machine, a, word))?;
        expect(cpu, "the frame's other address", word, read_on(bench, cpu, b))?;
    }
    Ok(())
}

/// M2: a word that was not present was not cached.
pub(super) fn a_new_mapping_needs_no_flush<B: Bench>(bench: &B) -> Verdict {
    let machine = bench.machine();
    // A neighbour is used first, so that the way down to the table is cached already.
    map(bench, 0, small(bench, 0));
    for cpu in each_cpu(bench).take(8) {
        read_on(bench, cpu, page(bench, 0));
    }
    store(machine, small(bench, 1).pa(), 0x31);
    let va = map(bench, 1, small(bench, 1));
    for cpu in each_cpu(bench).take(8) {
        expect(cpu, "a page mapped just now", 0x31, read_on(bench, cpu, va))?;
    }
    Ok(())
}

pub(super) fn the_walker_sets_accessed<B: Bench>(bench: &B) -> Verdict {
    let machine = bench.machine();
    let va = map(bench, 0, small(bench, 0));
    read(machine, va);
    let word = load(machine, bench.word(va));
    match (bench.accessed(word), machine.rules().accessed) {
        (Some(set), _) => expect(machine.me(), "accessed after a read", 1, u64::from(set)),
        (None, Accessed::SetBeforeCached) => expect(machine.me(), "an accessed bit", 1, 0),
        (None, Accessed::Independent) => Ok(()),
    }
}

pub(super) fn the_walker_sets_dirty<B: Bench>(bench: &B) -> Verdict {
    let machine = bench.machine();
    let va = map(bench, 0, small(bench, 0));
    read(machine, va);
    let word = load(machine, bench.word(va));
    let Some(early) = bench.dirty(word) else { return Ok(()) };
    expect(machine.me(), "dirty after a read", 0, u64::from(early))?;
    expect(machine.me(), "a kernel store", 0, write(machine, va, 1))?;
    let late = bench.dirty(load(machine, bench.word(va)));
    expect(machine.me(), "dirty after a store", 1, u64::from(late == Some(true)))
}
