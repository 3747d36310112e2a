//! Calls about opened files: their bytes and their descriptors.

use super::super::channel::Waits;
use super::super::content::{Content, Device};
use super::super::events::Events;
use super::super::hold::Hold;
use super::super::opened::{DESCRIPTORS_MAX, Descriptor, From, Opened};
use super::super::pipe::{self, Pipe};
use super::super::process::Member;
use super::super::signal::{CUT, Info};
use super::super::thread::Thread;
use super::super::transfer::Transfer;
use super::super::user::Buffer;
use super::super::{clock, credentials, names, terminal, user, world};
use super::Answer;
use super::numbers::{
    CLOSE_RANGE_CLOEXEC, F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW, USERFAULTFD_IOC_NEW,
};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use foliant_files::{Last, NodeId, Purpose};
use foliant_linux::Errno;
use linux_raw_sys::errno::{EAGAIN, EBADF, EFBIG, EINVAL, EISDIR, ENODEV, ENOTTY, EPIPE, ESPIPE};
use linux_raw_sys::general::{F_ADD_SEALS, F_GET_SEALS};
use linux_raw_sys::general::{
    F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_GETFL, F_GETLK, F_GETOWN, F_SETFD, F_SETFL, F_SETLK,
    F_SETLKW, F_SETOWN, FD_CLOEXEC, O_APPEND, O_CLOEXEC, O_CREAT, O_EXCL, O_NOCTTY, O_NONBLOCK,
    O_PATH, O_RDONLY, O_TRUNC, O_WRONLY, S_IFIFO, SIGPIPE, SIGXFSZ, W_OK, iovec,
};
use linux_raw_sys::ioctl::{FIOCLEX, FIONBIO, FIONCLEX, TIOCGPTPEER};

type Six = [u64; 6];

/// Buffers of a call, at most.
const BUFFERS_MAX: u64 = 1024;

pub(super) fn opened(thread: &Arc<Thread>, number: u64) -> Result<Arc<Opened>, Errno> {
    Ok(thread.process.descriptors.lock().get(number)?.opened.clone())
}
/// An offset of a `pread` or `pwrite`.
fn offset(offset: u64) -> Result<From, Errno> {
    i64::try_from(offset).map(|_| From::Offset(offset)).map_err(|_| Errno(EINVAL))
}

pub(super) fn read(thread: &Arc<Thread>, [number, at, bytes, ..]: Six) -> Answer {
    opened(thread, number)?.read(From::Position, &mut one(at, bytes))
}
pub(super) fn write(thread: &Arc<Thread>, [number, at, bytes, ..]: Six) -> Answer {
    let end = thread.process.limits.file();
    told(thread, opened(thread, number)?.write_up_to(end, From::Position, &mut one(at, bytes)))
}
/// A transfer of one buffer.
pub(super) fn one(at: u64, bytes: u64) -> Transfer<'static> {
    Transfer::of_one(Buffer { at, bytes })
}
/// A write that nobody will read is a signal, too, and so is one beyond the limit of files.
pub(super) fn told(thread: &Arc<Thread>, answer: Answer) -> Answer {
    let signal = match answer {
        Err(Errno(EPIPE)) => SIGPIPE,
        Err(Errno(EFBIG)) => SIGXFSZ,
        answer => return answer,
    };
    let own: Arc<dyn Member> = thread.clone();
    thread.process.send_to(&own, Info::sent(signal, 0, thread.process.id, thread.process.user()));
    answer
}
pub(super) fn pread64(thread: &Arc<Thread>, [number, at, bytes, from, ..]: Six) -> Answer {
    opened(thread, number)?.read(offset(from)?, &mut one(at, bytes))
}
pub(super) fn pwrite64(thread: &Arc<Thread>, [number, at, bytes, from, ..]: Six) -> Answer {
    let end = thread.process.limits.file();
    told(thread, opened(thread, number)?.write_up_to(end, offset(from)?, &mut one(at, bytes)))
}

/// The buffers that a call names.
pub(super) fn buffers(at: u64, count: u64) -> Result<Vec<Buffer>, Errno> {
    if count > BUFFERS_MAX {
        return Err(Errno(EINVAL));
    }
    let size = size_of::<iovec>() as u64;
    let buffers = (0..count).map(|nth| {
        let it: iovec = user::get(at.wrapping_add(nth * size))?;
        Ok(Buffer { at: it.iov_base as u64, bytes: it.iov_len })
    });
    let buffers: Vec<Buffer> = buffers.collect::<Result<_, Errno>>()?;
    if buffers.iter().any(|buffer| buffer.bytes > i64::MAX as u64) {
        return Err(Errno(EINVAL));
    }
    Ok(buffers)
}
pub(super) fn readv(thread: &Arc<Thread>, [number, at, count, ..]: Six) -> Answer {
    opened(thread, number)?.read(From::Position, &mut Transfer::of(buffers(at, count)?))
}
pub(super) fn writev(thread: &Arc<Thread>, [number, at, count, ..]: Six) -> Answer {
    let opened = opened(thread, number)?;
    let (end, buffers) = (thread.process.limits.file(), buffers(at, count)?);
    told(thread, opened.write_up_to(end, From::Position, &mut Transfer::of(buffers)))
}
/// Pages of the program become bytes of a pipe, or come from there: copies, of which the program
/// may not count on being any other.
pub(super) fn vmsplice(thread: &Arc<Thread>, [number, at, count, flags, ..]: Six) -> Answer {
    const KNOWN: u64 = 15; // move, do not wait, more comes, a gift
    const NO_WAIT: u64 = 2;
    let opened = opened(thread, number)?;
    if flags & !KNOWN != 0 {
        return Err(Errno(EINVAL));
    }
    let channel = opened.channel().ok_or(Errno(EBADF))?;
    let any: &dyn Any = &**channel;
    match () {
        () if !any.is::<pipe::End>() => return Err(Errno(EBADF)),
        () if !opened.may_write() => return readv(thread, [number, at, count, 0, 0, 0]),
        () => {}
    }
    // As much as there is room for, once there is some.
    let may_wait = flags & NO_WAIT == 0 && opened.waits() == Waits::Yes;
    loop {
        match channel.write(&mut Transfer::of(buffers(at, count)?), Waits::No) {
            Err(Errno(EAGAIN)) if may_wait => {
                let has_room = || channel.events().has(Events::OUT | Events::ERROR).then_some(());
                channel.waiters().wait(None, has_room).map_err(|_| CUT)?;
            }
            done => return told(thread, done.map(|count| count as u64)),
        }
    }
}
pub(super) fn preadv(thread: &Arc<Thread>, [number, at, count, from, ..]: Six) -> Answer {
    opened(thread, number)?.read(offset(from)?, &mut Transfer::of(buffers(at, count)?))
}
pub(super) fn pwritev(thread: &Arc<Thread>, [number, at, count, from, ..]: Six) -> Answer {
    let opened = opened(thread, number)?;
    let (end, buffers) = (thread.process.limits.file(), buffers(at, count)?);
    told(thread, opened.write_up_to(end, offset(from)?, &mut Transfer::of(buffers)))
}

pub(super) fn lseek(thread: &Arc<Thread>, [number, by, whence, ..]: Six) -> Answer {
    opened(thread, number)?.seek(by as i64, whence as u32)
}
/// Everything is in memory: nothing is to be written elsewhere.
pub(super) fn fsync(thread: &Arc<Thread>, [number, ..]: Six) -> Answer {
    match opened(thread, number)?.content() {
        Ok(Content::Channel(_)) => Err(Errno(EINVAL)),
        Ok(_) | Err(Errno(EISDIR)) => Ok(0),
        Err(why) => Err(why),
    }
}
pub(super) fn sync(_: &Arc<Thread>, _: Six) -> Answer {
    Ok(0)
}
pub(super) fn fadvise64(thread: &Arc<Thread>, [number, _, _, advice, ..]: Six) -> Answer {
    match opened(thread, number)?.content() {
        Ok(Content::Channel(_)) => Err(Errno(ESPIPE)),
        _ if advice > 5 => Err(Errno(EINVAL)),
        _ => Ok(0),
    }
}
/// All that a file has is in memory.
pub(super) fn readahead(thread: &Arc<Thread>, [number, ..]: Six) -> Answer {
    let opened = opened(thread, number)?;
    match opened.content() {
        _ if !opened.may_read() => Err(Errno(EBADF)),
        Ok(Content::Memory(_) | Content::Packed(_)) => Ok(0),
        _ => Err(Errno(EINVAL)),
    }
}
/// How much of a file is in memory: nothing of it is dirty, under way to a disk, or was taken out.
pub(super) fn cachestat(thread: &Arc<Thread>, [number, range, into, flags, ..]: Six) -> Answer {
    let opened = opened(thread, number)?;
    if opened.flags() & O_PATH != 0 {
        return Err(Errno(EBADF));
    }
    let [offset, bytes]: [u64; 2] = user::get(range)?;
    let has_pages = matches!(opened.content(), Ok(Content::Memory(_) | Content::Packed(_)));
    let file = if has_pages { world().in_memory(opened.node)? } else { None };
    let there = file.map_or(Ok(0), |file| file.file.cachestat(offset, bytes))?;
    if flags as u32 != 0 {
        return Err(Errno(EINVAL));
    }
    user::put(into, &[there, 0, 0, 0, 0]).map(|()| 0)
}

/// Gives a file another length.
fn set_length(thread: &Arc<Thread>, node: NodeId, bytes: u64) -> Answer {
    if bytes <= i64::MAX as u64 && bytes > thread.process.limits.file() {
        return told(thread, Err(Errno(EFBIG)));
    }
    let bytes = i64::try_from(bytes).map_err(|_| Errno(EINVAL))?;
    if world().files.read().is_folder(node) {
        return Err(Errno(EISDIR));
    }
    let file = world().in_memory(node)?.ok_or(Errno(EINVAL))?;
    {
        let _changes = file.changes.lock();
        file.file.ftruncate(bytes)?;
    }
    names::note_written(node);
    Ok(0)
}
pub(super) fn ftruncate(thread: &Arc<Thread>, [number, bytes, ..]: Six) -> Answer {
    let opened = opened(thread, number)?;
    if !opened.may_write() {
        return Err(Errno(EINVAL));
    }
    set_length(thread, opened.node, bytes)
}
pub(super) fn truncate(thread: &Arc<Thread>, [path, bytes, ..]: Six) -> Answer {
    let path = user::get_path(path)?;
    let by = thread.credentials();
    let node = thread.process.walk(&by, thread.process.folder(), &path, Last::Follow)?;
    if (bytes as i64) < 0 {
        return Err(Errno(EINVAL));
    }
    let is_folder = world().files.read().is_folder(node);
    if !is_folder {
        credentials::allowed(&by, node, W_OK)?;
    }
    let _hold = Hold::to(Purpose::Write, node)?;
    set_length(thread, node, bytes)
}
pub(super) fn fallocate(thread: &Arc<Thread>, [number, mode, from, bytes, ..]: Six) -> Answer {
    let opened = opened(thread, number)?;
    if !opened.may_write() {
        return Err(Errno(EBADF));
    }
    if opened.channel().is_some() {
        return Err(Errno(ESPIPE));
    }
    let file = world().in_memory(opened.node)?.ok_or(Errno(ENODEV))?;
    let _changes = file.changes.lock();
    file.file.fallocate(mode as u32, from as i64, bytes as i64)
}

pub(super) fn close(thread: &Arc<Thread>, [number, ..]: Six) -> Answer {
    let closed = thread.process.descriptors.lock().take(number)?;
    thread.process.closed(closed);
    Ok(0)
}
pub(super) fn close_range(thread: &Arc<Thread>, [first, last, flags, ..]: Six) -> Answer {
    let (first, last) = (u64::from(first as u32), u64::from(last as u32));
    if first > last || flags & !u64::from(CLOSE_RANGE_CLOEXEC) != 0 {
        return Err(Errno(EINVAL));
    }
    for number in first..=last.min(DESCRIPTORS_MAX as u64) {
        let mut all = thread.process.descriptors.lock();
        if flags != 0 {
            if let Ok(it) = all.get_mut(number) {
                it.closes = true;
            }
            continue;
        }
        let closed = all.take(number);
        drop(all);
        closed.into_iter().for_each(|closed| thread.process.closed(closed));
    }
    Ok(0)
}
pub(super) fn dup(thread: &Arc<Thread>, [number, ..]: Six) -> Answer {
    let mut all = thread.process.descriptors.lock();
    let opened = all.get(number)?.opened.clone();
    all.add(0, Descriptor { opened, closes: false })
}
pub(super) fn dup2(thread: &Arc<Thread>, [number, to, ..]: Six) -> Answer {
    if number as u32 == to as u32 {
        return opened(thread, number).map(|_| u64::from(to as u32));
    }
    dup3(thread, [number, to, 0, 0, 0, 0])
}
pub(super) fn dup3(thread: &Arc<Thread>, [number, to, flags, ..]: Six) -> Answer {
    let to = to as u32 as usize;
    if number as u32 as usize == to || flags & !u64::from(O_CLOEXEC) != 0 {
        return Err(Errno(EINVAL));
    }
    let mut all = thread.process.descriptors.lock();
    if to >= all.most {
        return Err(Errno(EBADF));
    }
    let opened = all.get(number)?.opened.clone();
    let closed = all.set(to, Some(Descriptor { opened, closes: flags != 0 }));
    drop(all);
    closed.into_iter().for_each(|closed| thread.process.closed(closed));
    Ok(to as u64)
}

pub(super) fn fcntl(thread: &Arc<Thread>, [number, command, argument, ..]: Six) -> Answer {
    let mut all = thread.process.descriptors.lock();
    let most = all.most as u64;
    let it = all.get_mut(number)?;
    match command as u32 {
        F_DUPFD | F_DUPFD_CLOEXEC => {
            if argument >= most {
                return Err(Errno(EINVAL));
            }
            let closes = command as u32 == F_DUPFD_CLOEXEC;
            let opened = it.opened.clone();
            all.add(argument, Descriptor { opened, closes })
        }
        F_GETFD => Ok(if it.closes { FD_CLOEXEC.into() } else { 0 }),
        F_SETFD => {
            it.closes = argument & u64::from(FD_CLOEXEC) != 0;
            Ok(0)
        }
        F_GETFL => Ok((it.opened.flags() & !(O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC)).into()),
        F_SETFL => {
            let changes = O_APPEND | O_NONBLOCK;
            let kept = it.opened.flags() & !changes;
            it.opened.set_flags(kept | argument as u32 & changes);
            Ok(0)
        }
        F_SETLK | F_SETLKW | F_GETLK | F_OFD_SETLK | F_OFD_SETLKW | F_OFD_GETLK => {
            let opened = it.opened.clone();
            drop(all);
            super::locks::ranges(thread, &opened, command as u32, argument)
        }
        // Nobody is told by a signal.
        F_GETOWN | F_SETOWN => Ok(0),
        command @ (F_ADD_SEALS | F_GET_SEALS) => {
            let opened = it.opened.clone();
            drop(all);
            let Content::Memory(bytes) = opened.content()? else { return Err(Errno(EINVAL)) };
            match command {
                F_GET_SEALS => Ok(bytes.file.seals().into()),
                _ if !opened.may_write() => Err(Errno::PERM),
                _ => bytes.file.add_seals(argument as u32),
            }
        }
        _ => Err(Errno(EINVAL)),
    }
}

/// What a channel has requests for is its own.
pub(super) fn ioctl(thread: &Arc<Thread>, [number, request, at, ..]: Six) -> Answer {
    let opened = opened(thread, number)?;
    match request as u32 {
        FIONBIO => {
            let is_on = user::get::<u32>(at)? != 0;
            let flags = opened.flags() & !O_NONBLOCK;
            opened.set_flags(flags | if is_on { O_NONBLOCK } else { 0 });
            Ok(0)
        }
        FIOCLEX | FIONCLEX => {
            thread.process.descriptors.lock().get_mut(number)?.closes = request as u32 == FIOCLEX;
            Ok(0)
        }
        TIOCGPTPEER => {
            let channel = opened.channel().ok_or(Errno(ENOTTY))?;
            let flags = at as u32;
            let opened = terminal::peer(&**channel, flags & !O_CLOEXEC)?;
            let closes = flags & O_CLOEXEC != 0;
            thread.process.descriptors.lock().add(0, Descriptor { opened, closes })
        }
        request => match opened.channel() {
            Some(channel) => channel.ioctl(request, at),
            None => match opened.content() {
                Ok(Content::Device(Device::Userfault)) if request == USERFAULTFD_IOC_NEW => {
                    super::memory::userfaultfd(thread, [at, 0, 0, 0, 0, 0])
                }
                Ok(Content::Positioned(it)) => it.ioctl(request, at),
                _ => Err(Errno(ENOTTY)),
            },
        },
    }
}

pub(super) fn pipe(thread: &Arc<Thread>, [at, ..]: Six) -> Answer {
    pipe2(thread, [at, 0, 0, 0, 0, 0])
}
pub(super) fn pipe2(thread: &Arc<Thread>, [at, flags, ..]: Six) -> Answer {
    let flags = flags as u32;
    if flags & !(O_CLOEXEC | O_NONBLOCK) != 0 {
        return Err(Errno(EINVAL));
    }
    let content = Content::Channel(Pipe::new());
    let owner = credentials::owner(&thread.credentials());
    let node = world().files.write().make_unnamed(S_IFIFO | 0o600, owner, content, clock::now());
    let kept = flags & O_NONBLOCK;
    let [reads, writes] = [O_RDONLY, O_WRONLY].map(|way| Opened::of(Hold::of(node), way | kept));
    let closes = flags & O_CLOEXEC != 0;
    let add = |opened| thread.process.descriptors.lock().add(0, Descriptor { opened, closes });
    let take = |number| drop(thread.process.descriptors.lock().take(number));
    let reads = add(reads?)?;
    let writes = add(writes?).inspect_err(|_| take(reads))?;
    let put = user::put(at, &(reads | writes << 32));
    put.map(|()| 0).inspect_err(|_| [reads, writes].into_iter().for_each(take))
}
