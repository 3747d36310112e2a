//! What a program gets of what was typed.

use crate::discipline::Discipline;

/// What a read got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Read {
    /// Bytes of it.
    pub count: usize,
    /// The line goes on behind them, or its end is still to be looked at: whoever has got all that
    /// it wants reads no bytes once more.
    pub goes_on: bool,
}

impl Discipline {
    /// Takes bytes: of a line, up to its end.
    pub fn read(&mut self, into: &mut [u8]) -> Read {
        if !self.is_canonical() {
            let count = into.len().min((self.commit - self.tail) as usize);
            for (to, kept) in into.iter_mut().zip(self.bytes.drain(..count)) {
                *to = kept.byte;
            }
            self.tail += count as u64;
            return Read { count, goes_on: false };
        }
        let mut count = 0;
        while self.tail != self.canon {
            let Some(kept) = self.bytes.front().copied() else { break };
            if count == into.len() && !kept.is_end() {
                // What was asked for is there; an end of the line would have gone with it.
                return Read { count, goes_on: count > 0 };
            }
            self.bytes.pop_front();
            self.tail += 1;
            if !kept.is_end() {
                into[count] = kept.byte;
                count += 1;
            }
            if kept.ends {
                break;
            }
        }
        Read { count, goes_on: false }
    }
}
