//! Probes of a large table through the translation hardware of the machine that runs this process:
//! base pages against huge pages.
//!
//! Two mappings of the same size, one with huge pages refused and one with them asked for; whether
//! they came is read back from `/proc/self/smaps`. Each probe's place depends on what the last one
//! read, as in a chain of buckets, so that it waits for its own translation and cannot hide behind
//! the next.
//!
//! ```text
//!   round ─▶ the table in base pages: probes at random words ─▶ the table in huge pages: the same words ─▶ next round
//! ```
//!
//! **Invariants**
//! - Q1. Every page was written before the first round, and the first round is not counted.
//! - Q2. Each round probes both tables at the same places, in the same order.
//!
//! **Not here**: kernel memory: a process has no part of it. What it costs to make the mappings.

use crate::lab::HostError;
use crate::machine::clock;
use foliant_units::Bytes;
use foliant_x86::{TscClock, ticks};
use memmap2::{Advice, MmapMut};
use perf_event::events::{Cache, CacheId, CacheOp, CacheResult};
use perf_event::{Builder, Counter};
use schemars::JsonSchema;
use serde::Serialize;
use std::fs::read_to_string;
use std::hint::black_box;
use std::io;

/// What is probed.
#[derive(Clone, Copy, Debug)]
pub struct ProbeAsked {
    /// The size of a table, a multiple of 4096. There are two of them, and as much again should be
    /// free.
    pub table: Bytes,
    /// Probes in a round.
    pub probes: u64,
    /// Rounds of which medians are taken.
    pub rounds: u32,
}

/// One of the tables.
#[derive(Clone, Serialize, JsonSchema, Debug)]
pub struct ProbeRow {
    /// The pages that were asked for: `4k` or `2m`.
    pub name: String,
    /// Nanoseconds per probe, median of the rounds.
    pub ns_per_probe: f64,
    /// The least of the rounds.
    pub ns_per_probe_least: f64,
    /// How much of the table the system says is in huge pages.
    pub huge_bytes: u64,
    /// Misses of the data TLB per probe, where the machine counts them.
    pub dtlb_misses_per_probe: Option<f64>,
}

/// What was measured.
#[derive(Clone, Serialize, JsonSchema, Debug)]
pub struct Probed {
    /// The size of a table in bytes.
    pub table: u64,
    /// Probes in a round.
    pub probes: u64,
    /// The rounds.
    pub rounds: u32,
    /// Base pages, then huge pages.
    pub rows: [ProbeRow; 2],
    /// Why misses were not counted.
    pub uncounted: Option<String>,
}

impl Probed {
    /// How many times as long a probe takes in base pages; nothing where there were no huge pages
    /// to compare with.
    pub fn ratio(&self) -> Option<f64> {
        let [base, huge] = &self.rows;
        (huge.huge_bytes > 0).then(|| base.ns_per_probe / huge.ns_per_probe.max(f64::MIN_POSITIVE))
    }
}

const PAGE: usize = 4096;
const HUGE: usize = 2 << 20;

/// Probes both tables. `progress` is told how many of how many rounds are done.
pub fn probe(asked: &ProbeAsked, progress: impl Fn(u32, u32)) -> Result<Probed, HostError> {
    let clock = clock().ok_or(HostError::NoClock)?;
    let table =
        |advice| Table::new(asked.table, advice).map_err(|why| HostError::Memory(asked.table, why));
    let tables = [table(Advice::NoHugePage)?, table(Advice::HugePage)?];
    let (mut counter, uncounted) = match misses() {
        Ok(counter) => (Some(counter), None),
        Err(why) => (None, Some(format!("no event for misses of the data TLB: {why}"))),
    };
    let mut times = [Vec::new(), Vec::new()];
    let mut missed = [0, 0];
    for round in 0..=asked.rounds {
        for (nth, table) in tables.iter().enumerate() {
            let (time, misses) = table.round(&clock, asked.probes, round.into(), &mut counter);
            if round > 0 {
                times[nth].push(time);
                missed[nth] += misses;
            }
        }
        progress(round, asked.rounds);
    }
    let row = |nth: usize, name: &str| {
        let mut sorted = times[nth].clone();
        sorted.sort_unstable();
        let each =
            |n: usize| sorted.get(n).map_or(0.0, |ns| *ns as f64 / asked.probes.max(1) as f64);
        let all = asked.probes.max(1) * u64::from(asked.rounds.max(1));
        ProbeRow {
            name: name.to_owned(),
            ns_per_probe: each(sorted.len() / 2),
            ns_per_probe_least: each(0),
            huge_bytes: tables[nth].huge_bytes(),
            dtlb_misses_per_probe: counter.as_ref().map(|_| missed[nth] as f64 / all as f64),
        }
    };
    Ok(Probed {
        table: asked.table.get(),
        probes: asked.probes,
        rounds: asked.rounds,
        rows: [row(0, "4k"), row(1, "2m")],
        uncounted,
    })
}

/// Memory that the system would give without pushing anything out.
pub fn available() -> Option<Bytes> {
    let info = read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(Bytes::new(kilobytes(line)? << 10))
}

fn kilobytes(text: &str) -> Option<u64> {
    text.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// A counter of this thread's misses, standing still.
fn misses() -> io::Result<Counter> {
    let event = Cache { which: CacheId::DTLB, operation: CacheOp::READ, result: CacheResult::MISS };
    Builder::new(event).build()
}

/// A mapping that begins at a multiple of 2 MiB, full of zeros that were written.
struct Table {
    map: MmapMut,
    skip: usize,
    bytes: usize,
}

impl Table {
    fn new(bytes: Bytes, advice: Advice) -> io::Result<Table> {
        let bytes = bytes.get() as usize;
        let mut map = MmapMut::map_anon(bytes + HUGE)?;
        // A kernel without huge pages refuses; `huge_bytes` says what came of it.
        let _ = map.advise(advice);
        let skip = map.as_ptr().align_offset(HUGE);
        map[skip..skip + bytes].iter_mut().step_by(PAGE).for_each(|byte| *black_box(byte) = 0);
        Ok(Table { map, skip, bytes })
    }
    /// How long the probes of a round took, in nanoseconds, and how many missed where that is
    /// counted.
    fn round(
        &self,
        clock: &TscClock,
        probes: u64,
        seed: u64,
        counter: &mut Option<Counter>,
    ) -> (u64, u64) {
        if let Some(counter) = counter {
            let started = counter.reset().and_then(|()| counter.enable());
            debug_assert!(started.is_ok(), "it was opened for this: {started:?}");
        }
        let begun = ticks();
        black_box(self.walk(probes, seed));
        let time = clock.at(ticks() - begun).0;
        let missed = counter.as_mut().and_then(|counter| {
            counter.disable().ok()?;
            counter.read().ok()
        });
        (time, missed.unwrap_or_default())
    }
    fn walk(&self, probes: u64, seed: u64) -> u64 {
        let table = &self.map[self.skip..self.skip + self.bytes];
        let words = (self.bytes / 8) as u64;
        let mut state = seed;
        for _ in 0..probes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = ((u128::from(state) * u128::from(words)) >> 64) as usize * 8;
            let word: &[u8; 8] = table[at..at + 8].first_chunk().expect("eight bytes");
            // All words are zero; only the processor has to wait to know.
            state = state.wrapping_add(u64::from_ne_bytes(*black_box(word)));
        }
        state
    }
    /// How much of it is in huge pages, by the system's own account.
    fn huge_bytes(&self) -> u64 {
        let start = self.map[self.skip..].as_ptr() as u64;
        let maps = read_to_string("/proc/self/smaps").unwrap_or_default();
        huge_bytes(&maps, start, start + self.bytes as u64)
    }
}

/// Huge pages of the mappings that share addresses with the range, from the text of `smaps`.
fn huge_bytes(maps: &str, start: u64, end: u64) -> u64 {
    let (mut inside, mut bytes) = (false, 0);
    for line in maps.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let number = |text| u64::from_str_radix(text, 16).ok();
        if let Some((from, to)) = range.and_then(|(from, to)| number(from).zip(number(to))) {
            inside = from < end && start < to;
        } else if let Some(size) = line.strip_prefix("AnonHugePages:").filter(|_| inside) {
            bytes += kilobytes(size).unwrap_or_default() << 10;
        }
    }
    bytes.min(end - start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tables_are_probed_and_the_system_says_what_they_are_made_of() {
        let asked = ProbeAsked { table: Bytes::new(8 << 20), probes: 10_000, rounds: 3 };
        let probed = probe(&asked, |_, _| {}).unwrap();
        let [base, huge] = &probed.rows;
        assert_eq!(base.huge_bytes, 0, "they were refused");
        assert!(huge.huge_bytes <= 8 << 20);
        assert_eq!(probed.ratio().is_some(), huge.huge_bytes > 0);
        for row in &probed.rows {
            assert!(row.ns_per_probe >= row.ns_per_probe_least && row.ns_per_probe_least > 0.0);
            assert_eq!(row.dtlb_misses_per_probe.is_none(), probed.uncounted.is_some());
        }
    }

    #[test]
    fn huge_pages_are_summed_over_the_mappings_of_the_range() {
        let maps = "7f0000000000-7f0000400000 rw-p 00000000 00:00 0 \nRss: 4096 kB\nAnonHugePages:      2048 kB\n\
                    7f0000400000-7f0000600000 rw-p 00000000 00:00 0 [anon]\nAnonHugePages:  2048 kB\n\
                    7f0000800000-7f0000a00000 rw-p 00000000 00:00 0 \nAnonHugePages:  2048 kB\n";
        let sum = |start: u64, end: u64| {
            huge_bytes(maps, 0x7f00_0000_0000 + start, 0x7f00_0000_0000 + end)
        };
        assert_eq!(sum(0, 6 << 20), 4 << 20);
        assert_eq!(sum(4 << 20, 8 << 20), 2 << 20, "the next one begins where the range ends");
        assert_eq!(sum(6 << 20, 8 << 20), 0);
        assert_eq!(sum(0, 1 << 20), 1 << 20, "no more than there is");
        assert!(available().is_some_and(|bytes| bytes.get() > 0));
    }
}
