//! Calls about locks of files.

use super::super::channel::Waits;
use super::super::locks::{self, Kind, Owner, Range};
use super::super::opened::Opened;
use super::super::thread::Thread;
use super::super::user;
use super::Answer;
use super::numbers::{F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use foliant_linux::Errno;
use linux_raw_sys::errno::{EBADF, EINVAL, EOVERFLOW};
use linux_raw_sys::general::{
    F_GETLK, F_RDLCK, F_SETLKW, F_UNLCK, F_WRLCK, LOCK_EX, LOCK_NB, LOCK_SH, LOCK_UN, SEEK_CUR,
    SEEK_END, SEEK_SET,
};

type Six = [u64; 6];

pub(super) fn flock(thread: &Arc<Thread>, [number, how, ..]: Six) -> Answer {
    let opened = thread.process.descriptors.lock().get(number)?.opened.clone();
    let how = how as u32;
    let (inode, owner) = (opened.node.inode(), Owner::Opened(opened.number));
    let kind = match how & !LOCK_NB {
        LOCK_UN => {
            locks::unlock_whole(inode, owner);
            return Ok(0);
        }
        LOCK_SH => Kind::Shared,
        LOCK_EX => Kind::Alone,
        _ => return Err(Errno(EINVAL)),
    };
    opened.has_locks.store(true, Ordering::Release);
    let waits = if how & LOCK_NB == 0 { Waits::Yes } else { Waits::No };
    locks::lock_whole(inode, owner, kind, waits).map(|()| 0)
}

/// Linux's `flock`: kind and from where, with padding; first byte, count; process.
type Words = [u64; 4];

/// The bytes that a program means, up to `u64::MAX` where there is no end.
fn bytes(opened: &Opened, words: &Words) -> Result<(u64, u64), Errno> {
    let whence = (words[0] >> 16) as u16;
    let base = match u32::from(whence) {
        SEEK_SET => 0,
        SEEK_CUR => opened.with_position(|position| *position),
        SEEK_END => opened.content()?.bytes(),
        _ => return Err(Errno(EINVAL)),
    };
    let (from, count) = (words[1] as i64, words[2] as i64);
    let start = (base as i64).checked_add(from).ok_or(Errno(EOVERFLOW))?;
    let end = start.checked_add(count).ok_or(Errno(EOVERFLOW))?;
    let (start, end) = if count < 0 { (end, start) } else { (start, end) };
    let start = u64::try_from(start).map_err(|_| Errno(EINVAL))?;
    Ok((start, if count == 0 { u64::MAX } else { end as u64 }))
}

/// `fcntl` about ranges of bytes.
pub(super) fn ranges(thread: &Arc<Thread>, opened: &Arc<Opened>, command: u32, at: u64) -> Answer {
    let words: Words = user::get(at)?;
    let (start, end) = bytes(opened, &words)?;
    let is_of_opened = matches!(command, F_OFD_GETLK | F_OFD_SETLK | F_OFD_SETLKW);
    let owner = match is_of_opened {
        true if words[3] as u32 != 0 => return Err(Errno(EINVAL)),
        true => Owner::Opened(opened.number),
        false => Owner::Process(thread.process.id),
    };
    let inode = opened.node.inode();
    let range = |kind| Range { owner, kind, start, end };
    let kind = match u32::from(words[0] as u16) {
        F_RDLCK => Some(Kind::Shared),
        F_WRLCK => Some(Kind::Alone),
        F_UNLCK => None,
        _ => return Err(Errno(EINVAL)),
    };
    if matches!(command, F_GETLK | F_OFD_GETLK) {
        let kind = kind.ok_or(Errno(EINVAL))?;
        let told = match locks::barred(inode, &range(kind)) {
            None => [words[0] & !0xffff | u64::from(F_UNLCK), words[1], words[2], words[3]],
            Some(other) => {
                let kind = if other.kind == Kind::Alone { F_WRLCK } else { F_RDLCK };
                let count = if other.end == u64::MAX { 0 } else { other.end - other.start };
                let id = match other.owner {
                    Owner::Process(id) => id,
                    Owner::Opened(_) => u32::MAX,
                };
                [kind.into(), other.start, count, id.into()]
            }
        };
        return user::put(at, &told).map(|()| 0);
    }
    let Some(kind) = kind else {
        locks::unlock(inode, &range(Kind::Shared));
        return Ok(0);
    };
    let may = if kind == Kind::Alone { opened.may_write() } else { opened.may_read() };
    if !may {
        return Err(Errno(EBADF));
    }
    let has = if is_of_opened { &opened.has_locks } else { &thread.process.has_locks };
    has.store(true, Ordering::Release);
    let waits = if matches!(command, F_SETLKW | F_OFD_SETLKW) { Waits::Yes } else { Waits::No };
    locks::lock(inode, range(kind), waits).map(|()| 0)
}
