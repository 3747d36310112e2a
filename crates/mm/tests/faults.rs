//! What faults do, seen from a program on the simulated machine.

use crate::common::*;
use foliant::fault::Orders;
use foliant::{Event, Outcome, Policy, SizeEvent};
use foliant_machine::Faults;
use foliant_sim::{Config, Sim};
use foliant_units::Bytes;

#[test]
fn one_fault_maps_a_folio_of_the_enabled_size() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::always(Orders::of(order(4))));
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, MB);
    for page in 0..256 {
        let outcomes = store(&sim, &mm, id, BASE + page * 4096, page);
        let expect = if page % 16 == 0 { vec![Outcome::Mapped(order(4))] } else { vec![] };
        assert_eq!(outcomes, expect, "page {page}");
    }
    for page in 0..256 {
        assert_eq!(load(&sim, &mm, id, BASE + page * 4096), page);
    }
    assert_eq!(mm.size_stats(order(4)).get(SizeEvent::AnonFaultAlloc), 16);
}

/// A page that gets more rights needs no shootdown: the CPU with the old translation faults once.
/// Where the fault does not end that, the manager does so.
#[test]
fn a_program_faults_once_by_a_translation_that_grants_too_little() {
    for faults in [Faults::EndTranslation, Faults::KeepTranslation] {
        let mut config = Config::seeded(1, Bytes::new(64 * MB), 1);
        config.rules.faults = faults;
        let sim = Sim::new(config).unwrap();
        let mm = manager(&sim, Policy::BASE_ONLY);
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        area(&mm, id, BASE, MB);
        store(&sim, &mm, id, BASE, 1);
        mm.end(mm.fork(id).unwrap()).unwrap();
        load(&sim, &mm, id, BASE); // it may be cached, read-only
        let ended = mm.total(Event::LocalOne);
        assert_eq!(store(&sim, &mm, id, BASE, 2), [Outcome::Reused], "{faults:?}");
        let ends = u64::from(faults == Faults::KeepTranslation);
        assert_eq!(mm.total(Event::LocalOne) - ended, ends, "{faults:?}");
    }
}
