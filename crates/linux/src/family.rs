//! The families of a process, and how far its areas were moved.
//!
//! Linux finds who maps a page by the *family* of its area (its name there: anon_vma). Pages keep
//! their place among those of their family when they move, so a displacement stays with them.
//!
//! **Not here**: which areas are one by that (`join`).

use crate::vma::{Family, Moved, Tag};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Families and displacements of a process, by number.
#[derive(Clone, Default, Debug)]
pub(crate) struct Families {
    /// The last number given to a family. Where numbers run out, the last one is given again: areas
    /// are one then that are two to Linux.
    last: u32,
    /// Families up to this one came with a fork.
    inherited: u32,
    /// Displacements in bytes, modulo 2^64; the first has number 1.
    moves: Vec<u64>,
    numbers: BTreeMap<u64, Moved>,
}

impl Families {
    /// A new family.
    pub(crate) fn found(&mut self) -> Family {
        self.last = (self.last + 1).min(Tag::NUMBER_MAX);
        Family(self.last)
    }
    /// All families that there are came with a fork.
    pub(crate) fn all_inherited(&mut self) {
        self.inherited = self.last;
    }
    /// Whether a family came with a fork.
    pub(crate) fn is_inherited(&self, family: Family) -> bool {
        family.0 <= self.inherited
    }
    /// What `moved` becomes by another move.
    pub(crate) fn further(&mut self, moved: Moved, from: u64, to: u64) -> Moved {
        let so_far = moved.0.checked_sub(1).map_or(0, |nth| self.moves[nth as usize]);
        let bytes = so_far.wrapping_add(to.wrapping_sub(from));
        if bytes == 0 {
            return Moved::default();
        }
        if let Some(known) = self.numbers.get(&bytes) {
            return *known;
        }
        if self.moves.len() < Tag::NUMBER_MAX as usize {
            self.moves.push(bytes);
        }
        let number = Moved(self.moves.len() as u32);
        self.numbers.insert(bytes, number);
        number
    }
    /// Whether two vmas that touch and are equal in all but their families are one.
    pub(crate) fn are_one(&self, a: Family, b: Family) -> bool {
        match (a, b) {
            (Family(0), Family(0)) => true,
            (Family(0), one) | (one, Family(0)) => !self.is_inherited(one),
            _ => a == b,
        }
    }
}
