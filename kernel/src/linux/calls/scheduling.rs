//! Calls about CPUs, and about what a thread wishes of them.

use super::super::process::{self, Member};
use super::super::thread::Thread;
use super::super::{sched, user};
use super::Answer;
use crate::{cpu, smp};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use foliant_linux::Errno;
use foliant_linux::capabilities::Capability;
use foliant_units::Cpu;
use linux_raw_sys::errno::{EACCES, EINVAL, EPERM, ESRCH};
use linux_raw_sys::general::{
    PRIO_PGRP, PRIO_PROCESS, PRIO_USER, RLIMIT_NICE, SCHED_BATCH, SCHED_FIFO, SCHED_IDLE,
    SCHED_NORMAL, SCHED_RR, membarrier_cmd,
};

type Six = [u64; 6];

/// The bit of a policy that has children begin without it.
const RESET_ON_FORK: u32 = 0x4000_0000;
/// Priorities of policies that are about time: nobody gets one here.
const PRIORITIES: (u64, u64) = (1, 99);
/// Nanoseconds of a turn, as `sched_rr_get_interval` tells it.
const TURN: i64 = 10_000_000;
/// Bytes of the first `sched_attr`.
const ATTRIBUTES: u64 = 48;

/// The thread with a number; 0 is the caller.
fn thread_of(thread: &Arc<Thread>, id: u64) -> Result<Arc<dyn Member>, Errno> {
    let id = id as u32;
    if id == 0 || id == thread.id {
        return Ok(thread.clone());
    }
    let all = process::all();
    let mut threads = all.iter().flat_map(|process| process.threads.lock().clone());
    threads.find(|other| other.id() == id).ok_or(Errno(ESRCH))
}
/// CPUs that run, a bit each.
fn online() -> u64 {
    u64::MAX >> (64 - smp::online().min(64))
}

/// Refuses who may not say how a thread is scheduled.
fn may_schedule(thread: &Thread, other: &dyn Member) -> Result<(), Errno> {
    let may = thread.credentials().may_schedule(&other.credentials());
    if may { Ok(()) } else { Err(Errno(EPERM)) }
}
/// Whether a thread may have this niceness: the caller has the capability, or it is no less than
/// before, or than `RLIMIT_NICE`.
fn may_hurry(thread: &Thread, other: &dyn Member, nice: i32) -> bool {
    let before = other.scheduled().wishes.nice.load(Ordering::Relaxed);
    let limit = process::of_id(other.process_id()).map_or(0, |it| it.limits.now(RLIMIT_NICE));
    let fits = u64::try_from(20 - nice).is_ok_and(|nice| nice <= limit);
    nice >= before || fits || thread.has(Capability::SysNice)
}

pub(super) fn sched_getaffinity(thread: &Arc<Thread>, [id, bytes, at, ..]: Six) -> Answer {
    if bytes < 8 || !bytes.is_multiple_of(8) {
        return Err(Errno(EINVAL));
    }
    let allowed = thread_of(thread, id)?.scheduled().allowed() & online();
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
    let other = thread_of(thread, id)?;
    may_schedule(thread, &*other)?;
    other.scheduled().wishes.allowed.store(allowed, Ordering::Relaxed);
    if other.id() == thread.id && allowed & 1 << cpu::me().0 == 0 {
        sched::move_on();
    }
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

pub(super) fn sched_getscheduler(thread: &Arc<Thread>, [id, ..]: Six) -> Answer {
    Ok(thread_of(thread, id)?.scheduled().wishes.policy.load(Ordering::Relaxed) as u64)
}
fn set_policy(thread: &Arc<Thread>, id: u64, policy: u32, priority: u64) -> Answer {
    let other = thread_of(thread, id)?;
    match policy & !RESET_ON_FORK {
        SCHED_NORMAL | SCHED_BATCH | SCHED_IDLE if priority == 0 => {}
        SCHED_FIFO | SCHED_RR if (PRIORITIES.0..=PRIORITIES.1).contains(&priority) => {
            return Err(Errno(EPERM)); // nobody gets turns before others
        }
        _ => return Err(Errno(EINVAL)),
    }
    may_schedule(thread, &*other)?;
    other.scheduled().wishes.policy.store(policy as i32, Ordering::Relaxed);
    Ok(0)
}
pub(super) fn sched_setscheduler(thread: &Arc<Thread>, [id, policy, at, ..]: Six) -> Answer {
    if at == 0 || (id as i32) < 0 {
        return Err(Errno(EINVAL));
    }
    let priority = u64::from(user::get::<u32>(at)?);
    set_policy(thread, id, policy as u32, priority)
}
pub(super) fn sched_getparam(thread: &Arc<Thread>, [id, at, ..]: Six) -> Answer {
    thread_of(thread, id)?;
    user::put(at, &0u32).map(|()| 0)
}
pub(super) fn sched_setparam(thread: &Arc<Thread>, [id, at, ..]: Six) -> Answer {
    let policy = sched_getscheduler(thread, [id, 0, 0, 0, 0, 0])?;
    let priority = u64::from(user::get::<u32>(at)?);
    set_policy(thread, id, policy as u32, priority)
}
pub(super) fn sched_get_priority_max(_: &Arc<Thread>, [policy, ..]: Six) -> Answer {
    priority(policy, PRIORITIES.1)
}
pub(super) fn sched_get_priority_min(_: &Arc<Thread>, [policy, ..]: Six) -> Answer {
    priority(policy, PRIORITIES.0)
}
fn priority(policy: u64, of_time: u64) -> Answer {
    match policy as u32 {
        SCHED_FIFO | SCHED_RR => Ok(of_time),
        SCHED_NORMAL | SCHED_BATCH | SCHED_IDLE => Ok(0),
        _ => Err(Errno(EINVAL)),
    }
}
pub(super) fn sched_rr_get_interval(thread: &Arc<Thread>, [id, at, ..]: Six) -> Answer {
    thread_of(thread, id)?;
    user::put(at, &[0u64, TURN as u64]).map(|()| 0)
}
/// `sched_attr`: size and policy, flags, niceness and priority, and times of deadlines.
pub(super) fn sched_getattr(thread: &Arc<Thread>, [id, at, size, flags, ..]: Six) -> Answer {
    if size < ATTRIBUTES || flags != 0 {
        return Err(Errno(EINVAL));
    }
    let other = thread_of(thread, id)?;
    let wishes = &other.scheduled().wishes;
    let policy = wishes.policy.load(Ordering::Relaxed) as u32;
    let nice = wishes.nice.load(Ordering::Relaxed) as u32;
    let words = [ATTRIBUTES | u64::from(policy) << 32, 0, u64::from(nice), 0, 0, 0];
    user::put(at, &words).map(|()| 0)
}
pub(super) fn sched_setattr(thread: &Arc<Thread>, [id, at, flags, ..]: Six) -> Answer {
    if flags != 0 {
        return Err(Errno(EINVAL));
    }
    let words: [u64; 3] = user::get(at)?;
    let [policy, nice, priority] = [words[0] >> 32, words[2] & 0xffff_ffff, words[2] >> 32];
    let (other, nice) = (thread_of(thread, id)?, (nice as i32).clamp(-20, 19));
    if !may_hurry(thread, &*other, nice) {
        return Err(Errno(EPERM));
    }
    set_policy(thread, id, policy as u32, priority)?;
    other.scheduled().wishes.nice.store(nice, Ordering::Relaxed);
    Ok(0)
}

/// The threads that a priority is of.
fn meant(thread: &Arc<Thread>, which: u64, id: u64) -> Result<Vec<Arc<dyn Member>>, Errno> {
    let of_group = |group: u32| {
        let all = process::all().into_iter();
        let own = all.filter(move |it| it.group.load(Ordering::Relaxed) == group);
        own.flat_map(|it| it.threads.lock().clone()).collect::<Vec<_>>()
    };
    let found = match (which as u32, id as u32) {
        (PRIO_PROCESS, _) => alloc::vec![thread_of(thread, id)?],
        (PRIO_PGRP, 0) => of_group(thread.process.group.load(Ordering::Relaxed)),
        (PRIO_PGRP, group) => of_group(group),
        (PRIO_USER, user) => {
            let user = if user == 0 { thread.credentials().user.real } else { user };
            let all = process::all().into_iter().filter(|it| it.user() == user);
            all.flat_map(|it| it.threads.lock().clone()).collect()
        }
        _ => return Err(Errno(EINVAL)),
    };
    if found.is_empty() { Err(Errno(ESRCH)) } else { Ok(found) }
}
pub(super) fn getpriority(thread: &Arc<Thread>, [which, id, ..]: Six) -> Answer {
    let all = meant(thread, which, id)?;
    let least = all.iter().map(|it| it.scheduled().wishes.nice.load(Ordering::Relaxed)).min();
    Ok((20 - least.unwrap_or(0)) as u64)
}
pub(super) fn setpriority(thread: &Arc<Thread>, [which, id, nice, ..]: Six) -> Answer {
    let nice = (nice as i32).clamp(-20, 19);
    let mut answer = Ok(0);
    for it in meant(thread, which, id)? {
        let may = may_schedule(thread, &*it).and_then(|()| match may_hurry(thread, &*it, nice) {
            true => Ok(0),
            false => Err(Errno(EACCES)),
        });
        match may {
            Ok(_) => it.scheduled().wishes.nice.store(nice, Ordering::Relaxed),
            refused => answer = refused,
        }
    }
    answer
}

/// Has every CPU order its accesses: the caller runs on each of them once.
/// A visit goes through the return from an interrupt, which orders instructions as well.
pub(super) fn membarrier(thread: &Arc<Thread>, [command, flags, ..]: Six) -> Answer {
    use membarrier_cmd as It;
    /// Each command, and the one that must come first.
    const GOES: [(u32, u32); 4] = [
        (It::MEMBARRIER_CMD_GLOBAL as u32, 0),
        (It::MEMBARRIER_CMD_GLOBAL_EXPEDITED as u32, 0),
        (
            It::MEMBARRIER_CMD_PRIVATE_EXPEDITED as u32,
            It::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED as u32,
        ),
        (
            It::MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE as u32,
            It::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE as u32,
        ),
    ];
    const REGISTERS: u32 = It::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED as u32
        | It::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED as u32
        | It::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE as u32;
    const TOLD: u32 = It::MEMBARRIER_CMD_GET_REGISTRATIONS as u32;
    let (command, registered) = (command as u32, &thread.process.barriers);
    match (command, GOES.iter().find(|(goes, _)| *goes == command)) {
        _ if flags != 0 => Err(Errno(EINVAL)),
        (0, _) => Ok(GOES.iter().fold(REGISTERS | TOLD, |all, (goes, _)| all | goes).into()),
        (_, Some((_, first))) if registered.load(Ordering::Relaxed) & first != *first => {
            Err(Errno(EPERM))
        }
        (_, Some(_)) => {
            (0..smp::online()).for_each(|cpu| sched::visit(Cpu(cpu as u16)));
            Ok(0)
        }
        (TOLD, _) => Ok(registered.load(Ordering::Relaxed).into()),
        _ if command.is_power_of_two() && command & REGISTERS != 0 => {
            registered.fetch_or(command, Ordering::Relaxed);
            Ok(0)
        }
        _ => Err(Errno(EINVAL)),
    }
}
