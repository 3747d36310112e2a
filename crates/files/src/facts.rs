//! What is known of a node besides its names and its content.

/// A time, since the epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Time {
    /// Whole seconds.
    pub seconds: i64,
    /// Nanoseconds beyond them.
    pub nanos: u32,
}

/// Whose a node is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Owner {
    /// The user; 0 is root, who may do everything with names.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl Owner {
    /// Root.
    pub const ROOT: Owner = Owner { uid: 0, gid: 0 };
}

/// What `stat` tells of a node, as far as it is known here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Its kind (`S_IFMT`) and its permission bits.
    pub mode: u32,
    /// Whose it is.
    pub uid: u32,
    /// Of which group.
    pub gid: u32,
    /// How many names it has; of a folder 2 and one for each folder in it (N4).
    pub links: u32,
    /// When it was read last. Nobody sets it here but who makes the node.
    pub accessed: Time,
    /// When its content changed last; of a folder, its names.
    pub modified: Time,
    /// When anything of it changed last.
    pub changed: Time,
}

impl Facts {
    /// A new node, with all times now.
    pub(crate) fn new(mode: u32, links: u32, owner: Owner, now: Time) -> Facts {
        let Owner { uid, gid } = owner;
        Facts { mode, uid, gid, links, accessed: now, modified: now, changed: now }
    }

    /// Notes that a folder's names changed.
    pub(crate) fn names_changed(&mut self, now: Time) {
        (self.modified, self.changed) = (now, now);
    }
}
