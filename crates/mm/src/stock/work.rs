//! Memory that is in hand: taken, and neither mapped nor given back yet.
//!
//! A fault that is refused memory may be about the very page that another one is about to map, or
//! the memory may be back in a moment. What is taken inside of a reader's section is either by the
//! end of it. What is in hand outside of one is counted here, in one word, for it is seldom.
//!
//! ```text
//!   word   rounds (40) << 24 │ at work (24)     a round: what was in hand is mapped or back
//! ```
//!
//! **Invariants**
//! - W1. An operation counts as at work from before it takes memory, or before it leaves the
//!   section in which it did, until what it took is mapped or back: faults for which the face takes
//!   or makes something, the shrinker, and calls that reserve or collect pages of the pools. What
//!   is being unmapped is nobody's until its flush is done, and does not count.
//! - W2. A caller that was refused, and waited for those at work, is refused for good only where no
//!   round has ended since it began to look.
//! - W3. A fault ends one round at most, and others only where memory came back that was in
//!   nobody's hand before. So two that are refused do not keep each other looking for ever.
//!
//! **Locking**: none. A caller that waits is in no section and has nothing in hand, so no two wait
//! for each other.

use super::Stock;
use crate::sync::{Ordering, Outside};
use crate::table::Paging;
use foliant_machine::Machine;

const AT_WORK: u64 = (1 << 24) - 1;
const ROUND: u64 = AT_WORK + 1;

/// What came of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Brought {
    /// Memory was in hand, and is mapped or back.
    Memory,
    /// There was none, or it is kept for the operation that asked.
    Nothing,
}

/// How far a caller that is refused has waited.
#[derive(Default)]
pub(crate) struct Patience {
    /// The rounds that had ended when it began to look again.
    rounds: Option<u64>,
}

impl<M: Machine, P: Paging> Stock<'_, M, P> {
    /// Counts the caller as at work (W1).
    pub(crate) fn begin_work(&self) {
        self.work.fetch_add(1, Ordering::SeqCst);
    }
    /// Ends that. What was in hand is mapped or back.
    pub(crate) fn end_work(&self, brought: Brought) {
        let round = if brought == Brought::Memory { ROUND } else { 0 };
        self.work.fetch_add(round.wrapping_sub(1), Ordering::SeqCst);
    }
    /// Waits until some of what is in hand by now is mapped or back, or nothing is in hand any more,
    /// and the first time for readers, too. Says whether the caller shall look again (W2).
    pub(crate) fn wait_for_work(&self, patience: &mut Patience, outside: &mut Outside) -> bool {
        if patience.rounds.is_none() {
            self.wait_for_readers();
        }
        let mut now = self.work.load(Ordering::SeqCst);
        let from = patience.rounds.unwrap_or(now / ROUND);
        while now / ROUND == from && now & AT_WORK > 0 {
            // The one at work may be yielding (sync::outside::O3).
            self.machine.relax();
            outside.yield_now(self.machine);
            now = self.work.load(Ordering::SeqCst);
        }
        patience.rounds.replace(now / ROUND) != Some(now / ROUND)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::stock::bare::stock;
    use foliant_sim::{Config, Sim};
    use foliant_units::Bytes;

    #[test]
    fn a_caller_looks_again_once_and_after_each_round() {
        let sim = Sim::new(Config::free(1, Bytes::new(16 << 20))).unwrap();
        let stock = stock(&sim);
        let (mut patience, mut outside) = (Patience::default(), Outside::at_the_face());
        let mut looks_again = || stock.wait_for_work(&mut patience, &mut outside);
        assert!(looks_again());
        assert!(!looks_again());
        for (brought, again) in [(Brought::Nothing, false), (Brought::Memory, true)] {
            stock.begin_work();
            stock.end_work(brought);
            assert_eq!(looks_again(), again);
            assert!(!looks_again());
        }
        // A round ends while another one is at work: there is no need to wait for that one.
        stock.begin_work();
        stock.begin_work();
        stock.end_work(Brought::Memory);
        assert!(looks_again());
        stock.end_work(Brought::Nothing);
        assert!(!looks_again());
    }
}
