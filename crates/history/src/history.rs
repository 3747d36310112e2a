//! One history, many histories, planted ones, and every allocation failing once.

use crate::plant::Plant;
use crate::preempt::Preempt;
use crate::report::{Finding, Report};
use crate::rng::Draws;
use crate::saboteur::Saboteur;
use crate::shape::{Format, Live, Refused, Shape, Style};
use crate::world::{MEMORY, World, config, memory_of_drawn};
use crate::{folding, objects, partitioned, pooled, racing, ranges};
use core::ops::Range;
use foliant::Event;
use foliant::table::{Aarch64, Paging, Riscv64, X86_64};
use foliant_sim::{RiscvMode, Sim, X86Levels};
use foliant_units::Bytes;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// One history of the manager.
#[derive(Clone, Copy, Debug)]
pub struct History;

impl History {
    /// Runs the history that `seed` and `shape` stand for. The same two give the same report.
    pub fn run(seed: u64, shape: Shape) -> Report {
        History::drawn(seed, shape, Draws::default(), MEMORY)
    }
    /// The same with bytes that decide before chance does: which operations there are, where, and
    /// how large. It is for fuzzers; to replay the report takes the bytes, too.
    pub fn run_drawn(seed: u64, shape: Shape, bytes: &[u8]) -> Report {
        History::drawn(seed, shape, Draws::new(bytes), memory_of_drawn(shape.style))
    }

    fn drawn(seed: u64, shape: Shape, draws: Draws, memory: Bytes) -> Report {
        use foliant_sim::Format as Machine;
        let with = (draws, memory);
        match shape.format {
            Format::X86Four => {
                History::on::<X86_64<4>>(seed, shape, with, Machine::X86_64(X86Levels::Four))
            }
            Format::X86Five => {
                History::on::<X86_64<5>>(seed, shape, with, Machine::X86_64(X86Levels::Five))
            }
            Format::Aarch64 => {
                let shape = Shape { live: Live::BreakBeforeMake, ..shape };
                History::on::<Aarch64>(seed, shape, with, Machine::Aarch64)
            }
            Format::Sv39 => {
                History::on::<Riscv64<3>>(seed, shape, with, Machine::Riscv64(RiscvMode::Sv39))
            }
            Format::Sv48 => {
                History::on::<Riscv64<4>>(seed, shape, with, Machine::Riscv64(RiscvMode::Sv48))
            }
        }
    }

    fn on<P: Paging>(
        seed: u64,
        shape: Shape,
        (draws, memory): (Draws, Bytes),
        format: foliant_sim::Format,
    ) -> Report {
        let shape = Shape { cpus: shape.cpus.clamp(1, 64), ..shape };
        let sim = Sim::new(config(seed, &shape, format, memory));
        let sim = Arc::new(sim.expect("the machine can be built"));
        let machine = Saboteur::new(&sim, shape.plant.map(Plant::bug), seed);
        let world: World<'_, P> = World::drawn(&sim, &machine, shape, seed, draws);
        let _quiet = crate::quiet::Quiet::begin();
        let preempt = Preempt::begin(&sim, seed);
        let went = catch_unwind(AssertUnwindSafe(|| {
            let spaces = match shape.style {
                Style::Partitioned => partitioned::run(&world),
                Style::Racing => racing::run(&world),
                Style::Folding => folding::run(&world),
                Style::Pooled => pooled::run(&world),
                Style::Ranges => ranges::run(&world),
                Style::Objects => objects::run(&world),
            };
            if world.is_whole() {
                world.finish(&spaces);
            }
        }));
        drop(preempt);
        let whole = went.is_ok() && world.is_finished();
        let events = [Event::Fault, Event::Shootdown, Event::Interrupt, Event::SwitchKept]
            .map(|event| world.mm.total(event));
        let taken = world.mm.total(Event::GuessTaken);
        let groups = [Event::ContMapped, Event::ContSplit].map(|event| world.mm.total(event));
        // What is outstanding after a history that broke off is no finding.
        let violations = if whole { sim.finish() } else { sim.violations() };
        let notes = world.into_notes();
        let mut findings = notes.findings;
        if let Err(panic) = went {
            findings.push(Finding { checker: "panic", text: crate::quiet::message(&*panic) });
        }
        findings.extend(violations.iter().map(|violation| {
            let text =
                format!("cpu {}, step {}: {}", violation.cpu.0, violation.step, violation.text);
            Finding { checker: violation.checker, text }
        }));
        Report {
            seed,
            shape,
            operations: notes.operations,
            faults: events[0],
            shootdowns: events[1],
            interrupts: events[2],
            kept: events[3],
            groups,
            taken,
            refused_allocations: notes.refused_allocations.max(sim.fault_plan().refused()),
            refused_operations: notes.refused,
            struck: machine.struck(),
            digest: sim.digest(),
            findings,
        }
    }

    /// Runs the same short history on one CPU again and again, with the k-th allocation refused,
    /// for every k until none is refused any more. Calls `seen` with each report and stops where it
    /// says so.
    pub fn every_kth(seed: u64, steps: usize, mut seen: impl FnMut(&Report) -> Go) -> u64 {
        let shape = Shape {
            cpus: 1,
            steps,
            style: Style::Partitioned,
            limit: 0,
            plant: None,
            ..Shape::of(seed)
        };
        for k in 1.. {
            let report = History::run(seed, Shape { refused: Refused::Kth(k), ..shape });
            let last = report.refused_allocations == 0;
            if seen(&report) == Go::Stop || last {
                return k;
            }
        }
        0
    }
}

/// Whether to go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Go {
    /// Yes.
    On,
    /// No.
    Stop,
}

/// Many histories, on several threads of the host.
#[derive(Clone, Copy, Debug)]
pub struct Histories;

impl Histories {
    /// Runs the histories of `seeds`, shaped by `shape`, on `threads` threads, and returns the
    /// reports by seed. `done` hears of each as it ends, in no certain order.
    pub fn seeds(
        seeds: Range<u64>,
        threads: usize,
        shape: impl Fn(u64) -> Shape + Sync,
        done: impl Fn(&Report) + Sync,
    ) -> Vec<Report> {
        let next = AtomicU64::new(seeds.start);
        let reports = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..threads.max(1) {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= seeds.end {
                            return;
                        }
                        let report = History::run(seed, shape(seed));
                        done(&report);
                        reports.lock().unwrap_or_else(|e| e.into_inner()).push(report);
                    }
                });
            }
        });
        let mut reports = reports.into_inner().unwrap_or_else(|e| e.into_inner());
        reports.sort_by_key(|report| report.seed);
        reports
    }
}

/// How a planted bug was caught, or not.
#[derive(Clone, Debug)]
pub struct Caught {
    /// The bug.
    pub plant: Plant,
    /// The first history in which the checker that is named for it found something.
    pub by_name: Option<Report>,
    /// The other checkers that found something until then, each with the seed.
    pub others: Vec<(u64, &'static str)>,
}

/// Plants `plant` in the histories of `seeds` until the checker named for it finds something.
pub fn run_planted(plant: Plant, seeds: Range<u64>) -> Caught {
    let mut others: Vec<(u64, &'static str)> = Vec::new();
    for seed in seeds {
        let report = History::run(seed, Shape::planted(seed, plant));
        for finding in &report.findings {
            let known = others.iter().any(|(_, checker)| *checker == finding.checker);
            if finding.checker != plant.checker() && !known {
                others.push((seed, finding.checker));
            }
        }
        if report.found_by(plant.checker()) {
            return Caught { plant, by_name: Some(report), others };
        }
    }
    Caught { plant, by_name: None, others }
}
