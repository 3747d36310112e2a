//! Partitioned histories: every CPU at a seat of its own, all in the same spaces, in phases.

use crate::model::Model;
use crate::rng::Rng;
use crate::seat::{Known, Lineages, Seat};
use crate::world::{World, lock};
use foliant::space::SpaceId;
use foliant::table::Paging;
use foliant_units::Pages;
use std::sync::Mutex;

/// The first page of the first window: at 64 GiB, a 1 GiB boundary.
const FIRST: u64 = 0x1_0000 << 8;
/// Phases; seats change CPUs in between.
const PHASES: usize = 4;

/// Runs one history, and returns the spaces that are left.
pub(crate) fn run<P: Paging>(world: &World<'_, P>) -> Vec<SpaceId> {
    let mut rng = world.rng(3);
    let lineages = Lineages::default();
    let count = world.shape.cpus;
    let pages = match count {
        1..=4 => *rng.pick(&[16, 16, 128, 512, 1024]),
        5..=12 => *rng.pick(&[16, 16, 128, 512]),
        _ => *rng.pick(&[16, 128]),
    };
    world.mm.set_policy(crate::operations::policy(&mut rng, world.shape.sizes));
    let mut spaces = Vec::new();
    for nth in 0..1 + rng.below(3) {
        let limit = if nth % 2 == 0 { world.shape.limit } else { 0 };
        let limited = (limit > 0).then_some(Pages::new(limit));
        // Setting up is part of the history: it may be refused as well.
        let id = (0..200).find_map(|_| world.mm.create(limited).ok());
        let Some(id) = id else {
            world.wrong("answers", "no space is ever made".into());
            return Vec::new();
        };
        let lineage = lineages.next();
        let (model, seen) = (Model::default(), Default::default());
        spaces.push(Known { id, lineage, line: vec![lineage], limit, private: false, model, seen });
    }
    let all = FIRST..FIRST + pages * count as u64;
    let seats: Vec<Mutex<Seat>> = (0..count as u64)
        .map(|nth| {
            let start = FIRST + pages * nth;
            Mutex::new(Seat {
                rng: world.rng(16 + nth),
                window: start..start + pages,
                all: all.clone(),
                spaces: spaces.clone(),
                dead: Vec::new(),
                at: nth as usize % spaces.len(),
                serial: 0,
                last: start..start + pages,
            })
        })
        .collect();
    let steps = (world.shape.steps / count / PHASES).max(6);
    for phase in 0..PHASES {
        world.phase(phase, steps, &seats, |seat| seat.step(world, &lineages));
        compare(world, &seats, &mut rng);
        if world.stopped() {
            break;
        }
    }
    living(&seats)
}

fn living(seats: &[Mutex<Seat>]) -> Vec<SpaceId> {
    let mut living: Vec<SpaceId> = Vec::new();
    for seat in seats {
        let seat = lock(seat);
        for known in &seat.spaces {
            if !living.contains(&known.id) {
                living.push(known.id);
            }
        }
    }
    living
}

/// Compares what every seat knows, each on a CPU that chance draws. Between phases no CPU is at
/// work.
fn compare<P: Paging>(world: &World<'_, P>, seats: &[Mutex<Seat>], rng: &mut Rng) {
    world.audit_between(&living(seats));
    for seat in seats {
        if world.stopped() {
            return;
        }
        let cpu = crate::world::cpu(rng.draw(), world.shape.cpus);
        let mut seat = lock(seat);
        world.sim.on(cpu, || seat.compare(world));
    }
}
