//! The traps of system H, each by its name in `docs/rules.md`. TR-H4 is beside the code, TR-H6
//! belongs to pools.

use crate::common::meddler::Meddler;
use crate::common::recorder::Step;
use crate::common::*;
use foliant::frame::{Identity, Kind, word_at};
use foliant::memmap::{Batch, Declined, Folded, Form, MemmapError, Released, Unfolded};
use foliant::table::{Aarch64, Half, Paging, Riscv64, X86_64};
use foliant::{Event, Manager, Policy};
use foliant_machine::{AnyMachine, KernelVa, Owner, Replace, Witness};
use foliant_sim::{Config, Failing, Format, RiscvMode, Sim, X86Levels};
use foliant_units::{Bytes, Frame, FrameRange, Order, Pages, Va};
use std::collections::BTreeSet;

/// A word of a descriptor, as the calling CPU sees it.
#[allow(unsafe_code)]
fn word<P: Paging>(machine: &impl KernelVa, frame: Frame, nth: u64) -> u64 {
    // SAFETY: the simulator checks every access.
    unsafe { machine.kernel_load(word_at(P::half(Half::Kernel).0, frame, nth)) }.unwrap()
}
#[allow(unsafe_code)]
fn set_word<P: Paging>(machine: &impl KernelVa, frame: Frame, nth: u64, value: u64) {
    let va = word_at(P::half(Half::Kernel).0, frame, nth);
    // SAFETY: as above.
    unsafe { machine.kernel_store(va, value) }.unwrap();
}

/// What a holder keeps in the first frame of descriptors: words of the head and of three frames
/// behind it.
fn sign<P: Paging>(machine: &impl KernelVa, head: Frame) {
    for frame in 0..4 {
        for nth in 2..8 {
            let at = head.add(Pages::new(frame));
            set_word::<P>(machine, at, nth, head.get() << 8 | frame << 4 | nth);
        }
    }
}
/// Every word of every descriptor of a page is what it must be, on the calling CPU.
fn check<P: Paging>(machine: &impl KernelVa, head: Frame, order: Order) {
    let step = if order == Order::SIZE_2M { 1 } else { 61 };
    for n in (0..order.pages().get()).step_by(step) {
        let frame = head.add(Pages::new(n));
        let identity = Identity::from_word(word::<P>(machine, frame, 0));
        let kind = if n == 0 { Kind::Huge } else { Kind::HugeTail };
        assert_eq!((identity.kind(), identity.order()), (kind, order), "{frame}");
        assert_eq!(word::<P>(machine, frame, 1), 0);
        for nth in 2..8 {
            let signed = if n < 4 { head.get() << 8 | n << 4 | nth } else { 0 };
            assert_eq!(word::<P>(machine, frame, nth), signed, "word {nth} of {frame}");
        }
    }
}
fn check_everywhere<P: Paging>(sim: &Sim, heads: &[Frame]) {
    for n in 0..sim.config().cpus as u16 {
        sim.on(cpu(n), || {
            heads.iter().for_each(|head| check::<P>(sim, *head, Order::SIZE_2M));
        });
    }
}

/// Signed huge pages in a batch, and their heads.
fn signed<'a, 'm, P: Paging>(
    mm: &'a AnyMm<'m, P>,
    count: usize,
    form: Form,
) -> (Batch<'a, 'm, AnyMachine<'m>, P>, Vec<Frame>) {
    let memmap = mm.memmap();
    let mut batch = Batch::new(&memmap);
    let mut heads = Vec::new();
    for _ in 0..count {
        let huge = memmap.claim(Order::SIZE_2M, form).unwrap();
        sign::<P>(mm.machine(), huge.head());
        heads.push(huge.head());
        batch.push(huge).unwrap();
    }
    (batch, heads)
}

/// The frames of every owner, and the free ones.
fn books(sim: &Sim, mm: &AnyMm<'_, impl Paging>) -> [u64; 4] {
    let stated = |owner| sim.stated_frames(owner).get();
    let free = mm.memory().free.get();
    [free, stated(Owner::Table), stated(Owner::Records), mm.total(Event::MemmapPages)]
}

/// Walkers look at every frame, take references, and report broken memory where there is none,
/// while pages are made, folded, unfolded, released, and broken up by a program.
#[test]
fn tr_h1_walkers_meet_every_state() {
    for seed in 0..24 {
        let mut config = Config::seeded(4, Bytes::new(24 * MB), seed);
        config.chance.switch = 4;
        let sim = Sim::new(config).unwrap();
        let mm = manager(&sim, Policy::BASE_ONLY);
        let memory = sim.config().memory[0];
        let id = mm.create(None).unwrap();
        for cpu in mm.cpus() {
            sim.on(cpu, || mm.online());
        }
        sim.parallel(4, |me| match me.0 {
            0 => {
                let memmap = mm.memmap();
                for round in 0..6 {
                    let mut batch = Batch::new(&memmap);
                    let form = if round % 2 == 0 { Form::Folded } else { Form::Dense };
                    while let Ok(huge) = memmap.claim(Order::SIZE_2M, form) {
                        batch.push(huge).unwrap();
                        if batch.len() == 4 {
                            break;
                        }
                    }
                    memmap.fold(&mut batch);
                    memmap.unfold(&mut batch);
                    memmap.fold(&mut batch);
                    memmap.release(&mut batch);
                    assert_eq!(batch.len(), 0);
                }
            }
            1 => {
                mm.switch(Some(id)).unwrap();
                for _ in 0..3 {
                    let range = area(&mm, id, BASE, 2 * MB);
                    for page in 0..512 {
                        store(&sim, &mm, id, BASE + page * 4096, page);
                    }
                    mm.unmap(id, range).unwrap();
                }
                mm.switch(None).unwrap();
            }
            n => {
                let pages = memory.pages().get();
                for step in 0..6000 {
                    let frame = memory.start().get() + (step * 37 + u64::from(n)) % pages;
                    let identity = mm.identity(Frame::new(frame));
                    if let Some(reference) = mm.reference(Frame::new(frame)) {
                        assert!(reference.head().get() <= frame);
                        let held = mm.identity(Frame::new(frame)).kind();
                        assert!(matches!(held, Kind::Anon | Kind::Tail), "{identity:?}, {held:?}");
                    }
                }
            }
        });
    }
}

#[test]
fn tr_h2_one_grace_period_a_batch() {
    let sim = sim(2, 1024);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let memmap = mm.memmap();
    let graces = |work: &mut dyn FnMut()| {
        let before = mm.total(Event::MemmapGrace);
        work();
        mm.total(Event::MemmapGrace) - before
    };
    for count in [1, 2, 300] {
        let (mut batch, _) = signed(&mm, count, Form::Dense);
        assert_eq!(graces(&mut || assert_eq!(memmap.fold(&mut batch).folded, count)), 1);
        assert_eq!(graces(&mut || assert_eq!(memmap.unfold(&mut batch).unfolded, count)), 0);
        assert_eq!(graces(&mut || assert_eq!(memmap.fold(&mut batch).folded, count)), 1);
        assert_eq!(graces(&mut || assert_eq!(memmap.fold(&mut batch).skipped, count)), 0);
        assert_eq!(graces(&mut || assert_eq!(memmap.release(&mut batch).absent, count)), 1);
        // With folding off nobody waits.
        let mut dense = None;
        assert_eq!(graces(&mut || dense = Some(signed(&mm, count, Form::Dense))), 0);
        let (mut dense, _) = dense.unwrap();
        let mut free = || {
            while let Some(huge) = dense.pop() {
                memmap.free(huge).unwrap();
            }
        };
        assert_eq!(graces(&mut free), 0);
    }
}

/// Every allocation of `work` fails once, and once with all behind it: then every descriptor of
/// every page is what it was.
fn every_failure(
    form: Form,
    prepare: impl for<'a, 'm> Fn(&'a Mm<'m>, &mut Batch<'a, 'm, AnyMachine<'m>, X86_64<4>>),
    work: impl for<'a, 'm> Fn(&'a Mm<'m>, &mut Batch<'a, 'm, AnyMachine<'m>, X86_64<4>>) -> usize,
) {
    let mut done_with = BTreeSet::new();
    for k in 1.. {
        let mut refused = 0;
        for failing in [Failing::Kth(k), Failing::From(k)] {
            let sim = sim(3, 64);
            let mm = manager(&sim, Policy::BASE_ONLY);
            for cpu in mm.cpus() {
                sim.on(cpu, || mm.online());
            }
            let (mut batch, heads) = signed(&mm, 3, form);
            prepare(&mm, &mut batch);
            check_everywhere::<X86_64<4>>(&sim, &heads);
            sim.fault_plan().set(failing);
            done_with.insert(work(&mm, &mut batch));
            refused += sim.fault_plan().refused();
            sim.fault_plan().set(Failing::Nothing);
            check_everywhere::<X86_64<4>>(&sim, &heads);
            let census = mm.memmap().census();
            assert_eq!(census.frames.get(), mm.total(Event::MemmapPages), "{failing:?}");
            // The next attempt goes through, and nothing is lost on the way back.
            work(&mm, &mut batch);
            check_everywhere::<X86_64<4>>(&sim, &heads);
            assert_eq!(mm.memmap().release(&mut batch).absent, 3);
            drop(batch);
            let [free, tables, records, _] = books(&sim, &mm);
            let managed = mm.memory().managed.get();
            let manager = 1; // the zero page
            assert_eq!(free + tables + records + manager, managed, "{failing:?}");
        }
        if refused == 0 {
            assert!(k > 1, "nothing was allocated");
            break;
        }
    }
    assert!(done_with.len() > 1, "failures made no difference: {done_with:?}");
}

#[test]
fn tr_h3_a_failed_step_leaves_every_descriptor_as_it_was() {
    every_failure(
        Form::Dense,
        |_, _| {},
        |mm, batch| {
            let folded = mm.memmap().fold(batch);
            assert_eq!(folded.folded + folded.skipped + folded.failed, 3);
            folded.folded
        },
    );
    // Once more where no leaf has to be split.
    every_failure(
        Form::Dense,
        |mm, batch| {
            assert_eq!(mm.memmap().fold(batch).folded, 3);
            assert_eq!(mm.memmap().unfold(batch).unfolded, 3);
        },
        |mm, batch| mm.memmap().fold(batch).folded,
    );
}

#[test]
fn tr_h5_frames_for_tails_are_had_all_or_none() {
    every_failure(
        Form::Folded,
        |_, _| {},
        |mm, batch| {
            let Unfolded { unfolded, skipped, failed, .. } = mm.memmap().unfold(batch);
            assert_eq!(unfolded + skipped + failed, 3);
            unfolded
        },
    );
}

/// The same for making a page, either way.
#[test]
fn tr_h5_a_page_is_made_or_nothing_happened() {
    for form in [Form::Folded, Form::Dense] {
        for k in 1.. {
            let sim = sim(2, 64);
            let mm = manager(&sim, Policy::BASE_ONLY);
            let before = books(&sim, &mm);
            sim.fault_plan().set(Failing::From(k));
            let made = mm.memmap().claim(Order::SIZE_2M, form);
            let refused = sim.fault_plan().refused();
            sim.fault_plan().set(Failing::Nothing);
            let Err(why) = made else {
                assert_eq!(refused, 0);
                mm.memmap().release(&mut {
                    let mut batch = Batch::new(&mm.memmap());
                    batch.push(made.unwrap()).unwrap();
                    batch
                });
                break;
            };
            assert_eq!(why, MemmapError::NoMemory(Order::SIZE_2M));
            // Tables that were made, and a tail frame, stay for the next one.
            let after = books(&sim, &mm);
            assert_eq!(before[..3].iter().sum::<u64>(), after[..3].iter().sum::<u64>());
            assert!(after[3] - before[3] <= 1, "{before:?}, {after:?}");
        }
    }
}

/// 4095 frames, or none; 8 tables and a head, or nothing folded.
#[test]
fn tr_h5_a_gib_is_all_or_nothing() {
    let sim = sim(2, 2100);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let memmap = mm.memmap();
    let mut batch = Batch::new(&memmap);
    batch.push(memmap.claim(Order::SIZE_1G, Form::Folded).unwrap()).unwrap();
    let mut head = Frame::default();
    batch.each(|huge| head = huge.head());
    sign::<X86_64<4>>(&sim, head);
    let before = books(&sim, &mm);
    for k in [1, 2, 2000, 4095] {
        sim.fault_plan().set(Failing::Kth(k));
        assert_eq!(memmap.unfold(&mut batch), Unfolded { failed: 1, ..Default::default() });
        sim.fault_plan().set(Failing::Nothing);
        check::<X86_64<4>>(&sim, head, Order::SIZE_1G);
        assert_eq!(books(&sim, &mm), before);
    }
    assert_eq!(memmap.unfold(&mut batch).unfolded, 1);
    check::<X86_64<4>>(&sim, head, Order::SIZE_1G);
    memmap.release(&mut batch);
    drop(batch);
}

/// Under leaves eight tables and a frame for the head are had, or nothing is folded.
#[test]
fn tr_h3_a_gib_under_leaves_is_folded_or_not() {
    for k in 1.. {
        let sim = sim(2, 2100);
        let mm = manager(&sim, Policy::BASE_ONLY);
        let memmap = mm.memmap();
        let mut batch = Batch::new(&memmap);
        batch.push(memmap.claim(Order::SIZE_1G, Form::Dense).unwrap()).unwrap();
        let mut head = Frame::default();
        batch.each(|huge| head = huge.head());
        sign::<X86_64<4>>(&sim, head);
        sim.fault_plan().set(Failing::From(k));
        let folded = memmap.fold(&mut batch);
        let refused = sim.fault_plan().refused();
        sim.fault_plan().set(Failing::Nothing);
        check::<X86_64<4>>(&sim, head, Order::SIZE_1G);
        assert_eq!((folded.folded, folded.failed), if refused == 0 { (1, 0) } else { (0, 1) });
        assert_eq!(memmap.fold(&mut batch).folded + folded.folded, 1);
        check::<X86_64<4>>(&sim, head, Order::SIZE_1G);
        assert_eq!(memmap.release(&mut batch).absent, 1);
        drop(batch);
        finish(&sim, &mm, &[]);
        if refused == 0 {
            assert!(k > 9, "eight tables, a tail frame and a head");
            break;
        }
    }
}

/// What was changed since the last flush, and what the flush names, as addresses of entries.
fn flushed_exactly(log: &[Step], mm: &Mm<'_>, heads: &[Frame]) -> usize {
    let array = X86_64::<4>::half(Half::Kernel).0;
    let stretch = |head: &Frame| {
        let start = word_at(array, *head, 0);
        (0..8).map(move |page| start.add(page * 4096))
    };
    let vas: Vec<Va> = heads.iter().flat_map(stretch).collect();
    let at = |va: &Va| mm.kernel_tables().walk(*va).at;
    let places: Vec<_> = vas.iter().map(|va| (at(va), *va)).collect();
    let (mut changed, mut flushes) = (BTreeSet::new(), 0);
    for step in log {
        match step {
            Step::Entry { at, old, new } if old & 1 == 1 && old != new => {
                changed.extend(places.iter().filter(|(place, _)| place == at).map(|(_, va)| *va));
            }
            Step::Ask(what) => {
                let pages = |range: foliant_units::VaRange| {
                    (range.start().get()..range.end().get()).step_by(4096).map(Va::new)
                };
                let named: BTreeSet<Va> =
                    what.items().iter().flat_map(|item| pages(item.range)).collect();
                assert_eq!(named, changed);
                changed.clear();
                flushes += 1;
            }
            _ => {}
        }
    }
    assert!(changed.is_empty(), "never flushed: {changed:?}");
    flushes
}

#[test]
fn tr_h7_a_flush_names_what_changed_and_nothing_else() {
    let mut recoveries = 0;
    for k in 1.. {
        let (recorder, mm, _over) = recorded(2, 64, Policy::BASE_ONLY);
        let sim = &recorder.sim;
        for cpu in mm.cpus() {
            sim.on(cpu, || mm.online());
        }
        let (mut batch, heads) = signed(mm, 3, Form::Folded);
        let memmap = mm.memmap();
        memmap.unfold(&mut batch);
        recorder.take();
        sim.fault_plan().set(Failing::Kth(k));
        let before = mm.total(Event::FlushRecovery);
        memmap.fold(&mut batch);
        let refused = sim.fault_plan().refused();
        sim.fault_plan().set(Failing::Nothing);
        let recovered = mm.total(Event::FlushRecovery) - before;
        recoveries += recovered;
        assert_eq!(flushed_exactly(&recorder.take(), mm, &heads) as u64, 1 + recovered);
        memmap.unfold(&mut batch);
        flushed_exactly(&recorder.take(), mm, &heads);
        memmap.release(&mut batch);
        flushed_exactly(&recorder.take(), mm, &heads);
        if refused == 0 {
            break;
        }
    }
    assert!(recoveries > 0, "no failure led to a recovery");
}

/// From the first changed entry of a batch until all CPUs have flushed, no descriptor of it is
/// written, and no frame is given up.
#[test]
fn tr_h8_nobody_writes_in_the_window() {
    for form in [Form::Dense, Form::Folded] {
        let (recorder, mm, _over) = recorded(3, 64, Policy::BASE_ONLY);
        let sim = &recorder.sim;
        for cpu in mm.cpus() {
            sim.on(cpu, || mm.online());
        }
        let memmap = mm.memmap();
        let (mut batch, heads) = signed(mm, 3, form);
        memmap.unfold(&mut batch);
        let array = X86_64::<4>::half(Half::Kernel).0;
        recorder.take();
        assert_eq!(memmap.fold(&mut batch).folded, 3);
        let log = recorder.take();
        let closed = log.iter().rposition(|step| matches!(step, Step::Waited)).unwrap();
        let mut opened = log.len();
        for head in &heads {
            let start = word_at(array, *head, 0);
            let at = |page: u64| mm.kernel_tables().walk(start.add(page * 4096)).at;
            let places: Vec<_> = (0..8).map(at).collect();
            let ours = |step: &Step| match step {
                Step::Word { va } => (start..start.add(8 * 4096)).contains(va),
                _ => false,
            };
            // The first of its entries that changed; filling a table for a split leaf changes none.
            let changed = |step: &Step| match step {
                Step::Entry { at, old, .. } => old & 1 == 1 && places.contains(at),
                _ => false,
            };
            let open = log.iter().position(changed).expect("it was folded");
            assert!(open < closed, "reachable before the flush");
            opened = opened.min(open);
            assert!(!log[open..closed].iter().any(ours), "{head} is written while it is folded");
            // The flags before, and the one that goes after.
            assert!(log[..open].iter().any(ours));
            assert_eq!(log[closed..].iter().filter(|step| ours(step)).count(), 1);
        }
        let freed = |part: &[Step]| part.iter().any(|step| matches!(step, Step::Freed));
        assert!(!freed(&log[opened..closed]) && freed(&log[closed..]));
        memmap.release(&mut batch);
        drop(batch);
    }
}

/// Broken memory is never used again, folded or not, and says so in every state.
#[test]
fn tr_h9_a_poisoned_page_is_leaked() {
    const POISON: u64 = 1 << 19;
    for form in [Form::Folded, Form::Dense] {
        let sim = sim(2, 64);
        let mm = manager(&sim, Policy::BASE_ONLY);
        mm.leaves("a page that is broken");
        let memmap = mm.memmap();
        let (mut batch, heads) = signed(&mm, 2, form);
        let (broken, whole) = (heads[0], heads[1]);
        assert_eq!(mm.poison(broken.add(Pages::new(300))), foliant::manager::Poisoned::Held);
        assert_eq!(mm.identity(broken).kpageflags() & POISON, POISON);
        assert_eq!(mm.identity(whole).kpageflags() & POISON, 0);
        let why = Some(MemmapError::Poisoned(broken));
        match form {
            Form::Folded => {
                let got = memmap.unfold(&mut batch);
                assert_eq!(got, Unfolded { unfolded: 1, refused: 1, why, ..Default::default() });
            }
            Form::Dense => {
                let got = memmap.fold(&mut batch);
                assert_eq!(got, Folded { folded: 1, refused: 1, why, ..Default::default() });
            }
        }
        let got = memmap.release(&mut batch);
        assert_eq!(got, Released { absent: 1, refused: 1, why, ..Default::default() });
        let Err(Declined { huge, why }) = memmap.free(batch.pop().unwrap()) else {
            panic!("the broken page is free")
        };
        assert_eq!((huge.head(), why), (broken, MemmapError::Poisoned(broken)));
        // Nobody gets a frame of it again.
        let mut seen = 0;
        let mut others = Batch::new(&memmap);
        while let Ok(huge) = memmap.claim(Order::SIZE_2M, Form::Folded) {
            assert_ne!(huge.head(), broken);
            others.push(huge).unwrap();
            seen += 1;
        }
        assert!(seen > 10);
        memmap.release(&mut others);
    }
}

/// A block that holds descriptors cannot become a huge page, so none is ever folded into itself.
#[test]
fn tr_h9_a_page_never_holds_its_own_descriptors() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let memmap = mm.memmap();
    let (mut batch, _) = signed(&mm, 5, Form::Dense);
    memmap.fold(&mut batch);
    let tables = mm.kernel_tables();
    batch.each(|huge| {
        for page in 0..8 {
            let va = word_at(X86_64::<4>::half(Half::Kernel).0, huge.head(), 0).add(page * 4096);
            let foliant::table::Entry::Leaf { pa, .. } = tables.walk(va).entry else {
                panic!("not mapped")
            };
            assert!(!huge.frames().contains(pa.frame()));
        }
    });
    memmap.release(&mut batch);
    drop(batch);
}

/// One life of a batch: the same under every rule, but for stretches under a leaf.
fn life<P: Paging>(config: Config) {
    let sim = Sim::new(config).unwrap();
    let memory: Vec<FrameRange> = sim.config().memory.clone();
    let mm: Audited<'_, P> = manager_on(&sim, &memory, Policy::BASE_ONLY);
    let memmap = mm.memmap();
    for cpu in mm.cpus() {
        sim.on(cpu, || mm.online());
    }
    let breaks = sim.config().rules.replace == Replace::BreakBeforeMake;
    let see = |heads: &[Frame]| check_everywhere::<P>(&sim, heads);
    let (mut batch, heads) = signed(&mm, 10, Form::Folded);
    assert_eq!(mm.total(Event::Shootdown), 0);
    see(&heads);
    for _ in 0..2 {
        assert_eq!(memmap.unfold(&mut batch).unfolded, 10);
        see(&heads);
        assert_eq!(memmap.fold(&mut batch).folded, 10);
        see(&heads);
    }
    let census = memmap.census();
    assert_eq!((census.folded, census.frames.get()), (10, mm.total(Event::MemmapPages)));
    // One each, whatever the rule.
    assert_eq!(mm.total(Event::Shootdown), 4);
    assert_eq!(memmap.release(&mut batch).absent, 10);
    // A program's page brings a leaf in where nothing was before.
    mm.describe_all().unwrap();
    let (mut batch, heads) = signed(&mm, 70, Form::Folded);
    see(&heads);
    let under = memmap.census().leaf;
    assert!(under > 0);
    let folded = memmap.fold(&mut batch);
    assert_eq!(folded.folded + folded.forbidden, 70);
    assert_eq!(folded.forbidden > 0, breaks, "{folded:?}");
    see(&heads);
    let released = memmap.release(&mut batch);
    assert_eq!((released.absent, released.dense), (folded.folded, folded.forbidden));
    drop(batch);
}

#[test]
fn tr_h10_every_format_and_both_rules() {
    let x86 = || Config::seeded(3, Bytes::new(256 * MB), 7);
    life::<X86_64<4>>(x86());
    let mut broken = x86();
    broken.rules.replace = Replace::BreakBeforeMake;
    life::<X86_64<4>>(broken);
    life::<X86_64<5>>(x86().with_format(Format::X86_64(X86Levels::Five)));
    life::<Aarch64>(x86().with_format(Format::Aarch64));
    life::<Riscv64<3>>(x86().with_format(Format::Riscv64(RiscvMode::Sv39)));
    life::<Riscv64<4>>(x86().with_format(Format::Riscv64(RiscvMode::Sv48)));
}

/// While entries are absent in between, walkers wait, and see one head and 511 tails all the same.
#[test]
fn tr_h10_walkers_see_no_gap_where_entries_are_broken() {
    for seed in 0..8 {
        let mut config = Config::seeded(3, Bytes::new(64 * MB), seed).with_format(Format::Aarch64);
        config.chance.switch = 3;
        let sim = Sim::new(config).unwrap();
        let memory: Vec<FrameRange> = sim.config().memory.clone();
        let mm: Audited<'_, Aarch64> = manager_on(&sim, &memory, Policy::BASE_ONLY);
        for cpu in mm.cpus() {
            sim.on(cpu, || mm.online());
        }
        let (batch, heads) = signed(&mm, 3, Form::Folded);
        let batch = std::sync::Mutex::new(batch);
        sim.parallel(3, |me| match me.0 {
            0 => {
                let batch = &mut *batch.try_lock().unwrap();
                for _ in 0..4 {
                    assert_eq!(mm.memmap().unfold(batch).unfolded, 3);
                    assert_eq!(mm.memmap().fold(batch).folded, 3);
                }
            }
            n => {
                for step in 0..2000u64 {
                    let (head, nth) = (heads[step as usize % 3], (step * 29 + u64::from(n)) % 512);
                    let kind = mm.identity(head.add(Pages::new(nth))).kind();
                    let expect = if nth == 0 { Kind::Huge } else { Kind::HugeTail };
                    assert_eq!(kind, expect, "frame {nth} of {head}");
                }
            }
        });
        assert_eq!(mm.memmap().release(&mut batch.lock().unwrap()).absent, 3);
        drop(batch);
    }
}

/// A CPU folds a page while another one has split the leaf over its descriptors and not yet told
/// anybody: frames are freed only when the leaf's translation is gone everywhere. The machine takes
/// the level of an invalidation at its word.
#[test]
fn a_leaf_that_another_cpu_splits_is_flushed_before_frames_are_freed() {
    let mut config = Config::seeded(3, Bytes::new(48 * MB), 1).with_format(Format::Aarch64);
    config.rules.replace = Replace::InPlace;
    let meddler: &'static Meddler = Box::leak(Box::new(Meddler::new(Sim::new(config).unwrap())));
    let sim = &meddler.sim;
    let memory: Vec<FrameRange> = sim.config().memory.clone();
    let mm =
        Manager::new(untyped(meddler), &foliant::manager::Setup::of(&memory, Policy::BASE_ONLY))
            .unwrap();
    let mm: &'static AnyMm<'_, Aarch64> = Box::leak(Box::new(mm));
    let _over = Over::of(sim, mm);
    for cpu in mm.cpus() {
        sim.on(cpu, || mm.online());
    }
    let (mut one, heads) = signed(mm, 2, Form::Dense);
    let (mut two, others) = signed(mm, 2, Form::Dense);
    let see = || {
        for cpu in mm.cpus() {
            let all = heads.iter().chain(&others);
            sim.on(cpu, || all.for_each(|head| check::<Aarch64>(sim, *head, Order::SIZE_2M)));
        }
    };
    see();
    let (done, result) = std::sync::mpsc::channel();
    meddler.before_asking(move || {
        let folded = sim.on(cpu(1), || mm.memmap().fold(&mut two).folded);
        done.send((folded, two)).unwrap();
    });
    assert_eq!(mm.memmap().fold(&mut one).folded, 2);
    let (folded, mut two) = result.recv().unwrap();
    assert_eq!(folded, 2);
    see();
    for batch in [&mut one, &mut two] {
        assert_eq!(mm.memmap().release(batch).absent, 2);
    }
    drop((one, two));
}

/// The machine's statements about frames are complete: nothing is owned twice, nothing is lost.
#[test]
fn ownership_is_stated_for_every_frame_of_descriptors() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let before = sim.stated_frames(Owner::Records).get();
    let (mut batch, _) = signed(&mm, 4, Form::Folded);
    let more = sim.stated_frames(Owner::Records).get() - before;
    assert_eq!(more, mm.total(Event::MemmapPages));
    sim.refusal();
    mm.memmap().unfold(&mut batch);
    let more = sim.stated_frames(Owner::Records).get() - before;
    assert_eq!(more, mm.total(Event::MemmapPages));
    mm.memmap().release(&mut batch);
    drop(batch);
}
