//! Ten thousand random sequences of all operations on kernel ranges, beside a naive model, on every
//! page-table format and by both rules for live entries, with every checker on.
//!
//! The model is a list of areas with a word, rights and a frame for each page. What the machine's
//! CPUs read through their stale translations must be what the list says, at any time.

use crate::common::kernel::*;
use crate::common::*;
use foliant::space::{Flags, MapRequest, Place, SpaceId};
use foliant::table::{Aarch64, Paging, Riscv64, X86_64};
use foliant::vmap::*;
use foliant::{Event, Policy};
use foliant_machine::Replace;
use foliant_sim::{Config, Failing, Format, RiscvMode, Sim, X86Levels};
use foliant_units::{Bytes, Cpu, FRAME_BYTES, Frame, Level, Order, Pa, Pages, Va, VaRange};

/// Sequences for each of the twelve machines.
const SEQUENCES: u64 = 840;
const CPUS: u16 = 3;
const DEVICE: u64 = 1 << 38;

#[derive(Clone, Copy, PartialEq, Debug)]
struct Page {
    word: Option<u64>,
    rights: Rights,
    frame: Frame,
}
#[derive(Clone, Debug)]
struct Area {
    /// The address that was given for it.
    name: Va,
    range: VaRange,
    whole: VaRange,
    backing: Backing,
    asked: u64,
    users: bool,
    pages: Vec<Page>,
}

struct Random(u64);
impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % n
    }
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

struct World<'w, 'm, P: Paging> {
    sim: &'w Sim,
    mm: &'w AnyMm<'m, P>,
    random: Random,
    areas: Vec<Area>,
    /// Given back and not purged yet.
    lazy: Vec<VaRange>,
    /// Blocks that the world has for mappings of its own.
    lent: Vec<(Frame, Order)>,
    space: SpaceId,
    words: u64,
}

impl<P: Paging> World<'_, '_, P> {
    fn request(&mut self) -> Request {
        let r = &mut self.random;
        let bytes = match r.below(12) {
            0 => 0,
            1 => 1 << 40,
            2..4 => 2 * MB + r.below(40 * FRAME_BYTES),
            5 if r.one_in(4) => 4 * MB,
            4 if r.one_in(2) => MB / 2 + r.below(2 * MB),
            _ => 1 + r.below(20 * FRAME_BYTES),
        };
        let mut request = Request::of(Bytes::new(bytes)).called(Caller(r.below(99)));
        if !r.one_in(3) {
            request = request.huge();
        }
        if r.one_in(4) {
            request = request.aligned(Bytes::new(FRAME_BYTES << r.below(12)));
        }
        if r.one_in(20) {
            request = request.aligned(Bytes::new(r.below(9000)));
        }
        if r.one_in(4) {
            request = request.zeroed();
        }
        if r.one_in(4) {
            request = request.for_users();
        }
        if r.one_in(4) {
            request = request.interleaved();
        }
        if r.one_in(4) {
            request = request.without_guard();
        }
        let rights = [Rights::Data, Rights::Data, Rights::Data, Rights::Constant, Rights::Code];
        request.with_rights(r.of(&rights))
    }

    /// Takes a new area into the list, having compared everything that can be seen of it.
    fn add(&mut self, range: VaRange, backing: Backing, asked: u64, users: bool, pages: Vec<Page>) {
        if self.mm.vmap().lazy().get() == 0 {
            self.lazy.clear();
        }
        let line = self.mm.vmalloc_info().find(|line| line.range.contains(range.start()));
        let whole = line.expect("it is listed").range;
        assert!(self.areas.iter().all(|area| !area.whole.overlaps(whole)), "V1: {whole:?}");
        assert!(self.lazy.iter().all(|lazy| !lazy.overlaps(whole)), "V2: {whole:?}");
        assert!(whole.covers(range));
        self.areas.push(Area { name: range.start(), range, whole, backing, asked, users, pages });
    }
    fn frames_of(&self, range: VaRange) -> Vec<Frame> {
        pages(range).map(|va| self.mm.vmap().frame_at(va).expect("it is mapped").0).collect()
    }

    fn alloc(&mut self) {
        let request = self.request();
        let failing = self.random.one_in(6);
        if failing {
            let every = 1 + self.random.below(4) as u32;
            self.sim.fault_plan().set(Failing::OneIn { every, seed: self.random.0 });
        }
        let got = self.mm.vmalloc(&request);
        self.sim.fault_plan().set(Failing::Nothing);
        let align_bad = !request.align.get().is_power_of_two() || request.align.get() < FRAME_BYTES;
        match got {
            Ok(range) => {
                assert!(request.bytes.get() > 0 && request.bytes.get() < 1 << 30 && !align_bad);
                assert!(range.start().is_aligned(request.align));
                assert_eq!(range.bytes().get(), request.bytes.get().next_multiple_of(FRAME_BYTES));
                let zero = request.contents == Contents::Zero || request.users == Users::Yes;
                let word = zero.then_some(0);
                let page = |frame| Page { word, rights: request.rights, frame };
                let frames: Vec<Page> = self.frames_of(range).into_iter().map(page).collect();
                let users = request.users == Users::Yes;
                let asked = request.bytes.get();
                self.add(range, Backing::Pages, asked, users, frames);
            }
            Err(VmapError::Empty) => assert_eq!(request.bytes.get(), 0),
            Err(VmapError::TooLarge { .. }) => assert_eq!(request.bytes.get(), 1 << 40),
            Err(VmapError::Alignment(_)) => assert!(align_bad),
            Err(VmapError::Short(short)) => assert!(failing || self.is_tight(), "{short}"),
            Err(other) => panic!("{request:?}: {other}"),
        }
    }
    fn is_tight(&self) -> bool {
        self.mm.memory().free.get() < 16 << 8
    }

    fn map(&mut self) {
        let Some((block, order)) = (self.lent.len() < 3)
            .then(|| Order::new(self.random.below(10) as u8).unwrap())
            .and_then(|order| self.mm.lend(order).ok().map(|frame| (frame, order)))
        else {
            return;
        };
        self.lent.push((block, order));
        let mut frames: Vec<Frame> =
            (0..order.pages().get()).map(|n| block.add(Pages::new(n))).collect();
        if self.random.one_in(3) {
            frames.reverse();
        }
        let how = FrameMapping {
            leaves: self.random.of(&[
                LeafSizes::Base,
                LeafSizes::Huge,
                LeafSizes::UpTo(Level::SIZE_2M),
            ]),
            rights: self.random.of(&[Rights::Data, Rights::Constant]),
            ..FrameMapping::PLAIN
        };
        let Ok(range) = self.mm.vmap_frames(&frames, &how) else {
            assert!(self.is_tight());
            return;
        };
        assert_eq!(self.frames_of(range), frames);
        let rights = how.rights;
        let bytes = range.bytes().get();
        let pages = frames.into_iter().map(|frame| Page { word: None, rights, frame }).collect();
        self.add(range, Backing::Frames, bytes, false, pages);
    }
    fn map_device(&mut self) {
        let pa = Pa::new(DEVICE + self.random.below(64) * (MB + 4096) + self.random.below(4096));
        let bytes = 1 + self.random.below(5 * MB);
        let Ok(va) = self.mm.ioremap(pa, Bytes::new(bytes), Caller(7)) else {
            assert!(self.is_tight());
            return;
        };
        let start = va.align_down(Bytes::new(FRAME_BYTES));
        let mapped = (va.get() - start.get() + bytes).next_multiple_of(FRAME_BYTES);
        let range = VaRange::sized(start, Bytes::new(mapped)).unwrap();
        let page = |n: u64| Page {
            word: None,
            rights: Rights::Data,
            frame: pa.frame().add(Pages::new(n)),
        };
        let pages: Vec<Page> = (0..range.pages().get()).map(page).collect();
        assert_eq!(self.frames_of(range), pages.iter().map(|p| p.frame).collect::<Vec<_>>());
        self.add(range, Backing::Device, bytes, false, pages);
        self.areas.last_mut().expect("just added").name = va;
    }

    fn pick(&mut self) -> Option<usize> {
        (!self.areas.is_empty()).then(|| self.random.below(self.areas.len() as u64) as usize)
    }
    fn release(&mut self) {
        let Some(nth) = self.pick() else { return };
        let area = self.areas.swap_remove(nth);
        let (start, name) = (area.range.start(), area.name);
        let memory = area.backing == Backing::Pages;
        let before = self.mm.vmap().lazy().get();
        if memory && self.random.one_in(4) {
            self.mm.vfree_atomic(start).unwrap();
            assert!(self.mm.vfree_atomic(start).is_err());
            self.mm.vmap().collect();
        } else if memory {
            assert_eq!(self.mm.vunmap(start), Err(VmapError::OtherKind(start)));
            self.mm.vfree(start).unwrap();
        } else {
            assert_eq!(self.mm.vfree(start), Err(VmapError::OtherKind(start)));
            if name != start {
                let other = VmapError::NotStart { va: start, start: name };
                assert_eq!(self.mm.vunmap(start), Err(other));
            }
            self.mm.vunmap(name).unwrap();
        }
        let waits = self.mm.vmap().lazy().get();
        if waits > before {
            self.lazy.push(area.whole);
            assert_eq!(self.mm.vfree(start), Err(VmapError::Freed(start)));
        } else {
            assert!(self.mm.vfree(start).is_err());
        }
    }
    fn misuse(&mut self) {
        let start = self.mm.vmap().range().start();
        let va = start.add(self.random.below(64 * MB));
        let known = self.areas.iter().find(|area| area.whole.contains(va));
        let got = self.mm.vfree(va);
        match known {
            Some(area) if area.range.start() == va => unreachable!("chance is not that good"),
            Some(area) if area.backing == Backing::Pages => {
                assert_eq!(got, Err(VmapError::NotStart { va, start: area.range.start() }));
            }
            Some(area) => assert_eq!(got, Err(VmapError::OtherKind(area.range.start()))),
            None => assert!(matches!(got, Err(VmapError::NoArea(_) | VmapError::Freed(_)))),
        }
    }

    fn protect(&mut self) {
        let Some(nth) = self.pick() else { return };
        let area = self.areas[nth].clone();
        let count = area.pages.len() as u64;
        let first = self.random.below(count);
        let some = 1 + self.random.below(count - first);
        let start = area.range.start().add(first * FRAME_BYTES);
        let range = VaRange::sized(start, Bytes::new(some * FRAME_BYTES)).unwrap();
        let rights = self.random.of(&[Rights::Data, Rights::Constant, Rights::Code]);
        match self.mm.protect_kernel(range, rights) {
            Ok(()) => {
                self.lazy.clear();
                let changed = &mut self.areas[nth].pages[first as usize..(first + some) as usize];
                changed.iter_mut().for_each(|page| page.rights = rights);
            }
            Err(VmapError::CannotSplit(..)) => {
                assert_eq!(self.sim.config().rules.replace, Replace::BreakBeforeMake);
            }
            Err(VmapError::Short(_)) => assert!(self.is_tight()),
            Err(other) => panic!("{other}"),
        }
    }

    /// Stores or loads somewhere in some area on some CPU.
    fn touch(&mut self) {
        let Some(nth) = self.pick() else { return };
        let cpu = Cpu(self.random.below(u64::from(CPUS)) as u16);
        let count = self.areas[nth].pages.len() as u64;
        let at = self.random.below(count);
        let va = self.areas[nth].range.start().add(at * FRAME_BYTES + 8 * self.random.below(2));
        let va = va.align_down(Bytes::new(FRAME_BYTES));
        let page = self.areas[nth].pages[at as usize];
        assert_eq!(self.mm.vmap().frame_at(va).map(|found| found.0), Some(page.frame));
        if self.random.one_in(2) {
            self.words += 1;
            let stored = self.sim.on(cpu, || put(self.sim, va, self.words));
            assert_eq!(stored, page.rights == Rights::Data, "{va} on {cpu:?}");
            if stored && self.areas[nth].backing != Backing::Device {
                self.areas[nth].pages[at as usize].word = Some(self.words);
            }
        } else {
            let seen = self.sim.on(cpu, || get(self.sim, va)).expect("it is mapped");
            match page.word {
                Some(word) => assert_eq!(seen, word, "{va} on {cpu:?}"),
                None if self.areas[nth].backing != Backing::Device => {
                    self.areas[nth].pages[at as usize].word = Some(seen);
                }
                None => {}
            }
        }
    }

    /// A program maps a few pages, looks at one and lets go.
    fn share(&mut self) {
        let Some(nth) = self.pick() else { return };
        let area = self.areas[nth].clone();
        let count = area.asked.div_ceil(FRAME_BYTES);
        let first = self.random.below(count.max(1));
        let some = (1 + self.random.below(8)).min(count - first);
        let bytes = Bytes::new(some * FRAME_BYTES);
        let from = area.range.start().add(first * FRAME_BYTES);
        let place = Place::NoReplace(Va::new(BASE));
        let request = MapRequest { place, bytes, flags: Flags::READ_WRITE, tag: 0 };
        match self.mm.map_user(self.space, &request, from) {
            Ok(range) => {
                assert!(area.users);
                self.words += 1;
                let word = self.words;
                assert_eq!(store(self.sim, self.mm, self.space, BASE, word), vec![]);
                self.areas[nth].pages[first as usize].word = Some(word);
                self.mm.unmap(self.space, range).unwrap();
            }
            Err(error) => {
                assert!(!area.users || self.is_tight(), "{error}");
            }
        }
    }

    fn step(&mut self) {
        match self.random.below(24) {
            0..5 => self.alloc(),
            5 => self.map(),
            6 => self.map_device(),
            7..10 => self.release(),
            10 => self.misuse(),
            11..13 => self.protect(),
            13 => {
                self.mm.purge_vmalloc();
                self.lazy.clear();
            }
            14 => self.share(),
            15 => self.switch(),
            _ => (0..4).for_each(|_| self.touch()),
        }
    }
    fn switch(&mut self) {
        let controls = Controls {
            huge_vmalloc: self.random.of(&[HugeVmalloc::Allowed, HugeVmalloc::Never]),
            huge_iomap: self.random.of(&[HugeIomap::Allowed, HugeIomap::Never]),
            rest: self.random.of(&[Rest::Split, Rest::Rounded]),
            purge: self.random.of(&[PurgeMode::Lazy, PurgeMode::Eager]),
        };
        self.mm.vmap().set_controls(controls);
    }

    /// Everything is given back, and nothing is left.
    fn end(&mut self, audit: bool) {
        while !self.areas.is_empty() {
            self.release();
        }
        self.mm.purge_vmalloc();
        self.lazy.clear();
        for (frame, order) in self.lent.drain(..) {
            self.mm.take_back(frame, order).unwrap();
        }
        if audit {
            self.mm.audit(&[self.space]).unwrap();
        }
        let counters = self.mm.vmalloc_counters();
        assert_eq!((counters.areas, counters.pages.get(), counters.lazy.get()), (0, 0, 0));
        assert_eq!(self.mm.vmalloc_info().count(), 0);
    }
}

fn sequences<P: Paging>(format: Format, replace: Replace, seed: u64) {
    let mut config = Config::seeded(CPUS.into(), Bytes::new(24 * MB), seed).with_format(format);
    config.rules.replace = replace;
    let sim = Sim::new(config).unwrap();
    let memory = sim.config().memory.clone();
    let mm: Audited<'_, P> = manager_on(&sim, &memory, Policy::BASE_ONLY);
    online(&sim, &mm);
    let space = mm.create(None).unwrap();
    mm.switch(Some(space)).unwrap();
    let mut world = World {
        sim: &sim,
        mm: &mm,
        random: Random(seed),
        areas: vec![],
        lazy: vec![],
        lent: vec![],
        space,
        words: 0,
    };
    for nth in 0..SEQUENCES {
        world.random = Random(seed << 32 | nth);
        mm.vmap().set_controls(Controls::DEFAULT);
        if nth % 4 == 3 {
            world.switch();
        }
        for _ in 0..5 + world.random.below(25) {
            world.step();
        }
        if nth % 16 == 0 {
            mm.audit(&[space]).unwrap(); // in the middle of things
        }
        world.end(nth % 16 == 8);
        let violations = sim.violations();
        assert!(violations.is_empty(), "{format:?} {replace:?} sequence {nth}: {violations:#?}");
    }
    mm.switch(None).unwrap();
    mm.end(space).unwrap();
    assert!(sim.finish().is_empty());
    // The sequences did meet what they are for.
    let counters = mm.vmalloc_counters();
    assert!(counters.purges > 100 && counters.flushes > 100 && counters.deferred > 100);
    assert!(counters.leaves[1] > 100 && counters.table_flushes > 10, "{counters:?}");
    assert!(counters.splits > 10 || replace == Replace::BreakBeforeMake);
    assert!(counters.fallbacks.iter().sum::<u64>() > 5, "{counters:?}");
    assert!(mm.total(Event::NoMemory) > 100);
}

fn both<P: Paging>(format: Format, seed: u64) {
    sequences::<P>(format, Replace::InPlace, seed);
    sequences::<P>(format, Replace::BreakBeforeMake, seed + 1);
}

#[test]
fn x86_64() {
    both::<X86_64<4>>(Format::X86_64(X86Levels::Four), 11);
    both::<X86_64<5>>(Format::X86_64(X86Levels::Five), 21);
}
#[test]
fn aarch64() {
    both::<Aarch64>(Format::Aarch64, 31);
}
#[test]
fn riscv64() {
    both::<Riscv64<3>>(Format::Riscv64(RiscvMode::Sv39), 41);
    both::<Riscv64<4>>(Format::Riscv64(RiscvMode::Sv48), 51);
    both::<Riscv64<5>>(Format::Riscv64(RiscvMode::Sv57), 61);
}
