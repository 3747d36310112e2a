//! Histories of pools: every CPU at a seat with a space of its own, whose areas of huge pages all
//! share one pool that grows and shrinks meanwhile.
//!
//! Each seat knows what its pages hold, so `contents` is exact. It also knows what the pool may
//! refuse: a page that was reserved and never taken is there whatever the others do, and the
//! reservations of all seats together are those that the pool states. That is the checker
//! `reservations`.

use crate::model::value;
use crate::rng::Rng;
use crate::saboteur::Saboteur;
use crate::world::{Got, World, lock, range};
use foliant::Outcome;
use foliant::manager::Manager;
use foliant::pool::{Budget, Folding};
use foliant::space::{Advice, Flags, MapError, MapRequest, Place, SpaceId};
use foliant::table::Paging;
use foliant_units::{Bytes, Frame, Order, Va};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

const HUGE: u64 = Order::SIZE_2M.bytes().get();
/// Where the areas are: a slot for each.
const FIRST: u64 = 0x10_0000_0000;
const SLOT: u64 = 8 * HUGE;
const SLOTS: u64 = 3;
/// Pages that a seat asks the pool to have, at most.
const POOL_MAX: u64 = 10;
/// Phases; seats change CPUs in between.
const PHASES: usize = 4;

/// An area and what the seat knows of it.
#[derive(Default)]
struct Area {
    pages: u64,
    reserved: bool,
    /// Words stored, by address.
    words: BTreeMap<u64, u64>,
    /// Pages that were touched once: their reservation was used.
    touched: BTreeSet<u64>,
}

impl Area {
    /// Reservations that are still open.
    fn open(&self) -> u64 {
        if self.reserved { self.pages - self.touched.len() as u64 } else { 0 }
    }
}

struct Seat {
    rng: Rng,
    nth: u64,
    id: SpaceId,
    areas: BTreeMap<u64, Area>,
    serial: u64,
}

/// Runs one history, and returns the spaces that are left.
pub(crate) fn run<P: Paging>(world: &World<'_, P>) -> Vec<SpaceId> {
    let count = world.shape.cpus;
    let mut seats = Vec::new();
    for nth in 0..count as u64 {
        let Some(id) = (0..200).find_map(|_| world.mm.create(None).ok()) else {
            world.wrong("answers", "no space is ever made".into());
            break;
        };
        let rng = world.rng(16 + nth);
        seats.push(Mutex::new(Seat { rng, nth, id, areas: BTreeMap::new(), serial: 0 }));
    }
    let lock = |nth: usize| lock(&seats[nth]);
    let ids: Vec<SpaceId> = (0..seats.len()).map(|nth| lock(nth).id).collect();
    let steps = (world.shape.steps / count / PHASES / 6).max(6);
    for phase in 0..PHASES {
        if seats.len() < count || world.stopped() {
            return ids;
        }
        world.phase(phase, steps, &seats, |seat| seat.step(world));
        let open: u64 =
            (0..count).map(|nth| lock(nth).areas.values().map(Area::open).sum::<u64>()).sum();
        let stated = world.mm.pool(Order::SIZE_2M).map_or(0, |pool| pool.resv_hugepages);
        if open != stated && !world.stopped() {
            world.wrong(
                "reservations",
                format!("{open} reservations are open, the pool says {stated}"),
            );
        }
        world.audit_between(&ids);
    }
    for nth in 0..count {
        let mut seat = lock(nth);
        // A refused allocation is not refused for ever.
        while let Some(slot) = seat.areas.keys().next().copied()
            && !world.stopped()
        {
            seat.unmap(world, slot);
        }
    }
    empty(&world.mm);
    let left = world.mm.pool(Order::SIZE_2M).unwrap_or_default();
    if (left.nr_hugepages, left.resv_hugepages) != (0, 0) && !world.stopped() {
        world.wrong("reservations", format!("all is given up, and yet: {left:?}"));
    }
    ids
}

fn empty<P: Paging>(mm: &Manager<'_, Saboteur<'_>, P>) {
    let pools = mm.pools();
    let _ = pools.set_overcommit(Order::SIZE_2M, 0);
    let _ = pools.resize(Order::SIZE_2M, 0, Budget::ALL);
}

fn start(slot: u64) -> u64 {
    FIRST + slot * SLOT
}

impl Seat {
    fn step<P: Paging>(&mut self, world: &World<'_, P>) {
        if world.run(self.id).is_err() {
            return world.wrong("answers", format!("{:?} is gone", self.id));
        }
        let slot = self.rng.below(SLOTS);
        match self.rng.below(16) {
            0..3 if !self.areas.contains_key(&slot) => self.map(world, slot),
            0..2 => self.unmap(world, slot),
            2 => self.forget(world, slot),
            3 => self.resize(world),
            4 => self.tune(world),
            5 => self.fork(world, slot),
            6 => {
                world.count("dissolve");
                let _ = world.mm.pools().dissolve(Frame::new(self.rng.below(40_000)));
            }
            _ => self.touch(world, self.id, slot),
        }
    }

    fn map<P: Paging>(&mut self, world: &World<'_, P>, slot: u64) {
        world.count("map");
        let pages = 1 + self.rng.below(3);
        let reserved = !self.rng.once_in(4);
        let loose = if reserved { Flags::NONE } else { Flags::NORESERVE };
        let flags = Flags::READ_WRITE.with(Flags::HUGE_2M).with(loose);
        let place = Place::NoReplace(Va::new(start(slot)));
        let bytes = Bytes::new(pages * HUGE);
        match world.mm.map(self.id, &MapRequest { place, bytes, flags, tag: self.nth }) {
            Ok(_) => {
                self.areas.insert(slot, Area { pages, reserved, ..Area::default() });
            }
            Err(MapError::NoHugePages(_)) if reserved => world.count_refused(),
            Err(MapError::Range(error)) if crate::world::no_memory(error) && world.is_scarce() => {
                world.count_refused();
            }
            Err(error) => world.wrong("answers", format!("map of {pages} huge pages: {error}")),
        }
    }

    fn unmap<P: Paging>(&mut self, world: &World<'_, P>, slot: u64) {
        let Some(area) = self.areas.get(&slot) else { return };
        world.count("unmap");
        match world.mm.unmap(self.id, range(start(slot), area.pages * HUGE)) {
            Ok(()) => drop(self.areas.remove(&slot)),
            Err(error) if crate::world::no_memory(error) && world.is_scarce() => {
                world.count_refused();
            }
            Err(error) => world.wrong("answers", format!("unmap: {error}")),
        }
    }

    /// Drops the pages and keeps the area, if it has no reservations: whether a place that has is
    /// reserved again depends on what the others leave in the pool.
    fn forget<P: Paging>(&mut self, world: &World<'_, P>, slot: u64) {
        let Some(area) = self.areas.get_mut(&slot).filter(|area| !area.reserved) else { return };
        world.count("drop");
        let whole = range(start(slot), area.pages * HUGE);
        match world.mm.advise(self.id, whole, Advice::DontNeed) {
            Ok(()) => area.words.clear(),
            Err(error) => world.wrong("answers", format!("drop: {error}")),
        }
    }

    fn resize<P: Paging>(&mut self, world: &World<'_, P>) {
        world.count("resize");
        let budget = if self.rng.once_in(3) { Budget(self.rng.below(4)) } else { Budget::ALL };
        let want = self.rng.below(POOL_MAX);
        if let Err(error) = world.mm.resize_pool(Order::SIZE_2M, want, budget) {
            world.wrong("answers", format!("resize: {error}"));
        }
    }

    fn tune<P: Paging>(&mut self, world: &World<'_, P>) {
        world.count("tune");
        let pools = world.mm.pools();
        let _ = pools.set_overcommit(Order::SIZE_2M, self.rng.below(4));
        pools.set_folding(if self.rng.once_in(3) { Folding::Off } else { Folding::On });
    }

    /// A child sees what its parent has, and neither sees what the other one writes.
    fn fork<P: Paging>(&mut self, world: &World<'_, P>, slot: u64) {
        world.count("fork");
        let child = match world.mm.fork(self.id) {
            Ok(child) => child,
            Err(_) if world.is_scarce() => return world.count_refused(),
            Err(error) => return world.wrong("answers", format!("fork: {error}")),
        };
        self.touch(world, self.id, slot); // the parent's page is shared now
        let words: Vec<u64> =
            self.areas.get(&slot).into_iter().flat_map(|a| a.words.keys().copied()).collect();
        if let Some(va) = words.first().copied()
            && world.run(child).is_ok()
        {
            match world.store(child, va, 1) {
                Got::Value(_) | Got::Not(Outcome::NoHugePage(_)) => {}
                Got::Not(outcome) if world.is_short(0, outcome) => {}
                got => world.wrong("answers", format!("a child's store to {va:#x}: {got:x?}")),
            }
        }
        if world.run(self.id).is_err() || world.mm.end(child).is_err() {
            world.wrong("answers", "a child does not end".into());
        }
        words.into_iter().for_each(|va| self.compare(world, slot, va));
    }

    fn compare<P: Paging>(&self, world: &World<'_, P>, slot: u64, va: u64) {
        let Some(known) = self.areas.get(&slot).and_then(|area| area.words.get(&va)) else {
            return;
        };
        match world.load(self.id, va) {
            Got::Value(found) if found == *known => {}
            Got::Value(found) => {
                let text = format!("load of {va:#x} gives {found:#x}, stored was {known:#x}");
                world.wrong("contents", text);
            }
            got => world.wrong("answers", format!("load of {va:#x}: {got:x?}")),
        }
    }

    /// A load and a store in a page.
    fn touch<P: Paging>(&mut self, world: &World<'_, P>, id: SpaceId, slot: u64) {
        let Some(area) = self.areas.get_mut(&slot) else { return };
        world.count("touch");
        let page = self.rng.below(area.pages);
        let at = *self.rng.pick(&[0, 8, 4096, HUGE / 2, HUGE - 8]);
        let va = start(slot) + page * HUGE + at;
        // A page that was reserved and not taken yet may not be refused; a later one is another
        // matter.
        let fresh = area.reserved && !area.touched.contains(&page);
        let refused = |outcome| matches!(outcome, Outcome::NoHugePage(_)) && !fresh;
        let known = area.words.get(&va).copied().unwrap_or(0);
        let judge = |what: &str, got: Got| match got {
            Got::Not(outcome) if refused(outcome) => world.count_refused(),
            Got::Not(Outcome::NoHugePage(_)) => {
                world.wrong(
                    "reservations",
                    format!("{what} {va:#x} got no page, and one was reserved"),
                );
            }
            Got::Not(outcome) if world.is_short(0, outcome) => {}
            got => world.wrong("answers", format!("{what} {va:#x}: {got:x?}")),
        };
        match world.load(id, va) {
            Got::Value(found) if found == known => {}
            Got::Value(found) => {
                let text = format!("load of {va:#x} gives {found:#x}, stored was {known:#x}");
                return world.wrong("contents", text);
            }
            got => return judge("load of", got),
        }
        area.touched.insert(page);
        self.serial += 1;
        let value = value(self.nth, va, self.serial);
        match world.store(id, va, value) {
            Got::Value(_) => {
                area.words.insert(va, value);
            }
            Got::Not(Outcome::NoHugePage(_)) => world.count_refused(), // it is shared
            got => judge("store to", got),
        }
    }
}
