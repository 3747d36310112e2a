//! What a machine that breaks before it makes demands of operations next to faults.

use crate::common::*;
use foliant::Policy;
use foliant::fault::Orders;
use foliant::space::{Advice, SpaceId};
use foliant_machine::Replace;
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, Cpu, Order};

/// A machine and a space with an area of `bytes` that three CPUs work on: the first drops all of it
/// again and again, the others do what `each` says of the manager, the space, the CPU and the step.
fn beside_drops(bytes: u64, each: impl Fn(&Sim, &Mm<'_>, SpaceId, u16, u64) + Sync) {
    for seed in 0..40 {
        let mut config = Config::seeded(3, Bytes::new(32 * MB), seed);
        config.rules.replace = Replace::BreakBeforeMake;
        let sim = Sim::new(config).unwrap();
        let mm = manager(&sim, Policy::BASE_ONLY);
        let id = mm.create(None).unwrap();
        let whole = area(&mm, id, BASE, bytes);
        sim.parallel(3, |cpu: Cpu| {
            mm.online();
            mm.switch(Some(id)).unwrap();
            for step in 0..40 {
                match cpu.0 {
                    0 => mm.advise(id, whole, Advice::DontNeed).unwrap(),
                    other => each(&sim, &mm, id, other, step),
                }
            }
        });
    }
}

#[test]
fn a_fault_waits_for_the_flush_of_an_entry_that_was_just_taken_out() {
    beside_drops(4 * 4096, |sim, mm, id, cpu, step| {
        let va = BASE + step % 4 * 4096;
        match cpu {
            1 => drop(store(sim, mm, id, va, step)),
            _ => drop(load(sim, mm, id, va)),
        }
    });
}

/// A large leaf was taken out, and pages come in its place: their table is not made before the
/// flush.
#[test]
fn finding_u_a_table_waits_for_the_flush_of_the_leaf_that_was_in_its_place() {
    let large = Policy::always(Orders::of(Order::SIZE_2M));
    beside_drops(4 * MB, |sim, mm, id, cpu, step| {
        let va = BASE + step % 2 * 2 * MB;
        match cpu {
            1 => drop(store(sim, mm, id, va, step)),
            _ => {
                mm.set_policy(if step % 2 == 0 { large } else { Policy::BASE_ONLY });
                drop(store(sim, mm, id, va + 4096, step));
            }
        }
    });
}
