//! Deadlines for latency, in steps: how long a CPU stays in a lock or a section, or goes without a
//! preemption point, in each operation of the face.
//!
//! A step is an access of the manager to its records or a call of the machine's, for bulk calls a
//! line of 64 bytes (`foliant::steps`). Steps are counts: the same on every host.
//!
//! **Not here**: what is too long; the test has bounds, and `docs/findings.md` says what they come
//! from.

use foliant::compact::CompactRequest;
use foliant::fault::Orders;
use foliant::manager::{CollapseLimits, Contents, Setup, SetupError};
use foliant::pool::Budget;
use foliant::space::{Advice, AreaLimit, Flags, MapRequest, Move, Place, SpaceId};
use foliant::split::SplitInto;
use foliant::steps::{self, Critical};
use foliant::table::X86_64;
use foliant::vmap::Request;
use foliant::{Access, Manager, Policy};
use foliant_lab::Stepped;
use foliant_sim::{Backing, Checks, Config, Sim, SimError};
use foliant_units::{Bytes, Cpu, Frame, FrameRange, Nanos, Order, Pages, Va, VaRange};

const PAGE: u64 = 4096;
const BASE: u64 = 0x10_0000_0000;
const AREAS: u64 = 0x4000_0000_0000;

/// How large the machine and what is on it are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    /// CPUs, all of which run the one space where it matters.
    pub cpus: usize,
    /// Memory.
    pub memory: Bytes,
    /// Areas of the space.
    pub areas: u64,
    /// How much of it is touched in pages of 4 KiB.
    pub touched: Bytes,
    /// Huge pages of 2 MiB that are asked for at once.
    pub pool: u64,
}

impl Scale {
    /// What every run of the tests can afford.
    pub const SMALL: Scale = Scale {
        cpus: 16,
        memory: Bytes::new(1 << 30),
        areas: 2000,
        touched: Bytes::new(64 << 20),
        pool: 64,
    };
    /// 100,000 areas, 1 TiB, 1,024 CPUs.
    pub const FULL: Scale = Scale {
        cpus: 1024,
        memory: Bytes::new(1 << 40),
        areas: 100_000,
        touched: Bytes::new(256 << 20),
        pool: 4096,
    };
}

/// One operation: the longest stay in each place, in steps, in the order of [`Critical::ALL`], and
/// all that it took.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// What was asked for.
    pub operation: String,
    /// The longest stays.
    pub longest: [u64; Critical::ALL.len()],
    /// All steps.
    pub steps: u64,
}

impl Row {
    /// The longest stay in a place.
    pub fn longest(&self, place: Critical) -> u64 {
        self.longest[place as usize]
    }
}

/// Why nothing was measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeadlinesError {
    /// There is no such machine.
    Machine(SimError),
    /// There is no manager on it.
    Setup(SetupError),
}

impl core::fmt::Display for DeadlinesError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            DeadlinesError::Machine(error) => error.fmt(f),
            DeadlinesError::Setup(error) => error.fmt(f),
        }
    }
}
impl core::error::Error for DeadlinesError {}

type Mm<'m> = Manager<'m, Stepped<Sim>, X86_64<4>>;

/// Measures every operation at `scale`; each row is handed over as soon as it is there.
pub fn deadlines(scale: Scale, each: impl FnMut(&Row)) -> Result<(), DeadlinesError> {
    let backing = if scale.memory.get() > 1 << 36 { Backing::Compact } else { Backing::Whole };
    let config =
        Config { checks: Checks::None, backing, ..Config::seeded(scale.cpus, scale.memory, 1) };
    let sim = Sim::new(config).map_err(DeadlinesError::Machine)?;
    let machine = Stepped::new(sim, steps::take, steps::rested);
    let (memory, added) = with_room_behind(&machine.machine().config().memory);
    let setup = Setup {
        areas: AreaLimit(u64::MAX),
        added_below: added.end(),
        ..Setup::of(&memory, Policy::BASE_ONLY)
    };
    let mm: Mm<'_> = Manager::new(&machine, &setup).map_err(DeadlinesError::Setup)?;
    for cpu in mm.cpus() {
        machine.machine().on(cpu, || mm.online());
    }
    let mut bench = Bench { mm: &mm, scale, each };
    machine.machine().on(Cpu(0), || bench.all(added));
    Ok(())
}

/// The memory but for the last 128 MiB of it, which are added later.
fn with_room_behind(memory: &[FrameRange]) -> (Vec<FrameRange>, FrameRange) {
    let last = memory.last().expect("a machine has memory");
    let cut = Frame::new((last.end().get() - 2 * 32_768) / 32_768 * 32_768);
    let part = |start: Frame, end: Frame| {
        FrameRange::new(start, Pages::new(end.get() - start.get())).expect("a part of memory")
    };
    let mut kept = memory.to_vec();
    *kept.last_mut().expect("as above") = part(last.start(), cut);
    (kept, part(cut, Frame::new(cut.get() + 32_768)))
}

struct Bench<'b, 'm, E> {
    mm: &'b Mm<'m>,
    scale: Scale,
    each: E,
}

fn at(start: u64, bytes: u64) -> VaRange {
    VaRange::sized(Va::new(start), Bytes::new(bytes)).expect("a user range")
}

impl<E: FnMut(&Row)> Bench<'_, '_, E> {
    fn row<R>(&mut self, operation: &str, work: impl FnOnce(&Mm<'_>) -> R) -> R {
        let (row, done) = self.measure(operation, work);
        (self.each)(&row);
        done
    }
    fn measure<R>(&self, operation: &str, work: impl FnOnce(&Mm<'_>) -> R) -> (Row, R) {
        steps::reset();
        let before = steps::taken();
        let done = work(self.mm);
        let longest = Critical::ALL.map(steps::longest);
        let steps = steps::taken() - before;
        (Row { operation: operation.to_owned(), longest, steps }, done)
    }
    fn map(&self, id: SpaceId, start: u64, bytes: u64, flags: Flags, tag: u64) {
        let request = MapRequest {
            place: Place::Fixed(Va::new(start)),
            bytes: Bytes::new(bytes),
            flags: Flags::READ_WRITE.with(flags),
            tag,
        };
        self.mm.map(id, &request).expect("there is room");
    }
    /// The space runs on every CPU.
    fn run_everywhere(&self, id: Option<SpaceId>) {
        let sim = self.mm.machine().machine();
        for cpu in self.mm.cpus() {
            sim.on(cpu, || self.mm.switch(id).expect("it lives"));
        }
    }
    fn touch(&self, id: SpaceId, start: u64, bytes: u64) {
        for page in 0..bytes / PAGE {
            self.mm.fault(id, Va::new(start + page * PAGE), Access::Write);
        }
    }

    fn all(&mut self, added: FrameRange) {
        self.faults();
        self.areas();
        self.entries();
        self.pools();
        self.kernel();
        self.background(added);
    }

    fn faults(&mut self) {
        let id = self.mm.create(None).expect("memory");
        self.row("describe the first section, fault of 4 KiB", |mm| {
            let range = at(BASE, 1 << 30);
            let request = MapRequest {
                place: Place::NoReplace(range.start()),
                bytes: range.bytes(),
                flags: Flags::READ_WRITE,
                tag: 0,
            };
            mm.map(id, &request).expect("there is room");
            mm.fault(id, range.start(), Access::Write)
        });
        for order in Order::all().take(Order::SIZE_2M.index() + 1) {
            let size_2m = 1 + u64::from(order.get());
            self.mm.set_policy(Policy::always(Orders::of(order)));
            let va = Va::new(BASE + size_2m * (2 << 20));
            self.row(&format!("fault of {}", order.bytes()), |mm| mm.fault(id, va, Access::Write));
        }
        self.row("fault for reading", |mm| mm.fault(id, Va::new(BASE + (40 << 20)), Access::Read));
        let child = self.mm.fork(id).expect("memory");
        self.row("write to a shared page", |mm| mm.fault(id, Va::new(BASE), Access::Write));
        self.mm.set_policy(Policy::BASE_ONLY);
        self.mm.end(child).expect("it lives");
        self.mm.end(id).expect("it lives");
    }

    fn areas(&mut self) {
        let areas = self.scale.areas;
        let id = self.mm.create(None).expect("memory");
        for nth in 0..areas {
            self.map(id, AREAS + nth * PAGE, PAGE, Flags::NONE, nth % 2);
        }
        let all = at(AREAS, areas * PAGE);
        let request = MapRequest {
            place: Place::Anywhere,
            bytes: Bytes::new(1 << 40),
            flags: Flags::READ_WRITE,
            tag: 9,
        };
        self.row("map anywhere among all areas", |mm| mm.map(id, &request)).expect("room");
        self.row("protect all areas", |mm| mm.protect(id, all, Flags::READ)).expect("no hole");
        self.row("advise all areas", |mm| mm.advise(id, all, Advice::NoHugePage)).expect("no hole");
        let child = self.row("fork with all areas", |mm| mm.fork(id)).expect("memory");
        self.row("end with all areas", |mm| mm.end(child)).expect("it lives");
        let part = at(AREAS + areas / 2 * PAGE, PAGE);
        self.row("remap one of all areas", |mm| {
            mm.remap(id, part, part.bytes(), Move::To(Va::new(AREAS / 2)))
        })
        .expect("it lies in one area");
        self.row("map over all areas", |mm| {
            mm.map(
                id,
                &MapRequest { place: Place::Fixed(all.start()), bytes: all.bytes(), ..request },
            )
        })
        .expect("room");
        for nth in 0..areas {
            self.map(id, AREAS + nth * PAGE, PAGE, Flags::NONE, nth % 2);
        }
        self.row("unmap all areas", |mm| mm.unmap(id, all)).expect("a range");
        self.mm.end(id).expect("it lives");
    }

    fn entries(&mut self) {
        let touched = self.scale.touched.get();
        let (id, all) = (self.mm.create(None).expect("memory"), at(BASE, touched));
        self.map(id, BASE, touched, Flags::NONE, 0);
        let advices = [
            ("populate for reading", Advice::PopulateRead),
            ("populate for writing", Advice::PopulateWrite),
            ("advise free", Advice::Free),
        ];
        for (what, advice) in advices {
            self.row(what, |mm| mm.advise(id, all, advice)).expect("no hole");
        }
        self.run_everywhere(Some(id));
        self.row("protect entries", |mm| mm.protect(id, all, Flags::READ)).expect("no hole");
        self.row("give rights back", |mm| mm.protect(id, all, Flags::READ.with(Flags::WRITE)))
            .expect("no hole");
        let child = self.row("fork entries", |mm| mm.fork(id)).expect("memory");
        self.row("end of a child", |mm| mm.end(child)).expect("it lives");
        let to = Va::new(BASE + (1 << 40));
        self.row("remap entries", |mm| mm.remap(id, all, all.bytes(), Move::To(to))).expect("room");
        let moved = VaRange::sized(to, all.bytes()).expect("a user range");
        self.row("advise not needed", |mm| mm.advise(id, moved, Advice::DontNeed)).expect("fits");
        self.row("install guards", |mm| mm.advise(id, moved, Advice::GuardInstall)).expect("fits");
        self.row("remove guards", |mm| mm.advise(id, moved, Advice::GuardRemove)).expect("fits");
        self.row("unmap empty tables", |mm| mm.unmap(id, moved)).expect("a range");
        self.map(id, BASE, touched, Flags::NONE, 0);
        self.touch(id, BASE, touched);
        self.row("unmap entries", |mm| mm.unmap(id, all)).expect("a range");
        self.map(id, BASE, touched, Flags::NONE, 0);
        self.touch(id, BASE, 4 << 20);
        let limits = CollapseLimits::NONE;
        self.row("collapse", |mm| mm.collapse(id, Va::new(BASE), Order::SIZE_2M, limits))
            .expect("pages");
        self.row("split", |mm| mm.split(id, Va::new(BASE), SplitInto::BASE)).expect("a folio");
        self.run_everywhere(None);
        self.row("end with entries", |mm| mm.end(id)).expect("it lives");
    }

    fn pools(&mut self) {
        let pages = self.scale.pool;
        self.row("pool of 2 MiB filled", |mm| mm.resize_pool(Order::SIZE_2M, pages, Budget::ALL))
            .expect("a size");
        let id = self.mm.create(None).expect("memory");
        self.map(id, BASE, pages * (2 << 20), Flags::HUGE_2M, 0);
        self.row("fault of a huge page of 2 MiB", |mm| mm.fault(id, Va::new(BASE), Access::Write));
        self.row("unmap of reserved pages", |mm| mm.unmap(id, at(BASE, pages * (2 << 20))))
            .expect("whole pages");
        self.row("pool of 2 MiB emptied", |mm| mm.resize_pool(Order::SIZE_2M, 0, Budget::ALL))
            .expect("a size");
        if self.scale.memory.get() > 1 << 32 {
            self.row("pool of 1 GiB filled", |mm| mm.resize_pool(Order::SIZE_1G, 2, Budget::ALL))
                .expect("a size");
            self.map(id, 2 * BASE, 1 << 30, Flags::HUGE_1G, 0);
            self.row("fault of a huge page of 1 GiB", |mm| {
                mm.fault(id, Va::new(2 * BASE), Access::Write)
            });
            let child = self.mm.fork(id).expect("memory");
            self.row("write to a shared page of 1 GiB", |mm| {
                mm.fault(id, Va::new(2 * BASE), Access::Write)
            });
            self.mm.end(child).expect("it lives");
            self.mm.unmap(id, at(2 * BASE, 1 << 30)).expect("a whole page");
            self.row("pool of 1 GiB emptied", |mm| mm.resize_pool(Order::SIZE_1G, 0, Budget::ALL))
                .expect("a size");
        }
        self.mm.end(id).expect("it lives");
    }

    fn kernel(&mut self) {
        let bytes = Bytes::new(32 << 20);
        let huge = Request::of(bytes).huge().zeroed();
        let range = self.row("kernel memory, 32 MiB zeroed", |mm| mm.vmalloc(&huge)).expect("room");
        self.row("kernel memory given back", |mm| mm.vfree(range.start())).expect("an area");
        self.row("purge of one", |mm| mm.purge_vmalloc());
        let small = Request::of(Bytes::new(PAGE));
        let many: Vec<Va> = (0..self.scale.areas.min(20_000))
            .map(|_| self.mm.vmalloc(&small).expect("room").start())
            .collect();
        let mut worst: Option<Row> = None;
        for va in many {
            let what = "kernel page given back, the worst of many";
            let (row, done) = self.measure(what, |mm| mm.vfree(va));
            done.expect("an area");
            worst = worst.filter(|worst| worst.steps >= row.steps).or(Some(row));
        }
        worst.iter().for_each(|row| (self.each)(row));
        self.row("purge of what is left", |mm| mm.purge_vmalloc());
        self.shared();
    }

    /// Kernel memory of one table in a program.
    fn shared(&mut self) {
        let bytes = Bytes::new(2 << 20);
        let kernel = self.mm.vmalloc(&Request::of(bytes).for_users()).expect("room").start();
        let id = self.mm.create(None).expect("memory");
        let place = Place::NoReplace(Va::new(BASE));
        let request = MapRequest { place, bytes, flags: Flags::READ_WRITE, tag: 0 };
        self.row("kernel memory mapped to a program, 2 MiB", |mm| {
            mm.map_user(id, &request, kernel)
        })
        .expect("room");
        self.mm.end(id).expect("it lives");
        self.mm.vfree(kernel).expect("an area");
    }

    fn background(&mut self, added: FrameRange) {
        let id = self.mm.create(None).expect("memory");
        let touched = self.scale.touched.get();
        self.map(id, BASE, touched, Flags::NONE, 0);
        self.touch(id, BASE, touched);
        for hole in 0..touched / (2 << 20) {
            self.mm.unmap(id, at(BASE + hole * (2 << 20), 1 << 20)).expect("a range");
        }
        self.row("compact all of memory", |mm| mm.compact(&CompactRequest::ALL, &mut []));
        self.mm.end(id).expect("it lives");
        self.row("clear ahead, 10 ms", |mm| mm.clear_ahead(Nanos(10_000_000)));
        self.row("add 128 MiB", |mm| {
            mm.add_memory_of(added, foliant_units::Node(0), Contents::Any)
        })
        .expect("room was left for it");
    }
}
