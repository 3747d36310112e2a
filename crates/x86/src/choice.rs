//! Which primitive clears best, found by measuring: three answers, since three cases differ.
//!
//! ```text
//!   up to 32 KiB, to be used soon   short          best in pieces of a page, in memory that the caches hold
//!   more, to be used soon            cached         best of those through the cache, in such memory
//!   not to be used soon              non_temporal   best of all in memory that they do not hold
//! ```
//!
//! A name says nothing about speed: `rep stosb` is fastest on one CPU for megabytes and slow for
//! pages, and an emulator goes byte by byte.
//!
//! **Not here**: which case a piece of memory is (`foliant::zero`).

use crate::clear::lines_of;
use crate::{Clear, Features, ticks};
use foliant_machine::Caching;
use foliant_units::{Bytes, FRAME_BYTES};

/// Up to here a clear is a short one.
const SHORT: u64 = 32 << 10;
/// Bytes that stand for memory that the caches hold.
const INSIDE: usize = 256 << 10;
/// How much is cleared between two looks at the clock.
const PIECE: usize = 2 << 20;
/// How often each is measured; the best round counts, since a disturbance only slows down.
const ROUNDS: usize = 3;

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
    /// A page at a time, in memory that the caches hold.
    pub short: u64,
    /// In one go, in such memory.
    pub inside: u64,
    /// In pieces of 2 MiB, each behind the one before.
    pub beyond: u64,
}

/// What was measured, and what follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    rows: [Option<Measured>; Clear::ALL.len()],
    /// What is best.
    pub plan: ClearPlan,
}

impl Choice {
    /// Measures every primitive that `features` allow in `memory`, whose contents are lost. In each
    /// round each of them clears its way through `memory` for about `effort` ticks: where `memory`
    /// is many times as large as the caches this gives the rate of memory, where it is smaller the
    /// rate of the caches. Where `memory` holds no line, nothing is measured and `rep stosq` is
    /// taken. The caller stays on one CPU all along: counters of two are not compared, and a time
    /// that ends before it began counts as none.
    pub fn measure(features: &Features, memory: &mut [u8], effort: u64) -> Choice {
        let mut rows = [None; Clear::ALL.len()];
        let here = Clear::ALL.map(|clear| clear.here(features).ok());
        let memory = lines_of(memory);
        let (rounds, mut next) = (if memory.is_empty() { 0 } else { ROUNDS }, 0);
        for _ in 0..rounds {
            for (row, primitive) in rows.iter_mut().zip(here) {
                let Some(primitive) = primitive else { continue };
                let inside = INSIDE.min(memory.len());
                let by = |grain| move |memory: &mut [u8]| primitive.zero(memory, Bytes::new(grain));
                let whole = by(u64::MAX);
                let measured = Measured {
                    clear: primitive.clear(),
                    short: rate(&mut memory[..inside], by(FRAME_BYTES), ticks),
                    inside: rate(&mut memory[..inside], whole, ticks),
                    beyond: beyond(memory, &mut next, effort, whole, ticks),
                };
                *row = Some(row.map_or(measured, |before| best(before, measured)));
            }
        }
        Choice { rows, plan: choose(&rows) }
    }
    /// What was measured, one row per usable primitive.
    pub fn rows(&self) -> impl Iterator<Item = Measured> {
        self.rows.iter().copied().flatten()
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
    let name = |row: Option<Measured>| row.map_or(Clear::StoreQ, |row| row.clear);
    ClearPlan {
        short: name(cached().max_by_key(|row| row.short)),
        cached: name(cached().max_by_key(|row| row.inside)),
        non_temporal: name(rows().max_by_key(|row| row.beyond)),
    }
}

/// Bytes per 1024 ticks of clearing `memory` once, after it was cleared once before.
fn rate(memory: &mut [u8], mut zero: impl FnMut(&mut [u8]), ticks: impl Fn() -> u64) -> u64 {
    zero(memory);
    let spent = timed(|| zero(memory), &ticks);
    per_ticks(memory.len() as u64, spent)
}

/// The same rate of clearing on through `memory` from `next`, for about `effort` ticks.
fn beyond(
    memory: &mut [u8],
    next: &mut usize,
    effort: u64,
    mut zero: impl FnMut(&mut [u8]),
    ticks: impl Fn() -> u64,
) -> u64 {
    let (mut bytes, mut spent) = (0, 0);
    while spent < effort.max(1) && bytes < memory.len() as u64 {
        if *next >= memory.len() {
            *next = 0;
        }
        let end = memory.len().min(*next + PIECE);
        spent += timed(|| zero(&mut memory[*next..end]), &ticks);
        bytes += (end - *next) as u64;
        *next = end;
    }
    per_ticks(bytes, spent)
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
    extern crate std;
    use std::vec;

    fn row(clear: Clear, short: u64, inside: u64, beyond: u64) -> Option<Measured> {
        Some(Measured { clear, short, inside, beyond })
    }

    #[test]
    fn what_measures_best_is_chosen_whatever_its_name() {
        let rows = [
            row(Clear::StoreQ, 20, 29, 10),
            row(Clear::StoreB, 9, 27, 11),
            row(Clear::Store16, 23, 23, 9),
            row(Clear::Past8, 99, 99, 24),
            row(Clear::Past16, 12, 24, 26),
            None,
        ];
        let plan = choose(&rows);
        let (short, cached, non_temporal) = (Clear::Store16, Clear::StoreQ, Clear::Past16);
        assert_eq!(plan, ClearPlan { short, cached, non_temporal });
        assert_eq!(plan.of(Bytes::new(4096), Caching::Cached), short);
        assert_eq!(plan.of(Bytes::SIZE_2M, Caching::Cached), cached);
        assert_eq!(plan.of(Bytes::new(4096), Caching::NonTemporal), non_temporal);
        // Where no primitive is faster past the cache, none that goes past it is chosen.
        let rows = [row(Clear::StoreQ, 1, 1, 8), row(Clear::Past8, 1, 1, 2)];
        assert_eq!(choose(&rows), ClearPlan::only(Clear::StoreQ));
        assert_eq!(choose(&[]), ClearPlan::only(Clear::StoreQ));
    }

    #[test]
    fn the_best_of_each_round_is_kept() {
        let rounds = [row(Clear::StoreQ, 5, 8, 3), row(Clear::StoreQ, 7, 6, 4)].map(Option::unwrap);
        let Measured { short, inside, beyond, .. } = best(rounds[0], rounds[1]);
        assert_eq!((short, inside, beyond), (7, 8, 4));
    }

    #[test]
    fn the_second_time_is_measured() {
        use core::cell::Cell;
        let now = Cell::new(0);
        // A clear of what is not in the caches yet takes a hundred times as long.
        let zero = |_: &mut [u8]| now.set(if now.get() == 0 { 1000 } else { now.get() + 10 });
        assert_eq!(rate(&mut [0; 40], zero, || now.get()), 4 * 1024);
    }

    #[test]
    fn memory_is_cleared_on_until_the_effort_is_spent() {
        use core::cell::Cell;
        let (now, pieces) = (Cell::new(7), Cell::new(0));
        // A clear takes 512 ticks, and one more for each MiB.
        let zero = |memory: &mut [u8]| {
            now.set(now.get() + 512 + (memory.len() >> 20) as u64);
            pieces.set(pieces.get() + 1);
        };
        let mut memory = vec![0; 3 * PIECE + (1 << 20)];
        let mut next = 0;
        let mut measured = |effort| {
            let rate = beyond(&mut memory, &mut next, effort, zero, || now.get());
            (rate, pieces.take(), next)
        };
        let rate = |bytes: usize, ticks: u64| bytes as u64 * 1024 / ticks;
        assert_eq!(measured(514), (rate(PIECE, 514), 1, PIECE), "it is spent");
        assert_eq!(measured(515), (rate(2 * PIECE, 1028), 2, 3 * PIECE), "a tick is left");
        let (last, rest) = (1 << 20, 513 + 514);
        assert_eq!(measured(514), (rate(last + PIECE, rest), 2, PIECE), "from the start again");
        assert_eq!(measured(0).1, 1, "one piece at least");
        next = 0;
        let got = beyond(&mut memory, &mut next, u64::MAX, zero, || now.get());
        assert_eq!(
            (got, pieces.take(), next),
            (rate(memory.len(), 3 * 514 + 513), 4, memory.len())
        );
    }

    #[test]
    fn a_clock_that_runs_backwards_is_no_time() {
        use core::cell::Cell;
        let now = Cell::new(1 << 40);
        let back = || now.replace(now.get() - 10);
        assert_eq!(rate(&mut [0; 40], |_| (), back), 40 * 1024);
        let (mut next, memory) = (0, &mut [0; 40]);
        assert_eq!(beyond(memory, &mut next, 1, |_| (), back), 40 * 1024, "and it ends");
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
        let choice = Choice::measure(&features, &mut memory, u64::MAX);
        let usable = Clear::ALL.into_iter().filter(|clear| clear.is_usable(&features));
        assert!(choice.rows().map(|row| row.clear).eq(usable));
        assert!(choice.rows().all(|row| row.short > 0 && row.inside > 0 && row.beyond > 0));
        assert!(lines_of(&mut memory).iter().all(|byte| *byte == 0));
        assert!(choice.plan.all().iter().all(|clear| clear.is_usable(&features)));
        for bytes in [0, 1, 63] {
            let none = Choice::measure(&features, &mut memory[..bytes], 1);
            assert_eq!((none.rows().count(), none.plan), (0, ClearPlan::only(Clear::StoreQ)));
        }
    }
}
