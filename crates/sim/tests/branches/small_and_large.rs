//! `small_and_large`: a user's leaf that becomes a table, and a table that becomes a leaf.

use crate::*;
use foliant_machine::{Scope, Tables};

const HERE: &str = "small_and_large";
const LARGE: u64 = SIZE_1G;

/// CPU 0 has the leaf of `level` cached that its root has at [`VA`]; its word is not present any
/// more.
fn broken(format: Format, level: u8) -> (Sim, u64) {
    let sim = machine(format);
    let word = map(&sim, VA, level, LARGE);
    run(&sim, 0, ROOT);
    touch(&sim, 0, VA, Access::Read);
    put(&sim, word, 0);
    (sim, word)
}

/// The word points to a table.
fn divide(sim: &Sim, word: u64) {
    put(sim, word, table_word(sim.config().format, 0x60_0000));
}

fn flush(sim: &Sim, level: u8) {
    sim.invalidate(&one(Scope::Space(Pa::new(ROOT)), VA, level, Tables::Kept));
}

#[test]
fn a_leaf_becomes_a_table_after_the_flush() {
    let text =
        |word| format!("the word at {:?} is a table, and cpu 0 has it as a leaf", Pa::new(word));
    for format in [X86, RISCV] {
        for level in [1, 2] {
            let (sim, word) = broken(format, level);
            divide(&sim, word);
            found(&sim, &[(HERE, &text(word))]);
            let (sim, word) = broken(format, level);
            flush(&sim, level);
            divide(&sim, word);
            clean(&sim);
            // Nor does it become one in place.
            let (sim, word) = broken(format, level);
            put(&sim, word, leaf(&sim, level, LARGE));
            divide(&sim, word);
            found(&sim, &[(HERE, &text(word))]);
        }
    }
    // Where the machine demands break before make, that is broken as well.
    let (sim, word) = broken(ARM, 1);
    divide(&sim, word);
    let checkers: Vec<&str> = sim.violations().iter().map(|found| found.checker).collect();
    assert_eq!(checkers, [HERE, "bbm"]);
}

#[test]
fn a_leaf_that_becomes_another_or_none_is_no_matter_of_size() {
    let (sim, word) = broken(X86, 1);
    put(&sim, word, leaf_word(X86, 1, LARGE, Right::ReadOnly, 1));
    put(&sim, word, 0);
    divide(&sim, word + 8);
    clean(&sim);
    // A base leaf has no table below it, whatever its bits say.
    let (sim, word) = broken(X86, 0);
    divide(&sim, word);
    clean(&sim);
}

#[test]
fn the_kernel_takes_its_own_leaves_apart_in_place() {
    let sim = machine(X86);
    let word = chain(&sim, ROOT, KERNEL, 1);
    put(&sim, word, leaf_word(X86, 1, LARGE, Right::Writable, 0));
    run(&sim, 0, ROOT);
    sim.kernel_touch(Va::new(KERNEL), Access::Read).unwrap();
    divide(&sim, word);
    clean(&sim);
}

#[test]
fn a_word_that_is_cached_for_two_addresses_is_flushed_for_both() {
    let sim = machine(X86);
    let word = map(&sim, VA, 1, LARGE);
    let (table, alias) = (word & !0xfff, VA + (1 << 30));
    put(&sim, table - PAGE + (alias >> 30 & 511) * 8, table_word(X86, table));
    run(&sim, 0, ROOT);
    touch(&sim, 0, VA, Access::Read);
    touch(&sim, 0, alias, Access::Read);
    put(&sim, word, 0);
    flush(&sim, 1);
    divide(&sim, word);
    found(&sim, &[(HERE, "is a table, and cpu 0 has it as a leaf")]);
}

/// CPU 0 keeps the leaf under the tag of [`ROOT`] and runs another root when it becomes a table.
fn kept() -> Sim {
    let (sim, word) = broken(X86, 1);
    run(&sim, 0, OTHER);
    divide(&sim, word);
    clean(&sim);
    sim
}

#[test]
fn what_is_kept_of_a_leaf_is_gone_when_its_root_is_activated_again() {
    let sim = kept();
    run_again(&sim, 0, OTHER, Kept::Unchanged);
    run_again(&sim, 1, ROOT, Kept::Unchanged);
    clean(&sim);
    run_again(&sim, 0, ROOT, Kept::Unchanged);
    found(&sim, &[(HERE, "is activated again with the leaf at")]);

    let sim = kept();
    run_again(&sim, 0, ROOT, Kept::Nothing);
    clean(&sim);

    let sim = kept();
    flush(&sim, 1);
    run_again(&sim, 0, ROOT, Kept::Unchanged);
    clean(&sim);
}

/// CPU 0 has the pointer cached through which it read a leaf of the lowest level; the word is not
/// present any more, and the leaf is gone.
fn emptied(format: Format) -> (Sim, u64) {
    let sim = machine(format);
    let leaf = map(&sim, VA, 0, LARGE);
    run(&sim, 0, ROOT);
    touch(&sim, 0, VA, Access::Read);
    put(&sim, leaf, 0);
    flush(&sim, 0);
    let word = (leaf & !0xfff) - PAGE + (VA >> 21 & 511) * 8;
    put(&sim, word, 0);
    (sim, word)
}

#[test]
fn a_table_becomes_a_leaf_after_the_flush() {
    for format in [X86, RISCV] {
        let flush = |sim: &Sim| {
            sim.invalidate(&one(Scope::Space(Pa::new(ROOT)), VA, 1, Tables::Removed));
        };
        let (sim, word) = emptied(format);
        put(&sim, word, leaf(&sim, 1, LARGE));
        let text =
            format!("the word at {:?} is a leaf, and cpu 0 has it as a table", Pa::new(word));
        found(&sim, &[(HERE, &text)]);
        let (sim, word) = emptied(format);
        flush(&sim);
        put(&sim, word, leaf(&sim, 1, LARGE));
        clean(&sim);
        // What is kept under the tag of a root that is not run is gone before it is run again.
        let kept = || {
            let (sim, word) = emptied(format);
            run(&sim, 0, OTHER);
            put(&sim, word, leaf(&sim, 1, LARGE));
            clean(&sim);
            sim
        };
        let sim = kept();
        run_again(&sim, 0, ROOT, Kept::Unchanged);
        found(&sim, &[(HERE, "is activated again with the table at")]);
        let sim = kept();
        flush(&sim);
        run_again(&sim, 0, ROOT, Kept::Unchanged);
        clean(&sim);
    }
}
