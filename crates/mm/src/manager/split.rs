//! The face of `split`.

use super::Manager;
use crate::space::SpaceId;
use crate::split::{
    self, Mappings, Pieces, RelocateError, Shrink, Shrunk, SplitError, SplitInto, SplitRequest,
    Splitter,
};
use crate::table::{Attrs, Entry, Paging};
use foliant_machine::Machine;
use foliant_units::{Bytes, FRAME_BYTES, Frame, Va, VaRange};

impl<'m, M: Machine, P: Paging> Manager<'m, M, P> {
    pub(super) fn splitter(&self) -> Splitter<'_, 'm, M, P> {
        Splitter { stock: &self.stock, zero_page: self.zero_page }
    }

    /// Splits the folio that is mapped at `va`.
    pub fn split(&self, id: SpaceId, va: Va, into: SplitInto) -> Result<Pieces, SplitError> {
        let frame = self.frame_at(id, va).ok_or(SplitError::NotMapped(va))?;
        self.splitter().one(frame, into)
    }
    /// Splits the folio that holds `frame`.
    pub fn split_frame(&self, frame: Frame, into: SplitInto) -> Result<Pieces, SplitError> {
        self.splitter().one(frame, into)
    }
    /// Splits a list of folios, with one flush for up to [`LIST_MAX`](crate::split::LIST_MAX) of them in each space. What
    /// became of each stands beside it.
    pub fn split_list(&self, list: &mut [SplitRequest], into: SplitInto) {
        self.splitter().list(list, into);
    }

    /// Splits folios that lost pages or hold little but zeros, as far as `how` allows, and gives back what is not needed.
    pub fn shrink_deferred(&self, how: Shrink) -> Shrunk {
        self.splitter().shrink(how)
    }
    /// How many folios wait to be looked at by [`shrink_deferred`](Manager::shrink_deferred).
    pub fn deferred(&self) -> u64 {
        self.stock.deferred()
    }

    /// What maps the anonymous folio that holds `frame`, found by looking: wholly and in part.
    pub fn mappings(&self, frame: Frame) -> Option<Mappings> {
        let reference = self.stock.get_unless_zero(frame)?;
        let order = self.stock.identity(reference.head()).order();
        Some(split::mappings(&self.stock, reference.head(), order))
    }

    /// Moves the folio that holds `frame` to other memory, and says where its first frame is now.
    pub fn relocate(&self, frame: Frame) -> Result<Frame, RelocateError> {
        self.splitter().relocate(frame)
    }

    /// The frame of a folio that the space's entry at `va` names.
    pub fn frame_at(&self, id: SpaceId, va: Va) -> Option<Frame> {
        let page = VaRange::sized(va.align_down(Bytes::new(FRAME_BYTES)), Bytes::new(FRAME_BYTES))?;
        self.with_leaves(id, page, |mut leaves| {
            let leaf = leaves.next()?;
            match leaf.entry {
                Entry::Leaf { pa, attrs } if !attrs.has(Attrs::SPECIAL) => {
                    Some(pa.add(page.start().offset_from(leaf.va)).frame())
                }
                _ => None,
            }
        })?
    }
}
