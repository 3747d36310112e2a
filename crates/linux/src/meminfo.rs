//! `/proc/meminfo`, `/proc/vmstat` and `/proc/buddyinfo`: the machine's memory, as text.
//!
//! Lines of what there is not (a page cache, swap, slabs) say 0, because programs look for them by
//! name. Linux's lines about the processor's own map of memory are the embedder's.

use core::fmt::{self, Write};
use foliant::table::Paging;
use foliant::{Event, Manager, SizeEvent};
use foliant_machine::Machine;
use foliant_units::{FRAME_BYTES, Order};

/// Kilobytes of a page.
const PAGE_KB: u64 = FRAME_BYTES >> 10;

/// Writes `/proc/meminfo`.
pub fn meminfo<M: Machine, P: Paging>(mm: &Manager<'_, M, P>, out: &mut impl Write) -> fmt::Result {
    let memory = mm.memory();
    let pages = |pages: u64| pages * PAGE_KB;
    let (total, free) = (pages(memory.managed.get()), pages(memory.free.get()));
    let huge = mm.size_total(Order::SIZE_2M, SizeEvent::NrAnon) * Order::SIZE_2M.pages().get();
    let anonymous = pages(memory.anonymous.get());
    for (name, kilobytes) in [
        ("MemTotal:", total),
        ("MemFree:", free),
        ("MemAvailable:", free),
        ("Buffers:", 0),
        ("Cached:", 0),
        ("SwapCached:", 0),
        ("Active:", anonymous),
        ("Inactive:", 0),
        ("Active(anon):", anonymous),
        ("Inactive(anon):", 0),
        ("Active(file):", 0),
        ("Inactive(file):", 0),
        ("Unevictable:", 0),
        ("Mlocked:", 0),
        ("SwapTotal:", 0),
        ("SwapFree:", 0),
        ("Dirty:", 0),
        ("Writeback:", 0),
        ("AnonPages:", anonymous),
        ("Mapped:", 0),
        ("Shmem:", 0),
        ("KReclaimable:", 0),
        ("Slab:", 0),
        ("SReclaimable:", 0),
        ("SUnreclaim:", 0),
        ("PageTables:", pages(tables(mm))),
        ("AnonHugePages:", pages(huge)),
        ("ShmemHugePages:", 0),
        ("ShmemPmdMapped:", 0),
        ("FileHugePages:", 0),
        ("FilePmdMapped:", 0),
    ] {
        writeln!(out, "{name:16}{kilobytes:8} kB")?;
    }
    pools(mm, out)
}

fn pools<M: Machine, P: Paging>(mm: &Manager<'_, M, P>, out: &mut impl Write) -> fmt::Result {
    let order = Order::SIZE_2M;
    let counters = mm.pool(order).ok();
    let count = |of: fn(&foliant::pool::PoolCounters) -> u64| counters.as_ref().map_or(0, of);
    for (name, count) in [
        ("HugePages_Total:", count(|pool| pool.nr_hugepages)),
        ("HugePages_Free:", count(|pool| pool.free_hugepages)),
        ("HugePages_Rsvd:", count(|pool| pool.resv_hugepages)),
        ("HugePages_Surp:", count(|pool| pool.surplus_hugepages)),
    ] {
        writeln!(out, "{name:16}   {count:5}")?;
    }
    writeln!(out, "{:16}{:8} kB", "Hugepagesize:", order.bytes().get() >> 10)?;
    writeln!(out, "{:16}{:8} kB", "Hugetlb:", mm.pooled().get() * PAGE_KB)
}

/// Writes `/proc/vmstat`: what is there, and what was counted.
pub fn vmstat<M: Machine, P: Paging>(mm: &Manager<'_, M, P>, out: &mut impl Write) -> fmt::Result {
    let memory = mm.memory();
    writeln!(out, "nr_free_pages {}", memory.free.get())?;
    writeln!(out, "nr_anon_pages {}", memory.anonymous.get())?;
    writeln!(out, "nr_page_table_pages {}", tables(mm))?;
    let huge = mm.size_total(Order::SIZE_2M, SizeEvent::NrAnon);
    writeln!(out, "nr_anon_transparent_hugepages {huge}")?;
    let alloc = mm.size_total(Order::SIZE_2M, SizeEvent::AnonFaultAlloc);
    writeln!(out, "thp_fault_alloc {alloc}")?;
    let fallback = mm.size_total(Order::SIZE_2M, SizeEvent::AnonFaultFallback);
    writeln!(out, "thp_fault_fallback {fallback}")?;
    Event::ALL.iter().try_for_each(|event| writeln!(out, "{} {}", event.label(), mm.total(*event)))
}

fn tables<M: Machine, P: Paging>(mm: &Manager<'_, M, P>) -> u64 {
    mm.total(Event::TableMade).saturating_sub(mm.total(Event::TableFreed))
}

/// Linux's largest order: what is free in larger blocks counts in blocks of this one.
const ORDER_MAX: u8 = 10;

/// Writes `/proc/buddyinfo`: free blocks by order, as if all memory were one zone of one node.
pub fn buddyinfo<M: Machine, P: Paging>(
    mm: &Manager<'_, M, P>,
    out: &mut impl Write,
) -> fmt::Result {
    let free = mm.free_blocks();
    write!(out, "Node 0, zone   Normal ")?;
    for order in Order::all().filter(|order| order.get() <= ORDER_MAX) {
        let blocks = if order.get() == ORDER_MAX { free.within(order) } else { free.blocks(order) };
        write!(out, "{blocks:6} ")?;
    }
    out.write_char('\n')
}
