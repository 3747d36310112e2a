//! Calls about numbers of processes, threads, groups, sessions and users.

use super::super::process::{self, Process};
use super::super::thread::Thread;
use super::super::user;
use super::Answer;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};
use foliant_linux::Errno;
use linux_raw_sys::errno::{EACCES, EINVAL, EPERM, ESRCH};

type Six = [u64; 6];

/// What is always 0 here: the user's number.
pub(super) fn zero(_: &Arc<Thread>, _: Six) -> Answer {
    Ok(0)
}
/// Real, effective and saved number of the user, or the group.
pub(super) fn getres(_: &Arc<Thread>, [first, second, third, ..]: Six) -> Answer {
    [first, second, third].into_iter().try_for_each(|at| user::put(at, &0u32)).map(|()| 0)
}
/// Nobody becomes anybody else; -1 leaves a number what it is.
fn set_ids(ids: &[u64]) -> Answer {
    let is_own = |id: &u64| matches!(*id as u32, 0 | u32::MAX);
    if ids.iter().all(is_own) { Ok(0) } else { Err(Errno(EPERM)) }
}
pub(super) fn set_id(_: &Arc<Thread>, [id, ..]: Six) -> Answer {
    match id as u32 {
        u32::MAX => Err(Errno(EINVAL)),
        _ => set_ids(&[id]),
    }
}
pub(super) fn set_two_ids(_: &Arc<Thread>, [first, second, ..]: Six) -> Answer {
    set_ids(&[first, second])
}
pub(super) fn set_three_ids(_: &Arc<Thread>, [first, second, third, ..]: Six) -> Answer {
    set_ids(&[first, second, third])
}
pub(super) fn setgroups(_: &Arc<Thread>, [count, ..]: Six) -> Answer {
    if count == 0 { Ok(0) } else { Err(Errno(EPERM)) }
}
pub(super) fn getpid(thread: &Arc<Thread>, _: Six) -> Answer {
    Ok(thread.process.id.into())
}
pub(super) fn gettid(thread: &Arc<Thread>, _: Six) -> Answer {
    Ok(thread.id.into())
}
pub(super) fn getppid(thread: &Arc<Thread>, _: Six) -> Answer {
    Ok(thread.process.parent.lock().upgrade().map_or(0, |parent| parent.id.into()))
}
fn of(thread: &Arc<Thread>, id: u64) -> Result<Arc<Process>, Errno> {
    match id as u32 {
        0 => Ok(thread.process.clone()),
        id => process::of_id(id).ok_or(Errno(ESRCH)),
    }
}
pub(super) fn number(of: &AtomicU32) -> u64 {
    of.load(Ordering::Relaxed).into()
}
pub(super) fn getpgid(thread: &Arc<Thread>, [id, ..]: Six) -> Answer {
    Ok(number(&of(thread, id)?.group))
}
pub(super) fn getpgrp(thread: &Arc<Thread>, _: Six) -> Answer {
    Ok(number(&thread.process.group))
}
pub(super) fn getsid(thread: &Arc<Thread>, [id, ..]: Six) -> Answer {
    Ok(number(&of(thread, id)?.session))
}
/// Makes a process a member of a group of its session, which may be new.
pub(super) fn setpgid(thread: &Arc<Thread>, [id, group, ..]: Six) -> Answer {
    if (group as i32) < 0 {
        return Err(Errno(EINVAL));
    }
    let (own, process) = (&thread.process, of(thread, id)?);
    let session = process.place().1;
    if process.id != own.id {
        match () {
            () if process.parent_id() != own.id => return Err(Errno(ESRCH)),
            () if session != own.place().1 => return Err(Errno(EPERM)),
            () if process.has_begun.load(Ordering::Relaxed) => return Err(Errno(EACCES)),
            () => {}
        }
    }
    if process.id == session {
        return Err(Errno(EPERM));
    }
    let group = if group == 0 { process.id } else { group as u32 };
    if group != process.id && !process::all().iter().any(|it| it.place() == (group, session)) {
        return Err(Errno(EPERM));
    }
    process.group.store(group, Ordering::Relaxed);
    Ok(0)
}
/// Makes a process the leader of a session of its own, without a terminal.
pub(super) fn setsid(thread: &Arc<Thread>, _: Six) -> Answer {
    let process = &thread.process;
    if process::all().iter().any(|it| it.place().0 == process.id) {
        return Err(Errno(EPERM));
    }
    process.group.store(process.id, Ordering::Relaxed);
    process.session.store(process.id, Ordering::Relaxed);
    process.is_apart.store(false, Ordering::Relaxed);
    Ok(process.id.into())
}
