//! `/proc/zoneinfo`, `/proc/pagetypeinfo`, and `vmstat` and `numastat` of the node: all memory as
//! one zone of one node, as in `buddyinfo`.
//!
//! There are no watermarks, no lists of pages by age and none per CPU, and nobody counts what is
//! allocated: their lines say 0. What Linux has for several nodes alone is left out of `zoneinfo`.
//!
//! **Not here**: memory of other nodes apart.

use crate::meminfo::{Listed, ORDER_MAX, tables};
use core::fmt::{self, Write};
use foliant::Manager;
use foliant::folio::{FrameState, Usage};
use foliant::frame::Kind;
use foliant::table::Paging;
use foliant_machine::Machine;
use foliant_units::{Frame, FrameRange, Order, Pages};

/// A block, to Linux: memory of one kind is gathered in it.
const BLOCK: Order = Order::SIZE_2M;

/// The lines about a node.
const OF_NODE: [&str; 48] = [
    "nr_inactive_anon",
    "nr_active_anon",
    "nr_inactive_file",
    "nr_active_file",
    "nr_unevictable",
    "nr_slab_reclaimable",
    "nr_slab_unreclaimable",
    "nr_isolated_anon",
    "nr_isolated_file",
    "workingset_nodes",
    "workingset_refault_anon",
    "workingset_refault_file",
    "workingset_activate_anon",
    "workingset_activate_file",
    "workingset_restore_anon",
    "workingset_restore_file",
    "workingset_nodereclaim",
    "nr_anon_pages",
    "nr_mapped",
    "nr_file_pages",
    "nr_dirty",
    "nr_writeback",
    "nr_shmem",
    "nr_shmem_hugepages",
    "nr_shmem_pmdmapped",
    "nr_file_hugepages",
    "nr_file_pmdmapped",
    "nr_anon_transparent_hugepages",
    "nr_vmscan_write",
    "nr_vmscan_immediate_reclaim",
    "nr_dirtied",
    "nr_written",
    "nr_throttled_written",
    "nr_kernel_misc_reclaimable",
    "nr_foll_pin_acquired",
    "nr_foll_pin_released",
    "nr_kernel_stack",
    "nr_page_table_pages",
    "nr_sec_page_table_pages",
    "nr_iommu_pages",
    "nr_swapcached",
    "pgdemote_kswapd",
    "pgdemote_direct",
    "pgdemote_khugepaged",
    "pgdemote_proactive",
    "nr_hugetlb",
    "nr_balloon_pages",
    "nr_kernel_file_pages",
];
/// Those about a zone.
const OF_ZONE: [&str; 11] = [
    "nr_free_pages",
    "nr_free_pages_blocks",
    "nr_zone_inactive_anon",
    "nr_zone_active_anon",
    "nr_zone_inactive_file",
    "nr_zone_active_file",
    "nr_zone_unevictable",
    "nr_zone_write_pending",
    "nr_mlock",
    "nr_zspages",
    "nr_free_cma",
];

/// Where memory was taken from, with the names of `numastat` where it has others.
const TAKEN: [(&str, &str); 6] = [
    ("numa_hit", "numa_hit"),
    ("numa_miss", "numa_miss"),
    ("numa_foreign", "numa_foreign"),
    ("numa_interleave", "interleave_hit"),
    ("numa_local", "local_node"),
    ("numa_other", "other_node"),
];

/// What a line says.
fn count<M: Machine, P: Paging>(mm: &Manager<'_, M, P>, listed: &Listed, name: &str) -> u64 {
    let (memory, free) = (mm.memory(), mm.free_blocks());
    let anonymous = memory.anonymous.get();
    match name {
        "nr_active_anon" | "nr_zone_active_anon" => anonymous,
        "nr_unevictable" | "nr_zone_unevictable" | "nr_mlock" => listed.locked,
        "nr_anon_pages" => listed.own(mm),
        "nr_mapped" => listed.mapped,
        "nr_file_pages" | "nr_shmem" => listed.shared,
        "nr_shmem_hugepages" | "nr_shmem_pmdmapped" => listed.large(),
        "nr_anon_transparent_hugepages" => listed.own_large(mm),
        "nr_page_table_pages" => tables(mm),
        "nr_hugetlb" => mm.pooled().get(),
        "nr_free_pages" => memory.free.get(),
        "nr_free_pages_blocks" => free.within(BLOCK) * BLOCK.pages().get(),
        _ => 0,
    }
}

/// Writes `vmstat` of the node.
pub fn node_vmstat<M: Machine, P: Paging>(
    mm: &Manager<'_, M, P>,
    listed: &Listed,
    out: &mut impl Write,
) -> fmt::Result {
    let taken = TAKEN.iter().map(|(name, _)| name);
    let mut all = OF_ZONE.iter().chain(taken).chain(&OF_NODE);
    all.try_for_each(|name| writeln!(out, "{name} {}", count(mm, listed, name)))
}
/// Writes `numastat` of the node.
pub fn numastat(out: &mut impl Write) -> fmt::Result {
    TAKEN.iter().try_for_each(|(_, name)| writeln!(out, "{name} 0"))
}

/// Writes `/proc/zoneinfo`.
pub fn zoneinfo<M: Machine, P: Paging>(
    mm: &Manager<'_, M, P>,
    listed: &Listed,
    out: &mut impl Write,
) -> fmt::Result {
    let memory = mm.memory();
    let count = |name: &str| count(mm, listed, name);
    write!(out, "Node 0, zone   Normal\n  per-node stats")?;
    for name in OF_NODE {
        write!(out, "\n      {name:12} {}", count(name))?;
    }
    let start = mm.ranges().map(|range| range.start()).min().unwrap_or(Frame::new(0));
    let end = mm.ranges().map(|range| range.end()).max().unwrap_or(start);
    write!(out, "\n  pages free     {}", memory.free.get())?;
    for (name, pages) in [
        ("boost", 0),
        ("min", 0),
        ("low", 0),
        ("high", 0),
        ("promo", 0),
        ("spanned", end.get() - start.get()),
        ("present", memory.managed.get()),
        ("managed", memory.managed.get()),
        ("cma", 0),
    ] {
        write!(out, "\n        {name:8} {pages}")?;
    }
    write!(out, "\n        protection: (0)")?;
    for name in OF_ZONE {
        write!(out, "\n      {name:12} {}", count(name))?;
    }
    write!(out, "\n  pagesets")?;
    for cpu in 0..mm.folios().cpus().0 {
        write!(out, "\n    cpu: {cpu}")?;
        for name in ["count:", "high:", "batch:", "high_min:", "high_max:"] {
            write!(out, "\n              {name:9} 0")?;
        }
        write!(out, "\n  vm stats threshold: 0")?;
    }
    writeln!(out, "\n  node_unreclaimable:  0\n  start_pfn:           {}", start.get())
}

/// What memory is gathered by, to Linux.
const TYPES: [&str; 5] = ["Unmovable", "Movable", "Reclaimable", "HighAtomic", "Isolate"];
const UNMOVABLE: usize = 0;
const MOVABLE: usize = 1;
/// Linux counts no further.
const FREE_MAX: u64 = 100_000;

/// Writes `/proc/pagetypeinfo`. What is free counts as movable, whichever block it lies in; a block
/// is unmovable where something of the kernel's lies in it.
pub fn pagetypeinfo<M: Machine, P: Paging>(
    mm: &Manager<'_, M, P>,
    out: &mut impl Write,
) -> fmt::Result {
    writeln!(out, "Page block order: {}", BLOCK.get())?;
    writeln!(out, "Pages per block:  {}\n", BLOCK.pages().get())?;
    write!(out, "{:43} ", "Free pages count per migrate type at order")?;
    let orders = || Order::all().filter(|order| order.get() <= ORDER_MAX);
    for order in orders() {
        write!(out, "{:6} ", order.get())?;
    }
    out.write_char('\n')?;
    let free = mm.free_blocks();
    for (nth, name) in TYPES.iter().enumerate() {
        write!(out, "Node    0, zone   Normal, type {name:>12} ")?;
        for order in orders() {
            let is_last = order.get() == ORDER_MAX;
            let blocks = if is_last { free.within(order) } else { free.blocks(order) };
            let blocks = if nth == MOVABLE { blocks } else { 0 };
            let more = if blocks >= FREE_MAX { ">" } else { "" };
            write!(out, "{more}{:6} ", blocks.min(FREE_MAX))?;
        }
        out.write_char('\n')?;
    }
    write!(out, "\n{:23}", "Number of blocks type ")?;
    for name in TYPES {
        write!(out, "{name:>12} ")?;
    }
    write!(out, "\nNode 0, zone   Normal ")?;
    let mut counts = [0; TYPES.len()];
    for range in mm.ranges() {
        let mut first = BLOCK.head(range.start());
        while first < range.end() {
            counts[type_of(mm, first, range)] += 1;
            first = first.add(BLOCK.pages());
        }
    }
    for count in counts {
        write!(out, "{count:12} ")?;
    }
    out.write_char('\n')
}

/// What the block that begins at `first` is gathered by.
fn type_of<M: Machine, P: Paging>(
    mm: &Manager<'_, M, P>,
    first: Frame,
    memory: FrameRange,
) -> usize {
    let is_fixed = |frame: Frame| {
        let is_used = matches!(mm.folios().state(frame), FrameState::Allocated { .. });
        let kind = mm.identity(frame).kind();
        is_used && matches!(kind, Kind::Plain | Kind::Space | Kind::Kernel)
    };
    let has_fixed = match mm.folios().usage(first) {
        Usage::Free => false,
        Usage::Held => is_fixed(first),
        Usage::Partly(_) | Usage::Foreign => {
            let frames = (0..BLOCK.pages().get()).map(|nth| first.add(Pages::new(nth)));
            frames.filter(|frame| memory.contains(*frame)).any(is_fixed)
        }
    };
    if has_fixed { UNMOVABLE } else { MOVABLE }
}
