//! What threads and processes used: time of CPUs, faults, memory.
//!
//! ```text
//!   thread: time on CPUs, of it in ring 3, faults ── ends ─▶ process ── is waited for ─▶ parent's children
//! ```

use foliant_units::Pages;
use linux_raw_sys::general::rusage;

/// What was used.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Usage {
    /// Nanoseconds in ring 3, and in the kernel.
    pub(super) user: u64,
    pub(super) system: u64,
    /// Faults that were served.
    pub(super) faults: u64,
    /// How often it waited, and how often another one's turn came.
    pub(super) waits: u64,
    pub(super) turns: u64,
    /// The most that was resident.
    pub(super) peak: Pages,
}

impl Usage {
    /// Both together; of memory the larger.
    pub(super) fn and(self, other: Usage) -> Usage {
        Usage {
            user: self.user + other.user,
            system: self.system + other.system,
            faults: self.faults + other.faults,
            waits: self.waits + other.waits,
            turns: self.turns + other.turns,
            peak: self.peak.max(other.peak),
        }
    }
    /// Time on CPUs.
    pub(super) fn time(&self) -> u64 {
        self.user + self.system
    }
    /// As Linux tells it.
    pub(super) fn told(&self) -> rusage {
        let mut out: rusage = super::user::zeros();
        for (to, nanos) in [(&mut out.ru_utime, self.user), (&mut out.ru_stime, self.system)] {
            let micros = nanos / 1000;
            to.tv_sec = (micros / 1_000_000) as i64;
            to.tv_usec = (micros % 1_000_000) as i64;
        }
        out.ru_maxrss = (self.peak.bytes().get() >> 10) as i64;
        out.ru_minflt = self.faults as i64;
        (out.ru_nvcsw, out.ru_nivcsw) = (self.waits as i64, self.turns as i64);
        out
    }
}
