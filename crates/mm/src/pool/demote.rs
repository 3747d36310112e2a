//! Pages of 1 GiB become pages of 2 MiB.
//!
//! ```text
//!   1 GiB, folded or    ─▶ its descriptors are taken away, one grace period and one shootdown for the batch
//!   dense by entries    ─▶ the block is cut in 512 ─▶ each is born folded, or dense with folding off: no flush
//!   1 GiB, under a leaf ─▶ the block is cut in 512, the descriptors are written anew; folded with folding on
//! ```
//!
//! A folded page is not unfolded in between, which would take 4095 frames. Each new page takes one
//! frame, or where it is dense those that a stretch takes; where there is none, its 2 MiB go back
//! to the allocator, for a free block needs no descriptors.

use super::chain::Chain;
use super::shelf::{Pool, Standing};
use super::{Folding, Pools};
use crate::memmap::{Batch, Huge};
use crate::stock::Event;
use crate::sync::Outside;
use crate::table::Paging;
use foliant_machine::Machine;
use foliant_units::Order;

/// How many pages of 1 GiB are worked on together.
const BATCH: u64 = 32;

/// What came of demoting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Demoted {
    /// Pages of 1 GiB that are no more.
    pub demoted: u64,
    /// Pages of 2 MiB that were added to the other pool.
    pub made: u64,
    /// Blocks of 2 MiB that went back to the allocator, for lack of memory for a descriptor.
    pub given_up: u64,
}

impl<'a, 'm, M: Machine, P: Paging> Pools<'a, 'm, M, P> {
    /// Returns when no batch of pages is being cut that was when this began.
    pub(crate) fn wait_for_demotion(&self) {
        if let Ok(pool) = self.pool(Order::SIZE_1G) {
            drop(pool.resizing.lock(self.stock.machine));
        }
    }
    /// Cuts up to `count` free pages of 1 GiB that nobody reserved into pages of 2 MiB.
    pub fn demote(&self, count: u64) -> Demoted {
        let (mut out, mut outside) = (Demoted::default(), Outside::at_the_face());
        let (size_1g, size_2m) = (&self.state.size_1g, &self.state.size_2m);
        loop {
            self.collect();
            let left = count - out.demoted;
            let chain = {
                let _larger = size_1g.resizing.lock(self.stock.machine);
                let _smaller = size_2m.resizing.lock(self.stock.machine);
                let standing = (None, Standing::Persistent);
                let chain = self.open(size_1g).detach(Order::SIZE_1G, left.min(BATCH), standing);
                let taken = chain.len();
                if taken > 0 {
                    self.stock.count(Event::PoolBatch);
                    self.demote_some(size_2m, chain, &mut out);
                }
                taken
            };
            if chain == 0 || out.demoted == count {
                return out;
            }
            outside.yield_now(self.stock.machine);
        }
    }

    fn demote_some(&self, size_2m: &'a Pool, mut chain: Chain, out: &mut Demoted) {
        let mut batch = Batch::new(&self.memmap);
        while let Some(huge) = chain.pop(self.stock) {
            batch.push(huge).expect("so many fit without memory");
        }
        out.demoted += batch.len() as u64;
        let mut made = Chain::default();
        let mut dense = Chain::default();
        let recut = self.memmap.recut(&mut batch, Order::SIZE_2M, self.form(), |huge: Huge| {
            let later = self.folding() == Folding::On && !self.memmap.is_folded(&huge);
            if later { &mut dense } else { &mut made }.push(self.stock, huge);
        });
        out.given_up += recut.given_up;
        while let Some(huge) = batch.pop() {
            self.lose(huge); // broken while it was on its way
        }
        self.fold_all(dense, &mut made);
        while made.len() > 0 {
            let open = self.open(size_2m);
            for _ in 0..Self::BATCH {
                let Some(huge) = made.pop(self.stock) else { break };
                out.made += u64::from(open.put(huge, Standing::Persistent));
            }
        }
    }

    /// Folds pages batch by batch, and appends them to `folded`.
    fn fold_all(&self, mut dense: Chain, folded: &mut Chain) {
        while dense.len() > 0 {
            let mut batch = Batch::new(&self.memmap);
            while batch.len() < Self::BATCH
                && let Some(huge) = dense.pop(self.stock)
            {
                if let Err(back) = batch.push(huge) {
                    dense.push(self.stock, back.huge);
                    break;
                }
            }
            self.memmap.fold(&mut batch);
            while let Some(huge) = batch.pop() {
                folded.push(self.stock, huge);
            }
        }
    }
}
