//! Calls about the machine and its limits.

use super::super::opened::DESCRIPTORS_MAX;
use super::super::process::Member;
use super::super::signal::Ended;
use super::super::thread::Thread;
use super::super::{clock, process, random, sched, texts, user};
use super::Answer;
use crate::memory::manager;
use crate::{cpu, smp};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use foliant_linux::Errno;
use linux_raw_sys::errno::{EINVAL, ESRCH};
use linux_raw_sys::general::{
    LINUX_REBOOT_CMD_CAD_OFF, LINUX_REBOOT_CMD_CAD_ON, LINUX_REBOOT_CMD_HALT,
    LINUX_REBOOT_CMD_POWER_OFF, LINUX_REBOOT_CMD_RESTART, LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2,
    LINUX_REBOOT_MAGIC2A, LINUX_REBOOT_MAGIC2B, LINUX_REBOOT_MAGIC2C, RLIM_NLIMITS,
    RLIM64_INFINITY, RLIMIT_NOFILE, RLIMIT_STACK, rlimit64, rusage,
};
use linux_raw_sys::system::new_utsname;

type Six = [u64; 6];

/// Bytes that one call of `getrandom` gives.
const RANDOM_MAX: u64 = i32::MAX as u64;
/// The memory that one process may have locked, and its stack.
const STACK: u64 = 8 << 20;

pub(super) fn getrandom(_: &Arc<Thread>, [at, bytes, flags, ..]: Six) -> Answer {
    if flags & !7 != 0 {
        return Err(Errno(EINVAL));
    }
    let bytes = bytes.min(RANDOM_MAX);
    let mut piece = [0; 256];
    let mut done = 0;
    while done < bytes {
        let count = piece.len().min((bytes - done) as usize);
        random::fill(&mut piece[..count]);
        user::put_bytes(at.wrapping_add(done), &piece[..count])?;
        done += count as u64;
    }
    Ok(bytes)
}

pub(super) fn uname(_: &Arc<Thread>, [at, ..]: Six) -> Answer {
    let mut out: new_utsname = user::zeros();
    let fill = |field: &mut [core::ffi::c_char; 65], text: &str| {
        for (to, from) in field.iter_mut().zip(text.bytes()) {
            *to = from as core::ffi::c_char;
        }
    };
    fill(&mut out.sysname, "Linux");
    fill(&mut out.nodename, "foliant");
    fill(&mut out.release, texts::RELEASE);
    fill(&mut out.version, "#1 SMP Foliant");
    fill(&mut out.machine, "x86_64");
    fill(&mut out.domainname, "(none)");
    user::put(at, &out).map(|()| 0)
}
pub(super) fn sysinfo(_: &Arc<Thread>, [at, ..]: Six) -> Answer {
    let memory = manager().memory();
    let bytes = |pages: foliant_units::Pages| pages.bytes().get();
    let mut words = [0u64; 14];
    words[0] = clock::uptime() / 1_000_000_000;
    words[4] = bytes(memory.managed);
    words[5] = bytes(memory.free);
    words[10] = process::all().len() as u64;
    words[13] = 1; // bytes of a unit
    user::put(at, &words).map(|()| 0)
}

/// Ends everything: the power goes off when the first process has ended, and none of them starts
/// the machine again.
pub(super) fn reboot(_: &Arc<Thread>, [one, two, what, ..]: Six) -> Answer {
    const SECOND: [u32; 4] =
        [LINUX_REBOOT_MAGIC2, LINUX_REBOOT_MAGIC2A, LINUX_REBOOT_MAGIC2B, LINUX_REBOOT_MAGIC2C];
    let is_meant = one as u32 == LINUX_REBOOT_MAGIC1 && SECOND.contains(&(two as u32));
    match what as u32 {
        _ if !is_meant => Err(Errno(EINVAL)),
        LINUX_REBOOT_CMD_CAD_OFF | LINUX_REBOOT_CMD_CAD_ON => Ok(0),
        LINUX_REBOOT_CMD_HALT | LINUX_REBOOT_CMD_POWER_OFF | LINUX_REBOOT_CMD_RESTART => {
            process::of_id(1).inspect(|first| first.note_end(Ended::Code(0)));
            Ok(0)
        }
        _ => Err(Errno(EINVAL)),
    }
}

fn limit(number: u64) -> Result<rlimit64, Errno> {
    if number >= u64::from(RLIM_NLIMITS) {
        return Err(Errno(EINVAL));
    }
    let none = RLIM64_INFINITY as u64;
    let (rlim_cur, rlim_max) = match number as u32 {
        RLIMIT_STACK => (STACK, none),
        RLIMIT_NOFILE => (DESCRIPTORS_MAX as u64, DESCRIPTORS_MAX as u64),
        _ => (none, none),
    };
    Ok(rlimit64 { rlim_cur, rlim_max })
}
pub(super) fn getrlimit(_: &Arc<Thread>, [number, at, ..]: Six) -> Answer {
    user::put(at, &limit(number)?).map(|()| 0)
}
/// Limits are what they are.
pub(super) fn prlimit64(_: &Arc<Thread>, [_, number, new, old, ..]: Six) -> Answer {
    let limit = limit(number)?;
    if new != 0 {
        let _: rlimit64 = user::get(new)?;
    }
    if old != 0 {
        user::put(old, &limit)?;
    }
    Ok(0)
}
pub(super) fn getrusage(_: &Arc<Thread>, [_, at, ..]: Six) -> Answer {
    let mut out: rusage = user::zeros();
    let micros = clock::uptime() / 1000;
    out.ru_utime.tv_sec = (micros / 1_000_000) as i64;
    out.ru_utime.tv_usec = (micros % 1_000_000) as i64;
    user::put(at, &out).map(|()| 0)
}
/// The thread with a number; 0 is the caller.
fn thread_of(thread: &Arc<Thread>, id: u64) -> Result<Arc<dyn Member>, Errno> {
    if id == 0 || id == u64::from(thread.id) {
        return Ok(thread.clone());
    }
    let all = process::all();
    let mut threads = all.iter().flat_map(|process| process.threads.lock().clone());
    threads.find(|other| u64::from(other.id()) == id).ok_or(Errno(ESRCH))
}
/// CPUs that run, a bit each.
fn online() -> u64 {
    u64::MAX >> (64 - smp::online().min(64))
}
pub(super) fn sched_getaffinity(thread: &Arc<Thread>, [id, bytes, at, ..]: Six) -> Answer {
    if bytes < 8 || !bytes.is_multiple_of(8) {
        return Err(Errno(EINVAL));
    }
    let allowed = thread_of(thread, id)?.scheduled().allowed.load(Ordering::Relaxed) & online();
    user::put(at, &allowed)?;
    Ok(8)
}
pub(super) fn sched_setaffinity(thread: &Arc<Thread>, [id, bytes, at, ..]: Six) -> Answer {
    let bytes = bytes.min(8) as usize;
    let mut word = [0; 8];
    word[..bytes].copy_from_slice(&user::get_bytes(at, bytes)?);
    let allowed = u64::from_le_bytes(word) & online();
    if allowed == 0 {
        return Err(Errno(EINVAL));
    }
    thread_of(thread, id)?.scheduled().allowed.store(allowed, Ordering::Relaxed);
    Ok(0)
}
pub(super) fn sched_yield(_: &Arc<Thread>, _: Six) -> Answer {
    sched::give_way();
    Ok(0)
}
pub(super) fn getcpu(_: &Arc<Thread>, [cpu_at, node_at, ..]: Six) -> Answer {
    for (at, value) in [(cpu_at, u32::from(cpu::me().0)), (node_at, 0)] {
        if at != 0 {
            user::put(at, &value)?;
        }
    }
    Ok(0)
}
