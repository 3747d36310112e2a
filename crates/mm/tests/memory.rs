//! The memory that a manager is lent: holes, reserved parts, additions, too little, very much.

use crate::common::*;
use foliant::manager::{Setup, SetupError};
use foliant::table::X86_64;
use foliant::{Event, Manager, Outcome, Policy};
use foliant_sim::{Checks, Clearing, Config, Sim};
use foliant_units::{Bytes, Frame, FrameRange, Order, Pages};

fn frames(start: u64, pages: u64) -> FrameRange {
    FrameRange::new(Frame::new(start), Pages::new(pages)).unwrap()
}

fn machine(memory: Vec<FrameRange>) -> Sim {
    Sim::new(Config { memory, ..Config::seeded(1, Bytes::new(MB), 1) }).unwrap()
}

#[test]
fn holes_and_reserved_parts_are_never_handed_out() {
    let lent = vec![frames(0x103, 0x700), frames(0x2001, 0x1fff), frames(0x9000, 3)];
    let sim = machine(lent.clone());
    let reserved = [frames(0x200, 0x33), frames(0x3f00, 0x100)];
    let setup = Setup { reserved: &reserved, ..Setup::of(&lent, Policy::default()) };
    let mm: AuditedMm<'_> = audited(&sim, &setup);
    let mut taken = Vec::new();
    while let Ok(frame) = mm.lend(Order::BASE) {
        assert!(lent.iter().any(|range| range.contains(frame)), "{frame:?} lies in a hole");
        assert!(!reserved.iter().any(|range| range.contains(frame)), "{frame:?} is reserved");
        taken.push(frame);
    }
    assert!(taken.len() > 0x2500, "most of it is usable: {}", taken.len());
    for frame in taken {
        mm.take_back(frame, Order::BASE).unwrap();
    }
    mm.audit(&[]).unwrap();
}

#[test]
fn memory_that_is_added_is_used() {
    let lent = [frames(0x1000, 0x400)];
    let sim = machine(vec![lent[0], frames(0x8000, 0x2000)]);
    let added_below = Frame::new(0xa000);
    let setup = Setup { added_below, ..Setup::of(&lent, Policy::BASE_ONLY) };
    let mm: AuditedMm<'_> = audited(&sim, &setup);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 16 * MB);
    let mut page = 0;
    while store(&sim, &mm, id, BASE + page * 4096, page) == [Outcome::Mapped(Order::BASE)] {
        page += 1;
    }
    assert!((0x100..0x400).contains(&page), "memory is full: {page}");
    mm.add_memory(frames(0x8000, 0x2000)).unwrap();
    for next in page..page + 0x800 {
        assert_eq!(store(&sim, &mm, id, BASE + next * 4096, next), [Outcome::Mapped(Order::BASE)]);
    }
    for page in 0..page + 0x800 {
        assert_eq!(load(&sim, &mm, id, BASE + page * 4096), page);
    }
    assert!(matches!(mm.add_memory(frames(0x8100, 0x100)), Err(SetupError::Memory(_))));
    assert_eq!(
        mm.add_memory(frames(0x9_0000, 0x1000)),
        Err(SetupError::Beyond(Frame::new(0x9_1000)))
    );
}

/// Nothing is known of memory that is added: what was in it is cleared before a program sees it.
#[test]
fn what_added_memory_held_is_not_seen() {
    let (lent, more) = ([frames(0x1000, 0x400)], frames(0x8000, 0x2000));
    let config = Config::seeded(1, Bytes::new(MB), 1);
    let memory = vec![lent[0], more];
    let sim = Sim::new(Config { memory, clearing: Clearing::Real, ..config }).unwrap();
    sim.leave_junk(more, Pages::new(1));
    let added_below = Frame::new(0xa000);
    let setup = Setup { added_below, ..Setup::of(&lent, Policy::BASE_ONLY) };
    let mm: AuditedMm<'_> = audited(&sim, &setup);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 16 * MB);
    mm.add_memory(more).unwrap();
    for page in 0..0x800 {
        let va = BASE + page * 4096;
        assert_eq!(store(&sim, &mm, id, va + 8, 1), [Outcome::Mapped(Order::BASE)]);
        for word in [0, 4088] {
            assert_eq!(load(&sim, &mm, id, va + word), 0, "page {page}");
        }
    }
}

#[test]
fn too_little_memory_is_an_answer() {
    for pages in 1..40 {
        let lent = [frames(0x1000, pages)];
        let sim = machine(lent.to_vec());
        let setup = Setup::of(&lent, Policy::BASE_ONLY);
        match Manager::<'_, Sim, X86_64<4>>::new(&sim, &setup) {
            Ok(mm) => drop(mm.create(None)), // or an error: no panic in any case
            Err(error) => assert!(matches!(error, SetupError::TooSmall(_)), "{pages}: {error}"),
        }
    }
}

#[test]
fn a_tebibyte_on_a_small_host() {
    let sim =
        Sim::new(Config { checks: Checks::None, ..Config::seeded(4, Bytes::new(1 << 40), 1) })
            .unwrap();
    let mm = manager(&sim, Policy::always(foliant::fault::Orders::ANON));
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 64 * MB);
    for n in 0..32 {
        assert_eq!(store(&sim, &mm, id, BASE + n * 2 * MB, n), [Outcome::Mapped(Order::SIZE_2M)]);
    }
    assert!(mm.memory().free.get() > (1 << 28) - (1 << 20));
    mm.switch(None).unwrap();
    mm.end(id).unwrap();
}

/// Everything that a first fault takes besides its page and its tables is there already.
#[test]
fn descriptors_can_be_there_before_the_first_fault() {
    let sim = sim(1, 300);
    let mm = manager(&sim, Policy::BASE_ONLY);
    mm.describe_all().unwrap();
    let described = mm.memory().free.get();
    mm.describe_all().unwrap();
    assert_eq!(mm.memory().free.get(), described, "the second time there is nothing to do");
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, MB);
    let (free, tables) = (mm.memory().free.get(), mm.total(Event::TableMade));
    store(&sim, &mm, id, BASE, 1);
    let taken = free - mm.memory().free.get();
    assert_eq!(taken, 1 + mm.total(Event::TableMade) - tables);
}

/// The table that is kept for a leaf once counted as given back without having counted as made.
#[test]
fn every_table_that_was_made_is_given_back_once() {
    let sim = sim(1, 300);
    let mm = manager(&sim, Policy::always(foliant::fault::Orders::of(Order::SIZE_2M)));
    mm.describe_all().unwrap();
    let there = |mm: &Mm<'_>| mm.total(Event::TableMade) - mm.total(Event::TableFreed);
    let before = there(&mm);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 8 * MB);
    for n in 0..4 {
        store(&sim, &mm, id, BASE + n * 2 * MB, n);
    }
    // Three levels down to the leaves; a table that is kept is none of them.
    assert_eq!(there(&mm), before + 2);
    mm.unmap(id, range(BASE, MB)).unwrap();
    assert_eq!(there(&mm), before + 3, "one leaf was taken apart");
    mm.unmap(id, range(BASE + 2 * MB, 2 * MB)).unwrap();
    assert_eq!(there(&mm), before + 3, "one leaf was taken out whole");
    finish(&sim, &mm, &[id]);
    assert_eq!(there(&mm), before);
}
