//! Folios taken apart and moved: contents, entries, counts and flushes, through forks, moves and
//! partial unmaps.

use crate::common::beside::Beside;
use crate::common::*;
use foliant::compact::{CompactRequest, Want};
use foliant::fault::Orders;
use foliant::space::{Advice, Flags, Move, SpaceId};
use foliant::split::{
    Pieces, RelocateError, Shrink, Shrunk, SplitError, SplitInto, SplitRequest, ZeroPieces,
};
use foliant::table::{Aarch64, Entry, Paging, Riscv64, X86_64};
use foliant::{Event, FlushGrain, Policy, SizeEvent};
use foliant_machine::Replace;
use foliant_sim::{Config, Failing, Format, RiscvMode, Sim, X86Levels};
use foliant_units::{Bytes, Frame, Order, Pages, Va};

fn into(n: u8) -> SplitInto {
    SplitInto { order: order(n), zeros: ZeroPieces::Keep }
}

/// Every page of a folio of `n` at `BASE` is written.
fn filled(sim: &Sim, mm: &Mm<'_>, n: u8) -> SpaceId {
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(mm, id, BASE, 8 * MB);
    for page in 0..order(n).pages().get() {
        store(sim, mm, id, BASE + page * PAGE, 1000 + page);
    }
    id
}
fn check(sim: &Sim, mm: &Mm<'_>, id: SpaceId, start: u64, pages: core::ops::Range<u64>) {
    mm.switch(Some(id)).unwrap();
    for page in pages {
        assert_eq!(load(sim, mm, id, start + page * PAGE), 1000 + page, "page {page}");
    }
}
fn frame(mm: &Mm<'_>, id: SpaceId, va: u64) -> Frame {
    mm.frame_at(id, Va::new(va)).unwrap()
}

#[test]
fn every_order_splits_into_every_smaller_one() {
    for n in 2..=9 {
        for t in (0..n).filter(|t| *t != 1) {
            let sim = sim(2, 64);
            let mm = manager(&sim, only(n));
            let id = filled(&sim, &mm, n);
            let head = frame(&mm, id, BASE);
            let pieces =
                mm.split(id, Va::new(BASE + 5 * PAGE % order(n).bytes().get()), into(t)).unwrap();
            let folios = 1 << (n - t);
            assert_eq!(pieces, Pieces { order: order(n), folios, unmapped: 0, zero: 0 });
            mm.audit(&[id]).unwrap();
            assert_eq!(frame(&mm, id, BASE), head, "in place");
            assert_eq!(mm.identity(head).order(), order(t));
            assert_eq!(mm.size_stats(order(n)).get(SizeEvent::Split), 1);
            assert_eq!(mm.size_stats(order(t)).get(SizeEvent::NrAnon), folios);
            check(&sim, &mm, id, BASE, 0..order(n).pages().get());
            assert!(store(&sim, &mm, id, BASE, 7).is_empty(), "it stays writable");
        }
    }
}

#[test]
fn a_folio_is_found_in_forks_moved_areas_and_parts() {
    for n in [4, 9] {
        let sim = sim(2, 64);
        let mm = manager(&sim, only(n));
        let bytes = order(n).bytes().get();
        let pages = order(n).pages().get();
        let parent = filled(&sim, &mm, n);
        let child = mm.fork(parent).unwrap();
        let grandchild = mm.fork(child).unwrap();
        // The creator ends; one descendant moves half of it to an odd place, another drops a page.
        mm.switch(Some(child)).unwrap();
        mm.end(parent).unwrap();
        let odd = BASE + (1 << 30) + 3 * PAGE;
        let half = range(BASE + bytes / 2, bytes / 2);
        mm.remap(child, half, Bytes::new(bytes / 2), Move::To(Va::new(odd))).unwrap();
        mm.unmap(grandchild, range(BASE + PAGE, PAGE)).unwrap();
        mm.audit(&[child, grandchild]).unwrap();
        let moved = mm.relocate(frame(&mm, child, odd)).unwrap();
        mm.audit(&[child, grandchild]).unwrap();
        assert_eq!(frame(&mm, grandchild, BASE), moved);
        let pieces = mm.split(grandchild, Va::new(BASE), into(0)).unwrap();
        assert_eq!(pieces.folios, pages, "each page is mapped by somebody");
        mm.audit(&[child, grandchild]).unwrap();
        check(&sim, &mm, child, BASE, 0..pages / 2);
        for page in pages / 2..pages {
            assert_eq!(load(&sim, &mm, child, odd + (page - pages / 2) * PAGE), 1000 + page);
        }
        check(&sim, &mm, grandchild, BASE, 2..pages);
        store(&sim, &mm, grandchild, BASE, 1);
        check(&sim, &mm, child, BASE, 0..1);
    }
}

#[test]
fn what_nobody_maps_is_given_back() {
    let sim = sim(2, 64);
    let mm = manager(&sim, only(9));
    let id = filled(&sim, &mm, 9);
    mm.unmap(id, range(BASE + 3 * PAGE, 100 * PAGE)).unwrap();
    let before = mm.memory().free.get();
    let pieces = mm.split(id, Va::new(BASE), into(2)).unwrap();
    // Pages 3 to 102 are gone: pieces 1 to 24 wholly, 0 and 25 in part.
    assert_eq!(pieces, Pieces { order: Order::SIZE_2M, folios: 104, unmapped: 24, zero: 0 });
    assert_eq!(mm.memory().free.get(), before + 96);
    assert_eq!(mm.size_stats(order(2)).get(SizeEvent::NrAnonPartiallyMapped), 2);
    mm.audit(&[id]).unwrap();
    check(&sim, &mm, id, BASE, 0..3);
    check(&sim, &mm, id, BASE, 103..512);
}

#[test]
fn refusals_are_distinct_and_change_nothing() {
    let sim = sim(2, 64);
    let mm = manager(&sim, only(4));
    let id = filled(&sim, &mm, 4);
    let head = frame(&mm, id, BASE);
    let at = Va::new(BASE);
    let sizes = |folio, into| Err(SplitError::Order { folio: order(folio), into: order(into) });
    assert_eq!(mm.split(id, at, into(4)), sizes(4, 4));
    assert_eq!(mm.split(id, at, into(9)), sizes(4, 9));
    assert_eq!(mm.split(id, at, into(1)), sizes(4, 1));
    let nowhere = Va::new(BASE + 4 * MB);
    assert_eq!(mm.split(id, nowhere, into(0)), Err(SplitError::NotMapped(nowhere)));
    let free = Frame::new(u64::MAX >> 12);
    assert_eq!(mm.split_frame(free, into(0)), Err(SplitError::NotAFolio(free)));
    {
        let _pin = mm.reference(head).unwrap();
        assert_eq!(mm.split(id, at, into(0)), Err(SplitError::Pinned(head)));
    }
    let mut twice = [SplitRequest::of(head), SplitRequest::of(head)];
    mm.split_list(&mut twice, into(2));
    assert!(twice[0].done.unwrap().is_ok());
    assert_eq!(twice[1].done, Some(Err(SplitError::Busy(head))));
    check(&sim, &mm, id, BASE, 0..16);
}

/// A folio of 2 MiB mapped by 512 entries in a space that `running` CPUs run; CPU 0 runs it too.
fn entries_of(sim: &Sim, mm: &Mm<'_>, running: u16, folios: u64) -> SpaceId {
    let id = mm.create(None).unwrap();
    for n in 0..running {
        sim.on(cpu(n), || {
            mm.online();
            mm.switch(Some(id)).unwrap();
        });
    }
    area(mm, id, BASE, folios * SIZE_2M);
    for nth in 0..folios {
        store(sim, mm, id, BASE + nth * SIZE_2M, nth);
        // A right that one page loses for a moment makes entries of the leaf.
        let page = range(BASE + nth * SIZE_2M, PAGE);
        mm.protect(id, page, Flags::READ).unwrap();
        mm.protect(id, page, Flags::READ_WRITE).unwrap();
    }
    id
}

/// Shootdowns, and CPUs asked.
fn shootdowns(mm: &Mm<'_>, work: impl FnOnce()) -> [u64; 2] {
    let count = || [Event::Shootdown, Event::Interrupt].map(|event| mm.total(event));
    let before = count();
    work();
    core::array::from_fn(|n| count()[n] - before[n])
}

#[test]
fn the_grain_is_the_entries_per_shootdown_of_a_split() {
    for (grain, expect) in [(1, 512), (7, 74), (64, 8), (0, 1)] {
        let sim = sim(4, 64);
        let mm = manager(&sim, only(9));
        let id = entries_of(&sim, &mm, 4, 1);
        mm.set_flush_grain(FlushGrain::new(grain).unwrap_or(FlushGrain::WHOLE));
        let found = shootdowns(&mm, || _ = mm.split(id, Va::new(BASE), into(0)).unwrap());
        assert_eq!(found, [expect, 3 * expect], "grain {grain}");
    }
}

#[test]
fn a_leaf_is_one_entry_and_one_shootdown() {
    let sim = sim(4, 64);
    let mm = manager(&sim, only(9));
    let id = entries_of(&sim, &mm, 4, 1);
    area(&mm, id, BASE + 8 * SIZE_2M, SIZE_2M);
    store(&sim, &mm, id, BASE + 8 * SIZE_2M, 1);
    mm.set_flush_grain(FlushGrain::ONE);
    let leaf = Va::new(BASE + 8 * SIZE_2M);
    let found = shootdowns(&mm, || _ = mm.split(id, leaf, into(0)).unwrap());
    assert_eq!(found, [1, 3]);
}

#[test]
fn a_list_of_64_folios_is_one_shootdown_for_each_space() {
    let sim = sim(4, 256);
    let mm = manager(&sim, only(9));
    let id = entries_of(&sim, &mm, 4, 64);
    let frames = (0..64).map(|nth| frame(&mm, id, BASE + nth * SIZE_2M));
    let mut list: Vec<SplitRequest> = frames.map(SplitRequest::of).collect();
    assert_eq!(shootdowns(&mm, || mm.split_list(&mut list, into(4))), [1, 3]);
    assert!(list.iter().all(|request| request.done.is_some_and(|done| done.is_ok())));
    assert_eq!(mm.total(Event::ThpSplitPage), 64);
    mm.audit(&[id]).unwrap();
}

/// The folio's leaf becomes a table between two looks at it: its pages are found there.
#[test]
fn mappings_are_counted_while_their_leaf_is_split() {
    for step in 1.. {
        let machine = Beside::new(sim(2, 64));
        let mm = machine.manager(only(9));
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        machine.sim.on(cpu(1), || mm.online());
        area(&mm, id, BASE, SIZE_2M);
        store(&machine.sim, &mm, id, BASE, 1);
        let head = frame(&mm, id, BASE);
        let close = || mm.protect(id, page(7), Flags::READ).unwrap();
        let found = machine.before_step(step, close, || mm.mappings(head).unwrap());
        let Some(found) = found else { break };
        assert_eq!(found.entries(Order::SIZE_2M), 512, "step {step}: {found:?}");
    }
}

#[test]
fn each_of_three_spaces_takes_one_shootdown() {
    let sim = sim(4, 64);
    let mm = manager(&sim, only(9));
    let first = entries_of(&sim, &mm, 2, 1);
    let forks = [mm.fork(first).unwrap(), mm.fork(first).unwrap()];
    for (n, id) in forks.into_iter().enumerate() {
        sim.on(cpu(2 + n as u16), || {
            mm.online();
            mm.switch(Some(id)).unwrap();
            assert_eq!(load(&sim, &mm, id, BASE), 0);
            sim.user_load(Va::new(BASE + PAGE), 8).unwrap();
        });
    }
    let head = frame(&mm, first, BASE);
    let found = mm.mappings(head).unwrap();
    assert_eq!((found.whole, found.pages, found.spaces), (0, 3 * 512, 3));
    assert_eq!(shootdowns(&mm, || _ = mm.split_frame(head, into(0)).unwrap()), [3, 3]);
}

#[test]
fn nobody_else_is_asked_where_nobody_else_could_know() {
    // Only this CPU runs the space.
    let sim = sim(4, 64);
    let mm = manager(&sim, only(9));
    let id = entries_of(&sim, &mm, 1, 1);
    assert_eq!(shootdowns(&mm, || _ = mm.split(id, Va::new(BASE), into(0)).unwrap()), [0, 0]);
    finish(&sim, &mm, &[id]);
    // Nothing of the child was ever accessed, though others run it, and nobody runs the parent.
    let sim = self::sim(4, 64);
    let mm = manager(&sim, only(4));
    let parent = filled(&sim, &mm, 4);
    let child = mm.fork(parent).unwrap();
    for n in 0..4 {
        sim.on(cpu(n), || {
            mm.online();
            mm.switch(Some(child)).unwrap();
        });
    }
    let spared = mm.total(Event::FlushSpared);
    assert_eq!(shootdowns(&mm, || _ = mm.split(child, Va::new(BASE), into(0)).unwrap()), [0, 0]);
    assert_eq!(mm.total(Event::FlushSpared), spared + 16);
    check(&sim, &mm, child, BASE, 0..16);
}

#[test]
fn pages_of_zeros_are_shared_and_given_back() {
    let sim = sim(2, 64);
    let mm = manager(&sim, only(9));
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, SIZE_2M);
    for page in [0, 17, 511] {
        store(&sim, &mm, id, BASE + page * PAGE, 1000 + page);
    }
    let child = mm.fork(id).unwrap();
    let share = SplitInto { order: Order::BASE, zeros: ZeroPieces::Share };
    let before = mm.memory().free.get();
    let pieces = mm.split(id, Va::new(BASE), share).unwrap();
    assert_eq!(pieces, Pieces { order: Order::SIZE_2M, folios: 3, unmapped: 0, zero: 509 });
    assert_eq!(mm.pages(id).unwrap().get(), 3, "the zero page is nobody's charge");
    // Both tables that lay in deposit are in use now.
    assert_eq!(mm.memory().free.get(), before + 509);
    mm.audit(&[id, child]).unwrap();
    for space in [id, child] {
        mm.switch(Some(space)).unwrap();
        for page in [0, 1, 17, 300, 511] {
            let expect = if [0, 17, 511].contains(&page) { 1000 + page } else { 0 };
            assert_eq!(load(&sim, &mm, space, BASE + page * PAGE), expect);
        }
        store(&sim, &mm, space, BASE + PAGE, 5);
    }
}

#[test]
fn a_shrinker_splits_what_lost_pages_and_what_is_mostly_zeros() {
    let sim = sim(2, 128);
    let mm = manager(&sim, only(9));
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 8 * SIZE_2M);
    // The first is full, the second nearly empty, the third half gone.
    for nth in 0..3 {
        let pages = [512, 10, 512][nth as usize];
        for page in 0..pages {
            store(&sim, &mm, id, BASE + nth * SIZE_2M + page * PAGE, 1);
        }
    }
    assert_eq!(mm.deferred(), 3, "large folios are looked at once");
    mm.unmap(id, range(BASE + 2 * SIZE_2M, MB)).unwrap();
    assert_eq!(mm.total(Event::ThpDeferredSplitPage), 1);
    let how = Shrink { folios: 100, zeros_max: Some(Pages::new(511)) };
    let done = mm.shrink_deferred(how);
    assert_eq!(done, Shrunk { seen: 3, split: 1, failed: 0, pages: 256 });
    assert_eq!((mm.deferred(), mm.total(Event::ThpUnderusedSplitPage)), (0, 0));
    // With a lower threshold the second is worth it, but nobody looks at it any more: a new one is.
    store(&sim, &mm, id, BASE + 5 * SIZE_2M - PAGE, 1);
    assert_eq!(mm.shrink_deferred(how), Shrunk { seen: 1, ..Shrunk::default() }, "not above 511");
    store(&sim, &mm, id, BASE + 6 * SIZE_2M, 1);
    let how = Shrink { folios: 100, zeros_max: Some(Pages::new(400)) };
    assert_eq!(mm.shrink_deferred(how), Shrunk { seen: 1, split: 1, failed: 0, pages: 511 });
    assert_eq!(mm.total(Event::ThpUnderusedSplitPage), 1);
    assert_eq!(mm.total(Event::ThpSplitPage), 2);
    // One page more than are allowed is of zeros, and all the others come first.
    (0..111).for_each(|page| drop(store(&sim, &mm, id, BASE + 7 * SIZE_2M + page * PAGE, 1)));
    assert_eq!(mm.shrink_deferred(how), Shrunk { seen: 1, split: 1, failed: 0, pages: 401 });
    mm.audit(&[id]).unwrap();
}

/// Up to 64 folios are split behind one flush.
#[test]
fn a_shrinker_flushes_once_for_many_folios() {
    let sim = sim(2, 32);
    let mm = manager(&sim, only(2));
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 64 * 4 * PAGE);
    for nth in 0..64 {
        store(&sim, &mm, id, BASE + nth * 4 * PAGE, nth);
        mm.unmap(id, range(BASE + nth * 4 * PAGE + 3 * PAGE, PAGE)).unwrap();
    }
    sim.on(cpu(1), || {
        mm.online();
        mm.switch(Some(id)).unwrap();
    });
    let before = mm.total(Event::Shootdown);
    let done = mm.shrink_deferred(Shrink { folios: 100, zeros_max: None });
    assert_eq!((done.seen, done.split, done.failed), (64, 64, 0));
    assert_eq!(mm.total(Event::Shootdown) - before, 1);
    mm.audit(&[id]).unwrap();
}

#[test]
fn more_moves_than_fit_inline_are_found_and_forgotten() {
    let sim = sim(2, 64);
    let mm = manager(&sim, only(2));
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 4 * MB);
    // 120 pages go to places at distances that all differ; 100 of them end again.
    let place = |nth: u64| BASE + (1 << 30) + nth * (nth + 40) * PAGE;
    for nth in 0..120 {
        store(&sim, &mm, id, BASE + 4 * nth * PAGE, nth);
        let page = range(BASE + 4 * nth * PAGE, PAGE);
        mm.remap(id, page, Bytes::new(PAGE), Move::To(Va::new(place(nth)))).unwrap();
        if nth >= 20 {
            mm.unmap(id, range(place(nth), PAGE)).unwrap();
        }
    }
    mm.audit(&[id]).unwrap();
    let child = mm.fork(id).unwrap();
    for nth in 0..20 {
        let pieces = mm.split(id, Va::new(place(nth)), into(0)).unwrap();
        assert_eq!(pieces.folios, 4);
        assert_eq!(load(&sim, &mm, id, place(nth)), nth);
    }
    mm.audit(&[id, child]).unwrap();
}

#[test]
fn what_moves_note_is_refused_without_a_trace() {
    let to = |nth: u64| Move::To(Va::new(BASE + (1 << 30) + nth * (nth + 40) * PAGE));
    let mut undone = 0;
    for k in 1.. {
        let sim = sim(1, 32);
        let mm = manager(&sim, only(2));
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        area(&mm, id, BASE, MB);
        for nth in 0..25 {
            store(&sim, &mm, id, BASE + 4 * nth * PAGE, nth);
        }
        let page = |nth: u64| range(BASE + 4 * nth * PAGE, PAGE);
        for nth in 0..24 {
            mm.remap(id, page(nth), Bytes::new(PAGE), to(nth)).unwrap();
        }
        sim.fault_plan().set(Failing::Kth(k));
        // The 25th distance takes a frame, and a fork takes one as well.
        let moved = mm.remap(id, page(24), Bytes::new(PAGE), to(24));
        let child = mm.fork(id);
        let refused = sim.fault_plan().refused();
        sim.fault_plan().set(Failing::Nothing);
        let spaces: Vec<SpaceId> = [id].into_iter().chain(child).collect();
        mm.audit(&spaces).unwrap();
        if moved.is_err() {
            assert_eq!(load(&sim, &mm, id, BASE + 96 * PAGE), 24);
        }
        assert!(refused > 0 || moved.is_ok() && child.is_ok());
        undone += u64::from(moved.is_err()) + u64::from(child.is_err());
        finish(&sim, &mm, &spaces);
        if refused == 0 {
            assert!(undone > 5, "only {undone} were refused");
            return;
        }
    }
}

#[test]
fn a_relocation_without_memory_leaves_everything_where_it_was() {
    for k in 1.. {
        let sim = sim(1, 32);
        let mm = manager(&sim, only(9));
        let id = filled(&sim, &mm, 9);
        let head = frame(&mm, id, BASE);
        sim.fault_plan().set(Failing::Kth(k));
        let got = mm.relocate(head);
        let refused = sim.fault_plan().refused();
        sim.fault_plan().set(Failing::Nothing);
        match got {
            Ok(moved) => assert_eq!(frame(&mm, id, BASE), moved),
            Err(RelocateError::NoBlock(_)) => assert_eq!(frame(&mm, id, BASE), head),
            Err(error) => panic!("{error}"),
        }
        check(&sim, &mm, id, BASE, 0..512);
        finish(&sim, &mm, &[id]);
        if refused == 0 {
            assert!(got.is_ok() && k > 1);
            return;
        }
    }
}

/// No allocation is there to be refused: memory is full, and yet folios are split.
#[test]
fn a_split_needs_no_memory() {
    for grain in [FlushGrain::WHOLE, FlushGrain::ONE] {
        let sim = sim(2, 32);
        let mm = manager(&sim, only(9));
        let id = filled(&sim, &mm, 9);
        mm.set_flush_grain(grain);
        sim.fault_plan().set(Failing::OneIn { every: 1, seed: 1 });
        mm.split(id, Va::new(BASE), into(2)).unwrap();
        mm.split(id, Va::new(BASE), into(0)).unwrap();
        assert_eq!(sim.fault_plan().refused(), 0);
        sim.fault_plan().set(Failing::Nothing);
        check(&sim, &mm, id, BASE, 0..512);
    }
}

/// Splits, forks and moves on one format, by one rule.
fn life<P: Paging>(format: Format, replace: Option<Replace>) {
    let mut config = Config::seeded(2, Bytes::new(64 * MB), 3).with_format(format);
    config.rules.replace = replace.unwrap_or(config.rules.replace);
    let sim = Sim::new(config).unwrap();
    let memory = sim.config().memory.clone();
    let mm: Audited<'_, P> = manager_on(&sim, &memory, Policy::always(Orders::ANON));
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 4 * MB);
    for page in 0..512 {
        store(&sim, &mm, id, BASE + page * PAGE, 1000 + page);
    }
    let child = mm.fork(id).unwrap();
    sim.on(cpu(1), || {
        mm.online();
        mm.switch(Some(child)).unwrap();
        store(&sim, &mm, child, BASE + 5 * PAGE, 7);
    });
    mm.unmap(child, range(BASE + 9 * PAGE, PAGE)).unwrap();
    mm.relocate(mm.frame_at(id, Va::new(BASE)).unwrap()).unwrap();
    mm.audit(&[id, child]).unwrap();
    mm.split(id, Va::new(BASE), into(4)).unwrap();
    let away = Va::new(BASE + (1 << 30) + 7 * PAGE);
    mm.remap(child, range(BASE + 16 * PAGE, 16 * PAGE), Bytes::new(16 * PAGE), Move::To(away))
        .unwrap();
    mm.split(child, away, into(0)).unwrap();
    mm.audit(&[id, child]).unwrap();
    for page in 0..512 {
        assert_eq!(load(&sim, &mm, id, BASE + page * PAGE), 1000 + page, "{format:?}");
    }
    sim.on(cpu(1), || {
        assert_eq!(load(&sim, &mm, child, BASE + 5 * PAGE), 7);
        assert_eq!(load(&sim, &mm, child, away.get() + PAGE), 1017);
    });
}

#[test]
fn every_format_by_both_rules() {
    for replace in [None, Some(Replace::BreakBeforeMake)] {
        life::<X86_64<4>>(Format::X86_64(X86Levels::Four), replace);
        life::<X86_64<5>>(Format::X86_64(X86Levels::Five), replace);
        life::<Aarch64>(Format::Aarch64, replace);
        life::<Riscv64<3>>(Format::Riscv64(RiscvMode::Sv39), replace);
        life::<Riscv64<4>>(Format::Riscv64(RiscvMode::Sv48), replace);
        life::<Riscv64<5>>(Format::Riscv64(RiscvMode::Sv57), replace);
    }
}

/// 24 distances are noted in the space's own record, 511 in each frame behind it: a fork notes as
/// many, in as many frames.
#[test]
fn a_fork_takes_no_more_frames_for_distances_than_its_parent() {
    let records = |moved: u64| {
        let sim = sim(1, 64);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        area(&mm, id, BASE, 30 * SIZE_2M);
        for nth in 0..540 {
            // No two are as far from where they were.
            let (from, to) = (page(2 * nth), Va::new(BASE + (1 << 30) + 7 * nth * PAGE));
            store(&sim, &mm, id, from.start().get(), nth);
            if nth < moved {
                mm.remap(id, from, Bytes::new(PAGE), Move::To(to)).unwrap();
            } else {
                mm.unmap(id, from).unwrap();
                area(&mm, id, to.get(), PAGE);
                store(&sim, &mm, id, to.get(), nth);
            }
        }
        let child = mm.fork(id).unwrap();
        let records = [id, child].map(|id| mm.records(id).unwrap().get());
        finish(&sim, &mm, &[id, child]);
        records
    };
    let none = records(0);
    for (moved, frames) in [(1, 0), (2, 0), (24, 0), (25, 1), (535, 1), (536, 2)] {
        let more: Vec<_> =
            records(moved).into_iter().zip(none).map(|(with, none)| with - none).collect();
        assert_eq!(more, [frames, frames], "{moved} moved");
    }
}

/// Six spaces use eight pages, and four can have a flush pending: the first three of them are
/// flushed once for all pages.
#[test]
fn finding_ab_pages_of_many_spaces_move_with_few_flushes() {
    let sim = sim(7, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    mm.describe_all().unwrap();
    let first = mm.create(None).unwrap();
    area(&mm, first, BASE, 2 * SIZE_2M);
    mm.advise(first, range(BASE, 2 * SIZE_2M), Advice::PopulateWrite).unwrap();
    mm.advise(first, row(8, 760), Advice::DontNeed).unwrap();
    let mut spaces = vec![first];
    spaces.extend((0..5).map(|_| mm.fork(first).unwrap()));
    for (cpu, id) in mm.cpus().skip(1).zip(&spaces) {
        sim.on(cpu, || {
            mm.online();
            mm.switch(Some(*id)).unwrap();
            for nth in (0..8).chain(768..1024) {
                assert_eq!(load(&sim, &mm, *id, page(nth).start().get()), 0);
            }
        });
    }
    let free = mm.free_blocks().within(Order::SIZE_2M);
    let lent: Vec<_> = (0..free).map(|_| mm.lend(Order::SIZE_2M).unwrap()).collect();
    let before = mm.total(Event::Shootdown);
    let one = CompactRequest { want: Want::One, ..CompactRequest::ALL };
    let done = mm.compact(&one, &mut []);
    // The last pages lie in a block by themselves. How many they are depends on the frames that the
    // manager has taken for itself.
    assert!(done.blocks == 1 && (5..=16).contains(&done.moved), "{done:?}");
    // Two spaces too many at the first page, three at each other one, and in the end the four that
    // are pending.
    assert_eq!(mm.total(Event::Shootdown) - before, 2 + (done.moved - 1) * 3 + 4);
    lent.into_iter().for_each(|frame| mm.take_back(frame, Order::SIZE_2M).unwrap());
}

/// Somebody else who moves a piece while the split has migration entries left would have some of
/// the same frames, and each of the two would put back the other's. Seen in a history: with a space
/// that forks in between an entry was never put.
#[test]
fn finding_ac_a_piece_is_nobody_elses_before_the_last_entry_is_put() {
    let mut refused = 0;
    for nth in 1.. {
        let machine = Beside::new(sim(2, 32));
        let mm = machine.manager(only(2));
        machine.sim.on(cpu(1), || mm.online());
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        area(&mm, id, BASE, MB);
        for page in 0..4 {
            store(&machine.sim, &mm, id, BASE + page * PAGE, 1000 + page);
        }
        let child = mm.fork(id).unwrap();
        let last = mm.frame_at(id, Va::new(BASE + 3 * PAGE)).unwrap();
        let (mut left, mut moved) = (false, None);
        let other = || {
            left = [id, child].iter().any(|space| {
                let mut found = false;
                mm.with_leaves(*space, range(BASE, MB), |mut leaves| {
                    found = leaves.any(|leaf| matches!(leaf.entry, Entry::Soft(_)));
                });
                found
            });
            moved = Some(mm.relocate(last));
        };
        let split = || mm.split(id, Va::new(BASE), into(0));
        if machine.before_step(nth, other, split).is_none() {
            assert!(refused > 5, "{refused} refused");
            return;
        }
        if left {
            let busy = matches!(moved, Some(Err(RelocateError::Stays(SplitError::Busy(_)))));
            assert!(busy, "step {nth}: {moved:?}");
            refused += 1;
        }
        for page in 0..4 {
            assert_eq!(load(&machine.sim, &mm, id, BASE + page * PAGE), 1000 + page);
        }
    }
}
