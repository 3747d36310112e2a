//! Memory that is in hand: taken, and neither mapped nor given back yet.
//!
//! A fault that is refused memory may be about the very page that another one is about to map, or
//! the memory may be back in a moment. What is taken inside of a reader's section is either by the
//! end of it. What is in hand outside of one is counted here.
//!
//! ```text
//!   refused ─▶ gives back what it has ─▶ `last_look`: a lock ▸ readers end ▸ those at work end ─▶ looks ─▶ refused for good
//! ```
//!
//! **Invariants**
//! - W1. A call counts as at work from before it takes memory, or before it leaves the section in
//!   which it did, until what it took is mapped or back: faults for which the face takes or makes
//!   something, the shrinker, calls that clear ahead, collapse, split or move a folio, take kernel
//!   memory or a loan, those that reserve, collect or dissolve pages of the pools, and those that
//!   take pages of a pool from an object. Others do not count: what is being unmapped is nobody's
//!   until its flush is done, and what a call gives back that fails to make a space, tables or a
//!   larger pool, or that compacts for the embedder, may have refused a fault beside it.
//! - W2. A fault, or a call that reserves, looks once more where it is refused: behind the end of
//!   all that were in a section or at work when it was refused, and while no other one does that.
//!   So it is refused for good for what the callers have that came later, and for no other's.
//! - W3. It waits for readers first, for work may begin in a section. Then it waits for those at
//!   work, and for none that comes while it waits for the second time: these count in the other of
//!   two counts, and each is seen to be 0 while the other one is in use.
//!
//! **Locking.** `looking` is taken by a caller that has no memory in hand, counts as at work no
//! more, and holds no lock (it may keep a space from ending). Those at work do not wait for it. It
//! is held over one look, which may be a whole fault, and while a page is taken from children, with
//! the writers of their spaces one after the other; it has no queue, as every [`Patient`] lock.

use super::Stock;
use crate::sync::{AtomicU64, Ordering, Outside, Patient, Working};
use crate::table::Paging;
use foliant_machine::Machine;

/// See the module's text.
#[derive(Default)]
pub(super) struct Work {
    /// Which count is in use, in the lowest bit.
    turn: AtomicU64,
    at_work: [AtomicU64; 2],
    looking: Patient,
}

/// That its holder counts as at work, and in which count.
#[must_use = "the holder counts as at work for ever"]
pub(crate) struct Turn(usize);

/// The same, ended when it is dropped.
pub(crate) struct AtWork<'a> {
    work: &'a Work,
    turn: usize,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.work.at_work[self.turn].fetch_sub(1, Ordering::SeqCst);
    }
}

impl<M: Machine, P: Paging> Stock<'_, M, P> {
    /// Counts the caller as at work (W1), until [`end_work`](Stock::end_work).
    pub(crate) fn begin_work(&self) -> Turn {
        let turn = (self.work.turn.load(Ordering::SeqCst) & 1) as usize;
        self.work.at_work[turn].fetch_add(1, Ordering::SeqCst);
        Turn(turn)
    }
    /// Ends that: what was in hand is mapped or back.
    pub(crate) fn end_work(&self, Turn(turn): Turn) {
        self.work.at_work[turn].fetch_sub(1, Ordering::SeqCst);
    }
    /// The same for the rest of a block.
    pub(crate) fn at_work(&self) -> AtWork<'_> {
        let Turn(turn) = self.begin_work();
        AtWork { work: &self.work, turn }
    }
    /// For a caller that was refused and has nothing in hand: waits for those at work, and keeps
    /// others from looking while the guard is there (W2).
    #[cold]
    pub(crate) fn last_look(&self, outside: &mut Outside) -> Working<'_> {
        let looking = self.work.looking.lock(self.machine, outside);
        self.wait_for_readers(); // first, for work may begin in a section (W3)
        for _ in 0..2 {
            let turn = self.work.turn.fetch_add(1, Ordering::SeqCst) & 1;
            while self.work.at_work[turn as usize].load(Ordering::SeqCst) > 0 {
                // The one at work may be yielding (sync::outside::O3).
                self.machine.relax();
                outside.yield_now(self.machine);
            }
        }
        looking
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::stock::bare::stock;
    use foliant_sim::{Config, Sim};
    use foliant_units::Bytes;

    #[test]
    fn those_that_come_later_count_apart() {
        let sim = Sim::new(Config::free(1, Bytes::new(16 << 20))).unwrap();
        let stock = stock(&sim);
        let counts = || stock.work.at_work.each_ref().map(|count| count.load(Ordering::Relaxed));
        drop(stock.last_look(&mut Outside::at_the_face()));
        let first = stock.begin_work();
        assert_eq!(counts(), [1, 0]);
        stock.work.turn.fetch_add(1, Ordering::Relaxed); // as a caller that begins to wait
        let second = stock.at_work();
        assert_eq!(counts(), [1, 1]);
        stock.end_work(first);
        assert_eq!(counts(), [0, 1]);
        drop(second);
        drop(stock.last_look(&mut Outside::at_the_face()));
        assert_eq!(counts(), [0, 0]);
    }
}
