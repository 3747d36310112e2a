//! Finding a gap among few ranges and among many: how much longer it takes.
//!
//! Areas of a program, and kernel ranges. A call maps two pages where there is room for them and
//! takes them out again, `CALLS` times in a round. *The only gap* is one that the search has to
//! find among gaps that are too small: it is opened at `PLACES` places, from one end to the other,
//! and the mean of them is printed. *Any gap* would do, and the nearest one is taken. Rounds with
//! few and with many ranges take turns; medians of 101. The goal is a ratio within 1.3.
#![allow(unsafe_code)]

use foliant::manager::{Setup, VmapSetup};
use foliant::space::{AreaLimit, Flags, MapRequest, Place, SpaceId};
use foliant::table::X86_64;
use foliant::vmap::{Controls, FrameMapping, Guard, PurgeMode};
use foliant::{Manager, Policy};
use foliant_machine::{Around, PhysMem};
use foliant_sim::{Clearing, Config, Sim};
use foliant_units::{Bytes, Frame, Pa, Va};
use std::ptr::NonNull;
use std::time::Instant;

type Mm<'m> = Manager<'m, Direct, X86_64<4>>;

const COUNTS: [u64; 3] = [10, 1_000, 100_000];
const BASE: u64 = 0x10_0000_0000;
const PAGE: u64 = 4096;
const CALLS: u32 = 100;
const ROUNDS: usize = 101;
const PLACES: u64 = 8;

/// The simulator, whose memory is reached as a kernel reaches it: by an addition.
struct Direct {
    sim: Sim,
    start: Pa,
    memory: NonNull<u8>,
}

// SAFETY: the memory is the simulator's, which is shared as well.
unsafe impl Sync for Direct {}

// SAFETY: what is reached is what the simulator reaches, which promised it for all of its memory.
unsafe impl Around for Direct {
    type Inner = Sim;

    fn inner(&self) -> &Sim {
        &self.sim
    }
    unsafe fn reach(&self, pa: Pa, _: Bytes) -> NonNull<u8> {
        // SAFETY: the caller asks for memory of the machine, which is one range.
        unsafe { self.memory.add((pa.get() - self.start.get()) as usize) }
    }
}

impl Direct {
    fn new(bytes: Bytes) -> Direct {
        let config = Config { clearing: Clearing::Real, ..Config::free(1, bytes) };
        let sim = Sim::new(config).unwrap();
        let all = sim.config().memory[0];
        // SAFETY: nobody has any of it yet.
        let memory = unsafe { sim.reach(all.start().pa(), all.pages().bytes()) };
        Direct { sim, start: all.start().pa(), memory }
    }
    fn manager(&self) -> Mm<'_> {
        let memory = self.sim.config().memory.clone();
        let controls = Controls { purge: PurgeMode::Eager, ..Controls::DEFAULT };
        let setup = Setup {
            areas: AreaLimit(1 << 20),
            vmap: VmapSetup { controls, ..VmapSetup::DEFAULT },
            ..Setup::of(&memory, Policy::BASE_ONLY)
        };
        let mm = Manager::new(self, &setup).unwrap();
        mm.online();
        mm
    }
}

/// Ranges of one kind.
trait Ranges {
    /// Makes room for three pages near range `nth`.
    fn open(&self, nth: u64);
    /// Fills it.
    fn close(&self, nth: u64);
    /// Maps some pages and takes them out.
    fn call(&self, pages: u64);
}

/// Page-sized areas with a page between them, and nothing free besides.
struct Areas<'a>(&'a Mm<'a>, SpaceId);

impl<'a> Areas<'a> {
    fn new(mm: &'a Mm<'a>, count: u64) -> Areas<'a> {
        let areas = Areas(mm, mm.create(None).unwrap());
        (0..count).for_each(|nth| areas.close(nth));
        let end = BASE + count * 2 * PAGE;
        areas.map(end, 0x7fff_ffff_f000 - end);
        areas.map(0x1_0000, BASE - 0x1_0000);
        areas
    }
    fn map(&self, start: u64, bytes: u64) {
        let (place, bytes) = (Place::NoReplace(Va::new(start)), Bytes::new(bytes));
        let request = MapRequest { place, bytes, flags: Flags::READ, tag: bytes.get() / PAGE };
        self.0.map(self.1, &request).unwrap();
    }
}

impl Ranges for Areas<'_> {
    fn open(&self, nth: u64) {
        let range = foliant_units::VaRange::sized(Va::new(BASE + nth * 2 * PAGE), Bytes::new(PAGE));
        self.0.unmap(self.1, range.unwrap()).unwrap();
    }
    fn close(&self, nth: u64) {
        self.map(BASE + nth * 2 * PAGE, PAGE);
    }
    fn call(&self, pages: u64) {
        let bytes = Bytes::new(pages * PAGE);
        let request =
            MapRequest { place: Place::Anywhere, bytes, flags: Flags::READ_WRITE, tag: 0 };
        let found = self.0.map(self.1, &request).unwrap();
        self.0.unmap(self.1, found).unwrap();
    }
}

/// Kernel ranges of a page, side by side.
struct Kernel<'a>(Mm<'a>, Frame, std::cell::RefCell<Vec<Va>>);

impl<'a> Kernel<'a> {
    fn new(machine: &'a Direct, count: u64) -> Kernel<'a> {
        let kernel = Kernel(machine.manager(), machine.start.frame(), Vec::new().into());
        let all = (0..count).map(|_| kernel.map(1)).collect();
        kernel.2.replace(all);
        kernel
    }
    fn map(&self, pages: u64) -> Va {
        let how = FrameMapping { guard: Guard::None, ..FrameMapping::PLAIN };
        self.0.vmap_frames(&[self.1; 3][..pages as usize], &how).unwrap().start()
    }
}

impl Ranges for Kernel<'_> {
    fn open(&self, nth: u64) {
        let nth = nth as usize;
        self.2.borrow()[nth - 1..=nth + 1].iter().for_each(|va| self.0.vunmap(*va).unwrap());
    }
    fn close(&self, nth: u64) {
        let nth = nth as usize;
        let new = [(); 3].map(|()| self.map(1));
        assert_eq!(self.2.borrow()[nth - 1..=nth + 1], new, "the gap is the lowest");
    }
    fn call(&self, pages: u64) {
        self.0.vunmap(self.map(pages)).unwrap();
    }
}

/// Nanoseconds per call, for each count, in rounds that take turns.
fn times(ranges: &[&dyn Ranges; 3], pages: u64) -> [f64; 3] {
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for (ranges, times) in ranges.iter().zip(&mut times) {
            let begun = Instant::now();
            (0..CALLS).for_each(|_| ranges.call(pages));
            times.push(begun.elapsed().as_nanos() as f64 / f64::from(CALLS));
        }
    }
    times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    })
}

fn row(what: &str, times: [f64; 3]) {
    let [few, some, many] = times;
    println!(
        "{what:<28} {few:>7.0} {some:>7.0} {many:>9.0}  {:>10.2}x {:>10.2}x",
        some / few,
        many / few
    );
}

/// The only gap, at each of the places.
fn only(what: &str, ranges: &[&dyn Ranges; 3]) {
    let mut sum = [0.0; 3];
    for place in 1..=PLACES {
        let at = |nth: usize| (COUNTS[nth] - 3) * place / (PLACES + 1) + 1;
        (0..3).for_each(|n| ranges[n].open(at(n)));
        times(ranges, 2).iter().zip(&mut sum).for_each(|(time, sum)| *sum += time);
        (0..3).for_each(|n| ranges[n].close(at(n)));
    }
    row(what, sum.map(|sum| sum / PLACES as f64));
}

fn main() {
    println!(
        "{:<28} {:>7} {:>7} {:>9}  {:>11} {:>11}",
        "ns per map and unmap", 10, 1_000, 100_000, "1,000 / 10", "100,000 / 10"
    );
    let machine = Direct::new(Bytes::new(256 << 20));
    let mm = machine.manager();
    let all = COUNTS.map(|count| Areas::new(&mm, count));
    let [few, some, many] = &all;
    only("areas, the only gap", &[few, some, many]);
    row("areas, any gap", times(&[few, some, many], 1));
    let machines = COUNTS.map(|_| Direct::new(Bytes::new(256 << 20)));
    let all: Vec<_> =
        machines.iter().zip(COUNTS).map(|(on, count)| Kernel::new(on, count)).collect();
    let all: [&dyn Ranges; 3] = [&all[0], &all[1], &all[2]];
    only("kernel ranges, the only gap", &all);
    row("kernel ranges, behind all", times(&all, 1));
}
