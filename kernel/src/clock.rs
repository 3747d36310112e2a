//! How fast the time-stamp counter runs: what CPUID tells, or what a timer shows that was seen to
//! move.
//!
//! ```text
//!   CPUID ────────────┐
//!   interval timer ───┼──▶ rates ──▶ one, if two of them agree, or if there is only one
//!   power timer ──────┘
//! ```
//!
//! **Invariants**
//! - R1. A timer counts only if its own register moves, and two windows in a row give one rate. A
//!   window that stood still for half of its time gives none: a host that did something else
//!   meanwhile may have let the timer go round unseen.
//! - R2. Of sources that contradict each other none is believed, unless a third one says which.
//!
//! **Not here**: how ticks become time (`foliant_x86::TscClock`).

use crate::port::{in8, in32, out8};
use core::fmt;
use foliant_x86::boot::PowerTimer;
use foliant_x86::{ticks, told_rate};

/// Reads of a timer that stands still before it is given up.
const STILL: u32 = 1 << 16;
/// Reads of a window at most.
const READS: u32 = 1 << 26;
/// Windows of a timer at most.
const WINDOWS: u32 = 1000;
/// A window is this part of a second.
const WINDOW: u64 = 1000;
/// Two windows, or two sources, agree up to this part.
const NEAR: u64 = 64;
/// How often sources that contradict each other are asked again.
const TRIES: u32 = 3;

/// Who says how fast the counter runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// The CPU, or the hypervisor under it.
    Cpuid,
    /// The interval timer of PCs.
    Interval,
    /// The power management timer that the firmware names.
    Power,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Cpuid => "CPUID",
            Source::Interval => "the interval timer",
            Source::Power => "the power timer",
        })
    }
}

/// Ticks per second, and who says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rate {
    pub(crate) hz: u64,
    pub(crate) source: Source,
}

/// Why there is no clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoClock {
    /// Nobody says anything.
    Silence,
    /// Two say different things.
    Contradiction(Rate, Rate),
}

impl fmt::Display for NoClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoClock::Silence => write!(
                f,
                "CPUID does not tell how fast the time-stamp counter runs, and no timer moves"
            ),
            NoClock::Contradiction(one, two) => write!(
                f,
                "the time-stamp counter runs at {} Hz by {} and at {} Hz by {}",
                one.hz, one.source, two.hz, two.source
            ),
        }
    }
}

/// A counter that runs at a known rate.
trait Timer {
    const SOURCE: Source;
    const HZ: u64;
    /// What it counts to before it begins again.
    fn mask(&self) -> u64;
    /// How far it is.
    fn count(&self) -> u64;
}

/// The interval timer's first channel, which has no gate and no port of another chip.
struct Interval;

impl Interval {
    const COMMAND: u16 = 0x43;
    const CHANNEL: u16 = 0x40;

    fn start() -> Interval {
        out8(Interval::COMMAND, 0b0011_0100); // channel 0, both bytes, over and over
        out8(Interval::CHANNEL, 0);
        out8(Interval::CHANNEL, 0);
        Interval
    }
}

impl Timer for Interval {
    const SOURCE: Source = Source::Interval;
    const HZ: u64 = 1_193_182;

    fn mask(&self) -> u64 {
        0xffff
    }
    fn count(&self) -> u64 {
        out8(Interval::COMMAND, 0); // hold the count of channel 0
        let (low, high) = (in8(Interval::CHANNEL), in8(Interval::CHANNEL));
        0u16.wrapping_sub(u16::from_le_bytes([low, high])).into()
    }
}

impl Timer for PowerTimer {
    const SOURCE: Source = Source::Power;
    const HZ: u64 = PowerTimer::HZ;

    fn mask(&self) -> u64 {
        (1 << self.bits) - 1
    }
    fn count(&self) -> u64 {
        u64::from(in32(self.port)) & self.mask()
    }
}

/// A count, and the tick at which it was read: the read of several that took least.
fn sample(timer: &impl Timer) -> (u64, u64) {
    let reads = (0..8).map(|_| {
        let before = ticks();
        let count = timer.count();
        (ticks() - before, before, count)
    });
    let (took, before, count) = reads.min_by_key(|(took, ..)| *took).expect("there are reads");
    (before + took / 2, count)
}

/// Ticks per second, by one look at a timer; 0 where the window stood still for too long (R1).
fn window<T: Timer>(timer: &T) -> Option<u64> {
    let (begun, first) = sample(timer);
    let (mut before, mut still) = (begun, 0);
    let mut look = |now: u64| {
        still = still.max(now - before);
        before = now;
    };
    let passed = |count: u64| count.wrapping_sub(first) & timer.mask();
    let reads = (1..=READS).map(|n| {
        look(ticks());
        (n, passed(timer.count()))
    });
    let mut relevant = reads.take_while(|(n, passed)| *n < STILL || *passed > 0);
    relevant.find(|(_, passed)| *passed >= T::HZ / WINDOW)?;
    let (ended, last) = sample(timer);
    look(ended);
    if still > (ended - begun) / 2 {
        return Some(0);
    }
    let hz = u128::from(ended - begun) * u128::from(T::HZ) / u128::from(passed(last).max(1));
    u64::try_from(hz).ok()
}

fn agree(one: u64, two: u64) -> bool {
    one.abs_diff(two) <= one.max(two) / NEAR
}

/// Ticks per second, by a timer (R1).
fn by<T: Timer>(timer: &T) -> Option<Rate> {
    let mut before = window(timer)?;
    for _ in 1..WINDOWS {
        let hz = window(timer)?;
        if hz > 0 && agree(before, hz) {
            return Some(Rate { hz, source: T::SOURCE });
        }
        before = hz;
    }
    None
}

/// The rate that most sources tell, and of those that agree what the first one tells (R2).
fn settle(rates: [Option<Rate>; 3]) -> Result<Rate, NoClock> {
    let told = || rates.iter().flatten();
    let friends = |rate: &Rate| told().filter(|other| agree(rate.hz, other.hz)).count();
    let mut best = *told().next().ok_or(NoClock::Silence)?;
    for rate in told() {
        if friends(rate) > friends(&best) {
            best = *rate;
        }
    }
    match told().find(|rate| !agree(rate.hz, best.hz)) {
        Some(other) if friends(&best) == 1 => Err(NoClock::Contradiction(best, *other)),
        _ => Ok(best),
    }
}

/// How fast the time-stamp counter runs. `power` is the timer that the firmware names.
pub(crate) fn find(power: Option<PowerTimer>) -> Result<Rate, NoClock> {
    let told = told_rate().map(|hz| Rate { hz, source: Source::Cpuid });
    let ask = || settle([told, by(&Interval::start()), power.as_ref().and_then(by)]);
    let mut found = ask();
    for _ in 1..TRIES {
        if found.is_ok() {
            break;
        }
        found = ask();
    }
    found
}
