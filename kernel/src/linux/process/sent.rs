//! Signals that a process is sent.

use super::super::events::Events;
use super::super::sched;
use super::super::signal::{Action, DEFAULT, Ended, IGNORE, Info, bit, is_harmless};
use super::{Member, Process};
use alloc::sync::Arc;
use linux_raw_sys::general::SIGKILL;

impl Process {
    /// What it does about a signal.
    pub(in super::super) fn action(&self, number: u32) -> Action {
        self.actions.lock()[number as usize - 1]
    }
    /// Whether a signal would do nothing.
    pub(in super::super) fn ignores(&self, number: u32) -> bool {
        match self.action(number).handler {
            IGNORE => number != SIGKILL,
            DEFAULT => is_harmless(number),
            _ => false,
        }
    }
    /// Sends it a signal.
    pub(in super::super) fn send(&self, info: Info) {
        let number = info.number as u32;
        let is_waited_for = || {
            let threads = self.threads.lock();
            threads.iter().any(|thread| thread.signals().blocked() & bit(number) != 0)
        };
        if self.ignores(number) && !is_waited_for() {
            return;
        }
        if number == SIGKILL {
            return self.note_end(Ended::Signal(SIGKILL));
        }
        self.signals.put(info);
        self.call_threads();
        self.signalled.wake_for(Events::IN);
    }
    /// Sends one of its threads a signal.
    pub(in super::super) fn send_to(&self, thread: &Arc<dyn Member>, info: Info) {
        let number = info.number as u32;
        if number == SIGKILL {
            return self.send(info);
        }
        let is_blocked = thread.signals().blocked() & bit(number) != 0;
        if self.ignores(number) && !is_blocked {
            return;
        }
        thread.signals().own.put(info);
        sched::wake(thread.clone());
        sched::wake_cpus();
        self.signalled.wake_for(Events::IN);
    }
}
