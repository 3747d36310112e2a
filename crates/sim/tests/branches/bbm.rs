//! `bbm`: break before make.

use crate::*;
use foliant_machine::{Invalidation, Scope, Tables};

const HERE: &str = "bbm";
const UXN: u64 = 1 << 54;
const PXN: u64 = 1 << 53;
const AF: u64 = 1 << 10;
const OTHER_PAGE: u64 = SIZE_1G + PAGE;

fn space() -> Scope {
    Scope::Space(Pa::new(ROOT))
}

/// CPU 0 runs a root with a leaf for [`SIZE_1G`].
fn mapped() -> (Sim, u64) {
    let sim = machine(ARM);
    let word = map(&sim, VA, 0, SIZE_1G);
    run(&sim, 0, ROOT);
    (sim, word)
}

#[test]
fn a_live_leaf_becomes_no_other_leaf() {
    let sim = machine(ARM);
    let leaf = leaf(&sim, 0, SIZE_1G);
    let changes = [
        ("another page", leaf_word(ARM, 0, OTHER_PAGE, Right::Writable, 1)),
        ("read-only", leaf_word(ARM, 0, SIZE_1G, Right::ReadOnly, 1)),
        ("users do not execute", leaf | UXN),
        ("the kernel does not execute", leaf | PXN),
        ("the kernel's", leaf ^ 1 << 6),
        ("global", leaf ^ 1 << 11),
        ("reserved", leaf ^ 1 << 1),
    ];
    for (what, new) in changes {
        for (from, to) in [(leaf, new), (new, leaf)] {
            let (sim, word) = mapped();
            put(&sim, word, 0);
            put(&sim, word, from);
            clean(&sim);
            put(&sim, word, to);
            let text = format!("live word at {:?}: {from:#x} became {to:#x}", Pa::new(word));
            assert_eq!(sim.violations().len(), 1, "{what}");
            found(&sim, &[(HERE, &text)]);
        }
    }
}

#[test]
fn accessed_dirty_and_software_bits_change_in_place() {
    let (sim, word) = mapped();
    let leaf = leaf(&sim, 0, SIZE_1G);
    for new in [leaf | AF, leaf & !(1 << 7), leaf, leaf | 1 << 55, leaf | 1 << 58, leaf | 1 << 63] {
        put(&sim, word, new);
        touch(&sim, 0, VA, Access::Write);
        put(&sim, word, leaf);
    }
    clean(&sim);
}

#[test]
fn a_live_pointer_becomes_no_other_word() {
    let table = 0x60_0000;
    let pointer = table_word(ARM, table);
    let bits = [59, 60, 61, 62].map(|bit| pointer | 1 << bit);
    let others = [table_word(ARM, table + PAGE), leaf_word(ARM, 1, SIZE_1G, Right::Writable, 1)];
    for new in bits.into_iter().chain(others) {
        for (from, to) in [(pointer, new), (new, pointer)] {
            let sim = machine(ARM);
            let upper = chain(&sim, ROOT, VA, 1);
            put(&sim, upper, from);
            run(&sim, 0, ROOT);
            put(&sim, upper, from | 1 << 58);
            clean(&sim);
            put(&sim, upper, to);
            found(&sim, &[(HERE, "live word at")]);
        }
    }
}

#[test]
fn words_that_no_running_root_reaches_are_the_managers() {
    let (sim, word) = mapped();
    run(&sim, 0, OTHER);
    put(&sim, word, leaf(&sim, 0, OTHER_PAGE));
    run(&sim, 0, ROOT);
    clean(&sim);
    let sim = machine(X86);
    let word = map(&sim, VA, 0, SIZE_1G);
    run(&sim, 0, ROOT);
    put(&sim, word, leaf(&sim, 0, OTHER_PAGE));
    clean(&sim); // in place
}

/// A leaf that CPU 0 has cached is broken; `flush` may end that, and the word is made again as
/// `new`.
fn remade(new: u64, flush: impl Fn(&Sim, u64)) -> Sim {
    let (sim, word) = mapped();
    touch(&sim, 0, VA, Access::Read);
    put(&sim, word, 0);
    put(&sim, word, 1 << 63); // a soft word: still broken
    flush(&sim, word);
    put(&sim, word, new);
    sim
}

#[test]
fn a_broken_word_is_made_again_after_the_flush() {
    let other = leaf_word(ARM, 0, OTHER_PAGE, Right::Writable, 1);
    let again = [(HERE, "made again before the flush")];
    found(&remade(other, |_, _| ()), &again);
    // In turn: another page was flushed; another CPU ran the root and flushed; the table was
    // cleared.
    found(
        &remade(other, |sim, _| sim.invalidate(&one(space(), VA + PAGE, 0, Tables::Removed))),
        &again,
    );
    let elsewhere = |sim: &Sim, _| {
        run(sim, 1, ROOT);
        sim.on(Cpu(1), || sim.invalidate(&Invalidation::all(space())));
    };
    found(&remade(other, elsewhere), &again);
    found(&remade(other, |sim, word| clear(sim, word & !0xfff, PAGE)), &again);
    // The leaf is flushed, or it says what it said.
    clean(&remade(other, |sim, _| sim.invalidate(&one(space(), VA, 0, Tables::Kept))));
    clean(&remade(leaf_word(ARM, 0, SIZE_1G, Right::Writable, 1) | AF, |_, _| ()));
}

#[test]
fn what_is_made_after_the_flush_is_a_live_word_like_any_other() {
    let other = leaf_word(ARM, 0, OTHER_PAGE, Right::Writable, 1);
    let sim = remade(other, |sim, _| sim.invalidate(&one(space(), VA, 0, Tables::Kept)));
    let word = chain(&sim, ROOT, VA, 0);
    put(&sim, word, leaf(&sim, 0, SIZE_1G));
    found(&sim, &[(HERE, "live word at")]);
}

#[test]
fn a_word_that_is_cached_for_two_addresses_is_flushed_for_both() {
    let (sim, word) = mapped();
    let (table, alias) = (word & !0xfff, VA + (2 << 20));
    put(&sim, table - PAGE + (alias >> 21 & 511) * 8, table_word(ARM, table));
    touch(&sim, 0, VA, Access::Read);
    touch(&sim, 0, alias, Access::Read);
    put(&sim, word, 0);
    sim.invalidate(&one(space(), VA, 0, Tables::Kept));
    put(&sim, word, leaf(&sim, 0, OTHER_PAGE));
    found(&sim, &[(HERE, "made again before the flush")]);
}

/// CPU 0 keeps a broken page of [`ROOT`] and runs another root; the word is made again under CPU 1.
fn kept(global: u64) -> Sim {
    let sim = machine(ARM);
    let word = chain(&sim, ROOT, VA, 0);
    put(&sim, word, leaf(&sim, 0, SIZE_1G) & !(global << 11));
    (0..2).for_each(|cpu| run(&sim, cpu, ROOT));
    touch(&sim, 0, VA, Access::Read);
    put(&sim, word, 0);
    run(&sim, 0, OTHER);
    put(&sim, word, leaf(&sim, 0, OTHER_PAGE) & !(global << 11));
    sim
}

#[test]
fn what_is_kept_of_a_word_is_gone_when_its_root_is_activated_again() {
    let sim = kept(0);
    run_again(&sim, 0, OTHER, Kept::Unchanged);
    run_again(&sim, 1, ROOT, Kept::Unchanged);
    clean(&sim);
    run_again(&sim, 0, ROOT, Kept::Unchanged);
    found(&sim, &[(HERE, "is activated again with what")]);

    let sim = kept(0);
    run_again(&sim, 0, ROOT, Kept::Nothing);
    clean(&sim);

    let sim = kept(0);
    sim.invalidate(&one(space(), VA, 0, Tables::Kept));
    run_again(&sim, 0, ROOT, Kept::Unchanged);
    clean(&sim);
}

#[test]
fn what_is_global_is_used_whatever_runs() {
    // The entry is kept without a tag.
    let sim = kept(1);
    found(&sim, &[(HERE, "made again before the flush")]);
}
