//! The lock and removal protocol in every interleaving, on a machine of six words.
//!
//! Run: `RUSTFLAGS="--cfg loom" cargo test --release -p foliant-table --lib interleavings`
//!
//! Only the words in play are modelled; all others are 0 and stay so, which the machine asserts. Up
//! to three preemptions per run are tried.
#![allow(unsafe_code)]

use crate::*;
use core::ptr::NonNull;
use foliant_machine::{Caching, Cpus, PhysMem};
use foliant_sync::{Edition, Sequence};
use foliant_units::{Bytes, Cpu, Frame, Level, Pa, Va, VaRange};
use loom::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Root at frame 1, its table at 2, that one's at 3; a second table of level 0 may come at 4.
struct Few {
    words: BTreeMap<u64, AtomicU64>,
}

const ROOT: Pa = Pa::new(0x1000);
const RW: Attrs = Attrs::USER.with(Attrs::WRITE);

impl Few {
    fn new() -> Few {
        let leaf = Sv39::leaf(Pa::new(0x8000), Level::BASE, RW.with(Attrs::TOUCHED));
        let words = [
            (0x1000, Sv39::table(Pa::new(0x2000))),
            (0x2000, Sv39::table(Pa::new(0x3000))),
            (0x3000, leaf),
            (0x3008, 0),
            (0x4000, 0),
            (0x4008, 0),
        ];
        Few { words: words.into_iter().map(|(pa, word)| (pa, AtomicU64::new(word))).collect() }
    }
    /// Nothing is mapped: frames 2 and 3 may become tables.
    fn empty() -> Few {
        let words = [0x1000, 0x2000, 0x2008, 0x3000, 0x3008];
        Few { words: words.into_iter().map(|pa| (pa, AtomicU64::new(0))).collect() }
    }
    fn tables(&self) -> Tables<'_, Few, Sv39> {
        Tables::at(self, ROOT, Half::User)
    }
}

// SAFETY: the words live as long as the machine; nothing else is reached.
unsafe impl PhysMem for Few {
    unsafe fn reach(&self, _: Pa, _: Bytes) -> NonNull<u8> {
        unreachable!("tables are reached by words")
    }
    unsafe fn load(&self, pa: Pa) -> u64 {
        self.words.get(&pa.get()).map_or(0, |word| word.load(Ordering::Acquire))
    }
    unsafe fn store(&self, pa: Pa, word: u64) {
        self.words[&pa.get()].store(word, Ordering::Release);
    }
    unsafe fn compare_exchange(&self, pa: Pa, old: u64, new: u64) -> Result<u64, u64> {
        self.words[&pa.get()].compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
    }
    unsafe fn clear(&self, _: Pa, _: Bytes, _: Caching) {}
    unsafe fn copy(&self, _: Pa, _: Pa, _: Bytes) {}
}

impl Cpus for Few {
    fn me(&self) -> Cpu {
        Cpu(0)
    }
    fn count(&self) -> usize {
        2
    }
    fn pinned<R>(&self, work: impl FnOnce(Cpu) -> R) -> R {
        work(Cpu(0))
    }
    fn relax(&self) {
        loom::thread::yield_now();
    }
}

fn check(body: impl Fn(Arc<Few>) + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || body(Arc::new(Few::new())));
}

fn unmap_first(few: &Few, prune: Prune) -> usize {
    let page = VaRange::new(Va::new(0), Va::new(0x1000)).unwrap();
    let mut harvest = Harvest::new();
    assert_eq!(few.tables().unmap(page, prune, &mut harvest).unwrap().why, Stop::Done);
    assert_eq!(harvest.runs().count(), 1);
    harvest.tables()
}

const NEXT: Va = Va::new(0x1000);

#[test]
fn a_table_is_removed_or_used_but_never_both() {
    check(|few| {
        let other = few.clone();
        let user = loom::thread::spawn(move || match other.tables().lock(NEXT, Level::BASE) {
            Ok(lock) => {
                lock.set(lock.index_of(NEXT), Sv39::leaf(Pa::new(0x9000), Level::BASE, RW));
                true
            }
            Err(missing) => {
                assert_eq!(missing.what, Gap::None);
                false
            }
        });
        let removed = unmap_first(&few, Prune::All);
        let used = user.join().unwrap();
        let found = few.tables().walk(NEXT);
        assert_eq!(used, matches!(found.entry, Entry::Leaf { .. }), "{found:?}");
        assert_eq!(removed, if used { 0 } else { 2 });
    });
}

/// An empty word of the top table is passed over without a lock (I5). A change was stated before;
/// the CPU that hangs a table there looks for it afterwards, and one of the two sees the other.
#[test]
fn a_change_is_seen_through_an_empty_top_table_or_sees_what_comes() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let both = Arc::new((Few::empty(), Sequence::default()));
        let other = both.clone();
        let fault = loom::thread::spawn(move || {
            let (few, area) = &*other;
            let (_, seen) = area.read_edition(few, || ());
            if seen != Edition::default() {
                return;
            }
            let mut spare = Spare::new();
            for frame in [2, 3] {
                // SAFETY: nobody else uses it.
                unsafe { spare.lend(Frame::new(frame)) }.unwrap();
            }
            few.tables().ensure(NEXT, Level::BASE, &mut spare).unwrap();
            let lock = few.tables().lock(NEXT, Level::BASE).unwrap();
            if area.is_at(seen) {
                lock.set(lock.index_of(NEXT), Sv39::leaf(Pa::new(0x9000), Level::BASE, RW));
            }
        });
        let (few, area) = &*both;
        area.write(|| ());
        let page = VaRange::new(NEXT, Va::new(0x2000)).unwrap();
        let swept = few.tables().unmap(page, Prune::Keep, &mut Harvest::new()).unwrap();
        assert_eq!(swept.why, Stop::Done);
        fault.join().unwrap();
        let found = few.tables().walk(NEXT);
        assert!(!matches!(found.entry, Entry::Leaf { .. }), "{found:?}");
    });
}

#[test]
fn a_lock_is_held_by_one_while_a_walker_updates_its_word() {
    check(|few| {
        let add = |few: &Few| {
            let lock = few.tables().lock(NEXT, Level::BASE).unwrap();
            let slot = lock.index_of(NEXT);
            let seen = lock.get(slot);
            lock.set(slot, seen + 2); // not present: a plain load and store
        };
        let other = few.clone();
        let locker = loom::thread::spawn(move || add(&other));
        let other = few.clone();
        let walker = loom::thread::spawn(move || {
            other.words[&0x2000].fetch_or(1 << 6, Ordering::Relaxed);
        });
        add(&few);
        locker.join().unwrap();
        walker.join().unwrap();
        let pointer = Sv39::table(Pa::new(0x3000)) | 1 << 6;
        assert_eq!(few.words[&0x2000].load(Ordering::Relaxed), pointer);
        assert_eq!(few.words[&0x3008].load(Ordering::Relaxed), 4);
    });
}

#[test]
fn a_map_survives_a_removal_next_to_it() {
    check(|few| {
        let other = few.clone();
        let mapper = loom::thread::spawn(move || {
            let mut spare = Spare::new();
            // SAFETY: nobody else uses it.
            unsafe { spare.lend(Frame::new(4)) }.unwrap();
            let page = VaRange::new(NEXT, Va::new(0x2000)).unwrap();
            let done = other.tables().map(page, Frame::new(9), RW, Level::BASE, &mut spare);
            assert_eq!(done.unwrap().why, MapStop::Done);
            spare.len()
        });
        let page = VaRange::new(Va::new(0), Va::new(0x1000)).unwrap();
        let mut harvest = Harvest::new();
        let _ = few.tables().unmap(page, Prune::Keep, &mut harvest).unwrap();
        let removed = few.tables().detach(Va::new(0), Level::BASE, Prune::All).is_ok();
        let left = mapper.join().unwrap();
        let found = few.tables().walk(NEXT);
        assert!(matches!(found.entry, Entry::Leaf { .. }), "{found:?}");
        assert_eq!(left, if removed { 0 } else { 1 });
    });
}

#[test]
fn a_note_in_any_word_of_a_run_is_found() {
    const D: u64 = 1 << 7;
    check(|few| {
        for (n, at) in [0x3000, 0x3008].into_iter().enumerate() {
            let pa = Pa::new(0x8000 + n as u64 * 0x1000);
            few.words[&at].store(Sv39::leaf(pa, Level::BASE, RW), Ordering::Relaxed);
        }
        let other = few.clone();
        let walker = loom::thread::spawn(move || {
            let word = &other.words[&0x3008];
            let seen = word.load(Ordering::Acquire);
            let done = |old| {
                word.compare_exchange(old, old | D, Ordering::AcqRel, Ordering::Acquire).is_ok()
            };
            seen & 1 == 1 && done(seen)
        });
        let pages = VaRange::new(Va::new(0), Va::new(0x2000)).unwrap();
        let mut harvest = Harvest::new();
        let _ = few.tables().unmap(pages, Prune::Keep, &mut harvest).unwrap();
        let noted = walker.join().unwrap();
        let found = harvest
            .runs()
            .any(|run| matches!(run.what, What::Mapped { attrs, .. } if attrs.has(Attrs::DIRTY)));
        assert_eq!(noted, found);
        assert_eq!(few.words[&0x3008].load(Ordering::Relaxed), 0);
    });
}

#[test]
fn two_who_miss_the_same_table_make_one() {
    fn map(few: &Few, page: u64, table: u64) -> usize {
        let mut spare = Spare::new();
        // SAFETY: nobody else uses it.
        unsafe { spare.lend(Frame::new(table)) }.unwrap();
        let start = Va::new(page * 0x1000);
        let page = VaRange::new(start, start.add(0x1000)).unwrap();
        let done = few.tables().map(page, Frame::new(9), RW, Level::BASE, &mut spare);
        assert_eq!(done.unwrap().why, MapStop::Done);
        spare.pop().into_iter().count()
    }
    check(|few| {
        few.words[&0x2000].store(0, Ordering::Relaxed);
        few.words[&0x3000].store(0, Ordering::Relaxed);
        let other = few.clone();
        let mapper = loom::thread::spawn(move || map(&other, 1, 4));
        let left = map(&few, 0, 3) + mapper.join().unwrap();
        assert_eq!(left, 1, "one table was used, one came back");
        for page in [0, 1] {
            let found = few.tables().walk(Va::new(page * 0x1000));
            assert!(matches!(found.entry, Entry::Leaf { .. }), "{found:?}");
        }
    });
}
