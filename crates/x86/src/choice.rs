//! Which primitive clears best, found by measuring: three answers, since three cases differ.
//!
//! ```text
//!   up to 32 KiB, to be used soon   short          best in pieces of a page, in memory that the caches hold
//!   more, to be used soon            cached         best of those through the cache, in such memory
//!   not to be used soon              non_temporal   best past the cache, in memory that they do not hold
//! ```
//!
//! A name says nothing about speed: `rep stosb` is fastest on one CPU for megabytes and slow for
//! pages, and an emulator goes byte by byte. A fourth number says what going past the caches costs
//! whoever reads the block then ([`Choice::refetch`]): it depends on what the caches hold, which is
//! found by reading, not by asking for their sizes, since guests share them and are told others'.
//!
//! Each round measures every primitive once, so that what disturbs one disturbs all, and the best
//! of the rounds counts, since a disturbance only slows down. Those within [`NOISE`] of the best
//! are equal. Of equal ones the cached with the fewest instructions and registers is taken (`rep`,
//! then the narrowest vectors), and the widest that go past the cache: CLZERO, which takes whole
//! lines without a register, then the widest vectors. A loop that was best by luck is slower where
//! the CPU has something else to do.
//!
//! Memory that the caches do not hold is made by clearing it past them just before. So a few MiB
//! are enough, however large the caches are, and a guest's host has backed all of it by then.
//!
//! What goes through the caches is written to memory later, in nobody's time, so its rate is not
//! compared with that of stores past them. Only where it is more than twice as fast, as on an
//! emulator, does nothing go past them.
//!
//! **Not here**: which case a piece of memory is (`foliant::zero`).

use crate::clear::{LINE, Primitive, lines_of};
use crate::{Clear, Features, ticks};
use foliant_machine::Caching;
use foliant_units::{Bytes, FRAME_BYTES};

/// Up to here a clear is a short one.
const SHORT: u64 = 32 << 10;
/// Bytes that stand for memory that the caches hold.
const INSIDE: usize = 256 << 10;
/// Bytes that are cleared past them.
const PIECE: usize = 1 << 20;
/// Bytes of a block, which is cleared and then read.
const BLOCK: usize = Bytes::SIZE_2M.get() as usize;
/// All of it in one go.
const WHOLE: u64 = u64::MAX;
/// Ticks that all of it may take, unless one round takes longer: 2 to 4 ms at 4 to 2 GHz.
const EFFORT: u64 = 1 << 23;
/// Rounds, at most: a clock may stand still.
const ROUNDS: u32 = 16;
/// A rate within a 32nd of the best is as good.
const NOISE: u64 = 32;

/// The primitives that a machine uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClearPlan {
    /// For short clears of memory that is used soon.
    pub short: Clear,
    /// For longer ones.
    pub cached: Clear,
    /// For memory that is not used soon.
    pub non_temporal: Clear,
}

impl ClearPlan {
    /// One primitive for everything.
    pub const fn only(clear: Clear) -> ClearPlan {
        ClearPlan { short: clear, cached: clear, non_temporal: clear }
    }
    /// The primitive for a clear of `bytes`.
    pub const fn of(&self, bytes: Bytes, caching: Caching) -> Clear {
        match caching {
            Caching::NonTemporal => self.non_temporal,
            Caching::Cached if bytes.get() <= SHORT => self.short,
            Caching::Cached => self.cached,
        }
    }
    /// All of them.
    pub fn all(&self) -> [Clear; 3] {
        [self.short, self.cached, self.non_temporal]
    }
}

/// What was measured of a primitive: bytes per 1024 ticks of the time-stamp counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measured {
    /// Which primitive.
    pub clear: Clear,
    /// A page at a time, in memory that the caches hold; 0 of one that goes past them.
    pub short: u64,
    /// In one go, in such memory; 0 of one that goes past them.
    pub inside: u64,
    /// In one go, in memory that they do not hold; 0 of one that goes through them.
    pub beyond: u64,
}

/// What was measured, and what follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    rows: [Option<Measured>; Clear::ALL.len()],
    /// What is best.
    pub plan: ClearPlan,
    /// Ticks that reading a block of 2 MiB takes longer where its clear went past the caches.
    pub refetch: u64,
    /// Ticks that measuring took.
    pub spent: u64,
}

impl Choice {
    /// Measures every primitive that `features` allow in `memory`, whose contents are lost; 4 MiB
    /// of it are enough. Where `memory` holds no line, nothing is measured and `rep stosq` is
    /// taken. The caller stays on one CPU all along: counters of two are not compared, and a time
    /// that ends before it began counts as none.
    pub fn measure(features: &Features, memory: &mut [u8]) -> Choice {
        let begun = ticks();
        let mut rows = [None; Clear::ALL.len()];
        let memory = lines_of(memory);
        if memory.is_empty() {
            let plan = ClearPlan::only(Clear::StoreQ);
            return Choice { rows, plan, refetch: 0, spent: 0 };
        }
        let here = Clear::ALL.map(|clear| clear.here(features).ok());
        let mut walked = [Walked::MOST; 2];
        rounds(EFFORT, ticks, || {
            for (row, primitive) in rows.iter_mut().zip(here) {
                let Some(primitive) = primitive else { continue };
                let measured = measure_once(primitive, memory);
                *row = Some(row.map_or(measured, |before| best(before, measured)));
            }
            // The best so far: which one it is matters little to whoever reads.
            let ClearPlan { cached, non_temporal, .. } = choose(&rows);
            let of = |clear| here.into_iter().flatten().find(|one| one.clear() == clear);
            let [cached, past] =
                [cached, non_temporal].map(|clear| of(clear).expect("it has a row"));
            for (walked, primitive) in walked.iter_mut().zip([cached, past]) {
                *walked = walked.least(walk(primitive, memory, past));
            }
        });
        let (plan, refetch) = weigh(choose(&rows), walked);
        let refetch = refetch.saturating_mul((BLOCK / BLOCK.min(memory.len())) as u64);
        Choice { rows, plan, refetch, spent: ticks().saturating_sub(begun) }
    }
    /// What was measured, one row per usable primitive.
    pub fn rows(&self) -> impl Iterator<Item = Measured> {
        self.rows.iter().copied().flatten()
    }
}

fn measure_once(primitive: Primitive, memory: &mut [u8]) -> Measured {
    let clear = primitive.clear();
    let (mut short, mut inside, mut beyond) = (0, 0, 0);
    if clear.is_cached() {
        let bytes = INSIDE.min(memory.len());
        let memory = &mut memory[..bytes];
        short = rate(memory, by(primitive, FRAME_BYTES), ticks);
        inside = rate(memory, by(primitive, WHOLE), ticks);
    } else {
        // At the end, where no other measurement leaves lines in the caches.
        let piece = memory.len().saturating_sub(PIECE);
        beyond = rate(&mut memory[piece..], by(primitive, WHOLE), ticks);
    }
    Measured { clear, short, inside, beyond }
}

/// A clear of so many bytes at a time.
fn by(primitive: Primitive, grain: u64) -> impl Fn(&mut [u8]) {
    move |memory| primitive.zero(memory, Bytes::new(grain))
}

/// Clears a block that the caches do not hold, and reads it.
fn walk(primitive: Primitive, memory: &mut [u8], past: Primitive) -> Walked {
    let bytes = BLOCK.min(memory.len());
    let block = &mut memory[..bytes];
    by(past, WHOLE)(block);
    let clear = timed(|| by(primitive, WHOLE)(block), ticks);
    let read = timed(|| read(block), ticks);
    Walked { clear, read }
}

/// Does `round` once, and again while one more is expected to end within `effort` ticks.
fn rounds(effort: u64, ticks: impl Fn() -> u64, mut round: impl FnMut()) {
    let mut spent: u64 = 0;
    for _ in 0..ROUNDS {
        let took = timed(&mut round, &ticks);
        spent = spent.saturating_add(took);
        if spent.saturating_add(took) > effort {
            break;
        }
    }
}

fn best(one: Measured, two: Measured) -> Measured {
    Measured {
        clear: one.clear,
        short: one.short.max(two.short),
        inside: one.inside.max(two.inside),
        beyond: one.beyond.max(two.beyond),
    }
}

fn choose(rows: &[Option<Measured>]) -> ClearPlan {
    let rows = || rows.iter().copied().flatten();
    let cached = || rows().filter(|row| row.clear.is_cached());
    let past = rows().filter(|row| !row.clear.is_cached()).rev();
    let name = |row: Option<Measured>| row.map_or(Clear::StoreQ, |row| row.clear);
    ClearPlan {
        short: name(good(cached(), |row| row.short)),
        cached: name(good(cached(), |row| row.inside)),
        non_temporal: name(good(past, |row| row.beyond)),
    }
}

/// The first of `rows` that is as good as the best.
fn good(
    rows: impl Iterator<Item = Measured> + Clone,
    rate: impl Fn(&Measured) -> u64,
) -> Option<Measured> {
    let most = rows.clone().map(|row| rate(&row)).max()?;
    let mut rows = rows;
    rows.find(|row| rate(row) >= most - most / NOISE)
}

/// Ticks of clearing a block and of reading it then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Walked {
    clear: u64,
    read: u64,
}

impl Walked {
    const MOST: Walked = Walked { clear: u64::MAX, read: u64::MAX };

    /// Of two rounds, the less of either.
    fn least(self, other: Walked) -> Walked {
        Walked { clear: self.clear.min(other.clear), read: self.read.min(other.read) }
    }
}

/// The plan where the cached and the other one of `plan` take these times, and what reading costs
/// more behind the other one, less what is within noise of the whole: where both ways are equal to
/// whoever reads all of it, the shorter clear is better for whoever does not.
fn weigh(plan: ClearPlan, [cached, past]: [Walked; 2]) -> (ClearPlan, u64) {
    // What stays in the caches has still to be written to memory, which its time does not hold.
    if cached.clear.saturating_mul(2) < past.clear {
        return (ClearPlan { non_temporal: plan.cached, ..plan }, 0);
    }
    let noise = cached.clear.saturating_add(cached.read) / NOISE;
    (plan, past.read.saturating_sub(cached.read).saturating_sub(noise))
}

/// Reads every line, one by one: in a sum that the compiler makes vectors of they come in no order.
fn read(memory: &[u8]) {
    for byte in memory.iter().step_by(LINE as usize) {
        core::hint::black_box(*byte);
    }
}

/// Bytes per 1024 ticks of clearing `memory` once, after it was cleared once before: it is in the
/// caches by then, or out of them, as `zero` leaves it.
fn rate(memory: &mut [u8], zero: impl Fn(&mut [u8]), ticks: impl Fn() -> u64) -> u64 {
    zero(memory);
    let spent = timed(|| zero(memory), &ticks);
    per_ticks(memory.len() as u64, spent)
}

/// How many ticks `work` takes.
fn timed(work: impl FnOnce(), ticks: impl Fn() -> u64) -> u64 {
    let begun = ticks();
    work();
    ticks().saturating_sub(begun)
}

fn per_ticks(bytes: u64, ticks: u64) -> u64 {
    bytes.saturating_mul(1024) / ticks.max(1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use core::cell::Cell;
    extern crate std;
    use std::vec;

    fn row(clear: Clear, short: u64, inside: u64, beyond: u64) -> Option<Measured> {
        Some(Measured { clear, short, inside, beyond })
    }

    /// Rates in memory that the caches do not hold, and what is taken past them.
    #[test]
    fn of_equal_ones_the_widest_goes_past_the_cache() {
        use Clear::{ClZero, Past8, Past16, Past32, Past64};
        type Case = (&'static str, &'static [(Clear, u64)], Clear);
        let cases: [Case; 6] = [
            (
                "family 26: by luck the narrow one is best, and all are within noise",
                &[(Past16, 1000), (Past32, 985), (Past64, 975), (ClZero, 970)],
                ClZero,
            ),
            ("without CLZERO", &[(Past16, 1000), (Past32, 985), (Past64, 975)], Past64),
            ("beyond noise", &[(Past16, 1000), (Past32, 975), (Past64, 960)], Past32),
            (
                "family 25: CLZERO is a tenth slower",
                &[(Past16, 660), (Past32, 1000), (Past64, 996), (ClZero, 920)],
                Past64,
            ),
            ("a 32nd is noise", &[(Past8, 320), (Past16, 310)], Past16),
            ("and more is not", &[(Past8, 320), (Past16, 309)], Past8),
        ];
        for (what, rates, want) in cases {
            let rows: vec::Vec<_> =
                rates.iter().map(|(clear, rate)| row(*clear, 0, 0, *rate)).collect();
            assert_eq!(choose(&rows).non_temporal, want, "{what}");
        }
    }

    #[test]
    fn what_measures_best_is_chosen_whatever_its_name() {
        let rows = [
            row(Clear::StoreQ, 20, 29, 10),
            row(Clear::StoreB, 9, 27, 11),
            row(Clear::Store16, 23, 23, 9),
            row(Clear::Past8, 0, 0, 24),
            row(Clear::Past16, 0, 0, 26),
            None,
        ];
        let plan = choose(&rows);
        let (short, cached, non_temporal) = (Clear::Store16, Clear::StoreQ, Clear::Past16);
        assert_eq!(plan, ClearPlan { short, cached, non_temporal });
        assert_eq!(plan.of(Bytes::new(4096), Caching::Cached), short);
        assert_eq!(plan.of(Bytes::SIZE_2M, Caching::Cached), cached);
        assert_eq!(plan.of(Bytes::new(4096), Caching::NonTemporal), non_temporal);
        assert_eq!(choose(&[]), ClearPlan::only(Clear::StoreQ));
        assert_eq!(choose(&rows[..1]), ClearPlan::only(Clear::StoreQ));
    }

    #[test]
    fn of_equal_ones_the_plainest_goes_through_the_cache() {
        let rows = [
            row(Clear::StoreQ, 1085, 1160, 1),
            row(Clear::StoreB, 1128, 1163, 1),
            row(Clear::Store16, 590, 590, 1),
            row(Clear::Store64, 1158, 1169, 1),
        ];
        let plan = choose(&rows);
        assert_eq!((plan.short, plan.cached), (Clear::StoreB, Clear::StoreQ));
    }

    #[test]
    fn going_past_the_caches_costs_what_reading_costs_more() {
        let walked = |clear, read| Walked { clear, read };
        let cases = [
            ("caches hold the block", walked(700, 260), walked(250, 600), 340 - 30),
            ("they hold none of it", walked(700, 600), walked(250, 610), 0),
            ("reading is faster by luck", walked(700, 260), walked(250, 250), 0),
            ("a clock that stands still", walked(0, 0), walked(0, 0), 0),
            ("twice as fast through the caches is no faster", walked(100, 0), walked(200, 13), 10),
        ];
        let (short, cached, non_temporal) = (Clear::Store16, Clear::StoreQ, Clear::Past16);
        let plan = ClearPlan { short, cached, non_temporal };
        for (what, cached, past, want) in cases {
            assert_eq!(weigh(plan, [cached, past]), (plan, want), "{what}");
        }
        let none = ClearPlan { non_temporal: cached, ..plan };
        assert_eq!(weigh(plan, [walked(100, 0), walked(201, 13)]), (none, 0), "an emulator");
        assert_eq!(walked(3, 9).least(walked(4, 8)), walked(3, 8));
        assert_eq!(Walked::MOST.least(walked(4, 8)), walked(4, 8));
    }

    #[test]
    fn the_best_of_each_round_is_kept() {
        let rounds = [row(Clear::StoreQ, 5, 8, 3), row(Clear::StoreQ, 7, 6, 4)].map(Option::unwrap);
        let Measured { short, inside, beyond, .. } = best(rounds[0], rounds[1]);
        assert_eq!((short, inside, beyond), (7, 8, 4));
    }

    #[test]
    fn the_second_time_is_measured() {
        let now = Cell::new(0);
        // A clear of what is not in the caches yet takes a hundred times as long.
        let zero = |_: &mut [u8]| now.set(if now.get() == 0 { 1000 } else { now.get() + 10 });
        assert_eq!(rate(&mut [0; 40], zero, || now.get()), 4 * 1024);
    }

    #[test]
    fn rounds_go_on_while_another_one_fits() {
        for (effort, took, want) in [
            (0, 10, 1),
            (19, 10, 1),
            (20, 10, 2),
            (39, 10, 3),
            (u64::MAX, 10, ROUNDS),
            (1, 0, ROUNDS),
            (1, u64::MAX, 1),
        ] {
            let (now, done) = (Cell::new(0u64), Cell::new(0));
            let round = || {
                now.set(now.get().saturating_add(took));
                done.set(done.get() + 1);
            };
            rounds(effort, || now.get(), round);
            assert_eq!(done.get(), want, "{effort} ticks, {took} a round");
        }
    }

    #[test]
    fn a_clock_that_runs_backwards_is_no_time() {
        let now = Cell::new(1 << 40);
        let back = || now.replace(now.get() - 10);
        assert_eq!(rate(&mut [0; 40], |_| (), back), 40 * 1024);
        let done = Cell::new(0);
        rounds(1, back, || done.set(done.get() + 1));
        assert_eq!(done.get(), ROUNDS, "and it ends");
    }

    #[test]
    fn a_rate_is_bytes_in_1024_ticks() {
        assert_eq!(per_ticks(3000, 1000), 3072);
        assert_eq!([per_ticks(5, 1), per_ticks(5, 0)], [5 * 1024; 2], "no time is a tick");
    }

    #[test]
    fn a_short_block_is_one_of_the_bound_or_less() {
        let (short, cached, non_temporal) = (Clear::Store16, Clear::StoreQ, Clear::Past16);
        let plan = ClearPlan { short, cached, non_temporal };
        assert_eq!(plan.of(Bytes::new(SHORT), Caching::Cached), short);
        assert_eq!(plan.of(Bytes::new(SHORT + 1), Caching::Cached), cached);
    }

    #[test]
    fn every_usable_primitive_is_measured_and_memory_is_cleared() {
        let features = Features::detect();
        let mut memory = vec![1u8; 3 << 20];
        let choice = Choice::measure(&features, &mut memory);
        let usable = Clear::ALL.into_iter().filter(|clear| clear.is_usable(&features));
        assert!(choice.rows().map(|row| row.clear).eq(usable));
        for row in choice.rows() {
            let is_cached = row.clear.is_cached();
            let measured = [row.short > 0, row.inside > 0, row.beyond > 0];
            assert_eq!(measured, [is_cached, is_cached, !is_cached], "{row:?}");
        }
        assert!(lines_of(&mut memory).iter().all(|byte| *byte == 0));
        assert!(choice.plan.all().iter().all(|clear| clear.is_usable(&features)));
        assert!(choice.spent > 0);
        for bytes in [0, 1, 63] {
            let none = Choice::measure(&features, &mut memory[..bytes]);
            assert_eq!((none.rows().count(), none.plan), (0, ClearPlan::only(Clear::StoreQ)));
        }
        assert!(Choice::measure(&features, &mut memory[..200]).rows().count() > 0);
    }
}
