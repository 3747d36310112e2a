//! Splitting what waits for it: folios that have lost pages, and large ones that hold little but
//! zeros.

use super::batch::FlushBatch;
use super::migration::LIST_MAX;
use super::pieces::{Pieces, ZeroPieces};
use super::run::{SplitInto, Splitter};
use super::zeros::zero_pages;
use crate::frame::Flag;
use crate::stock::{Event, Held};
use crate::sync::Outside;
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Order, Pages};

/// How far a shrinker goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shrink {
    /// How many folios are looked at, at most.
    pub folios: u64,
    /// A folio of 2 MiB with more pages of zeros than this is split; `None` leaves whole what is
    /// wholly mapped.
    pub zeros_max: Option<Pages>,
}

/// What a shrinker did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Shrunk {
    /// Folios that were looked at.
    pub seen: u64,
    /// Folios that were split.
    pub split: u64,
    /// Folios that were to be split and stayed: they go on waiting.
    pub failed: u64,
    /// Pages given back.
    pub pages: u64,
}

/// Why a folio is split.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SplitReason {
    PartlyMapped,
    Underused,
}

impl<'s, 'm, M: Machine, P: Paging> Splitter<'s, 'm, M, P> {
    /// Splits folios that wait for it, the oldest of each list first, as far as `how` allows, with
    /// one flush for up to [`LIST_MAX`]. It looks at no more of them than are on the lists now, and
    /// passes over those that another CPU holds. A folio that cannot be split is at the end of its
    /// list by then, and the next call goes on with the next list: so nothing holds the shrinker
    /// up. Others may run between two flushes.
    pub(crate) fn shrink(&self, how: Shrink, outside: &mut Outside) -> Shrunk {
        let mut done = Shrunk::default();
        let mut budget = how.folios.min(self.stock.deferred());
        while budget > 0 {
            let (seen, more) = self.shrink_some(how, budget, &mut done);
            budget -= seen.min(budget);
            if !more {
                break;
            }
            outside.yield_now(self.stock.machine);
        }
        done
    }

    /// Does as much as one flush covers. Says how many folios were seen, and whether there may be
    /// more.
    fn shrink_some(&self, how: Shrink, budget: u64, done: &mut Shrunk) -> (u64, bool) {
        let into = SplitInto { order: Order::BASE, zeros: ZeroPieces::Share };
        let mut worth = [const { None }; LIST_MAX];
        let (mut seen, mut used, mut more) = (0, 0, true);
        // Zeros are looked for before any entry is out of use: a fault would wait for that.
        while seen < budget && used < LIST_MAX {
            let Some(reference) = self.stock.next_deferred() else {
                more = false;
                break;
            };
            seen += 1;
            // Whatever fails from here on, the folio waits as before (stock::deferred::L3).
            let Ok(held) = self.stock.hold_pinned(reference) else {
                done.failed += 1;
                continue;
            };
            let Some(why) = self.worth(&held, how) else {
                // A folio in which this shrinker did not look for zeros waits for one that does.
                if how.zeros_max.is_some() || held.order() != Order::SIZE_2M {
                    self.stock.undefer_used(&held);
                }
                continue;
            };
            worth[used] = Some((held, why));
            used += 1;
        }
        let mut batch = FlushBatch::new(self.stock);
        let taken = worth.map(|worth| {
            let (held, why) = worth?;
            let began = self.take(&mut batch, held, into);
            done.failed += u64::from(began.is_err());
            Some((began.ok()?, why))
        });
        batch.flush();
        for (began, why) in taken.into_iter().flatten() {
            match self.finish(began, into) {
                Ok(pieces) => self.count_shrunk(&pieces, why, done),
                Err(_) => done.failed += 1,
            }
        }
        done.seen += seen;
        (seen, more)
    }

    /// Whether to split the folio.
    fn worth(&self, held: &Held<'s, 'm, M, P>, how: Shrink) -> Option<SplitReason> {
        let (head, order) = (held.head(), held.order());
        if self.stock.identity(head).has(Flag::PartlyMapped) {
            return Some(SplitReason::PartlyMapped);
        }
        let most = how.zeros_max.filter(|_| order == Order::SIZE_2M)?;
        (zero_pages(self.stock, head, order, most) > most).then_some(SplitReason::Underused)
    }

    fn count_shrunk(&self, pieces: &Pieces, why: SplitReason, done: &mut Shrunk) {
        done.split += 1;
        done.pages += pieces.unmapped + pieces.zero;
        if why == SplitReason::Underused {
            self.stock.count(Event::ThpUnderusedSplitPage);
        }
    }
}
