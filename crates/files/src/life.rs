//! How long a node lives (N2), and for what it is held (N8).

use crate::files::Files;
use crate::id::NodeId;
use crate::node::{Kind, Node, Unnamed};
use crate::refused::Refused;

/// What a node is held for, where others are refused for it (N8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Purpose {
    /// Its bytes are changed: it is open for writing, or its length is changed.
    Write,
    /// A program is run from it.
    Run,
}

impl Purpose {
    /// What one holder counts, up for those that write and down for those that run.
    fn step(self) -> i64 {
        match self {
            Purpose::Write => 1,
            Purpose::Run => -1,
        }
    }
}

impl<C> Files<C> {
    /// Notes that somebody holds a node, as an open descriptor or a current folder does: it stays
    /// there when its last name goes. An id that is gone is not held.
    pub fn hold(&mut self, node: NodeId) {
        if let Some(node) = self.node_mut(node) {
            node.holders += 1;
        }
    }

    /// Notes that a holder lets go. If that was the last one and the node has no name, it is gone,
    /// and a leaf's content is handed back. The same holds for a leaf that was made without a name
    /// and that nobody ever held.
    pub fn let_go(&mut self, node: NodeId) -> Option<C> {
        let held = self.node_mut(node)?;
        held.holders = held.holders.saturating_sub(1);
        self.settle(node)
    }

    /// Holds a node for a purpose. Refused as [`Refused::Runs`] or [`Refused::Written`] where it is
    /// held for the other one, and as [`Refused::NotFound`] if it is gone.
    pub fn hold_for(&mut self, id: NodeId, purpose: Purpose) -> Result<(), Refused> {
        let node = self.node_mut(id).ok_or(Refused::NotFound)?;
        match purpose {
            Purpose::Write if node.purposes < 0 => return Err(Refused::Runs),
            Purpose::Run if node.purposes > 0 => return Err(Refused::Written),
            Purpose::Write | Purpose::Run => node.purposes += purpose.step(),
        }
        self.hold(id);
        Ok(())
    }

    /// Notes that a holder for this purpose lets go, as [`let_go`](Files::let_go) does.
    pub fn let_go_for(&mut self, id: NodeId, purpose: Purpose) -> Option<C> {
        self.node_mut(id)?.purposes -= purpose.step();
        self.let_go(id)
    }

    /// Ends a node that nothing keeps, and the removed folders above it that only it kept.
    pub(crate) fn settle(&mut self, id: NodeId) -> Option<C> {
        let mut at = id;
        while self.is_forsaken(at) {
            match self.take(at)?.kind {
                Kind::Leaf(content) => return Some(content),
                Kind::Link(_) => return None,
                Kind::Folder(folder) => {
                    at = folder.parent;
                    self.known_folder(at).removed -= 1;
                }
            }
        }
        None
    }
    fn is_forsaken(&self, id: NodeId) -> bool {
        let removed_below = self.folder(id).map_or(0, |folder| folder.removed);
        let is_free = |node: &Node<C>| node.holders == 0 && node.seats.any().is_none();
        removed_below == 0 && id != self.root() && self.node(id).is_some_and(is_free)
    }

    /// Whether a node without a name may get one.
    pub(crate) fn may_be_named(&self, id: NodeId) -> bool {
        let may =
            |node: &Node<C>| node.seats.any().is_some() || node.unnamed == Unnamed::MayBeNamed;
        self.node(id).is_some_and(may)
    }
}
