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

impl Nanos {
    /// `n` nanoseconds.
    pub const fn new(n: u64) -> Nanos {
        Nanos(n)
    }
    /// The count of nanoseconds.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// The number of a CPU, counted from 0 without holes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
#[repr(transparent)]
pub struct Cpu(pub u16);

impl Cpu {
    /// CPU `n`.
    pub const fn new(n: u16) -> Cpu {
        Cpu(n)
    }
    /// The number.
    pub const fn get(self) -> u16 {
        self.0
    }
    /// The number as an index.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The number of a memory node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
#[repr(transparent)]
pub struct Node(pub u8);

impl Node {
    /// Node `n`.
    pub const fn new(n: u8) -> Node {
        Node(n)
    }
    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

const WORDS: usize = CPUS_MAX / 64;

/// A set of CPUs. What is done with one takes as long as the words need that members ever were in,
/// so that a machine of a few CPUs does not pay for a thousand.
#[derive(Clone, Copy, Default)]
pub struct CpuSet {
    words: [u64; WORDS],
    /// The words from here on are 0.
    used: usize,
}

impl CpuSet {
    /// No CPU at all.
    pub const EMPTY: CpuSet = CpuSet { words: [0; WORDS], used: 0 };

    /// The set of those below `count` (at most [`CPUS_MAX`]) whose bits are set in the words that
    /// `word` gives: bit `b` of word `w` is CPU `64 * w + b`.
    #[inline]
    pub fn below(count: usize, word: impl Fn(usize) -> u64) -> CpuSet {
        let count = count.min(CPUS_MAX);
        let mut set = CpuSet { words: [0; WORDS], used: count.div_ceil(64) };
        set.words[..set.used].iter_mut().enumerate().for_each(|(w, bits)| *bits = word(w));
        if !count.is_multiple_of(64) {
            set.words[set.used - 1] &= (1 << (count % 64)) - 1;
        }
        set
    }
    /// CPUs 0 to `count - 1`.
    pub fn first(count: usize) -> CpuSet {
        CpuSet::below(count, |_| !0)
    }
    /// Its bit words, as far as there may be members.
    #[inline]
    pub fn used(&self) -> &[u64] {
        &self.words[..self.used]
    }
    /// Adds `cpu`. Numbers from [`CPUS_MAX`] on are ignored.
    pub fn insert(&mut self, cpu: Cpu) {
        if let Some(word) = self.words.get_mut(cpu.index() / 64) {
            *word |= 1 << (cpu.index() % 64);
            self.used = self.used.max(cpu.index() / 64 + 1);
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
        for (word, more) in self.words.iter_mut().zip(other.used()) {
            *word |= more;
        }
        self.used = self.used.max(other.used);
    }
    /// How many members.
    pub fn len(&self) -> usize {
        // Most words are empty, and without POPCNT a count takes a dozen instructions.
        let some = self.used().iter().filter(|word| **word != 0);
        some.map(|word| word.count_ones() as usize).sum()
    }
    /// Whether there is no member.
    pub fn is_empty(&self) -> bool {
        self.used().iter().all(|w| *w == 0)
    }
    /// The members, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = Cpu> + '_ {
        self.used().iter().enumerate().flat_map(|(index, word)| {
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

impl PartialEq for CpuSet {
    fn eq(&self, other: &CpuSet) -> bool {
        self.words == other.words
    }
}

impl Eq for CpuSet {}

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
        for count in [0, 1, 63, 64, 65, 1023, 1024, 1025] {
            let first = CpuSet::first(count);
            assert!(first.iter().map(Cpu::index).eq(0..count.min(1024)), "{count}");
            assert_eq!((first.len(), first.is_empty()), (count.min(1024), count == 0));
        }
        // Members that went, or may come, make no difference.
        assert_eq!(CpuSet::below(1024, |w| u64::from(w == 0) << 5), CpuSet::below(6, |_| 1 << 5));
        let mut both = CpuSet::below(7, |_| 1 << 5);
        both.union(&set);
        assert!(both.iter().map(|c| c.0).eq([0, 5, 63, 1023]));
    }
}
