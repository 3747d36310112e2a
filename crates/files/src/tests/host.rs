//! The calls, carried out by the host in a folder of its own; and the two sides beside each other.
//!
//! A path that goes up must not leave the folder, for there the sides differ. So both sides begin
//! [`DEPTH`] folders deep: no path and none of its 40 links goes up more than twice.
//!
//! Some file systems of a host (btrfs, overlays) do not count the folders in a folder, and some do
//! not know `O_TMPFILE` or `RENAME_EXCHANGE`. The host is asked first, and what it does not know is
//! not compared.

use super::call::{Answer, At, Call, Follow, Side, Stat, Told};
use super::model::Model;
use crate::LINKS_MAX;
use alloc::vec::Vec;
use linux_raw_sys::general::{S_IFDIR, S_IFLNK, S_IFREG};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, RenameFlags, Timespec, Timestamps, linkat,
    mkdirat, mknodat, openat, readlinkat, renameat_with, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fs::{canonicalize, remove_dir_all, remove_file};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use tempfile::TempDir;

/// How deep both sides begin, with room to go up by each link and the path itself.
pub(super) const DEPTH: usize = 2 * (LINKS_MAX as usize + 1) + 4;
/// Where handles may be.
pub(super) const DEPTH_MIN: usize = DEPTH - 4;

/// The host's side.
pub(super) struct Host {
    top: TempDir,
    handles: Vec<OwnedFd>,
    folder_links: bool,
    knows_tmpfile: bool,
    knows_exchange: bool,
}

fn number(why: Errno) -> u32 {
    why.raw_os_error() as u32
}

impl Host {
    fn new() -> Host {
        // In memory it takes a tenth of the time that it may take on a disk. `TMPDIR` has its way.
        let is_asked = std::env::var_os("TMPDIR").is_some();
        let in_memory = TempDir::new_in("/dev/shm").ok().filter(|_| !is_asked);
        let top = in_memory.unwrap_or_else(|| TempDir::new().unwrap());
        let folder = OFlags::PATH | OFlags::DIRECTORY;
        let mut base = openat(CWD, top.path(), folder, Mode::empty()).unwrap();
        for _ in 0..DEPTH {
            mkdirat(&base, "base", Mode::RWXU).unwrap();
            base = openat(&base, "base", folder, Mode::empty()).unwrap();
        }
        let file = OFlags::TMPFILE | OFlags::WRONLY;
        let is_counted = statat(CWD, top.path(), AtFlags::empty()).unwrap().st_nlink == 3;
        let exchange = renameat_with(&base, "x", &base, "y", RenameFlags::EXCHANGE);
        let knows_tmpfile = openat(&base, ".", file, Mode::RWXU).is_ok();
        Host {
            top,
            handles: vec![base],
            folder_links: is_counted,
            knows_tmpfile,
            knows_exchange: exchange == Err(Errno::NOENT),
        }
    }

    /// Takes all out again but the folders that it began with.
    fn clear(&mut self) {
        self.handles.truncate(1);
        let folder = OFlags::PATH | OFlags::DIRECTORY;
        let mut at = openat(CWD, self.top.path(), folder, Mode::empty()).unwrap();
        loop {
            for (name, kind) in names(at.as_fd(), b".").unwrap() {
                if ![&b"."[..], b"..", b"base"].contains(&&*name) {
                    let name = String::from_utf8(name).unwrap();
                    let path = format!("/proc/self/fd/{}/{name}", at.as_raw_fd());
                    let is_folder = kind == S_IFDIR;
                    if is_folder { remove_dir_all(path) } else { remove_file(path) }.unwrap();
                }
            }
            match openat(&at, "base", folder, Mode::empty()) {
                Ok(below) => at = below,
                Err(_) => return,
            }
        }
    }

    fn fd(&self, at: &At) -> BorrowedFd<'_> {
        self.handles[at.handle].as_fd()
    }

    /// Marks a file as the one of a token, unless it is marked: its time then is a small number.
    fn mark(&self, fd: BorrowedFd<'_>, path: &[u8], token: u64) -> Result<(), Errno> {
        let stat = statat(fd, path, AtFlags::empty())?;
        if stat.st_mtime > 1_000_000 {
            let time = Timespec { tv_sec: token as i64, tv_nsec: 0 };
            let times = Timestamps { last_access: time, last_modification: time };
            utimensat(fd, path, &times, AtFlags::empty())?;
        }
        Ok(())
    }

    fn stat(&self, fd: BorrowedFd<'_>, path: &[u8], flags: AtFlags) -> Result<Stat, Errno> {
        let stat = statat(fd, path, flags)?;
        let kind = FileType::from_raw_mode(stat.st_mode).as_raw_mode();
        Ok(Stat {
            kind,
            links: (kind != S_IFDIR || self.folder_links).then_some(stat.st_nlink as u32),
            token: (kind == S_IFREG).then_some(stat.st_mtime as u64),
        })
    }

    fn try_call(&mut self, call: &Call, token: u64) -> Result<Answer, Errno> {
        match call {
            Call::Mkdir(at) => mkdirat(self.fd(at), &at.path, Mode::RWXU)?,
            Call::Create(at, flags) => {
                let flags = OFlags::from_bits_retain(*flags) | OFlags::WRONLY;
                let made = openat(self.fd(at), &at.path, flags, Mode::RWXU)?;
                let path = format!("/proc/self/fd/{}", made.as_raw_fd());
                self.mark(CWD, path.as_bytes(), token)?;
            }
            Call::Mknod(at) => {
                mknodat(self.fd(at), &at.path, FileType::RegularFile, Mode::RWXU, 0)?;
                self.mark(self.fd(at), &at.path, token)?;
            }
            Call::Symlink(text, at) => symlinkat(text, self.fd(at), &at.path)?,
            Call::Link(from, to, follow) => {
                let follow = *follow == Follow::Yes;
                let flags = if follow { AtFlags::SYMLINK_FOLLOW } else { AtFlags::empty() };
                linkat(self.fd(from), &from.path, self.fd(to), &to.path, flags)?;
            }
            Call::LinkHandle(handle, to) => {
                let path = format!("/proc/self/fd/{}", self.handles[*handle].as_raw_fd());
                linkat(CWD, path, self.fd(to), &to.path, AtFlags::SYMLINK_FOLLOW)?;
            }
            Call::Unlink(at) => unlinkat(self.fd(at), &at.path, AtFlags::empty())?,
            Call::Rmdir(at) => unlinkat(self.fd(at), &at.path, AtFlags::REMOVEDIR)?,
            Call::Rename(from, to, flags) => {
                let flags = RenameFlags::from_bits_retain(*flags);
                renameat_with(self.fd(from), &from.path, self.fd(to), &to.path, flags)?;
            }
            Call::Stat(at, follow) => {
                let keeps = *follow == Follow::No;
                let flags = if keeps { AtFlags::SYMLINK_NOFOLLOW } else { AtFlags::empty() };
                return self.stat(self.fd(at), &at.path, flags).map(Answer::Stat);
            }
            Call::Readlink(at) => {
                if at.path.is_empty() {
                    return Err(Errno::NOENT); // Linux reads the handle itself then
                }
                let text = readlinkat(self.fd(at), &at.path, Vec::new())?;
                return Ok(Answer::Text(text.into_bytes()));
            }
            Call::List(at) => return names(self.fd(at), &at.path).map(Answer::Names),
            Call::Hold(at, follow) => {
                let keeps = *follow == Follow::No;
                let flags = if keeps { OFlags::NOFOLLOW } else { OFlags::empty() };
                let opened = openat(self.fd(at), &at.path, OFlags::PATH | flags, Mode::empty())?;
                self.handles.push(opened);
            }
            Call::Tmpfile(at) => {
                let flags = OFlags::TMPFILE | OFlags::WRONLY;
                let made = openat(self.fd(at), &at.path, flags, Mode::RWXU)?;
                let path = format!("/proc/self/fd/{}", made.as_raw_fd());
                self.mark(CWD, path.as_bytes(), token)?;
                self.handles.push(made);
            }
            Call::Drop => self.handles.truncate(1.max(self.handles.len() - 1)),
        }
        Ok(Answer::Done)
    }
}

impl Side for Host {
    fn call(&mut self, call: &Call, token: u64) -> Told {
        self.try_call(call, token).map_err(number)
    }
    fn handles(&self) -> usize {
        self.handles.len()
    }
}

fn names(fd: BorrowedFd<'_>, path: &[u8]) -> Result<BTreeMap<Vec<u8>, u32>, Errno> {
    let folder = openat(fd, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    let mut room = Vec::with_capacity(4096);
    let mut entries = RawDir::new(folder, room.spare_capacity_mut());
    let mut names = BTreeMap::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        names.insert(entry.file_name().to_bytes().to_vec(), entry.file_type().as_raw_mode());
    }
    Ok(names)
}

/// What is at one path: what `lstat` tells, a link's text, and the first path to the same node.
type Seen = (Stat, Option<Vec<u8>>, String);

/// Both sides.
pub(super) struct Twins {
    host: Host,
    pub(super) model: Model,
    token: u64,
}

impl Twins {
    pub(super) fn new() -> Twins {
        let host = Host::new();
        let model = Model::new(DEPTH, host.folder_links);
        Twins { host, model, token: 0 }
    }

    /// Begins anew.
    pub(super) fn restart(&mut self) {
        self.host.clear();
        self.model = Model::new(DEPTH, self.host.folder_links);
    }

    /// Carries a line out on both sides. What differs is told.
    pub(super) fn line(&mut self, line: &str) -> Result<Told, String> {
        let call = Call::new(line);
        self.token += 1;
        let is_unknown = match call {
            Call::Tmpfile(_) => !self.host.knows_tmpfile,
            Call::Rename(_, _, flags) => flags > 1 && !self.host.knows_exchange,
            _ => false,
        };
        if is_unknown {
            return Ok(Ok(Answer::Done));
        }
        let here = self.model.call(&call, self.token);
        let there = self.host.call(&call, self.token);
        if here != there {
            return Err(format!("{line}: the crate says {here:?}, the host {there:?}"));
        }
        assert_eq!(self.model.handles(), self.host.handles());
        let too_high = self.model.handles.last();
        if too_high.is_some_and(|node| {
            self.model.files.is_folder(*node) && self.model.depth(*node) < DEPTH_MIN
        }) {
            return self.line("drop").map(|_| here);
        }
        Ok(here)
    }

    /// Compares the whole tree, and what is open.
    pub(super) fn compare(&self) -> Result<(), String> {
        let (mut here, mut there) = (BTreeMap::new(), BTreeMap::new());
        self.see_model(&mut here);
        let folder = OFlags::PATH | OFlags::DIRECTORY;
        let top = openat(CWD, self.host.top.path(), folder, Mode::empty()).unwrap();
        self.see_host(top.as_fd(), String::new(), &mut BTreeMap::new(), &mut there);
        if here != there {
            let is_odd = |path: &&String| here.get(*path) != there.get(*path);
            let odd = here.keys().chain(there.keys()).find(is_odd).unwrap();
            let sides = (here.get(odd), there.get(odd));
            return Err(format!("{odd}: the crate has {:?}, the host {:?}", sides.0, sides.1));
        }
        for (index, (node, fd)) in self.model.handles.iter().zip(&self.host.handles).enumerate() {
            let here = self.model.stat(*node);
            let there = self.host.stat(fd.as_fd(), b"", AtFlags::EMPTY_PATH).unwrap();
            let (here_path, there_path) = (self.model.files.path_of(*node), self.path(fd));
            let is_alike = here.kind != S_IFDIR || here_path == there_path;
            if here != there || !is_alike {
                let here = format!("{here:?} {here_path:?}");
                return Err(format!("handle {index}: {here}, the host {there:?} {there_path:?}"));
            }
        }
        Ok(())
    }

    /// Where an open folder is, below the top.
    fn path(&self, fd: &OwnedFd) -> Option<Vec<u8>> {
        let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let path = readlinkat(CWD, link, Vec::new()).unwrap().into_bytes();
        let top = canonicalize(self.host.top.path()).unwrap();
        let below = path.strip_prefix(top.as_os_str().as_bytes())?;
        (!below.ends_with(b" (deleted)")).then(|| below.to_vec())
    }

    fn see_model(&self, seen: &mut BTreeMap<String, Seen>) {
        let files = &self.model.files;
        let mut first = BTreeMap::new();
        let mut folders = vec![(files.root(), String::new())];
        while let Some((folder, path)) = folders.pop() {
            let names: BTreeMap<_, _> =
                files.entries(folder, 0).skip(2).map(|entry| (entry.name, entry.node)).collect();
            let mut below = Vec::new();
            for (name, node) in names {
                let path = format!("{path}/{}", str::from_utf8(name).unwrap());
                let first = first.entry(node.inode()).or_insert(path.clone()).clone();
                let text = files.link_text(node).map(<[u8]>::to_vec);
                seen.insert(path.clone(), (self.model.stat(node), text, first));
                if files.is_folder(node) {
                    below.push((node, path));
                }
            }
            folders.extend(below.into_iter().rev());
        }
    }
    fn see_host(
        &self,
        fd: BorrowedFd<'_>,
        path: String,
        first: &mut BTreeMap<u64, String>,
        seen: &mut BTreeMap<String, Seen>,
    ) {
        let mut below = Vec::new();
        for (name, kind) in names(fd, b".").unwrap() {
            if name == b"." || name == b".." {
                continue;
            }
            let path = format!("{path}/{}", str::from_utf8(&name).unwrap());
            let inode = statat(fd, &name, AtFlags::SYMLINK_NOFOLLOW).unwrap().st_ino;
            let first = first.entry(inode).or_insert(path.clone()).clone();
            let text = (kind == S_IFLNK).then(|| readlinkat(fd, &name, Vec::new()).unwrap());
            let stat = self.host.stat(fd, &name, AtFlags::SYMLINK_NOFOLLOW).unwrap();
            seen.insert(path.clone(), (stat, text.map(|text| text.into_bytes()), first));
            if kind == S_IFDIR {
                below.push((name, path));
            }
        }
        for (name, path) in below {
            let folder = OFlags::PATH | OFlags::DIRECTORY;
            let inner = openat(fd, &name, folder, Mode::empty()).unwrap();
            self.see_host(inner.as_fd(), path, first, seen);
        }
    }
}
