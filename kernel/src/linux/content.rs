//! What is behind the names of files: bytes in memory, channels, devices, and texts that are made
//! when they are read.
//!
//! ```text
//!   Packed ── first mapped or written ─▶ Memory         bytes of a file
//! ```
//!
//! **Invariants**
//! - C1. A packed file is never written: it is in the loader's module. One that is mapped has all
//!   of its bytes in memory before.

use super::channel::Channel;
use super::parking::Parking;
use super::{File, World, world};
use crate::memory::manager;
use alloc::sync::Arc;
use alloc::vec::Vec;
use foliant_files::NodeId;
use foliant_linux::Errno;
use linux_raw_sys::errno::{ENOTTY, ESTALE};

/// What a name that is neither a folder nor a link stands for.
#[derive(Clone)]
pub(super) enum Content {
    /// Bytes in the loader's module.
    Packed(&'static [u8]),
    /// Bytes in memory, changed by one call at a time.
    Memory(Arc<Bytes>),
    /// A device.
    Device(Device),
    /// A text that is made when it is read.
    Text(Arc<dyn Text>),
    /// Bytes at positions that are made when they are read.
    Positioned(Arc<dyn Positioned>),
    /// What is read and written without positions: a pipe, a line, a socket.
    Channel(Arc<dyn Channel>),
    /// A link whose text depends on who asks.
    Link(Arc<dyn Link>),
    /// No name has it: what fills a folder that was put off (`Files::put_off`).
    Due(Arc<dyn Fills>),
}

/// A piece of a text, and the key of the next one.
pub(super) type Piece = (Vec<u8>, Option<u64>);

/// A text that is made when it is read.
pub(super) trait Text: Send + Sync {
    /// A piece of what it shows now; the first one's key is 0. Most texts have one piece; one that
    /// may be long is made as far as it is read.
    fn piece(&self, key: u64) -> Result<Piece, Errno>;
    /// Takes what a program writes to it.
    fn write(&self, bytes: &[u8]) -> Result<(), Errno>;
    /// The number of the process that it shows, where not everybody may look at that.
    fn shows(&self) -> Option<u32> {
        None
    }
}
/// Bytes at positions that are made when they are read.
pub(super) trait Positioned: Send + Sync {
    /// What positions and counts are multiples of.
    fn unit(&self) -> u64;
    /// Reads bytes from a position on; fewer where they end.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, Errno>;
    /// Writes bytes there; fewer where they end.
    fn write(&self, offset: u64, from: &[u8]) -> Result<usize, Errno>;
    /// Carries out a request of its own.
    fn ioctl(&self, _request: u32, _at: u64) -> Result<u64, Errno> {
        Err(Errno(ENOTTY))
    }
    /// The number of the process whose bytes they are, where not everybody may look at that.
    fn shows(&self) -> Option<u32> {
        None
    }
}
/// What fills a folder when somebody looks for a name in it.
pub(super) trait Fills: Send + Sync {
    /// Fills it, if nobody did so by now (`Files::fill`).
    fn fill(&self, folder: NodeId);
}
/// A link whose text depends on who asks: a process, by its number.
pub(super) trait Link: Send + Sync {
    /// Where it leads, if it does.
    fn text(&self, asker: u32) -> Option<Vec<u8>>;
}

/// A file in memory. The lock is that of Linux's inode: calls that change its length or write to it
/// take it.
pub(super) struct Bytes {
    pub(super) file: File,
    pub(super) changes: Parking<()>,
}

impl Bytes {
    pub(super) fn of(file: File) -> Arc<Bytes> {
        Arc::new(Bytes { file, changes: Parking::new(()) })
    }
}

/// A device, by what it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Device {
    /// Takes everything, has nothing.
    Null,
    /// Has zeros.
    Zero,
    /// Has zeros and no room.
    Full,
    /// Has bytes that nobody foresees.
    Random,
    /// Gives descriptors of `userfaultfd`.
    Userfault,
}

/// The number of a device.
pub(super) const fn number(major: u64, minor: u64) -> u64 {
    major << 8 | minor
}

impl Device {
    /// All of them: name and number.
    pub(super) const ALL: [(&str, u64, Device); 6] = [
        ("null", number(1, 3), Device::Null),
        ("zero", number(1, 5), Device::Zero),
        ("full", number(1, 7), Device::Full),
        ("random", number(1, 8), Device::Random),
        ("urandom", number(1, 9), Device::Random),
        ("userfaultfd", number(10, 126), Device::Userfault),
    ];
}

impl Content {
    /// Bytes of it.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Content::Packed(bytes) => bytes.len() as u64,
            Content::Memory(bytes) => bytes.file.bytes(),
            _ => 0,
        }
    }
    /// Bytes of one of its pages.
    pub(super) fn page(&self) -> u64 {
        match self {
            Content::Memory(bytes) => bytes.file.page_bytes(),
            _ => 4096,
        }
    }
    /// Where it leads a process, if it is a link.
    pub(super) fn link(&self, asker: u32) -> Option<Vec<u8>> {
        match self {
            Content::Link(link) => link.text(asker),
            _ => None,
        }
    }
    /// The number of the process that it shows, where not everybody may look at that.
    pub(super) fn shows(&self) -> Option<u32> {
        match self {
            Content::Text(text) => text.shows(),
            Content::Positioned(bytes) => bytes.shows(),
            _ => None,
        }
    }
    /// The number of a device, as `stat` tells it.
    pub(super) fn device(&self) -> u64 {
        match self {
            Content::Device(it) => {
                let mut all = Device::ALL.iter().filter(|(_, _, one)| one == it);
                all.next().map_or(0, |(_, number, _)| *number)
            }
            Content::Channel(channel) => channel.device(),
            _ => 0,
        }
    }
}

impl World {
    /// What a file is.
    pub(super) fn content(&self, node: NodeId) -> Result<Content, Errno> {
        self.files.read().leaf(node).cloned().ok_or(Errno(ESTALE))
    }
    /// The file in memory that a file of bytes is, or becomes now; `None` for what has none.
    pub(super) fn in_memory(&self, node: NodeId) -> Result<Option<Arc<Bytes>>, Errno> {
        let packed = match self.content(node)? {
            Content::Memory(bytes) => return Ok(Some(bytes)),
            Content::Packed(packed) => packed,
            _ => return Ok(None),
        };
        let name = self.files.read().path_of(node).unwrap_or_default();
        let file = File::at_path(manager(), &name)?;
        let mut done = 0;
        while done < packed.len() {
            done += file.pwrite(&packed[done..], done as i64)? as usize;
        }
        let bytes = Bytes::of(file);
        let mut files = world().files.write();
        match files.leaf_mut(node) {
            // Another thread may have been here.
            Some(Content::Memory(there)) => return Ok(Some(there.clone())),
            Some(content) => *content = Content::Memory(bytes.clone()),
            None => {}
        }
        Ok(Some(bytes))
    }
}
