//! Huge pages whose descriptors take one frame: what it costs, what it saves, what anybody can see
//! of it.

use crate::common::*;
use foliant::memmap::{
    Batch, Declined, Described, Folded, Form, Memmap, MemmapError, Released, Unfolded,
};
use foliant::table::{Entry, X86_64};
use foliant::{Event, FlushGrain, Policy};
use foliant_machine::AnyMachine;
use foliant_sim::Sim;
use foliant_units::{Frame, Level, Order, Va, VaRange};
use std::collections::BTreeSet;

type Pages<'a, 'm> = Batch<'a, 'm, AnyMachine<'m>, X86_64<4>>;

/// Shootdowns, and CPUs asked.
fn asked(mm: &Mm<'_>, work: impl FnOnce()) -> (u64, u64) {
    let count = || [Event::Shootdown, Event::Interrupt].map(|e| mm.total(e));
    let before = count();
    work();
    let after = count();
    (after[0] - before[0], after[1] - before[1])
}

fn counted(mm: &Mm<'_>, event: Event, work: impl FnOnce()) -> u64 {
    let before = mm.total(event);
    work();
    mm.total(event) - before
}

/// So many huge pages of 2 MiB.
fn claim<'a, 'm>(
    memmap: &Memmap<'a, 'm, AnyMachine<'m>, X86_64<4>>,
    count: usize,
    form: Form,
) -> Pages<'a, 'm> {
    let mut batch = Batch::new(memmap);
    for _ in 0..count {
        batch.push(memmap.claim(Order::SIZE_2M, form).unwrap()).unwrap();
    }
    batch
}

/// Every CPU has the translations of all descriptors in use.
fn online(sim: &Sim, mm: &Mm<'_>) {
    for cpu in mm.cpus() {
        sim.on(cpu, || mm.online());
    }
}
fn warm(sim: &Sim, mm: &Mm<'_>, batch: &Pages<'_, '_>) {
    for cpu in mm.cpus() {
        sim.on(cpu, || batch.each(|huge| list(mm, huge.head(), huge.order())));
    }
}

/// A listing of a huge page shows one head and 511 tails (or 262143), on whichever CPU and in
/// whichever state.
fn list(mm: &Mm<'_>, head: Frame, order: Order) {
    const HEAD: u64 = 1 << 15 | 1 << 17;
    const TAIL: u64 = 1 << 16 | 1 << 17;
    // Every frame of a small one; of a large one those at the edges of frames of descriptors.
    let step = if order == Order::SIZE_2M { 1 } else { 63 };
    for nth in (0..order.pages().get()).step_by(step) {
        let frame = Frame::new(head.get() + nth);
        let identity = mm.identity(frame);
        assert_eq!(identity.kpageflags(), if nth == 0 { HEAD } else { TAIL }, "{frame} ({nth})");
        assert_eq!(identity.head(frame), head);
    }
}

/// Frames of descriptors, from the entries themselves.
fn recount(mm: &Mm<'_>) -> BTreeSet<u64> {
    let start = Va::new(0xffff_8000_0000_0000);
    let range = VaRange::new(start, Va::new(start.get() + (1 << 39))).unwrap();
    let mut frames = BTreeSet::new();
    for leaf in mm.kernel_tables().leaves(range) {
        let Entry::Leaf { pa, .. } = leaf.entry else { panic!("{leaf:?}") };
        let count = if leaf.level == Level::SIZE_2M { 512 } else { 1 };
        frames.extend(pa.frame().get()..pa.frame().get() + count);
    }
    frames
}

fn agree(mm: &Mm<'_>) {
    let (census, recount) = (mm.memmap().census(), recount(mm).len() as u64);
    // A tail frame that nothing names any more is counted, and in no entry.
    let idle = census.frames.get() - recount;
    assert!(idle <= 2 && (idle == 0 || census.folded == 0), "{census:?}, {recount} in entries");
    assert_eq!(mm.total(Event::MemmapPages), census.frames.get());
}

/// What each block says of its descriptors adds up to the census, and blocks without memory say
/// nothing.
fn listed(mm: &Mm<'_>) -> [u64; 4] {
    use Described::{Absent, Dense, Folded, Leaf};
    let memmap = mm.memmap();
    let end = mm.ranges().map(|range| range.end().get()).max().unwrap();
    let blocks = (0..end.next_multiple_of(512)).step_by(512).map(Frame::new);
    let states: Vec<Described> = blocks.filter_map(|frame| memmap.described(frame)).collect();
    let counted = [Absent, Leaf, Dense, Folded]
        .map(|state| states.iter().filter(|other| **other == state).count() as u64);
    let census = memmap.census();
    assert_eq!(counted, [census.absent, census.leaf, census.dense, census.folded]);
    assert_eq!(memmap.described(Frame::new(end.next_multiple_of(1 << 18))), None);
    counted
}

fn finish_all(_: &Sim, mm: &Mm<'_>) {
    agree(mm);
}

#[test]
fn a_batch_is_folded_with_two_shootdowns_and_unfolded_with_one_on_any_number_of_cpus() {
    for cpus in [1u16, 2, 8, 33] {
        let sim = sim(cpus.into(), 512);
        let mm = manager(&sim, Policy::BASE_ONLY);
        online(&sim, &mm);
        let memmap = mm.memmap();
        let mut batch = claim(&memmap, 100, Form::Dense);
        warm(&sim, &mm, &batch);
        let others = u64::from(cpus) - 1;
        let two = if cpus == 1 { (0, 0) } else { (2, 2 * others) };
        let one = if cpus == 1 { (0, 0) } else { (1, others) };
        let fold = || {
            let folded = Folded { folded: 100, ..Folded::default() };
            assert_eq!(memmap.fold(&mut batch), folded);
        };
        assert_eq!(asked(&mm, fold), two, "{cpus} CPUs");
        warm(&sim, &mm, &batch);
        let unfold = || {
            let unfolded = Unfolded { unfolded: 100, ..Unfolded::default() };
            assert_eq!(memmap.unfold(&mut batch), unfolded);
        };
        assert_eq!(asked(&mm, unfold), one, "{cpus} CPUs");
        warm(&sim, &mm, &batch);
        // No leaf is left to be split.
        assert_eq!(asked(&mm, || assert_eq!(memmap.fold(&mut batch).folded, 100)), one);
        warm(&sim, &mm, &batch);
        let release = || {
            let released = Released { absent: 100, ..Released::default() };
            assert_eq!(memmap.release(&mut batch), released);
        };
        assert_eq!(asked(&mm, release), one);
        drop(batch);
        assert_eq!(memmap.census().folded, 0);
        finish_all(&sim, &mm);
    }
}

#[test]
fn each_block_says_how_its_descriptors_are_mapped() {
    let sim = sim(2, 512);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let memmap = mm.memmap();
    let [absent, ..] = listed(&mm);
    assert!(absent > 200, "{absent} of 256 blocks have no descriptors at first");
    let mut born = claim(&memmap, 10, Form::Folded);
    assert_eq!(listed(&mm)[3], 10);
    born.each(|huge| assert_eq!(memmap.described(huge.head()), Some(Described::Folded)));
    memmap.release(&mut born);
    mm.describe_all().unwrap();
    assert_eq!(listed(&mm)[0], 0);
    let mut dense = claim(&memmap, 10, Form::Dense);
    dense.each(|huge| {
        let last = Frame::new(huge.head().get() + 511);
        assert!(matches!(memmap.described(last), Some(Described::Leaf | Described::Dense)));
    });
    memmap.fold(&mut dense);
    assert_eq!(listed(&mm)[3], 10);
    memmap.unfold(&mut dense);
    dense.each(|huge| assert_eq!(memmap.described(huge.head()), Some(Described::Dense)));
    assert_eq!(listed(&mm)[3], 0);
    memmap.release(&mut dense);
    drop((born, dense));
    finish_all(&sim, &mm);
}

#[test]
fn what_is_born_folded_is_flushed_nowhere() {
    let sim = sim(8, 512);
    let mm = manager(&sim, Policy::BASE_ONLY);
    online(&sim, &mm);
    let memmap = mm.memmap();
    let mut batch = None;
    let born = || batch = Some(claim(&memmap, 200, Form::Folded));
    assert_eq!(counted(&mm, Event::MemmapGrace, || assert_eq!(asked(&mm, born), (0, 0))), 0);
    let mut batch = batch.unwrap();
    assert_eq!(mm.total(Event::BornFolded), 200);
    assert_eq!(mm.total(Event::LocalAll) + mm.total(Event::LocalOne), 0);
    let census = memmap.census();
    // One frame for each, and one for all tails.
    assert_eq!((census.folded, census.frames.get()), (200, 201));
    warm(&sim, &mm, &batch);
    agree(&mm);
    // The way back takes no memory, one shootdown and one grace period.
    let release = || assert_eq!(memmap.release(&mut batch).absent, 200);
    assert_eq!(counted(&mm, Event::MemmapGrace, || assert_eq!(asked(&mm, release), (1, 7))), 1);
    drop(batch);
    assert_eq!(memmap.census().frames.get(), 1);
    finish_all(&sim, &mm);
}

#[test]
fn seven_of_eight_frames_are_saved_and_come_back() {
    let sim = sim(2, 512);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let memmap = mm.memmap();
    let mut batch = claim(&memmap, 64, Form::Dense);
    let (dense, free) = (memmap.census().frames.get(), mm.memory().free.get());
    let tables = sim.stated_frames(foliant_machine::Owner::Table).get();
    memmap.fold(&mut batch);
    agree(&mm);
    let split = sim.stated_frames(foliant_machine::Owner::Table).get() - tables;
    // 64 times 7 frames, but for the one shared frame and the tables that the split leaves need.
    assert_eq!(memmap.census().frames.get(), dense - 64 * 7 + 1);
    assert_eq!(mm.memory().free.get(), free + 64 * 7 - 1 - split);
    memmap.unfold(&mut batch);
    agree(&mm);
    assert_eq!(memmap.census().frames.get(), dense + 1);
    memmap.release(&mut batch);
    drop(batch);
    finish_all(&sim, &mm);
}

#[test]
fn a_gib_saves_4095_of_4096_frames() {
    let sim = sim(2, 3072);
    let mm = manager(&sim, Policy::BASE_ONLY);
    online(&sim, &mm);
    let memmap = mm.memmap();
    let mut batch = Batch::new(&memmap);
    batch.push(memmap.claim(Order::SIZE_1G, Form::Dense).unwrap()).unwrap();
    warm(&sim, &mm, &batch);
    let dense = memmap.census().frames.get();
    assert_eq!(asked(&mm, || assert_eq!(memmap.fold(&mut batch).folded, 1)), (2, 2));
    warm(&sim, &mm, &batch);
    agree(&mm);
    assert_eq!(memmap.census().frames.get(), dense - 4095 + 1);
    assert_eq!(asked(&mm, || assert_eq!(memmap.unfold(&mut batch).unfolded, 1)), (1, 1));
    warm(&sim, &mm, &batch);
    agree(&mm);
    assert_eq!(memmap.census().frames.get(), dense + 1);
    assert_eq!(memmap.release(&mut batch).absent, 1);
    // Now it can be born folded.
    let born = || batch.push(memmap.claim(Order::SIZE_1G, Form::Folded).unwrap()).unwrap();
    assert_eq!(asked(&mm, born), (0, 0));
    assert_eq!(mm.total(Event::BornFolded), 1);
    warm(&sim, &mm, &batch);
    assert_eq!(memmap.census().folded, 512);
    memmap.release(&mut batch);
    drop(batch);
    finish_all(&sim, &mm);
}

/// At a grain of n pages each n of them have flushes of their own.
#[test]
fn the_grain_is_the_pages_per_shootdown() {
    for grain in [1u32, 10, 64, 0] {
        let sim = sim(4, 512);
        let mm = manager(&sim, Policy::BASE_ONLY);
        online(&sim, &mm);
        let memmap = mm.memmap();
        let mut batch = claim(&memmap, 100, Form::Dense);
        mm.set_flush_grain(FlushGrain::new(grain).unwrap_or(FlushGrain::WHOLE));
        let parts = if grain == 0 { 1 } else { 100u64.div_ceil(grain.into()) };
        warm(&sim, &mm, &batch);
        let fold = || assert_eq!(memmap.fold(&mut batch).folded, 100);
        let split = counted(&mm, Event::FlushSplit, || {
            let shot = counted(&mm, Event::FlushFold, || {
                let graces = counted(&mm, Event::MemmapGrace, fold);
                assert_eq!(graces, 1);
            });
            assert_eq!(shot, parts);
        });
        // 100 pages lie in two sections, or three.
        assert!(split >= parts.min(1) && split <= parts.min(3), "{split} at grain {grain}");
        warm(&sim, &mm, &batch);
        let (shot, _) = asked(&mm, || assert_eq!(memmap.unfold(&mut batch).unfolded, 100));
        assert_eq!(shot, parts);
        memmap.fold(&mut batch);
        let (shot, _) = asked(&mm, || assert_eq!(memmap.release(&mut batch).absent, 100));
        assert_eq!(shot, parts);
        drop(batch);
        finish_all(&sim, &mm);
    }
}

#[test]
fn what_is_done_already_is_skipped_and_costs_nothing() {
    let sim = sim(2, 256);
    let mm = manager(&sim, Policy::BASE_ONLY);
    online(&sim, &mm);
    let memmap = mm.memmap();
    let mut batch = claim(&memmap, 5, Form::Folded);
    let again = || assert_eq!(memmap.fold(&mut batch), Folded { skipped: 5, ..Folded::default() });
    assert_eq!(counted(&mm, Event::MemmapGrace, || assert_eq!(asked(&mm, again), (0, 0))), 0);
    assert_eq!(memmap.unfold(&mut batch).unfolded, 5);
    let again = || {
        let skipped = Unfolded { skipped: 5, ..Unfolded::default() };
        assert_eq!(memmap.unfold(&mut batch), skipped);
    };
    assert_eq!(asked(&mm, again), (0, 0));
    let mut none = Batch::new(&memmap);
    let nothing = || {
        assert_eq!(memmap.fold(&mut none), Folded::default());
        assert_eq!(memmap.unfold(&mut none), Unfolded::default());
        assert_eq!(memmap.release(&mut none), Released::default());
    };
    assert_eq!(asked(&mm, nothing), (0, 0));
    memmap.release(&mut batch);
    drop((batch, none));
    finish_all(&sim, &mm);
}

#[test]
fn sizes_and_states_that_do_not_fit_are_refused() {
    let sim = sim(1, 256);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let memmap = mm.memmap();
    for n in [0, 8, 10, 17] {
        let order = Order::new(n).unwrap();
        assert_eq!(memmap.claim(order, Form::Folded), Err(MemmapError::Order(order)));
    }
    assert_eq!(
        memmap.claim(Order::SIZE_1G, Form::Folded),
        Err(MemmapError::NoMemory(Order::SIZE_1G))
    );
    let huge = memmap.claim(Order::SIZE_2M, Form::Folded).unwrap();
    let head = huge.head();
    let Err(Declined { huge, why }) = memmap.free(huge) else { panic!("its tails are folded") };
    assert_eq!(why, MemmapError::StillFolded(head));
    let mut batch = Batch::new(&memmap);
    batch.push(huge).unwrap();
    memmap.unfold(&mut batch);
    memmap.free(batch.pop().unwrap()).unwrap();
    assert_eq!(mm.identity(head).kpageflags(), 0);
    drop(batch);
    finish_all(&sim, &mm);
}

/// Dense huge pages under a leaf are given up without a flush, and leave plain descriptors.
#[test]
fn a_leaf_stays_when_a_huge_page_under_it_goes() {
    let sim = sim(2, 256);
    let mm = manager(&sim, Policy::BASE_ONLY);
    online(&sim, &mm);
    let memmap = mm.memmap();
    let mut batch = claim(&memmap, 3, Form::Dense);
    let mut heads = Vec::new();
    batch.each(|huge| heads.push(huge.head()));
    let release =
        || assert_eq!(memmap.release(&mut batch), Released { dense: 3, ..Released::default() });
    assert_eq!(asked(&mm, release), (0, 0));
    drop(batch);
    for head in heads {
        for frame in [head.get(), head.get() + 511] {
            assert_eq!(mm.identity(Frame::new(frame)), foliant::frame::Identity::PLAIN);
        }
    }
    finish_all(&sim, &mm);
}

/// A batch holds thousands, and a few where there is no memory to hold more.
#[test]
fn a_batch_is_bounded() {
    let sim = sim(1, 256);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let memmap = mm.memmap();
    let mut batch = claim(&memmap, 100, Form::Folded);
    let mut other = Batch::new(&memmap);
    sim.fault_plan().set(foliant_sim::Failing::From(1));
    let mut moved = 0;
    let refused = loop {
        let huge = batch.pop().unwrap();
        match other.push(huge) {
            Ok(()) => moved += 1,
            Err(declined) => break declined.huge,
        }
    };
    assert!(moved >= 32);
    sim.fault_plan().set(foliant_sim::Failing::Nothing);
    other.push(refused).unwrap();
    assert_eq!(
        (memmap.release(&mut batch).absent, memmap.release(&mut other).absent),
        (99 - moved, moved + 1)
    );
    drop((batch, other));
    finish_all(&sim, &mm);
}

/// A block is broken where nothing else is left: its descriptors come out of itself, and the rest
/// of it can be used.
#[test]
fn breaking_a_block_does_not_fail_for_lack_of_memory() {
    let sim = sim(1, 256);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let memmap = mm.memmap();
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    let mut batch = Batch::new(&memmap);
    while let Ok(huge) = memmap.claim(Order::SIZE_2M, Form::Folded) {
        batch.push(huge).unwrap();
    }
    // What is left beside the huge pages goes to a program.
    let bytes = 64 * MB;
    area(&mm, id, BASE, bytes);
    let mut page = 0;
    let full = |page: &mut u64| {
        while *page < bytes / 4096 {
            let outcomes = store(&sim, &mm, id, BASE + *page * 4096, 1);
            if outcomes.last() == Some(&foliant::Outcome::OutOfMemory) {
                return;
            }
            *page += 1;
        }
        panic!("memory never ends");
    };
    full(&mut page);
    let (before, free) = (page, mm.memory().free.get());
    let mut last = Batch::new(&memmap);
    last.push(batch.pop().unwrap()).unwrap();
    assert_eq!(memmap.release(&mut last).absent, 1);
    full(&mut page);
    // 512 frames came back and one of descriptors; 8 are its own, and one is a page table.
    let got = page - before;
    assert!((502..=505 + free).contains(&got), "{got} pages of a block of 512, {free} were left");
    mm.switch(None).unwrap();
    mm.end(id).unwrap();
    // When the program has ended the block becomes whole again, once somebody wants a huge page of
    // it.
    let (whole, others) = (mm.free_blocks().blocks(Order::SIZE_2M), batch.len());
    while let Ok(huge) = memmap.claim(Order::SIZE_2M, Form::Folded) {
        batch.push(huge).unwrap();
    }
    let claimed = (batch.len() - others) as u64;
    assert!(claimed > whole, "{claimed} of {whole} that were whole before");
    assert!(memmap.reclaim() == 0, "nothing is left to be reclaimed");
    memmap.release(&mut batch);
    drop((batch, last));
    finish_all(&sim, &mm);
}
