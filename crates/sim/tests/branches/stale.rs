//! `no_stale_translation`.

use crate::*;
use foliant_machine::{Invalidation, KernelVa, Retired, Scope, Tables};
use foliant_units::{Frame, Level, VaRange};

const HERE: &str = "no_stale_translation";
const LEVELS: [(u8, u64); 3] = [(0, 1), (1, 512), (2, 1 << 18)];

/// Where the memory of a leaf of a level lies: at the start of nothing larger.
fn base(level: u8) -> u64 {
    SIZE_1G + [PAGE, 2 << 20, 0][usize::from(level)]
}

/// CPU 0 has a leaf of `level` cached; the leaf's word is gone.
fn cached(level: u8) -> Sim {
    let sim = machine(X86);
    let word = map(&sim, VA, level, base(level));
    run(&sim, 0, ROOT);
    touch(&sim, 0, VA, Access::Read);
    put(&sim, word, 0);
    sim
}

fn becomes(owner: Owner, level: u8) -> String {
    let frame = Frame::new(base(level) / PAGE);
    let va = Va::new(VA);
    format!(
        "becomes {owner:?}, but cpu 0 has a translation of level {level} for {va:?} to {frame:?}"
    )
}

#[test]
fn a_frame_under_a_cached_leaf_of_any_size_is_not_given_up() {
    for (level, frames) in LEVELS {
        let base = base(level);
        let sim = cached(level);
        own(&sim, base - PAGE, 1, Owner::Free);
        own(&sim, base + frames * PAGE, 1, Owner::Free);
        clean(&sim);
        for nth in [0, frames / 2, frames - 1] {
            let sim = cached(level);
            own(&sim, base + nth * PAGE, 1, Owner::Free);
            found(&sim, &[(HERE, &becomes(Owner::Free, level))]);
            own(&sim, base + nth * PAGE, 1, Owner::Claimed);
            assert_eq!(sim.violations().len(), 1, "said once");
        }
        let sim = cached(level);
        own(&sim, base - PAGE, frames + 2, Owner::Free);
        found(&sim, &[(HERE, &becomes(Owner::Free, level))]);
    }
}

#[test]
fn a_frame_that_had_an_owner_is_not_claimed_again_while_it_is_cached() {
    for owner in [Owner::User, Owner::Table, Owner::Records, Owner::Kept, Owner::Kernel] {
        let sim = machine(X86);
        let word = chain(&sim, ROOT, KERNEL, 0);
        put(&sim, word, leaf_word(X86, 0, SIZE_1G, Right::Writable, 0));
        run(&sim, 0, ROOT);
        own(&sim, SIZE_1G, 1, owner);
        sim.kernel_touch(Va::new(KERNEL), Access::Read).unwrap();
        put(&sim, word, 0);
        own(&sim, SIZE_1G, 1, Owner::Claimed);
        found(&sim, &[(HERE, "becomes Claimed, but cpu 0 has a translation of level 0")]);
    }
    // The embedder may reach what it lends, and what is free was looked at when it became so.
    let sim = cached(0);
    own(&sim, base(0), 1, Owner::Claimed);
    own(&sim, base(0), 1, Owner::User); // gives nothing up
    clean(&sim);
}

#[test]
fn a_table_is_not_given_up_while_a_pointer_to_it_is_cached() {
    let sim = machine(X86);
    let upper = chain(&sim, ROOT, VA, 1);
    put(&sim, upper, table_word(X86, SIZE_1G));
    put(&sim, SIZE_1G, leaf(&sim, 0, 0x20_0000));
    run(&sim, 0, ROOT);
    touch(&sim, 0, VA, Access::Read);
    put(&sim, upper, 0);
    sim.invalidate(&one(Scope::Space(Pa::new(ROOT)), VA, 0, Tables::Kept));
    own(&sim, SIZE_1G + PAGE, 511, Owner::Free); // a pointer covers one frame
    own(&sim, SIZE_1G - PAGE, 1, Owner::Free);
    clean(&sim);
    own(&sim, SIZE_1G, 1, Owner::Free);
    found(&sim, &[(HERE, "has a table pointer of level 1")]);
}

#[test]
fn a_word_that_a_running_root_reaches_names_no_free_frame() {
    for format in FORMATS {
        for (level, frames) in LEVELS {
            for (nth, is_named) in
                [(0, true), (frames / 2, true), (frames - 1, true), (frames, false)]
            {
                let sim = machine(format);
                let base = base(level);
                let word = map(&sim, VA, level, base);
                run(&sim, 1, ROOT);
                own(&sim, base - PAGE, 1, Owner::Free);
                clean(&sim);
                own(&sim, base + nth * PAGE, 1, Owner::Free);
                let word = Pa::new(word);
                let text = format!("but the word at {word:?}, level {level}, names it");
                let wanted = [(HERE, text.as_str())];
                found(&sim, if is_named { &wanted } else { &[] });
            }
        }
    }
}

#[test]
fn sixty_four_kib_of_riscv_name_sixteen_frames() {
    for nth in 0..17 {
        let (sim, block) = (machine(RISCV), SIZE_1G + (64 << 10));
        let word = chain(&sim, ROOT, VA, 0);
        put(&sim, word, leaf(&sim, 0, block | 0x8000) | 1 << 63);
        run(&sim, 0, ROOT);
        own(&sim, block + nth * PAGE, 1, Owner::Free);
        let named = [(HERE, "level 0, names it")];
        found(&sim, if nth < 16 { &named } else { &[] });
    }
}

#[test]
fn a_table_that_a_word_names_is_one_frame_whatever_its_level() {
    for (level, frames) in [(1, 1), (2, 1), (3, 1)] {
        let sim = machine(X86);
        put(&sim, chain(&sim, ROOT, VA, level), table_word(X86, SIZE_1G));
        run(&sim, 0, ROOT);
        own(&sim, SIZE_1G + frames * PAGE, 511, Owner::Free);
        clean(&sim);
        own(&sim, SIZE_1G, 1, Owner::Free);
        found(&sim, &[(HERE, &format!("level {level}, names it"))]);
    }
}

#[test]
fn a_word_counts_where_a_running_root_reaches_it_through_live_tables() {
    let free = |change: &dyn Fn(&Sim, u64)| {
        let sim = machine(X86);
        let word = map(&sim, VA, 0, SIZE_1G);
        change(&sim, word);
        own(&sim, SIZE_1G, 1, Owner::Free);
        sim
    };
    clean(&free(&|_, _| {})); // nobody runs it
    clean(&free(&|sim, _| run(sim, 0, OTHER)));
    clean(&free(&|sim, word| {
        run(sim, 0, ROOT);
        put(sim, (word & !0xfff) - PAGE, 0); // its table hangs nowhere any more
    }));
    clean(&free(&|sim, word| {
        run(sim, 0, ROOT);
        put(sim, word, 0);
    }));
    // The word above becomes a large leaf instead of the table.
    let sim = free(&|sim, word| {
        run(sim, 0, ROOT);
        put(sim, (word & !0xfff) - PAGE, leaf(sim, 1, word & !0x1f_ffff));
    });
    clean(&sim);
    let sim = free(&|sim, _| run(sim, 1, ROOT));
    found(&sim, &[(HERE, "names it")]);
}

#[test]
fn words_of_the_kernels_root_count_where_it_is_a_root_of_its_own() {
    for (format, counts) in [(X86, false), (ARM, true), (RISCV, false)] {
        let sim = machine(format);
        map(&sim, VA, 0, SIZE_1G);
        run_both(&sim, 0, OTHER, ROOT);
        own(&sim, SIZE_1G, 1, Owner::Free);
        let named = [(HERE, "names it")];
        found(&sim, if counts { &named } else { &[] });
    }
}

#[test]
fn words_come_by_copy_by_pointer_and_by_store_and_go_by_clear() {
    let into = |fill: &dyn Fn(&Sim, u64)| {
        let sim = machine(X86);
        let upper = chain(&sim, ROOT, VA, 1);
        let table = 0x60_0000;
        put(&sim, upper, table_word(X86, table));
        run(&sim, 0, ROOT);
        fill(&sim, table);
        own(&sim, SIZE_1G, 1, Owner::Free);
        sim
    };
    let by_store = |sim: &Sim, table: u64| put(sim, table + 8, leaf(sim, 0, SIZE_1G));
    let by_pointer = |sim: &Sim, table: u64| {
        let at = reach(sim, table + 8, 8);
        // SAFETY: the word lies in memory of the test's.
        unsafe { at.write(leaf(sim, 0, SIZE_1G)) };
        own(sim, table, 1, Owner::Table);
    };
    let by_copy = |sim: &Sim, table: u64| {
        own(sim, table, 1, Owner::Table);
        let from = 0x70_0000;
        // SAFETY: as above.
        unsafe { reach(sim, from + 8, 8).write(leaf(sim, 0, SIZE_1G)) };
        copy(sim, from, table, 64);
    };
    for fill in [&by_store as &dyn Fn(&Sim, u64), &by_pointer, &by_copy] {
        found(&into(fill), &[(HERE, "level 0, names it")]);
        clean(&into(&|sim, table| {
            fill(sim, table);
            clear(sim, table, 64);
        }));
        clean(&into(&|sim, table| {
            fill(sim, table);
            put(sim, table + 8, leaf(sim, 0, SIZE_1G + PAGE));
        }));
        clean(&into(&|sim, table| {
            fill(sim, table);
            copy(sim, SIZE_1G + PAGE, table, 64);
        }));
    }
}

#[test]
fn a_word_is_what_memory_says_it_is() {
    let sim = machine(X86);
    let word = map(&sim, VA, 0, SIZE_1G);
    run(&sim, 0, ROOT);
    // SAFETY: the word lies in memory of the test's. No checker is told.
    unsafe { reach(&sim, word, 8).write(leaf(&sim, 0, SIZE_1G + PAGE)) };
    own(&sim, SIZE_1G, 1, Owner::Free);
    clean(&sim);
}

#[test]
fn tables_that_name_themselves_are_reached_by_nobody() {
    let sim = machine(X86);
    run(&sim, 0, ROOT);
    put(&sim, SIZE_1G, table_word(X86, SIZE_1G));
    put(&sim, SIZE_1G + 8, leaf(&sim, 0, 0x60_0000));
    own(&sim, 0x60_0000, 1, Owner::Free);
    clean(&sim);
}

#[test]
fn a_root_that_runs_is_not_given_up() {
    for owner in [Owner::Free, Owner::Claimed] {
        for (user, kernel) in [(SIZE_1G, ROOT), (ROOT, SIZE_1G)] {
            let sim = machine(ARM);
            own(&sim, SIZE_1G, 1, Owner::Table);
            run_both(&sim, 1, user, kernel);
            own(&sim, SIZE_1G - PAGE, 1, Owner::Free);
            own(&sim, SIZE_1G + PAGE, 1, Owner::Free);
            clean(&sim);
            own(&sim, SIZE_1G, 1, owner);
            let text = format!("becomes {owner:?}, but cpu 1 runs the root {:?}", Pa::new(SIZE_1G));
            found(&sim, &[(HERE, &text)]);
        }
    }
    let sim = machine(ARM);
    own(&sim, SIZE_1G, 1, Owner::Table);
    run_both(&sim, 1, SIZE_1G, ROOT);
    run_both(&sim, 1, OTHER, ROOT);
    own(&sim, SIZE_1G, 1, Owner::Free);
    clean(&sim);
}

/// CPU 0 keeps a page of [`ROOT`] cached and runs another root.
fn kept(global: u64) -> (Sim, u64) {
    let sim = machine(X86);
    let word = chain(&sim, ROOT, VA, 0);
    put(&sim, word, leaf(&sim, 0, SIZE_1G) | global << 8);
    (0..2).for_each(|cpu| run(&sim, cpu, ROOT));
    touch(&sim, 0, VA, Access::Read);
    put(&sim, word, 0);
    (0..2).for_each(|cpu| run(&sim, cpu, OTHER));
    (sim, word)
}

#[test]
fn what_is_kept_under_a_tag_is_held_against_the_cpu_that_comes_back_to_it() {
    let (sim, _) = kept(0);
    own(&sim, SIZE_1G, 1, Owner::Free);
    clean(&sim);
    run_again(&sim, 1, ROOT, Kept::Unchanged); // has nothing of it
    run_again(&sim, 0, OTHER, Kept::Unchanged);
    clean(&sim);
    run_again(&sim, 0, ROOT, Kept::Unchanged);
    found(&sim, &[(HERE, "is activated again with a translation of level 0")]);

    let (sim, _) = kept(0);
    own(&sim, SIZE_1G, 1, Owner::Free);
    sim.invalidate(&one(Scope::Space(Pa::new(ROOT)), VA, 0, Tables::Kept));
    run_again(&sim, 0, ROOT, Kept::Unchanged);
    clean(&sim);

    let (sim, _) = kept(0);
    own(&sim, SIZE_1G + PAGE, 1, Owner::Free); // another frame
    run_again(&sim, 0, ROOT, Kept::Unchanged);
    clean(&sim);
}

#[test]
fn what_is_global_is_usable_under_every_root() {
    let (sim, _) = kept(1);
    own(&sim, SIZE_1G, 1, Owner::Free);
    found(&sim, &[(HERE, "becomes Free, but cpu 0 has a translation of level 0")]);
}

#[test]
fn nothing_is_cached_that_names_a_free_frame() {
    for (level, frames) in LEVELS {
        for (nth, is_free) in [(0, true), (frames - 1, true), (frames, false)] {
            let sim = machine(X86);
            own(&sim, SIZE_1G + nth * PAGE, 1, Owner::Free);
            run(&sim, 0, ROOT);
            map(&sim, VA, level, SIZE_1G);
            touch(&sim, 0, VA + ((frames - 1) / 2) * PAGE, Access::Read);
            let frame = Frame::new(SIZE_1G / PAGE + nth);
            let text =
                format!("a translation of {:?} to the free {frame:?} is cached", Va::new(VA));
            let used = (HERE, "Read through a translation of");
            let both = [(HERE, text.as_str()), used];
            let usable = frames == 1 && is_free;
            found(
                &sim,
                if usable {
                    &both
                } else if is_free {
                    &both[..1]
                } else {
                    &[]
                },
            );
        }
    }
}

#[test]
fn a_pointer_to_a_table_names_one_frame() {
    let sim = machine(X86);
    let upper = chain(&sim, ROOT, VA, 1);
    own(&sim, SIZE_1G + PAGE, 511, Owner::Free);
    put(&sim, upper, table_word(X86, SIZE_1G));
    put(&sim, SIZE_1G, leaf(&sim, 0, 0x20_0000));
    run(&sim, 0, ROOT);
    touch(&sim, 0, VA, Access::Read);
    clean(&sim);
}

#[test]
fn a_walk_reads_no_free_table_and_caches_no_pointer_to_one() {
    let sim = machine(X86);
    let upper = chain(&sim, ROOT, VA, 1);
    own(&sim, SIZE_1G, 1, Owner::Free);
    put(&sim, upper, table_word(X86, SIZE_1G));
    run(&sim, 0, ROOT);
    assert!(sim.user_touch(Va::new(VA), Access::Read).is_err());
    let reads = format!("a walk for {:?} reads level 0 in the free", Va::new(VA));
    found(&sim, &[(HERE, "is cached"), (HERE, &reads)]);
    // A store through a clean translation looks at its word again.
    let sim = machine(X86);
    let word = map(&sim, VA, 0, SIZE_1G);
    run(&sim, 0, ROOT);
    touch(&sim, 0, VA, Access::Read);
    own(&sim, word & !0xfff, 1, Owner::Claimed);
    own(&sim, word & !0xfff, 1, Owner::Free);
    let before = sim.violations().len();
    touch(&sim, 0, VA, Access::Write);
    let after = sim.violations();
    assert_eq!((before, after.len()), (2, 3), "{after:#?}");
    assert!(after[2].text.contains("a walk for"), "{}", after[2]);
}

/// CPU 0 has a page of the kernel cached; the page's word is gone, and `how` is stated of its
/// addresses.
fn kernel(how: Option<Retired>) -> (Sim, u64) {
    kernel_leaf(0, how)
}
/// The same of a leaf of a level.
fn kernel_leaf(level: u8, how: Option<Retired>) -> (Sim, u64) {
    let sim = machine(X86);
    let (word, frames) = (chain(&sim, ROOT, KERNEL, level), LEVELS[usize::from(level)].1);
    put(&sim, word, leaf_word(X86, level, SIZE_1G, Right::Writable, 0));
    run(&sim, 0, ROOT);
    own(&sim, SIZE_1G, frames, Owner::Kernel);
    sim.kernel_touch(Va::new(KERNEL), Access::Read).unwrap();
    put(&sim, word, 0);
    if let Some(how) = how {
        sim.retired(pages(KERNEL, frames), how);
    }
    (sim, word)
}

fn pages(va: u64, count: u64) -> VaRange {
    VaRange::sized(Va::new(va), Bytes::new(count * PAGE)).unwrap()
}

#[test]
fn kernel_memory_is_given_up_when_it_is_flushed_or_stated_to_be_lazy() {
    for owner in [Owner::Free, Owner::Claimed] {
        let (sim, _) = kernel(None);
        own(&sim, SIZE_1G, 1, owner);
        found(&sim, &[(HERE, "but cpu 0 has a translation")]);
        let (sim, _) = kernel(Some(Retired::Lazily));
        own(&sim, SIZE_1G, 1, owner);
        clean(&sim);
        let (sim, _) = kernel(None);
        sim.retired(pages(KERNEL - PAGE, 1), Retired::Lazily);
        sim.retired(pages(KERNEL + PAGE, 1), Retired::Lazily);
        own(&sim, SIZE_1G, 1, owner);
        found(&sim, &[(HERE, "but cpu 0 has a translation")]);
    }
}

#[test]
fn tables_of_a_lazy_range_are_given_up_when_they_are_flushed() {
    let (sim, word) = kernel(Some(Retired::Lazily));
    put(&sim, (word & !0xfff) - PAGE, 0);
    own(&sim, word & !0xfff, 1, Owner::Free);
    found(&sim, &[(HERE, "has a table pointer of level 1")]);
}

#[test]
fn a_lazy_range_is_not_used_until_it_is_purged() {
    let (sim, word) = kernel(Some(Retired::Lazily));
    own(&sim, SIZE_1G, 1, Owner::Free);
    own(&sim, SIZE_1G, 1, Owner::Kernel);
    // SAFETY: the simulated machine answers.
    unsafe { sim.kernel_load(Va::new(KERNEL)) }.unwrap();
    found(&sim, &[(HERE, "which is unmapped and not purged yet")]);
    sim.invalidate(&Invalidation::all(Scope::Kernel));
    sim.retired(pages(KERNEL, 1), Retired::Purged);
    put(&sim, word, leaf_word(X86, 0, SIZE_1G, Right::Writable, 0));
    sim.kernel_touch(Va::new(KERNEL), Access::Read).unwrap();
    assert_eq!(sim.violations().len(), 1, "it was purged");
}

#[test]
fn a_purged_range_is_cached_nowhere() {
    let (sim, _) = kernel(Some(Retired::Lazily));
    sim.retired(pages(KERNEL - PAGE, 1), Retired::Purged);
    sim.retired(pages(KERNEL + PAGE, 1), Retired::Purged);
    sim.retired(pages(KERNEL, 1), Retired::Lazily);
    clean(&sim);
    sim.retired(pages(KERNEL, 1), Retired::Purged);
    found(&sim, &[(HERE, "is stated to be purged, but cpu 0 has a translation of level 0")]);
    // Table pointers may stay: the tables do.
    let (sim, _) = kernel(Some(Retired::Lazily));
    sim.invalidate(&one(Scope::Kernel, KERNEL, 0, Tables::Kept));
    sim.retired(pages(KERNEL, 1), Retired::Purged);
    clean(&sim);
    assert!(sim.cached(Cpu(0)).iter().any(|entry| entry.table));
}

#[test]
fn a_large_leaf_of_a_lazy_range_may_stay_and_ends_where_it_ends() {
    let (sim, _) = kernel_leaf(1, Some(Retired::Lazily));
    sim.retired(pages(KERNEL + (2 << 20), 1), Retired::Purged);
    own(&sim, SIZE_1G, 512, Owner::Free);
    clean(&sim);
}

#[test]
fn a_word_at_the_start_of_something_larger_names_what_it_covers() {
    for format in FORMATS {
        for (level, frames) in &LEVELS[..2] {
            let sim = machine(format);
            map(&sim, VA, *level, SIZE_1G);
            run(&sim, 0, ROOT);
            own(&sim, SIZE_1G + frames * PAGE, 1, Owner::Free);
            clean(&sim);
            own(&sim, SIZE_1G + (frames - 1) * PAGE, 1, Owner::Free);
            found(&sim, &[(HERE, "names it")]);
        }
    }
}

#[test]
fn a_word_may_name_what_is_claimed_again() {
    let sim = machine(X86);
    map(&sim, VA, 0, SIZE_1G);
    run(&sim, 0, ROOT);
    own(&sim, SIZE_1G, 1, Owner::User);
    own(&sim, SIZE_1G, 1, Owner::Claimed);
    clean(&sim);
    own(&sim, SIZE_1G, 1, Owner::Free);
    found(&sim, &[(HERE, "names it")]);
}

#[test]
fn a_large_leaf_of_a_purged_range_is_one_of_it() {
    let (sim, _) = kernel_leaf(1, None);
    let range = VaRange::sized(Va::new(KERNEL + PAGE), Level(0).span()).unwrap();
    sim.retired(range, Retired::Purged);
    found(&sim, &[(HERE, "has a translation of level 1")]);
}

/// What CPU 0 has cached is compared after the leaf of `level` turned to what `change` makes of it.
fn compared(format: Format, level: u8, change: impl Fn(u64) -> u64) -> Sim {
    let sim = machine(format);
    let word = map(&sim, VA, level, base(level));
    run(&sim, 0, ROOT);
    touch(&sim, 0, VA, Access::Write);
    put(&sim, word, change(get(&sim, word)));
    sim.compare_caches();
    sim
}

const OUTLIVED: &str = "still, of which the tables say less by now";

#[test]
fn nothing_cached_outlives_what_changed_its_word() {
    const NX: u64 = 1 << 63;
    for (level, _) in LEVELS {
        let here = format!("cpu 0 has a translation of level {level} for {:?}", Va::new(VA));
        for less in [0, 1, 2, 6] {
            let sim = compared(X86, level, |word| word & !(1 << less)); // gone, or of less rights
            found(&sim, &[(HERE, &here)]);
            found(&sim, &[(HERE, OUTLIVED)]);
        }
        found(&compared(X86, level, |word| word | NX), &[(HERE, &here)]);
        let elsewhere = compared(X86, level, |word| word + (PAGE << (9 * level)));
        found(&elsewhere, &[(HERE, &here)]);
        // The accessed bit, software's bits, global and nothing at all are no matter.
        for same in [1 << 5, 1 << 9, 1 << 8, 0] {
            clean(&compared(X86, level, |word| word ^ same));
        }
    }
    found(&compared(RISCV, 0, |word| word & !(1 << 2)), &[(HERE, OUTLIVED)]); // not writable
    found(&compared(ARM, 0, |word| word & !1), &[(HERE, OUTLIVED)]);
}

#[test]
fn what_allows_less_than_the_tables_may_stay() {
    let sim = machine(X86);
    let word = chain(&sim, ROOT, VA, 0);
    put(&sim, word, leaf_word(X86, 0, SIZE_1G, Right::ReadOnly, 1) | 1 << 63);
    run(&sim, 0, ROOT);
    touch(&sim, 0, VA, Access::Read);
    put(&sim, word, leaf(&sim, 0, SIZE_1G) | 1 << 6);
    sim.compare_caches();
    clean(&sim);
}

#[test]
fn a_path_that_allows_less_is_not_outlived_either() {
    let sim = cached(0);
    put(&sim, chain(&sim, ROOT, VA, 0), leaf(&sim, 0, base(0)));
    sim.compare_caches();
    clean(&sim);
    let upper = chain(&sim, ROOT, VA, 1);
    put(&sim, upper, get(&sim, upper) & !2);
    sim.compare_caches();
    found(&sim, &[(HERE, OUTLIVED)]);
}

#[test]
fn what_no_cpu_can_use_is_not_compared() {
    let sim = cached(0);
    run(&sim, 0, OTHER); // it is kept under its tag
    sim.compare_caches();
    clean(&sim);
    run_again(&sim, 0, ROOT, Kept::Unchanged);
    sim.compare_caches();
    found(&sim, &[(HERE, OUTLIVED)]);
    let (sim, _) = kernel(Some(Retired::Lazily));
    sim.compare_caches();
    clean(&sim);
    let (sim, _) = kernel(None);
    sim.compare_caches();
    found(&sim, &[(HERE, OUTLIVED)]);
}

#[test]
fn a_large_translation_is_backed_by_all_of_its_pages() {
    let backed = |missing: Option<u64>| {
        let sim = cached(1);
        let table = chain(&sim, ROOT, VA, 0) & !0xfff;
        for nth in (0..512).filter(|nth| Some(*nth) != missing) {
            put(&sim, table + nth * 8, leaf(&sim, 0, base(1) + nth * PAGE));
        }
        let sized = sim.violations().len(); // it is small and large at once
        sim.compare_caches();
        sim.violations().len() - sized
    };
    assert_eq!(backed(None), 0);
    for missing in [0, 1, 511] {
        assert_eq!(backed(Some(missing)), 1, "page {missing}");
    }
}
