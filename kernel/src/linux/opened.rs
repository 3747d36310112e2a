//! Opened files, and the descriptors by which a process names them.
//!
//! ```text
//!   descriptor ─▶ Opened: position, flags ─▶ node ─▶ content
//! ```
//!
//! **Invariants**
//! - D1. An opened file holds its node: what is unlinked stays until the last descriptor is closed.
//!   One that was opened by a path for writing holds it for that: no program is run from it.
//! - D2. An opened file is dropped with no lock held: it lets go of its node.
//!
//! **Locking**: the position's lock is held around a read or write that moves it, as Linux does; it
//! parks.

use super::channel::{Channel, Waits};
use super::content::{Bytes, Content, Device};
use super::events::Events;
use super::hold::Hold;
use super::locks::{self, Owner};
use super::parking::Parking;
use super::pieces::{PIECE, Shown, moved, read_at, slice, write_at};
use super::transfer::Transfer;
use super::{clock, names, world};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use foliant_files::NodeId;
use foliant_linux::Errno;
use linux_raw_sys::errno::{
    EBADF, EFAULT, EFBIG, EINVAL, EISDIR, EMFILE, ENOSPC, ENXIO, EOVERFLOW, ESPIPE,
};
use linux_raw_sys::general::{
    O_ACCMODE, O_APPEND, O_NONBLOCK, O_PATH, O_RDONLY, O_RDWR, O_WRONLY, SEEK_CUR, SEEK_DATA,
    SEEK_END, SEEK_HOLE, SEEK_SET,
};
use spin::Mutex;

/// The most bytes that a read or write moves.
const MOVED_MAX: usize = i32::MAX as usize & !4095;
/// Descriptors of a process, whatever its limit is.
pub(super) const DESCRIPTORS_MAX: usize = 4096;

/// The mode of what has no kind of file: anonymous nodes.
pub(super) const NO_KIND: u32 = 0o600;
/// Files that were opened.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// An opened file.
pub(super) struct Opened {
    pub(super) node: NodeId,
    _hold: Hold,
    flags: AtomicU32,
    position: Parking<u64>,
    /// What was read last of a text.
    text: Mutex<Option<Shown>>,
    /// A number of its own, by which it has locks, and whether it had any.
    pub(super) number: u64,
    pub(super) has_locks: AtomicBool,
    /// The channel that it is, closed with it.
    channel: Option<Arc<dyn Channel>>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        if *self.has_locks.get_mut() {
            locks::let_go(self.node.inode(), Owner::Opened(self.number));
        }
        let closed = self.channel.take();
        drop(closed);
    }
}

/// Where a read or write begins.
#[derive(Clone, Copy)]
pub(super) enum From {
    /// At the position, which moves.
    Position,
    /// There.
    Offset(u64),
}

impl Opened {
    fn holding(hold: Hold, flags: u32) -> Opened {
        let node = hold.node();
        let (flags, position) = (AtomicU32::new(flags), Parking::new(0));
        let (text, has_locks) = (Mutex::new(None), AtomicBool::new(false));
        let number = OPENED.fetch_add(1, Ordering::Relaxed);
        Opened { node, _hold: hold, flags, position, text, number, has_locks, channel: None }
    }
    /// Opens a node that is held.
    pub(super) fn of(hold: Hold, flags: u32) -> Result<Arc<Opened>, Errno> {
        let node = hold.node();
        let mut opened = Opened::holding(hold, flags);
        if flags & O_PATH != 0 || world().files.read().is_folder(node) {
            return Ok(Arc::new(opened));
        }
        if let Content::Channel(channel) = world().content(node)? {
            opened.channel = Some(channel.open(flags)?);
        }
        Ok(Arc::new(opened))
    }
    /// Opens a channel that has no name; a node's mode says what kind of file it is.
    pub(super) fn of_channel(channel: Arc<dyn Channel>, mode: u32, flags: u32) -> Arc<Opened> {
        let content = Content::Channel(channel.clone());
        let node = world().files.write().make_unnamed(
            mode,
            foliant_files::Owner::ROOT,
            content,
            clock::now(),
        );
        let mut opened = Opened::holding(Hold::of(node), flags);
        opened.channel = Some(channel);
        Arc::new(opened)
    }

    /// The channel that it is, if it is one.
    pub(super) fn channel(&self) -> Option<&Arc<dyn Channel>> {
        self.channel.as_ref()
    }
    pub(super) fn flags(&self) -> u32 {
        self.flags.load(Ordering::Relaxed)
    }
    pub(super) fn set_flags(&self, flags: u32) {
        self.flags.store(flags, Ordering::Relaxed);
    }
    pub(super) fn may_read(&self) -> bool {
        self.flags() & O_PATH == 0 && matches!(self.flags() & O_ACCMODE, O_RDONLY | O_RDWR)
    }
    pub(super) fn may_write(&self) -> bool {
        self.flags() & O_PATH == 0 && matches!(self.flags() & O_ACCMODE, O_WRONLY | O_RDWR)
    }

    /// What `poll` tells of it: what is no channel is always ready.
    pub(super) fn events(&self) -> Events {
        match &self.channel {
            Some(channel) => channel.events(),
            None => Events::IN | Events::OUT,
        }
    }
    /// What it is; refused where it is a folder, or opened as a name alone.
    pub(super) fn content(&self) -> Result<Content, Errno> {
        if self.flags() & O_PATH != 0 {
            return Err(Errno::BADF);
        }
        if world().files.read().is_folder(self.node) {
            return Err(Errno(EISDIR));
        }
        world().content(self.node)
    }

    /// Reads into buffers.
    pub(super) fn read(&self, from: From, into: &mut Transfer) -> Result<u64, Errno> {
        if !self.may_read() {
            return Err(Errno(EBADF));
        }
        into.limit(MOVED_MAX);
        if let Some(channel) = &self.channel {
            return match from {
                From::Offset(_) => Err(Errno(ESPIPE)),
                From::Position => Ok(channel.read(into, self.waits())? as u64),
            };
        }
        let content = self.content()?;
        self.moving(from, into.left() as u64, |offset, bytes| {
            let put = |_: u64, bytes: &[u8]| into.put(bytes);
            match &content {
                Content::Memory(it) => it.file.pread_to(bytes, *offset as i64, put),
                Content::Packed(packed) => moved(slice(packed, *offset, bytes), put),
                Content::Text(text) => {
                    let last = self.text.lock().clone();
                    let shown = Shown::at(*offset, &**text, last)?;
                    *self.text.lock() = Some(shown.clone());
                    moved(shown.slice(*offset, bytes), put)
                }
                Content::Device(device) => device.read(bytes, put),
                Content::Positioned(it) => read_at(&**it, *offset, bytes, put),
                Content::Channel(_) | Content::Link(_) | Content::Due(_) => Err(Errno(ENXIO)),
            }
        })
    }
    /// Whether a call on it waits.
    pub(super) fn waits(&self) -> Waits {
        if self.flags() & O_NONBLOCK != 0 { Waits::No } else { Waits::Yes }
    }

    /// Writes from buffers.
    pub(super) fn write(&self, at: From, from: &mut Transfer) -> Result<u64, Errno> {
        self.write_up_to(u64::MAX, at, from)
    }
    /// The same; files do not become longer than `end` by it.
    pub(super) fn write_up_to(
        &self,
        end: u64,
        at: From,
        from: &mut Transfer,
    ) -> Result<u64, Errno> {
        if !self.may_write() {
            return Err(Errno(EBADF));
        }
        from.limit(MOVED_MAX);
        if let Some(channel) = &self.channel {
            return match at {
                From::Offset(_) => Err(Errno(ESPIPE)),
                From::Position => Ok(channel.write(from, self.waits())? as u64),
            };
        }
        let mut content = self.content()?;
        if matches!(content, Content::Packed(_))
            && let Some(bytes) = world().in_memory(self.node)?
        {
            content = Content::Memory(bytes);
        }
        let written = self.moving(at, from.left() as u64, |offset, bytes| match &content {
            Content::Memory(it) => {
                self.write_bytes(it, (offset, bytes, end), |_, bytes| from.take(bytes))
            }
            Content::Device(Device::Full) if bytes > 0 => Err(Errno(ENOSPC)),
            Content::Device(_) => Ok(bytes),
            Content::Positioned(it) => write_at(&**it, *offset, bytes, |_, bytes| from.take(bytes)),
            Content::Text(text) => {
                let mut all = alloc::vec![0; bytes.min(PIECE as u64) as usize];
                if from.take(&mut all) < all.len() {
                    return Err(Errno(EFAULT));
                }
                if !all.is_empty() {
                    text.write(&all)?;
                }
                Ok(all.len() as u64)
            }
            Content::Packed(_) | Content::Channel(_) | Content::Link(_) | Content::Due(_) => {
                Err(Errno(ENXIO))
            }
        })?;
        names::note_written(self.node);
        Ok(written)
    }
    fn write_bytes(
        &self,
        it: &Arc<Bytes>,
        (offset, bytes, end): (&mut u64, u64, u64),
        get: impl FnMut(u64, &mut [u8]) -> usize,
    ) -> Result<u64, Errno> {
        let _changes = it.changes.lock();
        if self.flags() & O_APPEND != 0 {
            *offset = it.file.bytes();
        }
        let bytes = bytes.min(end.saturating_sub(*offset));
        if bytes == 0 && *offset >= end {
            return Err(Errno(EFBIG));
        }
        it.file.pwrite_from(bytes, *offset as i64, get)
    }

    /// Moves bytes from the position on, which goes along, or from an offset.
    fn moving(
        &self,
        from: From,
        bytes: u64,
        work: impl FnOnce(&mut u64, u64) -> Result<u64, Errno>,
    ) -> Result<u64, Errno> {
        match from {
            From::Offset(offset) if offset > i64::MAX as u64 => Err(Errno(EINVAL)),
            From::Offset(mut offset) => work(&mut offset, bytes),
            From::Position => {
                let mut position = self.position.lock();
                let mut offset = *position;
                let moved = work(&mut offset, bytes)?;
                *position = offset + moved;
                Ok(moved)
            }
        }
    }
}

impl Opened {
    /// Moves the position: `lseek`.
    pub(super) fn seek(&self, by: i64, whence: u32) -> Result<u64, Errno> {
        if self.flags() & O_PATH != 0 {
            return Err(Errno(EBADF));
        }
        if self.channel.is_some() {
            return Err(Errno(ESPIPE));
        }
        let is_folder = world().files.read().is_folder(self.node);
        let content = if is_folder { None } else { Some(world().content(self.node)?) };
        let bytes = content.map_or(0, |content| content.bytes());
        let mut position = self.position.lock();
        let beyond = u64::try_from(by).is_ok_and(|by| by >= bytes);
        let base = match whence {
            SEEK_SET => 0,
            SEEK_CUR => *position,
            SEEK_END => bytes,
            SEEK_DATA | SEEK_HOLE if beyond || by < 0 => return Err(Errno(ENXIO)),
            SEEK_DATA => 0,
            // The only hole that is told of is the one behind the end.
            SEEK_HOLE => bytes.wrapping_sub(by as u64),
            _ => return Err(Errno(EINVAL)),
        };
        let to = (base as i64).checked_add(by).ok_or(Errno(EOVERFLOW))?;
        *position = u64::try_from(to).map_err(|_| Errno(EINVAL))?;
        Ok(*position)
    }
    /// The position, for a walk through a folder.
    pub(super) fn with_position<R>(&self, work: impl FnOnce(&mut u64) -> R) -> R {
        work(&mut self.position.lock())
    }
}

/// What a descriptor is.
#[derive(Clone)]
pub(super) struct Descriptor {
    pub(super) opened: Arc<Opened>,
    /// Whether a new program does not have it.
    pub(super) closes: bool,
}

/// The descriptors of a process.
#[derive(Clone)]
pub(super) struct Descriptors {
    all: Vec<Option<Descriptor>>,
    /// Numbers from here on are given to none: `RLIMIT_NOFILE`.
    pub(super) most: usize,
}

impl Descriptors {
    /// Those of the first program: the three streams.
    pub(super) fn first(most: usize) -> Descriptors {
        let flags = [O_RDONLY, O_WRONLY, O_WRONLY];
        let all = names::streams().into_iter().zip(flags).map(|(node, flags)| {
            let opened = Opened::of(Hold::of(node), flags).ok()?;
            Some(Descriptor { opened, closes: false })
        });
        Descriptors { all: all.collect(), most }
    }
    /// The opened file of a descriptor.
    pub(super) fn get(&self, number: u64) -> Result<&Descriptor, Errno> {
        self.all.get(number as u32 as usize).and_then(Option::as_ref).ok_or(Errno(EBADF))
    }
    pub(super) fn get_mut(&mut self, number: u64) -> Result<&mut Descriptor, Errno> {
        self.all.get_mut(number as u32 as usize).and_then(Option::as_mut).ok_or(Errno(EBADF))
    }
    /// The lowest free number from `low` on becomes a descriptor.
    pub(super) fn add(&mut self, low: u64, descriptor: Descriptor) -> Result<u64, Errno> {
        let low = low as usize;
        let free = (low..self.most).find(|n| self.all.get(*n).is_none_or(Option::is_none));
        let number = free.ok_or(Errno(EMFILE))?;
        self.set(number, Some(descriptor));
        Ok(number as u64)
    }
    /// Gives a number another meaning; what it meant is to be dropped without a lock (D2).
    pub(super) fn set(&mut self, number: usize, to: Option<Descriptor>) -> Option<Descriptor> {
        if self.all.len() <= number {
            self.all.resize(number + 1, None);
        }
        core::mem::replace(&mut self.all[number], to)
    }
    /// Takes one away.
    pub(super) fn take(&mut self, number: u64) -> Result<Descriptor, Errno> {
        self.get(number)?;
        self.all[number as u32 as usize].take().ok_or(Errno(EBADF))
    }
    /// Numbers that the table has room for, as Linux's has.
    pub(super) fn room(&self) -> u64 {
        (self.all.len() as u64).next_power_of_two().max(256)
    }
    /// Those that there are, by number.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, &Descriptor)> {
        let all = self.all.iter().enumerate();
        all.filter_map(|(number, it)| Some((number as u64, it.as_ref()?)))
    }
    /// Takes those away that a new program does not have.
    pub(super) fn take_closing(&mut self) -> Vec<Descriptor> {
        let closing = self.all.iter_mut().filter(|it| it.as_ref().is_some_and(|it| it.closes));
        closing.filter_map(Option::take).collect()
    }
    /// Takes all away.
    pub(super) fn take_all(&mut self) -> Vec<Descriptor> {
        core::mem::take(&mut self.all).into_iter().flatten().collect()
    }
}
