//! Signals that a process is sent.

use super::super::events::Events;
use super::super::sched;
use super::super::signal::{
    Action, DEFAULT, Ended, IGNORE, Info, STOPS, bit, is_harmless, is_stop,
};
use super::{Member, Process};
use alloc::sync::Arc;
use linux_raw_sys::general::{SIGCONT, SIGKILL, SIGSTOP};

impl Process {
    /// The user that it tells others of.
    pub(in super::super) fn user(&self) -> u32 {
        self.credentials.get().user.real
    }
    /// What it does about a signal.
    pub(in super::super) fn action(&self, number: u32) -> Action {
        self.actions.lock()[number as usize - 1]
    }
    /// Whether a signal would do nothing.
    pub(in super::super) fn ignores(&self, number: u32) -> bool {
        match self.action(number).handler {
            IGNORE => !matches!(number, SIGKILL | SIGSTOP),
            DEFAULT => is_harmless(number),
            _ => false,
        }
    }
    /// Sends it a signal.
    pub(in super::super) fn send(&self, info: Info) {
        let number = info.number as u32;
        self.turn(number);
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
        let may_stop = is_stop(number) && self.action(number).handler == DEFAULT;
        if may_stop && (number == SIGSTOP || !is_waited_for()) {
            return self.stop(number);
        }
        self.signals.put(info);
        self.call_threads();
        self.signalled.wake_for(Events::IN);
    }
    /// Sends one of its threads a signal.
    pub(in super::super) fn send_to(&self, thread: &Arc<dyn Member>, info: Info) {
        let number = info.number as u32;
        if matches!(number, SIGKILL | SIGSTOP) {
            return self.send(info);
        }
        self.turn(number);
        let is_blocked = thread.signals().blocked() & bit(number) != 0;
        if self.ignores(number) && !is_blocked {
            return;
        }
        if is_stop(number) && self.action(number).handler == DEFAULT && !is_blocked {
            return self.stop(number);
        }
        thread.signals().own.put(info);
        sched::wake(thread.clone());
        sched::wake_cpus();
        self.signalled.wake_for(Events::IN);
    }
    /// What goes on takes away what stops, and the other way round.
    fn turn(&self, number: u32) {
        let against = match number {
            SIGCONT => STOPS,
            number if is_stop(number) => bit(SIGCONT),
            _ => return,
        };
        self.signals.forget(against);
        let threads = self.threads.lock().clone();
        threads.iter().for_each(|thread| thread.signals().own.forget(against));
        if number == SIGCONT {
            self.go_on();
        }
    }
}
