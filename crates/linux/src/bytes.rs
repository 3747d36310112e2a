//! Bytes of files in memory: what `pread` and `pwrite` move, and what is cleared inside of pages.
//!
//! ```text
//!   buffer ◀─pread──  length: no byte is read behind it; a hole is zeros and stays one
//!          ──pwrite─▶ pages are made; the length goes along, page by page
//! ```
//!
//! A call goes page by page and ends at the first that it cannot do. It answers how many bytes it
//! moved, or, where that is none, why not. So a write to a file that may not grow writes the pages
//! that end within the length, and nothing of the one that does not.
//!
//! A buffer in the memory of a program is the embedder's to reach: it moves bytes between that and
//! a page of the kernel's, and says how far it came. A fault of the buffer that nothing answers
//! ends the call there, as a page of the file does.
//!
//! **Locking.** As for lengths (`file`). A read may run beside all of them. The embedder is called
//! with nothing held, so a buffer may be memory that maps the same file.
//!
//! **Not here**: a descriptor's position, with which `read` and `write` are these; the limit on the
//! sizes of files.

use crate::errno::Errno;
use crate::fcntl::ANY_WRITE;
use crate::file::{LENGTH_MAX, MemoryFile};
use crate::pages::PAGE;
use alloc::boxed::Box;
use foliant::Access;
use foliant::manager::NoPage;
use foliant::table::Paging;
use foliant_machine::Machine;
use foliant_units::Bytes;
use linux_raw_sys::general::F_SEAL_GROW;

/// The most bytes that one call moves: Linux's `MAX_RW_COUNT`.
const MOVED_MAX: u64 = i32::MAX as u64 & !(PAGE - 1);

/// Bytes that are moved over the stack; more need a page of memory.
const NEAR: usize = 512;
static ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];

/// Bytes of one page: which page, where they begin in it, and how many.
struct Part {
    page: u64,
    at: Bytes,
    bytes: u64,
}

impl Part {
    /// The first page's of so many bytes from an offset on.
    fn of(offset: u64, bytes: u64) -> Part {
        let at = offset % PAGE;
        Part { page: offset / PAGE, at: Bytes::new(at), bytes: bytes.min(PAGE - at) }
    }
}

/// Room of the kernel's for what a page has of so many bytes.
fn room<'r>(
    bytes: u64,
    near: &'r mut [u8; NEAR],
    far: &'r mut Option<Box<[u8; PAGE as usize]>>,
) -> &'r mut [u8] {
    if bytes <= NEAR as u64 { near } else { &mut far.insert(Box::new([0; PAGE as usize]))[..] }
}

/// Where a call begins, and how many bytes it may move.
fn asked(offset: i64, bytes: u64) -> Result<(u64, u64), Errno> {
    let offset = u64::try_from(offset).map_err(|_| Errno::INVAL)?;
    if offset.checked_add(bytes).is_none_or(|end| end > LENGTH_MAX) {
        return Err(Errno::INVAL);
    }
    Ok((offset, bytes.min(MOVED_MAX)))
}

/// How many of `bytes` were moved between a page and a buffer, of which any may be out of reach.
fn moved(count: usize, bytes: u64) -> Result<u64, Errno> {
    match (count as u64).min(bytes) {
        0 => Err(Errno::FAULT),
        count => Ok(count),
    }
}

/// Moves `bytes` from `offset` on, page by page: `one` moves a page's, given where they are in the
/// buffer, and says how many it moved.
fn each_page(
    (offset, bytes): (u64, u64),
    mut one: impl FnMut(u64, Part) -> Result<u64, Errno>,
) -> Result<u64, Errno> {
    let mut done = 0;
    while done < bytes {
        match one(done, Part::of(offset + done, bytes - done)) {
            Ok(0) => break,
            Ok(moved) => done += moved,
            Err(why) if done == 0 => return Err(why),
            Err(_) => break,
        }
    }
    Ok(done)
}

impl<M: Machine, P: Paging> MemoryFile<'_, '_, M, P> {
    /// Reads its bytes from an offset on: `pread`. The answer is how many there were.
    pub fn pread(&self, into: &mut [u8], offset: i64) -> Result<u64, Errno> {
        self.pread_to(into.len() as u64, offset, |at, bytes| {
            into[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
            bytes.len()
        })
    }
    /// The same into a buffer of so many bytes that the embedder reaches: `put` moves bytes to
    /// where they belong behind the buffer's start, and says how many it moved.
    pub fn pread_to(
        &self,
        bytes: u64,
        offset: i64,
        mut put: impl FnMut(u64, &[u8]) -> usize,
    ) -> Result<u64, Errno> {
        let asked = asked(offset, bytes)?;
        let (mut near, mut far) = ([0; NEAR], None);
        let kept = room(bytes, &mut near, &mut far);
        each_page(asked, |done, part| {
            let left = self.bytes().saturating_sub(asked.0 + done);
            let bytes = part.bytes.min(left);
            if bytes == 0 {
                return Ok(0);
            }
            let kept = &mut kept[..bytes as usize];
            match self.page(part.page, Access::Read) {
                Ok(Some(page)) => page.read(part.at, kept),
                // No object has pages so far behind its beginning, or the file was just cut.
                Ok(None) | Err(NoPage::Beyond(_)) => kept.fill(0),
                Err(why) => return Err(why.into()),
            }
            moved(put(done, kept), bytes)
        })
    }

    /// Writes bytes to it from an offset on, and makes it longer where they end behind its end:
    /// `pwrite`. The answer is how many were written.
    pub fn pwrite(&self, from: &[u8], offset: i64) -> Result<u64, Errno> {
        self.pwrite_from(from.len() as u64, offset, |at, bytes| {
            bytes.copy_from_slice(&from[at as usize..at as usize + bytes.len()]);
            bytes.len()
        })
    }
    /// The same from a buffer of so many bytes that the embedder reaches: `get` fills bytes with
    /// what lies so far behind the buffer's start, and says how many it filled.
    pub fn pwrite_from(
        &self,
        bytes: u64,
        offset: i64,
        mut get: impl FnMut(u64, &mut [u8]) -> usize,
    ) -> Result<u64, Errno> {
        let asked = asked(offset, bytes)?;
        if self.page_bytes() > PAGE {
            return Err(Errno::INVAL); // huge pages are written to where they are mapped
        }
        let (mut near, mut far) = ([0; NEAR], None);
        let kept = room(bytes, &mut near, &mut far);
        each_page(asked, |done, part| {
            // Linux looks at the buffer before it looks at the file.
            let bytes = moved(get(done, &mut kept[..part.bytes as usize]), part.bytes)?;
            let part = Part { bytes, ..part };
            self.write_part(&part, asked.0 + done + bytes, &kept[..bytes as usize])
        })
    }
    /// Writes bytes of a page that end at an offset of the file.
    fn write_part(&self, part: &Part, end: u64, from: &[u8]) -> Result<u64, Errno> {
        let length = self.bytes();
        if self.has_seal(ANY_WRITE) || end > length && self.has_seal(F_SEAL_GROW) {
            return Err(Errno::PERM);
        }
        if end > length {
            self.make_room(end)?;
        }
        match self.page(part.page, Access::Write) {
            Ok(Some(page)) => page.write(part.at, from),
            Ok(None) => return Ok(0), // one that is to be written is made
            Err(why) => {
                self.make_room(length)?;
                return Err(why.into());
            }
        }
        self.set_bytes(end.max(length));
        Ok(part.bytes)
    }

    /// Clears the bytes of a range in the pages that it begins and ends in and does not cover,
    /// where they are there.
    pub(crate) fn clear_ends(&self, start: u64, end: u64) {
        for page in [start / PAGE, end / PAGE] {
            let from = start.max(page * PAGE);
            let part = Part::of(from, end.saturating_sub(from));
            if part.page == page
                && part.bytes < PAGE
                && let Ok(Some(kept)) = self.page(page, Access::Read)
            {
                kept.write(part.at, &ZEROS[..part.bytes as usize]);
            }
        }
    }
}
