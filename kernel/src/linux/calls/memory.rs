//! Calls about memory: arguments go on to `foliant-linux`.

use super::super::content::{Bytes, Content};
use super::super::credentials;
use super::super::handlers;
use super::super::hold::Hold;
use super::super::opened::{Descriptor, Opened};
use super::super::signal::Info;
use super::super::thread::Thread;
use super::super::{File, Memory, clock, promises, texts, user, userfault, world};
use super::Answer;
use crate::memory::manager;
use alloc::sync::Arc;
use alloc::vec::Vec;
use foliant::manager::Damage;
use foliant_linux::capabilities::Capability;
use foliant_linux::{Errno, Limits};
use foliant_units::Bytes as Size;
use linux_raw_sys::errno::{EACCES, EBADF, EINVAL, ENODEV, EOPNOTSUPP};
use linux_raw_sys::general::{
    MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED, MAP_SHARED_VALIDATE, MAP_TYPE, MFD_CLOEXEC, O_RDWR,
    PROT_WRITE, RLIMIT_MEMLOCK, S_IFREG, UFFD_USER_MODE_ONLY,
};

type Six = [u64; 6];

const PAGE: u64 = 4096;
/// Pages that `mincore` tells of at a time.
const TOLD: u64 = 4096;

/// Calls a thread's memory by which it may lock some: as much as its limit says, or all.
fn locking<R>(thread: &Thread, work: impl FnOnce(&mut Memory) -> R) -> R {
    let limit = thread.process.limits.now(RLIMIT_MEMLOCK);
    let locked = if thread.has(Capability::IpcLock) { u64::MAX } else { limit };
    promising(thread, |memory| {
        memory.set_limits(Limits { locked: Size::new(locked), ..memory.limits() });
        work(memory)
    })
}
/// Calls a thread's memory by which it may have some promised.
pub(super) fn promising<R>(thread: &Thread, work: impl FnOnce(&mut Memory) -> R) -> R {
    let memory = thread.process.memory().expect("a program runs (process::P1)");
    promises::promising(&memory, || thread.has(Capability::SysAdmin), work)
}
pub(super) fn brk(thread: &Arc<Thread>, [at, ..]: Six) -> Answer {
    Ok(locking(thread, |memory| memory.brk(at)))
}
pub(super) fn mmap(
    thread: &Arc<Thread>,
    [at, bytes, rights, flags, number, offset]: Six,
) -> Answer {
    let (rights, flags) = (rights as u32, flags as u32);
    let mut file = None;
    if flags & MAP_ANONYMOUS == 0 {
        let opened = thread.process.descriptors.lock().get(number)?.opened.clone();
        let is_shared = match flags & MAP_TYPE {
            MAP_PRIVATE => false,
            MAP_SHARED | MAP_SHARED_VALIDATE => true,
            _ => return Err(Errno(EINVAL)),
        };
        if bytes == 0 {
            return Err(Errno(EINVAL));
        }
        if !opened.may_read() {
            let is_closed = !opened.may_write();
            return Err(Errno(if is_closed { EBADF } else { EACCES }));
        }
        let is_only_read = is_shared && !opened.may_write();
        if is_only_read && rights & PROT_WRITE != 0 {
            return Err(Errno(EACCES));
        }
        if world().files.read().is_folder(opened.node) {
            return Err(Errno(ENODEV));
        }
        let found = match world().in_memory(opened.node)? {
            Some(bytes) => Some(bytes.file.clone()),
            None => of_device(&opened, is_shared, bytes)?,
        };
        file = found.map(|found| if is_only_read { found.only_read() } else { found });
    }
    // A device of zeros gives memory of the program's own.
    let own = if file.is_none() { MAP_ANONYMOUS } else { 0 };
    locking(thread, |memory| memory.mmap(at, bytes, rights, flags | own, file.as_ref(), offset))
}
/// What a device of zeros maps: a file of its own where it is shared. Others cannot be mapped.
fn of_device(opened: &Opened, is_shared: bool, bytes: u64) -> Result<Option<File>, Errno> {
    use super::super::content::Device;
    if !matches!(opened.content()?, Content::Device(Device::Zero)) {
        return Err(Errno(ENODEV));
    }
    let bytes = bytes.checked_next_multiple_of(PAGE).ok_or(Errno::NOMEM)?;
    is_shared.then(|| File::zeros(manager(), (bytes, PAGE), true)).transpose()
}
pub(super) fn munmap(thread: &Arc<Thread>, [at, bytes, ..]: Six) -> Answer {
    thread.process.with_memory_alone(|memory| memory.munmap(at, bytes))
}
pub(super) fn mprotect(thread: &Arc<Thread>, [at, bytes, rights, ..]: Six) -> Answer {
    promising(thread, |memory| memory.mprotect(at, bytes, rights as u32))
}
pub(super) fn mremap(thread: &Arc<Thread>, [at, old, new, flags, to, _]: Six) -> Answer {
    locking(thread, |memory| memory.mremap(at, old, new, flags as u32, to))
}
pub(super) fn madvise(thread: &Arc<Thread>, [at, bytes, advice, ..]: Six) -> Answer {
    let (process, advice) = (&thread.process, advice as u32);
    if let Some(damage) = foliant_linux::broken::damage(advice).filter(|_| texts::recovers()) {
        return retire(thread, at, bytes, damage);
    }
    let dropped = process.with_memory(|memory| memory.dropped_by(at, bytes, advice));
    if let Some(memory) = process.memory().filter(|_| !dropped.is_empty()) {
        memory.tell(dropped);
    }
    process.with_memory_alone(|memory| memory.madvise(at, bytes, advice))
}
/// Retires memory that is said to break.
fn retire(thread: &Arc<Thread>, at: u64, bytes: u64, damage: Damage) -> Answer {
    let may = match damage {
        _ if !thread.has(Capability::SysAdmin) => Err(Errno::PERM),
        Damage::Foreseen if !texts::moves_away() => Err(Errno(EOPNOTSUPP)),
        _ => Ok(()),
    };
    let mut lost = None;
    let answer = thread.process.with_memory_alone(|memory| {
        let (answer, signal) = memory.retire(at, bytes, damage, may);
        lost = signal;
        answer
    });
    if let Some(signal) = lost {
        handlers::force(thread, Info::access(&signal));
    }
    answer
}
pub(super) fn remap_file_pages(
    thread: &Arc<Thread>,
    [at, bytes, rights, page, flags, _]: Six,
) -> Answer {
    thread.process.with_memory_alone(|memory| {
        memory.remap_file_pages(at, bytes, rights as u32, page, flags as u32)
    })
}
pub(super) fn mseal(thread: &Arc<Thread>, [at, bytes, flags, ..]: Six) -> Answer {
    thread.process.with_memory_alone(|memory| memory.mseal(at, bytes, flags))
}
pub(super) fn msync(thread: &Arc<Thread>, [at, bytes, flags, ..]: Six) -> Answer {
    thread.process.with_memory(|memory| memory.msync(at, bytes, flags as u32))
}
pub(super) fn mincore(thread: &Arc<Thread>, [at, bytes, into, ..]: Six) -> Answer {
    // What is told is put where the program wants it when its memory is let go of, piece by piece.
    let mut done = 0;
    loop {
        let piece = bytes.saturating_sub(done).min(TOLD * PAGE);
        let mut told = Vec::new();
        let start = at.wrapping_add(done);
        let answer = thread
            .process
            .with_memory(|memory| memory.mincore(start, piece, |byte| told.push(byte)));
        user::put_bytes(into.wrapping_add(done / PAGE), &told)?;
        done += piece;
        if answer.is_err() || done >= bytes {
            return answer;
        }
    }
}
pub(super) fn mlock(thread: &Arc<Thread>, [at, bytes, ..]: Six) -> Answer {
    locking(thread, |memory| memory.mlock(at, bytes))
}
pub(super) fn mlock2(thread: &Arc<Thread>, [at, bytes, flags, ..]: Six) -> Answer {
    locking(thread, |memory| memory.mlock2(at, bytes, flags as u32))
}
pub(super) fn munlock(thread: &Arc<Thread>, [at, bytes, ..]: Six) -> Answer {
    thread.process.with_memory_alone(|memory| memory.munlock(at, bytes))
}
pub(super) fn mlockall(thread: &Arc<Thread>, [flags, ..]: Six) -> Answer {
    locking(thread, |memory| memory.mlockall(flags as u32))
}
pub(super) fn munlockall(thread: &Arc<Thread>, _: Six) -> Answer {
    thread.process.with_memory_alone(|memory| memory.munlockall())
}

pub(super) fn memfd_create(thread: &Arc<Thread>, [name, flags, ..]: Six) -> Answer {
    let flags = flags as u32;
    let name = user::get_text(name, 250).map_err(|why| match why {
        Errno(linux_raw_sys::errno::ENAMETOOLONG) => Errno(EINVAL),
        why => why,
    })?;
    let file = File::memfd(manager(), &name, flags)?;
    let content = Content::Memory(Bytes::of(file));
    let owner = credentials::owner(&thread.credentials());
    let node = world().files.write().make_unnamed(S_IFREG | 0o777, owner, content, clock::now());
    let opened = Opened::of(Hold::of(node), O_RDWR)?;
    let closes = flags & MFD_CLOEXEC != 0;
    thread.process.descriptors.lock().add(0, Descriptor { opened, closes })
}

pub(super) fn userfaultfd(thread: &Arc<Thread>, [flags, ..]: Six) -> Answer {
    let flags = flags as u32;
    if flags & UFFD_USER_MODE_ONLY == 0 {
        thread.needs(Capability::SysPtrace)?;
    }
    let descriptor = userfault::open(thread, flags)?;
    thread.process.descriptors.lock().add(0, descriptor)
}
