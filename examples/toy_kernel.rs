//! A toy kernel with Foliant in it, on a simulated machine of two CPUs.
//!
//! A kernel meets its memory manager in four places: at boot, where a page fault arrives, where a
//! program asks for memory, and where it gives some back. Each is one function here. The machine is
//! the simulator, which keeps stale translations as long as any hardware may, and whose checkers
//! watch; on silicon it is `foliant-x86` or an implementation of your own.
//!
//! Run it with `cargo run --example toy_kernel`.

use foliant::fault::Orders;
use foliant::manager::{Setup, SetupError};
use foliant::space::{Flags, MapError, MapRequest, Place, RangeError, SpaceId};
use foliant::{Access, Event, Manager, Outcome, Policy, table::X86_64};
use foliant_sim::{Config, Sim};
use foliant_units::{Bytes, Cpu, Frame, FrameRange, Order, Pages, Va, VaRange};
use std::error::Error;

/// The manager of this kernel: its machine, and x86-64 page tables of four levels.
type Memory<'m> = Manager<'m, Sim, X86_64<4>>;

/// 64 KiB.
const SMALL: Order = Order::new(4).unwrap();

struct Kernel<'m> {
    machine: &'m Sim,
    memory: Memory<'m>,
}

impl<'m> Kernel<'m> {
    /// Boots on CPU 0. The firmware said which memory there is, the loader where the kernel's image
    /// lies.
    fn boot(machine: &'m Sim, image: FrameRange) -> Result<Kernel<'m>, SetupError> {
        // Programs get folios of 64 KiB, and of 2 MiB where a whole one fits.
        let sizes = Orders::of(Order::SIZE_2M).with(Orders::of(SMALL));
        let policy = Policy::always(sizes);
        let setup = Setup { reserved: &[image], ..Setup::of(&machine.config().memory, policy) };
        let memory = Manager::new(machine, &setup)?;
        Ok(Kernel { machine, memory })
    }

    /// The page-fault handler. What it returns is a program's death.
    fn page_fault(&self, program: SpaceId, at: Va, access: Access) -> Result<(), Outcome> {
        match self.memory.fault(program, at, access) {
            end @ (Outcome::Refused(_) | Outcome::OutOfMemory | Outcome::OverLimit) => Err(end),
            _ => Ok(()), // the access is tried again
        }
    }

    /// The system call `mmap`, for memory that begins with zeros.
    fn mmap(&self, program: SpaceId, bytes: Bytes) -> Result<VaRange, MapError> {
        let place = Place::Hint(Va::new(0x4000_0000));
        self.memory.map(program, &MapRequest { place, bytes, flags: Flags::READ_WRITE, tag: 0 })
    }

    /// The system call `munmap`. When it returns no CPU can reach the memory any more.
    fn munmap(&self, program: SpaceId, range: VaRange) -> Result<(), RangeError> {
        self.memory.unmap(program, range)
    }
}

/// What a processor does for a program: it stores, and calls the page-fault handler until it can.
fn store(kernel: &Kernel<'_>, program: SpaceId, at: Va, value: u64) -> Result<(), Outcome> {
    while kernel.machine.user_store(at, 8, value).is_err() {
        kernel.page_fault(program, at, Access::Write)?;
    }
    Ok(())
}

/// The same for a load.
fn load(kernel: &Kernel<'_>, program: SpaceId, at: Va) -> Result<u64, Outcome> {
    loop {
        match kernel.machine.user_load(at, 8) {
            Ok(value) => return Ok(value),
            Err(_) => kernel.page_fault(program, at, Access::Read)?,
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let machine = Sim::new(Config::seeded(2, Bytes::new(64 << 20), 1))?;
    let image = FrameRange::new(Frame::new(512), Pages::new(300)).ok_or("no range")?;
    let kernel = Kernel::boot(&machine, image)?;
    let memory = &kernel.memory;
    machine.on(Cpu(1), || memory.online());
    // Descriptors of frames come with their first use; here at once, so that we can compare
    // afterwards.
    memory.describe_all()?;
    let free = memory.memory().free;
    println!("booted: {} of {} pages are free", free.get(), memory.memory().managed.get());

    // A program with two threads, one on each CPU.
    let program = memory.create(None)?;
    memory.switch(Some(program))?;
    machine.on(Cpu(1), || memory.switch(Some(program)))?;

    // It asks for 4 MiB and a bit. Nothing is there until it is touched.
    let heap = kernel.mmap(program, Bytes::new((4 << 20) + 0x2_0000))?;
    assert_eq!(memory.pages(program), Some(Pages::new(0)));

    // One store, one fault, 512 pages; behind the last whole 2 MiB, 16 pages.
    let (first, last) = (heap.start(), Va::new(heap.end().get() - 8));
    store(&kernel, program, first, 42).map_err(|end| format!("{end:?}"))?;
    store(&kernel, program, last, 43).map_err(|end| format!("{end:?}"))?;
    assert_eq!(memory.pages(program), Some(Pages::new(512 + 16)));
    println!("2 stores, {} faults, 528 pages", memory.total(Event::Fault));

    // The other thread sees it, without a fault: the tables are one, the translation caches are
    // not.
    let faults = memory.total(Event::Fault);
    assert_eq!(machine.on(Cpu(1), || load(&kernel, program, first)), Ok(42));
    assert_eq!(memory.total(Event::Fault), faults);

    // The memory goes. CPU 1 has a translation cached, so it is asked, once, for all of it.
    kernel.munmap(program, heap)?;
    println!("unmapped with {} shootdown", memory.total(Event::Shootdown));
    assert_eq!(memory.total(Event::Shootdown), 1);
    let dead = machine.on(Cpu(1), || load(&kernel, program, first));
    assert!(matches!(dead, Err(Outcome::Refused(_))), "{dead:?}");

    // The program ends, and all that it had is free again.
    memory.switch(None)?;
    machine.on(Cpu(1), || memory.switch(None))?;
    memory.end(program)?;
    println!("ended: {} pages are free", memory.memory().free.get());
    assert_eq!(memory.memory().free, free);

    // The machine's checkers saw every step: no stale translation, no page that was not cleared, no
    // leak.
    assert_eq!(machine.finish(), []);
    Ok(())
}
