//! How long a node lives (N2).

use crate::files::Files;
use crate::id::NodeId;
use crate::node::{Kind, Node, Unnamed};

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
