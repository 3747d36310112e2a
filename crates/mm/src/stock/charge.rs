//! What a space is charged for: pages, and the frames of the tables and records that it causes.
//!
//! A caller that takes a frame for a space's tables, area nodes or offsets names the space's
//! charge, and names it again when the frame goes. Pages are charged once for each entry that maps
//! them; so is the record of a fork tree, once for each member that keeps it there. A limit is one
//! on both together.
//!
//! **Invariants**
//! - C1. What is charged never exceeds the limit, not for a moment: a charge that does not fit is
//!   not added, so it takes no room from one that does.
//! - C2. At rest the records charged are the tables, deposits, nodes and frames of offsets that the
//!   space has, its record and its top table, and one for its fork tree's record where that is
//!   another space's. The audit counts them.

use super::{NoBlock, Stock, or_none};
use crate::frame::Claim;
use crate::sync::{AtomicU64, Ordering};
use crate::table::Paging;
use foliant_machine::{Machine, Owner};
use foliant_units::{Cpu, Pages};

/// How many lines the counts are spread over, so that CPUs that fault together share none.
const SHARDS: usize = 16;

/// Counts on a cache line of their own.
#[derive(Default)]
#[repr(C, align(64))]
struct Shard {
    pages: AtomicU64,
    records: AtomicU64,
}

/// See the module's text. All words; valid when cleared.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Charge {
    /// One more than may be charged; 0 stands for no limit. Constant once something is charged.
    limit: AtomicU64,
    /// Pages and records charged, kept only under a limit.
    used: AtomicU64,
    shards: [Shard; SHARDS],
}

/// The charge was refused: it would exceed this limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OverLimit(pub(crate) Pages);

/// Why a space got no frame for a table or a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoRecord {
    /// There is none.
    Block,
    /// It may not have one.
    Limit(OverLimit),
}

impl From<NoBlock> for NoRecord {
    fn from(_: NoBlock) -> NoRecord {
        NoRecord::Block
    }
}
impl From<OverLimit> for NoRecord {
    fn from(over: OverLimit) -> NoRecord {
        NoRecord::Limit(over)
    }
}

impl Charge {
    /// Pages mapped, each counted once per entry.
    pub(crate) fn pages(&self) -> Pages {
        self.sum(|shard| &shard.pages)
    }
    /// Frames of tables and records.
    pub(crate) fn records(&self) -> Pages {
        self.sum(|shard| &shard.records)
    }
    fn sum(&self, count: impl Fn(&Shard) -> &AtomicU64) -> Pages {
        let counts = self.shards.iter().map(|shard| count(shard).load(Ordering::Relaxed));
        Pages::new(or_none(counts.fold(0, u64::wrapping_add)))
    }
    /// As a reader finds it that has read another shard before so many pages were charged there.
    #[cfg(all(test, not(loom)))]
    pub(super) fn uncharge_unread(&self, pages: u64) {
        self.shards[1].pages.fetch_sub(pages, Ordering::Relaxed);
    }
    fn shard(&self, cpu: Cpu) -> &Shard {
        &self.shards[cpu.index() % SHARDS]
    }

    /// Counts `pages` as the space's, unless that exceeds its limit.
    pub(crate) fn charge(&self, cpu: Cpu, pages: u64) -> Result<(), OverLimit> {
        self.take(pages)?;
        self.shard(cpu).pages.fetch_add(pages, Ordering::Relaxed);
        Ok(())
    }
    /// Whether `pages` more would be admitted now.
    pub(crate) fn admits(&self, pages: u64) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        self.limit().is_none_or(|limit| used.saturating_add(pages) <= limit.get())
    }
    pub(crate) fn uncharge(&self, cpu: Cpu, pages: u64) {
        self.give(pages);
        self.shard(cpu).pages.fetch_sub(pages, Ordering::Relaxed);
    }
    /// Counts frames of tables or records as the space's, unless that exceeds its limit.
    pub(crate) fn charge_records(&self, cpu: Cpu, frames: u64) -> Result<(), OverLimit> {
        self.take(frames)?;
        self.shard(cpu).records.fetch_add(frames, Ordering::Relaxed);
        Ok(())
    }
    pub(crate) fn uncharge_records(&self, cpu: Cpu, frames: u64) {
        self.give(frames);
        self.shard(cpu).records.fetch_sub(frames, Ordering::Relaxed);
    }
    /// Counts pages of the pools, which are charged to nobody: they were paid for when the pool was
    /// filled.
    pub(crate) fn count_huge(&self, cpu: Cpu, pages: u64) {
        self.shard(cpu).pages.fetch_add(pages, Ordering::Relaxed);
    }
    pub(crate) fn uncount_huge(&self, cpu: Cpu, pages: u64) {
        self.shard(cpu).pages.fetch_sub(pages, Ordering::Relaxed);
    }

    pub(crate) fn limit(&self) -> Option<Pages> {
        self.limit.load(Ordering::Relaxed).checked_sub(1).map(Pages::new)
    }
    /// Sets the limit; before anything is charged.
    pub(crate) fn set_limit(&self, limit: Option<Pages>) {
        let word = limit.map_or(0, |pages| pages.get().saturating_add(1));
        self.limit.store(word, Ordering::Relaxed);
    }
    /// What is charged, where that is limited.
    #[cfg(any(feature = "verify", all(loom, test)))]
    pub(crate) fn used(&self) -> Option<Pages> {
        self.limit().map(|_| Pages::new(self.used.load(Ordering::Relaxed)))
    }

    fn take(&self, frames: u64) -> Result<(), OverLimit> {
        let Some(limit) = self.limit() else { return Ok(()) };
        // It is compared first: a refused charge is never there, so that it refuses no other (C1).
        let fits = |used: u64| used.checked_add(frames).filter(|sum| *sum <= limit.get());
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        taken.map(drop).map_err(|_| OverLimit(limit))
    }
    fn give(&self, frames: u64) {
        if self.limit.load(Ordering::Relaxed) != 0 {
            self.used.fetch_sub(frames, Ordering::Relaxed);
        }
    }
}

impl<M: Machine, P: Paging> Stock<'_, M, P> {
    /// Takes a cleared base frame for a table or record of the space that `charge` is of.
    pub(crate) fn claim_charged(&self, charge: &Charge, owner: Owner) -> Result<Claim, NoRecord> {
        charge.charge_records(self.machine.me(), 1)?;
        self.claim_cleared(owner).map_err(|none| {
            charge.uncharge_records(self.machine.me(), 1);
            none.into()
        })
    }
    /// Gives one back.
    pub(crate) fn release_charged(&self, charge: &Charge, claim: Claim) {
        charge.uncharge_records(self.machine.me(), 1);
        self.release(claim);
    }
}

#[cfg(all(loom, test))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// One CPU wants more than is left and the other one less: the other one gets it, whichever
    /// comes first.
    #[test]
    fn finding_n_a_refused_charge_takes_no_room() {
        loom::model(|| {
            let charge = Arc::new(Charge::default());
            charge.set_limit(Some(Pages::new(520)));
            charge.charge(Cpu(0), 65).unwrap();
            let large = {
                let charge = charge.clone();
                thread::spawn(move || charge.charge(Cpu(1), 512))
            };
            assert_eq!(charge.charge_records(Cpu(0), 1), Ok(()), "66 of 520 are charged");
            assert_eq!(large.join().unwrap(), Err(OverLimit(Pages::new(520))));
            assert_eq!(charge.used(), Some(Pages::new(66)));
        });
    }
}
