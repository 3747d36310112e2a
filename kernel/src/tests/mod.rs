//! What only real page tables, translation caches and interrupts can show.
//!
//! Each test says in one line what it saw, or what it should have seen. Between tests nothing is
//! left behind: the free memory is the same, and the manager's recount agrees.

#![allow(unsafe_code)]

mod kernel_half;
mod machine;
mod ring_3;
mod rings;
mod scarcity;
mod stale;
mod storms;
mod vmalloc;

use crate::memory::manager;
use crate::{cpu, exit, say, smp, user};
use alloc::format;
use alloc::string::String;
use foliant::Policy;
use foliant::space::{Flags, MapRequest, Place, SpaceId};
use foliant_units::{Bytes, Pages, Va, VaRange};

/// What a test says: what it saw, or what was wrong.
pub(crate) type Verdict = Result<String, String>;

/// A test, and how many CPUs it takes.
struct Test {
    name: &'static str,
    cpus: usize,
    run: fn() -> Verdict,
}

macro_rules! tests {
    ($($cpus:literal: $($file:ident :: $name:ident),*;)*) => {
        &[$($(Test { name: stringify!($name), cpus: $cpus, run: $file::$name }),*),*]
    };
}

const TESTS: &[Test] = tests! {
    1: kernel_half::all_memory_is_managed, kernel_half::the_heap_gives_back_what_it_took,
       kernel_half::rights_of_the_image_hold, kernel_half::an_overflowing_stack_meets_its_guard,
       kernel_half::a_guarded_access_survives_its_fault, kernel_half::a_trace_has_names, ring_3::every_cpu_faults_memory_in_from_ring_3,
       ring_3::larger_folios_take_fewer_faults, ring_3::what_ring_3_may_not_do_stops_it;
    1: rings::finding_x2_a_program_starts_with_nothing_of_the_one_before, rings::finding_x2_a_program_leaves_the_kernel_its_state,
       rings::finding_x2_a_single_step_ends_the_program_only, rings::finding_x2_every_cpu_has_the_same_protection,
       rings::finding_x2_the_kernel_does_not_stray_into_user_memory;
    2: rings::finding_x2_a_handler_runs_on_the_kernels_state;
    1: vmalloc::stacks_and_blocks_are_kernel_memory, vmalloc::an_area_is_what_was_asked_for;
    1: machine::finding_x3_the_first_tables_reach_all_that_a_loader_may_use, machine::finding_x6_the_clock_agrees_with_a_timer,
       machine::finding_x14_the_direct_map_holds_memory_only, machine::finding_x14_no_controller_raises_anything_by_itself;
    2: machine::finding_x14_who_waits_for_a_lock_serves;
    2: vmalloc::what_was_given_back_is_gone_after_one_flush,
       vmalloc::one_page_of_a_leaf_becomes_constant_everywhere;
    2: stale::without_a_flush_another_cpu_reads_the_old_frame, stale::with_its_flush_no_cpu_reads_an_old_frame,
       storms::a_storm_of_interrupts_corrupts_nothing;
    1: scarcity::out_of_memory_is_an_answer, scarcity::the_heap_can_be_refused;
};

/// Memory that they take, with so many CPUs: areas for each, and what each keeps for itself.
fn needs(cpus: usize) -> Bytes {
    Bytes::new((16 + 2 * cpus as u64) << 20)
}

/// Runs them all, where there is memory enough.
pub(crate) fn run() -> bool {
    let (needs, has) = (needs(smp::online()), manager().memory().managed.bytes());
    if has < needs {
        let cpus = smp::online();
        exit::unfit(format_args!(
            "its tests take {needs} on {cpus} CPUs, and {has} are managed; mode=shell takes less"
        ));
    }
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for Test { name, cpus, run } in TESTS {
        if smp::online() < *cpus {
            say!("test {name}: skipped: it takes {cpus} CPUs");
            skipped += 1;
            continue;
        }
        let before = free();
        match run().and_then(|saw| leaves_nothing(before).map(|()| saw)) {
            Ok(saw) => {
                passed += 1;
                say!("test {name}: passed: {saw}");
            }
            Err(why) => {
                failed += 1;
                say!("test {name}: FAILED: {why}");
            }
        }
    }
    say!("tests: {passed} passed, {failed} failed, {skipped} skipped, {} CPUs", smp::online());
    failed == 0
}

fn free() -> Pages {
    manager().memory().free
}

/// Descriptors of new sections and arenas of the heap may stay; blocks may not.
fn leaves_nothing(before: Pages) -> Result<(), String> {
    manager().audit(&[]).map_err(|error| format!("the recount disagrees: {error}"))?;
    let kept = before.get().saturating_sub(free().get());
    let records = kept_for_good();
    if kept > records {
        Err(format!("{kept} pages are missing, {records} may stay"))
    } else {
        Ok(())
    }
}

/// What a test may keep: descriptors of every section of memory, and a few arenas of the heap.
fn kept_for_good() -> u64 {
    const HEAP_ARENAS: u64 = 64;
    let managed = manager().memory().managed.get();
    managed.div_ceil(64) + HEAP_ARENAS
}

/// Says what was wrong unless `holds`.
fn check(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// A space with one readable and writable area, whose folios are as `policy` says. Both go when
/// `work` is done.
fn with_area<R>(
    policy: Policy,
    bytes: Bytes,
    work: impl FnOnce(SpaceId, VaRange) -> Result<R, String>,
) -> Result<R, String> {
    let said = |error: &dyn core::fmt::Display| format!("{error}");
    let before = manager().policy();
    manager().set_policy(policy);
    let space = manager().create(None).map_err(|e| said(&e))?;
    let done = area(space, bytes).and_then(|range| work(space, range));
    manager().end(space).map_err(|e| said(&e))?;
    manager().set_policy(before);
    done
}

fn area(space: SpaceId, bytes: Bytes) -> Result<VaRange, String> {
    let place = Place::NoReplace(Va::new(0x4000_0000));
    let request = MapRequest { place, bytes, flags: Flags::READ_WRITE, tag: 0 };
    manager().map(space, &request).map_err(|error| format!("{error}"))
}

/// The n-th of `parts` equal parts of a range.
fn part(range: VaRange, n: usize, parts: usize) -> VaRange {
    let bytes = range.bytes().get() / parts as u64;
    let start = range.start().add(n as u64 * bytes);
    VaRange::sized(start, Bytes::new(bytes)).expect("a part of a range")
}

/// Reads a word of user memory, as the kernel; it faults in like the user's own access.
fn peek(va: Va) -> u64 {
    // SAFETY: the caller runs the space that maps the address, or the fault is answered (trap).
    cpu::reach_user(|| unsafe { (va.get() as *const u64).read_volatile() })
}

/// Writes a word of user memory, as the kernel.
fn poke(va: Va, value: u64) {
    // SAFETY: as for `peek`.
    cpu::reach_user(|| unsafe { (va.get() as *mut u64).write_volatile(value) })
}

/// Runs `work` on CPU `n` inside `space`, and gives its result.
fn on_cpu<R: Send>(n: u16, space: SpaceId, work: impl Fn() -> R + Sync) -> R {
    let slot = spin::Mutex::new(None);
    smp::on(foliant_units::Cpu(n), &|| {
        let result = user::inside(space, &work).expect("the space is alive");
        *slot.lock() = Some(result);
    });
    slot.into_inner().expect("the work was done")
}
