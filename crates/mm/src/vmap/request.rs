//! What is asked for: a value with one method for each wish.

use crate::frame::Contents;
use crate::table::Attrs;
use core::fmt;
use foliant_units::{Bytes, FRAME_BYTES, Level, Node};

/// Which leaves may map it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeafSizes {
    /// Entries of 4 KiB only: the owner may do with each page what it likes.
    Base,
    /// The largest that fit.
    Huge,
    /// The largest that fit, up to those of this level: the map grain.
    UpTo(Level),
}

impl LeafSizes {
    /// The level of the largest leaf that may be used.
    pub(super) const fn largest(self) -> Level {
        match self {
            LeafSizes::Base => Level::BASE,
            LeafSizes::Huge => Level::SIZE_1G,
            LeafSizes::UpTo(level) => level,
        }
    }
}

/// What kernel mode may do with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rights {
    /// Read and write: the plain rights, and the only ones for which large leaves are used.
    Data,
    /// Read.
    Constant,
    /// Read and execute.
    Code,
}

impl Rights {
    pub(super) const ALL: Attrs = Attrs::WRITE.with(Attrs::EXEC);

    /// Those bits of an entry that follow from the rights.
    pub(super) const fn attrs(self) -> Attrs {
        match self {
            Rights::Data => Attrs::WRITE,
            Rights::Constant => Attrs::NONE,
            Rights::Code => Attrs::EXEC,
        }
    }
}

/// Where its frames lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nodes {
    /// Wherever the allocator finds them first: near what the CPU took before.
    Near,
    /// On one node, or not at all.
    On(Node),
    /// On all nodes in turn, chunk by chunk. Large leaves are used where each node gets at least
    /// one.
    Interleave,
}

/// What follows behind the last page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guard {
    /// A page that is never mapped.
    Page,
    /// Nothing: the next area may begin there.
    None,
}

/// Whether programs may reach it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Users {
    /// The kernel only.
    No,
    /// Its pages may be mapped into programs too; so it is cleared.
    Yes,
}

/// The caller that asked: a word of the embedder's, an address as a rule, for the listing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Caller(pub u64);

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// A request for kernel memory.
///
/// ```
/// use foliant::vmap::{LeafSizes, Nodes, Request};
/// use foliant_units::Bytes;
/// let table = Request::of(Bytes::new(5 << 19)).huge().zeroed().interleaved();
/// assert_eq!((table.leaves, table.nodes), (LeafSizes::Huge, Nodes::Interleave));
/// assert_eq!(Request::of(Bytes::new(1)).leaves, LeafSizes::Base);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// How much; zero is refused.
    pub bytes: Bytes,
    /// Where it may begin: a multiple of this, a power of two from 4 KiB to 1 GiB.
    pub align: Bytes,
    /// Which leaves may map it.
    pub leaves: LeafSizes,
    /// What kernel mode may do with it.
    pub rights: Rights,
    /// Where its frames lie.
    pub nodes: Nodes,
    /// What follows behind the last page.
    pub guard: Guard,
    /// What is in it.
    pub contents: Contents,
    /// Whether programs may reach it.
    pub users: Users,
    /// The caller that asked.
    pub caller: Caller,
}

impl Request {
    /// Plain memory of the kernel's, by base pages, with a guard page, not cleared.
    pub const fn of(bytes: Bytes) -> Request {
        Request {
            bytes,
            align: Bytes::new(FRAME_BYTES),
            leaves: LeafSizes::Base,
            rights: Rights::Data,
            nodes: Nodes::Near,
            guard: Guard::Page,
            contents: Contents::Any,
            users: Users::No,
            caller: Caller(0),
        }
    }
    /// By the largest leaves that fit.
    pub const fn huge(self) -> Request {
        Request { leaves: LeafSizes::Huge, ..self }
    }
    /// By the largest leaves that fit, none above `level`.
    pub const fn up_to(self, level: Level) -> Request {
        Request { leaves: LeafSizes::UpTo(level), ..self }
    }
    /// At a multiple of `align`.
    pub const fn aligned(self, align: Bytes) -> Request {
        Request { align, ..self }
    }
    /// With other rights.
    pub const fn with_rights(self, rights: Rights) -> Request {
        Request { rights, ..self }
    }
    /// On one node.
    pub const fn on(self, node: Node) -> Request {
        Request { nodes: Nodes::On(node), ..self }
    }
    /// On all nodes in turn.
    pub const fn interleaved(self) -> Request {
        Request { nodes: Nodes::Interleave, ..self }
    }
    /// Without a guard page.
    pub const fn without_guard(self) -> Request {
        Request { guard: Guard::None, ..self }
    }
    /// Full of zeros.
    pub const fn zeroed(self) -> Request {
        Request { contents: Contents::Zero, ..self }
    }
    /// To be mapped into programs too.
    pub const fn for_users(self) -> Request {
        Request { users: Users::Yes, ..self }
    }
    /// In somebody's name.
    pub const fn called(self, caller: Caller) -> Request {
        Request { caller, ..self }
    }
    /// Whether it is cleared before it is handed out.
    pub fn is_zeroed(&self) -> bool {
        self.contents == Contents::Zero || self.users == Users::Yes
    }
}
