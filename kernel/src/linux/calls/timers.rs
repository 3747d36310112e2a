//! Calls about timers that signal.

use super::super::signal::{Info, SIGNALS};
use super::super::thread::Thread;
use super::super::timer::{Clock, Setting, Timer};
use super::super::timers::{PROFILE, REAL, Target, Ticking, VIRTUAL};
use super::super::{clock, spending, user};
use super::Answer;
use super::time::{clock_of, setting, told};
use alloc::sync::{Arc, Weak};
use foliant_linux::Errno;
use linux_raw_sys::errno::EINVAL;
use linux_raw_sys::general::{
    __kernel_itimerspec, ITIMER_PROF, ITIMER_REAL, ITIMER_VIRTUAL, SIGALRM, SIGEV_NONE,
    SIGEV_SIGNAL, SIGEV_THREAD_ID, SIGPROF, SIGVTALRM, TIMER_ABSTIME, itimerval, timeval,
};

type Six = [u64; 6];

const MICRO: u64 = 1000;
const SECOND: u64 = 1_000_000_000;

/// A timer of `setitimer` of the caller's process.
fn interval(thread: &Thread, which: u64) -> Result<Arc<Ticking>, Errno> {
    let process = &thread.process;
    let (number, signal, clock) = match which as u32 {
        ITIMER_REAL => (REAL, SIGALRM, Clock::Uptime),
        ITIMER_VIRTUAL => (VIRTUAL, SIGVTALRM, spending::of_programs(process)),
        ITIMER_PROF => (PROFILE, SIGPROF, spending::of_process(process)),
        _ => return Err(Errno(EINVAL)),
    };
    let target: Weak<dyn Target> = Arc::downgrade(process) as _;
    let make = || Ticking::new(target, Some(Info::kernel(signal)), clock);
    Ok(process.timers.get_or_make(number, make))
}

pub(super) fn alarm(thread: &Arc<Thread>, [seconds, ..]: Six) -> Answer {
    let seconds = u64::from(seconds as u32);
    let next = clock::uptime() + seconds * SECOND;
    let next = Some(next).filter(|_| seconds > 0);
    let timer = &interval(thread, ITIMER_REAL.into())?.timer;
    let before = timer.left(timer.set(Setting { next, period: 0 }));
    // Rounded, but what is left is not nothing.
    Ok(if before == 0 { 0 } else { ((before + SECOND / 2) / SECOND).max(1) })
}
fn put_value(at: u64, timer: &Timer, it: Setting) -> Result<(), Errno> {
    let of = |nanos: u64| timeval {
        tv_sec: (nanos / SECOND) as i64,
        tv_usec: (nanos % SECOND / MICRO) as i64,
    };
    let value = match timer.left(it) {
        0 => 0,
        left => left.max(MICRO),
    };
    user::put(at, &itimerval { it_interval: of(it.period), it_value: of(value) })
}
pub(super) fn getitimer(thread: &Arc<Thread>, [which, at, ..]: Six) -> Answer {
    let timer = &interval(thread, which)?.timer;
    put_value(at, timer, timer.setting()).map(|()| 0)
}
pub(super) fn setitimer(thread: &Arc<Thread>, [which, new, old, ..]: Six) -> Answer {
    let timer = &interval(thread, which)?.timer;
    let mut to = Setting::default();
    if new != 0 {
        let it: itimerval = user::get(new)?;
        let nanos = |it: timeval| match it.tv_sec >= 0 && (0..1_000_000).contains(&it.tv_usec) {
            true => {
                let seconds = (it.tv_sec as u64).saturating_mul(SECOND);
                Ok(seconds.saturating_add(it.tv_usec as u64 * MICRO))
            }
            false => Err(Errno(EINVAL)),
        };
        let value = nanos(it.it_value)?;
        to.period = nanos(it.it_interval)?;
        to.next = Some(timer.clock.now().saturating_add(value)).filter(|_| value > 0);
    }
    let before = timer.set(to);
    if old != 0 {
        put_value(old, timer, before)?;
    }
    Ok(0)
}

pub(super) fn timer_create(thread: &Arc<Thread>, [clock, event, at, ..]: Six) -> Answer {
    let clock = clock_of(thread, clock)?;
    // A value of eight bytes, the signal, how it is told, and whom.
    let words: [i32; 16] = match event {
        0 => {
            let mut words = [0; 16];
            words[2] = SIGALRM as i32;
            words
        }
        event => user::get(event)?,
    };
    let value = u64::from(words[0] as u32) | (words[1] as u64) << 32;
    let (number, how, whom) = (words[2] as u32, words[3] as u32, words[4] as u32);
    let is_signal = (1..=SIGNALS).contains(&number);
    let mut target: Weak<dyn Target> = Arc::downgrade(&thread.process) as _;
    match how {
        SIGEV_NONE => {}
        SIGEV_SIGNAL if is_signal => {}
        SIGEV_THREAD_ID if is_signal => {
            let threads = thread.process.threads.lock();
            let found = threads.iter().find(|other| other.id() == whom).ok_or(Errno(EINVAL))?;
            target = found.clone().target();
        }
        _ => return Err(Errno(EINVAL)),
    }
    let made = thread.process.timers.add(|id| {
        let word = if event == 0 { id as u64 } else { value };
        let info = Info::timer(number, id, word);
        Ticking::new(target, Some(info).filter(|_| how != SIGEV_NONE), clock)
    })?;
    let put = user::put(at, &made).map(|()| 0);
    put.inspect_err(|_| drop(thread.process.timers.take(made)))
}
fn find(thread: &Thread, number: u64) -> Result<Arc<Ticking>, Errno> {
    let number = number as i32;
    thread.process.timers.get(number).filter(|_| number >= 0).ok_or(Errno(EINVAL))
}
pub(super) fn timer_delete(thread: &Arc<Thread>, [number, ..]: Six) -> Answer {
    find(thread, number)?;
    drop(thread.process.timers.take(number as i32));
    Ok(0)
}
pub(super) fn timer_getoverrun(thread: &Arc<Thread>, [number, ..]: Six) -> Answer {
    Ok(find(thread, number)?.overrun().into())
}
pub(super) fn timer_gettime(thread: &Arc<Thread>, [number, at, ..]: Six) -> Answer {
    let timer = &find(thread, number)?.timer;
    user::put(at, &told(timer, timer.setting())).map(|()| 0)
}
pub(super) fn timer_settime(thread: &Arc<Thread>, [number, flags, new, old, ..]: Six) -> Answer {
    let it: __kernel_itimerspec = user::get(new)?;
    let timer = &find(thread, number)?.timer;
    let to = setting(&it, &timer.clock, flags as u32 & TIMER_ABSTIME != 0)?;
    let before = timer.set(to);
    if old != 0 {
        user::put(old, &told(timer, before))?;
    }
    Ok(0)
}
