//! `/proc/meminfo`, `/proc/vmstat`, `/proc/buddyinfo` and `/proc/vmallocinfo`: the machine's
//! memory, as text. `meminfo` of the node that there is says the same of it.
//!
//! Lines of what there is not (a page cache, swap, slabs) say 0, because programs look for them by
//! name. Linux's lines about the processor's own map of memory are the embedder's. What stands in
//! files and processes is counted by going through them ([`Listed`]): the embedder has the lists.

use crate::file::MemoryFile;
use crate::overcommit::Overcommit;
use crate::pages::PAGE_KB;
use crate::process::Process;
use crate::rows;
use crate::vma::{Marks, Vma};
use alloc::collections::BTreeSet;
use core::fmt::{self, Write};
use foliant::table::Paging;
use foliant::vmap::Caller;
use foliant::{Event, Manager, SizeEvent};
use foliant_machine::Machine;
use foliant_units::{FRAME_BYTES, Frame, Order, Pages};

/// What each line of a node begins with.
const NODE: &str = "Node 0 ";

/// What files in memory and processes have, added up: each process once, and each file, however
/// often it is added, once.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Listed {
    /// Pages of files.
    pub(crate) shared: u64,
    /// Pages of files in page tables.
    pub(crate) mapped: u64,
    /// Pages that stay, as vmas of them are locked.
    pub(crate) locked: u64,
    /// Pages that memory was promised for, to programs and for files.
    promised: u64,
    /// Which files were added.
    files: BTreeSet<Frame>,
    /// Where folios of files are that large leaves map.
    large: BTreeSet<Frame>,
}

impl Listed {
    /// Adds what a file has. Those of huge pages have none that count here.
    pub fn add_file<M: Machine, P: Paging>(&mut self, file: &MemoryFile<'_, '_, M, P>) {
        if file.page_bytes() == FRAME_BYTES && self.files.insert(file.object().frame()) {
            self.shared += file.small_pages();
            self.promised += file.promised();
        }
    }
    /// Adds what a process maps, and the files that it maps.
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
        }
        self.add_promises(process);
    }
    /// Adds what a process was promised and the files that it maps, and nothing else.
    pub fn add_promises<M: Machine, P: Paging>(&mut self, process: &Process<'_, '_, M, P>) {
        self.promised += process.promised().get();
        process.views.files().for_each(|file| self.add_file(file));
    }
    /// Pages that memory was promised for, those of files with them.
    pub fn committed(&self) -> Pages {
        Pages::new(self.promised)
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

/// The lines about pages, of the machine and of the node.
const OF_MACHINE: [&str; 34] = [
    "MemTotal:",
    "MemFree:",
    "MemAvailable:",
    "Buffers:",
    "Cached:",
    "SwapCached:",
    "Active:",
    "Inactive:",
    "Active(anon):",
    "Inactive(anon):",
    "Active(file):",
    "Inactive(file):",
    "Unevictable:",
    "Mlocked:",
    "SwapTotal:",
    "SwapFree:",
    "Dirty:",
    "Writeback:",
    "AnonPages:",
    "Mapped:",
    "Shmem:",
    "KReclaimable:",
    "Slab:",
    "SReclaimable:",
    "SUnreclaim:",
    "PageTables:",
    "CommitLimit:",
    "Committed_AS:",
    "HardwareCorrupted:",
    "AnonHugePages:",
    "ShmemHugePages:",
    "ShmemPmdMapped:",
    "FileHugePages:",
    "FilePmdMapped:",
];
const OF_NODE: [&str; 29] = [
    "MemTotal:",
    "MemFree:",
    "MemUsed:",
    "SwapCached:",
    "Active:",
    "Inactive:",
    "Active(anon):",
    "Inactive(anon):",
    "Active(file):",
    "Inactive(file):",
    "Unevictable:",
    "Mlocked:",
    "Dirty:",
    "Writeback:",
    "FilePages:",
    "Mapped:",
    "AnonPages:",
    "Shmem:",
    "KernelStack:",
    "PageTables:",
    "KReclaimable:",
    "Slab:",
    "SReclaimable:",
    "SUnreclaim:",
    "AnonHugePages:",
    "ShmemHugePages:",
    "ShmemPmdMapped:",
    "FileHugePages:",
    "FilePmdMapped:",
];

/// The kilobytes that a line says.
fn kilobytes<M: Machine, P: Paging>(
    mm: &Manager<'_, M, P>,
    listed: &Listed,
) -> impl Fn(&str) -> u64 {
    let memory = mm.memory();
    let (total, free) = (memory.managed.get(), memory.free.get());
    let large = |folios: u64| folios * Order::SIZE_2M.pages().get();
    move |name| {
        let pages = match name {
            "MemTotal:" => total,
            "MemFree:" | "MemAvailable:" => free,
            "MemUsed:" => total.saturating_sub(free),
            "Cached:" | "FilePages:" | "Shmem:" => listed.shared,
            "Active:" | "Active(anon):" => memory.anonymous.get(),
            "Unevictable:" | "Mlocked:" => listed.locked,
            "AnonPages:" => listed.own(mm),
            "Mapped:" => listed.mapped,
            "PageTables:" => tables(mm),
            "Committed_AS:" => listed.committed().get(),
            "HardwareCorrupted:" => mm.total(Event::Retired),
            "AnonHugePages:" => large(listed.own_large(mm)),
            "ShmemHugePages:" | "ShmemPmdMapped:" => large(listed.large()),
            _ => 0,
        };
        pages * PAGE_KB
    }
}
/// The huge pages of the usual pool that a line says.
fn pooled<M: Machine, P: Paging>(mm: &Manager<'_, M, P>) -> impl Fn(&str) -> u64 {
    let counters = mm.pool(Order::SIZE_2M).ok();
    move |name| {
        counters.as_ref().map_or(0, |pool| match name {
            "HugePages_Total:" => pool.nr_hugepages,
            "HugePages_Free:" => pool.free_hugepages,
            "HugePages_Rsvd:" => pool.resv_hugepages,
            _ => pool.surplus_hugepages,
        })
    }
}

/// Writes `/proc/meminfo`.
pub fn meminfo<M: Machine, P: Paging>(
    mm: &Manager<'_, M, P>,
    overcommit: &Overcommit,
    listed: &Listed,
    out: &mut impl Write,
) -> fmt::Result {
    let (of_pages, pooled) = (kilobytes(mm, listed), pooled(mm));
    let limit = overcommit.limit(mm.pooled()).get() * PAGE_KB;
    let kilobytes = |name| if name == "CommitLimit:" { limit } else { of_pages(name) };
    OF_MACHINE.iter().try_for_each(|name| rows::kilobytes(out, name, kilobytes(name)))?;
    for name in ["HugePages_Total:", "HugePages_Free:", "HugePages_Rsvd:", "HugePages_Surp:"] {
        writeln!(out, "{name:16}   {:5}", pooled(name))?;
    }
    rows::kilobytes(out, "Hugepagesize:", Order::SIZE_2M.bytes().get() >> 10)?;
    rows::kilobytes(out, "Hugetlb:", mm.pooled().get() * PAGE_KB)
}
/// Writes `meminfo` of the node.
pub fn node_meminfo<M: Machine, P: Paging>(
    mm: &Manager<'_, M, P>,
    listed: &Listed,
    out: &mut impl Write,
) -> fmt::Result {
    let (kilobytes, pooled) = (kilobytes(mm, listed), pooled(mm));
    for name in OF_NODE {
        out.write_str(NODE)?;
        rows::kilobytes(out, name, kilobytes(name))?;
    }
    for name in ["HugePages_Total:", "HugePages_Free:", "HugePages_Surp:"] {
        writeln!(out, "{NODE}{name:16} {:5}", pooled(name))?;
    }
    Ok(())
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
