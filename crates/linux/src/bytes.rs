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
//! **Locking.** As for lengths (`file`). A read may run beside all of them.
//!
//! **Not here**: a descriptor's position, with which `read` and `write` are these; buffers in the
//! memory of a program, which the embedder copies; the limit on the sizes of files.

use crate::errno::Errno;
use crate::fcntl::ANY_WRITE;
use crate::file::{LENGTH_MAX, MemoryFile};
use crate::pages::PAGE;
use foliant::Access;
use foliant::manager::NoPage;
use foliant::table::Paging;
use foliant_machine::Machine;
use foliant_units::Bytes;
use linux_raw_sys::general::F_SEAL_GROW;

/// The most bytes that one call moves: Linux's `MAX_RW_COUNT`.
const MOVED_MAX: u64 = i32::MAX as u64 & !(PAGE - 1);

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

/// Where a call begins, and how many bytes it may move.
fn asked(offset: i64, bytes: usize) -> Result<(u64, u64), Errno> {
    let (offset, bytes) = (u64::try_from(offset).map_err(|_| Errno::INVAL)?, bytes as u64);
    if offset.checked_add(bytes).is_none_or(|end| end > LENGTH_MAX) {
        return Err(Errno::INVAL);
    }
    Ok((offset, bytes.min(MOVED_MAX)))
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
        let asked = asked(offset, into.len())?;
        self.is_of_small_pages()?;
        each_page(asked, |done, part| {
            let left = self.bytes().saturating_sub(asked.0 + done);
            let bytes = part.bytes.min(left);
            let into = &mut into[done as usize..(done + bytes) as usize];
            match self.page(part.page, Access::Read) {
                Ok(Some(page)) => page.read(part.at, into),
                // No object has pages so far behind its beginning, or the file was just cut.
                Ok(None) | Err(NoPage::Beyond(_)) => into.fill(0),
                Err(why) => return Err(why.into()),
            }
            Ok(bytes)
        })
    }

    /// Writes bytes to it from an offset on, and makes it longer where they end behind its end:
    /// `pwrite`. The answer is how many were written.
    pub fn pwrite(&self, from: &[u8], offset: i64) -> Result<u64, Errno> {
        let asked = asked(offset, from.len())?;
        self.is_of_small_pages()?;
        each_page(asked, |done, part| {
            let end = asked.0 + done + part.bytes;
            self.write_part(&part, end, &from[done as usize..(done + part.bytes) as usize])
        })
    }
    /// Refuses a file of huge pages: its bytes are seen where it is mapped alone.
    fn is_of_small_pages(&self) -> Result<(), Errno> {
        if self.page_bytes() > PAGE { Err(Errno::INVAL) } else { Ok(()) }
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
