//! What a CPU keeps of the spaces that it ran before (flush::F3), counted and tried at its edges.

use crate::common::*;
use foliant::space::{Advice, Flags, SpaceId};
use foliant::{Event, Policy};
use foliant_sim::{Config, Sim, Tags};
use foliant_units::{Bytes, Va};

/// Two spaces with one page stored to in each.
fn two(sim: &Sim, mm: &Mm<'_>) -> [SpaceId; 2] {
    [5, 6].map(|value| {
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        area(mm, id, BASE, MB);
        store(sim, mm, id, BASE, value);
        id
    })
}

/// How many switches kept something while `work` went on.
fn kept(mm: &Mm<'_>, work: impl FnOnce()) -> u64 {
    let before = mm.total(Event::SwitchKept);
    work();
    mm.total(Event::SwitchKept) - before
}

#[test]
fn a_space_left_and_not_flushed_is_kept() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let ids = two(&sim, &mm);
    let round = || {
        for (id, value) in ids.iter().zip([5, 6]) {
            mm.switch(Some(*id)).unwrap();
            assert_eq!(sim.user_load(Va::new(BASE), 8), Ok(value));
            mm.switch(None).unwrap();
        }
    };
    round();
    let before = sim.counts();
    assert_eq!(kept(&mm, || (0..10).for_each(|_| round())), 20);
    let after = sim.counts().since(&before);
    assert_eq!((after.fills_base, after.activations_kept), (0, 20));
}

#[test]
fn a_space_flushed_meanwhile_is_not_kept() {
    let sim = sim(2, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let [id, other] = two(&sim, &mm);
    let away = |flush: &dyn Fn()| {
        mm.switch(Some(id)).unwrap();
        load(&sim, &mm, id, BASE);
        mm.switch(Some(other)).unwrap();
        flush();
        kept(&mm, || mm.switch(Some(id)).unwrap())
    };
    let page = range(BASE, 4096);
    assert_eq!(away(&|| ()), 1);
    assert_eq!(away(&|| mm.protect(id, page, Flags::READ).unwrap()), 0);
    assert!(sim.user_store(Va::new(BASE), 8, 1).is_err());
    // More rights flush nothing: what is kept grants less, and one fault mends it.
    assert_eq!(away(&|| mm.protect(id, page, Flags::READ_WRITE).unwrap()), 1);
    assert_eq!(store(&sim, &mm, id, BASE, 7).len(), 1);
    let drop_there = || {
        sim.on(cpu(1), || {
            mm.online();
            mm.switch(Some(id)).unwrap();
            mm.advise(id, page, Advice::DontNeed).unwrap();
        });
    };
    assert_eq!(away(&drop_there), 0);
    assert_eq!(load(&sim, &mm, id, BASE), 0);
    assert_eq!(away(&|| mm.advise(other, page, Advice::DontNeed).unwrap()), 1);
}

#[test]
fn a_space_made_in_the_frames_of_another_keeps_nothing_of_it() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let [old, other] = two(&sim, &mm);
    mm.switch(Some(other)).unwrap();
    mm.end(old).unwrap();
    let again = (0..100).map(|_| mm.create(None).unwrap()).collect::<Vec<_>>();
    let same = *again.iter().find(|id| id.frame() == old.frame()).expect("frames are used again");
    let switch = || mm.switch(Some(same)).unwrap();
    assert_eq!(kept(&mm, switch), 0);
    assert!(sim.user_load(Va::new(BASE), 8).is_err());
    let _: Vec<SpaceId> = again.into_iter().chain([other]).collect();
}

#[test]
fn only_the_spaces_left_last_are_remembered() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let ids: Vec<SpaceId> = (0..8).map(|_| mm.create(None).unwrap()).collect();
    let run = |ids: &[SpaceId]| ids.iter().for_each(|id| mm.switch(Some(*id)).unwrap());
    run(&ids);
    mm.switch(None).unwrap();
    let back = || run(&[ids[7], ids[6], ids[5], ids[4], ids[0]]);
    assert_eq!(kept(&mm, back), 4);
}

#[test]
fn a_machine_without_tags_may_be_told_the_same() {
    let config = Config { tags: Tags::Absent, ..Config::seeded(1, Bytes::new(64 * MB), 1) };
    let sim = Sim::new(config).unwrap();
    let mm = manager(&sim, Policy::BASE_ONLY);
    let [id, _] = two(&sim, &mm);
    let filled = sim.counts().fills_base;
    assert_eq!(kept(&mm, || mm.switch(Some(id)).unwrap()), 1);
    assert_eq!(sim.user_load(Va::new(BASE), 8), Ok(5));
    assert!(sim.counts().fills_base > filled, "nothing was kept");
}

/// CPU 1 is on its way back into a space: announced, and sure that nothing was flushed while it was
/// away. Now CPU 0 drops a page that CPU 1 has under the space's tag.
#[test]
fn a_flush_that_meets_a_cpu_on_its_way_in_is_not_lost() {
    let (machine, mm, _over) = meddled(2, 64, Policy::BASE_ONLY);
    let sim = &machine.sim;
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(mm, id, BASE, MB);
    store(sim, mm, id, BASE, 5);
    sim.on(cpu(1), || {
        mm.online();
        mm.switch(Some(id)).unwrap();
        assert_eq!(load(sim, mm, id, BASE), 5);
        mm.switch(None).unwrap();
        machine.before_activating(cpu(1), move || {
            let page = range(BASE, 4096);
            machine.sim.on(cpu(0), || mm.advise(id, page, Advice::DontNeed).unwrap());
        });
        assert_eq!(kept(mm, || mm.switch(Some(id)).unwrap()), 1);
        assert!(sim.user_load(Va::new(BASE), 8).is_err(), "the page is gone");
    });
}
