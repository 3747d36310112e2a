//! Splitting folios, one or a list with one flush.

use super::batch::{Counting, FlushBatch};
use super::error::{RelocateError, SplitError};
use super::keep::{hold, refuses, stay};
use super::migration::{LIST_MAX, MigrationBatch, MoveGrain, Went};
use super::pieces::{Pieces, ZeroPieces, divide};
use crate::folio::Class;
use crate::frame::Claim;
use crate::stock::{Event, Held, SizeEvent, Stock};
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Frame, Order};

/// How a folio is to be split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SplitInto {
    /// The order of the pieces.
    pub order: Order,
    /// What becomes of pieces that hold zeros, where pieces are base pages.
    pub zeros: ZeroPieces,
}

impl SplitInto {
    /// Base pages, also those of zeros.
    pub const BASE: SplitInto = SplitInto { order: Order::BASE, zeros: ZeroPieces::Keep };
}

/// A folio to be split, by any of its frames, and what became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SplitRequest {
    /// A frame of it.
    pub frame: Frame,
    /// How it ended; `None` before it was tried.
    pub done: Option<Result<Pieces, SplitError>>,
}

impl SplitRequest {
    /// Of the folio that holds `frame`.
    pub const fn of(frame: Frame) -> SplitRequest {
        SplitRequest { frame, done: None }
    }
}

/// A folio whose entries are out of use.
pub(super) struct FrozenFolio<'s, 'm, M: Machine, P: Paging> {
    held: Held<'s, 'm, M, P>,
    entries: u64,
}

/// What a split needs to know besides its list.
#[derive(Clone, Copy)]
pub(crate) struct Splitter<'s, 'm, M: Machine, P: Paging> {
    pub(crate) stock: &'s Stock<'m, M, P>,
}

impl<'s, 'm, M: Machine, P: Paging> Splitter<'s, 'm, M, P> {
    /// Splits every folio of the list, and notes beside each what became of it. One flush for each
    /// space covers up to [`LIST_MAX`] of them, or as much as the flush grain allows; where more
    /// spaces have them than a batch has room for, some are flushed in between.
    pub(crate) fn list(&self, list: &mut [SplitRequest], into: SplitInto) {
        for part in list.chunks_mut(LIST_MAX) {
            let mut batch = FlushBatch::new(self.stock);
            let mut taken = [const { None }; LIST_MAX];
            for (request, place) in part.iter_mut().zip(&mut taken) {
                match self.begin(&mut batch, request.frame, into) {
                    Ok(began) => *place = Some(began),
                    Err(error) => request.done = Some(Err(error)),
                }
            }
            batch.flush(); // before anything that makes the frames another's (G1)
            for (request, place) in part.iter_mut().zip(taken) {
                if let Some(taken) = place {
                    request.done = Some(self.finish(taken, into, None));
                }
            }
        }
    }
    /// Splits one folio.
    pub(crate) fn one(&self, frame: Frame, into: SplitInto) -> Result<Pieces, SplitError> {
        self.held(hold(self.stock, frame)?, into, None)
    }
    /// Splits a folio that is held, one frame of which may be `lost`.
    pub(super) fn held(
        &self,
        held: Held<'s, 'm, M, P>,
        into: SplitInto,
        lost: Option<Frame>,
    ) -> Result<Pieces, SplitError> {
        let mut batch = FlushBatch::new(self.stock);
        let taken = self.take(&mut batch, held, into)?;
        batch.flush();
        self.finish(taken, into, lost)
    }
    /// Moves the folio that holds `frame` to other memory, and says where it is now.
    pub(crate) fn relocate(&self, frame: Frame) -> Result<Frame, RelocateError> {
        let (target, old) = self.move_away(frame)?;
        self.stock.release(old);
        Ok(target)
    }
    /// Does so, and says as well which memory it had.
    pub(super) fn move_away(&self, frame: Frame) -> Result<(Frame, Claim), RelocateError> {
        let stock = self.stock;
        // The memory comes first: claiming may have to wait, and the holder of a folio does not
        // wait (stock::holds::B3).
        let order = MigrationBatch::hold(stock, frame).map_err(RelocateError::Stays)?.order();
        let to = stock.claim(order, Class::Movable).map_err(RelocateError::NoBlock)?;
        let target = to.frame();
        let mut migration = MigrationBatch::new(stock, MoveGrain::ONE);
        match MigrationBatch::hold(stock, frame) {
            Ok(held) if held.order() == order => migration.add(held, to),
            other => {
                stock.put_back(to);
                let why = other.map_or_else(|why| why, |held| SplitError::Changed(held.head()));
                return Err(RelocateError::Stays(why));
            }
        }
        let mut done = None;
        migration.finish(|_, _, went| {
            done = Some(match went {
                Went::Moved(old) => Ok((target, old)),
                Went::Stayed(why) => Err(RelocateError::Stays(why)),
            });
        });
        done.expect("one folio was under way")
    }

    fn begin(
        &self,
        batch: &mut FlushBatch<'s, 'm, M, P>,
        frame: Frame,
        into: SplitInto,
    ) -> Result<FrozenFolio<'s, 'm, M, P>, SplitError> {
        self.take(batch, hold(self.stock, frame)?, into)
    }

    /// Refuses what can be refused before any entry changes, then takes the entries out of use.
    pub(super) fn take(
        &self,
        batch: &mut FlushBatch<'s, 'm, M, P>,
        held: Held<'s, 'm, M, P>,
        into: SplitInto,
    ) -> Result<FrozenFolio<'s, 'm, M, P>, SplitError> {
        let (head, folio) = (held.head(), held.order());
        // Order 1 is no size of anonymous folios (`fault::Orders::ANON`), so none of pieces. The
        // number of descriptors is no reason: a folio's links are in that of its head.
        if into.order >= folio || into.order.get() == 1 {
            return Err(SplitError::Order { folio, into: into.order });
        }
        if let Some(error) = refuses(self.stock, head) {
            self.count_failed(folio);
            return Err(error);
        }
        let entries = batch.take(&held, Counting::Pieces(into.order));
        Ok(FrozenFolio { held, entries })
    }

    /// Makes the pieces, or puts the entries back where the folio is used by other ways too, or
    /// where mappings of it came or went. The flush is done.
    pub(super) fn finish(
        &self,
        taken: FrozenFolio<'s, 'm, M, P>,
        into: SplitInto,
        lost: Option<Frame>,
    ) -> Result<Pieces, SplitError> {
        let (stock, FrozenFolio { held, entries }) = (self.stock, taken);
        match stock.freeze(held, entries) {
            Ok(frozen) => {
                let pieces = divide(stock, frozen, (into.order, into.zeros), lost);
                stock.count_thp(pieces.order, SizeEvent::Split, Event::ThpSplitPage);
                Ok(pieces)
            }
            Err(held) => {
                self.count_failed(held.order());
                Err(stay(stock, &held, entries))
            }
        }
    }

    fn count_failed(&self, order: Order) {
        self.stock.count_thp(order, SizeEvent::SplitFailed, Event::ThpSplitPageFailed);
    }
}
