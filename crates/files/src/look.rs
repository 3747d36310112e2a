//! What a node is, and what is known of it.

use crate::facts::Facts;
use crate::files::Files;
use crate::id::NodeId;
use crate::node::{Kind, Node};
use crate::refused::Refused;
use alloc::vec::Vec;
use linux_raw_sys::general::S_IFMT;

impl<C> Files<C> {
    /// What is known of a node; nothing, if it is gone.
    pub fn facts(&self, node: NodeId) -> Option<Facts> {
        Some(self.node(node)?.facts)
    }

    /// Lets `change` change what is known of a node: permission bits, owner, times. Its kind and
    /// its links stay what they are (N4), whatever `change` does to them.
    ///
    /// # Errors
    ///
    /// [`Refused::NotFound`] if the node is gone.
    pub fn change_facts(
        &mut self,
        node: NodeId,
        change: impl FnOnce(&mut Facts),
    ) -> Result<(), Refused> {
        let Node { facts, .. } = self.node_mut(node).ok_or(Refused::NotFound)?;
        let before = *facts;
        change(facts);
        facts.links = before.links;
        facts.mode = before.mode & S_IFMT | facts.mode & !S_IFMT;
        Ok(())
    }

    /// The content of a leaf.
    pub fn leaf(&self, node: NodeId) -> Option<&C> {
        match &self.node(node)?.kind {
            Kind::Leaf(content) => Some(content),
            Kind::Folder(_) | Kind::Link(_) => None,
        }
    }
    /// The content of a leaf, to be changed.
    pub fn leaf_mut(&mut self, node: NodeId) -> Option<&mut C> {
        match &mut self.node_mut(node)?.kind {
            Kind::Leaf(content) => Some(content),
            Kind::Folder(_) | Kind::Link(_) => None,
        }
    }
    /// The contents of all leaves, with a name or without, in no order.
    pub fn leaves(&self) -> impl Iterator<Item = &C> {
        self.nodes().filter_map(|node| match &node.kind {
            Kind::Leaf(content) => Some(content),
            Kind::Folder(_) | Kind::Link(_) => None,
        })
    }
    /// The text of a symbolic link.
    pub fn link_text(&self, node: NodeId) -> Option<&[u8]> {
        match &self.node(node)?.kind {
            Kind::Link(text) => Some(text),
            Kind::Folder(_) | Kind::Leaf(_) => None,
        }
    }
    /// Whether it is a folder. One that was removed and is held still is.
    pub fn is_folder(&self, node: NodeId) -> bool {
        self.folder(node).is_some()
    }
    /// What fills a folder that is not filled yet ([`Files::put_off`]).
    pub fn due(&self, node: NodeId) -> Option<&C> {
        self.node(node)?.due.as_ref()
    }
    /// The folder that `..` leads to. The root's is the root, and a removed folder's is the one
    /// that it was in (N5).
    pub fn parent(&self, folder: NodeId) -> Option<NodeId> {
        Some(self.folder(folder)?.parent)
    }

    /// A folder that a node has a name in. A node without a name is in none.
    pub fn folder_of(&self, node: NodeId) -> Option<NodeId> {
        Some(self.node(node)?.seats.any()?.0)
    }

    /// A path from the root to a node, by any of its names: what `getcwd` tells, or a link of
    /// `/proc`. A node without a name has none, nor has one that is gone.
    pub fn path_of(&self, node: NodeId) -> Option<Vec<u8>> {
        let (mut at, mut names) = (node, Vec::new());
        while at != self.root() {
            let (folder, cookie) = self.node(at)?.seats.any()?;
            names.push(self.folder(folder)?.names.name(cookie)?);
            at = folder;
        }
        let mut path = Vec::new();
        for name in names.into_iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        if path.is_empty() {
            path.push(b'/');
        }
        Some(path)
    }
}
