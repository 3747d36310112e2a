//! Waiting for a word of memory to change.
//!
//! ```text
//!   words still as said? ─▶ listed under where they are ─▶ parked ◀── wake, requeue: taken off
//! ```
//!
//! **Invariants**
//! - F1. The word is read while the list is locked: whoever changes it and wakes comes before the
//!   read, or finds the waiter.
//! - F2. What is taken off the list to be woken says so before the lock is let go of: a waiter
//!   whose time is over at that moment was woken, as the waker counts it.
//! - F3. No fault is served while the list is locked: a program may let the page in itself, by a
//!   thread that wants the list.
//!
//! **Locking**: one lock for the list. Words that are there are read under it.

use super::process::Process;
use super::sched;
use super::thread::Thread;
use super::user;
use super::waiters::{self, Cut};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::iter;
use core::sync::atomic::{AtomicUsize, Ordering};
use foliant_linux::{Errno, MemoryKey};
use linux_raw_sys::errno::{EAGAIN, EINVAL};
use linux_raw_sys::general::{FUTEX_OWNER_DIED, FUTEX_TID_MASK, FUTEX_WAITERS};
use spin::{Mutex, MutexGuard};

/// Entries of a list of locks that are looked at.
const LOCKS_MAX: usize = 2048;

/// A word that a thread waits for.
#[derive(Clone, Copy)]
pub(super) struct Word {
    pub(super) at: u64,
    pub(super) scope: Scope,
    pub(super) value: u32,
    pub(super) bits: u32,
}

/// Whose word it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// The process's own: its address is enough.
    Private,
    /// Perhaps that of others too: its page is looked for, and must be there.
    Shared,
}

struct Waiter {
    at: MemoryKey,
    bits: u32,
    thread: Arc<Thread>,
    /// Which one of the words that the thread waits for.
    turn: usize,
    /// One more than the last one of these that was woken.
    woken: Arc<AtomicUsize>,
}

static LIST: Mutex<Vec<Waiter>> = Mutex::new(Vec::new());

fn key(process: &Process, at: u64, scope: Scope) -> Result<MemoryKey, Errno> {
    if !at.is_multiple_of(4) {
        return Err(Errno(EINVAL));
    }
    if scope == Scope::Shared {
        user::get::<u32>(at)?;
    }
    Ok(process.with_memory(|memory| memory.key_of(at)))
}

/// Locks the list while all of these words have their values (F1). A page that is not there comes
/// before that (F3).
fn lock_while(
    words: impl Iterator<Item = (u64, u32)> + Clone,
) -> Result<MutexGuard<'static, Vec<Waiter>>, Errno> {
    loop {
        let list = LIST.lock();
        let found = |(at, value)| (at, user::get_present::<u32>(at).map(|found| found == value));
        match words.clone().map(found).find(|(_, is_still)| *is_still != Some(true)) {
            None => return Ok(list),
            Some((_, Some(_))) => return Err(Errno(EAGAIN)),
            Some((at, None)) => {
                drop(list);
                user::get::<u32>(at)?;
            }
        }
    }
}

/// Waits while all of the words have their values; says which one was woken.
pub(super) fn wait(
    thread: &Arc<Thread>,
    words: &[Word],
    until: Option<u64>,
) -> Result<usize, NotWoken> {
    let key = |word: &Word| key(&thread.process, word.at, word.scope);
    let keys = words.iter().map(key).collect::<Result<Vec<_>, _>>().map_err(NotWoken::Refused)?;
    let woken = Arc::new(AtomicUsize::new(0));
    {
        let mut list = lock_while(words.iter().map(|word| (word.at, word.value)))
            .map_err(NotWoken::Refused)?;
        list.extend(keys.into_iter().zip(words).enumerate().map(|(turn, (at, word))| {
            let (thread, woken) = (thread.clone(), woken.clone());
            Waiter { at, bits: word.bits, thread, turn, woken }
        }));
    }
    let which = || woken.load(Ordering::Acquire).checked_sub(1);
    let found = waiters::wait(until, which);
    if found.is_err() || words.len() > 1 {
        LIST.lock().retain(|waiter| !Arc::ptr_eq(&waiter.woken, &woken));
    }
    found.or_else(|cut| which().ok_or(NotWoken::Cut(cut))) // F2
}

/// Why a wait ended without a wake-up.
pub(super) enum NotWoken {
    Refused(Errno),
    Cut(Cut),
}

/// Wakes so many that wait for a word with one of these bits; says how many.
pub(super) fn wake(
    thread: &Thread,
    (at, scope): (u64, Scope),
    most: u32,
    bits: u32,
) -> Result<u64, Errno> {
    let key = key(&thread.process, at, scope)?;
    let woken = take(&mut LIST.lock(), key, most, bits);
    woken.iter().for_each(go_on);
    Ok(woken.len() as u64)
}
/// Takes so many off the list that wait there for one of these bits (F2).
fn take(list: &mut Vec<Waiter>, key: MemoryKey, most: u32, bits: u32) -> Vec<Waiter> {
    let mut left = most;
    let is_meant = |waiter: &mut Waiter| {
        let is_meant = waiter.at == key && waiter.bits & bits != 0 && left > 0;
        left -= u32::from(is_meant);
        is_meant
    };
    let taken: Vec<Waiter> = list.extract_if(.., is_meant).collect();
    for waiter in &taken {
        waiter.woken.fetch_max(waiter.turn + 1, Ordering::AcqRel);
    }
    taken
}
fn go_on(waiter: &Waiter) {
    sched::wake(waiter.thread.clone());
}
/// Wakes so many, and has so many others wait for another word; says how many of both.
pub(super) fn requeue(
    thread: &Thread,
    (from, to, scope): (u64, u64, Scope),
    (wakes, moves): (u32, u32),
    is_still: Option<u32>,
) -> Result<u64, Errno> {
    let (from_key, to_key) = (key(&thread.process, from, scope)?, key(&thread.process, to, scope)?);
    let (woken, moved) = {
        let mut list = match is_still {
            Some(value) => lock_while(iter::once((from, value)))?,
            None => LIST.lock(),
        };
        let (woken, mut moved) = (take(&mut list, from_key, wakes, u32::MAX), 0u64);
        let others = list.iter_mut().filter(|waiter| waiter.at == from_key);
        for waiter in others.take(moves as usize) {
            waiter.at = to_key;
            moved += 1;
        }
        (woken, moved)
    };
    woken.iter().for_each(go_on);
    Ok(woken.len() as u64 + moved)
}

/// Lets go of the locks that a thread holds and listed: the next one that wants such a lock is told
/// that its holder died.
pub(super) fn release(thread: &Arc<Thread>) {
    let head = thread.robust.get();
    if head == 0 {
        return;
    }
    let Ok([first, offset, pending]) = user::get::<[u64; 3]>(head) else { return };
    let mut at = first;
    for _ in 0..LOCKS_MAX {
        if at & !1 == head {
            break;
        }
        let Ok(next) = user::get::<u64>(at & !1) else { break };
        if at != pending {
            die(thread, (at & !1).wrapping_add(offset));
        }
        at = next;
    }
    if pending & !1 != 0 {
        die(thread, (pending & !1).wrapping_add(offset));
    }
}
fn die(thread: &Thread, at: u64) {
    let Ok(word) = user::get::<u32>(at) else { return };
    if word & FUTEX_TID_MASK != thread.id {
        return;
    }
    let died = word & FUTEX_WAITERS | FUTEX_OWNER_DIED;
    if user::put(at, &died).is_ok() && word & FUTEX_WAITERS != 0 {
        let _ = wake(thread, (at, Scope::Shared), 1, u32::MAX); // it was just written
    }
}
