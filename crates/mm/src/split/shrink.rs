//! Splitting what waits for it: folios that have lost pages, and large ones that hold little but
//! zeros.

use super::batch::FlushBatch;
use super::migration::LIST_MAX;
use super::pieces::{Pieces, ZeroPieces};
use super::run::{SplitInto, Splitter};
use super::zeros::zero_pages;
use crate::frame::{Flag, Guess, Identity};
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

/// Folios that are looked at in one go.
const LOOKS: usize = 3;
/// A guess of which fewer pages are idle is not worth a split.
const IDLE_LEAST: u64 = 64;
/// It is looked at again after this part of the most that was used.
const LOOK_PART: u64 = 128;

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
            match self.finish(began, into, None) {
                Ok(pieces) => self.count_shrunk(&pieces, why, done),
                Err(_) => done.failed += 1,
            }
        }
        done.seen += seen;
        (seen, more)
    }

    /// Looks at a few folios that wait and are due, and splits those that lost pages, and guesses
    /// of which nothing more was used for long, with one flush. What they do not use goes back.
    pub(crate) fn tend(&self, outside: &mut Outside) {
        let into = SplitInto { order: Order::BASE, zeros: ZeroPieces::Drop };
        let (now, most) = (self.stock.guess_time(), self.stock.guess_counts().most);
        let is_due = |identity: Identity, guess: Guess| {
            !identity.has(Flag::Guessed) || guess.is_due(identity.order(), now, most / LOOK_PART)
        };
        let mut batch = FlushBatch::new(self.stock);
        let mut taken = [const { None }; LOOKS];
        for place in &mut taken {
            let Some(reference) = self.stock.next_due(is_due) else { break };
            let Ok(held) = self.stock.hold_pinned(reference) else { continue };
            let Some(why) = self.judge(&held) else { continue };
            *place = self.take(&mut batch, held, into).ok().map(|began| (began, why));
        }
        if taken.iter().all(Option::is_none) {
            return;
        }
        batch.flush();
        let mut done = Shrunk::default();
        for (began, why) in taken.into_iter().flatten() {
            if let Ok(pieces) = self.finish(began, into, None) {
                self.count_shrunk(&pieces, why, &mut done);
            }
        }
        self.stock.count_by(Event::GuessTaken, done.pages);
        outside.yield_now(self.stock.machine);
    }
    /// Whether to split a folio that waits; what is seen of a guess is noted.
    fn judge(&self, held: &Held<'s, 'm, M, P>) -> Option<SplitReason> {
        let (stock, head) = (self.stock, held.head());
        let identity = stock.identity(head);
        if identity.has(Flag::PartlyMapped) {
            return Some(SplitReason::PartlyMapped);
        }
        if !identity.has(Flag::Guessed) {
            return None;
        }
        let guess = stock.guess_of(head);
        let idle = stock.estimate_idle(head, held.order());
        let age = Guess::between(guess.since, stock.guess_time());
        let is_worth = idle >= guess.idle && idle >= IDLE_LEAST;
        // Should the split fail, the next look is not at once.
        stock.note_idle(held, idle.min(guess.idle));
        (is_worth && stock.guess_counts().is_old(age)).then_some(SplitReason::Underused)
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
