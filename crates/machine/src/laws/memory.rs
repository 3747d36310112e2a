//! Page-table words, clearing, copying.

use super::*;
use crate::Cpus;

const ODD: u64 = 0x5a5a_0000_0000_0001;

pub(super) fn words_are_read_back<B: Bench>(bench: &B) -> Verdict {
    let (machine, base) = (bench.machine(), small(bench, 0).pa());
    for n in 0..512 {
        store(machine, base.add(n * 8), ODD + n);
    }
    for n in 0..512 {
        expect(machine.me(), "a stored word", ODD + n, load(machine, base.add(n * 8)))?;
    }
    Ok(())
}

pub(super) fn words_cross_cpus<B: Bench>(bench: &B) -> Verdict {
    let (machine, at) = (bench.machine(), small(bench, 0).pa());
    for cpu in each_cpu(bench) {
        let word = ODD + u64::from(cpu.0);
        bench.on(cpu, &|| store(machine, at, word));
        expect(machine.me(), "a word stored by another cpu", word, load(machine, at))?;
    }
    Ok(())
}

pub(super) fn empty_words_are_counted_up_to_the_first_other<B: Bench>(bench: &B) -> Verdict {
    let (machine, base) = (bench.machine(), small(bench, 0).pa());
    (0..64).for_each(|n| store(machine, base.add(n * 8), 0));
    for used in 0..40 {
        store(machine, base.add(used * 8), ODD << 8);
        for (first, count) in [(0, 1), (0, 8), (0, 40), (1, 7), (3, 33), (8, 24), (39, 1)] {
            let before = used.checked_sub(first).unwrap_or(count).min(count);
            let found = zeros(machine, base.add(first * 8), count);
            expect(machine.me(), "how many words are 0", before, found)?;
        }
        store(machine, base.add(used * 8), 0);
    }
    Ok(())
}

#[allow(unsafe_code)]
fn zeros<M: PhysMem>(machine: &M, pa: Pa, count: u64) -> u64 {
    // SAFETY: as for `store`.
    unsafe { machine.zeros(pa, count as usize) as u64 }
}

#[allow(unsafe_code)]
fn exchange<M: PhysMem>(machine: &M, pa: Pa, old: u64, new: u64) -> Result<u64, u64> {
    // SAFETY: as for `store`.
    unsafe { machine.compare_exchange(pa, old, new) }
}

pub(super) fn compare_exchange_replaces_only_what_it_expects<B: Bench>(bench: &B) -> Verdict {
    let (machine, at) = (bench.machine(), small(bench, 0).pa());
    let me = machine.me();
    store(machine, at, 7);
    let refused = exchange(machine, at, 8, 9).err().unwrap_or(u64::MAX);
    expect(me, "the word found by a refused exchange", 7, refused)?;
    expect(me, "the word after a refused exchange", 7, load(machine, at))?;
    let done = exchange(machine, at, 7, 9).unwrap_or(u64::MAX);
    expect(me, "the word replaced by an exchange", 7, done)?;
    expect(me, "the word after an exchange", 9, load(machine, at))
}

pub(super) fn compare_exchange_is_atomic<B: Bench>(bench: &B) -> Verdict {
    const ROUNDS: u64 = 50;
    let (machine, at) = (bench.machine(), small(bench, 0).pa());
    store(machine, at, 0);
    bench.together(&|_| {
        for _ in 0..ROUNDS {
            let mut old = load(machine, at);
            while let Err(found) = exchange(machine, at, old, old + 1) {
                old = found;
                machine.relax();
            }
        }
    });
    let want = ROUNDS * machine.count() as u64;
    expect(machine.me(), "the sum of increments", want, load(machine, at))
}

pub(super) fn clear_is_exact<B: Bench>(bench: &B) -> Verdict {
    Caching::ALL.into_iter().try_for_each(|caching| clears_exactly(bench, caching))
}

fn clears_exactly<B: Bench>(bench: &B, caching: Caching) -> Verdict {
    let (machine, base) = (bench.machine(), small(bench, 0).pa());
    for (start, bytes) in [(0, 4096), (64, 64), (4096 - 64, 128), (128, 8192 - 256)] {
        for n in 0..1024 {
            store(machine, base.add(n * 8), ODD);
        }
        clear(machine, base.add(start), Bytes::new(bytes), caching);
        for at in (0..8192).step_by(8) {
            let want = if (start..start + bytes).contains(&at) { 0 } else { ODD };
            expect(machine.me(), "a word after clear", want, load(machine, base.add(at)))?;
        }
    }
    let large = block(bench, 0).pa();
    let edges = [0, (2 << 20) - 8, 1 << 20];
    edges.iter().for_each(|at| store(machine, large.add(*at), ODD));
    clear(machine, large, Bytes::SIZE_2M, caching);
    edges.iter().try_for_each(|at| {
        expect(machine.me(), "a word after clearing 2 MiB", 0, load(machine, large.add(*at)))
    })
}

/// CPU 0 clears and then stores; the others wait for the store and look at the last bytes first.
pub(super) fn zeros_are_there_for_whoever_sees_a_later_store<B: Bench>(bench: &B) -> Verdict {
    const ROUNDS: u64 = 8;
    const BYTES: u64 = 64 << 10;
    let (machine, base, flag) = (bench.machine(), block(bench, 0).pa(), small(bench, 0).pa());
    let (seen, finding) = (AtomicU64::new(0), Finding::new());
    let others = machine.count() as u64 - 1;
    store(machine, flag, 0);
    bench.together(&|cpu| {
        for round in 1..=ROUNDS {
            let caching = Caching::ALL[(round % 2) as usize];
            if cpu.0 == 0 {
                (0..BYTES).step_by(64).for_each(|at| store(machine, base.add(at), ODD));
                clear(machine, base, Bytes::new(BYTES), caching);
                store(machine, flag, round);
                while seen.load(Ordering::Acquire) < others * round {
                    machine.relax();
                }
                continue;
            }
            while load(machine, flag) < round {
                machine.relax();
            }
            for line in (0..BYTES / 64).rev() {
                finding.expect(cpu, 0, load(machine, base.add(64 * line)));
            }
            seen.fetch_add(1, Ordering::AcqRel);
        }
    });
    finding.verdict("a cleared word after a later store")
}

pub(super) fn copy_is_exact<B: Bench>(bench: &B) -> Verdict {
    let (machine, from, to) = (bench.machine(), small(bench, 0).pa(), small(bench, 2).pa());
    for (start, bytes) in [(0, 4096), (64, 64), (4096 - 64, 128), (128, 8192 - 256)] {
        for n in 0..1024 {
            store(machine, from.add(n * 8), ODD + n);
            store(machine, to.add(n * 8), 3);
        }
        #[allow(unsafe_code)]
        // SAFETY: scratch frames 0, 1 and 2, 3 belong to the suite and do not overlap.
        unsafe {
            machine.copy(from.add(start), to.add(start), Bytes::new(bytes));
        }
        for at in (0..8192).step_by(8) {
            let inside = (start..start + bytes).contains(&at);
            let want = if inside { ODD + at / 8 } else { 3 };
            expect(machine.me(), "a word after copy", want, load(machine, to.add(at)))?;
            let source = load(machine, from.add(at));
            expect(machine.me(), "the source of a copy", ODD + at / 8, source)?;
        }
    }
    Ok(())
}

pub(super) fn write_is_exact<B: Bench>(bench: &B) -> Verdict {
    const LINES: [[u8; 64]; 3] = [[0x5a; 64], [0xa5; 64], [1; 64]];
    let (machine, to) = (bench.machine(), small(bench, 2).pa());
    for (start, lines) in [(0, 1), (64, 3), (4096 - 64, 2), (4096 - 64, 1)] {
        (0..1024).for_each(|n| store(machine, to.add(n * 8), ODD));
        #[allow(unsafe_code)]
        // SAFETY: scratch frames 2 and 3 belong to the suite.
        unsafe {
            machine.write(to.add(start), LINES[..lines].as_flattened());
        }
        for at in (0..8192_u64).step_by(8) {
            let line = at.checked_sub(start).map(|offset| offset as usize / 64);
            let written = line.and_then(|line| LINES[..lines].get(line));
            let want = written.map_or(ODD, |line| u64::from_ne_bytes([line[0]; 8]));
            expect(machine.me(), "a word after write", want, load(machine, to.add(at)))?;
        }
    }
    Ok(())
}

pub(super) fn reach_is_the_same_memory<B: Bench>(bench: &B) -> Verdict {
    let (machine, at) = (bench.machine(), small(bench, 5).pa().add(64));
    store(machine, at, ODD);
    #[allow(unsafe_code)]
    // SAFETY: a scratch frame, which the suite owns.
    let pointer = unsafe { machine.reach(at, Bytes::new(8)) }.cast::<u64>();
    let off = pointer.addr().get() as u64 % foliant_units::FRAME_BYTES;
    expect(machine.me(), "the bytes from a page to what is 64 behind a frame", 64, off)?;
    #[allow(unsafe_code)]
    // SAFETY: eight bytes were asked for, aligned like `at`; nobody else uses the frame now.
    let got = unsafe { pointer.read() };
    expect(machine.me(), "a word read through reach", ODD, got)?;
    #[allow(unsafe_code)]
    // SAFETY: as for the read.
    unsafe {
        pointer.write(!ODD);
    }
    expect(machine.me(), "a word written through reach", !ODD, load(machine, at))
}
