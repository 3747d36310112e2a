//! The traps of system T, each by its name in `docs/rules.md`, and what of system A needs
//! splitting.

use crate::common::meddler::Meddler;
use crate::common::recorder::Step;
use crate::common::*;
use foliant::fault::Orders;
use foliant::frame::Kind;
use foliant::manager::Poisoned;
use foliant::space::{Advice, Flags, Move, Place, SpaceId};
use foliant::split::{Pieces, Shrink, Shrunk, SplitError, SplitInto, ZeroPieces};
use foliant::table::{Attrs, Entry, Paging, X86_64};
use foliant::{Event, FlushGrain, Policy, SizeEvent};
use foliant_machine::{PhysMem, Replace};
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, Cpu, Frame, Level, Pa, Pages, Va};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

fn into(n: u8, zeros: ZeroPieces) -> SplitInto {
    SplitInto { order: order(n), zeros }
}
fn keep(n: u8) -> SplitInto {
    into(n, ZeroPieces::Keep)
}

/// A space that CPUs 0 to 2 run, with a folio of 64 KiB at `BASE` and a page of another one at
/// `BASE + MB`, all written.
fn shared_by_three(mm: &'static Mm<'static>, machine: &'static Meddler) -> SpaceId {
    let id = mm.create(None).unwrap();
    for n in 0..3 {
        machine.sim.on(cpu(n), || {
            mm.online();
            mm.switch(Some(id)).unwrap();
        });
    }
    area(mm, id, BASE, 2 * MB);
    for page in (0..16).chain([256]) {
        store(&machine.sim, mm, id, BASE + page * PAGE, 1000 + page);
    }
    id
}

/// Splits the folio at `BASE`. Between its walk and its flush CPU 1 drops the page at `BASE + MB`,
/// with a flush of its own, and does `work`: says how many shootdowns that takes.
fn shootdowns_beside_a_split(
    (machine, mm): (&'static Meddler, &'static Mm<'static>),
    id: SpaceId,
    work: impl FnOnce() + Send + 'static,
) -> u64 {
    let (told, ran) = mpsc::channel();
    machine.before_asking(move || {
        machine.sim.on(cpu(1), || {
            mm.advise(id, range(BASE + MB, PAGE), Advice::DontNeed).unwrap();
            let before = mm.total(Event::Shootdown);
            work();
            told.send(mm.total(Event::Shootdown) - before).unwrap();
        });
    });
    mm.split(id, Va::new(BASE), keep(0)).unwrap();
    ran.try_recv().expect("the split asked")
}

/// A boolean "pending", cleared by another flush that began later, loses this one. Counts do not:
/// while a split is between its walk and its flush, another flush of the space comes and goes, and
/// an observer still completes what is pending.
#[test]
fn tr_t1_a_later_flush_does_not_hide_a_pending_one() {
    let (machine, mm, _over) = meddled(3, 64, only(4));
    let id = shared_by_three(mm, machine);
    // Nothing is there, so it concludes from absence, and must not before the split's flush.
    let unmap = move || mm.unmap(id, range(BASE + MB, PAGE)).unwrap();
    let shootdowns = shootdowns_beside_a_split((machine, mm), id, unmap);
    assert_eq!(shootdowns, 1, "one flush on behalf of the split");
    let before = mm.total(Event::Shootdown);
    mm.unmap(id, range(BASE + MB, PAGE)).unwrap();
    assert_eq!(mm.total(Event::Shootdown), before, "nothing is pending any more");
}

/// The same for a change of rights where nothing is any more: what is pending would allow to write.
#[test]
fn tr_t1_a_change_of_rights_flushes_what_is_pending() {
    let (machine, mm, _over) = meddled(3, 64, only(4));
    let id = shared_by_three(mm, machine);
    let protect = move || mm.protect(id, range(BASE + MB, PAGE), Flags::READ).unwrap();
    let shootdowns = shootdowns_beside_a_split((machine, mm), id, protect);
    assert_eq!(shootdowns, 1, "one flush on behalf of the split");
}

/// A folio moves to other memory while a CPU that has moved its entries to other addresses has not
/// asked anybody yet: the third CPU has the old address cached, and uses the old memory no more.
#[test]
fn a_move_covers_what_a_remap_has_not_flushed() {
    let (machine, mm, _over) = meddled(3, 64, only(4));
    let id = shared_by_three(mm, machine);
    let frame = mm.frame_at(id, Va::new(BASE)).unwrap();
    machine.sim.on(cpu(2), || assert_eq!(load(&machine.sim, mm, id, BASE), 1000));
    machine.before_asking(move || {
        machine.sim.on(cpu(1), || _ = mm.relocate(frame).unwrap());
    });
    let to = Move::To(Va::new(BASE + GB));
    mm.remap(id, range(BASE, 16 * PAGE), Bytes::new(16 * PAGE), to).unwrap();
    assert_eq!(load(&machine.sim, mm, id, BASE + GB), 1000);
}

/// Unmap, protect, remap and dropped contents come back only when no CPU can use what a split took
/// out before.
#[test]
fn tr_t2_an_observer_returns_after_the_pending_flush() {
    for seed in 0..24 {
        let mut config = Config::seeded(3, Bytes::new(64 * MB), seed);
        if seed % 3 == 0 {
            config.rules.replace = Replace::BreakBeforeMake;
        }
        let sim = Sim::new(config).unwrap();
        let mm = manager(&sim, only(4));
        let id = mm.create(None).unwrap();
        area(&mm, id, BASE, MB);
        let stop = AtomicU64::new(0);
        sim.parallel(3, |cpu: Cpu| {
            mm.online();
            mm.switch(Some(id)).unwrap();
            let page = range(BASE + 3 * PAGE, PAGE);
            for step in 1..40 {
                match cpu.0 {
                    0 => drop((mm.split(id, Va::new(BASE), keep(0)), mm.relocate_at(id, BASE))),
                    1 if step % 3 == 0 => {
                        mm.protect(id, page, Flags::READ).unwrap();
                        let seen = load(&sim, &mm, id, BASE + 3 * PAGE);
                        for _ in 0..3 {
                            assert_eq!(
                                load(&sim, &mm, id, BASE + 3 * PAGE),
                                seen,
                                "it is read-only"
                            );
                        }
                        mm.protect(id, page, Flags::READ_WRITE).unwrap();
                    }
                    1 => {
                        mm.advise(id, range(BASE, 16 * PAGE), Advice::DontNeed).unwrap();
                        assert_eq!(load(&sim, &mm, id, BASE + 2 * PAGE), 0, "it was dropped");
                        store(&sim, &mm, id, BASE + 2 * PAGE, step);
                        assert_eq!(load(&sim, &mm, id, BASE + 2 * PAGE), step);
                    }
                    _ if stop.load(Ordering::Relaxed) == 0 => {
                        let _ = sim.user_store(Va::new(BASE + 3 * PAGE), 8, step);
                        let _ = sim.user_load(Va::new(BASE + 2 * PAGE), 8);
                    }
                    _ => {}
                }
            }
        });
    }
}

/// Writers on all CPUs storm a folio while it is split, moved, made anew and shrunk: no store is
/// lost, and every page that was stored to says so.
#[test]
fn tr_t3_no_store_is_lost_while_the_folio_is_taken_apart() {
    let mut split = 0;
    for seed in 0..60 {
        let mut config = Config::seeded(4, Bytes::new(64 * MB), seed);
        if seed % 4 == 0 {
            config.rules.replace = Replace::BreakBeforeMake;
        }
        let sim = Sim::new(config).unwrap();
        let n = if seed % 2 == 0 { 9 } else { 4 };
        let mm = manager(&sim, only(n));
        let id = mm.create(None).unwrap();
        area(&mm, id, BASE, SIZE_2M);
        let done = AtomicU64::new(0);
        sim.parallel(4, |cpu: Cpu| {
            mm.online();
            mm.switch(Some(id)).unwrap();
            if cpu.0 == 0 {
                let share = into(0, ZeroPieces::Share);
                for round in 0..24 {
                    let at = Va::new(BASE + round * 5 % 12 * 16 * PAGE);
                    let got = [keep(2), keep(0), share].map(|into| mm.split(id, at, into).is_ok());
                    done.fetch_add(
                        got.iter().filter(|done| **done).count() as u64,
                        Ordering::Relaxed,
                    );
                    let _ = mm.relocate_at(id, at.get());
                    mm.shrink_deferred(Shrink { folios: 10, zeros_max: Some(Pages::new(1)) });
                }
                return;
            }
            for step in 0..60u64 {
                let va = BASE + step % 12 * 16 * PAGE + 8 * u64::from(cpu.0);
                store(&sim, &mm, id, va, step + 1);
                assert_eq!(load(&sim, &mm, id, va), step + 1, "seed {seed}");
            }
        });
        split += done.load(Ordering::Relaxed);
        for page in 0..12 {
            let dirty = mm.with_leaves(id, range(BASE + page * 16 * PAGE, PAGE), |mut leaves| {
                leaves.next().is_some_and(|leaf| {
                    matches!(leaf.entry, Entry::Leaf { attrs, .. } if attrs.has(Attrs::DIRTY))
                })
            });
            assert_eq!(dirty, Some(true), "page {page} of seed {seed}");
            for writer in 1..4 {
                let last = load(&sim, &mm, id, BASE + page * 16 * PAGE + 8 * writer);
                assert_eq!(last, 48 + page + 1, "the last of five rounds, seed {seed}");
            }
        }
    }
    assert!(split > 400, "only {split} splits");
}

/// A folio that straddles the end of a table, at every offset; and of an area, with a neighbour
/// behind it.
#[test]
fn tr_t4_a_folio_may_straddle_tables_and_areas_at_every_offset() {
    for inside in 1..16 {
        let sim = sim(1, 64);
        let mm = manager(&sim, only(4));
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        area(&mm, id, BASE, 16 * PAGE);
        for page in 0..16 {
            store(&sim, &mm, id, BASE + page * PAGE, 1000 + page);
        }
        // Its first `inside` pages in one table, the others in the next one.
        let start = BASE + (1 << 30) + SIZE_2M - inside * PAGE;
        mm.remap(id, range(BASE, 16 * PAGE), Bytes::new(16 * PAGE), Move::To(Va::new(start)))
            .unwrap();
        area(&mm, id, start + 16 * PAGE, PAGE);
        store(&sim, &mm, id, start + 16 * PAGE, 99);
        // The area is cut where the table ends, and each part is met again by its own way.
        mm.protect(id, range(start, inside * PAGE), Flags::READ).unwrap();
        mm.relocate_at(id, start + PAGE).unwrap();
        mm.audit(&[id]).unwrap();
        let pieces = mm.split(id, Va::new(start + 15 * PAGE), keep(2)).unwrap();
        assert_eq!(pieces.folios, 4);
        mm.audit(&[id]).unwrap();
        for page in 0..16 {
            assert_eq!(load(&sim, &mm, id, start + page * PAGE), 1000 + page, "{inside} inside");
        }
        assert_eq!(load(&sim, &mm, id, start + 16 * PAGE), 99, "a neighbour was hit");
    }
}

/// What an entry says survives, for pages with contents and pages that the zero page takes the
/// place of.
#[test]
fn tr_t5_every_bit_of_every_entry_survives() {
    let bits = [
        Attrs::WRITE | Attrs::EXCLUSIVE,
        Attrs::ACCESSED,
        Attrs::DIRTY,
        Attrs::SOFT_DIRTY,
        Attrs::UFFD_WP,
        Attrs::EXEC,
    ];
    let noted = Attrs::SOFT_DIRTY | Attrs::UFFD_WP | Attrs::USER | Attrs::EXEC | Attrs::TOUCHED;
    for (zeros, fails) in
        [(ZeroPieces::Keep, false), (ZeroPieces::Share, false), (ZeroPieces::Keep, true)]
    {
        let sim = sim(1, 64);
        let mm = manager(&sim, only(7));
        let id = mm.create(None).unwrap();
        let place = Place::Fixed(Va::new(BASE));
        mm.map(id, &request(place, 128 * PAGE, Flags::RIGHTS)).unwrap();
        mm.advise(id, range(BASE, 128 * PAGE), Advice::PopulateWrite).unwrap();
        let head = mm.frame_at(id, Va::new(BASE)).unwrap();
        // Nobody runs the space, so nothing of this is cached. Even combinations have contents.
        let combination = |n: u64| {
            let chosen = bits.iter().enumerate().filter(|(nth, _)| n >> nth & 1 == 1);
            chosen.fold(Attrs::USER, |all, (_, bit)| all | *bit)
        };
        for n in 0..128 {
            let va = BASE + n * PAGE;
            let at = mm.with_leaves(id, range(va, PAGE), |mut leaves| leaves.next().unwrap().at);
            let word =
                X86_64::<4>::leaf(head.add(Pages::new(n)).pa(), Level::BASE, combination(n >> 1));
            // SAFETY: the word maps what it mapped before.
            #[allow(unsafe_code)]
            unsafe {
                sim.store(at.unwrap(), word)
            };
            if n % 2 == 0 {
                let page = head.add(Pages::new(n)).pa();
                // SAFETY: a page of the folio, which nobody uses.
                #[allow(unsafe_code)]
                let page = unsafe { sim.reach(page, Bytes::new(8)) };
                // SAFETY: as above.
                #[allow(unsafe_code)]
                unsafe {
                    page.cast::<u64>().write(7)
                };
            }
        }
        let pin = fails.then(|| mm.reference(head).unwrap());
        let got = mm.split(id, Va::new(BASE), into(0, zeros));
        assert_eq!(got.is_err(), fails);
        drop(pin);
        for n in 0..128 {
            let leaf = mm.with_leaves(id, range(BASE + n * PAGE, PAGE), |mut leaves| {
                leaves.next().unwrap().entry
            });
            let Some(Entry::Leaf { attrs, .. }) = leaf else { panic!("page {n}: {leaf:?}") };
            let before = combination(n >> 1);
            let shared = zeros == ZeroPieces::Share && n % 2 == 1;
            assert_eq!(attrs.has(Attrs::SPECIAL), shared, "page {n}");
            // What could have been written through meanwhile is taken for dirty.
            let maybe = Attrs::WRITE | Attrs::ACCESSED;
            let dirty = if before.has(maybe) && !fails { Attrs::DIRTY } else { Attrs::NONE };
            if shared {
                assert_eq!(attrs.and(noted), (before | dirty).and(noted), "page {n}");
                assert_eq!(attrs.and(Attrs::WRITE | Attrs::EXCLUSIVE), Attrs::NONE);
            } else {
                assert_eq!(attrs, before | dirty, "page {n}");
            }
        }
        // Half of them may not be fetched, as their area may: no audit lets that pass.
        mm.unmap(id, range(BASE, 128 * PAGE)).unwrap();
    }
}

/// A walker of frame numbers never gets hold of a folio that is half made, and what it has stays
/// what it is.
#[test]
fn tr_t6_a_look_up_finds_the_folio_before_or_the_piece_after() {
    let mut got = 0;
    for seed in 0..40 {
        let sim = Sim::new(Config::seeded(3, Bytes::new(64 * MB), seed)).unwrap();
        let mm = manager(&sim, only(6));
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        area(&mm, id, BASE, MB);
        store(&sim, &mm, id, BASE, 1);
        let first = mm.frame_at(id, Va::new(BASE)).unwrap();
        let found = AtomicU64::new(0);
        sim.parallel(3, |cpu: Cpu| {
            mm.online();
            for n in 0..20u64 {
                if cpu.0 == 0 {
                    let _ = mm.split_frame(
                        first.add(Pages::new(n * 3 % 64)),
                        keep([4, 2, 0][n as usize / 7]),
                    );
                    continue;
                }
                let frame = first.add(Pages::new((n * 7 + u64::from(cpu.0)) % 64));
                let Some(reference) = mm.reference(frame) else { continue };
                found.fetch_add(1, Ordering::Relaxed);
                let (head, of) = (reference.head(), mm.identity(frame));
                assert_eq!(of.head(frame), head, "seed {seed}");
                assert_eq!(mm.identity(head).kind(), Kind::Anon);
                let split = mm.split_frame(head, keep(0));
                assert!(split.is_err(), "it is pinned, or one page");
                assert_eq!(
                    mm.identity(frame).order(),
                    of.order(),
                    "it changed while it was pinned"
                );
            }
        });
        got += found.load(Ordering::Relaxed);
    }
    assert!(got > 400, "only {got} references");
}

/// An unmap between its walk and its flush still counts entries that are in no table.
#[test]
fn a_folio_whose_entries_are_being_given_up_is_neither_split_nor_moved() {
    let (machine, mm, _over) = meddled(2, 64, only(4));
    for relocates in [false, true] {
        let id = mm.create(None).unwrap();
        for n in 0..2 {
            machine.sim.on(cpu(n), || {
                mm.online();
                mm.switch(Some(id)).unwrap();
            });
        }
        area(mm, id, BASE, MB);
        store(&machine.sim, mm, id, BASE, 1);
        let head = mm.frame_at(id, Va::new(BASE)).unwrap();
        // The entries are out, and what they counted is about to be dropped.
        machine.before_asking(move || {
            let gone = match relocates {
                true => mm.relocate(head).is_err(),
                false => mm.split_frame(head, keep(0)).is_err(),
            };
            assert!(gone);
        });
        mm.unmap(id, range(BASE, MB)).unwrap();
        assert_eq!(mm.anonymous().get(), 0);
        for n in 0..2 {
            machine.sim.on(cpu(n), || mm.switch(None).unwrap());
        }
        mm.end(id).unwrap();
    }
    mm.audit(&[]).unwrap();
}

/// A folio that can never be split does not hold the shrinker up, and waits on; lists stay whole
/// while folios come, move and go.
#[test]
fn tr_t7_a_folio_that_stays_whole_does_not_hold_the_shrinker_up() {
    let sim = sim(1, 64);
    let mm = manager(&sim, only(4));
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, MB);
    for nth in 0..3 {
        store(&sim, &mm, id, BASE + nth * 16 * PAGE, 1);
        mm.unmap(id, range(BASE + (nth * 16 + 3) * PAGE, PAGE)).unwrap();
    }
    let stuck = mm.reference(mm.frame_at(id, Va::new(BASE)).unwrap()).unwrap();
    let all = Shrink { folios: u64::MAX, zeros_max: None };
    assert_eq!(mm.shrink_deferred(all), Shrunk { seen: 3, split: 2, failed: 1, pages: 32 - 2 });
    assert_eq!(mm.shrink_deferred(all), Shrunk { seen: 1, split: 0, failed: 1, pages: 0 });
    assert_eq!(
        (mm.deferred(), mm.size_stats(order(4)).get(SizeEvent::NrAnonPartiallyMapped)),
        (1, 1)
    );
    drop(stuck);
    assert_eq!(mm.shrink_deferred(all).split, 1);
    assert_eq!(mm.size_stats(order(4)).get(SizeEvent::NrAnonPartiallyMapped), 0);
    finish(&sim, &mm, &[id]);
    for seed in 0..30 {
        let sim = Sim::new(Config::seeded(4, Bytes::new(64 * MB), seed)).unwrap();
        let mm = manager(&sim, Policy::always(Orders::of(order(4)).with(Orders::of(order(2)))));
        let id = mm.create(None).unwrap();
        area(&mm, id, BASE, MB);
        sim.parallel(4, |cpu: Cpu| {
            mm.online();
            mm.switch(Some(id)).unwrap();
            for step in 0..30u64 {
                let va = BASE + step * 5 % 64 * PAGE;
                match cpu.0 {
                    0 => drop(mm.shrink_deferred(Shrink { folios: 5, zeros_max: None })),
                    1 => drop(mm.relocate_at(id, va)),
                    2 => mm.advise(id, range(va, 3 * PAGE), Advice::DontNeed).unwrap(),
                    _ => drop(store(&sim, &mm, id, va, step)),
                }
            }
        });
    }
}

/// Who pins a frame that it found in an entry, and finds it there again, has a folio that is
/// neither split nor moved.
#[test]
fn tr_t8_a_pin_and_a_split_never_both_succeed() {
    let mut pinned = 0;
    for seed in 0..60 {
        let sim = Sim::new(Config::seeded(2, Bytes::new(64 * MB), seed)).unwrap();
        let mm = manager(&sim, only(4));
        let id = mm.create(None).unwrap();
        area(&mm, id, BASE, MB);
        sim.on(cpu(0), || mm.advise(id, range(BASE, 16 * PAGE), Advice::PopulateWrite).unwrap());
        let pins = AtomicU64::new(0);
        sim.parallel(2, |cpu: Cpu| {
            mm.online();
            for n in 0..12u64 {
                let va = Va::new(BASE + n * PAGE);
                if cpu.0 == 0 {
                    let _ = mm.relocate_at(id, va.get());
                    let _ = mm.split(id, va, keep(if n < 6 { 2 } else { 0 }));
                    continue;
                }
                let Some(frame) = mm.frame_at(id, va) else { continue };
                let Some(reference) = mm.reference(frame) else { continue };
                if mm.frame_at(id, va) != Some(frame) {
                    continue; // it went meanwhile: the pin is of something else
                }
                pins.fetch_add(1, Ordering::Relaxed);
                let head = reference.head();
                for _ in 0..4 {
                    foliant_machine::Cpus::relax(&sim);
                    assert_eq!(mm.identity(frame).head(frame), head, "seed {seed}");
                    let now = mm.frame_at(id, va);
                    assert!(now.is_none_or(|now| now == frame), "it moved while it was pinned");
                }
            }
        });
        pinned += pins.load(Ordering::Relaxed);
    }
    assert!(pinned > 200, "only {pinned} pins");
}

/// Runs `act` when the `nth` request from now on is about to be made.
fn at_request(machine: &'static Meddler, nth: u64, act: impl FnOnce() + Send + 'static) {
    machine.before_asking(move || match nth {
        0 => act(),
        _ => at_request(machine, nth - 1, act),
    });
}

/// Whatever makes a split give up, after however many entries, all that it took out is flushed when
/// it returns.
#[test]
fn tr_t9_who_gives_up_has_flushed() {
    for nth in 0..16 {
        let (machine, mm, over) = meddled(3, 64, only(4));
        over.leaves("a reference that is never given back");
        let id = shared_by_three(mm, machine);
        mm.set_flush_grain(FlushGrain::ONE);
        let head = mm.frame_at(id, Va::new(BASE)).unwrap();
        at_request(machine, nth, move || core::mem::forget(mm.reference(head).unwrap()));
        let before = mm.total(Event::Shootdown);
        assert_eq!(mm.split(id, Va::new(BASE), keep(0)), Err(SplitError::Pinned(head)));
        assert_eq!(mm.total(Event::Shootdown) - before, 16, "each entry that was taken");
        assert_eq!(mm.size_stats(order(4)).get(SizeEvent::SplitFailed), 1);
        // Nobody has to complete anything for it, and the entries are back.
        mm.unmap(id, range(BASE + 300 * PAGE, PAGE)).unwrap();
        assert_eq!(mm.total(Event::Shootdown) - before, 16);
        for page in 0..16 {
            machine.sim.on(cpu(1), || {
                assert_eq!(load(&machine.sim, mm, id, BASE + page * PAGE), 1000 + page);
                assert!(store(&machine.sim, mm, id, BASE + page * PAGE, 1000 + page).is_empty());
            });
        }
    }
}

/// The scan for pages of zeros does not look at memory that is broken.
#[test]
fn tr_a7_a_broken_folio_is_not_scanned() {
    let (recorder, mm, over) = recorded(1, 64, only(9));
    over.leaves("a page that is broken");
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(mm, id, BASE, 2 * SIZE_2M);
    for nth in 0..2 {
        store(&recorder.sim, mm, id, BASE + nth * SIZE_2M, 1);
    }
    let head = mm.frame_at(id, Va::new(BASE)).unwrap();
    assert_eq!(mm.poison(head.add(Pages::new(5))), Poisoned::Held);
    let how = Shrink { folios: 10, zeros_max: Some(Pages::new(100)) };
    recorder.take();
    assert_eq!(mm.shrink_deferred(how), Shrunk { seen: 1, split: 1, failed: 0, pages: 511 });
    assert_eq!(mm.deferred(), 0, "it waits no longer");
    let reached = |frame: Frame| {
        let inside = move |pa: Pa| order(9).head(pa.frame()) == frame;
        move |step: &Step| matches!(step, Step::Reached(pa) if inside(*pa))
    };
    let steps = recorder.take();
    let sound = mm.frame_at(id, Va::new(BASE + SIZE_2M)).unwrap();
    assert!(steps.iter().any(reached(sound)), "the other one is looked at");
    assert!(!steps.iter().any(reached(head)), "broken memory was read");
    assert_eq!(mm.split(id, Va::new(BASE), keep(0)), Err(SplitError::Broken(head)));
}

/// Fork, partial unmap and stores from both sides, with splits and moves in between: contents are
/// each side's own.
#[test]
fn tr_a3_parts_shared_after_a_fork_survive_splits() {
    for at in 0..4 {
        let sim = sim(1, 64);
        let mm = manager(&sim, only(4));
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        area(&mm, id, BASE, MB);
        for page in 0..16 {
            store(&sim, &mm, id, BASE + page * PAGE, 1000 + page);
        }
        let split = |mm: &Mm<'_>, step| {
            if step == at {
                let done = mm.split(id, Va::new(BASE + 6 * PAGE), keep(2)).unwrap();
                assert!(matches!(done, Pieces { folios: 4, .. }), "{done:?}");
                mm.relocate_at(id, BASE + 6 * PAGE).unwrap();
            }
        };
        split(&mm, 0);
        let child = mm.fork(id).unwrap();
        split(&mm, 1);
        mm.unmap(child, range(BASE + 4 * PAGE, 2 * PAGE)).unwrap();
        split(&mm, 2);
        store(&sim, &mm, id, BASE, 1);
        split(&mm, 3);
        mm.switch(Some(child)).unwrap();
        store(&sim, &mm, child, BASE + 15 * PAGE, 2);
        mm.audit(&[id, child]).unwrap();
        for (space, first, last) in [(id, 1, 1015), (child, 1000, 2)] {
            mm.switch(Some(space)).unwrap();
            assert_eq!(load(&sim, &mm, space, BASE), first);
            assert_eq!(load(&sim, &mm, space, BASE + 15 * PAGE), last);
            for page in (1..4).chain(6..15) {
                assert_eq!(load(&sim, &mm, space, BASE + page * PAGE), 1000 + page);
            }
        }
    }
}

/// What tests want of the manager besides: moving what is at an address.
trait RelocateAt {
    fn relocate_at(&self, id: SpaceId, va: u64) -> Option<Frame>;
}

impl<P: Paging> RelocateAt for AnyMm<'_, P> {
    fn relocate_at(&self, id: SpaceId, va: u64) -> Option<Frame> {
        self.relocate(self.frame_at(id, Va::new(va))?).ok()
    }
}
