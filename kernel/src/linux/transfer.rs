//! The bytes that one call moves, buffer by buffer: from or to its program, or the kernel itself.
//!
//! **Invariants**
//! - R3. Where a buffer is out of reach the transfer ends: what was moved before counts.

use super::user::Buffer;
use crate::reach;
use alloc::vec::{self, Vec};
use foliant_linux::Errno;
use linux_raw_sys::errno::EFAULT;

/// Bytes that come or go, and where.
pub(super) struct Transfer<'a> {
    side: Side<'a>,
    left: usize,
}

enum Side<'a> {
    /// The rest of a buffer, and those behind it.
    Program(Buffer, vec::IntoIter<Buffer>),
    Kernel(&'a mut [u8]),
}

impl<'a> Transfer<'a> {
    /// From or to these buffers of the program.
    pub(super) fn of(buffers: Vec<Buffer>) -> Transfer<'a> {
        let left = buffers.iter().fold(0u64, |sum, buffer| sum.saturating_add(buffer.bytes));
        let mut rest = buffers.into_iter();
        let first = rest.next().unwrap_or(Buffer { at: 0, bytes: 0 });
        Transfer { side: Side::Program(first, rest), left: left as usize }
    }
    /// The same of one.
    pub(super) fn of_one(buffer: Buffer) -> Transfer<'a> {
        let side = Side::Program(buffer, Vec::new().into_iter());
        Transfer { side, left: buffer.bytes as usize }
    }
    /// From or to the kernel's own memory.
    pub(super) fn within(bytes: &'a mut [u8]) -> Transfer<'a> {
        Transfer { left: bytes.len(), side: Side::Kernel(bytes) }
    }

    /// Bytes that there is room for, or that are still to be taken.
    pub(super) fn left(&self) -> usize {
        self.left
    }
    /// Moves no more than so many.
    pub(super) fn limit(&mut self, most: usize) {
        self.left = self.left.min(most);
    }
    /// Puts bytes there; says how many came over.
    pub(super) fn put(&mut self, bytes: &[u8]) -> usize {
        self.each(bytes.len(), |piece, done| match piece {
            Piece::Program(at, count) => reach::put(at, &bytes[done..done + count]),
            Piece::Kernel(room) => {
                room.copy_from_slice(&bytes[done..done + room.len()]);
                room.len()
            }
        })
    }
    /// Takes bytes from there; says how many came over.
    pub(super) fn take(&mut self, into: &mut [u8]) -> usize {
        self.each(into.len(), |piece, done| match piece {
            Piece::Program(at, count) => reach::get(&mut into[done..done + count], at),
            Piece::Kernel(from) => {
                into[done..done + from.len()].copy_from_slice(from);
                from.len()
            }
        })
    }
    /// Puts all of these bytes there that have room.
    pub(super) fn put_all(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        match self.put(bytes) {
            0 if !bytes.is_empty() && self.left > 0 => Err(Errno(EFAULT)),
            count => Ok(count),
        }
    }
    /// Takes as many bytes as there are, up to so many; refused where none is within reach.
    pub(super) fn take_some(&mut self, into: &mut [u8]) -> Result<usize, Errno> {
        let count = into.len().min(self.left);
        match self.take(&mut into[..count]) {
            0 if count > 0 => Err(Errno(EFAULT)),
            count => Ok(count),
        }
    }

    /// Hands on all that is left, in pieces of `N` bytes. `put` takes some of what it is handed and
    /// is handed the rest; where it refuses, what went before counts.
    pub(super) fn hand_on<const N: usize>(
        &mut self,
        mut put: impl FnMut(&[u8]) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let mut piece = [0; N];
        let mut done = 0;
        while self.left > 0 {
            let mut rest = match self.take_some(&mut piece) {
                Ok(count) => &piece[..count],
                Err(why) if done == 0 => return Err(why),
                Err(_) => break,
            };
            while !rest.is_empty() {
                match put(rest) {
                    Ok(some) => (done, rest) = (done + some, &rest[some..]),
                    Err(why) if done == 0 => return Err(why),
                    Err(_) => return Ok(done),
                }
            }
        }
        Ok(done)
    }

    /// Goes along the buffers for so many bytes, as far as they are within reach (R3).
    fn each(&mut self, most: usize, mut one: impl FnMut(Piece, usize) -> usize) -> usize {
        let most = most.min(self.left);
        let mut done = 0;
        while done < most {
            let (wanted, moved) = match &mut self.side {
                Side::Program(now, rest) => {
                    while now.bytes == 0 {
                        let Some(next) = rest.next() else { return done };
                        *now = next;
                    }
                    let count = (most - done).min(now.bytes as usize);
                    let moved = one(Piece::Program(now.at, count), done);
                    now.at = now.at.wrapping_add(moved as u64);
                    now.bytes -= moved as u64;
                    (count, moved)
                }
                Side::Kernel(bytes) => {
                    let (first, rest) = core::mem::take(bytes).split_at_mut(most - done);
                    *bytes = rest;
                    (first.len(), one(Piece::Kernel(first), done))
                }
            };
            done += moved;
            self.left -= moved;
            if moved < wanted {
                break;
            }
        }
        done
    }
}

/// Bytes of one buffer.
enum Piece<'a> {
    Program(u64, usize),
    Kernel(&'a mut [u8]),
}
