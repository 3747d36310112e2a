//! A machine, a manager, a space with something in it, and the judge.
//!
//! **What is judged**, without knowing what happened: the recount; rights of leaves within their
//! area's; no access to a frame that is stated to be free; no free frame that is referenced or
//! broken; nothing cached when all is unmapped; each value is one that some serial order shows;
//! everything comes back in the end; and the simulator's checkers.

use crate::board::Board;
use crate::engine::{self, Body, Limits, Mode};
use crate::ground::{
    self, BASE, ELSEWHERE, FULL, GUESSES, GUESSES_BYTES, HUGE, LAST_HUGE, MB, Mm, OBJECT_PAGES,
    OBJECT_PLACE, OBJECTS, PAGE, POOLED, POOLED_COPY, RUN, SHARED, SINGLE, SINGLE_MAX, Scene, TREE,
    at, guessed, page_at, range,
};
use crate::machine::{self, Explored};
use crate::operation::{self, Operation};
use crate::plan::{Folios, Format, Plan};
use foliant::fault::Orders;
use foliant::frame::Kind;
use foliant::manager::{NoPage, Setup};
use foliant::object::ObjectRequest;
use foliant::pool::{Budget, SubpoolLimits};
use foliant::space::{Advice, Flags, MapRequest, Place, SpaceId};
use foliant::table::{Attrs, Entry, Paging};
use foliant::vmap::Request;
use foliant::{Access, Manager, Outcome, Policy, steps};
use foliant_machine::Owner;
use foliant_sim::{Chance, Config, RiscvMode, Sim, X86Levels};
use foliant_units::{Bytes, Frame, FrameRange, Level, Order, Pages, Va};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Pages that hold something.
const FILLED: [u64; 5] = [0, 1, 20, 40, 300];
/// Pages of an object that hold something.
const OBJECT_FILLED: [u64; 4] = [0, 1, 20, 40];
/// Everything that a program of a scene maps, but the further areas.
const ALL: u64 = 512 * MB;

fn config(plan: &Plan) -> (Config, Vec<FrameRange>) {
    let blocks = plan.operations().any(Operation::needs_blocks);
    let memory = match (plan.folios, blocks) {
        _ if plan.areas > 0 || plan.operations().any(Operation::needs_pool) => 24,
        _ if plan.operations().any(Operation::needs_pooled) => 24,
        (Folios::Huge, _) if plan.operations().any(Operation::needs_object) => 24,
        (Folios::Base | Folios::Small, false) => 8,
        (Folios::Auto, _) => 32,
        _ => 16,
    };
    let format = match plan.format {
        Format::X86_64 => foliant_sim::Format::X86_64(X86Levels::Four),
        Format::Aarch64 => foliant_sim::Format::Aarch64,
        Format::Riscv64 => foliant_sim::Format::Riscv64(RiscvMode::Sv48),
    };
    let mut config =
        Config::seeded(plan.cpus.len(), Bytes::new(memory * MB), 1).with_format(format);
    // Which lane goes on, and when an interrupt is taken, is the engine's to say.
    config.chance = Chance { switch: 0, interrupt: 0, speculate: 0 };
    let mut spare = Vec::new();
    if plan.operations().any(|op| op == Operation::AddMemory) {
        let block = |n: u64| FrameRange::new(Frame::new((20 + 4 * n) * 512), Pages::new(512));
        spare.extend((0..2).filter_map(block));
    }
    (config, spare)
}

fn policy(plan: &Plan) -> Policy {
    match plan.folios {
        Folios::Base => Policy::BASE_ONLY,
        Folios::Small => Policy::always(Orders::of(Order::new(4).expect("a size"))),
        Folios::Auto => Policy::tuned(Orders::ANON),
        Folios::Huge | Folios::Zeros => Policy::always(Orders::of(Order::SIZE_2M)),
    }
}

impl<P: Paging> Scene<P> {
    /// Builds what the plan says. It is never taken down: the process ends with it.
    pub(crate) fn build(plan: &Plan) -> Scene<P> {
        // When something is taken away is the rule's to say; the same again is the same.
        let single = match plan.folios {
            Folios::Auto => Scene::<P>::built(plan).harmless(),
            _ => 0,
        };
        let scene = Scene::built(plan);
        (0..single).for_each(|nth| _ = scene.single(nth));
        scene
    }
    /// How many pages come before one with which the first folio loses what is idle of it.
    fn harmless(&self) -> u64 {
        let order =
            || self.mm.frame_at(self.id, at(0)).map(|frame| self.mm.identity(frame).order());
        let whole = order();
        let takes = |nth: &u64| {
            let _ = self.single(*nth);
            order() != whole
        };
        (0..SINGLE_MAX).find(takes).expect("what is idle is taken in the end")
    }
    fn built(plan: &Plan) -> Scene<P> {
        let policy = policy(plan);
        let (mut config, spare) = config(plan);
        let first = config.memory.clone();
        config.memory.extend(spare.iter().copied());
        let sim = Sim::new(config).expect("a scene's machine");
        let machine: &'static Explored = Box::leak(Box::new(Explored::new(sim, plan.flaw)));
        let mut setup = Setup::of(&first, policy);
        if !spare.is_empty() {
            setup.added_below = Frame::new(60 * 512);
        }
        let mm: Mm<P> = Manager::new(machine, &setup).expect("a scene's manager");
        let mm: &'static Mm<P> = Box::leak(Box::new(mm));
        if plan.operations().any(|op| op == Operation::MapKernel) {
            // Before there is a space: what it repeats of the top table is complete.
            mm.reach_kernel(operation::kernel_at::<P>(), Level::SIZE_2M).expect("there is memory");
        }
        let limit = (plan.limit > 0).then_some(Pages::new(plan.limit));
        let id = mm.create(limit).expect("there is memory");
        let own = mm.lend(Order::BASE).expect("there is memory");
        let mut scene = Scene {
            machine,
            mm,
            id,
            areas: plan.areas,
            cpus: plan.cpus.len(),
            children: Vec::new(),
            spaces: RefCell::new(vec![id]),
            frame: None,
            next: None,
            wants_kernel_alone: plan.operations().any(Operation::wants_kernel_alone),
            kept: RefCell::default(),
            anchors: RefCell::default(),
            broken: RefCell::default(),
            lent: RefCell::default(),
            taken: RefCell::default(),
            hoard: RefCell::default(),
            spare: RefCell::new(spare),
            kernel: None,
            huge: Cell::new(own),
            mapped_huge: None,
            own,
            object: None,
            pooled: None,
            is_mapped: Cell::new(false),
        };
        scene.fill(plan);
        scene
    }
    fn fill(&mut self, plan: &Plan) {
        let (mm, id) = (self.mm, self.id);
        for cpu in 0..self.cpus {
            self.machine.on(cpu, || {
                mm.online();
                mm.switch(Some(id)).expect("it is there");
            });
        }
        self.map(BASE, 2 * MB, Place::NoReplace).expect("there is room");
        if plan.folios == Folios::Auto {
            self.map(GUESSES, GUESSES_BYTES, Place::NoReplace).expect("there is room");
            self.map(BASE - RUN * PAGE, RUN * PAGE, Place::NoReplace).expect("there is room");
            self.map(SINGLE, SINGLE_MAX * PAGE, Place::NoReplace).expect("there is room");
            let alone = |start, pages| {
                let advice = Advice::NoHugePage;
                mm.advise(id, range(start, pages * PAGE), advice).expect("it is mapped");
            };
            alone(SINGLE, SINGLE_MAX);
            // A leaf is guessed where memory grows.
            let lanes = (0..GUESSES_BYTES / (4 * MB)).map(guessed);
            for next in lanes.chain([BASE]) {
                alone(next - RUN * PAGE, RUN);
                for nth in 1..=RUN {
                    let _ = mm.fault(id, Va::new(next - nth * PAGE), Access::Write);
                }
            }
        }
        for nth in 0..plan.areas {
            self.map(TREE + nth * 2 * PAGE, PAGE, Place::NoReplace).expect("there is room");
        }
        for page in FILLED {
            self.store(id, page, 1000 + page).expect("there is memory");
        }
        let zeros = self.load(id, 2);
        assert_eq!(zeros, "0", "what was never written is zero");
        if plan.folios == Folios::Zeros {
            mm.advise(id, range(BASE, 2 * MB), Advice::DontNeed).expect("it is mapped");
            let outcome = mm.fault(id, at(0), Access::Read);
            assert_eq!(outcome, Outcome::ZeroPage(Order::SIZE_2M), "there is a block");
            self.load(id, 0);
        }
        self.frame = mm.frame_at(id, at(0));
        if plan.operations().any(|op| op == Operation::KeepNew) && mm.frame_at(id, at(3)).is_none()
        {
            mm.fault(id, at(3), Access::Write);
            self.next = mm.frame_at(id, at(3));
            // What is freed last is taken first.
            mm.advise(id, range(at(3).get(), PAGE), Advice::DontNeed).expect("it is mapped");
        }
        if plan.operations().any(Operation::needs_kernel) {
            let request = Request::of(Bytes::new(4 * PAGE)).zeroed().for_users();
            self.kernel = Some(mm.vmalloc(&request).expect("there is memory"));
        }
        if plan.operations().any(Operation::needs_shared) {
            self.map_user(Place::NoReplace(SHARED)).expect("there is room");
        }
        if plan.operations().any(Operation::needs_pool) {
            mm.resize_pool(Order::SIZE_2M, 3, Budget::ALL).expect("a pool's size");
            self.map_huge(Place::NoReplace(Va::new(HUGE)), 2).expect("there are pages");
            let _ = mm.fault(id, Va::new(HUGE), Access::Write);
            self.mapped_huge = mm.frame_at(id, Va::new(HUGE));
            let mapped = self.mapped_huge;
            let is_free = |frame: &Frame| {
                frame.get().is_multiple_of(512)
                    && mm.identity(*frame).kind() == Kind::Huge
                    && mapped != Some(*frame)
            };
            let free = mm.ranges().flat_map(|range| range.iter()).find(is_free);
            self.huge.set(free.unwrap_or(self.own));
        }
        if plan.operations().any(Operation::needs_last_huge) {
            let flags = Flags::READ_WRITE.with(Flags::HUGE_2M).with(Flags::NORESERVE);
            let place = Place::NoReplace(LAST_HUGE);
            let request = MapRequest { place, bytes: Bytes::new(2 * MB), flags, tag: 5 };
            mm.map(id, &request).expect("there is room");
        }
        if plan.operations().any(|op| op == Operation::FillSurplus) {
            mm.resize_pool(Order::SIZE_2M, 2, Budget::ALL).expect("a pool's size");
            mm.pools().set_overcommit(Order::SIZE_2M, 1).expect("a pool's size");
        }
        if plan.operations().any(|op| op == Operation::RefillHuge) {
            let _ = mm.fault(id, LAST_HUGE, Access::Write);
        }
        if plan.operations().any(Operation::needs_object) {
            self.fill_object(plan, policy(plan));
        }
        if plan.operations().any(Operation::needs_pooled) {
            self.fill_pooled(plan.forks > 0);
        }
        // Other CPUs have some pages cached, and others not.
        for cpu in 1..self.cpus {
            self.machine.on(cpu, || [20, 40].map(|page| self.load(id, page)));
        }
        for _ in 0..plan.forks {
            let child = mm.fork(id).expect("there is memory");
            self.children.push(child);
            self.spaces.borrow_mut().push(child);
        }
        if let Some(blocks) = plan.free {
            self.map(FULL.get(), 2 * MB, Place::NoReplace).expect("there is room");
            let block = |_| mm.lend(Order::SIZE_2M).expect("there is a block");
            let free: Vec<Frame> = (0..blocks).map(block).collect();
            self.hoard.borrow_mut().extend(core::iter::from_fn(|| mm.lend(Order::BASE).ok()));
            let order = Order::SIZE_2M;
            free.into_iter().for_each(|block| mm.take_back(block, order).expect("it was lent"));
        }
    }
    /// Makes the object, with folios of the plan's size, and has it mapped.
    fn fill_object(&mut self, plan: &Plan, policy: Policy) {
        let (mm, id) = (self.mm, self.id);
        mm.set_object_policy(policy);
        let request = ObjectRequest { pages: Pages::new(OBJECT_PAGES), ..Default::default() };
        let object = mm.create_object(&request).expect("there is memory");
        self.object = Some((object, self.own));
        let all = (0, OBJECT_PAGES);
        let shared = Flags::READ_WRITE.with(Flags::SHARED);
        self.map_object(ground::Place::Shared, all, shared).expect("there is room");
        self.map_object(ground::Place::Private, all, Flags::READ_WRITE).expect("there is room");
        if plan.operations().any(|op| op == Operation::MoveObjectOnto) {
            let rest = (OBJECT_PAGES / 2, OBJECT_PAGES);
            self.map_object(ground::Place::Onto, rest, shared).expect("there is room");
        }
        for page in OBJECT_FILLED {
            let at = ground::Place::Shared.page(page);
            self.store(id, at, 2000 + page).expect("there is memory");
        }
        // A page is the program's own, another one is seen by it, and a third is not.
        self.store(id, ground::Place::Private.page(1), 3001).expect("there is memory");
        let kernels = mm.object_page(object, Pages::new(ground::SEEN), Access::Write);
        assert!(kernels.is_ok_and(|page| page.is_some()), "there is memory");
        for cpu in 0..self.cpus {
            let pages = [
                ground::Place::Private.page(20),
                ground::Place::Private.page(ground::SEEN),
                ground::Place::Shared.page(20),
            ];
            self.machine.on(cpu, || pages.map(|page| self.load(id, page)));
        }
        let first = mm.frame_at(id, Va::new(ground::Place::Shared.start()));
        self.object = Some((object, first.expect("it was stored to")));
    }
    /// Makes the object of huge pages, out of a pool that has one for it and one for a copy, and
    /// has it mapped. The copy is there if it `has_copy`; else the object's page is seen there.
    fn fill_pooled(&mut self, has_copy: bool) {
        let (mm, id) = (self.mm, self.id);
        let others = mm.pool(Order::SIZE_2M).map_or(0, |pool| pool.nr_hugepages);
        mm.resize_pool(Order::SIZE_2M, others + 2, Budget::ALL).expect("a pool's size");
        let (pages, flags) = (Order::SIZE_2M.pages(), Flags::HUGE_2M);
        let kept = SubpoolLimits { least: 1, ..SubpoolLimits::NONE };
        let subpool = mm.pools().make_subpool(Order::SIZE_2M, kept).expect("a page is free");
        let request = ObjectRequest { pages, flags, subpool: Some(subpool), ..Default::default() };
        let object = mm.create_object(&request).expect("there is memory");
        self.pooled = Some((object, subpool));
        let map = |va, flags| {
            let place = Place::NoReplace(va);
            let request = MapRequest { place, bytes: Bytes::new(2 * MB), flags, tag: 6 };
            mm.map_object(id, &request, (object, Pages::new(0))).expect("the pool has so many");
        };
        map(POOLED, Flags::READ_WRITE.with(Flags::SHARED));
        map(POOLED_COPY, Flags::READ_WRITE);
        self.store(id, page_at(POOLED), 4000).expect("its page is reserved");
        match has_copy {
            true => self.store(id, page_at(POOLED_COPY), 4001).expect("its copy is reserved"),
            false => _ = self.load(id, page_at(POOLED_COPY)),
        }
    }
    /// Runs all lanes, and judges; the process has nothing more to do then.
    pub(crate) fn play(self, plan: &Plan, (board, mode, limits): (Board, Mode, Limits)) {
        let cpus: Vec<usize> = plan.lanes().map(|(cpu, _)| cpu).collect();
        engine::begin(board, mode, &cpus, plan.refusals, limits);
        steps::watch(Some(machine::heard));
        let scene: &'static Scene<P> = Box::leak(Box::new(self));
        let body = |(lane, (_, operations)): (usize, (usize, &[Operation]))| -> Body {
            let operations = operations.to_vec();
            Box::new(move || {
                for (nth, operation) in operations.into_iter().enumerate() {
                    if nth > 0 {
                        engine::border();
                    }
                    scene.act(lane, nth, operation);
                }
            })
        };
        engine::run(plan.lanes().enumerate().map(body).collect());
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| scene.judge())) {
            engine::fail(&format!("when all is done, a panic: {}", engine::message(&*panic)));
        }
        engine::complete();
    }

    fn judge(&self) {
        self.machine.kept.borrow_mut().clear();
        self.kept.borrow_mut().clear();
        self.check_anchors();
        self.anchors.borrow_mut().clear();
        for frame in self.hoard.take() {
            self.mm.take_back(frame, Order::BASE).expect("it was lent");
        }
        for frame in self.broken.borrow().iter() {
            if self.machine.is_free(*frame) {
                engine::fail("memory that was acknowledged as broken is free");
            }
        }
        let spaces = self.spaces.borrow().clone();
        self.recount(&spaces, "when all is done");
        for (nth, space) in spaces.iter().enumerate() {
            self.check_leaves(*space);
            self.check_contents(nth, *space);
        }
        if self.areas == 0 {
            self.check_caches();
        }
        self.give_back(&spaces);
        self.recount(&[], "in the end");
        // A broken folio stays its last owner's for ever.
        let has_broken = !self.broken.borrow().is_empty();
        let stays = |text: &str| has_broken && text.contains("frames are still User");
        let found = self.machine.sim.finish();
        if let Some(violation) = found.iter().find(|seen| !stays(&seen.text)) {
            engine::fail(&violation.to_string());
        }
    }
    fn recount(&self, spaces: &[SpaceId], when: &str) {
        let audit = match self.machine.recount(|| self.mm.audit(spaces)) {
            Ok(audit) => audit,
            Err(why) => return engine::fail(&format!("the recount {when}: {why:?}")),
        };
        for (owner, counted) in [(Owner::Table, audit.tables), (Owner::Records, audit.records)] {
            let stated = self.machine.sim.stated_frames(owner);
            if stated != counted {
                engine::fail(&format!(
                    "{when} {} frames are stated as {owner:?}, and {} are",
                    stated.get(),
                    counted.get()
                ));
            }
        }
    }
    fn check_leaves(&self, space: SpaceId) {
        let mut leaves = Vec::new();
        self.mm.with_leaves(space, range(BASE, ALL), |found| {
            leaves.extend(found.filter_map(|leaf| match leaf.entry {
                Entry::Leaf { pa, attrs } => Some((leaf.va, pa.frame(), attrs.has(Attrs::WRITE))),
                _ => None,
            }));
        });
        for (va, frame, is_writable) in leaves {
            let Some(area) = self.mm.area(space, va) else {
                engine::fail("a leaf is left where no area is");
                continue;
            };
            if is_writable && !area.flags.has(Flags::WRITE) {
                engine::fail("a leaf is writable in an area that is not");
            }
            if area.flags.has(Flags::KERNEL) && self.mm.identity(frame).kind() != Kind::Kernel {
                engine::fail("a page of the program's own is in an area of kernel memory");
            }
            if area.flags.has(Flags::OBJECT) && area.flags.huge_order().is_none() {
                self.check_object(va, frame, is_writable, area.flags);
            }
        }
    }
    /// A page of the program's own that is anchored is mapped once at most, by an exclusive leaf.
    fn check_anchors(&self) {
        let anchors = self.anchors.borrow();
        for (anchor, _) in anchors.iter().filter(|(_, is_own)| *is_own) {
            let anchored = anchor.frames().start();
            let mut leaves = Vec::new();
            for space in self.spaces.borrow().iter() {
                self.mm.with_leaves(*space, range(BASE, ALL), |found| {
                    leaves.extend(found.filter_map(|leaf| {
                        let Entry::Leaf { pa, attrs } = leaf.entry else { return None };
                        let pages = Pages::new(leaf.level.span().get() / PAGE);
                        let maps = FrameRange::new(pa.frame(), pages)?;
                        maps.contains(anchored).then(|| attrs.has(Attrs::EXCLUSIVE))
                    }));
                });
            }
            if leaves.len() > 1 || leaves.contains(&false) {
                engine::fail("an anchored page is not one space's alone");
            }
        }
    }
    /// What an area of the object maps shared is what the object has there, and what a program may
    /// write in a private area is not.
    fn check_object(&self, va: Va, frame: Frame, is_writable: bool, flags: Flags) {
        let page = Pages::new((va.get() - OBJECTS) % OBJECT_PLACE / PAGE);
        let had = match self.mm.object_page(self.object(), page, Access::Read) {
            Err(NoPage::NoObject | NoPage::Broken(_)) => return, // nobody can ask it any more
            Ok(had) => had.map(|page| page.frame()),
            Err(_) => None,
        };
        match flags.has(Flags::SHARED) {
            true if had != Some(frame) => engine::fail("what is shared is not the object's"),
            false if had == Some(frame) && is_writable => {
                engine::fail("a page of the object is written to privately");
            }
            _ => {}
        }
    }
    fn check_contents(&self, nth: usize, space: SpaceId) {
        self.mm.switch(Some(space)).expect("it is there");
        let moved = FILLED.map(|page| page + (ELSEWHERE - BASE) / PAGE);
        for page in FILLED.into_iter().chain([2, 3, 100]).chain(moved) {
            let flags = self.mm.area(space, at(page)).map(|area| area.flags);
            let held = flags.map(|_| self.load(space, page));
            engine::observe(&format!("space {nth}, page {page}: {flags:?} {held:?}"));
        }
        if self.pooled.is_some() {
            for page in [POOLED, POOLED_COPY].map(page_at) {
                let held = self.mm.area(space, at(page)).map(|_| self.load(space, page));
                engine::observe(&format!("space {nth}, page {page}: {held:?}"));
            }
        }
        if self.object.is_some() {
            let places = ground::Place::ALL.into_iter();
            for page in
                places.flat_map(|at| [0, 1, 20, ground::SEEN, 100].map(|page| at.page(page)))
            {
                let held = self.mm.area(space, at(page)).map(|_| self.load(space, page));
                engine::observe(&format!("space {nth}, page {page}: {held:?}"));
            }
        }
        self.mm.switch(Some(self.id)).expect("it is there");
    }
    /// Nothing is cached of what is unmapped.
    fn check_caches(&self) {
        for cpu in 0..self.cpus {
            self.machine.on(cpu, || self.mm.switch(Some(self.id)).expect("it is there"));
        }
        if self.mm.unmap(self.id, range(BASE, ALL)).is_err() {
            return engine::fail("all of a space can not be unmapped");
        }
        for cpu in 0..self.cpus {
            let root = self.machine.root(cpu);
            let is_left = |entry: &&foliant_sim::Cached| {
                !entry.table && entry.tag == root && range(BASE, ALL).contains(entry.va)
            };
            if self.machine.cached(cpu).iter().any(|entry| is_left(&entry)) {
                engine::fail("a translation is left when everything was unmapped");
            }
        }
    }
    fn give_back(&self, spaces: &[SpaceId]) {
        let mm = self.mm;
        for cpu in 0..self.cpus {
            self.machine.on(cpu, || mm.switch(None).expect("nothing can always be run"));
        }
        for space in spaces {
            if let Err(why) = mm.end(*space) {
                engine::fail(&format!("a space does not end: {why}"));
            }
        }
        let pooled = self.pooled.map(|(object, _)| object);
        for object in self.object.map(|(object, _)| object).into_iter().chain(pooled) {
            let _ = mm.end_object(object);
        }
        // What the embedder has mapped by hand stays mapped, and so it stays the embedder's.
        let own = (!self.is_mapped.get()).then_some((self.own, Order::BASE));
        for (frame, order) in self.lent.take().into_iter().chain(own) {
            if let Err(why) = mm.take_back(frame, order) {
                engine::fail(&format!("what was lent does not come back: {why}"));
            }
        }
        for taken in self.taken.take() {
            if let Err(why) = mm.vfree(taken) {
                engine::fail(&format!("kernel memory that was taken can not be given back: {why}"));
            }
        }
        if let Some(kernel) = self.kernel {
            let _ = mm.vfree(kernel.start());
        }
        mm.vmap().collect();
        mm.purge_vmalloc();
        if let Some((_, subpool)) = self.pooled {
            let used = mm.pools().subpool(subpool).map(|it| it.used);
            if used != Some(0) {
                engine::fail(&format!("nothing is left of a subpool that uses {used:?}"));
            }
            mm.pools().end_subpool(subpool);
        }
        let _ = mm.pools().set_overcommit(Order::SIZE_2M, 0);
        let _ = mm.resize_pool(Order::SIZE_2M, 0, Budget::ALL);
    }
}
