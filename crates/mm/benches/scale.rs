//! Faults of one space on one and on two CPUs: how much more work two do together.
//!
//! Real threads on the simulated machine, checkers off. Each touches memory of its own area of one
//! shared space, page by page, so every fault is a walk, a look-up, an allocation and a
//! publication. Rounds with one and with two threads take turns; medians of 9. The goal is 1.8 on a
//! host with two free cores.

use foliant::fault::Orders;
use foliant::manager::Setup;
use foliant::space::{Advice, Flags, MapRequest, Place, SpaceId};
use foliant::table::X86_64;
use foliant::{Access, Manager, Policy};
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, Order, Va, VaRange};
use std::time::Instant;

type Mm<'m> = Manager<'m, Sim, X86_64<4>>;

const BASE: u64 = 0x10_0000_0000;
const AREA: u64 = 64 << 20;
const ROUNDS: usize = 9;

fn range(cpu: u64) -> VaRange {
    VaRange::sized(Va::new(BASE + cpu * (1 << 30)), Bytes::new(AREA)).unwrap()
}

/// Nanoseconds per fault and CPU with `threads` at work.
fn round(sim: &Sim, mm: &Mm<'_>, id: SpaceId, threads: usize, step: u64) -> f64 {
    let begun = Instant::now();
    sim.parallel(threads, |cpu| {
        mm.switch(Some(id)).unwrap();
        let area = range(cpu.index() as u64);
        let mut va = area.start();
        while va < area.end() {
            mm.fault(id, va, Access::Write);
            va = va.add(step);
        }
    });
    let time = begun.elapsed().as_nanos() as f64 / (AREA / step) as f64;
    for cpu in 0..threads as u64 {
        mm.advise(id, range(cpu), Advice::DontNeed).unwrap();
    }
    time
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    println!(
        "{:>6}  {:>14}  {:>14}  {:>12}",
        "folio", "1 CPU ns/fault", "2 CPUs ns/fault", "work ratio"
    );
    for order in [0, 4] {
        let order = Order::new(order).unwrap();
        let sim = Sim::new(Config::free(2, Bytes::new(1 << 30))).unwrap();
        let memory = sim.config().memory.clone();
        let policy = Policy::always(Orders::of(order));
        let setup = Setup::of(&memory, policy);
        let mm: Mm<'_> = Manager::new(&sim, &setup).unwrap();
        sim.parallel(2, |_| mm.online());
        let id = mm.create(None).unwrap();
        for cpu in 0..2 {
            let area = range(cpu);
            let request = MapRequest {
                place: Place::NoReplace(area.start()),
                bytes: area.bytes(),
                flags: Flags::READ_WRITE,
                tag: cpu,
            };
            mm.map(id, &request).unwrap();
        }
        let step = order.bytes().get();
        round(&sim, &mm, id, 2, step); // the host backs the memory
        let (mut one, mut two) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            one.push(round(&sim, &mm, id, 1, step));
            two.push(round(&sim, &mm, id, 2, step));
        }
        let (one, two) = (median(one), median(two));
        println!(
            "{:>6}  {one:>14.0}  {two:>14.0}  {:>11.2}x",
            order.bytes().to_string(),
            2.0 * one / two
        );
    }
}
