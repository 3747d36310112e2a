//! Kernel ranges: what is mapped by which leaves, what it costs, what is refused, what is left when
//! it is given back.

use crate::common::kernel::*;
use crate::common::*;
use foliant::manager::{Setup, SetupError, VmapSetup};
use foliant::table::{Paging, Riscv64, X86_64};
use foliant::vmap::*;
use foliant::{Event, Manager, Policy};
use foliant_machine::{Kept, Root, Tlb};
use foliant_sim::{Config, Failing, Format, RiscvMode, Sim};
use foliant_units::{
    Bytes, Cpu, FRAME_BYTES, Frame, FrameRange, Level, Node, Order, Pa, Pages, Va, VaRange,
};

fn ready(cpus: usize, megabytes: u64) -> Sim {
    sim(cpus, megabytes)
}
fn content(sim: &Sim, mm: &Mm<'_>) {
    mm.audit(&[]).unwrap();
    let violations = sim.finish();
    assert!(violations.is_empty(), "{violations:#?}");
}
/// A machine that only counts: large, and quick.
fn counting(cpus: usize, bytes: u64) -> Sim {
    Sim::new(Config::free(cpus, Bytes::new(bytes))).unwrap()
}

#[test]
fn an_end_is_mapped_by_smaller_leaves_and_nothing_is_rounded_up() {
    let sim = ready(2, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    online(&sim, &mm);
    let area = mm.vmalloc(&huge(5 * MB / 2)).unwrap();
    let counters = mm.vmalloc_counters();
    assert_eq!(area.bytes().get(), 5 * MB / 2);
    assert_eq!(counters.leaves, [128, 1, 0]);
    assert_eq!(counters.pages.get(), 640);
    for (n, va) in pages(area).enumerate() {
        assert!(put(&sim, va, n as u64));
    }
    for (n, va) in pages(area).enumerate() {
        assert_eq!(sim.on(Cpu(1), || get(&sim, va)), Some(n as u64));
    }
    assert_eq!(get(&sim, area.end()), None, "the guard page");
    mm.audit(&[]).unwrap();
    mm.vfree(area.start()).unwrap();
    assert_eq!(mm.vmalloc_counters().pages.get(), 0);
    let before = mm.total(Event::Shootdown);
    assert_eq!(mm.purge_vmalloc().get(), 641);
    assert_eq!(mm.total(Event::Shootdown), before + 1);
    content(&sim, &mm);
}

/// Waste for random sizes: none, where ends are split; less than a leaf, where sizes are rounded.
#[test]
fn a_thousand_sizes_waste_nothing() {
    let sim = counting(1, 256 * MB);
    let mm = manager(&sim, Policy::BASE_ONLY);
    mm.describe_all().unwrap();
    let mut random = 7u64;
    for rest in [Rest::Split, Rest::Rounded] {
        mm.vmap().set_controls(Controls { rest, ..Controls::DEFAULT });
        for nth in 0..1000 {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            // Most below 6 MiB, some up to 48 MiB.
            let most = if nth % 50 == 0 { 48 * MB } else { 6 * MB };
            let bytes = 1 + (random >> 20) % most;
            let free = mm.memory().free.get();
            let before = mm.vmalloc_counters();
            let area = mm.vmalloc(&huge(bytes)).unwrap();
            let after = mm.vmalloc_counters();
            let taken = (after.pages.get() - before.pages.get()) * FRAME_BYTES;
            let waste = taken - bytes.next_multiple_of(FRAME_BYTES);
            let stated = after.rounded.get() - before.rounded.get();
            assert_eq!((waste, area.bytes().get()), (stated, bytes.next_multiple_of(FRAME_BYTES)));
            match rest {
                Rest::Split => assert_eq!(waste, 0, "{bytes}"),
                Rest::Rounded if bytes >= 2 * MB => {
                    assert_eq!(taken, bytes.next_multiple_of(2 * MB))
                }
                Rest::Rounded => assert_eq!(waste, 0, "{bytes}"),
            }
            mm.vfree(area.start()).unwrap();
            mm.purge_vmalloc();
            assert!(mm.memory().free.get() + 40 >= free, "tables and records alone stay");
        }
    }
    mm.audit(&[]).unwrap();
}

/// What mapping costs, in entries written; what a purge costs, in shootdowns.
#[test]
fn a_gigabyte_takes_one_leaf_or_512_or_262144() {
    let sim = counting(4, 5 * GB / 2);
    let mm = manager(&sim, Policy::BASE_ONLY);
    online(&sim, &mm);
    let written = |request: &Request| {
        let before = mm.vmalloc_counters().leaves;
        let tables = mm.total(Event::TableMade);
        let area = mm.vmalloc(request).unwrap();
        let after = mm.vmalloc_counters().leaves;
        let tables = mm.total(Event::TableMade) - tables;
        mm.vfree(area.start()).unwrap();
        let shot = mm.total(Event::Shootdown);
        mm.purge_vmalloc();
        assert!(mm.total(Event::Shootdown) - shot <= 1);
        ((0..3).map(|n| after[n] - before[n]).collect::<Vec<_>>(), tables)
    };
    for bytes in [MB, 2 * MB, 16 * MB, 128 * MB, GB] {
        let (large, _) = written(&huge(bytes));
        let (small, tables) = written(&base(bytes));
        assert_eq!(small, [bytes / FRAME_BYTES, 0, 0]);
        assert!(tables >= bytes / (2 * MB) - tables.min(1) || bytes < GB);
        match bytes {
            GB => assert_eq!(large, [0, 0, 1]),
            MB => assert_eq!(large, [256, 0, 0]),
            _ => assert_eq!(large, [0, bytes / (2 * MB), 0]),
        }
        if bytes == GB {
            let (large, small): (u64, u64) = (large.iter().sum(), small.iter().sum());
            assert!(large * 50 <= small);
        }
    }
    // A format without leaves of 1 GiB below its top, or memory without such a block: 512 of 2 MiB.
    mm.audit(&[]).unwrap();
}

#[test]
fn without_a_gigabyte_block_there_are_leaves_of_two_megabytes() {
    let sim = counting(1, 3 * GB / 2); // from 1 MiB on: no aligned GiB in it
    let mm = manager(&sim, Policy::BASE_ONLY);
    assert_eq!(mm.free_blocks().blocks(Order::SIZE_1G), 0);
    let area = mm.vmalloc(&huge(GB + 1)).unwrap();
    let counters = mm.vmalloc_counters();
    assert_eq!((counters.leaves, counters.fallbacks), ([1, 512, 0], [1, 0, 0, 0]));
    mm.vfree(area.start()).unwrap();
    mm.audit(&[]).unwrap();
}

#[test]
fn the_switches_are_two() {
    let sim = ready(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let device = Pa::new(1 << 40);
    let leaves = |controls: Controls| {
        mm.vmap().set_controls(controls);
        let before = mm.vmalloc_counters().leaves;
        let area = mm.vmalloc(&huge(2 * MB)).unwrap();
        let io = mm.ioremap(device, Bytes::new(2 * MB), Caller(1)).unwrap();
        let after = mm.vmalloc_counters().leaves;
        mm.vfree(area.start()).unwrap();
        mm.iounmap(io).unwrap();
        [after[0] - before[0], after[1] - before[1]]
    };
    assert_eq!(leaves(Controls::DEFAULT), [0, 2]);
    let no_memory = Controls { huge_vmalloc: HugeVmalloc::Never, ..Controls::DEFAULT };
    assert_eq!(leaves(no_memory), [512, 1]);
    assert_eq!(leaves(Controls { huge_iomap: HugeIomap::Never, ..Controls::DEFAULT }), [512, 1]);
    content(&sim, &mm);
}

/// Only what a large leaf can map is aligned for one: registers that are small, or begin in the
/// middle, lie page by page.
#[test]
fn small_devices_lie_close_together() {
    let sim = ready(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let map = |pa: u64, bytes: u64| mm.ioremap(Pa::new(pa), Bytes::new(bytes), Caller(1)).unwrap();
    let first = map(1 << 40, FRAME_BYTES);
    let aligned = map((1 << 40) + GB, FRAME_BYTES);
    assert_eq!(aligned.offset_from(first), 2 * FRAME_BYTES, "one page, and its guard");
    let uneven = map((1 << 40) + 2 * GB + FRAME_BYTES, 2 * MB);
    assert_eq!(uneven.offset_from(aligned), 2 * FRAME_BYTES);
    [first, aligned, uneven].into_iter().for_each(|va| mm.iounmap(va).unwrap());
    content(&sim, &mm);
}

#[test]
fn devices_are_mapped_where_they_are() {
    let sim = ready(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let pa = Pa::new((1 << 40) + 3 * 2 * MB + 0x1234);
    let va = mm.ioremap(pa, Bytes::new(GB), Caller(0x77)).unwrap();
    assert_eq!(va.get() % FRAME_BYTES, 0x234);
    for offset in [0, 5 * MB, GB - 0x2000] {
        let frame = mm.vmap().frame_at(va.add(offset)).unwrap().0;
        assert_eq!(frame, pa.add(offset).frame());
    }
    let line = mm.vmalloc_info().next().unwrap();
    assert_eq!((line.backing, line.phys), (Backing::Device, Some(pa)));
    let text = line.to_string();
    assert!(text.ends_with("0x77 phys=0x0000010000601234 ioremap"), "{text}");
    assert_eq!(
        mm.vfree(va.align_down(Bytes::new(FRAME_BYTES))),
        Err(VmapError::OtherKind(line.range.start()))
    );
    mm.iounmap(va).unwrap();
    assert_eq!(mm.ioremap(pa, Bytes::new(0), Caller(0)), Err(VmapError::Empty));
    let far = Pa::new(u64::MAX - 8);
    assert_eq!(
        mm.ioremap(far, Bytes::new(64), Caller(0)),
        Err(VmapError::Overflow(far, Bytes::new(64)))
    );
    // Physical addresses have 52 bits here.
    let last = Pa::new((1 << 52) - FRAME_BYTES);
    let io = mm.ioremap(last, Bytes::new(FRAME_BYTES), Caller(0)).unwrap();
    assert_eq!(mm.vmap().frame_at(io).unwrap().0, last.frame());
    mm.iounmap(io).unwrap();
    let beyond = Bytes::new(FRAME_BYTES + 1);
    assert_eq!(mm.ioremap(last, beyond, Caller(0)), Err(VmapError::Overflow(last, beyond)));
    let memory = sim.config().memory[0].start();
    assert_eq!(mm.ioremap(memory.pa(), Bytes::new(64), Caller(0)), Err(VmapError::Managed(memory)));
    // Where both addresses are aligned alike, one leaf does.
    let before = mm.vmalloc_counters().leaves;
    let io = mm.ioremap(Pa::new(1 << 40), Bytes::new(GB), Caller(0)).unwrap();
    assert_eq!(mm.vmalloc_counters().leaves[2] - before[2], 1);
    mm.iounmap(io).unwrap();
    content(&sim, &mm);
}

#[test]
fn frames_of_the_caller_are_mapped_in_their_order() {
    let sim = ready(2, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    online(&sim, &mm);
    let blocks: Vec<Frame> = (0..3).map(|_| mm.lend(Order::SIZE_2M).unwrap()).collect();
    let single = mm.lend(Order::BASE).unwrap();
    let mut frames: Vec<Frame> = Vec::new();
    for block in [blocks[2], blocks[0]] {
        frames.extend((0..512).map(|n| block.add(Pages::new(n))));
    }
    frames.push(single);
    frames.extend((0..512).rev().map(|n| blocks[1].add(Pages::new(n))));
    for leaves in [LeafSizes::Base, LeafSizes::Huge] {
        let before = mm.vmalloc_counters().leaves;
        let area =
            mm.vmap_frames(&frames, &FrameMapping { leaves, ..FrameMapping::PLAIN }).unwrap();
        let after = mm.vmalloc_counters().leaves;
        let large = if leaves == LeafSizes::Huge { 2 } else { 0 };
        assert_eq!(after[1] - before[1], large);
        assert_eq!(after[0] - before[0], 1537 - large * 512);
        for (frame, va) in frames.iter().zip(pages(area)) {
            assert_eq!(mm.vmap().frame_at(va).unwrap().0, *frame);
        }
        assert!(put(&sim, area.start(), 5));
        assert_eq!(mm.vfree(area.start()), Err(VmapError::OtherKind(area.start())));
        mm.vunmap(area.start()).unwrap();
    }
    mm.purge_vmalloc(); // the frames get other owners now
    blocks.into_iter().for_each(|block| mm.take_back(block, Order::SIZE_2M).unwrap());
    mm.take_back(single, Order::BASE).unwrap();
    assert_eq!(mm.vmap_frames(&[], &FrameMapping::PLAIN), Err(VmapError::Empty));
    let none = Frame::new(1 << 40);
    assert_eq!(mm.vmap_frames(&[none], &FrameMapping::PLAIN), Err(VmapError::Frame(none)));
    content(&sim, &mm);
}

#[test]
fn what_cannot_be_meant_is_refused_and_changes_nothing() {
    let sim = ready(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let area = mm.vmalloc(&base(3 * FRAME_BYTES)).unwrap();
    let before = (mm.vmalloc_counters(), mm.memory());
    let installed = Bytes::new(32 * MB);
    let refused = |request: Request| mm.vmalloc(&request).unwrap_err();
    assert_eq!(refused(base(0)), VmapError::Empty);
    for asked in [32 * MB + 1, u64::MAX, u64::MAX - 4095] {
        assert_eq!(
            refused(base(asked)),
            VmapError::TooLarge { asked: Bytes::new(asked), installed }
        );
    }
    for align in [0, 1, 2048, 3 * FRAME_BYTES, 2 * GB, u64::MAX] {
        let align = Bytes::new(align);
        assert_eq!(refused(base(1).aligned(align)), VmapError::Alignment(align));
    }
    assert_eq!(refused(base(1).on(Node(3))), VmapError::Node(Node(3)));
    let start = area.start();
    let inside = start.add(FRAME_BYTES);
    assert_eq!(mm.vfree(inside), Err(VmapError::NotStart { va: inside, start }));
    let odd = start.add(8);
    assert_eq!(mm.vfree(odd), Err(VmapError::NotStart { va: odd, start }));
    for foreign in [Va::new(0), start.add(64 * MB), Va::new(!0), Va::new(0xffff_8000_0000_0000)] {
        assert_eq!(mm.vfree(foreign), Err(VmapError::NoArea(foreign)));
        assert_eq!(mm.vfree_atomic(foreign), Err(VmapError::NoArea(foreign)));
    }
    assert_eq!(mm.vunmap(start), Err(VmapError::OtherKind(start)));
    let wide = VaRange::sized(start, Bytes::new(4 * FRAME_BYTES)).unwrap();
    assert_eq!(
        mm.protect_kernel(wide, Rights::Constant),
        Err(VmapError::Beyond { va: area.end() })
    );
    let askew = VaRange::new(odd, area.end()).unwrap();
    assert_eq!(mm.protect_kernel(askew, Rights::Constant), Err(VmapError::Misaligned(odd)));
    let nothing = VaRange::new(start, start).unwrap();
    assert_eq!(mm.protect_kernel(nothing, Rights::Constant), Err(VmapError::Empty));
    assert_eq!((mm.vmalloc_counters(), mm.memory()), before);
    mm.vfree(start).unwrap();
    assert_eq!(mm.vfree(start), Err(VmapError::Freed(start)));
    assert_eq!(mm.vfree_atomic(start), Err(VmapError::NoArea(start)));
    mm.purge_vmalloc();
    assert_eq!(mm.vfree(start), Err(VmapError::NoArea(start)));
    content(&sim, &mm);
}

#[test]
fn a_range_in_the_setup_is_used_or_refused() {
    let sim = ready(1, 32);
    let memory = sim.config().memory.clone();
    let build = |range: VaRange| {
        let vmap = VmapSetup { range: Some(range), ..VmapSetup::DEFAULT };
        let setup = Setup { vmap, ..Setup::of(&memory, Policy::BASE_ONLY) };
        Manager::<'_, Sim, X86_64<4>>::new(&sim, &setup).map(|mm| mm.vmap().range())
    };
    let of = |start: u64, bytes: u64| VaRange::sized(Va::new(start), Bytes::new(bytes)).unwrap();
    let good = of(0xffff_a000_0000_0000, 1 << 40);
    for bad in [
        of(0xffff_8000_0000_0000, 1 << 39), // the descriptors
        of(0xffff_a000_0000_1000, 1 << 39),
        of(0xffff_a000_0000_0000, 0),
        of(0x7000_0000_0000, 1 << 39),
    ] {
        assert_eq!(build(bad), Err(SetupError::VmapRange(bad)));
    }
    assert_eq!(build(good), Ok(good));
}

#[test]
fn a_range_that_the_kernel_uses_already_is_refused() {
    let sim = ready(1, 64);
    let all = sim.config().memory[0];
    let half = Pages::new(all.pages().get() / 2);
    let parts = [all.start(), all.start().add(half)].map(|at| FrameRange::new(at, half).unwrap());
    let first: AuditedMm<'_> = manager_on(&sim, &parts[..1], Policy::BASE_ONLY);
    first.leaves("its tables to the next one");
    let taken = first.vmap().range();
    let kernel_top = Some(first.kernel_tables().root());
    let build = |range: Option<VaRange>| {
        let vmap = VmapSetup { range, ..VmapSetup::DEFAULT };
        let setup = Setup { kernel_top, vmap, ..Setup::of(&parts[1..], Policy::BASE_ONLY) };
        Manager::<'_, Sim, X86_64<4>>::new(&sim, &setup).map(|mm| mm.vmap().range())
    };
    assert_eq!(build(Some(taken)), Err(SetupError::VmapRange(taken)));
}

#[test]
fn addresses_that_run_out_are_purged_first() {
    // Sv39 with its 1 GiB top entries: a range of 1 GiB is soon full.
    let config = Config::free(2, Bytes::new(64 * MB)).with_format(Format::Riscv64(RiscvMode::Sv39));
    let sim = Sim::new(config).unwrap();
    let memory = sim.config().memory.clone();
    let start = Riscv64::<3>::half(foliant::table::Half::Kernel).0.add(8 * GB);
    let range = VaRange::sized(start, Bytes::new(GB)).unwrap();
    let vmap = VmapSetup { range: Some(range), ..VmapSetup::DEFAULT };
    let setup = Setup { vmap, ..Setup::of(&memory, Policy::BASE_ONLY) };
    let mm: Audited<'_, Riscv64<3>> = audited(&sim, &setup);
    online(&sim, &mm);
    let big = |align: u64| base(FRAME_BYTES).aligned(Bytes::new(align)).without_guard();
    // Devices take addresses and no memory.
    let io = |megabytes: u64| mm.ioremap(Pa::new(1 << 40), Bytes::new(megabytes * MB), Caller(0));
    let first = io(1000).unwrap();
    assert_eq!(
        io(100),
        Err(VmapError::Short(Short::Addresses(Bytes::new(100 * MB + FRAME_BYTES))))
    );
    let small = mm.vmalloc(&big(2 * MB)).unwrap();
    mm.iounmap(first).unwrap();
    assert!(mm.vmap().lazy().get() < 1000, "1000 MiB are more than may wait");
    mm.vfree(small.start()).unwrap();
    let purges = mm.vmalloc_counters().purges;
    let again = io(1000).unwrap();
    assert!(mm.vmalloc_counters().purges <= purges + 1);
    // So much may wait, and is needed before anybody purges.
    let last = io(20).unwrap();
    mm.iounmap(last).unwrap();
    let (purges, waiting) = (mm.vmalloc_counters().purges, mm.vmap().lazy().bytes());
    assert!(waiting >= Bytes::new(20 * MB), "{waiting}");
    let last = io(20).unwrap();
    assert_eq!(mm.vmalloc_counters().purges, purges + 1);
    mm.iounmap(last).unwrap();
    mm.iounmap(again).unwrap();
    mm.audit(&[]).unwrap();
}

/// Eagerly: one flush for each range, and frames go after it. Lazily: none until the purge, and one
/// for all.
#[test]
fn eager_is_one_flush_a_range_and_lazy_one_for_all() {
    for purge in [PurgeMode::Lazy, PurgeMode::Eager] {
        let sim = ready(4, 64);
        let mm = manager(&sim, Policy::BASE_ONLY);
        online(&sim, &mm);
        mm.vmap().set_controls(Controls { purge, ..Controls::DEFAULT });
        let areas: Vec<VaRange> =
            (1..=10).map(|n| mm.vmalloc(&huge(n * 700_000)).unwrap()).collect();
        for va in areas.iter().flat_map(|area| pages(*area)) {
            for cpu in 0..4 {
                sim.on(Cpu(cpu), || assert!(put(&sim, va, va.get())));
            }
        }
        let before = mm.total(Event::Shootdown);
        areas.iter().for_each(|area| mm.vfree(area.start()).unwrap());
        let freed = mm.total(Event::Shootdown) - before;
        mm.purge_vmalloc();
        let purged = mm.total(Event::Shootdown) - before - freed;
        assert_eq!((freed, purged), if purge == PurgeMode::Lazy { (0, 1) } else { (10, 0) });
        content(&sim, &mm);
    }
}

/// The watcher that lets frames of lazy ranges go sees who uses such a range after all.
#[test]
fn a_use_after_free_is_seen_in_either_mode() {
    for purge in [PurgeMode::Lazy, PurgeMode::Eager] {
        let sim = ready(2, 64);
        let mm = manager(&sim, Policy::BASE_ONLY);
        mm.leaves("a use after free that is seen");
        online(&sim, &mm);
        mm.vmap().set_controls(Controls { purge, ..Controls::DEFAULT });
        let area = mm.vmalloc(&huge(2 * MB)).unwrap();
        sim.on(Cpu(1), || assert!(put(&sim, area.start(), 1)));
        mm.vfree(area.start()).unwrap();
        assert!(sim.violations().is_empty());
        let seen = sim.on(Cpu(1), || get(&sim, area.start()));
        let found = sim.violations();
        match purge {
            PurgeMode::Lazy => {
                assert!(seen.is_some(), "the CPU still has its translation");
                assert!(found.iter().any(|v| v.checker == "no_stale_translation"), "{found:?}");
            }
            PurgeMode::Eager => assert_eq!(seen, None),
        }
    }
}

/// A CPU runs the kernel's tables and uses kernel memory before it is announced, so that no flush
/// of the kernel half asks it. What it has cached ends when it comes online.
#[test]
fn a_cpu_that_comes_online_forgets_what_was_given_back_before() {
    let sim = ready(2, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    mm.online();
    let area = mm.vmalloc(&base(PAGE)).unwrap();
    assert!(put(&sim, area.start(), 7));
    let top = mm.kernel_tables().root();
    let root = Root { user: top, kernel: top };
    let early = || {
        sim.activate(root, Kept::Nothing);
        get(&sim, area.start())
    };
    assert_eq!(sim.on(Cpu(1), early), Some(7));
    mm.vfree(area.start()).unwrap();
    mm.purge_vmalloc();
    let found = sim.finish();
    assert!(matches!(&found[..], [one] if one.text.contains("but cpu 1 has")), "{found:#?}");
    mm.leaves("the purge: no embedder may give back what such a CPU uses");
    let ready = || {
        mm.online();
        get(&sim, area.start())
    };
    assert_eq!(sim.on(Cpu(1), ready), None);
}

#[test]
fn a_purge_is_due_after_32_megabytes_for_each_power_of_two_of_cpus() {
    for (cpus, most) in [(1, 32), (2, 64), (3, 64), (4, 96), (16, 160)] {
        let sim = counting(cpus, 16 * MB);
        let mm = manager(&sim, Policy::BASE_ONLY);
        assert_eq!(mm.vmap().lazy_max().bytes().get(), most * MB);
        let io = || mm.ioremap(Pa::new(1 << 40), Bytes::new(MB), Caller(0)).unwrap();
        for n in 1..=most {
            let va = io();
            mm.iounmap(va).unwrap();
            let over = n * 257 > most * 256;
            assert_eq!(mm.vmalloc_counters().purges, u64::from(over), "{n}");
            if over {
                break;
            }
        }
    }
}

#[test]
fn memory_is_given_back_later_from_where_nothing_may_be_waited_for() {
    let sim = ready(2, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    online(&sim, &mm);
    let areas: Vec<VaRange> = (0..5).map(|n| mm.vmalloc(&huge((n + 1) * MB)).unwrap()).collect();
    for area in &areas {
        mm.vfree_atomic(area.start()).unwrap();
        assert_eq!(mm.vfree_atomic(area.start()), Err(VmapError::Freed(area.start())));
    }
    // Given back at once by somebody else meanwhile: the list survives it.
    let mut kept: Vec<VaRange> = (0..4).map(|_| mm.vmalloc(&base(FRAME_BYTES)).unwrap()).collect();
    for area in &kept {
        mm.vfree_atomic(area.start()).unwrap();
    }
    mm.vfree(kept[2].start()).unwrap();
    mm.purge_vmalloc();
    assert_eq!(mm.vmalloc_counters().areas, 0);
    kept.clear();
    // Not an area's first page.
    let other = mm.vmalloc(&base(FRAME_BYTES)).unwrap();
    assert_eq!(mm.vmalloc_counters().pages.get(), 1, "a call that may wait collects");
    mm.vfree(other.start()).unwrap();
    let two = mm.vmalloc(&base(2 * FRAME_BYTES)).unwrap();
    let second = two.start().add(FRAME_BYTES);
    assert_eq!(mm.vfree_atomic(second), Err(VmapError::NotMemory(second)));
    assert_eq!(mm.vmap().collect(), 0);
    assert_eq!(mm.vmalloc_counters().pages.get(), 2);
    mm.vfree(two.start()).unwrap();
    assert_eq!(mm.vmalloc_counters().deferred, 9);
    content(&sim, &mm);
}

#[test]
fn the_listing_has_the_columns_of_linux() {
    let sim = ready(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let table = mm.vmalloc(&huge(5 * MB / 2 - 1).called(Caller(0x4711))).unwrap();
    let shared = mm.vmalloc(&base(FRAME_BYTES).for_users()).unwrap();
    let start = table.start().get();
    let lines: Vec<String> = mm.vmalloc_info().map(|line| line.to_string()).collect();
    let end = start + 641 * FRAME_BYTES;
    assert_eq!(
        lines[0],
        format!("{start:#018x}-{end:#018x} 2625536 0x4711 pages=640 vmalloc N0=640")
    );
    assert!(lines[1].ends_with(" 0x0 pages=1 vmalloc user N0=1"), "{}", lines[1]);
    mm.vfree(table.start()).unwrap();
    let lines: Vec<String> = mm.vmalloc_info().map(|line| line.to_string()).collect();
    assert!(lines[0].ends_with(" unpurged vm_area"), "{}", lines[0]);
    mm.vfree(shared.start()).unwrap();
    mm.purge_vmalloc();
    assert_eq!(mm.vmalloc_info().count(), 0);
    content(&sim, &mm);
}

/// While a listing is read, areas are given back and a longer one comes to lie in their place:
/// across the end of what was listed.
#[test]
fn areas_of_a_listing_do_not_overlap() {
    let sim = ready(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let page = || mm.vmalloc(&base(FRAME_BYTES)).unwrap();
    let (first, second, third) = (page(), page(), page());
    let mut listing = mm.vmalloc_info();
    assert_eq!(listing.next().unwrap().range.start(), first.start());
    mm.vfree(first.start()).unwrap();
    mm.vfree(second.start()).unwrap();
    mm.purge_vmalloc();
    let long = mm.vmalloc(&base(3 * FRAME_BYTES)).unwrap();
    assert_eq!(long.start(), first.start());
    let rest: Vec<Va> = listing.map(|area| area.range.start()).collect();
    assert_eq!(rest, [third.start()]);
    mm.vfree(long.start()).unwrap();
    mm.vfree(third.start()).unwrap();
    content(&sim, &mm);
}

/// No allocation that is refused leaves anything behind, and what can do without does.
#[test]
fn every_refused_allocation_leaves_no_trace() {
    let requests = [
        huge(2 * MB + 3 * FRAME_BYTES),
        huge(4 * MB).zeroed().aligned(Bytes::new(4 * MB)),
        base(2 * MB + 5 * FRAME_BYTES),
        huge(FRAME_BYTES).for_users(),
    ];
    for request in requests {
        for from in [false, true] {
            let mut k = 1;
            loop {
                let sim = ready(1, 32);
                let mm = manager(&sim, Policy::BASE_ONLY);
                sim.fault_plan().set(if from { Failing::From(k) } else { Failing::Kth(k) });
                let got = mm.vmalloc(&request);
                let refused = sim.fault_plan().refused();
                sim.fault_plan().set(Failing::Nothing);
                mm.audit(&[]).unwrap();
                match got {
                    Ok(area) => {
                        assert_eq!(area.bytes().get(), request.bytes.get());
                        for (n, va) in pages(area).enumerate() {
                            assert!(put(&sim, va, n as u64));
                        }
                        for (n, va) in pages(area).enumerate() {
                            assert_eq!(get(&sim, va), Some(n as u64));
                        }
                        mm.vfree(area.start()).unwrap();
                    }
                    Err(error) => assert!(matches!(error, VmapError::Short(_)), "{error}"),
                }
                assert_eq!(mm.vmalloc_counters().pages.get(), 0);
                // The next one succeeds, in any case.
                let next = mm.vmalloc(&request).unwrap();
                mm.vfree(next.start()).unwrap();
                content(&sim, &mm);
                if refused == 0 {
                    break;
                }
                k += 1;
            }
            assert!(k > 3, "{request:?} asks for memory in {k} places only");
        }
    }
}

#[test]
fn every_refused_allocation_of_a_change_or_a_mapping_leaves_no_trace() {
    for k in 1.. {
        let sim = ready(2, 32);
        let mm = manager(&sim, Policy::BASE_ONLY);
        online(&sim, &mm);
        let id = mm.create(None).unwrap();
        let area = mm.vmalloc(&huge(2 * MB).for_users()).unwrap();
        let part =
            VaRange::sized(area.start().add(5 * FRAME_BYTES), Bytes::new(FRAME_BYTES)).unwrap();
        sim.fault_plan().set(Failing::Kth(k));
        let protected = mm.protect_kernel(part, Rights::Constant);
        let request = foliant::space::MapRequest {
            place: foliant::space::Place::Anywhere,
            bytes: Bytes::new(3 * FRAME_BYTES),
            flags: foliant::space::Flags::READ_WRITE,
            tag: 0,
        };
        let shared = mm.map_user(id, &request, area.start());
        let io = mm.ioremap(Pa::new(1 << 40), Bytes::new(3 * MB), Caller(0));
        let refused = sim.fault_plan().refused();
        sim.fault_plan().set(Failing::Nothing);
        mm.audit(&[id]).unwrap();
        assert!(protected.is_ok() || refused > 0);
        assert_eq!(put(&sim, part.start(), 1), protected.is_err());
        assert!(put(&sim, area.start(), 2));
        if let Ok(io) = io {
            mm.iounmap(io).unwrap();
        }
        if let Ok(range) = shared {
            mm.unmap(id, range).unwrap();
        }
        mm.vfree(area.start()).unwrap();
        finish(&sim, &mm, &[id]);
        if refused == 0 {
            assert!(k > 3);
            break;
        }
    }
}

#[test]
fn a_visit_by_base_pages_is_refused_where_a_leaf_is_in_the_way() {
    let sim = ready(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let area = mm.vmalloc(&huge(2 * MB + 40 * FRAME_BYTES)).unwrap();
    let mut visited = Vec::new();
    let found = mm.vmap().apply(area, |va, _| visited.push(va));
    assert_eq!(found, Err(VmapError::Leaf(area.start(), Level::SIZE_2M)));
    assert!(visited.is_empty());
    let tail = VaRange::new(area.start().add(2 * MB), area.end()).unwrap();
    for (start, end) in [(8, 0), (0, 8)] {
        let askew = VaRange::new(tail.start().add(start), tail.start().add(FRAME_BYTES + end));
        let odd = Err(VmapError::Misaligned(tail.start().add(if end == 0 {
            start
        } else {
            FRAME_BYTES + end
        })));
        assert_eq!(mm.vmap().apply(askew.unwrap(), |va, _| visited.push(va)), odd);
    }
    assert!(visited.is_empty());
    mm.vmap()
        .apply(tail, |va, frame| {
            assert_eq!(mm.vmap().frame_at(va).unwrap().0, frame);
            visited.push(va);
        })
        .unwrap();
    assert_eq!(visited, pages(tail).collect::<Vec<_>>());
    // A leaf further on refuses all of it.
    let next = mm.vmalloc(&huge(2 * MB)).unwrap();
    assert!(next.start() > tail.end(), "{next:?} lies behind {tail:?}");
    visited.clear();
    let both = VaRange::new(tail.start(), next.end()).unwrap();
    let found = mm.vmap().apply(both, |va, _| visited.push(va));
    assert_eq!(found, Err(VmapError::Leaf(next.start(), Level::SIZE_2M)));
    assert_eq!(visited, []);
    mm.vfree(next.start()).unwrap();
    mm.vfree(area.start()).unwrap();
    content(&sim, &mm);
}

/// Two CPUs take and give back in their own time; nothing is lost, and one does twice what half of
/// one does.
#[test]
fn two_cpus_do_not_meet_in_an_area() {
    for seed in 1..40 {
        let sim = Sim::new(Config::seeded(3, Bytes::new(48 * MB), seed)).unwrap();
        let mm = manager(&sim, Policy::BASE_ONLY);
        sim.parallel(3, |cpu| {
            mm.online();
            for n in 0..6u64 {
                let bytes = [FRAME_BYTES, 2 * MB, 3 * MB, 9000, 2 * MB + 1, 64 << 10][n as usize];
                let area = mm.vmalloc(&huge(bytes)).unwrap();
                assert!(put(&sim, area.start(), u64::from(cpu.0) + 10 * n));
                let last = area.end().get() - FRAME_BYTES;
                assert!(put(&sim, Va::new(last), u64::from(cpu.0)));
                assert!(mm.vmap().frame_at(area.start()).is_some());
                if n % 3 == 2 {
                    mm.purge_vmalloc();
                }
                match n % 2 {
                    0 => mm.vfree(area.start()).unwrap(),
                    _ => mm.vfree_atomic(area.start()).unwrap(),
                }
            }
        });
        mm.purge_vmalloc();
        assert_eq!(mm.vmalloc_counters().pages.get(), 0);
        content(&sim, &mm);
    }
}
