//! The place of a name: a folder, and the last part of a path, whether or not something is there.

use crate::id::NodeId;
use alloc::vec::Vec;

/// The last part of a path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Final {
    /// A name. It may have more bytes than a name may have; whoever looks it up is told.
    Name(Vec<u8>),
    /// `.`: the folder itself.
    Dot,
    /// `..`: the folder above.
    DotDot,
    /// None at all: the path is nothing but slashes.
    Root,
}

/// Whether slashes come behind the last part of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slash {
    /// At least one.
    Yes,
    /// None.
    No,
}

/// Where a path ends: what [`Files::place`](crate::Files::place) finds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    pub(crate) folder: NodeId,
    pub(crate) last: Final,
    pub(crate) slash: Slash,
    pub(crate) node: Option<NodeId>,
}

impl Place {
    /// The folder that the last part is looked up in.
    pub fn folder(&self) -> NodeId {
        self.folder
    }
    /// The last part.
    pub fn last(&self) -> &Final {
        &self.last
    }
    /// Whether slashes came behind it.
    pub fn slash(&self) -> Slash {
        self.slash
    }
    /// What was there when the place was found.
    pub fn node(&self) -> Option<NodeId> {
        self.node
    }
}
