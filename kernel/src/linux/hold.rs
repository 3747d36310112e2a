//! Holds of files, for as long as a value is there.
//!
//! **Invariants**
//! - G1. A hold is dropped with no lock held: what is left of the file may go with it.

use super::world;
use foliant_files::{NodeId, Purpose};
use foliant_linux::Errno;

/// Holds a node: it stays when its last name goes.
pub(super) struct Hold {
    node: NodeId,
    purpose: Option<Purpose>,
}

impl Hold {
    /// Holds it, whoever else does.
    pub(super) fn of(node: NodeId) -> Hold {
        world().files.write().hold(node);
        Hold { node, purpose: None }
    }
    /// Holds it for a purpose; refused while it is held for the other one.
    pub(super) fn to(purpose: Purpose, node: NodeId) -> Result<Hold, Errno> {
        let held = world().files.write().hold_for(node, purpose);
        held.map_err(|why| Errno(why.errno()))?;
        Ok(Hold { node, purpose: Some(purpose) })
    }
    /// Holds the same for the same.
    pub(super) fn again(&self) -> Result<Hold, Errno> {
        match self.purpose {
            Some(purpose) => Hold::to(purpose, self.node),
            None => Ok(Hold::of(self.node)),
        }
    }
    pub(super) fn node(&self) -> NodeId {
        self.node
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let gone = {
            let mut files = world().files.write();
            match self.purpose {
                Some(purpose) => files.let_go_for(self.node, purpose),
                None => files.let_go(self.node),
            }
        };
        drop(gone); // G1
    }
}
