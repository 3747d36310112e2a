//! The operations of a seat, each with what the model says must become of it.
//!
//! An operation that is refused for lack of memory changed nothing; where its documentation admits
//! a partial change, the range is unmapped, so that the model is exact again.

use crate::kinds::Sizes;
use crate::model::{Stretch, WORDS};
use crate::seat::{Known, Lineages, Seat};
use crate::splits;
use crate::world::{World, no_memory, range};
use foliant::Policy;
use foliant::fault::{Global, Orders, ProcessSwitch, UseZeroPage};
use foliant::manager::{CollapseLimits, SpaceError};
use foliant::space::{Advice, Flags, MapError, MapRequest, Place, RangeError, Refs};
use foliant::table::Paging;
use foliant_units::{Bytes, FRAME_BYTES, Order, Va, VaRange};

/// Stores to a range that is collapsed afterwards.
pub(crate) const STORES: usize = 6;

/// The operations of a seat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Store,
    Load,
    Fetch,
    Peek,
    Map,
    Anywhere,
    Unmap,
    Protect,
    Advise,
    Populate,
    Guard,
    Remap,
    Fork,
    End,
    Other,
    Away,
    Policy,
    Stack,
    Userfault,
    Forget,
    Bad,
    AddMemory,
    Split,
}

/// How often each is drawn.
pub(crate) const MIX: [(u32, Op); 23] = [
    (40, Op::Store),
    (30, Op::Load),
    (8, Op::Fetch),
    (6, Op::Peek),
    (14, Op::Map),
    (2, Op::Anywhere),
    (8, Op::Unmap),
    (8, Op::Protect),
    (10, Op::Advise),
    (5, Op::Populate),
    (3, Op::Guard),
    (7, Op::Remap),
    (4, Op::Fork),
    (3, Op::End),
    (6, Op::Other),
    (10, Op::Away),
    (3, Op::Policy),
    (1, Op::Stack),
    (1, Op::Userfault),
    (2, Op::Forget),
    (2, Op::Bad),
    (1, Op::AddMemory),
    (12, Op::Split),
];

/// Page numbers as a range of addresses.
pub(crate) fn span(stretch: &Stretch) -> VaRange {
    range(stretch.start * FRAME_BYTES, (stretch.end - stretch.start) * FRAME_BYTES)
}
/// The address of a page.
pub(crate) fn va(page: u64) -> Va {
    Va::new(page * FRAME_BYTES)
}

/// Rights and wishes of a new area.
pub(crate) fn flags(rng: &mut crate::rng::Rng) -> Flags {
    let rw = Flags::READ_WRITE;
    rng.weighted(&[
        (8, rw),
        (6, rw.with(Flags::HUGEPAGE)),
        (2, rw.with(Flags::NOHUGEPAGE)),
        (2, rw.with(Flags::EXEC)),
        (1, Flags::READ.with(Flags::EXEC)),
        (1, Flags::READ),
        (1, Flags::NONE),
    ])
}

/// What an area may be protected to. What may be executed may be read: not every machine can tell
/// the one from the other.
pub(crate) fn rights(rng: &mut crate::rng::Rng) -> Flags {
    rng.weighted(&[
        (3, Flags::READ),
        (4, Flags::READ_WRITE),
        (2, Flags::READ.with(Flags::EXEC)),
        (1, Flags::READ_WRITE.with(Flags::EXEC)),
        (2, Flags::NONE),
    ])
}

/// A random set of switches that says such sizes.
pub(crate) fn policy(rng: &mut crate::rng::Rng, sizes: Sizes) -> Policy {
    let set = |rng: &mut crate::rng::Rng| {
        let top = Order::new(rng.below(10) as u8).unwrap_or(Order::BASE);
        let low = Order::new(rng.below(10) as u8).unwrap_or(Order::BASE);
        match rng.below(4) {
            0 => Orders::NONE,
            1 => Orders::of(top),
            2 => Orders::up_to(top).without(Orders::up_to(low)),
            _ => Orders::ANON,
        }
    };
    let switches = Policy {
        always: set(rng),
        madvise: set(rng),
        inherit: set(rng),
        auto: set(rng),
        global: *rng.pick(&[Global::Never, Global::Madvise, Global::Always]),
        use_zero_page: *rng.pick(&[UseZeroPage::No, UseZeroPage::Yes, UseZeroPage::Yes]),
    };
    // Where other switches leave no choice nothing is guessed.
    match sizes == Sizes::Auto || rng.once_in(3) {
        true => Policy { always: Orders::NONE, auto: Orders::ANON, ..switches },
        false => switches,
    }
}

impl Seat {
    /// A stretch of the window.
    pub(crate) fn stretch(&mut self) -> Stretch {
        let Stretch { start, end } = self.window.clone();
        let all = end - start;
        match self.rng.below(4) {
            0 => return self.last.clone(),
            1 => {
                let Stretch { start, end } = self.last.clone();
                let first = start + self.rng.below(end - start);
                return first..first + 1 + self.rng.below(end - first);
            }
            _ => {}
        }
        let (align, most) = self.rng.weighted(&[
            (6, (1, 8)),
            (5, (1, 64)),
            (4, (16, 256)),
            (3, (512, 1024)),
            (1, (1, 2048)),
        ]);
        let first = start + self.rng.below(all) / align * align;
        let pages = (1 + self.rng.below(most.min(all))).next_multiple_of(align);
        self.last = first..(first + pages).min(end).max(first + 1);
        self.last.clone()
    }

    /// Judges an answer: `expected`, or lack of memory where that is fair. True where it was
    /// carried out.
    pub(crate) fn judge<P: Paging>(
        &self,
        world: &World<'_, P>,
        what: &str,
        got: Result<(), RangeError>,
        expected: Result<(), RangeError>,
    ) -> bool {
        if got.is_err_and(|error| world.lacks(self.known().limit, error)) {
            world.count_refused();
            return false;
        }
        if got != expected {
            let text =
                format!("{what} in space {}: {got:?}, expected {expected:?}", self.known().lineage);
            world.wrong("answers", text);
        }
        got.is_ok()
    }

    /// Does one operation.
    pub(crate) fn step<P: Paging>(&mut self, world: &World<'_, P>, lineages: &Lineages) {
        let op = self.rng.weighted(&MIX);
        if world.run(self.known().id).is_err() {
            return world.wrong("answers", format!("space {} is gone", self.known().lineage));
        }
        match op {
            Op::Store => {
                let va = self.target();
                world.count("store");
                self.store(world, self.at, va);
            }
            Op::Load => {
                let va = self.target();
                world.count("load");
                self.load(world, self.at, va);
            }
            Op::Fetch => {
                let va = self.target();
                world.count("fetch");
                self.fetch(world, self.at, va);
            }
            Op::Peek => self.peek(world),
            Op::Map => self.map(world),
            Op::Anywhere => self.anywhere(world),
            Op::Unmap => {
                let stretch = self.stretch();
                self.unmap(world, &stretch);
            }
            Op::Protect => self.protect(world),
            Op::Advise => self.advise(world),
            Op::Populate => self.populate(world),
            Op::Guard => self.guard(world),
            Op::Remap => self.remap(world),
            Op::Fork => self.fork(world, lineages),
            Op::End => self.end(world),
            Op::Other => self.at = self.rng.below(self.spaces.len() as u64) as usize,
            Op::Away => world.go_away(&mut self.rng),
            Op::Policy => {
                world.count("policy");
                match self.rng.once_in(4) {
                    true => {
                        let switch = *self.rng.pick(&[ProcessSwitch::On, ProcessSwitch::Off]);
                        if world.mm.set_process_switch(self.known().id, switch).is_err() {
                            world.wrong("answers", "a switch is refused".into());
                        }
                    }
                    false => world.mm.set_policy(policy(&mut self.rng, world.shape.sizes)),
                }
            }
            Op::Stack => self.stack(world),
            Op::Userfault if self.rng.once_in(2) => self.watch(world),
            Op::Userfault => self.userfault(world),
            Op::Forget => self.forget(world),
            Op::Bad => self.bad(world),
            Op::AddMemory => world.add_memory(),
            Op::Split => match splits::whole(&mut self.rng, &self.window) {
                Some(whole) => self.collapse(world, &whole),
                None => {
                    // Half of the time it is a page of any seat, which uses it meanwhile.
                    let (id, own) = (self.known().id, self.rng.once_in(2));
                    let va = if own { self.target() } else { self.any_page() };
                    splits::split(world, &mut self.rng, id, va);
                }
            },
        }
    }

    fn map<P: Paging>(&mut self, world: &World<'_, P>) {
        world.count("map");
        let stretch = self.stretch();
        let (flags, tag) = (flags(&mut self.rng), self.rng.below(2));
        let start = va(stretch.start);
        let fixed = self.rng.once_in(2);
        let place = if fixed { Place::Fixed(start) } else { Place::NoReplace(start) };
        let bytes = span(&stretch).bytes();
        let got = world.mm.map(self.known().id, &MapRequest { place, bytes, flags, tag });
        let first = self.known().model.pages.range(stretch.clone()).next().map(|(page, _)| *page);
        match (got, first) {
            (Err(MapError::Occupied(at)), Some(page)) if !fixed && at == va(page) => {}
            (Err(MapError::Range(error)), _) if world.lacks(self.known().limit, error) => {
                world.count_refused();
            }
            (Ok(range), first) if range == span(&stretch) && (fixed || first.is_none()) => {
                self.model().unmap(&stretch);
                self.model().map(&stretch, flags, tag);
            }
            (got, first) => {
                world.wrong("answers", format!("map of {stretch:x?}: {got:?}, {first:x?}"))
            }
        }
    }

    /// Makes an area of a whole range, stores here and there, and has it collapsed.
    fn collapse<P: Paging>(&mut self, world: &World<'_, P>, whole: &Stretch) {
        world.count("map");
        let request = MapRequest {
            place: Place::Fixed(va(whole.start)),
            bytes: span(whole).bytes(),
            flags: Flags::READ_WRITE,
            tag: 0,
        };
        match world.mm.map(self.known().id, &request) {
            Ok(_) => {
                self.model().unmap(whole);
                self.model().map(whole, request.flags, request.tag);
            }
            Err(MapError::Range(error)) if world.lacks(self.known().limit, error) => {
                return world.count_refused();
            }
            Err(error) => return world.wrong("answers", format!("{request:?}: {error}")),
        }
        for _ in 0..STORES {
            let page = whole.start + self.rng.below(whole.end - whole.start);
            let at = page * FRAME_BYTES + *self.rng.pick(&WORDS);
            self.store(world, self.at, at);
        }
        splits::collapse(
            world,
            self.known().id,
            (va(whole.start).get(), Order::SIZE_2M),
            CollapseLimits::NONE,
        );
    }

    fn anywhere<P: Paging>(&mut self, world: &World<'_, P>) {
        world.count("map anywhere");
        let most = (self.window.end - self.window.start) / 2;
        let pages = 1 + self.rng.below(most.min(40));
        let flags = flags(&mut self.rng);
        let place = match self.rng.once_in(2) {
            true => Place::Anywhere,
            false => {
                let room = self.window.end - self.window.start - pages;
                Place::Hint(va(self.window.start + self.rng.below(room)))
            }
        };
        let bytes = Bytes::new(pages * FRAME_BYTES);
        let request = MapRequest { place, bytes, flags, tag: 3 };
        match world.mm.map(self.known().id, &request) {
            Ok(range) => {
                let start = range.start().get() / FRAME_BYTES;
                let stretch = start..start + pages;
                let inside = stretch.start >= self.window.start && stretch.end <= self.window.end;
                let foreign = stretch.start < self.all.end && stretch.end > self.all.start;
                let occupied = !self.known().model.is_empty(&stretch);
                if range.bytes() != bytes || occupied || (foreign && !inside) {
                    return world.wrong("answers", format!("{request:?} gives {range:?}"));
                }
                self.model().map(&stretch, flags, 3);
            }
            Err(MapError::Range(error)) if world.lacks(self.known().limit, error) => {
                world.count_refused()
            }
            Err(error) => world.wrong("answers", format!("{request:?}: {error}")),
        }
    }

    /// Unmaps, whatever it takes.
    pub(crate) fn insist_unmap<P: Paging>(&mut self, world: &World<'_, P>, range: VaRange) {
        let id = self.known().id;
        self.insist(world, &format!("unmap of {range:?}"), || world.mm.unmap(id, range));
    }
    /// Does it again until there is memory for it.
    pub(crate) fn insist<P: Paging>(
        &self,
        world: &World<'_, P>,
        what: &str,
        work: impl Fn() -> Result<(), RangeError>,
    ) {
        let mut last = None;
        for _ in 0..200 {
            match work() {
                Ok(()) => return,
                Err(error) if world.lacks(self.known().limit, error) => last = Some(error),
                Err(error) => return world.wrong("answers", format!("{what}: {error}")),
            }
        }
        match last {
            // The space has all that it may have, and the record of a cut area takes more: nothing
            // is wrong, and nothing goes on.
            Some(RangeError::OverLimit(_)) => world.give_up(),
            _ => world.wrong("answers", format!("{what} never succeeds")),
        }
    }

    fn unmap<P: Paging>(&mut self, world: &World<'_, P>, stretch: &Stretch) {
        world.count("unmap");
        let got = world.mm.unmap(self.known().id, span(stretch));
        if self.judge(world, "unmap", got, Ok(())) {
            self.model().unmap(stretch);
        }
    }

    fn protect<P: Paging>(&mut self, world: &World<'_, P>) {
        world.count("protect");
        let stretch = self.stretch();
        let rights = rights(&mut self.rng);
        let got = world.mm.protect(self.known().id, span(&stretch), rights);
        let expected = self.covered(&stretch);
        if self.judge(world, &format!("protect of {stretch:x?}"), got, expected) {
            self.model().each(&stretch, |page| {
                page.flags = page.flags.without(Flags::RIGHTS).with(rights);
            });
        }
    }

    /// `Ok` where areas cover all of `stretch`.
    pub(crate) fn covered(&self, stretch: &Stretch) -> Result<(), RangeError> {
        self.known().model.hole(stretch).map_or(Ok(()), |page| Err(RangeError::Hole(va(page))))
    }

    fn advise<P: Paging>(&mut self, world: &World<'_, P>) {
        world.count("advise");
        let stretch = self.stretch();
        let advice = self.rng.weighted(&[
            (2, Advice::HugePage),
            (1, Advice::NoHugePage),
            (4, Advice::DontNeed),
            (2, Advice::Free),
        ]);
        let got = world.mm.advise(self.known().id, span(&stretch), advice);
        let expected = self.covered(&stretch);
        if !self.judge(world, &format!("{advice:?} of {stretch:x?}"), got, expected) {
            return;
        }
        let wish = |page: &mut crate::model::Page, set: Flags, clear: Flags| {
            page.flags = page.flags.without(clear).with(set);
        };
        match advice {
            Advice::HugePage => {
                self.model().each(&stretch, |p| wish(p, Flags::HUGEPAGE, Flags::NOHUGEPAGE));
            }
            Advice::NoHugePage => {
                self.model().each(&stretch, |p| wish(p, Flags::NOHUGEPAGE, Flags::HUGEPAGE));
            }
            Advice::DontNeed => self.model().drop_contents(&stretch),
            // The contents stay until the memory is needed, which it is not yet.
            _ => self.model().each(&stretch, |page| page.dirty = false),
        }
    }

    fn forget<P: Paging>(&mut self, world: &World<'_, P>) {
        world.count("forget");
        let stretch = self.stretch();
        let refs = *self.rng.pick(&[Refs::Accessed, Refs::SoftDirty]);
        let got = world.mm.clear_refs(self.known().id, span(&stretch), refs);
        if self.judge(world, "forget", got, Ok(())) && refs == Refs::SoftDirty {
            self.model().each(&stretch, |page| page.written = false);
        }
    }

    fn populate<P: Paging>(&mut self, world: &World<'_, P>) {
        world.count("populate");
        let stretch = self.stretch();
        let stretch = stretch.start..stretch.end.min(stretch.start + 600);
        let (advice, right) = match self.rng.once_in(2) {
            true => (Advice::PopulateRead, Flags::READ),
            false => (Advice::PopulateWrite, Flags::WRITE),
        };
        let got = world.mm.advise(self.known().id, span(&stretch), advice);
        let model = &self.known().model;
        let expected = self.covered(&stretch).and_then(|()| {
            let refused = model.refuses(&stretch, right);
            refused.map_or(Ok(()), |page| Err(RangeError::Hole(va(page))))
        });
        self.judge(world, &format!("{advice:?} of {stretch:x?}"), got, expected);
    }

    fn guard<P: Paging>(&mut self, world: &World<'_, P>) {
        let stretch = self.stretch();
        let install = self.rng.once_in(2);
        let advice = if install { Advice::GuardInstall } else { Advice::GuardRemove };
        world.count(if install { "guard" } else { "unguard" });
        let got = world.mm.advise(self.known().id, span(&stretch), advice);
        let expected = self.covered(&stretch);
        if self.judge(world, &format!("{advice:?} of {stretch:x?}"), got, expected) {
            if install {
                self.model().drop_contents(&stretch);
            }
            self.model().each(&stretch, |page| page.guard = install);
        } else if install && got.is_err_and(no_memory) {
            self.insist_unmap(world, span(&stretch)); // it may have got half-way
            self.model().unmap(&stretch);
        }
    }

    fn fork<P: Paging>(&mut self, world: &World<'_, P>, lineages: &Lineages) {
        const PRIVATE_MAX: usize = 3;
        if self.spaces.iter().filter(|known| known.private).count() >= PRIVATE_MAX {
            return self.end(world);
        }
        world.count("fork");
        match world.mm.fork(self.known().id) {
            Ok(id) => {
                let parent = self.known();
                let lineage = lineages.next();
                let mut line = parent.line.clone();
                line.push(lineage);
                // What was seen in a private parent is what the child has.
                let seen = if parent.private { parent.seen.clone() } else { Default::default() };
                let child = Known { id, lineage, line, private: true, seen, ..parent.clone() };
                self.spaces.push(child);
                if self.rng.once_in(2) {
                    self.at = self.spaces.len() - 1;
                }
            }
            Err(SpaceError::NoMemory) if world.is_scarce() => world.count_refused(),
            Err(SpaceError::OverLimit(_)) if self.known().limit > 0 => world.count_refused(),
            Err(error) => world.wrong("answers", format!("fork: {error}")),
        }
    }

    fn end<P: Paging>(&mut self, world: &World<'_, P>) {
        let Some(nth) = self.spaces.iter().position(|known| known.private) else { return };
        world.count("end");
        let id = self.spaces[nth].id;
        // CPUs that had this seat before may still run it.
        let mut got = world.mm.end(id);
        if let Err(foliant::manager::SpaceError::Running(cpu)) = got
            && cpu == world.sim_cpu()
        {
            let away = world.mm.switch(self.rng.once_in(2).then_some(self.spaces[0].id));
            if away.is_err() {
                world.wrong("answers", "no way out of a space".into());
            }
            got = world.mm.end(id);
        }
        match got {
            Ok(()) => {
                self.spaces.remove(nth);
                self.at = 0;
                self.dead.push(id);
            }
            Err(foliant::manager::SpaceError::Running(cpu)) if cpu != world.sim_cpu() => {}
            Err(error) => world.wrong("answers", format!("end: {error}")),
        }
    }
}
