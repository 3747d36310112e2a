//! Counts and small identities: pages, CPUs, nodes, nanoseconds.

use crate::{Bytes, CPUS_MAX, FRAME_BYTES};
use core::fmt;

/// A count of 4 KiB pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
#[repr(transparent)]
pub struct Pages(u64);

impl Pages {
    /// `n` pages.
    pub const fn new(n: u64) -> Pages {
        Pages(n)
    }
    /// The count.
    pub const fn get(self) -> u64 {
        self.0
    }
    /// The bytes that so many pages hold.
    pub const fn bytes(self) -> Bytes {
        Bytes::new(self.0 * FRAME_BYTES)
    }
}

/// A span of time, or an instant on a machine's clock, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
#[repr(transparent)]
pub struct Nanos(pub u64);

/// The number of a CPU, counted from 0 without holes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
#[repr(transparent)]
pub struct Cpu(pub u16);

impl Cpu {
    /// The number as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The number of a memory node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
#[repr(transparent)]
pub struct Node(pub u8);

const WORDS: usize = CPUS_MAX / 64;

/// A set of CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuSet {
    words: [u64; WORDS],
}

impl CpuSet {
    /// No CPU at all.
    pub const EMPTY: CpuSet = CpuSet { words: [0; WORDS] };

    /// A set from its bit words: bit `b` of word `w` is CPU `64 * w + b`.
    pub const fn from_words(words: [u64; CPUS_MAX / 64]) -> CpuSet {
        CpuSet { words }
    }
    /// Its bit words, as [`from_words`](CpuSet::from_words) takes them.
    pub const fn words(&self) -> &[u64; CPUS_MAX / 64] {
        &self.words
    }
    /// CPUs 0 to `count - 1`.
    pub fn first(count: usize) -> CpuSet {
        let mut set = CpuSet::EMPTY;
        for cpu in 0..count.min(CPUS_MAX) {
            set.insert(Cpu(cpu as u16));
        }
        set
    }
    /// Adds `cpu`. Numbers from [`CPUS_MAX`] on are ignored.
    pub fn insert(&mut self, cpu: Cpu) {
        if let Some(word) = self.words.get_mut(cpu.index() / 64) {
            *word |= 1 << (cpu.index() % 64);
        }
    }
    /// Takes `cpu` out.
    pub fn remove(&mut self, cpu: Cpu) {
        if let Some(word) = self.words.get_mut(cpu.index() / 64) {
            *word &= !(1 << (cpu.index() % 64));
        }
    }
    /// Whether `cpu` is a member.
    pub fn contains(&self, cpu: Cpu) -> bool {
        self.words.get(cpu.index() / 64).is_some_and(|w| w >> (cpu.index() % 64) & 1 == 1)
    }
    /// Adds every member of `other`.
    pub fn union(&mut self, other: &CpuSet) {
        for (word, more) in self.words.iter_mut().zip(other.words) {
            *word |= more;
        }
    }
    /// How many members.
    pub fn len(&self) -> usize {
        // Most words are empty, and without POPCNT a count takes a dozen instructions.
        let some = self.words.iter().filter(|word| **word != 0);
        some.map(|word| word.count_ones() as usize).sum()
    }
    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|w| *w == 0)
    }
    /// The members, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = Cpu> + '_ {
        self.words.iter().enumerate().flat_map(|(index, word)| {
            let mut left = *word;
            core::iter::from_fn(move || {
                if left == 0 {
                    return None;
                }
                let bit = left.trailing_zeros();
                left &= left - 1;
                Some(Cpu((index * 64) as u16 + bit as u16))
            })
        })
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|c| c.0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_inserted_and_nothing_else() {
        let mut set = CpuSet::EMPTY;
        for cpu in [0, 63, 64, 1023] {
            set.insert(Cpu(cpu));
        }
        set.insert(Cpu(1024));
        assert_eq!(set.len(), 4);
        assert!(set.iter().map(|c| c.0).eq([0, 63, 64, 1023]));
        set.remove(Cpu(64));
        assert!(!set.contains(Cpu(64)) && set.contains(Cpu(63)) && !set.contains(Cpu(1024)));
        assert_eq!(CpuSet::first(65).len(), 65);
    }
}
