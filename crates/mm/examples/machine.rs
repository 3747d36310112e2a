//! A whole machine, and the manager on it. It has one CPU and 32 MiB, and caches no translation:
//! each access walks the tables, so nothing is ever stale.
#![allow(unsafe_code)]

use foliant::fault::Orders;
use foliant::machine::{
    Accessed, Caching, Clock, Cpus, Faults, Invalidation, Kept, KernelFault, KernelVa, MmuRules,
    PhysMem, Replace, Root, Ticket, Tlb, Witness,
};
use foliant::manager::Setup;
use foliant::space::{Flags, MapRequest, Place};
use foliant::table::{Attrs, Entry, Half, Tables, X86_64};
use foliant::units::{
    Bytes, Cpu, CpuSet, FRAME_BYTES, Frame, FrameRange, Nanos, Order, Pa, Pages, Va,
};
use foliant::{Access, Manager, Outcome, Policy};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Memory begins at 1 MiB.
const FIRST: Frame = Frame::new(0x100);
const PAGES: Pages = Pages::new(0x2000);

struct Machine {
    words: Vec<AtomicU64>,
    /// The word where a page begins, for pointers are as aligned as addresses.
    first: usize,
    /// The top tables that the CPU runs.
    user: AtomicU64,
    kernel: AtomicU64,
}

impl Machine {
    fn new() -> Machine {
        let words = (PAGES.get() + 1) * FRAME_BYTES / 8;
        let words: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
        let first = words.as_ptr().align_offset(FRAME_BYTES as usize);
        Machine { words, first, user: AtomicU64::new(0), kernel: AtomicU64::new(0) }
    }
    fn words(&self, pa: Pa, bytes: Bytes) -> &[AtomicU64] {
        let at = self.first + (pa.get() - FIRST.pa().get()) as usize / 8;
        &self.words[at..at + bytes.get() as usize / 8]
    }
    fn word(&self, pa: Pa) -> &AtomicU64 {
        &self.words(pa, Bytes::new(8))[0]
    }
    /// What the memory management unit does.
    fn translate(&self, root: &AtomicU64, half: Half, va: Va) -> Option<(&AtomicU64, Attrs)> {
        // SAFETY: the manager activated this root.
        let tables: Tables<'_, Machine, X86_64<4>> =
            unsafe { Tables::adopt(self, Pa::new(root.load(Acquire)), half) };
        let found = tables.walk(va);
        let Entry::Leaf { pa, attrs } = found.entry else { return None };
        Some((self.word(pa.add(va.offset_from(found.va))), attrs))
    }
    fn of_kernel(&self, va: Va) -> Result<&AtomicU64, KernelFault> {
        self.translate(&self.kernel, Half::Kernel, va)
            .map(|found| found.0)
            .ok_or(KernelFault { va })
    }
    /// A program's access, or `None` where it faults.
    fn of_program(&self, va: Va, needs: Attrs) -> Option<&AtomicU64> {
        let (word, attrs) = self.translate(&self.user, Half::User, va)?;
        attrs.has(needs | Attrs::USER).then_some(word)
    }
}

// SAFETY: the words live as long as the machine, and no two addresses share one.
unsafe impl PhysMem for Machine {
    unsafe fn reach(&self, pa: Pa, bytes: Bytes) -> NonNull<u8> {
        NonNull::from(self.words(pa, bytes)).cast()
    }
    unsafe fn load(&self, pa: Pa) -> u64 {
        self.word(pa).load(Acquire)
    }
    unsafe fn store(&self, pa: Pa, word: u64) {
        self.word(pa).store(word, Release);
    }
    unsafe fn compare_exchange(&self, pa: Pa, old: u64, new: u64) -> Result<u64, u64> {
        self.word(pa).compare_exchange(old, new, AcqRel, Acquire)
    }
    unsafe fn clear(&self, pa: Pa, bytes: Bytes, _: Caching) {
        self.words(pa, bytes).iter().for_each(|word| word.store(0, Relaxed));
    }
    unsafe fn copy(&self, from: Pa, to: Pa, bytes: Bytes) {
        let words = self.words(from, bytes).iter().zip(self.words(to, bytes));
        words.for_each(|(from, to)| to.store(from.load(Relaxed), Relaxed));
    }
}

// SAFETY: an access reaches the word that the kernel's tables name, and nothing else.
unsafe impl KernelVa for Machine {
    unsafe fn kernel_load(&self, va: Va) -> Result<u64, KernelFault> {
        Ok(self.of_kernel(va)?.load(Acquire))
    }
    unsafe fn kernel_store(&self, va: Va, word: u64) -> Result<(), KernelFault> {
        self.of_kernel(va).map(|at| at.store(word, Release))
    }
    unsafe fn kernel_compare_exchange(
        &self,
        va: Va,
        old: u64,
        new: u64,
    ) -> Result<Result<u64, u64>, KernelFault> {
        Ok(self.of_kernel(va)?.compare_exchange(old, new, AcqRel, Acquire))
    }
}

impl Tlb for Machine {
    fn activate(&self, root: Root, _: Kept) {
        self.user.store(root.user.get(), Release);
        self.kernel.store(root.kernel.get(), Release);
    }
    fn invalidate(&self, _: &Invalidation) {} // nothing is cached,
    fn ask(&self, _: &CpuSet, _: &Invalidation) -> Ticket {
        Ticket::new(0) // and there is nobody else
    }
    fn wait(&self, _: Ticket) {}
    fn rules(&self) -> MmuRules {
        MmuRules {
            replace: Replace::InPlace,
            accessed: Accessed::Independent,
            faults: Faults::EndTranslation,
            ceiling_entries: 33,
        }
    }
}

impl Cpus for Machine {
    fn me(&self) -> Cpu {
        Cpu::new(0)
    }
    fn count(&self) -> usize {
        1
    }
    fn pinned<R>(&self, work: impl FnOnce(Cpu) -> R) -> R {
        work(Cpu::new(0))
    }
    fn relax(&self) {}
}

impl Clock for Machine {
    fn now(&self) -> Nanos {
        Nanos::new(0) // it has no clock, so nothing takes time
    }
    fn yield_now(&self) {}
}

impl Witness for Machine {}

fn main() {
    let machine = Machine::new();
    let memory = [FrameRange::new(FIRST, PAGES).unwrap()];
    let size = Order::fitting(Bytes::new(64 << 10)).unwrap();
    let setup = Setup::of(&memory, Policy::always(Orders::of(size)));
    let manager: Manager<'_, Machine, X86_64<4>> = Manager::new(&machine, &setup).unwrap();

    // A program asks for 1 MiB, and stores to it: a fault, which the handler hands to the manager.
    let program = manager.create(None).unwrap();
    manager.switch(Some(program)).unwrap();
    let (place, bytes) = (Place::Hint(Va::new(1 << 30)), Bytes::new(1 << 20));
    let request = MapRequest { place, bytes, flags: Flags::READ_WRITE, tag: 0 };
    let area = manager.map(program, &request).unwrap();
    let reach = |needs| machine.of_program(area.start(), needs);
    assert!(reach(Attrs::WRITE).is_none());
    assert_eq!(manager.fault(program, area.start(), Access::Write), Outcome::Mapped(size));
    reach(Attrs::WRITE).unwrap().store(42, Relaxed); // it is made again
    assert_eq!(reach(Attrs::NONE).unwrap().load(Relaxed), 42);
    assert_eq!(manager.pages(program), Some(Pages::new(16)));

    // It gives the memory back, and ends.
    manager.unmap(program, area).unwrap();
    assert!(reach(Attrs::NONE).is_none());
    manager.switch(None).unwrap();
    manager.end(program).unwrap();
    println!("{} of {} pages are free", manager.memory().free.get(), PAGES.get());
}
