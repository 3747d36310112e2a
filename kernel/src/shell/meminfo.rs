//! Where memory is, and how whole the free part is.
//!
//! Only fields whose value is known are shown. Nothing is reclaimed here, so what is free is what
//! is available.

use super::words::{Complaint, Words};
use super::{Shell, pool, tables, window};
use crate::memory::manager;
use crate::{heap, layout, say, serial, smp};
use foliant_units::{Bytes, Level, Order, Pages};

/// A line in kB, as Linux aligns it.
fn kilobytes(name: &str, bytes: Bytes) {
    say!("{name:<16}{:>8} kB", bytes.get() >> 10);
}

/// `meminfo`.
pub(super) fn meminfo<'w>(shell: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    words.end()?;
    let memory = manager().memory();
    let huge = Bytes::new(shell.areas().map(|area| shell.present(area.range).1.get()).sum());
    kilobytes("MemTotal:", memory.managed.bytes());
    kilobytes("MemFree:", memory.free.bytes());
    kilobytes("MemAvailable:", memory.free.bytes());
    kilobytes("AnonPages:", memory.anonymous.bytes());
    kilobytes("Slab:", Pages::new(heap::pages()).bytes());
    kilobytes("KernelStack:", Bytes::new(smp::online() as u64 * layout::STACK.get()));
    // And the top tables, the kernel's and the space's, and the one that is kept for the split of
    // each leaf of 2 MiB.
    let kept = huge.get() / Order::SIZE_2M.bytes().get();
    kilobytes("PageTables:", Pages::new(tables() + 2 + kept).bytes());
    kilobytes("VmallocTotal:", manager().vmap().range().bytes());
    kilobytes("VmallocUsed:", manager().vmalloc_counters().pages.bytes());
    kilobytes("AnonHugePages:", huge);
    pool::meminfo();
    kilobytes("Hugepagesize:", Order::SIZE_2M.bytes());
    kilobytes("Hugetlb:", manager().pooled().bytes());
    let direct = window::direct();
    for (name, level) in [
        ("DirectMap4k:", Level::BASE),
        ("DirectMap2M:", Level::SIZE_2M),
        ("DirectMap1G:", Level::SIZE_1G),
    ] {
        let leaves = direct.get(usize::from(level.0)).copied().unwrap_or(0);
        kilobytes(name, Bytes::new(leaves * level.span().get()));
    }
    Ok(())
}

/// `free`: the columns of the program of that name that mean something here, in kB.
pub(super) fn free<'w>(_: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    words.end()?;
    let memory = manager().memory();
    let pool = manager().pool(Order::SIZE_2M).unwrap_or_default();
    let huge = |pages: u64| Bytes::new(pages * Order::SIZE_2M.bytes().get());
    say!("{:<8}{:>12}{:>12}{:>12}", "kB", "total", "used", "free");
    for (name, total, free) in [
        ("Mem:", memory.managed.bytes(), memory.free.bytes()),
        ("Huge:", huge(pool.nr_hugepages), huge(pool.free_hugepages)),
    ] {
        let (total, free) = (total.get() >> 10, free.get() >> 10);
        say!("{name:<8}{total:>12}{:>12}{free:>12}", total - free);
    }
    Ok(())
}

/// `buddyinfo`. Linux's line ends at order 10.
pub(super) fn buddyinfo<'w>(_: &mut Shell, words: &mut Words<'w>) -> Result<(), Complaint<'w>> {
    words.end()?;
    let free = manager().free_blocks();
    serial::print(format_args!("Node 0, zone   Normal "));
    for order in Order::all() {
        serial::print(format_args!("{:>6} ", free.blocks(order)));
    }
    say!("");
    say!("orders 0 to {}: 4k to {}", Order::SIZE_1G, Order::SIZE_1G.bytes());
    Ok(())
}
