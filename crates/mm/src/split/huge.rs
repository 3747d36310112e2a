//! Huge pages of pools on their way to another page of their pool.
//!
//! One moves as a folio does, but it is mapped whole, no walker but its holder pins it, and where
//! it goes is a huge page as well. What it had is its mover's, to be given up. A page of 1 GiB is
//! copied in one go, as all that is out of use is waited for (T6).

use super::batch::{Counting, FlushBatch};
use super::error::SplitError;
use super::keep::{hold_huge, refuses, stay};
use super::put::{Back, Leaf, Shape, put, put_back};
use super::run::Splitter;
use super::walk::Folio;
use crate::memmap::Huge;
use crate::stock::Event;
use crate::table::Paging;
use crate::zero;
use foliant_machine::Machine;
use foliant_units::{Frame, Order};

impl<M: Machine, P: Paging> Splitter<'_, '_, M, P> {
    /// The order of the huge page that holds `frame`, if it is in use and nothing speaks against
    /// moving it.
    pub(crate) fn movable_huge(&self, frame: Frame) -> Result<Order, SplitError> {
        let held = hold_huge(self.stock, frame)?;
        refuses(self.stock, held.head()).map_or(Ok(held.order()), Err)
    }
    /// Moves the huge page that holds `frame` to the memory of `to`, and says where it is now, with
    /// the page that it was; or why it stays, with the page that was meant for it if that is
    /// still to be put back.
    pub(crate) fn relocate_huge(
        &self,
        frame: Frame,
        to: Huge,
    ) -> Result<(Frame, Huge), (SplitError, Option<Huge>)> {
        let stock = self.stock;
        let held = match hold_huge(stock, frame) {
            Ok(held) if held.order() == to.order() => held,
            Ok(held) => return Err((SplitError::Changed(held.head()), Some(to))),
            Err(why) => return Err((why, Some(to))),
        };
        if let Some(why) = refuses(stock, held.head()) {
            return Err((why, Some(to)));
        }
        let mut batch = FlushBatch::new(stock);
        let entries = batch.take(&held, Counting::Whole);
        batch.flush();
        let frozen = match stock.freeze(held, entries) {
            Ok(frozen) => frozen,
            Err(held) => return Err((stay(stock, &held, entries), Some(to))),
        };
        let folio = Folio::of(stock, frozen.head(), frozen.order());
        stock.folios.forget(to.frames());
        zero::copy_huge(stock, folio.head().pa(), to.frames());
        stock.count_by(Event::CopiedBytes, folio.order.bytes().get());
        if !stock.enlist_huge(to.frames(), entries, folio.origin) {
            let is_ours = stock.delist_huge(to.frames(), entries);
            let _held = stock.thaw(frozen);
            put_back(stock, folio, entries);
            return Err((SplitError::Changed(folio.head()), is_ours.then_some(to)));
        }
        let target = to.head();
        stock.set_subpool(target, stock.subpool_of(folio.head())); // it counts in its place
        put(stock, folio, entries, Shape::Whole, |_, attrs| {
            Back::Leaf(Leaf { pa: target.pa(), attrs })
        });
        stock.delist_frozen_huge(frozen);
        Ok((target, Huge::from_raw(stock.brand(), folio.head(), folio.order)))
    }
}
