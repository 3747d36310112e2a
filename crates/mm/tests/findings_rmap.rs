//! What was proved wrong about translations that outlive a table, about lists that are walked under a pin, about folios that
//! wait to be split, and about waiting under a table's lock: `docs/findings.md` has the rules.
#![allow(unsafe_code)]

mod common;
use common::*;
use foliant::manager::CollapseLimits;
use foliant::{FlushGrain, Policy};
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, Va};
use meddler::Meddler;

const PAGE: u64 = 4096;

/// G: each time that somebody is about to be asked for a flush, CPU 1 reads every page that it can.
fn read_at_each_request(machine: &'static Meddler) {
    machine.before_asking(move || {
        machine.sim.on(cpu(1), || {
            for page in 0..512 {
                let _ = machine.sim.user_load(Va::new(BASE + page * PAGE), 8);
            }
        });
        read_at_each_request(machine);
    });
}

/// The pages that are in their places already are read one by one while the last ones still move. A collapse that flushes the place
/// of the new leaf as one entry leaves them in that CPU's cache, by which they outlive the leaf too.
#[test]
fn finding_g_a_removed_table_goes_with_its_leaves() {
    // Below and above the number of entries from which on everything is flushed.
    for (ceiling, grain) in [(1024, FlushGrain::WHOLE), (33, FlushGrain::ONE)] {
        let mut config = Config::seeded(2, Bytes::new(64 * MB), 1);
        config.rules.ceiling_entries = ceiling;
        let machine: &'static Meddler =
            Box::leak(Box::new(Meddler::new(Sim::new(config).unwrap())));
        let memory = machine.sim.config().memory.clone();
        let mm: &'static Mm<'static, Meddler> =
            Box::leak(Box::new(manager_on(machine, &memory, Policy::BASE_ONLY)));
        let id = mm.create(None).unwrap();
        for n in 0..2 {
            machine.sim.on(cpu(n), || {
                mm.online();
                mm.switch(Some(id)).unwrap();
            });
        }
        let whole = area(mm, id, BASE, 2 * MB);
        for page in 0..512 {
            store(&machine.sim, mm, id, BASE + page * PAGE, page);
        }
        mm.set_flush_grain(grain);
        read_at_each_request(machine);
        mm.collapse(id, Va::new(BASE), CollapseLimits::NONE).unwrap();
        machine.before_asking(|| ());
        let cached = |of: &str| {
            let all = machine.sim.cached(cpu(1));
            let small = all.iter().filter(|e| !e.table && e.level == 0 && whole.contains(e.va));
            assert_eq!(
                small.count(),
                0,
                "translations of pages are left behind {of}, ceiling {ceiling}"
            );
        };
        cached("the collapse");
        mm.unmap(id, whole).unwrap();
        cached("the unmapping");
        finish(&machine.sim, mm, &[id]);
    }
}
