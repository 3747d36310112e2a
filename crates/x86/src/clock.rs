//! The time-stamp counter as a clock.
//!
//! ```text
//!   nanoseconds = ticks · 10⁹ / hz = ticks · whole + (ticks · part) / 2⁶⁴
//! ```
//!
//! The quotient is split once, when the clock is made, so that a reading needs no division. `part`
//! is rounded down: a reading is at most one nanosecond behind the exact quotient, for any count of
//! ticks.
//!
//! **Invariants**
//! - C1. A larger count never gives an earlier time: both summands grow with the count, and
//!   saturate.
//!
//! The rate is what CPUID tells ([`told_rate`]); where it does not tell, the kernel measures.
//!
//! **Not here**: measuring the rate; asking another CPU for its counter ([`goes_along`] judges the
//! answer).
#![allow(unsafe_code)]

use core::arch::x86_64::{__cpuid_count, _mm_lfence, _rdtsc, CpuidResult};
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

/// How many times a second the calling CPU's counter ticks, where CPUID tells.
pub fn told_rate() -> Option<u64> {
    rate(&|leaf, sub| __cpuid_count(leaf, sub))
}

/// The rate comes from the crystal and its ratio, or from a hypervisor, which tells it in kHz. The
/// base frequency of leaf 0x16 is not taken: it is nominal, not measured.
fn rate(cpuid: &dyn Fn(u32, u32) -> CpuidResult) -> Option<u64> {
    const CRYSTAL: u32 = 0x15;
    const IS_GUEST: u32 = 1 << 31;
    const GUEST: u32 = 0x4000_0000;
    const GUEST_CLOCK: u32 = 0x4000_0010;
    let highest = cpuid(0, 0).eax;
    let crystal = (highest >= CRYSTAL).then(|| cpuid(CRYSTAL, 0));
    let product = crystal
        .and_then(|leaf| (u64::from(leaf.ecx) * u64::from(leaf.ebx)).checked_div(leaf.eax.into()));
    let guest = || {
        let is_guest = highest >= 1 && cpuid(1, 0).ecx & IS_GUEST != 0;
        let told = is_guest && (GUEST_CLOCK..GUEST + 0x100).contains(&cpuid(GUEST, 0).eax);
        told.then(|| u64::from(cpuid(GUEST_CLOCK, 0).eax) * 1000)
    };
    product.filter(|hz| *hz > 0).or_else(guest).filter(|hz| *hz > 0)
}

/// Whether another CPU's counter, which showed `told`, goes along with the caller's, which showed
/// `asked` before the question and `heard` behind the answer.
pub const fn goes_along(asked: u64, told: u64, heard: u64) -> bool {
    asked <= told && told <= heard
}

/// Reads the time-stamp counter. On Intel's CPUs every earlier instruction of this CPU is complete
/// by then; on AMD's that holds only where the firmware or the kernel made LFENCE wait for them
/// (bit 1 of MSR C001_1029), and otherwise the counter may be read a few instructions early.
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
    fn the_counter_counts() {
        let first = ticks();
        assert!(first > 0 && ticks() > first);
    }

    #[test]
    fn finding_x14_a_counter_that_is_elsewhere_is_told() {
        let heard = |told| goes_along(1_000, told, 1_200);
        assert!([1_000, 1_001, 1_199, 1_200].into_iter().all(heard));
        assert!(![0, 1, 999, 1_201, 1 << 40, u64::MAX].into_iter().any(heard));
        assert!(!goes_along(1_200, 1_100, 1_000), "nothing lies in between");
    }

    #[test]
    fn finding_x6_a_rate_is_what_cpuid_tells() {
        let cpuid = |highest, [eax, ebx, ecx]: [u32; 3], guest, khz| {
            move |leaf, sub| {
                let (eax, ebx, ecx) = match leaf {
                    _ if sub != 0 => (7, 7, 7),
                    0 => (highest, 0, 0),
                    1 => (0, 0, u32::from(guest) << 31),
                    0x15 => (eax, ebx, ecx),
                    0x4000_0000 => (0x4000_0010, 0, 0),
                    0x4000_0010 => (khz, 0, 0),
                    _ => (u32::MAX, u32::MAX, u32::MAX),
                };
                CpuidResult { eax, ebx, ecx, edx: 0 }
            }
        };
        let crystal = [2, 216, 24_000_000];
        assert_eq!(rate(&cpuid(0x16, crystal, false, 0)), Some(2_592_000_000));
        assert_eq!(rate(&cpuid(0x15, crystal, false, 0)), Some(2_592_000_000), "the highest leaf");
        assert_eq!(rate(&cpuid(0x14, crystal, false, 0)), None, "the leaf is not there");
        assert_eq!(rate(&cpuid(1, crystal, true, 2_000_000)), Some(2_000_000_000), "a bare guest");
        assert_eq!(rate(&cpuid(0, crystal, true, 2_000_000)), None);
        assert_eq!(told_rate(), rate(&|leaf, sub| __cpuid_count(leaf, sub)), "of this CPU");
        assert_eq!(rate(&cpuid(0x16, [1, 1, 1], false, 0)), Some(1), "any rate but none");
        for unknown in [[0, 216, 24_000_000], [2, 0, 24_000_000], [2, 216, 0]] {
            assert_eq!(rate(&cpuid(0x16, unknown, false, 7)), None);
            assert_eq!(rate(&cpuid(0x16, unknown, true, 2_000_000)), Some(2_000_000_000));
            assert_eq!(rate(&cpuid(0x16, unknown, true, 0)), None);
        }
    }

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
