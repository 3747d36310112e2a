//! The folio allocator against two crates that kernels use for frames, in one run, as ratios.
//!
//! | name | what | how it is shared |
//! |---|---|---|
//! | foliant | `Folios` over 4 GiB | by reference |
//! | buddy | `buddy_system_allocator::LockedFrameAllocator`, which sorts its free lists in trees on the heap | its own spin lock |
//! | bitmap | `bitmap_allocator::BitAlloc1M`, a bit per frame; order 9 by `alloc_contiguous`, 512 frames aligned to 512 | `spin::Mutex` |
//!
//! Every figure is wall time, from the first thread's start to the last one's end, divided by the
//! operations of all threads; an operation is one allocation **and** its free. *pair*: allocate,
//! free, repeat. *batch*: allocate many, then free them all, in the order taken. *full*: all memory
//! was allocated at the measured order and one block in ten, chosen at random, was freed. Rounds
//! are interleaved (every allocator once per round) and the median is shown. A round counts only if
//! its threads ran side by side for nine tenths of it and none lost its CPU: where others use the
//! host, threads run one after the other, and a lock that nobody contends looks free. *rounds* says
//! how many of the eleven counted, for the allocator with the fewest. Each allocator keeps its
//! state from round to round.
//!
//! `cargo bench -p foliant --bench alloc`; `-- --quick` takes a third of the time per round.

use bitmap_allocator::{BitAlloc, BitAlloc1M};
use buddy_system_allocator::LockedFrameAllocator;
use foliant::folio::{Class, CpuCount, Folios, Word};
use foliant_units::{Cpu, Frame, FrameRange, Order, Pages};
use std::hint::black_box;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// 4 GiB, the size of `BitAlloc1M`.
const FRAMES: u64 = 1 << 20;
const ROUNDS: usize = 11;
/// How often a round is tried until all threads run through it.
const TRIES: usize = 100;
/// Operations between two looks at the clock.
const CHECK: usize = 64;

/// An allocator of frames, as the bench needs it.
trait Subject: Sync {
    fn alloc(&self, cpu: Cpu, order: Order) -> Option<u64>;
    fn free(&self, cpu: Cpu, frame: u64, order: Order);
}

impl Subject for Folios<'_> {
    fn alloc(&self, cpu: Cpu, order: Order) -> Option<u64> {
        Folios::alloc(self, cpu, order, Class::Movable).ok().map(Frame::get)
    }
    fn free(&self, cpu: Cpu, frame: u64, order: Order) {
        Folios::free(self, cpu, Frame::new(frame), order).expect("the bench frees what it took");
    }
}

struct Buddy(LockedFrameAllocator<21>);

impl Subject for Buddy {
    fn alloc(&self, _: Cpu, order: Order) -> Option<u64> {
        self.0.lock().alloc(1 << order.get()).map(|frame| frame as u64)
    }
    fn free(&self, _: Cpu, frame: u64, order: Order) {
        self.0.lock().dealloc(frame as usize, 1 << order.get());
    }
}

struct Bitmap(spin::Mutex<Box<BitAlloc1M>>);

impl Subject for Bitmap {
    fn alloc(&self, _: Cpu, order: Order) -> Option<u64> {
        let mut map = self.0.lock();
        let frame = match order {
            Order::BASE => map.alloc(),
            _ => map.alloc_contiguous(None, 1 << order.get(), order.get() as usize),
        };
        frame.map(|frame| frame as u64)
    }
    fn free(&self, _: Cpu, frame: u64, order: Order) {
        let mut map = self.0.lock();
        let done = match order {
            Order::BASE => map.dealloc(frame as usize),
            _ => map.dealloc_contiguous(frame as usize, 1 << order.get()),
        };
        assert!(done, "the bench frees what it took");
    }
}

/// Lends metadata, for as long as the bench runs.
fn lend(words: u64) -> &'static [Word] {
    (0..words).map(|_| Word::new(0)).collect::<Vec<_>>().leak()
}

fn folios(frames: u64) -> Folios<'static> {
    let range = [FrameRange::new(Frame::new(0), Pages::new(frames)).expect("a legal range")];
    let need = Folios::layout(&range, CpuCount(2)).expect("a legal range");
    Folios::new(&range, CpuCount(2), lend(need.0)).expect("enough was lent")
}

fn subjects() -> [(&'static str, Box<dyn Subject>); 3] {
    let buddy = LockedFrameAllocator::new();
    buddy.lock().add_frame(0, FRAMES as usize);
    let mut bitmap = Box::new(BitAlloc1M::DEFAULT);
    bitmap.insert(0..FRAMES as usize);
    [
        ("foliant", Box::new(folios(FRAMES))),
        ("buddy", Box::new(Buddy(buddy))),
        ("bitmap", Box::new(Bitmap(spin::Mutex::new(bitmap)))),
    ]
}

/// xorshift, seeded: every run does the same.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// Takes everything at `order` and frees a random tenth.
fn fill(subject: &dyn Subject, order: Order) {
    let mut all: Vec<u64> = std::iter::from_fn(|| subject.alloc(Cpu(0), order)).collect();
    assert_eq!(all.len() as u64, FRAMES >> order.get());
    let mut dice = Dice(0x1234_5678_9abc_def1);
    for _ in 0..all.len() / 10 {
        let at = dice.roll(all.len() as u64) as usize;
        subject.free(Cpu(0), all.swap_remove(at), order);
    }
}

#[derive(Clone, Copy)]
struct Work {
    order: Order,
    threads: u16,
    /// Blocks held at once.
    batch: usize,
}

/// How often this thread was taken off its CPU so far, where the system tells.
fn switches() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let count = |line: &str| line.split_once("nonvoluntary_ctxt_switches:")?.1.trim().parse().ok();
    status.lines().find_map(count).unwrap_or(0)
}

/// What one thread did.
struct Share {
    done: u64,
    start: Instant,
    end: Instant,
    switches: u64,
}

/// One thread's share: works until `round` has passed.
fn share(subject: &dyn Subject, cpu: Cpu, work: Work, round: Duration) -> Share {
    let mut held = Vec::with_capacity(work.batch);
    let (mut done, before, start) = (0, switches(), Instant::now());
    loop {
        for _ in 0..CHECK.div_ceil(work.batch) {
            for _ in 0..work.batch {
                held.push(black_box(subject.alloc(cpu, work.order)).expect("enough is free"));
            }
            done += held.len() as u64;
            held.drain(..).for_each(|frame| subject.free(cpu, frame, work.order));
        }
        let end = Instant::now();
        if end - start >= round {
            return Share { done, start, end, switches: switches() - before };
        }
    }
}

/// One round: wall nanoseconds per operation, and which part of the wall time all threads truly ran
/// side by side (0 where one was taken off its CPU).
///
/// Wall time is from the first start to the last end. Threads that run one after the other would
/// neither contend nor gain, so such a round says nothing about two threads.
fn measure_once(subject: &dyn Subject, work: Work, round: Duration) -> (f64, f64) {
    let waiting = AtomicU16::new(work.threads);
    let run = |cpu: u16| {
        waiting.fetch_sub(1, Ordering::SeqCst);
        while waiting.load(Ordering::SeqCst) > 0 {
            std::hint::spin_loop();
        }
        share(subject, Cpu(cpu), work, round)
    };
    let shares: Vec<_> = std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..work.threads).map(|cpu| scope.spawn(move || run(cpu))).collect();
        threads.into_iter().map(|t| t.join().expect("no thread fails")).collect()
    });
    let starts = || shares.iter().map(|s| s.start);
    let ends = || shares.iter().map(|s| s.end);
    let (first, last) = (starts().min().expect("a thread"), ends().max().expect("a thread"));
    let (begun, left) = (starts().max().expect("a thread"), ends().min().expect("a thread"));
    let wall = (last - first).as_nanos() as f64;
    let switched = shares.iter().any(|s| s.switches > 0);
    let both = left.saturating_duration_since(begun).as_nanos() as f64 / wall;
    let done: u64 = shares.iter().map(|s| s.done).sum();
    (wall / done as f64, if switched { 0.0 } else { both })
}

/// A round that counts, tried until all threads run side by side; `None` where that never happened.
fn measure(subject: &dyn Subject, work: Work, round: Duration) -> Option<f64> {
    (0..TRIES)
        .map(|_| measure_once(subject, work, round))
        .find(|(_, both)| *both > 0.9)
        .map(|r| r.0)
}

/// The median, or not a number (shown as NaN) where no round counted.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The medians of interleaved rounds, one per subject, and how many rounds counted for the one with
/// fewest.
fn compare(subjects: &[(&str, &dyn Subject)], work: Work, round: Duration) -> (Vec<f64>, usize) {
    let mut times = vec![Vec::new(); subjects.len()];
    for _ in 0..ROUNDS {
        for (at, (_, subject)) in subjects.iter().enumerate() {
            times[at].extend(measure(*subject, work, round));
        }
    }
    let fewest = times.iter().map(Vec::len).min().unwrap_or(0);
    (times.into_iter().map(median).collect(), fewest)
}

fn against_peers(round: Duration) {
    println!("ns per allocation and free, 4 GiB; ratio: the better peer to foliant\n");
    println!(
        "{:<7}{:<8}{:<9}{:<7}{:>10}{:>10}{:>12}{:>9}{:>8}",
        "order", "memory", "threads", "work", "foliant", "buddy", "bitmap", "ratio", "rounds"
    );
    for (order, batch) in [(Order::BASE, 1024), (Order::SIZE_2M, 64)] {
        for memory in ["empty", "full"] {
            let subjects = subjects();
            let subjects: Vec<_> = subjects.iter().map(|(name, s)| (*name, s.as_ref())).collect();
            if memory == "full" {
                subjects.iter().for_each(|(_, subject)| fill(*subject, order));
            }
            for threads in [1, 2] {
                for (name, batch) in [("pair", 1), ("batch", batch)] {
                    let work = Work { order, threads, batch };
                    let (times, rounds) = compare(&subjects, work, round);
                    let ratio = times[1].min(times[2]) / times[0];
                    println!(
                        "{:<7}{memory:<8}{threads:<9}{name:<7}{:>10.1}{:>10.1}{:>12.1}{ratio:>8.1}x{rounds:>8}",
                        order.get(),
                        times[0],
                        times[1],
                        times[2]
                    );
                }
            }
        }
    }
}

/// Fills `folios` with order-0 frames by splitting, then frees a random tenth of each 2 MiB block.
fn fill_fast(folios: &Folios<'_>) {
    let mut dice = Dice(0x0dd0_5eed_0dd0_5eed);
    while let Ok(size_1g) = folios.alloc(Cpu(0), Order::SIZE_1G, Class::Movable) {
        folios.split(size_1g, Order::SIZE_1G, Order::BASE).expect("it was allocated just now");
        for block in 0..512 {
            let mut left = 51;
            while left > 0 {
                let frame = size_1g.add(Pages::new(block * 512 + dice.roll(512)));
                left -= u64::from(folios.free(Cpu(0), frame, Order::BASE).is_ok());
            }
        }
    }
}

fn flatness(round: Duration) {
    println!("\nns per order-0 allocation and free by size of memory, 1 thread\n");
    println!(
        "{:<8}{:<14}{:>10}{:>10}{:>10}{:>22}",
        "memory", "work", "1 GiB", "64 GiB", "1 TiB", "largest to smallest"
    );
    for memory in ["empty", "full"] {
        let sizes = [18, 24, 28].map(|shift| folios(1 << shift));
        if memory == "full" {
            sizes.iter().for_each(fill_fast);
        }
        let subjects: Vec<_> = sizes.iter().map(|s| ("", s as &dyn Subject)).collect();
        for (name, batch) in [("pair", 1), ("batch 1024", 1024), ("batch 16384", 16384)] {
            let work = Work { order: Order::BASE, threads: 1, batch };
            let (times, _) = compare(&subjects, work, round);
            let largest = times.iter().copied().fold(0.0, f64::max);
            let smallest = times.iter().copied().fold(f64::INFINITY, f64::min);
            println!(
                "{memory:<8}{name:<14}{:>10.1}{:>10.1}{:>10.1}{:>21.2}x",
                times[0],
                times[1],
                times[2],
                largest / smallest
            );
        }
    }
}

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    let round = Duration::from_millis(if quick { 1 } else { 3 });
    against_peers(round);
    flatness(round);
}
