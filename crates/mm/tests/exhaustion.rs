//! An allocation that is refused at any point leaves no trace, and the next attempt succeeds.

use crate::common::beside::Beside;
use crate::common::*;
use foliant::manager::Setup;
use foliant::space::{
    Area, Flags, MapError, MapRequest, Move, Place, RangeError, RemapError, SpaceId,
};
use foliant::{Access, Outcome, Policy};
use foliant_sim::{Config, Failing, Sim};
use foliant_units::{Bytes, Frame, FrameRange, Order, Pages, Va, VaRange};
use std::sync::Mutex;

/// The middle page of the first area.
const MIDDLE: u64 = BASE + PAGE;

/// Areas of three pages that do not join: about as many as a node holds, so that cutting one needs
/// nodes.
fn striped(mm: &Mm<'_>, id: SpaceId, areas: u64) {
    for nth in 0..areas {
        let place = Place::NoReplace(Va::new(BASE + 3 * nth * PAGE));
        let bytes = Bytes::new(3 * PAGE);
        let request = MapRequest { place, bytes, flags: Flags::READ_WRITE, tag: nth % 2 };
        mm.map(id, &request).unwrap();
    }
}

/// Runs `go` with the k-th allocation refused, for every k until none is.
fn every_kth(areas: u64, go: impl Fn(&Sim, &Mm<'_>, SpaceId) -> bool) {
    for k in 1.. {
        let sim = sim(1, 32);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        striped(&mm, id, areas);
        store(&sim, &mm, id, MIDDLE, 7);
        sim.fault_plan().set(Failing::Kth(k));
        let done = go(&sim, &mm, id);
        let refused = sim.fault_plan().refused();
        sim.fault_plan().set(Failing::Nothing);
        assert!(done || refused > 0, "k = {k}");
        finish(&sim, &mm, &[id]);
        if refused == 0 {
            return;
        }
    }
}

/// More tables than a flush has room for without memory: it is done in parts.
#[test]
fn tables_are_taken_out_without_memory() {
    const TABLES: u64 = 70;
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, TABLES * SIZE_2M);
    for nth in 0..TABLES {
        store(&sim, &mm, id, BASE + nth * SIZE_2M, nth);
    }
    let free = mm.memory().free;
    sim.fault_plan().set(Failing::From(1));
    mm.unmap(id, range(BASE, TABLES * SIZE_2M)).unwrap();
    sim.fault_plan().set(Failing::Nothing);
    assert!(mm.memory().free.get() >= free.get() + 2 * TABLES, "pages and tables are free");
}

#[test]
fn a_move_without_memory_leaves_everything_where_it_was() {
    for areas in 21..=27 {
        every_kth(areas, |sim, mm, id| {
            let to = Va::new(BASE + (1 << 30));
            let got = mm.remap(id, range(MIDDLE, PAGE), Bytes::new(PAGE), Move::To(to));
            match got {
                Ok(range) => assert_eq!(load(sim, mm, id, range.start().get()), 7),
                Err(RemapError::Map(MapError::Range(RangeError::NoMemory))) => {
                    assert_eq!(load(sim, mm, id, MIDDLE), 7);
                }
                Err(error) => panic!("{error}"),
            }
            got.is_ok()
        });
    }
}

/// All areas of a space, lowest first.
fn areas(mm: &Mm<'_>, id: SpaceId) -> Vec<Area> {
    let mut from = Va::new(0);
    std::iter::from_fn(|| {
        let area = mm.area_at_or_after(id, from)?;
        from = area.range.end();
        Some(area)
    })
    .collect()
}

/// A move takes two areas as one out of the middle of others, and lacks one of its tables: all of
/// them are again what they were, and so are their tables and pages.
#[test]
fn a_move_that_lacks_a_table_puts_its_areas_back() {
    let touched = [1, 3, 4, 7, 9].map(|nth| BASE + nth * SIZE_2M);
    for (shift, tables) in [(0, 5), (PAGE, 9)] {
        let mut refused = 0;
        for k in 1.. {
            let sim = sim(1, 32);
            let mm = manager(&sim, Policy::BASE_ONLY);
            let id = mm.create(None).unwrap();
            mm.switch(Some(id)).unwrap();
            area(&mm, id, BASE, 6 * SIZE_2M);
            let second = area(&mm, id, 2 * BASE, 6 * SIZE_2M);
            store(&sim, &mm, id, 2 * BASE, 1);
            let beside = Move::To(Va::new(BASE + 6 * SIZE_2M));
            mm.remap(id, second, second.bytes(), beside).unwrap();
            touched.iter().for_each(|at| _ = store(&sim, &mm, id, *at, *at));
            let state = || (areas(&mm, id), mm.tables(id), mm.pages(id));
            let before = state();
            assert_eq!(before.0.len(), 2);
            let old = range(BASE + SIZE_2M, 9 * SIZE_2M);
            let to = BASE + GB + shift;
            sim.fault_plan().set(Failing::Kth(k));
            let got = mm.remap(id, old, old.bytes(), Move::To(Va::new(to)));
            let is_refused = sim.fault_plan().refused() > 0;
            sim.fault_plan().set(Failing::Nothing);
            let by = match got {
                Ok(_) => to - old.start().get(),
                Err(error) => {
                    assert_eq!(error, RangeError::NoMemory.into(), "k = {k}");
                    assert_eq!(state(), before, "k = {k}");
                    refused += 1;
                    0
                }
            };
            touched.iter().for_each(|at| assert_eq!(load(&sim, &mm, id, at + by), *at));
            if !is_refused {
                break;
            }
        }
        assert!(refused > tables, "{refused} of the tables, and the one above them");
    }
}

/// The area that a move has taken out comes back where the move gets no table: a fault that looks
/// for it in between waits for that.
#[test]
fn a_fault_beside_a_move_without_memory_finds_its_area() {
    /// Moves an area with the allocations from the `k`-th on refused, and has one of its pages read
    /// before the `step`-th step. `None` where there are not so many steps.
    fn moved(k: u64, step: u64) -> Option<Result<VaRange, RemapError>> {
        let machine = Beside::new(sim(2, 16));
        let mm = machine.manager(Policy::BASE_ONLY);
        mm.cpus().for_each(|cpu| machine.sim.on(cpu, || mm.online()));
        let id = mm.create(None).unwrap();
        mm.cpus().for_each(|cpu| machine.sim.on(cpu, || mm.switch(Some(id)).unwrap()));
        area(&mm, id, BASE, 4 * PAGE);
        store(&machine.sim, &mm, id, BASE, 7);
        let seen = Mutex::new(None);
        let read = || {
            let outcome = mm.fault(id, page(1).start(), Access::Read);
            *seen.lock().unwrap() = Some(outcome);
        };
        let to = Move::To(Va::new(BASE + GB));
        let remap = || mm.remap(id, row(0, 4), Bytes::new(4 * PAGE), to);
        machine.sim.fault_plan().set(Failing::From(k));
        let got = machine.before_step(step, read, remap);
        machine.sim.fault_plan().set(Failing::Nothing);
        if let Some(Err(_)) = got {
            let seen = seen.lock().unwrap().unwrap();
            assert_eq!(seen, Outcome::ZeroPage(Order::BASE), "step {step}");
        }
        got
    }
    let enough = (1..).find(|k| moved(*k, 1).unwrap().is_ok()).unwrap();
    let steps = (1..).take_while(|step| moved(enough - 1, *step).is_some()).count();
    assert!(steps > 50, "the last of its tables is refused after {steps} steps");
}

#[test]
fn a_map_over_another_area_without_memory_leaves_it() {
    for areas in 21..=27 {
        every_kth(areas, |sim, mm, id| {
            let place = Place::Fixed(Va::new(MIDDLE));
            let bytes = Bytes::new(PAGE);
            let request = MapRequest { place, bytes, flags: Flags::READ_WRITE, tag: 9 };
            let got = mm.map(id, &request);
            assert_eq!(load(sim, mm, id, MIDDLE), if got.is_ok() { 0 } else { 7 });
            got.is_ok()
        });
    }
}

#[test]
fn an_area_at_the_end_of_the_half_moves_and_grows() {
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    let request = MapRequest {
        place: Place::Anywhere,
        bytes: Bytes::new(PAGE),
        flags: Flags::READ_WRITE,
        tag: 0,
    };
    let highest = mm.map(id, &request).unwrap();
    store(&sim, &mm, id, highest.start().get(), 5);
    let moved = mm.remap(id, highest, Bytes::new(3 * PAGE), Move::MayMove).unwrap();
    assert_eq!(load(&sim, &mm, id, moved.start().get()), 5);
    let to = Move::To(Va::new(BASE));
    let again =
        mm.remap(id, range(moved.start().get(), 3 * PAGE), Bytes::new(4 * PAGE), to).unwrap();
    assert_eq!(again, range(BASE, 4 * PAGE));
    assert_eq!(load(&sim, &mm, id, BASE), 5);
}

#[test]
fn descriptors_that_were_mapped_half_way_are_mapped_to_the_end() {
    // The second range has a section of descriptors of its own. Its leaf is refused at times, and
    // so is a base page later on; the next attempt finds the first pages mapped.
    for seed in 0..4 {
        let mut config = Config::seeded(1, Bytes::new(16 * MB), 1);
        config.memory.extend(FrameRange::new(Frame::new(1 << 15), Pages::new(2048)));
        let sim = Sim::new(config).unwrap();
        let memory = &sim.config().memory;
        let policy = Policy::BASE_ONLY;
        let setup = Setup::of(memory, policy);
        let mm: AuditedMm<'_> = audited(&sim, &setup);
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        area(&mm, id, BASE, 32 * MB);
        sim.fault_plan().set(Failing::OneIn { every: 3, seed });
        for page in 0..4900 {
            let _ = store(&sim, &mm, id, BASE + page * PAGE, page);
        }
        sim.fault_plan().set(Failing::Nothing);
        store(&sim, &mm, id, BASE, 1);
        assert_eq!(load(&sim, &mm, id, BASE), 1);
    }
}
