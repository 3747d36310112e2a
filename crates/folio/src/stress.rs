//! Many threads at once: no frame is handed out twice, nothing is lost, and everything is recounted
//! at the end.

use super::model::lend;
use super::*;
use foliant_units::{FrameRange, Order, Pages};
use std::sync::atomic::{AtomicU8, Ordering};
use std::vec::Vec;

/// A small generator with a printable state (xorshift).
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

struct World<'a> {
    folios: &'a Folios<'a>,
    /// 1 for each frame that some thread has.
    taken: &'a [AtomicU8],
}

impl World<'_> {
    fn mark(&self, frame: Frame, order: Order, from: u8, to: u8) {
        for at in 0..order.pages().get() {
            let old = self.taken[(frame.get() + at) as usize].swap(to, Ordering::SeqCst);
            assert_eq!(old, from, "frame {:#x}", frame.get() + at);
        }
    }
    /// Allocates, splits and frees at random; frees all at the end.
    fn work(&self, cpu: Cpu, seed: u64, rounds: u32, largest: u8) {
        let (mut dice, mut mine) = (Dice(seed), Vec::new());
        for _ in 0..rounds {
            let order = match dice.roll(8) {
                0..4 => 0,
                4..6 => dice.roll(6) as u8,
                _ => dice.roll(u64::from(largest) + 1) as u8,
            };
            let order = Order::new(order).unwrap();
            let class = Class::ALL[dice.roll(3) as usize];
            if dice.roll(100) < 52 {
                if let Ok(frame) = self.folios.alloc(cpu, order, class) {
                    self.mark(frame, order, 0, 1);
                    mine.push((frame, order));
                }
            } else if !mine.is_empty() {
                let at = dice.roll(mine.len() as u64) as usize;
                let (frame, order) = mine.swap_remove(at);
                match order.down().filter(|_| dice.roll(4) == 0) {
                    Some(half) => {
                        self.folios.split(frame, order, half).unwrap();
                        mine.extend([(frame, half), (frame.add(half.pages()), half)]);
                    }
                    None => self.give(cpu, frame, order),
                }
            }
        }
        mine.into_iter().for_each(|(frame, order)| self.give(cpu, frame, order));
    }
    fn give(&self, cpu: Cpu, frame: Frame, order: Order) {
        self.mark(frame, order, 1, 0);
        self.folios.free(cpu, frame, order).unwrap();
    }
}

/// Runs `threads` threads on `cpus` CPUs over `pages` frames from frame 0x77 on.
fn check(threads: u16, cpus: u16, pages: u64, largest: u8, rounds: u32) {
    let range = FrameRange::new(Frame::new(0x77), Pages::new(pages)).unwrap();
    let meta = lend(Folios::layout(&[range], CpuCount(cpus)).unwrap());
    let folios = Folios::new(&[range], CpuCount(cpus), &meta).unwrap();
    let before = folios.census();
    let taken: Vec<_> = (0..range.end().get()).map(|_| AtomicU8::new(0)).collect();
    let world = World { folios: &folios, taken: &taken };
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let world = &world;
            let seed = 0x9e37_79b9 * (u64::from(thread) + 1);
            scope.spawn(move || world.work(Cpu(thread % cpus), seed, rounds, largest));
        }
    });
    folios.validate().unwrap();
    assert_eq!(folios.census(), before);
    assert_eq!(folios.free_frames(), Pages::new(pages));
}

#[test]
fn four_threads_in_little_memory() {
    check(4, 4, 3 * 512, 9, 40_000);
}

#[test]
fn four_threads_that_share_two_cpu_numbers() {
    check(4, 2, 5 * 512 + 100, 10, 40_000);
}

#[test]
fn three_threads_with_runs() {
    check(3, 3, 40 * 512, 13, 20_000);
}

#[test]
fn one_block_for_all() {
    check(3, 3, 600, 8, 60_000);
}

/// Two threads free the same block: exactly one succeeds.
#[test]
fn a_double_free_is_won_once() {
    let range = FrameRange::new(Frame::new(0), Pages::new(1 << 13)).unwrap();
    let meta = lend(Folios::layout(&[range], CpuCount(2)).unwrap());
    let folios = Folios::new(&[range], CpuCount(2), &meta).unwrap();
    for round in 0..3000u16 {
        let order = Order::new((round % 12) as u8).unwrap();
        let frame = folios.alloc(Cpu(0), order, Class::Movable).unwrap();
        let gate = std::sync::Barrier::new(2);
        let free = |cpu| {
            gate.wait();
            u32::from(folios.free(cpu, frame, order).is_ok())
        };
        let wins = std::thread::scope(|scope| {
            let other = scope.spawn(|| free(Cpu(1)));
            free(Cpu(0)) + other.join().unwrap()
        });
        assert_eq!(wins, 1, "{order:?}");
    }
    folios.validate().unwrap();
}

/// Memory arrives while others allocate.
#[test]
fn memory_is_added_under_load() {
    let part = |n: u64| FrameRange::new(Frame::new(n * 0x1000), Pages::new(0x800)).unwrap();
    let meta = lend(Folios::layout(&[part(0)], CpuCount(2)).unwrap());
    let more: Vec<_> = (1..20).map(|n| lend(Folios::layout_added(part(n)).unwrap())).collect();
    let folios = Folios::new(&[part(0)], CpuCount(2), &meta).unwrap();
    let taken: Vec<_> = (0..20 * 0x1000).map(|_| AtomicU8::new(0)).collect();
    let world = World { folios: &folios, taken: &taken };
    std::thread::scope(|scope| {
        for cpu in 0..2 {
            let world = &world;
            scope.spawn(move || world.work(Cpu(cpu), 7 + u64::from(cpu), 30_000, 11));
        }
        for (n, meta) in more.iter().enumerate() {
            folios
                .add(part(n as u64 + 1), foliant_units::Node(0), super::Known::Nothing, meta)
                .unwrap();
            std::thread::yield_now();
        }
    });
    folios.validate().unwrap();
    assert_eq!(folios.free_frames(), Pages::new(20 * 0x800));
}
