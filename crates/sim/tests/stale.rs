//! Stale translations: what hardware does, table by table, and what an emulator does not show.
#![allow(unsafe_code)]

mod common;

use common::*;
use foliant_machine::{Faults, Kept, KernelVa, Scope, Tables, Tlb};
use foliant_sim::{Access, Config, Format, Sim};
use foliant_units::{Bytes, Cpu, Pa, Va};

const ROOT: u64 = 0x10_0000;
const A: u64 = 0x40_0000;
const B: u64 = 0x40_1000;
const VA: u64 = 0x7000_0000;
const KERNEL: u64 = 0xffff_ff80_0000_0000;

/// A machine with `cpus` CPUs on one root that maps VA to A, where A holds 1 and B holds 2.
fn machine(cpus: usize) -> (Sim, u64) {
    machine_of(cpus, |_| ())
}

fn machine_of(cpus: usize, change: impl FnOnce(&mut Config)) -> (Sim, u64) {
    let mut config = Config::seeded(cpus, Bytes::new(16 << 20), 1);
    config.chance.speculate = 0;
    config.chance.interrupt = 0;
    change(&mut config);
    let sim = Sim::new(config).unwrap();
    put(&sim, A, 1);
    put(&sim, B, 2);
    let word = chain(&sim, ROOT, VA, 0);
    put(&sim, word, leaf(&sim, A, Right::Writable));
    (0..cpus as u16).for_each(|cpu| run(&sim, cpu, ROOT));
    (sim, word)
}

fn leaf(sim: &Sim, pa: u64, right: Right) -> u64 {
    leaf_word(sim.config().format, 0, pa, right, 1)
}

fn read(sim: &Sim, cpu: u16) -> Option<u64> {
    sim.on(Cpu(cpu), || sim.user_load(Va::new(VA), 8).ok())
}

fn space() -> Scope {
    Scope::Space(Pa::new(ROOT))
}

#[test]
fn an_entry_changed_without_invalidation_is_stale_on_its_own_cpu() {
    let (sim, word) = machine(1);
    assert_eq!(read(&sim, 0), Some(1));
    put(&sim, word, leaf(&sim, B, Right::Writable));
    assert_eq!(read(&sim, 0), Some(1));
    sim.invalidate(&one(space(), VA, 0, Tables::Kept));
    assert_eq!(read(&sim, 0), Some(2));
}

#[test]
fn an_invalidation_here_does_nothing_there() {
    let (sim, word) = machine(2);
    assert_eq!((read(&sim, 0), read(&sim, 1)), (Some(1), Some(1)));
    put(&sim, word, leaf(&sim, B, Right::Writable));
    sim.invalidate(&one(space(), VA, 0, Tables::Kept));
    assert_eq!((read(&sim, 0), read(&sim, 1)), (Some(2), Some(1)));
    run(&sim, 1, ROOT);
    assert_eq!(read(&sim, 1), Some(2));
}

#[test]
fn a_request_is_not_carried_out_before_somebody_waits() {
    let (sim, word) = machine(2);
    assert_eq!(read(&sim, 1), Some(1));
    put(&sim, word, 0);
    let ticket = sim.ask(&foliant_units::CpuSet::first(2), &one(space(), VA, 0, Tables::Kept));
    assert_eq!(read(&sim, 1), Some(1));
    sim.wait(ticket);
    assert_eq!(read(&sim, 1), None);
}

#[test]
fn a_store_goes_through_a_stale_writable_translation_until_the_flush() {
    let (sim, word) = machine(1);
    let store = |value| sim.user_store(Va::new(VA), 8, value);
    store(5).unwrap();
    put(&sim, word, leaf(&sim, A, Right::ReadOnly));
    store(6).unwrap();
    assert_eq!(get(&sim, A), 6);
    sim.invalidate(&one(space(), VA, 0, Tables::Kept));
    assert!(store(7).unwrap_err().present);
}

#[test]
fn a_fault_ends_a_stale_read_only_translation_where_the_rules_say_so() {
    for faults in [Faults::EndTranslation, Faults::KeepTranslation] {
        let (sim, word) = machine_of(2, |config| config.rules.faults = faults);
        let write = |cpu| sim.on(Cpu(cpu), || sim.user_touch(Va::new(VA), Access::Write).is_ok());
        put(&sim, word, leaf(&sim, A, Right::ReadOnly));
        assert_eq!((read(&sim, 0), read(&sim, 1)), (Some(1), Some(1)));
        put(&sim, word, leaf(&sim, A, Right::Writable));
        assert!(!write(0), "the translation is stale");
        assert_eq!(write(0), faults == Faults::EndTranslation);
        sim.invalidate(&one(space(), VA, 0, Tables::Kept));
        assert!(write(0) && !write(1), "that of the other CPU stays");
    }
}

#[test]
fn accessed_and_dirty_are_set_by_the_walker_and_dirty_can_be_lost() {
    let (sim, word) = machine(1);
    let clean = leaf(&sim, A, Right::Writable);
    read(&sim, 0);
    assert_eq!(get(&sim, word), clean | 1 << 5);
    sim.user_touch(Va::new(VA), Access::Write).unwrap();
    assert_eq!(get(&sim, word), clean | 1 << 5 | 1 << 6);
    // The dirty bit is taken away without a flush: the next store does not set it, because the
    // cache knows it to be set.
    put(&sim, word, clean | 1 << 5);
    sim.user_store(Va::new(VA), 8, 9).unwrap();
    assert_eq!(get(&sim, word), clean | 1 << 5);
    // The word of a clean cached translation is gone: the store lands, and no bit says so.
    sim.invalidate(&one(space(), VA, 0, Tables::Kept));
    read(&sim, 0);
    put(&sim, word, 0);
    sim.user_store(Va::new(VA), 8, 10).unwrap();
    assert_eq!((get(&sim, A), get(&sim, word)), (10, 0));
}

#[test]
fn thousands_of_stale_entries_stay() {
    let (sim, word) = machine(1);
    for page in 1..400 {
        put(&sim, word + page * 8, leaf(&sim, A, Right::Writable));
        sim.user_touch(Va::new(VA + page * 4096), Access::Read).unwrap();
    }
    for page in 1..400 {
        put(&sim, word + page * 8, 0);
    }
    for page in 1..400 {
        sim.user_touch(Va::new(VA + page * 4096), Access::Read).unwrap();
    }
}

#[test]
fn global_entries_survive_a_change_of_root() {
    let (sim, _) = machine(1);
    let word = chain(&sim, ROOT + 0x1_0000, KERNEL, 0);
    let top = (KERNEL >> 39 & 511) * 8;
    put(&sim, ROOT + top, get(&sim, ROOT + 0x1_0000 + top));
    put(&sim, word, leaf_word(sim.config().format, 0, A, Right::Writable, 0) | 1 << 8);
    // SAFETY: mapped just above.
    let load = || unsafe { sim.kernel_load(Va::new(KERNEL)) };
    assert_eq!(load(), Ok(1));
    put(&sim, word, 0);
    run(&sim, 0, ROOT);
    assert_eq!(load(), Ok(1));
    sim.invalidate(&one(space(), KERNEL, 0, Tables::Removed));
    assert_eq!(load(), Ok(1));
    sim.invalidate(&one(Scope::Kernel, KERNEL, 0, Tables::Kept));
    assert!(load().is_err());
}

#[test]
fn an_old_table_is_walked_until_table_pointers_are_invalidated() {
    let (sim, word) = machine(1);
    assert_eq!(read(&sim, 0), Some(1));
    // Another base table has the neighbour page mapped; the old one has no such word.
    let (old, new) = (word & !0xfff, 0x30_0000);
    let upper = old - 4096 + (VA >> 21 & 511) * 8;
    let neighbour = Va::new(VA + 4096);
    put(&sim, new + (word & 0xfff) + 8, leaf(&sim, B, Right::Writable));
    put(&sim, upper, table_word(sim.config().format, new));
    assert!(sim.user_load(neighbour, 8).is_err());
    sim.invalidate(&one(space(), neighbour.get(), 0, Tables::Kept));
    assert!(sim.user_load(neighbour, 8).is_err());
    sim.invalidate(&one(space(), neighbour.get(), 0, Tables::Removed));
    assert_eq!(sim.user_load(neighbour, 8), Ok(2));
}

#[test]
fn an_invalidation_inside_a_large_page_drops_that_leaf_and_no_other() {
    let (sim, word) = machine(1);
    let upper = (word & !0xfff) - 4096 + (VA >> 21 & 511) * 8;
    let format = sim.config().format;
    for (slot, pa) in [(1, 0x60_0000), (2, 0x80_0000)] {
        put(&sim, upper + slot * 8, leaf_word(format, 1, pa, Right::Writable, 1));
        sim.user_touch(Va::new(VA + slot * (2 << 20)), Access::Read).unwrap();
        put(&sim, upper + slot * 8, 0);
    }
    let touch = |slot: u64| sim.user_touch(Va::new(VA + slot * (2 << 20) + 0x5000), Access::Read);
    sim.invalidate(&one(space(), VA + (2 << 20) + 0x3000, 0, Tables::Kept));
    assert!(touch(1).is_err());
    assert!(touch(2).is_ok());
}

#[test]
fn a_large_stride_leaves_small_pages_stale() {
    let (sim, word) = machine(1);
    let at = Va::new(VA + 4096);
    put(&sim, word + 8, leaf(&sim, B, Right::Writable));
    assert_eq!(sim.user_load(at, 8), Ok(2));
    put(&sim, word + 8, 0);
    sim.invalidate(&one(space(), VA & !0x1f_ffff, 1, Tables::Kept));
    assert_eq!(sim.user_load(at, 8), Ok(2));
    sim.invalidate(&one(space(), at.get(), 0, Tables::Kept));
    assert!(sim.user_load(at, 8).is_err());
}

#[test]
fn speculation_caches_what_nobody_touched_and_marks_it_accessed() {
    let mut config = Config::seeded(1, Bytes::new(16 << 20), 3);
    config.chance.speculate = 1;
    let sim = Sim::new(config).unwrap();
    let word = chain(&sim, ROOT, VA, 0);
    for page in 0..16 {
        put(&sim, word + page * 8, leaf(&sim, A, Right::Writable));
    }
    run(&sim, 0, ROOT);
    sim.user_touch(Va::new(VA + 8 * 4096), Access::Read).unwrap();
    for _ in 0..64 {
        sim.invalidate(&one(space(), VA + 8 * 4096, 0, Tables::Kept));
        sim.user_touch(Va::new(VA + 8 * 4096), Access::Read).unwrap();
    }
    let cached = sim.cached(Cpu(0));
    let pages: Vec<_> = cached.iter().filter(|entry| !entry.table).collect();
    assert!(pages.len() > 4, "{} pages", pages.len());
    assert!(pages.iter().all(|entry| get(&sim, entry.word.get()) & 1 << 5 != 0));
}

#[test]
fn every_format_translates_and_the_bits_are_where_the_manuals_say() {
    use foliant_sim::{RiscvMode::*, X86Levels::*};
    for (format, accessed, dirty) in [
        (Format::X86_64(Four), 1 << 5, 1 << 6),
        (Format::X86_64(Five), 1 << 5, 1 << 6),
        (Format::Aarch64, 1 << 10, 1 << 7),
        (Format::Riscv64(Sv39), 1 << 6, 1 << 7),
        (Format::Riscv64(Sv48), 1 << 6, 1 << 7),
        (Format::Riscv64(Sv57), 1 << 6, 1 << 7),
    ] {
        let config = Config::seeded(1, Bytes::new(16 << 20), 1).with_format(format);
        let sim = Sim::new(config).unwrap();
        for level in 0..2 {
            let (root, va) = (ROOT + u64::from(level) * 0x10_000, VA + (u64::from(level) << 21));
            let word = chain(&sim, root, va, level);
            let clean = leaf_word(format, level, A, Right::Writable, 1);
            put(&sim, word, clean);
            run(&sim, 0, root);
            sim.user_store(Va::new(va), 4, 0xabcd).unwrap();
            assert_eq!(sim.user_load(Va::new(va), 2), Ok(0xabcd), "{format:?} {level}");
            let changed = get(&sim, word) ^ clean;
            assert_eq!(changed, accessed | dirty, "{format:?} {level}");
            put(&sim, word, leaf_word(format, level, A, Right::ReadOnly, 1));
            sim.invalidate(&foliant_machine::Invalidation::all(Scope::Space(Pa::new(root))));
            assert!(sim.user_touch(Va::new(va), Access::Write).unwrap_err().present);
        }
        let _ = sim.violations(); // the leaf was replaced in place, on machines that forbid it too
    }
}

#[test]
fn a_kernel_word_that_was_not_copied_to_the_user_root_is_missed_where_one_root_serves_both() {
    for (format, found) in [
        (Format::X86_64(foliant_sim::X86Levels::Four), false),
        (Format::Riscv64(foliant_sim::RiscvMode::Sv48), false),
        (Format::Aarch64, true),
    ] {
        let config = Config::seeded(1, Bytes::new(16 << 20), 1).with_format(format);
        let sim = Sim::new(config).unwrap();
        let kernel = 0xffff_ffff_8000_0000;
        let (user_root, kernel_root) = (ROOT, ROOT + 0x1_0000);
        let word = chain(&sim, kernel_root, kernel, 0);
        put(&sim, word, leaf_word(format, 0, A, Right::Writable, 0));
        // SAFETY: mapped just above, in one of the two roots.
        let load = || unsafe { sim.kernel_load(Va::new(kernel)) };
        assert!(load().is_err(), "no root was loaded yet");
        let root =
            |user, kernel| foliant_machine::Root { user: Pa::new(user), kernel: Pa::new(kernel) };
        sim.activate(root(user_root, kernel_root), Kept::Nothing);
        assert_eq!(load().is_ok(), found, "{format:?}");
        sim.activate(root(kernel_root, kernel_root), Kept::Nothing);
        assert!(load().is_ok(), "{format:?}");
        assert!(sim.user_load(Va::new(kernel), 8).unwrap_err().present, "users must not");
    }
}

#[test]
fn an_interrupt_arrives_at_once_late_or_only_in_the_wait() {
    let mut early = 0;
    for seed in 0..64 {
        let mut config = Config::seeded(2, Bytes::new(16 << 20), seed);
        config.chance.interrupt = 4;
        let sim = Sim::new(config).unwrap();
        let word = chain(&sim, ROOT, VA, 0);
        put(&sim, word, leaf(&sim, A, Right::Writable));
        (0..2).for_each(|cpu| run(&sim, cpu, ROOT));
        read(&sim, 1);
        put(&sim, word, 0);
        let ticket = sim.ask(&foliant_units::CpuSet::first(2), &one(space(), VA, 0, Tables::Kept));
        early += usize::from((0..3).any(|_| read(&sim, 1).is_none()));
        sim.wait(ticket);
        assert_eq!(read(&sim, 1), None);
    }
    assert!((16..60).contains(&early), "{early} of 64 arrived before the wait");
}

#[test]
fn what_was_never_accessed_is_in_no_cache_where_the_rules_say_so() {
    let mut config = Config::seeded(1, Bytes::new(16 << 20), 5);
    config.chance.speculate = 1;
    let sim = Sim::new(config).unwrap();
    let word = chain(&sim, ROOT, VA, 0);
    run(&sim, 0, ROOT);
    for round in 0..50 {
        for page in 0..16 {
            put(&sim, word + page * 8, leaf(&sim, A, Right::Writable));
        }
        let used = VA + (round % 16) * 4096;
        sim.user_touch(Va::new(used), Access::Read).unwrap();
        for page in 0..16 {
            let accessed = get(&sim, word + page * 8) & 1 << 5 != 0;
            put(&sim, word + page * 8, 0);
            let va = Va::new(VA + page * 4096);
            if !accessed {
                assert!(sim.user_touch(va, Access::Read).is_err(), "{va:?} round {round}");
            }
            sim.invalidate(&one(space(), va.get(), 0, Tables::Kept));
        }
    }
}

#[test]
fn sixty_four_kib_leaves_of_riscv_translate_every_page() {
    let format = Format::Riscv64(foliant_sim::RiscvMode::Sv48);
    let config = Config::seeded(1, Bytes::new(16 << 20), 1).with_format(format);
    let sim = Sim::new(config).unwrap();
    let word = chain(&sim, ROOT, VA, 0);
    run(&sim, 0, ROOT);
    let block = 0x41_0000;
    for page in 0..16 {
        put(&sim, block + page * 4096, 0x500 + page);
        // The low bits of the frame number say 64 KiB: 1000.
        let leaf = leaf_word(format, 0, block | 0x8000, Right::ReadOnly, 1) | 1 << 63;
        put(&sim, word + page * 8, leaf);
    }
    for page in 0..16 {
        assert_eq!(sim.user_load(Va::new(VA + page * 4096), 8), Ok(0x500 + page));
    }
}

/// Another user root with nothing in it.
const OTHER: u64 = 0x18_0000;

#[test]
fn what_was_cached_through_a_root_waits_under_its_tag() {
    let (sim, word) = machine(1);
    assert_eq!(read(&sim, 0), Some(1));
    put(&sim, word, leaf(&sim, B, Right::Writable));
    run(&sim, 0, OTHER);
    assert_eq!(read(&sim, 0), None, "what another root cached is not used");
    run_again(&sim, 0, ROOT, Kept::Unchanged);
    assert_eq!(read(&sim, 0), Some(1), "stale: nobody said that the word had changed");
    run(&sim, 0, OTHER);
    run_again(&sim, 0, ROOT, Kept::Nothing);
    assert_eq!(read(&sim, 0), Some(2));
}

#[test]
fn without_tags_nothing_waits() {
    let mut config = Config::seeded(1, Bytes::new(16 << 20), 1);
    config.tags = foliant_sim::Tags::Absent;
    let sim = Sim::new(config).unwrap();
    let word = chain(&sim, ROOT, VA, 0);
    put(&sim, word, leaf(&sim, A, Right::Writable));
    run(&sim, 0, ROOT);
    assert_eq!(read(&sim, 0), Some(0));
    put(&sim, word, 0);
    run(&sim, 0, OTHER);
    assert_eq!(sim.cached(Cpu(0)), []);
    run_again(&sim, 0, ROOT, Kept::Unchanged);
    assert_eq!(read(&sim, 0), None);
}

#[test]
fn an_invalidation_reaches_a_space_that_the_cpu_does_not_run_and_no_other() {
    let (sim, word) = machine(2);
    let other = chain(&sim, OTHER, VA, 0);
    put(&sim, other, leaf(&sim, A, Right::Writable));
    for root in [OTHER, ROOT] {
        run(&sim, 1, root);
        assert_eq!(read(&sim, 1), Some(1));
    }
    run_again(&sim, 1, ROOT + 0x4_0000, Kept::Nothing);
    put(&sim, word, 0);
    put(&sim, other, 0);
    shoot(&sim, 2, &one(space(), VA, 0, Tables::Kept));
    run_again(&sim, 1, ROOT, Kept::Unchanged);
    assert_eq!(read(&sim, 1), None);
    run_again(&sim, 1, OTHER, Kept::Unchanged);
    assert_eq!(read(&sim, 1), Some(1), "the other space was not meant");
}

#[test]
fn tags_are_kept_apart_where_entries_are_evicted_too() {
    let mut config = Config::seeded(1, Bytes::new(16 << 20), 1);
    config.geometry = foliant_sim::Geometry::SERVER;
    let sim = Sim::new(config).unwrap();
    for (root, frame, content) in [(ROOT, A, 1), (OTHER, B, 2)] {
        let word = chain(&sim, root, VA, 0);
        put(&sim, frame, content);
        put(&sim, word, leaf(&sim, frame, Right::Writable));
        run(&sim, 0, root);
        assert_eq!(read(&sim, 0), Some(content));
        put(&sim, word, 0);
    }
    for (root, content) in [(ROOT, 1), (OTHER, 2)] {
        run_again(&sim, 0, root, Kept::Unchanged);
        assert_eq!(read(&sim, 0), Some(content));
    }
    run(&sim, 0, ROOT);
    assert_eq!(read(&sim, 0), None);
    run_again(&sim, 0, OTHER, Kept::Unchanged);
    assert_eq!(read(&sim, 0), Some(2));
}
