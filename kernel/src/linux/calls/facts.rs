//! Calls about what is known of a file: its facts, and the file system that it is in.

use super::super::content::Content;
use super::super::credentials::guarded;
use super::super::thread::Thread;
use super::super::{clock, mounts, user, world};
use super::Answer;
use super::paths::{HERE, changing, walk};
use crate::memory::{managed, manager};
use alloc::sync::Arc;
use foliant_files::{Facts, NodeId, Time};
use foliant_linux::Errno;
use linux_raw_sys::errno::{EACCES, EINVAL, ESTALE};
use linux_raw_sys::general::{
    __kernel_timespec, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, UTIME_NOW, UTIME_OMIT, W_OK, stat,
    statfs, statx, statx_timestamp,
};

type Six = [u64; 6];

/// The bytes that a block of `st_blocks` counts.
const SECTOR: u64 = 512;
/// Bytes of a page of a file.
const BLOCK: u64 = 4096;

/// What is known of a file.
struct Known {
    facts: Facts,
    inode: u64,
    bytes: u64,
    device: u64,
    /// Bytes of one of its pages.
    page: u64,
}

impl Known {
    fn of(node: NodeId) -> Result<Known, Errno> {
        let files = world().files.read();
        let facts = files.facts(node).ok_or(Errno(ESTALE))?;
        let link = files.link_text(node).map_or(0, |text| text.len() as u64);
        let content = files.leaf(node);
        let bytes = content.map_or(link, Content::bytes);
        let device = content.map_or(0, Content::device);
        let page = content.map_or(BLOCK, Content::page);
        Ok(Known { facts, inode: node.inode(), bytes, device, page })
    }
    fn blocks(&self) -> u64 {
        self.bytes.div_ceil(BLOCK) * (BLOCK / SECTOR)
    }
    fn put(&self, at: u64) -> Answer {
        let facts = &self.facts;
        let time = |time: Time| (time.seconds as u64, u64::from(time.nanos));
        let mut out: stat = user::zeros();
        (out.st_dev, out.st_ino, out.st_nlink) = (1, self.inode, facts.links.into());
        (out.st_mode, out.st_uid, out.st_gid) = (facts.mode, facts.uid, facts.gid);
        (out.st_rdev, out.st_size) = (self.device, self.bytes as i64);
        (out.st_blksize, out.st_blocks) = (self.page as i64, self.blocks() as i64);
        (out.st_atime, out.st_atime_nsec) = time(facts.accessed);
        (out.st_mtime, out.st_mtime_nsec) = time(facts.modified);
        (out.st_ctime, out.st_ctime_nsec) = time(facts.changed);
        user::put(at, &out).map(|()| 0)
    }
}

pub(super) fn stat(thread: &Arc<Thread>, [path, at, ..]: Six) -> Answer {
    Known::of(walk(thread, HERE, path, 0)?)?.put(at)
}
pub(super) fn lstat(thread: &Arc<Thread>, [path, at, ..]: Six) -> Answer {
    Known::of(walk(thread, HERE, path, AT_SYMLINK_NOFOLLOW)?)?.put(at)
}
pub(super) fn fstat(thread: &Arc<Thread>, [number, at, ..]: Six) -> Answer {
    Known::of(super::bytes::opened(thread, number)?.node)?.put(at)
}
pub(super) fn newfstatat(thread: &Arc<Thread>, [number, path, at, flags, ..]: Six) -> Answer {
    Known::of(walk(thread, number, path, flags as u32)?)?.put(at)
}
pub(super) fn statx(thread: &Arc<Thread>, [number, path, flags, _, at, _]: Six) -> Answer {
    let known = Known::of(walk(thread, number, path, flags as u32)?)?;
    let facts = &known.facts;
    let time =
        |time: Time| statx_timestamp { tv_sec: time.seconds, tv_nsec: time.nanos, __reserved: 0 };
    let mut out: statx = user::zeros();
    (out.stx_mask, out.stx_blksize) = (STATX_BASIC_STATS, known.page as u32);
    (out.stx_nlink, out.stx_uid, out.stx_gid) = (facts.links, facts.uid, facts.gid);
    (out.stx_mode, out.stx_ino) = (facts.mode as u16, known.inode);
    (out.stx_size, out.stx_blocks) = (known.bytes, known.blocks());
    out.stx_atime = time(facts.accessed);
    out.stx_mtime = time(facts.modified);
    out.stx_ctime = time(facts.changed);
    out.stx_rdev_major = (known.device >> 8) as u32;
    out.stx_rdev_minor = (known.device & 0xff) as u32;
    out.stx_dev_minor = 1;
    user::put(at, &out).map(|()| 0)
}
fn put_statfs(node: NodeId, at: u64) -> Answer {
    let told = mounts::told(&world().files.read(), node);
    let (all, free) = match told.subpool.and_then(|id| manager().pools().subpool(id)) {
        Some(subpool) => (subpool.limits.most, subpool.room()),
        None if told.page > BLOCK => (0, 0), // as Linux says where no size was
        None => (managed().get(), manager().memory().free.get()),
    };
    let mut out: statfs = user::zeros();
    out.f_type = told.magic.into();
    (out.f_bsize, out.f_frsize) = (told.page as i64, told.page as i64);
    (out.f_blocks, out.f_bfree, out.f_bavail) = (all as i64, free as i64, free as i64);
    out.f_namelen = foliant_files::NAME_MAX as i64;
    user::put(at, &out).map(|()| 0)
}
pub(super) fn statfs(thread: &Arc<Thread>, [path, at, ..]: Six) -> Answer {
    put_statfs(walk(thread, HERE, path, 0)?, at)
}
pub(super) fn fstatfs(thread: &Arc<Thread>, [number, at, ..]: Six) -> Answer {
    put_statfs(super::bytes::opened(thread, number)?.node, at)
}

/// Changes what is known of a file, or nothing of it where that is refused.
fn set_facts(node: NodeId, change: impl FnOnce(&mut Facts) -> Result<(), Errno>) -> Answer {
    let mut answer = Ok(());
    changing(|files, now| {
        files.change_facts(node, |facts| {
            answer = change(facts);
            if answer.is_ok() {
                facts.changed = now;
            }
        })
    })?;
    answer.map(|()| 0)
}
fn set_mode(thread: &Thread, node: NodeId, mode: u64) -> Answer {
    let by = thread.credentials();
    set_facts(node, |facts| {
        facts.mode = by.chmod(&guarded(facts), mode as u32)?;
        Ok(())
    })
}
pub(super) fn chmod(thread: &Arc<Thread>, [path, mode, ..]: Six) -> Answer {
    set_mode(thread, walk(thread, HERE, path, 0)?, mode)
}
pub(super) fn fchmod(thread: &Arc<Thread>, [number, mode, ..]: Six) -> Answer {
    set_mode(thread, super::bytes::opened(thread, number)?.node, mode)
}
pub(super) fn fchmodat(thread: &Arc<Thread>, [number, path, mode, ..]: Six) -> Answer {
    set_mode(thread, walk(thread, number, path, 0)?, mode)
}
fn set_owner(thread: &Thread, node: NodeId, uid: u64, gid: u64) -> Answer {
    let by = thread.credentials();
    set_facts(node, |facts| {
        let new = by.chown(&guarded(facts), [uid as u32, gid as u32])?;
        (facts.uid, facts.gid, facts.mode) = (new.uid, new.gid, new.mode);
        Ok(())
    })
}
pub(super) fn chown(thread: &Arc<Thread>, [path, uid, gid, ..]: Six) -> Answer {
    fchownat(thread, [HERE, path, uid, gid, 0, 0])
}
pub(super) fn lchown(thread: &Arc<Thread>, [path, uid, gid, ..]: Six) -> Answer {
    fchownat(thread, [HERE, path, uid, gid, AT_SYMLINK_NOFOLLOW.into(), 0])
}
pub(super) fn fchown(thread: &Arc<Thread>, [number, uid, gid, ..]: Six) -> Answer {
    set_owner(thread, super::bytes::opened(thread, number)?.node, uid, gid)
}
pub(super) fn fchownat(thread: &Arc<Thread>, [number, path, uid, gid, flags, _]: Six) -> Answer {
    set_owner(thread, walk(thread, number, path, flags as u32)?, uid, gid)
}
pub(super) fn utimensat(thread: &Arc<Thread>, [number, path, times, flags, ..]: Six) -> Answer {
    let now = clock::now();
    let given = |at: u64| {
        let it: __kernel_timespec = user::get(at)?;
        match it.tv_nsec {
            nanos if nanos == i64::from(UTIME_NOW) => Ok(Some(now)),
            nanos if nanos == i64::from(UTIME_OMIT) => Ok(None),
            nanos if !(0..1_000_000_000).contains(&nanos) => Err(Errno(EINVAL)),
            nanos => Ok(Some(Time { seconds: it.tv_sec, nanos: nanos as u32 })),
        }
    };
    let [accessed, modified] = match times {
        0 => [Some(now); 2],
        at => [given(at)?, given(at.wrapping_add(size_of::<__kernel_timespec>() as u64))?],
    };
    if [accessed, modified] == [None; 2] {
        return Ok(0);
    }
    let node = match path {
        0 => super::bytes::opened(thread, number)?.node,
        path => walk(thread, number, path, flags as u32)?,
    };
    let by = thread.credentials();
    set_facts(node, |facts| {
        // Who may write a file may say that it was touched now, and its owner everything.
        let is_touch = [accessed, modified] == [Some(now); 2];
        match () {
            () if by.owns(facts.uid) => {}
            () if !is_touch => return Err(Errno::PERM),
            () if !by.may(&guarded(facts), W_OK) => return Err(Errno(EACCES)),
            () => {}
        }
        facts.accessed = accessed.unwrap_or(facts.accessed);
        facts.modified = modified.unwrap_or(facts.modified);
        Ok(())
    })
}
