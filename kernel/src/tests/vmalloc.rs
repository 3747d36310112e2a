//! Kernel ranges on real page tables: large leaves, guard pages, lazy purges, rights.
#![allow(unsafe_code)]

use super::{Verdict, check};
use crate::memory::manager;
use crate::{cpu, smp, trap};
use alloc::format;
use alloc::string::String;
use foliant::Event;
use foliant::vmap::{Backing, Request, Rights};
use foliant_units::{Bytes, Cpu, FRAME_BYTES, Va, VaRange};
use spin::Mutex;

const SIZE: Bytes = Bytes::new((5 << 20) / 2);

extern "C" fn store_to(at: usize) {
    // SAFETY: none: the test wants to know whether it faults, and catches that.
    unsafe { (at as *mut u64).write_volatile(at as u64) }
}
extern "C" fn load_from(at: usize) {
    // SAFETY: as above.
    core::hint::black_box(unsafe { (at as *const u64).read_volatile() });
}
/// The word at `va`, which is mapped.
fn word(va: Va) -> u64 {
    // SAFETY: the caller holds the area.
    unsafe { (va.get() as *const u64).read_volatile() }
}
fn pages(range: VaRange) -> impl Iterator<Item = Va> {
    (0..range.pages().get()).map(move |n| range.start().add(n * FRAME_BYTES))
}
fn take(request: &Request) -> Result<VaRange, String> {
    manager().vmalloc(request).map_err(|error| format!("{error}"))
}
fn give(range: VaRange) -> Result<(), String> {
    manager().vfree(range.start()).map_err(|error| format!("{error}"))
}
/// How many of all CPUs do not fault at `va` by `access`.
fn reach(access: extern "C" fn(usize), va: Va) -> usize {
    let through = Mutex::new(0);
    for cpu in 0..smp::online() {
        smp::on(Cpu(cpu as u16), &|| {
            let fault = trap::attempt_access(access, va.get() as usize);
            *through.lock() += usize::from(fault.is_none());
        });
    }
    through.into_inner()
}

/// Every CPU runs on a stack of an area, and all but the first keep their own block in one.
pub(super) fn stacks_and_blocks_are_kernel_memory() -> Verdict {
    let inside = |at: u64| {
        manager()
            .vmalloc_info()
            .any(|area| area.range.contains(Va::new(at)) && area.backing == Backing::Pages)
    };
    let found = Mutex::new((0, 0));
    for cpu in 0..smp::online() {
        smp::on(Cpu(cpu as u16), &|| {
            let here = 0u64;
            let stack = inside((&raw const here) as u64);
            let block = inside(cpu::own_block() as u64);
            let mut found = found.lock();
            *found = (found.0 + usize::from(stack), found.1 + usize::from(block));
        });
    }
    let (found, cpus) = (found.into_inner(), smp::online());
    check(found == (cpus, cpus - 1), || format!("{found:?} of {cpus} CPUs"))?;
    Ok(format!("{} stacks, {} blocks", found.0, found.1))
}

/// 2.5 MiB take one large leaf and 128 entries; every word is there, and the guard behind is not.
pub(super) fn an_area_is_what_was_asked_for() -> Verdict {
    let before = manager().vmalloc_counters().leaves;
    let area = take(&Request::of(SIZE).huge().zeroed())?;
    let leaves = manager().vmalloc_counters().leaves;
    let leaves = [leaves[0] - before[0], leaves[1] - before[1], leaves[2] - before[2]];
    check(leaves == [128, 1, 0], || format!("{leaves:?} leaves"))?;
    check(pages(area).all(|va| word(va) == 0), || "it was not cleared".into())?;
    pages(area).for_each(|va| store_to(va.get() as usize));
    check(pages(area).all(|va| word(va) == va.get()), || "a word is lost".into())?;
    let fault = trap::attempt_access(store_to, area.end().get() as usize);
    check(fault == Some(area.end()), || format!("the guard page gave {fault:?}"))?;
    give(area)?;
    Ok(format!("{leaves:?} leaves of 4 KiB, 2 MiB, 1 GiB"))
}

/// Given back on one CPU, used on all before: after the purge nobody reaches it, and there was one
/// shootdown for all.
pub(super) fn what_was_given_back_is_gone_after_one_flush() -> Verdict {
    let cpus = smp::online();
    manager().purge_vmalloc();
    let before = manager().total(Event::Shootdown);
    let mut first = None;
    for n in 0..8 {
        let area = take(&Request::of(Bytes::new(SIZE.get() + n * FRAME_BYTES)).huge())?;
        let through = reach(store_to, area.start()) + reach(load_from, area.start().add(2 << 20));
        check(through == 2 * cpus, || format!("{through} accesses of {cpus} CPUs went through"))?;
        first = first.or(Some(area));
        give(area)?;
    }
    let first = first.ok_or("no area")?;
    check(manager().total(Event::Shootdown) == before, || "a flush before the purge".into())?;
    manager().purge_vmalloc();
    let shot = manager().total(Event::Shootdown) - before;
    check(shot == 1, || format!("{shot} shootdowns"))?;
    let through = reach(load_from, first.start()) + reach(load_from, first.start().add(2 << 20));
    check(through == 0, || format!("{through} accesses to free addresses went through"))?;
    let again = take(&Request::of(SIZE).huge().zeroed())?;
    check(again.start() == first.start(), || format!("{again:?} instead of {first:?}"))?;
    let fresh = Mutex::new(0);
    smp::together(cpus, &|_| *fresh.lock() += usize::from(pages(again).all(|va| word(va) == 0)));
    let fresh = fresh.into_inner();
    check(fresh == cpus, || format!("{fresh} of {cpus} CPUs see the new memory"))?;
    give(again)?;
    manager().purge_vmalloc();
    Ok(format!("8 areas, {shot} shootdown, {cpus} CPUs"))
}

/// A store to the page faults on every CPU, a store to its neighbours on none.
pub(super) fn one_page_of_a_leaf_becomes_constant_everywhere() -> Verdict {
    let cpus = smp::online();
    let area = take(&Request::of(SIZE).huge())?;
    let at = |page: u64| area.start().add(page * FRAME_BYTES);
    let all = reach(store_to, at(200));
    check(all == cpus, || format!("{all} of {cpus} CPUs could write"))?;
    let page = VaRange::new(at(200), at(201)).ok_or("no range")?;
    manager().protect_kernel(page, Rights::Constant).map_err(|error| format!("{error}"))?;
    let through = [199, 200, 201].map(|page| reach(store_to, at(page)));
    check(through == [cpus, 0, cpus], || format!("stores of {through:?} CPUs went through"))?;
    check(reach(load_from, at(200)) == cpus, || "it can be read no more".into())?;
    give(area)?;
    check(reach(load_from, at(200)) == 0, || "it was flushed when it was given back".into())?;
    Ok(format!("on {cpus} CPUs"))
}
