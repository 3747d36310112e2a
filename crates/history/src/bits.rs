//! Bits of page-table words, as a bug sees them that is planted below the manager.

pub(crate) const PRESENT: u64 = 1;
pub(crate) const WRITE: u64 = 1 << 1;
pub(crate) const USER: u64 = 1 << 2;
pub(crate) const ACCESSED: u64 = 1 << 5;
pub(crate) const DIRTY: u64 = 1 << 6;
pub(crate) const LARGE: u64 = 1 << 7;
pub(crate) const NX: u64 = 1 << 63;
pub(crate) const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// Software bit of the shared zero page.
pub(crate) const SPECIAL: u64 = 1 << 55;

/// Of an aarch64 page: writable.
pub(crate) const DBM: u64 = 1 << 51;
/// One of a group of sixteen.
pub(crate) const CONTIGUOUS: u64 = 1 << 52;
/// In a word that is out of use: the leaf that it stands for was one of a group.
pub(crate) const WAS_GROUPED: u64 = 1 << (6 + 44 + 4);

/// Whether a word is a leaf of x86-64. A user leaf that is not executable is told from a table word
/// by NX.
pub(crate) fn is_leaf(word: u64) -> bool {
    word & (PRESENT | USER | NX) == PRESENT | USER | NX
}

/// Whether a word is a migration entry.
pub(crate) fn is_migration(word: u64) -> bool {
    word & PRESENT == 0 && word >> 1 & 31 == 3
}
