//! Calls about segments of System V.

use super::super::segments::{self, Counts, Facts};
use super::super::thread::Thread;
use super::super::user;
use super::Answer;
use super::memory::promising;
use super::numbers::{IPC_INFO, SHM_INFO, SHM_STAT, SHM_STAT_ANY};
use alloc::sync::Arc;
use alloc::vec::Vec;
use foliant_linux::capabilities::Capability;
use foliant_linux::sysv::{IPC_SET, IPC_STAT, SHM_EXEC, SHM_HUGETLB, SHM_LOCK, SHM_RDONLY};
use foliant_linux::{Errno, SegmentStat};
use linux_raw_sys::errno::EINVAL;
use linux_raw_sys::general::{R_OK, RLIMIT_MEMLOCK, W_OK, X_OK};

type Six = [u64; 6];

const PAGE: u64 = 4096;
/// The bits of a number that are its index.
const INDEX: i32 = (1 << 15) - 1;
/// Where owner, group and mode are that `IPC_SET` takes.
const OWNERS: u64 = 4;
const MODE: u64 = 20;

pub(super) fn shmget(thread: &Arc<Thread>, [key, bytes, flags, ..]: Six) -> Answer {
    let (key, flags, own) = (key as i32, flags as u32, thread.process.id);
    let by = thread.credentials();
    let limit = thread.process.limits.now(RLIMIT_MEMLOCK);
    promising(thread, |memory| {
        segments::with(|table| {
            let counts = match flags & SHM_HUGETLB != 0 && table.all.makes(key, flags) {
                true => table.may_have_huge(&by, bytes, limit)?,
                false => Counts::No,
            };
            let id = memory.shmget(&mut table.all, key, bytes, flags)?;
            table.note_got((id as i32, flags), own, &by, counts)?;
            Ok(id)
        })
    })
}
pub(super) fn shmat(thread: &Arc<Thread>, [id, at, flags, ..]: Six) -> Answer {
    let (id, own, flags) = (id as i32, thread.process.id, flags as u32);
    let by = thread.credentials();
    let writes = if flags & SHM_RDONLY == 0 { W_OK } else { 0 };
    let runs = if flags & SHM_EXEC != 0 { X_OK } else { 0 };
    thread.process.with_memory_alone(|memory| {
        segments::with(|table| {
            memory.may_attach(id, at, flags)?;
            table.may(id, &by, R_OK | writes | runs)?;
            let at = memory.shmat(&mut table.all, id, at, flags)?;
            table.note_attached(id, own);
            Ok(at)
        })
    })
}
pub(super) fn shmdt(thread: &Arc<Thread>, [at, ..]: Six) -> Answer {
    let own = thread.process.id;
    thread.process.with_memory_alone(|memory| {
        let id = memory.segment_at(at);
        let answer = memory.shmdt(at)?;
        if let Some(id) = id {
            segments::with(|table| table.note_detached(id, own));
        }
        Ok(answer)
    })
}

/// What Linux tells of a segment: its `shmid64_ds`.
fn words(id: i32, stat: &SegmentStat, facts: &Facts) -> [u64; 14] {
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let sequence = (id >> 15) as u32;
    [
        pair(stat.key as u32, facts.owner[0]),
        pair(facts.owner[1], facts.made_by[0]),
        pair(facts.made_by[1], stat.mode),
        pair(sequence, 0),
        0,
        0,
        stat.bytes,
        facts.attached as u64,
        facts.detached as u64,
        facts.changed as u64,
        pair(facts.maker, facts.last),
        stat.attached,
        0,
        0,
    ]
}

pub(super) fn shmctl(thread: &Arc<Thread>, [id, command, at, ..]: Six) -> Answer {
    let (id, command) = (id as i32, command as u32);
    let by = thread.credentials();
    let ids = || segments::with(|table| table.all.ids().collect::<Vec<i32>>());
    let last = |ids: &[i32]| ids.iter().map(|id| id & INDEX).max().unwrap_or(0) as u64;
    match command {
        IPC_STAT => {
            let (stat, facts) = segments::with(|table| {
                table.may(id, &by, R_OK)?;
                table.stat(id)
            })?;
            user::put(at, &words(id, &stat, &facts)).map(|()| 0)
        }
        SHM_STAT | SHM_STAT_ANY => {
            // Of a number that is none the index counts all the same.
            let is_there = |other: &i32| id >= 0 && other & INDEX == id & INDEX;
            let id = ids().into_iter().find(is_there).ok_or(Errno(EINVAL))?;
            let wanted = if command == SHM_STAT { R_OK } else { 0 };
            let (stat, facts) = segments::with(|table| {
                table.may(id, &by, wanted)?;
                table.stat(id)
            })?;
            user::put(at, &words(id, &stat, &facts)).map(|()| id as u64)
        }
        IPC_INFO => {
            let limits = segments::limits(|limits| *limits);
            let count = u64::from(limits.count);
            let words = [limits.bytes.get(), 1, count, count, limits.pages.get(), 0, 0, 0, 0];
            user::put(at, &words)?;
            Ok(last(&ids()))
        }
        SHM_INFO => {
            let ids = ids();
            let (mut pages, mut resident) = (0, 0);
            segments::with(|table| {
                for id in &ids {
                    pages += table.stat(*id).map_or(0, |(stat, _)| stat.bytes.div_ceil(PAGE));
                    resident += table.all.resident(*id).map_or(0, |bytes| bytes.get() / PAGE);
                }
            });
            user::put(at, &[ids.len() as u64, pages, resident, 0, 0, 0])?;
            Ok(last(&ids))
        }
        IPC_SET => {
            let owners: [u32; 2] =
                [user::get(at.wrapping_add(OWNERS))?, { user::get(at.wrapping_add(OWNERS + 4))? }];
            let mode: u32 = user::get(at.wrapping_add(MODE))?;
            segments::with(|table| {
                table.may_change(id, &by)?;
                let answer = table.all.set_mode(id, mode)?;
                table.note_changed(id, owners);
                Ok(answer)
            })
        }
        command => segments::with(|table| {
            table.may_change(id, &by)?;
            let limit = || thread.process.limits.now(RLIMIT_MEMLOCK);
            if command == SHM_LOCK && !by.has(Capability::IpcLock) && limit() == 0 {
                return Err(Errno::PERM);
            }
            table.all.shmctl(id, command)
        }),
    }
}
