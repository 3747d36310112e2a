//! Steps, drawn from a seed.

use super::{OBJECTS, PROCESSES, Step, What};
use foliant_sim::Rng;

/// Pages of the window in which areas lie.
pub(super) const WINDOW: u64 = 28;
/// Pages of an object, at most, but for a few.
const ROOM: u64 = 6;
/// Areas that are thought of.
const AREAS: usize = 8;

/// A sequence of `length` steps. The first makes an object.
pub fn steps(seed: u64, length: usize) -> Vec<Step> {
    let rng = Rng::new(seed, 0x12);
    let mut draw = Draw { rng, processes: vec![0], areas: Vec::new() };
    let first = Step::Create { of: 0, pages: draw.below(ROOM) };
    core::iter::once(first).chain(core::iter::repeat_with(|| draw.step())).take(length).collect()
}

/// What is drawn from: most steps are about what an earlier one was about.
struct Draw {
    rng: Rng,
    /// Processes that are there, if every fork went well.
    processes: Vec<usize>,
    /// The areas that were mapped last: who has it, page and count.
    areas: Vec<(usize, u64, u64)>,
}

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.rng.below(bound)
    }
    fn once_in(&mut self, every: u32) -> bool {
        self.rng.once_in(every)
    }
    fn who(&mut self) -> usize {
        self.processes[self.rng.below(self.processes.len() as u64) as usize]
    }
    /// An object: the first more often than others.
    fn of(&mut self) -> usize {
        self.below(OBJECTS as u64).min(self.rng.below(OBJECTS as u64)) as usize
    }
    /// A process and a few pages of its window, most often within an area.
    fn part(&mut self) -> (usize, u64, u64) {
        let count = 1 + self.below(4);
        if self.areas.is_empty() || self.once_in(16) {
            return (self.who(), self.below(WINDOW - 8), count);
        }
        let (who, at, all) = self.areas[self.rng.below(self.areas.len() as u64) as usize];
        let part = if self.once_in(3) { (at, all) } else { (at + self.below(all), count.min(all)) };
        (who, part.0, part.1)
    }
    fn step(&mut self) -> Step {
        let of = self.of();
        let (who, at, count) = self.part();
        match self.below(100) {
            0..=2 => Step::Create { of, pages: self.below(ROOM) },
            3 => Step::Close { of },
            4..=7 => Step::Resize { of, pages: self.below(ROOM) },
            8..=11 => Step::Punch { of, from: self.below(ROOM), count },
            12..=14 => Step::Allocate { of, from: self.below(ROOM), count: 1 + count / 2 },
            15..=29 => self.map(of),
            30..=34 => {
                self.areas.retain(|area| *area != (who, at, count));
                Step::Unmap { who, at, count }
            }
            35..=48 => Step::Load { who, at },
            49..=78 => Step::Store { who, at, value: 1 + self.below(255) as u8 },
            79..=83 => Step::Drop { who, at, count },
            84..=87 => self.fork(),
            88..=90 => self.exit(),
            91..=95 => Step::Pool { pages: 2 + self.below(14) },
            _ => Step::Overcommit { pages: self.below(5) },
        }
    }
    fn map(&mut self, of: usize) -> Step {
        let (who, at, count) = (self.who(), self.below(WINDOW - 8), 1 + self.below(4));
        self.areas.push((who, at, count));
        if self.areas.len() > AREAS {
            self.areas.remove(0);
        }
        Step::Map { who, at, count, what: self.what(of) }
    }
    fn fork(&mut self) -> Step {
        let (who, child) = (self.who(), 1 + self.below(PROCESSES as u64 - 1) as usize);
        if !self.processes.contains(&child) {
            self.processes.push(child);
            let its: Vec<_> = self.areas.iter().filter(|area| area.0 == who).copied().collect();
            self.areas.extend(its.iter().map(|(_, at, count)| (child, *at, *count)));
        }
        Step::Fork { who, child }
    }
    fn exit(&mut self) -> Step {
        let who = self.who();
        if who > 0 {
            self.processes.retain(|other| *other != who);
            self.areas.retain(|area| area.0 != who);
        }
        Step::Exit { who }
    }
    fn what(&mut self, of: usize) -> What {
        let own = self.once_in(3);
        What {
            of: if own { None } else { Some(of) },
            first: if own { 0 } else { self.below(4) },
            shared: !own && self.once_in(2),
            noreserve: self.once_in(4),
            writable: !self.once_in(8),
        }
    }
}
