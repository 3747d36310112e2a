//! How much of the free memory stays whole: the folio allocator beside a plain buddy, over the same
//! random history.
//!
//! | column | what |
//! |---|---|
//! | buddy | the peer: a list per order, the block freed last goes first, halves are joined at once; one for all CPUs, and it knows no classes |
//! | 1, 16, 64 | `Folios` for so many CPUs, each step on a random one |
//!
//! *whole*: the frames of free 2 MiB blocks as a share of all free frames, mean of many samples
//! once the share is steady. *pinned*: 2 MiB blocks that hold unmovable memory or page tables, as a
//! ratio to the buddy's. *short*: refused requests for 2 MiB of a hundred while as much was free.
//!
//! The history: 70 % of the requests are single frames, 15 % orders 1 to 3, 13 % orders 4 to 8, 2 %
//! order 9; four in five are movable, one in twenty a page table. What is freed is drawn at random
//! from what is allocated, so nothing helps but to put it well. The fill is held, or wanders
//! between two bounds.
//!
//! `cargo bench -p foliant --bench frag`; `-- --quick` takes a tenth of the steps. Nothing here is
//! a time: equal versions print equal tables.

use foliant::folio::{Class, CpuCount, Folios, Word};
use foliant_units::{Cpu, Frame, FrameRange, Order, Pages};
use std::collections::HashSet;

/// CPUs that the allocator is built for.
const CPUS: [u16; 3] = [1, 16, 64];
/// Steps for each frame of memory.
const STEPS: u64 = 4;
/// A new fill is drawn so often.
const WANDER: u64 = 20_000;
/// Samples of the second half.
const SAMPLES: u64 = 64;

/// xorshift, seeded: every run does the same.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) % below
    }
}

/// The peer's largest order: 4 MiB.
const TOP: usize = 10;

/// A plain buddy: the free blocks of each order on a stack, from which what was joined is dropped
/// when it comes up.
struct Buddy {
    stacks: [Vec<u64>; TOP + 1],
    /// Per frame, 1 + the order of the free block that begins there.
    heads: Vec<u8>,
}

impl Buddy {
    fn new(frames: u64) -> Buddy {
        let mut buddy = Buddy { stacks: Default::default(), heads: vec![0; frames as usize] };
        (0..frames >> TOP).rev().for_each(|n| buddy.push(n << TOP, TOP));
        buddy
    }
    fn push(&mut self, head: u64, order: usize) {
        self.heads[head as usize] = order as u8 + 1;
        self.stacks[order].push(head);
    }
    fn pop(&mut self, order: usize) -> Option<u64> {
        let heads = &mut self.heads;
        let stack = &mut self.stacks[order];
        let head = std::iter::from_fn(|| stack.pop())
            .find(|head| heads[*head as usize] == order as u8 + 1)?;
        heads[head as usize] = 0;
        Some(head)
    }
    fn alloc(&mut self, order: usize) -> Option<u64> {
        let (from, head) = (order..=TOP).find_map(|from| Some((from, self.pop(from)?)))?;
        (order..from).rev().for_each(|half| self.push(head + (1 << half), half));
        Some(head)
    }
    fn free(&mut self, mut head: u64, mut order: usize) {
        while order < TOP {
            let other = head ^ (1 << order);
            if self.heads[other as usize] != order as u8 + 1 {
                break;
            }
            self.heads[other as usize] = 0;
            head = head.min(other);
            order += 1;
        }
        self.push(head, order);
    }
    fn whole(&self) -> u64 {
        let of_2m = |head: &u8| if *head > 9 { 1 << (head - 10) } else { 0 };
        self.heads.iter().map(of_2m).sum()
    }
}

enum Subject {
    Foliant(Box<Folios<'static>>),
    Buddy(Box<Buddy>),
}

impl Subject {
    fn foliant(frames: u64, cpus: u16) -> Subject {
        let range = [FrameRange::new(Frame::new(0), Pages::new(frames)).expect("a legal range")];
        let need = Folios::layout(&range, CpuCount(cpus)).expect("a legal range");
        let lent = (0..need.0).map(|_| Word::new(0)).collect::<Vec<_>>().leak();
        let folios = Folios::new(&range, CpuCount(cpus), lent).expect("enough was lent");
        Subject::Foliant(Box::new(folios))
    }
    fn alloc(&mut self, cpu: Cpu, order: Order, class: Class) -> Option<u64> {
        match self {
            Subject::Foliant(folios) => folios.alloc(cpu, order, class).ok().map(Frame::get),
            Subject::Buddy(buddy) => buddy.alloc(order.get().into()),
        }
    }
    fn free(&mut self, cpu: Cpu, head: u64, order: Order) {
        match self {
            Subject::Foliant(folios) => {
                folios.free(cpu, Frame::new(head), order).expect("the bench frees what it took")
            }
            Subject::Buddy(buddy) => buddy.free(head, order.get().into()),
        }
    }
    /// Free blocks of 2 MiB.
    fn whole(&self) -> u64 {
        match self {
            Subject::Foliant(folios) => folios.census().within(Order::SIZE_2M),
            Subject::Buddy(buddy) => buddy.whole(),
        }
    }
}

/// What was asked for.
#[derive(Clone, Copy)]
struct Held {
    head: u64,
    order: Order,
    class: Class,
}

fn request(dice: &mut Dice) -> (Order, Class) {
    let order = match dice.roll(100) {
        0..=69 => 0,
        70..=84 => 1 + dice.roll(3) as u8,
        85..=97 => 4 + dice.roll(5) as u8,
        _ => 9,
    };
    let order = Order::new(order).expect("at most 9");
    match dice.roll(100) {
        0..=79 => (order, Class::Movable),
        80..=94 => (order, Class::Unmovable),
        _ => (Order::BASE, Class::Table),
    }
}

/// What a history came to.
struct Outcome {
    /// Percent of the free frames that lie in free 2 MiB blocks.
    whole: f64,
    /// 2 MiB blocks that hold what does not move.
    pinned: f64,
    /// Percent of the requests for 2 MiB that were refused while 2 MiB were free.
    short: f64,
}

/// Percent of memory in use, between two bounds.
type Fill = (u64, u64);

fn history(mut subject: Subject, frames: u64, fill: Fill, cpus: u16, steps: u64) -> Outcome {
    let mut dice = Dice(0x1234_5678_9abc_def1);
    let (mut held, mut used, mut target) = (Vec::<Held>::new(), 0, 0);
    let (mut asked, mut refused, mut samples, mut whole, mut pinned) = (0u64, 0u64, 0u64, 0.0, 0.0);
    for step in 0..steps {
        if step % WANDER == 0 {
            target = fill.0 + dice.roll(fill.1 - fill.0 + 1);
        }
        let cpu = Cpu(dice.roll(cpus.into()) as u16);
        if held.is_empty() || used * 100 < frames * target {
            let (order, class) = request(&mut dice);
            let head = subject.alloc(cpu, order, class);
            if order == Order::SIZE_2M && frames - used >= order.pages().get() {
                asked += 1;
                refused += u64::from(head.is_none());
            }
            if let Some(head) = head {
                held.push(Held { head, order, class });
                used += order.pages().get();
            }
        } else {
            let block = held.swap_remove(dice.roll(held.len() as u64) as usize);
            subject.free(cpu, block.head, block.order);
            used -= block.order.pages().get();
        }
        if step >= steps / 2 && step % (steps / 2 / SAMPLES).max(1) == 0 {
            let stays = held.iter().filter(|held| held.class != Class::Movable);
            samples += 1;
            whole += (subject.whole() * 512) as f64 / (frames - used).max(1) as f64;
            pinned += stays.map(|held| held.head / 512).collect::<HashSet<_>>().len() as f64;
        }
    }
    Outcome {
        whole: whole / samples as f64 * 100.0,
        pinned: pinned / samples as f64,
        short: refused as f64 / asked.max(1) as f64 * 100.0,
    }
}

fn main() {
    let quick = std::env::args().any(|arg| arg == "--quick");
    println!(
        "whole: percent of free memory in free 2 MiB blocks; pinned: blocks that hold what stays, to the buddy's; short: refused 2 MiB\n"
    );
    println!(
        "{:<8}{:<8}{:>8}{:>8}{:>8}{:>8}{:>10}{:>8}{:>8}{:>10}{:>8}{:>8}{:>8}",
        "memory",
        "fill",
        "whole:",
        "1",
        "16",
        "64",
        "pinned: 1",
        "16",
        "64",
        "short:",
        "1",
        "16",
        "64"
    );
    for shift in [19, 21, 23] {
        for fill in [(60, 60), (75, 75), (90, 90), (60, 90)] {
            let frames = 1 << shift;
            let steps = frames * STEPS / if quick { 10 } else { 1 };
            let peer =
                history(Subject::Buddy(Box::new(Buddy::new(frames))), frames, fill, 1, steps);
            let ours =
                CPUS.map(|cpus| history(Subject::foliant(frames, cpus), frames, fill, cpus, steps));
            let [whole, pinned, short] = [
                ours.each_ref().map(|o| o.whole),
                ours.each_ref().map(|o| o.pinned / peer.pinned),
                ours.each_ref().map(|o| o.short),
            ];
            println!(
                "{:<8}{:<8}{:>8.1}{:>8.1}{:>8.1}{:>8.1}{:>10.2}{:>8.2}{:>8.2}{:>10.1}{:>8.1}{:>8.1}{:>8.1}",
                format!("{} GiB", frames >> 18),
                format!("{}-{}", fill.0, fill.1),
                peer.whole,
                whole[0],
                whole[1],
                whole[2],
                pinned[0],
                pinned[1],
                pinned[2],
                peer.short,
                short[0],
                short[1],
                short[2]
            );
        }
    }
}
