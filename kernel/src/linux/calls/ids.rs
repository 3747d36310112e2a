//! Calls about numbers of processes, threads, groups, sessions and users.

use super::super::process::{self, Process};
use super::super::thread::Thread;
use super::super::user;
use super::Answer;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use foliant_linux::Errno;
use foliant_linux::credentials::{Credentials, Ids};
use linux_raw_sys::errno::{EACCES, EINVAL, EPERM, ESRCH};

type Six = [u64; 6];

/// Has a thread be what a call makes of it.
pub(super) fn change(
    thread: &Arc<Thread>,
    change: impl FnOnce(&mut Credentials) -> Result<u32, Errno>,
) -> Answer {
    let mut new = Credentials::clone(&thread.credentials());
    let answer = change(&mut new)?;
    thread.become_other(new);
    Ok(answer.into())
}
pub(super) fn setuid(thread: &Arc<Thread>, [id, ..]: Six) -> Answer {
    change(thread, |it| it.setuid(id as u32).map(|()| 0))
}
pub(super) fn setgid(thread: &Arc<Thread>, [id, ..]: Six) -> Answer {
    change(thread, |it| it.setgid(id as u32).map(|()| 0))
}
pub(super) fn setreuid(thread: &Arc<Thread>, [real, effective, ..]: Six) -> Answer {
    change(thread, |it| it.setreuid([real, effective].map(|id| id as u32)).map(|()| 0))
}
pub(super) fn setregid(thread: &Arc<Thread>, [real, effective, ..]: Six) -> Answer {
    change(thread, |it| it.setregid([real, effective].map(|id| id as u32)).map(|()| 0))
}
pub(super) fn setresuid(thread: &Arc<Thread>, [real, effective, saved, ..]: Six) -> Answer {
    change(thread, |it| it.setresuid([real, effective, saved].map(|id| id as u32)).map(|()| 0))
}
pub(super) fn setresgid(thread: &Arc<Thread>, [real, effective, saved, ..]: Six) -> Answer {
    change(thread, |it| it.setresgid([real, effective, saved].map(|id| id as u32)).map(|()| 0))
}
pub(super) fn setfsuid(thread: &Arc<Thread>, [id, ..]: Six) -> Answer {
    change(thread, |it| Ok(it.setfsuid(id as u32)))
}
pub(super) fn setfsgid(thread: &Arc<Thread>, [id, ..]: Six) -> Answer {
    change(thread, |it| Ok(it.setfsgid(id as u32)))
}
pub(super) fn setgroups(thread: &Arc<Thread>, [count, at, ..]: Six) -> Answer {
    let count = count as u32 as usize;
    change(thread, |it| {
        it.may_set_groups(count)?;
        let bytes = user::get_bytes(at, count * size_of::<u32>())?;
        let (groups, _) = bytes.as_chunks();
        it.setgroups(groups.iter().map(|group| u32::from_le_bytes(*group)).collect())?;
        Ok(0)
    })
}
pub(super) fn getgroups(thread: &Arc<Thread>, [room, at, ..]: Six) -> Answer {
    let own = thread.credentials();
    let count = own.groups().len() as u64;
    let room = u64::try_from(room as i32).map_err(|_| Errno(EINVAL))?;
    if room > 0 {
        if count > room {
            return Err(Errno(EINVAL));
        }
        let bytes: Vec<u8> = own.groups().iter().flat_map(|group| group.to_le_bytes()).collect();
        user::put_bytes(at, &bytes)?;
    }
    Ok(count)
}
pub(super) fn getuid(thread: &Arc<Thread>, _: Six) -> Answer {
    Ok(thread.credentials().user.real.into())
}
pub(super) fn geteuid(thread: &Arc<Thread>, _: Six) -> Answer {
    Ok(thread.credentials().user.effective.into())
}
pub(super) fn getgid(thread: &Arc<Thread>, _: Six) -> Answer {
    Ok(thread.credentials().group.real.into())
}
pub(super) fn getegid(thread: &Arc<Thread>, _: Six) -> Answer {
    Ok(thread.credentials().group.effective.into())
}
/// Puts real, effective and saved number.
fn put_three(ids: &Ids, [real, effective, saved, ..]: Six) -> Answer {
    user::put(real, &ids.real)?;
    user::put(effective, &ids.effective)?;
    user::put(saved, &ids.saved).map(|()| 0)
}
pub(super) fn getresuid(thread: &Arc<Thread>, at: Six) -> Answer {
    put_three(&thread.credentials().user, at)
}
pub(super) fn getresgid(thread: &Arc<Thread>, at: Six) -> Answer {
    put_three(&thread.credentials().group, at)
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
    if (group as i32) < 0 || (id as i32) < 0 {
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
