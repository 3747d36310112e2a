//! `thpscale`: what a fault for huge and for base memory takes while memory is fragmented and the
//! threads of one space use all of it. After the description of the benchmark of that name.
//!
//! ```text
//!   ballast    blocks lent out, until as much memory is left as the threads shall have
//!   scatter    another space fills that, page by page, and gives back every second page, at random
//!   threads    each in its turn, on a CPU of its own:
//!                fault a huge page        measured       no block is free: memory is compacted, folios are split
//!                fault a base page        measured
//!                give back most of the huge page of the turn before: it is mapped page by page now, and waits to be split
//!                give back the rest of one that was used some turns ago
//! ```
//!
//! The threads take turns, so what is counted does not depend on how they run into each other, and
//! a latency holds no waiting for a lock. Their number shows in the CPUs that a flush asks.

use crate::ground::{Ground, PAGE, cpus};
use crate::meter::{Meter, Span};
use crate::named::Named;
use crate::parameters::About;
use crate::{Counted, Kind, LabError, Parameter, Parameters, Ratio, Report, Row, Stage, Stopped};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use foliant::fault::{Defrag, Orders};
use foliant::space::{Advice, Flags, MapRequest, Place, SpaceId};
use foliant::split::{SplitInto, SplitRequest};
use foliant::{Access, Event, FlushGrain, Manager, Policy, SizeEvent};
use foliant_machine::Cpus;
use foliant_units::{Bytes, Cpu, Frame, Order, Pages, Va, VaRange};

/// Memory of a row: so much, and so much for each thread; half of it is scattered pages.
const SHARED: u64 = 16 << 20;
const EACH: u64 = 9 << 20;
/// Memory for whatever else there is.
const BESIDES: u64 = 64 << 20;
/// Blocks that scattered pages leave alone, for tables.
const SPARE: u64 = 1;
/// Of a huge page that was used an eighth stays, for so many turns: what a thread has stays the
/// same, and blocks do not come back by themselves.
const STAY: u64 = 64 * PAGE.get();
const TURNS: u64 = 8;
/// Where base pages and scattered pages lie: 2 and 4 GiB behind the anchor of the ground.
const BASE: Va = Va::new(66 << 30);
const SCATTERED: Va = Va::new(68 << 30);

/// See the module's text.
pub(crate) const SCENARIO: About = About {
    name: "thpscale",
    purpose: "threads fault huge and base memory in turn while memory is fragmented",
    parameters: &[
        Parameter {
            name: "workers",
            default: "1,3,5,7,12,18,24,30,32",
            kind: Kind::Counts(64),
            about: "how many threads, each on a CPU; numbers above that of CPUs are left out",
        },
        Parameter {
            name: "turns",
            default: "128",
            kind: Kind::Pages(Pages::new(504)),
            about: "turns of all threads together; each takes as many as the others, and at least one",
        },
        Parameter {
            name: "grains",
            default: "1,whole",
            kind: Kind::Grains,
            about: "entries per shootdown; ratios are of the first to the last",
        },
    ],
};

pub(crate) fn memory(parameters: &Parameters) -> Bytes {
    let threads = parameters.counts("workers").iter().max().copied().unwrap_or(1);
    Bytes::new(SHARED + EACH * threads + BESIDES)
}

pub(crate) fn run<'m, S: Stage<'m>>(
    stage: &S,
    parameters: &Parameters,
) -> Result<Report, LabError> {
    let mut rows = Vec::new();
    let there = u64::from(cpus(stage).0);
    let threads = || parameters.counts("workers").iter().filter(|n| **n <= there);
    for threads in threads() {
        for grain in parameters.grains("grains") {
            stage.go_on()?;
            let rounds = (parameters.pages("turns").get() / threads).max(1);
            rows.push(row(stage, *threads, rounds, *grain)?);
        }
    }
    let grains = parameters.grains("grains");
    let ratios = threads().filter_map(|n| ratio(&rows, *n, grains)).collect();
    Ok(Report::of((&SCENARIO, parameters), stage, "fault", rows, ratios))
}

type Face<'s, 'm, S> =
    &'s Manager<'m, Counted<<S as Stage<'m>>::Machine>, <S as Stage<'m>>::Paging>;

/// Memory that nobody shall have. Dropped, it is given back.
struct Ballast<'s, 'm, S: Stage<'m>> {
    manager: Face<'s, 'm, S>,
    lent: Vec<Frame>,
    defrag: Defrag,
}

impl<'s, 'm, S: Stage<'m>> Ballast<'s, 'm, S> {
    /// Leaves so many blocks of 2 MiB.
    fn new(stage: &'s S, blocks: u64) -> Result<Self, LabError> {
        let manager = stage.manager();
        let mut ballast = Ballast { manager, lent: Vec::new(), defrag: manager.defrag() };
        let there = whole_blocks::<S>(manager);
        if there < blocks {
            return Err(LabError::NoMemory);
        }
        for _ in blocks..there {
            ballast.lent.push(manager.lend(Order::SIZE_2M).map_err(|_| LabError::NoMemory)?);
        }
        manager.set_defrag(Defrag::Always);
        Ok(ballast)
    }
}

impl<'m, S: Stage<'m>> Drop for Ballast<'_, 'm, S> {
    fn drop(&mut self) {
        self.manager.set_defrag(self.defrag);
        for frame in self.lent.drain(..) {
            let back = self.manager.take_back(frame, Order::SIZE_2M);
            debug_assert!(back.is_ok(), "it was lent: {back:?}");
        }
    }
}

/// Free blocks of 2 MiB, those in larger ones included.
fn whole_blocks<'m, S: Stage<'m>>(manager: Face<'_, 'm, S>) -> u64 {
    let census = manager.free_blocks();
    let within = |order: Order| census.blocks(order) << (order.get() - Order::SIZE_2M.get());
    Order::all().skip(Order::SIZE_2M.index()).map(within).sum()
}

/// A space whose pages are everywhere. Dropped, it ends.
struct Scattered<'s, 'm, S: Stage<'m>> {
    manager: Face<'s, 'm, S>,
    space: SpaceId,
}

impl<'s, 'm, S: Stage<'m>> Scattered<'s, 'm, S> {
    fn new(stage: &'s S, blocks: u64) -> Result<Self, LabError> {
        let manager = stage.manager();
        let scattered = Scattered::<S> { manager, space: manager.create(None)? };
        let all = map::<S>(
            manager,
            scattered.space,
            SCATTERED,
            blocks * Bytes::SIZE_2M.get(),
            Flags::NONE,
        )?;
        manager.switch(Some(scattered.space))?;
        let touched = stage.touch(scattered.space, all, Bytes::SIZE_2M, Access::Write);
        manager.switch(None)?;
        touched?;
        scattered.thin_out(all)?;
        Ok(scattered)
    }
    /// Gives back every second page, at random, and makes pages of what is left.
    fn thin_out(&self, all: VaRange) -> Result<(), LabError> {
        let mut random = Random(0x2545_f491_4f6c_dd1d);
        let mut va = all.start();
        while va < all.end() {
            if random.next() & 1 == 0
                && let Some(page) = VaRange::sized(va, PAGE)
            {
                self.manager.advise(self.space, page, Advice::DontNeed)?;
            }
            va = va.add(PAGE.get());
        }
        let blocks = all.bytes().get() / Bytes::SIZE_2M.get();
        let page = |nth: u64| {
            let block =
                VaRange::sized(all.start().add(nth * Bytes::SIZE_2M.get()), Bytes::SIZE_2M)?;
            let pages = block.bytes().get() / PAGE.get();
            let at = |n| self.manager.frame_at(self.space, block.start().add(n * PAGE.get()));
            (0..pages).find_map(at).map(SplitRequest::of)
        };
        let mut list: Vec<SplitRequest> = (0..blocks).filter_map(page).collect();
        self.manager.split_list(&mut list, SplitInto::BASE);
        Ok(())
    }
}

impl<'m, S: Stage<'m>> Drop for Scattered<'_, 'm, S> {
    fn drop(&mut self) {
        let ended = self.manager.end(self.space);
        debug_assert!(ended.is_ok(), "no CPU runs it: {ended:?}");
    }
}

/// Random numbers, the same ones each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 32
    }
}

fn map<'m, S: Stage<'m>>(
    manager: &Manager<'m, Counted<S::Machine>, S::Paging>,
    space: SpaceId,
    start: Va,
    bytes: u64,
    more: Flags,
) -> Result<VaRange, LabError> {
    let place = Place::NoReplace(start);
    let flags = Flags::READ_WRITE.with(more);
    Ok(manager.map(space, &MapRequest { place, bytes: Bytes::new(bytes), flags, tag: 0 })?)
}

/// The threads at work, and what they measure.
struct Threads<'s, 'm, S: Stage<'m>> {
    ground: Ground<'s, 'm, S>,
    count: u64,
    rounds: u64,
    grain: FlushGrain,
    base: VaRange,
    /// Whose turn it is; beyond all of them where one could not go on.
    turn: AtomicU64,
    huge_ticks: Vec<AtomicU64>,
    base_ticks: Vec<AtomicU64>,
}

impl<'m, S: Stage<'m>> Threads<'_, 'm, S> {
    /// All turns of one thread.
    fn run(&self, cpu: Cpu) -> Result<(), Stopped> {
        for round in 0..self.rounds {
            let mine = round * self.count + u64::from(cpu.0);
            while self.turn.load(Ordering::Acquire) < mine {
                self.ground.manager.machine().relax();
            }
            if self.turn.load(Ordering::Acquire) > mine {
                return Ok(());
            }
            let went = self.take_turn(u64::from(cpu.0), round);
            let next = if went.is_ok() { mine + 1 } else { u64::MAX };
            self.turn.store(next, Ordering::Release);
            went?;
        }
        Ok(())
    }
    fn take_turn(&self, thread: u64, round: u64) -> Result<(), Stopped> {
        let nth = (round * self.count + thread) as usize;
        // The grain is that of what is measured: what the thread gives back itself is the same work
        // in each row.
        self.ground.manager.set_flush_grain(self.grain);
        let huge = self.slot(thread, round);
        let page = VaRange::sized(huge.start(), PAGE).unwrap_or(huge);
        self.fault(page, &self.huge_ticks[nth])?;
        let base = self.base.start().add(nth as u64 * PAGE.get());
        self.fault(VaRange::sized(base, PAGE).unwrap_or(page), &self.base_ticks[nth])?;
        self.ground.manager.set_flush_grain(FlushGrain::WHOLE);
        if let Some(before) = round.checked_sub(1) {
            let used = self.slot(thread, before);
            let most = VaRange::new(used.start().add(STAY), used.end()).unwrap_or(used);
            self.discard(most)?;
        }
        if let Some(before) = round.checked_sub(TURNS) {
            self.discard(self.slot(thread, before))?;
        }
        Ok(())
    }
    /// The huge page of a thread's turn.
    fn slot(&self, thread: u64, round: u64) -> VaRange {
        let nth = thread * self.rounds + round;
        let start = self.ground.area.start().add(nth * Bytes::SIZE_2M.get());
        VaRange::sized(start, Bytes::SIZE_2M).unwrap_or(self.ground.area)
    }
    fn fault(&self, page: VaRange, ticks: &AtomicU64) -> Result<(), Stopped> {
        let machine = self.ground.manager.machine();
        let begun = machine.ticks();
        self.ground.stage.touch(self.ground.space, page, PAGE, Access::Write)?;
        ticks.store(machine.ticks().saturating_sub(begun), Ordering::Relaxed);
        Ok(())
    }
    fn discard(&self, range: VaRange) -> Result<(), Stopped> {
        let done = self.ground.manager.advise(self.ground.space, range, Advice::DontNeed);
        done.map_err(|_| Stopped::NoMemory(range.start()))
    }
}

fn row<'m, S: Stage<'m>>(
    stage: &S,
    threads: u64,
    rounds: u64,
    grain: FlushGrain,
) -> Result<Row, LabError> {
    let manager = stage.manager();
    manager.describe_all()?;
    // What a row before this one preferred shall not show.
    (0..cpus(stage).0).for_each(|cpu| manager.folios().drain(Cpu(cpu)));
    let blocks = (SHARED + EACH * threads) / Bytes::SIZE_2M.get();
    let _ballast = Ballast::new(stage, blocks)?;
    let area = Bytes::new(threads * rounds * Bytes::SIZE_2M.get());
    let policy = Policy::always(Orders::of(Order::SIZE_2M));
    let ground = Ground::new(stage, area, policy, FlushGrain::WHOLE)?;
    // Only the threads' CPUs run their space.
    stage.together(ground.cpus, &|cpu| {
        if u64::from(cpu.0) >= threads || cpu.0 == 0 {
            let _ = manager.switch(None); // refuses nothing
        }
    });
    let _scattered = Scattered::new(stage, whole_blocks::<S>(manager).saturating_sub(SPARE))?;
    manager.switch(Some(ground.space))?;
    let bytes = threads * rounds * PAGE.get();
    let base = map::<S>(manager, ground.space, BASE, bytes, Flags::NOHUGEPAGE)?;
    let empty = || (0..threads * rounds).map(|_| AtomicU64::new(0)).collect();
    let threads = Threads {
        ground,
        count: threads,
        rounds,
        grain,
        base,
        turn: AtomicU64::new(0),
        huge_ticks: empty(),
        base_ticks: empty(),
    };
    let before = Events::read(stage);
    let begun = Meter::read(stage);
    threads.ground.together(|cpu| match u64::from(cpu.0) < threads.count {
        true => threads.run(cpu),
        false => Ok(()),
    })?;
    let span = begun.until_now(stage);
    Ok(summary(&threads, grain, &span, &Events::read(stage).since(&before)))
}

/// What the manager counted.
struct Events([u64; 6]);

impl Events {
    const NAMES: [&'static str; 6] = [
        "huge_fallbacks",
        "folios_split",
        "compact_stall",
        "compact_success",
        "blocks_emptied",
        "pages_moved",
    ];
    fn read<'m, S: Stage<'m>>(stage: &S) -> Events {
        let manager = stage.manager();
        let total = |event| manager.total(event);
        Events([
            manager.size_stats(Order::SIZE_2M).get(SizeEvent::AnonFaultFallback),
            total(Event::ThpSplitPage),
            total(Event::CompactStall),
            total(Event::CompactSuccess),
            total(Event::CompactBlocks),
            total(Event::PgMigrateSuccess),
        ])
    }
    fn since(&self, before: &Events) -> Events {
        Events(core::array::from_fn(|n| self.0[n] - before.0[n]))
    }
}

fn summary<'m, S: Stage<'m>>(
    threads: &Threads<'_, 'm, S>,
    grain: FlushGrain,
    span: &Span,
    events: &Events,
) -> Row {
    let sorted = |ticks: &[AtomicU64]| {
        let mut ticks: Vec<u64> = ticks.iter().map(|t| t.load(Ordering::Relaxed)).collect();
        ticks.sort_unstable();
        ticks
    };
    let (huge, base) = (sorted(&threads.huge_ticks), sorted(&threads.base_ticks));
    let mean = |ticks: &[u64]| ticks.iter().sum::<u64>() / (ticks.len() as u64).max(1);
    let at = |percent: usize| huge.get((huge.len() * percent / 100).min(huge.len() - 1));
    let counts = [
        ("faults", span.faults),
        ("shootdowns", span.machine.shootdowns),
        ("interrupts", span.machine.interrupts),
    ];
    let both = (mean(&huge) + mean(&base)) / 2;
    Row {
        name: name(threads.count, grain).into(),
        counts: Named::from_iter(counts.into_iter().chain(Events::NAMES.into_iter().zip(events.0))),
        pages: 1,
        ticks: Named::from_iter([
            (BOTH, both),
            ("huge", mean(&huge)),
            ("huge_50", at(50).copied().unwrap_or_default()),
            ("huge_95", at(95).copied().unwrap_or_default()),
            ("huge_99", at(99).copied().unwrap_or_default()),
            ("base", mean(&base)),
        ]),
    }
}

/// The mean of both kinds of faults, as the benchmark's `fault-both`.
const BOTH: &str = "both";

fn name(threads: u64, grain: FlushGrain) -> String {
    format!("fault-both-{threads}, grain {grain}")
}

/// The mean latency at the first grain to that at the last.
fn ratio(rows: &[Row], threads: u64, grains: &[FlushGrain]) -> Option<Ratio> {
    let (first, last) = (grains.first()?, grains.last()?);
    if first == last {
        return None;
    }
    let both = |grain| {
        let row = rows.iter().find(|row| row.name == name(threads, grain))?;
        row.ticks.get(BOTH).copied()
    };
    let name = format!("fault-both-{threads}, grain {first} to {last}").into();
    Some(Ratio { name, of: both(*first)?, to: both(*last)? })
}
