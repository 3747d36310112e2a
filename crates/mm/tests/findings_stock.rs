//! What outsiders proved of the stock, the pools, kernel memory and the face (docs/findings.md).
#![allow(unsafe_code)]

use crate::common::beside::Beside;
use crate::common::*;
use foliant::fault::Orders;
use foliant::folio::{AllocError, Class, CpuCount, Folios, Known, Word};
use foliant::frame::Kind;
use foliant::manager::{KernelMapError, NotLent, Poisoned, Setup, SetupError};
use foliant::memmap::{Batch, Declined, Described, Form, MemmapError};
use foliant::pool::{Budget, PoolCounters};
use foliant::space::{Advice, Flags, MapRequest, Place};
use foliant::split::{Shrink, SplitError, SplitInto, SplitRequest};
use foliant::table::{self, Attrs, Half, Paging, X86_64};
use foliant::vmap::{Caller, FrameMapping, Request, VmapError};
use foliant::{Access, Event, Outcome, Policy};
use foliant_machine::{Around, Caching, KernelFault, KernelVa, PhysMem};
use foliant_sim::{Checks, Config, Sim};
use foliant_units::{Bytes, Frame, FrameRange, Level, Node, Order, Pa, Pages, Va};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Below the last kernel address.
const LAST: u64 = !0 - 8 * 4096 + 1;

/// A call of the contract at which a test acts.
#[derive(Clone, Copy, Debug)]
enum Call {
    /// Descriptors are about to be filled: so many, with this word.
    Fill(u64, u64),
    /// This word of the descriptor of a frame is about to be read, or replaced.
    Word(Frame, u64),
    /// Memory from a frame on is about to be cleared.
    Clear(Frame),
    /// So many bytes were cleared.
    Cleared(Bytes),
}

type When = Box<dyn Fn(Call) -> bool + Send>;
type Hook = Box<dyn FnOnce() + Send>;

/// The simulator, with one thing that is done when a call comes.
struct Hooked {
    sim: Sim,
    due: Mutex<Option<(When, Hook)>>,
}

impl Hooked {
    fn new(sim: Sim) -> &'static Hooked {
        Box::leak(Box::new(Hooked { sim, due: Mutex::new(None) }))
    }
    fn when(
        &self,
        call: impl Fn(Call) -> bool + Send + 'static,
        act: impl FnOnce() + Send + 'static,
    ) {
        *self.due.lock().unwrap() = Some((Box::new(call), Box::new(act)));
    }
    fn at(&self, call: Call) {
        let due = self.due.lock().unwrap().take_if(|(when, _)| when(call));
        if let Some((_, act)) = due {
            act();
        }
    }
    fn word(&self, va: Va) {
        let array = X86_64::<4>::half(Half::Kernel).0;
        if let Some(offset) = va.get().checked_sub(array.get()) {
            self.at(Call::Word(Frame::new(offset / 64), offset % 64 / 8));
        }
    }
    /// Whether what was to be done was done.
    fn is_done(&self) -> bool {
        self.due.lock().unwrap().is_none()
    }
}

/// One descriptor is about to be made plain.
fn one_is_made_plain(call: Call) -> bool {
    matches!(call, Call::Fill(1, 0))
}
/// The references of a frame are about to be looked at.
fn looks_at(frame: Frame) -> impl Fn(Call) -> bool {
    move |call| matches!(call, Call::Word(of, 1) if of == frame)
}

simulated!(Hooked);
// SAFETY: everything is the simulator's.
unsafe impl Around for Hooked {
    type Inner = Sim;
    fn inner(&self) -> &Sim {
        &self.sim
    }
    unsafe fn clear(&self, pa: Pa, bytes: Bytes, caching: Caching) {
        self.at(Call::Clear(pa.frame()));
        // SAFETY: passed on.
        unsafe { self.sim.clear(pa, bytes, caching) }
        self.at(Call::Cleared(bytes));
    }
    unsafe fn kernel_load(&self, va: Va) -> Result<u64, KernelFault> {
        self.word(va);
        // SAFETY: passed on.
        unsafe { self.sim.kernel_load(va) }
    }
    unsafe fn kernel_compare_exchange(
        &self,
        va: Va,
        old: u64,
        new: u64,
    ) -> Result<Result<u64, u64>, KernelFault> {
        self.word(va);
        // SAFETY: passed on.
        unsafe { self.sim.kernel_compare_exchange(va, old, new) }
    }
    unsafe fn kernel_store(&self, va: Va, word: u64) -> Result<(), KernelFault> {
        if va.get().is_multiple_of(64) {
            self.at(Call::Fill(1, word));
        }
        // SAFETY: passed on.
        unsafe { self.sim.kernel_store(va, word) }
    }
    unsafe fn kernel_fill(
        &self,
        va: Va,
        stride: Bytes,
        count: u64,
        word: u64,
    ) -> Result<(), KernelFault> {
        self.at(Call::Fill(count, word));
        // SAFETY: passed on.
        unsafe { self.sim.kernel_fill(va, stride, count, word) }
    }
}

type Ours = &'static Mm<'static>;

fn hooked(cpus: usize, megabytes: u64, policy: Policy) -> World<Hooked> {
    let machine = Hooked::new(sim(cpus, megabytes));
    let memory = machine.sim.config().memory.clone();
    let (machine, mm, kept) = kept_as(machine, &Setup::of(&memory, policy));
    mm.cpus().for_each(|cpu| machine.sim.on(cpu, || mm.online()));
    (machine, mm, kept)
}

fn frames(start: u64, pages: u64) -> FrameRange {
    FrameRange::new(Frame::new(start), Pages::new(pages)).unwrap()
}

fn of_huge_pages(bytes: u64) -> MapRequest {
    let flags = Flags::READ_WRITE.with(Flags::HUGE_2M);
    let place = Place::NoReplace(Va::new(BASE));
    MapRequest { place, bytes: Bytes::new(bytes), flags, tag: 0 }
}

// H

#[test]
fn finding_h_only_what_was_lent_is_taken_back() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    let whole = area(&mm, id, BASE, MB);
    store(&sim, &mm, id, BASE, 7);
    let page = mm.frame_at(id, Va::new(BASE)).unwrap();
    let kernel = mm.vmalloc(&Request::of(Bytes::new(4096))).unwrap();
    let kernel = mm.vmap().frame_at(kernel.start()).unwrap().0;
    let lent = mm.lend(Order::SIZE_2M).unwrap();
    let free = mm.memory().free;
    // Whatever else the memory holds: tables, records, descriptors, pages.
    for range in mm.ranges().collect::<Vec<_>>() {
        for frame in range.iter().filter(|frame| *frame != lent) {
            for order in [Order::BASE, Order::SIZE_2M] {
                let back = mm.take_back(frame, order);
                assert!(back.is_err(), "{frame} was never lent, and is taken back");
            }
        }
    }
    for (frame, order) in
        [(lent, Order::BASE), (lent, Order::SIZE_1G), (Frame::new(!0), Order::BASE)]
    {
        assert!(mm.take_back(frame, order).is_err(), "no such block was lent: {frame} {order}");
    }
    assert_eq!(mm.memory().free, free, "who is refused has changed nothing");
    assert_eq!(mm.identity(page).kind(), Kind::Anon);
    assert_eq!(mm.identity(kernel).kind(), Kind::Kernel);
    let why = mm.take_back(page, Order::BASE).unwrap_err();
    assert_eq!(why, NotLent::InUse { frame: page, order: Order::BASE, kind: Kind::Anon });
    assert!(why.to_string().contains(&page.to_string()), "it names the frame: {why}");
    let why = mm.take_back(page, Order::SIZE_2M).unwrap_err();
    assert!(matches!(why, NotLent::NoBlock(_)), "no block of that size begins there: {why:?}");
    mm.take_back(lent, Order::SIZE_2M).unwrap();
    assert!(mm.take_back(lent, Order::SIZE_2M).is_err(), "twice");
    assert_eq!(load(&sim, &mm, id, BASE), 7);
    // What was lent once is anybody's again.
    let all = area(&mm, id, BASE + 1024 * MB, 64 * MB);
    let touch = |page: u64| mm.fault(id, all.start().add(page * 4096), Access::Write);
    (0..16384).take_while(|page| touch(*page) != Outcome::OutOfMemory).for_each(drop);
    assert_eq!(mm.identity(lent).kind(), Kind::Anon, "all of memory is the program's");
    for order in [Order::BASE, Order::SIZE_2M] {
        let back = mm.take_back(lent, order);
        assert!(back.is_err(), "{lent} was lent before, and is the program's by now");
    }
    mm.unmap(id, all).unwrap();
    mm.unmap(id, whole).unwrap();
}

// I

/// A folio goes, and on another CPU its memory is reported as broken: between the count and the
/// descriptor.
#[test]
fn finding_i_what_is_reported_broken_is_not_used_again() {
    let (machine, mm, _over) = hooked(2, 64, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    let whole = area(mm, id, BASE, MB);
    store(&machine.sim, mm, id, BASE, 7);
    let frame = mm.frame_at(id, Va::new(BASE)).unwrap();
    let said: &'static Mutex<Option<Poisoned>> = Box::leak(Box::default());
    machine.when(one_is_made_plain, move || {
        machine.sim.on(cpu(1), || *said.lock().unwrap() = Some(mm.poison(frame)));
    });
    mm.unmap(id, whole).unwrap();
    assert!(machine.is_done());
    let said = said.lock().unwrap().unwrap();
    let kept = mm.identity(frame).has(foliant::frame::Flag::Poisoned);
    assert_eq!(said == Poisoned::Held, kept, "the answer is what became of the frame");
    assert_eq!(said == Poisoned::Held, !is_free(mm, frame));
}

/// The same for kernel memory.
#[test]
fn finding_i_broken_kernel_memory_is_not_used_again() {
    let (machine, mm, _over) = hooked(2, 64, Policy::BASE_ONLY);
    let range = mm.vmalloc(&Request::of(Bytes::new(2 * 4096))).unwrap();
    let frame = mm.vmap().frame_at(range.start()).unwrap().0;
    let said: &'static Mutex<Option<Poisoned>> = Box::leak(Box::default());
    // The last look at the page's descriptor is over when that of the next page is counted down.
    let next = mm.vmap().frame_at(range.start().add(4096)).unwrap().0;
    machine.when(looks_at(next), move || {
        machine.sim.on(cpu(1), || *said.lock().unwrap() = Some(mm.poison(frame)));
    });
    mm.vfree(range.start()).unwrap();
    assert!(machine.is_done());
    let said = said.lock().unwrap().unwrap();
    assert_eq!(said == Poisoned::Held, !is_free(mm, frame));
}

/// A page of a pool is reported as broken while a resize is still making it: it is on no list that
/// it could be taken off, and must not come onto one.
#[test]
fn finding_am_a_page_that_breaks_on_its_way_into_a_pool_is_lost() {
    let mut lost = 0;
    for step in 1.. {
        let machine = Beside::new(sim(2, 32));
        let mm = machine.manager(Policy::BASE_ONLY);
        mm.cpus().for_each(|cpu| machine.sim.on(cpu, || mm.online()));
        mm.describe_all().unwrap(); // so that the pages are folded before they are listed
        let report = || {
            let mut frames = mm.ranges().flat_map(|range| range.iter());
            let huge = frames.find(|frame| mm.identity(*frame).kind() == Kind::Huge);
            huge.map(|frame| mm.poison(frame));
        };
        let resize = || mm.resize_pool(Order::SIZE_2M, 2, Budget::ALL).unwrap();
        let ran = machine.before_step(step, report, resize).is_some();
        mm.audit(&[]).unwrap_or_else(|wrong| panic!("step {step}: {wrong}"));
        lost += mm.pool(Order::SIZE_2M).unwrap().broken;
        if !ran {
            break;
        }
    }
    assert!(lost > 5, "{lost}");
}

/// A list is split while descriptors are taken away beside it: the splitter has entries out of use,
/// for which a fault may wait in a section that the other CPU waits for.
#[test]
fn finding_an_a_splitter_waits_for_no_descriptors_that_are_moved() {
    let mut refused = 0;
    for step in 1.. {
        let machine = Beside::new(sim(2, 32));
        let mm = machine.manager(only(9));
        mm.cpus().for_each(|cpu| machine.sim.on(cpu, || mm.online()));
        let id = mm.create(None).unwrap();
        machine.sim.on(cpu(1), || mm.switch(Some(id)).unwrap());
        area(&mm, id, BASE, SIZE_2M);
        machine.sim.on(cpu(1), || store(&machine.sim, &mm, id, BASE, 1));
        let folio = mm.frame_at(id, Va::new(BASE)).unwrap();
        let memmap = mm.memmap();
        let mut batch = Batch::new(&memmap);
        let huge = memmap.claim(Order::SIZE_2M, Form::Dense).unwrap();
        let frame = huge.head();
        batch.push(huge).unwrap();
        assert_eq!(memmap.fold(&mut batch).folded, 1);
        let (mm, machine) = (&mm, &machine);
        let mut split = || {
            let before = machine.steps();
            let mut list = [SplitRequest::of(folio), SplitRequest::of(frame)];
            mm.split_list(&mut list, SplitInto::BASE);
            assert_eq!(machine.steps(), before, "step {step}: the list waited for the other CPU");
            assert!(list[0].done.unwrap().is_ok(), "step {step}: {list:?}");
            refused += u64::from(list[1].done == Some(Err(SplitError::Busy(frame))));
        };
        let release = || assert_eq!(memmap.release(&mut batch).absent, 1);
        if machine.before_step(step, &mut split, release).is_none() {
            break;
        }
        mm.audit(&[id]).unwrap();
    }
    assert!(refused > 0, "it came at no step at which descriptors are moved");
}

fn is_free(mm: Ours, frame: Frame) -> bool {
    mm.folios().state(frame) == foliant::folio::FrameState::Free
}

/// A frame of a folio that was split, which nothing maps and which is about to be given back, still
/// looks like a tail.
#[test]
fn finding_i_a_report_hits_the_piece_that_has_the_frame() {
    for report in [true, false] {
        let (machine, mm, _over) = hooked(2, 64, Policy::always(Orders::of(Order::SIZE_2M)));
        let id = mm.create(None).unwrap();
        mm.switch(Some(id)).unwrap();
        area(mm, id, BASE, 2 * MB);
        store(&machine.sim, mm, id, BASE, 7);
        let head = mm.frame_at(id, Va::new(BASE)).unwrap();
        mm.unmap(id, range(BASE + 4096, 2 * MB - 4096)).unwrap();
        let gone = head.add(Pages::new(5));
        let other: &'static AtomicBool = Box::leak(Box::default());
        machine.when(one_is_made_plain, move || {
            machine.sim.on(cpu(1), || match report {
                true => other.store(mm.poison(gone) == Poisoned::Held, Ordering::Relaxed),
                false => other.store(mm.reference(gone).is_some(), Ordering::Relaxed),
            });
        });
        mm.split(id, Va::new(BASE), SplitInto::BASE).unwrap();
        assert!(machine.is_done());
        assert!(!other.load(Ordering::Relaxed), "the first piece was taken for that of {gone}");
        assert!(!mm.identity(head).has(foliant::frame::Flag::Poisoned));
        mm.audit(&[id]).unwrap();
    }
}

// O

/// Two CPUs add the same memory: who comes second leaves the records of the first alone.
#[test]
fn finding_o_who_adds_clears_no_records_in_use() {
    let more = frames(20 * 512, 2048);
    let mut config = Config::free(2, Bytes::new(16 * MB));
    config.memory.push(more);
    config.checks = Checks::None;
    let machine = Hooked::new(Sim::new(config).unwrap());
    let memory = [machine.sim.config().memory[0]];
    let setup = Setup { added_below: more.end(), ..Setup::of(&memory, Policy::BASE_ONLY) };
    let (machine, mm, _over) = kept_as(machine, &setup);
    mm.cpus().for_each(|cpu| machine.sim.on(cpu, || mm.online()));
    let lent: &'static Mutex<Vec<Frame>> = Box::leak(Box::default());
    let is_in = move |call| matches!(call, Call::Clear(frame) if more.contains(frame));
    machine.when(is_in, move || {
        machine.sim.on(cpu(1), || {
            if mm.add_memory(more).is_ok() {
                lent.lock().unwrap().extend(std::iter::from_fn(|| mm.lend(Order::SIZE_2M).ok()));
            }
        });
    });
    let first = mm.add_memory(more);
    assert!(machine.is_done());
    let mut lent = lent.lock().unwrap().clone();
    lent.extend(std::iter::from_fn(|| mm.lend(Order::SIZE_2M).ok()));
    let distinct: BTreeSet<_> = lent.iter().collect();
    assert_eq!(distinct.len(), lent.len(), "a block was lent twice; adding said {first:?}");
    assert!(lent.iter().any(|block| more.contains(*block)), "some of it is in use");
    for block in lent {
        mm.take_back(block, Order::SIZE_2M).expect("it is known to be lent");
    }
    assert_eq!(
        mm.folios().free_blocks(Order::SIZE_2M),
        mm.folios().census().blocks(Order::SIZE_2M)
    );
    mm.audit(&[]).unwrap();
}

/// Memory is taken while it is being added: what describes it is not handed out.
#[test]
fn finding_o_added_memory_keeps_its_own_records() {
    (0..200).for_each(|_| add_beside_takers());
}

fn add_beside_takers() {
    let first = frames(0, 8 * 512);
    let more: Vec<FrameRange> = (0..60).map(|n| frames((20 + 4 * n) * 512, 512)).collect();
    let mut config = Config::free(3, Bytes::new(32 * MB));
    config.memory = std::iter::once(first).chain(more.iter().copied()).collect();
    config.checks = Checks::None;
    let sim = Sim::new(config).unwrap();
    let memory = [first];
    let added_below = more.last().unwrap().end();
    let setup = Setup { added_below, ..Setup::of(&memory, Policy::BASE_ONLY) };
    let mm: AuditedMm<'_> = audited(&sim, &setup);
    let (is_over, refused) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    sim.parallel(3, |me| {
        mm.online();
        if me.0 > 0 {
            while !is_over.load(Ordering::Relaxed) {
                let _ = mm.lend(Order::SIZE_2M);
            }
            return;
        }
        let added = more.iter().map(|range| (*range, mm.add_memory(*range)));
        refused.lock().unwrap().extend(added.filter(|(_, added)| added.is_err()));
        is_over.store(true, Ordering::Relaxed);
    });
    let refused = refused.into_inner().unwrap();
    assert!(refused.is_empty(), "the records were handed out: {refused:?}");
}

// Q1

/// An area goes while a fault clears the page that was reserved for it.
#[test]
fn finding_q1_a_reservation_ends_while_its_page_is_held() {
    let (machine, mm, _over) = hooked(2, 64, Policy::BASE_ONLY);
    mm.resize_pool(Order::SIZE_2M, 2, Budget::ALL).unwrap();
    let (id, other) = (mm.create(None).unwrap(), mm.create(None).unwrap());
    mm.switch(Some(id)).unwrap();
    let whole = mm.map(id, &of_huge_pages(2 * MB)).unwrap();
    let said: &'static Mutex<Option<PoolCounters>> = Box::leak(Box::default());
    let is_large = |call| matches!(call, Call::Cleared(bytes) if bytes > Order::BASE.bytes());
    machine.when(is_large, move || {
        machine.sim.on(cpu(1), || {
            mm.unmap(id, whole).unwrap();
            *said.lock().unwrap() = Some(mm.pool(Order::SIZE_2M).unwrap());
            mm.map(other, &of_huge_pages(2 * MB)).expect("the other page is nobody's");
        });
    });
    let outcome = mm.fault(id, Va::new(BASE), Access::Write);
    assert!(machine.is_done());
    assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}");
    let said = said.lock().unwrap().unwrap();
    assert_eq!((said.free_hugepages, said.resv_hugepages), (1, 0));
    machine.sim.on(cpu(1), || mm.switch(Some(other)).unwrap());
    assert_eq!(mm.fault(other, Va::new(BASE), Access::Write), Outcome::Mapped(Order::SIZE_2M));
    mm.unmap(other, range(BASE, 2 * MB)).unwrap();
    let after = mm.pool(Order::SIZE_2M).unwrap();
    assert_eq!((after.free_hugepages, after.resv_hugepages), (2, 0));
    mm.audit(&[id, other]).unwrap();
}

// Q2

/// A token of one manager given to another one, by every way there is.
#[test]
fn finding_q2_a_page_of_another_manager_is_refused() {
    let (one, two) = (sim(1, 64), sim(1, 64));
    let (ours, theirs) = (manager(&one, Policy::BASE_ONLY), manager(&two, Policy::BASE_ONLY));
    ours.resize_pool(Order::SIZE_2M, 8, Budget::ALL).unwrap();
    let state = || (ours.pool(Order::SIZE_2M).unwrap(), ours.memory(), theirs.memory());
    let foreign = theirs.memmap().claim(Order::SIZE_2M, Form::Dense).unwrap();
    let (head, before) = (foreign.head(), state());
    let mut batch = Batch::new(&ours.memmap());
    let Declined { huge, why } = batch.push(foreign).unwrap_err();
    assert_eq!((why, batch.len()), (MemmapError::Foreign(head), 0));
    let Declined { huge, why } = ours.memmap().free(huge).unwrap_err();
    assert_eq!(why, MemmapError::Foreign(head));
    // A whole batch of the other manager's.
    let mut batch = Batch::new(&theirs.memmap());
    batch.push(huge).unwrap();
    let why = Some(MemmapError::Foreign(head));
    assert_eq!(ours.memmap().fold(&mut batch).why, why);
    assert_eq!(ours.memmap().unfold(&mut batch).why, why);
    assert_eq!(ours.memmap().release(&mut batch).why, why);
    assert_eq!((state(), batch.len()), (before, 1));
    theirs.memmap().release(&mut batch);
    drop(batch);
    finish(&two, &theirs, &[]);
}

/// What the manager maps for itself nobody else maps there.
#[test]
fn finding_q2_nobody_maps_where_the_managers_records_appear() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let lent = mm.lend(Order::BASE).unwrap();
    let array = X86_64::<4>::half(Half::Kernel).0;
    for va in [array, mm.vmap().range().start(), mm.vmap().range().end()].map(Va::get) {
        let va = if va == mm.vmap().range().end().get() { va - 4096 } else { va };
        let done = mm.map_kernel(range(va, 4096), lent, Attrs::WRITE);
        assert_eq!(done, Err(KernelMapError::Own(Va::new(va))));
        let reached = mm.reach_kernel(Va::new(va), Level::BASE);
        assert_eq!(reached, Err(KernelMapError::Own(Va::new(va))));
    }
    mm.take_back(lent, Order::BASE).unwrap();
}

// Q5

/// `vfree_atomic` beside a release of the same area, whose memory a program gets meanwhile.
#[test]
fn finding_q5_a_late_release_touches_no_strangers_page() {
    let (machine, mm, _over) = hooked(2, 64, Policy::always(Orders::of(Order::SIZE_2M)));
    let id = mm.create(None).unwrap();
    machine.sim.on(cpu(1), || mm.switch(Some(id)).unwrap());
    area(mm, id, BASE, 128 * MB);
    machine.sim.on(cpu(1), || {
        mm.fault(id, Va::new(BASE + 126 * MB), Access::Write); // what that takes is there
    });
    let kernel = mm.vmalloc(&Request::of(Bytes::new(2 * MB)).huge()).unwrap();
    let frame = mm.vmap().frame_at(kernel.start()).unwrap().0;
    let taken: &'static AtomicBool = Box::leak(Box::default());
    machine.when(looks_at(frame), move || {
        machine.sim.on(cpu(1), || {
            mm.vfree(kernel.start()).unwrap();
            let mut places = (0..60).map(|n| Va::new(BASE + n * 2 * MB));
            let is_taken = |va| {
                mm.fault(id, va, Access::Write);
                mm.identity(frame).kind() == Kind::Anon
            };
            taken.store(places.any(is_taken), Ordering::Relaxed);
            // And more, so that it is in the middle of its list.
            places.take(16).for_each(|va| _ = mm.fault(id, va, Access::Write));
        });
    });
    let late = mm.vfree_atomic(kernel.start());
    assert!(machine.is_done() && taken.load(Ordering::Relaxed), "a program has the memory");
    mm.audit(&[id]).expect("the lists of folios that wait to be split are whole");
    assert!(late.is_err(), "{late:?}");
    machine.sim.on(cpu(1), || mm.unmap(id, range(BASE, 128 * MB)).unwrap());
    mm.audit(&[id]).unwrap();
}

/// The same where another area gets the page: it stays as it is, and can be given back.
#[test]
fn finding_q5_a_late_release_touches_no_other_area() {
    let (machine, mm, _over) = hooked(2, 64, Policy::BASE_ONLY);
    let first = mm.vmalloc(&Request::of(Bytes::new(4096))).unwrap();
    let frame = mm.vmap().frame_at(first.start()).unwrap().0;
    let next: &'static Mutex<Vec<Va>> = Box::leak(Box::default());
    machine.when(looks_at(frame), move || {
        machine.sim.on(cpu(1), || {
            mm.vfree(first.start()).unwrap();
            loop {
                let area = mm.vmalloc(&Request::of(Bytes::new(4096))).unwrap();
                next.lock().unwrap().push(area.start());
                if mm.vmap().frame_at(area.start()).unwrap().0 == frame {
                    return;
                }
            }
        });
    });
    let late = mm.vfree_atomic(first.start());
    assert!(machine.is_done());
    assert_eq!(late, Err(VmapError::Freed(first.start())));
    let last = *next.lock().unwrap().last().unwrap();
    assert_eq!(mm.vfree_atomic(last), Ok(()), "the area that has the page now");
    mm.audit(&[]).unwrap();
}

// Q6

#[test]
fn finding_q6_addresses_that_end_before_the_descriptors_do() {
    use foliant::table::Riscv64;
    use foliant_sim::{Format, RiscvMode};
    let config =
        Config::seeded(1, Bytes::new(64 * MB), 7).with_format(Format::Riscv64(RiscvMode::Sv39));
    let sim = Sim::new(config).unwrap();
    for shift in [32, 33, 36, 40, 41, 63] {
        let added_below = Frame::new(1 << shift);
        let setup = Setup { added_below, ..Setup::of(&sim.config().memory, Policy::BASE_ONLY) };
        let made = AnyMm::<Riscv64<3>>::new(untyped(&sim), &setup).map(|_| ());
        assert_eq!(made, Err(SetupError::Beyond(added_below)), "2^{shift} frames");
    }
}

/// A format whose entries name fewer frames than descriptors can.
#[test]
fn memory_that_no_entry_can_name_is_refused() {
    use foliant::table::Aarch64;
    let config =
        Config::seeded(1, Bytes::new(64 * MB), 7).with_format(foliant_sim::Format::Aarch64);
    let sim = Sim::new(config).unwrap();
    let added_below = Frame::new((1 << 36) + 1);
    let setup = Setup { added_below, ..Setup::of(&sim.config().memory, Policy::BASE_ONLY) };
    let made = AnyMm::<Aarch64>::new(untyped(&sim), &setup).map(|_| ());
    assert_eq!(made, Err(SetupError::Beyond(added_below)));
}

/// An allocator that has no memory yet has no block; it gets some later.
#[test]
fn finding_q6_an_allocator_without_memory_has_no_block() {
    let lend = |words: u64| (0..words).map(|_| Word::new(0)).collect::<Vec<_>>();
    let few = lend(Folios::layout(&[], CpuCount(1)).unwrap().0);
    let folios = Folios::new(&[], CpuCount(1), &few).unwrap();
    for (order, class) in Order::all().flat_map(|order| Class::ALL.map(|class| (order, class))) {
        let none = folios.alloc(cpu(0), order, class);
        assert_eq!(none, Err(AllocError::NoMemory { order, class }));
    }
    let range = frames(512, 512);
    let more = lend(Folios::layout_added(range).unwrap().0);
    folios.add(range, Node(0), Known::Zero, &more).unwrap();
    assert_eq!(folios.alloc(cpu(0), Order::SIZE_2M, Class::Movable), Ok(Frame::new(512)));
}

#[test]
fn finding_q6_what_is_known_of_any_range_can_be_asked() {
    let memory = [frames(256, 2048)];
    let words = Folios::layout(&memory, CpuCount(1)).unwrap().0;
    let words: Vec<Word> = (0..words).map(|_| Word::new(0)).collect();
    let folios = Folios::new(&memory, CpuCount(1), &words).unwrap();
    folios.declare_zero(frames(256, 1000));
    folios.declare_zero(frames(1300, 200));
    let unknown = |start, pages| folios.unknown(frames(start, pages));
    assert_eq!(unknown(256, 512), None, "over the end of a block");
    assert_eq!(unknown(300, 1000), Some(frames(1256, 44)));
    assert_eq!(unknown(1400, 800), Some(frames(1500, 700)));
    folios.declare_zero(frames(2300, 4));
    assert_eq!(unknown(2300, 4), None, "up to the end of memory");
    assert_eq!(unknown(2300, 100), Some(frames(2300, 100)), "over it, within a block");
    assert_eq!(unknown(0, 512), Some(frames(0, 512)), "not all of it is memory");
    assert_eq!(unknown(2300, 512), Some(frames(2300, 512)));
    assert_eq!(unknown(0, 1 << 52), Some(frames(0, 1 << 52)));
    assert_eq!(unknown(1 << 51, 4), Some(frames(1 << 51, 4)));
    assert_eq!(unknown(300, 0), None);
}

#[test]
fn finding_q6_blocks_that_no_address_names() {
    let sim = sim(1, 16);
    let mm = manager(&sim, Policy::BASE_ONLY);
    for head in [1u64 << 52, (1 << 52) - (1 << 18), !0 - (1 << 18) + 1, 1 << 63, !0] {
        for order in [Order::BASE, Order::SIZE_2M, Order::SIZE_1G] {
            let block = (Frame::new(head), order);
            let plan = foliant::zero::Plan::new(block, None, &mm.clearing(), Caching::Cached);
            let fits = head.is_multiple_of(order.pages().get()) && head < 1 << 52;
            assert_eq!(plan.is_ok(), fits, "{head:#x} {order}: {plan:?}");
        }
    }
}

#[test]
fn finding_q6_the_last_kernel_addresses_are_mapped_or_refused() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    mm.leaves("tables that map_kernel needed");
    let lent = mm.lend(Order::BASE).unwrap();
    let last = range(!0 - 8191, 4096);
    mm.map_kernel(last, lent, Attrs::WRITE).unwrap();
    let again = mm.map_kernel(last, lent, Attrs::WRITE);
    assert!(again.is_err(), "it is mapped: {again:?}");
    for frame in [1u64 << 40, 1 << 52, !0] {
        let none = mm.map_kernel(range(!0 - 12287, 4096), Frame::new(frame), Attrs::WRITE);
        assert!(none.is_err(), "{frame:#x}: {none:?}");
    }
}

#[test]
fn finding_q6_of_two_that_map_one_kernel_range_one_is_refused() {
    for step in 1.. {
        let machine = Beside::new(sim(2, 64));
        let mm = machine.manager(Policy::BASE_ONLY);
        mm.leaves("tables that map_kernel needed");
        let lent = mm.lend(Order::new(2).unwrap()).unwrap();
        let theirs = Mutex::new(None);
        let map = |va: u64| mm.map_kernel(range(va, 2 * 4096), lent, Attrs::WRITE);
        let other = || *theirs.lock().unwrap() = Some(map(LAST - 4096));
        let Some(ours) = machine.before_step(step, other, || map(LAST)) else {
            assert!(step > 20, "{step}");
            return;
        };
        let theirs = theirs.into_inner().unwrap().unwrap();
        assert!(ours.is_ok() != theirs.is_ok(), "at step {step}: {ours:?} and {theirs:?}");
        let live = KernelMapError::Refused(table::Refused::Live(Va::new(LAST)));
        assert_eq!(ours.and(theirs), Err(live), "at step {step}");
    }
}

/// A frame of the kernel's was a program's before, and still says where that page was made: the
/// record there is another page of the kernel's by now.
#[test]
fn finding_cj_kernel_memory_has_no_mappings() {
    let sim = sim(1, 32);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(&mm, id, BASE, 64 * PAGE);
    (0..64).for_each(|nth| drop(store(&sim, &mm, id, BASE + nth * PAGE, nth)));
    let frame_at = |nth| mm.frame_at(id, Va::new(BASE + nth * PAGE)).unwrap();
    let old: Vec<Frame> = (0..64).map(frame_at).collect();
    mm.switch(None).unwrap();
    mm.end(id).unwrap();
    while let Ok(range) = mm.vmalloc(&Request::of(Bytes::new(PAGE))) {
        let words = (0..512).map(|nth| range.start().add(nth * 8));
        // SAFETY: the page was taken just now.
        words.for_each(|va| unsafe { sim.kernel_store(va, !0) }.unwrap());
    }
    let is_kernels = |frame: &Frame| mm.identity(*frame).kind() == Kind::Kernel;
    assert!(old.iter().filter(|frame| is_kernels(frame)).count() > 32);
    assert!(old.iter().all(|frame| mm.mappings(*frame).is_none()));
}

/// Every call that takes numbers, with the largest and oddest ones.
#[test]
fn finding_q6_no_number_makes_a_call_panic() {
    let sim = sim(2, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let id = mm.create(None).unwrap();
    let kernel = mm.vmap().range();
    let end = mm.ranges().last().unwrap().end().get();
    let numbers = [0, 1, 511, 512, end - 1, end, 1 << 28, (1 << 40) - 1, 1 << 40, (1 << 52) - 1]
        .into_iter()
        .chain([1 << 52, (1 << 52) + 1, !0 >> 12, 1 << 63, !0 - 511, !0]);
    let sizes = [0u64, 1, 4095, 4096, 2 * MB, 1 << 30, 1 << 47, 1 << 62, 1 << 63, !0 - 4095, !0];
    for frame in numbers.map(Frame::new) {
        let _ = (mm.identity(frame), mm.reference(frame).is_some(), mm.mappings(frame));
        let _ = (mm.split_frame(frame, SplitInto::BASE), mm.relocate(frame));
        let _ = (mm.pools().dissolve(frame), mm.memmap().described(frame));
        let _ = (mm.folios().state(frame), mm.folios().usage(frame), mm.folios().node_of(frame));
        let _ =
            mm.vmap_frames(&[frame, Frame::new(frame.get().wrapping_add(1))], &FrameMapping::PLAIN);
        for order in Order::all() {
            assert!(mm.take_back(frame, order).is_err(), "{frame} {order}");
        }
        for size in sizes {
            let _ = mm.ioremap(Pa::new(frame.get()), Bytes::new(size), Caller(0));
            if let Some(range) = FrameRange::new(frame, Pages::new(size)) {
                assert!(mm.add_memory(range).is_err(), "{range:?}");
            }
        }
    }
    let (first, last) = (kernel.start().get(), kernel.end().get());
    let addresses = [0, 1, 4095, 4096, (1 << 47) - 4096, (1 << 47) - 1, 1 << 47, 1 << 63, !0 << 47]
        .into_iter()
        .chain([first, first + 1, last - 4096, last - 1, last, !0 - (1 << 30) + 1, !0 - 4095, !0]);
    for va in addresses.map(Va::new) {
        let _ = (mm.vfree(va), mm.vfree_atomic(va), mm.vunmap(va), mm.iounmap(va));
        let _ = (mm.vmap().frame_at(va), mm.area(id, va), mm.area_at_or_after(id, va));
        let _ = (mm.fault(id, va, Access::Write), mm.frame_at(id, va));
        let _ = mm.split(id, va, SplitInto::BASE);
        let _ = mm.collapse(id, va, Order::SIZE_2M, foliant::manager::CollapseLimits::NONE);
        for size in sizes {
            let bytes = Bytes::new(size);
            let _ = mm.vmap().check_bounds(va, bytes);
            for flags in [Flags::NONE, Flags::HUGE_2M, Flags::HUGE_1G] {
                let flags = Flags::READ_WRITE.with(flags);
                let request = MapRequest { place: Place::NoReplace(va), bytes, flags, tag: 0 };
                let _ = mm.map_user(id, &request, va);
                if let Ok(done) = mm.map(id, &request) {
                    mm.unmap(id, done).unwrap();
                }
            }
            if let Some(range) = foliant_units::VaRange::sized(va, bytes) {
                let _ = mm.protect_kernel(range, foliant::vmap::Rights::Constant);
                let _ = mm.advise(id, range, Advice::DontNeed);
                let _ = mm.protect(id, range, Flags::NONE);
                if size < 1 << 40 {
                    let _ = mm.vmap().apply(range, |_, _| ());
                }
            }
        }
    }
    for size in sizes {
        for align in sizes {
            let _ = mm.vmalloc(&Request::of(Bytes::new(size)).aligned(Bytes::new(align)));
        }
    }
    let counts = PoolCounters { surplus_hugepages: 1, ..PoolCounters::default() };
    assert_eq!(counts.persistent(), 0);
    let _ = mm.shrink_deferred(Shrink { folios: u64::MAX, zeros_max: Some(Pages::new(!0)) });
    mm.audit(&[id]).unwrap();
}

// Q7

/// A visitor may do what anybody may, also what waits for readers.
#[test]
fn finding_q7_a_visitor_is_in_no_section() {
    let (machine, mm, _over) = meddled(1, 64, Policy::BASE_ONLY); // who spins for ever is told so
    let sim = &machine.sim;
    let id = mm.create(None).unwrap();
    mm.switch(Some(id)).unwrap();
    area(mm, id, BASE, 8 * MB);
    for at in [BASE, BASE + 4 * MB] {
        store(sim, mm, id, at, 1);
    }
    let kernel = mm.vmalloc(&Request::of(Bytes::new(100 * 4096))).unwrap();
    let freed = mm.total(Event::TableFreed);
    let mut pages = 0;
    let unmap = |at| mm.unmap(id, range(at, 2 * MB)).unwrap();
    let visit = |_, _| {
        pages += 1;
        unmap(BASE);
    };
    mm.vmap().apply(kernel, visit).unwrap();
    assert_eq!(pages, 100);
    assert_eq!(mm.total(Event::TableFreed), freed + 1, "a table went, after a grace period");
    let read = mm.with_leaves(id, range(BASE, 8 * MB), |leaves| {
        unmap(BASE + 4 * MB);
        leaves.count()
    });
    assert_eq!(read, Some(0));
    mm.vfree(kernel.start()).unwrap();
}

// Q8

#[test]
fn finding_q8_a_device_is_named_by_the_address_that_was_given() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    let (pa, bytes) = (Pa::new((1 << 40) + 0x800), 0x1000);
    let va = mm.ioremap(pa, Bytes::new(bytes), Caller(0)).unwrap();
    let bounds = |from: u64, bytes| mm.vmap().check_bounds(Va::new(from), Bytes::new(bytes));
    assert_eq!(va.get() % 4096, 0x800);
    assert_eq!(bounds(va.get(), bytes), Ok(()), "what was asked for");
    assert_eq!(bounds(va.get() + 1, bytes - 1), Ok(()));
    for (from, bytes) in [(va.get(), bytes + 1), (va.get() + 1, bytes), (va.get() - 1, 1)] {
        let beyond = bounds(from, bytes);
        assert!(matches!(beyond, Err(VmapError::Beyond { .. })), "{from:#x} {bytes}: {beyond:?}");
    }
    let other = Va::new(va.get() + 0x800);
    assert_eq!(mm.vunmap(other), Err(VmapError::NotStart { va: other, start: va }));
    mm.vunmap(va).unwrap();
    let again = mm.ioremap(pa, Bytes::new(bytes), Caller(0)).unwrap();
    mm.iounmap(again).unwrap();
    let frames = mm.vmap_frames(&[mm.lend(Order::BASE).unwrap()], &FrameMapping::PLAIN).unwrap();
    let inside = frames.start().add(8);
    assert_eq!(
        mm.iounmap(inside),
        Err(VmapError::NotStart { va: inside, start: frames.start() }),
        "an area of frames is named by its first address alone"
    );
    mm.vunmap(frames.start()).unwrap();
}

/// A machine of two CPUs with memory of 2 MiB, and 12 MiB more at the start of another section.
fn with_more() -> Beside {
    let mut config = Config::seeded(2, Bytes::new(2 * MB), 1);
    config.memory.push(frames(4 << 15, 3072));
    Beside::new(Sim::new(config).unwrap())
}
/// The manager of the first memory, on all CPUs, and what may be added.
fn below_more(machine: &Beside) -> (AuditedMm<'_>, FrameRange) {
    let (first, more) = machine.sim.config().memory.split_at(1);
    let setup = Setup { added_below: more[0].end(), ..Setup::of(first, Policy::BASE_ONLY) };
    let mm: AuditedMm<'_> = audited(machine, &setup);
    mm.cpus().for_each(|cpu| machine.sim.on(cpu, || mm.online()));
    (mm, more[0])
}

/// Two CPUs need the first descriptors of added memory at once, for different blocks of it: what
/// one of them cleared for them is not needed, and goes back as memory that nobody but its clearer
/// has touched.
#[test]
fn finding_w_a_block_that_is_not_needed_for_descriptors_was_never_a_record() {
    for step in 1.. {
        let machine = with_more();
        let (mm, more) = below_more(&machine);
        let id = mm.create(None).unwrap();
        mm.cpus().for_each(|cpu| machine.sim.on(cpu, || mm.switch(Some(id)).unwrap()));
        let whole = area(&mm, id, BASE, 32 * MB);
        let lent: Vec<Frame> = std::iter::from_fn(|| mm.lend(Order::SIZE_2M).ok()).collect();
        mm.add_memory(more).unwrap();
        mm.set_policy(Policy::always(Orders::of(Order::SIZE_2M)));
        let fault = |va: u64| mm.fault(id, Va::new(va), Access::Write);
        let other = || assert_eq!(fault(BASE + 2 * MB), Outcome::Mapped(Order::SIZE_2M));
        let Some(ours) = machine.before_step(step, other, || fault(BASE)) else {
            assert!(step > 20, "{step}");
            return;
        };
        assert_eq!(ours, Outcome::Mapped(Order::SIZE_2M), "at step {step}");
        mm.advise(id, whole, Advice::DontNeed).unwrap();
        mm.set_policy(Policy::always(Orders::of(Order::new(4).unwrap())));
        lent.into_iter().for_each(|frame| mm.take_back(frame, Order::SIZE_2M).unwrap());
        // Whatever memory there is, the program touches.
        let mut va = BASE;
        let touched = |va: u64| machine.sim.user_store(Va::new(va), 8, 1).is_ok();
        while touched(va) || matches!(fault(va), Outcome::Mapped(_)) && touched(va) {
            va += 4096;
        }
        assert!(va > BASE + 11 * MB, "{va:#x}");
    }
}

/// A page is born folded while another CPU needs the first descriptors of its section: a leaf is
/// there first, and the page is dense.
#[test]
fn a_leaf_that_is_mapped_beside_a_birth_is_found_by_it() {
    let (mut folded, mut dense) = (0, 0);
    for step in 1.. {
        let machine = with_more();
        let (mm, more) = below_more(&machine);
        let id = mm.create(None).unwrap();
        machine.sim.on(cpu(1), || mm.switch(Some(id)).unwrap());
        area(&mm, id, BASE, 4 * MB);
        let lent: Vec<Frame> = std::iter::from_fn(|| mm.lend(Order::SIZE_2M).ok()).collect();
        mm.add_memory(more).unwrap();
        mm.set_policy(Policy::always(Orders::of(Order::SIZE_2M)));
        let other = || {
            let outcome = mm.fault(id, Va::new(BASE), Access::Write);
            assert_eq!(outcome, Outcome::Mapped(Order::SIZE_2M));
        };
        let memmap = mm.memmap();
        let Some(huge) = machine
            .before_step(step, other, || memmap.claim(Order::SIZE_2M, Form::Folded).unwrap())
        else {
            mm.leaves("the page of the last claim");
            assert!(folded > 5 && dense > 5, "{folded} folded, {dense} not");
            return;
        };
        match memmap.described(huge.head()) {
            Some(Described::Folded) => folded += 1,
            Some(Described::Leaf | Described::Dense) => dense += 1,
            other => panic!("at step {step}: {other:?}"),
        }
        let mut batch = Batch::new(&memmap);
        batch.push(huge).unwrap();
        assert_eq!(memmap.release(&mut batch).refused, 0);
        drop(batch);
        mm.audit(&[id]).unwrap();
        lent.into_iter().for_each(|frame| mm.take_back(frame, Order::SIZE_2M).unwrap());
    }
}
