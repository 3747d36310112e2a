//! Mapping and unmapping 1 GiB, against the crates `x86_64` and `page_table_multiarch`.
//!
//! Same work for all: fresh tables each round in the same host memory, table frames from a pool
//! that is made beforehand, each frame cleared inside the timed stretch, no TLB flush by anybody,
//! every page writable. The three take turns; a figure is the median of the rounds. Foliant does
//! more where the table says so: it locks each table, checks the whole range before it changes
//! anything, reports what it unmapped in runs, and in the last rows also saves what walkers note
//! meanwhile, or removes the tables.
#![allow(unsafe_code)]

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    println!("the peers of this bench build on x86-64 only");
}

#[cfg(target_arch = "x86_64")]
fn main() {
    x86::main();
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use core::ptr::NonNull;
    use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    use foliant::table::{
        Attrs, Half, Harvest, MapStop, Prune, Spare, Stop, Swept, Tables, X86_64,
    };
    use foliant_machine::{Caching, Cpus, PhysMem};
    use foliant_units::{Bytes, Cpu, Frame, Level, Pa, Va, VaRange};
    use page_table_multiarch::{MappingFlags, PageTable64, PagingHandler, PagingMetaData};
    use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
    use std::time::Instant;
    use x86_64::structures::paging as peer;
    use x86_64::structures::paging::mapper::Mapper;

    const ROUNDS: usize = 15;
    const BYTES: u64 = 1 << 30;
    const VA: u64 = 1 << 40;
    /// Not a multiple of 1 GiB, so that nobody takes a 1 GiB leaf.
    const PA: u64 = 2 << 20;
    const FRAMES: usize = 640;

    /// Host memory that stands for physical memory from address 0 on; frame 0 is never handed out.
    struct Host {
        base: NonNull<u8>,
        next: AtomicUsize,
    }

    // SAFETY: the memory is reached through atomics and, while a frame is cleared, by its one
    // owner.
    unsafe impl Sync for Host {}

    static HOST: std::sync::OnceLock<Host> = std::sync::OnceLock::new();

    // SAFETY: the shared value gives out the address only.
    unsafe impl Send for Host {}

    fn host() -> &'static Host {
        HOST.get_or_init(|| {
            let layout = Layout::from_size_align(FRAMES * 4096, 2 << 20).expect("a layout");
            // SAFETY: the layout is not empty.
            let base = unsafe { alloc_zeroed(layout) };
            let base = NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout));
            Host { base, next: AtomicUsize::new(1) }
        })
    }

    impl Host {
        fn reset(&self) {
            self.next.store(1, Ordering::Relaxed);
        }
        fn frame(&self) -> Frame {
            let frame = self.next.load(Ordering::Relaxed);
            self.next.store(frame + 1, Ordering::Relaxed);
            assert!(frame < FRAMES, "the pool is too small");
            Frame::new(frame as u64)
        }
        fn cleared(&self) -> Frame {
            let frame = self.frame();
            // SAFETY: the frame was handed out just now, nobody else uses it.
            unsafe { self.clear(frame.pa(), Bytes::new(4096), Caching::Cached) };
            frame
        }
        fn word(&self, pa: Pa) -> &AtomicU64 {
            // SAFETY: table words lie in frames of the pool.
            let at = unsafe { self.base.add(pa.get() as usize) };
            // SAFETY: they are 8-byte aligned and live for ever, and all access is atomic.
            unsafe { at.cast::<AtomicU64>().as_ref() }
        }
    }

    // SAFETY: frames of the pool are host memory that lives for ever and does not overlap.
    unsafe impl PhysMem for Host {
        unsafe fn reach(&self, pa: Pa, _: Bytes) -> NonNull<u8> {
            // SAFETY: the caller names a frame of the pool.
            unsafe { self.base.add(pa.get() as usize) }
        }
        #[inline]
        unsafe fn load(&self, pa: Pa) -> u64 {
            self.word(pa).load(Ordering::Acquire)
        }
        #[inline]
        unsafe fn store(&self, pa: Pa, word: u64) {
            self.word(pa).store(word, Ordering::Release);
        }
        #[inline]
        unsafe fn compare_exchange(&self, pa: Pa, old: u64, new: u64) -> Result<u64, u64> {
            self.word(pa).compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
        }
        unsafe fn clear(&self, pa: Pa, bytes: Bytes, _: Caching) {
            // SAFETY: the caller owns these frames of the pool.
            let at = unsafe { self.base.add(pa.get() as usize) };
            // SAFETY: as above.
            unsafe { at.write_bytes(0, bytes.get() as usize) };
        }
        unsafe fn copy(&self, _: Pa, _: Pa, _: Bytes) {
            unreachable!("nothing is copied here");
        }
    }

    impl Cpus for Host {
        fn me(&self) -> Cpu {
            Cpu(0)
        }
        fn count(&self) -> usize {
            1
        }
        fn pinned<R>(&self, work: impl FnOnce(Cpu) -> R) -> R {
            work(Cpu(0))
        }
        fn relax(&self) {
            std::hint::spin_loop();
        }
    }

    /// Nanoseconds of one round.
    #[derive(Clone, Copy)]
    struct Round {
        map: f64,
        unmap: f64,
    }

    fn timed<R>(work: impl FnOnce() -> R) -> (f64, R) {
        let start = Instant::now();
        let result = work();
        (start.elapsed().as_nanos() as f64, result)
    }

    fn refill(spare: &mut Spare) {
        while !spare.is_full() {
            // SAFETY: the frame is the pool's, cleared, and handed out once per round.
            unsafe { spare.lend(host().cleared()) }.expect("there is room");
        }
    }

    fn foliant(level: Level, attrs: Attrs, prune: Prune) -> Round {
        host().reset();
        let root = host().cleared().pa();
        // SAFETY: a cleared frame of the pool; nobody runs these tables.
        let tables: Tables<'_, Host, X86_64<4>> =
            unsafe { Tables::adopt(host(), root, Half::User) };
        let all = VaRange::sized(Va::new(VA), Bytes::new(BYTES)).expect("a range");
        let (map, ()) = timed(|| {
            let mut spare = Spare::new();
            let mut at = all.start();
            loop {
                refill(&mut spare);
                let rest = VaRange::new(at, all.end()).expect("a range");
                let frame = Frame::new((PA + at.offset_from(all.start())) >> 12);
                let done = tables.map(rest, frame, attrs, level, &mut spare).expect("free space");
                at = done.upto;
                if done.why == MapStop::Done {
                    break;
                }
            }
            while spare.pop().is_some() {}
        });
        let (unmap, ()) = timed(|| {
            let mut harvest = Harvest::new();
            let mut at = all.start();
            loop {
                let rest = VaRange::new(at, all.end()).expect("a range");
                let Swept { upto, why } =
                    tables.unmap(rest, prune, &mut harvest).expect("a good range");
                at = upto;
                harvest.clear_runs();
                while harvest.pop_table().is_some() {}
                if why == Stop::Done {
                    break;
                }
            }
        });
        Round { map, unmap }
    }

    struct Pool;

    // SAFETY: each frame of the pool is handed out once per round.
    unsafe impl peer::FrameAllocator<peer::Size4KiB> for Pool {
        fn allocate_frame(&mut self) -> Option<peer::PhysFrame> {
            let pa = x86_64::PhysAddr::new(host().frame().pa().get());
            Some(peer::PhysFrame::containing_address(pa))
        }
    }

    fn x86_64<S: peer::PageSize + std::fmt::Debug>() -> Round
    where
        for<'a> peer::OffsetPageTable<'a>: Mapper<S>,
    {
        host().reset();
        let base = x86_64::VirtAddr::from_ptr(host().base.as_ptr());
        let root = base + host().cleared().pa().get();
        // SAFETY: a cleared frame of the pool, used by this round alone.
        let root = unsafe { &mut *root.as_mut_ptr::<peer::PageTable>() };
        // SAFETY: every physical address of the pool is at this offset.
        let mut tables = unsafe { peer::OffsetPageTable::new(root, base) };
        let page =
            |n: u64| peer::Page::<S>::containing_address(x86_64::VirtAddr::new(VA + n * S::SIZE));
        let flags = peer::PageTableFlags::PRESENT | peer::PageTableFlags::WRITABLE;
        let (map, ()) = timed(|| {
            for n in 0..BYTES / S::SIZE {
                let pa = x86_64::PhysAddr::new(PA + n * S::SIZE);
                let frame = peer::PhysFrame::<S>::containing_address(pa);
                // SAFETY: nobody runs these tables.
                unsafe { tables.map_to(page(n), frame, flags, &mut Pool) }
                    .expect("free space")
                    .ignore();
            }
        });
        let (unmap, ()) = timed(|| {
            for n in 0..BYTES / S::SIZE {
                let (frame, flush) = tables.unmap(page(n)).expect("mapped");
                std::hint::black_box(frame);
                flush.ignore();
            }
        });
        Round { map, unmap }
    }

    struct NoFlush;

    impl PagingMetaData for NoFlush {
        const LEVELS: usize = 4;
        const PA_MAX_BITS: usize = 52;
        const VA_MAX_BITS: usize = 48;
        type VirtAddr = memory_addr::VirtAddr;
        fn flush_tlb(_: Option<Self::VirtAddr>) {}
    }

    struct Handler;

    impl PagingHandler for Handler {
        fn alloc_frames(_: usize, _: usize) -> Option<memory_addr::PhysAddr> {
            Some((host().frame().pa().get() as usize).into())
        }
        fn dealloc_frames(_: memory_addr::PhysAddr, _: usize) {}
        fn phys_to_virt(pa: memory_addr::PhysAddr) -> memory_addr::VirtAddr {
            (host().base.as_ptr() as usize + pa.as_usize()).into()
        }
    }

    fn multiarch(huge: bool) -> Round {
        host().reset();
        type Peer = PageTable64<NoFlush, page_table_entry::x86_64::X64PTE, Handler>;
        let mut tables = Peer::try_new().expect("a root");
        let (va, bytes) = ((VA as usize).into(), BYTES as usize);
        let pa = |va: memory_addr::VirtAddr| (va.as_usize() - VA as usize + PA as usize).into();
        let flags = MappingFlags::READ | MappingFlags::WRITE;
        let (map, ()) = timed(|| {
            tables.cursor().map_region(va, pa, bytes, flags, huge).expect("free space");
        });
        let (unmap, ()) = timed(|| {
            tables.cursor().unmap_region(va, bytes).expect("mapped");
        });
        Round { map, unmap }
    }

    fn median(rounds: &mut [f64]) -> f64 {
        rounds.sort_by(f64::total_cmp);
        rounds[rounds.len() / 2]
    }

    type Contestant = (&'static str, fn() -> Round);

    /// Lets the contestants take turns, and prints their medians per 1 GiB and per page.
    fn compete(title: &str, pages: f64, peers: &[Contestant], ours: &[Contestant]) {
        let all: Vec<_> = peers.iter().chain(ours).collect();
        let mut rounds = vec![Vec::new(); all.len()];
        for _ in 0..ROUNDS {
            for (list, (_, run)) in rounds.iter_mut().zip(&all) {
                let _warm = run();
                list.push(run());
            }
        }
        let figures: Vec<[f64; 3]> = rounds
            .iter()
            .map(|list| {
                let of = |pick: fn(&Round) -> f64| {
                    median(&mut list.iter().map(pick).collect::<Vec<_>>())
                };
                [of(|r| r.map), of(|r| r.unmap), of(|r| r.map + r.unmap)]
            })
            .collect();
        let best: [f64; 3] = std::array::from_fn(|n| {
            figures[..peers.len()].iter().map(|f| f[n]).fold(f64::INFINITY, f64::min)
        });
        println!("\n{title}: us per 1 GiB (ns per page), and times faster than the best peer");
        println!("{:<42} {:>22} {:>22} {:>22}", "", "map", "unmap", "both");
        for ((name, _), figure) in all.iter().zip(&figures) {
            let cell = |n: usize| {
                let (us, ns) = (figure[n] / 1e3, figure[n] / pages);
                format!("{us:8.1} ({ns:5.2}) {:4.1}x", best[n] / figure[n])
            };
            println!("{name:<42} {:>22} {:>22} {:>22}", cell(0), cell(1), cell(2));
        }
    }

    const SETTLED: Attrs = Attrs::WRITE.with(Attrs::TOUCHED);

    pub(crate) fn main() {
        compete(
            "1 GiB as 4 KiB pages",
            (BYTES >> 12) as f64,
            &[
                ("x86_64, map_to", x86_64::<peer::Size4KiB>),
                ("page_table_multiarch, map_region", || multiarch(false)),
            ],
            &[
                ("foliant", || foliant(Level::BASE, SETTLED, Prune::Keep)),
                ("foliant, tables removed too", || foliant(Level::BASE, SETTLED, Prune::All)),
                ("foliant, accessed and dirty may come", || {
                    foliant(Level::BASE, Attrs::WRITE, Prune::Keep)
                }),
            ],
        );
        compete(
            "1 GiB as 2 MiB pages",
            (BYTES >> 21) as f64,
            &[
                ("x86_64, map_to", x86_64::<peer::Size2MiB>),
                ("page_table_multiarch, map_region", || multiarch(true)),
            ],
            &[
                ("foliant", || foliant(Level::SIZE_2M, SETTLED, Prune::Keep)),
                ("foliant, tables removed too", || foliant(Level::SIZE_2M, SETTLED, Prune::All)),
                ("foliant, accessed and dirty may come", || {
                    foliant(Level::SIZE_2M, Attrs::WRITE, Prune::Keep)
                }),
            ],
        );
    }
}
