//! What readers found in kernel ranges, descriptors, compaction and the shrinker
//! (docs/findings.md).
#![allow(unsafe_code)]

use crate::common::beside::Beside;
use crate::common::kernel::*;
use crate::common::*;
use foliant::compact::CompactRequest;
use foliant::fault::Refusal;
use foliant::frame::{Flag, Kind};
use foliant::manager::{BootPages, KernelMapError, Poisoned, Setup};
use foliant::memmap::{Batch, Form};
use foliant::pool::{Budget, Folding, NotDissolved};
use foliant::space::{Advice, Flags, Place};
use foliant::split::{Shrink, SplitInto, ZeroPieces};
use foliant::table::{Aarch64, Attrs, Entry, Half, Paging, Riscv64, X86_64};
use foliant::vmap::{Controls, FrameMapping, HugeVmalloc, Rights, VmapError};
use foliant::{Access, Event, Outcome, Policy};
use foliant_machine::{Around, Cpus, Invalidation, KernelVa, Tlb};
use foliant_sim::{Config, Failing, Format, RiscvMode, Sim};
use foliant_units::{
    Bytes, Cpu, FRAME_BYTES, Frame, FrameRange, Level, Node, Order, Pages, Va, VaRange,
};
use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

fn content(sim: &Sim, mm: &AnyMm<'_, impl Paging>) {
    mm.audit(&[]).unwrap();
    let violations = sim.finish();
    assert!(violations.is_empty(), "{violations:#?}");
}

/// The leaf of a section's descriptors has just been published, and another CPU splits it and takes
/// the descriptors of one of its blocks away: they are not said to be there afterwards.
#[test]
fn finding_ar_a_section_is_described_before_its_leaf_can_be_split() {
    claim_beside_a_split(Form::Dense);
}

/// A CPU is about to describe a block, and another one describes the section by a leaf and splits
/// it: the block has descriptors then, and they stay.
#[test]
fn finding_bp_what_a_leaf_that_is_gone_has_described_is_left_alone() {
    claim_beside_a_split(Form::Folded);
}

/// A page is claimed in a section without descriptors, and before each step of that another CPU
/// claims one there, folds it and gives it back.
fn claim_beside_a_split(form: Form) {
    // So many claims until one describes the next section.
    let claims = {
        let sim = sim(1, 256);
        let mm = manager(&sim, Policy::BASE_ONLY);
        mm.online();
        let memmap = mm.memmap();
        let mut batch = Batch::new(&memmap);
        let before = mm.total(Event::MemmapPages);
        while mm.total(Event::MemmapPages) < before + 512 {
            batch.push(memmap.claim(Order::SIZE_2M, Form::Dense).unwrap()).unwrap();
        }
        let claims = batch.len();
        memmap.release(&mut batch);
        claims
    };
    for step in 1.. {
        let machine = Beside::behind_swaps(sim(2, 256));
        let mm = machine.manager(Policy::BASE_ONLY);
        online(&machine.sim, &mm);
        let memmap = mm.memmap();
        let mut batch = Batch::new(&memmap);
        for _ in 1..claims {
            batch.push(memmap.claim(Order::SIZE_2M, Form::Dense).unwrap()).unwrap();
        }
        let part = || {
            let mut batch = Batch::new(&memmap);
            batch.push(memmap.claim(Order::SIZE_2M, Form::Dense).unwrap()).unwrap();
            memmap.fold(&mut batch);
            memmap.release(&mut batch);
        };
        let mut claimed = None;
        let work = || claimed = Some(memmap.claim(Order::SIZE_2M, form).unwrap());
        let met = machine.before_step(step, part, work);
        batch.push(claimed.take().unwrap()).unwrap();
        while let Ok(huge) = memmap.claim(Order::SIZE_2M, Form::Dense) {
            batch.push(huge).unwrap();
        }
        memmap.unfold(&mut batch);
        while let Some(huge) = batch.pop() {
            memmap.free(huge).unwrap();
        }
        if met.is_none() {
            break;
        }
    }
}

/// A machine that moves the thread from CPU 0 to CPU 1 before it invalidates, unless it is pinned.
struct Moving {
    sim: Sim,
    pinned: AtomicU64,
    armed: AtomicBool,
}

simulated!(Moving);
// SAFETY: everything is the simulator's.
unsafe impl Around for Moving {
    type Inner = Sim;
    fn inner(&self) -> &Sim {
        &self.sim
    }
    fn pinned<R>(&self, work: impl FnOnce(Cpu) -> R) -> R {
        self.pinned.fetch_add(1, SeqCst);
        let done = self.sim.pinned(work);
        self.pinned.fetch_sub(1, SeqCst);
        done
    }
    fn invalidate(&self, what: &Invalidation) {
        match self.armed.load(SeqCst) && self.pinned.load(SeqCst) == 0 {
            true => self.sim.on(Cpu(1), || self.sim.invalidate(what)),
            false => self.sim.invalidate(what),
        }
    }
}

/// The flusher is not moved to another CPU between the look at where it runs and the invalidation.
#[test]
fn finding_as_the_flusher_stays_where_it_is() {
    let machine = Moving { sim: sim(2, 32), pinned: AtomicU64::new(0), armed: false.into() };
    let mm: AuditedMm<'_> = manager_on(&machine, &machine.sim.config().memory, Policy::BASE_ONLY);
    online(&machine.sim, &mm);
    let id = mm.create(None).unwrap();
    for nth in 0..2 {
        machine.sim.on(cpu(nth), || mm.switch(Some(id)).unwrap());
    }
    let whole = area(&mm, id, BASE, MB);
    store(&machine.sim, &mm, id, BASE, 1);
    machine.armed.store(true, SeqCst);
    mm.unmap(id, whole).unwrap();
    let cached = machine.sim.cached(Cpu(0));
    assert!(cached.iter().all(|entry| entry.va != Va::new(BASE)), "{cached:?}");
    machine.armed.store(false, SeqCst);
}

/// Memory is given back, its frames are another area's at once, and that is made constant: nobody
/// can write to it by the old addresses, however far the giving back is.
#[test]
fn finding_at_no_alias_of_an_area_that_is_half_given_back() {
    let mut same = 0;
    for step in 1.. {
        let machine = Beside::new(sim(3, 32));
        let mm = machine.manager(Policy::BASE_ONLY);
        online(&machine.sim, &mm);
        let ask = base(4 * FRAME_BYTES);
        let both = [mm.vmalloc(&ask).unwrap(), mm.vmalloc(&ask).unwrap()];
        both.into_iter().for_each(|area| mm.vfree(area.start()).unwrap()); // two records are spare
        mm.purge_vmalloc();
        // There is no other memory than four pages, none beside another.
        let lent: Vec<Frame> = core::iter::from_fn(|| mm.lend(Order::BASE).ok()).collect();
        (1..5).for_each(|nth| mm.take_back(lent[nth * 100], Order::BASE).unwrap());
        let old = mm.vmalloc(&ask).unwrap();
        let frames: Vec<Frame> = pages(old).map(|va| mm.vmap().frame_at(va).unwrap().0).collect();
        machine.sim.on(Cpu(2), || pages(old).for_each(|va| assert!(put(&machine.sim, va, 1))));
        let part = || {
            let Ok(new) = mm.vmalloc(&base(FRAME_BYTES)) else { return };
            mm.protect_kernel(new, Rights::Constant).unwrap();
            for va in pages(new) {
                let (frame, _) = mm.vmap().frame_at(va).unwrap();
                same += u64::from(frames.contains(&frame));
                let cached = machine.sim.cached(Cpu(2));
                let writes = cached.iter().any(|entry| !entry.table && entry.base == frame.pa());
                assert!(!writes, "step {step}: {frame} can be written to by its old address");
            }
        };
        if machine.before_step(step, part, || mm.vfree(old.start()).unwrap()).is_none() {
            break;
        }
    }
    assert!(same > 0, "the frames came at no step");
}

/// An area is given back from where nothing may be waited for, while a program is given pages of
/// it: it goes as soon as that is over.
#[test]
fn finding_au_a_deferred_area_that_is_busy_goes_later() {
    for step in 1.. {
        let machine = Beside::new(sim(2, 32));
        let mm = machine.manager(Policy::BASE_ONLY);
        online(&machine.sim, &mm);
        let id = mm.create(None).unwrap();
        let kernel = mm.vmalloc(&base(4 * FRAME_BYTES).for_users()).unwrap();
        let part = || {
            mm.vfree_atomic(kernel.start()).unwrap();
            mm.vmap().collect();
        };
        let lend = || {
            let ask = request(Place::NoReplace(Va::new(BASE)), 4 * FRAME_BYTES, Flags::READ_WRITE);
            mm.map_user(id, &ask, kernel.start()).is_ok()
        };
        let done = machine.before_step(step, part, lend);
        mm.vmap().collect();
        if done == Some(true) {
            mm.unmap(id, range(BASE, 4 * FRAME_BYTES)).unwrap();
        }
        if done.is_none() {
            break;
        }
        mm.purge_vmalloc();
        assert_eq!(mm.vmalloc_counters().areas, 0, "step {step}: it stays for ever");
    }
}

/// Where large leaves are not allowed there are no groups of small ones either: a part can have
/// other rights.
#[test]
fn finding_av_base_leaves_are_not_grouped_where_large_ones_are_not_allowed() {
    let config = Config::seeded(1, Bytes::new(64 * MB), 3).with_format(Format::Aarch64);
    let sim = Sim::new(config).unwrap();
    let memory = sim.config().memory.clone();
    let setup = Setup::of(&memory, Policy::BASE_ONLY);
    let mm: Audited<'_, Aarch64> = audited(&sim, &setup);
    mm.online();
    let protect = |area: VaRange| {
        let page = VaRange::sized(area.start().add(FRAME_BYTES), Bytes::new(FRAME_BYTES)).unwrap();
        mm.protect_kernel(page, Rights::Constant)
    };
    let constant = huge(64 << 10).with_rights(Rights::Constant);
    let area = mm.vmalloc(&constant).unwrap();
    assert_eq!(protect(area), Ok(()));
    mm.vfree(area.start()).unwrap();
    mm.vmap().set_controls(Controls { huge_vmalloc: HugeVmalloc::Never, ..mm.vmap().controls() });
    let area = mm.vmalloc(&huge(64 << 10)).unwrap();
    assert_eq!(protect(area), Ok(()));
    mm.vfree(area.start()).unwrap();
    content(&sim, &mm);
}

/// Two ranges of memory meet inside a block of 2 MiB. Compaction never takes it for a whole one.
#[test]
fn finding_ax_a_block_in_which_two_ranges_meet_is_no_source() {
    let mut config = Config::seeded(1, Bytes::new(MB), 1);
    let border = 0x400 + 4 * 512 + 256;
    config.memory = [(0x400, border), (border, 0x400 + 8 * 512)]
        .map(|(from, to)| FrameRange::new(Frame::new(from), Pages::new(to - from)).unwrap())
        .to_vec();
    let sim = Sim::new(config).unwrap();
    let memory = sim.config().memory.clone();
    let nodes = [Node(0), Node(1)];
    let setup = Setup { nodes: &nodes, ..Setup::of(&memory, Policy::BASE_ONLY) };
    let mm: AuditedMm<'_> = audited(&sim, &setup);
    online(&sim, &mm);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 32 * MB);
    let mut used = 0;
    while store(&sim, &mm, id, BASE + used * PAGE, used).last() != Some(&Outcome::OutOfMemory) {
        used += 1;
    }
    let blocks = [0x400, 0x600, 0x800, 0xa00, 0xc00];
    for nth in 0..used {
        let va = BASE + nth * PAGE;
        let frame = mm.frame_at(id, Va::new(va)).unwrap().get();
        let is_shared_half = (border - 256..border).contains(&frame);
        let in_others = blocks[..4].iter().any(|block| (*block..*block + 212).contains(&frame));
        if is_shared_half || in_others {
            mm.unmap(id, range(va, PAGE)).unwrap();
        }
    }
    let done = mm.compact(&CompactRequest::ALL, &mut []);
    assert!(done.moved > 0 || done.blocks == 0, "{done:?}");
    recount(&sim, &mm, &[id]);
}

/// A shrinker that may look at one folio at a time looks at another one the next time.
#[test]
fn finding_be_a_shrinker_of_one_folio_comes_to_all() {
    let sim = sim(1, 64);
    let mm = manager(&sim, only(9));
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 16 * MB);
    for nth in 0..4 {
        store(&sim, &mm, id, BASE + nth * SIZE_2M, 1);
        mm.unmap(id, range(BASE + nth * SIZE_2M + MB, PAGE)).unwrap();
    }
    let heads = (0..4).map(|nth| mm.frame_at(id, Va::new(BASE + nth * SIZE_2M)).unwrap());
    let pins: Vec<_> = heads.take(3).map(|head| mm.reference(head).unwrap()).collect();
    let how = Shrink { folios: 1, zeros_max: None };
    let split: u64 = (0..16).map(|_| mm.shrink_deferred(how).split).sum();
    assert_eq!(split, 1, "the one that is not pinned");
    drop(pins);
}

/// A page of 1 GiB is cut while a part of it is reported broken: the part is, and no other one; and
/// nobody is told that it is not in use.
#[test]
fn finding_bb_the_part_that_is_broken_is_marked() {
    for folding in [Folding::Off, Folding::On] {
        let mut cut = 0;
        for step in 1.. {
            let mut config = Config::free(2, Bytes::new(MB));
            config.memory =
                vec![FrameRange::new(Frame::new(1 << 18), Pages::new(3 << 18)).unwrap()];
            let machine = Beside::new(Sim::new(config).unwrap());
            let memory = machine.sim.config().memory.clone();
            let boot = BootPages { size_2m: 0, size_1g: 0, folding };
            let setup = Setup { boot, ..Setup::of(&memory, Policy::BASE_ONLY) };
            let mm: AuditedMm<'_> = audited(&machine, &setup);
            online(&machine.sim, &mm);
            mm.resize_pool(Order::SIZE_1G, 1, Budget::ALL).unwrap();
            let frames = mm.ranges().flat_map(|range| range.iter()).step_by(512);
            let head = frames.into_iter().find(|f| mm.identity(*f).kind() == Kind::Huge).unwrap();
            let bad = head.add(Pages::new(300 * 512 + 7));
            let said = Cell::new(None);
            let report = || mm.poison(bad);
            let part = || _ = mm.pools().demote(1);
            let done = machine.before_step(step, part, || said.set(Some(report())));
            let Some(()) = done else { break };
            cut += 1;
            assert_eq!(said.get(), Some(Poisoned::Held), "step {step}");
            let now = mm.identity(bad).head(bad);
            assert!(mm.identity(now).has(Flag::Poisoned), "step {step}: it is not marked");
            if mm.identity(now).order() == Order::SIZE_2M {
                let marked = (0..512).map(|nth| head.add(Pages::new(nth * 512)));
                assert_eq!(marked.filter(|f| mm.identity(*f).has(Flag::Poisoned)).count(), 1);
            }
        }
        assert!(cut > 3, "{cut}");
    }
}

/// A page breaks while it is taken out of its pool: either nobody uses it, or it did not go back.
#[test]
fn finding_cl_a_page_that_breaks_on_its_way_out_is_not_dissolved() {
    for folding in [Folding::Off, Folding::On] {
        let mut broken = 0;
        for step in 1.. {
            let machine = Beside::new(sim(2, 32));
            let mm = machine.manager(Policy::BASE_ONLY);
            online(&machine.sim, &mm);
            mm.set_folding(folding);
            mm.resize_pool(Order::SIZE_2M, 1, Budget::ALL).unwrap();
            let mut frames = mm.ranges().flat_map(|range| range.iter());
            let head = frames.find(|f| mm.identity(*f).kind() == Kind::Huge).unwrap();
            let said = Mutex::new(None);
            let report = || *said.lock().unwrap() = Some(mm.poison(head));
            let done = machine.before_step(step, report, || mm.pools().dissolve(head));
            let Some(done) = done else { break };
            broken += u64::from(done == Err(NotDissolved::Broken(head)));
            let held = said.into_inner().unwrap() == Some(Poisoned::Held);
            assert!(!held || done.is_err(), "step {step}: reported, and {done:?}");
        }
        assert!(broken > 0, "{folding:?}");
    }
}

/// A page that is made for a fault breaks on its way: it is not mapped.
#[test]
fn finding_bb_a_page_that_breaks_while_it_is_made_for_a_fault_is_not_mapped() {
    let mut lost = 0;
    for step in 1.. {
        let machine = Beside::new(sim(2, 32));
        let mm = machine.manager(Policy::BASE_ONLY);
        online(&machine.sim, &mm);
        mm.describe_all().unwrap(); // so that the page is folded on its way
        mm.set_folding(Folding::On);
        mm.pools().set_overcommit(Order::SIZE_2M, 4).unwrap();
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        let flags = Flags::READ_WRITE.with(Flags::HUGE_2M).with(Flags::NORESERVE);
        mm.map(id, &request(Place::NoReplace(Va::new(BASE)), SIZE_2M, flags)).unwrap();
        let report = || {
            let mut frames = mm.ranges().flat_map(|range| range.iter());
            let huge = frames.find(|frame| mm.identity(*frame).kind() == Kind::Huge);
            huge.map(|frame| mm.poison(frame));
        };
        let fault = || mm.fault(id, Va::new(BASE), Access::Write);
        let ran = machine.before_step(step, report, fault);
        let ran = ran.is_some();
        lost += mm.pool(Order::SIZE_2M).unwrap().broken;
        mm.audit(&[id]).unwrap();
        if !ran {
            break;
        }
    }
    assert!(lost > 0, "it was marked at no step before it was looked at");
}

/// Behind the last descriptor comes what completes its stretch: nobody maps anything there.
#[test]
fn finding_bc_nothing_is_mapped_in_the_last_stretch_of_descriptors() {
    let mut config = Config::seeded(1, Bytes::new(MB), 1);
    let end = 0x400 + 512 * 8 + 88;
    config.memory = vec![FrameRange::new(Frame::new(0x400), Pages::new(end - 0x400)).unwrap()];
    let sim = Sim::new(config).unwrap();
    let mm = manager(&sim, Policy::BASE_ONLY);
    mm.online();
    let array = X86_64::<4>::half(Half::Kernel).0;
    let behind = array.add(((end + 1) * 64).next_multiple_of(4096));
    let lent = mm.lend(Order::BASE).unwrap();
    let page = VaRange::sized(behind, Bytes::new(4096)).unwrap();
    assert_eq!(mm.map_kernel(page, lent, Attrs::WRITE), Err(KernelMapError::Own(behind)));
    mm.take_back(lent, Order::BASE).unwrap();
}

/// An address is given back once more, late, while it becomes another area's: the list of what is
/// to be given back stays a list.
#[test]
fn finding_bd_a_late_call_does_not_make_a_ring() {
    for step in 1.. {
        let machine = Beside::new(sim(2, 32));
        let mm = machine.manager(Policy::BASE_ONLY);
        online(&machine.sim, &mm);
        let ask = base(2 * FRAME_BYTES);
        let old = mm.vmalloc(&ask).unwrap();
        mm.vfree(old.start()).unwrap();
        mm.purge_vmalloc();
        let late = || _ = mm.vfree_atomic(old.start());
        let Some(new) = machine.before_step(step, late, || mm.vmalloc(&ask).unwrap()) else {
            break;
        };
        assert_eq!(new, old, "the lowest gap");
        let _ = mm.vfree_atomic(new.start());
        mm.vmap().collect();
        mm.purge_vmalloc();
        assert_eq!(mm.vmalloc_counters().areas, 0, "step {step}");
        mm.audit(&[]).unwrap();
    }
}

/// Memory that was reported broken is not read, by a copy on write neither.
#[test]
fn finding_bg_what_is_broken_is_not_copied() {
    for huge in [false, true] {
        let sim = sim(1, 64);
        let mm = manager(&sim, Policy::BASE_ONLY);
        mm.leaves("a page that is broken");
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        let flags = if huge { Flags::READ_WRITE.with(Flags::HUGE_2M) } else { Flags::READ_WRITE };
        mm.resize_pool(Order::SIZE_2M, 3, Budget::ALL).unwrap();
        let place = Place::NoReplace(Va::new(BASE));
        mm.map(id, &request(place, SIZE_2M, flags)).unwrap();
        store(&sim, &mm, id, BASE, 1);
        let child = mm.fork(id).unwrap();
        let frame = mm.frame_at(id, Va::new(BASE)).unwrap();
        assert_eq!(mm.poison(frame), Poisoned::Held);
        let copied = mm.total(Event::CopiedBytes);
        let broken = Outcome::Refused(Refusal::Broken(Va::new(BASE)));
        for id in [child, id] {
            mm.switch(Some(id)).unwrap();
            assert_eq!(mm.fault(id, Va::new(BASE), Access::Write), broken);
        }
        assert_eq!(mm.total(Event::CopiedBytes), copied);
        mm.switch(None).unwrap();
        [id, child].into_iter().for_each(|id| mm.end(id).unwrap());
    }
}

/// Contents are dropped beside a fault: no table comes in the place of a large leaf before every
/// CPU has forgotten the leaf, where entries are replaced in place too.
#[test]
fn finding_bh_no_table_comes_before_the_flush_of_a_large_leaf() {
    let mut tables = 0;
    for step in 1.. {
        let machine = Beside::new(sim(3, 32));
        let mm = machine.manager(only(9));
        online(&machine.sim, &mm);
        let id = mm.create(None).unwrap();
        for nth in 0..3 {
            machine.sim.on(cpu(nth), || mm.switch(Some(id)).unwrap());
        }
        let whole = area(&mm, id, BASE, SIZE_2M);
        store(&machine.sim, &mm, id, BASE, 1);
        machine.sim.on(cpu(2), || machine.sim.user_load(Va::new(BASE), 8).unwrap());
        mm.set_policy(Policy::BASE_ONLY);
        let part = || {
            mm.fault(id, Va::new(BASE), Access::Write);
            let cached = machine.sim.cached(cpu(2));
            let large = cached.iter().any(|c| !c.table && c.va == Va::new(BASE) && c.level == 1);
            let now = mm.frame_at(id, Va::new(BASE));
            let small = now.is_some_and(|frame| mm.identity(frame).order() == Order::BASE);
            tables += u64::from(small);
            assert!(!(small && large), "step {step}: both sizes can be cached");
        };
        let drop = || mm.advise(id, whole, Advice::DontNeed).unwrap();
        if machine.before_step(step, part, drop).is_none() {
            break;
        }
    }
    assert!(tables > 0);
}

/// Missing pages are handed to the program: a page that is missing when that has been said is not
/// filled by a fault that began before.
#[test]
fn finding_bi_what_is_missing_when_it_is_armed_stays_missing() {
    let mut missing = 0;
    for step in 1.. {
        let machine = Beside::new(sim(2, 32));
        let mm = machine.manager(Policy::BASE_ONLY);
        online(&machine.sim, &mm);
        let id = mm.create(None).unwrap();
        for nth in 0..2 {
            machine.sim.on(cpu(nth), || mm.switch(Some(id)).unwrap());
        }
        let whole = area(&mm, id, BASE, SIZE_2M);
        store(&machine.sim, &mm, id, BASE + PAGE, 1); // its table is there
        let was_missing = AtomicBool::new(false);
        let arm = || {
            mm.advise(id, whole, Advice::UserfaultArm).unwrap();
            was_missing.store(mm.frame_at(id, Va::new(BASE)).is_none(), SeqCst);
        };
        let fault = || mm.fault(id, Va::new(BASE), Access::Write);
        let Some(done) = machine.before_step(step, arm, fault) else { break };
        if was_missing.load(SeqCst) {
            missing += 1;
            assert_eq!(done, Outcome::Userfault(Va::new(BASE)), "step {step}");
        }
    }
    assert!(missing > 0);
}

/// A kernel range that is refused keeps no tables.
#[test]
fn finding_bj_a_refused_kernel_range_costs_no_memory() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    mm.leaves("tables that map_kernel needed");
    mm.online();
    let lent = mm.lend(Order::BASE).unwrap();
    let at = Va::new(0xffff_ff00_0000_0000);
    let range = |bytes: u64| VaRange::sized(at, Bytes::new(bytes)).unwrap();
    mm.map_kernel(range(4096), lent, Attrs::WRITE).unwrap();
    let free = mm.memory().free;
    let beyond = Frame::new(1 << 51);
    for (bytes, first) in [(256 << 30, lent), (64 * MB, beyond), (64 * MB, lent)] {
        assert!(mm.map_kernel(range(bytes), first, Attrs::WRITE).is_err());
        assert_eq!(mm.memory().free, free, "{bytes:#x}");
    }
}

/// Spaces have copies of the top table's words: once there is one, no empty word of them is filled.
#[test]
fn finding_bm_kernel_addresses_are_reached_before_the_first_space_is_made() {
    let (early, late) = (Va::new(0xffff_ff00_0000_0000), Va::new(0xffff_fe00_0000_0000));
    let page = |va: Va| VaRange::sized(va, Bytes::new(4096)).unwrap();
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    mm.leaves("tables that map_kernel needed");
    mm.online();
    let lent = mm.lend(Order::BASE).unwrap();
    mm.reach_kernel(early, Level::SIZE_2M).unwrap();
    mm.create(Some(Pages::new(1))).unwrap_err();
    let beside = Va::new(0xffff_fe80_0000_0000);
    mm.reach_kernel(beside, Level::SIZE_2M).unwrap(); // no space was made
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    let free = mm.memory().free;
    for va in [late, late.add((1 << 39) - 4096)] {
        assert_eq!(mm.reach_kernel(va, Level::BASE), Err(KernelMapError::Top(va)));
        assert_eq!(mm.map_kernel(page(va), lent, Attrs::WRITE), Err(KernelMapError::Top(va)));
    }
    let into = VaRange::new(Va::new(beside.get() - 4096), beside.add(4096)).unwrap();
    let mapped = mm.map_kernel(into, lent, Attrs::WRITE);
    assert_eq!(mapped, Err(KernelMapError::Top(into.start())));
    assert_eq!(mm.memory().free, free);
    mm.map_kernel(page(early), lent, Attrs::WRITE).unwrap();
    // SAFETY: the page was lent, and is mapped there alone.
    unsafe { sim.kernel_store(early, 7) }.expect("a CPU that runs the space reaches it");
}

/// A listing reads a large area in sections, and leaves none of its pages out.
#[test]
fn a_listing_counts_the_pages_of_a_large_area_part_by_part() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    mm.online();
    let bytes = Bytes::new(5 * MB + 4096);
    let got = mm.vmalloc(&foliant::vmap::Request::of(bytes)).unwrap();
    let info = mm.vmalloc_info().find(|info| info.range.start() == got.start()).unwrap();
    assert_eq!(info.nodes[0], Pages::new(1281));
    assert_eq!(info.nodes[0], info.pages);
    mm.vfree(got.start()).unwrap();
    mm.purge_vmalloc();
    content(&sim, &mm);
}

/// A page of a manager that is gone is refused by the next one on the same memory.
#[test]
fn finding_bn_a_page_of_the_manager_before_is_refused() {
    let sim = sim(1, 64);
    let huge = {
        let before = manager(&sim, Policy::BASE_ONLY);
        before.leaves("its memory to the next one");
        before.memmap().claim(Order::SIZE_2M, Form::Dense).unwrap()
    };
    let mm = manager(&sim, Policy::BASE_ONLY);
    mm.leaves("what the one before has not given up");
    let (head, memmap) = (huge.head(), mm.memmap());
    let mut batch = Batch::new(&memmap);
    let declined = batch.push(huge).unwrap_err();
    let mut is_again = false;
    while let Ok(huge) = memmap.claim(Order::SIZE_2M, Form::Dense) {
        is_again |= huge.head() == head;
        batch.push(huge).unwrap();
    }
    assert!(is_again, "the new one has a page there");
    batch.push(declined.huge).unwrap_err();
    memmap.release(&mut batch);
    let _ = sim.violations(); // the second manager owns what the first one did not give up
}

/// A part of kernel memory gets other rights while another CPU has the large leaf: the part's entry
/// keeps the old ones until the leaf is flushed.
#[test]
fn finding_bt_a_part_keeps_its_rights_until_the_large_leaf_is_flushed() {
    let mut changes = 0;
    for step in 1.. {
        let machine = Beside::new(sim(3, 32));
        let mm = machine.manager(Policy::BASE_ONLY);
        online(&machine.sim, &mm);
        let area = mm.vmalloc(&huge(SIZE_2M)).unwrap();
        let page = VaRange::sized(area.start().add(7 * PAGE), Bytes::new(PAGE)).unwrap();
        machine.sim.on(cpu(2), || assert!(put(&machine.sim, area.start(), 1)));
        let part = || {
            let is_it = |c: &foliant_sim::Cached| !c.table && c.level == 1 && c.va == area.start();
            let large = machine.sim.cached(cpu(2)).iter().any(is_it);
            let found = mm.kernel_tables().walk(page.start());
            let changed = matches!(found.entry, Entry::Leaf { attrs, .. }
                if found.level == Level::BASE && !attrs.has(Attrs::WRITE));
            changes += u64::from(changed);
            assert!(!(large && changed), "step {step}: a CPU may have both");
        };
        let protect = || mm.protect_kernel(page, Rights::Constant).unwrap();
        if machine.before_step(step, part, protect).is_none() {
            break;
        }
    }
    assert!(changes > 0);
}

/// Memory is given back later by its first address. By another one, inside of it or where its pages
/// are mapped besides, the call is refused, and the right one is heard afterwards.
#[test]
fn finding_bu_a_wrong_late_release_is_refused_and_changes_nothing() {
    let sim = sim(2, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    online(&sim, &mm);
    let memory = mm.vmalloc(&base(2 * PAGE)).unwrap();
    let frames = [0, PAGE].map(|at| mm.vmap().frame_at(memory.start().add(at)).unwrap().0);
    let alias = mm.vmap_frames(&frames, &FrameMapping::PLAIN).unwrap().start();
    let inside = [1, 8, PAGE - 1, PAGE, PAGE + 8].map(|at| memory.start().add(at));
    let besides = [0, 1, PAGE].map(|at| alias.add(at));
    for va in inside.into_iter().chain(besides) {
        assert_eq!(mm.vfree_atomic(va), Err(VmapError::NotMemory(va)));
    }
    mm.vunmap(alias).unwrap();
    mm.purge_vmalloc();
    mm.vfree_atomic(memory.start()).unwrap();
    assert_eq!(mm.vfree_atomic(memory.start()), Err(VmapError::Freed(memory.start())));
    assert_eq!(mm.vmap().collect(), 1);
    mm.purge_vmalloc();
    content(&sim, &mm);
}

/// All memory is used but for what a large folio lost, which a split is about to give back: a fault
/// beside it is not refused.
#[test]
fn finding_bx_what_a_split_gives_back_is_waited_for() {
    let mut last = 0;
    for step in (1..).step_by(37) {
        let machine = Beside::new(sim(2, 16));
        let mm = machine.manager(only(9));
        online(&machine.sim, &mm);
        let id = mm.create(None).unwrap();
        machine.sim.on(cpu(1), || mm.switch(Some(id)).unwrap());
        area(&mm, id, BASE, SIZE_2M);
        mm.fault(id, Va::new(BASE), Access::Write);
        mm.set_policy(Policy::BASE_ONLY);
        mm.unmap(id, row(0, 256)).unwrap();
        let other = area(&mm, id, BASE + SIZE_2M, 16 * MB);
        let mut at = other.start();
        while mm.memory().free.get() > 0 {
            assert_eq!(mm.fault(id, at, Access::Write), Outcome::Mapped(Order::BASE));
            at = at.add(PAGE);
        }
        let mut outcome = None;
        let fault = || outcome = Some(mm.fault(id, at, Access::Write));
        let into = SplitInto { order: order(4), zeros: ZeroPieces::Keep };
        let split = || _ = mm.split(id, Va::new(BASE + 300 * PAGE), into);
        if machine.before_step(step, fault, split).is_none() {
            break;
        }
        last = step;
        assert_eq!(outcome, Some(Outcome::Mapped(Order::BASE)), "step {step}");
    }
    assert!(last > 500, "{last} steps");
}

/// The last block that is free is about to be lent, and goes back because there is no frame for
/// what notes the loan: a fault beside it is not refused, and the block is not cleared in vain.
#[test]
fn finding_cc_a_loan_that_is_refused_is_waited_for() {
    let mut last = 0;
    for step in 1.. {
        let machine = Beside::new(sim(2, 16));
        let mm = machine.manager(only(9));
        online(&machine.sim, &mm);
        let id = mm.create(None).unwrap();
        machine.sim.on(cpu(1), || mm.switch(Some(id)).unwrap());
        let block = area(&mm, id, BASE, SIZE_2M);
        let fault = |at: Va| mm.fault(id, at, Access::Write);
        fault(block.start());
        mm.set_policy(Policy::BASE_ONLY);
        let mut at = area(&mm, id, BASE + SIZE_2M, 16 * MB).start();
        while mm.memory().free.get() > 0 {
            assert_eq!(fault(at), Outcome::Mapped(Order::BASE));
            at = at.add(PAGE);
        }
        let folio = mm.frame_at(id, block.start()).unwrap();
        mm.unmap(id, block).unwrap();
        // The tables that it had are of no use for the loan either.
        for nth in (0..4096).filter(|nth| nth / 512 != folio.get() / 512) {
            _ = mm.reserve(FrameRange::new(Frame::new(nth), Pages::new(1)).unwrap());
        }
        assert_eq!(mm.memory().free.get(), 512);
        let cleared = mm.total(Event::ZeroedBytes);
        let mut outcome = None;
        let beside = || outcome = Some(fault(at));
        let lend = || assert!(mm.lend_cleared(Order::SIZE_2M).is_err());
        if machine.before_step(step, beside, lend).is_none() {
            break;
        }
        last = step;
        assert_eq!(outcome, Some(Outcome::Mapped(Order::BASE)), "step {step}");
        assert!(mm.total(Event::ZeroedBytes) - cleared <= 4 * PAGE, "step {step}");
    }
    assert!(last > 0, "no step");
}

/// A group of entries becomes single ones in its own table: no frame is needed for that.
#[test]
fn a_group_of_kernel_entries_is_cut_without_memory() {
    let config =
        Config::seeded(1, Bytes::new(32 * MB), 1).with_format(Format::Riscv64(RiscvMode::Sv48));
    let sim = Sim::new(config).unwrap();
    let mm: Audited<'_, Riscv64<4>> = manager_on(&sim, &sim.config().memory, Policy::BASE_ONLY);
    let memory = mm.vmalloc(&huge(64 << 10)).unwrap();
    let found = mm.kernel_tables().walk(memory.start());
    assert!(matches!(found.entry, Entry::Leaf { attrs, .. } if attrs.has(Attrs::GROUPED)));
    sim.fault_plan().set(Failing::From(1));
    let page = VaRange::sized(memory.start().add(5 * PAGE), Bytes::new(PAGE)).unwrap();
    mm.protect_kernel(page, Rights::Constant).unwrap();
    sim.fault_plan().set(Failing::Nothing);
    mm.vfree(memory.start()).unwrap();
}
