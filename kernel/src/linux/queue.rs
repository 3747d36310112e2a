//! Bytes on their way through the kernel, up to a bound.
//!
//! **Locking**: its owner's lock. Bytes go to a program under it: no fault takes it.

use super::transfer::Transfer;
use crate::heap;
use alloc::collections::VecDeque;
use foliant_linux::Errno;

/// Room that a queue keeps while it is empty.
const KEPT: usize = 4096;

/// Bytes on their way.
pub(super) struct Queue {
    bytes: VecDeque<u8>,
    most: usize,
}

impl Queue {
    /// One of at most so many bytes.
    pub(super) const fn of(most: usize) -> Queue {
        Queue { bytes: VecDeque::new(), most }
    }
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
    /// Bytes that there is room for.
    pub(super) fn room(&self) -> usize {
        self.most.saturating_sub(self.bytes.len())
    }
    /// Bytes that it may have.
    pub(super) fn most(&self) -> usize {
        self.most
    }
    /// Gives it another bound; what is there stays.
    pub(super) fn set_most(&mut self, most: usize) {
        self.most = most;
    }
    /// Puts as many bytes behind the others as there is room for; says how many.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        let count = bytes.len().min(self.room());
        if self.bytes.capacity() - self.bytes.len() < count {
            if heap::is_low() {
                return Err(Errno::NOMEM);
            }
            self.bytes.try_reserve(count).map_err(|_| Errno::NOMEM)?;
        }
        self.bytes.extend(&bytes[..count]);
        Ok(count)
    }
    /// Copies the first bytes behind so many others; they stay.
    pub(super) fn peek(&self, from: usize, into: &mut Transfer) -> Result<usize, Errno> {
        let (first, second) = self.bytes.as_slices();
        let skip = |slice: &[u8], by: usize| slice.len().min(by);
        let first_from = skip(first, from);
        let first = &first[first_from..];
        let second = &second[skip(second, from - first_from)..];
        let done = match into.left().min(first.len()) {
            0 => 0,
            count => into.put_all(&first[..count])?,
        };
        if done < first.len() || into.left() == 0 {
            return Ok(done);
        }
        let count = into.left().min(second.len());
        match into.put(&second[..count]) {
            0 if done == 0 && count > 0 => Err(Errno::FAULT),
            count => Ok(done + count),
        }
    }
    /// Takes so many of the first bytes away.
    pub(super) fn skip(&mut self, count: usize) {
        self.bytes.drain(..count.min(self.bytes.len()));
        if self.bytes.is_empty() && self.bytes.capacity() > KEPT {
            self.bytes = VecDeque::new();
        }
    }
    /// Moves the first bytes there; those that are out of reach stay.
    pub(super) fn take(&mut self, into: &mut Transfer) -> Result<usize, Errno> {
        let count = self.peek(0, into)?;
        self.skip(count);
        Ok(count)
    }
}
