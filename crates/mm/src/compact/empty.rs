//! Emptying one block.

use super::run::{Compactor, Emptied, Meter, Obstacle, Why};
use super::window::{Source, Window};
use crate::frame::{Flag, Kind};
use crate::split::{MigrationBatch, SplitError, SplitInto, Went};
use crate::stock::{Event, Isolated};
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Frame, Order, Pages};

/// How often a block is gone through: folios that somebody is at work on may be at rest by the next
/// time.
const ROUNDS: usize = 3;

/// What one round over a block found.
enum Round {
    Done,
    Full,
    Spent,
}

/// What became of a large folio for which there is no block.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Cut {
    Pages,
    /// It is busy, pinned or gone; the next round looks at it again.
    Stayed,
}

impl<'s, 'm, M: Machine, P: Paging> Compactor<'s, 'm, M, P> {
    /// Moves everything out of the source to targets of the window, if all of it can move.
    pub(super) fn empty(
        &self,
        source: &Source,
        window: &mut Window,
        meter: &mut Meter<'_, M>,
    ) -> Emptied {
        let mut isolated = self.stock.isolate(source.first);
        self.stock.count_by(Event::CompactScanned, Order::SIZE_2M.pages().get());
        let ended = match self.obstacle(&isolated, source.first) {
            Some(obstacle) => Emptied::Stuck(obstacle),
            None => self.rounds(source, window, &mut isolated, meter),
        };
        match self.stock.complete(isolated) {
            Ok(claim) => Emptied::Whole(claim),
            Err(isolated) => {
                self.stock.give_up(isolated);
                ended
            }
        }
    }

    /// Goes through the block until all of it is isolated, or says what is in the way.
    fn rounds(
        &self,
        source: &Source,
        window: &mut Window,
        isolated: &mut Isolated,
        meter: &mut Meter<'_, M>,
    ) -> Emptied {
        let mut left = None;
        for _ in 0..ROUNDS {
            let round = self.round(source, window, isolated, meter);
            self.stock.isolate_free(isolated);
            left = isolated.next_other(source.first);
            match round {
                _ if left.is_none() => break,
                Round::Full => return Emptied::Full,
                Round::Spent => return Emptied::Spent,
                Round::Done => {}
            }
            if let Some(obstacle) = self.obstacle(isolated, source.first) {
                return Emptied::Stuck(obstacle);
            }
        }
        let frame = left.unwrap_or(source.first);
        Emptied::Stuck(Obstacle { block: source.first, frame, why: Why::Busy })
    }

    /// The first thing in the block that stays, and why.
    fn obstacle(&self, isolated: &Isolated, first: Frame) -> Option<Obstacle> {
        let end = first.add(Order::SIZE_2M.pages());
        let mut at = first;
        while let Some(frame) = isolated.next_other(at).filter(|frame| *frame < end) {
            let identity = self.stock.look(frame);
            let why = match identity.kind() {
                Kind::Anon | Kind::Tail if identity.has(Flag::Poisoned) => Some(Why::Broken),
                // It became one since the window was looked at (C3).
                Kind::Anon | Kind::Tail if identity.order() >= Order::SIZE_2M => Some(Why::Kept),
                Kind::Anon | Kind::Tail => self.stays(identity.head(frame)),
                _ => Some(Why::Kept),
            };
            if let Some(why) = why {
                return Some(Obstacle { block: first, frame, why });
            }
            at = identity.head(frame).add(identity.order().pages());
        }
        None
    }
    fn stays(&self, head: Frame) -> Option<Why> {
        let reference = self.stock.get_unless_zero(head)?; // gone by now: no obstacle
        match self.stock.counts(reference.head()).pins() > 1 {
            true => Some(Why::Pinned),
            false => None,
        }
    }

    /// Moves what can be moved, once.
    fn round(
        &self,
        source: &Source,
        window: &mut Window,
        isolated: &mut Isolated,
        meter: &mut Meter<'_, M>,
    ) -> Round {
        let mut migration = MigrationBatch::new(self.stock, self.grain);
        let mut at = source.first;
        let round = loop {
            let Some(frame) = isolated.next_other(at) else { break Round::Done };
            if meter.is_spent() {
                break Round::Spent;
            }
            at = frame.add(Pages::new(1));
            let Ok(held) = MigrationBatch::hold(self.stock, frame) else { continue };
            let (head, order) = (held.head(), held.order());
            if order >= Order::SIZE_2M {
                break Round::Done; // the block is held by now: as good as whole (C3)
            }
            match window.target(order, |block| self.stock.claim_in(block, order).ok()) {
                Some(to) => {
                    migration.add(held, to);
                    meter.begun += 1;
                    at = head.add(order.pages());
                }
                None if order == Order::BASE => break Round::Full,
                None => {
                    drop(held);
                    at = match self.cut(frame) {
                        Cut::Pages => frame,
                        Cut::Stayed => head.add(order.pages()),
                    };
                }
            }
            if migration.is_full() {
                self.finish(&mut migration, isolated, meter);
            }
        };
        if !migration.is_empty() {
            self.finish(&mut migration, isolated, meter);
        }
        round
    }

    /// Where there is no block for a large folio it becomes pages.
    pub(super) fn cut(&self, frame: Frame) -> Cut {
        match self.splitter().one(frame, SplitInto::BASE) {
            Ok(_) => {
                self.stock.count(Event::ThpMigrationSplit);
                Cut::Pages
            }
            // Another CPU was faster.
            Err(SplitError::Order { .. }) => Cut::Pages,
            Err(_) => Cut::Stayed,
        }
    }

    fn finish(
        &self,
        migration: &mut MigrationBatch<'s, 'm, M, P>,
        isolated: &mut Isolated,
        meter: &mut Meter<'_, M>,
    ) {
        migration.finish(|_, order, went| match went {
            Went::Moved(old) => {
                meter.done.moved += 1;
                self.stock.count(Event::CompactMoved);
                meter.done.pages += order.pages().get();
                self.stock.isolate_claim(isolated, old);
            }
            Went::Stayed(_) => meter.done.stayed += 1,
        });
    }
}
