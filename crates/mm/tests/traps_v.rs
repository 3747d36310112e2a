//! Traps of system V: what went wrong elsewhere, each in a test of its name.

use crate::common::kernel::*;
use crate::common::*;
use foliant::manager::{Setup, UserMapError};
use foliant::space::{Flags, MapRequest, Place};
use foliant::table::{Aarch64, Paging, X86_64};
use foliant::vmap::*;
use foliant::{Event, Policy};
use foliant_machine::Replace;
use foliant_sim::{Config, Failing, Format, Sim};
use foliant_units::{
    Bytes, Cpu, FRAME_BYTES, Frame, FrameRange, Level, Node, Order, Pa, Pages, Va, VaRange,
};
use std::collections::BTreeSet;

fn content(sim: &Sim, mm: &AnyMm<'_, impl Paging>) {
    mm.audit(&[]).unwrap();
    let violations = sim.finish();
    assert!(violations.is_empty(), "{violations:#?}");
}
fn part(area: VaRange, page: u64, pages: u64) -> VaRange {
    VaRange::sized(area.start().add(page * FRAME_BYTES), Bytes::new(pages * FRAME_BYTES)).unwrap()
}
fn wish(pages: u64) -> MapRequest {
    let bytes = Bytes::new(pages * FRAME_BYTES);
    MapRequest { place: Place::NoReplace(Va::new(BASE)), bytes, flags: Flags::READ_WRITE, tag: 0 }
}

/// Pages are blocks of their own, whatever the leaf: mapped into a program, written, and given back
/// one by one.
#[test]
fn tr_v1_every_base_page_is_counted_alone() {
    let sim = sim(2, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    online(&sim, &mm);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    let area = mm.vmalloc(&huge(4 * MB).for_users()).unwrap();
    assert_eq!(mm.vmalloc_counters().leaves, [0, 2, 0]);
    let from = area.start().add(100 * FRAME_BYTES);
    let mapped = mm.map_user(id, &wish(600), from).unwrap();
    mm.audit(&[id]).unwrap();
    for page in 0..600 {
        assert_eq!(load(&sim, &mm, id, BASE + page * FRAME_BYTES), 0, "cleared");
        assert_eq!(store(&sim, &mm, id, BASE + page * FRAME_BYTES, page), vec![], "no fault");
        assert_eq!(get(&sim, from.add(page * FRAME_BYTES)), Some(page), "the same page");
    }
    let held = mm.vmap().frame_at(area.start()).unwrap().0;
    let reference = mm.reference(held).unwrap();
    mm.vfree(area.start()).unwrap();
    assert_eq!(mm.vmalloc_counters().pages.get(), 601, "the program's, and the walker's");
    assert_eq!(load(&sim, &mm, id, BASE + 599 * FRAME_BYTES), 599);
    mm.unmap(id, range(BASE + FRAME_BYTES, 598 * FRAME_BYTES)).unwrap();
    assert_eq!(mm.vmalloc_counters().pages.get(), 3);
    assert_eq!(load(&sim, &mm, id, BASE + 599 * FRAME_BYTES), 599);
    drop(reference);
    mm.unmap(id, mapped).unwrap();
    assert_eq!(mm.vmalloc_counters().pages.get(), 0);
    mm.purge_vmalloc();
}

/// Only what was asked for is shared, a fork leaves it out, and what a program drops stays away.
#[test]
fn tr_v1_sharing_has_bounds() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    let plain = mm.vmalloc(&huge(2 * MB)).unwrap();
    let area = mm.vmalloc(&base(5 * FRAME_BYTES - 7).for_users()).unwrap();
    let refused = |got: Result<VaRange, UserMapError>, why: VmapError| {
        assert_eq!(got, Err(UserMapError::Kernel(why)));
    };
    refused(mm.map_user(id, &wish(1), plain.start()), VmapError::NotForUsers(plain.start()));
    refused(mm.map_user(id, &wish(6), area.start()), VmapError::Beyond { va: area.end() });
    let odd = area.start().add(8);
    refused(mm.map_user(id, &wish(1), odd), VmapError::Misaligned(odd));
    let last = area.start().add(4 * FRAME_BYTES);
    refused(mm.map_user(id, &wish(2), last), VmapError::Beyond { va: area.end() });
    refused(mm.map_user(id, &wish(1), area.end()), VmapError::Beyond { va: area.end() });
    mm.map_user(id, &wish(5), area.start()).unwrap();
    store(&sim, &mm, id, BASE, 9);
    let child = mm.fork(id).unwrap();
    assert_eq!(mm.area(child, Va::new(BASE)), None);
    assert_eq!(store(&sim, &mm, id, BASE, 10), vec![], "the parent's stays shared");
    assert_eq!(get(&sim, area.start()), Some(10));
    mm.advise(id, range(BASE, FRAME_BYTES), foliant::space::Advice::DontNeed).unwrap();
    let got = store(&sim, &mm, id, BASE, 11);
    assert!(format!("{got:?}").contains("Kernel"), "{got:?}");
    assert_eq!(get(&sim, area.start()), Some(10));
    mm.audit(&[id, child]).unwrap();
    mm.vfree(area.start()).unwrap();
    mm.vfree(plain.start()).unwrap();
}

/// Whichever chunk fails, each address leads to a frame of its own, and the leaves of an area are
/// of one attempt.
#[test]
fn tr_v2_the_ith_chunk_fails() {
    let bytes = 8 * MB + 3 * FRAME_BYTES;
    for k in 1.. {
        let sim = sim(1, 64);
        let mm = manager(&sim, Policy::BASE_ONLY);
        sim.fault_plan().set(Failing::Kth(k));
        let area = mm.vmalloc(&huge(bytes));
        let refused = sim.fault_plan().refused();
        sim.fault_plan().set(Failing::Nothing);
        if let Ok(area) = area {
            let mut frames = BTreeSet::new();
            let mut large = BTreeSet::new();
            for (n, va) in pages(area).enumerate() {
                let (frame, level) = mm.vmap().frame_at(va).unwrap();
                assert!(frames.insert(frame), "k = {k}: two addresses lead to {frame}");
                if n < 2048 {
                    large.insert(level);
                }
                assert!(put(&sim, va, frame.get()));
            }
            assert_eq!(large.len(), 1, "k = {k}: leaves of two attempts");
            for va in pages(area) {
                assert_eq!(get(&sim, va), Some(mm.vmap().frame_at(va).unwrap().0.get()));
            }
            mm.vfree(area.start()).unwrap();
        }
        assert_eq!(mm.vmalloc_counters().pages.get(), 0);
        content(&sim, &mm);
        if refused == 0 {
            assert!(k > 5);
            return;
        }
    }
}

fn two_nodes() -> Sim {
    let mut config = Config::seeded(2, Bytes::new(MB), 1);
    config.memory = [0, 1 << 18]
        .map(|start| FrameRange::new(Frame::new(start), Pages::new(64 * 256)).unwrap())
        .to_vec();
    Sim::new(config).unwrap()
}

/// The huge path keeps the policy: every node gets its part, whatever the leaves.
#[test]
fn tr_v3_nodes_get_their_parts() {
    let sim = two_nodes();
    let memory = sim.config().memory.clone();
    let nodes = [Node(0), Node(1)];
    let setup = Setup { nodes: &nodes, ..Setup::of(&memory, Policy::BASE_ONLY) };
    let mm: AuditedMm<'_> = audited(&sim, &setup);
    let parts = |request: Request| {
        let area = mm.vmalloc(&request).unwrap();
        let line = mm.vmalloc_info().find(|line| line.range.start() == area.start()).unwrap();
        let text = line.to_string();
        let counts = nodes.map(|node| line.on(node).get());
        for (node, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            assert!(text.contains(&format!(" N{node}={count}")), "{text}");
        }
        mm.vfree(area.start()).unwrap();
        mm.purge_vmalloc();
        counts
    };
    assert_eq!(parts(huge(16 * MB).interleaved()), [2048, 2048]);
    assert_eq!(parts(base(16 * MB).interleaved()), [2048, 2048]);
    assert_eq!(parts(huge(100 * FRAME_BYTES).interleaved()), [50, 50]);
    let large = mm.vmalloc_counters().leaves[1];
    assert_eq!(parts(huge(3 * MB).interleaved()), [384, 384], "too small for a leaf on each node");
    assert_eq!(mm.vmalloc_counters().leaves[1], large);
    assert_eq!(parts(huge(6 * MB).on(Node(1))), [0, 1536]);
    assert_eq!(parts(base(6 * MB + 1).on(Node(0))), [1537, 0]);
    // A node that is full: a part of a turn goes elsewhere, a wish for that node does not.
    let full = mm.vmalloc(&base(55 * MB).on(Node(1))).unwrap();
    while mm.vmalloc(&base(FRAME_BYTES).on(Node(1))).is_ok() {}
    let got = parts(huge(16 * MB).interleaved());
    assert_eq!(got[0] + got[1], 4096);
    assert!(mm.vmalloc(&base(4 * MB).on(Node(1))).is_err());
    mm.vfree(full.start()).unwrap();
    mm.audit(&[]).unwrap();
    assert!(sim.violations().is_empty(), "{:#?}", sim.violations());
}

/// Large leaves are for those who ask, with plain rights; everybody else may do with pages what he
/// likes.
#[test]
fn tr_v4_only_who_asks_gets_leaves() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let large = |request: Request| {
        let before = mm.vmalloc_counters().leaves[1];
        let area = mm.vmalloc(&request).unwrap();
        mm.vfree(area.start()).unwrap();
        mm.vmalloc_counters().leaves[1] - before
    };
    assert_eq!(large(base(4 * MB)), 0);
    assert_eq!(large(huge(4 * MB)), 2);
    assert_eq!(large(huge(4 * MB).with_rights(Rights::Code)), 0);
    assert_eq!(large(huge(4 * MB).with_rights(Rights::Constant)), 0);
    assert_eq!(large(base(4 * MB).aligned(Bytes::new(2 * MB))), 0);
    content(&sim, &mm);
}

fn one_page_changes<P: Paging>(format: Format, replace: Replace) {
    let mut config = Config::seeded(3, Bytes::new(64 * MB), 5).with_format(format);
    config.rules.replace = replace;
    let sim = Sim::new(config).unwrap();
    let memory = sim.config().memory.clone();
    let mm: Audited<'_, P> = manager_on(&sim, &memory, Policy::BASE_ONLY);
    online(&sim, &mm);
    let area = mm.vmalloc(&huge(4 * MB)).unwrap();
    let frames: Vec<Frame> = pages(area).map(|va| mm.vmap().frame_at(va).unwrap().0).collect();
    let how = FrameMapping { leaves: LeafSizes::Huge, ..FrameMapping::PLAIN };
    let alias = mm.vmap_frames(&frames, &how).unwrap();
    for va in pages(area).chain(pages(alias)) {
        for cpu in 0..3 {
            sim.on(Cpu(cpu), || assert!(put(&sim, va, 1)));
        }
    }
    let one = part(area, 700, 1);
    let got = mm.protect_kernel(one, Rights::Constant);
    if replace == Replace::BreakBeforeMake {
        assert!(matches!(got, Err(VmapError::CannotSplit(_, Level::SIZE_2M))), "{got:?}");
        // All of a leaf can change there, while nobody uses it.
        mm.protect_kernel(part(area, 512, 512), Rights::Constant).unwrap();
        for cpu in 0..3 {
            sim.on(Cpu(cpu), || {
                assert!(!put(&sim, one.start(), 2), "CPU {cpu}");
                assert!(put(&sim, area.start(), 2));
                assert_eq!(get(&sim, one.start()), Some(1));
            });
        }
    } else {
        got.unwrap();
        assert_eq!(mm.vmalloc_counters().splits, 1);
        for (n, va) in pages(area).enumerate() {
            let cpu = Cpu(n as u16 % 3);
            sim.on(cpu, || assert_eq!(put(&sim, va, 2), n != 700, "page {n}"));
        }
        for cpu in 0..3 {
            sim.on(Cpu(cpu), || assert!(!put(&sim, one.start(), 3)));
        }
    }
    for va in pages(alias) {
        sim.on(Cpu(1), || assert!(put(&sim, va, 3), "the alias of other addresses"));
    }
    mm.vunmap(alias.start()).unwrap();
    mm.purge_vmalloc();
    // Attributes were changed: nothing is left cached when the frames go.
    let lazy = mm.vmap().lazy();
    mm.vfree(area.start()).unwrap();
    assert_eq!((mm.vmap().lazy(), mm.vmalloc_counters().flushes), (lazy, 1));
    content(&sim, &mm);
}

#[test]
fn tr_v5_a_change_of_one_page_is_that_page_s() {
    for replace in [Replace::InPlace, Replace::BreakBeforeMake] {
        one_page_changes::<X86_64<4>>(Config::seeded(1, Bytes::new(MB), 1).format, replace);
        one_page_changes::<Aarch64>(Format::Aarch64, replace);
    }
}

/// An empty table in the place of a leaf goes: out of paging-structure caches, and not under the
/// feet of a walker.
#[test]
fn tr_v6_an_empty_table_makes_room_for_a_leaf() {
    for seed in 1..60 {
        let sim = Sim::new(Config::seeded(3, Bytes::new(64 * MB), seed)).unwrap();
        let mm = manager(&sim, Policy::BASE_ONLY);
        online(&sim, &mm);
        let small = mm.vmalloc(&base(2 * MB).aligned(Bytes::new(2 * MB)).without_guard()).unwrap();
        // The other CPUs know the table now.
        for cpu in [1, 2] {
            sim.on(Cpu(cpu), || assert!(put(&sim, small.start(), 1)));
        }
        mm.vfree(small.start()).unwrap();
        mm.purge_vmalloc();
        let (freed, found) = (mm.total(Event::TableFreed), std::sync::Mutex::new(None));
        sim.parallel(3, |cpu| match cpu.0 {
            0 => {
                let area = mm.vmalloc(&huge(2 * MB).without_guard()).unwrap();
                *found.lock().unwrap() = Some(area);
            }
            1 => {
                for n in 0..40 {
                    mm.vmap().frame_at(small.start().add(n * 8 * FRAME_BYTES));
                }
            }
            _ => {
                for _ in 0..6 {
                    let got = mm.vmap().apply(small, |_, _| {});
                    assert!(matches!(got, Ok(()) | Err(VmapError::Leaf(_, Level::SIZE_2M))));
                }
            }
        });
        let area = found.lock().unwrap().unwrap();
        assert_eq!(area.start(), small.start(), "the same place");
        assert_eq!(mm.vmap().frame_at(area.start()).unwrap().1, Level::SIZE_2M);
        assert_eq!(mm.vmalloc_counters().table_flushes, 1);
        assert_eq!(mm.total(Event::TableFreed), freed + 1);
        sim.on(Cpu(1), || assert!(put(&sim, area.start().add(MB), 7)));
        sim.on(Cpu(2), || assert_eq!(get(&sim, area.start().add(MB)), Some(7)));
        mm.vfree(area.start()).unwrap();
        content(&sim, &mm);
    }
}

/// The place of a leaf of 1 GiB may hold tables of tables.
#[test]
fn tr_v6_a_leaf_of_a_gigabyte_clears_all_below_it() {
    let sim = sim(2, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    online(&sim, &mm);
    let size_1g = Bytes::new(1 << 30);
    let io = |pa: u64, bytes: Bytes| mm.ioremap(Pa::new(pa), bytes, Caller(0)).unwrap();
    // Small ones all over a GiB, each with a table of its own.
    let spots: Vec<Va> =
        (0..300).map(|n| io((1 << 41) + n * 8 * MB + 4096, Bytes::new(3 * MB))).collect();
    for va in &spots {
        sim.on(Cpu(1), || assert!(get(&sim, *va).is_some()));
    }
    spots.iter().for_each(|va| mm.iounmap(*va).unwrap());
    mm.purge_vmalloc();
    let before = mm.vmalloc_counters();
    let again = [io(1 << 40, size_1g), io(1 << 42, size_1g), io(1 << 43, size_1g)];
    let after = mm.vmalloc_counters();
    assert_eq!(after.leaves[2] - before.leaves[2], 3);
    assert_eq!(after.table_flushes - before.table_flushes, 1, "one flush for all of them");
    assert_eq!(
        mm.vmap().frame_at(again[1].add(5 * MB)).unwrap().0,
        Pa::new((1 << 42) + 5 * MB).frame()
    );
    again.into_iter().for_each(|va| mm.iounmap(va).unwrap());
    content(&sim, &mm);
}

/// On a fragmented heap a huge attempt asks for one block of each size and goes on: it compacts
/// nothing.
#[test]
fn tr_v7_a_huge_attempt_is_short() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    mm.describe_all().unwrap();
    let warm = mm.vmalloc(&base(8 * MB)).unwrap();
    mm.vfree(warm.start()).unwrap();
    let mut held: Vec<Frame> = std::iter::from_fn(|| mm.lend(Order::BASE).ok()).collect();
    // One page of each 2 MiB stays away.
    held.retain(|frame| {
        let stays = frame.get() % 512 == 7;
        if !stays {
            mm.take_back(*frame, Order::BASE).unwrap();
        }
        stays
    });
    assert_eq!(mm.free_blocks().blocks(Order::SIZE_2M), 0);
    let asked = |request: &Request| {
        sim.fault_plan().set(Failing::Count);
        let area = mm.vmalloc(request).unwrap();
        let seen = sim.fault_plan().seen();
        sim.fault_plan().set(Failing::Nothing);
        mm.vfree(area.start()).unwrap();
        mm.purge_vmalloc();
        seen
    };
    let aligned = base(8 * MB).aligned(Bytes::new(2 * MB));
    asked(&aligned);
    let small = asked(&aligned);
    let large = asked(&huge(8 * MB).aligned(Bytes::new(2 * MB)));
    assert!(large <= small + 2, "{large} against {small}");
    assert_eq!(mm.vmalloc_counters().fallbacks, [1, 0, 0, 0]);
    held.into_iter().for_each(|frame| mm.take_back(frame, Order::BASE).unwrap());
    content(&sim, &mm);
}

/// Bounds are those of the request; the guard lies behind what is mapped; a fallback releases each
/// record once.
#[test]
fn tr_v8_bounds_are_what_was_asked_for() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    for rest in [Rest::Split, Rest::Rounded] {
        mm.vmap().set_controls(Controls { rest, ..Controls::DEFAULT });
        let asked = 2 * MB + 5000;
        let area = mm.vmalloc(&huge(asked)).unwrap();
        let (vmap, start) = (mm.vmap(), area.start());
        let bounds = |at: u64, bytes: u64| vmap.check_bounds(start.add(at), Bytes::new(bytes));
        let beyond = Err(VmapError::Beyond { va: start.add(asked) });
        assert_eq!(bounds(0, asked), Ok(()));
        assert_eq!(bounds(asked - 1, 1), Ok(()));
        assert_eq!(bounds(0, asked + 1), beyond);
        assert_eq!(bounds(asked - 1, u64::MAX), beyond);
        assert_eq!(bounds(asked, 1), beyond);
        let mapped = if rest == Rest::Split { 2 * MB + 8192 } else { 4 * MB };
        if rest == Rest::Rounded {
            let last = start.add(mapped - 1);
            assert_eq!(bounds(mapped - 1, 1), Err(VmapError::Beyond { va: last }));
        }
        assert!(put(&sim, start.add(mapped - 8), 1), "the last word that is mapped");
        assert_eq!(get(&sim, start.add(mapped)), None, "the guard");
        mm.vfree(start).unwrap();
        assert_eq!(bounds(0, 1), Err(VmapError::Freed(start)));
    }
    mm.vmap().set_controls(Controls::DEFAULT);
    for from in 1..40 {
        sim.fault_plan().set(Failing::From(from));
        let got = mm.vmalloc(&huge(4 * MB));
        sim.fault_plan().set(Failing::Nothing);
        if let Ok(area) = got {
            mm.vfree(area.start()).unwrap();
        }
        mm.audit(&[]).unwrap();
        mm.purge_vmalloc();
        assert_eq!(mm.vmalloc_counters().areas, 0, "from {from}");
    }
    content(&sim, &mm);
}

/// A fallback keeps every wish of the request; addresses wait for the purge; no alias outlives a
/// change of attributes.
#[test]
fn tr_v9_a_fallback_keeps_what_was_asked_for() {
    let sim = two_nodes();
    let memory = sim.config().memory.clone();
    let nodes = [Node(0), Node(1)];
    let setup = Setup { nodes: &nodes, ..Setup::of(&memory, Policy::BASE_ONLY) };
    let mm: AuditedMm<'_> = audited(&sim, &setup);
    let dirty = mm.vmalloc(&base(40 * MB)).unwrap();
    pages(dirty).for_each(|va| assert!(put(&sim, va, !0)));
    mm.vfree(dirty.start()).unwrap();
    let align = Bytes::new(64 << 10);
    let request = huge(4 * MB + 1)
        .aligned(align)
        .zeroed()
        .on(Node(1))
        .without_guard()
        .for_users()
        .called(Caller(0xabc));
    sim.fault_plan().set(Failing::Kth(3));
    let area = mm.vmalloc(&request).unwrap();
    sim.fault_plan().set(Failing::Nothing);
    assert_eq!(mm.vmalloc_counters().fallbacks.iter().sum::<u64>(), 1);
    let line = mm.vmalloc_info().find(|line| line.range.start() == area.start()).unwrap();
    assert!(area.start().is_aligned(align));
    assert!(pages(area).all(|va| get(&sim, va) == Some(0)), "cleared");
    assert_eq!(line.on(Node(1)).get(), 1025);
    assert_eq!(line.range, area, "no guard");
    assert_eq!((line.bytes, line.caller), (request.bytes, request.caller));
    assert_eq!(line.users, Users::Yes);
    mm.vfree(area.start()).unwrap();
    mm.audit(&[]).unwrap();
}

#[test]
fn tr_v9_addresses_wait_for_the_purge() {
    let sim = sim(2, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    online(&sim, &mm);
    let request = huge(2 * MB);
    let first = mm.vmalloc(&request).unwrap();
    sim.on(Cpu(1), || assert!(put(&sim, first.start(), 1)));
    mm.vfree(first.start()).unwrap();
    let second = mm.vmalloc(&request).unwrap();
    assert!(!first.overlaps(second));
    mm.purge_vmalloc();
    let third = mm.vmalloc(&request).unwrap();
    assert_eq!(third, first, "the lowest gap that fits");
    sim.on(Cpu(1), || assert!(put(&sim, third.start(), 3)));
    assert_eq!(get(&sim, third.start()), Some(3));
    mm.vfree(second.start()).unwrap();
    mm.vfree(third.start()).unwrap();
    content(&sim, &mm);
}

#[test]
fn tr_v9_no_alias_outlives_a_change_of_attributes() {
    let sim = sim(2, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    online(&sim, &mm);
    let area = mm.vmalloc(&base(4 * FRAME_BYTES)).unwrap();
    let frames: Vec<Frame> = pages(area).map(|va| mm.vmap().frame_at(va).unwrap().0).collect();
    let alias = mm.vmap_frames(&frames, &FrameMapping::PLAIN).unwrap();
    sim.on(Cpu(1), || assert!(put(&sim, alias.start(), 1)));
    mm.vunmap(alias.start()).unwrap();
    let names = |sim: &Sim| {
        let cached = sim.cached(Cpu(1));
        cached.iter().any(|entry| !entry.table && entry.base == frames[0].pa())
    };
    assert!(names(&sim), "the old alias is writable on CPU 1");
    mm.protect_kernel(part(area, 0, 1), Rights::Constant).unwrap();
    assert!(!names(&sim));
    assert_eq!(mm.vmap().lazy().get(), 0);
    mm.vfree(area.start()).unwrap();
    content(&sim, &mm);
}
