//! The names of spaces and objects, and how they are found by them.
//!
//! **Invariants**
//! - B1. No call about spaces takes the name of an object: it differs from every space's in a bit
//!   of the stamp.
//! - B2. The call that lets go of an object last, of its name or of an attachment, ends it, and
//!   nobody holds it again.

use super::record::Space;
use crate::frame::{Identity, Kind};
use crate::rmap::Pin;
use crate::stock::{Name, Stock, record};
use crate::table::Paging;
use core::ops::Deref;
use foliant_machine::Machine;
use foliant_units::Frame;

/// The name of an address space, unique among living ones. The name of an ended space is refused,
/// also when its memory serves another one, until 2^31 - 1 spaces were made and stamps repeat.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SpaceId {
    pub(super) frame: Frame,
    pub(super) stamp: u32,
}

/// In the stamp of an object: no space has it.
pub(super) const OF_OBJECTS: u32 = 1 << 31;

/// A space that an operation works in; it does not end before this is dropped.
pub(crate) struct Pinned<'s> {
    pub(super) space: &'s Space,
}

impl<'s> Pinned<'s> {
    /// The caller is in a reader's section in which the space was found by its name.
    pub(super) fn new(space: &'s Space) -> Pinned<'s> {
        space.member.keep();
        Pinned { space }
    }
    /// The space that a member of a fork tree or an attachment is of, unless it is at its end: then
    /// it gives all back by itself, and no CPU runs it.
    pub(crate) fn of<M: Machine, P: Paging>(
        stock: &Stock<'s, M, P>,
        pin: &Pin<'_>,
    ) -> Option<Pinned<'s>> {
        let found = {
            let _reading = stock.reading();
            SpaceId::found(stock, pin.frame())
        };
        found?.pin(stock)
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.space.member.let_go();
    }
}

impl Deref for Pinned<'_> {
    type Target = Space;
    fn deref(&self) -> &Space {
        self.space
    }
}

/// The name of an object, as [`SpaceId`] is that of a space. It is the name of the space that keeps
/// the object's pages; no call about spaces takes it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ObjectId(SpaceId);

impl SpaceId {
    /// The record's frame, for an embedder's own tables; unique among living spaces.
    pub const fn frame(self) -> Frame {
        self.frame
    }
    /// The number that tells it from other spaces whose record was in the same frame.
    pub const fn stamp(self) -> u32 {
        self.stamp
    }
    /// The name with this [`frame`](SpaceId::frame) and [`stamp`](SpaceId::stamp), for embedders
    /// that keep names as numbers. Any numbers will do: a name that no living space has is refused,
    /// as that of a space that has ended.
    pub const fn from_parts(frame: Frame, stamp: u32) -> SpaceId {
        SpaceId { frame, stamp: if stamp & OF_OBJECTS == 0 { stamp } else { 0 } }
    }

    /// The space whose record is in `frame`, if it lives. Nobody is at work, or the caller is in a
    /// reader's section.
    pub(crate) fn found<M: Machine, P: Paging>(
        stock: &Stock<'_, M, P>,
        frame: Frame,
    ) -> Option<SpaceId> {
        let identity = stock.identity(frame);
        let stamp = (identity.word() >> 32) as u32;
        (identity == Identity::space(stamp)).then_some(SpaceId { frame, stamp })
    }
    /// Whether it is an object's.
    pub(crate) const fn is_object(self) -> bool {
        self.stamp & OF_OBJECTS != 0
    }

    /// What a CPU remembers of it.
    pub(super) const fn name(self) -> Name {
        Name { frame: self.frame, stamp: self.stamp }
    }

    /// The space, while the caller is in a reader's section.
    pub(crate) fn peek<'m, M: Machine, P: Paging>(
        self,
        stock: &Stock<'m, M, P>,
    ) -> Option<&'m Space> {
        let identity = stock.identity(self.frame);
        let is_it = identity.kind() == Kind::Space && identity == Identity::space(self.stamp);
        is_it.then(|| record::<Space>(stock.machine, self.frame.pa()))
    }

    /// The space, for an operation that may wait.
    pub(crate) fn pin<'m, M: Machine, P: Paging>(
        self,
        stock: &Stock<'m, M, P>,
    ) -> Option<Pinned<'m>> {
        let _reading = stock.reading();
        self.peek(stock).map(Pinned::new)
    }
}

impl ObjectId {
    /// The frame of the object's record; unique among living objects and spaces.
    pub const fn frame(self) -> Frame {
        self.0.frame
    }
    /// The number that tells it from others whose record was in the same frame.
    pub const fn stamp(self) -> u32 {
        self.0.stamp
    }
    /// As [`SpaceId::from_parts`].
    pub const fn from_parts(frame: Frame, stamp: u32) -> ObjectId {
        ObjectId(SpaceId { frame, stamp: stamp | OF_OBJECTS })
    }
    /// The object whose space this is.
    pub(super) const fn of(space: SpaceId) -> ObjectId {
        ObjectId(space)
    }
    /// The name of its space.
    pub(crate) const fn space(self) -> SpaceId {
        self.0
    }
    /// The object, while the caller is in a reader's section.
    pub(crate) fn peek<'m, M: Machine, P: Paging>(
        self,
        stock: &Stock<'m, M, P>,
    ) -> Option<&'m Space> {
        self.0.peek(stock).filter(|space| space.as_object.is_named())
    }
    /// The object, for an operation that may wait.
    pub(crate) fn pin<'m, M: Machine, P: Paging>(
        self,
        stock: &Stock<'m, M, P>,
    ) -> Option<Pinned<'m>> {
        self.0.pin(stock).filter(|object| object.as_object.is_named())
    }
}
