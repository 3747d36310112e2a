//! `/proc/meminfo`, `/proc/vmstat`, `/proc/buddyinfo` and `/proc/vmallocinfo`: the machine's
//! memory, as text. `meminfo` of the node that there is says the same of it.
//!
//! Lines of what there is not (a page cache, swap, slabs) say 0, because programs look for them by
//! name. Linux's lines about the processor's own map of memory are the embedder's. What stands in
//! files and processes is counted by going through them ([`Listed`]): the embedder has the lists.

use crate::file::MemoryFile;
use crate::process::Process;
use crate::rows;
use crate::vma::{Marks, Vma};
use alloc::collections::BTreeSet;
use core::fmt::{self, Write};
use foliant::table::Paging;
use foliant::vmap::Caller;
use foliant::{Event, Manager, SizeEvent};
use foliant_machine::Machine;
use foliant_units::{FRAME_BYTES, Frame, Order};

/// Kilobytes of a page.
const PAGE_KB: u64 = FRAME_BYTES >> 10;

/// What each line of a node begins with.
const NODE: &str = "Node 0 ";

/// What files in memory and processes have, added up: each file and each process once.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Listed {
    /// Pages of files.
    pub(crate) shared: u64,
    /// Pages of files in page tables.
    pub(crate) mapped: u64,
    /// Pages that stay, as vmas of them are locked.
    pub(crate) locked: u64,
    /// Pages that memory was promised for, as vmas of a program's own count; what files have is
    /// `shared`.
    pub(crate) promised: u64,
    /// Where folios of files are that large leaves map.
    large: BTreeSet<Frame>,
}

impl Listed {
    /// Adds what a file has. Those of huge pages have none that count here.
    pub fn add_file<M: Machine, P: Paging>(&mut self, file: &MemoryFile<'_, '_, M, P>) {
        self.shared += file.small_pages();
    }
    /// Adds what a process maps.
    pub fn add_process<M: Machine, P: Paging>(&mut self, process: &Process<'_, '_, M, P>) {
        let pages = |kilobytes: u64| kilobytes / PAGE_KB;
        for vma in process.vmas().filter(|vma| !Vma::is_huge(vma)) {
            let present = process.present(&vma);
            self.mapped += pages(present.of_file);
            if present.huge_of_file > 0 {
                self.large.extend(process.large_of_file(&vma));
            }
            if vma.tag.marks.has(Marks::LOCKED) {
                self.locked += pages(present.all);
            }
            if vma.tag.marks.has(Marks::ACCOUNTED) {
                self.promised += (vma.end() - vma.start()) / FRAME_BYTES;
            }
        }
    }
    /// Folios of files that large leaves map, each counted once.
    pub(crate) fn large(&self) -> u64 {
        self.large.len() as u64
    }
    /// Folios of 2 MiB that are none of these.
    pub(crate) fn own_large<M: Machine, P: Paging>(&self, mm: &Manager<'_, M, P>) -> u64 {
        mm.size_total(Order::SIZE_2M, SizeEvent::NrAnon).saturating_sub(self.large())
    }
    /// Anonymous pages that are no file's.
    pub(crate) fn own<M: Machine, P: Paging>(&self, mm: &Manager<'_, M, P>) -> u64 {
        mm.anonymous().get().saturating_sub(self.shared)
    }
}

/// Writes `/proc/meminfo`.
pub fn meminfo<M: Machine, P: Paging>(
    mm: &Manager<'_, M, P>,
    listed: &Listed,
    out: &mut impl Write,
) -> fmt::Result {
    let memory = mm.memory();
    let pages = |pages: u64| pages * PAGE_KB;
    let (total, free) = (pages(memory.managed.get()), pages(memory.free.get()));
    let large = |folios: u64| pages(folios * Order::SIZE_2M.pages().get());
    let anonymous = pages(memory.anonymous.get());
    for (name, kilobytes) in [
        ("MemTotal:", total),
        ("MemFree:", free),
        ("MemAvailable:", free),
        ("Buffers:", 0),
        ("Cached:", pages(listed.shared)),
        ("SwapCached:", 0),
        ("Active:", anonymous),
        ("Inactive:", 0),
        ("Active(anon):", anonymous),
        ("Inactive(anon):", 0),
        ("Active(file):", 0),
        ("Inactive(file):", 0),
        ("Unevictable:", pages(listed.locked)),
        ("Mlocked:", pages(listed.locked)),
        ("SwapTotal:", 0),
        ("SwapFree:", 0),
        ("Dirty:", 0),
        ("Writeback:", 0),
        ("AnonPages:", pages(listed.own(mm))),
        ("Mapped:", pages(listed.mapped)),
        ("Shmem:", pages(listed.shared)),
        ("KReclaimable:", 0),
        ("Slab:", 0),
        ("SReclaimable:", 0),
        ("SUnreclaim:", 0),
        ("PageTables:", pages(tables(mm))),
        ("CommitLimit:", (total - pages(mm.pooled().get()).min(total)) / 2),
        ("Committed_AS:", pages(listed.promised + listed.shared)),
        ("AnonHugePages:", large(listed.own_large(mm))),
        ("ShmemHugePages:", large(listed.large())),
        ("ShmemPmdMapped:", large(listed.large())),
        ("FileHugePages:", 0),
        ("FilePmdMapped:", 0),
    ] {
        rows::kilobytes(out, name, kilobytes)?;
    }
    pools(mm, out)
}

/// Writes `meminfo` of the node.
pub fn node_meminfo<M: Machine, P: Paging>(
    mm: &Manager<'_, M, P>,
    listed: &Listed,
    out: &mut impl Write,
) -> fmt::Result {
    let memory = mm.memory();
    let large = |folios: u64| folios * Order::SIZE_2M.pages().get();
    let (total, free) = (memory.managed.get(), memory.free.get());
    let anonymous = memory.anonymous.get();
    for (name, pages) in [
        ("MemTotal:", total),
        ("MemFree:", free),
        ("MemUsed:", total.saturating_sub(free)),
        ("SwapCached:", 0),
        ("Active:", anonymous),
        ("Inactive:", 0),
        ("Active(anon):", anonymous),
        ("Inactive(anon):", 0),
        ("Active(file):", 0),
        ("Inactive(file):", 0),
        ("Unevictable:", listed.locked),
        ("Mlocked:", listed.locked),
        ("Dirty:", 0),
        ("Writeback:", 0),
        ("FilePages:", listed.shared),
        ("Mapped:", listed.mapped),
        ("AnonPages:", listed.own(mm)),
        ("Shmem:", listed.shared),
        ("KernelStack:", 0),
        ("PageTables:", tables(mm)),
        ("KReclaimable:", 0),
        ("Slab:", 0),
        ("SReclaimable:", 0),
        ("SUnreclaim:", 0),
        ("AnonHugePages:", large(listed.own_large(mm))),
        ("ShmemHugePages:", large(listed.large())),
        ("ShmemPmdMapped:", large(listed.large())),
        ("FileHugePages:", 0),
        ("FilePmdMapped:", 0),
    ] {
        out.write_str(NODE)?;
        rows::kilobytes(out, name, pages * PAGE_KB)?;
    }
    let counters = mm.pool(Order::SIZE_2M).ok();
    let count = |of: fn(&foliant::pool::PoolCounters) -> u64| counters.as_ref().map_or(0, of);
    for (name, count) in [
        ("HugePages_Total:", count(|pool| pool.nr_hugepages)),
        ("HugePages_Free:", count(|pool| pool.free_hugepages)),
        ("HugePages_Surp:", count(|pool| pool.surplus_hugepages)),
    ] {
        writeln!(out, "{NODE}{name:16} {count:5}")?;
    }
    Ok(())
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
    rows::kilobytes(out, "Hugepagesize:", order.bytes().get() >> 10)?;
    rows::kilobytes(out, "Hugetlb:", mm.pooled().get() * PAGE_KB)
}

/// Writes `/proc/vmstat`: what is there, and what was counted.
pub fn vmstat<M: Machine, P: Paging>(
    mm: &Manager<'_, M, P>,
    listed: &Listed,
    out: &mut impl Write,
) -> fmt::Result {
    for (name, pages) in [
        ("nr_free_pages", mm.memory().free.get()),
        ("nr_mlock", listed.locked),
        ("nr_unevictable", listed.locked),
        ("nr_anon_pages", listed.own(mm)),
        ("nr_mapped", listed.mapped),
        ("nr_file_pages", listed.shared),
        ("nr_shmem", listed.shared),
        ("nr_shmem_hugepages", listed.large()),
        ("nr_shmem_pmdmapped", listed.large()),
    ] {
        writeln!(out, "{name} {pages}")?;
    }
    writeln!(out, "nr_anon_transparent_hugepages {}", listed.own_large(mm))?;
    writeln!(out, "nr_page_table_pages {}", tables(mm))?;
    let alloc = mm.size_total(Order::SIZE_2M, SizeEvent::AnonFaultAlloc);
    writeln!(out, "thp_fault_alloc {alloc}")?;
    let fallback = mm.size_total(Order::SIZE_2M, SizeEvent::AnonFaultFallback);
    writeln!(out, "thp_fault_fallback {fallback}")?;
    Event::ALL.iter().try_for_each(|event| writeln!(out, "{} {}", event.label(), mm.total(*event)))
}

/// Page tables.
pub(crate) fn tables<M: Machine, P: Paging>(mm: &Manager<'_, M, P>) -> u64 {
    mm.total(Event::TableMade).saturating_sub(mm.total(Event::TableFreed))
}

/// Linux's largest order: what is free in larger blocks counts in blocks of this one.
pub(crate) const ORDER_MAX: u8 = 10;

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

/// Writes `/proc/vmallocinfo`: a line for each kernel range. `name_of` knows callers by the numbers
/// that they gave.
pub fn vmallocinfo<M: Machine, P: Paging, N: fmt::Display>(
    mm: &Manager<'_, M, P>,
    name_of: impl Fn(Caller) -> N,
    out: &mut impl Write,
) -> fmt::Result {
    mm.vmalloc_info().try_for_each(|info| writeln!(out, "{}", info.line(name_of(info.caller))))
}
