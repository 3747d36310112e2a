//! Bytes that are moved piece by piece, through a buffer of the kernel's.

use super::content::{Device, Positioned, Text};
use super::random;
use alloc::sync::Arc;
use alloc::vec::Vec;
use foliant_linux::Errno;
use linux_raw_sys::errno::{EFAULT, EINVAL};

/// Bytes of a piece.
pub(super) const PIECE: usize = 4096;

impl Device {
    pub(super) fn read(
        self,
        bytes: u64,
        mut put: impl FnMut(u64, &[u8]) -> usize,
    ) -> Result<u64, Errno> {
        let mut piece = [0; PIECE];
        let mut done = 0;
        if self == Device::Userfault {
            return Err(Errno(EINVAL));
        }
        while done < bytes && self != Device::Null {
            let count = piece.len().min((bytes - done) as usize);
            if self == Device::Random {
                random::fill(&mut piece[..count]);
            }
            let came = put(done, &piece[..count]);
            done += came as u64;
            if came < count {
                return if done == 0 { Err(Errno(EFAULT)) } else { Ok(done) };
            }
        }
        Ok(done)
    }
}

/// Reads bytes at a position, piece by piece.
pub(super) fn read_at(
    it: &dyn Positioned,
    offset: u64,
    bytes: u64,
    mut put: impl FnMut(u64, &[u8]) -> usize,
) -> Result<u64, Errno> {
    in_pieces((it, offset, bytes), |done, piece| {
        let count = it.read(offset.wrapping_add(done), piece)?;
        let came = put(done, &piece[..count]);
        if came == 0 && count > 0 { Err(Errno(EFAULT)) } else { Ok(came) }
    })
}
/// Writes bytes at a position, piece by piece.
pub(super) fn write_at(
    it: &dyn Positioned,
    offset: u64,
    bytes: u64,
    mut get: impl FnMut(u64, &mut [u8]) -> usize,
) -> Result<u64, Errno> {
    in_pieces((it, offset, bytes), |done, piece| match get(done, piece) {
        0 => Err(Errno(EFAULT)),
        came => it.write(offset.wrapping_add(done), &piece[..came]),
    })
}
/// Moves bytes piece by piece, up to the first piece that is not moved as a whole.
fn in_pieces(
    (it, offset, bytes): (&dyn Positioned, u64, u64),
    mut one: impl FnMut(u64, &mut [u8]) -> Result<usize, Errno>,
) -> Result<u64, Errno> {
    if !offset.is_multiple_of(it.unit()) || !bytes.is_multiple_of(it.unit()) {
        return Err(Errno(EINVAL));
    }
    let mut piece = [0; PIECE];
    let mut done = 0;
    while done < bytes {
        let room = piece.len().min((bytes - done) as usize);
        match one(done, &mut piece[..room]) {
            Ok(moved) => {
                done += moved as u64;
                if moved < room {
                    break;
                }
            }
            Err(why) if done == 0 => return Err(why),
            Err(_) => break,
        }
    }
    Ok(done)
}
/// The piece of a text that was read last. It stays what it is, until the text is read from its
/// beginning again.
#[derive(Clone)]
pub(super) struct Shown {
    bytes: Arc<Vec<u8>>,
    /// Where it begins in the text.
    start: u64,
    /// The key of the piece behind it.
    next: Option<u64>,
}

impl Shown {
    /// The piece with an offset, or the last one where the text ends before; from what was read
    /// last.
    pub(super) fn at(offset: u64, text: &dyn Text, last: Option<Shown>) -> Result<Shown, Errno> {
        let mut shown = match last.filter(|last| offset > 0 && offset >= last.start) {
            Some(last) => last,
            None => {
                let (bytes, next) = text.piece(0)?;
                Shown { bytes: Arc::new(bytes), start: 0, next }
            }
        };
        while let Some(key) = shown.next.filter(|_| offset >= shown.end()) {
            let (bytes, next) = text.piece(key)?;
            shown = Shown { start: shown.end(), bytes: Arc::new(bytes), next };
        }
        Ok(shown)
    }
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
    /// Its bytes from an offset of the text on.
    pub(super) fn slice(&self, offset: u64, bytes: u64) -> &[u8] {
        slice(&self.bytes, offset - self.start, bytes)
    }
}

/// The bytes of a text that a read from an offset on gets.
pub(super) fn slice(text: &[u8], offset: u64, bytes: u64) -> &[u8] {
    let start = (text.len() as u64).min(offset) as usize;
    let left = &text[start..];
    &left[..left.len().min(bytes as usize)]
}
/// Puts bytes, and says how many came over.
pub(super) fn moved(bytes: &[u8], mut put: impl FnMut(u64, &[u8]) -> usize) -> Result<u64, Errno> {
    match put(0, bytes) {
        0 if !bytes.is_empty() => Err(Errno(EFAULT)),
        count => Ok(count as u64),
    }
}
