//! `groups`: sixteen words that may be cached as one.

use crate::*;
use foliant_machine::{Retired, Scope, Tables};
use foliant_units::VaRange;

const HERE: &str = "groups";
const BOTH: [Format; 2] = [ARM, RISCV];

fn space() -> Scope {
    Scope::Space(Pa::new(ROOT))
}

/// The `nth` word of a group that maps the 64 KiB from `pa` on.
fn group(format: Format, pa: u64, nth: u64, right: Right) -> u64 {
    match format {
        ARM => leaf_word(format, 0, pa + nth * PAGE, right, 1) | 1 << 52,
        _ => leaf_word(format, 0, pa | (8 * PAGE), right, 1) | 1 << 63,
    }
}
/// CPU 0 runs a root; gives the first of sixteen words in it, which hold nothing.
fn begun(format: Format) -> (Sim, u64) {
    let sim = machine(format);
    let word = chain(&sim, ROOT, VA, 0);
    run(&sim, 0, ROOT);
    (sim, word)
}
fn fill(sim: &Sim, word: u64, pa: u64, right: Right) {
    let format = sim.config().format;
    (0..16).for_each(|nth| put(sim, word + nth * 8, group(format, pa, nth, right)));
}
/// The same, with a group at [`SIZE_1G`].
fn grouped(format: Format) -> (Sim, u64) {
    let (sim, word) = begun(format);
    fill(&sim, word, SIZE_1G, Right::Writable);
    (sim, word)
}
/// A machine of which CPU 0 runs a root, made by `make`, once what that CPU has cached is as `want`
/// says: alone or as a whole, a coin decides.
fn tossed(
    format: Format,
    make: impl Fn(&Sim) -> u64,
    want: impl Fn(&[bool]) -> bool,
) -> (Sim, u64) {
    for seed in 0.. {
        let mut config = Config::seeded(2, Bytes::new(3 << 30), seed).with_format(format);
        (config.chance.speculate, config.chance.interrupt) = (0, 0);
        let sim = Sim::new(config).unwrap();
        let word = make(&sim);
        let cached = sim.cached(Cpu(0));
        let leaves = cached.iter().filter(|entry| !entry.table);
        if want(&leaves.map(|entry| entry.is_group()).collect::<Vec<_>>()) {
            return (sim, word);
        }
    }
    unreachable!("a coin has two sides")
}
/// The same, of which CPU 0 has cached one page: as the whole group, or alone.
fn cached(format: Format, page: u64, whole: bool) -> (Sim, u64) {
    let make = |sim: &Sim| {
        let word = chain(sim, ROOT, VA, 0);
        run(sim, 0, ROOT);
        fill(sim, word, SIZE_1G, Right::Writable);
        touch(sim, 0, VA + page * PAGE, Access::Read);
        word
    };
    tossed(format, make, |groups| groups.contains(&whole))
}
/// A group of the kernel's that CPU 0 has cached as a whole.
fn kernels(format: Format, word_of: impl Fn(u64, Right) -> u64) -> (Sim, u64) {
    let make = |sim: &Sim| {
        let word = chain(sim, ROOT, KERNEL, 0);
        run(sim, 0, ROOT);
        (0..16).for_each(|nth| put(sim, word + nth * 8, word_of(nth, Right::Writable)));
        sim.kernel_touch(Va::new(KERNEL + 3 * PAGE), Access::Read).unwrap();
        word
    };
    tossed(format, make, |groups| groups == [true])
}
fn global_arm(nth: u64, right: Right) -> u64 {
    let word = leaf_word(ARM, 0, SIZE_1G + nth * PAGE, right, 0) | 1 << 52;
    word & !(1 << 11)
}
fn clear_all(sim: &Sim, word: u64) {
    (0..16).for_each(|nth| put(sim, word + nth * 8, 0));
}

#[test]
fn a_group_comes_and_goes_word_by_word() {
    for format in BOTH {
        for whole in [false, true] {
            let (sim, word) = cached(format, 3, whole);
            clear_all(&sim, word);
            sim.invalidate(&one(space(), VA + 3 * PAGE, 0, Tables::Kept));
            fill(&sim, word, SIZE_1G + (64 << 10), Right::ReadOnly);
            touch(&sim, 0, VA + 9 * PAGE, Access::Read);
            clean(&sim);
        }
    }
}

#[test]
fn any_address_of_a_group_ends_what_is_cached_of_all_of_it() {
    for format in BOTH {
        for page in [0, 7, 15] {
            let (sim, _) = cached(format, 3, true);
            sim.invalidate(&one(space(), VA + page * PAGE, 0, Tables::Kept));
            assert_eq!(sim.cached_pages(Cpu(0)), 0);
            let (sim, _) = cached(format, 3, false);
            sim.invalidate(&one(space(), VA + page * PAGE, 0, Tables::Kept));
            assert_eq!(sim.cached_pages(Cpu(0)), 1, "a page that was cached alone");
        }
    }
}

#[test]
fn a_store_through_a_group_is_noted_where_the_group_was_read() {
    for format in BOTH {
        let (sim, word) = cached(format, 3, true);
        let before: Vec<u64> = (0..16).map(|nth| get(&sim, word + nth * 8)).collect();
        touch(&sim, 0, VA + 11 * PAGE, Access::Write);
        let changed = |nth: &usize| get(&sim, word + *nth as u64 * 8) != before[*nth];
        assert!((0..16).filter(changed).eq([3]), "{format:?}");
        clean(&sim);
    }
}

#[test]
fn a_word_names_the_block_of_its_place() {
    let (sim, word) = begun(ARM);
    put(&sim, word + 5 * 8, group(ARM, SIZE_1G, 6, Right::Writable));
    found(&sim, &[(HERE, "of a group names another's block")]);
}

#[test]
fn words_of_a_group_are_alike() {
    for format in BOTH {
        let single = |nth| leaf_word(format, 0, SIZE_1G + nth * PAGE, Right::Writable, 1);
        let wrong = [
            group(format, SIZE_1G, 5, Right::ReadOnly),
            group(format, SIZE_1G + (64 << 10), 5, Right::Writable),
            single(5),
        ];
        for wrong in wrong {
            let (sim, word) = begun(format);
            put(&sim, word + 2 * 8, group(format, SIZE_1G, 2, Right::Writable));
            put(&sim, word + 5 * 8, wrong);
            found(&sim, &[(HERE, "are not alike, and one is of a group")]);
        }
        // In the other order, wherever the word lies, and beside another unit, whose words are
        // none of its.
        for nth in (0..=16).filter(|nth| *nth != 2) {
            let (sim, word) = begun(format);
            put(&sim, word + nth * 8, single(nth));
            clean(&sim);
            put(&sim, word + 2 * 8, group(format, SIZE_1G, 2, Right::Writable));
            match nth {
                16 => clean(&sim),
                _ => found(&sim, &[(HERE, "are not alike, and one is of a group")]),
            }
        }
    }
}

#[test]
fn a_table_that_was_written_before_it_was_reached_is_looked_at_when_it_is_walked() {
    for format in BOTH {
        let sim = machine(format);
        let word = chain(&sim, ROOT, VA, 0);
        fill(&sim, word, SIZE_1G, Right::Writable);
        put(&sim, word + 9 * 8, leaf_word(format, 0, SIZE_1G + 9 * PAGE, Right::Writable, 1));
        run(&sim, 0, ROOT);
        touch(&sim, 0, VA + 9 * PAGE, Access::Read);
        clean(&sim); // a single one
        touch(&sim, 0, VA + 2 * PAGE, Access::Read);
        found(&sim, &[(HERE, "are not alike, and one is of a group")]);
    }
}

#[test]
fn a_live_word_of_a_group_becomes_no_other() {
    let single = leaf_word(RISCV, 0, SIZE_1G, Right::Writable, 1);
    let news = [single, group(RISCV, SIZE_1G, 0, Right::ReadOnly)];
    for new in news {
        // Alone, so that no word beside it is unlike.
        let (sim, word) = begun(RISCV);
        put(&sim, word, group(RISCV, SIZE_1G, 0, Right::Writable));
        put(&sim, word, new);
        found(&sim, &[(HERE, "live word of a group")]);
    }
    let (sim, word) = begun(RISCV);
    put(&sim, word, single);
    put(&sim, word, group(RISCV, SIZE_1G, 0, Right::Writable));
    found(&sim, &[(HERE, "live word of a group")]);
    // Bits of walkers and of the manager change in place, and a single word on riscv64 does.
    let (sim, word) = grouped(RISCV);
    put(&sim, word, get(&sim, word) | 1 << 6 | 1 << 7 | 1 << 9);
    put(&sim, word + 16 * 8, single);
    put(&sim, word + 16 * 8, leaf_word(RISCV, 0, SIZE_1G, Right::ReadOnly, 1));
    clean(&sim);
}

#[test]
fn the_kernel_s_own_groups_change_in_place_where_the_machine_permits_it() {
    let kernels = |right: Right| leaf_word(RISCV, 0, SIZE_1G | (8 * PAGE), right, 0) | 1 << 63;
    let (sim, word) = begun(RISCV);
    (0..16).for_each(|nth| put(&sim, word + nth * 8, kernels(Right::Writable)));
    (0..5).for_each(|nth| put(&sim, word + nth * 8, kernels(Right::ReadOnly)));
    clean(&sim);
    // Not where users get at it, before or afterwards.
    put(&sim, word + 9 * 8, kernels(Right::Writable) | 1 << 4);
    found(&sim, &[(HERE, "live word of a group")]);
    // Words of an aarch64 group do not: it breaks before it makes.
    let kernels = |right, nth: u64| leaf_word(ARM, 0, SIZE_1G + nth * PAGE, right, 0) | 1 << 52;
    let (sim, word) = begun(ARM);
    put(&sim, word, kernels(Right::Writable, 0));
    put(&sim, word + 8, kernels(Right::ReadOnly, 1));
    found(&sim, &[(HERE, "are not alike, and one is of a group")]);
}

#[test]
fn what_is_cached_of_a_group_is_flushed_before_its_words_are_made_again() {
    for format in BOTH {
        let read_only = leaf_word(format, 0, SIZE_1G + 5 * PAGE, Right::ReadOnly, 1);
        let other = group(format, SIZE_1G, 5, Right::ReadOnly);
        // The group was read from the word of page 3; the one that is made is another.
        for new in [read_only, other] {
            let (sim, word) = cached(format, 3, true);
            clear_all(&sim, word);
            put(&sim, word + 5 * 8, new);
            found(&sim, &[(HERE, "is made while cpu 0 has what")]);
            // Who does not run the root does not use it.
            let (sim, word) = cached(format, 3, true);
            clear_all(&sim, word);
            run(&sim, 1, ROOT);
            run(&sim, 0, OTHER);
            put(&sim, word + 5 * 8, new);
            clean(&sim);
            // After the flush there is nothing.
            let (sim, word) = cached(format, 3, true);
            clear_all(&sim, word);
            sim.invalidate(&one(space(), VA + 12 * PAGE, 0, Tables::Kept));
            put(&sim, word + 5 * 8, new);
            clean(&sim);
        }
        // What says the same may come back, as one of the group or alone.
        let (sim, word) = cached(format, 3, true);
        clear_all(&sim, word);
        put(&sim, word + 5 * 8, leaf_word(format, 0, SIZE_1G + 5 * PAGE, Right::Writable, 1));
        clean(&sim);
    }
    // A page that was cached alone: what it was, or what it becomes, is a group's.
    let read_only = |nth| leaf_word(RISCV, 0, SIZE_1G + nth * PAGE, Right::ReadOnly, 1);
    let (sim, word) = cached(RISCV, 3, false);
    clear_all(&sim, word);
    put(&sim, word + 4 * 8, read_only(4));
    clean(&sim);
    put(&sim, word + 3 * 8, read_only(3));
    found(&sim, &[(HERE, "is made while cpu 0 has what")]);

    let single = |new: u64| {
        let (sim, word) = begun(RISCV);
        put(&sim, word, leaf_word(RISCV, 0, SIZE_1G, Right::Writable, 1));
        touch(&sim, 0, VA, Access::Read);
        put(&sim, word, 0);
        put(&sim, word, new);
        sim
    };
    clean(&single(read_only(0)));
    found(
        &single(group(RISCV, SIZE_1G, 0, Right::ReadOnly)),
        &[(HERE, "is made while cpu 0 has what")],
    );
}

#[test]
fn words_of_a_table_that_was_given_up_are_forgotten() {
    let (sim, word) = cached(RISCV, 3, false);
    clear_all(&sim, word);
    own(&sim, word & !0xfff, 1, Owner::Table);
    put(&sim, word + 3 * 8, leaf_word(RISCV, 0, SIZE_1G + 3 * PAGE, Right::ReadOnly, 1));
    clean(&sim); // a single one, of which nobody knows what it was
}

/// Only the words of that table are.
#[test]
fn words_of_other_tables_are_not_forgotten() {
    for other in [PAGE, 0u64.wrapping_sub(PAGE)] {
        let (sim, word) = cached(RISCV, 3, false);
        clear_all(&sim, word);
        own(&sim, (word & !0xfff).wrapping_add(other), 1, Owner::Table);
        put(&sim, word + 3 * 8, leaf_word(RISCV, 0, SIZE_1G + 3 * PAGE, Right::ReadOnly, 1));
        found(&sim, &[(HERE, "is made while cpu 0 has what")]);
    }
}

#[test]
fn what_is_global_is_used_under_every_root() {
    let (sim, word) = kernels(ARM, global_arm);
    assert!(sim.cached(Cpu(0)).iter().any(|entry| !entry.table && entry.is_global()));
    clear_all(&sim, word);
    put(&sim, word + 5 * 8, global_arm(5, Right::ReadOnly));
    found(&sim, &[(HERE, "is made while cpu 0 has what")]);
}

#[test]
fn the_kernel_s_own_groups_change_in_place_while_they_are_cached() {
    let word_of = |_, right: Right| leaf_word(RISCV, 0, SIZE_1G | (8 * PAGE), right, 0) | 1 << 63;
    let (sim, word) = kernels(RISCV, word_of);
    (0..16).for_each(|nth| put(&sim, word + nth * 8, word_of(nth, Right::ReadOnly)));
    clean(&sim);
}

/// A group and its first page, which was cached alone before, are two: what ends the group leaves
/// the page.
#[test]
fn a_group_and_a_page_of_it_are_told_apart() {
    let make = |sim: &Sim| {
        let word = chain(sim, ROOT, VA, 0);
        run(sim, 0, ROOT);
        fill(sim, word, SIZE_1G, Right::Writable);
        [0, 3].into_iter().for_each(|page| touch(sim, 0, VA + page * PAGE, Access::Read));
        word
    };
    let both = |groups: &[bool]| groups.contains(&true) && groups.contains(&false);
    let of_first = |sim: &Sim| {
        let cached = sim.cached(Cpu(0));
        cached.iter().any(|entry| !entry.table && !entry.is_group() && entry.va == Va::new(VA))
    };
    let (sim, word) = tossed(ARM, make, both);
    assert!(of_first(&sim));
    clear_all(&sim, word);
    sim.invalidate(&one(space(), VA + 7 * PAGE, 0, Tables::Kept));
    assert!(of_first(&sim));
    own(&sim, SIZE_1G, 1, Owner::User);
    own(&sim, SIZE_1G, 1, Owner::Free);
    found(&sim, &[("no_stale_translation", "but cpu 0 has a translation")]);
}

/// A group of a lazy range is a translation of it as any other.
#[test]
fn a_group_of_a_purged_range_is_one_of_it() {
    let (sim, word) = kernels(ARM, global_arm);
    clear_all(&sim, word);
    let range = VaRange::sized(Va::new(KERNEL), Bytes::new(16 * PAGE)).unwrap();
    sim.retired(range, Retired::Lazily);
    clean(&sim);
    sim.retired(range, Retired::Purged);
    found(&sim, &[("no_stale_translation", "has a translation of a group of level 0")]);
}
