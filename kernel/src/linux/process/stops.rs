//! Processes that stop and go on.
//!
//! ```text
//!   runs ── a signal that stops ─▶ its threads rest: where they wait, or before ring 3 ─▶ all rest:
//!    ▲                                                                     the parent is told │
//!    └────────────── SIGCONT, told as well; its end ◀─────────────────────────────────────────┘
//! ```
//!
//! A thread that waits in a call rests there and looks again afterwards: no call has to be made
//! again because a process stopped, and times go on.
//!
//! **Invariants**
//! - P4. The parent is told of a stop when all threads rest: none runs in ring 3 then.
//!
//! **Locking**: the stop's own lock, with nothing under it; the parent is told under the lock of
//! its children (`kin`).

use super::super::sched;
use super::super::signal::{Became, IGNORE, Info};
use super::{Process, Stays, all};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use linux_raw_sys::general::{SA_NOCLDSTOP, SIGCHLD, SIGCONT, SIGHUP, SIGSTOP};
use spin::Mutex;

/// Whether a process is stopped.
pub(super) struct Stop {
    /// The signal that stopped it, or 0. It changes with the lock held; threads that go to ring 3
    /// look without it.
    by: AtomicU32,
    inside: Mutex<Inside>,
}

struct Inside {
    /// How often it stopped.
    count: u64,
    /// Threads that rest.
    resting: usize,
    /// What those that wait for it were not told yet.
    news: Option<Became>,
}

impl Stop {
    pub(super) const fn new() -> Stop {
        let inside = Mutex::new(Inside { count: 0, resting: 0, news: None });
        Stop { by: AtomicU32::new(0), inside }
    }
    fn by(&self) -> Option<u32> {
        Some(self.by.load(Ordering::Acquire)).filter(|by| *by != 0)
    }
    /// What became of it, if it is one of these and nobody was told. It is told once.
    pub(super) fn take(&self, wants: impl Fn(Became) -> bool, keep: bool) -> Option<Became> {
        let mut inside = self.inside.lock();
        let news = inside.news.filter(|news| wants(*news))?;
        if !keep {
            inside.news = None;
        }
        Some(news)
    }
}

impl Process {
    /// Whether it is stopped, or about to be.
    pub(in super::super) fn is_stopped(&self) -> bool {
        self.stop.by().is_some()
    }
    /// Stops it, as a signal does by default. A group that nobody could make go on stays as it is,
    /// and so does the first process.
    pub(in super::super) fn stop(&self, number: u32) {
        let is_kept = self.id == 1 || number != SIGSTOP && self.is_orphan();
        if is_kept || self.ended().is_some() {
            return;
        }
        {
            let mut inside = self.stop.inside.lock();
            if self.stop.by().is_some() {
                return;
            }
            self.stop.by.store(number, Ordering::Release);
            inside.count += 1;
            (inside.resting, inside.news) = (0, None);
        }
        self.call_threads();
    }
    /// Has it go on.
    pub(super) fn go_on(&self) {
        let count = {
            let mut inside = self.stop.inside.lock();
            if self.stop.by.swap(0, Ordering::AcqRel) == 0 {
                return;
            }
            inside.news = None;
            inside.count
        };
        // Told before it goes on: it may end at once.
        self.tell_news(Became::Continued, count);
        self.call_threads();
    }
    /// Waits for as long as it is stopped, in place of one of its threads.
    pub(in super::super) fn rest(&self, is_over: impl Fn() -> bool) {
        while self.stop.by().is_some() && !is_over() {
            let count = {
                let mut inside = self.stop.inside.lock();
                if self.stop.by().is_none() {
                    return;
                }
                inside.resting += 1;
                inside.count
            };
            self.note_rest();
            let rests = || {
                let inside = self.stop.inside.lock();
                self.stop.by().is_some() && inside.count == count
            };
            while !is_over() && rests() {
                sched::park(None);
            }
        }
    }
    /// Tells the parent, where all threads rest (P4).
    pub(super) fn note_rest(&self) {
        let threads = self.threads.lock().len();
        let stopped = {
            let mut inside = self.stop.inside.lock();
            let all_rest = threads > 0 && inside.resting >= threads;
            let stopped = self.stop.by().filter(|_| all_rest);
            if stopped.is_some() {
                inside.resting = 0;
            }
            stopped.map(|number| (number, inside.count))
        };
        if let Some((number, count)) = stopped {
            self.tell_news(Became::Stopped(number), count);
        }
    }
    /// Tells the parent of the stop that was the `count`th, or of its end, if it is still so.
    fn tell_news(&self, news: Became, count: u64) {
        self.tell(|parent| {
            {
                let mut inside = self.stop.inside.lock();
                let stands = self.stop.by().is_some() == matches!(news, Became::Stopped(_));
                if inside.count != count || !stands {
                    return Stays::Yes;
                }
                inside.news = Some(news);
            }
            let wants = |parent: &&Process| {
                let action = parent.action(SIGCHLD);
                action.handler != IGNORE && action.flags & u64::from(SA_NOCLDSTOP) == 0
            };
            if let Some(parent) = parent.filter(wants) {
                parent.send(Info::of_child((self.id, self.user()), news));
            }
            Stays::Yes
        });
    }

    /// Whether nobody of its session could make its group go on.
    pub(in super::super) fn is_orphan(&self) -> bool {
        let (group, session) = self.place();
        is_orphan(group, session, 0)
    }
    /// Groups that somebody could make go on because it is there: its own for its parent's sake,
    /// and those of its children for its own.
    pub(super) fn kept_groups(&self, children: &[Arc<Process>]) -> Vec<u32> {
        let is_kept = |member: &Process, parent: &Process| {
            let (member, parent) = (member.place(), parent.place());
            member.0 != parent.0 && member.1 == parent.1
        };
        let parent = self.parent.lock().upgrade();
        let own = parent.filter(|parent| is_kept(self, parent)).map(|_| self.place().0);
        let others = children.iter().filter(|child| is_kept(child, self));
        others.map(|child| child.place().0).chain(own).collect()
    }
    /// Its group and its session.
    pub(in super::super) fn place(&self) -> (u32, u32) {
        (self.group.load(Ordering::Relaxed), self.session.load(Ordering::Relaxed))
    }
}

/// Whether no member of a group but one that ends has a parent elsewhere in the session.
fn is_orphan(group: u32, session: u32, but: u32) -> bool {
    let is_kept = |member: &Arc<Process>| {
        let parent = member.parent.lock().upgrade();
        let is_elsewhere = |parent: Arc<Process>| {
            let place = parent.place();
            place.0 != group && place.1 == session && parent.id != but
        };
        let is_one = member.place() == (group, session) && member.id != but && !member.is_gone();
        is_one && parent.is_some_and(is_elsewhere)
    };
    !all().iter().any(is_kept)
}
/// Sees to groups that the end of a process leaves alone: whoever is stopped there hears of it, and
/// goes on.
pub(super) fn leave_groups(ends: &Process, groups: &[u32]) {
    let session = ends.place().1;
    for group in groups {
        let members = || all().into_iter().filter(|it| it.place() == (*group, session));
        let is_left = members().any(|it| it.id != ends.id && it.is_stopped());
        if !is_left || !is_orphan(*group, session, ends.id) {
            continue;
        }
        for member in members().filter(|it| it.id != ends.id).collect::<Vec<_>>() {
            member.send(Info::kernel(SIGHUP));
            member.send(Info::kernel(SIGCONT));
        }
    }
}
