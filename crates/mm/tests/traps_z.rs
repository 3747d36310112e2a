//! The traps of system Z, each by its name in `docs/rules.md`. TR-Z4, TR-Z6 and TR-Z7 stand beside
//! the code (`crates/mm/src/zero/tests.rs`), the fence of TR-Z5 in `crates/x86/src/clear.rs`.

use crate::common::*;
use foliant::compact::CompactRequest;
use foliant::fault::Orders;
use foliant::manager::{Contents, Setup};
use foliant::space::SpaceId;
use foliant::table::{Entry, X86_64};
use foliant::zero::{Clearing, Far, Stopped, ZeroGrain};
use foliant::{Access, Event, Outcome, Policy, SizeEvent};
use foliant_machine::{Around, Caching, Owner, PhysMem, Witness};
use foliant_sim::Sim;
use foliant_units::{Bytes, Frame, FrameRange, Nanos, Order, Pa, Pages, Va};
use std::sync::Mutex;

const FOREVER: Nanos = Nanos(u64::MAX);

fn huge() -> Policy {
    Policy::always(Orders::of(Order::SIZE_2M))
}

fn space(mm: &Mm<'_>, megabytes: u64) -> SpaceId {
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(mm, id, BASE, megabytes * MB);
    id
}

/// The frame that `va` is mapped to.
fn frame_at(mm: &Mm<'_>, id: SpaceId, va: u64) -> Frame {
    let leaf = mm.with_leaves(id, range(va, 4096), |mut leaves| leaves.next()).unwrap().unwrap();
    match leaf.entry {
        Entry::Leaf { pa, .. } => pa.frame(),
        other => panic!("{va:#x} is {other:?}"),
    }
}

/// What the simulated machine was told and asked, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    Cleared(Pa, u64),
    Stored(u64),
    User(FrameRange),
}

/// The simulator with a log.
struct Logged {
    sim: Sim,
    log: Mutex<Vec<Seen>>,
}

impl Logged {
    fn new(sim: Sim) -> Logged {
        Logged { sim, log: Mutex::default() }
    }
    fn taken(&self) -> Vec<Seen> {
        std::mem::take(&mut self.log.lock().unwrap())
    }
    fn saw(&self, seen: Seen) {
        self.log.lock().unwrap().push(seen);
    }
}

simulated!(Logged);
#[allow(unsafe_code)]
// SAFETY: everything is the simulator's.
unsafe impl Around for Logged {
    type Inner = Sim;

    fn inner(&self) -> &Sim {
        &self.sim
    }
    unsafe fn clear(&self, pa: Pa, bytes: Bytes, caching: Caching) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.sim.clear(pa, bytes, caching) }
        self.saw(Seen::Cleared(pa, bytes.get()));
    }
    unsafe fn store(&self, pa: Pa, word: u64) {
        self.saw(Seen::Stored(word));
        // SAFETY: the caller's promise is passed on.
        unsafe { self.sim.store(pa, word) }
    }
    unsafe fn compare_exchange(&self, pa: Pa, old: u64, new: u64) -> Result<u64, u64> {
        self.saw(Seen::Stored(new));
        // SAFETY: the caller's promise is passed on.
        unsafe { self.sim.compare_exchange(pa, old, new) }
    }
    fn owned(&self, frames: FrameRange, owner: Owner) {
        if owner == Owner::User {
            self.saw(Seen::User(frames));
        }
        self.sim.owned(frames, owner);
    }
}

fn logged(megabytes: u64) -> World<Logged> {
    kept(Logged::new(sim(1, megabytes)), huge())
}

/// The address of the fault was once taken for the start of the folio, and another folio's memory
/// was cleared.
#[test]
fn tr_z1_the_folio_is_cleared_wherever_the_fault_is() {
    let (machine, mm, _over) = logged(32);
    let id = space(mm, 16);
    mm.describe_all().unwrap();
    mm.fault(id, Va::new(BASE + 6 * MB), Access::Write); // the upper tables
    for page in (0..512).step_by(3).chain([511]) {
        machine.taken();
        let va = Va::new(BASE + 2 * MB + page * 4096 + 8);
        assert_eq!(mm.fault(id, va, Access::Write), Outcome::Mapped(Order::SIZE_2M));
        let (start, mut cleared) = (frame_at(mm, id, BASE + 2 * MB).pa().get(), vec![0u8; 512]);
        for seen in machine.taken() {
            let Seen::Cleared(pa, bytes) = seen else { continue };
            if bytes == 4096 && (pa.get() < start || pa.get() >= start + 2 * MB) {
                continue; // the table kept for a split
            }
            for at in (pa.get()..pa.get() + bytes).step_by(4096) {
                let inside = at.checked_sub(start).filter(|at| *at < 2 * MB);
                cleared[(inside.expect("outside of the folio") / 4096) as usize] += 1;
            }
        }
        assert!(cleared.iter().all(|n| *n == 1), "page {page}: {cleared:?}");
        mm.unmap(id, range(BASE + 2 * MB, 2 * MB)).unwrap();
        area(mm, id, BASE + 2 * MB, 2 * MB);
    }
}

/// A folio was once cleared before its charge was refused, and lost.
#[test]
fn tr_z2_a_refused_charge_clears_nothing_and_loses_nothing() {
    let sim = sim(1, 32);
    let mm = manager(&sim, huge());
    let id = mm.create(Some(Pages::new(511))).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 4 * MB);
    mm.describe_all().unwrap();
    store(&sim, &mm, id, BASE + 2 * MB, 1); // the tables
    mm.clear_ahead(FOREVER);
    let (known, free) = (mm.known_zero(), mm.memory().free);
    let zeroed = mm.total(Event::ZeroedBytes);
    let fallbacks = mm.size_stats(Order::SIZE_2M).get(SizeEvent::AnonFaultFallbackCharge);
    assert_eq!(store(&sim, &mm, id, BASE + MB, 1), [Outcome::Mapped(Order::BASE)]);
    assert_eq!(
        mm.size_stats(Order::SIZE_2M).get(SizeEvent::AnonFaultFallbackCharge),
        fallbacks + 1
    );
    // What was cleared is the page at most; what was known of the block that went back still is.
    let zeroed = mm.total(Event::ZeroedBytes) - zeroed;
    assert!(zeroed <= 3 * 4096, "{zeroed} bytes cleared");
    assert!(known.get() - mm.known_zero().get() <= 3, "{known:?} became {:?}", mm.known_zero());
    let used = free.get() - mm.memory().free.get();
    assert!(used <= 3, "{used} pages used");
}

/// A folio that was cleared and lost its race goes back as what it is: zero.
#[test]
fn tr_z2_what_was_cleared_in_vain_stays_known() {
    let (machine, mm, _over) = meddled(2, 64, huge());
    let id = space(mm, 8);
    mm.describe_all().unwrap();
    machine.after_clearing(2 * MB - 3 * 4096, move || {
        mm.set_policy(Policy::BASE_ONLY);
        machine.sim.on(cpu(1), || {
            mm.online();
            mm.switch(Some(id)).unwrap();
            mm.fault(id, Va::new(BASE + 4096), Access::Write);
        });
    });
    assert_eq!(mm.fault(id, Va::new(BASE), Access::Write), Outcome::Mapped(Order::BASE));
    assert_eq!(mm.total(Event::LostRace), 1);
    assert_eq!(mm.total(Event::DroppedBytes), 2 * MB);
    assert!(mm.known_zero().get() >= 510, "{:?}", mm.known_zero());
}

/// A fault begins anew with the block that was cleared for it: what was too large before is not
/// tried again.
#[test]
fn what_was_too_large_before_a_block_is_cleared_is_counted_once() {
    let (sim, large, part) = (sim(1, 32), order(8), order(7));
    let mm = manager(&sim, Policy::always(Orders::of(large).with(Orders::of(part))));
    let id = space(&mm, 8);
    let halves = [mm.lend(part).unwrap(), mm.lend(part).unwrap()];
    let lent: Vec<Frame> = std::iter::from_fn(|| mm.lend(large).ok()).collect();
    mm.take_back(halves[0], part).unwrap();
    assert_eq!(mm.fault(id, Va::new(BASE), Access::Write), Outcome::Mapped(part));
    assert_eq!(mm.size_stats(large).get(SizeEvent::AnonFaultFallback), 1);
    assert_eq!(mm.total(Event::LostRace), 0);
    mm.take_back(halves[1], part).unwrap();
    lent.into_iter().for_each(|frame| mm.take_back(frame, large).unwrap());
}

/// With clearing in the allocator and in the fault, memory was cleared twice: cleared and spared
/// make up each folio once, whatever is set.
#[test]
fn tr_z3_each_byte_is_cleared_or_spared_once_with_every_option() {
    let grains =
        [ZeroGrain::WHOLE, ZeroGrain::PAGE, ZeroGrain::new(Bytes::new(192 << 10)).unwrap()];
    for grain in grains {
        for (far, radius) in [(Far::Measured, 2), (Far::Cached, 0), (Far::NonTemporal, 600)] {
            for ahead in [Nanos(0), Nanos(700_000), FOREVER] {
                for size in [0, 4, 9] {
                    each_byte_once((grain, far, radius), ahead, Order::new(size).unwrap());
                }
            }
        }
    }
}

fn each_byte_once((grain, far, radius): (ZeroGrain, Far, u64), ahead: Nanos, size: Order) {
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::always(Orders::of(size)));
    let (radius, usual) = (Pages::new(radius), Clearing::default());
    let clearing = Clearing { grain, far, radius, budget: Nanos(100_000), ..usual };
    mm.set_clearing(clearing);
    assert_eq!(mm.clearing(), clearing);
    let id = space(&mm, 8);
    mm.describe_all().unwrap();
    mm.clear_ahead(ahead);
    let total = || mm.total(Event::ZeroedBytes) + mm.total(Event::SparedBytes);
    let (before, tables) = (total(), mm.total(Event::TableMade));
    (0..8 * MB).step_by(4096).for_each(|at| drop(store(&sim, &mm, id, BASE + at, at)));
    let kept = if size == Order::SIZE_2M { 4 } else { 0 };
    let tables = mm.total(Event::TableMade) - tables + kept;
    assert_eq!(total() - before, 8 * MB + 4096 * tables, "{clearing:?} {ahead:?} {size:?}");
    (0..8 * MB).step_by(4096).for_each(|at| assert_eq!(load(&sim, &mm, id, BASE + at), at));
}

/// Nothing of a folio is published before its last byte is cleared. That a store past the caches is
/// ordered before what follows is the machine's promise, a law, and tested with the instructions.
#[test]
fn tr_z5_the_last_byte_is_cleared_before_the_folio_is_published() {
    for clearing in [
        Clearing::default(),
        Clearing { grain: ZeroGrain::PAGE, ..Clearing::default() },
        Clearing { budget: Nanos(20_000), far: Far::NonTemporal, ..Clearing::default() },
    ] {
        let (machine, mm, _over) = logged(32);
        mm.set_clearing(clearing);
        let id = space(mm, 4);
        mm.describe_all().unwrap();
        machine.taken();
        let outcome = mm.fault(id, Va::new(BASE + 300 * 4096), Access::Write);
        assert_eq!(outcome, Outcome::Mapped(Order::SIZE_2M));
        let start = frame_at(mm, id, BASE).pa().get();
        let log = machine.taken();
        let names = |seen: &Seen| match seen {
            Seen::Stored(word) => word & 0x000f_ffff_ffe0_0000 == start && word & 1 == 1,
            Seen::User(frames) => frames.start().pa().get() == start,
            Seen::Cleared(..) => false,
        };
        let clears = |seen: &Seen| match seen {
            Seen::Cleared(pa, _) => (start..start + 2 * MB).contains(&pa.get()),
            _ => false,
        };
        let published = log.iter().position(names).expect("the folio is published");
        let cleared = log.iter().rposition(clears).expect("the folio is cleared");
        assert!(cleared < published, "cleared at {cleared}, published at {published}");
        assert!(log.iter().filter(|seen| names(seen)).count() >= 2, "stated and stored");
    }
}

/// Fills the space page by page, and empties it.
fn fill(sim: &Sim, mm: &Mm<'_>, id: SpaceId, bytes: u64) {
    (0..bytes).step_by(4096).for_each(|at| drop(store(sim, mm, id, BASE + at, 7)));
    mm.unmap(id, range(BASE, bytes)).unwrap();
    area(mm, id, BASE, bytes);
}

/// Memory is filled, emptied, half of it cleared ahead, and filled again: half the bytes are
/// cleared.
#[test]
fn of_memory_half_of_which_is_known_to_be_zero_half_is_cleared() {
    for size in [Order::BASE, Order::new(4).unwrap(), Order::SIZE_2M] {
        let sim = sim(1, 64);
        let mm = manager(&sim, Policy::always(Orders::of(size)));
        let bytes = 56 * MB;
        let id = space(&mm, 56);
        mm.describe_all().unwrap();
        store(&sim, &mm, id, BASE, 0);
        fill(&sim, &mm, id, bytes);
        while mm.known_zero().bytes().get() < bytes / 2 {
            assert_eq!(mm.clear_ahead(Nanos(150_000)).stopped, Stopped::Budget);
        }
        let known = mm.known_zero().bytes().get();
        assert!(known < bytes / 2 + 2 * MB, "the budget bounds what is cleared: {known}");
        let counts = || [Event::ZeroedBytes, Event::SparedBytes].map(|event| mm.total(event));
        let [cleared, spared] = counts();
        let tables = mm.total(Event::TableMade);
        (0..bytes).step_by(4096).for_each(|at| drop(store(&sim, &mm, id, BASE + at, 8)));
        let [cleared, spared] = [counts()[0] - cleared, counts()[1] - spared];
        let kept = if size == Order::SIZE_2M { bytes / (2 * MB) } else { 0 };
        let tables = (mm.total(Event::TableMade) - tables + kept) * 4096;
        assert_eq!(cleared + spared, bytes + tables);
        // All that was known and is used again is spared; what is still known is still free.
        assert_eq!(spared, known - mm.known_zero().bytes().get(), "{size:?}");
        let half = bytes / 2;
        assert!(cleared.abs_diff(half) <= 3 * MB, "{size:?}: {cleared} cleared, {spared} spared");
        (0..bytes)
            .step_by(MB as usize)
            .for_each(|at| assert_eq!(load(&sim, &mm, id, BASE + at), 8));
    }
}

/// Memory that comes zeroed from the machine is not cleared for its first user, and is for its
/// second.
#[test]
fn fresh_memory_is_cleared_for_its_second_user_only() {
    let sim = sim(1, 32);
    let memory = sim.config().memory.clone();
    let setup = Setup {
        contents: Contents::Zero,
        added_below: Frame::new(1 << 20),
        ..Setup::of(&memory, huge())
    };
    let mm: Audited<'_, X86_64<4>> = audited(&sim, &setup);
    let id = space(&mm, 16);
    mm.describe_all().unwrap();
    let before = mm.total(Event::ZeroedBytes);
    (0..16 * MB).step_by(2 << 20).for_each(|at| drop(store(&sim, &mm, id, BASE + at, 7)));
    assert_eq!(mm.total(Event::ZeroedBytes), before);
    assert!(mm.total(Event::SparedBytes) >= 16 * MB);
    mm.unmap(id, range(BASE, 16 * MB)).unwrap();
    area(&mm, id, BASE, 16 * MB);
    let before = mm.total(Event::ZeroedBytes);
    let all = mm.memory().free.get() / 512;
    (0..all.min(8)).for_each(|n| drop(store(&sim, &mm, id, BASE + n * 2 * MB, 7)));
    assert!(mm.total(Event::ZeroedBytes) - before > MB);
}

#[test]
fn clearing_ahead_ends_when_all_is_known() {
    let sim = sim(1, 32);
    let mm = manager(&sim, huge());
    let free = mm.memory().free;
    let done = mm.clear_ahead(FOREVER);
    assert_eq!(done.stopped, Stopped::Done);
    assert_eq!((mm.known_zero().bytes(), mm.memory().free), (done.cleared, free));
    assert!(done.cleared.get() >= 28 * MB);
    assert_eq!(mm.clear_ahead(FOREVER).cleared, Bytes::new(0));
    assert_eq!(mm.clear_ahead(Nanos(0)).stopped, Stopped::Budget);
    let block = mm.lend_cleared(Order::SIZE_2M).unwrap();
    assert_eq!(mm.total(Event::SparedBytes), 2 * MB);
    mm.take_back(block, Order::SIZE_2M).unwrap();
    // A lent block may have been written to: it is not known any more.
    assert_eq!(mm.known_zero().bytes().get(), done.cleared.get() - 2 * MB);
    mm.audit(&[]).unwrap();
}

/// Compaction empties blocks whose free pages are known to hold zeros: of these it takes those that
/// it moves pages to, and of a block that becomes whole the others stay known.
#[test]
fn finding_ce_blocks_that_compaction_makes_whole_stay_known() {
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    mm.describe_all().unwrap();
    let id = space(&mm, 12);
    mm.clear_ahead(FOREVER);
    let page = |nth: u64| Va::new(BASE + nth * PAGE);
    // One page lies in a block of its own, the only one in use of it, and others have lost theirs.
    let alone = (0..).find(|nth| {
        mm.fault(id, page(*nth), Access::Write);
        *nth > 0 && frame_at(&mm, id, page(*nth).get()).get().is_multiple_of(512)
    });
    mm.unmap(id, row(alone.unwrap() - 200, 200)).unwrap();
    let known = mm.known_zero().get();
    let done = mm.compact(&CompactRequest::ALL, &mut []);
    assert!(done.blocks > 0, "{done:?}");
    let now = mm.known_zero().get();
    assert!(now + done.moved >= known, "{known} were known, {now} are, {} moved", done.moved);
}
