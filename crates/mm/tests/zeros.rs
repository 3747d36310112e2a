//! Shared zeros of 2 MiB: where a read maps them, what a write makes of them, and everything that
//! meets such a leaf.

use crate::common::beside::Beside;
use crate::common::*;
use foliant::compact::{CollapseError, CompactRequest};
use foliant::fault::{ProcessSwitch, UseZeroPage};
use foliant::manager::{CollapseLimits, Poisoned};
use foliant::space::{Advice, Flags, Move, Place, SpaceId};
use foliant::split::{SplitError, SplitInto};
use foliant::table::{Aarch64, Attrs, Entry, Paging, Riscv64, X86_64};
use foliant::{Access, Event, Outcome, Policy, SizeEvent};
use foliant_machine::Replace;
use foliant_sim::{Config, Failing, Format, RiscvMode, Sim, X86Levels};
use foliant_units::{Bytes, Frame, Level, Order, Pages, Va};

const ZEROS: Outcome = Outcome::ZeroPage(Order::SIZE_2M);
const ZERO: Outcome = Outcome::ZeroPage(Order::BASE);
const FOLIO: Outcome = Outcome::Mapped(Order::SIZE_2M);
const SINGLE: Outcome = Outcome::Mapped(Order::BASE);

fn read(mm: &AnyMm<'_, impl Paging>, id: SpaceId, va: u64) -> Outcome {
    mm.fault(id, Va::new(va), Access::Read)
}
/// A space that CPU 0 runs, with 6 MiB at `BASE`.
fn space(mm: &AnyMm<'_, impl Paging>) -> SpaceId {
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(mm, id, BASE, 6 * MB);
    id
}
/// How many leaves of shared zeros are in 6 MiB from `start` on, of 2 MiB and of a page, and their
/// first frame.
fn zeros(mm: &AnyMm<'_, impl Paging>, id: SpaceId, start: u64) -> (usize, usize, Option<Frame>) {
    let found: Vec<_> = mm
        .with_leaves(id, range(start, 6 * MB), |leaves| {
            leaves
                .filter_map(|leaf| match leaf.entry {
                    Entry::Leaf { pa, attrs } if attrs.has(Attrs::SPECIAL) => {
                        assert!(!attrs.has(Attrs::WRITE) && !attrs.has(Attrs::EXCLUSIVE));
                        Some((leaf.level, pa.frame()))
                    }
                    _ => None,
                })
                .collect()
        })
        .unwrap();
    let large = found.iter().filter(|(level, _)| *level > Level::BASE).count();
    (large, found.len() - large, found.first().map(|(_, frame)| *frame))
}

#[test]
fn a_read_maps_two_mib_of_zeros_where_a_folio_may_be() {
    let sim = sim(1, 64);
    let mm = manager(&sim, only(9));
    let id = space(&mm);
    let records = mm.records(id).unwrap().get();
    assert_eq!(read(&mm, id, BASE + 5 * PAGE), ZEROS);
    assert_eq!(load(&sim, &mm, id, BASE + 511 * PAGE), 0);
    assert_eq!(mm.pages(id), Some(Pages::new(0)), "zeros are nobody's");
    // Two tables down to the leaf, and the one that is kept for its split.
    assert_eq!(mm.records(id).unwrap().get() - records, 3);
    let free = mm.memory().free;
    assert_eq!(read(&mm, id, BASE + SIZE_2M), ZEROS);
    assert_eq!(free.get() - mm.memory().free.get(), 1, "one block is enough for all");
    assert_eq!(mm.total(Event::ThpZeroPageAlloc), 1);
    let (large, small, first) = zeros(&mm, id, BASE);
    assert_eq!((large, small), (2, 0));
    assert!(first.unwrap().get().is_multiple_of(512));
}

#[test]
fn a_read_maps_a_page_of_zeros_where_no_such_folio_may_be() {
    type Prepare = fn(&Mm<'_>, SpaceId);
    let cases: [(&str, Prepare); 7] = [
        ("other sizes", |mm, _| mm.set_policy(only(8))),
        ("the switch", |mm, _| {
            mm.set_policy(Policy { use_zero_page: UseZeroPage::No, ..only(9) });
        }),
        ("advice", |mm, id| mm.advise(id, range(BASE, PAGE), Advice::NoHugePage).unwrap()),
        ("the process", |mm, id| mm.set_process_switch(id, ProcessSwitch::Off).unwrap()),
        ("a short area", |mm, id| mm.unmap(id, range(BASE + SIZE_2M - PAGE, PAGE)).unwrap()),
        ("a page there", |mm, id| {
            mm.set_policy(Policy::BASE_ONLY);
            assert_eq!(mm.fault(id, page(9).start(), Access::Write), SINGLE);
            mm.set_policy(only(9));
        }),
        ("no block", |mm, _| while mm.lend(Order::SIZE_2M).is_ok() {}),
    ];
    for (what, prepare) in cases {
        let sim = sim(1, 32);
        let mm = manager(&sim, only(9));
        let id = space(&mm);
        prepare(&mm, id);
        assert_eq!(read(&mm, id, BASE), ZERO, "{what}");
        assert_eq!(zeros(&mm, id, BASE).1, 1, "{what}");
        let failed = u64::from(what == "no block");
        assert_eq!(mm.total(Event::ThpZeroPageAllocFailed), failed, "{what}");
        assert_eq!(mm.total(Event::ThpZeroPageAlloc), 0, "{what}");
        mm.advise(id, range(BASE + PAGE, PAGE), Advice::UserfaultArm).unwrap();
        assert_eq!(read(&mm, id, BASE + PAGE), Outcome::Userfault(Va::new(BASE + PAGE)));
    }
}

#[test]
fn a_write_puts_a_folio_in_the_place_of_zeros() {
    let sim = sim(1, 64);
    let mm = manager(&sim, only(9));
    let id = space(&mm);
    load(&sim, &mm, id, BASE);
    let records = mm.records(id);
    assert_eq!(store(&sim, &mm, id, BASE + 7 * PAGE, 7), [FOLIO]);
    assert_eq!(mm.records(id), records, "the folio has the table that was kept for the zeros");
    assert_eq!(mm.pages(id), Some(Pages::new(512)));
    assert_eq!(load(&sim, &mm, id, BASE + 7 * PAGE), 7);
    assert_eq!(load(&sim, &mm, id, BASE + 8 * PAGE), 0);
    assert_eq!(store(&sim, &mm, id, BASE, 1), [], "the leaf is writable");
    assert_eq!(mm.size_stats(Order::SIZE_2M).get(SizeEvent::AnonFaultAlloc), 1);
    mm.split(id, Va::new(BASE), SplitInto::BASE).unwrap();
    assert_eq!(load(&sim, &mm, id, BASE), 1);
}

#[test]
fn a_write_that_gets_no_folio_splits_the_zeros() {
    type Prepare = fn(&Mm<'_>, SpaceId);
    let cases: [(&str, Prepare); 4] = [
        ("no block", |mm, _| while mm.lend(Order::SIZE_2M).is_ok() {}),
        ("other sizes", |mm, _| mm.set_policy(only(4))),
        ("advice", |mm, id| mm.advise(id, range(BASE, 64 * PAGE), Advice::NoHugePage).unwrap()),
        ("the limit", |mm, id| {
            // With 500 pages in use one more fits, and 512 do not.
            mm.set_policy(Policy::BASE_ONLY);
            area(mm, id, BASE + 16 * MB, 2 * MB);
            let filled = range(BASE + 16 * MB, 500 * PAGE);
            mm.advise(id, filled, Advice::PopulateWrite).unwrap();
            mm.set_policy(only(9));
        }),
    ];
    for (what, prepare) in cases {
        let sim = sim(1, 32);
        let mm = manager(&sim, only(9));
        let limit = (what == "the limit").then_some(Pages::new(600));
        let id = mm.create(limit).unwrap();
        mm.switch(Some(id)).unwrap();
        area(&mm, id, BASE, 2 * MB);
        load(&sim, &mm, id, BASE);
        prepare(&mm, id);
        let (pages, records) = (mm.pages(id).unwrap().get(), mm.records(id).unwrap());
        let before = mm.size_stats(Order::SIZE_2M);
        assert_eq!(store(&sim, &mm, id, BASE + 7 * PAGE, 7), [SINGLE], "{what}");
        assert_eq!(mm.pages(id).unwrap().get() - pages, 1, "{what}");
        assert_eq!(mm.records(id).unwrap(), records, "the table was paid for: {what}");
        assert_eq!((zeros(&mm, id, BASE).0, zeros(&mm, id, BASE).1), (0, 511), "{what}");
        let after = mm.size_stats(Order::SIZE_2M);
        let fell_back = |event| after.get(event) - before.get(event);
        let expected = [what == "no block" || what == "the limit", what == "the limit"];
        let events = [SizeEvent::AnonFaultFallback, SizeEvent::AnonFaultFallbackCharge];
        assert_eq!(events.map(fell_back), expected.map(u64::from), "{what}");
        assert_eq!(load(&sim, &mm, id, BASE + 8 * PAGE), 0);
    }
}

/// Every operation on areas meets the leaf, as a whole and in part.
#[test]
fn whatever_changes_a_range_copes_with_zeros() {
    type Work = fn(&Sim, &Mm<'_>, SpaceId);
    // What is left of the leaf, and of zeros in pages.
    let cases: [(&str, Work, (usize, usize)); 12] = [
        ("unmap", |_, mm, id| mm.unmap(id, range(BASE, SIZE_2M)).unwrap(), (0, 0)),
        ("unmap a part", |_, mm, id| mm.unmap(id, row(3, 64)).unwrap(), (0, 448)),
        (
            "drop",
            |_, mm, id| mm.advise(id, range(BASE, SIZE_2M), Advice::DontNeed).unwrap(),
            (0, 0),
        ),
        ("drop a part", |_, mm, id| mm.advise(id, row(3, 64), Advice::DontNeed).unwrap(), (0, 448)),
        ("free", |_, mm, id| mm.advise(id, range(BASE, SIZE_2M), Advice::Free).unwrap(), (1, 0)),
        ("protect", |_, mm, id| mm.protect(id, range(BASE, SIZE_2M), Flags::READ).unwrap(), (1, 0)),
        (
            "close and open",
            |_, mm, id| {
                mm.protect(id, range(BASE, SIZE_2M), Flags::NONE).unwrap();
                mm.protect(id, range(BASE, SIZE_2M), Flags::READ_WRITE).unwrap();
            },
            (1, 0),
        ),
        ("protect a part", |_, mm, id| mm.protect(id, row(3, 64), Flags::READ).unwrap(), (0, 512)),
        (
            "guard",
            |_, mm, id| {
                mm.advise(id, row(3, 64), Advice::GuardInstall).unwrap();
                mm.advise(id, row(3, 64), Advice::GuardRemove).unwrap();
            },
            (0, 448),
        ),
        (
            "move",
            |_, mm, id| {
                let to = Move::To(Va::new(BASE + 64 * MB));
                mm.remap(id, range(BASE, SIZE_2M), Bytes::new(SIZE_2M), to).unwrap();
                assert_eq!(zeros(mm, id, BASE + 64 * MB).1, 512);
            },
            (0, 0),
        ),
        (
            "map over",
            |_, mm, id| {
                let place = Place::Fixed(Va::new(BASE));
                mm.map(id, &request(place, MB, Flags::READ_WRITE)).unwrap();
            },
            (0, 256),
        ),
        ("clear the dirt", |_, mm, id| mm.advise(id, row(3, 64), Advice::Free).unwrap(), (0, 512)),
    ];
    for (what, work, left) in cases {
        let sim = sim(2, 32);
        let mm = manager(&sim, only(9));
        let id = space(&mm);
        load(&sim, &mm, id, BASE);
        sim.on(cpu(1), || {
            mm.online();
            mm.switch(Some(id)).unwrap();
            load(&sim, &mm, id, BASE + 9 * PAGE);
        });
        work(&sim, &mm, id);
        let found = zeros(&mm, id, BASE);
        assert_eq!((found.0, found.1), left, "{what}");
        recount(&sim, &mm, &[id]);
        for page in [0, 3, 5, 66, 67, 511] {
            let va = BASE + page * PAGE;
            if mm.area(id, Va::new(va)).is_some() {
                assert_eq!(load(&sim, &mm, id, va), 0, "{what}, page {page}");
            }
        }
        assert_eq!(mm.pages(id), Some(Pages::new(0)), "{what}");
    }
}

#[test]
fn a_child_shares_the_zeros_and_both_sides_leave_them() {
    for writes_first in 0..2 {
        let sim = sim(1, 64);
        let mm = manager(&sim, only(9));
        let id = space(&mm);
        load(&sim, &mm, id, BASE);
        store(&sim, &mm, id, BASE + SIZE_2M, 5);
        let child = mm.fork(id).unwrap();
        assert_eq!(zeros(&mm, child, BASE).0, 1);
        assert_eq!(mm.pages(child), Some(Pages::new(512)), "the folio, and not the zeros");
        recount(&sim, &mm, &[id, child]);
        for side in 0..2 {
            let who = [id, child][usize::from(side != writes_first)];
            mm.switch(Some(who)).unwrap();
            assert_eq!(load(&sim, &mm, who, BASE + PAGE), 0);
            assert_eq!(store(&sim, &mm, who, BASE, 8), [FOLIO]);
            assert_eq!(load(&sim, &mm, who, BASE + SIZE_2M), 5);
        }
    }
}

/// A child that may have a table and no pages more gets the zeros, and no folio.
#[test]
fn a_child_pays_for_the_table_of_zeros_alone() {
    for limit in 4..20 {
        let sim = sim(1, 32);
        let mm = manager(&sim, only(9));
        let id = mm.create(Some(Pages::new(limit))).unwrap();
        mm.switch(Some(id)).unwrap();
        if mm.map(id, &request(Place::NoReplace(Va::new(BASE)), 2 * MB, Flags::READ_WRITE)).is_err()
        {
            continue;
        }
        let is_there = read(&mm, id, BASE) == ZEROS;
        recount(&sim, &mm, &[id]);
        let child = mm.fork(id).ok();
        let _: Vec<SpaceId> = [Some(id), child].into_iter().flatten().collect();
        if let Some(child) = child {
            assert_eq!(zeros(&mm, child, BASE).0, usize::from(is_there));
        }
        assert!(is_there || limit < 8, "{limit} are enough for a table more");
        assert!(child.is_some() || limit < 9, "{limit} are enough for a child");
    }
}

/// Zeros are no folio: nobody finds them by their frames, and what works on folios refuses them by
/// name or passes them over.
#[test]
fn zeros_are_nobodys_folio() {
    let sim = sim(1, 32);
    let mm = manager(&sim, only(9));
    let id = space(&mm);
    load(&sim, &mm, id, BASE);
    let (_, _, first) = zeros(&mm, id, BASE);
    let frame = first.unwrap().add(Pages::new(3));
    assert_eq!(mm.poison(frame), Poisoned::NotInUse);
    assert!(mm.reference(frame).is_none() && mm.mappings(frame).is_none());
    assert!(mm.relocate(frame).is_err());
    assert!(mm.take_back(first.unwrap(), Order::SIZE_2M).is_err(), "it was never lent");
    assert_eq!(mm.frame_at(id, Va::new(BASE)), None);
    let not_mapped = Err(SplitError::NotMapped(Va::new(BASE)));
    assert_eq!(mm.split(id, Va::new(BASE), SplitInto::BASE), not_mapped);
    let collapsed = Err(CollapseError::Collapsed(Va::new(BASE)));
    assert_eq!(mm.collapse(id, Va::new(BASE), Order::SIZE_2M, CollapseLimits::NONE), collapsed);
    mm.compact(&CompactRequest::ALL, &mut []);
    assert_eq!(zeros(&mm, id, BASE), (1, 0, first));
    // In parts they count as missing.
    mm.set_policy(Policy::BASE_ONLY);
    store(&sim, &mm, id, BASE + PAGE, 6);
    let empty = Err(CollapseError::Empty(Pages::new(511)));
    assert_eq!(mm.collapse(id, Va::new(BASE), Order::SIZE_2M, CollapseLimits::SCAN), empty);
    mm.collapse(id, Va::new(BASE), Order::SIZE_2M, CollapseLimits::NONE).unwrap();
    assert_eq!([0, 1, 2].map(|n| load(&sim, &mm, id, BASE + n * PAGE)), [0, 6, 0]);
}

#[test]
fn populating_for_reads_goes_from_block_to_block() {
    let sim = sim(1, 32);
    let mm = manager(&sim, only(9));
    let id = space(&mm);
    mm.advise(id, range(BASE + PAGE, 4 * MB), Advice::PopulateRead).unwrap();
    assert_eq!((mm.total(Event::ZeroPage), mm.total(Event::Spurious)), (3, 0));
    assert_eq!(zeros(&mm, id, BASE).0, 3);
}

/// Two CPUs clear a block each: one of them stays, the other one goes back as known to be zero.
#[test]
fn of_two_blocks_one_stays() {
    let (machine, mm, _over) = meddled(2, 64, only(9));
    let id = space(mm);
    mm.describe_all().unwrap();
    area(mm, id, BASE + 64 * MB, 2 * MB);
    store(&machine.sim, mm, id, BASE + 64 * MB, 1); // tables near by
    let free = mm.memory().free.get();
    machine.after_clearing(SIZE_2M - 3 * PAGE, move || {
        machine.sim.on(cpu(1), || {
            mm.online();
            assert_eq!(read(mm, id, BASE + SIZE_2M), ZEROS);
        });
    });
    assert_eq!(read(mm, id, BASE), ZEROS);
    assert_eq!((mm.total(Event::ThpZeroPageAlloc), mm.total(Event::LostRace)), (1, 1));
    assert!(mm.known_zero().get() >= 512);
    // The block, the tables that are kept for two leaves, and what leads to the leaves.
    let taken = free - mm.memory().free.get();
    assert!((514..520).contains(&taken), "{taken}");
    assert_eq!(zeros(mm, id, BASE).0, 2);
}

/// Of all memory one block of 2 MiB is left, and tables are missing: these come first, and a page
/// of zeros is mapped. The block does not become the manager's for good.
#[test]
fn finding_ca_tables_come_before_the_block_of_zeros() {
    let sim = sim(1, 32);
    let mm = manager(&sim, only(9));
    let id = space(&mm);
    let kept = mm.lend(Order::SIZE_2M).unwrap();
    let mut lent = Vec::new();
    for order in (0..9).rev().map(order) {
        lent.extend(core::iter::from_fn(|| mm.lend(order).ok()).map(|frame| (frame, order)));
    }
    assert_eq!(mm.memory().free.get(), 0);
    mm.take_back(kept, Order::SIZE_2M).unwrap();
    assert_eq!(read(&mm, id, BASE), Outcome::ZeroPage(Order::BASE));
    let of = |event| mm.total(event);
    assert_eq!((of(Event::ThpZeroPageAlloc), of(Event::ThpZeroPageAllocFailed)), (0, 1));
    for (frame, order) in lent {
        mm.take_back(frame, order).unwrap();
    }
    // The limit of a space does not admit the table that is kept for the leaf.
    let mut refused = 0;
    for limit in 4.. {
        let poor = mm.create(Some(Pages::new(limit))).unwrap();
        area(&mm, poor, BASE, 4 * MB);
        match read(&mm, poor, BASE) {
            Outcome::OverLimit => refused += 1,
            outcome => {
                assert_eq!(outcome, ZEROS, "limit {limit}");
                break;
            }
        }
        assert_eq!(of(Event::ThpZeroPageAlloc), 0, "no block was taken in vain");
    }
    assert!(refused > 1, "a table is missing, or the one that is kept for the leaf");
}

/// Whichever allocation is refused, the access gets through, and nothing is left of the attempt.
#[test]
fn an_access_of_zeros_survives_each_refused_allocation() {
    type Work = fn(&Sim, &Mm<'_>, SpaceId);
    let works: [Work; 3] = [
        |sim, mm, id| assert_eq!(load(sim, mm, id, BASE + SIZE_2M), 0),
        |sim, mm, id| {
            store(sim, mm, id, BASE + PAGE, 4);
            assert_eq!(load(sim, mm, id, BASE + PAGE), 4);
        },
        |_, mm, id| {
            let child = mm.fork(id);
            if let Ok(child) = child {
                assert_eq!(zeros(mm, child, BASE).0, 1);
                mm.end(child).unwrap();
            }
        },
    ];
    for (nth, work) in works.into_iter().enumerate() {
        for k in 1.. {
            let sim = sim(1, 32);
            let mm = manager(&sim, only(9));
            let id = space(&mm);
            if nth > 0 {
                load(&sim, &mm, id, BASE);
            }
            sim.fault_plan().set(Failing::Kth(k));
            work(&sim, &mm, id);
            let refused = sim.fault_plan().refused();
            sim.fault_plan().set(Failing::Nothing);
            finish(&sim, &mm, &[id]);
            if refused == 0 {
                assert!(k > 1, "nothing was allocated in work {nth}");
                break;
            }
        }
    }
}

/// Reads, writes and a fork on one format.
fn life<P: Paging>(format: Format, replace: Option<Replace>) {
    let mut config = Config::seeded(2, Bytes::new(64 * MB), 3).with_format(format);
    config.rules.replace = replace.unwrap_or(config.rules.replace);
    let sim = Sim::new(config).unwrap();
    let mm: Audited<'_, P> = manager_on(&sim, &sim.config().memory, only(9));
    let id = space(&mm);
    let on_other = |page: u64| sim.on(cpu(1), || load(&sim, &mm, id, BASE + page * PAGE));
    sim.on(cpu(1), || {
        mm.online();
        mm.switch(Some(id)).unwrap();
    });
    for block in 0..3 {
        assert_eq!(read(&mm, id, BASE + block * SIZE_2M), ZEROS, "{format:?}");
        assert_eq!(on_other(512 * block + 1), 0);
    }
    store(&sim, &mm, id, BASE + PAGE, 1);
    assert_eq!(on_other(1), 1, "{format:?}");
    let child = mm.fork(id).unwrap();
    mm.protect(id, row(512, 9), Flags::READ).unwrap();
    assert_eq!((zeros(&mm, id, BASE).0, zeros(&mm, child, BASE).0), (1, 2));
    assert_eq!(store(&sim, &mm, id, BASE + 1024 * PAGE, 2), [FOLIO]);
    assert_eq!(store(&sim, &mm, id, BASE + 600 * PAGE, 3), [SINGLE]);
    assert_eq!([1024, 600, 513].map(on_other), [2, 3, 0], "{format:?}");
    mm.unmap(id, row(1000, 100)).unwrap();
    assert_eq!([600, 1100].map(on_other), [3, 0]);
    recount(&sim, &mm, &[id, child]);
}

#[test]
fn every_format_and_both_rules_have_zeros_of_two_mib() {
    for replace in [None, Some(Replace::InPlace), Some(Replace::BreakBeforeMake)] {
        life::<X86_64<4>>(Format::X86_64(X86Levels::Four), replace);
        life::<X86_64<5>>(Format::X86_64(X86Levels::Five), replace);
        life::<Aarch64>(Format::Aarch64, replace);
        life::<Riscv64<3>>(Format::Riscv64(RiscvMode::Sv39), replace);
        life::<Riscv64<4>>(Format::Riscv64(RiscvMode::Sv48), replace);
        life::<Riscv64<5>>(Format::Riscv64(RiscvMode::Sv57), replace);
    }
}

/// One CPU writes where another one has zeros cached: from when the write is done, no reader sees
/// zeros any more, wherever in the fault the reader came by. With no block left the leaf is split.
#[test]
fn tr_a10_a_reader_beside_a_write_sees_no_old_zeros() {
    for replace in [Replace::InPlace, Replace::BreakBeforeMake] {
        for has_block in [true, false] {
            let mut met = 0;
            for n in (1..).step_by(5) {
                let mut config = Config::seeded(2, Bytes::new(16 * MB), 1);
                config.rules.replace = replace;
                let machine = Beside::new(Sim::new(config).unwrap());
                let (sim, mm) = (&machine.sim, machine.manager(only(9)));
                let id = space(&mm);
                load(sim, &mm, id, BASE);
                sim.on(cpu(1), || {
                    mm.online();
                    mm.switch(Some(id)).unwrap();
                    load(sim, &mm, id, BASE);
                });
                while !has_block && mm.lend(Order::SIZE_2M).is_ok() {}
                let read = || {
                    let seen = load(sim, &mm, id, BASE + PAGE);
                    assert!([0, 9].contains(&seen));
                };
                let write = || store(sim, &mm, id, BASE + PAGE, 9);
                let Some(outcomes) = machine.before_step(n, read, write) else { break };
                met += 1;
                assert_eq!(outcomes.last(), Some(if has_block { &FOLIO } else { &SINGLE }));
                for reader in 0..2 {
                    let seen = sim.on(cpu(reader), || load(sim, &mm, id, BASE + PAGE));
                    assert_eq!(seen, 9, "CPU {reader}, step {n}, {replace:?}");
                }
            }
            assert!(met > 5, "{met} meetings");
        }
    }
}
