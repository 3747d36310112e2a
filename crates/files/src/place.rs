//! The place of a name: a folder, and the last part of a path, whether or not something is there.

use crate::facts::Owner;
use crate::id::NodeId;
use crate::refused::Refused;
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

/// Where a path ends: what [`Files::place`](crate::Files::place) finds, and what its caller may
/// do there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    pub(crate) folder: NodeId,
    pub(crate) last: Final,
    pub(crate) slash: Slash,
    pub(crate) node: Option<NodeId>,
    pub(crate) rights: Rights,
}

/// What the caller that found a place may do there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rights {
    /// Whose a new node is, and whose names go in a sticky folder.
    pub(crate) owner: Owner,
    /// Names of the folder may come and go.
    pub(crate) may_change: bool,
    /// What is there may be changed: where a folder moves, its `..` does.
    pub(crate) may_move: bool,
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
    /// Whether names of the folder may come and go.
    pub(crate) fn may_change(&self) -> Result<(), Refused> {
        if self.rights.may_change { Ok(()) } else { Err(Refused::Denied) }
    }
    /// Whether a folder that was found here may get another parent.
    pub(crate) fn may_move(&self, node: NodeId) -> Result<(), Refused> {
        let is_found = self.node == Some(node) || self.rights.owner.uid == Owner::ROOT.uid;
        if self.rights.may_move && is_found { Ok(()) } else { Err(Refused::Denied) }
    }
}
