//! Calls about descriptors that tell of events: counters, timers, and epoll.

use super::super::channel::Channel;
use super::super::epoll::{Change, Epoll, Interest};
use super::super::eventfd::{EventFile, Takes};
use super::super::opened::{Descriptor, Opened};
use super::super::signalfd::SignalFile;
use super::super::thread::Thread;
use super::super::timer::Clock;
use super::super::timerfd::TimerFile;
use super::super::user;
use super::Answer;
use super::bytes::opened;
use super::poll::block_meanwhile;
use super::time::{clock_of, deadline, limit, setting, told};
use alloc::sync::Arc;
use core::any::Any;
use foliant_linux::Errno;
use linux_raw_sys::errno::{EINTR, EINVAL};
use linux_raw_sys::general::{
    __kernel_itimerspec, EFD_SEMAPHORE, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, O_CLOEXEC,
    O_NONBLOCK, O_RDWR, TFD_TIMER_ABSTIME, TFD_TIMER_CANCEL_ON_SET, epoll_event,
};

type Six = [u64; 6];

/// The mode of files that have no kind.
const MODE: u32 = 0o600;
/// Events that one call tells of, at most.
const EVENTS_MAX: u64 = i32::MAX as u64 / size_of::<epoll_event>() as u64;

/// A channel becomes a descriptor.
pub(super) fn add(
    thread: &Thread,
    channel: Arc<dyn Channel>,
    mode: u32,
    flags: u32,
) -> Result<u64, Errno> {
    let opened = Opened::of_channel(channel, mode, O_RDWR | flags & O_NONBLOCK);
    let closes = flags & O_CLOEXEC != 0;
    thread.process.descriptors.lock().add(0, Descriptor { opened, closes })
}
/// What a descriptor is, if it is one of these.
pub(super) fn as_channel<C: Channel>(opened: &Opened) -> Option<&C> {
    let channel: &dyn Any = &**opened.channel()?;
    channel.downcast_ref()
}
const OTHER: Errno = Errno(EINVAL);

pub(super) fn eventfd(thread: &Arc<Thread>, [count, ..]: Six) -> Answer {
    eventfd2(thread, [count, 0, 0, 0, 0, 0])
}
pub(super) fn eventfd2(thread: &Arc<Thread>, [count, flags, ..]: Six) -> Answer {
    let flags = flags as u32;
    if flags & !(O_CLOEXEC | O_NONBLOCK | EFD_SEMAPHORE) != 0 {
        return Err(Errno(EINVAL));
    }
    let takes = if flags & EFD_SEMAPHORE != 0 { Takes::One } else { Takes::All };
    add(thread, EventFile::new(u64::from(count as u32), takes), MODE, flags)
}

pub(super) fn signalfd(thread: &Arc<Thread>, [number, set, size, ..]: Six) -> Answer {
    signalfd4(thread, [number, set, size, 0, 0, 0])
}
pub(super) fn signalfd4(thread: &Arc<Thread>, [number, set, size, flags, ..]: Six) -> Answer {
    let flags = flags as u32;
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 || size != 8 {
        return Err(OTHER);
    }
    let set: u64 = user::get(set)?;
    if number as i32 == -1 {
        let file = SignalFile::new(set, thread.process.signalled.clone());
        return add(thread, file, MODE, flags);
    }
    let opened = opened(thread, number)?;
    as_channel::<SignalFile>(&opened).ok_or(OTHER)?.set(set);
    Ok(u64::from(number as u32))
}

pub(super) fn timerfd_create(thread: &Arc<Thread>, [clock, flags, ..]: Six) -> Answer {
    let flags = flags as u32;
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno(EINVAL));
    }
    match clock_of(thread, clock)? {
        Clock::Spent(_) => Err(Errno(EINVAL)),
        clock => add(thread, TimerFile::new(clock), MODE, flags),
    }
}
pub(super) fn timerfd_settime(thread: &Arc<Thread>, [number, flags, new, old, ..]: Six) -> Answer {
    let flags = flags as u32;
    if flags & !(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET) != 0 {
        return Err(Errno(EINVAL));
    }
    let it: __kernel_itimerspec = user::get(new)?;
    let opened = opened(thread, number)?;
    let file = as_channel::<TimerFile>(&opened).ok_or(OTHER)?;
    let before = file.set(setting(&it, &file.timer.clock, flags & TFD_TIMER_ABSTIME != 0)?);
    if old != 0 {
        user::put(old, &told(&file.timer, before))?;
    }
    Ok(0)
}
pub(super) fn timerfd_gettime(thread: &Arc<Thread>, [number, at, ..]: Six) -> Answer {
    let opened = opened(thread, number)?;
    let file = as_channel::<TimerFile>(&opened).ok_or(OTHER)?;
    user::put(at, &told(&file.timer, file.timer.setting())).map(|()| 0)
}

pub(super) fn epoll_create(thread: &Arc<Thread>, [size, ..]: Six) -> Answer {
    if size as i32 <= 0 {
        return Err(Errno(EINVAL));
    }
    epoll_create1(thread, [0; 6])
}
pub(super) fn epoll_create1(thread: &Arc<Thread>, [flags, ..]: Six) -> Answer {
    if flags as u32 & !O_CLOEXEC != 0 {
        return Err(Errno(EINVAL));
    }
    add(thread, Epoll::new(), MODE, flags as u32)
}
pub(super) fn epoll_ctl(thread: &Arc<Thread>, [number, how, of, at, ..]: Six) -> Answer {
    let change = match how as u32 {
        EPOLL_CTL_ADD => Some(Change::Add),
        EPOLL_CTL_MOD => Some(Change::Modify),
        EPOLL_CTL_DEL => Some(Change::Remove),
        _ => None,
    };
    let interest = match change {
        Some(Change::Remove) => Interest { events: 0, data: 0 },
        _ => {
            let it: epoll_event = user::get(at)?;
            Interest { events: it.events, data: it.data }
        }
    };
    let (epoll, file) = (opened(thread, number)?, opened(thread, of)?);
    file.channel().ok_or(Errno::PERM)?;
    let epoll = as_channel::<Epoll>(&epoll).ok_or(OTHER)?;
    epoll.change(change.ok_or(OTHER)?, (of as u32, &file), interest).map(|()| 0)
}
fn wait(thread: &Arc<Thread>, [number, at, most]: [u64; 3], until: Option<u64>) -> Answer {
    if !(1..=EVENTS_MAX).contains(&u64::from(most as u32)) {
        return Err(Errno(EINVAL));
    }
    let opened = opened(thread, number)?;
    let epoll = as_channel::<Epoll>(&opened).ok_or(OTHER)?;
    let told = epoll.wait(most as u32 as usize, until).map_err(|_| Errno(EINTR))?;
    for (nth, it) in told.iter().enumerate() {
        let place = at.wrapping_add((nth * size_of::<epoll_event>()) as u64);
        user::put(place, &epoll_event { events: it.events, data: it.data })?;
    }
    Ok(told.len() as u64)
}
pub(super) fn epoll_wait(thread: &Arc<Thread>, [number, at, most, until, ..]: Six) -> Answer {
    wait(thread, [number, at, most], deadline(until as i32))
}
pub(super) fn epoll_pwait(
    thread: &Arc<Thread>,
    [number, at, most, until, mask, size]: Six,
) -> Answer {
    block_meanwhile(thread, mask, size)?;
    wait(thread, [number, at, most], deadline(until as i32))
}
pub(super) fn epoll_pwait2(
    thread: &Arc<Thread>,
    [number, at, most, until, mask, size]: Six,
) -> Answer {
    let until = limit(until)?;
    block_meanwhile(thread, mask, size)?;
    wait(thread, [number, at, most], until)
}
