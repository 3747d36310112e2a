//! The time-stamp counter as a clock.
//!
//! ```text
//!   nanoseconds = ticks · 10⁹ / hz = ticks · whole + (ticks · part) / 2⁶⁴
//! ```
//!
//! The quotient is split once, when the clock is made, so that a reading needs no division. `part` is
//! rounded down: a reading is at most one nanosecond behind the exact quotient, for any count of ticks.
//!
//! **Invariants**
//! - C1. A larger count never gives an earlier time: both summands grow with the count, and saturate.
//!
//! **Not here**: the rate (the kernel measures it or asks the firmware), skew between CPUs.
#![allow(unsafe_code)]

use core::arch::x86_64::{_mm_lfence, _rdtsc};
use foliant_units::Nanos;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// How ticks of the time-stamp counter become nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TscClock {
    whole: u64,
    part: u64,
}

impl TscClock {
    /// A clock of `hz` ticks per second, or `None` for 0.
    pub const fn new(hz: u64) -> Option<TscClock> {
        if hz == 0 {
            return None;
        }
        let (hz, rest) = (hz as u128, NANOS_PER_SECOND % hz as u128);
        Some(TscClock { whole: (NANOS_PER_SECOND / hz) as u64, part: ((rest << 64) / hz) as u64 })
    }

    /// The time at `ticks`.
    pub const fn at(&self, ticks: u64) -> Nanos {
        let part = ((ticks as u128 * self.part as u128) >> 64) as u64;
        Nanos(ticks.saturating_mul(self.whole).saturating_add(part))
    }
}

/// Reads the time-stamp counter, after every earlier instruction of this CPU is complete.
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has SSE2, which LFENCE belongs to.
    unsafe { _mm_lfence() };
    // SAFETY: every x86-64 CPU has a counter; a kernel that hides it from ring 3 runs us in ring 0.
    unsafe { _rdtsc() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: [u64; 9] = [
        1,
        3,
        999_999_937,
        1_000_000_000,
        1_193_182,
        2_399_999_999,
        2_893_202_000,
        3_000_000_001,
        u64::MAX,
    ];

    #[test]
    fn a_second_is_a_second_to_one_nanosecond() {
        for hz in RATES {
            let clock = TscClock::new(hz).unwrap();
            for seconds in [1, 60, 86_400, 31_536_000].into_iter().filter(|s| hz <= u64::MAX / s) {
                let (want, got) = (seconds * 1_000_000_000, clock.at(hz * seconds).0);
                assert!(want - 1 <= got && got <= want, "{hz} Hz: {got} after {seconds} s");
            }
        }
        assert_eq!(TscClock::new(0), None);
    }

    #[test]
    fn a_later_tick_is_never_an_earlier_time() {
        for hz in RATES {
            let clock = TscClock::new(hz).unwrap();
            for base in [0, 1 << 32, hz, u64::MAX / 2, u64::MAX - 1000] {
                let steps = (0..1000).map(|n| clock.at(base.saturating_add(n)));
                assert!(steps.is_sorted(), "{hz} Hz from {base}");
            }
        }
    }

    #[test]
    fn ticks_run_forward() {
        let mut before = ticks();
        for _ in 0..1000 {
            let now = ticks();
            assert!(now >= before);
            before = now;
        }
    }
}
