//! What is counted, and where.

use super::pace::Pace;
use super::visits::Visits;
use crate::sync::{AtomicU64, GraceSlot, Ordering};
use foliant_units::Order;

macro_rules! events {
    ($(#[$doc:meta])* $name:ident { $($(#[$item_doc:meta])* $item:ident => $label:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name { $($(#[$item_doc])* $item),* }
        impl $name {
            /// All of them, in order.
            pub const ALL: &[$name] = &[$($name::$item),*];
            /// The name under which it is published.
            pub const fn label(self) -> &'static str {
                match self { $($name::$item => $label),* }
            }
        }
    };
}

events! {
    /// What the manager counts. Shootdowns and invalidations carry Linux's `vmstat` names.
    Event {
        /// Faults handed in, whatever became of them.
        Fault => "pgfault",
        /// Read faults that got shared zeros, a page or 2 MiB.
        ZeroPage => "zero_page_fault",
        /// Writes to a shared page that took a copy.
        Copied => "cow_copy",
        /// Pages that a fork copied, because they are anchored in the parent; a huge page is one.
        ForkCopied => "fork_copy",
        /// Faults that mapped a part of a folio of an object.
        ObjectMapped => "object_mapped",
        /// Pages of objects that came with one beside them.
        ObjectAround => "object_around",
        /// Writes to a page that was shared once and had only this owner left.
        Reused => "cow_reuse",
        /// Groups of entries that faults and forks made, which hardware may cache as one.
        ContMapped => "cont_mapped",
        /// Such groups taken apart into single entries, because a part of one changed.
        ContSplit => "cont_split",
        /// Faults that found the access already possible.
        Spurious => "fault_spurious",
        /// Folios prepared and dropped because the range had changed meanwhile.
        LostRace => "fault_lost_race",
        /// Bytes cleared.
        ZeroedBytes => "zeroed_bytes",
        /// Bytes not cleared because they were known to be zero.
        SparedBytes => "zero_spared_bytes",
        /// Bytes cleared ahead of their use.
        AheadBytes => "zeroed_ahead_bytes",
        /// Bytes cleared for a folio that was dropped; they stay known to be zero.
        DroppedBytes => "zero_dropped_bytes",
        /// Extents handed to the machine to be cleared.
        ZeroExtents => "zero_extents",
        /// Preemption points taken while clearing.
        ZeroYields => "zero_yields",
        /// Bytes copied.
        CopiedBytes => "copied_bytes",
        /// Flushes that asked at least one other CPU.
        Shootdown => "nr_tlb_remote_flush",
        /// CPUs asked.
        Interrupt => "nr_tlb_remote_flush_received",
        /// Grace periods: waits for readers, each for all callers that waited then.
        GracePeriods => "grace_periods",
        /// Flushes of everything on this CPU.
        LocalAll => "nr_tlb_local_flush_all",
        /// Single invalidations on this CPU.
        LocalOne => "nr_tlb_local_flush_one",
        /// Entries taken out that needed no flush, because no walker had ever used them.
        FlushSpared => "flush_spared",
        /// Switches to a space of which the CPU kept what it had cached.
        SwitchKept => "switch_kept",
        /// Page tables made.
        TableMade => "table_made",
        /// Page tables given back.
        TableFreed => "table_freed",
        /// Allocations refused: for lack of a block, or by the machine (`Witness::refusal`).
        NoMemory => "alloc_fail",
        /// Frames that hold descriptors, shared ones included: counted up and down.
        MemmapPages => "nr_memmap_pages",
        /// Huge pages folded, born folded ones included.
        Folded => "hugetlb_optimized",
        /// Huge pages that were folded from the start: nothing was flushed.
        BornFolded => "hugetlb_born_optimized",
        /// Huge pages that were handed in to be folded and were so already.
        FoldSkipped => "hugetlb_optimize_skipped",
        /// Huge pages that were to be folded and stayed as they are, for lack of memory or because
        /// the machine forbids it.
        FoldFailed => "hugetlb_optimize_failed",
        /// Huge pages unfolded.
        Unfolded => "hugetlb_restored",
        /// Huge pages that were to be unfolded and stayed folded for lack of memory.
        UnfoldFailed => "hugetlb_restore_failed",
        /// Blocks of 2 MiB whose descriptors were given back.
        StretchReleased => "memmap_released",
        /// Flushes after leaves of the descriptor array were split.
        FlushSplit => "memmap_flush_split",
        /// Flushes after tails were folded.
        FlushFold => "memmap_flush_fold",
        /// Flushes in the middle of a batch, to get memory.
        FlushRecovery => "memmap_flush_recovery",
        /// Flushes after tails were unfolded.
        FlushUnfold => "memmap_flush_restore",
        /// Flushes after descriptors were unmapped.
        FlushRelease => "memmap_flush_release",
        /// Frames that were retired: broken, or about to break.
        Retired => "memory_retired",
        /// Huge pages whose last reference went: each goes back to its pool later.
        HugeReturned => "hugetlb_returned",
        /// Times that there was something for the pools to collect and nothing was before.
        HugeWork => "hugetlb_free_work",
        /// Batches of huge pages that were made for pools, taken out so that a pool is smaller, or
        /// cut.
        PoolBatch => "hugetlb_batch",
        /// Times that the lock of a pool was taken.
        PoolLock => "hugetlb_lock",
        /// Pages of kernel memory, those that only users or walkers still hold included: counted up
        /// and down.
        VmallocPages => "nr_vmalloc_pages",
        /// Requests for kernel memory for which large leaves were tried.
        VmallocHuge => "vmalloc_huge",
        /// Such attempts that were given up, because no block was free.
        VmallocNoBlock => "vmalloc_huge_fallback_block",
        /// Attempts that were given up because no range was aligned so.
        VmallocNoRoom => "vmalloc_huge_fallback_address",
        /// Attempts that were given up because there was no memory for a page table or a record.
        VmallocNoRecord => "vmalloc_huge_fallback_record",
        /// Attempts that were given up because the place of a leaf was taken.
        VmallocNoSlot => "vmalloc_huge_fallback_slot",
        /// Attempts for which memory was compacted while the caller waited.
        VmallocCompact => "vmalloc_huge_compact",
        /// Such attempts that had their blocks then.
        VmallocCompactSuccess => "vmalloc_huge_compact_success",
        /// Bytes mapped beyond the last base page, where sizes are rounded up.
        VmallocRounded => "vmalloc_rounded_bytes",
        /// Entries of 4 KiB written for kernel ranges.
        VmapLeafBase => "vmap_leaf_4k",
        /// Leaves of 2 MiB.
        VmapLeaf2m => "vmap_leaf_2m",
        /// Leaves of 1 GiB.
        VmapLeaf1g => "vmap_leaf_1g",
        /// Kernel leaves split because a part of them changed.
        VmapSplit => "vmap_leaf_split",
        /// Flushes after which kernel ranges may be used again.
        VmapPurge => "vmap_purge",
        /// Pages of the kernel ranges that these flushes were for.
        VmapPurged => "vmap_purged_pages",
        /// Flushes before the frames of a single range went: eagerly, or because its attributes had
        /// been changed.
        VmapFlush => "vmap_flush",
        /// Flushes because empty tables made room for a leaf.
        VmapTableFlush => "vmap_table_flush",
        /// Kernel ranges whose release was deferred.
        VmapDeferred => "vmap_deferred",
        /// Grace periods waited for on behalf of descriptors.
        MemmapGrace => "memmap_grace_periods",
        /// Blocks of 2 MiB that became the block of zeros.
        ThpZeroPageAlloc => "thp_zero_page_alloc",
        /// Read faults that got a page of zeros because no block was free for 2 MiB of them.
        ThpZeroPageAllocFailed => "thp_zero_page_alloc_failed",
        /// Folios of 2 MiB that were split.
        ThpSplitPage => "thp_split_page",
        /// Folios of 2 MiB that stayed whole because somebody used them.
        ThpSplitPageFailed => "thp_split_page_failed",
        /// Folios of 2 MiB that became partly unmapped and wait to be split.
        ThpDeferredSplitPage => "thp_deferred_split_page",
        /// Folios of 2 MiB that were split because they hold few bytes but zeros.
        ThpUnderusedSplitPage => "thp_underused_split_page",
        /// Pages of guessed sizes that were given back, because nobody used them.
        GuessTaken => "thp_guess_taken",
        /// Pages of folios that were moved.
        PgMigrateSuccess => "pgmigrate_success",
        /// Pages of folios that were to move and stayed because somebody used them.
        PgMigrateFail => "pgmigrate_fail",
        /// Folios larger than a page that were moved.
        ThpMigrationSuccess => "thp_migration_success",
        /// Folios larger than a page that were to move and stayed.
        ThpMigrationFail => "thp_migration_fail",
        /// Folios larger than a page that were split because there was no block to move them to.
        ThpMigrationSplit => "thp_migration_split",
        /// Times that somebody had memory compacted because no block was free, and waited for it.
        CompactStall => "compact_stall",
        /// Of these, how often that made a block.
        CompactSuccess => "compact_success",
        /// Of these, how often it made none.
        CompactFail => "compact_fail",
        /// Requests that found compaction put off, after it had gained nothing.
        CompactDeferred => "compact_deferred",
        /// Blocks that were emptied.
        CompactBlocks => "compact_blocks",
        /// Frames of the blocks that were gone through to empty them.
        CompactScanned => "compact_migrate_scanned",
        /// Folios that were moved out of them.
        CompactMoved => "compact_moved",
        /// Nanoseconds, by the machine's clock, that requests took.
        CompactNanos => "compact_ns",
        /// Folios of 2 MiB made of smaller ones.
        ThpCollapseAlloc => "thp_collapse_alloc",
        /// Times that there was no block for one.
        ThpCollapseAllocFailed => "thp_collapse_alloc_failed",
        /// Ranges left as they are because too much of them is empty.
        ThpScanExceedNonePte => "thp_scan_exceed_none_pte",
        /// Ranges left as they are because too much of them is shared.
        ThpScanExceedSharePte => "thp_scan_exceed_share_pte",
    }
}

events! {
    /// What is counted per folio size. Names as in Linux's `hugepages-*kB/stats`.
    SizeEvent {
        /// Anonymous folios of zeros mapped by a fault, where nothing was or the zero page.
        AnonFaultAlloc => "anon_fault_alloc",
        /// Steps down to a smaller size, because no block was free or the charge was refused.
        AnonFaultFallback => "anon_fault_fallback",
        /// Of these, those because the charge was refused.
        AnonFaultFallbackCharge => "anon_fault_fallback_charge",
        /// Folios of zeros that a fault or the kernel brought into an object.
        ShmemAlloc => "shmem_alloc",
        /// Steps down to a smaller size there, because no block was free or the charge was refused.
        ShmemFallback => "shmem_fallback",
        /// Of these, those because the charge was refused.
        ShmemFallbackCharge => "shmem_fallback_charge",
        /// Anonymous folios alive, those of objects among them.
        NrAnon => "nr_anon",
        /// Anonymous folios alive of which a part is unmapped.
        NrAnonPartiallyMapped => "nr_anon_partially_mapped",
        /// Folios that became partly mapped: candidates of a deferred split.
        SplitDeferred => "split_deferred",
        /// Folios that were split.
        Split => "split",
        /// Folios that stayed whole because somebody used them.
        SplitFailed => "split_failed",
        /// Folios made of smaller ones.
        CollapseAlloc => "collapse_alloc",
        /// Times that there was no block for one.
        CollapseAllocFailed => "collapse_alloc_failed",
        /// Ranges of that size left as they are because too much of them is empty.
        CollapseExceedNone => "collapse_exceed_none_pte",
        /// Ranges left as they are because too much of them is shared.
        CollapseExceedShared => "collapse_exceed_shared_pte",
    }
}

/// Sizes that anonymous memory can have: 4 KiB to 2 MiB.
pub(crate) const ANON_ORDERS: usize = Order::SIZE_2M.index() + 1;

/// The counters of one CPU.
#[repr(C, align(64))]
pub(crate) struct PerCpu {
    pub(crate) grace: GraceSlot,
    pub(crate) visits: Visits,
    pub(crate) pace: Pace,
    pub(crate) events: [AtomicU64; Event::ALL.len()],
    pub(crate) sizes: [[AtomicU64; SizeEvent::ALL.len()]; ANON_ORDERS],
}

#[cfg(all(test, loom))]
impl PerCpu {
    /// Makes cleared counters where words cannot be laid over cleared memory.
    pub(crate) fn cleared() -> PerCpu {
        PerCpu {
            grace: GraceSlot::default(),
            visits: Visits::default(),
            pace: Pace::default(),
            events: core::array::from_fn(|_| AtomicU64::new(0)),
            sizes: core::array::from_fn(|_| Default::default()),
        }
    }
}

/// A sum over CPUs. One that goes up on a CPU that was read already, and down on one that was not,
/// is read below zero: there is nothing then.
pub(crate) const fn or_none(sum: u64) -> u64 {
    if (sum as i64) < 0 { 0 } else { sum }
}

/// The counts of one folio size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SizeStats {
    counts: [u64; SizeEvent::ALL.len()],
}

impl SizeStats {
    pub(crate) fn sum(cpus: &[PerCpu], order: Order) -> SizeStats {
        let mut counts = [0u64; SizeEvent::ALL.len()];
        for row in cpus.iter().filter_map(|cpu| cpu.sizes.get(order.index())) {
            for (sum, count) in counts.iter_mut().zip(row) {
                *sum = sum.wrapping_add(count.load(Ordering::Relaxed));
            }
        }
        SizeStats { counts: counts.map(or_none) }
    }
    /// One of them alone.
    pub(crate) fn sum_of(cpus: &[PerCpu], order: Order, event: SizeEvent) -> u64 {
        let rows = cpus.iter().filter_map(|cpu| cpu.sizes.get(order.index()));
        let counts = rows.map(|row| row[event as usize].load(Ordering::Relaxed));
        or_none(counts.fold(0, u64::wrapping_add))
    }
    /// The count of `event`.
    pub const fn get(&self, event: SizeEvent) -> u64 {
        self.counts[event as usize]
    }
}

const _: () = assert!(size_of::<PerCpu>().is_multiple_of(64));

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::stock::bare::stock;
    use foliant_sim::{Config, Sim};
    use foliant_units::Bytes;

    /// A reader has read the counts of one CPU before something came alive there, and reads those
    /// of another one after it has ended here: as if it had ended alone.
    #[test]
    fn finding_cb_what_is_alive_is_not_read_below_nothing() {
        let sim = Sim::new(Config::free(1, Bytes::new(16 << 20))).unwrap();
        let stock = stock(&sim);
        let alive = |event| stock.size_stats(Order::BASE).get(event);
        stock.uncount_size(Order::BASE, SizeEvent::NrAnon);
        stock.count_size(Order::BASE, SizeEvent::Split);
        assert_eq!([SizeEvent::NrAnon, SizeEvent::Split].map(alive), [0, 1]);
        (0..3).for_each(|_| stock.count_size(Order::BASE, SizeEvent::NrAnon));
        assert_eq!(alive(SizeEvent::NrAnon), 2);
        stock.uncount_by(Event::VmallocPages, 1);
        assert_eq!(stock.total(Event::VmallocPages), 0);
        let charge = crate::stock::Charge::default();
        charge.uncharge_unread(1);
        assert_eq!(charge.pages().get(), 0);
    }
}
