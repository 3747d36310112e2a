//! Groups of entries that hardware may cache as one: which are made, what takes them apart, and
//! what that costs, on a machine that breaks before it makes and on one that does not ask for it.

use crate::common::*;
use foliant::fault::Orders;
use foliant::object::ObjectRequest;
use foliant::space::{Advice, Flags, MapRequest, Move, Place, SpaceId};
use foliant::split::{SplitInto, ZeroPieces};
use foliant::table::{Aarch64, Attrs, Entry, Paging, Riscv64, X86_64};
use foliant::{Access, Event, FlushGrain, Outcome, Policy};
use foliant_sim::{Config, Failing, Format, RiscvMode, Sim, X86Levels};
use foliant_units::{Bytes, Cpu, Pages, Va, VaRange};

/// What both formats with groups do alike.
macro_rules! on_both {
    ($($name:ident => $of:ident),* $(,)?) => { $(
        #[test]
        fn $name() {
            $of::<Aarch64>(Format::Aarch64);
            $of::<Riscv64<4>>(Format::Riscv64(RiscvMode::Sv48));
        }
    )* };
}

on_both! {
    a_folio_of_a_group_s_size_is_a_group => sizes,
    what_changes_all_of_a_group_keeps_it_whole => whole,
    what_changes_a_part_takes_the_group_apart => parts,
    a_group_is_one_step_whatever_the_grain => grains,
    a_group_that_moves_stays_one_where_it_is_aligned => moves,
    what_is_noted_in_one_word_is_every_page_s => notes,
    a_fork_near_the_limit_admits_a_group => limits,
    a_refused_allocation_leaves_the_group_whole_or_apart => refusals,
    a_group_of_an_object_shows_each_page_in_its_place => shown,
}

fn machine(format: Format) -> Sim {
    Sim::new(Config::seeded(2, Bytes::new(32 * MB), 1).with_format(format)).unwrap()
}

/// A space that two CPUs run, with sixteen pages at `BASE` that both have cached.
fn world<P: Paging>(format: Format, work: impl FnOnce(&Sim, &AnyMm<'_, P>, SpaceId)) {
    let sim = machine(format);
    let mm: Audited<'_, P> = manager_on(&sim, &sim.config().memory, only(4));
    let id = mm.create(None).unwrap();
    for cpu in [Cpu(1), Cpu(0)] {
        sim.on(cpu, || mm.online());
        sim.on(cpu, || mm.switch(Some(id)).unwrap());
    }
    area(&mm, id, BASE, MB);
    fill(&sim, &mm, id, BASE);
    read_all(&sim, &mm, id, BASE, Cpu(1));
    assert_eq!(groups(&mm, id), 1);
    work(&sim, &mm, id);
    recount(&sim, &mm, &[id]);
    assert_eq!(sim.violations(), []);
}

/// Page n of the sixteen at `start` gets 100 + n.
fn fill<P: Paging>(sim: &Sim, mm: &AnyMm<'_, P>, id: SpaceId, start: u64) {
    (0..16).for_each(|n| _ = store(sim, mm, id, start + n * PAGE, 100 + n));
}
/// Has `cpu` read them, so that it has each cached.
fn read_all<P: Paging>(sim: &Sim, mm: &AnyMm<'_, P>, id: SpaceId, start: u64, cpu: Cpu) {
    for n in 0..16 {
        assert_eq!(sim.on(cpu, || load(sim, mm, id, start + n * PAGE)), 100 + n, "page {n}");
    }
}
/// Whole groups in the space. The recount says that none is half.
fn groups<P: Paging>(mm: &AnyMm<'_, P>, id: SpaceId) -> usize {
    let all = VaRange::new(Va::new(0), Va::new(1 << 37)).unwrap();
    let grouped =
        |entry: Entry| matches!(entry, Entry::Leaf { attrs, .. } if attrs.has(Attrs::GROUPED));
    let words = mm.with_leaves(id, all, |leaves| leaves.filter(|leaf| grouped(leaf.entry)).count());
    words.unwrap() / 16
}
/// Flushes that asked the other CPU, groups made and groups taken apart while `work` ran.
fn counts<P: Paging>(mm: &AnyMm<'_, P>, work: impl FnOnce()) -> [u64; 3] {
    let now = || [Event::Shootdown, Event::ContMapped, Event::ContSplit].map(|e| mm.total(e));
    let before = now();
    work();
    let after = now();
    [0, 1, 2].map(|nth| after[nth] - before[nth])
}
fn into(n: u8) -> SplitInto {
    SplitInto { order: order(n), zeros: ZeroPieces::Keep }
}
fn frame<P: Paging>(mm: &AnyMm<'_, P>, id: SpaceId, va: u64) -> foliant_units::Frame {
    let found = mm.with_leaves(id, range(va, PAGE), |mut leaves| leaves.next().map(|l| l.entry));
    match found.flatten() {
        Some(Entry::Leaf { pa, .. }) => pa.frame(),
        other => panic!("{other:?} at {va:#x}"),
    }
}

/// Groups that a write makes with folios of 2^n pages.
fn made<P: Paging>(format: Format, n: u8) -> usize {
    let sim = machine(format);
    let mm: Audited<'_, P> = manager_on(&sim, &sim.config().memory, only(n));
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 2 * MB);
    let counted = counts(&mm, || _ = store(&sim, &mm, id, BASE + 5 * PAGE, 1));
    assert_eq!(counted, [0, groups(&mm, id) as u64, 0]);
    let found = groups(&mm, id);
    finish(&sim, &mm, &[id]);
    found
}

fn sizes<P: Paging>(format: Format) {
    assert_eq!([2, 3, 4, 5, 8, 9].map(|n| made::<P>(format, n)), [0, 0, 1, 2, 16, 0]);
    let x86 = Format::X86_64(X86Levels::Four);
    assert_eq!(made::<X86_64<4>>(x86, 4), 0, "x86-64 has no groups");
}

/// An operation that changes all of a group, the flushes that it takes, and the groups afterwards.
fn whole<P: Paging>(format: Format) {
    type Work<P> = fn(&AnyMm<'_, P>, SpaceId);
    let all = || row(0, 16);
    let table: [(&str, Work<P>, [u64; 3], usize); 8] = [
        ("unmap", |mm, id| mm.unmap(id, row(0, 16)).unwrap(), [1, 0, 0], 0),
        ("drop", |mm, id| mm.advise(id, row(0, 16), Advice::DontNeed).unwrap(), [1, 0, 0], 0),
        ("guard", |mm, id| mm.advise(id, row(0, 16), Advice::GuardInstall).unwrap(), [1, 0, 0], 0),
        ("protect", |mm, id| mm.protect(id, row(0, 16), Flags::READ).unwrap(), [1, 0, 0], 1),
        ("free", |mm, id| mm.advise(id, row(0, 16), Advice::Free).unwrap(), [1, 0, 0], 1),
        ("relocate", |mm, id| _ = mm.relocate(frame(mm, id, BASE)).unwrap(), [1, 0, 0], 1),
        ("split", |mm, id| _ = mm.split(id, Va::new(BASE), into(0)).unwrap(), [1, 0, 0], 0),
        (
            "split into eights",
            |mm, id| _ = mm.split(id, Va::new(BASE), into(3)).unwrap(),
            [1, 0, 0],
            0,
        ),
    ];
    for (what, work, wanted, left) in table {
        world::<P>(format, |sim, mm, id| {
            let counted = counts(mm, || work(mm, id));
            assert_eq!((counted, groups(mm, id)), (wanted, left), "{what} on {format:?}");
            if mm.pages(id).unwrap() == all().pages() {
                read_all(sim, mm, id, BASE, Cpu(1));
            }
        });
    }
    // A fork protects the parent's group with one flush, and the child has one of its own.
    world::<P>(format, |sim, mm, id| {
        let mut child = None;
        assert_eq!(counts(mm, || child = Some(mm.fork(id).unwrap())), [1, 1, 0]);
        let child = child.unwrap();
        assert_eq!((groups(mm, id), groups(mm, child)), (1, 1));
        sim.on(Cpu(1), || mm.switch(Some(child)).unwrap());
        read_all(sim, mm, child, BASE, Cpu(1));
        recount(sim, mm, &[id, child]);
        sim.on(Cpu(1), || mm.switch(Some(id)).unwrap());
        mm.end(child).unwrap();
    });
    // Pieces that are as large as a group are groups: of a leaf, and of folios of several groups.
    for (n, into_order, wanted) in [(9, 4, 32), (9, 6, 32), (6, 4, 4), (6, 3, 0)] {
        let sim = machine(format);
        let mm: Audited<'_, P> = manager_on(&sim, &sim.config().memory, only(n));
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        area(&mm, id, BASE, 2 * MB);
        (0..order(n).pages().get()).for_each(|n| _ = store(&sim, &mm, id, BASE + n * PAGE, n));
        mm.split(id, Va::new(BASE), into(into_order)).unwrap();
        assert_eq!(groups(&mm, id), wanted, "{n} into {into_order}");
        for n in 0..order(n).pages().get() {
            assert_eq!(load(&sim, &mm, id, BASE + n * PAGE), n);
        }
    }
}

/// An operation that changes some pages of a group, and how many are unlike before.
fn parts<P: Paging>(format: Format) {
    type Work<P> = fn(&Sim, &AnyMm<'_, P>, SpaceId);
    let elsewhere = |n: u64| Va::new(BASE + 8 * MB + n * PAGE);
    let table: [(&str, Work<P>, u64); 8] = [
        ("unmap", |_, mm, id| mm.unmap(id, row(5, 3)).unwrap(), 2),
        ("unmap the first", |_, mm, id| mm.unmap(id, row(0, 5)).unwrap(), 2),
        ("unmap the last", |_, mm, id| mm.unmap(id, row(12, 4)).unwrap(), 2),
        ("drop", |_, mm, id| mm.advise(id, row(5, 3), Advice::DontNeed).unwrap(), 2),
        ("guard", |_, mm, id| mm.advise(id, row(5, 3), Advice::GuardInstall).unwrap(), 2),
        ("protect", |_, mm, id| mm.protect(id, row(5, 3), Flags::READ).unwrap(), 2),
        ("free", |_, mm, id| mm.advise(id, row(5, 3), Advice::Free).unwrap(), 2),
        (
            "move",
            |_, mm, id| {
                let to = Move::To(Va::new(BASE + 8 * MB + 5 * PAGE));
                mm.remap(id, row(5, 3), Bytes::new(3 * PAGE), to).unwrap();
            },
            2,
        ),
    ];
    for (what, work, flushes) in table {
        world::<P>(format, |sim, mm, id| {
            let counted = counts(mm, || work(sim, mm, id));
            assert_eq!(counted, [flushes, 0, 1], "{what} on {format:?}");
            assert_eq!(groups(mm, id), 0, "{what}");
            let changed = if what == "unmap the first" {
                0..5
            } else if what == "unmap the last" {
                12..16
            } else {
                5..8
            };
            for n in (0..16).filter(|n| !changed.contains(n)) {
                assert_eq!(
                    sim.on(Cpu(1), || load(sim, mm, id, BASE + n * PAGE)),
                    100 + n,
                    "{what}"
                );
                sim.on(Cpu(1), || sim.user_store(Va::new(BASE + n * PAGE), 8, 100 + n)).unwrap();
            }
            match what {
                "move" => {
                    for n in changed {
                        assert_eq!(load(sim, mm, id, elsewhere(n).get()), 100 + n);
                        assert!(
                            sim.on(Cpu(1), || sim.user_load(Va::new(BASE + n * PAGE), 8)).is_err()
                        );
                    }
                }
                "protect" | "free" => {
                    for n in changed {
                        let at = Va::new(BASE + n * PAGE);
                        assert_eq!(sim.on(Cpu(1), || load(sim, mm, id, at.get())), 100 + n);
                        let stored = sim.on(Cpu(1), || sim.user_store(at, 8, 100 + n));
                        assert_eq!(stored.is_ok(), what == "free");
                    }
                }
                "drop" => (5..8).for_each(|n| assert_eq!(load(sim, mm, id, BASE + n * PAGE), 0)),
                _ => {
                    for n in changed {
                        assert!(
                            sim.on(Cpu(1), || sim.user_load(Va::new(BASE + n * PAGE), 8)).is_err()
                        );
                    }
                }
            }
        });
    }
    // One page is copied after a fork; when the child is gone the next one is made writable.
    world::<P>(format, |sim, mm, id| {
        let child = mm.fork(id).unwrap();
        let copied = counts(mm, || _ = store(sim, mm, id, BASE + 5 * PAGE, 7));
        assert_eq!(copied, [2, 0, 1], "apart, and the page that is copied, on {format:?}");
        assert_eq!((groups(mm, id), groups(mm, child)), (0, 1));
        recount(sim, mm, &[id, child]);
        sim.on(Cpu(1), || mm.switch(Some(child)).unwrap());
        read_all(sim, mm, child, BASE, Cpu(1));
        store(sim, mm, id, BASE + 6 * PAGE, 8);
        sim.on(Cpu(1), || mm.switch(Some(id)).unwrap());
        mm.end(child).unwrap();
        for (n, value) in [(4, 104), (5, 7), (6, 8), (7, 107)] {
            assert_eq!(sim.on(Cpu(1), || load(sim, mm, id, BASE + n * PAGE)), value);
        }
    });
    world::<P>(format, |sim, mm, id| {
        let child = mm.fork(id).unwrap();
        mm.end(child).unwrap();
        assert_eq!(groups(mm, id), 1);
        store(sim, mm, id, BASE + 5 * PAGE, 7);
        assert_eq!((groups(mm, id), mm.total(Event::ContSplit)), (0, 1));
        assert_eq!(sim.on(Cpu(1), || load(sim, mm, id, BASE + 5 * PAGE)), 7);
    });
}

/// A walk whose sink has room for fewer words than a group has comes to its end all the same.
fn grains<P: Paging>(format: Format) {
    type Work<P> = fn(&AnyMm<'_, P>, SpaceId);
    let table: [Work<P>; 6] = [
        |mm, id| mm.unmap(id, row(0, 64)).unwrap(),
        |mm, id| mm.unmap(id, row(3, 58)).unwrap(),
        |mm, id| mm.protect(id, row(3, 58), Flags::READ).unwrap(),
        |mm, id| mm.end(mm.fork(id).unwrap()).unwrap(),
        |mm, id| _ = mm.relocate(frame(mm, id, BASE)).unwrap(),
        |mm, id| {
            _ = mm
                .remap(id, row(0, 64), Bytes::new(64 * PAGE), Move::To(Va::new(BASE + 8 * MB)))
                .unwrap()
        },
    ];
    for grain in [1, 2, 7, 16, 17] {
        for work in table {
            world::<P>(format, |sim, mm, id| {
                (1..4).for_each(|nth| fill(sim, mm, id, BASE + nth * 16 * PAGE));
                mm.set_flush_grain(FlushGrain::new(grain).unwrap());
                work(mm, id);
            });
        }
    }
}

fn moves<P: Paging>(format: Format) {
    for (by, wanted) in [(0, 1), (16, 1), (512, 1), (1, 0), (8, 0), (511, 0)] {
        world::<P>(format, |sim, mm, id| {
            let to = BASE + 8 * MB + by * PAGE;
            mm.remap(id, row(0, 16), Bytes::new(16 * PAGE), Move::To(Va::new(to))).unwrap();
            assert_eq!(groups(mm, id), wanted, "by {by}");
            read_all(sim, mm, id, to, Cpu(1));
            // The reverse map finds it there, and a folio that moves keeps what is left of it.
            mm.relocate(frame(mm, id, to)).unwrap();
            assert_eq!(groups(mm, id), wanted, "by {by}");
            read_all(sim, mm, id, to, Cpu(1));
            mm.unmap(id, range(to + 3 * PAGE, PAGE)).unwrap();
            assert_eq!(groups(mm, id), 0, "by {by}");
        });
    }
}

/// Which pages of the sixteen say that they were written to.
fn dirty<P: Paging>(mm: &AnyMm<'_, P>, id: SpaceId) -> usize {
    let is_dirty =
        |entry: Entry| matches!(entry, Entry::Leaf { attrs, .. } if attrs.has(Attrs::DIRTY));
    mm.with_leaves(id, row(0, 16), |leaves| leaves.filter(|leaf| is_dirty(leaf.entry)).count())
        .unwrap()
}

fn notes<P: Paging>(format: Format) {
    for n in [0, 5, 15] {
        world::<P>(format, |sim, mm, id| {
            mm.advise(id, row(0, 16), Advice::Free).unwrap();
            assert_eq!((dirty(mm, id), groups(mm, id)), (0, 1));
            sim.user_store(Va::new(BASE + n * PAGE), 8, 100 + n).unwrap();
            assert_eq!(dirty(mm, id), 16, "the walker wrote it down in one of the words");
            // It stays so through each of the ways that the words change.
            mm.protect(id, row(0, 16), Flags::READ).unwrap();
            assert_eq!((dirty(mm, id), groups(mm, id)), (16, 1));
            mm.relocate(frame(mm, id, BASE)).unwrap();
            assert_eq!((dirty(mm, id), groups(mm, id)), (16, 1));
            mm.protect(id, row(9, 1), Flags::READ_WRITE).unwrap();
            assert_eq!((dirty(mm, id), groups(mm, id)), (16, 0));
            mm.split(id, Va::new(BASE), into(0)).unwrap();
            assert_eq!(dirty(mm, id), 16);
            read_all(sim, mm, id, BASE, Cpu(1));
        });
    }
    // A group that is taken apart says so in each of its pages.
    for n in [0, 5, 15] {
        world::<P>(format, |sim, mm, id| {
            mm.advise(id, row(0, 16), Advice::Free).unwrap();
            sim.user_store(Va::new(BASE + n * PAGE), 8, 100 + n).unwrap();
            mm.protect(id, row(9, 1), Flags::READ).unwrap();
            assert_eq!((dirty(mm, id), groups(mm, id)), (16, 0));
        });
    }
    // A group that is split as a whole says so in each of its pieces, also where it is read-only.
    world::<P>(format, |sim, mm, id| {
        mm.advise(id, row(0, 16), Advice::Free).unwrap();
        sim.user_store(Va::new(BASE + 7 * PAGE), 8, 107).unwrap();
        let child = mm.fork(id).unwrap();
        mm.split(id, Va::new(BASE), into(0)).unwrap();
        assert_eq!((dirty(mm, id), dirty(mm, child)), (16, 16));
        mm.end(child).unwrap();
    });
}

fn limits<P: Paging>(format: Format) {
    for limit in 30..60 {
        let sim = machine(format);
        let mm: Audited<'_, P> = manager_on(&sim, &sim.config().memory, only(4));
        let id = mm.create(Some(Pages::new(limit))).unwrap();
        mm.switch(Some(id)).unwrap();
        area(&mm, id, BASE, MB);
        // The group comes last, when the child is near its limit.
        fill(&sim, &mm, id, BASE + 64 * PAGE);
        mm.set_policy(Policy::BASE_ONLY);
        // As many single pages as the limit admits, but for one: so it is near for the child too.
        let touch = |nth| mm.fault(id, Va::new(BASE + nth * PAGE), Access::Write);
        let pages = (0..).find(|nth| touch(*nth) == Outcome::OverLimit).unwrap();
        mm.unmap(id, row(pages - 1, 1)).unwrap();
        let child = mm.fork(id).unwrap();
        assert_eq!([id, child].map(|id| groups(&mm, id)), [1, 1]);
        recount(&sim, &mm, &[id, child]);
        assert_eq!(load(&sim, &mm, id, BASE + 64 * PAGE), 100);
    }
}

/// An area lies three pages off, so its entries are single ones. A group's word says by its place
/// in the object's table which page it maps.
fn shown<P: Paging>(format: Format) {
    world(format, |sim, mm: &AnyMm<'_, P>, id| {
        mm.set_object_policy(only(4));
        let request = ObjectRequest { pages: Pages::new(16), ..ObjectRequest::default() };
        let of = mm.create_object(&request).unwrap();
        let start = BASE + 4 * MB + 3 * PAGE;
        let request = MapRequest {
            place: Place::Fixed(Va::new(start)),
            bytes: Bytes::new(16 * PAGE),
            flags: Flags::READ_WRITE.with(Flags::SHARED),
            tag: 0,
        };
        mm.map_object(id, &request, (of, Pages::new(0))).unwrap();
        let before = mm.total(Event::Fault);
        fill(sim, mm, id, start);
        assert_eq!(mm.total(Event::Fault), before + 1, "the folio comes as a whole");
        read_all(sim, mm, id, start, Cpu(1));
        mm.unmap(id, VaRange::sized(Va::new(start), Bytes::new(16 * PAGE)).unwrap()).unwrap();
        mm.end_object(of).unwrap();
    });
}

fn refusals<P: Paging>(format: Format) {
    type Work<P> = fn(&AnyMm<'_, P>, SpaceId) -> bool;
    let table: [(&str, Work<P>); 5] = [
        ("unmap", |mm, id| mm.unmap(id, row(5, 3)).is_ok()),
        ("protect", |mm, id| mm.protect(id, row(5, 3), Flags::READ).is_ok()),
        ("guard", |mm, id| mm.advise(id, row(5, 3), Advice::GuardInstall).is_ok()),
        ("move", |mm, id| {
            let to = Move::To(Va::new(BASE + 8 * MB));
            mm.remap(id, row(5, 3), Bytes::new(3 * PAGE), to).is_ok()
        }),
        ("fork", |mm, id| mm.fork(id).map(|child| mm.end(child).unwrap()).is_ok()),
    ];
    for (what, work) in table {
        let mut ended = false;
        for k in 1..20 {
            world::<P>(format, |sim, mm, id| {
                sim.fault_plan().set(Failing::Kth(k));
                let done = work(mm, id);
                ended = sim.fault_plan().refused() == 0;
                sim.fault_plan().set(Failing::Nothing);
                assert!(done || !ended, "{what} fails without a refusal");
                if !done {
                    assert_eq!(groups(mm, id), 1, "{what}, allocation {k}: no trace is left");
                    read_all(sim, mm, id, BASE, Cpu(1));
                }
            });
            if ended {
                break;
            }
        }
        assert!(ended, "{what}: not every allocation was refused");
    }
}

#[test]
fn a_group_beside_others_is_filled_when_nothing_is_pending() {
    // Pages come back one by one while another CPU drops the group, by both formats' rules.
    fn beside<P: Paging>(format: Format) {
        for seed in 0..30 {
            let sim =
                Sim::new(Config::seeded(3, Bytes::new(32 * MB), seed).with_format(format)).unwrap();
            let mm: Audited<'_, P> =
                manager_on(&sim, &sim.config().memory, Policy::always(Orders::of(order(4))));
            let id = mm.create(None).unwrap();
            area(&mm, id, BASE, 16 * PAGE);
            sim.parallel(3, |cpu: Cpu| {
                mm.online();
                mm.switch(Some(id)).unwrap();
                for step in 0..30 {
                    let at = BASE + (step * 7 + u64::from(cpu.0)) % 16 * PAGE;
                    match (cpu.0, step % 3) {
                        (0, 0) => mm.advise(id, row(0, 16), Advice::DontNeed).unwrap(),
                        (0, 1) => mm.advise(id, row(step % 16, 1), Advice::DontNeed).unwrap(),
                        (1, 0) => mm.protect(id, row(step % 8, 8), Flags::READ_WRITE).unwrap(),
                        (1, 1) => {
                            mm.set_policy(if step % 2 == 0 { Policy::BASE_ONLY } else { only(4) })
                        }
                        _ => drop(store(&sim, &mm, id, at, step)),
                    }
                }
            });
        }
    }
    beside::<Aarch64>(Format::Aarch64);
    beside::<Riscv64<4>>(Format::Riscv64(RiscvMode::Sv48));
}
