//! A stock on a machine of a few descriptors, for loom: the code under test is the real one, and
//! every access to a descriptor meets what the mapping is at that moment.
#![allow(unsafe_code)]

use crate::folio::{Class, CpuCount, Folios};
use crate::frame::{AnonOffset, Claim, DESCRIPTOR_BYTES, Flushed, Origin};
use crate::stock::{Block, PerCpu, Stock, Stretch, Stretches};
use crate::sync::{AtomicU64, Ordering};
use crate::table::{Half, Sv39, Tables};
use core::ptr::NonNull;
use foliant_machine::{
    Caching, Clock, Cpus, Invalidation, Kept, KernelFault, KernelVa, MmuRules, PhysMem, Root,
    Ticket, Tlb, Witness,
};
use foliant_units::{Bytes, Cpu, CpuSet, Frame, FrameRange, Nanos, Order, Pa, Pages, Va};
use loom::thread::{self, JoinHandle};
use std::boxed::Box;
use std::vec::Vec;

/// All of the machine's memory.
pub(crate) const BLOCK: Block = Block(3);
/// Its first frame, and the first that is taken. No function is called for it: in the copy that
/// mutants are made in, functions are not constant.
pub(crate) const PAGE: Frame = Frame::new(BLOCK.0 << Order::SIZE_2M.get());

/// Frames that have descriptors. The rest of the block is never taken.
const DESCRIBED: usize = 8;
const CPUS: u16 = 3;
/// The stack of the thread that makes a stock, in words.
const MAKER_WORDS: usize = 1 << 16;
const ARRAY: Va = Va::new(0xffff_ffc0_0000_0000);

/// A stock as the models use it.
pub(crate) type Model = Stock<'static, Few, Sv39>;

/// What the descriptors are mapped by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mapping {
    Nothing = 0,
    Own = 1,
    /// Read only.
    Shared = 2,
}

/// The machine.
pub(crate) struct Few {
    mapping: AtomicU64,
    words: Vec<AtomicU64>,
}

impl Few {
    fn new() -> Few {
        let words = DESCRIBED * DESCRIPTOR_BYTES.get() as usize / 8;
        Few { mapping: AtomicU64::new(Mapping::Own as u64), words: zeros(words) }
    }
    /// The descriptors are mapped by something else from now on. Nothing of it is cached anywhere.
    pub(crate) fn map(&self, now: Mapping) {
        self.mapping.store(now as u64, Ordering::SeqCst);
    }
    fn word(&self, va: Va) -> Result<&AtomicU64, KernelFault> {
        let nth = va.offset_from(ARRAY) - PAGE.get() * DESCRIPTOR_BYTES.get();
        let is_mapped = self.mapping.load(Ordering::SeqCst) != Mapping::Nothing as u64;
        is_mapped.then(|| &self.words[nth as usize / 8]).ok_or(KernelFault { va })
    }
    /// What can be written; a compare-and-exchange counts as a store even where it fails.
    fn own(&self, va: Va) -> Result<&AtomicU64, KernelFault> {
        let word = self.word(va)?;
        let mapping = self.mapping.load(Ordering::SeqCst);
        assert_eq!(mapping, Mapping::Own as u64, "{va} is written through a shared entry");
        Ok(word)
    }
}

// SAFETY: the words live as long as the machine, and nothing else is reached.
unsafe impl KernelVa for Few {
    unsafe fn kernel_load(&self, va: Va) -> Result<u64, KernelFault> {
        Ok(self.word(va)?.load(Ordering::Acquire))
    }
    unsafe fn kernel_store(&self, va: Va, word: u64) -> Result<(), KernelFault> {
        self.own(va)?.store(word, Ordering::Release);
        Ok(())
    }
    unsafe fn kernel_compare_exchange(
        &self,
        va: Va,
        old: u64,
        new: u64,
    ) -> Result<Result<u64, u64>, KernelFault> {
        Ok(self.own(va)?.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire))
    }
}
// SAFETY: nothing is reached.
unsafe impl PhysMem for Few {
    unsafe fn reach(&self, _: Pa, _: Bytes) -> NonNull<u8> {
        unreachable!("no frame is touched")
    }
    unsafe fn load(&self, _: Pa) -> u64 {
        unreachable!("there are no tables")
    }
    unsafe fn store(&self, _: Pa, _: u64) {
        unreachable!("there are no tables")
    }
    unsafe fn compare_exchange(&self, _: Pa, _: u64, _: u64) -> Result<u64, u64> {
        unreachable!("there are no tables")
    }
    unsafe fn clear(&self, _: Pa, _: Bytes, _: Caching) {
        unreachable!("no frame is touched")
    }
    unsafe fn copy(&self, _: Pa, _: Pa, _: Bytes) {
        unreachable!("no frame is touched")
    }
}
impl Tlb for Few {
    fn activate(&self, _: Root, _: Kept) {
        unreachable!("nothing is cached")
    }
    fn invalidate(&self, _: &Invalidation) {
        unreachable!("nothing is cached")
    }
    fn ask(&self, _: &CpuSet, _: &Invalidation) -> Ticket {
        unreachable!("nothing is cached")
    }
    fn wait(&self, _: Ticket) {
        unreachable!("nothing is cached")
    }
    fn rules(&self) -> MmuRules {
        unreachable!("nothing is cached")
    }
}

loom::thread_local! {
    static ME: core::cell::Cell<u16> = core::cell::Cell::new(0);
}

impl Cpus for Few {
    fn me(&self) -> Cpu {
        Cpu(ME.with(core::cell::Cell::get))
    }
    fn count(&self) -> usize {
        CPUS.into()
    }
    fn pinned<R>(&self, work: impl FnOnce(Cpu) -> R) -> R {
        work(self.me())
    }
    fn relax(&self) {
        thread::yield_now();
    }
}
impl Clock for Few {
    fn now(&self) -> Nanos {
        Nanos(0)
    }
    fn yield_now(&self) {}
}
impl Witness for Few {}

fn zeros(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

/// What a stock borrows.
struct Lent {
    machine: Few,
    lines: Vec<PerCpu>,
    folios: Vec<AtomicU64>,
    states: Vec<AtomicU64>,
}

impl Lent {
    fn new() -> Lent {
        Lent {
            machine: Few::new(),
            lines: (0..CPUS).map(|_| PerCpu::cleared()).collect(),
            folios: zeros(Folios::layout(&[memory()], CpuCount(CPUS)).unwrap().0 as usize),
            states: zeros(2),
        }
    }
    fn stock(&'static self) -> Model {
        let folios = Folios::new(&[memory()], CpuCount(CPUS), &self.folios).unwrap();
        // SAFETY: no word of this machine is anybody else's.
        let kernel = unsafe { Tables::adopt(&self.machine, Pa::new(0), Half::Kernel) };
        let stretches = Stretches::new(&self.states);
        assert!(stretches.change(BLOCK, Stretch::Absent, Stretch::Ready));
        Stock::new(&self.machine, folios, kernel, ARRAY, stretches, &self.lines)
    }
}

fn memory() -> FrameRange {
    FrameRange::new(PAGE, Order::SIZE_2M.pages()).unwrap()
}

/// Runs every interleaving of `test` with up to so many preemptions, or all where there is no
/// bound. The test joins its threads.
pub(crate) fn explore(
    preemptions: impl Into<Option<usize>>,
    test: impl Fn(&'static Model) + Sync + Send + 'static,
) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions.into();
    builder.max_branches = 20_000;
    builder.check(move || {
        // Models run on small stacks, and what is made here is moved about.
        let maker = thread::Builder::new().stack_size(MAKER_WORDS).spawn(World::new);
        let world = maker.unwrap().join().unwrap();
        // SAFETY: it lives until below.
        test(unsafe { &*world.stock });
        world.end();
    });
}

/// A stock and what it borrows.
struct World {
    lent: *mut Lent,
    stock: *mut Model,
}

// SAFETY: the thread that makes it has ended when another one gets it.
unsafe impl Send for World {}

impl World {
    fn new() -> World {
        let lent = Box::into_raw(Box::new(Lent::new()));
        // SAFETY: it lives as long as the stock.
        let stock = Box::into_raw(Box::new(unsafe { &*lent }.stock()));
        World { lent, stock }
    }
    /// The threads are joined: nothing refers to the stock any more.
    fn end(self) {
        // SAFETY: both came from a box, and only the stock refers to what it borrows.
        unsafe {
            drop(Box::from_raw(self.stock));
            drop(Box::from_raw(self.lent));
        }
    }
}

/// Runs `work` on a CPU of its own; the test itself is on CPU 0.
pub(crate) fn on<R: 'static>(cpu: u16, work: impl FnOnce() -> R + 'static) -> JoinHandle<R> {
    thread::spawn(move || {
        ME.with(|me| me.set(cpu));
        work()
    })
}

/// The first free block of 2^`order` frames.
pub(crate) fn claim(stock: &Model, order: u8) -> Claim {
    let claim = stock.claim(Order::new(order).unwrap(), Class::Movable).unwrap();
    assert!(claim.frames().end() <= PAGE.add(Pages::new(DESCRIBED as u64)));
    claim
}

/// An anonymous folio of 2^`order` frames, every page of which is mapped once.
pub(crate) fn folio(stock: &Model, order: u8) -> Frame {
    let (claim, origin) = (claim(stock, order), origin());
    let pages = claim.order().pages().get();
    stock.enlist(claim, pages, origin)
}

/// Where folios are made.
pub(crate) fn origin() -> Origin {
    let index = crate::frame::Index::of(Va::new(0), AnonOffset::NONE);
    Origin { tree: Frame::new(0), creator: Frame::new(0), index }
}

/// What a flush gives.
pub(crate) fn flushed() -> Flushed {
    // SAFETY: the machine has no translations.
    unsafe { Flushed::waited() }
}

/// Nobody has anything: all memory is free, and every descriptor is plain.
pub(crate) fn all_is_free(stock: &Model) {
    assert_eq!(stock.folios.free_frames(), Order::SIZE_2M.pages());
    for nth in 0..DESCRIBED as u64 {
        assert_eq!(stock.seen(PAGE.add(Pages::new(nth))), crate::frame::Identity::PLAIN);
    }
}
