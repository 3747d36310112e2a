//! What programs seldom do and nothing else here did: stacks that grow, switches over a fork,
//! advice taken back, a freeze that a pin refuses, and other things of which each had code and no
//! test that failed without it.
#![allow(unsafe_code)]

use crate::common::beside::Beside;
use crate::common::meddler::Meddler;
use crate::common::recorder::Step;
use crate::common::*;
use foliant::compact::CollapseError;
use foliant::fault::{Orders, ProcessSwitch, Refusal};
use foliant::frame::Flag;
use foliant::manager::{CollapseLimits, KernelMapError, Poisoned, UserMapError};
use foliant::memmap::{Batch, Folded, Form, MemmapError, Released};
use foliant::space::{Advice, Flags, MapError, Move, Place, RangeError, RemapError, SpaceId};
use foliant::split::{Pieces, Shrink, Shrunk, SplitError, SplitInto, ZeroPieces};
use foliant::table::{Aarch64, Attrs, Entry, Found, Paging, X86_64};
use foliant::vmap::{Controls, Request, VmapError};
use foliant::zero::Stopped;
use foliant::{Access, Event, Outcome, Policy, SizeEvent};
use foliant_machine::{Invalidation, Item, PhysMem, Reach, Tables};
use foliant_sim::{Clearing, Config, Failing, Format, Sim, X86Levels};
use foliant_units::{Bytes, Frame, FrameRange, Level, Nanos, Order, Pages, Va, VaRange};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

fn head(mm: &Mm<'_>, id: SpaceId, va: u64) -> Frame {
    let frame = mm.frame_at(id, Va::new(va)).unwrap();
    mm.identity(frame).head(frame)
}
/// A space of pages, each with a word of its own, that runs here.
fn filled(sim: &Sim, mm: &Mm<'_>, bytes: u64, pages: u64) -> SpaceId {
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(mm, id, BASE, bytes);
    for nth in 0..pages {
        store(sim, mm, id, BASE + nth * PAGE, 1000 + nth);
    }
    id
}
fn check(sim: &Sim, mm: &Mm<'_>, id: SpaceId, pages: u64) {
    for nth in 0..pages {
        assert_eq!(load(sim, mm, id, BASE + nth * PAGE), 1000 + nth, "page {nth}");
    }
}

// Areas that grow where they are.

/// Only the end of an area grows in place, and only into addresses that nothing has.
#[test]
fn an_area_grows_in_place_at_its_end_alone() {
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = filled(&sim, &mm, 16 * PAGE, 16);
    let grow = |old: VaRange, to: u64, how| mm.remap(id, old, Bytes::new(to * PAGE), how);
    let no_room = |to: u64| Err(RemapError::Map(MapError::NoRoom(Bytes::new(to * PAGE))));
    assert_eq!(grow(row(4, 4), 8, Move::Never), no_room(8), "from the middle");
    assert_eq!(grow(row(12, 4), 8, Move::Never), Ok(row(12, 8)));
    assert_eq!(mm.area(id, Va::new(BASE)).unwrap().range, row(0, 20), "it is one area");
    assert_eq!(grow(row(0, 20), 24, Move::MayMove), Ok(row(0, 24)), "it need not move");
    let behind = map_at(&mm, id, BASE + 26 * PAGE, Flags::READ);
    assert_eq!(grow(row(0, 24), 27, Move::Never), no_room(27), "something is there");
    assert_eq!(grow(row(0, 24), 26, Move::Never), Ok(row(0, 26)), "up to it");
    let moved = grow(row(20, 6), 8, Move::MayMove).unwrap();
    assert!(!moved.overlaps(row(0, 26)) && !moved.overlaps(behind), "{moved:?}");
    assert_eq!(mm.area(id, Va::new(BASE)).unwrap().range, row(0, 20));
    check(&sim, &mm, id, 16);
}

// Stacks.

const GAP: u64 = 256 * PAGE;
const REACH: u64 = 1 << 30;

fn map_at(mm: &Mm<'_>, id: SpaceId, start: u64, flags: Flags) -> VaRange {
    let place = Place::NoReplace(Va::new(start));
    mm.map(id, &request(place, 16 * PAGE, flags)).unwrap()
}

#[test]
fn a_stack_grows_to_the_page_that_is_touched() {
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    let stack = map_at(&mm, id, BASE + REACH, Flags::READ_WRITE.with(Flags::GROWS_DOWN));
    let lowest = stack.end().get() - REACH;
    for (va, grows) in [
        (stack.start().get() - 1, true),
        (stack.start().get() - 40 * PAGE + 8, true),
        (lowest, true),
        (lowest - 1, false),
    ] {
        let before = mm.area(id, stack.start()).unwrap();
        let outcome = mm.fault(id, Va::new(va), Access::Write);
        let after = mm.area(id, stack.start()).unwrap();
        assert_eq!(after.range.end(), stack.end());
        match grows {
            true => {
                assert_eq!(outcome, Outcome::Mapped(Order::BASE), "{va:#x}");
                assert_eq!(after.range.start().get(), va / PAGE * PAGE, "one area, to that page");
                assert_eq!((after.flags, after.tag), (before.flags, before.tag));
            }
            false => {
                let page = Va::new(va / PAGE * PAGE);
                assert_eq!(outcome, Outcome::Refused(Refusal::NoArea(page)));
                assert_eq!(after, before);
            }
        }
    }
}

#[test]
fn a_stack_keeps_a_gap_of_256_pages() {
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    let below = map_at(&mm, id, BASE, Flags::READ_WRITE);
    let stack = map_at(&mm, id, BASE + 8 * MB, Flags::READ_WRITE.with(Flags::GROWS_DOWN));
    let start = || mm.area(id, stack.start()).unwrap().range.start();
    let nearest = below.end().add(GAP);
    let nearer = Va::new(nearest.get() - PAGE);
    let no_area = |va| Outcome::Refused(Refusal::NoArea(va));
    assert_eq!(mm.fault(id, nearer, Access::Write), no_area(nearer));
    assert_eq!(start(), stack.start());
    assert_eq!(mm.fault(id, nearest, Access::Write), Outcome::Mapped(Order::BASE));
    assert_eq!(start(), nearest);
    assert_eq!(mm.fault(id, nearer, Access::Write), no_area(nearer));
    assert_eq!(start(), nearest);
    // What does not grow downwards is not extended, however much room there is.
    let room = Va::new(below.start().get() - PAGE);
    assert_eq!(mm.fault(id, room, Access::Write), no_area(room));
    mm.unmap(id, below).unwrap();
    assert_eq!(mm.fault(id, nearer, Access::Write), Outcome::Mapped(Order::BASE));
    assert_eq!(start(), nearer);
}

/// Two CPUs touch the gap below a stack. Who comes second finds the page in it.
#[test]
fn a_stack_grows_for_two_cpus_at_once() {
    for nth in 1.. {
        let machine = Beside::new(sim(2, 32));
        let mm = machine.manager(Policy::BASE_ONLY);
        mm.cpus().for_each(|cpu| machine.sim.on(cpu, || mm.online()));
        let id = mm.create(None).unwrap();
        let flags = Flags::READ_WRITE.with(Flags::GROWS_DOWN);
        let stack = mm.map(id, &request(Place::NoReplace(Va::new(BASE)), PAGE, flags)).unwrap();
        let touch = |pages: u64| {
            let va = Va::new(stack.start().get() - pages * PAGE);
            assert_eq!(mm.fault(id, va, Access::Write), Outcome::Mapped(Order::BASE), "step {nth}");
        };
        let met = machine.before_step(nth, || touch(8), || touch(1));
        if met.is_none() {
            assert!(nth > 20, "a fault of {nth} steps");
            return;
        }
        assert_eq!(mm.area(id, stack.start()).unwrap().range.start().get(), BASE - 8 * PAGE);
    }
}

// The switch of one process.

#[test]
fn the_switch_of_a_process_goes_to_its_children_and_to_nobody_else() {
    let sim = sim(1, 32);
    let mm = manager(&sim, only(4));
    let parent = mm.create(None).unwrap();
    area(&mm, parent, BASE, MB);
    // A folio of its own each time: the range of the last one is not empty any more.
    let at = |nth: u64| Va::new(BASE + nth * 16 * PAGE);
    let order_of = |id, nth| match mm.fault(id, at(nth), Access::Write) {
        Outcome::Mapped(order) => order.get(),
        other => panic!("{other:?}"),
    };
    assert_eq!(order_of(parent, 0), 4);
    mm.set_process_switch(parent, ProcessSwitch::Off).unwrap();
    assert_eq!(order_of(parent, 1), 0);
    let child = mm.fork(parent).unwrap();
    assert_eq!((order_of(child, 2), order_of(parent, 2)), (0, 0));
    let limits = CollapseLimits::NONE;
    assert_eq!(
        mm.collapse(child, Va::new(BASE), Order::SIZE_2M, limits),
        Err(CollapseError::Unsuitable(Va::new(BASE)))
    );
    mm.set_process_switch(child, ProcessSwitch::On).unwrap();
    assert_eq!((order_of(child, 3), order_of(parent, 3)), (4, 0));
    let grandchild = mm.fork(child).unwrap();
    assert_eq!((order_of(grandchild, 4), order_of(parent, 4)), (4, 0));
    mm.set_process_switch(parent, ProcessSwitch::On).unwrap();
    mm.set_process_switch(grandchild, ProcessSwitch::Off).unwrap();
    assert_eq!((order_of(parent, 5), order_of(child, 5), order_of(grandchild, 5)), (4, 4, 0));
}

// Advice that takes back advice.

#[test]
fn the_later_advice_on_folio_sizes_counts() {
    let sim = sim(1, 32);
    let policy = Policy { madvise: Orders::of(order(4)), ..only(2) };
    let mm = manager(&sim, policy);
    let id = mm.create(None).unwrap();
    let whole = area(&mm, id, BASE, MB);
    let wishes = Flags::HUGEPAGE.with(Flags::NOHUGEPAGE);
    let steps = [
        (None, Flags::NONE, 2),
        (Some(Advice::HugePage), Flags::HUGEPAGE, 4),
        (Some(Advice::NoHugePage), Flags::NOHUGEPAGE, 0),
        (Some(Advice::HugePage), Flags::HUGEPAGE, 4),
    ];
    for (nth, (advice, wish, expected)) in (0..).zip(steps) {
        if let Some(advice) = advice {
            mm.advise(id, whole, advice).unwrap();
        }
        let now = mm.area(id, whole.start()).unwrap();
        assert_eq!((now.flags.and(wishes), now.range), (wish, whole), "{advice:?}");
        let outcome = mm.fault(id, Va::new(BASE + nth * 16 * PAGE), Access::Write);
        assert_eq!(outcome, Outcome::Mapped(order(expected)), "{advice:?}");
    }
}

#[test]
fn advice_over_a_hole_is_refused() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = filled(&sim, &mm, 16 * PAGE, 16);
    let hole = Va::new(BASE + 4 * PAGE);
    mm.unmap(id, range(hole.get(), PAGE)).unwrap();
    for advice in [
        Advice::HugePage,
        Advice::NoHugePage,
        Advice::UserfaultArm,
        Advice::UserfaultDisarm,
        Advice::DontNeed,
        Advice::Free,
        Advice::GuardInstall,
        Advice::GuardRemove,
        Advice::PopulateRead,
        Advice::PopulateWrite,
    ] {
        let done = mm.advise(id, range(BASE, 16 * PAGE), advice);
        assert_eq!(done, Err(RangeError::Hole(hole)), "{advice:?}");
    }
    assert_eq!(mm.anonymous(), Pages::new(15), "nothing was dropped");
}

/// The entries of a folio lie in two tables. Those of one do not tell whether others have it, so
/// the page is copied though nobody has.
#[test]
fn a_folio_in_two_tables_is_copied_although_nobody_shares_it() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::always(Orders::of(Order::new(4).unwrap())));
    let id = filled(&sim, &mm, 16 * PAGE, 16);
    let to = Va::new(BASE + 4 * SIZE_2M - 8 * PAGE);
    mm.remap(id, range(BASE, 16 * PAGE), Bytes::new(16 * PAGE), Move::To(to)).unwrap();
    let child = mm.fork(id).unwrap();
    mm.end(child).unwrap();
    for page in [0, 8, 15] {
        let done = mm.fault(id, to.add(page * PAGE), Access::Write);
        assert_eq!(done, Outcome::Copied, "page {page}");
    }
}

#[test]
fn pages_that_were_handed_to_the_program_are_the_managers_again() {
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    let whole = area(&mm, id, BASE, 16 * PAGE);
    let part = range(BASE + 4 * PAGE, 4 * PAGE);
    mm.advise(id, part, Advice::UserfaultArm).unwrap();
    assert_eq!(mm.area(id, part.start()).unwrap().range, part);
    assert_eq!(mm.fault(id, part.start(), Access::Write), Outcome::Userfault(part.start()));
    mm.advise(id, part, Advice::UserfaultDisarm).unwrap();
    let now = mm.area(id, part.start()).unwrap();
    assert_eq!((now.range, now.flags), (whole, Flags::READ_WRITE), "one area as before");
    assert_eq!(mm.fault(id, part.start(), Access::Write), Outcome::Mapped(Order::BASE));
}

/// Some guards of a row, which lies in two tables, are taken out: those pages are empty, the other
/// guards stay, and so does a page between them that has none.
#[test]
fn guards_go_where_they_are_taken_out_and_nowhere_else() {
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    let start = BASE + SIZE_2M - 8 * PAGE;
    let at = |nth: u64| range(start + nth * PAGE, PAGE);
    area(&mm, id, start, 16 * PAGE);
    mm.advise(id, range(start, 16 * PAGE), Advice::GuardInstall).unwrap();
    mm.advise(id, at(7), Advice::GuardRemove).unwrap();
    store(&sim, &mm, id, at(7).start().get(), 77);
    mm.advise(id, range(start + 5 * PAGE, 6 * PAGE), Advice::GuardRemove).unwrap();
    for nth in 0..16 {
        let va = at(nth).start();
        let expected = match nth {
            7 => Outcome::Spurious,
            5..11 => Outcome::Mapped(Order::BASE),
            _ => Outcome::Refused(Refusal::Guard(va)),
        };
        assert_eq!(mm.fault(id, va, Access::Write), expected, "page {nth}");
    }
    assert_eq!(load(&sim, &mm, id, at(7).start().get()), 77);
}

// A freeze that is refused.

/// Runs `act` when the `nth` request from now on, counted from 0, is about to be made.
fn at_request(machine: &'static Meddler, nth: u64, act: impl FnOnce() + Send + 'static) {
    machine.before_asking(move || match nth {
        0 => act(),
        _ => at_request(machine, nth - 1, act),
    });
}
/// A meddled machine on which CPU 1 runs the space as well.
fn shared(policy: Policy, pages: u64) -> (&'static Meddler, &'static Mm<'static>, SpaceId, Over) {
    let (machine, mm, kept) = meddled(2, 64, policy);
    let id = filled(&machine.sim, mm, 4 * MB, pages);
    machine.sim.on(cpu(1), || {
        mm.online();
        mm.switch(Some(id)).unwrap();
        check(&machine.sim, mm, id, pages);
    });
    (machine, mm, id, kept)
}

#[test]
fn a_split_that_a_pin_refuses_is_done_when_it_is_let_go() {
    let (machine, mm, id, _over) = shared(only(4), 16);
    let head = head(mm, id, BASE);
    let pin: &'static std::sync::Mutex<_> = Box::leak(Box::new(std::sync::Mutex::new(None)));
    at_request(machine, 0, move || *pin.lock().unwrap() = mm.reference(head));
    let split = || mm.split(id, Va::new(BASE), SplitInto::BASE);
    assert_eq!(split(), Err(SplitError::Pinned(head)));
    assert!(pin.lock().unwrap().is_some());
    let identity = mm.identity(head);
    assert_eq!((identity.order(), identity.has(Flag::Locked)), (order(4), false));
    assert_eq!(split(), Err(SplitError::Pinned(head)), "while it is held");
    check(&machine.sim, mm, id, 16);
    pin.lock().unwrap().take();
    let pieces = Pieces { order: order(4), folios: 16, unmapped: 0, zero: 0 };
    assert_eq!(split(), Ok(pieces));
    check(&machine.sim, mm, id, 16);
}

/// Pages of a collapse are frozen one by one. A pin of one in the middle stops it; those before it
/// are what they were, and can be moved, collapsed and split.
#[test]
fn a_collapse_that_a_pin_refuses_leaves_no_page_frozen() {
    const PINNED: u64 = 300;
    let collapse =
        |mm: &Mm<'_>, id| mm.collapse(id, Va::new(BASE), Order::SIZE_2M, CollapseLimits::NONE);
    let (_, mm, id, _over) = shared(Policy::BASE_ONLY, 512);
    let before = mm.total(Event::Shootdown);
    collapse(mm, id).unwrap();
    let requests = mm.total(Event::Shootdown) - before;

    // All pages are in their places when the last request but that of the merge is made, but for
    // those of the last batch.
    let (machine, mm, id, _over) = shared(Policy::BASE_ONLY, 512);
    let pin: &'static std::sync::Mutex<_> = Box::leak(Box::new(std::sync::Mutex::new(None)));
    at_request(machine, requests - 2, move || {
        let frame = mm.frame_at(id, page(PINNED).start()).unwrap();
        *pin.lock().unwrap() = mm.reference(frame);
    });
    assert_eq!(collapse(mm, id), Err(CollapseError::Changed(Va::new(BASE))));
    let first = mm.frame_at(id, Va::new(BASE)).unwrap();
    let pinned = pin.lock().unwrap().take().expect("it was pinned on the way");
    assert_eq!(pinned.head(), first.add(Pages::new(PINNED)), "in its place");
    mm.audit(&[id]).unwrap();
    for nth in 0..512 {
        let frame = mm.frame_at(id, page(nth).start()).unwrap();
        let identity = mm.identity(frame);
        assert_eq!((identity.order(), identity.has(Flag::Locked)), (Order::BASE, false));
        let moved = mm.relocate(frame);
        assert_eq!(moved.is_ok(), nth != PINNED, "page {nth}: {moved:?}");
    }
    check(&machine.sim, mm, id, 512);
    drop(pinned);
    collapse(mm, id).unwrap();
    let pieces = Pieces { order: order(9), folios: 32, unmapped: 0, zero: 0 };
    let into = SplitInto { order: order(4), zeros: ZeroPieces::Keep };
    assert_eq!(mm.split(id, Va::new(BASE), into), Ok(pieces));
    check(&machine.sim, mm, id, 512);
}

// Folios that wait to be split.

#[test]
fn a_folio_that_pages_collapsed_into_waits_to_be_looked_at() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = filled(&sim, &mm, 4 * MB, 3);
    assert_eq!(mm.deferred(), 0);
    mm.collapse(id, Va::new(BASE), Order::SIZE_2M, CollapseLimits::NONE).unwrap();
    assert_eq!(mm.deferred(), 1);
    mm.audit(&[id]).unwrap();
    let how = Shrink { folios: 10, zeros_max: Some(Pages::new(400)) };
    assert_eq!(mm.shrink_deferred(how), Shrunk { seen: 1, split: 1, failed: 0, pages: 509 });
    assert_eq!((mm.deferred(), mm.pages(id).unwrap().get()), (0, 3));
    check(&sim, &mm, id, 3);
}

#[test]
fn a_folio_that_moves_goes_on_waiting() {
    let sim = sim(1, 64);
    let mm = manager(&sim, only(4));
    let id = filled(&sim, &mm, 4 * MB, 16);
    mm.unmap(id, page(15)).unwrap();
    let partly = || mm.size_stats(order(4)).get(SizeEvent::NrAnonPartiallyMapped);
    assert_eq!((mm.deferred(), partly()), (1, 1));
    let old = head(&mm, id, BASE);
    let new = mm.relocate(old).unwrap();
    assert_ne!(new, old);
    assert_eq!((mm.deferred(), partly()), (1, 1));
    mm.audit(&[id]).unwrap();
    let how = Shrink { folios: 10, zeros_max: None };
    assert_eq!(mm.shrink_deferred(how), Shrunk { seen: 1, split: 1, failed: 0, pages: 1 });
    assert_eq!((mm.deferred(), partly()), (0, 0));
    check(&sim, &mm, id, 15);
    // One that is whole waits for a look at its zeros, wherever it goes; a smaller one waits for
    // nothing.
    mm.unmap(id, range(BASE, 4 * MB)).unwrap();
    for (n, waiting) in [(9, 1), (4, 0)] {
        mm.set_policy(only(n));
        area(&mm, id, BASE, 4 * MB);
        store(&sim, &mm, id, BASE, 1000);
        mm.relocate(head(&mm, id, BASE)).unwrap();
        assert_eq!((mm.deferred(), partly()), (waiting, 0));
        mm.audit(&[id]).unwrap();
        mm.unmap(id, range(BASE, 4 * MB)).unwrap();
        assert_eq!(mm.deferred(), 0);
    }
}

// Broken memory.

/// A report that comes at any step of a fold, from a CPU that has the old frame of the head cached,
/// is on the head afterwards.
#[test]
fn a_report_of_broken_memory_beside_a_fold_is_not_lost() {
    for nth in 1.. {
        let (machine, mm, over) = kept(Beside::new(sim(2, 32)), Policy::BASE_ONLY);
        over.leaves("a page that is broken");
        let memmap = mm.memmap();
        let mut batch = Batch::new(&memmap);
        let huge = memmap.claim(Order::SIZE_2M, Form::Dense).unwrap();
        let head = huge.head();
        batch.push(huge).unwrap();
        machine.sim.on(cpu(1), || {
            mm.online();
            assert!(!mm.identity(head).has(Flag::Poisoned));
        });
        let mut answer = None;
        let report = || answer = Some(mm.poison(head.add(Pages::new(300))));
        let Some(folded) = machine.before_step(nth, report, || memmap.fold(&mut batch)) else {
            assert!(nth > 20, "a fold of {nth} steps");
            return;
        };
        assert_eq!(answer, Some(Poisoned::Held), "step {nth}");
        let why = Some(MemmapError::Poisoned(head));
        let refused = Folded { refused: 1, why, ..Folded::default() };
        assert!([Folded { folded: 1, ..Folded::default() }, refused].contains(&folded));
        for n in 0..2 {
            let seen = machine.sim.on(cpu(n), || mm.identity(head));
            let flags = [Flag::Poisoned, Flag::Optimized, Flag::Folding].map(|flag| seen.has(flag));
            assert_eq!(flags, [true, folded.folded == 1, false], "lost at step {nth}");
        }
        let released = memmap.release(&mut batch);
        assert_eq!(released, Released { refused: 1, why, ..Released::default() }, "step {nth}");
        core::mem::forget(batch); // its page is out of use for good
    }
}

// What was in memory before.

/// A program gets every frame that there is, and finds nothing in any.
fn all_of_memory_is_zero(sim: &Sim, mm: &Mm<'_>, id: SpaceId) {
    let bytes = mm.memory().managed.bytes().get();
    let start = BASE + (1 << 30);
    let page = |nth| Va::new(start + nth * PAGE);
    area(mm, id, start, bytes);
    mm.switch(Some(id)).unwrap();
    let got = |nth: &u64| mm.fault(id, page(*nth), Access::Write) != Outcome::OutOfMemory;
    let got = (0..bytes / PAGE).take_while(got).count() as u64;
    assert!(mm.memory().free.get() < 8, "{:?} are left", mm.memory().free);
    for nth in 0..got {
        for word in [0, 8, 2040, PAGE - 8] {
            let value = sim.user_load(page(nth).add(word), 8).unwrap();
            assert_eq!(value, 0, "word {word} of page {nth}");
        }
    }
}

/// Huge pages are had while all memory is known to be zero, written to, folded and unfolded, and
/// given back; then a program gets every frame that there is, those that held descriptors included,
/// and finds nothing in them.
#[test]
fn nothing_of_a_huge_page_or_of_its_descriptors_is_seen_by_the_next_owner() {
    let mut config = Config::seeded(1, Bytes::new(32 * MB), 1);
    config.clearing = Clearing::Real; // what is given up stays in memory
    let sim = Sim::new(config).unwrap();
    let mm = manager(&sim, Policy::BASE_ONLY);
    mm.clear_ahead(Nanos(u64::MAX));
    let memmap = mm.memmap();
    let mut batch = Batch::new(&memmap);
    for form in [Form::Folded, Form::Dense] {
        let huge = memmap.claim(Order::SIZE_2M, form).unwrap();
        for frame in huge.frames().iter() {
            // SAFETY: the page is ours.
            unsafe { sim.store(frame.pa(), !0) };
        }
        batch.push(huge).unwrap();
    }
    assert_eq!(memmap.unfold(&mut batch).unfolded, 1);
    assert_eq!(memmap.fold(&mut batch).folded, 2);
    assert_eq!(memmap.release(&mut batch).refused, 0);
    drop(batch);
    let id = mm.create(None).unwrap();
    all_of_memory_is_zero(&sim, &mm, id);
}

/// A drop of more folios than one list defers, which has 20 frames of 510 words: it is worked off
/// when it is full and at the end, and its frames serve again. They are as clean as all others
/// afterwards.
#[test]
fn the_frames_of_a_list_of_what_is_freed_serve_again() {
    const TABLES: u64 = 30;
    let sim = sim(2, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    area(&mm, id, BASE, TABLES * SIZE_2M);
    for n in 0..2 {
        sim.on(cpu(n), || {
            mm.online();
            mm.switch(Some(id)).unwrap();
        });
    }
    mm.advise(id, range(BASE, TABLES * SIZE_2M), Advice::PopulateWrite).unwrap();
    let there = mm.memory().free;
    let before = mm.total(Event::Shootdown);
    mm.advise(id, range(BASE, TABLES * SIZE_2M), Advice::DontNeed).unwrap();
    assert_eq!(mm.total(Event::Shootdown) - before, (TABLES * 512).div_ceil(20 * 510));
    assert_eq!((mm.pages(id).unwrap().get(), mm.anonymous().get()), (0, 0));
    assert_eq!(mm.memory().free.get() - there.get(), TABLES * (512 + 1), "and their tables");
    mm.audit(&[id]).unwrap();
    all_of_memory_is_zero(&sim, &mm, id);
}

// Flushes.

/// A leaf and an empty table stand side by side and go in one unmap: two items, for what ends a
/// leaf ends no pointer to a table.
#[test]
fn a_leaf_and_the_empty_table_behind_it_are_two_items() {
    let (recorder, mm, _over) = recorded(2, 64, only(9));
    let sim = &recorder.sim;
    let id = mm.create(None).unwrap();
    // The second area keeps the table above.
    let whole = area(mm, id, BASE, 2 * SIZE_2M);
    area(mm, id, BASE + 8 * SIZE_2M, PAGE);
    for n in 0..2 {
        sim.on(cpu(n), || {
            mm.online();
            mm.switch(Some(id)).unwrap();
        });
    }
    store(sim, mm, id, BASE, 1);
    mm.set_policy(Policy::BASE_ONLY);
    store(sim, mm, id, BASE + SIZE_2M, 2);
    sim.on(cpu(1), || {
        assert_eq!(load(sim, mm, id, BASE), 1);
        assert_eq!(load(sim, mm, id, BASE + SIZE_2M), 2);
    });
    // By halves: an advice for all that a table covers would take the table.
    for half in [BASE + SIZE_2M, BASE + SIZE_2M + SIZE_2M / 2] {
        mm.advise(id, range(half, SIZE_2M / 2), Advice::DontNeed).unwrap();
    }
    recorder.take();
    mm.unmap(id, whole).unwrap();
    let asked: Vec<Invalidation> = recorder
        .take()
        .into_iter()
        .filter_map(|step| if let Step::Ask(what) = step { Some(*what) } else { None })
        .collect();
    let item = |start, tables| Item { range: range(start, SIZE_2M), level: Level::SIZE_2M, tables };
    let items = [item(BASE, Tables::Kept), item(BASE + SIZE_2M, Tables::Removed)];
    assert_eq!(asked.len(), 1);
    assert_eq!((asked[0].reach(), asked[0].items()), (Reach::Items, &items[..]));
}

/// What the space's entry at `va` says, and where it is.
fn found(mm: &AnyMm<'_, impl Paging>, id: SpaceId, va: u64) -> (Found, Attrs) {
    let leaf = mm.with_leaves(id, range(va, PAGE), |mut leaves| leaves.next()).flatten();
    let leaf = leaf.expect("something is mapped");
    let Entry::Leaf { attrs, .. } = leaf.entry else { panic!("{leaf:?}") };
    (leaf, attrs)
}

/// An entry that may be written, and has neither been, moves and is unmapped. Where a CPU may have
/// it cached before its accessed bit is set, a store may be on its way: the copy counts as dirty,
/// and the unmap asks that CPU.
fn never_accessed<P: Paging>(format: Format, cached: bool) {
    let sim = Sim::new(Config::seeded(2, Bytes::new(32 * MB), 1).with_format(format)).unwrap();
    let memory = sim.config().memory.clone();
    let mm: Audited<'_, P> = manager_on(&sim, &memory, only(2));
    let id = mm.create(None).unwrap();
    for n in 0..2 {
        sim.on(cpu(n), || {
            mm.online();
            mm.switch(Some(id)).unwrap();
        });
    }
    area(&mm, id, BASE, MB);
    let fresh = || {
        mm.advise(id, page(0), Advice::PopulateWrite).unwrap();
        for nth in 0..4 {
            let (leaf, attrs) = found(&mm, id, BASE + nth * PAGE);
            let Entry::Leaf { pa, .. } = leaf.entry else { unreachable!() };
            let clean = P::leaf(pa, leaf.level, attrs.without(Attrs::TOUCHED));
            // SAFETY: the machine may clear these bits of an entry that nobody has cached.
            unsafe { sim.store(leaf.at, clean) };
        }
    };
    fresh();
    mm.relocate(mm.frame_at(id, Va::new(BASE)).unwrap()).unwrap();
    for nth in 0..4 {
        let dirty = if cached { Attrs::DIRTY } else { Attrs::NONE };
        let attrs = found(&mm, id, BASE + nth * PAGE).1;
        assert_eq!(attrs.and(Attrs::TOUCHED), dirty, "{format:?}");
    }
    mm.unmap(id, range(BASE, MB)).unwrap();
    area(&mm, id, BASE, MB);
    fresh();
    let before = mm.total(Event::Shootdown);
    mm.unmap(id, range(BASE, 4 * PAGE)).unwrap();
    assert_eq!(mm.total(Event::Shootdown) - before, u64::from(cached), "{format:?}");
}

#[test]
fn an_entry_without_its_accessed_bit_may_be_cached_where_the_machine_says_so() {
    never_accessed::<X86_64<4>>(Format::X86_64(X86Levels::Four), false);
    never_accessed::<Aarch64>(Format::Aarch64, true);
}

// Moves.

/// Sixteen areas that were moved by distances of their own lie side by side and are moved as one,
/// each by a new distance. There is room for 24, half of which are taken when the move begins:
/// those that it has noted itself stay when room is made.
#[test]
fn a_move_notes_more_distances_than_fit_inline() {
    const AREAS: u64 = 16;
    let sim = sim(1, 32);
    let mm = manager(&sim, only(2));
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 2 * MB);
    let row = BASE + (1 << 30);
    for nth in 0..AREAS {
        let from = BASE + nth * 8 * PAGE;
        store(&sim, &mm, id, from, 1000 + nth);
        let to = Move::To(Va::new(row + nth * PAGE));
        mm.remap(id, range(from, PAGE), Bytes::new(PAGE), to).unwrap();
    }
    let to = BASE + (2 << 30);
    let moved = range(row, AREAS * PAGE);
    mm.remap(id, moved, moved.bytes(), Move::To(Va::new(to))).unwrap();
    mm.audit(&[id]).unwrap();
    for nth in 0..AREAS {
        let va = to + nth * PAGE;
        // All of its entries are found, or this fails.
        mm.relocate(mm.frame_at(id, Va::new(va)).unwrap()).unwrap();
        assert_eq!(mm.split(id, Va::new(va), SplitInto::BASE).unwrap().folios, 4);
        assert_eq!(load(&sim, &mm, id, va), 1000 + nth);
    }
}

/// A distance that is noted already takes no second place, and none is taken for one of nothing: a
/// page that comes back to where it was made. More moves than there are places take no frame.
#[test]
fn a_distance_takes_one_place() {
    const MOVES: u64 = 30;
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = filled(&sim, &mm, 2 * MB, MOVES);
    let far = |nth: u64| BASE + (1 << 30) + nth * PAGE;
    let records = || mm.audit(&[id]).unwrap().records.get();
    let remove = |from: u64, to: u64| {
        mm.remap(id, range(from, PAGE), Bytes::new(PAGE), Move::To(Va::new(to))).unwrap();
    };
    remove(BASE, far(0)); // the areas of both places take what they need
    let before = records();
    (1..MOVES).for_each(|nth| remove(BASE + nth * PAGE, far(nth)));
    assert_eq!(records(), before, "moved away");
    (0..MOVES).for_each(|nth| remove(far(nth), BASE + nth * PAGE));
    assert_eq!(records(), before, "moved back");
    for nth in 0..MOVES {
        assert_eq!(load(&sim, &mm, id, BASE + nth * PAGE), 1000 + nth);
    }
}

/// Of 24 distances that were noted half are no area's any more when one more is: their places are
/// taken again, and no frame is.
#[test]
fn distances_that_no_area_has_make_room() {
    const NOTED: u64 = 24;
    for gone in [NOTED / 2, NOTED / 2 - 1] {
        let sim = sim(1, 32);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let id = filled(&sim, &mm, 2 * MB, NOTED + 1);
        let place = |nth: u64| BASE + (1 << 30) + nth * 8 * PAGE;
        let remove = |nth: u64| {
            let to = Move::To(Va::new(place(nth)));
            mm.remap(id, page(nth), Bytes::new(PAGE), to).unwrap();
        };
        (0..NOTED).for_each(remove);
        (0..gone).for_each(|nth| mm.unmap(id, range(place(nth), PAGE)).unwrap());
        let records = || mm.audit(&[id]).unwrap().records.get();
        let before = records();
        remove(NOTED);
        assert_eq!(records() - before, u64::from(gone < NOTED / 2), "{gone} are gone");
        for nth in gone..=NOTED {
            mm.relocate(mm.frame_at(id, Va::new(place(nth))).unwrap()).unwrap();
            assert_eq!(load(&sim, &mm, id, place(nth)), 1000 + nth);
        }
    }
}

// Pieces.

/// A walker that asks for a page at any step of the split of its folio gets the folio that has the
/// page, and a reporter of the page as broken is never told that it is not in use: the pieces
/// behind the first one come before it, for until then they look like tails of it.
#[test]
fn finding_y_a_page_of_a_folio_that_is_split_is_in_use_at_every_step() {
    let (mut got, mut marked) = (0, 0);
    for nth in 1.. {
        for report in [false, true] {
            let (machine, mm, over) = kept(Beside::new(sim(2, 32)), only(2));
            over.leaves("a page that is broken");
            machine.sim.on(cpu(1), || mm.online());
            let id = filled(&machine.sim, mm, MB, 4);
            let third = head(mm, id, BASE).add(Pages::new(3));
            let (mut kept, mut answer) = (None, None);
            let ask = || match report {
                true => answer = Some(mm.poison(third)),
                false => kept = mm.reference(third),
            };
            let split = || mm.split(id, Va::new(BASE), SplitInto::BASE);
            let Some(done) = machine.before_step(nth, ask, split) else {
                assert!(got > 5 && marked > 5, "beside a split: {got} references, {marked} marks");
                return;
            };
            let now = mm.identity(third).head(third);
            if report {
                assert_eq!(answer, Some(Poisoned::Held), "step {nth}");
                assert!(mm.identity(now).has(Flag::Poisoned), "step {nth}");
                marked += u64::from(done.is_ok());
            }
            if let Some(reference) = kept {
                assert_eq!(reference.head(), now, "step {nth}");
                got += u64::from(done.is_ok());
                machine.sim.on(cpu(1), || drop(reference));
            }
            check(&machine.sim, mm, id, 4);
            mm.audit(&[id]).unwrap();
        }
    }
}

/// So it is with a page that becomes a part of a folio, from when the last pages of a collapse are
/// frozen until the folio is there.
#[test]
fn finding_y_a_page_that_becomes_a_part_of_a_folio_is_in_use() {
    const LAST: u64 = 60;
    let (mut first, mut orders) = (None, Vec::new());
    for nth in 0..LAST {
        let (machine, mm, over) = kept(Beside::new(sim(2, 32)), Policy::BASE_ONLY);
        over.leaves("a page that is broken");
        machine.sim.on(cpu(1), || mm.online());
        let id = filled(&machine.sim, mm, 4 * MB, 512);
        let collapse = || mm.collapse(id, Va::new(BASE), Order::SIZE_2M, CollapseLimits::NONE);
        let before = machine.steps();
        let Some((first, fifth)) = first else {
            // Equal machines take equal steps, and find equal frames.
            collapse().unwrap();
            let fifth = head(mm, id, BASE).add(Pages::new(5));
            first = Some((machine.steps() - before - LAST, fifth));
            continue;
        };
        let mut answer = None;
        let report = || {
            let order = mm.identity(fifth).order().get();
            answer = Some((mm.poison(fifth), order));
        };
        let done = machine.before_step(first + nth, report, collapse);
        assert_eq!(done, Some(Ok(())), "step {nth}");
        let (marked, order) = answer.unwrap();
        assert_eq!(marked, Poisoned::Held, "step {nth}");
        assert!(mm.identity(mm.identity(fifth).head(fifth)).has(Flag::Poisoned), "step {nth}");
        check(&machine.sim, mm, id, 512);
        mm.audit(&[id]).unwrap();
        orders.push(order);
        if orders.ends_with(&[9; 6]) {
            assert_eq!(orders[0], 0, "it begins with a page");
            return;
        }
    }
    panic!("it ends as a page: {orders:?}");
}

/// Guards of a range need the tables that are not there, and these are charged, exactly; a large
/// leaf has its table already.
#[test]
fn guards_are_charged_for_the_tables_that_they_need() {
    let with = |limit: Option<Pages>, test: &mut dyn FnMut(&Sim, &Mm<'_>, SpaceId)| {
        let sim = sim(1, 64);
        let mm = manager(&sim, only(9));
        let id = mm.create(limit).unwrap();
        mm.switch(Some(id)).unwrap();
        area(&mm, id, BASE, 3 * GB);
        store(&sim, &mm, id, BASE, 1); // a large leaf, and the tables above it
        test(&sim, &mm, id);
    };
    for (guarded, tables) in [
        (row(0, 512), 0),
        (row(5, 1), 0),
        (row(511, 2), 1),
        (row(0, 3 * 512), 2),
        (row(512, 512), 1),
        (range(BASE + GB - PAGE, 2 * PAGE), 1 + 2),
        (range(BASE + GB, 2 * SIZE_2M), 1 + 2),
        (range(BASE + GB - SIZE_2M, GB + SIZE_2M + PAGE), 1 + 1 + 512 + 1 + 1),
    ] {
        let mut used = 0;
        with(None, &mut |sim, mm, id| {
            let before = mm.records(id).unwrap().get();
            mm.advise(id, guarded, Advice::GuardInstall).unwrap();
            assert_eq!(mm.records(id).unwrap().get() - before, tables, "{guarded:?}");
            mm.advise(id, guarded, Advice::GuardInstall).unwrap();
            assert_eq!(mm.records(id).unwrap().get() - before, tables, "a second time");
            recount(sim, mm, &[id]);
            used = mm.records(id).unwrap().get() + 512;
        });
        with(Some(Pages::new(used)), &mut |_, mm, id| {
            mm.advise(id, guarded, Advice::GuardInstall).unwrap();
        });
        if tables > 0 {
            let less = Pages::new(used - 1);
            with(Some(less), &mut |sim, mm, id| {
                let before = mm.records(id);
                let refused = mm.advise(id, guarded, Advice::GuardInstall);
                assert_eq!(refused, Err(RangeError::OverLimit(less)));
                assert_eq!(mm.records(id), before, "it leaves no trace");
                assert_eq!(load(sim, mm, id, BASE), 1, "nothing is dropped");
            });
        }
    }
}

/// Each page of an area that gets other rights is an area of its own, between two others.
#[test]
fn an_area_is_cut_by_the_rights_of_its_pages() {
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 4 * MB);
    for nth in 0..500 {
        mm.protect(id, page(2 * nth + 1), Flags::READ).unwrap();
    }
    let mut from = Va::new(0);
    let areas = std::iter::from_fn(|| {
        let area = mm.area_at_or_after(id, from)?;
        from = area.range.end();
        Some((area.range, area.flags))
    });
    let areas: Vec<_> = areas.collect();
    let each = (0..1000).map(|nth| (page(nth), [Flags::READ_WRITE, Flags::READ][nth as usize % 2]));
    let rest = (row(1000, 24), Flags::READ_WRITE);
    assert_eq!(areas, each.chain([rest]).collect::<Vec<_>>());
}

/// A CPU that panics on its way through a flush asks nobody any more: the others may never answer.
#[test]
#[cfg_attr(not(feature = "steps"), ignore = "only with steps is it known that a CPU panics")]
fn a_cpu_that_panics_does_not_flush_again() {
    let (machine, mm, over) = meddled(2, 64, Policy::BASE_ONLY);
    over.leaves("a panic in the middle of an unmap");
    mm.cpus().for_each(|cpu| machine.sim.on(cpu, || mm.online()));
    let id = filled(&machine.sim, mm, SIZE_2M, 1);
    machine.sim.on(cpu(1), || mm.switch(Some(id)).unwrap());
    let asked = Arc::new(AtomicBool::new(false));
    let again = Arc::clone(&asked);
    machine.before_asking(move || {
        machine.before_asking(move || again.store(true, Relaxed));
        panic!("this CPU stops");
    });
    let unmapped = catch_unwind(AssertUnwindSafe(|| mm.unmap(id, page(0))));
    assert!(unmapped.is_err() && !asked.load(Relaxed));
}

// Memory that is not there.

/// An unmap that would need a node for what stays of an area is refused as a whole, and works once
/// there is memory.
#[test]
fn an_unmap_that_needs_a_node_is_refused_where_there_is_no_memory() {
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = filled(&sim, &mm, 4096 * PAGE, 1);
    let refused = (1..1000).map(|nth| row(4 * nth, 1)).find(|cut| {
        sim.fault_plan().set(Failing::From(1));
        let done = mm.unmap(id, *cut);
        sim.fault_plan().set(Failing::Nothing);
        assert!(matches!(done, Ok(()) | Err(RangeError::NoMemory)), "{done:?}");
        done.is_err()
    });
    let cut = refused.expect("every node had room");
    assert!(mm.area(id, cut.start()).is_some(), "it stays");
    mm.unmap(id, cut).unwrap();
    assert_eq!(mm.area(id, cut.start()), None);
    mm.audit(&[id]).unwrap();
}

/// Kernel memory that a space may not have is not mapped into it, and the tables go.
#[test]
fn kernel_memory_beyond_the_limit_is_not_mapped() {
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let kernel = mm.vmalloc(&Request::of(Bytes::new(64 * PAGE)).for_users()).unwrap();
    let id = mm.create(Some(Pages::new(16))).unwrap();
    let used = || mm.pages(id).unwrap();
    let before = used();
    let wish = request(Place::NoReplace(Va::new(BASE)), 64 * PAGE, Flags::READ);
    let over = MapError::Range(RangeError::OverLimit(Pages::new(16)));
    assert_eq!(mm.map_user(id, &wish, kernel.start()), Err(UserMapError::Space(over)));
    assert_eq!((used(), mm.area(id, Va::new(BASE))), (before, None));
    mm.audit(&[id]).unwrap();
    mm.vfree(kernel.start()).unwrap();
}

/// A kernel range for whose tables there is no memory is refused before any is made.
#[test]
fn a_kernel_range_without_memory_for_its_tables_is_refused() {
    let sim = sim(1, 16);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let first = mm.lend(Order::BASE).unwrap();
    while mm.lend(Order::BASE).is_ok() {}
    let far = VaRange::sized(Va::new(0xffff_f000_0000_0000), Bytes::new(PAGE)).unwrap();
    assert_eq!(mm.map_kernel(far, first, Attrs::WRITE), Err(KernelMapError::NoMemory));
}

#[test]
fn clearing_ahead_stops_where_memory_is_refused() {
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    sim.fault_plan().set(Failing::From(1));
    assert_eq!(mm.clear_ahead(Nanos(u64::MAX)).stopped, Stopped::Refused);
    sim.fault_plan().set(Failing::Nothing);
    assert_eq!(mm.clear_ahead(Nanos(u64::MAX)).stopped, Stopped::Done);
}

/// Blocks are looked at in all ranges of memory: one that holds its own descriptors becomes whole
/// in the second as well.
#[test]
fn a_block_of_the_second_range_becomes_whole_again() {
    let ranges =
        [0, 1 << 18].map(|first| FrameRange::new(Frame::new(first), Pages::new(1 << 14)).unwrap());
    let config = Config { memory: ranges.to_vec(), ..Config::free(1, Bytes::new(128 * MB)) };
    let sim = Sim::new(config).unwrap();
    let mm = manager(&sim, Policy::BASE_ONLY);
    let memmap = mm.memmap();
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 128 * MB);
    let mut batch = Batch::new(&memmap);
    while let Ok(huge) = memmap.claim(Order::SIZE_2M, Form::Folded) {
        batch.push(huge).unwrap();
    }
    let fill = || {
        let write = |n: &u64| mm.fault(id, Va::new(BASE + n * PAGE), Access::Write);
        (0..).find(|n| write(n) == Outcome::OutOfMemory).unwrap()
    };
    fill();
    let mut last = Batch::new(&memmap);
    let huge = batch.pop().unwrap();
    assert!(huge.head() >= ranges[1].start(), "{:?}", huge.head());
    last.push(huge).unwrap();
    assert_eq!(memmap.release(&mut last).absent, 1);
    fill();
    mm.switch(None).unwrap();
    mm.end(id).unwrap();
    assert_eq!((memmap.reclaim(), memmap.reclaim()), (1, 0));
    memmap.release(&mut batch);
    drop((batch, last));
}

// Entries that are seldom met.

/// Guards over a large leaf: each of its pages becomes one, and the folio goes.
#[test]
fn guards_take_the_place_of_a_large_leaf() {
    for written in [true, false] {
        let sim = sim(1, 32);
        let mm = manager(&sim, Policy::always(Orders::of(Order::SIZE_2M)));
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        let whole = area(&mm, id, BASE, 2 * MB);
        match written {
            true => drop(store(&sim, &mm, id, BASE, 7)),
            false => assert_eq!(load(&sim, &mm, id, BASE), 0),
        }
        mm.advise(id, whole, Advice::GuardInstall).unwrap();
        for va in [BASE, BASE + MB, BASE + 2 * MB - PAGE].map(Va::new) {
            let guard = Outcome::Refused(Refusal::Guard(va));
            assert_eq!(mm.fault(id, va, Access::Read), guard, "written: {written}");
        }
        assert_eq!(mm.pages(id).unwrap().get(), 0);
        mm.advise(id, whole, Advice::GuardRemove).unwrap();
        assert_eq!(load(&sim, &mm, id, BASE), 0);
        mm.audit(&[id]).unwrap();
    }
}

/// A byte behind an area is none of its bytes, and no bytes there are beyond it as well.
#[test]
fn bounds_of_kernel_memory_end_with_its_last_byte() {
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let area = mm.vmap().alloc(&Request::of(Bytes::new(2 * PAGE))).unwrap();
    let (vmap, end) = (mm.vmap(), area.start().add(2 * PAGE));
    let last = Va::new(end.get() - 1);
    assert_eq!(vmap.check_bounds(area.start(), Bytes::new(2 * PAGE)), Ok(()));
    assert_eq!(vmap.check_bounds(last, Bytes::new(1)), Ok(()));
    let beyond = Err(VmapError::Beyond { va: end });
    assert_eq!([0, 1].map(|bytes| vmap.check_bounds(end, Bytes::new(bytes))), [beyond; 2]);
    assert_eq!(vmap.check_bounds(last, Bytes::new(2)), beyond);
    assert_eq!(mm.vmap().controls(), Controls::default());
    // All that is installed makes sense, and is not there.
    let all = mm.vmap().alloc(&Request::of(Bytes::new(32 * MB)));
    assert!(matches!(all, Err(VmapError::Short(_))), "{all:?}");
    mm.vfree(area.start()).unwrap();
}

/// A stack may reach down to the lowest address that there may be, and no further.
#[test]
fn a_stack_grows_down_to_the_lowest_address() {
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    let lowest = mm.lowest_address();
    let flags = Flags::READ_WRITE.with(Flags::GROWS_DOWN);
    let top = lowest.add(PAGE);
    mm.map(id, &request(Place::NoReplace(top), PAGE, flags)).unwrap();
    assert_eq!(mm.fault(id, lowest, Access::Write), Outcome::Mapped(Order::BASE));
    let below = Va::new(lowest.get() - PAGE);
    assert_eq!(mm.fault(id, below, Access::Write), Outcome::Refused(Refusal::NoArea(below)));
}
