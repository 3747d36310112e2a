//! The kernel's own memory.
#![allow(unsafe_code)]

use super::{Verdict, check, free};
use crate::layout::{LAWS, direct};
use crate::memory::{machine, manager};
use crate::{heap, panic, smp, symbols, tables, trap};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use foliant_machine::KernelVa;
use foliant_units::{Cpu, Order};
use spin::Mutex;

/// Holes stay holes, memory above 4 GiB is used, and the image is not handed out.
pub(super) fn all_memory_is_managed() -> Verdict {
    let ranges: Vec<_> = manager().ranges().collect();
    let managed = ranges.iter().map(|range| range.pages().get()).sum::<u64>();
    check(managed == manager().memory().managed.get(), || {
        format!("{managed} pages in {ranges:?}")
    })?;
    let above = ranges.iter().filter(|range| range.end().pa().get() > 4 << 30).count();
    // The last block of each range can be written and read: the direct map reaches it.
    let mut lent = Vec::new();
    while let Ok(frame) = manager().lend(Order::SIZE_2M) {
        let word = direct(frame.pa()).cast::<u64>();
        // SAFETY: the block is lent to us.
        unsafe { word.write_volatile(frame.pa().get()) };
        lent.push(frame);
    }
    for frame in &lent {
        // SAFETY: as above.
        let word = unsafe { direct(frame.pa()).cast::<u64>().read_volatile() };
        check(word == frame.pa().get(), || format!("the block at {} holds {word:#x}", frame.pa()))?;
        let (start, end) = tables::image();
        let in_image = frame.pa() < end && frame.pa().add(2 << 20) > start;
        check(!in_image, || format!("{} was handed out and is the image's", frame.pa()))?;
    }
    let blocks = lent.len();
    for frame in lent {
        manager().take_back(frame, Order::SIZE_2M).map_err(|misuse| format!("{misuse}"))?;
    }
    check(blocks > 0, || "no block of 2 MiB was lent".into())?;
    Ok(format!(
        "{} ranges, {above} above 4 GiB, {} MiB, {blocks} blocks of 2 MiB",
        ranges.len(),
        managed >> 8
    ))
}

pub(super) fn the_heap_gives_back_what_it_took() -> Verdict {
    let exercise = || {
        let squares: Box<[u64]> = (0..1000).map(|n| n * n).collect();
        let names: BTreeMap<u64, String> =
            squares.iter().map(|n| (*n % 997, format!("{n} {:.3}", *n as f64 / 7.0))).collect();
        let mut sorted: Vec<&String> = names.values().collect();
        sorted.sort();
        sorted.len()
    };
    exercise(); // the first arenas come
    let (pages, before) = (heap::pages(), free());
    let names = exercise();
    check(heap::pages() == pages, || format!("{} pages became {}", pages, heap::pages()))?;
    check(free() == before, || format!("{before:?} free pages became {:?}", free()))?;
    Ok(format!("{names} names, {pages} pages"))
}

extern "C" fn write_to(at: usize) {
    // SAFETY: none: the test wants to know whether it faults, and catches that.
    unsafe { (at as *mut u64).write_volatile(0) }
}

/// Text and constants cannot be written.
pub(super) fn rights_of_the_image_hold() -> Verdict {
    static CONSTANT: [u64; 4] = [1, 2, 3, 4];
    for at in [write_to as *const () as usize & !7, CONSTANT.as_ptr() as usize] {
        let fault = trap::attempt_access(write_to, at);
        check(fault.map(|va| va.get()) == Some(at as u64), || {
            format!("a store to {at:#x} gave {fault:?}")
        })?;
    }
    Ok("text and constants are not writable".into())
}

extern "C" fn dig(depth: usize) {
    let room = core::hint::black_box([depth; 64]);
    if depth < usize::MAX {
        dig(depth + 1);
    }
    core::hint::black_box(&room);
}

/// A stack that is used up ends in a report, on every CPU, and not in somebody else's memory.
pub(super) fn an_overflowing_stack_meets_its_guard() -> Verdict {
    let met = Mutex::new(0);
    for cpu in 0..smp::online() {
        smp::on(Cpu(cpu as u16), &|| {
            let fault = trap::attempt_access(dig, 0);
            let low = smp::stack_of(Cpu(cpu as u16));
            let near = fault.is_some_and(|va| {
                va < low && va.add(8192) > low || va >= low && va < low.add(8192)
            });
            *met.lock() += usize::from(near);
        });
    }
    let met = met.into_inner();
    check(met == smp::online(), || format!("{met} of {} CPUs met it", smp::online()))?;
    Ok(format!("on {met} CPUs"))
}

#[inline(never)]
fn innermost() -> Vec<String> {
    let mut names = Vec::new();
    panic::callers(panic::frame_pointer(), &mut |_, at| {
        names.extend(
            symbols::find(at).map(|(name, _)| format!("{:#}", rustc_demangle::demangle(name))),
        );
    });
    names
}

/// The trace of a panic names the functions that led there.
pub(super) fn a_trace_has_names() -> Verdict {
    let names = core::hint::black_box(innermost)();
    let has = |part: &str| names.iter().any(|name| name.contains(part));
    check(has("a_trace_has_names") || has("tests::run"), || format!("the callers are {names:?}"))?;
    check(has("foliant_kernel::run") || has("kernel_main"), || {
        format!("the callers are {names:?}")
    })?;
    Ok(names.join(" < "))
}

/// The machine turns a fault at its own kernel accesses into an answer.
pub(super) fn a_guarded_access_survives_its_fault() -> Verdict {
    // SAFETY: the address maps nothing; that is the test.
    let fault = unsafe { machine().kernel_load(LAWS.add(4 << 20)) };
    check(fault.is_err_and(|fault| fault.va == LAWS.add(4 << 20)), || format!("{fault:?}"))?;
    Ok("it answered with the address".into())
}
