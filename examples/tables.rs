//! Page tables and their flush alone: no allocator, no areas, no faults.
//!
//! A hypervisor, or a kernel that has a memory manager already, can take the tables of Foliant for
//! their huge leaves and for one flush per operation. You lend frames, which become tables where
//! one is missing; what was taken out is in a `Harvest`, and its flush is one call: every CPU that
//! runs the tables is asked, and only then the frames are used again.
//!
//! Run it with `cargo run --example tables`.
#![allow(unsafe_code, reason = "frames from outside Foliant are vouched for by whoever lends them")]

use foliant::claim::Claim;
use foliant::machine::{Caching, Kept, Owner, PhysMem, Root, Scope, Tlb, Witness};
use foliant::table::{Attrs, Half, Harvest, MapStop, Prune, Spare, Stop, Tables, X86_64};
use foliant::units::{Bytes, Cpu, CpuSet, Frame, FrameRange, Level, Order, Pages, Va, VaRange};
use foliant_sim::{Config, Sim};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let machine = Sim::new(Config::seeded(2, Bytes::new(64 << 20), 1))?;
    // Where frames for tables come from: here the machine's memory from the bottom, one after the
    // other.
    let memory = machine.config().memory[0];
    // SAFETY: memory of the machine that nobody has had yet, each frame once.
    let mut frames = memory.iter().map(|frame| unsafe { Claim::from_raw(frame, Order::BASE) });
    let top = frames.next().ok_or("no memory")?;
    // SAFETY: what is mapped below is memory that nobody else uses.
    let tables: Tables<'_, Sim, X86_64<4>> = unsafe { Tables::create(&machine, top, Half::User) };

    // 8 MiB and three pages, at an address and a frame that are both multiples of 2 MiB.
    let block = FrameRange::new(Frame::new(0x1000), Pages::new(4 * 512 + 3)).ok_or("no range")?;
    let bytes = block.pages().bytes();
    let range = VaRange::sized(Va::new(1 << 30), bytes).ok_or("no range")?;
    machine.owned(block, Owner::Claimed);
    // SAFETY: nobody uses these frames yet.
    unsafe { machine.clear(block.start().pa(), bytes, Caching::NonTemporal) };
    machine.owned(block, Owner::User);

    // One call: where a table is missing, a frame is lent.
    let (mut spare, mut lent) = (Spare::new(), 0);
    let lend = || frames.next().inspect(|_| lent += 1);
    let attrs = Attrs::USER | Attrs::WRITE;
    let done = tables.map_frames(range.start(), block, attrs, &mut spare, lend)?;
    assert_eq!((done.upto, done.why), (range.end(), MapStop::Done));
    assert!(spare.is_empty(), "nobody else made a table that we had a frame for");
    let leaves: Vec<Level> = tables.leaves(range).map(|leaf| leaf.level).collect();
    assert_eq!(leaves, [[Level::SIZE_2M; 4].as_slice(), &[Level::BASE; 3]].concat());
    println!("{} pages by {} leaves and {lent} tables", block.pages().get(), leaves.len());

    // Both CPUs run these tables, and CPU 1 caches a translation.
    let run = Root { user: tables.root(), kernel: tables.root() };
    for cpu in [Cpu::new(0), Cpu::new(1)] {
        machine.on(cpu, || machine.activate(run, Kept::Nothing));
    }
    machine.on(Cpu::new(1), || machine.user_store(range.start(), 8, 7))?;

    // Taken out of the tables is not taken out of the caches: CPU 1 still gets through.
    let mut harvest = Harvest::new();
    let swept = tables.unmap(range, Prune::Emptied, &mut harvest)?;
    assert_eq!((swept.upto, swept.why), (range.end(), Stop::Done));
    assert_eq!(harvest.runs().count(), 2, "one run of each size");
    assert_eq!(machine.on(Cpu::new(1), || machine.user_load(range.start(), 8)), Ok(7));

    // After the flush it does not, and the frames may have another owner.
    let runs = harvest.flush(&machine, Scope::Space(tables.root()), &CpuSet::first(2));
    assert_eq!(runs.map(|run| run.range().pages().get()).sum::<u64>(), block.pages().get());
    assert!(machine.on(Cpu::new(1), || machine.user_load(range.start(), 8)).is_err());
    machine.owned(block, Owner::Free);
    while let Some(table) = harvest.pop_table() {
        machine.owned(FrameRange::new(table.frame(), Order::BASE.pages()).ok_or("")?, Owner::Free);
    }
    println!("{} shootdown for all of it", machine.counts().shootdowns);

    // The machine's checkers would have said so if a freed frame could still be reached.
    assert_eq!(machine.violations(), []);
    Ok(())
}
