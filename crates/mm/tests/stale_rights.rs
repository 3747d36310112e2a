//! Translations that grant less than the entry does, on machines where only an invalidation ends
//! them.

use crate::common::*;
use foliant::fault::Refusal;
use foliant::space::{Flags, Place, SpaceId};
use foliant::{Access, Outcome, Policy};
use foliant_sim::Sim;
use foliant_units::Va;

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

/// Fetches an instruction as a program does: what the manager says where it is refused.
fn fetch(sim: &Sim, mm: &Mm<'_>, id: SpaceId) -> Result<(), Refusal> {
    for _ in 0..10 {
        if sim.user_touch(Va::new(BASE), foliant_sim::Access::Exec).is_ok() {
            return Ok(());
        }
        if let Outcome::Refused(why) = mm.fault(id, Va::new(BASE), Access::Execute) {
            return Err(why);
        }
    }
    panic!("the fetch never gets through");
}

const NO_RIGHT: Result<(), Refusal> = Err(Refusal::NoRight(Va::new(BASE), Access::Execute));

#[test]
fn nothing_is_fetched_after_the_right_was_taken() {
    let sim = sim(2, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    let exec = Flags::READ_WRITE.with(Flags::EXEC);
    let whole = mm.map(id, &request(Place::NoReplace(Va::new(BASE)), MB, exec)).unwrap();
    for n in 0..2 {
        sim.on(cpu(n), || {
            mm.online();
            mm.switch(Some(id)).unwrap();
            store(&sim, &mm, id, BASE, 1);
            assert_eq!(fetch(&sim, &mm, id), Ok(()));
        });
    }
    mm.protect(id, whole, Flags::READ_WRITE).unwrap();
    for n in 0..2 {
        assert_eq!(sim.on(cpu(n), || fetch(&sim, &mm, id)), NO_RIGHT, "cpu {n}");
    }
}

#[test]
fn nothing_is_fetched_where_it_may_be_read_only() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, MB);
    assert_eq!(fetch(&sim, &mm, id), NO_RIGHT, "nothing is mapped yet");
    store(&sim, &mm, id, BASE, 1);
    assert_eq!(fetch(&sim, &mm, id), NO_RIGHT);
}
