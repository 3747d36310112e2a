//! Invalidations on the CPU itself.

use super::*;
use crate::Cpus;

pub(super) const OLD: u64 = 0x01d;
pub(super) const NEW: u64 = 0x2e3;

/// Maps page `n` to a frame that holds `OLD` and reads it, so that it may be cached. A frame that
/// holds `NEW` waits beside it.
pub(super) fn cached<B: Bench>(bench: &B, n: u64) -> Result<Va, Seen> {
    let (machine, va) = (bench.machine(), page(bench, n));
    store(machine, small(bench, 2 * n).pa(), OLD + n);
    store(machine, small(bench, 2 * n + 1).pa(), NEW + n);
    let leaf = bench.leaf(Level::BASE, small(bench, 2 * n), Right::Writable);
    store(machine, bench.word(va), leaf);
    expect(machine.me(), "the old frame", OLD + n, read(machine, va))?;
    Ok(va)
}

/// Points page `n` to its new frame.
pub(super) fn renew<B: Bench>(bench: &B, n: u64, flush: impl FnOnce()) {
    let leaf = bench.leaf(Level::BASE, small(bench, 2 * n + 1), Right::Writable);
    change(bench, bench.word(page(bench, n)), leaf, flush);
}

/// Points pages 0 to `count - 1` to their new frames with one flush, and reads them.
fn renew_all<B: Bench>(bench: &B, count: u64, flush: impl FnOnce()) -> Verdict {
    let machine = bench.machine();
    for n in 0..count {
        cached(bench, n)?;
    }
    let word = |n| bench.word(page(bench, n));
    let leaf = |n| bench.leaf(Level::BASE, small(bench, 2 * n + 1), Right::Writable);
    match machine.rules().replace {
        Replace::InPlace => {
            (0..count).for_each(|n| store(machine, word(n), leaf(n)));
            flush();
        }
        Replace::BreakBeforeMake => {
            (0..count).for_each(|n| store(machine, word(n), 0));
            flush();
            (0..count).for_each(|n| store(machine, word(n), leaf(n)));
        }
    }
    for n in 0..count {
        let got = read(machine, page(bench, n));
        expect(machine.me(), "a page after the flush", NEW + n, got)?;
    }
    Ok(())
}

/// M1: staleness is permitted, invention is not.
pub(super) fn before_the_flush_a_read_is_old_or_new<B: Bench>(bench: &B) -> Verdict {
    if bench.machine().rules().replace == Replace::BreakBeforeMake {
        return Ok(());
    }
    let machine = bench.machine();
    let va = cached(bench, 0)?;
    renew(bench, 0, || ());
    for _ in 0..100 {
        let got = read(machine, va);
        expect(machine.me(), "a stale or fresh read", if got == NEW { NEW } else { OLD }, got)?;
    }
    Ok(())
}

pub(super) fn after_invalidate_a_read_is_new<B: Bench>(bench: &B) -> Verdict {
    for n in 0..8 {
        let va = cached(bench, n)?;
        renew(bench, n, || {
            bench.machine().invalidate(&leaf_at(va, Level::BASE, Tables::Kept));
        });
        let got = read(bench.machine(), va);
        expect(bench.machine().me(), "a read after invalidate", NEW + n, got)?;
    }
    Ok(())
}

pub(super) fn sixteen_items_are_all_carried_out<B: Bench>(bench: &B) -> Verdict {
    renew_all(bench, Invalidation::ITEMS_MAX as u64, || {
        let mut what = Invalidation::none(Scope::Kernel);
        for n in 0..Invalidation::ITEMS_MAX as u64 {
            for item in leaf_at(page(bench, n), Level::BASE, Tables::Kept).items() {
                let _ = what.push(*item);
            }
        }
        bench.machine().invalidate(&what);
    })
}

pub(super) fn a_range_is_carried_out_to_its_end<B: Bench>(bench: &B) -> Verdict {
    let count = WINDOW_PAGES.get();
    renew_all(bench, count, || {
        let mut what = Invalidation::none(Scope::Kernel);
        if let Some(range) = VaRange::sized(page(bench, 0), WINDOW_PAGES.bytes()) {
            let _ = what.push(Item { range, level: Level::BASE, tables: Tables::Kept });
        }
        bench.machine().invalidate(&what);
    })
}

pub(super) fn a_large_leaf_is_ended_by_its_level<B: Bench>(bench: &B) -> Verdict {
    let (machine, (va, word)) = (bench.machine(), bench.size_2m());
    let inside = [0, 4096, (1 << 20) + 8, (2 << 20) - 8];
    for at in inside {
        store(machine, block(bench, 0).pa().add(at), OLD);
        store(machine, block(bench, 1).pa().add(at), NEW);
    }
    let leaf = |n| bench.leaf(Level::SIZE_2M, block(bench, n), Right::Writable);
    store(machine, word, leaf(0));
    for at in inside {
        expect(machine.me(), "the old block", OLD, read(machine, va.add(at)))?;
    }
    change(bench, word, leaf(1), || machine.invalidate(&leaf_at(va, Level::SIZE_2M, Tables::Kept)));
    for at in inside {
        expect(machine.me(), "the new block", NEW, read(machine, va.add(at)))?;
    }
    Ok(())
}

/// Two tables that map the same address differently; the pointer changes from one to the other.
pub(super) fn removed_tables_are_walked_no_more<B: Bench>(bench: &B) -> Verdict {
    let (machine, (va, word)) = (bench.machine(), bench.size_2m());
    for (table, frame, content) in [(40, 42, OLD), (41, 43, NEW)] {
        let table = small(bench, table).pa();
        clear(machine, table, Bytes::new(4096), Caching::Cached);
        store(machine, small(bench, frame).pa(), content);
        let leaf = bench.leaf(Level::BASE, small(bench, frame), Right::Writable);
        store(machine, table, leaf);
        store(machine, table.add(8), leaf);
    }
    store(machine, word, bench.table(small(bench, 40)));
    expect(machine.me(), "a page of the old table", OLD, read(machine, va))?;
    change(bench, word, bench.table(small(bench, 41)), || {
        let mut what = Invalidation::none(Scope::Kernel);
        if let Some(range) = VaRange::sized(va, Level::SIZE_2M.span()) {
            let _ = what.push(Item { range, level: Level::BASE, tables: Tables::Removed });
        }
        machine.invalidate(&what);
    });
    expect(machine.me(), "a page of the new table", NEW, read(machine, va))?;
    let neighbour = read(machine, va.add(4096));
    expect(machine.me(), "its neighbour, never read before", NEW, neighbour)
}

pub(super) fn all_ends_everything<B: Bench>(bench: &B) -> Verdict {
    renew_all(bench, WINDOW_PAGES.get(), || {
        bench.machine().invalidate(&Invalidation::all(Scope::Kernel));
    })
}
