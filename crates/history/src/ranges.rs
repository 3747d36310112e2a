//! Histories of kernel ranges: every CPU at a seat with kernel memory of its own, which it fills,
//! reads, protects and gives back, at once or later. Seats change CPUs, so what one CPU has cached
//! meets what another one did.

use crate::rng::Rng;
use crate::saboteur::Saboteur;
use crate::world::{World, lock};
use foliant::Manager;
use foliant::space::SpaceId;
use foliant::table::Paging;
use foliant::vmap::{Caller, Controls, PurgeMode, Request, Rights, VmapError};
use foliant_units::{Bytes, FRAME_BYTES, Va, VaRange};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Phases; seats change CPUs in between.
const PHASES: usize = 5;
/// Areas of a seat.
const AREAS_MAX: usize = 6;
/// Pages of all areas together that seats try to stay below.
const PAGES_MAX: u64 = 6000;

/// Kernel memory of a seat.
struct Area {
    range: VaRange,
    /// What was stored where.
    words: BTreeMap<u64, u64>,
    /// Pages that are not writable, first and behind the last.
    constant: Option<(u64, u64)>,
}

struct Seat {
    rng: Rng,
    nth: u64,
    areas: Vec<Area>,
    serial: u64,
}

/// Runs one history; there are no spaces in it.
pub(crate) fn run<P: Paging>(world: &World<'_, P>) -> Vec<SpaceId> {
    let count = world.shape.cpus;
    let seat = |nth| Seat { rng: world.rng(16 + nth), nth, areas: Vec::new(), serial: 0 };
    let seats: Vec<Mutex<Seat>> = (0..count as u64).map(|nth| Mutex::new(seat(nth))).collect();
    let lock = |nth: usize| lock(&seats[nth]);
    let steps = (world.shape.steps / count / PHASES).max(8);
    for phase in 0..PHASES {
        world.phase(phase, steps, &seats, |seat| seat.step(world));
        if world.stopped() {
            return Vec::new();
        }
        world.mm.vmap().collect();
        world.audit_between(&[]);
    }
    for nth in 0..count {
        let mut seat = lock(nth);
        while let Some(area) = seat.areas.pop() {
            seat.give_back(world, &area);
        }
    }
    world.mm.purge_vmalloc();
    let left = world.mm.vmalloc_counters();
    if left.areas != 0 || left.pages.get() != 0 {
        world.wrong("leak", format!("kernel ranges are left: {left:?}"));
    }
    Vec::new()
}

impl Seat {
    fn step<'m, P: Paging>(&mut self, world: &World<'m, P>) {
        match self.rng.below(16) {
            0..3 => self.take(world),
            3..5 if !self.areas.is_empty() => {
                let nth = self.rng.below(self.areas.len() as u64) as usize;
                let area = self.areas.swap_remove(nth);
                self.give_back(world, &area);
            }
            5 => self.protect(world),
            6 if self.rng.once_in(4) => {
                world.count("purge");
                world.mm.purge_vmalloc();
            }
            7 if self.rng.once_in(8) => {
                let purge = *self.rng.pick(&[PurgeMode::Lazy, PurgeMode::Lazy, PurgeMode::Eager]);
                world.mm.vmap().set_controls(Controls { purge, ..Controls::DEFAULT });
            }
            8 if self.rng.once_in(4) => self.look(world),
            _ => (0..6).for_each(|_| self.touch(world)),
        }
    }

    fn take<'m, P: Paging>(&mut self, world: &World<'m, P>) {
        if self.areas.len() >= AREAS_MAX || world.mm.vmalloc_counters().pages.get() > PAGES_MAX {
            return;
        }
        world.count("vmalloc");
        let most = *self.rng.pick(&[3, 40, 40, 540, 1100]);
        let bytes = 1 + self.rng.below(most * FRAME_BYTES);
        let mut request = Request::of(Bytes::new(bytes)).called(Caller(self.nth));
        if !self.rng.once_in(4) {
            request = request.huge();
        }
        if self.rng.once_in(3) {
            request = request.zeroed();
        }
        match world.mm.vmalloc(&request) {
            Ok(range) => {
                let mut words = BTreeMap::new();
                if request.is_zeroed() {
                    words.insert(range.start().get(), 0);
                    words.insert(range.end().get() - FRAME_BYTES, 0);
                }
                self.areas.push(Area { range, words, constant: None });
            }
            Err(VmapError::Short(_)) if world.is_scarce() => world.count_refused(),
            Err(error) => world.wrong("answers", format!("vmalloc of {bytes}: {error}")),
        }
    }

    fn give_back<'m, P: Paging>(&mut self, world: &World<'m, P>, area: &Area) {
        let mm: &Manager<'m, Saboteur<'m>, P> = &world.mm;
        let start = area.range.start();
        let later = self.rng.once_in(4);
        world.count(if later { "vfree_atomic" } else { "vfree" });
        let done = if later { mm.vfree_atomic(start) } else { mm.vfree(start) };
        if let Err(error) = done {
            world.wrong("answers", format!("vfree of {start}: {error}"));
        }
        // With other CPUs the address may be another seat's area by now, and to give that back
        // would be this seat's fault.
        if !later && world.shape.cpus == 1 && mm.vfree(start).is_ok() {
            world.wrong("answers", format!("{start} was given back twice"));
        }
        if !later && !area.words.is_empty() && mm.machine().reads_after_free() {
            let _ = mm.machine().kernel_read(start);
        }
    }

    fn protect<'m, P: Paging>(&mut self, world: &World<'m, P>) {
        if self.areas.is_empty() {
            return;
        }
        world.count("protect");
        let nth = self.rng.below(self.areas.len() as u64) as usize;
        let area = &mut self.areas[nth];
        let pages = area.range.pages().get();
        let first = self.rng.below(pages);
        let end = first + 1 + self.rng.below(pages - first);
        let at = |page: u64| area.range.start().add(page * FRAME_BYTES);
        let before = area.constant;
        let part = |from, to| VaRange::new(at(from), at(to)).unwrap_or_default();
        let change = match before {
            Some((first, end)) => (part(first, end), Rights::Data, None),
            None => (part(first, end), Rights::Constant, Some((first, end))),
        };
        match world.mm.protect_kernel(change.0, change.1) {
            Ok(()) => area.constant = change.2,
            Err(VmapError::CannotSplit(..)) => world.count_refused(),
            Err(VmapError::Short(_)) if world.is_scarce() => world.count_refused(),
            Err(error) => world.wrong("answers", format!("protect {:?}: {error}", change.0)),
        }
    }

    /// A store or a load, somewhere in some area.
    fn touch<'m, P: Paging>(&mut self, world: &World<'m, P>) {
        if self.areas.is_empty() || world.stopped() {
            return;
        }
        world.count("touch");
        let nth = self.rng.below(self.areas.len() as u64) as usize;
        let area = &mut self.areas[nth];
        let machine = world.mm.machine();
        let page = match self.rng.below(4) {
            0 => 0,
            1 => area.range.pages().get() - 1,
            _ => self.rng.below(area.range.pages().get()),
        };
        let va = area.range.start().add(page * FRAME_BYTES);
        let constant = area.constant.is_some_and(|(first, end)| (first..end).contains(&page));
        if self.rng.once_in(2) {
            self.serial += 1;
            let value = self.nth << 40 | self.serial;
            if machine.kernel_write(va, value) == constant {
                let text = format!("a store to {va}, constant: {constant}");
                return world.wrong("contents", text);
            }
            if !constant {
                area.words.insert(va.get(), value);
            }
            return;
        }
        let found = machine.kernel_read(va);
        let known = area.words.get(&va.get()).copied();
        if found.is_none() || known.is_some() && found != known {
            let text = format!("a load of {va} gives {found:x?}, stored was {known:x?}");
            world.wrong("contents", text);
        }
    }

    /// Looks at areas of other seats, and tries to free an address where no area begins.
    fn look<'m, P: Paging>(&mut self, world: &World<'m, P>) {
        world.count("look");
        let range = world.mm.vmap().range();
        let va = range.start().add(self.rng.below(64 << 20));
        let _ = world.mm.vmap().frame_at(va);
        let last = world.mm.vmalloc_info().take(20).fold(Va::new(0), |before, area| {
            if area.range.start() < before {
                world.wrong("answers", format!("the listing is out of order at {:?}", area.range));
            }
            area.range.end()
        });
        if world.mm.vfree(last.add(1)).is_ok() {
            world.wrong("answers", format!("{last} is nobody's and was given back"));
        }
    }
}
