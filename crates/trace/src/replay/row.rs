//! What a replay with one policy came to.

use super::Choice;
use super::course::Moment;
use foliant_units::{Bytes, Nanos, Order};
use std::collections::BTreeMap;

/// The figures of one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The policy.
    pub choice: Choice,
    /// Faults in private memory without a file: calls of the manager's fault handler for them.
    pub anonymous_faults: u64,
    /// Faults in shared memory that is replayed, likewise.
    pub shared_faults: u64,
    /// Writes to private maps of files that took a page.
    pub file_copies: u64,
    /// Faults that the manager refused although the recorded kernel served them.
    pub refused: u64,
    /// Steps down to a smaller size because no block was free.
    pub fallbacks: u64,
    /// Blocks of 2 MiB that another program had pages in before the first step.
    pub fragmented_blocks: u64,
    /// Pages that were moved to make blocks of 2 MiB whole.
    pub moved_pages: u64,
    /// Bytes cleared for folios.
    pub zeroed_bytes: u64,
    /// Pages copied after a fork.
    pub copied_pages: u64,
    /// Flushes that asked at least one other CPU.
    pub shootdowns: u64,
    /// Page-table entries that map memory, in all spaces, at the moment when the most memory was in
    /// use.
    pub leaves: u64,
    /// Modelled kernel time of all CPUs: faults, clearing, tables, flushes, and the system calls
    /// that change spaces. Faults that are only counted are not in it.
    pub kernel: Nanos,
    /// Of it, what having memory compacted took: looking through blocks, moving folios.
    pub compaction: Nanos,
    /// The most that folios held at once: of anonymous memory and of objects.
    pub peak: Bytes,
    /// The most that was mapped at once, summed over spaces: shared pages count once for each.
    pub peak_mapped: Bytes,
    /// Cleared for folios and not touched while mapped: bytes cleared less the pages that the trace
    /// touches for the first time while such a folio maps them.
    pub untouched_bytes: u64,
    /// Folios of anonymous memory and of objects by size, those for maps of files left out.
    pub folios: BTreeMap<Order, u64>,
    /// The step after which the most was held, for [`sights_at`](super::sights_at).
    pub peak_step: u64,
    /// Over the recording's time, [`MOMENTS`](super::MOMENTS) of them; with the pages of maps of
    /// files, as `peak`.
    pub course: Vec<Moment>,
}

impl Row {
    /// Faults in all memory that is replayed but for maps of files.
    pub fn faults(&self) -> u64 {
        self.anonymous_faults + self.shared_faults
    }
    /// Kernel time relative to that of `base`; 1 where both are nothing.
    pub fn kernel_ratio(&self, base: &Row) -> f64 {
        ratio(self.kernel.0, base.kernel.0)
    }
    /// The part of kernel time that compaction took, 0 to 1.
    pub fn compaction_part(&self) -> f64 {
        self.compaction.0 as f64 / self.kernel.0.max(1) as f64
    }
    /// Peak memory relative to that of `base`; 1 where both are nothing.
    pub fn peak_ratio(&self, base: &Row) -> f64 {
        ratio(self.peak.get(), base.peak.get())
    }
}

fn ratio(this: u64, base: u64) -> f64 {
    match (this, base) {
        (0, 0) => 1.0,
        _ => this as f64 / base.max(1) as f64,
    }
}
