//! What faults do, seen from a program on the simulated machine.

use crate::common::*;
use foliant::fault::Orders;
use foliant::{Outcome, Policy, SizeEvent};

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
