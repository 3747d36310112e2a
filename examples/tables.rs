//! Page tables and their flush alone: no allocator, no areas, no faults.
//!
//! A hypervisor, or a kernel that has a memory manager already, can take the tables of Foliant for
//! their huge leaves and for one flush per operation. The room allocates nothing and flushes
//! nothing: you put frames into a `Spare`, and find in a `Harvest` what was taken out. What you owe
//! it is shown in `flush` below: ask every CPU that runs the tables, wait, and only then use the
//! frames again.
//!
//! Run it with `cargo run --example tables`.
#![allow(unsafe_code, reason = "frames from outside Foliant are vouched for by whoever lends them")]

use foliant::table::{Attrs, Half, Harvest, MapStop, Prune, Spare, Stop, Tables, X86_64};
use foliant_machine::{
    Caching, Invalidation, Item, Kept, Owner, PhysMem, Root, Scope, Tlb, Witness,
};
use foliant_sim::{Config, Sim};
use foliant_units::{
    Bytes, Cpu, CpuSet, FRAME_BYTES, Frame, FrameRange, Level, Order, Pages, Va, VaRange,
};
use std::error::Error;

/// Where frames for tables come from: here the machine's memory from the bottom, one after the
/// other.
struct Frames<'m>(&'m Sim, u64);

impl Frames<'_> {
    fn table(&mut self) -> Frame {
        let frame = Frame::new(self.1);
        self.1 += 1;
        self.0.owned(FrameRange::new(frame, Pages::new(1)).expect("a frame"), Owner::Table);
        // SAFETY: the frame is memory of the machine, and nobody has had it yet.
        unsafe { self.0.clear(frame.pa(), Bytes::new(FRAME_BYTES), Caching::Cached) };
        frame
    }
}

/// Ends what `cpus` may have cached of the leaves in `harvest`.
fn flush(machine: &Sim, root: Root, cpus: &CpuSet, harvest: &mut Harvest) {
    let mut what = Invalidation::none(Scope::Space(root.user));
    let tables = match harvest.tables() {
        0 => foliant_machine::Tables::Kept,
        _ => foliant_machine::Tables::Removed,
    };
    for run in harvest.runs() {
        if what.push(Item { range: run.range(), level: run.level, tables }).is_err() {
            what.widen(); // too many ranges: everything of this space
            break;
        }
    }
    let ticket = machine.ask(cpus, &what);
    machine.invalidate(&what);
    machine.wait(ticket);
    harvest.clear_runs();
}

fn main() -> Result<(), Box<dyn Error>> {
    let machine = Sim::new(Config::seeded(2, Bytes::new(64 << 20), 1))?;
    let mut frames = Frames(&machine, machine.config().memory[0].start().get());
    let root = frames.table().pa();
    // SAFETY: the frame is cleared, and a top table from here on.
    let tables: Tables<'_, Sim, X86_64<4>> = unsafe { Tables::adopt(&machine, root, Half::User) };

    // 8 MiB and three pages, at an address and a frame that are both multiples of 2 MiB.
    let block = FrameRange::new(Frame::new(0x1000), Pages::new(4 * 512 + 3)).ok_or("no range")?;
    let bytes = Bytes::new(block.pages().get() * FRAME_BYTES);
    let range = VaRange::sized(Va::new(1 << 30), bytes).ok_or("no range")?;
    machine.owned(block, Owner::Claimed);
    // SAFETY: nobody uses these frames yet.
    unsafe { machine.clear(block.start().pa(), bytes, Caching::NonTemporal) };
    machine.owned(block, Owner::User);

    // Mapping stops where a table is missing, says how far it came, and goes on with another one.
    let (mut at, mut spare, mut lent) = (range.start(), Spare::new(), 0);
    loop {
        let rest = VaRange::new(at, range.end()).ok_or("no range")?;
        let first =
            Frame::new(block.start().get() + rest.start().offset_from(range.start()) / FRAME_BYTES);
        let attrs = Attrs::USER | Attrs::WRITE;
        let done = tables.map(rest, first, attrs, Level::SIZE_1G, &mut spare)?;
        at = done.upto;
        match done.why {
            MapStop::Done => break,
            MapStop::NeedTable(_) => {
                // SAFETY: the frame was cleared just now, and is nobody else's.
                unsafe { spare.lend(frames.table()) }
                    .map_err(|frame| format!("{frame} is over"))?;
                lent += 1;
            }
            MapStop::Live(va) => return Err(format!("{va} is mapped already").into()),
        }
    }
    let leaves: Vec<Level> = tables.leaves(range).map(|leaf| leaf.level).collect();
    assert_eq!(leaves, [[Level::SIZE_2M; 4].as_slice(), &[Level::BASE; 3]].concat());
    println!("{} pages by {} leaves and {lent} tables", block.pages().get(), leaves.len());

    // Both CPUs run these tables, and CPU 1 caches a translation.
    let run = Root { user: root, kernel: root };
    for cpu in [Cpu(0), Cpu(1)] {
        machine.on(cpu, || machine.activate(run, Kept::Nothing));
    }
    machine.on(Cpu(1), || machine.user_store(range.start(), 8, 7))?;

    // Taken out of the tables is not taken out of the caches: CPU 1 still gets through.
    let mut harvest = Harvest::new();
    let swept = tables.unmap(range, Prune::Emptied, &mut harvest)?;
    assert_eq!((swept.upto, swept.why), (range.end(), Stop::Done));
    assert_eq!(harvest.runs().count(), 2, "one run of each size");
    assert_eq!(machine.on(Cpu(1), || machine.user_load(range.start(), 8)), Ok(7));

    // After the flush it does not, and the frames may have another owner.
    flush(&machine, run, &CpuSet::first(2), &mut harvest);
    assert!(machine.on(Cpu(1), || machine.user_load(range.start(), 8)).is_err());
    machine.owned(block, Owner::Free);
    while let Some(table) = harvest.pop_table() {
        machine.owned(FrameRange::new(table.frame(), Order::BASE.pages()).ok_or("")?, Owner::Free);
    }
    println!("{} shootdown for all of it", machine.counts().shootdowns);

    // The machine's checkers would have said so if a freed frame could still be reached.
    assert_eq!(machine.violations(), []);
    Ok(())
}
