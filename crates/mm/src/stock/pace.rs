//! How fast this CPU clears: measured while it does, for either kind of stores.
//!
//! Two questions are answered from it. How much fits a stretch without a preemption point is told
//! by the *bound*. It follows each sample, but goes at most to a quarter or to twice of what it
//! was: a sample of a CPU that was away for a while does not mean that the memory is slow. Which
//! kind of stores suits the far part of a folio is told by the *mean*. Stores past the caches leave
//! the folio cold, and its user fetches it from memory, which takes longer than from the caches by
//! the *refetch* (`Clearing::refetch`). So it is the time of the clear and of a walk through the
//! folio that counts:
//!
//! ```text
//!   time of NonTemporal + refetch < time of Cached   past the caches
//!   otherwise                                        through them
//! ```
//!
//! One folio in [`PROBE`] is cleared the other way, so that both means stay true when the regime
//! changes. Such a folio may take three times as long: one in 128 cost 1.5 % of all clearing.
//!
//! **Locking**: none. Each CPU writes its own words; a thread that moves meanwhile loses a sample.
//!
//! **Not here**: what a primitive can do at best (`foliant-x86` measures that once).

use crate::sync::{AtomicU64, Ordering::Relaxed};
use foliant_machine::Caching;
use foliant_units::{Bytes, FRAME_BYTES, Nanos, Order};

/// What is assumed before anything was measured, in bytes per microsecond: 1 GB/s.
const FLOOR: u64 = 1000;
/// A clear shorter than this says little about the rate, and is not timed.
pub(crate) const SAMPLE: Bytes = Bytes::new(64 << 10);
/// So many folios are cleared each way before a choice is made.
const TRIALS: u64 = 4;
/// Then one in so many is cleared the other way.
const PROBE: u64 = 1024;

/// The rates of one CPU, in bytes per microsecond; 0 where nothing was measured.
#[derive(Debug, Default)]
pub struct Pace {
    bound: [AtomicU64; 2],
    mean: [AtomicU64; 2],
    turn: AtomicU64,
}

impl Pace {
    /// Learns from a clear of `bytes` that took `time`.
    pub(crate) fn learn(&self, caching: Caching, bytes: Bytes, time: Nanos) {
        let rate = (bytes.get().saturating_mul(1000) / time.0.max(1)).max(1);
        let at = caching as usize;
        let bound = self.bound(caching);
        self.bound[at].store(rate.clamp(bound.div_ceil(4), bound.saturating_mul(2)), Relaxed);
        let mean = match self.mean[at].load(Relaxed) {
            0 => rate,
            mean => mean - mean / 4 + rate / 4,
        };
        self.mean[at].store(mean, Relaxed);
    }
    fn bound(&self, caching: Caching) -> u64 {
        let [mine, other] = [caching as usize, 1 - caching as usize]
            .map(|at| Some(self.bound[at].load(Relaxed)).filter(|rate| *rate > 0));
        mine.unwrap_or(other.unwrap_or(FLOOR).min(FLOOR))
    }
    /// What can be cleared within `time`: whole pages, one at least.
    pub(crate) fn within(&self, caching: Caching, time: Nanos) -> Bytes {
        let bytes = u128::from(self.bound(caching)) * u128::from(time.0) / 1000;
        let pages = u64::try_from(bytes).unwrap_or(u64::MAX) / FRAME_BYTES;
        Bytes::new(pages.max(1).saturating_mul(FRAME_BYTES))
    }
    /// How long clearing `bytes` will take.
    pub(crate) fn time_of(&self, caching: Caching, bytes: Bytes) -> Nanos {
        let nanos = u128::from(bytes.get()) * 1000 / u128::from(self.bound(caching));
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// How the far part of a folio of `order` is best cleared now, if reading 2 MiB takes `refetch`
    /// longer where the clear went past the caches.
    pub fn choose(&self, order: Order, refetch: Nanos) -> Caching {
        if order > Order::SIZE_2M {
            // It is larger than what caches hold of one CPU's memory, and too dear to try.
            return Caching::NonTemporal;
        }
        let turn = self.turn.load(Relaxed);
        self.turn.store(turn.wrapping_add(1), Relaxed);
        if turn < 2 * TRIALS {
            return if turn < TRIALS { Caching::Cached } else { Caching::NonTemporal };
        }
        let usual = self.usual(refetch);
        match (turn.is_multiple_of(PROBE), usual) {
            (false, usual) => usual,
            (true, Caching::Cached) => Caching::NonTemporal,
            (true, Caching::NonTemporal) => Caching::Cached,
        }
    }
    /// The kind that `choose` takes, apart from probes.
    pub fn usual(&self, refetch: Nanos) -> Caching {
        let time = |caching: Caching| {
            let mean = self.mean[caching as usize].load(Relaxed).max(1);
            Bytes::SIZE_2M.get() * 1000 / mean
        };
        match time(Caching::NonTemporal).saturating_add(refetch.0) < time(Caching::Cached) {
            true => Caching::NonTemporal,
            false => Caching::Cached,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const REFETCH: Nanos = Nanos(40_000);

    /// A machine that clears at these rates, in bytes per microsecond.
    fn runs(pace: &Pace, folios: u32, cached: u64, past: u64) -> u32 {
        let passes = |_: &u32| {
            let caching = pace.choose(Order::SIZE_2M, REFETCH);
            let rate = if caching == Caching::Cached { cached } else { past };
            pace.learn(caching, Bytes::SIZE_2M, Nanos(Bytes::SIZE_2M.get() * 1000 / rate));
            caching == Caching::NonTemporal
        };
        (0..folios).filter(passes).count() as u32
    }

    #[test]
    fn the_regime_is_found_and_followed() {
        let pace = Pace::default();
        assert!(
            runs(&pace, 1000, 10_000, 25_000) > 980,
            "memory that no cache holds is cleared past them"
        );
        // Three probes are enough.
        assert!(runs(&pace, 4 * PROBE as u32, 28_000, 25_000) < 3 * PROBE as u32);
        assert!(runs(&pace, 1000, 28_000, 25_000) < 20, "what the caches hold stays there");
        runs(&pace, 4 * PROBE as u32, 10_000, 25_000);
        assert!(runs(&pace, 1000, 10_000, 25_000) > 980, "and back");
        assert_eq!(pace.choose(Order::SIZE_1G, REFETCH), Caching::NonTemporal);
    }

    /// Rates are bytes per microsecond, times are for a clear of 2 MiB and a walk through it.
    #[test]
    fn the_clear_and_the_walk_count_together() {
        let cases = [
            ("84 and 71 us against 210", 10_000, 25_000, 71_000, Caching::NonTemporal),
            ("25 and 33 us against 72", 29_000, 83_000, 33_000, Caching::NonTemporal),
            ("23 and 27 us against 42, if twice as fast", 50_000, 90_000, 27_000, Caching::Cached),
            ("the same where caches hold nothing", 50_000, 90_000, 0, Caching::NonTemporal),
            ("equal ones stay warm", 50_000, 50_000, 0, Caching::Cached),
            ("nothing was measured past them", 50_000, 0, 0, Caching::Cached),
            ("nor through them", 0, 90_000, 33_000, Caching::NonTemporal),
        ];
        for (what, cached, past, refetch, want) in cases {
            let pace = Pace::default();
            for (caching, rate) in [(Caching::Cached, cached), (Caching::NonTemporal, past)] {
                // A rate of 0 is none.
                if let Some(nanos) = (Bytes::SIZE_2M.get() * 1000).checked_div(rate) {
                    pace.learn(caching, Bytes::SIZE_2M, Nanos(nanos));
                }
            }
            assert_eq!(pace.usual(Nanos(refetch)), want, "{what}");
        }
    }

    #[test]
    fn one_slow_clear_shortens_the_next_stretch_and_is_forgotten() {
        let pace = Pace::default();
        let learn = |gigabytes_per_second: u64| {
            let time = Nanos(Bytes::SIZE_2M.get() / gigabytes_per_second);
            pace.learn(Caching::NonTemporal, Bytes::SIZE_2M, time);
        };
        let stretch = || pace.within(Caching::NonTemporal, Nanos(1_000_000)).get();
        assert_eq!(stretch(), 999_424, "1 GB/s is assumed, in whole pages");
        (0..10).for_each(|_| learn(20));
        assert!((19_900_000..20_000_001).contains(&stretch()), "{}", stretch());
        learn(1);
        assert!((4_900_000..5_000_001).contains(&stretch()), "a quarter: {}", stretch());
        learn(20);
        assert!(stretch() <= 10_000_000, "at most twice as much at once: {}", stretch());
        (0..10).for_each(|_| learn(20));
        assert!(stretch() > 19_900_000);
        pace.learn(Caching::NonTemporal, Bytes::SIZE_2M, Nanos(0));
        assert!(stretch() <= 2 * 20_000_000, "a clock that stood still");
        assert_eq!(pace.within(Caching::Cached, Nanos(0)).get(), FRAME_BYTES);
    }

    #[test]
    fn no_memory_is_slower_than_a_byte_in_a_microsecond() {
        let pace = Pace::default();
        (0..10).for_each(|_| pace.learn(Caching::Cached, Bytes::new(1), Nanos(1 << 40)));
        assert_eq!(pace.time_of(Caching::Cached, Bytes::new(5)), Nanos(5000));
    }
}
