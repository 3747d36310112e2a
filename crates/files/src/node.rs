//! A node: a folder, a symbolic link or a leaf, and where it has its names.

use crate::facts::Facts;
use crate::folder::Folder;
use crate::id::NodeId;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// What a node is made as.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body<C> {
    /// A folder.
    Folder,
    /// A symbolic link with this text.
    Link(Vec<u8>),
    /// Anything else, with its content.
    Leaf(C),
}

/// What a node is.
#[derive(Debug)]
pub(crate) enum Kind<C> {
    Folder(Folder),
    Link(Box<[u8]>),
    Leaf(C),
}

/// Where a node has a name: the folder, and the cookie there.
pub(crate) type Seat = (NodeId, u64);

/// All names of a node (N3). Most nodes have one.
#[derive(Default, Debug)]
pub(crate) struct Seats {
    one: Option<Seat>,
    more: BTreeSet<Seat>,
}

impl Seats {
    pub(crate) fn add(&mut self, seat: Seat) {
        match self.one {
            None => self.one = Some(seat),
            Some(_) => {
                self.more.insert(seat);
            }
        }
    }
    pub(crate) fn remove(&mut self, seat: Seat) {
        if self.one == Some(seat) {
            self.one = self.more.pop_first();
        } else {
            self.more.remove(&seat);
        }
    }
    pub(crate) fn any(&self) -> Option<Seat> {
        self.one
    }
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        usize::from(self.one.is_some()) + self.more.len()
    }
}

/// Whether a node without a name may get one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unnamed {
    /// It was made so.
    MayBeNamed,
    /// It had one.
    Stays,
}

/// A node.
#[derive(Debug)]
pub(crate) struct Node<C> {
    pub(crate) facts: Facts,
    pub(crate) kind: Kind<C>,
    pub(crate) seats: Seats,
    pub(crate) holders: u64,
    /// Of the holders, those that write, or less than 0: those that run a program (N8).
    pub(crate) purposes: i64,
    pub(crate) unnamed: Unnamed,
    /// Of a folder that is filled when somebody looks into it: what fills it (N7).
    pub(crate) due: Option<C>,
}

impl<C> Node<C> {
    pub(crate) fn new(facts: Facts, kind: Kind<C>) -> Node<C> {
        let (seats, unnamed) = (Seats::default(), Unnamed::Stays);
        Node { facts, kind, seats, holders: 0, purposes: 0, unnamed, due: None }
    }
    /// Whether it is a folder that has names, or will have.
    pub(crate) fn has_names(&self) -> bool {
        self.due.is_some() || self.folder().is_some_and(|folder| !folder.names.is_empty())
    }
    pub(crate) fn folder(&self) -> Option<&Folder> {
        match &self.kind {
            Kind::Folder(folder) => Some(folder),
            Kind::Link(_) | Kind::Leaf(_) => None,
        }
    }
    pub(crate) fn folder_mut(&mut self) -> Option<&mut Folder> {
        match &mut self.kind {
            Kind::Folder(folder) => Some(folder),
            Kind::Link(_) | Kind::Leaf(_) => None,
        }
    }
}
