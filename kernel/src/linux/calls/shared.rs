//! Calls about segments of System V.

use super::super::segments::{self, Facts};
use super::super::thread::Thread;
use super::super::user;
use super::Answer;
use super::numbers::{IPC_INFO, SHM_INFO, SHM_STAT, SHM_STAT_ANY};
use alloc::sync::Arc;
use alloc::vec::Vec;
use foliant_linux::sysv::{IPC_SET, IPC_STAT};
use foliant_linux::{Errno, SegmentStat};
use linux_raw_sys::errno::EINVAL;

type Six = [u64; 6];

/// The bits of a number that are its index.
const INDEX: i32 = (1 << 15) - 1;
/// Where owner, group and mode are that `IPC_SET` takes.
const OWNERS: u64 = 4;
const MODE: u64 = 20;

pub(super) fn shmget(thread: &Arc<Thread>, [key, bytes, flags, ..]: Six) -> Answer {
    let (key, flags, own) = (key as i32, flags as u32, thread.process.id);
    thread.process.with_memory_alone(|memory| {
        segments::with(|table| {
            let id = memory.shmget(&mut table.all, key, bytes, flags)?;
            table.note_got(id as i32, own);
            Ok(id)
        })
    })
}
pub(super) fn shmat(thread: &Arc<Thread>, [id, at, flags, ..]: Six) -> Answer {
    let (id, own) = (id as i32, thread.process.id);
    thread.process.with_memory_alone(|memory| {
        segments::with(|table| {
            let at = memory.shmat(&mut table.all, id, at, flags as u32)?;
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
        pair(stat.key as u32, facts.uid),
        pair(facts.gid, 0),
        pair(0, stat.mode),
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

pub(super) fn shmctl(_: &Arc<Thread>, [id, command, at, ..]: Six) -> Answer {
    let (id, command) = (id as i32, command as u32);
    let ids = || segments::with(|table| table.all.ids().collect::<Vec<i32>>());
    let last = |ids: &[i32]| ids.iter().map(|id| id & INDEX).max().unwrap_or(0) as u64;
    match command {
        IPC_STAT => {
            let (stat, facts) = segments::with(|table| table.stat(id))?;
            user::put(at, &words(id, &stat, &facts)).map(|()| 0)
        }
        SHM_STAT | SHM_STAT_ANY => {
            let found = ids().into_iter().find(|other| other & INDEX == id);
            let id = found.ok_or(Errno(EINVAL))?;
            let (stat, facts) = segments::with(|table| table.stat(id))?;
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
            let bytes = segments::with(|table| {
                let all = ids.iter().filter_map(|id| table.stat(*id).ok());
                all.map(|(stat, _)| stat.bytes.div_ceil(4096)).sum::<u64>()
            });
            user::put(at, &[ids.len() as u64, bytes, bytes, 0, 0, 0])?;
            Ok(last(&ids))
        }
        IPC_SET => {
            let owners: [u32; 2] =
                [user::get(at.wrapping_add(OWNERS))?, { user::get(at.wrapping_add(OWNERS + 4))? }];
            let mode: u32 = user::get(at.wrapping_add(MODE))?;
            segments::with(|table| {
                let answer = table.all.set_mode(id, mode)?;
                table.note_changed(id, owners[0], owners[1]);
                Ok(answer)
            })
        }
        command => segments::with(|table| table.all.shmctl(id, command)),
    }
}
