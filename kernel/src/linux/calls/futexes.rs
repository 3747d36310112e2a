//! Calls about words that threads wait for.

use super::super::futex::{self, NotWoken, Scope, Word};
use super::super::signal::CUT;
use super::super::thread::Thread;
use super::super::user;
use super::super::waiters::Cut;
use super::Answer;
use alloc::sync::Arc;
use alloc::vec::Vec;
use foliant_linux::Errno;
use linux_raw_sys::errno::{EINVAL, ENOSYS, ETIMEDOUT};
use linux_raw_sys::general::{
    CLOCK_MONOTONIC, CLOCK_REALTIME, FUTEX_CLOCK_REALTIME, FUTEX_CMD_MASK, FUTEX_CMP_REQUEUE,
    FUTEX_PRIVATE_FLAG, FUTEX_REQUEUE, FUTEX_WAIT, FUTEX_WAIT_BITSET, FUTEX_WAITV_MAX, FUTEX_WAKE,
    FUTEX_WAKE_BITSET, FUTEX2_PRIVATE, FUTEX2_SIZE_MASK, FUTEX2_SIZE_U32, futex_waitv as Waited,
};

type Six = [u64; 6];

/// What a wait for words came to.
fn waited(woken: Result<usize, NotWoken>) -> Answer {
    match woken {
        Ok(which) => Ok(which as u64),
        Err(NotWoken::Refused(why)) => Err(why),
        Err(NotWoken::Cut(Cut::Time)) => Err(Errno(ETIMEDOUT)),
        Err(NotWoken::Cut(Cut::Signal)) => Err(CUT),
    }
}
pub(super) fn futex(thread: &Arc<Thread>, [at, what, value, limit, to, last]: Six) -> Answer {
    let what = what as u32;
    let is_calendar = what & FUTEX_CLOCK_REALTIME != 0;
    let scope = if what & FUTEX_PRIVATE_FLAG != 0 { Scope::Private } else { Scope::Shared };
    let (value, moves) = (value as u32, limit as u32);
    let wait = |bits, until| waited(futex::wait(thread, &[Word { at, scope, value, bits }], until));
    // Linux counts the first one before it compares.
    let wake = |bits| futex::wake(thread, (at, scope), (value as i32).max(1) as u32, bits);
    let requeue = |is_still| match (value as i32) < 0 || (moves as i32) < 0 {
        true => Err(Errno(EINVAL)),
        false => futex::requeue(thread, (at, to, scope), (value, moves), is_still),
    };
    match what & FUTEX_CMD_MASK as u32 {
        FUTEX_WAIT => wait(u32::MAX, super::time::limit(limit)?),
        FUTEX_WAIT_BITSET | FUTEX_WAKE_BITSET if last as u32 == 0 => Err(Errno(EINVAL)),
        FUTEX_WAIT_BITSET => wait(last as u32, super::time::at_time(limit, is_calendar)?),
        FUTEX_WAKE => wake(u32::MAX),
        FUTEX_WAKE_BITSET => wake(last as u32),
        FUTEX_REQUEUE => requeue(None),
        FUTEX_CMP_REQUEUE => requeue(Some(last as u32)),
        _ => Err(Errno(ENOSYS)),
    }
}
/// Waits for one of several words to be woken.
pub(super) fn futex_waitv(
    thread: &Arc<Thread>,
    [at, count, flags, limit, clock, _]: Six,
) -> Answer {
    let (count, clock) = (count as u32, clock as u32);
    if flags as u32 != 0 || at == 0 || !(1..=FUTEX_WAITV_MAX).contains(&count) {
        return Err(Errno(EINVAL));
    }
    let until = match clock {
        _ if limit == 0 => None,
        CLOCK_MONOTONIC | CLOCK_REALTIME => super::time::at_time(limit, clock == CLOCK_REALTIME)?,
        _ => return Err(Errno(EINVAL)),
    };
    let word = |turn: u32| {
        let it: Waited = user::get(at.wrapping_add(u64::from(turn) * size_of::<Waited>() as u64))?;
        let known = FUTEX2_SIZE_MASK | FUTEX2_PRIVATE;
        let is_word = it.flags & FUTEX2_SIZE_MASK == FUTEX2_SIZE_U32;
        match u32::try_from(it.val) {
            Ok(value) if is_word && it.flags & !known == 0 && it.__reserved == 0 => {
                let is_private = it.flags & FUTEX2_PRIVATE != 0;
                let scope = if is_private { Scope::Private } else { Scope::Shared };
                Ok(Word { at: it.uaddr, scope, value, bits: u32::MAX })
            }
            _ => Err(Errno(EINVAL)),
        }
    };
    let words = (0..count).map(word).collect::<Result<Vec<Word>, Errno>>()?;
    waited(futex::wait(thread, &words, until))
}
