//! The lock and removal protocol under real threads, and walkers that watch.

use super::board::Board;
use crate::*;
use foliant_machine::Replace;
use foliant_units::{Frame, Level, Pages, Va, VaRange};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

type X86 = X86_64<4>;
const RW: Attrs = Attrs::USER.with(Attrs::WRITE);

#[test]
fn a_lock_keeps_others_out_while_walkers_set_bits() {
    let board = Board::new(16, Replace::InPlace);
    let tables = board.tables::<X86>(Half::User);
    let mut spare = Spare::new();
    board.refill(&mut spare);
    tables.ensure(Va::new(0), Level::BASE, &mut spare).unwrap();
    let above = tables.walk(Va::new(0)); // the word of level 0; its table's word is one up
    assert_eq!(above.level, Level::BASE);
    let lock = tables.lock(Va::new(0), Level::SIZE_2M).unwrap();
    let pointer = lock.get(Slot::FIRST);
    drop(lock);
    let (plain, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let workers: std::vec::Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        let lock = tables.lock(Va::new(0x1000), Level::BASE).unwrap();
                        let seen = plain.load(Ordering::Relaxed);
                        lock.update(Slot::FIRST, |_| (seen + 1) << 6 | 2);
                        plain.store(seen + 1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let root = tables.root();
            while !stop.load(Ordering::Relaxed) {
                board.walker_sets(root, 1 << 5); // accessed, in a table word
                thread::yield_now();
            }
        });
        let done: std::vec::Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        // Also where one panicked: the walker would go on for ever.
        stop.store(true, Ordering::Relaxed);
        done.into_iter().for_each(|done| done.unwrap());
    });
    assert_eq!(plain.load(Ordering::Relaxed), 15_000);
    let lock = tables.lock(Va::new(0), Level::SIZE_2M).unwrap();
    assert_eq!(lock.get(Slot::FIRST), pointer, "unlocked, and nothing else changed");
}

/// Threads map and unmap neighbours in the same tables, with removal, while a walker reads: it sees
/// each page as nothing or as what is mapped there. Nothing is reused, as a grace period would have
/// it.
#[test]
fn tables_come_and_go_under_walkers() {
    const ROUNDS: u64 = 300;
    let board = Board::new(2 * 3 * ROUNDS as usize * 3 + 64, Replace::InPlace);
    let tables = board.tables::<X86>(Half::User);
    let (stop, removed) = (AtomicBool::new(false), AtomicU64::new(0));
    let left = AtomicU64::new(0);
    thread::scope(|scope| {
        let workers: std::vec::Vec<_> = (0..2u64)
            .map(|me| {
                let (removed, board, left) = (&removed, &board, &left);
                scope.spawn(move || {
                    let mut spare = Spare::new();
                    let start = Va::new((1 << 30) - 0x20_0000 + me * 0x10_0000);
                    let span = VaRange::new(start, start.add(0x8000)).unwrap();
                    let frame = Frame::new(start.get() >> 12);
                    let mut harvest = Harvest::new();
                    for _ in 0..ROUNDS {
                        let mut rest = span;
                        loop {
                            while spare.len() < 3 {
                                spare.push(board.claim()).unwrap();
                            }
                            let mapped = rest.start().offset_from(start) / 4096;
                            let first = frame.add(Pages::new(mapped));
                            let done = tables.map(rest, first, RW, Level::BASE, &mut spare);
                            let done = done.unwrap();
                            rest = VaRange::new(done.upto, span.end()).unwrap();
                            match done.why {
                                MapStop::Done => break,
                                // The neighbour took a table away that was made just now.
                                MapStop::NeedTable(_) => {}
                                why => panic!("{why:?} at {rest:?}"),
                            }
                        }
                        let done = tables.unmap(span, Prune::All, &mut harvest).unwrap();
                        assert_eq!(done.why, Stop::Done);
                        assert_eq!(harvest.runs().map(|run| run.count).sum::<u32>(), 8);
                        harvest.clear_runs();
                        while let Some(_stale) = harvest.pop_table() {
                            removed.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    left.fetch_add(spare.len() as u64, Ordering::Relaxed);
                })
            })
            .collect();
        scope.spawn(|| {
            let mut va = (1u64 << 30) - 0x20_0000;
            while !stop.load(Ordering::Relaxed) {
                match tables.walk(Va::new(va)).entry {
                    Entry::None => {}
                    Entry::Leaf { pa, attrs } => assert_eq!((pa.get(), attrs), (va, RW)),
                    entry => panic!("{entry:?} at {va:#x}"),
                }
                va = if va >= (1 << 30) - 0x1000 { (1 << 30) - 0x20_0000 } else { va + 0x1000 };
            }
        });
        let done: std::vec::Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        // Also where one panicked: the walker would go on for ever.
        stop.store(true, Ordering::Relaxed);
        done.into_iter().for_each(|done| done.unwrap());
    });
    let all = VaRange::new(Va::new(0), Va::new(1 << 31)).unwrap();
    assert_eq!(tables.leaves(all).count(), 0);
    // Every table was removed: the last to leave took the upper ones along.
    let used = board.used() as u64 - 1;
    assert_eq!(removed.load(Ordering::Relaxed) + left.load(Ordering::Relaxed), used);
}

/// A walker never sees a table that a split has not finished: every page stays mapped, to the same
/// frame.
#[test]
fn a_split_is_published_whole() {
    let board = Board::new(400, Replace::InPlace);
    let tables = board.tables::<X86>(Half::User);
    let mut spare = Spare::new();
    board.refill(&mut spare);
    let span = VaRange::new(Va::new(2 << 20), Va::new(4 << 20)).unwrap();
    let done = tables.map(span, Frame::new(512), RW, Level::SIZE_2M, &mut spare).unwrap();
    assert_eq!(done.why, MapStop::Done);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for page in (0..512u64).rev() {
                    let va = Va::new((2 << 20) + page * 4096);
                    let found = tables.walk(va);
                    let Entry::Leaf { pa, .. } = found.entry else { panic!("{found:?}") };
                    assert_eq!(pa.get() + va.offset_from(found.va), va.get());
                }
            }
        });
        for _ in 0..300 {
            if spare.is_empty() {
                board.refill(&mut spare);
            }
            tables.split(span.start(), Level::SIZE_2M, &mut spare).unwrap();
            let _ = tables.collapse(span.start(), Level::SIZE_2M).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Every dirty bit that a walker managed to set is found by the unmap that follows, also in a word
/// that continues a run.
#[test]
fn no_note_of_a_walker_is_lost() {
    const D: u64 = 1 << 6;
    let board = Board::new(16, Replace::InPlace);
    let tables = board.tables::<X86>(Half::User);
    let mut spare = Spare::new();
    board.refill(&mut spare);
    let span = VaRange::new(Va::new(0), Va::new(0x3000)).unwrap();
    let done = tables.map(span, Frame::new(1), RW, Level::BASE, &mut spare).unwrap();
    assert_eq!(done.why, MapStop::Done);
    let at = tables.walk(Va::new(0x1000)).at;
    let (stop, noted) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut found = 0;
    thread::scope(|scope| {
        let walker = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let word = board.peek(at);
                if word & 1 == 1 && word & D == 0 && board.walker_tries(at, word, word | D) {
                    noted.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        while found < 2_000 {
            let mut harvest = Harvest::new();
            let _ = tables.unmap(span, Prune::Keep, &mut harvest).unwrap();
            found += harvest
                .runs()
                .filter(
                    |run| matches!(run.what, What::Mapped { attrs, .. } if attrs.has(Attrs::DIRTY)),
                )
                .count() as u64;
            let _ = tables.map(span, Frame::new(1), RW, Level::BASE, &mut spare).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        walker.join().unwrap();
    });
    let last = u64::from(board.peek(at) & D != 0);
    assert_eq!(found + last, noted.load(Ordering::Relaxed));
}
