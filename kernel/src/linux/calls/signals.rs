//! Calls about signals.

use super::super::handlers;
use super::super::process::{self, Process};
use super::super::signal::{Action, CUT, Info, SIGNALS};
use super::super::thread::Thread;
use super::super::user;
use super::super::waiters::{self, Cut};
use super::Answer;
use alloc::sync::Arc;
use foliant_linux::Errno;
use linux_raw_sys::errno::{EAGAIN, EINTR, EINVAL, ENOMEM, EPERM, ESRCH};
use linux_raw_sys::general::{
    SI_TKILL, SIG_BLOCK, SIG_SETMASK, SIG_UNBLOCK, SIGCONT, SIGKILL, SIGSTOP, SS_DISABLE,
};

type Six = [u64; 6];

/// Who sends by `kill`.
const BY_USER: i32 = 0;
/// Bytes of the smallest stack for handlers.
const STACK_MIN: u64 = 2048;

fn signal(number: u64) -> Result<u32, Errno> {
    let number = number as u32;
    if (1..=SIGNALS).contains(&number) { Ok(number) } else { Err(Errno(EINVAL)) }
}

pub(super) fn rt_sigaction(thread: &Arc<Thread>, [number, new, old, size, ..]: Six) -> Answer {
    let number = signal(number)?;
    if size != 8 || new != 0 && matches!(number, SIGKILL | SIGSTOP) {
        return Err(Errno(EINVAL));
    }
    let new: Option<Action> = if new == 0 { None } else { Some(user::get(new)?) };
    let before = {
        let mut actions = thread.process.actions.lock();
        let action = &mut actions[number as usize - 1];
        core::mem::replace(action, new.unwrap_or(*action))
    };
    if old != 0 {
        user::put(old, &before)?;
    }
    Ok(0)
}
pub(super) fn rt_sigprocmask(thread: &Arc<Thread>, [how, new, old, size, ..]: Six) -> Answer {
    if size != 8 {
        return Err(Errno(EINVAL));
    }
    let new: Option<u64> = if new == 0 { None } else { Some(user::get(new)?) };
    let before = thread.signals.blocked();
    if let Some(set) = new {
        thread.signals.block(match how as u32 {
            SIG_BLOCK => before | set,
            SIG_UNBLOCK => before & !set,
            SIG_SETMASK => set,
            _ => return Err(Errno(EINVAL)),
        });
    }
    if old != 0 {
        user::put(old, &before)?;
    }
    Ok(0)
}
pub(super) fn rt_sigpending(thread: &Arc<Thread>, [at, ..]: Six) -> Answer {
    let waits =
        (thread.signals.own.set() | thread.process.signals.set()) & thread.signals.blocked();
    user::put(at, &waits).map(|()| 0)
}
pub(super) fn rt_sigreturn(thread: &Arc<Thread>, _: Six) -> Answer {
    handlers::sigreturn(thread)
}
/// Waits with other signals blocked.
pub(super) fn rt_sigsuspend(thread: &Arc<Thread>, [set, size, ..]: Six) -> Answer {
    if size != 8 {
        return Err(Errno(EINVAL));
    }
    let set: u64 = user::get(set)?;
    thread.signals.before.set(Some(thread.signals.blocked()));
    thread.signals.block(set);
    pause(thread, [0; 6])
}
pub(super) fn pause(_: &Arc<Thread>, _: Six) -> Answer {
    waiters::wait(None, || None).map_err(|_| Errno(EINTR))
}
/// Takes a signal of a set when it comes.
pub(super) fn rt_sigtimedwait(thread: &Arc<Thread>, [set, info, limit, size, ..]: Six) -> Answer {
    if size != 8 {
        return Err(Errno(EINVAL));
    }
    let set: u64 = user::get(set)?;
    let until = super::time::limit(limit)?;
    // What it waits for is blocked; whoever sends it wakes all threads.
    let found = waiters::wait(until, || handlers::take(thread, set));
    let found = found.map_err(|cut| match cut {
        Cut::Time => Errno(EAGAIN),
        Cut::Signal => CUT,
    })?;
    if info != 0 {
        user::put(info, &found)?;
    }
    Ok(found.number as u64)
}
pub(super) fn sigaltstack(thread: &Arc<Thread>, [new, old, ..]: Six) -> Answer {
    let before = thread.signals.stack.get();
    let new: Option<[u64; 3]> = if new == 0 { None } else { Some(user::get(new)?) };
    if let Some([at, kind, size]) = new {
        let kind = kind as u32;
        if kind & !SS_DISABLE & !(1 << 31) != 0 {
            return Err(Errno(EINVAL));
        }
        if kind & SS_DISABLE == 0 && size < STACK_MIN {
            return Err(Errno(ENOMEM));
        }
        let is_off = kind & SS_DISABLE != 0;
        thread.signals.stack.set(if is_off {
            [0, kind.into(), 0]
        } else {
            [at, kind.into(), size]
        });
    }
    if old != 0 {
        user::put(old, &before)?;
    }
    Ok(0)
}

/// Whether a thread may send a process a signal: where both are somebody's, to itself, or to go on
/// in its session.
pub(super) fn may_send(from: &Thread, to: &Process, number: u64) -> Result<(), Errno> {
    let own = &from.process;
    let is_near = || number as u32 == SIGCONT && to.place().1 == own.place().1;
    let may = to.id == own.id || from.credentials().may_signal(&to.credentials.get());
    if may || is_near() { Ok(()) } else { Err(Errno::PERM) }
}
/// Sends a signal to a process; 0 asks whether there is one.
fn send(from: &Thread, to: &Process, number: u64) -> Answer {
    let asked = if number == 0 { None } else { Some(signal(number)?) };
    may_send(from, to, number)?;
    if let Some(number) = asked {
        to.send(Info::sent(number, BY_USER, from.process.id, from.credentials().user.real));
    }
    Ok(0)
}
pub(super) fn kill(thread: &Arc<Thread>, [to, number, ..]: Six) -> Answer {
    let to = to as i32;
    if to > 0 {
        let process = process::of_id(to as u32).ok_or(Errno(ESRCH))?;
        return send(thread, &process, number);
    }
    let own = thread.process.group.load(core::sync::atomic::Ordering::Relaxed);
    let group = if to == 0 { own } else { to.unsigned_abs() };
    let is_meant = |process: &Arc<Process>| match to {
        -1 => process.id > 1 && process.id != thread.process.id,
        _ => process.group.load(core::sync::atomic::Ordering::Relaxed) == group,
    };
    let meant = process::all().into_iter().filter(is_meant);
    // Whoever reaches one of many is not told of the others, and for all there are none.
    let mut answer = Err(Errno(ESRCH));
    for process in meant {
        match send(thread, &process, number) {
            Err(Errno(EPERM)) if to == -1 => answer = Ok(0),
            sent if answer.is_err() => answer = sent,
            _ => {}
        }
    }
    answer
}
fn send_to(thread: &Arc<Thread>, process: Option<u32>, id: u64, number: u64) -> Answer {
    let is_meant = |it: &Arc<Process>| process.is_none_or(|process| it.id == process);
    for it in process::all().iter().filter(|it| is_meant(it)) {
        let found = it.threads.lock().iter().find(|other| other.id() == id as u32).cloned();
        let Some(found) = found else { continue };
        let asked = if number == 0 { None } else { Some(signal(number)?) };
        may_send(thread, it, number)?;
        if let Some(number) = asked {
            let user = thread.credentials().user.real;
            it.send_to(&found, Info::sent(number, SI_TKILL, thread.process.id, user));
        }
        return Ok(0);
    }
    Err(Errno(ESRCH))
}
/// Whether a number may be a thread's.
fn of_thread(id: u64) -> Result<(), Errno> {
    if id as i32 > 0 { Ok(()) } else { Err(Errno(EINVAL)) }
}
pub(super) fn tkill(thread: &Arc<Thread>, [id, number, ..]: Six) -> Answer {
    of_thread(id)?;
    send_to(thread, None, id, number)
}
pub(super) fn tgkill(thread: &Arc<Thread>, [process, id, number, ..]: Six) -> Answer {
    of_thread(process).and(of_thread(id))?;
    send_to(thread, Some(process as u32), id, number)
}
