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
            if heap::is_scarce() {
                return Err(Errno::NOMEM);
            }
            self.bytes.try_reserve(count).map_err(|_| Errno::NOMEM)?;
        }
        self.bytes.extend(&bytes[..count]);
        Ok(count)
    }
    /// Copies so many of the first bytes, as far as there is room; they stay.
    pub(super) fn peek(&self, most: usize, into: &mut Transfer) -> Result<usize, Errno> {
        let (first, second) = self.bytes.as_slices();
        let count = most.min(into.left()).min(self.bytes.len());
        let of_first = count.min(first.len());
        let mut done = into.put(&first[..of_first]);
        if done == of_first {
            done += into.put(&second[..count - of_first]);
        }
        if done == 0 && count > 0 { Err(Errno::FAULT) } else { Ok(done) }
    }
    /// Keeps so many of the first bytes.
    pub(super) fn truncate(&mut self, count: usize) {
        self.bytes.truncate(count);
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
        let count = self.peek(usize::MAX, into)?;
        self.skip(count);
        Ok(count)
    }
}
