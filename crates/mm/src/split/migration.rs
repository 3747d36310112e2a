//! Folios on their way to other memory: several of them with one flush.
//!
//! A folio moves as it is split, but for what becomes of it: its entries are taken out of use, and
//! put back to a block that was claimed for it. A folio that does not move is where it was, and the
//! block that was claimed for it is given back.

use super::batch::{Counting, FlushBatch};
use super::error::SplitError;
use super::keep::{hold, refuses, stay};
use super::pieces::relocate;
use crate::frame::Claim;
use crate::stock::{Event, Held, Stock};
use crate::table::Paging;
use core::num::NonZeroU32;
use foliant_machine::Machine;
use foliant_units::{Frame, Order};

/// Folios that one flush covers at most.
pub const LIST_MAX: usize = 64;

/// How many folios move with one flush. One is the baseline that more are measured against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MoveGrain(NonZeroU32);

impl MoveGrain {
    /// One folio.
    pub const ONE: MoveGrain = MoveGrain(NonZeroU32::MIN);
    /// As many as a list holds.
    pub const MOST: MoveGrain = MoveGrain(NonZeroU32::new(LIST_MAX as u32).unwrap());

    /// So many, up to [`LIST_MAX`]; `None` for 0 and for more.
    pub const fn new(folios: u32) -> Option<MoveGrain> {
        match NonZeroU32::new(folios) {
            Some(folios) if folios.get() <= LIST_MAX as u32 => Some(MoveGrain(folios)),
            _ => None,
        }
    }
    /// The number.
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

/// What became of a folio that was to move.
pub(crate) enum Went {
    /// It is in the block that was meant for it; this is the memory that it had.
    Moved(Claim),
    /// It is where it was, for this reason.
    Stayed(SplitError),
}

struct Moving<'s, 'm, M: Machine, P: Paging> {
    held: Held<'s, 'm, M, P>,
    entries: u64,
    to: Claim,
}

/// See the module's text. When it is dropped it brings the folios that are under way to where they
/// go.
pub(crate) struct MigrationBatch<'s, 'm, M: Machine, P: Paging> {
    stock: &'s Stock<'m, M, P>,
    batch: FlushBatch<'s, 'm, M, P>,
    moving: [Option<Moving<'s, 'm, M, P>>; LIST_MAX],
    used: usize,
    grain: MoveGrain,
}

impl<'s, 'm, M: Machine, P: Paging> MigrationBatch<'s, 'm, M, P> {
    pub(crate) fn new(stock: &'s Stock<'m, M, P>, grain: MoveGrain) -> Self {
        let moving = [const { None }; LIST_MAX];
        MigrationBatch { stock, batch: FlushBatch::new(stock), moving, used: 0, grain }
    }

    /// Holds the folio of `frame`, unless that is in vain: nothing has changed then.
    pub(crate) fn hold(
        stock: &'s Stock<'m, M, P>,
        frame: Frame,
    ) -> Result<Held<'s, 'm, M, P>, SplitError> {
        let held = hold(stock, frame)?;
        match refuses(stock, held.head()) {
            Some(error) => {
                count(stock, held.order(), &Went::Stayed(error));
                Err(error)
            }
            None => Ok(held),
        }
    }

    /// Whether so many are under way as one flush shall cover.
    pub(crate) fn is_full(&self) -> bool {
        self.used >= self.grain.get() as usize
    }
    /// Whether nothing is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Takes the entries of the folio out of use. The folio goes to `to`, a block of its order,
    /// with the next [`finish`](MigrationBatch::finish). There is room.
    pub(crate) fn add(&mut self, held: Held<'s, 'm, M, P>, to: Claim) {
        let entries = self.batch.take(&held, Counting::Whole);
        self.moving[self.used] = Some(Moving { held, entries, to });
        self.used += 1;
    }

    /// Flushes once, and brings each folio to its block, or leaves it where it was. Says what
    /// became of each, with its head and order.
    pub(crate) fn finish(&mut self, mut each: impl FnMut(Frame, Order, Went)) {
        self.batch.flush(); // before anything that makes the frames another's (G1)
        for place in &mut self.moving[..self.used] {
            let Some(Moving { held, entries, to }) = place.take() else { continue };
            let (head, order) = (held.head(), held.order());
            let went = match self.stock.freeze(held, entries) {
                Ok(frozen) => Went::Moved(relocate(self.stock, frozen, to)),
                Err(held) => {
                    self.stock.release(to);
                    Went::Stayed(stay(self.stock, &held, entries))
                }
            };
            count(self.stock, order, &went);
            each(head, order, went);
        }
        self.used = 0;
    }
}

impl<M: Machine, P: Paging> Drop for MigrationBatch<'_, '_, M, P> {
    fn drop(&mut self) {
        if crate::sync::is_unwinding() {
            return; // the CPU that has a table's lock may never go on
        }
        let stock = self.stock;
        self.finish(|_, _, went| {
            if let Went::Moved(old) = went {
                stock.release(old);
            }
        });
    }
}

fn count<M: Machine, P: Paging>(stock: &Stock<'_, M, P>, order: Order, went: &Went) {
    let (pages, large) = match went {
        Went::Moved(_) => (Event::PgMigrateSuccess, Event::ThpMigrationSuccess),
        Went::Stayed(_) => (Event::PgMigrateFail, Event::ThpMigrationFail),
    };
    stock.count_by(pages, order.pages().get());
    if order > Order::BASE {
        stock.count(large);
    }
}
