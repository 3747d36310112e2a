//! Watched pages: which writes are told, what lifts it, what keeps it and what ends it.

use crate::common::beside::Beside;
use crate::common::*;
use foliant::compact::CollapseError;
use foliant::fault::{FillError, FillWith, Orders, Unfilled};
use foliant::manager::{CollapseLimits, Setup};
use foliant::space::{Advice, Flags, Move, RangeError, SpaceId, Watch};
use foliant::split::SplitInto;
use foliant::table::{Aarch64, Attrs, Entry, Paging, Riscv64, X86_64};
use foliant::{Access, Event, Outcome, Policy};
use foliant_sim::{Config, Failing, Format, RiscvMode, Sim, X86Levels};
use foliant_units::{Bytes, Order, Pages, Va, VaRange};

fn at(nth: u64) -> u64 {
    BASE + nth * PAGE
}
fn told(nth: u64) -> Outcome {
    Outcome::UserfaultWrite(Va::new(at(nth)))
}
fn write(mm: &AnyMm<'_, impl Paging>, id: SpaceId, nth: u64) -> Outcome {
    mm.fault(id, Va::new(at(nth)), Access::Write)
}
/// Whether a store needed nothing but the entry, which a CPU may have cached as it was.
fn is_free(outcomes: &[Outcome]) -> bool {
    outcomes.iter().all(|outcome| *outcome == Outcome::Spurious)
}
/// What the entries of a page say: that it is watched, that it may be written to.
fn says(mm: &AnyMm<'_, impl Paging>, id: SpaceId, nth: u64) -> Option<(bool, bool)> {
    mm.with_leaves(id, page(nth), |mut leaves| match leaves.next()?.entry {
        Entry::Leaf { attrs, .. } => Some((attrs.has(Attrs::UFFD_WP), attrs.has(Attrs::WRITE))),
        _ => None,
    })
    .unwrap()
}
const WATCHED: Option<(bool, bool)> = Some((true, false));
const WRITABLE: Option<(bool, bool)> = Some((false, true));

/// A space that this CPU runs, with so many pages at `BASE` that are armed for writes, of which the
/// first are written to.
fn armed(sim: &Sim, mm: &AnyMm<'_, impl Paging>, count: u64, written: u64) -> SpaceId {
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    let whole = area(mm, id, BASE, count * PAGE);
    (0..written).for_each(|nth| drop(store(sim, mm, id, at(nth), nth)));
    mm.advise(id, whole, Advice::UserfaultWriteArm).unwrap();
    id
}

fn life<P: Paging>(format: Format, policy: Policy) {
    let sim = Sim::new(Config::seeded(2, Bytes::new(64 * MB), 3).with_format(format)).unwrap();
    let memory = sim.config().memory.clone();
    let mm: Audited<'_, P> = audited(&sim, &Setup::of(&memory, policy));
    let id = armed(&sim, &mm, 1024, 512);
    mm.watch(id, row(2, 4), Watch::Present).unwrap();
    for nth in 2..6 {
        assert_eq!(says(&mm, id, nth), WATCHED, "{format:?}");
        assert_eq!(load(&sim, &mm, id, at(nth)), nth);
        assert_eq!(store(&sim, &mm, id, at(nth), 9), [told(nth)], "{format:?}");
        assert_eq!(load(&sim, &mm, id, at(nth)), nth, "it is as it was");
    }
    for nth in [1, 6] {
        assert_eq!(says(&mm, id, nth), WRITABLE, "{format:?}");
        assert!(is_free(&store(&sim, &mm, id, at(nth), nth)));
    }
    // Lifted, it is written to without another fault.
    mm.watch(id, page(3), Watch::Nothing).unwrap();
    assert_eq!(says(&mm, id, 3), WRITABLE, "{format:?}");
    assert!(is_free(&store(&sim, &mm, id, at(3), 7)));
    assert_eq!(store(&sim, &mm, id, at(4), 9), [told(4)]);
    // Pages that are missing: nobody is told unless all are watched. Over the end of a table.
    store(&sim, &mm, id, at(700), 1);
    mm.watch(id, row(600, 8), Watch::Present).unwrap();
    assert_eq!(write(&mm, id, 600), Outcome::Mapped(Order::BASE), "no large folio is guessed");
    mm.watch(id, row(600, 424), Watch::All).unwrap();
    mm.watch(id, row(600, 424), Watch::All).unwrap();
    assert_eq!(says(&mm, id, 600), WATCHED);
    assert_eq!(says(&mm, id, 601), None);
    assert_eq!(write(&mm, id, 601), told(601));
    assert_eq!(says(&mm, id, 601), None, "nothing came");
    assert_eq!(load(&sim, &mm, id, at(601)), 0);
    assert_eq!(says(&mm, id, 601), WATCHED, "zeros");
    assert_eq!(write(&mm, id, 601), told(601));
    mm.watch(id, row(601, 2), Watch::Nothing).unwrap();
    assert_eq!(store(&sim, &mm, id, at(601), 1), [Outcome::Mapped(Order::BASE)]);
    assert_eq!(store(&sim, &mm, id, at(602), 2), [Outcome::Mapped(Order::BASE)]);
    assert_eq!(write(&mm, id, 603), told(603));
    // All of it ends.
    mm.advise(id, row(0, 1024), Advice::UserfaultWriteDisarm).unwrap();
    let flags = mm.area(id, Va::new(at(603))).unwrap().flags;
    assert_eq!(flags, Flags::READ_WRITE);
    for nth in [2, 600] {
        assert!(is_free(&store(&sim, &mm, id, at(nth), nth)), "{format:?}");
    }
    assert!(matches!(write(&mm, id, 603), Outcome::Mapped(_)));
}

#[test]
fn writes_to_watched_pages_are_told_until_that_is_lifted() {
    for policy in [Policy::BASE_ONLY, only(4), only(9)] {
        life::<X86_64<4>>(Format::X86_64(X86Levels::Four), policy);
        life::<Aarch64>(Format::Aarch64, policy);
    }
    life::<X86_64<5>>(Format::X86_64(X86Levels::Five), only(4));
}

#[test]
fn a_format_without_a_bit_for_it_is_not_armed() {
    let format = Format::Riscv64(RiscvMode::Sv48);
    let sim = Sim::new(Config::seeded(1, Bytes::new(64 * MB), 3).with_format(format)).unwrap();
    let memory = sim.config().memory.clone();
    let mm: Audited<'_, Riscv64<4>> = audited(&sim, &Setup::of(&memory, Policy::BASE_ONLY));
    let id = mm.create(None).unwrap();
    let whole = area(&mm, id, BASE, 8 * PAGE);
    let done = mm.advise(id, whole, Advice::UserfaultWriteArm);
    assert_eq!(done, Err(RangeError::Hole(whole.start())));
    assert_eq!(mm.area(id, whole.start()).unwrap().flags, Flags::READ_WRITE);
}

#[test]
fn what_is_not_armed_for_writes_is_not_watched() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = armed(&sim, &mm, 8, 8);
    mm.advise(id, row(6, 2), Advice::UserfaultWriteDisarm).unwrap();
    mm.advise(id, row(6, 2), Advice::UserfaultArm).unwrap();
    let hole = |nth| Err(RangeError::Hole(Va::new(at(nth))));
    for watch in [Watch::Present, Watch::All, Watch::Nothing] {
        assert_eq!(mm.watch(id, row(4, 4), watch), hole(6), "{watch:?}");
        assert_eq!(mm.watch(id, row(7, 4), watch), hole(7));
        assert_eq!(mm.watch(id, row(0, 0), watch), Err(RangeError::Empty));
    }
    assert_eq!(says(&mm, id, 4), WRITABLE, "nothing changed");
    mm.unmap(id, page(3)).unwrap();
    assert_eq!(mm.watch(id, row(2, 2), Watch::All), hole(3));
    let fill = |nth, with| mm.fill(id, Va::new(at(nth)), with);
    mm.advise(id, page(6), Advice::DontNeed).unwrap();
    let unarmed = FillError::Unarmed(Va::new(at(6)));
    let watched = fill(6, FillWith::Watched(&[[1; PAGE as usize]]));
    assert_eq!(watched, Err(Unfilled { done: Bytes::new(0), why: unarmed }));
    mm.switch(None).unwrap();
    mm.end(id).unwrap();
    assert_eq!(mm.watch(id, page(0), Watch::All), Err(RangeError::NoSpace));
}

/// Both kinds of faults are told: what is missing comes first.
#[test]
fn what_is_filled_may_be_watched_from_the_start() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = armed(&sim, &mm, 16, 0);
    let fill = |nth, with| mm.fill(id, Va::new(at(nth)), with);
    let contents = [[5; PAGE as usize]];
    // Where writes alone are told a handler may fill too.
    assert_eq!(fill(0, FillWith::Watched(&contents)), Ok(()));
    assert_eq!(store(&sim, &mm, id, at(0), 9), [told(0)]);
    assert_eq!(load(&sim, &mm, id, at(0)), u64::from_ne_bytes([5; 8]));
    mm.advise(id, row(0, 16), Advice::UserfaultArm).unwrap();
    mm.watch(id, row(0, 8), Watch::All).unwrap();
    for (nth, access) in [(1, Access::Read), (1, Access::Write), (9, Access::Write)] {
        let missing = Outcome::Userfault(Va::new(at(nth)));
        assert_eq!(mm.fault(id, Va::new(at(nth)), access), missing);
    }
    let present = FillError::Present(Va::new(at(1)));
    let zeros = fill(1, FillWith::Zeros(Pages::new(1)));
    assert_eq!(zeros, Err(Unfilled { done: Bytes::new(0), why: present }), "as in Linux");
    assert_eq!(fill(1, FillWith::Copy(&contents)), Ok(()));
    assert_eq!(says(&mm, id, 1), WRITABLE);
    assert_eq!(fill(2, FillWith::Watched(&contents)), Ok(()));
    assert_eq!(store(&sim, &mm, id, at(2), 9), [told(2)]);
    assert_eq!(fill(9, FillWith::Zeros(Pages::new(1))), Ok(()));
    mm.watch(id, page(9), Watch::Present).unwrap();
    assert_eq!(store(&sim, &mm, id, at(9), 9), [told(9)]);
    mm.watch(id, page(9), Watch::Nothing).unwrap();
    assert_eq!(store(&sim, &mm, id, at(9), 9), [Outcome::Mapped(Order::BASE)]);
}

/// Other rights, a fork and what is forgotten keep it; the child has none of it.
#[test]
fn what_keeps_a_watch() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = armed(&sim, &mm, 8, 4);
    mm.watch(id, row(0, 6), Watch::All).unwrap();
    mm.protect(id, row(0, 8), Flags::READ).unwrap();
    assert!(matches!(write(&mm, id, 0), Outcome::Refused(_)));
    mm.watch(id, page(1), Watch::Nothing).unwrap();
    assert_eq!(says(&mm, id, 1), Some((false, false)), "the area does not allow it");
    mm.watch(id, page(1), Watch::Present).unwrap();
    mm.protect(id, row(0, 8), Flags::READ_WRITE).unwrap();
    assert_eq!(says(&mm, id, 0), WATCHED);
    mm.clear_refs(id, row(0, 8), foliant::space::Refs::SoftDirty).unwrap();
    let child = mm.fork(id).unwrap();
    for nth in [0, 3, 4] {
        assert_eq!(write(&mm, id, nth), told(nth));
    }
    assert_eq!(write(&mm, id, 6), Outcome::Mapped(Order::BASE));
    assert_eq!(mm.area(child, Va::new(BASE)).unwrap().flags, Flags::READ_WRITE);
    assert_eq!(says(&mm, child, 0), Some((false, false)));
    mm.switch(Some(child)).unwrap();
    assert_eq!(load(&sim, &mm, child, at(3)), 3);
    assert_eq!(store(&sim, &mm, child, at(3), 9), [Outcome::Copied]);
    assert_eq!(store(&sim, &mm, child, at(4), 9), [Outcome::Mapped(Order::BASE)], "no marker");
    mm.switch(Some(id)).unwrap();
    mm.end(child).unwrap();
    // What was shared is written to behind the lift, by a fault; a missing page is as before.
    mm.watch(id, row(0, 8), Watch::Nothing).unwrap();
    assert_eq!(store(&sim, &mm, id, at(0), 5), [Outcome::Reused]);
    assert_eq!(load(&sim, &mm, id, at(3)), 3);
    // A child has nothing of missing pages that are told either.
    mm.advise(id, row(0, 8), Advice::UserfaultArm).unwrap();
    let child = mm.fork(id).unwrap();
    assert_eq!(write(&mm, child, 7), Outcome::Mapped(Order::BASE));
    assert_eq!(write(&mm, id, 7), Outcome::Userfault(Va::new(at(7))));
    mm.end(child).unwrap();
}

#[test]
fn what_ends_a_watch() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = armed(&sim, &mm, 16, 8);
    mm.watch(id, row(0, 16), Watch::All).unwrap();
    // Contents that are dropped, and a marker.
    for nth in [0, 9] {
        mm.advise(id, page(nth), Advice::DontNeed).unwrap();
        assert_eq!(write(&mm, id, nth), Outcome::Mapped(Order::BASE));
    }
    // A guard takes the place of a marker and of a page.
    mm.advise(id, row(7, 2), Advice::GuardInstall).unwrap();
    assert!(matches!(write(&mm, id, 8), Outcome::Refused(_)));
    mm.advise(id, row(7, 2), Advice::GuardRemove).unwrap();
    assert_eq!(write(&mm, id, 7), Outcome::Mapped(Order::BASE));
    assert_eq!(write(&mm, id, 8), Outcome::Mapped(Order::BASE));
    // A move: its handler knows the old addresses. What grows stays armed.
    let to = Va::new(BASE + (1 << 30));
    mm.remap(id, row(12, 4), Bytes::new(6 * PAGE), Move::Never).unwrap();
    assert_eq!(write(&mm, id, 12), told(12));
    let moved = mm.remap(id, row(2, 12), Bytes::new(12 * PAGE), Move::To(to)).unwrap();
    assert_eq!(mm.area(id, to).unwrap().flags, Flags::READ_WRITE);
    assert_eq!(load(&sim, &mm, id, to.get()), 2);
    assert_eq!(store(&sim, &mm, id, to.get(), 5), [Outcome::Reused]);
    let missing = moved.start().add(8 * PAGE);
    assert_eq!(mm.fault(id, missing, Access::Write), Outcome::Mapped(Order::BASE), "no marker");
    assert_eq!(write(&mm, id, 14), told(14));
}

/// A leaf of 2 MiB is watched as one; a part of it, or a part that is lifted, splits it. Large
/// folios that are split and moved stay watched, and none is made.
#[test]
fn large_folios_are_watched() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::always(Orders::of(Order::SIZE_2M)));
    let id = armed(&sim, &mm, 1024, 1);
    let leaves = |part: VaRange| mm.with_leaves(id, part, |leaves| leaves.count()).unwrap();
    let whole = row(0, 512);
    assert_eq!(leaves(whole), 1);
    mm.watch(id, row(0, 1024), Watch::All).unwrap();
    assert_eq!(leaves(whole), 1);
    assert_eq!((write(&mm, id, 7), write(&mm, id, 700)), (told(7), told(700)));
    mm.watch(id, whole, Watch::Nothing).unwrap();
    assert_eq!(leaves(whole), 1);
    assert_eq!(store(&sim, &mm, id, at(9), 9), []);
    // What is not watched stays whole where a part of it is lifted.
    mm.watch(id, page(3), Watch::Nothing).unwrap();
    assert_eq!(leaves(whole), 1);
    mm.watch(id, page(3), Watch::Present).unwrap();
    assert_eq!(leaves(whole), 512);
    assert_eq!(store(&sim, &mm, id, at(3), 9), [told(3)]);
    assert_eq!(store(&sim, &mm, id, at(4), 9), []);
    mm.watch(id, whole, Watch::Present).unwrap();
    let collapse = || mm.collapse(id, Va::new(BASE), Order::SIZE_2M, CollapseLimits::NONE);
    assert_eq!(collapse(), Err(CollapseError::Unsuitable(Va::new(BASE))));
    // The folio itself, split into pages, one of which is moved.
    mm.split(id, Va::new(BASE), SplitInto::BASE).unwrap();
    mm.relocate(mm.frame_at(id, Va::new(at(3))).unwrap()).unwrap();
    for nth in [0, 3, 511] {
        assert_eq!(says(&mm, id, nth), WATCHED, "{nth}");
        assert_eq!(store(&sim, &mm, id, at(nth), 1), [told(nth)]);
    }
    mm.advise(id, row(0, 1024), Advice::UserfaultWriteDisarm).unwrap();
    assert_eq!(collapse(), Ok(()), "it is as any memory again");
}

/// One shootdown for a whole range, and none where nothing changes.
#[test]
fn a_watch_is_one_flush() {
    let sim = sim(2, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = armed(&sim, &mm, 1024, 600);
    sim.on(cpu(1), || {
        mm.online();
        mm.switch(Some(id)).unwrap();
        (0..600).for_each(|nth| drop(store(&sim, &mm, id, at(nth), nth)));
    });
    let shootdowns = |watch| {
        let before = mm.total(Event::Shootdown);
        mm.watch(id, row(0, 1024), watch).unwrap();
        mm.total(Event::Shootdown) - before
    };
    assert_eq!(shootdowns(Watch::All), 1);
    sim.on(cpu(1), || assert_eq!(store(&sim, &mm, id, at(5), 9), [told(5)]));
    assert_eq!(shootdowns(Watch::Present), 0);
    assert_eq!(shootdowns(Watch::Nothing), 0, "more rights need none");
    sim.on(cpu(1), || drop(store(&sim, &mm, id, at(5), 9)));
    assert_eq!(load(&sim, &mm, id, at(5)), 9);
}

/// Room for markers: without a frame for a table nothing is watched, and the next try succeeds.
#[test]
fn a_watch_without_memory_watches_nothing() {
    for k in 1.. {
        let sim = sim(1, 32);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let id = armed(&sim, &mm, 2048, 4);
        sim.fault_plan().set(Failing::Kth(k));
        let done = mm.watch(id, row(0, 2048), Watch::All);
        let refused = sim.fault_plan().refused();
        sim.fault_plan().set(Failing::Nothing);
        if refused == 0 {
            assert_eq!((done, k > 3), (Ok(()), true));
            return;
        }
        assert_eq!(done, Err(RangeError::NoMemory), "k = {k}");
        assert_eq!(says(&mm, id, 0), WRITABLE);
        mm.watch(id, row(0, 2048), Watch::All).unwrap();
        assert_eq!(write(&mm, id, 2047), told(2047));
    }
}
/// The same for a limit, which is asked before the first table comes.
#[test]
fn a_watch_stays_below_the_limit() {
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(Some(Pages::new(9))).unwrap();
    let whole = area(&mm, id, BASE, 8 * SIZE_2M);
    mm.advise(id, whole, Advice::UserfaultWriteArm).unwrap();
    let records = mm.records(id);
    let over = Err(RangeError::OverLimit(Pages::new(9)));
    assert_eq!(mm.watch(id, whole, Watch::All), over);
    assert_eq!(mm.records(id), records, "no table came");
    assert_eq!(mm.watch(id, whole, Watch::Present), Ok(()), "needs none");
}

/// A program writes before each step of a watch: it is told, or what it wrote is there.
#[test]
fn a_write_beside_a_watch() {
    for (nth, watch) in [(2, Watch::Present), (5, Watch::All)] {
        for step in 1.. {
            let beside = Beside::new(sim(2, 16));
            let mm = beside.manager(Policy::BASE_ONLY);
            let id = armed(&beside.sim, &mm, 8, 4);
            beside.sim.on(cpu(1), || {
                mm.online();
                mm.switch(Some(id)).unwrap();
            });
            let write = || drop(store(&beside.sim, &mm, id, at(nth), 77));
            let go = || {
                mm.watch(id, row(0, 8), watch).unwrap();
                load(&beside.sim, &mm, id, at(nth))
            };
            let Some(first) = beside.before_step(step, write, go) else {
                assert!(step > 5);
                break;
            };
            let second = store(&beside.sim, &mm, id, at(nth), 99);
            assert_eq!(second, [told(nth)], "{watch:?}, step {step}");
            assert_eq!(load(&beside.sim, &mm, id, at(nth)), first, "{watch:?}, step {step}");
        }
    }
}
