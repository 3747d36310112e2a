//! Calls about names of files.

use super::super::content::Content;
use super::super::credentials::{self, Walker, guarded};
use super::super::hold::Hold;
use super::super::opened::{Descriptor, Opened};
use super::super::process::{self, Process};
use super::super::thread::Thread;
use super::super::{clock, mounts, names, proc_fd, user, world};
use super::{Answer, refused};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use foliant_files::{
    Body, Facts, Files, Final, Last, NodeId, Place, Purpose, Refused, Time, rename_flags,
};
use foliant_linux::Errno;
use foliant_linux::credentials::{By, Credentials};
use linux_raw_sys::errno::{EACCES, EBADF, EINVAL, EISDIR, ELOOP, ENOENT, ENOTDIR, ERANGE, ESTALE};
use linux_raw_sys::errno::{EEXIST, ENXIO};
use linux_raw_sys::general::{
    AT_EACCESS, AT_EMPTY_PATH, AT_FDCWD, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW,
    O_ACCMODE, O_CLOEXEC, O_CREAT, O_DIRECTORY, O_EXCL, O_NOATIME, O_NOFOLLOW, O_PATH, O_RDONLY,
    O_TMPFILE, O_TRUNC, O_WRONLY, R_OK, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK, W_OK, X_OK,
};

type Six = [u64; 6];

/// `AT_FDCWD` as the calls without a folder mean it.
pub(super) const HERE: u64 = AT_FDCWD as u64;

/// The folder that a path of a call begins at.
fn folder(process: &Process, number: u64, path: &[u8]) -> Result<NodeId, Errno> {
    proc_fd::refresh_for(process, path);
    if path.first() == Some(&b'/') || number as i32 == AT_FDCWD {
        return Ok(process.folder());
    }
    let node = process.descriptors.lock().get(number)?.opened.node;
    let is_folder = world().files.read().is_folder(node);
    if is_folder { Ok(node) } else { Err(Errno(ENOTDIR)) }
}
/// Where a path of a call leads; an empty one to the descriptor itself, where the flags allow it.
pub(super) fn walk(thread: &Thread, number: u64, path: u64, flags: u32) -> Result<NodeId, Errno> {
    walk_by(thread, &thread.credentials(), [number, path], flags)
}
/// Where it would lead somebody else.
fn walk_by(
    thread: &Thread,
    by: &Credentials,
    [number, path]: [u64; 2],
    flags: u32,
) -> Result<NodeId, Errno> {
    let process = &thread.process;
    let path = user::get_path(path)?;
    if path.is_empty() && flags & AT_EMPTY_PATH != 0 {
        return match number as i32 == AT_FDCWD {
            true => Ok(process.folder()),
            false => Ok(process.descriptors.lock().get(number)?.opened.node),
        };
    }
    let last = if flags & AT_SYMLINK_NOFOLLOW != 0 { Last::Keep } else { Last::Follow };
    process.walk(by, folder(process, number, &path)?, &path, last)
}
/// Where the last name of a path goes.
fn place(thread: &Thread, number: u64, path: u64) -> Result<Place, Errno> {
    let path = user::get_path(path)?;
    place_from(thread, folder(&thread.process, number, &path)?, &path)
}
/// Where the last name of a path from a folder on goes.
pub(super) fn place_from(thread: &Thread, from: NodeId, path: &[u8]) -> Result<Place, Errno> {
    let walker = Walker { process: thread.process.id, credentials: &thread.credentials() };
    names::look(|files| files.place(from, path, Last::Keep, &walker))
}
/// Changes names.
pub(super) fn changing<R>(
    change: impl FnOnce(&mut Files<Content>, Time) -> Result<R, Refused>,
) -> Result<R, Errno> {
    change(&mut world().files.write(), clock::now()).map_err(refused)
}

pub(super) fn open(thread: &Arc<Thread>, [path, flags, mode, ..]: Six) -> Answer {
    openat(thread, [HERE, path, flags, mode, 0, 0])
}
pub(super) fn creat(thread: &Arc<Thread>, [path, mode, ..]: Six) -> Answer {
    openat(thread, [HERE, path, (O_CREAT | O_WRONLY | O_TRUNC).into(), mode, 0, 0])
}
pub(super) fn openat(thread: &Arc<Thread>, [number, path, flags, mode, ..]: Six) -> Answer {
    let (process, flags, mode) = (&thread.process, flags as u32, mode as u32);
    let by = thread.credentials();
    let path = user::get_path(path)?;
    let from = folder(process, number, &path)?;
    let is_unnamed = flags & O_TMPFILE == O_TMPFILE;
    let (node, is_new) = if is_unnamed {
        let node = process.walk(&by, from, &path, Last::Follow)?;
        if !world().files.read().is_folder(node) {
            return Err(Errno(ENOTDIR));
        }
        if flags & O_ACCMODE == O_RDONLY {
            return Err(Errno(EINVAL));
        }
        credentials::allowed(&by, node, W_OK | X_OK)?;
        let mode = S_IFREG | process.masked(mode);
        let mut files = world().files.write();
        let content = mounts::new_file(&files, node, b"#")?;
        (files.make_unnamed(mode, credentials::owner(&by), content, clock::now()), true)
    } else {
        find_or_make((process, &by), from, &path, (flags, mode))?
    };
    let facts = world().files.read().facts(node).ok_or(Errno(ESTALE))?;
    let is_folder = world().files.read().is_folder(node);
    let writes = flags & O_ACCMODE != O_RDONLY;
    if flags & O_PATH == 0 {
        match () {
            _ if facts.mode & S_IFMT == S_IFLNK => return Err(Errno(ELOOP)),
            _ if facts.mode & S_IFMT == S_IFSOCK => return Err(Errno(ENXIO)),
            _ if is_folder && (writes || flags & O_CREAT != 0) => return Err(Errno(EISDIR)),
            () => {}
        }
    }
    if flags & O_DIRECTORY != 0 && !is_folder && !is_unnamed {
        return Err(Errno(ENOTDIR));
    }
    if flags & O_PATH == 0 && !is_new {
        may_open(thread, node, &facts, flags)?;
    }
    let hold = match writes && flags & O_PATH == 0 {
        true => Hold::to(Purpose::Write, node)?,
        false => Hold::of(node),
    };
    let opened = Opened::of(hold, flags & !O_CLOEXEC)?;
    if flags & O_TRUNC != 0 && flags & O_PATH == 0 && facts.mode & S_IFMT == S_IFREG {
        truncate(node)?;
    }
    let closes = flags & O_CLOEXEC != 0;
    process.descriptors.lock().add(0, Descriptor { opened, closes })
}
/// Whether a thread may open a file that was there.
fn may_open(thread: &Thread, node: NodeId, facts: &Facts, flags: u32) -> Result<(), Errno> {
    let by = thread.credentials();
    let wanted = match flags & O_ACCMODE {
        O_RDONLY => R_OK,
        O_WRONLY => W_OK,
        _ => R_OK | W_OK,
    };
    let wanted = wanted | if flags & O_TRUNC != 0 { W_OK } else { 0 };
    if !by.may(&guarded(facts), wanted) {
        return Err(Errno(EACCES));
    }
    if flags & O_NOATIME != 0 && !by.owns(facts.uid) {
        return Err(Errno::PERM);
    }
    let shown = world().files.read().leaf(node).and_then(Content::shows);
    match shown.and_then(process::of_id) {
        Some(other) if !thread.may_look_at(&other, By::Files) => Err(Errno(EACCES)),
        _ => Ok(()),
    }
}
/// The node that `open` means, and whether it was made for that.
fn find_or_make(
    (process, by): (&Process, &Credentials),
    from: NodeId,
    path: &[u8],
    (flags, mode): (u32, u32),
) -> Result<(NodeId, bool), Errno> {
    let walker = Walker { process: process.id, credentials: by };
    let keeps = flags & O_NOFOLLOW != 0 || flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL;
    let last = if keeps { Last::Keep } else { Last::Follow };
    if flags & O_CREAT == 0 || flags & O_PATH != 0 {
        return Ok((process.walk(by, from, path, last)?, false));
    }
    if flags & O_DIRECTORY != 0 {
        return Err(Errno(EINVAL));
    }
    if let Some(node) = process.named_descriptor(path).filter(|_| !keeps) {
        return Ok((node, false));
    }
    let (mut files, place) = loop {
        let files = world().files.write();
        match files.place_to_open(from, path, last, &walker) {
            Err(Refused::Due(folder)) => {
                drop(files);
                names::fill(folder);
            }
            found => break (files, found.map_err(refused)?),
        }
    };
    match place.node() {
        Some(_) if flags & O_EXCL != 0 => Err(Errno(EEXIST)),
        Some(node) => Ok((node, false)),
        None => {
            let above = files.facts(place.folder()).ok_or(Errno(ESTALE))?;
            let mode = by.new_mode(&guarded(&above), process.masked(mode));
            let mode = S_IFREG | mode;
            let name = match place.last() {
                Final::Name(name) => name.clone(),
                _ => Vec::new(),
            };
            let content = mounts::new_file(&files, place.folder(), &name)?;
            let made = files.make(&place, mode, Body::Leaf(content), clock::now());
            made.map(|node| (node, true)).map_err(refused)
        }
    }
}
/// Takes a file's bytes away.
fn truncate(node: NodeId) -> Result<(), Errno> {
    let _hold = Hold::to(Purpose::Write, node)?;
    match world().content(node)? {
        Content::Packed([]) => return Ok(()),
        Content::Packed(_) => {
            if let Some(content) = world().files.write().leaf_mut(node) {
                *content = Content::Packed(&[]);
            }
        }
        Content::Memory(bytes) => {
            let _changes = bytes.changes.lock();
            bytes.file.ftruncate(0)?;
        }
        _ => return Ok(()),
    }
    names::note_written(node);
    Ok(())
}

pub(super) fn access(thread: &Arc<Thread>, [path, mode, ..]: Six) -> Answer {
    faccessat2(thread, [HERE, path, mode, 0, 0, 0])
}
pub(super) fn faccessat(thread: &Arc<Thread>, [number, path, mode, ..]: Six) -> Answer {
    faccessat2(thread, [number, path, mode, 0, 0, 0])
}
/// Asks for whoever the thread really is, or for whoever it acts as.
pub(super) fn faccessat2(thread: &Arc<Thread>, [number, path, mode, flags, ..]: Six) -> Answer {
    let flags = flags as u32;
    let known = AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH;
    if mode & !7 != 0 || flags & !known != 0 {
        return Err(Errno(EINVAL));
    }
    let own = thread.credentials();
    let by = if flags & AT_EACCESS != 0 { own } else { Arc::new(own.as_real()) };
    let node = walk_by(thread, &by, [number, path], flags)?;
    credentials::allowed(&by, node, mode as u32).map(|()| 0)
}

pub(super) fn chdir(thread: &Arc<Thread>, [path, ..]: Six) -> Answer {
    enter(thread, walk(thread, HERE, path, 0)?)
}
pub(super) fn fchdir(thread: &Arc<Thread>, [number, ..]: Six) -> Answer {
    let opened = super::bytes::opened(thread, number)?;
    enter(thread, opened.node)
}
fn enter(thread: &Thread, node: NodeId) -> Answer {
    if !world().files.read().is_folder(node) {
        return Err(Errno(ENOTDIR));
    }
    credentials::allowed(&thread.credentials(), node, X_OK)?;
    thread.process.enter_node(node).map(|()| 0)
}
pub(super) fn getcwd(thread: &Arc<Thread>, [at, bytes, ..]: Six) -> Answer {
    let path = world().files.read().path_of(thread.process.folder());
    let mut path = path.ok_or(Errno(ENOENT))?;
    path.push(0);
    if path.len() as u64 > bytes {
        return Err(Errno(ERANGE));
    }
    user::put_bytes(at, &path)?;
    Ok(path.len() as u64)
}
pub(super) fn getdents64(thread: &Arc<Thread>, [number, at, bytes, ..]: Six) -> Answer {
    let opened = super::bytes::opened(thread, number)?;
    if opened.flags() & O_PATH != 0 {
        return Err(Errno(EBADF));
    }
    names::fill(opened.node);
    let path = world().files.read().path_of(opened.node);
    proc_fd::refresh_for(&thread.process, path.as_deref().unwrap_or_default());
    let mut out: Vec<u8> = Vec::new();
    let (mut next, mut is_short) = (opened.with_position(|position| *position), false);
    {
        let files = world().files.read();
        if !files.is_folder(opened.node) {
            return Err(Errno(ENOTDIR));
        }
        for entry in files.entries(opened.node, next) {
            let size = (user::DIRENT + entry.name.len() + 1).next_multiple_of(8);
            if out.len() + size > bytes as usize {
                is_short = out.is_empty();
                break;
            }
            let start = out.len();
            out.extend(entry.node.inode().to_le_bytes());
            out.extend(entry.next.to_le_bytes());
            out.extend((size as u16).to_le_bytes());
            out.push((entry.mode >> 12 & 15) as u8);
            out.extend(entry.name);
            out.resize(start + size, 0);
            next = entry.next;
        }
    }
    if is_short {
        return Err(Errno(EINVAL));
    }
    user::put_bytes(at, &out)?;
    opened.with_position(|position| *position = next);
    Ok(out.len() as u64)
}

pub(super) fn readlink(thread: &Arc<Thread>, [path, at, bytes, ..]: Six) -> Answer {
    readlinkat(thread, [HERE, path, at, bytes, 0, 0])
}
pub(super) fn readlinkat(thread: &Arc<Thread>, [number, path, at, bytes, ..]: Six) -> Answer {
    let flags = AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH;
    let node = walk(thread, number, path, flags)?;
    let text = {
        let files = world().files.read();
        let text = files.link_text(node).map(<[u8]>::to_vec);
        text.or_else(|| files.leaf(node)?.link(thread.process.id)).ok_or(Errno(EINVAL))?
    };
    if bytes as i32 <= 0 {
        return Err(Errno(EINVAL));
    }
    let text = &text[..text.len().min(bytes as usize)];
    user::put_bytes(at, text)?;
    Ok(text.len() as u64)
}
pub(super) fn symlink(thread: &Arc<Thread>, [text, path, ..]: Six) -> Answer {
    symlinkat(thread, [text, HERE, path, 0, 0, 0])
}
pub(super) fn symlinkat(thread: &Arc<Thread>, [text, number, path, ..]: Six) -> Answer {
    let text = user::get_path(text)?;
    if text.is_empty() {
        return Err(Errno(ENOENT));
    }
    let place = place(thread, number, path)?;
    changing(|files, now| files.make(&place, 0o777, Body::Link(text), now)).map(|_| 0)
}
pub(super) fn link(thread: &Arc<Thread>, [old, new, ..]: Six) -> Answer {
    linkat(thread, [HERE, old, HERE, new, 0, 0])
}
pub(super) fn linkat(thread: &Arc<Thread>, [from, old, to, new, flags, _]: Six) -> Answer {
    let follows = flags as u32 & AT_SYMLINK_FOLLOW != 0;
    let flags = flags as u32 & AT_EMPTY_PATH | if follows { 0 } else { AT_SYMLINK_NOFOLLOW };
    let node = walk(thread, from, old, flags)?;
    let place = place(thread, to, new)?;
    changing(|files, now| files.link(node, &place, now)).map(|()| 0)
}
pub(super) fn unlink(thread: &Arc<Thread>, [path, ..]: Six) -> Answer {
    unlinkat(thread, [HERE, path, 0, 0, 0, 0])
}
pub(super) fn rmdir(thread: &Arc<Thread>, [path, ..]: Six) -> Answer {
    unlinkat(thread, [HERE, path, AT_REMOVEDIR.into(), 0, 0, 0])
}
pub(super) fn unlinkat(thread: &Arc<Thread>, [number, path, flags, ..]: Six) -> Answer {
    if flags & !u64::from(AT_REMOVEDIR) != 0 {
        return Err(Errno(EINVAL));
    }
    let place = place(thread, number, path)?;
    if flags != 0 {
        return changing(|files, now| files.remove_folder(&place, now)).map(|()| 0);
    }
    let gone = changing(|files, now| files.unlink(&place, now))?;
    drop(gone);
    Ok(0)
}
pub(super) fn mkdir(thread: &Arc<Thread>, [path, mode, ..]: Six) -> Answer {
    mkdirat(thread, [HERE, path, mode, 0, 0, 0])
}
pub(super) fn mkdirat(thread: &Arc<Thread>, [number, path, mode, ..]: Six) -> Answer {
    let place = place(thread, number, path)?;
    let mode = thread.process.masked(mode as u32);
    changing(|files, now| files.make(&place, mode, Body::Folder, now)).map(|_| 0)
}
pub(super) fn rename(thread: &Arc<Thread>, [old, new, ..]: Six) -> Answer {
    renameat2(thread, [HERE, old, HERE, new, 0, 0])
}
pub(super) fn renameat(thread: &Arc<Thread>, [from, old, to, new, ..]: Six) -> Answer {
    renameat2(thread, [from, old, to, new, 0, 0])
}
pub(super) fn renameat2(thread: &Arc<Thread>, [from, old, to, new, flags, _]: Six) -> Answer {
    rename_flags(flags as u32).map_err(refused)?;
    let old = place(thread, from, old)?;
    let new = place(thread, to, new)?;
    let gone = changing(|files, now| files.rename(&old, &new, flags as u32, now))?;
    drop(gone);
    Ok(0)
}

pub(super) fn umask(thread: &Arc<Thread>, [mask, ..]: Six) -> Answer {
    Ok(thread.process.mask.swap(mask as u32 & 0o777, Ordering::Relaxed).into())
}
