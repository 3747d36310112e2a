//! Memory that is broken, or about to break: it leaves the programs that have it.
//!
//! ```text
//!   lost       split to pages ─▶ hold, take, flush, freeze ─▶ mark ─▶ put: poison; in the tables of an object the leaf
//!   foreseen   moved whole, or as pages where there is no block ─▶ the page is kept from all use, what lay beside it is free
//! ```
//!
//! The next access to a lost page is refused ([`Refusal::Broken`](crate::fault::Refusal::Broken)),
//! wherever it was mapped, and no other page comes there by itself. An object keeps such a page,
//! marked: nobody maps or reads it, and it does not become zeros unnoticed.
//!
//! **Invariants**
//! - W1. When a withdrawal is done no CPU has a translation to the page, and none gets one: the
//!   page is marked while it is frozen, so a fault that finds it in an object finds the mark. The
//!   piece of a large folio is marked before an entry names it again: nobody moves or copies it in
//!   between.
//! - W2. Only what was reported is lost: the pages beside it in the folio are what they were. A
//!   folio that was marked before goes whole, for the mark does not say which of its pages broke.
//! - W3. Nothing is needed to withdraw a page that may be lacking (T5). What cannot be withdrawn,
//!   or moved, is as it was.

use super::batch::{Counting, FlushBatch};
use super::error::{RelocateError, SplitError};
use super::keep::{hold_broken, refuses, stay};
use super::put::{Back, Leaf, Shape, put};
use super::run::{SplitInto, Splitter};
use super::walk::Folio;
use crate::frame::Flag;
use crate::table::{Attrs, Paging};
use foliant_machine::Machine;
use foliant_units::{Frame, Order};

impl<M: Machine, P: Paging> Splitter<'_, '_, M, P> {
    /// Takes the page at `frame` away from all that map it, and marks it. A large folio is split
    /// before, and where something maps the page the answer is that it changed.
    pub(crate) fn withdraw(&self, frame: Frame) -> Result<(), SplitError> {
        let stock = self.stock;
        let held = hold_broken(stock, frame)?;
        let (head, order) = (held.head(), held.order());
        if order > Order::BASE && !stock.identity(head).has(Flag::Poisoned) {
            self.held(held, SplitInto::BASE, Some(frame))?;
            return if stock.is_lost(frame) { Ok(()) } else { Err(SplitError::Changed(head)) };
        }
        match refuses(stock, head) {
            Some(SplitError::Unmapped(_)) => {
                stock.flag(head, Flag::Poisoned); // it ends when it is let go
                return Ok(());
            }
            Some(why) => return Err(why),
            None => {}
        }
        let mut batch = FlushBatch::new(stock);
        let entries = batch.take(&held, Counting::Whole);
        batch.flush();
        let frozen = match stock.freeze(held, entries) {
            Ok(frozen) => frozen,
            Err(held) => return Err(stay(stock, &held, entries)),
        };
        let _held = stock.mark_frozen(frozen);
        let folio = Folio::of(stock, head, order);
        let gone = put(stock, folio, entries, Shape::Table(Attrs::NONE), |frame, attrs| {
            Back::Broken(Leaf { pa: frame.pa(), attrs })
        });
        stock.drop_unused(head, gone);
        Ok(())
    }

    /// Moves the folio that holds `frame` to other memory, and keeps this frame from all use. Says
    /// where the folio is now. Where there is no block for it, it is split, and the answer is that
    /// it changed.
    pub(crate) fn evacuate(&self, frame: Frame) -> Result<Frame, RelocateError> {
        let stock = self.stock;
        let (target, old) = match self.move_away(frame) {
            Err(RelocateError::NoBlock(none)) if none.order > Order::BASE => {
                self.one(frame, SplitInto::BASE).map_err(RelocateError::Stays)?;
                return Err(RelocateError::Stays(SplitError::Changed(frame)));
            }
            other => other?,
        };
        let nth = frame.get() - old.frame().get();
        let mut parts = stock.cut(old, Order::BASE);
        stock.lose(parts.part(nth).expect("none was taken"));
        Ok(target)
    }
}
