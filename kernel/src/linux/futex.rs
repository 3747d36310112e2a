//! Waiting for a word of memory to change.
//!
//! ```text
//!   word still as said? ─▶ listed under where it is ─▶ parked ◀── wake, requeue: taken off the list
//! ```
//!
//! **Invariants**
//! - F1. The word is read while the list is locked: whoever changes it and wakes comes before the
//!   read, or finds the waiter.
//!
//! **Locking**: one lock for the list. The word is read under it: no fault takes the lock.

use super::process::Process;
use super::sched;
use super::thread::Thread;
use super::user;
use super::waiters::{self, Cut};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};
use foliant_linux::{Errno, MemoryKey};
use linux_raw_sys::errno::{EAGAIN, EINVAL};
use linux_raw_sys::general::{FUTEX_OWNER_DIED, FUTEX_TID_MASK, FUTEX_WAITERS};
use spin::Mutex;

/// Entries of a list of locks that are looked at.
const LOCKS_MAX: usize = 2048;

struct Waiter {
    at: MemoryKey,
    bits: u32,
    thread: Arc<Thread>,
    is_woken: Arc<AtomicBool>,
}

static LIST: Mutex<Vec<Waiter>> = Mutex::new(Vec::new());

fn key(process: &Process, at: u64) -> Result<MemoryKey, Errno> {
    if !at.is_multiple_of(4) {
        return Err(Errno(EINVAL));
    }
    Ok(process.with_memory(|memory| memory.key_of(at)))
}

/// Waits while the word is `value`.
pub(super) fn wait(
    thread: &Arc<Thread>,
    at: u64,
    value: u32,
    bits: u32,
    until: Option<u64>,
) -> Result<(), NotWoken> {
    let key = key(&thread.process, at).map_err(NotWoken::Refused)?;
    let is_woken = Arc::new(AtomicBool::new(false));
    {
        let mut list = LIST.lock();
        let found: u32 = user::get(at).map_err(NotWoken::Refused)?; // F1
        if found != value {
            return Err(NotWoken::Refused(Errno(EAGAIN)));
        }
        let (thread, is_woken) = (thread.clone(), is_woken.clone());
        list.push(Waiter { at: key, bits, thread, is_woken });
    }
    let found = waiters::wait(until, || is_woken.load(Ordering::Acquire).then_some(()));
    if found.is_err() {
        LIST.lock().retain(|waiter| !Arc::ptr_eq(&waiter.is_woken, &is_woken));
        if is_woken.load(Ordering::Acquire) {
            return Ok(());
        }
    }
    found.map_err(NotWoken::Cut)
}

/// Why a wait ended without a wake-up.
pub(super) enum NotWoken {
    Refused(Errno),
    Cut(Cut),
}

/// Wakes so many that wait for a word with one of these bits; says how many.
pub(super) fn wake(thread: &Thread, at: u64, most: u32, bits: u32) -> u64 {
    let Ok(key) = key(&thread.process, at) else { return 0 };
    let woken = take(&mut LIST.lock(), key, most, bits);
    woken.iter().for_each(go_on);
    woken.len() as u64
}
/// Takes so many off the list that wait there for one of these bits.
fn take(list: &mut Vec<Waiter>, key: MemoryKey, most: u32, bits: u32) -> Vec<Waiter> {
    let mut left = most;
    let is_meant = |waiter: &mut Waiter| {
        let is_meant = waiter.at == key && waiter.bits & bits != 0 && left > 0;
        left -= u32::from(is_meant);
        is_meant
    };
    list.extract_if(.., is_meant).collect()
}
fn go_on(waiter: &Waiter) {
    waiter.is_woken.store(true, Ordering::Release);
    sched::wake(waiter.thread.clone());
}
/// Wakes so many, and has so many others wait for another word; says how many of both.
pub(super) fn requeue(
    thread: &Thread,
    (from, to): (u64, u64),
    (wakes, moves): (u32, u32),
    is_still: Option<u32>,
) -> Result<u64, Errno> {
    let (from_key, to_key) = (key(&thread.process, from)?, key(&thread.process, to)?);
    let (woken, moved) = {
        let mut list = LIST.lock();
        if let Some(value) = is_still
            && user::get::<u32>(from)? != value
        {
            return Err(Errno(EAGAIN));
        }
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
        wake(thread, at, 1, u32::MAX);
    }
}
