//! Whose terminal it is, and which group is in the foreground.

use super::super::process::{self, Process};
use super::super::sched;
use super::super::signal::{CUT, Info, bit};
use super::tty::Tty;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use foliant_linux::Errno;
use linux_raw_sys::errno::{EINVAL, EIO, ENOTTY, EPERM, ESRCH};
use linux_raw_sys::general::{SIGCONT, SIGHUP, SIGTTIN, SIGTTOU, TOSTOP};
use spin::Mutex;

/// All terminals that may be a session's.
static ALL: Mutex<Vec<Weak<Tty>>> = Mutex::new(Vec::new());

/// The process that runs.
pub(super) fn own() -> Result<Arc<Process>, Errno> {
    process::of_id(sched::current().process_id()).ok_or(Errno(ESRCH))
}
/// The terminal of a process's session.
pub(super) fn terminal_of(process: &Process) -> Option<Arc<Tty>> {
    let mut all = ALL.lock();
    all.retain(|it| it.strong_count() > 0);
    all.iter().filter_map(Weak::upgrade).find(|it| it.is_of(process))
}
/// The number of a process's terminal and of the group in its foreground.
pub(in super::super) fn of_process(process: &Process) -> Option<(u64, u32)> {
    terminal_of(process).map(|tty| (tty.device, tty.front()))
}
/// A process ends: where it led a session, that loses its terminal, and who is in the foreground
/// hears of it.
pub(in super::super) fn end_session(leader: &Process) {
    if leader.place().1 != leader.id {
        return;
    }
    if let Some(tty) = terminal_of(leader) {
        tty.lose_session();
    }
}

impl Tty {
    /// Makes it one that may be a session's.
    pub(super) fn enlist(self: &Arc<Tty>) {
        ALL.lock().push(Arc::downgrade(self));
    }
    /// Whether it is the terminal of a process.
    pub(super) fn is_of(&self, process: &Process) -> bool {
        let session = process.place().1;
        self.session() == session && session != 0 && !process.is_apart.load(Ordering::Relaxed)
    }
    pub(super) fn give_to(&self, session: u32, group: u32) {
        self.front.store(group, Ordering::Release);
        self.session.store(session, Ordering::Release);
    }
    /// Makes it the terminal of the calling process's session, where that has none.
    pub(super) fn take_control(&self, steals: bool) -> Result<u64, Errno> {
        let own = own()?;
        let (group, session) = own.place();
        if session == own.id && self.session() == session {
            return Ok(0);
        }
        let is_free = self.session() == 0 || steals;
        if session != own.id || terminal_of(&own).is_some() || !is_free {
            return Err(Errno(EPERM));
        }
        own.is_apart.store(false, Ordering::Relaxed);
        self.give_to(session, group);
        Ok(0)
    }
    /// The calling process has no terminal any more; where it leads its session, nobody of it has.
    pub(super) fn give_up(&self) -> Result<u64, Errno> {
        let own = own()?;
        if !self.is_of(&own) {
            return Err(Errno(ENOTTY));
        }
        match own.place().1 == own.id {
            true => self.lose_session(),
            false => own.is_apart.store(true, Ordering::Relaxed),
        }
        Ok(0)
    }
    fn lose_session(&self) {
        let front = self.front();
        self.give_to(0, 0);
        signal_group(front, SIGHUP);
        signal_group(front, SIGCONT);
    }
    /// Its other end is gone: the leader hears of it.
    pub(super) fn tell_leader(&self) {
        let leader = process::of_id(self.session());
        self.give_to(0, 0);
        for number in [SIGHUP, SIGCONT] {
            leader.iter().for_each(|leader| leader.send(Info::kernel(number)));
        }
    }
    /// Signals the group in the foreground, with each signal of a set.
    pub(super) fn signal_front(&self, signals: u64) {
        let front = self.front();
        if front == 0 {
            return;
        }
        (1..=64)
            .filter(|number| signals & bit(*number) != 0)
            .for_each(|it| signal_group(front, it));
    }

    /// Whether the calling process may read it now. In the background it is signalled, and asks
    /// again when it goes on.
    pub(super) fn may_read(&self) -> Result<(), Errno> {
        self.check(SIGTTIN)
    }
    /// The same of writing, which is free unless it is asked for.
    pub(super) fn may_write(&self) -> Result<(), Errno> {
        let asks = self.inside.lock().discipline.settings().has_local(TOSTOP);
        if asks { self.may_change() } else { Ok(()) }
    }
    /// The same of setting it.
    pub(super) fn may_change(&self) -> Result<(), Errno> {
        self.check(SIGTTOU)
    }
    fn check(&self, number: u32) -> Result<(), Errno> {
        let own = own()?;
        let (front, group) = (self.front(), own.place().0);
        if !self.is_of(&own) || front == 0 || front == group {
            return Ok(());
        }
        if sched::current().blocked() & bit(number) != 0 || own.ignores(number) {
            return if number == SIGTTIN { Err(Errno(EIO)) } else { Ok(()) };
        }
        if own.is_orphan() {
            return Err(Errno(EIO));
        }
        signal_group(group, number);
        Err(CUT)
    }

    /// The group in the foreground, for its own processes and for the other end.
    pub(super) fn told_front(&self, is_other: bool) -> Result<u32, Errno> {
        if !is_other && !self.is_of(&*own()?) {
            return Err(Errno(ENOTTY));
        }
        Ok(self.front())
    }
    pub(super) fn told_session(&self, is_other: bool) -> Result<u32, Errno> {
        let is_asked = is_other || self.is_of(&*own()?);
        let session = self.session();
        if is_asked && session != 0 { Ok(session) } else { Err(Errno(ENOTTY)) }
    }
    /// Puts a group of the session into the foreground.
    pub(super) fn set_front(&self, group: i32) -> Result<u64, Errno> {
        let own = own()?;
        if !self.is_of(&own) {
            return Err(Errno(ENOTTY));
        }
        let group = u32::try_from(group).map_err(|_| Errno(EINVAL))?;
        let session = own.place().1;
        let all = process::all();
        let mut members = all.iter().filter(|it| it.place().0 == group).peekable();
        if members.peek().is_none() {
            return Err(Errno(ESRCH));
        }
        if !members.any(|it| it.place().1 == session) {
            return Err(Errno(EPERM));
        }
        self.front.store(group, Ordering::Release);
        Ok(0)
    }
}

fn signal_group(group: u32, number: u32) {
    for member in process::all().into_iter().filter(|it| group != 0 && it.place().0 == group) {
        member.send(Info::kernel(number));
    }
}
