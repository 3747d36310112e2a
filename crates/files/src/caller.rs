//! The caller that walks a path or changes names: what links say to it, and what it may do.

use crate::facts::{Facts, Owner};
use alloc::vec::Vec;

/// The one that walks.
///
/// A closure that gives the text of links is a caller that may do everything, and whose new nodes
/// are root's: the embedder itself.
pub trait Caller<C> {
    /// The text of a leaf that is a link, for one whose text depends on who asks, as that of
    /// `/proc/self` does: a leaf for which there is a text is walked like a symbolic link.
    fn link(&self, leaf: &C) -> Option<Vec<u8>>;
    /// Whether a node with these facts lets the caller do `wanted` with it: any of `R_OK`, `W_OK`
    /// and `X_OK`. A walk wants `X_OK` of each folder in which it looks for a name, and a change of
    /// names `W_OK` as well.
    fn may(&self, facts: &Facts, wanted: u32) -> bool;
    /// Whose the nodes are that the caller makes. In a folder with the sticky bit, the caller takes
    /// no names but of nodes with this user, or all where the folder is this user's.
    fn owner(&self) -> Owner;
}

impl<C, F: Fn(&C) -> Option<Vec<u8>>> Caller<C> for F {
    fn link(&self, leaf: &C) -> Option<Vec<u8>> {
        self(leaf)
    }
    fn may(&self, _: &Facts, _: u32) -> bool {
        true
    }
    fn owner(&self) -> Owner {
        Owner::ROOT
    }
}
