//! A process as the kernel around an x86-64 machine: one CPU, a mapping as direct map, a preemption
//! point that is only timed.

use foliant_units::{Cpu, Nanos, Va};
use foliant_x86::{Apic, ApicId, ClearPlan, Features, Host, Line, Settings, SetupError};
use foliant_x86::{TscClock, X86, ticks};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Process {
    /// When the current stretch began, and the longest one, in ticks.
    began: AtomicU64,
    longest: AtomicU64,
}

impl Process {
    /// A stretch begins.
    pub(crate) fn begin(&self) {
        self.began.store(ticks(), Relaxed);
    }
    /// It ends, and the next one begins.
    pub(crate) fn end(&self) {
        let now = ticks();
        self.longest.fetch_max(now.saturating_sub(self.began.swap(now, Relaxed)), Relaxed);
    }
    /// The longest since this was asked last.
    pub(crate) fn longest(&self, clock: &TscClock) -> Nanos {
        clock.at(self.longest.swap(0, Relaxed))
    }
}

impl Host for Process {
    fn me(&self) -> Cpu {
        Cpu(0)
    }
    fn pinned<R>(&self, work: impl FnOnce(Cpu) -> R) -> R {
        work(Cpu(0))
    }
    fn yield_now(&self) {
        self.end();
    }
}

/// A machine whose physical address 0 is at `base` of this process. It is asked to clear and for
/// the time, nothing else.
pub(crate) fn machine(
    base: Va,
    clear: ClearPlan,
    clock: TscClock,
    lines: &[Line],
) -> Result<X86<'_, Process>, SetupError> {
    let settings = Settings {
        direct_map: base,
        vector: 0xf0,
        apic: Apic::X2,
        apic_ids: &[ApicId(0)],
        clock,
        clear,
        features: Features { x2apic: true, ..Features::detect() },
    };
    X86::new(Process::default(), settings, lines)
}

/// The rate of the time-stamp counter against the system's clock.
pub(crate) fn clock() -> Option<TscClock> {
    let (begun, from) = (Instant::now(), ticks());
    while begun.elapsed() < Duration::from_millis(50) {
        std::hint::spin_loop();
    }
    let (time, passed) = (begun.elapsed(), ticks() - from);
    let hz = u128::from(passed) * 1_000_000_000 / time.as_nanos().max(1);
    TscClock::new(u64::try_from(hz).ok()?)
}
