//! What was proved wrong about translations that outlive a table, about lists that are walked under
//! a pin, about folios that wait to be split, and about waiting under a table's lock:
//! `docs/findings.md` has the rules.
#![allow(unsafe_code)]

use crate::common::beside::Beside;
use crate::common::watch::Watch;
use crate::common::*;
use core::ptr::NonNull;
use foliant::fault::Orders;
use foliant::manager::CollapseLimits;
use foliant::space::{Advice, Flags, Move, SpaceId};
use foliant::split::{RelocateError, Shrink, SplitError, SplitInto};
use foliant::{Access, FlushGrain, Policy};
use foliant_machine::{Around, Cpus, Kept, PhysMem, Replace, Root, Tlb};
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, Frame, Order, Pa, Pages, Va};
use meddler::Meddler;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// G: each time that somebody is about to be asked for a flush, CPU 1 reads every page that it can.
fn read_at_each_request(machine: &'static Meddler) {
    machine.before_asking(move || {
        machine.sim.on(cpu(1), || {
            for page in 0..512 {
                let _ = machine.sim.user_load(Va::new(BASE + page * PAGE), 8);
            }
        });
        read_at_each_request(machine);
    });
}

/// The pages that are in their places already are read one by one while the last ones still move. A
/// collapse that flushes the place of the new leaf as one entry leaves them in that CPU's cache, by
/// which they outlive the leaf too.
#[test]
fn finding_g_a_removed_table_goes_with_its_leaves() {
    // Below and above the number of entries from which on everything is flushed.
    for (ceiling, grain) in [(1024, FlushGrain::WHOLE), (33, FlushGrain::ONE)] {
        let mut config = Config::seeded(2, Bytes::new(64 * MB), 1);
        config.rules.ceiling_entries = ceiling;
        let machine = Meddler::new(Sim::new(config).unwrap());
        let (machine, mm, _over) = kept(machine, Policy::BASE_ONLY);
        let id = mm.create(None).unwrap();
        for n in 0..2 {
            machine.sim.on(cpu(n), || {
                mm.online();
                mm.switch(Some(id)).unwrap();
            });
        }
        let whole = area(mm, id, BASE, 2 * MB);
        for page in 0..512 {
            store(&machine.sim, mm, id, BASE + page * PAGE, page);
        }
        mm.set_flush_grain(grain);
        read_at_each_request(machine);
        mm.collapse(id, Va::new(BASE), Order::SIZE_2M, CollapseLimits::NONE).unwrap();
        machine.before_asking(|| ());
        let cached = |of: &str| {
            let all = machine.sim.cached(cpu(1));
            let small = all.iter().filter(|e| !e.table && e.level == 0 && whole.contains(e.va));
            assert_eq!(
                small.count(),
                0,
                "translations of pages are left behind {of}, ceiling {ceiling}"
            );
        };
        cached("the collapse");
        mm.unmap(id, whole).unwrap();
        cached("the unmapping");
    }
}

/// B: where CPU 0 ends M, CPU 1's walk stands at M, and CPU 2 ends N, the member behind M.
struct Stages {
    sim: Sim,
    stage: AtomicU64,
    tree: AtomicU64,
    /// The root that was loaded last, and M's.
    last: AtomicU64,
    root: AtomicU64,
    /// The record of the space that is gone, and how often the walk reached for it.
    gone: AtomicU64,
    reached: AtomicU64,
    saw: AtomicU64,
}

/// CPU 0 is behind its look at who uses M.
const ENDING: u64 = 1;
/// CPU 1 has M pinned, and is about to go on from there.
const PINNED: u64 = 2;
/// CPU 0 waits for the pin.
const WAITING: u64 = 3;
/// N is gone.
const GONE: u64 = 4;

impl Stages {
    fn until(&self, stage: u64) {
        while self.stage.load(SeqCst) < stage {
            self.sim.relax();
        }
    }
    fn go(&self, from: u64, to: u64) -> bool {
        self.stage.compare_exchange(from, to, SeqCst, SeqCst).is_ok()
    }
}

simulated!(Stages);
// SAFETY: everything is the simulator's.
unsafe impl Around for Stages {
    type Inner = Sim;

    fn inner(&self) -> &Sim {
        &self.sim
    }
    fn activate(&self, root: Root, kept: Kept) {
        self.last.store(root.user.get(), SeqCst);
        self.sim.activate(root, kept);
    }
    unsafe fn load(&self, pa: Pa) -> u64 {
        if pa.get() & !(PAGE - 1) == self.root.load(SeqCst) {
            match self.sim.me().0 {
                0 if self.go(0, ENDING) => self.until(PINNED),
                1 => self.saw.store(1, SeqCst),
                _ => {}
            }
        }
        // SAFETY: passed on.
        unsafe { self.sim.load(pa) }
    }
    unsafe fn reach(&self, pa: Pa, bytes: Bytes) -> NonNull<u8> {
        if self.sim.me() == cpu(1) {
            let goes_on = pa.get() == self.tree.load(SeqCst) && self.saw.load(SeqCst) == 1;
            if goes_on && self.go(ENDING, PINNED) {
                self.until(GONE);
            }
            if pa.get() == self.gone.load(SeqCst) && self.stage.load(SeqCst) == GONE {
                self.reached.fetch_add(1, SeqCst);
            }
        }
        // SAFETY: passed on.
        unsafe { self.sim.reach(pa, bytes) }
    }
    fn relax(&self) {
        if self.sim.me() == cpu(0) {
            self.go(PINNED, WAITING);
        }
        self.sim.relax();
    }
}

#[test]
fn finding_b_a_walk_goes_on_from_a_member_that_is_still_listed() {
    let sim = Sim::new(Config::seeded(3, Bytes::new(64 * MB), 1)).unwrap();
    let word = || AtomicU64::new(0);
    let machine = Stages {
        sim,
        stage: word(),
        tree: word(),
        last: word(),
        root: AtomicU64::new(!0),
        gone: word(),
        reached: word(),
        saw: word(),
    };
    let memory = machine.sim.config().memory.clone();
    let mm: AuditedMm<'_> = manager_on(&machine, &memory, Policy::BASE_ONLY);
    let shell = mm.create(None).unwrap();
    mm.switch(Some(shell)).unwrap();
    area(&mm, shell, BASE, 16 * PAGE);
    store(&machine.sim, &mm, shell, BASE, 1);
    let frame = mm.frame_at(shell, Va::new(BASE)).unwrap();
    let n = mm.fork(shell).unwrap();
    let m = mm.fork(shell).unwrap(); // the list: shell, M, N
    mm.switch(Some(m)).unwrap();
    machine.root.store(machine.last.load(SeqCst), SeqCst);
    mm.switch(None).unwrap();
    machine.gone.store(n.frame().pa().get(), SeqCst);
    machine.tree.store(shell.frame().pa().get(), SeqCst);
    machine.sim.parallel(3, |me| {
        mm.online();
        match me.0 {
            0 => mm.end(m).unwrap(),
            1 => {
                machine.until(ENDING);
                mm.mappings(frame).unwrap();
            }
            _ => {
                machine.until(WAITING);
                mm.end(n).unwrap();
                machine.go(WAITING, GONE);
            }
        }
    });
    assert_eq!(machine.stage.load(SeqCst), GONE, "everybody was where it was to be");
    assert_eq!(
        machine.reached.load(SeqCst),
        0,
        "the walk was in the record of a space that is gone"
    );
}

const ALL: Shrink = Shrink { folios: 64, zeros_max: None };

/// A space that CPUs 0 and 1 run, on a machine with a hook.
fn running(policy: Policy) -> (&'static Meddler, &'static Mm<'static>, SpaceId, Over) {
    let (machine, mm, kept) = meddled(3, 64, policy);
    let id = mm.create(None).unwrap();
    for n in 0..2 {
        machine.sim.on(cpu(n), || {
            mm.online();
            mm.switch(Some(id)).unwrap();
        });
    }
    (machine, mm, id, kept)
}
/// A folio of sixteen pages that lost the second half of them, and waits to be split.
fn half_gone() -> (&'static Meddler, &'static Mm<'static>, Frame, Over) {
    let (machine, mm, id, kept) = running(Policy::always(Orders::of(Order::new(4).unwrap())));
    area(mm, id, BASE, MB);
    store(&machine.sim, mm, id, BASE, 7);
    let frame = mm.frame_at(id, Va::new(BASE)).unwrap();
    mm.unmap(id, range(BASE + 8 * PAGE, 8 * PAGE)).unwrap();
    (machine, mm, frame, kept)
}

#[test]
fn finding_m_a_folio_that_is_busy_goes_on_waiting() {
    let (machine, mm, frame, _over) = half_gone();
    assert_eq!(mm.deferred(), 1);
    // It is being split when its turn comes. That fails, for somebody pins it.
    let pin: &'static Mutex<Option<_>> = Box::leak(Box::default());
    machine.before_asking(move || {
        machine.sim.on(cpu(2), || {
            mm.online();
            *pin.lock().unwrap() = mm.reference(frame);
            let shrunk = mm.shrink_deferred(ALL);
            assert_eq!((shrunk.seen, shrunk.split, shrunk.failed), (0, 0, 0), "it is passed over");
        });
    });
    assert_eq!(mm.split_frame(frame, SplitInto::BASE), Err(SplitError::Pinned(frame)));
    assert!(pin.lock().unwrap().take().is_some(), "the hook ran");
    assert_eq!(mm.deferred(), 1, "it waits");
    let shrunk = mm.shrink_deferred(ALL);
    // Eight pages that nothing maps, and seven that were never written to.
    assert_eq!((shrunk.split, shrunk.pages, mm.deferred()), (1, 15, 0));
}

/// A folio that is pinned between flush and split stays as it is: one was seen, and one failed.
#[test]
fn a_folio_that_is_pinned_behind_the_flush_is_counted_as_failed_once() {
    let (machine, mm, frame, _over) = half_gone();
    let pin: &'static Mutex<Option<_>> = Box::leak(Box::default());
    machine.before_asking(move || *pin.lock().unwrap() = mm.reference(frame));
    let shrunk = mm.shrink_deferred(ALL);
    assert_eq!((shrunk.seen, shrunk.split, shrunk.failed), (1, 0, 1));
    assert!(pin.lock().unwrap().take().is_some(), "the hook ran");
    assert_eq!(mm.deferred(), 1, "it waits");
}

/// A large folio that holds little but zeros stays whole while somebody has it; it is no less worth
/// splitting then.
#[test]
fn finding_m_an_underused_folio_that_is_pinned_goes_on_waiting() {
    let (machine, mm, id, _over) = running(Policy::always(Orders::of(Order::SIZE_2M)));
    area(mm, id, BASE, 2 * MB);
    store(&machine.sim, mm, id, BASE, 7);
    let frame = mm.frame_at(id, Va::new(BASE)).unwrap();
    let zeros = Shrink { zeros_max: Some(Pages::new(100)), ..ALL };
    let pin = mm.reference(frame);
    let shrunk = mm.shrink_deferred(zeros);
    assert_eq!((shrunk.seen, shrunk.split, shrunk.failed), (1, 0, 1));
    assert_eq!(mm.deferred(), 1, "it waits");
    drop(pin);
    let shrunk = mm.shrink_deferred(zeros);
    assert_eq!((shrunk.split, shrunk.pages, mm.deferred()), (1, 511, 0));
    // One that was looked at and is used waits for nothing.
    store(&machine.sim, mm, id, BASE + PAGE, 7);
}

/// A folio is looked into and found to be used; meanwhile it has lost a page, and the one who
/// unmapped that found it on the list.
#[test]
fn finding_m_a_folio_that_loses_a_page_while_it_is_looked_into_goes_on_waiting() {
    let (machine, mm, _over) = meddled(2, 64, Policy::always(Orders::of(Order::SIZE_2M)));
    let id = mm.create(None).unwrap();
    machine.sim.on(cpu(1), || {
        mm.online();
        mm.switch(Some(id)).unwrap();
        area(mm, id, BASE, 2 * MB);
        (0..512).for_each(|page| drop(store(&machine.sim, mm, id, BASE + page * PAGE, 7)));
    });
    let frame = mm.frame_at(id, Va::new(BASE)).unwrap();
    machine.before_looking(frame.add(Pages::new(5)).pa(), move || {
        machine.sim.on(cpu(1), || mm.unmap(id, range(BASE, PAGE)).unwrap());
    });
    let shrunk = mm.shrink_deferred(Shrink { zeros_max: Some(Pages::new(100)), ..ALL });
    assert_eq!((shrunk.seen, shrunk.split, shrunk.failed), (1, 0, 0), "it was found to be used");
    assert_eq!(mm.frame_at(id, Va::new(BASE)), None, "it has lost a page");
    assert_eq!(mm.deferred(), 1, "it waits");
    let shrunk = mm.shrink_deferred(ALL);
    assert_eq!((shrunk.split, shrunk.pages, mm.deferred()), (1, 1, 0));
    machine.sim.on(cpu(1), || mm.switch(None).unwrap());
}

/// S1: what a second CPU does in a range in which a first one has an entry out of use.
fn meet(name: &str, rule: Replace, work: impl Fn(&Mm<'_>, SpaceId, Frame) + Sync) {
    let mut config = Config::seeded(2, Bytes::new(64 * MB), 1);
    config.rules.replace = rule;
    let machine = Watch::new(Sim::new(config).unwrap());
    let memory = machine.sim.config().memory.clone();
    let mm: AuditedMm<'_> = manager_on(&machine, &memory, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    for n in 0..2 {
        machine.sim.on(cpu(n), || {
            mm.online();
            mm.switch(Some(id)).unwrap();
        });
    }
    area(&mm, id, BASE, 4 * PAGE);
    (0..4).for_each(|page| drop(store(&machine.sim, &mm, id, BASE + page * PAGE, page)));
    let frame = mm.frame_at(id, Va::new(BASE + 2 * PAGE)).unwrap();
    let child = mm.fork(id).unwrap();
    machine.sim.parallel(2, |me| match me.0 {
        // Copies the third page, which the child has too: its entry is broken until the others were
        // asked.
        0 => {
            machine.stop_before_asking();
            store(&machine.sim, &mm, id, BASE + 2 * PAGE, 9);
        }
        _ => {
            machine.until_stopped();
            work(&mm, id, frame);
            assert!(machine.go_on(), "{name} did not meet the entry");
        }
    });
    assert_eq!(machine.found(), Vec::<String>::new(), "{name}");
    for n in 0..2 {
        machine.sim.on(cpu(n), || mm.switch(None).unwrap());
    }
    mm.end(child).unwrap();
}

#[test]
fn finding_s1_nobody_waits_for_an_entry_under_its_tables_lock() {
    let all = || range(BASE, 4 * PAGE);
    for rule in [Replace::InPlace, Replace::BreakBeforeMake] {
        meet("advice", rule, |mm, id, _| mm.advise(id, all(), Advice::DontNeed).unwrap());
        meet("unmap", rule, |mm, id, _| mm.unmap(id, all()).unwrap());
        meet("protect", rule, |mm, id, _| mm.protect(id, all(), Flags::READ).unwrap());
        meet("fork", rule, |mm, id, _| _ = mm.fork(id).unwrap());
        meet("remap", rule, |mm, id, _| {
            mm.remap(id, all(), Bytes::new(4 * PAGE), Move::To(Va::new(BASE + MB))).unwrap();
        });
        meet("the reverse map", rule, |mm, _, frame| _ = mm.mappings(frame).unwrap());
    }
}

/// What three CPUs do to each other in one space, for other waits of the kind.
#[test]
fn finding_s1_a_mix_of_everything_waits_for_nothing_under_a_tables_lock() {
    let policy =
        Policy::always(Orders::of(Order::SIZE_2M).with(Orders::of(Order::new(4).unwrap())));
    for seed in 0..24 {
        let mut config = Config::seeded(3, Bytes::new(64 * MB), seed);
        if seed % 2 == 1 {
            config.rules.replace = Replace::BreakBeforeMake;
        }
        let machine = Watch::new(Sim::new(config).unwrap());
        let memory = machine.sim.config().memory.clone();
        let mm: AuditedMm<'_> = manager_on(&machine, &memory, policy);
        let id = mm.create(None).unwrap();
        let whole = area(&mm, id, BASE, 4 * MB);
        machine.sim.parallel(3, |me| {
            mm.online();
            mm.switch(Some(id)).unwrap();
            let mut state = seed * 3 + u64::from(me.0) + 1;
            for _ in 0..60 {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let (what, page) = (state >> 33, state >> 40 & 1023);
                let va = Va::new(BASE + page * PAGE);
                let part = range(va.get() & !(64 * PAGE - 1), 64 * PAGE);
                let frame = || mm.frame_at(id, va);
                match what % 12 {
                    0 => mm.advise(id, part, Advice::DontNeed).unwrap(),
                    1 => mm.protect(id, part, Flags::READ).unwrap(),
                    2 => mm.protect(id, whole, Flags::READ_WRITE).unwrap(),
                    3 => _ = mm.fork(id).map(|child| mm.end(child)),
                    4 => _ = mm.split(id, va, SplitInto::BASE),
                    5 => _ = mm.collapse(id, Va::new(BASE), Order::SIZE_2M, CollapseLimits::NONE),
                    6 => _ = frame().map(|frame| mm.relocate(frame)),
                    7 => _ = mm.shrink_deferred(ALL),
                    8 => _ = mm.fault(id, va, Access::Read),
                    _ => _ = mm.fault(id, va, Access::Write),
                }
            }
            mm.switch(None).unwrap();
        });
        assert_eq!(machine.found(), Vec::<String>::new(), "seed {seed}");
    }
}

/// A folio is named for a creator whose frame is another space's by now. Between that one and the
/// space that maps the folio stands a third, which ends while the folio is moved: nobody behind it
/// is passed over.
#[test]
fn finding_v_a_member_ends_while_entries_behind_it_are_put_back() {
    for step in 1.. {
        let machine = Beside::new(sim(2, 32));
        let mm = machine.manager(Policy::BASE_ONLY);
        mm.cpus().for_each(|cpu| machine.sim.on(cpu, || mm.online()));
        let root = mm.create(None).unwrap();
        area(&mm, root, BASE, 4 * PAGE);
        let creator = mm.fork(root).unwrap();
        mm.switch(Some(creator)).unwrap();
        store(&machine.sim, &mm, creator, BASE, 7);
        mm.switch(None).unwrap();
        let between = mm.fork(creator).unwrap();
        let last = mm.fork(between).unwrap();
        let uncle = mm.fork(root).unwrap();
        mm.unmap(between, range(BASE, 4 * PAGE)).unwrap();
        mm.end(creator).unwrap();
        // As deep as the one between, and in the frame of the creator.
        let mut others = Vec::new();
        let _ = loop {
            let child = mm.fork(uncle).unwrap();
            if child.frame() == creator.frame() {
                break child;
            }
            assert!(others.len() < 100, "the frame of the creator is not used again");
            others.push(child);
        };
        others.into_iter().for_each(|other| mm.end(other).unwrap());
        let frame = mm.frame_at(last, Va::new(BASE)).unwrap();
        let end = || mm.end(between).unwrap();
        let Some(moved) = machine.before_step(step, end, || mm.relocate(frame)) else {
            assert!(step > 30, "{step}");
            return;
        };
        // The end goes on beside the move, as fast as the host lets it: a walk may miss entries,
        // and the folio stays (T2).
        let stays = Err(RelocateError::Stays(SplitError::Changed(frame)));
        assert!(moved.is_ok() || moved == stays, "at step {step}: {moved:?}");
        mm.switch(Some(last)).unwrap();
        assert_eq!(load(&machine.sim, &mm, last, BASE), 7);
    }
}

/// The record of the space that a page was made in holds another space of the tree by now: each
/// space that has the page is found, be it behind the line of that space or before it.
#[test]
fn a_page_is_found_from_a_creator_that_is_another_space_by_now() {
    for forks_of_the_child in [false, true] {
        let sim = sim(1, 32);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let parent = mm.create(None).unwrap();
        area(&mm, parent, BASE, MB);
        let creator = mm.fork(parent).unwrap();
        mm.switch(Some(creator)).unwrap();
        store(&sim, &mm, creator, BASE, 1);
        mm.switch(None).unwrap();
        let frame = mm.frame_at(creator, Va::new(BASE)).unwrap();
        let child = mm.fork(creator).unwrap();
        let mut spaces = vec![parent, child, mm.fork(parent).unwrap()];
        mm.end(creator).unwrap();
        // One of these takes the frame that the record was in.
        for nth in 1..=40 {
            spaces.push(mm.fork(if forks_of_the_child { child } else { parent }).unwrap());
            let found = mm.mappings(frame).unwrap();
            let expected = if forks_of_the_child { 1 + nth } else { 1 };
            assert_eq!((found.spaces, found.entries(Order::BASE)), (expected, expected));
        }
    }
}

/// Who looks for the entries of a page begins in the space that the page was made in: how many
/// others the tree has costs nothing.
#[test]
fn a_page_is_found_in_the_space_that_it_was_made_in_however_large_its_tree_is() {
    let steps = |children: usize| {
        let machine = Beside::new(sim(1, 32));
        let mm = machine.manager(Policy::BASE_ONLY);
        let parent = mm.create(None).unwrap();
        area(&mm, parent, BASE, MB);
        let tree: Vec<_> = (0..children).map(|_| mm.fork(parent).unwrap()).collect();
        let creator = tree[children / 2];
        mm.switch(Some(creator)).unwrap();
        store(&machine.sim, &mm, creator, BASE, 1);
        let frame = mm.frame_at(creator, Va::new(BASE)).unwrap();
        let before = machine.steps();
        mm.relocate(frame).unwrap();
        machine.steps() - before
    };
    assert_eq!(steps(40), steps(3));
}
