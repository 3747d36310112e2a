//! Giving pages up: each as it was found.
//!
//! ```text
//!   dense          ─▶ free at once
//!   born folded    ─▶ released, its descriptors with it                     one shootdown for all
//!   folded later   ─▶ unfolded, then free                                   one shootdown for all
//!                       └─ no memory ─▶ released like the ones born folded
//! ```
//!
//! So giving up comes to an end, however little memory there is: unfolding is tried once per batch,
//! and releasing takes no memory.

use super::chain::Chain;
use super::{PoolError, Pools};
use crate::memmap::{Batch, Huge};
use crate::table::Paging;
use foliant_machine::Machine;

impl<'a, 'm, M: Machine, P: Paging> Pools<'a, 'm, M, P> {
    /// Gives pages that are counted out of their pool back to the allocator. Says how many were
    /// reported broken on their way, and are lost.
    pub(super) fn give_up(&self, mut chain: Chain) -> u64 {
        let mut lost = 0;
        while chain.len() > 0 {
            let (mut born, mut later) = (Batch::new(&self.memmap), Batch::new(&self.memmap));
            while let Some(huge) = chain.pop(self.stock) {
                if !self.memmap.is_folded(&huge) {
                    lost += self.free(huge);
                    continue;
                }
                let batch = if self.memmap.is_born_folded(&huge) { &mut born } else { &mut later };
                if batch.len() == Self::BATCH {
                    chain.push(self.stock, huge);
                    break;
                }
                if let Err(back) = batch.push(huge) {
                    // There is no memory for a longer list: this one is worked off first.
                    chain.push(self.stock, back.huge);
                    break;
                }
            }
            lost += self.unfold(&mut later, &mut born);
            lost += self.release(&mut born);
        }
        lost
    }
    /// Gives one page that is counted out of its pool back to the allocator.
    pub(super) fn give_one_up(&self, huge: Huge) -> u64 {
        let mut chain = Chain::default();
        chain.push(self.stock, huge);
        self.give_up(chain)
    }

    /// Gives a page up that was taken, and is in its pool.
    pub(crate) fn give_up_taken(&self, huge: Huge) {
        self.open(self.pool(huge.order()).expect("a huge page has a pool")).count_out(huge.head());
        self.give_one_up(huge);
    }

    /// Unfolds and frees pages. Those that stay folded join the ones to be released.
    fn unfold(&self, later: &mut Batch<'a, 'm, M, P>, born: &mut Batch<'a, 'm, M, P>) -> u64 {
        if later.len() == 0 {
            return 0;
        }
        let mut lost = 0;
        self.memmap.unfold(later);
        while let Some(huge) = later.pop() {
            if !self.memmap.is_folded(&huge) {
                lost += self.free(huge);
            } else if let Err(back) = born.push(huge) {
                lost += self.release(born);
                born.push(back.huge).expect("it is empty now");
            }
        }
        lost
    }
    fn free(&self, huge: Huge) -> u64 {
        match self.memmap.free(huge) {
            Ok(()) => 0,
            Err(kept) => {
                self.lose(kept.huge);
                1
            }
        }
    }
    fn release(&self, batch: &mut Batch<'a, 'm, M, P>) -> u64 {
        if batch.len() == 0 {
            return 0;
        }
        self.memmap.release(batch);
        let mut lost = 0;
        while let Some(huge) = batch.pop() {
            self.lose(huge);
            lost += 1;
        }
        lost
    }
    /// Loses a page whose memory was reported broken when it had left its pool.
    pub(super) fn lose(&self, huge: Huge) {
        match self.pool(huge.order()) {
            Ok(pool) => self.open(pool).lose(huge),
            Err(PoolError::Order(_) | PoolError::Node(_)) => {
                unreachable!("a huge page has a pool")
            }
        }
    }
}
