//! What the start made of the machine: first tables, clock, direct map, interrupt controllers,
//! locks.
#![allow(unsafe_code)]

use super::{Verdict, check, on_cpu, poke, with_area};
use crate::layout::{DIRECT, DIRECT_MAX, direct};
use crate::lock::Served;
use crate::memory::{clock, manager};
use crate::{clock, port, smp, user};
use alloc::format;
use alloc::vec::Vec;
use core::arch::asm;
use core::sync::atomic::{AtomicBool, Ordering};
use foliant::Policy;
use foliant::space::Advice;
use foliant::table::Entry;
use foliant_units::{Bytes, Cpu, FRAME_BYTES, Level, Pa, Va};
use spin::Mutex;

const PAGE: Bytes = Bytes::new(FRAME_BYTES);
/// A leaf that is present and writable, of the largest kind; whether it was used does not matter.
const LEAF: u64 = 1 << 7 | 0b11;
const USED: u64 = 0b11 << 5;

/// Whatever address below the end of the direct map a loader names, it can be read before there is
/// another map.
pub(super) fn finding_x3_the_first_tables_reach_all_that_a_loader_may_use() -> Verdict {
    let table: u64;
    // SAFETY: names an address of the low part, which code up here cannot reach relative to itself.
    unsafe {
        asm!("mov {0}, offset first_low", out(reg) table, options(nomem, nostack, preserves_flags))
    }
    // SAFETY: a table of the image, which nobody changes, in the direct map.
    let words = unsafe { direct(Pa::new(table)).cast::<[u64; 512]>().read_volatile() };
    let size_1g = Level::SIZE_1G.span().get();
    let leaf = |n: u64| n * size_1g + LEAF;
    let reached = (0..).zip(words).filter(|(n, word)| *word & !USED == leaf(*n)).count() as u64;
    check(reached * size_1g == DIRECT_MAX, || {
        format!("they reach {reached} GiB of {}", DIRECT_MAX / size_1g)
    })?;
    Ok(format!("{reached} GiB"))
}

/// By the rate of another look at whatever timers there are a second is a second.
pub(super) fn finding_x6_the_clock_agrees_with_a_timer() -> Verdict {
    let rate = clock::find(None).map_err(|why| format!("{why}"))?;
    let second = clock().at(rate.hz).0;
    check(second.abs_diff(1_000_000_000) < 50_000_000, || {
        format!("a second by {} takes {second} ns", rate.source)
    })?;
    Ok(format!("a second by {} takes {} ms", rate.source, second / 1_000_000))
}

/// Nothing of what lies between pieces of memory, such as the registers of devices, is mapped as
/// memory is.
pub(super) fn finding_x14_the_direct_map_holds_memory_only() -> Verdict {
    let size_2m = Level::SIZE_2M.span().get();
    let mapped = |pa: u64| {
        let found = manager().kernel_tables().walk(Va::new(DIRECT + pa));
        matches!(found.entry, Entry::Leaf { .. })
    };
    let ranges: Vec<_> = manager().ranges().collect();
    for range in &ranges {
        for pa in [range.start().pa(), Pa::new(range.end().pa().get() - 1)] {
            check(mapped(pa.get()), || format!("memory at {pa} is not mapped"))?;
        }
    }
    let end = ranges.iter().map(|range| range.end().pa().get()).max().unwrap_or(0);
    let behind = end.next_multiple_of(size_2m);
    for pa in [behind, DIRECT_MAX - size_2m, crate::apic::REGISTERS.get()] {
        let is_memory = ranges.iter().any(|range| range.contains(Pa::new(pa).frame()));
        check(is_memory || !mapped(pa), || format!("{pa:#x} is mapped and is no memory"))?;
    }
    Ok(format!("up to {behind:#x}, without devices"))
}

pub(super) fn finding_x14_no_controller_raises_anything_by_itself() -> Verdict {
    for cpu in (0..smp::online()).map(|n| Cpu(n as u16)) {
        let quiet = AtomicBool::new(false);
        smp::on(cpu, &|| quiet.store(smp::is_quiet(), Ordering::Release));
        check(quiet.into_inner(), || format!("the controller of CPU {} may", cpu.0))?;
    }
    Ok(format!("timers, pins and errors of {} CPUs are masked", smp::online()))
}

fn wait_for(flag: &AtomicBool) {
    while !flag.load(Ordering::Acquire) {
        core::hint::spin_loop();
    }
}

/// The holder of a lock flushes, and waits for a CPU that waits for the lock with its interrupts
/// out.
pub(super) fn finding_x14_who_waits_for_a_lock_serves() -> Verdict {
    with_area(Policy::BASE_ONLY, PAGE, |space, range| {
        let lock = Served::new(0);
        let [there, held, deaf] = [const { AtomicBool::new(false) }; 3];
        let done = Mutex::new(Ok(()));
        user::inside_together(space, 2, &|cpu| {
            if cpu.index() == 1 {
                poke(range.start(), 1); // cached here, so this CPU is asked
                there.store(true, Ordering::Release);
                wait_for(&held);
                port::disable();
                deaf.store(true, Ordering::Release);
                lock.with(|count| *count += 1);
                port::enable();
                return;
            }
            wait_for(&there);
            lock.with(|count| {
                held.store(true, Ordering::Release);
                wait_for(&deaf);
                let flushed = manager().advise(space, range, Advice::DontNeed);
                *done.lock() = flushed.map(drop).map_err(|error| format!("{error}"));
                *count += 1;
            });
        });
        done.into_inner()?;
        let count = lock.with(|count| *count);
        check(count == 2, || format!("{count} of 2 had the lock"))?;
        on_cpu(0, space, || poke(range.start(), 2));
        Ok("a flush went through meanwhile".into())
    })
}
