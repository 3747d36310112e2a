//! Blocks that are lent to the kernel around the manager: a bit for the first frame of each.
//!
//! No descriptor says of a lent block what it is, so nothing else tells it from a table or a record
//! of the manager's own. A block that is given back by its number is taken only where these bits
//! say that it was lent.
//!
//! ```text
//!   roots: a word for each 128 MiB ──▶ a page of bits, made when the first block of them is lent
//! ```
//!
//! **Invariants**
//! - N1. The bit of a frame is set only while a block that begins there is lent: from before
//!   anybody has the block until a caller that gives it back clears the bit. Of two callers that
//!   give it back, one finds it set. A caller that names another order than the block's is refused
//!   after it has cleared the bit, and sets it again: meanwhile the block is lent without the bit,
//!   and every other caller is refused.
//! - N2. A page of bits stays once it is made: the next block needs it.
//!
//! **Locking**: none. A root goes from 0 to a page by compare-and-exchange, bits change by atomic
//! operations.
//!
//! **Not here**: how large the block is; the allocator knows.

use super::{NoBlock, Stock, Words, words};
use crate::folio::Class;
use crate::sync::{AtomicU64, Ordering};
use crate::table::Paging;
use foliant_machine::{Machine, Owner};
use foliant_units::{FRAME_BYTES, Frame, Order};

/// Frames that a page has bits for.
const PER_PAGE: u64 = FRAME_BYTES * 8;

/// See the module's text.
pub(crate) struct Lent<'m> {
    /// The frame of each page of bits with 1 added, or 0.
    roots: &'m [AtomicU64],
}

impl<'m> Lent<'m> {
    /// How many words it takes for frames below `end`.
    pub(crate) const fn words(end: Frame) -> u64 {
        end.get().div_ceil(PER_PAGE)
    }
    /// Over cleared words.
    pub(crate) const fn new(roots: &'m [AtomicU64]) -> Lent<'m> {
        Lent { roots }
    }
    fn root(&self, frame: Frame) -> Option<&'m AtomicU64> {
        self.roots.get(usize::try_from(frame.get() / PER_PAGE).ok()?)
    }
}

/// The word of a page that has the bit of `frame`, and the bit.
fn bit_of(frame: Frame) -> (usize, u64) {
    let nth = frame.get() % PER_PAGE;
    ((nth / 64) as usize, 1 << (nth % 64))
}

impl<'m, M: Machine, P: Paging> Stock<'m, M, P> {
    /// Makes the page with the bit of `frame`, if there is none.
    pub(crate) fn ready_loan(&self, frame: Frame) -> Result<(), NoBlock> {
        let root = self.lent.root(frame).expect("a block lies in memory");
        match root.load(Ordering::Acquire) {
            0 => self.make_page(root),
            _ => Ok(()),
        }
    }
    /// Notes that the block at `frame`, which the caller has, is lent. The page of its bit is there
    /// ([`ready_loan`](Stock::ready_loan)).
    pub(crate) fn begin_loan(&self, frame: Frame) {
        let page = self.lent.root(frame).and_then(|root| self.page(root)).expect("it was made");
        let (word, bit) = bit_of(frame);
        page[word].fetch_or(bit, Ordering::Release);
    }
    /// Notes that it is lent no more, and says whether it was: then it is the caller's.
    pub(crate) fn end_loan(&self, frame: Frame) -> bool {
        let Some(page) = self.lent.root(frame).and_then(|root| self.page(root)) else {
            return false;
        };
        let (word, bit) = bit_of(frame);
        page[word].load(Ordering::Relaxed) & bit != 0
            && page[word].fetch_and(!bit, Ordering::AcqRel) & bit != 0
    }

    /// How many pages of bits there are.
    #[cfg(feature = "verify")]
    pub(crate) fn loan_pages(&self) -> u64 {
        self.lent.roots.iter().filter(|root| root.load(Ordering::Relaxed) != 0).count() as u64
    }
    fn page(&self, root: &AtomicU64) -> Option<&'m Words> {
        let frame = Frame::new(root.load(Ordering::Acquire).checked_sub(1)?);
        Some(words(self.machine, frame.pa()))
    }
    #[cold]
    fn make_page(&self, root: &AtomicU64) -> Result<(), NoBlock> {
        // It is taken beside tables, of which there is one from the start: so it breaks no block
        // that is whole.
        let claim = self.claim_undescribed(Order::BASE, Class::Table)?;
        super::clear_range(self.machine, claim.frames());
        self.machine.owned(claim.frames(), Owner::Records);
        let new = claim.frame().get() + 1;
        match root.compare_exchange(0, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => drop(claim.into_raw()),
            Err(_) => self.release(claim), // somebody was faster
        }
        Ok(())
    }
}

#[cfg(all(test, feature = "steps", not(loom)))]
mod tests {
    use super::*;
    use crate::stock::bare::{Bare, stock};
    use crate::sync::steps::{Touch, watch};
    use foliant_sim::{Config, Sim};
    use foliant_units::Bytes;
    use std::boxed::Box;
    use std::cell::Cell;

    /// One caller gives a block back while another one is at the n-th change of doing the same: one
    /// of them has it.
    #[test]
    fn of_two_that_give_a_loan_back_one_finds_it_lent() {
        std::thread_local! {
            static OTHER: Cell<Option<(u64, &'static Bare<'static>)>> = const { Cell::new(None) };
            static THEIRS: Cell<Option<bool>> = const { Cell::new(None) };
        }
        const LENT: Frame = Frame::new(64);
        fn beside(_: usize, touch: Touch) {
            let Some((left, stock)) = OTHER.take() else { return };
            match touch {
                Touch::Write if left == 1 => THEIRS.set(Some(stock.end_loan(LENT))),
                Touch::Write => OTHER.set(Some((left - 1, stock))),
                _ => OTHER.set(Some((left, stock))),
            }
        }
        let sim = Box::leak(Box::new(Sim::new(Config::free(1, Bytes::new(16 << 20))).unwrap()));
        let root = Box::leak(Box::new([AtomicU64::new(0)]));
        let stock = Stock { lent: Lent::new(root), ..stock(sim) };
        let stock: &'static Bare<'static> = Box::leak(Box::new(stock));
        for nth in 1.. {
            stock.ready_loan(LENT).unwrap();
            stock.begin_loan(LENT);
            OTHER.set(Some((nth, stock)));
            watch(Some(beside));
            let ours = stock.end_loan(LENT);
            watch(None);
            assert!(!stock.end_loan(LENT), "it is lent no more (N1)");
            let Some(theirs) = THEIRS.take() else {
                assert!(ours && nth > 1, "before change {nth}");
                return;
            };
            assert!(ours != theirs, "change {nth}");
        }
    }
}
