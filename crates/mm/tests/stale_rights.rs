//! Translations that grant less than the entry does, on machines where only an invalidation ends
//! them.

use crate::common::*;
use foliant::space::Flags;
use foliant::{Outcome, Policy};

#[test]
fn a_write_gets_through_after_the_area_was_opened_again() {
    let sim = sim(2, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    for n in 0..2 {
        sim.on(cpu(n), || {
            mm.online();
            mm.switch(Some(id)).unwrap();
        });
    }
    let whole = area(&mm, id, BASE, MB);
    store(&sim, &mm, id, BASE, 1);
    mm.protect(id, whole, Flags::READ).unwrap();
    for n in 0..2 {
        assert_eq!(sim.on(cpu(n), || load(&sim, &mm, id, BASE)), 1);
    }
    mm.protect(id, whole, Flags::READ_WRITE).unwrap();
    for n in 0..2 {
        let outcomes = sim.on(cpu(n), || store(&sim, &mm, id, BASE, 2));
        assert!(outcomes.iter().all(|o| *o == Outcome::Spurious), "{outcomes:?}");
        assert!(outcomes.len() < 2, "{outcomes:?}");
    }
}
