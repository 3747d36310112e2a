//! Calls that wait for descriptors.
//!
//! ```text
//!   asked for ─▶ Watched: opened file, events ─▶ waiters of all ─▶ looked at again ─▶ told
//! ```

use super::super::events::Events;
use super::super::opened::{DESCRIPTORS_MAX, Opened};
use super::super::thread::Thread;
use super::super::waiters::{Cut, Waiters, wait_any};
use super::super::{clock, user};
use super::Answer;
use alloc::sync::Arc;
use alloc::vec::Vec;
use foliant_linux::Errno;
use linux_raw_sys::errno::{EBADF, EINTR, EINVAL};
use linux_raw_sys::general::{POLLNVAL, pollfd, timeval};

type Six = [u64; 6];

/// Bits of a word of a set of `select`.
const WORD: u64 = u64::BITS as u64;

/// A descriptor that is waited for.
struct Watched {
    /// None where there is no such descriptor.
    opened: Option<Arc<Opened>>,
    asked: Events,
}

impl Watched {
    fn of(thread: &Thread, number: u64, asked: Events) -> Watched {
        let found = thread.process.descriptors.lock().get(number).map(|it| it.opened.clone());
        Watched { opened: found.ok(), asked: asked | Events::ALWAYS }
    }
    fn events(&self) -> Events {
        self.opened.as_ref().map_or(Events(POLLNVAL), |opened| opened.events() & self.asked)
    }
    fn waiters(&self) -> Option<&Waiters> {
        self.opened.as_ref()?.channel().map(|channel| channel.waiters())
    }
}

/// Waits until `look` counts one that is ready, or until a time; says how many.
fn wait_ready(all: &[Watched], until: Option<u64>, mut look: impl FnMut() -> u64) -> Answer {
    let waiters: Vec<&Waiters> = all.iter().filter_map(Watched::waiters).collect();
    let found = wait_any(&waiters, until, || Some(look()).filter(|ready| *ready > 0));
    match found {
        Ok(ready) => Ok(ready),
        Err(Cut::Time) => Ok(0),
        Err(Cut::Signal) => Err(Errno(EINTR)),
    }
}

/// Blocks other signals until the call is over.
pub(super) fn block_meanwhile(thread: &Thread, mask: u64, size: u64) -> Result<(), Errno> {
    if mask == 0 {
        return Ok(());
    }
    if size != 8 {
        return Err(Errno(EINVAL));
    }
    let mask: u64 = user::get(mask)?;
    thread.signals.before.set(Some(thread.signals.blocked()));
    thread.signals.block(mask);
    Ok(())
}
/// What is left until a time goes where the limit was.
fn put_left(at: u64, until: Option<u64>) {
    if let Some(until) = until {
        let left = super::time::timespec(until.saturating_sub(clock::uptime()));
        let _ = user::put(at, &left); // as Linux, it does not ask
    }
}

pub(super) fn poll(thread: &Arc<Thread>, [at, count, limit, ..]: Six) -> Answer {
    poll_until(thread, at, count, super::time::deadline(limit as i32))
}
pub(super) fn ppoll(thread: &Arc<Thread>, [at, count, limit, mask, size, _]: Six) -> Answer {
    let until = super::time::limit(limit)?;
    block_meanwhile(thread, mask, size)?;
    let answer = poll_until(thread, at, count, until);
    put_left(limit, until);
    answer
}
fn poll_until(thread: &Arc<Thread>, at: u64, count: u64, until: Option<u64>) -> Answer {
    if count > DESCRIPTORS_MAX as u64 {
        return Err(Errno(EINVAL));
    }
    let place = |nth: usize| at.wrapping_add((nth * size_of::<pollfd>()) as u64);
    let asked = (0..count as usize).map(|nth| user::get(place(nth)));
    let mut asked: Vec<pollfd> = asked.collect::<Result<_, _>>()?;
    let of = |it: &pollfd| Watched::of(thread, it.fd as u64, Events(it.events as u16 as u32));
    let meant: Vec<usize> = (0..asked.len()).filter(|nth| asked[*nth].fd >= 0).collect();
    let all: Vec<Watched> = meant.iter().map(|nth| of(&asked[*nth])).collect();
    asked.iter_mut().for_each(|it| it.revents = 0);
    let answer = wait_ready(&all, until, || {
        let mut ready = 0;
        for (nth, watched) in meant.iter().zip(&all) {
            let events = watched.events();
            asked[*nth].revents = events.0 as i16;
            ready += u64::from(!events.is_empty());
        }
        ready
    })?;
    for (nth, it) in asked.iter().enumerate() {
        user::put(place(nth), it)?;
    }
    Ok(answer)
}

pub(super) fn select(
    thread: &Arc<Thread>,
    [count, reads, writes, others, limit, _]: Six,
) -> Answer {
    let until = match limit {
        0 => None,
        at => {
            let it: timeval = user::get(at)?;
            if it.tv_sec < 0 || it.tv_usec < 0 {
                return Err(Errno(EINVAL));
            }
            let micros = (it.tv_sec as u64).saturating_mul(1_000_000);
            let nanos = micros.saturating_add(it.tv_usec as u64).saturating_mul(1000);
            Some(clock::uptime().saturating_add(nanos))
        }
    };
    let answer = select_until(thread, count, [reads, writes, others], until);
    if let Some(until) = until {
        let left = until.saturating_sub(clock::uptime()) / 1000;
        let (tv_sec, tv_usec) = ((left / 1_000_000) as i64, (left % 1_000_000) as i64);
        let _ = user::put(limit, &timeval { tv_sec, tv_usec }); // as Linux, it does not ask
    }
    answer
}
pub(super) fn pselect6(
    thread: &Arc<Thread>,
    [count, reads, writes, others, limit, mask]: Six,
) -> Answer {
    let until = super::time::limit(limit)?;
    let [mask, size] = if mask == 0 { [0; 2] } else { user::get(mask)? };
    block_meanwhile(thread, mask, size)?;
    let answer = select_until(thread, count, [reads, writes, others], until);
    put_left(limit, until);
    answer
}
fn select_until(thread: &Arc<Thread>, count: u64, sets: [u64; 3], until: Option<u64>) -> Answer {
    let count = match count as i32 {
        ..0 => return Err(Errno(EINVAL)),
        count => (count as u64).min(thread.process.descriptors.lock().room()),
    };
    let words = count.div_ceil(WORD);
    let asks = [
        Events::IN | Events::HANGUP | Events::ERROR,
        Events::OUT | Events::ERROR,
        Events::PRIORITY,
    ];
    let word_at = |set: u64, nth: u64| set.wrapping_add(nth * 8);
    // Which descriptor, in which set, for what.
    let mut meant: Vec<(u64, usize)> = Vec::new();
    let mut all = Vec::new();
    for (which, set) in sets.into_iter().enumerate().filter(|(_, set)| *set != 0) {
        for nth in 0..words {
            let word: u64 = user::get(word_at(set, nth))?;
            let numbers = (0..WORD).filter(|bit| word >> bit & 1 != 0).map(|bit| nth * WORD + bit);
            for number in numbers.filter(|number| *number < count) {
                let watched = Watched::of(thread, number, asks[which]);
                if watched.opened.is_none() {
                    return Err(Errno(EBADF));
                }
                meant.push((number, which));
                all.push(watched);
            }
        }
    }
    let look = || {
        let is_ready =
            |(watched, (_, which)): &(&Watched, &(u64, usize))| watched.events().has(asks[*which]);
        let ready = all.iter().zip(&meant).filter(is_ready);
        let ready: Vec<(u64, usize)> = ready.map(|(_, meant)| *meant).collect();
        (!ready.is_empty()).then_some(ready)
    };
    let mut found = Vec::new();
    wait_ready(&all, until, || {
        found = look().unwrap_or_default();
        found.len() as u64
    })?;
    for (which, set) in sets.into_iter().enumerate().filter(|(_, set)| *set != 0) {
        for nth in 0..words {
            let of_word = found.iter().filter(|it| it.1 == which && it.0 / WORD == nth);
            let word = of_word.fold(0u64, |word, (number, _)| word | 1 << (number % WORD));
            user::put(word_at(set, nth), &word)?;
        }
    }
    Ok(found.len() as u64)
}
