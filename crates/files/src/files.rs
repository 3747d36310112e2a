//! The slab that keeps the nodes.

use crate::facts::{Facts, Owner, Time};
use crate::folder::Folder;
use crate::id::NodeId;
use crate::node::{Kind, Node};
use alloc::vec::Vec;
use linux_raw_sys::general::S_IFDIR;

/// Room for a node, and how many nodes were in it before.
#[derive(Debug)]
struct Slot<C> {
    generation: u32,
    node: Option<Node<C>>,
}

/// The names and folders of a file system, and the contents behind them.
#[derive(Debug)]
pub struct Files<C> {
    slots: Vec<Slot<C>>,
    free: Vec<u32>,
    root: NodeId,
}

impl<C> Files<C> {
    /// An empty root folder of mode 0755, which is root's.
    pub fn new(now: Time) -> Files<C> {
        let root = NodeId { slot: 0, generation: 0 };
        let node = Node::new(
            Facts::new(S_IFDIR | 0o755, 2, Owner::ROOT, now),
            Kind::Folder(Folder::new(root)),
        );
        let slots = Vec::from([Slot { generation: 0, node: Some(node) }]);
        Files { slots, free: Vec::new(), root }
    }

    /// The root folder.
    pub fn root(&self) -> NodeId {
        self.root
    }

    pub(crate) fn node(&self, id: NodeId) -> Option<&Node<C>> {
        let slot = self.slots.get(id.slot as usize)?;
        slot.node.as_ref().filter(|_| slot.generation == id.generation)
    }
    pub(crate) fn node_mut(&mut self, id: NodeId) -> Option<&mut Node<C>> {
        let slot = self.slots.get_mut(id.slot as usize)?;
        slot.node.as_mut().filter(|_| slot.generation == id.generation)
    }
    pub(crate) fn folder(&self, id: NodeId) -> Option<&Folder> {
        self.node(id)?.folder()
    }
    /// All nodes.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = &Node<C>> {
        self.slots.iter().filter_map(|slot| slot.node.as_ref())
    }
    /// A node that an invariant says is there.
    pub(crate) fn known(&mut self, id: NodeId) -> &mut Node<C> {
        self.node_mut(id).expect("N2: a node with a name, or a removed folder's parent")
    }
    /// A folder that an invariant says is there.
    pub(crate) fn known_folder(&mut self, id: NodeId) -> &mut Folder {
        self.known(id).folder_mut().expect("N3, N5: names and removed folders are of folders")
    }

    /// Puts a node into a slot.
    pub(crate) fn insert(&mut self, node: Node<C>) -> NodeId {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.node = Some(node);
            return NodeId { slot: index, generation: slot.generation };
        }
        let index = u32::try_from(self.slots.len()).ok().filter(|index| *index < u32::MAX);
        let index = index.expect("memory runs out before the numbers of slots do");
        self.slots.push(Slot { generation: 0, node: Some(node) });
        NodeId { slot: index, generation: 0 }
    }
    /// Takes a node out. Its slot is used again as long as there are generations (N1).
    pub(crate) fn take(&mut self, id: NodeId) -> Option<Node<C>> {
        self.node(id)?;
        let slot = &mut self.slots[id.slot as usize];
        let node = slot.node.take();
        if let Some(next) = slot.generation.checked_add(1) {
            slot.generation = next;
            self.free.push(id.slot);
        }
        node
    }
    /// The ids of all nodes that are there: for the tests of N1.
    #[cfg(test)]
    pub(crate) fn ids(&self) -> impl Iterator<Item = NodeId> {
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| slot.node.is_some());
        slots.map(|(index, slot)| NodeId { slot: index as u32, generation: slot.generation })
    }
    /// Makes the next node of a free slot the last one that it can have.
    #[cfg(test)]
    pub(crate) fn age(&mut self) {
        for index in &self.free {
            self.slots[*index as usize].generation = u32::MAX;
        }
    }
}
