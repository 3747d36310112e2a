//! The name that a node has here.

/// Which node (N1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId {
    pub(crate) slot: u32,
    /// How many nodes were in the slot before.
    pub(crate) generation: u32,
}

impl NodeId {
    /// The number that `stat` and `getdents64` show. It is never 0, and never another node's.
    pub const fn inode(self) -> u64 {
        (self.generation as u64) << 32 | (self.slot as u64 + 1)
    }
}
