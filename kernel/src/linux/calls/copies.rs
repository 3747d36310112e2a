//! Calls that move bytes from one file to another.

use super::super::content::Content;
use super::super::opened::{From, Opened};
use super::super::thread::Thread;
use super::super::transfer::Transfer;
use super::super::user;
use super::Answer;
use super::bytes::{opened, told};
use alloc::sync::Arc;
use foliant_linux::Errno;
use linux_raw_sys::errno::{EBADF, EINVAL, EISDIR};
use linux_raw_sys::general::O_APPEND;

type Six = [u64; 6];

/// Bytes that are moved at a time.
const PIECE: usize = 64 << 10;
/// Bytes that a call moves, at most.
const MOST: u64 = i32::MAX as u64 & !4095;

/// Where a side of a copy is: at an offset that a program keeps, or the file's position.
struct Side<'a> {
    opened: &'a Opened,
    /// Where the program keeps it.
    kept: u64,
    offset: u64,
}

impl<'a> Side<'a> {
    fn of(opened: &'a Opened, kept: u64) -> Result<Side<'a>, Errno> {
        let offset = match kept {
            0 => opened.with_position(|position| *position),
            kept => user::get(kept)?,
        };
        i64::try_from(offset).map_err(|_| Errno(EINVAL))?;
        Ok(Side { opened, kept, offset })
    }
    /// Notes how far it came.
    fn end(&self) -> Result<(), Errno> {
        match self.kept {
            0 => self.opened.with_position(|position| *position = self.offset),
            kept => user::put(kept, &self.offset)?,
        }
        Ok(())
    }
}

/// Moves bytes piece by piece, up to the end or the first that is refused.
fn copy(from: &mut Side, count: u64, mut put: impl FnMut(&mut [u8]) -> Answer) -> Answer {
    let mut piece = alloc::vec![0; PIECE.min(count as usize)];
    let (mut done, count) = (0, count.min(MOST));
    while done < count {
        let room = piece.len().min((count - done) as usize);
        let at = From::Offset(from.offset);
        let came = match from.opened.read(at, &mut Transfer::within(&mut piece[..room])) {
            Ok(0) => break,
            Ok(came) => came as usize,
            Err(why) if done == 0 => return Err(why),
            Err(_) => break,
        };
        let took = match put(&mut piece[..came]) {
            Ok(took) => took,
            Err(why) if done == 0 => return Err(why),
            Err(_) => break,
        };
        (done, from.offset) = (done + took, from.offset + took);
        if (took as usize) < came {
            break;
        }
    }
    Ok(done)
}

pub(super) fn sendfile(thread: &Arc<Thread>, [to, from, kept, count, ..]: Six) -> Answer {
    let (from, to) = (opened(thread, from)?, opened(thread, to)?);
    if !from.may_read() || !to.may_write() {
        return Err(Errno(EBADF));
    }
    if from.channel().is_some() || from.content().is_err() || to.flags() & O_APPEND != 0 {
        return Err(Errno(EINVAL));
    }
    let mut side = Side::of(&from, kept)?;
    let copied =
        copy(&mut side, count, |piece| to.write(From::Position, &mut Transfer::within(piece)));
    side.end()?;
    told(thread, copied)
}
pub(super) fn copy_file_range(
    thread: &Arc<Thread>,
    [from, from_at, to, to_at, count, flags]: Six,
) -> Answer {
    let (from, to) = (opened(thread, from)?, opened(thread, to)?);
    if flags != 0 {
        return Err(Errno(EINVAL));
    }
    for it in [&from, &to] {
        match it.content() {
            Ok(Content::Memory(_) | Content::Packed(_)) => {}
            Err(Errno(EISDIR)) => return Err(Errno(EISDIR)),
            _ => return Err(Errno(EINVAL)),
        }
    }
    if !from.may_read() || !to.may_write() || to.flags() & O_APPEND != 0 {
        return Err(Errno(EBADF));
    }
    let (mut side, mut other) = (Side::of(&from, from_at)?, Side::of(&to, to_at)?);
    let end = |side: &Side| side.offset.saturating_add(count);
    let overlaps = side.offset < end(&other) && other.offset < end(&side);
    if from.node == to.node && overlaps {
        return Err(Errno(EINVAL));
    }
    let copied = copy(&mut side, count, |piece| {
        let took = to.write(From::Offset(other.offset), &mut Transfer::within(piece))?;
        other.offset += took;
        Ok(took)
    });
    side.end()?;
    other.end()?;
    copied
}
