//! Timers: at a time, and each period from then on, somebody is told how often that was.
//!
//! ```text
//!   set ─▶ alarm listed ── its time ─▶ told how many periods passed ─▶ listed for the next one
//!                 ▲            │ not yet: of what is spent of CPUs, nobody knows when
//!                 └────────────┘
//! ```
//!
//! **Invariants**
//! - M1. One alarm of a timer is listed, or none; one of before a change does nothing.
//! - M2. Between two alarms of a timer lies [`GAP`] at least, however short its period: what passed
//!   meanwhile is counted.
//! - M3. A timer of what is spent comes at its time or up to [`LOOK`] later: its alarm rings when
//!   that time can have come at the earliest, with all CPUs at work for it, and is listed anew.
//!
//! **Locking**: a timer's lock, and the list of alarms under it; who is told is told without.

use super::clock;
use super::sched::{self, Alarm, Due};
use crate::smp;
use alloc::sync::{Arc, Weak};
use spin::Mutex;

/// Nanoseconds between two alarms of a timer.
const GAP: u64 = 100_000;

/// Nanoseconds between two looks at what is spent, at least.
const LOOK: u64 = 1_000_000;

/// Who is told that a timer's time has come.
pub(super) trait Expires: Send + Sync {
    /// It has come so many times since it was last told.
    fn expired(&self, times: u64);
}

/// What takes time of CPUs.
pub(super) trait Spends: Send + Sync {
    /// Nanoseconds that it took by now; none when it is gone.
    fn spent(&self) -> Option<u64>;
}

/// What times of a timer are of. Those of the calendar are kept as times since the start.
#[derive(Clone)]
pub(super) enum Clock {
    Calendar,
    Uptime,
    Spent(Arc<dyn Spends>),
}

impl Clock {
    /// What time it is, as a timer keeps it; none where what it was spent by is gone.
    fn read(&self) -> Option<u64> {
        match self {
            Clock::Calendar | Clock::Uptime => Some(clock::uptime()),
            Clock::Spent(by) => by.spent(),
        }
    }
    /// The same, and 0 for what is gone.
    pub(super) fn now(&self) -> u64 {
        self.read().unwrap_or(0)
    }
}

/// A timer.
pub(super) struct Timer {
    state: Mutex<State>,
    pub(super) clock: Clock,
    tells: Weak<dyn Expires>,
    own: Weak<Timer>,
}

/// What a timer is set to, in nanoseconds: when its time comes next, if it does, and what lies
/// between that and the next ones, or 0.
#[derive(Clone, Copy, Default)]
pub(super) struct Setting {
    pub(super) next: Option<u64>,
    pub(super) period: u64,
}

#[derive(Default)]
struct State {
    setting: Setting,
    /// The alarm that is listed (M1).
    listed: Option<Due>,
}

impl Timer {
    pub(super) fn new(tells: Weak<dyn Expires>, clock: Clock) -> Arc<Timer> {
        let state = Mutex::new(State::default());
        Arc::new_cyclic(|own| Timer { state, clock, tells, own: own.clone() })
    }
    /// Sets it; says what it was set to.
    pub(super) fn set(&self, to: Setting) -> Setting {
        let now = self.clock.now();
        let mut state = self.state.lock();
        if let Some(due) = state.listed.take() {
            sched::put_off(due);
        }
        let before = core::mem::replace(&mut state.setting, to);
        if let Some(next) = to.next {
            self.list(&mut state, next, now);
        }
        before
    }
    /// What it is set to.
    pub(super) fn setting(&self) -> Setting {
        self.state.lock().setting
    }
    /// What is left of what it is set to, at least a nanosecond; 0 if it is set to nothing.
    pub(super) fn left(&self, it: Setting) -> u64 {
        it.next.map_or(0, |next| next.saturating_sub(self.clock.now()).max(1))
    }
    fn list(&self, state: &mut State, next: u64, now: u64) {
        let at = match self.clock {
            Clock::Calendar | Clock::Uptime => next,
            Clock::Spent(_) => {
                let soonest = next.saturating_sub(now) / smp::online() as u64;
                clock::uptime().saturating_add(soonest.max(LOOK)) // M3
            }
        };
        state.listed = Some(sched::ring_at(at, self.own.clone()));
    }
}

impl Alarm for Timer {
    fn ring(self: Arc<Timer>) {
        let times = {
            let Some(now) = self.clock.read() else { return };
            let mut state = self.state.lock();
            let Setting { next: Some(next), period } = state.setting else { return };
            if next > now {
                // It may be one of before a change (M1).
                if matches!(self.clock, Clock::Spent(_)) {
                    state.listed.take().into_iter().for_each(sched::put_off);
                    self.list(&mut state, next, now);
                }
                return;
            }
            let passed = (now - next).checked_div(period).map_or(1, |whole| whole + 1);
            state.listed = None;
            if period == 0 {
                state.setting.next = None;
            } else {
                let next = next.saturating_add(passed.saturating_mul(period));
                state.setting.next = Some(next);
                self.list(&mut state, next.max(now + GAP), now); // M2
            }
            passed
        };
        if let Some(told) = self.tells.upgrade() {
            told.expired(times);
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(due) = self.state.get_mut().listed.take() {
            sched::put_off(due);
        }
    }
}
