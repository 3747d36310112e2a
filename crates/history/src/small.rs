//! The exhaustive small world: two CPUs, four pages, six operations, every sequence of a length in
//! every order.
//!
//! ```text
//!   a sequence:  (cpu, operation) (cpu, operation) ...      12 choices each
//!   after each:  every page on both CPUs, in both spaces, against the model; then both spaces end
//! ```
//!
//! Random histories find what takes many steps; this finds what takes few, and leaves none of them
//! out.

use crate::model::{Model, page_of};
use crate::report::Finding;
use crate::rng::Rng;
use crate::saboteur::Saboteur;
use crate::seat::{Known, Seat};
use crate::shape::{Format, Live, Refused, Shape, Sizes, Style};
use crate::world::{MEMORY, World, config, range};
use foliant::Policy;
use foliant::fault::Orders;
use foliant::space::{Advice, Flags, MapRequest, Place};
use foliant::table::{Paging, X86_64};
use foliant_sim::Sim;
use foliant_units::{Bytes, Cpu, FRAME_BYTES, Order, Va};

const BASE: u64 = 0x10_0000_0000;
const PAGES: u64 = 4;
/// Choices for one step: two CPUs, six operations.
const CHOICES: u64 = 12;

/// What an exhaustive run went through.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Small {
    /// Sequences run.
    pub sequences: u64,
    /// What was found, and in which sequence first.
    pub findings: Vec<Finding>,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Store,
    Load,
    Drop,
    Protect,
    Fork,
    Unmap,
}

const OPS: [Op; 6] = [Op::Store, Op::Load, Op::Drop, Op::Protect, Op::Fork, Op::Unmap];

impl Small {
    /// Runs every sequence of `length` operations, with folios of `order`. It stops at the first
    /// finding.
    pub fn run(length: u32, order: Order) -> Small {
        let shape = Shape {
            cpus: 2,
            steps: length as usize,
            style: Style::Partitioned,
            format: Format::X86Four,
            refused: Refused::Nothing,
            live: Live::Usual,
            sizes: Sizes::Any,
            limit: 0,
            plant: None,
        };
        let format = foliant_sim::Format::X86_64(foliant_sim::X86Levels::Four);
        let total = CHOICES.pow(length);
        let mut sequences = 0;
        // There is a fresh machine now and then, so that the checkers' books stay small.
        for first in (0..total).step_by(2000) {
            let sim =
                Sim::new(config(1, &shape, format, MEMORY)).expect("the machine can be built");
            let machine = Saboteur::new(&sim, None, 1);
            let world: World<'_, X86_64<4>> = World::new(&sim, &machine, shape, 1);
            world.mm.set_policy(Policy::always(Orders::of(order)));
            for number in first..total.min(first + 2000) {
                sequence(&world, number, length);
                sequences += 1;
                if world.stopped() || !sim.violations().is_empty() {
                    world.wrong("answers", format!("in sequence {}", spell(number, length)));
                    break;
                }
            }
            if !world.stopped() {
                world.finish(&[]);
            }
            let mut findings = Vec::new();
            findings.extend(sim.finish().iter().map(|violation| Finding {
                checker: violation.checker,
                text: violation.text.clone(),
            }));
            findings.extend(world.into_notes().findings);
            if !findings.is_empty() {
                return Small { sequences, findings };
            }
        }
        Small { sequences, findings: Vec::new() }
    }
}

/// The steps of a sequence.
fn steps(number: u64, length: u32) -> impl Iterator<Item = (Cpu, Op)> {
    (0..length).map(move |nth| {
        let choice = number / CHOICES.pow(nth) % CHOICES;
        (Cpu((choice / 6) as u16), OPS[(choice % 6) as usize])
    })
}

fn spell(number: u64, length: u32) -> String {
    let step = |(cpu, op): (Cpu, Op)| format!("cpu {}: {op:?}", cpu.0);
    steps(number, length).map(step).collect::<Vec<_>>().join(", ")
}

fn sequence<P: Paging>(world: &World<'_, P>, number: u64, length: u32) {
    let Ok(id) = world.mm.create(None) else {
        return world.wrong("answers", "no space is made".into());
    };
    let first = page_of(BASE);
    let window = first..first + PAGES;
    let bytes = Bytes::new(PAGES * FRAME_BYTES);
    let place = Place::NoReplace(Va::new(BASE));
    let request = MapRequest { place, bytes, flags: Flags::READ_WRITE, tag: 0 };
    if world.mm.map(id, &request).is_err() {
        return world.wrong("answers", "an empty space has no room".into());
    }
    let mut model = Model::default();
    model.map(&window, Flags::READ_WRITE, 0);
    let known = Known {
        id,
        lineage: 1,
        line: vec![1],
        limit: 0,
        private: false,
        model,
        seen: Default::default(),
    };
    let mut seat = Seat {
        rng: Rng::new(number, 5),
        window: window.clone(),
        all: window.clone(),
        last: window.clone(),
        spaces: vec![known],
        dead: Vec::new(),
        at: 0,
        serial: 0,
    };
    let mut runs = [0; 2];
    for (cpu, op) in steps(number, length) {
        world.sim.on(cpu, || step(world, &mut seat, &mut runs[cpu.index()], op));
    }
    for nth in 0..seat.spaces.len() {
        for cpu in world.mm.cpus() {
            world.sim.on(cpu, || {
                let _ = world.run(seat.spaces[nth].id);
                for page in window.clone() {
                    seat.load(world, nth, page * FRAME_BYTES);
                }
                seat.store(world, nth, BASE + (u64::from(cpu.0) + 1) * FRAME_BYTES);
                // What the CPU has cached may grant less than the area does by now: the store gets
                // through all the same.
                seat.store(world, nth, BASE);
            });
        }
    }
    for cpu in world.mm.cpus() {
        if world.sim.on(cpu, || world.mm.switch(None)).is_err() {
            world.wrong("answers", "a CPU does not leave its space".into());
        }
    }
    for known in &seat.spaces {
        if let Err(error) = world.mm.end(known.id) {
            world.wrong("answers", format!("a space does not end: {error}"));
        }
    }
}

/// One operation of the calling CPU in the space that it runs.
fn step<P: Paging>(world: &World<'_, P>, seat: &mut Seat, runs: &mut usize, op: Op) {
    let id = seat.spaces[*runs].id;
    let _ = world.run(id);
    let first = page_of(BASE);
    let two = first..first + 2;
    let span = |pages: &core::ops::Range<u64>| {
        range(pages.start * FRAME_BYTES, (pages.end - pages.start) * FRAME_BYTES)
    };
    let wrong = |what: &str, error: &dyn core::fmt::Debug| {
        world.wrong("answers", format!("{what}: {error:?}"));
    };
    match op {
        Op::Store => seat.store(world, *runs, BASE),
        Op::Load => seat.load(world, *runs, BASE),
        Op::Drop => match world.mm.advise(id, span(&(first..first + 1)), Advice::DontNeed) {
            Ok(()) => seat.spaces[*runs].model.drop_contents(&(first..first + 1)),
            Err(error) => wrong("drop", &error),
        },
        Op::Protect => {
            let model = &mut seat.spaces[*runs].model;
            let open = model.get(BASE).is_some_and(|page| page.flags.has(Flags::WRITE));
            let rights = if open { Flags::READ } else { Flags::READ_WRITE };
            match world.mm.protect(id, span(&(first..first + 1)), rights) {
                Ok(()) => model.each(&(first..first + 1), |page| page.flags = rights),
                Err(error) => wrong("protect", &error),
            }
        }
        Op::Fork if seat.spaces.len() == 1 => match world.mm.fork(id) {
            Ok(id) => {
                let child = Known { id, lineage: 2, ..seat.spaces[0].clone() };
                seat.spaces.push(child);
                *runs = 1;
            }
            Err(error) => wrong("fork", &error),
        },
        Op::Fork => *runs = 1 - *runs,
        Op::Unmap => {
            let last = two.end..two.end + 1;
            let model = &mut seat.spaces[*runs].model;
            if model.is_empty(&last) {
                let place = Place::NoReplace(Va::new(last.start * FRAME_BYTES));
                let bytes = Bytes::new(FRAME_BYTES);
                let request = MapRequest { place, bytes, flags: Flags::READ_WRITE, tag: 0 };
                match world.mm.map(id, &request) {
                    Ok(_) => model.map(&last, Flags::READ_WRITE, 0),
                    Err(error) => wrong("map", &error),
                }
            } else {
                match world.mm.unmap(id, span(&last)) {
                    Ok(()) => model.unmap(&last),
                    Err(error) => wrong("unmap", &error),
                }
            }
        }
    }
}
