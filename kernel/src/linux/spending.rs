//! What processes and threads spend of CPUs, as clocks that timers go by; and the limit of it.
//!
//! **Invariants**
//! - B1. A clock keeps neither the process nor the thread that it is of: when that is gone it
//!   stands still, and rings no more.
//! - B2. A process with a limit of time has one timer for it, from its start on.

use super::process::Process;
use super::signal::Info;
use super::timer::{Clock, Expires, Setting, Spends, Timer};
use alloc::sync::{Arc, Weak};
use linux_raw_sys::general::{RLIM64_INFINITY, RLIMIT_CPU, SIGKILL, SIGXCPU};

const SECOND: u64 = 1_000_000_000;

/// Who spends, and of what.
enum Spender {
    /// All of it.
    Process(Weak<Process>),
    /// In ring 3.
    Programs(Weak<Process>),
    /// All of one of its threads.
    Thread(Weak<Process>, u32),
}

impl Spends for Spender {
    fn spent(&self) -> Option<u64> {
        match self {
            Spender::Process(process) => Some(process.upgrade()?.time().time()),
            Spender::Programs(process) => Some(process.upgrade()?.time().user),
            Spender::Thread(process, id) => {
                let process = process.upgrade()?;
                let all = process.threads.lock();
                all.iter().find(|it| it.id() == *id).map(|it| it.usage().time())
            }
        }
    }
}

/// The clock of what a process spends.
pub(super) fn of_process(process: &Arc<Process>) -> Clock {
    Clock::Spent(Arc::new(Spender::Process(Arc::downgrade(process))))
}
/// The clock of what its programs spend, without the kernel.
pub(super) fn of_programs(process: &Arc<Process>) -> Clock {
    Clock::Spent(Arc::new(Spender::Programs(Arc::downgrade(process))))
}
/// The clock of what one of its threads spends.
pub(super) fn of_thread(process: &Arc<Process>, id: u32) -> Clock {
    Clock::Spent(Arc::new(Spender::Thread(Arc::downgrade(process), id)))
}

/// Signals a process that spends more than `RLIMIT_CPU` says: each second, and the last time.
struct TimeLimit {
    timer: Arc<Timer>,
    process: Weak<Process>,
}

impl TimeLimit {
    fn of(process: &Arc<Process>) -> Option<Arc<dyn Expires>> {
        let seconds = process.limits.now(RLIMIT_CPU);
        if seconds == RLIM64_INFINITY as u64 {
            return None;
        }
        let made = Arc::new_cyclic(|own: &Weak<TimeLimit>| TimeLimit {
            timer: Timer::new(own.clone(), of_process(process)),
            process: Arc::downgrade(process),
        });
        let next = Some(seconds.max(1).saturating_mul(SECOND));
        made.timer.set(Setting { next, period: SECOND });
        Some(made)
    }
}

/// Has a process signalled when it has spent what its limit says now.
pub(super) fn note_limit(process: &Arc<Process>) {
    let limit = TimeLimit::of(process);
    let before = core::mem::replace(&mut *process.time_limit.lock(), limit);
    drop(before);
}

impl Expires for TimeLimit {
    fn expired(&self, _: u64) {
        let Some(process) = self.process.upgrade() else { return };
        let Ok(limit) = process.limits.get(RLIMIT_CPU.into()) else { return };
        let is_last = process.time().time() / SECOND >= limit.rlim_max;
        process.send(Info::kernel(if is_last { SIGKILL } else { SIGXCPU }));
    }
}
