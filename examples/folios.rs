//! The folio allocator alone: no machine, no page tables, no manager.
//!
//! Whoever hands out physical memory in blocks can use it: a boot loader, a hypervisor, a kernel
//! with page tables of its own. It keeps its state in words that you lend, touches no frame, takes
//! no lock, and answers misuse with an error that names what is wrong.
//!
//! Run it with `cargo run --example folios`.

use foliant::folio::{Class, CpuCount, Folios, FrameState, Misuse, Word};
use foliant_units::{Cpu, Frame, FrameRange, Order, Pages};
use std::error::Error;

/// 64 KiB.
const MEDIUM: Order = Order::new(4).unwrap();

fn main() -> Result<(), Box<dyn Error>> {
    // 1 GiB from 1 MiB on, and 256 MiB behind a hole.
    let range = |start: u64, pages: u64| FrameRange::new(Frame::new(start), Pages::new(pages));
    let memory =
        [range(0x100, 0x4_0000).ok_or("no range")?, range(0x10_0000, 0x1_0000).ok_or("no range")?];

    // It says how many words it needs for its state: some 25 for each 2 MiB.
    let cpus = CpuCount(2);
    let need = Folios::layout(&memory, cpus)?;
    let lent: Vec<Word> = (0..need.0).map(|_| Word::new(0)).collect();
    let folios = Folios::new(&memory, cpus, &lent)?;
    let all = folios.free_frames();
    assert_eq!(all, Pages::new(0x5_0000));
    println!("{} frames are free, {} KiB of state", all.get(), need.0 * 8 / 1024);

    // Every order from 4 KiB to 1 GiB, always naturally aligned.
    let page = folios.alloc(Cpu(0), Order::BASE, Class::Movable)?;
    let huge = folios.alloc(Cpu(0), Order::SIZE_2M, Class::Movable)?;
    assert!(huge.is_aligned(Order::SIZE_2M.pages()));
    assert_eq!(
        folios.state(Frame::new(huge.get() + 7)),
        FrameState::Allocated { head: huge, order: Order::SIZE_2M }
    );
    println!("a page at frame {page}, 2 MiB at frame {huge}");

    // A huge block becomes smaller ones in place; each is freed for itself.
    folios.split(huge, Order::SIZE_2M, MEDIUM)?;
    folios.free(Cpu(0), huge, MEDIUM)?;

    // Misuse is refused, and changes nothing.
    let twice = folios.free(Cpu(0), huge, MEDIUM);
    assert_eq!(twice, Err(Misuse::NotAllocated { frame: huge, order: MEDIUM }));
    println!("freed twice: {}", twice.unwrap_err());
    for part in 1..32 {
        folios.free(Cpu(1), Frame::new(huge.get() + part * 16), MEDIUM)?;
    }

    // Both CPUs take and give back at once, without a lock. Small blocks gather in few blocks of 2
    // MiB, so the others stay whole.
    std::thread::scope(|scope| {
        for cpu in [Cpu(0), Cpu(1)] {
            let folios = &folios;
            scope.spawn(move || {
                let taken: Vec<Frame> = (0..1000)
                    .map_while(|_| folios.alloc(cpu, Order::BASE, Class::Movable).ok())
                    .collect();
                assert_eq!(taken.len(), 1000);
                let census = folios.census();
                let whole: u64 = Order::all()
                    .filter(|order| *order >= Order::SIZE_2M)
                    .map(|order| census.blocks(order) << (order.get() - Order::SIZE_2M.get()))
                    .sum();
                assert!(whole >= 630, "2000 pages lie in a few of 640 blocks: {whole}");
                for frame in taken {
                    folios.free(cpu, frame, Order::BASE).expect("it was taken just now");
                }
            });
        }
    });
    folios.free(Cpu(0), page, Order::BASE)?;

    // A block whose frames all came back is whole again at once: nothing is merged later.
    assert_eq!(folios.free_frames(), all);
    let largest = folios.census().largest().ok_or("nothing is free")?;
    println!("all back; the largest free block has {}", largest.bytes());
    Ok(())
}
