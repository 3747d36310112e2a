//! Foliant behind the traits of the crate `x86_64`, with that crate's own tables on the other side.
#![allow(unsafe_code)]

use crate::common::*;
use foliant::Policy;
use foliant::adapt::{Frames, OneCpu};
use foliant::folio::{Class, CpuCount, Folios, Misuse, Word};
use foliant::manager::NotLent;
use foliant::table::Attrs;
use foliant_machine::PhysMem;
use foliant_sim::Sim;
use foliant_units::{Bytes, Cpu, Frame, FrameRange, Order, Pa, Pages};
use x86_64::structures::paging::mapper::{MappedFrame, Mapper, Translate, TranslateResult};
use x86_64::structures::paging::{
    FrameAllocator, FrameDeallocator, OffsetPageTable, Page, PageSize, PageTable, PageTableFlags,
    PhysFrame, Size1GiB, Size2MiB, Size4KiB,
};
use x86_64::{PhysAddr, VirtAddr};

/// An allocator of 2 GiB, alone.
fn alone(test: impl FnOnce(&Folios<'_>)) {
    let memory = [FrameRange::new(Frame::new(0x4_0000), Pages::new(2 << 18)).unwrap()];
    let need = Folios::layout(&memory, CpuCount(1)).unwrap();
    let lent: Vec<Word> = (0..need.0).map(|_| Word::new(0)).collect();
    test(&Folios::new(&memory, CpuCount(1), &lent).unwrap());
}

fn seat<'a, 'm>(folios: &'a Folios<'m>) -> Frames<OneCpu<'a, 'm>> {
    Frames::new(OneCpu { folios, cpu: Cpu(0), class: Class::Table })
}

fn number<S: PageSize>(frame: PhysFrame<S>) -> Frame {
    Pa::new(frame.start_address().as_u64()).frame()
}

#[test]
fn frames_of_every_size_come_and_go() {
    alone(|folios| {
        let free = folios.free_frames();
        let mut frames = seat(folios);
        let small: PhysFrame<Size4KiB> = frames.allocate_frame().unwrap();
        let size_2m: PhysFrame<Size2MiB> = frames.allocate_frame().unwrap();
        let size_1g: PhysFrame<Size1GiB> = frames.allocate_frame().unwrap();
        assert_eq!(folios.free_frames().get(), free.get() - 1 - 512 - (1 << 18));
        let none: Option<PhysFrame<Size1GiB>> = frames.allocate_frame();
        assert_eq!(none, None, "the other gigabyte is broken up");
        // SAFETY: nobody uses them.
        unsafe { frames.deallocate_frame(size_1g) };
        // SAFETY: nobody uses them.
        unsafe { frames.deallocate_frame(size_2m) };
        // SAFETY: nobody uses them.
        unsafe { frames.deallocate_frame(small) };
        assert_eq!((folios.free_frames(), frames.refused()), (free, None));
    });
}

#[test]
fn what_was_not_handed_out_is_not_taken_back() {
    alone(|folios| {
        let mut frames = seat(folios);
        let small: PhysFrame<Size4KiB> = frames.allocate_frame().unwrap();
        let give = |frames: &mut Frames<OneCpu<'_, '_>>| {
            // SAFETY: nobody uses it.
            unsafe { frames.deallocate_frame(small) };
            frames.refused()
        };
        assert_eq!(give(&mut frames), None);
        let (frame, order) = (number(small), Order::BASE);
        let free = NotLent::NoBlock(Misuse::NotAllocated { frame, order });
        assert_eq!(give(&mut frames), Some(free));
        let foreign = PhysFrame::<Size2MiB>::containing_address(PhysAddr::new(0));
        // SAFETY: nobody uses it.
        unsafe { frames.deallocate_frame(foreign) };
        let (frame, order) = (Frame::new(0), Order::SIZE_2M);
        let foreign = NotLent::NoBlock(Misuse::Foreign { frame, order });
        assert_eq!(frames.refused(), Some(foreign));
    });
}

/// A frame whose address the crate cannot name is not handed out, and not lost.
#[test]
fn frames_beyond_52_bits_stay_where_they_are() {
    let memory = [FrameRange::new(Frame::new(1 << 40), Pages::new(512)).unwrap()];
    let need = Folios::layout(&memory, CpuCount(1)).unwrap();
    let lent: Vec<Word> = (0..need.0).map(|_| Word::new(0)).collect();
    let folios = Folios::new(&memory, CpuCount(1), &lent).unwrap();
    let mut frames = seat(&folios);
    let none: Option<PhysFrame<Size4KiB>> = frames.allocate_frame();
    assert_eq!((none, frames.refused()), (None, None));
    assert_eq!(folios.free_frames(), Pages::new(512));
}

/// Where the simulated machine's memory lies for that crate: it is one range, so one offset says it
/// all.
fn offset(sim: &Sim) -> VirtAddr {
    let start = sim.config().memory[0].start().pa();
    // SAFETY: the range is the machine's; nothing is read here.
    let at = unsafe { sim.reach(start, Bytes::new(8)) };
    VirtAddr::new(at.as_ptr() as u64 - start.get())
}

/// The crate's tables over frames that the manager lends: its whole `Mapper`, huge pages included.
#[test]
fn a_mapper_of_the_crate_over_frames_of_the_manager() {
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    mm.describe_all().unwrap();
    let first = mm.lend(Order::BASE).unwrap(); // from now on there are bits for what is lent
    mm.take_back(first, Order::BASE).unwrap();
    let free = mm.memory().free;
    let mut frames = Frames::new(&*mm);
    let root: PhysFrame<Size4KiB> = frames.allocate_frame().unwrap();
    let offset = offset(&sim);
    let root_at = (offset + root.start_address().as_u64()).as_mut_ptr::<PageTable>();
    // SAFETY: the frame was lent just now.
    unsafe { root_at.write(PageTable::new()) };
    // SAFETY: as above, and it is a table now.
    let root_table = unsafe { &mut *root_at };
    // SAFETY: all of the machine's memory is at that offset.
    let mut tables = unsafe { OffsetPageTable::new(root_table, offset) };
    let size_2m: PhysFrame<Size2MiB> = frames.allocate_frame().unwrap();
    let page = Page::<Size2MiB>::containing_address(VirtAddr::new(1 << 40));
    let flags = PageTableFlags::PRESENT | PageTableFlags::WRITABLE;
    // SAFETY: nobody runs these tables.
    unsafe { tables.map_to(page, size_2m, flags, &mut frames) }.unwrap().ignore();
    assert_eq!(mm.memory().free.get(), free.get() - 512 - 3, "a page, a top table, two tables");
    assert_eq!(
        tables.translate_addr(VirtAddr::new((1 << 40) + 5)),
        Some(size_2m.start_address() + 5)
    );

    let (back, _) = tables.unmap(page).unwrap();
    // SAFETY: nobody runs these tables, so nothing has to be flushed.
    unsafe { frames.deallocate_frame(back) };
    // SAFETY: as above.
    unsafe { x86_64::structures::paging::mapper::CleanUp::clean_up(&mut tables, &mut frames) };
    // SAFETY: as above.
    unsafe { frames.deallocate_frame(root) };
    assert_eq!((mm.memory().free, frames.refused()), (free, None));
    assert!(sim.finish().is_empty());
}

/// Tables of the manager, read by the adapter and by the crate's own walker: the same answers.
#[test]
fn addresses_are_found_as_the_crate_finds_them() {
    const ARRAY: u64 = 0xffff_8000_0000_0000;
    const OWN: u64 = 0xffff_c000_0000_0000;
    let sim = sim(1, 64);
    let mm = manager(&sim, Policy::BASE_ONLY);
    mm.leaves("tables that map_kernel needed");
    mm.describe_all().unwrap(); // by a leaf of 2 MiB, at the start of the kernel half
    let lent = mm.lend(Order::BASE).unwrap();
    mm.map_kernel(range(OWN, 4096), lent, Attrs::WRITE).unwrap();
    let tables = mm.kernel_tables();
    let ours = tables;
    let root = offset(&sim) + tables.root().get();
    // SAFETY: the top table of the kernel half, which nobody changes meanwhile.
    let root = unsafe { &mut *root.as_mut_ptr::<PageTable>() };
    // SAFETY: all of the machine's memory is at that offset.
    let theirs = unsafe { OffsetPageTable::new(root, offset(&sim)) };
    let mut seen = Vec::new();
    for at in [ARRAY, ARRAY + 0x1f_ffff, ARRAY + 0x20_0000, OWN, OWN + 0xfff, OWN + 0x1000] {
        let at = VirtAddr::new(at);
        let (our, their) = (ours.translate(at), theirs.translate(at));
        assert_eq!(format!("{our:?}"), format!("{their:?}"), "at {at:?}");
        seen.push(match our {
            TranslateResult::Mapped { frame: MappedFrame::Size2MiB(_), .. } => 'm',
            TranslateResult::Mapped { frame: MappedFrame::Size4KiB(_), .. } => 'b',
            TranslateResult::NotMapped => '-',
            other => panic!("{other:?}"),
        });
    }
    assert_eq!(seen, ['m', 'm', '-', 'b', 'b', '-']);
    let user = ours.translate(VirtAddr::new(0x1000));
    assert!(matches!(user, TranslateResult::NotMapped), "the other half is not these tables'");
}
