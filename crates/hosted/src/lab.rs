//! The rows, the rounds, and their medians.

use crate::machine::{self, Process, clock};
use crate::memory::Memory;
use foliant::folio::{CpuCount, Folios, Word, WordCount};
use foliant::zero::{Clearing, Far, Pace, ZeroGrain};
use foliant_units::{Bytes, FRAME_BYTES, FrameRange, Nanos, Order};
use foliant_x86::{Choice, Clear, ClearPlan, Features, Line, TscClock, X86, ticks};
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The size of a block: 2 MiB or 1 GiB.
    pub size: Order,
    /// Memory that the blocks are taken from, in turn.
    pub total: Bytes,
    /// Rounds of which medians are taken.
    pub rounds: u32,
}

/// Why nothing was measured.
#[derive(Debug)]
pub enum HostError {
    /// The memory was not to be had.
    Memory(Bytes, std::io::Error),
    /// The time-stamp counter stands still.
    NoClock,
    /// The processor is none that the machine takes.
    Machine(foliant_x86::SetupError),
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostError::Memory(bytes, why) => {
                write!(f, "{bytes} of memory are not to be had ({why}); ask for less with --total")
            }
            HostError::NoClock => {
                f.write_str("the time-stamp counter stands still; run it elsewhere")
            }
            HostError::Machine(why) => why.fmt(f),
        }
    }
}
impl std::error::Error for HostError {}

/// A primitive as it was measured at the start.
#[derive(Clone, Serialize, JsonSchema, Debug)]
pub struct Primitive {
    /// Its name.
    pub name: String,
    /// Megabytes per second, a page at a time, inside the caches; 0 of one that goes past them.
    pub short: u64,
    /// Megabytes per second, in one go, inside the caches; likewise.
    pub inside: u64,
    /// Megabytes per second, going on through memory.
    pub beyond: u64,
}

/// One way of clearing. Times are nanoseconds per block, medians of the rounds.
#[derive(Clone, Serialize, JsonSchema, Debug)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Nanoseconds of clearing alone, block after block.
    pub clear: u64,
    /// The least of the rounds, in nanoseconds.
    pub clear_least: u64,
    /// Megabytes per second, by the median.
    pub rate: u64,
    /// Nanoseconds of reading every line in order after that.
    pub sequential: u64,
    /// Nanoseconds of reading the page touched and two on either side.
    pub around: u64,
    /// Nanoseconds of reading every line in no order, 2^18 of them at most.
    pub random: u64,
    /// Nanoseconds of the clear before the sequential walk, and the walk.
    pub total: u64,
    /// The longest stretch without a preemption point, in nanoseconds.
    pub longest: u64,
    /// The least that a round's longest stretch was: what a busy host does not disturb.
    pub longest_least: u64,
    /// Extents per block.
    pub extents: u64,
}

/// What was measured.
#[derive(Clone, Serialize, JsonSchema, Debug)]
pub struct Measurement {
    /// The size of a block in bytes.
    pub size: u64,
    /// The memory used in bytes.
    pub total: u64,
    /// The rounds.
    pub rounds: u32,
    /// What was measured of the primitives.
    pub primitives: Vec<Primitive>,
    /// Nanoseconds that this took.
    pub spent: u64,
    /// How many nanoseconds more reading 2 MiB takes where they were cleared past the caches.
    pub refetch: u64,
    /// What was chosen: for short clears, for memory used soon, for other memory.
    pub chosen: [String; 3],
    /// The rows: page at a time first, then each primitive at several grains, the chosen plan,
    /// memory known to be zero.
    pub rows: Vec<Row>,
}

impl Measurement {
    /// The page-at-a-time row.
    pub fn baseline(&self) -> Option<&Row> {
        self.rows.first()
    }
    /// The chosen plan's row.
    pub fn plan(&self) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == CHOSEN)
    }
    /// The best rate of storing zeros that any row reached.
    pub fn limit(&self) -> u64 {
        let stores = self.rows.iter().filter(|row| row.name != KNOWN);
        stores.map(|row| row.rate).max().unwrap_or_default()
    }
}

const CHOSEN: &str = "chosen plan";
const KNOWN: &str = "known zero";
/// Blocks of 2 MiB that are walked per round and pattern.
const WALKS: u64 = 48;

/// Lines read in no order, at most: those of a block of 1 GiB would take longer than all else.
const RANDOM_MOST: u64 = 1 << 18;

/// A row being measured.
struct Way<'l> {
    name: String,
    machine: X86<'l, Process>,
    clearing: Clearing,
    pace: Pace,
    known: bool,
    samples: [Vec<u64>; 6],
    extents: u64,
}

/// Measures clearing on this machine. `progress` is told how many of how many rounds are done.
pub fn measure(asked: &Asked, progress: impl Fn(u32, u32)) -> Result<Measurement, HostError> {
    let mut memory =
        Memory::new(asked.size, asked.total).map_err(|why| HostError::Memory(asked.total, why))?;
    let clock = clock().ok_or(HostError::NoClock)?;
    let features = Features::detect();
    let choice = Choice::measure(&features, memory.bytes());
    let lines = [const { Line::new() }; 1];
    let clearing = Clearing { refetch: clock.at(choice.refetch), ..Clearing::default() };
    let mut ways = ways(&mut memory, &features, (choice.plan, clearing), (&clock, &lines))?;
    let frames = memory.frames();
    let need = Folios::layout(&[frames], CpuCount(1)).unwrap_or(WordCount(0));
    let lent: Vec<Word> = (0..need.0).map(|_| Word::new(0)).collect();
    let folios = Folios::new(&[frames], CpuCount(1), &lent).ok();
    folios.iter().for_each(|folios| folios.declare_zero(frames));
    let unknown = |range: FrameRange| folios.as_ref().map_or(Some(range), |f| f.unknown(range));
    let mut turn = Turn { memory, clock, order: asked.size, block: 0, seed: 1 };
    for round in 0..=asked.rounds {
        for way in &mut ways {
            match way.known {
                true => turn.round(way, &unknown),
                false => turn.round(way, &Some),
            }
            if round == 0 {
                way.samples = Default::default(); // a warm-up
            }
        }
        progress(round, asked.rounds);
    }
    let rate = |per_1024: u64| clock_rate(&turn.clock, per_1024);
    let primitives = choice.rows().map(|row| Primitive {
        name: row.clear.to_string(),
        short: rate(row.short),
        inside: rate(row.inside),
        beyond: rate(row.beyond),
    });
    Ok(Measurement {
        size: asked.size.bytes().get(),
        total: turn.memory.blocks() * asked.size.bytes().get(),
        rounds: asked.rounds,
        primitives: primitives.collect(),
        spent: turn.clock.at(choice.spent).0,
        refetch: turn.clock.at(choice.refetch).0,
        chosen: choice.plan.all().map(|clear| clear.to_string()),
        rows: ways.into_iter().map(|way| way.row(asked.size)).collect(),
    })
}

/// Bytes per 1024 ticks as megabytes per second.
fn clock_rate(clock: &TscClock, per_1024: u64) -> u64 {
    per_1024 * 1_024_000 / clock.at(1 << 20).0.max(1)
}

fn ways<'l>(
    memory: &mut Memory,
    features: &Features,
    (chosen, usual): (ClearPlan, Clearing),
    (clock, lines): (&TscClock, &'l [Line]),
) -> Result<Vec<Way<'l>>, HostError> {
    let base = memory.base();
    let way = |name: String, plan, clearing, known| {
        let machine = machine::machine(base, plan, *clock, lines).map_err(HostError::Machine)?;
        let (pace, samples) = (Pace::default(), Default::default());
        Ok(Way { name, machine, clearing, pace, known, samples, extents: 0 })
    };
    let keep = |grain| Clearing { grain, far: Far::Cached, ..usual };
    let string = if features.erms { Clear::StoreB } else { Clear::StoreQ };
    let page = ClearPlan::only(string);
    let mut ways = vec![way("page at a time".into(), page, keep(ZeroGrain::PAGE), false)?];
    let grains = [Some(FRAME_BYTES), Some(64 << 10), None];
    for clear in Clear::ALL.into_iter().filter(|clear| clear.is_usable(features)) {
        for grain in grains {
            let grain = grain.and_then(|bytes| ZeroGrain::new(Bytes::new(bytes)));
            let grain = grain.unwrap_or(ZeroGrain::WHOLE);
            if (clear, grain) != (string, ZeroGrain::PAGE) {
                let name = format!("{clear}, {grain}");
                ways.push(way(name, ClearPlan::only(clear), keep(grain), false)?);
            }
        }
    }
    ways.push(way(CHOSEN.into(), chosen, usual, false)?);
    ways.push(way(KNOWN.into(), chosen, usual, true)?);
    Ok(ways)
}

/// Whose turn it is on the memory.
struct Turn {
    memory: Memory,
    clock: TscClock,
    order: Order,
    block: u64,
    seed: u64,
}

impl Turn {
    /// A number from a fixed sequence.
    fn draw(&mut self) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.seed >> 33
    }
    fn time<R>(&self, work: impl FnOnce() -> R) -> (Nanos, R) {
        let begun = ticks();
        let result = work();
        (self.clock.at(ticks() - begun), result)
    }

    /// Clears all blocks; then clears some and walks them, a third in each pattern.
    fn round(&mut self, way: &mut Way<'_>, unknown: &impl Fn(FrameRange) -> Option<FrameRange>) {
        let blocks = self.memory.blocks();
        let (mut spent, mut extents) = (0, 0);
        for _ in 0..blocks {
            let (time, clears) = self.clear(way, unknown);
            spent += time.0;
            extents += clears;
        }
        way.extents = extents / blocks;
        way.samples[0].push(spent / blocks);
        let walks = if self.order == Order::SIZE_2M { WALKS } else { 1 };
        let mut total = 0;
        for pattern in 0..3 {
            let mut walked = 0;
            for _ in 0..walks {
                let (cleared, _) = self.clear(way, unknown);
                let time = self.walk(pattern);
                walked += time.0;
                total += if pattern == 0 { cleared.0 + time.0 } else { 0 };
            }
            way.samples[1 + pattern].push(walked / walks);
        }
        way.samples[4].push(total / walks);
        way.samples[5].push(way.machine.host().longest(&self.clock).0);
    }

    /// Clears the next block as a fault does, at some page.
    fn clear(
        &mut self,
        way: &mut Way<'_>,
        unknown: &impl Fn(FrameRange) -> Option<FrameRange>,
    ) -> (Nanos, u64) {
        let at = (self.block + 1, self.draw());
        self.block = at.0;
        let how = (&way.pace, &way.clearing);
        way.machine.host().begin();
        let begun = ticks();
        let tally = self.memory.clear(&way.machine, how, at, unknown);
        let time = self.clock.at(ticks() - begun);
        way.machine.host().end();
        (time, tally.clears)
    }

    /// Walks the block that was cleared last: all lines in order; those around the page touched;
    /// all in no order.
    fn walk(&self, pattern: usize) -> Nanos {
        let lines = self.order.bytes().get() / 64;
        let page = FRAME_BYTES / 64;
        let touched = self.seed >> 33;
        let pages = self.order.pages().get();
        let (first, last) = near(touched % pages, pages);
        let (time, sum) = self.time(|| match pattern {
            0 => self.memory.walk(self.block, 0..lines),
            1 => self.memory.walk(self.block, first * page..(last + 1) * page),
            // An odd stride visits every line of a power of two once.
            _ => {
                let some = (0..lines.min(RANDOM_MOST)).map(|n| n * 2_654_435_761 % lines);
                self.memory.walk(self.block, some)
            }
        });
        std::hint::black_box(sum);
        time
    }
}

/// The page touched and two on either side.
fn near(touched: u64, pages: u64) -> (u64, u64) {
    (touched.saturating_sub(2), (touched + 2).min(pages - 1))
}

impl Way<'_> {
    fn row(self, size: Order) -> Row {
        let median = |n: usize| {
            let mut sorted = self.samples[n].clone();
            sorted.sort_unstable();
            sorted.get(sorted.len() / 2).copied().unwrap_or_default()
        };
        let least = |n: usize| self.samples[n].iter().min().copied().unwrap_or_default();
        let clear = median(0);
        Row {
            clear,
            clear_least: least(0),
            rate: size.bytes().get() * 1000 / clear.max(1),
            sequential: median(1),
            around: median(2),
            random: median(3),
            total: median(4),
            longest: self.samples[5].iter().max().copied().unwrap_or_default(),
            longest_least: least(5),
            extents: self.extents,
            name: self.name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_measured_and_counts_say_what_it_did() {
        let asked = Asked { size: Order::SIZE_2M, total: Bytes::new(8 << 20), rounds: 1 };
        let measured = measure(&asked, |_, _| {}).unwrap();
        assert_eq!((measured.size, measured.total), (2 << 20, 8 << 20));
        let extents = |name: &str| {
            let row = measured.rows.iter().find(|row| row.name == name);
            row.unwrap_or_else(|| panic!("no row {name}")).extents
        };
        assert_eq!(extents("page at a time"), 512);
        assert!((32..=34).contains(&extents("rep stosq, 64k")));
        assert!((1..=3).contains(&extents(CHOSEN)) && extents(KNOWN) == 0);
        assert!(measured.rows.iter().all(|row| row.name == KNOWN || row.rate > 0));
        assert!(measured.primitives.iter().any(|p| p.name == measured.chosen[2]));
        assert!(measured.limit() >= measured.plan().unwrap().rate);
        assert_eq!((near(0, 512), near(511, 512), near(9, 512)), ((0, 2), (509, 511), (7, 11)));
    }
}
