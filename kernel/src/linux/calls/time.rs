//! Calls about time.

use super::super::process;
use super::super::thread::Thread;
use super::super::timer::{Clock, Setting, Timer};
use super::super::{clock, spending, user, waiters};
use super::Answer;
use alloc::sync::Arc;
use foliant_linux::Errno;
use linux_raw_sys::errno::{EINTR, EINVAL};
use linux_raw_sys::general::{
    __kernel_itimerspec, __kernel_timespec, CLOCK_BOOTTIME, CLOCK_MONOTONIC,
    CLOCK_MONOTONIC_COARSE, CLOCK_MONOTONIC_RAW, CLOCK_PROCESS_CPUTIME_ID, CLOCK_REALTIME,
    CLOCK_REALTIME_COARSE, CLOCK_TAI, CLOCK_THREAD_CPUTIME_ID, TIMER_ABSTIME, timeval,
};

type Six = [u64; 6];

const SECOND: u64 = 1_000_000_000;
/// Nanoseconds of a tick of `times`.
const TICK: u64 = 10_000_000;

/// What a clock shows.
fn read(thread: &Arc<Thread>, number: u64) -> Result<u64, Errno> {
    match number as u32 {
        CLOCK_REALTIME | CLOCK_REALTIME_COARSE | CLOCK_TAI => Ok(clock::since_epoch()),
        CLOCK_MONOTONIC_COARSE | CLOCK_MONOTONIC_RAW => Ok(clock::uptime()),
        _ => Ok(clock_of(thread, number)?.now()),
    }
}
/// The clock of a number, for timers and for what spends time of CPUs. One of another process or
/// thread is its number, negated, behind three bits that say which clock.
pub(super) fn clock_of(thread: &Arc<Thread>, number: u64) -> Result<Clock, Errno> {
    const OF_THREAD: i32 = 4;
    const KINDS: i32 = 3;
    const PROGRAMS: i32 = 1; // `CPUCLOCK_VIRT`; the others count the kernel's time too
    let own = &thread.process;
    let of_thread = |id| spending::of_thread(own, id);
    let number = number as i32;
    match number as u32 {
        CLOCK_REALTIME | CLOCK_TAI => return Ok(Clock::Calendar),
        CLOCK_MONOTONIC | CLOCK_BOOTTIME => return Ok(Clock::Uptime),
        CLOCK_PROCESS_CPUTIME_ID => return Ok(spending::of_process(own)),
        CLOCK_THREAD_CPUTIME_ID => return Ok(of_thread(thread.id)),
        _ => {}
    }
    let (id, kind) = (!(number >> 3) as u32, number & KINDS);
    if number >= 0 || kind == KINDS {
        return Err(Errno(EINVAL)); // of none, or of a descriptor
    }
    if number & OF_THREAD != 0 {
        let id = if id == 0 { thread.id } else { id };
        let is_there = own.threads.lock().iter().any(|it| it.id() == id);
        return if is_there { Ok(of_thread(id)) } else { Err(Errno(EINVAL)) };
    }
    let process = match id {
        0 => own.clone(),
        id => process::of_id(id).ok_or(Errno(EINVAL))?,
    };
    Ok(match kind {
        PROGRAMS => spending::of_programs(&process),
        _ => spending::of_process(&process),
    })
}
pub(super) fn timespec(nanos: u64) -> __kernel_timespec {
    __kernel_timespec { tv_sec: (nanos / SECOND) as i64, tv_nsec: (nanos % SECOND) as i64 }
}
pub(super) fn nanos(it: &__kernel_timespec) -> Result<u64, Errno> {
    let is_time = it.tv_sec >= 0 && (0..SECOND as i64).contains(&it.tv_nsec);
    let nanos = (it.tv_sec as u64).saturating_mul(SECOND).saturating_add(it.tv_nsec as u64);
    if is_time { Ok(nanos) } else { Err(Errno(EINVAL)) }
}

pub(super) fn clock_gettime(thread: &Arc<Thread>, [number, at, ..]: Six) -> Answer {
    user::put(at, &timespec(read(thread, number)?)).map(|()| 0)
}
pub(super) fn clock_getres(thread: &Arc<Thread>, [number, at, ..]: Six) -> Answer {
    read(thread, number)?;
    if at != 0 {
        user::put(at, &timespec(1))?;
    }
    Ok(0)
}
pub(super) fn gettimeofday(_: &Arc<Thread>, [at, zone, ..]: Six) -> Answer {
    let now = clock::since_epoch();
    if at != 0 {
        let now = timeval { tv_sec: (now / SECOND) as i64, tv_usec: (now % SECOND / 1000) as i64 };
        user::put(at, &now)?;
    }
    if zone != 0 {
        user::put(zone, &0u64)?;
    }
    Ok(0)
}
pub(super) fn time(_: &Arc<Thread>, [at, ..]: Six) -> Answer {
    let now = clock::since_epoch() / SECOND;
    if at != 0 {
        user::put(at, &now)?;
    }
    Ok(now)
}
pub(super) fn times(thread: &Arc<Thread>, [at, ..]: Six) -> Answer {
    if at != 0 {
        let (own, children) = (thread.process.usage(), thread.process.children_usage());
        let all = [own.user, own.system, children.user, children.system];
        user::put(at, &all.map(|nanos| nanos / TICK))?;
    }
    Ok(clock::uptime() / TICK)
}

/// What a program sets a timer to: relative to now, or to a time of a clock.
pub(super) fn setting(
    it: &__kernel_itimerspec,
    clock: &Clock,
    is_absolute: bool,
) -> Result<Setting, Errno> {
    let (value, period) = (nanos(&it.it_value)?, nanos(&it.it_interval)?);
    let next = match (value, is_absolute, clock) {
        (0, ..) => None,
        (value, false, _) => Some(clock.now().saturating_add(value)),
        (value, true, Clock::Uptime | Clock::Spent(_)) => Some(value),
        (value, true, Clock::Calendar) => {
            Some(value.saturating_sub(super::super::clock::epoch() * SECOND))
        }
    };
    Ok(Setting { next, period })
}
/// What a program is told that a timer is set to.
pub(super) fn told(timer: &Timer, it: Setting) -> __kernel_itimerspec {
    let left = timespec(timer.left(it));
    __kernel_itimerspec { it_interval: timespec(it.period), it_value: left }
}

/// Waits until a time, or a signal; what is left then goes to `left`.
fn wait_until(end: u64, left: u64) -> Answer {
    match waiters::sleep(end) {
        Ok(()) => Ok(0),
        Err(_) => {
            if left != 0 {
                user::put(left, &timespec(end.saturating_sub(clock::uptime())))?;
            }
            Err(Errno(EINTR))
        }
    }
}
pub(super) fn nanosleep(_: &Arc<Thread>, [limit, left, ..]: Six) -> Answer {
    let limit = nanos(&user::get(limit)?)?;
    wait_until(clock::uptime().saturating_add(limit), left)
}
pub(super) fn clock_nanosleep(
    thread: &Arc<Thread>,
    [number, flags, limit, left, ..]: Six,
) -> Answer {
    let (now, limit) = (read(thread, number)?, nanos(&user::get(limit)?)?);
    if flags as u32 & TIMER_ABSTIME == 0 {
        return wait_until(clock::uptime().saturating_add(limit), left);
    }
    wait_until(clock::uptime().saturating_add(limit.saturating_sub(now)), 0)
}

/// When a time that a program points to has passed from now on; `None` is never.
pub(super) fn limit(at: u64) -> Result<Option<u64>, Errno> {
    if at == 0 {
        return Ok(None);
    }
    Ok(Some(clock::uptime().saturating_add(nanos(&user::get(at)?)?)))
}
/// The same of a time of a clock: of the calendar's, or since the start.
pub(super) fn at_time(at: u64, is_calendar: bool) -> Result<Option<u64>, Errno> {
    if at == 0 {
        return Ok(None);
    }
    let time = nanos(&user::get(at)?)?;
    let before = if is_calendar { clock::epoch() * SECOND } else { 0 };
    Ok(Some(time.saturating_sub(before)))
}
/// When a wait of so many milliseconds is over; `None` is never.
pub(super) fn deadline(limit: i32) -> Option<u64> {
    let limit = u64::try_from(limit).ok()?;
    Some(clock::uptime() + limit * (SECOND / 1000))
}
