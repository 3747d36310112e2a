//! Calls about what a process may have, and what it used.

use super::super::process::{self, Member, Process};
use super::super::thread::Thread;
use super::super::{spending, user};
use super::Answer;
use alloc::sync::Arc;
use foliant_linux::Errno;
use foliant_linux::credentials::By;
use linux_raw_sys::errno::{EINVAL, ESRCH};
use linux_raw_sys::general::{
    RLIMIT_CPU, RLIMIT_NOFILE, RUSAGE_CHILDREN, RUSAGE_SELF, RUSAGE_THREAD, rlimit64,
};

type Six = [u64; 6];

pub(super) fn getrlimit(thread: &Arc<Thread>, [number, at, ..]: Six) -> Answer {
    user::put(at, &thread.process.limits.get(number)?).map(|()| 0)
}
pub(super) fn setrlimit(thread: &Arc<Thread>, [number, at, ..]: Six) -> Answer {
    set(thread, &thread.process, number, user::get(at)?)
}
fn set(by: &Thread, process: &Arc<Process>, number: u64, to: rlimit64) -> Answer {
    process.limits.set(number, to, &by.credentials())?;
    if number == u64::from(RLIMIT_CPU) {
        spending::note_limit(process);
    }
    process.descriptors.lock().most = process.limits.now(RLIMIT_NOFILE) as usize;
    if let Some(memory) = process.memory() {
        memory.with_alone(|memory| {
            memory.set_limits(process.limits.of_memory(memory.limits().promise));
        });
    }
    Ok(0)
}
pub(super) fn prlimit64(thread: &Arc<Thread>, [id, number, new, old, ..]: Six) -> Answer {
    let process = match id as u32 {
        0 => thread.process.clone(),
        id => process::of_id(id).ok_or(Errno(ESRCH))?,
    };
    let own = thread.credentials();
    let is_own = process.id == thread.process.id;
    if !is_own && !own.may_look_at(&process.credentials.get(), By::Call) {
        return Err(Errno::PERM);
    }
    let before = process.limits.get(number)?;
    if new != 0 {
        set(thread, &process, number, user::get(new)?)?;
    }
    if old != 0 {
        user::put(old, &before)?;
    }
    Ok(0)
}
pub(super) fn getrusage(thread: &Arc<Thread>, [who, at, ..]: Six) -> Answer {
    let used = match who as i32 {
        it if it == RUSAGE_SELF as i32 => thread.process.usage(),
        it if it == RUSAGE_CHILDREN => thread.process.children_usage(),
        it if it == RUSAGE_THREAD as i32 => {
            let peak = thread.process.usage().peak;
            super::super::usage::Usage { peak, ..Member::usage(&**thread) }
        }
        _ => return Err(Errno(EINVAL)),
    };
    user::put(at, &used.told()).map(|()| 0)
}
