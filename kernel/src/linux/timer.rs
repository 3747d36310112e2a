//! Timers: at a time, and each period from then on, somebody is told how often that was.
//!
//! ```text
//!   set ─▶ alarm listed ── its time ─▶ told how many periods passed ─▶ listed for the next one
//! ```
//!
//! **Invariants**
//! - M1. One alarm of a timer is listed, or none; one of before a change does nothing.
//! - M2. Between two alarms of a timer lies [`GAP`] at least, however short its period: what passed
//!   meanwhile is counted.
//!
//! **Locking**: a timer's lock, and the list of alarms under it; who is told is told without.

use super::clock;
use super::sched::{self, Alarm, Due};
use alloc::sync::{Arc, Weak};
use spin::Mutex;

/// Nanoseconds between two alarms of a timer.
const GAP: u64 = 100_000;

/// Who is told that a timer's time has come.
pub(super) trait Expires: Send + Sync {
    /// It has come so many times since it was last told.
    fn expired(&self, times: u64);
}

/// Whether times of a timer are the calendar's, or since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Clock {
    Calendar,
    Uptime,
}

/// A timer.
pub(super) struct Timer {
    state: Mutex<State>,
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
    pub(super) fn new(tells: Weak<dyn Expires>) -> Arc<Timer> {
        let state = Mutex::new(State::default());
        Arc::new_cyclic(|own| Timer { state, tells, own: own.clone() })
    }
    /// Sets it; says what it was set to.
    pub(super) fn set(&self, to: Setting) -> Setting {
        let mut state = self.state.lock();
        if let Some(due) = state.listed.take() {
            sched::put_off(due);
        }
        let before = core::mem::replace(&mut state.setting, to);
        if let Some(next) = to.next {
            self.list(&mut state, next);
        }
        before
    }
    /// What it is set to.
    pub(super) fn setting(&self) -> Setting {
        self.state.lock().setting
    }
    fn list(&self, state: &mut State, at: u64) {
        state.listed = Some(sched::ring_at(at, self.own.clone()));
    }
}

impl Alarm for Timer {
    fn ring(self: Arc<Timer>) {
        let times = {
            let mut state = self.state.lock();
            let now = clock::uptime();
            let Setting { next: Some(next), period } = state.setting else { return };
            if next > now {
                return; // M1
            }
            let passed = (now - next).checked_div(period).map_or(1, |whole| whole + 1);
            state.listed = None;
            if period == 0 {
                state.setting.next = None;
            } else {
                let next = next.saturating_add(passed.saturating_mul(period));
                state.setting.next = Some(next);
                self.list(&mut state, next.max(now + GAP)); // M2
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
